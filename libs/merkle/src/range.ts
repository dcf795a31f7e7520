import { MerkleError } from './error.js';
import { asHash, EMPTY_ROOT, foldNodes, type Hash, nodeHash, requireHash, requireRoot } from './hash.js';

/**
 * A perfect subtree: the one over leaves [index · 2^level, (index + 1) · 2^level). Level 0 are the leaves.
 */
export interface NodeId {
  readonly level: number;
  readonly index: bigint;
}

/** Sizes and indexes are unsigned 64-bit, as in every published format that carries them. */
export const MAX_SIZE = (1n << 64n) - 1n;

/** No tree of at most 2^64 - 1 leaves has a proof, or one side of a compact range, with more hashes. */
export const MAX_PROOF = 64;

/** Refuses what is not an unsigned 64-bit integer. `what` names it in the error. */
export function requireCount(value: bigint, what: string): void {
  if (typeof value !== 'bigint' || value < 0n || value > MAX_SIZE) {
    throw new MerkleError('bounds', `${what} is not an unsigned 64-bit integer`, {
      what,
      value: String(value),
    });
  }
}

/** Refuses more hashes than any proof can have, before anything is allocated for them. */
export function requireProof(proof: readonly Uint8Array[], what: string): void {
  if (proof.length > MAX_PROOF) {
    throw new MerkleError('proof-length', `${what} has more than ${MAX_PROOF} hashes`, {
      what,
      length: String(proof.length),
    });
  }
  for (const hash of proof) requireHash(hash, what);
}

/**
 * The maximal aligned perfect subtrees of [begin, end), left to right. At most 128 of them; for begin = 0 the
 * one-bits of `end`, largest first. Empty when begin = end.
 */
export function decompose(begin: bigint, end: bigint): NodeId[] {
  requireCount(begin, 'begin');
  requireCount(end, 'end');
  if (begin > end) {
    throw new MerkleError('bounds', 'a range ends before it begins', {
      begin: String(begin),
      end: String(end),
    });
  }
  const nodes: NodeId[] = [];
  let at = begin;
  let level = 0;
  // Up while the left edge is aligned and the next larger subtree fits, then down.
  while (at < end) {
    while (((at >> BigInt(level)) & 1n) === 0n && at + (1n << BigInt(level + 1)) <= end) level++;
    while (at + (1n << BigInt(level)) > end) level--;
    nodes.push({ level, index: at >> BigInt(level) });
    at += 1n << BigInt(level);
  }
  return nodes;
}

/**
 * The hashes of `decompose(begin, end)`: all that is needed to extend the range or to compute with it, without
 * its leaves. O(log n) memory.
 *
 * Not thread-shared and not copied: a caller that may have to undo appends works on a `clone()`.
 */
export class CompactRange {
  #begin: bigint;
  #end: bigint;
  #hashes: Hash[];
  /** Level of each of `#hashes`. Invariant: pairs with ids it is exactly `decompose(#begin, #end)`. */
  #levels: number[];

  private constructor(begin: bigint, end: bigint, hashes: Hash[], levels: number[]) {
    this.#begin = begin;
    this.#end = end;
    this.#hashes = hashes;
    this.#levels = levels;
  }

  /** The empty range at `begin`. */
  static empty(begin: bigint = 0n): CompactRange {
    requireCount(begin, 'begin');
    return new CompactRange(begin, begin, [], []);
  }

  /** A range whose hashes are known. Refuses any number of hashes but the decomposition's own. */
  static from(begin: bigint, end: bigint, hashes: readonly Uint8Array[]): CompactRange {
    const nodes = decompose(begin, end);
    if (nodes.length !== hashes.length) {
      throw new MerkleError('proof-length', `[${begin}, ${end}) has ${nodes.length} hashes`, {
        begin: String(begin),
        end: String(end),
        expected: String(nodes.length),
        length: String(hashes.length),
      });
    }
    return new CompactRange(
      begin,
      end,
      hashes.map((hash) => asHash(hash, 'range')),
      nodes.map((node) => node.level),
    );
  }

  /** First leaf of the range. */
  get begin(): bigint {
    return this.#begin;
  }

  /** One past the last leaf; with begin = 0 the size of the tree. */
  get end(): bigint {
    return this.#end;
  }

  /** The hashes, left to right. A copy of the list, not of the hashes. */
  get hashes(): Hash[] {
    return this.#hashes.slice();
  }

  /**
   * Appends the leaf hash at index `end`. `visit` is told every node that became known, the leaf first, each
   * exactly once over the life of a range: what a tile writer needs.
   */
  append(leaf: Uint8Array, visit?: (id: NodeId, hash: Hash) => void): void {
    this.#push(0, asHash(leaf, 'leaf'), visit);
  }

  /** Appends the range that begins where this one ends. Nodes of `other` itself are not visited again. */
  appendRange(other: CompactRange, visit?: (id: NodeId, hash: Hash) => void): void {
    if (other.#begin !== this.#end) {
      throw new MerkleError('bounds', 'the range appended does not begin where this one ends', {
        end: String(this.#end),
        begin: String(other.#begin),
      });
    }
    for (let i = 0; i < other.#hashes.length; i++) {
      this.#push(other.#levels[i] as number, other.#hashes[i] as Hash, visit, true);
    }
  }

  /** Root of the tree over [0, end). Refused when begin is not 0: such a range has no root. */
  root(): Hash {
    if (this.#begin !== 0n) {
      throw new MerkleError('bounds', 'only a range that begins at 0 has a root', {
        begin: String(this.#begin),
      });
    }
    return this.#hashes.length === 0 ? EMPTY_ROOT : foldNodes(this.#hashes);
  }

  /** An independent range with the same hashes. */
  clone(): CompactRange {
    return new CompactRange(this.#begin, this.#end, this.#hashes.slice(), this.#levels.slice());
  }

  #push(level: number, hash: Hash, visit?: (id: NodeId, hash: Hash) => void, known = false): void {
    const end = this.#end + (1n << BigInt(level));
    if (end > MAX_SIZE) throw new MerkleError('bounds', 'the tree is full', { end: String(end) });
    const hashes = this.#hashes;
    const levels = this.#levels;
    // Index of the node one past ours on its level; even means that ours is a right child.
    let next = end >> BigInt(level);
    if (visit && !known) visit({ level, index: next - 1n }, hash);
    let node = hash;
    let at = level;
    while ((next & 1n) === 0n && levels[levels.length - 1] === at) {
      node = nodeHash(hashes.pop() as Hash, node);
      levels.pop();
      next >>= 1n;
      at++;
      if (visit) visit({ level: at, index: next - 1n }, node);
    }
    hashes.push(node);
    levels.push(at);
    this.#end = end;
  }
}

/** The evidence for a run of consecutive leaves: their hashes and the compact ranges around them. */
export interface RangeProof {
  /** Index of the first leaf. */
  readonly index: bigint;
  /** Size of the tree. */
  readonly size: bigint;
  /** Leaf hashes, in order; at least one. */
  readonly leaves: readonly Uint8Array[];
  /** Hashes of `decompose(0, index)`. */
  readonly left: readonly Uint8Array[];
  /** Hashes of `decompose(index + leaves.length, size)`. */
  readonly right: readonly Uint8Array[];
}

/**
 * The root that a run of leaves and the compact ranges around it lead to. Throws when the shape is not exactly
 * that of (index, number of leaves, size).
 */
export function rangeRoot(proof: RangeProof): Hash {
  const { index, size, leaves, left, right } = proof;
  requireCount(index, 'index');
  requireCount(size, 'size');
  const end = index + BigInt(leaves.length);
  if (leaves.length === 0 || end > size) {
    throw new MerkleError('bounds', 'the leaves do not fit the tree', {
      index: String(index),
      leaves: String(leaves.length),
      size: String(size),
    });
  }
  requireProof(left, 'left');
  requireProof(right, 'right');
  const range = CompactRange.from(0n, index, left);
  const after = CompactRange.from(end, size, right);
  for (const leaf of leaves) range.append(leaf);
  range.appendRange(after);
  return range.root();
}

/**
 * Throws unless the run of leaves is in the tree of this size and root, at this index.
 *
 * `size` and `root` have to come from one signed head. A proof by itself does not bind the size: some
 * neighbouring sizes have proofs of the same shape, because nothing in a hash tells a leaf from a subtree.
 */
export function verifyRange(proof: RangeProof & { readonly root: Uint8Array }): void {
  requireHash(proof.root, 'root');
  requireRoot(proof.root, rangeRoot(proof), 'root');
}
