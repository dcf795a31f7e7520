/** Rust: `#[test]` in all its forms, the macros of the standard library, rstest, test-case, proptest lightly, insta. */

import type { Atom, Relation } from './assertion.js';
import { lengthOf } from './assertion.js';
import type { Argument, Call, Entry, Expr, Func, Stmt } from './code.js';
import { FALSE, TRUE, call, dotted, lastName, list, literal, member, name, number, text } from './code.js';
import type { Parsed, Syntax } from './syntax.js';
import { field, named, ofType } from './syntax.js';
import type { Dialect, Import, Meaning, Skip, Table, TestCase, TestFile } from './test-file.js';

type Parse = (text: string) => Parsed | undefined;

// ---------------------------------------------------------------- lowering

const OPERATORS: Readonly<Record<string, string>> = { '&&': 'and', '||': 'or' };
const BINARY = new Set(['==', '!=', '<', '<=', '>', '>=', '&&', '||']);

class Lowering {
  readonly #parse: Parse;

  constructor(parse: Parse) {
    this.#parse = parse;
  }

  expr(node: Syntax): Expr {
    switch (node.type) {
      case 'identifier':
      case 'field_identifier':
      case 'type_identifier':
      case 'self':
      case 'primitive_type':
      case 'shorthand_field_identifier':
        return name(node.text);
      case 'scoped_identifier':
      case 'scoped_type_identifier': {
        const [path, called] = [field(node, 'path'), field(node, 'name')];
        return called ? (path ? member(this.expr(path), called.text) : name(called.text)) : this.#other(node);
      }
      case 'integer_literal':
      case 'float_literal':
        return number(node.text);
      case 'boolean_literal':
        return node.text === 'true' ? TRUE : FALSE;
      case 'string_literal':
      case 'raw_string_literal':
        return text(node.text.replace(/^[bc]?r?#*"|"#*$/g, ''));
      case 'char_literal':
        return text(`char:${node.text.slice(1, -1)}`);
      case 'parenthesized_expression':
      case 'reference_expression':
      case 'type_cast_expression':
      case 'expression_statement': {
        const [inner] = named(node).filter((each) => each.type !== 'mutable_specifier');
        return inner ? this.expr(inner) : this.#other(node);
      }
      case 'try_expression': {
        const [inner] = named(node);
        return inner ? call(member(this.expr(inner), 'unwrap'), [], node.line) : this.#other(node);
      }
      case 'await_expression': {
        const [inner] = named(node);
        return inner ? { k: 'await', of: this.expr(inner) } : this.#other(node);
      }
      case 'unary_expression': {
        const [inner] = named(node);
        const op = node.children[0]?.text;
        if (!inner) return this.#other(node);
        const value = this.expr(inner);
        if (op === '!') return { k: 'not', of: value };
        if (op === '*') return value;
        if (op === '-' && value.k === 'literal' && value.of === 'number')
          return literal('number', String(-Number(value.value)));
        return { k: 'other', parts: [op ?? '', value] };
      }
      case 'binary_expression': {
        const [left, right] = [field(node, 'left'), field(node, 'right')];
        const op = field(node, 'operator')?.text ?? '';
        if (!left || !right) return this.#other(node);
        if (BINARY.has(op))
          return { k: 'binary', op: OPERATORS[op] ?? op, left: this.expr(left), right: this.expr(right) };
        return { k: 'other', parts: ['(', this.expr(left), op, this.expr(right), ')'] };
      }
      case 'generic_function': {
        const inner = field(node, 'function');
        return inner ? this.expr(inner) : this.#other(node);
      }
      case 'call_expression': {
        const callee = field(node, 'function');
        const args = field(node, 'arguments');
        if (!callee) return this.#other(node);
        const made = this.expr(callee);
        const given = args ? named(args).map((each): Argument => ({ value: this.expr(each) })) : [];
        if (made.k === 'member') {
          // What differs in the words said on failure only.
          if (made.name === 'expect' && given.length === 1)
            return call(member(made.of, 'unwrap'), [], node.line);
          if (made.name === 'expect_err' && given.length === 1)
            return call(member(made.of, 'unwrap_err'), [], node.line);
          if (made.name === 'len' && given.length === 0) return lengthOf(made.of);
          if (
            /^(to_string|to_owned|clone|as_str|into|as_ref|to_vec)$/.test(made.name) &&
            given.length === 0 &&
            made.of.k === 'literal'
          )
            return made.of;
        }
        if (/^String\.from$/.test(dotted(made)) && given[0]) return given[0].value;
        return { k: 'call', callee: made, args: given, line: node.line };
      }
      case 'field_expression': {
        const [of, called] = [field(node, 'value'), field(node, 'field')];
        return of && called ? member(this.expr(of), called.text) : this.#other(node);
      }
      case 'index_expression': {
        const [of, at] = named(node);
        return of && at ? { k: 'index', of: this.expr(of), at: this.expr(at) } : this.#other(node);
      }
      case 'tuple_expression':
      case 'array_expression':
      case 'tuple_pattern':
      case 'slice_pattern':
        if (node.children.some((each) => each.text === ';')) return this.#other(node);
        return list(named(node).map((each) => this.expr(each)));
      case 'mut_pattern':
      case 'ref_pattern':
      case 'reference_pattern': {
        const inner = named(node)
          .filter((each) => each.type !== 'mutable_specifier')
          .at(-1);
        return inner ? this.expr(inner) : this.#other(node);
      }
      case 'struct_expression':
      case 'struct_pattern': {
        const [of, body] = [field(node, 'name') ?? field(node, 'type'), field(node, 'body') ?? node];
        const entries = named(body).flatMap((each): Entry[] => {
          if (each.type === 'shorthand_field_initializer')
            return [{ key: each.text, value: name(each.text) }];
          if (each.type !== 'field_initializer' && each.type !== 'field_pattern') return [];
          const [key, value] = [
            field(each, 'field') ?? field(each, 'name'),
            field(each, 'value') ?? field(each, 'pattern'),
          ];
          return key ? [{ key: key.text, value: value ? this.expr(value) : name(key.text) }] : [];
        });
        return of && node.type === 'struct_expression' && !/^(Case|TestCase|Self)$/.test(of.text)
          ? { k: 'record', entries: [{ key: '', value: text(of.text) }, ...entries] }
          : { k: 'record', entries };
      }
      case 'closure_expression': {
        const [params, body] = [field(node, 'parameters'), field(node, 'body')];
        const stmts = !body
          ? []
          : body.type === 'block'
            ? this.block(body)
            : [{ k: 'return' as const, e: this.expr(body), line: body.line }];
        return {
          k: 'function',
          fn: {
            name: '',
            params: params ? named(params).map((each) => this.#param(each)) : [],
            body: stmts,
            line: node.line,
            endLine: node.endLine,
          },
        };
      }
      case 'macro_invocation':
        return this.#macro(node);
      default:
        return this.#other(node);
    }
  }

  #other(node: Syntax): Expr {
    if (node.children.length === 0) return { k: 'other', parts: [node.text] };
    return {
      k: 'other',
      parts: node.children
        .filter((each) => !/comment/.test(each.type))
        .map((each) => (each.named ? this.expr(each) : each.text)),
    };
  }

  #param(node: Syntax): Expr {
    const pattern = field(node, 'pattern');
    return this.expr(pattern ?? node);
  }

  /** The inside of a macro is tokens to the grammar; read as the arguments of a call where it can be. */
  arguments(inside: string): Expr[] | undefined {
    if (inside.trim() === '') return [];
    const parsed = this.#parse(`fn f() { g(${inside}); }`);
    if (!parsed || parsed.errors.length > 0) return undefined;
    let found: Syntax | undefined;
    const visit = (node: Syntax): void => {
      if (found) return;
      if (node.type === 'arguments') found = node;
      else for (const each of node.children) visit(each);
    };
    visit(parsed.root);
    return found ? named(found).map((each) => this.expr(each)) : undefined;
  }

  #macro(node: Syntax): Expr {
    const called = (field(node, 'macro')?.text ?? '').replace(/^.*::/, '');
    const [tree] = ofType(node, 'token_tree');
    const inside = tree ? tree.text.slice(1, -1) : '';
    if (called === 'vec') {
      const items = this.arguments(inside);
      return items ? list(items) : { k: 'other', parts: ['vec!', inside] };
    }
    if (called === 'matches' || called.endsWith('assert_matches')) {
      const at = topComma(inside);
      const subject = this.arguments(at === -1 ? inside : inside.slice(0, at));
      return call(
        name(`${called}!`),
        [
          subject?.[0] ?? text(inside),
          {
            k: 'other',
            parts:
              at === -1
                ? []
                : inside
                    .slice(at + 1)
                    .split(/\s+|(?=[(){},])|(?<=[(){},])/)
                    .filter((each) => each !== ''),
          },
        ],
        node.line,
      );
    }
    const args = this.arguments(
      inside
        .replace(/\b(epsilon|max_relative|max_ulps|ulps|abs|rel)\s*[=<]+\s*/g, '')
        .replace(/@(?=r?#*")/g, ''),
    );
    return args
      ? call(name(`${called}!`), args, node.line)
      : call(name(`${called}!`), [{ k: 'other', parts: inside.split(/\s+/) }], node.line);
  }

  func(node: Syntax): Func {
    const params = field(node, 'parameters');
    return {
      name: field(node, 'name')?.text ?? '',
      params: params
        ? named(params)
            .filter((each) => each.type === 'parameter')
            .map((each) => this.#param(each))
        : [],
      body: this.block(field(node, 'body')),
      line: node.line,
      endLine: node.endLine,
    };
  }

  block(node: Syntax | undefined): Stmt[] {
    return node ? named(node).flatMap((each) => this.stmt(each)) : [];
  }

  stmt(node: Syntax): Stmt[] {
    const { line } = node;
    switch (node.type) {
      case 'expression_statement':
        return named(node).flatMap((each) => this.stmt(each));
      case 'let_declaration': {
        const [target, value] = [field(node, 'pattern'), field(node, 'value')];
        const orElse = field(node, 'alternative');
        if (!target || !value) return [];
        return [
          { k: 'assign', target: this.expr(target), value: this.expr(value), op: '=', line },
          ...(orElse
            ? [
                {
                  k: 'if' as const,
                  cond: this.#matches(value, target),
                  yes: [],
                  no: this.block(orElse),
                  line,
                },
              ]
            : []),
        ];
      }
      case 'assignment_expression':
      case 'compound_assignment_expr': {
        const [target, value] = [field(node, 'left'), field(node, 'right')];
        const op = field(node, 'operator')?.text ?? '=';
        return target && value
          ? [{ k: 'assign', target: this.expr(target), value: this.expr(value), op, line }]
          : [];
      }
      case 'if_expression': {
        const cond = field(node, 'condition');
        const orElse = field(node, 'alternative');
        if (!cond) return [];
        return [
          {
            k: 'if',
            cond: this.#condition(cond),
            yes: this.block(field(node, 'consequence')),
            no: orElse ? named(orElse).flatMap((each) => this.stmt(each)) : [],
            line,
          },
        ];
      }
      case 'match_expression': {
        const [value, body] = [field(node, 'value'), field(node, 'body')];
        let rest: Stmt[] = [];
        for (const each of (body ? ofType(body, 'match_arm') : []).reverse()) {
          const [pattern, does] = [field(each, 'pattern'), field(each, 'value')];
          const then = does ? this.stmt(does) : [];
          if (!value || !pattern || /^_\w*$/.test(pattern.text)) rest = then;
          else
            rest = [{ k: 'if', cond: this.#matches(value, pattern), yes: then, no: rest, line: each.line }];
        }
        return rest;
      }
      case 'for_expression': {
        const [pattern, over] = [field(node, 'pattern'), field(node, 'value')];
        return [
          {
            k: 'loop',
            ...(pattern ? { pattern: this.expr(pattern) } : {}),
            ...(over ? { over: this.expr(over) } : {}),
            body: this.block(field(node, 'body')),
            line,
          },
        ];
      }
      case 'while_expression': {
        const cond = field(node, 'condition');
        return cond
          ? [{ k: 'while', cond: this.#condition(cond), body: this.block(field(node, 'body')), line }]
          : [];
      }
      case 'loop_expression':
        return [{ k: 'loop', body: this.block(field(node, 'body')), line }];
      case 'return_expression': {
        const [e] = named(node);
        return [{ k: 'return', ...(e ? { e: this.expr(e) } : {}), line }];
      }
      case 'break_expression':
      case 'continue_expression':
        return [{ k: 'leave', line }];
      case 'block':
      case 'unsafe_block':
      case 'async_block':
        return [{ k: 'block', body: this.block(node), line }];
      case 'function_item':
        return [{ k: 'function', fn: this.func(node), line }];
      case 'const_item':
      case 'static_item': {
        const [target, value] = [field(node, 'name'), field(node, 'value')];
        return target && value
          ? [{ k: 'assign', target: name(target.text), value: this.expr(value), op: '=', line }]
          : [];
      }
      case 'use_declaration':
      case 'attribute_item':
      case 'empty_statement':
      case 'struct_item':
      case 'impl_item':
      case 'label':
        return [];
      default:
        return [{ k: 'expr', e: this.expr(node), line }];
    }
  }

  #condition(node: Syntax): Expr {
    if (node.type !== 'let_condition') return this.expr(node);
    const [pattern, value] = [field(node, 'pattern'), field(node, 'value')];
    return pattern && value ? this.#matches(value, pattern) : this.expr(node);
  }

  /** Names bound by the pattern make no difference to what it says. */
  #matches(value: Syntax, pattern: Syntax): Expr {
    const shape = pattern.text
      .replace(/\b[a-z_]\w*\b(?!\s*[({:])/g, '_')
      .split(/\s+|(?=[(){},])|(?<=[(){},])/)
      .filter((each) => each !== '');
    return call(name('matches!'), [this.expr(value), { k: 'other', parts: shape }], value.line);
  }
}

function topComma(inside: string): number {
  let depth = 0;
  for (let at = 0; at < inside.length; at++) {
    const c = inside[at] as string;
    if ('([{'.includes(c)) depth++;
    else if (')]}'.includes(c)) depth--;
    else if (c === ',' && depth === 0) return at;
  }
  return -1;
}

// ---------------------------------------------------------------- meaning

const MACROS: Readonly<Record<string, Relation>> = {
  assert_eq: 'equal',
  assert_ne: 'not-equal',
  debug_assert_eq: 'equal',
  debug_assert_ne: 'not-equal',
  prop_assert_eq: 'equal',
  prop_assert_ne: 'not-equal',
  assert_relative_eq: 'approx',
  assert_abs_diff_eq: 'approx',
  assert_ulps_eq: 'approx',
  assert_approx_eq: 'approx',
  assert_matches: 'type',
};

function meaning(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  const [, macro] = /^(\w+)!$/.exec(path) ?? [];
  const [first, second, third] = e.args.map(({ value }) => value);
  if (macro === undefined) {
    if (/^(std\.)?process\.(exit|abort)$/.test(path)) return { is: 'exit' };
    return undefined;
  }
  if (/^(panic|unreachable|todo|unimplemented|prop_assert_fail)$/.test(macro)) return { is: 'fail' };
  if (/^(debug_)?assert$|^prop_assert$/.test(macro))
    return first && { is: 'assertion', atoms: [{ relation: 'truthy', subject: first }] };
  if (macro.endsWith('snapshot'))
    return (
      first && {
        is: 'assertion',
        atoms: [
          {
            relation: 'snapshot',
            subject: second && first.k === 'literal' ? second : first,
            ...(second && first.k !== 'literal' ? { expected: second } : {}),
          },
        ],
      }
    );
  const relation = MACROS[macro];
  if (!relation || !first || !second) return undefined;
  return {
    is: 'assertion',
    atoms: [
      {
        relation,
        subject: first,
        expected: second,
        ...(relation === 'approx' && third ? { tolerance: third } : {}),
      },
    ],
  };
}

const dialect: Dialect = {
  meaning,
  entering: () => undefined,
  predicate(e): Atom | undefined {
    const last = lastName(e.callee);
    const [first, second] = e.args.map(({ value }) => value);
    if (last === 'matches!' && first && second) return { relation: 'type', subject: first, expected: second };
    if (e.callee.k !== 'member') return undefined;
    const { of } = e.callee;
    if (last === 'is_empty') return { relation: 'empty', subject: of };
    if (last === 'is_none') return { relation: 'nothing', subject: of };
    if (last === 'is_some') return { relation: 'something', subject: of };
    if (last === 'is_ok')
      return { relation: 'type', subject: of, expected: { k: 'other', parts: ['Ok', '(', '_', ')'] } };
    if (last === 'is_err')
      return { relation: 'type', subject: of, expected: { k: 'other', parts: ['Err', '(', '_', ')'] } };
    if (/^(contains|contains_key)$/.test(last) && first)
      return { relation: 'contains', subject: of, expected: first };
    if (last === 'eq' && first) return { relation: 'equal', subject: of, expected: first };
    if (last === 'is_match' && first) return { relation: 'matches', subject: first, expected: of };
    return undefined;
  },
  catchesAssertions: /./,
  failures: /^(?!)/,
  skipErrors: /^(?!)/,
  aboutPlace: /env \. var|cfg ?!|option_env|\bCI\b/,
};
export const RUST: Dialect = dialect;

// ---------------------------------------------------------------- tests

interface Head {
  readonly test: boolean;
  readonly skips: Skip[];
  readonly rows: Expr[];
  readonly ends?: { readonly expected?: Expr; readonly message?: Expr };
}

function head(attributes: readonly Syntax[], lower: Lowering): Head {
  const skips: Skip[] = [];
  const rows: Expr[] = [];
  let test = false;
  let ends: Head['ends'];
  for (const each of attributes) {
    const said = each.text.replace(/^#!?\[\s*|\s*\]$/g, '');
    const [, path = '', inside = ''] = /^([\w:]+)\s*(?:\(([\s\S]*)\)|=.*)?$/.exec(said) ?? [];
    const last = path.replace(/^.*::/, '');
    const { line } = each;
    if (/^(test|rstest|quickcheck|wasm_bindgen_test|parameterized)$/.test(last)) test = true;
    if (last === 'test_case' || /(^|::)case(_\w+)?(::\w+)?$/.test(path)) {
      if (last === 'test_case') test = true;
      const args = lower.arguments(inside.replace(/;\s*"[^"]*"\s*$/, '').replace(/=>\s*/, ', '));
      if (args) rows.push(list(args));
    } else if (last === 'ignore') skips.push({ kind: 'skip', line });
    else if (last === 'should_panic') {
      const [, words] = /expected\s*=\s*"((?:[^"\\]|\\.)*)"/.exec(said) ?? [];
      ends = words === undefined ? {} : { message: text(words) };
    } else if (last === 'cfg' && inside.trim() !== 'test') {
      const never = /^(any\(\s*\)|not\(test\)|FALSE|false)$/.test(inside.trim());
      skips.push({ kind: 'skip', line, ...(never ? {} : { condition: `not ${inside.trim()}` }) });
    } else if (last === 'cfg_attr' && /\bignore\b/.test(inside))
      skips.push({ kind: 'skip', line, condition: inside.replace(/,\s*ignore.*$/, '') });
  }
  return { test, skips, rows, ...(ends ? { ends } : {}) };
}

export function rust(root: Syntax, parse: Parse): TestFile {
  const lower = new Lowering(parse);
  const tests: TestCase[] = [];
  const helpers: Func[] = [];
  const imports: Import[] = [];
  const defined = new Set<string>();
  const fileSkips = head(
    root.children.filter((each) => each.type === 'inner_attribute_item'),
    lower,
  ).skips;

  const collect = (
    items: readonly Syntax[],
    path: readonly string[],
    skips: readonly Skip[],
    around: readonly Stmt[],
  ): void => {
    const prelude = [
      ...around,
      ...items.flatMap((each) => (/^(const|static)_item$/.test(each.type) ? lower.stmt(each) : [])),
    ];
    let attributes: Syntax[] = [];
    for (const node of items) {
      if (node.type === 'attribute_item') {
        attributes.push(node);
        continue;
      }
      if (/comment/.test(node.type)) continue;
      const own = head(attributes, lower);
      attributes = [];
      if (node.type === 'mod_item') {
        const body = field(node, 'body');
        if (body)
          collect(
            body.children.filter((each) => each.named),
            [...path, field(node, 'name')?.text ?? ''],
            [...skips, ...own.skips],
            prelude,
          );
      } else if (node.type === 'function_item') {
        const fn = lower.func(node);
        defined.add(fn.name);
        if (!own.test) {
          helpers.push(fn);
          continue;
        }
        const inHead = (field(node, 'parameters')?.children ?? []).filter((each) => each.named);
        const marked = inHead.filter(
          (each, at) => each.type === 'parameter' && inHead[at - 1]?.type === 'attribute_item',
        );
        const given = marked.length > 0 ? marked : inHead.filter((each) => each.type === 'parameter');
        const cases = given.map((each) => name((field(each, 'pattern') ?? each).text));
        const tables: Table[] = own.rows.length > 0 ? [{ pattern: list(cases), rows: list(own.rows) }] : [];
        tests.push({
          path: [...path, fn.name],
          fn,
          tables,
          skips: [...skips, ...own.skips],
          mocks: [],
          focused: false,
          prelude,
          setups: [],
          ...(own.ends ? { ends: own.ends } : {}),
        });
      } else if (node.type === 'use_declaration') {
        imports.push({ module: node.text, names: node.text.match(/\w+(?=\s*[,;}])/g) ?? [] });
      } else if (node.type === 'struct_item' || node.type === 'enum_item')
        defined.add(field(node, 'name')?.text ?? '');
      else if (node.type === 'macro_invocation' || node.type === 'expression_statement') {
        const macro = node.type === 'macro_invocation' ? node : ofType(node, 'macro_invocation')[0];
        if (macro && /(^|::)proptest$/.test(field(macro, 'macro')?.text ?? ''))
          properties(macro, path, skips, prelude);
      } else if (node.type === 'impl_item') {
        const body = field(node, 'body');
        for (const each of body ? ofType(body, 'function_item') : []) helpers.push(lower.func(each));
      }
    }
  };

  /** `proptest! { #[test] fn f(x in 0..10) { ... } }`: a test whose cases are drawn. */
  const properties = (
    macro: Syntax,
    path: readonly string[],
    skips: readonly Skip[],
    prelude: readonly Stmt[],
  ): void => {
    const inside = (ofType(macro, 'token_tree')[0]?.text ?? '{}').slice(1, -1);
    const drawn = new Map<string, Expr>();
    const source = inside
      .replace(/#!\[[^\]]*\]/g, '')
      .replace(
        /(\w+)\s+in\s+((?:[^,(){}]|\([^()]*(?:\([^()]*\)[^()]*)*\))+)/g,
        (_, called: string, strategy: string) => {
          drawn.set(called, { k: 'other', parts: strategy.trim().split(/\s+/) });
          return `${called}: T`;
        },
      );
    const parsed = parse(source);
    if (!parsed || parsed.errors.length > 0) return;
    const known = tests.length;
    collect(
      parsed.root.children.filter((each) => each.named),
      path,
      skips,
      prelude,
    );
    for (const [at, each] of tests.entries()) {
      if (at < known) continue;
      const tables = each.fn.params.flatMap((param): Table[] =>
        param.k === 'name' && drawn.has(param.name)
          ? [{ pattern: param, rows: drawn.get(param.name) as Expr }]
          : [],
      );
      tests[at] = { ...each, tables };
    }
  };

  collect(
    root.children.filter((each) => each.named),
    [],
    [],
    [],
  );
  return { tests, helpers, imports, defined, skips: fileSkips, mocks: [] };
}
