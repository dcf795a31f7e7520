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
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import {
  DATA,
  formatRecord,
  NO_RECORD,
  parseRecord,
  type RanFile,
  type RecordBody,
  RecordError,
} from './record.js';

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

/** Where lines are put together; longer ones are written in pieces of this size. Bytes. */
const STAGE = 256 * 1024;
/** The longest piece of content, in bytes, whose base64 fits into the stage. */
const STAGED_CONTENT = (STAGE / 4) * 3;

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
  readonly #stage = Buffer.allocUnsafeSlow(STAGE);
  #staged = 0;
  /** Bytes of the record being written that the file has. */
  #written = 0;

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
    const tail = {
      n: this.#n,
      prev: this.#prev,
      offset: this.#offset,
      started: this.#started,
      lost: this.#lost,
      unreported: this.#unreported,
      reason: this.#reason,
    };
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

  /** Asks for what was appended to be durable soon. Never waits; requests while one is running become one. */
  sync(): void {
    if (this.#fd === undefined) return;
    this.#syncWanted = true;
    if (this.#syncing) return;
    this.#syncing = true;
    this.#syncWanted = false;
    const began = this.#clock.monotonic();
    fdatasync(this.#fd, () => {
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

  /** Writes the `close` record, makes the file durable and closes it. Nothing can be appended afterwards. */
  close(end: TraceEnd): void {
    const fd = this.#fd;
    if (fd === undefined) return;
    if (this.#unreported > 0) {
      const gap = { type: 'gap', reason: 'write', count: this.#unreported, code: this.#reason } as const;
      if (this.#write(gap, undefined)) this.#unreported = 0;
    }
    this.#write({ type: 'close', ...end, lost: this.#lost, count: this.#n, head: this.#prev }, undefined);
    this.#fd = undefined;
    try {
      fdatasyncSync(fd);
    } catch {
      // The reader finds out: a file that did not reach the disk has no close record.
    }
    closeSync(fd);
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
      at: Math.round(this.#clock.monotonic() - this.#started),
      prev: this.#prev,
    };
    const { line, hash } = formatRecord(stamp, body, undefined);
    this.#staged = 0;
    this.#written = 0;
    try {
      if (data === undefined) {
        this.#put(fd, `${line}\n`);
      } else {
        this.#put(fd, line.slice(0, -1) + DATA);
        this.#putBase64(fd, Buffer.isBuffer(data) ? [data] : data);
        this.#put(fd, '"}\n');
      }
      this.#flush(fd);
    } catch (error) {
      this.#reason ??= (error as NodeJS.ErrnoException).code ?? 'UNKNOWN';
      if (this.#written > 0) this.#cutOff(fd);
      return false;
    }
    this.#offset += this.#written;
    this.#n++;
    this.#prev = hash;
    return true;
  }

  #put(fd: number, text: string): void {
    // What UTF-8 can take at most.
    if (text.length * 3 > STAGE) {
      this.#flush(fd);
      this.#writeAll(fd, Buffer.from(text, 'utf8'));
      return;
    }
    if (text.length * 3 > STAGE - this.#staged) this.#flush(fd);
    this.#staged += this.#stage.write(text, this.#staged, 'utf8');
  }

  /** Three bytes are four characters: what is left of a part goes in front of the next one. */
  #putBase64(fd: number, parts: readonly Buffer[]): void {
    let rest: Buffer = Buffer.alloc(0);
    for (const part of parts) {
      let at = 0;
      if (rest.length > 0) {
        at = Math.min(3 - rest.length, part.length);
        rest = Buffer.concat([rest, part.subarray(0, at)]);
        if (rest.length < 3) continue;
        this.#encode(fd, rest);
      }
      const end = part.length - ((part.length - at) % 3);
      for (; at < end; at += STAGED_CONTENT) {
        this.#encode(fd, part.subarray(at, Math.min(end, at + STAGED_CONTENT)));
      }
      rest = part.subarray(end);
    }
    this.#encode(fd, rest);
  }

  #encode(fd: number, bytes: Buffer): void {
    if (Math.ceil(bytes.length / 3) * 4 > STAGE - this.#staged) this.#flush(fd);
    this.#staged += this.#stage.write(bytes.toString('base64'), this.#staged, 'latin1');
  }

  #flush(fd: number): void {
    const staged = this.#stage.subarray(0, this.#staged);
    this.#staged = 0;
    this.#writeAll(fd, staged);
  }

  #writeAll(fd: number, bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      const written = writeSync(fd, bytes, at, bytes.length - at);
      at += written;
      this.#written += written;
    }
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
