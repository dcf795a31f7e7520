import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A process of a test, with all it wrote. */
export class Child {
  readonly process: ChildProcess;
  readonly name: string;
  #output = '';
  readonly #ended: Promise<unknown>;

  constructor(
    name: string,
    program: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ) {
    this.name = name;
    this.process = spawn(program, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: `${process.env['PATH'] ?? ''}:/usr/local/sbin:/usr/sbin:/sbin`, ...env },
    });
    this.#ended = once(this.process, 'close').catch(() => undefined);
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        this.#output += chunk.toString('utf8');
      });
    }
  }

  get output(): string {
    return this.#output;
  }

  get isRunning(): boolean {
    return this.process.exitCode === null && this.process.signalCode === null;
  }

  /** Waits until `is` says so; rejects when the process ends first, or after 60 s, with what it wrote. */
  async until(is: () => boolean | Promise<boolean>): Promise<void> {
    const deadline = Date.now() + 60_000;
    while (!(await is())) {
      if (!this.isRunning || Date.now() > deadline) {
        throw new Error(
          `${this.name} ${this.isRunning ? 'is not ready' : 'ended'}:\n${this.#output.slice(-4000)}`,
        );
      }
      await sleep(20);
    }
  }

  /** Sends the signal and waits for the end; SIGKILL follows a signal that is not obeyed in 30 s. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (this.isRunning) {
      this.process.kill(signal);
      const patience = setTimeout(() => this.process.kill('SIGKILL'), 30_000);
      await this.#ended;
      clearTimeout(patience);
    }
    return this.process.exitCode;
  }
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
