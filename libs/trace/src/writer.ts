import {
  closeSync,
  constants,
  fdatasync,
  fdatasyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { formatRecord, NO_RECORD, type RecordBody } from './record.js';

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
}

/** Between two syncs at least this many milliseconds pass, so that a storm of turns costs a bounded number of them. */
const SYNC_INTERVAL = 50;

/**
 * Appends records to one new trace file (0600, in a directory that is made 0700 when it is missing).
 *
 * Owned by one process; there is no lock because the file's name is new. `append` never throws: the traffic it
 * observes must go on whatever the disk does. A record that could not be written is counted, and the first that can
 * be written again is preceded by a `gap` record that says how many are missing and why. Each record is one write of
 * one whole line to the page cache: kill -9 of this process loses nothing that `append` returned from; loss of power
 * loses what was not yet synced, as a torn tail.
 */
export class TraceWriter {
  readonly path: string;
  readonly #clock: TraceClock;
  readonly #started: number;
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

  /** Records that could not be written so far. */
  get lost(): number {
    return this.#lost;
  }

  /** Appends one record; false when it was lost. `data` is the content that `body.sha256` is of. */
  append(body: Body, data?: Buffer): boolean {
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
    fdatasync(this.#fd, () => {
      setTimeout(() => {
        this.#syncing = false;
        if (this.#syncWanted) this.sync();
      }, SYNC_INTERVAL).unref();
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

  #write(body: RecordBody, data: Buffer | undefined): boolean {
    const fd = this.#fd as number;
    const stamp = {
      n: this.#n,
      time: this.#clock.wall(),
      at: Math.round(this.#clock.monotonic() - this.#started),
      prev: this.#prev,
    };
    const { line, hash } = formatRecord(stamp, body, data);
    const bytes = Buffer.from(`${line}\n`, 'utf8');
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(fd, bytes, written, bytes.length - written);
    } catch (error) {
      this.#reason ??= (error as NodeJS.ErrnoException).code ?? 'UNKNOWN';
      if (written > 0) this.#cutOff(fd);
      return false;
    }
    this.#offset += bytes.length;
    this.#n++;
    this.#prev = hash;
    return true;
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
