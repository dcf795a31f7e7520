// at-mount.mjs CLONE PLACE PROGRAM [ARG ...]: mounts the clone at PLACE and runs a program of its node_modules/.bin
// there. Only in-scratch.mjs starts it, in a mount namespace of its own: nobody else sees the mount, and it is gone
// with the last process of the run.

import { spawn, spawnSync } from 'node:child_process';
import { constants } from 'node:os';
import { join } from 'node:path';

const [clone, place, program, ...args] = process.argv.slice(2);
const mounted = spawnSync('mount', ['--bind', clone, place], { stdio: 'inherit' });
if (mounted.status !== 0) process.exit(mounted.status ?? 71);
const child = spawn(join(place, 'node_modules/.bin', program), args, {
  stdio: 'inherit',
  cwd: place,
  env: { ...process.env, PWD: place, INIT_CWD: place },
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
