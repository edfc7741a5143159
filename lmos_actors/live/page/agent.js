// The panel beside a view: everything that the node shows of one agent.

const ORDER = ['suspended', 'fields', 'mailbox', 'runs', 'crashes', 'statistics', 'behaviour', 'tasks', 'timers', 'links', 'monitors', 'groups', 'listeners', 'durable', 'children', 'pool', 'contract'];
const IN_HEAD = ['kind', 'name', 'class', 'module', 'status', 'state', 'life', 'path', 'held', 'private', 'running', 'strategy'];
const OWN = { crashes: drawCrashes, contract: drawContract, durable: drawDurable, fields: (value) => h('div', { class: 'fields' }, Object.entries(value).map(([name, text]) => h('div', {}, h('code', { class: 'field' }, isolated(name)), drawField(text)))) };

const drawField = (text) => (String(text).length > FOLDED || String(text).includes('\n') ? h('pre', { class: 'raw', tabindex: '0' }, String(text)) : h('code', {}, isolated(String(text))));

function drawCrashes(reports, open) {
  return reports.map((row) => { const line = crashLine(row); line.fill(row); return line.element; });
}

// What the store has of an agent. `at` is Unix time, and not by the clock of the node, as that of a timer is.
function drawDurable({ at, restored, kept, pending, ...more }, open) {
  const known = { ...(at === undefined ? {} : { time: at }), ...more }, heads = { time: 'Kept at', restored: 'Had a state when it started', kept: 'State is in the store', pending: 'Being kept now' };
  const all = { ...(restored === undefined ? {} : { restored }), ...(kept === undefined ? {} : { kept }), ...(pending === undefined ? {} : { pending }), ...known };
  return h('dl', { class: 'pairs' }, Object.entries(all).map(([name, value]) => h('div', {}, h('dt', {}, heads[name] || words(name)), h('dd', {}, drawValue(name, value, open, 1)))));
}

// The actions, properties and events of a description, each on a line, as in code.
function drawContract({ description, actions, properties, events }) {
  const line = (sign, name, one) => h('li', {}, h('code', {}, isolated(sign)), one.description && !one.description.startsWith(OWN_WORDS) ? h('span', { class: 'quiet' }, isolated(` ${one.description}`)) : null);
  const part = (title, all, sign) => (all && Object.keys(all).length ? [h('h4', {}, title), h('ul', { class: 'contract' }, Object.entries(all).map(([name, one]) => line(sign(name, one), name, one)))] : null);
  return [description ? h('p', {}, isolated(description)) : null,
    part('Actions', actions, (name, one) => `${name}(${takes(one.input)})${one.output ? ` → ${schemaWords(one.output)}` : ''}`),
    part('Properties', properties, (name, one) => `${name}: ${schemaWords(one)}${one.readOnly ? ', read only' : one.writeOnly ? ', write only' : ''}`),
    part('Events', events, (name, one) => `${name}${one.data ? `: ${schemaWords(one.data)}` : ''}`)];
}

function takes(input) {
  if (!input) return '';
  if (!input.properties) return schemaWords(input);
  const needed = new Set(input.required || []);
  return Object.entries(input.properties).map(([name, one]) => `${name}${needed.has(name) ? '' : '?'}: ${schemaWords(one)}`).join(', ');
}

// The bounds of a number in words: 1 to 5, above 0.
function bounds({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }) {
  if (minimum !== undefined && maximum !== undefined) return ` ${minimum} to ${maximum}`;
  const words = [['from', minimum], ['above', exclusiveMinimum], ['to', maximum], ['below', exclusiveMaximum]];
  return words.filter(([, one]) => one !== undefined).map(([word, one]) => ` ${word} ${one}`).join('');
}

function schemaWords(schema, depth = 0) {
  if (!schema || typeof schema !== 'object') return 'anything';
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return schema.enum.slice(0, 8).map((one) => JSON.stringify(one)).join(' | ');
  const any = schema.oneOf || schema.anyOf;
  if (Array.isArray(any) && depth < 4) return any.map((one) => schemaWords(one, depth + 1)).join(' | ');
  if (schema.type === 'array') return depth < 4 && schema.items ? `[${[schema.items].flat().map((one) => schemaWords(one, depth + 1)).join(', ')}]` : 'array';
  if (schema.type === 'object') return depth < 3 && schema.properties ? `{${takes(schema)}}` : 'object';
  if (schema.contentEncoding === 'base64') return 'bytes as base64';
  return schema.format || `${schema.type || schema.title || 'anything'}${bounds(schema)}`;
}

class Panel {
  constructor(page) {
    this.page = page;
    this.path = null;
    this.title = h('h2', { tabindex: '-1', id: 'panel-title' });
    this.facts = h('p', { class: 'facts' });
    this.note = h('p', { class: 'notice', hidden: true });
    this.body = h('div', { class: 'sections' });
    this.use = new UsePart(page);
    this.reveal = button('Show in the tree', () => page.reveal(this.path));
    this.follow = button('Its messages', () => page.follow(this.path));
    this.tools = h('p', { class: 'tools' }, this.reveal, this.follow);
    this.element = h('aside', { class: 'panel', 'aria-labelledby': 'panel-title', hidden: true, onkeydown: (event) => { if (event.key === 'Escape') { this.close(); event.stopPropagation(); } } },
      h('div', { class: 'panelhead' }, this.title, button('×', () => this.close(), { class: 'close', 'aria-label': 'Close the panel' })), this.facts, this.tools, this.note, this.use.element, this.body);
  }

  open(path, row, focus) {
    this.path = path;
    this.row = row;
    this.element.hidden = false;
    this.element.scrollTop = 0;
    const cutAt = path.lastIndexOf('/');
    this.title.replaceChildren(h('bdi', {}, cutAt >= 0 ? h('span', { class: 'quiet' }, path.slice(0, cutAt + 1)) : null, path.slice(cutAt + 1) || 'root'));
    this.title.title = legible(path);
    this.body.replaceChildren();
    this.note.hidden = true;
    this.told = '';
    this.buttons('');
    this.sections = new Sections(this.body, ORDER, (other) => this.page.openAgent(other), undefined, OWN);
    this.reveal.hidden = path === '' || !this.page.names().includes('tree');
    this.follow.hidden = !(this.page.hello && this.page.hello.views.includes('flow'));
    this.head(row || {});
    this.begin();
    if (focus) this.title.focus({ preventScroll: true });
  }

  begin() {
    if (this.path === null) return;
    const { wire } = this.page, { row } = this;
    this.use.show(this.path);
    if (wire.hello && wire.hello.views.includes('agent')) {
      wire.look('agent', 'agent', { path: this.path }, (state, changed) => this.draw(state, changed), (error) => this.unseen(error));
    } else {
      wire.leave('agent');
      if (row) this.sections.draw(plainRow(row), plainRow(row));
      else this.say('What is inside it is not shown to you.');
    }
  }

  draw(state, changed) {
    this.head(state);
    const empty = Object.keys(state).filter((name) => typeof state[name] === 'object' && !Object.keys(state[name]).length);
    const [kept, fresh] = state.kind === 'supervisor' ? [asOne(state), asOne(changed)] : [state, changed];
    this.sections.draw(kept, fresh, new Set([...IN_HEAD, ...empty]));
    if (state.kind === 'gone') this.say(this.told || 'There is no agent at this path.'); else this.say(this.told);
  }

  // What is shown to a viewer who may not look into the agent, but may, for example, stop it.
  unseen(error) {
    this.say(this.told || error.message);
    if (this.row) this.sections.draw(plainRow(this.row), plainRow(this.row));
  }

  // Offers the operations that this viewer may carry out here now, as the node says.
  offer(operations) {
    const isStopped = operations.includes('restart') && !operations.includes('stop');
    this.buttons(operations.map((what) => (what === 'restart' && isStopped ? 'start' : what)).join());
  }

  buttons(may) {
    if (this.shown === may && this.tools.dataset.path === this.path) return;
    this.shown = may;
    this.tools.dataset.path = this.path;
    const had = this.tools.contains(document.activeElement);
    this.tools.replaceChildren(this.reveal, this.follow, ...operationButtons(this.page, this.path, may.split(','), (text, isWrong) => this.outcome(text, isWrong)));
    if (had) this.title.focus({ preventScroll: true });
  }

  outcome(text, isWrong) {
    this.told = text;
    this.note.classList.toggle('bad', isWrong);
    this.say(text);
    if (isWrong) this.page.warn(text); else this.page.say(text);
  }

  head(row) {
    if (this.path === '' && row.name) this.title.replaceChildren(isolated(row.name));
    this.facts.replaceChildren(...[
      row.status ? h('span', { class: `state ${statusClass(row.status)}` }, row.status) : null,
      row.state && row.state !== row.status ? h('span', { class: `state ${statusClass(row.state)}` }, row.state) : null,
      row.private ? h('span', { class: 'quiet', title: 'It is for this node alone: no peer reaches it.' }, 'private') : null,
      row.held ? h('span', { class: 'state held' }, 'held') : null,
      row.class || row.strategy ? h('span', {}, isolated(row.class || words(row.strategy))) : null,
      row.running ? h('span', { class: 'quiet' }, `${row.running} running`) : null,
      row.life > 1 ? h('span', { class: 'quiet' }, many(row.life - 1, 'restart')) : null,
    ].filter(Boolean));
  }

  say(text) {
    this.note.hidden = !text;
    put(this.note, text);
  }

  close() {
    if (this.path === null) return;
    this.path = null;
    this.element.hidden = true;
    this.page.wire.leave('agent');
    this.use.close();
    this.page.closed();
  }
}

// The numbers of a supervisor in one section.
function asOne(state) {
  const { pool, contract, ...rest } = state;
  return { supervision: Object.fromEntries(Object.entries(rest).filter(([name]) => !IN_HEAD.includes(name))), ...(pool ? { pool } : {}), ...(contract ? { contract } : {}) };
}

// What a row of the tree shows, for places about which the node shows no more.
function plainRow(row) {
  const { below, waiting, handled, running, children } = row;
  const own = Object.fromEntries(Object.entries({ waiting, handled, running, children }).filter(([, value]) => value !== undefined));
  return { ...(Object.keys(own).length ? { statistics: own } : {}), ...(below ? { below } : {}) };
}
