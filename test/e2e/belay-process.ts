/** Starts the compiled `belay` as a person or a supervisor would, on folders of its own, and leaves nothing behind. */

import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export const BELAY = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const START_MS = 90_000;

export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

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

/** A machine of somebody's: a home of its own for credentials and state, and the folder of a service. */
export class Machine {
  readonly root: string;
  readonly data: string;
  readonly state: string;
  readonly credentials: string;
  readonly #running = new Set<ChildProcess>();

  constructor(under = tmpdir()) {
    this.root = mkdtempSync(join(under, 'belay-e2e-'));
    // As root, the embedded PostgreSQL runs as another user and has to get to its folder through this one.
    chmodSync(this.root, 0o711);
    this.data = join(this.root, 'data');
    this.state = join(this.root, 'state');
    this.credentials = join(this.root, 'config', 'belay', 'credentials');
  }

  environment(more: Readonly<Record<string, string>> = {}): Record<string, string | undefined> {
    const { BELAY_URL: _url, BELAY_TOKEN: _token, DATABASE_URL: _database, ...rest } = process.env;
    return { ...rest, BELAY_STATE: this.state, XDG_CONFIG_HOME: join(this.root, 'config'), ...more };
  }

  /** Runs one command line to its end, with `input` on its standard input. */
  async belay(
    args: readonly string[],
    more: Readonly<Record<string, string>> = {},
    input = '',
  ): Promise<Ran> {
    const child = spawn(process.execPath, [BELAY, ...args], {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: this.environment(more),
      cwd: this.root,
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk));
    const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
    return { code, stdout, stderr };
  }

  /** Runs a command line that has to succeed, with `--json`, and reads what it printed. */
  async json<T>(args: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<T> {
    const { code, stdout, stderr } = await this.belay([...args, '--json'], more);
    if (code !== 0) throw new Error(`belay ${args.join(' ')}: exit ${code}\n${stdout}${stderr}`);
    return JSON.parse(stdout) as T;
  }

  /** Starts `belay serve` and waits until it is ready. */
  async serve(
    port: number,
  ): Promise<{ readonly url: string; readonly output: () => string; readonly process: ChildProcess }> {
    const child = spawn(process.execPath, [BELAY, 'serve', '--data', this.data, '--port', String(port)], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: this.environment(),
    });
    this.#running.add(child);
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk));
    const url = `http://127.0.0.1:${port}`;
    const until = Date.now() + START_MS;
    for (;;) {
      if (child.exitCode !== null) throw new Error(`serve ended with ${child.exitCode}: ${output}`);
      const ready = await fetch(`${url}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
      // What it prints last may still be on its way through the pipe.
      if (ready && output.includes('Listening on')) return { url, output: () => output, process: child };
      if (Date.now() > until) throw new Error(`serve was not ready in time: ${output}`);
      await sleep(50);
    }
  }

  /** Asks a process to end, waits, and says how it did. */
  async stop(
    child: ChildProcess,
  ): Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }> {
    this.#running.delete(child);
    if (child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((resolve) => child.once('close', resolve));
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 30_000);
      await ended;
      clearTimeout(timer);
    }
    return { code: child.exitCode, signal: child.signalCode };
  }

  async close(): Promise<void> {
    for (const child of this.#running) await this.stop(child);
    rmSync(this.root, { recursive: true, force: true });
  }
}
