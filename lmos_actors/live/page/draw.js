// Draws what a view sends, whatever it is: text, numbers, lists, tables, objects within objects.

const PATHS = new Set(['path', 'agent', 'from', 'to', 'by', 'on', 'waiter', 'target', 'links', 'linked', 'monitors', 'monitored_by', 'children', 'members']);
const SECONDS = new Set(['age', 'seconds', 'waited', 'took']);
const TIMES = new Set(['time', 'at', 'started', 'since', 'until', 'ended', 'asked', 'expires', 'decided', 'joined', 'seen']);
const DATED = new Set(['until', 'expires', 'deadline']);
const BEGUN = new Set(['seen']), DUE = new Set(['deadline', 'at']); // instants of the clock of the node
const HEADS = { __proto__: null, url: 'URL', id: 'ID', seen: 'Age', deadline: 'Left', at: 'In', dead_lettered: 'Dead letters', when_full: 'When full', doors: 'Addresses', gave_way: 'Closed to keep it', peers: 'Connected to', memory: 'Memory of connections' };
const LONG = new Set(['stack', 'text', 'report', 'log', 'input', 'output', 'value', 'data', 'schema']);
const DEEPEST = 6, MOST_TEXT = 20_000, FOLDED = 120, STACKS = 3; // of more, each is unfolded by hand

let nodeNow = () => 0; // the clock of the node, see Wire
let isVirtual = false; // all times are seconds since a run began

const words = (name) => { const text = String(name).replaceAll('_', ' '); return text.charAt(0).toUpperCase() + text.slice(1); };

// A time of today; on another day, or if it is still to come, with its date.
function clock(time, dated) {
  const at = new Date(time * 1000), hours = at.toLocaleTimeString('en', { hour12: false });
  return dated || at.toDateString() !== new Date().toDateString() ? `${at.toLocaleDateString('sv')} ${hours}` : hours;
}

// One value under its name. `open` opens the panel of an agent.
function drawValue(name, value, open, depth = 0) {
  if (value === null || value === undefined || value === '') return h('span', { class: 'quiet' }, '–');
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number') return drawNumber(name, value);
  if (typeof value === 'string') return drawText(name, value, open);
  if (depth > 1 && inline(value) !== null) return inline(value) ? h('code', {}, isolated(inline(value))) : h('span', { class: 'quiet' }, '–');
  if (depth >= DEEPEST) return h('code', {}, cut(JSON.stringify(value), 400));
  if (Array.isArray(value)) return drawList(name, value, open, depth);
  return drawObject(value, open, depth);
}

function drawNumber(name, value) {
  if (isVirtual && (BEGUN.has(name) || DUE.has(name) || TIMES.has(name))) return seconds(Number(value.toFixed(6)));
  if (BEGUN.has(name) && value < 1e9) return h('span', { 'data-begun': value, title: 'At least: it may have come before somebody looked.' }, ageOf(value));
  if (DUE.has(name) && value < 1e9) return h('span', { 'data-due': value }, dueIn(value));
  if (TIMES.has(name) && value > 1e9) return h('time', { datetime: new Date(value * 1000).toISOString(), title: new Date(value * 1000).toLocaleString('en') }, clock(value, DATED.has(name)));
  if (SECONDS.has(name) || name.endsWith('_seconds')) return seconds(Number(value.toPrecision(3)));
  if (name === 'limit' || name === 'granted' || /(^|_)bytes(_|$)/.test(name)) return bytes(value);
  return Number.isInteger(value) ? value.toLocaleString('en') : amount(value);
}

const ageOf = (begun) => `≥ ${seconds(round(Math.max(0, nodeNow() - begun)))}`;

const dueIn = (due) => (due > nodeNow() ? seconds(round(due - nodeNow())) : 'now');

// Ages go on although nothing comes from the node.
function goOn(element) {
  for (const one of element.querySelectorAll('[data-begun]')) put(one, ageOf(Number(one.dataset.begun)));
  for (const one of element.querySelectorAll('[data-due]')) put(one, dueIn(Number(one.dataset.due)));
}

const round = (time) => (time < 10 ? Number(time.toFixed(1)) : Math.round(time));

// A small object on one line: city=Bonn, days=3.
function inline(value) {
  if (!isState(value)) return null;
  const parts = Object.entries(value);
  if (parts.length > 6 || parts.some(([, one]) => typeof one === 'object')) return null;
  const text = parts.map(([name, one]) => `${name}=${one}`).join(', ');
  return text.length > FOLDED || text.includes('\n') ? null : text;
}

function bytes(number) {
  if (number < 1024) return many(number, 'byte');
  const power = Math.min(Math.floor(Math.log2(number) / 10), 4);
  return `${(number / 1024 ** power).toFixed(1)} ${['', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`;
}

function drawText(name, text, open) {
  if (PATHS.has(name) && !text.includes('\n') && open) return agentLink(text, open);
  if (name === 'status') return h('span', { class: `state ${statusClass(text)}` }, text);
  const shown = cut(text, MOST_TEXT);
  if (shown.includes('\n') || (LONG.has(name) && shown.length > FOLDED)) return h('pre', { class: 'raw', tabindex: '0' }, shown);
  return LONG.has(name) ? h('code', {}, isolated(shown)) : isolated(shown);
}

const statusClass = (status) => (/^[a-z]+$/.test(status) ? status : 'unknown');

function agentLink(path, open) {
  return button(isolated(path || 'root'), () => open(path), { class: 'plain', title: path });
}

function drawList(name, items, open, depth) {
  if (!items.length) return h('span', { class: 'quiet' }, 'none');
  if (items.every(isState)) return drawTable(items, open, depth);
  if (LONG.has(name) && items.every((item) => typeof item === 'string')) return h('pre', { class: 'raw', tabindex: '0' }, items.join('\n'));
  const nested = items.every(Array.isArray);
  return h('ul', { class: nested ? 'nested' : 'plainlist' }, items.map((item) => h('li', {}, nested ? drawChain(name, item, open) : drawValue(name, item, open, depth + 1))));
}

// A list within a list is drawn as a path from one item to the next, such as a circle of the waiting graph.
function drawChain(name, items, open) {
  if (items.length && items.every((item) => isState(item) && item.waiter && item.text)) // who waits for the next, and why
    return [drawChain(name, [...items, items[0]].map((item) => item.waiter), open), items.map((item) => h('p', { class: 'quiet' }, isolated(item.text)))];
  return items.flatMap((item, n) => [n ? h('span', { class: 'quiet' }, ' → ') : null, typeof item === 'string' ? agentLink(item, open) : drawValue(name, item, open, DEEPEST)]);
}

// Rows, with their long values below them in a fold.
function drawTable(items, open, depth) {
  const all = new Set(items.flatMap((item) => Object.keys(item))), wide = all.delete('arguments');
  const names = [...all];
  const isLong = (name) => items.some((item) => (LONG.has(name) && Array.isArray(item[name])) || (isState(item[name]) && inline(item[name]) === null) || (typeof item[name] === 'string' && (item[name].includes('\n') || (LONG.has(name) && item[name].length > FOLDED))));
  const long = names.filter(isLong), columns = names.filter((name) => !long.includes(name));
  const number = (name) => items.some((item) => typeof item[name] === 'number');
  const row = (item) => {
    const folded = long.filter((name) => item[name] !== undefined && item[name] !== '' && item[name].length !== 0);
    const line = h('tr', {}, columns.map((name) => h('td', { class: number(name) ? 'number' : null }, item[name] === undefined ? '' : drawValue(name, item[name], open, depth + 2))));
    const given = wide && isState(item.arguments) && Object.keys(item.arguments).length ? [h('tr', { class: 'folded' }, h('td', { colspan: String(Math.max(columns.length, 1)) }, drawValue('arguments', item.arguments, open, depth + 2)))] : [];
    if (!folded.length) return [line, ...given]; // arguments are wide: they have a line of their own
    const fold = h('details', { open: items.length <= STACKS && folded[0] === 'stack' }, h('summary', {}, folded.map(words).join(', ')), folded.map((name) => [folded.length > 1 ? h('h5', {}, words(name)) : null, drawValue(name, item[name], open, depth + 1)]));
    return [line, ...given, h('tr', { class: 'folded' }, h('td', { colspan: String(Math.max(columns.length, 1)) }, fold))];
  };
  const [body, more] = portions(items, row, 100);
  return [h('div', { class: 'wide', tabindex: '0', role: 'group' }, h('table', {}, h('thead', {}, h('tr', {}, columns.map((name) => h('th', { scope: 'col', class: number(name) ? 'number' : null }, HEADS[name] || words(name))))), body)), more];
}

function drawObject(value, open, depth) {
  const names = Object.keys(value).filter((name) => name !== 'cut');
  const small = names.filter((name) => typeof value[name] !== 'object' && !(typeof value[name] === 'string' && value[name].includes('\n')));
  const large = names.filter((name) => !small.includes(name));
  return [
    small.length ? h('dl', { class: 'pairs' }, small.map((name) => h('div', {}, h('dt', {}, isolated(HEADS[name] || words(name))), h('dd', {}, drawValue(name, value[name], open, depth + 1))))) : null,
    large.map((name) => [large.length > 1 || small.length ? h('h4', {}, isolated(words(name))) : null, drawValue(name, value[name], open, depth + 1)]),
    value.cut ? h('p', { class: 'quiet' }, `and ${value.cut.toLocaleString('en')} more`) : null,
    names.length ? null : h('span', { class: 'quiet' }, 'none'),
  ];
}

// Sections, one for each member: only changed ones are drawn again, and unfolded ones stay unfolded.
class Sections {
  constructor(element, order, open, section, own = {}) {
    Object.assign(this, { element, order, open, own, section: section || ((name, content) => h('section', {}, h('h3', {}, words(name)), content)), parts: new Map() });
  }

  draw(state, changed, without = new Set()) {
    const names = Object.keys(state).filter((name) => !without.has(name));
    const rank = (name) => { const at = this.order.indexOf(name); return at < 0 ? this.order.length : at; };
    names.sort((one, other) => rank(one) - rank(other));
    for (const [name, part] of this.parts) if (!names.includes(name)) { part.remove(); this.parts.delete(name); }
    for (const name of names) {
      const part = this.parts.get(name);
      if (!part || name in changed) {
        const fresh = this.section(name, this.own[name] ? this.own[name](state[name], this.open) : drawValue(name, state[name], this.open));
        if (part) { keepFolds(part, fresh); part.replaceWith(fresh); }
        this.parts.set(name, fresh);
      }
    }
    inOrder(this.element, names.map((name) => this.parts.get(name)));
  }
}

// Puts elements into another in their order. An element that is in its place is not moved: it may have the focus.
function inOrder(parent, elements) {
  let before = null;
  for (const one of elements) {
    if (one.previousElementSibling !== before || one.parentElement !== parent) parent.insertBefore(one, before ? before.nextSibling : parent.firstChild);
    before = one;
  }
}

// Writes into a note why a view is not shown.
const refusedIn = (note) => (error) => { note.hidden = false; put(note, error.message); };

function keepFolds(old, fresh) {
  const folds = [...fresh.querySelectorAll('details')];
  [...old.querySelectorAll('details')].forEach((fold, n) => { if (folds[n]) folds[n].open = fold.open; });
  const tops = [...fresh.querySelectorAll('pre, .wide')];
  [...old.querySelectorAll('pre, .wide')].forEach((own, n) => { if (tops[n] && (own.scrollTop || own.scrollLeft)) requestAnimationFrame(() => tops[n].scrollTo(own.scrollLeft, own.scrollTop)); });
  if (old.contains(document.activeElement)) {
    const all = (part) => [...part.querySelectorAll('button, summary, pre, .wide')], at = all(old).indexOf(document.activeElement);
    requestAnimationFrame(() => { if (at >= 0 && all(fresh)[at]) all(fresh)[at].focus({ preventScroll: true }); });
  }
}
