// Views that are lists, as the node sends them: waits, dead letters, crashes, connections, and views of later versions.

const NAMES = { chats: 'Chat', crashes: 'Crashes', 'dead letters': 'Dead letters', waiting: 'Waiting', connections: 'Connections', directories: 'Directories', relay: 'Relay', omnia: 'Omnia', groups: 'Groups', approvals: 'Approvals', audit: 'Audit' };
const ABOUT = {
  agents: 'The agents that you may look into or operate.',
  waiting: 'Who waits for whom. Agents in a circle wait for each other, and none of them goes on before a deadline.',
  'dead letters': 'Messages that reached no agent: why, and where.',
  crashes: 'The last crashes, as the log has them.',
};
const EMPTY = { audit: 'No operation has been asked for.', agents: 'There is none at this time.', waiting: 'No agent waits for another.', 'dead letters': 'Every message has reached its agent.', crashes: 'Nothing has crashed.' };
const FIRST = ['facts', 'circles', 'edges', 'letters', 'reports', 'rows'];

class ListView {
  constructor(page, name) {
    Object.assign(this, { page, name });
    this.body = h('div', { class: 'sections' });
    this.note = h('p', { class: 'quiet' }, 'Asking…');
    this.sections = new Sections(this.body, FIRST, (path) => page.openAgent(path), (key, content) => this.section(key, content));
    this.element = h('div', { class: 'listview' }, ABOUT[name] ? h('p', { class: 'about quiet' }, ABOUT[name]) : null, this.note, this.body);
  }

  section(key, content) {
    const plain = ['facts', 'letters', 'reports', 'rows', 'edges', this.name].includes(key);
    return h('section', { class: key === 'circles' ? 'notice bad' : null }, plain ? null : h('h3', {}, HEADS[key] || words(key)), content);
  }

  begin() { this.page.wire.look('list', this.name, {}, (state, changed) => this.draw(state, changed), refusedIn(this.note)); }

  end() { this.page.wire.leave('list'); }

  focus() { this.element.focus(); }

  draw(state, changed) {
    const { total, complete, ...all } = rowsAsList(state), facts = {}, shown = { facts };
    for (const [key, value] of Object.entries(all)) {
      if (isState(value) || Array.isArray(value)) { if (Object.keys(value).length) shown[key] = value; }
      else if (!key.endsWith('_total') || value > (all[key.slice(0, -6)] || []).length) facts[key] = value;
    }
    if (!Object.keys(facts).length) delete shown.facts;
    const none = !Object.keys(shown).length, last = shown.rows || shown.edges || [], cutOff = !none && total > last.length;
    this.sections.draw(shown, { ...changed, facts: 1, ...('rows' in changed || 'order' in changed ? { rows: 1 } : {}) });
    this.note.hidden = !none && !cutOff && complete !== false;
    put(this.note, none ? complete === false ? 'Looking for some…' : EMPTY[this.name] || 'There is nothing.' : complete === false ? `The first ${last.length.toLocaleString('en')} are shown.` : cutOff ? `${last.length.toLocaleString('en')} of ${total.toLocaleString('en')} are shown.` : '');
  }
}

const MOST_REPORTS = 10;

// Crash reports: one line each; unfolded ones are shown as in the log.
class CrashView {
  constructor(page) {
    this.page = page;
    this.unfolded = [];
    this.lines = new Map();
    this.note = h('p', { class: 'quiet' }, 'Asking…');
    this.list = h('div', { class: 'reports' });
    this.element = h('div', { class: 'listview' }, h('p', { class: 'about quiet' }, ABOUT.crashes), this.note, this.list);
  }

  begin() { this.page.wire.look('list', 'crashes', { open: this.unfolded.map(Number) }, (state) => this.draw(state), refusedIn(this.note)); }

  end() { this.page.wire.leave('list'); }

  focus() { this.element.focus(); }

  draw(state) {
    const order = state.order || [];
    for (const [number, line] of this.lines) if (!order.includes(number)) { line.element.remove(); this.lines.delete(number); }
    for (const number of order) {
      let line = this.lines.get(number);
      if (!line) this.lines.set(number, line = crashLine(state.rows[number], (path) => this.page.openAgent(path), (open) => this.toggled(number, open)));
      line.fill(state.rows[number]);
    }
    inOrder(this.list, order.map((number) => this.lines.get(number).element));
    this.note.hidden = order.length > 0 && !(state.total > order.length);
    put(this.note, order.length ? `The last ${order.length} of ${state.total.toLocaleString('en')}.` : EMPTY.crashes);
  }

  toggled(number, open) {
    if (this.unfolded.includes(number) === open) return;
    this.unfolded = this.unfolded.filter((one) => one !== number);
    if (open) this.unfolded.push(number);
    while (this.unfolded.length > MOST_REPORTS) { const oldest = this.lines.get(this.unfolded.shift()); if (oldest) oldest.element.open = false; }
    this.begin();
  }
}

function crashLine(row, open, toggled) {
  const text = h('pre', { class: 'raw', tabindex: '0' }, '…');
  const element = h('details', { class: 'crash', ontoggle: () => toggled && toggled(element.open) },
    h('summary', {}, h('span', { class: 'when' }, drawNumber('time', row.time)), ' ', h('strong', {}, isolated(row.agent)), h('span', { class: 'quiet' }, ` ${row.class}${row.life > 1 ? ` · life ${row.life}` : ''} `), h('span', { class: 'why' }, isolated(cut(row.reason, 300)))),
    h('p', { class: 'tools' }, open ? button('Show the agent', () => open(row.agent)) : null, h('code', {}, isolated(row.where || ''))), text);
  return { element, fill: (fresh) => { if (fresh.text !== undefined) put(text, cut(fresh.text, MOST_TEXT)); } };
}

// Rows by their paths, in order, as a list.
function rowsAsList(state) {
  if (!state.order || !state.rows) return state;
  const { order, rows, ...rest } = state;
  const named = order.every((name) => /^\d+$/.test(name) || ['path', 'agent', 'id'].some((key) => rows[name][key] !== undefined)); // by what stands in them
  return { rows: order.map((name) => (named ? { ...rows[name] } : { path: name, ...rows[name] })), ...rest };
}
