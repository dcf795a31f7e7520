/** A server started again inside a boundary, with the scratch where its workspace was. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  DEFAULT_POLICY,
  type Denial,
  prepare,
  type SandboxCommand,
  type SandboxPolicy,
  type SandboxRecord,
} from '@belay/sandbox';
import type { Server } from './conversation.js';

/** What a program that ran to its end came to. */
export interface ContainedRun {
  /** Undefined where it was ended: by its time, by a signal, by what it wrote. */
  readonly exit: number | undefined;
  /** The beginning of what it wrote to standard output and standard error. */
  readonly words: string;
}

/** Bytes of output that are kept, and past which a program is ended. */
const MAX_WORDS = 4 * 1024;
const MAX_OUTPUT = 16 * 1024 * 1024;

/** Runs a program inside a boundary, without input, for at most `ms`. Throws SandboxError. */
export async function runContained(options: ContainedOptions, ms: number): Promise<ContainedRun> {
  const { child, exited, kill } = await spawnContained(options, ['ignore', 'pipe', 'pipe']);
  let [words, size] = ['', 0];
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (words.length < MAX_WORDS) words += chunk.toString('utf8').slice(0, MAX_WORDS - words.length);
      if (size > MAX_OUTPUT) kill();
    });
  }
  const late = setTimeout(kill, ms);
  await exited;
  clearTimeout(late);
  // What it left behind.
  kill();
  return { exit: child.signalCode === null ? (child.exitCode ?? undefined) : undefined, words };
}

export interface ContainedOptions {
  readonly command: SandboxCommand;
  /** Where each folder of the record is now. */
  readonly binds: readonly { readonly from: string; readonly to: string }[];
  readonly profile: SandboxPolicy['profile'];
  /** Kept from the server besides what is always kept from it. */
  readonly hide: readonly string[];
  readonly loopback: boolean;
}

export interface ContainedServer extends Server {
  readonly record: SandboxRecord;
  /** Processes inside, as this machine numbers them. */
  live(): readonly number[];
  /** What was refused since this was last asked. */
  denials(): readonly Denial[];
}

/** The network is closed, whatever the recording had. */
async function spawnContained(
  options: ContainedOptions,
  stdio: readonly ['pipe' | 'ignore', 'pipe', 'pipe' | 'ignore'],
) {
  const prepared = await prepare(
    {
      ...DEFAULT_POLICY,
      profile: options.profile,
      binds: options.binds,
      hide: options.hide,
      network: { mode: options.loopback ? 'loopback' : 'deny' },
    },
    options.command,
    // The recording's boundary was tried when it was made; a replay is short and its scratch is all it can reach.
    { canary: false, past: options.loopback },
  );
  const denials: Denial[] = [];
  prepared.onDenial((denial) => denials.push(denial));
  const [program, ...args] = prepared.argv;
  const child = spawn(program, args, {
    cwd: prepared.cwd,
    env: prepared.env,
    stdio: [...stdio, ...prepared.fds],
    detached: true,
  });
  const gone = once(child, 'exit').catch(() => undefined);
  prepared.started(child.pid);
  const exited = gone.then(() => prepared.dispose());
  const { pid } = child;
  if (pid === undefined) {
    await exited;
    throw new Error(`${program} can not be started`);
  }
  const kill = (): void => {
    try {
      process.kill(-pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  };
  return { child, prepared, denials, exited, kill };
}

/**
 * Throws SandboxError where there is no boundary to be had: a replay runs what may have been recorded anywhere, and
 * never without one.
 */
export async function startContained(options: ContainedOptions): Promise<ContainedServer> {
  const { child, prepared, denials, exited, kill } = await spawnContained(options, [
    'pipe',
    'pipe',
    'ignore',
  ]);
  return {
    stdin: child.stdin as NonNullable<typeof child.stdin>,
    stdout: child.stdout as NonNullable<typeof child.stdout>,
    exited,
    record: prepared.record,
    live: () => prepared.live(),
    denials() {
      prepared.drain();
      return denials.splice(0);
    },
    async kill() {
      kill();
      await exited;
    },
  };
}
