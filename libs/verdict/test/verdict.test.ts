import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Axis,
  type Cause,
  CAUSES,
  effectOf,
  type Judgement,
  meaningOf,
  reduce,
  STATUSES,
  tally,
  withClaim,
} from '../src/index.js';

const of = (effect: string): Cause[] => CAUSES.filter((cause) => effectOf(cause) === effect);
const rank = (status: string): number => STATUSES.indexOf(status as (typeof STATUSES)[number]);

const judgement = (axis: Axis): fc.Arbitrary<Judgement> => {
  const kind = axis === 'A1' ? 'invariant' : axis === 'A3' ? 'claim' : 'result';
  const message = '';
  return fc.oneof(
    fc
      .constantFrom<Judgement['status']>('PASS', 'NOT_COVERED')
      .map((status) => ({ axis, kind, status, message })),
    fc.constantFrom(...of('fault')).map((cause) => ({ axis, kind, status: 'FAIL' as const, cause, message })),
    fc
      .constantFrom(...of('notice'))
      .map((cause) => ({ axis, kind, status: 'WARN' as const, cause, message })),
    fc
      .constantFrom(...of('doubt'), ...of('cap'))
      .map((cause) => ({ axis, kind, status: 'UNVERIFIED' as const, cause, message })),
  ) as fc.Arbitrary<Judgement>;
};
const judgements = fc.array(fc.oneof(judgement('A1'), judgement('A2')), { maxLength: 8 });
const caps = fc.subarray(of('cap'), { maxLength: 2 });

describe('reduction', () => {
  test('the worst of A1 and A2, never better than a cap', () => {
    fc.assert(
      fc.property(judgements, caps, (found, held) => {
        const verdict = reduce(found, held);
        const decisive = found.filter(({ status }) => status !== 'NOT_COVERED');
        const worst = Math.max(...decisive.map(({ status }) => rank(status)), decisive.length === 0 ? 2 : 0);
        expect(rank(verdict.status)).toBe(held.length > 0 ? Math.max(worst, 2) : worst);
        expect(verdict.notCovered).toBe(found.length - decisive.length);
        expect(verdict.cause === undefined).toBe(verdict.status === 'PASS');
      }),
    );
  });

  test('a claim only lowers; without it every PASS and FAIL stays', () => {
    fc.assert(
      fc.property(judgements, caps, judgement('A3'), (found, held, claim) => {
        const without = reduce(found, held);
        const verdict = withClaim(without, claim);
        expect(rank(verdict.status)).toBeGreaterThanOrEqual(rank(without.status));
        if (without.status === 'FAIL') expect(verdict.cause).toBe(without.cause);
        expect(reduce([...found, claim], held).status).toBe(without.status);
      }),
    );
  });

  test('nothing judged is not good', () => {
    expect(reduce([])).toMatchObject({ status: 'UNVERIFIED', cause: 'NOTHING_JUDGED' });
    expect(reduce([{ axis: 'A2', kind: 'contract', status: 'NOT_COVERED', message: '' }])).toMatchObject({
      status: 'UNVERIFIED',
      cause: 'NOTHING_JUDGED',
      notCovered: 1,
    });
    expect(tally([]).status).toBe('UNVERIFIED');
  });

  test('a judgement must have the cause that its status needs', () => {
    const base = { axis: 'A2', kind: 'result', message: '' } as const;
    expect(() => reduce([{ ...base, status: 'FAIL' }])).toThrow('needs a cause');
    expect(() => reduce([{ ...base, status: 'PASS', cause: 'RESULT_DIFFERS' }])).toThrow('has no cause');
    expect(() => reduce([{ ...base, status: 'FAIL', cause: 'ONE_REPLAY' }])).toThrow('does not make FAIL');
    expect(() => reduce([{ ...base, status: 'WARN', cause: 'RESULT_DIFFERS' }])).toThrow(
      'does not make WARN',
    );
    expect(() => reduce([], ['RESULT_DIFFERS'])).toThrow('not a cap');
  });

  test('a session is as bad as its worst part', () => {
    const pass = reduce([{ axis: 'A2', kind: 'result', status: 'PASS', message: '' }]);
    const fail = reduce([
      { axis: 'A1', kind: 'invariant', status: 'FAIL', cause: 'INVARIANT_BROKEN', message: '' },
    ]);
    expect(tally([pass, fail, pass, reduce([])])).toEqual({
      status: 'FAIL',
      counts: { PASS: 2, WARN: 0, UNVERIFIED: 1, FAIL: 1 },
      causes: { INVARIANT_BROKEN: 1, NOTHING_JUDGED: 1 },
    });
  });
});

test('every cause is explained in one line', () => {
  for (const cause of CAUSES) {
    expect(cause).toMatch(/^[A-Z][A-Z_]*$/);
    expect(meaningOf(cause)).toMatch(/^[a-z].*[a-z]$/);
  }
});
