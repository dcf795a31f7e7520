import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, readFileSync, readSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { acquire, type DirLock, DirLocked } from '@belay/dirlock';
import { LINES, readEpochRecord } from './epoch-record.js';
import { makeDir, readJson, sinkDir, writeJson } from './state.js';

/** How much of a file's beginning tells it from another file of the same name. Bytes. */
const PREFIX = 4096;
const LF = 0x0a;
const CR = 0x0d;

interface StoredPosition {
  readonly v: 1;
  readonly path: string;
  /** Epoch that reads the source, and how many of its events were made of the bytes before `offset`. */
  readonly epoch: string;
  readonly events: number;
  readonly offset: number;
  readonly prefix: { readonly length: number; readonly sha256: string };
}

/** Where to go on. `fresh`: read for the first time; `changed`: another file stands under the name, or it was cut. */
export interface SourceStart {
  readonly offset: number;
  readonly found: 'fresh' | 'resumed' | 'changed';
}

/** Another process is turning the same source into events of the same sink. */
export class SourceInUse extends Error {
  readonly pid: number;

  constructor(path: string, pid: number) {
    super(`${path} is being read by process ${pid}`);
    this.name = 'SourceInUse';
    this.pid = pid;
  }
}

/**
 * How far a file was turned into events, so that reading it again sends nothing twice, whenever the reader was killed.
 *
 * The truth is the spool: an event that is in it was read. The stored position is only a start to count from, so it may
 * be old, and no write has to be atomic with another. One event is one non-empty line.
 */
export class SourcePosition {
  readonly #own: string;
  readonly #file: string;
  readonly #folder: string;
  readonly #path: string;
  #lock: DirLock | undefined;

  /** `path` must exist. */
  constructor(state: string, log: string, sink: string, path: string) {
    this.#path = realpathSync(path);
    this.#folder = sinkDir(state, log, sink);
    const id = createHash('sha256').update(this.#path).digest('hex').slice(0, 16);
    this.#own = join(this.#folder, 'sources', id);
    this.#file = join(this.#own, 'position.json');
  }

  /** Where to go on. From here to `release` nobody else can read the source for this sink; throws SourceInUse. */
  start(): SourceStart {
    makeDir(this.#own);
    try {
      this.#lock ??= acquire(this.#own);
    } catch (error) {
      if (error instanceof DirLocked) throw new SourceInUse(this.#path, error.pid);
      throw error;
    }
    const stored = readJson(this.#file) as StoredPosition | undefined;
    if (stored === undefined) return { offset: 0, found: 'fresh' };
    const fd = openSync(this.#path, 'r');
    try {
      const { length, sha256 } = stored.prefix;
      if (fstatSync(fd).size < stored.offset || prefixOf(fd, length) !== sha256)
        return { offset: 0, found: 'changed' };
      const read = eventsOf(join(this.#folder, stored.epoch)) ?? stored.events;
      return { offset: skipLines(fd, stored.offset, read - stored.events), found: 'resumed' };
    } finally {
      closeSync(fd);
    }
  }

  release(): void {
    this.#lock?.release();
    this.#lock = undefined;
  }

  /** Everything before `offset` is in the spool of `epoch`, whose first `events` events are of this source. */
  save(epoch: string, events: number, offset: number): void {
    const fd = openSync(this.#path, 'r');
    try {
      const length = Math.min(PREFIX, offset);
      const prefix = { length, sha256: prefixOf(fd, length) };
      writeJson(this.#file, {
        v: 1,
        path: this.#path,
        epoch,
        events,
        offset,
        prefix,
      } satisfies StoredPosition);
    } finally {
      closeSync(fd);
    }
  }
}

/** Non-empty lines of a chunked stream: yields each line without LF or CRLF, and the offset after it. */
export class LineReader {
  #parts: Buffer[] = [];
  #length = 0;
  #offset: number;

  constructor(offset: number) {
    this.#offset = offset;
  }

  /** Bytes of the line that has not ended. */
  get pending(): Buffer {
    return Buffer.concat(this.#parts);
  }

  /** Offset after the last line that ended. */
  get offset(): number {
    return this.#offset;
  }

  *push(chunk: Buffer): Generator<{ readonly line: Buffer; readonly end: number }> {
    let start = 0;
    for (let lf = chunk.indexOf(LF); lf >= 0; lf = chunk.indexOf(LF, start)) {
      const piece = chunk.subarray(start, lf);
      const whole = this.#length === 0 ? piece : Buffer.concat([...this.#parts, piece]);
      this.#offset += whole.length + 1;
      this.#parts = [];
      this.#length = 0;
      start = lf + 1;
      const line = whole.at(-1) === CR ? whole.subarray(0, -1) : whole;
      if (line.length > 0) yield { line, end: this.#offset };
    }
    if (start < chunk.length) {
      this.#parts.push(chunk.subarray(start));
      this.#length += chunk.length - start;
    }
  }

  /** The stream has ended: what is left, if anything, is a line without terminator. */
  *end(): Generator<{ readonly line: Buffer; readonly end: number }> {
    const line = this.pending;
    this.#offset += line.length;
    this.#parts = [];
    this.#length = 0;
    if (line.length > 0) yield { line, end: this.#offset };
  }
}

function prefixOf(fd: number, length: number): string {
  const bytes = Buffer.alloc(length);
  const read = readSync(fd, bytes, 0, length, 0);
  return createHash('sha256').update(bytes.subarray(0, read)).digest('hex');
}

/** Events in an epoch's spool: all lines but the first, and but `epoch.close`. Undefined when nothing is known of it. */
function eventsOf(dir: string): number | undefined {
  const record = readEpochRecord(dir);
  if (record === undefined) return undefined;
  let lines: Buffer;
  try {
    lines = readFileSync(join(dir, LINES));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return record.closed === undefined ? undefined : record.closed.size - (record.abandoned === true ? 1 : 2);
  }
  let count = 0;
  let last = 0;
  for (let at = lines.indexOf(LF); at >= 0; at = lines.indexOf(LF, at + 1)) {
    count++;
    if (lines.indexOf(LF, at + 1) >= 0) last = at + 1;
  }
  const closed = lines.subarray(last).includes('"kind":"epoch.close"');
  return Math.max(0, count - (closed ? 2 : 1));
}

/** Offset after `count` more non-empty lines. A last line without LF counts as one. */
function skipLines(fd: number, offset: number, count: number): number {
  if (count <= 0) return offset;
  const reader = new LineReader(offset);
  const chunk = Buffer.alloc(256 * 1024);
  let left = count;
  for (let at = offset; ;) {
    const read = readSync(fd, chunk, 0, chunk.length, at);
    if (read === 0) {
      for (const { end } of reader.end()) return end;
      return reader.offset;
    }
    at += read;
    for (const { end } of reader.push(Buffer.from(chunk.subarray(0, read)))) if (--left === 0) return end;
  }
}
