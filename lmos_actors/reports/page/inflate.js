// A zlib stream without the browser's help, for those that have no DecompressionStream (RFC 1950, RFC 1951).

const LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const DISTANCES = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];

function huffman(lengths) {
  const counts = new Uint16Array(16);
  for (const length of lengths) counts[length] += 1;
  counts[0] = 0;
  const offsets = new Uint16Array(17);
  for (let n = 1; n < 16; n++) offsets[n + 1] = offsets[n] + counts[n];
  const symbols = new Uint16Array(lengths.length);
  lengths.forEach((length, symbol) => { if (length) symbols[offsets[length]++] = symbol; });
  return { counts, symbols };
}

function inflate(input) {
  let at = 2, held = 0, bits = 0, size = 0;
  let out = new Uint8Array(input.length * 8 + 1024);

  const take = (count) => {
    while (bits < count) { held |= input[at++] << bits; bits += 8; }
    const value = held & ((1 << count) - 1);
    held >>>= count;
    bits -= count;
    return value;
  };
  const symbol = ({ counts, symbols }) => {
    let code = 0, first = 0, index = 0;
    for (let length = 1; length < 16; length++) {
      code |= take(1);
      const count = counts[length];
      if (code - count < first) return symbols[index + (code - first)];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    throw new Error('the packed data is broken');
  };
  const room = (more) => {
    if (size + more <= out.length) return;
    const larger = new Uint8Array((size + more) * 2);
    larger.set(out);
    out = larger;
  };
  const tables = () => {
    const literals = take(5) + 257, distances = take(5) + 1, codes = take(4) + 4;
    const order = new Array(19).fill(0);
    for (let n = 0; n < codes; n++) order[CODE_ORDER[n]] = take(3);
    const code = huffman(order), lengths = [];
    while (lengths.length < literals + distances) {
      const found = symbol(code);
      if (found < 16) { lengths.push(found); continue; }
      const value = found === 16 ? lengths[lengths.length - 1] : 0;
      const times = found === 16 ? 3 + take(2) : found === 17 ? 3 + take(3) : 11 + take(7);
      for (let n = 0; n < times; n++) lengths.push(value);
    }
    return [huffman(lengths.slice(0, literals)), huffman(lengths.slice(literals))];
  };
  const fixed = () => [
    huffman(Array.from({ length: 288 }, (_, n) => (n < 144 ? 8 : n < 256 ? 9 : n < 280 ? 7 : 8))),
    huffman(new Array(30).fill(5)),
  ];
  const block = ([literals, distances]) => {
    for (let found = symbol(literals); found !== 256; found = symbol(literals)) {
      room(258);
      if (found < 256) { out[size++] = found; continue; }
      const length = LENGTHS[found - 257] + take(LENGTH_BITS[found - 257]);
      const code = symbol(distances);
      const back = DISTANCES[code] + take(code < 2 ? 0 : (code >> 1) - 1);
      for (let n = 0; n < length; n++, size++) out[size] = out[size - back];
    }
  };
  const stored = () => {
    held = bits = 0;
    const length = input[at] | (input[at + 1] << 8);
    room(length);
    out.set(input.subarray(at + 4, at + 4 + length), size);
    at += 4 + length;
    size += length;
  };

  for (let last = 0; !last;) {
    last = take(1);
    const kind = take(2);
    if (kind === 0) stored(); else block(kind === 1 ? fixed() : tables());
  }
  return out.subarray(0, size);
}
