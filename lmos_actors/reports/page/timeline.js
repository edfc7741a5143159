// One run along virtual time: how many messages, which steps, which faults, who lived when, what was measured.

const LANES = { agents: 24, steps: 14, series: 6, cuts: 16 };
const BIN = 4;

class Timeline {
  constructor(page, run, log) {
    Object.assign(this, { page, run, log });
    const steps = (run.step_results || []).filter((step) => step[3] !== null), faults = run.faults;
    const ends = [run.virtual, log ? log.end : 0, ...steps.map((step) => step[4] || step[3]), ...faults.map((fault) => fault.end || fault.begin),
      ...run.series.map((series) => series.times[series.times.length - 1] || 0)];
    this.whole = Math.max(...ends) || 0.001;
    this.range = [0, this.whole];
    this.steps = packed(steps);
    this.lives = log ? lives(log, this.whole) : [];
    this.cuts = cutOff(run, log, this.whole);
    this.chosen = run.filter.range ? [...run.filter.range] : null;
    this.picture = svg('svg', { class: 'timeline', tabindex: '0', role: 'img', 'aria-label': this.words(),
      onkeydown: (event) => this.key(event), onpointerdown: (event) => this.drag(event), onwheel: (event) => this.wheel(event) });
    this.bar = h('p', { class: 'selection', 'aria-live': 'polite' });
    this.element = h('div', {}, leftOut(run),
      h('div', { class: 'tools' }, button('−', () => this.zoom(2), { 'aria-label': 'Zoom out' }), button('+', () => this.zoom(0.5), { 'aria-label': 'Zoom in' }),
        button('◀', () => this.pan(-0.25), { 'aria-label': 'Earlier' }), button('▶', () => this.pan(0.25), { 'aria-label': 'Later' }),
        button('Whole run', () => this.look(0, this.whole)), this.bar),
      faultList(run),
      drawn(h('div', { class: 'chart' }, this.picture), () => this.draw()),
      h('p', { class: 'quiet' }, 'Drag to choose a span of time. Keys: arrows, + and −, 0 for the whole run.'));
    this.choose(this.chosen);
  }

  words() {
    return `Timeline of ${seconds(this.whole)}: ${many(this.steps.length, 'step')}, ${many(this.run.faults.length, 'fault')}, ${many(this.cuts.length, 'lane')} of what was cut off, ${many(this.log ? this.log.records.length : 0, 'record')}`;
  }

  look(low, high) {
    const span = Math.min(Math.max(high - low, this.whole / 1e5), this.whole), begin = Math.min(Math.max(low, 0), this.whole - span);
    this.range = [begin, begin + span];
    this.draw();
  }

  zoom(factor, around) {
    const [low, high] = this.range, middle = around === undefined ? (low + high) / 2 : around;
    this.look(middle - (middle - low) * factor, middle + (high - middle) * factor);
  }

  pan(part) {
    const [low, high] = this.range, by = (high - low) * part;
    this.look(low + by, high + by);
  }

  key(event) {
    const act = { ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1), '+': () => this.zoom(0.5), '-': () => this.zoom(2), 0: () => this.look(0, this.whole), Escape: () => this.choose(null) }[event.key];
    if (act) { act(); event.preventDefault(); }
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event));
  }

  time(event) {
    const part = (event.clientX - this.picture.getBoundingClientRect().left - this.gutter) / (this.width - this.gutter - 8);
    return this.range[0] + Math.min(Math.max(part, 0), 1) * (this.range[1] - this.range[0]);
  }

  drag(event) {
    if (event.button) return;
    const from = this.time(event), picture = this.picture;
    const move = (next) => { const to = this.time(next); this.choose(to === from ? null : [Math.min(from, to), Math.max(from, to)]); };
    const done = () => { picture.removeEventListener('pointermove', move); picture.removeEventListener('pointerup', done); picture.removeEventListener('pointercancel', done); };
    picture.setPointerCapture(event.pointerId);
    picture.addEventListener('pointermove', move);
    picture.addEventListener('pointerup', done);
    picture.addEventListener('pointercancel', done);
  }

  choose(span) {
    this.chosen = span;
    this.bar.replaceChildren(...(span ? [`${seconds(span[0])} to ${seconds(span[1])} `,
      button('Zoom to it', () => this.look(...span)),
      this.log ? button('Its messages', () => { this.run.filter.range = span; this.page.go({ view: 'messages' }); }) : '',
      button('Clear', () => this.choose(null))] : []));
    if (this.width) this.draw();
  }

  draw() {
    const width = this.width = this.picture.parentElement.clientWidth, gutter = this.gutter = width > 700 ? 150 : 84;
    const [low, high] = this.range, scale = (width - gutter - 8) / (high - low);
    this.x = (time) => gutter + Math.min(Math.max((time - low) * scale, -2), width - gutter + 2);
    this.inside = (begin, end) => end >= low && begin <= high;
    const lanes = [], name = (text, y) => svg('text', { x: gutter - 8, y, class: 'lane' }, cut(text, gutter / 7), svg('title', {}, text));
    let y = 26;
    if (this.log) { lanes.push(name('messages', y + 30), this.histogram(y, 44)); y += 56; }
    const labels = y + 11;
    if (this.run.faults.length) { lanes.push(name('faults', labels)); y += 22; }
    if (this.steps.length) { lanes.push(name('steps', y + 11), this.stepBars(y)); y += Math.min(Math.max(...this.steps.map((step) => step.lane)) + 1, LANES.steps) * 17 + 10; }
    for (const lane of this.cuts.slice(0, LANES.cuts)) { lanes.push(name(`${SIGNS.network} ${lane.name}`, y + 11), this.cutBar(lane, y)); y += 17; }
    if (this.cuts.length > LANES.cuts) { lanes.push(svg('text', { x: gutter, y: y + 11, class: 'lane more' }, `and ${this.cuts.length - LANES.cuts} more that were cut off`)); y += 18; }
    y += this.cuts.length ? 8 : 0;
    for (const life of this.lives.slice(0, LANES.agents)) { lanes.push(name(life.agent, y + 10), this.lifeBar(life, y)); y += 17; }
    if (this.lives.length > LANES.agents) { lanes.push(svg('text', { x: gutter, y: y + 11, class: 'lane more' }, `and ${this.lives.length - LANES.agents} more agents to which less happened`)); y += 18; }
    y += this.lives.length ? 8 : 0;
    for (const series of this.run.series.slice(0, LANES.series)) { lanes.push(name(series.name, y + 24), this.small(series, y, 36)); y += 46; }
    const marks = ticks(low, high, (width - gutter) / 90).map((time) => svg('g', {},
      svg('line', { x1: this.x(time), x2: this.x(time), y1: 18, y2: y, class: 'gridline' }), tick(time, this.x(time), 13, width)));
    const chosen = this.chosen && this.inside(...this.chosen) ? svg('rect', { x: this.x(this.chosen[0]), width: Math.max(this.x(this.chosen[1]) - this.x(this.chosen[0]), 1), y: 18, height: y - 18, class: 'chosen' }) : null;
    this.picture.setAttribute('height', y + 4);
    this.picture.setAttribute('width', width);
    this.picture.replaceChildren(...faultBands(this.run.faults, this.x, this.inside, 18, y, this.whole, labels), ...marks, ...lanes, ...(chosen ? [chosen] : []));
  }

  histogram(top, height) {
    const [low, high] = this.range, bins = Math.max(Math.floor((this.width - this.gutter - 8) / BIN), 1), all = new Uint32Array(bins), bad = new Uint32Array(bins);
    for (const record of this.log.records) {
      const trouble = mood(record) === 'bad';
      if ((record.kind !== 'sent' && record.kind !== 'event' && !trouble) || !this.inside(record.t, record.t)) continue;
      const bin = Math.min(Math.floor((record.t - low) / (high - low) * bins), bins - 1);
      all[bin] += 1;
      if (trouble) bad[bin] += 1;
    }
    const most = Math.max(...all, 1), path = (counts) => Array.from(counts, (count, bin) => (count ? `M${this.gutter + bin * BIN} ${top + height}v${-Math.max(count / most * height, 2)}h${BIN - 1}v${Math.max(count / most * height, 2)}z` : '')).join('');
    return svg('g', {}, svg('path', { d: path(all), class: 'bars' }), svg('path', { d: path(bad), class: 'bars bad' }),
      svg('text', { x: this.gutter - 8, y: top + 9, class: 'tick end' }, `≤ ${most.toLocaleString('en')}`, svg('title', {}, `A column is ${seconds((high - low) / bins)}; the highest is ${many(most, 'record')}.`)));
  }

  stepBars(top) {
    const shown = this.steps.filter((step) => step.lane < LANES.steps && this.inside(step.begin, step.end));
    return svg('g', {}, shown.map(({ what, ok, begin, end, lane }) => {
      const x = this.x(begin), width = Math.max(this.x(end) - x, 3), y = top + lane * 17;
      return svg('g', { class: `step ${ok === null ? 'none' : ok ? 'ok' : 'bad'}` }, svg('rect', { x, y, width, height: 14, rx: 2 }),
        width > 40 ? svg('text', { x: x + 4, y: y + 11 }, cut(what, Math.floor((width - 6) / 6.2))) : null,
        svg('title', {}, `${what}\n${seconds(begin)} to ${seconds(end)}`));
    }));
  }

  lifeBar({ agent, spans, marks }, y) {
    const seen = new Map();
    for (const mark of marks.filter((one) => this.inside(one.t, one.t))) { // of several at one place the gravest is drawn
      const place = Math.round(this.x(mark.t) / 9), others = seen.get(place) || [];
      seen.set(place, mark.kind === 'crashed' ? [mark, ...others] : [...others, mark]);
    }
    return svg('g', { class: 'life' },
      spans.filter((span) => this.inside(...span)).map(([begin, end]) => svg('rect', { x: this.x(begin), width: Math.max(this.x(end) - this.x(begin), 1), y: y + 4, height: 6, rx: 2 }, svg('title', {}, `${agent} runs from ${seconds(begin)} to ${seconds(end)}`))),
      [...seen.values()].map((all) => svg('text', { x: this.x(all[0].t), y: y + 12, class: `mark ${mood(all[0])}` }, SIGNS[all[0].kind],
        svg('title', {}, all.slice(0, 10).map((mark) => `${seconds(mark.t)} ${agent} ${told(mark)}`).join('\n'), all.length > 10 ? `\nand ${all.length - 10} more` : ''))));
  }

  cutBar({ name, spans }, y) {
    return svg('g', { class: 'cutoff' }, spans.filter((span) => this.inside(span.begin, span.end)).map((span) => {
      const x = this.x(span.begin), width = Math.max(this.x(span.end) - x, 2);
      const room = Math.min(width, ...spans.filter((other) => other.begin > span.begin).map((other) => this.x(other.begin) - x));
      return svg('g', {}, svg('rect', { x, y: y + 2, width, height: 11, rx: 2 }),
        room > 60 ? svg('text', { x: x + 4, y: y + 11 }, cut(span.what, Math.floor((room - 6) / 6.2))) : null,
        svg('title', {}, `${name}: ${span.what}\n${seconds(span.begin)} to ${seconds(span.end)}`));
    }));
  }

  small(series, top, height) {
    const values = series.values.filter((value) => value !== null), least = Math.min(...values), most = Math.max(...values);
    const y = (value) => top + height - (most === least ? 0.5 : (value - least) / (most - least)) * height;
    return svg('g', {}, svg('path', { d: line(series.times, series.values, this.x, y), class: 'series' }),
      values.length ? svg('text', { x: this.gutter + 2, y: top + 8, class: 'tick start' }, `${amount(least)} to ${amount(most)}`) : null);
  }
}

// Gives each step the first lane that is free when it begins.
function packed(steps) {
  const free = [];
  return steps.map(([, what, ok, begin, end]) => ({ what, ok, begin, end: end === null ? begin : end })).sort((one, other) => one.begin - other.begin || other.end - one.end).map((step) => {
    let lane = free.findIndex((time) => time <= step.begin);
    if (lane < 0) lane = free.length;
    free[lane] = step.end;
    return { ...step, lane };
  });
}

// When each agent ran and what befell it; those to whom most happened come first.
function lives(log, whole) {
  const found = new Map();
  const end = (life, at) => { if (life.begin !== null) life.spans.push([life.begin, at]); life.begin = null; };
  for (const record of log.lives) {
    const others = record.on && record.agent !== 'root' ? [...found.values()].filter((life) => isOnNode(record, life.agent)) : [];
    if (endsLives(record)) for (const life of record.agent === 'root' ? found.values() : others) end(life, record.t);
    if (others.length) { // the node may have a name of its own, and is no agent
      for (const life of others) life.marks.push(record);
      continue;
    }
    if (!found.has(record.agent)) found.set(record.agent, { agent: record.agent, spans: [], marks: [], begin: null });
    const life = found.get(record.agent);
    if (record.kind === 'started') {
      end(life, record.t); // that it ended no record says, where its node has a name of its own
      life.begin = record.t;
    } else {
      if (record.kind === 'crashed' || record.kind === 'stopped') end(life, record.t);
      if (record.kind !== 'stopped') life.marks.push(record);
    }
  }
  for (const life of found.values()) end(life, whole);
  return [...found.values()].sort((one, other) => other.marks.length - one.marks.length);
}

// Who was cut off from whom, and when: nodes by partitions, of very many each side as one, and pairs by their connections.
function cutOff(run, log, whole) {
  const found = new Map(), most = 6;
  const add = (name, span) => { if (!found.has(name)) found.set(name, { name, spans: [] }); found.get(name).spans.push(span); };
  for (const fault of run.faults) {
    for (const { node, agents, end } of fault.restarted) add(node, { begin: fault.begin, end: end === null ? whole : end, what: agents.length === 1 && agents[0] === node ? 'away' : `away with ${few(agents)}` });
    if (fault.restarted.length) continue;
    (fault.sides || []).forEach((side, n) => {
      const others = fault.sides.filter((other, m) => m !== n && (!fault.one_way || n === 0 || m === 0)).flat();
      const what = fault.one_way ? (n === 0 ? `not heard by ${few(others)}` : `does not hear ${few(fault.sides[0])}`) : `cut off from ${few(others)}`;
      if (fault.one_way && n !== 0 && !others.length) return;
      const span = { begin: fault.begin, end: fault.end === null ? whole : fault.end, what };
      for (const name of side.length > most ? [few(side)] : side) add(name, span);
    });
  }
  const down = new Map();
  for (const record of log ? log.records : []) {
    if (record.kind !== 'network') continue;
    const pair = `${record.from} → ${record.to}`;
    if (record.what === 'disconnected') down.set(pair, record.t);
    else if (record.what === 'connected' && down.has(pair)) { add(pair, { begin: down.get(pair), end: record.t, what: 'no connection' }); down.delete(pair); }
  }
  for (const [pair, begin] of down) add(pair, { begin, end: whole, what: 'no connection' });
  return [...found.values()];
}

// The faults of a run in words, as the labels of short bands have no room.
function faultList(run) {
  if (!run.faults.length) return null;
  const span = (fault) => `${seconds(fault.begin)} to ${fault.end === null ? 'the end' : seconds(fault.end)}`;
  return h('p', { class: 'legend faults' }, run.faults.slice(0, 20).map((fault, n) => h('span', {}, n ? '; ' : `${SIGNS.fault} `, h('strong', {}, fault.kind), ` ${fault.id === fault.kind ? '' : `${fault.id} `}${span(fault)}${fault.restarted.length ? `: ${few(struck(fault))}` : ''}`)),
    run.faults.length > 20 ? `; and ${run.faults.length - 20} more` : null);
}
