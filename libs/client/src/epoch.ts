import { setTimeout as sleep } from 'node:timers/promises';
import { acquire, type DirLock, DirLocked } from '@belay/dirlock';
import { type EpochRecord, writeEpochRecord } from './epoch-record.js';
import type { Draft, LineWriter } from './line-writer.js';
import { type EpochOptions, openNext } from './next-epoch.js';
import { makeDir, sinkDir } from './state.js';

/** How long another process may take to open an epoch of the same sink. Milliseconds. */
const OPENING_PATIENCE = 2_000;

/**
 * One run of one sink, written by one process: numbers its envelopes, commits to their content, keeps the sink's own
 * tree and appends the lines to the spool.
 *
 * Owns its spool directory by a lock that lives until `release`. `append` never throws: a line that the disk refused,
 * or that is too much for the spool, keeps its number and is later spoken of by a `gap` line with the hashes of what
 * is missing. A line that `append` returned from survives kill -9 of this process; loss of power may cost the last
 * ones.
 */
export class Epoch {
  readonly dir: string;
  readonly id: string;
  readonly log: string;
  readonly sink: string;
  readonly #writer: LineWriter;
  readonly #lock: DirLock;
  readonly #record: EpochRecord;
  #closed = false;

  private constructor(dir: string, lock: DirLock, record: EpochRecord, writer: LineWriter) {
    this.dir = dir;
    this.id = record.epoch;
    this.log = record.log;
    this.sink = record.sink;
    this.#lock = lock;
    this.#record = record;
    this.#writer = writer;
  }

  /** Opens the next epoch of a sink and appends its `epoch.open`, which names the one before. */
  static async open(options: EpochOptions): Promise<Epoch> {
    const folder = sinkDir(options.state, options.log, options.sink);
    makeDir(folder);
    const opening = await acquirePatiently(folder);
    try {
      let lock: DirLock | undefined;
      const { dir, record, writer } = openNext(folder, options, (made) => (lock = acquire(made)));
      return new Epoch(dir, lock as unknown as DirLock, record, writer);
    } finally {
      opening.release();
    }
  }

  /** Lines so far, those included that were lost. */
  get size(): number {
    return this.#writer.size;
  }

  /** Lines that are on the disk of this machine only as hashes. */
  get dropped(): number {
    return this.#writer.dropped;
  }

  /** Whether the last line that was made is in the spool, so that it will be sent. */
  get spooled(): boolean {
    return this.#writer.spooled;
  }

  /** Appends one envelope and returns its `seq`, by which it stays known even when it did not get into the spool. */
  append(draft: Draft): number {
    return this.#writer.append(draft);
  }

  /**
   * The same for an envelope whose line is made and written by `settle`, at the latest in front of the next one: so its
   * work does not stand before what it speaks of. `make` is called once and must not throw.
   */
  reserve(make: () => Draft): number {
    return this.#writer.reserve(make);
  }

  /** Writes the lines of what was reserved; kill -9 of this process before that costs them. */
  settle(): void {
    this.#writer.settle();
  }

  /** Appends an envelope that states (size, root, dropped, filtered) of the lines before it. */
  appendStated(draft: Draft): number {
    return this.#writer.appendStated(draft);
  }

  /** Appends a `heartbeat`: the sink lives, and so much it has said so far. */
  heartbeat(): void {
    if (!this.#closed) this.#writer.appendStated({ kind: 'heartbeat' });
  }

  /** Appends `epoch.close` and makes the spool durable. Nothing can be appended afterwards; the lock is kept. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const closed = this.#writer.close();
    if (closed === undefined) return;
    try {
      writeEpochRecord(this.dir, { ...this.#record, closed });
    } catch {
      // The lines that reached the disk are sent; without `closed`, the next epoch reads them to name their root.
    }
  }

  /** Gives the spool to whoever adopts it. The lines stay. */
  release(): void {
    this.#lock.release();
  }
}

async function acquirePatiently(folder: string): Promise<DirLock> {
  const deadline = Date.now() + OPENING_PATIENCE;
  for (;;) {
    try {
      return acquire(folder);
    } catch (error) {
      if (!(error instanceof DirLocked) || Date.now() > deadline) throw error;
    }
    await sleep(20);
  }
}
