/** Annotations of a GitHub workflow: commands on standard output, in which foreign text must stay text. */

import { printable } from './output.js';
import { findingsOf, messageOf, nameOf, troubles, whoOf, WORST_FIRST } from './report-text.js';
import type { Part, Verification } from './verification.js';

/** GitHub shows so many of a level and step, and drops the rest without a word. */
const MAX_SHOWN = 10;

const LEVEL = { FAIL: 'error', UNVERIFIED: 'warning', WARN: 'notice' } as const;

const data = (text: string): string =>
  printable(text).replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
const property = (text: string): string => data(text).replaceAll(':', '%3A').replaceAll(',', '%2C');

/** One line each, the worst first; of each level at most ten, the last of which counts the others. */
export function annotations(found: readonly Verification[]): string {
  const parts = found.flatMap((each) => each.parts.map((part) => ({ part, trace: each.trace })));
  return WORST_FIRST.flatMap((status) => {
    if (status === 'PASS') return [];
    const level = LEVEL[status];
    const of = parts.filter(({ part }) => part.verdict.status === status);
    const shown = of.length > MAX_SHOWN ? of.slice(0, MAX_SHOWN - 1) : of;
    const rest = of.length - shown.length;
    return [
      ...shown.map(({ part, trace }) => annotation(level, part, trace)),
      ...(rest === 0 ? [] : [`::${level} title=belay ${status}::and ${rest} more\n`]),
    ];
  }).join('');
}

function annotation(level: string, part: Part, trace: string): string {
  const { status, cause = '' } = part.verdict;
  const finding = troubles(part.verdict).flatMap(findingsOf)[0];
  const place =
    finding === undefined
      ? `file=${property(trace)},`
      : `file=${property(finding.path)},${finding.line === undefined ? '' : `line=${finding.line},`}`;
  const title = property(`belay ${status} ${cause}: ${nameOf(part)} ${whoOf(part)}`);
  return `::${level} ${place}title=${title}::${data(messageOf(part))}\n`;
}
