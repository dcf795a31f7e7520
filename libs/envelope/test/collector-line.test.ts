import { collectorLine, type CollectorLine, parseCollectorLine } from '@belay/envelope';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

const index = fc.oneof(fc.nat(), fc.maxSafeNat(), fc.constantFrom(0, Number.MAX_SAFE_INTEGER));
const optional = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(arbitrary, { nil: undefined });
const of = (unit: string, minLength: number, maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: fc.constantFrom(...unit.split('')), minLength, maxLength });

const lines = fc
  .record({
    index,
    conflict: optional(index),
    late: optional(fc.constant(true as const)),
    log: of('abZ09._/:-', 1, 255),
    received: fc
      .date({ min: new Date('1970-01-01'), max: new Date('9999-12-31'), noInvalidDate: true })
      .map((date) => date.toISOString()),
    signed: optional(of('0123456789abcdef', 16, 16)),
    who: fc.oneof(
      fc.constant({ role: 'collector' as const }),
      fc.record({
        role: fc.constantFrom('agent' as const, 'sink' as const, 'verifier' as const),
        sink: fc.tuple(of('aZ0', 1, 1), of('aZ0._-', 0, 63)).map(([first, rest]) => first + rest),
        token: of('0123456789abcdefghjkmnpqrstvwxyz', 26, 26).map((id) => `tok_${id}`),
      }),
    ),
  })
  .map(({ who, ...rest }): Omit<CollectorLine, 'v'> => ({ ...rest, ...who }));

const defined = (value: object): object =>
  Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined));

describe("a collector's line", () => {
  test('reads back as it was, whatever members it has', () => {
    fc.assert(
      fc.property(lines, (fields) => {
        const read = parseCollectorLine(Buffer.from(collectorLine(fields)));
        expect(read).toEqual(defined({ ...fields, v: 1 }));
      }),
      { numRuns: 500 },
    );
  });

  test('with anything changed in it is refused, or is exactly what it says when it is written again', () => {
    const changes = fc.array(
      fc.tuple(
        fc.nat(),
        fc.nat(2),
        fc.oneof(
          fc.constantFrom(
            '0',
            '9',
            '"',
            ',',
            '}',
            ' ',
            '\\',
            'é',
            '\n',
            'Z',
            '-',
            '.',
            'true',
            'collector',
            '"v":1',
          ),
          fc.string({ maxLength: 3 }),
        ),
      ),
      { minLength: 1, maxLength: 3 },
    );
    fc.assert(
      fc.property(lines, changes, (fields, edits) => {
        let text = collectorLine(fields);
        for (const [at, removed, put] of edits) {
          const place = at % text.length;
          text = text.slice(0, place) + put + text.slice(place + removed);
        }
        let read: CollectorLine;
        try {
          read = parseCollectorLine(Buffer.from(text));
        } catch (error) {
          expect(error).toMatchObject({ name: 'EnvelopeError' });
          return;
        }
        const { v, ...rest } = read;
        expect([v, collectorLine(rest)]).toEqual([1, text]);
      }),
      { numRuns: 3_000 },
    );
  });

  test.each([
    '{"index":9007199254740992,"log":"a","received":"2026-01-01T00:00:00.000Z","role":"collector","v":1}',
    '{"index":01,"log":"a","received":"2026-01-01T00:00:00.000Z","role":"collector","v":1}',
    '{"index":0,"log":"a","received":"2026-13-01T00:00:00.000Z","role":"collector","v":1}',
    '{"index":0,"late":false,"log":"a","received":"2026-01-01T00:00:00.000Z","role":"collector","v":1}',
    '{"index":0,"log":"a","received":"2026-01-01T00:00:00.000Z","role":"sink","v":1}',
    '{"index":0,"log":"a","received":"2026-01-01T00:00:00.000Z","role":"collector","sink":"a","token":"tok_01kdvdna00081040g2081040g2","v":1}',
    '{"log":"a","index":0,"received":"2026-01-01T00:00:00.000Z","role":"collector","v":1}',
    '{"index":0,"log":"a","received":"2026-01-01T00:00:00.000Z","role":"collector","v":1}\n',
  ])('is refused: %s', (text) => {
    expect(() => parseCollectorLine(Buffer.from(text))).toThrow(
      expect.objectContaining({ name: 'EnvelopeError' }),
    );
  });
});
