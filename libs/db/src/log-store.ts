import { DEFAULT_POLICY, readPolicy } from '@belay/coverage';
import {
  type AuditorState,
  type EpochMark,
  type Head,
  type LogConfig,
  type LogRecord,
  type LogStore,
  type LogTx,
  type LogWrite,
  type NewLog,
  type Run,
  type SinkState,
  type StateChange,
  type StoredCheckpoint,
  type StoredConflict,
  type StoredLabel,
  type StoredReceipt,
  type StoredStatement,
  StoreRefusal,
  type TokenState,
} from '@belay/log';
import { EMPTY_ROOT, HASH_SIZE } from '@belay/merkle';
import pg from 'pg';
import { type Connection, openPool, type PoolOptions } from './connection.js';
import { epochToUuid, uuidToEpoch } from './epoch.js';

/** The server would lose what it has acknowledged. */
export class NotDurable extends Error {
  constructor(setting: string, value: string) {
    super(
      `PostgreSQL runs with ${setting} = ${value}: an acknowledged line could be lost in a crash. ` +
        `Set ${setting} = on (or a stronger value) and start again`,
    );
    this.name = 'NotDurable';
  }
}

interface Queries {
  query(config: pg.QueryConfig): Promise<pg.QueryResult>;
}

/**
 * The log on PostgreSQL. Transactions and plain reads use pools of their own: a transaction that has to read beside
 * itself never waits for a connection that another transaction holds.
 */
export class PgLogStore implements LogStore {
  readonly #writes: pg.Pool;
  readonly #reads: pg.Pool;
  readonly #tiles = new TileCache(1_024);

  constructor(connection: Connection, options: PoolOptions = {}) {
    this.#writes = openPool(connection, options);
    this.#reads = openPool(connection, options);
  }

  async close(): Promise<void> {
    await Promise.all([this.#writes.end(), this.#reads.end()]);
  }

  /** Throws NotDurable when a commit of this server does not survive its crash. */
  async assertDurable(): Promise<void> {
    for (const setting of ['fsync', 'synchronous_commit', 'full_page_writes']) {
      const { rows } = await this.#reads.query(`show ${setting}`);
      const value = String((rows[0] as Record<string, string>)[setting]);
      if (value === 'off' || (setting === 'synchronous_commit' && value === 'local'))
        throw new NotDurable(setting, value);
    }
  }

  async find(by: { project: string } | { id: string }): Promise<LogRecord | null> {
    const [column, value] = 'project' in by ? ['project', by.project] : ['id', by.id];
    const { rows } = await this.#reads.query({
      name: `log_by_${column}`,
      text: `select ${LOG_COLUMNS} from logs l join projects p on p.id = l.project where l.${column} = $1`,
      values: [value],
    });
    return rows[0] ? toRecord(rows[0]) : null;
  }

  async list(): Promise<LogRecord[]> {
    const { rows } = await this.#reads.query(
      `select ${LOG_COLUMNS} from logs l join projects p on p.id = l.project order by l.log`,
    );
    return rows.map(toRecord);
  }

  async transact<T>(target: LogRecord | NewLog, work: (tx: LogTx) => Promise<T>): Promise<T> {
    const client = await this.#writes.connect();
    let broken: Error | undefined;
    try {
      let record: LogRecord;
      let head: Head;
      if ('log' in target) {
        record = target;
        // Begin and lock in one round trip; the number is an integer from our own column.
        const [, locked] = (await client.query(
          `begin; ${HEAD_OF} ${record.log} for update`,
        )) as unknown as pg.QueryResult[];
        if (!locked?.rows[0]) throw new StoreRefusal('not_found', `log ${record.id} has no head row`);
        head = toHead(locked.rows[0]);
      } else {
        await client.query('begin');
        record = await createLog(client, target);
        head = NO_ENTRIES;
      }
      const result = await work(new PgLogTx(client, record, head));
      await client.query('commit');
      return result;
    } catch (error) {
      // After a failed commit the connection may be in any state, so it isn't used again.
      broken = error as Error;
      await client.query('rollback').then(
        () => (broken = undefined),
        () => undefined,
      );
      throw error;
    } finally {
      client.release(broken);
    }
  }

  async head(log: LogRecord): Promise<Head> {
    const { rows } = await this.#reads.query({
      name: 'read_head',
      text: `${HEAD_OF} $1`,
      values: [log.log],
    });
    if (!rows[0]) throw new StoreRefusal('not_found', `log ${log.id} has no head row`);
    return toHead(rows[0]);
  }

  config(log: LogRecord): Promise<LogConfig> {
    return readConfig(this.#reads, log);
  }

  runs(log: LogRecord, from: number, to: number): Promise<Run[]> {
    return readRuns(this.#reads, log, from, to);
  }

  lines(log: LogRecord, from: number, to: number): Promise<{ index: number; line: Buffer }[]> {
    return readLines(this.#reads, log, from, to);
  }

  async tile(log: LogRecord, level: number, n: number): Promise<Buffer | null> {
    const known = this.#tiles.get(log.log, level, n);
    if (known) return known;
    const { rows } = await this.#reads.query({
      name: 'read_tile',
      text: 'select hashes from tiles where log = $1 and level = $2 and n = $3',
      values: [log.log, level, n],
    });
    const hashes = rows[0]?.hashes as Buffer | undefined;
    if (!hashes) return null;
    this.#tiles.set(log.log, level, n, hashes);
    return hashes;
  }

  async epoch(log: LogRecord, sink: number, epoch: string): Promise<EpochMark> {
    const { rows } = await this.#reads.query({
      name: 'read_watermark',
      text: 'select next_seq, closed from epochs where log = $1 and sink = $2 and epoch = $3',
      values: [log.log, sink, epochToUuid(epoch)],
    });
    return toMark((rows[0] as MarkRow | undefined) ?? { next_seq: null, closed: null });
  }

  async policies(log: LogRecord): Promise<number[]> {
    const { rows } = await this.#reads.query({
      text: 'select index from policies where log = $1 order by index',
      values: [log.log],
    });
    return (rows as { index: number }[]).map(({ index }) => index);
  }

  async labels(log: LogRecord): Promise<StoredLabel[]> {
    const { rows } = await this.#reads.query({
      text: 'select index, session, call, says, auditor from labels where log = $1 order by index',
      values: [log.log],
    });
    return rows as StoredLabel[];
  }

  statements(log: LogRecord, digests: readonly Buffer[]): Promise<Map<string, number>> {
    return readStatements(this.#reads, log, digests);
  }

  async statement(log: LogRecord, digest: Buffer): Promise<StoredStatement | null> {
    const { rows } = await this.#reads.query({
      name: 'read_statement',
      text: 'select index, bytes from statements where log = $1 and digest = $2',
      values: [log.log, digest],
    });
    return (rows[0] as StoredStatement | undefined) ?? null;
  }

  async checkpoint(log: LogRecord, size = Number.MAX_SAFE_INTEGER): Promise<StoredCheckpoint | null> {
    const { rows } = await this.#reads.query({
      name: 'read_checkpoint',
      text: 'select size, root, note, published from checkpoints where log = $1 and size <= $2 order by size desc limit 1',
      values: [log.log, size],
    });
    const row = rows[0] as { size: number; root: Buffer; note: string; published: Date } | undefined;
    return row ? { ...row, published: row.published.getTime() } : null;
  }

  async receipt(log: LogRecord, scope: string, asOf?: number): Promise<StoredReceipt | null> {
    const { rows } = await this.#reads.query({
      name: 'read_receipt',
      text: `select id, scope, as_of, digest, bytes, index, created, disposition from receipts
             where log = $1 and scope = $2 and as_of = coalesce($3::bigint, as_of) order by as_of desc limit 1`,
      values: [log.log, scope, asOf ?? null],
    });
    const row = rows[0] as
      | {
          id: string;
          scope: string;
          as_of: number;
          digest: Buffer;
          bytes: string;
          index: number;
          created: Date;
          disposition: string | null;
        }
      | undefined;
    if (!row) return null;
    const { as_of, created, ...rest } = row;
    return { ...rest, asOf: as_of, created: created.getTime() };
  }

  async createTenant(tenant: { id: string; name: string; admin: string; secretHash: Buffer }): Promise<void> {
    const { rowCount } = await this.#writes.query({
      text: `with t as (insert into tenants (id, name) values ($1, $2) on conflict do nothing returning id)
             insert into admin_keys (id, tenant, secret_hash) select $3, id, $4 from t`,
      values: [tenant.id, tenant.name, tenant.admin, tenant.secretHash],
    });
    if (rowCount !== 1) throw new StoreRefusal('exists', 'a tenant of this identifier exists');
  }
}

class PgLogTx implements LogTx {
  readonly record: LogRecord;
  readonly head: Head;
  readonly #client: pg.PoolClient;

  constructor(client: pg.PoolClient, record: LogRecord, head: Head) {
    this.#client = client;
    this.record = record;
    this.head = head;
  }

  config(): Promise<LogConfig> {
    return readConfig(this.#client, this.record);
  }

  async epochs(keys: readonly { sink: number; epoch: string }[]): Promise<EpochMark[]> {
    const { rows } = await this.#client.query({
      name: 'read_epochs',
      text: `select e.next_seq, e.closed from unnest($2::int[], $3::uuid[]) with ordinality as k(sink, epoch, o)
             left join epochs e on e.log = $1 and e.sink = k.sink and e.epoch = k.epoch order by k.o`,
      values: [this.record.log, keys.map((key) => key.sink), keys.map((key) => epochToUuid(key.epoch))],
    });
    return rows.map(toMark);
  }

  async runs(sink: number, epoch: string, seqs: readonly number[]): Promise<Run[]> {
    // Runs of one epoch don't overlap: the last one that starts at or before a seq is the only one that may hold it.
    const { rows } = await this.#client.query({
      name: 'read_runs_by_seq',
      text: `select distinct on (r.first_seq) r.* from unnest($4::bigint[]) as s(seq) cross join lateral (
               select ${RUN_COLUMNS} from runs where log = $1 and sink = $2 and epoch = $3 and conflict is null
                 and sink > 0 and first_seq <= s.seq order by first_seq desc limit 1
             ) r where r.first_seq + r.count > s.seq order by r.first_seq`,
      values: [this.record.log, sink, epochToUuid(epoch), seqs],
    });
    return rows.map(toRun);
  }

  async conflicts(
    sink: number,
    epoch: string,
    lines: readonly { seq: number; hash: Buffer }[],
  ): Promise<StoredConflict[]> {
    const { rows } = await this.#client.query({
      name: 'read_conflicts',
      text: `select c.seq, c.hash, c.index from unnest($4::bigint[], $5::bytea[]) as l(seq, hash)
             join conflicts c on c.log = $1 and c.sink = $2 and c.epoch = $3 and c.seq = l.seq and c.hash = l.hash`,
      values: [
        this.record.log,
        sink,
        epochToUuid(epoch),
        lines.map((line) => line.seq),
        encodeByteaArray(lines.map((line) => line.hash)),
      ],
    });
    return rows.map((row: { seq: number; hash: Buffer; index: number }) => ({ sink, epoch, ...row }));
  }

  async linesAt(indexes: readonly number[]): Promise<Map<number, Buffer>> {
    const { rows } = await this.#client.query({
      name: 'read_lines_at',
      text: 'select index, line from entries where log = $1 and index = any($2::bigint[])',
      values: [this.record.log, indexes],
    });
    return new Map(rows.map((row: { index: number; line: Buffer }) => [row.index, row.line]));
  }

  async runsAt(indexes: readonly number[]): Promise<Run[]> {
    const { rows } = await this.#client.query({
      name: 'read_runs_at',
      text: `select distinct on (r.first) r.* from unnest($2::bigint[]) as i(index) cross join lateral (
               select ${RUN_COLUMNS} from runs where log = $1 and first <= i.index order by first desc limit 1
             ) r where r.first + r.count > i.index order by r.first`,
      values: [this.record.log, indexes],
    });
    return rows.map(toRun);
  }

  statements(digests: readonly Buffer[]): Promise<Map<string, number>> {
    return readStatements(this.#client, this.record, digests);
  }

  async lastReceipt(scope: string): Promise<Pick<StoredReceipt, 'asOf' | 'digest'> | null> {
    const { rows } = await this.#client.query({
      name: 'read_last_receipt',
      text: 'select as_of, digest from receipts where log = $1 and scope = $2 order by as_of desc limit 1',
      values: [this.record.log, scope],
    });
    const row = rows[0] as { as_of: number; digest: Buffer } | undefined;
    return row ? { asOf: row.as_of, digest: row.digest } : null;
  }

  async write(write: LogWrite): Promise<void> {
    const { log } = this.record;
    const { head, runs } = write;
    for (const sink of write.sinks) {
      await this.#client.query({
        text: 'insert into sinks (log, sink, name) values ($1, $2, $3)',
        values: [log, sink.sink, sink.name],
      });
    }
    for (const tile of write.tiles) {
      await this.#client.query({
        name: 'write_tile',
        text: 'insert into tiles (log, level, n, hashes) values ($1, $2, $3, $4)',
        values: [log, tile.level, tile.n, tile.hashes],
      });
    }
    if (write.conflicts.length > 0) {
      await this.#client.query({
        text: `insert into conflicts (log, sink, epoch, seq, hash, index)
               select $1, * from unnest($2::int[], $3::uuid[], $4::bigint[], $5::bytea[], $6::bigint[])`,
        values: [
          log,
          write.conflicts.map((conflict) => conflict.sink),
          write.conflicts.map((conflict) => epochToUuid(conflict.epoch)),
          write.conflicts.map((conflict) => conflict.seq),
          encodeByteaArray(write.conflicts.map((conflict) => conflict.hash)),
          write.conflicts.map((conflict) => conflict.index),
        ],
      });
    }
    const stated = write.changes.flatMap((change) => (change.kind === 'coverage.stated' ? [change] : []));
    if (stated.length > 0) await this.#states(stated);
    for (const change of write.changes) await this.#change(change);
    const { rowCount } = await this.#client.query({
      name: 'write_commit',
      text: WRITE_COMMIT,
      values: [
        log,
        this.head.size,
        encodeByteaArray(write.lines),
        runs.map((run) => run.first),
        runs.map((run) => run.count),
        runs.map((run) => run.sink),
        runs.map((run) => epochToUuid(run.epoch)),
        runs.map((run) => run.firstSeq),
        runs.map((run) => run.token),
        runs.map((run) => run.role),
        new Date(head.received),
        runs.map((run) => (run.batch ? Buffer.from(run.batch.fingerprint, 'hex') : null)),
        runs.map((run) => run.batch?.firstSeq ?? null),
        runs.map((run) => run.batch?.count ?? null),
        runs.map((run) => run.batch?.signature ?? null),
        runs.map((run) => run.conflict),
        write.epochs.map((epoch) => epoch.sink),
        write.epochs.map((epoch) => epochToUuid(epoch.epoch)),
        write.epochs.map((epoch) => epoch.nextSeq),
        head.size,
        head.root,
        Buffer.concat(head.frontier),
        head.config,
        runs.map((run) => run.late),
        write.epochs.map(({ closed }) => (closed === null ? null : new Date(closed))),
      ],
    });
    if (rowCount !== 1) throw new Error(`the head of log ${this.record.id} moved under its lock`);
  }

  /** In one round trip: a commit may have hundreds, and holds the head row meanwhile. */
  async #states(stated: readonly Extract<StateChange, { kind: 'coverage.stated' }>[]): Promise<void> {
    await this.#client.query({
      name: 'write_statements',
      text: `insert into statements (log, digest, index, bytes)
             select $1, * from unnest($2::bytea[], $3::bigint[], $4::bytea[])`,
      values: [
        this.record.log,
        encodeByteaArray(stated.map(({ digest }) => digest)),
        stated.map(({ index }) => index),
        encodeByteaArray(stated.map(({ bytes }) => bytes)),
      ],
    });
  }

  async #change(change: StateChange): Promise<void> {
    const { log } = this.record;
    const run = (text: string, values: unknown[]): Promise<unknown> => this.#client.query({ text, values });
    switch (change.kind) {
      case 'token.issued': {
        const { token } = change;
        await run(
          `insert into tokens (id, log, secret_hash, role, sinks, domain, expires, rate, issued_by, issued_index)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
          [
            token.id,
            log,
            change.secretHash,
            token.role,
            token.sinks,
            token.domain,
            token.expires === null ? null : new Date(token.expires),
            token.rate,
            token.issuedBy,
            token.issuedIndex,
          ],
        );
        return;
      }
      case 'token.revoked':
        await run('update tokens set revoked_index = $3 where log = $1 and id = $2', [
          log,
          change.token,
          change.index,
        ]);
        return;
      case 'auditor.issued':
        await run(
          'insert into auditors (id, log, secret_hash, issued_by, issued_index) values ($1, $2, $3, $4, $5)',
          [change.auditor, log, change.secretHash, change.by, change.index],
        );
        return;
      case 'auditor.revoked':
        await run(
          'update auditors set revoked_index = $3 where log = $1 and id = $2 and revoked_index is null',
          [log, change.auditor, change.index],
        );
        return;
      case 'sink.declared': {
        const { sink } = change;
        await run(
          `insert into sinks (log, sink, name, declared, kind, required, domain, key, heartbeat)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
           on conflict (log, sink) do update set declared = excluded.declared, kind = excluded.kind,
             required = excluded.required, domain = excluded.domain, key = excluded.key, heartbeat = excluded.heartbeat`,
          [
            log,
            sink.sink,
            sink.name,
            sink.declared,
            sink.kind,
            sink.required,
            sink.domain,
            sink.key,
            sink.heartbeat,
          ],
        );
        return;
      }
      case 'policy.set': {
        const { policy, index } = change;
        await run('update logs set public = $2 where log = $1', [log, policy.public]);
        await run('insert into policies (log, index, policy) values ($1, $2, $3)', [
          log,
          index,
          JSON.stringify(policy),
        ]);
        return;
      }
      case 'label.set': {
        const { index, session, call, says, auditor } = change.label;
        await run(
          'insert into labels (log, index, session, call, says, auditor) values ($1, $2, $3, $4, $5, $6)',
          [log, index, session, call, says, auditor],
        );
        return;
      }
      case 'coverage.stated':
        // Written before, all of them at once.
        return;
      case 'receipt.issued': {
        const { receipt } = change;
        await run(
          `insert into receipts (id, log, scope, as_of, digest, bytes, index, created, disposition)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
          [
            receipt.id,
            log,
            receipt.scope,
            receipt.asOf,
            receipt.digest,
            receipt.bytes,
            receipt.index,
            new Date(receipt.created),
            receipt.disposition,
          ],
        );
      }
    }
  }
}

const NO_ENTRIES: Head = { size: 0, root: EMPTY_ROOT, frontier: [], received: 0, config: 0 };
const HEAD_OF = 'select size, root, frontier, received, config from heads where log =';
const LOG_COLUMNS = 'l.log, l.id, l.project, p.tenant, l.origin, l.public_key, l.x5c';
const RUN_COLUMNS =
  'first, count, sink, epoch, first_seq, token, role, received, signed, batch_seq, batch_count, signature, conflict, late';

/** Entries, runs, watermarks and head in one round trip; one row is updated unless the head moved. */
const WRITE_COMMIT = `
with e as (
  insert into entries (log, index, line)
  select $1, $2 + t.o - 1, t.line from unnest($3::bytea[]) with ordinality as t(line, o)
), r as (
  insert into runs (log, first, count, sink, epoch, first_seq, token, role, received, signed, batch_seq, batch_count,
    signature, conflict, late)
  select $1, t.first, t.count, t.sink, t.epoch, t.first_seq, t.token, t.role, $11, t.signed, t.batch_seq, t.batch_count,
    t.signature, t.conflict, t.late
  from unnest($4::bigint[], $5::int[], $6::int[], $7::uuid[], $8::bigint[], $9::text[], $10::text[], $12::bytea[],
    $13::bigint[], $14::int[], $15::bytea[], $16::bigint[], $24::boolean[])
    as t(first, count, sink, epoch, first_seq, token, role, signed, batch_seq, batch_count, signature, conflict, late)
), p as (
  insert into epochs (log, sink, epoch, next_seq, closed)
  select $1, t.sink, t.epoch, t.next, t.closed
  from unnest($17::int[], $18::uuid[], $19::bigint[], $25::timestamptz[]) as t(sink, epoch, next, closed)
  on conflict (log, sink, epoch) do update set next_seq = excluded.next_seq, closed = excluded.closed
)
update heads set size = $20, root = $21, frontier = $22, received = $11, config = $23 where log = $1 and size = $2`;

const BYTEA = 17;

/**
 * A bytea[] in PostgreSQL's binary form. node-postgres sends a Buffer parameter as binary, so the server reads the
 * array without parsing text: 2 to 4 times faster than a text array.
 */
export function encodeByteaArray(values: readonly Buffer[]): Buffer {
  let length = 20;
  for (const value of values) length += 4 + value.length;
  const bytes = Buffer.allocUnsafe(length);
  // Number of dimensions (0 for an empty array), no nulls, element type, then size and lower bound of the one dimension.
  bytes.writeInt32BE(values.length === 0 ? 0 : 1, 0);
  bytes.writeInt32BE(0, 4);
  bytes.writeInt32BE(BYTEA, 8);
  if (values.length === 0) return bytes.subarray(0, 12);
  bytes.writeInt32BE(values.length, 12);
  bytes.writeInt32BE(1, 16);
  let at = 20;
  for (const value of values) {
    bytes.writeInt32BE(value.length, at);
    value.copy(bytes, at + 4);
    at += 4 + value.length;
  }
  return bytes;
}

async function createLog(client: pg.PoolClient, log: NewLog): Promise<LogRecord> {
  const tenant = await client.query({ text: 'select 1 from tenants where id = $1', values: [log.tenant] });
  if (tenant.rowCount !== 1) throw new StoreRefusal('not_found', 'no such tenant');
  const project = await client.query({
    text: 'insert into projects (id, tenant, name) values ($1, $2, $3) on conflict do nothing',
    values: [log.project, log.tenant, log.name],
  });
  if (project.rowCount !== 1) throw new StoreRefusal('exists', 'a project of this identifier exists');
  const { rows } = await client.query({
    text: `insert into logs (id, project, origin, public_key, x5c, public)
           values ($1, $2, $3, $4, $5::bytea[], $6) returning log`,
    values: [log.id, log.project, log.origin, log.publicKey, encodeByteaArray(log.x5c), log.public],
  });
  const key = (rows[0] as { log: number }).log;
  await client.query({
    text: `insert into heads (log, size, root, frontier, received, config) values ($1, 0, $2, ''::bytea, to_timestamp(0), 0)`,
    values: [key, EMPTY_ROOT],
  });
  const { name: _name, public: _public, ...record } = log;
  return { log: key, ...record };
}

async function readConfig(db: Queries, log: LogRecord): Promise<LogConfig> {
  const tokens = await db.query({
    name: 'read_tokens',
    text: `select id, role, sinks, domain, expires, rate, issued_by, issued_index, revoked_index from tokens where log = $1`,
    values: [log.log],
  });
  const sinks = await db.query({
    name: 'read_sinks',
    text: 'select sink, name, declared, kind, required, domain, key, heartbeat from sinks where log = $1',
    values: [log.log],
  });
  const auditors = await db.query({
    name: 'read_auditors',
    text: 'select id, issued_index, revoked_index from auditors where log = $1',
    values: [log.log],
  });
  const policies = await db.query({
    name: 'read_policy',
    text: 'select policy from policies where log = $1 order by index desc limit 1',
    values: [log.log],
  });
  const policy = policies.rows[0] as { policy: unknown } | undefined;
  return {
    policy: policy ? readPolicy(policy.policy) : DEFAULT_POLICY,
    auditors: new Map(
      auditors.rows.map((row): [string, AuditorState] => [
        row.id as string,
        { issuedIndex: row.issued_index, revokedIndex: row.revoked_index },
      ]),
    ),
    tokens: new Map(
      tokens.rows.map((row): [string, TokenState] => [
        row.id as string,
        {
          id: row.id,
          role: row.role,
          sinks: row.sinks,
          domain: row.domain,
          expires: (row.expires as Date | null)?.getTime() ?? null,
          rate: row.rate,
          issuedBy: row.issued_by,
          issuedIndex: row.issued_index,
          revokedIndex: row.revoked_index,
        },
      ]),
    ),
    sinks: new Map((sinks.rows as SinkState[]).map((row) => [row.name, row])),
  };
}

async function readStatements(
  db: Queries,
  log: LogRecord,
  digests: readonly Buffer[],
): Promise<Map<string, number>> {
  const { rows } = await db.query({
    name: 'read_statements',
    text: 'select digest, index from statements where log = $1 and digest = any($2::bytea[])',
    values: [log.log, encodeByteaArray(digests)],
  });
  return new Map(
    rows.map((row: { digest: Buffer; index: number }) => [row.digest.toString('hex'), row.index]),
  );
}

async function readRuns(db: Queries, log: LogRecord, from: number, to: number): Promise<Run[]> {
  const { rows } = await db.query({
    name: 'read_runs',
    text: `select ${RUN_COLUMNS} from runs where log = $1 and first < $3
           and first >= coalesce((select max(first) from runs where log = $1 and first <= $2), 0) order by first`,
    values: [log.log, from, to],
  });
  return rows.map(toRun).filter((run) => run.first + run.count > from);
}

async function readLines(
  db: Queries,
  log: LogRecord,
  from: number,
  to: number,
): Promise<{ index: number; line: Buffer }[]> {
  const { rows } = await db.query({
    name: 'read_lines',
    text: 'select index, line from entries where log = $1 and index >= $2 and index < $3 order by index',
    values: [log.log, from, to],
  });
  return rows as { index: number; line: Buffer }[];
}

function toRecord(row: Record<string, unknown>): LogRecord {
  return {
    log: row['log'] as number,
    id: row['id'] as string,
    project: row['project'] as string,
    tenant: row['tenant'] as string,
    origin: row['origin'] as string,
    publicKey: row['public_key'] as Buffer,
    x5c: row['x5c'] as Buffer[],
  };
}

function toHead(row: { size: number; root: Buffer; frontier: Buffer; received: Date; config: number }): Head {
  const frontier: Buffer[] = [];
  for (let at = 0; at < row.frontier.length; at += HASH_SIZE)
    frontier.push(row.frontier.subarray(at, at + HASH_SIZE));
  return { size: row.size, root: row.root, frontier, received: row.received.getTime(), config: row.config };
}

function toRun(row: Record<string, unknown>): Run {
  const signed = row['signed'] as Buffer | null;
  return {
    first: row['first'] as number,
    count: row['count'] as number,
    sink: row['sink'] as number,
    epoch: uuidToEpoch(row['epoch'] as string),
    firstSeq: row['first_seq'] as number,
    token: row['token'] as string,
    role: row['role'] as Run['role'],
    received: (row['received'] as Date).getTime(),
    batch: signed && {
      fingerprint: signed.toString('hex'),
      firstSeq: row['batch_seq'] as number,
      count: row['batch_count'] as number,
      signature: row['signature'] as Buffer,
    },
    conflict: row['conflict'] as number | null,
    late: row['late'] as boolean,
  };
}

interface MarkRow {
  readonly next_seq: number | null;
  readonly closed: Date | null;
}

function toMark({ next_seq, closed }: MarkRow): EpochMark {
  return { nextSeq: next_seq ?? 1, closed: closed?.getTime() ?? null };
}

/** Full tiles never change, so they can be kept as long as there is room; the oldest goes first. */
class TileCache {
  readonly #tiles = new Map<string, Buffer>();
  readonly #most: number;
  constructor(most: number) {
    this.#most = most;
  }
  get(log: number, level: number, n: number): Buffer | undefined {
    return this.#tiles.get(`${log}/${level}/${n}`);
  }
  set(log: number, level: number, n: number, hashes: Buffer): void {
    if (this.#tiles.size >= this.#most) this.#tiles.delete(this.#tiles.keys().next().value as string);
    this.#tiles.set(`${log}/${level}/${n}`, hashes);
  }
}
