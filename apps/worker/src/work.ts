import type { AccountStore, Job, JobEnd, JobProgress } from '@belay/db';
import type { Logger } from 'pino';

/** How long a job is held without being renewed; of a worker that died another one has it then. */
const LEASE_MS = 20_000;
/** How often a lease is renewed, progress written, and looked whether somebody cancelled. */
const BEAT_MS = 500;

/** The job is to end: nobody wants it any more, somebody else has it, or this worker leaves. */
class Stopped extends Error {
  readonly why: 'cancelled' | 'lost' | 'leaving';

  constructor(why: Stopped['why']) {
    super(`the job was ${why === 'leaving' ? 'given back' : why}`);
    this.name = 'Stopped';
    this.why = why;
  }
}

/** What can't come to anything, in words for who asked for it. */
export class JobFailure extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'JobFailure';
  }
}

/** Does the work of one kind of job. Rejects with `signal`'s reason once that is aborted. */
export type Working = (
  job: Job,
  progress: (progress: JobProgress) => void,
  signal: AbortSignal,
) => Promise<Exclude<JobEnd, { readonly state: 'failed' | 'cancelled' }>>;

export interface WorkParts {
  readonly store: AccountStore;
  /** What each kind is done by; a kind that is not here is left to other workers. */
  readonly kinds: Partial<Readonly<Record<Job['kind'], Working>>>;
  /** Cleans up behind jobs that are over. */
  readonly tidy: () => Promise<void>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
}

/** How long between two rounds of cleaning up, milliseconds. */
const TIDY_MS = 1_000;

/** Does what somebody asked for, one job of each kind at a time. */
export class Work {
  readonly #parts: WorkParts;
  readonly #running = new Map<
    Job['kind'],
    { readonly done: Promise<void>; readonly control: AbortController }
  >();
  #tidied = 0;
  #leaving = false;

  constructor(parts: WorkParts) {
    this.#parts = parts;
  }

  /** Begins what waits, as far as there is room; nothing is waited for. */
  async sweep(): Promise<void> {
    const { store, kinds, now, tidy } = this.#parts;
    await store.jobs.cancelIdle(new Date(now()));
    await store.jobs.giveUp(new Date(now()));
    if (now() - this.#tidied >= TIDY_MS) {
      this.#tidied = now();
      await tidy();
    }
    for (const [kind, working] of Object.entries(kinds) as [Job['kind'], Working][]) {
      if (this.#running.has(kind) || this.#leaving) continue;
      const held = new Date(now() + LEASE_MS);
      const job = await store.jobs.claim(kind, new Date(now()), held);
      if (job === undefined) continue;
      const control = new AbortController();
      const done = this.#run(job, held, working, control)
        .catch((error: unknown) => this.#parts.log.error({ err: error, job: job.id }, 'a job was left'))
        .finally(() => this.#running.delete(kind));
      this.#running.set(kind, { done, control });
    }
  }

  /** Gives back what is under way. */
  async stop(): Promise<void> {
    this.#leaving = true;
    for (const { control } of this.#running.values()) control.abort(new Stopped('leaving'));
    await Promise.all([...this.#running.values()].map(({ done }) => done));
  }

  async #run(job: Job, held: Date, working: Working, control: AbortController): Promise<void> {
    const { store, now, log } = this.#parts;
    let progress: JobProgress = { phase: 'begun', done: 0 };
    let beating: Promise<void> | undefined;
    const beat = async (): Promise<void> => {
      const lease = new Date(Math.max(now() + LEASE_MS, held.getTime() + 1));
      const answer = await store.jobs.beat(job.id, held, lease, progress);
      if (answer === 'lost') control.abort(new Stopped('lost'));
      else held = lease;
      if (answer === 'cancel') control.abort(new Stopped('cancelled'));
    };
    // A beat that fails is tried again: the lease lasts for many.
    const timer = setInterval(() => {
      beating ??= beat()
        .catch((error: unknown) => log.warn({ err: error, job: job.id }, 'a lease could not be renewed'))
        .finally(() => (beating = undefined));
    }, BEAT_MS);
    let end: JobEnd | undefined;
    try {
      end = await working(job, (now) => (progress = now), control.signal);
    } catch (error) {
      end = this.#ended(job, error, control.signal);
    } finally {
      clearInterval(timer);
      await beating;
    }
    if (end === undefined) await store.jobs.release(job.id, held);
    else await store.jobs.end(job.id, held, new Date(now()), end);
    log.info({ job: job.id, kind: job.kind, state: end?.state ?? 'given back' }, 'a job ended');
  }

  /** Undefined when it is not over. */
  #ended({ id, kind }: Job, error: unknown, { reason }: AbortSignal): JobEnd | undefined {
    if (reason instanceof Stopped) return reason.why === 'cancelled' ? { state: 'cancelled' } : undefined;
    if (error instanceof JobFailure) {
      this.#parts.log.warn({ job: id, kind, reason: error.message }, 'a job failed');
      return { state: 'failed', error: error.message };
    }
    this.#parts.log.error({ err: error, job: id, kind }, 'a job failed');
    // What went wrong inside is for the log of the service only.
    return { state: 'failed', error: 'it could not be made: the log of the service says why' };
  }
}
