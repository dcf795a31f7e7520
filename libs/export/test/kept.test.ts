import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Ascending } from '../src/ascending.js';
import { Carry } from '../src/carry.js';
import { TextStore } from '../src/text-store.js';

test('ascending indexes come back as they were, whatever lies between them', () => {
  const step = fc.oneof(fc.integer({ min: 0, max: 130 }), fc.integer({ min: 0, max: 2 ** 40 }));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.nat(2 ** 41), (steps, from) => {
      const kept = new Ascending();
      let index = 0;
      const all = steps.map((each) => (index += each));
      for (const each of all) kept.push(each);
      expect([...kept]).toEqual(all);
      expect(kept.length).toBe(all.length);
      expect(kept.countFrom(from)).toBe(all.filter((each) => each >= from).length);
    }),
  );
  const last = new Ascending();
  last.push(Number.MAX_SAFE_INTEGER);
  expect([...last]).toEqual([Number.MAX_SAFE_INTEGER]);
});

test('texts come back as they were last set, and those that took the place of others take no more room for it', () => {
  const texts = fc.array(
    fc.tuple(fc.constantFrom('a', 'b', '__proto__', 'd'), fc.string({ unit: 'binary' })),
  );
  fc.assert(
    fc.property(texts, (all) => {
      const store = new TextStore();
      const right = new Map(all);
      for (const [name, text] of all) store.set(name, text);
      for (const [name, text] of right) expect(store.get(name)).toBe(Buffer.from(text).toString());
      expect(store.get('c')).toBeUndefined();
    }),
  );
  const store = new TextStore();
  for (let n = 0; n < 40_000; n++) store.set(`${n % 7}`, `${n} ${'é'.repeat(n % 1_500)}`);
  for (let n = 39_993; n < 40_000; n++) {
    expect(store.get(`${n % 7}`)).toBe(`${n} ${'é'.repeat(n % 1_500)}`);
  }
  const long = 'x'.repeat(3_000_000);
  store.set('long', long);
  expect(store.get('long') === long).toBe(true);
  expect(store.bytes).toBeLessThan(12_000_000);
});

test('what is left of a block stands before the next one', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.uint8Array({ maxLength: 50 }), fc.nat())), (blocks) => {
      const carry = new Carry();
      let right = Buffer.alloc(0);
      for (const [block, nth] of blocks) {
        right = Buffer.concat([right, block]);
        expect(carry.join(Buffer.from(block)).equals(right)).toBe(true);
        const from = nth % (right.length + 1);
        carry.drop(from);
        right = right.subarray(from);
        expect(carry.size).toBe(right.length);
      }
    }),
  );
});
