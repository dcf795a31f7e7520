import { createHash } from 'node:crypto';
import type { CollectorFault, Outcome, StaleFault } from '@belay/contracts';
import { MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES, MAX_RECORD_STATEMENTS } from '@belay/contracts/rpc';
import { DEFAULT_POLICY, formatStatement, LogCoverage, policyDigest } from '@belay/coverage';
import { canonical, type CoverageStated, parseCollectorBody, parseEntry } from '@belay/envelope';
import { EXPORT_FILES, type ExportManifest, formatManifest, PAGES_VERSION } from '@belay/export';
import {
  derivePeriod,
  IN_TOTO,
  parseDsse,
  periodReceiptPayload,
  preAuthEncoding,
  verifyReceipt,
} from '@belay/receipt';
import { ed25519Verifier } from '@belay/note';
import { ADMIN, AUDITOR, epoch, PROJECT, TENANT, TOKEN } from '@belay/testkit';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Account, SESSION, statedOf, value } from './account.js';

let account: Account;

beforeEach(async () => {
  account = await Account.open();
});

afterEach(() => account.close());

const sizeOf = async () => (await account.store.head(account.log)).size;
const refused = (field?: string, code = 'invalid') => ({
  ok: false,
  fault: { kind: 'refused', code, ...(field !== undefined && { field }) },
});

describe('coverage statements', () => {
  it('are recorded with the digest of their bytes, of sessions and of epochs', async () => {
    await account.happen(3);
    const facts = await account.facts();
    const coverage = new LogCoverage({ log: account.log.origin });
    for (const bytes of await account.entries()) coverage.apply(parseEntry(bytes));
    const asOf = { size: coverage.size, time: account.time };
    const statement = coverage.epochStatement('proxy', epoch(1), asOf);
    const bytes = formatStatement(statement);
    const digest = createHash('sha256').update(bytes).digest();
    const ofEpoch: CoverageStated = {
      kind: 'coverage.stated',
      v: 1,
      type: 'epoch',
      sink: 'proxy',
      epoch: epoch(1),
      statement: `sha256:${digest.toString('hex')}`,
      ...asOf,
      status: statement.status,
      policy: statement.policy,
    };
    const both = [
      { body: statedOf(facts), bytes: facts.statementBytes },
      { body: ofEpoch, bytes },
    ];
    const recorded = value(await account.service.record({ project: PROJECT, statements: both }));
    expect(recorded).toEqual({ indexes: [6, 7], size: 8 });
    expect(parseEntry((await account.entries())[7] as Buffer)).toMatchObject({ statement: ofEpoch });
    expect(await account.store.statement(account.log, digest)).toEqual({ index: 7, bytes });
    expect(value(await account.service.record({ project: PROJECT, statements: both }))).toEqual(recorded);
    // What is stored is not read again, whatever is handed in for it.
    const again = both.map((each) => ({ ...each, bytes: Buffer.from('no statement') }));
    expect(value(await account.service.record({ project: PROJECT, statements: again }))).toEqual(recorded);
    expect(await account.store.statement(account.log, digest)).toEqual({ index: 7, bytes });
  });

  it('are refused when their entry would say something else, or they are none', async () => {
    await account.happen(3);
    const facts = await account.facts();
    const body = statedOf(facts) as Extract<CoverageStated, { type: 'session' }>;
    const bytes = facts.statementBytes;
    const record = (more: Partial<typeof body>, content = bytes) =>
      account.service.record({
        project: PROJECT,
        statements: [{ body: { ...body, ...more } as CoverageStated, bytes: content }],
      });
    const other = `sha256:${'0'.repeat(64)}`;
    expect(await record({ statement: other })).toMatchObject(refused('statement'));
    expect(await record({ size: body.size - 1 })).toMatchObject(refused('size'));
    expect(await record({ time: '2026-01-01T00:00:09.000Z' })).toMatchObject(refused('time'));
    for (const minutes of [-6, 6]) {
      const time = new Date(Date.parse(body.time) + minutes * 60_000).toISOString();
      const moved = JSON.stringify({
        ...(JSON.parse(bytes.toString()) as object),
        asOf: { size: body.size, time },
      });
      const statement = `sha256:${createHash('sha256').update(moved).digest('hex')}`;
      expect(await record({ time, statement }, Buffer.from(moved))).toMatchObject(refused('time'));
    }
    expect(await record({ status: body.status === 'gap' ? 'open' : 'gap' })).toMatchObject(refused('status'));
    expect(await record({ policy: other })).toMatchObject(refused('policy'));
    expect(await record({ session: 'run-2' })).toMatchObject(refused('session'));
    const ofEpoch = { type: 'epoch', sink: 'proxy', epoch: epoch(1) };
    expect(await record(ofEpoch as never)).toMatchObject(refused('type'));
    expect(await record({}, Buffer.from(`${bytes.toString()}\n`))).toMatchObject(refused());
    expect(await record({}, Buffer.from('{}'))).toMatchObject(refused());
    const { calls: _, ...less } = JSON.parse(bytes.toString()) as Record<string, unknown>;
    expect(await record({}, Buffer.from(canonical(less)))).toMatchObject(refused());
    // A status that is not what its own members come to is none.
    const lying = { ...(JSON.parse(bytes.toString()) as object), status: 'complete' };
    expect(await record({}, Buffer.from(canonical(lying)))).toMatchObject(refused());
    const foreign = { ...(JSON.parse(bytes.toString()) as object), log: 'test.local/other' };
    const bytesOfForeign = Buffer.from(canonical(foreign));
    const statement = `sha256:${createHash('sha256').update(bytesOfForeign).digest('hex')}`;
    expect(await record({ statement }, bytesOfForeign)).toMatchObject(refused('log'));
    const nowhere = { project: PROJECT.replace(/v$/, 'w'), statements: [{ body, bytes }] };
    expect(await account.service.record(nowhere)).toMatchObject(refused(undefined, 'not_found'));
    const many = Array.from({ length: MAX_RECORD_STATEMENTS + 1 }, () => ({ body, bytes }));
    expect(await account.service.record({ project: PROJECT, statements: many })).toMatchObject(
      refused('statements'),
    );
    expect(await record({}, Buffer.alloc(MAX_RECORD_BYTES + 1))).toMatchObject(refused('statements'));
    expect(await sizeOf()).toBe(6);
  });
});

describe('a receipt of a session', () => {
  it('is signed, stored and logged in one commit, and is the same however often it is asked for', async () => {
    await account.happen(3);
    const { payload, head, facts } = await account.draft();
    const issued = value(await account.service.issue({ project: PROJECT, payload }));
    expect(issued).toMatchObject({ asOf: head.size, index: head.size });
    const pins = { key: account.identity.vkey };
    const report = verifyReceipt(Buffer.from(issued.bytes), pins);
    expect(report.checks.filter(({ status }) => status === 'failed')).toEqual([]);
    expect(parseDsse(Buffer.from(issued.bytes)).payload.equals(payload)).toBe(true);
    expect(issued.digest).toBe(createHash('sha256').update(issued.bytes).digest('hex'));
    expect(parseEntry((await account.entries())[issued.index] as Buffer)).toMatchObject({
      statement: {
        kind: 'receipt.issued',
        receipt: `sha256:${issued.digest}`,
        scope: { type: 'session', session: SESSION },
        asOf: head.size,
      },
    });
    expect(await account.store.receipt(account.log, `session:${SESSION}`)).toMatchObject({
      id: issued.id,
      disposition: facts.judgement.disposition.status,
    });
    const size = await sizeOf();
    const again = await Promise.all(
      Array.from({ length: 3 }, () => account.service.issue({ project: PROJECT, payload })),
    );
    expect(again.map(value)).toEqual([issued, issued, issued]);
    expect(await sizeOf()).toBe(size);
  });

  it('asked for many times at once is made once', async () => {
    await account.happen(6);
    const { payload, head } = await account.draft();
    const asked = { project: PROJECT, payload };
    const all = await Promise.all(Array.from({ length: 6 }, () => account.service.issue(asked)));
    expect(new Set(all.map((outcome) => value(outcome).id)).size).toBe(1);
    expect(await sizeOf()).toBe(head.size + 1);
  });

  it.each(['before', 'after'] as const)('survives a commit that failed %s it was applied', async (fault) => {
    await account.happen(6);
    const { payload, head } = await account.draft();
    account.store.faults.push(fault);
    const first = await account.service.issue({ project: PROJECT, payload });
    // Where it was applied, the stored one is the answer at once.
    expect(first.ok).toBe(fault === 'after');
    const issued = value(await account.service.issue({ project: PROJECT, payload }));
    expect(issued.index).toBe(head.size);
    expect(await sizeOf()).toBe(head.size + 1);
    expect(value(await account.service.issue({ project: PROJECT, payload }))).toEqual(issued);
  });

  it('follows the last one of its session, or is stale', async () => {
    await account.happen(3);
    const first = await account.draft();
    const issued = value(await account.service.issue({ project: PROJECT, payload: first.payload }));
    await account.happen(3);
    const stale = refused('supersedes', 'stale');
    const orphan = await account.draft();
    expect(await account.service.issue({ project: PROJECT, payload: orphan.payload })).toMatchObject(stale);
    const wrong = await account.draft(`sha256:${'1'.repeat(64)}`);
    expect(await account.service.issue({ project: PROJECT, payload: wrong.payload })).toMatchObject(stale);
    const next = await account.draft(`sha256:${issued.digest}`);
    const second = value(await account.service.issue({ project: PROJECT, payload: next.payload }));
    expect(parseEntry((await account.entries())[second.index] as Buffer)).toMatchObject({
      statement: { supersedes: `sha256:${issued.digest}` },
    });
  });

  it('is refused when the log, the checkpoint, the statement, the policy or an issuer is another', async () => {
    await account.happen(6);
    const label = { kind: 'label.set', project: PROJECT, session: 'run-2', says: 'violated' } as const;
    const { payload, index } = await account.draft(undefined, async () => {
      value(await account.service.change({ ...label, by: AUDITOR }));
    });
    // What a worker that lies, or is confused, could hand in: each is in its one form.
    const changed = async (change: (predicate: Record<string, unknown>) => void) => {
      const statement = JSON.parse(payload.toString()) as { predicate: Record<string, unknown> };
      change(statement.predicate);
      return account.service.issue({ project: PROJECT, payload: Buffer.from(canonical(statement)) });
    };
    const set = (path: string, to: unknown) =>
      changed((predicate) => {
        const names = path.split('.');
        const last = names.pop() as string;
        let at: Record<string, unknown> = predicate;
        for (const name of names) at = at[name] as Record<string, unknown>;
        expect(at[last]).toBeDefined();
        at[last] = to;
      });
    const zero = `sha256:${'0'.repeat(64)}`;
    const size = await sizeOf();
    expect(await set('log.origin', 'test.local/other')).toMatchObject(refused());
    expect(await set('log.x5c', [])).toMatchObject(refused());
    expect(await set('asOf.size', size - 1)).toMatchObject(refused('asOf', 'not_found'));
    expect(await set('asOf.size', size + 1)).toMatchObject(refused('asOf', 'not_found'));
    expect(await set('asOf.size', 'many')).toMatchObject(refused());
    expect(await set('asOf.checkpoint', 'another')).toMatchObject(refused());
    expect(await set('asOf.time', '2026-01-01T00:00:00.000Z')).toMatchObject(refused());
    expect(await set('coverage.statement', zero)).toMatchObject(refused('coverage'));
    expect(await set('coverage.index', index + 1)).toMatchObject(refused('coverage'));
    expect(await set('coverage.index', index - 1)).toMatchObject(refused());
    expect(await set('coverage.index', 0)).toMatchObject(refused());
    expect(await set('coverage.index', size)).toMatchObject(refused());
    expect(await set('coverage.time', '2026-01-01T00:00:00.000Z')).toMatchObject(refused('coverage'));
    expect(await set('policy.index', 1)).toMatchObject(refused('policy'));
    expect(await set('policy.index', 4)).toMatchObject(refused('policy'));
    const issuers = (more: object) => (predicate: Record<string, unknown>) => {
      Object.assign((predicate['issuers'] as object[])[0] as object, more);
    };
    expect(await changed(issuers({ token: TOKEN.replace(/v$/, 'w') }))).toMatchObject(refused('issuers'));
    expect(await changed(issuers({ index: 2 }))).toMatchObject(refused('issuers'));
    expect(await changed(issuers({ role: 'verifier' }))).toMatchObject(refused('issuers'));
    expect(await changed(issuers({ issuedBy: ADMIN.replace(/v$/, 'w') }))).toMatchObject(refused('issuers'));
    expect(await set('evidence.entries', -1)).toMatchObject(refused());
    expect(await set('calls', 7)).toMatchObject(refused());
    expect(await set('notProven', [])).toMatchObject(refused());
    expect(await sizeOf()).toBe(size);
    for (const bytes of [
      Buffer.from('{}'),
      Buffer.from('no'),
      Buffer.alloc(0),
      Buffer.from(`${payload.toString()} `),
      Buffer.alloc(MAX_PAYLOAD_BYTES + 1, 0x20),
    ]) {
      expect(await account.service.issue({ project: PROJECT, payload: bytes })).toMatchObject(refused());
    }
    const nowhere = { project: PROJECT.replace(/v$/, 'w'), payload };
    expect(await account.service.issue(nowhere)).toMatchObject(refused(undefined, 'not_found'));
    expect(await sizeOf()).toBe(size);
    value(await account.service.issue({ project: PROJECT, payload }));
  });

  it('is refused with a policy that was set for other sessions', async () => {
    await account.happen(2);
    const by = { tenant: TENANT, by: ADMIN, project: PROJECT };
    const policy = { ...DEFAULT_POLICY, lateness: 5 };
    const set = value(await account.service.change({ kind: 'policy.set', ...by, policy }));
    const { payload } = await account.draft();
    const statement = JSON.parse(payload.toString()) as { predicate: { policy: object } };
    statement.predicate.policy = { digest: policyDigest(policy), index: set.index, document: policy };
    const outcome = await account.service.issue({
      project: PROJECT,
      payload: Buffer.from(canonical(statement)),
    });
    expect(outcome).toMatchObject(refused('coverage'));
  });
});

describe('a receipt of a period', () => {
  it('is signed as it is handed in, for a published head, each after the last', async () => {
    await account.happen(6);
    const head = await account.publish();
    const [from, to] = ['2026-01-01T00:00:00.000Z', '2026-02-01T00:00:00.000Z'] as const;
    const facts = derivePeriod({
      from,
      to,
      asOf: { size: head.size, time: account.time },
      policy: policyDigest(DEFAULT_POLICY),
      sessions: [{ session: SESSION }],
      sinks: [],
      entries: { first: 0, count: head.size },
    });
    const payload = periodReceiptPayload(facts, account.identity, head);
    const issued = value(await account.service.issue({ project: PROJECT, payload }));
    expect(parseEntry((await account.entries())[issued.index] as Buffer)).toMatchObject({
      statement: { scope: { type: 'period', from, to }, asOf: head.size },
    });
    expect(await account.store.receipt(account.log, `period:${from}..${to}`)).toMatchObject({
      disposition: null,
    });
    const later = await account.publish();
    const orphan = periodReceiptPayload(facts, account.identity, later);
    expect(await account.service.issue({ project: PROJECT, payload: orphan })).toMatchObject(
      refused('supersedes', 'stale'),
    );
    const next = periodReceiptPayload(facts, account.identity, later, `sha256:${issued.digest}`);
    value(await account.service.issue({ project: PROJECT, payload: next }));
  });
});

describe('the manifest of an export', () => {
  it('is signed for a head of this log that was published, and leaves nothing in the log', async () => {
    await account.happen(6);
    const head = await account.publish();
    const manifest: ExportManifest = {
      log: account.identity,
      project: { id: PROJECT, name: 'project' },
      asOf: { ...head, evaluated: head.size },
      request: {},
      pages: PAGES_VERSION,
      files: EXPORT_FILES.filter((name) => name !== 'oscal.json').map((name) => ({
        name,
        size: 3,
        crc32: 7,
        sha256: 'a'.repeat(64),
      })),
      counts: { entries: head.size, omitted: 0, receipts: 0, sessions: 1 },
    };
    const sign = (more: Partial<ExportManifest>) =>
      account.service.signExport({ project: PROJECT, payload: formatManifest({ ...manifest, ...more }) });
    const { bytes } = value(await sign({}));
    const envelope = parseDsse(Buffer.from(bytes));
    expect(envelope.payload.equals(formatManifest(manifest))).toBe(true);
    const message = preAuthEncoding(IN_TOTO, envelope.payload);
    expect(ed25519Verifier(account.identity.vkey).verify(message, envelope.signature)).toBe(true);

    expect(await sign({ pages: PAGES_VERSION + 1 })).toMatchObject(refused());
    const { identity } = account;
    expect(await sign({ log: { ...identity, origin: 'test.local/other' } })).toMatchObject(refused('log'));
    expect(await sign({ log: { ...identity, x5c: [] } })).toMatchObject(refused('log'));
    expect(await sign({ log: { ...identity, vkey: `${identity.vkey}A` } })).toMatchObject(refused('log'));
    const project = { id: PROJECT.replace(/v$/, 'w'), name: 'project' };
    expect(await sign({ project })).toMatchObject(refused('project'));
    const asOf = { ...head, evaluated: 0 };
    expect(await sign({ asOf: { ...asOf, checkpoint: 'another' } })).toMatchObject(refused('asOf'));
    expect(await sign({ asOf: { ...asOf, time: '2026-01-01T00:00:00.000Z' } })).toMatchObject(
      refused('asOf'),
    );
    const counts = { entries: head.size + 1, omitted: 0, receipts: 0, sessions: 1 };
    expect(await sign({ asOf: { ...asOf, size: head.size + 1 }, counts })).toMatchObject(
      refused('asOf', 'not_found'),
    );
    const payload = Buffer.from('{"_type":"https://in-toto.io/Statement/v1"}');
    expect(await account.service.signExport({ project: PROJECT, payload })).toMatchObject(refused());
    // Neither is what is to be signed as the other.
    const { payload: receipt } = await account.draft();
    expect(await account.service.signExport({ project: PROJECT, payload: receipt })).toMatchObject(refused());
    const asReceipt = await account.service.issue({ project: PROJECT, payload: formatManifest(manifest) });
    expect(asReceipt).toMatchObject(refused());
  });
});

it('a label of an auditor is an entry, and one of anybody else is none', async () => {
  const label = { kind: 'label.set', project: PROJECT, session: SESSION, says: 'violated' } as const;
  const change = (by: string): Promise<Outcome<unknown, CollectorFault | StaleFault>> =>
    account.service.change({ ...label, by });
  expect(await change(ADMIN)).toMatchObject(refused('by', 'not_found'));
  value(await change(AUDITOR));
  const [entry] = await account.store.lines(account.log, 3, 4);
  expect(parseCollectorBody(entry?.line as Buffer)).toMatchObject({ kind: 'label.set', by: AUDITOR });
});
