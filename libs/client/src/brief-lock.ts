import { acquire, type DirLock, DirLocked } from '@belay/dirlock';

/**
 * Takes a lock that others hold for a moment only, waiting without giving the thread away: for processes that have
 * nothing else to do. Throws DirLocked after `patience` milliseconds.
 */
export function acquireBriefly(folder: string, patience: number): DirLock {
  const deadline = Date.now() + patience;
  for (;;) {
    try {
      // Not durable: after a power cut the holder is gone whatever the file says.
      return acquire(folder, { durable: false });
    } catch (error) {
      if (!(error instanceof DirLocked) || Date.now() > deadline) throw error;
    }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1 + Math.random() * 4);
  }
}
