// Runs a program of node_modules/.bin with a temporary folder of its own, and removes that folder afterwards: whatever
// the tests leave in it, killed processes' folders included, is gone with the run.

import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const [program, ...args] = process.argv.slice(2);
if (program === undefined) {
  console.error('usage: in-scratch.mjs PROGRAM [ARG ...]');
  process.exit(64);
}
// Short, because paths of unix sockets are short; open to pass through, because PostgreSQL may run as another user.
const scratch = mkdtempSync(join(tmpdir(), 'bt-'));
chmodSync(scratch, 0o711);
const child = spawn(fileURLToPath(new URL(`../../node_modules/.bin/${program}`, import.meta.url)), args, {
  stdio: 'inherit',
  env: { ...process.env, TMPDIR: scratch },
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.once('exit', (code, signal) => {
  rmSync(scratch, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
});
