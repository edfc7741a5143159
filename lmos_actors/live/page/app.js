// The page of a node: which view is open, which the address keeps, and what is announced to those who do not see it.

const APART = new Set(['tree', 'find', 'top', 'agent', 'agents', 'flow', 'rights', 'groups', 'logs']);
const STARTS = ['network', 'groups', 'tree', 'agents', 'approvals']; // else the first view that there is
const OF_RUNS = ['network', 'series', 'run', 'flow', 'tree', 'top', 'crashes', 'dead letters'];
const MADE = { tree: TreeView, top: TopView, flow: FlowView, crashes: CrashView, approvals: ApprovalView, groups: GroupsView, chats: ChatView, network: NetworkView, series: SeriesView, run: StoryView };
const LABELS = { tree: 'Agents', agents: 'Agents', top: 'Busiest', flow: 'Messages', network: 'Network', series: 'Series', run: 'Story' };
const SAID_EVERY = 4_000; // milliseconds between two announcements
const SPARKS = 60;

const labelOf = (name) => LABELS[name] || NAMES[name] || words(name);

class Page {
  constructor() {
    this.rates = new Rates();
    this.views = new Map();
    this.shown = null;
    this.started = null;
    this.runs = null; // of a page that watches runs
    this.ofRun = null;
    this.lives = null;
    this.sparks = [];
    this.wire = new Wire({ link: (state) => this.linked(state), hello: (hello) => this.greeted(hello), login: (session) => this.login(session), tick: () => {} });
    nodeNow = () => this.wire.now();
    this.panel = new Panel(this);
    this.title = h('h1', {}, location.host);
    this.about = h('p', { class: 'quiet about' });
    this.totals = h('dl', { class: 'totals' });
    this.dot = h('span', { class: 'link connecting', role: 'img', 'aria-label': 'connecting' });
    this.who = h('span', { class: 'who', hidden: true });
    this.notice = h('div', { class: 'notice offline', role: 'region', 'aria-label': 'Connection', hidden: true });
    this.tabs = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Views of this node', onkeydown: (event) => this.step(event) });
    this.view = h('div', { role: 'tabpanel', id: 'view', class: 'view' });
    this.main = h('main', { class: 'work', id: 'main' }, this.view, this.panel.element);
    this.status = h('p', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
    this.alert = h('p', { class: 'unseen', role: 'alert' });
    this.spark = svg('svg', { class: 'spark', viewBox: `0 0 ${SPARKS - 1} 24`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('path', { class: 'area' }), svg('path', { class: 'line' }));
    this.element = h('div', { id: 'app', class: 'live' }, h('header', { class: 'banner' }, h('div', { class: 'place' }, h('div', { class: 'named' }, this.dot, this.title), this.about), this.totals, this.spark, this.who), this.notice, h('nav', { class: 'views', 'aria-label': 'Views' }, this.tabs), this.main, this.status, this.alert);
    addEventListener('hashchange', () => this.show());
    addEventListener('keydown', (event) => this.key(event));
    this.beat = setInterval(() => this.second(), 1000);
  }

  // ---- what stays when the page is loaded again, in this tab alone

  kept(name, otherwise) {
    try { return JSON.parse(sessionStorage.getItem(`lmos-actors ${name}`)) ?? otherwise; } catch (broken) { return otherwise; }
  }

  keep(name, value) {
    try { sessionStorage.setItem(`lmos-actors ${name}`, JSON.stringify(value)); } catch (full) { /* it is not kept then */ }
  }

  // ---- the connection

  linked(state) {
    const words = { open: 'connected', connecting: 'connecting', waiting: 'not connected' }[state];
    this.dot.className = `link ${state}`;
    this.dot.setAttribute('aria-label', words);
    this.dot.title = words;
    if (state === 'open') {
      if (this.lost) this.say('Connected again.');
      this.lost = false;
      this.notice.hidden = true;
    } else if (state === 'waiting') {
      if (!this.lost) this.warn('The connection to the node is lost. What is shown is as it was.');
      this.lost = true;
      this.notice.hidden = false;
      this.offline();
    }
    document.documentElement.dataset.link = state;
  }

  offline() {
    const left = Math.max(0, Math.ceil((this.wire.due - Date.now()) / 1000));
    this.notice.replaceChildren(h('strong', {}, this.runs ? 'The command that runs it does not answer: it may have ended.' : 'The node does not answer.'), ` What is shown is as it was. ${left ? `Trying again in ${left} s. ` : 'Trying again… '}`, button('Try now', () => this.wire.connect()));
  }

  greeted(hello) {
    if (this.isOther(hello.software)) return;
    if (this.form) { this.form = null; this.main.replaceChildren(...(this.runs ? [this.runs.aside] : []), this.view, this.panel.element); this.tabs.hidden = false; }
    if (this.started !== null && hello.started !== this.started) {
      this.rates.clear();
      this.lives = null;
      this.say('The node was started anew.');
    }
    this.started = hello.started;
    this.hello = hello;
    if (hello.kind === 'runs') this.ofRuns();
    this.named(hello.node.replace(/^\w+:\/\//, ''));
    this.who.hidden = !hello.viewer;
    this.who.replaceChildren(h('bdi', {}, hello.viewer), ' ', h('span', { class: 'quiet' }, hello.rights.includes('operate') ? '' : hello.rights.includes('inspect') ? 'may look' : ''), ' ', button('Log out', () => this.logOut()));
    this.second();
    if (this.runs) this.runs.begin();
    this.show(true);
    // after the rows, so that these come first
    if (!this.runs && hello.views.includes('tree')) this.wire.look('sums', 'tree', { open: [], from: 0, rows: 1 }, (state) => this.summed(state));
    if (hello.views.includes('approvals')) this.wire.look('asked', 'approvals', { rows: 0 }, (state) => { this.questions = state.waiting || 0; this.drawTabs(this.chosen); });
    if (this.panel.path !== null) this.panel.begin();
    document.documentElement.dataset.ready = 'yes';
  }

  named(name, part = '') {
    this.title.replaceChildren(isolated(name), part ? h('span', { class: 'quiet' }, ' ', isolated(part)) : '');
    document.title = legible(`${name}${part ? ` ${part}` : ''} · lmos-actors`);
  }

  // This page watches runs, not a node.
  ofRuns() {
    if (this.runs) return;
    this.runs = new Runs(this);
    isVirtual = true;
    this.element.classList.add('watching');
    this.tabs.setAttribute('aria-label', 'Views of this run');
    this.notice.after(this.runs.bar);
    this.view.before(this.runs.aside);
    addEventListener('keydown', (event) => this.runs.key(event));
    drawAll();
  }

  // The clock for rates: virtual time, if runs are watched.
  time() { return this.runs ? this.runs.now() : this.wire.time; }

  now() { return this.runs ? this.runs.now() : this.wire.now(); }

  // A page whose version is not that of the node is loaded again, once; if that does not help, it says so.
  isOther(software) {
    if (software === document.documentElement.dataset.software) return false;
    if (this.kept('loaded for', '') !== software) {
      this.keep('loaded for', software);
      this.wire.close();
      location.reload();
      return true;
    }
    this.notice.hidden = false;
    this.notice.replaceChildren(`This page is of ${document.documentElement.dataset.software}, and the node is ${software}. `, button('Load it again', () => location.reload()));
    return false;
  }

  login(session) {
    if (this.started !== null) { // somebody else may log in: nothing of what was seen stays in the page
      this.forget();
      return;
    }
    this.linked('open');
    this.notice.hidden = true;
    this.tabs.hidden = true;
    this.who.hidden = true;
    this.totals.replaceChildren();
    this.panel.close();
    this.wire.hello = null;
    this.form = loginForm(session, () => this.wire.connect());
    this.main.replaceChildren(this.form);
    const first = this.form.querySelector('input') || this.form.querySelector('button');
    if (first) first.focus();
    document.documentElement.dataset.ready = 'login';
  }

  async logOut() {
    this.wire.close();
    await asked('DELETE').catch(() => null);
    this.forget();
  }

  // Begins anew, without anything that was seen, and without the conversation that was open.
  forget() {
    this.wire.close();
    try { sessionStorage.clear(); } catch (off) { /* nothing was kept */ }
    location.reload();
  }

  // ---- sums

  summed(state) {
    const root = state.rows && state.rows[''];
    if (!root) return;
    const below = root.below;
    if (!below) { this.totals.replaceChildren(h('div', {}, h('dt', {}, 'Agents'), h('dd', {}, 'counting…'))); return; }
    this.rates.note('the whole node', below.handled, this.wire.time);
    const again = this.lives === null ? 0 : below.restarts - this.lives;
    if (again > 0) this.say(`${many(again, 'restart')}${below.down ? `, ${below.down.toLocaleString('en')} down` : ''}.`, true);
    this.lives = below.restarts;
    this.below = below;
    this.tiles();
  }

  tiles() {
    const { below } = this, rate = this.runs ? null : this.rates.of('the whole node', this.wire.now());
    const all = this.runs ? this.runs.tiles() : [['Agents', below.agents.toLocaleString('en')], ['Handled a second', rate === null ? '–' : short(rate)], ['Waiting', short(below.waiting), below.waiting ? 'some' : ''], ['Restarts', short(below.restarts)], ['Down', short(below.down), below.down ? 'bad' : '']];
    if (this.totals.children.length !== all.length) this.totals.replaceChildren(...all.map(([word]) => h('div', {}, h('dt', {}, word), h('dd', {}, ''))));
    all.forEach(([, text, style], n) => { const dd = this.totals.children[n].lastChild; put(dd, text); dd.className = style || ''; });
  }

  second() {
    if (this.lost && !this.notice.hidden) this.offline();
    if (!this.hello) return;
    if (this.runs) { this.secondOfRuns(); return; }
    if (!this.lost) goOn(this.main);
    const lives = Date.now() / 1000 - this.hello.started;
    put(this.about, `${this.hello.software} · up ${seconds(Math.max(0, Math.round(lives < 60 ? lives : lives - lives % 60))).replace(/ 00s$/, '')}`);
    if (!this.below || this.lost) return;
    this.tiles();
    this.sparked(this.rates.of('the whole node', this.wire.now()) || 0);
  }

  secondOfRuns() {
    const grown = this.runs.second();
    put(this.about, `${this.hello.software}${grown === null ? '' : ` · ${short(grown)} log records a second`}`);
    if (grown === null || this.lost) return;
    this.tiles();
    this.sparked(grown);
  }

  // The little curve of the last minute.
  sparked(value) {
    this.sparks.push(value);
    if (this.sparks.length > SPARKS) this.sparks.shift();
    const most = Math.max(...this.sparks, 1), left = SPARKS - this.sparks.length;
    const points = this.sparks.map((one, n) => `${left + n} ${(22 - 20 * one / most).toFixed(1)}`).join('L');
    this.spark.firstChild.setAttribute('d', this.sparks.length > 1 ? `M${left} 24L${points}L${SPARKS - 1} 24Z` : '');
    this.spark.lastChild.setAttribute('d', this.sparks.length > 1 ? `M${points}` : '');
  }

  // ---- views

  where() {
    const words = new URLSearchParams(location.hash.slice(1)), names = this.names(), view = words.get('view');
    return { view: names.includes(view) ? view : names.find((name) => STARTS.includes(name)) || names[0], agent: words.get('agent'), run: words.get('run') };
  }

  names() {
    const views = this.hello ? this.hello.views : [];
    if (this.runs) return OF_RUNS.filter((name) => views.includes(name));
    const known = Object.keys(NAMES), rank = (name) => (known.includes(name) ? known.indexOf(name) : known.length);
    return [...['groups', 'tree', 'agents', 'top', 'flow'].filter((name) => views.includes(name)), ...views.filter((name) => !APART.has(name)).sort((one, other) => rank(one) - rank(other))];
  }

  go(change) {
    const { view, agent, run } = { ...this.where(), ...change }, words = new URLSearchParams();
    words.set('view', view);
    if (agent !== null && agent !== undefined) words.set('agent', agent);
    if (run !== null && run !== undefined) words.set('run', run);
    if (location.hash.slice(1) !== words.toString()) history.pushState(null, '', `#${words}`);
    this.show();
  }

  made(name) {
    if (!this.views.has(name)) this.views.set(name, Object.hasOwn(MADE, name) ? new MADE[name](this) : new ListView(this, name));
    return this.views.get(name);
  }

  show(again = false) {
    if (!this.hello) return;
    const { view, agent, run } = this.where();
    if (this.runs && run !== this.ofRun) { this.ofRun = run; this.runs.begin(); again = true; if (this.panel.path !== null) this.panel.begin(); }
    this.drawTabs(view);
    this.chosen = view;
    if (again || this.shown !== view) {
      if (this.shown !== null && this.shown !== view) this.made(this.shown).end();
      const fresh = this.shown !== view;
      this.shown = view;
      this.view.className = `view view-${view}`;
      this.view.setAttribute('aria-labelledby', `tab-${view}`);
      if (fresh) this.view.replaceChildren(h('h2', { class: 'unseen' }, labelOf(view)), this.made(view).element);
      drawAll();
      this.made(view).begin();
    }
    if (agent === null) this.panel.close();
    else if (this.panel.path !== agent) { this.panel.open(agent, this.rowOf(agent), false); this.marked(agent); }
  }

  drawTabs(chosen) {
    const names = this.names();
    if (this.tabs.dataset.names !== names.join()) {
      this.tabs.dataset.names = names.join();
      this.tabs.replaceChildren(...names.map((name) => button(labelOf(name), () => this.go({ view: name }), { role: 'tab', id: `tab-${name}`, 'aria-controls': 'view' })));
    }
    names.forEach((name, n) => {
      if (name === 'approvals') put(this.tabs.children[n], this.questions ? `${labelOf(name)} (${this.questions.toLocaleString('en')})` : labelOf(name));
      this.tabs.children[n].setAttribute('aria-selected', String(name === chosen));
      this.tabs.children[n].setAttribute('tabindex', name === chosen ? '0' : '-1');
      if (name === chosen && this.chosen !== chosen) this.tabs.children[n].scrollIntoView({ block: 'nearest', inline: 'nearest' });
    });
  }

  step(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const names = this.names(), at = names.indexOf(this.where().view);
    this.go({ view: names[(at + move + names.length) % names.length] });
    this.tabs.querySelector('[aria-selected=true]').focus();
    event.preventDefault();
  }

  key(event) {
    if (event.key === '/' && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && this.names().includes('tree') && !event.ctrlKey && !event.metaKey && !event.altKey) {
      this.go({ view: 'tree' });
      this.made('tree').words.focus();
      event.preventDefault();
    }
  }

  // ---- one agent

  rowOf(path) {
    for (const look of this.wire.looks.values()) if (look.state.rows && look.state.rows[path]) return look.state.rows[path];
    return null;
  }

  openAgent(path, row) {
    const again = this.panel.path === path;
    this.go({ agent: path });
    if (again) this.panel.title.focus({ preventScroll: true });
    else if (row === undefined || matchMedia('(max-width: 900px)').matches) this.panel.title.focus({ preventScroll: true });
    this.marked(path);
  }

  marked(path) {
    this.element.classList.toggle('with-panel', path !== null);
    for (const view of this.views.values()) if (view.pick) view.pick(path);
  }

  reveal(path) {
    if (matchMedia('(max-width: 900px)').matches) this.panel.close();
    this.go({ view: 'tree' });
    this.made('tree').reveal(path);
  }

  // Shows the messages of one place.
  follow(path) {
    if (matchMedia('(max-width: 900px)').matches) this.panel.close();
    this.made('flow').about(path);
    if (this.where().view === 'flow') this.made('flow').begin(); else this.go({ view: 'flow' });
  }

  // Opens the conversations with one agent.
  chat(path) {
    const view = this.made('chats');
    this.panel.close();
    this.go({ view: 'chats' });
    if (view.path !== path) view.choose(path);
    view.focus();
  }

  closed() {
    this.marked(null);
    if (this.where().agent !== null) this.go({ agent: null });
    if (this.shown !== null) this.made(this.shown).focus();
  }

  // ---- what is announced

  trouble(error) { this.warn(error.message); }

  // Announces something at once or, with `gathers`, at the next pause: a newer text replaces it until then.
  say(text, gathers = false) {
    const rest = SAID_EVERY - (Date.now() - (this.saidAt || 0));
    if (rest <= 0 || !gathers) { this.saidAt = Date.now(); put(this.status, text); return; }
    clearTimeout(this.saying);
    this.saying = setTimeout(() => this.say(text, true), rest + 10);
  }

  warn(text) { put(this.alert, text); }
}

const page = new Page();
document.getElementById('app').replaceWith(page.element);
drawAll();
page.wire.connect();
