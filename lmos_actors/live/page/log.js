// The message log of one run: records, who sent what to whom, and what happened to agents.

// Whether a record is the restart of a node: it ends all its agents at once, without a record for each.
function endsLives(record) {
  return record.kind === 'fault' && record.name === 'restart';
}

// Whether an agent is on the node whose restart, or return, a record is about.
function isOnNode(record, agent) {
  if (record.agent === 'root') return true;
  for (let place = agent; place; place = place.slice(0, Math.max(place.lastIndexOf('/'), 0))) if (record.on.has(place)) return true;
  return false;
}

// The places on each node of the network that faults have restarted: agents, and supervisors with all below.
function onNodes(faults) {
  return new Map(faults.flatMap((fault) => fault.restarted).map(({ node, agents }) => [node, new Set(agents)]));
}

// The names of many as one text.
const few = (names, most = 6) => (names.length > most ? `${names.slice(0, 3).join(', ')} and ${names.length - 3} more` : names.join(', '));

// A node and its agents, or its name alone if its one agent has the same name.
const nodeAndAgents = (node, agents) => (agents.length === 1 && agents[0] === node ? node : `${node} (${few(agents)})`);

const LIFE = new Set(['started', 'stopped', 'crashed', 'restarting', 'fault', 'healed']);
const LOST = new Set(['refused', 'dropped', 'cancelled', 'dead_letter']);

class Log {
  // `faults` are those of the run: no record says what is on a node. `isText`: its values are texts already.
  constructor(text, faults, isText = false) {
    const lines = text.split('\n');
    this.isText = isText;
    this.head = {};
    this.lines = [];
    this.records = [];
    this.sent = new Map();
    this.agents = new Map([['user', 0]]);
    this.nodes = onNodes(faults);
    for (const line of lines) this._take(line);
    const own = (record) => (record.kind === 'sent' ? record : this.sent.get(record.id));
    for (const record of this.records) {
      const first = own(record);
      if (!first) continue;
      record.trace = first.trace;
      record.verb = first.verb;
      if (record.from === undefined) record.from = first.from;
    }
    this.end = this.records.length ? this.records[this.records.length - 1].t : 0;
    this.lives = this.records.filter((record) => LIFE.has(record.kind));
  }

  _take(line) {
    let record;
    try { record = JSON.parse(line); } catch (broken) { return; }
    if (record === null || typeof record !== 'object') return;
    if (typeof record.n !== 'number') {
      if (record.schema) this.head = record;
      return;
    }
    const { n, t, kind, agent, id, trace, verb, error, incarnation } = record;
    const kept = { n, t, kind, agent, id, trace, verb, error, incarnation, at: this.records.length };
    kept.name = record.affordance || record.event || record.topic || record.property || record.fault || '';
    const said = {
      sent: record.input, answered: record.value, event: record.data, progress: record.progress, item: record.value, changed: record.value,
    }[kind];
    kept.said = said === undefined || said === null ? '' : cut(this.isText && typeof said === 'string' ? said : ofModel(kept.name, kind, said) || JSON.stringify(said), 90);
    kept.isTalk = kind === 'item' && kept.said !== '' && !this.isText && ofModel(kept.name, kind, said) !== null;
    kept.reason = record.reason === undefined ? '' : String(record.reason);
    if (kind === 'network') Object.assign(kept, { what: record.what, to: record.to, bytes: record.bytes });
    const whom = record.sides || (record.between && [record.between]), names = (side) => (Array.isArray(side) ? side.join(', ') : side); // or text
    if (whom) kept.whom = Array.isArray(whom) ? whom.map(names).join(' from ') : whom;
    if (kept.name === 'restart' && (kind === 'fault' || kind === 'healed')) kept.on = this.nodes.get(agent) || new Set([agent]);
    kept.from = record.from === null ? 'unknown' : record.from;
    this.records.push(kept);
    this.lines.push(line);
    if (kind === 'sent' && id !== undefined) this.sent.set(id, kept);
    if (kept.from !== undefined) this._meet(kept.from);
    this._meet(agent);
  }

  _meet(agent) {
    if (!this.agents.has(agent)) this.agents.set(agent, this.agents.size);
  }

  // All records of the message that `record` is about, or the record alone.
  story(record) {
    if (record.id === undefined || record.id === null) return [record];
    return this.records.filter((other) => other.id === record.id);
  }

  // Where an arrow begins and ends; one name if it is a mark at an agent.
  ends(record) {
    switch (record.kind) {
      case 'sent': return [record.from, record.agent];
      case 'answered': return record.from === undefined ? [record.agent] : [record.agent, record.from];
      case 'network': return [record.from, record.to];
      case 'dead_letter': return record.from && record.from !== 'unknown' ? [record.from, record.agent] : [record.agent];
      default: return [record.agent];
    }
  }
}

// A request to a language model, or its answer; null for anything else.
function ofModel(name, kind, said) {
  if (name !== 'generate') return null;
  if (kind === 'sent') {
    const last = Array.isArray(said.messages) ? said.messages.at(-1) : null;
    if (!last || !last.role) return null;
    if (last.role !== 'tool') return JSON.stringify(last.text || '');
    return last.error ? `${last.name} failed: ${last.error}` : `${last.name} = ${JSON.stringify(last.result)}`;
  }
  if (kind !== 'item') return null;
  switch (said.type) {
    case 'text': return `says ${JSON.stringify(said.text)}`;
    case 'reasoning': return `thinks ${JSON.stringify(said.text || '')}`;
    case 'tool_request': return `calls ${said.name} ${JSON.stringify(said.unreadable || said.arguments || {})}`;
    case 'end': return `ends: ${said.reason || 'stop'}`;
    default: return null;
  }
}

// What a record says, in a few words.
function told(record) {
  const name = record.name, failed = record.error ? `: ${record.error}` : '';
  switch (record.kind) {
    case 'sent': return `${record.verb || 'send'} ${name} ${record.said}`;
    case 'delivered': return `${name} begins`;
    case 'answered': return record.error ? `${name} fails${failed}` : record.said ? `${name} = ${record.said}` : `${name} done`;
    case 'event': return `event ${name} ${record.said}`;
    case 'progress': return `${name} goes on: ${record.said}`;
    case 'item': return record.isTalk ? `${name} ${record.said}` : `${name} gives ${record.said}`;
    case 'changed': return `${name} is now ${record.said}`;
    case 'started': return `started${record.incarnation > 1 ? ` (#${record.incarnation})` : ''}`;
    case 'fault': return `fault ${name}${onNode(record)}${record.whom ? `: ${record.whom}` : ''}`;
    case 'healed': return `healed ${name}${onNode(record)}${record.whom ? `: ${record.whom}` : ''}`;
    case 'network': return `${record.what}${name ? ` ${name}` : record.bytes ? `: ${record.bytes} bytes` : ''}`;
    case 'dead_letter': return `dead letter ${name} (${record.reason})`;
    default: return `${record.kind}${name ? ` ${name}` : ''}${record.reason ? `: ${record.reason}` : ''}${failed}`;
  }
}

function onNode(record) {
  return record.on && !(record.on.size === 1 && record.on.has(record.agent)) ? ` of ${few([...record.on])}` : '';
}

const SIGNS = {
  sent: '→', answered: '⇠', delivered: '·', event: '◆', started: '▶', stopped: '■', crashed: '✗', restarting: '↻',
  progress: '◔', item: '⇢', changed: '◇', fault: 'ϟ', healed: '✚', refused: '⊘', dropped: '⊘', cancelled: '⊘', dead_letter: '✝',
  network: '⤫', circle: '⟲',
};

// How a record is drawn: plain, or as an answer, an event, a part of an agent's life, or trouble.
function mood(record) {
  if (record.kind === 'crashed' || LOST.has(record.kind) || record.error) return 'bad';
  if (record.kind === 'network') return record.what === 'lost' || record.what === 'disconnected' ? 'bad' : 'fault';
  if (record.kind === 'fault' || record.kind === 'healed') return 'fault';
  if (record.kind === 'event') return 'event';
  return LIFE.has(record.kind) ? 'life' : 'plain';
}
