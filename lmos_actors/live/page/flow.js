// The flow of messages: how many go from whom to whom, and the last of them as a sequence diagram.

const HELD = 2_000; // records that the page keeps
const SHOWN_EDGES = 60;

class FlowView {
  constructor(page) {
    Object.assign(this, { page, held: new Map(), paused: false, log: new Log('', [], true), edges: [] });
    const field = (name, label, options) => h('label', {}, h('span', {}, label), this[name] = h('input', { type: 'search', spellcheck: 'false', autocomplete: 'off', ...options, oninput: () => this.later() }));
    this.diagram = new Diagram(this.log, (record) => this.choose(record));
    // while a button is pressed nothing is drawn anew: the button would be gone before the click
    this.pressed = false;
    this.diagram.element.addEventListener('pointerdown', () => { this.pressed = true; });
    for (const name of ['pointerup', 'pointercancel']) addEventListener(name, () => setTimeout(() => { this.pressed = false; }));
    this.hold = button('Pause', () => { this.paused = !this.paused; this.hold.setAttribute('aria-pressed', String(this.paused)); this.show(); }, { 'aria-pressed': 'false' });
    this.note = h('span', { class: 'quiet', role: 'status' });
    this.side = h('aside', { class: 'chosen', 'aria-label': 'The chosen record', hidden: true });
    this.split = h('div', { class: 'split' }, this.diagram.element, this.side);
    this.table = h('div', { class: 'edges wide', tabindex: '0', role: 'group', 'aria-label': 'Who sends to whom' });
    this.element = h('div', { class: 'flowview' },
      h('form', { class: 'filters', onsubmit: (event) => event.preventDefault() }, field('path', 'Agents at and below', { placeholder: page.runs ? 'all of the run' : 'all of the node' }), field('trace', 'Trace', { inputmode: 'numeric', placeholder: 'number' }), field('action', 'Action, property, event', {}),
        h('div', { class: 'tools' }, this.hold, button('Clear', () => { this.held.clear(); this.show(); }), button('Save', () => this.save(), { title: 'The records as a log, one JSON object a line' }), button('−', () => this.diagram.zoom(-1), { 'aria-label': 'Zoom out' }), button('+', () => this.diagram.zoom(1), { 'aria-label': 'Zoom in' }), this.note)),
      this.table, this.split);
  }

  later() {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => { this.held.clear(); this.begin(); }, 300);
  }

  // Shows the messages of one place.
  about(path) {
    this.path.value = path;
    this.held.clear();
  }

  // Another run: its records have numbers of their own.
  anew() { this.held.clear(); this.side.hidden = true; this.split.classList.remove('open'); }

  begin() {
    const args = { paths: [this.path.value.trim()], records: 200 }, trace = this.trace.value.trim(), action = this.action.value.trim();
    if (/^\d{1,15}$/.test(trace)) args.trace = Number(trace);
    if (action) args.affordance = action;
    put(this.note, 'listening…');
    this.page.wire.look('flow', 'flow', args, (state) => this.draw(state), (error) => { put(this.note, error.message); this.page.warn(error.message); });
  }

  end() { this.page.wire.leave('flow'); }

  focus() { this.diagram.element.focus({ preventScroll: true }); }

  draw(state) {
    const records = Object.values(state.records || {}), last = Math.max(0, ...this.held.keys());
    if (records.length && Math.max(...records.map((record) => record.n)) < last) this.held.clear(); // the node has begun anew
    for (const record of records) if (!this.held.has(record.n)) this.held.set(record.n, record);
    for (const n of this.held.keys()) { if (this.held.size <= HELD) break; this.held.delete(n); }
    this.left = state.left_out || 0;
    this.edges = Object.values(state.edges || {}).sort((one, other) => other.sent - one.sent);
    if (!this.pressed) this.show();
  }

  show() {
    if (this.paused) return;
    const records = [...this.held.values()].sort((one, other) => one.n - other.n);
    const begun = records.length && !this.page.runs ? records[0].t : 0; // those of a run count from its begin
    this.log = this.diagram.log = new Log(records.map((record) => JSON.stringify({ ...record, t: record.t - begun })).join('\n'), [], true);
    this.diagram.show(this.log.records, true);
    put(this.note, `${many(records.length, 'record')}${this.left ? `, ${many(this.left, 'message')} left out under load` : ''}`);
    this.drawEdges();
  }

  drawEdges() {
    const shown = this.edges.slice(0, SHOWN_EDGES), most = Math.max(1, ...shown.map((edge) => edge.sent)), { scrollTop } = this.table;
    const had = this.table.contains(document.activeElement) && document.activeElement.title, open = (path) => this.page.openAgent(path);
    const name = (path) => (path === 'user' || path === 'unknown' ? h('span', { class: 'quiet' }, path) : agentLink(path, open));
    this.table.replaceChildren(shown.length ? h('table', {}, h('thead', {}, h('tr', {}, ['From', 'To', 'What', 'Sent', 'Failed'].map((word, n) => h('th', { scope: 'col', class: n > 2 ? 'number' : null }, word)))),
      h('tbody', {}, shown.map((edge) => h('tr', {}, h('td', {}, name(edge.from)), h('td', {}, name(edge.to)), h('td', {}, isolated(edge.affordance)),
        h('td', { class: 'number' }, place(h('span', { class: 'share' }), { '--share': edge.sent / most }), edge.sent.toLocaleString('en')), h('td', { class: `number ${edge.failed ? 'bad' : 'quiet'}` }, edge.failed.toLocaleString('en')))))) : h('p', { class: 'quiet' }, 'No message has passed since somebody looks.'));
    this.table.scrollTop = scrollTop;
    if (had) { const again = [...this.table.querySelectorAll('button')].find((one) => one.title === had); if (again) again.focus({ preventScroll: true }); }
  }

  choose(record) {
    const { log } = this, story = log.story(record);
    this.side.hidden = false;
    this.split.classList.add('open');
    this.side.replaceChildren(
      button('Close', () => { this.side.hidden = true; this.split.classList.remove('open'); }, { class: 'copy close' }),
      h('h3', { class: mood(record) }, `${SIGNS[record.kind] || ''} `, isolated(told(record))),
      h('p', { class: 'tools' },
        record.trace ? button('This trace', () => { this.trace.value = String(record.trace); this.later(); }) : null,
        button('This agent', () => this.page.openAgent(record.agent))),
      ...story.map((one) => h('pre', { class: 'pretty', tabindex: '0' }, JSON.stringify(JSON.parse(log.lines[one.at]), null, 2))));
  }

  // Hands out what the page holds, as a file.
  async save() {
    const place = URL.createObjectURL(new Blob([await logOf([...this.held.values()], document.baseURI.replace(/#.*/, ''))], { type: 'application/x-ndjson' }));
    h('a', { href: place, download: 'messages.jsonl' }).click();
    setTimeout(() => URL.revokeObjectURL(place), 10_000);
  }
}

const VALUES = ['input', 'value', 'data', 'progress'];

// A message log of records, as `replay` and `diff` read it: its time begins with the first one, values are as they were.
// Values that the node has sent only as text stay text, and `text` names them.
async function logOf(records, watched) {
  const sorted = records.sort((one, other) => one.n - other.n), begun = sorted.length ? sorted[0].t : 0;
  const lines = [JSON.stringify({ schema: 'lmos-actors/trace/v1', seed: null, run: { watched, label: watched } })];
  sorted.forEach(({ json, ...record }, at) => {
    const own = VALUES.filter((name) => name in record), t = Number((record.t - begun).toFixed(6));
    // as text within text: a number of any length stays what it is
    const values = json ? own.map((name) => `,${JSON.stringify(name)}:${record[name]}`).join('') : '';
    const rest = Object.fromEntries(Object.entries({ ...record, n: at + 1, t }).filter(([name]) => !json || !own.includes(name)));
    if (!json && own.length) rest.text = own;
    lines.push(`${JSON.stringify(rest).slice(0, -1)}${values}}`);
  });
  const text = `${lines.join('\n')}\n`;
  if (!crypto.subtle) return text; // over HTTP from another machine; a log without its last line counts as cut short
  const digest = [...new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${text}${JSON.stringify({ end: sorted.length, sha256: digest })}\n`;
}
