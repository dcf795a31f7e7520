import { Worker } from 'node:worker_threads';
import { type Answers, examine, type Question, Unfit } from './examine.js';

/** Bytes from which a question is worth another thread's while: reading them takes some milliseconds. */
const LARGE = 32 * 1024;

/** The second thread's program. Sources are not run by threads: there the first one does it all. */
const PROGRAM = import.meta.url.endsWith('.js') ? new URL('./examine-thread.js', import.meta.url) : undefined;

export interface Asked {
  readonly id: number;
  readonly question: Question;
}

export type Answered = { readonly id: number } & (
  { readonly answer: Answers[Question['kind']] } | { readonly message: string; readonly unfit: boolean }
);

/**
 * Reads what was handed in beside the event loop that takes appends: the JSON of a large session is megabytes. One
 * thread, started with the first large question. When it dies, what it was asked fails and the next question starts
 * another.
 */
export class Examiner {
  readonly #waiting = new Map<number, { resolve: (answer: never) => void; reject: (error: Error) => void }>();
  readonly #program: URL | undefined;
  #thread: Worker | undefined;
  #asked = 0;

  constructor(program = PROGRAM) {
    this.#program = program;
  }

  /** Throws Unfit for what is not what it should be. */
  async examine<Q extends Question>(question: Q): Promise<Answers[Q['kind']]> {
    if (this.#program === undefined || sizeOf(question) < LARGE) return examine(question);
    const thread = (this.#thread ??= this.#start(this.#program));
    const id = ++this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      // A process stays for an answer that is due, and for nothing else.
      thread.ref();
      thread.postMessage({ id, question } satisfies Asked, []);
    });
  }

  async close(): Promise<void> {
    await this.#thread?.terminate();
  }

  #start(program: URL): Worker {
    const thread = new Worker(program, { execArgv: [], env: {}, stdout: true, stderr: true });
    let trouble: Error | undefined;
    thread.on('message', (answered: Answered) => {
      const waiting = this.#waiting.get(answered.id);
      this.#waiting.delete(answered.id);
      if (this.#waiting.size === 0) thread.unref();
      if ('answer' in answered) waiting?.resolve(answered.answer as never);
      else {
        const { message, unfit } = answered;
        waiting?.reject(unfit ? new Unfit(message) : new Error(message));
      }
    });
    thread.on('error', (error) => {
      trouble = error;
    });
    thread.on('exit', () => {
      if (this.#thread === thread) this.#thread = undefined;
      for (const { reject } of this.#waiting.values()) reject(trouble ?? new Error('the thread ended'));
      this.#waiting.clear();
    });
    thread.unref();
    return thread;
  }
}

function sizeOf(question: Question): number {
  if (question.kind !== 'statements') return question.payload.length;
  return question.bytes.reduce((sum, { length }) => sum + length, 0);
}
