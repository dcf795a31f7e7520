import { setFlagsFromString } from 'node:v8';

/**
 * A session has tens of calls, not thousands, and each of them waits for code that has hardly run before: by default the
 * engine interprets it for the first thousand. With these it compiles at once, and well after some dozens of calls.
 * Measured at 400 calls: a third less added to each. Only for the engine that it was measured on (Node 20): others may not
 * know the flags, and say so on standard error.
 */
export function compileEarly(): void {
  if (!process.versions.v8.startsWith('11.3.')) return;
  setFlagsFromString('--always-sparkplug');
  setFlagsFromString('--interrupt-budget=10000');
}
