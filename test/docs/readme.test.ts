import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** The fenced shell blocks of one section, joined: what a reader pastes. */
function section(title: string): string {
  const page = readFileSync(join(root, 'README.md'), 'utf8');
  const body = page.split(`\n## ${title}\n`)[1]?.split('\n## ')[0];
  if (body === undefined) throw new Error(`README.md has no section "${title}"`);
  return [...body.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map((match) => match[1]).join('\n');
}

/** The page says port 8499; somebody else's service there would be talked to instead of ours. */
async function mustBeFree(port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const server = createServer()
      .once('error', () => reject(new Error(`port ${port} is taken: stop what listens there and run again`)))
      .listen(port, '127.0.0.1', () => server.close(() => resolve()));
  });
}

it('the section "By hand, with curl only" works as printed', async () => {
  await mustBeFree(8499);
  const scratch = mkdtempSync(join(tmpdir(), 'belay-readme-'));
  chmodSync(scratch, 0o711);
  const script = `set -euo pipefail\n${section('By hand, with curl only')}\nprintf '\\nRECEIPT=%s\\n' "$WORK"`;
  // A group of its own, so that a failure half-way leaves no service behind.
  const shell = spawn('bash', ['-c', script], {
    cwd: root,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, TMPDIR: scratch, XDG_STATE_HOME: scratch, XDG_CONFIG_HOME: scratch },
  });
  let output = '';
  shell.stdout.on('data', (chunk: Buffer) => (output += chunk));
  shell.stderr.on('data', (chunk: Buffer) => (output += chunk));
  const timer = setTimeout(() => process.kill(-Number(shell.pid), 'SIGTERM'), 100_000);
  try {
    const code = await new Promise((resolve) => shell.once('close', resolve));
    expect({ code, output }).toMatchObject({ code: 0 });
    expect(output).toMatch(/"disposition":\s*"appended"/);
    expect(output).toMatch(/^VALID$/m);
    // The reader stopped the service before verifying: nothing listens any more.
    await mustBeFree(8499);
  } finally {
    clearTimeout(timer);
    try {
      process.kill(-Number(shell.pid), 'SIGKILL');
    } catch {
      // Nobody left in the group: as it should be.
    }
    rmSync(scratch, { recursive: true, force: true });
  }
});
