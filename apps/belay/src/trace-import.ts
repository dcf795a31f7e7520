/**
 * Traces of the Python Belay (`belay.trace`, version 1) made into ours. What that format says is kept; what it does not
 * say (line terminators, exit codes, digests of states) is not invented, and what is wrong with a file becomes a `gap`
 * record, so that nothing is read as whole that was not. libs/trace/FORMAT.md, section 7, has the mapping.
 */

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { rename, stat, unlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { canonical, newUlid } from '@belay/envelope';
import { type Direction, type Frame, Framer, type Message, readFrame } from '@belay/mcp';
import { fileLines, type RecordBody, TraceWriter } from '@belay/trace';
import { badInput } from './exit.js';
import { skimmedOf } from './skimmed.js';

const FORMAT = 'belay.trace/1';
const KINDS = ['frame', 'capture_error', 'connection_window', 'denial', 'network_policy', 'claim'] as const;
type Kind = (typeof KINDS)[number];

/**
 * How far ahead the request of an answer is looked for: records, and bytes of the file. That recorder writes a server's
 * frame when it comes round to it, which is late by a few records at most.
 */
const LOOKAHEAD = 64;
const LOOKAHEAD_BYTES = 48 * 1024 * 1024;
const MAX_PENDING = 65_536;
const MAX_DETAIL = 4_096;
/** Codes of `gap` records that speak for a change of the file; the others are what a recorder that stopped leaves. */
const CHANGED = new Set(['SEQ_MISSING', 'SEQ_ORDER', 'NOT_JSON', 'NOT_A_RECORD', 'NO_OPEN', 'HASH_MISMATCH']);

export interface ImportReport {
  readonly source: string;
  /** The new trace. */
  readonly trace: string;
  readonly format: string;
  readonly sha256: string;
  /** `whole`; `incomplete`: something is missing by the file's own word; `damaged`: it was changed after it was written. */
  readonly status: 'whole' | 'incomplete' | 'damaged';
  /** Records of the source by kind. */
  readonly kinds: Readonly<Partial<Record<Kind, number>>>;
  /** Codes of the gaps that were written, with how many records each has. */
  readonly gaps: Readonly<Record<string, number>>;
  /** Answers that were moved behind their requests. */
  readonly reordered: number;
}

type Members = Readonly<Record<string, unknown>>;
type Gap = Extract<RecordBody, { type: 'gap' }>;
type Body = Exclude<RecordBody, { type: 'close' }>;

/** One step of a source: a record of it, or a gap between records. */
type Step =
  | {
      readonly type: 'record';
      readonly kind: Kind;
      readonly seq: number;
      readonly time: number | undefined;
      readonly value: Members;
    }
  | { readonly type: 'gap'; readonly gap: Gap };

type FrameStep = Extract<Step, { type: 'record' }>;

const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown): string | undefined =>
  typeof value === 'string' ? value.slice(0, MAX_DETAIL) : undefined;
const gap = (code: string, count: number, more: Partial<Gap> = {}): Gap => ({
  type: 'gap',
  reason: 'observer',
  count,
  code,
  ...more,
});

/** Microseconds since 1970. Python writes six digits, which a Date would cut to three. */
function microseconds(stamp: unknown): number | undefined {
  const [, seconds, fraction = '', zone] =
    /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|\+00:00)$/.exec(text(stamp) ?? '') ?? [];
  if (seconds === undefined || zone === undefined) return undefined;
  const ms = Date.parse(`${seconds}Z`);
  return Number.isNaN(ms) ? undefined : ms * 1000 + Number(fraction.padEnd(6, '0').slice(0, 6));
}

function stampOf(us: number): string {
  const iso = new Date(Math.floor(us / 1000)).toISOString();
  const rest = us % 1000;
  return rest === 0 ? iso : `${iso.slice(0, -1)}${String(rest).padStart(3, '0')}Z`;
}

/** The steps of a source in its own order. */
async function* stepsOf(path: string): AsyncGenerator<Step & { readonly bytes: number }> {
  let last: number | undefined;
  for await (const { bytes, whole } of fileLines(path)) {
    const size = bytes?.length ?? 0;
    if (!whole) {
      // A last line without its end is torn even if what is there happens to parse.
      yield {
        type: 'gap',
        gap: { type: 'gap', reason: 'torn', count: size, code: 'TORN_TAIL' },
        bytes: size,
      };
      return;
    }
    let value: unknown;
    try {
      value = bytes === undefined ? undefined : JSON.parse(bytes.toString('utf8'));
    } catch {
      yield { type: 'gap', gap: gap('NOT_JSON', 1), bytes: size };
      continue;
    }
    const seq = isObject(value) ? value['seq'] : undefined;
    if (!isObject(value) || typeof seq !== 'number' || !Number.isSafeInteger(seq) || seq < 0) {
      yield { type: 'gap', gap: gap('NOT_A_RECORD', 1), bytes: size };
      continue;
    }
    if (last !== undefined && seq > last + 1) {
      yield { type: 'gap', gap: gap('SEQ_MISSING', seq - last - 1, { source: last + 1 }), bytes: 0 };
    } else if (last !== undefined && seq <= last) {
      yield { type: 'gap', gap: gap('SEQ_ORDER', 0, { source: seq }), bytes: 0 };
    }
    last = Math.max(last ?? seq, seq);
    const kind = KINDS.find((each) => each === value['kind']);
    if (value['v'] !== 1 || kind === undefined) {
      const detail = `v ${String(value['v'])}, kind ${String(value['kind'])}`.slice(0, 200);
      yield { type: 'gap', gap: gap('UNKNOWN_KIND', 1, { source: seq, detail }), bytes: size };
      continue;
    }
    yield { type: 'record', kind, seq, time: microseconds(value['t_in']), value, bytes: size };
  }
}

interface ReadFrame {
  readonly bytes: Buffer;
  readonly sha256: string;
  readonly messages: readonly Message[];
  readonly truncated: boolean;
  readonly skimmed: Readonly<Record<string, string>> | undefined;
}

/** What can be seen of the beginning of a frame: with a limit of nothing, a framer only skims. */
function skim(bytes: Buffer): Frame | undefined {
  let frame: Frame | undefined;
  const framer = new Framer(0);
  const keep = (each: Frame): void => void (frame ??= each);
  framer.push(bytes, keep);
  framer.end(keep);
  return frame;
}

function readV1Frame({ value }: FrameStep): ReadFrame {
  const bytes = Buffer.from(typeof value['raw'] === 'string' ? value['raw'] : '', 'base64');
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const truncated = value['truncated'] === true;
  if (!truncated) {
    const frame: Frame = { bytes, skimmed: undefined, size: bytes.length, sha256, terminator: 'none' };
    return { bytes, sha256, messages: readFrame(frame).messages, truncated, skimmed: undefined };
  }
  const frame = skim(bytes);
  const skimmed = frame === undefined ? undefined : skimmedOf(frame);
  return {
    bytes,
    sha256,
    messages: frame === undefined ? [] : readFrame(frame).messages,
    truncated,
    skimmed,
  };
}

type Read = { step: Step & { bytes: number }; frame: ReadFrame | undefined; moved: boolean };

const directionOf = (value: Members): Direction => (value['dir'] === 's2c' ? 's2c' : 'c2s');

/** Requests in flight, as far as they have to be known to see an answer that is too early. */
class Pending {
  readonly #counts = new Map<string, number>();

  has(asked: Direction, id: string): boolean {
    return this.#counts.has(`${asked} ${id}`);
  }

  take(dir: Direction, messages: readonly Message[]): void {
    for (const message of messages) {
      if (message.type === 'request') this.#change(`${dir} ${message.id}`, 1);
      if (message.type === 'response') this.#change(`${other(dir)} ${message.id}`, -1);
    }
  }

  #change(key: string, by: 1 | -1): void {
    const count = (this.#counts.get(key) ?? 0) + by;
    if (count > 0) this.#counts.set(key, count);
    else this.#counts.delete(key);
    if (this.#counts.size > MAX_PENDING) this.#counts.delete(this.#counts.keys().next().value as string);
  }
}

const other = (dir: Direction): Direction => (dir === 'c2s' ? 's2c' : 'c2s');

/** The steps with every answer behind its request, where the request follows within the lookahead. */
async function* inOrder(path: string): AsyncGenerator<Read> {
  const pending = new Pending();
  const buffer: Read[] = [];
  const steps = stepsOf(path);
  let held = 0;
  let more = true;
  for (;;) {
    while (more && buffer.length < LOOKAHEAD && held < LOOKAHEAD_BYTES) {
      const next = await steps.next();
      if (next.done === true) {
        more = false;
        break;
      }
      const step = next.value;
      const frame = step.type === 'record' && step.kind === 'frame' ? readV1Frame(step) : undefined;
      buffer.push({ step, frame, moved: false });
      held += step.bytes;
    }
    const read = buffer.shift();
    if (read === undefined) return;
    const target = early(read, buffer, pending);
    if (target !== undefined) {
      buffer.splice(target + 1, 0, { ...read, moved: true });
      continue;
    }
    held -= read.step.bytes;
    if (read.frame !== undefined && read.step.type === 'record') {
      pending.take(directionOf(read.step.value), read.frame.messages);
    }
    yield read;
  }
}

/** Where the request of an answer stands that came too early; undefined when it did not, or when there is none. */
function early({ step, frame, moved }: Read, buffer: readonly Read[], pending: Pending): number | undefined {
  if (moved || frame === undefined || step.type !== 'record' || frame.messages.length === 0) return undefined;
  const asked = other(directionOf(step.value));
  const ids = frame.messages.flatMap((each) => (each.type === 'response' ? [each.id] : []));
  if (ids.length < frame.messages.length || ids.every((id) => pending.has(asked, id))) return undefined;
  const found = buffer.findIndex(
    (ahead) =>
      ahead.step.type === 'record' &&
      ahead.frame !== undefined &&
      directionOf(ahead.step.value) === asked &&
      ahead.frame.messages.some((each) => each.type === 'request' && ids.includes(each.id)),
  );
  return found < 0 ? undefined : found;
}

interface Made {
  readonly body: Body;
  readonly data?: Buffer;
}

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** The records that one step of a source becomes; none for the windows, which open and close the whole. */
function recordsOf({ step, frame, moved }: Read): Made[] {
  if (step.type === 'gap') return [{ body: step.gap }];
  const { kind, seq, value } = step;
  const source = seq;
  switch (kind) {
    case 'frame':
      return frame === undefined ? [] : frameRecords(step, frame, moved);
    case 'capture_error':
      return [
        {
          body: gap('CAPTURE_ERROR', 1, { dir: directionOf(value), detail: text(value['cause']), source }),
        },
      ];
    case 'denial': {
      const { op, path, inferred, detail } = value;
      const body = {
        type: 'denial',
        op: text(op),
        path: text(path),
        inferred,
        observed_in: text(value['source']),
        detail: text(detail),
        source,
      } as const;
      return [{ body }];
    }
    case 'network_policy': {
      const policy = { policy: value['policy'] ?? null, ports: value['ports'] ?? null };
      const digest = `sha256:${hashOf(Buffer.from(canonical(policy), 'utf8'))}`;
      const network = text(policy.policy);
      return [{ body: { type: 'policy', digest, network, ports: policy.ports, source } }];
    }
    case 'claim': {
      const said = typeof value['text'] === 'string' ? value['text'] : undefined;
      const data = Buffer.from(said ?? '', 'utf8');
      const absent = said === undefined ? true : undefined;
      return [{ body: { type: 'claim', size: data.length, sha256: hashOf(data), absent, source }, data }];
    }
    default:
      return [];
  }
}

function frameRecords({ seq, value }: FrameStep, frame: ReadFrame, moved: boolean): Made[] {
  const { bytes, sha256, messages, truncated, skimmed } = frame;
  const dir = directionOf(value);
  const changed = value['hash_raw'] !== `sha256:${sha256}`;
  const findings = [...(moved ? ['REORDERED'] : []), ...(changed ? ['HASH_MISMATCH'] : [])];
  const body: Body = {
    type: 'frame',
    dir,
    size: bytes.length,
    sha256,
    oversize: truncated ? true : undefined,
    skimmed,
    prefix: truncated ? true : undefined,
    findings: findings.length === 0 ? undefined : findings,
    source: seq,
  };
  const calls = messages.some((each) => each.type === 'request' && each.method === 'tools/call');
  const state = dir === 'c2s' && calls ? stateBody(value['state_handle'], seq) : undefined;
  return [
    ...(state === undefined ? [] : [{ body: state }]),
    ...(changed ? [{ body: gap('HASH_MISMATCH', 1, { dir, source: seq }) }] : []),
    truncated ? { body } : { body, data: bytes },
  ];
}

/** Only on a `tools/call` does that recorder's handle mean the state before this very call. */
function stateBody(handle: unknown, source: number): Body | undefined {
  if (!isObject(handle) || (handle['status'] !== 'present' && handle['status'] !== 'unrestorable'))
    return undefined;
  const { status, ...imported } = handle;
  return {
    type: 'state',
    state: status === 'present' ? 'imported' : 'unrestorable',
    phase: 'pre',
    imported,
    source,
  };
}

/** Digest of a file, its size, and the time of the first record that has one. Throws for what is no v1 trace. */
async function identify(path: string): Promise<{ sha256: string; size: number; started: number }> {
  let started: number | undefined;
  for await (const step of stepsOf(path)) {
    if (step.type !== 'record') continue;
    started = step.time;
    break;
  }
  if (started === undefined) {
    throw badInput('not_v1', `${path} is not a trace of the Python Belay (version 1)`);
  }
  const hash = createHash('sha256');
  let size = 0;
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    size += chunk.length;
  }
  return { sha256: hash.digest('hex'), size, started };
}

/**
 * Imports one file into a folder of traces. The new file's name follows from the source's content, so the same file
 * is imported once. Throws CliError.
 */
export async function importTrace(
  path: string,
  folder: string,
  options: { readonly sink: string; readonly recorder: string },
): Promise<ImportReport> {
  const { sink, recorder } = options;
  const { sha256, size, started } = await identify(path);
  const epoch = newUlid(Math.floor(started / 1000), Buffer.from(sha256, 'hex').subarray(0, 10));
  const trace = join(folder, `${sink}-${epoch}.jsonl`);
  const exists = await stat(trace).then(
    () => true,
    () => false,
  );
  if (exists) throw badInput('exists', `${path} was imported already, as ${trace}`);
  let now = started;
  const clock = { wall: () => stampOf(now), monotonic: () => now - started };
  const file = basename(path);
  const session = `import:${file.replaceAll(/[^A-Za-z0-9._-]/g, '_').slice(0, 100)}`;
  const open: Body & { type: 'open' } = {
    type: 'open',
    v: 1,
    epoch,
    sink,
    session,
    recorder,
    imported: { format: FORMAT, file, size, sha256 },
  };
  const fresh = `${trace}.${process.pid}.new`;
  const writer = TraceWriter.create(fresh, open, clock);
  const kinds: Partial<Record<Kind, number>> = {};
  const gaps: Record<string, number> = {};
  let reordered = 0;
  const append = ({ body, data }: Made): void => {
    if (body.type === 'gap') gaps[body.code ?? body.reason] = (gaps[body.code ?? body.reason] ?? 0) + 1;
    writer.append(body, data);
  };
  try {
    const window = { open: false, close: false };
    for await (const read of inOrder(path)) {
      const { step } = read;
      if (step.type === 'record') {
        kinds[step.kind] = (kinds[step.kind] ?? 0) + 1;
        if (step.time !== undefined) now = Math.max(now, step.time);
        if (step.kind === 'connection_window')
          window[step.value['phase'] === 'open' ? 'open' : 'close'] = true;
        else if (!window.open) {
          append({ body: gap('NO_OPEN', 0) });
          window.open = true;
        }
      }
      if (read.moved) reordered++;
      for (const made of recordsOf(read)) append(made);
    }
    if (!window.close) append({ body: gap('NO_CLOSE', 0) });
    writer.close({});
    if (writer.lost > 0) throw badInput('write', `${trace} could not be written`);
    await rename(fresh, trace);
  } catch (error) {
    writer.close({});
    await unlink(fresh).catch(() => undefined);
    throw error;
  }
  const codes = Object.keys(gaps);
  const status = codes.some((code) => CHANGED.has(code))
    ? 'damaged'
    : codes.length > 0
      ? 'incomplete'
      : 'whole';
  return { source: path, trace, format: FORMAT, sha256, status, kinds, gaps, reordered };
}
