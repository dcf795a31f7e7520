import type { Logger } from 'pino';
import type { Publisher } from './publisher.js';

/**
 * Sweeps on a timer within this process. A sweep that takes longer than the interval is followed by the next at once,
 * never joined by it.
 */
export class InProcessSchedule {
  readonly #publisher: Publisher;
  readonly #intervalMs: number;
  readonly #log: Logger;
  #running: Promise<void> | undefined;
  #wake: (() => void) | undefined;
  #stopping = false;

  constructor(publisher: Publisher, intervalMs: number, log: Logger) {
    this.#publisher = publisher;
    this.#intervalMs = intervalMs;
    this.#log = log;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Ends after the sweep that may be going on. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#wake?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const started = Date.now();
      try {
        await this.#publisher.sweep();
      } catch (error) {
        this.#log.error({ err: error }, 'a sweep failed; the next one tries again');
      }
      await this.#pause(this.#intervalMs - (Date.now() - started));
    }
  }

  #pause(ms: number): Promise<void> {
    if (this.#stopping || ms <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
