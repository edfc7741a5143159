// All runs at a glance: files, combinations, seeds.

const SQUARES = 240;

class Verdicts {
  constructor(report, go) {
    this.report = report;
    this.go = go;
    this.chosen = null;
    this.words = h('input', { type: 'search', placeholder: 'e.g. city=Berlin', oninput: () => this.draw() });
    this.failed = h('input', { type: 'checkbox', onchange: () => this.draw() });
    this.list = h('div', { class: 'files' });
    this.element = h('nav', { class: 'verdicts', 'aria-label': 'Runs' },
      h('div', { class: 'filters' },
        h('label', { class: 'grow' }, h('span', {}, 'Runs with the words'), this.words),
        report.log ? null : h('label', { class: 'check' }, this.failed, 'not passed only')),
      this.list);
    this.draw();
  }

  draw() {
    const words = this.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => (!this.failed.checked || run.ended !== 'passed')
      && words.every((word) => `${this.report.files[run.file].name} ${run.label} ${run.ended}`.toLowerCase().includes(word));
    const files = this.report.files.map((file, index) => {
      const runs = this.report.runs.filter((run) => run.file === index && fits(run));
      const missing = file.missing.map((run) => ({ ...run, file: index, ended: 'not run' })).filter(fits);
      return runs.length || missing.length ? this.file(file, index, [...runs, ...missing]) : null;
    });
    const shown = files.some(Boolean);
    this.list.replaceChildren(...(shown ? files.filter(Boolean) : [h('p', { class: 'quiet' }, 'No run fits.')]));
    this.mark();
  }

  file(file, index, runs) {
    const combinations = new Map();
    for (const run of runs) {
      if (!combinations.has(run.combination)) combinations.set(run.combination, []);
      combinations.get(run.combination).push(run);
    }
    const rows = [...combinations].map(([combination, own]) => h('li', {},
      combination ? h('span', { class: 'combination', title: combination }, combination) : null,
      h('span', { class: 'squares' }, this.squares(own, file))));
    return h('section', { class: 'file' },
      h('h2', {}, button(file.name, () => this.go({ file: index }), { class: 'plain', 'data-file': index, title: file.file }),
        this.report.log ? null : h('span', { class: `count ${file.exit_code ? 'bad' : 'ok'}` }, `${file.passed}/${file.asked}`)),
      h('ul', {}, rows));
  }

  squares(runs, file) {
    const square = (run) => {
      const { sign, word, style } = verdict(run.ended), trial = file.trials > 1 ? `.${run.trial}` : '';
      const label = `${run.combination || file.name}, seed ${run.seed}${trial ? `, trial ${run.trial}` : ''}: ${word}`;
      if (run.index === undefined) {
        return h('span', { class: `square ${style}`, title: label, 'aria-label': label, role: 'img' }, h('span', { 'aria-hidden': 'true' }, sign), `${run.seed}${trial}`);
      }
      return button([h('span', { 'aria-hidden': 'true' }, sign), `${run.seed}${trial}`], () => this.go({ run: run.index }),
        { class: `square ${style}`, title: label, 'aria-label': label, 'data-run': run.index });
    };
    const rest = runs.slice(SQUARES);
    if (!rest.length) return runs.map(square);
    const more = button(`${rest.length} more`, () => { more.replaceWith(...rest.map(square)); this.mark(); });
    return [...runs.slice(0, SQUARES).map(square), more];
  }

  choose(chosen) {
    this.chosen = chosen;
    this.mark();
  }

  mark() {
    const { run, file } = this.chosen || {};
    for (const one of this.list.querySelectorAll('[data-run],[data-file]')) {
      const own = run !== undefined ? one.dataset.run === String(run) : one.dataset.file === String(file);
      if (own) one.setAttribute('aria-current', 'true'); else one.removeAttribute('aria-current');
    }
  }
}

// What is known of a file beyond its runs: combinations compared, repetitions, series.
function filePage(report, index, go) {
  const file = report.files[index], runs = report.runs.filter((run) => run.file === index);
  const different = file.repeated.filter((again) => !again.ok);
  return h('article', { class: 'overview' },
    h('header', {}, h('h2', {}, file.name),
      h('p', { class: 'quiet' }, `${file.file} · ${file.passed.toLocaleString('en')} of ${many(runs.length, 'run')} passed · exit code ${file.exit_code}`),
      file.cut ? h('p', { class: 'notice cut' }, file.cut) : null,
      file.notes.map((note) => h('p', { class: 'notice note' }, note))),
    file.compared.length ? [h('h3', {}, 'Compared'), checkTable(file.compared)] : null,
    file.repeated.length ? [h('h3', {}, 'Repeated in a second process'),
      different.length ? null : h('p', {}, truth(true), ` ${many(file.repeated.length, 'run')}, each with the same log.`),
      different.map((again) => [h('p', {}, truth(false), ` ${again.label}: another process gave another log`), h('pre', {}, again.text)])] : null,
    h('h3', {}, 'Runs'),
    table(['', 'Run', 'Steps', 'Checks', 'Virtual', 'Real'], runs, (run) => h('tr', {},
      h('td', {}, badge(run.ended)),
      h('td', {}, button(run.label + (file.trials > 1 ? ` trial ${run.trial}` : ''), () => go({ run: run.index }), { class: 'plain' })),
      h('td', { class: 'number' }, run.steps.join('/')), h('td', { class: 'number' }, run.checks.join('/')),
      h('td', { class: 'number' }, seconds(run.virtual)), h('td', { class: 'number' }, seconds(Number(run.real.toFixed(2)))))),
    file.missing.length ? [h('h3', {}, 'Not run'),
      table(['', 'Run'], file.missing, (run) => h('tr', { class: 'none' },
        h('td', {}, badge('not run')), h('td', {}, run.label + (file.trials > 1 ? ` trial ${run.trial}` : ''), run.begun ? ', begun, not ended' : '')))] : null,
    file.bands.length ? [h('h3', {}, 'Series over all seeds'), bandCharts(file)] : null);
}
