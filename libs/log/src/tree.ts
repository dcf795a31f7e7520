import {
  CompactRange,
  consistencyPlan,
  decompose,
  foldNodes,
  type Hash,
  hashTile,
  type NodeId,
  TILE_WIDTH,
  tileOf,
} from '@belay/merkle';
import type { FullTile } from './store.js';

/** Reads a full tile that a commit at or below this tree's size wrote. */
export type TileReader = (level: number, n: number) => Promise<Buffer | null>;

/** A node that should be stored isn't: the log's tiles are incomplete or damaged. */
export class TreeDamaged extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'TreeDamaged';
  }
}

/**
 * The tree of a log at one size, with enough in memory to grow it and to answer for any node: the compact range, the
 * partial tile of every tile level, and the nodes that the last growth made. Full tiles are read from the store.
 *
 * A LogTree never changes; `grow` returns another, so a commit that fails leaves the old one true.
 */
export class LogTree {
  readonly #range: CompactRange;
  /** Partial tile of each tile level: hashes of level 8·L from the last full tile on; at most 255 each. */
  readonly #edge: readonly (readonly Hash[])[];
  /** Nodes made by the growth that led here: per level, the first index and the hashes from it on. */
  readonly #fresh: readonly { readonly from: number; readonly hashes: readonly Hash[] }[];
  /** Tiles completed by that growth. Not in the store before its commit. */
  readonly tiles: readonly FullTile[];
  readonly size: number;
  readonly root: Hash;

  private constructor(
    range: CompactRange,
    edge: readonly (readonly Hash[])[],
    fresh: readonly { readonly from: number; readonly hashes: readonly Hash[] }[],
    tiles: readonly FullTile[],
  ) {
    this.#range = range;
    this.#edge = edge;
    this.#fresh = fresh;
    this.tiles = tiles;
    this.size = Number(range.end);
    this.root = range.root();
  }

  static empty(): LogTree {
    return new LogTree(CompactRange.empty(), [], [], []);
  }

  /**
   * Rebuilds the tree of `size` from full tiles and the leaf hashes after the last full one. `leaves` are those of
   * [size - size mod 256, size). Reads at most 255 tiles a level.
   */
  static async load(size: number, leaves: readonly Hash[], read: TileReader): Promise<LogTree> {
    if (leaves.length !== size % TILE_WIDTH) {
      throw new TreeDamaged(`the last ${size % TILE_WIDTH} entries are needed, ${leaves.length} were found`);
    }
    const edge: Hash[][] = [leaves.slice()];
    for (
      let level = 1, nodes = Math.floor(size / TILE_WIDTH);
      nodes > 0;
      level++, nodes = Math.floor(nodes / TILE_WIDTH)
    ) {
      const partial: Hash[] = [];
      for (let n = nodes - (nodes % TILE_WIDTH); n < nodes; n++) {
        const tile = await read(level - 1, n);
        if (!tile) throw new TreeDamaged(`tile ${level - 1}/${n} is missing`);
        partial.push(hashTile(tile, 0, TILE_WIDTH));
      }
      edge.push(partial);
    }
    const bare = new LogTree(CompactRange.empty(), edge, [], []);
    const hashes: Hash[] = [];
    for (const node of decompose(0n, BigInt(size))) hashes.push(await bare.#node(node, size, read));
    return new LogTree(CompactRange.from(0n, BigInt(size), hashes), edge, [], []);
  }

  /** Compact range of [0, size). */
  get frontier(): Hash[] {
    return this.#range.hashes;
  }

  /** The tree with these leaf hashes appended. */
  grow(leaves: readonly Hash[]): LogTree {
    const range = this.#range.clone();
    const edge = this.#edge.map((partial) => partial.slice());
    const fresh: { from: number; hashes: Hash[] }[] = [];
    const tiles: FullTile[] = [];
    const visit = (id: NodeId, hash: Hash): void => {
      const level = fresh[id.level];
      if (level) level.hashes.push(hash);
      else fresh[id.level] = { from: Number(id.index), hashes: [hash] };
      if (id.level % 8 !== 0) return;
      const tileLevel = id.level / 8;
      const partial = (edge[tileLevel] ??= []);
      partial.push(hash);
      if (partial.length === TILE_WIDTH) {
        tiles.push({
          level: tileLevel,
          n: Math.floor(Number(id.index) / TILE_WIDTH),
          hashes: Buffer.concat(partial),
        });
        edge[tileLevel] = [];
      }
    };
    for (const leaf of leaves) range.append(leaf, visit);
    return new LogTree(range, edge, fresh, tiles);
  }

  /** Compact ranges around the entries [from, to). */
  async around(from: number, to: number, read: TileReader): Promise<{ left: Hash[]; right: Hash[] }> {
    return { left: await this.#nodes(0, from, read), right: await this.#nodes(to, this.size, read) };
  }

  /** RFC 6962 consistency proof from `size` to this tree; empty for 0 and for its own size. */
  async consistency(size: number, read: TileReader): Promise<Hash[]> {
    const proof: Hash[] = [];
    if (size === 0 || size === this.size) return proof;
    for (const nodes of consistencyPlan(BigInt(size), BigInt(this.size))) {
      const hashes: Hash[] = [];
      for (const node of nodes) hashes.push(await this.#node(node, this.size, read));
      proof.push(foldNodes(hashes));
    }
    return proof;
  }

  /** Root at a smaller size. */
  async rootAt(size: number, read: TileReader): Promise<Hash> {
    if (size === this.size) return this.root;
    const hashes = await this.#nodes(0, size, read);
    return hashes.length === 0 ? CompactRange.empty().root() : foldNodes(hashes);
  }

  async #nodes(from: number, to: number, read: TileReader): Promise<Hash[]> {
    const hashes: Hash[] = [];
    for (const node of decompose(BigInt(from), BigInt(to)))
      hashes.push(await this.#node(node, this.size, read));
    return hashes;
  }

  async #node(id: NodeId, size: number, read: TileReader): Promise<Hash> {
    const fresh = this.#fresh[id.level];
    if (fresh) {
      const hash = fresh.hashes[Number(id.index) - fresh.from];
      if (hash) return hash;
    }
    const span = tileOf(id);
    const n = Number(span.n);
    const full = Math.floor(size / TILE_WIDTH ** (span.level + 1));
    if (n < full) {
      const tile = await read(span.level, n);
      if (!tile) throw new TreeDamaged(`tile ${span.level}/${n} is missing`);
      return hashTile(tile, span.first, span.count);
    }
    const partial = this.#edge[span.level] ?? [];
    if (n > full || span.first + span.count > partial.length) {
      throw new TreeDamaged(`node ${id.level}/${id.index} is not in the tree of size ${size}`);
    }
    return hashTile(Buffer.concat(partial.slice(span.first, span.first + span.count)), 0, span.count);
  }
}
