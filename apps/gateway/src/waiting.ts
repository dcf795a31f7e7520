import type { JobState, Reader, SessionProgress } from '@belay/db';
import type { FastifyReply } from 'fastify';
import { type Holder, Shares } from './admission.js';
import { ProblemError } from './problem.js';

/** Milliseconds from one look to the next, and the longest a request may wait. */
const EVERY_MS = 250;
export const MAX_WAIT_SECONDS = 60;

/** One request that waits. */
interface Waiter<Key, News> {
  readonly key: Key;
  readonly isOver: (news: News) => boolean;
  readonly settle: (error?: Error) => void;
}

export interface Patience {
  readonly holder: Holder;
  readonly seconds: number;
  /** Aborted when nobody is there any more to be answered. */
  readonly gone: AbortSignal;
}

/**
 * Requests that wait for a session to settle or a job to end. However many wait, the database is asked once a moment
 * for all of them, and not at all while nobody waits. Ends for each when it is over, when its time is up, when its
 * client has gone or when the process goes down.
 */
export class Waiting {
  readonly #shares: Shares;
  readonly #sessions: Watch<{ readonly log: number; readonly session: string }, SessionProgress>;
  readonly #jobs: Watch<string, JobState>;

  constructor({ sessions, requests }: Pick<Reader, 'sessions' | 'requests'>, most: number) {
    this.#shares = new Shares(most, 1);
    this.#sessions = new Watch(
      ({ log, session }) => `${log} ${session}`,
      async (keys) =>
        new Map((await sessions.progress(keys)).map((news) => [`${news.log} ${news.session}`, news])),
    );
    this.#jobs = new Watch(
      (id) => id,
      async (ids) => new Map((await requests.progress(ids)).map(({ id, state }) => [id, state])),
    );
  }

  /** Requests that wait now. */
  get count(): number {
    return this.#shares.inAll;
  }

  /** Until the session has settled over the first `size` entries of its log, or can't be judged, or the time is up. */
  session(patience: Patience, log: number, session: string, size: number): Promise<void> {
    return this.#held(patience, () =>
      this.#sessions.until(
        patience,
        { log, session },
        (news) => news.reconciled >= size && (news.isHeld || isSettled(news)),
      ),
    );
  }

  /** Until the job is over in whatever way, or the time is up. */
  job(patience: Patience, id: string): Promise<void> {
    return this.#held(patience, () =>
      this.#jobs.until(patience, id, (state) => state !== 'queued' && state !== 'running'),
    );
  }

  /** Everybody is told to ask another process. */
  close(): void {
    this.#sessions.close();
    this.#jobs.close();
  }

  async #held({ holder }: Patience, wait: () => Promise<void>): Promise<void> {
    if (!this.#shares.take(holder, 1)) {
      throw new ProblemError('overloaded', 'More requests wait already than this service keeps waiting.', {
        retryAfter: 5,
      });
    }
    try {
      await wait();
    } finally {
      this.#shares.give(holder, 1);
    }
  }
}

/** It has a receipt that is not `open`, and nothing that came since waits to be looked at. */
export function isSettled({
  hasReceipt,
  disposition,
  isDirty,
}: Pick<SessionProgress, 'hasReceipt' | 'disposition' | 'isDirty'>): boolean {
  return hasReceipt && disposition !== null && disposition !== 'open' && !isDirty;
}

/** Aborted when the connection that the answer is to go to is closed before it. */
export function goneSignal({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  raw.once('close', () => gone.abort());
  return gone.signal;
}

/** Looks for all that is waited for, at intervals. */
class Watch<Key, News> {
  readonly #nameOf: (key: Key) => string;
  readonly #look: (keys: readonly Key[]) => Promise<ReadonlyMap<string, News>>;
  readonly #waiters = new Set<Waiter<Key, News>>();
  #timer: NodeJS.Timeout | undefined;
  #isLooking = false;
  #isClosed = false;

  constructor(
    nameOf: (key: Key) => string,
    look: (keys: readonly Key[]) => Promise<ReadonlyMap<string, News>>,
  ) {
    this.#nameOf = nameOf;
    this.#look = look;
  }

  until({ seconds, gone }: Patience, key: Key, isOver: (news: News) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) return reject(goingDown());
      if (gone.aborted) return reject(nobody());
      const leave = () => waiter.settle(nobody());
      const timer = setTimeout(() => waiter.settle(), seconds * 1000);
      const waiter: Waiter<Key, News> = {
        key,
        isOver,
        settle: (error) => {
          if (!this.#waiters.delete(waiter)) return;
          clearTimeout(timer);
          gone.removeEventListener('abort', leave);
          if (error === undefined) resolve();
          else reject(error);
        },
      };
      gone.addEventListener('abort', leave);
      this.#waiters.add(waiter);
      this.#schedule();
    });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const waiter of this.#waiters) waiter.settle(goingDown());
  }

  #schedule(): void {
    if (this.#isLooking || this.#isClosed || this.#waiters.size === 0) return;
    this.#isLooking = true;
    this.#timer = setTimeout(() => void this.#tick(), EVERY_MS);
  }

  async #tick(): Promise<void> {
    try {
      const keys = new Map([...this.#waiters].map(({ key }) => [this.#nameOf(key), key]));
      if (keys.size > 0) {
        const found = await this.#look([...keys.values()]);
        for (const waiter of this.#waiters) {
          const news = found.get(this.#nameOf(waiter.key));
          if (news !== undefined && waiter.isOver(news)) waiter.settle();
        }
      }
    } catch {
      // A database that is away may be back at the next look; who waits for it too long looks once more himself.
    } finally {
      this.#isLooking = false;
      this.#schedule();
    }
  }
}

function goingDown(): ProblemError {
  return new ProblemError('shutting_down', 'This process is going down; another one will answer.', {
    retryAfter: 1,
  });
}

/** Reaches no one. */
function nobody(): ProblemError {
  return new ProblemError('request_timeout', 'The client has gone.');
}
