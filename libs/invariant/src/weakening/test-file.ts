/** What a front end finds in a file: its tests, and what they are made of. */

import type { Atom } from './assertion.js';
import type { Call, Expr, Func, Stmt } from './code.js';

export interface Skip {
  /** `expected-failure`: it runs, and failing is right. `condition`: printed, where it is skipped only sometimes. */
  readonly kind: 'skip' | 'expected-failure' | 'todo';
  readonly condition?: string;
  readonly line: number;
}

/** Something replaced by a stand-in. */
export interface Mock {
  /** The last name of what is replaced, or the module where `module`. */
  readonly target: string;
  readonly module: boolean;
  readonly line: number;
}

export interface Table {
  /** Bound to each row in turn. */
  readonly pattern: Expr;
  /** A literal list, or what gives the rows. */
  readonly rows: Expr;
}

export interface TestCase {
  /** Where it stands: classes, suites; then its own name. Unique in its file but for duplicates. */
  readonly path: readonly string[];
  readonly fn: Func;
  readonly tables: readonly Table[];
  readonly skips: readonly Skip[];
  readonly mocks: readonly Mock[];
  /** The others of its file do not run. */
  readonly focused: boolean;
  /** The statements around it that give names their values. */
  readonly prelude: readonly Stmt[];
  /** Run before it: their skips and mocks are its own. */
  readonly setups: readonly Func[];
  /** False: it only runs where some class that is not seen here takes it over. */
  readonly certain?: boolean;
  /** No test, but what tests of other files assert with. */
  readonly support?: boolean;
  /** Said by its head (`@Test(expected = ...)`, `#[should_panic]`): its body ends in this. */
  readonly ends?: { readonly expected?: Expr; readonly message?: Expr };
}

export interface Import {
  readonly module: string;
  readonly names: readonly string[];
}

export interface TestFile {
  readonly tests: readonly TestCase[];
  /** Functions that look like tests and are not run as such, besides those that tests call. */
  readonly helpers: readonly Func[];
  readonly imports: readonly Import[];
  /** Names given a value at the top of the file: functions, classes, variables. */
  readonly defined: ReadonlySet<string>;
  readonly skips: readonly Skip[];
  readonly mocks: readonly Mock[];
}

/** What a call means to the runner of a test. */
export type Meaning =
  | {
      readonly is: 'assertion';
      readonly atoms: readonly Atom[];
      readonly floats?: boolean;
      readonly inside?: readonly Func[];
    }
  | { readonly is: 'fail' }
  | { readonly is: 'skip'; readonly kind: Skip['kind']; readonly condition?: Expr }
  | { readonly is: 'mock'; readonly target: string; readonly module: boolean }
  | { readonly is: 'exit' }
  | { readonly is: 'nothing' };

/** What entering a `with` means. */
export type WithMeaning =
  | { readonly is: 'throws'; readonly expected?: Expr; readonly message?: Expr }
  | { readonly is: 'suppress' }
  | { readonly is: 'mock'; readonly target: string };

/** What the interpreter asks a language. */
export interface Dialect {
  readonly meaning: (call: Call, awaited: boolean) => Meaning | undefined;
  readonly entering: (item: Expr) => WithMeaning | undefined;
  readonly predicate: (call: Call) => Atom | undefined;
  /** What a handler has to name to catch a failed assertion. */
  readonly catchesAssertions: RegExp;
  /** Raising it is failing. */
  readonly failures: RegExp;
  /** Raising it is skipping. */
  readonly skipErrors: RegExp;
  /** Whether a condition is about where a test runs, not about what it tests. */
  readonly aboutPlace: RegExp;
}
