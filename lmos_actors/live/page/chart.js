// A chart of a measured series of a run; it grows while the run goes on.

const smallest = (values) => values.reduce((one, other) => (other < one ? other : one));

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

const CHART = { height: 190, left: 54, top: 10, below: 22, right: 10 };

// One series as a line, with the range of all seeds (`band`) around it, over the faults of the run. `limits`, the least and
// the greatest value, and `last`, the end of time, are shared by charts that are compared. `tall`: a wide chart is higher,
// too.
class Chart {
  constructor(name, about, of) {
    this.name = name;
    this.at = null;
    this.picture = svg('svg', { class: 'plot', tabindex: '0', role: 'img', onpointermove: (event) => this.pointed(event), onkeydown: (event) => this.key(event) });
    this.reading = h('p', { class: 'reading', 'aria-live': 'polite' });
    this.now = h('span', { class: 'now' });
    this.about = h('span', { class: 'quiet' }, ` ${about}`);
    this.element = h('figure', {}, h('figcaption', {}, h('strong', {}, isolated(name)), this.about, this.now), drawn(h('div', { class: 'chart' }, this.picture), () => this.draw()), this.reading);
    this.show(of);
  }

  // Shows other values, such as new ones.
  show({ band = null, series = null, faults = [], limits = null, last = 0, tall = false }) {
    const several = band && Math.max(...band.n, 0) > 1, base = series || { times: band.times, values: band.median };
    const values = [...base.values, ...(several ? [...band.min, ...band.max] : [])].filter((value) => value !== null);
    const [low, high] = limits || (values.length ? [smallest(values), -smallest(values.map((value) => -value))] : [0, 1]);
    Object.assign(this, { band, series, faults, several, base, tall, floor: low > 0 && low < high * 0.6 ? 0 : low });
    this.top = high === this.floor ? this.floor + 1 : high;
    this.end = last || Math.max(base.times[base.times.length - 1] || 0, several ? band.times[band.times.length - 1] : 0) || 1;
    this.picture.setAttribute('aria-label', `${this.name}: ${values.length ? `${amount(low)} to ${amount(high)} over ${seconds(this.end)}` : 'no values'}`);
    if (this.picture.isConnected) this.draw();
  }

  draw() {
    const { band, base, floor, top, end, several, at } = this, width = this.width = this.picture.parentElement.clientWidth, height = this.tall ? Math.min(Math.max(CHART.height, width * 0.36), 420) : CHART.height, bottom = height - CHART.below, right = width - CHART.right;
    const x = (time) => CHART.left + (right - CHART.left) * time / end, y = (value) => CHART.top + (bottom - CHART.top) * (1 - (value - floor) / (top - floor));
    this.picture.setAttribute('width', width);
    this.picture.setAttribute('height', height);
    this.picture.replaceChildren(
      ...faultBands(this.faults, x, () => true, CHART.top, bottom, end, 20),
      ...ticks(floor, top, 4).map((value) => svg('g', {}, svg('line', { x1: CHART.left, x2: right, y1: y(value), y2: y(value), class: 'gridline' }), svg('text', { x: CHART.left - 6, y: y(value) + 4, class: 'tick end' }, amount(value)))),
      ...ticks(0, end, width / 110).map((time) => tick(time, x(time), height - 6, width)),
      ...(several ? [svg('path', { d: between(band, 'min', 'max', x, y), class: 'extremes' }), svg('path', { d: between(band, 'q1', 'q3', x, y), class: 'quartiles' }), svg('path', { d: line(band.times, band.median, x, y), class: 'median' })] : []),
      svg('path', { d: line(base.times, base.values, x, y), class: this.series ? 'series' : 'median' }),
      ...(at === null || at >= base.times.length ? [] : [svg('line', { x1: x(base.times[at]), x2: x(base.times[at]), y1: CHART.top, y2: bottom, class: 'cross' })]));
  }

  read(index) {
    const { band, base, several } = this;
    this.at = Math.min(Math.max(index, 0), base.times.length - 1);
    const time = base.times[this.at], n = several ? band.times.indexOf(time) : -1;
    this.reading.textContent = `${seconds(time)}: ${amount(base.values[this.at])}${n >= 0 ? `; of ${band.n[n]} runs ${amount(band.min[n])} to ${amount(band.max[n])}, median ${amount(band.median[n])}` : ''}`;
    this.draw();
  }

  pointed(event) {
    if (!this.base.times.length || !this.width) return;
    const place = event.clientX - this.picture.getBoundingClientRect().left - CHART.left;
    this.read(nearest(this.base.times, place / (this.width - CHART.left - CHART.right) * this.end));
  }

  key(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move || !this.base.times.length) return;
    this.read(this.at === null ? 0 : this.at + move);
    event.preventDefault();
  }
}

function nearest(times, time) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1; else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}

// A time at an axis, kept inside the picture at the right end.
function tick(time, x, y, width) {
  return svg('text', { x: Math.min(Math.max(x, 1), width - 4), y, class: x > width - 30 ? 'tick end' : x < 12 ? 'tick start' : 'tick' }, seconds(time));
}

// What a fault has struck: agents, or nodes; restarted nodes with the agents on them.
function struck(fault) {
  return fault.restarted.length ? fault.restarted.map(({ node, agents }) => nodeAndAgents(node, agents)) : fault.targets;
}

const faultName = (fault) => (fault.id ? `${fault.kind} ${fault.id}` : fault.kind);

function faultBands(faults, x, inside, top, bottom, whole, labels) {
  const shown = faults.filter((fault) => inside(fault.begin, fault.end === null ? whole : fault.end));
  const begins = shown.map((fault) => x(fault.begin));
  return shown.map((fault, n) => {
    const begin = x(fault.begin), end = fault.end === null ? whole : fault.end, width = Math.max(x(end) - begin, 2);
    // a label has the room up to the next band; of bands that begin at one place, only the first has a label
    const taken = begins.some((other, m) => m !== n && Math.abs(other - begin) < 8 && (m < n)), next = Math.min(...begins.filter((other) => other >= begin + 8));
    const room = Math.min(width, next - begin - 4);
    return svg('g', { class: 'faultband' }, svg('rect', { x: begin, y: top, width, height: bottom - top }),
      svg('title', {}, `${faultName(fault)}${struck(fault).length ? `: ${few(struck(fault), 10)}` : ''}\n${seconds(fault.begin)} to ${fault.end === null ? 'the end' : seconds(fault.end)}`),
      taken ? null : svg('text', { x: begin + (room > 30 ? 3 : -3), y: labels }, room > 30 ? cut(faultName(fault), Math.floor(room / 6.5)) : SIGNS.fault));
  });
}
