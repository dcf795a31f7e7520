/** The verdict on a turn, a stretch of drift or a session: what each axis found, reduced to the worst of it. */

import { type Cause, effectOf } from './cause.js';

/** Worst last. `UNVERIFIED` is worse than `WARN`: not knowing is never shown as knowing. */
export const STATUSES = ['PASS', 'WARN', 'UNVERIFIED', 'FAIL'] as const;
export type Status = (typeof STATUSES)[number];

/** A2 is what execution tells, A1 what the operator's rules tell, A3 what was claimed. */
export type Axis = 'A1' | 'A2' | 'A3';
export type Kind = 'result' | 'effect' | 'contract' | 'egress' | 'invariant' | 'claim';

/** What one axis found. `NOT_COVERED`: there was nothing to hold it against; it is counted and decides nothing. */
export interface Judgement {
  readonly axis: Axis;
  readonly kind: Kind;
  readonly status: Status | 'NOT_COVERED';
  /** Absent where the status is PASS or NOT_COVERED, present otherwise. */
  readonly cause?: Cause;
  /** One line for a person: what was expected, what was found. */
  readonly message: string;
  /** The same for a machine. */
  readonly evidence?: unknown;
}

export interface Verdict {
  readonly status: Status;
  /** What decided it; absent for PASS. */
  readonly cause?: Cause;
  readonly judgements: readonly Judgement[];
  /** Judgements left out of the reduction. */
  readonly notCovered: number;
  /** Why it can't be better than UNVERIFIED, in the order given. */
  readonly caps: readonly Cause[];
}

const rank = (status: Status): number => STATUSES.indexOf(status);

/** The worse of two. */
export const worse = (a: Status, b: Status): Status => (rank(a) >= rank(b) ? a : b);

/**
 * The worst of the judgements of A1 and A2, then held down to UNVERIFIED where there is a cap. A proven fault stays
 * one under a cap: a cap says that what looks good can't be relied on, not that what was executed did not happen.
 * A3 is not part of it: `withClaim` lowers a finished verdict.
 *
 * @throws RangeError for a cap that is none, or a judgement without the cause its status needs
 */
export function reduce(judgements: readonly Judgement[], caps: readonly Cause[] = []): Verdict {
  for (const cap of caps) if (effectOf(cap) !== 'cap') throw new RangeError(`${cap} is not a cap`);
  for (const each of judgements) checkJudgement(each);
  const decisive = judgements.filter(
    (each): each is Judgement & { status: Status } => each.status !== 'NOT_COVERED' && each.axis !== 'A3',
  );
  const notCovered = judgements.filter(({ status }) => status === 'NOT_COVERED').length;
  let worst: { readonly status: Status; readonly cause?: Cause | undefined } =
    decisive.length === 0 ? { status: 'UNVERIFIED', cause: 'NOTHING_JUDGED' } : { status: 'PASS' };
  for (const each of decisive) if (rank(each.status) > rank(worst.status)) worst = each;
  const [cap] = caps;
  // Where both say that it is not known, the cap is what the rest follows from.
  if (cap !== undefined && rank(worst.status) <= rank('UNVERIFIED'))
    worst = { status: 'UNVERIFIED', cause: cap };
  return {
    status: worst.status,
    ...(worst.cause === undefined ? {} : { cause: worst.cause }),
    judgements,
    notCovered,
    caps,
  };
}

/** Adds what was found of a claim. It can only lower: a verdict that is as bad or worse keeps its cause. */
export function withClaim(verdict: Verdict, claim: Judgement): Verdict {
  if (claim.axis !== 'A3') throw new RangeError('a claim is judged on axis A3');
  checkJudgement(claim);
  const judgements = [...verdict.judgements, claim];
  if (claim.status === 'NOT_COVERED') return { ...verdict, judgements, notCovered: verdict.notCovered + 1 };
  if (claim.status === 'PASS' || rank(claim.status) <= rank(verdict.status))
    return { ...verdict, judgements };
  return {
    ...verdict,
    status: claim.status,
    ...(claim.cause === undefined ? {} : { cause: claim.cause }),
    judgements,
  };
}

function checkJudgement({ kind, status, cause }: Judgement): void {
  const bare = status === 'PASS' || status === 'NOT_COVERED';
  if (bare !== (cause === undefined)) {
    throw new RangeError(`${kind}: ${status} ${bare ? 'has no cause' : 'needs a cause'}`);
  }
  if (cause === undefined) return;
  const effect = effectOf(cause);
  const fits =
    status === 'FAIL'
      ? effect === 'fault'
      : status === 'WARN'
        ? effect === 'notice'
        : effect === 'doubt' || effect === 'cap';
  if (!fits) throw new RangeError(`${kind}: ${cause} does not make ${status}`);
}

/** Of a whole session: its worst part, and how many parts there are of each status. */
export interface Tally {
  readonly status: Status;
  readonly counts: Readonly<Record<Status, number>>;
  /** How often each cause decided a part that is not PASS. */
  readonly causes: Readonly<Partial<Record<Cause, number>>>;
}

/** Nothing at all is UNVERIFIED. */
export function tally(parts: readonly Verdict[]): Tally {
  const counts: Record<Status, number> = { PASS: 0, WARN: 0, UNVERIFIED: 0, FAIL: 0 };
  const causes: Partial<Record<Cause, number>> = {};
  let status: Status = parts.length === 0 ? 'UNVERIFIED' : 'PASS';
  for (const part of parts) {
    counts[part.status]++;
    if (part.cause !== undefined) causes[part.cause] = (causes[part.cause] ?? 0) + 1;
    status = worse(status, part.status);
  }
  return { status, counts, causes };
}
