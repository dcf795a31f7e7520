import { CompactRange, leafHash } from '@belay/merkle';

/** The whole state of a sink's tree, as it is kept between runs: O(log n) hashes. */
export interface SinkTreeState {
  readonly size: number;
  /** Hashes of the compact range [0, size), base64. */
  readonly hashes: readonly string[];
}

/**
 * A sink's own RFC 6962 tree over the lines of one epoch: leaf `seq - 1` is line `seq` without its LF. Lines that were
 * dropped or filtered are leaves too, so that the root commits to what never left the machine.
 */
export class SinkTree {
  readonly #range: CompactRange;

  constructor(state?: SinkTreeState) {
    this.#range =
      state === undefined
        ? CompactRange.empty()
        : CompactRange.from(
            0n,
            BigInt(state.size),
            state.hashes.map((hash) => Buffer.from(hash, 'base64')),
          );
  }

  /** Takes the next line; returns its leaf hash (32 bytes). */
  append(line: Uint8Array): Buffer {
    const leaf = leafHash(line);
    this.#range.append(leaf);
    return leaf;
  }

  /** Lines so far; the next one has `seq` size + 1. */
  get size(): number {
    return Number(this.#range.end);
  }

  /** What `heartbeat`, `session.close` and `epoch.close` state of the lines before them. */
  stated(): { readonly size: number; readonly root: string } {
    return { size: this.size, root: this.#range.root().toString('base64') };
  }

  state(): SinkTreeState {
    return { size: this.size, hashes: this.#range.hashes.map((hash) => hash.toString('base64')) };
  }
}
