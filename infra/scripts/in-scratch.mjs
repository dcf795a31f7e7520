// Runs a program of node_modules/.bin with a temporary folder of its own, and removes that folder afterwards: whatever
// the tests leave in it, killed processes' folders included, is gone with the run.
//
// As root, parts of the suite run as an ordinary user (PostgreSQL refuses root, and root passes every permission that a
// test wants refused), from the clone. Below a folder that only root may enter, such as /root, that user would not get
// there: the run then sees the clone at a place that everyone may enter.

import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmdirSync, rmSync, statSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The outermost folder on the way to `path`, or `path` itself, that not everyone may enter. */
function closedFolder(path) {
  const above = dirname(path);
  const closed = above === path ? undefined : closedFolder(above);
  return closed ?? ((statSync(path).mode & 0o001) === 0 ? path : undefined);
}

const UNSHARE = ['--mount', '--propagation', 'private', '--'];

/** Where the clone is to be mounted, or undefined, having said so, where this system lets nobody mount. */
function placeFor(folder) {
  const made = mkdtempSync(join(tmpdir(), 'bc-'));
  chmodSync(made, 0o755);
  const tried = spawnSync('unshare', [...UNSHARE, 'mount', '--bind', made, made]);
  if (tried.status === 0) return made;
  rmdirSync(made);
  console.error(
    `Only root may enter ${folder}, and parts of the tests run as an ordinary user: they will fail. ` +
      'Clone to a folder that everyone may enter, or run the tests as the user whose folder it is.',
  );
  return undefined;
}

const [program, ...args] = process.argv.slice(2);
if (program === undefined) {
  console.error('usage: in-scratch.mjs PROGRAM [ARG ...]');
  process.exit(64);
}
// Short, because paths of unix sockets are short; open to pass through, because PostgreSQL may run as another user.
const scratch = mkdtempSync(join(tmpdir(), 'bt-'));
chmodSync(scratch, 0o711);
const clone = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
const closed = process.getuid?.() === 0 ? closedFolder(clone) : undefined;
const place = closed === undefined ? undefined : placeFor(closed);
const env = { ...process.env, TMPDIR: scratch };
const child =
  place === undefined
    ? spawn(join(clone, 'node_modules/.bin', program), args, { stdio: 'inherit', env })
    : spawn(
        'unshare',
        [
          ...UNSHARE,
          process.execPath,
          join(clone, 'infra/scripts/at-mount.mjs'),
          clone,
          place,
          program,
          ...args,
        ],
        { stdio: 'inherit', env },
      );
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.once('exit', (code, signal) => {
  // Not in the scratch folder and never removed with what is in it: were the clone still mounted there, it would go.
  if (place !== undefined) rmdirSync(place);
  rmSync(scratch, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
});
