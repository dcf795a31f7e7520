/** Java: JUnit 3 to 5, TestNG, AssertJ and Truth, Hamcrest, Mockito's verifications. */

import type { Atom, Relation } from './assertion.js';
import { lengthOf, negated } from './assertion.js';
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

const OPERATORS: Readonly<Record<string, string>> = { '&&': 'and', '||': 'or' };
const BINARY = new Set(['==', '!=', '<', '<=', '>', '>=', '&&', '||']);

function expr(node: Syntax): Expr {
  switch (node.type) {
    case 'identifier':
    case 'type_identifier':
    case 'this':
    case 'super':
      return name(node.text);
    case 'scoped_identifier':
    case 'scoped_type_identifier':
      return (
        node.text
          .split('.')
          .reduce<Expr | undefined>((of, part) => (of ? member(of, part) : name(part)), undefined) ??
        other(node)
      );
    case 'decimal_integer_literal':
    case 'hex_integer_literal':
    case 'octal_integer_literal':
    case 'binary_integer_literal':
    case 'decimal_floating_point_literal':
      return number(node.text);
    case 'true':
      return TRUE;
    case 'false':
      return FALSE;
    case 'null_literal':
      return NOTHING;
    case 'string_literal':
      return text(node.text.startsWith('"""') ? node.text.slice(3, -3).trim() : node.text.slice(1, -1));
    case 'character_literal':
      return text(`char:${node.text.slice(1, -1)}`);
    case 'parenthesized_expression':
    case 'expression_statement': {
      const [only] = named(node);
      return only ? expr(only) : other(node);
    }
    case 'cast_expression': {
      const value = field(node, 'value');
      return value ? expr(value) : other(node);
    }
    case 'class_literal': {
      const [type] = named(node);
      return type ? expr(type) : other(node);
    }
    case 'generic_type': {
      const [type] = named(node);
      return type ? expr(type) : other(node);
    }
    case 'method_invocation': {
      const [of, called, args] = [field(node, 'object'), field(node, 'name'), field(node, 'arguments')];
      if (!called) return other(node);
      const given = args ? named(args).map((each): Argument => ({ value: expr(each) })) : [];
      const object = of && expr(of);
      if (object && given.length === 0 && /^(size|length|count)$/.test(called.text)) return lengthOf(object);
      return {
        k: 'call',
        callee: object ? member(object, called.text) : name(called.text),
        args: given,
        line: called.line,
      };
    }
    case 'field_access': {
      const [of, called] = [field(node, 'object'), field(node, 'field')];
      if (!of || !called) return other(node);
      return called.text === 'length' ? lengthOf(expr(of)) : member(expr(of), called.text);
    }
    case 'array_access': {
      const [of, at] = [field(node, 'array'), field(node, 'index')];
      return of && at ? { k: 'index', of: expr(of), at: expr(at) } : other(node);
    }
    case 'object_creation_expression': {
      const [type, args] = [field(node, 'type'), field(node, 'arguments')];
      return {
        k: 'call',
        callee: { k: 'other', parts: ['new', type ? expr(type) : '?'] },
        args: args ? named(args).map((each) => ({ value: expr(each) })) : [],
        line: node.line,
      };
    }
    case 'array_creation_expression': {
      const value = field(node, 'value');
      return value ? expr(value) : other(node);
    }
    case 'array_initializer':
    case 'element_value_array_initializer':
      return list(named(node).map(expr));
    case 'binary_expression': {
      const [left, right] = [field(node, 'left'), field(node, 'right')];
      const op = field(node, 'operator')?.text ?? '';
      if (!left || !right) return other(node);
      if (BINARY.has(op))
        return { k: 'binary', op: OPERATORS[op] ?? op, left: expr(left), right: expr(right) };
      return { k: 'other', parts: ['(', expr(left), op, expr(right), ')'] };
    }
    case 'unary_expression': {
      const of = field(node, 'operand');
      const op = field(node, 'operator')?.text;
      if (!of) return other(node);
      const value = expr(of);
      if (op === '!') return { k: 'not', of: value };
      if (op === '-' && value.k === 'literal' && value.of === 'number')
        return literal('number', String(-Number(value.value)));
      return { k: 'other', parts: [op ?? '', value] };
    }
    case 'instanceof_expression': {
      const [left, right] = [field(node, 'left'), field(node, 'right')];
      return left && right ? call(name('instanceof'), [expr(left), expr(right)], node.line) : other(node);
    }
    case 'lambda_expression': {
      const [params, body] = [field(node, 'parameters'), field(node, 'body')];
      const stmts: Stmt[] = !body
        ? []
        : body.type === 'block'
          ? block(body)
          : [{ k: 'return', e: expr(body), line: body.line }];
      const names = !params
        ? []
        : params.type === 'identifier'
          ? [name(params.text)]
          : named(params).map((each) => name((field(each, 'name') ?? each).text));
      return {
        k: 'function',
        fn: { name: '', params: names, body: stmts, line: node.line, endLine: node.endLine },
      };
    }
    case 'method_reference': {
      const [of, called] = named(node);
      if (!of || !called) return other(node);
      const fn: Func = {
        name: '',
        params: [],
        body: [{ k: 'return', e: call(member(expr(of), called.text), [], node.line), line: node.line }],
        line: node.line,
        endLine: node.endLine,
      };
      return { k: 'function', fn };
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
          .filter((each) => !/comment/.test(each.type))
          .map((each) => (each.named ? expr(each) : each.text)),
      };

const block = (node: Syntax | undefined): Stmt[] =>
  !node
    ? []
    : node.type === 'block' || node.type === 'constructor_body'
      ? named(node).flatMap(stmt)
      : stmt(node);

function stmt(node: Syntax): Stmt[] {
  const { line } = node;
  switch (node.type) {
    case 'expression_statement': {
      const [inner] = named(node);
      if (!inner) return [];
      if (inner.type === 'assignment_expression') {
        const [target, value] = [field(inner, 'left'), field(inner, 'right')];
        return target && value
          ? [
              {
                k: 'assign',
                target: expr(target),
                value: expr(value),
                op: field(inner, 'operator')?.text ?? '=',
                line,
              },
            ]
          : [];
      }
      return [{ k: 'expr', e: expr(inner), line }];
    }
    case 'local_variable_declaration':
    case 'field_declaration':
      return fields(node, 'declarator').flatMap((each): Stmt[] => {
        const [target, value] = [field(each, 'name'), field(each, 'value')];
        return target && value
          ? [{ k: 'assign', target: name(target.text), value: expr(value), op: '=', line: each.line }]
          : [];
      });
    case 'if_statement': {
      const [cond, then, orElse] = [
        field(node, 'condition'),
        field(node, 'consequence'),
        field(node, 'alternative'),
      ];
      return cond ? [{ k: 'if', cond: expr(cond), yes: block(then), no: block(orElse), line }] : [];
    }
    case 'enhanced_for_statement': {
      const [pattern, over] = [field(node, 'name'), field(node, 'value')];
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
    case 'try_statement':
    case 'try_with_resources_statement': {
      const resources = ofType(node, 'resource_specification')
        .flatMap((each) => ofType(each, 'resource'))
        .flatMap((each): Stmt[] => {
          const [target, value] = [field(each, 'name'), field(each, 'value')];
          return target && value
            ? [{ k: 'assign', target: name(target.text), value: expr(value), op: '=', line: each.line }]
            : [];
        });
      const handlers = ofType(node, 'catch_clause').map((each) => {
        const [param] = ofType(each, 'catch_formal_parameter');
        const as = param && field(param, 'name');
        const types = param
          ? ofType(param, 'catch_type')
              .flatMap(named)
              .map((type) => type.text)
          : [];
        return { catches: types, ...(as ? { as: as.text } : {}), body: block(field(each, 'body')) };
      });
      const last = ofType(node, 'finally_clause').flatMap(named).flatMap(stmt);
      return [{ k: 'try', body: [...resources, ...block(field(node, 'body'))], handlers, last, line }];
    }
    case 'return_statement': {
      const [e] = named(node);
      return [{ k: 'return', ...(e ? { e: expr(e) } : {}), line }];
    }
    case 'throw_statement': {
      const [e] = named(node);
      return [{ k: 'raise', ...(e ? { e: expr(e) } : {}), line }];
    }
    case 'assert_statement': {
      const [cond] = named(node);
      return cond ? [{ k: 'assert', e: expr(cond), line }] : [];
    }
    case 'break_statement':
    case 'continue_statement':
      return [{ k: 'leave', line }];
    case 'block':
      return [{ k: 'block', body: block(node), line }];
    case 'labeled_statement':
    case 'synchronized_statement':
      return named(node).flatMap(stmt);
    case 'switch_expression':
      return [{ k: 'expr', e: other(node), line }];
    default:
      return [];
  }
}

function func(node: Syntax): Func {
  const params = field(node, 'parameters');
  return {
    name: field(node, 'name')?.text ?? '',
    params: params
      ? named(params).flatMap((each) =>
          field(each, 'name') ? [name((field(each, 'name') as Syntax).text)] : [],
        )
      : [],
    body: block(field(node, 'body')),
    line: (field(node, 'name') ?? node).line,
    endLine: node.endLine,
  };
}

// ---------------------------------------------------------------- meaning

const isText = (e: Expr | undefined): boolean =>
  e?.k === 'literal' && e.of === 'string' && !e.value.startsWith('char:');

/** JUnit 4 says its message first, JUnit 5 last: what stays is what is compared. */
function withoutMessage(args: readonly Expr[], wanted: number): readonly Expr[] {
  if (args.length <= wanted) return args;
  const [first] = args;
  const last = args.at(-1);
  if (isText(first) && !isText(last) && last?.k !== 'function') return args.slice(1);
  return isText(last) || last?.k === 'function' ? args.slice(0, -1) : args;
}

const EXPECTED_FIRST: Readonly<Record<string, Relation>> = {
  assertEquals: 'equal',
  assertNotEquals: 'not-equal',
  assertSame: 'same',
  assertNotSame: 'not-equal',
  assertArrayEquals: 'equal',
  assertIterableEquals: 'equal',
  assertLinesMatch: 'matches',
  assertInstanceOf: 'type',
};
const ONE: Readonly<Record<string, Relation>> = {
  assertTrue: 'truthy',
  assertFalse: 'falsy',
  assertNull: 'nothing',
  assertNotNull: 'something',
};

/** AssertJ and Truth. */
const FLUENT: Readonly<Record<string, Relation>> = {
  isEqualTo: 'equal',
  isNotEqualTo: 'not-equal',
  isSameAs: 'same',
  isNotSameAs: 'not-equal',
  isSameInstanceAs: 'same',
  isTrue: 'truthy',
  isFalse: 'falsy',
  isNull: 'nothing',
  isNotNull: 'something',
  isPresent: 'something',
  isNotPresent: 'nothing',
  isEmpty: 'empty',
  isNotEmpty: 'not-empty',
  isNotBlank: 'not-empty',
  isBlank: 'empty',
  contains: 'contains',
  containsExactly: 'equal',
  containsExactlyInAnyOrder: 'custom same members',
  containsOnly: 'custom same members',
  containsEntry: 'contains',
  containsKey: 'has',
  doesNotContain: 'lacks',
  startsWith: 'contains',
  endsWith: 'contains',
  matches: 'matches',
  isInstanceOf: 'type',
  isExactlyInstanceOf: 'type',
  isGreaterThan: 'greater',
  isGreaterThanOrEqualTo: 'at-least',
  isAtLeast: 'at-least',
  isLessThan: 'less',
  isLessThanOrEqualTo: 'at-most',
  isAtMost: 'at-most',
  hasToString: 'equal',
  isPositive: 'greater',
  isNegative: 'less',
  isZero: 'equal',
  isCloseTo: 'approx',
};
/** Steps of a fluent chain that say nothing. */
const FLUENT_WORDS =
  /^(as|describedAs|withFailMessage|overridingErrorMessage|usingRecursiveComparison|usingElementComparator|ignoringFields|isNotInstanceOf|satisfies|and|asString|extracting|first|last|element|isThrownBy)$/;

const HAMCREST: Readonly<Record<string, Relation>> = {
  equalTo: 'equal',
  sameInstance: 'same',
  nullValue: 'nothing',
  notNullValue: 'something',
  instanceOf: 'type',
  isA: 'type',
  hasItem: 'contains',
  hasItems: 'contains',
  containsString: 'contains',
  startsWith: 'contains',
  endsWith: 'contains',
  contains: 'equal',
  containsInAnyOrder: 'custom same members',
  hasEntry: 'contains',
  hasKey: 'has',
  hasProperty: 'has',
  greaterThan: 'greater',
  greaterThanOrEqualTo: 'at-least',
  lessThan: 'less',
  lessThanOrEqualTo: 'at-most',
  closeTo: 'approx',
  matchesPattern: 'matches',
  empty: 'empty',
  anything: 'runs',
};

function matched(subject: Expr, matcher: Expr): Atom {
  if (matcher.k !== 'call') return { relation: 'equal', subject, expected: matcher };
  const last = lastName(matcher.callee);
  const args = matcher.args.map(({ value }) => value);
  const [first, second] = args;
  if (last === 'is' && first) return matched(subject, first);
  if (last === 'not' && first) return negated(matched(subject, first));
  if (last === 'anyOf') {
    const members = args.map((each) => matched(subject, each));
    return { relation: 'any-of', subject: list(args), members };
  }
  if (last === 'hasSize' && first)
    return first.k === 'call'
      ? matched(lengthOf(subject), first)
      : { relation: 'equal', subject: lengthOf(subject), expected: first };
  const relation = HAMCREST[last];
  // Any other call is a value: `is(f(2))`.
  if (!relation)
    return /^(is|has|matches)[A-Z]/.test(last)
      ? { relation: `custom ${last}`, subject, ...(first ? { expected: list(args) } : {}) }
      : { relation: 'equal', subject, expected: matcher };
  const expected = args.length > 1 && relation !== 'approx' ? list(args) : first;
  return {
    relation,
    subject,
    ...(expected ? { expected } : {}),
    ...(relation === 'approx' && second ? { tolerance: second } : {}),
  };
}

/** `assertThat(x).isNotNull().isEqualTo(y)`: an atom for each step. */
function fluent(e: Call): Meaning | undefined {
  const steps: Call[] = [];
  let at: Expr = e;
  let root: Call | undefined;
  while (at.k === 'call') {
    if (
      at.callee.k === 'member' &&
      !/^(Assertions|Truth|BDDAssertions|Assert|softly|soft|softAssertions)$/.test(printed(at.callee.of))
    ) {
      steps.unshift(at);
      at = at.callee.of;
    } else {
      root = at;
      break;
    }
  }
  const [, head] = root
    ? (/(?:^|\.)(assertThat|then|assertWithMessage|assertThatThrownBy|assertThatCode|assertThatExceptionOfType|assertThatNoException|catchThrowable)$/.exec(
        dotted(root.callee),
      ) ?? [])
    : [];
  if (!root || head === undefined || steps.length === 0) return undefined;
  const [given] = root.args.map(({ value }) => value);
  if (head === 'assertThatNoException' || head === 'assertThatExceptionOfType') {
    const fn = steps.find((each) => lastName(each.callee) === 'isThrownBy')?.args[0]?.value ?? NOTHING;
    return {
      is: 'assertion',
      atoms: [
        head === 'assertThatNoException'
          ? { relation: 'runs', subject: fn }
          : { relation: 'throws', subject: fn, ...(given ? { expected: given } : {}), ...said(steps) },
      ],
    };
  }
  if (!given) return undefined;
  if (head === 'assertThatThrownBy' || head === 'assertThatCode') {
    if (steps.some((each) => lastName(each.callee) === 'doesNotThrowAnyException'))
      return { is: 'assertion', atoms: [{ relation: 'runs', subject: given }] };
    const type = steps.find((each) => /^is(Exactly)?InstanceOf$/.test(lastName(each.callee)))?.args[0]?.value;
    return {
      is: 'assertion',
      atoms: [{ relation: 'throws', subject: given, ...(type ? { expected: type } : {}), ...said(steps) }],
    };
  }
  let subject: Expr = given;
  const atoms: Atom[] = [];
  for (const step of steps) {
    const last = lastName(step.callee);
    const args = step.args.map(({ value }) => value);
    const [first, second] = args;
    if (/^(extracting|first|last|element|asString)$/.test(last)) subject = call(member(subject, last), args);
    if (FLUENT_WORDS.test(last)) continue;
    if (last === 'hasSize' || last === 'hasLength')
      atoms.push({ relation: 'equal', subject: lengthOf(subject), ...(first ? { expected: first } : {}) });
    else if (last === 'isPositive' || last === 'isNegative' || last === 'isZero')
      atoms.push({ relation: FLUENT[last] as Relation, subject, expected: number('0') });
    else if (last === 'hasValue')
      atoms.push({
        relation: 'equal',
        subject: call(member(subject, 'get'), []),
        ...(first ? { expected: first } : {}),
      });
    else {
      const relation = FLUENT[last] ?? (`custom ${last}` as const);
      const expected =
        relation === 'equal' && last === 'containsExactly'
          ? list(args)
          : args.length > 1 && relation !== 'approx'
            ? list(args)
            : first;
      atoms.push({
        relation,
        subject,
        ...(expected ? { expected } : {}),
        ...(relation === 'approx' && second ? { tolerance: second } : {}),
      });
    }
  }
  return { is: 'assertion', atoms };
}

function said(steps: readonly Call[]): { message?: Expr } {
  const message = steps.find((each) =>
    /^(hasMessage|hasMessageContaining|withMessage|withMessageContaining)$/.test(lastName(each.callee)),
  )?.args[0]?.value;
  return message ? { message } : {};
}

function meaning(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  const last = lastName(e.callee);
  const args = e.args.map(({ value }) => value);
  const bare =
    /^((Assertions|Assert|MatcherAssert|TestCase|Assume|Assumptions|Mockito|BDDMockito|this|org\.[\w.]+)\.)?\w+$/.test(
      path,
    );
  if (!bare) return verified(e) ?? mocked(e) ?? fluent(e);
  if (last === 'fail') return { is: 'fail' };
  if (path === 'System.exit') return { is: 'exit' };
  const one = ONE[last];
  if (one) {
    const [subject] = withoutMessage(args, 1);
    return subject && { is: 'assertion', atoms: [{ relation: one, subject }] };
  }
  if (/^assertThrows(Exactly)?$/.test(last)) {
    const [type, fn] = withoutMessage(args, 2);
    return (
      fn && {
        is: 'assertion',
        atoms: [
          {
            relation: last === 'assertThrows' ? 'throws' : 'throws-exactly',
            subject: fn,
            ...(type ? { expected: type } : {}),
          },
        ],
      }
    );
  }
  if (last === 'assertDoesNotThrow')
    return args[0] && { is: 'assertion', atoms: [{ relation: 'runs', subject: args[0] }] };
  if (/^assert(All|Timeout|TimeoutPreemptively)$/.test(last)) {
    return {
      is: 'assertion',
      atoms: [],
      inside: args.flatMap((each) =>
        each.k === 'function'
          ? [each.fn]
          : each.k === 'list'
            ? each.items.flatMap((one) => (one.k === 'function' ? [one.fn] : []))
            : [],
      ),
    };
  }
  if (/^assume(True|False|That|NoException)$/.test(last)) {
    const [cond] = withoutMessage(args, 1);
    if (!cond) return undefined;
    return { is: 'skip', kind: 'skip', condition: last === 'assumeFalse' ? cond : { k: 'not', of: cond } };
  }
  if (last === 'assertThat') {
    const [subject, matcher] = args.length === 3 ? args.slice(1) : args;
    return subject && matcher ? { is: 'assertion', atoms: [matched(subject, matcher)] } : undefined;
  }
  const relation = EXPECTED_FIRST[last];
  if (relation) {
    const [expected, subject, third] = withoutMessage(args, args.length === 4 ? 3 : 2);
    if (!expected || !subject) return undefined;
    const tolerance = third && relation === 'equal' ? third : undefined;
    return {
      is: 'assertion',
      atoms: [
        { relation: tolerance ? 'approx' : relation, subject, expected, ...(tolerance ? { tolerance } : {}) },
      ],
    };
  }
  return mocked(e);
}

/** `verify(x, times(2)).f(a)` */
function verified(e: Call): Meaning | undefined {
  if (
    e.callee.k !== 'member' ||
    e.callee.of.k !== 'call' ||
    !/^(\w+\.)?verify$/.test(dotted(e.callee.of.callee))
  )
    return undefined;
  const [on, how] = e.callee.of.args.map(({ value }) => value);
  const subject = member(on ?? NOTHING, e.callee.name);
  const times = how?.k === 'call' ? lastName(how.callee) : 'times';
  if (times === 'never') return { is: 'assertion', atoms: [{ relation: 'not-called', subject }] };
  const atoms: Atom[] = [
    { relation: 'called-with', subject, expected: list(e.args.map(({ value }) => value)) },
  ];
  if (how?.k === 'call')
    atoms.push({
      relation: times === 'times' ? 'called-times' : 'called',
      subject,
      ...(times === 'times' && how.args[0] ? { expected: how.args[0].value } : {}),
    });
  return { is: 'assertion', atoms };
}

function mocked(e: Call): Meaning | undefined {
  const path = dotted(e.callee);
  const last = lastName(e.callee);
  const [first] = e.args.map(({ value }) => value);
  if (/^(Mockito\.)?(mock|mockStatic|mockConstruction|spy)$/.test(path) && first)
    return { is: 'mock', target: lastName(first), module: false };
  if (
    /^then(Return|Throw|Answer)$/.test(last) &&
    e.callee.k === 'member' &&
    e.callee.of.k === 'call' &&
    /^(Mockito\.)?when$/.test(dotted(e.callee.of.callee))
  ) {
    const stubbed = e.callee.of.args[0]?.value;
    return { is: 'mock', target: stubbed?.k === 'call' ? lastName(stubbed.callee) : '', module: false };
  }
  return undefined;
}

const dialect: Dialect = {
  meaning,
  entering: () => undefined,
  predicate(e): Atom | undefined {
    const path = dotted(e.callee);
    const last = lastName(e.callee);
    const [first, second] = e.args.map(({ value }) => value);
    if (path === 'instanceof' && first && second)
      return { relation: 'type', subject: first, expected: second };
    if (/^(Objects|Arrays)\.(equals|deepEquals)$/.test(path) && first && second)
      return { relation: 'equal', subject: first, expected: second };
    if (e.callee.k !== 'member') return undefined;
    const { of } = e.callee;
    if (last === 'equals' && first) return { relation: 'equal', subject: of, expected: first };
    if (/^(contains|containsKey|startsWith|endsWith)$/.test(last) && first)
      return { relation: 'contains', subject: of, expected: first };
    if (last === 'isEmpty' && !first) return { relation: 'empty', subject: of };
    if (last === 'isPresent' && !first) return { relation: 'something', subject: of };
    if (last === 'matches' && first) return { relation: 'matches', subject: of, expected: first };
    return undefined;
  },
  catchesAssertions: /^(Throwable|Error|AssertionError|AssertionFailedError|.*\.Throwable)$/,
  failures: /^new (Assertion\w*Error|\w*Error|RuntimeException|IllegalStateException)\b/,
  skipErrors: /AssumptionViolated|TestAborted|SkipException/,
  aboutPlace: /System \. (getenv|getProperty)|\bCI\b/,
};
export const JAVA: Dialect = dialect;

// ---------------------------------------------------------------- tests

interface Marks {
  readonly test: boolean;
  readonly setup: boolean;
  readonly skips: Skip[];
  readonly tables: Table[];
  readonly ends?: { readonly expected?: Expr; readonly message?: Expr };
  readonly mock: boolean;
}

function marks(node: Syntax, params: readonly Expr[], methods: ReadonlyMap<string, Syntax>): Marks {
  const skips: Skip[] = [];
  const tables: Table[] = [];
  let test = false;
  let setup = false;
  let mock = false;
  let ends: Marks['ends'];
  for (const each of ofType(node, 'modifiers').flatMap((modifiers) =>
    ofType(modifiers, 'annotation', 'marker_annotation'),
  )) {
    const called = (field(each, 'name')?.text ?? '').replace(/^.*\./, '');
    const { line } = each;
    const args = field(each, 'arguments');
    const values = new Map<string, Expr>();
    for (const arg of args ? named(args) : []) {
      if (arg.type === 'element_value_pair')
        values.set(field(arg, 'key')?.text ?? '', expr(field(arg, 'value') ?? arg));
      else values.set('value', expr(arg));
    }
    const value = values.get('value');
    const pattern = params.length === 1 && params[0] ? params[0] : list(params);
    if (/^(Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Theory|Property)$/.test(called))
      test = true;
    if (called === 'Test') {
      const expected = values.get('expected') ?? values.get('expectedExceptions');
      if (expected) ends = { expected };
      if (values.get('enabled') && printed(values.get('enabled') as Expr) === 'false')
        skips.push({ kind: 'skip', line });
    } else if (/^(Disabled|Ignore)$/.test(called)) skips.push({ kind: 'skip', line });
    else if (/^(Disabled|Enabled)(On|If|For)/.test(called))
      skips.push({ kind: 'skip', line, condition: each.text.replace(/\s+/g, ' ') });
    else if (/^(BeforeEach|Before|BeforeAll|BeforeClass|BeforeMethod)$/.test(called)) setup = true;
    else if (/^(Mock|MockBean|MockitoBean|InjectMock|Spy|SpyBean)$/.test(called)) mock = true;
    else if (called === 'CsvSource' && value) {
      const rows = value.k === 'list' ? value.items : [value];
      const cells = rows.map((row) =>
        row.k === 'literal' ? row.value.split(',').map((cell): Expr => cellOf(cell.trim())) : [row],
      );
      tables.push({
        pattern,
        rows: list(cells.map((row) => (row.length === 1 && row[0] ? row[0] : list(row)))),
      });
    } else if (called === 'ValueSource') {
      const [rows] = values.values();
      if (rows) tables.push({ pattern, rows: rows.k === 'list' ? rows : list([rows]) });
    } else if (called === 'MethodSource') {
      const source = value?.k === 'literal' ? methods.get(value.value) : undefined;
      tables.push({
        pattern,
        rows: source ? provided(source) : value ? call(name('MethodSource'), [value]) : name('MethodSource'),
      });
    } else if (called.endsWith('Source'))
      tables.push({ pattern, rows: { k: 'other', parts: [each.text.replace(/\s+/g, ' ')] } });
  }
  return { test, setup, skips, tables, mock, ...(ends ? { ends } : {}) };
}

const cellOf = (cell: string): Expr =>
  /^-?\d+(\.\d+)?$/.test(cell)
    ? number(cell)
    : /^(true|false)$/.test(cell)
      ? literal('boolean', cell)
      : text(cell.replace(/^'(.*)'$/, '$1'));

/** The rows that a method gives: `return Stream.of(Arguments.of(1, 2), ...)`. */
function provided(method: Syntax): Expr {
  const given = block(field(method, 'body')).findLast((each) => each.k === 'return');
  const e = given?.k === 'return' ? given.e : undefined;
  if (!e) return name('MethodSource');
  const rows =
    e.k === 'call' && lastName(e.callee) === 'of'
      ? e.args.map(({ value }) => value)
      : e.k === 'list'
        ? e.items
        : undefined;
  if (!rows) return e;
  return list(
    rows.map((row) =>
      row.k === 'call' && /^(of|arguments)$/.test(lastName(row.callee))
        ? list(row.args.map(({ value }) => value))
        : row,
    ),
  );
}

export function java(root: Syntax): TestFile {
  const tests: TestCase[] = [];
  const helpers: Func[] = [];
  const imports: Import[] = [];
  const defined = new Set<string>();
  const mocks: Mock[] = [];

  const collect = (
    node: Syntax,
    path: readonly string[],
    around: readonly Skip[],
    prelude: readonly Stmt[],
    setups: readonly Func[],
  ): void => {
    const called = field(node, 'name')?.text ?? '';
    defined.add(called);
    const body = field(node, 'body');
    const members = body ? named(body) : [];
    const methods = new Map(
      members
        .filter((each) => each.type === 'method_declaration')
        .map((each) => [field(each, 'name')?.text ?? '', each]),
    );
    const own = marks(node, [], methods);
    const skips = [...around, ...own.skips];
    const junit3 = /extends\s+(\w*\.)*TestCase\b/.test(field(node, 'superclass')?.text ?? '');
    const values = members.filter((each) => each.type === 'field_declaration').flatMap(stmt);
    for (const each of members) {
      if (each.type !== 'field_declaration' || !marks(each, [], methods).mock) continue;
      mocks.push({ target: field(each, 'type')?.text ?? '', module: false, line: each.line });
    }
    const scope = [...prelude, ...values];
    const before = [
      ...setups,
      ...members
        .filter(
          (each) =>
            each.type === 'method_declaration' &&
            (marks(each, [], methods).setup || field(each, 'name')?.text === 'setUp'),
        )
        .map(func),
    ];
    for (const each of members) {
      if (each.type === 'class_declaration' || each.type === 'record_declaration') {
        collect(each, [...path, called], skips, scope, before);
      } else if (each.type === 'method_declaration') {
        const fn = func(each);
        const about = marks(each, fn.params, methods);
        const isPrivate = ofType(each, 'modifiers').some((modifiers) => /\bprivate\b/.test(modifiers.text));
        const hasPublic = ofType(each, 'modifiers').some((modifiers) => /\bpublic\b/.test(modifiers.text));
        const isTest = about.test ? !isPrivate : junit3 && fn.name.startsWith('test') && hasPublic;
        if (!isTest) {
          helpers.push(fn);
          continue;
        }
        tests.push({
          path: [...path, called, fn.name],
          fn,
          tables: about.tables,
          skips: [...skips, ...about.skips],
          mocks: [],
          focused: false,
          prelude: scope,
          setups: before,
          ...(about.ends ? { ends: about.ends } : {}),
        });
      }
    }
  };

  for (const node of named(root)) {
    if (node.type === 'import_declaration') {
      const [path] = named(node);
      const module = path?.text ?? '';
      imports.push({ module, names: [module.replace(/^.*\./, '')] });
    } else if (node.type === 'class_declaration') collect(node, [], [], [], []);
  }
  return { tests, helpers, imports, defined, skips: [], mocks };
}
