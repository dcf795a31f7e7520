import type { LogRecord } from '@belay/log';
import { type Kysely, sql } from 'kysely';
import type { Schema } from './schema.js';

export type JobKind = 'export' | 'period';
export type JobState = 'queued' | 'running' | 'done' | 'failed' | 'cancelled';

/** Work that somebody asked for and the worker does. */
export interface JobRow {
  readonly id: string;
  readonly spec: unknown;
  readonly state: JobState;
  readonly phase: string | null;
  readonly done: number;
  readonly total: number | null;
  readonly error: string | null;
  /** Name of an export's file in the export directory. */
  readonly file: string | null;
  readonly bytes: number | null;
  readonly sha256: Buffer | null;
  /** Of a period. */
  readonly receipt: string | null;
  readonly by: string;
  /** Nobody wants it any more: a worker that runs it stops, and what it made is removed. */
  readonly cancel: boolean;
  readonly created: Date;
  readonly finished: Date | null;
}

export interface NewJob {
  readonly id: string;
  readonly kind: JobKind;
  readonly spec: object;
  readonly by: string;
}

export interface WebhookRow {
  readonly id: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly by: string;
  readonly created: Date;
}

export interface DeliveryRow {
  readonly id: string;
  readonly event: string;
  readonly body: string;
  readonly attempts: number;
  readonly due: Date | null;
  readonly status: number | null;
  readonly error: string | null;
  readonly created: Date;
  readonly delivered: Date | null;
}

interface Page {
  /** Identifier of the last row on the page before: the newest come first. */
  readonly before?: string | undefined;
  readonly limit: number;
}

const JOB = [
  'id',
  'spec',
  'state',
  'phase',
  'done',
  'total',
  'error',
  'file',
  'bytes',
  'sha256',
  'receipt',
  'by',
  'cancel',
  'created',
  'finished',
] as const;

/** First half of an advisory lock; the second is the log. No two requests count a project's rows at once. */
const COUNTING = 0x62_65_6c_62;

/**
 * What people ask for: exports, receipts of periods, webhooks. The gateway writes what is asked, the worker what comes
 * of it. Every query is of one log, which the caller may see.
 */
export class RequestStore {
  readonly #db: Kysely<Schema>;

  constructor(db: Kysely<Schema>) {
    this.#db = db;
  }

  /**
   * Stores a job, unless its log has `open` of the kind that are not over, or `kept` in all; then says which. Counting
   * and storing are one step.
   */
  addJob(
    log: LogRecord,
    job: NewJob,
    most: { readonly open: number; readonly kept?: number | undefined },
  ): Promise<'added' | 'open' | 'kept'> {
    return this.#counting(log, async (tx) => {
      const counts = await tx
        .selectFrom('jobs')
        .select(({ fn }) => [
          fn.countAll<number>().as('kept'),
          fn.countAll<number>().filterWhere('state', 'in', ['queued', 'running']).as('open'),
        ])
        .where('log', '=', log.log)
        .where('kind', '=', job.kind)
        .executeTakeFirstOrThrow();
      if (counts.open >= most.open) return 'open';
      if (counts.kept >= (most.kept ?? Number.POSITIVE_INFINITY)) return 'kept';
      await tx
        .insertInto('jobs')
        .values({ ...job, log: log.log, spec: JSON.stringify(job.spec) })
        .execute();
      return 'added';
    });
  }

  job(log: LogRecord, kind: JobKind, id: string): Promise<JobRow | undefined> {
    return this.#db
      .selectFrom('jobs')
      .select(JOB)
      .where('id', '=', id)
      .where('log', '=', log.log)
      .where('kind', '=', kind)
      .executeTakeFirst();
  }

  jobs(log: LogRecord, kind: JobKind, { before, limit }: Page): Promise<JobRow[]> {
    let query = this.#db
      .selectFrom('jobs')
      .select(JOB)
      .where('log', '=', log.log)
      .where('kind', '=', kind)
      .orderBy('id', 'desc')
      .limit(limit);
    if (before !== undefined) query = query.where('id', '<', before);
    return query.execute();
  }

  /** The newest job with this very spec that is not over, or was done at or after `since`. */
  jobLike(log: LogRecord, kind: JobKind, spec: object, since: Date): Promise<JobRow | undefined> {
    return this.#db
      .selectFrom('jobs')
      .select(JOB)
      .where('log', '=', log.log)
      .where('kind', '=', kind)
      .where('cancel', '=', false)
      .where(sql<boolean>`spec = ${JSON.stringify(spec)}::jsonb`)
      .where(sql<boolean>`(state in ('queued', 'running') or state = 'done' and finished >= ${since})`)
      .orderBy('id', 'desc')
      .limit(1)
      .executeTakeFirst();
  }

  /** What has become of each of these jobs, of any logs, in one query. */
  progress(ids: readonly string[]): Promise<{ id: string; state: JobState }[]> {
    return this.#db
      .selectFrom('jobs')
      .select(['id', 'state'])
      .where('id', 'in', [...ids])
      .execute();
  }

  /** Says that nobody wants it any more. False when there is none. */
  async cancelJob(log: LogRecord, kind: JobKind, id: string): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('jobs')
      .set({ cancel: true })
      .where('id', '=', id)
      .where('log', '=', log.log)
      .where('kind', '=', kind)
      .executeTakeFirst();
    return numUpdatedRows === 1n;
  }

  /** False when the log has `most` already. The secret can't be read again with the gateway's role. */
  addWebhook(
    log: LogRecord,
    webhook: {
      readonly id: string;
      readonly url: string;
      readonly events: readonly string[];
      readonly secret: Buffer;
      readonly by: string;
      readonly created: Date;
    },
    most: number,
  ): Promise<boolean> {
    return this.#counting(log, async (tx) => {
      const { kept } = await tx
        .selectFrom('webhooks')
        .select(({ fn }) => fn.countAll<number>().as('kept'))
        .where('log', '=', log.log)
        .where('removed', 'is', null)
        .executeTakeFirstOrThrow();
      if (kept >= most) return false;
      await tx
        .insertInto('webhooks')
        .values({ ...webhook, log: log.log, events: [...webhook.events] })
        .execute();
      return true;
    });
  }

  webhooks(log: LogRecord, { before, limit }: Page): Promise<WebhookRow[]> {
    let query = this.#db
      .selectFrom('webhooks')
      .select(['id', 'url', 'events', 'by', 'created'])
      .where('log', '=', log.log)
      .where('removed', 'is', null)
      .orderBy('id', 'desc')
      .limit(limit);
    if (before !== undefined) query = query.where('id', '<', before);
    return query.execute();
  }

  async removeWebhook(log: LogRecord, id: string, now: Date): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('webhooks')
      .set({ removed: now })
      .where('id', '=', id)
      .where('log', '=', log.log)
      .where('removed', 'is', null)
      .executeTakeFirst();
    return numUpdatedRows === 1n;
  }

  /** Undefined when there is no such webhook; a removed one's deliveries are gone from view with it. */
  async deliveries(log: LogRecord, id: string, { before, limit }: Page): Promise<DeliveryRow[] | undefined> {
    const webhook = await this.#db
      .selectFrom('webhooks')
      .select('id')
      .where('id', '=', id)
      .where('log', '=', log.log)
      .where('removed', 'is', null)
      .executeTakeFirst();
    if (!webhook) return undefined;
    let query = this.#db
      .selectFrom('deliveries')
      .select(['id', 'event', 'body', 'attempts', 'due', 'status', 'error', 'created', 'delivered'])
      .where('webhook', '=', id)
      .orderBy('id', 'desc')
      .limit(limit);
    if (before !== undefined) query = query.where('id', '<', before);
    return query.execute();
  }

  #counting<T>(log: LogRecord, work: (tx: Kysely<Schema>) => Promise<T>): Promise<T> {
    return this.#db.transaction().execute(async (tx) => {
      await sql`select pg_advisory_xact_lock(${COUNTING}::int, hashint8(${log.log}::bigint))`.execute(tx);
      return work(tx);
    });
  }
}
