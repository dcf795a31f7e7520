/** Starts the probe, as often as it takes to get through all rows, and notes what it says and when. */

import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Answer, ProbeLine, ProbePlan } from './probe-plan.js';

/** From source, the compiled form beside it: Node runs no TypeScript. */
const PROGRAM = fileURLToPath(
  import.meta.url.endsWith('.js')
    ? new URL('./probe-inside.js', import.meta.url)
    : new URL('../dist/probe-inside.js', import.meta.url),
);

/** A row that takes longer than this hangs, in milliseconds. */
const PATIENCE = 20_000;

/** One row's answer, and between which two moments it was tried (Unix time in milliseconds). */
export interface Tried {
  readonly answer: Answer;
  readonly from: number;
  readonly to: number;
}

/** Starts a command somewhere, standard output a pipe; `end` is called when it is gone. */
export type Launch = (
  argv: readonly [string, ...string[]],
) => Promise<{ readonly child: ChildProcess; readonly end: () => Promise<void> }>;

/** The probe did not start, in the words of whoever started it. */
export class ProbeError extends Error {}

/**
 * All rows of the plan. A row in which the probe dies is `refused` by the signal that ended it, one in which it hangs by
 * `TIMEOUT`; the rest goes to a new one. `onStart` is called when the probe has spoken for the first time.
 */
export async function runProbe(
  plan: ProbePlan,
  launch: Launch,
  onStart: () => Promise<void>,
  signal: AbortSignal | undefined,
): Promise<Map<string, Tried>> {
  const tried = new Map<string, Tried>();
  for (;;) {
    const rows = plan.rows.filter((row) => !tried.has(row));
    if (rows.length === 0) return tried;
    signal?.throwIfAborted();
    const before = tried.size;
    await onePass({ ...plan, rows }, launch, onStart, tried, signal);
    if (tried.size === before) throw new ProbeError('the probe did not begin');
  }
}

async function onePass(
  plan: ProbePlan,
  launch: Launch,
  onStart: () => Promise<void>,
  tried: Map<string, Tried>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { child, end } = await launch([process.execPath, PROGRAM, JSON.stringify(plan)]);
  let words = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    words = (words + text).slice(-2_000);
  });
  let begun: { readonly row: string; readonly at: number } | undefined;
  let hung = false;
  let timer: NodeJS.Timeout | undefined;
  const kill = (): void => {
    hung = true;
    // Its whole group: what started it for us (strace, bwrap) has no business without it.
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
      process.kill(-child.pid, 'SIGKILL');
  };
  signal?.addEventListener('abort', kill);
  const ended = new Promise<NodeJS.Signals | number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      resolve(signal ?? code);
    });
  });
  try {
    if (child.stdout === null) throw new ProbeError('the probe has no standard output');
    let first: Promise<void> | undefined;
    const lines = createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY });
    lines.on('line', (text) => {
      const line = parse(text);
      if (line === undefined) return;
      first ??= onStart();
      clearTimeout(timer);
      timer = setTimeout(kill, PATIENCE);
      const { at } = line;
      if ('begin' in line) begun = { row: line.begin, at };
      else {
        const { at: to, ...answer } = line;
        tried.set(answer.row, { answer, from: begun?.at ?? to, to });
        begun = undefined;
      }
    });
    timer = setTimeout(kill, PATIENCE);
    const outcome = await ended;
    await first;
    signal?.throwIfAborted();
    if (begun !== undefined) {
      const { row, at } = begun as { row: string; at: number };
      const refused = hung ? 'TIMEOUT' : typeof outcome === 'string' ? outcome : `EXIT ${outcome}`;
      tried.set(row, { answer: { row, refused, syscall: '' }, from: at, to: Date.now() });
    } else if (tried.size === 0) {
      throw new ProbeError(words.trim() || `the probe ended with ${outcome} before it began`);
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', kill);
    await end();
  }
}

/** A line of the probe's; programs that a row starts may write others. */
function parse(text: string): ProbeLine | undefined {
  try {
    const line = JSON.parse(text) as ProbeLine;
    return typeof line === 'object' && line !== null && typeof line.at === 'number' ? line : undefined;
  } catch {
    return undefined;
  }
}
