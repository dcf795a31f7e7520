import { canonical } from '@belay/envelope';
import {
  formatPeriodStatement,
  parseAnyReceipt,
  parseClaim,
  parsePeriodStatement,
  PERIOD_NOT_PROVEN,
  periodReceipt,
  periodReceiptPayload,
  type PeriodSession,
  ReceiptError,
  ReceiptVerifier,
  SESSION_RECEIPT_CHECKS,
  signPayload,
  verifyReceipt,
} from '@belay/receipt';
import type { SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { KEY, ROOT_PEM, signer } from './sample.js';
import {
  adversity,
  affirmed,
  DAY,
  gapped,
  happened,
  headOf,
  IDENTITY,
  issue,
  periodOf,
  SESSION,
} from './session-sample.js';

const receiptOf = (log: SessionLog): PeriodSession => {
  const { receipt } = issue(log);
  return { session: SESSION, receipt: { digest: `sha256:${'a'.repeat(64)}`, receipt } };
};

describe('a receipt of a period', () => {
  test('counts the sessions by their receipts, and is complete when every sink is', () => {
    const { log } = affirmed();
    const session = receiptOf(log);
    const facts = periodOf(log, DAY, [session, { session: 'another' }]);
    expect(facts).toMatchObject({
      sessions: { count: 2, unissued: 1, dispositions: { affirmed: 1, contested: 0 } },
      calls: 2,
      levels: { replayed: 2 },
      verdicts: { PASS: 1, WARN: 1, causes: { WARN_CAUSE: 1 } },
      entries: { first: 0, count: log.entries.length },
      complete: true,
    });
    expect(facts.sinks.map(({ sink, status }) => [sink, status])).toEqual([
      ['hook', 'complete'],
      ['proxy', 'complete'],
      ['verifier', 'complete'],
    ]);
    const head = headOf(log);
    const payload = periodReceiptPayload(facts, IDENTITY, head);
    const bytes = signPayload(payload, signer);
    const report = verifyReceipt(bytes, { key: KEY, rootPem: ROOT_PEM });
    expect(report.verdict).toBe('INDETERMINATE');
    expect(report.checks.map(({ name }) => name)).toEqual([...SESSION_RECEIPT_CHECKS]);
    expect(report.checks.filter(({ status }) => status !== 'ok')).toEqual([
      {
        name: 'evidence',
        status: 'undecided',
        detail: 'the 2 sessions it counts are not in this file: an export brings them',
      },
    ]);
    expect(parseAnyReceipt(bytes).type).toBe('period');
    expect(parseClaim(payload).type).toBe('period');
    const verifier = new ReceiptVerifier({ key: KEY });
    for (let at = 0; at < bytes.length; at += 3) {
      const copy = Buffer.from(bytes);
      copy[at] = ((copy[at] as number) + 1 + (at % 200)) % 256;
      expect(verifier.examine(copy).report.verdict, `byte ${at}`).toBe('INVALID');
    }
  });

  test('is of those sessions and no others: one more, one receipt more, is another subject', () => {
    const { log } = affirmed();
    const digests = [[], [{ session: 'a' }], [{ session: 'a' }, { session: 'b' }], [receiptOf(log)]].map(
      (sessions) => periodOf(log, DAY, sessions).sessions.digest,
    );
    expect(new Set(digests).size).toBe(digests.length);
    const order = [{ session: 'b' }, { session: 'a' }];
    expect(periodOf(log, DAY, order).sessions.digest).toBe(digests[2]);
  });

  test('with a gap, or before the period is over, or without a sink, is not complete', () => {
    expect(periodOf(gapped().log)).toMatchObject({
      complete: false,
      sinks: [{}, { sink: 'proxy', status: 'gap' }, {}],
    });
    expect(periodOf(affirmed().log, DAY, [], 0).complete).toBe(false);
    const empty = { from: '2025-01-01T00:00:00.000Z', to: '2025-02-01T00:00:00.000Z' };
    expect(periodOf(affirmed().log, empty)).toMatchObject({
      complete: false,
      entries: { first: 0, count: 0 },
    });
  });

  test('a sink that is required and says nothing in it is silent; one that is not required has no part', () => {
    const desk = affirmed();
    const after = { from: new Date(desk.log.now + 1_000).toISOString(), to: '2026-01-02T00:00:00.000Z' };
    expect(periodOf(desk.log, after, [], 200_000).sinks).toEqual([
      expect.objectContaining({ sink: 'proxy', required: true, status: 'silent' }),
    ]);
  });

  test('an epoch lost between two belongs to what is between them', () => {
    const { log, proxy } = affirmed();
    const closed = log.now;
    log.now += 60_000;
    proxy.open(true);
    proxy.open();
    proxy.stated('epoch.close');
    const lostIn = (from: number, to: number): number | undefined =>
      periodOf(log, { from: new Date(from).toISOString(), to: new Date(to).toISOString() }).sinks.find(
        ({ sink }) => sink === 'proxy',
      )?.lost;
    expect(lostIn(closed - 3_000, closed + 1_000)).toBe(1);
    expect(lostIn(closed + 10_000, closed + 20_000)).toBe(1);
    expect(lostIn(log.now + 1, log.now + 1_000)).toBe(0);
    expect(lostIn(closed - 10_000, closed - 8_000)).toBe(0);
  });

  test('of whatever happened reads as what it was', () => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(adversity, fc.nat(40), fc.nat(40), (given, start, length) => {
        const log = happened(given);
        const from = new Date(Date.parse(DAY.from) + start * 500).toISOString();
        const to = new Date(Date.parse(from) + 500 + length * 500).toISOString();
        const facts = periodOf(log, { from, to }, [receiptOf(log)], given.later);
        for (const { status } of facts.sinks) seen.add(status);
        const payload = periodReceiptPayload(facts, IDENTITY, headOf(log), `sha256:${'0'.repeat(64)}`);
        const read = parsePeriodStatement(payload);
        expect(read).toEqual(periodReceipt(facts, IDENTITY, headOf(log), `sha256:${'0'.repeat(64)}`));
        expect(formatPeriodStatement(read).equals(payload)).toBe(true);
      }),
      { numRuns: 100 },
    );
    expect(seen.size).toBeGreaterThanOrEqual(4);
  });
});

describe('what does not go together is not read', () => {
  const { log } = gapped();
  const payload = periodReceiptPayload(periodOf(log, DAY, [receiptOf(log)]), IDENTITY, headOf(log));
  type Predicate = Record<string, unknown>;
  const forgeries: Record<string, (predicate: Predicate) => void> = {
    'complete above a gap': (it) => Object.assign(it, { complete: true }),
    "a sink's status": (it) => Object.assign((it['sinks'] as object[])[1] as object, { status: 'complete' }),
    'a session more': (it) => Object.assign(it['sessions'] as object, { count: 2 }),
    'a call more': (it) => Object.assign(it, { calls: 3 }),
    'a period that ends first': (it) =>
      Object.assign(it, { scope: { type: 'period', from: DAY.to, to: DAY.from } }),
    'more entries than there are': (it) => Object.assign(it, { entries: { first: 0, count: 9_999 } }),
    'more than the head has': (it) => Object.assign(it['coverage'] as object, { size: 9_999 }),
    'sinks in another order': (it) => (it['sinks'] as object[]).reverse(),
    'a sentence less that is not proven': (it) =>
      Object.assign(it, { notProven: PERIOD_NOT_PROVEN.slice(1) }),
    'an unknown member': (it) => Object.assign(it, { note: 'all is well' }),
    'another version': (it) => Object.assign(it, { v: 2 }),
  };
  test.each(Object.keys(forgeries))('%s', (name) => {
    const statement = JSON.parse(payload.toString()) as { predicate: Predicate };
    forgeries[name]?.(statement.predicate);
    const forged = Buffer.from(canonical(statement));
    expect(() => parsePeriodStatement(payload)).not.toThrow();
    expect(() => parsePeriodStatement(forged)).toThrow(ReceiptError);
  });

  test('facts of more than the head has make no receipt', () => {
    const head = { ...headOf(log), size: 3 };
    expect(() => periodReceiptPayload(periodOf(log), IDENTITY, head)).toThrow(
      expect.objectContaining({ code: 'evidence' }),
    );
  });
});
