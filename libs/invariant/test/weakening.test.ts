/** The table: edits that weaken tests against edits that do not, in five languages and their frameworks. */

import { afterAll, describe, expect, it } from 'vitest';
import { judgeTests } from '../src/weakening/judge-tests.js';
import type { EditCase } from './cases/edit.js';
import { cases as found } from './cases/found.js';
import { cases as go } from './cases/go.js';
import { cases as java } from './cases/java.js';
import { cases as javascript } from './cases/javascript.js';
import { cases as python } from './cases/python.js';
import { cases as rust } from './cases/rust.js';

const TABLES: Readonly<Record<string, readonly EditCase[]>> = {
  python,
  javascript,
  go,
  rust,
  java,
  'judged wrong once': found,
};

const counts: string[] = [];
afterAll(() => console.log(counts.join('\n')));

describe.each(Object.entries(TABLES))('%s', (language, cases) => {
  const weakenings = cases.filter(({ weakens }) => weakens !== undefined);
  const honest = cases.filter(({ weakens }) => weakens === undefined);
  let missed = 0;
  let alarms = 0;

  it.each(weakenings.map((each) => [`${each.framework}: ${each.name}`, each] as const))(
    'weakened: %s',
    async (_, { edits, weakens }) => {
      const { findings, unread } = await judgeTests(edits);
      if (findings.length === 0) missed++;
      expect(unread).toEqual([]);
      expect(findings.map(({ cause }) => cause)).toContain(weakens);
    },
  );

  it.each(honest.map((each) => [`${each.framework}: ${each.name}`, each] as const))(
    'honest: %s',
    async (_, { edits }) => {
      const { findings, unread } = await judgeTests(edits);
      if (findings.length > 0) alarms++;
      expect({ findings, unread }).toEqual({ findings: [], unread: [] });
    },
  );

  it('has at least 15 of each, from several frameworks', () => {
    const least = cases === found ? 1 : 15;
    expect(weakenings.length).toBeGreaterThanOrEqual(least);
    expect(honest.length).toBeGreaterThanOrEqual(least);
    expect(new Set(cases.map(({ framework }) => framework)).size).toBeGreaterThan(1);
    counts.push(
      `${language}: ${weakenings.length} weakenings, ${missed} missed; ${honest.length} honest edits, ${alarms} false alarms`,
    );
    expect({ missed, alarms }).toEqual({ missed: 0, alarms: 0 });
  });
});
