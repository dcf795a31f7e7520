import { decompose, EMPTY_ROOT, foldNodes, nodeHash } from '@belay/merkle';
import { CoverageError } from './error.js';

/** A perfect subtree over the leaves [index * 2^level, (index + 1) * 2^level). */
export interface Place {
  readonly level: number;
  readonly index: number;
}

export interface KnownNode extends Place {
  readonly hash: Buffer;
  /** Computed of lines that were received; otherwise at least one part of it is only the sink's word. */
  readonly received: boolean;
}

/** `[level, index, hash in base64, 1 when computed of received lines, else 0]` */
export type StoredNode = readonly [level: number, index: number, hash: string, received: 0 | 1];

export interface SparseTreeState {
  readonly nodes: readonly StoredNode[];
  /** Sizes whose root is still wanted. */
  readonly held: readonly number[];
}

/** Asked of every node that becomes known; true means that it is taken and need not be kept. */
type Taken = (place: Place, hash: Buffer) => boolean;

const keyOf = (level: number, index: number): string => `${level}.${index}`;

/** The leaves [begin, end) as maximal perfect subtrees, left to right. */
export function placesOf(begin: number, end: number): Place[] {
  return decompose(BigInt(begin), BigInt(end)).map(({ level, index }) => ({ level, index: Number(index) }));
}

/**
 * An RFC 6962 tree whose leaves become known in any order, some of them only as the hash of a subtree. Two known
 * siblings become their parent and are forgotten, so that what is kept is the maximal perfect subtrees: O(log n) for
 * each hole, O(1) hashes of work for each leaf.
 *
 * A size that is held is not grown over: as long as it is, the root at that size can be computed once all before it is
 * known.
 */
export class SparseTree {
  readonly #nodes = new Map<string, KnownNode>();
  readonly #held: Set<number>;

  constructor(state: SparseTreeState = { nodes: [], held: [] }) {
    for (const [level, index, hash, received] of state.nodes) {
      const bytes = Buffer.from(hash, 'base64');
      if (bytes.length !== 32) throw new CoverageError('state', 'a stored node is not a hash');
      this.#nodes.set(keyOf(level, index), { level, index, hash: bytes, received: received === 1 });
    }
    this.#held = new Set(state.held);
  }

  /** Adds a node none of whose leaves is known here. */
  add(node: KnownNode, taken?: Taken): void {
    let { level, index, hash, received } = node;
    for (;;) {
      if (taken?.({ level, index }, hash) === true) return;
      const right = index % 2 === 1;
      const middle = (right ? index : index + 1) * 2 ** level;
      const key = keyOf(level, right ? index - 1 : index + 1);
      const sibling = this.#nodes.get(key);
      if (sibling === undefined || this.#held.has(middle)) break;
      this.#nodes.delete(key);
      hash = right ? nodeHash(sibling.hash, hash) : nodeHash(hash, sibling.hash);
      received &&= sibling.received;
      level++;
      index = Math.floor(index / 2);
    }
    this.#nodes.set(keyOf(level, index), { level, index, hash, received });
  }

  get({ level, index }: Place): KnownNode | undefined {
    return this.#nodes.get(keyOf(level, index));
  }

  /** Removes and returns the nodes of the leaves [begin, end), all of which are known and none part of a larger node. */
  take(begin: number, end: number): KnownNode[] {
    const taken: KnownNode[] = [];
    let at = begin;
    while (at < end) {
      let level = at === 0 ? 52 : trailingZeros(at);
      while (level >= 0 && !this.#nodes.has(keyOf(level, at / 2 ** level))) level--;
      const key = keyOf(level, at / 2 ** level);
      const node = this.#nodes.get(key);
      if (node === undefined) throw new CoverageError('state', `leaf ${at} is not known by itself`);
      this.#nodes.delete(key);
      taken.push(node);
      at += 2 ** level;
    }
    return taken;
  }

  /** The root at a size, when everything before it is known and no node grew over it. */
  root(size: number): Buffer | undefined {
    if (size === 0) return EMPTY_ROOT;
    const hashes: Buffer[] = [];
    for (const place of placesOf(0, size)) {
      const node = this.get(place);
      if (node === undefined) return undefined;
      hashes.push(node.hash);
    }
    return foldNodes(hashes);
  }

  hold(size: number): void {
    this.#held.add(size);
  }

  /** Gives a held size up, and grows over it. */
  release(size: number): void {
    if (!this.#held.delete(size) || size === 0) return;
    const level = trailingZeros(size);
    const index = size / 2 ** level;
    const left = this.#nodes.get(keyOf(level, index - 1));
    const right = this.#nodes.get(keyOf(level, index));
    if (left === undefined || right === undefined) return;
    this.#nodes.delete(keyOf(level, index));
    this.#nodes.delete(keyOf(level, index - 1));
    this.add({
      level: level + 1,
      index: (index - 1) / 2,
      hash: nodeHash(left.hash, right.hash),
      received: left.received && right.received,
    });
  }

  /** Gives a held size up whose nodes were taken. */
  forget(size: number): void {
    this.#held.delete(size);
  }

  state(): SparseTreeState {
    return {
      nodes: [...this.#nodes.values()]
        .sort((a, b) => a.index * 2 ** a.level - b.index * 2 ** b.level || a.level - b.level)
        .map(({ level, index, hash, received }) => [level, index, hash.toString('base64'), received ? 1 : 0]),
      held: [...this.#held].sort((a, b) => a - b),
    };
  }
}

/** Of a number from 1 to 2^53 - 1. */
function trailingZeros(number: number): number {
  let zeros = 0;
  for (let rest = number; rest % 2 === 0; rest /= 2) zeros++;
  return zeros;
}
