/** The capture thread's program: one capturer, one request after the other. */

import { parentPort, workerData } from 'node:worker_threads';
import { Capturer } from './capture.js';
import { Store } from './store.js';
import type { ThreadAnswer, ThreadData, ThreadRequest } from './thread.js';

/** Between captures the kernel's queue is emptied this often, milliseconds; it holds 16384 events by default. */
const LISTEN_INTERVAL = 20;

const answer = (message: ThreadAnswer): void => parentPort?.postMessage(message, []);

let pids: readonly number[] = [];
/** After the first state what is known is kept once, in a quiet moment, milliseconds later. */
const SAVE_AFTER = 2000;
let saved = false;

function open(): Capturer | undefined {
  try {
    const data = workerData as ThreadData;
    return Capturer.open({ ...data, store: Store.open(data.store), processes: () => pids });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    answer({ id: 0, error: { ...(code === undefined ? {} : { code }), message } });
    return undefined;
  }
}

const capturer = open();
if (capturer) {
  const state = (): { written: Capturer['written']; method: Capturer['method'] } => ({
    written: capturer.written,
    method: capturer.method,
  });
  const saveIndex = (): void => {
    try {
      capturer.saveIndex();
    } catch {
      // The next one has to read everything.
    }
  };
  const listening = setInterval(() => capturer.listen(), LISTEN_INTERVAL);
  parentPort?.on('message', (request: ThreadRequest) => {
    pids = request.pids;
    if (request.what === 'close') {
      clearInterval(listening);
      try {
        capturer.close();
      } finally {
        answer({ id: request.id, ...state() });
        parentPort?.close();
      }
      return;
    }
    const captured = request.what === 'capture' ? capturer.capture() : capturer.verify();
    answer({ id: request.id, captured, ...state() });
    if (!saved && captured.kind === 'state') {
      saved = true;
      setTimeout(saveIndex, SAVE_AFTER).unref();
    }
  });
  answer({ id: 0, ...state() });
}
