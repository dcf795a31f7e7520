import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { BELAY, type Machine } from '../e2e/belay-process.js';

/** A server whose answers are its requests; its pid is in the first line of its stderr. */
const SERVER = `console.error('pid ' + process.pid);
  require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, params } = JSON.parse(line);
    const content = [{ type: 'text', text: JSON.stringify(params) }];
    process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result: { content } }) + '\\n');
  });`;

/** Milliseconds. */
const THINKING = 2;

/** An agent that calls a tool through the proxy, one call after the other, until it is told to end or nobody answers. */
export class Traffic {
  readonly proxy: ChildProcessByStdio<Writable, Readable, Readable>;
  answered = 0;
  #stderr = '';
  #stopping = false;
  readonly #ended: Promise<number | string>;
  readonly #calling: Promise<void>;

  constructor(machine: Machine, env: Readonly<Record<string, string>>, bytes = 200) {
    this.proxy = spawn(process.execPath, [BELAY, 'proxy', '--', process.execPath, '-e', SERVER], {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: machine.environment(env),
    });
    this.proxy.stderr.on('data', (chunk: Buffer) => (this.#stderr += chunk.toString()));
    this.proxy.stdin.on('error', () => undefined);
    this.#ended = once(this.proxy, 'close').then(
      ([code, signal]) => (signal as string | null) ?? (code as number),
    );
    this.#calling = this.#call(bytes);
  }

  get stderr(): string {
    return this.#stderr;
  }

  /** Process of the server behind the proxy. */
  async server(): Promise<number> {
    await this.more(1);
    // An answer may be read before what the server wrote to stderr earlier: they are two pipes.
    for (const until = Date.now() + 60_000; ; await sleep(5)) {
      const [, pid] = /pid (\d+)\n/.exec(this.#stderr) ?? [];
      if (pid !== undefined) return Number(pid);
      if (Date.now() > until) throw new Error(`the server did not say its pid\n${this.#stderr}`);
    }
  }

  /** Waits until so many more calls were answered. */
  async more(calls: number): Promise<void> {
    const goal = this.answered + calls;
    const until = Date.now() + 60_000;
    while (this.answered < goal) {
      if (Date.now() > until) throw new Error(`${this.answered} calls were answered\n${this.#stderr}`);
      await sleep(5);
    }
  }

  /** Ends the agent's side, unless it has ended; resolves with the proxy's exit code or the signal that ended it. */
  async end(): Promise<number | string> {
    this.#stopping = true;
    await Promise.race([this.#calling, this.#ended]);
    this.proxy.stdin.end();
    return await this.#ended;
  }

  async #call(bytes: number): Promise<void> {
    const answers = createInterface({ input: this.proxy.stdout })[Symbol.asyncIterator]();
    for (let id = 1; !this.#stopping; id++) {
      const params = { name: 'write', arguments: { id, text: 'x'.repeat(bytes) } };
      this.proxy.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })}\n`);
      const { value, done } = await answers.next();
      if (done === true) return;
      if ((JSON.parse(value) as { id: number }).id !== id)
        throw new Error(`call ${id} was answered by ${value}`);
      this.answered++;
      // An agent thinks between two calls; one that did not would have the processors to itself.
      await sleep(THINKING);
    }
  }
}
