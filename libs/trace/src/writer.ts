import { createHash } from 'node:crypto';
import {
  closeSync,
  constants,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { LineStage } from './line-stage.js';
import {
  type FrameBody,
  formatRecord,
  NO_RECORD,
  parseRecord,
  type RanFile,
  type RecordBody,
  RecordError,
} from './record.js';
import { type Room, SecondHand, SLOT_BYTES } from './second-hand.js';

/** Time comes in as arguments: wall clock in RFC 3339 and a monotonic clock in microseconds. */
export interface TraceClock {
  wall(): string;
  monotonic(): number;
}

type Body = Exclude<RecordBody, { type: 'close' }>;

/** What `close` is told; count and head it knows. */
export interface TraceEnd {
  readonly exit?: number | undefined;
  readonly signal?: string | undefined;
  /** The executable that was run, when its digest was not yet known at the beginning. */
  readonly executable?: RanFile | undefined;
}

/** What the next process has to know to go on in a trace that several write, one at a time. */
export interface TraceTail {
  readonly n: number;
  readonly prev: string;
  readonly offset: number;
  /** Monotonic clock when the trace was opened, microseconds: one that the processes share. */
  readonly started: number;
  readonly lost: number;
  readonly unreported: number;
  readonly reason?: string | undefined;
}

/** The second thread's program. Sources are not run by threads: there the first one does it all. */
const THREAD = import.meta.url.endsWith('.js')
  ? new URL('./second-hand-thread.js', import.meta.url)
  : undefined;
/** Content from this size on is worth another thread's while; bytes. */
const LARGE = 1024 * 1024;

/**
 * Between two syncs at least this many milliseconds pass, so that a storm of turns costs a bounded number of them, and
 * this many times what the last one took, so that a disk that can't keep up is not all there is to wait for.
 */
const SYNC_INTERVAL = 50;
const SYNC_SHARE = 8;
const MAX_SYNC_INTERVAL = 1_000;

/**
 * Appends records to one new trace file (0600, in a directory that is made 0700 when it is missing).
 *
 * Owned by one process; there is no lock because the file's name is new. `append` never throws: the traffic it
 * observes must go on whatever the disk does. A record that could not be written is counted, and the first that can
 * be written again is preceded by a `gap` record that says how many are missing and why. Each record is in the page
 * cache when `append` returns, by one write unless it is long: kill -9 of this process loses nothing that `append`
 * returned from, at most it leaves a torn tail; so does loss of power of what was not yet synced.
 */
export class TraceWriter {
  readonly path: string;
  readonly #clock: TraceClock;
  #started: number;
  #fd: number | undefined;
  #n = 0;
  #prev = NO_RECORD;
  /** End of the last whole record: where a half-written one is cut off. */
  #offset = 0;
  #lost = 0;
  /** Records lost since the last one that was written, and the error of the first of them. */
  #unreported = 0;
  #reason: string | undefined;
  #syncing = false;
  #syncWanted = false;
  #syncFailed = false;
  readonly #stage = new LineStage();
  /** Writes records of large frames, where the process allows it a thread. */
  #secondHand: SecondHand | undefined;

  private constructor(path: string, fd: number | undefined, clock: TraceClock) {
    this.path = path;
    this.#fd = fd;
    this.#clock = clock;
    this.#started = clock.monotonic();
  }

  /** Makes the file and writes its `open` record. Throws when the file can't be made, or exists. */
  static create(path: string, open: Body & { type: 'open' }, clock: TraceClock): TraceWriter {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const fd = openSync(
      path,
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND,
      0o600,
    );
    const writer = new TraceWriter(path, fd, clock);
    writer.append(open);
    return writer;
  }

  /**
   * Goes on in a trace that another process left. Lines that it wrote without telling are taken in, a torn one is cut
   * off and recorded as a gap. Undefined when the file is not what the tail says: then it is left alone.
   */
  static resume(path: string, tail: TraceTail, clock: TraceClock): TraceWriter | undefined {
    let fd;
    try {
      fd = openSync(path, constants.O_RDWR | constants.O_APPEND);
    } catch {
      return undefined;
    }
    const writer = new TraceWriter(path, fd, clock);
    writer.#n = tail.n;
    writer.#prev = tail.prev;
    writer.#offset = tail.offset;
    writer.#started = tail.started;
    writer.#lost = tail.lost;
    writer.#unreported = tail.unreported;
    writer.#reason = tail.reason;
    if (writer.#takeIn(fd)) return writer;
    closeSync(fd);
    return undefined;
  }

  /** Closes the file without a last word; another process goes on from what this returns. */
  leave(): TraceTail {
    this.#settle();
    this.#secondHand?.end();
    const tail = {
      n: this.#n,
      prev: this.#prev,
      offset: this.#offset,
      started: this.#started,
      lost: this.#lost,
      unreported: this.#unreported,
      reason: this.#reason,
    };
    const content = this.#secondHand?.content;
    if (content !== undefined) closeSync(content);
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
    return tail;
  }

  /** Records that could not be written so far. */
  get lost(): number {
    return this.#lost;
  }

  /** Appends one record; false when it was lost. `data` is the content that `body.sha256` is of, whole or in parts. */
  append(body: Body, data?: Buffer | readonly Buffer[]): boolean {
    this.#settle();
    if (this.#fd === undefined) {
      this.#lose('closed');
      return false;
    }
    if (this.#unreported > 0) {
      const gap = { type: 'gap', reason: 'write', count: this.#unreported, code: this.#reason } as const;
      if (!this.#write(gap, undefined)) {
        this.#lose(undefined);
        return false;
      }
      this.#unreported = 0;
      this.#reason = undefined;
    }
    if (this.#write(body, data)) return true;
    this.#lose(undefined);
    return false;
  }

  /**
   * Appends the record of a frame that nobody waits for, its digest to be taken on the way. A large one may be written a
   * little later, by another thread, but before whatever is appended next.
   */
  appendLater(body: Omit<FrameBody, 'sha256'>, parts: readonly Buffer[]): void {
    const fd = this.#fd;
    const { size } = body;
    const secondHand =
      fd !== undefined && size >= LARGE && size <= SLOT_BYTES ? this.#readySecondHand(fd) : undefined;
    if (secondHand !== undefined && this.#unreported === 0) {
      const state = { n: this.#n, prev: this.#prev, offset: this.#offset };
      const task = { size, time: this.#clock.wall(), at: this.#elapsed(), body };
      const posted = secondHand.post(state, parts, task);
      if (posted === undefined) this.#giveUp();
      if (posted !== 'none') return;
    }
    const hash = createHash('sha256');
    for (const part of parts) hash.update(part);
    this.append({ ...body, sha256: hash.digest('hex') }, parts);
  }

  /**
   * Memory for the content of a large frame that is to be appended later: from there it is not copied again. It is the
   * caller's until the next is asked for. Undefined where there is none; waits where all of it is being written from.
   */
  room(): Room | undefined {
    if (this.#fd === undefined) return undefined;
    const secondHand = this.#readySecondHand(this.#fd);
    const room = secondHand?.room();
    if (secondHand !== undefined && room === undefined) this.#giveUp();
    return room === 'none' ? undefined : room;
  }

  /** Started when it is first asked for; undefined until it is ready, and where a process has none. */
  #readySecondHand(fd: number): SecondHand | undefined {
    if (THREAD === undefined) return undefined;
    this.#secondHand ??= new SecondHand(THREAD, fd, this.path, () => {
      if (this.#syncWanted) this.sync();
    });
    return this.#secondHand.ready ? this.#secondHand : undefined;
  }

  /** Asks for what was appended to be durable soon. Never waits; requests while one is running become one. */
  sync(): void {
    if (this.#fd === undefined) return;
    this.#syncWanted = true;
    if (this.#syncing) return;
    this.#syncing = true;
    this.#syncWanted = this.#secondHand?.busy ?? false;
    const began = this.#clock.monotonic();
    this.#makeDurable((error) => {
      if (error !== null) this.#notDurable(error);
      const took = (this.#clock.monotonic() - began) / 1_000;
      setTimeout(
        () => {
          this.#syncing = false;
          if (this.#syncWanted) this.sync();
        },
        Math.min(MAX_SYNC_INTERVAL, Math.max(SYNC_INTERVAL, SYNC_SHARE * took)),
      ).unref();
    });
  }

  /** Content before the records that speak of it. */
  #makeDurable(done: (error: NodeJS.ErrnoException | null) => void): void {
    const content = this.#secondHand?.content;
    const records = (error: NodeJS.ErrnoException | null): void => {
      if (error !== null || this.#fd === undefined) done(error);
      else fdatasync(this.#fd, done);
    };
    if (content === undefined) records(null);
    else fdatasync(content, records);
  }

  /** Told once: after an error nobody can say which records are on the disk and which only seem to be. */
  #notDurable({ code }: NodeJS.ErrnoException): void {
    if (this.#fd === undefined || this.#syncFailed) return;
    this.#syncFailed = true;
    this.append({ type: 'gap', reason: 'sync', count: 0, code });
  }

  /** Writes the `close` record, makes the file durable and closes it. Nothing can be appended afterwards. */
  close(end: TraceEnd): void {
    this.#settle();
    this.#secondHand?.end();
    const fd = this.#fd;
    if (fd === undefined) return;
    if (this.#unreported > 0) {
      const gap = { type: 'gap', reason: 'write', count: this.#unreported, code: this.#reason } as const;
      if (this.#write(gap, undefined)) this.#unreported = 0;
    }
    this.#write({ type: 'close', ...end, lost: this.#lost, count: this.#n, head: this.#prev }, undefined);
    this.#fd = undefined;
    const content = this.#secondHand?.content;
    for (const file of content === undefined ? [fd] : [content, fd]) {
      try {
        fdatasyncSync(file);
      } catch {
        // The reader finds out: a file that did not reach the disk has no close record.
      }
      closeSync(file);
    }
  }

  #takeIn(fd: number): boolean {
    const { size } = fstatSync(fd);
    if (size < this.#offset) return false;
    if (size === this.#offset) return true;
    const bytes = Buffer.alloc(size - this.#offset);
    const read = readSync(fd, bytes, 0, bytes.length, this.#offset);
    let start = 0;
    try {
      for (let lf = bytes.indexOf(0x0a); lf >= 0 && lf < read; lf = bytes.indexOf(0x0a, start)) {
        const { record, hash } = parseRecord(bytes.subarray(start, lf));
        if (record.n !== this.#n || record.prev !== this.#prev || record.type === 'close') return false;
        start = lf + 1;
        this.#n++;
        this.#prev = hash;
      }
    } catch (error) {
      if (error instanceof RecordError) return false;
      throw error;
    }
    this.#offset += start;
    if (start === read) return true;
    ftruncateSync(fd, this.#offset);
    this.append({ type: 'gap', reason: 'torn', count: read - start });
    return true;
  }

  #write(body: RecordBody, data: Buffer | readonly Buffer[] | undefined): boolean {
    const fd = this.#fd as number;
    const stamp = {
      n: this.#n,
      time: this.#clock.wall(),
      at: this.#elapsed(),
      prev: this.#prev,
    };
    const { line, hash } = formatRecord(stamp, body, undefined);
    try {
      this.#stage.write(fd, line, data);
    } catch (error) {
      this.#reason ??= (error as NodeJS.ErrnoException).code ?? 'UNKNOWN';
      if (this.#stage.written > 0) this.#cutOff(fd);
      return false;
    }
    this.#offset += this.#stage.written;
    this.#n++;
    this.#prev = hash;
    return true;
  }

  #elapsed(): number {
    return Math.round(this.#clock.monotonic() - this.#started);
  }

  /** Takes the chain back from the second thread. */
  #settle(): void {
    const taken = this.#secondHand?.settle();
    if (taken === undefined) return;
    if (taken === 'hung') {
      this.#giveUp();
      return;
    }
    this.#n = taken.n;
    this.#prev = taken.prev;
    this.#offset = taken.offset;
    for (let lost = 0; lost < taken.failed; lost++) this.#lose(taken.code);
  }

  /** The other thread has the file, and does not come back: the trace ends here. */
  #giveUp(): void {
    this.#secondHand = undefined;
    this.#fd = undefined;
    this.#lose('HUNG');
  }

  /** A half-written line must not stay in front of the next one. If it can't be removed, the trace ends there, torn. */
  #cutOff(fd: number): void {
    try {
      ftruncateSync(fd, this.#offset);
    } catch {
      this.#fd = undefined;
      closeSync(fd);
    }
  }

  #lose(reason: string | undefined): void {
    this.#lost++;
    this.#unreported++;
    this.#reason ??= reason;
  }
}
