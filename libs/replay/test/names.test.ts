import { expect, test } from 'vitest';
import { printable } from '../src/workspace.js';

test('different names stay different, whatever their bytes', () => {
  const names = [[0xff], [...Buffer.from('\\xff')], [...Buffer.from('\\x5cxff')], [0xff, 0x5c], [0xc3, 0xa4]];
  const shown = names.map((bytes) => printable(Buffer.from(bytes)));
  expect(new Set(shown).size).toBe(names.length);
  expect(printable(Buffer.from('ä b\n\\c'))).toBe('ä b\n\\c');
});
