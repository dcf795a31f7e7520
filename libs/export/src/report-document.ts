/**
 * The report as blocks, in reading order: what is said, once, for the page and for the PDF. Both only lay it out.
 */

import { DISPOSITION_TEXT, LEVEL_TEXT, SESSION_DISPOSITIONS, CALL_AUTHORITY_LEVELS } from '@belay/receipt';
import { coverageGaps, requiredSinks, unsignedLines } from './absence.js';
import type { ReportEpoch, ReportModel, ReportSession, ReportSink } from './report-model.js';
import {
  ABSENCE_MARKS,
  CONTROL_MARKS,
  COVERAGE_MARKS,
  coverageLegend,
  coveragePictures,
  DISPOSITION_MARKS,
  dispositionPicture,
  LEVEL_MARKS,
  levelPicture,
  type Mark,
  type Picture,
  VERDICT_MARKS,
  verdictPicture,
} from './report-picture.js';
import {
  CONTROL_WORDS,
  counted,
  COVERAGE_ORDER,
  COVERAGE_WORDS,
  figure,
  missingText,
  timeText,
  VERDICT_ORDER,
  VERDICT_WORDS,
  WHAT_THIS_IS,
} from './report-words.js';

/** A word with the sign of its mark. */
export interface Badge {
  readonly mark: Mark;
  readonly word: string;
}

/** What a cell holds, from top to bottom. */
export interface Cell {
  readonly badge?: Badge;
  readonly lines?: readonly string[];
  /** Smaller, below. */
  readonly notes?: readonly string[];
  /** Names of things rather than words. */
  readonly mono?: boolean;
}

export interface Column {
  readonly head: string;
  /** Share of the table's width; they add up to 1. */
  readonly share: number;
  readonly right?: boolean;
}

export type Block =
  | { readonly block: 'title'; readonly kind: string; readonly text: string; readonly below: string }
  | {
      readonly block: 'heading';
      readonly id: string;
      readonly text: string;
      readonly level: 2 | 3;
      /** Begins a page of its own where there are pages. */
      readonly page?: boolean;
    }
  | { readonly block: 'text'; readonly text: string; readonly lead?: boolean }
  | {
      readonly block: 'notice';
      readonly mark: Mark;
      readonly text: string;
      readonly items: readonly string[];
    }
  | { readonly block: 'list'; readonly items: readonly string[] }
  | { readonly block: 'marks'; readonly items: readonly (Badge & { readonly says: string })[] }
  | {
      readonly block: 'facts';
      readonly rows: readonly { readonly term: string; readonly value: string; readonly mono?: boolean }[];
    }
  | { readonly block: 'picture'; readonly picture: Picture }
  | {
      readonly block: 'table';
      readonly caption: string;
      readonly columns: readonly Column[];
      readonly rows: Iterable<readonly Cell[]>;
    };

const words = (...lines: string[]): Cell => ({ lines });
const names = (...lines: string[]): Cell => ({ lines, mono: true });
const number = (value: number): Cell => ({ lines: [figure(value)] });
const optional = (value: string | undefined): Cell => words(value ?? 'not declared');

/** Everything, in order. Rows of tables are made while they are laid out. */
export function* reportBlocks(model: ReportModel): Generator<Block> {
  yield* pageOne(model);
  yield { block: 'heading', id: 'limits', text: 'What this does not prove', level: 2, page: true };
  yield { block: 'list', items: model.limitations };
  yield* gaps(model);
  yield* coverage(model);
  yield* sessions(model);
  yield* judged(model);
  yield* absence(model);
  yield* controls(model);
  yield* standing(model);
  yield* checking(model);
}

function* pageOne(model: ReportModel): Generator<Block> {
  const { project, log, asOf, period, entries } = model;
  yield {
    block: 'title',
    kind: 'Evidence report',
    text: project.name,
    below: `Project ${project.id}`,
  };
  yield { block: 'text', text: WHAT_THIS_IS, lead: true };
  yield {
    block: 'facts',
    rows: [
      { term: 'Log', value: log.origin, mono: true },
      { term: 'Scope', value: model.scope },
      {
        term: 'Period',
        value:
          period === undefined
            ? 'the whole log'
            : `from ${timeText(period.from)} to ${timeText(period.to)}, the end not included`,
      },
      {
        term: 'As of',
        value: `${timeText(asOf.time)}, ${counted(asOf.size, 'entry', 'entries')} in the log`,
      },
      {
        term: 'In this export',
        value: `${counted(entries.included, 'entry', 'entries')}, ${figure(entries.omitted)} left out; received from ${
          model.first === undefined ? 'no time' : timeText(model.first)
        } to ${model.last === undefined ? 'no time' : timeText(model.last)}`,
      },
      {
        term: 'Sinks',
        value: `${counted(model.sinks.length, 'sink')}, ${figure(requiredSinks(model).length)} required; as to their own runs ${COVERAGE_ORDER.map(
          (status) => [status, model.sinks.filter((sink) => sink.status === status).length] as const,
        )
          .filter(([, count]) => count > 0)
          .map(([status, count]) => `${figure(count)} ${status}`)
          .join(', ')}`,
      },
      {
        term: 'Lines missing',
        value: missingLines(model),
      },
      {
        term: 'Sessions, calls',
        value: `${counted(totalSessions(model), 'session')}, ${counted(model.calls, 'call')}`,
      },
    ],
  };
  yield { block: 'heading', id: 'outcome', text: 'What the sessions came to', level: 2 };
  yield { block: 'picture', picture: dispositionPicture(model) };
  yield {
    block: 'text',
    text: 'Only what is drawn solid is shown to be good: affirmed, complete, PASS. Everything else is hatched or hollow, and has a sign and a word of its own.',
  };
  const found = coverageGaps(model);
  yield found.length === 0
    ? {
        block: 'notice',
        mark: COVERAGE_MARKS.complete,
        text: 'Coverage is complete: every required sink, every session, nothing left out.',
        items: [],
      }
    : {
        block: 'notice',
        mark: COVERAGE_MARKS.gap,
        text: "Coverage has gaps. That something did not happen can't be concluded from this export, because of:",
        items: upTo(found, GAPS_ON_PAGE_ONE, 'below'),
      };
}

const GAPS_ON_PAGE_ONE = 6;
const GAPS_NAMED = 60;

/** The first of them, and in place of the rest how many there are and where. */
const upTo = (items: readonly string[], most: number, where: string): readonly string[] =>
  items.length <= most
    ? items
    : [...items.slice(0, most - 1), `and ${figure(items.length - most + 1)} more, ${where}`];

function* gaps(model: ReportModel): Generator<Block> {
  const found = coverageGaps(model);
  yield { block: 'heading', id: 'gaps', text: 'Where coverage has gaps', level: 3 };
  yield found.length === 0
    ? { block: 'text', text: 'Nowhere.' }
    : { block: 'list', items: upTo(found, GAPS_NAMED, 'in LIMITATIONS.md') };
}

/** What is known to be missing, and of what nothing is known. */
function missingLines({ found, sinks }: ReportModel): string {
  const { missing, conflicts } = found;
  const lost = sinks.reduce((sum, sink) => sum + sink.lost, 0);
  const silent = sinks.filter(({ epochs, epochsOmitted }) => epochs.length + epochsOmitted === 0).length;
  return [
    missing.undisclosed === 0
      ? 'none known without an account of it'
      : `${figure(missing.undisclosed)} with nothing that says why`,
    `${figure(missing.dropped)} dropped and ${figure(missing.filtered)} filtered by their sinks' own word`,
    ...(lost > 0 ? [`unknown how many of ${counted(lost, 'lost run')}`] : []),
    ...(silent > 0 ? [`${counted(silent, 'sink')} silent altogether`] : []),
    counted(conflicts, 'conflict'),
  ].join('; ');
}

const notWhole = ({ coverage }: ReportModel): number =>
  Object.entries(coverage).reduce((sum, [status, count]) => (status === 'complete' ? sum : sum + count), 0);

const totalSessions = ({ dispositions }: ReportModel): number =>
  Object.values(dispositions).reduce((sum, count) => sum + count, 0);

function* coverage(model: ReportModel): Generator<Block> {
  yield { block: 'heading', id: 'coverage', text: 'Coverage of the sinks', level: 2, page: true };
  yield {
    block: 'text',
    text: "Each sink numbers its lines and signs what it has sent. A run (epoch) is one start of a sink, in which it numbers from one; a session is one piece of an agent's work. A run can carry many sessions or none, and a session can need runs of several sinks, so that runs can be complete and a session not. A bar is one run, from its first line to its last, by the collector's clock; a notch is where in the run's numbers lines are missing.",
  };
  yield { block: 'picture', picture: coverageLegend() };
  if (model.sinks.length === 0) yield { block: 'text', text: 'There is no sink.' };
  for (const picture of coveragePictures(model)) yield { block: 'picture', picture };
  yield {
    block: 'marks',
    items: COVERAGE_ORDER.map((status) => ({
      mark: COVERAGE_MARKS[status],
      word: status,
      says: COVERAGE_WORDS[status],
    })),
  };
  const required = new Set(requiredSinks(model).map(({ sink }) => sink));
  yield {
    block: 'table',
    caption: 'Sinks, by name',
    columns: [
      { head: 'Sink', share: 0.2 },
      { head: 'Status', share: 0.15 },
      { head: 'Kind', share: 0.1 },
      { head: 'Trust domain', share: 0.15 },
      { head: 'Required', share: 0.12 },
      { head: 'Key', share: 0.1 },
      { head: 'Runs', share: 0.09, right: true },
      { head: 'Lines', share: 0.09, right: true },
    ],
    rows: model.sinks.map((sink) => sinkRow(sink, required.has(sink.sink))),
  };
  const unclean = model.sinks.flatMap((sink) =>
    sink.epochs.filter(({ status }) => status !== 'complete').map((epoch) => ({ sink: sink.sink, epoch })),
  );
  yield unclean.length === 0
    ? {
        block: 'text',
        text: `Every run of every sink is complete: no line is missing of those that the sinks numbered.${notWhole(model) > 0 ? ` Even so, ${counted(notWhole(model), 'session')} ${notWhole(model) === 1 ? 'is' : 'are'} not covered whole: a session needs every sink that it requires to have spoken of it, and to account for it.` : ''}`,
      }
    : {
        block: 'table',
        caption: 'Runs that are not complete, and every number that is missing in them',
        columns: [
          { head: 'Sink, epoch', share: 0.27 },
          { head: 'Status', share: 0.13 },
          { head: 'First and last line', share: 0.22 },
          { head: 'Lines', share: 0.14, right: true },
          { head: 'Missing', share: 0.24 },
        ],
        rows: unclean.map(({ sink, epoch }) => epochRow(sink, epoch)),
      };
}

const sinkRow = (sink: ReportSink, isRequired: boolean): readonly Cell[] => [
  names(sink.sink),
  { badge: { mark: COVERAGE_MARKS[sink.status], word: sink.status }, notes: chainNotes(sink) },
  optional(sink.kind),
  optional(sink.domain),
  words(isRequired ? 'required' : 'no'),
  words(sink.keyed ? 'declared' : 'none', ...unsignedText(sink)),
  number(sink.epochs.length + sink.epochsOmitted),
  {
    lines: [figure(sink.epochs.reduce((sum, { lines }) => sum + lines, 0))],
    notes: sink.epochsOmitted > 0 ? [`of ${counted(sink.epochs.length, 'run')}`] : [],
  },
];

/** A key that is declared says nothing of lines that were not signed under it. */
const unsignedText = (sink: ReportSink): readonly string[] => {
  const unsigned = unsignedLines(sink);
  return sink.keyed && unsigned > 0 ? [`${counted(unsigned, 'line')} unsigned`] : [];
};

const chainNotes = ({ lost, branches, miscounted, declared }: ReportSink): readonly string[] => [
  ...(declared ? [] : ['not declared']),
  ...(lost > 0 ? [`${counted(lost, 'run')} lost`] : []),
  ...(branches > 0 ? [counted(branches, 'fork')] : []),
  ...(miscounted > 0 ? [`${figure(miscounted)} miscounted`] : []),
];

const epochRow = (sink: string, epoch: ReportEpoch): readonly Cell[] => [
  { lines: [sink, epoch.epoch], mono: true },
  {
    badge: { mark: COVERAGE_MARKS[epoch.status], word: epoch.status },
    notes: epoch.conflicts > 0 ? [counted(epoch.conflicts, 'conflict')] : [],
  },
  words(
    epoch.first === undefined ? 'none' : timeText(epoch.first),
    ...(epoch.last === undefined ? [] : [timeText(epoch.last)]),
  ),
  words(`${figure(epoch.lines)} of ${figure(Math.max(0, epoch.next - 1))}`),
  words(
    ...epoch.missing.map(missingText),
    ...(epoch.missingOmitted > 0 ? [`and ${counted(epoch.missingOmitted, 'more gap')}`] : []),
    ...(epoch.missing.length + epoch.missingOmitted === 0 ? ['no number'] : []),
  ),
];

function* sessions(model: ReportModel): Generator<Block> {
  yield { block: 'heading', id: 'sessions', text: 'Sessions', level: 2, page: true };
  yield {
    block: 'marks',
    items: SESSION_DISPOSITIONS.map((status) => ({
      mark: DISPOSITION_MARKS[status],
      word: status,
      says: DISPOSITION_TEXT[status],
    })),
  };
  if (model.sessions.length === 0) {
    yield { block: 'text', text: 'There is no session in this scope.' };
    return;
  }
  yield {
    block: 'table',
    caption: `Sessions, the worst first${
      model.sessionsOmitted > 0
        ? `; ${counted(model.sessionsOmitted, 'more session')} in sessions.csv, none of them worse than the last one here`
        : ''
    }`,
    columns: [
      { head: 'Session, and when it began', share: 0.23 },
      { head: 'Disposition', share: 0.15 },
      { head: 'Why', share: 0.27 },
      { head: 'Coverage', share: 0.13 },
      { head: 'Calls', share: 0.08, right: true },
      { head: 'Verdicts', share: 0.14 },
    ],
    rows: model.sessions.map(sessionRow),
  };
}

const sessionRow = (session: ReportSession): readonly Cell[] => {
  const { verdicts, reasons, reasonsOmitted } = session;
  const counts = VERDICT_ORDER.filter((status) => verdicts[status] > 0);
  return [
    {
      lines: [session.session],
      notes: [
        [session.began === undefined ? 'not begun' : timeText(session.began), ...session.kinds].join(', '),
        `receipt ${short(session.receipt)}, as of ${figure(session.asOf)}`,
        ...(session.supersedes === undefined ? [] : [`in place of ${short(session.supersedes)}`]),
      ],
      mono: true,
    },
    { badge: { mark: DISPOSITION_MARKS[session.disposition], word: session.disposition } },
    words(
      ...(reasons.length === 0 ? [DISPOSITION_TEXT[session.disposition]] : reasons),
      ...(reasonsOmitted > 0 ? [`and ${counted(reasonsOmitted, 'more reason')}, in its receipt`] : []),
    ),
    { badge: { mark: COVERAGE_MARKS[session.coverage], word: session.coverage } },
    number(session.calls),
    words(
      ...(counts.length === 0 ? ['none'] : counts.map((status) => `${figure(verdicts[status])} ${status}`)),
    ),
  ];
};

/** Enough of a digest to find it by; the whole one is in sessions.csv. */
const short = (digest: string): string => digest.replace(/^sha256:([0-9a-f]{12})[0-9a-f]+$/, '$1…');

function* judged(model: ReportModel): Generator<Block> {
  yield {
    block: 'heading',
    id: 'verdicts',
    text: 'Verdicts, and what statements rest on',
    level: 2,
    page: true,
  };
  yield { block: 'heading', id: 'verdicts-status', text: 'Verdicts by status', level: 3 };
  yield { block: 'picture', picture: verdictPicture(model) };
  yield {
    block: 'marks',
    items: VERDICT_ORDER.map((status) => ({
      mark: VERDICT_MARKS[status],
      word: status,
      says: VERDICT_WORDS[status],
    })),
  };
  const causes = Object.entries(model.verdicts.causes).sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
  if (causes.length > 0) {
    yield {
      block: 'table',
      caption: 'Causes that verdicts name',
      columns: [
        { head: 'Cause', share: 0.8 },
        { head: 'Verdicts', share: 0.2, right: true },
      ],
      rows: causes.map(([cause, count]) => [names(cause), number(count)]),
    };
  }
  yield { block: 'heading', id: 'authority', text: 'What statements about calls rest on', level: 3 };
  yield { block: 'picture', picture: levelPicture(model) };
  yield {
    block: 'marks',
    items: CALL_AUTHORITY_LEVELS.map((level) => ({
      mark: LEVEL_MARKS[level],
      word: level,
      says: LEVEL_TEXT[level],
    })),
  };
  const { same_domain: same, other_domain: other, unknown } = model.recorder;
  yield {
    block: 'text',
    text: `Calls that were run again: ${figure(other)} by a verifier of another trust domain than who recorded them, ${figure(same)} by one of the same, ${figure(unknown)} where a domain is not declared. Labels by auditors: ${figure(model.labels)}. Calls that rest on neither (no verdict, or one that does not count as a replay, and no label): ${figure(model.found.unjudgedCalls)} of ${figure(model.calls)}.`,
  };
}

function* absence(model: ReportModel): Generator<Block> {
  const gapNames = coverageGaps(model);
  yield { block: 'heading', id: 'absence', text: 'Evidence of absence', level: 2 };
  yield {
    block: 'text',
    text: '"None" means that the lines of every required sink are all here and that none of them is of this class. Where coverage has a gap the answer is inconclusive: what was not found may be in what is not here.',
  };
  yield {
    block: 'table',
    caption: 'Classes of events in this scope',
    columns: [
      { head: 'Class', share: 0.32 },
      { head: 'Result', share: 0.16 },
      { head: 'Count', share: 0.14, right: true },
      { head: 'Because', share: 0.38 },
    ],
    rows: model.absence.map((row) => [
      words(row.class),
      { badge: { mark: ABSENCE_MARKS[row.result], word: row.result } },
      words(
        row.result === 'inconclusive'
          ? 'not known'
          : row.result === 'found' && row.because.length > 0
            ? `${figure(row.count)} or more`
            : figure(row.count),
      ),
      words(...absenceReasons(row.because, gapNames)),
    ]),
  };
}

/** Those of the class itself; the gaps, which are the same for every class, are named once, above. */
function absenceReasons(because: readonly string[], gapNames: readonly string[]): readonly string[] {
  const [first] = gapNames;
  const at = first === undefined ? because.length : because.indexOf(first);
  const own = at < 0 ? because : because.slice(0, at);
  if (first !== undefined) {
    return [...own, `${counted(gapNames.length, 'gap')} of coverage ("Where coverage has gaps")`];
  }
  return own.length === 0 ? ['coverage is complete'] : own;
}

function* controls(model: ReportModel): Generator<Block> {
  yield { block: 'heading', id: 'controls', text: 'What frameworks ask of logs', level: 2, page: true };
  yield {
    block: 'text',
    text: 'Evidence, no judgement of compliance, and not legal advice: what each control asks is told in our own words, and whether it is met is for the auditor to say.',
  };
  yield {
    block: 'table',
    caption: 'Controls, and what this export shows of them',
    columns: [
      { head: 'Control', share: 0.14 },
      { head: 'Asks', share: 0.22 },
      { head: 'Result', share: 0.15 },
      { head: 'Evidence', share: 0.26 },
      { head: 'Limits', share: 0.23 },
    ],
    rows: model.controls.map((row) => [
      words(row.framework, row.control),
      words(row.asks),
      { badge: { mark: CONTROL_MARKS[row.result], word: CONTROL_WORDS[row.result] } },
      words(row.evidence),
      words(row.limits),
    ]),
  };
}

function* standing(model: ReportModel): Generator<Block> {
  const { policy } = model;
  const { document } = policy;
  yield { block: 'heading', id: 'standing', text: 'Policy, tokens and keys', level: 2, page: true };
  yield { block: 'heading', id: 'policy', text: 'The policy in force', level: 3 };
  yield {
    block: 'facts',
    rows: [
      { term: 'Digest', value: policy.digest, mono: true },
      { term: 'Set by entry', value: figure(policy.index) },
      { term: 'Log readable', value: document.public ? 'by everybody' : 'with an auditor key only' },
      {
        term: 'Heartbeat',
        value: document.heartbeat === 0 ? 'none expected' : `every ${counted(document.heartbeat, 'second')}`,
      },
      { term: 'Lines may be late by', value: counted(document.lateness, 'second') },
      { term: 'Gone without a close after', value: counted(document.closeTimeout, 'second') },
      {
        term: 'Entries are kept',
        value: document.retention === undefined ? 'for ever' : counted(document.retention, 'day'),
      },
      {
        term: 'Names in the log',
        value: document.attrs === 'strict' ? 'keyed (strict)' : 'tool names as they are (minimal)',
      },
    ],
  };
  yield document.sessions.length === 0
    ? {
        block: 'text',
        text: 'The policy has no rule for kinds of sessions: what an admin declared as required is required in every session.',
      }
    : {
        block: 'table',
        caption: 'What sinks each kind of session has to have',
        columns: [
          { head: 'Kind', share: 0.2 },
          { head: 'Opened by', share: 0.26 },
          { head: 'Required', share: 0.27 },
          { head: 'Members', share: 0.27 },
        ],
        rows: document.sessions.map((rule) => [
          names(rule.kind),
          names(rule.opens.join(', ')),
          rule.required.length === 0 ? words('none') : names(rule.required.join(', ')),
          rule.members === undefined
            ? words('every declared sink')
            : rule.members.length === 0
              ? words('none')
              : names(rule.members.join(', ')),
        ]),
      };
  yield { block: 'heading', id: 'tokens', text: 'Who may write, and who said so', level: 3 };
  yield model.tokens.length === 0
    ? { block: 'text', text: 'No token was issued.' }
    : {
        block: 'table',
        caption: 'Tokens, by the entries that issued them',
        columns: [
          { head: 'Token', share: 0.4 },
          { head: 'Role', share: 0.12 },
          { head: 'Issued by', share: 0.36 },
          { head: 'Entry', share: 0.12, right: true },
        ],
        rows: model.tokens.map(({ token, role, issuedBy, index }) => [
          names(token),
          words(role),
          names(issuedBy),
          number(index),
        ]),
      };
}

function* checking(model: ReportModel): Generator<Block> {
  yield { block: 'heading', id: 'checking', text: 'How to check this', level: 2 };
  yield {
    block: 'text',
    text: 'Get the key of the log, or the fingerprint of its root certificate, from somewhere else than this export, and compare. Then run either verifier of README.md with it, without a network. VALID, INVALID and INDETERMINATE are the only answers; without a key of your own the best is INDETERMINATE.',
  };
  yield {
    block: 'facts',
    rows: [
      { term: 'Key of the log', value: model.log.vkey, mono: true },
      { term: 'Root certificate, SHA-256', value: model.log.rootFingerprint, mono: true },
    ],
  };
}
