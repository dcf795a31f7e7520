/** The worker on a thread of its own: reconciling, judging and exports keep a processor busy, and appends must not wait. */

import { parentPort, workerData } from 'node:worker_threads';
import { AccountStore, openDatabase, Reader } from '@belay/db';
import { createLogger } from '@belay/process';
import type { WorkerCollector } from './nats-collector.js';
import { assembleWorker } from './schedules.js';
import type { FromThread, ThreadData, ToThread } from './thread-messages.js';

const port = parentPort;
if (port === null) throw new Error('this is the program of a thread');
const { connection, pool, options, logLevel } = workerData as ThreadData;
const send = (message: FromThread): void => port.postMessage(message);

const asked = new Map<number, { resolve: (outcome: never) => void; reject: (error: Error) => void }>();
let next = 0;

function ask<Verb extends keyof WorkerCollector>(verb: Verb): WorkerCollector[Verb] {
  return (request: unknown): Promise<never> =>
    new Promise((resolve, reject) => {
      const id = next++;
      asked.set(id, { resolve, reject });
      send({ ask: id, verb, request });
    });
}

const log = createLogger('belay', logLevel, { write: (line) => send({ line }) });
const database = openDatabase(connection, { role: 'belay_worker', size: pool });
const store = new AccountStore(connection, { role: 'belay_worker', size: pool });
const worker = assembleWorker(
  {
    ...options,
    reader: new Reader(database),
    store,
    collector: {
      checkpoint: ask('checkpoint'),
      record: ask('record'),
      issue: ask('issue'),
      signExport: ask('signExport'),
    },
    now: Date.now,
    log,
  },
  'timers',
);
const schedules = [worker.publishing, ...Object.values(worker.schedules)];

port.on('message', (message: ToThread) => {
  if ('stop' in message) void stop();
  else if ('failed' in message) take(message.failed)?.reject(new Error(message.message));
  else take(message.answer)?.resolve(message.outcome as never);
});
for (const schedule of schedules) schedule.start();

function take(id: number): { resolve: (outcome: never) => void; reject: (error: Error) => void } | undefined {
  const found = asked.get(id);
  asked.delete(id);
  return found;
}

async function stop(): Promise<void> {
  await Promise.all(schedules.map((schedule) => schedule.stop()));
  await store.close();
  await database.destroy();
  // The port is all that keeps the thread.
  port?.close();
}
