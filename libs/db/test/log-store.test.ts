import { createHash } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type EmbeddedPostgres,
  migrate,
  MIGRATIONS,
  openDatabase,
  openPool,
  PgLogStore,
  Reader,
  startEmbedded,
} from '@belay/db';
import { DEFAULT_POLICY } from '@belay/coverage';
import { parseEntry } from '@belay/envelope';
import {
  type CheckedStatement,
  checkLog,
  type LogRecord,
  type LogStore,
  type LogTx,
  scopeText,
  Sequencer,
  StoreRefusal,
  type NewLog,
} from '@belay/log';
import { hashTile, inclusionPlan, leafHash, verifyInclusion } from '@belay/merkle';
import {
  ADMIN,
  AUDITOR,
  closing,
  epoch,
  type Fault,
  InjectedFault,
  line,
  MemoryLogStore,
  mustBeSound,
  PROJECT,
  request,
  setUp,
  type Setup,
  TENANT,
  TOKEN,
  value,
  verifyAck,
} from '@belay/testkit';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

let dir: string;
let postgres: EmbeddedPostgres;
let store: PgLogStore;

const TABLES =
  'receipts, checkpoints, tiles, conflicts, entries, runs, epochs, auditors, tokens, sinks, heads, logs, projects, admin_keys, tenants, operators';

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'belay-store-'));
  chmodSync(dir, 0o755);
  postgres = await startEmbedded(join(dir, 'data'));
  await migrate(postgres.connection, MIGRATIONS);
  store = new PgLogStore(postgres.connection, { role: 'belay_collector' });
});

afterAll(async () => {
  await store?.close();
  await postgres?.stop();
  rmSync(dir, { recursive: true, force: true });
});

beforeEach(async () => {
  const pool = openPool(postgres.connection);
  await pool.query(`truncate ${TABLES} cascade`);
  await pool.end();
});

const linesOf = (
  setup: Setup,
  sink: string,
  run: string,
  from: number,
  count: number,
  content = 'a',
): Buffer[] =>
  Array.from({ length: count }, (_, at) => line(setup.log.origin, sink, run, from + at, content));

/** The real store, whose transactions fail on demand with nothing applied, or after having been applied. */
class FaultyStore implements LogStore {
  readonly inner: PgLogStore;
  readonly faults: (Fault | undefined)[] = [];
  constructor(inner: PgLogStore) {
    this.inner = inner;
  }
  async transact<T>(log: LogRecord | NewLog, work: (tx: LogTx) => Promise<T>): Promise<T> {
    const fault = this.faults.shift();
    const result = await this.inner.transact(log, async (tx) => {
      const done = await work(tx);
      if (fault === 'before') throw new InjectedFault('before');
      return done;
    });
    if (fault === 'after') throw new InjectedFault('after');
    return result;
  }
  find: LogStore['find'] = (by) => this.inner.find(by);
  list: LogStore['list'] = () => this.inner.list();
  head: LogStore['head'] = (log) => this.inner.head(log);
  config: LogStore['config'] = (log) => this.inner.config(log);
  runs: LogStore['runs'] = (log, from, to) => this.inner.runs(log, from, to);
  lines: LogStore['lines'] = (log, from, to) => this.inner.lines(log, from, to);
  tile: LogStore['tile'] = (log, level, n) => this.inner.tile(log, level, n);
  epoch: LogStore['epoch'] = (log, sink, run) => this.inner.epoch(log, sink, run);
  policies: LogStore['policies'] = (log) => this.inner.policies(log);
  labels: LogStore['labels'] = (log) => this.inner.labels(log);
  statements: LogStore['statements'] = (log, digests) => this.inner.statements(log, digests);
  statement: LogStore['statement'] = (log, digest) => this.inner.statement(log, digest);
  checkpoint: LogStore['checkpoint'] = (log, size) => this.inner.checkpoint(log, size);
  receipt: LogStore['receipt'] = (log, scope, asOf) => this.inner.receipt(log, scope, asOf);
  createTenant: LogStore['createTenant'] = (tenant) => this.inner.createTenant(tenant);
}

function statementOf(n: number): CheckedStatement {
  const bytes = Buffer.from(`statement ${n}`);
  const digest = createHash('sha256').update(bytes).digest();
  return {
    bytes,
    digest,
    body: {
      kind: 'coverage.stated',
      v: 1,
      type: 'session',
      session: `s${n}`,
      statement: `sha256:${digest.toString('hex')}`,
      size: n,
      time: '2026-01-01T00:00:00.000Z',
      status: 'open',
      policy: `sha256:${'0'.repeat(64)}`,
    },
  };
}

/** Issues the next receipt of a session, as far as the store knows. */
async function issueOf(setup: Setup, n: number, asOf: number) {
  const scope = { type: 'session', session: String(n) } as const;
  const last = await setup.store.receipt(setup.log, scopeText(scope));
  const bytes = `receipt of ${n} as of ${asOf}`;
  const digest = createHash('sha256').update(bytes).digest();
  const id = `rcp_${n}_${asOf}`;
  return setup.sequencer.recordReceipt(
    PROJECT,
    { id, scope: scopeText(scope), asOf, digest, bytes, created: 5, disposition: 'open' },
    {
      kind: 'receipt.issued',
      v: 1,
      receipt: `sha256:${digest.toString('hex')}`,
      scope,
      asOf,
      ...(last && { supersedes: `sha256:${last.digest.toString('hex')}` }),
    },
  );
}

describe('PgLogStore', () => {
  it('answers as the store in memory does, whatever is sent and wherever a commit fails', async () => {
    const step = fc.oneof(
      {
        weight: 6,
        arbitrary: fc.record({
          kind: fc.constant('append' as const),
          sink: fc.nat(2),
          from: fc.integer({ min: 1, max: 30 }),
          count: fc.integer({ min: 1, max: 10 }),
          content: fc.constantFrom('a', 'a', 'b'),
        }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          kind: fc.constant('append' as const),
          sink: fc.nat(2),
          from: fc.integer({ min: 31, max: 200 }),
          count: fc.integer({ min: 200, max: 600 }),
          content: fc.constant('a'),
        }),
      },
      {
        weight: 1,
        arbitrary: fc.record({ kind: fc.constant('token' as const), n: fc.nat(3), revoke: fc.boolean() }),
      },
      {
        weight: 2,
        arbitrary: fc.record({
          kind: fc.constant('close' as const),
          sink: fc.nat(2),
          seq: fc.integer({ min: 1, max: 35 }),
          wait: fc.nat(4),
        }),
      },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('policy' as const), lateness: fc.nat(3) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('label' as const), call: fc.boolean() }) },
      {
        weight: 1,
        arbitrary: fc.record({
          kind: fc.constant('record' as const),
          of: fc.array(fc.nat(4), { maxLength: 3 }),
        }),
      },
      {
        weight: 2,
        arbitrary: fc.record({
          kind: fc.constant('receipt' as const),
          session: fc.nat(1),
          asOf: fc.integer({ min: 1, max: 6 }),
        }),
      },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart' as const) }) },
    );
    const fault = fc.option(fc.constantFrom('before' as const, 'after' as const), {
      nil: undefined,
      freq: 4,
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 3, maxLength: 14 }),
        fc.array(fault, { maxLength: 8 }),
        async (steps, faults) => {
          const pool = openPool(postgres.connection);
          await pool.query(`truncate ${TABLES} cascade`);
          await pool.end();
          const real = new FaultyStore(store);
          const memory = new MemoryLogStore();
          const both = [await setUp(real), await setUp(memory)] as const;
          real.faults.push(...faults);
          memory.faults.push(...faults);
          for (const action of steps) {
            for (const setup of both) setup.clock.now += 5;
            const answers = await Promise.all(
              both.map(async (setup) => {
                if (action.kind === 'restart') {
                  await setup.sequencer.close();
                  setup.sequencer = new Sequencer(setup.parts);
                  return null;
                }
                if (action.kind === 'token') {
                  const change = {
                    tenant: TENANT,
                    by: ADMIN,
                    project: PROJECT,
                    token: TOKEN.replace(/v$/, String(action.n)),
                  };
                  return action.revoke
                    ? setup.sequencer.change({ kind: 'token.revoke', ...change })
                    : setup.sequencer.change({
                        kind: 'token.issue',
                        ...change,
                        role: 'agent',
                        secretHash: Buffer.alloc(32),
                      });
                }
                if (action.kind === 'policy') {
                  const policy = { ...DEFAULT_POLICY, lateness: action.lateness, public: true };
                  const by = { tenant: TENANT, by: ADMIN, project: PROJECT };
                  return setup.sequencer.change({ kind: 'policy.set', ...by, policy });
                }
                if (action.kind === 'label') {
                  const call = action.call ? { call: `hmac-sha256:${'c'.repeat(64)}` } : {};
                  const by = { by: AUDITOR, project: PROJECT, session: 'a', ...call };
                  return setup.sequencer.change({ kind: 'label.set', ...by, says: 'violated' });
                }
                if (action.kind === 'record') {
                  return setup.sequencer.record(PROJECT, action.of.map(statementOf));
                }
                if (action.kind === 'receipt') return issueOf(setup, action.session, action.asOf);
                const run = epoch(action.sink);
                const sink = `s${action.sink}`;
                if (action.kind === 'close') setup.clock.now += action.wait * 1_000;
                const sent = request(
                  setup.log.origin,
                  sink,
                  run,
                  action.kind === 'close'
                    ? [closing(setup.log.origin, sink, run, action.seq)]
                    : linesOf(setup, sink, run, action.from, action.count, action.content),
                );
                const outcome = await setup.sequencer.append(sent);
                if (outcome.ok) verifyAck(setup.log, sent, outcome.value);
                return outcome;
              }),
            );
            expect(answers[0]).toEqual(answers[1]);
          }
          for (const setup of both) await mustBeSound(setup);
          const [a, b] = both;
          expect(await real.head(a.log)).toEqual(await memory.head(b.log));
          expect(await real.runs(a.log, 0, 10_000)).toEqual(await memory.runs(b.log, 0, 10_000));
          expect(await real.lines(a.log, 0, 10_000)).toEqual(await memory.lines(b.log, 0, 10_000));
          expect(await real.policies(a.log)).toEqual(await memory.policies(b.log));
          expect(await real.labels(a.log)).toEqual(await memory.labels(b.log));
          for (let n = 0; n < 3; n++) {
            expect(await real.epoch(a.log, n + 1, epoch(n))).toEqual(
              await memory.epoch(b.log, n + 1, epoch(n)),
            );
            expect(await real.receipt(a.log, `session:${n}`)).toEqual(
              await memory.receipt(b.log, `session:${n}`),
            );
          }
          const digests = [0, 1, 2, 3, 4].map((n) => statementOf(n).digest);
          expect(await real.statements(a.log, digests)).toEqual(await memory.statements(b.log, digests));
          for (const digest of digests) {
            expect(await real.statement(a.log, digest)).toEqual(await memory.statement(b.log, digest));
          }
        },
      ),
      { numRuns: Number(process.env['BELAY_RUNS'] ?? 15) },
    );
  });

  it('lets two collectors write one log, and neither forks it', async () => {
    const setup = await setUp(store);
    // Another process: an own sequencer, own connections, an anchor of its own.
    const second = new PgLogStore(postgres.connection, { role: 'belay_collector' });
    const other = new Sequencer({
      ...setup.parts,
      store: second,
      anchor: new (setup.anchor.constructor as new () => typeof setup.anchor)(),
    });
    await Promise.all(
      Array.from({ length: 60 }, async (_, at) => {
        const run = epoch(at % 6);
        const sink = `s${at % 6}`;
        const sent = request(
          setup.log.origin,
          sink,
          run,
          linesOf(setup, sink, run, 1 + Math.floor(at / 6) * 20, 20),
        );
        verifyAck(setup.log, sent, value(await (at % 2 ? setup.sequencer : other).append(sent)));
      }),
    );
    const report = await checkLog(store, setup.log);
    expect(report.findings).toEqual([]);
    expect(report.size).toBe(3 + 60 * 20);
    await second.close();
  });

  it('gives a retry fault when its connection is cut in the middle, and loses nothing', async () => {
    const setup = await setUp(store);
    const killer = openPool(postgres.connection);
    let stop = false;
    const killing = (async () => {
      while (!stop) {
        await killer.query(
          `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and query ilike '%for update%' or query = 'commit'`,
        );
        await new Promise((resolve) => setTimeout(resolve, 15));
      }
    })().catch(() => undefined);
    const indexes = new Map<number, number>();
    let retries = 0;
    let at = 0;
    for (; at < 40 || (retries < 3 && at < 2_000); at++) {
      const sent = request(setup.log.origin, 's', epoch(1), linesOf(setup, 's', epoch(1), 1 + at * 25, 25));
      for (;;) {
        const outcome = await setup.sequencer.append(sent);
        if (outcome.ok) {
          indexes.set(at, outcome.value.runs[0]?.index ?? -1);
          break;
        }
        expect(outcome.fault.kind).toBe('retry');
        retries++;
      }
    }
    stop = true;
    await killing;
    await killer.end();
    expect([...indexes.values()]).toEqual(Array.from({ length: at }, (_, n) => 3 + n * 25));
    await mustBeSound(setup);
    expect(retries).toBeGreaterThanOrEqual(3);
  });

  it('refuses a second project of one identifier, and one of a tenant that is not there', async () => {
    const setup = await setUp(store);
    const fresh: NewLog = { ...setup.log, name: 'x', public: false };
    delete (fresh as { log?: number }).log;
    await expect(store.transact(fresh, async () => undefined)).rejects.toThrow(StoreRefusal);
    const foreign = { ...fresh, id: `${fresh.id}x`, project: `${fresh.project}x`, tenant: 'ten_none' };
    await expect(store.transact(foreign, async () => undefined)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('may neither change nor delete an entry, whatever its code does', async () => {
    await setUp(store);
    const pool = openPool(postgres.connection, { role: 'belay_collector' });
    for (const table of [
      'entries',
      'runs',
      'tiles',
      'conflicts',
      'checkpoints',
      'receipts',
      'policies',
      'labels',
      'statements',
    ]) {
      await expect(pool.query(`delete from ${table}`)).rejects.toThrow(/permission denied/);
      await expect(pool.query(`update ${table} set log = log`)).rejects.toThrow(/permission denied/);
    }
    await pool.end();
    for (const role of ['belay_gateway', 'belay_worker'] as const) {
      const reader = openPool(postgres.connection, { role });
      await expect(reader.query("insert into entries values (1, 1, 'x')")).rejects.toThrow(
        /permission denied/,
      );
      await expect(reader.query('update heads set size = 0')).rejects.toThrow(/permission denied/);
      await reader.end();
    }
    const worker = openPool(postgres.connection, { role: 'belay_worker' });
    await expect(worker.query('select secret_hash from tokens')).rejects.toThrow(/permission denied/);
    await expect(worker.query('select secret from webhooks')).resolves.toMatchObject({ rowCount: 0 });
    for (const table of ['policies', 'labels', 'statements']) {
      await expect(worker.query(`insert into ${table} default values`)).rejects.toThrow(/permission denied/);
    }
    await worker.end();
    for (const role of ['belay_gateway', 'belay_collector'] as const) {
      const other = openPool(postgres.connection, { role });
      await expect(other.query('select secret from webhooks')).rejects.toThrow(/permission denied/);
      await expect(other.query('select * from webhooks')).rejects.toThrow(/permission denied/);
      for (const table of ['reconciled', 'epoch_states', 'sink_states', 'sessions', 'session_runs']) {
        await expect(other.query(`delete from ${table}`)).rejects.toThrow(/permission denied/);
      }
      await other.end();
    }
  });

  it('finds damage of every kind when the whole log is checked', async () => {
    const setup = await setUp(store);
    value(
      await setup.sequencer.append(
        request(setup.log.origin, 's', epoch(1), linesOf(setup, 's', epoch(1), 1, 600)),
      ),
    );
    value(
      await setup.sequencer.append(
        request(setup.log.origin, 's', epoch(1), linesOf(setup, 's', epoch(1), 2, 1, 'b')),
      ),
    );
    const pool = openPool(postgres.connection);
    const damage: [string, string][] = [
      [
        `update entries set line = replace(convert_from(line, 'utf8'), '"seq":7,', '"seq":8,')::bytea where index = 9`,
        'head',
      ],
      ['delete from entries where index = 300', 'hole'],
      [
        `update runs set token = 'tok_00000000000000000000000000' where sink > 0 and conflict is null`,
        'token',
      ],
      [`update runs set received = received - interval '1 day' where conflict is not null`, 'time'],
      [`update tiles set hashes = overlay(hashes placing '\\x00'::bytea from 9)`, 'tile'],
      ['update heads set size = size - 1', 'head'],
      [`update tokens set revoked_index = 5`, 'state'],
      ['update epochs set next_seq = 3', 'seq'],
      ['update runs set conflict = 9 where conflict is not null', 'conflict'],
      [`update logs set public_key = decode(repeat('00', 32), 'hex')`, 'genesis'],
      ["update sinks set key = null, name = 't' where sink = 1", 'entry'],
      ['update runs set late = true where sink > 0', 'late'],
      ['update epochs set closed = to_timestamp(1)', 'state'],
      ['delete from policies', 'state'],
    ];
    for (const [sql, code] of damage) {
      const client = await pool.connect();
      await client.query('begin');
      await client.query(sql);
      await client.query('commit');
      const fresh = new PgLogStore(postgres.connection);
      const record = (await fresh.find({ id: setup.log.id })) as LogRecord;
      const report = await checkLog(fresh, record, { anchor: setup.anchor });
      expect(
        report.findings.map((finding) => finding.code),
        sql,
      ).toContain(code);
      await fresh.close();
      client.release();
      await pool.query(`truncate ${TABLES} cascade`);
      const again = await setUp(store);
      Object.assign(setup, again);
      value(
        await setup.sequencer.append(
          request(setup.log.origin, 's', epoch(1), linesOf(setup, 's', epoch(1), 1, 600)),
        ),
      );
      value(
        await setup.sequencer.append(
          request(setup.log.origin, 's', epoch(1), linesOf(setup, 's', epoch(1), 2, 1, 'b')),
        ),
      );
    }
    await pool.end();
  });
});

describe('Reader', () => {
  it('reads entries, events, tiles and proofs that lead to the head', async () => {
    const setup = await setUp(store);
    for (let at = 0; at < 6; at++) {
      const sink = `s${at % 2}`;
      value(
        await setup.sequencer.append(
          request(
            setup.log.origin,
            sink,
            epoch(at % 2),
            linesOf(setup, sink, epoch(at % 2), 1 + Math.floor(at / 2) * 100, 100),
          ),
        ),
      );
    }
    const db = openDatabase(postgres.connection, { role: 'belay_gateway' });
    const reader = new Reader(db);
    const log = await reader.projectLog(PROJECT);
    if (!log) throw new Error('no log');
    const head = await reader.head(log);
    expect(head?.size).toBe(603);
    const entries = await reader.entries(log, { from: 0, to: 603 });
    expect(entries).toHaveLength(603);
    entries.forEach((entry, index) => expect(parseEntry(entry).line.index).toBe(index));
    const zero = await reader.tile(log, 0, 0, 256);
    expect(zero).toEqual(Buffer.concat(entries.slice(0, 256).map((entry) => leafHash(entry))));
    expect(await reader.tile(log, 0, 2, 91)).toEqual(
      Buffer.concat(entries.slice(512, 603).map((entry) => leafHash(entry))),
    );
    expect(await reader.tile(log, 0, 2, 92)).toBeUndefined();
    expect(await reader.tile(log, 1, 0, 2)).toEqual(
      Buffer.concat([
        hashTile(zero as Buffer, 0, 256),
        hashTile((await reader.tile(log, 0, 1, 256)) as Buffer, 0, 256),
      ]),
    );
    for (const index of [0, 255, 256, 511, 512, 602]) {
      verifyInclusion({
        index: BigInt(index),
        size: 603n,
        leaf: leafHash(entries[index] as Buffer),
        root: head?.root as Buffer,
        proof: await reader.proof(log, inclusionPlan(BigInt(index), 603n)),
      });
    }
    const events = await reader.events(log, { sink: 's1', from: 0, limit: 1_000 });
    expect(events).toHaveLength(300);
    expect(events.every((event) => parseEntry(event.entry).line.sink === 's1')).toBe(true);
    const page = await reader.events(log, {
      sink: 's1',
      epoch: epoch(1),
      from: (events[149] as { index: number }).index + 1,
      limit: 70,
    });
    expect(page.map((event) => event.index)).toEqual(events.slice(150, 220).map((event) => event.index));
    expect(await reader.events(log, { sink: 'none', from: 0, limit: 10 })).toEqual([]);
    expect(await reader.grownLogs(10)).toMatchObject([{ size: 603, published: 0 }]);
    await db.destroy();
  });
});
