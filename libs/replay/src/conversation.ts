/**
 * One server that is talked to again: frames in, answers out, each within its time. What the server asks its client is
 * answered from the recording, or not at all.
 */

import type { Readable, Writable } from 'node:stream';
import {
  Correlator,
  type Direction,
  Framer,
  type Message,
  readFrame,
  type Request,
  type Response,
} from '@belay/mcp';
import { frameOf, requestKey } from './script.js';

/** A server as a process that was started for this conversation alone. */
export interface Server {
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Resolves when its process is gone. */
  readonly exited: Promise<unknown>;
  /** Ends it and everything it started. */
  kill(): Promise<void>;
}

/** Why there is no answer. */
export type Silence = 'REPLAY_TIMEOUT' | 'REPLAY_DIED' | 'REPLAY_FLOODED';

export type Answer = { readonly response: Response } | { readonly silence: Silence };

/** Bytes a server may write before it is taken to write without end: in one frame, and in all between two steps. */
export interface Bounds {
  readonly frame: number;
  readonly total: number;
}

export const BOUNDS: Bounds = { frame: 64 * 1024 * 1024, total: 256 * 1024 * 1024 };

interface Waiting {
  readonly resolve: (answer: Answer) => void;
  readonly timer: NodeJS.Timeout;
}

export class Conversation {
  readonly #server: Server;
  readonly #bounds: Bounds;
  readonly #answerFor: (request: Request) => Response | undefined;
  readonly #framer: Framer;
  readonly #correlator = new Correlator();
  readonly #numbers = new Map<number, number>();
  readonly #answers = new Map<number, Response>();
  readonly #waiting = new Map<number, Waiting>();
  #bytes = 0;
  #over: Silence | undefined;
  #diverged = 0;
  #asked = 0;

  /** `answerFor` gives what the recording answered to such a request of the server, undefined where it did not. */
  constructor(
    server: Server,
    answerFor: (request: Request) => Response | undefined,
    bounds: Bounds = BOUNDS,
  ) {
    this.#server = server;
    this.#answerFor = answerFor;
    this.#bounds = bounds;
    this.#framer = new Framer(bounds.frame);
    server.stdout.on('data', (chunk: Buffer) => this.#receive(chunk));
    server.stdout.on('error', () => this.#end('REPLAY_DIED'));
    server.stdin.on('error', () => undefined);
    server.stdout.once('end', () => this.#end('REPLAY_DIED'));
    void server.exited.then(() => {
      // What it wrote before it ended may still be on its way.
      setImmediate(() => this.#end('REPLAY_DIED'));
    });
  }

  /** Why nothing more is to be had from the server, once that is so. */
  get over(): Silence | undefined {
    return this.#over;
  }

  /** Requests of the server that the recording has no answer to, so far. */
  get diverged(): number {
    return this.#diverged;
  }

  /** Writes a frame as it was recorded; `calls` are the numbers that its requests go by. */
  send(frame: Buffer, calls: readonly number[]): void {
    const numbers = [...calls];
    for (const message of readFrame(frameOf(frame)).messages) this.#observe('c2s', message, numbers);
    this.#write(frame);
  }

  /** Asks what nobody asked in the record. */
  ask(method: string, params: object, ms: number): Promise<Answer> {
    const number = -++this.#asked;
    const frame = { jsonrpc: '2.0', id: `belay-${-number}`, method, params };
    this.send(Buffer.from(`${JSON.stringify(frame)}\n`), [number]);
    return this.answer(number, ms);
  }

  /** The answer to the request with this number, waited for up to `ms`. Each answer is given out once. */
  answer(call: number, ms: number): Promise<Answer> {
    const response = this.#answers.get(call);
    if (response !== undefined) {
      this.#answers.delete(call);
      return Promise.resolve({ response });
    }
    if (this.#over !== undefined) return Promise.resolve({ silence: this.#over });
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(call);
        resolve({ silence: 'REPLAY_TIMEOUT' });
      }, ms);
      this.#waiting.set(call, { resolve, timer });
    });
  }

  /** Forgets what was read so far: the bound on it counts from here. */
  settle(): void {
    this.#bytes = 0;
  }

  /** Closes the server's input, gives it `ms` to end, then ends it. */
  async close(ms: number): Promise<void> {
    this.#server.stdin.end();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ms);
    });
    await Promise.race([this.#server.exited, late]);
    clearTimeout(timer);
    await this.#server.kill();
    this.#end('REPLAY_DIED');
  }

  #receive(chunk: Buffer): void {
    if (this.#over === 'REPLAY_FLOODED') return;
    this.#bytes += chunk.length;
    if (this.#bytes > this.#bounds.total || this.#framer.pending > this.#bounds.frame) {
      this.#end('REPLAY_FLOODED');
      void this.#server.kill();
      return;
    }
    this.#framer.push(chunk, (frame) => {
      if (frame.bytes === undefined) return;
      for (const message of readFrame(frame).messages) this.#observe('s2c', message);
    });
  }

  #observe(dir: Direction, message: Message, numbers: number[] = []): void {
    const seen = this.#correlator.observe(dir, message);
    if (seen.type === 'call' && dir === 'c2s') {
      const number = numbers.shift();
      if (number !== undefined) this.#numbers.set(seen.call.call, number);
    } else if (seen.type === 'call') this.#serve(seen.request);
    else if (seen.type === 'answer' && dir === 's2c') {
      const call = this.#numbers.get(seen.call.call);
      this.#numbers.delete(seen.call.call);
      if (call !== undefined) this.#answered(call, seen.response);
    }
  }

  #answered(call: number, response: Response): void {
    const waiting = this.#waiting.get(call);
    if (waiting === undefined) {
      this.#answers.set(call, response);
      return;
    }
    this.#waiting.delete(call);
    clearTimeout(waiting.timer);
    waiting.resolve({ response });
  }

  /** Answers under the id that was asked with, which may be another one than in the recording. */
  #serve(request: Request): void {
    const id = idOf(request.id);
    const response = requestKey(request) === undefined ? undefined : this.#answerFor(request);
    if (response === undefined) this.#diverged++;
    if (id === undefined) return;
    const body =
      response === undefined
        ? { error: { code: -32_603, message: 'the recording has no answer to this' } }
        : response.ok
          ? { result: response.result }
          : { error: response.error };
    this.#write(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', id, ...body })}\n`));
  }

  #write(frame: Buffer): void {
    if (this.#over === undefined && this.#server.stdin.writable) this.#server.stdin.write(frame);
  }

  #end(why: Silence): void {
    if (this.#over !== undefined) return;
    this.#over = why;
    for (const { resolve, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      resolve({ silence: why });
    }
    this.#waiting.clear();
  }
}

/** The id as JSON has it. */
function idOf(key: string): string | number | undefined {
  if (key.startsWith('s:')) return key.slice(2);
  return key.startsWith('n:') ? Number(key.slice(2)) : undefined;
}
