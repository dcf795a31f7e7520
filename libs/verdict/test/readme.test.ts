import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { CAUSES, type Cause, type Effect, effectOf, meaningOf, reduce, STATUSES } from '../src/index.js';

const page = readFileSync(new URL('../README.md', import.meta.url), 'utf8');

const MAKES: Readonly<Record<Effect, string>> = {
  fault: '`FAIL`',
  notice: '`WARN`',
  doubt: '`UNVERIFIED`',
  cap: '`UNVERIFIED` at best',
};

const row = (cause: Cause): string =>
  `| \`${cause}\` | ${effectOf(cause)}: ${MAKES[effectOf(cause)]} | ${meaningOf(cause)} |`;

test('the page has every cause, what it makes and what it means, and no other', () => {
  const expected = ['| cause | makes | |', '|---|---|---|', ...CAUSES.map(row)].join('\n');
  const [, table] = /<!-- causes -->\n\n([\s\S]*?)\n\n<!-- \/causes -->/.exec(page) ?? [];
  expect(table).toBe(expected);
});

test('the page has every status', () => {
  for (const status of STATUSES) expect(page).toContain(`| \`${status}\` |`);
});

test('what the page says of a cause is what reducing does', () => {
  for (const cause of CAUSES.filter((each) => effectOf(each) === 'cap')) {
    expect(reduce([], [cause]), cause).toMatchObject({ status: 'UNVERIFIED', cause });
  }
  const fault = { axis: 'A2', kind: 'result', status: 'FAIL', cause: 'RESULT_DIFFERS', message: '' } as const;
  expect(reduce([fault], ['RECORD_BROKEN'])).toMatchObject({ status: 'FAIL', cause: 'RESULT_DIFFERS' });
});
