import { createHash } from 'node:crypto';
import { readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { verifyExport } from '@belay/export';
import type { Response } from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ServeService, startServe } from '../../../test/harness/serve.js';
import { StatingSink } from '../../../test/harness/stating-sink.js';
import { Tenant } from '../../../test/harness/tenant.js';

let service: ServeService;
let tenant: Tenant;
let proxy: StatingSink;
beforeAll(async () => {
  service = await startServe();
  tenant = await Tenant.create(service, 'acme');
  proxy = await StatingSink.declare(tenant, 'proxy');
});
afterAll(async () => {
  const troubles = service
    ?.logs()
    .split('\n')
    .filter((line) => /"level":[56]0/.test(line));
  await service?.close();
  expect(troubles).toEqual([]);
});

const callOf = (name: string): string => `hmac-sha256:${createHash('sha256').update(name).digest('hex')}`;

/** One call in a session of its own; `lose` keeps its result from the log. */
async function talk(session: string, lose = false): Promise<void> {
  const call = callOf(session);
  if (proxy.epoch === '') proxy.open();
  proxy
    .say('session.open', { session })
    .say('call', { session, call, match: call, attrs: { tool: 'a' } })
    .say('result', { session, call, match: call }, lose)
    .stated('session.close', { session });
  await proxy.send();
}

interface Detail {
  readonly settled: boolean;
  readonly disposition: string;
  readonly coverage: string;
  readonly receipts: readonly {
    readonly id: string;
    readonly digest: string;
    readonly supersedes?: string;
  }[];
}

async function settled(session: string, wait = 10): Promise<Detail> {
  return (await tenant.asAuditor('get', tenant.path(`/sessions/${session}?wait=${wait}`)).expect(200))
    .body as Detail;
}

async function finished(id: string): Promise<Record<string, unknown>> {
  let job: Record<string, unknown> = {};
  await expect
    .poll(
      async () => {
        job = (await tenant.asAuditor('get', tenant.path(`/exports/${id}`)).expect(200)).body as typeof job;
        return job['state'];
      },
      { timeout: 20_000, interval: 50 },
    )
    .not.toMatch(/queued|running/);
  return job;
}

describe('a session', () => {
  it('gets a receipt a moment after its last required sink closed it', async () => {
    await talk('run-1');
    expect(await settled('run-1')).toMatchObject({
      settled: true,
      closed: true,
      disposition: 'unverified',
      coverage: 'complete',
      receipts: [{ disposition: 'unverified' }],
    });
  });

  it('of which a line was lost is incomplete, until it comes: then another receipt takes the place', async () => {
    await talk('run-2', true);
    const before = await settled('run-2');
    expect(before).toMatchObject({ settled: true, disposition: 'incomplete', coverage: 'gap' });
    await proxy.sendLost();
    await expect
      .poll(async () => (await settled('run-2')).disposition, { timeout: 10_000 })
      .toBe('unverified');
    const after = await settled('run-2');
    expect(after.receipts).toMatchObject([
      { disposition: 'unverified', supersedes: before.receipts[0]?.digest },
      { disposition: 'incomplete' },
    ]);
  });

  it('that an auditor finds violated says so', async () => {
    await talk('run-3');
    await settled('run-3');
    await tenant
      .asAuditor('post', tenant.path('/labels'))
      .send({ session: 'run-3', says: 'violated' })
      .expect(201);
    await expect.poll(async () => (await settled('run-3')).disposition, { timeout: 10_000 }).toBe('violated');
  });

  it('that goes on is not judged, and is in an export all the same', async () => {
    const session = 'run-4';
    proxy.say('session.open', { session });
    await proxy.send();
    await expect.poll(async () => (await settled(session, 0)).coverage).toBe('open');
    expect(await settled(session, 0)).toMatchObject({ settled: false, receipts: [] });
  });
});

describe('an export', () => {
  it('of everything is made, verified, and removed', async () => {
    const { body } = await tenant.asAuditor('post', tenant.path('/exports')).send({}).expect(202);
    const { id } = body as { id: string };
    const job = await finished(id);
    expect(job).toMatchObject({ state: 'done' });
    const exports = join(service.dataDir, 'exports');
    const [name, ...others] = readdirSync(exports);
    // A name of the run's own: another worker may still think that the job is its.
    expect(name).toMatch(new RegExp(`^${id}\\.[0-9a-f]{10}\\.zip$`));
    expect(others).toEqual([]);
    expect(statSync(join(exports, name as string)).mode & 0o777).toBe(0o600);
    const answer = await tenant
      .asAuditor('get', tenant.path(`/exports/${id}/file`))
      .buffer(true)
      .parse(binary)
      .expect(200);
    expect(
      createHash('sha256')
        .update(answer.body as Buffer)
        .digest('hex'),
    ).toBe(job['sha256']);
    expect(await verdictOf(answer.body as Buffer)).toBe('VALID');
    await tenant.asAuditor('delete', tenant.path(`/exports/${id}`)).expect(200);
    await expect.poll(() => readdirSync(exports), { timeout: 15_000 }).toEqual([]);
  });

  it('of some sessions has what belongs to them', async () => {
    const other = await StatingSink.declare(tenant, 'other', { required: false });
    other
      .open()
      .say('heartbeat', { attrs: { size: 1, root: 'A'.repeat(43) + '=', dropped: 0, filtered: 0 } });
    await other.send();
    const { body } = await tenant
      .asAuditor('post', tenant.path('/exports'))
      .send({ sessions: ['run-3', 'run-2'] })
      .expect(202);
    const job = await finished((body as { id: string }).id);
    expect(job).toMatchObject({ state: 'done' });
    const answer = await tenant
      .asAuditor('get', tenant.path(`/exports/${(body as { id: string }).id}/file`))
      .buffer(true)
      .parse(binary)
      .expect(200);
    expect(await verdictOf(answer.body as Buffer)).toBe('VALID');
  });
});

describe('a period', () => {
  it('has a receipt of the sessions that began in it', async () => {
    const from = new Date(Date.now() - 3_600_000).toISOString();
    const to = new Date(Date.now() + 3_600_000).toISOString();
    const answer = await tenant
      .asAuditor('get', tenant.path(`/receipts?period=${from}..${to}&wait=10`))
      .expect(200);
    const payload = JSON.parse(
      Buffer.from((JSON.parse(answer.text) as { payload: string }).payload, 'base64').toString(),
    ) as { predicate: object };
    expect(payload.predicate).toMatchObject({
      sessions: { count: 4, unissued: 0 },
      complete: false,
    });
  });
});

function binary(response: Response, done: (error: Error | null, body: Buffer) => void): void {
  const parts: Buffer[] = [];
  response.on('data', (part: Buffer) => parts.push(part));
  response.on('end', () => done(null, Buffer.concat(parts)));
}

async function verdictOf(bytes: Buffer): Promise<string> {
  const path = join(service.dataDir, 'verified.zip');
  writeFileSync(path, bytes);
  const { report } = await verifyExport(path, { key: tenant.project.vkey });
  const wrong = report.checks.filter(({ status }) => status !== 'ok');
  if (report.verdict !== 'VALID') console.log(JSON.stringify(wrong, undefined, 1));
  return report.verdict;
}
