import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
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

/**
 * Ends what sends in the background for a state directory, and waits until it is gone. Found by its command line: it
 * was started before its hook ended, but may have no lock yet.
 */
export async function endForwarding(state: string): Promise<void> {
  for (let i = 0; i < 250; i++) {
    const pids = forwarders(state);
    if (pids.length === 0) return;
    for (const pid of pids) {
      try {
        process.kill(pid, i < 100 ? 'SIGTERM' : 'SIGKILL');
      } catch {
        // It has ended by itself.
      }
    }
    await sleep(20);
  }
}

function forwarders(state: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
        return args.includes('--background') && args.includes(state);
      } catch {
        return false;
      }
    });
}

export const claudeEvent = (name: string, more: object = {}): object => ({
  session_id: 'a-run-of-claude',
  transcript_path: '/nowhere/transcript.jsonl',
  cwd: '/w',
  hook_event_name: name,
  ...more,
});
