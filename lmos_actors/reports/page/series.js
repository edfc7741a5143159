// Measured series: the line of one run, and what all seeds of its combination had at each instant.

function seriesView(report, run) {
  if (!run.series.length) return h('p', { class: 'quiet' }, 'Nothing was measured: the file has no "measure".');
  const file = report.files[run.file], runs = report.runs.filter((one) => one.file === run.file && one.combination === run.combination).length;
  return h('div', { class: 'charts' }, legend(runs, true), faultList(run), run.series.map((series) => {
    const band = file.bands.find((one) => one.name === series.name && one.combination === run.combination);
    return chart(`${series.name}`, `${series.agg}${series.whole > series.times.length ? `, ${series.times.length} of ${series.whole} samples drawn` : ''}`, band, series, run.faults);
  }));
}

function bandCharts(file) {
  const names = [...new Set(file.bands.map((band) => band.name))];
  return [legend(Math.max(...file.bands.map((band) => Math.max(...band.n, 0))), false), names.map((name) => {
    const own = file.bands.filter((band) => band.name === name), all = own.flatMap((band) => [...band.min, ...band.max]).filter((value) => value !== null);
    const limits = all.length ? [smallest(all), -smallest(all.map((value) => -value))] : undefined; // the same for all, to compare
    const last = -smallest(own.map((band) => -(band.times[band.times.length - 1] || 0)));
    return [h('h4', {}, name), h('div', { class: 'charts several' }, own.map((band) => chart(band.combination || name, band.agg, band, null, [], limits, last)))];
  })];
}

const smallest = (values) => values.reduce((one, other) => (other < one ? other : one));

function legend(runs, own) {
  if (runs < 2) return null;
  return h('p', { class: 'legend' }, own ? [h('i', { class: 'key line' }), 'this run '] : null, h('i', { class: 'key median' }), `median of ${many(runs, 'run')} `,
    h('i', { class: 'key quartiles' }), 'middle half ', h('i', { class: 'key extremes' }), 'least to greatest');
}

function line(times, values, x, y) {
  let path = '', open = false;
  times.forEach((time, n) => {
    if (values[n] === null) { open = false; return; }
    path += `${open ? 'L' : 'M'}${x(time).toFixed(1)} ${y(values[n]).toFixed(1)}`;
    open = true;
  });
  return path;
}

function between(band, low, high, x, y) {
  const known = band.times.map((time, n) => n).filter((n) => band[low][n] !== null);
  if (known.length < 2) return '';
  const over = known.map((n) => `${x(band.times[n]).toFixed(1)} ${y(band[high][n]).toFixed(1)}`), under = known.map((n) => `${x(band.times[n]).toFixed(1)} ${y(band[low][n]).toFixed(1)}`);
  return `M${over.join('L')}L${under.reverse().join('L')}Z`;
}

function chart(name, about, band, series, faults, limits, last) {
  const picture = svg('svg', { class: 'plot', tabindex: '0', role: 'img' }), reading = h('p', { class: 'reading', 'aria-live': 'polite' });
  const several = band && Math.max(...band.n, 0) > 1, base = series || { times: band.times, values: band.median };
  const values = [...base.values, ...(several ? [...band.min, ...band.max] : [])].filter((value) => value !== null);
  const [low, high] = limits || (values.length ? [smallest(values), -smallest(values.map((value) => -value))] : [0, 1]);
  const floor = low > 0 && low < high * 0.6 ? 0 : low, top = high === floor ? floor + 1 : high, end = last || Math.max(base.times[base.times.length - 1] || 0, several ? band.times[band.times.length - 1] : 0) || 1;
  picture.setAttribute('aria-label', `${name}: ${values.length ? `${amount(low)} to ${amount(high)} over ${seconds(end)}` : 'no values'}`);
  const height = 190, left = 54, bottom = height - 22;
  let x, at = null;
  const y = (value) => 10 + (bottom - 10) * (1 - (value - floor) / (top - floor));
  const draw = () => {
    const width = picture.parentElement.clientWidth;
    x = (time) => left + (width - left - 10) * time / end;
    picture.setAttribute('width', width);
    picture.setAttribute('height', height);
    picture.replaceChildren(
      ...faultBands(faults, x, () => true, 10, bottom, end, 20),
      ...ticks(floor, top, 4).map((value) => svg('g', {}, svg('line', { x1: left, x2: width - 10, y1: y(value), y2: y(value), class: 'grid' }), svg('text', { x: left - 6, y: y(value) + 4, class: 'tick end' }, amount(value)))),
      ...ticks(0, end, width / 110).map((time) => tick(time, x(time), height - 6, width)),
      ...(several ? [svg('path', { d: between(band, 'min', 'max', x, y), class: 'extremes' }), svg('path', { d: between(band, 'q1', 'q3', x, y), class: 'quartiles' }), svg('path', { d: line(band.times, band.median, x, y), class: 'median' })] : []),
      svg('path', { d: line(base.times, base.values, x, y), class: series ? 'series' : 'median' }),
      ...(at === null ? [] : [svg('line', { x1: x(base.times[at]), x2: x(base.times[at]), y1: 10, y2: bottom, class: 'cross' })]));
  };
  const read = (index) => {
    at = Math.min(Math.max(index, 0), base.times.length - 1);
    const time = base.times[at], n = several ? band.times.indexOf(time) : -1;
    reading.textContent = `${seconds(time)}: ${amount(base.values[at])}${n >= 0 ? `; of ${band.n[n]} runs ${amount(band.min[n])} to ${amount(band.max[n])}, median ${amount(band.median[n])}` : ''}`;
    draw();
  };
  picture.addEventListener('pointermove', (event) => {
    if (!base.times.length || !x) return;
    const time = (event.clientX - picture.getBoundingClientRect().left - left) / (x(end) - left) * end;
    read(nearest(base.times, time));
  });
  picture.addEventListener('keydown', (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move && base.times.length) { read(at === null ? 0 : at + move); event.preventDefault(); }
  });
  return h('figure', {}, h('figcaption', {}, h('strong', {}, name), h('span', { class: 'quiet' }, ` ${about}`)), drawn(h('div', { class: 'chart' }, picture), draw), reading);
}

function nearest(times, time) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1; else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}
