import type { Entry } from '@belay/envelope';
import type { ControlRow } from './report-model.js';

/** A field of a table; absent ones are empty. */
export type Field = string | number | boolean | undefined;

const FORMULA = /^[=+\-@\t\r]/;
const INTEGER = /^-?\d+$/;
const QUOTED = /[",\r\n]/;

/** One row of RFC 4180 with its CRLF; nothing in it is a formula to a spreadsheet. */
export function csvRow(fields: readonly Field[]): string {
  let row = '';
  for (let i = 0; i < fields.length; i++) {
    if (i > 0) row += ',';
    const field = fields[i];
    if (field === undefined) continue;
    row += typeof field === 'string' ? textField(field) : field;
  }
  return `${row}\r\n`;
}

function textField(text: string): string {
  const safe = FORMULA.test(text) && !INTEGER.test(text) ? `'${text}` : text;
  return QUOTED.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const EVENT_COLUMNS = [
  'index',
  'received',
  'late',
  'conflict',
  'role',
  'signed',
  'sink',
  'token',
  'epoch',
  'seq',
  'kind',
  'time',
  'session',
  'call',
  'match',
  'digest',
  'tool',
  'tooldef',
  'bytes',
  'ok',
  'error',
  'ms',
  'state',
  'phase',
  'status',
  'cause',
  'mode',
  'leaf',
] as const;

export const EVENTS_HEADER = csvRow(EVENT_COLUMNS);

/** The row of an entry in `events.csv`, FORMAT.md section 8. */
export function eventRow(entry: Entry, leaf: Buffer): string {
  const { line } = entry;
  if (entry.by === 'sender') {
    const { envelope } = entry;
    const attrs = envelope.attrs ?? {};
    const { error } = attrs;
    return csvRow([
      line.index,
      line.received,
      line.late,
      line.conflict,
      line.role,
      line.signed,
      line.sink,
      line.token,
      envelope.epoch,
      envelope.seq,
      envelope.kind,
      envelope.time,
      envelope.session,
      envelope.call,
      envelope.match,
      envelope.digest,
      plain(attrs['tool']),
      plain(attrs['tooldef']),
      plain(attrs['bytes']),
      plain(attrs['ok']),
      error !== undefined && attrs['error_negative'] === true ? `-${String(error)}` : plain(error),
      plain(attrs['ms']),
      plain(attrs['state']),
      plain(attrs['phase']),
      plain(attrs['status']),
      plain(attrs['cause']),
      plain(attrs['mode']),
      leaf.toString('hex'),
    ]);
  }
  const body = entry.statement as unknown as Readonly<Record<string, unknown>>;
  const scope = body['scope'] as Readonly<Record<string, unknown>> | undefined;
  return csvRow([
    line.index,
    line.received,
    line.late,
    line.conflict,
    line.role,
    line.signed,
    word(body['sink']),
    word(body['token']),
    word(body['epoch']),
    word(body['seq']),
    word(body['kind']),
    word(body['time']),
    word(body['session']) ?? word(scope?.['session']),
    word(body['call']),
    word(body['match']),
    word(body['statement']) ?? word(body['receipt']),
    ...NO_ATTRIBUTES,
    word(body['status']),
    undefined,
    undefined,
    leaf.toString('hex'),
  ]);
}

/** `tool` to `phase`, of which a collector's entry has none. */
const NO_ATTRIBUTES: readonly undefined[] = Array.from(
  { length: EVENT_COLUMNS.indexOf('status') - EVENT_COLUMNS.indexOf('tool') },
  () => undefined,
);

export const SESSIONS_HEADER = csvRow([
  'session',
  'began_index',
  'began',
  'last_index',
  'last',
  'entries',
  'later_entries',
  'kinds',
  'closed',
  'coverage',
  'disposition',
  'reasons',
  'calls',
  'asserted',
  'observed',
  'corroborated',
  'replayed',
  'adjudicated',
  'PASS',
  'WARN',
  'FAIL',
  'UNVERIFIED',
  'as_of',
  'statement_size',
  'statement_time',
  'statement',
  'receipt',
  'receipt_index',
  'supersedes',
  'receipts',
]);

/** `controls.csv`, whole. */
export function controlsTable(rows: readonly ControlRow[]): string {
  const header = csvRow(['framework', 'control', 'asks', 'result', 'evidence', 'limits']);
  return (
    header +
    rows
      .map(({ framework, control, asks, result, evidence, limits }) =>
        csvRow([framework, control, asks, result, evidence, limits]),
      )
      .join('')
  );
}

/** An attribute, which is text, a number or a boolean, or a list that no column has. */
function plain(value: unknown): Field {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? value
    : undefined;
}

function word(value: unknown): Field {
  return typeof value === 'string' || typeof value === 'number' ? value : undefined;
}
