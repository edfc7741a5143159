// A sequence diagram of as many rows as there are: only those in sight are drawn.

const ZOOMS = [{ row: 3, column: 14 }, { row: 6, column: 28 }, { row: 12, column: 52 }, { row: 20, column: 84 }, { row: 24, column: 120 }, { row: 32, column: 180 }, { row: 44, column: 260 }];
const LOCAL = 24; // more agents than these: only those of the rows in sight have lines
const LEGIBLE = 16;
const MOST_HEIGHT = 8_000_000;

class Diagram {
  constructor(log, choose) {
    Object.assign(this, { log, chosen: choose, rows: [], column: 120, level: innerWidth < 600 ? 5 : 4, picked: -1, own: true, local: null });
    const later = soon(() => this.draw());
    this.list = h('div', { class: 'rows' });
    this.picture = svg('svg', { class: 'sequence', 'aria-hidden': 'true' });
    this.stage = h('div', { class: 'stage' }, this.list, this.picture);
    this.spacer = h('div', {}, this.stage);
    this.element = drawn(h('div', { class: 'diagram', tabindex: '0', role: 'listbox', 'aria-label': 'Messages in order', onscroll: later,
      onkeydown: (event) => this.key(event), onclick: (event) => this.click(event), onwheel: (event) => this.wheel(event) }, this.spacer), () => this.draw());
  }

  // `comes`: rows come at the end and go at the beginning. The rows in sight then stay in sight, or follow the end.
  show(rows, comes = false) {
    const before = this.rows[this.picked], names = new Set(), { element } = this;
    const top = this.rows[Math.floor(element.scrollTop / this.row)], offset = element.scrollTop % this.row, atEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - this.row;
    this.rows = rows;
    for (const record of rows) for (const name of this.log.ends(record)) names.add(name);
    this.all = this.ordered(names);
    this.busy = this.spans(new Set(['delivered', 'sent']), new Set(['answered', ...LOST]), (record) => record.id);
    this.down = this.spans(new Set(['crashed', 'stopped']), new Set(['started']), (record) => record.agent);
    this.picked = before ? rows.findIndex((record) => record.n === before.n) : -1;
    if (comes) {
      this.draw(); // now there is room for what has come
      const place = top ? rows.findIndex((record) => record.n === top.n) : -1;
      element.scrollTop = atEnd || place < 0 ? element.scrollHeight : place * this.row + offset;
    } else element.scrollTop = Math.max(this.picked, 0) * this.row - element.clientHeight / 2;
    this.draw();
  }

  get gathered() { return this.local === null ? this.all.length > LOCAL : this.local; }

  get head() { return this.column < 56 ? 64 : 26; }

  get row() { return Math.min(ZOOMS[this.level].row, MOST_HEIGHT / Math.max(this.rows.length, 1)); }

  ordered(names) { return [...names].sort((one, other) => this.log.agents.get(one) - this.log.agents.get(other)); }

  // Chooses the columns: all agents, or those of the rows from `first` to `last` in the order in which they come up.
  choose(first, last) {
    const names = new Set();
    if (this.gathered) for (let row = first; row < last; row++) for (const name of this.log.ends(this.rows[row])) names.add(name);
    this.names = this.gathered ? [...names] : this.all;
    this.columns = new Map(this.names.map((name, n) => [name, n]));
    if (this.gathered) this.column = Math.min(Math.max(this.share(), 14), 140);
    else if (this.own) this.column = Math.min(Math.max(this.share(), this.element.clientWidth < 560 ? 44 : 84), 200);
  }

  gather() {
    this.local = !this.gathered;
    this.own = true;
    this.draw();
    return this.gathered;
  }

  // The ranges of rows in which something holds for an agent.
  spans(begins, ends, key) {
    const open = new Map(), found = [];
    const add = (span, to) => found.push({ agent: span.agent, from: span.row, to });
    const begun = new Set();
    this.rows.forEach((record, row) => {
      if (record.kind === 'started') begun.add(record.agent);
      if (endsLives(record)) {
        const down = begins.has('crashed');
        if (!down) for (const [about, span] of [...open]) if (isOnNode(record, span.agent)) { add(span, row); open.delete(about); }
        if (down) for (const agent of begun) if (isOnNode(record, agent) && !open.has(agent)) open.set(agent, { agent, row });
      }
      const name = key(record);
      if (name === undefined || name === null) return;
      const span = open.get(name);
      if (ends.has(record.kind) && span) { add(span, row); open.delete(name); }
      else if (begins.has(record.kind)) open.set(name, { agent: record.agent, row });
    });
    for (const span of open.values()) if (begins.has('crashed')) add(span, this.rows.length);
    return found;
  }

  zoom(by) {
    const middle = (this.element.scrollTop + this.element.clientHeight / 2) / this.row;
    this.level = Math.min(Math.max(this.level + by, 0), ZOOMS.length - 1);
    this.column = ZOOMS[this.level].column;
    this.own = false;
    if (this.local === null && !this.gathered) this.local = false;
    this.size();
    this.element.scrollTop = middle * this.row - this.element.clientHeight / 2;
    this.draw();
  }

  // How wide a column may be so that all are in sight.
  share() { return (this.element.clientWidth - this.listed() - 24) / Math.max((this.names || this.all).length, 1); }

  fit() {
    this.names = this.all;
    this.column = Math.min(Math.max(this.share(), 14), 260);
    this.own = this.local = false;
    this.element.scrollLeft = 0;
    this.draw();
  }

  listed() {
    const width = this.element.clientWidth;
    return this.row < LEGIBLE ? 64 : width < 560 ? Math.min(width * 0.58, 230) : Math.min(width * 0.42, 380);
  }

  size() {
    const width = this.gathered ? 0 : this.listed() + this.names.length * this.column + 24;
    place(this.spacer, { height: `${this.head + this.rows.length * this.row + 8}px`, width: `${width}px` });
  }

  x(column) { return (column + 0.5) * this.column + 8 - this.element.scrollLeft; }

  draw() {
    const { clientWidth: width, clientHeight: height, scrollTop } = this.element;
    if (!width || !this.all) return;
    const listed = this.listed(), first = Math.floor(scrollTop / this.row), last = Math.min(first + Math.ceil(height / this.row) + 1, this.rows.length);
    this.element.setAttribute('role', this.rows.length ? 'listbox' : 'group'); // an empty list is none
    this.choose(first, last);
    this.size();
    this.wide = Math.max(width - listed, 40);
    place(this.stage, { width: `${width}px`, height: `${height}px` });
    place(this.list, { width: `${listed}px` });
    this.list.classList.toggle('stacked', width < 560 && this.row >= 30);
    place(this.picture, { left: `${listed}px` });
    this.picture.setAttribute('width', this.wide);
    this.picture.setAttribute('height', height);
    this.y = (row) => this.head + (row + 0.5) * this.row - scrollTop;
    const numbers = Array.from({ length: Math.max(last - first, 0) }, (_, n) => first + n);
    this.list.replaceChildren(place(h('div', { class: 'rowhead', 'aria-hidden': 'true' }, this.row < LEGIBLE ? 'time' : 'time, from → to, what'), { height: `${this.head}px`, 'line-height': `${this.head}px` }), ...this.entries(numbers));
    this.picture.replaceChildren(...this.lifelines(first, last, height), ...numbers.map((row) => this.mark(row)), ...this.heads());
    if (this.picked >= first && this.picked < last) this.element.setAttribute('aria-activedescendant', `row-${this.picked}`); else this.element.removeAttribute('aria-activedescendant');
  }

  entries(numbers) {
    const every = this.row < LEGIBLE ? Math.ceil(LEGIBLE / this.row) : 1;
    return numbers.filter((row) => row % every === 0).map((row) => {
      const record = this.rows[row], [from, to] = this.log.ends(record), before = this.rows[row - 1];
      const gap = before && record.n - record.at !== before.n - before.at; // numbers are missing between the two
      const entry = h('div', { class: `row ${mood(record)}${row === this.picked ? ' picked' : ''}${gap ? ' gap' : ''}`, id: `row-${row}`, role: 'option', 'aria-selected': String(row === this.picked),
        'aria-setsize': this.rows.length, 'aria-posinset': row + 1, title: gap ? 'records before this one are not in this page' : null },
      h('span', { class: 'time' }, seconds(record.t)), every > 1 ? null : [h('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[record.kind] || '?'),
        h('span', { class: 'words' }, h('span', { class: 'who' }, to === undefined ? from : `${from} → ${to}`), h('span', { class: 'what' }, told(record)))]);
      return place(entry, { top: `${this.y(row) - (every > 1 ? LEGIBLE : this.row) / 2}px`, height: `${every > 1 ? LEGIBLE : this.row}px` });
    });
  }

  sight() {
    const { scrollLeft } = this.element, first = Math.max(Math.floor((scrollLeft - 8) / this.column) - 1, 0);
    return [first, Math.min(first + Math.ceil(this.wide / this.column) + 3, this.names.length)];
  }

  lifelines(first, last, height) {
    const [left, right] = this.sight(), found = [], inside = ({ agent, from, to }) => from <= last && to >= first && this.columns.get(agent) >= left && this.columns.get(agent) < right;
    for (let column = left; column < right; column++) found.push(svg('line', { x1: this.x(column), x2: this.x(column), y1: this.head, y2: height, class: 'lifeline' }));
    const bar = (style, half) => ({ agent, from, to }) => {
      const column = this.columns.get(agent), top = Math.max(this.y(from), this.head - 4), bottom = Math.min(this.y(to), height + 4);
      return svg('rect', { x: this.x(column) - half, width: 2 * half, y: top, height: Math.max(bottom - top, 0), class: style });
    };
    const half = Math.min(4, this.column / 4);
    return [...found, ...this.down.filter(inside).map(bar('down', half)), ...this.busy.filter(inside).map(bar('busy', half))];
  }

  mark(row) {
    const record = this.rows[row], y = this.y(row), [from, to] = this.log.ends(record).map((name) => this.x(this.columns.get(name)));
    const group = svg('g', { class: `message ${mood(record)} ${record.kind}${row === this.picked ? ' picked' : ''}` });
    if (row === this.picked) group.append(svg('rect', { x: 0, width: this.wide, y: y - this.row / 2, height: this.row, class: 'back' }));
    if (to === undefined || from === to) {
      const size = Math.min(this.row * 0.8, 15);
      if (this.row >= 6) group.append(svg('text', { x: from, y: y + size * 0.36, class: 'sign', 'font-size': size }, to === undefined ? SIGNS[record.kind] || '?' : '↺'));
      else group.append(svg('circle', { cx: from, cy: y, r: 1.6 }));
      if (this.row >= 20 && this.column >= 90) group.append(svg('text', { x: from + 11, y: y + 4, class: 'label start' }, cut(told(record), Math.floor(this.column / 7))));
      return group;
    }
    const left = Math.max(Math.min(from, to), -20), right = Math.min(Math.max(from, to), this.wide + 20), way = Math.sign(to - from), tip = Math.min(5, this.row / 3);
    group.append(svg('line', { x1: from < left ? left : Math.min(from, right), x2: to < left ? left : Math.min(to, right), y1: y, y2: y }));
    if (to >= left && to <= right) group.append(svg('path', { d: `M${to - way * tip * 1.6} ${y - tip}L${to} ${y}L${to - way * tip * 1.6} ${y + tip}`, class: 'tip' }));
    if (record.kind === 'dead_letter') group.append(svg('text', { x: to, y: y + 5, class: 'sign' }, '✝'));
    const begin = Math.max(left, 0), end = Math.min(right, this.wide), room = Math.floor((end - begin - 16) / 6.2);
    if (this.row >= 20 && room > 5) group.append(svg('text', { x: (begin + end) / 2, y: y - 4, class: 'label' }, cut(record.kind === 'sent' ? `${record.name} ${record.said}` : told(record), room)));
    return group;
  }

  heads() {
    const [left, right] = this.sight(), found = [svg('rect', { x: 0, y: 0, width: this.wide, height: this.head, class: 'headback' })];
    const tilted = this.head > 30, most = tilted ? 10 : Math.floor(this.column / 7), every = tilted ? Math.ceil(13 / this.column) : 1, y = this.head - 9;
    for (let column = left; column < right; column++) {
      const name = this.names[column], last = name.slice(name.lastIndexOf('/') + 1), short = [name, last].find((text) => text.length <= most) || cut(last, most), x = this.x(column);
      if (column % every === 0) found.push(svg('text', { x, y, class: tilted ? 'name tilted' : 'name', transform: tilted ? `rotate(-52 ${x} ${y})` : null }, short, svg('title', {}, name)));
    }
    return found;
  }

  pick(row) {
    if (!this.rows.length) return;
    this.picked = Math.min(Math.max(row, 0), this.rows.length - 1);
    const top = this.picked * this.row, room = this.element.clientHeight - this.head - this.row;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + room) this.element.scrollTop = top - room;
    this.chosen(this.rows[this.picked]);
    this.draw(); // what was chosen takes room
    const ends = this.log.ends(this.rows[this.picked]).map((name) => this.x(this.columns.get(name)));
    if (!this.gathered && (Math.max(...ends) < 0 || Math.min(...ends) > this.wide)) this.element.scrollLeft += ends[0] - this.wide / 2;
  }

  click(event) {
    const y = event.clientY - this.element.getBoundingClientRect().top - this.head;
    if (y >= 0 && event.target !== this.element) this.pick(Math.floor((y + this.element.scrollTop) / this.row));
  }

  key(event) {
    const page = Math.max(Math.floor((this.element.clientHeight - this.head) / this.row) - 1, 1);
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page }[event.key];
    if (move) this.pick(this.picked + move);
    else if (event.key === 'Home') this.pick(0);
    else if (event.key === 'End') this.pick(this.rows.length - 1);
    else if (event.key === '+') this.zoom(1);
    else if (event.key === '-') this.zoom(-1);
    else if (event.key === '0') this.fit();
    else return;
    event.preventDefault();
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1 : -1);
  }
}
