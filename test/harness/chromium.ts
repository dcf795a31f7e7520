import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { makeScratch } from './scratch.js';

const found = (process.env['PATH'] ?? '')
  .split(delimiter)
  .map((folder) => join(folder, 'chromium'))
  .find((path) => existsSync(path));

/** Why there is no browser to look with, or undefined when there is one. */
export const chromiumAbsent: string | undefined =
  found === undefined ? 'Chromium is not installed (Debian: chromium)' : undefined;

type Message = {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
  readonly sessionId?: string;
};

/** A browser with one page, spoken to over two pipes in the DevTools protocol: no port, no library. */
export class Chromium {
  readonly #process: ChildProcess;
  readonly #scratch: { remove(): void };
  readonly #to: Writable;
  readonly #waiting = new Map<number, { done(message: Message): void; failed(error: Error): void }>();
  readonly #once: { readonly method: string; done(): void }[] = [];
  #session: string | undefined;
  #last = 0;
  /** Everything the page asked for, addresses and data in full. */
  readonly requests: string[] = [];
  /** Errors, warnings and refusals that the console shows, and exceptions. */
  readonly complaints: string[] = [];

  private constructor(child: ChildProcess, scratch: { remove(): void }) {
    this.#process = child;
    this.#scratch = scratch;
    this.#to = child.stdio[3] as Writable;
    this.#to.on('error', (error) => this.#fail(error));
    let rest = '';
    (child.stdio[4] as Readable).setEncoding('utf8').on('data', (chunk: string) => {
      const messages = (rest + chunk).split('\0');
      rest = messages.pop() ?? '';
      for (const message of messages) this.#take(JSON.parse(message) as Message);
    });
    child.on('error', (error) => this.#fail(error));
    child.on('exit', (code) => this.#fail(new Error(`Chromium ended with ${code}`)));
  }

  static async start(): Promise<Chromium> {
    if (found === undefined) throw new Error(chromiumAbsent);
    const scratch = makeScratch('chromium');
    const child = spawn(
      found,
      [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--disable-dev-shm-usage',
        '--disable-background-networking',
        '--hide-scrollbars',
        '--no-first-run',
        '--remote-debugging-pipe',
        `--user-data-dir=${scratch.dir}`,
      ],
      { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], detached: true },
    );
    const browser = new Chromium(child, scratch);
    const { targetId } = await browser.#send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await browser.#send('Target.attachToTarget', { targetId, flatten: true });
    browser.#session = String(sessionId);
    for (const domain of ['Page', 'Network', 'Log', 'Runtime']) await browser.#send(`${domain}.enable`);
    return browser;
  }

  /** Resolves once the page and what it asked for are loaded. */
  async open(
    url: string,
    view: { width: number; height: number; dark?: boolean; print?: boolean },
  ): Promise<void> {
    const { width, height } = view;
    await this.#send('Emulation.setDeviceMetricsOverride', {
      width,
      height,
      deviceScaleFactor: 1,
      mobile: false,
    });
    await this.#send('Emulation.setEmulatedMedia', {
      media: view.print === true ? 'print' : '',
      features: [{ name: 'prefers-color-scheme', value: view.dark === true ? 'dark' : 'light' }],
    });
    const loaded = new Promise<void>((done) => this.#once.push({ method: 'Page.loadEventFired', done }));
    await this.#send('Page.navigate', { url });
    await loaded;
  }

  /** The value of an expression in the page. */
  async evaluate(expression: string): Promise<unknown> {
    const { result, exceptionDetails } = (await this.#send('Runtime.evaluate', {
      expression,
      returnByValue: true,
    })) as { result: { value?: unknown }; exceptionDetails?: unknown };
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
    return result.value;
  }

  /** What is in view, as a PNG. */
  async screenshot(): Promise<Buffer> {
    const { data } = await this.#send('Page.captureScreenshot', { format: 'png' });
    return Buffer.from(String(data), 'base64');
  }

  /** The page as it prints. */
  async pdf(): Promise<Buffer> {
    const { data } = await this.#send('Page.printToPDF', { preferCSSPageSize: true, printBackground: true });
    return Buffer.from(String(data), 'base64');
  }

  async close(): Promise<void> {
    const ended = new Promise<void>((done) => this.#process.once('exit', () => done()));
    if (this.#process.exitCode === null && this.#process.pid !== undefined) {
      // Its renderers are processes of their own; the group is this browser's alone.
      process.kill(-this.#process.pid, 'SIGKILL');
      await ended;
    }
    this.#scratch.remove();
  }

  #send(method: string, params: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    const id = ++this.#last;
    const session = this.#session === undefined ? {} : { sessionId: this.#session };
    return new Promise((done, failed) => {
      this.#waiting.set(id, {
        done: ({ result, error }) => {
          if (error === undefined) done(result ?? {});
          else failed(new Error(`${method}: ${error.message}`));
        },
        failed,
      });
      this.#to.write(`${JSON.stringify({ id, method, params, ...session })}\0`);
    });
  }

  #take(message: Message): void {
    if (message.id !== undefined) {
      this.#waiting.get(message.id)?.done(message);
      this.#waiting.delete(message.id);
      return;
    }
    const { method, params } = message;
    if (method === 'Network.requestWillBeSent') {
      const request = params?.['request'] as { url?: string } | undefined;
      this.requests.push(request?.url ?? 'an address that is not told');
    }
    if (
      method === 'Log.entryAdded' ||
      method === 'Runtime.exceptionThrown' ||
      method === 'Runtime.consoleAPICalled'
    ) {
      this.complaints.push(JSON.stringify(params));
    }
    const at = this.#once.findIndex((each) => each.method === method);
    if (at >= 0) this.#once.splice(at, 1)[0]?.done();
  }

  #fail(error: Error): void {
    for (const waiting of this.#waiting.values()) waiting.failed(error);
    this.#waiting.clear();
  }
}
