// Conversations with chat agents. An answer is shown as it comes, as text whatever it contains. If the connection breaks
// in a turn, the turn is not lost: the history has its outcome, once no turn of the session is in progress.

const MOST_FILE = 256 * 1024, MOST_MEDIUM = 16 * 1024 * 1024, MOST_MEDIA = 64 * 1024 * 1024, PICTURES = /^image\/(png|jpeg|gif|webp)$/, ASK_AGAIN = 1_000;

const REASONS = {
  SESSION_EXPIRED: () => 'The node does not have this conversation any more: begin a new one.',
  TOOL_ERROR: (text) => `${text}. (This page carries out no tools for an agent: one that asks its client for them needs another client.)`,
};

const newSession = () => `page-${newId()}`;

class ChatView {
  constructor(page) {
    this.page = page;
    const { path = null, session = null } = page.kept('chat', {});
    Object.assign(this, { path, session, turn: null, rows: {}, file: null, loaded: null, entries: [], heardBytes: 0 });
    this.agents = h('select', { 'aria-label': 'Chat agent', onchange: () => this.choose(this.agents.value) });
    this.about = h('p', { class: 'quiet' });
    this.list = h('ul', { class: 'sessionlist', 'aria-label': 'Conversations' });
    this.fresh = button('New conversation', () => this.take(null));
    this.log = h('div', { class: 'said', role: 'log', 'aria-live': 'polite', 'aria-label': 'Conversation', tabindex: '0' });
    this.note = h('p', { class: 'quiet', role: 'status' }, 'Asking…');
    this.words = h('textarea', { rows: '2', 'aria-label': 'Message', placeholder: 'Message: Enter sends it, Shift and Enter begin a line', onkeydown: (event) => { if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.say(); } } });
    this.picker = h('input', { type: 'file', class: 'unseen', tabindex: '-1', 'aria-hidden': 'true', onchange: () => this.attach() });
    this.clip = button('Attach…', () => (this.file ? this.detach() : this.picker.click()));
    this.send = h('button', { type: 'submit', class: 'main' }, 'Send');
    this.halt = button('Cancel', () => this.turn && this.turn.control.abort(), { hidden: true });
    const form = this.form = h('form', { class: 'composer', onsubmit: (event) => { event.preventDefault(); this.say(); } }, this.words, h('p', { class: 'tools' }, this.clip, this.picker, this.halt, this.send));
    this.element = h('div', { class: 'chatview' }, h('div', { class: 'chatside' }, this.agents, this.about, this.fresh, this.list), h('div', { class: 'chatmain' }, this.note, this.log, form));
  }

  begin() {
    this.page.wire.look('list', 'chats', {}, (state) => this.draw(state), (error) => this.tell(error.message, 'bad'));
    if (this.turn && this.turn.again) this.turn.again();
  }

  end() { this.page.wire.leave('list'); }

  focus() { this.words.focus(); }

  get name() { return this.path.replaceAll('/', '.'); }

  // ---- which agent, which conversation

  draw(state) {
    const order = state.order || [];
    this.rows = state.rows || {};
    const shown = [...this.agents.options].map((one) => one.value).join('\n');
    if (shown !== order.join('\n')) this.agents.replaceChildren(...order.map((path) => h('option', { value: path }, path)));
    for (const part of [this.agents, this.fresh, this.form]) part.hidden = !order.length;
    if (!order.length) { this.tell(state.complete ? 'There is no chat agent that you may talk to.' : 'Looking for chat agents…'); return; }
    if (!order.includes(this.path)) { if (!state.complete || this.turn) return; this.choose(order[0]); return; }
    this.agents.value = this.path;
    const { class: kind, about = '' } = this.rows[this.path];
    put(this.about, `${kind}${about ? `: ${about}` : ''}`);
    if (this.loaded !== this.path) this.choose(this.path, this.session);
  }

  choose(path, session = null) {
    if (this.turn) { this.agents.value = this.path; return; }
    this.path = this.loaded = path;
    this.agents.value = path;
    this.take(session);
    this.refresh();
  }

  async refresh() {
    const { path } = this;
    try {
      const found = await calls(this.name, 'sessions');
      if (path !== this.path) return;
      this.entries = found.reverse();
      this.drawList();
    } catch (problem) {
      if (path === this.path && problem instanceof Failed) this.tell(problem.message, 'bad');
    }
  }

  drawList() {
    this.list.replaceChildren(...this.entries.slice(0, 300).map((one) => h('li', { 'aria-current': one.id === this.session ? 'true' : null },
      button([drawNumber('time', one.began), h('span', { class: 'quiet' }, ` ${many(one.messages, 'message')}${one.in_progress ? ', in progress' : ''}`)], () => this.take(one.id), { class: 'plain', title: one.id }), this.forgetting(one.id))));
  }

  forgetting(id) {
    const made = button('Forget', async () => {
      if (made.textContent === 'Forget') { made.textContent = 'Forget it?'; return; }
      try { await calls(this.name, 'forget', { session: id }); } catch (problem) { this.tell(problem.message, 'bad'); return; }
      if (id === this.session && !this.turn) this.take(null);
      this.refresh();
    }, { class: 'copy', onblur: () => { made.textContent = 'Forget'; } });
    return made;
  }

  // Opens a conversation; null is a new one. Waits for a turn that is in progress there.
  async take(session) {
    if (this.turn) return;
    this.session = session;
    this.page.keep('chat', { path: this.path, session });
    this.drawList();
    this.log.replaceChildren();
    this.heardBytes = 0;
    if (session === null) { this.tell('A new conversation.'); return; }
    await this.during(null, async (turn) => {
      this.drawSaid(await calls(this.name, 'history', { session }, turn.control.signal));
      const entry = (await calls(this.name, 'sessions', undefined, turn.control.signal)).find((one) => one.id === session);
      if (entry && entry.in_progress) await this.settled(turn, false);
    });
  }

  // ---- one turn

  async say() {
    const content = this.words.value.trim(), { file } = this;
    if (this.turn || this.path === null || (!content && !file)) return;
    const isNew = this.session === null;
    this.session = this.session || newSession();
    this.page.keep('chat', { path: this.path, session: this.session });
    this.words.value = '';
    this.detach();
    this.tell('');
    const parts = file ? [file] : [];
    this.log.append(this.bubble('user', content, parts).element);
    await this.during(content, async (turn) => {
      const bubble = turn.bubble = this.bubble('agent', '');
      bubble.element.classList.add('coming');
      this.log.append(bubble.element);
      this.down(true);
      const input = { content, session: this.session, new: isNew, ...(file ? { parts } : {}) };
      let isDone = false;
      try {
        const answer = await asks('POST', addressOf(this.name, 'actions', 'chat'), { body: JSON.stringify(input), headers: { 'Content-Type': 'application/json', Accept: 'application/x-ndjson' }, signal: turn.control.signal });
        turn.isSent = true;
        for await (const lines of linesOf(answer)) for (const line of lines) isDone = bubble.take(JSON.parse(line), () => this.down()) || isDone;
      } catch (problem) {
        // refused, or failed as the agent says; if anything else ends an answer, the agent may go on with it
        if (turn.control.signal.aborted || (problem instanceof Failed && (problem.code || !turn.isSent))) throw problem;
      }
      if (!isDone) await this.settled(turn, true);
    });
    this.refresh();
  }

  // Does something as the one turn of this view; shows a failure.
  async during(content, act) {
    const turn = this.turn = { content, control: new AbortController() };
    turn.control.signal.addEventListener('abort', () => { if (turn.again) turn.again(); });
    this.halt.hidden = false;
    this.log.setAttribute('aria-busy', 'true'); // read out as a whole, not word by word
    this.send.disabled = this.agents.disabled = this.fresh.disabled = true;
    try {
      await act(turn);
    } catch (problem) {
      if (turn.control.signal.aborted) this.tell(content === null ? 'Not waited for.' : 'Cancelled: nothing of this turn is kept.');
      else {
        const why = REASONS[problem.code] ? REASONS[problem.code](problem.message) : problem.message;
        this.tell(why, 'bad');
        if (turn.bubble) turn.bubble.element.append(h('p', { class: 'bad' }, isolated(`No answer: ${why}`)));
        if (problem.code === 'SESSION_EXPIRED') { this.session = null; this.page.keep('chat', { path: this.path, session: null }); }
      }
      if (content && !this.words.value) this.words.value = content;
    } finally {
      if (turn.bubble) turn.bubble.element.classList.remove('coming');
      this.turn = null;
      this.halt.hidden = true;
      this.log.setAttribute('aria-busy', 'false');
      this.send.disabled = this.agents.disabled = this.fresh.disabled = false;
    }
  }

  // Draws the history once no turn is in progress; asks for it again after breaks and restarts of the node.
  async settled(turn, broke) {
    const { signal } = turn.control;
    if (broke) this.tell('The answer was cut off. It is looked for as soon as the agent is back…');
    else this.tell('An answer is in progress…');
    for (;;) {
      try {
        if (!this.page.wire.hello) throw new TypeError('no connection');
        const said = await calls(this.name, 'history', { session: this.session, settled: true }, signal);
        this.drawSaid(said);
        const last = said.findLast((one) => one.role === 'user'), isThere = !turn.content || (last && last.text === turn.content);
        if (broke && !isThere) throw new Failed(0, { detail: 'The answer was cut off, and the turn is not kept: send it again.' });
        this.tell('');
        return;
      } catch (problem) {
        if (signal.aborted || (problem instanceof Failed && problem.status !== 503)) throw problem;
        await new Promise((done) => { turn.again = done; setTimeout(done, ASK_AGAIN); });
        if (signal.aborted) throw problem;
      }
    }
  }

  // ---- what is shown

  drawSaid(said) {
    this.log.replaceChildren(...said.map((one) => this.bubble(one.role, one.text, one.parts, one.failed).element));
    this.down(true);
    this.tell('');
  }

  bubble(role, text, parts = [], failed = null) {
    const words = h('div', { class: 'words', dir: 'auto' }, text), extra = h('div', { class: 'extra' }, parts.map(drawPart)), tools = new Map(), media = new Map();
    let last = '';
    const element = h('article', { class: `bubble ${role === 'user' ? 'user' : 'agent'}` }, h('h2', { class: 'speaker quiet' }, role === 'user' ? 'You' : 'Agent'), extra, words,
      failed ? h('p', { class: 'bad' }, isolated(`No answer: ${failed.code}: ${failed.message}`)) : null);
    // Takes an item of the answer; returns whether it was the last one.
    const take = (item, shown) => {
      if (item.type === 'chunk') { words.append(legiblePiece(item.text || '', last)); last = [...last, ...(item.text || '')].at(-1) || ''; extra.append(...(item.parts || []).map(drawPart)); }
      else if (item.type === 'tool_call') { const made = drawTool(item); tools.set(item.id, made); extra.append(made.element); }
      else if (item.type === 'tool_result' && tools.has(item.id)) tools.get(item.id).ended(item);
      else if (item.type === 'media') extra.append(...this.heard(media, item));
      else if (item.type === 'done') { put(words, item.text || ''); if (item.is_cut) extra.append(h('p', { class: 'quiet' }, 'It was too long, and is not whole.')); }
      shown();
      return item.type === 'done';
    };
    return { element, take };
  }

  // Takes a piece of a medium; returns its element once the medium is whole.
  heard(media, { media_id: id, mime_type: mime, data, is_last: isLast }) {
    if (!media.has(id)) media.set(id, { mime: mime || 'application/octet-stream', pieces: [], size: 0, isWhole: true });
    const one = media.get(id);
    if (data) {
      const piece = fromBase64(data);
      one.size += piece.length;
      this.heardBytes += piece.length;
      one.isWhole &&= one.size <= MOST_MEDIUM && this.heardBytes <= MOST_MEDIA;
      if (one.isWhole) one.pieces.push(piece); else one.pieces = [];
    }
    if (!isLast) return [];
    media.delete(id);
    return [!one.isWhole ? h('p', { class: 'quiet' }, isolated(`${one.mime}: ${bytes(one.size)} are too many for this page`)) : drawMedium(one.mime, one.pieces, one.mime)];
  }

  // Scrolls to the end, unless somebody reads further above.
  down(always = false) {
    const { log } = this;
    if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
  }

  tell(text, how = 'quiet') {
    this.note.className = how;
    this.note.hidden = !text;
    put(this.note, text);
  }

  // ---- a file with the next message

  async attach() {
    const [file] = this.picker.files;
    this.picker.value = '';
    if (!file) return;
    if (file.size > MOST_FILE) { this.tell(`${file.name} has ${bytes(file.size)}: ${bytes(MOST_FILE)} at most.`, 'bad'); return; }
    const read = await file.arrayBuffer();
    const mime = file.type || 'application/octet-stream', kind = mime.split('/')[0];
    this.file = { type: ['image', 'audio', 'video'].includes(kind) ? kind : 'file', media: { mime_type: mime, data: asBase64(read), filename: file.name } };
    this.clip.textContent = `Remove ${cut(file.name, 30)}`;
  }

  detach() {
    this.file = null;
    this.clip.textContent = 'Attach…';
  }
}

function drawPart(part) {
  const { media } = part;
  if (!media) return h('p', { class: 'words', dir: 'auto' }, part.text || '');
  const named = `${media.filename || part.type} (${media.mime_type})`;
  if (media.data) try { return drawMedium(media.mime_type, [fromBase64(media.data)], named, media.filename); } catch (broken) { /* no base64 */ }
  return h('p', { class: 'quiet' }, isolated(`${named}${media.url ? ` at ${cut(media.url, 300)}` : ''}, not loaded`));
}

// Pictures are shown, sound and film are played, all else can only be saved: a foreign document never gets the origin of this node.
function drawMedium(mime, pieces, named, filename = 'file') {
  const place = (type) => URL.createObjectURL(new Blob(pieces, { type }));
  const shown = (tag, options) => { const made = h(tag, options); urls.register(made, made.src); return made; };
  if (PICTURES.test(mime)) return shown('img', { class: 'picture', src: place(mime), alt: named });
  const kind = mime.split('/')[0];
  if (['audio', 'video'].includes(kind) && document.createElement(kind).canPlayType(mime)) return shown(kind, { class: 'picture', controls: true, preload: 'metadata', src: place(mime), 'aria-label': named });
  return h('p', {}, isolated(named), ' ', button('Save', () => {
    const url = place('application/octet-stream');
    h('a', { href: url, download: filename }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }, { class: 'copy' }));
}

// Frees the URLs that no element shows any more.
const urls = new FinalizationRegistry((url) => URL.revokeObjectURL(url));

function drawTool(item) {
  const state = h('span', { class: 'state starting' }, item.by_client ? 'for a client: this page carries no tools out' : 'runs'), result = h('pre', { class: 'raw', hidden: true });
  const element = h('details', { class: 'tool' }, h('summary', {}, 'Tool ', h('code', {}, isolated(item.name)), ' ', state), h('pre', { class: 'raw' }, cut(JSON.stringify(item.arguments || {}, null, 2), MOST_TEXT)), result);
  const ended = ({ result: value, error }) => {
    put(state, error ? 'failed' : 'done');
    state.className = `state ${error ? 'crashed' : 'running'}`;
    result.hidden = false;
    put(result, cut(error || JSON.stringify(value === undefined ? null : value, null, 2), MOST_TEXT));
  };
  return { element, ended };
}
