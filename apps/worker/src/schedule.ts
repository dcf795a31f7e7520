import type { Logger } from 'pino';

const AFTER_FAILURE_MS = 1_000;

/** What is done again and again. */
export interface Sweeper {
  sweep(): Promise<void>;
  /** Ends what goes on beside sweeps. */
  stop?(): Promise<void>;
}

/**
 * Sweeps within this process, on a timer or when it is poked. A sweep that takes longer than the interval is followed
 * by the next at once, never joined by it; pokes while one goes on count as one.
 */
export class InProcessSchedule {
  readonly #sweeper: Sweeper;
  readonly #intervalMs: number;
  readonly #log: Logger;
  #running: Promise<void> | undefined;
  #wake: (() => void) | undefined;
  #poked = false;
  #stopping = false;

  /** With an interval of Infinity it sweeps only when it is poked. */
  constructor(sweeper: Sweeper, intervalMs: number, log: Logger) {
    this.#sweeper = sweeper;
    this.#intervalMs = intervalMs;
    this.#log = log;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  poke(): void {
    this.#poked = true;
    this.#wake?.();
  }

  /** Ends after the sweep that may be going on. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#wake?.();
    await this.#sweeper.stop?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const started = Date.now();
      this.#poked = false;
      try {
        await this.#sweeper.sweep();
      } catch (error) {
        this.#log.error({ err: error }, 'a sweep failed; the next one tries again');
        await this.#pause(AFTER_FAILURE_MS);
      }
      await this.#pause(this.#intervalMs - (Date.now() - started));
    }
  }

  #pause(ms: number): Promise<void> {
    if (this.#stopping || this.#poked || ms <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = ms === Number.POSITIVE_INFINITY ? undefined : setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
