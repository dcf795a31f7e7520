/** Python: pytest and unittest. */

import type { Atom, Relation } from './assertion.js';

import type { Argument, Call, Expr, Func, Stmt } from './code.js';
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
import { field, fields, named, ofType } from './syntax.js';
import type { Dialect, Import, Meaning, Mock, Skip, Table, TestCase, TestFile } from './test-file.js';

// ---------------------------------------------------------------- lowering

const OPERATORS: Readonly<Record<string, string>> = { 'is not': 'is not', 'not in': 'not in', '<>': '!=' };

function expr(node: Syntax): Expr {
  switch (node.type) {
    case 'identifier':
      return name(node.text);
    case 'integer':
    case 'float':
      return number(node.text);
    case 'true':
      return TRUE;
    case 'false':
      return FALSE;
    case 'none':
      return NOTHING;
    case 'ellipsis':
      return name('...');
    case 'string':
      return string(node);
    case 'concatenated_string': {
      const parts = named(node).map(string);
      return parts.every((each) => each.k === 'literal')
        ? text(parts.map((each) => (each.k === 'literal' ? each.value : '')).join(''))
        : { k: 'other', parts };
    }
    case 'parenthesized_expression':
    case 'type':
    case 'expression_statement': {
      const [only] = named(node);
      return only ? expr(only) : other(node);
    }
    case 'call': {
      const callee = field(node, 'function');
      const args = field(node, 'arguments');
      if (!callee || !args) return other(node);
      return {
        k: 'call',
        callee: expr(callee),
        args: args.type === 'argument_list' ? named(args).map(argument) : [{ value: expr(args) }],
        line: node.line,
      };
    }
    case 'attribute': {
      const of = field(node, 'object');
      const called = field(node, 'attribute');
      return of && called ? member(expr(of), called.text) : other(node);
    }
    case 'subscript': {
      const of = field(node, 'value');
      const at = fields(node, 'subscript');
      const [only] = at;
      if (!of || !only) return other(node);
      return { k: 'index', of: expr(of), at: at.length === 1 ? expr(only) : list(at.map(expr)) };
    }
    case 'comparison_operator':
      return comparison(node);
    case 'boolean_operator': {
      const [left, right] = [field(node, 'left'), field(node, 'right')];
      const op = field(node, 'operator')?.text;
      return left && right && op ? { k: 'binary', op, left: expr(left), right: expr(right) } : other(node);
    }
    case 'binary_operator': {
      const [left, right] = [field(node, 'left'), field(node, 'right')];
      return left && right
        ? { k: 'other', parts: ['(', expr(left), field(node, 'operator')?.text ?? '?', expr(right), ')'] }
        : other(node);
    }
    case 'not_operator': {
      const of = field(node, 'argument');
      return of ? { k: 'not', of: expr(of) } : other(node);
    }
    case 'unary_operator': {
      const of = field(node, 'argument');
      const value = of && expr(of);
      if (value?.k === 'literal' && value.of === 'number' && field(node, 'operator')?.text === '-') {
        return number(`-${value.value}`).k === 'literal'
          ? literal('number', String(-Number(value.value)))
          : value;
      }
      return other(node);
    }
    case 'list':
    case 'tuple':
    case 'set':
    case 'expression_list':
    case 'pattern_list':
    case 'tuple_pattern':
    case 'list_pattern':
      return list(named(node).map(expr));
    case 'dictionary': {
      const pairs = named(node);
      if (!pairs.every((each) => each.type === 'pair')) return other(node);
      return {
        k: 'record',
        entries: pairs.map((each) => {
          const [key, value] = [field(each, 'key'), field(each, 'value')];
          const k = key ? expr(key) : NOTHING;
          return { key: k.k === 'literal' ? k.value : printed(k), value: value ? expr(value) : NOTHING };
        }),
      };
    }
    case 'lambda': {
      const body = field(node, 'body');
      return {
        k: 'function',
        fn: {
          name: '',
          params: parameters(field(node, 'parameters')).params,
          body: body ? [{ k: 'return', e: expr(body), line: node.line }] : [],
          line: node.line,
          endLine: node.endLine,
        },
      };
    }
    case 'await': {
      const [of] = named(node);
      return of ? { k: 'await', of: expr(of) } : other(node);
    }
    case 'named_expression': {
      const value = field(node, 'value');
      return value ? expr(value) : other(node);
    }
    case 'as_pattern': {
      const [of] = named(node);
      return of ? expr(of) : other(node);
    }
    default:
      return other(node);
  }
}

const other = (node: Syntax): Expr =>
  node.children.length === 0
    ? { k: 'other', parts: [node.text] }
    : {
        k: 'other',
        parts: node.children
          .filter((each) => each.type !== 'comment')
          .map((each) => (each.named ? expr(each) : each.text)),
      };

function string(node: Syntax): Expr {
  const inner = named(node);
  if (inner.some((each) => each.type === 'interpolation')) {
    return {
      k: 'other',
      parts: [
        'f"',
        ...inner.flatMap((each): (string | Expr)[] =>
          each.type === 'interpolation'
            ? named(each).slice(0, 1).map(expr)
            : each.type === 'string_content'
              ? [JSON.stringify(each.text)]
              : [],
        ),
      ],
    };
  }
  const start = inner.find((each) => each.type === 'string_start')?.text ?? '';
  const content = inner
    .filter((each) => each.type === 'string_content')
    .map((each) => each.text)
    .join('');
  return text(`${/b/i.test(start) ? 'b:' : ''}${content.replaceAll(/\\(["'])/g, '$1')}`);
}

function argument(node: Syntax): Argument {
  if (node.type !== 'keyword_argument') return { value: expr(node) };
  const [key, value] = [field(node, 'name'), field(node, 'value')];
  return { ...(key ? { name: key.text } : {}), value: value ? expr(value) : NOTHING };
}

function comparison(node: Syntax): Expr {
  // `a < b < c` is `a < b and b < c`.
  const operands = named(node);
  const operators = node.children.filter((each) => !each.named).map((each) => each.text);
  let out: Expr | undefined;
  for (let at = 0; at + 1 < operands.length; at++) {
    const [left, right, op] = [operands[at], operands[at + 1], operators[at]];
    if (!left || !right || !op) return other(node);
    const one: Expr = { k: 'binary', op: OPERATORS[op] ?? op, left: expr(left), right: expr(right) };
    out = out ? { k: 'binary', op: 'and', left: out, right: one } : one;
  }
  return out ?? other(node);
}

function parameters(node: Syntax | undefined): { params: Expr[]; defaults: Map<string, Expr> } {
  const params: Expr[] = [];
  const defaults = new Map<string, Expr>();
  for (const each of node ? named(node) : []) {
    const own = field(each, 'name') ?? (each.type === 'identifier' ? each : named(each)[0]);
    if (!own) continue;
    params.push(name(own.text));
    const value = field(each, 'value');
    if (value) defaults.set(own.text, expr(value));
  }
  return { params, defaults };
}

function func(node: Syntax): Func {
  return {
    name: field(node, 'name')?.text ?? '',
    ...parameters(field(node, 'parameters')),
    body: block(field(node, 'body')),
    line: node.line,
    endLine: node.endLine,
  };
}

const block = (node: Syntax | undefined): Stmt[] => (node ? named(node).flatMap(stmt) : []);

function stmt(node: Syntax): Stmt[] {
  const { line } = node;
  switch (node.type) {
    case 'expression_statement': {
      const [inner] = named(node);
      if (!inner) return [];
      if (inner.type === 'assignment') {
        const [target, value] = [field(inner, 'left'), field(inner, 'right')];
        return target && value
          ? [{ k: 'assign', target: expr(target), value: expr(value), op: '=', line }]
          : [];
      }
      if (inner.type === 'augmented_assignment') {
        const [target, value] = [field(inner, 'left'), field(inner, 'right')];
        const op = field(inner, 'operator')?.text ?? '+=';
        return target && value ? [{ k: 'assign', target: expr(target), value: expr(value), op, line }] : [];
      }
      // A text that stands for itself is a comment.
      if (inner.type === 'string' || inner.type === 'concatenated_string') return [];
      return named(node).map((each) => ({ k: 'expr', e: expr(each), line }));
    }
    case 'assert_statement': {
      const [cond] = named(node);
      return cond ? [{ k: 'assert', e: expr(cond), line }] : [];
    }
    case 'if_statement': {
      const cond = field(node, 'condition');
      if (!cond) return [];
      const alternatives = fields(node, 'alternative');
      let rest: Stmt[] = [];
      for (const each of alternatives.reverse()) {
        if (each.type === 'else_clause') rest = block(field(each, 'body'));
        else {
          const inner = field(each, 'condition');
          if (inner)
            rest = [
              {
                k: 'if',
                cond: expr(inner),
                yes: block(field(each, 'consequence')),
                no: rest,
                line: each.line,
              },
            ];
        }
      }
      return [{ k: 'if', cond: expr(cond), yes: block(field(node, 'consequence')), no: rest, line }];
    }
    case 'for_statement': {
      const [pattern, over] = [field(node, 'left'), field(node, 'right')];
      return [
        {
          k: 'loop',
          ...(pattern ? { pattern: expr(pattern) } : {}),
          ...(over ? { over: expr(over) } : {}),
          body: block(field(node, 'body')),
          line,
        },
        ...block(ofType(node, 'else_clause').map((each) => field(each, 'body'))[0]),
      ];
    }
    case 'while_statement': {
      const cond = field(node, 'condition');
      return cond ? [{ k: 'while', cond: expr(cond), body: block(field(node, 'body')), line }] : [];
    }
    case 'try_statement': {
      const handlers = ofType(node, 'except_clause', 'except_group_clause').map((each) => {
        const [what] = named(each).filter((child) => child.type !== 'block');
        const as = what?.type === 'as_pattern' ? ofType(what, 'as_pattern_target')[0]?.text : undefined;
        const type = what && expr(what);
        return {
          catches: type === undefined ? [] : type.k === 'list' ? type.items.map(dotted) : [dotted(type)],
          ...(as === undefined ? {} : { as }),
          body: block(ofType(each, 'block')[0]),
        };
      });
      const orElse = block(ofType(node, 'else_clause').map((each) => field(each, 'body'))[0]);
      const last = block(ofType(node, 'finally_clause').flatMap((each) => ofType(each, 'block'))[0]);
      return [{ k: 'try', body: [...block(field(node, 'body')), ...orElse], handlers, last, line }];
    }
    case 'with_statement': {
      const items = ofType(node, 'with_clause').flatMap((each) => ofType(each, 'with_item'));
      let body = block(field(node, 'body'));
      for (const each of items.reverse()) {
        const value = field(each, 'value');
        if (!value) continue;
        const target = value.type === 'as_pattern' ? ofType(value, 'as_pattern_target')[0] : undefined;
        const as = target && named(target)[0];
        body = [{ k: 'with', item: expr(value), ...(as ? { as: expr(as) } : {}), body, line: each.line }];
      }
      return body;
    }
    case 'return_statement': {
      const [e] = named(node);
      return [{ k: 'return', ...(e ? { e: expr(e) } : {}), line }];
    }
    case 'raise_statement': {
      const [e] = named(node);
      return [{ k: 'raise', ...(e ? { e: expr(e) } : {}), line }];
    }
    case 'break_statement':
    case 'continue_statement':
      return [{ k: 'leave', line }];
    case 'function_definition':
      return [{ k: 'function', fn: func(node), line }];
    case 'decorated_definition': {
      const inner = field(node, 'definition');
      return inner?.type === 'function_definition' ? [{ k: 'function', fn: func(inner), line }] : [];
    }
    case 'match_statement':
      return [{ k: 'expr', e: other(node), line }];
    default:
      return [];
  }
}

// ---------------------------------------------------------------- meaning

const COMPARED: Readonly<Record<string, Relation>> = {
  Equal: 'equal',
  Equals: 'equal',
  NotEqual: 'not-equal',
  NotEquals: 'not-equal',
  Is: 'same',
  IsNot: 'not-equal',
  ListEqual: 'equal',
  DictEqual: 'equal',
  TupleEqual: 'equal',
  SetEqual: 'equal',
  SequenceEqual: 'equal',
  MultiLineEqual: 'equal',
  CountEqual: 'custom same members',
  Greater: 'greater',
  GreaterEqual: 'at-least',
  Less: 'less',
  LessEqual: 'at-most',
  IsInstance: 'type',
  NotIsInstance: 'not-type',
  Regex: 'matches',
  NotRegex: 'not-matches',
  DictContainsSubset: 'subset',
};

function keyword(e: Call, ...names: string[]): Expr | undefined {
  return e.args.find((each) => each.name !== undefined && names.includes(each.name))?.value;
}

const positional = (e: Call): Expr[] =>
  e.args.filter((each) => each.name === undefined).map((each) => each.value);

/** The function or call that has to raise. */
const raising = (args: readonly Expr[], line: number): Expr => {
  const [fn, ...rest] = args;
  if (!fn) return { k: 'other', parts: [] };
  return fn.k === 'function' ? fn : call(fn, rest, line);
};

function unittest(kind: string, e: Call): Meaning | undefined {
  const [first, second, third] = positional(e);
  if (kind === 'True' || kind === '_')
    return first && { is: 'assertion', atoms: [{ relation: 'truthy', subject: first }] };
  if (kind === 'False') return first && { is: 'assertion', atoms: [{ relation: 'falsy', subject: first }] };
  if (kind === 'IsNone' || kind === 'IsNotNone') {
    return (
      first && {
        is: 'assertion',
        atoms: [{ relation: kind === 'IsNone' ? 'nothing' : 'something', subject: first }],
      }
    );
  }
  if (kind === 'In' || kind === 'NotIn') {
    return (
      first &&
      second && {
        is: 'assertion',
        atoms: [{ relation: kind === 'In' ? 'contains' : 'lacks', subject: second, expected: first }],
      }
    );
  }
  if (kind === 'AlmostEqual' || kind === 'NotAlmostEqual') {
    const delta = keyword(e, 'delta');
    const places = keyword(e, 'places') ?? third ?? number('7');
    return (
      first &&
      second && {
        is: 'assertion',
        atoms: [
          {
            relation: kind === 'AlmostEqual' ? 'approx' : 'custom far',
            subject: first,
            expected: second,
            tolerance: delta ?? places,
            ...(delta ? {} : { places: true }),
          },
        ],
      }
    );
  }
  if (/^(Raises|RaisesRegex|Warns|WarnsRegex)$/.test(kind)) {
    const regex = kind.endsWith('Regex');
    const fn = positional(e).slice(regex ? 2 : 1);
    // Without a function it is entered by a `with`.
    if (fn.length === 0) return { is: 'nothing' };
    return {
      is: 'assertion',
      atoms: [
        {
          relation: 'throws',
          subject: raising(fn, e.line),
          ...(first ? { expected: first } : {}),
          ...(regex && second ? { message: second } : {}),
        },
      ],
    };
  }
  const relation = COMPARED[kind];
  return relation && first && second
    ? { is: 'assertion', atoms: [{ relation, subject: first, expected: second }] }
    : undefined;
}

const CALLED: Readonly<Record<string, Relation>> = {
  assert_called: 'called',
  assert_called_once: 'called-times',
  assert_called_with: 'called-with',
  assert_called_once_with: 'called-with',
  assert_any_call: 'called-with',
  assert_has_calls: 'called-with',
  assert_not_called: 'not-called',
  assert_awaited: 'called',
  assert_awaited_once: 'called-times',
  assert_awaited_with: 'called-with',
  assert_awaited_once_with: 'called-with',
};

const NUMPY: Readonly<Record<string, Relation>> = {
  assert_equal: 'equal',
  assert_array_equal: 'equal',
  assert_frame_equal: 'equal',
  assert_series_equal: 'equal',
  assert_allclose: 'approx',
  assert_almost_equal: 'approx',
  assert_array_almost_equal: 'approx',
};

function meaning(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  const last = lastName(e.callee);
  const [first, second] = positional(e);
  if (/^(self|cls|testcase|case|tc)\.(assert\w*|fail\w*|skipTest)$/.test(path)) {
    if (last === 'fail') return { is: 'fail' };
    if (last === 'skipTest') return { is: 'skip', kind: 'skip' };
    return unittest(last.replace(/^(assert|fail(Unless)?)/, ''), e);
  }
  if (/^(pytest\.)?fail$/.test(path) && path !== 'fail') return { is: 'fail' };
  if (/^(pytest\.)(skip|importorskip|xfail)$/.test(path)) {
    return {
      is: 'skip',
      kind: last === 'xfail' ? 'expected-failure' : 'skip',
      ...(last === 'importorskip' ? { condition: call(name('missing'), first ? [first] : []) } : {}),
    };
  }
  if (/^(sys\.exit|os\._exit|exit|quit|pytest\.exit)$/.test(path)) return { is: 'exit' };
  if (path === 'pytest.raises' || path === 'pytest.warns') {
    const fn = positional(e).slice(1);
    return fn.length === 0
      ? { is: 'nothing' }
      : {
          is: 'assertion',
          atoms: [
            { relation: 'throws', subject: raising(fn, e.line), ...(first ? { expected: first } : {}) },
          ],
        };
  }
  const called = CALLED[last];
  if (called && e.callee.k === 'member') {
    const expected =
      called === 'called-with'
        ? list(e.args.map(({ value }) => value))
        : called === 'called-times'
          ? number('1')
          : undefined;
    return {
      is: 'assertion',
      atoms: [{ relation: called, subject: e.callee.of, ...(expected ? { expected } : {}) }],
    };
  }
  const array = NUMPY[last];
  if (array && first && second) {
    const tolerance = keyword(e, 'rtol', 'atol', 'decimal');
    return {
      is: 'assertion',
      atoms: [
        {
          relation: array,
          subject: first,
          expected: second,
          ...(tolerance ? { tolerance } : {}),
          ...(keyword(e, 'decimal') ? { places: true } : {}),
        },
      ],
    };
  }
  if (
    /^(mock\.|mocker\.|unittest\.mock\.)?patch(\.object|\.dict|\.multiple)?$/.test(path) &&
    /patch/.test(path)
  )
    return patched(e, path);
  if (/^monkeypatch\.(setattr|delattr)$/.test(path))
    return patched(e, second && second.k === 'literal' ? 'patch.object' : 'patch');
  return undefined;
}

function patched(e: Call, path: string): Meaning {
  const [first, second] = positional(e);
  const what = /object|multiple/.test(path) ? second : first;
  const target = what?.k === 'literal' ? what.value.replace(/^.*\./, '') : what ? lastName(what) : '';
  return { is: 'mock', target, module: false };
}

const dialect: Dialect = {
  meaning,
  entering(item) {
    if (item.k !== 'call') return undefined;
    const path = dotted(item.callee);
    const last = lastName(item.callee);
    const [first, second] = positional(item);
    if (
      /^(pytest\.)?(raises|warns|deprecated_call)$/.test(path) ||
      /\.assert(Raises|Warns|Logs|RaisesRegex|WarnsRegex)$/.test(path) ||
      last === 'raises'
    ) {
      const message = keyword(item, 'match') ?? (last.endsWith('Regex') ? second : undefined);
      return { is: 'throws', ...(first ? { expected: first } : {}), ...(message ? { message } : {}) };
    }
    if (last === 'suppress') return { is: 'suppress' };
    const m = meaning(item);
    return m?.is === 'mock' ? { is: 'mock', target: m.target } : undefined;
  },
  predicate(e): Atom | undefined {
    const path = dotted(e.callee);
    const [first, second] = positional(e);
    if (path === 'isinstance' && first && second)
      return { relation: 'type', subject: first, expected: second };
    if (path === 'hasattr' && first && second) return { relation: 'has', subject: first, expected: second };
    if (path === 'bool' && first) return { relation: 'truthy', subject: first };
    if (/^(re\.)(match|search|fullmatch)$/.test(path) && first && second)
      return { relation: 'matches', subject: second, expected: first };
    if (/(^|\.)isclose$/.test(path) && first && second) {
      const tolerance = keyword(e, 'rel_tol', 'abs_tol', 'rtol', 'atol');
      return { relation: 'approx', subject: first, expected: second, ...(tolerance ? { tolerance } : {}) };
    }
    return undefined;
  },
  catchesAssertions: /^(Exception|BaseException|AssertionError)$/,
  failures: /^(AssertionError|self \. failureException|Exception)\b/,
  skipErrors: /SkipTest|skip \. Exception|Skipped/,
  aboutPlace: /environ|getenv|\bplatform\b|version_info|\bCI\b/,
};
export const PYTHON: Dialect = dialect;

// ---------------------------------------------------------------- tests

interface Head {
  readonly skips: Skip[];
  readonly mocks: Mock[];
  readonly tables: Table[];
}

function heads(decorators: readonly Expr[], line: number): Head {
  const head: Head = { skips: [], mocks: [], tables: [] };
  for (const each of decorators) {
    const made = each.k === 'call' ? each : undefined;
    const path = dotted(made ? made.callee : each).replace(
      /^pytest\.mark\.|^mark\.|^unittest\.(mock\.)?/,
      '',
    );
    const args = made ? positional(made) : [];
    const [first, second] = args;
    const always = first && /^(True|true|1|not False)$/.test(printed(first));
    const conditional = first && !always ? { condition: printed(first) } : {};
    if (path === 'skip' || path === 'pytest.skip') head.skips.push({ kind: 'skip', line });
    else if (path === 'skipif' || path === 'skipIf') {
      const given = (made && keyword(made, 'condition')) ?? first;
      if (given && printed(given) === 'false') continue;
      head.skips.push({
        kind: 'skip',
        line,
        ...(given && !/^(true|1)$/.test(printed(given)) ? { condition: printed(given) } : {}),
      });
    } else if (path === 'skipUnless') {
      if (first && printed(first) === 'true') continue;
      head.skips.push({
        kind: 'skip',
        line,
        ...(first && printed(first) !== 'false' ? { condition: `not ${printed(first)}` } : {}),
      });
    } else if (path === 'xfail')
      head.skips.push({
        kind: 'expected-failure',
        line,
        ...(first && first.k !== 'literal' ? conditional : {}),
      });
    else if (path === 'expectedFailure') head.skips.push({ kind: 'expected-failure', line });
    else if (path === 'parametrize' && made) {
      const [names, rows] = [first ?? keyword(made, 'argnames'), second ?? keyword(made, 'argvalues')];
      if (names && rows) head.tables.push(table(names, rows));
    } else if (/(parameterized\.expand|parameterized)$/.test(path) && first) {
      head.tables.push({ pattern: name('$row'), rows: first });
    } else if (/patch(\.object|\.dict|\.multiple)?$/.test(path) && made) {
      const mock = patched(made, path);
      if (mock.is === 'mock') head.mocks.push({ target: mock.target, module: false, line });
    }
  }
  return head;
}

function table(names: Expr, rows: Expr): Table {
  const wanted =
    names.k === 'list'
      ? names.items.map((each) => (each.k === 'literal' ? each.value : printed(each)))
      : names.k === 'literal'
        ? names.value
            .split(',')
            .map((each) => each.trim())
            .filter((each) => each !== '')
        : [];
  const bare = (e: Expr): Expr => {
    if (e.k !== 'call' || lastName(e.callee) !== 'param') return e;
    const values = positional(e);
    const [only] = values;
    return values.length === 1 && only ? only : list(values);
  };
  const skipped = (e: Expr): boolean =>
    e.k === 'call' &&
    lastName(e.callee) === 'param' &&
    e.args.some((each) => each.name === 'marks' && /skip|xfail/.test(printed(each.value)));
  const plainRows = rows.k === 'list' ? list(rows.items.filter((each) => !skipped(each)).map(bare)) : rows;
  const [only] = wanted;
  return {
    pattern: wanted.length === 1 && only !== undefined ? name(only) : list(wanted.map(name)),
    rows: plainRows,
  };
}

const isUnit = (bases: string): boolean => /TestCase|Test\w*Case|Case\b/.test(bases);

const decoratorsOf = (node: Syntax): Expr[] =>
  ofType(node, 'decorator').flatMap((each) => named(each).slice(0, 1).map(expr));

export function python(root: Syntax): TestFile {
  const tests: TestCase[] = [];
  const helpers: Func[] = [];
  const imports: Import[] = [];
  const defined = new Set<string>();
  const skips: Skip[] = [];
  const mocks: Mock[] = [];
  const uncollected = new Set<string>();
  const top = named(root);
  const prelude = top.flatMap((node) => (node.type.endsWith('_definition') ? [] : stmt(node)));
  // Classes that a class of tests of this file takes over.
  const bases = new Map(
    top.flatMap((node): [string, string][] => {
      const inner = node.type === 'decorated_definition' ? field(node, 'definition') : node;
      return inner?.type === 'class_definition'
        ? [[field(inner, 'name')?.text ?? '', field(inner, 'superclasses')?.text ?? '']]
        : [];
    }),
  );
  const inherited = new Set<string>();
  const inherit = (called: string): void => {
    for (const each of (bases.get(called) ?? '').match(/\w+/g) ?? []) {
      if (bases.has(each) && !inherited.has(each)) {
        inherited.add(each);
        inherit(each);
      }
    }
  };
  for (const [called, from] of bases) if (isUnit(from) || called.startsWith('Test')) inherit(called);

  for (const each of prelude) {
    if (each.k !== 'assign') {
      if (each.k === 'expr' && each.e.k === 'call') {
        const m = meaning(each.e);
        if (m?.is === 'skip')
          skips.push({
            kind: m.kind,
            line: each.line,
            ...(m.condition ? { condition: printed(m.condition) } : {}),
          });
        if (m?.is === 'exit') skips.push({ kind: 'skip', line: each.line });
      }
      continue;
    }
    const target = printed(each.target);
    if (target === 'pytestmark') {
      const marks = each.value.k === 'list' ? each.value.items : [each.value];
      skips.push(...heads(marks, each.line).skips);
    } else if (target === '__test__' && printed(each.value) === 'false')
      skips.push({ kind: 'skip', line: each.line });
    else if (/^test\w*$/.test(target)) uncollected.add(target);
    // `TestX.test_y = ...`, `TestX.__test__ = False`
    else if (/^\w+ \. (test\w*|__test__)$/.test(target)) uncollected.add(target.replaceAll(' ', ''));
    if (each.target.k === 'name') defined.add(each.target.name);
    if (each.target.k === 'member' && each.value.k === 'function')
      mocks.push({ target: each.target.name, module: false, line: each.line });
  }

  const collect = (
    node: Syntax,
    path: readonly string[],
    around: Head,
    setups: readonly Func[],
    fields: readonly Stmt[],
    inClass: boolean,
    isTest: boolean,
    certain = true,
  ): void => {
    const definition = node.type === 'decorated_definition' ? field(node, 'definition') : node;
    if (!definition) return;
    const decorators = node.type === 'decorated_definition' ? decoratorsOf(node) : [];
    const own = heads(decorators, node.line);
    if (definition.type === 'function_definition') {
      const fn = func(definition);
      if (path.length === 0) defined.add(fn.name);
      const fixture = decorators.some((each) =>
        dotted(each.k === 'call' ? each.callee : each).endsWith('fixture'),
      );
      if (!isTest || fixture || !fn.name.startsWith('test')) {
        helpers.push(fn);
        return;
      }
      const tables = [...around.tables, ...own.tables].map((each) =>
        each.pattern.k === 'name' && each.pattern.name === '$row'
          ? { ...each, pattern: list(fn.params.filter((param) => printed(param) !== 'self')) }
          : each,
      );
      tests.push({
        ...(certain ? {} : { certain }),
        path: [...path, fn.name],
        fn,
        tables,
        skips: [...around.skips, ...own.skips],
        mocks: [...around.mocks, ...own.mocks],
        focused: false,
        prelude: [...prelude, ...fields],
        setups: inClass ? setups : [],
      });
      return;
    }
    if (definition.type !== 'class_definition') return;
    const called = field(definition, 'name')?.text ?? '';
    defined.add(called);
    const body = field(definition, 'body');
    const superclasses = field(definition, 'superclasses')?.text ?? '';
    const members = body ? named(body) : [];
    const functions = members.flatMap((each) =>
      each.type === 'function_definition'
        ? [each]
        : each.type === 'decorated_definition'
          ? [field(each, 'definition')]
          : [],
    );
    const hasInit = functions.some(
      (each) => each?.type === 'function_definition' && field(each, 'name')?.text === '__init__',
    );
    const unit = isUnit(superclasses);
    const sure =
      unit || inherited.has(called) || ((called.startsWith('Test') || /Test/.test(superclasses)) && !hasInit);
    // A class that nothing here makes a test of may be one by a class elsewhere, if it is named like it.
    const collected = sure || /Test|Mixin|Base|Case/.test(called);
    const inner = members.flatMap((each) => (each.type === 'expression_statement' ? stmt(each) : []));
    const head: Head = {
      skips: [...around.skips, ...own.skips],
      mocks: [...around.mocks, ...own.mocks],
      tables: [...around.tables, ...own.tables],
    };
    let off = false;
    for (const each of inner) {
      if (each.k !== 'assign') continue;
      if (printed(each.target) === '__test__' && printed(each.value) === 'false') off = true;
      if (printed(each.target) === 'pytestmark')
        head.skips.push(...heads(each.value.k === 'list' ? each.value.items : [each.value], each.line).skips);
    }
    if (off) head.skips.push({ kind: 'skip', line: definition.line });
    const before = functions.flatMap((each) =>
      each?.type === 'function_definition' &&
      /^(setUp|setup_method|setup|asyncSetUp|setUpClass|setup_class)$/.test(field(each, 'name')?.text ?? '')
        ? [func(each)]
        : [],
    );
    const asSelf = inner.flatMap((each): Stmt[] =>
      each.k === 'assign' && each.target.k === 'name'
        ? [{ ...each, target: member(name('self'), each.target.name) }]
        : [],
    );
    for (const each of members)
      collect(
        each,
        [...path, called],
        head,
        [...setups, ...before],
        [...fields, ...asSelf],
        true,
        collected,
        sure,
      );
  };

  for (const node of top) {
    if (node.type === 'import_from_statement') {
      imports.push({
        module: field(node, 'module_name')?.text ?? '',
        names: fields(node, 'name').map(
          (each) => (each.type === 'aliased_import' ? field(each, 'alias') : each)?.text ?? '',
        ),
      });
    } else if (node.type === 'import_statement') {
      for (const each of fields(node, 'name'))
        imports.push({
          module: (field(each, 'name') ?? each).text,
          names: [(field(each, 'alias') ?? each).text],
        });
    } else if (node.type === 'if_statement' || node.type === 'try_statement') {
      // Tests under a condition at the top: `if sys.version_info >= ...:`; under one that never holds they are not there.
      const cond = field(node, 'condition');
      const never = cond && /^(False|0|None)$/.test(cond.text);
      if (!never)
        for (const each of ofType(node, 'block').flatMap(named))
          collect(
            each,
            [],
            {
              skips:
                cond && !/^(True|1|__name__.*)$/.test(cond.text)
                  ? [{ kind: 'skip', condition: `not ${cond.text}`, line: node.line }]
                  : [],
              mocks: [],
              tables: [],
            },
            [],
            [],
            false,
            true,
          );
    } else if (node.type === 'delete_statement') {
      for (const each of named(node)) uncollected.add(each.text);
    } else if (node.type === 'raise_statement' && dialect.skipErrors.test(node.text))
      skips.push({ kind: 'skip', line: node.line });
    else collect(node, [], { skips: [], mocks: [], tables: [] }, [], [], false, true);
  }

  const loader = helpers.find((each) => each.name === 'load_tests');
  if (loader) skips.push({ kind: 'skip', condition: 'load_tests', line: loader.line });

  // A later definition of the same name takes the place of an earlier one.
  const last = new Map(tests.map((each, at) => [each.path.join('.'), at]));
  const kept = tests.filter((each, at) => {
    const id = each.path.join('.');
    return (
      last.get(id) === at &&
      !uncollected.has(id) &&
      !uncollected.has(`${each.path[0]}.__test__`) &&
      !uncollected.has(each.path[0] ?? '')
    );
  });
  return {
    tests: kept,
    helpers: [...helpers, ...tests.filter((each) => !kept.includes(each)).map(({ fn }) => fn)],
    imports,
    defined,
    skips,
    mocks,
  };
}
