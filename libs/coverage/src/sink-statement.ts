import type { ChainFindings, SinkChain } from './sink-chain.js';
import { type AsOf, COVERAGE_STATUSES, type CoverageStatus, type EpochStatement } from './epoch-statement.js';

/** All epochs of one sink, and whether one is missing between them. */
export interface SinkStatement extends Omit<ChainFindings, 'epochs'> {
  readonly v: 1;
  readonly type: 'sink';
  readonly log: string;
  readonly sink: string;
  readonly asOf: AsOf;
  readonly policy: string;
  /** The worst of its epochs; a branch or a miscount is a `conflict`, a lost epoch is `silent`, no epoch at all too. */
  readonly status: CoverageStatus;
  readonly epochs: readonly { readonly epoch: string; readonly status: CoverageStatus }[];
}

/** The worse of the statuses; `complete` for none. */
export function worst(statuses: readonly CoverageStatus[]): CoverageStatus {
  return COVERAGE_STATUSES.find((status) => statuses.includes(status)) ?? 'complete';
}

/** The statement on a sink: its chain, with the statement on each epoch in it, all of one time and policy. */
export function sinkStatement(
  chain: SinkChain,
  question: { readonly asOf: AsOf; readonly policy: string },
  statementOf: (epoch: string) => Pick<EpochStatement, 'status'>,
): SinkStatement {
  const { epochs, ...findings } = chain.findings();
  const listed = epochs.map((epoch) => ({ epoch, status: statementOf(epoch).status }));
  return {
    v: 1,
    type: 'sink',
    log: chain.log,
    sink: chain.sink,
    asOf: { size: question.asOf.size, time: question.asOf.time },
    policy: question.policy,
    status: sinkStatus(findings, listed),
    epochs: listed,
    ...findings,
  };
}

/** What follows from a sink's chain and the statuses of its epochs. */
export function sinkStatus(
  { branches, miscounted, lost }: Pick<ChainFindings, 'branches' | 'miscounted' | 'lost'>,
  epochs: readonly { readonly status: CoverageStatus }[],
): CoverageStatus {
  const statuses = epochs.map(({ status }) => status);
  if (branches.length > 0 || miscounted.length > 0) statuses.push('conflict');
  if (lost.length > 0 || epochs.length === 0) statuses.push('silent');
  return worst(statuses);
}
