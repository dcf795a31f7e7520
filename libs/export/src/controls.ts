/**
 * What some frameworks ask of logs, and what the export shows of it. Evidence, never the word "compliant": whether a
 * control is met is for whoever audits it to say. The texts are told in our own words.
 */

import { coverageGaps, requiredSinks } from './absence.js';
import type { ControlRow, ReportFacts, ReportModel } from './report-model.js';
import { counted, figure, timeText } from './report-words.js';

type Result = ControlRow['result'];

/** Days of six months and of a year, the longest that they can be. */
const SIX_MONTHS = 184;
const YEAR = 366;

/** One row for each control that logs have a part in. Never a result better than what the facts give. */
export function controlRows(facts: ReportFacts & Pick<ReportModel, 'absence'>): readonly ControlRow[] {
  const recorded = recording(facts);
  const judged = judging(facts);
  const records = recordText(facts);
  const verdicts = verdictText(facts);
  const kept = keptText(facts);
  const intact = `${records}; one Merkle root over all ${counted(facts.asOf.size, 'entry', 'entries')}, signed (checkpoint); every file hashed in manifest.json`;
  const onlyVerified = 'Holds when a verifier says VALID with the key of the log pinned from elsewhere.';
  return [
    {
      framework: 'EU AI Act',
      control: 'Art. 12(1)',
      asks: 'A high-risk system records events by itself, over its lifetime.',
      result: recorded,
      evidence: `${records}; coverage per sink: ${sinkText(facts)} (entries.ndjson, report.html)`,
      limits:
        'Shows what was recorded in this scope, not that the system ran nowhere else, nor that recording was on over its whole lifetime.',
    },
    {
      framework: 'EU AI Act',
      control: 'Art. 12(2)',
      asks: 'What is recorded suffices to find risks and substantial changes, and to monitor the system after it was put on the market and in use.',
      result: worse(recorded, judged),
      evidence: `${verdicts}; ${counted(facts.found.denials, 'denied operation')} (events.csv, sessions.csv)`,
      limits:
        'Which events matter for this is for the provider to decide. Content is in the log as commitments, which are opened one by one.',
    },
    {
      framework: 'EU AI Act',
      control: 'Art. 19(1)',
      asks: 'The provider keeps the logs for six months or longer.',
      result: keeping(facts, SIX_MONTHS),
      evidence: kept,
      limits: 'A policy says what is to be kept from now on; an export shows only what was still there.',
    },
    {
      framework: 'EU AI Act',
      control: 'Art. 26(6)',
      asks: 'The deployer keeps the logs under its control for six months or longer.',
      result: keeping(facts, SIX_MONTHS),
      evidence: kept,
      limits:
        'A policy says what is to be kept from now on. Whether provider or deployer controls the logs is not in them.',
    },
    {
      framework: 'ISO/IEC 42001',
      control: 'A.6.2.8',
      asks: 'It is decided in which phases event logs are kept, and they are kept at least while the system is in use.',
      result: recorded,
      evidence: `${records}; policy in force ${facts.policy.digest} since entry ${figure(facts.policy.index)}`,
      limits: 'The decision itself, and whether the phases fit the system, are not in a log.',
    },
    {
      framework: 'SOC 2',
      control: 'CC7.2',
      asks: 'Components are monitored for anomalies, and these are analysed.',
      result: worse(recorded, judged),
      evidence: `${verdicts}; ${dispositionText(facts)} (sessions.csv)`,
      limits: 'Shows the monitoring of tool calls only, and not who looked at what it found.',
    },
    {
      framework: 'SOC 2',
      control: 'CC7.3',
      asks: 'What is found is evaluated, and it is decided whether it is an incident.',
      result: labelling(facts),
      evidence: `${counted(facts.labels, 'label')} by auditors; ${dispositionText(facts)}`,
      limits: 'A label is the word of an auditor key. What was done about it is outside of the log.',
    },
    {
      framework: 'SOC 2',
      control: 'CC8.1 / IPE',
      asks: 'The population that a sample is drawn from is complete and accurate.',
      result: recorded,
      evidence: `${intact}; ${counted(facts.entries.omitted, 'entry', 'entries')} left out, counted and proven; ${missingCounts(facts)}; populations in events.csv and sessions.csv`,
      limits:
        'Complete as to what each required sink numbered. A sink that was switched off before it numbered a line leaves no gap.',
    },
    {
      framework: 'PCI DSS 4',
      control: '10.2.2',
      asks: 'Each record tells the user, what happened, when, with what outcome, from where, and on what.',
      result: facts.entries.included > 0 && lines(facts) > 0 ? 'partly' : 'not_shown',
      evidence: `${counted(facts.tokens.length, 'token')}, sink, kind, time, outcome and tool of each line (events.csv)`,
      limits:
        'A token stands for a machine or an agent, not for a person. The resource acted on is in the content, of which the log has a commitment.',
    },
    {
      framework: 'PCI DSS 4',
      control: '10.3',
      asks: 'Logs are protected from being changed or destroyed.',
      result: facts.entries.included > 0 ? 'shown' : 'not_shown',
      evidence: intact,
      limits: `${onlyVerified} Shows that a change would be found, not that access to the service is restricted.`,
    },
    {
      framework: 'PCI DSS 4',
      control: '10.5',
      asks: 'Logs are kept for twelve months, the last three of them at hand.',
      result: keeping(facts, YEAR),
      evidence: kept,
      limits: 'A policy says what is to be kept from now on; an export shows only what was still there.',
    },
    {
      framework: 'PCI DSS 4',
      control: '10.6',
      asks: 'Clocks are synchronised, from sources that are agreed on.',
      result: 'not_shown',
      evidence:
        'Beside the clock of its sink each entry has the time at which the collector received it, never earlier than the one before (entries.ndjson)',
      limits: "Time is the service's own: nothing here shows how its clock is set.",
    },
    {
      framework: 'HIPAA',
      control: '164.312(b)',
      asks: 'Mechanisms record and examine activity in systems that hold health information.',
      result: worse(recorded, judged),
      evidence: `${records}; ${verdicts}`,
      limits: 'Tool calls of agents only; which of them touched health information is not in the log.',
    },
    {
      framework: 'HIPAA',
      control: '164.312(c)(1)',
      asks: 'Information is protected from improper alteration or destruction.',
      result: facts.entries.included > 0 ? 'partly' : 'not_shown',
      evidence: intact,
      limits: `${onlyVerified} Shows it of the records of activity, not of the health information itself.`,
    },
    {
      framework: 'NIST AI RMF',
      control: 'MEASURE 2.4',
      asks: 'Function and behaviour of the system are monitored when it is in production.',
      result: worse(recorded, judged),
      evidence: `${counted(facts.calls, 'call')}; ${verdicts}`,
      limits: 'Shows what the tools did when called, not whether what the agent decided was wise.',
    },
    {
      framework: 'NIST AI RMF',
      control: 'MANAGE 4',
      asks: 'Risks in operation, incidents and errors are monitored, recorded and communicated.',
      result: worse(recorded, labelling(facts)),
      evidence: `${dispositionText(facts)}; ${counted(facts.labels, 'label')} by auditors`,
      limits: 'To whom anything was communicated is not in the log.',
    },
  ];
}

const GOODNESS: Readonly<Record<Result, number>> = { not_shown: 0, inconclusive: 1, partly: 2, shown: 3 };

const worse = (a: Result, b: Result): Result => (GOODNESS[a] <= GOODNESS[b] ? a : b);

const lines = (facts: ReportFacts): number =>
  facts.sinks.reduce((sum, { epochs }) => sum + epochs.reduce((all, epoch) => all + epoch.lines, 0), 0);

/** `partly`: lines are known to be missing or contradicted. `inconclusive`: it can't be told whether any are. */
function recording(facts: ReportFacts): Result {
  if (lines(facts) === 0) return 'not_shown';
  const { undisclosed, dropped, filtered } = facts.found.missing;
  const broken = requiredSinks(facts).some(({ status }) => status !== 'complete' && status !== 'open');
  if (undisclosed + dropped + filtered + facts.found.conflicts > 0 || broken) return 'partly';
  return coverageGaps(facts).length > 0 ? 'inconclusive' : 'shown';
}

function judging(facts: ReportFacts): Result {
  const { PASS, WARN, FAIL, UNVERIFIED } = facts.verdicts;
  if (PASS + WARN + FAIL === 0) return UNVERIFIED > 0 ? 'inconclusive' : 'not_shown';
  return UNVERIFIED + facts.found.unjudgedCalls + facts.found.laterLines > 0 ? 'partly' : 'shown';
}

function labelling(facts: ReportFacts): Result {
  const { contested, violated } = facts.dispositions;
  if (facts.labels > 0) return contested + violated > 0 ? 'partly' : 'shown';
  return contested + violated > 0 ? 'not_shown' : 'inconclusive';
}

/** At best `partly`: that something is kept can be shown only of what is there. */
function keeping({ policy, entries }: ReportFacts, days: number): Result {
  const { retention } = policy.document;
  if (entries.included === 0) return 'not_shown';
  return retention === undefined || retention >= days ? 'partly' : 'not_shown';
}

const recordText = ({ entries, asOf }: ReportFacts): string =>
  `${figure(entries.included)} of ${counted(asOf.size, 'entry', 'entries')} of the log`;

const sinkText = ({ sinks }: ReportFacts): string => {
  const complete = sinks.filter(({ status }) => status === 'complete').length;
  return `${figure(complete)} of ${counted(sinks.length, 'sink')} complete`;
};

const verdictText = ({ verdicts: { PASS, WARN, FAIL, UNVERIFIED }, found, calls }: ReportFacts): string =>
  `verdicts: ${figure(PASS)} PASS, ${figure(WARN)} WARN, ${figure(FAIL)} FAIL, ${figure(UNVERIFIED)} UNVERIFIED; ${figure(found.unjudgedCalls)} of ${counted(calls, 'call')} on neither a replay nor a label`;

const dispositionText = ({ dispositions }: ReportFacts): string =>
  `sessions: ${Object.entries(dispositions)
    .map(([status, count]) => `${figure(count)} ${status}`)
    .join(', ')}`;

const missingCounts = ({ found: { missing, conflicts } }: ReportFacts): string =>
  `${figure(missing.undisclosed)} numbers missing with nothing that says why, ${figure(missing.dropped)} dropped, ${figure(missing.filtered)} filtered, ${counted(conflicts, 'conflict')}`;

function keptText({ policy, first, last }: ReportFacts): string {
  const { retention } = policy.document;
  const said =
    retention === undefined
      ? 'entries are kept for ever'
      : `entries are kept for ${counted(retention, 'day')}`;
  const there =
    first === undefined || last === undefined
      ? 'no entry is in the export'
      : `entries from ${timeText(first)} to ${timeText(last)} are in the export`;
  return `The policy says that ${said}; ${there}`;
}
