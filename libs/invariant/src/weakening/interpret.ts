/**
 * What a test asserts, found by going through its code as it would run: names stand for their values, helpers for what
 * they do, tables and literal loops for each of their rows. So an assertion is the same assertion whether it stands in
 * the test, in a helper, in a loop over a table or behind a variable, and one that can not be reached is known as such.
 */

import type { Atom } from './assertion.js';
import { constantTruth, formula, isConstant, keyOf, plain, runs, throws } from './assertion.js';
import type { Call, Env, Expr, Func, Stmt } from './code.js';
import {
  FALSE,
  NOTHING,
  TRUE,
  bind,
  call,
  calledIn,
  dotted,
  exprsOf,
  lastName,
  list,
  literal,
  name,
  namesOf,
  print,
  printed,
  resolve,
  text,
  within,
} from './code.js';
import type { Dialect, Mock, Skip, TestCase } from './test-file.js';

/** How far an assertion takes part when its test runs. */
export type Reach = 'reached' | 'unreachable' | 'swallowed' | 'floating';

export interface Guard {
  readonly text: string;
  /** About where the test runs (a variable of the environment, a platform), not about what it tests. */
  readonly place: boolean;
}

export interface Assertion {
  readonly atom: Atom;
  readonly key: string;
  /** As written, with the names of variables in it. */
  readonly surface: string;
  readonly subject: readonly string[];
  readonly expected: readonly string[];
  readonly guards: readonly Guard[];
  readonly reach: Reach;
  /** True where it holds whatever the code under test does. */
  readonly constant: boolean | undefined;
  readonly line: number;
}

export interface Run {
  readonly assertions: readonly Assertion[];
  readonly skips: readonly Skip[];
  readonly mocks: readonly Mock[];
  /** Names called on the way, whether or not anything is asserted about them. */
  readonly called: ReadonlySet<string>;
  /** Tables whose rows are not written out; printed. */
  readonly tables: readonly string[];
  /** There is more than was looked at. */
  readonly truncated: boolean;
}

/** Methods that change what they are called on. */
const MUTATORS =
  /^(append|push|extend|insert|add|update|set|pop|shift|unshift|remove|delete|clear|splice|sort|reverse|setdefault|put|fill|push_back|addAll)$/;
const MAX_ASSERTIONS = 3_000;
/** Resolving with it only keeps an expression within bounds. */
const NO_NAMES: Env = new Map([['', NOTHING]]);
const MAX_ROWS = 200;
const MAX_STEPS = 40_000;
const MAX_DEPTH = 4;

type Flow = 'on' | 'out' | 'failed';

interface Frame {
  readonly env: Map<string, Expr>;
  guards: readonly Guard[];
  readonly reach: Reach;
  readonly depth: number;
  readonly inside: readonly Func[];
  /** The line in the test that led here. */
  readonly site?: number;
}

/** Calls of such a name assert, as far as anyone can tell who does not see their code. */
const ASSERTING =
  /^(assert|check|verify|expect|ensure|validate|should|must|require)(?![a-z])|^(assert|verify|expect|check|ensure)_/;

export type Helpers = ReadonlyMap<string, Func>;

export function interpret(test: TestCase, dialect: Dialect, helpers: Helpers): Run {
  return new Interpreter(dialect, helpers).run(test);
}

/** Whether a function asserts anything, by itself or by what it calls. */
export const asserting = (fn: Func, dialect: Dialect, helpers: Helpers): boolean =>
  new Interpreter(dialect, helpers).asserts(fn);

class Interpreter {
  readonly #dialect: Dialect;
  readonly #helpers: Helpers;
  readonly #assertions: Assertion[] = [];
  readonly #held = new Set<string>();
  readonly #skips: Skip[] = [];
  readonly #mocks: Mock[] = [];
  readonly #calls: { readonly e: Expr; readonly frame: Frame; readonly line: number }[] = [];
  readonly #asserting = new Map<Func, boolean>();
  #truncated = false;
  /** Names of the test that functions inside it change, whenever those are called. */
  #shifting: ReadonlySet<string> = new Set();
  #steps = 0;

  constructor(dialect: Dialect, helpers: Helpers) {
    this.#dialect = dialect;
    this.#helpers = helpers;
  }

  run(test: TestCase): Run {
    const env = new Map<string, Expr>();
    this.#prelude(test.prelude, env);
    const frame: Frame = { env, guards: [], reach: 'reached', depth: 0, inside: [] };
    for (const setup of test.setups) {
      const known = this.#assertions.length;
      this.#walk(setup.body, frame);
      // What a set-up asserts is asserted for every test; it is not what this one is about.
      this.#assertions.length = known;
    }
    this.#shifting = changedInside(test.fn.body);
    const before = this.#calls.length;
    const tables: string[] = [];
    for (const each of this.#rows(test, env, tables)) {
      const inner: Frame = { ...frame, env: each };
      this.#walk(test.fn.body, inner);
      if (test.ends) {
        const subject: Expr = { k: 'other', parts: [...exprsOf(test.fn.body)] };
        this.#record(throws(subject, test.ends.expected, test.ends.message), inner, test.fn.line);
      }
    }
    if (this.#assertions.length === 0) {
      for (const { e, frame: at, line } of this.#calls.slice(before)) this.#record(runs(e), at, line);
    }
    return {
      assertions: this.#assertions,
      skips: [...test.skips, ...this.#skips],
      mocks: [...test.mocks, ...this.#mocks],
      called: new Set([
        ...this.#calls.slice(before).flatMap(({ e }) => [...calledIn(print(e))]),
        ...this.#assertions.flatMap(({ subject, expected }) => [...calledIn(subject), ...calledIn(expected)]),
      ]),
      tables,
      truncated: this.#truncated,
    };
  }

  /** Names of the surrounding scopes that are given a value once. */
  #prelude(stmts: readonly Stmt[], env: Map<string, Expr>): void {
    const times = new Map<string, number>();
    const assigned = stmts.flatMap((stmt) => (stmt.k === 'assign' ? [stmt] : []));
    for (const { target, op } of assigned) {
      for (const each of namesOf(target)) times.set(each, (times.get(each) ?? 0) + (op === '=' ? 1 : 2));
    }
    for (const e of exprsOf(stmts)) {
      for (const each of within(e)) {
        if (each.k === 'call' && each.callee.k === 'member' && MUTATORS.test(each.callee.name))
          times.set(dotted(each.callee.of), 2);
      }
    }
    for (const { target, value } of assigned) {
      if (namesOf(target).every((each) => times.get(each) === 1)) bind(target, resolve(value, env), env);
    }
  }

  #rows(test: TestCase, env: ReadonlyMap<string, Expr>, tables: string[]): Map<string, Expr>[] {
    let found = [new Map(env)];
    for (const param of test.fn.params) {
      for (const each of namesOf(param)) {
        // A value of its own is what it has where nobody gives another.
        const own = test.fn.defaults?.get(each);
        for (const one of found) {
          if (own) one.set(each, own);
          else one.delete(each);
        }
      }
    }
    for (const { pattern, rows } of test.tables) {
      const all = rowsOf(resolve(rows, env));
      if (!all || all.length * found.length > MAX_ROWS) {
        tables.push(printed(resolve(rows, env)));
        if (all) this.#truncated = true;
        continue;
      }
      found = found.flatMap((one) =>
        all.map((row) => {
          const joined = new Map(one);
          bind(pattern, row, joined);
          return joined;
        }),
      );
    }
    return found;
  }

  #walk(stmts: readonly Stmt[], frame: Frame): Flow {
    for (const [at, stmt] of stmts.entries()) {
      if (++this.#steps > MAX_STEPS) {
        this.#truncated = true;
        return 'out';
      }
      const flow = this.#stmt(stmt, frame);
      if (flow !== 'on') {
        const rest = stmts.slice(at + 1);
        if (rest.length > 0) this.#walk(rest, { ...frame, reach: 'unreachable', env: new Map(frame.env) });
        return flow;
      }
    }
    return 'on';
  }

  #stmt(stmt: Stmt, frame: Frame): Flow {
    const { env } = frame;
    switch (stmt.k) {
      case 'expr':
        return this.#eval(stmt.e, frame, stmt.line, { statement: true });
      case 'assert':
        this.#eval(stmt.e, frame, stmt.line, {});
        for (const atom of formula(stmt.e, true, this.#dialect.predicate))
          this.#record(atom, frame, stmt.line);
        return 'on';
      case 'assign': {
        const flow = this.#eval(stmt.value, frame, stmt.line, { used: true });
        this.#standIn(stmt.target, stmt.value, frame, stmt.line);
        const value = resolve(stmt.value, env);
        const { target } = stmt;
        if (target.k === 'member' || target.k === 'index') {
          // What is set on an object is only known to be there where the object is the test's own.
          if (target.k === 'member' && /^(self|this|cls)$/.test(dotted(target.of))) bind(target, value, env);
          this.#mutated(target.of, ['set', value], env);
        } else if (target.k === 'name' && this.#shifting.has(target.name)) {
          env.set(target.name, { k: 'other', parts: ['at first', value] });
        } else
          bind(
            target,
            stmt.op === '=' ? value : { k: 'other', parts: [resolve(target, env), stmt.op, value] },
            env,
          );
        return flow;
      }
      case 'function':
        env.set(stmt.fn.name, { k: 'function', fn: stmt.fn });
        return 'on';
      case 'block':
        return this.#walk(stmt.body, frame);
      case 'if':
        return this.#if(stmt, frame);
      case 'loop':
        return this.#loop(stmt, frame);
      case 'while': {
        this.#eval(stmt.cond, frame, stmt.line, {});
        const never = this.#truth(stmt.cond, env) === false;
        const inner = { ...frame, env: new Map(env), ...(never ? { reach: 'unreachable' as const } : {}) };
        this.#walk(stmt.body, inner);
        this.#join(env, [inner.env]);
        return 'on';
      }
      case 'with':
        return this.#with(stmt, frame);
      case 'try':
        return this.#try(stmt, frame);
      case 'return':
        if (stmt.e) this.#eval(stmt.e, frame, stmt.line, { used: true, returned: true });
        return 'out';
      case 'raise': {
        const raised = stmt.e ? printed(stmt.e) : '';
        if (this.#dialect.skipErrors.test(raised)) {
          this.#skip('skip', frame, stmt.line);
          return 'on';
        }
        return 'failed';
      }
      case 'leave':
        return 'out';
    }
  }

  #if(stmt: Stmt & { k: 'if' }, frame: Frame): Flow {
    const { env } = frame;
    this.#eval(stmt.cond, frame, stmt.line, {});
    // `if got != want { t.Errorf(...) }` asserts that they are equal.
    const { predicate } = this.#dialect;
    if (this.#fails(stmt.yes)) {
      for (const atom of formula(stmt.cond, false, predicate)) this.#record(atom, frame, stmt.line);
      return this.#walk(stmt.no, frame);
    }
    if (this.#fails(stmt.no)) {
      for (const atom of formula(stmt.cond, true, predicate)) this.#record(atom, frame, stmt.line);
      return this.#walk(stmt.yes, frame);
    }
    const truth = this.#truth(stmt.cond, env);
    if (truth !== undefined) {
      const [taken, left] = truth ? [stmt.yes, stmt.no] : [stmt.no, stmt.yes];
      this.#walk(left, { ...frame, env: new Map(env), reach: 'unreachable' });
      return this.#walk(taken, frame);
    }
    const guards = [true, false].map((positive) => this.#guard(stmt.cond, positive, env)) as [
      Guard[],
      Guard[],
    ];
    const branches = [stmt.yes, stmt.no].map((body, at) => {
      const inner: Frame = {
        ...frame,
        env: new Map(env),
        guards: [...frame.guards, ...(guards[at] as Guard[])],
      };
      return { flow: this.#walk(body, inner), env: inner.env };
    });
    const going = branches.filter(({ flow }) => flow === 'on');
    this.#join(
      env,
      going.map((each) => each.env),
    );
    if (going.length === 0) return 'out';
    for (const [at, { flow }] of branches.entries()) {
      // What follows is only reached by way of the other branch.
      if (flow === 'out') frame.guards = [...frame.guards, ...(guards[1 - at] as Guard[])];
    }
    return 'on';
  }

  #guard(cond: Expr, positive: boolean, env: Env): Guard[] {
    const resolved = resolve(cond, env);
    const atoms = formula(resolved, positive, this.#dialect.predicate);
    // A condition that was asserted before holds: this only tells the compiler.
    if (atoms.every((atom) => this.#held.has(keyOf(plain(atom))))) return [];
    const place =
      this.#dialect.aboutPlace.test(printed(resolved)) || this.#dialect.aboutPlace.test(printed(cond));
    return [{ text: atoms.map(keyOf).join(' and '), place }];
  }

  #loop(stmt: Stmt & { k: 'loop' }, frame: Frame): Flow {
    const { env } = frame;
    if (stmt.over) this.#eval(stmt.over, frame, stmt.line, {});
    const over = stmt.over && resolve(stmt.over, env);
    const rows = over && rowsOf(over);
    if (rows && rows.length <= MAX_ROWS) {
      if (rows.length === 0) this.#walk(stmt.body, { ...frame, env: new Map(env), reach: 'unreachable' });
      for (const row of rows) {
        if (stmt.pattern) bind(stmt.pattern, row, env);
        const { guards } = frame;
        this.#walk(stmt.body, frame);
        frame.guards = guards;
      }
      return 'on';
    }
    const inner: Frame = { ...frame, env: new Map(env) };
    if (stmt.pattern) bind(stmt.pattern, call(name('$each'), over ? [over] : []), inner.env);
    this.#walk(stmt.body, inner);
    this.#join(env, [inner.env]);
    return 'on';
  }

  #with(stmt: Stmt & { k: 'with' }, frame: Frame): Flow {
    const { env } = frame;
    const entering = this.#dialect.entering(stmt.item);
    if (stmt.as) bind(stmt.as, call(name('$with'), [resolve(stmt.item, env)]), env);
    if (entering?.is === 'throws') {
      this.#record(
        throws({ k: 'other', parts: [...exprsOf(stmt.body)] }, entering.expected, entering.message),
        frame,
        stmt.line,
      );
    } else if (entering?.is === 'mock') {
      this.#mocks.push({ target: entering.target, module: false, line: stmt.line });
    } else if (!entering) this.#eval(stmt.item, frame, stmt.line, {});
    // A failed assertion is what is waited for there.
    const awaited =
      entering?.is === 'throws' &&
      entering.expected !== undefined &&
      print(entering.expected).some((each) => this.#dialect.catchesAssertions.test(each));
    const quiet = (entering?.is === 'suppress' || awaited) && frame.reach === 'reached';
    const flow = this.#walk(stmt.body, quiet ? { ...frame, reach: 'swallowed' } : frame);
    // What raises as expected ends the block, not the test.
    return entering?.is === 'throws' || entering?.is === 'suppress' ? 'on' : flow;
  }

  #try(stmt: Stmt & { k: 'try' }, frame: Frame): Flow {
    const { env } = frame;
    const { catchesAssertions } = this.#dialect;
    const caught = (at: number): void => {
      const handler = stmt.handlers[at];
      if (!handler) return;
      if (handler.as !== undefined) env.set(handler.as, call(name('$caught'), handler.catches.map(name)));
    };
    // `try { f(); fail() } catch (X)`: that it throws X.
    if (stmt.handlers.length > 0 && this.#fails(stmt.body)) {
      const body = stmt.body.filter((each) => !this.#fails([each]));
      const types = stmt.handlers.flatMap(({ catches }) => catches);
      const expected =
        types.length === 0
          ? undefined
          : types.length === 1
            ? name(types[0] as string)
            : list(types.map(name));
      const swallowed = stmt.handlers.some(
        ({ catches, body: handled }) =>
          catches.some((each) => catchesAssertions.test(each)) && !this.#speaks(handled),
      );
      if (!swallowed)
        this.#record(throws({ k: 'other', parts: [...exprsOf(body)] }, expected), frame, stmt.line);
      for (const [at, handler] of stmt.handlers.entries()) {
        caught(at);
        this.#walk(handler.body, frame);
      }
      return this.#walk(stmt.last, frame);
    }
    const swallows = stmt.handlers.some(
      ({ catches, body }) =>
        (catches.length === 0 || catches.some((each) => catchesAssertions.test(each))) && !this.#speaks(body),
    );
    // What returns at last forgets what was raised.
    const forgets = stmt.last.some(({ k }) => k === 'return' || k === 'leave');
    const quiet = (swallows || forgets) && frame.reach === 'reached';
    // Names that are given values inside may not have got them.
    const inner: Frame =
      stmt.handlers.length > 0
        ? { ...frame, env: new Map(env), ...(quiet ? { reach: 'swallowed' } : {}) }
        : quiet
          ? { ...frame, reach: 'swallowed' }
          : frame;
    const flow = this.#walk(stmt.body, inner);
    if (inner !== frame) this.#join(env, [inner.env]);
    for (const [at, handler] of stmt.handlers.entries()) {
      caught(at);
      const guard = { text: `caught ${handler.catches.join(' or ')}`, place: false };
      const handled = new Map(env);
      this.#walk(handler.body, { ...frame, env: handled, guards: [...frame.guards, guard] });
      this.#join(env, [handled]);
    }
    this.#walk(stmt.last, frame);
    return stmt.handlers.length > 0 ? 'on' : flow;
  }

  /** Whether the statements, once begun, fail the test: no matter what else they do. */
  #fails(stmts: readonly Stmt[]): boolean {
    return stmts.some((stmt) => {
      switch (stmt.k) {
        case 'expr':
          return [stmt.e.k === 'await' ? stmt.e.of : stmt.e].some(
            (e) => e.k === 'call' && this.#dialect.meaning(e, true)?.is === 'fail',
          );
        case 'raise':
          return (
            stmt.e !== undefined &&
            this.#dialect.failures.test(printed(stmt.e)) &&
            !this.#dialect.skipErrors.test(printed(stmt.e))
          );
        case 'assert':
          return formula(stmt.e, true, this.#dialect.predicate).some((atom) => constantTruth(atom) === false);
        case 'block':
          return this.#fails(stmt.body);
        default:
          return false;
      }
    });
  }

  /** Whether a handler says anything: it raises again, fails or asserts. */
  #speaks(stmts: readonly Stmt[]): boolean {
    return (
      stmts.some((stmt) => stmt.k === 'raise' || stmt.k === 'assert') ||
      this.#asserts({ name: '', params: [], body: stmts, line: 0, endLine: 0 }, 0)
    );
  }

  #truth(cond: Expr, env: Env): boolean | undefined {
    const atoms = formula(resolve(cond, env), true, this.#dialect.predicate);
    // `x == x` is false of a number that is none: only what is made of literals is known.
    const known = atoms.map((atom) =>
      atom.expected && !isConstant(atom.expected) ? undefined : constantTruth(atom),
    );
    if (known.includes(false)) return false;
    return known.every((each) => each === true) ? true : undefined;
  }

  /** A list or record written out that is changed afterwards is no longer what was written. */
  #mutated(of: Expr, how: readonly (string | Expr)[], env: Map<string, Expr>): void {
    if (of.k !== 'name' && of.k !== 'member') return;
    const key = dotted(of);
    const value = env.get(key);
    if (
      value &&
      (value.k === 'list' || value.k === 'record' || (value.k === 'other' && value.parts[1] === 'then'))
    ) {
      const parts = value.k === 'other' ? value.parts : [value, 'then'];
      env.set(key, resolve({ k: 'other', parts: [...parts, ...how] }, NO_NAMES));
    }
  }

  /** Names given other values on some of the ways here have both. */
  #join(env: Map<string, Expr>, others: readonly Env[]): void {
    for (const other of others) {
      for (const [key, value] of other) {
        const known = env.get(key);
        if (known === value) continue;
        if (known === undefined) env.set(key, value);
        else env.set(key, { k: 'other', parts: ['either', known, 'or', value] });
      }
    }
  }

  #eval(
    e: Expr,
    frame: Frame,
    line: number,
    how: {
      readonly awaited?: boolean;
      readonly statement?: boolean;
      readonly used?: boolean;
      readonly returned?: boolean;
    },
  ): Flow {
    switch (e.k) {
      case 'await':
        return this.#eval(e.of, frame, line, { ...how, awaited: true });
      case 'call':
        return this.#call(e, frame, line, how);
      case 'binary': {
        const flow = this.#eval(e.left, frame, line, {});
        const short = e.op === 'and' || e.op === 'or';
        const guard = short ? this.#guard(e.left, e.op === 'and', frame.env) : [];
        this.#eval(e.right, short ? { ...frame, guards: [...frame.guards, ...guard] } : frame, line, {});
        return flow;
      }
      case 'not':
        return this.#eval(e.of, frame, line, {});
      case 'member':
        return this.#eval(e.of, frame, line, {});
      case 'index':
        this.#eval(e.of, frame, line, {});
        return this.#eval(e.at, frame, line, {});
      case 'list':
        for (const each of e.items) this.#eval(each, frame, line, { used: true });
        return 'on';
      case 'record':
        for (const { value } of e.entries) this.#eval(value, frame, line, { used: true });
        return 'on';
      case 'other':
        for (const each of e.parts)
          if (typeof each !== 'string') this.#eval(each, frame, line, { used: true });
        return 'on';
      case 'name':
      case 'literal':
      case 'function':
        return 'on';
    }
  }

  #call(
    e: Call,
    frame: Frame,
    line: number,
    how: {
      readonly awaited?: boolean;
      readonly statement?: boolean;
      readonly used?: boolean;
      readonly returned?: boolean;
    },
  ): Flow {
    if (++this.#steps > MAX_STEPS) {
      this.#truncated = true;
      return 'on';
    }
    const at = e.line || line;
    const awaited = how.awaited === true || how.returned === true || how.used === true;
    const { env } = frame;
    // What a name stands for may be what means something: `const check = expect(x)`.
    const meaning = this.#dialect.meaning(e, awaited) ?? this.#dialect.meaning(shallow(e, env), awaited);
    switch (meaning?.is) {
      case 'assertion': {
        const floating = meaning.floats === true && !awaited && frame.reach === 'reached';
        for (const atom of meaning.atoms)
          this.#record(atom, floating ? { ...frame, reach: 'floating' } : frame, at);
        for (const fn of meaning.inside ?? []) this.#callback(fn, frame, []);
        // Arguments may assert for themselves: `assertAll(() -> ...)`, `expect(await f(() => ...))`.
        for (const each of argumentsOf(e)) if (each.k === 'call') this.#eval(each, frame, at, { used: true });
        return 'on';
      }
      case 'fail':
        return 'failed';
      case 'skip':
        if (meaning.condition && this.#truth(meaning.condition, env) === false) return 'on';
        this.#skip(meaning.kind, frame, at, meaning.condition);
        return 'on';
      case 'exit':
        return 'out';
      case 'mock':
        this.#mocks.push({ target: meaning.target, module: meaning.module, line: at });
        return 'on';
      case 'nothing':
        return 'on';
      case undefined:
    }
    const fn = this.#target(e, env);
    if (fn) {
      this.#inline(fn, e, frame, at);
      return 'on';
    }
    const last = lastName(e.callee);
    const known = this.#helpers.has(last);
    if (how.statement && !known && ASSERTING.test(last)) {
      this.#record(
        {
          relation: `custom ${last}`,
          subject: call(
            name(last),
            e.args.map(({ value }) => bodiless(value)),
          ),
        },
        frame,
        at,
      );
    } else if (how.statement) {
      if (e.callee.k === 'member')
        this.#mutated(e.callee.of, [last, ...e.args.map(({ value }) => resolve(value, env))], env);
      this.#calls.push({ e: resolve(bodiless(e), env), frame: { ...frame, guards: frame.guards }, line: at });
    }
    // `cases.forEach(([a, b]) => ...)` is a loop.
    const [first] = e.args;
    if (
      first?.value.k === 'function' &&
      e.callee.k === 'member' &&
      /^(forEach|for_each|map|each)$/.test(e.callee.name)
    ) {
      const [row, ...rest] = first.value.fn.params;
      this.#loop(
        {
          k: 'loop',
          line: at,
          over: e.callee.of,
          ...(row ? { pattern: row } : {}),
          body: first.value.fn.body,
        },
        { ...frame, env: without(env, rest) },
      );
      return 'on';
    }
    const callee = e.callee.k === 'member' ? e.callee.of : e.callee;
    const quiet = last === 'catch' && first?.value.k === 'function' && !this.#speaks(first.value.fn.body);
    this.#eval(callee, quiet && frame.reach === 'reached' ? { ...frame, reach: 'swallowed' } : frame, at, {
      ...how,
      statement: false,
    });
    // A panic is caught there as an exception is elsewhere.
    const inside: Frame =
      last === 'catch_unwind' && frame.reach === 'reached' ? { ...frame, reach: 'swallowed' } : frame;
    const later =
      /^(then|setTimeout|setImmediate|nextTick|catch|finally)$/.test(last) &&
      !awaited &&
      frame.reach === 'reached';
    for (const { value } of e.args) {
      const given = value.k === 'name' ? (env.get(value.name) ?? value) : value;
      if (given.k === 'function')
        this.#callback(given.fn, later ? { ...frame, reach: 'floating' } : inside, []);
      else this.#eval(value, inside, at, { used: true });
    }
    return 'on';
  }

  /** The code behind a call, where it is ours to see and asserts something. */
  #target(e: Call, env: Env): Func | undefined {
    const { callee } = e;
    if (callee.k === 'function') return callee.fn;
    if (callee.k === 'name') {
      const local = env.get(callee.name);
      if (local?.k === 'function') return local.fn;
    }
    if (callee.k !== 'name' && !(callee.k === 'member' && callee.of.k === 'name')) return undefined;
    const helper = this.#helpers.get(lastName(callee));
    return helper && this.#asserts(helper, 0) ? helper : undefined;
  }

  asserts(fn: Func): boolean {
    return this.#asserts(fn, 0);
  }

  #asserts(fn: Func, depth: number): boolean {
    const known = this.#asserting.get(fn);
    if (known !== undefined) return known;
    if (depth > MAX_DEPTH) return false;
    this.#asserting.set(fn, false);
    const found =
      hasAssert(fn.body, this.#dialect) ||
      [...exprsOf(fn.body)].some((e) => {
        for (const each of within(e)) {
          if (each.k !== 'call') continue;
          const meaning = this.#dialect.meaning(each, true);
          if (meaning && ['assertion', 'fail', 'skip'].includes(meaning.is)) return true;
          const last = lastName(each.callee);
          const helper = this.#helpers.get(last);
          if (helper ? this.#asserts(helper, depth + 1) : ASSERTING.test(last)) return true;
        }
        return false;
      });
    this.#asserting.set(fn, found);
    return found;
  }

  #inline(fn: Func, e: Call, frame: Frame, line: number): void {
    if (frame.depth >= MAX_DEPTH || frame.inside.includes(fn)) {
      this.#truncated ||= frame.depth >= MAX_DEPTH && this.#asserts(fn, 0);
      return;
    }
    const env = new Map(frame.env);
    for (const [key, value] of fn.defaults ?? []) env.set(key, value);
    let at = 0;
    const params = fn.params.filter((param) => !(param.k === 'name' && /^(self|cls|this)$/.test(param.name)));
    for (const { name: called, value } of e.args) {
      const given = resolve(value, frame.env);
      if (called !== undefined) env.set(called, given);
      else {
        const param = params[at++];
        if (param) bind(param, given, env);
      }
    }
    this.#walk(fn.body, {
      ...frame,
      env,
      depth: frame.depth + 1,
      inside: [...frame.inside, fn],
      site: frame.site ?? line,
    });
    if (frame.env.get(fn.name)?.k === 'function') this.#shared(fn, env, frame.env);
  }

  #callback(fn: Func, frame: Frame, args: readonly Expr[]): void {
    if (frame.depth >= 4 * MAX_DEPTH || frame.inside.includes(fn)) return;
    const env = new Map(frame.env);
    for (const [at, param] of fn.params.entries()) bind(param, args[at] ?? name(`$arg${at}`), env);
    this.#walk(fn.body, { ...frame, env, depth: frame.depth + 1, inside: [...frame.inside, fn] });
    this.#shared(fn, env, frame.env);
  }

  /** A function changes the variables around it, when it is called: they may have either value. */
  #shared(fn: Func, inner: Env, env: Map<string, Expr>): void {
    const own = new Set(fn.params.flatMap(namesOf));
    this.#join(env, [new Map([...inner].filter(([key]) => env.has(key) && !own.has(key)))]);
  }

  #skip(kind: Skip['kind'], frame: Frame, line: number, condition?: Expr): void {
    if (frame.reach === 'unreachable') return;
    const always = condition && this.#truth(condition, frame.env) === true;
    const said = [
      ...frame.guards.map((guard) => guard.text),
      ...(condition && !always ? [printed(resolve(condition, frame.env))] : []),
    ];
    this.#skips.push({ kind, line, ...(said.length > 0 ? { condition: said.join(' and ') } : {}) });
  }

  /** `shop.price = lambda: 2`, `module.f = jest.fn()`: a stand-in put in the place of something. */
  #standIn(target: Expr, value: Expr, frame: Frame, line: number): void {
    if (target.k !== 'member' || /^(self|this|cls|\$)/.test(dotted(target.of))) return;
    const stands =
      value.k === 'function' ||
      (value.k === 'call' && /(Mock|^fn|stub|fake|spy|^mock)/i.test(lastName(value.callee)));
    if (stands && frame.env.get(dotted(target.of)) === undefined) {
      this.#mocks.push({ target: target.name, module: false, line });
    }
  }

  #record(raw: Atom, frame: Frame, line: number): void {
    if (this.#assertions.length >= MAX_ASSERTIONS) {
      this.#truncated = true;
      return;
    }
    for (const atom of this.#refined(raw, frame.env)) {
      const key = keyOf(atom);
      if (frame.reach === 'reached' && frame.guards.length === 0) this.#held.add(key);
      this.#assertions.push({
        atom,
        key,
        surface: keyOf(raw),
        subject: print(atom.subject),
        expected: atom.expected ? print(atom.expected) : [],
        guards: frame.guards,
        reach: frame.reach,
        constant: isEmptyTalk(raw, atom) ? constantTruth(atom) : undefined,
        line: frame.site ?? line,
      });
    }
  }

  /** The atom with values in the place of names; one about a condition becomes what the condition says. */
  #refined(raw: Atom, env: Env): Atom[] {
    const part = (e: Expr | undefined): Expr | undefined => e && resolve(e, env);
    const subject = resolve(raw.subject, env);
    const expected = part(raw.expected);
    const tolerance = part(raw.tolerance);
    const message = part(raw.message);
    const { predicate } = this.#dialect;
    if (raw.relation === 'any-of') {
      const members = (raw.members ?? []).flatMap((each) => this.#refined(each, env));
      return [{ ...raw, members, subject: { k: 'other', parts: members.map(keyOf).sort() } }];
    }
    const compound =
      subject.k === 'not' ||
      subject.k === 'binary' ||
      (subject.k === 'call' && predicate(subject) !== undefined);
    if (compound) {
      const sign =
        raw.relation === 'equal' || raw.relation === 'same'
          ? expected && printed(expected) === printed(TRUE)
            ? true
            : expected && printed(expected) === printed(FALSE)
              ? false
              : undefined
          : raw.relation === 'truthy'
            ? true
            : raw.relation === 'falsy'
              ? false
              : undefined;
      if (sign !== undefined) return formula(subject, sign, predicate);
    }
    return [
      plain({
        ...raw,
        subject,
        ...(expected ? { expected } : {}),
        ...(tolerance ? { tolerance } : {}),
        ...(message ? { message } : {}),
      }),
    ];
  }
}

/** Names given values in the statements that functions in them give other values, or change in place. */
function changedInside(stmts: readonly Stmt[]): Set<string> {
  const own = new Set(assignedIn(stmts));
  const changed = new Set<string>();
  const inside = (fn: Func): void => {
    for (const each of assignedIn(fn.body)) changed.add(each);
    for (const e of exprsOf(fn.body)) {
      for (const each of within(e)) {
        if (each.k === 'call' && each.callee.k === 'member' && MUTATORS.test(each.callee.name)) {
          changed.add(dotted(each.callee.of));
        }
      }
    }
  };
  for (const stmt of stmts) if (stmt.k === 'function') inside(stmt.fn);
  for (const e of exprsOf(stmts, false)) {
    for (const each of within(e, false)) if (each.k === 'function') inside(each.fn);
  }
  return new Set([...changed].filter((each) => own.has(each)));
}

/** Names that statements give values to, functions in them left out. */
function assignedIn(stmts: readonly Stmt[]): string[] {
  return stmts.flatMap((stmt): string[] => {
    switch (stmt.k) {
      case 'assign':
        return stmt.target.k === 'member' ? [] : namesOf(stmt.target);
      case 'if':
        return [...assignedIn(stmt.yes), ...assignedIn(stmt.no)];
      case 'loop':
      case 'while':
      case 'with':
      case 'block':
        return assignedIn(stmt.body);
      case 'try':
        return [
          ...assignedIn(stmt.body),
          ...stmt.handlers.flatMap(({ body }) => assignedIn(body)),
          ...assignedIn(stmt.last),
        ];
      default:
        return [];
    }
  });
}

/** What functions do that are handed on is gone through by itself. */
function bodiless(e: Expr): Expr {
  switch (e.k) {
    case 'function':
      return name('$function');
    case 'call':
      return {
        ...e,
        callee: bodiless(e.callee),
        args: e.args.map((each) => ({ ...each, value: bodiless(each.value) })),
      };
    case 'member':
    case 'await':
      return { ...e, of: bodiless(e.of) };
    case 'list':
      return list(e.items.map(bodiless));
    case 'record':
      return { k: 'record', entries: e.entries.map(({ key, value }) => ({ key, value: bodiless(value) })) };
    default:
      return e;
  }
}

/**
 * Whether an atom that always holds does so by what is written. `old = f(); change(); assert f() == old` comes to
 * `f() == f()` and says something all the same.
 */
function isEmptyTalk(raw: Atom, atom: Atom): boolean {
  if (!atom.expected || (isConstant(atom.subject) && isConstant(atom.expected))) return true;
  if (raw.expected && printed(raw.subject) === printed(raw.expected)) return true;
  return !print(atom.subject).includes('(');
}

/** The call with its chain of callees resolved, and its arguments as they are. */
function shallow(e: Call, env: Env): Call {
  const chain = (callee: Expr): Expr => {
    switch (callee.k) {
      case 'name': {
        const value = env.get(callee.name);
        return value && (value.k === 'call' || value.k === 'member') ? value : callee;
      }
      case 'member':
        return { ...callee, of: chain(callee.of) };
      case 'call':
        return { ...callee, callee: chain(callee.callee) };
      default:
        return callee;
    }
  };
  return { ...e, callee: chain(e.callee) };
}

function without(env: Env, params: readonly Expr[]): Map<string, Expr> {
  const left = new Map(env);
  for (const param of params) for (const each of namesOf(param)) left.delete(each);
  return left;
}

/** Arguments of a call and of the calls its callee is chained on: of `a(b).c(d)`, `b` and `d`. */
function argumentsOf(e: Call): Expr[] {
  const found = e.args.map(({ value }) => value);
  let callee: Expr = e.callee;
  while (callee.k === 'member' || callee.k === 'call') {
    if (callee.k === 'call') found.push(...callee.args.map(({ value }) => value));
    callee = callee.k === 'member' ? callee.of : callee.callee;
  }
  return found;
}

function hasAssert(stmts: readonly Stmt[], dialect: Dialect): boolean {
  return stmts.some((stmt) => {
    switch (stmt.k) {
      case 'assert':
        return true;
      case 'raise':
        return stmt.e !== undefined && dialect.failures.test(printed(stmt.e));
      case 'if':
        return hasAssert(stmt.yes, dialect) || hasAssert(stmt.no, dialect);
      case 'loop':
      case 'while':
      case 'block':
        return hasAssert(stmt.body, dialect);
      case 'with':
        return dialect.entering(stmt.item)?.is === 'throws' || hasAssert(stmt.body, dialect);
      case 'try':
        return (
          hasAssert(stmt.body, dialect) ||
          hasAssert(stmt.last, dialect) ||
          stmt.handlers.some(({ body }) => hasAssert(body, dialect))
        );
      default:
        return false;
    }
  });
}

/** What a loop over `e` goes through, where that is written out. */
function rowsOf(e: Expr): readonly Expr[] | undefined {
  if (e.k === 'list') return e.items;
  if (e.k !== 'call') return undefined;
  const last = lastName(e.callee);
  const [first] = e.args;
  if (
    e.callee.k === 'name' &&
    /^(list|tuple|sorted|iter|enumerate|\$entries|\$values)$/.test(e.callee.name) &&
    first
  ) {
    return e.callee.name === 'enumerate' || e.callee.name === '$entries'
      ? entriesOf(first.value)
      : rowsOf(first.value);
  }
  if (e.callee.k !== 'member') return undefined;
  if (/^(items|entries)$/.test(last)) {
    return entriesOf(first && printed(e.callee.of) === 'Object' ? first.value : e.callee.of);
  }
  if (/^(iter|into_iter|stream|values|copied|cloned)$/.test(last)) return rowsOf(e.callee.of);
  if (last === 'enumerate') return entriesOf(e.callee.of);
  if (/^(of|asList)$/.test(last) && /^(List|Stream|Arrays|Set)$/.test(printed(e.callee.of)))
    return e.args.map(({ value }) => value);
  return undefined;
}

function entriesOf(e: Expr): Expr[] | undefined {
  if (e.k === 'record') return e.entries.map(({ key, value }) => list([text(key), value]));
  return rowsOf(e)?.map((each, at) => list([literal('number', String(at)), each]));
}
