/** The operator's rules held against an interval of a trace, in the words of a verdict. */

import type { Contents, Side } from '@belay/replay';
import {
  type Content,
  type Effect,
  type Finding,
  judge,
  type Policy,
  type RuleJudgement,
  VERDICT,
} from '@belay/invariant';
import type { Cause, Judgement } from '@belay/verdict';
import type { Interval } from './verify-trace.js';

const CAUSE = {
  kept: undefined,
  touched: 'INVARIANT_TOUCHED',
  broken: 'INVARIANT_BROKEN',
  undecided: 'INVARIANT_UNDECIDED',
} as const satisfies Record<RuleJudgement['status'], Cause | undefined>;

/** One judgement per rule that is about such an interval. */
export async function judgeInvariants(
  policy: Policy,
  interval: Interval,
  contents: Contents,
): Promise<readonly Judgement[]> {
  const { rules } = await judge(policy, effectOf(interval, contents));
  return rules.map((rule) => {
    const cause = CAUSE[rule.status];
    return {
      axis: 'A1',
      kind: 'invariant',
      status: VERDICT[rule.status],
      ...(cause === undefined ? {} : { cause }),
      message: messageOf(rule),
      ...(rule.findings.length === 0 ? {} : { evidence: rule.findings }),
    };
  });
}

function effectOf({ kind, changes, egress, history }: Interval, contents: Contents): Effect {
  return {
    scope: kind,
    changes: changes.map(({ path, what, ...sides }) => {
      const [before, after] = [contentOf(sides.before, contents), contentOf(sides.after, contents)];
      return {
        path,
        what,
        ...(before === undefined ? {} : { before }),
        ...(after === undefined ? {} : { after }),
      };
    }),
    ...(egress.reached === undefined ? {} : { egress: { reached: egress.reached, denied: egress.denied } }),
    ...(kind === 'session' ? { history } : {}),
  };
}

function contentOf(side: Side | undefined, contents: Contents): Content | undefined {
  if (side?.content === undefined) return undefined;
  const { content, size = 0 } = side;
  return {
    size,
    read() {
      const bytes = contents.get(content);
      if (bytes === undefined) throw new Error('the content is not on this machine');
      return bytes;
    },
  };
}

function messageOf({ id, status, findings, examined }: RuleJudgement): string {
  const worst = findings.find((finding) => finding.status === status);
  if (worst === undefined) return `${id}: kept (${examined.paths} paths looked at)`;
  const more = findings.length > 1 ? ` and ${findings.length - 1} more` : '';
  return `${id}: ${words(worst)}${more}`;
}

const words = ({ cause, path, test, after, before }: Finding): string => {
  const line = after?.line ?? before?.line;
  return `${cause.replaceAll('-', ' ')} in ${path}${line === undefined ? '' : `:${line}`}${test === undefined ? '' : ` (${test})`}`;
};
