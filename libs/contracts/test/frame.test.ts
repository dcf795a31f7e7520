import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { AppendRequest, Change } from '@belay/contracts';
import {
  decodeAppend,
  decodeChange,
  decodeChangeOutcome,
  decodeCheckpoint,
  decodeOutcome,
  decodeReceipt,
  encodeAppend,
  encodeChange,
  encodeCheckpoint,
  encodeOutcome,
  encodeReceipt,
  FrameError,
  MAX_FRAME_BYTES,
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
  fc.record({ kind: fc.constant('policy.set' as const), ...base, public: fc.boolean() }),
);

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
