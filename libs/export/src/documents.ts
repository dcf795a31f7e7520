import { canonical } from '@belay/envelope';
import { absenceRows } from './absence.js';
import { controlRows } from './controls.js';
import { controlsTable } from './csv.js';
import { limitationsOf, limitationsText, readmeText } from './limitations.js';
import type { ExportFile, ExportManifest, ExportRequest } from './manifest.js';
import { oscalDocument } from './oscal.js';
import { renderReport } from './report-html.js';
import type { ReportFacts, ReportModel } from './report-model.js';

/** What the report shows, whole: the facts, and what follows from them. */
export function reportModel(facts: ReportFacts): ReportModel {
  const absence = absenceRows(facts);
  const controls = controlRows({ ...facts, absence });
  return { ...facts, absence, controls, limitations: limitationsOf(facts) };
}

/** The pages and tables that are made of the report's model alone: the same bytes each time. */
export function documentsOf(model: ReportModel, { oscal }: ExportRequest): ReadonlyMap<ExportFile, Buffer> {
  const pages: [ExportFile, string][] = [
    ['README.md', readmeText(model, { oscal: oscal === true })],
    ['LIMITATIONS.md', limitationsText(model)],
    ['controls.json', canonical(model.controls)],
    ['controls.csv', controlsTable(model.controls)],
    ['report.html', renderReport(model)],
  ];
  if (oscal) pages.push(['oscal.json', oscalDocument(model)]);
  return new Map(pages.map(([name, text]) => [name, Buffer.from(text)]));
}

const EVERYTHING = 'Nothing was left out: entries.ndjson has every entry that the checkpoint covers.';
const SESSIONS =
  'Left out are entries that belong neither to the collector nor to the sessions named, to the epochs these are in, or to what their verdicts cite. How many were left out is proven by the hash tree; that none of them belongs to these sessions is the statement of the collector.';
const PERIOD =
  'Left out are entries that belong neither to the collector nor to the sessions that began in the period, to the epochs these are in, or to what their verdicts cite. How many were left out is proven by the hash tree; that no other session began in the period, and that none of the entries left out belongs to these, is the statement of the collector.';

/** `filter.json`, FORMAT.md section 6. `sessions` are those of a period, as they began. */
export function filterFile(
  {
    request,
    counts,
  }: Pick<ExportManifest, 'request'> & {
    readonly counts: Pick<ExportManifest['counts'], 'entries' | 'omitted'>;
  },
  sessions: readonly string[],
): Buffer {
  const { period, sessions: named } = request;
  return Buffer.from(
    canonical({
      v: 1,
      request,
      included: counts.entries,
      omitted: counts.omitted,
      ...(period === undefined ? {} : { sessions }),
      statement: period !== undefined ? PERIOD : named !== undefined ? SESSIONS : EVERYTHING,
    }),
  );
}

/** Largest `filter.json` that is read, in bytes: some hundred thousand sessions of a period. */
export const MAX_FILTER_BYTES = 64 * 1024 * 1024;

/** Names of the sessions of a period, of whatever the file says; its bytes are compared afterwards. */
export function filterSessions(bytes: Buffer): readonly string[] {
  try {
    const { sessions } = JSON.parse(bytes.toString('utf8')) as { sessions?: unknown };
    return Array.isArray(sessions) ? sessions.filter((name) => typeof name === 'string') : [];
  } catch {
    return [];
  }
}
