import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  AccountStore,
  type EmbeddedPostgres,
  encodeByteaArray,
  migrate,
  MIGRATIONS,
  openPool,
  startEmbedded,
} from '@belay/db';
import type { Entry } from '@belay/envelope';
import type { LogRecord } from '@belay/log';

type Pool = ReturnType<typeof openPool>;

/** A database with the worker's store on it. */
export interface Stored {
  readonly connection: EmbeddedPostgres['connection'];
  readonly store: AccountStore;
  readonly pool: Pool;
  close(): Promise<void>;
}

export async function openStored(): Promise<Stored> {
  const dir = mkdtempSync(join(tmpdir(), 'belay-account-'));
  chmodSync(dir, 0o755);
  const postgres = await startEmbedded(join(dir, 'data'));
  await migrate(postgres.connection, MIGRATIONS);
  const pool = openPool(postgres.connection);
  const store = new AccountStore(postgres.connection, { role: 'belay_worker', size: 6 });
  return {
    connection: postgres.connection,
    store,
    pool,
    close: async () => {
      await store.close();
      await pool.end();
      await postgres.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Rows of a log as a collector would have them, made of entries: tests of what reads them need no collector. */
export class StoredLog {
  readonly record: LogRecord;
  readonly #pool: Pool;
  readonly #sinks = new Map<string, number>();
  #size = 0;

  private constructor(pool: Pool, record: LogRecord) {
    this.#pool = pool;
    this.record = record;
  }

  static async create(pool: Pool, origin: string): Promise<StoredLog> {
    const id = randomBytes(8).toString('hex');
    await pool.query('insert into tenants (id, name) values ($1, $1)', [`ten_${id}`]);
    await pool.query('insert into projects (id, tenant, name) values ($1, $2, $1)', [
      `prj_${id}`,
      `ten_${id}`,
    ]);
    const publicKey = createHash('sha256').update(id).digest();
    // Every log of a test has the origin that its entries name; the column is unique, its constraint is not looked for.
    await pool.query('alter table logs drop constraint if exists logs_origin_key');
    const { rows } = await pool.query(
      `insert into logs (id, project, origin, public_key, x5c) values ($1, $2, $3, $4, '{}') returning log`,
      [`log_${id}`, `prj_${id}`, origin, publicKey],
    );
    const { log } = rows[0] as { log: number };
    await pool.query(
      `insert into heads (log, size, root, frontier, received, config) values ($1, 0, $2, '', now(), 0)`,
      [log, Buffer.alloc(32)],
    );
    return new StoredLog(pool, {
      log,
      id: `log_${id}`,
      project: `prj_${id}`,
      tenant: `ten_${id}`,
      origin,
      publicKey,
      x5c: [],
    });
  }

  get size(): number {
    return this.#size;
  }

  /** Writes the entries that come after those it has. */
  async write(entries: readonly Entry[]): Promise<void> {
    const { log } = this.record;
    for (const entry of entries) {
      const { sink } = entry.line;
      if (sink === undefined || this.#sinks.has(sink)) continue;
      this.#sinks.set(sink, this.#sinks.size + 1);
      await this.#pool.query('insert into sinks (log, sink, name) values ($1, $2, $3)', [
        log,
        this.#sinks.get(sink),
        sink,
      ]);
    }
    const client = await this.#pool.connect();
    await client.query('begin');
    for (let at = 0; at < entries.length; at += 5_000) {
      const part = entries.slice(at, at + 5_000);
      await client.query(
        `insert into entries (log, index, line)
         select $1, $2 + o - 1, line from unnest($3::bytea[]) with ordinality as t(line, o)`,
        [log, part[0]?.line.index, encodeByteaArray(part.map(({ body }) => body))],
      );
      const runs: Entry[][] = [];
      const fact = ({ line }: Entry): string =>
        JSON.stringify([
          line.sink,
          line.token,
          line.role,
          line.received,
          line.signed,
          line.late,
          line.conflict,
        ]);
      for (const entry of part) {
        const run = runs.at(-1);
        if (run !== undefined && entry.line.conflict === undefined && fact(run[0] as Entry) === fact(entry)) {
          run.push(entry);
        } else runs.push([entry]);
      }
      await client.query(
        `insert into runs (log, first, count, sink, epoch, first_seq, token, role, received, signed, conflict, late)
         select $1, (r->>0)::bigint, (r->>1)::int, (r->>2)::int, '00000000-0000-0000-0000-000000000000', 0, r->>3, r->>4,
           (r->>5)::timestamptz, decode(r->>6, 'hex'), (r->>7)::bigint, (r->>8)::boolean
         from jsonb_array_elements($2::jsonb) as t(r)`,
        [
          log,
          JSON.stringify(
            runs.map((run) => {
              const { line } = run[0] as Entry;
              const sink = line.sink === undefined ? 0 : this.#sinks.get(line.sink);
              return [
                line.index,
                run.length,
                sink,
                line.token ?? '',
                line.role,
                line.received,
                line.signed ?? null,
                line.conflict ?? null,
                line.late ?? false,
              ];
            }),
          ),
        ],
      );
    }
    this.#size += entries.length;
    await client.query('update heads set size = $2 where log = $1', [log, this.#size]);
    await client.query('commit');
    client.release();
  }
}
