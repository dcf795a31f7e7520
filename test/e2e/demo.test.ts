import { spawn, spawnSync } from 'node:child_process';
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

/** Runs the demo to its end, behind `before`, with a home that has to stay empty. */
async function demo(before: readonly string[] = []): Promise<string> {
  const scratch = mkdtempSync(join(tmpdir(), 'belay-demo-test-'));
  try {
    const [program, ...args] = [...before, process.execPath, DEMO];
    const child = spawn(program as string, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      // The demo must not touch the credentials of who runs it.
      env: { ...process.env, HOME: scratch, NO_COLOR: '1' },
    });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk));
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect(code, output).toBe(0);
    expect(readdirSync(scratch).filter((name) => !name.startsWith('.npm'))).toEqual([]);
    expect(processesNaming('belay-demo-')).toEqual([]);
    return output;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** The receipt and the export are VALID and each tampered copy refused, in what the demo printed. */
function saysWhatHolds(output: string): void {
  expect(output).toMatch(/the receipt as issued +VALID/);
  for (const [what, check] of [
    ['payload', 'subject'],
    ['signature', 'signature'],
    ['root', 'checkpoint'],
    ['proof', 'proof'],
  ]) {
    expect(output).toMatch(new RegExp(`${what}: .*INVALID +by ${check}`));
  }
  expect(output).toMatch(/the export \(\d+ kB\) +VALID, and VALID by the second verifier\n/);
  for (const [what, why] of [
    ['entries.ndjson: .*', 'manifest: its files are not those'],
    ['the same, and a manifest made anew.*', 'signature: '],
    ['report.html: .*', 'manifest: its files are not those'],
  ] as const) {
    const refused = `${what}INVALID, and INVALID by the second verifier\\n +by ${why}`;
    expect(output).toMatch(new RegExp(refused));
  }
}

/** The same by the commands that the demo hands over. */
async function handedOverHolds(output: string): Promise<void> {
  const [, receipt = '', vkey = ''] = /belay receipt verify (\S+) --key (\S+)/.exec(output) ?? [];
  const [, shown = ''] = /belay receipt show (\S+)/.exec(output) ?? [];
  expect((await belay('receipt', 'verify', receipt, '--key', vkey)).code).toBe(0);
  const [, archive = ''] = /belay receipt verify (\S+\.zip) --key/.exec(output) ?? [];
  expect((await belay('receipt', 'verify', archive, '--key', vkey)).code).toBe(0);
  const page = await belay('receipt', 'show', shown, '--key', vkey);
  expect(page.code).toBe(0);
  expect(page.stdout).toMatch(
    /verifier +verdict\s+status FAIL, cause WROTE_THOUGH_READ_ONLY,\s+mode session/,
  );
  rmSync(join(receipt, '..'), { recursive: true, force: true });
}

async function belay(...args: readonly string[]): Promise<{ code: unknown; stdout: string }> {
  const child = spawn(process.execPath, [BELAY, ...args], { stdio: ['ignore', 'pipe', 'ignore'] });
  let stdout = '';
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk));
  const code = await new Promise((resolve) => child.once('close', resolve));
  return { code, stdout };
}

it('npm run demo: a verdict of each kind, VALID, then INVALID for each tampered copy, and nothing left running', async () => {
  const output = await demo();
  for (const line of [
    /✓ PASS +12 calls .*\n +! WARN +1 call /,
    /✗ FAIL +edit_file .*\n +A1 invariant: .*tests\/test_refunds\.py.*\n +A2.*: result PASS, effect PASS\n/,
    /✓ PASS +count_open /,
    /✓ PASS +assign_ticket /,
    /✗ FAIL +look_up_ticket .*\n +A2 contract: /,
    /! WARN +what_time .*\n +A2 result: .*time\n/,
    /\? UNVERIFIED +exchange_rate .*\n +A2 result: .*network/,
    /entry \d+, by verifier: verdict FAIL WROTE_THOUGH_READ_ONLY, of entries \d+ .*, \d+ .*, \d+ /,
    /✗ violated +monday\n +sinks: hook complete, proxy complete, verifier complete; .*\n +verifier found a failure, INVARIANT_BROKEN /,
    /monday 2 FAIL, \d WARN, \d+ PASS \(14 calls and itself\)/,
    /✗ violated +tickets\n/,
    /✓ affirmed +tuesday\n +sinks: hook complete, proxy complete, verifier complete; calls: 4 replayed\n/,
    /✗ incomplete +wednesday\n +sinks: hook complete, proxy gap; .*\n +proxy has a gap: line \d+ never came/,
    /the receipt for the verdict +VALID/,
  ]) {
    expect(output).toMatch(line);
  }
  saysWhatHolds(output);
  await handedOverHolds(output);
}, 240_000);

// Only root can take programs away without removing them; what is said is the same for everybody.
const hides = spawnSync('unshare', ['--mount', 'true']).status === 0;
if (hides) {
  it('where there is nothing to make a boundary with, it says what to install and shows the rest', async () => {
    const without =
      'for each in bwrap strace; do mount --bind /dev/null "$(command -v $each)"; done; exec "$0" "$@"';
    const output = await demo(['unshare', '--mount', 'sh', '-c', without]);
    expect(output).toMatch(
      /Without bwrap and strace, no call can be judged.*\n +apt-get install bubblewrap strace\n/,
    );
    expect(output).not.toMatch(/PASS|FAIL|verdict/);
    expect(output).toMatch(/✗ incomplete +tickets\n/);
    expect(output).toMatch(/\? unverified +tuesday\n/);
    expect(output).toMatch(/✗ incomplete +wednesday\n.*\n +proxy has a gap: line \d+ never came/);
    saysWhatHolds(output);
    rmSync(join(/belay receipt verify (\S+) --key/.exec(output)?.[1] ?? '', '..'), {
      recursive: true,
      force: true,
    });
  }, 240_000);
}
