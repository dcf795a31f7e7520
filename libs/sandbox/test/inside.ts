/** Runs commands inside a boundary, for tests: real ones, with all that came of it. */

import { spawn } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { Denial } from '../src/denial.js';
import { DEFAULT_POLICY, type SandboxPolicy } from '../src/policy.js';
import type { SandboxRecord } from '../src/record.js';
import type { SandboxHost } from '../src/prepared.js';
import { prepare } from '../src/sandbox.js';

export interface Ended {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly denials: readonly Denial[];
  readonly record: SandboxRecord;
}

/** A folder of its own for the running test. */
export function folder(name = 'belay-sandbox-'): string {
  const made = mkdtempSync(join(realpathSync(tmpdir()), name));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Runs `argv` with `policy` over the defaults, in its first root. */
export async function inside(
  policy: Partial<SandboxPolicy>,
  argv: readonly [string, ...string[]],
  { host, env = {}, input }: { host?: SandboxHost; env?: Record<string, string>; input?: string } = {},
): Promise<Ended> {
  const whole = { ...DEFAULT_POLICY, ...policy };
  const prepared = await prepare(
    whole,
    {
      argv,
      cwd: whole.roots[0] ?? '/',
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    },
    // The self-test has tests of its own, and takes its time in each run.
    { canary: false, ...host },
  );
  const denials: Denial[] = [];
  prepared.onDenial((denial) => denials.push(denial));
  const [program, ...args] = prepared.argv;
  const child = spawn(program, args, {
    cwd: prepared.cwd,
    env: prepared.env,
    stdio: ['pipe', 'pipe', 'pipe', ...prepared.fds],
    detached: true,
  });
  prepared.started(child.pid);
  const output = { stdout: '', stderr: '' };
  child.stdout?.on('data', (chunk: Buffer) => (output.stdout += chunk.toString('utf8')));
  child.stderr?.on('data', (chunk: Buffer) => (output.stderr += chunk.toString('utf8')));
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(input ?? '');
  const [code, signal] = await new Promise<[number | null, string | null]>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (...ended) => resolve(ended));
  });
  prepared.drain();
  await prepared.dispose();
  return { code, signal, ...output, denials, record: prepared.record };
}
