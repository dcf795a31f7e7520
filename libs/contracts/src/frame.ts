import { promisify } from 'node:util';
import { deflate, inflate } from 'node:zlib';
import { CoverageError, type ProjectPolicy, readPolicy } from '@belay/coverage';
import { type CoverageStated, EnvelopeError, formatCollectorBody, parseCollectorBody } from '@belay/envelope';
import type {
  Ack,
  AppendRequest,
  Change,
  ChangeReply,
  CheckpointReply,
  CollectorFault,
  ExportReply,
  IssueReply,
  LineRefusal,
  Outcome,
  ReceiptReply,
  ReceiptScope,
  RecordReply,
  StaleFault,
  StatementRecord,
} from './rpc.js';

export { type NatsServers, parseNatsUrl } from './nats-url.js';

/**
 * The bytes of `CollectorApi` on NATS. A request goes to the subject of its verb, the answer to the request's own
 * inbox, so a frame carries no correlation id.
 *
 * Append frame: u32 big-endian length of the header, header (JSON), then the lines as received, back to back.
 * `header.lengths` cuts them. Lines are never put into JSON: they may be 4 MiB a request, and what is hashed are
 * exactly these bytes.
 *
 * Record frame: the same, with the statements deflated (RFC 1950) as one stream: they are mostly the names of members,
 * and the largest are longer than what NATS carries. Payload frame (issue, export): the same, with the payload as it is.
 * All other frames are JSON, binary members as base64.
 *
 * Both ends are ours and of one trust domain, yet a frame is read strictly: who can publish on the collector's
 * subjects is believed about who sent a line, but must not be able to make the collector fall over.
 */
export const SUBJECTS = {
  append: 'belay.collector.append',
  change: 'belay.collector.change',
  checkpoint: 'belay.collector.checkpoint',
  receipt: 'belay.collector.receipt',
  record: 'belay.collector.record',
  issue: 'belay.collector.issue',
  signExport: 'belay.collector.export',
} as const;

/** Non-empty lines of one request. */
export const MAX_REQUEST_LINES = 2000;
/** Bytes of one request's body after decompression. */
export const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** No frame is longer: NATS' `max_payload` has to be at least this. */
export const MAX_FRAME_BYTES = 6 * 1024 * 1024;
/** Statements of one request. */
export const MAX_RECORD_STATEMENTS = 1000;
/** Bytes of one statement, and of all statements of one request. */
export const MAX_RECORD_BYTES = 16 * 1024 * 1024;
/** Bytes of the in-toto statement of a receipt or an export: signed and in base64 it still has to fit a frame. */
export const MAX_PAYLOAD_BYTES = 4 * 1024 * 1024;
const MAX_HEADER_BYTES = 1024 * 1024;

/** A frame that no version of ours makes. */
export class FrameError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'FrameError';
  }
}

interface AppendHeader {
  readonly v: 1;
  readonly project: string;
  readonly token: string;
  readonly sink: string;
  readonly epoch: string;
  readonly lengths: readonly number[];
  readonly seqs: readonly (number | null)[];
  readonly refused: readonly LineRefusal[];
  readonly signature?: string;
  readonly head?: number;
}

export function encodeAppend(request: AppendRequest): Buffer {
  const header: AppendHeader = {
    v: 1,
    project: request.project,
    token: request.token,
    sink: request.sink,
    epoch: request.epoch,
    lengths: request.lines.map((line) => line.length),
    seqs: request.seqs,
    refused: request.refused,
    ...(request.signature && { signature: request.signature.toString('base64') }),
    ...(request.head !== undefined && { head: request.head }),
  };
  return headed(header, request.lines);
}

/** Lines are views into `frame`, which must not be written to afterwards. Throws FrameError. */
export function decodeAppend(frame: Buffer): AppendRequest {
  const { header, rest } = beheaded(frame);
  const lengths = array(header['lengths'], 'lengths').map((length) => count(length, 'lengths'));
  const seqs = array(header['seqs'], 'seqs').map((seq) => (seq === null ? null : count(seq, 'seqs')));
  if (seqs.length !== lengths.length) throw new FrameError('seqs and lengths differ');
  const lines = cut(rest, lengths, 'lines');
  const signature = header['signature'] === undefined ? undefined : base64(header['signature'], 'signature');
  if (signature && signature.length !== 64) throw new FrameError('a signature is 64 bytes');
  return {
    project: text(header['project'], 'project'),
    token: text(header['token'], 'token'),
    sink: text(header['sink'], 'sink'),
    epoch: text(header['epoch'], 'epoch'),
    lines,
    seqs,
    refused: array(header['refused'], 'refused').map(refusal),
    ...(signature && { signature }),
    ...(header['head'] !== undefined && { head: count(header['head'], 'head') }),
  };
}

export function encodeChange(change: Change): Buffer {
  return Buffer.from(JSON.stringify({ v: 1, ...change }, binaryAsBase64));
}

/** Throws FrameError for a shape that is no Change; whether the change is allowed is the collector's to say. */
export function decodeChange(frame: Buffer): Change {
  const json = object(frame);
  if (json['v'] !== 1) throw new FrameError('unknown frame version');
  const by = text(json['by'], 'by');
  const kind = json['kind'];
  if (kind === 'label.set') {
    const says = json['says'];
    if (says !== 'violated' && says !== 'not_violated') throw new FrameError('says is none');
    return {
      kind,
      by,
      project: text(json['project'], 'project'),
      session: text(json['session'], 'session'),
      says,
      ...(json['tenant'] !== undefined && { tenant: text(json['tenant'], 'tenant') }),
      ...(json['call'] !== undefined && { call: text(json['call'], 'call') }),
    };
  }
  const tenant = text(json['tenant'], 'tenant');
  if (kind === 'tenant.create') {
    return {
      kind,
      tenant,
      by,
      name: text(json['name'], 'name'),
      admin: text(json['admin'], 'admin'),
      secretHash: hash(json['secretHash'], 'secretHash'),
    };
  }
  const project = text(json['project'], 'project');
  const placed = { tenant, by, project };
  switch (kind) {
    case 'project.create':
      return {
        kind,
        ...placed,
        name: text(json['name'], 'name'),
        public: boolean(json['public'], 'public'),
        token: keyHolder(json['token'], 'token'),
        auditor: keyHolder(json['auditor'], 'auditor'),
      };
    case 'token.issue': {
      const role = json['role'];
      if (role !== 'agent' && role !== 'sink' && role !== 'verifier') throw new FrameError('role is none');
      return {
        kind,
        ...placed,
        token: text(json['token'], 'token'),
        secretHash: hash(json['secretHash'], 'secretHash'),
        role,
        ...(json['sinks'] !== undefined && {
          sinks: array(json['sinks'], 'sinks').map((sink) => text(sink, 'sinks')),
        }),
        ...(json['expires'] !== undefined && { expires: text(json['expires'], 'expires') }),
        ...(json['domain'] !== undefined && { domain: text(json['domain'], 'domain') }),
        ...(json['rate'] !== undefined && { rate: count(json['rate'], 'rate') }),
      };
    }
    case 'token.revoke':
      return { kind, ...placed, token: text(json['token'], 'token') };
    case 'auditor.issue':
      return {
        kind,
        ...placed,
        auditor: text(json['auditor'], 'auditor'),
        secretHash: hash(json['secretHash'], 'secretHash'),
      };
    case 'auditor.revoke':
      return { kind, ...placed, auditor: text(json['auditor'], 'auditor') };
    case 'sink.declare':
      return {
        kind,
        ...placed,
        sink: text(json['sink'], 'sink'),
        ...(json['sinkKind'] !== undefined && { sinkKind: text(json['sinkKind'], 'sinkKind') }),
        ...(json['required'] !== undefined && { required: boolean(json['required'], 'required') }),
        ...(json['domain'] !== undefined && { domain: text(json['domain'], 'domain') }),
        ...(json['key'] !== undefined && { key: hash(json['key'], 'key') }),
        ...(json['heartbeat'] !== undefined && { heartbeat: count(json['heartbeat'], 'heartbeat') }),
      };
    case 'policy.set':
      return { kind, ...placed, policy: policy(json['policy']) };
    default:
      throw new FrameError('unknown kind of change');
  }
}

export function encodeCheckpoint(log: string): Buffer {
  return Buffer.from(JSON.stringify({ v: 1, log }));
}

export function decodeCheckpoint(frame: Buffer): string {
  return text(object(frame)['log'], 'log');
}

export interface ReceiptRequest {
  readonly project: string;
  readonly scope: ReceiptScope;
  readonly asOf?: number;
}

export function encodeReceipt(request: ReceiptRequest): Buffer {
  return Buffer.from(JSON.stringify({ v: 1, ...request }));
}

export function decodeReceipt(frame: Buffer): ReceiptRequest {
  const json = object(frame);
  const scope = member(json['scope'], 'scope');
  let of: ReceiptScope;
  if (scope['type'] === 'event') of = { type: 'event', index: count(scope['index'], 'index') };
  else if (scope['type'] === 'range') {
    of = { type: 'range', first: count(scope['first'], 'first'), count: count(scope['count'], 'count') };
  } else throw new FrameError('unknown scope');
  return {
    project: text(json['project'], 'project'),
    scope: of,
    ...(json['asOf'] !== undefined && { asOf: count(json['asOf'], 'asOf') }),
  };
}

export interface RecordRequest {
  readonly project: string;
  readonly statements: readonly StatementRecord[];
}

/** Throws FrameError when it is more than one request may be, or would not fit a frame. */
export async function encodeRecord({ project, statements }: RecordRequest): Promise<Buffer> {
  const all = Buffer.concat(statements.map(({ bytes }) => bytes));
  if (statements.length > MAX_RECORD_STATEMENTS || all.length > MAX_RECORD_BYTES) {
    throw new FrameError(
      `a request is for at most ${MAX_RECORD_STATEMENTS} statements of ${MAX_RECORD_BYTES} bytes`,
    );
  }
  const header = {
    v: 1,
    project,
    lengths: statements.map(({ bytes }) => bytes.length),
    bodies: statements.map(({ body }) => formatCollectorBody(body).toString('utf8')),
  };
  const frame = headed(header, [await promisify(deflate)(all)]);
  if (frame.length > MAX_FRAME_BYTES) throw new FrameError('the statements do not fit a frame');
  return frame;
}

/** Inflates off the thread: the event loop that reads this is the one that takes appends. Throws FrameError. */
export async function decodeRecord(frame: Buffer): Promise<RecordRequest> {
  const { header, rest } = beheaded(frame);
  const project = text(header['project'], 'project');
  const lengths = array(header['lengths'], 'lengths').map((length) => count(length, 'lengths'));
  const bodies = array(header['bodies'], 'bodies').map(coverageStated);
  const size = lengths.reduce((sum, length) => sum + length, 0);
  if (bodies.length !== lengths.length) throw new FrameError('bodies and lengths differ');
  if (lengths.length > MAX_RECORD_STATEMENTS || size > MAX_RECORD_BYTES) throw new FrameError('too much');
  const all = await inflated(rest, size);
  const parts = cut(all, lengths, 'statements');
  return { project, statements: bodies.map((body, i) => ({ body, bytes: parts[i] as Buffer })) };
}

/** Throws FrameError unless all of `deflated` is one stream of `size` bytes. */
function inflated(deflated: Buffer, size: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // Told by `info`, which the types do not know: the engine that did it, and how much of the input it took.
    const done = (error: Error | null, answer: unknown): void => {
      const { buffer, engine } = (answer ?? {}) as { buffer: Buffer; engine: { bytesWritten: number } };
      if (error === null && engine.bytesWritten === deflated.length) resolve(buffer);
      else reject(new FrameError('the statements are not as long as it says, or not deflated'));
    };
    inflate(deflated, { maxOutputLength: Math.max(size, 1), info: true }, done as never);
  });
}

export interface PayloadRequest {
  readonly project: string;
  /** An in-toto statement, JCS. */
  readonly payload: Buffer;
}

/** Throws FrameError when the payload is longer than may be signed. */
export function encodePayload({ project, payload }: PayloadRequest): Buffer {
  if (payload.length > MAX_PAYLOAD_BYTES) {
    throw new FrameError(`what is signed has at most ${MAX_PAYLOAD_BYTES} bytes`);
  }
  return headed({ v: 1, project }, [payload]);
}

/** The payload is a view into `frame`. Throws FrameError. */
export function decodePayload(frame: Buffer): PayloadRequest {
  const { header, rest } = beheaded(frame);
  if (rest.length > MAX_PAYLOAD_BYTES) throw new FrameError('payload too long');
  return { project: text(header['project'], 'project'), payload: rest };
}

type Reply = Ack | ChangeReply | CheckpointReply | ReceiptReply | RecordReply | IssueReply | ExportReply;

export function encodeOutcome(outcome: Outcome<Reply, CollectorFault | StaleFault>): Buffer {
  return Buffer.from(JSON.stringify(outcome, binaryAsBase64));
}

/** The collector is believed about the shape of what it answers; only that it is an outcome is checked. */
export function decodeOutcome<T extends Exclude<Reply, ChangeReply>, F = CollectorFault>(
  frame: Buffer,
): Outcome<T, F> {
  const json = object(frame);
  if (json['ok'] === true) return { ok: true, value: member(json['value'], 'value') as unknown as T };
  if (json['ok'] !== false) throw new FrameError('not an outcome');
  return { ok: false, fault: member(json['fault'], 'fault') as unknown as F };
}

export function decodeChangeOutcome(frame: Buffer): Outcome<ChangeReply> {
  const outcome = decodeOutcome<Ack>(frame) as unknown as Outcome<ChangeReply>;
  if (!outcome.ok || !outcome.value.log) return outcome;
  const publicKey = hash(outcome.value.log.publicKey, 'publicKey');
  return { ok: true, value: { ...outcome.value, log: { ...outcome.value.log, publicKey } } };
}

function headed(header: object, rest: readonly Buffer[]): Buffer {
  const head = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(head.length);
  return Buffer.concat([length, head, ...rest]);
}

function beheaded(frame: Buffer): { readonly header: Record<string, unknown>; readonly rest: Buffer } {
  if (frame.length > MAX_FRAME_BYTES) throw new FrameError('frame too long');
  if (frame.length < 4) throw new FrameError('frame too short');
  const headerEnd = 4 + frame.readUInt32BE(0);
  if (headerEnd > frame.length || headerEnd > 4 + MAX_HEADER_BYTES) throw new FrameError('header too long');
  const header = object(frame.subarray(4, headerEnd));
  if (header['v'] !== 1) throw new FrameError('unknown frame version');
  return { header, rest: frame.subarray(headerEnd) };
}

/** Views into `bytes`, all of which has to be used. */
function cut(bytes: Buffer, lengths: readonly number[], what: string): Buffer[] {
  const parts: Buffer[] = [];
  let at = 0;
  for (const length of lengths) {
    if (length > bytes.length - at) throw new FrameError(`${what} run past the frame`);
    parts.push(bytes.subarray(at, (at += length)));
  }
  if (at !== bytes.length) throw new FrameError(`bytes after the last of the ${what}`);
  return parts;
}

function coverageStated(value: unknown): CoverageStated {
  try {
    const body = parseCollectorBody(Buffer.from(typeof value === 'string' ? value : '', 'utf8'));
    if (body.kind === 'coverage.stated') return body;
  } catch (error) {
    if (!(error instanceof EnvelopeError)) throw error;
    throw new FrameError(`body: ${error.message}`);
  }
  throw new FrameError('body is of another kind');
}

function policy(value: unknown): ProjectPolicy {
  try {
    return readPolicy(value);
  } catch (error) {
    if (!(error instanceof CoverageError)) throw error;
    throw new FrameError(error.message);
  }
}

/** `Buffer.toJSON` runs before a replacer sees the value, so the original is taken from its holder. */
function binaryAsBase64(this: unknown, key: string, value: unknown): unknown {
  const original = (this as Record<string, unknown>)[key];
  return Buffer.isBuffer(original) ? original.toString('base64') : value;
}

function object(bytes: Buffer): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch {
    throw new FrameError('not JSON');
  }
  return member(value, 'frame');
}

function member(value: unknown, name: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new FrameError(`${name} is no object`);
  }
  return value as Record<string, unknown>;
}

function array(value: unknown, name: string): unknown[] {
  if (!Array.isArray(value)) throw new FrameError(`${name} is no array`);
  if (value.length > MAX_REQUEST_LINES) throw new FrameError(`${name} is too long`);
  return value;
}

function text(value: unknown, name: string): string {
  if (typeof value !== 'string' || value.length > 1024) throw new FrameError(`${name} is no short text`);
  return value;
}

function count(value: unknown, name: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw new FrameError(`${name} is no count`);
  return value as number;
}

function boolean(value: unknown, name: string): boolean {
  if (typeof value !== 'boolean') throw new FrameError(`${name} is no boolean`);
  return value;
}

function base64(value: unknown, name: string): Buffer {
  const bytes = Buffer.from(text(value, name), 'base64');
  if (bytes.toString('base64') !== value) throw new FrameError(`${name} is not canonical base64`);
  return bytes;
}

function hash(value: unknown, name: string): Buffer {
  const bytes = base64(value, name);
  if (bytes.length !== 32) throw new FrameError(`${name} is not 32 bytes`);
  return bytes;
}

function keyHolder(value: unknown, name: string): { id: string; secretHash: Buffer } {
  const holder = member(value, name);
  return { id: text(holder['id'], name), secretHash: hash(holder['secretHash'], name) };
}

function refusal(value: unknown): LineRefusal {
  const json = member(value, 'refused');
  return {
    line: count(json['line'], 'line'),
    code: text(json['code'], 'code'),
    ...(json['field'] !== undefined && { field: text(json['field'], 'field') }),
    message: text(json['message'], 'message'),
  };
}
