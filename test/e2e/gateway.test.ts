import type { CollectorFault, Outcome } from '@belay/contracts';
import type { Problem } from '@belay/contracts/http';
import { createGateway, type Gateway, GATEWAY_DEFAULTS, type GatewayParts } from '@belay/gateway';
import { gzipSync } from 'node:zlib';
import request from 'supertest';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openParts, type Parts, source } from '../harness/parts.js';
import type { Service } from '../harness/service.js';
import { Tenant } from '../harness/tenant.js';

/**
 * The real gateway on a real database, with a collector in between that a test can hold back or make fail: what the
 * gateway does when everything else is slow, gone or wrong.
 */

let parts: Parts;
let gateway: Gateway;
let tenant: Tenant;

type Collector = GatewayParts['collector'];

/** Passes on to the real collector, unless a test says otherwise. */
class Switch implements Collector {
  before: () => Promise<void> = () => Promise.resolve();
  fault: CollectorFault | undefined;
  waiting = 0;

  append: Collector['append'] = (append) => this.#through(() => parts.collector.service.append(append));
  change: Collector['change'] = (change) => this.#through(() => parts.collector.service.change(change));
  receipt: Collector['receipt'] = (receipt) => this.#through(() => parts.collector.service.receipt(receipt));

  async #through<T>(work: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    this.waiting += 1;
    try {
      await this.before();
    } finally {
      this.waiting -= 1;
    }
    return this.fault ? { ok: false, fault: this.fault } : work();
  }
}
const collector = new Switch();

/** Holds every request to the collector until it is opened. */
function holdBack(): () => void {
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  collector.before = () => gate;
  return () => {
    collector.before = () => Promise.resolve();
    open();
  };
}

async function until(is: () => boolean): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!is()) {
    if (Date.now() > deadline) throw new Error('it never came to that');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const start = () =>
  createGateway({
    config: { ...GATEWAY_DEFAULTS, port: 0, maxAppends: 4, maxAppendBytes: 8 * 1024 * 1024 },
    collector,
    reader: parts.reader,
    log: parts.log,
    source,
  });

beforeAll(async () => {
  parts = await openParts();
  gateway = await start();
  const url = await gateway.listen();
  const service: Service = {
    url,
    operatorKey: parts.operatorKey,
    logs: parts.logs,
    close: () => Promise.resolve(),
  };
  tenant = await Tenant.create(service, 'acme');
});
afterAll(async () => {
  await gateway?.close();
  await parts?.close();
});
afterEach(() => {
  collector.fault = undefined;
  collector.before = () => Promise.resolve();
});

describe('under more than it takes', () => {
  it('tells the next append to come back at once, and goes on with everything else', async () => {
    const open = holdBack();
    const sinks = [tenant.sink('a'), tenant.sink('b')];
    const held = sinks.map((sink) => tenant.post(sink.line()).then((answer) => answer.status));
    await until(() => collector.waiting === 2);
    const started = performance.now();
    const third = await tenant.post(tenant.sink('c').line());
    expect(performance.now() - started).toBeLessThan(1000);
    expect([third.status, (third.body as Problem).code, third.headers['retry-after']]).toEqual([
      503,
      'overloaded',
      '1',
    ]);
    await tenant.asAuditor('get', tenant.path('/events')).expect(200);
    expect((await request(tenant.service.url).get('/metrics')).text).toContain('belay_appends_in_flight 2');
    open();
    expect(await Promise.all(held)).toEqual([200, 200]);
    await tenant.post(tenant.sink('c').line()).expect(200);
  });

  it('keeps a place for the others, whatever one project sends', async () => {
    const other = await Tenant.create(tenant.service, 'other');
    const open = holdBack();
    const held = ['a', 'b'].map((name) => tenant.post(tenant.sink(name).line()).then(({ status }) => status));
    await until(() => collector.waiting === 2);
    await tenant.post(tenant.sink('c').line()).expect(503);
    const others = other.post(other.sink('a').line()).then(({ status }) => status);
    await until(() => collector.waiting === 3);
    open();
    expect(await Promise.all([...held, others])).toEqual([200, 200, 200]);
  });

  it('counts the bytes it holds, and what a compressed body may become while it is unpacked', async () => {
    const open = holdBack();
    const body = tenant
      .sink('long')
      .lines(1500, { session: 's'.repeat(120) })
      .join('\n')
      .padEnd(3_000_000, '\n');
    const held = tenant.post(body).then(({ status }) => status);
    await until(() => collector.waiting === 1);
    const packed = () => tenant.post(gzipSync(tenant.sink('packed').line())).set('content-encoding', 'gzip');
    expect(((await packed()).body as Problem).code).toBe('overloaded');
    open();
    expect(await held).toBe(200);
    await packed().expect(200);
  });
});

describe('what the collector can not do', () => {
  const table: readonly (readonly [CollectorFault, number])[] = [
    [{ kind: 'retry', code: 'unavailable', message: 'secret detail', retryAfter: 1.2 }, 503],
    [{ kind: 'retry', code: 'overloaded', message: 'secret detail', retryAfter: 1 }, 503],
    [{ kind: 'retry', code: 'shutting_down', message: 'secret detail', retryAfter: 1 }, 503],
    [{ kind: 'refused', code: 'not_found', message: 'secret detail' }, 404],
    [{ kind: 'refused', code: 'token_revoked', message: 'm' }, 401],
    [{ kind: 'refused', code: 'token_expired', message: 'm' }, 401],
    [{ kind: 'refused', code: 'sink_not_allowed', message: 'm' }, 403],
    [{ kind: 'refused', code: 'signature_required', message: 'm' }, 403],
    [{ kind: 'refused', code: 'signature_invalid', message: 'm' }, 403],
    [{ kind: 'refused', code: 'head_ahead', message: 'm' }, 409],
    [{ kind: 'refused', code: 'exists', message: 'm' }, 409],
    [{ kind: 'refused', code: 'rate_limited', message: 'm', retryAfter: 30 }, 429],
    [{ kind: 'refused', code: 'invalid', message: 'm', field: 'f' }, 400],
    [{ kind: 'not_yet', code: 'not_published', message: 'm', retryAfter: 1 }, 409],
    [{ kind: 'halted', code: 'log_halted', message: 'm' }, 503],
  ];

  it.each(table)('is answered as %j', async (fault, status) => {
    collector.fault = fault;
    const answer = await tenant.post(tenant.sink('x').line());
    const body = answer.body as Problem;
    expect([answer.status, body.code]).toEqual([status, fault.code]);
    expect(body.detail).not.toContain('secret detail');
    const retryAfter = 'retryAfter' in fault ? fault.retryAfter : undefined;
    expect(answer.headers['retry-after']).toBe(
      retryAfter === undefined ? undefined : String(Math.ceil(retryAfter)),
    );
    expect(body.field).toBe('field' in fault ? fault.field : undefined);
  });

  it('is logged and not shown when nobody foresaw it', async () => {
    collector.before = () => Promise.reject(new Error(`unforeseen, with ${tenant.admin}`));
    const answer = await tenant.post(tenant.sink('x').line());
    expect(answer.status).toBe(500);
    expect(JSON.stringify(answer.body)).not.toContain('unforeseen');
    expect(parts.logs()).toContain('unforeseen, with belay_admin_[redacted]');
    expect(parts.logs()).not.toContain(tenant.admin);
  });
});

describe('going down', () => {
  it('finishes what it has and refuses the rest', async () => {
    const open = holdBack();
    const answer = tenant.post(tenant.sink('last').line()).then(({ status }) => status);
    await until(() => collector.waiting === 1);
    const closed = gateway.close();
    await new Promise((resolve) => setTimeout(resolve, 50));
    await expect(request(tenant.service.url).get('/healthz')).rejects.toThrow(/ECONNREFUSED/);
    open();
    expect(await answer).toBe(200);
    await closed;
  });
});
