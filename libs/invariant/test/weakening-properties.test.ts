/** What holds of every edit: nothing is found in what says the same, whatever it looks like. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { judgeTests } from '../src/weakening/judge-tests.js';
import type { EditCase } from './cases/edit.js';
import { cases as go } from './cases/go.js';
import { cases as java } from './cases/java.js';
import { cases as javascript } from './cases/javascript.js';
import { cases as python } from './cases/python.js';
import { cases as rust } from './cases/rust.js';

const ALL: readonly EditCase[] = [...python, ...javascript, ...go, ...rust, ...java];
/** Every text of a file of tests in the table, by its content. */
const SOURCES = new Map(
  ALL.flatMap(({ edits }) =>
    edits.flatMap(({ path, before, after }) =>
      [before, after].flatMap((text) => (text === undefined ? [] : [[text, path] as const])),
    ),
  ),
);
const before = new Map(
  ALL.flatMap(({ edits }) =>
    edits.flatMap(({ path, before: text }) => (text === undefined ? [] : [[text, path] as const])),
  ),
);

const judged = async (path: string, from: string, to: string): Promise<unknown> => {
  const { findings, unread } = await judgeTests([{ path, before: from, after: to }]);
  return { findings, unread };
};
const NOTHING = { findings: [], unread: [] };

/** One test of a file, described for every language. */
interface Made {
  readonly name: string;
  readonly input: number;
  readonly value: number;
  readonly variable: string;
}
const made: fc.Arbitrary<readonly Made[]> = fc.uniqueArray(
  fc.record({
    name: fc.stringMatching(/^[a-z]{3,8}$/),
    input: fc.integer({ min: 0, max: 99 }),
    value: fc.integer({ min: 0, max: 99 }),
    variable: fc.constantFrom('got', 'result', 'actual', 'sum'),
  }),
  { minLength: 1, maxLength: 5, selector: ({ name }) => name },
);
/** How a test is written: what makes no difference to what it says. */
interface Style {
  readonly inline: boolean;
  readonly comment: boolean;
  readonly blank: boolean;
  readonly turned: boolean;
}
const style: fc.Arbitrary<Style> = fc.record({
  inline: fc.boolean(),
  comment: fc.boolean(),
  blank: fc.boolean(),
  turned: fc.boolean(),
});
const cap = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1);

const WRITERS: Readonly<
  Record<string, { readonly path: string; readonly file: (tests: readonly Made[], style: Style) => string }>
> = {
  python: {
    path: 'tests/test_made.py',
    file: (tests, { inline, comment, blank, turned }) =>
      tests
        .map(({ name, input, value, variable }) => {
          const said = inline ? `f(${input})` : variable;
          return [
            `def test_${name}():`,
            ...(comment ? ['    # what it gives'] : []),
            ...(inline ? [] : [`    ${variable} = f(${input})`]),
            ...(blank ? [''] : []),
            turned ? `    assert ${value} == ${said}` : `    assert ${said} == ${value}`,
          ].join('\n');
        })
        .join('\n\n\n'),
  },
  javascript: {
    path: 'made.test.ts',
    file: (tests, { inline, comment, blank, turned }) =>
      tests
        .map(({ name, input, value, variable }) => {
          const said = inline ? `f(${input})` : variable;
          return [
            `it('${name}', ${turned ? 'function () {' : '() => {'}`,
            ...(comment ? ['  /* what it gives */'] : []),
            ...(inline ? [] : [`  const ${variable} = f(${input})${blank ? '' : ';'}`]),
            ...(blank ? [''] : []),
            `  expect(${said}).toBe(${value});`,
            '});',
          ].join('\n');
        })
        .join('\n'),
  },
  go: {
    path: 'made_test.go',
    file: (tests, { inline, comment, blank, turned }) =>
      `package made\n\n${tests
        .map(({ name, input, value, variable }) =>
          [
            `func Test${cap(name)}(t *testing.T) {`,
            ...(comment ? ['\t// what it gives'] : []),
            ...(blank ? [''] : []),
            inline
              ? `\tif ${variable} := f(${input}); ${variable} != ${value} {`
              : `\t${variable} := f(${input})\n\tif ${turned ? `${value} != ${variable}` : `${variable} != ${value}`} {`,
            `\t\tt.Errorf("%v", ${variable})`,
            '\t}',
            '}',
          ].join('\n'),
        )
        .join('\n\n')}`,
  },
  rust: {
    path: 'tests/made.rs',
    file: (tests, { inline, comment, blank, turned }) =>
      tests
        .map(({ name, input, value, variable }) => {
          const said = inline ? `f(${input})` : variable;
          return [
            '#[test]',
            `fn ${name}() {`,
            ...(comment ? ['    // what it gives'] : []),
            ...(inline ? [] : [`    let ${variable} = f(${input});`]),
            ...(blank ? [''] : []),
            turned ? `    assert_eq!(${value}, ${said}, "of {}", 1);` : `    assert!(${said} == ${value});`,
            '}',
          ].join('\n');
        })
        .join('\n\n'),
  },
  java: {
    path: 'src/test/java/MadeTest.java',
    file: (tests, { inline, comment, blank, turned }) =>
      `class MadeTest {\n${tests
        .map(({ name, input, value, variable }) => {
          const said = inline ? `f(${input})` : variable;
          return [
            '    @Test',
            `    void ${name}() {`,
            ...(comment ? ['        // what it gives'] : []),
            ...(inline ? [] : [`        int ${variable} = f(${input});`]),
            ...(blank ? [''] : []),
            turned
              ? `        assertThat(${said}).isEqualTo(${value});`
              : `        assertEquals(${value}, ${said});`,
            '    }',
          ].join('\n');
        })
        .join('\n\n')}\n}\n`,
  },
};

describe('every file of the table', () => {
  it('against itself says the same', async () => {
    for (const [text, path] of SOURCES) expect(await judged(path, text, text), path).toEqual(NOTHING);
  });

  it('with more space between its lines says the same', async () => {
    for (const [text, path] of before) {
      const spaced = text.replaceAll(/\n(?=[^\n])/g, (_, at: number) => (at % 3 === 0 ? '\n\n' : '\n'));
      expect(await judged(path, text, spaced), path).toEqual(NOTHING);
    }
  });

  it('moved as it is says the same', async () => {
    for (const [text, path] of before) {
      const to = `elsewhere/${path}`;
      const { findings, unread } = await judgeTests([{ path: to, from: path, before: text, after: text }]);
      expect({ findings, unread }, path).toEqual(NOTHING);
    }
  });

  it('emptied does not', async () => {
    for (const [text, path] of before) {
      const { findings } = await judgeTests([{ path, before: text, after: '' }]);
      expect(
        findings.some(({ weight }) => weight === 'broken'),
        path,
      ).toBe(true);
    }
  });

  it('mangled in any way is judged and not stumbled over', async () => {
    const all = [...SOURCES];
    await fc.assert(
      fc.asyncProperty(
        fc.nat(),
        fc.nat(),
        fc.nat(),
        fc.constantFrom('', '(', '}', '"', '\n', ' not '),
        async (which, from, size, put) => {
          const [text, path] = all[which % all.length] as [string, string];
          const at = from % text.length;
          const mangled = text.slice(0, at) + put + text.slice(at + (size % 40));
          await judgeTests([{ path, before: text, after: mangled }]);
          await judgeTests([{ path, before: mangled, after: text }]);
        },
      ),
      { numRuns: 150 },
    );
  });

  it('put back after it was weakened says the same: only the net change counts', async () => {
    for (const { edits } of ALL) {
      const net = edits.map(({ path, before: text }) => ({
        path,
        ...(text === undefined ? {} : { before: text, after: text }),
      }));
      const { findings } = await judgeTests(net);
      expect(findings).toEqual([]);
    }
  });
});

describe.each(Object.entries(WRITERS))('made files: %s', (_, { path, file }) => {
  it('neither style, nor order, nor names of variables make a difference', async () => {
    await fc.assert(
      fc.asyncProperty(made, style, style, fc.nat(), async (tests, a, b, turn) => {
        const others = tests.map((each) => ({ ...each, variable: `${each.variable}2` }));
        const order = others.map((_, at) => others[(at + turn) % others.length] as Made);
        expect(await judged(path, file(tests, a), file(order, b))).toEqual(NOTHING);
      }),
      { numRuns: 30 },
    );
  });

  it('another value is another expectation, in every style', async () => {
    await fc.assert(
      fc.asyncProperty(made, style, style, fc.nat(), async (tests, a, b, turn) => {
        const at = turn % tests.length;
        const changed = tests.map((each, index) =>
          index === at ? { ...each, value: each.value + 1 } : each,
        );
        const { findings } = await judgeTests([{ path, before: file(tests, a), after: file(changed, b) }]);
        expect(findings.map(({ cause }) => cause)).toEqual(['expectation-changed']);
      }),
      { numRuns: 30 },
    );
  });

  it('a test fewer is a test removed, a test more is nothing', async () => {
    await fc.assert(
      fc.asyncProperty(made, style, async (tests, how) => {
        fc.pre(tests.length > 1);
        const fewer = tests.slice(1);
        const { findings } = await judgeTests([{ path, before: file(tests, how), after: file(fewer, how) }]);
        expect(findings.some(({ weight }) => weight === 'broken')).toBe(true);
        expect(await judged(path, file(fewer, how), file(tests, how))).toEqual(NOTHING);
      }),
      { numRuns: 20 },
    );
  });
});
