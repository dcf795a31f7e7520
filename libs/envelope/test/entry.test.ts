import {
  canonical,
  collectorLine,
  entryBytes,
  entryLeaf,
  entryMaker,
  EnvelopeError,
  formatCollectorBody,
  parseCollectorBody,
  parseEntry,
  type CollectorBody,
} from '@belay/envelope';
import { leafHash } from '@belay/merkle';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { bytes, sample } from './sample.js';

const TOKEN = 'tok_01k6b3yb80041061050r3gg28a';
const ADMIN = 'adm_01k6b3yb80041061050r3gg28a';
const fields = {
  log: 'belay.example/acme/agents',
  received: '2026-01-01T00:00:01.000Z',
  role: 'sink',
  token: TOKEN,
  sink: 'proxy',
} as const;
const body = bytes(sample());

describe("the collector's line", () => {
  test('is the same by the fast maker and by its parts, and reads back', () => {
    fc.assert(
      fc.property(
        fc.nat(Number.MAX_SAFE_INTEGER),
        fc.option(fc.nat(Number.MAX_SAFE_INTEGER), { nil: undefined }),
        fc.boolean(),
        fc.boolean(),
        (index, conflict, late, signed) => {
          const shared = {
            ...fields,
            ...(late ? { late: true as const } : {}),
            ...(signed ? { signed: '0123456789abcdef' } : {}),
          };
          const line = collectorLine({ ...shared, index, conflict });
          const maker = entryMaker(shared);
          expect(maker.line(index, conflict)).toBe(line);
          expect(maker.entry(index, body, conflict)).toEqual(entryBytes(line, body));
          expect(entryLeaf(line, body)).toEqual(leafHash(maker.entry(index, body, conflict)));
          const entry = parseEntry(entryBytes(line, body));
          expect(entry.by).toBe('sender');
          expect(entry.body).toEqual(body);
          expect(entry.line).toEqual({
            v: 1,
            index,
            ...shared,
            ...(conflict === undefined ? {} : { conflict }),
          });
        },
      ),
    );
  });

  test.each<[string, object]>([
    ['no token', { token: undefined }],
    ['a received time with micro-seconds', { received: '2026-01-01T00:00:01.000000Z' }],
    ['a received time that does not exist', { received: '2026-02-30T00:00:01.000Z' }],
    ['a received time past its hours', { received: '2026-01-01T25:00:01.000Z' }],
    ['a short fingerprint', { signed: 'abc' }],
    ['a token on an entry of the collector', { role: 'collector' }],
    ['an unknown role', { role: 'root' }],
  ])('is refused with %s', (_, changes) => {
    expect(() => collectorLine({ ...fields, ...changes, index: 0 })).toThrow(EnvelopeError);
  });

  test.each([-1, 1.5, 2 ** 53, Number.NaN])('index %d is refused', (index) => {
    expect(() => collectorLine({ ...fields, index })).toThrow(RangeError);
  });
});

describe('parseEntry refuses', () => {
  const line = collectorLine({ ...fields, index: 3 });
  test.each<[string, Buffer]>([
    ['a line that is not canonical', entryBytes(line.replace(',', ', '), body)],
    [
      'another order of members',
      entryBytes(line.replace('"index":3,', '').replace('}', ',"index":3}'), body),
    ],
    ['another log', entryBytes(line, bytes(sample({ log: 'other' })))],
    ['another sink', entryBytes(line, bytes(sample({ sink: 'other' })))],
    ['a trailing LF', Buffer.concat([entryBytes(line, body), Buffer.from('\n')])],
    ['no body', Buffer.from(line)],
    ['an empty body', Buffer.from(`${line}\n`)],
    [
      'an envelope under role collector',
      entryBytes(
        collectorLine({ log: fields.log, received: fields.received, role: 'collector', index: 1 }),
        body,
      ),
    ],
  ])('%s', (_, entry) => {
    expect(() => parseEntry(entry)).toThrow(EnvelopeError);
  });
});

const AUDITOR = 'aud_01k6b3yb80041061050r3gg28a';
const STATED = {
  kind: 'coverage.stated',
  v: 1,
  statement: `sha256:${'5'.repeat(64)}`,
  size: 12,
  time: '2026-01-01T00:00:00.000Z',
  status: 'unclosed',
  policy: `sha256:${'6'.repeat(64)}`,
} as const;
const EPOCH = '01K6B3YB80041061050R3GG28A';
const LATER = '2026-01-02T00:00:00.000Z';
const LABEL = { kind: 'label.set', v: 1, session: 'run-1', says: 'violated', by: AUDITOR };
const RECEIPT = { kind: 'receipt.issued', v: 1, receipt: STATED.policy, asOf: 20 };
const statements: CollectorBody[] = [
  {
    kind: 'log.genesis',
    v: 1,
    log: fields.log,
    vkey: 'belay.example/acme/agents+6b93115f+AWa+fjMsekUzMr2dCn99sFX1xe8aBq2mbZizn7aBDEc6',
    ackKey: 'belay.example/acme/agents/ack+6b93115f+AWa+fjMsekUzMr2dCn99sFX1xe8aBq2mbZizn7aBDEc6',
    project: 'prj_01k6b3yb80041061050r3gg28a',
    name: 'Agents\nof Zürich',
    x5c: [`sha256:${'0'.repeat(64)}`],
    policy: { public: false, retain: { days: 30 } },
  },
  {
    kind: 'token.issued',
    v: 1,
    token: TOKEN,
    role: 'sink',
    sinks: ['proxy'],
    expires: '2027-01-01T00:00:00.000Z',
    domain: 'host:a',
    by: ADMIN,
  },
  { kind: 'token.revoked', v: 1, token: TOKEN, by: ADMIN },
  { kind: 'auditor.issued', v: 1, auditor: 'aud_01k6b3yb80041061050r3gg28a', by: ADMIN },
  { kind: 'auditor.revoked', v: 1, auditor: 'aud_01k6b3yb80041061050r3gg28a', by: ADMIN },
  {
    kind: 'sink.declared',
    v: 1,
    sink: 'proxy',
    sinkKind: 'proxy',
    required: true,
    domain: 'd',
    key: Buffer.alloc(32).toString('base64'),
    fingerprint: '0123456789abcdef',
    heartbeat: 60,
    by: ADMIN,
  },
  { kind: 'policy.set', v: 1, policy: `sha256:${'1'.repeat(64)}`, by: ADMIN },
  {
    kind: 'label.set',
    v: 1,
    session: 'run-1',
    call: `weak:hmac-sha256:${'3'.repeat(64)}`,
    says: 'not_violated',
    by: AUDITOR,
  },
  { kind: 'label.set', v: 1, session: 'run-1', says: 'violated', by: AUDITOR },
  { ...STATED, type: 'session', session: 'run-1', policy: STATED.policy },
  { ...STATED, type: 'epoch', sink: 'proxy', epoch: '01K6B3YB80041061050R3GG28A', policy: STATED.policy },
  {
    kind: 'receipt.issued',
    v: 1,
    receipt: `sha256:${'2'.repeat(64)}`,
    scope: { type: 'range', first: 1, count: 9 },
    asOf: 20,
  },
  {
    kind: 'receipt.issued',
    v: 1,
    receipt: `sha256:${'2'.repeat(64)}`,
    scope: { type: 'session', session: 'run-1' },
    supersedes: `sha256:${'4'.repeat(64)}`,
    asOf: 20,
  },
  {
    kind: 'receipt.issued',
    v: 1,
    receipt: `sha256:${'2'.repeat(64)}`,
    scope: { type: 'period', from: '2026-01-01T00:00:00.000Z', to: '2026-02-01T00:00:00.000Z' },
    asOf: 20,
  },
];

describe('statements of the collector', () => {
  test.each(statements.map((statement) => [statement.kind, statement] as const))(
    '%s reads back, on one line',
    (_, statement) => {
      const written = formatCollectorBody(statement);
      expect(written.includes(0x0a)).toBe(false);
      expect(parseCollectorBody(written)).toEqual(statement);
      const line = collectorLine({ log: fields.log, received: fields.received, role: 'collector', index: 0 });
      expect(parseEntry(entryBytes(line, written))).toMatchObject({ by: 'collector', statement });
    },
  );

  test('are refused with a member too many, one too few, or not canonical', () => {
    for (const statement of statements) {
      expect(() => formatCollectorBody({ ...statement, extra: 1 } as never)).toThrow(EnvelopeError);
      const last = Object.keys(statement).at(-1) as string;
      expect(() => formatCollectorBody({ ...statement, [last]: undefined })).toThrow(EnvelopeError);
      const spaced = Buffer.from(formatCollectorBody(statement).toString().replace(',', ' ,'));
      expect(() => parseCollectorBody(spaced)).toThrow(EnvelopeError);
    }
  });

  test.each([
    ['a session that is none', { ...LABEL, session: 'run 1' }],
    ['another word', { ...LABEL, says: 'fine' }],
    ['a label by an admin', { ...LABEL, by: ADMIN }],
    ["a tool's own identifier", { ...LABEL, call: 'toolu_1' }],
    ['a session with an epoch', { ...STATED, type: 'session', session: 's', sink: 'p', epoch: EPOCH }],
    ['a session without one', { ...STATED, type: 'session' }],
    ['an epoch without a sink', { ...STATED, type: 'epoch', epoch: EPOCH }],
    ['an epoch of a session', { ...STATED, type: 'epoch', sink: 'p', epoch: EPOCH, session: 's' }],
    ['a sink', { ...STATED, type: 'sink', sink: 'p' }],
    ['another status', { ...STATED, type: 'session', session: 's', status: 'fine' }],
    ['a time of another width', { ...STATED, type: 'session', session: 's', time: '2026-01-01T00:00:00Z' }],
    [
      'a time that does not exist',
      { ...STATED, type: 'session', session: 's', time: '2026-02-30T00:00:00.000Z' },
    ],
    ['a policy that is an object', { ...STATED, type: 'session', session: 's', policy: {} }],
    [
      'a policy with half a day',
      { kind: 'policy.set', v: 1, policy: { retain: [{ days: 0.5 }] }, by: ADMIN },
    ],
    [
      'a policy with too great a number',
      { kind: 'policy.set', v: 1, policy: { heartbeat: 2 ** 53 }, by: ADMIN },
    ],
    [
      'an event that supersedes',
      { ...RECEIPT, scope: { type: 'event', index: 3 }, supersedes: STATED.policy },
    ],
    [
      'a range that supersedes',
      { ...RECEIPT, scope: { type: 'range', first: 3, count: 1 }, supersedes: STATED.policy },
    ],
    ['another scope', { ...RECEIPT, scope: { type: 'sink', sink: 'p' } }],
    ['a scope by inheritance', { ...RECEIPT, scope: { type: 'toString' } }],
    ['a scope with a member too many', { ...RECEIPT, scope: { type: 'session', session: 's', call: 'c' } }],
    ['a scope with the member of another', { ...RECEIPT, scope: { type: 'session', index: 3 } }],
    ['no scope', { ...RECEIPT, scope: null }],
    ['a period backwards', { ...RECEIPT, scope: { type: 'period', from: LATER, to: STATED.time } }],
    ['a period of no length', { ...RECEIPT, scope: { type: 'period', from: LATER, to: LATER } }],
    [
      'a period by the second',
      { ...RECEIPT, scope: { type: 'period', from: '2026-01-01T00:00:00Z', to: LATER } },
    ],
  ])('are refused: %s', (_, statement) => {
    expect(() => formatCollectorBody(statement as never)).toThrow(EnvelopeError);
    expect(() => parseCollectorBody(Buffer.from(canonical(statement)))).toThrow(EnvelopeError);
  });
});
