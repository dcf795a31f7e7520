import { setFlagsFromString } from 'node:v8';

/** By how many percent the heap may grow past what is in use before it is cleaned; 0: as V8 likes. */
const THRIFTY = 20;
const AS_V8_LIKES = 0;

let running = 0;

/**
 * Does work with a heap that stays near what is in use. V8 lets it grow with the memory of the machine, so that making or
 * verifying an export of a million entries would have twice what it needs; collecting more often costs about a tenth of
 * the time. For as long as the work lasts it is so in the whole process.
 */
export async function thriftily<T>(work: () => Promise<T>): Promise<T> {
  if (running++ === 0) setFlagsFromString(`--heap-growing-percent=${THRIFTY}`);
  try {
    return await work();
  } finally {
    if (--running === 0) setFlagsFromString(`--heap-growing-percent=${AS_V8_LIKES}`);
  }
}
