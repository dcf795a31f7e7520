/** The boundary, tried before it is relied on: a forbidden read, write and connection, all of which have to fail. */

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Canary } from './record.js';

const SCRIPT = fileURLToPath(new URL('../bin/canary.sh', import.meta.url));
/** A machine on which a shell takes longer has other troubles; milliseconds. */
const PATIENCE = 20_000;
const MAX_OUTPUT = 16 * 1024;

export interface CanaryRun {
  readonly bash: string;
  /** A folder in which a hidden one is made. */
  readonly scratch: string;
  /** Folders of this machine that are outside of what may be written. */
  readonly outside: readonly string[];
  /** The command line and descriptors that run `argv` in the boundary; called once. */
  readonly inside: (
    argv: readonly [string, ...string[]],
    hide: string,
  ) => {
    readonly argv: readonly [string, ...string[]];
    /** For number 3 and up; closed here. */
    readonly fds: readonly number[];
  };
}

/** What became of the attempt; `ran: false` where the boundary could not even be set up, with what it said. */
export type CanaryOutcome =
  { readonly ran: true; readonly canary: Canary } | { readonly ran: false; readonly message: string };

/** Never throws. */
export async function tryBoundary({ bash, scratch, outside, inside }: CanaryRun): Promise<CanaryOutcome> {
  const folder = mkdtempSync(join(scratch, 'belay-canary-'));
  const word = randomBytes(12).toString('hex');
  const secret = join(folder, 'secret');
  const targets = outside.map((place) => join(place, `.belay-canary-${word}`));
  let connected = false;
  const server = createServer((socket) => {
    connected = true;
    socket.destroy();
  });
  try {
    writeFileSync(secret, `${word}\n`, { mode: 0o600 });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    // Its text, not its name: inside there may be something else in place of the folder that we are installed in.
    const script = ['-c', readFileSync(SCRIPT, 'utf8'), 'canary'];
    const run = inside([bash, ...script, secret, String(port), ...targets], folder);
    const [program, ...args] = run.argv;
    const child = spawn(program, args, {
      cwd: '/',
      env: {},
      stdio: ['ignore', 'pipe', 'pipe', ...run.fds],
      timeout: PATIENCE,
      killSignal: 'SIGKILL',
      detached: true,
    });
    for (const fd of run.fds) closeSync(fd);
    const output = { stdout: '', stderr: '' };
    const isDone = (): boolean => /^done$/m.test(output.stdout);
    await new Promise<void>((resolve) => {
      for (const name of ['stdout', 'stderr'] as const) {
        child[name]?.on('data', (chunk: Buffer) => {
          if (output[name].length < MAX_OUTPUT) output[name] += chunk.toString('utf8');
          // All was attempted; that the kernel takes the boundary down again is not waited for.
          if (isDone()) resolve();
        });
      }
      child.once('error', (error) => {
        output.stderr += error.message;
        resolve();
      });
      child.once('close', () => resolve());
    });
    const lines = output.stdout.split('\n');
    if (!isDone()) {
      return { ran: false, message: output.stderr.trim().split('\n').at(-1) ?? '' };
    }
    return {
      ran: true,
      canary: {
        read: !output.stdout.includes(word) || !lines.includes(`read ${word}`),
        // A file may have been made in a folder that is the command's own: what counts is that it is not in ours.
        write: !targets.some((target) => existsSync(target)),
        connect: !connected && !lines.includes('connect'),
      },
    };
  } catch (error) {
    return { ran: false, message: (error as Error).message };
  } finally {
    server.close();
    for (const target of targets) rmSync(target, { force: true });
    rmSync(folder, { recursive: true, force: true });
  }
}
