/**
 * The words and numbers of the report. Nothing here depends on the machine: no locale, no clock.
 */

import type { CoverageStatus } from '@belay/coverage';
import type { ControlRow, ReportEpoch } from './report-model.js';

/** 1234567 as `1,234,567`. */
export const figure = (value: number): string => String(value).replaceAll(/\B(?=(\d{3})+$)/g, ',');

/** `1 line`, `2 lines`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${figure(count)} ${count === 1 ? one : many}`;

/** A half-open span as people write it: [17, 19) is `17-18`, [3, 4) is `3`. */
const spanText = ({ from, to }: { readonly from: number; readonly to: number }): string =>
  to - from <= 1 ? figure(from) : `${figure(from)}-${figure(to - 1)}`;

/** `2026-01-01T10:00:00.123Z` as `2026-01-01 10:00:00 UTC`; what is no such time, as it is. */
export function timeText(time: string): string {
  const parts = /^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.\d+)?Z$/.exec(time);
  return parts === null ? time : `${parts[1] ?? ''} ${parts[2] ?? ''} UTC`;
}

const GAP_REASONS: Readonly<Record<string, string>> = {
  overflow: 'dropped when its spool was full, said by the sink',
  dropped: 'dropped, said by the sink',
  filtered: 'filtered out by policy, said by the sink',
  lost: 'lost before they were sent, said by the sink',
  crash: 'lost in a crash, said by the sink',
};

/** Why numbers are missing, in words. */
const gapReason = (why: string | undefined): string =>
  why === undefined ? 'nothing says why' : (GAP_REASONS[why] ?? `${why}, said by the sink`);

export const missingText = (missing: ReportEpoch['missing'][number]): string =>
  `${spanText(missing)}, ${gapReason(missing.why)}`;

/** The statuses, the worst first, as every table and picture of the report has them. */
export const COVERAGE_ORDER = ['conflict', 'gap', 'unclosed', 'silent', 'open', 'complete'] as const;

export const COVERAGE_WORDS: Readonly<Record<CoverageStatus, string>> = {
  conflict: 'one number, two stories; or a root that is not that of the lines',
  gap: 'numbers without a line, or lines that no stated root could be compared with',
  unclosed: 'gone without a close',
  silent: 'overdue: nothing came when something should have',
  open: 'still running, matching so far',
  complete: 'every line is here, and they give the root that the sink stated',
};

export const VERDICT_ORDER = ['FAIL', 'UNVERIFIED', 'WARN', 'PASS'] as const;

export const VERDICT_WORDS: Readonly<Record<(typeof VERDICT_ORDER)[number], string>> = {
  FAIL: 'what is on record is not what happens, or a rule is broken',
  UNVERIFIED: 'could not be decided, which is no PASS',
  WARN: 'what differs is named, and no fault as far as execution tells',
  PASS: 'what was judged is as recorded',
};

export const CONTROL_WORDS: Readonly<Record<ControlRow['result'], string>> = {
  shown: 'shown',
  partly: 'partly shown',
  inconclusive: 'inconclusive',
  not_shown: 'not shown',
};

/** The sentence on page one: what this is. */
export const WHAT_THIS_IS =
  'This report shows what an append-only log holds of the tool calls of AI agents: who said what, what is missing, and what was run again. It was made from the entries and receipts in the same export, and a verifier that makes this version of it makes it again and compares every byte.';

/**
 * What can't be seen, or turns or ends a line, becomes a sign that something is there; line feeds and tabs stay. By
 * ranges that never change: another version of Unicode must not give another page.
 */
export const visible = (text: string): string =>
  text.replaceAll(
    /(?![\t\n])[\p{Cc}\p{Cs}\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0001}-\u{e007f}]/gu,
    '\ufffd',
  );
