import { attributesOf, extensionRule, type NamedKind } from './attributes.js';
import { EnvelopeError } from './error.js';
import {
  callName,
  digest,
  origin,
  pattern,
  seq,
  sessionName,
  sinkName,
  time,
  ulid,
  type Rule,
} from './rules.js';
import { parseStrictJson } from './strict-json.js';

/** Bytes of an envelope line without its LF. */
export const MAX_ENVELOPE_BYTES = 4096;
const MAX_ATTRIBUTES = 16;

export type EnvelopeKind = NamedKind | `x.${string}`;
export type AttributeValue = number | boolean | string | readonly string[];

/** One envelope, FORMAT.md section 1. `seq` counts from 1; `digest`, `call` and `match` are in their text forms. */
export interface Envelope {
  readonly v: 1;
  readonly log: string;
  readonly sink: string;
  readonly epoch: string;
  readonly seq: number;
  readonly kind: EnvelopeKind;
  readonly time: string;
  readonly digest?: string;
  readonly session?: string;
  readonly call?: string;
  readonly match?: string;
  readonly attrs?: Readonly<Record<string, AttributeValue>>;
}

interface Field {
  readonly rule: Rule;
  /** One bit per required field; 0 for an optional one. */
  readonly bit: number;
}

const REQUIRED = ['v', 'log', 'sink', 'epoch', 'seq', 'kind', 'time'] as const;
const ALL_REQUIRED = (1 << REQUIRED.length) - 1;

const RULES: Readonly<Record<string, Rule>> = {
  v: (value) => (value === 1 ? undefined : 'the number 1'),
  log: origin,
  sink: sinkName,
  epoch: ulid,
  seq,
  kind: (value) => (typeof value === 'string' ? undefined : 'a string'),
  time,
  digest,
  session: sessionName,
  call: callName,
  match: pattern(/^hmac-sha256:[0-9a-f]{64}$/, '"hmac-sha256:" and 64 lowercase hex digits'),
  attrs: (value) =>
    typeof value === 'object' && value !== null && !Array.isArray(value) ? undefined : 'an object',
};

const FIELDS: ReadonlyMap<string, Field> = new Map(
  Object.entries(RULES).map(([key, rule]) => {
    const position = (REQUIRED as readonly string[]).indexOf(key);
    return [key, { rule, bit: position < 0 ? 0 : 1 << position }];
  }),
);

/**
 * Reads one envelope line (without its LF) and refuses everything FORMAT.md sections 1 and 2 do not allow, by
 * EnvelopeError with the field and what would be right. On the ingest path: no copies beyond the parsed object.
 */
export function parseEnvelope(line: Buffer): Envelope {
  if (line.length > MAX_ENVELOPE_BYTES) {
    throw new EnvelopeError('too_long', '', `a line is at most ${MAX_ENVELOPE_BYTES} bytes without its LF`);
  }
  const value = parseStrictJson(line);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new EnvelopeError('not_an_object', '', 'a line is one JSON object');
  }
  const envelope = value as Record<string, unknown>;
  let seen = 0;
  for (const key in envelope) {
    const field = FIELDS.get(key);
    if (field === undefined) throw unknownField('', key);
    const right = field.rule(envelope[key]);
    if (right !== undefined) throw refused(key, right);
    seen |= field.bit;
  }
  if (seen !== ALL_REQUIRED) {
    const missing = REQUIRED.find((_, position) => (seen & (1 << position)) === 0) as string;
    throw new EnvelopeError('missing_field', missing, `${missing} is required`);
  }
  checkAttributes(envelope['kind'] as string, envelope['attrs'] as Record<string, unknown> | undefined);
  return value as Envelope;
}

/**
 * The non-empty lines of a request body, as views into it, in order. Stops with EnvelopeError `too_many_lines` past
 * `limit`, so that a body of line feeds can't make an array of its own size.
 */
export function splitLines(body: Buffer, limit = Number.MAX_SAFE_INTEGER): Buffer[] {
  const lines: Buffer[] = [];
  let start = 0;
  while (start < body.length) {
    const found = body.indexOf(0x0a, start);
    const end = found < 0 ? body.length : found;
    if (end > start) {
      if (lines.length === limit) {
        throw new EnvelopeError('too_many_lines', '', `a request has at most ${limit} lines`);
      }
      lines.push(body.subarray(start, end));
    }
    start = end + 1;
  }
  return lines;
}

function checkAttributes(kind: string, attributes: Record<string, unknown> | undefined): void {
  const table = attributesOf(kind);
  if (table === undefined) {
    throw new EnvelopeError(
      'unknown_kind',
      'kind',
      'kind is one of the named kinds, or "x." and a lower-case name',
    );
  }
  if (attributes !== undefined) {
    let count = 0;
    for (const key in attributes) {
      if (++count > MAX_ATTRIBUTES) {
        throw new EnvelopeError('bad_value', 'attrs', `attrs has at most ${MAX_ATTRIBUTES} members`);
      }
      const rule = table === 'extension' ? extensionRule(key) : table.rules.get(key);
      if (rule === undefined) throw unknownField('attrs.', key);
      const right = rule(attributes[key]);
      if (right !== undefined) throw refused(`attrs.${key}`, right);
    }
  }
  if (table === 'extension') return;
  for (const key of table.required) {
    if (attributes === undefined || !Object.hasOwn(attributes, key)) {
      throw new EnvelopeError('missing_field', `attrs.${key}`, `attrs.${key} is required for ${kind}`);
    }
  }
  if (kind === 'gap' && (attributes?.['first'] as number) > (attributes?.['last'] as number)) {
    throw new EnvelopeError('bad_value', 'attrs.last', 'attrs.last is not below attrs.first');
  }
}

/** A field's name is repeated only when it looks like one: an unknown key may be content. */
function unknownField(prefix: string, key: string): EnvelopeError {
  const field = `${prefix}${/^[A-Za-z0-9_.]{1,32}$/.test(key) ? key : '?'}`;
  return new EnvelopeError('unknown_field', field, `${field} is not a field of an envelope of this kind`);
}

function refused(field: string, right: string): EnvelopeError {
  return new EnvelopeError('bad_value', field, `${field} is ${right}`);
}
