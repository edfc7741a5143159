// The connection to the node: the open views, their changes, and coming back after a break.

const FIRST_WAIT = 500, LONGEST_WAIT = 15_000, STEADY = 10_000, TURNED_AWAY = 1008, LONGEST_DO = 60_000;

// Opened before anything is drawn, if the page says that this browser may look: the node answers meanwhile.
let early = document.documentElement.dataset.looks === 'yes' ? socketOfNode() : null;

function socketOfNode() {
  const place = new URL('live', document.baseURI);
  place.protocol = place.protocol === 'https:' ? 'wss:' : 'ws:';
  place.hash = '';
  return new WebSocket(place, ['lmos-actors-live']);
}

// A merge patch (RFC 7396), carried out in place. Objects have no prototype: an agent may be named __proto__.
function patched(state, patch) {
  if (patch === null || typeof patch !== 'object' || Array.isArray(patch)) return patch;
  const result = isState(state) ? state : Object.create(null);
  for (const name of Object.keys(patch)) {
    if (patch[name] === null) delete result[name]; else result[name] = patched(result[name], patch[name]);
  }
  return result;
}

// An id that nobody else has, a UUID: a page that is not loaded over TLS has no randomUUID.
function newId() {
  const parts = crypto.getRandomValues(new Uint8Array(16));
  parts[6] = (parts[6] & 15) | 64;
  parts[8] = (parts[8] & 63) | 128;
  return [...parts].map((part) => part.toString(16).padStart(2, '0')).join('').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

const isState = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

// `on` has functions to call: `link(state, words)` for 'open', 'connecting' and 'waiting', `hello(message)`,
// `login(session, words)` when somebody has to log in, `tick()` after changes.
class Wire {
  constructor(on) {
    Object.assign(this, { on, looks: new Map(), doing: new Map(), socket: null, hello: null, wait: FIRST_WAIT, due: 0, timer: null, unread: 0, time: 0, at: 0, since: 0, turn: 0, opened: 0, common: {} });
    document.addEventListener('visibilitychange', () => this.seen());
    addEventListener('online', () => { if (this.timer) this.connect(); });
  }

  // The clock of the node, as far as is known.
  now() { return this.time + (performance.now() - this.at) / 1000; }

  // ---- views

  // Opens a view under an id, or gives it other arguments; `draw(state, changed)` is called with each change. `common`
  // has arguments for all views, such as the run that they show.
  look(id, view, args, draw, refused) {
    const known = this.looks.get(id);
    const same = known && known.view === view;
    // a view that is opened anew gets a new id at the node: changes still on their way belong to the old one
    const key = same ? known.key : `${id}-${this.opened += 1}`;
    this.looks.set(id, { key, view, args, draw, refused, state: same ? known.state : Object.create(null) });
    if (known && !same) this.send({ type: 'leave', id: known.key });
    this.send({ type: 'look', id: key, view, arguments: { ...args, ...this.common } });
  }

  leave(id) {
    const known = this.looks.get(id);
    if (this.looks.delete(id)) this.send({ type: 'leave', id: known.key });
  }

  lookOf(key) {
    for (const look of this.looks.values()) if (look.key === key) return look;
    return null;
  }

  // Asks the node for an operation: a promise of its outcome in words. `said` is called with its progress; `more` goes
  // with a decision.
  do(what, path, said = () => {}, more = {}) {
    const id = newId();
    return new Promise((done, failed) => {
      if (!this.hello) { failed(new Error('The node does not answer.')); return; }
      const late = setTimeout(() => this.answered(id, (one) => one.failed(new Error('The node has not answered: whether it was done is not known. The view shows it.'))), LONGEST_DO);
      this.doing.set(id, { done, failed, said, late });
      this.send({ type: 'do', id, what, path, ...more });
    });
  }

  send(message) {
    if (this.hello && this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  // ---- the connection

  async connect() {
    this.close(); // even a socket that is only being opened: it would stay open beside this one
    const { turn } = this;
    this.on.link('connecting');
    if (!early) {
      let session;
      try {
        session = await asked('GET');
      } catch (problem) {
        if (turn === this.turn) this.later();
        return;
      }
      if (turn !== this.turn) return;
      if (!session.looks) {
        this.on.login(session);
        return;
      }
    }
    const socket = this.socket = early || socketOfNode();
    early = null;
    socket.onmessage = (event) => { if (socket === this.socket) this.take(JSON.parse(event.data)); };
    socket.onclose = (event) => { if (socket === this.socket) this.lost(event); };
  }

  close() {
    this.turn += 1;
    clearTimeout(this.timer);
    this.timer = null;
    const socket = this.socket;
    this.socket = this.hello = null;
    if (socket) socket.close();
  }

  answered(id, tell) {
    const waiting = this.doing.get(id);
    this.doing.delete(id);
    if (waiting) tell(waiting);
  }

  lost(event) {
    this.socket = this.hello = null;
    for (const id of [...this.doing.keys()]) this.answered(id, ({ failed }) => failed(new Error('The connection broke: whether it was done is not known. The view shows it.')));
    // a connection that soon breaks again and again is retried with growing waits, as one that cannot be opened
    if (this.since && performance.now() - this.since > STEADY) this.wait = FIRST_WAIT;
    this.since = 0;
    if (event.code === TURNED_AWAY) this.turnedAway(); else this.later();
  }

  // The node has closed the connection for a reason: the credentials have ended, or too much was sent.
  async turnedAway() {
    const { turn } = this;
    this.on.link('connecting');
    const session = await asked('GET').catch(() => null);
    if (turn !== this.turn) return;
    if (session && !session.looks) this.on.login(session); else this.later();
  }

  later() {
    const wait = this.wait * (0.75 + Math.random() / 2); // so that not all pages come back in one instant
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
    this.due = Date.now() + wait;
    this.on.link('waiting');
    this.timer = setTimeout(() => this.connect(), wait);
  }

  take(message) {
    switch (message.type) {
      case 'hello':
        this.hello = message;
        this.since = performance.now();
        this.unread = 0;
        this.looks.clear(); // the node knows none of the looks from before
        this.on.link('open');
        this.on.hello(message);
        break;
      case 'changes':
        this.time = message.time;
        this.at = performance.now();
        for (const [key, patch] of Object.entries(message.patches)) {
          const look = this.lookOf(key);
          if (!look) continue;
          look.state = patched(look.state, patch);
          look.draw(look.state, patch);
        }
        this.on.tick();
        this.unread = message.number;
        this.seen();
        break;
      case 'progress': { // an operation that reports progress may take its time
        const waiting = this.doing.get(message.id);
        if (waiting) { clearTimeout(waiting.late); waiting.said(message.text); }
        break;
      }
      case 'done': this.answered(message.id, ({ done }) => done(message.outcome)); break;
      case 'error': {
        this.answered(message.id, ({ failed }) => failed(new Error(message.message)));
        const look = this.lookOf(message.id);
        if (look && look.refused) look.refused(message);
        break;
      }
      default: // of a later version
    }
  }

  // Confirms changes, unless nobody sees the page: then nothing more comes.
  seen() {
    if (!this.unread || document.hidden) return;
    this.send({ type: 'taken', number: this.unread });
    this.unread = 0;
  }
}

// A request for the session of this page: who is logged in, a log-in, a log-out.
async function asked(method, body) {
  const options = { method, cache: 'no-store', credentials: 'same-origin', redirect: 'error', headers: {} };
  if (body) {
    options.headers['Content-Type'] = 'application/json';
    options.body = JSON.stringify(body);
  }
  const answer = await fetch('live/session', options);
  if (answer.status === 204) return null;
  const said = await answer.json();
  if (answer.ok) return said;
  throw Object.assign(new Error(said.detail || said.title), { status: answer.status, wait: Number(answer.headers.get('Retry-After')) || 0 });
}
