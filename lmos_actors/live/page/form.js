// Fields made from JSON schemas. Each has an element and `read()`, which returns JSON text, '' if left out, or raises Error.

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const OWN_WORDS = 'Sent as it is'; // a remark about numbers that is for programs

let fieldCount = 0;

// A schema without `null`, and whether it takes null.
function withoutNull(schema) {
  const any = isState(schema) ? schema.oneOf || schema.anyOf : null;
  if (!Array.isArray(any)) return [isState(schema) ? schema : {}, false];
  const others = any.filter((one) => one.type !== 'null');
  if (others.length === any.length) return [schema, false];
  return [others.length === 1 ? { ...others[0], default: schema.default } : { oneOf: others, default: schema.default }, true];
}

function fieldFor(name, whole, isNeeded) {
  const [schema, takesNull] = withoutNull(whole), id = `field-${++fieldCount}`;
  const made = inputFor(schema, isNeeded, id);
  // a field that is left out is null already if that is the default
  const none = takesNull && (isNeeded || (schema.default !== undefined && schema.default !== null)) ? nullBox(made.input, name, isNeeded) : null;
  const problem = h('p', { class: 'problem', id: `${id}-problem`, hidden: true });
  made.input.setAttribute('aria-describedby', `${id}-problem`);
  const told = (text) => {
    problem.hidden = !text;
    put(problem, text);
    if (text) made.input.setAttribute('aria-invalid', 'true'); else made.input.removeAttribute('aria-invalid');
  };
  const read = () => {
    let text = 'null';
    if (!none || !none.checked) try { text = made.read(); } catch (wrong) { told(wrong.message); throw new Error(`${name}: ${wrong.message}`); }
    told('');
    return text;
  };
  made.input.addEventListener('change', () => { try { read(); } catch (wrong) { /* it is shown */ } });
  const about = whole.description || schema.description || '';
  const element = h('div', { class: 'field-row' }, h('label', { for: id }, h('code', {}, isolated(name)), h('span', { class: 'quiet' }, ` ${cut(schemaWords(whole), 80)}${isNeeded ? '' : ', optional'}`)),
    made.input, none || made.extra ? h('p', { class: 'tools' }, made.extra, none ? h('label', { class: 'quiet' }, none, ' null') : null) : null, about && !about.startsWith(OWN_WORDS) ? h('p', { class: 'quiet' }, isolated(about)) : null, problem);
  return { name, element, read, input: made.input };
}

// The box that says null for a field, until something is written into it.
function nullBox(input, name, checked) {
  const box = h('input', { type: 'checkbox', checked, 'aria-label': `${name} is null`, onchange: () => { if (box.checked) input.value = ''; input.dispatchEvent(new Event('change')); } });
  input.addEventListener('input', () => { box.checked = false; });
  return box;
}

// A button that puts a file into a field, as base64.
function fileButton(input) {
  const picker = h('input', { type: 'file', class: 'unseen', tabindex: '-1', 'aria-hidden': 'true', onchange: async () => {
    const [file] = picker.files;
    picker.value = '';
    if (!file) return;
    input.value = asBase64(await file.arrayBuffer());
    for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind, { bubbles: true }));
  } });
  return [button('File…', () => picker.click(), { class: 'copy' }), picker];
}

const LOOKS = { 'date-time': '2026-11-28T12:00:00Z', date: '2026-11-28', time: '12:00:00', duration: 'PT1H', uuid: '123e4567-e89b-42d3-a456-426614174000', decimal: '1.50' };

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
    const isBinary = schema.contentEncoding === 'base64';
    const input = h('textarea', { id, rows: '1', autocomplete: 'off', spellcheck: 'false', placeholder: typeof schema.default === 'string' ? schema.default : LOOKS[schema.format] || (isBinary ? 'base64' : '') });
    return { input, extra: isBinary ? fileButton(input) : null, read: () => (input.value === '' && !isNeeded ? '' : asText(input.value, schema)) };
  }
  const input = h('textarea', { id, rows: '2', class: 'json', autocomplete: 'off', spellcheck: 'false', placeholder: otherwise || cut(sketch(schema), 300) });
  return { input, read: () => asJson(input.value.trim(), schema, isNeeded) };
}

// Numbers stay text: they may have more digits than a browser can hold.
function asNumber(text, schema, isNeeded) {
  if (text === '') { if (isNeeded) throw new Error('a number is needed'); return ''; }
  if (!NUMBER.test(text)) throw new Error('this is no number');
  if (schema.type === 'integer' && !/^-?\d+(\.0+)?$/.test(text)) throw new Error('a whole number is needed');
  const value = Number(text);
  if (schema.minimum !== undefined && value < schema.minimum) throw new Error(`${schema.minimum} at least`);
  if (schema.maximum !== undefined && value > schema.maximum) throw new Error(`${schema.maximum} at most`);
  if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum) throw new Error(`more than ${schema.exclusiveMinimum}`);
  if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum) throw new Error(`less than ${schema.exclusiveMaximum}`);
  return text;
}

function asText(text, schema) {
  const length = [...text].length; // in code points, as JSON Schema counts
  if (schema.minLength !== undefined && length < schema.minLength) throw new Error(`${many(schema.minLength, 'character')} at least`);
  if (schema.maxLength !== undefined && length > schema.maxLength) throw new Error(`${many(schema.maxLength, 'character')} at most`);
  if (schema.contentEncoding === 'base64' && !(/^[A-Za-z0-9+/]*={0,2}$/.test(text) && text.length % 4 === 0)) throw new Error('this is not base64');
  return JSON.stringify(text);
}

function asJson(text, schema, isNeeded) {
  if (text === '') { if (isNeeded) throw new Error('a value is needed, as JSON'); return ''; }
  let value;
  try { value = JSON.parse(text); } catch (wrong) { throw new Error(`this is not JSON: ${wrong.message}`); }
  if (schema.type === 'array' && !Array.isArray(value)) throw new Error('a list is needed, such as [1, 2]');
  if (Array.isArray(value) && schema.minItems !== undefined && value.length < schema.minItems) throw new Error(`${many(schema.minItems, 'item')} at least`);
  if (Array.isArray(value) && schema.maxItems !== undefined && value.length > schema.maxItems) throw new Error(`${many(schema.maxItems, 'item')} at most`);
  if (schema.type === 'object' && !isState(value)) throw new Error('an object is needed, such as {"name": "value"}');
  const missing = isState(value) ? (schema.required || []).filter((name) => !Object.hasOwn(value, name)) : [];
  if (missing.length) throw new Error(`${missing.join(', ')} is missing`);
  return text;
}

// How a value of a schema looks.
function sketch(schema, depth = 0) {
  if (!isState(schema) || depth > 3) return '…';
  if (schema.default !== undefined && schema.default !== null) return JSON.stringify(schema.default);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum) && schema.enum.length) return JSON.stringify(schema.enum[0]);
  const any = schema.oneOf || schema.anyOf;
  if (Array.isArray(any) && any.length) return sketch(any[0], depth + 1);
  if (schema.type === 'array') return `[${[schema.items].flat().map((one) => sketch(one, depth + 1)).join(', ')}]`;
  if (schema.type === 'object' && !schema.properties && isState(schema.additionalProperties)) return `{"…": ${sketch(schema.additionalProperties, depth + 1)}}`;
  if (schema.type === 'object') return `{${Object.entries(schema.properties || {}).map(([name, one]) => `${JSON.stringify(name)}: ${sketch(one, depth + 1)}`).join(', ')}}`;
  return { string: '"…"', integer: '0', number: '0.5', boolean: 'true', null: 'null' }[schema.type] || '…';
}

// The fields of the input of an action, or of one value.
class Fields {
  constructor(schema, single = null) {
    const isObject = isState(schema) && isState(schema.properties) && single === null;
    const needed = new Set((isObject && schema.required) || []);
    this.single = isState(schema) && !isObject;
    this.all = isObject ? Object.entries(schema.properties).map(([name, one]) => fieldFor(name, one, needed.has(name))) : this.single ? [fieldFor(single || 'input', schema, true)] : [];
    this.element = h('div', { class: 'form-fields' }, this.all.map((field) => field.element));
  }

  // The whole input as JSON text, '' if there is none. Raises Error; the first wrong field gets the focus.
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

// Python reads some escapes of JSON differently, such as surrogate pairs: strings are written anew.
const asPython = (text) => text.replace(/"(?:[^"\\]|\\.)*"|true|false|null/g, (part) => ({ true: 'True', false: 'False', null: 'None' })[part] || JSON.stringify(JSON.parse(part)));

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
