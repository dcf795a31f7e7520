import { MerkleError } from './error.js';
import { asHash, EMPTY_ROOT, type Hash, nodeHash, requireHash, requireRoot } from './hash.js';
import { decompose, type NodeId, requireCount, requireProof } from './range.js';

/** What an inclusion proof is about. */
export interface InclusionProof {
  readonly index: bigint;
  readonly size: bigint;
  /** Leaf hash, not leaf data. */
  readonly leaf: Uint8Array;
  /** The leaf's sibling first, the root's child last. */
  readonly proof: readonly Uint8Array[];
  readonly root: Uint8Array;
}

/** What a consistency proof is about. */
export interface ConsistencyProof {
  readonly size1: bigint;
  readonly size2: bigint;
  readonly root1: Uint8Array;
  readonly root2: Uint8Array;
  readonly proof: readonly Uint8Array[];
}

/** Throws unless the leaf is at `index` in the tree (RFC 9162, section 2.1.3.2). */
export function verifyInclusion(given: InclusionProof): void {
  const { index, size, leaf, proof, root } = given;
  requireCount(index, 'index');
  requireCount(size, 'size');
  requireHash(root, 'root');
  requireProof(proof, 'proof');
  if (index >= size) {
    throw new MerkleError('bounds', 'the index is not below the size', {
      index: String(index),
      size: String(size),
    });
  }
  let first = index;
  let last = size - 1n;
  let computed: Hash = asHash(leaf, 'leaf');
  for (const hash of proof) {
    if (last === 0n) throw wrongLength('inclusion', proof.length);
    if ((first & 1n) === 1n || first === last) {
      computed = nodeHash(hash, computed);
      while ((first & 1n) === 0n && first !== 0n) {
        first >>= 1n;
        last >>= 1n;
      }
    } else {
      computed = nodeHash(computed, hash);
    }
    first >>= 1n;
    last >>= 1n;
  }
  if (last !== 0n) throw wrongLength('inclusion', proof.length);
  requireRoot(root, computed, 'root');
}

/**
 * Throws unless the tree (size2, root2) begins with the tree (size1, root1) (RFC 9162, section 2.1.4.2).
 *
 * Every tree begins with the empty one: for size1 = 0 the proof has to be empty and root1 has to be the root of
 * the empty tree, which is the rule of C2SP tlog-witness. The RFC has no proof for that case.
 */
export function verifyConsistency(given: ConsistencyProof): void {
  const { size1, size2, root1, root2, proof } = given;
  requireCount(size1, 'size1');
  requireCount(size2, 'size2');
  requireHash(root1, 'root1');
  requireHash(root2, 'root2');
  requireProof(proof, 'proof');
  if (size1 > size2) {
    throw new MerkleError('bounds', 'the first tree is larger than the second', {
      size1: String(size1),
      size2: String(size2),
    });
  }
  if (size1 === 0n || size1 === size2) {
    if (proof.length !== 0) throw wrongLength('consistency', proof.length);
    if (size1 === 0n) requireRoot(EMPTY_ROOT, root1, 'root1');
    if (size1 === size2) requireRoot(root1, root2, 'root2');
    return;
  }
  let next = 0;
  let first = size1 - 1n;
  let last = size2 - 1n;
  while ((first & 1n) === 1n) {
    first >>= 1n;
    last >>= 1n;
  }
  // A first tree that is a perfect subtree of the second has its own root as the proof's unwritten beginning.
  const start = first === 0n ? root1 : proof[next++];
  if (start === undefined) throw wrongLength('consistency', proof.length);
  let old: Hash = asHash(start, 'proof');
  let grown: Hash = old;
  for (; next < proof.length; next++) {
    const hash = proof[next] as Uint8Array;
    if (last === 0n) throw wrongLength('consistency', proof.length);
    if ((first & 1n) === 1n || first === last) {
      old = nodeHash(hash, old);
      grown = nodeHash(hash, grown);
      while ((first & 1n) === 0n && first !== 0n) {
        first >>= 1n;
        last >>= 1n;
      }
    } else {
      grown = nodeHash(grown, hash);
    }
    first >>= 1n;
    last >>= 1n;
  }
  if (last !== 0n) throw wrongLength('consistency', proof.length);
  requireRoot(root1, old, 'root1');
  requireRoot(root2, grown, 'root2');
}

/**
 * Which nodes make the inclusion proof for `index` in the tree of `size`: for each hash of the proof, in its
 * order, the perfect subtrees to look up. `foldNodes` over their hashes gives the proof's hash.
 */
export function inclusionPlan(index: bigint, size: bigint): NodeId[][] {
  requireCount(index, 'index');
  requireCount(size, 'size');
  if (index >= size) {
    throw new MerkleError('bounds', 'the index is not below the size', {
      index: String(index),
      size: String(size),
    });
  }
  const plan: NodeId[][] = [];
  let begin = 0n;
  let end = size;
  while (end - begin > 1n) {
    const middle = begin + splitBelow(end - begin);
    if (index < middle) {
      plan.push(decompose(middle, end));
      end = middle;
    } else {
      plan.push(decompose(begin, middle));
      begin = middle;
    }
  }
  return plan.reverse();
}

/**
 * Which nodes make the consistency proof from `size1` to `size2`; see `inclusionPlan`. Empty when the sizes are
 * equal or size1 is 0.
 */
export function consistencyPlan(size1: bigint, size2: bigint): NodeId[][] {
  requireCount(size1, 'size1');
  requireCount(size2, 'size2');
  if (size1 > size2) {
    throw new MerkleError('bounds', 'the first tree is larger than the second', {
      size1: String(size1),
      size2: String(size2),
    });
  }
  if (size1 === 0n || size1 === size2) return [];
  const plan: NodeId[][] = [];
  let begin = 0n;
  let end = size2;
  // RFC 6962's SUBPROOF, from the root down; the proof lists it from the bottom up.
  while (end !== size1) {
    const middle = begin + splitBelow(end - begin);
    if (size1 <= middle) {
      plan.push(decompose(middle, end));
      end = middle;
    } else {
      plan.push(decompose(begin, middle));
      begin = middle;
    }
  }
  if (begin !== 0n) plan.push(decompose(begin, end));
  return plan.reverse();
}

/** Largest power of two strictly below n, for n > 1. */
function splitBelow(n: bigint): bigint {
  return 1n << BigInt((n - 1n).toString(2).length - 1);
}

function wrongLength(kind: string, length: number): MerkleError {
  return new MerkleError('proof-length', `the ${kind} proof has the wrong number of hashes`, {
    length: String(length),
  });
}
