import {
  type ChainState,
  type EpochState,
  type KeptStates,
  type LogState,
  SessionCoverage,
  type SessionState,
  SinkChain,
} from '@belay/coverage';
import type { LogRecord } from '@belay/log';
import { type Kysely, type RawBuilder, type Selectable, sql, type Transaction } from 'kysely';
import type { AccountState, SessionHeld } from './account-store.js';
import type { Schema } from './schema.js';

/** A session as the last look at it left it. */
export interface SessionRow {
  readonly session: string;
  readonly began: Date;
  readonly beganIndex: number;
  readonly last: Date;
  readonly lastIndex: number;
  readonly coverage: string | null;
  readonly disposition: string | null;
  readonly closed: boolean;
  /** `{calls, verdicts, kinds, levels}` as the worker wrote it; null before the first look. */
  readonly summary: unknown;
  /** Something came since. */
  readonly isDirty: boolean;
  /** Why it could not be judged when that was tried last. */
  readonly held: SessionHeld | null;
  /** SHA-256 of the coverage statement that the log names last. */
  readonly statement: Buffer | null;
  /** The last receipt. */
  readonly receipt: { readonly id: string; readonly digest: Buffer; readonly asOf: number } | null;
}

/** What somebody who waits for a session waits for. */
export interface SessionProgress {
  readonly log: number;
  readonly session: string;
  /** Entries of the log that were reconciled. */
  readonly reconciled: number;
  readonly disposition: string | null;
  readonly hasReceipt: boolean;
  readonly isDirty: boolean;
  /** It could not be judged when that was tried last. */
  readonly isHeld: boolean;
}

export interface SessionReceipt {
  readonly id: string;
  readonly digest: Buffer;
  readonly asOf: number;
  readonly index: number;
  readonly created: Date;
  readonly disposition: string | null;
}

/** Which states a statement needs. */
export type CoverageQuestion =
  | { readonly of: 'epoch'; readonly sink: string; readonly epoch: string }
  | { readonly of: 'sink'; readonly sink: string }
  /** The sinks that spoke, by name. */
  | { readonly of: 'sinks'; readonly after: string; readonly limit: number }
  | { readonly of: 'session'; readonly session: string };

/** Stored states, all as of one moment, from which a LogCoverage makes its statements. */
export interface KeptCoverage {
  readonly state: LogState;
  readonly kept: KeptStates;
  /** Names of the sinks that were found, in order. */
  readonly sinks: readonly string[];
  /** Whether what was asked about is known. */
  readonly isKnown: boolean;
}

/** More states than one answer is made from. */
export class TooManyStates extends Error {
  constructor() {
    super('more states than one answer is made from');
    this.name = 'TooManyStates';
  }
}

/** Of one answer: states, and bytes of their JSON. */
const MAX_STATES = 5_000;
const MAX_STATE_BYTES = 8 * 1024 * 1024;

/**
 * What the worker made of the entries, as the gateway reads it: sessions, coverage, statements, receipts of sessions and
 * periods, labels, policies. Every query is of one log, which the caller may see.
 */
export class SessionReader {
  readonly #db: Kysely<Schema>;

  constructor(db: Kysely<Schema>) {
    this.#db = db;
  }

  /** Entries [0, n) of a log that were reconciled. */
  async reconciled(log: LogRecord): Promise<number> {
    const row = await this.#db
      .selectFrom('reconciled')
      .select('through')
      .where('log', '=', log.log)
      .executeTakeFirst();
    return row?.through ?? 0;
  }

  /** The newest first. `before` is the index of the first entry of the last session on the page before. */
  async sessions(
    log: LogRecord,
    filter: {
      readonly disposition?: string | undefined;
      readonly from?: Date | undefined;
      readonly to?: Date | undefined;
      readonly before?: number | undefined;
      readonly limit: number;
    },
  ): Promise<SessionRow[]> {
    let query = this.#listed(log).orderBy('s.began_index', 'desc').limit(filter.limit);
    if (filter.disposition !== undefined) query = query.where('s.disposition', '=', filter.disposition);
    if (filter.from !== undefined) query = query.where('s.began', '>=', filter.from);
    if (filter.to !== undefined) query = query.where('s.began', '<', filter.to);
    if (filter.before !== undefined) query = query.where('s.began_index', '<', filter.before);
    return (await query.execute()).map(toSession);
  }

  async session(log: LogRecord, session: string): Promise<SessionRow | undefined> {
    const row = await this.#listed(log).where('s.session', '=', session).executeTakeFirst();
    return row && toSession(row);
  }

  /** Those of these names that reconciled entries have. */
  async known(log: LogRecord, names: readonly string[]): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('sessions')
      .select('session')
      .where('log', '=', log.log)
      .where(sql<boolean>`session = any(${names}::text[])`)
      .execute();
    return rows.map(({ session }) => session);
  }

  /** How many sessions are known that began in a period, or in all. */
  async count(log: LogRecord, period?: { readonly from: string; readonly to: string }): Promise<number> {
    let query = this.#db
      .selectFrom('sessions')
      .select(({ fn }) => fn.countAll<number>().as('count'))
      .where('log', '=', log.log);
    if (period !== undefined) {
      query = query.where('began', '>=', new Date(period.from)).where('began', '<', new Date(period.to));
    }
    return (await query.executeTakeFirstOrThrow()).count;
  }

  /** Where each of these sessions stands, of any logs, in one query; those of unknown ones too. */
  async progress(
    asked: readonly { readonly log: number; readonly session: string }[],
  ): Promise<SessionProgress[]> {
    const { rows } = await sql<SessionProgress>`
      select w.log, w.session, coalesce(r.through, 0) as reconciled, s.disposition,
        s.receipt is not null as "hasReceipt", s.dirty is not null as "isDirty",
        s.held is not null as "isHeld"
      from unnest(${asked.map(({ log }) => log)}::bigint[], ${asked.map(({ session }) => session)}::text[])
        as w(log, session)
      left join reconciled r on r.log = w.log
      left join sessions s on s.log = w.log and s.session = w.session`.execute(this.#db);
    return rows;
  }

  /** Receipts of a scope, the last first. Each superseded the one behind it. */
  receipts(log: LogRecord, scope: string, limit: number): Promise<SessionReceipt[]> {
    return this.#db
      .selectFrom('receipts')
      .select(['id', 'digest', 'as_of as asOf', 'index', 'created', 'disposition'])
      .where('log', '=', log.log)
      .where('scope', '=', scope)
      .orderBy('as_of', 'desc')
      .limit(limit)
      .execute();
  }

  /** The last receipt of a scope, with its bytes. */
  lastReceipt(log: LogRecord, scope: string): Promise<{ id: string; bytes: string } | undefined> {
    return this.#db
      .selectFrom('receipts')
      .select(['id', 'bytes'])
      .where('log', '=', log.log)
      .where('scope', '=', scope)
      .orderBy('as_of', 'desc')
      .limit(1)
      .executeTakeFirst();
  }

  /** Body of a coverage statement that this log names; `digest` is its SHA-256. */
  async statement(log: LogRecord, digest: Buffer): Promise<Buffer | undefined> {
    const row = await this.#db
      .selectFrom('statements')
      .select('bytes')
      .where('log', '=', log.log)
      .where('digest', '=', digest)
      .executeTakeFirst();
    return row?.bytes;
  }

  /** The last policy that was set before the entry at `before`, or of all. */
  policy(log: LogRecord, before?: number): Promise<{ index: number; policy: unknown } | undefined> {
    let query = this.#db
      .selectFrom('policies')
      .select(['index', 'policy'])
      .where('log', '=', log.log)
      .orderBy('index', 'desc')
      .limit(1);
    if (before !== undefined) query = query.where('index', '<', before);
    return query.executeTakeFirst();
  }

  /** In the log's order. */
  labels(
    log: LogRecord,
    page: {
      readonly session?: string | undefined;
      readonly after?: number | undefined;
      readonly limit: number;
    },
  ) {
    let query = this.#db
      .selectFrom('labels')
      .select(['index', 'session', 'call', 'says', 'auditor'])
      .where('log', '=', log.log)
      .where('index', '>', page.after ?? -1)
      .orderBy('index')
      .limit(page.limit);
    if (page.session !== undefined) query = query.where('session', '=', page.session);
    return query.execute();
  }

  /** Entries that name a session among the reconciled ones, at or after `from`: [first, last] of each run, ascending. */
  sessionRuns(
    log: LogRecord,
    session: string,
    page: { readonly from: number; readonly limit: number },
  ): Promise<{ first: number; last: number }[]> {
    return this.#db
      .selectFrom('session_runs')
      .select(['first', 'last'])
      .where('log', '=', log.log)
      .where('session', '=', session)
      .where('last', '>=', page.from)
      .where(
        'first',
        '>=',
        sql<number>`coalesce((select max(first) from session_runs
          where log = ${log.log} and session = ${session} and first <= ${page.from}), 0)`,
      )
      .orderBy('first')
      .limit(page.limit)
      .execute();
  }

  /** Entries that name a session among the reconciled ones. */
  async sessionEntries(log: LogRecord, session: string): Promise<number> {
    const { rows } = await sql<{ entries: number }>`
      select coalesce(sum(last - first + 1), 0)::bigint as entries from session_runs
      where log = ${log.log} and session = ${session}`.execute(this.#db);
    return rows[0]?.entries ?? 0;
  }

  /**
   * The states that an answer about coverage needs, all of one moment; undefined for a log of which nothing was
   * reconciled yet. Throws TooManyStates before they are read.
   */
  coverage(log: LogRecord, question: CoverageQuestion): Promise<KeptCoverage | undefined> {
    return this.#db
      .transaction()
      .setIsolationLevel('repeatable read')
      .setAccessMode('read only')
      .execute(async (tx) => {
        const row = await tx
          .selectFrom('reconciled')
          .select(['through', 'state'])
          .where('log', '=', log.log)
          .executeTakeFirst();
        const whole = row?.state as AccountState | null | undefined;
        if (!row || !whole) return undefined;
        // The log's own state is written when it changes, and is right until then.
        const state = { ...whole.coverage, size: row.through };
        const states = new BoundedStates(tx, log);
        const session = question.of === 'session' ? await sessionState(states, question.session) : undefined;
        const chains = await chainStates(states, question, session);
        const epochs = await epochStates(states, question, chains, session);
        return {
          state,
          kept: {
            epoch: (sink, epoch) => epochs.get(`${sink} ${epoch}`),
            chain: (sink) => chains.get(sink),
            session: (name) => (session?.session === name ? session : undefined),
          },
          sinks: [...chains.keys()],
          isKnown:
            question.of === 'session'
              ? session !== undefined
              : question.of === 'epoch'
                ? epochs.size > 0
                : question.of === 'sinks' || chains.size > 0,
        };
      });
  }

  #listed(log: LogRecord) {
    return this.#db
      .selectFrom('sessions as s')
      .leftJoin('receipts as r', 'r.id', 's.receipt')
      .select([
        's.session',
        's.began',
        's.began_index',
        's.last',
        's.last_index',
        's.coverage',
        's.disposition',
        's.closed',
        's.summary',
        's.dirty',
        's.receipt',
        's.stated_digest',
        's.held',
        'r.digest',
        'r.as_of',
      ])
      .where('s.log', '=', log.log);
  }
}

type Listed = Pick<
  Selectable<Schema['sessions']>,
  | 'session'
  | 'began'
  | 'began_index'
  | 'last'
  | 'last_index'
  | 'coverage'
  | 'disposition'
  | 'closed'
  | 'summary'
  | 'dirty'
  | 'receipt'
  | 'stated_digest'
  | 'held'
> & { digest: Buffer | null; as_of: number | null };

function toSession(row: Listed): SessionRow {
  const { began_index, last_index, dirty, receipt, stated_digest, held, digest, as_of, ...rest } = row;
  return {
    ...rest,
    beganIndex: began_index,
    lastIndex: last_index,
    isDirty: dirty !== null,
    held: held as SessionHeld | null,
    statement: stated_digest,
    receipt:
      receipt === null || digest === null || as_of === null ? null : { id: receipt, digest, asOf: as_of },
  };
}

/** Reads states, and counts them before: throws TooManyStates at more than one answer is made from. */
class BoundedStates {
  readonly #tx: Transaction<Schema>;
  readonly #log: LogRecord;
  #count = 0;
  #bytes = 0;

  constructor(tx: Transaction<Schema>, log: LogRecord) {
    this.#tx = tx;
    this.#log = log;
  }

  async read<Row>(
    table: 'sessions' | 'sink_states' | 'epoch_states',
    columns: readonly string[],
    where: RawBuilder<unknown>,
  ): Promise<Row[]> {
    const from = sql`from ${sql.table(table)} where log = ${this.#log.log} and ${where}`;
    const { rows: sums } = await sql<{ count: number; bytes: number }>`
      select count(*) as count, coalesce(sum(octet_length(state)), 0)::bigint as bytes
      from (select state::text as state ${from}) as counted`.execute(this.#tx);
    this.#count += sums[0]?.count ?? 0;
    this.#bytes += sums[0]?.bytes ?? 0;
    if (this.#count > MAX_STATES || this.#bytes > MAX_STATE_BYTES) throw new TooManyStates();
    const { rows } = await sql<Row>`select ${sql.join(columns.map((name) => sql.ref(name)))} ${from}`.execute(
      this.#tx,
    );
    return rows;
  }
}

async function sessionState(states: BoundedStates, session: string): Promise<SessionState | undefined> {
  const [row] = await states.read<{ state: SessionState }>('sessions', ['state'], sql`session = ${session}`);
  return row?.state;
}

async function chainStates(
  states: BoundedStates,
  question: CoverageQuestion,
  session: SessionState | undefined,
): Promise<Map<string, ChainState>> {
  const where =
    question.of === 'sinks'
      ? sql`sink > ${question.after} order by sink limit ${question.limit}`
      : question.of === 'session'
        ? sql`sink = any(${[...new Set(session?.extents.map(({ sink }) => sink))]}::text[])`
        : sql`sink = ${question.sink}`;
  const rows = await states.read<{ sink: string; state: ChainState }>(
    'sink_states',
    ['sink', 'state'],
    where,
  );
  return new Map(rows.map(({ sink, state }) => [sink, state]));
}

async function epochStates(
  states: BoundedStates,
  question: CoverageQuestion,
  chains: ReadonlyMap<string, ChainState>,
  session: SessionState | undefined,
): Promise<Map<string, EpochState>> {
  const needed = session === undefined ? [] : [...session.extents, ...besideOf(session, chains)];
  const where =
    question.of === 'epoch'
      ? sql`sink = ${question.sink} and epoch = ${question.epoch}`
      : question.of === 'session'
        ? sql`(sink, epoch) in (select * from unnest(
            ${needed.map(({ sink }) => sink)}::text[], ${needed.map(({ epoch }) => epoch)}::text[]))`
        : sql`sink = any(${[...chains.keys()]}::text[])`;
  const rows = await states.read<{ sink: string; epoch: string; state: EpochState }>(
    'epoch_states',
    ['sink', 'epoch', 'state'],
    where,
  );
  return new Map(rows.map(({ sink, epoch, state }) => [`${sink} ${epoch}`, state]));
}

/** The epochs beside a session's own. */
function besideOf(
  session: SessionState,
  chains: ReadonlyMap<string, ChainState>,
): { readonly sink: string; readonly epoch: string }[] {
  return [...new SessionCoverage(session).ends()].flatMap(([sink, ends]) => {
    const chain = chains.get(sink);
    if (chain === undefined) return [];
    return new SinkChain(chain).beside(ends).epochs.map((epoch) => ({ sink, epoch }));
  });
}
