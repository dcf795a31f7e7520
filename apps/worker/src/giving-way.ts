import { setImmediate as others } from 'node:timers/promises';

/** How long work keeps the thread to itself, milliseconds. */
const AT_A_TIME_MS = 10;

/** Runs work that can be left for a while, so that what else is due on this thread is not held up by it. */
export async function givingWay<T>(steps: Generator<void, T, void>): Promise<T> {
  let since = performance.now();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (performance.now() - since < AT_A_TIME_MS) continue;
    await others();
    since = performance.now();
  }
}
