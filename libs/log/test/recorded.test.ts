import { createHash } from 'node:crypto';
import { type CheckedStatement, Sequencer, type StoredReceipt, scopeText } from '@belay/log';
import { DEFAULT_POLICY } from '@belay/coverage';
import { type CollectorBody, type IssuedScope, parseCollectorBody } from '@belay/envelope';
import {
  ADMIN,
  AUDITOR,
  epoch,
  line,
  MemoryLogStore,
  mustBeSound,
  PROJECT,
  request,
  setUp,
  type Setup,
  TENANT,
  value,
} from '@belay/testkit';
import { describe, expect, it } from 'vitest';

const BY = { tenant: TENANT, by: ADMIN, project: PROJECT };

async function bodyAt(setup: Setup, index: number): Promise<CollectorBody> {
  const [entry] = await setup.store.lines(setup.log, index, index + 1);
  return parseCollectorBody(entry?.line as Buffer);
}

describe('a policy', () => {
  it('is whole in the genesis entry and in every entry that sets one, and has a row of each', async () => {
    const setup = await setUp();
    expect(await bodyAt(setup, 0)).toMatchObject({ kind: 'log.genesis', policy: DEFAULT_POLICY });
    const policy = {
      ...DEFAULT_POLICY,
      public: true,
      lateness: 7,
      sessions: [{ kind: 'code', opens: ['proxy'], required: ['proxy'] }],
    };
    const set = value(await setup.sequencer.change({ kind: 'policy.set', ...BY, policy }));
    expect(await bodyAt(setup, set.index as number)).toMatchObject({ kind: 'policy.set', policy, by: ADMIN });
    expect(await setup.store.policies(setup.log)).toEqual([0, set.index]);
    expect((await setup.store.config(setup.log)).policy).toMatchObject({ public: true, lateness: 7 });
    await mustBeSound(setup);
  });

  it('that does not fit an entry is refused by its name, and changes nothing', async () => {
    const setup = await setUp();
    const names = Array.from({ length: 64 }, (_, at) => `sink-${at}-${'x'.repeat(40)}`);
    const policy = { ...DEFAULT_POLICY, sessions: [{ kind: 'code', opens: names, required: names }] };
    expect(await setup.sequencer.change({ kind: 'policy.set', ...BY, policy })).toMatchObject({
      ok: false,
      fault: { code: 'invalid', field: 'policy', message: expect.stringContaining('4096 bytes') as string },
    });
    expect((await setup.store.head(setup.log)).size).toBe(3);
    expect(await setup.store.policies(setup.log)).toEqual([0]);
  });
});

describe('a label', () => {
  const label = { kind: 'label.set', by: AUDITOR, project: PROJECT, session: 'run-1' } as const;

  it('is an entry and a row', async () => {
    const setup = await setUp();
    const call = `weak:hmac-sha256:${'a'.repeat(64)}`;
    value(await setup.sequencer.change({ ...label, says: 'violated' }));
    const second = value(
      await setup.sequencer.change({ ...label, tenant: TENANT, call, says: 'not_violated' }),
    );
    expect(await bodyAt(setup, second.index as number)).toEqual({
      kind: 'label.set',
      v: 1,
      session: 'run-1',
      call,
      says: 'not_violated',
      by: AUDITOR,
    });
    expect(await setup.store.labels(setup.log)).toEqual([
      { index: 3, session: 'run-1', call: null, says: 'violated', auditor: AUDITOR },
      { index: 4, session: 'run-1', call, says: 'not_violated', auditor: AUDITOR },
    ]);
    await mustBeSound(setup);
  });

  it('is taken from an auditor of the project only, until that is revoked', async () => {
    const setup = await setUp();
    const change = (more: object) =>
      setup.sequencer.change({ ...label, says: 'violated', ...more } as typeof label & { says: 'violated' });
    const refused = (code: string, field?: string) => ({
      ok: false,
      fault: { code, ...(field && { field }) },
    });
    expect(await change({ by: AUDITOR.replace(/v$/, 'w') })).toMatchObject(refused('not_found', 'by'));
    expect(await change({ by: ADMIN })).toMatchObject(refused('not_found', 'by'));
    expect(await change({ tenant: TENANT.replace(/v$/, 'w') })).toMatchObject(refused('not_found'));
    expect(await change({ session: 'no session' })).toMatchObject(refused('invalid', 'session'));
    expect(await change({ call: 'toolu_1' })).toMatchObject(refused('invalid', 'call'));
    expect(await change({ says: 'maybe' })).toMatchObject(refused('invalid', 'says'));
    expect((await setup.store.head(setup.log)).size).toBe(3);
    // What is in the queue before the revocation counts, what is behind it doesn't.
    const [before, revoked, after] = await Promise.all([
      change({}),
      setup.sequencer.change({ kind: 'auditor.revoke', ...BY, auditor: AUDITOR }),
      change({}),
    ]);
    value(before);
    value(revoked);
    expect(after).toMatchObject(refused('token_revoked', 'by'));
    await mustBeSound(setup);
  });
});

const statement = (of: string, size: number): CheckedStatement => {
  const bytes = Buffer.from(`statement ${of} ${size}`);
  const digest = createHash('sha256').update(bytes).digest();
  return {
    bytes,
    digest,
    body: {
      kind: 'coverage.stated',
      v: 1,
      type: 'session',
      session: of,
      statement: `sha256:${digest.toString('hex')}`,
      size,
      time: '2026-01-01T00:00:00.000Z',
      status: 'complete',
      policy: `sha256:${'0'.repeat(64)}`,
    },
  };
};

describe('coverage statements', () => {
  it('are recorded in one commit, each once, wherever it failed before', async () => {
    const store = new MemoryLogStore();
    const setup = await setUp(store);
    const [a, b, c] = ['a', 'b', 'c'].map((of) => statement(of, 3)) as [
      CheckedStatement,
      CheckedStatement,
      CheckedStatement,
    ];
    store.faults.push('before', 'after');
    expect(await setup.sequencer.record(PROJECT, [a, b])).toMatchObject({
      ok: false,
      fault: { kind: 'retry' },
    });
    expect(await setup.sequencer.record(PROJECT, [a, b])).toMatchObject({
      ok: false,
      fault: { kind: 'retry' },
    });
    expect(value(await setup.sequencer.record(PROJECT, [a, b]))).toEqual({ indexes: [3, 4], size: 5 });
    expect(value(await setup.sequencer.record(PROJECT, [b, c, a, c]))).toEqual({
      indexes: [4, 5, 3, 5],
      size: 6,
    });
    expect(value(await setup.sequencer.record(PROJECT, []))).toEqual({ indexes: [], size: 6 });
    expect(await bodyAt(setup, 4)).toEqual(b.body);
    expect(await store.statement(setup.log, c.digest)).toEqual({ index: 5, bytes: c.bytes });
    const times = (await store.runs(setup.log, 0, 10)).map(({ received }) => received);
    expect(new Set(times).size).toBe(3);
    await mustBeSound(setup);
  });

  it('are refused, all of one request, when one looked at more than there is or has no form', async () => {
    const setup = await setUp();
    const ahead = statement('b', 4);
    expect(await setup.sequencer.record(PROJECT, [statement('a', 3), ahead])).toMatchObject({
      ok: false,
      fault: { code: 'invalid', field: 'size' },
    });
    const wrong = { ...statement('b', 3), body: { ...statement('b', 3).body, session: 'not one' } };
    expect(await setup.sequencer.record(PROJECT, [statement('a', 3), wrong])).toMatchObject({
      ok: false,
      fault: { code: 'invalid', field: 'session' },
    });
    expect((await setup.store.head(setup.log)).size).toBe(3);
    value(await setup.sequencer.record(PROJECT, [statement('a', 3)]));
    value(await setup.sequencer.record(PROJECT, [ahead]));
    await mustBeSound(setup);
  });

  it('that were damaged or lost in the database are found', async () => {
    const store = new MemoryLogStore();
    const setup = await setUp(store);
    const all = ['a', 'b', 'c'].map((of) => statement(of, 3));
    value(await setup.sequencer.record(PROJECT, all));
    const raw = store.raw(setup.log);
    const [a, b, c] = [...raw.statements.keys()] as [string, string, string];
    raw.statements.delete(a);
    raw.statements.set(b, { index: 4, bytes: Buffer.from('other') });
    raw.statements.set(c, { index: 3, bytes: all[2]?.bytes as Buffer });
    raw.policies.delete(0);
    raw.policies.set(2, DEFAULT_POLICY);
    raw.labels.push({ index: 4, session: 's', call: null, says: 'violated', auditor: AUDITOR });
    const found = await mustBeSound(setup).catch((error: Error) => error.message);
    for (const message of [
      'is not stored',
      'has another digest',
      'names entry 3',
      'the policy set here has no row',
      'a policy has no entry',
      'the row of the label',
    ]) {
      expect(found).toContain(message);
    }
  });
});

let receipts = 0;
const SCOPE = { type: 'session', session: 'run-1' } as const;

async function issue(
  setup: Setup,
  asOf: number,
  supersedes?: Buffer,
  scope: IssuedScope = SCOPE,
): Promise<Awaited<ReturnType<Sequencer['recordReceipt']>> & { digest: Buffer }> {
  const bytes = `receipt ${++receipts}`;
  const digest = createHash('sha256').update(bytes).digest();
  const receipt: Omit<StoredReceipt, 'index'> = {
    id: `rcp_${receipts}`,
    scope: scopeText(scope),
    asOf,
    digest,
    bytes,
    created: 0,
    disposition: 'open',
  };
  const outcome = await setup.sequencer.recordReceipt(PROJECT, receipt, {
    kind: 'receipt.issued',
    v: 1,
    receipt: `sha256:${digest.toString('hex')}`,
    scope,
    asOf,
    ...(supersedes && { supersedes: `sha256:${supersedes.toString('hex')}` }),
  });
  return { ...outcome, digest };
}

describe('receipts of a session or a period', () => {
  it('follow one another, and what does not name the last one is stale', async () => {
    const setup = await setUp();
    const stale = { ok: false, fault: { kind: 'refused', code: 'stale', field: 'supersedes' } };
    expect(await issue(setup, 1, Buffer.alloc(32))).toMatchObject(stale);
    const first = await issue(setup, 1);
    expect(first).toMatchObject({ ok: true, value: { index: 3, size: 4 } });
    expect(await issue(setup, 1, first.digest)).toMatchObject({ ok: false, fault: { code: 'exists' } });
    expect(await issue(setup, 3)).toMatchObject(stale);
    const second = await issue(setup, 3, first.digest);
    expect(second.ok).toBe(true);
    expect(await issue(setup, 2, second.digest)).toMatchObject(stale);
    expect(await issue(setup, 4, first.digest)).toMatchObject(stale);
    expect(await bodyAt(setup, 4)).toMatchObject({
      scope: SCOPE,
      supersedes: `sha256:${first.digest.toString('hex')}`,
    });
    // Another scope has its own.
    const period = {
      type: 'period',
      from: '2026-01-01T00:00:00.000Z',
      to: '2026-02-01T00:00:00.000Z',
    } as const;
    expect((await issue(setup, 3, undefined, period)).ok).toBe(true);
    expect((await issue(setup, 3, undefined, { ...SCOPE, session: 'run-2' })).ok).toBe(true);
    expect(await setup.store.receipt(setup.log, 'session:run-1')).toMatchObject({
      asOf: 3,
      digest: second.digest,
    });
    await mustBeSound(setup);
  });

  it('race in one queue: of two that would take one place, one does', async () => {
    const setup = await setUp();
    const first = await issue(setup, 1);
    const other = new Sequencer(setup.parts);
    const both = await Promise.all([
      issue(setup, 3, first.digest),
      issue({ ...setup, sequencer: other }, 2, first.digest),
    ]);
    expect(both.filter(({ ok }) => ok)).toHaveLength(1);
    await mustBeSound(setup);
  });

  it('that were damaged or lost in the database are found', async () => {
    const store = new MemoryLogStore();
    const setup = await setUp(store);
    await issue(setup, 1);
    await issue(setup, 1, undefined, { ...SCOPE, session: 'run-2' });
    await issue(setup, 1, undefined, { type: 'event', index: 2 });
    await mustBeSound(setup);
    const { receipts: rows } = store.raw(setup.log);
    rows[0] = { ...(rows[0] as StoredReceipt), bytes: 'another' };
    rows[1] = { ...(rows[1] as StoredReceipt), digest: Buffer.alloc(32) };
    rows.pop();
    const found = await mustBeSound(setup).catch((error: Error) => error.message);
    for (const message of ['has another digest', 'session:run-2 is of another', 'is not stored']) {
      expect(found).toContain(message);
    }
  });

  it('leave the remembered tokens and sinks as they are', async () => {
    const store = new MemoryLogStore();
    const setup = await setUp(store);
    const sent = (seq: number) =>
      request(setup.log.origin, 's', epoch(1), [line(setup.log.origin, 's', epoch(1), seq)]);
    value(await setup.sequencer.append(sent(1)));
    value(await setup.sequencer.append(sent(2)));
    const { config } = await store.head(setup.log);
    await issue(setup, 1);
    value(await setup.sequencer.record(PROJECT, [statement('a', 3)]));
    const says = {
      kind: 'label.set',
      by: AUDITOR,
      project: PROJECT,
      session: 's',
      says: 'violated',
    } as const;
    value(await setup.sequencer.change(says));
    store.queries = 0;
    value(await setup.sequencer.append(sent(3)));
    expect(store.queries).toBe(0);
    expect((await store.head(setup.log)).config).toBe(config);
  });
});
