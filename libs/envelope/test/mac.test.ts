import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { mac, macHex } from '../src/mac.js';

const hex = (digits: string): Buffer => Buffer.from(digits, 'hex');

// https://www.rfc-editor.org/rfc/rfc4231, sections 4.2, 4.3 and 4.7: those whose data is text.
test.each([
  [Buffer.alloc(20, 0x0b), 'Hi There', 'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7'],
  [
    Buffer.from('Jefe'),
    'what do ya want for nothing?',
    '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
  ],
  [
    Buffer.alloc(131, 0xaa),
    'Test Using Larger Than Block-Size Key - Hash Key First',
    '60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
  ],
])('published values', (key, text, digest) => {
  expect(macHex(key, text)).toBe(digest);
  expect(mac(key, text)).toEqual(hex(digest));
});

test('is what an Hmac object computes, for keys and texts of any length, one after the other', () => {
  const keys = fc.uint8Array({ maxLength: 70 }).map((bytes) => Buffer.from(bytes));
  const text = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 300 }),
    fc.integer({ min: 2_700, max: 8_300 }).map((length) => 'é'.repeat(length)),
    fc.integer({ min: 2_700, max: 8_300 }).map((length) => '\u20ac'.repeat(length)),
  );
  fc.assert(
    fc.property(keys, fc.array(text, { minLength: 1, maxLength: 4 }), (key, texts) => {
      for (const each of texts) {
        const expected = createHmac('sha256', key).update(each).digest();
        expect(mac(key, each)).toEqual(expected);
        expect(macHex(key, each)).toBe(expected.toString('hex'));
      }
    }),
  );
});
