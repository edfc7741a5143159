// The page: which run and which view are shown, kept in the address so that a link leads back to it.

const VIEWS = [
  ['story', 'Story', (page, run) => storyView(run)],
  ['timeline', 'Timeline', (page, run, log) => new Timeline(page, run, log).element],
  ['messages', 'Messages', (page, run, log) => new Sequence(page, run, log).element],
  ['tree', 'Tree', (page, run, log) => treeView(page, run, log)],
  ['series', 'Series', (page, run) => seriesView(page.report, run)],
];

const NARROW = '(max-width: 760px)';

class Page {
  constructor(report) {
    this.report = report;
    report.runs.forEach((run, index) => { run.index = index; run.filter = {}; if (report.log) run.ended = 'seen'; });
    this.logs = new Map();
    this.turn = 0;
    this.verdicts = new Verdicts(report, (where) => this.go(where));
    this.detail = h('main', { class: 'detail', tabindex: '-1' });
    this.runs = h('details', { class: 'runs', open: !matchMedia(NARROW).matches }, h('summary', {}, 'All runs'), this.verdicts.element);
    this.element = h('div', { id: 'app' }, this.banner(), h('div', { class: 'panes' }, this.runs, this.detail));
    addEventListener('hashchange', () => this.show());
  }

  banner() {
    if (this.report.log) return h('header', { class: 'banner' }, h('h1', {}, this.report.title), h('p', {}, 'The messages of a log: nothing was run or checked for this page.'));
    const { files, runs, title, cut } = this.report, passed = runs.filter((run) => run.ended === 'passed').length;
    const fine = files.every((file) => file.exit_code === 0) && !(cut && cut.runs < cut.of);
    const word = fine ? '✓ passed' : cut && cut.why !== 'fail-fast' ? `✗ ${cut.why}` : '✗ not passed';
    const said = [cut ? cut.text : '', `${passed.toLocaleString('en')} of ${many(runs.length, 'run')} passed`,
      files.length > 1 ? many(files.length, 'file') : ''].filter(Boolean).join(', ');
    return h('header', { class: 'banner' }, h('h1', {}, title),
      h('p', {}, h('span', { class: `badge ${fine ? 'ok' : 'bad'}` }, word), ` ${said}`));
  }

  where() {
    const words = new URLSearchParams(location.hash.slice(1)), { runs, files } = this.report;
    const run = Number(words.get('run')), file = Number(words.get('file'));
    const view = VIEWS.some(([name]) => name === words.get('view')) ? words.get('view') : this.report.log ? 'messages' : 'story';
    if (words.has('run') && runs[run]) return { run, view };
    if (words.has('file') && files[file]) return { file };
    const bad = runs.findIndex((one) => one.ended !== 'passed');
    if (bad >= 0 || (runs.length === 1 && !this.report.cut)) return { run: Math.max(bad, 0), view };
    return { file: 0 };
  }

  // Shows another run, view or file. What is not named stays: the view when the run changes.
  go({ run, view, file }) {
    const now = this.where(), words = new URLSearchParams();
    if (file !== undefined) words.set('file', file);
    else {
      words.set('run', run === undefined ? now.run : run);
      words.set('view', view || now.view || (this.report.log ? 'messages' : 'story'));
    }
    if (location.hash.slice(1) === words.toString()) this.show(); else location.hash = words.toString();
    if (run !== undefined || file !== undefined) {
      if (matchMedia(NARROW).matches) this.runs.open = false;
      this.detail.focus({ preventScroll: true });
    }
  }

  log(run) {
    if (!run.log) return Promise.resolve(null);
    if (!this.logs.has(run.index)) {
      if (this.logs.size > 3) this.logs.clear(); // a log is large: only the last few stay
      this.logs.set(run.index, unpacked(`log-${run.index}`).then((text) => new Log(text, run.faults)));
    }
    return this.logs.get(run.index);
  }

  async show() {
    const turn = ++this.turn, where = this.where();
    this.verdicts.choose(where);
    if (where.file !== undefined) {
      this.detail.replaceChildren(this.report.files.length ? filePage(this.report, where.file, (next) => this.go(next)) : h('p', {}, 'Nothing was run.'));
      drawAll();
      return;
    }
    const run = this.report.runs[where.run], log = await this.log(run);
    if (turn !== this.turn) return; // another one was chosen meanwhile
    const keep = this.detail.querySelector('[role=tab]:focus') !== null;
    const [, , view] = VIEWS.find(([name]) => name === where.view);
    const panel = h('div', { role: 'tabpanel', id: 'view', class: `view view-${where.view}`, 'aria-labelledby': `tab-${where.view}` });
    this.detail.replaceChildren(runHead(this.report, run, log), this.tabs(where.view), panel);
    panel.append(view(this, run, log));
    drawAll();
    if (keep) this.detail.querySelector('[aria-selected=true]').focus();
  }

  tabs(chosen) {
    const step = (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      const at = VIEWS.findIndex(([name]) => name === chosen);
      this.go({ view: VIEWS[(at + move + VIEWS.length) % VIEWS.length][0] });
      event.preventDefault();
    };
    return h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Views of this run', onkeydown: step },
      VIEWS.map(([name, label]) => button(label, () => this.go({ view: name }), {
        role: 'tab', id: `tab-${name}`, 'aria-controls': 'view', 'aria-selected': String(name === chosen), tabindex: name === chosen ? '0' : '-1',
      })));
  }
}

// Why there are no messages to show, or which of them are missing.
function leftOut(run) {
  if (!run.log) return h('p', { class: 'notice' }, 'The message log of this run is not in this page. ', run.again ? 'The command above repeats the run; with --log FILE it writes the log.' : '');
  const missing = run.log.whole - run.log.records;
  if (missing <= 0) return null;
  return h('p', { class: 'notice' }, `${missing.toLocaleString('en')} of ${many(run.log.whole, 'record')} are not in this page, which has room for so many: they are left out where a gap is shown.`);
}

async function begin() {
  const root = document.documentElement;
  try {
    const page = new Page(JSON.parse(await unpacked('report')));
    document.getElementById('app').replaceWith(page.element);
    await page.show();
    root.dataset.ready = 'yes';
  } catch (problem) {
    root.dataset.ready = 'no';
    document.getElementById('app').replaceChildren(h('p', { class: 'notice' }, `This page cannot be shown: ${problem}`));
    throw problem;
  }
}

begin();
