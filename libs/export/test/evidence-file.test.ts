import { formatCollectorBody, collectorLine, entryBytes } from '@belay/envelope';
import { describe, expect, test } from 'vitest';
import { StatedFinder } from '../src/evidence-file.js';

const LOG = 'belay.example/acme/agents';
const NEEDLE = '"kind":"coverage.stated"';

/** The lines of an entry that states coverage. */
function statedAt(index: number): Buffer {
  const received = '2026-01-01T00:00:00.000Z';
  const body = formatCollectorBody({
    kind: 'coverage.stated',
    v: 1,
    type: 'session',
    session: `run-${index}`,
    statement: `sha256:${'0'.repeat(64)}`,
    size: index,
    time: received,
    status: 'complete',
    policy: `sha256:${'1'.repeat(64)}`,
  });
  return Buffer.concat([
    entryBytes(collectorLine({ index, log: LOG, received, role: 'collector' }), body),
    Buffer.from('\n'),
  ]);
}

/** What is found in a file that comes in blocks of a size. */
function find(file: Buffer, size: number): readonly number[] {
  const finder = new StatedFinder();
  for (let at = 0; at < file.length; at += size) finder.push(file.subarray(at, at + size));
  return finder.found.map(({ index }) => index);
}

describe('statements are found before the entries are read', () => {
  const other = Buffer.from(`{"a":"${'x'.repeat(900)}"}\n{"b":1}\n`);

  test('wherever a block ends', () => {
    const file = Buffer.concat([other, statedAt(7), statedAt(8), other, other, statedAt(9)]);
    for (let size = 1; size < 400; size += 7) expect(find(file, size)).toEqual([7, 8, 9]);
    expect(find(file, file.length)).toEqual([7, 8, 9]);
  });

  test('and what is in no line of an entry hides none, and is not kept', () => {
    for (const junk of [NEEDLE, NEEDLE.repeat(4_000), `${NEEDLE}${' '.repeat(200_000)}`]) {
      const file = Buffer.concat([other, Buffer.from(`${junk}\n`), statedAt(7)]);
      for (const size of [977, 65_536, file.length]) expect(find(file, size)).toEqual([7]);
    }
    // A line without an end, over which each block would have been copied again: 8 MiB, in blocks.
    const finder = new StatedFinder();
    const block = Buffer.alloc(64 * 1024, NEEDLE);
    let most = 0;
    for (let n = 0; n < 128; n++) {
      finder.push(block);
      most = Math.max(most, finder.kept);
    }
    expect(most).toBeLessThan(16 * 1024);
  });
});
