// The frame of a page that watches runs: which runs there are, the clock of the one that is shown, its pace and its verdict.

const BUSY = new Set(['running']), AHEAD_OF_NEWS = 0.4, LATE = 0.25; // seconds
const ROOMY = 24; // more runs than these stand side by side
const STRIP = { height: 42, top: 11, foot: 22, faults: 25, end: 30 };
const PACES = { pause: 'Pause', go: 'Go on', step: 'One step', slower: 'Slower', faster: 'Faster' };
const KEYS = { ' ': 'turn', '.': 'step', '+': 'faster', '-': 'slower', ArrowUp: 'faster', ArrowDown: 'slower', ArrowRight: 'step' };
const FREE_KEYS = new Set([' ', '.', '+', '-']); // they work wherever the focus is, unless something there takes them

const speedWords = (speed) => (speed === 'max' ? 'as fast as it goes' : `${amount(speed)} s of it a second`);

const isOver = (status) => !BUSY.has(status) && status !== 'waiting';

const truthOf = (status) => (status === 'passed' ? true : status === 'failed' ? false : null);

// The name that a fault has in its file, if it has one.
const idOf = ({ id, what }) => (!id || id === what || /^timeline\.\d+$/.test(id) ? '' : id);

const faultWords = (fault) => [fault.what, idOf(fault), few(fault.targets || [])].filter(Boolean).join(' ');

// The faults that are in force now; none if the run is over.
const inForce = (run) => (!run || isOver(run.status) ? [] : (run.faults || []).filter((fault) => fault.healed === undefined));

// The faults of a run, as charts and reports have them.
const asFaults = (faults) => (faults || []).map(({ id, what, targets, at, healed }) => ({ kind: what, id: idOf({ id, what }), targets: targets || [], restarted: [], begin: at, end: healed === undefined ? null : healed }));

class Runs {
  constructor(page) {
    Object.assign(this, { page, run: null, id: null, all: {}, at: 0, told: '', records: null });
    this.turn = button('Pause', () => this.press('turn'), { class: 'main', 'data-what': 'turn' });
    const [step, slower, faster] = ['step', 'slower', 'faster'].map((what) => button(PACES[what], () => this.press(what), { 'data-what': what }));
    this.buttons = { step, slower, faster };
    this.speed = h('span', { class: 'speed' });
    this.clock = h('span', { class: 'clock' }, '–');
    this.until = h('span', { class: 'quiet' });
    this.verdict = h('span', { class: 'verdict' });
    this.why = h('p', { class: 'why', hidden: true });
    this.strip = svg('svg', { class: 'strip', 'aria-hidden': 'true' });
    this.progress = drawn(h('div', { class: 'progress', role: 'progressbar', 'aria-label': 'Virtual time', 'aria-valuemin': '0' }, this.strip), () => this.drawStrip());
    this.bar = h('section', { class: 'player', 'aria-label': 'The clock of the run' },
      this.paces = h('div', { class: 'paces', role: 'group', 'aria-label': 'Pace' }, this.turn, step, slower, this.speed, faster),
      h('div', { class: 'clocks' }, this.clock, this.until), this.verdict, this.progress, this.why);
    this.list = h('ul', { class: 'runlist' });
    this.count = h('p', { class: 'quiet' });
    this.checks = h('ul', { class: 'ticks' });
    this.steps = h('ul', { class: 'ticks' });
    this.faults = h('ul', { class: 'faultlist' });
    this.parts = [h('section', {}, h('h2', {}, 'Checks'), this.checks), h('section', {}, h('h2', {}, 'Faults'), this.faults), h('section', {}, h('h2', {}, 'Steps'), this.steps)];
    this.aside = h('aside', { class: 'runside', 'aria-label': 'Runs, checks, faults, steps' }, h('section', { class: 'all' }, h('h2', {}, 'Runs'), this.count, this.list), this.parts);
    this.frame = soon(() => this.beat());
  }

  // ---- what is known

  begin() {
    const { wire } = this.page;
    wire.common = this.page.where().run === null ? {} : { run: this.page.where().run };
    wire.look('runs', 'runs', {}, (state) => this.drawRuns(state));
    wire.look('run', 'run', {}, (state, changed) => this.drawRun(state, changed), (error) => this.page.warn(error.message));
  }

  // Virtual time now, as an estimate: between two messages it goes on at its pace.
  now() {
    const { run } = this;
    if (!run) return 0;
    if (run.paused || !run.records || run.speed === 'max' || !BUSY.has(run.status) || this.page.lost) return run.time;
    const since = Math.min((performance.now() - this.at) / 1000, run.waits ? 2 : AHEAD_OF_NEWS);
    return Math.min(run.time + since * (run.is_real ? 1 : run.speed), run.until === undefined ? Infinity : Math.max(run.until, run.time));
  }

  // The instant that is drawn: a little late, so that what comes next is known.
  get shownTime() { return !this.run || this.run.paused || typeof this.run.speed !== 'number' ? this.now() : Math.max(0, this.now() - LATE * this.run.speed); }

  get end() {
    const { run } = this;
    if (!run) return 1;
    if (isOver(run.status)) return run.time || 1;
    return Math.max(run.until || 0, run.time) || 1;
  }

  // ---- all runs

  drawRuns(state) {
    this.all = state;
    const rows = state.order || [], ended = rows.filter((id) => isOver(state.rows[id].status)), passed = ended.filter((id) => state.rows[id].status === 'passed').length;
    put(this.count, `${passed.toLocaleString('en')} of ${many(state.total || rows.length, 'run')} passed${ended.length > passed ? `, ${(ended.length - passed).toLocaleString('en')} not` : ''}`);
    this.count.className = ended.length > passed ? 'bad' : 'quiet';
    const close = rows.length > ROOMY, files = new Set(rows.map((id) => state.rows[id].file)).size, shown = this.run ? this.run.id : state.current;
    this.list.classList.toggle('close', close);
    while (this.list.children.length > rows.length) this.list.lastChild.remove();
    rows.forEach((id, n) => {
      let item = this.list.children[n];
      if (!item) this.list.append(item = this.line());
      const row = state.rows[id], { sign, word, style } = verdict(row.status), line = item.firstChild, [mark, name, said, rest] = line.children;
      const label = [files > 1 ? row.name : '', row.label || row.name, row.trial > 1 ? `trial ${row.trial}` : ''].filter(Boolean).join(' ');
      line.dataset.run = id;
      line.className = `runline ${style}`;
      if (id !== shown) line.removeAttribute('aria-current');
      else if (!line.hasAttribute('aria-current')) { line.setAttribute('aria-current', 'true'); item.scrollIntoView({ block: 'nearest', inline: 'nearest' }); }
      line.title = legible(`${row.name} ${label}: ${word}`);
      put(mark, sign);
      put(name, label);
      put(said, word);
      put(rest, row.status === 'running' ? share(row) : isOver(row.status) && row.time ? seconds(round(row.time)) : word);
    });
  }

  line() {
    const line = button([h('span', { class: 'sign', 'aria-hidden': 'true' }), h('bdi', { class: 'label' }), h('span', { class: 'heard' }), h('span', { class: 'quiet rest', 'aria-hidden': 'true' })], () => this.choose(line.dataset.run));
    return h('li', {}, line);
  }

  choose(id) { this.page.go({ run: id === this.all.current ? null : id }); }

  // ---- the run that is shown

  drawRun(run, changed) {
    this.run = run; // always the same object, in which things change
    if ('time' in changed || 'paused' in changed || 'speed' in changed || 'status' in changed) this.at = performance.now();
    if (run.gone) { this.gone(); return; }
    if (run.id === undefined) return;
    if (this.id !== null && this.id !== run.id) this.anew();
    this.id = run.id;
    this.announce(run);
    this.page.named(`${run.name || run.file}`, `${run.label || ''}${run.trial > 1 ? ` trial ${run.trial}` : ''}`);
    this.drawPace(run);
    this.drawTicks(run);
    this.drawFaults(run);
    this.drawStrip();
    this.beat();
    if (this.page.shown === 'run') this.page.made('run').draw(run, changed);
  }

  // For older runs only the outcome is kept.
  gone() {
    const id = this.page.where().run, row = (this.all.rows || {})[id] || {};
    if (this.id !== id) this.anew();
    this.id = id;
    this.run = { id, status: row.status || 'waiting', time: row.time || 0, seconds: row.seconds, failures: row.failures || [], steps: [], checks: [], faults: [], records: 0, speed: 1 };
    this.page.named(row.name || 'A run', row.label);
    this.drawPace(this.run);
    this.drawTicks(this.run);
    this.drawStrip();
    this.beat();
    this.drawRuns(this.all);
    if (this.page.shown === 'run') this.page.made('run').draw(this.run, this.run);
  }

  // Another run is shown from now on.
  anew() {
    this.page.rates.clear();
    this.records = null;
    this.page.sparks = [];
    this.told = '';
    for (const view of this.page.views.values()) if (view.anew) view.anew();
    this.drawRuns(this.all);
  }

  announce(run) {
    const word = isOver(run.status) ? `The run ${run.status === 'passed' ? 'has passed' : `has ended: ${run.status}`}${run.failures && run.failures.length ? `. ${run.failures[0]}` : ''}.`
      : run.status === 'waiting' ? 'The run has not begun.' : run.paused ? `Paused at ${seconds(round(run.time))}.` : `Running, ${run.is_real ? 'in real time' : speedWords(run.speed)}.`;
    const key = [run.id, run.status, run.paused, run.speed].join();
    if (this.told && this.told !== key) this.page.say(word);
    this.told = key;
    document.documentElement.dataset.run = run.paused && !isOver(run.status) ? 'paused' : run.status;
  }

  drawPace(run) {
    const { operations = [] } = this.page.hello, over = isOver(run.status), mine = run.id === this.all.current || this.all.current === undefined;
    const may = (what) => operations.includes(what) && !over && !run.is_real && mine;
    put(this.turn, run.paused ? PACES.go : PACES.pause);
    this.turn.hidden = !may(run.paused ? 'go' : 'pause');
    for (const [what, one] of Object.entries(this.buttons)) one.hidden = !may(what);
    this.buttons.faster.disabled = run.speed === 'max';
    put(this.speed, run.is_real ? 'real time' : run.speed === 'max' ? 'max' : `${amount(run.speed)}×`);
    this.speed.title = run.is_real ? 'This run takes place in real time: it cannot be paused.' : speedWords(run.speed);
    this.speed.hidden = over;
    const state = run.status === 'waiting' ? 'not begun' : run.paused ? 'paused' : run.records ? '' : 'starting…';
    this.verdict.hidden = !over && !state;
    this.verdict.replaceChildren(over ? badge(run.status) : h('span', { class: 'badge none' }, state));
    this.bar.classList.toggle('over', over);
    this.paces.hidden = over;
    const failed = (run.failures || [])[0];
    this.why.hidden = !failed && !run.is_real;
    put(this.why, failed ? `${failed}${run.failures.length > 1 ? ` And ${run.failures.length - 1} more, in the story.` : ''}` : run.is_real && !over ? 'This run takes place in real time: it goes on by itself and cannot be paused.' : '');
    this.why.classList.toggle('bad', Boolean(failed));
  }

  drawTicks(run) {
    const checks = run.checks || [], steps = (run.steps || []).slice(-30);
    this.parts[0].hidden = !checks.length;
    this.parts[2].hidden = !steps.length;
    ticked(this.checks, checks.map((check) => ({ ...check, text: check.name, said: [check.expected, check.saw].filter(Boolean).join('; saw ') })));
    ticked(this.steps, steps.map((step) => ({ ...step, at: step.begin, said: step.place })));
  }

  drawFaults(run) {
    const faults = [...(run.faults || [])].sort((one, other) => other.at - one.at), key = JSON.stringify(faults);
    this.parts[1].hidden = !faults.length;
    if (key === this.struck) return;
    const states = faults.map((fault) => `${run.id} ${fault.id} ${fault.healed === undefined}`), fresh = faults.find((fault, n) => !(this.states || []).includes(states[n]));
    if (fresh && BUSY.has(run.status)) this.page.say(`${fresh.healed === undefined ? 'Fault' : 'Healed'}: ${faultWords(fresh)}.`, true);
    this.struck = key;
    this.states = states;
    this.faults.replaceChildren(...faults.slice(0, 40).map((fault) => h('li', { class: fault.healed === undefined ? 'active' : '' }, h('span', { class: 'sign', 'aria-hidden': 'true' }, fault.healed === undefined ? SIGNS.fault : SIGNS.healed),
      h('span', {}, isolated(faultWords(fault)), h('span', { class: 'quiet when' }, ` ${seconds(round(fault.at))}${fault.healed === undefined ? ', goes on' : fault.healed > fault.at ? ` to ${seconds(round(fault.healed))}` : ''}`)))));
  }

  // ---- pace

  press(what) {
    const { run, page } = this;
    if (!run || isOver(run.status) || run.is_real) return;
    const does = what === 'turn' ? (run.paused ? 'go' : 'pause') : what;
    if (!(page.hello.operations || []).includes(does)) return;
    page.wire.do(does, run.id).catch((problem) => page.warn(problem.message));
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    const { target } = event, own = target === document.body || this.bar.contains(target);
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || (event.key === ' ' && /^(BUTTON|SUMMARY)$/.test(target.tagName)) || document.querySelector('dialog[open]')) return;
    if (!own && !FREE_KEYS.has(event.key)) return;
    this.press(KEYS[event.key]);
    event.preventDefault();
  }

  // ---- the clock

  beat() {
    const { run } = this;
    if (!run || run.time === undefined) return;
    const time = this.now(), digits = run.paused && !isOver(run.status) ? 6 : this.end < 1 ? 4 : 1; // steps are as small as delays are
    put(this.clock, clockWords(time, digits));
    put(this.until, isOver(run.status) ? 'in all' : run.until === undefined ? '' : `of ${seconds(run.until)}`);
    if (this.head) this.head.setAttribute('transform', `translate(${this.x(time).toFixed(1)} 0)`);
    if (this.done) this.done.setAttribute('width', Math.max(0, this.x(time)).toFixed(1));
    this.progress.setAttribute('aria-valuenow', time.toFixed(1));
    this.progress.setAttribute('aria-valuemax', this.end.toFixed(1));
    this.progress.setAttribute('aria-valuetext', `${seconds(round(time))} of ${seconds(round(this.end))}`);
    if (BUSY.has(run.status) && !run.paused && !document.hidden && !STILL.matches) this.frame();
  }

  drawStrip() {
    const { run, strip } = this, width = strip.parentElement.clientWidth;
    if (!run || run.time === undefined || !width) return;
    const end = this.end, x = this.x = (time) => Math.min(Math.max(time / end, 0), 1) * width, { top, foot } = STRIP;
    strip.setAttribute('width', width);
    strip.setAttribute('height', STRIP.height);
    const marks = (run.checks || []).filter((check) => check.at !== undefined && truthOf(check.status) !== null);
    strip.replaceChildren(
      svg('rect', { x: 0, y: top, width, height: foot - top, rx: 4, class: 'track' }),
      this.done = svg('rect', { x: 0, y: top, width: x(this.now()), height: foot - top, rx: 4, class: 'done' }),
      ...asFaults(run.faults).map((fault) => svg('g', { class: 'faultband' }, svg('rect', { x: x(fault.begin), y: STRIP.faults, width: Math.max(x(fault.end === null ? this.now() : fault.end) - x(fault.begin), 3), height: STRIP.end - STRIP.faults, rx: 2 }), svg('title', {}, `${faultName(fault)}: ${seconds(fault.begin)}${fault.end === null ? '' : ` to ${seconds(fault.end)}`}`))),
      ...ticks(0, end, width / 110).map((time) => tick(time, x(time), STRIP.height - 1, width)),
      ...marks.map((check) => svg('text', { x: Math.min(Math.max(x(check.at), 5), width - 5), y: 9, class: `mark ${truthOf(check.status) ? 'ok' : 'bad'}` }, truthOf(check.status) ? '✓' : '✗', svg('title', {}, `${check.name} at ${seconds(check.at)}`))),
      this.head = svg('g', { class: 'playhead', transform: `translate(${x(this.now())} 0)` }, svg('line', { y1: top - 2, y2: STRIP.end }), svg('circle', { cy: (top + foot) / 2, r: 5 })));
  }

  // ---- sums, once a second

  second() {
    const { run } = this;
    if (!run || run.id === undefined) return null;
    const grown = this.records === null ? 0 : Math.max(0, run.records - this.records);
    this.records = run.records;
    return grown;
  }

  tiles() {
    const { run } = this;
    if (!run || run.id === undefined) return [];
    const checks = run.checks || [], failed = checks.filter((one) => one.status === 'failed').length, struck = inForce(run).length;
    if (!run.records) return [['Checks', '–'], ['Steps', '–'], ['Faults in force', '–'], ['Log records', '0'], ['Real time', seconds(Math.round(run.seconds || 0))]];
    return [['Checks', `${checks.filter((one) => one.status === 'passed').length}/${checks.length}`, failed ? 'bad' : ''],
      ['Steps', `${run.steps_done ?? 0}/${run.steps_total ?? (run.steps || []).length}`],
      ['Faults in force', `${struck} of ${(run.faults || []).length}`, struck ? 'some' : ''],
      ['Log records', short(run.records)], ['Real time', seconds(Math.round(run.seconds || 0))]];
  }
}

const STILL = matchMedia('(prefers-reduced-motion: reduce)');

const share = ({ done, total, unit }) => (!total ? '' : unit === 'steps' ? `${done}/${total}` : `${Math.floor(Math.min(done / total, 1) * 100)} %`);

// A clock that keeps its width while it goes: 7.3 s, 1:02.4.
function clockWords(time, digits) {
  if (time < 60) return `${time.toFixed(digits)} s`;
  const hours = Math.floor(time / 3600), minutes = Math.floor((time % 3600) / 60), rest = (Math.floor((time % 60) * 10 ** digits) / 10 ** digits).toFixed(digits).padStart(digits + 3, '0');
  return hours ? `${hours}:${String(minutes).padStart(2, '0')}:${rest}` : `${minutes}:${rest}`;
}

// Lines, each with whether it is true; only changed ones are written.
function ticked(list, items) {
  while (list.children.length > items.length) list.lastChild.remove();
  items.forEach((item, n) => {
    let line = list.children[n];
    const key = `${item.text}|${item.status}|${item.at}|${item.said}`;
    if (!line) list.append(line = h('li', {}));
    if (line.dataset.key === key) return;
    const ok = truthOf(item.status), was = line.dataset.status;
    line.dataset.key = key;
    line.dataset.status = item.status;
    line.title = legible(item.said || '');
    line.className = ok === null ? item.status : ok ? 'ok' : 'bad';
    if (was !== undefined && was !== item.status) line.classList.add('fresh');
    const mark = item.status === 'running' ? h('span', { class: 'truth now', role: 'img', 'aria-label': 'running' }, '▶') : ok === null ? h('span', { class: 'truth none', role: 'img', 'aria-label': 'open' }, '·') : truth(ok);
    line.replaceChildren(mark, h('bdi', { class: 'label' }, item.text), h('span', { class: 'quiet' }, item.at === undefined ? '' : seconds(round(item.at))));
  });
}

// One run in words, as the story of a report.
class StoryView {
  constructor(page) {
    this.page = page;
    this.body = h('div', { class: 'sections story' });
    const own = {
      failures: (texts) => h('ul', { class: 'failures' }, texts.map((text) => h('li', { class: 'failure' }, isolated(text)))),
      checks: (checks) => checkTable(checks.map((check) => ({ place: '', kind: '', expected: '', saw: '', at: null, ...check, ok: truthOf(check.status), isOpen: check.status === 'open' }))),
      steps: (steps) => table(['', 'Step', 'Where', 'Begin', 'Took'], steps, (step) => h('tr', { class: truthOf(step.status) === false ? 'bad' : truthOf(step.status) === null ? 'none' : '' },
        h('td', {}, step.status === 'running' ? h('span', { class: 'truth now', role: 'img', 'aria-label': 'running' }, '▶') : truth(truthOf(step.status))), h('td', {}, isolated(step.text)), h('td', { class: 'quiet' }, step.place || ''),
        h('td', { class: 'number' }, step.begin === undefined ? '' : seconds(step.begin)), h('td', { class: 'number' }, step.begin === undefined || step.end === undefined ? '' : seconds(Number((step.end - step.begin).toFixed(6)))))),
      faults: (faults) => faultTable(faults),
      log: (lines) => h('pre', { class: 'raw', tabindex: '0' }, lines.join('\n')),
    };
    const heads = { failures: 'What went wrong', log: 'Last records' };
    this.sections = new Sections(this.body, ['failures', 'checks', 'steps', 'faults', 'log'], () => {}, (name, content) => h('section', {}, h('h3', {}, heads[name] || words(name)), content), own);
    this.note = h('p', { class: 'quiet' }, 'Asking…');
    this.element = h('div', { class: 'listview' }, h('h2', { class: 'heard' }, 'Story'), this.note, this.body);
  }

  begin() { if (this.page.runs.run) this.draw(this.page.runs.run, this.page.runs.run); }

  end() { /* the frame keeps looking at the run */ }

  focus() { this.element.focus(); }

  draw(state, changed) {
    const names = ['failures', 'checks', 'steps', 'faults', 'log'].filter((name) => state[name] && state[name].length);
    this.sections.draw(Object.fromEntries(names.map((name) => [name, state[name]])), changed);
    this.note.hidden = names.length > 0;
    put(this.note, 'Nothing has happened yet.');
  }
}

function faultTable(faults) {
  return table(['', 'Fault', 'On', 'Begin', 'Took'], faults, ({ id, what, targets, at, healed }) => h('tr', {}, h('td', {}, h('span', { class: 'truth', 'aria-hidden': 'true' }, SIGNS.fault)),
    h('td', {}, isolated(what), idOf({ id, what }) ? h('span', { class: 'quiet' }, isolated(` ${id}`)) : null), h('td', {}, isolated(few(targets || []))), h('td', { class: 'number' }, seconds(at)), h('td', { class: 'number' }, healed === undefined ? 'still' : seconds(Number((healed - at).toFixed(6))))));
}

// The measured series of a run, which grow while it goes on.
class SeriesView {
  constructor(page) {
    Object.assign(this, { page, charts: new Map(), key: '' });
    this.note = h('p', { class: 'quiet' }, 'Asking…');
    this.list = h('div', { class: 'charts several' });
    this.element = h('div', { class: 'listview seriesview' }, h('h2', { class: 'heard' }, 'Series'), this.note, this.list);
  }

  begin() {
    this.page.wire.look('series', 'series', {}, (state, changed) => this.draw(state, changed), refusedIn(this.note));
  }

  end() { this.page.wire.leave('series'); }

  focus() { this.element.focus(); }

  anew() { this.charts.clear(); this.list.replaceChildren(); }

  draw({ series = {} }, changed) {
    const names = Object.keys(series), { run } = this.page.runs, faults = asFaults(run && run.faults);
    const key = `${JSON.stringify(faults)} ${this.page.runs.end}`, all = key !== this.key;
    this.key = key;
    for (const [name, chart] of this.charts) if (!names.includes(name)) { chart.element.remove(); this.charts.delete(name); }
    for (const name of names) {
      const points = Object.keys(series[name].chunks || {}).sort((one, other) => one - other).flatMap((chunk) => series[name].chunks[chunk]);
      const of = { series: { times: points.map(([time]) => time), values: points.map(([, value]) => (value === undefined ? null : value)) }, faults, last: this.page.runs.end, tall: true };
      let chart = this.charts.get(name);
      if (!chart) {
        chart = new Chart(name, series[name].agg || '', of);
        this.charts.set(name, chart);
        this.list.append(chart.element);
        drawAll();
      } else if (all || (changed.series && name in changed.series)) chart.show(of);
      const last = points[points.length - 1];
      put(chart.now, last && last[1] !== undefined ? amount(last[1]) : '');
    }
    this.note.hidden = names.length > 0;
    put(this.note, 'Nothing is measured: the file has no "measure".');
  }
}
