/**
 * What an assertion says, and which of two says more.
 *
 *   before                    after                         is
 *   f(1) == 2                 f(1) >= 2, f(1)               weaker
 *   f(1) == 2                 f(1) == 999                   changed
 *   f(1) == 2                 f(1) != 2                     inverted
 *   f(1) is truthy            f(1) == 2                     stronger
 *   f(1) raises KeyError      f(1) raises Exception         weaker
 *   f(1) == 2                 isSorted(f(1))                unclear
 */

import type { Call, Expr } from './code.js';
import { call, isLiteralToken, lastName, name, number, print, printed } from './code.js';

export type Relation =
  | 'same'
  | 'equal'
  | 'not-equal'
  | 'truthy'
  | 'falsy'
  | 'nothing'
  | 'something'
  | 'contains'
  | 'lacks'
  | 'matches'
  | 'not-matches'
  | 'less'
  | 'at-most'
  | 'greater'
  | 'at-least'
  | 'approx'
  | 'type'
  | 'not-type'
  | 'empty'
  | 'not-empty'
  | 'subset'
  | 'has'
  | 'lacks-property'
  | 'throws'
  | 'throws-exactly'
  | 'runs'
  | 'snapshot'
  | 'called'
  | 'not-called'
  | 'called-with'
  | 'called-times'
  | 'any-of'
  | 'count'
  | `custom ${string}`;

export interface Atom {
  readonly relation: Relation;
  readonly subject: Expr;
  readonly expected?: Expr;
  /** Of `approx`: how far off it may be, or to how many places it holds where `places`. */
  readonly tolerance?: Expr;
  readonly places?: boolean;
  /** Of `throws`: what the message has to say. */
  readonly message?: Expr;
  /** Of `any-of`. */
  readonly members?: readonly Atom[];
}

/** A language's own predicates: `a.includes(b)`, `reflect.DeepEqual(a, b)`; `undefined` for any other call. */
export type Predicate = (call: Call) => Atom | undefined;

const LENGTH = 'len';
export const lengthOf = (e: Expr): Expr => call(name(LENGTH), [e]);

const OPERATORS: Readonly<Record<string, readonly [Relation, Relation]>> = {
  '==': ['equal', 'not-equal'],
  '!=': ['not-equal', 'equal'],
  is: ['same', 'not-equal'],
  'is not': ['not-equal', 'same'],
  '<': ['less', 'at-least'],
  '<=': ['at-most', 'greater'],
  '>': ['greater', 'at-most'],
  '>=': ['at-least', 'less'],
  in: ['contains', 'lacks'],
  'not in': ['lacks', 'contains'],
};

const OPPOSITE: Partial<Record<Relation, Relation>> = {
  same: 'not-equal',
  equal: 'not-equal',
  'not-equal': 'equal',
  truthy: 'falsy',
  falsy: 'truthy',
  nothing: 'something',
  something: 'nothing',
  contains: 'lacks',
  lacks: 'contains',
  matches: 'not-matches',
  'not-matches': 'matches',
  less: 'at-least',
  'at-least': 'less',
  greater: 'at-most',
  'at-most': 'greater',
  type: 'not-type',
  'not-type': 'type',
  empty: 'not-empty',
  'not-empty': 'empty',
  has: 'lacks-property',
  'lacks-property': 'has',
  throws: 'runs',
  'throws-exactly': 'runs',
  runs: 'throws',
  called: 'not-called',
  'not-called': 'called',
};

/** The atom that holds where `atom` does not. */
export function negated(atom: Atom): Atom {
  if (atom.relation === 'any-of') {
    // Only ever looked at as a whole.
    return { relation: 'custom not', subject: { k: 'other', parts: (atom.members ?? []).map(keyOf) } };
  }
  const opposite = OPPOSITE[atom.relation];
  return opposite === undefined
    ? { ...atom, relation: `custom not ${atom.relation}` }
    : plain({ ...atom, relation: opposite });
}

/** The atoms that all hold where `e` is true, or false where not `positive`. */
export function formula(e: Expr, positive: boolean, predicate: Predicate): Atom[] {
  switch (e.k) {
    case 'not':
      return formula(e.of, !positive, predicate);
    case 'await':
      return formula(e.of, positive, predicate);
    case 'binary': {
      if (e.op === 'and' || e.op === 'or') {
        const sides = [formula(e.left, positive, predicate), formula(e.right, positive, predicate)] as const;
        return (e.op === 'and') === positive ? sides.flat() : [anyOf(sides)];
      }
      const relations = OPERATORS[e.op];
      if (!relations) break;
      const relation = relations[positive ? 0 : 1];
      return relation === 'contains' || relation === 'lacks'
        ? [plain({ relation, subject: e.right, expected: e.left })]
        : [plain({ relation, subject: e.left, expected: e.right })];
    }
    case 'call': {
      const atom = predicate(e);
      if (atom) return [plain(positive ? atom : negated(atom))];
      break;
    }
    default:
  }
  return [{ relation: positive ? 'truthy' : 'falsy', subject: e }];
}

function anyOf(sides: readonly (readonly Atom[])[]): Atom {
  const members = sides.flatMap((side) => {
    const [only] = side;
    if (side.length === 1 && only) return only.relation === 'any-of' ? (only.members ?? []) : [only];
    return [{ relation: 'custom all', subject: { k: 'other', parts: side.map(keyOf) } } as const];
  });
  return { relation: 'any-of', subject: { k: 'other', parts: members.map(keyOf).sort() }, members };
}

const isNothing = (e: Expr | undefined): boolean => e?.k === 'literal' && e.of === 'nothing';
const isLength = (e: Expr): boolean => e.k === 'call' && e.callee.k === 'name' && e.callee.name === LENGTH;
const isZero = (e: Expr | undefined): boolean =>
  e?.k === 'literal' && e.of === 'number' && Number(e.value) === 0;

/** Sides put where they belong, and one name for what can be said in several ways. */
export function plain(atom: Atom): Atom {
  let { relation, subject, expected } = atom;
  if (relation === 'empty' || relation === 'not-empty') {
    return {
      relation: relation === 'empty' ? 'equal' : 'greater',
      subject: lengthOf(subject),
      expected: number('0'),
    };
  }
  if (expected === undefined) return atom;
  if (relation === 'not-equal' && isLength(subject) && isZero(expected)) relation = 'greater';
  if (relation === 'at-least' && isLength(subject) && expected.k === 'literal' && expected.value === '1') {
    return { relation: 'greater', subject, expected: number('0') };
  }
  const MIRROR: Partial<Record<Relation, Relation>> = {
    less: 'greater',
    greater: 'less',
    'at-most': 'at-least',
    'at-least': 'at-most',
  };
  const symmetric = ['equal', 'same', 'not-equal', 'approx'].includes(relation);
  if (relation === 'contains' && subject.k === 'list' && !isConstant(expected)) {
    // One of what is written out.
    const it = expected;
    const members = subject.items.map((each): Atom =>
      plain({ relation: 'equal', subject: it, expected: each }),
    );
    const [only] = members;
    return members.length === 1 && only
      ? only
      : { relation: 'any-of', subject: { k: 'other', parts: members.map(keyOf).sort() }, members };
  }
  if (relation === 'equal') {
    // `x == pytest.approx(v, abs=t)`, `expect(x).toEqual(expect.closeTo(v, digits))`.
    const about = [expected, subject].find(
      (each) => each.k === 'call' && /^(approx|closeTo)$/.test(lastName(each.callee)),
    );
    const [value, second] = about?.k === 'call' ? about.args : [];
    if (about?.k === 'call' && value) {
      const named = about.args.find((each) => each.name !== undefined && each.name !== 'nan_ok');
      const tolerance = named?.value ?? second?.value;
      const digits = lastName(about.callee) === 'closeTo';
      return {
        relation: 'approx',
        subject: about === expected ? subject : expected,
        expected: value.value,
        ...(tolerance ? { tolerance } : {}),
        ...(digits ? { places: true } : {}),
      };
    }
  }
  if (isConstant(subject) && !isConstant(expected) && (symmetric || relation in MIRROR)) {
    [subject, expected] = [expected, subject];
    relation = MIRROR[relation] ?? relation;
  }
  if (isNothing(expected)) {
    if (relation === 'equal' || relation === 'same') return { relation: 'nothing', subject };
    if (relation === 'not-equal') return { relation: 'something', subject };
  }
  // Identity says no more than equality about what has no identity of its own.
  if (relation === 'same' && isConstant(expected) && expected.k === 'literal') relation = 'equal';
  return { ...atom, relation, subject, expected };
}

/** Made of literals only. */
export function isConstant(e: Expr): boolean {
  switch (e.k) {
    case 'literal':
      return true;
    case 'list':
      return e.items.every(isConstant);
    case 'record':
      return e.entries.every(({ value }) => isConstant(value));
    default:
      return false;
  }
}

function truth(e: Expr): boolean | undefined {
  if (e.k === 'list') return e.items.length > 0;
  if (e.k === 'record') return e.entries.length > 0;
  if (e.k !== 'literal') return undefined;
  switch (e.of) {
    case 'boolean':
      return e.value === 'true';
    case 'number':
      return Number(e.value) !== 0;
    case 'string':
      return e.value !== '';
    case 'nothing':
      return false;
    case 'pattern':
      return true;
  }
}

/** Whether it holds whatever the code under test does: true always, false never, undefined as far as can be seen not. */
export function constantTruth(atom: Atom): boolean | undefined {
  const { relation, subject, expected } = atom;
  if (relation === 'any-of') {
    const known = (atom.members ?? []).map(constantTruth);
    if (known.includes(true)) return true;
    // One of two opposites always holds.
    const keys = new Set((atom.members ?? []).map(keyOf));
    if ((atom.members ?? []).some((each) => keys.has(keyOf(negated(each))))) return true;
    return known.every((each) => each === false) ? false : undefined;
  }
  if (relation === 'truthy') return truth(subject);
  if (relation === 'falsy') {
    const value = truth(subject);
    return value === undefined ? undefined : !value;
  }
  if (isConstant(subject) && (relation === 'nothing' || relation === 'something'))
    return isNothing(subject) === (relation === 'nothing');
  if (
    relation === 'something' &&
    (subject.k === 'function' || subject.k === 'list' || subject.k === 'record')
  )
    return true;
  if (
    relation === 'at-least' &&
    isZero(expected) &&
    subject.k === 'call' &&
    printed(subject.callee) === LENGTH
  )
    return true;
  if (relation === 'type' && expected && /^(object|Object|any)$/.test(printed(expected))) return true;
  if (
    relation === 'runs' &&
    (subject.k === 'literal' || (subject.k === 'other' && subject.parts.length === 0))
  )
    return true;
  if (expected === undefined) return undefined;
  if ((relation === 'contains' || relation === 'matches') && expected.k === 'literal') {
    if (expected.value === '' && expected.of !== 'number') return true;
    if (relation === 'matches' && /^\^?(\.\*|\[\\s\\S\]\*|\(\?s\)\.\*)\$?$/.test(expected.value)) return true;
  }
  const same = printed(subject) === printed(expected);
  if (['equal', 'same', 'at-most', 'at-least', 'approx', 'subset'].includes(relation) && same) return true;
  if (['not-equal', 'less', 'greater'].includes(relation) && same) return false;
  if (!isConstant(subject) || !isConstant(expected)) return undefined;
  if (relation === 'equal' || relation === 'same') return false;
  if (relation === 'not-equal') return true;
  const [left, right] = [subject, expected].map((each) =>
    each.k === 'literal' && each.of === 'number' ? Number(each.value) : Number.NaN,
  ) as [number, number];
  if (Number.isNaN(left) || Number.isNaN(right)) return undefined;
  if (relation === 'less') return left < right;
  if (relation === 'at-most') return left <= right;
  if (relation === 'greater') return left > right;
  if (relation === 'at-least') return left >= right;
  return undefined;
}

const optional = (e: Expr | undefined): string => (e ? printed(e) : '');

/** Equal for atoms that say the same. */
export function keyOf(atom: Atom): string {
  const { relation, subject, expected, tolerance, message } = atom;
  const sides = [printed(subject), optional(expected)];
  if (relation === 'equal' || relation === 'not-equal' || relation === 'same') sides.sort();
  return [relation, ...sides, optional(tolerance), optional(message)].join(' | ');
}

/** What each says besides, one step down. */
const IMPLIES: Partial<Record<Relation, readonly Relation[]>> = {
  same: ['equal'],
  equal: [
    'subset',
    'approx',
    'contains',
    'lacks',
    'matches',
    'not-matches',
    'at-most',
    'at-least',
    'less',
    'greater',
    'snapshot',
    'not-equal',
    'truthy',
    'falsy',
    'something',
    'type',
    'empty',
    'not-empty',
    'has',
  ],
  snapshot: ['truthy', 'something', 'type', 'has', 'contains', 'subset', 'not-empty'],
  approx: ['at-most', 'at-least', 'less', 'greater', 'truthy', 'something', 'type', 'not-equal'],
  subset: ['has', 'contains', 'truthy', 'something', 'not-empty'],
  contains: ['not-empty', 'truthy', 'something', 'has'],
  matches: ['truthy', 'something', 'type', 'not-empty', 'contains'],
  less: ['at-most', 'not-equal', 'something'],
  greater: ['at-least', 'not-equal', 'truthy', 'something'],
  'at-most': ['something', 'type'],
  'at-least': ['something', 'type'],
  type: ['something', 'truthy'],
  'not-empty': ['truthy', 'something'],
  empty: ['falsy', 'something'],
  nothing: ['falsy'],
  has: ['truthy', 'something'],
  truthy: ['something', 'not-equal'],
  something: ['runs'],
  'not-equal': ['runs'],
  falsy: ['runs'],
  lacks: ['runs'],
  'not-matches': ['runs'],
  'called-with': ['called'],
  'called-times': ['called'],
  called: ['runs'],
  'throws-exactly': ['throws'],
};

const closure = new Map<Relation, ReadonlySet<Relation>>();
function implies(strong: Relation, weak: Relation): boolean {
  let all = closure.get(strong);
  if (!all) {
    const found = new Set<Relation>();
    const visit = (relation: Relation): void => {
      for (const each of IMPLIES[relation] ?? []) {
        if (!found.has(each)) {
          found.add(each);
          visit(each);
        }
      }
    };
    visit(strong);
    if (!strong.startsWith('throws') && strong !== 'runs') found.add('runs');
    closure.set(strong, (all = found));
  }
  return all.has(weak);
}

export type Change = 'same' | 'stronger' | 'weaker' | 'changed' | 'inverted' | 'unclear';

/** What became of `before`, where both are about the same subject. */
export function relate(before: Atom, after: Atom): Change {
  if (keyOf(before) === keyOf(after)) return 'same';
  if (after.relation === 'any-of') {
    if (before.relation === 'any-of') return relateMembers(before.members ?? [], after.members ?? []);
    const some = (after.members ?? []).map((each) => relate(before, each));
    return some.some((each) => each === 'same' || each === 'weaker') ? 'weaker' : 'unclear';
  }
  if (before.relation === 'any-of') {
    return (before.members ?? []).some((each) => ['same', 'stronger'].includes(relate(each, after)))
      ? 'stronger'
      : 'unclear';
  }
  if (before.relation === after.relation) return relateLike(before, after);
  if (OPPOSITE[before.relation] === after.relation && optional(before.expected) === optional(after.expected))
    return 'inverted';
  if (before.relation === 'throws' && after.relation === 'runs') return 'inverted';
  if (implies(after.relation, before.relation)) return contradicts(before, after) ? 'changed' : 'stronger';
  if (implies(before.relation, after.relation)) return 'weaker';
  return 'unclear';
}

function relateMembers(before: readonly Atom[], after: readonly Atom[]): Change {
  const [old, now] = [before, after].map((each) => new Set(each.map(keyOf))) as [Set<string>, Set<string>];
  if ([...old].every((each) => now.has(each))) return 'weaker';
  if ([...now].every((each) => old.has(each))) return 'stronger';
  return 'unclear';
}

/** A stronger assertion that can't hold where the old one did: a `contains "abc"` that became `== "xyz"`. */
function contradicts(before: Atom, after: Atom): boolean {
  const [old, now] = [before.expected, after.expected];
  if (!old || !now || !isConstant(now) || !isConstant(old)) return false;
  if (before.relation === 'contains') {
    const tokens = print(old);
    return old.k === 'literal' && old.of === 'string' && now.k === 'literal'
      ? !now.value.includes(old.value)
      : !tokens.every((token) => print(now).includes(token));
  }
  const [bound, value] = [numeric(old), numeric(now)];
  if (bound === undefined || value === undefined) return false;
  if (before.relation === 'less') return value >= bound;
  if (before.relation === 'at-most') return value > bound;
  if (before.relation === 'greater') return value <= bound;
  if (before.relation === 'at-least') return value < bound;
  return false;
}

const isWording = (e: Expr | undefined): e is Expr & { k: 'literal' } =>
  e?.k === 'literal' && (e.of === 'string' || e.of === 'pattern');

const numeric = (e: Expr | undefined): number | undefined => {
  if (e?.k !== 'literal' || e.of !== 'number') return undefined;
  const value = Number(e.value);
  return Number.isNaN(value) ? undefined : value;
};

/** Stands for anything: `mock.ANY`, `expect.anything()`, `any()`. */
const WILDCARD =
  /^(ANY|anything|any|Any|Anything|anyString|anyInt|stringContaining|objectContaining|arrayContaining|stringMatching)$/;
const wildcards = (e: Expr | undefined): number =>
  e ? print(e).filter((token) => WILDCARD.test(token)).length : 0;

function relateLike(before: Atom, after: Atom): Change {
  const [old, now] = [before.expected, after.expected];
  switch (before.relation) {
    case 'throws':
    case 'throws-exactly':
      return relateThrows(before, after);
    case 'approx': {
      if (optional(old) !== optional(now)) return both(old, now);
      const [far, near] = [numeric(before.tolerance), numeric(after.tolerance)];
      if (before.tolerance === undefined) return after.places ? 'unclear' : 'weaker';
      if (after.tolerance === undefined) return before.places ? 'unclear' : 'stronger';
      if (far === undefined || near === undefined || (before.places ?? false) !== (after.places ?? false))
        return 'unclear';
      if (far === near) return 'same';
      return near > far === (before.places ?? false) ? 'stronger' : 'weaker';
    }
    case 'less':
    case 'at-most':
    case 'greater':
    case 'at-least':
    case 'count': {
      const [bound, value] = [numeric(old), numeric(now)];
      if (bound === undefined || value === undefined) return both(old, now);
      const upper = before.relation === 'less' || before.relation === 'at-most';
      return value < bound === upper ? 'stronger' : 'weaker';
    }
    case 'contains':
    case 'matches': {
      if (!isWording(old) || !isWording(now)) return both(old, now);
      const [was, is] = [old, now].map(({ value }) => value.replace(/^\^|\$$/g, '')) as [string, string];
      if (was === is) return now.value.length < old.value.length ? 'weaker' : 'stronger';
      if (was.includes(is)) return 'weaker';
      if (is.includes(was)) return before.relation === 'contains' ? 'stronger' : 'unclear';
      return 'changed';
    }
    case 'subset': {
      if (!old || !now) return 'unclear';
      const [was, is] = [new Set(print(old)), new Set(print(now))];
      if ([...is].every((each) => was.has(each))) return 'weaker';
      if ([...was].every((each) => is.has(each))) return 'stronger';
      return both(old, now);
    }
    case 'type': {
      const [was, is] = [alternatives(old), alternatives(now)];
      if (old && now && old.k === 'other' && now.k === 'other') {
        const [special, general] = [print(old), print(now)];
        if (generalises(general, special)) return 'weaker';
        if (generalises(special, general)) return 'stronger';
      }
      if (was.every((each) => is.includes(each))) return 'weaker';
      if (is.every((each) => was.includes(each))) return 'stronger';
      return 'changed';
    }
    default: {
      const loose = wildcards(now) - wildcards(old);
      if (loose !== 0) return loose > 0 ? 'weaker' : 'stronger';
      return both(old, now);
    }
  }
}

/** Whether a pattern takes all that another takes: `Err(_)` all of `Err(Syntax(_))`. */
function generalises(general: readonly string[], special: readonly string[]): boolean {
  const [first, ...rest] = general;
  if (first === undefined) return special.length === 0;
  if (first !== '_' && first !== '..') return special[0] === first && generalises(rest, special.slice(1));
  let depth = 0;
  for (let at = 0; at <= special.length; at++) {
    if (depth === 0 && at > 0 && generalises(rest, special.slice(at))) return true;
    const token = special[at] ?? ')';
    if (/^[([{]$/.test(token)) depth++;
    else if (/^[)\]}]$/.test(token) && --depth < 0) return false;
  }
  return false;
}

/** Two different expectations of one kind: changed where that can be seen in literals, unclear where names differ. */
function both(old: Expr | undefined, now: Expr | undefined): Change {
  if (!old || !now) return 'unclear';
  if (isConstant(now)) return 'changed';
  const [was, is] = [print(old), print(now)];
  return was.length === is.length &&
    was.every((token, at) => token === is[at] || (isLiteralToken(token) && isLiteralToken(is[at] as string)))
    ? 'changed'
    : 'unclear';
}

/** What an assertion about how long something is says of the whole: undefined where it is not about that. */
export function ofLength(measure: Atom, whole: Atom): 'as much' | 'more' | undefined {
  const { subject, expected } = measure;
  if (
    subject.k !== 'call' ||
    !isLength(subject) ||
    !subject.args[0] ||
    printed(subject.args[0].value) !== printed(whole.subject)
  )
    return undefined;
  if (whole.relation !== 'equal' && whole.relation !== 'same') return undefined;
  const value = whole.expected;
  const length =
    value?.k === 'list'
      ? value.items.length
      : value?.k === 'record'
        ? value.entries.length
        : value?.k === 'literal' && value.of === 'string'
          ? value.value.length
          : undefined;
  const bound = numeric(expected);
  if (length === undefined || bound === undefined) return undefined;
  const holds = {
    equal: length === bound,
    greater: length > bound,
    'at-least': length >= bound,
    less: length < bound,
    'at-most': length <= bound,
  }[measure.relation as string];
  return holds !== true ? undefined : length === 0 && measure.relation === 'equal' ? 'as much' : 'more';
}

const alternatives = (e: Expr | undefined): string[] =>
  e === undefined ? [] : e.k === 'list' ? e.items.map(printed) : [printed(e)];

/** What nearly every failure is one of. */
const BROAD =
  /^(Exception|BaseException|Throwable|Error|object|std::exception|RuntimeException|Exception \. class|Throwable \. class|Error \. class|RuntimeException \. class)$/;

function relateThrows(before: Atom, after: Atom): Change {
  const [was, is] = [alternatives(before.expected), alternatives(after.expected)];
  if (was.join() !== is.join()) {
    const rank = (types: readonly string[]): number =>
      types.length === 0 ? 3 : types.some((each) => BROAD.test(each)) ? 2 : 1;
    if (rank(is) !== rank(was)) return rank(is) > rank(was) ? 'weaker' : 'stronger';
    if (was.every((each) => is.includes(each))) return 'weaker';
    if (is.every((each) => was.includes(each))) return 'stronger';
    return 'changed';
  }
  if (!after.message) return 'weaker';
  if (!before.message) return 'stronger';
  const [old, now] = [before.message, after.message];
  if (old.k !== 'literal' || now.k !== 'literal') return 'unclear';
  const bare = (value: string): string => value.replace(/^\^|\$$/g, '');
  if (bare(old.value).includes(bare(now.value))) return 'weaker';
  if (bare(now.value).includes(bare(old.value))) return 'stronger';
  return 'changed';
}

/** That `subject` comes to an end without failing: what a test without assertions says. */
export const runs = (subject: Expr): Atom => ({ relation: 'runs', subject });

export const throws = (subject: Expr, expected?: Expr, message?: Expr): Atom => ({
  relation: 'throws',
  subject,
  ...(expected ? { expected } : {}),
  ...(message ? { message } : {}),
});
