import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  CompactRange,
  consistencyPlan,
  entriesPath,
  entryBundle,
  foldNodes,
  type Hash,
  hashTile,
  inclusionPlan,
  MerkleError,
  type NodeId,
  parseEntryBundle,
  parseTilePath,
  partialWidth,
  tileOf,
  tilePath,
  verifyConsistency,
  verifyInclusion,
} from '@belay/merkle';
import { leavesOf, mth } from './oracle.js';

function refused(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof MerkleError) return error.code;
    throw error;
  }
  return 'accepted';
}

describe('paths', () => {
  test('as C2SP tlog-tiles writes them', () => {
    expect(tilePath(0, 0n)).toBe('tile/0/000');
    expect(tilePath(0, 999n)).toBe('tile/0/999');
    expect(tilePath(1, 1_000n)).toBe('tile/1/x001/000');
    expect(tilePath(63, 1_234_067n, 5)).toBe('tile/63/x001/x234/067.p/5');
    expect(entriesPath(273n, 112)).toBe('tile/entries/273.p/112');
    expect(entriesPath(7n)).toBe('tile/entries/007');
  });

  test('every path reads back as what it was written from', () => {
    fc.assert(
      fc.property(
        fc.boolean(),
        fc.integer({ min: 0, max: 63 }),
        fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
        fc.integer({ min: 1, max: 256 }),
        (entries, level, n, width) => {
          const text = entries ? entriesPath(n, width) : tilePath(level, n, width);
          expect(parseTilePath(text)).toEqual({
            kind: entries ? 'entries' : 'tile',
            level: entries ? 0 : level,
            n,
            width,
          });
        },
      ),
    );
  });

  test('one tile has one path', () => {
    for (const wrong of [
      '',
      'tile/0/',
      'tile/0/0',
      'tile/00/000',
      'tile/01/000',
      'tile/64/000',
      'tile/-1/000',
      'tile/0/x000/001',
      'tile/0/x001',
      'tile/0/001/000',
      'tile/0/x001/x000',
      'tile/0/000.p/0',
      'tile/0/000.p/01',
      'tile/0/000.p/256',
      'tile/0/000.p/999',
      'tile/0/000.p/',
      'tile/0/000.p/1/',
      '/tile/0/000',
      'tile/0/000\n',
      'tile/Entries/000',
      'tile/0/x018/x446/x744/x073/x709/x551/616',
      `tile/0/${'x999/'.repeat(20)}999`,
      'tile/0/０００',
    ]) {
      expect([wrong, refused(() => parseTilePath(wrong))]).toEqual([wrong, 'tile']);
    }
    expect(refused(() => tilePath(0, -1n))).toBe('tile');
    expect(refused(() => tilePath(0, 0n, 0))).toBe('tile');
    expect(refused(() => tilePath(0, 0n, 257))).toBe('tile');
    expect(refused(() => tilePath(0.5, 0n))).toBe('tile');
  });

  test('partial widths', () => {
    const widths = (size: bigint) => [0, 1, 2, 3].map((level) => partialWidth(level, size));
    expect(widths(70_000n)).toEqual([112, 17, 1, 0]);
    expect(widths(256n)).toEqual([0, 1, 0, 0]);
    expect(widths(65_536n)).toEqual([0, 0, 1, 0]);
    expect(widths(0n)).toEqual([0, 0, 0, 0]);
  });
});

describe('nodes from tiles', () => {
  const SIZE = 70_001;
  const leaves = leavesOf(SIZE);
  const nodes = new Map<string, Hash>();
  const roots = new Map<number, Buffer>();
  const tree = CompactRange.empty();
  for (const leaf of leaves) {
    tree.append(leaf, (id, hash) => {
      if (id.level % 8 === 0) nodes.set(`${id.level / 8}/${id.index}`, hash);
    });
    roots.set(Number(tree.end), tree.root());
  }

  /** Bytes of a tile as published for a tree of `size`: full if it can be, else its partial width. */
  function tileBytes(level: number, n: bigint, size: bigint): Buffer {
    const full = size >> BigInt(8 * (level + 1));
    const width = n < full ? 256 : partialWidth(level, size);
    const hashes = Array.from(
      { length: width },
      (_, i) => nodes.get(`${level}/${n * 256n + BigInt(i)}`) as Hash,
    );
    return Buffer.concat(hashes);
  }

  function nodeIn(id: NodeId, size: bigint): Hash {
    const { level, n, first, count } = tileOf(id);
    return hashTile(tileBytes(level, n, size), first, count);
  }

  test('a node of every level', () => {
    for (const [level, index] of [
      [0, 300],
      [1, 34_999],
      [7, 545],
      [8, 272],
      [9, 135],
      [15, 1],
      [16, 0],
    ] as const) {
      const id = { level, index: BigInt(index) };
      const width = 2 ** level;
      expect(nodeIn(id, BigInt(SIZE))).toEqual(mth(leaves.slice(index * width, (index + 1) * width)));
    }
  });

  test('inclusion and consistency proofs from tiles alone, for sizes around every boundary', () => {
    for (const size of [1, 2, 255, 256, 257, 511, 512, 4_095, 65_535, 65_536, 65_537, 70_000, 70_001]) {
      const n = BigInt(size);
      const root = roots.get(size) as Buffer;
      for (const index of [0, 1, 255, 256, 257, 511, 65_535, 65_536, size - 2, size - 1]) {
        if (index < 0 || index >= size) continue;
        const proof = inclusionPlan(BigInt(index), n).map((ids) => foldNodes(ids.map((id) => nodeIn(id, n))));
        verifyInclusion({ index: BigInt(index), size: n, leaf: leaves[index] as Buffer, proof, root });
        if (index === 0) continue;
        verifyConsistency({
          size1: BigInt(index),
          size2: n,
          root1: roots.get(index) as Buffer,
          root2: root,
          proof: consistencyPlan(BigInt(index), n).map((ids) => foldNodes(ids.map((id) => nodeIn(id, n)))),
        });
      }
    }
  });

  test('a span that a tile does not have is refused', () => {
    const tile = tileBytes(0, 273n, BigInt(SIZE));
    expect(tile.length).toBe(113 * 32);
    expect(refused(() => hashTile(tile, 112, 2))).toBe('tile');
    expect(refused(() => hashTile(tile, 113, 1))).toBe('tile');
    expect(refused(() => hashTile(tile, 1, 2))).toBe('tile');
    expect(refused(() => hashTile(tile, 0, 3))).toBe('tile');
    expect(refused(() => hashTile(tile, 0, 0))).toBe('tile');
    expect(refused(() => hashTile(tile, -2, 2))).toBe('tile');
    expect(refused(() => hashTile(tile.subarray(1), 0, 1))).toBe('tile');
    expect(refused(() => hashTile(Buffer.alloc(257 * 32), 0, 1))).toBe('tile');
  });

  test('a node does not keep its tile in memory', () => {
    expect(hashTile(Buffer.alloc(8_192), 0, 1).buffer.byteLength).toBeLessThanOrEqual(8_192);
    const tile = tileBytes(0, 0n, BigInt(SIZE));
    const node = hashTile(tile, 3, 1);
    tile.fill(0);
    expect(node).toEqual(leaves[3]);
  });
});

describe('entry bundles', () => {
  test('read back as they were written', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 600 }), { maxLength: 256 }), (entries) => {
        const buffers = entries.map((entry) => Buffer.from(entry));
        expect(parseEntryBundle(entryBundle(buffers))).toEqual(buffers);
      }),
      { numRuns: 50 },
    );
    expect(entryBundle([Buffer.from('ab'), Buffer.alloc(0)]).toString('hex')).toBe('00026162' + '0000');
  });

  test('cut short, longer than 256 entries, or with an entry too long: refused', () => {
    const bundle = entryBundle([Buffer.from('abc'), Buffer.from('d')]);
    for (let length = 1; length < bundle.length; length++) {
      const expected = length === 5 ? 'accepted' : 'tile';
      expect([length, refused(() => parseEntryBundle(bundle.subarray(0, length)))]).toEqual([
        length,
        expected,
      ]);
    }
    expect(refused(() => parseEntryBundle(Buffer.alloc(2 * 257)))).toBe('tile');
    expect(parseEntryBundle(Buffer.alloc(2 * 256))).toHaveLength(256);
    expect(refused(() => entryBundle([Buffer.alloc(65_536)]))).toBe('tile');
    expect(entryBundle([Buffer.alloc(65_535)])).toHaveLength(65_537);
  });
});
