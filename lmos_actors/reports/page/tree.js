// Who stood where in the tree of supervisors, at any happening of a run.

const GRID = 30;
const MOST_CELLS = 4000;

function treeView(page, run, log) {
  if (!log) return h('div', {}, leftOut(run));
  const stops = happenings(log), body = h('div', { class: 'tree' }), words = h('p', { class: 'happening', 'aria-live': 'polite' });
  const draw = () => {
    const stop = stops[Number(slider.value)];
    run.filter.tree = stop.at;
    slider.setAttribute('aria-valuetext', stop.words);
    words.textContent = stop.words;
    body.replaceChildren(branch(treeAt(log, stop.at), 0));
  };
  const slider = h('input', { type: 'range', min: '0', max: String(stops.length - 1), step: '1', 'aria-label': 'Happening', oninput: draw });
  const at = run.filter.tree;
  const last = stops.findLastIndex((stop) => stop.kind !== 'stopped'); // before all are told to stop
  slider.value = String(at === undefined ? last : Math.max(stops.findLastIndex((stop) => stop.at <= at), 0));
  const step = (by) => () => { slider.value = String(Number(slider.value) + by); draw(); };
  undrawn.push(draw);
  return h('div', {}, leftOut(run),
    h('div', { class: 'tools scrub' }, button('◀', step(-1), { 'aria-label': 'The happening before' }), slider, button('▶', step(1), { 'aria-label': 'The next happening' })),
    words, body);
}

// Where the slider stops: starts, stops, crashes, restarts and faults; a row of the same kind at one instant is one.
function happenings(log) {
  const stops = [{ at: -1, t: 0, words: 'Before anything happened' }];
  let last = null;
  for (const record of log.lives) {
    const own = last && last.kind === record.kind && last.t === record.t && (record.kind === 'started' || record.kind === 'stopped');
    if (own) { last.count += 1; last.at = record.at; } else stops.push(last = { at: record.at, t: record.t, kind: record.kind, count: 1, first: record });
  }
  for (const stop of stops.slice(1)) stop.words = `${seconds(stop.t)}: ${stop.count > 1 ? `${many(stop.count, 'agent')} ${stop.kind}` : `${stop.first.agent} ${told(stop.first)}`}`;
  return stops;
}

function treeAt(log, at) {
  const root = { name: 'root', path: '', children: new Map(), state: null }, nodes = new Map();
  const node = (path) => {
    if (nodes.has(path)) return nodes.get(path);
    const cutAt = path.lastIndexOf('/'), above = cutAt < 0 ? root : node(path.slice(0, cutAt));
    const made = { name: path.slice(cutAt + 1), path, above, children: new Map(), state: 'not yet started', starts: 0, comebacks: 0, isAway: false, waiting: 0, running: 0, handled: 0, again: 0, reason: '', lives: false };
    above.children.set(made.name, made);
    nodes.set(path, made);
    return made;
  };
  for (const record of log.lives) {
    if (record.kind === 'fault' || record.kind === 'healed') continue; // of a node, perhaps, which is no agent
    const own = node(record.agent);
    own.lives = own.lives || record.kind === 'started';
  }
  for (let n = 0; n <= at; n++) {
    const record = log.records[n];
    if (endsLives(record)) for (const own of nodes.values()) if (own.lives && own.state !== 'stopped' && isOnNode(record, own.path)) goAway(own, record);
    count(record, node);
  }
  return root;
}

// An agent ends with its node, and comes back with it: no supervisor restarts it.
function goAway(own, { agent }) {
  if (own.starts) Object.assign(own, { state: 'stopped', reason: `restart of its node${agent === 'root' || agent === own.path ? '' : ` ${agent}`}`, isAway: true, waiting: 0, running: 0 });
}

function restarts({ starts, comebacks }) {
  const again = starts - 1 - comebacks;
  return [again > 0 ? many(again, 'restart') : '', comebacks ? `${many(comebacks, 'comeback')} with its node` : ''].filter(Boolean);
}

function count(record, node) {
  const own = record.kind === 'fault' || record.kind === 'healed' || record.kind === 'network' || (!LIFE.has(record.kind) && record.agent === 'user') ? null : node(record.agent);
  if (!own) return;
  switch (record.kind) {
    case 'started':
      Object.assign(own, { state: 'running', starts: own.starts + 1, comebacks: own.comebacks + own.isAway, isAway: false, waiting: 0, running: 0 });
      for (let up = own.above; up.above && !up.lives; up = up.above) up.state = 'running';
      break;
    case 'crashed': case 'stopped': Object.assign(own, { state: record.kind, reason: record.reason, waiting: 0, running: 0 }); break;
    case 'restarting': own.state = 'restarting'; own.again += 1; break;
    case 'sent': if (record.id !== undefined) own.waiting += 1; break;
    case 'delivered': own.waiting = Math.max(own.waiting - 1, 0); own.running += 1; break;
    case 'answered': own.running = Math.max(own.running - 1, 0); own.handled += 1; break;
    case 'refused': case 'dropped': case 'dead_letter': own.waiting = Math.max(own.waiting - 1, 0); break;
    default:
  }
}

function branch(node, depth) {
  const children = [...node.children.values()], leaves = children.filter((child) => !child.children.size), others = children.filter((child) => child.children.size);
  const grid = leaves.length > GRID;
  return h('ul', { class: depth ? '' : 'root' }, h('li', {}, depth || node.state ? entry(node) : h('div', { class: 'node supervisor' }, 'root'),
    grid ? cells(leaves) : null,
    [...(grid ? [] : leaves), ...others].length ? (grid ? others : children).map((child) => (child.children.size ? branch(child, depth + 1) : h('ul', {}, h('li', {}, entry(child))))) : null));
}

function entry(node) {
  if (!node.lives) return h('div', { class: 'node supervisor' }, node.name, node.state === 'restarting' ? h('span', { class: 'state restarting' }, 'restarting') : null,
    node.again ? h('span', { class: 'quiet' }, many(node.again, 'restart')) : null);
  const style = node.state.replaceAll(' ', '-');
  return h('div', { class: `node ${style}` }, h('strong', {}, node.name), h('span', { class: `state ${style}` }, node.state),
    h('span', { class: 'quiet' }, [...restarts(node), node.waiting ? `${node.waiting} waiting` : null, node.running ? `${node.running} running` : null, node.handled ? `${node.handled.toLocaleString('en')} handled` : null].filter(Boolean).join(' · ')),
    node.reason && node.state !== 'running' ? h('span', { class: 'reason' }, node.reason) : node.reason && node.starts > 1 ? h('span', { class: 'quiet' }, `before: ${node.reason}`) : null);
}

// Many agents side by side, a square each.
function cells(nodes) {
  const counts = new Map();
  for (const node of nodes) counts.set(node.state, (counts.get(node.state) || 0) + 1);
  const words = [...counts].map(([state, number]) => `${number.toLocaleString('en')} ${state}`).join(', ');
  const reading = h('p', { class: 'reading' }, words), side = 11, columns = 64;
  const shown = nodes.slice(0, MOST_CELLS), squares = shown.map((node, n) => svg('rect', { x: (n % columns) * side, y: Math.floor(n / columns) * side, width: side - 2, height: side - 2, rx: 2, class: `cell ${node.state.replaceAll(' ', '-')}${node.starts > 1 ? ' again' : ''}`, 'data-n': n }));
  const about = (node) => `${node.path}: ${node.state}${restarts(node).map((words) => `, ${words}`).join('')}, ${node.handled} handled${node.reason ? `, ${node.reason}` : ''}`;
  const rows = Math.ceil(shown.length / columns);
  const others = [...counts].filter(([state, number]) => number < nodes.length / 2).map(([state]) => {
    const own = nodes.filter((node) => node.state === state);
    return h('p', { class: 'quiet' }, `${state}: ${own.slice(0, 12).map((node) => node.path).join(', ')}${own.length > 12 ? ` and ${own.length - 12} more` : ''}`);
  });
  return h('div', { class: 'cells' }, svg('svg', { viewBox: `0 0 ${columns * side} ${rows * side}`, role: 'img', 'aria-label': words,
    onpointerover: (event) => { const node = shown[event.target.dataset.n]; reading.textContent = node ? legible(about(node)) : words; } }, squares), reading, others,
  nodes.length > MOST_CELLS ? h('p', { class: 'quiet' }, `The first ${MOST_CELLS} of ${nodes.length.toLocaleString('en')} are drawn.`) : null);
}
