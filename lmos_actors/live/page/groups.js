// The groups of a deployment: their processes with links to their pages, the lines that they print, and operations on them.

const OF_GROUPS = {
  restart: ['All its processes drain and are started again, at once: meanwhile none is ready.', 'It drains, and is started again.'],
  start: ['Its processes were stopped, and are started again.', 'It was stopped, and is started again.'],
  roll: ['Its processes are replaced one after another, as its update says: the next one follows once the new one is ready.'],
  stop: ['All its processes drain and end. They stay ended until the group is restarted.', 'It drains and ends, and stays ended until it is restarted.'],
};
const STATES = { ready: 'running', starting: 'starting', waiting: 'starting', draining: 'stopping', restarting: 'restarting', stopped: 'stopped', failed: 'failed' };
const LOOSE = 40; // pixels from the end of the lines within which they are followed

class GroupsView {
  constructor(page) {
    Object.assign(this, { page, lines: new Map(), rows: new Map(), of: '' });
    this.about = h('p', { class: 'about quiet' }, 'Asking…');
    this.doing = h('p', { class: 'notice doing', hidden: true });
    this.told = h('p', { class: 'quiet told', role: 'status' });
    this.body = h('tbody');
    this.table = h('div', { class: 'wide processes', tabindex: '0', role: 'group', 'aria-label': 'Groups and their processes' },
      h('table', {}, h('thead', {}, h('tr', {}, ['Process', 'State', 'Since', 'PID', 'Starts', 'Restarts', 'Address', 'Tools'].map((word, n) => h('th', { scope: 'col', class: `${word.toLowerCase()}${n > 2 && n < 6 ? ' number' : ''}` }, n < 7 ? word : h('span', { class: 'unseen' }, 'Operations'))))), this.body));
    this.whose = h('h3', { id: 'whose' });
    this.all = button('All processes', () => this.choose(''), { class: 'copy' });
    this.printed = h('div', { class: 'printed raw', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-labelledby': 'whose' });
    this.log = h('section', { class: 'lines' }, h('div', { class: 'linehead' }, this.whose, this.all), this.printed);
    this.element = h('div', { class: 'groupsview' }, h('div', {}, this.about, this.doing, this.told), this.table, this.log);
  }

  begin() {
    const { wire } = this.page;
    clearInterval(this.beat);
    this.beat = setInterval(() => this.ages(), 1000);
    wire.look('list', 'groups', {}, (state) => this.draw(state), (error) => put(this.about, error.message));
    this.choose(this.of);
  }

  end() {
    clearInterval(this.beat);
    this.page.wire.leave('list');
    this.page.wire.leave('lines');
  }

  focus() { this.table.focus({ preventScroll: true }); }

  // ---- groups and processes

  draw(state) {
    if (!state.order) { put(this.about, 'Nothing was launched here.'); return; }
    const left = state.processes - state.order.filter((name) => state.rows[name].kind === 'process').length;
    put(this.about, `${state.name} · launcher ${state.launcher_pid} · since ${new Date(state.since).toLocaleString('en', { hour12: false })}${left > 0 ? ` · ${many(left, 'process').replace(/ss$/, 'sses')} more` : ''}${state.lines_lost ? ` · ${many(state.lines_lost, 'line')} in no log${state.why_lost ? `: ${state.why_lost}` : ''}` : ''}`);
    if (this.page.title.firstChild.textContent !== state.name) this.page.named(state.name, location.host);
    this.doing.hidden = !state.doing;
    put(this.doing, state.doing ? `Under way: ${state.doing}` : '');
    for (const [name, row] of this.rows) if (!state.order.includes(name)) { row.element.remove(); this.rows.delete(name); }
    for (const name of state.order) {
      let row = this.rows.get(name);
      if (!row) this.rows.set(name, row = this.line(name, state.rows[name].kind));
      row.fill(state.rows[name], state.rows[name.slice(0, name.lastIndexOf('/'))]);
    }
    inOrder(this.body, state.order.map((name) => this.rows.get(name).element));
    this.marked();
  }

  line(name, kind) {
    const isGroup = kind === 'group', cells = Object.fromEntries(['state', 'since', 'pid', 'starts', 'restarts', 'address', 'tools'].map((key) => [key, h('td', { class: `${key}${['pid', 'starts', 'restarts'].includes(key) ? ' number' : ''}` })]));
    const choose = button(isolated(isGroup ? name : name.slice(name.lastIndexOf('/') + 1)), () => this.choose(name), { class: 'plain', 'aria-label': `${isGroup ? name : name.slice(name.lastIndexOf('/') + 1)}: lines of ${name}`, title: name });
    const element = h('tr', { class: kind, 'data-name': name }, h('th', { scope: 'row' }, choose), Object.values(cells));
    const row = { element, choose, began: null, since: cells.since, shown: '' };
    row.fill = (fresh, group) => {
      const text = JSON.stringify([fresh, group && group.version]);
      if (text === row.shown) return; // an unchanged row is not drawn again: a button may be pressed just now
      row.shown = text;
      if (isGroup) {
        const whole = fresh.ready >= fresh.wanted;
        cells.state.replaceChildren(h('span', { class: `state ${whole ? 'running' : 'starting'}` }, `${fresh.ready} of ${fresh.wanted} ready`), fresh.rollout ? h('div', { class: 'step' }, `${words(fresh.rollout.step).toLowerCase()} ${fresh.rollout.processes.join(', ')}`) : '');
        put(cells.restarts, fresh.restarts.toLocaleString('en'));
      } else {
        const isOld = group && group.version && fresh.version && group.version !== fresh.version;
        cells.state.replaceChildren(h('span', { class: `state ${STATES[fresh.state] || 'unknown'}` }, fresh.state), isOld ? h('span', { class: 'state starting', title: `version ${fresh.version}, and ${group.version} from now on` }, 'older version') : '', fresh.why ? h('div', { class: 'why' }, isolated(fresh.state === 'ready' ? `before, it ${fresh.why}` : `it ${fresh.why}`)) : '', fresh.degraded && fresh.degraded.length ? h('div', { class: 'why' }, isolated(`down: ${fresh.degraded.join(', ')}`)) : '');
        row.began = Date.parse(fresh.since);
        put(cells.pid, fresh.pid ? String(fresh.pid) : '');
        put(cells.starts, fresh.generation.toLocaleString('en'));
        put(cells.restarts, fresh.restarts.toLocaleString('en'));
        cells.restarts.classList.toggle('some', fresh.restarts > 0);
        cells.address.replaceChildren(...addresses(name, fresh));
      }
      const may = fresh.operations || [], stopped = may.includes('restart') && !may.includes('stop'), had = cells.tools.contains(document.activeElement) && document.activeElement.dataset.what;
      cells.tools.replaceChildren(...may.map((what) => (what === 'restart' && stopped ? 'start' : what)).filter((what) => OF_GROUPS[what])
        .map((what) => button(OPERATIONS[what].label, () => this.operate(what, name, isGroup), { class: 'copy', 'data-what': what, 'aria-label': `${OPERATIONS[what].label} ${name}` })));
      const again = had && cells.tools.querySelector(`[data-what=${had}]`);
      if (again) again.focus({ preventScroll: true });
      this.age(row);
    };
    return row;
  }

  operate(what, name, isGroup) {
    operate(this.page, what, `groups/${name}`, (text, isBad) => { put(this.told, text); this.told.classList.toggle('problem', Boolean(isBad)); if (isBad) this.page.warn(text); }, { name, about: OF_GROUPS[what][isGroup ? 0 : 1] });
  }

  age(row) { if (row.began) put(row.since, seconds(Math.max(0, Math.round((Date.now() - row.began) / 1000)))); }

  ages() { for (const row of this.rows.values()) this.age(row); }

  // ---- what they print

  // Shows the lines of a process, of a group, or of all.
  choose(name) {
    const { wire } = this.page;
    this.of = name;
    this.marked();
    put(this.whose, name ? `Printed by ${name}` : 'Printed by all processes');
    this.all.hidden = !name;
    this.lines.clear();
    this.printed.replaceChildren();
    this.follows = true;
    if (!wire.hello || !wire.hello.views.includes('logs')) {
      this.printed.replaceChildren(h('p', { class: 'quiet' }, wire.hello && !wire.hello.viewer ? 'What processes print is shown to people of this machine where up was started with --allow-operations, or to those who log in.' : 'What processes print takes the right inspect.'));
      return;
    }
    wire.leave('lines');
    wire.look('lines', 'logs', { process: name, rows: 200 }, (state) => this.print(state), (error) => put(this.whose, error.message));
  }

  marked() { for (const [name, row] of this.rows) row.choose.setAttribute('aria-pressed', String(name === this.of)); }

  print(state) {
    const { printed } = this, fresh = Object.keys(state.rows || {}).map(Number).sort((one, other) => one - other);
    this.follows = printed.scrollTop + printed.clientHeight >= printed.scrollHeight - LOOSE || !this.lines.size;
    for (const [number, line] of this.lines) if (!state.rows[number]) { line.remove(); this.lines.delete(number); }
    for (const number of fresh) {
      if (this.lines.has(number)) continue;
      const row = state.rows[number], line = h('div', { class: 'oneline' }, h('span', { class: 'when' }, clock(row.time)), this.of.includes('/') ? '' : h('span', { class: 'from' }, isolated(row.process)), h('bdi', { class: 'text' }, row.text));
      this.lines.set(number, line);
      printed.append(line);
    }
    if (!this.lines.size) printed.replaceChildren(h('p', { class: 'quiet' }, 'Nothing yet but its addresses, which stand above.'));
    else if (printed.firstChild.tagName === 'P') printed.firstChild.remove();
    if (this.follows) printed.scrollTop = printed.scrollHeight;
  }
}

// Links to the page of a process and to the questions of its agents there; without a page, where the process listens.
function addresses(name, row) {
  const place = /^https?:\/\/[^/?#]+\/$/.test(row.page || '') ? row.page : null;
  if (!place) return [h('span', { class: 'quiet' }, isolated((row.urls || []).join(' ')))];
  const away = (address, text, label) => h('a', { href: address, target: '_blank', rel: 'noopener noreferrer', 'aria-label': `${text}: ${label}` }, text);
  return [away(place, place.replace(/^\w+:\/\/|\/$/g, ''), `the page of ${name}`), ' ', away(`${place}#view=approvals`, 'approvals', `what ${name} asks people`)];
}
