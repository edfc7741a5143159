// Using an agent: a form for each action and property, from its description, and its events as they come.

const MOST_ITEMS = 200, MOST_EVENTS = 100, LISTEN_AGAIN = 2_000, TALKS = ['chat', 'sessions', 'history', 'forget'];

// One part of the panel. Nothing is asked for before it is unfolded; its streams end with it.
class UsePart {
  constructor(page) {
    this.page = page;
    this.path = null;
    this.body = h('div');
    this.fold = h('details', { class: 'use', ontoggle: () => this.toggled() }, h('summary', {}, h('strong', {}, 'Use it'), h('span', { class: 'quiet' }, ' actions, properties, events')), this.body);
    this.element = h('section', { class: 'usepart', hidden: true }, this.fold);
    this.open = page.kept('use', false);
    document.addEventListener('visibilitychange', () => { if (document.hidden) this.quiet(); else if (this.listens) this.listen(); });
  }

  // Shows a place, also again after a break; typed input stays.
  show(path) {
    const same = this.path === path && this.description;
    if (!same) this.close();
    this.path = path;
    this.page.wire.look('rights', 'rights', { path }, (state, changed) => { this.page.panel.offer(state.operations || []); if (['name', 'there', 'may'].some((one) => one in changed)) this.allowed(state); }, () => { this.element.hidden = true; });
    if (same && this.listens) this.listen();
  }

  close() {
    if (this.path === null) return;
    this.page.wire.leave('rights');
    this.quiet();
    for (const one of this.forms || []) one.stop();
    Object.assign(this, { path: null, name: null, may: [], forms: [], description: null, listens: false });
    this.element.hidden = true;
    this.body.replaceChildren();
  }

  allowed(state) {
    this.name = state.name;
    this.may = state.may || [];
    this.element.hidden = !state.there || !this.may.length;
    if (this.element.hidden) return;
    if (this.fold.open !== this.open) this.fold.open = this.open; else this.toggled();
  }

  toggled() {
    this.open = this.fold.open;
    this.page.keep('use', this.open);
    if (!this.open) { this.quiet(); return; }
    if (this.name && !this.description) this.load(); else if (this.listens) this.listen();
  }

  async load() {
    const { path } = this;
    this.description = {};
    this.body.replaceChildren(h('p', { class: 'quiet' }, 'Asking…'));
    try {
      const found = await (await asks('GET', addressOf(this.name), { headers: { Accept: 'application/json' } })).json();
      if (path !== this.path) return;
      this.description = found;
      this.draw(found);
    } catch (problem) {
      if (path !== this.path) return;
      this.description = null;
      this.body.replaceChildren(h('p', { class: 'bad' }, isolated(problem.message)), button('Try again', () => this.load()));
    }
  }

  draw({ actions = {}, properties = {}, events = {}, ...rest }) {
    const streams = rest['lmosx:streams'] || {}, may = (right) => this.may.includes(right);
    this.forms = may('invoke') ? Object.entries(actions).map(([name, one]) => new ActionForm(this, name, one, streams[name] || {})) : [];
    const seen = Object.entries(properties).filter(([, one]) => (may('read') && !one.writeOnly) || (may('write') && !one.readOnly));
    this.rows = new Map(seen.map(([name, one]) => [name, new PropertyRow(this, name, one, may('read') && !one.writeOnly, may('write') && !one.readOnly)]));
    this.events = may('subscribe') ? Object.keys(events) : [];
    this.list = h('ol', { class: 'items', tabindex: '0', 'aria-label': 'Events' });
    this.said = h('p', { class: 'quiet', role: 'status' });
    this.listens = this.events.length > 0 || seen.some(([, one]) => may('read') && one.observable && !one.writeOnly);
    this.body.replaceChildren(...[
      may('invoke') && TALKS.every((name) => Object.hasOwn(actions, name)) ? h('p', { class: 'tools' }, button('Chat with it', () => this.page.chat(this.path), { class: 'main' })) : null,
      this.forms.length ? [h('h3', {}, 'Actions'), this.forms.map((one) => one.element)] : null,
      this.rows.size ? [h('h3', {}, 'Properties'), [...this.rows.values()].map((one) => one.element)] : null,
      this.events.length ? [h('h3', {}, 'Events'), this.said, this.list] : null,
      this.forms.length || this.rows.size || this.events.length ? null : h('p', { class: 'quiet' }, 'It offers nothing that you may use.'),
    ].flat(2).filter(Boolean));
    if (this.listens) this.listen();
  }

  // ---- properties and events as they come, over one WebSocket: for requests a browser has only six connections to a
  // node, however many of its pages are open.

  listen() {
    this.quiet();
    if (document.hidden || !this.open || !this.listens) return;
    const place = new URL(addressOf(this.name), document.baseURI), observed = [...this.rows].filter(([, row]) => row.reads && row.isObservable);
    place.protocol = place.protocol === 'https:' ? 'wss:' : 'ws:';
    if (this.events.length) put(this.said, this.list.children.length ? '' : 'None yet: they are shown as they come.');
    const socket = this.socket = new WebSocket(place, ['lmosprotocol']);
    const send = (messageType, rest) => socket.send(JSON.stringify({ messageType, messageID: newId(), ...rest }));
    socket.onopen = () => {
      for (const [name] of observed) send('observeProperty', { name });
      if (this.events.length) send('subscribeAllEvents', { gaps: true });
    };
    socket.onmessage = (event) => { if (socket === this.socket) this.heard(event.data); };
    socket.onclose = () => { if (socket === this.socket) this.again = setTimeout(() => this.listen(), LISTEN_AGAIN); };
  }

  heard(text) {
    const { messageType, name, event } = JSON.parse(text);
    if (messageType === 'propertyReading' && this.rows.has(name)) this.rows.get(name).came(memberOf(text, 'value'));
    else if (messageType === 'event') this.happened(event, memberOf(text, 'data'));
    else if (messageType === 'gap') this.happened('some may be missed', '');
    else if (messageType === 'error') this.socket.close(); // the agent may have ended, for example: asks again
  }

  happened(name, text) {
    put(this.said, '');
    this.list.prepend(h('li', {}, h('span', { class: 'quiet' }, `${clock(Date.now() / 1000)} `), h('strong', {}, isolated(name)), ' ', h('code', {}, isolated(cut(text, 2_000)))));
    while (this.list.children.length > MOST_EVENTS) this.list.lastChild.remove();
  }

  quiet() {
    const { socket } = this;
    this.socket = null;
    clearTimeout(this.again);
    if (socket) socket.close();
  }
}

class PropertyRow {
  constructor(part, name, schema, reads, writes) {
    Object.assign(this, { reads, isObservable: schema.observable });
    const address = () => addressOf(part.name, 'properties', name);
    this.value = h('code', { class: 'value' }, '');
    this.told = h('span', { class: 'bad', role: 'status' });
    const fields = writes ? new Fields(schema, name) : null;
    const read = async () => { put(this.told, ''); try { this.came(await (await asks('GET', address())).text()); } catch (problem) { put(this.told, problem.message); } };
    const write = async () => {
      put(this.told, '');
      try {
        await asks('PUT', address(), { body: fields.read(true), headers: { 'Content-Type': 'application/json' } });
        put(this.told, 'Written.');
        this.told.className = 'ok';
      } catch (problem) { this.told.className = 'bad'; put(this.told, problem.message); }
    };
    const isOpen = !part.page.hello.viewer, json = { 'Content-Type': 'application/json' };
    const reading = () => [asCurl('GET', address(), { isOpen }), pythonOf(part.name, [`print(await agent.read(${JSON.stringify(name)}))`], '', isOpen)];
    const writing = () => { const body = fields.read(); return [asCurl('PUT', address(), { body, headers: json, isOpen }), pythonOf(part.name, [`await agent.write(${JSON.stringify(name)}, ${asPython(body)})`], '', isOpen)]; };
    const written = writes ? callFold(writing) : null;
    this.element = h('div', { class: 'prop' }, h('p', {}, h('code', { class: 'field' }, isolated(name)), ' ', this.value, ' ', reads ? button('Read', read, { class: 'copy' }) : null, ' ', this.told),
      schema.description && !schema.description.startsWith(OWN_WORDS) ? h('p', { class: 'quiet' }, isolated(schema.description)) : null,
      reads ? callFold(reading).element : null,
      writes ? h('details', {}, h('summary', {}, 'Write'), h('form', { oninput: () => written.draw(), onsubmit: (event) => { event.preventDefault(); write(); } }, fields.element, h('p', { class: 'tools' }, h('button', { type: 'submit' }, 'Write')), written.element)) : null);
  }

  came(text) { put(this.value, cut(text, 2_000)); }
}

// The form of one action: fields, deadline, the same call elsewhere, and the answer.
class ActionForm {
  constructor(part, name, action, streams) {
    Object.assign(this, { part, name, action });
    this.sends = Object.keys(streams.input || {});
    this.isStream = streams.output !== undefined;
    this.fields = new Fields(action.input);
    this.lines = this.sends.length ? h('textarea', { rows: '3', class: 'json', spellcheck: 'false', 'aria-label': `Items of ${this.sends[0]}, one JSON value a line`, placeholder: sketch(streams.input[this.sends[0]].schema) }) : null;
    this.deadline = h('input', { type: 'text', inputmode: 'decimal', size: '5', autocomplete: 'off', placeholder: 'none', 'aria-label': 'Deadline in seconds' });
    this.go = h('button', { type: 'submit', class: 'main' }, 'Invoke');
    this.halt = button('Cancel', () => this.stop(), { hidden: true });
    this.state = h('p', { class: 'quiet', role: 'status' });
    this.answer = h('div', { class: 'answer' });
    this.elsewhere = callFold(() => this.calls());
    const form = h('form', { onsubmit: (event) => { event.preventDefault(); this.invoke(); }, oninput: () => this.elsewhere.draw(), onkeydown: (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.invoke(); } } },
      this.fields.element, this.lines ? h('div', { class: 'field-row' }, h('p', {}, h('code', {}, isolated(this.sends[0])), h('span', { class: 'quiet' }, ' a stream: one JSON value a line')), this.lines) : null,
      h('p', { class: 'tools' }, this.go, this.halt, h('label', { class: 'quiet' }, 'Deadline ', this.deadline, ' s')), this.state, this.answer, this.elsewhere.element);
    const tooMany = this.sends.length > 1;
    this.element = h('details', { class: 'action', 'data-action': name }, h('summary', {}, h('code', {}, isolated(name)), action.description ? h('span', { class: 'quiet' }, isolated(` ${cut(action.description, 200)}`)) : null),
      tooMany ? h('p', { class: 'quiet' }, 'It takes more than one stream, which HTTP cannot carry.') : form);
  }

  // What is sent. Raises Error.
  request(focus = false) {
    const input = this.fields.read(focus), headers = {}, seconds = this.deadline.value.trim();
    if (seconds && !(NUMBER.test(seconds) && Number(seconds) > 0)) { if (focus) this.deadline.focus(); throw new Error('Deadline: seconds are needed, such as 2.5'); }
    let body = input;
    if (this.lines) {
      const items = this.lines.value.split('\n').map((line) => line.trim()).filter(Boolean);
      items.forEach((line, n) => { try { JSON.parse(line); } catch (wrong) { throw new Error(`line ${n + 1} of ${this.sends[0]} is not JSON`); } });
      headers['Content-Type'] = 'application/x-ndjson';
      if (input) headers['LMOS-Input'] = plainHeader(input);
      body = items.map((line) => `${line}\n`).join('');
    } else if (input) headers['Content-Type'] = 'application/json';
    if (this.isStream) headers.Accept = 'application/x-ndjson';
    if (seconds) headers['LMOS-Remaining'] = seconds;
    return { input, body, headers, seconds };
  }

  async invoke() {
    if (this.running) return;
    let request;
    try { request = this.request(true); } catch (wrong) { this.say(wrong.message, 'bad'); return; }
    const { part, name } = this, control = this.running = new AbortController(), began = performance.now();
    const took = () => seconds(Math.round(performance.now() - began) / 1000);
    this.go.disabled = true;
    this.halt.hidden = false;
    this.answer.replaceChildren();
    this.say('Running…');
    const follow = this.isStream || this.lines ? {} : { Prefer: `respond-async, wait=${FIRST_ANSWER}` };
    try {
      const answer = await asks('POST', addressOf(part.name, 'actions', name), { body: request.body || undefined, headers: { ...request.headers, ...follow }, signal: control.signal });
      if (this.isStream) {
        const count = await this.stream(answer);
        this.say(`${many(count, 'item')}, ended after ${took()}.`, 'ok');
      } else {
        const text = answer.status === 201 ? await followed(part.name, name, answer, control.signal, (progress) => this.say(`Running… progress ${cut(JSON.stringify(progress), 300)}`)) : await answer.text();
        if (text) this.answer.replaceChildren(h('pre', { class: 'raw', tabindex: '0' }, cut(pretty(text), MOST_TEXT)));
        this.say(`Answered after ${took()}.${text ? '' : ' It has no output.'}`, 'ok');
      }
    } catch (problem) {
      if (control.signal.aborted) this.say(`Cancelled after ${took()}.`);
      else if (problem instanceof Failed) {
        this.say(problem.message, 'bad');
        if (Object.keys(problem.rest).length) this.answer.append(h('pre', { class: 'raw' }, cut(JSON.stringify(problem.rest, null, 2), MOST_TEXT)));
      } else this.say('The connection broke: whether it was done is not known.', 'bad');
    } finally {
      this.running = null;
      this.go.disabled = false;
      this.halt.hidden = true;
    }
  }

  async stream(answer) {
    const list = h('ol', { class: 'items', tabindex: '0', 'aria-label': `Items of ${this.name}` });
    this.answer.replaceChildren(list);
    let count = 0;
    for await (const lines of linesOf(answer)) {
      count += lines.length;
      list.append(...lines.slice(-MOST_ITEMS).map((line) => h('li', {}, h('code', {}, isolated(cut(line, 2_000))))));
      while (list.children.length > MOST_ITEMS) list.firstChild.remove();
      list.scrollTop = list.scrollHeight;
      this.say(`${many(count, 'item')} so far${count > MOST_ITEMS ? `, the last ${MOST_ITEMS} are shown` : ''}.`);
    }
    return count;
  }

  stop() { if (this.running) this.running.abort(); }

  say(text, how = 'quiet') {
    this.state.className = how;
    put(this.state, text);
  }

  // The same call as curl and as Python. Raises Error.
  calls() {
    const { input, body, headers, seconds: deadline } = this.request(), isOpen = !this.part.page.hello.viewer;
    const sent = body.trim() && this.lines ? body.trim().split('\n').map(asPython).map((line) => `yield ${line}`) : ['return', 'yield'];
    const source = this.lines ? ['async def items():', ...sent.map((line) => `    ${line}`), ''] : [];
    const args = [JSON.stringify(this.name), input ? asPython(input) : this.lines ? '{}' : null, this.lines ? `streams={${JSON.stringify(this.sends[0])}: items()}` : null].filter(Boolean).join(', ');
    const lines = this.isStream ? [...source, `async with agent.stream(${args}) as found:`, '    async for item in found:', '        print(item)'] : [...source, `print(await agent.invoke(${args}))`];
    return [asCurl('POST', addressOf(this.part.name, 'actions', this.name), { headers, body, isStream: this.isStream, isOpen }), pythonOf(this.part.name, lines, deadline, isOpen)];
  }
}
