/**
 * A policy's boundary, proven by trying it: every row of the escape and the ordinary-life table once without the
 * boundary, so that a refusal means something, and once inside, where the world outside tells what came through.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Denial } from './denial.js';
import type { SandboxPolicy } from './policy.js';
import { type Launch, ProbeError, runProbe, type Tried } from './probe-run.js';
import { Stage, type StageOptions, writable } from './probe-stage.js';
import { judge, type Mark, type RowResult, type Seen } from './probe-verdict.js';
import type { SandboxRecord } from './record.js';
import { look, within } from './hidden.js';
import type { SandboxHost } from './prepared.js';
import { prepare } from './sandbox.js';

export interface CheckOptions extends Omit<StageOptions, 'control' | 'limits'> {
  /** Its roots hold `workspace`. */
  readonly policy: SandboxPolicy;
  readonly host: SandboxHost;
  /** The whole environment of what runs inside. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Ends the check; everything that was made for it is taken away all the same. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * `holds`: nothing came through that the back end is not known for, and ordinary life works; `broken`; `untestable`:
 * what the answer rests on could not be tried here.
 */
export type BoundaryVerdict = 'holds' | 'broken' | 'untestable';

export interface BoundaryReport {
  readonly verdict: BoundaryVerdict;
  readonly record: SandboxRecord;
  readonly rows: readonly RowResult[];
  readonly counts: Readonly<Record<Mark, number>>;
  /** Rows that the verdict rests on, if any is the reason for `broken` or `untestable`. */
  readonly reasons: readonly string[];
}

/**
 * Takes two to five seconds, makes things in `outside`, `workspace`, the folder for temporary files, /dev/shm and /run,
 * and takes them away again. Throws SandboxError where the policy can't be had, ProbeError where the probe can't run.
 */
export async function checkBoundary(options: CheckOptions): Promise<BoundaryReport> {
  // Whether it can be had at all is known at once.
  const first = await prepare(
    options.policy,
    { argv: [process.execPath], cwd: options.workspace, env: options.env },
    { ...options.host, canary: false },
  );
  first.started(undefined);
  await first.dispose();
  const control = await onStage({ ...options, control: true, limits: {} }, controlLaunch);
  let record: SandboxRecord | undefined;
  const denials: Denial[] = [];
  const inside = await onStage({ ...options, control: false, limits: options.policy.limits }, (stage) => {
    const policy = { ...options.policy, hide: [...options.policy.hide, ...stage.hide] };
    return async (argv) => {
      const cwd = stage.plan.workspace;
      const prepared = await prepare(
        policy,
        { argv, cwd, env: options.env },
        { ...options.host, canary: false },
      );
      record = prepared.record;
      prepared.onDenial((denial) => denials.push(denial));
      const [program, ...args] = prepared.argv;
      const child = spawn(program, args, {
        cwd: prepared.cwd,
        env: prepared.env,
        // Pipes, as a server has them: a file of ours would be a handle through our own mounts.
        stdio: ['pipe', 'pipe', 'pipe', ...prepared.fds],
        detached: true,
      });
      child.stdin?.on('error', () => undefined).end();
      prepared.started(child.pid);
      return {
        child,
        end: async () => {
          prepared.drain();
          await prepared.dispose();
        },
      };
    };
  });
  if (record === undefined) throw new ProbeError('the probe was not started');
  // What was asked for, not what there is: without a boundary the network is open, and not by policy.
  const setting = { ...record, network: options.policy.network.mode };
  const rows = [...inside].map(([row, { tried, seen }]) =>
    judge(row, control.get(row)?.seen, seen, setting, during(denials, tried)),
  );
  return { ...conclude(rows), record, rows };
}

interface Outcome {
  readonly tried: Tried;
  readonly seen: Seen;
}

/** Both runs of the tables: a stage, the probe on it, and what was seen of each row. */
async function onStage(
  options: StageOptions & { readonly signal?: AbortSignal | undefined },
  launcher: (stage: Stage) => Launch,
): Promise<Map<string, Outcome>> {
  const stage = await Stage.make(options);
  try {
    const tried = await runProbe(stage.plan, launcher(stage), () => stage.late(), options.signal);
    await stage.settle();
    return new Map(
      [...tried].map(([row, each]): [string, Outcome] => {
        const { answer } = each;
        return [row, { tried: each, seen: { answer, reached: stage.reached(row, answer) } }];
      }),
    );
  } finally {
    await stage.dispose();
  }
}

/** Without a boundary, and with a descriptor of a folder outside, which is one of the rows. */
const controlLaunch =
  (stage: Stage): Launch =>
  async ([program, ...args]) => {
    const fd = openSync(stage.plan.outside, 'r');
    const child: ChildProcess = spawn(program, args, {
      cwd: stage.plan.workspace,
      stdio: ['ignore', 'pipe', 'pipe', fd],
      detached: true,
    });
    closeSync(fd);
    return { child, end: () => Promise.resolve() };
  };

/** Rows are tried one after the other, so a refusal belongs to the row that was being tried. */
function during(denials: readonly Denial[], { from, to }: Tried): Denial[] {
  return denials.filter(({ time }) => time >= from && time <= to);
}

function conclude(rows: readonly RowResult[]): Pick<BoundaryReport, 'verdict' | 'counts' | 'reasons'> {
  const counts: Record<Mark, number> = {
    refused: 0,
    contained: 0,
    escaped: 0,
    hole: 0,
    allowed: 0,
    works: 0,
    fails: 0,
    lacks: 0,
    'refused-by-policy': 0,
    untested: 0,
  };
  for (const { mark } of rows) counts[mark]++;
  const wrong = rows.filter(({ mark }) => mark === 'escaped' || mark === 'fails');
  const missing = rows.filter(({ mark, essential }) => mark === 'untested' && essential);
  const reasons = (wrong.length > 0 ? wrong : missing).map(({ row }) => row);
  return {
    verdict: wrong.length > 0 ? 'broken' : missing.length > 0 ? 'untestable' : 'holds',
    counts,
    reasons,
  };
}

/** Where every command has a folder of its own in place of the machine's. */
const REPLACED = ['/tmp', '/var/tmp', '/run', '/dev', '/proc'];

/**
 * The first of `candidates` in which the things outside can be made so that they are seen inside and not written:
 * writable for us, in no root, and in no folder that is replaced. Undefined where none is; then what is outside is not
 * even seen, and refusals show less.
 */
export function placeOutside(candidates: readonly string[], roots: readonly string[]): string | undefined {
  return candidates
    .flatMap((path) => look(path) ?? [])
    .find(
      ({ path, folder }) =>
        folder && writable(path) && ![...REPLACED, ...roots].some((other) => within(path, other)),
    )?.path;
}
