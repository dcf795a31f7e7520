import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createHash } from 'node:crypto';
import { deflateSync } from 'node:zlib';
import type { AppendRequest, Change } from '@belay/contracts';
import { DEFAULT_POLICY } from '@belay/coverage';
import type { CoverageStated } from '@belay/envelope';
import {
  decodeAppend,
  decodeChange,
  decodeChangeOutcome,
  decodeCheckpoint,
  decodeOutcome,
  decodePayload,
  decodeReceipt,
  decodeRecord,
  encodeAppend,
  encodeChange,
  encodeCheckpoint,
  encodeOutcome,
  encodePayload,
  encodeReceipt,
  encodeRecord,
  FrameError,
  MAX_FRAME_BYTES,
  MAX_PAYLOAD_BYTES,
  MAX_RECORD_BYTES,
  MAX_RECORD_STATEMENTS,
} from '@belay/contracts/rpc';

const word = fc.string({ maxLength: 40 });
const count = fc.nat(Number.MAX_SAFE_INTEGER);
const bytes = (n: number) => fc.uint8Array({ minLength: n, maxLength: n }).map((b) => Buffer.from(b));
/** Members that are undefined are not members of what comes back. */
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const without = <T extends object>(value: T): T =>
  Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined)) as T;

const refusal = fc.record({ line: count, code: word, field: optional(word), message: word }).map(without);
const appends = fc
  .record({
    project: word,
    token: word,
    sink: word,
    epoch: word,
    rows: fc.array(fc.tuple(fc.uint8Array({ maxLength: 60 }), fc.option(count)), { maxLength: 20 }),
    refused: fc.array(refusal, { maxLength: 4 }),
    signature: optional(bytes(64)),
    head: optional(count),
  })
  .map(
    ({ rows, ...rest }) =>
      without({
        ...rest,
        lines: rows.map(([line]) => Buffer.from(line)),
        seqs: rows.map(([, seq]) => seq),
      }) as AppendRequest,
  );

const base = { tenant: word, by: word, project: word };
const holder = fc.record({ id: word, secretHash: bytes(32) });
const changes = fc.oneof(
  fc.record({
    kind: fc.constant('tenant.create' as const),
    tenant: word,
    by: word,
    name: word,
    admin: word,
    secretHash: bytes(32),
  }),
  fc.record({
    kind: fc.constant('project.create' as const),
    ...base,
    name: word,
    public: fc.boolean(),
    token: holder,
    auditor: holder,
  }),
  fc.record({
    kind: fc.constant('token.issue' as const),
    ...base,
    token: word,
    secretHash: bytes(32),
    role: fc.constantFrom('agent' as const, 'sink' as const, 'verifier' as const),
    sinks: optional(fc.array(word, { maxLength: 3 })),
    expires: optional(word),
    domain: optional(word),
    rate: optional(count),
  }),
  fc.record({ kind: fc.constant('token.revoke' as const), ...base, token: word }),
  fc.record({ kind: fc.constant('auditor.issue' as const), ...base, auditor: word, secretHash: bytes(32) }),
  fc.record({ kind: fc.constant('auditor.revoke' as const), ...base, auditor: word }),
  fc.record({
    kind: fc.constant('sink.declare' as const),
    ...base,
    sink: word,
    sinkKind: optional(word),
    required: optional(fc.boolean()),
    domain: optional(word),
    key: optional(bytes(32)),
    heartbeat: optional(count),
  }),
  fc.record({
    kind: fc.constant('policy.set' as const),
    ...base,
    policy: fc
      .record({
        public: fc.boolean(),
        lateness: fc.nat(1_000),
        retention: optional(fc.integer({ min: 1, max: 1_000 })),
        sessions: fc.constantFrom([], [{ kind: 'code', opens: ['proxy'], required: ['proxy', 'hook'] }]),
      })
      .map((given) => without({ ...DEFAULT_POLICY, ...given })),
  }),
  fc.record({
    kind: fc.constant('label.set' as const),
    tenant: optional(word),
    by: word,
    project: word,
    session: word,
    call: optional(word),
    says: fc.constantFrom('violated' as const, 'not_violated' as const),
  }),
);

const stated = (bytes: Buffer, of: { session: string } | { sink: string; epoch: string }) => {
  const body: CoverageStated = {
    kind: 'coverage.stated',
    v: 1,
    statement: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
    size: 7,
    time: '2026-01-01T00:00:00.000Z',
    status: 'gap',
    policy: `sha256:${'0'.repeat(64)}`,
    ...('session' in of ? { type: 'session', ...of } : { type: 'epoch', ...of }),
  };
  return { body, bytes };
};
const someStatements = [
  stated(Buffer.from('{"a":1}'), { session: 's-1' }),
  stated(Buffer.alloc(0), { session: 's-2' }),
  stated(Buffer.from('{"b":2}'), { sink: 'proxy', epoch: '01K6B3YB80041061050R3GG28A' }),
];

describe('frames', () => {
  it('carry an append verbatim', () => {
    fc.assert(
      fc.property(appends, (request) => {
        expect(decodeAppend(encodeAppend(request))).toEqual(request);
      }),
    );
  });

  it('carry every kind of change', () => {
    fc.assert(
      fc.property(changes, (change) => {
        expect(decodeChange(encodeChange(without(change) as Change))).toEqual(without(change));
      }),
    );
  });

  it('carry the other verbs and outcomes', () => {
    expect(decodeCheckpoint(encodeCheckpoint('log_x'))).toBe('log_x');
    for (const scope of [
      { type: 'event', index: 3 },
      { type: 'range', first: 1, count: 4 },
    ] as const) {
      expect(decodeReceipt(encodeReceipt({ project: 'p', scope, asOf: 9 }))).toEqual({
        project: 'p',
        scope,
        asOf: 9,
      });
      expect(decodeReceipt(encodeReceipt({ project: 'p', scope }))).toEqual({ project: 'p', scope });
    }
    const created = {
      ok: true,
      value: { index: 0, size: 3, log: { id: 'l', origin: 'o', vkey: 'v', publicKey: Buffer.alloc(32, 5) } },
    } as const;
    expect(decodeChangeOutcome(encodeOutcome(created))).toEqual(created);
    const fault = {
      ok: false,
      fault: { kind: 'retry', code: 'overloaded', message: 'm', retryAfter: 1 },
    } as const;
    expect(decodeOutcome(encodeOutcome(fault))).toEqual(fault);
  });

  it('carry statements and payloads verbatim', async () => {
    const request = { project: 'p', statements: someStatements };
    expect(await decodeRecord(await encodeRecord(request))).toEqual(request);
    const none = { project: 'p', statements: [] };
    expect(await decodeRecord(await encodeRecord(none))).toEqual(none);
    fc.assert(
      fc.property(word, fc.uint8Array({ maxLength: 300 }), (project, payload) => {
        const asked = { project, payload: Buffer.from(payload) };
        expect(decodePayload(encodePayload(asked))).toEqual(asked);
      }),
    );
    const stale = {
      ok: false,
      fault: { kind: 'refused', code: 'stale', message: 'm', field: 'supersedes' },
    } as const;
    expect(decodeOutcome(encodeOutcome(stale))).toEqual(stale);
  });

  it('carry the statement of a session of forty thousand calls, longer than a message of NATS', async () => {
    const hex = (at: number) => createHash('sha256').update(String(at)).digest('hex');
    const calls = Array.from({ length: 40_000 }, (_, at) => ({
      arguments: 'same',
      calls: [`hmac-sha256:${hex(at)}`],
      identical: 1,
      outcome: 'same',
      seen: [
        { calls: [4 * at], results: [4 * at + 2], sink: 'hook' },
        { calls: [4 * at + 1], results: [4 * at + 3], sink: 'proxy' },
      ],
      weak: false,
    }));
    const bytes = Buffer.from(JSON.stringify({ calls }));
    expect(bytes.length).toBeGreaterThan(MAX_FRAME_BYTES);
    const request = { project: 'p', statements: [stated(bytes, { session: 's' })] };
    const frame = await encodeRecord(request);
    expect(frame.length).toBeLessThan(MAX_FRAME_BYTES);
    expect((await decodeRecord(frame)).statements[0]?.bytes.equals(bytes)).toBe(true);
  });

  it('of statements are refused beyond their limits, and for what is not a statement of coverage', async () => {
    const [one] = someStatements as [(typeof someStatements)[0]];
    const refuses = (work: Promise<unknown>, message: string) =>
      expect(work).rejects.toMatchObject({ name: 'FrameError', message: expect.stringContaining(message) });
    const many = Array.from({ length: MAX_RECORD_STATEMENTS + 1 }, () => one);
    await refuses(encodeRecord({ project: 'p', statements: many }), 'at most');
    const large = stated(Buffer.alloc(MAX_RECORD_BYTES + 1), { session: 's' });
    await refuses(encodeRecord({ project: 'p', statements: [large] }), 'at most');
    expect(() => encodePayload({ project: 'p', payload: Buffer.alloc(MAX_PAYLOAD_BYTES + 1) })).toThrow(
      FrameError,
    );

    const made = (header: object, rest: Buffer) => {
      const head = Buffer.from(JSON.stringify(header));
      const length = Buffer.alloc(4);
      length.writeUInt32BE(head.length);
      return decodeRecord(Buffer.concat([length, head, rest]));
    };
    const body = JSON.stringify(someStatements[0]?.body);
    const canonical = (await encodeRecord({ project: 'p', statements: [one] })).toString('latin1');
    expect(canonical).toContain('coverage.stated');
    await refuses(made({ v: 1, project: 'p', lengths: [7], bodies: [body] }, deflateSync('{"a":1}')), 'body');
    await refuses(made({ v: 1, project: 'p', lengths: [1], bodies: [] }, deflateSync('a')), 'differ');
    await refuses(made({ v: 2, project: 'p', lengths: [], bodies: [] }, deflateSync('')), 'version');
    await refuses(made({ v: 1, project: 'p', lengths: [], bodies: [] }, Buffer.from('plain')), 'deflated');
    // Says it is short and is not: what is inflated is bounded by what was said.
    await refuses(
      made({ v: 1, project: 'p', lengths: [], bodies: [] }, deflateSync(Buffer.alloc(1 << 24))),
      'as long as it says',
    );
    const frame = await encodeRecord({ project: 'p', statements: someStatements });
    await refuses(decodeRecord(Buffer.concat([frame, Buffer.of(0)])), 'as long as it says');
    for (let at = 0; at < frame.length; at += 3) {
      const damaged = Buffer.from(frame);
      damaged.writeUInt8(damaged.readUInt8(at) ^ 0x24, at);
      await decodeRecord(damaged).catch((error: unknown) => expect(error).toBeInstanceOf(FrameError));
      await expect(decodeRecord(frame.subarray(0, at))).rejects.toBeInstanceOf(FrameError);
    }
  });

  it('are refused with a FrameError, never with another error, whatever was done to them', () => {
    const refused = (decode: (frame: Buffer) => unknown, frame: Buffer) => {
      try {
        decode(frame);
      } catch (error) {
        expect(error).toBeInstanceOf(FrameError);
      }
    };
    fc.assert(
      fc.property(appends, fc.nat(), fc.nat(255), fc.nat(), (request, at, value, cut) => {
        const frame = encodeAppend(request);
        const cutOff = Buffer.from(frame.subarray(0, cut % frame.length));
        expect(() => decodeAppend(cutOff)).toThrow(FrameError);
        frame[at % frame.length] = value;
        refused(decodeAppend, frame);
      }),
    );
    fc.assert(
      fc.property(fc.json(), (json) => {
        const frame = Buffer.from(json);
        for (const decode of [
          decodeChange,
          decodeCheckpoint,
          decodeReceipt,
          decodeChangeOutcome,
          decodeOutcome,
        ]) {
          refused(decode, frame);
        }
      }),
    );
    expect(() => decodeAppend(Buffer.alloc(MAX_FRAME_BYTES + 1))).toThrow('too long');
    expect(() => decodeAppend(Buffer.concat([encodeAppend(decodeAppend(smallest)), Buffer.of(0)]))).toThrow(
      'after',
    );
  });
});

const smallest = encodeAppend({
  project: '',
  token: '',
  sink: '',
  epoch: '',
  lines: [],
  seqs: [],
  refused: [],
});
