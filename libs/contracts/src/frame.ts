import type {
  Ack,
  AppendRequest,
  Change,
  ChangeReply,
  CheckpointReply,
  CollectorFault,
  LineRefusal,
  Outcome,
  ReceiptReply,
  ReceiptScope,
} from './rpc.js';

export { type NatsServers, parseNatsUrl } from './nats-url.js';

/**
 * The bytes of `CollectorApi` on NATS. A request goes to the subject of its verb, the answer to the request's own
 * inbox, so a frame carries no correlation id.
 *
 * Append frame: u32 big-endian length of the header, header (JSON), then the lines as received, back to back.
 * `header.lengths` cuts them. Lines are never put into JSON: they may be 4 MiB a request, and what is hashed are
 * exactly these bytes. All other frames are JSON, binary members as base64.
 *
 * Both ends are ours and of one trust domain, yet a frame is read strictly: who can publish on the collector's
 * subjects is believed about who sent a line, but must not be able to make the collector fall over.
 */
export const SUBJECTS = {
  append: 'belay.collector.append',
  change: 'belay.collector.change',
  checkpoint: 'belay.collector.checkpoint',
  receipt: 'belay.collector.receipt',
} as const;

/** Non-empty lines of one request. */
export const MAX_REQUEST_LINES = 2000;
/** Bytes of one request's body after decompression. */
export const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** No frame is longer: NATS' `max_payload` has to be at least this. */
export const MAX_FRAME_BYTES = 6 * 1024 * 1024;
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
  const head = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(head.length);
  return Buffer.concat([length, head, ...request.lines]);
}

/** Lines are views into `frame`, which must not be written to afterwards. Throws FrameError. */
export function decodeAppend(frame: Buffer): AppendRequest {
  if (frame.length > MAX_FRAME_BYTES) throw new FrameError('frame too long');
  if (frame.length < 4) throw new FrameError('frame too short');
  const headerEnd = 4 + frame.readUInt32BE(0);
  if (headerEnd > frame.length || headerEnd > 4 + MAX_HEADER_BYTES) throw new FrameError('header too long');
  const header = object(frame.subarray(4, headerEnd));
  if (header['v'] !== 1) throw new FrameError('unknown frame version');
  const lengths = array(header['lengths'], 'lengths').map((length) => count(length, 'lengths'));
  const seqs = array(header['seqs'], 'seqs').map((seq) => (seq === null ? null : count(seq, 'seqs')));
  if (seqs.length !== lengths.length) throw new FrameError('seqs and lengths differ');
  const lines: Buffer[] = [];
  let at = headerEnd;
  for (const length of lengths) {
    if (length > frame.length - at) throw new FrameError('lines run past the frame');
    lines.push(frame.subarray(at, (at += length)));
  }
  if (at !== frame.length) throw new FrameError('bytes after the last line');
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
  const tenant = text(json['tenant'], 'tenant');
  const kind = json['kind'];
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
      return { kind, ...placed, public: boolean(json['public'], 'public') };
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

export function encodeOutcome(outcome: Outcome<Ack | ChangeReply | CheckpointReply | ReceiptReply>): Buffer {
  return Buffer.from(JSON.stringify(outcome, binaryAsBase64));
}

/** The collector is believed about the shape of what it answers; only that it is an outcome is checked. */
export function decodeOutcome<T extends Ack | CheckpointReply | ReceiptReply>(frame: Buffer): Outcome<T> {
  const json = object(frame);
  if (json['ok'] === true) return { ok: true, value: member(json['value'], 'value') as unknown as T };
  if (json['ok'] !== false) throw new FrameError('not an outcome');
  return { ok: false, fault: member(json['fault'], 'fault') as unknown as CollectorFault };
}

export function decodeChangeOutcome(frame: Buffer): Outcome<ChangeReply> {
  const outcome = decodeOutcome<Ack>(frame) as unknown as Outcome<ChangeReply>;
  if (!outcome.ok || !outcome.value.log) return outcome;
  const publicKey = hash(outcome.value.log.publicKey, 'publicKey');
  return { ok: true, value: { ...outcome.value, log: { ...outcome.value.log, publicKey } } };
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
