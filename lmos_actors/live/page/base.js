// What every page needs, that of a node and that of a report: elements, texts for times and numbers, copying.

// h('p', {class: 'x', onclick: f}, 'text', node): text is only ever set as text, never as markup.
function h(tag, options, ...children) {
  return fill(document.createElement(tag), options, children);
}

function svg(tag, options, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), options, children);
}

const SAID = new Set(['title', 'aria-label', 'alt', 'placeholder']); // attributes that people see, or hear

function fill(element, options, children) {
  for (const [name, value] of Object.entries(options || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') element[name] = value;
    else element.setAttribute(name, value === true ? '' : SAID.has(name) ? legible(value) : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map(legible));
  return element;
}

// Characters that a browser would obey and not show are spelt out, by the rule of `_core/_text.py`; line ends and tabs stay.
const ILLEGIBLE = /(?<![^\x00-\u024f\u200c\u200d\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\u{e0100}-\u{e01ef}])[\u200c\u200d]|(?![\n\t\u200c\u200d])[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\u{e0100}-\u{e01ef}]/gu;

const legible = (child) => (typeof child === 'string' ? child.replace(ILLEGIBLE, spelt) : child);

// The same for a piece of a longer text; `before` is the last character before the piece.
const legiblePiece = (text, before) => { const whole = legible(before + text); return whole.startsWith(before) ? whole.slice(before.length) : legible(text); };

function spelt(character) {
  const code = character.codePointAt(0).toString(16), short = { '\r': '\\r' }[character];
  return short || (code.length <= 2 ? `\\x${code.padStart(2, '0')}` : code.length <= 4 ? `\\u${code.padStart(4, '0')}` : `\\U${code.padStart(8, '0')}`);
}

function place(element, styles) {
  for (const [name, value] of Object.entries(styles)) element.style.setProperty(name, value);
  return element;
}

// Virtual time in words: 0 s, 12.5 ms, 1.2 s, 4m 00s, 2h 05m 00s.
function seconds(time) {
  if (time === null || time === undefined) return '';
  const sign = time < 0 ? '−' : '', whole = Math.abs(time);
  if (whole === 0) return '0 s';
  if (whole < 1) return `${sign}${tidy(whole * 1000)} ms`;
  if (whole < 60) return `${sign}${tidy(whole)} s`;
  const hours = Math.floor(whole / 3600), minutes = Math.floor((whole % 3600) / 60);
  const rest = tidy(whole % 60), padded = whole % 60 < 10 ? `0${rest}` : rest;
  return `${sign}${hours ? `${hours}h ${String(minutes).padStart(2, '0')}` : minutes}m ${padded}s`;
}

const tidy = (number) => String(Number(number.toFixed(3)));

function amount(number) {
  if (number === null || number === undefined) return '–';
  const size = Math.abs(number);
  return size !== 0 && (size >= 1e6 || size < 1e-3) ? number.toExponential(2) : String(Number(number.toPrecision(5)));
}

const many = (count, word) => `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;

const cut = (text, most) => (text.length <= most ? text : most < 2 ? '' : `${text.slice(0, most - 1)}…`);

// The widest steps 1, 2, 5, 10, ... that give at most `most` marks between two numbers.
function ticks(low, high, most) {
  const span = high - low || 1, rough = span / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || power * 10, marks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) marks.push(Number((n * step).toPrecision(12)));
  return marks;
}

// A text from others: if it changes the direction of writing, it does so only within itself.
const isolated = (text) => h('bdi', {}, text);

function button(text, onclick, options) {
  return h('button', { type: 'button', onclick, ...options }, text);
}

function copying(text, what) {
  const made = button('Copy', async () => {
    const done = await copy(text);
    made.textContent = done ? 'Copied' : 'Select and copy';
    setTimeout(() => { made.textContent = 'Copy'; }, 1500);
  }, { class: 'copy', 'aria-label': `Copy ${what}` });
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch (refused) { // older browsers, and browsers that refuse it for files
    const area = h('textarea', { class: 'unseen', value: text, readonly: true, 'aria-hidden': 'true' });
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

// Rows of a table, the first hundreds at once and the others when asked for.
function portions(items, row, size = 300) {
  const body = h('tbody');
  let shown = 0;
  const more = () => {
    body.append(...items.slice(shown, shown + size).flatMap(row));
    shown += size;
    last.hidden = shown >= items.length;
    next.textContent = `Show ${Math.min(size, items.length - shown)} more of ${items.length}`;
  };
  const next = button('', more), last = h('p', {}, next);
  more();
  return [body, last];
}

// Calls `draw` once per animation frame, however often it is asked for.
function soon(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };
}

// Draws into `element` as soon as it is in the page (drawAll), and whenever its size changes.
const undrawn = [];

function drawAll() {
  for (const draw of undrawn.splice(0)) draw();
}

function drawn(element, draw) {
  undrawn.push(draw);
  new ResizeObserver(soon(() => { if (element.isConnected) draw(); })).observe(element);
  return element;
}
