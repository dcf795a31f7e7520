import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { readTrace, recordData, type TraceRecord } from '@belay/trace';
import { expect } from 'vitest';

export const BELAY = fileURLToPath(new URL('../bin/belay.js', import.meta.url));
export const program = (name: string): string =>
  fileURLToPath(new URL(`programs/${name}.mjs`, import.meta.url));
export const node = process.execPath;
export const freshFolder = (): string => mkdtempSync(join(tmpdir(), 'belay-cli-'));

export interface Started {
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  /** All of stdout so far. */
  readonly stdout: () => Buffer;
  readonly stderr: () => string;
  /** Exit code, or the signal's name. */
  readonly ended: Promise<number | string>;
}

/** Starts the compiled command with an environment of its own; `read: false` leaves stdout unread. */
export function start(args: readonly string[], env: Record<string, string> = {}, read = true): Started {
  const child = spawn(node, [BELAY, ...args], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: freshFolder(), ...env },
  });
  const out: Buffer[] = [];
  let err = '';
  if (read) child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
  child.stdin.on('error', () => undefined);
  const ended = once(child, 'close').then(([code, signal]) => (signal as string | null) ?? (code as number));
  return { child, stdout: () => Buffer.concat(out), stderr: () => err, ended };
}

/** `belay proxy` in front of `server.mjs STEP...`. */
export const proxied = (steps: readonly string[], env: Record<string, string> = {}, read = true): Started =>
  start(['proxy', '--', node, program('server'), ...steps], env, read);

/** Pid of the grandchild that the step `child` starts. It is told on stderr: what is on stdout may be here before it. */
export async function grandchildOf({ stderr }: Started): Promise<number> {
  await expect.poll(stderr, { timeout: 25_000 }).toMatch(/pid \d+\n/);
  return Number(/pid (\d+)\n/.exec(stderr())?.[1]);
}

export const tracesIn = (folder: string): string[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .map((name) => join(folder, name));

/** Records of the only trace in a folder. */
export async function recordsIn(folder: string): Promise<TraceRecord[]> {
  const [path, ...more] = tracesIn(folder) as [string, ...string[]];
  if (more.length > 0) throw new Error('more than one trace');
  const records: TraceRecord[] = [];
  for await (const item of readTrace(path)) if ('record' in item) records.push(item.record);
  return records;
}

/** What was recorded of one direction, put together again. */
export const recordedBytes = (records: readonly TraceRecord[], dir: 'c2s' | 's2c'): Buffer =>
  Buffer.concat(
    records.flatMap((record) =>
      record.type === 'frame' && record.dir === dir ? [recordData(record) ?? Buffer.alloc(0)] : [],
    ),
  );

/** Whether a process runs. One that ended and was not yet collected by its new parent does not. */
export function alive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
