// Measured series: the line of one run, and what all seeds of its combination had at each instant.

function seriesView(report, run) {
  if (!run.series.length) return h('p', { class: 'quiet' }, 'Nothing was measured: the file has no "measure".');
  const file = report.files[run.file], runs = report.runs.filter((one) => one.file === run.file && one.combination === run.combination).length;
  return h('div', { class: 'charts' }, legend(runs, true), faultList(run), run.series.map((series) => {
    const band = file.bands.find((one) => one.name === series.name && one.combination === run.combination);
    return new Chart(series.name, `${series.agg}${series.whole > series.times.length ? `, ${series.times.length} of ${series.whole} samples drawn` : ''}`, { band, series, faults: run.faults }).element;
  }));
}

function bandCharts(file) {
  const names = [...new Set(file.bands.map((band) => band.name))];
  return [legend(Math.max(...file.bands.map((band) => Math.max(...band.n, 0))), false), names.map((name) => {
    const own = file.bands.filter((band) => band.name === name), all = own.flatMap((band) => [...band.min, ...band.max]).filter((value) => value !== null);
    const limits = all.length ? [smallest(all), -smallest(all.map((value) => -value))] : undefined; // the same for all, to compare
    const last = -smallest(own.map((band) => -(band.times[band.times.length - 1] || 0)));
    return [h('h4', {}, name), h('div', { class: 'charts several' }, own.map((band) => new Chart(band.combination || name, band.agg, { band, limits, last }).element))];
  })];
}

function legend(runs, own) {
  if (runs < 2) return null;
  return h('p', { class: 'legend' }, own ? [h('i', { class: 'key line' }), 'this run '] : null, h('i', { class: 'key median' }), `median of ${many(runs, 'run')} `,
    h('i', { class: 'key quartiles' }), 'middle half ', h('i', { class: 'key extremes' }), 'least to greatest');
}
