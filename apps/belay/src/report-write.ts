/** Reports of verifications that are files: which were asked for, and where they go. */

import type { Command } from 'commander';
import { usage } from './exit.js';
import { toFile, toStandardOutput, type TextSink } from './text-sink.js';
import type { Verification } from './verification.js';

export interface ReportOptions {
  readonly junit?: string;
  readonly sarif?: string;
  readonly html?: string;
  readonly json?: boolean;
  readonly allowUnverified?: boolean;
}

const FORMATS = ['junit', 'sarif', 'html'] as const;

export function reportOptions(command: Command): Command {
  return command
    .option('--junit <file>', 'a JUnit report; - is standard output')
    .option('--sarif <file>', 'a SARIF 2.1.0 report; - is standard output')
    .option('--html <file>', 'one HTML page with the diff of each effect; - is standard output');
}

/** Whether a report takes standard output, and with it the place of the page for a person. */
export function takesOutput(options: ReportOptions): boolean {
  const asked = FORMATS.filter((format) => options[format] === '-').length + (options.json === true ? 1 : 0);
  if (asked > 1) throw usage('only one report can go to standard output');
  return FORMATS.some((format) => options[format] === '-');
}

/** A file takes its place when it is whole, and is as private as the trace. */
export async function writeReports(found: readonly Verification[], options: ReportOptions): Promise<void> {
  for (const format of FORMATS) {
    const path = options[format];
    if (path === undefined) continue;
    const work = async (sink: TextSink): Promise<void> => {
      for await (const piece of piecesOf(format, found, options)) {
        if (sink.gone) return;
        await sink.write(piece);
      }
    };
    await (path === '-' ? toStandardOutput(work) : toFile(path, work));
  }
}

async function* piecesOf(
  format: (typeof FORMATS)[number],
  found: readonly Verification[],
  { allowUnverified = false }: ReportOptions,
): AsyncGenerator<string> {
  if (format === 'html') yield* (await import('./report-html.js')).verificationHtml(found);
  else if (format === 'junit') yield (await import('./report-junit.js')).junitXml(found, { allowUnverified });
  else yield `${JSON.stringify((await import('./report-sarif.js')).sarifLog(found), undefined, 2)}\n`;
}
