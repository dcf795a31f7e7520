import { readFileSync } from 'node:fs';
import {
  COVERAGE_STATUSES,
  type CoverageStatement,
  DEFAULT_POLICY,
  formatStatement,
  parseStatement,
  policyDigest,
  readPolicy,
} from '@belay/coverage';
import { canonical } from '@belay/envelope';
import { keyed, SessionLog } from '@belay/testkit';
import { describe, expect, test } from 'vitest';

const page = readFileSync(new URL('../FORMAT.md', import.meta.url), 'utf8');
const block = (text: string): string => text.replace(/^(?=.)/gmu, '    ');

/** The log of the page: one keyed sink, a call whose line was lost, a restart. */
function example(): { log: SessionLog; statements: CoverageStatement[] } {
  const log = new SessionLog();
  const proxy = log.sink('proxy', { kind: 'proxy', domain: 'desk', required: true });
  proxy.open();
  proxy.say('session.open', { session: 'run-1' });
  proxy.say('call', { session: 'run-1', call: keyed('a') }, true);
  proxy.say('result', { session: 'run-1', call: keyed('a'), match: keyed('done') });
  proxy.stated('session.close', { session: 'run-1' });
  proxy.stated('epoch.close');
  proxy.open();
  const { epochs, sinks, session } = log.statements('run-1');
  return { log, statements: [epochs[0], sinks[0], session] as CoverageStatement[] };
}

test('the statements of the page are what the code makes of its entries', () => {
  const { log, statements } = example();
  for (const bytes of log.bytes.slice(2)) expect(page).toContain(block(bytes.toString()));
  expect(statements.map(({ type }) => type)).toEqual(['epoch', 'sink', 'session']);
  for (const statement of statements) {
    const bytes = formatStatement(statement);
    expect(page).toContain(block(bytes.toString()));
    expect(formatStatement(parseStatement(bytes))).toEqual(bytes);
  }
  expect(page).toContain(policyDigest(DEFAULT_POLICY));
});

test('the page names every status in its order', () => {
  // The kinds of conflict further down have names in common with them.
  const rows = [...page.slice(0, page.indexOf('## 2.')).matchAll(/^\| `([a-z]+)` \| /gmu)].map(
    (match) => match[1],
  );
  expect(rows.filter((row) => (COVERAGE_STATUSES as readonly unknown[]).includes(row))).toEqual([
    ...COVERAGE_STATUSES,
  ]);
});

describe('a statement has one form', () => {
  const { statements } = example();

  test.each(statements.map((statement) => [statement.type, statement] as const))('%s', (_type, statement) => {
    const bytes = formatStatement(statement);
    const refused = (value: Buffer): boolean => {
      try {
        parseStatement(value);
        return false;
      } catch (error) {
        expect(error).toMatchObject({ code: 'malformed' });
        return true;
      }
    };
    expect(refused(bytes)).toBe(false);
    // Spaces, a member more, a member less, another order.
    expect(refused(Buffer.from(`${bytes.toString()} `))).toBe(true);
    expect(refused(Buffer.from(canonical({ ...statement, more: 1 })))).toBe(true);
    for (const key of Object.keys(statement)) {
      const optional = ['ending', 'stated', 'first', 'last', 'opening', 'began'].includes(key);
      if (!optional) expect(refused(Buffer.from(canonical({ ...statement, [key]: undefined })))).toBe(true);
      expect(refused(Buffer.from(canonical({ ...statement, [key]: 0.5 })))).toBe(true);
    }
    expect(
      refused(
        Buffer.from(
          JSON.stringify(
            Object.fromEntries(Object.entries(JSON.parse(bytes.toString()) as object).reverse()),
          ),
        ),
      ),
    ).toBe(true);
    for (const status of COVERAGE_STATUSES) {
      expect(refused(Buffer.from(canonical({ ...statement, status })))).toBe(status !== statement.status);
    }
  });
});

test('a policy is closed and its defaults are part of its digest', () => {
  expect(readPolicy({})).toEqual(DEFAULT_POLICY);
  expect(readPolicy({ public: false })).toEqual(DEFAULT_POLICY);
  expect(policyDigest(readPolicy({ heartbeat: 60 }))).toBe(policyDigest(DEFAULT_POLICY));
  expect(policyDigest(readPolicy({ heartbeat: 61 }))).not.toBe(policyDigest(DEFAULT_POLICY));
  const rule = { kind: 'k', opens: ['a'], required: [] };
  for (const wrong of [
    null,
    [],
    { else: 1 },
    { v: 2 },
    { heartbeat: -1 },
    { heartbeat: 1.5 },
    { closeTimeout: 0 },
    { attrs: 'all' },
    { sessions: [{ ...rule, opens: [] }] },
    { sessions: [{ ...rule, else: 1 }] },
    { sessions: [{ ...rule, required: ['no name'] }] },
    { sessions: [rule, rule] },
  ]) {
    expect(() => readPolicy(wrong), JSON.stringify(wrong)).toThrow(
      expect.objectContaining({ code: 'malformed' }),
    );
  }
});
