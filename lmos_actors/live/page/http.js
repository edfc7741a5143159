// Calls of agents over HTTP, as any other client makes them: answers, declared failures, streams, runs with progress.

const POLL_EVERY = 400, FIRST_ANSWER = 1; // milliseconds; seconds until a call is followed as a run

// Where an agent is. `name` is its public name.
const addressOf = (name, ...rest) => ['agents', name, ...rest].map(encodeURIComponent).join('/');

// A header takes no character beyond Latin-1: JSON has escapes for them.
const plainHeader = (text) => text.replace(/[^\x20-\x7e]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);

// The failure that a request was answered with: in words, with all its members.
class Failed extends Error {
  constructor(status, problem) {
    const { code, title, detail, message, path } = problem;
    const said = detail || message || title || `The node answers ${status}.`;
    super(`${code ? `${code}: ` : ''}${said}${path ? ` (at ${path})` : ''}`);
    this.status = status;
    this.code = code;
    const known = new Set(['type', 'title', 'status', 'detail', 'instance', 'code', 'message', 'started', 'about', 'path']);
    this.rest = Object.fromEntries(Object.entries(problem).filter(([name]) => !known.has(name)));
  }
}

async function asks(method, address, { body, headers, signal } = {}) {
  const answer = await fetch(address, { method, body, headers, signal, credentials: 'same-origin', cache: 'no-store' });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  if (answer.status === 401) problem.detail = 'You are not logged in any more: load the page again.';
  throw new Failed(answer.status, isState(problem) ? problem : {});
}

// The answer of an action that is short, as plain data.
const calls = (name, action, input, signal) => callsWith(name, action, JSON.stringify(input), signal);

// The same with the input as JSON text.
async function callsWith(name, action, body, signal) {
  const answer = await asks('POST', addressOf(name, 'actions', action), { body, headers: { 'Content-Type': 'application/json' }, signal });
  return answer.status === 204 ? null : answer.json();
}

// The lines of a stream, in portions as they come. Raises Failed if the run has failed.
async function* linesOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      const lines = (rest + (value || '')).split('\n');
      rest = done ? '' : lines.pop();
      const last = lines.findIndex((line) => line.startsWith('{"lmosx:end":'));
      const items = (last < 0 ? lines : lines.slice(0, last)).filter((line) => line.trim());
      if (items.length) yield items;
      if (last >= 0) {
        const problem = JSON.parse(lines[last])['lmosx:end'];
        if (problem) throw new Failed(problem.status, problem);
        return;
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => null);
  }
}

// Follows a run at the node: asks for its state again and again until it has ended. Returns the output as JSON text.
async function followed(name, action, answer, signal, progress) {
  const id = (answer.headers.get('location') || '').split('/').pop(), run = addressOf(name, 'actions', action, decodeURIComponent(id));
  const stop = () => asks('DELETE', run).catch(() => null);
  signal.addEventListener('abort', stop, { once: true });
  let text = await answer.text();
  for (;;) {
    const state = JSON.parse(text);
    if (state.status === 'failed') throw new Failed((state.error || {}).status, state.error || {});
    if (state.status === 'completed') return memberOf(text, 'output');
    if (state.progress !== undefined) progress(state.progress);
    await new Promise((done) => { setTimeout(done, POLL_EVERY); });
    if (signal.aborted) throw new DOMException('cancelled', 'AbortError');
    text = await (await asks('GET', run, { signal })).text();
  }
}

function fromBase64(text) {
  const raw = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(raw, (sign) => sign.charCodeAt(0));
}

function asBase64(buffer) {
  const read = new Uint8Array(buffer);
  let text = '';
  for (let at = 0; at < read.length; at += 8192) text += String.fromCharCode(...read.subarray(at, at + 8192));
  return btoa(text);
}

// The text of a member in JSON text, as numbers may have more digits than a browser holds; '' if it is missing.
function memberOf(text, name) {
  const part = /"(?:[^"\\]|\\.)*"|[{}[\],:]/g;
  let depth = 0, key = null, from = -1;
  for (let found; (found = part.exec(text)); ) {
    const [sign] = found;
    if (depth === 1 && from >= 0 && (sign === ',' || sign === '}')) return text.slice(from, found.index).trim();
    if (sign === '{' || sign === '[') depth += 1;
    else if (sign === '}' || sign === ']') depth -= 1;
    else if (depth === 1 && sign === ':' && from < 0 && key !== null && JSON.parse(key) === name) from = part.lastIndex;
    else if (depth === 1 && from < 0) key = sign[0] === '"' ? sign : null;
  }
  return '';
}

// JSON for reading. A text with numbers of more digits than a browser holds stays as it came.
function pretty(text) {
  if (/\d{16}/.test(text)) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch (broken) { return text; }
}
