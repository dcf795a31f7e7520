import { createHash } from 'node:crypto';
import { LogTree, TreeDamaged, type TileReader } from '@belay/log';
import {
  CompactRange,
  consistencyPlan,
  foldNodes,
  leafHash,
  type NodeId,
  verifyConsistency,
  verifyRange,
} from '@belay/merkle';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

const leaf = (at: number): Buffer => leafHash(Buffer.from(String(at)));

/** Root of leaves [from, to) straight from the definition (RFC 6962, section 2.1). */
function slowRoot(from: number, to: number): Buffer {
  if (to - from === 1) return leaf(from);
  let split = 1;
  while (split * 2 < to - from) split *= 2;
  const hash = createHash('sha256').update(Buffer.of(1));
  return hash
    .update(slowRoot(from, from + split))
    .update(slowRoot(from + split, to))
    .digest();
}

function grown(steps: readonly number[]): { trees: LogTree[]; read: TileReader; tiles: Map<string, Buffer> } {
  const tiles = new Map<string, Buffer>();
  const trees = [LogTree.empty()];
  let size = 0;
  for (const step of steps) {
    const tree = (trees[trees.length - 1] as LogTree).grow(
      Array.from({ length: step }, (_, at) => leaf(size + at)),
    );
    for (const tile of tree.tiles) tiles.set(`${tile.level}/${tile.n}`, tile.hashes);
    size += step;
    trees.push(tree);
  }
  return { trees, tiles, read: async (level, n) => tiles.get(`${level}/${n}`) ?? null };
}

describe('LogTree', () => {
  const steps = fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 6 });

  it('has the root of the definition, ranges that verify and proofs to every earlier size', async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(), fc.nat(), async (sizes, a, b) => {
        const { trees, read } = grown(sizes);
        const tree = trees[trees.length - 1] as LogTree;
        expect(tree.root).toEqual(slowRoot(0, tree.size));
        const from = a % tree.size;
        const to = from + 1 + (b % (tree.size - from));
        const { left, right } = await tree.around(from, to, read);
        const leaves = Array.from({ length: to - from }, (_, at) => leaf(from + at));
        verifyRange({ index: BigInt(from), size: BigInt(tree.size), leaves, left, right, root: tree.root });
        for (const earlier of trees) {
          expect(await tree.rootAt(earlier.size, read)).toEqual(earlier.root);
          verifyConsistency({
            size1: BigInt(earlier.size),
            size2: BigInt(tree.size),
            root1: earlier.root,
            root2: tree.root,
            proof: await tree.consistency(earlier.size, read),
          });
        }
      }),
      { numRuns: 60 },
    );
  });

  it('is the same when it is loaded, and grows the same way from there', async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.integer({ min: 1, max: 600 }), async (sizes, more) => {
        const { trees, read } = grown(sizes);
        const tree = trees[trees.length - 1] as LogTree;
        const from = tree.size - (tree.size % 256);
        const leaves = Array.from({ length: tree.size - from }, (_, at) => leaf(from + at));
        const loaded = await LogTree.load(tree.size, leaves, read);
        expect(loaded.root).toEqual(tree.root);
        expect(loaded.frontier).toEqual(tree.frontier);
        const next = Array.from({ length: more }, (_, at) => leaf(tree.size + at));
        expect(loaded.grow(next).tiles).toEqual(tree.grow(next).tiles);
        expect(loaded.grow(next).root).toEqual(tree.grow(next).root);
      }),
      { numRuns: 40 },
    );
  });

  it('carries tiles up more than one level', async () => {
    const { trees, tiles, read } = grown([65_000, 536, 300]);
    expect([...tiles.keys()].filter((key) => key.startsWith('1/'))).toEqual(['1/0']);
    expect(tiles.size).toBe(256 + 1 + 1);
    const tree = trees[trees.length - 1] as LogTree;
    const loaded = await LogTree.load(
      tree.size,
      Array.from({ length: tree.size % 256 }, (_, at) => leaf(65_836 - (tree.size % 256) + at)),
      read,
    );
    expect(loaded.root).toEqual(tree.root);
    const range = CompactRange.empty();
    for (let at = 0; at < tree.size; at++) range.append(leaf(at));
    expect(tree.root).toEqual(range.root());
    expect(consistencyPlan(65_000n, 65_836n).length).toBe((await tree.consistency(65_000, read)).length);
  });

  it('names what is missing instead of making it up', async () => {
    const { trees, tiles } = grown([600]);
    tiles.delete('0/1');
    const tree = trees[1] as LogTree;
    const leaves = Array.from({ length: 88 }, (_, at) => leaf(512 + at));
    const read: TileReader = async (level, n) => tiles.get(`${level}/${n}`) ?? null;
    await expect(LogTree.load(tree.size, leaves, read)).rejects.toThrow(TreeDamaged);
    await expect(LogTree.load(tree.size, leaves.slice(1), read)).rejects.toThrow(TreeDamaged);
    const nodes: NodeId[] = [];
    expect(() => foldNodes(nodes as never)).toThrow();
  });
});
