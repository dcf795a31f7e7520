// The price of the tree: hashing a leaf, growing, and proving.
import { randomBytes } from 'node:crypto';
import { CompactRange, leafHash, rangeRoot } from '@belay/merkle';
import { median, table } from './measure.mjs';

export async function run({ scale }) {
  const rounds = 5;
  const leaves = Math.round(100_000 * scale);
  const data = Array.from({ length: 1_000 }, () => randomBytes(500));
  const figures = {
    'leaf hash of 500 B': [],
    'append to a compact range': [],
    'range proof of 1,000 leaves': [],
  };
  for (let round = 0; round < rounds; round++) {
    let start = performance.now();
    for (let at = 0; at < leaves; at++) leafHash(data[at % 1_000]);
    figures['leaf hash of 500 B'].push(((performance.now() - start) * 1_000) / leaves);
    const range = CompactRange.empty();
    const leaf = leafHash(data[0]);
    start = performance.now();
    for (let at = 0; at < leaves; at++) range.append(leaf);
    figures['append to a compact range'].push(((performance.now() - start) * 1_000) / leaves);
    const left = CompactRange.empty();
    for (let at = 0; at < 1_000; at++) left.append(leaf);
    const run = Array.from({ length: 1_000 }, () => leaf);
    start = performance.now();
    for (let at = 0; at < 20; at++)
      rangeRoot({ index: 1_000n, size: 2_000n, leaves: run, left: left.hashes, right: [] });
    figures['range proof of 1,000 leaves'].push(((performance.now() - start) * 1_000) / 20);
  }
  const rows = Object.entries(figures).map(([what, times]) => ({
    what,
    'us (median)': median(times).toFixed(2),
  }));
  console.log(table(rows));
  return rows;
}
