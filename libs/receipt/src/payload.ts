import { canonical } from '@belay/envelope';
import { parseBase64 } from '@belay/note';
import { ReceiptError } from './error.js';
import { count, list, matching, members, parseCanonical, text } from './shape.js';

const STATEMENT_TYPE = 'https://in-toto.io/Statement/v1';

/** Log, issuer, root. More would need path lengths to be checked, which node:crypto does not show. */
const MAX_CHAIN = 3;

/** The log that a receipt is of, and what vouches for its key. */
export interface LogIdentity {
  readonly origin: string;
  readonly vkey: string;
  /** DER, the log's certificate first, the root last. */
  readonly x5c: readonly Buffer[];
}

/** The published head of the log that a receipt stands on. */
export interface PublishedHead {
  readonly size: number;
  /** The signed note, verbatim. */
  readonly checkpoint: string;
  /** When the checkpoint was published: RFC 3339, UTC, three fractional digits. */
  readonly time: string;
}

/** The subject of a statement: a name, and a SHA-256 in lower-case hex. */
export interface Subject {
  readonly name: string;
  readonly sha256: string;
}

/** An in-toto Statement v1 with one subject, taken apart; of the predicate nothing is looked at. */
export interface Payload {
  readonly subject: Subject;
  readonly predicateType: string;
  readonly predicate: unknown;
}

/** The payload: JCS of an in-toto Statement v1. */
export function formatPayload({ subject: { name, sha256 }, predicateType, predicate }: Payload): Buffer {
  return Buffer.from(
    canonical({ _type: STATEMENT_TYPE, subject: [{ name, digest: { sha256 } }], predicateType, predicate }),
  );
}

/** Reads the one canonical form of a statement with one subject. */
export function parsePayload(payload: Buffer): Payload {
  const [type, subjects, predicateType, predicate] = members(
    parseCanonical(payload, 'statement'),
    'statement',
    ['_type', 'subject', 'predicateType', 'predicate'],
  );
  if (type !== STATEMENT_TYPE) throw new ReceiptError('malformed', 'not an in-toto Statement v1');
  const listed = list(subjects, 'subject', 1);
  const [name, digest] = members(listed[0], 'subject', ['name', 'digest']);
  const [sha256] = members(digest, 'digest', ['sha256']);
  return {
    subject: { name: text(name, 'subject'), sha256: matching(sha256, 'sha256', /^[0-9a-f]{64}$/) },
    predicateType: text(predicateType, 'predicateType'),
    predicate,
  };
}

/** `log` of a predicate. */
export function logMember({ origin, vkey, x5c }: LogIdentity): object {
  return { origin, vkey, x5c: x5c.map((certificate) => certificate.toString('base64')) };
}

export function readLog(value: unknown): LogIdentity {
  const [origin, vkey, x5c] = members(value, 'log', ['origin', 'vkey', 'x5c']);
  return {
    origin: matching(origin, 'origin', /^[A-Za-z0-9._/:-]{1,255}$/),
    vkey: text(vkey, 'vkey'),
    x5c: list(x5c, 'x5c', MAX_CHAIN).map((certificate) => base64(certificate, 'x5c')),
  };
}

/** `asOf` of a predicate. */
export function headMember({ size, checkpoint, time }: PublishedHead): object {
  return { size, checkpoint, time };
}

export function readHead(value: unknown): PublishedHead {
  const [size, checkpoint, time] = members(value, 'asOf', ['size', 'checkpoint', 'time']);
  return {
    size: count(size, 'size'),
    checkpoint: text(checkpoint, 'checkpoint'),
    time: instant(time, 'time'),
  };
}

/** Refuses a `notProven` that is not the list of this version, word for word. */
export function requireSentences(value: unknown, sentences: readonly string[]): void {
  const stated = list(value, 'notProven', sentences.length);
  if (stated.length !== sentences.length || sentences.some((sentence, i) => stated[i] !== sentence)) {
    throw new ReceiptError('malformed', 'notProven is not the list of this version');
  }
}

export const IDENTIFIER = /^[a-z]{3}_[0-9a-hjkmnp-tv-z]{26}$/;
export const SINK = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** A trust domain, or the name of a verdict's cause, as envelopes and statements of the collector have them. */
export const NAME = /^[A-Za-z0-9._@/:+-]{1,128}$/;

/** A time that exists and is written in the one way. */
export function instant(value: unknown, what: string): string {
  const written = text(value, what);
  const time = new Date(written);
  if (Number.isNaN(time.getTime()) || time.toISOString() !== written) {
    throw new ReceiptError(
      'malformed',
      `${what} is not an RFC 3339 time in UTC with three fractional digits`,
    );
  }
  return written;
}

export function base64(value: unknown, what: string): Buffer {
  try {
    return parseBase64(text(value, what));
  } catch (error) {
    if (error instanceof ReceiptError) throw error;
    throw new ReceiptError('malformed', `${what} is not canonical base64`);
  }
}
