/** What an edit of several files did to the tests in them. */

import type { Analysed, Finding as Compared } from './compare.js';
import { compare } from './compare.js';
import type { Func } from './code.js';
import { asserting, interpret } from './interpret.js';
import type { Language } from './languages.js';
import { languageOf } from './languages.js';
import type { NoTree, ParseLimits, Parsed } from './syntax.js';
import { PARSE_LIMITS, parserFor } from './syntax.js';
import type { TestCase, TestFile } from './test-file.js';

/** One file of an edit; a side is absent where the file was not there. */
export interface Edited {
  readonly path: string;
  /** The path before, where it was renamed. */
  readonly from?: string;
  readonly before?: string;
  readonly after?: string;
  /** False: only looked at for helpers, and for tests that moved there. */
  readonly watched?: boolean;
}

export interface Unread {
  readonly path: string;
  readonly cause: 'syntax-error' | NoTree;
  readonly line?: number;
}

export interface TestJudgement {
  readonly findings: readonly Compared[];
  readonly unread: readonly Unread[];
  /** How much was looked at, on the side before. */
  readonly tests: number;
  readonly assertions: number;
}

interface Read {
  readonly path: string;
  readonly file: TestFile;
  readonly errors: readonly number[];
  readonly watched: boolean;
}

/** Judges the files of one language together: tests move between files. */
export async function judgeTests(
  edits: readonly Edited[],
  limits: ParseLimits = PARSE_LIMITS,
): Promise<TestJudgement> {
  const findings: Compared[] = [];
  const unread: Unread[] = [];
  let tests = 0;
  let assertions = 0;
  const groups = new Map<Language, Edited[]>();
  for (const edit of edits) {
    const language = languageOf(edit.from ?? edit.path) ?? languageOf(edit.path);
    if (!language) continue;
    const group = groups.get(language);
    if (group) group.push(edit);
    else groups.set(language, [edit]);
  }
  for (const [language, group] of groups) {
    const before: Read[] = [];
    const after: Read[] = [];
    const movedFrom = new Map<string, string>();
    const lost = new Set<string>();
    for (const edit of group) {
      const from = edit.from ?? edit.path;
      if (edit.from !== undefined && edit.from !== edit.path) movedFrom.set(edit.path, edit.from);
      const watched = edit.watched !== false;
      const was =
        edit.before === undefined ? undefined : await read(language, from, edit.before, watched, limits);
      if (was && 'cause' in was) {
        if (watched) unread.push(was);
        continue;
      }
      // A file under a name its language does not know is a file that no runner looks at.
      const known = language.extension.test(edit.path);
      const is =
        edit.after === undefined || !known
          ? undefined
          : await read(language, edit.path, edit.after, watched, limits);
      if (is && 'cause' in is) {
        // Only where there was something to lose.
        if (was && watched && was.file.tests.length > 0) unread.push({ ...is, path: from });
        lost.add(from);
        continue;
      }
      if (is && is.errors.length > 0 && was && watched && was.file.tests.length > 0) {
        const [line] = is.errors;
        unread.push({ path: from, cause: 'syntax-error', ...(line === undefined ? {} : { line }) });
        if (was.errors.length === 0) {
          lost.add(from);
          continue;
        }
      }
      if (was) before.push(was);
      if (is) after.push(is);
    }
    const old = before.filter(({ path }) => !lost.has(path));
    const analysedBefore = analysed(language, old, () => true, 'before');
    const sides = new Map(old.map((each) => [each.path, language.collects.test(each.path)]));
    // Who found the file under its name before will find it under that name now.
    const analysedAfter = analysed(
      language,
      after,
      (path) =>
        language.collects.test(path) ||
        sides.has(path) ||
        (movedFrom.has(path) && sides.get(movedFrom.get(path) as string) === false),
      'after',
    );
    for (const each of analysedBefore) {
      tests += each.runs.length;
      for (const { run } of each.runs) assertions += run.assertions.length;
    }
    findings.push(...compare(analysedBefore, analysedAfter, movedFrom));
  }
  return { findings, unread, tests, assertions };
}

async function read(
  language: Language,
  path: string,
  text: string,
  watched: boolean,
  limits: ParseLimits,
): Promise<Read | Unread> {
  const parse = await parserFor(language.grammar(path));
  const parsed = parse(text, limits);
  if (typeof parsed === 'string') return { path, cause: parsed };
  const again = (inner: string): Parsed | undefined => {
    const inside = parse(inner, limits);
    return typeof inside === 'string' ? undefined : inside;
  };
  return { path, file: language.read(parsed.root, again), errors: parsed.errors, watched };
}

function analysed(
  language: Language,
  files: readonly Read[],
  collected: (path: string) => boolean,
  side: 'before' | 'after',
): Analysed[] {
  const { dialect } = language;
  // Helpers of all files together: one that is extracted may land in another.
  const everywhere = new Map(
    files.flatMap(({ file }) => file.helpers.map((each) => [each.name, each] as const)),
  );
  return files.map(({ path, file, watched }) => {
    const own = new Map([...everywhere, ...file.helpers.map((each) => [each.name, each] as const)]);
    const tests = watched || side === 'after' ? file.tests : [];
    // Where a file has no tests, what it asserts is asserted for the tests of others, which may not have changed.
    const support =
      file.tests.length === 0 && watched ? file.helpers.filter((each) => asserting(each, dialect, own)) : [];
    const all = [...tests, ...support.map(supporting)];
    return {
      path,
      file,
      collected: collected(path),
      runs: all.map((test) => ({ test, run: interpret(test, dialect, own) })),
    };
  });
}

const supporting = (fn: Func): TestCase => ({
  path: [fn.name],
  fn,
  tables: [],
  skips: [],
  mocks: [],
  focused: false,
  prelude: [],
  setups: [],
  support: true,
});
