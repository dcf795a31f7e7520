import type { LogRecord } from '@belay/log';
import type pg from 'pg';

/** How often a job is begun. */
const MOST_ATTEMPTS = 5;

/** Work that somebody asked for, held by this worker. */
export interface Job {
  readonly id: string;
  readonly kind: 'export' | 'period';
  readonly spec: unknown;
  readonly log: LogRecord;
  /** Name of the project. */
  readonly project: string;
}

export interface JobProgress {
  readonly phase: string;
  readonly done: number;
  readonly total?: number | undefined;
}

/** How a job ended. */
export type JobEnd =
  | { readonly state: 'done'; readonly file: string; readonly bytes: number; readonly sha256: Buffer }
  | { readonly state: 'done'; readonly receipt: string }
  | { readonly state: 'failed'; readonly error: string }
  | { readonly state: 'cancelled' };

/** A job that is over, or that nobody wants any more. */
export interface OldJob {
  readonly id: string;
  readonly state: string;
  readonly file: string | null;
}

/**
 * The jobs of all logs, as workers share them. Whoever holds a job has its lease, and nobody else writes to its row as
 * long as that is renewed; of a worker that is gone another one takes the job and begins it again.
 */
export class JobStore {
  readonly #pool: pg.Pool;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  /**
   * Takes the oldest job of a kind that nobody holds, of a log that has no other one of the kind running. That it was
   * begun is written down before it is: one that ended its worker so often is left to `giveUp`.
   */
  async claim(kind: Job['kind'], now: Date, lease: Date): Promise<Job | undefined> {
    const { rows } = await this.#pool.query({
      name: 'job_claim',
      text: `with mine as (
               select j.id from jobs j
               where j.kind = $1 and not j.cancel and j.attempts < ${MOST_ATTEMPTS} and (j.state = 'queued' or j.state = 'running' and j.lease < $2)
                 and not exists (select from jobs o where o.log = j.log and o.kind = j.kind and o.state = 'running'
                   and o.lease >= $2)
               order by j.created, j.id limit 1 for update skip locked
             ), taken as (
               update jobs j set state = 'running', lease = $3, attempts = attempts + 1, phase = null, done = 0, total = null
               from mine where j.id = mine.id returning j.id, j.kind, j.spec, j.log
             )
             select t.id as job, t.kind, t.spec, l.log, l.id, l.project, p.tenant, p.name, l.origin,
               l.public_key as "publicKey", l.x5c
             from taken t join logs l on l.log = t.log join projects p on p.id = l.project`,
      values: [kind, now, lease],
    });
    const [row] = rows;
    if (row === undefined) return undefined;
    const { job, spec, name, kind: taken, ...log } = row;
    return { id: job, kind: taken, spec, project: name, log };
  }

  /** Renews a lease and says how far the job is. What was asked of it since; `lost` when somebody else has it. */
  async beat(
    id: string,
    held: Date,
    lease: Date,
    { phase, done, total }: JobProgress,
  ): Promise<'go on' | 'cancel' | 'lost'> {
    const { rows } = await this.#pool.query({
      name: 'job_beat',
      text: `update jobs set lease = $3, phase = $4, done = $5, total = $6
             where id = $1 and state = 'running' and lease = $2 returning cancel`,
      values: [id, held, lease, phase, done, total ?? null],
    });
    const row = rows[0] as { cancel: boolean } | undefined;
    if (row === undefined) return 'lost';
    return row.cancel ? 'cancel' : 'go on';
  }

  /** Ends a job; false when somebody else has it. */
  async end(id: string, held: Date, now: Date, end: JobEnd): Promise<boolean> {
    const { rowCount } = await this.#pool.query({
      name: 'job_end',
      text: `update jobs set state = $3, finished = $4, lease = null, cancel = false, phase = null, error = $5,
               file = $6, bytes = $7, sha256 = $8, receipt = $9
             where id = $1 and state = 'running' and lease = $2`,
      values: [
        id,
        held,
        end.state,
        now,
        'error' in end ? end.error : null,
        'file' in end ? end.file : null,
        'bytes' in end ? end.bytes : null,
        'sha256' in end ? end.sha256 : null,
        'receipt' in end ? end.receipt : null,
      ],
    });
    return rowCount === 1;
  }

  /** Gives a job back that was not done with, to be begun again by anyone: that was no attempt. */
  async release(id: string, held: Date): Promise<void> {
    await this.#pool.query({
      name: 'job_release',
      text: `update jobs set state = 'queued', lease = null, attempts = attempts - 1, phase = null, done = 0, total = null
             where id = $1 and state = 'running' and lease = $2`,
      values: [id, held],
    });
  }

  /** Ends what was begun too often, each time by a worker that did not live to say what came of it. */
  async giveUp(now: Date): Promise<void> {
    await this.#pool.query({
      name: 'job_give_up',
      text: `update jobs set state = 'failed', finished = $1, lease = null, phase = null, error = $2
             where state = 'running' and lease < $1 and not cancel and attempts >= ${MOST_ATTEMPTS}`,
      values: [
        now,
        `it was begun ${MOST_ATTEMPTS} times, and each time its worker ended or was cut off before it was done`,
      ],
    });
  }

  /** Cancels what is not wanted any more and nobody works on. */
  async cancelIdle(now: Date): Promise<void> {
    await this.#pool.query({
      name: 'job_cancel_idle',
      text: `update jobs set state = 'cancelled', finished = $1, cancel = false, lease = null
             where cancel and (state = 'queued' or state = 'running' and lease < $1)`,
      values: [now],
    });
  }

  /** Jobs that are over and not wanted any more, or ended before `since`. */
  async old(since: Date): Promise<OldJob[]> {
    const { rows } = await this.#pool.query({
      name: 'job_old',
      text: `select id, state, file from jobs where state in ('done', 'failed', 'cancelled')
             and (cancel or finished < $1) limit 100`,
      values: [since],
    });
    return rows as OldJob[];
  }

  /** Which of these jobs there are, and the files of those that are done. */
  async states(ids: readonly string[]): Promise<OldJob[]> {
    const { rows } = await this.#pool.query({
      name: 'job_states',
      text: 'select id, state, file from jobs where id = any($1::text[])',
      values: [ids],
    });
    return rows as OldJob[];
  }

  async remove(id: string): Promise<void> {
    await this.#pool.query({ name: 'job_remove', text: 'delete from jobs where id = $1', values: [id] });
  }
}
