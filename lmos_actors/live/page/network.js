// The network of a run: its nodes, the links between them, what is cut, and messages on their way.
//
// The server sends the state four times a second. For each message it says when it was sent and when it is due. A
// message that takes longer than the eye needs is drawn where it is at that instant; a quicker one crosses its link in
// PULSE seconds, so that it is seen at all. Messages of which only the number is known cross it in the same way.

const CIRCLE = 0.6; // share of all possible links from which on nodes stand in a circle
const PULSE = 0.7, NEWS = 0.25; // seconds of real time
const MOST_TOKENS = 240, MOST_PAIRS = 700, WORDY = 10, MOST_SIGNS = 40, MOST_LISTED = 200;
const LOSSY = 0.05; // share of lost messages from which on a link stands out
const MOST_DOTS = 100; // agents that are drawn in a node
const BEFORE_CUT = 0.43; // share of a link that is cut up to which a message gets
const APART_BY = 0.22, SETTLED = 0.001;

const pairOf = (from, to) => (from < to ? `${from}\u0000${to}` : `${to}\u0000${from}`);

class NetworkView {
  constructor(page) {
    Object.assign(this, { page, picked: null, size: [0, 0], scale: 1, prefix: '', frame: soon(() => this.tick()), shown: null });
    this.clear();
    this.lines = svg('g', {});
    this.moving = svg('g', { class: 'moving', 'aria-hidden': 'true' });
    this.dots = svg('g', {});
    this.signs = svg('g', { 'aria-hidden': 'true' });
    this.picture = svg('svg', { class: 'network', role: 'group', 'aria-label': 'Network', onkeydown: (event) => this.key(event), onclick: (event) => this.clicked(event) }, this.lines, this.moving, this.signs, this.dots);
    this.caption = h('p', { class: 'caption', role: 'status' });
    this.legend = h('p', { class: 'legend' }, h('i', { class: 'key is-link' }), 'link ', h('i', { class: 'key is-cut' }), 'cut ', h('i', { class: 'key is-message' }), 'message ', h('i', { class: 'key is-lost' }, '✕'), 'lost');
    this.about = h('section', { class: 'picked', hidden: true, 'aria-label': 'The chosen node' });
    this.table = h('div', {});
    this.fold = h('details', { class: 'aslist', ontoggle: () => this.list() }, h('summary', {}, 'All links as a list'), this.table);
    this.stage = drawn(h('div', { class: 'stagebox' }, this.picture), () => this.resized());
    this.note = h('p', { class: 'notice', hidden: true });
    this.element = h('div', { class: 'networkview' }, h('h2', { class: 'heard' }, 'Network'), h('div', { class: 'headline' }, this.caption, this.legend), this.note, h('div', { class: 'scene' }, this.stage, this.about), this.fold);
  }

  clear() { Object.assign(this, { state: {}, nodes: new Map(), pairs: new Map(), tokens: new Set(), known: new Map(), counts: new Map(), laid: '', laidAt: 0, time: 0, isFirst: true }); }

  anew() {
    this.clear();
    for (const group of [this.lines, this.moving, this.dots, this.signs]) group.replaceChildren();
    this.pick(null);
  }

  begin() {
    this.counts.clear(); // messages that passed meanwhile are not shown as if they passed now
    this.isFirst = true;
    this.page.wire.look('network', 'network', {}, (state) => this.draw(state), refusedIn(this.note));
    this.frame();
  }

  end() { this.page.wire.leave('network'); }

  focus() { const one = this.dots.querySelector('[tabindex="0"]'); if (one) one.focus({ preventScroll: true }); }

  resized() {
    this.size = [this.stage.clientWidth, this.stage.clientHeight];
    this.scale = Math.min(1.9, Math.max(1, Math.min(...this.size) / 620)); // larger on large screens
    for (const node of this.nodes.values()) this.dressNode(node, (this.state.nodes || {})[node.name]);
    this.picture.setAttribute('width', this.size[0]);
    this.picture.setAttribute('height', this.size[1]);
    this.moved = true;
    this.frame();
  }

  // ---- what there is

  draw(state) {
    this.state = state;
    this.note.hidden = !state.gone;
    put(this.note, state.gone ? 'Of this run the network is not kept any more.' : '');
    const nodes = state.nodes || {}, links = Object.values(state.links || {});
    for (const name of Object.keys(nodes)) if (!this.nodes.has(name)) this.nodes.set(name, this.madeNode(name));
    for (const [name, node] of this.nodes) if (!Object.hasOwn(nodes, name)) { node.element.remove(); this.nodes.delete(name); }
    const pairs = new Map();
    for (const link of links) {
      if (!this.nodes.has(link.from) || !this.nodes.has(link.to)) continue;
      const key = pairOf(link.from, link.to), pair = pairs.get(key) || pairs.set(key, { ends: key.split('\u0000'), ways: [] }).get(key);
      pair.ways.push(link);
    }
    this.left = Math.max(0, pairs.size - MOST_PAIRS);
    const kept = this.left ? [...pairs].sort(([, one], [, other]) => weight(other) - weight(one)).slice(0, MOST_PAIRS) : [...pairs];
    const wanted = new Set(kept.map(([key]) => key));
    for (const [key, pair] of this.pairs) if (!wanted.has(key)) { pair.element.remove(); pair.sign.remove(); this.pairs.delete(key); }
    for (const [key, fresh] of kept) {
      const pair = this.pairs.get(key) || this.madePair(key, fresh.ends);
      pair.ways = fresh.ways;
    }
    this.news(links);
    this.layout();
    this.prefix = sharedPrefix([...this.nodes.keys()]);
    for (const node of this.nodes.values()) this.dressNode(node, nodes[node.name]);
    const few = this.isWordy, losses = new Set(links.map((link) => link.loss || 0));
    this.usual = this.pairs.size > 2 && losses.size === 1 ? [...losses][0] : 0; // said once, and not at each link
    let signs = 0;
    for (const pair of this.pairs.values()) signs += this.dressPair(pair, few, signs);
    this.words(links);
    this.list();
    this.moved = true;
    this.frame();
  }

  // Whether there is room for words at the links.
  get isWordy() { return this.pairs.size <= WORDY && this.size[0] > 80 * this.pairs.size ** 0.5 + 260; }

  madeNode(name) {
    const halo = svg('circle', { class: 'halo' }), body = svg('circle', { class: 'body' }), cross = svg('path', { class: 'cross' }), crowd_ = svg('g', { class: 'crowd' }), inner = svg('text', { class: 'inner', 'aria-hidden': 'true' }), label = svg('text', { class: 'name', 'aria-hidden': 'true' }), title = svg('title'), state = svg('text', { class: 'nodestate', 'aria-hidden': 'true' });
    const element = svg('g', { class: 'node', role: 'button', tabindex: '-1', 'aria-pressed': 'false' }, title, halo, body, crowd_, cross, inner, label, state);
    element.dataset.name = name;
    this.dots.append(element);
    return { name, element, halo, body, cross, inner, label, title, state, crowd: crowd_, x: null, y: null, to: [0, 0], heat: 0, radius: 18 };
  }

  madePair(key, ends) {
    const line = svg(ends[0] === ends[1] ? 'circle' : 'line', { class: 'line' }), hit = svg('title', {}), element = svg('g', { class: 'pair' }, hit, line), sign = svg('g', { class: 'sign' }), pair = { key, ends, ways: [], line, title: hit, element, sign, rate: 0 };
    this.lines.append(element);
    this.signs.append(sign);
    this.pairs.set(key, pair);
    return pair;
  }

  // What has been sent since the last news: each message that is known by itself, and the number of the others.
  news(links) {
    const { runs } = this.page, { run } = runs, before = this.time, still = STILL.matches;
    this.time = run ? run.time : 0;
    const fresh = new Map(), begun = performance.now() / 1000, seen = new Map(), speed = run && typeof run.speed === 'number' ? run.speed : Infinity;
    for (const message of this.state.under_way || []) {
      seen.set(message.id, true);
      if (this.known.has(message.id)) continue;
      const key = `${message.from}>${message.to}`;
      fresh.set(key, (fresh.get(key) || 0) + 1);
      if (still || this.tokens.size >= MOST_TOKENS) continue;
      const length = message.due === undefined ? Infinity : (message.due - message.sent) / speed, isPaused = run && run.paused;
      if (this.isFirst && length < PULSE && !isPaused) continue;
      const wait = before < this.time ? Math.min(Math.max((message.sent - before) / (this.time - before), 0), 1) * NEWS : 0;
      this.token({ from: message.from, to: message.to, message, exact: length >= PULSE || isPaused, begun: begun + wait });
    }
    this.known = seen;
    for (const link of links) {
      const key = `${link.from}>${link.to}`, count = this.counts.get(key), sent = link.sent || 0, lost = link.lost || 0;
      this.counts.set(key, [sent, lost]);
      const pair = this.pairs.get(pairOf(link.from, link.to));
      const [grown, gone] = count ? [Math.max(0, sent - count[0]), Math.max(0, lost - count[1])] : this.isFirst ? [0, 0] : [sent, lost];
      if (pair) pair.rate = pair.rate * 0.7 + grown * 0.3;
      if (still || !grown && !gone) continue;
      const others = Math.min(Math.max(0, grown - (fresh.get(key) || 0)), 3), falls = Math.min(gone, 3);
      for (let n = 0; n < Math.max(others, falls); n++) this.token({ from: link.from, to: link.to, lost: n < falls, begun: begun + NEWS * (n + 0.5) / Math.max(others, falls) });
    }
    this.isFirst = false;
  }

  token(one) {
    if (this.tokens.size >= MOST_TOKENS) return;
    one.element = one.lost ? svg('path', { class: 'token lost', d: 'M-4 -4L4 4M-4 4L4 -4' }) : svg('circle', { class: 'token', r: 4 * this.scale });
    if (one.message) one.element.append(svg('title', {}, `${one.message.what}: ${one.from} → ${one.to}`));
    one.element.setAttribute('opacity', '0');
    this.moving.append(one.element);
    this.tokens.add(one);
  }

  // ---- where the nodes stand

  layout() {
    const names = [...this.nodes.keys()], key = `${names.join()}|${this.pairs.size}`, now = performance.now();
    if (key !== this.laid && (now - this.laidAt > 1000 || this.laidNames !== names.join())) {
      Object.assign(this, { laid: key, laidAt: now, laidNames: names.join() });
      const joined = [...this.pairs.values()].map((pair) => pair.ends).filter(([one, other]) => one !== other);
      this.base = places(names, joined, (name) => { const node = this.nodes.get(name); return node.base || null; });
      for (const name of names) this.nodes.get(name).base = this.base.get(name);
    }
    if (!this.base) return;
    const apart = sides(names, [...this.pairs.values()]);
    const moved = new Map(names.map((name) => [name, [...this.base.get(name)]]));
    if (apart.length > 1 && apart.length <= 4) {
      const middle = (all) => all.reduce(([x, y], name) => { const [nx, ny] = this.base.get(name); return [x + nx / all.length, y + ny / all.length]; }, [0, 0]);
      const [mx, my] = middle(names);
      for (const side of apart) {
        const [sx, sy] = middle(side), long = Math.hypot(sx - mx, sy - my) || 1;
        for (const name of side) { const at = moved.get(name); at[0] += (sx - mx) / long * APART_BY; at[1] += (sy - my) / long * APART_BY; }
      }
      const most = Math.max(1, ...[...moved.values()].flat().map(Math.abs));
      for (const at of moved.values()) { at[0] /= most; at[1] /= most; }
    }
    for (const [name, at] of moved) this.nodes.get(name).to = at;
  }

  // ---- how it looks

  dressNode(node, state = {}) {
    const isDown = state.status === 'down', isOut = !isDown && state.status !== 'up' && state.status !== undefined, ways = [...this.pairs.values()].filter((pair) => pair.ends.includes(node.name)).flatMap((pair) => pair.ways), cuts = ways.filter((way) => way.cut).length;
    const many_ = this.nodes.size > 24, inside = state.members || state.agents || 1, isRoomy = this.nodes.size <= 8 && this.size[0] > 480;
    const radius = node.radius = this.scale * (many_ ? 11 + Math.min(4, Math.log2(inside)) : isRoomy ? 24 + Math.min(36, Math.sqrt(inside) * 5) : 19 + Math.min(9, Math.log2(1 + inside) * 1.6)), isDotted = isRoomy && inside > 1 && !isDown;
    const shortName = node.name.slice(this.prefix.length), isShort = many_ && !isDown && shortName.length < 4; // of very many only what tells them apart
    const key = [state.status, state.down, state.agents, state.members, cuts, radius, shortName, this.picked === node.name].join();
    if (node.key === key) return;
    node.key = key;
    node.element.setAttribute('class', `node${isDown ? ' down' : isOut ? ' out' : ''}${cuts ? ' cutoff' : ''}${this.picked === node.name ? ' chosen' : ''}`);
    node.element.setAttribute('aria-pressed', String(this.picked === node.name));
    node.element.setAttribute('aria-label', `${node.name} ${state.status || 'up'}${state.down && !isDown ? `, ${state.down} down` : ''}${state.agents > 1 ? `, ${many(state.agents, 'agent')}` : ''}${cuts ? `, ${many(cuts, 'direction')} cut` : ''}`);
    for (const circle of [node.body, node.halo]) circle.setAttribute('r', circle === node.halo ? radius + 7 : radius);
    node.cross.setAttribute('d', isDown ? `M${-radius * 0.4} ${-radius * 0.4}L${radius * 0.4} ${radius * 0.4}M${-radius * 0.4} ${radius * 0.4}L${radius * 0.4} ${-radius * 0.4}` : '');
    put(node.inner, isDown || isDotted ? '' : state.members ? `×${short(state.members)}` : many_ ? (isShort ? shortName : '') : state.agents > 1 ? short(state.agents) : '');
    node.inner.setAttribute('y', 4);
    node.crowd.replaceChildren(...(isDotted ? crowd(Math.min(inside, MOST_DOTS), radius, state.down || 0) : []));
    put(node.label, isShort && this.picked !== node.name ? '' : `${cut(node.name, many_ ? 14 : 26)}${isDotted ? ` ×${short(inside)}` : ''}`);
    put(node.title, isShort ? node.name : '');
    node.label.setAttribute('y', radius + 14 + 4 * this.scale);
    put(node.state, isDown || isOut ? ` ${state.status}` : state.down ? ` ${short(state.down)} down` : '');
    node.state.setAttribute('y', radius + 26 + 7 * this.scale);
  }

  // Returns 1 if the pair has a sign.
  dressPair(pair, few, signs) {
    const cuts = pair.ways.filter((way) => way.cut), whole = cuts.length > 0 && cuts.length === pair.ways.length, [one, other] = pair.ends;
    const loss = Math.max(0, ...pair.ways.map((way) => way.loss || 0)), delay = Math.max(0, ...pair.ways.map((way) => way.delay || 0)), own = this.picked === one || this.picked === other;
    const under = pair.ways.reduce((sum, way) => sum + (way.under_way || 0), 0);
    const isLossy = loss >= LOSSY && loss !== this.usual;
    pair.whole = whole;
    pair.element.setAttribute('class', `pair${whole ? ' cut' : cuts.length ? ' cutone' : ''}${isLossy ? ' lossy' : ''}${own ? ' own' : ''}${pair.rate < 0.05 ? ' idle' : ''}`);
    pair.line.setAttribute('stroke-width', (whole ? 1.6 : 1.2 + Math.min(3.2, Math.log2(1 + pair.rate))).toFixed(1));
    const wordy = few || own, text = [whole ? 'cut' : cuts.length ? `cut: ${cuts[0].from} to ${cuts[0].to}` : '', loss && loss !== this.usual && (wordy || this.pairs.size <= 36) ? `${amount(loss * 100)} % lost` : '', !whole && delay && wordy ? seconds(Number(delay.toPrecision(2))) : '', STILL.matches && under ? `${under} under way` : ''].filter((words) => words && !(words === 'cut' && (this.pairs.size > WORDY * 2 || this.size[0] < 520))).join(' · ');
    const key = `${cuts.length} ${text} ${isLossy}`;
    put(pair.title, pair.ways.map((way) => linkWords(way)).join('\n'));
    if (pair.signed !== key) {
      pair.signed = key;
      pair.tag = text ? tagOf(text, cuts.length ? 'bad' : isLossy ? 'fault' : '') : null;
      const shown = cuts.length && signs >= MOST_SIGNS ? [] : [cuts.length ? svg('circle', { r: 8, class: 'signback' }) : null, cuts.length ? svg('path', { class: 'cutsign', d: 'M-5 -5L5 5M-5 5L5 -5' }) : null, pair.tag].filter(Boolean);
      pair.sign.replaceChildren(...shown);
    }
    return cuts.length ? 1 : 0;
  }

  words(links) {
    const nodes = Object.values(this.state.nodes || {}), down = nodes.filter((node) => node.status === 'down').length, cuts = links.filter((link) => link.cut).length, under = links.reduce((sum, link) => sum + (link.under_way || 0), 0);
    const sent = links.reduce((sum, link) => sum + (link.sent || 0), 0), lost = links.reduce((sum, link) => sum + (link.lost || 0), 0), kind = this.state.of === 'agents' ? 'agent' : 'node';
    const parts = [many(nodes.reduce((sum, node) => sum + (kind === 'agent' ? node.members || 1 : 1), 0), kind), down ? h('strong', { class: 'bad' }, `${down} down`) : null, cuts ? h('strong', { class: 'bad' }, `${many(cuts, 'link')} cut`) : null, `${short(sent)} sent`, this.usual ? `${amount(this.usual * 100)} % lost on every link` : null, lost ? h('span', { class: 'bad' }, `${short(lost)} lost`) : null, `${short(under)} under way`, this.left ? `${this.left} more links are not drawn` : null, ...inForce(this.page.runs.run).slice(0, 4).map((fault) => h('span', { class: 'chip' }, h('span', { 'aria-hidden': 'true' }, `${SIGNS.fault} `), isolated(faultWords(fault))))].filter(Boolean);
    const text = parts.map((part) => part.textContent || part).join(', ');
    this.picture.setAttribute('aria-label', `Network: ${text}`);
    this.caption.setAttribute('aria-live', 'off'); // the numbers change all the time: faults are announced, numbers are not
    if (this.said !== text) this.caption.replaceChildren(...parts.flatMap((part, n) => (n ? [part.className === 'chip' ? ' ' : ' · ', part] : [part])));
    this.said = text;
    this.drawPicked();
  }

  list() {
    if (!this.fold.open || (this.listedAt && performance.now() - this.listedAt < 1000)) return;
    this.listedAt = performance.now();
    const all = Object.values(this.state.links || {}), rows = all.slice(0, MOST_LISTED), had = this.table.firstChild, top = had ? had.scrollTop : 0;
    this.table.replaceChildren(h('div', { class: 'wide', tabindex: '0', role: 'group', 'aria-label': 'Links' }, linkTable(rows, null)), all.length > rows.length ? h('p', { class: 'quiet' }, `The first ${MOST_LISTED} of ${all.length}.`) : '');
    this.table.firstChild.scrollTop = top;
  }

  // ---- one node

  pick(name) {
    this.picked = name;
    this.pickedKey = null;
    for (const node of this.nodes.values()) this.dressNode(node, (this.state.nodes || {})[node.name]);
    for (const pair of this.pairs.values()) this.dressPair(pair, this.isWordy, 0);
    this.drawPicked();
  }

  drawPicked() {
    const state = this.picked === null ? null : (this.state.nodes || {})[this.picked];
    this.about.hidden = !state;
    if (!state) return;
    this.about.classList.toggle('left', (this.nodes.get(this.picked) || { to: [0] }).to[0] > 0.1); // it does not cover its own node
    const own = Object.values(this.state.links || {}).filter((link) => link.from === this.picked || link.to === this.picked), key = JSON.stringify([state, own]);
    if (key === this.pickedKey || this.about.matches(':has(button:active)')) return;
    this.pickedKey = key;
    const had = this.about.contains(document.activeElement) ? document.activeElement.textContent : null, { page, picked } = this, isAgent = this.state.of === 'agents' && !state.members;
    this.about.replaceChildren();
    fill(this.about, {}, [h('h3', {}, isolated(picked), ' ', h('span', { class: `state ${state.status === 'up' ? 'running' : state.status === 'down' ? 'crashed' : ''}` }, state.status)),
      h('p', { class: 'tools' }, isAgent ? button('The agent', () => page.openAgent(picked)) : null, isAgent ? button('Its messages', () => page.follow(picked)) : null, button('Close', () => { this.pick(null); this.focus(); })),
      state.members || state.agents > 1 ? h('p', { class: 'quiet' }, many(state.members || state.agents, 'agent')) : null,
      own.length ? h('div', { class: 'wide', tabindex: '0', role: 'group', 'aria-label': 'Its links' }, linkTable(own.slice(0, 60), picked)) : h('p', { class: 'quiet' }, 'It has no link yet.')]);
    if (had !== null) { const again = [...this.about.querySelectorAll('button')].find((one) => one.textContent === had); if (again) again.focus({ preventScroll: true }); }
  }

  clicked(event) {
    const node = event.target.closest('.node');
    if (!node) return;
    this.pick(this.picked === node.dataset.name ? null : node.dataset.name);
    this.rove(node);
    node.focus({ preventScroll: true });
  }

  rove(element) { for (const node of this.nodes.values()) node.element.setAttribute('tabindex', node.element === element ? '0' : '-1'); }

  key(event) {
    const node = event.target.closest('.node'), all = [...this.nodes.values()].map((one) => one.element);
    if (!node) return;
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (move) { const next = all[(all.indexOf(node) + move + all.length) % all.length]; this.rove(next); next.focus({ preventScroll: true }); } else if (event.key === 'Enter') this.pick(this.picked === node.dataset.name ? null : node.dataset.name);
    else if (event.key === 'Escape') this.pick(null);
    else return;
    event.preventDefault();
  }

  // ---- pictures

  tick() {
    if (!this.element.isConnected || !this.size[0]) return;
    const settled = this.step();
    if (this.moved || !settled) this.placeAll();
    this.moved = false;
    const going = this.flow();
    if (!settled || going) this.frame();
  }

  at(point) {
    const [width, height] = this.size, margin = Math.min(70, width / 6), foot = 34, [across, down] = this.nodes.size === 2 && height > width * 1.2 ? [point[1], point[0]] : point;
    return [width / 2 + across * (width / 2 - margin), (height - foot) / 2 + 4 + down * ((height - foot) / 2 - 34)];
  }

  // Brings nodes nearer to where they belong; true once they are there.
  step() {
    let settled = true;
    const roving = this.dots.querySelector('[tabindex="0"]');
    for (const node of this.nodes.values()) {
      if (!roving && node === this.nodes.values().next().value) node.element.setAttribute('tabindex', '0');
      const [x, y] = node.to;
      if (node.x === null || STILL.matches) Object.assign(node, { x, y });
      else if (Math.abs(node.x - x) + Math.abs(node.y - y) > SETTLED) { node.x += (x - node.x) * 0.12; node.y += (y - node.y) * 0.12; settled = false; }
      if (node.heat > 0.02) { node.heat *= 0.92; settled = false; } else node.heat = 0;
      node.halo.setAttribute('opacity', node.heat.toFixed(2));
    }
    return settled;
  }

  placeAll() {
    for (const node of this.nodes.values()) {
      node.place = this.at([node.x, node.y]);
      node.element.setAttribute('transform', `translate(${node.place[0].toFixed(1)} ${node.place[1].toFixed(1)})`);
    }
    for (const pair of this.pairs.values()) {
      const [one, other] = pair.ends.map((name) => this.nodes.get(name));
      if (!one || !other) continue;
      if (one === other) {
        const [x, y, wide] = loopOf(one);
        for (const [name, value] of [['cx', x], ['cy', y], ['r', wide]]) pair.line.setAttribute(name, value.toFixed(1));
        pair.sign.setAttribute('transform', `translate(${x.toFixed(1)} ${(y - wide).toFixed(1)})`);
        if (pair.tag) placeTag(pair.tag, 1, 0);
        continue;
      }
      const [ax, ay] = one.place, [bx, by] = other.place, long = Math.hypot(bx - ax, by - ay) || 1, ux = (bx - ax) / long, uy = (by - ay) / long;
      for (const [name, value] of [['x1', ax + ux * one.radius], ['y1', ay + uy * one.radius], ['x2', bx - ux * other.radius], ['y2', by - uy * other.radius]]) pair.line.setAttribute(name, value.toFixed(1));
      pair.sign.setAttribute('transform', `translate(${((ax + bx) / 2).toFixed(1)} ${((ay + by) / 2).toFixed(1)})`);
      if (pair.tag) placeTag(pair.tag, ux, uy);
    }
  }

  // Moves messages along; true while there are some that move.
  flow() {
    const now = performance.now() / 1000, { runs } = this.page, time = runs.shownTime, frozen = runs.run && (runs.run.paused || isOver(runs.run.status));
    let going = false;
    for (const token of this.tokens) {
      const one = this.nodes.get(token.from), other = this.nodes.get(token.to), { message } = token;
      const pair = this.pairs.get(pairOf(token.from, token.to)), isCut = Boolean(pair) && pair.ways.some((way) => way.cut && way.from === token.from);
      const held = message && message.due === undefined, part = held ? 0.14 : token.exact ? (time - message.sent) / (message.due - message.sent || 1) : (now - token.begun) / PULSE, most = token.lost ? 0.5 : isCut ? BEFORE_CUT : 1;
      if (!one || !other || !one.place || !other.place || part >= 1 || (held && !this.known.has(message.id)) || (isOver(runs.run.status) && !token.exact && part >= 1)) {
        if (other && !token.lost && !isCut && part >= 1) other.heat = Math.max(other.heat, 0.85);
        token.element.remove();
        this.tokens.delete(token);
        continue;
      }
      going = going || !token.exact || !frozen;
      token.element.setAttribute('opacity', part < 0 ? '0' : '1');
      if (one === other) {
        const [x, y, wide] = loopOf(one), angle = Math.PI * (0.5 + 2 * (0.1 + 0.8 * Math.min(Math.max(part, 0), most)));
        token.element.setAttribute('transform', `translate(${(x + wide * Math.cos(angle)).toFixed(1)} ${(y + wide * Math.sin(angle)).toFixed(1)})`);
        continue;
      }
      const [ax, ay] = one.place, [bx, by] = other.place, long = Math.hypot(bx - ax, by - ay) || 1, ux = (bx - ax) / long, uy = (by - ay) / long;
      const beside = (this.nodes.size <= 3 ? 9 : 5) * this.scale, along = one.radius + (long - one.radius - other.radius) * Math.min(Math.max(part, 0), most);
      if (token.lost && part > most) token.element.setAttribute('opacity', (2 - 2 * part).toFixed(2));
      token.element.setAttribute('transform', `translate(${(ax + ux * along - uy * beside).toFixed(1)} ${(ay + uy * along + ux * beside).toFixed(1)})`);
    }
    return going && this.tokens.size > 0;
  }
}

// Words beside a link, on a ground of their own.
function tagOf(text, style) {
  const wide = text.length * 6.3 + 10;
  return svg('g', { class: `tag ${style}` }, svg('rect', { x: -wide / 2, y: -9, width: wide, height: 18, rx: 5 }), svg('text', { y: 4 }, text));
}

// Beside the middle of a link, above it or to its right, where no message passes.
function placeTag(tag, ux, uy) {
  const half = Number(tag.firstChild.getAttribute('width')) / 2, [nx, ny] = ux > 0 || (ux === 0 && uy < 0) ? [uy, -ux] : [-uy, ux];
  tag.setAttribute('transform', `translate(${(nx * (half * Math.abs(nx) + 16)).toFixed(1)} ${(ny * 20).toFixed(1)})`);
}

// The common beginning of all names, up to a slash.
function sharedPrefix(names) {
  const first = names[0] || '', prefix = first.slice(0, first.lastIndexOf('/') + 1);
  return names.every((name) => name.startsWith(prefix)) ? prefix : '';
}

// The loop for messages within one node, or one kind: its middle, and how wide it is.
const loopOf = ({ place: [x, y], radius }) => [x, y - radius - 8, Math.max(14, radius * 0.55)];

// The agents of one node, like seeds in a flower; it shows how many are down, not which.
function crowd(count, radius, down) {
  const wide = radius * 0.72;
  return Array.from({ length: count }, (_, n) => {
    const far = wide * Math.sqrt((n + 0.5) / count), angle = n * 2.39996;
    return svg('circle', { cx: (far * Math.cos(angle)).toFixed(1), cy: (far * Math.sin(angle)).toFixed(1), class: n < down ? 'bad' : null, r: Math.max(1.6, Math.min(5, radius / (2.4 + Math.sqrt(count)))).toFixed(1) });
  });
}

const weight = (pair) => pair.ways.reduce((sum, way) => sum + (way.sent || 0) + (way.cut ? 1e9 : 0), 0);

function linkWords({ from, to, cut: isCut, delay, loss, sent, lost, under_way: under }) {
  return [`${from} → ${to}:`, isCut ? 'cut,' : '', `${sent || 0} sent`, lost ? `, ${lost} lost` : '', under ? `, ${under} under way` : '', delay ? `, ${seconds(Number(delay.toPrecision(2)))} on the way` : '', loss ? `, ${amount(loss * 100)} % lost` : ''].filter(Boolean).join(' ').replaceAll(' ,', ',');
}

// Links as rows: those of one node, each by its other end, or all.
function linkTable(links, own) {
  const columns = [['Sent', ({ sent }) => (sent || 0).toLocaleString('en')], ['Lost', ({ lost }) => (lost || 0).toLocaleString('en')], ['Under way', (link) => (link.under_way || 0).toLocaleString('en')]];
  if (links.some((link) => link.delay)) columns.push(['Delay', ({ delay }) => (delay ? seconds(Number(delay.toPrecision(2))) : '')]);
  if (links.some((link) => link.loss)) columns.push(['Loss', ({ loss }) => (loss ? `${amount(loss * 100)} %` : '')]);
  return h('table', { class: own === null ? 'links whole' : 'links' }, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Link'), columns.map(([head]) => h('th', { scope: 'col', class: 'number' }, head)))),
    h('tbody', {}, links.map((link) => h('tr', {}, h('td', {}, own === null ? [isolated(link.from), h('span', { class: 'quiet' }, ' → '), isolated(link.to)] : link.from === own ? [h('span', { class: 'quiet' }, 'to '), isolated(link.to)] : [h('span', { class: 'quiet' }, 'from '), isolated(link.from)], link.cut ? h('strong', { class: 'bad' }, ' ✕ cut') : null),
      columns.map(([head, write]) => h('td', { class: `number${head === 'Lost' && link.lost ? ' bad' : ''}` }, write(link)))))));
}

// Places in a square from -1 to 1: two nodes beside each other, nodes that are nearly all linked in a circle, others so
// that linked nodes are near each other and others are not (forces, from where they stood; nothing is random).
function places(names, joined, stood) {
  const count = names.length, most = count * (count - 1) / 2;
  if (count === 1) return new Map([[names[0], [0, 0]]]);
  const turn = (n) => { const angle = count === 2 ? Math.PI * (1 - n) : 2 * Math.PI * n / count - Math.PI / 2; return [Math.cos(angle), Math.sin(angle)]; };
  const circle = new Map(names.map((name, n) => [name, turn(n).map((value) => value * 0.86)]));
  if (count <= 3 || !joined.length || joined.length >= most * CIRCLE) return circle;
  const at = names.map((name) => [...(stood(name) || circle.get(name))]), index = new Map(names.map((name, n) => [name, n])), ends = joined.map((pair) => pair.map((name) => index.get(name))), wide = 1.9 / Math.sqrt(count);
  for (let round_ = 0; round_ < 160; round_++) {
    const push = at.map(() => [0, 0]), heat = 0.16 * (1 - round_ / 160) + 0.002;
    for (let a = 0; a < count; a++) for (let b = a + 1; b < count; b++) {
      const x = at[a][0] - at[b][0] || (a - b) * 1e-3, y = at[a][1] - at[b][1] || 1e-3, square = Math.max(x * x + y * y, 1e-4), force = wide * wide / square;
      push[a][0] += x * force; push[a][1] += y * force; push[b][0] -= x * force; push[b][1] -= y * force;
    }
    for (const [a, b] of ends) {
      const x = at[a][0] - at[b][0], y = at[a][1] - at[b][1], force = Math.hypot(x, y) / wide;
      push[a][0] -= x * force; push[a][1] -= y * force; push[b][0] += x * force; push[b][1] += y * force;
    }
    at.forEach((one, n) => { const long = Math.hypot(...push[n]) || 1, by = Math.min(long, heat) / long; one[0] += push[n][0] * by; one[1] += push[n][1] * by; });
  }
  const fit = (axis) => { const all = at.map((one) => one[axis]), low = Math.min(...all), high = Math.max(...all); return (value) => (high - low < 1e-6 ? 0 : ((value - low) / (high - low) * 2 - 1) * 0.9); };
  const [fx, fy] = [fit(0), fit(1)];
  const fitted = at.map(([x, y]) => [fx(x), fy(y)]), room = Math.min(0.24, 1.2 / Math.sqrt(count)); // names need room, more of it across
  for (let again = 0; again < 40; again++) for (let a = 0; a < count; a++) for (let b = a + 1; b < count; b++) {
    const x = fitted[a][0] - fitted[b][0], y = fitted[a][1] - fitted[b][1], near = Math.hypot(x, y * 1.2);
    if (near >= room) continue;
    const by = (room - near) / 2 / (near || 1), dx = near ? x * by : room / 2, dy = y * by;
    for (const [n, sign] of [[a, 1], [b, -1]]) { fitted[n][0] = Math.max(-0.95, Math.min(0.95, fitted[n][0] + sign * dx)); fitted[n][1] = Math.max(-0.95, Math.min(0.95, fitted[n][1] + sign * dy)); }
  }
  return new Map(names.map((name, n) => [name, fitted[n]]));
}

// The sides into which cut links part the nodes: the nodes of a side are still joined by links.
function sides(names, pairs) {
  if (!pairs.some((pair) => pair.ways.length && pair.ways.every((way) => way.cut))) return [names];
  const side = new Map(names.map((name) => [name, name])), root = (name) => { let at = name; while (side.get(at) !== at) at = side.get(at); return at; };
  for (const { ends, ways } of pairs) if (!ways.every((way) => way.cut)) side.set(root(ends[0]), root(ends[1]));
  const found = new Map();
  for (const name of names) { const own = root(name); if (!found.has(own)) found.set(own, []); found.get(own).push(name); }
  return [...found.values()];
}
