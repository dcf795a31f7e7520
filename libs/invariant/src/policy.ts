/** The operator's policy file: its `invariants` section as rules, checked as strictly as `policy.schema.json` says. */

import { createHash } from 'node:crypto';
import { type Document, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml';
import { TEST_PATHS, TEST_PATHS_EXCEPT } from './default-rules.js';
import { PolicyError, type PolicyErrorCode } from './policy-error.js';

interface Scoped {
  readonly id: string;
  /** Globs over paths relative to the root of the workspace. */
  readonly paths: readonly string[];
  readonly except: readonly string[];
}

export type PathRule = Scoped & { readonly rule: 'read-only' | 'allow-only' | 'no-create' | 'no-delete' };
/** `warn`: weakenings that are told and no more. */
export type TestRule = Scoped & { readonly rule: 'no-test-weakening'; readonly warn: readonly string[] };
export type SecretRule = Scoped & { readonly rule: 'no-secret-write' };
export interface EgressRule {
  readonly rule: 'no-egress';
  readonly id: string;
  /** `host` or `host:port`. */
  readonly allow: readonly string[];
}
export interface SuiteRule {
  readonly rule: 'suite-before-claim';
  readonly id: string;
  /** What counts as the suite; empty: any command that is known to run tests. */
  readonly commands: readonly string[];
}
export interface EffectRule {
  readonly rule: 'max-effect';
  readonly id: string;
  readonly files?: number;
  readonly created?: number;
  readonly deleted?: number;
  /** Of all files together as they are afterwards. */
  readonly bytes?: number;
}
export type Rule = PathRule | TestRule | SecretRule | EgressRule | SuiteRule | EffectRule;
export type RuleName = Rule['rule'];

export interface Policy {
  readonly version: 1;
  readonly rules: readonly Rule[];
  /** `sha256:` over the rules in force, however they were written down. */
  readonly digest: string;
}

const DEFAULT_RULES: readonly Rule[] = [
  { rule: 'no-test-weakening', id: 'tests', paths: TEST_PATHS, except: TEST_PATHS_EXCEPT, warn: [] },
];

/** A larger file is no policy. */
const MAX_SIZE = 1024 * 1024;

/** Members that each rule takes besides `rule` and `id`; those with an exclamation mark it can't do without. */
const MEMBERS: Readonly<Record<RuleName, readonly string[]>> = {
  'read-only': ['paths!', 'except'],
  'allow-only': ['paths!', 'except'],
  'no-create': ['paths!', 'except'],
  'no-delete': ['paths!', 'except'],
  'no-test-weakening': ['paths', 'except', 'warn'],
  'no-secret-write': ['paths', 'except'],
  'no-egress': ['allow'],
  'suite-before-claim': ['commands'],
  'max-effect': ['files', 'created', 'deleted', 'bytes'],
};
export const RULE_NAMES = Object.keys(MEMBERS) as readonly RuleName[];

/** Weakenings that a policy may lower to a warning: those that are at times what was asked for. */
export const LOWERABLE = [
  'expectation-changed',
  'snapshot-changed',
  'snapshot-removed',
  'test-removed',
  'test-file-deleted',
  'test-skipped',
  'test-expected-to-fail',
  'subject-mocked',
] as const;

/** The built-in rules and nothing else. */
export const defaultPolicy = (): Policy => policyOf(DEFAULT_RULES);

export const emptyPolicy = (): Policy => policyOf([]);

export interface ReadOptions {
  /** False: the built-in rules are left out whatever the file says. */
  readonly defaults?: boolean;
}

/** YAML or JSON, which is YAML. Throws PolicyError for the first thing that is wrong. */
export function readPolicy(source: string, options: ReadOptions = {}): Policy {
  if (source.length > MAX_SIZE)
    throw new PolicyError(
      'TOO_LARGE',
      'the file is too large for a policy',
      { line: 1, column: 1, at: '' },
      `at most ${MAX_SIZE} characters`,
    );
  const lines = new LineCounter();
  const document = parseDocument(source, { lineCounter: lines, uniqueKeys: true, logLevel: 'silent' });
  const [fault] = document.errors;
  if (fault) {
    const { line, col } = lines.linePos(fault.pos[0]);
    throw new PolicyError(
      'NOT_YAML',
      firstLine(fault.message),
      { line, column: col, at: '' },
      'one YAML or JSON document is wanted',
    );
  }
  return new Reader(document, lines).policy(options);
}

const firstLine = (message: string): string => (message.split('\n')[0] ?? '').replace(/ at line \d+.*$/, '');

type Path = readonly (string | number)[];

class Reader {
  readonly #document: Document;
  readonly #lines: LineCounter;

  constructor(document: Document, lines: LineCounter) {
    this.#document = document;
    this.#lines = lines;
  }

  policy(options: ReadOptions): Policy {
    const top = this.#members([], ['version', 'invariants', 'sandbox', 'snapshot'], ['version']);
    if (top.get('version') !== 1)
      this.#wrong(
        'WRONG_VERSION',
        ['version'],
        `version ${JSON.stringify(top.get('version'))} is not known`,
        'version: 1',
      );
    for (const section of ['sandbox', 'snapshot']) {
      if (top.has(section) && !isMap(this.#at([section])))
        this.#wrong('WRONG_TYPE', [section], `${section} is no section`, 'members are wanted');
    }
    if (!top.has('invariants')) return policyOf(options.defaults === false ? [] : DEFAULT_RULES);
    const section = this.#members(['invariants'], ['defaults', 'rules'], []);
    const defaults = section.get('defaults') ?? true;
    if (typeof defaults !== 'boolean')
      this.#wrong('WRONG_TYPE', ['invariants', 'defaults'], 'defaults is no truth value', 'true or false');
    const rules = this.#list(['invariants', 'rules'], 0, 256).map((_, at) =>
      this.#rule(['invariants', 'rules', at], at),
    );
    const all = [...(defaults && options.defaults !== false ? DEFAULT_RULES : []), ...rules];
    const seen = new Map<string, number>();
    for (const [at, { id }] of all.entries()) {
      if (seen.has(id)) {
        const own = at - (all.length - rules.length);
        const isDefault = DEFAULT_RULES.some((each) => each.id === id);
        this.#wrong(
          'TWICE',
          ['invariants', 'rules', own, 'id'],
          `the id "${id}" is taken`,
          isDefault ? 'another id, or defaults: false' : 'an id of its own',
        );
      }
      seen.set(id, at);
    }
    return policyOf(all);
  }

  #rule(path: Path, at: number): Rule {
    if (!isMap(this.#at(path)))
      this.#wrong(
        'WRONG_TYPE',
        path,
        'a rule is no list and no text',
        'rule: NAME and its members are wanted',
      );
    const called: unknown = this.#value([...path, 'rule']);
    if (called === undefined)
      this.#wrong(
        'MISSING_MEMBER',
        path,
        'the rule does not say which it is',
        `rule: one of ${RULE_NAMES.join(', ')}`,
      );
    if (!RULE_NAMES.includes(called as RuleName)) {
      const near = nearest(typeof called === 'string' ? called : '', RULE_NAMES);
      this.#wrong(
        'UNKNOWN_RULE',
        [...path, 'rule'],
        `there is no rule ${JSON.stringify(called)}`,
        near ?? `one of ${RULE_NAMES.join(', ')}`,
      );
    }
    const rule = called as RuleName;
    const takes = MEMBERS[rule];
    const known = takes.map((each) => each.replace('!', ''));
    const members = this.#members(
      path,
      ['rule', 'id', ...known],
      takes.filter((each) => each.endsWith('!')).map((each) => each.replace('!', '')),
    );
    const id = members.has('id')
      ? this.#text([...path, 'id'], /^[a-z0-9][a-z0-9._-]{0,63}$/, 'small letters, digits, ".", "_" and "-"')
      : `${rule}-${at + 1}`;
    const globs = (name: string, otherwise: readonly string[]): readonly string[] =>
      members.has(name)
        ? this.#list([...path, name], 1, 1024).map((_, index) => this.#glob([...path, name, index]))
        : otherwise;
    switch (rule) {
      case 'read-only':
      case 'allow-only':
      case 'no-create':
      case 'no-delete':
        return { rule, id, paths: globs('paths', []), except: globs('except', []) };
      case 'no-test-weakening': {
        const warn = members.has('warn')
          ? this.#list([...path, 'warn'], 0, 16).map((_, index) =>
              this.#choice([...path, 'warn', index], LOWERABLE),
            )
          : [];
        return {
          rule,
          id,
          paths: globs('paths', TEST_PATHS),
          except: globs('except', members.has('paths') ? [] : TEST_PATHS_EXCEPT),
          warn,
        };
      }
      case 'no-secret-write':
        return { rule, id, paths: globs('paths', ['**']), except: globs('except', []) };
      case 'no-egress': {
        const allow = members.has('allow')
          ? this.#list([...path, 'allow'], 0, 1024).map((_, index) =>
              this.#text(
                [...path, 'allow', index],
                /^[^\s:/]+(:\d{1,5})?$|^\[[0-9a-fA-F:]+\](:\d{1,5})?$/,
                'host or host:port',
              ),
            )
          : [];
        return { rule, id, allow };
      }
      case 'suite-before-claim': {
        const commands = members.has('commands')
          ? this.#list([...path, 'commands'], 1, 64).map((_, index) =>
              this.#text([...path, 'commands', index], /^[\s\S]{1,512}$/, 'a command'),
            )
          : [];
        return { rule, id, commands };
      }
      case 'max-effect': {
        const counts = known.flatMap((name) =>
          members.has(name) ? [[name, this.#count([...path, name])] as const] : [],
        );
        return { rule, id, ...Object.fromEntries(counts) };
      }
    }
  }

  #members(path: Path, known: readonly string[], required: readonly string[]): Map<string, unknown> {
    const node = this.#at(path);
    if (!isMap(node))
      this.#wrong(
        'WRONG_TYPE',
        path,
        `${path.at(-1) ?? 'the file'} has no members`,
        `members are wanted: ${known.join(', ')}`,
      );
    const found = new Map<string, unknown>();
    for (const pair of (node as unknown as { items: { key: unknown; value: unknown }[] }).items) {
      const name = isScalar(pair.key) ? String(pair.key.value) : '';
      if (!known.includes(name)) {
        const near = nearest(name, known);
        this.#wrong(
          'UNKNOWN_MEMBER',
          [...path, name],
          `there is no member "${name}" here`,
          near ?? `one of ${known.join(', ')}`,
        );
      }
      found.set(name, this.#value([...path, name]));
    }
    for (const name of required) {
      if (!found.has(name))
        this.#wrong(
          'MISSING_MEMBER',
          path,
          `${name} is missing`,
          name === 'version' ? 'version: 1' : `${name}: ...`,
        );
    }
    return found;
  }

  #list(path: Path, least: number, most: number): readonly unknown[] {
    const node = this.#at(path);
    if (node === undefined || node === null) return [];
    if (!isSeq(node))
      this.#wrong('WRONG_TYPE', path, `${String(path.at(-1))} is no list`, 'a list is wanted');
    const { items } = node as unknown as { items: unknown[] };
    if (items.length < least || items.length > most)
      this.#wrong('WRONG_VALUE', path, `${items.length} entries`, `${least} to ${most} entries`);
    return items;
  }

  #glob(path: Path): string {
    const value = this.#text(path, /^[\s\S]{1,512}$/, 'a glob such as src/**');
    if (value.startsWith('!'))
      this.#wrong(
        'WRONG_VALUE',
        path,
        'a glob does not begin with "!"',
        'what is left out goes under except',
      );
    if (/^(\/|[A-Za-z]:)/.test(value))
      this.#wrong(
        'WRONG_VALUE',
        path,
        'a glob is not absolute',
        'paths are relative to the root of the workspace',
      );
    if (/^\.{1,2}\/|\/\.\.(\/|$)/.test(value))
      this.#wrong('WRONG_VALUE', path, 'a glob does not leave its root', 'without ./ and ..');
    return value;
  }

  #text(path: Path, pattern: RegExp, wanted: string): string {
    const value = this.#value(path);
    if (typeof value !== 'string')
      this.#wrong('WRONG_TYPE', path, `${JSON.stringify(value)} is no text`, `${wanted} is wanted`);
    if (!pattern.test(value))
      this.#wrong('WRONG_VALUE', path, `${JSON.stringify(value)} can't be meant`, `${wanted} is wanted`);
    return value;
  }

  #choice(path: Path, known: readonly string[]): string {
    const value = this.#value(path);
    if (typeof value !== 'string' || !known.includes(value))
      this.#wrong('WRONG_VALUE', path, `${JSON.stringify(value)} is not known`, `one of ${known.join(', ')}`);
    return value;
  }

  #count(path: Path): number {
    const value = this.#value(path);
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
      this.#wrong('WRONG_TYPE', path, `${JSON.stringify(value)} is no count`, 'a whole number from 0 on');
    return value;
  }

  #at(path: Path): unknown {
    if (path.length === 0) return this.#document.contents;
    return this.#document.getIn(path, true);
  }

  #value(path: Path): unknown {
    const node = this.#at(path);
    return isScalar(node) ? node.value : node;
  }

  #wrong(code: PolicyErrorCode, path: Path, message: string, wanted: string): never {
    let offset = 0;
    let node: unknown = this.#document.contents;
    for (const step of path) {
      if (isMap(node)) {
        const pair = node.items.find((each) => isScalar(each.key) && String(each.key.value) === String(step));
        if (!pair) break;
        offset = (pair.key as Node).range?.[0] ?? offset;
        node = pair.value;
      } else if (isSeq(node)) {
        node = node.items[Number(step)];
        offset = (node as Node | undefined)?.range?.[0] ?? offset;
      } else break;
    }
    if (isScalar(node)) offset = node.range?.[0] ?? offset;
    const { line, col } = this.#lines.linePos(offset);
    throw new PolicyError(
      code,
      message,
      { line: Math.max(1, line), column: Math.max(1, col), at: path.join('.') },
      wanted,
    );
  }
}

/** The known word that `word` was most likely meant to be, if it is near enough. */
function nearest(word: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let least = Math.min(3, word.length);
  for (const each of known) {
    const distance = edits(word, each);
    if (distance < least) [best, least] = [each, distance];
  }
  return best;
}

function edits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(
        Math.min(
          (row[j] as number) + 1,
          (next[j - 1] as number) + 1,
          (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1),
        ),
      );
    }
    row = next;
  }
  return row[b.length] as number;
}

function policyOf(rules: readonly Rule[]): Policy {
  return Object.freeze({
    version: 1 as const,
    rules: Object.freeze([...rules]),
    digest: policyDigest(rules),
  });
}

/** Members in order of their names, lists that are sets in order of their values: equal exactly where the rules are. */
function policyDigest(rules: readonly Rule[]): string {
  const sets = new Set(['paths', 'except', 'warn', 'allow', 'commands']);
  const form = rules.map((rule) =>
    Object.entries(rule)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => [
        name,
        sets.has(name) && Array.isArray(value) ? [...new Set(value as string[])].sort() : (value as unknown),
      ]),
  );
  const ordered = form.map((each) => JSON.stringify(each)).sort();
  return `sha256:${createHash('sha256')
    .update(JSON.stringify(['belay/invariant-policy/v1', ordered]))
    .digest('hex')}`;
}
