/**
 * Descriptors that whoever started us left open. Node marks only the lowest of them to be closed when a program is
 * started; one above a gap goes on to all we start, and a folder among them is a way out of any boundary: what is
 * opened relative to it is opened through the mount that it was opened in.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { SandboxError } from './error.js';

const O_CLOEXEC = 0o2000000;
const CLOSE_RANGE_CLOEXEC = 4;
const FIRST = 3;
const LAST = 0xffff_ffff;

/** Numbers from 3 on that a program started now would inherit without being told. */
function inheritable(): number[] {
  let numbers: string[];
  try {
    numbers = readdirSync('/proc/self/fdinfo');
  } catch {
    return [];
  }
  return numbers.map(Number).filter((fd) => {
    if (fd < FIRST) return false;
    try {
      const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1'))?.[1];
      return flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0;
    } catch {
      // It was the one that the list was read from.
      return false;
    }
  });
}

/** From now on nothing that this process starts gets a descriptor it is not given. Throws SandboxError where that can't be. */
export function keepDescriptors(): void {
  if (process.platform !== 'linux' || inheritable().length === 0) return;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    const closeRange = koffi.load(null).func('int close_range(unsigned int, unsigned int, int)');
    closeRange(FIRST, LAST, CLOSE_RANGE_CLOEXEC);
  } catch {
    // Looked at below: an old C library has no such function.
  }
  const left = inheritable();
  if (left.length > 0) {
    throw new SandboxError('BACKEND_UNAVAILABLE', `descriptors ${left.join(', ')} would be passed on`, {
      next: 'Start it without descriptors beyond the standard three.',
    });
  }
}
