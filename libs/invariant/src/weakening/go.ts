/** Go: the standard `testing` package, testify, and gomega's matchers. */

import type { Atom, Relation } from './assertion.js';
import { lengthOf, negated } from './assertion.js';
import type { Call, Entry, Expr, Func, Stmt } from './code.js';
import {
  FALSE,
  NOTHING,
  TRUE,
  call,
  dotted,
  lastName,
  list,
  literal,
  member,
  name,
  number,
  printed,
  text,
} from './code.js';
import type { Syntax } from './syntax.js';
import { field, named, ofType } from './syntax.js';
import type { Dialect, Import, Meaning, Skip, TestCase, TestFile } from './test-file.js';

// ---------------------------------------------------------------- lowering

const OPERATORS: Readonly<Record<string, string>> = { '&&': 'and', '||': 'or' };
const BINARY = new Set(['==', '!=', '<', '<=', '>', '>=', '&&', '||']);

class Lowering {
  /** Fields of the file's structs, for literals that name none. */
  readonly #structs = new Map<string, readonly string[]>();

  constructor(root: Syntax) {
    const visit = (node: Syntax): void => {
      if (node.type === 'type_spec') {
        const type = field(node, 'type');
        if (type?.type === 'struct_type') this.#structs.set(field(node, 'name')?.text ?? '', fieldsOf(type));
      }
      for (const each of node.children) if (each.named) visit(each);
    };
    visit(root);
  }

  expr(node: Syntax): Expr {
    switch (node.type) {
      case 'identifier':
      case 'field_identifier':
      case 'type_identifier':
      case 'package_identifier':
      case 'blank_identifier':
        return name(node.text);
      case 'int_literal':
      case 'float_literal':
        return number(node.text);
      case 'true':
        return TRUE;
      case 'false':
        return FALSE;
      case 'nil':
        return NOTHING;
      case 'interpreted_string_literal':
      case 'raw_string_literal':
        return text(node.text.slice(1, -1));
      case 'rune_literal':
        return text(`rune:${node.text.slice(1, -1)}`);
      case 'parenthesized_expression': {
        const [only] = named(node);
        return only ? this.expr(only) : this.#other(node);
      }
      case 'expression_list': {
        const all = named(node);
        const [only] = all;
        return all.length === 1 && only ? this.expr(only) : list(all.map((each) => this.expr(each)));
      }
      case 'call_expression': {
        const callee = field(node, 'function');
        const args = field(node, 'arguments');
        return callee
          ? {
              k: 'call',
              callee: this.expr(callee),
              args: args ? named(args).map((each) => ({ value: this.expr(each) })) : [],
              line: node.line,
            }
          : this.#other(node);
      }
      case 'selector_expression': {
        const [of, called] = [field(node, 'operand'), field(node, 'field')];
        return of && called ? member(this.expr(of), called.text) : this.#other(node);
      }
      case 'index_expression': {
        const [of, at] = [field(node, 'operand'), field(node, 'index')];
        return of && at ? { k: 'index', of: this.expr(of), at: this.expr(at) } : this.#other(node);
      }
      case 'binary_expression': {
        const [left, right] = [field(node, 'left'), field(node, 'right')];
        const op = field(node, 'operator')?.text ?? '';
        if (!left || !right) return this.#other(node);
        if (BINARY.has(op))
          return { k: 'binary', op: OPERATORS[op] ?? op, left: this.expr(left), right: this.expr(right) };
        return { k: 'other', parts: ['(', this.expr(left), op, this.expr(right), ')'] };
      }
      case 'unary_expression': {
        const of = field(node, 'operand');
        const op = field(node, 'operator')?.text;
        if (!of) return this.#other(node);
        const value = this.expr(of);
        if (op === '!') return { k: 'not', of: value };
        if (op === '&' || op === '+') return value;
        if (op === '-' && value.k === 'literal' && value.of === 'number')
          return literal('number', String(-Number(value.value)));
        return { k: 'other', parts: [op ?? '', value] };
      }
      case 'composite_literal': {
        const [type, body] = [field(node, 'type'), field(node, 'body')];
        return body ? this.#composite(type, body) : this.#other(node);
      }
      case 'literal_element': {
        const [only] = named(node);
        return only ? this.expr(only) : this.#other(node);
      }
      case 'literal_value':
        return this.#composite(undefined, node);
      case 'func_literal':
        return { k: 'function', fn: this.func(node) };
      default:
        return this.#other(node);
    }
  }

  #other(node: Syntax): Expr {
    if (node.children.length === 0) return { k: 'other', parts: [node.text] };
    return {
      k: 'other',
      parts: node.children
        .filter((each) => each.type !== 'comment')
        .map((each) => (each.named ? this.expr(each) : each.text)),
    };
  }

  #composite(type: Syntax | undefined, body: Syntax): Expr {
    const elements = named(body);
    const element = type && (field(type, 'element') ?? field(type, 'value'));
    const inner = (node: Syntax): Expr => {
      const [only] = node.type === 'literal_element' ? named(node) : [node];
      return only?.type === 'literal_value' ? this.#composite(element, only) : this.expr(node);
    };
    if (elements.length > 0 && elements.every((each) => each.type === 'keyed_element')) {
      const entries = elements.map((each): Entry => {
        const [key, value] = named(each);
        const k = key ? this.expr(key) : NOTHING;
        return { key: k.k === 'literal' ? k.value : printed(k), value: value ? inner(value) : NOTHING };
      });
      return { k: 'record', entries };
    }
    const fields =
      type?.type === 'struct_type' ? fieldsOf(type) : type ? this.#structs.get(type.text) : undefined;
    if (fields && elements.length === fields.length) {
      return {
        k: 'record',
        entries: elements.map((each, at) => ({ key: fields[at] ?? '', value: inner(each) })),
      };
    }
    const items = elements.map(inner);
    const sequence = !type || /^(slice_type|array_type|implicit_length_array_type)$/.test(type.type);
    return sequence
      ? list(items)
      : type.type === 'map_type'
        ? { k: 'record', entries: [] }
        : { k: 'other', parts: [type.text, list(items)] };
  }

  func(node: Syntax): Func {
    const params = field(node, 'parameters');
    return {
      name: field(node, 'name')?.text ?? '',
      params: params
        ? named(params).flatMap((each) => ofType(each, 'identifier').map((own) => name(own.text)))
        : [],
      body: this.block(field(node, 'body')),
      line: node.line,
      endLine: node.endLine,
    };
  }

  block(node: Syntax | undefined): Stmt[] {
    if (!node) return [];
    return named(node).flatMap((each) =>
      each.type === 'statement_list' ? this.block(each) : this.stmt(each),
    );
  }

  stmt(node: Syntax): Stmt[] {
    const { line } = node;
    switch (node.type) {
      case 'expression_statement': {
        const [e] = named(node);
        return e ? [{ k: 'expr', e: this.expr(e), line }] : [];
      }
      case 'short_var_declaration':
      case 'assignment_statement': {
        const [target, value] = [field(node, 'left'), field(node, 'right')];
        const op = field(node, 'operator')?.text ?? '=';
        if (!target || !value) return [];
        return [
          {
            k: 'assign',
            target: this.expr(target),
            value: this.expr(value),
            op: op === ':=' ? '=' : op,
            line,
          },
        ];
      }
      case 'var_declaration':
      case 'const_declaration':
        return ofType(node, 'var_spec', 'const_spec', 'var_spec_list')
          .flatMap((each) => (each.type === 'var_spec_list' ? ofType(each, 'var_spec') : [each]))
          .flatMap((each): Stmt[] => {
            const value = field(each, 'value');
            const names = each.children.filter((child) => child.field === 'name' && child.named);
            const [only] = names;
            if (!value || !only) return [];
            return [
              {
                k: 'assign',
                target: names.length === 1 ? name(only.text) : list(names.map((own) => name(own.text))),
                value: this.expr(value),
                op: '=',
                line: each.line,
              },
            ];
          });
      case 'if_statement': {
        const [init, cond] = [field(node, 'initializer'), field(node, 'condition')];
        const orElse = field(node, 'alternative');
        if (!cond) return [];
        return [
          ...(init ? this.stmt(init) : []),
          {
            k: 'if',
            cond: this.expr(cond),
            yes: this.block(field(node, 'consequence')),
            no: !orElse ? [] : orElse.type === 'if_statement' ? this.stmt(orElse) : this.block(orElse),
            line,
          },
        ];
      }
      case 'for_statement': {
        const body = this.block(field(node, 'body'));
        const [range] = ofType(node, 'range_clause');
        if (range) {
          const [left, right] = [field(range, 'left'), field(range, 'right')];
          const names = left ? named(left).map((each) => this.expr(each)) : [];
          return [
            {
              k: 'loop',
              pattern: list(names),
              ...(right ? { over: call(name('$entries'), [this.expr(right)]) } : {}),
              body,
              line,
            },
          ];
        }
        const [cond] = named(node).filter((each) => each.type !== 'block' && each.type !== 'for_clause');
        return cond ? [{ k: 'while', cond: this.expr(cond), body, line }] : [{ k: 'loop', body, line }];
      }
      case 'return_statement': {
        const [e] = named(node);
        return [{ k: 'return', ...(e ? { e: this.expr(e) } : {}), line }];
      }
      case 'break_statement':
      case 'continue_statement':
        return [{ k: 'leave', line }];
      case 'defer_statement':
      case 'go_statement': {
        const [e] = named(node);
        return e ? [{ k: 'expr', e: this.expr(e), line }] : [];
      }
      case 'block':
        return [{ k: 'block', body: this.block(node), line }];
      case 'labeled_statement':
        return named(node).flatMap((each) => this.stmt(each));
      case 'expression_switch_statement':
        return this.#switch(node);
      case 'type_switch_statement':
      case 'select_statement':
        return named(node).flatMap((each) =>
          each.type.endsWith('_case')
            ? [
                {
                  k: 'if' as const,
                  cond: { k: 'other' as const, parts: [each.type, String(each.line - line)] },
                  yes: named(each).flatMap((inner) =>
                    inner.type === 'statement_list' ? this.block(inner) : [],
                  ),
                  no: [],
                  line: each.line,
                },
              ]
            : [],
        );
      default:
        return [];
    }
  }

  #switch(node: Syntax): Stmt[] {
    const value = field(node, 'value');
    const init = field(node, 'initializer');
    let rest: Stmt[] = [];
    for (const each of named(node)
      .filter((child) => child.type.endsWith('_case'))
      .reverse()) {
      const body = ofType(each, 'statement_list').flatMap((inner) => this.block(inner));
      if (each.type === 'default_case') {
        rest = body;
        continue;
      }
      const wanted = field(each, 'value');
      const conditions = (wanted ? named(wanted) : []).map((one): Expr =>
        value ? { k: 'binary', op: '==', left: this.expr(value), right: this.expr(one) } : this.expr(one),
      );
      const cond = conditions.reduce<Expr | undefined>(
        (all, one) => (all ? { k: 'binary', op: 'or', left: all, right: one } : one),
        undefined,
      );
      if (cond) rest = [{ k: 'if', cond, yes: body, no: rest, line: each.line }];
    }
    return [...(init ? this.stmt(init) : []), ...rest];
  }
}

const fieldsOf = (struct: Syntax): string[] =>
  ofType(struct, 'field_declaration_list').flatMap((each) =>
    ofType(each, 'field_declaration').flatMap((one) =>
      ofType(one, 'field_identifier').map((own) => own.text),
    ),
  );

// ---------------------------------------------------------------- meaning

const T = /^(t|tb|b|f|s\.T\(\)|suite\.T\(\))\.(\w+)$/;

const TWO: Readonly<Record<string, Relation>> = {
  Equal: 'equal',
  EqualValues: 'equal',
  EqualExportedValues: 'equal',
  Exactly: 'same',
  Same: 'same',
  NotSame: 'not-equal',
  NotEqual: 'not-equal',
  NotEqualValues: 'not-equal',
  JSONEq: 'equal',
  YAMLEq: 'equal',
  ElementsMatch: 'custom same members',
  IsType: 'type',
  Implements: 'type',
};
/** The subject comes first. */
const SUBJECT_FIRST: Readonly<Record<string, Relation>> = {
  ErrorIs: 'equal',
  EqualError: 'equal',
  ErrorContains: 'contains',
  ErrorAs: 'type',
  Contains: 'contains',
  NotContains: 'lacks',
  Greater: 'greater',
  GreaterOrEqual: 'at-least',
  Less: 'less',
  LessOrEqual: 'at-most',
  Subset: 'contains',
};
const ONE: Readonly<Record<string, Relation>> = {
  True: 'truthy',
  False: 'falsy',
  Nil: 'nothing',
  NotNil: 'something',
  NoError: 'nothing',
  Error: 'something',
  Empty: 'empty',
  NotEmpty: 'not-empty',
  Zero: 'falsy',
  NotZero: 'truthy',
};

function testify(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  if (!/^(assert|require|is|a|r|s|suite|should|must|ass|req)(\.(Require|Assert)\(\))?\.[A-Z]\w*$/.test(path))
    return undefined;
  const last = lastName(e.callee).replace(/f$/, (end, at) =>
    at > 2 &&
    /^(Equal|NotEqual|True|False|Nil|NotNil|NoError|Error|Len|Contains|Empty|NotEmpty|Fail|FailNow|ErrorIs)f$/.test(
      lastName(e.callee),
    )
      ? ''
      : end,
  );
  let args = e.args.map(({ value }) => value);
  if (args[0] && /^(t|tb|b|s \. T \( \)|suite \. T \( \))$/.test(printed(args[0]))) args = args.slice(1);
  const [first, second, third] = args;
  if (last === 'Fail' || last === 'FailNow') return { is: 'fail' };
  const one = ONE[last];
  if (one) return first && { is: 'assertion', atoms: [{ relation: one, subject: first }] };
  if (last === 'Len')
    return (
      first &&
      second && {
        is: 'assertion',
        atoms: [{ relation: 'equal', subject: lengthOf(first), expected: second }],
      }
    );
  if (/^(InDelta|InEpsilon|WithinDuration|InDeltaSlice)$/.test(last)) {
    return (
      first &&
      second && {
        is: 'assertion',
        atoms: [
          { relation: 'approx', subject: second, expected: first, ...(third ? { tolerance: third } : {}) },
        ],
      }
    );
  }
  if (last.startsWith('Panics')) {
    const fn = last === 'Panics' ? first : second;
    return (
      fn && {
        is: 'assertion',
        atoms: [
          { relation: 'throws', subject: fn, ...(last !== 'Panics' && first ? { message: first } : {}) },
        ],
      }
    );
  }
  if (last === 'NotPanics')
    return first && { is: 'assertion', atoms: [{ relation: 'runs', subject: first }] };
  if (last === 'Regexp' || last === 'NotRegexp')
    return (
      first &&
      second && {
        is: 'assertion',
        atoms: [
          {
            relation: last === 'Regexp' ? 'matches' : 'not-matches',
            subject: second,
            expected: pattern(first),
          },
        ],
      }
    );
  if (last === 'Eventually')
    return first && { is: 'assertion', atoms: [{ relation: 'truthy', subject: first }] };
  const ahead = SUBJECT_FIRST[last];
  if (ahead)
    return (
      first && second && { is: 'assertion', atoms: [{ relation: ahead, subject: first, expected: second }] }
    );
  const two = TWO[last];
  return two && first && second
    ? { is: 'assertion', atoms: [{ relation: two, subject: second, expected: first }] }
    : undefined;
}

/** `regexp.MustCompile("x")` is "x". */
const pattern = (e: Expr): Expr =>
  e.k === 'call' && dotted(e.callee).startsWith('regexp.') ? (e.args[0]?.value ?? e) : e;

const GOMEGA: Readonly<Record<string, Relation>> = {
  Equal: 'equal',
  BeEquivalentTo: 'equal',
  BeIdenticalTo: 'same',
  MatchError: 'equal',
  ContainElement: 'contains',
  ContainSubstring: 'contains',
  HaveKey: 'has',
  MatchRegexp: 'matches',
  BeNil: 'nothing',
  BeTrue: 'truthy',
  BeFalse: 'falsy',
  BeEmpty: 'empty',
  HaveOccurred: 'something',
  Succeed: 'nothing',
  BeZero: 'falsy',
};

function gomega(e: Call): Meaning | undefined {
  const [, not] =
    /^(?:g\.|gomega\.)?(?:Expect|Ω|Eventually|Consistently)\(\)\.(To|NotTo|ToNot|Should|ShouldNot)$/.exec(
      dotted(e.callee),
    ) ?? [];
  const matcher = e.args[0]?.value;
  if (not === undefined || matcher?.k !== 'call' || e.callee.k !== 'member' || e.callee.of.k !== 'call')
    return undefined;
  const subject = e.callee.of.args[0]?.value ?? NOTHING;
  const last = lastName(matcher.callee);
  const [first, second] = matcher.args.map(({ value }) => value);
  const NUMERIC: Readonly<Record<string, Relation>> = {
    '==': 'equal',
    '>': 'greater',
    '>=': 'at-least',
    '<': 'less',
    '<=': 'at-most',
  };
  const atom: Atom =
    last === 'HaveLen'
      ? { relation: 'equal', subject: lengthOf(subject), ...(first ? { expected: first } : {}) }
      : last === 'BeNumerically'
        ? {
            relation: (first?.k === 'literal' ? NUMERIC[first.value] : undefined) ?? 'approx',
            subject,
            ...(second ? { expected: second } : {}),
          }
        : { relation: GOMEGA[last] ?? `custom ${last}`, subject, ...(first ? { expected: first } : {}) };
  return { is: 'assertion', atoms: [/Not/.test(not) ? negated(atom) : atom] };
}

function meaning(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  const [, , method] = T.exec(path) ?? [];
  if (method !== undefined) {
    if (/^(Error|Errorf|Fatal|Fatalf|Fail|FailNow)$/.test(method)) return { is: 'fail' };
    if (method.startsWith('Skip')) return { is: 'skip', kind: 'skip' };
    if (/^(Log|Logf|Helper|Parallel|Setenv)$/.test(method)) return { is: 'nothing' };
  }
  if (path === 'os.Exit' || path === 'runtime.Goexit') return { is: 'exit' };
  if (path === 'panic') return { is: 'fail' };
  if (/^(goleak|golden|snaps|cupaloy)\./.test(path) && e.args[1])
    return { is: 'assertion', atoms: [{ relation: 'snapshot', subject: e.args[1].value }] };
  return testify(e) ?? gomega(e);
}

const dialect: Dialect = {
  meaning,
  entering: () => undefined,
  predicate(e): Atom | undefined {
    const path = dotted(e.callee);
    const [first, second] = e.args.map(({ value }) => value);
    if (!first || !second) return undefined;
    if (
      /^(reflect\.DeepEqual|bytes\.Equal|slices\.Equal|maps\.Equal|cmp\.Equal|errors\.Is|strings\.EqualFold)$/.test(
        path,
      )
    )
      return { relation: 'equal', subject: first, expected: second };
    if (/^(strings|bytes|slices)\.Contains$/.test(path))
      return { relation: 'contains', subject: first, expected: second };
    if (path === 'errors.As') return { relation: 'type', subject: first, expected: second };
    if (path === 'regexp.MatchString') return { relation: 'matches', subject: second, expected: first };
    return undefined;
  },
  catchesAssertions: /^(?!)/,
  failures: /^(?!)/,
  skipErrors: /^(?!)/,
  aboutPlace: /testing \. Short|os \. (Getenv|LookupEnv)|runtime \. GO|\bCI\b/,
};
export const GO: Dialect = dialect;

// ---------------------------------------------------------------- tests

export function go(root: Syntax): TestFile {
  const lower = new Lowering(root);
  const tests: TestCase[] = [];
  const helpers: Func[] = [];
  const imports: Import[] = [];
  const defined = new Set<string>();
  const skips: Skip[] = [];
  const prelude: Stmt[] = [];
  for (const node of root.children) {
    if (node.type === 'package_clause') break;
    const [, tags] = /^\/\/\s*(?:go:build|\+build)\s+(.+)$/.exec(node.text) ?? [];
    if (node.type === 'comment' && tags !== undefined)
      skips.push({
        kind: 'skip',
        line: node.line,
        ...(tags.trim() === 'ignore' ? {} : { condition: `not ${tags.trim()}` }),
      });
  }
  const top = named(root);
  for (const node of top) if (/^(var|const)_declaration$/.test(node.type)) prelude.push(...lower.stmt(node));
  for (const each of prelude)
    if (each.k === 'assign' && each.target.k === 'name') defined.add(each.target.name);
  for (const node of top) {
    if (node.type === 'import_declaration') {
      const visit = (each: Syntax): void => {
        if (each.type === 'import_spec') {
          const path = (field(each, 'path')?.text ?? '').slice(1, -1);
          imports.push({ module: path, names: [field(each, 'name')?.text ?? path.replace(/^.*\//, '')] });
        } else for (const child of named(each)) visit(child);
      };
      visit(node);
    }
    if (node.type !== 'function_declaration' && node.type !== 'method_declaration') continue;
    const fn = lower.func(node);
    const receiver = field(node, 'receiver')?.text.replace(/^\(\s*\w*\s*\*?|\)$/g, '');
    if (receiver === undefined) defined.add(fn.name);
    const takes = field(node, 'parameters')?.text ?? '';
    const plain =
      receiver === undefined &&
      /\*testing\.[TF]\b/.test(takes) &&
      named(field(node, 'parameters') ?? node).length === 1;
    const suite = receiver !== undefined && /^\(\s*\)$/.test(takes);
    if (fn.name === 'TestMain') {
      if (!node.text.includes('.Run()')) skips.push({ kind: 'skip', line: node.line });
      continue;
    }
    if (/^(Test|Fuzz)([^a-z]|$)/.test(fn.name) && (plain || suite)) {
      tests.push({
        path: receiver === undefined ? [fn.name] : [receiver, fn.name],
        fn,
        tables: [],
        skips: [],
        mocks: [],
        focused: false,
        prelude,
        setups: [],
      });
    } else helpers.push(fn);
  }
  return { tests, helpers, imports, defined, skips, mocks: [] };
}
