import { Worker } from 'node:worker_threads';
import { Capturer, type Captured, type CaptureOptions } from './capture.js';
import { Store } from './store.js';

/** The thread's program. Sources are not run by threads: there the caller's own does it all. */
const PROGRAM = import.meta.url.endsWith('.js') ? new URL('./capture-thread.js', import.meta.url) : undefined;

/** What can be handed to a thread: `processes` stays here and is asked before each capture. */
export type CaptureThreadOptions = Omit<CaptureOptions, 'store' | 'processes' | 'now'> & {
  /** The store's directory. */
  readonly store: string;
  readonly processes?: () => readonly number[];
};

/** What the thread starts with. */
export type ThreadData = Omit<CaptureThreadOptions, 'processes'>;

export interface ThreadRequest {
  readonly id: number;
  readonly what: 'capture' | 'verify' | 'close';
  readonly pids: readonly number[];
}

/** Answer to a request; the first, to none, says that the capturer is open or why it is not. */
export type ThreadAnswer =
  | {
      readonly id: number;
      readonly captured?: Captured;
      readonly written: Written;
      readonly method: 'events' | 'walk';
    }
  | { readonly id: number; readonly error: { readonly code?: string; readonly message: string } };

export interface Written {
  readonly pack: number;
  readonly journal: number;
}

interface Backend {
  request(what: ThreadRequest['what'], pids: readonly number[]): Promise<Captured | undefined>;
  readonly written: Written;
  readonly method: 'events' | 'walk';
}

/**
 * A capturer in a thread of its own: the caller's goes on while one is at work. Requests are done in the order in which
 * they are made. Nothing is thrown but by `open`: a thread that died makes every state `unrestorable`.
 */
export class CaptureThread {
  readonly #backend: Backend;
  readonly #processes: () => readonly number[];

  private constructor(backend: Backend, processes: () => readonly number[]) {
    this.#backend = backend;
    this.#processes = processes;
  }

  /** Opens store and roots; the first capture looks at everything. Rejects with what is wrong with either. */
  static async open({ processes, ...data }: CaptureThreadOptions): Promise<CaptureThread> {
    const backend = PROGRAM ? await openThread(PROGRAM, data) : openHere(data);
    return new CaptureThread(backend, processes ?? (() => []));
  }

  /** Bytes added to the store, as of the last capture. */
  get written(): Written {
    return this.#backend.written;
  }

  get method(): 'events' | 'walk' {
    return this.#backend.method;
  }

  async capture(): Promise<Captured> {
    return this.#ask('capture');
  }

  /** Everything is looked at and every file read. */
  async verify(): Promise<Captured> {
    return this.#ask('verify');
  }

  /** What was kept is synced. */
  async close(): Promise<void> {
    await this.#backend.request('close', []);
  }

  async #ask(what: 'capture' | 'verify'): Promise<Captured> {
    let pids: readonly number[];
    try {
      pids = this.#processes();
    } catch (error) {
      return { kind: 'unrestorable', cause: 'process', detail: (error as Error).message, ms: 0 };
    }
    return (await this.#backend.request(what, pids)) ?? closed('the capturer is closed');
  }
}

const closed = (detail: string): Captured => ({ kind: 'unrestorable', cause: 'system', detail, ms: 0 });

function openHere(data: ThreadData): Backend {
  let pids: readonly number[] = [];
  const capturer = Capturer.open({ ...data, store: Store.open(data.store), processes: () => pids });
  let open = true;
  return {
    request: async (what, given) => {
      pids = given;
      if (!open) return undefined;
      if (what === 'close') {
        open = false;
        capturer.close();
        return undefined;
      }
      return what === 'capture' ? capturer.capture() : capturer.verify();
    },
    get written() {
      return capturer.written;
    },
    get method() {
      return capturer.method;
    },
  };
}

async function openThread(program: URL, data: ThreadData): Promise<Backend> {
  // Its own standard streams: the process's are not touched, whoever may be using them, and how.
  const worker = new Worker(program, { workerData: data, execArgv: [], env: {}, stdout: true, stderr: true });
  const waiting = new Map<number, (captured: Captured | undefined) => void>();
  let last = 0;
  let dead: string | undefined;
  let written: Written = { pack: 0, journal: 0 };
  let method: 'events' | 'walk' = 'walk';

  await new Promise<void>((opened, refused) => {
    worker.on('message', (answer: ThreadAnswer) => {
      if ('error' in answer) {
        refused(Object.assign(new Error(answer.error.message), { code: answer.error.code }));
        return;
      }
      ({ written, method } = answer);
      if (answer.id === 0) opened();
      waiting.get(answer.id)?.(answer.captured);
      waiting.delete(answer.id);
      // It keeps the process alive only while it is waited for.
      if (waiting.size === 0) worker.unref();
    });
    const die = (reason: string): void => {
      dead ??= reason;
      refused(new Error(dead));
      for (const answer of waiting.values()) answer(closed(dead));
      waiting.clear();
    };
    worker.on('error', (error) => die(`the capture thread died: ${error.message}`));
    worker.on('exit', () => die('the capture thread has ended'));
  });

  return {
    request: (what, pids) => {
      if (dead !== undefined) return Promise.resolve(what === 'close' ? undefined : closed(dead));
      return new Promise((answer) => {
        const id = ++last;
        waiting.set(id, answer);
        worker.ref();
        worker.postMessage({ id, what, pids } satisfies ThreadRequest, []);
      });
    },
    get written() {
      return written;
    },
    get method() {
      return method;
    },
  };
}
