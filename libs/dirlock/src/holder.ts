import { readFileSync, readlinkSync } from 'node:fs';

/** Who holds a lock. The last three are null where there is no /proc. */
export interface Holder {
  readonly pid: number;
  /** Clock ticks between boot and the start of the process. */
  readonly start: string | null;
  readonly boot: string | null;
  /** Pid namespace that `pid` belongs to. */
  readonly ns: string | null;
}

export function self(): Holder {
  return { pid: process.pid, start: statOf('self')?.start ?? null, boot: bootId(), ns: namespace() };
}

/** Whether the holder lives; undefined when that can't be seen from here. */
export function isAlive(holder: Holder): boolean | undefined {
  if (holder.boot !== bootId() || holder.ns !== namespace()) return undefined;
  try {
    process.kill(holder.pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
  }
  const stat = statOf(String(holder.pid));
  // It exists, and /proc either is not there or hides other users' processes: believe the pid.
  if (!stat || holder.start === null) return true;
  return stat.start === holder.start && stat.state !== 'Z' && stat.state !== 'X';
}

export function parseHolder(text: string): Holder | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  const { pid, start, boot, ns } = value as Record<string, unknown>;
  // kill(0, 0) and kill(-n, 0) ask about process groups.
  if (!Number.isSafeInteger(pid) || (pid as number) < 1) return undefined;
  const nullable = (member: unknown) => (typeof member === 'string' ? member : null);
  return { pid: pid as number, start: nullable(start), boot: nullable(boot), ns: nullable(ns) };
}

/** proc(5): the second field is the command in parentheses and may hold spaces and parentheses itself. */
function statOf(pid: string): { state: string; start: string } | undefined {
  const text = read(`/proc/${pid}/stat`);
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ');
  const state = fields?.[0];
  const start = fields?.[19];
  return state !== undefined && start !== undefined ? { state, start } : undefined;
}

function bootId(): string | null {
  return read('/proc/sys/kernel/random/boot_id')?.trim() ?? null;
}

function namespace(): string | null {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return null;
  }
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
