/**
 * What a test's code is to the comparison: expressions and statements that say the same in every language. Each front
 * end lowers its syntax tree to these; what it has no word for becomes `other`, with the expressions inside it kept, so
 * that nothing is lost from sight.
 */

export type Expr =
  | { readonly k: 'name'; readonly name: string }
  | { readonly k: 'literal'; readonly of: LiteralKind; readonly value: string }
  | Call
  | { readonly k: 'member'; readonly of: Expr; readonly name: string }
  | { readonly k: 'index'; readonly of: Expr; readonly at: Expr }
  | { readonly k: 'binary'; readonly op: string; readonly left: Expr; readonly right: Expr }
  | { readonly k: 'not'; readonly of: Expr }
  | { readonly k: 'list'; readonly items: readonly Expr[] }
  | { readonly k: 'record'; readonly entries: readonly Entry[] }
  | { readonly k: 'function'; readonly fn: Func }
  | { readonly k: 'await'; readonly of: Expr }
  | { readonly k: 'other'; readonly parts: readonly (string | Expr)[] };

export type LiteralKind = 'number' | 'string' | 'boolean' | 'nothing' | 'pattern';

export interface Call {
  readonly k: 'call';
  readonly callee: Expr;
  readonly args: readonly Argument[];
  readonly line: number;
}

export interface Argument {
  readonly name?: string;
  readonly value: Expr;
}

export interface Entry {
  readonly key: string;
  readonly value: Expr;
}

export interface Func {
  readonly name: string;
  /** Patterns: a name, a list of patterns, a record of patterns. */
  readonly params: readonly Expr[];
  /** Values of parameters that a caller may leave out, by name. */
  readonly defaults?: ReadonlyMap<string, Expr>;
  readonly body: readonly Stmt[];
  readonly line: number;
  readonly endLine: number;
}

export type Stmt = { readonly line: number } & (
  | { readonly k: 'expr'; readonly e: Expr }
  | { readonly k: 'assign'; readonly target: Expr; readonly value: Expr; readonly op: string }
  | { readonly k: 'if'; readonly cond: Expr; readonly yes: readonly Stmt[]; readonly no: readonly Stmt[] }
  | { readonly k: 'loop'; readonly pattern?: Expr; readonly over?: Expr; readonly body: readonly Stmt[] }
  | { readonly k: 'while'; readonly cond: Expr; readonly body: readonly Stmt[] }
  | {
      readonly k: 'try';
      readonly body: readonly Stmt[];
      readonly handlers: readonly Handler[];
      readonly last: readonly Stmt[];
    }
  | { readonly k: 'with'; readonly item: Expr; readonly as?: Expr; readonly body: readonly Stmt[] }
  | { readonly k: 'return'; readonly e?: Expr }
  | { readonly k: 'raise'; readonly e?: Expr }
  | { readonly k: 'leave' }
  | { readonly k: 'function'; readonly fn: Func }
  | { readonly k: 'block'; readonly body: readonly Stmt[] }
  | { readonly k: 'assert'; readonly e: Expr }
);

export interface Handler {
  /** Names of what is caught; empty: everything. */
  readonly catches: readonly string[];
  readonly as?: string;
  readonly body: readonly Stmt[];
}

export const name = (text: string): Expr => ({ k: 'name', name: text });
export const literal = (of: LiteralKind, value: string): Expr => ({ k: 'literal', of, value });
export const text = (value: string): Expr => literal('string', value);
export const list = (items: readonly Expr[]): Expr => ({ k: 'list', items });
export const member = (of: Expr, called: string): Expr => ({ k: 'member', of, name: called });
export const call = (callee: Expr, args: readonly Expr[], line = 0): Call => ({
  k: 'call',
  callee,
  args: args.map((value) => ({ value })),
  line,
});
export const NOTHING: Expr = literal('nothing', 'null');
export const TRUE: Expr = literal('boolean', 'true');
export const FALSE: Expr = literal('boolean', 'false');

/** A number's one way of being written: `1_000`, `0x3E8`, `1000L` and `1e3` are one number. */
export function number(written: string): Expr {
  const plain = written
    .replaceAll('_', '')
    .replace(/^(0[xX][\da-fA-F]+|0[bB][01]+|0[oO][0-7]+|[\d.]+(?:[eE][+-]?\d+)?)(?:[a-zA-Z]\w*)?$/, '$1');
  const value = Number(plain);
  return literal('number', plain === '' || Number.isNaN(value) ? written : String(value));
}

/** A dotted name: `t.Errorf`, `pytest.mark.skip`. Calls and indexes inside are left out: `expect(x).not.toBe` is `expect().not.toBe`. */
export function dotted(e: Expr): string {
  switch (e.k) {
    case 'name':
      return e.name;
    case 'member':
      return `${dotted(e.of)}.${e.name}`;
    case 'call':
      return `${dotted(e.callee)}()`;
    case 'await':
      return dotted(e.of);
    default:
      return '?';
  }
}

export const lastName = (e: Expr): string => dotted(e).replace(/^.*[.:]/, '');

/** Values of names; dotted paths (`self.x`) are names too. */
export type Env = ReadonlyMap<string, Expr>;

/** How large an expression may become by putting values in place of names. Beyond, its digest stands for it. */
const MAX_TOKENS = 400;

/** `e` with the values of names in their place. */
export function resolve(e: Expr, env: Env): Expr {
  if (env.size === 0) return e;
  switch (e.k) {
    case 'literal':
      return e;
    case 'name':
      return env.get(e.name) ?? e;
    case 'member': {
      const known = env.get(dotted(e));
      if (known) return known;
      const of = resolve(e.of, env);
      const entry = of.k === 'record' ? of.entries.find(({ key }) => key === e.name) : undefined;
      return entry?.value ?? bounded(member(of, e.name));
    }
    case 'index': {
      const of = resolve(e.of, env);
      const at = resolve(e.at, env);
      return element(of, at) ?? bounded({ k: 'index', of, at });
    }
    case 'call':
      return bounded({
        ...e,
        callee: resolve(e.callee, env),
        args: e.args.map((each) => ({ ...each, value: resolve(each.value, env) })),
      });
    case 'binary':
      return bounded({ ...e, left: resolve(e.left, env), right: resolve(e.right, env) });
    case 'not':
    case 'await':
      return { ...e, of: resolve(e.of, env) };
    case 'list':
      return { k: 'list', items: e.items.map((each) => resolve(each, env)) };
    case 'record':
      return {
        k: 'record',
        entries: e.entries.map(({ key, value }) => ({ key, value: resolve(value, env) })),
      };
    case 'function': {
      if (sizeOf(e) > 4 * MAX_TOKENS) return e;
      const inner = new Map(env);
      for (const param of e.fn.params) for (const each of namesOf(param)) inner.delete(each);
      return { k: 'function', fn: { ...e.fn, body: mapStmts(e.fn.body, (each) => resolve(each, inner)) } };
    }
    case 'other':
      return bounded({
        k: 'other',
        parts: e.parts.map((each) => (typeof each === 'string' ? each : resolve(each, env))),
      });
  }
}

/** What a literal list or record holds at a literal place. */
function element(of: Expr, at: Expr): Expr | undefined {
  if (at.k !== 'literal') return undefined;
  if (of.k === 'list' && at.of === 'number') return of.items[Number(at.value)];
  if (of.k === 'record') return of.entries.find(({ key }) => key === at.value)?.value;
  return undefined;
}

function bounded(e: Expr): Expr {
  return sizeOf(e) > MAX_TOKENS ? { k: 'other', parts: [`#${digest(print(e))}`] } : e;
}

const sizes = new WeakMap<Expr, number>();

/** About how many tokens it has; functions count what is in them. */
function sizeOf(e: Expr): number {
  const known = sizes.get(e);
  if (known !== undefined) return known;
  let size = 1;
  switch (e.k) {
    case 'call':
      size += 2 + sizeOf(e.callee);
      for (const { value } of e.args) size += 1 + sizeOf(value);
      break;
    case 'member':
    case 'not':
    case 'await':
      size += 1 + sizeOf(e.of);
      break;
    case 'index':
      size += 2 + sizeOf(e.of) + sizeOf(e.at);
      break;
    case 'binary':
      size += sizeOf(e.left) + sizeOf(e.right);
      break;
    case 'list':
      for (const each of e.items) size += 1 + sizeOf(each);
      break;
    case 'record':
      for (const { value } of e.entries) size += 3 + sizeOf(value);
      break;
    case 'function':
      for (const each of exprsOf(e.fn.body)) size += 1 + sizeOf(each);
      break;
    case 'other':
      for (const each of e.parts) size += typeof each === 'string' ? 1 : sizeOf(each);
      break;
    case 'name':
    case 'literal':
  }
  sizes.set(e, size);
  return size;
}

/** FNV-1a: only tells long expressions apart within one comparison. */
function digest(tokens: readonly string[]): string {
  let hash = 0xcbf29ce484222325n;
  for (const token of tokens) {
    for (let at = 0; at < token.length; at++) {
      hash = ((hash ^ BigInt(token.charCodeAt(at))) * 0x100000001b3n) & 0xffffffffffffffffn;
    }
  }
  return hash.toString(16);
}

/** Names that a pattern binds. */
export function namesOf(pattern: Expr): string[] {
  switch (pattern.k) {
    case 'name':
      return [pattern.name];
    case 'list':
      return pattern.items.flatMap(namesOf);
    case 'record':
      return pattern.entries.flatMap(({ value }) => namesOf(value));
    case 'member':
      return [dotted(pattern)];
    default:
      return [];
  }
}

/** Gives the names in `pattern` the parts of `value`. */
export function bind(pattern: Expr, value: Expr, env: Map<string, Expr>): void {
  switch (pattern.k) {
    case 'name':
      if (pattern.name !== '_') env.set(pattern.name, value);
      return;
    case 'member':
      env.set(dotted(pattern), value);
      return;
    case 'list':
      for (const [at, each] of pattern.items.entries()) {
        const part = value.k === 'list' ? value.items[at] : undefined;
        bind(each, part ?? { k: 'index', of: value, at: literal('number', String(at)) }, env);
      }
      return;
    case 'record':
      for (const { key, value: each } of pattern.entries) {
        const part =
          value.k === 'record' ? value.entries.find((entry) => entry.key === key)?.value : undefined;
        bind(each, part ?? member(value, key), env);
      }
      return;
    default:
  }
}

/** The statements with every expression in them mapped. */
function mapStmts(stmts: readonly Stmt[], map: (e: Expr) => Expr): Stmt[] {
  return stmts.map((stmt): Stmt => {
    switch (stmt.k) {
      case 'expr':
      case 'assert':
        return { ...stmt, e: map(stmt.e) };
      case 'return':
      case 'raise':
        return stmt.e ? { ...stmt, e: map(stmt.e) } : stmt;
      case 'assign':
        return { ...stmt, value: map(stmt.value) };
      case 'if':
        return {
          ...stmt,
          cond: map(stmt.cond),
          yes: mapStmts(stmt.yes, map),
          no: mapStmts(stmt.no, map),
        };
      case 'loop':
        return { ...stmt, ...(stmt.over ? { over: map(stmt.over) } : {}), body: mapStmts(stmt.body, map) };
      case 'while':
        return { ...stmt, cond: map(stmt.cond), body: mapStmts(stmt.body, map) };
      case 'try':
        return {
          ...stmt,
          body: mapStmts(stmt.body, map),
          handlers: stmt.handlers.map((each) => ({ ...each, body: mapStmts(each.body, map) })),
          last: mapStmts(stmt.last, map),
        };
      case 'with':
        return { ...stmt, item: map(stmt.item), body: mapStmts(stmt.body, map) };
      case 'block':
        return { ...stmt, body: mapStmts(stmt.body, map) };
      case 'function':
        return { ...stmt, fn: { ...stmt.fn, body: mapStmts(stmt.fn.body, map) } };
      case 'leave':
        return stmt;
    }
  });
}

/** Every expression directly in the statements, in order; bodies of functions only where `deep`. */
export function* exprsOf(stmts: readonly Stmt[], deep = true): Generator<Expr> {
  for (const stmt of stmts) {
    switch (stmt.k) {
      case 'expr':
      case 'assert':
        yield stmt.e;
        break;
      case 'return':
      case 'raise':
        if (stmt.e) yield stmt.e;
        break;
      case 'assign':
        yield stmt.target;
        yield stmt.value;
        break;
      case 'if':
        yield stmt.cond;
        yield* exprsOf(stmt.yes, deep);
        yield* exprsOf(stmt.no, deep);
        break;
      case 'loop':
        if (stmt.over) yield stmt.over;
        yield* exprsOf(stmt.body, deep);
        break;
      case 'while':
        yield stmt.cond;
        yield* exprsOf(stmt.body, deep);
        break;
      case 'try':
        yield* exprsOf(stmt.body, deep);
        for (const each of stmt.handlers) yield* exprsOf(each.body, deep);
        yield* exprsOf(stmt.last, deep);
        break;
      case 'with':
        yield stmt.item;
        yield* exprsOf(stmt.body, deep);
        break;
      case 'block':
        yield* exprsOf(stmt.body, deep);
        break;
      case 'function':
        if (deep) yield* exprsOf(stmt.fn.body, deep);
        break;
      case 'leave':
    }
  }
}

/** `e` and every expression in it, outermost first; bodies of functions too where `deep`. */
export function* within(e: Expr, deep = true): Generator<Expr> {
  yield e;
  switch (e.k) {
    case 'call':
      yield* within(e.callee, deep);
      for (const { value } of e.args) yield* within(value, deep);
      break;
    case 'member':
    case 'not':
    case 'await':
      yield* within(e.of, deep);
      break;
    case 'index':
      yield* within(e.of, deep);
      yield* within(e.at, deep);
      break;
    case 'binary':
      yield* within(e.left, deep);
      yield* within(e.right, deep);
      break;
    case 'list':
      for (const each of e.items) yield* within(each, deep);
      break;
    case 'record':
      for (const { value } of e.entries) yield* within(value, deep);
      break;
    case 'function':
      if (deep) for (const each of exprsOf(e.fn.body)) yield* within(each, deep);
      break;
    case 'other':
      for (const each of e.parts) if (typeof each !== 'string') yield* within(each, deep);
      break;
    case 'name':
    case 'literal':
  }
}

/**
 * The tokens of an expression, the same for every way of writing it: quotes, parentheses, commas, line breaks and names
 * of a function's own parameters make no difference.
 */
export function print(e: Expr): string[] {
  const out: string[] = [];
  write(e, out);
  return out;
}

export const printed = (e: Expr): string => print(e).join(' ');

function write(e: Expr, out: string[]): void {
  // Beyond this an expression is only ever told apart by its digest.
  if (out.length > 4 * MAX_TOKENS) return;
  switch (e.k) {
    case 'name':
      out.push(e.name);
      return;
    case 'literal':
      out.push(e.of === 'string' ? JSON.stringify(e.value) : e.of === 'pattern' ? `/${e.value}/` : e.value);
      return;
    case 'call':
      write(e.callee, out);
      out.push('(');
      for (const [at, { name: called, value }] of e.args.entries()) {
        if (at > 0) out.push(',');
        if (called !== undefined) out.push(called, '=');
        write(value, out);
      }
      out.push(')');
      return;
    case 'member':
      write(e.of, out);
      out.push('.', e.name);
      return;
    case 'index':
      write(e.of, out);
      out.push('[');
      write(e.at, out);
      out.push(']');
      return;
    case 'binary':
      write(e.left, out);
      out.push(e.op);
      write(e.right, out);
      return;
    case 'not':
      out.push('!');
      write(e.of, out);
      return;
    case 'await':
      write(e.of, out);
      return;
    case 'list':
      out.push('[');
      for (const [at, each] of e.items.entries()) {
        if (at > 0) out.push(',');
        write(each, out);
      }
      out.push(']');
      return;
    case 'record':
      out.push('{');
      for (const { key, value } of [...e.entries].sort((a, b) => (a.key < b.key ? -1 : 1))) {
        out.push(JSON.stringify(key), ':');
        write(value, out);
        out.push(',');
      }
      out.push('}');
      return;
    case 'function': {
      const own = new Map<string, Expr>();
      for (const param of e.fn.params) for (const each of namesOf(param)) own.set(each, name(`$${own.size}`));
      const only = e.fn.body.length === 1 ? e.fn.body[0] : undefined;
      if (own.size > 0) out.push('=>', String(own.size));
      // A function of nothing that does one thing is that thing: `() => f()`, `() => { f(); }` and `lambda: f()`.
      if (only && (only.k === 'expr' || only.k === 'return') && only.e) {
        write(resolve(only.e, own), out);
        return;
      }
      out.push('{');
      for (const each of exprsOf(e.fn.body)) {
        write(resolve(each, own), out);
        out.push(';');
      }
      out.push('}');
      return;
    }
    case 'other':
      for (const each of e.parts) {
        if (typeof each === 'string') out.push(each);
        else write(each, out);
      }
  }
}

export const isLiteralToken = (token: string): boolean => /^("|\/.|-?\d|true$|false$|null$|#)/.test(token);

export const isNameToken = (token: string): boolean =>
  /^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(token) && !isLiteralToken(token);

/** The names that are called in printed tokens: `f`, and the method's name of `a.f()`. */
export function calledIn(tokens: readonly string[]): Set<string> {
  const found = new Set<string>();
  for (const [at, token] of tokens.entries()) {
    const before = tokens[at - 1];
    if (token === '(' && before !== undefined && isNameToken(before)) found.add(before);
  }
  return found;
}
