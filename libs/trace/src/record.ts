import { hash } from 'node:crypto';

/** `prev` of the first record. */
export const NO_RECORD = '0'.repeat(64);

/** What was run, as far as it was known when it was started. Stays on the machine. */
export interface Command {
  readonly argv: readonly string[];
  readonly cwd: string;
  /** The file that argv[0] resolved to; SHA-256 over its bytes (64 hex digits) where it was taken. */
  readonly executable?: { readonly path: string; readonly sha256?: string | undefined } | undefined;
  /** Names of the environment, each with a digest of its value keyed by this machine's secret. */
  readonly env?: Readonly<Record<string, string>> | undefined;
}

interface Opening {
  readonly type: 'open';
  readonly v: 1;
  readonly epoch: string;
  readonly sink: string;
  /** Origin of the log the envelopes of this run are sent to; absent when the run is only recorded. */
  readonly log?: string | undefined;
  readonly session: string;
  readonly recorder: string;
  readonly command?: Command | undefined;
  readonly workspace?: readonly string[] | undefined;
  /** Recorded by this process. */
  readonly pid?: number | undefined;
  /** The trace was made from another recorder's file. */
  readonly imported?: ImportSource | undefined;
}

/** A file of another recorder that a trace was made from; `size` in bytes, `sha256` 64 hex digits. */
export interface ImportSource {
  readonly format: string;
  readonly file: string;
  readonly size: number;
  readonly sha256: string;
}

interface FrameBody {
  readonly type: 'frame';
  readonly dir: 'c2s' | 's2c';
  /** Bytes as received, terminator included. */
  readonly size: number;
  /** SHA-256 over these bytes, 64 hex digits. */
  readonly sha256: string;
  /** The frame was larger than what is kept: `data` is absent. */
  readonly oversize?: true | undefined;
  /** What was seen of an oversize frame as it streamed by: paths such as `params.name` with their JSON text. */
  readonly skimmed?: Readonly<Record<string, string>> | undefined;
  /** Imported, and only the first bytes are known: `size` and `sha256` are theirs. */
  readonly prefix?: true | undefined;
  readonly source?: number | undefined;
  /** `seq` of the envelopes that this frame became, in this run's epoch. */
  readonly seqs?: readonly number[] | undefined;
  /** What was odd about it. */
  readonly findings?: readonly string[] | undefined;
}

interface StderrBody {
  readonly type: 'stderr';
  readonly size: number;
  readonly sha256: string;
}

interface GapBody {
  readonly type: 'gap';
  /** `write`: the disk refused records; `torn`: bytes at the end were no record; `observer`: the recorder failed. */
  readonly reason: 'write' | 'torn' | 'observer';
  /** Records lost, or bytes in case of `torn`. */
  readonly count: number;
  /** Error code, where there is one. */
  readonly code?: string | undefined;
}

interface ClaimBody {
  readonly type: 'claim';
  readonly size: number;
  readonly sha256: string;
}

interface StateBody {
  readonly type: 'state';
  readonly state: string;
  readonly phase: 'open' | 'pre' | 'post' | 'close';
  readonly [member: string]: unknown;
}

interface DenialBody {
  readonly type: 'denial';
  readonly [member: string]: unknown;
}

interface PolicyBody {
  readonly type: 'policy';
  readonly digest: string;
  readonly [member: string]: unknown;
}

interface Closing {
  readonly type: 'close';
  /** Exit code of what was run, or the name of the signal that ended it. */
  readonly exit?: number | undefined;
  readonly signal?: string | undefined;
  /** Records that could not be written, over the whole run. */
  readonly lost: number;
  /** Records before this one. */
  readonly count: number;
  /** Hash of the record before this one. */
  readonly head: string;
}

export type RecordBody =
  Opening | FrameBody | StderrBody | GapBody | ClaimBody | StateBody | DenialBody | PolicyBody | Closing;

/** A record as it is read back. `n` counts from 0, `at` is microseconds of a monotonic clock since the trace was opened. */
export type TraceRecord = RecordBody & {
  readonly n: number;
  readonly time: string;
  readonly at: number;
  readonly prev: string;
  /** Content in base64: of `frame` unless oversize, of `stderr` and `claim`. */
  readonly data?: string;
};

const DATA = ',"data":"';

export interface RecordStamp {
  readonly n: number;
  readonly time: string;
  readonly at: number;
  readonly prev: string;
}

/**
 * The text of a record and its hash (64 hex digits). The hash is over the line without its `data` member, whose own
 * SHA-256 is in the line: so content of many megabytes is hashed once.
 */
export function formatRecord(
  stamp: RecordStamp,
  body: RecordBody,
  data: Buffer | undefined,
): { readonly line: string; readonly hash: string } {
  const { type, ...members } = body;
  const head = JSON.stringify({
    n: stamp.n,
    type,
    time: stamp.time,
    at: stamp.at,
    ...members,
    prev: stamp.prev,
  });
  const line = data === undefined ? head : `${head.slice(0, -1)}${DATA}${data.toString('base64')}"}`;
  return { line, hash: hash('sha256', head, 'hex') };
}

/** Why a line is no record. */
export class RecordError extends Error {
  readonly code: 'not_json' | 'not_a_record' | 'content_changed';

  constructor(code: RecordError['code'], message: string) {
    super(message);
    this.name = 'RecordError';
    this.code = code;
  }
}

/**
 * Reads one line (without LF) and returns the record with its hash. Throws RecordError for what is no record; content
 * that is not what its own hash says is returned with `intact: false`, so that a chain can be followed past it.
 */
export function parseRecord(line: Buffer): {
  readonly record: TraceRecord;
  readonly hash: string;
  readonly intact: boolean;
} {
  const text = line.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new RecordError('not_json', 'the line is not one JSON object');
  }
  if (!isRecord(value)) throw new RecordError('not_a_record', 'the object lacks what every record has');
  const record = value as TraceRecord;
  if (record.data === undefined)
    return { record, hash: hash('sha256', line, 'hex'), intact: !needsData(record) };
  const head = text.length - DATA.length - record.data.length - 2;
  if (text.slice(head, head + DATA.length) !== DATA) {
    throw new RecordError('not_a_record', '`data` is not the last member of the line');
  }
  return { record, hash: hash('sha256', `${text.slice(0, head)}}`, 'hex'), intact: dataIntact(record) };
}

/** The content of a record, or undefined where it has none. */
export function recordData(record: TraceRecord): Buffer | undefined {
  return record.data === undefined ? undefined : Buffer.from(record.data, 'base64');
}

function needsData(record: TraceRecord): boolean {
  return (
    record.type === 'stderr' ||
    record.type === 'claim' ||
    (record.type === 'frame' && record.oversize !== true)
  );
}

function dataIntact(record: TraceRecord): boolean {
  if (record.type !== 'frame' && record.type !== 'stderr' && record.type !== 'claim') return false;
  const data = recordData(record) as Buffer;
  return (
    data.length === record.size &&
    data.toString('base64') === record.data &&
    hash('sha256', data, 'hex') === record.sha256
  );
}

const TYPES = new Set(['open', 'frame', 'state', 'denial', 'policy', 'stderr', 'gap', 'claim', 'close']);
const HASH = /^[0-9a-f]{64}$/;

function isRecord(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const { n, type, time, at, prev, data } = value as Record<string, unknown>;
  return (
    Number.isSafeInteger(n) &&
    (n as number) >= 0 &&
    typeof type === 'string' &&
    TYPES.has(type) &&
    typeof time === 'string' &&
    typeof at === 'number' &&
    typeof prev === 'string' &&
    HASH.test(prev) &&
    (data === undefined || typeof data === 'string')
  );
}
