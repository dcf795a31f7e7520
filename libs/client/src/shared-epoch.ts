import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
} from 'node:fs';
import { join } from 'node:path';
import { SinkTree } from '@belay/envelope/sink';
import { CompactRange } from '@belay/merkle';
import { acquireBriefly } from './brief-lock.js';
import {
  ACKS,
  type EpochRecord,
  LINES,
  rangeOfLines,
  readEpochRecord,
  writeEpochRecord,
} from './epoch-record.js';
import { type Draft, LineWriter, type WriterState } from './line-writer.js';
import { type EpochOptions, openNext } from './next-epoch.js';
import { Slots } from './slots.js';
import { settledEnd, SPOOL_LIMITS, type SpoolLimits, SpoolRoom } from './spool-room.js';
import { logDir, makeDir, readChain, sinkDir } from './state.js';

const STATE = 'writer';
/** How long a process waits for the others, each of which takes about a millisecond. Milliseconds. */
const PATIENCE = 2_000;
/** An epoch that has become this old or this large is closed, and the next one opened. */
const MAX_AGE = 24 * 3_600_000;
const MAX_BYTES = 32 * 1024 * 1024;

/** When a shared epoch says that it lives, and when it is closed because nobody uses it. Milliseconds. */
export interface SharedTimes {
  readonly heartbeat: number;
  readonly idle: number;
}

export const SHARED_TIMES: SharedTimes = { heartbeat: 60_000, idle: 30 * 60_000 };

/** What is kept between processes, in `writer` of the epoch's folder. */
interface Kept extends WriterState {
  /** Boot of the machine: what was not synced may be gone after another one. */
  readonly boot: string;
  /** Last line that was no heartbeat, and last line of any kind. Milliseconds since 1970. */
  readonly active: number;
  readonly spoke: number;
}

/**
 * One epoch written by many short processes, one at a time. What a process has to know of the lines before its own is
 * kept in a file of fixed size: O(log n), whatever the epoch holds.
 *
 * The truth is the spool: a line that is whole in it has its number, even if its writer was killed before it wrote
 * anything else down, so numbers never collide. Owned by no process; the lock of the sink's folder is held by `use`.
 */
export class SharedEpoch {
  readonly dir: string;
  readonly record: EpochRecord;
  readonly #slots: Slots<Kept>;
  readonly #writer: LineWriter;
  readonly #now: () => Date;
  #active: number;
  #spoke: number;
  #closed = false;

  private constructor(
    dir: string,
    record: EpochRecord,
    writer: LineWriter,
    slots: Slots<Kept>,
    now: () => Date,
    kept?: Kept,
  ) {
    this.dir = dir;
    this.record = record;
    this.#writer = writer;
    this.#slots = slots;
    this.#now = now;
    this.#active = kept?.active ?? now().getTime();
    this.#spoke = kept?.spoke ?? now().getTime();
  }

  /**
   * Hands the sink's open epoch to `use`, which must not wait for anything, and opens one where there is none. Throws
   * what the disk says when not even that is possible, and DirLocked when others held the sink for too long.
   */
  static use<T>(options: EpochOptions, use: (epoch: SharedEpoch) => T): T {
    const folder = sinkDir(options.state, options.log, options.sink);
    makeDir(folder);
    const lock = acquireBriefly(folder, PATIENCE);
    try {
      const epoch = SharedEpoch.#current(folder, options) ?? SharedEpoch.#open(folder, options);
      return epoch.#within(() => use(epoch));
    } finally {
      lock.release();
    }
  }

  /** The same, but only where an epoch is open. */
  static useOpen<T>(
    options: Pick<EpochOptions, 'state' | 'log' | 'sink' | 'limits' | 'filter' | 'now'>,
    use: (epoch: SharedEpoch) => T,
  ): T | undefined {
    const folder = sinkDir(options.state, options.log, options.sink);
    if (!existsSync(folder)) return undefined;
    const lock = acquireBriefly(folder, PATIENCE);
    try {
      const epoch = SharedEpoch.#current(folder, options);
      return epoch === undefined ? undefined : epoch.#within(() => use(epoch));
    } finally {
      lock.release();
    }
  }

  get id(): string {
    return this.record.epoch;
  }

  get dropped(): number {
    return this.#writer.dropped;
  }

  append(draft: Draft): number {
    this.#active = this.#spoke = this.#now().getTime();
    return this.#writer.append(draft);
  }

  /** Appends an envelope that states (size, root, dropped, filtered) of the lines before it. */
  appendStated(draft: Draft): number {
    this.#active = this.#spoke = this.#now().getTime();
    return this.#writer.appendStated(draft);
  }

  /** Appends what is due: a `heartbeat` after a time without a line, `epoch.close` after a long one. */
  tend({ heartbeat, idle }: SharedTimes): void {
    const now = this.#now().getTime();
    if (now - this.#active >= idle) this.close();
    else if (now - this.#spoke >= heartbeat) {
      this.#spoke = now;
      this.#writer.appendStated({ kind: 'heartbeat' });
    }
  }

  /** Appends `epoch.close`; who comes next opens another one. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const closed = this.#writer.close();
    // Where the disk refused: without `closed` the next process finds this epoch open and goes on in it.
    if (closed !== undefined) writeEpochRecord(this.dir, { ...this.record, closed });
  }

  #within<T>(act: () => T): T {
    try {
      return act();
    } finally {
      this.#leave();
    }
  }

  #leave(): void {
    try {
      this.#slots.write({
        ...this.#writer.state(),
        boot: bootOf(),
        active: this.#active,
        spoke: this.#spoke,
      });
    } finally {
      this.#slots.close();
      this.#writer.leave();
    }
  }

  static #open(folder: string, options: EpochOptions): SharedEpoch {
    let slots: Slots<Kept> | undefined;
    const prepare = (made: string): void => void (slots = Slots.open<Kept>(join(made, STATE)));
    const { dir, record, writer } = openNext(folder, options, prepare, true);
    return new SharedEpoch(
      dir,
      record,
      writer,
      slots as unknown as Slots<Kept>,
      options.now ?? (() => new Date()),
    );
  }

  /** The epoch to go on with. One that is over, too old, or not what its writers left is closed or given up. */
  static #current(
    folder: string,
    options: Pick<EpochOptions, 'limits' | 'filter' | 'now'>,
  ): SharedEpoch | undefined {
    const last = readChain(folder)?.epoch;
    if (last === undefined) return undefined;
    const dir = join(folder, last);
    const record = readEpochRecord(dir);
    if (record?.shared !== true || record.closed !== undefined || !existsSync(join(dir, LINES)))
      return undefined;
    const now = options.now ?? (() => new Date());
    const slots = Slots.open<Kept>(join(dir, STATE));
    const fd = openSync(join(dir, LINES), constants.O_RDWR | constants.O_APPEND);
    const kept = recovered(dir, fd, slots.value, now());
    if (kept === undefined) {
      // Numbers may have been sent that are no longer known here: none of them may be taken again.
      closeSync(fd);
      slots.close();
      return undefined;
    }
    const room = new SpoolRoom(
      dir,
      options.limits ?? SPOOL_LIMITS,
      record.others ?? 0,
      kept.hole !== undefined && kept.hole.reason !== 'filtered',
    );
    const epoch = new SharedEpoch(
      dir,
      record,
      new LineWriter(record, fd, room, now, options.filter, kept),
      slots,
      now,
      kept,
    );
    if (now().getTime() - Date.parse(record.opened) <= MAX_AGE && kept.offset <= MAX_BYTES) return epoch;
    epoch.#within(() => epoch.close());
    return undefined;
  }
}

/** What the last process left, brought up to what is in the spool; undefined when it can't be gone on with. */
function recovered(dir: string, fd: number, kept: Kept | undefined, now: Date): Kept | undefined {
  const { size } = fstatSync(fd);
  const before: Kept = kept ?? {
    offset: 0,
    tree: new SinkTree().state(),
    dropped: 0,
    boot: bootOf(),
    active: now.getTime(),
    spoke: now.getTime(),
  };
  if (before.boot !== bootOf() || before.offset > size || settledEnd(join(dir, ACKS)) > size)
    return undefined;
  if (before.offset === size) return before;
  const bytes = Buffer.alloc(size - before.offset);
  const read = readSync(fd, bytes, 0, bytes.length, before.offset);
  const whole = bytes.subarray(0, read).lastIndexOf(0x0a) + 1;
  if (before.offset + whole < size) ftruncateSync(fd, before.offset + whole);
  if (whole === 0) return before;
  // Written, and their writer killed before it said so. They may speak of the hole, which is then filled.
  const hashes = before.tree.hashes.map((hash) => Buffer.from(hash, 'base64'));
  const known = CompactRange.from(0n, BigInt(before.tree.size), hashes);
  try {
    const range = rangeOfLines(bytes.subarray(0, whole), known);
    const tree = { size: Number(range.end), hashes: range.hashes.map((hash) => hash.toString('base64')) };
    return { ...before, offset: before.offset + whole, tree, hole: undefined, active: now.getTime() };
  } catch {
    return undefined;
  }
}

/** Says what is due in the open shared epochs of a log: that they live, or that they are over. */
export function tendShared(
  state: string,
  log: string,
  times: SharedTimes = SHARED_TIMES,
  limits?: SpoolLimits,
): { readonly open: number } {
  let open = 0;
  for (const sink of foldersIn(join(logDir(state, log), 'sinks'))) {
    try {
      SharedEpoch.useOpen({ state, log, sink, limits }, (epoch) => {
        epoch.tend(times);
        if (readEpochRecord(epoch.dir)?.closed === undefined) open++;
      });
    } catch {
      // Its lines are sent; what is due is said by who comes next.
    }
  }
  return { open };
}

function foldersIn(folder: string): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? entry.name : [],
    );
  } catch {
    return [];
  }
}

let boot: string | undefined;
/** Boot of this machine; the same word always where that can't be told. */
function bootOf(): string {
  if (boot === undefined) {
    try {
      boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
    } catch {
      boot = 'unknown';
    }
  }
  return boot;
}
