import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { csvRow } from '../src/csv.js';

/** RFC 4180 by the book. */
function parse(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let field = '';
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const char = text[at] as string;
    if (quoted) {
      if (char !== '"') field += char;
      else if (text[at + 1] === '"') field += text[++at];
      else quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === ',') {
      row.push(field);
      field = '';
    } else if (char === '\r' && text[at + 1] === '\n') {
      at++;
      rows.push([...row, field]);
      [row, field] = [[], ''];
    } else field += char;
  }
  expect([quoted, row, field]).toEqual([false, [], '']);
  return rows;
}

describe('a row', () => {
  test('reads back as it was, but for what a spreadsheet would run', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(
            fc.string(),
            fc.string({ unit: fc.constantFrom('=', '+', '-', '@', '\t', '\r', '\n', '"', ',', '1', 'a') }),
          ),
          { minLength: 1 },
        ),
        (fields) => {
          const [row, ...more] = parse(csvRow(fields));
          expect(more).toEqual([]);
          for (const [i, field] of fields.entries()) {
            const read = row?.[i] as string;
            expect(read === field || read === `'${field}`).toBe(true);
            expect(/^[=+@\t\r]/.test(read)).toBe(false);
            if (read.startsWith('-')) expect(read).toMatch(/^-\d+$/);
          }
        },
      ),
    );
  });

  test.each([
    ['=1+1', "'=1+1"],
    ['@x', "'@x"],
    ['-32600', '-32600'],
    ['-32600+1', "'-32600+1"],
    ['+1', "'+1"],
    ['a,b', '"a,b"'],
    ['=a,"b"', `"'=a,""b"""`],
    ['', ''],
  ])('%s is %s', (field, written) => {
    expect(csvRow([field])).toBe(`${written}\r\n`);
  });

  test('has numbers, booleans and nothing', () => {
    expect(csvRow([1, true, undefined, false, 'x'])).toBe('1,true,,false,x\r\n');
  });
});
