/** `belay receipt verify` of a whole export: every check by name, and what the export comes to. */

import { open } from 'node:fs/promises';
import {
  type ExaminedExport,
  PAGES_VERSION,
  thriftily,
  unchosenText,
  verifyExport,
  type VerifyProgress,
} from '@belay/export';
import { type Pins, ReceiptError, SESSION_DISPOSITIONS } from '@belay/receipt';
import { readConfig } from './config.js';
import { badInput } from './exit.js';
import { checkTable, columns, print, printable, type Style, styleFor } from './output.js';
import { progressLine } from './progress-line.js';
import { EXIT_OF, folded, verdictOf } from './receipt-check.js';

const LOCAL_HEADER = Buffer.from('PK\u0003\u0004');
const END = Buffer.from('PK\u0005\u0006');
const END_SIZE = 22;

/** Whether a file is an archive, by its first bytes or its last: of a damaged one, one of the two will do. */
export async function isArchive(path: string): Promise<boolean> {
  if (path === '-') return false;
  const handle = await open(path, 'r');
  try {
    const stat = await handle.stat();
    if (!stat.isFile()) return false;
    const bytes = Buffer.alloc(LOCAL_HEADER.length);
    const begins = async (at: number, magic: Buffer): Promise<boolean> =>
      (await handle.read(bytes, 0, bytes.length, at)).bytesRead === bytes.length && bytes.equals(magic);
    return (
      (await begins(0, LOCAL_HEADER)) || (stat.size >= END_SIZE && (await begins(stat.size - END_SIZE, END)))
    );
  } finally {
    await handle.close();
  }
}

const PHASES: Readonly<Record<VerifyProgress['phase'], string>> = {
  files: 'digests of files',
  receipts: 'receipts',
  entries: 'entries',
  report: 'report',
};

/** Verifies the export at a path and prints what came of it. Sets the exit code. */
export async function verifyArchive(path: string, pins: Pins, json: boolean | undefined): Promise<void> {
  const line = progressLine();
  let examined: ExaminedExport;
  try {
    examined = await thriftily(() =>
      verifyExport(path, pins, {
        progress: ({ phase, done, total }) => line.at(PHASES[phase], done, total, String),
      }),
    );
  } catch (error) {
    if (!(error instanceof ReceiptError)) throw error;
    throw badInput(error.code, error.message, undefined, error);
  } finally {
    line.end();
  }
  const { report } = examined;
  process.exitCode = EXIT_OF[report.verdict];
  const style = styleFor(readConfig());
  await print(
    json,
    { ...report, ...said(examined) },
    () =>
      `${checkTable(folded(report.checks), style)}\n${verdictOf(report.verdict, style)}\n${summary(examined, style)}`,
  );
}

/** What the export says, as far as its form allowed to read it. */
function said({ manifest, model, unchosen }: ExaminedExport): { readonly export?: object } {
  if (manifest === undefined) return {};
  const { log, project, asOf, request, counts, pages } = manifest;
  return {
    export: {
      log: { origin: log.origin, vkey: log.vkey },
      project,
      asOf: { size: asOf.size, time: asOf.time, evaluated: asOf.evaluated },
      ...(unchosen === undefined ? {} : { unchosen }),
      request,
      counts,
      pages: { version: pages, madeAgain: pages === PAGES_VERSION },
      ...(model === undefined
        ? {}
        : { dispositions: model.dispositions, coverage: model.coverage, verdicts: model.verdicts }),
    },
  };
}

function summary({ report, manifest, model, unchosen }: ExaminedExport, style: Style): string {
  if (manifest === undefined || model === undefined || report.verdict === 'INVALID') return '';
  const { counts } = manifest;
  const dispositions = SESSION_DISPOSITIONS.filter((status) => model.dispositions[status] > 0).map(
    (status) => `${model.dispositions[status]} ${status}`,
  );
  const { request, asOf } = manifest;
  const looked = request.sessions === undefined ? `; sessions looked for in the first ${asOf.evaluated}` : '';
  const rows: [string, string][] = [
    ['project', `${model.project.name} (${model.project.id})`],
    ['scope', model.scope],
    ['as of', `${model.asOf.size} entries, ${model.asOf.time}${looked}`],
    ['entries', `${counts.entries} included, ${counts.omitted} left out`],
    ['sessions', dispositions.length === 0 ? 'none' : dispositions.join(', ')],
  ];
  if (unchosen !== undefined) rows.push(['but', unchosenText(unchosen, manifest)]);
  if (manifest.pages !== PAGES_VERSION) {
    rows.push([
      'pages',
      `made by version ${manifest.pages}, not made again: this is version ${PAGES_VERSION}`,
    ]);
  }
  return `\n${columns(rows.map(([name, value]) => [style.dim(name.padEnd(8)), printable(value)]))}`;
}
