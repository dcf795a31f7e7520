/** The way of strace's log to us: a pipe that nobody else has a name or a descriptor of. */

import { spawnSync } from 'node:child_process';
import { constants, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import type { Denial } from './denial.js';
import { type BoundaryView, readDenial } from './denials.js';
import { SandboxError } from './error.js';

/** A path has at most 4,096 bytes, each at most 4 when escaped, and a rename has two. */
const MAX_LINE = 64 * 1024;
const CHUNK = 64 * 1024;
/** How long one that is tried again and again is only counted, in milliseconds. */
const REPEATS_WAIT = 200;

export class DenialLog {
  /** What strace is to open: by our own descriptor, for the pipe has no name any more. */
  readonly output: string;
  readonly #fd: number;
  #view: BoundaryView;
  readonly #socket: Socket;
  readonly #buffer = Buffer.allocUnsafe(CHUNK);
  #listener: ((denial: Denial) => void) | undefined;
  #early: Denial[] = [];
  #rest = '';
  /** The last one that was told, and how often it was tried again since. */
  #last: Denial | undefined;
  #repeats: Denial | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(fd: number, view: BoundaryView) {
    this.#fd = fd;
    this.#view = view;
    this.output = `/proc/${process.pid}/fd/${fd}`;
    // Our own end for writing is open too, so the pipe has no end: it is over when we say so.
    this.#socket = new Socket({ fd, readable: true, writable: false });
    this.#socket.on('data', (chunk: Buffer) => this.#take(chunk));
    this.#socket.on('error', () => undefined);
    this.#socket.unref();
  }

  /** `scratch`: a folder in which a private one is made, and removed again before this returns. */
  static open(scratch: string, mkfifo: string, view: BoundaryView): DenialLog {
    const folder = mkdtempSync(join(scratch, 'belay-denials-'));
    try {
      const path = join(folder, 'log');
      const made = spawnSync(mkfifo, ['-m', '600', path], { stdio: 'ignore' });
      if (made.status !== 0) {
        throw new SandboxError('BACKEND_UNAVAILABLE', `no pipe for refusals could be made in ${scratch}`);
      }
      return new DenialLog(openSync(path, constants.O_RDWR | constants.O_NONBLOCK), view);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** Called for each denial, in order; those from before the call are told at once. */
  listen(listener: (denial: Denial) => void): void {
    this.#listener = listener;
    const early = this.#early;
    this.#early = [];
    for (const each of early) listener(each);
  }

  /** From now on, refusals are of this boundary. */
  look(view: BoundaryView): void {
    this.drain();
    this.#view = view;
  }

  /** What was told before anybody listened; it is told to nobody else. */
  takeEarly(): Denial[] {
    this.drain();
    const early = this.#early;
    this.#early = [];
    return early;
  }

  /**
   * Tells what is in the pipe now. strace writes a line before the process that was refused goes on, so whatever that
   * process did afterwards, its refusal is told here.
   */
  drain(): void {
    while (!this.#closed) {
      let size = 0;
      try {
        size = readSync(this.#fd, this.#buffer);
      } catch {
        // There is nothing in it now.
      }
      if (size === 0) break;
      this.#take(this.#buffer.subarray(0, size));
    }
    this.#tellRepeats();
  }

  close(): void {
    if (this.#closed) return;
    this.drain();
    this.#closed = true;
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    const lines = (this.#rest + chunk.toString('latin1')).split('\n');
    this.#rest = lines.pop() as string;
    if (this.#rest.length > MAX_LINE) this.#rest = '';
    for (const line of lines) {
      const denial = readDenial(line, this.#view);
      if (denial === undefined) continue;
      if (this.#last === undefined || !isSame(this.#last, denial)) {
        this.#tellRepeats();
        this.#last = denial;
        this.#tell(denial);
      } else {
        this.#repeats = { ...denial, count: (this.#repeats?.count ?? 0) + 1 };
        this.#timer ??= setTimeout(() => this.#tellRepeats(), REPEATS_WAIT).unref();
      }
    }
  }

  #tellRepeats(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#repeats !== undefined) this.#tell(this.#repeats);
    this.#repeats = undefined;
  }

  #tell(denial: Denial): void {
    if (this.#listener === undefined) this.#early.push(denial);
    else this.#listener(denial);
  }
}

/** Whoever tries the same in a loop is told of at once, and then by count. */
function isSame(a: Denial, b: Denial): boolean {
  return (
    a.syscall === b.syscall &&
    a.errno === b.errno &&
    a.pid === b.pid &&
    a.path === b.path &&
    a.passed === b.passed &&
    a.address === b.address
  );
}
