import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

const at = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));

interface Row {
  readonly id: string;
  readonly fault: string;
  readonly file: string;
  readonly title: string;
}

/** Rows of the tables; one without an id is one more test of the case above it. */
const rows: Row[] = [];
for (const line of readFileSync(at('test/CASES.md'), 'utf8').split('\n')) {
  const cells = /^\|(.*)\|$/
    .exec(line)?.[1]
    ?.split('|')
    .map((cell) => cell.trim());
  if (cells === undefined || cells.length !== 4 || cells[2] === 'where' || /^-+$/.test(cells[2] ?? ''))
    continue;
  const [id = '', fault = '', file = '', title = ''] = cells;
  const above = rows.at(-1);
  rows.push({
    id: id === '' ? (above?.id ?? '') : id,
    fault: fault === '' ? (above?.fault ?? '') : fault,
    file: file.replaceAll('`', ''),
    title,
  });
}

/** Titles of the tests of a file that are run, `%s` in place of what a template takes in. */
function titlesIn(path: string): Set<string> {
  const titles = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && isTest(node.expression)) {
      const [first] = node.arguments;
      if (first !== undefined && ts.isStringLiteralLike(first)) titles.add(first.text);
      else if (first !== undefined && ts.isTemplateExpression(first)) {
        titles.add(first.head.text + first.templateSpans.map(({ literal }) => `%s${literal.text}`).join(''));
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(path, readFileSync(at(path), 'utf8'), ts.ScriptTarget.Latest, true));
  return titles;
}

/** `test`, `it`, and their tables; not what is skipped or still to be done. */
function isTest(callee: ts.Expression): boolean {
  if (ts.isIdentifier(callee)) return callee.text === 'test' || callee.text === 'it';
  if (ts.isCallExpression(callee)) return isTest(callee.expression);
  return ts.isPropertyAccessExpression(callee) && callee.name.text === 'each' && isTest(callee.expression);
}

describe('test/CASES.md', () => {
  const cases = new Map(rows.map(({ id, fault }) => [id, fault]));

  it('has a fault for every case, each case once', () => {
    expect(cases.size).toBeGreaterThan(30);
    expect([...cases.values()].every((fault) => fault.length > 10)).toBe(true);
    expect(new Set(cases.values()).size).toBe(cases.size);
  });

  it('leaves at most three without a test, with a reason, and none of framing or process life', () => {
    const without = rows.filter(({ file }) => file === '-');
    expect(without.length).toBeLessThanOrEqual(3);
    for (const { id, title } of without) {
      expect(id).not.toMatch(/^[FP]/);
      expect(title).toMatch(/^not yet: .{20,}/);
    }
  });

  const files = [...new Set(rows.map(({ file }) => file))].filter((file) => file !== '-');
  it.each(files)('names tests that %s has', (file) => {
    const titles = titlesIn(file);
    for (const row of rows)
      if (row.file === file) expect(titles, `${row.id} in ${file}`).toContain(row.title);
  });
});
