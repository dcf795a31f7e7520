/** The processes of the demo: a service, `belay` command lines as a person would type them, and their end. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createServer, type AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { findTool } from '@belay/sandbox';

/** The command as it was compiled. */
export const BELAY = fileURLToPath(new URL('../bin/belay.js', import.meta.url));

const START_MS = 60_000;
const END_MS = 15_000;

/** Added to the environment of who runs the demo. */
type Environment = Readonly<Record<string, string>>;

export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Machine {
  readonly #environment: Readonly<Record<string, string | undefined>>;
  /** To be ended whatever happens, newest first. */
  readonly #running = new Set<ChildProcess>();

  constructor(environment: Readonly<Record<string, string | undefined>>) {
    this.#environment = environment;
  }

  /** Runs a command line to its end. Exit codes that are answers are given back; throws for those that are failures. */
  async belay(environment: Environment, args: readonly string[]): Promise<Ran> {
    const ran = await this.run(environment, process.execPath, [BELAY, ...args]);
    if (ran.code !== null && ran.code >= 64) {
      throw new Error(`belay ${args.slice(0, 2).join(' ')} failed (${ran.code}): ${ran.stderr}${ran.stdout}`);
    }
    return ran;
  }

  /** Runs a program to its end, with `input` on its standard input. */
  async run(
    environment: Environment,
    program: string,
    args: readonly string[],
    input?: string,
  ): Promise<Ran> {
    const child = spawn(program, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...this.#environment, ...environment },
    });
    this.#running.add(child);
    let stdout = '';
    let stderr = '';
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk));
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    }).finally(() => this.#running.delete(child));
    return { code, stdout, stderr };
  }

  async json<T>(environment: Environment, args: readonly string[]): Promise<T> {
    return JSON.parse((await this.belay(environment, [...args, '--json'])).stdout) as T;
  }

  /** Starts the service and waits until it is ready; its first start prints the operator key, which is given back. */
  async startService(data: string, port: number): Promise<string> {
    const service = spawn(process.execPath, [BELAY, 'serve', '--data', data, '--port', String(port)], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#running.add(service);
    let output = '';
    service.stdout.on('data', (chunk: Buffer) => (output += chunk));
    service.stderr.on('data', (chunk: Buffer) => (output += chunk));
    const until = Date.now() + START_MS;
    while (Date.now() < until) {
      if (service.exitCode !== null) throw new Error(`the service ended (${service.exitCode}): ${output}`);
      const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(
        (answer) => answer.ok,
        () => false,
      );
      const [key] = /belay_operator_[A-Za-z0-9_-]+/.exec(output) ?? [];
      if (ready && key !== undefined) return key;
      await sleep(50);
    }
    throw new Error(`the service was not ready within ${START_MS / 1_000} s: ${output}`);
  }

  /** Ends what was started, the service last; a process that does not end when asked is killed. */
  async end(): Promise<void> {
    const running = [...this.#running].toReversed();
    this.#running.clear();
    for (const child of running) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((resolve) => child.once('close', resolve));
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
      await ended;
      clearTimeout(timer);
    }
  }

  /** What a boundary with verdicts needs and is not to be had here; empty where everything is. */
  missing(): readonly Missing[] {
    const path = this.#environment['PATH'];
    const missing: Missing[] = [];
    const bwrap = findTool('bwrap', path);
    if (bwrap === undefined) missing.push({ program: 'bwrap', debian: 'bubblewrap' });
    else {
      const { status, stderr } = spawnSync(bwrap, TRIAL, { encoding: 'utf8' });
      if (status !== 0) missing.push({ program: 'bwrap', refused: stderr.trim().split('\n')[0] ?? '' });
    }
    if (findTool('strace', path) === undefined) missing.push({ program: 'strace', debian: 'strace' });
    return missing;
  }
}

/** A program that is not here, with the package that has it, or one that is and may not be used, with what it says. */
export interface Missing {
  readonly program: 'bwrap' | 'strace';
  readonly debian?: string;
  readonly refused?: string;
}

/** The least that every boundary asks of bubblewrap. */
const TRIAL = ['--ro-bind', '/', '/', '--unshare-pid', '--unshare-net', '--proc', '/proc', 'true'];

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const server = createServer()
      .once('error', reject)
      .listen(0, '127.0.0.1', () => {
        const { port } = server.address() as AddressInfo;
        server.close(() => resolve(port));
      });
  });
}
