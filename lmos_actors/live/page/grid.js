// A grid of any number of rows: only rows in sight have elements, which are used again while one scrolls.

const TALLEST = 8_000_000; // pixels; browsers lose count above some ten million
const AHEAD = 25; // rows that are asked for before and behind those in sight
const EDGE = 8; // so near to the end of the rows that were asked for, more are asked for
const MOST_ASKED = 300;
const ASK_PAUSE = 60; // milliseconds between two requests for rows

// `columns` are { name, label, number }; `fill(cells, row, path)` writes a row into its cells;
// `ask(first, count)` asks for rows; `choose(path, row)` opens one; `key(event, row)` may take a key.
class Grid {
  constructor({ label, kind, columns, fill: write, ask, choose, key, typed }) {
    Object.assign(this, { kind, columns, write, ask, choose, key, typed, rows: {}, order: [], from: 0, total: 0, known: false, at: 0, path: null, picked: null, asked: null, askedAt: 0, pool: [], wide: 0, height: 0 });
    this.id = `grid${Grid.count = (Grid.count || 0) + 1}`;
    this.head = h('div', { class: 'gridrow gridhead', role: 'row', 'aria-rowindex': '1' }, columns.map((column) => h('span', { role: 'columnheader', class: `c-${column.name}${column.number ? ' number' : ''}` }, column.label)));
    this.body = h('div', { class: 'gridbody', role: 'presentation' });
    this.element = drawn(h('div', { class: `grid ${kind}`, role: 'treegrid', tabindex: '0', 'aria-label': label, 'aria-multiselectable': 'false', onscroll: soon(() => this.draw()),
      onkeydown: (event) => this.keyed(event), onclick: (event) => this.clicked(event), onfocus: () => this.draw(), onblur: () => this.draw() }, this.head, this.body), () => this.resized());
  }

  resized() {
    const probe = getComputedStyle(this.element).getPropertyValue('--row');
    this.row = Number.parseFloat(probe) || 28;
    this.draw();
  }

  // Takes rows from `from` on, by their paths in `order`, of `total`.
  show({ rows, order, from, total }) {
    Object.assign(this, { rows, order, from, total, known: true });
    if (this.path !== null) {
      const place = order.indexOf(this.path);
      if (place >= 0) this.at = from + place;
      else if (this.at >= from && this.at < from + order.length) this.path = order[this.at - from]; // it is gone: the row in its place
    }
    this.at = Math.max(0, Math.min(this.at, total - 1));
    if (this.path === null) this.path = this.pathAt(this.at);
    this.draw();
  }

  pathAt(index) {
    const path = this.order[index - this.from];
    return path === undefined ? null : path;
  }

  get inSight() { return Math.max(1, Math.floor((this.element.clientHeight - this.head.offsetHeight) / this.row)); }

  // With more rows than fit into the tallest element, the position of the scroll bar is scaled to a row.
  get first() {
    const whole = this.total * this.row, top = this.element.scrollTop;
    if (whole <= TALLEST) return top / this.row;
    const most = TALLEST - this.inSight * this.row;
    return Math.min(top / most, 1) * (this.total - this.inSight);
  }

  scrollTo(first) {
    const whole = this.total * this.row;
    this.element.scrollTop = whole <= TALLEST ? first * this.row : first / (this.total - this.inSight) * (TALLEST - this.inSight * this.row);
  }

  draw() {
    if (!this.element.isConnected || !this.row) return;
    const height = Math.min(this.total * this.row, TALLEST);
    if (height !== this.height) { this.body.style.height = `${height}px`; this.height = height; }
    const first = this.first, begin = Math.max(0, Math.floor(first)), count = Math.min(this.inSight + 2, this.total - begin);
    const shift = this.element.scrollTop - first * this.row; // 0 unless scaled
    while (this.pool.length < count) this.pool.push(this.made(this.pool.length));
    let active = '';
    this.pool.forEach((line, n) => {
      const index = begin + n, shown = n < count;
      line.element.hidden = !shown;
      if (!shown) { line.path = null; return; }
      line.element.style.transform = `translateY(${(shift + index * this.row).toFixed(1)}px)`;
      const path = this.pathAt(index), row = path === null ? null : this.rows[path];
      this.dress(line, index, path, row);
      if (index === this.at) active = line.element.id;
    });
    if (active) this.element.setAttribute('aria-activedescendant', active); else this.element.removeAttribute('aria-activedescendant');
    this.element.setAttribute('aria-rowcount', String(this.total + 1));
    this.need(begin, count);
  }

  made(number) {
    const cells = this.columns.map((column) => h('span', { role: 'gridcell', class: `c-${column.name}${column.number ? ' number' : ''}` }));
    const element = h('div', { class: 'gridrow', role: 'row', id: `${this.id}-${number}` }, cells);
    this.body.append(element);
    return { element, cells, index: -1, path: null, life: null };
  }

  dress(line, index, path, row) {
    const { element } = line;
    line.index = index;
    element.setAttribute('aria-rowindex', String(index + 2));
    element.classList.toggle('active', index === this.at);
    element.classList.toggle('loading', !row);
    element.setAttribute('aria-selected', String(path !== null && path === this.picked));
    if (!row) {
      if (line.path !== null) for (const cell of line.cells) cell.replaceChildren();
      line.path = null;
      return;
    }
    this.write(line, row, path);
    line.path = path;
  }

  // Asks for the rows in sight, and some around them, unless they have been asked for.
  need(begin, count) {
    const end = begin + count, asked = this.asked;
    if (asked && (asked.from === 0 || begin >= asked.from + EDGE) && (end >= this.total ? end <= asked.from + asked.count : end <= asked.from + asked.count - EDGE)) return;
    const from = Math.max(0, begin - AHEAD), wanted = { from, count: Math.min(MOST_ASKED, this.inSight + 2 + 2 * AHEAD) };
    if (asked && asked.from === wanted.from && asked.count === wanted.count) return;
    const rest = ASK_PAUSE - (performance.now() - this.askedAt);
    if (rest > 0) {
      if (!this.later) this.later = setTimeout(() => { this.later = null; this.draw(); }, rest);
      return;
    }
    this.asked = wanted;
    this.askedAt = performance.now();
    this.ask(wanted.from, wanted.count);
  }

  forget() { this.asked = null; }

  // ---- one row after the other

  move(index) {
    if (!this.total) return;
    this.at = Math.max(0, Math.min(index, this.total - 1));
    this.path = this.pathAt(this.at);
    const first = this.first, last = first + this.inSight - 1;
    if (this.at < first) this.scrollTo(this.at);
    else if (this.at > last) this.scrollTo(this.at - this.inSight + 1);
    this.draw();
  }

  // Brings a row into the middle.
  reveal(index, path) {
    this.at = index;
    this.path = path;
    if (index < this.first || index > this.first + this.inSight - 1) this.scrollTo(Math.max(0, index - Math.floor(this.inSight / 2)));
    this.draw();
  }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const path = this.pathAt(this.at), row = path === null ? null : this.rows[path];
    const moves = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, Home: 0, End: this.total - 1, PageDown: this.at + this.inSight, PageUp: this.at - this.inSight };
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === 'Enter' && row) this.choose(path, row);
    else if (this.key && row && this.key(event, row, path)) { /* taken */ }
    else if (this.typed && event.key.length === 1 && event.key !== ' ') this.typed(event.key);
    else return;
    event.preventDefault();
  }

  clicked(event) {
    const element = event.target.closest('.gridrow');
    if (!element || element === this.head) return;
    const line = this.pool.find((one) => one.element === element);
    if (!line || line.path === null) return;
    this.at = line.index;
    this.path = line.path;
    this.element.focus({ preventScroll: true });
    if (event.target.closest('.twisty') && this.key) this.key({ key: 'Toggle' }, this.rows[line.path], line.path);
    else this.choose(line.path, this.rows[line.path]);
    this.draw();
  }

  pick(path) {
    this.picked = path;
    this.draw();
  }
}

// Sets text only if it has changed: most of a row stays as it is.
function put(cell, text) {
  if (cell.firstChild && cell.firstChild.nodeType === Node.TEXT_NODE && cell.childNodes.length === 1) {
    if (cell.firstChild.data !== legible(text)) cell.firstChild.data = legible(text);
  } else cell.replaceChildren(legible(text));
}
