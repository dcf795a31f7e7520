/** The second thread: takes large frames' records one by one, and goes on until the process ends. */

import { hash } from 'node:crypto';
import { ftruncateSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { ContentWriter } from './beside.js';
import { LineStage } from './line-stage.js';
import { formatRecord } from './record.js';
import { type SecondHandData, SharedChain, type Task } from './second-hand.js';

const { fd, path, chain: memory, slots } = workerData as SecondHandData;
const chain = new SharedChain(memory);
const stage = new LineStage();
/** Null where there can't be one: then content goes into the records. */
let content: ContentWriter | null | undefined;

function write({ slot, size, time, at, body }: Task): void {
  const { n, prev, offset } = chain.state;
  const data = Buffer.from(slots[slot] as SharedArrayBuffer, 0, size);
  const sha256 = hash('sha256', data, 'hex');
  content ??= openContent();
  try {
    // Content before its record: what a record speaks of is there.
    const beside = content?.append(data);
    const { line, hash: next } = formatRecord({ n, time, at, prev }, { ...body, sha256, beside }, undefined);
    stage.write(fd, line, beside === undefined ? data : undefined);
    chain.state = { n: n + 1, prev: next, offset: offset + stage.written };
  } catch (error) {
    chain.fail((error as NodeJS.ErrnoException).code ?? 'UNKNOWN');
    // If it can't be removed, the trace ends there, torn; whatever comes after it is lost to a reader.
    if (stage.written > 0) ftruncateSync(fd, offset);
  }
}

function openContent(): ContentWriter | null {
  const opened = ContentWriter.create(path);
  if (opened !== undefined) chain.content = opened.fd;
  return opened ?? null;
}

parentPort?.on('message', (task: Task) => {
  try {
    // What comes after a record that was lost waits for the gap that says so, which is the first thread's to write.
    if (chain.failed > 0) chain.fail('');
    else write(task);
  } catch {
    // Counted as lost where it failed.
  } finally {
    chain.finishOne();
    parentPort?.postMessage(0, []);
  }
});
chain.setReady();
