/** Whether an answer was reproduced: the recorded one against those of several replays, token by token. */

import {
  excuse,
  excuseNumber,
  isMeasured,
  isMeasuredName,
  isRandom,
  type Run,
  Tokenizer,
  type VolatileClass,
} from './volatile.js';

/** A place where the recorded answer and a replayed one differ, with the texts that stood there. */
export interface Difference {
  /** JSON Pointer (RFC 6901) to the value; `#` stands before what was parsed out of a text. */
  readonly path: string;
  /** Line within the text, from 1; absent for other values. */
  readonly line?: number;
  readonly recorded: string;
  readonly replayed: string;
}

export interface VolatileToken extends Difference {
  readonly class: VolatileClass;
}

/** What several replays say of one recorded value. The lists may all have members; `outcome` is the worst. */
export interface Comparison {
  readonly outcome: 'reproduced' | 'volatile' | 'reordered' | 'unstable' | 'different';
  /** Differs as tokens of a named class may. */
  readonly volatile: readonly VolatileToken[];
  /** The same members in another order. */
  readonly reordered: readonly Difference[];
  /** The replays differ from each other, too: nothing can be said. */
  readonly unstable: readonly Difference[];
  /** The replays agree with each other and not with the recording. */
  readonly different: readonly Difference[];
}

/** Lists stop here; the outcome does not depend on what is left out. */
const MAX_LISTED = 32;
/** Characters of a token or value shown as evidence. */
const MAX_SHOWN = 200;
/** Larger differing texts are compared by lines, not by tokens. */
const MAX_TOKENIZED = 4 * 1024 * 1024;
const MAX_DEPTH = 256;

/** The runs in the order of the values compared: the recording first. */
export interface Runs {
  readonly recorded: Run;
  readonly replays: readonly Run[];
}

/**
 * Compares the recorded value with what each replay gave. A difference counts as `different` only when there are at
 * least two replays and they agree: with fewer, or where they disagree, it is `unstable`.
 *
 * @throws RangeError when the number of replayed values is not that of the replays, or is 0
 */
export function compare(recorded: unknown, replayed: readonly unknown[], runs: Runs): Comparison {
  if (replayed.length === 0 || replayed.length !== runs.replays.length) {
    throw new RangeError(`${replayed.length} replayed values for ${runs.replays.length} replays`);
  }
  const finding = new Finding(runs);
  finding.value('', '', [recorded, ...replayed], 0);
  return finding.result();
}

class Finding {
  readonly #runs: readonly Run[];
  readonly #tokenizers: readonly Tokenizer[];
  readonly #volatile: VolatileToken[] = [];
  readonly #reordered: Difference[] = [];
  readonly #unstable: Difference[] = [];
  readonly #different: Difference[] = [];

  constructor({ recorded, replays }: Runs) {
    this.#runs = [recorded, ...replays];
    this.#tokenizers = this.#runs.map((run) => new Tokenizer(run.temporary));
  }

  result(): Comparison {
    const outcome =
      this.#different.length > 0
        ? 'different'
        : this.#unstable.length > 0
          ? 'unstable'
          : this.#reordered.length > 0
            ? 'reordered'
            : this.#volatile.length > 0
              ? 'volatile'
              : 'reproduced';
    return {
      outcome,
      volatile: this.#volatile,
      reordered: this.#reordered,
      unstable: this.#unstable,
      different: this.#different,
    };
  }

  /** `values`: the recorded one, then one per replay; undefined where there is none. */
  value(path: string, name: string, values: readonly unknown[], depth: number): void {
    const [recorded] = values;
    if (values.every((value) => equal(value, recorded))) return;
    if (depth < MAX_DEPTH) {
      if (allStrings(values)) return this.#text(path, values, depth);
      if (values.every((value) => typeof value === 'number')) return this.#number(path, name, values);
      if (allArrays(values) && values.every((value) => value.length === values[0]?.length)) {
        return this.#array(path, name, values, depth);
      }
      if (allObjects(values)) {
        for (const key of new Set(values.flatMap((value) => Object.keys(value)))) {
          this.value(
            `${path}/${escape(key)}`,
            key,
            values.map((value) => own(value, key)),
            depth + 1,
          );
        }
        return;
      }
    }
    this.#differs({ path }, values, (a, b) => equal(a, b));
  }

  #array(path: string, name: string, values: readonly (readonly unknown[])[], depth: number): void {
    const [recorded] = values as readonly [readonly unknown[]];
    const inOrder = new Finding({ recorded: this.#runs[0] as Run, replays: this.#runs.slice(1) });
    for (const i of recorded.keys()) {
      inOrder.value(
        `${path}/${i}`,
        name,
        values.map((value) => value[i]),
        depth + 1,
      );
    }
    const permuted = inOrder.result();
    if (
      (permuted.outcome === 'different' || permuted.outcome === 'unstable') &&
      values.every((value) => isPermutation(recorded.map(canonical), value.map(canonical)))
    ) {
      this.#add(this.#reordered, {
        path,
        recorded: show(recorded),
        replayed: show(values.find((v) => !equal(v, recorded))),
      });
      return;
    }
    for (const each of permuted.volatile) this.#add(this.#volatile, each);
    for (const each of permuted.reordered) this.#add(this.#reordered, each);
    for (const each of permuted.unstable) this.#add(this.#unstable, each);
    for (const each of permuted.different) this.#add(this.#different, each);
  }

  #number(path: string, name: string, values: readonly number[]): void {
    this.#position({ path }, values, isMeasuredName(name), (i, j) =>
      excuseNumber(name, values[i] as number, values[j] as number, this.#run(i), this.#run(j)),
    );
  }

  #text(path: string, values: readonly string[], depth: number): void {
    const documents = values.map(parsed);
    if (documents.every((document) => document !== undefined)) {
      const inner = new Finding({ recorded: this.#runs[0] as Run, replays: this.#runs.slice(1) });
      inner.value(`${path}#`, '', documents, depth + 1);
      const { outcome } = inner.result();
      // The same document in another layout is another text: then its tokens decide.
      if (outcome !== 'reproduced') {
        for (const each of inner.#volatile) this.#add(this.#volatile, each);
        for (const each of inner.#reordered) this.#add(this.#reordered, each);
        for (const each of inner.#unstable) this.#add(this.#unstable, each);
        for (const each of inner.#different) this.#add(this.#different, each);
        return;
      }
    }
    const { start, middles } = withoutCommonLines(values);
    if (middles.some((middle) => middle.length > MAX_TOKENIZED)) {
      this.#differs({ path, line: start + 1 }, middles, (a, b) => a === b);
      return;
    }
    if (this.#isReordered(middles)) {
      this.#add(this.#reordered, {
        path,
        line: start + 1,
        recorded: show(middles[0]),
        replayed: show(middles.find((middle) => middle !== middles[0])),
      });
      return;
    }
    const tokens = middles.map((middle, i) => this.#tokenizers[i]?.tokens(middle) ?? []);
    const [recorded] = tokens as [(typeof tokens)[number]];
    if (tokens.some((each) => each.length !== recorded.length)) {
      this.#unaligned(path, start, middles, tokens);
      return;
    }
    const earned = linesThatShift(middles, tokens);
    for (const i of recorded.keys()) {
      const texts = tokens.map((each) => each[i]?.text ?? '');
      const line = recorded[i]?.line ?? 0;
      const measured = tokens.every((each) => isMeasured(each[i]?.class));
      this.#position({ path, line: start + line + 1 }, texts, measured, (a, b) => {
        const [left, right] = [tokens[a]?.[i], tokens[b]?.[i]];
        if (left === undefined || right === undefined) return undefined;
        const excused = excuse(left, right, this.#run(a), this.#run(b));
        return excused === 'padding' && !earned.has(line) ? undefined : excused;
      });
    }
  }

  /** Texts that can't be laid side by side: alike only as wholes. */
  #unaligned(
    path: string,
    start: number,
    middles: readonly string[],
    tokens: readonly (readonly { readonly text: string }[])[],
  ): void {
    const same = (a: string, b: string): boolean => {
      if (a === b) return true;
      const [i, j] = [middles.indexOf(a), middles.indexOf(b)];
      if (tokens[i]?.length !== tokens[j]?.length) return false;
      const pair = new Finding({ recorded: this.#run(i), replays: [this.#run(j)] });
      pair.#text('', [a, b], MAX_DEPTH);
      return pair.#unstable.length === 0 && pair.#different.length === 0 && pair.#reordered.length === 0;
    };
    this.#differs({ path, line: start + 1 }, middles, same);
  }

  #isReordered(middles: readonly string[]): boolean {
    const [recorded = ''] = middles;
    const lines = recorded.split('\n');
    return lines.length > 1 && middles.every((middle) => isPermutation(lines, middle.split('\n')));
  }

  /** One place of all values: excused, or different, or unstable. Of what is `measured`, only equal values agree. */
  #position(
    at: { readonly path: string; readonly line?: number },
    values: readonly unknown[],
    measured: boolean,
    excused: (i: number, j: number) => VolatileClass | undefined,
  ): void {
    const [recorded] = values;
    const classes = new Map<number, VolatileClass>();
    for (let j = 1; j < values.length; j++) {
      if (values[j] === recorded) continue;
      const kind = excused(0, j);
      if (kind === undefined) {
        const agree = (i: number): boolean =>
          values[i] === values[j] || (!measured && excused(i, j) !== undefined);
        const replays = values.map((_, i) => i).slice(1);
        this.#settle(at, values, j, replays.length > 1 && replays.every(agree));
        return;
      }
      classes.set(j, kind);
    }
    const [[, first] = []] = classes;
    if (first !== undefined && isRandom(first) && values.length > 2 && new Set(values.slice(1)).size === 1) {
      this.#settle(at, values, 1, true);
      return;
    }
    for (const [j, kind] of classes) {
      this.#add(this.#volatile, { ...at, class: kind, recorded: show(recorded), replayed: show(values[j]) });
      return;
    }
  }

  #differs<T>(
    at: { readonly path: string; readonly line?: number },
    values: readonly T[],
    same: (a: T, b: T) => boolean,
  ): void {
    const [recorded, ...replayed] = values as readonly [T, ...T[]];
    const j = replayed.findIndex((value) => !same(recorded, value)) + 1;
    if (j === 0) return;
    const first = replayed[j - 1] as T;
    this.#settle(at, values, j, replayed.length > 1 && replayed.every((value) => same(first, value)));
  }

  #settle(
    at: { readonly path: string; readonly line?: number },
    values: readonly unknown[],
    j: number,
    agreed: boolean,
  ): void {
    this.#add(agreed ? this.#different : this.#unstable, {
      ...at,
      recorded: show(values[0]),
      replayed: show(values[j]),
    });
  }

  #run(i: number): Run {
    return this.#runs[i] as Run;
  }

  #add<T>(list: T[], each: T): void {
    if (list.length < MAX_LISTED) list.push(each);
  }
}

/** Lines in which a token of another length is excused and that are of one length all the same: padding made up for it. */
function linesThatShift(
  middles: readonly string[],
  tokens: readonly (readonly {
    readonly text: string;
    readonly class: VolatileClass | undefined;
    readonly line: number;
  }[])[],
): Set<number> {
  const lines = middles.map((middle) => middle.split('\n'));
  const [recorded] = tokens;
  const shifted = new Set<number>();
  for (const [i, token] of (recorded ?? []).entries()) {
    if (token.class === undefined || token.class === 'padding') continue;
    if (tokens.some((each) => each[i]?.text.length !== token.text.length)) shifted.add(token.line);
  }
  return new Set(
    [...shifted].filter((line) => lines.every((each) => each[line]?.length === lines[0]?.[line]?.length)),
  );
}

/** The texts without the whole lines that all of them begin and end with; `start` is the number of those in front. */
function withoutCommonLines(values: readonly string[]): { start: number; middles: string[] } {
  const lines = values.map((value) => value.split('\n'));
  const shortest = Math.min(...lines.map((each) => each.length));
  const [recorded = []] = lines;
  let start = 0;
  while (start < shortest && lines.every((each) => each[start] === recorded[start])) start++;
  let end = 0;
  while (
    end < shortest - start &&
    lines.every((each) => each[each.length - 1 - end] === recorded[recorded.length - 1 - end])
  ) {
    end++;
  }
  return { start, middles: lines.map((each) => each.slice(start, each.length - end).join('\n')) };
}

/** Of what has a form to compare by; undefined has none, and is no member of either. */
function isPermutation(a: readonly (string | undefined)[], b: readonly (string | undefined)[]): boolean {
  const isForm = (each: string | undefined): each is string => each !== undefined;
  const [left, right] = [a, b].map((members) => members.filter(isForm).toSorted()) as [string[], string[]];
  if (left.length !== a.length || right.length !== b.length || a.length !== b.length) return false;
  return left.every((each, i) => each === right[i]);
}

/** The document that a text is, if it is an object or array and all that is written there is in what was read. */
function parsed(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    const document = JSON.parse(text) as unknown;
    return isRead(text, document) ? document : undefined;
  } catch {
    return undefined;
  }
}

/** Whether no member was written twice, and no number with more digits than are kept. */
function isRead(text: string, document: unknown): boolean {
  let written = 0;
  for (const match of text.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?|(?<![\d.])\d{16,}/g)) {
    if (!match[0].startsWith('"')) return false;
    if (match[1] !== undefined) written++;
  }
  let read = 0;
  for (const waiting = [document]; waiting.length > 0;) {
    const value = waiting.pop();
    if (typeof value !== 'object' || value === null) continue;
    if (!Array.isArray(value)) read += Object.keys(value).length;
    for (const member of Object.values(value) as unknown[]) waiting.push(member);
  }
  return written === read;
}

/** As deep as either may be: neither is walked by calls. */
function equal(a: unknown, b: unknown): boolean {
  const waiting: [unknown, unknown][] = [[a, b]];
  for (let pair = waiting.pop(); pair !== undefined; pair = waiting.pop()) {
    const [left, right] = pair;
    if (left === right) continue;
    if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null)
      return false;
    if (Array.isArray(left) !== Array.isArray(right)) return false;
    const [names, others] = [Object.keys(left), Object.keys(right)];
    if (names.length !== others.length) return false;
    for (const name of names) {
      if (!Object.hasOwn(right, name)) return false;
      waiting.push([own(left as Members, name), own(right as Members, name)]);
    }
  }
  return true;
}

type Members = Readonly<Record<string, unknown>>;

/** JSON with sorted members: a form to compare by, not one to hash. Undefined for what is nested too deeply for it. */
function canonical(value: unknown): string | undefined {
  try {
    return (
      JSON.stringify(value, (_, member: unknown) =>
        typeof member === 'object' && member !== null && !Array.isArray(member)
          ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
          : member,
      ) ?? ''
    );
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

const allStrings = (values: readonly unknown[]): values is readonly string[] =>
  values.every((value) => typeof value === 'string');
const allArrays = (values: readonly unknown[]): values is readonly (readonly unknown[])[] =>
  values.every((value) => Array.isArray(value));
const allObjects = (values: readonly unknown[]): values is readonly Readonly<Record<string, unknown>>[] =>
  values.every((value) => typeof value === 'object' && value !== null && !Array.isArray(value));
const own = (value: Readonly<Record<string, unknown>>, key: string): unknown =>
  Object.hasOwn(value, key) ? value[key] : undefined;
const escape = (key: string): string => key.replaceAll('~', '~0').replaceAll('/', '~1');

function show(value: unknown): string {
  const text =
    typeof value === 'string'
      ? value
      : value === undefined
        ? '(nothing)'
        : (canonical(value) ?? '(too deep to show)');
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
}
