import { isUtf8 } from 'node:buffer';
import type { Frame } from './frame.js';
import { Skimmer } from './skim.js';

const BRACE = 0x7b;

/**
 * Identity of a JSON-RPC id: its type and value. `42` and `"42"` differ, `1` and `1.0` are one number. Numbers that a
 * double can't hold are identified by their own text.
 */
export type IdKey = `n:${string}` | `s:${string}` | 'null' | 'invalid';

export interface Request {
  readonly type: 'request';
  readonly id: IdKey;
  readonly method: string;
  readonly params: unknown;
}

export interface Notification {
  readonly type: 'notification';
  readonly method: string;
  readonly params: unknown;
}

export interface Response {
  readonly type: 'response';
  readonly id: IdKey;
  readonly ok: boolean;
  /** The `result` member, or undefined for an error. */
  readonly result: unknown;
  /** The `error` member, or undefined for a result. */
  readonly error: unknown;
}

/** JSON, but nothing that JSON-RPC knows. */
export interface Unknown {
  readonly type: 'unknown';
}

export type Message = Request | Notification | Response | Unknown;

export type Finding =
  | 'NON_JSON'
  | 'INVALID_UTF8'
  | 'BYTE_ORDER_MARK'
  | 'NOT_JSON_RPC'
  | 'ID_NULL'
  | 'ID_FRACTIONAL'
  | 'ID_INVALID';

/** What a frame says; `messages` is in the order of the frame, and empty for blank and non-JSON lines. */
export interface Content {
  readonly kind: 'blank' | 'text' | 'message' | 'batch' | 'oversize-batch';
  readonly messages: readonly Message[];
  readonly findings: readonly Finding[];
}

/**
 * Reads a frame without ever failing: what is not JSON-RPC is said by name. Of an oversize frame only ids, method and
 * tool name are there, `params` and `result` being what was skimmed. So it is of a single message larger than `whole`
 * bytes: JSON of which only the brackets were checked; batches are read whole.
 */
export function readFrame(frame: Frame, whole = Infinity): Content {
  // `bytes` is not asked for before it is needed: it may have to be put together.
  const skimmed = frame.size > whole ? skimFrame(frame) : undefined;
  if (skimmed !== undefined) return skimmed;
  return frame.bytes === undefined ? readSkimmed(frame.skimmed ?? new Skimmer()) : readWhole(frame.bytes);
}

/** Undefined where a skim will not do. */
function skimFrame(frame: Frame): Content | undefined {
  const parts = frame.parts ?? (frame.bytes === undefined ? [] : [frame.bytes]);
  if (parts[0]?.[0] !== BRACE) return undefined;
  const skimmer = new Skimmer();
  const utf8 = new Utf8Check();
  for (const part of parts) {
    skimmer.push(part);
    utf8.push(part);
  }
  if (!skimmer.isClosed || !utf8.end()) return undefined;
  const content = readSkimmed(skimmer);
  return content.kind === 'message' ? content : undefined;
}

/** Whether bytes that come in pieces are UTF-8; a character may be cut by the end of a piece. */
class Utf8Check {
  #rest: Buffer = Buffer.alloc(0);
  #valid = true;

  push(piece: Buffer): void {
    if (!this.#valid) return;
    // The last character of what is there so far, if it is not whole: at most its lead and two more.
    let keep = 0;
    for (let back = 1; back <= 3 && back <= piece.length; back++) {
      const byte = piece[piece.length - back] as number;
      if ((byte & 0xc0) === 0x80) continue;
      const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
      if (length > back) keep = back;
      break;
    }
    const end = piece.length - keep;
    let start = 0;
    if (this.#rest.length > 0) {
      while (start < end && start < 3 && ((piece[start] as number) & 0xc0) === 0x80) start++;
      this.#valid = isUtf8(Buffer.concat([this.#rest, piece.subarray(0, start)]));
    }
    this.#valid &&= isUtf8(piece.subarray(start, end));
    this.#rest = piece.subarray(end);
  }

  end(): boolean {
    return this.#valid && this.#rest.length === 0;
  }
}

function readWhole(bytes: Buffer): Content {
  const findings: Finding[] = [];
  let text = bytes.toString('utf8');
  // What is no UTF-8 reads as U+FFFD, which may also be meant.
  if (text.includes('\ufffd') && !isUtf8(bytes)) findings.push('INVALID_UTF8');
  if (text.startsWith('\ufeff')) {
    findings.push('BYTE_ORDER_MARK');
    text = text.slice(1);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    if (text.trim() === '') return { kind: 'blank', messages: [], findings };
    return { kind: 'text', messages: [], findings: [...findings, 'NON_JSON'] };
  }
  if (Array.isArray(value)) {
    const messages = value.map((member) => readMessage(member, undefined, findings));
    return { kind: 'batch', messages, findings };
  }
  return { kind: 'message', messages: [readMessage(value, bytes, findings)], findings };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readMessage(value: unknown, bytes: Buffer | undefined, findings: Finding[]): Message {
  if (!isObject(value)) {
    findings.push('NOT_JSON_RPC');
    return { type: 'unknown' };
  }
  const rawId = (): string | undefined => {
    if (bytes === undefined) return undefined;
    const skimmer = new Skimmer();
    skimmer.push(bytes);
    return skimmer.scalars.get('id');
  };
  return assemble(
    value,
    Object.hasOwn(value, 'id') ? idKey(value['id'], rawId, findings) : undefined,
    findings,
  );
}

function assemble(
  value: Readonly<Record<string, unknown>>,
  id: IdKey | undefined,
  findings: Finding[],
): Message {
  const method = value['method'];
  if (typeof method === 'string') {
    const params = value['params'];
    return id === undefined
      ? { type: 'notification', method, params }
      : { type: 'request', id, method, params };
  }
  const failed = value['error'] !== undefined && value['error'] !== null;
  if (id !== undefined && (failed || Object.hasOwn(value, 'result'))) {
    return {
      type: 'response',
      id,
      ok: !failed,
      result: failed ? undefined : value['result'],
      error: value['error'],
    };
  }
  findings.push('NOT_JSON_RPC');
  return { type: 'unknown' };
}

function idKey(id: unknown, raw: () => string | undefined, findings: Finding[]): IdKey {
  switch (typeof id) {
    case 'string':
      return `s:${id}`;
    case 'number':
      if (Number.isSafeInteger(id)) return `n:${id}`;
      if (Math.abs(id) < Number.MAX_SAFE_INTEGER) findings.push('ID_FRACTIONAL');
      return `n:${raw() ?? id}`;
    default:
      findings.push(id === null ? 'ID_NULL' : 'ID_INVALID');
      return id === null ? 'null' : 'invalid';
  }
}

function readSkimmed(skimmer: Skimmer): Content {
  if (skimmer.isArray) return { kind: 'oversize-batch', messages: [], findings: [] };
  const findings: Finding[] = [];
  const value: Record<string, unknown> = {};
  for (const [path, text] of skimmer.scalars) {
    const [key, below] = path.split('.', 2) as [string, string | undefined];
    // What an object or array below held went by unseen: it is left out, so that nobody takes it for an empty one.
    if (below === undefined) value[key] = text === '' ? {} : scalar(text);
    else if (isObject(value[key]) && text !== '') {
      (value[key] as Record<string, unknown>)[below] = scalar(text);
    }
  }
  if (value['method'] === undefined && value['id'] === undefined) {
    return { kind: 'text', messages: [], findings: ['NON_JSON'] };
  }
  const id = Object.hasOwn(value, 'id')
    ? idKey(value['id'], () => skimmer.scalars.get('id'), findings)
    : undefined;
  return { kind: 'message', messages: [assemble(value, id, findings)], findings };
}

function scalar(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
