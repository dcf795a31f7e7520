import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import type {
  CoverageReply,
  DeliveryList,
  ExportJob,
  ExportList,
  Problem,
  SessionDetail,
  SessionList,
  WebhookCreated,
  WebhookList,
} from '@belay/contracts/http';
import { LogCoverage } from '@belay/coverage';
import { type LogRow, openDatabase, SessionReader } from '@belay/db';
import { newUlid } from '@belay/envelope';
import { createGateway, type Gateway, GATEWAY_DEFAULTS } from '@belay/gateway';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { openParts, type Parts, source } from '../harness/parts.js';
import { makeScratch } from '../harness/scratch.js';
import type { Service } from '../harness/service.js';
import { as, Tenant } from '../harness/tenant.js';

/**
 * The real gateway on a real database with no worker behind it: its rows are written here, so that each of the states
 * it passes through in a moment can be looked at for as long as it takes.
 */

const scratch = makeScratch('exports');
const exportDir = join(scratch.dir, 'exports');
let parts: Parts;
let gateway: Gateway;
let service: Service;
let tenant: Tenant;
let log: LogRow;
let worker: ReturnType<typeof openDatabase>;

const CONFIG = {
  ...GATEWAY_DEFAULTS,
  port: 0,
  exportDir,
  maxOpenExports: 2,
  maxExports: 3,
  maxDownloads: 4,
  maxWaiters: 8,
  maxWebhooks: 2,
};
const start = () =>
  createGateway({
    config: CONFIG,
    collector: parts.collector.service,
    reader: parts.reader,
    log: parts.log,
    source,
  });

beforeAll(async () => {
  mkdirSync(exportDir);
  parts = await openParts();
  worker = openDatabase(parts.connection, { role: 'belay_worker', size: 2 });
  gateway = await start();
  service = {
    url: await gateway.listen(),
    operatorKey: parts.operatorKey,
    logs: parts.logs,
    close: () => Promise.resolve(),
  };
  tenant = await Tenant.create(service, 'acme');
  log = await logOf(tenant);
});
afterAll(async () => {
  await worker?.destroy();
  await gateway?.close();
  await parts?.close();
  scratch.remove();
});

async function logOf(of: Tenant): Promise<LogRow> {
  const found = await parts.reader.projectLog(of.project.project);
  if (!found) throw new Error('no such project');
  return found;
}

async function until(is: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!(await is())) {
    if (Date.now() > deadline) throw new Error('it never came to that');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const waiting = async () => {
  const { text } = await request(service.url).get('/metrics');
  return Number(/^belay_requests_waiting (\d+)$/m.exec(text)?.[1]);
};

const problemOf = (answer: request.Response) => {
  const body: unknown = Buffer.isBuffer(answer.body) ? JSON.parse(answer.body.toString()) : answer.body;
  const { code, field } = body as Problem;
  return [answer.status, code, field];
};

const ulidAt = (time: number) => newUlid(time, Buffer.alloc(10));

let nextIndex = 10;
/** Stores a session as the worker does, before anybody looked at it. */
async function storeSession(session: string, more: object = {}, of: LogRow = log): Promise<void> {
  const index = nextIndex++;
  await worker
    .insertInto('sessions')
    .values({
      log: of.log,
      session,
      state: '{}',
      began: new Date(Date.UTC(2026, 0, 1) + index * 1000),
      began_index: index,
      last: new Date(Date.UTC(2026, 0, 1) + index * 1000),
      last_index: index,
      dirty: new Date(),
      ...more,
    } as never)
    .execute();
}

async function reconcile(through: number, of: LogRow = log): Promise<void> {
  await worker
    .insertInto('reconciled')
    .values({ log: of.log, through, state: 'null' })
    .onConflict((conflict) => conflict.column('log').doUpdateSet({ through }))
    .execute();
}

const sizeOf = async (of: LogRow = log) => (await parts.reader.head(of))?.size ?? 0;

/** A row of a receipt, as the collector would have stored it. */
async function storeReceipt(scope: string, asOf: number, disposition: string): Promise<string> {
  const id = `rcp_${randomBytes(13).toString('hex')}`;
  const owner = openDatabase(parts.connection);
  try {
    await owner
      .insertInto('receipts')
      .values({
        id,
        log: log.log,
        scope,
        as_of: asOf,
        digest: createHash('sha256').update(id).digest(),
        bytes: `{"receipt":"${id}"}`,
        index: asOf,
        created: new Date(),
        disposition,
      })
      .execute();
  } finally {
    await owner.destroy();
  }
  return id;
}

async function settle(session: string, disposition: string): Promise<string> {
  const receipt = await storeReceipt(`session:${session}`, (nextIndex += 1), disposition);
  await worker
    .updateTable('sessions')
    .set({ disposition, coverage: 'complete', closed: true, receipt, dirty: null })
    .where('log', '=', log.log)
    .where('session', '=', session)
    .execute();
  return receipt;
}

describe('a list of sessions', () => {
  it('has a thousand in pages, the newest first, each once, while more come', async () => {
    const other = await Tenant.create(service, 'many');
    const theirs = await logOf(other);
    const values = Array.from({ length: 1000 }, (_, i) => ({
      log: theirs.log,
      session: `s-${i}`,
      state: '{}',
      began: new Date(Date.UTC(2026, 0, 1) + i * 60_000),
      began_index: 10 + i,
      last: new Date(Date.UTC(2026, 0, 1) + i * 60_000),
      last_index: 10 + i,
      disposition: i % 100 === 0 ? 'contested' : 'affirmed',
      summary: JSON.stringify({ calls: i, verdicts: { PASS: i }, kinds: ['agent'], levels: {} }),
    }));
    await worker.insertInto('sessions').values(values).execute();
    const get = async (query: string) =>
      (await other.asAuditor('get', other.path(`/sessions${query}`)).expect(200)).body as SessionList;
    const found: string[] = [];
    let page = await get('?limit=300');
    await storeSession('late', { began_index: 5000 }, theirs);
    for (;;) {
      found.push(...page.sessions.map(({ session }) => session));
      if (page.next === undefined) break;
      page = await get(`?limit=300&cursor=${page.next}`);
    }
    expect(found).toEqual(values.map(({ session }) => session).reverse());
    const contested = await get('?disposition=contested');
    expect(contested.sessions).toHaveLength(10);
    expect(contested.sessions[0]).toEqual({
      session: 's-900',
      kinds: ['agent'],
      began: '2026-01-01T15:00:00.000Z',
      beganIndex: 910,
      last: '2026-01-01T15:00:00.000Z',
      lastIndex: 910,
      closed: false,
      disposition: 'contested',
      settled: false,
      calls: 900,
      verdicts: { PASS: 900, WARN: 0, FAIL: 0, UNVERIFIED: 0 },
      levels: {},
    });
    const hour = await get('?from=2026-01-01T01:00:00Z&to=2026-01-01T03:00:00%2B01:00');
    expect(hour.sessions.map(({ session }) => session)).toEqual(
      Array.from({ length: 60 }, (_, i) => `s-${119 - i}`),
    );
    // Nothing of it is anybody else's.
    const mine = (await tenant.asAuditor('get', tenant.path('/sessions'))).body as SessionList;
    expect(mine.sessions).toEqual([]);
  });
});

describe('waiting for a session', () => {
  it('answers as soon as it has settled, and many who wait cost one query a moment', async () => {
    const ask = vi.spyOn(SessionReader.prototype, 'progress');
    await storeSession('one');
    await reconcile(await sizeOf());
    const answers = Array.from({ length: 4 }, () =>
      tenant
        .asAuditor('get', tenant.path('/sessions/one?wait=30'))
        .then(({ status, body }) => ({ status, body })),
    );
    await until(async () => (await waiting()) === 4);
    ask.mockClear();
    await until(() => ask.mock.calls.length >= 3);
    // All four are one question.
    expect(ask.mock.calls.every(([asked]) => asked.length === 1)).toBe(true);
    const open = await settle('one', 'open');
    const before = ask.mock.calls.length;
    await until(() => ask.mock.calls.length > before + 1);
    expect(await waiting()).toBe(4);
    const receipt = await settle('one', 'violated');
    for (const { status, body } of await Promise.all(answers)) {
      expect(status).toBe(200);
      const detail = body as SessionDetail;
      expect(detail).toMatchObject({ session: 'one', settled: true, disposition: 'violated' });
      expect(detail.receipts.map(({ id }) => id)).toEqual([receipt, open]);
      expect(detail.receipts[0]?.supersedes).toBe(detail.receipts[1]?.digest);
      expect(detail.receipts[1]?.supersedes).toBeUndefined();
    }
    await until(async () => (await waiting()) === 0);
    const quiet = ask.mock.calls.length;
    // Nobody waits: nothing is asked. That something does not happen takes a time to see: more than one round of 250 ms.
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(ask.mock.calls.length - quiet).toBeLessThanOrEqual(1);
    ask.mockRestore();
  });

  it('is over every entry that the log has when it is asked for', async () => {
    await storeSession('two');
    await settle('two', 'affirmed');
    await reconcile((await sizeOf()) - 1);
    const settled = (await tenant.asAuditor('get', tenant.path('/sessions/two'))).body as SessionDetail;
    expect(settled.settled).toBe(true);
    const short = (await tenant.asAuditor('get', tenant.path('/sessions/two?wait=1'))).body as SessionDetail;
    expect(short).toMatchObject({ settled: false, disposition: 'affirmed' });
    const answer = tenant
      .asAuditor('get', tenant.path('/sessions/two?wait=30'))
      .then(({ body }) => body as unknown);
    await until(async () => (await waiting()) === 1);
    await reconcile(await sizeOf());
    expect(await answer).toMatchObject({ settled: true });
  });

  it('ends with nothing for an auditor whose key was revoked meanwhile', async () => {
    await storeSession('revoked');
    const issued = await tenant.asAdmin('post', tenant.path('/auditors')).send({}).expect(201);
    const { id, credential } = issued.body as { id: string; credential: string };
    await reconcile(await sizeOf());
    const answers = ['/sessions/revoked?wait=30', '/receipts?session=revoked&wait=30'].map((path) =>
      as(service, credential, 'get', tenant.path(path)).then((answer) => answer),
    );
    await until(async () => (await waiting()) === 2);
    await tenant.asAdmin('delete', tenant.path(`/auditors/${id}`)).expect(200);
    await settle('revoked', 'violated');
    for (const answer of await Promise.all(answers)) {
      expect(problemOf(answer)).toEqual([401, 'token_revoked', undefined]);
      expect(answer.headers['belay-receipt-id']).toBeUndefined();
    }
    // The key's entries are in the log.
    await reconcile(await sizeOf());
  });

  it('may begin before the session does, and ends when it never does', async () => {
    const never = tenant.asAuditor('get', tenant.path('/sessions/never?wait=1')).then(({ status }) => status);
    const answer = tenant
      .asAuditor('get', tenant.path('/sessions/soon?wait=30'))
      .then(({ status }) => status);
    await until(async () => (await waiting()) === 2);
    await storeSession('soon');
    await settle('soon', 'incomplete');
    expect(await answer).toBe(200);
    expect(await never).toBe(404);
  });

  it('of its receipt gives none that something newer waits to take the place of', async () => {
    await storeSession('three');
    await reconcile(await sizeOf());
    const get = (query: string) => tenant.asAuditor('get', tenant.path(`/receipts?session=three${query}`));
    expect(problemOf(await get(''))).toEqual([409, 'not_published', undefined]);
    const id = await settle('three', 'affirmed');
    const answer = await get('&wait=5').expect(200);
    expect(answer.headers['belay-receipt-id']).toBe(id);
    expect(answer.headers['content-type']).toMatch(/^application\/vnd\.dsse/);
    await worker.updateTable('sessions').set({ dirty: new Date() }).where('session', '=', 'three').execute();
    await get('').expect(200);
    const late = await get('&wait=1');
    expect(problemOf(late)).toEqual([409, 'not_published', undefined]);
    expect(late.headers['retry-after']).toBe('1');
    expect(problemOf(await tenant.asAuditor('get', tenant.path('/receipts?session=nobody')))).toEqual([
      404,
      'not_found',
      undefined,
    ]);
  });

  it('has a limit, half of it for one project', async () => {
    const held = Array.from({ length: 4 }, () =>
      tenant.asAuditor('get', tenant.path('/sessions/limit?wait=30')).then(({ status }) => status),
    );
    await until(async () => (await waiting()) === 4);
    const fifth = await tenant.asAuditor('get', tenant.path('/sessions/limit?wait=30'));
    expect(problemOf(fifth)).toEqual([503, 'overloaded', undefined]);
    expect(fifth.headers['retry-after']).toBe('5');
    // Who does not wait is not kept out, and neither are others.
    await tenant.asAuditor('get', tenant.path('/sessions/limit')).expect(404);
    const other = await Tenant.create(service, 'other');
    await other.asAuditor('get', other.path('/sessions/limit?wait=1')).expect(404);
    await storeSession('limit');
    await settle('limit', 'affirmed');
    await reconcile(await sizeOf());
    expect(await Promise.all(held)).toEqual([200, 200, 200, 200]);
  });

  it('ends when the client goes', async () => {
    const asking = http.get(`${service.url}${tenant.path('/sessions/gone?wait=60')}`, {
      headers: { authorization: `Bearer ${tenant.project.auditor.credential}` },
    });
    asking.on('error', () => undefined);
    await until(async () => (await waiting()) === 1);
    asking.destroy();
    await until(async () => (await waiting()) === 0);
  });
});

describe('a receipt of a period', () => {
  const period = '2026-01-01T00:00:00Z..2026-02-01T00:00:00.5+01:00';
  const get = (query = '', of = period) =>
    tenant.asAuditor('get', tenant.path(`/receipts?period=${encodeURIComponent(of)}${query}`));
  const jobs = () =>
    worker.selectFrom('jobs').selectAll().where('kind', '=', 'period').orderBy('id').execute();

  it('is a job of the worker, which is waited for and joined', async () => {
    expect(problemOf(await get())).toEqual([409, 'not_published', undefined]);
    const [job, ...others] = await jobs();
    expect(others).toEqual([]);
    expect(job).toMatchObject({
      log: log.log,
      state: 'queued',
      by: tenant.project.auditor.id,
      spec: { from: '2026-01-01T00:00:00.000Z', to: '2026-01-31T23:00:00.500Z' },
    });
    const answer = get('&wait=30').then((one) => one);
    await until(async () => (await waiting()) === 1);
    expect(await jobs()).toHaveLength(1);
    const scope = 'period:2026-01-01T00:00:00.000Z..2026-01-31T23:00:00.500Z';
    const receipt = await storeReceipt(scope, 7777, 'affirmed');
    await worker
      .updateTable('jobs')
      .set({ state: 'done', receipt, finished: new Date() })
      .where('id', '=', job?.id ?? '')
      .execute();
    expect((await answer).headers['belay-receipt-id']).toBe(receipt);
    // A moment later it is given again; who does not wait gets the last one there is, however old.
    expect((await get('&wait=5').expect(200)).headers['belay-receipt-id']).toBe(receipt);
    await worker
      .updateTable('jobs')
      .set({ finished: new Date(Date.now() - 3_600_000) })
      .execute();
    expect((await get().expect(200)).headers['belay-receipt-id']).toBe(receipt);
    expect(await jobs()).toHaveLength(1);
    const anew = get('&wait=30').then(({ status, body }) => [status, (body as Problem).detail]);
    await until(async () => (await jobs()).length === 2);
    await worker
      .updateTable('jobs')
      .set({ state: 'failed', error: 'the disk is full' })
      .where('state', '=', 'queued')
      .execute();
    expect(await anew).toEqual([500, 'The receipt could not be made: the disk is full']);
  });

  it('is not asked for in any number', async () => {
    for (let day = 1; day <= 8; day++) {
      await get('', `2026-03-0${day}T00:00:00Z..2026-04-01T00:00:00Z`).expect(409);
    }
    const ninth = await get('', `2026-03-09T00:00:00Z..2026-04-01T00:00:00Z`);
    expect(problemOf(ninth)).toEqual([429, 'rate_limited', undefined]);
  });
});

describe('coverage', () => {
  it('is not made from more than fits an answer, and says how to ask for less', async () => {
    const other = await Tenant.create(service, 'restless');
    const theirs = await logOf(other);
    const get = (query: string) => other.asAuditor('get', other.path(`/coverage${query}`));
    // Before the worker has looked at anything.
    expect((await get('').expect(200)).body).toEqual({
      log: theirs.origin,
      size: await sizeOf(theirs),
      reconciled: 0,
      statements: [],
    });
    expect(problemOf(await get('?sink=proxy'))).toEqual([404, 'not_found', undefined]);
    const coverage = new LogCoverage({ log: theirs.origin });
    for (let i = 0; i < 5_001; i++) coverage.epoch('proxy', ulidAt(i));
    const epochs = [...coverage.epochs].map((epoch) => ({
      log: theirs.log,
      sink: 'proxy',
      epoch: epoch.epoch,
      state: JSON.stringify(epoch.state()),
    }));
    for (let at = 0; at < epochs.length; at += 1000) {
      await worker
        .insertInto('epoch_states')
        .values(epochs.slice(at, at + 1000))
        .execute();
    }
    await worker
      .insertInto('sink_states')
      .values({ log: theirs.log, sink: 'proxy', state: JSON.stringify(coverage.chain('proxy').state()) })
      .execute();
    await worker
      .insertInto('reconciled')
      .values({
        log: theirs.log,
        through: 5,
        state: JSON.stringify({ v: 1, coverage: coverage.state(), standing: [] }),
      })
      .execute();
    expect(problemOf(await get('?sink=proxy'))).toEqual([413, 'range_too_large', 'sink']);
    expect(problemOf(await get(''))).toEqual([413, 'range_too_large', 'sink']);
    const one = (await get(`?sink=proxy&epoch=${ulidAt(7)}`).expect(200)).body as CoverageReply;
    expect(one).toMatchObject({
      reconciled: 5,
      statements: [{ type: 'epoch', epoch: ulidAt(7), asOf: { size: 5 } }],
    });
    await worker
      .deleteFrom('epoch_states')
      .where('log', '=', theirs.log)
      .where('epoch', '>', ulidAt(10))
      .execute();
    expect((await get('?sink=proxy').expect(200)).body).toMatchObject({ statements: [{ type: 'sink' }] });
    // Few, but long.
    await worker
      .updateTable('epoch_states')
      .set({ state: JSON.stringify({ v: 1, filler: 'x'.repeat(9 * 1024 * 1024) }) })
      .where('log', '=', theirs.log)
      .where('epoch', '=', ulidAt(9))
      .execute();
    expect(problemOf(await get('?sink=proxy'))).toEqual([413, 'range_too_large', 'sink']);
    await get(`?sink=proxy&epoch=${ulidAt(8)}`).expect(200);
  });

  it('of many sinks comes in pages', async () => {
    const other = await Tenant.create(service, 'wide');
    const theirs = await logOf(other);
    const coverage = new LogCoverage({ log: theirs.origin });
    const names = Array.from({ length: 60 }, (_, i) => `sink-${String(i).padStart(2, '0')}`);
    await worker
      .insertInto('sink_states')
      .values(
        names.map((sink) => ({
          log: theirs.log,
          sink,
          state: JSON.stringify(coverage.chain(sink).state()),
        })),
      )
      .execute();
    await worker
      .insertInto('reconciled')
      .values({
        log: theirs.log,
        through: 5,
        state: JSON.stringify({ v: 1, coverage: coverage.state(), standing: [] }),
      })
      .execute();
    const get = async (query: string) =>
      (await other.asAuditor('get', other.path(`/coverage${query}`)).expect(200)).body as CoverageReply;
    const first = await get('');
    expect(first.statements).toHaveLength(50);
    const second = await get(`?cursor=${first.next}`);
    expect(second.next).toBeUndefined();
    expect(
      [...first.statements, ...second.statements].map((one) => (one.type === 'sink' ? one.sink : '')),
    ).toEqual(names);
  });
});

describe('exports', () => {
  const path = (tail = '') => tenant.path(`/exports${tail}`);
  const create = (body: object = {}) => tenant.asAuditor('post', path()).send(body);
  const finish = async (id: string, content: Buffer, name = `${id}.zip`) => {
    writeFileSync(join(exportDir, name), content);
    await worker
      .updateTable('jobs')
      .set({
        state: 'done',
        phase: 'done',
        file: name,
        bytes: content.length,
        sha256: createHash('sha256').update(content).digest(),
        finished: new Date(),
      })
      .where('id', '=', id)
      .execute();
  };
  const content = randomBytes(300_000);
  const file = (id: string, headers: Record<string, string> = {}, method: 'get' | 'head' = 'get') =>
    as(service, tenant.project.auditor.credential, method, path(`/${id}/file`))
      .set(headers)
      .buffer(true)
      .parse((response, done) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => done(null, Buffer.concat(chunks)));
        response.on('error', done);
        response.on('aborted', () => done(new Error('aborted'), Buffer.concat(chunks)));
      });
  let id: string;

  it('are of sessions that entries name, also of those that no worker has seen', async () => {
    const unknown = await create({ sessions: ['a', 'b'] });
    expect(problemOf(unknown)).toEqual([404, 'not_found', 'sessions.0']);
    const [first, ...more] = ['a', 'b'].map((session) => tenant.sink('named').line({ session }));
    await tenant.append([first as string]);
    const half = await create({ sessions: ['a', 'b'] });
    expect(problemOf(half)).toEqual([404, 'not_found', 'sessions.1']);
    await tenant.append(more);
    const list = (await tenant.asAuditor('get', path()).expect(200)).body as ExportList;
    expect(list.exports).toEqual([]);
  });

  it('are jobs, a few of them at once, with what was asked in one form', async () => {
    const first = (
      await create({
        sessions: ['b', 'a', 'b'],
        oscal: true,
      }).expect(202)
    ).body as ExportJob;
    expect(first).toMatchObject({
      state: 'queued',
      done: 0,
      request: { sessions: ['a', 'b'], oscal: true },
      sessions: 2,
      by: tenant.project.auditor.id,
    });
    const second = (
      await create({ period: { from: '2026-01-01T00:00:00Z', to: '2026-02-01T00:00:00Z' } }).expect(202)
    ).body as ExportJob;
    expect(second.request).toEqual({
      period: { from: '2026-01-01T00:00:00.000Z', to: '2026-02-01T00:00:00.000Z' },
    });
    const third = await create();
    expect(problemOf(third)).toEqual([429, 'rate_limited', undefined]);
    expect(third.headers['retry-after']).toBe('10');
    const list = (await tenant.asAuditor('get', path()).expect(200)).body as ExportList;
    expect(list.exports.map((one) => one.id)).toEqual([second.id, first.id]);
    const page = (await tenant.asAuditor('get', path('?limit=1')).expect(200)).body as ExportList;
    expect(page.exports.map((one) => one.id)).toEqual([second.id]);
    const rest = (await tenant.asAuditor('get', path(`?limit=1&cursor=${page.next}`)).expect(200))
      .body as ExportList;
    expect(rest.exports.map((one) => one.id)).toEqual([first.id]);
    await worker
      .updateTable('jobs')
      .set({ state: 'running', phase: 'entries', done: 40, total: 100 })
      .where('id', '=', first.id)
      .execute();
    expect((await tenant.asAuditor('get', path(`/${first.id}`)).expect(200)).body).toMatchObject({
      state: 'running',
      phase: 'entries',
      done: 40,
      total: 100,
    });
    expect(problemOf(await file(first.id))).toEqual([409, 'not_published', undefined]);
    id = first.id;
  });

  it('end in a file, whole or in ranges', async () => {
    await finish(id, content);
    expect((await tenant.asAuditor('get', path(`/${id}`)).expect(200)).body).toMatchObject({
      state: 'done',
      bytes: content.length,
      sha256: createHash('sha256').update(content).digest('hex'),
    });
    const whole = await file(id).expect(200);
    expect(content.equals(whole.body as Buffer)).toBe(true);
    const etag = whole.headers['etag'] as string;
    expect(whole.headers).toMatchObject({
      'content-type': 'application/zip',
      'content-length': '300000',
      'accept-ranges': 'bytes',
      'cache-control': 'private, no-cache',
      'content-disposition': `attachment; filename="belay-export-${id}.zip"`,
      'x-content-type-options': 'nosniff',
    });
    const ranges: readonly (readonly [string, number, number])[] = [
      ['bytes=0-0', 0, 0],
      ['bytes=100-199', 100, 199],
      ['bytes=299999-', 299_999, 299_999],
      ['bytes=-5', 299_995, 299_999],
      ['bytes=-400000', 0, 299_999],
      ['bytes=10-999999999', 10, 299_999],
    ];
    for (const [range, first, last] of ranges) {
      const part = await file(id, { range }).expect(206);
      expect(part.headers['content-range']).toBe(`bytes ${first}-${last}/300000`);
      expect(content.subarray(first, last + 1).equals(part.body as Buffer)).toBe(true);
      await file(id, { range, 'if-range': etag }).expect(206);
    }
    // What is no range of this file is passed over.
    for (const headers of [
      { range: 'bytes=0-1,5-6' },
      { range: 'lines=0-1' },
      { range: 'bytes=5-1' },
      { range: 'bytes=-' },
      { range: 'bytes=0-1', 'if-range': '"another"' },
      { range: 'bytes=0-1', 'if-range': 'Thu, 01 Jan 2026 00:00:00 GMT' },
    ]) {
      expect(((await file(id, headers).expect(200)).body as Buffer).length).toBe(300_000);
    }
    for (const range of ['bytes=300000-', 'bytes=300000-300001', 'bytes=-0']) {
      const refused = await file(id, { range }).expect(416);
      expect(refused.headers['content-range']).toBe('bytes */300000');
      expect(JSON.parse((refused.body as Buffer).toString())).toMatchObject({
        code: 'range_not_satisfiable',
        field: 'Range',
      });
    }
    await file(id, { 'if-none-match': `W/"x", ${etag}` }).expect(304);
    await file(id, { 'if-none-match': '"x"' }).expect(200);
    const head = await file(id, {}, 'head').expect(200);
    expect(head.headers).toMatchObject({ etag, 'content-length': '300000', 'accept-ranges': 'bytes' });
    const headOfRange = await file(id, { range: 'bytes=0-9' }, 'head').expect(206);
    expect(headOfRange.headers['content-length']).toBe('10');
  });

  it('are read a few at a time, and a reader that is held back by nobody but itself does not keep others out', async () => {
    const large = Buffer.alloc(24 * 1024 * 1024, 'x');
    const { id: other } = (await create().expect(202)).body as ExportJob;
    await finish(other, large);
    const slow: http.IncomingMessage[] = [];
    for (let i = 0; i < 2; i++) {
      const asking = http.get(`${service.url}${path(`/${other}/file`)}`, {
        headers: { authorization: `Bearer ${tenant.project.auditor.credential}` },
      });
      asking.on('error', () => undefined);
      slow.push(await new Promise<http.IncomingMessage>((resolve) => asking.once('response', resolve)));
    }
    for (const response of slow) response.on('error', () => undefined).pause();
    const third = await file(other);
    expect(third.status).toBe(503);
    expect(third.headers['retry-after']).toBe('5');
    for (const response of slow) response.destroy();
    await until(async () => (await file(other, { range: 'bytes=0-0' })).status === 206);
    await tenant.asAuditor('delete', path(`/${other}`)).expect(200);
  });

  it('are not kept in any number, and gone once removed', async () => {
    const many = await create();
    expect(problemOf(many)).toEqual([409, 'too_many', undefined]);
    const removed = (await tenant.asAuditor('delete', path(`/${id}`)).expect(200)).body as ExportJob;
    expect(removed.state).toBe('cancelled');
    expect((await file(id)).status).toBe(410);
    expect(problemOf(await tenant.asAuditor('get', path(`/${id}`)))).toEqual([410, 'gone', undefined]);
    expect(problemOf(await tenant.asAuditor('delete', path(`/${id}`)))).toEqual([410, 'gone', undefined]);
    const list = (await tenant.asAuditor('get', path()).expect(200)).body as ExportList;
    expect(list.exports.map((one) => one.id)).not.toContain(id);
    await worker.deleteFrom('jobs').where('id', '=', id).execute();
    expect(problemOf(await tenant.asAuditor('get', path(`/${id}`)))).toEqual([404, 'not_found', undefined]);
  });

  it('that run are cancelled, and the worker sees it', async () => {
    const queued = (await worker.selectFrom('jobs').selectAll().where('kind', '=', 'export').execute()).find(
      ({ state }) => state === 'queued',
    );
    const { body } = await tenant.asAuditor('delete', path(`/${queued?.id}`)).expect(200);
    expect((body as ExportJob).state).toBe('cancelled');
    const row = await worker
      .selectFrom('jobs')
      .select(['cancel', 'state'])
      .where('id', '=', queued?.id ?? '')
      .executeTakeFirst();
    expect(row).toEqual({ cancel: true, state: 'queued' });
    expect((await file(queued?.id ?? '')).status).toBe(410);
    await worker.deleteFrom('jobs').where('kind', '=', 'export').execute();
  });

  it('are served by the database’s word for their file and by nothing else', async () => {
    const { id: other } = (await create().expect(202)).body as ExportJob;
    await finish(other, content);
    // Cut short, or something else in its place: not what was made.
    truncateSync(join(exportDir, `${other}.zip`), 1000);
    expect((await file(other)).status).toBe(410);
    await finish(other, content, 'missing.zip');
    await worker.updateTable('jobs').set({ file: 'elsewhere.zip' }).where('id', '=', other).execute();
    expect((await file(other)).status).toBe(410);
    symlinkSync('/etc/passwd', join(exportDir, 'link.zip'));
    for (const name of ['link.zip', '../outside.zip', '/etc/passwd', '.', '']) {
      writeFileSync(join(scratch.dir, 'outside.zip'), content);
      await worker.updateTable('jobs').set({ file: name }).where('id', '=', other).execute();
      const answer = await file(other);
      expect([name, answer.status]).toEqual([name, 500]);
    }
    for (const tail of ['/exp_x/file', `/${other}%2f..%2f..%2fetc/file`, '/..%2f..%2fetc%2fpasswd/file']) {
      expect((await tenant.asAuditor('get', path(tail))).status).toBe(404);
    }
  });
});

describe('webhooks', () => {
  const path = (tail = '') => tenant.path(`/webhooks${tail}`);
  const create = (url: string, events: readonly string[] = ['session.settled']) =>
    tenant.asAdmin('post', path()).send({ url, events });

  it('are added with a secret that is shown once', async () => {
    const answer = await create('https://example.org/hook?x=1', ['session.violated', 'session.violated']);
    expect(answer.status).toBe(201);
    const made = answer.body as WebhookCreated;
    expect(made).toMatchObject({ url: 'https://example.org/hook?x=1', events: ['session.violated'] });
    expect(Buffer.from(made.secret.replace(/^whsec_/, ''), 'base64')).toHaveLength(24);
    const stored = await worker
      .selectFrom('webhooks')
      .select(['secret', 'by'])
      .where('id', '=', made.id)
      .executeTakeFirstOrThrow();
    expect(`whsec_${stored.secret.toString('base64')}`).toBe(made.secret);
    const list = (await tenant.asAdmin('get', path()).expect(200)).body as WebhookList;
    const { secret: _, ...shown } = made;
    expect(list.webhooks).toEqual([shown]);
    expect(service.logs()).not.toContain(made.secret.slice(6));
    // Not even by SQL.
    const database = openDatabase(parts.connection, { role: 'belay_gateway', size: 1 });
    await expect(database.selectFrom('webhooks').select('secret').execute()).rejects.toThrow(
      /permission denied/,
    );
    await database.destroy();
  });

  it('have a limit', async () => {
    await create('https://example.org/two').expect(201);
    expect(problemOf(await create('https://example.org/three'))).toEqual([409, 'too_many', undefined]);
    const list = (await tenant.asAdmin('get', path('?limit=1')).expect(200)).body as WebhookList;
    const rest = (await tenant.asAdmin('get', path(`?limit=1&cursor=${list.next}`))).body as WebhookList;
    expect([...list.webhooks, ...rest.webhooks].map(({ url }) => url)).toEqual([
      'https://example.org/two',
      'https://example.org/hook?x=1',
    ]);
  });

  it('show what was sent to them, and end', async () => {
    const [webhook] = ((await tenant.asAdmin('get', path())).body as WebhookList).webhooks;
    const id = webhook?.id ?? '';
    await worker
      .insertInto('deliveries')
      .values({
        id: 'dlv_01jd0000000000000000000000',
        webhook: id,
        event: 'session.settled',
        body: '{"type":"session.settled"}',
        attempts: 2,
        status: 500,
        error: 'answered 500',
        due: new Date('2026-01-01T00:00:00Z'),
      })
      .execute();
    const list = (await tenant.asAdmin('get', path(`/${id}/deliveries`)).expect(200)).body as DeliveryList;
    expect(list.deliveries).toMatchObject([
      {
        id: 'dlv_01jd0000000000000000000000',
        event: 'session.settled',
        attempts: 2,
        status: 500,
        error: 'answered 500',
        due: '2026-01-01T00:00:00.000Z',
      },
    ]);
    await tenant.asAdmin('delete', path(`/${id}`)).expect(200);
    await tenant.asAdmin('delete', path(`/${id}`)).expect(404);
    await tenant.asAdmin('get', path(`/${id}/deliveries`)).expect(404);
    await create('https://example.org/three').expect(201);
  });
});

describe('going down', () => {
  it('tells who waits to ask another process, ends what is being read, and answers the rest', async () => {
    const { id } = (await tenant.asAuditor('post', tenant.path('/exports')).send({}).expect(202))
      .body as ExportJob;
    const large = Buffer.alloc(24 * 1024 * 1024, 'x');
    writeFileSync(join(exportDir, `${id}.zip`), large);
    await worker
      .updateTable('jobs')
      .set({ state: 'done', file: `${id}.zip`, bytes: large.length, sha256: Buffer.alloc(32) })
      .where('id', '=', id)
      .execute();
    const asking = http.get(`${service.url}${tenant.path(`/exports/${id}/file`)}`, {
      headers: { authorization: `Bearer ${tenant.project.auditor.credential}` },
    });
    const reading = await new Promise<http.IncomingMessage>((resolve) => asking.once('response', resolve));
    reading.pause();
    const cutOff = new Promise<boolean>((resolve) => reading.once('close', () => resolve(!reading.complete)));
    reading.on('error', () => undefined);
    const answer = as(
      service,
      tenant.project.auditor.credential,
      'get',
      tenant.path('/sessions/last?wait=60'),
    ).then((one) => one);
    await until(async () => (await waiting()) === 1);
    await gateway.close();
    const refused = await answer;
    expect(problemOf(refused)).toEqual([503, 'shutting_down', undefined]);
    expect(refused.headers['retry-after']).toBe('1');
    reading.resume();
    expect(await cutOff).toBe(true);
    gateway = await start();
  });
});
