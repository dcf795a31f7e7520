/** What a trace is worth, in words: shared by every view of it. */

import { basename } from 'node:path';
import { checkTrace, type TraceProblemCode, type TraceReport } from '@belay/trace';
import { EXIT, type ExitCode } from './exit.js';

/**
 * `INTACT`: from `open` to `close` as it was written. `DAMAGED`: something was changed afterwards. `INCOMPLETE`: nothing
 * speaks for a change, but something is missing, by the record's own word or because its writer was stopped.
 */
export type TraceVerdict = 'INTACT' | 'INCOMPLETE' | 'DAMAGED';

/** What a writer that was stopped leaves behind. Everything else takes an editor. */
const STOPPED: ReadonlySet<TraceProblemCode> = new Set(['torn_tail', 'missing_close', 'empty']);

export const EXIT_OF: Readonly<Record<TraceVerdict, ExitCode>> = {
  INTACT: EXIT.good,
  INCOMPLETE: EXIT.undecided,
  DAMAGED: EXIT.bad,
};

/** A checked trace file. */
export interface CheckedTrace extends TraceReport {
  readonly path: string;
  readonly verdict: TraceVerdict;
}

export async function checkFile(path: string): Promise<CheckedTrace> {
  const report = await checkTrace(path);
  const { problems, gaps, close } = report;
  const damaged = problems.some(({ code }) => !STOPPED.has(code));
  const missing = problems.length > 0 || gaps.length > 0 || (close?.lost ?? 0) > 0;
  return { ...report, path, verdict: damaged ? 'DAMAGED' : missing ? 'INCOMPLETE' : 'INTACT' };
}

/** What every JSON document about a trace begins with. The environment stays in the trace: exports go places. */
export function factsOf(trace: CheckedTrace): Record<string, unknown> {
  const { path, verdict, integrity, records, frames, head, open, close, gaps, problems } = trace;
  return {
    file: basename(path),
    verdict,
    integrity,
    records,
    frames,
    head,
    open:
      open === undefined
        ? undefined
        : { ...withoutChain(open), ...(open.command && { command: { ...open.command, env: undefined } }) },
    close: close === undefined ? undefined : withoutChain(close),
    gaps: gaps.map((gap) => withoutChain(gap)),
    problems,
  };
}

function withoutChain<T extends { readonly prev: string; readonly type: string }>(
  record: T,
): Omit<T, 'prev' | 'type'> {
  const { prev: _prev, type: _type, ...rest } = record;
  return rest;
}

/** The last word on every page. */
export const LOCAL_ONLY =
  'integrity: local-only. A chain proves nothing against the owner of the file, who could write another one.';

/** A gap record in words. */
export function gapText(gap: Record<string, unknown>): string {
  const count = Number(gap['count']);
  const code = typeof gap['code'] === 'string' ? ` (${gap['code']})` : '';
  const detail = typeof gap['detail'] === 'string' ? `: ${gap['detail']}` : '';
  switch (gap['reason']) {
    case 'write':
      return `the disk refused ${count} records${code}`;
    case 'torn':
      return `${count} bytes at the end were no record and were cut off${code}`;
    case 'observer':
      return `the recorder failed ${count} times${code}${detail}`;
    default:
      return `${String(gap['reason'])} ${count}${code}${detail}`;
  }
}
