/**
 * Evidence of absence: "no event of this class in this scope". Only coverage without a gap can say it; where there is
 * one, what was not found was not looked for in all of the lines, and the answer is `inconclusive` with the gaps named.
 */

import type { AbsenceRow, ReportEpoch, ReportFacts, ReportSink } from './report-model.js';
import { COVERAGE_ORDER, counted, figure, missingText } from './report-words.js';

const AT_MOST = 20;
/** Runs of one epoch's numbers that a row names; the coverage table has the others. */
const MISSING_NAMED = 3;

/** Sinks whose silence would matter: declared as required, or required by a rule of the policy. */
export function requiredSinks(facts: ReportFacts): readonly ReportSink[] {
  const ruled = new Set(facts.policy.document.sessions.flatMap(({ required }) => required));
  return facts.sinks.filter(({ sink, required }) => required || ruled.has(sink));
}

/** Why the export can't say that something did not happen; empty when coverage is complete. */
export function coverageGaps(facts: ReportFacts): readonly string[] {
  const required = requiredSinks(facts);
  const known = new Set(facts.sinks.map(({ sink }) => sink));
  const never = [...new Set(facts.policy.document.sessions.flatMap((rule) => rule.required))].filter(
    (sink) => !known.has(sink),
  );
  const { conflict, gap, unclosed, silent, open } = facts.coverage;
  const uncovered = conflict + gap + unclosed + silent + open;
  return [
    ...(facts.entries.omitted > 0
      ? [`${counted(facts.entries.omitted, 'entry', 'entries')} of the log left out of this export`]
      : []),
    ...(required.length + never.length === 0
      ? ['no sink is required, so nothing says who should have spoken']
      : []),
    ...never.map((sink) => `${sink}: required by the policy, and nothing of it was received`),
    ...required.flatMap(sinkGaps),
    ...(uncovered > 0
      ? [
          `${counted(uncovered, 'session')} of ${figure(uncovered + facts.coverage.complete)} not covered whole (${COVERAGE_ORDER.filter(
            (status) => status !== 'complete' && facts.coverage[status] > 0,
          )
            .map((status) => `${figure(facts.coverage[status])} ${status}`)
            .join(', ')}), whatever the runs of the sinks are`,
        ]
      : []),
  ];
}

/** Lines of a sink's listed runs that were not signed under a declared key. */
export function unsignedLines({ epochs }: ReportSink): number {
  return epochs.reduce((sum, { unsigned = 0 }) => sum + unsigned, 0);
}

function sinkGaps(sink: ReportSink): readonly string[] {
  const name = sink.sink;
  const epochs = sink.epochs.filter(({ status }) => status !== 'complete');
  const unsigned = unsignedLines(sink);
  return [
    ...(sink.keyed
      ? []
      : [`${name}: no declared key, so whoever held its token may have written or pre-empted lines`]),
    ...(sink.epochs.length + sink.epochsOmitted === 0 ? [`${name}: nothing was received`] : []),
    ...(sink.lost > 0 ? [`${name}: ${counted(sink.lost, 'run')} of which nothing was received`] : []),
    ...(sink.branches > 0 ? [`${name}: ${counted(sink.branches, 'fork')} of its runs`] : []),
    ...(sink.miscounted > 0
      ? [`${name}: ${counted(sink.miscounted, 'run')} whose counter does not follow`]
      : []),
    ...epochs.map((epoch) => `${name}, epoch ${epoch.epoch}: ${epochGap(epoch)}`),
    ...(unsigned > 0 && sink.keyed ? [`${name}: ${counted(unsigned, 'line')} not signed under its key`] : []),
    ...(sink.epochsOmitted > 0
      ? [`${name}: ${counted(sink.epochsOmitted, 'more epoch')} than this report lists`]
      : []),
    ...(sink.status !== 'complete' && epochs.length === 0 && sink.lost + sink.branches + sink.miscounted === 0
      ? [`${name}: ${sink.status}`]
      : []),
  ];
}

function epochGap({ status, missing, missingOmitted, conflicts }: ReportEpoch): string {
  const more = missing.length - MISSING_NAMED + missingOmitted;
  return [
    status,
    ...missing
      .slice(0, MISSING_NAMED)
      .map((each) => `missing ${each.to - each.from > 1 ? 'lines' : 'line'} ${missingText(each)}`),
    ...(more > 0 ? [counted(more, 'more gap')] : []),
    ...(conflicts > 0 ? [counted(conflicts, 'conflict')] : []),
  ].join('; ');
}

/**
 * The table of absence. Of `found` with gaps, `because` names them too: the count is the least that there are.
 */
export function absenceRows(facts: ReportFacts): readonly AbsenceRow[] {
  const gaps = coverageGaps(facts);
  const { denials, unjudgedCalls, laterLines, agentLines, missing, conflicts } = facts.found;
  const unjudged =
    unjudgedCalls > 0
      ? [`${counted(unjudgedCalls, 'call')} on neither a replay nor a label, which could have failed unseen`]
      : [];
  const later =
    laterLines > 0
      ? [`${counted(laterLines, 'line')} of sessions that came after what their receipts looked at`]
      : [];
  const undecided =
    facts.verdicts.UNVERIFIED > 0
      ? [`${counted(facts.verdicts.UNVERIFIED, 'verdict')} UNVERIFIED, which could not be decided`]
      : [];
  return [
    row('verdict FAIL', facts.verdicts.FAIL, [...unjudged, ...later, ...undecided, ...gaps]),
    row('call that rests on neither a replay nor a label', unjudgedCalls, [...later, ...gaps]),
    row('denied operation (the boundary of the sandbox refused it)', denials, gaps),
    row('missing line that nothing accounts for', missing.undisclosed, gaps),
    row('line that its sink says it dropped or filtered', missing.dropped + missing.filtered, gaps),
    row('two stories (conflict or fork)', conflicts, gaps),
    row("line written with an agent's own token", agentLines, gaps),
  ];
}

function row(name: string, count: number, gaps: readonly string[]): AbsenceRow {
  const because =
    gaps.length <= AT_MOST
      ? gaps
      : [...gaps.slice(0, AT_MOST - 1), `and ${figure(gaps.length - AT_MOST + 1)} more`];
  return {
    class: name,
    result: count > 0 ? 'found' : because.length > 0 ? 'inconclusive' : 'none',
    count,
    because,
  };
}
