import { setTimeout as sleep } from 'node:timers/promises';
import type { AccountStore, AccountTurn } from '@belay/db';
import { Fenced } from '@belay/db';
import type { LogRecord } from '@belay/log';
import type { Logger } from 'pino';
import type { Evaluator } from './evaluator.js';
import { DamagedState, Lane } from './lane.js';

/** Logs looked at in one sweep; more wait for the next. */
const SWEEP = 1_000;
/** Logs at the same time: each holds a connection for its turn. */
const LOGS_AT_ONCE = 2;
/** Entries taken in by one transaction. */
const BATCH = 8_000;
/** A turn ends after so long, when others wait. */
const TURN_MS = 2_000;
/** How long sessions are judged in one go, and how long while entries come: these have to be reconciled too. */
const SLICE_MS = 300;
const BUSY_SLICE_MS = 150;
/** From so many entries on by how much each puts off judging, and by how much it is put off at most, milliseconds. */
const MANY = 1_000;
const PUT_OFF_MS = 0.02;
const MOST_PUT_OFF_MS = 2_000;
/** States in memory over all logs; the ones of logs that were quiet longest are given up. */
const MOST_HELD = 24_000;
/** Between two tries to get a log's turn. */
const WAIT_MS = 50;
/** How often a log is begun anew from its first entry. What is damaged again at once is no damage of what was kept. */
const ANEW_MS = 10 * 60_000;

/** Failures, and a turn, that last so long are said. */
const STUCK_MS = 30_000;
const HANGS_MS = 5 * 60_000;

export interface AccountantParts {
  readonly store: AccountStore;
  readonly evaluator: Evaluator;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
}

/**
 * Keeps the account of every log: takes in what came since, and looks at what may have changed by it or by time alone.
 *
 * Any number of these may run at once, on any schedule: what waits is seen from the database, a log is one worker's at
 * a time, and a worker that dies in the middle leaves what it had written in whole batches.
 */
export class Accountant {
  readonly #parts: AccountantParts;
  /** By log, the one used last at the end. */
  readonly #lanes = new Map<number, Lane>();
  readonly #anew = new Map<number, number>();
  readonly #busy = new Set<number>();
  /** When it was last looked what is due, and how far the lane was. */
  readonly #looked = new WeakMap<Lane, { readonly at: number; readonly size: number }>();
  /** When the sweep that goes on last turned to a log. */
  #sweeping: number | undefined;
  #trouble: { readonly since: number; readonly message: string } | undefined;

  constructor(parts: AccountantParts) {
    this.#parts = parts;
  }

  /** What keeps logs from being reconciled, once it has done so for a while. */
  get trouble(): string | undefined {
    const now = this.#parts.now();
    if (this.#sweeping !== undefined && now - this.#sweeping > HANGS_MS) return 'reconciling hangs';
    if (this.#trouble === undefined || now - this.#trouble.since < STUCK_MS) return undefined;
    const { since, message } = this.#trouble;
    return `reconciling has failed since ${new Date(since).toISOString()}: ${message}`;
  }

  /** Logs that wait, the most behind first. */
  waiting(): Promise<LogRecord[]> {
    return this.#parts.store.waiting(new Date(this.#parts.now()), SWEEP);
  }

  /** Visits what waits until nothing does. Rejects with the first failure, after all were tried. */
  async sweep(): Promise<void> {
    this.#sweeping = this.#parts.now();
    const failures: unknown[] = [];
    try {
      await this.#visitAll(failures);
    } catch (error) {
      failures.push(error);
    }
    this.#sweeping = undefined;
    this.#note(failures[0]);
    if (failures.length > 0) throw failures[0];
  }

  async #visitAll(failures: unknown[]): Promise<void> {
    const waiting = await this.waiting();
    const under = new Set<number>();
    const visiting = Array.from({ length: LOGS_AT_ONCE }, async () => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        this.#sweeping = this.#parts.now();
        under.add(next.log);
        const more = await this.visit(next).catch((error: unknown) => void failures.push(error));
        under.delete(next.log);
        if (more !== true) continue;
        // One with much to do ends no sweep for long: whoever came since has its turn before it.
        const known = new Set([next, ...waiting].map(({ log }) => log));
        for (const log of await this.waiting()) {
          if (!known.has(log.log) && !under.has(log.log)) waiting.unshift(log);
        }
        waiting.push(next);
      }
    });
    await Promise.all(visiting);
  }

  /**
   * Takes in what a log has got, and looks at what is due in it. Returns whether the time was up before that was done.
   * While another worker has the log, nothing is done.
   */
  async visit(log: LogRecord): Promise<boolean> {
    if (this.#busy.has(log.log)) return false;
    this.#busy.add(log.log);
    try {
      return (
        (await this.#inTurn(log, async (turn, lane) => {
          const until = this.#parts.now() + TURN_MS;
          for (;;) {
            const isReached = await this.#reconcile(turn, lane, until);
            if (!isReached) return true;
            // While many come, those who send them have more of it when judging waits, and then is for several at once.
            const last = this.#looked.get(lane);
            const came = last === undefined ? 0 : lane.size - last.size;
            const isBusy = came >= MANY;
            const waits = isBusy ? Math.min(came * PUT_OFF_MS, MOST_PUT_OFF_MS) : 0;
            if (last !== undefined && performance.now() - last.at < waits) return false;
            const isDone = !(await this.#parts.evaluator.look(turn, lane, isBusy ? BUSY_SLICE_MS : SLICE_MS));
            this.#looked.set(lane, { at: performance.now(), size: lane.size });
            if (isDone) return false;
            if (this.#parts.now() > until) return true;
          }
        })) ?? false
      );
    } finally {
      this.#busy.delete(log.log);
    }
  }

  /**
   * Takes in all that a log has now, and then does something with it; undefined while another worker has the log, or
   * when it went over to one.
   */
  async withLog<T>(
    log: LogRecord,
    work: (turn: AccountTurn, lane: Lane, evaluator: Evaluator) => Promise<T>,
  ): Promise<T | undefined> {
    if (this.#busy.has(log.log)) return undefined;
    this.#busy.add(log.log);
    try {
      return await this.#inTurn(log, async (turn, lane) => {
        await this.#reconcile(turn, lane, Number.POSITIVE_INFINITY);
        return work(turn, lane, this.#parts.evaluator);
      });
    } finally {
      this.#busy.delete(log.log);
    }
  }

  /** The same once the log is free. Rejects with the signal's reason when that is aborted while it waits. */
  async waitForLog<T extends {} | null>(
    log: LogRecord,
    signal: AbortSignal,
    work: (turn: AccountTurn, lane: Lane, evaluator: Evaluator) => Promise<T>,
  ): Promise<T> {
    for (;;) {
      signal.throwIfAborted();
      const result = await this.withLog(log, work);
      if (result !== undefined) return result;
      await sleep(WAIT_MS, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  async #inTurn<T>(
    log: LogRecord,
    work: (turn: AccountTurn, lane: Lane) => Promise<T>,
  ): Promise<T | undefined> {
    return this.#parts.store.turn(log, async (turn) => {
      try {
        const lane = await this.#lane(turn);
        const result = await work(turn, lane);
        this.#keep(log, lane);
        return result;
      } catch (error) {
        // What is in memory may be ahead of what was written.
        this.#lanes.delete(log.log);
        if (error instanceof DamagedState) return this.#anewFrom(turn, error);
        if (error instanceof Fenced) return undefined;
        throw error;
      }
    });
  }

  /** Returns whether it reached the head before the time was up. */
  async #reconcile(turn: AccountTurn, lane: Lane, until: number): Promise<boolean> {
    for (;;) {
      const size = await turn.size();
      if (lane.size >= size) return true;
      if (this.#parts.now() > until) return false;
      const to = Math.min(lane.size + BATCH, size);
      await lane.step(turn, to, new Date(this.#parts.now()), Math.min(to + BATCH, size));
    }
  }

  async #lane(turn: AccountTurn): Promise<Lane> {
    const known = this.#lanes.get(turn.log.log);
    if (known !== undefined && (await turn.cursor()).fence === known.fence) return known;
    return Lane.open(turn);
  }

  #keep(log: LogRecord, lane: Lane): void {
    this.#lanes.delete(log.log);
    this.#lanes.set(log.log, lane);
    let held = [...this.#lanes.values()].reduce((sum, one) => sum + one.held, 0);
    for (const [key, one] of this.#lanes) {
      if (held <= MOST_HELD) break;
      held -= one.held;
      this.#lanes.delete(key);
    }
  }

  async #anewFrom(turn: AccountTurn, error: DamagedState): Promise<undefined> {
    const { log, now } = this.#parts;
    const before = this.#anew.get(turn.log.log);
    if (before !== undefined && now() - before < ANEW_MS) throw error;
    this.#anew.set(turn.log.log, now());
    log.error({ err: error, origin: turn.log.origin }, 'what was kept of a log is damaged: it is made again');
    await turn.forget((await turn.cursor()).fence);
    return undefined;
  }

  #note(failure: unknown): void {
    if (failure === undefined) this.#trouble = undefined;
    else {
      const message = failure instanceof Error ? failure.message : 'nobody knows why';
      this.#trouble = { since: this.#trouble?.since ?? this.#parts.now(), message };
    }
  }
}
