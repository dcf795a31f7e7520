import { Worker } from 'node:worker_threads';
import { AccountStore, type Connection, openDatabase, Reader } from '@belay/db';
import type { Logger } from 'pino';
import type { WorkerCollector } from './nats-collector.js';
import { assembleWorker, type WorkerOptions } from './schedules.js';
import type { FromThread, ThreadData, ToThread } from './thread-messages.js';

/** Sources are not run by threads: there the worker is on the first one. */
const PROGRAM = import.meta.url.endsWith('.js') ? new URL('./thread.js', import.meta.url) : undefined;
/** Connections of each of its two pools. */
const POOL = 6;
/** How long after its end a thread that was not to end is started again, milliseconds. */
const AGAIN_MS = 1_000;

export interface StartedWorker {
  /** Ends what is under way, and the thread. */
  close(): Promise<void>;
}

/** A worker beside other things in one process, on a thread of its own. */
export function startWorker(
  connection: Connection,
  options: WorkerOptions,
  collector: WorkerCollector,
  log: { readonly logger: Logger; readonly level: string; readonly write: (line: string) => void },
): StartedWorker {
  if (PROGRAM === undefined) return startHere(connection, options, collector, log.logger);
  const data: ThreadData = { connection, pool: POOL, options, logLevel: log.level };
  return new OwnThread(PROGRAM, data, collector, log);
}

class OwnThread implements StartedWorker {
  readonly #program: URL;
  readonly #data: ThreadData;
  readonly #collector: WorkerCollector;
  readonly #log: { readonly logger: Logger; readonly write: (line: string) => void };
  #thread: Worker;
  #ended: Promise<void> = Promise.resolve();
  #again: NodeJS.Timeout | undefined;
  #closing = false;

  constructor(
    program: URL,
    data: ThreadData,
    collector: WorkerCollector,
    log: { readonly logger: Logger; readonly write: (line: string) => void },
  ) {
    this.#program = program;
    this.#data = data;
    this.#collector = collector;
    this.#log = log;
    this.#thread = this.#start();
  }

  async close(): Promise<void> {
    this.#closing = true;
    clearTimeout(this.#again);
    this.#thread.postMessage({ stop: true } satisfies ToThread, []);
    await this.#ended;
  }

  #start(): Worker {
    const thread = new Worker(this.#program, { workerData: this.#data, execArgv: [] });
    thread.on('message', (message: FromThread) => {
      if ('line' in message) this.#log.write(message.line);
      else void this.#answer(thread, message);
    });
    thread.on('error', (error) => this.#log.logger.error({ err: error }, 'the thread of the worker failed'));
    this.#ended = new Promise((resolve) => {
      thread.once('exit', () => {
        resolve();
        if (this.#closing) return;
        // What it was doing is in the database, and begun again.
        this.#again = setTimeout(() => (this.#thread = this.#start()), AGAIN_MS);
      });
    });
    return thread;
  }

  async #answer(
    thread: Worker,
    { ask, verb, request }: Extract<FromThread, { readonly ask: number }>,
  ): Promise<void> {
    let message: ToThread;
    try {
      message = { answer: ask, outcome: await this.#put(verb, request) };
    } catch (error) {
      message = { failed: ask, message: error instanceof Error ? error.message : String(error) };
    }
    thread.postMessage(message, []);
  }

  /** What is bytes here is an array of bytes on the way. */
  #put(verb: keyof WorkerCollector, request: unknown): Promise<unknown> {
    switch (verb) {
      case 'checkpoint':
        return this.#collector.checkpoint(request as string);
      case 'record': {
        const { project, statements } = request as Parameters<WorkerCollector['record']>[0];
        return this.#collector.record({
          project,
          statements: statements.map(({ body, bytes }) => ({ body, bytes: asBuffer(bytes) })),
        });
      }
      case 'issue':
      case 'signExport': {
        const { project, payload } = request as Parameters<WorkerCollector['issue']>[0];
        return this.#collector[verb]({ project, payload: asBuffer(payload) });
      }
    }
  }
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function startHere(
  connection: Connection,
  options: WorkerOptions,
  collector: WorkerCollector,
  log: Logger,
): StartedWorker {
  const database = openDatabase(connection, { role: 'belay_worker', size: POOL });
  const store = new AccountStore(connection, { role: 'belay_worker', size: POOL });
  const worker = assembleWorker(
    { ...options, reader: new Reader(database), store, collector, now: Date.now, log },
    'timers',
  );
  const schedules = [worker.publishing, ...Object.values(worker.schedules)];
  for (const schedule of schedules) schedule.start();
  return {
    close: async () => {
      await Promise.all(schedules.map((schedule) => schedule.stop()));
      await store.close();
      await database.destroy();
    },
  };
}
