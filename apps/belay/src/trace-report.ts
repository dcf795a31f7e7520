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

/** Codes of gaps in imported traces (libs/trace/FORMAT.md, section 7), in words. */
const IMPORTED_GAPS: Readonly<Record<string, (count: number) => string>> = {
  CAPTURE_ERROR: () => 'the recorder failed',
  SEQ_MISSING: (count) => (count === 1 ? 'a record is missing' : `${count} records are missing`),
  SEQ_ORDER: () => 'a record stands there twice or too late',
  UNKNOWN_KIND: () => 'a record of a kind or version that we do not know was left out',
  NOT_JSON: () => 'a line was no JSON',
  NOT_A_RECORD: () => 'a line was no record',
  NO_OPEN: () => 'it did not begin with its opening',
  NO_CLOSE: () => 'its recorder was stopped: there was no close',
  HASH_MISMATCH: () => 'what follows is not what its own hash said',
};

/** A gap record in words. */
export function gapText(gap: Record<string, unknown>): string {
  const count = Number(gap['count']);
  const word = typeof gap['code'] === 'string' ? gap['code'] : '';
  const code = word === '' ? '' : ` (${word})`;
  const detail = typeof gap['detail'] === 'string' ? `: ${gap['detail']}` : '';
  switch (gap['reason']) {
    case 'write':
      return `the disk refused ${count === 1 ? 'a record' : `${count} records`}${code}`;
    case 'sync':
      return `the disk did not make durable what it took${code}: how much of it is there shows after a loss of power`;
    case 'torn':
      return `${count} bytes at the end were no record and were cut off${code}`;
    case 'observer': {
      const known = Object.hasOwn(IMPORTED_GAPS, word) ? IMPORTED_GAPS[word] : undefined;
      const text =
        known?.(count) ?? (count === 1 ? 'the recorder failed once' : `the recorder failed ${count} times`);
      return `${text}${code}${detail}`;
    }
    default:
      return `${String(gap['reason'])} ${count}${code}${detail}`;
  }
}
