// Views that are lists, as the node sends them: what waits for what, dead letters, crashes, connections, and what is to come.

const NAMES = { waiting: 'Waiting', dead_letters: 'Dead letters', crashes: 'Crashes', connections: 'Connections', directories: 'Directories', relay: 'Relay', omnia: 'Omnia', groups: 'Groups', approvals: 'Approvals', audit: 'Audit' };
const ABOUT = {
  waiting: 'Who waits for whom. Agents in a circle wait for each other, and none of them goes on before a deadline.',
  dead_letters: 'Messages that reached no agent: why, and where.',
  crashes: 'The last crashes, as the log has them.',
};
const EMPTY = { waiting: 'No agent waits for another.', dead_letters: 'Every message has reached its agent.', crashes: 'Nothing has crashed.' };
const FIRST = ['circles', 'edges', 'letters', 'reports', 'rows'];

class ListView {
  constructor(page, name) {
    Object.assign(this, { page, name });
    this.body = h('div', { class: 'sections' });
    this.note = h('p', { class: 'quiet' }, 'Asking…');
    this.sections = new Sections(this.body, FIRST, (path) => page.openAgent(path), (key, content) => this.section(key, content));
    this.element = h('div', { class: 'listview' }, ABOUT[name] ? h('p', { class: 'about quiet' }, ABOUT[name]) : null, this.note, this.body);
  }

  section(key, content) {
    const plain = ['letters', 'reports', 'rows', 'edges', this.name].includes(key);
    return h('section', { class: key === 'circles' ? 'notice bad' : null }, plain ? null : h('h3', {}, words(key)), content);
  }

  begin() { this.page.wire.look('list', this.name, {}, (state, changed) => this.draw(state, changed), (error) => { this.note.hidden = false; put(this.note, error.message); }); }

  end() { this.page.wire.leave('list'); }

  focus() { this.element.focus(); }

  draw(state, changed) {
    const shown = rowsAsList(state), none = Object.values(shown).every((value) => typeof value !== 'object' || !Object.keys(value).length);
    const without = new Set(Object.keys(shown).filter((key) => Array.isArray(shown[key]) && !shown[key].length));
    this.sections.draw(none ? {} : shown, 'rows' in changed || 'order' in changed ? { ...changed, rows: 1 } : changed, without);
    this.note.hidden = !none;
    put(this.note, EMPTY[this.name] || 'There is nothing.');
  }
}

// Rows by their paths, in order, as a list.
function rowsAsList(state) {
  if (!state.order || !state.rows) return state;
  const { order, rows, ...rest } = state;
  return { rows: order.map((path) => ({ path, ...rows[path] })), ...rest };
}
