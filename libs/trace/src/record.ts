import { hash } from 'node:crypto';
import type { ContentReader } from './beside.js';

/** `prev` of the first record. */
export const NO_RECORD = '0'.repeat(64);

/** What was run, as far as it was known when it was started. Stays on the machine. */
export interface Command {
  readonly argv: readonly string[];
  readonly cwd: string;
  /** What was started in place of `argv`, where that named a package runner and the package was on this machine. */
  readonly started?: readonly string[] | undefined;
  /** Package runner that `argv` named, with the package as it was asked for, and whether `started` says what it is. */
  readonly runner?:
    { readonly name: string; readonly spec?: string | undefined; readonly resolved: boolean } | undefined;
  /** The file that argv[0] (of what was started) resolved to. */
  readonly executable?: RanFile | undefined;
  /** The file that an interpreter was given to run. */
  readonly script?: RanFile | undefined;
  /** Whose program it is, by the nearest package.json or what the package runner's installation says. */
  readonly package?: { readonly name: string; readonly version: string } | undefined;
  /** Names of the environment, each with a digest of its value keyed by this machine's secret. */
  readonly env?: Readonly<Record<string, string>> | undefined;
}

/** A boundary, as far as readers judge by it; its other members are the sandbox library's. */
export interface RanInside {
  readonly backend: string;
  readonly profile: string;
  /** Digest of the policy in force. */
  readonly policy: string;
  readonly network: string;
  /** What it does not hold, by name. */
  readonly holes: readonly string[];
}

/** A file by its path; SHA-256 over its bytes (64 hex digits) where it was taken. */
export interface RanFile {
  readonly path: string;
  readonly sha256?: string | undefined;
  /** Where it was not: device, inode, size and times, which on this machine tell whether it is the same file still. */
  readonly stat?: string | undefined;
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
  /** The boundary that the server ran in; absent where there was none. */
  readonly sandbox?: RanInside | undefined;
  /** Of a proxy over HTTP: the server's URL, values that may be secrets as keyed digests. */
  readonly upstream?: string | undefined;
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

export interface FrameBody {
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
  /** Over HTTP: the request/response pair it was part of, and whose ids and answers it belongs with. */
  readonly exchange?: number | undefined;
  readonly conversation?: string | undefined;
  /** Where the content begins in the file beside the trace: `data` is absent then. */
  readonly beside?: number | undefined;
}

/** Size in bytes and SHA-256 (64 hex digits) of a body as it was on the wire; of foreign paths, the size alone. */
export interface WireBody {
  readonly size: number;
  readonly sha256?: string | undefined;
}

interface HttpBody {
  readonly type: 'http';
  /** Counts request/response pairs of the run from 1. */
  readonly exchange: number;
  /** `event`: one of an event stream that is no message. `refused`: by the proxy; nothing was forwarded. */
  readonly phase: 'request' | 'response' | 'event' | 'end' | 'refused';
  readonly conversation?: string | undefined;
  readonly method?: string | undefined;
  /** Path and query; values that may be secrets as keyed digests. */
  readonly target?: string | undefined;
  readonly status?: number | undefined;
  /** Names as received and in order, with the value, its keyed digest, or nothing for a credential. */
  readonly headers?: readonly (readonly [name: string, value: string])[] | undefined;
  /** Type of an event. */
  readonly event?: string | undefined;
  readonly request?: WireBody | undefined;
  readonly response?: WireBody | undefined;
  /** How it ended: whole, by one of the three going away, or because the server was not reached. */
  readonly ended?: 'complete' | 'client' | 'server' | 'proxy' | 'unreachable' | undefined;
  /** Code of the error that ended it. */
  readonly code?: string | undefined;
  readonly findings?: readonly string[] | undefined;
}

interface StderrBody {
  readonly type: 'stderr';
  readonly size: number;
  readonly sha256: string;
}

interface GapBody {
  readonly type: 'gap';
  /**
   * `write`: the disk refused records; `torn`: bytes at the end were no record; `observer`: the recorder failed; `sync`:
   * the disk took records and did not say that they are durable.
   */
  readonly reason: 'write' | 'torn' | 'observer' | 'sync';
  /** Records lost, or bytes in case of `torn`. */
  readonly count: number;
  /** Error code, where there is one. */
  readonly code?: string | undefined;
  /** What an imported record said of it, its direction, its number there. */
  readonly detail?: string | undefined;
  readonly dir?: 'c2s' | 's2c' | undefined;
  readonly source?: number | undefined;
}

/** An event that an agent told one of its hooks. */
interface HookBody {
  readonly type: 'hook';
  /** Its name, where it is one that is known. */
  readonly event?: string | undefined;
  readonly size: number;
  readonly sha256: string;
  /** There was too much to keep: `data` is absent. */
  readonly oversize?: true | undefined;
  readonly seqs?: readonly number[] | undefined;
}

interface ClaimBody {
  readonly type: 'claim';
  readonly size: number;
  readonly sha256: string;
  /** `seq` of the envelopes that it became. */
  readonly seqs?: readonly number[] | undefined;
  /** Imported, and the source says that no statement was made. */
  readonly absent?: true | undefined;
  readonly source?: number | undefined;
}

/** A state of the workspace, or that there is none. */
export interface WorkspaceState {
  /** `sha256:` and 64 hex digits; `unrestorable`; of another recorder, `imported`. */
  readonly state: string;
  readonly phase: 'open' | 'pre' | 'post' | 'close';
  /** Calls that overlap have one number, with one state before the first and one after the last. */
  readonly group?: number | undefined;
  /** Of `post`: calls in the group. */
  readonly calls?: number | undefined;
  /** Of `unrestorable`: why, by a name of section 12, and what it is about. */
  readonly cause?: string | undefined;
  readonly path?: string | undefined;
  readonly detail?: string | undefined;
  /** It is not the state before, although no call was under way. */
  readonly drift?: 'server' | 'outside' | undefined;
  /** What differs from the state before, where that one is known. */
  readonly changed?: StateChanges | undefined;
  readonly entries?: number | undefined;
  /** Files whose content was read. */
  readonly rehashed?: number | undefined;
  /** The server's processes were stopped for it. */
  readonly stopped?: true | undefined;
  /** Milliseconds that it took. */
  readonly ms?: number | undefined;
  /** Of `open`: where states are kept, of what, and what is left out. */
  readonly store?: string | undefined;
  readonly roots?: readonly string[] | undefined;
  readonly ignored?: readonly string[] | undefined;
  readonly seqs?: readonly number[] | undefined;
}

interface StateBody extends WorkspaceState {
  readonly type: 'state';
  readonly [member: string]: unknown;
}

/** Entries, by what happened to them. */
export interface StateChanges {
  readonly created: number;
  readonly modified: number;
  readonly deleted: number;
  readonly metadata: number;
}

interface DenialBody {
  readonly type: 'denial';
  /** What was attempted, and the system call. */
  readonly op?: string | undefined;
  readonly syscall?: string | undefined;
  readonly path?: string | undefined;
  readonly address?: string | undefined;
  readonly errno?: string | undefined;
  /** What refused. */
  readonly class?: string | undefined;
  /** How well it could be said: `named`, `class`, `unnamed`. */
  readonly naming?: string | undefined;
  readonly pid?: number | undefined;
  /** RFC 3339 in UTC, by the kernel's clock. */
  readonly when?: string | undefined;
  /** Attempts that it stands for, where these were several. */
  readonly count?: number | undefined;
  readonly seqs?: readonly number[] | undefined;
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
  /** The executable of `open`, when its digest was only known during the run. */
  readonly executable?: RanFile | undefined;
  /** Records that could not be written, over the whole run. */
  readonly lost: number;
  /** Records before this one. */
  readonly count: number;
  /** Hash of the record before this one. */
  readonly head: string;
}

export type RecordBody =
  | Opening
  | FrameBody
  | HttpBody
  | StderrBody
  | GapBody
  | HookBody
  | ClaimBody
  | StateBody
  | DenialBody
  | PolicyBody
  | Closing;

/** A record as it is read back. `n` counts from 0, `at` is microseconds of a monotonic clock since the trace was opened. */
export type TraceRecord = RecordBody & {
  readonly n: number;
  readonly time: string;
  readonly at: number;
  readonly prev: string;
  /** Content in base64: of `frame` unless oversize, of `stderr` and `claim`. */
  readonly data?: string;
};

/** What stands between the members of a record and its content. */
export const DATA = ',"data":"';

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
  const { type } = body;
  const first = `{"type":"${type}"`;
  // Every frame waits for this: a body that begins with its type, as they do, is written out without another copy.
  let members = JSON.stringify(body);
  if (!members.startsWith(first)) {
    const { type: _, ...others } = body;
    members = JSON.stringify({ type, ...others });
  }
  const time = JSON.stringify(stamp.time);
  const rest = members.slice(first.length, -1);
  const head = `{"n":${stamp.n},"type":"${type}","time":${time},"at":${stamp.at}${rest},"prev":"${stamp.prev}"}`;
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
export function parseRecord(
  line: Buffer,
  beside?: ContentReader,
): {
  readonly record: TraceRecord;
  readonly hash: string;
  readonly intact: boolean;
  /** The content is in a file beside the trace, and not there. */
  readonly missing?: true;
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
  if (record.data === undefined) {
    const own = hash('sha256', line, 'hex');
    if (record.type !== 'frame' || record.beside === undefined)
      return { record, hash: own, intact: !needsData(record) };
    const content = beside?.at(record.beside, record.size);
    if (content === undefined) return { record, hash: own, intact: false, missing: true };
    CONTENTS.set(record, content);
    return { record, hash: own, intact: hash('sha256', content, 'hex') === record.sha256 };
  }
  const head = text.length - DATA.length - record.data.length - 2;
  if (text.slice(head, head + DATA.length) !== DATA) {
    throw new RecordError('not_a_record', '`data` is not the last member of the line');
  }
  return { record, hash: hash('sha256', `${text.slice(0, head)}}`, 'hex'), intact: dataIntact(record) };
}

/** Content that was read from beside the trace, as long as its record is held. */
const CONTENTS = new WeakMap<TraceRecord, Buffer>();

/** The content of a record, or undefined where it has none, or where it is not to be had. */
export function recordData(record: TraceRecord): Buffer | undefined {
  const read = CONTENTS.get(record);
  if (read !== undefined) return read;
  return record.data === undefined ? undefined : Buffer.from(record.data, 'base64');
}

function needsData(record: TraceRecord): boolean {
  return (
    record.type === 'stderr' ||
    record.type === 'claim' ||
    ((record.type === 'frame' || record.type === 'hook') && record.oversize !== true)
  );
}

function dataIntact(record: TraceRecord): boolean {
  const { type } = record;
  if (type !== 'frame' && type !== 'hook' && type !== 'stderr' && type !== 'claim') return false;
  const data = recordData(record) as Buffer;
  return (
    data.length === record.size &&
    data.toString('base64') === record.data &&
    hash('sha256', data, 'hex') === record.sha256
  );
}

const TYPES = new Set([
  'open',
  'frame',
  'http',
  'state',
  'denial',
  'policy',
  'stderr',
  'gap',
  'hook',
  'claim',
  'close',
]);
const HASH = /^[0-9a-f]{64}$/;

type Members = Readonly<Record<string, unknown>>;
type Rule = (value: unknown) => boolean;

const text: Rule = (value) => typeof value === 'string';
const count: Rule = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const digest: Rule = (value) => typeof value === 'string' && HASH.test(value);
const flag: Rule = (value) => value === true;
const listOf =
  (rule: Rule): Rule =>
  (value) =>
    Array.isArray(value) && value.every((each) => rule(each));
const mapOf =
  (rule: Rule): Rule =>
  (value) =>
    isObject(value) && Object.values(value).every((each) => rule(each));
const maybe =
  (rule: Rule): Rule =>
  (value) =>
    value === undefined || rule(value);
const shape =
  (rules: Readonly<Record<string, Rule>>): Rule =>
  (value) =>
    isObject(value) && Object.entries(rules).every(([name, rule]) => rule(value[name]));

const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const ranFile = shape({ path: text, sha256: maybe(text), stat: maybe(text) });

const CONTENT = { size: count, sha256: digest };

/** What readers rely on in each type, so that a file from elsewhere can't hand them something else. */
const SHAPES: Readonly<Record<string, Rule>> = {
  open: shape({
    v: (value) => value === 1,
    epoch: text,
    sink: text,
    log: maybe(text),
    session: text,
    recorder: text,
    command: maybe(
      shape({
        argv: listOf(text),
        cwd: text,
        started: maybe(listOf(text)),
        runner: maybe(
          shape({ name: text, spec: maybe(text), resolved: (value) => typeof value === 'boolean' }),
        ),
        executable: maybe(ranFile),
        script: maybe(ranFile),
        package: maybe(shape({ name: text, version: text })),
        env: maybe(mapOf(text)),
      }),
    ),
    workspace: maybe(listOf(text)),
    sandbox: maybe(shape({ backend: text, profile: text, policy: text, network: text, holes: listOf(text) })),
    upstream: maybe(text),
    imported: maybe(shape({ format: text, file: text, size: count, sha256: digest })),
  }),
  frame: shape({
    ...CONTENT,
    dir: (value) => value === 'c2s' || value === 's2c',
    oversize: maybe(flag),
    skimmed: maybe(mapOf(text)),
    prefix: maybe(flag),
    seqs: maybe(listOf(count)),
    findings: maybe(listOf(text)),
    exchange: maybe(count),
    conversation: maybe(text),
    beside: maybe(count),
  }),
  http: shape({
    exchange: count,
    phase: text,
    conversation: maybe(text),
    method: maybe(text),
    target: maybe(text),
    status: maybe(count),
    headers: maybe(listOf(listOf(text))),
    event: maybe(text),
    request: maybe(shape({ size: count, sha256: maybe(digest) })),
    response: maybe(shape({ size: count, sha256: maybe(digest) })),
    ended: maybe(text),
    code: maybe(text),
    findings: maybe(listOf(text)),
  }),
  stderr: shape(CONTENT),
  hook: shape({ ...CONTENT, event: maybe(text), oversize: maybe(flag), seqs: maybe(listOf(count)) }),
  claim: shape({ ...CONTENT, seqs: maybe(listOf(count)) }),
  state: shape({
    state: text,
    phase: text,
    group: maybe(count),
    calls: maybe(count),
    cause: maybe(text),
    path: maybe(text),
    detail: maybe(text),
    drift: maybe(text),
    changed: maybe(shape({ created: count, modified: count, deleted: count, metadata: count })),
    entries: maybe(count),
    store: maybe(text),
    roots: maybe(listOf(text)),
    ignored: maybe(listOf(text)),
    seqs: maybe(listOf(count)),
  }),
  denial: shape({
    op: maybe(text),
    syscall: maybe(text),
    path: maybe(text),
    address: maybe(text),
    errno: maybe(text),
    class: maybe(text),
    naming: maybe(text),
    pid: maybe(count),
    when: maybe(text),
    count: maybe(count),
    seqs: maybe(listOf(count)),
  }),
  policy: shape({ digest: text }),
  gap: shape({ reason: text, count, code: maybe(text) }),
  close: shape({
    lost: count,
    count,
    head: digest,
    exit: maybe(Number.isSafeInteger),
    signal: maybe(text),
    executable: maybe(ranFile),
  }),
};

function isRecord(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { n, type, time, at, prev, data } = value;
  return (
    Number.isSafeInteger(n) &&
    (n as number) >= 0 &&
    typeof type === 'string' &&
    TYPES.has(type) &&
    typeof time === 'string' &&
    Number.isFinite(at) &&
    typeof prev === 'string' &&
    HASH.test(prev) &&
    (data === undefined || typeof data === 'string') &&
    (SHAPES[type]?.(value) ?? true)
  );
}
