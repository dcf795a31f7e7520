import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { join } from 'node:path';
import { BELAY, freshFolder, node } from './proxied.js';

export interface HookRan {
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs one `belay hook` as an agent would. */
export async function hook(
  event: object | string | Buffer,
  env: Record<string, string>,
  ...args: string[]
): Promise<HookRan> {
  const child = spawn(node, [BELAY, 'hook', ...args], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: freshFolder(), ...env },
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdin.on('error', () => undefined);
  child.stdin.end(typeof event === 'string' || Buffer.isBuffer(event) ? event : JSON.stringify(event));
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  return { code: signal ?? (code as number), stdout, stderr };
}

/** Ends what sends in the background for a state directory, and waits until it is gone. */
export async function endForwarding(state: string): Promise<void> {
  for (const path of locks(state)) {
    try {
      const { pid } = JSON.parse(readFileSync(path, 'utf8')) as { pid: number };
      process.kill(pid, 'SIGTERM');
    } catch {
      // It has ended by itself.
    }
  }
  for (let i = 0; i < 100 && locks(state).length > 0; i++) await sleep(20);
}

function locks(state: string): string[] {
  const logs = join(state, 'logs');
  if (!existsSync(logs)) return [];
  return readdirSync(logs)
    .map((log) => join(logs, log, 'forwarder', 'belay.lock'))
    .filter((path) => existsSync(path));
}

export const claudeEvent = (name: string, more: object = {}): object => ({
  session_id: 'a-run-of-claude',
  transcript_path: '/nowhere/transcript.jsonl',
  cwd: '/w',
  hook_event_name: name,
  ...more,
});
