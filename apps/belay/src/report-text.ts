/** The words that every report of a verification uses, and what fits on a line of a terminal. */

import {
  type Cause,
  CAUSES,
  type Judgement,
  type Kind,
  meaningOf,
  type Status,
  type Verdict,
  worse,
} from '@belay/verdict';
import { printable } from './output.js';
import type { Integrity, Part, ShownChange, Verification } from './verification.js';

/** In the order of the columns. A claim is judged for the session only. */
export const KINDS = [
  'result',
  'effect',
  'contract',
  'egress',
  'invariant',
  'claim',
] as const satisfies Kind[];

/** Worst first: the order in which a reader wants them. */
export const WORST_FIRST = ['FAIL', 'UNVERIFIED', 'WARN', 'PASS'] as const satisfies Status[];

/** What a part is called: `turn 3`, `drift before turn 4`, `drift at the end`, `session`. */
export function nameOf(part: Part): string {
  if (part.type === 'turn') return `turn ${part.turn}`;
  if (part.type === 'session') return 'session';
  return part.before === undefined ? 'drift at the end' : `drift before turn ${part.before}`;
}

/** The tool of a turn, or who may have done it; as it came. */
export function whoOf(part: Part): string {
  if (part.type === 'turn') return part.tool ?? '(no name)';
  if (part.type === 'session') return 'its net change';
  return { server: 'by the server', outside: 'from outside', unknown: 'by nobody known' }[part.by];
}

/** What an axis came to, the worst where it was asked more than once; undefined where it was not asked. */
export function axisOf({ judgements }: Verdict, kind: Kind): Judgement['status'] | undefined {
  let found: Judgement['status'] | undefined;
  for (const each of judgements) {
    if (each.kind !== kind) continue;
    if (found === undefined || found === 'NOT_COVERED') found = each.status;
    else if (each.status !== 'NOT_COVERED') found = worse(found, each.status);
  }
  return found;
}

/** The judgement that decided; undefined for PASS, and where a cap did. */
export const decisive = ({ judgements, status, cause }: Verdict): Judgement | undefined =>
  cause === undefined ? undefined : judgements.find((each) => each.status === status && each.cause === cause);

/** One line on why it is not PASS; empty for PASS. As it came: not yet printable. */
export function messageOf(part: Part): string {
  const { verdict } = part;
  if (verdict.cause === undefined) return '';
  const why = missingOf(part, verdict.cause);
  return (decisive(verdict)?.message ?? sentence(verdict.cause)) + (why === undefined ? '' : ` (${why})`);
}

/** Why a state is missing, by the name that the record gives. */
function missingOf(part: Part, cause: Cause): string | undefined {
  if (part.type !== 'turn') return undefined;
  if (cause === 'PRE_STATE_MISSING') return part.missing?.pre;
  return cause === 'POST_STATE_MISSING' ? part.missing?.post : undefined;
}

/** What a cause means. One that this version does not know is shown as what it is. */
export const sentence = (cause: string): string =>
  CAUSES.includes(cause as Cause) ? meaningOf(cause as Cause) : 'a cause that is not known here';

/** What is wrong with a part, or may be: everything that is neither PASS nor left out. */
export const troubles = ({ judgements }: Verdict): readonly Judgement[] =>
  judgements.filter(({ status }) => status !== 'PASS' && status !== 'NOT_COVERED');

export function integrityText({ kind, attested }: Integrity): string {
  const count = attested === undefined ? '' : ` ${attested.count}/${attested.of}`;
  if (kind === 'broken') return 'BROKEN';
  return kind === 'attested'
    ? `attested${count}`
    : attested === undefined
      ? kind
      : `${kind}, attested${count}`;
}

/** How many judgements were left out, by what they would have been about. */
export function notCovered({ parts }: Verification): Partial<Record<Kind, number>> {
  const counts: Partial<Record<Kind, number>> = {};
  for (const { verdict } of parts)
    for (const { kind, status } of verdict.judgements)
      if (status === 'NOT_COVERED') counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** A place where record and replay differ. */
export interface ShownDifference {
  readonly place: string;
  readonly recorded: string;
  readonly replayed: string;
  /** Of a token that may differ: of which class it is. */
  readonly class?: string;
}

type Loose = Readonly<Record<string, unknown>>;
const isObject = (value: unknown): value is Loose => typeof value === 'object' && value !== null;
const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
const lineOf = (value: unknown): string => (typeof value === 'number' ? `:${value}` : '');

/** Of the evidence of a judgement, what compares record and replay. */
export function differencesOf({ evidence }: Judgement): readonly ShownDifference[] {
  if (!Array.isArray(evidence)) return [];
  return evidence.filter(isObject).flatMap((each) => {
    const { path, line, recorded, replayed, class: type } = each;
    if (typeof path !== 'string' || typeof recorded !== 'string' || typeof replayed !== 'string') return [];
    const place = `${path === '' ? 'the top' : path}${lineOf(line)}`;
    return [{ place, recorded, replayed, ...(typeof type === 'string' ? { class: type } : {}) }];
  });
}

/** A finding of a rule: where, what, and the line before and after. */
export interface ShownFinding {
  readonly path: string;
  readonly line?: number;
  readonly what: string;
  readonly before?: string;
  readonly after?: string;
}

/** Of the evidence of a judgement, what speaks of files: a rule's findings, or paths that changed. */
export function findingsOf({ evidence }: Judgement): readonly ShownFinding[] {
  if (!Array.isArray(evidence)) return [];
  const seen = new Set<string>();
  return evidence.flatMap((each: unknown): ShownFinding[] => {
    if (!isObject(each) || typeof each['path'] !== 'string' || typeof each['recorded'] === 'string')
      return [];
    const { path, cause, what, test } = each;
    const [before, after] = [each['before'], each['after']].map((side) => (isObject(side) ? side : {})) as [
      Loose,
      Loose,
    ];
    const line = [after['line'], before['line']].find((value) => typeof value === 'number');
    const words = (textOf(cause) ?? textOf(what) ?? 'changed').replaceAll('-', ' ');
    // Every replay says it again.
    const key = JSON.stringify([path, words, test, line]);
    if (seen.has(key)) return [];
    seen.add(key);
    return [
      {
        path,
        what: typeof test === 'string' ? `${words} (${test})` : words,
        ...(line === undefined ? {} : { line }),
        ...(typeof before['text'] === 'string' ? { before: before['text'] } : {}),
        ...(typeof after['text'] === 'string' ? { after: after['text'] } : {}),
      },
    ];
  });
}

/** Signs of what happened to a path, as in the listing of a version control. */
export const SIGNS: Readonly<Record<ShownChange['what'], string>> = {
  created: '+',
  deleted: '-',
  modified: '~',
  metadata: '·',
  type: '!',
};

export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${count} ${count === 1 ? one : many}`;

/** Counts by status, the worst first, zeros left out. */
export const statusCounts = ({ counts }: Verification['tally']): string =>
  WORST_FIRST.filter((status) => counts[status] > 0)
    .map((status) => `${counts[status]} ${status}`)
    .join(', ') || 'nothing judged';

/** Milliseconds as a person reads them. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return '?';
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}

/** Control characters, and what XML and HTML can not hold at all, shown as escapes. Line ends stay. */
const CONTROLS =
  // oxlint-disable-next-line eslint/no-control-regex -- these are what is looked for
  /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]|\p{Cs}/u;

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** Foreign text for a page or an XML document: text only, in an attribute as between tags, and in one line. */
export function markup(text: string): string {
  let clean = printable(text);
  if (CONTROLS.test(clean)) {
    clean = Array.from(clean, (character) =>
      CONTROLS.test(character)
        ? `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`
        : character,
    ).join('');
  }
  return clean.replace(/[&<>"']/g, (character) => ENTITIES[character] as string);
}
