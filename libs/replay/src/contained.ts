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

/**
 * The network is closed, whatever the recording had. Throws SandboxError where there is no boundary to be had: a replay
 * runs what may have been recorded anywhere, and never without one.
 */
export async function startContained(options: ContainedOptions): Promise<ContainedServer> {
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
    { canary: false },
  );
  let denials: Denial[] = [];
  prepared.onDenial((denial) => denials.push(denial));
  const [program, ...args] = prepared.argv;
  const child = spawn(program, args, {
    cwd: prepared.cwd,
    env: prepared.env,
    stdio: ['pipe', 'pipe', 'ignore', ...prepared.fds],
    detached: true,
  });
  const gone = once(child, 'exit').catch(() => undefined);
  prepared.started(child.pid);
  const exited = gone.then(() => prepared.dispose());
  if (child.pid === undefined) {
    await exited;
    throw new Error(`${program} can not be started`);
  }
  const { pid } = child;
  return {
    stdin: child.stdin as NonNullable<typeof child.stdin>,
    stdout: child.stdout as NonNullable<typeof child.stdout>,
    exited,
    record: prepared.record,
    live: () => prepared.live(),
    denials() {
      prepared.drain();
      const told = denials;
      denials = [];
      return told;
    },
    async kill() {
      try {
        process.kill(-pid, 'SIGKILL');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
      await exited;
    },
  };
}
