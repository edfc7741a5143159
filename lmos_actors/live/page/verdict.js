// Verdicts in words and signs, tables of checks, failures: for runs that have ended, and for runs in progress.

const VERDICTS = {
  passed: { sign: '✓', word: 'passed', style: 'ok' },
  failed: { sign: '✗', word: 'failed', style: 'bad' },
  'could not run': { sign: '!', word: 'could not run', style: 'bad' },
  'time limit': { sign: '⧖', word: 'time limit', style: 'bad' },
  'not run': { sign: '–', word: 'not run', style: 'none' },
  running: { sign: '▶', word: 'running', style: 'now' },
  seen: { sign: '·', word: 'seen', style: 'none' },
  waiting: { sign: '·', word: 'waiting', style: 'none' },
};

const verdict = (ended) => VERDICTS[ended] || { sign: '?', word: ended, style: 'bad' };

function badge(ended) {
  const { sign, word, style } = verdict(ended);
  return h('span', { class: `badge ${style}` }, h('span', { 'aria-hidden': 'true' }, `${sign} `), h('span', { class: 'word' }, word));
}

function truth(ok) {
  const [sign, word, style] = ok === null ? ['–', 'not reached', 'none'] : ok ? ['✓', 'as expected', 'ok'] : ['✗', 'not as expected', 'bad'];
  return h('span', { class: `truth ${style}`, title: word, role: 'img', 'aria-label': word }, sign);
}

const NUMBERS = new Set(['Steps', 'Checks', 'Virtual', 'Real', 'At', 'Begin', 'Took', 'Value']);

function table(heads, items, row) {
  const [body, more] = portions(items, row);
  const line = h('tr', {}, heads.map((head) => h('th', { scope: 'col', class: NUMBERS.has(head) ? 'number' : null }, head || h('span', { class: 'unseen' }, 'Verdict'))));
  return [h('div', { class: 'wide', tabindex: '0', role: 'group', 'aria-label': heads.filter(Boolean)[0] || 'Table' }, h('table', {}, h('thead', {}, line), body)), more];
}

function failure({ place: where, what, expected, saw }) {
  return h('section', { class: 'failure' },
    h('h4', {}, what, where ? h('span', { class: 'quiet' }, ` ${where}`) : null),
    h('dl', { class: 'pair' }, h('dt', {}, 'expected'), h('dd', {}, expected), h('dt', {}, 'saw'), h('dd', {}, saw)));
}

function checkTable(checks) {
  return table(['', 'Check', 'Expected', 'Saw', 'At'], checks, (check) => h('tr', { class: check.ok || check.isOpen ? '' : 'bad' },
    h('td', {}, truth(check.ok)),
    h('td', { title: check.place }, check.name, check.name.startsWith(check.kind) ? null : h('span', { class: 'quiet' }, ` ${check.kind}`)),
    h('td', {}, check.expected), h('td', {}, check.saw), h('td', { class: 'number' }, seconds(check.at))));
}
