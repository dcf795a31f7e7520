/**
 * A second thread for records of large frames: hashing, encoding and writing 10 MB take longer than passing them on.
 * While it has records to write, the chain is its own; the first thread takes it back when it needs it.
 */

import { Worker } from 'node:worker_threads';
import { type FrameBody, NO_RECORD } from './record.js';

/** The largest content it takes, bytes, and how many of them at once. */
export const SLOT_BYTES = 16 * 1024 * 1024;
const SLOTS = 4;
/** How long a disk may hang until the trace is given up, in milliseconds. */
const PATIENCE = 30_000;

const [READY, DONE, FAILED, CODE_LENGTH, CONTENT] = [0, 1, 2, 3, 4];
const [N, OFFSET] = [0, 1];

/** Where a chain of records stands. */
export interface ChainState {
  readonly n: number;
  readonly prev: string;
  /** End of the last whole record in the file. */
  readonly offset: number;
}

/** What both threads see of the chain. */
export class SharedChain {
  readonly memory: SharedArrayBuffer;
  readonly #counts: Int32Array;
  readonly #numbers: Float64Array;
  readonly #prev: Buffer;
  readonly #code: Buffer;

  constructor(memory = new SharedArrayBuffer(512)) {
    this.memory = memory;
    this.#counts = new Int32Array(memory, 0, 5);
    this.#numbers = new Float64Array(memory, 64, 2);
    this.#prev = Buffer.from(memory, 128, NO_RECORD.length);
    this.#code = Buffer.from(memory, 256, 64);
  }

  get state(): ChainState {
    const [n, offset] = [this.#numbers[N] as number, this.#numbers[OFFSET] as number];
    return { n, offset, prev: this.#prev.toString('latin1') };
  }

  set state({ n, prev, offset }: ChainState) {
    this.#numbers[N] = n;
    this.#numbers[OFFSET] = offset;
    this.#prev.write(prev, 'latin1');
  }

  get ready(): boolean {
    return Atomics.load(this.#counts, READY) === 1;
  }

  setReady(): void {
    Atomics.store(this.#counts, READY, 1);
  }

  /** Records that were taken and could not be written, since the first thread last asked; and the first one's error. */
  get failed(): number {
    return Atomics.load(this.#counts, FAILED);
  }

  get code(): string {
    return this.#code.toString('latin1', 0, this.#counts[CODE_LENGTH]);
  }

  fail(code: string): void {
    if (Atomics.add(this.#counts, FAILED, 1) === 0)
      this.#counts[CODE_LENGTH] = this.#code.write(code, 'latin1');
  }

  forgive(): void {
    Atomics.store(this.#counts, FAILED, 0);
  }

  /** The file that content goes to, which both threads can make durable; undefined as long as there is none. */
  get content(): number | undefined {
    const fd = Atomics.load(this.#counts, CONTENT);
    return fd === 0 ? undefined : fd;
  }

  set content(fd: number) {
    Atomics.store(this.#counts, CONTENT, fd);
  }

  /** Records that were dealt with, from the beginning. */
  get done(): number {
    return Atomics.load(this.#counts, DONE);
  }

  finishOne(): void {
    Atomics.add(this.#counts, DONE, 1);
    Atomics.notify(this.#counts, DONE);
  }

  /** Waits until `done` is not `seen` any more; false when that takes longer than anything should. */
  await(seen: number): boolean {
    return Atomics.wait(this.#counts, DONE, seen, PATIENCE) !== 'timed-out';
  }
}

/** A record to write; `body` lacks the digest, which the second thread takes. */
export interface Task {
  readonly slot: number;
  readonly size: number;
  readonly time: string;
  readonly at: number;
  readonly body: Omit<FrameBody, 'sha256'>;
}

/** What the second thread starts with. */
export interface SecondHandData {
  readonly fd: number;
  /** Path of the trace. */
  readonly path: string;
  readonly chain: SharedArrayBuffer;
  readonly slots: readonly SharedArrayBuffer[];
}

/** Memory of a slot for one content. */
export interface Room {
  readonly memory: Buffer;
  /**
   * Says that a part of it is on its way to somewhere else, too, and may not be written over until the function that this
   * returns was called.
   */
  lend(): () => void;
}

/** The first thread's end. Nothing but this process may write to the file. */
export class SecondHand {
  readonly #chain = new SharedChain();
  readonly #slots = Array.from({ length: SLOTS }, () => new SharedArrayBuffer(SLOT_BYTES));
  readonly #worker: Worker;
  /** Of each slot, how many records have to be done until it is free. */
  readonly #busyUntil = Array.from({ length: SLOTS }, () => 0);
  /** Of each slot, how many parts are on their way to somewhere else. */
  readonly #lent = Array.from({ length: SLOTS }, () => 0);
  /** The slot that is being filled by whoever asked for room. */
  #taken: number | undefined;
  #posted = 0;
  #owns = false;
  #dead = false;

  /** `onDone` is called some time after records were written. */
  constructor(program: URL, fd: number, path: string, onDone: () => void) {
    const data: SecondHandData = { fd, path, chain: this.#chain.memory, slots: this.#slots };
    // Its own standard streams: the process's are not touched, whoever may be using them, and how.
    this.#worker = new Worker(program, {
      workerData: data,
      execArgv: [],
      env: {},
      stdout: true,
      stderr: true,
      // The content's file is made durable and closed by the first thread, when all is written.
      trackUnmanagedFds: false,
    });
    this.#worker.on('message', onDone);
    this.#worker.on('error', () => {
      this.#dead = true;
    });
    this.#worker.unref();
  }

  /** It takes a moment to start; until then, and when it can't, records are written by the first thread. */
  get ready(): boolean {
    return this.#chain.ready && !this.#dead;
  }

  /** The file that content of records went to, if there is one. */
  get content(): number | undefined {
    return this.#chain.content;
  }

  /** Whether it has records that are not written yet. */
  get busy(): boolean {
    return this.#chain.done !== this.#posted;
  }

  /**
   * A slot that nothing is written from, waiting for one; its owner's until the next is asked for. `none`: all that could
   * be waited for are on their way to somewhere else. Undefined: it hangs.
   */
  room(): Room | 'none' | undefined {
    this.#taken = undefined;
    const slot = this.#free();
    if (typeof slot !== 'number') return slot;
    this.#taken = slot;
    return {
      memory: Buffer.from(this.#slots[slot] as SharedArrayBuffer),
      lend: () => {
        (this.#lent[slot] as number)++;
        return () => {
          (this.#lent[slot] as number)--;
        };
      },
    };
  }

  /**
   * Hands a record over; `state` is where the chain stands, if it is ours. Content in memory that `room` returned stays
   * there, other content is copied. `none`: there is no room for it. Undefined: it hangs.
   */
  post(state: ChainState, parts: readonly Buffer[], task: Omit<Task, 'slot'>): 'posted' | 'none' | undefined {
    const slot = this.#slotOf(parts) ?? this.#fill(parts);
    if (typeof slot !== 'number') return slot;
    if (slot === this.#taken) this.#taken = undefined;
    if (!this.#owns) this.#chain.state = state;
    this.#owns = true;
    this.#posted++;
    this.#busyUntil[slot] = this.#posted;
    this.#worker.postMessage({ ...task, slot } satisfies Task, []);
    return 'posted';
  }

  #slotOf([part, ...more]: readonly Buffer[]): number | undefined {
    if (part === undefined || more.length > 0 || part.byteOffset !== 0) return undefined;
    const slot = this.#slots.findIndex((memory) => memory === part.buffer);
    return slot < 0 ? undefined : slot;
  }

  #fill(parts: readonly Buffer[]): number | 'none' | undefined {
    const slot = this.#free();
    if (typeof slot !== 'number') return slot;
    const into = new Uint8Array(this.#slots[slot] as SharedArrayBuffer);
    let at = 0;
    for (const part of parts) {
      into.set(part, at);
      at += part.length;
    }
    return slot;
  }

  /** Waits for a slot that is nobody's. What is on its way can't be waited for: it takes this thread to come back. */
  #free(): number | 'none' | undefined {
    for (;;) {
      const { done } = this.#chain;
      const isOurs = (slot: number): boolean => slot !== this.#taken && this.#lent[slot] === 0;
      const slot = this.#busyUntil.findIndex((until, each) => until <= done && isOurs(each));
      if (slot >= 0) return slot;
      if (!this.#busyUntil.some((until, each) => until > done && isOurs(each))) return 'none';
      if (!this.#chain.await(done)) return undefined;
    }
  }

  /**
   * Waits until all is written and takes the chain back: where it stands, and what was lost. Undefined when it is ours
   * anyway; `hung` when there is nothing to wait for any more.
   */
  settle(): (ChainState & { readonly failed: number; readonly code: string }) | 'hung' | undefined {
    if (!this.#owns) return undefined;
    while (this.busy) if (!this.#chain.await(this.#chain.done)) return 'hung';
    this.#owns = false;
    const { failed, code, state } = this.#chain;
    this.#chain.forgive();
    return { ...state, failed, code };
  }

  end(): void {
    void this.#worker.terminate();
  }
}
