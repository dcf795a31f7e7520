/**
 * What the server's processes may do to files without anybody being told: write through shared mappings, and through
 * descriptors whose name is gone. Linux, by /proc; elsewhere there is nothing to see and everything is empty.
 */

import { closeSync, lstatSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { sharedMappings } from './procmap.js';

/** An inode that a process can write to. */
export interface HeldFile {
  readonly ino: bigint;
  /** It is mapped writable and shared: it may be changing at this moment, and neither event nor time tells. */
  readonly mapped: boolean;
}

const LINUX = process.platform === 'linux';

/** The processes and all that descend from them, each once; those that are gone are left out. */
export function withDescendants(pids: readonly number[]): number[] {
  if (!LINUX) return [...pids];
  const all = new Set<number>();
  const todo = [...pids];
  for (let pid = todo.pop(); pid !== undefined; pid = todo.pop()) {
    if (all.has(pid)) continue;
    all.add(pid);
    try {
      for (const thread of readdirSync(`/proc/${pid}/task`)) {
        const children = readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1');
        for (const child of children.split(' ')) if (child !== '') todo.push(Number(child));
      }
    } catch {
      // It ended, or the kernel does not list children.
    }
  }
  return [...all];
}

/**
 * Files that a process has mapped shared, or open for writing. Empty for one that is gone; throws EACCES
 * for one that may not be looked at.
 */
export function heldFiles(pid: number): HeldFile[] {
  if (!LINUX) return [];
  try {
    return [...mappings(pid), ...openFiles(pid)];
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return [];
    throw error;
  }
}

function mappings(pid: number): HeldFile[] {
  const path = `/proc/${pid}/maps`;
  const fd = openSync(path, 'r');
  try {
    const found = sharedMappings(fd);
    if (found) return found.map(({ ino, writable }) => ({ ino, mapped: writable }));
  } finally {
    closeSync(fd);
  }
  const held: HeldFile[] = [];
  for (const [, access, ino] of readFileSync(path, 'latin1').matchAll(MAPPING)) {
    if (ino !== '0') held.push({ ino: BigInt(ino as string), mapped: access?.[1] === 'w' });
  }
  return held;
}

/** A shared mapping's line: range, access, offset, device, inode. */
const MAPPING = /^[0-9a-f]+-[0-9a-f]+ ([r-][w-][x-]s) [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ ([0-9]+)/gm;

function openFiles(pid: number): HeldFile[] {
  const held: HeldFile[] = [];
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    const path = `/proc/${pid}/fd/${fd}`;
    try {
      // The link's own mode says what the descriptor was opened for.
      if ((lstatSync(path).mode & 0o200) === 0) continue;
      const file = statSync(path, { bigint: true });
      if (file.isFile()) held.push({ ino: file.ino, mapped: false });
    } catch {
      // Closed since.
    }
  }
  return held;
}

/** How long all threads of a process may take to stop, milliseconds; measured 0.6 to 10. */
const STOP_PATIENCE = 200;
const SLEEP = new Int32Array(new SharedArrayBuffer(4));

/**
 * Stops the processes and all their descendants until `resume` is called, which must happen. Those that were stopped
 * before stay so.
 */
export function stopProcesses(pids: readonly number[]): {
  readonly stopped: boolean;
  readonly resume: () => void;
} {
  const stopped = new Set<number>();
  const already = new Set<number>();
  // One that is not stopped yet may start another: look again until there is nobody new.
  for (let news = true; news;) {
    news = false;
    for (const pid of withDescendants(pids)) {
      // Whoever stops itself resumes nobody.
      if (pid === process.pid || stopped.has(pid) || already.has(pid)) continue;
      if (isStopped(pid)) {
        already.add(pid);
        continue;
      }
      try {
        process.kill(pid, 'SIGSTOP');
        stopped.add(pid);
        news = true;
      } catch {
        // Gone, or not ours to stop.
      }
    }
  }
  const until = performance.now() + STOP_PATIENCE;
  const running = (): boolean => [...stopped].some((pid) => !isStopped(pid));
  while (running() && performance.now() < until) Atomics.wait(SLEEP, 0, 0, 0.2);
  return {
    stopped: stopped.size + already.size > 0 && !running(),
    resume: () => {
      for (const pid of stopped) {
        try {
          process.kill(pid, 'SIGCONT');
        } catch {
          // Gone.
        }
      }
    },
  };
}

/** All threads stopped, dead, or gone. */
function isStopped(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).every((thread) => {
      const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, 'latin1');
      return /^[TtZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
    });
  } catch {
    return true;
  }
}
