import type { MemberReason } from '@belay/coverage';
import {
  type CallAuthorityReason,
  callReasonText,
  FAULT_TEXT,
  type ListedReason,
  memberReasonText,
  reasonText,
  reasonTexts,
  type SessionReason,
} from '@belay/receipt';
import { describe, expect, test } from 'vitest';

const epoch = '01KDVDNA040G2081040G208104';
const call = `hmac-sha256:${'ab'.repeat(32)}`;

// Mapped types, so that a reason without its words does not compile here.
const MEMBERS: { readonly [R in MemberReason['reason']]: readonly [MemberReason & { reason: R }, string][] } =
  {
    never_spoke: [[{ reason: 'never_spoke' }, 'said nothing of the session']],
    lost_epoch: [
      [
        { reason: 'lost_epoch', lost: { before: epoch, index: 7 } },
        'a whole run never came (entry 7 shows it)',
      ],
      [
        { reason: 'lost_epoch', lost: { before: epoch, index: 7, epoch, size: 1 } },
        `a whole run (epoch ${epoch}) never came, the last of 1 line (entry 7 shows it)`,
      ],
      [
        { reason: 'lost_epoch', lost: { before: epoch, index: 7, counters: { from: 2, to: 5 } } },
        '3 whole runs never came (entry 7 shows it)',
      ],
    ],
    chain: [[{ reason: 'chain', index: 7 }, 'tells two stories of its own runs (entry 7)']],
    conflict: (
      [
        ['number', 'line 3 came twice, with different bytes (entry 7)'],
        ['root', 'the root that it stated over line 3 is not that of what came (entry 7)'],
        ['misstated', 'what line 3 states does not fit the number (entry 7)'],
        ['gap', 'line 3 came after being given up, and is not the one that was given up (entry 7)'],
        ['successor', 'its next run states another root over line 3 (entry 7)'],
        ['rewound', 'its next run knows nothing of line 3, which came (entry 7)'],
      ] as const
    ).map(([kind, text]) => [{ reason: 'conflict', epoch, kind, from: 3, to: 4, index: 7 }, text]),
    conflicts_omitted: [[{ reason: 'conflicts_omitted', epoch, count: 2 }, '2 more contradictions']],
    missing: [
      [{ reason: 'missing', epoch, from: 17, to: 19 }, 'lines 17 to 18 never came, and nothing says why'],
      [
        { reason: 'missing', epoch, from: 17, to: 18, gap: { index: 9, reason: 'overflow', hashed: true } },
        'line 17 never came: its spool was full (entry 9 says so)',
      ],
    ],
    unbound: [
      [
        { reason: 'unbound', epoch, from: 3, to: 6 },
        'lines 3 to 5 came after being given up, and no root of the sink holds them',
      ],
    ],
    root_not_compared: [
      [{ reason: 'root_not_compared', epoch }, 'no root that it stated could be compared with its lines'],
    ],
    stated_loss: [
      [
        { reason: 'stated_loss', epoch, dropped: 1, filtered: 2 },
        'says that it dropped 1 line and filtered 2',
      ],
    ],
    overdue: [
      [{ reason: 'overdue', epoch, what: 'heartbeat' }, 'its heartbeat is overdue'],
      [{ reason: 'overdue', epoch, what: 'close' }, 'it went away without a close'],
    ],
    unsigned: [[{ reason: 'unsigned', epoch }, 'not every line was signed under a declared key']],
  };

const CALLS: {
  readonly [R in CallAuthorityReason['reason']]: readonly [CallAuthorityReason & { reason: R }, string][];
} = {
  evidence_absent: [[{ reason: 'evidence_absent', index: 4 }, 'entry 4 is not what it was taken for']],
  agent_token: [[{ reason: 'agent_token', sink: 'curl' }, "curl wrote with an agent's token"]],
  unkeyed: [[{ reason: 'unkeyed', sink: 'proxy' }, 'proxy did not sign it under a declared key']],
  self_asserted: [
    [{ reason: 'self_asserted', sink: 'spans', kind: 'otlp' }, 'spans (otlp) tells what it was told'],
    [{ reason: 'self_asserted', sink: 'spans' }, 'spans is not declared as a kind that sees a boundary'],
  ],
  one_domain: [[{ reason: 'one_domain' }, 'no two trust domains saw the same']],
  no_match: [[{ reason: 'no_match', part: 'outcome' }, 'no such sink stated a match of its outcome']],
  contradicted: [[{ reason: 'contradicted', part: 'arguments' }, 'sinks differ on its arguments']],
  one_of_identical: [
    [{ reason: 'one_of_identical', identical: 3 }, "one of 3 identical calls, which of them can't be told"],
  ],
  not_replayed: [[{ reason: 'not_replayed' }, 'no verdict holds as a replay of it']],
  verdict: Object.entries(FAULT_TEXT).map(([fault, text]) => [
    { reason: 'verdict', index: 9, fault: fault as keyof typeof FAULT_TEXT },
    `the verdict in entry 9 does not count: ${text}`,
  ]),
};

const hole = { reason: 'missing', epoch, from: 17, to: 19 } as const;
const REASONS: {
  readonly [R in SessionReason['reason']]: readonly [ListedReason<SessionReason & { reason: R }>, string][];
} = {
  coverage: [
    [
      { reason: 'coverage', sink: 'proxy', status: 'gap', because: [hole] },
      'proxy has a gap: lines 17 to 18 never came, and nothing says why',
    ],
    [
      {
        reason: 'coverage',
        sink: 'proxy',
        status: 'gap',
        because: [hole, { ...hole, epoch: epoch.replace('0', '1') }],
        omitted: { because: 7 },
      },
      `proxy has a gap: lines 17 to 18 never came, and nothing says why (epoch ${epoch}); lines 17 to 18 never came, and nothing says why (epoch 1${epoch.slice(1)}); and 7 more`,
    ],
    [{ reason: 'coverage', sink: 'proxy', because: [] }, 'proxy tells two stories'],
    [{ reason: 'coverage', sink: 'spans', status: 'open' }, 'spans is still open, though it is not required'],
  ],
  sinks_differ: [
    [
      { reason: 'sinks_differ', calls: [call], part: 'arguments' },
      'sinks saw different arguments of call abababababab',
    ],
    [
      { reason: 'sinks_differ', calls: [call, call], part: 'outcome', omitted: { calls: 3 } },
      "sinks saw different outcomes of 5 calls that can't be told apart",
    ],
  ],
  auditor_differs: [
    [
      { reason: 'auditor_differs', label: 4, verdicts: [9] },
      'an auditor (entry 4) says otherwise than the verdict in entry 9',
    ],
    [
      { reason: 'auditor_differs', label: 4, verdicts: [9, 10] },
      'an auditor (entry 4) says otherwise than the verdicts in entries 9, 10',
    ],
  ],
  auditors_differ: [
    [
      { reason: 'auditors_differ', labels: [1, 2, 3, 4, 5, 6, 7], omitted: { labels: 1 } },
      'auditors contradict each other: entries 1, 2, 3, 4, 5, and 3 more',
    ],
  ],
  fail: [
    [
      { reason: 'fail', verdict: 9, sink: 'verifier', cause: 'TESTS_WEAKENED' },
      'verifier found a failure, TESTS_WEAKENED (verdict in entry 9)',
    ],
  ],
  auditor: [
    [{ reason: 'auditor', label: 9, auditor: 'aud_x' }, 'auditor aud_x says that it was violated (entry 9)'],
  ],
  not_closed: [[{ reason: 'not_closed', sink: 'proxy' }, 'proxy has not said that it is over']],
  not_begun: [[{ reason: 'not_begun' }, 'no sink that counts has said anything of it']],
  no_required_sink: [
    [{ reason: 'no_required_sink' }, 'no sink is required of it, so nobody has to account for all of it'],
  ],
  no_call: [[{ reason: 'no_call' }, 'no call was recorded, so there is nothing to verify']],
  not_replayed: [
    [
      { reason: 'not_replayed', calls: [call], level: 'observed', because: [{ reason: 'not_replayed' }] },
      'call abababababab was not run again, only observed',
    ],
    [
      {
        reason: 'not_replayed',
        calls: [call, call],
        level: 'asserted',
        because: [{ reason: 'agent_token', sink: 'curl' }, { reason: 'not_replayed' }],
      },
      "2 calls that can't be told apart were not run again, only asserted: curl wrote with an agent's token",
    ],
  ],
  unnamed_calls: [
    [
      { reason: 'unnamed_calls', sink: 'proxy', count: 1 },
      'proxy wrote 1 line about calls without saying which',
    ],
  ],
  verdict_unverified: [
    [
      { reason: 'verdict_unverified', verdict: 9, cause: 'NO_STATE' },
      'a verdict could not be reached, NO_STATE (entry 9)',
    ],
    [{ reason: 'verdict_unverified', verdict: 9 }, 'a verdict could not be reached (entry 9)'],
  ],
  verdict_rejected: [
    [
      { reason: 'verdict_rejected', verdict: 9 },
      'the verdict in entry 9 does not count: it is not signed under a key declared for a verifier, or what it cites is not so',
    ],
  ],
  unsigned: [
    [
      { reason: 'unsigned', sink: 'hook' },
      'hook: not every line was signed under a declared key, so whoever held a token may have written some',
    ],
  ],
};

test('lines that are missing without a word are told together, and nothing twice', () => {
  const because = [3, 9, 12, 15, 18, 21].map(
    (from) => ({ reason: 'missing', epoch, from, to: from + 2 }) as const,
  );
  const root = { reason: 'root_not_compared', epoch } as const;
  expect(
    reasonText({ reason: 'coverage', sink: 'proxy', status: 'gap', because: [...because, root, root] }),
  ).toBe(
    'proxy has a gap: 12 lines never came, and nothing says why (3 to 4, 9 to 10, 12 to 13, 15 to 16, 18 to 19, and 1 more); no root that it stated could be compared with its lines',
  );
});

test('what is so of several calls or verdicts is said once, where the first of them stands', () => {
  const named = (n: number): string => `hmac-sha256:${String(n).repeat(64)}`;
  const rejected = (index: number) => ({ reason: 'verdict', index, fault: 'not_run' }) as const;
  const call = (n: number, because: readonly CallAuthorityReason[]): ListedReason => ({
    reason: 'not_replayed',
    calls: [named(n)],
    level: 'observed',
    because,
  });
  const unverified = (verdict: number): ListedReason => ({
    reason: 'verdict_unverified',
    verdict,
    cause: 'SLOW',
  });
  const reasons: ListedReason[] = [
    call(1, [rejected(10), { reason: 'one_domain' }]),
    { reason: 'unsigned', sink: 'hook' },
    call(2, [{ reason: 'one_domain' }]),
    unverified(10),
    call(3, [rejected(12), { reason: 'one_domain' }]),
    // Of these nobody knows which is which: they are no single call.
    { ...call(4, [{ reason: 'one_domain' }]), calls: [named(4), named(5)] } as ListedReason,
    unverified(12),
    { reason: 'verdict_unverified', verdict: 13 },
    { reason: 'fail', sink: 'verifier', verdict: 20, cause: 'EFFECT' },
    { reason: 'fail', sink: 'verifier', verdict: 21, cause: 'EFFECT' },
    { reason: 'verdict_rejected', verdict: 30 },
    { reason: 'verdict_rejected', verdict: 31 },
  ];
  expect(reasonTexts(reasons)).toEqual([
    '2 calls were not run again, only observed: the verdict on each does not count: it says that nothing was run again; no two trust domains saw the same (calls 111111111111, 333333333333)',
    reasonText(reasons[1] as ListedReason),
    reasonText(reasons[2] as ListedReason),
    '2 verdicts could not be reached, SLOW (entries 10, 12)',
    reasonText(reasons[5] as ListedReason),
    reasonText(reasons[7] as ListedReason),
    'verifier found 2 failures, EFFECT (verdicts in entries 20, 21)',
    'the verdicts in entries 30, 31 do not count: they are not signed under a key declared for a verifier, or what they cite is not so',
  ]);
});

describe('every reason has its words', () => {
  const cases = (of: Readonly<Record<string, readonly (readonly [unknown, string])[]>>) =>
    Object.values(of).flat();
  test.each(cases(MEMBERS))('of a member: %j', (reason, text) => {
    expect(memberReasonText(reason as MemberReason)).toBe(text);
  });
  test.each(cases(CALLS))('of a call: %j', (reason, text) => {
    expect(callReasonText(reason as CallAuthorityReason)).toBe(text);
  });
  test.each(cases(REASONS))('of a session: %j', (reason, text) => {
    expect(reasonText(reason as ListedReason)).toBe(text);
  });
});
