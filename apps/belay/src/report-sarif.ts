/**
 * Verifications as SARIF 2.1.0, for code scanning. Every cause is a rule; every part that is not PASS is a result. FAIL
 * is an `error`, UNVERIFIED a `warning` and WARN a `note`: the standard's kind `open` would fit UNVERIFIED better, but it
 * has no level, and what shows results by level would show none, which looks like PASS.
 */

import { createHash } from 'node:crypto';
import { type Cause, CAUSES, effectOf, meaningOf, type Status } from '@belay/verdict';
import { printable } from './output.js';
import {
  differencesOf,
  findingsOf,
  integrityText,
  messageOf,
  nameOf,
  type ShownFinding,
  troubles,
  whoOf,
} from './report-text.js';
import type { Part, Verification } from './verification.js';

const SCHEMA = 'https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json';
const LEVEL = { FAIL: 'error', UNVERIFIED: 'warning', WARN: 'note', PASS: 'none' } as const satisfies Record<
  Status,
  string
>;
const LEVEL_OF_EFFECT = { fault: 'error', notice: 'note', doubt: 'warning', cap: 'warning' } as const;
/** Characters of a message; readers cut longer ones anywhere. */
const MAX_MESSAGE = 2_000;

const pascal = (cause: string): string =>
  cause
    .toLowerCase()
    .split('_')
    .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1))
    .join('');

function rule(cause: Cause): object {
  const text = meaningOf(cause);
  const effect = effectOf(cause);
  return {
    id: cause,
    name: pascal(cause),
    shortDescription: { text: `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.` },
    defaultConfiguration: { level: LEVEL_OF_EFFECT[effect] },
    properties: { effect },
  };
}

export function sarifLog(found: readonly Verification[]): object {
  return {
    $schema: SCHEMA,
    version: '2.1.0',
    runs: found.map((each) => run(each)),
  };
}

function run(found: Verification): object {
  const { trace, session, epoch, policy, mode, integrity, tally, caps } = found;
  return {
    tool: { driver: { name: 'belay', version: '0.1.0', rules: CAUSES.map(rule) } },
    automationDetails: { id: `belay-verify/${session}/${epoch}` },
    invocations: [{ executionSuccessful: true }],
    columnKind: 'utf16CodeUnits',
    results: found.parts
      .filter(({ verdict }) => verdict.status !== 'PASS')
      .map((part) => result(part, found)),
    properties: {
      verdict: tally.status,
      counts: tally.counts,
      integrity: integrityText(integrity),
      policy: policy.digest,
      mode,
      caps,
      trace: printable(trace),
    },
  };
}

function result(part: Part, found: Verification): object {
  const { status, cause } = part.verdict;
  const name = nameOf(part);
  const tool = part.type === 'turn' ? printable(whoOf(part)) : undefined;
  const judgements = troubles(part.verdict);
  const said = [
    `${status}: ${name}${tool === undefined ? '' : ` (${tool})`}: ${messageOf(part)}`,
    ...judgements.map(({ kind, message }) => `${kind}: ${message}`),
  ];
  const text = printable([...new Set(said)].join(' | '));
  const findings = judgements.flatMap(findingsOf);
  const fingerprint = createHash('sha256')
    .update(JSON.stringify([found.session, found.epoch, name, cause]))
    .digest('hex');
  return {
    ...(cause === undefined ? {} : { ruleId: cause, ruleIndex: CAUSES.indexOf(cause) }),
    level: LEVEL[status],
    message: { text: text.length > MAX_MESSAGE ? `${text.slice(0, MAX_MESSAGE)}…` : text },
    // Readers show a result at its first place: the file that a rule is about, else the record.
    locations: [
      findings[0] === undefined ? traceLocation(part, found, tool) : fileLocation(findings[0], name),
    ],
    relatedLocations: findings.slice(1, 20).map((each, i) => ({ id: i + 1, ...fileLocation(each, name) })),
    partialFingerprints: { 'belayPart/v1': fingerprint },
    properties: {
      status,
      part: name,
      ...(part.type === 'turn' ? { record: part.record, time: part.time } : {}),
      differences: judgements.flatMap(differencesOf).slice(0, 10),
    },
  };
}

/** A path as a URI reference: bytes that are not allowed are escaped, and a name can not become a scheme. */
function uriOf(path: string): string {
  const clean = path.replaceAll(/\p{Cs}/gu, '\ufffd');
  const escaped = clean.split('/').map(encodeURIComponent).join('/');
  return path.startsWith('/') ? `file://${escaped}` : escaped;
}

const fileLocation = ({ path, line, what }: ShownFinding, part: string): object => ({
  physicalLocation: {
    artifactLocation: { uri: uriOf(path) },
    ...(line === undefined || !Number.isInteger(line) || line < 1 ? {} : { region: { startLine: line } }),
  },
  logicalLocations: [{ fullyQualifiedName: part }],
  message: { text: printable(what) },
});

function traceLocation(part: Part, { trace }: Verification, tool: string | undefined): object {
  const name = nameOf(part);
  return {
    physicalLocation: {
      artifactLocation: { uri: uriOf(trace) },
      ...(part.type === 'turn' ? { region: { byteOffset: part.record, byteLength: 0 } } : {}),
    },
    logicalLocations: [
      { fullyQualifiedName: tool === undefined ? name : `${name}/${tool}`, kind: 'function' },
    ],
  };
}
