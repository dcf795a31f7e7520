/** TypeScript and JavaScript: vitest, jest, node:test, mocha with chai, AVA and tap as far as they are alike. */

import type { Atom, Relation } from './assertion.js';
import { lengthOf, negated } from './assertion.js';
import type { Argument, Call, Entry, Expr, Func, Stmt } from './code.js';
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
  print,
  printed,
  text,
} from './code.js';
import type { Syntax } from './syntax.js';
import { field, named, ofType } from './syntax.js';
import type { Dialect, Import, Meaning, Mock, Skip, Table, TestCase, TestFile } from './test-file.js';

// ---------------------------------------------------------------- lowering

const OPERATORS: Readonly<Record<string, string>> = { '===': '==', '!==': '!=', '&&': 'and', '||': 'or' };
const BINARY = new Set(['==', '!=', '===', '!==', '<', '<=', '>', '>=', '&&', '||']);

function expr(node: Syntax): Expr {
  switch (node.type) {
    case 'identifier':
    case 'property_identifier':
    case 'shorthand_property_identifier':
    case 'shorthand_property_identifier_pattern':
    case 'type_identifier':
    case 'this':
    case 'super':
      return node.text === 'undefined' ? NOTHING : name(node.text);
    case 'undefined':
    case 'null':
      return NOTHING;
    case 'number':
      return number(node.text);
    case 'true':
      return TRUE;
    case 'false':
      return FALSE;
    case 'regex':
      return literal('pattern', ofType(node, 'regex_pattern')[0]?.text ?? node.text);
    case 'string':
      return text(unquoted(node));
    case 'template_string': {
      if (!node.children.some((each) => each.type === 'template_substitution'))
        return text(node.text.slice(1, -1));
      return {
        k: 'other',
        parts: [
          '`',
          ...node.children.flatMap((each): (string | Expr)[] =>
            each.type === 'template_substitution'
              ? named(each).map(expr)
              : each.named
                ? [JSON.stringify(each.text)]
                : [],
          ),
        ],
      };
    }
    case 'parenthesized_expression':
    case 'as_expression':
    case 'satisfies_expression':
    case 'non_null_expression':
    case 'expression_statement': {
      const [only] = named(node);
      return only ? expr(only) : other(node);
    }
    case 'type_assertion': {
      const inner = named(node).at(-1);
      return inner ? expr(inner) : other(node);
    }
    case 'await_expression': {
      const [of] = named(node);
      return of ? { k: 'await', of: expr(of) } : other(node);
    }
    case 'call_expression': {
      const callee = field(node, 'function');
      const args = field(node, 'arguments');
      if (!callee || !args) return other(node);
      return {
        k: 'call',
        callee: expr(callee),
        args:
          args.type === 'template_string'
            ? [{ value: templateTable(args) }]
            : named(args).map((each): Argument => ({ value: expr(each) })),
        line: node.line,
      };
    }
    case 'new_expression': {
      const constructor = field(node, 'constructor');
      const args = field(node, 'arguments');
      return {
        k: 'call',
        callee: { k: 'other', parts: ['new', constructor ? expr(constructor) : '?'] },
        args: args ? named(args).map((each) => ({ value: expr(each) })) : [],
        line: node.line,
      };
    }
    case 'member_expression': {
      const [of, called] = [field(node, 'object'), field(node, 'property')];
      if (!of || !called) return other(node);
      return called.text === 'length' ? lengthOf(expr(of)) : member(expr(of), called.text);
    }
    case 'subscript_expression': {
      const [of, at] = [field(node, 'object'), field(node, 'index')];
      return of && at ? { k: 'index', of: expr(of), at: expr(at) } : other(node);
    }
    case 'binary_expression': {
      const [left, right] = [field(node, 'left'), field(node, 'right')];
      const op = field(node, 'operator')?.text ?? '';
      if (!left || !right) return other(node);
      if (BINARY.has(op))
        return { k: 'binary', op: OPERATORS[op] ?? op, left: expr(left), right: expr(right) };
      return { k: 'other', parts: ['(', expr(left), op, expr(right), ')'] };
    }
    case 'unary_expression': {
      const of = field(node, 'argument');
      const op = field(node, 'operator')?.text;
      if (!of) return other(node);
      const value = expr(of);
      if (op === '!') return { k: 'not', of: value };
      if (op === '-' && value.k === 'literal' && value.of === 'number')
        return literal('number', String(-Number(value.value)));
      if (op === 'void') return value;
      return { k: 'other', parts: [op ?? '', value] };
    }
    case 'array':
    case 'array_pattern':
      return list(named(node).map(expr));
    case 'object':
    case 'object_pattern':
      return object(node);
    case 'assignment_pattern': {
      const left = field(node, 'left');
      return left ? expr(left) : other(node);
    }
    case 'required_parameter':
    case 'optional_parameter': {
      const pattern = field(node, 'pattern');
      return pattern ? expr(pattern) : other(node);
    }
    case 'arrow_function':
    case 'function_expression':
    case 'function_declaration':
    case 'generator_function':
    case 'generator_function_declaration':
    case 'method_definition':
      return { k: 'function', fn: func(node) };
    case 'assignment_expression': {
      const right = field(node, 'right');
      return right ? expr(right) : other(node);
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
          .filter((each) => each.type !== 'comment' && !each.type.startsWith('type_'))
          .map((each) => (each.named ? expr(each) : each.text)),
      };

const unquoted = (node: Syntax): string =>
  named(node)
    .map((each) => (each.type === 'escape_sequence' ? each.text.replace(/^\\(["'`])$/, '$1') : each.text))
    .join('');

function object(node: Syntax): Expr {
  const entries: Entry[] = [];
  for (const each of named(node)) {
    if (each.type === 'pair' || each.type === 'pair_pattern') {
      const [key, value] = [field(each, 'key'), field(each, 'value')];
      if (!key || !value) return other(node);
      entries.push({
        key:
          key.type === 'string' ? unquoted(key) : key.type === 'number' ? String(Number(key.text)) : key.text,
        value: expr(value),
      });
    } else if (
      each.type === 'shorthand_property_identifier' ||
      each.type === 'shorthand_property_identifier_pattern'
    ) {
      entries.push({ key: each.text, value: name(each.text) });
    } else if (each.type === 'object_assignment_pattern') {
      const left = field(each, 'left');
      if (left) entries.push({ key: left.text, value: name(left.text) });
    } else if (each.type === 'method_definition')
      entries.push({ key: field(each, 'name')?.text ?? '', value: expr(each) });
    else return other(node);
  }
  return { k: 'record', entries };
}

/** The rows of `it.each` written as a template: a head of names, then values between bars. */
function templateTable(node: Syntax): Expr {
  const head =
    ofType(node, 'string_fragment', 'template_chars')[0]?.text ?? node.text.slice(1).split('${')[0] ?? '';
  const names = (head.trim().split('\n')[0] ?? '')
    .split('|')
    .map((each) => each.trim())
    .filter((each) => each !== '');
  const values = ofType(node, 'template_substitution').map((each) => named(each).map(expr)[0] ?? NOTHING);
  if (names.length === 0 || values.length % names.length !== 0)
    return { k: 'other', parts: [JSON.stringify(node.text)] };
  const rows: Expr[] = [];
  for (let at = 0; at < values.length; at += names.length) {
    rows.push({
      k: 'record',
      entries: names.map((key, column) => ({ key, value: values[at + column] ?? NOTHING })),
    });
  }
  return list(rows);
}

function func(node: Syntax): Func {
  const params = field(node, 'parameters');
  const single = field(node, 'parameter');
  const all = single ? [single] : params ? named(params) : [];
  const body = field(node, 'body');
  const defaults = new Map<string, Expr>();
  for (const each of all) {
    const [left, value] =
      each.type === 'assignment_pattern'
        ? [field(each, 'left'), field(each, 'right')]
        : [field(each, 'pattern'), field(each, 'value')];
    if (left && value) defaults.set(left.text, expr(value));
  }
  return {
    name: field(node, 'name')?.text ?? '',
    params: all.map(expr),
    defaults,
    body:
      body?.type === 'statement_block'
        ? block(body)
        : body
          ? [{ k: 'return', e: chained(body), line: body.line }]
          : [],
    line: node.line,
    endLine: node.endLine,
  };
}

const block = (node: Syntax | undefined): Stmt[] =>
  !node
    ? []
    : node.type === 'statement_block' || node.type === 'program'
      ? named(node).flatMap(stmt)
      : stmt(node);

/** chai's assertions that are properties are calls of nothing. */
const PROPERTIES = new Set([
  'true',
  'false',
  'null',
  'undefined',
  'ok',
  'exist',
  'empty',
  'NaN',
  'called',
  'calledOnce',
  'finite',
  'rejected',
  'fulfilled',
  'sealed',
  'frozen',
]);
function chained(node: Syntax): Expr {
  const e = expr(node);
  const inner = e.k === 'await' ? e.of : e;
  if (inner.k !== 'member' || !PROPERTIES.has(inner.name) || !/^expect\(\)|\.should\b/.test(dotted(inner)))
    return e;
  const made = call(inner, [], node.line);
  return e.k === 'await' ? { k: 'await', of: made } : made;
}

function stmt(node: Syntax): Stmt[] {
  const { line } = node;
  switch (node.type) {
    case 'expression_statement': {
      const [inner] = named(node);
      if (!inner) return [];
      if (inner.type === 'assignment_expression' || inner.type === 'augmented_assignment_expression') {
        const [target, value] = [field(inner, 'left'), field(inner, 'right')];
        const op = field(inner, 'operator')?.text ?? '=';
        return target && value ? [{ k: 'assign', target: expr(target), value: expr(value), op, line }] : [];
      }
      if (inner.type === 'string') return [];
      return [{ k: 'expr', e: chained(inner), line }];
    }
    case 'lexical_declaration':
    case 'variable_declaration':
      return ofType(node, 'variable_declarator').flatMap((each): Stmt[] => {
        const [target, value] = [field(each, 'name'), field(each, 'value')];
        return target && value
          ? [{ k: 'assign', target: expr(target), value: expr(value), op: '=', line: each.line }]
          : [];
      });
    case 'export_statement': {
      const inner = field(node, 'declaration');
      return inner ? stmt(inner) : [];
    }
    case 'if_statement': {
      const [cond, then] = [field(node, 'condition'), field(node, 'consequence')];
      const orElse = field(node, 'alternative');
      return cond
        ? [
            {
              k: 'if',
              cond: expr(cond),
              yes: block(then),
              no: orElse ? named(orElse).flatMap(stmt) : [],
              line,
            },
          ]
        : [];
    }
    case 'for_in_statement': {
      const [pattern, over] = [field(node, 'left'), field(node, 'right')];
      return [
        {
          k: 'loop',
          ...(pattern ? { pattern: expr(pattern) } : {}),
          ...(over ? { over: expr(over) } : {}),
          body: block(field(node, 'body')),
          line,
        },
      ];
    }
    case 'for_statement':
      return [{ k: 'loop', body: block(field(node, 'body')), line }];
    case 'while_statement': {
      const cond = field(node, 'condition');
      return cond ? [{ k: 'while', cond: expr(cond), body: block(field(node, 'body')), line }] : [];
    }
    case 'do_statement':
      return block(field(node, 'body'));
    case 'try_statement': {
      const handler = field(node, 'handler');
      const as = handler && field(handler, 'parameter');
      const last = field(node, 'finalizer');
      return [
        {
          k: 'try',
          body: block(field(node, 'body')),
          handlers: handler
            ? [{ catches: [], ...(as ? { as: as.text } : {}), body: block(field(handler, 'body')) }]
            : [],
          last: last ? named(last).flatMap(stmt) : [],
          line,
        },
      ];
    }
    case 'return_statement': {
      const [e] = named(node);
      return [{ k: 'return', ...(e ? { e: chained(e) } : {}), line }];
    }
    case 'throw_statement': {
      const [e] = named(node);
      return [{ k: 'raise', ...(e ? { e: expr(e) } : {}), line }];
    }
    case 'break_statement':
    case 'continue_statement':
      return [{ k: 'leave', line }];
    case 'function_declaration':
    case 'generator_function_declaration':
      return [{ k: 'function', fn: func(node), line }];
    case 'statement_block':
      return [{ k: 'block', body: block(node), line }];
    case 'labeled_statement':
      return block(field(node, 'body'));
    case 'switch_statement':
      return [{ k: 'expr', e: other(node), line }];
    default:
      return [];
  }
}

// ---------------------------------------------------------------- meaning

const MATCHERS: Readonly<Record<string, Relation>> = {
  toBe: 'same',
  toEqual: 'equal',
  toStrictEqual: 'same',
  toBeTruthy: 'truthy',
  toBeFalsy: 'falsy',
  toBeNull: 'nothing',
  toBeUndefined: 'nothing',
  toBeNullable: 'nothing',
  toBeDefined: 'something',
  toContain: 'contains',
  toContainEqual: 'contains',
  toMatch: 'matches',
  toMatchObject: 'subset',
  toHaveProperty: 'has',
  toBeGreaterThan: 'greater',
  toBeGreaterThanOrEqual: 'at-least',
  toBeLessThan: 'less',
  toBeLessThanOrEqual: 'at-most',
  toBeInstanceOf: 'type',
  toBeTypeOf: 'type',
  toMatchSnapshot: 'snapshot',
  toMatchInlineSnapshot: 'snapshot',
  toMatchFileSnapshot: 'snapshot',
  toHaveBeenCalled: 'called',
  toBeCalled: 'called',
  toHaveBeenCalledWith: 'called-with',
  toBeCalledWith: 'called-with',
  toHaveBeenLastCalledWith: 'called-with',
  toHaveBeenNthCalledWith: 'called-with',
  toHaveBeenCalledExactlyOnceWith: 'called-with',
  toHaveBeenCalledTimes: 'called-times',
  toBeCalledTimes: 'called-times',
  // chai
  equal: 'same',
  equals: 'same',
  eq: 'same',
  eql: 'equal',
  eqls: 'equal',
  ok: 'truthy',
  null: 'nothing',
  undefined: 'nothing',
  exist: 'something',
  empty: 'empty',
  include: 'contains',
  includes: 'contains',
  contain: 'contains',
  contains: 'contains',
  property: 'has',
  above: 'greater',
  greaterThan: 'greater',
  gt: 'greater',
  least: 'at-least',
  gte: 'at-least',
  below: 'less',
  lessThan: 'less',
  lt: 'less',
  most: 'at-most',
  lte: 'at-most',
  instanceof: 'type',
  instanceOf: 'type',
  a: 'type',
  an: 'type',
  match: 'matches',
  called: 'called',
  calledOnce: 'called-times',
  calledWith: 'called-with',
  callCount: 'called-times',
};

const THROWING = /^(toThrow|toThrowError|throw|throws|Throw|rejected|rejectedWith)$/;

/** An error is expected by its class, by its message, or by both. */
function thrown(subject: Expr, args: readonly Expr[]): Atom {
  const [first, second] = args;
  const says = (e: Expr | undefined): boolean =>
    e?.k === 'literal' && (e.of === 'string' || e.of === 'pattern');
  const made = first?.k === 'call' && printed(first.callee).startsWith('new ') ? first : undefined;
  const expected = made
    ? ((made.callee.k === 'other' ? made.callee.parts[1] : undefined) as Expr | undefined)
    : says(first)
      ? undefined
      : first;
  const message = made ? made.args[0]?.value : says(first) ? first : second;
  return { relation: 'throws', subject, ...(expected ? { expected } : {}), ...(message ? { message } : {}) };
}

/** The parts of `expect(x).not.toBe(y)`: what is expected of, the words between, and the last one. */
function chainOf(
  e: Call,
): { readonly subject: Expr; readonly words: string[]; readonly last: string } | undefined {
  const words: string[] = [];
  let at: Expr = e.callee;
  for (;;) {
    if (at.k === 'member') {
      if (at.name === 'should')
        return words.length > 0
          ? { subject: at.of, words: words.slice(1), last: words[0] as string }
          : undefined;
      words.push(at.name);
      at = at.of;
    } else if (at.k === 'call') {
      if (/^(expect|expect\.soft|expect\.poll|expectTypeOf|assertType)$/.test(dotted(at.callee))) {
        const subject = at.args[0]?.value ?? NOTHING;
        return words.length > 0 ? { subject, words: words.slice(1), last: words[0] as string } : undefined;
      }
      // `expect(x).to.be.an('array').that.includes(2)`: each of its calls is a chain of its own.
      at = at.callee;
    } else return undefined;
  }
}

function expectation(e: Call): Meaning | undefined {
  const chain = chainOf(e);
  if (!chain) return undefined;
  const { subject, words, last } = chain;
  const args = e.args.map(({ value }) => value);
  const [first, second] = args;
  const soon =
    words.some((each) => ['resolves', 'rejects', 'eventually'].includes(each)) ||
    /^rejected|^fulfilled/.test(last);
  const atom = ((): Atom => {
    if (words.includes('rejects') && !THROWING.test(last))
      return { relation: 'throws', subject, ...(first ? { expected: first } : {}), tolerance: name(last) };
    if (THROWING.test(last)) return thrown(subject, args);
    if (last === 'toHaveLength' || last === 'lengthOf' || last === 'length')
      return { relation: 'equal', subject: lengthOf(subject), ...(first ? { expected: first } : {}) };
    if (last === 'toBeCloseTo')
      return {
        relation: 'approx',
        subject,
        ...(first ? { expected: first } : {}),
        tolerance: second ?? number('2'),
        places: true,
      };
    if (last === 'closeTo' || last === 'approximately')
      return {
        relation: 'approx',
        subject,
        ...(first ? { expected: first } : {}),
        ...(second ? { tolerance: second } : {}),
      };
    if (last === 'toBeNaN' || last === 'NaN') return { relation: 'equal', subject, expected: name('NaN') };
    if (last === 'true' || last === 'false')
      return { relation: 'same', subject, expected: last === 'true' ? TRUE : FALSE };
    if (last === 'toHaveBeenCalledOnce' || last === 'calledOnce')
      return { relation: 'called-times', subject, expected: number('1') };
    if (last === 'toMatch' && first?.k === 'literal' && first.of === 'string')
      return { relation: 'contains', subject, expected: first };
    if (last === 'lengthOf' && words.includes('at'))
      return { relation: 'at-least', subject: lengthOf(subject), ...(first ? { expected: first } : {}) };
    let relation: Relation = MATCHERS[last] ?? `custom ${last}`;
    if (relation === 'same' && words.includes('deep')) relation = 'equal';
    if (relation === 'contains' && words.includes('deep')) relation = 'contains';
    const expected =
      relation === 'called-with' || (relation === 'has' && second) || args.length > 2 ? list(args) : first;
    return { relation, subject, ...(expected ? { expected } : {}) };
  })();
  return { is: 'assertion', atoms: [words.includes('not') ? negated(atom) : atom], floats: soon };
}

const ASSERT: Readonly<Record<string, Relation>> = {
  equal: 'equal',
  strictEqual: 'same',
  deepEqual: 'equal',
  deepStrictEqual: 'same',
  notEqual: 'not-equal',
  notStrictEqual: 'not-equal',
  notDeepEqual: 'not-equal',
  notDeepStrictEqual: 'not-equal',
  partialDeepStrictEqual: 'subset',
  match: 'matches',
  doesNotMatch: 'not-matches',
  notMatch: 'not-matches',
  include: 'contains',
  includes: 'contains',
  deepInclude: 'contains',
  notInclude: 'lacks',
  isAbove: 'greater',
  isAtLeast: 'at-least',
  isBelow: 'less',
  isAtMost: 'at-most',
  instanceOf: 'type',
  typeOf: 'type',
  property: 'has',
  // AVA and tap
  is: 'same',
  not: 'not-equal',
  same: 'equal',
  notSame: 'not-equal',
  like: 'subset',
  regex: 'matches',
  deepEquals: 'equal',
};
const ASSERT_ONE: Readonly<Record<string, Relation>> = {
  ok: 'truthy',
  isOk: 'truthy',
  notOk: 'falsy',
  isNotOk: 'falsy',
  truthy: 'truthy',
  falsy: 'falsy',
  assert: 'truthy',
  isNull: 'nothing',
  isUndefined: 'nothing',
  isNotNull: 'something',
  isDefined: 'something',
  exists: 'something',
  notExists: 'nothing',
  isEmpty: 'empty',
  isNotEmpty: 'not-empty',
  ifError: 'nothing',
  snapshot: 'snapshot',
};

function asserted(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  const args = e.args.map(({ value }) => value);
  const [first, second, third] = args;
  if (path === 'assert' || path === 'assert.strict')
    return first && { is: 'assertion', atoms: [{ relation: 'truthy', subject: first }] };
  if (!/^(?:t\.assert|assert|assert\.strict|chai\.assert|t|tap)\.\w+$/.test(path)) return undefined;
  const last = lastName(e.callee);
  if (last === 'fail') return { is: 'fail' };
  if (/^(skip|todo)$/.test(last)) return { is: 'skip', kind: last === 'todo' ? 'todo' : 'skip' };
  if (last === 'plan')
    return (
      first && {
        is: 'assertion',
        atoms: [{ relation: 'count', subject: name('assertions'), expected: first }],
      }
    );
  const one = ASSERT_ONE[last];
  if (one) return first && { is: 'assertion', atoms: [{ relation: one, subject: first }] };
  if (/^(isTrue|true|isFalse|false)$/.test(last)) {
    return (
      first && {
        is: 'assertion',
        atoms: [{ relation: 'same', subject: first, expected: /true/i.test(last) ? TRUE : FALSE }],
      }
    );
  }
  if (/^(throws|rejects|throwsAsync|isRejected)$/.test(last)) {
    return first && { is: 'assertion', floats: last !== 'throws', atoms: [thrown(first, args.slice(1))] };
  }
  if (/^(doesNotThrow|doesNotReject|notThrows|notThrowsAsync)$/.test(last)) {
    return (
      first && {
        is: 'assertion',
        floats: /Reject|Async/.test(last),
        atoms: [{ relation: 'runs', subject: first }],
      }
    );
  }
  if (last === 'lengthOf')
    return (
      first &&
      second && {
        is: 'assertion',
        atoms: [{ relation: 'equal', subject: lengthOf(first), expected: second }],
      }
    );
  if (/^(closeTo|approximately)$/.test(last)) {
    return (
      first &&
      second && {
        is: 'assertion',
        atoms: [
          { relation: 'approx', subject: first, expected: second, ...(third ? { tolerance: third } : {}) },
        ],
      }
    );
  }
  const relation = ASSERT[last];
  return relation && first && second
    ? { is: 'assertion', atoms: [{ relation, subject: first, expected: second }] }
    : undefined;
}

function meaning(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  const last = lastName(e.callee);
  const args = e.args.map(({ value }) => value);
  const [first, second] = args;
  if (/^(fail|expect\.fail|expect\.unreachable|assert\.fail)$/.test(path)) return { is: 'fail' };
  if (path === 'expect.assertions')
    return (
      first && {
        is: 'assertion',
        atoms: [{ relation: 'count', subject: name('assertions'), expected: first }],
      }
    );
  if (path === 'expect.hasAssertions')
    return {
      is: 'assertion',
      atoms: [{ relation: 'count', subject: name('assertions'), expected: number('1') }],
    };
  if (
    /^(this|ctx|context|t|test|it)\.(skip|todo|fixme)$/.test(path) &&
    !args.some((each) => each.k === 'function')
  ) {
    return {
      is: 'skip',
      kind: last === 'todo' ? 'todo' : 'skip',
      ...(first && first.k !== 'literal' ? { condition: first } : {}),
    };
  }
  if (path === 'process.exit') return { is: 'exit' };
  if (
    /^(vi|jest)\.(mock|doMock|unstable_mockModule)$/.test(path) ||
    /^(t\.)?mock\.module$/.test(path) ||
    /^(proxyquire|rewire)$/.test(path)
  ) {
    // A factory that spreads the real module over leaves it in place, all but what it names.
    return {
      is: 'mock',
      target: first?.k === 'literal' ? first.value : first ? printed(first) : '',
      module: true,
    };
  }
  if (path.endsWith('.stub') || /(^|\.)mock\.(method|getter)$/.test(path)) {
    return {
      is: 'mock',
      target: second?.k === 'literal' ? second.value : first ? lastName(first) : '',
      module: false,
    };
  }
  if (
    /^mock(ReturnValue|Implementation|ResolvedValue|RejectedValue)(Once)?$/.test(last) &&
    e.callee.k === 'member'
  ) {
    const of = e.callee.of;
    const spied = of.k === 'call' ? of.args.map(({ value }) => value) : [];
    const what =
      of.k === 'call' && dotted(of.callee).endsWith('spyOn') ? spied[1] : of.k === 'call' ? spied[0] : of;
    return {
      is: 'mock',
      target: what?.k === 'literal' ? what.value : what ? lastName(what) : '',
      module: false,
    };
  }
  return expectation(e) ?? asserted(e);
}

const dialect: Dialect = {
  meaning,
  entering: () => undefined,
  predicate(e): Atom | undefined {
    const path = dotted(e.callee);
    const last = lastName(e.callee);
    const [first, second] = e.args.map(({ value }) => value);
    if (/^(Object\.is)$/.test(path) && first && second)
      return { relation: 'same', subject: first, expected: second };
    if (
      /^(isEqual|_\.isEqual|isDeepStrictEqual|util\.isDeepStrictEqual|deepEqual)$/.test(path) &&
      first &&
      second
    )
      return { relation: 'equal', subject: first, expected: second };
    if (path === 'Array.isArray' && first)
      return { relation: 'type', subject: first, expected: text('array') };
    if (path === 'Boolean' && first) return { relation: 'truthy', subject: first };
    if (e.callee.k !== 'member' || !first) return undefined;
    if (last === 'includes') return { relation: 'contains', subject: e.callee.of, expected: first };
    if (last === 'test' && e.callee.of.k === 'literal')
      return { relation: 'matches', subject: first, expected: e.callee.of };
    if (last === 'hasOwnProperty') return { relation: 'has', subject: e.callee.of, expected: first };
    return undefined;
  },
  catchesAssertions: /./,
  failures: /^new (\w*Error|\w*Failure)\b/,
  skipErrors: /^(?!)/,
  aboutPlace: /process \. env|import \. meta \. env|\bplatform\b|\bCI\b/,
};
export const JAVASCRIPT: Dialect = dialect;

// ---------------------------------------------------------------- tests

const TESTS = /^(it|test|specify|fit|xit|xtest|xspecify|Deno\.test|Bun\.test)\b/;
const SUITES = /^(describe|suite|context|fdescribe|xdescribe|xcontext|test\.describe)\b/;
const SETUPS =
  /^(beforeEach|before|beforeAll|setup|suiteSetup|test\.beforeEach|test\.before|test\.beforeAll)$/;

interface Scope {
  readonly path: readonly string[];
  readonly skips: readonly Skip[];
  readonly tables: readonly Table[];
  readonly focused: boolean;
  readonly prelude: Stmt[];
  readonly setups: Func[];
}

export function javascript(root: Syntax): TestFile {
  const top = named(root);
  const tests: TestCase[] = [];
  const helpers: Func[] = [];
  const imports: Import[] = [];
  const defined = new Set<string>();
  const mocks: Mock[] = [];
  for (const node of top) {
    if (node.type === 'import_statement') {
      const source = field(node, 'source');
      const names: string[] = [];
      const visit = (each: Syntax): void => {
        if (each.type === 'import_specifier')
          names.push((field(each, 'alias') ?? field(each, 'name'))?.text ?? '');
        else if (each.type === 'identifier') names.push(each.text);
        else for (const child of named(each)) if (child !== source) visit(child);
      };
      visit(node);
      imports.push({ module: source ? unquoted(source) : '', names });
    }
    const declared = node.type === 'export_statement' ? field(node, 'declaration') : node;
    if (declared?.type === 'class_declaration' || declared?.type === 'abstract_class_declaration') {
      defined.add(field(declared, 'name')?.text ?? '');
      const body = field(declared, 'body');
      if (body) helpers.push(...ofType(body, 'method_definition').map(func));
    }
  }

  const collect = (stmts: readonly Stmt[], scope: Scope): void => {
    for (const stmt of stmts) {
      if (stmt.k === 'function') {
        helpers.push(stmt.fn);
        if (scope.path.length === 0) defined.add(stmt.fn.name);
      } else if (stmt.k === 'assign') {
        const made = stmt.value.k === 'await' ? stmt.value.of : stmt.value;
        if (made.k === 'call' && printed(made.callee) === 'require' && made.args[0]?.value.k === 'literal') {
          imports.push({
            module: made.args[0].value.value,
            names: print(stmt.target).filter((each) => /^[\w$]+$/.test(each)),
          });
          continue;
        }
        if (stmt.value.k === 'function' && stmt.target.k === 'name')
          helpers.push({ ...stmt.value.fn, name: stmt.target.name });
        if (stmt.target.k === 'name' && scope.path.length === 0) defined.add(stmt.target.name);
        // `const describeIf = cond ? describe : describe.skip`, and values of the scope.
        scope.prelude.push(stmt);
      } else if (stmt.k === 'block') collect(stmt.body, scope);
      else if (stmt.k === 'if') {
        const said = printed(stmt.cond);
        const never = said === 'false' || said === '0';
        const always = said === 'true' || said === '1';
        const off = (condition: string | undefined): Skip => ({
          kind: 'skip',
          line: stmt.line,
          ...(condition === undefined ? {} : { condition }),
        });
        collect(stmt.yes, {
          ...scope,
          skips: always ? scope.skips : [...scope.skips, off(never ? undefined : `not ${said}`)],
        });
        collect(stmt.no, {
          ...scope,
          skips: never ? scope.skips : [...scope.skips, off(always ? undefined : said)],
        });
      } else if (stmt.k === 'loop' && stmt.pattern && stmt.over) {
        collect(stmt.body, {
          ...scope,
          tables: [...scope.tables, { pattern: stmt.pattern, rows: stmt.over }],
        });
      } else if (stmt.k === 'expr' || (stmt.k === 'return' && stmt.e))
        expression(stmt.e as Expr, stmt.line, scope);
    }
  };

  const expression = (e: Expr, line: number, scope: Scope): void => {
    if (e.k === 'await') return expression(e.of, line, scope);
    if (e.k === 'binary' && (e.op === 'and' || e.op === 'or'))
      return expression(e.right, line, {
        ...scope,
        skips: [...scope.skips, { kind: 'skip', line, condition: `not ${printed(e.left)}` }],
      });
    if (e.k !== 'call') return undefined;
    let callee: Expr = e.callee;
    let tables = scope.tables;
    let row: Expr | undefined;
    if (callee.k === 'call' && /\.(each|for)$/.test(dotted(callee.callee))) {
      row = callee.args[0]?.value;
      callee = callee.callee;
    }
    const skips = [...scope.skips];
    if (callee.k === 'call' && /\.(skipIf|runIf|if)$/.test(dotted(callee.callee))) {
      const cond = callee.args[0]?.value;
      const runs = !dotted(callee.callee).endsWith('skipIf');
      const said = cond ? printed(cond) : '';
      if (said === (runs ? 'false' : 'true')) skips.push({ kind: 'skip', line });
      else if (said !== (runs ? 'true' : 'false'))
        skips.push({ kind: 'skip', line, condition: runs ? `not ${said}` : said });
      callee = callee.callee;
    }
    let path = dotted(callee);
    if (callee.k === 'other') {
      // `(cond ? describe : describe.skip)(...)`
      const words = print(callee);
      const base = words.find((each) => /^(describe|it|test|suite)$/.test(each));
      if (base === undefined) return undefined;
      path = base;
      if (words.includes('skip')) skips.push({ kind: 'skip', line, condition: printed(callee) });
    }
    const args = e.args.map(({ value }) => value);
    const given = args.findLast((each) => each.k === 'function');
    const fn = given?.k === 'function' ? given.fn : undefined;
    if (SETUPS.test(path)) {
      if (fn) scope.setups.push(fn);
      return undefined;
    }
    const m = meaning(e);
    if (m?.is === 'mock') {
      mocks.push({ target: m.target, module: m.module, line });
      return undefined;
    }
    if (path.endsWith('forEach') && e.callee.k === 'member' && fn) {
      const [pattern] = fn.params;
      return collect(fn.body, {
        ...scope,
        tables: pattern ? [...scope.tables, { pattern, rows: e.callee.of }] : scope.tables,
      });
    }
    const isSuite = SUITES.test(path);
    if (!isSuite && !TESTS.test(path)) return undefined;
    const words = path.split('.').slice(1);
    const options = args.find((each) => each.k === 'record');
    const option = (key: string): Expr | undefined =>
      options?.k === 'record' ? options.entries.find((each) => each.key === key)?.value : undefined;
    const off = (key: string, kind: Skip['kind']): void => {
      const value = option(key);
      if (!value || printed(value) === 'false') return;
      const always = value.k === 'literal';
      skips.push({ kind, line, ...(always ? {} : { condition: printed(value) }) });
    };
    off('skip', 'skip');
    off('todo', 'todo');
    if (path.startsWith('x') || words.includes('skip') || words.includes('fixme'))
      skips.push({ kind: 'skip', line });
    if (
      words.includes('todo') ||
      (!fn && !isSuite && !args.some((each) => each.k === 'name' || each.k === 'call'))
    )
      skips.push({ kind: 'todo', line });
    if (words.includes('fails') || words.includes('failing')) skips.push({ kind: 'expected-failure', line });
    const only = option('only');
    const focused =
      scope.focused ||
      /^f(it|describe)/.test(path) ||
      words.includes('only') ||
      (only !== undefined && printed(only) === 'true');
    const [title] = args;
    const own = title ? (title.k === 'literal' ? title.value : printed(title)) : '';
    if (row && fn) {
      const [only, ...rest] = fn.params;
      // One parameter takes the whole row where a row is no list.
      const spread = rest.length > 0 || only === undefined;
      tables = [...tables, { pattern: spread ? list(fn.params) : only, rows: spread ? row : unwrapped(row) }];
    }
    if (isSuite) {
      if (!fn) return undefined;
      const setups = [...scope.setups];
      const inner: Scope = {
        path: [...scope.path, own],
        skips,
        tables,
        focused,
        prelude: [...scope.prelude],
        setups,
      };
      // Hooks count for the whole suite, wherever in it they stand.
      collect(
        [...fn.body].sort((a, b) => Number(isSetup(b)) - Number(isSetup(a))),
        inner,
      );
      return undefined;
    }
    const body = fn ?? helpers.find((each) => args.some((arg) => arg.k === 'name' && arg.name === each.name));
    tests.push({
      path: [...scope.path, own],
      fn: body ?? { name: own, params: [], body: [], line, endLine: line },
      tables,
      skips,
      mocks: [],
      focused,
      prelude: [...scope.prelude],
      setups: [...scope.setups],
    });
    return undefined;
  };

  const stmts = block(root);
  collect(
    [...stmts].sort((a, b) => Number(isSetup(b)) - Number(isSetup(a))),
    { path: [], skips: [], tables: [], focused: false, prelude: [], setups: [] },
  );
  return { tests, helpers, imports, defined, skips: exits(stmts), mocks };
}

const isSetup = (stmt: Stmt): boolean =>
  stmt.k === 'expr' && stmt.e.k === 'call' && SETUPS.test(dotted(stmt.e.callee));

/** `it.each([[1], [2]])('', (n) => ...)` gives `n` the members. */
function unwrapped(rows: Expr): Expr {
  if (rows.k !== 'list' || !rows.items.every((each) => each.k === 'list' && each.items.length === 1))
    return rows;
  return list(rows.items.map((each) => (each.k === 'list' ? (each.items[0] as Expr) : each)));
}

/** A file that ends the process while it is loaded runs nothing. */
function exits(stmts: readonly Stmt[]): Skip[] {
  return stmts.flatMap((stmt): Skip[] => {
    if (stmt.k === 'raise') return [{ kind: 'skip', line: stmt.line }];
    if (stmt.k !== 'expr') return [];
    const ends = stmt.e.k === 'call' && dotted(stmt.e.callee) === 'process.exit';
    return ends ? [{ kind: 'skip', line: stmt.line }] : [];
  });
}
