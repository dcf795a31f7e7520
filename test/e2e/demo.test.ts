import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { BELAY } from './belay-process.js';

const DEMO = fileURLToPath(new URL('../../apps/belay/dist/demo.js', import.meta.url));

/** Processes whose command line or environment names a folder: what somebody left running there. */
function processesNaming(folder: string): string[] {
  if (!existsSync('/proc/self')) return [];
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid) || pid === String(process.pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(folder);
    } catch {
      return false;
    }
  });
}

it('npm run demo: VALID, then INVALID for each tampered copy, and nothing left running', async () => {
  const scratch = mkdtempSync(join(tmpdir(), 'belay-demo-test-'));
  try {
    const child = spawn(process.execPath, [DEMO], {
      stdio: ['ignore', 'pipe', 'pipe'],
      // A home that has to stay empty: the demo must not touch the credentials of who runs it.
      env: { ...process.env, HOME: scratch, NO_COLOR: '1' },
    });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk));
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect({ code, output }).toMatchObject({ code: 0 });
    expect(output).toMatch(/the receipt as issued +VALID/);
    for (const [what, check] of [
      ['payload', 'subject'],
      ['signature', 'signature'],
      ['root', 'checkpoint'],
      ['proof', 'proof'],
    ]) {
      expect(output).toMatch(new RegExp(`${what}: .*INVALID +by ${check}`));
    }
    expect(readdirSync(scratch).filter((name) => !name.startsWith('.npm'))).toEqual([]);
    expect(processesNaming('belay-demo-')).toEqual([]);

    // The commands it hands over work.
    const [, receipt = '', vkey = ''] = /belay receipt verify (\S+) --key (\S+)/.exec(output) ?? [];
    const verify = spawn(process.execPath, [BELAY, 'receipt', 'verify', receipt, '--key', vkey], {
      stdio: 'ignore',
    });
    expect(await new Promise((resolve) => verify.once('close', resolve))).toBe(0);
    rmSync(join(receipt, '..'), { recursive: true, force: true });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
});
