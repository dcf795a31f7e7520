import { leafHash } from '@belay/merkle';
import { canonical } from './canonical.js';
import { parseCollectorBody, type CollectorBody } from './collector-body.js';
import { parseEnvelope, MAX_ENVELOPE_BYTES, type Envelope } from './envelope.js';
import { EnvelopeError } from './error.js';
import { int, origin, pattern, sinkName, words, type Rule } from './rules.js';
import { parseStrictJson } from './strict-json.js';

const LF = 0x0a;
const MAX_COLLECTOR_LINE_BYTES = 1024;
/** Bytes of an entry, so that it always fits a C2SP entry bundle. */
export const MAX_ENTRY_BYTES = MAX_COLLECTOR_LINE_BYTES + 1 + MAX_ENVELOPE_BYTES;

export type SenderRole = 'agent' | 'sink' | 'verifier';

/** What every line of one append has in common: all members but `index` and `conflict`. */
export interface CollectorLineFields {
  readonly log: string;
  /** RFC 3339 with exactly three fractional digits. */
  readonly received: string;
  readonly role: SenderRole | 'collector';
  /** `tok_...`; absent only when the role is `collector`, like `sink`. */
  readonly token?: string | undefined;
  readonly sink?: string | undefined;
  /** Fingerprint of the declared key whose batch signature the collector verified. */
  readonly signed?: string | undefined;
  readonly late?: true | undefined;
}

/** The collector's line of an entry, FORMAT.md section 6. */
export interface CollectorLine extends CollectorLineFields {
  readonly v: 1;
  readonly index: number;
  /** Index of the first line that had the same (sink, epoch, seq) and other bytes. */
  readonly conflict?: number | undefined;
}

/** A parsed entry; `body` is the bytes of the second line, as a view into the entry. */
export type Entry =
  | {
      readonly by: 'sender';
      readonly line: CollectorLine;
      readonly body: Buffer;
      readonly envelope: Envelope;
    }
  | {
      readonly by: 'collector';
      readonly line: CollectorLine;
      readonly body: Buffer;
      readonly statement: CollectorBody;
    };

/**
 * Makes the entries of one append: what its lines share is checked and written once, only the index changes from one
 * to the next. `body` has no LF (`splitLines` and `parseEnvelope` saw to that).
 */
export interface EntryMaker {
  line(index: number, conflict?: number): string;
  entry(index: number, body: Buffer, conflict?: number): Buffer;
}

/** The last time that was found to be one: the entries of a commit share theirs. */
let lastInstant = '';

/** A time that exists, written in the one way. */
function isInstant(value: unknown): boolean {
  if (value === lastInstant) return true;
  if (typeof value !== 'string') return false;
  const time = new Date(value);
  if (Number.isNaN(time.getTime()) || time.toISOString() !== value) return false;
  lastInstant = value;
  return true;
}

const RULES: Readonly<Record<string, Rule>> = {
  conflict: int,
  index: int,
  late: (value) => (value === true ? undefined : 'true or absent'),
  log: origin,
  received: (value) =>
    isInstant(value) ? undefined : 'an RFC 3339 time in UTC with three fractional digits',
  role: words('agent', 'sink', 'verifier', 'collector'),
  signed: pattern(/^[0-9a-f]{16}$/, 'a key fingerprint: 16 lowercase hex digits'),
  sink: sinkName,
  token: pattern(/^tok_[0-9a-hjkmnp-tv-z]{26}$/, '"tok_" and 26 characters of lower-case base 32'),
  v: (value) => (value === 1 ? undefined : 'the number 1'),
};

/**
 * Checks what an append's lines share once and returns the maker of its entries. Throws EnvelopeError when the fields
 * are not what the format allows; the per-line functions only check the numbers.
 */
export function entryMaker(fields: CollectorLineFields): EntryMaker {
  const shared = { ...fields, v: 1 };
  check({ index: 0, ...shared });
  const text = canonical({ ...shared, conflict: undefined, index: undefined });
  // `conflict` and `index` sort before every other member, so the rest of the line is one constant.
  const suffix = `,${text.slice(1)}`;
  const prefix = (conflict: number | undefined): string => {
    if (conflict === undefined) return '{"index":';
    assertIndex(conflict);
    return `{"conflict":${conflict},"index":`;
  };
  const line = (index: number, conflict: number | undefined): string => {
    assertIndex(index);
    return `${prefix(conflict)}${index}${suffix}`;
  };
  return {
    line,
    entry(index, body, conflict) {
      const text = line(index, conflict);
      const entry = Buffer.allocUnsafe(text.length + 1 + body.length);
      entry.write(text, 0, 'latin1');
      entry[text.length] = LF;
      body.copy(entry, text.length + 1);
      return entry;
    },
  };
}

/** JCS text of one collector's line. */
export function collectorLine(fields: Omit<CollectorLine, 'v'>): string {
  const { index, conflict, ...shared } = fields;
  return entryMaker(shared).line(index, conflict);
}

/** The bytes of an entry: the collector's line, LF, the body line as received. */
export function entryBytes(line: string, body: Buffer): Buffer {
  if (body.includes(LF))
    throw new EnvelopeError('bad_value', '', 'the body of an entry is one line without LF');
  return Buffer.concat([Buffer.from(`${line}\n`, 'utf8'), body]);
}

/** RFC 6962 leaf hash (32 bytes) of the entry. */
export function entryLeaf(line: string, body: Buffer): Buffer {
  return leafHash(entryBytes(line, body));
}

/**
 * Reads an entry strictly: both lines are canonical or as the format allows, and agree on log and sink. Throws
 * EnvelopeError.
 */
export function parseEntry(bytes: Buffer): Entry {
  if (bytes.length > MAX_ENTRY_BYTES) {
    throw new EnvelopeError('too_long', '', `an entry is at most ${MAX_ENTRY_BYTES} bytes`);
  }
  const end = bytes.indexOf(LF);
  if (end < 0)
    throw new EnvelopeError('bad_value', '', "an entry is the collector's line, LF and a body line");
  const line = parseCollectorLine(bytes.subarray(0, end));
  const body = bytes.subarray(end + 1);
  if (body.includes(LF))
    throw new EnvelopeError('bad_value', '', 'an entry is two lines without a trailing LF');
  if (line.role === 'collector') {
    const statement = parseCollectorBody(body);
    if (statement.kind === 'log.genesis' && statement.log !== line.log) throw mismatch('log');
    return { by: 'collector', line, body, statement };
  }
  const envelope = parseEnvelope(body);
  if (envelope.log !== line.log) throw mismatch('log');
  if (envelope.sink !== line.sink) throw mismatch('sink');
  return { by: 'sender', line, body, envelope };
}

/**
 * The one form of a collector's line, whole: no value of it can hold a character that JSON escapes. Logs have one of these
 * for each entry, so it is matched at once; what does not match is looked at member by member, to say what is wrong.
 */
const CANONICAL_LINE =
  /^\{(?:"conflict":(0|[1-9][0-9]{0,15}),)?"index":(0|[1-9][0-9]{0,15}),(?:"late":(true),)?"log":"([A-Za-z0-9._/:-]{1,255})","received":"([0-9TZ:.-]{24})","role":"(?:(collector)|(agent|sink|verifier))"(?:,"signed":"([0-9a-f]{16})")?(?:,"sink":"([A-Za-z0-9][A-Za-z0-9._-]{0,63})","token":"(tok_[0-9a-hjkmnp-tv-z]{26})")?,"v":1\}$/;

function matchedLine(bytes: Buffer): CollectorLine | undefined {
  const match = CANONICAL_LINE.exec(bytes.toString('latin1'));
  if (match === null) return undefined;
  const [, conflict, index, late, log, received, collector, sender, signed, sink, token] = match;
  const at = Number(index);
  const first = conflict === undefined ? undefined : Number(conflict);
  const sent = token !== undefined;
  if (sent !== (sender !== undefined) || !isInstant(received)) return undefined;
  if (!Number.isSafeInteger(at) || (first !== undefined && !Number.isSafeInteger(first))) return undefined;
  return {
    ...(first === undefined ? {} : { conflict: first }),
    index: at,
    ...(late === undefined ? {} : { late: true }),
    log: log as string,
    received: received as string,
    role: (sender ?? collector) as CollectorLine['role'],
    ...(signed === undefined ? {} : { signed }),
    ...(sent ? { sink: sink as string, token } : {}),
    v: 1,
  };
}

/** Reads a collector's line; anything but its one canonical form is refused. */
export function parseCollectorLine(bytes: Buffer): CollectorLine {
  if (bytes.length > MAX_COLLECTOR_LINE_BYTES) {
    throw new EnvelopeError(
      'too_long',
      '',
      `a collector's line is at most ${MAX_COLLECTOR_LINE_BYTES} bytes`,
    );
  }
  const matched = matchedLine(bytes);
  if (matched !== undefined) return matched;
  const value = parseStrictJson(bytes);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new EnvelopeError('not_an_object', '', "a collector's line is one JSON object");
  }
  const line = check(value as Record<string, unknown>);
  if (canonical(line) !== bytes.toString('utf8')) {
    throw new EnvelopeError('not_canonical', '', "a collector's line is written as RFC 8785 says");
  }
  return line;
}

function check(value: Record<string, unknown>): CollectorLine {
  for (const [key, member] of Object.entries(value)) {
    if (member === undefined) continue;
    const rule = Object.hasOwn(RULES, key) ? RULES[key] : undefined;
    if (rule === undefined) {
      throw new EnvelopeError('unknown_field', key, "not a member of a collector's line");
    }
    const right = rule(member);
    if (right !== undefined) throw new EnvelopeError('bad_value', key, `${key} is ${right}`);
  }
  const collector = value['role'] === 'collector';
  for (const key of ['v', 'log', 'index', 'received', 'role']) required(value, key);
  for (const key of ['sink', 'token']) {
    if (!collector) required(value, key);
    else if (value[key] !== undefined) {
      throw new EnvelopeError('unknown_field', key, `${key} is absent from an entry the collector wrote`);
    }
  }
  return value as unknown as CollectorLine;
}

function required(value: Record<string, unknown>, key: string): void {
  if (value[key] === undefined) throw new EnvelopeError('missing_field', key, `${key} is required`);
}

function mismatch(field: string): EnvelopeError {
  return new EnvelopeError('mismatch', field, `${field} is the same in both lines of an entry`);
}

function assertIndex(index: number): void {
  if (!Number.isSafeInteger(index) || index < 0)
    throw new RangeError('an index is an integer from 0 to 2^53 - 1');
}
