/** `belay check`: traces judged for a CI job. One line, one exit code. */

import { basename } from 'node:path';
import { type Status, tally, worse } from '@belay/verdict';
import { type Command } from 'commander';
import { readConfig } from './config.js';
import { print, printable, writeOut } from './output.js';
import { counted, integrityText, messageOf, nameOf, statusCounts, WORST_FIRST } from './report-text.js';
import { reportOptions, type ReportOptions, takesOutput, writeReports } from './report-write.js';
import type { Verification } from './verification.js';
import { exitOf, judgingOptions, playingOptions, verifyAll, type VerifyOptions } from './verify.js';

interface CheckOptions extends VerifyOptions, ReportOptions {
  readonly github?: boolean;
}

/** What `--json` prints, and the line is made of. */
interface Checked {
  readonly status: Status;
  readonly traces: readonly {
    readonly trace: string;
    readonly status: Status;
    readonly integrity: string;
    readonly counts: Verification['tally']['counts'];
    readonly causes: Verification['tally']['causes'];
  }[];
  /** The worst part of all, the first of its kind; absent where everything passed. */
  readonly worst?: {
    readonly trace: string;
    readonly part: string;
    readonly status: Status;
    readonly cause?: string;
    readonly message: string;
  };
}

function checked(found: readonly Verification[]): Checked {
  const parts = found.flatMap(({ trace, parts: own }) => own.map((part) => ({ trace, part })));
  const worst = WORST_FIRST.filter((status) => status !== 'PASS')
    .map((status) => parts.find(({ part }) => part.verdict.status === status))
    .find((each) => each !== undefined);
  return {
    status: found
      .map((each) => each.tally.status)
      .reduce<Status>(worse, found.length === 0 ? 'UNVERIFIED' : 'PASS'),
    traces: found.map(({ trace, tally: { status, counts, causes }, integrity }) => ({
      trace,
      status,
      integrity: integrityText(integrity),
      counts,
      causes,
    })),
    ...(worst === undefined
      ? {}
      : {
          worst: {
            trace: worst.trace,
            part: nameOf(worst.part),
            status: worst.part.verdict.status,
            ...(worst.part.verdict.cause === undefined ? {} : { cause: worst.part.verdict.cause }),
            message: messageOf(worst.part),
          },
        }),
  };
}

export function checkLine(found: readonly Verification[]): string {
  const { status, traces, worst } = checked(found);
  const all = tally(found.flatMap(({ parts }) => parts.map(({ verdict }) => verdict)));
  const [only] = traces;
  const name =
    traces.length === 1 && only !== undefined ? basename(only.trace) : counted(traces.length, 'trace');
  const integrity = [...new Set(traces.map((each) => each.integrity))].join(', ');
  const where = worst === undefined || traces.length === 1 ? '' : ` of ${basename(worst.trace)}`;
  const first =
    worst === undefined ? '' : `; ${worst.part}${where}: ${worst.cause ?? worst.status}: ${worst.message}`;
  return `${printable(`${status} ${name}: ${statusCounts(all)}; integrity: ${integrity}${first}`)}\n`;
}

async function runCheck(traces: readonly string[], options: CheckOptions): Promise<void> {
  const taken = takesOutput(options);
  const { found, interrupted } = await verifyAll(traces, options, readConfig());
  if (options.github === true && !taken && options.json !== true) {
    const { annotations } = await import('./report-github.js');
    await writeOut(annotations(found));
  }
  if (!taken) await print(options.json, checked(found), () => checkLine(found));
  // A report of half of the work must not take the place of a whole one.
  if (!interrupted) await writeReports(found, options);
  process.exitCode = interrupted ? 130 : exitOf(found, options.allowUnverified);
}

export function register(program: Command): void {
  const command = program.command('check').description('judge traces for a CI job: one line, one exit code');
  reportOptions(playingOptions(judgingOptions(command)))
    .option('--github', 'annotations for a GitHub workflow before the line')
    .option('--allow-unverified', 'exit with 0 also where something could not be decided')
    .option('--json', 'print the line for machines')
    .action(runCheck);
}
