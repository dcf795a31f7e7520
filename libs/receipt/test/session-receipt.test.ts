import { canonical } from '@belay/envelope';
import {
  checkPayload,
  decided,
  formatSessionStatement,
  memberReasonText,
  parseAnyReceipt,
  parseClaim,
  parseReceipt,
  parseSessionStatement,
  reasonText,
  ReceiptError,
  ReceiptVerifier,
  SESSION_NOT_PROVEN,
  SESSION_RECEIPT_CHECKS,
  type SessionReceipt,
  sessionReceiptPayload,
  signPayload,
  verifyReceipt,
} from '@belay/receipt';
import { keyed } from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { KEY, ROOT_PEM, signer } from './sample.js';
import {
  adversity,
  affirmed,
  begun,
  Desk,
  factsOf,
  gapped,
  happened,
  headOf,
  IDENTITY,
  issue,
  label,
  SESSION,
} from './session-sample.js';

const BYTES = affirmedBytes();
function affirmedBytes(): Buffer {
  return issue(affirmed().log).bytes;
}

/** The payload with its statement changed, in canonical form again. */
function changed(payload: Buffer, change: (predicate: Record<string, unknown>) => void): Buffer {
  const statement = JSON.parse(payload.toString()) as { predicate: Record<string, unknown> };
  change(statement.predicate);
  return Buffer.from(canonical(statement));
}

const statusOf = (bytes: Buffer): Record<string, string> =>
  Object.fromEntries(
    verifyReceipt(bytes, { key: KEY, rootPem: ROOT_PEM }).checks.map(({ name, status }) => [name, status]),
  );

describe('a receipt of a session', () => {
  test('of a session as good as they come claims so, and leaves to an export what is in no file of it', () => {
    const { bytes, receipt, facts } = issue(affirmed().log);
    expect(receipt.disposition).toEqual({ status: 'affirmed', members: 3, calls: 2, warnings: 1 });
    expect(receipt.authority).toEqual({
      levels: { asserted: 0, observed: 0, corroborated: 0, replayed: 2, adjudicated: 0 },
      lowest: 'replayed',
      recorder: { same_domain: 0, other_domain: 2, unknown: 0 },
    });
    expect(receipt.verdicts).toEqual({ PASS: 1, WARN: 1, FAIL: 0, UNVERIFIED: 0, causes: { WARN_CAUSE: 1 } });
    const report = verifyReceipt(bytes, { key: KEY, rootPem: ROOT_PEM });
    expect(report.verdict).toBe('INDETERMINATE');
    expect(report.checks.map(({ name }) => name)).toEqual([...SESSION_RECEIPT_CHECKS]);
    expect(report.checks.filter(({ status }) => status !== 'ok')).toEqual([
      {
        name: 'evidence',
        status: 'undecided',
        detail: `its ${facts.evidence.entries} entries are not in this file: an export brings them`,
      },
    ]);
    expect(decided(report, 'evidence', { status: 'ok', detail: 'derived again' }).verdict).toBe('VALID');
    expect(decided(report, 'evidence', { status: 'failed', detail: 'another' }).verdict).toBe('INVALID');
  });

  test('is none of entries, and says of which kind it is', () => {
    expect(parseAnyReceipt(BYTES).type).toBe('session');
    expect(() => parseReceipt(BYTES)).toThrow('a receipt of a session');
  });

  test('of whatever happened is made, reads as what it was, and is the same each time', () => {
    const statuses = new Set<string>();
    fc.assert(
      fc.property(adversity, (given) => {
        const { payload, receipt } = issue(happened(given), given.later);
        expect(parseSessionStatement(payload)).toEqual(receipt);
        expect(formatSessionStatement(parseSessionStatement(payload)).equals(payload)).toBe(true);
        const { disposition } = receipt;
        statuses.add(disposition.status);
        if (disposition.status === 'affirmed') return;
        for (const reason of disposition.reasons) expect(reasonText(reason)).not.toMatch(/undefined|object/);
        for (const { reasons } of receipt.coverage.members) {
          for (const reason of reasons) expect(memberReasonText(reason)).not.toMatch(/undefined|object/);
        }
      }),
      { numRuns: 120 },
    );
    expect(statuses.size).toBeGreaterThanOrEqual(4);
  });

  test('every single byte changed: not one is read, signed and trusted', () => {
    const verifier = new ReceiptVerifier({ key: KEY });
    const rng = (n: number): number => (n * 7 + 3) % 255;
    for (let at = 0; at < BYTES.length; at += at < 200 || at > BYTES.length - 200 ? 1 : 5) {
      const copy = Buffer.from(BYTES);
      copy[at] = ((copy[at] as number) + 1 + rng(at)) % 256;
      expect(verifier.examine(copy).report.verdict, `byte ${at}`).toBe('INVALID');
    }
  });

  test('a byte more, a byte less, another order: not read', () => {
    for (const copy of [
      Buffer.concat([BYTES, Buffer.from('\n')]),
      BYTES.subarray(0, -1),
      Buffer.from(JSON.stringify(JSON.parse(BYTES.toString()), null, 1)),
    ]) {
      expect(verifyReceipt(copy, { key: KEY }).verdict).toBe('INVALID');
    }
  });
});

describe('what does not go together is not read, though the log signed it', () => {
  const good = issue(affirmed().log).payload;
  const bad = issue(gapped().log).payload;
  type Forged = Record<string, unknown>;
  const forgeries: Record<string, readonly [payload: Buffer, change: (predicate: Forged) => void]> = {
    'affirmed above a gap': [
      bad,
      (it) => Object.assign(it, { disposition: { status: 'affirmed', members: 3, calls: 1, warnings: 0 } }),
    ],
    'open above a gap': [
      bad,
      (it) =>
        Object.assign(it, {
          disposition: { status: 'open', reasons: [{ reason: 'not_begun' }], reasonsOmitted: 0 },
        }),
    ],
    'a gap taken from a status': [bad, (it) => Object.assign(memberOf(it, 'proxy'), { status: 'complete' })],
    'a status of coverage': [bad, (it) => Object.assign(it['coverage'] as object, { status: 'complete' })],
    'a reason taken away': [bad, (it) => Object.assign(memberOf(it, 'proxy'), { reasons: [] })],
    'another sink blamed': [
      bad,
      (it) =>
        Object.assign(it['disposition'] as object, {
          reasons: [{ reason: 'coverage', sink: 'hook', status: 'gap' }],
        }),
    ],
    'a sink that is no member': [
      bad,
      (it) =>
        Object.assign(it['disposition'] as object, {
          reasons: [{ reason: 'coverage', sink: 'nobody', status: 'gap' }],
        }),
    ],
    'affirmed without a call': [good, (it) => Object.assign(it, { calls: 0 })],
    'affirmed with a call that was not run again': [
      good,
      (it) =>
        Object.assign(it['authority'] as object, {
          levels: { asserted: 0, observed: 1, corroborated: 0, replayed: 1, adjudicated: 0 },
          lowest: 'observed',
        }),
    ],
    'affirmed by an unsigned member': [good, (it) => Object.assign(memberOf(it, 'hook'), { signed: false })],
    'affirmed of a session that goes on': [
      good,
      (it) => Object.assign(memberOf(it, 'proxy'), { closed: false }),
    ],
    'affirmed though nothing is required': [
      good,
      (it) => Object.assign(memberOf(it, 'proxy'), { required: false }),
    ],
    'affirmed with a FAIL': [good, (it) => Object.assign(it['verdicts'] as object, { FAIL: 1 })],
    'affirmed with what could not be told': [
      good,
      (it) => Object.assign(it['verdicts'] as object, { UNVERIFIED: 1 }),
    ],
    'more warnings than verdicts': [
      good,
      (it) => Object.assign(it['disposition'] as object, { warnings: 2 }),
    ],
    'another policy': [
      good,
      (it) => Object.assign(it['policy'] as object, { digest: `sha256:${'0'.repeat(64)}` }),
    ],
    'a policy that is not written out': [
      good,
      (it) => Object.assign(it['policy'] as object, { document: { v: 1 } }),
    ],
    'coverage of what came later': [good, (it) => Object.assign(it['coverage'] as object, { size: 10_000 })],
    'a coverage entry outside the head': [
      good,
      (it) => Object.assign(it['coverage'] as object, { index: 10_000 }),
    ],
    'an unknown member': [good, (it) => Object.assign(it, { note: 'all is well' })],
    'a sentence less that is not proven': [
      good,
      (it) => Object.assign(it, { notProven: SESSION_NOT_PROVEN.slice(1) }),
    ],
    'a status that is none': [good, (it) => Object.assign(it, { disposition: { status: 'perfect' } })],
    'a reason that is none': [
      bad,
      (it) => Object.assign(it['disposition'] as object, { reasons: [{ reason: 'bad_luck' }] }),
    ],
    'reasons that were not left out': [
      bad,
      (it) => Object.assign(it['disposition'] as object, { reasonsOmitted: 1 }),
    ],
    'no reason': [bad, (it) => Object.assign(it['disposition'] as object, { reasons: [] })],
    'another session': [good, (it) => Object.assign(it, { scope: { type: 'session', session: 'run-2' } })],
  };
  const memberOf = (predicate: Forged, sink: string): object =>
    (predicate['coverage'] as { members: { sink: string }[] }).members.find(
      (member) => member.sink === sink,
    ) as object;

  test.each(Object.keys(forgeries))('%s', (name) => {
    const [payload, change] = forgeries[name] as (typeof forgeries)[string];
    const forged = changed(payload, change);
    expect(() => parseSessionStatement(payload)).not.toThrow();
    expect(forged.equals(payload)).toBe(false);
    expect(() => parseSessionStatement(forged)).toThrow(ReceiptError);
    expect(statusOf(signPayload(forged, signer))).toMatchObject({
      'payload-type': 'ok',
      statement: 'failed',
    });
  });

  test('affirmed above members of any session that lacks something', () => {
    let tried = 0;
    fc.assert(
      fc.property(adversity, (given) => {
        const { payload, receipt } = issue(happened(given), given.later);
        if (receipt.disposition.status === 'affirmed') return;
        const { members } = receipt.coverage;
        const whole = members.every(
          ({ status, signed, closed }) => status === 'complete' && signed && closed,
        );
        if (whole) return;
        tried++;
        const forged = changed(payload, (it) =>
          Object.assign(it, {
            disposition: { status: 'affirmed', members: members.length, calls: receipt.calls, warnings: 0 },
          }),
        );
        expect(() => parseSessionStatement(forged)).toThrow(ReceiptError);
      }),
      { numRuns: 60 },
    );
    expect(tried).toBeGreaterThan(30);
  });
});

describe('limits', () => {
  test('what is long is cut, and how much is said', () => {
    const desk = new Desk();
    for (let n = 0; n < 150; n++) {
      desk.call('none');
      desk.proxy.say('x.note', { session: SESSION }, true);
    }
    const { receipt, payload } = issue(desk.close().log);
    const proxy = receipt.coverage.members.find(({ sink }) => sink === 'proxy');
    expect(proxy).toMatchObject({ status: 'gap', reasonsOmitted: 51 });
    expect(proxy?.reasons).toHaveLength(100);
    const { disposition } = receipt;
    if (disposition.status !== 'incomplete') throw new Error(disposition.status);
    expect(disposition.reasons[0]).toMatchObject({ omitted: { because: 51 } });
    expect(reasonText(disposition.reasons[0] as never)).toMatch(
      /^proxy has a gap: 100 lines never came, and nothing says why \(6, 10, .*, and 95 more\); and 51 more$/,
    );
    expect(parseSessionStatement(payload)).toEqual(receipt);
  });

  test('a hundred reasons, and those past them', () => {
    const desk = new Desk();
    for (let n = 0; n < 130; n++) desk.call('none');
    const { receipt, payload } = issue(desk.close().log);
    expect(receipt.disposition).toMatchObject({ status: 'unverified', reasonsOmitted: 30 });
    expect(parseSessionStatement(payload)).toEqual(receipt);
  });

  test('a group of identical calls is named by some of them', () => {
    const desk = new Desk();
    for (let n = 0; n < 40; n++) {
      const said = { session: SESSION, call: `weak:${keyed(`w ${n}`)}`, match: keyed('same') };
      desk.proxy.say('call', said);
    }
    const { receipt, payload } = issue(desk.close().log);
    const { disposition } = receipt;
    if (disposition.status !== 'unverified') throw new Error(disposition.status);
    expect(disposition.reasons).toContainEqual(
      expect.objectContaining({ reason: 'not_replayed', omitted: { calls: 20 } }),
    );
    const words = disposition.reasons.map(reasonText);
    expect(words.find((text) => text.startsWith('40 calls that can'))).toMatch(/were not run again/);
    expect(parseSessionStatement(payload)).toEqual(receipt);
  });
});

describe('before it is signed', () => {
  test('the collector finds what is not of its log', () => {
    const { log } = affirmed();
    const { payload, receipt } = issue(log);
    const head = headOf(log);
    expect(checkPayload(payload, { log: IDENTITY, head })).toEqual({ type: 'session', receipt });
    expect(parseClaim(payload).receipt.asOf.size).toBe(head.size);
    const code = (run: () => unknown): unknown => {
      try {
        run();
      } catch (error) {
        return { code: (error as ReceiptError).code, ...(error as ReceiptError).evidence };
      }
      return undefined;
    };
    expect(
      code(() => checkPayload(payload, { log: IDENTITY, head: { ...head, size: head.size + 1 } })),
    ).toEqual({
      code: 'evidence',
      stated: head.size,
      published: head.size + 1,
    });
    const elsewhere = { ...IDENTITY, origin: 'belay.example/other' };
    expect(code(() => checkPayload(payload, { log: elsewhere, head }))).toMatchObject({ code: 'evidence' });
    expect(code(() => checkPayload(Buffer.from('{}'), { log: IDENTITY, head }))).toEqual({
      code: 'malformed',
    });
    expect(code(() => parseClaim(Buffer.alloc(17 * 1024 * 1024)))).toEqual({ code: 'malformed' });
  });

  test('a coverage entry of another statement makes no receipt', () => {
    const { log } = affirmed();
    const facts = factsOf(log);
    const head = headOf(log);
    const entry = { index: log.entries.length - 1, statement: `sha256:${'0'.repeat(64)}` };
    expect(() => sessionReceiptPayload(facts, IDENTITY, head, entry)).toThrow('another statement');
  });

  test('of a log whose session nobody began, too', () => {
    const log = begun({ sessions: [{ kind: 'k', opens: ['proxy'], required: ['proxy'] }] });
    const stranger = log.sink('stranger', { declared: false, keyed: false });
    stranger.open();
    stranger.say('x.note', { session: SESSION });
    const { receipt } = issue(log) satisfies { receipt: SessionReceipt };
    expect(receipt.disposition).toMatchObject({ status: 'open', reasons: [{ reason: 'not_begun' }] });
  });

  test('an auditor and a verifier who differ are both named', () => {
    const desk = affirmed();
    label(desk.log, 'violated', 'call 0');
    const { receipt } = issue(desk.log);
    const { disposition } = receipt;
    if (disposition.status !== 'contested') throw new Error(disposition.status);
    expect(disposition.reasons.map(reasonText)).toEqual([
      expect.stringMatching(/^an auditor \(entry \d+\) says otherwise than the verdict in entry \d+$/),
    ]);
  });
});
