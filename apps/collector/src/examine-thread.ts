import { parentPort } from 'node:worker_threads';
import { examine, Unfit } from './examine.js';
import type { Answered, Asked } from './examiner.js';

parentPort?.on('message', ({ id, question }: Asked) => {
  let answered: Answered;
  try {
    answered = { id, answer: examine(question) };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    answered = { id, message, unfit: error instanceof Unfit };
  }
  parentPort?.postMessage(answered, []);
});
