import type { Entry } from '@belay/envelope';

/** Two stories about one number: the entry at `index` has the (sink, epoch, seq) of the one at `first`. */
export interface ConflictReason {
  readonly reason: 'conflict';
  readonly index: number;
  readonly first: number;
}

/** The receipt is about entries, not about a session, so nothing was judged. */
export interface NoSessionReason {
  readonly reason: 'no_session_judged';
}

/**
 * What a receipt concludes. The closed list for events and ranges; receipts of sessions will add to it, and never
 * change these.
 */
export type Disposition =
  | { readonly status: 'contested'; readonly reasons: readonly ConflictReason[] }
  | { readonly status: 'unverified'; readonly reasons: readonly NoSessionReason[] };

/** Most reasons that are listed; the first of them suffice for the status. */
export const MAX_REASONS = 100;

/** The disposition of a run of entries: the worst that they show. */
export function dispositionOf(entries: readonly Entry[]): Disposition {
  const conflicts: ConflictReason[] = [];
  for (const { line } of entries) {
    if (line.conflict === undefined || conflicts.length === MAX_REASONS) continue;
    conflicts.push({ reason: 'conflict', index: line.index, first: line.conflict });
  }
  return conflicts.length > 0
    ? { status: 'contested', reasons: conflicts }
    : { status: 'unverified', reasons: [{ reason: 'no_session_judged' }] };
}
