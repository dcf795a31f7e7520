/**
 * Verifications as JUnit XML, which every CI reads. A trace is a suite, each of its parts a case. FAIL is a failure;
 * UNVERIFIED is an error, because a case that was skipped looks like one that passed, and is skipped only where the
 * operator accepts it; WARN passes with its warning in the output.
 */

import { basename } from 'node:path';
import type { Verdict } from '@belay/verdict';
import {
  differencesOf,
  findingsOf,
  integrityText,
  markup,
  messageOf,
  nameOf,
  sentence,
  SIGNS,
  troubles,
  whoOf,
} from './report-text.js';
import type { Part, Verification } from './verification.js';

export interface JunitOptions {
  readonly allowUnverified: boolean;
}

const seconds = (ms: number): string => (Math.max(0, ms) / 1000).toFixed(3);

export function junitXml(found: readonly Verification[], options: JunitOptions): string {
  const suites = found.map((each) => suite(each, options));
  const parts = found.flatMap((each) => each.parts);
  const total = found.reduce((sum, { timing }) => sum + timing.total, 0);
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="belay verify" ${counts(parts, options)} time="${seconds(total)}">\n${suites.join('')}</testsuites>\n`;
}

function counts(parts: readonly Part[], { allowUnverified }: JunitOptions): string {
  const of = (status: Verdict['status']): number =>
    parts.filter(({ verdict }) => verdict.status === status).length;
  const undecided = of('UNVERIFIED');
  const [errors, skipped] = allowUnverified ? [0, undecided] : [undecided, 0];
  return `tests="${parts.length}" failures="${of('FAIL')}" errors="${errors}" skipped="${skipped}"`;
}

function suite(found: Verification, options: JunitOptions): string {
  const { trace, parts, timing, session, epoch, server, policy, mode, integrity, tally } = found;
  const properties = {
    trace,
    session,
    epoch,
    server: server.join(' '),
    integrity: integrityText(integrity),
    policy: policy.digest,
    mode,
    verdict: tally.status,
  };
  const listed = Object.entries(properties).map(
    ([name, value]) => `    <property name="${name}" value="${markup(value)}"/>\n`,
  );
  const first = parts.find((part) => part.type === 'turn');
  const began = first?.type === 'turn' ? ` timestamp="${markup(first.time)}"` : '';
  return [
    `  <testsuite name="${markup(basename(trace))}" ${counts(parts, options)} time="${seconds(timing.total)}"${began}>\n`,
    `   <properties>\n${listed.join('')}   </properties>\n`,
    ...parts.map((part) => testcase(part, found, options)),
    '  </testsuite>\n',
  ].join('');
}

function testcase(part: Part, { trace }: Verification, { allowUnverified }: JunitOptions): string {
  const { status, cause = '' } = part.verdict;
  const name = `${nameOf(part)}: ${whoOf(part)}`;
  const time = part.type === 'turn' ? ` time="${seconds(part.ms)}"` : '';
  const head = `    <testcase classname="${markup(basename(trace))}" name="${markup(name)}"${time}`;
  if (status === 'PASS') return `${head}/>\n`;
  const message = markup(`${status} ${cause}: ${messageOf(part)}`);
  const text = lines(part).map(markup).join('\n');
  const body =
    status === 'WARN'
      ? `<system-out>${message}\n${text}</system-out>`
      : status === 'UNVERIFIED' && allowUnverified
        ? `<skipped message="${message}"/>`
        : status === 'FAIL'
          ? `<failure type="${cause}" message="${message}">${text}</failure>`
          : `<error type="${cause}" message="${message}">${text}</error>`;
  return `${head}>\n      ${body}\n    </testcase>\n`;
}

/** What is to be said of a part, a line each. */
function lines(part: Part): string[] {
  const { cause } = part.verdict;
  return [
    ...(cause === undefined ? [] : [`${cause}: ${sentence(cause)}`]),
    ...troubles(part.verdict).flatMap((judgement) => [
      `${judgement.kind} ${judgement.status}: ${judgement.message}`,
      ...differencesOf(judgement).map(
        ({ place, recorded, replayed }) => `  at ${place}: recorded ${recorded} | replayed ${replayed}`,
      ),
      ...findingsOf(judgement).map(
        ({ path, line, what }) => `  ${path}${line === undefined ? '' : `:${line}`}: ${what}`,
      ),
    ]),
    ...part.changes.map(({ path, what }) => `changed: ${SIGNS[what]} ${path}`),
  ];
}
