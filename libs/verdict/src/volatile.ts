/**
 * Tokens that may differ between two honest runs: a time, a duration, a random name. Text is cut into tokens, and
 * two tokens that differ are excused only where both are of one named class; the token beside them is not.
 */

import { areClocks, areDurations, areMoments, readDuration, type Span } from './moment.js';

/** Closed: nothing else is ever excused. */
export type VolatileClass =
  'time' | 'duration' | 'uuid' | 'commit' | 'pid' | 'port' | 'inode' | 'temp-name' | 'padding' | 'cache';

/** What one run knows of itself that a token of it can be held against. */
export interface Run extends Span {
  /** Whether the hash (possibly abbreviated, lower case) is of an object that this very run made. */
  readonly made: (hash: string) => boolean;
  /** Folders whose entries get random names, without a slash at the end. */
  readonly temporary: readonly string[];
}

/** Whether a token of the class is made by chance: then two replays that give the same one did not make it so. */
export const isRandom = (kind: VolatileClass): boolean => kind === 'uuid' || kind === 'temp-name';

/**
 * Whether a token of the class is measured: then replays that differ in it have measured it anew, each as long as it
 * took, and do not agree on what it should have been.
 */
export const isMeasured = (kind: VolatileClass | undefined): boolean => kind === 'duration';

/** A token as it stands in the text, and what it would be excused as. */
interface Token {
  readonly text: string;
  readonly class: VolatileClass | undefined;
  /** Line of the text, from 0. */
  readonly line: number;
}

const MONTH = '(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*';
const DAY = '(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*';
const CLOCK = String.raw`\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:\s?[AaPp][Mm])?`;
const ZONE = String.raw`(?:\s?(?:Z|UTC|GMT(?:[+-]\d{4})?|[A-Z]{3,4}|[+-]\d{2}:?\d{2}))`;

/** Most telling first: a text is read by the first that fits at a place. */
const CLASSES: readonly (readonly [VolatileClass, string])[] = [
  ['uuid', String.raw`\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b`],
  ['time', String.raw`\b\d{4}-\d{2}-\d{2}(?:[T ]${CLOCK}${ZONE}?)?(?![\w-])`],
  ['time', String.raw`\b\d{1,4}/\d{1,2}/\d{1,4}(?:,?\s${CLOCK}${ZONE}?)?(?![\w/])`],
  [
    'time',
    String.raw`\b${DAY},?\s${MONTH}\s+\d{1,2}(?:\s\d{4})?\s${CLOCK}(?:${ZONE})?(?:\s\d{4})?(?:\s[+-]\d{4})?(?:\s\([A-Za-z ]+\))?`,
  ],
  ['time', String.raw`\b(?:${DAY},?\s)?\d{1,2}\s${MONTH}\s\d{4}(?:\s${CLOCK}${ZONE}?)?`],
  ['time', String.raw`\b${MONTH}\s+\d{1,2},?\s+(?:\d{4}(?:,?\s${CLOCK})?|${CLOCK})`],
  ['time', String.raw`(?<![\d:.])${CLOCK}(?![\d:])`],
  ['time', String.raw`(?<![\w.])1\d{9}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?(?![\w])`],
  [
    'duration',
    String.raw`(?<![\w.])(?:\d+\s?(?:h|hours?|hrs?)\s?)?(?:\d+\s?(?:m|min|mins|minutes?)\s?)?\d+(?:\.\d+)?\s?(?:ns|µs|μs|us|ms|s|secs?|seconds?|milliseconds?|microseconds?|minutes?|hours?)\b`,
  ],
  ['pid', String.raw`(?<=\b(?:pid|PID|Pid|process|Process|process id)[\s:=#(\[]{1,3})\d{1,7}\b`],
  ['port', String.raw`(?<=(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]|::1):)\d{2,5}\b`],
  ['port', String.raw`(?<=\b[Pp]ort[\s:=#]{1,3})\d{2,5}\b`],
  // A workspace that is made again has other inodes, perhaps on another device.
  ['inode', String.raw`(?<=\b[Ii]node[\s:=#]{1,3})\d{1,20}\b`],
  ['inode', String.raw`(?<=\bDevice:[ ])[0-9a-fhd,/]+(?=[ \t]+Inode:)`],
  ['commit', String.raw`\b[0-9a-f]{7,64}\b`],
  ['padding', String.raw`([=\-─_*~ ])\1{2,}`],
];

const PATH_CHARACTER = String.raw`[^\s"'<>:;,()\[\]{}|]`;
/** A number is one token with its fraction and thousands: half of it may be alike in two replays by chance. */
const NUMBER = String.raw`\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?`;
const REST = String.raw`[A-Za-z_]+|${NUMBER}|\s|[^]`;

/** One expression for a list of temporary folders: made once per pair of runs, since these differ by run. */
function expression(temporary: readonly string[]): RegExp {
  const folders = temporary.map((folder) => folder.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`));
  const names = folders.length === 0 ? '(?!)' : `(?:${folders.join('|')})/${PATH_CHARACTER}+`;
  // Groups of a class must not count: the repeated character of `padding` is the only one, and it is the last.
  const classes = CLASSES.map(
    ([, source], i) => `(?<c${i}>${source.replace(String.raw`\1`, '\\k<r>').replace('([=', '(?<r>[=')})`,
  );
  return new RegExp(`(?<temp>${names})|${classes.join('|')}|${REST}`, 'gu');
}

/** Cuts texts of one run into tokens. */
export class Tokenizer {
  readonly #expression: RegExp;

  constructor(temporary: readonly string[]) {
    this.#expression = expression(temporary);
  }

  tokens(text: string): Token[] {
    const tokens: Token[] = [];
    let line = 0;
    for (const match of text.matchAll(this.#expression)) {
      const [token] = match;
      tokens.push({ text: token, class: classOf(match.groups), line });
      for (let i = token.indexOf('\n'); i >= 0; i = token.indexOf('\n', i + 1)) line++;
    }
    return tokens;
  }
}

function classOf(groups: Record<string, string> | undefined): VolatileClass | undefined {
  if (groups === undefined) return undefined;
  if (groups['temp'] !== undefined) return 'temp-name';
  const index = CLASSES.findIndex((_, i) => groups[`c${i}`] !== undefined);
  return CLASSES[index]?.[0];
}

const EPHEMERAL = 1024;

/**
 * The class as which `a` of the record and `b` of a replay may differ, or undefined. `padding` is granted here by
 * itself; whether its line earns it is for `compareText` to see.
 */
export function excuse(a: Token, b: Token, runA: Run, runB: Run): VolatileClass | undefined {
  if (a.class === undefined || a.class !== b.class) return undefined;
  switch (a.class) {
    case 'uuid':
      return 'uuid';
    case 'duration':
      return areDurations(readDuration(a.text), readDuration(b.text), runA, runB) ? 'duration' : undefined;
    case 'time':
      return areMoments(a.text, b.text, runA, runB) ? 'time' : undefined;
    case 'commit':
      return a.text.length === b.text.length && runA.made(a.text) && runB.made(b.text) ? 'commit' : undefined;
    case 'pid':
      return isBelow(a.text, 4_194_304) && isBelow(b.text, 4_194_304) ? 'pid' : undefined;
    case 'port':
      return isEphemeral(a.text) && isEphemeral(b.text) ? 'port' : undefined;
    case 'inode':
      return 'inode';
    case 'temp-name':
      return sameShape(a.text, b.text, runA, runB) ? 'temp-name' : undefined;
    case 'cache':
      return undefined;
    case 'padding':
      return a.text[0] === b.text[0] ? 'padding' : undefined;
  }
}

const isBelow = (digits: string, limit: number): boolean => Number(digits) > 0 && Number(digits) < limit;
const isEphemeral = (digits: string): boolean => Number(digits) >= EPHEMERAL && Number(digits) <= 65_535;

/** Equal below their temporary folders but for segments with a random part of one length (at least six characters). */
const sameShape = (a: string, b: string, runA: Run, runB: Run): boolean =>
  sameName(below(a, runA), below(b, runB));

/** Whether two paths are equal but for segments with a random part of one length, of at least six characters. */
export function sameName(a: string, b: string): boolean {
  const [left, right] = [a, b].map((path) => path.split('/'));
  if (left === undefined || right === undefined || left.length !== right.length) return false;
  return left.every((segment, i) => {
    const other = right[i] as string;
    if (segment === other) return true;
    if (segment.length !== other.length) return false;
    let [start, end] = [0, segment.length];
    while (segment[start] === other[start]) start++;
    while (segment[end - 1] === other[end - 1]) end--;
    // Random parts may agree at their ends by chance: the whole run of letters and digits around them counts.
    while (start > 0 && /\w/.test(segment[start - 1] as string)) start--;
    while (end < segment.length && /\w/.test(segment[end] as string)) end++;
    return (
      end - start >= 6 && /^\w+$/.test(segment.slice(start, end)) && /^\w+$/.test(other.slice(start, end))
    );
  });
}

function below(path: string, run: Run): string {
  const folder = run.temporary.find((each) => path.startsWith(`${each}/`));
  return folder === undefined ? path : path.slice(folder.length + 1);
}

/** By the name of a member, what a number under it may be. */
const NUMBERS: readonly (readonly [VolatileClass, RegExp])[] = [
  ['pid', /(?:^|_|\b)p?pid$|processId$/i],
  ['port', /(?:^|_)port$|Port$/],
  ['inode', /^(?:st_)?(?:ino|inode|dev)$/],
  [
    'duration',
    /(?:duration|elapsed|took|latency|uptime|runtime)(?:_?(?:ns|us|ms|s|sec|seconds|millis))?$|(?:^|_)ms$|Ms$/i,
  ],
  [
    'time',
    /(?:^|_)(?:now|time|timestamp|date|epoch)$|(?:time|timestamp|at|atime|ctime|birthtime)(?:_?ms|_?ns)?$/i,
  ],
];

/** Whether numbers under a name are measured. */
export const isMeasuredName = (name: string): boolean =>
  isMeasured(NUMBERS.find(([, pattern]) => pattern.test(name))?.[0]);

/** As `excuse`, of two numbers of a JSON document under one name. */
export function excuseNumber(
  name: string,
  a: number,
  b: number,
  runA: Run,
  runB: Run,
): VolatileClass | undefined {
  for (const [kind, pattern] of NUMBERS) {
    if (!pattern.test(name)) continue;
    if (kind === 'duration') {
      const unit = unitOf(name);
      return areDurations(a * unit, b * unit, runA, runB) ? kind : undefined;
    }
    if (kind === 'pid')
      return isBelow(String(a), 4_194_304) && isBelow(String(b), 4_194_304) ? kind : undefined;
    if (kind === 'inode') return a >= 0 && b >= 0 ? kind : undefined;
    if (kind === 'port') return isEphemeral(String(a)) && isEphemeral(String(b)) ? kind : undefined;
    break;
  }
  return areClocks(a, b, runA, runB) ? 'time' : undefined;
}

/** Milliseconds in the unit that a member's name ends with; where it does not, as though it were these. */
function unitOf(name: string): number {
  if (/(?:_s|_?sec|_?seconds)$/i.test(name)) return 1000;
  return /_?us$/i.test(name) ? 1e-3 : /_?ns$/i.test(name) ? 1e-6 : 1;
}
