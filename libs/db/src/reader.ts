import type { EntryMaker } from '@belay/envelope';
import { entryMakerOf, type LogRecord, type Run } from '@belay/log';
import { foldNodes, hashTile, leafHash, type NodeId, TILE_WIDTH, tileOf } from '@belay/merkle';
import { type Kysely, type Selectable, sql } from 'kysely';
import { epochToUuid } from './epoch.js';
import { RequestStore } from './request-store.js';
import type { Schema } from './schema.js';
import { SessionReader } from './session-reader.js';

/** Entries that the worker did not take in yet, and that are looked at for the name of a session. */
const SCANNED_AT_ONCE = 1_000;
const MOST_SCANNED = 20_000;

/** A log and the project it belongs to. */
export interface LogRow extends LogRecord {
  readonly name: string;
  readonly public: boolean;
}

export interface CheckpointRow {
  readonly size: number;
  readonly root: Buffer;
  readonly note: string;
  readonly published: Date;
}

/**
 * Everything the gateway and the worker read, and the one row the worker writes. Needs a role that may select.
 * Callers authenticate first and pass the log they may see: every query here is of one log, or by a primary key.
 */
export class Reader {
  readonly #db: Kysely<Schema>;
  /** What the worker made of the entries. */
  readonly sessions: SessionReader;
  /** What people ask for, and what came of it. */
  readonly requests: RequestStore;

  constructor(db: Kysely<Schema>) {
    this.#db = db;
    this.sessions = new SessionReader(db);
    this.requests = new RequestStore(db);
  }

  // --- who asks ---

  async operator(id: string): Promise<{ secretHash: Buffer } | undefined> {
    const row = await this.#db
      .selectFrom('operators')
      .select('secret_hash')
      .where('id', '=', id)
      .executeTakeFirst();
    return row && { secretHash: row.secret_hash };
  }

  async adminKey(id: string): Promise<{ tenant: string; secretHash: Buffer; revoked: boolean } | undefined> {
    const row = await this.#db
      .selectFrom('admin_keys')
      .select(['tenant', 'secret_hash', 'revoked'])
      .where('id', '=', id)
      .executeTakeFirst();
    return row && { tenant: row.tenant, secretHash: row.secret_hash, revoked: row.revoked !== null };
  }

  /** A token by identifier, revoked ones included, with its log. */
  async appendToken(id: string) {
    const row = await this.#db.selectFrom('tokens').selectAll().where('id', '=', id).executeTakeFirst();
    if (!row) return undefined;
    const log = await this.#logBy('log', row.log);
    return log && { ...toToken(row), secretHash: row.secret_hash, revoked: row.revoked_index !== null, log };
  }

  async auditor(
    id: string,
  ): Promise<{ id: string; secretHash: Buffer; revoked: boolean; log: LogRow } | undefined> {
    const row = await this.#db.selectFrom('auditors').selectAll().where('id', '=', id).executeTakeFirst();
    if (!row) return undefined;
    const log = await this.#logBy('log', row.log);
    return log && { id: row.id, secretHash: row.secret_hash, revoked: row.revoked_index !== null, log };
  }

  // --- places ---

  projectLog(project: string): Promise<LogRow | undefined> {
    return this.#logBy('project', project);
  }

  /** By public identifier, `log_...`. */
  logById(id: string): Promise<LogRow | undefined> {
    return this.#logBy('id', id);
  }

  async tokens(log: LogRecord, page: { after?: string | undefined; limit: number }) {
    const rows = await this.#db
      .selectFrom('tokens')
      .selectAll()
      .where('log', '=', log.log)
      .where('id', '>', page.after ?? '')
      .orderBy('id')
      .limit(page.limit)
      .execute();
    return rows.map(toToken);
  }

  async auditors(log: LogRecord, page: { after?: string | undefined; limit: number }) {
    const rows = await this.#db
      .selectFrom('auditors')
      .selectAll()
      .where('log', '=', log.log)
      .where('id', '>', page.after ?? '')
      .orderBy('id')
      .limit(page.limit)
      .execute();
    return rows.map((row) => ({
      id: row.id,
      issuedBy: row.issued_by,
      issuedIndex: row.issued_index,
      revokedIndex: row.revoked_index,
    }));
  }

  async sinks(log: LogRecord) {
    return this.#db
      .selectFrom('sinks')
      .select(['sink', 'name', 'declared', 'kind', 'required', 'domain', 'key', 'heartbeat'])
      .where('log', '=', log.log)
      .orderBy('name')
      .execute();
  }

  // --- what the log holds ---

  async head(log: LogRecord): Promise<{ size: number; root: Buffer } | undefined> {
    return this.#db
      .selectFrom('heads')
      .select(['size', 'root'])
      .where('log', '=', log.log)
      .executeTakeFirst();
  }

  /** Whole entries of [from, to), dense. Fewer at the end of the log. The caller bounds the count. */
  async entries(log: LogRecord, range: { from: number; to: number }): Promise<Buffer[]> {
    const found = await this.#entriesOf(log, await this.#lines(log, range.from, range.to));
    return found.map((entry) => entry.entry);
  }

  /** Entries at or after `from` of one sink, epoch, or all, ascending. */
  async events(
    log: LogRecord,
    filter: { sink?: string | undefined; epoch?: string | undefined; from: number; limit: number },
  ): Promise<{ index: number; entry: Buffer }[]> {
    if (filter.sink === undefined && filter.epoch === undefined) {
      return this.#entriesOf(log, await this.#lines(log, filter.from, filter.from + filter.limit));
    }
    let query = this.#db
      .selectFrom('runs')
      .select(['first', 'count'])
      .where('log', '=', log.log)
      .where('first', '>=', firstRunAt(log, filter.from))
      .orderBy('first')
      .limit(filter.limit);
    if (filter.sink !== undefined) {
      const sink = await this.#db
        .selectFrom('sinks')
        .select('sink')
        .where('log', '=', log.log)
        .where('name', '=', filter.sink)
        .executeTakeFirst();
      if (!sink) return [];
      query = query.where('sink', '=', sink.sink);
    }
    if (filter.epoch !== undefined) query = query.where('epoch', '=', epochToUuid(filter.epoch));
    const lines: { index: number; line: Buffer }[] = [];
    for (const run of await query.execute()) {
      const from = Math.max(run.first, filter.from);
      const to = Math.min(run.first + run.count, from + filter.limit - lines.length);
      if (from < to) lines.push(...(await this.#lines(log, from, to)));
      if (lines.length >= filter.limit) break;
    }
    return this.#entriesOf(log, lines);
  }

  /**
   * Entries at or after `from` that name a session, ascending: by the worker's account of where they are as far as it
   * went, and by looking at `limit` entries after that. `next` is where the next page begins, absent at the log's end.
   */
  async sessionEvents(
    log: LogRecord,
    filter: { session: string; from: number; limit: number },
  ): Promise<{ events: { index: number; entry: Buffer }[]; next?: number }> {
    const { session, from, limit } = filter;
    const reconciled = await this.sessions.reconciled(log);
    if (from >= reconciled) {
      const scanned = await this.events(log, { from, limit });
      const last = scanned[scanned.length - 1];
      return {
        events: scanned.filter(({ entry }) => sessionOf(entry) === session),
        ...(scanned.length === limit && last && { next: last.index + 1 }),
      };
    }
    const spans: { first: number; to: number }[] = [];
    let count = 0;
    for (const run of await this.sessions.sessionRuns(log, session, { from, limit })) {
      const first = Math.max(run.first, from);
      const to = Math.min(run.last + 1, first + limit - count);
      if (first < to) spans.push({ first, to });
      count += to - first;
      if (count >= limit) break;
    }
    const events = await this.#scattered(log, spans);
    const last = events[events.length - 1];
    return { events, next: count >= limit && last ? last.index + 1 : reconciled };
  }

  /**
   * Which of these sessions no entry names: by the worker's account as far as it went, and by looking at the entries
   * after that. Undefined where those are more than one answer looks at and some session is not found before.
   */
  async unknownSessions(log: LogRecord, names: readonly string[]): Promise<readonly string[] | undefined> {
    // Before the account is asked: what it takes in meanwhile is looked at twice, and not missed.
    const from = await this.sessions.reconciled(log);
    const left = new Set(names);
    for (const name of await this.sessions.known(log, names)) left.delete(name);
    for (let at = from; left.size > 0; at += SCANNED_AT_ONCE) {
      if (at - from >= MOST_SCANNED) return undefined;
      const scanned = await this.events(log, { from: at, limit: SCANNED_AT_ONCE });
      for (const { entry } of scanned) {
        const session = sessionOf(entry);
        if (typeof session === 'string') left.delete(session);
      }
      if (scanned.length < SCANNED_AT_ONCE) break;
    }
    return [...left];
  }

  /** Entries of many spans, ascending, by as many steps as for one. */
  async #scattered(
    log: LogRecord,
    spans: readonly { first: number; to: number }[],
  ): Promise<{ index: number; entry: Buffer }[]> {
    const { rows: lines } = await sql<{ index: number; line: Buffer }>`
      select e.index, e.line
      from unnest(${spans.map(({ first }) => first)}::bigint[], ${spans.map(({ to }) => to)}::bigint[])
        as w(first, past)
      join entries e on e.log = ${log.log} and e.index >= w.first and e.index < w.past
      order by e.index`.execute(this.#db);
    const { rows: runs } = await sql<RunOfEntries>`
      select distinct r.* from unnest(${lines.map(({ index }) => index)}::bigint[]) as w(index)
      cross join lateral (
        select first, count, sink, token, role, received, signed, conflict, late from runs
        where log = ${log.log} and first <= w.index order by first desc limit 1
      ) r
      order by r.first`.execute(this.#db);
    return this.#assembled(log, lines, runs);
  }

  /** The first `width` hashes of a tile; undefined beyond the committed head. Partial ones are computed. */
  async tile(log: LogRecord, level: number, n: number, width: number): Promise<Buffer | undefined> {
    const full = await this.#fullTile(log, level, n);
    if (full) return full.subarray(0, width * 32);
    const head = await this.head(log);
    const unit = TILE_WIDTH ** level;
    const first = n * TILE_WIDTH;
    if (!head || (first + width) * unit > head.size) return undefined;
    if (level === 0) {
      const entries = await this.entries(log, { from: first, to: first + width });
      return entries.length === width ? Buffer.concat(entries.map((entry) => leafHash(entry))) : undefined;
    }
    const rows = await this.#db
      .selectFrom('tiles')
      .select('hashes')
      .where('log', '=', log.log)
      .where('level', '=', level - 1)
      .where('n', '>=', first)
      .where('n', '<', first + width)
      .orderBy('n')
      .execute();
    return rows.length === width
      ? Buffer.concat(rows.map((row) => hashTile(row.hashes, 0, TILE_WIDTH)))
      : undefined;
  }

  /** Hashes of perfect subtrees, in order; throws when one is beyond the committed head. */
  async nodes(log: LogRecord, ids: readonly NodeId[]): Promise<Buffer[]> {
    const tiles = new Map<string, Buffer>();
    const hashes: Buffer[] = [];
    for (const id of ids) {
      const span = tileOf(id);
      const key = `${span.level}/${span.n}`;
      let tile = tiles.get(key);
      if (!tile || tile.length < (span.first + span.count) * 32) {
        tile = await this.tile(log, span.level, Number(span.n), span.first + span.count);
        if (!tile) throw new RangeError(`node ${id.level}/${id.index} is beyond the head of ${log.origin}`);
        tiles.set(key, tile);
      }
      hashes.push(hashTile(tile, span.first, span.count));
    }
    return hashes;
  }

  /** The proof hashes of an `inclusionPlan` or `consistencyPlan`. */
  async proof(log: LogRecord, plan: readonly (readonly NodeId[])[]): Promise<Buffer[]> {
    const nodes = await this.nodes(log, plan.flat());
    let at = 0;
    return plan.map((part) => foldNodes(nodes.slice(at, (at += part.length))));
  }

  // --- publication ---

  latestCheckpoint(log: LogRecord): Promise<CheckpointRow | undefined> {
    return this.#db
      .selectFrom('checkpoints')
      .select(['size', 'root', 'note', 'published'])
      .where('log', '=', log.log)
      .orderBy('size', 'desc')
      .limit(1)
      .executeTakeFirst();
  }

  checkpointAt(log: LogRecord, size: number): Promise<CheckpointRow | undefined> {
    return this.#db
      .selectFrom('checkpoints')
      .select(['size', 'root', 'note', 'published'])
      .where('log', '=', log.log)
      .where('size', '=', size)
      .executeTakeFirst();
  }

  /** A receipt of this log. One of another log is not even read. */
  async receipt(log: LogRecord, id: string) {
    const row = await this.#db
      .selectFrom('receipts')
      .select(['id', 'scope', 'as_of', 'digest', 'bytes', 'index'])
      .where('id', '=', id)
      .where('log', '=', log.log)
      .executeTakeFirst();
    if (!row) return undefined;
    const { as_of, ...rest } = row;
    return { ...rest, asOf: as_of };
  }

  /** Logs whose head is past their last checkpoint, the longest unpublished first. */
  async grownLogs(limit: number): Promise<{ log: LogRow; size: number; published: number }[]> {
    const { rows } = await sql<{ id: string; size: number; published: number }>`
      select l.id, h.size, coalesce(c.size, 0) as published
      from heads h join logs l on l.log = h.log
      left join lateral (
        select size, published from checkpoints where log = h.log order by size desc limit 1
      ) c on true
      where h.size > coalesce(c.size, 0)
      order by c.published nulls first
      limit ${limit}`.execute(this.#db);
    const grown: { log: LogRow; size: number; published: number }[] = [];
    for (const row of rows) {
      const log = await this.logById(row.id);
      if (log) grown.push({ log, size: row.size, published: row.published });
    }
    return grown;
  }

  /** False when a checkpoint of this size was there already: the first one stays. */
  async insertCheckpoint(log: LogRecord, checkpoint: CheckpointRow): Promise<boolean> {
    const result = await this.#db
      .insertInto('checkpoints')
      .values({ log: log.log, ...checkpoint })
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirst();
    return result.numInsertedOrUpdatedRows === 1n;
  }

  /** Throws when the database doesn't answer or has no schema. */
  async ready(): Promise<void> {
    await this.#db.selectFrom('heads').select('log').limit(1).execute();
  }

  async #logBy(column: 'log' | 'id' | 'project', value: number | string): Promise<LogRow | undefined> {
    const row = await this.#db
      .selectFrom('logs as l')
      .innerJoin('projects as p', 'p.id', 'l.project')
      .select([
        'l.log',
        'l.id',
        'l.project',
        'p.tenant',
        'p.name',
        'l.origin',
        'l.public_key',
        'l.x5c',
        'l.public',
      ])
      .where(`l.${column}`, '=', value as never)
      .executeTakeFirst();
    if (!row) return undefined;
    const { public_key, ...rest } = row;
    return { ...rest, publicKey: public_key };
  }

  async #fullTile(log: LogRecord, level: number, n: number): Promise<Buffer | undefined> {
    const row = await this.#db
      .selectFrom('tiles')
      .select('hashes')
      .where('log', '=', log.log)
      .where('level', '=', level)
      .where('n', '=', n)
      .executeTakeFirst();
    return row?.hashes;
  }

  #lines(log: LogRecord, from: number, to: number): Promise<{ index: number; line: Buffer }[]> {
    return this.#db
      .selectFrom('entries')
      .select(['index', 'line'])
      .where('log', '=', log.log)
      .where('index', '>=', from)
      .where('index', '<', to)
      .orderBy('index')
      .execute();
  }

  async #entriesOf(
    log: LogRecord,
    lines: readonly { index: number; line: Buffer }[],
  ): Promise<{ index: number; entry: Buffer }[]> {
    const first = lines[0];
    const last = lines[lines.length - 1];
    if (!first || !last) return [];
    const rows = await this.#db
      .selectFrom('runs')
      .select(['first', 'count', 'sink', 'token', 'role', 'received', 'signed', 'conflict', 'late'])
      .where('log', '=', log.log)
      .where('first', '<=', last.index)
      .where('first', '>=', firstRunAt(log, first.index))
      .orderBy('first')
      .execute();
    return this.#assembled(log, lines, rows);
  }

  /** `rows` are the runs that the lines are of, ascending. */
  async #assembled(
    log: LogRecord,
    lines: readonly { index: number; line: Buffer }[],
    rows: readonly RunOfEntries[],
  ): Promise<{ index: number; entry: Buffer }[]> {
    const names = new Map((await this.sinks(log)).map((sink) => [sink.sink, sink.name]));
    let at = 0;
    let maker: EntryMaker | null = null;
    return lines.map(({ index, line }) => {
      let row = rows[at];
      while (row && index >= row.first + row.count) {
        row = rows[++at];
        maker = null;
      }
      if (!row || index < row.first) throw new Error(`entry ${index} of ${log.origin} has no run`);
      maker ??= entryMakerOf(log.origin, toFacts(row), names.get(row.sink));
      return { index, entry: maker.entry(index, line, row.conflict ?? undefined) };
    });
  }
}

type RunOfEntries = Pick<
  Selectable<Schema['runs']>,
  'first' | 'count' | 'sink' | 'token' | 'role' | 'received' | 'signed' | 'conflict' | 'late'
>;

function sessionOf(entry: Buffer): unknown {
  const body: unknown = JSON.parse(entry.toString('utf8', entry.indexOf(0x0a) + 1));
  return (body as { session?: unknown }).session;
}

/** First index of the run that holds `index`, or 0. */
function firstRunAt(log: LogRecord, index: number) {
  return sql<number>`coalesce((select max(first) from runs where log = ${log.log} and first <= ${index}), 0)`;
}

function toFacts(row: {
  token: string;
  role: Run['role'];
  received: Date;
  signed: Buffer | null;
  late: boolean;
}) {
  const batch = row.signed && { fingerprint: row.signed.toString('hex') };
  return { token: row.token, role: row.role, received: row.received.getTime(), batch, late: row.late };
}

function toToken(row: Selectable<Schema['tokens']>) {
  return {
    id: row.id,
    role: row.role,
    sinks: row.sinks,
    domain: row.domain,
    expires: row.expires,
    rate: row.rate,
    issuedBy: row.issued_by,
    issuedIndex: row.issued_index,
    revokedIndex: row.revoked_index,
  };
}
