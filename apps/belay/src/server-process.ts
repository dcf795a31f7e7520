/** An MCP server as a process group of its own: started, signalled and ended as a whole. */

import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants as access, statSync } from 'node:fs';
import { constants } from 'node:os';
import { delimiter, isAbsolute, join, resolve } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import type { Prepared } from '@belay/sandbox';
import { GroupGuard } from './group-guard.js';
import { ServerOutput, type Source } from './server-output.js';

/** How a server ended. Exactly one of the two is there. */
export interface ServerEnd {
  readonly exit?: number | undefined;
  readonly signal?: NodeJS.Signals | undefined;
}

/** The program could not be started; `exit` is what env(1) and the shells return. */
export class StartError extends Error {
  readonly exit: number;

  constructor(message: string, exit: number) {
    super(message);
    this.name = 'StartError';
    this.exit = exit;
  }
}

export interface ServerOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Called when nobody will end the group should this process be killed. */
  readonly onUnguarded: () => void;
  /** The boundary that `command` makes before it becomes the server. */
  readonly inside?: Inside | undefined;
}

type Inside = Pick<Prepared, 'fds' | 'started' | 'live'>;

/** From a signal to SIGKILL, in milliseconds: less than clients give us before they kill us. */
const AFTER_SIGNAL = 1_500;
/** How long the output of a server that is gone may be silent, when a grandchild holds it open. */
const SILENCE = 500;

export class ServerProcess {
  readonly stdin: Writable;
  readonly stdout: Source;
  readonly stderr: Readable;
  readonly #child: ChildProcessByStdio<Writable, Readable | null, Readable>;
  readonly #exited: Promise<ServerEnd>;
  readonly #closed: Promise<unknown>;
  readonly #guard: GroupGuard;
  readonly #inside: Inside | undefined;
  #gone = false;

  private constructor(
    child: ChildProcessByStdio<Writable, Readable | null, Readable>,
    output: ServerOutput | undefined,
    guard: GroupGuard,
    inside: Inside | undefined,
  ) {
    this.#child = child;
    this.#guard = guard;
    this.#inside = inside;
    this.stdin = child.stdin;
    this.stdout = output ?? (child.stdout as Readable);
    this.stderr = child.stderr;
    // The child's own event waits for the streams that it made.
    this.#closed = Promise.all([
      new Promise<void>((closed) => child.once('close', () => closed())),
      output && new Promise<void>((closed) => output.once('close', closed)),
    ]);
    this.#exited = new Promise((ended) => {
      child.once('exit', (code, signal) => {
        this.#gone = true;
        ended(signal === null ? { exit: code ?? 0 } : { signal });
      });
    });
  }

  /** Resolves when the program runs; throws StartError when it can't be. */
  static async start({ command, args, env, onUnguarded, inside }: ServerOptions): Promise<ServerProcess> {
    const output = await ServerOutput.open();
    const guard = GroupGuard.start(onUnguarded);
    // `detached` is setsid(2): the group's number is the child's, and a signal to it reaches what the server starts.
    const child = spawn(command, args, {
      env,
      stdio: ['pipe', output?.inherited ?? 'pipe', 'pipe', ...(inside?.fds ?? [])],
      detached: true,
    }) as ChildProcessByStdio<Writable, Readable | null, Readable>;
    inside?.started(child.pid);
    output?.started();
    const server = new ServerProcess(child, output, guard, inside);
    if (child.pid === undefined) {
      guard.settle();
      output?.destroy();
      const [error] = (await once(child, 'error')) as [NodeJS.ErrnoException];
      const missing = error.code === 'ENOENT';
      const reason = missing
        ? 'no such program'
        : error.code === 'EACCES'
          ? 'permission denied'
          : error.message;
      throw new StartError(`cannot start ${command}: ${reason}`, missing ? 127 : 126);
    }
    guard.watch(child.pid);
    return server;
  }

  /** Resolves when the server's own process is gone. */
  get exited(): Promise<ServerEnd> {
    return this.#exited;
  }

  get running(): boolean {
    return !this.#gone;
  }

  /** Numbers of the server's processes: of those inside, where there is a boundary, else of the one that was started. */
  get processes(): number[] {
    if (this.#gone) return [];
    return this.#inside?.live() ?? [this.#child.pid as number];
  }

  /**
   * Sends a signal to the whole group. A group that is gone is no error. Of a boundary, only what lives inside is asked
   * to end: what makes the boundary would end at once, and all inside with it.
   */
  signal(signal: NodeJS.Signals): void {
    const inside = signal === 'SIGKILL' ? [] : (this.#inside?.live() ?? []);
    for (const target of inside.length > 0 ? inside : [-(this.#child.pid as number)]) {
      try {
        process.kill(target, signal);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
    }
  }

  /** Sends the signal, and SIGKILL to what is left of the group a little later. Resolves when the server is gone. */
  async terminate(signal: NodeJS.Signals): Promise<void> {
    this.signal(signal);
    await within(AFTER_SIGNAL, this.#exited);
    if (!this.#gone) this.signal('SIGKILL');
    await this.#exited;
  }

  /**
   * After the server's exit: waits for the rest of its output, and ends what it left behind. Output that a slow client
   * holds up is waited for; output that a grandchild holds open without writing is not: the group gets SIGTERM, then
   * SIGKILL.
   */
  async cleanUp(): Promise<void> {
    if (!(await this.#silent())) this.signal('SIGTERM');
    const closed = await this.#silent();
    this.signal('SIGKILL');
    this.#guard.settle();
    if (closed || (await this.#silent())) return;
    // Somebody left the group and kept our pipes; they are cut on our side.
    this.stdout.destroy();
    this.stderr.destroy();
  }

  /** True when the output has closed, false when nothing came for a while and nothing on our side held it up. */
  async #silent(): Promise<boolean> {
    let active = false;
    const onData = (): void => {
      active = true;
    };
    this.stdout.on('data', onData);
    try {
      do {
        active = false;
        if (await within(SILENCE, this.#closed)) return true;
      } while (active || this.stdout.isPaused());
      return false;
    } finally {
      this.stdout.removeListener('data', onData);
    }
  }
}

/** Whether it happened in `ms`. Leaves no timer behind, which would keep the process. */
async function within(ms: number, event: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([event.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** 128 + signal, as the shells say it, or the code itself. */
export function exitCodeOf(end: ServerEnd): number {
  return end.signal === undefined ? (end.exit ?? 0) : 128 + constants.signals[end.signal];
}

/** The file that a command line's first word names, as execvp(3) would find it; undefined when there is none. */
export function resolveProgram(command: string, path: string | undefined, cwd: string): string | undefined {
  if (command.includes('/')) return resolve(cwd, command);
  for (const folder of (path ?? '').split(delimiter)) {
    const candidate = join(isAbsolute(folder) ? folder : resolve(cwd, folder), command);
    try {
      accessSync(candidate, access.X_OK);
      if (statSync(candidate).isFile()) return candidate;
    } catch {
      // Not here; the next folder may have it.
    }
  }
  return undefined;
}
