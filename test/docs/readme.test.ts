import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { exampleLog } from '@belay/testkit/export';
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

/** What has to be in the output of each section that is run; both use the same port, one after the other. */
const SECTIONS: readonly (readonly [title: string, says: readonly RegExp[]])[] = [
  ['By hand, with curl only', [/"disposition":\s*"appended"/, /^VALID$/m]],
  [
    'By hand: contained, judged, attested',
    [
      /integrity: attested \d+\/\d+/,
      /✓ PASS +turn 1 +write_file/,
      /Receipt for entry \d+ +VALID/,
      /verifier +verdict\s+status PASS/,
    ],
  ],
];

/** Only root can take the network away; what the section says is the same for everybody. */
const withoutNetwork = spawnSync('unshare', ['--net', 'true']).status === 0;

it('the section "Verify an export you were handed" works as printed, without a network', async () => {
  const handed = mkdtempSync(join(tmpdir(), 'belay-handed-'));
  try {
    const world = await exampleLog();
    await world.export(join(handed, 'export.zip'));
    writeFileSync(join(handed, 'log.vkey'), `${world.signer.vkey}\n`);
    const script = `set -euo pipefail\n${section('Verify an export you were handed')}`;
    const env = { ...process.env, HANDED: handed, HOME: handed, BELAY_URL: 'http://127.0.0.1:9' };
    const [program, ...before] = withoutNetwork
      ? (['unshare', '--net', 'bash'] as const)
      : (['bash'] as const);
    const shell = spawn(program, [...before, '-c', script], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe'],
      env,
    });
    let output = '';
    shell.stdout.on('data', (chunk: Buffer) => (output += chunk));
    shell.stderr.on('data', (chunk: Buffer) => (output += chunk));
    const code = await new Promise((resolve) => shell.once('close', resolve));
    expect({ code, output }).toMatchObject({ code: 0 });
    expect(output.match(/^VALID$/gm)).toHaveLength(2);
    expect(output.match(/^INVALID$/gm)).toHaveLength(2);
    expect(output.match(/^refused: exit 1$/gm)).toHaveLength(2);
    expect(output).toMatch(/affirmed/);
  } finally {
    rmSync(handed, { recursive: true, force: true });
  }
});

it.each(SECTIONS)('the section "%s" works as printed', async (title, says) => {
  await mustBeFree(8499);
  const scratch = mkdtempSync(join(tmpdir(), 'belay-readme-'));
  chmodSync(scratch, 0o711);
  const script = `set -euo pipefail\n${section(title)}`;
  // No pipe of ours: that would be a socket, and a proxy that ends its output ends it for everybody who shares it.
  const written = openSync(join(scratch, 'output'), 'a');
  // A group of its own, so that a failure half-way leaves no service behind.
  const shell = spawn('bash', ['-c', script], {
    cwd: root,
    detached: true,
    stdio: ['ignore', written, written],
    env: { ...process.env, TMPDIR: scratch, XDG_STATE_HOME: scratch, XDG_CONFIG_HOME: scratch },
  });
  const timer = setTimeout(() => process.kill(-Number(shell.pid), 'SIGTERM'), 100_000);
  try {
    const code = await new Promise((resolve) => shell.once('close', resolve));
    const output = readFileSync(join(scratch, 'output'), 'utf8');
    expect({ code, output }).toMatchObject({ code: 0 });
    for (const words of says) expect(output).toMatch(words);
    // The reader stopped the service before verifying: nothing listens any more.
    await mustBeFree(8499);
  } finally {
    clearTimeout(timer);
    closeSync(written);
    try {
      process.kill(-Number(shell.pid), 'SIGKILL');
    } catch {
      // Nobody left in the group: as it should be.
    }
    rmSync(scratch, { recursive: true, force: true });
  }
});
