import { canonical } from '@belay/envelope';
import { parseBase64 } from '@belay/note';
import { ExportError } from './error.js';

const STATEMENT_TYPE = 'https://in-toto.io/Statement/v1';

/** What a manifest's predicate is. */
export const EXPORT_PREDICATE_TYPE = 'urn:belay:export:v1';

/** Largest `manifest.json` that is read, in bytes. */
export const MAX_MANIFEST_BYTES = 1024 * 1024;

/** Most sessions that one request may name. */
export const MAX_REQUEST_SESSIONS = 1_000;

/** Names of an export's files, in their order; the manifest is the last. */
export const EXPORT_FILES = [
  'README.md',
  'LIMITATIONS.md',
  'keys.json',
  'chain.pem',
  'checkpoint',
  'filter.json',
  'entries.ndjson',
  'receipts.ndjson',
  'events.csv',
  'sessions.csv',
  'controls.json',
  'controls.csv',
  'report.html',
  'report.pdf',
  'oscal.json',
] as const;

export type ExportFile = (typeof EXPORT_FILES)[number];

export const MANIFEST_FILE = 'manifest.json';

/** How digests are made. Part of every manifest, word for word. */
const RULES: readonly string[] = Object.freeze([
  'A file is named with the SHA-256 of its bytes as they are in the archive; nothing is compressed or normalised.',
  'A leaf of the log is SHA-256 over a zero byte and the entry: two consecutive lines of entries.ndjson with the LF between them and without the LF at the end.',
  'A node is SHA-256 over the byte 0x01, the hash on its left and the hash on its right, as in RFC 6962; the root is that of the signed checkpoint.',
  'The digest of a receipt is the SHA-256 of its line in receipts.ndjson without the LF at the end.',
  'JSON that was made for this export is in the form of RFC 8785; the signature is Ed25519 over the DSSE v1 encoding of the payload.',
]);

/** What no export proves. Part of every manifest, word for word. */
const NOT_PROVEN: readonly string[] = Object.freeze([
  'That what the entries say is true: an entry shows who said it, when it was received and that it was not changed since.',
  'That everything that happened was recorded: a sink that never numbered a line, or was switched off before it did, leaves no gap.',
  'What the content was: entries hold commitments, which open only with their salt and the content itself.',
  'That the times are right: they are by the clocks of the sinks and of the collector.',
  'That everyone is shown the same log: compare its checkpoint with those that others hold.',
  'That a key was not revoked after the export was made: keys and chains are as of its checkpoint.',
  'That what was left out does not matter to what was asked for: how much it is, is proven; that it does not, is the statement of the collector.',
  'That report.pdf shows what report.html does: it is bound by the signature, and is not made again by a verifier.',
]);

/** What somebody asked for. With neither sessions nor a period: everything. */
export interface ExportRequest {
  /** Ascending by their bytes, each once. */
  readonly sessions?: readonly string[] | undefined;
  /** Half open; RFC 3339, UTC, three fractional digits. */
  readonly period?: { readonly from: string; readonly to: string } | undefined;
  readonly oscal?: true | undefined;
}

/** One file as the manifest names it. */
export interface ManifestFile {
  readonly name: string;
  readonly size: number;
  readonly crc32: number;
  /** Lower-case hex. */
  readonly sha256: string;
}

/** What is signed: which files, of which log, as of when. */
export interface ExportManifest {
  readonly log: {
    readonly origin: string;
    readonly vkey: string;
    /** DER, the log's certificate first, the root last. */
    readonly x5c: readonly Buffer[];
  };
  readonly project: { readonly id: string; readonly name: string };
  readonly asOf: {
    readonly size: number;
    /** The signed note, verbatim. */
    readonly checkpoint: string;
    /** When it was published. */
    readonly time: string;
    /** Size as of which sessions were looked for. */
    readonly evaluated: number;
  };
  readonly request: ExportRequest;
  /** `PAGES_VERSION` of who made it. */
  readonly pages: number;
  readonly files: readonly ManifestFile[];
  readonly counts: {
    readonly entries: number;
    readonly omitted: number;
    readonly receipts: number;
    readonly sessions: number;
  };
}

/** Names of the files that an export for this request has, without the manifest. */
export function filesOf({ oscal }: ExportRequest): readonly ExportFile[] {
  return oscal ? EXPORT_FILES : EXPORT_FILES.filter((name) => name !== 'oscal.json');
}

/**
 * The request in its one form: names sorted and without repetitions, times with three fractional digits. Throws
 * ExportError `request`.
 */
export function normaliseRequest(request: {
  readonly sessions?: readonly string[] | undefined;
  readonly period?: { readonly from: string; readonly to: string } | undefined;
  readonly oscal?: boolean | undefined;
}): ExportRequest {
  const { sessions, period } = request;
  const oscal = request.oscal === true ? { oscal: true as const } : {};
  try {
    if (sessions !== undefined && period !== undefined) {
      throw new ExportError('request', 'sessions or a period, not both');
    }
    if (sessions !== undefined) {
      return readRequest({ ...oscal, sessions: [...new Set(sessions)].sort(byBytes) });
    }
    if (period !== undefined) {
      const { from, to } = period;
      return readRequest({ ...oscal, period: { from: moment(from), to: moment(to) } });
    }
    return oscal;
  } catch (error) {
    if (error instanceof ExportError) throw new ExportError('request', error.message);
    throw error;
  }
}

/** The payload: JCS of an in-toto Statement v1. */
export function formatManifest(manifest: ExportManifest): Buffer {
  const { log, project, asOf, request, pages, files, counts } = manifest;
  return Buffer.from(
    canonical({
      _type: STATEMENT_TYPE,
      subject: files.map(({ name, sha256 }) => ({ name, digest: { sha256 } })),
      predicateType: EXPORT_PREDICATE_TYPE,
      predicate: {
        v: 1,
        log: {
          origin: log.origin,
          vkey: log.vkey,
          x5c: log.x5c.map((der) => der.toString('base64')),
        },
        project: { id: project.id, name: project.name },
        asOf: {
          size: asOf.size,
          checkpoint: asOf.checkpoint,
          time: asOf.time,
          evaluated: asOf.evaluated,
        },
        request,
        pages,
        files: files.map(({ name, size, crc32 }) => ({ name, size, crc32: hex32(crc32) })),
        counts,
        rules: RULES,
        notProven: NOT_PROVEN,
      },
    }),
  );
}

/**
 * Reads what `formatManifest` writes and nothing else: what does not come out the same when it is written again is
 * refused. Says nothing about whether it is true. Throws ExportError `malformed`.
 */
export function parseManifest(payload: Buffer): ExportManifest {
  if (payload.length > MAX_MANIFEST_BYTES) throw malformed('larger than any manifest');
  let value: unknown;
  try {
    value = JSON.parse(payload.toString('utf8'));
  } catch {
    throw malformed('not JSON');
  }
  const statement = object(value, 'statement');
  if (statement['_type'] !== STATEMENT_TYPE) throw malformed('not an in-toto Statement v1');
  if (statement['predicateType'] !== EXPORT_PREDICATE_TYPE) throw malformed(`not a ${EXPORT_PREDICATE_TYPE}`);
  const predicate = object(statement['predicate'], 'predicate');
  const log = object(predicate['log'], 'log');
  const project = object(predicate['project'], 'project');
  const asOf = object(predicate['asOf'], 'asOf');
  const counts = object(predicate['counts'], 'counts');
  const subjects = array(statement['subject'], 'subject', EXPORT_FILES.length);
  const files = array(predicate['files'], 'files', EXPORT_FILES.length).map((each, i): ManifestFile => {
    const file = object(each, 'files');
    const digest = object(object(subjects[i], 'subject')['digest'], 'digest');
    return {
      name: text(file['name'], 'name', /^[A-Za-z.]{1,32}$/),
      size: count(file['size'], 'size'),
      crc32: Number.parseInt(text(file['crc32'], 'crc32', /^[0-9a-f]{8}$/), 16),
      sha256: text(digest['sha256'], 'sha256', /^[0-9a-f]{64}$/),
    };
  });
  const manifest: ExportManifest = {
    log: {
      origin: text(log['origin'], 'origin', ORIGIN),
      vkey: text(log['vkey'], 'vkey', /^[^\s]{1,512}$/),
      x5c: array(log['x5c'], 'x5c', 3).map((der) => base64(der, 'x5c')),
    },
    project: {
      id: text(project['id'], 'id', /^prj_[0-9a-hjkmnp-tv-z]{26}$/),
      name: text(project['name'], 'name', /^[^]{1,200}$/u),
    },
    asOf: {
      size: count(asOf['size'], 'size'),
      checkpoint: text(asOf['checkpoint'], 'checkpoint', /^[^]{1,65536}$/u),
      time: time(asOf['time'], 'time'),
      evaluated: count(asOf['evaluated'], 'evaluated'),
    },
    request: readRequest(predicate['request']),
    pages: count(predicate['pages'], 'pages'),
    files,
    counts: {
      entries: count(counts['entries'], 'entries'),
      omitted: count(counts['omitted'], 'omitted'),
      receipts: count(counts['receipts'], 'receipts'),
      sessions: count(counts['sessions'], 'sessions'),
    },
  };
  if (manifest.pages === 0) throw malformed('pages is not a version');
  const { size, evaluated } = manifest.asOf;
  if (evaluated > size) throw malformed('asOf.evaluated is after its size');
  if (manifest.counts.entries + manifest.counts.omitted !== size) {
    throw malformed('the entries included and left out are not as many as the checkpoint covers');
  }
  const names = files.map(({ name }) => name).join();
  if (names !== filesOf(manifest.request).join()) throw malformed('its files are not those of an export');
  let again: Buffer;
  try {
    again = formatManifest(manifest);
  } catch {
    throw malformed('not canonical JSON');
  }
  if (!again.equals(payload)) {
    throw malformed('not in its one form: an unknown member, another order, or sentences of another version');
  }
  return manifest;
}

function readRequest(value: unknown): ExportRequest {
  const { sessions, period, oscal, ...more } = object(value, 'request');
  if (Object.keys(more).length > 0) throw malformed('request has an unknown member');
  if (oscal !== undefined && oscal !== true) throw malformed('request.oscal is not true');
  if (sessions !== undefined && period !== undefined) throw malformed('sessions or a period, not both');
  const extra = oscal === true ? { oscal: true as const } : {};
  if (sessions !== undefined) {
    const names = array(sessions, 'sessions', MAX_REQUEST_SESSIONS).map((name) =>
      text(name, 'sessions', /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/),
    );
    if (names.length === 0) throw malformed('request.sessions names none');
    if (names.some((name, i) => i > 0 && byBytes(names[i - 1] as string, name) >= 0)) {
      throw malformed('request.sessions is not in order');
    }
    return { ...extra, sessions: names };
  }
  if (period === undefined) return extra;
  const { from, to, ...other } = object(period, 'period');
  if (Object.keys(other).length > 0) throw malformed('period has an unknown member');
  const span = { from: time(from, 'from'), to: time(to, 'to') };
  if (span.from >= span.to) throw malformed('the period ends before it begins');
  return { ...extra, period: span };
}

const ORIGIN = /^[A-Za-z0-9._/:-]{1,255}$/;

/** Names of sessions are ASCII, so that UTF-16 order is that of their bytes. */
const byBytes = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const hex32 = (value: number): string => (value >>> 0).toString(16).padStart(8, '0');

function malformed(what: string): ExportError {
  return new ExportError('malformed', `the manifest: ${what}`);
}

function object(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw malformed(`${what} is not an object`);
  }
  return value as Record<string, unknown>;
}

function array(value: unknown, what: string, most: number): unknown[] {
  if (!Array.isArray(value) || value.length > most)
    throw malformed(`${what} is not an array of at most ${most}`);
  return value;
}

function text(value: unknown, what: string, pattern: RegExp): string {
  if (typeof value !== 'string' || !pattern.test(value)) throw malformed(`${what} is not of its form`);
  return value;
}

function count(value: unknown, what: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw malformed(`${what} is not a count`);
  return value as number;
}

function time(value: unknown, what: string): string {
  if (typeof value !== 'string' || moment(value) !== value)
    throw malformed(`${what} is not a time in its one form`);
  return value;
}

function moment(value: string): string {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) throw malformed(`${value} is not a time`);
  return date.toISOString();
}

function base64(value: unknown, what: string): Buffer {
  try {
    return parseBase64(String(value));
  } catch {
    throw malformed(`${what} is not canonical base64`);
  }
}
