// One run in words: its head, what failed, its steps and its checks.

function runHead(report, run, log) {
  const file = report.files[run.file], known = log && log.head.packages;
  const made = known ? `${log.head.python || ''}, ${log.head.libc || ''}, lmos-actors ${known['lmos-actors'] || 'of unknown version'}` : null;
  const facts = [
    ['Seed', run.seed],
    file.trials > 1 ? ['Trial', `${run.trial} of ${file.trials}`] : null,
    ['Virtual', seconds(run.virtual)],
    ['Real', seconds(Number(run.real.toFixed(2)))],
    ['Steps', run.steps.join('/')],
    ['Checks', run.checks.join('/')],
    run.digest ? ['SHA-256 of the records', [h('code', { title: run.digest }, `${run.digest.slice(0, 12)}… `), copying(run.digest, 'the digest of the run')]] : null,
    made ? ['Made with', made] : null,
  ].filter(Boolean);
  return h('header', { class: 'runhead' },
    h('h2', {}, badge(run.ended), ' ', file.name, h('span', { class: 'quiet' }, ` ${run.combination}`)),
    h('dl', { class: 'facts' }, facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))),
    run.again ? h('div', { class: 'command' }, h('code', { id: 'again' }, run.again), copying(run.again, 'the command that repeats this run')) : null,
    run.replay ? h('div', { class: 'command' }, h('code', {}, run.replay), copying(run.replay, 'the command that replays this run')) : null);
}

function storyView(run) {
  return h('div', { class: 'story' },
    run.failures.length ? [h('h3', {}, 'What went wrong'), run.failures.map(failure)] : null,
    h('h3', {}, 'Checks'),
    run.judged.length ? checkTable(run.judged) : h('p', { class: 'quiet' }, 'None.'),
    h('h3', {}, 'Steps'), steps(run),
    Object.keys(run.metrics).length ? [h('h3', {}, 'Metrics'), metrics(run.metrics)] : null,
    run.last.length ? [h('h3', {}, 'Last messages'), h('pre', {}, run.last.join('\n'))] : null,
    run.tree.length ? [h('h3', {}, 'The tree when the story ended'), h('pre', {}, run.tree.join('\n'))] : null);
}

function metrics(found) {
  const known = Object.entries(found).filter(([, value]) => value !== null), others = Object.keys(found).filter((name) => found[name] === null);
  return [known.length ? h('dl', { class: 'facts' }, known.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, amount(value))))) : null,
    others.length ? h('p', { class: 'quiet' }, `Cannot be computed: ${others.join(', ')}`) : null];
}

function steps(run) {
  if (run.step_results === null) return h('p', { class: 'quiet' }, 'Left out: the steps of all runs are too many for one page.');
  if (!run.step_results.length) return h('p', { class: 'quiet' }, 'None.');
  return table(['', 'Step', 'Where', 'Begin', 'Took'], run.step_results, ([where, what, ok, begin, end]) => h('tr', { class: ok === false ? 'bad' : ok === null ? 'none' : '' },
    h('td', {}, truth(ok)), h('td', {}, what), h('td', { class: 'quiet' }, where),
    h('td', { class: 'number' }, seconds(begin)),
    h('td', { class: 'number' }, begin === null || end === null ? '' : seconds(end - begin))));
}
