import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ReceiptReply } from '@belay/contracts';
import type { Problem } from '@belay/contracts/http';
import { createGateway, type Gateway, GATEWAY_DEFAULTS, NotReady, type GatewayParts } from '@belay/gateway';
import pg from 'pg';
import request from 'supertest';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openParts, type Parts, source } from '../harness/parts.js';
import type { Service } from '../harness/service.js';
import { as, Tenant } from '../harness/tenant.js';

/**
 * One who holds a good credential, or none, and means ill: what it can take from the others, and what it is told.
 * The gateway is real, with small limits; receipts may be held back or replaced by large ones.
 */

let parts: Parts;
let gateway: Gateway;
let service: Service;
let acme: Tenant;
let mallory: Tenant;

let receiptBytes: string | undefined;
let beforeReceipt: () => Promise<void> = () => Promise.resolve();
let making = 0;
let mostMaking = 0;

beforeAll(async () => {
  parts = await openParts();
  const real = parts.collector.service;
  const collector: GatewayParts['collector'] = {
    append: (append) => real.append(append),
    change: (change) => real.change(change),
    receipt: async (asked) => {
      mostMaking = Math.max(mostMaking, ++making);
      await beforeReceipt();
      making -= 1;
      if (receiptBytes === undefined) return real.receipt(asked);
      const value: ReceiptReply = { id: 'rcp_x', asOf: 1, digest: '', bytes: receiptBytes };
      return { ok: true, value };
    },
  };
  gateway = await createGateway({
    config: {
      ...GATEWAY_DEFAULTS,
      port: 0,
      maxAppends: 8,
      appendIdleMs: 400,
      appendTimeoutMs: 1500,
      maxReceiptEntries: 20,
      maxAnswerBytes: 64 * 1024 * 1024,
    },
    collector,
    reader: parts.reader,
    log: parts.log,
    source,
    ready: () => {
      const trouble = parts.collector.trouble();
      return trouble === null ? Promise.resolve() : Promise.reject(new NotReady(trouble));
    },
  });
  const url = await gateway.listen();
  service = {
    url,
    operatorKey: parts.operatorKey,
    logs: parts.logs,
    close: () => Promise.resolve(),
  };
  acme = await Tenant.create(service, 'acme', { public: true });
  mallory = await Tenant.create(service, 'mallory');
});
afterAll(async () => {
  await gateway?.close();
  await parts?.close();
});
afterEach(() => {
  receiptBytes = undefined;
  beforeReceipt = () => Promise.resolve();
  mostMaking = 0;
});

const codeOf = ({ body }: request.Response) => (body as Problem).code;

interface Raw {
  readonly write: (text: string) => void;
  /** All that came until the other side closed. */
  readonly answer: Promise<string>;
  readonly close: () => void;
  readonly pause: () => void;
}

function raw(text: string): Raw {
  const { port } = new URL(service.url);
  const socket = connect(Number(port), '127.0.0.1');
  let said = '';
  const answer = new Promise<string>((resolve) => {
    socket.on('data', (chunk) => (said += chunk.toString('latin1')));
    socket.on('error', () => undefined).on('close', () => resolve(said));
    socket.setTimeout(10_000, () => socket.destroy());
  });
  socket.write(text);
  return {
    answer,
    write: (more) => socket.write(more),
    close: () => socket.destroy(),
    pause: () => socket.pause(),
  };
}

const appendHead = (tenant: Tenant, length: number) =>
  `POST ${tenant.path('/events')} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n` +
  `Authorization: Bearer ${tenant.project.token.credential}\r\nContent-Length: ${length}\r\n\r\n`;

describe('a sender that never finishes', () => {
  it('takes no place from anybody', async () => {
    const slow = Array.from({ length: 40 }, () => raw(`${appendHead(mallory, 1000)}{`));
    const metrics = async () => (await request(service.url).get('/metrics')).text;
    // As many as may be in flight at once; the others are told to come back.
    await expect.poll(metrics, { timeout: 5_000 }).toContain('belay_appends_arriving 8');
    await acme.append(acme.sink('beside').lines(1));
    expect(await metrics()).toContain('belay_appends_in_flight 0');
    for (const each of slow) each.close();
    await expect.poll(metrics).toContain('belay_appends_arriving 0');
  });

  it('is told so after a silence, and loses the connection', async () => {
    const started = performance.now();
    const said = await raw(`${appendHead(mallory, 1000)}{`).answer;
    expect(said).toMatch(/^HTTP\/1\.1 408 /);
    expect(said).toContain('"code":"request_timeout"');
    expect(performance.now() - started).toBeLessThan(1400);
  });

  it('is told so in the end, however steadily it drips', async () => {
    const slow = raw(`${appendHead(mallory, 1000)}{`);
    const drip = setInterval(() => slow.write(' '), 100);
    expect(await slow.answer).toMatch(/^HTTP\/1\.1 408 /);
    clearInterval(drip);
  });
});

describe('receipts', () => {
  const ask = (tenant: Tenant, tail = '?event=0') => tenant.asAuditor('get', tenant.path(`/receipts${tail}`));

  it('are for so many entries and no more, and the answer says how many', async () => {
    const answer = await ask(acme, '?range=0..20');
    expect([answer.status, codeOf(answer), (answer.body as Problem).detail]).toEqual([
      413,
      'range_too_large',
      expect.stringContaining('at most 20 entries'),
    ]);
    const { body } = await request(service.url).get('/.well-known/belay');
    expect(body).toMatchObject({ limits: { receiptEntries: 20 } });
  });

  it('are made a few at a time, one for a project, and the rest is told to come back', async () => {
    receiptBytes = '{}';
    let open = () => {};
    const gate = new Promise<void>((resolve) => (open = resolve));
    beforeReceipt = () => gate;
    let refused = 0;
    const flood = Array.from({ length: 30 }, async () => {
      const answer = await ask(mallory);
      if (answer.status === 503) refused += 1;
      return answer;
    });
    await expect.poll(() => refused, { timeout: 4000 }).toBe(21);
    const others = ask(acme).then(({ status }) => status);
    await expect.poll(() => making, { timeout: 4000 }).toBe(2);
    open();
    expect(await others).toBe(200);
    const statuses = (await Promise.all(flood)).map(({ status, headers }) => [
      status,
      headers['retry-after'],
    ]);
    expect(statuses.filter(([status]) => status === 503).length).toBe(21);
    for (const each of statuses)
      expect([
        [200, undefined],
        [503, '1'],
      ]).toContainEqual(each);
    expect(mostMaking).toBe(2);
  });

  it('that nobody reads are held up to a limit, which one tenant can not use up', async () => {
    receiptBytes = JSON.stringify('x'.repeat(24 * 1024 * 1024));
    const path = mallory.path('/receipts?event=0');
    const auditor = mallory.project.auditor.credential;
    const deaf: Raw[] = [];
    for (let i = 0; i < 2; i++) {
      const one = raw(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${auditor}\r\n\r\n`);
      one.pause();
      deaf.push(one);
      await sleep(100);
    }
    const refused = await ask(mallory);
    expect([refused.status, codeOf(refused), refused.headers['retry-after']]).toEqual([
      503,
      'overloaded',
      '1',
    ]);
    expect((await ask(acme)).status).toBe(200);
    for (const each of deaf) each.close();
    await sleep(100);
    expect((await ask(mallory)).status).toBe(200);
  });

  it('of another project are not even read', async () => {
    const read: string[] = [];
    const { reader } = parts;
    const original = reader.receipt.bind(reader);
    reader.receipt = async (log, id) => {
      const found = await original(log, id);
      read.push(found ? 'read' : 'not read');
      return found;
    };
    const { log } = await parts.reader.projectLog(acme.project.project).then((row) => ({ log: row }));
    if (!log) throw new Error('no log');
    await acme.append(acme.sink('r').lines(1));
    const outcome = await parts.collector.service.checkpoint(log.id);
    if (!outcome.ok) throw new Error('no checkpoint');
    const { size, note, root } = outcome.value;
    await parts.workerReader.insertCheckpoint(log, {
      size,
      note,
      root: Buffer.from(root, 'base64'),
      published: new Date(),
    });
    const made = await ask(acme, '?event=1').expect(200);
    const id = made.headers['belay-receipt-id'] as string;
    await acme.asAuditor('get', `/v1/receipts/${id}`).expect(200);
    await mallory.asAuditor('get', `/v1/receipts/${id}`).expect(404);
    expect(read).toEqual(['read', 'not read']);
    reader.receipt = original;
  });

  it('made at once with and without a size are one receipt, and no commit fails', async () => {
    await acme.append(acme.sink('twin').lines(1));
    const log = await parts.reader.projectLog(acme.project.project);
    const checkpoint = log && (await parts.reader.latestCheckpoint(log));
    const index = (checkpoint?.size ?? 0) - 1;
    const { project } = acme.project;
    const scope = { type: 'event', index } as const;
    const { service: collector } = parts.collector;
    const [one, two] = await Promise.all([
      collector.receipt({ project, scope }),
      collector.receipt({ project, scope, asOf: checkpoint?.size ?? 0 }),
    ]);
    expect(one.ok && two.ok && one.value.id === two.value.id).toBe(true);
    expect(parts.logs()).not.toContain('commit_failed');
  });
});

describe('what is no identifier', () => {
  const odd = ['%00', 'x%00', 'prj_%00', '..%2f..%2fetc', 'PRJ_01JD0000000000000000000000', '%F0%9F%92%A9'];
  const paths = odd.flatMap((id) => [
    `/v1/projects/${id}/tokens`,
    `/v1/projects/${id}/auditors`,
    `/v1/projects/${id}/events`,
    `/v1/projects/${id}/receipts?event=0`,
    `/v1/receipts/${id}`,
    `/v1/logs/${id}/keys`,
    `/v1/logs/${id}/checkpoint`,
    `/v1/logs/${id}/proof?index=0`,
    `/v1/logs/${id}/tile/0/000`,
  ]);

  it('names nothing, for anybody', async () => {
    const credentials = [undefined, mallory.admin, mallory.project.auditor.credential];
    for (const path of paths) {
      for (const credential of credentials) {
        const { status } = await as(service, credential, 'get', path);
        expect([path, status < 500 && status >= 400]).toEqual([path, true]);
      }
    }
    const own = (tail: string) => mallory.path(tail);
    for (const id of odd) {
      await mallory.asAdmin('delete', own(`/tokens/${id}`)).expect(404);
      await mallory.asAdmin('delete', own(`/auditors/${id}`)).expect(404);
      if (!id.startsWith('PRJ'))
        await mallory
          .asAdmin('put', own(`/sinks/${id}`))
          .send({})
          .expect(404);
    }
  });

  it('is refused in a query or a cursor', async () => {
    const cursor = (text: string) => Buffer.from(text).toString('base64url');
    for (const [path, field] of [
      [`/tokens?cursor=${cursor('tokens:\0')}`, 'cursor'],
      [`/tokens?cursor=${cursor('tokens:aud_01jd0000000000000000000000')}`, 'cursor'],
      [`/auditors?cursor=${cursor('auditors:\0')}`, 'cursor'],
    ] as const) {
      const { status, body } = await mallory.asAdmin('get', mallory.path(path));
      expect([path, status, (body as Problem).field]).toEqual([path, 400, field]);
    }
    for (const [path, field] of [
      [`/events?cursor=${cursor('events:\0')}`, 'cursor'],
      ['/events?sink=%00', 'sink'],
      ['/events?sink=a&sink=%00', undefined],
      ['/events?epoch=%00', 'epoch'],
      ['/events?session=%00', undefined],
      ['/receipts?event=%00', 'event'],
      ['/receipts?event=0&event=1', 'event'],
      ['/receipts?event=0&asOf=%00', 'asOf'],
    ] as const) {
      const { status, body } = await mallory.asAuditor('get', mallory.path(path));
      expect([path, status < 500]).toEqual([path, true]);
      if (field !== undefined) expect([path, status, (body as Problem).field]).toEqual([path, 400, field]);
    }
  });

  it('never shows up as a fault of ours', () => {
    expect(parts.logs()).not.toContain('unexpected error');
  });
});

describe('requests that are none of ours', () => {
  it('are refused as problems even when Node can not read them', async () => {
    for (const [text, status, code] of [
      ['\u0016\u0003\u0001\r\n\r\n', 400, 'invalid'],
      ['GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n', 400, 'invalid'],
      [`GET / HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(40_000)}\r\n\r\n`, 431, 'headers_too_large'],
    ] as const) {
      const said = await raw(text).answer;
      expect(said).toContain(`HTTP/1.1 ${status} `);
      expect(said).toMatch(/\r\nContent-Type: application\/problem\+json\r\n/);
      expect(JSON.parse(said.split('\r\n\r\n')[1] ?? '')).toMatchObject({ status, code });
    }
  });

  it('spoil nothing that came before them on the connection', async () => {
    // A body without a length: the next request begins with it.
    const first = 'GET /v1/token HTTP/1.1\r\nHost: x\r\n' + `Authorization: Bearer ${mallory.admin}\r\n\r\n`;
    const together = await raw(`${first}{"garbage"`).answer;
    expect(together.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200']);
    expect(together).toContain('"kind":"admin"');
    const later = raw(first);
    await sleep(200);
    later.write('{"garbage"');
    expect((await later.answer).match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400']);
  });

  it('learn which methods there are', async () => {
    for (const [method, path, allow] of [
      ['put', '/v1/token', 'GET, HEAD'],
      ['delete', mallory.path('/events'), 'GET, HEAD, POST'],
      ['post', `/v1/logs/${mallory.project.log}/tile/0/000`, 'GET, HEAD'],
    ] as const) {
      const answer = await as(service, undefined, method, path);
      expect([path, answer.status, answer.headers['allow'], codeOf(answer)]).toEqual([
        path,
        405,
        allow,
        'method_not_allowed',
      ]);
    }
    expect((await as(service, undefined, 'put', '/v1/nothing')).status).toBe(404);
  });

  it('find nothing beside the documentation', async () => {
    for (const path of [
      '/docs/../../etc/passwd',
      '/docs/%2e%2e/x',
      '/docs/..%2f..%2fetc/passwd',
      '/docs/.x',
    ]) {
      const said = await raw(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`).answer;
      expect([path, said.slice(9, 12)]).toEqual([path, '404']);
    }
    expect(parts.logs()).not.toContain('unexpected error');
  });

  it('are not read as JSON when they are not UTF-8, nor take a name of blanks', async () => {
    const post = async (body: Buffer) => {
      const headers = { authorization: `Bearer ${service.operatorKey}`, 'content-type': 'application/json' };
      const answer = await fetch(`${service.url}/v1/tenants`, { method: 'POST', headers, body });
      expect(answer.status).toBe(400);
      return (await answer.json()) as Problem;
    };
    const broken = Buffer.concat([Buffer.from('{"name":"a'), Buffer.from([0xff]), Buffer.from('"}')]);
    expect((await post(broken)).code).toBe('invalid_json');
    for (const name of [' ', '\u00a0\u2003', '\t']) {
      expect((await post(Buffer.from(JSON.stringify({ name })))).field).toBe('name');
    }
  });
});

describe('a database that takes no writes', () => {
  it('makes the service not ready, in words, until it takes them again', async () => {
    const owner = new pg.Client(parts.connection);
    await owner.connect();
    try {
      await owner.query(`create function full_disk() returns trigger language plpgsql as
        $$ begin raise exception 'could not extend file: No space left' using errcode = '53100'; end $$`);
      await owner.query('create trigger full_disk before insert on entries execute function full_disk()');
      const refused = await acme.post(acme.sink('full').line());
      expect([refused.status, codeOf(refused)]).toEqual([503, 'unavailable']);
      const { status, body } = await request(service.url).get('/readyz');
      expect([status, (body as Problem).detail]).toEqual([503, expect.stringContaining('No space left')]);
      await owner.query('drop trigger full_disk on entries');
      await acme.append(acme.sink('full').lines(1));
      await request(service.url).get('/readyz').expect(200);
      expect(parts.logs()).toMatch(
        /"event":"commit_failed".*"err":\{"type":"[^"]+","message":"could not extend/,
      );
    } finally {
      await owner.end();
    }
  });
});

describe('a log that anyone may read', () => {
  it('may be read with any good credential too, and one that is not, with none of them', async () => {
    const admin = mallory.admin;
    const operator = service.operatorKey;
    for (const credential of [undefined, admin, operator, mallory.project.token.credential]) {
      await as(service, credential, 'get', `/v1/logs/${acme.project.log}/keys`).expect(200);
      await as(service, credential, 'get', `/v1/logs/${acme.project.log}/tile/0/000.p/1`).expect(200);
    }
    for (const credential of [admin, operator]) {
      const answer = await as(service, credential, 'get', `/v1/logs/${mallory.project.log}/keys`);
      expect([answer.status, codeOf(answer)]).toEqual([403, 'forbidden']);
      const nobodys = await as(service, credential, 'get', '/v1/logs/log_01jd0000000000000000000000/keys');
      expect(nobodys.body).toEqual(answer.body);
    }
    const tile = `/v1/logs/${mallory.project.log}/tile/0/000.p/1`;
    await as(service, mallory.project.token.credential, 'get', tile).expect(403);
  });
});
