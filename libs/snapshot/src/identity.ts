/** Who writes to a store, and whether that process is still there. */

import { readFileSync, readlinkSync } from 'node:fs';

export interface WriterIdentity {
  /** 0: nobody. */
  readonly pid: number;
  /** Distinguishes this process from a later one with its number; empty where the system does not tell. */
  readonly started: string;
  /** The namespace that the number belongs to; missing where there are none, or from before it was kept. */
  readonly namespace?: string;
}

export function thisProcess(): WriterIdentity {
  const namespace = pidNamespace();
  return {
    pid: process.pid,
    started: startOf('self') ?? '',
    ...(namespace === undefined ? {} : { namespace }),
  };
}

/** `unknown`: it is of another container, whose numbers mean nothing here. */
export function lifeOf({ pid, started, namespace }: WriterIdentity): 'running' | 'ended' | 'unknown' {
  if (pid === 0) return 'ended';
  const own = startOf('self');
  // After a restart of the machine nothing of before runs, in whatever container.
  if (own !== undefined && started !== '' && bootOf(own) !== bootOf(started)) return 'ended';
  if (namespace !== undefined && namespace !== pidNamespace()) return 'unknown';
  const now = startOf(String(pid));
  if (now !== undefined && started !== '') return now === started ? 'running' : 'ended';
  try {
    process.kill(pid, 0);
    return 'running';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH' ? 'ended' : 'running';
  }
}

const bootOf = (started: string): string => started.slice(0, started.indexOf(' '));

/** When a process began, in the kernel's words; undefined where there is no /proc, or no such process. */
function startOf(pid: string): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()} ${started}`;
  } catch {
    return undefined;
  }
}

function pidNamespace(): string | undefined {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return undefined;
  }
}
