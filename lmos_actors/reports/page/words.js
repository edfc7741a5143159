// What the views of a report need: words for verdicts, packed data, tables.

const VERDICTS = {
  passed: { sign: '✓', word: 'passed', style: 'ok' },
  failed: { sign: '✗', word: 'failed', style: 'bad' },
  'could not run': { sign: '!', word: 'could not run', style: 'bad' },
  'time limit': { sign: '⧖', word: 'time limit', style: 'bad' },
  'not run': { sign: '–', word: 'not run', style: 'none' },
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

async function unpacked(id) {
  const text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  if (!('DecompressionStream' in window)) return new TextDecoder().decode(inflate(bytes));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))).text();
}

const NUMBERS = new Set(['Steps', 'Checks', 'Virtual', 'Real', 'At', 'Begin', 'Took', 'Value']);

function table(heads, items, row) {
  const [body, more] = portions(items, row);
  const line = h('tr', {}, heads.map((head) => h('th', { scope: 'col', class: NUMBERS.has(head) ? 'number' : null }, head)));
  return [h('div', { class: 'wide' }, h('table', {}, h('thead', {}, line), body)), more];
}
