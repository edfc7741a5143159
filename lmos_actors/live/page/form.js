// Fields made from JSON schemas. Each is an element, and `read()`: JSON text, '' for what is left out. It raises Error.

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const OWN_WORDS = 'Sent as it is'; // a remark about numbers that is for programs

let fieldCount = 0;

// A schema without `null`, and whether that was among what it takes.
function withoutNull(schema) {
  const any = isState(schema) ? schema.oneOf || schema.anyOf : null;
  if (!Array.isArray(any)) return [isState(schema) ? schema : {}, false];
  const others = any.filter((one) => one.type !== 'null');
  if (others.length === any.length) return [schema, false];
  return [others.length === 1 ? { ...others[0], default: schema.default } : { oneOf: others }, true];
}

function fieldFor(name, whole, isNeeded) {
  const [schema, takesNull] = withoutNull(whole), id = `field-${++fieldCount}`;
  const made = inputFor(schema, isNeeded && !takesNull, id);
  const problem = h('p', { class: 'problem', id: `${id}-problem`, hidden: true });
  made.input.setAttribute('aria-describedby', `${id}-problem`);
  const told = (text) => {
    problem.hidden = !text;
    put(problem, text);
    if (text) made.input.setAttribute('aria-invalid', 'true'); else made.input.removeAttribute('aria-invalid');
  };
  const read = () => {
    let text = '';
    try { text = made.read(); } catch (wrong) { told(wrong.message); throw new Error(`${name}: ${wrong.message}`); }
    told('');
    return text === '' && isNeeded && takesNull ? 'null' : text;
  };
  made.input.addEventListener('change', () => { try { read(); } catch (wrong) { /* it is shown */ } });
  const about = whole.description || schema.description || '';
  const element = h('div', { class: 'field-row' }, h('label', { for: id }, h('code', {}, isolated(name)), h('span', { class: 'quiet' }, ` ${cut(schemaWords(schema), 80)}${isNeeded ? '' : ', optional'}`)),
    made.input, about && !about.startsWith(OWN_WORDS) ? h('p', { class: 'quiet' }, isolated(about)) : null, problem);
  return { name, element, read, input: made.input };
}

function inputFor(schema, isNeeded, id) {
  const otherwise = schema.default === undefined || schema.default === null ? '' : JSON.stringify(schema.default);
  if (Array.isArray(schema.enum) || schema.type === 'boolean') {
    const values = (schema.enum || [true, false]).map((one) => JSON.stringify(one));
    const none = isNeeded ? null : h('option', { value: '' }, otherwise ? `default: ${otherwise}` : '–');
    const input = h('select', { id }, none, values.map((text) => h('option', { value: text }, schema.enum ? String(JSON.parse(text)) : text === 'true' ? 'yes' : 'no')));
    return { input, read: () => input.value };
  }
  if (schema.type === 'integer' || schema.type === 'number') {
    const input = h('input', { id, type: 'text', inputmode: 'decimal', autocomplete: 'off', placeholder: otherwise });
    return { input, read: () => asNumber(input.value.trim(), schema, isNeeded) };
  }
  if (schema.type === 'string') {
    const input = h('textarea', { id, rows: '1', autocomplete: 'off', spellcheck: 'false', placeholder: typeof schema.default === 'string' ? schema.default : '' });
    return { input, read: () => (input.value === '' && !isNeeded ? '' : JSON.stringify(input.value)) };
  }
  const input = h('textarea', { id, rows: '2', class: 'json', autocomplete: 'off', spellcheck: 'false', placeholder: otherwise || cut(sketch(schema), 300) });
  return { input, read: () => asJson(input.value.trim(), schema, isNeeded) };
}

// Numbers stay text: they may have more digits than a browser can hold.
function asNumber(text, schema, isNeeded) {
  if (text === '') { if (isNeeded) throw new Error('a number is needed'); return ''; }
  if (!NUMBER.test(text)) throw new Error('this is no number');
  if (schema.type === 'integer' && !/^-?\d+(\.0+)?$/.test(text)) throw new Error('a whole number is needed');
  if (schema.minimum !== undefined && Number(text) < schema.minimum) throw new Error(`${schema.minimum} at least`);
  if (schema.maximum !== undefined && Number(text) > schema.maximum) throw new Error(`${schema.maximum} at most`);
  return text;
}

function asJson(text, schema, isNeeded) {
  if (text === '') { if (isNeeded) throw new Error('a value is needed, as JSON'); return ''; }
  let value;
  try { value = JSON.parse(text); } catch (wrong) { throw new Error(`this is not JSON: ${wrong.message}`); }
  if (schema.type === 'array' && !Array.isArray(value)) throw new Error('a list is needed, such as [1, 2]');
  if (schema.type === 'object' && !isState(value)) throw new Error('an object is needed, such as {"name": "value"}');
  const missing = isState(value) ? (schema.required || []).filter((name) => !Object.hasOwn(value, name)) : [];
  if (missing.length) throw new Error(`${missing.join(', ')} is missing`);
  return text;
}

// How a value of a schema looks.
function sketch(schema, depth = 0) {
  if (!isState(schema) || depth > 3) return '…';
  if (schema.default !== undefined && schema.default !== null) return JSON.stringify(schema.default);
  const any = schema.oneOf || schema.anyOf;
  if (Array.isArray(any) && any.length) return sketch(any[0], depth + 1);
  if (schema.type === 'array') return `[${isState(schema.items) ? sketch(schema.items, depth + 1) : '…'}]`;
  if (schema.type === 'object') return `{${Object.entries(schema.properties || {}).map(([name, one]) => `${JSON.stringify(name)}: ${sketch(one, depth + 1)}`).join(', ')}}`;
  return { string: '"…"', integer: '0', number: '0.5', boolean: 'true', null: 'null' }[schema.type] || '…';
}

// The fields of the input of an action, or of one value.
class Fields {
  constructor(schema, single = 'input') {
    const isObject = isState(schema) && isState(schema.properties);
    const needed = new Set((isObject && schema.required) || []);
    this.single = isState(schema) && !isObject;
    this.all = isObject ? Object.entries(schema.properties).map(([name, one]) => fieldFor(name, one, needed.has(name))) : this.single ? [fieldFor(single, schema, true)] : [];
    this.element = h('div', { class: 'form-fields' }, this.all.map((field) => field.element));
  }

  // The whole as JSON text, '' where there is none. Raises Error; the first wrong field gets the focus.
  read(focus = false) {
    const parts = [];
    let wrong = null;
    for (const field of this.all) {
      try {
        const text = field.read();
        if (text !== '') parts.push(this.single ? text : `${JSON.stringify(field.name)}: ${text}`);
      } catch (problem) {
        if (!wrong && focus) field.input.focus();
        wrong = wrong || problem;
      }
    }
    if (wrong) throw wrong;
    if (this.single) return parts[0] || '';
    return this.all.length ? `{${parts.join(', ')}}` : '';
  }
}

// ---- the same call elsewhere

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const asPython = (text) => text.replace(/"(?:[^"\\]|\\.)*"|true|false|null/g, (part) => ({ true: 'True', false: 'False', null: 'None' })[part] || part);

const fullAddress = (address) => { const url = new URL(address, document.baseURI); url.hash = ''; url.search = ''; return url.href; };

function asCurl(method, address, { headers = {}, body = '', isStream = false, isOpen = true } = {}) {
  const words = [['curl', ...(isStream ? ['-N'] : []), ...(method === 'GET' ? [] : [`-X ${method}`]), quoted(fullAddress(address))].join(' ')];
  for (const [name, value] of Object.entries(headers)) words.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (!isOpen) words.push('-H "Authorization: Bearer $TOKEN"');
  if (body !== '') words.push(`--data-binary ${quoted(body)}`);
  return words.join(' \\\n  ');
}

// A fold with a call as curl and as Python, made when it is open: `make()` returns both, or raises Error.
function callFold(make) {
  const title = h('summary', {}, 'As curl, as Python');
  const shown = (what, text) => [h('h4', {}, what, ' ', copying(text, `the call as ${what}`)), h('pre', { tabindex: '0' }, text)];
  const draw = () => {
    if (!fold.open) return;
    try {
      const [curl, python] = make();
      fold.replaceChildren(title, ...shown('curl', curl), ...shown('Python', python));
    } catch (wrong) {
      fold.replaceChildren(title, h('p', { class: 'quiet' }, wrong.message));
    }
  };
  const fold = h('details', { class: 'elsewhere', ontoggle: draw }, title);
  return { element: fold, draw };
}

function pythonOf(name, lines, deadline, isOpen) {
  const body = deadline ? [`with trio.fail_after(${deadline}):`, ...lines.map((line) => `    ${line}`)] : lines, { origin, protocol } = new URL(document.baseURI);
  const token = `Credentials({${JSON.stringify(origin)}: BearerToken("env:TOKEN")}${protocol === 'http:' ? ', allow_insecure=True' : ''})`;
  return ['import trio', 'from lmos_actors import open_node', ...(isOpen ? [] : ['from lmos_actors.security import BearerToken, Credentials']), '', '', 'async def main() -> None:', ...(isOpen ? ['    async with open_node() as node:'] : [`    token = ${token}`, '    async with open_node(credentials=token) as node:']),
    `        agent = await node.consume_thing(${JSON.stringify(fullAddress(addressOf(name)))})`, ...body.map((line) => `        ${line}`), '', '', 'trio.run(main)', ''].join('\n');
}
