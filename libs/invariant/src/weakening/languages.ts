/** Which language a file is in, and whether a runner of that language takes it for a file of tests by its name. */

import { GO, go } from './go.js';
import { JAVA, java } from './java.js';
import { JAVASCRIPT, javascript } from './javascript.js';
import { PYTHON, python } from './python.js';
import { RUST, rust } from './rust.js';
import type { GrammarName, Parsed, Syntax } from './syntax.js';
import type { Dialect, TestFile } from './test-file.js';

export type LanguageName = 'python' | 'javascript' | 'go' | 'rust' | 'java';

export interface Language {
  readonly name: LanguageName;
  readonly grammar: (path: string) => GrammarName;
  readonly dialect: Dialect;
  /** `parse` is for what a grammar leaves as tokens: the inside of Rust's macros. */
  readonly read: (root: Syntax, parse: (text: string) => Parsed | undefined) => TestFile;
  /** Names by which runners find files of tests. */
  readonly collects: RegExp;
  readonly extension: RegExp;
}

const LANGUAGES: readonly Language[] = [
  {
    name: 'python',
    grammar: () => 'python',
    dialect: PYTHON,
    read: python,
    collects: /(^|\/)(test[^/]*|[^/]*_tests?|tests)\.py$/,
    extension: /\.pyi?$/,
  },
  {
    name: 'javascript',
    grammar: (path) =>
      /\.[cm]?ts$/.test(path) ? 'typescript' : path.endsWith('.tsx') ? 'tsx' : 'javascript',
    dialect: JAVASCRIPT,
    read: javascript,
    collects:
      /([._-](test|spec|e2e|cy)|(^|\/)(test|spec|test-[^/]*))\.[cm]?[jt]sx?$|(^|\/)(__tests__|tests?|specs?|e2e)\/(.*\/)?[^/]+\.[cm]?[jt]sx?$/,
    extension: /\.[cm]?[jt]sx?$/,
  },
  {
    name: 'go',
    grammar: () => 'go',
    dialect: GO,
    read: go,
    collects: /(^|\/)[^._/][^/]*_test\.go$/,
    extension: /\.go$/,
  },
  { name: 'rust', grammar: () => 'rust', dialect: RUST, read: rust, collects: /\.rs$/, extension: /\.rs$/ },
  {
    name: 'java',
    grammar: () => 'java',
    dialect: JAVA,
    read: java,
    collects: /(^|\/)(Test[^/]*|[^/]*(Tests?|TestCase|IT|Spec))\.java$/,
    extension: /\.java$/,
  },
];

export const languageOf = (path: string): Language | undefined =>
  LANGUAGES.find(({ extension }) => extension.test(path));
