import type { ChainState, EpochState, LogState, SessionState } from '@belay/coverage';
import type { Entry } from '@belay/envelope';
import type { LogRecord } from '@belay/log';
import type pg from 'pg';
import { type Connection, openPool, type PoolOptions } from './connection.js';
import { DeliveryStore } from './delivery-store.js';
import { ExportReader } from './export-reader.js';
import { JobStore } from './job-store.js';
import { type RawEntry, type ReadEntry, StoredEntries } from './stored-entries.js';

/** First key of the advisory locks of turns; the second is the log. */
const TURNS = 0x62_65_6c_61;
/** End of the lines of a session that is not closed in its epoch. */
export const OPEN_END = Number.MAX_SAFE_INTEGER;
/** Rows of one answer when many are read. */
const PAGE = 1_000;
/** Connections that entries are read on. */
const READS = 3;

/** How far a log was reconciled. */
export interface Cursor {
  readonly through: number;
  readonly fence: number;
  /** Undefined for a log that was never looked at, or whose state is damaged. */
  readonly state: AccountState | undefined;
}

/** What is kept of a log as a whole. */
export interface AccountState {
  readonly v: 1;
  readonly coverage: LogState;
  /** Indexes of the collector's entries that say who may say what, and of labels: they are read again. */
  readonly standing: readonly number[];
}

export interface KeptEpoch {
  readonly sink: string;
  readonly epoch: string;
  readonly state: EpochState;
  readonly stated: string | null;
  readonly due: Date | null;
}

/** A stored session as an evaluation starts from it. */
export interface AccountSession {
  readonly session: string;
  readonly state: SessionState;
  readonly began: Date;
  readonly beganIndex: number;
  readonly lastIndex: number;
  readonly coverage: string | null;
  readonly disposition: string | null;
  readonly closed: boolean;
  readonly receipt: string | null;
  readonly statedIndex: number | null;
  readonly statedDigest: Buffer | null;
  readonly dirty: Date | null;
  readonly due: Date | null;
  readonly heard: boolean;
}

/** Everything that one batch of entries changes. Times are ISO 8601. */
export interface BatchWrite {
  readonly through: number;
  /** Absent: unchanged. */
  readonly state?: AccountState | undefined;
  readonly epochs: readonly {
    readonly sink: string;
    readonly epoch: string;
    readonly state: EpochState;
    readonly due: string | null;
    /** Something waits to be stated: an earlier time that was set stays. */
    readonly waits: boolean;
  }[];
  readonly chains: readonly { readonly sink: string; readonly state: ChainState }[];
  readonly sessions: readonly {
    readonly session: string;
    readonly state: SessionState;
    /** First entry of the batch that names it; of a session that is known it changes nothing. */
    readonly began: string;
    readonly began_index: number;
    readonly last: string;
    readonly last_index: number;
    /** When to look at it without waiting for quiet. */
    readonly due: string | null;
    /** Whether a verdict on it came. */
    readonly heard: boolean;
  }[];
  readonly extents: readonly {
    readonly sink: string;
    readonly epoch: string;
    readonly session: string;
    readonly first: number;
    readonly last: number;
  }[];
  /** Where entries name a session; `more` goes on from the last run that is stored. */
  readonly runs: readonly {
    readonly session: string;
    readonly first: number;
    readonly last: number;
    readonly more: boolean;
  }[];
  readonly concerned: readonly Concerned[];
  /** Every epoch that is not over is looked at again: a policy came. */
  readonly allEpochs: boolean;
  /** Sessions of which only second stories came are looked at again: they go by the last policy and declarations. */
  readonly unbegun: boolean;
  /** Sessions of which a label came. */
  readonly labelled: readonly string[];
  /** Statements that the collector wrote down, by their entries. */
  readonly stated: readonly (
    | { readonly session: string; readonly index: number; readonly digest: string }
    | { readonly sink: string; readonly epoch: string; readonly status: string; readonly digest: string }
  )[];
}

/**
 * Sessions that a change concerns: those that have lines in the epoch (absent: in any epoch of the sink), end after
 * `after` and at or before `upto`, and begin before `before`; numbers of lines as in `extents`.
 */
export interface Concerned {
  readonly sink: string;
  readonly epoch?: string | undefined;
  readonly after: number;
  readonly upto: number;
  readonly before: number;
}

/** Why a session could not be judged. The union is closed; `limit` is the most that can be. */
export type SessionHeld =
  | { readonly why: 'too_many_lines'; readonly lines: number; readonly limit: number }
  | {
      readonly why: 'statement_too_large' | 'receipt_too_large';
      readonly bytes: number;
      readonly limit: number;
    }
  /** For a reason that only the service's log has. */
  | { readonly why: 'failed' };

/** What an evaluation of a session came to. */
export interface SessionOutcome {
  readonly session: string;
  readonly coverage: string;
  /** Absent: it was not judged, only its coverage was looked at. */
  readonly disposition?: string | undefined;
  readonly closed: boolean;
  readonly summary?: unknown;
  readonly receipt?: string | undefined;
  /** The entry that names the statement which `receipt` was made from. It may not have been reconciled yet. */
  readonly stated?: { readonly index: number; readonly digest: string } | undefined;
  readonly due: Date | null;
  /** Epochs that do not name it, and of which what it came to was made too: what changes there concerns it. */
  readonly beside: readonly { readonly sink: string; readonly epoch: string }[];
  readonly deliveries: readonly NewDelivery[];
}

export interface NewDelivery {
  readonly id: string;
  readonly webhook: string;
  readonly event: string;
  readonly body: string;
}

/** A receipt as it is stored. */
export interface ReceiptRow {
  readonly id: string;
  readonly scope: string;
  readonly asOf: number;
  readonly digest: Buffer;
  readonly bytes: string;
  readonly index: number;
}

export interface Place {
  readonly log: LogRecord;
  readonly name: string;
}

/** Another worker took this log over, or its state was thrown away: nothing was written. */
export class Fenced extends Error {
  constructor(log: string) {
    super(`another worker has gone on with ${log}`);
    this.name = 'Fenced';
  }
}

/**
 * The worker's account of every log: how far it was reconciled, what was kept to go on from there, and what sessions
 * came to. All of it follows from the log's entries but for the times something was looked at, and is thrown away and
 * made again where it is damaged.
 *
 * One worker at a time has a log's turn. What is written is fenced beside that, so that one whose connection was lost
 * in the middle of a turn can't overwrite what its successor wrote.
 */
export class AccountStore {
  readonly deliveries: DeliveryStore;
  readonly jobs: JobStore;
  readonly exports: ExportReader;
  readonly #pool: pg.Pool;
  /** For entries. Whoever has a turn reads them beside it: from the same pool, as many turns as it has would all wait. */
  readonly #reads: pg.Pool;

  constructor(connection: Connection, options: PoolOptions = {}) {
    this.#pool = openPool(connection, options);
    this.#reads = openPool(connection, { ...options, size: READS });
    this.deliveries = new DeliveryStore(this.#pool);
    this.jobs = new JobStore(this.#pool);
    this.exports = new ExportReader(this.#pool);
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.end(), this.#reads.end()]);
  }

  /** Logs with entries that were not reconciled, or with something to look at by now; the most behind first. */
  async waiting(now: Date, limit: number): Promise<LogRecord[]> {
    const { rows } = await this.#pool.query({
      name: 'account_waiting',
      text: `select l.log, l.id, l.project, p.tenant, l.origin, l.public_key, l.x5c from (
               select h.log, h.size - coalesce(r.through, 0) as behind from heads h left join reconciled r on r.log = h.log
               where h.size > coalesce(r.through, 0)
               union all select log, 0 from sessions where due <= $1
               union all select log, 0 from sessions where dirty <= $1::timestamptz - interval '1 second'
               union all select log, 0 from epoch_states where due <= $1
             ) w join logs l on l.log = w.log join projects p on p.id = l.project
             group by l.log, p.tenant order by max(w.behind) desc, l.log limit $2`,
      values: [now, limit],
    });
    return rows.map((row) => ({
      log: row.log,
      id: row.id,
      project: row.project,
      tenant: row.tenant,
      origin: row.origin,
      publicKey: row.public_key,
      x5c: row.x5c,
    }));
  }

  /** The most entries any log is behind. */
  async behind(): Promise<number> {
    const { rows } = await this.#pool.query({
      name: 'account_behind',
      text: `select coalesce(max(h.size - coalesce(r.through, 0)), 0) as behind
             from heads h left join reconciled r on r.log = h.log`,
    });
    return (rows[0] as { behind: number }).behind;
  }

  /** Runs `work` while this worker has the log to itself; undefined when another one has it. */
  async turn<T>(log: LogRecord, work: (turn: AccountTurn) => Promise<T>): Promise<T | undefined> {
    const client = await this.#pool.connect();
    let broken = true;
    try {
      const { rows } = await client.query({
        name: 'account_lock',
        text: 'select pg_try_advisory_lock($1::int, ($2::bigint % 2147483647)::int) as mine',
        values: [TURNS, log.log],
      });
      if (!(rows[0] as { mine: boolean }).mine) {
        broken = false;
        return undefined;
      }
      const result = await work(new AccountTurn(client, log, new StoredEntries(this.#reads, log)));
      await client.query({
        name: 'account_unlock',
        text: 'select pg_advisory_unlock($1::int, ($2::bigint % 2147483647)::int)',
        values: [TURNS, log.log],
      });
      broken = false;
      return result;
    } finally {
      // A connection that is closed gives its locks back.
      client.release(broken);
    }
  }

  /**
   * Names of the sessions that began before `size` entries, in pages by the entries with which they began (receipts,
   * section 10); those of a period began in it, by the collector's clock.
   */
  async *sessionNames(
    log: LogRecord,
    size: number,
    period?: { readonly from: string; readonly to: string },
  ): AsyncGenerator<readonly string[]> {
    let after: { readonly session: string; readonly index: number } = { session: '', index: -1 };
    for (;;) {
      const { rows } = await this.#pool.query({
        name: 'account_session_names',
        text: `select session, began_index as index from sessions where log = $1
               and (began_index, session) > ($2, $3) and began_index < $4
               and ($5::timestamptz is null or began >= $5) and ($6::timestamptz is null or began < $6)
               order by began_index, session limit ${PAGE}`,
        values: [log.log, after.index, after.session, size, period?.from ?? null, period?.to ?? null],
      });
      const found = rows as { session: string; index: number }[];
      if (found.length > 0) yield found.map(({ session }) => session);
      if (found.length < PAGE) return;
      after = found.at(-1) as (typeof found)[number];
    }
  }

  /** The entries that name a session, in pages, ascending. */
  sessionEntries(log: LogRecord, session: string, size: number): AsyncGenerator<readonly ReadEntry[]> {
    return new StoredEntries(this.#reads, log).ofSession(session, size);
  }

  /** Whole entries of [from, to), bytes and all; fewer at the end of the log. */
  entries(log: LogRecord, from: number, to: number): Promise<readonly RawEntry[]> {
    return new StoredEntries(this.#reads, log).raw(from, to);
  }
}

/** A log's turn: everything on one connection, which holds the lock, but entries, which don't change. */
export class AccountTurn {
  readonly log: LogRecord;
  readonly #client: pg.PoolClient;
  readonly #entries: StoredEntries;

  constructor(client: pg.PoolClient, log: LogRecord, entries: StoredEntries) {
    this.#client = client;
    this.log = log;
    this.#entries = entries;
  }

  /** Entries in the log by now. */
  async size(): Promise<number> {
    const { rows } = await this.#client.query({
      name: 'account_head',
      text: 'select size from heads where log = $1',
      values: [this.log.log],
    });
    return (rows[0] as { size: number } | undefined)?.size ?? 0;
  }

  async cursor(): Promise<Cursor> {
    const { rows } = await this.#client.query({
      name: 'account_cursor',
      text: `with made as (
               insert into reconciled (log, through, state) values ($1, 0, 'null') on conflict do nothing returning log)
             select through, fence, state from reconciled where log = $1`,
      values: [this.log.log],
    });
    const row = rows[0] as { through: number; fence: number; state: AccountState | null } | undefined;
    if (row === undefined) return { through: 0, fence: 0, state: undefined };
    return { through: row.through, fence: row.fence, state: row.state ?? undefined };
  }

  /** Entries of [from, to), read; fewer at the end of the log. */
  parsed(from: number, to: number): Promise<Entry[]> {
    return this.#entries.parsed(from, to);
  }

  /** Bytes of entries by their indexes, which ascend. */
  entriesAt(indexes: readonly number[]): Promise<readonly RawEntry[]> {
    return this.#entries.at(indexes);
  }

  /** How many entries name a session. */
  async countEntries(session: string): Promise<number> {
    const { rows } = await this.#client.query({
      name: 'account_count_entries',
      text: `select coalesce(sum(last - first + 1), 0)::bigint as entries from session_runs
             where log = $1 and session = $2`,
      values: [this.log.log, session],
    });
    return (rows[0] as { entries: number }).entries;
  }

  /** The entries that name a session, in pages, ascending. */
  sessionEntries(session: string, size: number): AsyncGenerator<readonly ReadEntry[]> {
    return this.#entries.ofSession(session, size);
  }

  async epochs(keys: readonly { readonly sink: string; readonly epoch: string }[]): Promise<KeptEpoch[]> {
    if (keys.length === 0) return [];
    const { rows } = await this.#client.query({
      name: 'account_epochs',
      text: `select e.sink, e.epoch, e.state, e.stated_status as stated, e.due
             from unnest($2::text[], $3::text[]) as k(sink, epoch)
             join epoch_states e on e.log = $1 and e.sink = k.sink and e.epoch = k.epoch`,
      values: [this.log.log, keys.map(({ sink }) => sink), keys.map(({ epoch }) => epoch)],
    });
    return rows as KeptEpoch[];
  }

  async chains(sinks: readonly string[]): Promise<{ sink: string; state: ChainState }[]> {
    if (sinks.length === 0) return [];
    const { rows } = await this.#client.query({
      name: 'account_chains',
      text: 'select sink, state from sink_states where log = $1 and sink = any($2::text[])',
      values: [this.log.log, sinks],
    });
    return rows as { sink: string; state: ChainState }[];
  }

  async sessions(names: readonly string[]): Promise<AccountSession[]> {
    if (names.length === 0) return [];
    const { rows } = await this.#client.query({
      name: 'account_sessions',
      text: `select ${SESSION_COLUMNS} from sessions where log = $1 and session = any($2::text[])`,
      values: [this.log.log, names],
    });
    return rows as AccountSession[];
  }

  /** Sessions to look at: due, or quiet for a second, or waiting for ten. */
  async sessionsToLookAt(now: Date, limit: number): Promise<AccountSession[]> {
    const { rows } = await this.#client.query({
      name: 'account_look',
      text: `select ${SESSION_COLUMNS} from sessions where log = $1 and (due <= $2 or dirty is not null and (
               greatest(last, dirty) <= $2::timestamptz - interval '1 second'
               or dirty <= $2::timestamptz - interval '10 seconds'))
             order by coalesce(due, dirty) limit $3`,
      values: [this.log.log, now, limit],
    });
    return rows as AccountSession[];
  }

  async epochsDue(now: Date, limit: number): Promise<KeptEpoch[]> {
    const { rows } = await this.#client.query({
      name: 'account_epochs_due',
      text: `select sink, epoch, state, stated_status as stated, due from epoch_states
             where log = $1 and due <= $2 order by due limit $3`,
      values: [this.log.log, now, limit],
    });
    return rows as KeptEpoch[];
  }

  async setEpochsDue(
    fence: number,
    epochs: readonly { readonly sink: string; readonly epoch: string; readonly due: string | null }[],
  ): Promise<void> {
    await this.#fenced(fence, { next: fence }, async () => {
      await this.#json(
        `update epoch_states e set due = t.due
         from jsonb_to_recordset($2::jsonb) as t(sink text, epoch text, due timestamptz)
         where e.log = $1 and e.sink = t.sink and e.epoch = t.epoch`,
        epochs,
      );
    });
  }

  async statement(digest: Buffer): Promise<{ index: number; bytes: Buffer } | undefined> {
    const { rows } = await this.#client.query({
      name: 'account_statement',
      text: 'select index, bytes from statements where log = $1 and digest = $2',
      values: [this.log.log, digest],
    });
    return rows[0] as { index: number; bytes: Buffer } | undefined;
  }

  /** The last receipt of a scope. */
  async lastReceipt(scope: string): Promise<ReceiptRow | undefined> {
    const { rows } = await this.#client.query({
      name: 'account_last_receipt',
      text: `select id, scope, as_of as "asOf", digest, bytes, index from receipts
             where log = $1 and scope = $2 order by index desc limit 1`,
      values: [this.log.log, scope],
    });
    return rows[0] as ReceiptRow | undefined;
  }

  /** How many receipts of a scope were made since then, and when the last of them was. */
  async receiptsSince(scope: string, since: Date): Promise<{ count: number; last: Date | null }> {
    const { rows } = await this.#client.query({
      name: 'account_receipts_since',
      text: `select count(*)::int as count, max(created) as last from receipts
             where log = $1 and scope = $2 and created > $3`,
      values: [this.log.log, scope, since],
    });
    return rows[0] as { count: number; last: Date | null };
  }

  async webhooks(): Promise<{ id: string; events: string[] }[]> {
    const { rows } = await this.#client.query({
      name: 'account_webhooks',
      text: 'select id, events from webhooks where log = $1 and removed is null',
      values: [this.log.log],
    });
    return rows as { id: string; events: string[] }[];
  }

  /** Writes what a batch changed, and moves the cursor, or nothing: throws Fenced. Returns the new fence. */
  async write(fence: number, batch: BatchWrite, now: Date): Promise<number> {
    await this.#fenced(fence, { next: fence + 1, ...batch }, async () => {
      await this.#json(
        `merge into epoch_states e
         using jsonb_to_recordset($2::jsonb) as t(sink text, epoch text, state jsonb, due timestamptz, waits boolean)
         on e.log = $1 and e.sink = t.sink and e.epoch = t.epoch
         when matched then update set state = t.state, due = case when t.waits then least(e.due, t.due) else t.due end
         when not matched then insert (log, sink, epoch, state, due) values ($1, t.sink, t.epoch, t.state, t.due)`,
        batch.epochs,
      );
      await this.#json(
        `insert into sink_states (log, sink, state)
         select $1, t.sink, t.state from jsonb_to_recordset($2::jsonb) as t(sink text, state jsonb)
         on conflict (log, sink) do update set state = excluded.state`,
        batch.chains,
      );
      await this.#json(
        `insert into sessions as s (log, session, state, began, began_index, last, last_index, dirty, due, heard)
         select $1, t.session, t.state, t.began, t.began_index, t.last, t.last_index, $3, t.due, t.heard
         from jsonb_to_recordset($2::jsonb) as t(session text, state jsonb, began timestamptz, began_index bigint,
           last timestamptz, last_index bigint, due timestamptz, heard boolean)
         on conflict (log, session) do update set state = excluded.state, last = excluded.last,
           last_index = excluded.last_index,
           began = case when excluded.state->'began' = '[]' then s.began else excluded.began end,
           began_index = case when excluded.state->'began' = '[]' then s.began_index else excluded.began_index end,
           dirty = coalesce(s.dirty, excluded.dirty), due = least(s.due, excluded.due),
           heard = s.heard or excluded.heard`,
        batch.sessions,
        now,
      );
      await this.#json(
        `insert into session_epochs (log, sink, epoch, session, first, last)
         select $1, t.sink, t.epoch, t.session, t.first, t.last
         from jsonb_to_recordset($2::jsonb) as t(sink text, epoch text, session text, first bigint, last bigint)
         on conflict (log, sink, epoch, session) do update set first = excluded.first, last = excluded.last
         where (session_epochs.first, session_epochs.last) <> (excluded.first, excluded.last)`,
        batch.extents,
      );
      await this.#json(
        `with t as (select * from jsonb_to_recordset($2::jsonb) as t(session text, first bigint, last bigint, more boolean)),
           longer as (
             update session_runs r set last = t.last from t
             where t.more and r.log = $1 and r.session = t.session and r.last = t.first - 1
               and r.first = (select max(first) from session_runs where log = $1 and session = t.session))
         insert into session_runs (log, session, first, last) select $1, session, first, last from t where not more`,
        batch.runs,
      );
      // Apart, for each has an index of its own.
      for (const [concerned, epoch] of [
        [batch.concerned.filter((one) => one.epoch !== undefined), 'and x.epoch = t.epoch'],
        [batch.concerned.filter((one) => one.epoch === undefined), ''],
      ] as const) {
        await this.#json(
          // (`offset 0`: one by one, by the index, whatever the planner knows of the table.)
          `update sessions s set dirty = coalesce(s.dirty, $3), due = $3
           from (select distinct c.session from jsonb_to_recordset($2::jsonb)
                   as t(sink text, epoch text, after bigint, upto bigint, before bigint)
                 cross join lateral (
                   select x.session from session_epochs x where x.log = $1 and x.sink = t.sink ${epoch}
                     and x.last > t.after and x.last <= t.upto and x.first < t.before offset 0) c) c
           where s.log = $1 and s.session = c.session`,
          concerned,
          now,
        );
      }
      await this.#json(
        `update sessions s set dirty = coalesce(s.dirty, $3), due = $3, heard = true
         from jsonb_array_elements_text($2::jsonb) as t(session) where s.log = $1 and s.session = t.session`,
        batch.labelled,
        now,
      );
      await this.#json(
        // One that is not known yet is of a receipt that was not settled, or of none: it is looked at again.
        `update sessions s set stated_index = t.index, stated_digest = decode(t.digest, 'hex'),
           dirty = coalesce(s.dirty, $3), due = $3
         from jsonb_to_recordset($2::jsonb) as t(session text, index bigint, digest text)
         where s.log = $1 and s.session = t.session and s.stated_index is distinct from t.index`,
        batch.stated.filter((one) => 'session' in one),
        now,
      );
      await this.#json(
        `update epoch_states e set stated_status = t.status, stated_digest = decode(t.digest, 'hex')
         from jsonb_to_recordset($2::jsonb) as t(sink text, epoch text, status text, digest text)
         where e.log = $1 and e.sink = t.sink and e.epoch = t.epoch`,
        batch.stated.filter((one) => 'epoch' in one),
      );
      if (batch.allEpochs) {
        await this.#client.query('update epoch_states set due = $2 where log = $1 and due is not null', [
          this.log.log,
          now,
        ]);
      }
      if (batch.unbegun) {
        await this.#client.query(
          `update sessions set dirty = coalesce(dirty, $2), due = $2 where log = $1 and state->'began' = '[]'`,
          [this.log.log, now],
        );
      }
    });
    return fence + 1;
  }

  /** Writes what evaluations came to, with the deliveries that tell of it; a session is not dirty any more. */
  async settle(fence: number, outcomes: readonly SessionOutcome[], now: Date): Promise<void> {
    await this.#fenced(fence, { next: fence }, async () => {
      await this.#json(
        `update sessions s set coverage = t.coverage, disposition = coalesce(t.disposition, s.disposition),
           closed = t.closed, summary = coalesce(t.summary, s.summary), receipt = coalesce(t.receipt, s.receipt),
           stated_index = coalesce((t.stated->>'index')::bigint, s.stated_index),
           stated_digest = coalesce(decode(t.stated->>'digest', 'hex'), s.stated_digest),
           dirty = null, due = t.due, heard = s.heard and t.disposition is null, held = null
         from jsonb_to_recordset($2::jsonb) as t(session text, coverage text, disposition text, closed boolean,
           summary jsonb, receipt text, stated jsonb, due timestamptz)
         where s.log = $1 and s.session = t.session`,
        outcomes,
      );
      await this.#json(
        `insert into session_epochs (log, sink, epoch, session, first, last)
         select $1, t.sink, t.epoch, t.session, 1, ${OPEN_END}
         from jsonb_to_recordset($2::jsonb) as t(sink text, epoch text, session text) on conflict do nothing`,
        outcomes.flatMap(({ session, beside }) => beside.map((epoch) => ({ session, ...epoch }))),
      );
      await this.#json(
        `insert into deliveries (id, webhook, event, body, due)
         select t.id, t.webhook, t.event, t.body, $3
         from jsonb_to_recordset($2::jsonb) as t(id text, webhook text, event text, body text)
         where $1::bigint is not null on conflict do nothing`,
        outcomes.flatMap(({ deliveries }) => deliveries),
        now,
      );
    });
  }

  /** Puts off what could not be done now. Until it is done, something waits to be looked at, and these are not settled. */
  async postpone(fence: number, sessions: readonly string[], until: Date): Promise<void> {
    await this.#fenced(fence, { next: fence }, async () => {
      await this.#json(
        `update sessions s set due = $3, dirty = $3
         from jsonb_array_elements_text($2::jsonb) as t(session) where s.log = $1 and s.session = t.session`,
        sessions,
        until,
      );
    });
  }

  /** The same for a session that can't be judged, and why that is. */
  async hold(fence: number, session: string, held: SessionHeld, until: Date): Promise<void> {
    await this.#fenced(fence, { next: fence }, async () => {
      await this.#client.query({
        name: 'account_hold',
        text: 'update sessions set due = $3, dirty = $3, held = $4::jsonb where log = $1 and session = $2',
        values: [this.log.log, session, until, JSON.stringify(held)],
      });
    });
  }

  /** Throws away all that was kept of the log; the next turn begins with entry 0. */
  async forget(fence: number): Promise<void> {
    await this.#fenced(fence, { next: fence + 1 }, async () => {
      for (const table of ['epoch_states', 'sink_states', 'session_runs', 'session_epochs', 'sessions']) {
        await this.#client.query(`delete from ${table} where log = $1`, [this.log.log]);
      }
      await this.#client.query("update reconciled set through = 0, state = 'null' where log = $1", [
        this.log.log,
      ]);
    });
  }

  /**
   * With `through` it does not wait for the disk: what a batch came to is made again of the entries, if it is lost with
   * all that was written after it, by a PostgreSQL that fails. What was seen of it meanwhile is then seen again.
   */
  async #fenced(
    fence: number,
    to: { readonly next: number; readonly through?: number; readonly state?: AccountState | undefined },
    work: () => Promise<void>,
  ): Promise<void> {
    const { next, through, state } = to;
    await this.#client.query(through === undefined ? 'begin' : 'begin; set local synchronous_commit = off');
    try {
      const { rowCount } = await this.#client.query({
        name: 'account_fence',
        text: `update reconciled set fence = $3, through = coalesce($4, through), state = coalesce($5::jsonb, state)
               where log = $1 and fence = $2`,
        values: [
          this.log.log,
          fence,
          next,
          through ?? null,
          state === undefined ? null : JSON.stringify(state),
        ],
      });
      if (rowCount !== 1) throw new Fenced(this.log.origin);
      await work();
      await this.#client.query('commit');
    } catch (error) {
      // A connection that is gone can't be rolled back, and need not be.
      await this.#client.query('rollback').catch(() => undefined);
      throw error;
    }
  }

  async #json(text: string, rows: readonly unknown[], ...more: unknown[]): Promise<void> {
    if (rows.length === 0) return;
    await this.#client.query({ text, values: [this.log.log, JSON.stringify(rows), ...more] });
  }
}

const SESSION_COLUMNS = `session, state, began, began_index as "beganIndex", last_index as "lastIndex", coverage,
  disposition, closed, receipt, stated_index as "statedIndex", stated_digest as "statedDigest", dirty, due, heard`;
