// The views of agents as rows: the tree of supervisors, what is found in it, the busiest.

const COLUMNS = [
  { name: 'name', label: 'Name' },
  { name: 'class', label: 'Class' },
  { name: 'status', label: 'Status' },
  { name: 'waiting', label: 'Waiting', number: true },
  { name: 'rate', label: 'Per s', number: true },
  { name: 'handled', label: 'Handled', number: true },
  { name: 'restarts', label: 'Restarts', number: true },
];
const FLASH = 1_600, MOST_OPEN = 500;

// Writes a row of any of the views. A supervisor shows the sums over the agents below it.
function writeRow(page, line, row, path, flat) {
  const [name, cls, status, waiting, rate, handled, again] = line.cells, { element } = line;
  const below = row.below, folder = row.children !== undefined, agent = row.kind === 'agent';
  if (!line.parts) {
    line.parts = { twisty: h('span', { class: 'twisty', 'aria-hidden': 'true' }), sign: h('i', { class: 'sign', 'aria-hidden': 'true' }), label: h('bdi', {}), more: h('span', { class: 'quiet more' }) };
    line.state = h('span', { class: 'state' }, '');
  }
  const { twisty, sign, label, more } = line.parts;
  if (name.firstChild !== twisty) { name.replaceChildren(twisty, sign, h('span', { class: 'label' }, label), more); status.replaceChildren(line.state); }
  const level = flat ? 0 : row.level || 0;
  element.style.setProperty('--level', level);
  element.setAttribute('aria-level', String(level + 1));
  const open = Boolean(row.open) || path === '';
  if (folder && !flat) element.setAttribute('aria-expanded', String(open)); else element.removeAttribute('aria-expanded');
  element.classList.toggle('folder', folder);
  element.classList.toggle('supervisor', !agent);
  twisty.className = `twisty${folder && !flat && path !== '' ? (open ? ' open' : ' shut') : ''}`;
  sign.className = `sign ${agent ? statusClass(row.status) : 'group'}`;
  put(label, flat ? path || row.name : row.name);
  label.title = legible(path || row.name);
  put(more, folder ? row.children.toLocaleString('en') : '');
  put(cls, agent ? row.class : row.pool ? `Pool of ${row.class || 'agents'}` : row.strategy ? words(row.strategy) : '');
  cls.title = agent ? legible(row.class) : row.pool ? cls.textContent : '';
  const down = below && below.down ? below.down : 0;
  const held = row.held && row.status === 'running';
  line.state.className = `state ${down && !agent ? 'crashed' : held ? 'held' : statusClass(row.status)}`;
  put(line.state, down && !agent ? `${down.toLocaleString('en')} down` : held ? 'held' : row.status);
  const sum = (own, under) => (own || 0) + (under || 0), isKnown = agent || below;
  const counts = { waiting: sum(row.waiting, below && below.waiting), handled: sum(row.handled, below && below.handled), again: sum(agent ? row.life - 1 : 0, below && below.restarts) };
  const known = page.rates.of(path, page.now()), speed = known === null && row.speed !== undefined ? row.speed : known;
  put(waiting, isKnown ? short(counts.waiting) : '…');
  put(rate, isKnown && speed !== null ? short(speed) : '');
  put(handled, isKnown ? short(counts.handled) : '…');
  put(again, isKnown ? (counts.again ? short(counts.again) : '') : '…');
  for (const cell of [rate, handled]) cell.classList.toggle('zero', cell.textContent === '0');
  waiting.classList.toggle('some', counts.waiting > 0);
  waiting.classList.toggle('zero', counts.waiting === 0);
  flash(line, path, row.life + (below ? below.restarts : 0));
}

// Marks a row for a moment when its agent or supervisor was restarted.
function flash(line, path, lives) {
  if (line.path === path && line.lives !== undefined && lives > line.lives) {
    line.element.classList.remove('flash');
    void line.element.offsetWidth; // begins the animation anew
    line.element.classList.add('flash');
    clearTimeout(line.flashing);
    line.flashing = setTimeout(() => line.element.classList.remove('flash'), FLASH);
  } else if (line.path !== path) line.element.classList.remove('flash');
  line.lives = lives;
}

function noteRates(page, state) {
  for (const path of state.order || []) {
    const row = state.rows[path];
    if (row && (row.handled !== undefined || row.below)) page.rates.note(path, (row.handled || 0) + (row.below ? row.below.handled : 0), page.time());
  }
}

class TreeView {
  constructor(page) {
    this.page = page;
    this.open = new Set(page.kept('open', []));
    this.found = null;
    this.seeking = null;
    this.tree = new Grid({ label: 'Agents', kind: 'tree', columns: COLUMNS, fill: (line, row, path) => writeRow(page, line, row, path, false), ask: (from, count) => this.ask(from, count),
      choose: (path, row) => page.openAgent(path, row), key: (event, row, path) => this.key(event, row, path), typed: (letter) => this.typed(letter) });
    this.list = new Grid({ label: 'Agents found', kind: 'list', columns: COLUMNS, fill: (line, row, path) => writeRow(page, line, row, path, true), ask: () => {},
      choose: (path, row) => page.openAgent(path, row), key: (event) => this.keyOfList(event), typed: (letter) => this.typed(letter) });
    this.words = h('input', { type: 'search', placeholder: 'Find by path or class', 'aria-label': 'Find agents by path or class', maxlength: '200', spellcheck: 'false', autocomplete: 'off',
      oninput: () => this.sought(), onkeydown: (event) => this.keyOfWords(event) });
    this.count = h('span', { class: 'quiet', role: 'status' });
    this.fold = button('Fold all', () => { this.open.clear(); this.changed(); this.tree.move(0); });
    this.list.element.hidden = true;
    this.element = h('div', { class: 'treeview' }, h('div', { class: 'tools' }, h('span', { class: 'grow find' }, this.words), this.fold, this.count), this.tree.element, this.list.element);
  }

  begin() {
    this.tree.forget();
    this.tree.draw();
    clearInterval(this.timer);
    if (this.words.value) this.sought();
    this.timer = setInterval(() => { this.tree.draw(); this.list.draw(); }, 1000); // rates fall although nothing comes
  }

  end() {
    clearInterval(this.timer);
    for (const id of ['tree', 'find']) this.page.wire.leave(id);
  }

  focus() { (this.list.element.hidden ? this.tree : this.list).element.focus({ preventScroll: true }); }

  pick(path) { this.tree.pick(path); this.list.pick(path); }

  ask(from, count) {
    const args = { open: [...this.open].slice(-MOST_OPEN), from, rows: count };
    if (this.seeking !== null) args.at = this.seeking;
    this.page.wire.look('tree', 'tree', args, (state) => this.draw(state), (error) => this.page.trouble(error));
  }

  draw(state) {
    noteRates(this.page, state);
    this.tree.show({ rows: state.rows || {}, order: state.order || [], from: state.from || 0, total: state.total || 0 });
    if (this.seeking !== null && state.at !== undefined) {
      const path = this.seeking;
      this.seeking = null;
      this.tree.reveal(state.at, path);
    }
    if (this.list.element.hidden) this.say(many(Math.max(0, this.tree.total), 'row'));
    this.fold.hidden = !this.open.size;
  }

  say(text) { if (this.count.textContent !== text) put(this.count, text); }

  changed() {
    this.page.keep('open', [...this.open].slice(-MOST_OPEN));
    const { from, count } = this.tree.asked || { from: 0, count: 60 };
    this.ask(from, count);
  }

  // Opens all above a path and goes to its row.
  reveal(path) {
    const parts = path.split('/');
    for (let n = 1; n < parts.length; n++) this.open.add(parts.slice(0, n).join('/'));
    this.clear();
    this.seeking = path;
    this.changed();
    this.tree.element.focus({ preventScroll: true });
  }

  key(event, row, path) {
    const folder = row.children !== undefined && path !== '';
    const open = this.open.has(path);
    switch (event.key) {
      case 'Toggle': case ' ': if (!folder) return event.key === 'Toggle'; if (open) this.open.delete(path); else this.open.add(path); break;
      case 'ArrowRight': if (folder && !open) { this.open.add(path); break; } if (folder || path === '') this.tree.move(this.tree.at + 1); return true;
      case 'ArrowLeft':
        if (folder && open) { this.open.delete(path); break; }
        if (path !== '') this.toParent(path);
        return true;
      case '/': this.words.focus(); return true;
      default: return false;
    }
    this.changed();
    return true;
  }

  toParent(path) {
    const above = path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '';
    const place = this.tree.order.indexOf(above);
    if (place >= 0) { this.tree.move(this.tree.from + place); return; }
    if (above === '') { this.tree.move(0); return; }
    this.seeking = above;
    this.changed();
  }

  // ---- find

  typed(letter) {
    if (letter !== '/') this.words.value = letter;
    this.words.focus();
    if (letter !== '/') this.sought();
  }

  sought() {
    const text = this.words.value.trim();
    clearTimeout(this.pause);
    if (!text) { this.clear(); return; }
    this.pause = setTimeout(() => {
      this.show(true);
      this.say('searching…');
      this.page.wire.look('find', 'find', { text, rows: 300 }, (state) => this.drawFound(state, text), (error) => this.say(error.message));
    }, 150);
  }

  drawFound(state, text) {
    if (text !== this.words.value.trim()) return;
    noteRates(this.page, state);
    const order = state.order || [], rows = state.rows || {};
    this.list.show({ rows, order, from: 0, total: order.length });
    this.list.asked = { from: 0, count: order.length };
    this.say(state.complete ? `${many(order.length, 'agent')} found` : order.length >= 300 ? `the first ${order.length} found` : `${order.length.toLocaleString('en')} found, ${(state.searched || 0).toLocaleString('en')} looked at`);
  }

  show(found) {
    this.list.element.hidden = !found;
    this.tree.element.hidden = found;
    (found ? this.list : this.tree).resized();
  }

  clear() {
    clearTimeout(this.pause);
    this.words.value = '';
    this.page.wire.leave('find');
    this.list.show({ rows: {}, order: [], from: 0, total: 0 });
    this.show(false);
    this.say(many(this.tree.total, 'row'));
  }

  keyOfWords(event) {
    if (event.key === 'Escape' && this.words.value) { this.clear(); this.tree.element.focus(); event.preventDefault(); event.stopPropagation(); }
    if (event.key === 'ArrowDown' || event.key === 'Enter') { this.focus(); event.preventDefault(); }
  }

  keyOfList(event) {
    if (event.key !== 'Escape') return false;
    this.clear();
    this.tree.element.focus();
    event.stopPropagation();
    return true;
  }
}

const TOPS = [['waiting', 'Longest queues'], ['handled', 'Most a second'], ['restarts', 'Most restarts']];

class TopView {
  constructor(page) {
    this.page = page;
    this.by = 'waiting';
    this.list = new Grid({ label: 'Busiest agents', kind: 'list', columns: COLUMNS, fill: (line, row, path) => writeRow(page, line, row, path, true), ask: () => {}, choose: (path, row) => page.openAgent(path, row) });
    this.buttons = TOPS.map(([by, label]) => button(label, () => { this.by = by; this.begin(); }, { 'aria-pressed': 'false' }));
    this.note = h('span', { class: 'quiet', role: 'status' });
    this.element = h('div', { class: 'treeview' }, h('div', { class: 'tools' }, this.buttons, this.note), this.list.element);
  }

  begin() {
    TOPS.forEach(([by], n) => this.buttons[n].setAttribute('aria-pressed', String(by === this.by)));
    this.page.wire.look('top', 'top', { by: this.by, rows: 50 }, (state) => this.draw(state), (error) => this.page.trouble(error));
  }

  end() { this.page.wire.leave('top'); }

  focus() { this.list.element.focus({ preventScroll: true }); }

  pick(path) { this.list.pick(path); }

  draw(state) {
    noteRates(this.page, state);
    const order = state.order || [];
    for (const path of order) if (this.by === 'handled' && this.page.rates.of(path, this.page.wire.now()) === null) state.rows[path].speed = state.rows[path].most;
    this.list.asked = { from: 0, count: order.length };
    this.list.show({ rows: state.rows || {}, order, from: 0, total: order.length });
    const none = { waiting: 'No messages wait.', handled: 'Nothing is being handled.', restarts: 'Nothing was restarted.' }[this.by];
    put(this.note, order.length ? '' : state.passes ? none : 'counting…');
  }
}
