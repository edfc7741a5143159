// The panel beside a view: all that the node shows of one agent.

const ORDER = ['about', 'statistics', 'state', 'mailbox', 'runs', 'crashes', 'contract', 'timers', 'links', 'monitors', 'groups', 'durable', 'children'];
const IN_HEAD = new Set(['kind', 'name', 'class', 'status', 'life', 'path', 'gone', 'strategy']);

class Panel {
  constructor(page) {
    this.page = page;
    this.path = null;
    this.title = h('h2', { tabindex: '-1', id: 'panel-title' });
    this.facts = h('p', { class: 'facts' });
    this.note = h('p', { class: 'notice', hidden: true });
    this.body = h('div', { class: 'sections' });
    this.reveal = button('Show in the tree', () => page.reveal(this.path));
    this.element = h('aside', { class: 'panel', 'aria-labelledby': 'panel-title', hidden: true, onkeydown: (event) => { if (event.key === 'Escape') { this.close(); event.stopPropagation(); } } },
      h('div', { class: 'panelhead' }, this.title, button('×', () => this.close(), { class: 'close', 'aria-label': 'Close the panel' })), this.facts, h('p', { class: 'tools' }, this.reveal), this.note, this.body);
  }

  open(path, row, focus) {
    this.path = path;
    this.row = row;
    this.element.hidden = false;
    this.element.scrollTop = 0;
    const cutAt = path.lastIndexOf('/');
    this.title.replaceChildren(h('bdi', {}, cutAt >= 0 ? h('span', { class: 'quiet' }, path.slice(0, cutAt + 1)) : null, path.slice(cutAt + 1) || 'root'));
    this.title.title = path;
    this.body.replaceChildren();
    this.note.hidden = true;
    this.sections = new Sections(this.body, ORDER, (other) => this.page.openAgent(other));
    this.reveal.hidden = path === '';
    this.head(row || {});
    this.begin();
    if (focus) this.title.focus({ preventScroll: true });
  }

  begin() {
    if (this.path === null) return;
    const { wire } = this.page, { row } = this;
    if (wire.hello && wire.hello.views.includes('agent') && !(row && row.kind === 'supervisor') && this.path !== '') {
      wire.look('agent', 'agent', { path: this.path }, (state, changed) => this.draw(state, changed), (error) => this.say(error.message));
    } else {
      wire.leave('agent');
      if (row) this.sections.draw(plainRow(row), plainRow(row), IN_HEAD);
    }
  }

  draw(state, changed) {
    this.head(state);
    this.sections.draw(state, changed, IN_HEAD);
    if (state.gone) this.say('This agent is gone.'); else this.note.hidden = true;
  }

  head(row) {
    this.facts.replaceChildren(...[
      row.status ? h('span', { class: `state ${statusClass(row.status)}` }, row.status) : null,
      row.class || row.strategy ? h('span', {}, isolated(row.class || words(row.strategy))) : null,
      row.life > 1 ? h('span', { class: 'quiet' }, many(row.life - 1, 'restart')) : null,
    ].filter(Boolean));
  }

  say(text) {
    this.note.hidden = false;
    put(this.note, text);
  }

  close() {
    if (this.path === null) return;
    this.path = null;
    this.element.hidden = true;
    this.page.wire.leave('agent');
    this.page.closed();
  }
}

// What a row of the tree shows, for places of which the node shows no more.
function plainRow(row) {
  const { below, waiting, handled, running, children } = row;
  const own = Object.fromEntries(Object.entries({ waiting, handled, running, children }).filter(([, value]) => value !== undefined));
  return { ...(Object.keys(own).length ? { statistics: own } : {}), ...(below ? { below } : {}) };
}
