import { EnvelopeError, formatCollectorBody } from '@belay/envelope';
import { describe, expect, it } from 'vitest';
import { CoverageError, readPolicy } from '@belay/coverage';
import fc from 'fast-check';
import {
  createExportBody,
  createProjectBody,
  declareSinkBody,
  issueTokenBody,
  setLabelBody,
  setPolicyBody,
} from '../src/http.js';

/** What the API takes about tokens and sinks becomes statements of the log: both have to draw the same line. */

const by = `adm_${'0'.repeat(26)}`;
const token = (more: object) => ({ kind: 'token.issued', v: 1, token: `tok_${'0'.repeat(26)}`, by, ...more });
const sink = (more: object) => ({ kind: 'sink.declared', v: 1, sink: 's', by, ...more });

function isStatement(body: object): boolean {
  try {
    formatCollectorBody(body as never);
    return true;
  } catch (error) {
    if (error instanceof EnvelopeError) return false;
    throw error;
  }
}

const DOMAINS = ['a', 'A-z0/9.:@+_-', 'x'.repeat(128), '', 'x'.repeat(129), 'a b', 'a\n', 'ü', 'a,b', 'a\0'];
const SINKS = [
  ['a'],
  Array.from({ length: 64 }, (_, i) => `s${i}`),
  [],
  Array.from({ length: 65 }, (_, i) => `s${i}`),
  ['-a'],
  ['a'.repeat(64)],
  ['a'.repeat(65)],
  ['a\n'],
  [''],
];
const BEATS = [1, 86_400, 0, 86_401, 1.5, -1];

describe('what the API takes and what a statement may say are the same for', () => {
  it.each(DOMAINS)('the domain %j', (domain) => {
    const taken = issueTokenBody.safeParse({ domain }).success;
    expect(isStatement(token({ role: 'agent', domain }))).toBe(taken);
    expect(declareSinkBody.safeParse({ domain }).success).toBe(taken);
    expect(isStatement(sink({ domain }))).toBe(taken);
  });

  it.each(SINKS.map((sinks) => [sinks.length, sinks] as const))('%d sinks', (_, sinks) => {
    expect(isStatement(token({ role: 'agent', sinks }))).toBe(issueTokenBody.safeParse({ sinks }).success);
  });

  it.each(BEATS)('a heartbeat of %d', (heartbeat) => {
    expect(isStatement(sink({ heartbeat }))).toBe(declareSinkBody.safeParse({ heartbeat }).success);
  });

  it.each(['agent', 'sink', 'verifier', 'collector', ''])('the role %j', (role) => {
    expect(isStatement(token({ role }))).toBe(issueTokenBody.safeParse({ role }).success);
  });
});

describe('a name', () => {
  it.each([' ', '\t', '\u00a0', '\u2003\u3000', '', 'a\0', 'a\u0085'])('is not %j', (name) => {
    expect(createProjectBody.safeParse({ name }).success).toBe(false);
  });

  it.each(['a', ' a ', 'Ünïcode', '名前', '1'])('may be %j', (name) => {
    expect(createProjectBody.safeParse({ name }).success).toBe(true);
  });
});

function isPolicy(value: unknown): boolean {
  try {
    readPolicy(value);
    return true;
  } catch (error) {
    if (error instanceof CoverageError) return false;
    throw error;
  }
}

describe('a policy', () => {
  /** What is right, what is nearly right and what is of another type, for any member. */
  const values = fc.oneof(
    fc.constantFrom<unknown>(null, true, false, 'minimal', 'strict', 'x', '', -1, 0, 1, 1.5, '1', [], {}),
    fc.constantFrom<unknown>(86_400, 86_401, 36_600, 36_601, 366 * 86_400, 366 * 86_400 + 1, 2 ** 53),
  );
  const names = fc.oneof(
    fc.constantFrom('proxy', 'a-b', '', '-a', 'a'.repeat(64), 'a'.repeat(65), 'a b', 'a\n'),
    fc.string({ maxLength: 4 }),
  );
  const lists = fc.array(names, { maxLength: 3 });
  const many = fc.constantFrom(64, 65).map((count) => Array.from({ length: count }, (_, i) => `s${i}`));
  const rules = fc.record(
    {
      kind: names,
      opens: fc.oneof(lists, many),
      required: fc.oneof(lists, many),
      members: lists,
      more: values,
    },
    { requiredKeys: [] },
  );
  const policies = fc.record(
    {
      v: fc.constantFrom(1, 2, '1'),
      public: values,
      sessions: fc.oneof(
        fc.array(fc.oneof({ weight: 8, arbitrary: rules }, values), { maxLength: 3 }),
        values,
      ),
      heartbeat: values,
      lateness: values,
      closeTimeout: values,
      retention: values,
      attrs: values,
      more: values,
    },
    { requiredKeys: [] },
  );

  it('is taken when coverage can read it, and not otherwise', () => {
    fc.assert(
      fc.property(policies, (policy) => {
        expect(setPolicyBody.safeParse(policy).success).toBe(isPolicy(policy));
      }),
      { numRuns: 2_000 },
    );
  });

  it.each<[object, string]>([
    [{ heartbeat: -1 }, 'heartbeat'],
    [{ lateness: '2' }, 'lateness'],
    [{ attrs: 'all' }, 'attrs'],
    [{ sessions: [{ kind: 'a', opens: [], required: [] }] }, 'sessions.0.opens'],
    [{ sessions: [{ kind: 'a', opens: ['x'], required: ['x y'] }] }, 'sessions.0.required.0'],
    [{ sessions: ['a', 'a'].map((kind) => ({ kind, opens: ['x'], required: [] })) }, 'sessions'],
  ])('%j names what is wrong with it', (policy, field) => {
    expect(setPolicyBody.safeParse(policy).error?.issues[0]?.path.join('.')).toBe(field);
  });
});

const CALL = `hmac-sha256:${'a'.repeat(64)}`;

describe('a label', () => {
  it.each<object>([
    { session: 's', says: 'violated' },
    { session: 'a.b:c_d-1', says: 'not_violated', call: CALL },
    { session: 's', says: 'violated', call: `weak:${CALL}` },
    { session: 's'.repeat(128), says: 'violated' },
    { session: 's'.repeat(129), says: 'violated' },
    { session: '', says: 'violated' },
    { session: '-s', says: 'violated' },
    { session: 's\n', says: 'violated' },
    { session: 's', says: 'perhaps' },
    { session: 's' },
    { says: 'violated' },
    { session: 's', says: 'violated', call: 'a' },
    { session: 's', says: 'violated', call: CALL.toUpperCase() },
  ])('is taken when the log can say it: %j', (label) => {
    const body = { kind: 'label.set', v: 1, by: `aud_${'0'.repeat(26)}`, ...label };
    expect(isStatement(body)).toBe(setLabelBody.safeParse(label).success);
  });
});

describe('an export', () => {
  const period = { from: '2026-01-01T00:00:00Z', to: '2026-02-01T00:00:00Z' };

  it.each<[object, string]>([
    [{ period: { ...period, to: period.from } }, 'period.to'],
    [{ period: { from: period.from } }, 'period.to'],
    [{ period, sessions: ['a'] }, 'sessions'],
    [{ sessions: [] }, 'sessions'],
    [{ sessions: ['a', 'b c'] }, 'sessions.1'],
    [{ sessions: Array(1001).fill('a') }, 'sessions'],
    [{ oscal: 'yes' }, 'oscal'],
  ])('is not asked for by %j', (body, field) => {
    expect(createExportBody.safeParse(body).error?.issues[0]?.path.join('.')).toBe(field);
  });

  it.each<object>([{}, { period }, { sessions: ['a'], oscal: true }])('may be %j', (body) => {
    expect(createExportBody.safeParse(body).success).toBe(true);
  });
});
