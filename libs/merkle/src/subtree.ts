import { MerkleError } from './error.js';
import { asHash, EMPTY_ROOT, type Hash, nodeHash, requireHash, requireRoot } from './hash.js';
import { verifyInclusion } from './proof.js';
import { requireCount, requireProof } from './range.js';

/** Leaves [start, end) whose hash can be found in, or derived from, any larger tree. */
export interface Subtree {
  readonly start: bigint;
  readonly end: bigint;
}

/**
 * Throws unless [start, end) is a subtree in the sense of draft-ietf-plants-merkle-tree-certs, section 4:
 * start is 0 or a multiple of the smallest power of two that is at least its width. The empty one is a subtree
 * wherever it is.
 */
function requireSubtree(start: bigint, end: bigint): void {
  requireCount(start, 'start');
  requireCount(end, 'end');
  const width = end - start;
  const unit = width <= 1n ? 1n : 1n << BigInt((width - 1n).toString(2).length);
  if (width < 0n || start % unit !== 0n) {
    throw new MerkleError('not-a-subtree', `[${start}, ${end}) is not a subtree`, {
      start: String(start),
      end: String(end),
    });
  }
}

/** Throws unless the leaf at `index` of the whole tree is in the subtree whose hash is `subtree`. */
export function verifySubtreeInclusion(
  given: Subtree & {
    readonly index: bigint;
    readonly leaf: Uint8Array;
    readonly proof: readonly Uint8Array[];
    readonly subtree: Uint8Array;
  },
): void {
  const { start, end, index, leaf, proof, subtree } = given;
  requireSubtree(start, end);
  requireCount(index, 'index');
  if (index < start) {
    throw new MerkleError('bounds', 'the index is before the subtree', {
      index: String(index),
      start: String(start),
    });
  }
  verifyInclusion({ index: index - start, size: end - start, leaf, proof, root: subtree });
}

/**
 * Throws unless the tree (size, root) contains the subtree [start, end) with the hash `subtree`.
 *
 * As with `verifyConsistency`, every tree contains the empty subtree: its hash has to be the empty root, the proof
 * has to be empty, and nothing is said about `root`.
 */
export function verifySubtreeConsistency(
  given: Subtree & {
    readonly size: bigint;
    readonly subtree: Uint8Array;
    readonly root: Uint8Array;
    readonly proof: readonly Uint8Array[];
  },
): void {
  const { start, end, size, subtree, root, proof } = given;
  requireSubtree(start, end);
  requireCount(size, 'size');
  requireHash(subtree, 'subtree');
  requireHash(root, 'root');
  requireProof(proof, 'proof');
  if (end > size) {
    throw new MerkleError('bounds', 'the subtree is larger than the tree', {
      end: String(end),
      size: String(size),
    });
  }
  if (start === end) {
    if (proof.length !== 0) throw wrongLength(proof.length);
    requireRoot(EMPTY_ROOT, subtree, 'subtree');
    return;
  }
  let first = start;
  let last = end - 1n;
  let edge = size - 1n;
  const up = (): void => {
    first >>= 1n;
    last >>= 1n;
    edge >>= 1n;
  };
  if (last === edge) {
    while (first !== last) up();
  } else {
    while (first !== last && (last & 1n) === 1n) up();
  }
  let next = 0;
  // A subtree that is a node of the tree is its own start; any other one needs the hash of its right-most part.
  const begin = first === last ? subtree : proof[next++];
  if (begin === undefined) throw wrongLength(proof.length);
  let part: Hash = asHash(begin, 'proof');
  let whole: Hash = part;
  for (; next < proof.length; next++) {
    const hash = proof[next] as Uint8Array;
    if (edge === 0n) throw wrongLength(proof.length);
    if ((last & 1n) === 1n || last === edge) {
      if (first < last) part = nodeHash(hash, part);
      whole = nodeHash(hash, whole);
      while ((last & 1n) === 0n && last !== 0n) up();
    } else {
      whole = nodeHash(whole, hash);
    }
    up();
  }
  if (edge !== 0n) throw wrongLength(proof.length);
  requireRoot(subtree, part, 'subtree');
  requireRoot(root, whole, 'root');
}

function wrongLength(length: number): MerkleError {
  return new MerkleError('proof-length', 'the subtree proof has the wrong number of hashes', {
    length: String(length),
  });
}
