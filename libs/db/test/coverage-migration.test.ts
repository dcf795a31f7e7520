import { chmodSync, copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type EmbeddedPostgres,
  encodeByteaArray,
  migrate,
  MIGRATIONS,
  openPool,
  PgLogStore,
  startEmbedded,
} from '@belay/db';
import { entryMaker, formatCollectorBody } from '@belay/envelope';
import { checkLog, type LogRecord, Sequencer } from '@belay/log';
import { CompactRange, leafHash } from '@belay/merkle';
import { formatVkey } from '@belay/note';
import {
  ADMIN,
  AUDITOR,
  closing,
  epoch,
  line,
  MemoryAnchor,
  PROJECT,
  request,
  setUp,
  type Setup,
  TENANT,
  TOKEN,
  value,
  verifyAck,
} from '@belay/testkit';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { epochToUuid } from '../src/epoch.js';

/** Before commits had times of their own, and policies were whole. */
const RECEIVED = Date.UTC(2026, 0, 1);

let dir: string;
let postgres: EmbeddedPostgres;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'belay-0003-'));
  chmodSync(dir, 0o755);
  postgres = await startEmbedded(join(dir, 'data'));
});

afterAll(async () => {
  await postgres?.stop();
  rmSync(dir, { recursive: true, force: true });
});

it('a log that was written before coverage is sound after the migration, and goes on', async () => {
  const folder = mkdtempSync(join(dir, 'before-'));
  for (const name of readdirSync(MIGRATIONS)) {
    if (name < '0003') copyFileSync(join(MIGRATIONS, name), join(folder, name));
  }
  await migrate(postgres.connection, folder);
  // The identifiers and keys of a project, and no entry of it.
  const setup = await setUp();
  const head = await writeAsBefore(setup);
  expect(await migrate(postgres.connection, MIGRATIONS)).toEqual(
    readdirSync(MIGRATIONS)
      .filter((name) => name >= '0003')
      .sort(),
  );

  const store = new PgLogStore(postgres.connection, { role: 'belay_collector' });
  try {
    const log = (await store.find({ project: PROJECT })) as LogRecord;
    const anchor = new MemoryAnchor();
    await anchor.record(log.origin, head.size, head.root);
    const sound = await checkLog(store, log, { anchor });
    expect(sound.findings).toEqual([]);
    expect(sound.size).toBe(304);
    expect(await store.policies(log)).toEqual([0, 3]);
    const { policy } = await store.config(log);
    expect(policy).toMatchObject({ public: true, lateness: 120 });

    let now = RECEIVED;
    const sequencer = new Sequencer({ ...setup.parts, store, anchor, now: () => now });
    await sequencer.start();
    const send = async (...lines: Buffer[]) => {
      const sent = request(log.origin, 's', epoch(1), lines);
      const ack = value(await sequencer.append(sent));
      verifyAck(log, sent, ack);
      return ack.runs[0];
    };
    const one = (seq: number) => line(log.origin, 's', epoch(1), seq);
    const again = await send(one(7));
    expect(again).toMatchObject({ disposition: 'duplicate', received: new Date(RECEIVED).toISOString() });
    const next = await send(one(301));
    expect(next).toMatchObject({ disposition: 'appended', received: new Date(RECEIVED + 1).toISOString() });
    // That this epoch was closed before, nobody kept; that it is closed now, is.
    now += 3_600_000;
    const unmarked = await send(one(302));
    expect(unmarked?.late).toBeUndefined();
    await send(closing(log.origin, 's', epoch(1), 303));
    now += 3_600_000;
    const late = await send(one(304));
    expect(late?.late).toBe(true);
    const after = await checkLog(store, log, { anchor });
    expect(after.findings).toEqual([]);
    expect(after.size).toBe(308);
  } finally {
    await store.close();
  }
});

/** Rows as the collector before wrote them: two commits of one time, the second of which closes an epoch. */
async function writeAsBefore({ log }: Setup) {
  const bodies = [
    formatCollectorBody({
      kind: 'log.genesis',
      v: 1,
      log: log.origin,
      vkey: formatVkey(log.origin, log.publicKey),
      ackKey: formatVkey(`${log.origin}/ack`, log.publicKey),
      project: PROJECT,
      name: 'Größe "x"',
      x5c: [],
      policy: { public: false },
    }),
    formatCollectorBody({ kind: 'token.issued', v: 1, token: TOKEN, role: 'sink', by: ADMIN }),
    formatCollectorBody({ kind: 'auditor.issued', v: 1, auditor: AUDITOR, by: ADMIN }),
    formatCollectorBody({ kind: 'policy.set', v: 1, policy: { public: true }, by: ADMIN }),
  ];
  const lines = Array.from({ length: 300 }, (_, at) =>
    at === 299 ? closing(log.origin, 's', epoch(1), 300) : line(log.origin, 's', epoch(1), at + 1),
  );
  const received = new Date(RECEIVED).toISOString();
  const own = entryMaker({ log: log.origin, received, role: 'collector' });
  const sent = entryMaker({ log: log.origin, received, role: 'sink', token: TOKEN, sink: 's' });
  const range = CompactRange.empty();
  const leaves = [...bodies, ...lines].map((body, index) =>
    leafHash((index < 4 ? own : sent).entry(index, body)),
  );
  for (const leaf of leaves) range.append(leaf);

  const pool = openPool(postgres.connection);
  try {
    await pool.query({ text: 'insert into tenants (id, name) values ($1, $1)', values: [TENANT] });
    await pool.query({
      text: 'insert into projects (id, tenant, name) values ($1, $2, $1)',
      values: [PROJECT, TENANT],
    });
    const { rows } = await pool.query({
      text: `insert into logs (id, project, origin, public_key, x5c, public)
             values ($1, $2, $3, $4, '{}', true) returning log`,
      values: [log.id, PROJECT, log.origin, log.publicKey],
    });
    const { log: key } = rows[0] as { log: number };
    await pool.query({
      text: `insert into heads (log, size, root, frontier, received, config) values ($1, 304, $2, $3, $4, 2)`,
      values: [key, range.root(), Buffer.concat(range.hashes), received],
    });
    await pool.query({ text: "insert into sinks (log, sink, name) values ($1, 1, 's')", values: [key] });
    await pool.query({
      text: `insert into tokens (id, log, secret_hash, role, issued_by, issued_index) values ($1, $2, $3, 'sink', $4, 1)`,
      values: [TOKEN, key, Buffer.alloc(32), ADMIN],
    });
    await pool.query({
      text: `insert into auditors (id, log, secret_hash, issued_by, issued_index) values ($1, $2, $3, $4, 2)`,
      values: [AUDITOR, key, Buffer.alloc(32), ADMIN],
    });
    await pool.query({
      text: 'insert into epochs (log, sink, epoch, next_seq) select log, sink, epoch, 301 from (values ($1::bigint, 1, $2::uuid)) as t(log, sink, epoch)',
      values: [key, epochToUuid(epoch(1))],
    });
    const nil = '00000000-0000-0000-0000-000000000000';
    for (const [first, count, sink, run, token, role] of [
      [0, 3, 0, nil, '', 'collector'],
      [3, 1, 0, nil, '', 'collector'],
      [4, 150, 1, epochToUuid(epoch(1)), TOKEN, 'sink'],
      [154, 150, 1, epochToUuid(epoch(1)), TOKEN, 'sink'],
    ]) {
      await pool.query({
        text: `insert into runs (log, first, count, sink, epoch, first_seq, token, role, received)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
        values: [key, first, count, sink, run, sink === 0 ? 0 : (first as number) - 3, token, role, received],
      });
    }
    await pool.query({
      text: `insert into entries (log, index, line)
             select $1, t.o - 1, t.line from unnest($2::bytea[]) with ordinality as t(line, o)`,
      values: [key, encodeByteaArray([...bodies, ...lines])],
    });
    await pool.query({
      text: 'insert into tiles (log, level, n, hashes) values ($1, 0, 0, $2)',
      values: [key, Buffer.concat(leaves.slice(0, 256))],
    });
  } finally {
    await pool.end();
  }
  return { size: 304, root: range.root() };
}
