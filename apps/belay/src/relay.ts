/** Bytes from one stream to another, verbatim, with back-pressure; who watches sees a copy. */

import { fstatSync, write } from 'node:fs';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { type Lent, ServerOutput, type Source } from './server-output.js';

/**
 * What a receiver may be behind before its sender is held up; bytes. The platform's own default is less than one read,
 * so that every chunk stops and starts its source.
 */
export const BEHIND = 1024 * 1024;

/** Bytes of stderr kept for a reader that does not read; what comes on top is not passed on (the trace has it). */
const MAX_UNREAD = 4 * 1024 * 1024;

/**
 * Standard output as a stream that never blocks. `process.stdout` writes synchronously to pipes: a client that reads
 * slowly would stop both directions.
 */
export function standardOutput(): Writable {
  const kind = fstatSync(1);
  return kind.isFIFO() || kind.isSocket()
    ? new Socket({ fd: 1, readable: false, writable: true })
    : process.stdout;
}

/**
 * Standard error without blocking, and without making it non-blocking: its pipe is often shared with the process that
 * started us. Writes go through the thread pool, one at a time.
 */
export class StandardError {
  readonly #queue: Buffer[] = [];
  #queued = 0;
  #writing = false;
  #dropped = 0;
  #idle: (() => void) | undefined;

  /** Bytes that were not passed on because nobody read. */
  get dropped(): number {
    return this.#dropped;
  }

  write(chunk: Buffer): void {
    if (this.#queued + chunk.length > MAX_UNREAD) {
      this.#dropped += chunk.length;
      return;
    }
    this.#queue.push(chunk);
    this.#queued += chunk.length;
    if (!this.#writing) this.#next();
  }

  /** Resolves when everything was written, or after `ms`. */
  async drained(ms: number): Promise<void> {
    if (!this.#writing) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#idle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #next(): void {
    const [chunk] = this.#queue;
    if (chunk === undefined) {
      this.#writing = false;
      this.#idle?.();
      return;
    }
    this.#writing = true;
    write(2, chunk, (error, written) => {
      // Whoever closed our stderr does not want it; the trace still has all of it.
      const done = error ? chunk.length : written;
      this.#queued -= done;
      if (done < chunk.length) this.#queue[0] = chunk.subarray(done);
      else this.#queue.shift();
      this.#next();
    });
  }
}

export interface RelayHooks {
  /** Sees a chunk before it is written. */
  readonly before?: (chunk: Buffer) => void;
  /** Sees a chunk after it was handed to the receiving stream; true when nothing of it is held on to. */
  readonly after?: (chunk: Buffer) => boolean;
  /** Where the next chunk is best read to; `after` sees it first. */
  readonly lend?: () => Lent | undefined;
  /** The source has ended, and the receiver was told. */
  readonly onEnd: () => void;
  /** The receiver is gone. What still comes is read and seen, so that the source can go on to its end. */
  readonly onBroken: () => void;
}

/** Relays until the source ends. Never holds more than the streams' own buffers. */
export function relay(source: Source, sink: Writable, hooks: RelayHooks): void {
  let broken = false;
  let ended = false;
  sink.on('error', () => {
    if (broken) return;
    broken = true;
    source.resume();
    hooks.onBroken();
  });
  const flow = (more: boolean): void => {
    if (more) return;
    source.pause();
    sink.once('drain', () => source.resume());
  };
  source.on('data', (chunk: Buffer, giveBack?: () => void) => {
    hooks.before?.(chunk);
    if (giveBack === undefined) {
      if (!broken) flow(sink.write(chunk));
      hooks.after?.(chunk);
      return;
    }
    // Read into again when it is written and nobody who watches has kept it.
    let users = 2;
    const done = (): void => {
      if (--users === 0) giveBack();
    };
    if (broken) done();
    else flow(sink.write(chunk, done));
    if (hooks.after?.(chunk) === true) done();
  });
  const end = (): void => {
    if (ended) return;
    ended = true;
    sink.end();
    hooks.onEnd();
  };
  source.on('end', end);
  source.on('close', end);
  source.on('error', end);
  if (hooks.lend !== undefined && source instanceof ServerOutput) source.borrow(hooks.lend);
  source.resume();
}
