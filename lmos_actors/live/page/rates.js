// Rates: how much a count has grown, by the clock of the node.

const WINDOW = 2; // seconds that a rate covers at least
const MOST_RATES = 2_000;

class Rates {
  constructor() { this.all = new Map(); }

  // Notes a count. A count that has fallen begins anew: its agent was restarted.
  note(key, count, time) {
    let marks = this.all.get(key);
    if (!marks || count < marks[marks.length - 1][1]) {
      if (this.all.size >= MOST_RATES) this.all.delete(this.all.keys().next().value);
      this.all.set(key, marks = [[time, count]]);
      return;
    }
    const last = marks[marks.length - 1];
    if (count === last[1]) return;
    marks.push([time, count]);
    // one mark from before the window stays, to measure the growth in the window
    while (marks.length > 2 && marks[1][0] < time - WINDOW) marks.shift();
  }

  // The rate now, null as long as it is not known. A count that stands still for longer than usual has the rate 0.
  of(key, time) {
    const marks = this.all.get(key);
    if (!marks) return null;
    const last = marks[marks.length - 1];
    if (marks.length < 2) return time - last[0] > WINDOW ? 0 : null;
    const gap = last[0] - marks[marks.length - 2][0];
    if (time - last[0] > Math.max(WINDOW, 3 * gap)) return 0;
    return (last[1] - marks[0][1]) / (last[0] - marks[0][0]);
  }

  clear() { this.all.clear(); }
}

// 0, 0.3, 12, 4.1 k, 1.2 M
function short(number) {
  if (number === null || number === undefined) return '';
  if (number < 9.95) return number === 0 ? '0' : number < 0.05 ? '<0.1' : String(Number(number.toFixed(1)));
  if (number < 9_999.5) return Math.round(number).toLocaleString('en');
  const [size, word] = number < 999_950 ? [1e3, 'k'] : number < 999_950_000 ? [1e6, 'M'] : [1e9, 'G'];
  return `${(number / size).toFixed(number / size < 99.95 ? 1 : 0)} ${word}`;
}
