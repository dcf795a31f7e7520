import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  CompactRange,
  consistencyPlan,
  decompose,
  EMPTY_ROOT,
  foldNodes,
  inclusionPlan,
  leafHash,
  leafHashOf,
  MerkleError,
  type MerkleErrorCode,
  type NodeId,
  nodeHash,
  rangeRoot,
  verifyConsistency,
  verifyInclusion,
  verifyRange,
  verifySubtreeConsistency,
  verifySubtreeInclusion,
} from '@belay/merkle';
import { cover, leafOf, leavesOf, mth, nodeOf, path, proof, sha256 } from './oracle.js';

const MAX = 33;
const LEAVES = leavesOf(MAX);
const big = BigInt;

function code(run: () => void): MerkleErrorCode | 'accepted' {
  try {
    run();
  } catch (error) {
    if (error instanceof MerkleError) return error.code;
    throw error;
  }
  return 'accepted';
}

/** A copy with one bit changed. */
function flipped(hash: Buffer, bit = 0): Buffer {
  const copy = Buffer.from(hash);
  copy[bit >> 3] = (copy[bit >> 3] as number) ^ (1 << (bit & 7));
  return copy;
}

function span({ level, index }: NodeId): [number, number] {
  return [Number(index << big(level)), Number((index + 1n) << big(level))];
}

/** Every list that is `hashes` with one thing wrong: a bit, one missing, one doubled, one more, two swapped. */
function* mutations(hashes: readonly Buffer[]): Generator<Buffer[]> {
  for (let i = 0; i < hashes.length; i++) {
    const hash = hashes[i] as Buffer;
    yield hashes.with(i, flipped(hash, (i * 37) % 256));
    yield hashes.toSpliced(i, 1);
    yield hashes.toSpliced(i, 0, hash);
    yield hashes.with(i, hash.subarray(0, 31));
    yield hashes.with(i, Buffer.concat([hash, Buffer.alloc(1)]));
    if (i > 0) yield hashes.with(i, hashes[i - 1] as Buffer).with(i - 1, hash);
  }
  yield [...hashes, leafOf(Buffer.from('one too many'))];
  yield [leafOf(Buffer.from('one too many')), ...hashes];
}

describe('hashes', () => {
  test('agree with SHA-256 over prefixed bytes, at every length around the shared room', () => {
    for (const length of [0, 1, 31, 32, 33, 300, 4_096, 65_534, 65_535, 65_536, 65_537, 200_000]) {
      const data = Buffer.alloc(length, length & 0xff);
      expect(leafHash(data)).toEqual(leafOf(data));
      const at = Math.floor(length / 3);
      expect(leafHashOf([data.subarray(0, at), data.subarray(at)])).toEqual(leafOf(data));
    }
    expect(leafHashOf([])).toEqual(leafHash(Buffer.alloc(0)));
    expect(EMPTY_ROOT).toEqual(sha256());
  });

  test('a result is not overwritten by the next call', () => {
    const first = leafHash(Buffer.from('a'));
    const copy = Buffer.from(first);
    for (let i = 0; i < 2_000; i++) nodeHash(leafHash(Buffer.from(`${i}`)), first);
    expect(first).toEqual(copy);
  });

  test('random data and cuts', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 6 }), (parts) => {
        expect(leafHashOf(parts)).toEqual(leafOf(Buffer.concat(parts)));
      }),
    );
  });

  test('a node is made of two hashes of exactly 32 bytes', () => {
    const [left, right] = LEAVES as [Buffer, Buffer];
    expect(nodeHash(left, right)).toEqual(nodeOf(left, right));
    for (const wrong of [Buffer.alloc(0), left.subarray(0, 31), Buffer.concat([left, Buffer.alloc(1)])]) {
      expect(code(() => nodeHash(wrong, right))).toBe('hash-length');
      expect(code(() => nodeHash(left, wrong))).toBe('hash-length');
    }
    // The two halves of 64 bytes cut elsewhere would be the same node.
    expect(code(() => nodeHash(Buffer.alloc(30), Buffer.alloc(34)))).toBe('hash-length');
    expect(code(() => nodeHash('x'.repeat(32) as unknown as Buffer, right))).toBe('hash-length');
    expect(code(() => foldNodes([]))).toBe('bounds');
  });
});

describe('decompose and CompactRange', () => {
  test(`every range to ${MAX}: the subtrees, their hashes, and every way to put two ranges together`, () => {
    let ranges = 0;
    for (let begin = 0; begin <= MAX; begin++) {
      const grown = CompactRange.empty(big(begin));
      for (let end = begin; end <= MAX; end++) {
        if (end > begin) grown.append(LEAVES[end - 1] as Buffer);
        const spans = cover(begin, end);
        expect(decompose(big(begin), big(end)).map(span)).toEqual(spans);
        const hashes = spans.map(([a, b]) => mth(LEAVES.slice(a, b)));
        expect(grown.hashes).toEqual(hashes);
        expect([grown.begin, grown.end]).toEqual([big(begin), big(end)]);
        for (let middle = begin; middle <= end; middle++) {
          const left = rangeOf(begin, middle);
          left.appendRange(rangeOf(middle, end));
          expect(left.hashes).toEqual(hashes);
        }
        if (begin === 0) expect(grown.root()).toEqual(mth(LEAVES.slice(0, end)));
        else expect(code(() => grown.root())).toBe('bounds');
        for (const wrong of mutations(hashes)) {
          if (wrong.length === hashes.length && wrong.every((hash) => hash.length === 32)) continue;
          expect(code(() => CompactRange.from(big(begin), big(end), wrong))).toMatch(/^(proof|hash)-length$/);
        }
        ranges++;
      }
    }
    expect(ranges).toBe(((MAX + 1) * (MAX + 2)) / 2);
  });

  test('a visitor is told every node that becomes known exactly once, and with its hash', () => {
    for (const begin of [0, 1, 6]) {
      const seen = new Map<string, Buffer>();
      const range = CompactRange.empty(big(begin));
      for (let i = begin; i < MAX; i++) {
        range.append(LEAVES[i] as Buffer, (id, hash) => {
          const key = `${id.level}/${id.index}`;
          expect(seen.has(key)).toBe(false);
          seen.set(key, hash);
          const [a, b] = span(id);
          expect(hash).toEqual(mth(LEAVES.slice(a, b)));
        });
      }
      let all = 0;
      for (let level = 0; 1 << level <= MAX; level++) {
        for (let a = 0; a + (1 << level) <= MAX; a += 1 << level) if (a >= begin) all++;
      }
      expect(seen.size).toBe(all);
    }
  });

  test('appending a range visits only what the merge makes', () => {
    const left = rangeOf(0, 3);
    const seen: string[] = [];
    left.appendRange(rangeOf(3, 8), (id) => seen.push(`${id.level}/${id.index}`));
    expect(seen).toEqual(['1/1', '2/0', '3/0']);
    expect(code(() => left.appendRange(rangeOf(9, 10)))).toBe('bounds');
  });

  test('a clone is independent, and the list of hashes is a copy', () => {
    const range = rangeOf(0, 7);
    const copy = range.clone();
    copy.append(LEAVES[7] as Buffer);
    range.hashes.pop();
    expect(range.root()).toEqual(mth(LEAVES.slice(0, 7)));
    expect(copy.root()).toEqual(mth(LEAVES.slice(0, 8)));
  });

  test('bounds', () => {
    expect(code(() => decompose(2n, 1n))).toBe('bounds');
    expect(code(() => decompose(-1n, 1n))).toBe('bounds');
    expect(code(() => decompose(0n, 1n << 64n))).toBe('bounds');
    expect(code(() => decompose(0 as unknown as bigint, 1n))).toBe('bounds');
    expect(decompose(0n, (1n << 64n) - 1n)).toHaveLength(64);
    expect(decompose(1n, (1n << 64n) - 1n)).toHaveLength(126);
    const full = CompactRange.from(
      0n,
      (1n << 64n) - 1n,
      Array.from({ length: 64 }, () => EMPTY_ROOT),
    );
    expect(code(() => full.append(EMPTY_ROOT))).toBe('bounds');
  });

  function rangeOf(begin: number, end: number): CompactRange {
    const range = CompactRange.empty(big(begin));
    for (let i = begin; i < end; i++) range.append(LEAVES[i] as Buffer);
    return range;
  }
});

describe(`inclusion, every (index, size) to ${MAX}`, () => {
  test('plan, proof, root, and each mutation refused', () => {
    let proofs = 0;
    for (let size = 1; size <= MAX; size++) {
      const leaves = LEAVES.slice(0, size);
      const root = mth(leaves);
      for (let index = 0; index < size; index++) {
        const expected = path(index, leaves);
        const planned = inclusionPlan(big(index), big(size)).map((ids) =>
          foldNodes(ids.map((id) => mth(LEAVES.slice(...span(id))))),
        );
        expect(planned).toEqual(expected);
        const good = {
          index: big(index),
          size: big(size),
          leaf: leaves[index] as Buffer,
          proof: expected,
          root,
        };
        verifyInclusion(good);
        proofs++;
        expect(code(() => verifyInclusion({ ...good, leaf: flipped(good.leaf, 255) }))).toBe('root-mismatch');
        expect(code(() => verifyInclusion({ ...good, root: flipped(root, 7) }))).toBe('root-mismatch');
        expect(code(() => verifyInclusion({ ...good, root: root.subarray(1) }))).toBe('hash-length');
        expect(code(() => verifyInclusion({ ...good, leaf: good.leaf.subarray(1) }))).toBe('hash-length');
        for (const wrong of mutations(expected)) {
          expect(code(() => verifyInclusion({ ...good, proof: wrong }))).not.toBe('accepted');
        }
        for (let other = 0; other < size + 2; other++) {
          if (other === index) continue;
          expect(code(() => verifyInclusion({ ...good, index: big(other) }))).not.toBe('accepted');
        }
      }
    }
    expect(proofs).toBe((MAX * (MAX + 1)) / 2);
  });

  test('bounds and caps', () => {
    const good = { index: 0n, size: 1n, leaf: EMPTY_ROOT, proof: [], root: EMPTY_ROOT };
    verifyInclusion(good);
    expect(code(() => verifyInclusion({ ...good, size: 0n }))).toBe('bounds');
    expect(code(() => verifyInclusion({ ...good, index: -1n }))).toBe('bounds');
    expect(code(() => verifyInclusion({ ...good, size: 1n << 64n }))).toBe('bounds');
    const long = Array.from({ length: 65 }, () => EMPTY_ROOT);
    expect(code(() => verifyInclusion({ ...good, size: (1n << 64n) - 1n, proof: long }))).toBe(
      'proof-length',
    );
    expect(code(() => inclusionPlan(1n, 1n))).toBe('bounds');
  });
});

describe(`consistency, every pair of sizes to ${MAX}`, () => {
  test('plan, proof, roots, and each mutation refused', () => {
    for (let size2 = 1; size2 <= MAX; size2++) {
      const leaves = LEAVES.slice(0, size2);
      const root2 = mth(leaves);
      for (let size1 = 1; size1 <= size2; size1++) {
        const root1 = mth(LEAVES.slice(0, size1));
        const expected = proof(size1, leaves);
        const planned = consistencyPlan(big(size1), big(size2)).map((ids) =>
          foldNodes(ids.map((id) => mth(LEAVES.slice(...span(id))))),
        );
        expect(planned).toEqual(expected);
        const good = { size1: big(size1), size2: big(size2), root1, root2, proof: expected };
        verifyConsistency(good);
        expect(code(() => verifyConsistency({ ...good, root1: flipped(root1) }))).toBe('root-mismatch');
        expect(code(() => verifyConsistency({ ...good, root2: flipped(root2) }))).toBe('root-mismatch');
        expect(code(() => verifyConsistency({ ...good, root1: root1.subarray(1) }))).toBe('hash-length');
        for (const wrong of mutations(expected)) {
          expect(code(() => verifyConsistency({ ...good, proof: wrong }))).not.toBe('accepted');
        }
        for (let other = 1; other <= size2; other++) {
          if (other === size1) continue;
          expect(code(() => verifyConsistency({ ...good, size1: big(other) }))).not.toBe('accepted');
        }
        if (size1 < size2) {
          expect(code(() => verifyConsistency({ ...good, size1: big(size2), size2: big(size1) }))).toBe(
            'bounds',
          );
        }
      }
    }
  });

  test('from the empty tree: nothing to prove, and only from the empty root (the rule of tlog-witness)', () => {
    const root2 = mth(LEAVES);
    const good = { size1: 0n, size2: big(MAX), root1: EMPTY_ROOT, root2, proof: [] };
    verifyConsistency(good);
    verifyConsistency({ ...good, size2: 0n, root2: EMPTY_ROOT });
    expect(code(() => verifyConsistency({ ...good, root1: root2 }))).toBe('root-mismatch');
    expect(code(() => verifyConsistency({ ...good, size2: 0n }))).toBe('root-mismatch');
    expect(code(() => verifyConsistency({ ...good, proof: [EMPTY_ROOT] }))).toBe('proof-length');
    expect(consistencyPlan(0n, 5n)).toEqual([]);
    expect(consistencyPlan(5n, 5n)).toEqual([]);
    expect(code(() => consistencyPlan(6n, 5n))).toBe('bounds');
  });
});

describe('ranges', () => {
  const proofOf = (first: number, count: number, size: number) => ({
    index: big(first),
    size: big(size),
    leaves: LEAVES.slice(first, first + count),
    left: cover(0, first).map((s) => mth(LEAVES.slice(...s))),
    right: cover(first + count, size).map((s) => mth(LEAVES.slice(...s))),
    root: mth(LEAVES.slice(0, size)),
  });

  test(`every (first, count, size) to ${MAX}, with each mutation refused`, { timeout: 120_000 }, () => {
    let proofs = 0;
    let refused = 0;
    for (let size = 1; size <= MAX; size++) {
      for (let first = 0; first < size; first++) {
        for (let count = 1; first + count <= size; count++) {
          const good = proofOf(first, count, size);
          verifyRange(good);
          proofs++;
          const wrong: (typeof good)[] = [
            { ...good, root: flipped(good.root, 100) },
            { ...good, index: good.index + 1n },
            { ...good, left: good.right, right: good.left },
          ];
          if (first > 0) wrong.push({ ...good, index: good.index - 1n });
          for (const left of mutations(good.left)) wrong.push({ ...good, left });
          for (const right of mutations(good.right)) wrong.push({ ...good, right });
          for (const leaves of mutations(good.leaves)) wrong.push({ ...good, leaves });
          for (const bad of wrong) {
            // Swapping two equally empty sides changes nothing.
            if (bad.left === good.right && good.left.length + good.right.length === 0) continue;
            if (code(() => verifyRange(bad)) === 'accepted') throw new Error(`${first}+${count} of ${size}`);
            refused++;
          }
        }
      }
    }
    expect(proofs).toBe((MAX * (MAX + 1) * (MAX + 2)) / 6);
    expect(refused).toBeGreaterThan(400_000);
  });

  test('the size is not bound by a proof, only by the signed head it comes with', () => {
    // In a tree of 3 the last hash is a leaf, in one of 4 a pair: the same bytes either way.
    const good = proofOf(0, 1, 3);
    verifyRange(good);
    verifyRange({ ...good, size: 4n });
    expect(code(() => verifyRange({ ...good, size: 2n }))).toBe('proof-length');
    expect(code(() => verifyRange({ ...good, size: 6n }))).toBe('proof-length' /* 1 + 2 + 2 */);
  });

  test('a range of nothing proves nothing', () => {
    expect(code(() => rangeRoot({ ...proofOf(3, 1, 5), leaves: [] }))).toBe('bounds');
    const many = Array.from({ length: 65 }, () => EMPTY_ROOT);
    expect(code(() => rangeRoot({ ...proofOf(3, 1, 5), left: many }))).toBe('proof-length');
  });

  test('random trees, ranges and damage', () => {
    const leaves = leavesOf(900);
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 900 }),
        fc.nat(),
        fc.nat(),
        fc.nat(),
        fc.nat(),
        (size, a, b, which, bit) => {
          const first = a % size;
          const count = 1 + (b % (size - first));
          const nodes = (begin: number, end: number) =>
            cover(begin, end).map(([x, y]) => mth(leaves.slice(x, y)));
          const good = {
            index: big(first),
            size: big(size),
            leaves: leaves.slice(first, first + count),
            left: nodes(0, first),
            right: nodes(first + count, size),
            root: mth(leaves.slice(0, size)),
          };
          verifyRange(good);
          const all = [...good.left, ...good.leaves, ...good.right];
          const at = which % all.length;
          const damaged = all.with(at, flipped(all[at] as Buffer, bit % 256));
          const bad = {
            ...good,
            left: damaged.slice(0, good.left.length),
            leaves: damaged.slice(good.left.length, good.left.length + count),
            right: damaged.slice(good.left.length + count),
          };
          expect(code(() => verifyRange(bad))).toBe('root-mismatch');
        },
      ),
      { numRuns: 150 },
    );
  });

  test('beyond what a list of leaves could hold: a tree of more than 2^53 leaves', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: 1n << 53n, max: (1n << 64n) - 2_000n }),
        fc.bigInt({ min: 0n, max: 900n }),
        fc.integer({ min: 1, max: 50 }),
        (start, before, count) => {
          // A made-up tree whose left part is only known by hashes; everything after it is real.
          const left = decompose(0n, start).map((_, i) => leafOf(Buffer.from(`left ${i}`)));
          const tree = CompactRange.from(0n, start, left);
          for (let i = 0n; i < before; i++) tree.append(leafOf(Buffer.from(`before ${i}`)));
          const known = tree.hashes;
          const leaves = leavesOf(count);
          for (const leaf of leaves) tree.append(leaf);
          const index = start + before;
          const size = index + big(count) + 7n;
          const after = CompactRange.empty(index + big(count));
          for (let i = 0; i < 7; i++) after.append(leafOf(Buffer.from(`after ${i}`)));
          const right = after.hashes;
          tree.appendRange(after);
          verifyRange({ index, size, leaves, left: known, right, root: tree.root() });
          expect(
            code(() =>
              verifyRange({ index: index + 1n, size, leaves, left: known, right, root: tree.root() }),
            ),
          ).not.toBe('accepted');
        },
      ),
      { numRuns: 40 },
    );
  });
});

describe('subtrees', () => {
  test(`every subtree of every tree to 17: inclusion in it, and its consistency with the tree`, () => {
    let subtrees = 0;
    for (let start = 0; start < 17; start++) {
      for (let end = start + 1; end <= 17; end++) {
        let width = 1;
        while (width < end - start) width *= 2;
        const leaves = LEAVES.slice(start, end);
        const subtree = mth(leaves);
        const bounds = { start: big(start), end: big(end) };
        const valid = start % width === 0;
        for (let i = 0; i < leaves.length; i++) {
          const good = {
            ...bounds,
            index: big(start + i),
            leaf: leaves[i] as Buffer,
            proof: path(i, leaves),
            subtree,
          };
          expect(code(() => verifySubtreeInclusion(good))).toBe(valid ? 'accepted' : 'not-a-subtree');
          if (!valid) continue;
          expect(code(() => verifySubtreeInclusion({ ...good, index: big(end) }))).toBe('bounds');
          if (start > 0) expect(code(() => verifySubtreeInclusion({ ...good, index: 0n }))).toBe('bounds');
        }
        if (!valid) continue;
        subtrees++;
        for (let size = end; size <= 17; size++) {
          const all = LEAVES.slice(0, size);
          const good = {
            ...bounds,
            size: big(size),
            subtree,
            root: mth(all),
            proof: subtreeProof(start, end, all, true),
          };
          verifySubtreeConsistency(good);
          expect(code(() => verifySubtreeConsistency({ ...good, subtree: flipped(subtree) }))).toBe(
            'root-mismatch',
          );
          expect(code(() => verifySubtreeConsistency({ ...good, size: big(end) - 1n }))).toBe('bounds');
          for (const wrong of mutations(good.proof)) {
            expect(code(() => verifySubtreeConsistency({ ...good, proof: wrong }))).not.toBe('accepted');
          }
        }
      }
    }
    expect(subtrees).toBeGreaterThan(30);
  });

  test('the empty subtree is in every tree, by its root and without a proof', () => {
    for (const at of [0n, 1n, 5n]) {
      const good = {
        start: at,
        end: at,
        size: 5n,
        subtree: EMPTY_ROOT,
        root: mth(LEAVES.slice(0, 5)),
        proof: [],
      };
      verifySubtreeConsistency(good);
      expect(code(() => verifySubtreeConsistency({ ...good, subtree: good.root }))).toBe('root-mismatch');
      expect(code(() => verifySubtreeConsistency({ ...good, proof: [EMPTY_ROOT] }))).toBe('proof-length');
      expect(code(() => verifySubtreeConsistency({ ...good, start: 6n, end: 6n }))).toBe('bounds');
      const inside = { start: at, end: at, index: at, leaf: EMPTY_ROOT, subtree: EMPTY_ROOT, proof: [] };
      expect(code(() => verifySubtreeInclusion(inside))).toBe('bounds');
    }
    const backwards = { start: 2n, end: 1n, size: 5n, subtree: EMPTY_ROOT, root: EMPTY_ROOT, proof: [] };
    expect(code(() => verifySubtreeConsistency(backwards))).toBe('not-a-subtree');
  });

  test('from 0 it is ordinary consistency', () => {
    for (let size2 = 1; size2 <= 17; size2++) {
      for (let size1 = 1; size1 <= size2; size1++) {
        verifySubtreeConsistency({
          start: 0n,
          end: big(size1),
          size: big(size2),
          subtree: mth(LEAVES.slice(0, size1)),
          root: mth(LEAVES.slice(0, size2)),
          proof: proof(size1, LEAVES.slice(0, size2)),
        });
      }
    }
  });

  /** SUBTREE_SUBPROOF of draft-ietf-plants-merkle-tree-certs, section 4.4.1. */
  function subtreeProof(start: number, end: number, leaves: readonly Buffer[], known: boolean): Buffer[] {
    const n = leaves.length;
    if (start === 0 && end === n) return known ? [] : [mth(leaves)];
    let k = 1;
    while (k * 2 < n) k *= 2;
    if (end <= k) return [...subtreeProof(start, end, leaves.slice(0, k), known), mth(leaves.slice(k))];
    if (k <= start) {
      return [...subtreeProof(start - k, end - k, leaves.slice(k), known), mth(leaves.slice(0, k))];
    }
    return [...subtreeProof(0, end - k, leaves.slice(k), false), mth(leaves.slice(0, k))];
  }
});
