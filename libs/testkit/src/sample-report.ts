/** A report as a team of some size would get it: six sinks with gaps and a fork, 40 sessions, three months. */

import { type CoverageStatus, DEFAULT_POLICY, policyDigest, type ProjectPolicy } from '@belay/coverage';
import {
  absenceRows,
  controlRows,
  type DispositionStatus,
  limitationsOf,
  type ReportEpoch,
  type ReportFacts,
  type ReportModel,
  type ReportSession,
  type ReportSink,
} from '@belay/export';
import {
  CALL_AUTHORITY_LEVELS,
  type CallAuthorityLevel,
  SESSION_DISPOSITIONS,
  type VerdictCounts,
} from '@belay/receipt';

const DAY = 86_400_000;
const START = Date.UTC(2026, 7, 31, 6, 0, 0);

/** The same numbers on every machine. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const at = (day: number): string => new Date(START + Math.round(day * DAY)).toISOString();
const ulid = (n: number): string => `01K3${String(n).padStart(3, '0')}ZC5M9W2QHTR8VXB4N7D`.slice(0, 26);
const digest = (n: number): string =>
  `sha256:${(n * 2_654_435_761).toString(16).padStart(8, '0').repeat(8).slice(0, 64)}`;

function epoch(
  n: number,
  from: number,
  to: number,
  lines: number,
  given: Partial<ReportEpoch> = {},
): ReportEpoch {
  const lost = (given.missing ?? []).reduce((sum, span) => sum + span.to - span.from, 0);
  return {
    epoch: ulid(n),
    status: 'complete',
    first: at(from),
    last: at(to),
    lines: lines - lost,
    next: lines + 1,
    missing: [],
    missingOmitted: 0,
    conflicts: 0,
    ...given,
  };
}

const SINKS: readonly ReportSink[] = [
  {
    sink: 'agent-otlp',
    kind: 'otlp',
    domain: 'acme-desktop',
    required: false,
    keyed: false,
    declared: true,
    status: 'unclosed',
    epochs: [
      epoch(1, 0.4, 33, 2_210),
      epoch(2, 34, 62, 1_804, { status: 'unclosed' }),
      epoch(3, 63, 90.6, 1_955, { status: 'open' }),
    ],
    epochsOmitted: 0,
    lost: 0,
    branches: 0,
    miscounted: 0,
  },
  {
    sink: 'desktop-hook',
    kind: 'hook',
    domain: 'acme-desktop',
    required: true,
    keyed: true,
    declared: true,
    status: 'complete',
    epochs: [epoch(11, 0.3, 20, 911), epoch(12, 20.2, 47, 1_340), epoch(13, 47.1, 90.8, 1_622)],
    epochsOmitted: 0,
    lost: 0,
    branches: 0,
    miscounted: 0,
  },
  {
    sink: 'file-proxy',
    kind: 'proxy',
    domain: 'acme-gateway',
    required: true,
    keyed: true,
    declared: true,
    status: 'gap',
    epochs: [
      epoch(21, 0.2, 29, 1_510),
      epoch(22, 29.5, 58, 1_377, {
        status: 'gap',
        missing: [
          { from: 17, to: 19 },
          { from: 402, to: 431, why: 'overflow' },
          { from: 1_211, to: 1_212 },
        ],
      }),
      epoch(23, 58.2, 74, 640),
      epoch(24, 74.4, 90.9, 811, { status: 'open' }),
    ],
    epochsOmitted: 0,
    lost: 0,
    branches: 0,
    miscounted: 0,
  },
  {
    sink: 'nightly-forward',
    kind: 'forward',
    required: false,
    keyed: false,
    declared: true,
    status: 'silent',
    epochs: [epoch(31, 3, 17, 120), epoch(32, 40, 55, 133, { status: 'silent' })],
    epochsOmitted: 0,
    lost: 1,
    branches: 0,
    miscounted: 0,
  },
  {
    sink: 'replay-verifier',
    kind: 'verifier',
    domain: 'acme-audit',
    required: false,
    keyed: true,
    declared: true,
    status: 'complete',
    epochs: [epoch(41, 1, 44, 402), epoch(42, 44.5, 90.5, 377)],
    epochsOmitted: 0,
    lost: 0,
    branches: 0,
    miscounted: 0,
  },
  {
    sink: 'shell-proxy',
    kind: 'proxy',
    domain: 'acme-gateway',
    required: true,
    keyed: true,
    declared: true,
    status: 'conflict',
    epochs: [
      epoch(51, 0.2, 25, 1_020),
      epoch(52, 25.3, 51, 988, { status: 'conflict', conflicts: 2 }),
      epoch(53, 25.4, 40, 411, { missing: [{ from: 88, to: 95, why: 'filtered' }], status: 'gap' }),
      epoch(54, 52, 90.7, 1_430),
    ],
    epochsOmitted: 0,
    lost: 0,
    branches: 1,
    miscounted: 0,
  },
];

/** How 40 sessions came out: one in ten or so is not as it should be. */
const OUTCOMES: readonly (readonly [DispositionStatus, CoverageStatus, number, readonly string[]])[] = [
  [
    'contested',
    'conflict',
    2,
    [
      'shell-proxy tells two stories: number 311 is there with two sets of bytes (entry 4,117)',
      'file-proxy and desktop-hook say other things of the arguments of call 9d9b97838ac7',
    ],
  ],
  [
    'violated',
    'complete',
    3,
    [
      'replay-verifier says FAIL in entry 6,020: FORBIDDEN_EGRESS, reached an address that the policy forbids',
    ],
  ],
  [
    'incomplete',
    'gap',
    4,
    [
      'file-proxy has a gap: lines 17-18 are missing, and nothing says why',
      'file-proxy has a gap: lines 402-430 never came: its spool was full (entry 3,350 says so)',
    ],
  ],
  ['open', 'open', 2, ['file-proxy has not closed it']],
  [
    'unverified',
    'complete',
    11,
    [
      '1 of 7 identical calls of read_file was not run again: it is observed (no second sink stated the same outcome)',
      'the verdict in entry 7,733 is UNVERIFIED: NETWORK_REQUIRED',
    ],
  ],
  ['affirmed', 'complete', 18, []],
];

const noVerdicts = (): Record<'PASS' | 'WARN' | 'FAIL' | 'UNVERIFIED', number> => ({
  PASS: 0,
  WARN: 0,
  FAIL: 0,
  UNVERIFIED: 0,
});

function sessionsOf(count: number): ReportSession[] {
  const next = numbers(7);
  const whole = OUTCOMES.reduce((sum, [, , share]) => sum + share, 0);
  let made = 0;
  return OUTCOMES.flatMap(([disposition, coverage, share, reasons], kind) => {
    const many = kind === OUTCOMES.length - 1 ? count - made : Math.round((share / whole) * count);
    return Array.from({ length: Math.max(0, many) }, () => {
      const n = made++;
      const calls = 3 + next(40);
      const bad = disposition === 'affirmed' || disposition === 'open' ? 0 : 1 + next(3);
      const verdicts = { ...noVerdicts(), PASS: calls - bad, causes: {} as Record<string, number> };
      if (disposition === 'violated') {
        verdicts.FAIL = 1;
        verdicts.PASS -= 1;
        verdicts.causes['FORBIDDEN_EGRESS'] = 1;
      }
      if (disposition === 'unverified') {
        verdicts.UNVERIFIED = bad;
        verdicts.causes['NETWORK_REQUIRED'] = bad;
      }
      if (disposition === 'affirmed' && n % 4 === 0) {
        verdicts.WARN = 1;
        verdicts.PASS -= 1;
        verdicts.causes['VOLATILE_RESULT'] = 1;
      }
      const replayed = verdicts.PASS + verdicts.WARN + verdicts.FAIL;
      return {
        session: `hmac-sha256:${digest(n + 77).slice(7, 31)}`,
        began: at(1 + ((n * 53) % 87) + next(20) / 24),
        kinds: n % 3 === 0 ? ['desktop'] : n % 3 === 1 ? ['ci'] : [],
        coverage,
        disposition,
        reasons,
        reasonsOmitted: disposition === 'incomplete' && n % 2 === 0 ? 4 : 0,
        calls,
        levels: {
          asserted: 0,
          observed: calls - replayed - (disposition === 'violated' ? 1 : 0) > 0 ? calls - replayed : 0,
          corroborated: 0,
          replayed: disposition === 'violated' ? replayed - 1 : replayed,
          adjudicated: disposition === 'violated' ? 1 : 0,
        },
        verdicts,
        receipt: digest(n + 500),
        ...(disposition === 'incomplete' ? { supersedes: digest(n + 900) } : {}),
        asOf: 9_312 - n * 11,
      } satisfies ReportSession;
    });
  });
}

function sum<Key extends string>(keys: readonly Key[], each: (key: Key) => number): Record<Key, number> {
  return Object.fromEntries(keys.map((key) => [key, each(key)])) as Record<Key, number>;
}

function verdictsOf(sessions: readonly ReportSession[]): VerdictCounts {
  const causes: Record<string, number> = {};
  for (const { verdicts } of sessions) {
    for (const [cause, count] of Object.entries(verdicts.causes))
      causes[cause] = (causes[cause] ?? 0) + count;
  }
  const all = (key: 'PASS' | 'WARN' | 'FAIL' | 'UNVERIFIED'): number =>
    sessions.reduce((total, { verdicts }) => total + verdicts[key], 0);
  return { PASS: all('PASS'), WARN: all('WARN'), FAIL: all('FAIL'), UNVERIFIED: all('UNVERIFIED'), causes };
}

/** The model with everything that is derived from the facts. */
export function derived(facts: ReportFacts): ReportModel {
  const withAbsence = { ...facts, absence: absenceRows(facts) };
  return { ...withAbsence, controls: controlRows(withAbsence), limitations: limitationsOf(facts) };
}

const POLICY: ProjectPolicy = {
  ...DEFAULT_POLICY,
  sessions: [
    { kind: 'desktop', opens: ['desktop-hook'], required: ['desktop-hook', 'file-proxy'] },
    {
      kind: 'ci',
      opens: ['shell-proxy'],
      required: ['shell-proxy'],
      members: ['shell-proxy', 'replay-verifier'],
    },
  ],
  retention: 400,
};

export function sampleFacts(sessionCount = 40, change: Partial<ReportFacts> = {}): ReportFacts {
  const sessions = sessionsOf(sessionCount);
  const levels: Record<CallAuthorityLevel, number> = sum(CALL_AUTHORITY_LEVELS, (level) =>
    sessions.reduce((total, session) => total + session.levels[level], 0),
  );
  const verdicts = verdictsOf(sessions);
  const replays = levels.replayed + levels.adjudicated;
  return {
    v: 1,
    project: { id: 'prj_01k3zc5m9w2qhtr8vxb4n7d0aa', name: 'Agents of Acme' },
    log: {
      origin: 'belay.example/acme/agents',
      vkey: 'belay.example/acme/agents+6b93115f+AWa+fjMsekUzMr2dCn99sFX1xe8aBq2mbZizn7aBDEc6',
      rootFingerprint: 'cb7328716ac5c82a8111414d691ce8fd79d5cf4e5da9ca9fbb9ac64ecf9fd37a',
    },
    asOf: { size: 19_845, time: '2026-11-30T06:15:00.000Z' },
    scope: 'sessions that began from 2026-09-01 to 2026-11-30',
    period: { from: '2026-09-01T00:00:00.000Z', to: '2026-11-30T00:00:00.000Z' },
    policy: { digest: policyDigest(POLICY), index: 14, document: POLICY },
    entries: { included: 19_104, omitted: 741 },
    first: at(0.1),
    last: at(90.9),
    dispositions: sum(
      SESSION_DISPOSITIONS,
      (status) => sessions.filter(({ disposition }) => disposition === status).length,
    ),
    coverage: sum(
      ['conflict', 'gap', 'unclosed', 'silent', 'open', 'complete'] as const,
      (status) => sessions.filter(({ coverage }) => coverage === status).length,
    ),
    levels,
    verdicts,
    calls: sessions.reduce((total, { calls }) => total + calls, 0),
    recorder: { same_domain: 31, other_domain: replays - 40, unknown: 9 },
    found: {
      denials: 4,
      unjudgedCalls: levels.observed,
      laterLines: 0,
      agentLines: 0,
      missing: { undisclosed: 3, dropped: 29, filtered: 7 },
      conflicts: 3,
    },
    sinks: SINKS,
    sessions,
    sessionsOmitted: 0,
    tokens: [
      {
        token: 'tok_01k3zc5m9w2qhtr8vxb4n7d001',
        role: 'sink',
        issuedBy: 'adm_01k3zc5m9w2qhtr8vxb4n7d0aa',
        index: 2,
      },
      {
        token: 'tok_01k3zc5m9w2qhtr8vxb4n7d002',
        role: 'sink',
        issuedBy: 'adm_01k3zc5m9w2qhtr8vxb4n7d0aa',
        index: 3,
      },
      {
        token: 'tok_01k3zc5m9w2qhtr8vxb4n7d003',
        role: 'verifier',
        issuedBy: 'adm_01k3zc5m9w2qhtr8vxb4n7d0bb',
        index: 6,
      },
      {
        token: 'tok_01k3zc5m9w2qhtr8vxb4n7d004',
        role: 'agent',
        issuedBy: 'adm_01k3zc5m9w2qhtr8vxb4n7d0bb',
        index: 8_040,
      },
    ],
    labels: 3,
    ...change,
  };
}

/** Six sinks with gaps, a fork, a lost run, one that is silent; sessions of every disposition. */
export const sampleModel = (sessionCount = 40): ReportModel => derived(sampleFacts(sessionCount));

/** Everything complete: what an auditor hopes for. */
export function cleanModel(): ReportModel {
  const sessions = sessionsOf(40).filter(({ disposition }) => disposition === 'affirmed');
  const facts = sampleFacts(40);
  return derived({
    ...facts,
    scope: 'everything',
    period: undefined,
    entries: { included: facts.asOf.size, omitted: 0 },
    dispositions: { ...sum(SESSION_DISPOSITIONS, () => 0), affirmed: sessions.length },
    coverage: { conflict: 0, gap: 0, unclosed: 0, silent: 0, open: 0, complete: sessions.length },
    verdicts: verdictsOf(sessions),
    levels: sum(CALL_AUTHORITY_LEVELS, (level) =>
      sessions.reduce((total, session) => total + session.levels[level], 0),
    ),
    calls: sessions.reduce((total, { calls }) => total + calls, 0),
    found: {
      denials: 0,
      unjudgedCalls: 0,
      laterLines: 0,
      agentLines: 0,
      missing: { undisclosed: 0, dropped: 0, filtered: 0 },
      conflicts: 0,
    },
    sinks: SINKS.filter(({ keyed }) => keyed).map((sink) => ({
      ...sink,
      status: 'complete' as const,
      branches: 0,
      epochs: sink.epochs.filter(({ status }) => status === 'complete'),
    })),
    sessions,
  });
}

/** Words that our own code decides on, or that have a form: everything else is somebody's. */
const OURS = new Set([
  'status',
  'disposition',
  'coverage',
  'result',
  'attrs',
  'time',
  'from',
  'to',
  'first',
  'last',
  'began',
]);

/** The sample with `text` in place of every name and sentence that comes from outside. */
export function hostileModel(text: string): ReportModel {
  const change = (value: unknown, key: string): unknown => {
    if (typeof value === 'string') return OURS.has(key) ? value : text;
    if (Array.isArray(value)) return value.map((each) => change(each, ''));
    if (typeof value === 'object' && value !== null) {
      return Object.fromEntries(
        Object.entries(value).map(([name, each]) => [key === 'causes' ? text : name, change(each, name)]),
      );
    }
    return value;
  };
  return change(sampleModel(), '') as ReportModel;
}
