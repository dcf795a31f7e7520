/**
 * What an edit did to tests: every assertion that ran before is looked for afterwards. It may have moved to another
 * test, another file, a helper or a table, and its names may have changed; what is not found again, or only as less
 * than it was, is a finding.
 */

import type { Atom } from './assertion.js';
import { ofLength, relate } from './assertion.js';
import { calledIn, isLiteralToken, isNameToken, printed } from './code.js';
import type { Assertion, Run } from './interpret.js';
import type { Mock, Skip, TestCase, TestFile } from './test-file.js';

/** Ways of weakening tests. */
export type Weakening =
  | 'test-file-deleted'
  | 'test-removed'
  | 'test-not-collected'
  | 'test-skipped'
  | 'test-expected-to-fail'
  | 'other-tests-not-run'
  | 'assertion-removed'
  | 'assertion-loosened'
  | 'assertion-inverted'
  | 'assertion-tautological'
  | 'assertion-unreachable'
  | 'assertion-swallowed'
  | 'assertion-not-awaited'
  | 'assertion-behind-environment'
  | 'expectation-changed'
  | 'subject-mocked'
  | 'subject-replaced';

/** What was changed in a way that nothing can be said about. */
export type Doubt =
  | 'assertion-changed'
  | 'assertion-decomposed'
  | 'assertion-repeated-less'
  | 'assertion-guarded'
  | 'subject-changed'
  | 'skipped-on-condition'
  | 'cases-unknown'
  | 'helper-removed'
  | 'subject-imported-elsewhere'
  | 'too-much-to-compare';

/** Worth a look, and no more. */
export type Notice = 'mock-added' | 'single-test-focused';

export type Cause = Weakening | Doubt | Notice;

export interface Finding {
  readonly cause: Cause;
  readonly weight: 'broken' | 'undecided' | 'touched';
  readonly path: string;
  readonly test: string;
  readonly before?: number;
  readonly after?: { readonly path: string; readonly line: number };
}

/** One side of one file, its tests interpreted. */
export interface Analysed {
  readonly path: string;
  readonly file: TestFile;
  readonly runs: readonly Interpreted[];
  /** Whether the runner finds the file by its name. */
  readonly collected: boolean;
}

export interface Interpreted {
  readonly test: TestCase;
  readonly run: Run;
}

interface Live extends Interpreted {
  readonly in: Analysed;
  readonly id: string;
  readonly skips: readonly Skip[];
}

const DOUBTS = new Set<Cause>([
  'assertion-changed',
  'assertion-decomposed',
  'assertion-repeated-less',
  'assertion-guarded',
  'subject-changed',
  'skipped-on-condition',
  'cases-unknown',
  'helper-removed',
  'subject-imported-elsewhere',
  'too-much-to-compare',
]);
const NOTICES = new Set<Cause>(['mock-added', 'single-test-focused']);
const MAX_CANDIDATES = 300;
const SIMILAR = 0.5;

const always = (skips: readonly Skip[]): boolean =>
  skips.some((skip) => skip.condition === undefined && skip.kind !== 'expected-failure');
const titleOf = (test: TestCase): string => test.path.join(' > ');
const lastOf = (test: TestCase): string => test.path.at(-1) ?? '';

const flatten = (files: readonly Analysed[]): Live[] =>
  files.flatMap((in_) =>
    in_.runs.map((each) => ({
      ...each,
      in: in_,
      id: titleOf(each.test),
      skips: [...in_.file.skips, ...each.run.skips],
    })),
  );

/** `movedFrom`: the path before of a path after, where a file was renamed. */
export function compare(
  before: readonly Analysed[],
  after: readonly Analysed[],
  movedFrom: ReadonlyMap<string, string>,
): Finding[] {
  return new Comparison(before, after, movedFrom).findings();
}

class Comparison {
  readonly #before: readonly Live[];
  readonly #after: readonly Live[];
  readonly #afterFiles: readonly Analysed[];
  readonly #beforeFiles: readonly Analysed[];
  readonly #movedFrom: ReadonlyMap<string, string>;
  readonly #claimed = new Map<Assertion, Assertion>();
  readonly #pairs = new Map<Live, Live>();
  readonly #found: Finding[] = [];
  /** Imports that were told of, once for a file. */
  readonly #moved = new Set<string>();
  /** Names in the code of each side, for telling a renaming from a replacement. */
  readonly #names: { readonly before: ReadonlySet<string>; readonly after: ReadonlySet<string> };

  constructor(
    before: readonly Analysed[],
    after: readonly Analysed[],
    movedFrom: ReadonlyMap<string, string>,
  ) {
    this.#beforeFiles = before;
    this.#afterFiles = after;
    this.#movedFrom = movedFrom;
    this.#before = flatten(before);
    this.#after = flatten(after);
    const names = (tests: readonly Live[]): Set<string> =>
      new Set(
        tests.flatMap(({ run }) =>
          run.assertions.flatMap(({ subject, expected }) => [...subject, ...expected].filter(isNameToken)),
        ),
      );
    this.#names = { before: names(this.#before), after: names(this.#after) };
  }

  findings(): Finding[] {
    this.#pair();
    const left = new Map<Live, Assertion[]>();
    // First what is there as it was, in its own test; then what has moved; only then what may have become of the rest.
    for (const test of this.#before) {
      if (always(test.skips)) continue;
      const other = this.#pairs.get(test);
      const pool = other ? other.run.assertions : [];
      left.set(
        test,
        this.#exact(test, test.run.assertions.filter(counts), other ? [[other, pool]] : [], false),
      );
    }
    const elsewhere = this.#after
      .filter((each) => runs(each))
      .map((each) => [each, each.run.assertions] as const);
    for (const [test, rest] of left) {
      if (rest.length > 0) left.set(test, this.#exact(test, rest, elsewhere, true));
    }
    for (const [test, rest] of left) this.#rest(test, rest);
    for (const [test, other] of this.#pairs) if (!always(test.skips)) this.#heads(test, other);
    this.#focus();
    return collapsed(this.#found, this.#before, this.#afterFiles);
  }

  // -------------------------------------------------------------- pairing

  #pair(): void {
    const free = new Set(this.#after);
    const take = (test: Live, other: Live | undefined): void => {
      if (!other) return;
      this.#pairs.set(test, other);
      free.delete(other);
    };
    const stages: ((test: Live) => Live | undefined)[] = [
      (test) =>
        only(
          [...free].filter(
            (each) =>
              each.id === test.id && (this.#movedFrom.get(each.in.path) ?? each.in.path) === test.in.path,
          ),
          true,
        ),
      (test) => only([...free].filter((each) => each.id === test.id && runs(each))),
      (test) => only([...free].filter((each) => lastOf(each.test) === lastOf(test.test) && runs(each))),
    ];
    for (const stage of stages) {
      for (const test of this.#before) if (!this.#pairs.has(test)) take(test, stage(test));
    }
    const scored: { readonly score: number; readonly test: Live; readonly other: Live }[] = [];
    const lost = this.#before.filter((test) => !this.#pairs.has(test));
    const fresh = [...free].filter((each) => runs(each));
    if (lost.length * fresh.length > 250_000) return;
    const words = new Map([...lost, ...fresh].map((each) => [each, wordsOf(each)]));
    for (const test of lost) {
      for (const other of fresh) {
        const score =
          overlap(words.get(test) as Set<string>, words.get(other) as Set<string>) +
          (test.in.path === other.in.path ? 0.05 : 0);
        if (score >= SIMILAR) scored.push({ score, test, other });
      }
    }
    for (const { test, other } of scored.sort((a, b) => b.score - a.score)) {
      if (!this.#pairs.has(test) && free.has(other)) take(test, other);
    }
  }

  // -------------------------------------------------------------- assertions

  /** Claims equals; what is left is returned. Reports an equal that no longer takes part. */
  #exact(
    test: Live,
    wanted: readonly Assertion[],
    pools: readonly (readonly [Live, readonly Assertion[]])[],
    onlyGood: boolean,
  ): Assertion[] {
    if (pools.length === 0) return [...wanted];
    const byKey = new Map<string, { readonly in: Live; readonly it: Assertion }[]>();
    for (const [in_, pool] of pools) {
      for (const it of pool) {
        if (this.#claimed.has(it)) continue;
        const same = byKey.get(it.key);
        if (same) same.push({ in: in_, it });
        else byKey.set(it.key, [{ in: in_, it }]);
      }
    }
    return wanted.filter((assertion) => {
      const same = byKey.get(assertion.key);
      if (!same) return true;
      const at = same.findIndex(({ it }) => reachProblem(assertion, it) === undefined);
      if (at === -1 && onlyGood) return true;
      const [found] = same.splice(Math.max(at, 0), 1);
      if (!found) return true;
      if (same.length === 0) byKey.delete(assertion.key);
      this.#claimed.set(found.it, assertion);
      const problem = reachProblem(assertion, found.it);
      if (problem) this.#report(problem, test, assertion, found.in, found.it);
      return false;
    });
  }

  #rest(test: Live, rest: readonly Assertion[]): void {
    if (rest.length === 0) return;
    const other = this.#pairs.get(test);
    if (!other) {
      // Its assertions may have been taken up by others in another form.
      const open = rest.filter((assertion) => !this.#elsewhere(test, assertion));
      if (open.length > 0)
        this.#report(this.#hidden(test) ? 'test-not-collected' : 'test-removed', test, open[0]);
      return;
    }
    if (other.run.truncated || test.run.truncated) {
      this.#report('too-much-to-compare', test, rest[0], other);
      return;
    }
    for (const assertion of rest) this.#one(test, assertion, other);
  }

  #one(test: Live, assertion: Assertion, other: Live): void {
    const candidates = other.run.assertions
      .filter((each) => !this.#claimed.has(each))
      .slice(0, MAX_CANDIDATES);
    let best: Match | undefined;
    let chosen: Assertion | undefined;
    for (const each of candidates) {
      const match = this.#match(test, assertion, other, each);
      if (match && (!best || match.order < best.order)) [best, chosen] = [match, each];
    }
    if (best && chosen) {
      if (best.claims) this.#claimed.set(chosen, assertion);
      const problem = best.cause ?? reachProblem(assertion, chosen);
      if (problem) this.#report(problem, test, assertion, other, chosen);
      return;
    }
    // What a stronger assertion about the same says already needn't be said again.
    for (const each of other.run.assertions) {
      if (!this.#claimed.has(each) || reachProblem(assertion, each) !== undefined) continue;
      if (each.key === assertion.key) {
        if (assertion.subject.includes('('))
          this.#report('assertion-repeated-less', test, assertion, other, each);
        return;
      }
      if (sameTokens(each.subject, assertion.subject) && relate(assertion.atom, each.atom) === 'stronger')
        return;
      if (absorbs(each, assertion) || ofLength(assertion.atom, each.atom) !== undefined) return;
    }
    if (
      assertion.atom.relation === 'runs' &&
      [...calledIn(assertion.subject)].every((each) => other.run.called.has(each))
    )
      return;
    if (this.#elsewhere(test, assertion)) return;
    const tautology = candidates.find((each) => each.constant === true && !this.#claimed.has(each));
    if (tautology) {
      this.#claimed.set(tautology, assertion);
      this.#report('assertion-tautological', test, assertion, other, tautology);
    } else if (other.run.tables.length > 0 && other.run.tables.join() !== test.run.tables.join()) {
      this.#report('cases-unknown', test, assertion, other);
    } else this.#report('assertion-removed', test, assertion, other);
  }

  /** Whether another test that runs says as much, in another form. */
  #elsewhere(test: Live, assertion: Assertion): boolean {
    let looked = 0;
    for (const other of this.#after) {
      if (!runs(other) || other === this.#pairs.get(test)) continue;
      for (const each of other.run.assertions) {
        if (this.#claimed.has(each) || each.atom.relation !== assertion.atom.relation) continue;
        if (++looked > 4 * MAX_CANDIDATES) return false;
        const match = this.#match(test, assertion, other, each);
        if (match && match.cause === undefined && reachProblem(assertion, each) === undefined) {
          this.#claimed.set(each, assertion);
          return true;
        }
      }
    }
    return false;
  }

  /** What `after` would be of `before`, if it is anything of it. Lower orders are better founded. */
  #match(test: Live, before: Assertion, other: Live, after: Assertion): Match | undefined {
    const kept: Match = { order: 0, claims: true };
    const textual = before.surface === after.surface;
    if (textual && after.constant === true && before.constant !== true)
      return { order: 1, cause: 'assertion-tautological', claims: true };
    if (
      textual &&
      sameTokens(before.expected, after.expected) &&
      !sameTokens(before.subject, after.subject)
    ) {
      // The same assertion about something arranged otherwise, as long as what it is about is still called.
      const is = calledIn(after.subject);
      const heads = calledIn(outermost(before.subject));
      if ([...heads].every((each) => is.has(each)) && (heads.size > 0 || after.subject.some(isNameToken)))
        return { ...kept, order: 0.5 };
      const renamed = this.#renamed(test, before, other, after);
      if (renamed) return renamed;
      const named = before.subject.some(isNameToken);
      const replaced =
        after.subject[0] === '=>' || (named && !after.subject.some((each) => isNameToken(each)));
      const mocked =
        after.subject.some((each) => MOCKS.test(each)) && !before.subject.some((each) => MOCKS.test(each));
      return {
        order: 1,
        cause: mocked ? 'subject-mocked' : replaced ? 'subject-replaced' : 'subject-changed',
        claims: true,
      };
    }
    if (after.constant === true) return undefined;
    for (const atom of turned(before.atom, after)) {
      switch (relate(before.atom, atom)) {
        case 'same':
        case 'stronger':
          return kept;
        case 'weaker':
          return { order: 1, cause: 'assertion-loosened', claims: true };
        case 'changed':
          return { order: 1.1, cause: 'expectation-changed', claims: true };
        case 'inverted':
          return { order: 1, cause: 'assertion-inverted', claims: true };
        case 'unclear': {
          // Compared with what it gives itself.
          if (sameTokens(after.subject, after.expected) && !sameTokens(before.subject, before.expected))
            return { order: 1, cause: 'assertion-tautological', claims: true };
          const renamed = this.#renamed(test, before, other, after);
          return renamed ?? { order: 1.5, cause: 'assertion-changed', claims: true };
        }
      }
    }
    const renamed = this.#renamed(test, before, other, after);
    if (renamed) return renamed;
    // Nothing is expected of a call but that it is made.
    if (before.atom.relation === 'runs') {
      return contains(after.subject, before.subject) ? { order: 0.7, claims: false } : undefined;
    }
    if (absorbs(after, before) || ofLength(before.atom, after.atom) !== undefined)
      return { order: 0.6, claims: false };
    if (ofLength(after.atom, before.atom) === 'as much') return kept;
    if (contains(after.subject, before.subject)) {
      const { relation } = before.atom;
      if (['truthy', 'something', 'runs'].includes(relation)) return { order: 0.7, claims: false };
      const parts = other.run.assertions.filter(
        (each) => !this.#claimed.has(each) && contains(each.subject, before.subject),
      ).length;
      return parts > 1
        ? { order: 2.5, cause: 'assertion-decomposed', claims: false }
        : { order: 2.5, cause: 'assertion-loosened', claims: true };
    }
    if (
      before.atom.relation === after.atom.relation &&
      differsInLiterals(
        [...before.subject, '|', ...before.expected],
        [...after.subject, '|', ...after.expected],
      )
    ) {
      return { order: 2, cause: 'expectation-changed', claims: true };
    }
    const likeness = overlap(new Set(before.subject), new Set(after.subject));
    const [was, is] = [calledIn(before.subject), calledIn(after.subject)];
    if (likeness >= 0.6 && [...was].some((each) => is.has(each)))
      return { order: 3 - likeness / 2, cause: 'subject-changed', claims: true };
    return undefined;
  }

  /** Names changed and nothing no: kept where the old ones are gone, and the new ones were not there before. */
  #renamed(test: Live, before: Assertion, other: Live, after: Assertion): Match | undefined {
    if (before.atom.relation !== after.atom.relation) return undefined;
    const [was, is] = [
      [...before.subject, '|', ...before.expected],
      [...after.subject, '|', ...after.expected],
    ];
    if (was.length !== is.length) return undefined;
    const map = new Map<string, string>();
    for (const [at, old] of was.entries()) {
      const now = is[at] as string;
      if (old === now) continue;
      if (!isNameToken(old) || !isNameToken(now)) return undefined;
      if ((map.get(old) ?? now) !== now) return undefined;
      map.set(old, now);
    }
    if (new Set(map.values()).size !== map.size) return undefined;
    for (const [old, now] of map) {
      const invented =
        other.in.file.defined.has(now) && !test.in.file.defined.has(old) && !test.in.file.defined.has(now);
      if (invented) return { order: 1, cause: 'subject-replaced', claims: true };
      if (this.#names.after.has(old) || this.#names.before.has(now))
        return { order: 1.6, cause: 'subject-changed', claims: true };
    }
    return { order: 0.4, claims: true };
  }

  // -------------------------------------------------------------- heads of tests

  #heads(test: Live, other: Live): void {
    const key = (skip: Skip): string => `${skip.kind} ${skip.condition ?? ''}`;
    const had = new Set(test.skips.map(key));
    const fresh = other.skips.filter((skip) => !had.has(key(skip)));
    const [worst] = fresh.sort(
      (a, b) => Number(a.condition !== undefined) - Number(b.condition !== undefined),
    );
    if (
      worst &&
      !(worst.kind === 'expected-failure' && test.skips.some(({ kind }) => kind === 'expected-failure'))
    ) {
      const cause: Cause =
        worst.condition !== undefined
          ? 'skipped-on-condition'
          : worst.kind === 'expected-failure'
            ? 'test-expected-to-fail'
            : 'test-skipped';
      this.#push(cause, test, test.test.fn.line, other, worst.line);
    }
    if (test.test.certain !== false && other.test.certain === false)
      this.#push('test-not-collected', test, test.test.fn.line, other, other.test.fn.line);
    if (!other.in.collected && test.in.collected && test.test.support !== true)
      this.#push('test-not-collected', test, test.test.fn.line, other, other.test.fn.line);
    if (
      other.test.ends &&
      !test.test.ends &&
      !test.run.assertions.some(({ atom }) => atom.relation.startsWith('throws') || atom.relation === 'runs')
    ) {
      this.#push('test-expected-to-fail', test, test.test.fn.line, other, other.test.fn.line);
    }
    const [drawn, now] = [test.run.tables, other.run.tables];
    if (drawn.length > 0 && now.length > 0 && drawn.join('\n') !== now.join('\n'))
      this.#push('cases-unknown', test, test.test.fn.line, other, other.test.fn.line);
    const subjects = new Set(test.run.assertions.flatMap(({ subject }) => [...calledIn(subject)]));
    const mocked = (mocks: readonly Mock[]): Set<string> =>
      new Set(mocks.map(({ target, module }) => `${module} ${target}`));
    const known = mocked([...test.in.file.mocks, ...test.run.mocks]);
    for (const mock of [...other.in.file.mocks, ...other.run.mocks]) {
      if (known.has(`${mock.module} ${mock.target}`) || mock.target === '') continue;
      const names = mock.module ? importedFrom(other.in.file, test.in.file, mock.target) : [mock.target];
      const hit = names.some(
        (each) => subjects.has(each) || test.run.assertions.some(({ subject }) => subject.includes(each)),
      );
      this.#push(hit ? 'subject-mocked' : 'mock-added', test, test.test.fn.line, other, mock.line);
    }
    this.#imports(test, other);
    const imported = new Set(test.in.file.imports.flatMap(({ names }) => names));
    for (const each of subjects) {
      if (imported.has(each) && other.in.file.defined.has(each) && !test.in.file.defined.has(each)) {
        this.#push('subject-replaced', test, test.test.fn.line, other, other.test.fn.line);
      }
    }
  }

  /** The same name, taken from another place: a stand-in where that is one of the tests, else who knows. */
  #imports(test: Live, other: Live): void {
    const about = new Set(test.run.assertions.flatMap(({ subject }) => [...calledIn(outermost(subject))]));
    for (const called of about) {
      if (this.#moved.has(`${test.in.path} ${called}`)) continue;
      const [was, is] = [test, other].map(({ in: { file, path } }) => {
        const from = file.imports.find(({ names }) => names.includes(called));
        return from && { module: from.module, place: placeOf(from.module, path) };
      });
      // Helpers of tests may be put elsewhere: it shows in what they assert.
      if (was === undefined || is === undefined || IN_TESTS.test(was.place)) continue;
      // Named as before, it has moved along; in the same place, the test has.
      if (was.module === is.module || was.place === is.place) continue;
      this.#moved.add(`${test.in.path} ${called}`);
      const cause: Cause = IN_TESTS.test(is.place) ? 'subject-replaced' : 'subject-imported-elsewhere';
      this.#push(cause, test, test.test.fn.line, other, other.test.fn.line);
    }
  }

  #focus(): void {
    for (const file of this.#afterFiles) {
      const focused = file.runs.filter(({ test }) => test.focused);
      const [first] = focused;
      const from = this.#movedFrom.get(file.path) ?? file.path;
      const before = this.#beforeFiles.find((each) => each.path === from);
      if (!first || !before || before.runs.some(({ test }) => test.focused)) continue;
      const others = file.runs.length > focused.length;
      const cause: Cause = others ? 'other-tests-not-run' : 'single-test-focused';
      this.#found.push({
        cause,
        weight: weightOf(cause),
        path: before.path,
        test: titleOf(first.test),
        after: { path: file.path, line: first.test.fn.line },
      });
    }
  }

  /** Whether the test is still there, somewhere the runner does not look. */
  #hidden(test: Live): boolean {
    const bare = bareName(lastOf(test.test));
    return (
      this.#after.some(
        (each) =>
          !runs(each) &&
          !this.#before.some((old) => this.#pairs.get(old) === each) &&
          lastOf(each.test) === lastOf(test.test),
      ) ||
      this.#afterFiles.some((file) =>
        file.file.helpers.some((helper) => bare.length > 2 && bareName(helper.name).includes(bare)),
      )
    );
  }

  #report(cause: Cause, test: Live, before: Assertion | undefined, other?: Live, after?: Assertion): void {
    this.#push(cause, test, before?.line ?? test.test.fn.line, other, after?.line ?? other?.test.fn.line);
  }

  #push(cause: Cause, test: Live, before: number, other?: Live, after?: number): void {
    this.#found.push({
      cause,
      weight: weightOf(cause),
      path: test.in.path,
      test: test.id,
      before,
      ...(other && after !== undefined ? { after: { path: other.in.path, line: after } } : {}),
    });
  }
}

interface Match {
  readonly order: number;
  /** Absent: nothing was lost. */
  readonly cause?: Cause;
  /** Whether it is used up by this. */
  readonly claims: boolean;
}

/** A place of tests and of what stands in for something. */
const IN_TESTS =
  /(^|[/._-])(tests?|testkit|testing|mocks?|__mocks__|fakes?|stubs?|fixtures?|conftest|testdata|helpers?)([/._-]|$)/i;

/** What makes stand-ins. */
const MOCKS = /^(fn|mock|Mock|MagicMock|AsyncMock|create_autospec|stub|createStubInstance|mocked)$/;

const weightOf = (cause: Cause): Finding['weight'] =>
  DOUBTS.has(cause) ? 'undecided' : NOTICES.has(cause) ? 'touched' : 'broken';

/** What took no part before has nothing to lose. */
const counts = (assertion: Assertion): boolean =>
  assertion.constant !== true && (assertion.reach === 'reached' || assertion.reach === 'floating');

const runs = (test: Live): boolean => test.in.collected && !always(test.skips) && test.test.support !== true;

function only(found: readonly Live[], first = false): Live | undefined {
  return found.length === 1 || first ? found[0] : undefined;
}

/** Printed tokens without what stands in parentheses: of `total ( Cart ( 3 ) ) . sum`, `total ( ) . sum`. */
function outermost(tokens: readonly string[]): string[] {
  let depth = 0;
  return tokens.filter((token) => {
    if (token === ')') depth--;
    const keep = depth === 0;
    if (token === '(') depth++;
    return keep;
  });
}

const bareName = (called: string): string =>
  called
    .replace(/^(x|_|disabled_?|skip_?)*test_?/i, '')
    .replaceAll('_', '')
    .toLowerCase();

const wordsOf = ({ run, test }: Live): Set<string> =>
  new Set([
    ...run.assertions.flatMap(({ key, subject }) => [
      key,
      ...subject.filter((each) => isNameToken(each) || isLiteralToken(each)),
    ]),
    ...lastOf(test).split(/[^a-z0-9]+|(?=[A-Z])/i),
  ]);

function overlap(a: ReadonlySet<string>, b: ReadonlySet<string>): number {
  let both = 0;
  for (const each of a) if (b.has(each)) both++;
  const all = a.size + b.size - both;
  return all === 0 ? 0 : both / all;
}

const sameTokens = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((each, at) => each === b[at]);

/** `inner` is a part of `outer`, and not all of it. */
function contains(outer: readonly string[], inner: readonly string[]): boolean {
  if (inner.length === 0 || inner.length >= outer.length) return false;
  for (let at = 0; at + inner.length <= outer.length; at++) {
    if (inner.every((each, i) => each === outer[at + i])) return true;
  }
  return false;
}

/** An assertion about the whole says what one about a part of it said, where all its values are in there. */
function absorbs(whole: Assertion, part: Assertion): boolean {
  if (whole.reach !== 'reached' || whole.guards.length > 0) return false;
  if (!['equal', 'same', 'snapshot'].includes(whole.atom.relation) || !contains(part.subject, whole.subject))
    return false;
  if (!sameTokens(part.subject.slice(0, whole.subject.length), whole.subject)) return false;
  const values = new Set(whole.expected);
  return part.expected.length > 0 && part.expected.every((each) => !isLiteralToken(each) || values.has(each));
}

/** The atom as it is and, where its sides may be exchanged, the other way round; only those about the same subject. */
function turned(before: Atom, after: Assertion): Atom[] {
  const { atom } = after;
  const symmetric = ['equal', 'same', 'not-equal', 'approx'].includes(atom.relation);
  const ways =
    symmetric && atom.expected ? [atom, { ...atom, subject: atom.expected, expected: atom.subject }] : [atom];
  const wanted = printedSubject(before);
  return ways.filter((each) =>
    before.relation === 'any-of' || atom.relation === 'any-of'
      ? aboutSame(before, each)
      : printedSubject(each) === wanted,
  );
}

const subjects = new WeakMap<Atom, string>();
function printedSubject(atom: Atom): string {
  let known = subjects.get(atom);
  if (known === undefined) subjects.set(atom, (known = printed(atom.subject)));
  return known;
}

function aboutSame(before: Atom, after: Atom): boolean {
  const all = (atom: Atom): string[] =>
    atom.relation === 'any-of' ? (atom.members ?? []).map(printedSubject) : [printedSubject(atom)];
  const wanted = new Set(all(before));
  return all(after).some((each) => wanted.has(each));
}

const differsInLiterals = (was: readonly string[], is: readonly string[]): boolean =>
  was.length === is.length &&
  was.every((each, at) => each === is[at] || (isLiteralToken(each) && isLiteralToken(is[at] as string)));

function reachProblem(before: Assertion, after: Assertion): Cause | undefined {
  if (after.reach === 'unreachable') return 'assertion-unreachable';
  if (after.reach === 'swallowed') return 'assertion-swallowed';
  if (after.reach === 'floating' && before.reach !== 'floating') return 'assertion-not-awaited';
  const had = new Set(before.guards.map(({ text }) => text));
  const fresh = after.guards.filter(({ text }) => !had.has(text));
  if (fresh.some(({ place }) => place)) return 'assertion-behind-environment';
  return fresh.length > 0 && fresh.length + had.size > before.guards.length ? 'assertion-guarded' : undefined;
}

/** A module by its place, where it is named relative to the file. */
function placeOf(module: string, path: string): string {
  if (!/^\.{1,2}\//.test(module)) return module;
  const parts = path.split('/').slice(0, -1);
  for (const part of module.replace(/\.[cm]?[jt]sx?$/, '').split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '.') parts.push(part);
  }
  return parts.join('/');
}

function importedFrom(after: TestFile, before: TestFile, module: string): string[] {
  // `@/prices`, `./prices.js` and `../src/prices` are one file by all that can be seen.
  const bare = (path: string): string => path.replace(/\.[cm]?[jt]sx?$/, '').replace(/^.*\//, '');
  return [...after.imports, ...before.imports]
    .filter((each) => bare(each.module) === bare(module))
    .flatMap(({ names }) => names);
}

/** One finding for a file that is gone instead of one for each of its tests; each finding once. */
function collapsed(
  found: readonly Finding[],
  before: readonly Live[],
  after: readonly Analysed[],
): Finding[] {
  const out: Finding[] = [];
  const seen = new Set<string>();
  const gone = new Set<string>();
  for (const path of new Set(before.map((each) => each.in.path))) {
    const all = before.filter((each) => each.in.path === path);
    const removed = new Set(
      found.filter((each) => each.path === path && each.cause === 'test-removed').map(({ test }) => test),
    );
    if (
      !after.some((each) => each.path === path) &&
      all.length > 0 &&
      all.every((each) => removed.has(each.id) || always(each.skips))
    )
      gone.add(path);
  }
  for (const each of found) {
    const whole = gone.has(each.path) && each.cause === 'test-removed';
    const finding: Finding = whole
      ? { cause: 'test-file-deleted', weight: 'broken', path: each.path, test: '' }
      : each;
    const key = JSON.stringify([finding.cause, finding.path, finding.test, finding.before, finding.after]);
    if (seen.has(key)) continue;
    seen.add(key);
    out.push(finding);
  }
  return out;
}
