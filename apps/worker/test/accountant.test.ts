import { AccountStore, openPool } from '@belay/db';
import { createGateway, GATEWAY_DEFAULTS } from '@belay/gateway';
import { Accountant, Evaluator, Publisher, type WorkerCollector } from '@belay/worker';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkAccounts } from '../../../test/harness/account-check.js';
import { openParts, type Parts, source } from '../../../test/harness/parts.js';
import { StatingSink } from '../../../test/harness/stating-sink.js';
import { Tenant } from '../../../test/harness/tenant.js';

let parts: Parts;
let pool: ReturnType<typeof openPool>;
let store: AccountStore;
let close: () => Promise<void>;
let tenant: Tenant;
let proxy: StatingSink;
let made = 0;

beforeAll(async () => {
  parts = await openParts();
  pool = openPool(parts.connection);
  store = new AccountStore(parts.connection, { role: 'belay_worker', size: 8 });
  const gateway = await createGateway({
    config: { ...GATEWAY_DEFAULTS, port: 0, webhookPrivate: true },
    collector: parts.collector.service,
    reader: parts.reader,
    log: parts.log,
    source,
  });
  const url = await gateway.listen();
  close = () => gateway.close();
  tenant = await Tenant.create({ url, operatorKey: parts.operatorKey, logs: parts.logs, close }, 'acme');
  proxy = (await StatingSink.declare(tenant, 'proxy')).open();
  await tenant
    .asAdmin('post', tenant.path('/webhooks'))
    .send({ url: 'http://127.0.0.1:9/', events: ['session.settled', 'session.incomplete'] })
    .expect(201);
});
afterAll(async () => {
  await close?.();
  await store?.close();
  await pool?.end();
  await parts?.close();
});

/** A worker of its own, with memory of its own; `over` stands between it and the collector. */
function worker(
  over: Partial<WorkerCollector> = {},
  later: number | (() => number) = 0,
  mostLines?: number,
): Accountant {
  const { service } = parts.collector;
  const collector: WorkerCollector = {
    checkpoint: (log) => service.checkpoint(log),
    record: (request) => service.record(request),
    issue: (request) => service.issue(request),
    signExport: (request) => service.signExport(request),
    ...over,
  };
  const now = (): number => Date.now() + (typeof later === 'number' ? later : later());
  const common = { reader: parts.workerReader, collector, now, log: parts.log };
  const evaluator = new Evaluator({ ...common, publisher: new Publisher(common), mostLines });
  return new Accountant({ store, evaluator, now, log: parts.log });
}

async function talk(): Promise<string> {
  const session = `run-${++made}`;
  const call = `hmac-sha256:${made.toString(16).padStart(64, '0')}`;
  proxy
    .say('session.open', { session })
    .say('call', { session, call, match: call, attrs: { tool: 'a' } })
    .stated('session.close', { session });
  await proxy.send();
  return session;
}

/** Sweeps until a session is not dirty, and returns its row. */
async function looked(accountant: Accountant, session: string): Promise<Record<string, unknown>> {
  let row: Record<string, unknown> = {};
  await expect
    .poll(async () => {
      await accountant.sweep().catch(() => undefined);
      row = (await pool.query('select * from sessions where session = $1', [session])).rows[0] as typeof row;
      return typeof row?.['receipt'] === 'string' && row['dirty'] === null;
    })
    .toBe(true);
  return row;
}

/** Entries of the log, and deliveries, that are about a session. */
async function said(session: string): Promise<{ stated: number; issued: number; deliveries: number }> {
  const count = async (text: string): Promise<number> =>
    ((await pool.query(text, [session])).rows[0] as { n: number }).n;
  const entries = `select count(*) as n from entries where convert_from(line, 'UTF8') like '%"kind":"KIND"%'
    and convert_from(line, 'UTF8') like '%"session":"' || $1 || '"%'`;
  return {
    stated: await count(entries.replace('KIND', 'coverage.stated')),
    issued: await count(entries.replace('KIND', 'receipt.issued')),
    deliveries: await count(
      `select count(*) as n from deliveries where body like '%"session":"' || $1 || '"%'`,
    ),
  };
}

describe('a worker that dies', () => {
  it('after a statement was recorded: the statement is found again', async () => {
    const session = await talk();
    const dying = worker({
      issue: () => Promise.reject(new Error('died before the receipt was asked for')),
    });
    await expect(dying.sweep()).rejects.toThrow('died');
    expect(await said(session)).toEqual({ stated: 1, issued: 0, deliveries: 0 });
    await looked(worker(), session);
    expect(await said(session)).toEqual({ stated: 1, issued: 1, deliveries: 1 });
  });

  it('after a receipt was issued: it is not issued again, and is told of once', async () => {
    const session = await talk();
    const dying = worker({
      issue: async (request) => {
        await parts.collector.service.issue(request);
        throw new Error('died before the answer came');
      },
    });
    await expect(dying.sweep()).rejects.toThrow('died');
    expect(await said(session)).toEqual({ stated: 1, issued: 1, deliveries: 0 });
    const row = await looked(worker(), session);
    expect(row).toMatchObject({ disposition: 'unverified', coverage: 'complete' });
    expect(await said(session)).toEqual({ stated: 1, issued: 1, deliveries: 1 });
  });
});

describe('what is kept', () => {
  it.each([
    ['epoch_states', `update epoch_states set state = '{"v":2}'`],
    ['sink_states', `update sink_states set state = '{"v":1,"links":7}'`],
    ['sessions', `update sessions set state = '[]', due = now()`],
    ['reconciled', `update reconciled set state = '{"v":9}'`],
  ])('in %s is made again from the entries where it is damaged', async (_table, damage) => {
    const before = await talk();
    await looked(worker(), before);
    const { rows } = await pool.query('select id from receipts order by index');
    await pool.query(damage);
    const session = await talk();
    const accountant = worker();
    await looked(accountant, session);
    await looked(accountant, before);
    expect(await checkAccounts(parts.connection)).toEqual([]);
    // What had a receipt comes to the same: only the new session has one more.
    const after = await pool.query('select id from receipts order by index');
    expect(after.rows).toHaveLength(rows.length + 1);
  });

  it('is the same with two workers at once', async () => {
    const two = [worker(), worker()];
    const sessions: string[] = [];
    let isSending = true;
    const sweeping = two.map(async (one) => {
      while (isSending) await one.sweep();
    });
    for (let at = 0; at < 10; at++) sessions.push(await talk());
    isSending = false;
    await Promise.all(sweeping);
    for (const session of sessions) {
      await looked(two[0] as Accountant, session);
      expect(await said(session)).toEqual({ stated: 1, issued: 1, deliveries: 1 });
    }
    expect(await checkAccounts(parts.connection)).toEqual([]);
  });
});

describe('what waits', () => {
  const rowOf = async (session: string): Promise<Record<string, unknown>> =>
    (await pool.query('select * from sessions where session = $1', [session])).rows[0] as Record<
      string,
      unknown
    >;

  it('because it has too many lines is held, and says so until it can be judged', async () => {
    const session = await talk();
    const shown = async (wait = 0): Promise<Record<string, unknown>> =>
      (await tenant.asAuditor('get', tenant.path(`/sessions/${session}?wait=${wait}`)).expect(200)).body;
    const small = worker({}, 0, 2);
    await expect
      .poll(async () => {
        await small.sweep();
        return (await shown())['held'];
      })
      .toEqual({ why: 'too_many_lines', lines: 3, limit: 2 });
    // Whoever waits for it is told at once, and not at the end of the time.
    expect(await shown(60)).toMatchObject({ settled: false, receipts: [] });
    // Ten minutes later.
    await pool.query('update sessions set due = now(), dirty = now() where session = $1', [session]);
    await looked(worker(), session);
    const after = await shown();
    expect(after).toMatchObject({ settled: true });
    expect(after).not.toHaveProperty('held');
  });

  it('because the collector is away is not settled meanwhile', async () => {
    const session = await talk();
    await looked(worker(), session);
    await tenant.asAuditor('post', tenant.path('/labels')).send({ session, says: 'violated' }).expect(201);
    const fault = { kind: 'retry', code: 'unavailable', message: 'away', retryAfter: 60 } as const;
    const away = worker({ record: () => Promise.resolve({ ok: false, fault }) });
    await away.sweep();
    await away.sweep();
    const row = await rowOf(session);
    expect(row).toMatchObject({ disposition: 'unverified', dirty: row['due'] });
    expect((row['due'] as Date).getTime()).toBeGreaterThan(Date.now() + 30_000);
    const shown = await tenant.asAuditor('get', tenant.path(`/sessions/${session}`)).expect(200);
    expect(shown.body).toMatchObject({ settled: false, disposition: 'unverified' });
    expect(await looked(worker({}, 62_000), session)).toMatchObject({ disposition: 'violated' });
  });

  it('of a long session is left alone for a while after each time it was judged', async () => {
    const session = `run-${++made}`;
    proxy.say('session.open', { session });
    for (let line = 0; line < 1_000; line++) proxy.say('x.note', { session });
    await proxy.stated('session.close', { session }).send();
    // A clock that stands still unless it is set.
    let clock = Date.now() + 5_000;
    const accountant = worker({}, () => clock - Date.now());
    await looked(accountant, session);
    expect(await said(session)).toMatchObject({ stated: 1, issued: 1 });
    await proxy.say('x.note', { session }).send();
    await accountant.sweep();
    clock += 1_100;
    await accountant.sweep();
    expect(await said(session)).toMatchObject({ stated: 1, issued: 1 });
    expect((await rowOf(session))['dirty']).not.toBeNull();
    clock += 2_000;
    await looked(accountant, session);
    expect(await said(session)).toMatchObject({ stated: 2, issued: 2 });
  });
});

describe('a session that comes to something else again and again', () => {
  it('has a few receipts, and then one only now and then', async () => {
    const session = await talk();
    const clock = { ms: Date.now() + 5_000 };
    const accountant = worker({}, () => clock.ms - Date.now());
    await looked(accountant, session);
    for (let turn = 0; turn < 40; turn++) {
      await tenant
        .asAuditor('post', tenant.path('/labels'))
        .send({ session, says: turn % 2 === 0 ? 'violated' : 'not_violated' })
        .expect(201);
      clock.ms += 2_000;
      await accountant.sweep();
    }
    const { issued } = await said(session);
    expect(issued).toBeGreaterThan(4);
    expect(issued).toBeLessThan(12);
    // Nor does another worker begin anew, who remembers nothing.
    const { rows } = await pool.query('select disposition from sessions where session = $1', [session]);
    const isViolated = (rows[0] as { disposition: string }).disposition === 'violated';
    const says = isViolated ? 'not_violated' : 'violated';
    await tenant.asAuditor('post', tenant.path('/labels')).send({ session, says }).expect(201);
    // (By the collector's clock, which receipts have their times by.)
    await worker().sweep();
    expect(await said(session)).toMatchObject({ issued });
    // What it came to last is said in the end.
    clock.ms += 150_000;
    const disposition = says === 'violated' ? 'violated' : 'unverified';
    expect(await looked(accountant, session)).toMatchObject({ disposition });
  });
});

describe('a log with much to do', () => {
  it('keeps no other one waiting that comes meanwhile', async () => {
    const other = await Tenant.create(tenant.service, 'later');
    await worker().sweep();
    let clock = Date.now();
    const takenIn: number[] = [];
    const slow = worker(
      {
        record: async (request) => {
          takenIn.push(
            (
              (
                await pool.query(
                  `select coalesce(max(through), 0) as n from reconciled join logs using (log) where project = $1`,
                  [other.project.project],
                )
              ).rows[0] as { n: number }
            ).n,
          );
          if (takenIn.length === 1) {
            await other.append(other.sink('a').lines(1));
            await talk();
          }
          // Its turn is over, and there is more to do.
          clock += 3_000;
          return parts.collector.service.record(request);
        },
      },
      () => clock - Date.now(),
    );
    await talk();
    await slow.sweep();
    expect(takenIn).toHaveLength(2);
    expect(takenIn[1]).toBe((takenIn[0] as number) + 1);
  });
});

describe('time alone', () => {
  it('makes a sink silent that is required and says nothing, and its epoch unclosed at last', async () => {
    // A collector takes no statement that is more than five minutes from its own time.
    const policy = { closeTimeout: 240 };
    await tenant.asAdmin('put', tenant.path('/policy')).send(policy).expect(200);
    const other = await StatingSink.declare(tenant, 'other');
    const session = await talk();
    await expect
      .poll(async () => {
        await worker().sweep();
        return (
          (await pool.query('select coverage from sessions where session = $1', [session])).rows[0] as {
            coverage: string;
          }
        ).coverage;
      })
      .toBe('open');
    const row = await looked(worker({}, 125_000), session);
    expect(row).toMatchObject({ disposition: 'incomplete', coverage: 'silent' });
    expect(await said(session)).toMatchObject({ issued: 1, deliveries: 2 });

    // The epoch says no more either: a statement of that is in the log, and a later one when its close is overdue.
    const stated = async (): Promise<unknown> =>
      (
        (await pool.query('select stated_status as s from epoch_states where epoch = $1', [proxy.epoch]))
          .rows[0] as {
          s: unknown;
        }
      ).s;
    await expect
      .poll(async () => {
        await worker({}, 200_000).sweep();
        return stated();
      })
      .toBe('silent');
    await expect
      .poll(async () => {
        await worker({}, 290_000).sweep();
        return stated();
      })
      .toBe('unclosed');
    // It speaks again, and the session is what it was but for the one sink that never spoke.
    await other.open().say('session.open', { session }).stated('session.close', { session }).send();
    await expect
      .poll(async () => {
        await worker().sweep();
        return (
          (await pool.query('select disposition from sessions where session = $1', [session])).rows[0] as {
            disposition: string;
          }
        ).disposition;
      })
      .toBe('unverified');
  });
});

describe('what one sink has to do with a session', () => {
  /** A sink that alone has to see the sessions that it opens. */
  const lone = async (name: string, timing: object): Promise<StatingSink> => {
    const sessions = [{ kind: name, opens: [name], required: [name], members: [] }];
    await tenant
      .asAdmin('put', tenant.path('/policy'))
      .send({ ...timing, sessions })
      .expect(200);
    return StatingSink.declare(tenant, name);
  };
  const covered = async (session: string, accountant: Accountant): Promise<unknown> => {
    for (let sweep = 0; sweep < 4; sweep++) await accountant.sweep();
    return (
      (await pool.query('select coverage from sessions where session = $1', [session])).rows[0] as {
        coverage: unknown;
      }
    ).coverage;
  };

  it('of which one run was killed and another, of a lost state, closed the session: it is unclosed in time', async () => {
    const sink = await lone('first', { closeTimeout: 60, heartbeat: 20, lateness: 10 });
    const session = `run-${++made}`;
    await sink.open().say('session.open', { session }).send();
    await sink.forget().open().say('x.note', { session }).stated('session.close', { session }).send();
    await expect.poll(() => covered(session, worker())).toBe('open');
    expect(await covered(session, worker({}, 45_000))).toBe('silent');
    expect(await covered(session, worker({}, 90_000))).toBe('unclosed');
    expect(await looked(worker({}, 90_000), session)).toMatchObject({ disposition: 'incomplete' });
  });

  it('follows its heartbeat when another one is declared', async () => {
    const sink = await lone('second', { heartbeat: 60, lateness: 1 });
    const session = `run-${++made}`;
    const declare = async (heartbeat: number): Promise<void> => {
      await tenant
        .asAdmin('put', tenant.path('/sinks/second'))
        .send({ kind: 'proxy', required: true, heartbeat })
        .expect(200);
    };
    await sink.open().say('session.open', { session }).send();
    await expect.poll(() => covered(session, worker())).toBe('open');
    await declare(2);
    expect(await covered(session, worker({}, 30_000))).toBe('silent');
    await declare(3_000);
    expect(await covered(session, worker({}, 35_000))).toBe('open');
  });

  it('names the statement of the receipt it has when another was recorded that came to nothing', async () => {
    const sink = await lone('third', { heartbeat: 2, lateness: 1 });
    const session = `run-${++made}`;
    await sink.open().say('session.open', { session }).send();
    const before = await looked(worker({}, 10_000), session);
    expect(before).toMatchObject({ coverage: 'silent' });
    await sink.stated('heartbeat').send();
    // As when the heartbeat had come later than it did here.
    await pool.query('update sessions set dirty = now(), due = now() where session = $1', [session]);
    const dying = worker({ issue: () => Promise.reject(new Error('died before it was issued')) });
    await expect(
      (async () => {
        for (let sweep = 0; sweep < 20; sweep++) await dying.sweep();
      })(),
    ).rejects.toThrow('died');
    const { stated_index, receipt } = before;
    const row = async (): Promise<unknown> => looked(worker({}, 20_000), session);
    await expect.poll(row).toMatchObject({ coverage: 'silent', stated_index, receipt });
    expect(await checkAccounts(parts.connection)).toEqual([]);
  });

  it('names it still when a statement comes after that, of a worker that died meanwhile', async () => {
    const sink = await lone('fourth', { heartbeat: 2, lateness: 1 });
    const session = `run-${++made}`;
    await sink.open().say('session.open', { session }).send();
    const { stated_index } = await looked(worker({}, 10_000), session);
    await sink.stated('heartbeat').send();
    await pool.query('update sessions set dirty = now(), due = now() where session = $1', [session]);
    const underWay: Parameters<WorkerCollector['record']>[0][] = [];
    const dying = worker({
      record: (request) => {
        underWay.push(request);
        return Promise.reject(new Error('died as it was recorded'));
      },
    });
    await expect(
      (async () => {
        for (let sweep = 0; sweep < 20; sweep++) await dying.sweep();
      })(),
    ).rejects.toThrow('died');
    await looked(worker({}, 20_000), session);
    for (const request of underWay)
      expect(await parts.collector.service.record(request)).toMatchObject({ ok: true });
    await covered(session, worker({}, 20_000));
    expect(await looked(worker({}, 20_000), session)).toMatchObject({ stated_index });
    expect(await checkAccounts(parts.connection)).toEqual([]);
  });

  it('that spoke in time is not silent for long, though a worker whose clock is ahead found it so', async () => {
    const sink = await lone('fifth', { heartbeat: 2, lateness: 1 });
    const session = `run-${++made}`;
    await sink.open().say('session.open', { session }).send();
    await expect.poll(() => covered(session, worker())).toBe('open');
    expect(await covered(session, worker({}, 4_000))).toBe('silent');
    await sink.stated('heartbeat').send();
    await expect.poll(() => covered(session, worker())).toBe('open');
  });
});
