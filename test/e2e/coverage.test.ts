import { createHash } from 'node:crypto';
import type { CoverageReply, LabelSet, PolicySet, SessionDetail } from '@belay/contracts/http';
import {
  type CoverageStatement,
  type EpochStatement,
  type MemberReason,
  parseStatement,
  type ProjectPolicy,
  type SessionStatement,
} from '@belay/coverage';
import { parseAnyReceipt, type SessionReceipt, verifyReceipt } from '@belay/receipt';
import type request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServe, type ServeService } from '../harness/serve.js';
import { StatingSink } from '../harness/stating-sink.js';
import { as, Tenant } from '../harness/tenant.js';

/**
 * What goes wrong between a sidecar and the log, each as it happens, through the real service: the receipt of the
 * session has to name it exactly.
 */

let service: ServeService;

beforeAll(async () => {
  service = await startServe({ publishIntervalMs: 100 });
});
afterAll(async () => {
  await service?.close();
});

/** Seconds that are over within a test. */
const QUICK = { lateness: 1, closeTimeout: 2, heartbeat: 1 };

async function tenantWith(name: string, policy: Partial<ProjectPolicy> = QUICK): Promise<Tenant> {
  const tenant = await Tenant.create(service, name);
  await tenant.asAdmin('put', tenant.path('/policy')).send(policy).expect(200);
  return tenant;
}

const call = (name: string) => `hmac-sha256:${createHash('sha256').update(name).digest('hex')}`;

/** A call and its result, as a sink that commits to both says them. */
function calls(sink: StatingSink, session: string, ...names: readonly string[]): void {
  for (const name of names) {
    const said = { session, call: call(name), match: call(`${name} content`) };
    sink.say('call', { ...said, attrs: { tool: 'write' } }).say('result', said);
  }
}

interface Issued {
  readonly receipt: SessionReceipt;
  readonly digest: string;
  /** Of the whole session, from the digest in the receipt. */
  readonly statement: SessionStatement;
}

/** The receipt of a session once it has settled, verified as far as it can be without an export. */
async function receiptOf(tenant: Tenant, session: string): Promise<Issued> {
  const path = tenant.path(`/receipts?session=${session}&wait=30`);
  const answer = await bytes(tenant.asAuditor('get', path)).expect(200);
  const body = answer.body as Buffer;
  const { verdict, checks } = verifyReceipt(body, { key: tenant.project.vkey });
  expect(checks.filter(({ status }) => status !== 'ok').map(({ name }) => name)).toEqual(['evidence']);
  expect(verdict).toBe('INDETERMINATE');
  const opened = parseAnyReceipt(body);
  if (opened.type !== 'session') throw new Error(`a receipt of a ${opened.type}`);
  const { receipt } = opened;
  expect(receipt.scope.session).toBe(session);
  const statement = await statementOf(tenant, receipt.coverage.statement);
  expect(statement.status).toBe(receipt.coverage.status);
  return {
    receipt,
    digest: `sha256:${createHash('sha256').update(body).digest('hex')}`,
    statement: statement as SessionStatement,
  };
}

async function statementOf(tenant: Tenant, digest: string): Promise<CoverageStatement> {
  const answer = await bytes(tenant.asAuditor('get', tenant.path(`/statements/${digest}`))).expect(200);
  const body = answer.body as Buffer;
  expect(`sha256:${createHash('sha256').update(body).digest('hex')}`).toBe(digest);
  return parseStatement(body);
}

function bytes(test: request.Test): request.Test {
  return test.buffer(true).parse((response, done) => {
    const chunks: Buffer[] = [];
    response.on('data', (chunk: Buffer) => chunks.push(chunk));
    response.on('end', () => done(null, Buffer.concat(chunks)));
  });
}

async function coverage(tenant: Tenant, query: string): Promise<CoverageReply> {
  const answer = await tenant.asAuditor('get', tenant.path(`/coverage${query}`)).expect(200);
  return answer.body as CoverageReply;
}

/** Reasons of one sink in a receipt's disposition, where these are about coverage. */
function because({ disposition }: SessionReceipt, sink: string): readonly MemberReason[] {
  if (!('reasons' in disposition)) return [];
  return disposition.reasons.flatMap((reason) =>
    reason.reason === 'coverage' && reason.sink === sink && 'because' in reason ? reason.because : [],
  );
}

const SESSION = 'run-1';

describe.concurrent('the receipt of a session names', () => {
  it('a restart of the sidecar in the middle of it, which loses nothing', async () => {
    const tenant = await tenantWith('restart');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    await proxy.send();
    const first = proxy.epoch;
    // Killed: no close. What starts next knows from its state how far the one before had come.
    proxy.open();
    calls(proxy, SESSION, 'b');
    proxy.stated('session.close', { session: SESSION });
    await proxy.send();
    const { receipt, statement } = await receiptOf(tenant, SESSION);
    expect(receipt.coverage).toMatchObject({ status: 'complete', closed: true });
    expect(statement.members).toMatchObject([
      {
        sink: 'proxy',
        status: 'complete',
        signed: true,
        epochs: [
          { epoch: first, from: 2, to: 5, status: 'complete' },
          { epoch: proxy.epoch, from: 1, to: 5, status: 'complete' },
        ],
        reasons: [],
      },
    ]);
    expect(receipt.calls).toBe(2);
    expect(receipt.disposition.status).toBe('unverified');
    const { statements } = await coverage(tenant, `?sink=proxy&epoch=${first}`);
    expect(statements).toMatchObject([
      { type: 'epoch', ending: { by: 'successor', epoch: proxy.epoch, size: 4, compared: true } },
    ]);
  });

  it('the lines that a restart lost, by their numbers', async () => {
    const tenant = await tenantWith('lost-tail');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    await proxy.send();
    const first = proxy.epoch;
    calls(proxy, SESSION, 'b');
    // Two lines were in its state and never arrived.
    proxy.lose().open().stated('session.close', { session: SESSION });
    await proxy.send();
    const { receipt } = await receiptOf(tenant, SESSION);
    expect(receipt.disposition.status).toBe('incomplete');
    expect(because(receipt, 'proxy')).toEqual([
      { reason: 'missing', epoch: first, from: 5, to: 7 },
      { reason: 'root_not_compared', epoch: first },
    ]);
  });

  it('a lost epoch, by what the next one says of it', async () => {
    const tenant = await tenantWith('lost-epoch');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    await proxy.send();
    const first = proxy.epoch;
    proxy.open();
    calls(proxy, SESSION, 'b');
    const lost = { epoch: proxy.epoch, size: proxy.size };
    proxy.lose().open();
    calls(proxy, SESSION, 'c');
    proxy.stated('session.close', { session: SESSION });
    await proxy.send();
    const { receipt, statement } = await receiptOf(tenant, SESSION);
    expect(receipt.disposition.status).toBe('incomplete');
    const reasons = because(receipt, 'proxy');
    expect(reasons.filter(({ reason }) => reason === 'lost_epoch')).toMatchObject([
      { lost: { before: proxy.epoch, ...lost, counters: { from: 1, to: 2 } } },
    ]);
    expect(statement.members[0]?.epochs.map(({ epoch }) => epoch)).toEqual([first, proxy.epoch]);
    const { statements } = await coverage(tenant, '?sink=proxy');
    expect(statements).toMatchObject([{ type: 'sink', lost: [{ before: proxy.epoch, ...lost }] }]);
  });

  it('a run of which every line about it was lost, until they come', async () => {
    const tenant = await tenantWith('beside');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    proxy.stated('epoch.close');
    await proxy.send();
    // The sidecar was started again in it: of what it then said only the opening and the close of its run arrived.
    proxy.open().say('denial', { session: SESSION }, true);
    proxy.stated('session.close', { session: SESSION }, true).stated('epoch.close');
    await proxy.send();
    const beside = proxy.epoch;
    const first = await receiptOf(tenant, SESSION);
    expect(first.receipt.disposition.status).toBe('incomplete');
    expect(because(first.receipt, 'proxy')).toEqual([
      { reason: 'missing', epoch: beside, from: 2, to: 4, beside: true },
      { reason: 'root_not_compared', epoch: beside, beside: true },
    ]);
    const [asked] = (await coverage(tenant, `?session=${SESSION}`)).statements;
    expect(asked).toMatchObject({ status: 'gap', members: first.statement.members });
    await proxy.sendLost();
    await expect
      .poll(async () => (await receiptOf(tenant, SESSION)).receipt.disposition.status, { timeout: 20_000 })
      .toBe('unverified');
    const second = await receiptOf(tenant, SESSION);
    expect(second.receipt).toMatchObject({ supersedes: first.digest, coverage: { status: 'complete' } });
  });

  it('a required sink that said nothing of it', async () => {
    const tenant = await tenantWith('silent');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    await StatingSink.declare(tenant, 'hook', { kind: 'hook' });
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    proxy.stated('session.close', { session: SESSION }).stated('epoch.close');
    await proxy.send();
    const { receipt } = await receiptOf(tenant, SESSION);
    expect(receipt.disposition).toMatchObject({
      status: 'incomplete',
      reasons: [{ reason: 'coverage', sink: 'hook', status: 'silent', because: [{ reason: 'never_spoke' }] }],
      reasonsOmitted: 0,
    });
    expect(receipt.coverage.members).toMatchObject([
      { sink: 'hook', required: true, status: 'silent' },
      { sink: 'proxy', required: true, status: 'complete' },
    ]);
  });

  it('a sink that stopped in the middle', async () => {
    const tenant = await tenantWith('stopped');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    await proxy.send();
    const { epoch } = proxy;
    const issued = await receiptOf(tenant, SESSION);
    expect(issued.receipt.disposition.status).toBe('incomplete');
    const reasons = because(issued.receipt, 'proxy');
    // First its heartbeat is overdue, a second later its close.
    expect(reasons[0]).toEqual({ reason: 'overdue', epoch, what: 'heartbeat' });
    expect(reasons.slice(1)).toEqual(reasons.length > 1 ? [{ reason: 'overdue', epoch, what: 'close' }] : []);
    // It was only slow: what comes now takes the place of that.
    proxy.stated('session.close', { session: SESSION });
    await proxy.send();
    const later = await receiptOf(tenant, SESSION);
    expect(later.receipt.disposition.status).toBe('unverified');
    expect(later.receipt.coverage.status).toBe('complete');
    expect(await chainOf(tenant)).toContain(issued.digest);
  });

  it('a fork: two runs that both follow the same one', async () => {
    const tenant = await tenantWith('fork');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    await proxy.send();
    const first = proxy.epoch;
    const twin = proxy.fork();
    proxy.open();
    calls(proxy, SESSION, 'b');
    await proxy.send();
    twin.open();
    calls(twin, SESSION, 'c');
    twin.stated('session.close', { session: SESSION });
    await twin.send();
    const { receipt } = await receiptOf(tenant, SESSION);
    expect(receipt.disposition.status).toBe('contested');
    const { statements } = await coverage(tenant, '?sink=proxy');
    const [sink] = statements;
    if (sink?.type !== 'sink') throw new Error('no statement on the sink');
    expect(sink.branches).toMatchObject([{ previous: first, epochs: [proxy.epoch, twin.epoch] }]);
    expect(because(receipt, 'proxy')).toContainEqual({
      reason: 'chain',
      index: sink.branches[0]?.index,
    });
  });

  it('a call that a hook saw and the proxy did not, and one that they saw differently', async () => {
    const tenant = await tenantWith('hook-only');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    const hook = await StatingSink.declare(tenant, 'hook', { kind: 'hook' });
    for (const sink of [proxy, hook]) {
      sink.open().say('session.open', { session: SESSION });
      calls(sink, SESSION, 'both');
    }
    calls(hook, SESSION, 'beside');
    for (const sink of [proxy, hook]) {
      sink.stated('session.close', { session: SESSION });
      await sink.send();
    }
    const { receipt, statement } = await receiptOf(tenant, SESSION);
    expect(receipt.coverage.status).toBe('complete');
    const seen = (of: string) => statement.calls.find(({ calls: names }) => names.includes(call(of)));
    expect(seen('both')?.seen.map(({ sink }) => sink)).toEqual(['hook', 'proxy']);
    expect(seen('both')).toMatchObject({ arguments: 'same', outcome: 'same' });
    expect(seen('beside')?.seen.map(({ sink }) => sink)).toEqual(['hook']);
    expect(seen('beside')).toMatchObject({ arguments: 'one', outcome: 'one' });
    expect(receipt.disposition).toMatchObject({ status: 'unverified' });
    expect(receipt.authority.levels).toMatchObject({ observed: 2 });
    if (!('reasons' in receipt.disposition)) throw new Error('affirmed');
    expect(
      receipt.disposition.reasons.flatMap((reason) => (reason.reason === 'not_replayed' ? reason.calls : [])),
    ).toEqual(expect.arrayContaining([call('both'), call('beside')]));

    const differing = 'run-2';
    for (const [sink, content] of [
      [proxy, 'rm -r a'],
      [hook, 'rm -r b'],
    ] as const) {
      sink.say('session.open', { session: differing });
      sink.say('call', {
        session: differing,
        call: call('x'),
        match: call(content),
        attrs: { tool: 'write' },
      });
      sink.say('result', { session: differing, call: call('x'), match: call('same') });
      sink.stated('session.close', { session: differing });
      await sink.send();
    }
    const other = await receiptOf(tenant, differing);
    expect(other.receipt.disposition).toMatchObject({
      status: 'contested',
      reasons: [{ reason: 'sinks_differ', calls: [call('x')], part: 'arguments' }],
    });
  });

  it('the line that was dropped on the way, and is superseded when it comes after all', async () => {
    const tenant = await tenantWith('dropped');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    proxy.say('denial', { session: SESSION }, true);
    calls(proxy, SESSION, 'b');
    proxy.stated('session.close', { session: SESSION }).stated('epoch.close');
    await proxy.send();
    const first = await receiptOf(tenant, SESSION);
    expect(first.receipt.disposition).toMatchObject({
      status: 'incomplete',
      reasons: [{ reason: 'coverage', sink: 'proxy', status: 'gap' }],
    });
    expect(because(first.receipt, 'proxy')).toEqual([
      { reason: 'missing', epoch: proxy.epoch, from: 5, to: 6 },
      { reason: 'root_not_compared', epoch: proxy.epoch },
    ]);
    expect(first.receipt.supersedes).toBeUndefined();
    const [before] = (await coverage(tenant, `?sink=proxy&epoch=${proxy.epoch}`)).statements;
    expect(before).toMatchObject({ status: 'gap', missing: [{ from: 5, to: 6 }], late: [] });

    // Later than the policy lets lines be under way.
    const closed = Date.parse((before as EpochStatement).last?.received ?? '');
    while (Date.now() < closed + 1_050) await new Promise((resolve) => setTimeout(resolve, 20));
    await proxy.sendLost();
    const second = await receiptOf(tenant, SESSION);
    expect(second.receipt.supersedes).toBe(first.digest);
    expect(second.receipt.asOf.size).toBeGreaterThan(first.receipt.asOf.size);
    expect(second.receipt.coverage.status).toBe('complete');
    expect(second.receipt.disposition.status).toBe('unverified');
    const [after] = (await coverage(tenant, `?sink=proxy&epoch=${proxy.epoch}`)).statements;
    expect(after).toMatchObject({ status: 'complete', missing: [], late: [{ from: 5, to: 6 }] });
    expect(await chainOf(tenant)).toEqual([second.digest, first.digest]);
  });

  it('what auditors said of it, who agree or do not', async () => {
    const tenant = await tenantWith('labels');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    proxy.stated('session.close', { session: SESSION });
    await proxy.send();
    const first = await receiptOf(tenant, SESSION);
    expect(first.receipt.disposition.status).toBe('unverified');
    const label = async (credential: string, says: string): Promise<number> => {
      const answer = await as(service, credential, 'post', tenant.path('/labels'))
        .send({ session: SESSION, call: call('a'), says })
        .expect(201);
      return (answer.body as LabelSet).index;
    };
    const { auditor } = tenant.project;
    const violated = await label(auditor.credential, 'violated');
    const second = await receiptOf(tenant, SESSION);
    expect(second.receipt.disposition).toMatchObject({
      status: 'violated',
      reasons: [{ reason: 'auditor', label: violated, auditor: auditor.id }],
    });
    expect(second.receipt.authority.levels).toMatchObject({ adjudicated: 1 });
    const other = (await tenant.asAdmin('post', tenant.path('/auditors')).send({}).expect(201)).body as {
      credential: string;
    };
    const against = await label(other.credential, 'not_violated');
    const third = await receiptOf(tenant, SESSION);
    expect(third.receipt.disposition).toMatchObject({
      status: 'contested',
      reasons: [{ reason: 'auditors_differ', labels: [violated, against] }],
    });
    expect(await chainOf(tenant)).toEqual([third.digest, second.digest, first.digest]);
  });

  it('the kind that the policy gives it, and the policy of its beginning', async () => {
    const tenant = await tenantWith('kinds', {
      ...QUICK,
      sessions: [{ kind: 'coding', opens: ['proxy'], required: ['proxy', 'hook'], members: [] }],
    });
    const proxy = await StatingSink.declare(tenant, 'proxy', { required: false });
    await StatingSink.declare(tenant, 'hook', { required: false });
    const index = ((await tenant.asAuditor('get', tenant.path('/policy')).expect(200)).body as PolicySet)
      .index;
    proxy.open().say('session.open', { session: SESSION });
    calls(proxy, SESSION, 'a');
    proxy.stated('session.close', { session: SESSION });
    await proxy.send();
    // Set when the session had begun: it asks for less, and does not count.
    await tenant.asAdmin('put', tenant.path('/policy')).send(QUICK).expect(200);
    const { receipt } = await receiptOf(tenant, SESSION);
    expect(receipt.coverage.kinds).toEqual(['coding']);
    expect(receipt.policy.index).toBe(index);
    expect(receipt.disposition).toMatchObject({
      status: 'incomplete',
      reasons: [{ sink: 'hook', because: [{ reason: 'never_spoke' }] }],
    });
    const at = (await tenant.asAuditor('get', tenant.path(`/policy?at=${index + 1}`)).expect(200))
      .body as PolicySet;
    expect([at.index, at.digest]).toEqual([index, receipt.policy.digest]);
  });
});

/** Digests of a session's receipts, the last first, each naming the one behind it. */
async function chainOf(tenant: Tenant): Promise<string[]> {
  const { receipts } = (await tenant.asAuditor('get', tenant.path(`/sessions/${SESSION}`)).expect(200))
    .body as SessionDetail;
  for (const [i, { supersedes }] of receipts.entries()) expect(supersedes).toBe(receipts[i + 1]?.digest);
  return receipts.map(({ digest }) => digest);
}
