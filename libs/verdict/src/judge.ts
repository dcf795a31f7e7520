/** What each kind of evidence says of one turn. */

import type { Cause } from './cause.js';
import { claimedPaths } from './claimed.js';
import { type Comparison, compare, type Runs } from './compare.js';
import { CACHE_FOLDERS, compareDeltas, type ContentOf, type Delta, isCache, isRefresh } from './effect.js';
import type { Judgement } from './verdict.js';
import { isRandom } from './volatile.js';

/** What a tool declares of itself; a member that is no boolean is as good as absent. */
export interface Annotations {
  readonly readOnlyHint?: boolean;
  readonly destructiveHint?: boolean;
}

/** What was seen at the boundary of the network, in the recording or in a replay. */
export interface Egress {
  /** Addresses that were reached; undefined where nobody watched. */
  readonly reached?: readonly string[];
  readonly denied: readonly string[];
  /** Whether the policy forbids an address. */
  readonly forbidden: (address: string) => boolean;
}

/** Why a difference between recording and replay would prove nothing. */
export type WorldDoubt = Extract<
  Cause,
  | 'ENV_DIFFERS'
  | 'SERVER_CHANGED'
  | 'SANDBOX_DIFFERS'
  | 'SANDBOX_DENIAL'
  | 'NETWORK_REQUIRED'
  | 'STATE_UNKNOWN'
  | 'SESSION_STATE'
  | 'ORDER_DEPENDENT'
  | 'REQUEST_DIVERGED'
>;

export interface TurnEvidence {
  readonly runs: Runs;
  /** The answer: `result` or `error` of the response. */
  readonly recorded: { readonly answer: unknown; readonly delta?: Delta };
  /** One per replay, in the order of `runs.replays`. A replay without a delta could not be observed. */
  readonly replayed: readonly { readonly answer: unknown; readonly delta?: Delta }[];
  readonly annotations: Annotations;
  readonly egress: Egress;
  readonly doubts: readonly WorldDoubt[];
  readonly contentOf: ContentOf;
  /** Names of folders and files that count as caches, in place of the usual ones. */
  readonly caches?: readonly string[];
  /**
   * Whether there is something at an absolute path in the recorded state after the call; undefined for what is not part
   * of any state. Absent where that state can't be laid to this call alone.
   */
  readonly exists?: (path: string) => boolean | undefined;
}

/** The judgements of axis A2: result, effect, contract, egress, in this order. */
export function judgeTurn(evidence: TurnEvidence): readonly Judgement[] {
  return [judgeResult(evidence), judgeEffect(evidence), judgeContract(evidence), judgeEgress(evidence)];
}

function judgeResult({ recorded, replayed, runs, doubts }: TurnEvidence): Judgement {
  const found = compare(
    recorded.answer,
    replayed.map(({ answer }) => answer),
    runs,
  );
  return judged(
    'result',
    found,
    doubtsOf(found, runs, doubts),
    'RESULT_DIFFERS',
    'VOLATILE_RESULT',
    'answer',
  );
}

function judgeEffect({
  recorded,
  replayed,
  runs,
  doubts,
  contentOf,
  caches,
  exists,
}: TurnEvidence): Judgement {
  const absent =
    exists === undefined ? [] : claimedPaths(recorded.answer).filter((path) => exists(path) === false);
  if (absent.length > 0) {
    const message = `the answer claims ${absent.join(', ')}, and there is nothing`;
    return {
      axis: 'A2',
      kind: 'effect',
      status: 'FAIL',
      cause: 'CLAIMED_PATH_ABSENT',
      message,
      evidence: absent,
    };
  }
  const deltas = replayed.map(({ delta }) => delta);
  if (recorded.delta === undefined || !deltas.every((delta) => delta !== undefined)) {
    const cause = 'POST_STATE_MISSING';
    return {
      axis: 'A2',
      kind: 'effect',
      status: 'UNVERIFIED',
      cause,
      message: 'the change was not observed',
    };
  }
  const found = compareDeltas(recorded.delta, deltas, runs, contentOf, caches);
  return judged(
    'effect',
    found,
    doubtsOf(found, runs, doubts),
    'EFFECT_DIFFERS',
    'VOLATILE_EFFECT',
    'change',
  );
}

/** What was made by chance is told from what is always so by a second replay. */
function doubtsOf(
  { outcome, volatile }: Comparison,
  { replays }: Runs,
  doubts: readonly WorldDoubt[],
): readonly Cause[] {
  const isOpen =
    outcome === 'unstable' || (outcome === 'volatile' && volatile.some((each) => isRandom(each.class)));
  return replays.length === 1 && isOpen ? [...doubts, 'ONE_REPLAY'] : doubts;
}

function judged(
  kind: 'result' | 'effect',
  found: Comparison,
  doubts: readonly Cause[],
  fault: Cause,
  notice: Cause,
  noun: string,
): Judgement {
  const axis = 'A2';
  const [doubt] = doubts;
  switch (found.outcome) {
    case 'reproduced':
      return { axis, kind, status: 'PASS', message: `${noun} reproduced` };
    case 'volatile':
      if (doubts.includes('ONE_REPLAY'))
        return undecided(kind, 'ONE_REPLAY', `${noun} may be chance`, found.volatile);
      return {
        axis,
        kind,
        status: 'WARN',
        cause: notice,
        message: `${noun} reproduced but for ${[...new Set(found.volatile.map((each) => each.class))].join(', ')}`,
        evidence: found.volatile,
      };
    case 'reordered':
      return undecided(kind, doubt ?? 'ORDER_DIFFERS', `${noun} in another order`, found.reordered);
    case 'unstable':
      return undecided(
        kind,
        doubt ?? 'NONDETERMINISTIC',
        `replays give other ${noun}s each time`,
        found.unstable,
      );
    case 'different': {
      const [first] = found.different;
      const message =
        first === undefined
          ? `${noun} differs`
          : `${noun} differs at ${first.path || 'the top'}: recorded ${quote(first.recorded)}, replayed ${quote(first.replayed)}`;
      return doubt !== undefined
        ? undecided(kind, doubt, message, found.different)
        : { axis, kind, status: 'FAIL', cause: fault, message, evidence: found.different };
    }
  }
}

const undecided = (
  kind: 'result' | 'effect',
  cause: Cause,
  message: string,
  evidence: unknown,
): Judgement => ({ axis: 'A2', kind, status: 'UNVERIFIED', cause, message, evidence });

const quote = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);

/**
 * Held against what the replays did, so that a person who edits a file while a reader runs does not make the reader a
 * liar; the recorded change is the effect axis' to explain.
 */
function judgeContract({
  annotations,
  replayed,
  contentOf,
  caches = CACHE_FOLDERS,
}: TurnEvidence): Judgement {
  const [axis, kind] = ['A2', 'contract'] as const;
  const { readOnlyHint, destructiveHint } = annotations;
  if (readOnlyHint !== true && destructiveHint !== false) {
    const message = 'nothing is declared that could be broken';
    return { axis, kind, status: 'NOT_COVERED', message };
  }
  const deltas = replayed.map(({ delta }) => delta);
  if (!deltas.every((delta) => delta !== undefined)) {
    const message = 'the change was not observed';
    return { axis, kind, status: 'UNVERIFIED', cause: 'POST_STATE_MISSING', message };
  }
  // What any replay did was done: one is enough.
  const changes = deltas.flat().filter((change) => !isRefresh(change, contentOf));
  if (readOnlyHint === true) {
    const written = changes.filter(({ path }) => !isCache(path, caches));
    const [first] = written;
    if (first !== undefined) {
      const message = `declared read-only, and ${first.path || 'the workspace'} was ${first.what}`;
      return { axis, kind, status: 'FAIL', cause: 'WROTE_THOUGH_READ_ONLY', message, evidence: written };
    }
    if (changes.length > 0) {
      const message = 'declared read-only, and only caches were written';
      return { axis, kind, status: 'WARN', cause: 'CACHE_WRITTEN', message, evidence: changes };
    }
    return { axis, kind, status: 'PASS', message: 'declared read-only, and nothing was written' };
  }
  const judged = changes
    .filter(({ path }) => !isCache(path, caches))
    .map((change) => ({ change, destroys: destroys(change, contentOf) }));
  const destroyed = judged.filter((each) => each.destroys === true).map(({ change }) => change);
  const [first] = destroyed;
  if (first !== undefined) {
    const message = `declared not destructive, and ${first.path} was ${first.what === 'deleted' ? 'deleted' : 'overwritten'}`;
    return { axis, kind, status: 'FAIL', cause: 'DESTROYED_THOUGH_ADDITIVE', message, evidence: destroyed };
  }
  const unknown = judged.find((each) => each.destroys === undefined);
  if (unknown !== undefined) {
    const message = `declared not destructive; what ${unknown.change.path} lost is not known`;
    return { axis, kind, status: 'UNVERIFIED', cause: 'CONTENT_UNREADABLE', message };
  }
  return { axis, kind, status: 'PASS', message: 'declared not destructive, and nothing was lost' };
}

/**
 * Adding to a file destroys nothing, wherever it is put; a directory is modified by what is put into it. Undefined where
 * the contents are not at hand, or no text.
 */
function destroys({ what, before, after }: Delta[number], contentOf: ContentOf): boolean | undefined {
  if (what === 'deleted' || what === 'type') return true;
  if (what !== 'modified' || before?.type === 'dir') return false;
  if (before?.content === undefined || after?.content === undefined) return before?.target !== after?.target;
  const [old, now] = [contentOf(before.content), contentOf(after.content)];
  if (old === undefined || now === undefined) return undefined;
  if (now.subarray(0, old.length).equals(old)) return false;
  const [were, are] = [wordsOf(old), wordsOf(now)];
  return were === undefined || are === undefined ? undefined : !isContained(were, are);
}

/** Words and signs of a text, without the space between them. */
function wordsOf(bytes: Buffer): readonly string[] | undefined {
  const text = bytes.toString('utf8');
  if (text.includes('\0') || !Buffer.from(text, 'utf8').equals(bytes)) return undefined;
  return text.match(/\w+|[^\w\s]/gu) ?? [];
}

/** Whether all of the one stands in the other, in the same order. */
function isContained(old: readonly string[], now: readonly string[]): boolean {
  let found = 0;
  for (const word of now) if (word === old[found]) found++;
  return found === old.length;
}

function judgeEgress({ egress }: TurnEvidence): Judgement {
  const [axis, kind] = ['A2', 'egress'] as const;
  const { reached, denied, forbidden } = egress;
  const broken = (reached ?? []).filter(forbidden);
  if (broken.length > 0) {
    const message = `reached ${broken.join(', ')}, which the policy forbids`;
    return { axis, kind, status: 'FAIL', cause: 'FORBIDDEN_EGRESS', message, evidence: broken };
  }
  if (denied.length > 0) {
    const message = `was refused ${denied.slice(0, 3).join(', ')}`;
    return { axis, kind, status: 'WARN', cause: 'DENIED_EGRESS', message, evidence: denied };
  }
  return reached === undefined
    ? { axis, kind, status: 'NOT_COVERED', message: 'the network was not watched' }
    : {
        axis,
        kind,
        status: 'PASS',
        message: reached.length === 0 ? 'reached nothing' : 'reached only what is allowed',
      };
}
