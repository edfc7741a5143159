// The messages of one run: filters, the diagram, and the raw records of the one that was chosen.

const KINDS = [
  ['messages', 'messages', new Set(['sent'])],
  ['answers', 'answers', new Set(['answered'])],
  ['events', 'events', new Set(['event'])],
  ['lives', 'starts and stops', new Set(['started', 'stopped', 'restarting'])],
  ['trouble', 'crashes, faults, losses', new Set(['crashed', 'fault', 'healed', 'network', ...LOST])],
  ['begins', 'begins of turns', new Set(['delivered'])],
];

const MANY = 60; // agents whose starts would fill the first pages

class Sequence {
  constructor(page, run, log) {
    Object.assign(this, { page, run, log });
    if (!log) { this.element = h('div', {}, leftOut(run)); return; }
    this.filter = Object.assign(run.filter, { hidden: run.filter.hidden || new Set(log.agents.size > MANY ? ['begins', 'lives'] : ['begins']) });
    this.count = h('p', { class: 'quiet count', role: 'status' });
    this.side = h('aside', { class: 'chosen', 'aria-label': 'The chosen record', hidden: true });
    this.diagram = new Diagram(log, (record) => this.choose(record));
    this.local = button('Agents in sight', () => { this.diagram.gather(); this.press(); }, { title: 'Lines only for the agents of the rows in sight' });
    this.split = h('div', { class: 'split' }, this.diagram.element, this.side);
    const zoom = (by) => () => { this.diagram.zoom(by); this.press(); };
    this.element = h('div', {}, leftOut(run), this.fields(),
      h('div', { class: 'tools' }, button('−', zoom(-1), { 'aria-label': 'Zoom out' }), button('+', zoom(1), { 'aria-label': 'Zoom in' }),
        button('All agents', () => { this.diagram.fit(); this.press(); }), this.local, this.count, h('span', { class: 'quiet hint' }, 'Choose a row for its raw records.')),
      this.split);
    this.apply();
  }

  fields() {
    const { filter } = this, later = soon(() => this.apply());
    const field = (name, label, options) => h('label', { class: name }, h('span', {}, label), h('input', { ...options, name, value: filter[name] || '', oninput: (event) => { filter[name] = event.target.value.trim(); later(); } }));
    const names = [...this.log.agents.keys()].slice(0, 2000);
    this.span = h('span', {});
    this.form = h('form', { class: 'filters', onsubmit: (event) => event.preventDefault() },
      field('agent', 'Agent', { type: 'search', list: 'agents', placeholder: 'any part of its path' }), h('datalist', { id: 'agents' }, names.map((name) => h('option', { value: name }))),
      field('trace', 'Trace', { type: 'search', inputmode: 'numeric', placeholder: 'number' }),
      field('id', 'Message', { type: 'search', inputmode: 'numeric', placeholder: 'number' }),
      field('text', 'Text', { type: 'search', placeholder: 'in the raw record' }),
      h('fieldset', {}, h('legend', {}, 'Show'), KINDS.map(([name, label]) => h('label', { class: 'check' },
        h('input', { type: 'checkbox', name, checked: !filter.hidden.has(name), onchange: (event) => { if (event.target.checked) filter.hidden.delete(name); else filter.hidden.add(name); later(); } }), label))),
      this.span);
    return this.form;
  }

  // Sets fields of the filter by their names, and shows them.
  set(fields) {
    for (const [name, value] of Object.entries(fields)) {
      this.filter[name] = value;
      if (this.form.elements[name]) this.form.elements[name].value = value;
    }
    this.apply();
  }

  apply() {
    const { filter, log } = this, agent = (filter.agent || '').toLowerCase(), text = (filter.text || '').toLowerCase();
    const hidden = new Set(KINDS.filter(([name]) => filter.hidden.has(name)).flatMap(([, , kinds]) => [...kinds]));
    const exact = log.agents.has(filter.agent), about = (name) => (exact ? name === filter.agent : name.toLowerCase().includes(agent));
    const rows = log.records.filter((record) => !hidden.has(record.kind)
      && (!filter.trace || String(record.trace) === filter.trace)
      && (!filter.id || String(record.id) === filter.id)
      && (!filter.range || (record.t >= filter.range[0] && record.t <= filter.range[1]))
      && (!agent || log.ends(record).some(about))
      && (!text || log.lines[record.at].toLowerCase().includes(text)));
    this.span.replaceChildren(...(filter.range ? [`${seconds(filter.range[0])} to ${seconds(filter.range[1])} `, button('Whole time', () => this.set({ range: null }))] : []));
    this.count.textContent = `${rows.length.toLocaleString('en')} of ${many(log.records.length, 'record')}`;
    this.diagram.show(rows);
    this.press();
  }

  press() { this.local.setAttribute('aria-pressed', String(this.diagram.gathered)); }

  choose(record) {
    const { log } = this, story = log.story(record), raw = story.map((one) => log.lines[one.at]);
    const begun = story.find((one) => one.kind === 'delivered'), end = story.find((one) => one.kind === 'answered'), [first] = story;
    const facts = [
      [record.from !== undefined && record.from !== record.agent ? 'From' : null, record.from],
      ['Agent', record.agent],
      ['At', seconds(record.t)],
      [begun && first.kind === 'sent' ? 'Waited' : null, begun && seconds(begun.t - first.t)],
      [end && begun ? 'Took' : null, end && begun && seconds(end.t - begun.t)],
      [record.id ? 'Message' : null, record.id], [record.trace ? 'Trace' : null, record.trace],
    ].filter(([name]) => name);
    this.side.hidden = false;
    this.split.classList.add('open');
    this.side.replaceChildren(
      button('Close', () => { this.side.hidden = true; this.split.classList.remove('open'); }, { class: 'copy close' }),
      h('h3', { class: mood(record) }, `${SIGNS[record.kind] || ''} ${told(record)}`),
      h('dl', { class: 'facts' }, facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, String(value))))),
      h('p', { class: 'tools' },
        record.trace ? button('This trace', () => this.set({ trace: String(record.trace), id: '' })) : null,
        record.id ? button('This message', () => this.set({ id: String(record.id), trace: '' })) : null,
        button('This agent', () => this.set({ agent: record.agent })),
        button('All', () => this.set({ agent: '', trace: '', id: '', text: '', range: null })),
        button('Tree at this time', () => { this.run.filter.tree = record.at; this.page.go({ view: 'tree' }); })),
      h('h4', {}, 'Record'), h('pre', { class: 'pretty' }, JSON.stringify(JSON.parse(log.lines[record.at]), null, 2)),
      h('h4', {}, raw.length > 1 ? `Raw, all ${raw.length} records of the message ` : 'Raw ', copying(raw.join('\n'), 'the raw records')),
      h('pre', { class: 'raw' }, raw.join('\n')));
  }
}
