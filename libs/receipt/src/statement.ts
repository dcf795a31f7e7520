import type { ReceiptScope } from '@belay/envelope';
import { HASH_SIZE, MAX_PROOF } from '@belay/merkle';
import { AUTHORITY_LEVELS, type Authority, type AuthorityLevel, type Witness } from './authority.js';
import { type Disposition, MAX_REASONS } from './disposition.js';
import { ReceiptError } from './error.js';
import {
  base64,
  formatPayload,
  headMember,
  IDENTIFIER,
  logMember,
  type LogIdentity,
  NAME,
  type Payload,
  type PublishedHead,
  readHead,
  readLog,
  requireSentences,
  SINK,
} from './payload.js';
import { count, list, matching, members, text } from './shape.js';

/** Predicate type of receipts for events and ranges. */
const PREDICATE_TYPE = 'urn:belay:receipt:v1';

/** Most entries of one receipt. */
export const MAX_RECEIPT_ENTRIES = 10_000;

/** Largest receipt that is read, in bytes: as many of the largest entries, in base64, and room for the rest. */
export const MAX_RECEIPT_BYTES = 80 * 1024 * 1024;

/** What no event or range receipt proves. Part of every such receipt, word for word. */
export const NOT_PROVEN: readonly string[] = Object.freeze([
  'That what the entries say is true: an entry shows who said it, when it was received and that it was not changed since.',
  'That nothing is missing: coverage is not evaluated in a receipt for an event or a range.',
  'That a step was right: this receipt judges nothing. A verdict in it is the word of its verifier.',
  'What the content was: entries hold commitments, which open only with their salt and the content itself.',
  'That the times are right: they are by the clocks of the sinks and of the collector.',
  'That everyone is shown the same log: compare its checkpoint with those that others hold.',
  'That trust domains and issuers are as named: this is the statement of the collector, unless the entry that says so is in the receipt.',
]);

/** Who issued a token, and the entry of the log that says so. */
export interface Issuer {
  readonly token: string;
  /** Identifier of the admin key. */
  readonly issuedBy: string;
  readonly index: number;
}

/** What a receipt states, as values. Making and reading it checks its form; `verifyReceipt` checks what it says. */
export interface Receipt {
  readonly scope: ReceiptScope;
  readonly log: LogIdentity;
  readonly asOf: PublishedHead;
  readonly proof: { readonly left: readonly Buffer[]; readonly right: readonly Buffer[] };
  /** The bytes of the entries, in order. */
  readonly entries: readonly Buffer[];
  readonly authority: Authority;
  readonly disposition: Disposition;
  readonly issuers: readonly Issuer[];
}

/** Index of the first entry and number of entries that a scope asks for. */
export function scopeRange(scope: ReceiptScope): { readonly first: number; readonly count: number } {
  return scope.type === 'event'
    ? { first: scope.index, count: 1 }
    : { first: scope.first, count: scope.count };
}

/** Name of a subject: `<origin>#<first>-<last>`. */
export function subjectName(origin: string, scope: ReceiptScope): string {
  const range = scopeRange(scope);
  return `${origin}#${range.first}-${range.first + range.count - 1}`;
}

/** The payload; `sha256` is that of the entries' bundle. */
export function formatStatement(receipt: Receipt, sha256: string): Buffer {
  const { scope, log, asOf, proof, entries, authority, disposition, issuers } = receipt;
  const encoded = (all: readonly Buffer[]): string[] => all.map((bytes) => bytes.toString('base64'));
  return formatPayload({
    subject: { name: subjectName(log.origin, scope), sha256 },
    predicateType: PREDICATE_TYPE,
    predicate: {
      v: 1,
      scope,
      log: logMember(log),
      asOf: headMember(asOf),
      proof: { left: encoded(proof.left), right: encoded(proof.right) },
      entries: entries.map((entry) => entry.toString('utf8')),
      authority,
      disposition,
      issuers,
      coverage: 'not evaluated',
      notProven: NOT_PROVEN,
    },
  });
}

/** Reads the predicate that `formatStatement` writes and nothing else. Says nothing about whether it is true. */
export function readReceipt({ predicateType, predicate }: Payload): Receipt {
  if (predicateType !== PREDICATE_TYPE) throw new ReceiptError('malformed', `not a ${PREDICATE_TYPE}`);
  return parsePredicate(predicate);
}

function parsePredicate(predicate: unknown): Receipt {
  const [v, scope, log, asOf, proof, entries, authority, disposition, issuers, coverage, notProven] = members(
    predicate,
    'predicate',
    [
      'v',
      'scope',
      'log',
      'asOf',
      'proof',
      'entries',
      'authority',
      'disposition',
      'issuers',
      'coverage',
      'notProven',
    ],
  );
  if (v !== 1) throw new ReceiptError('malformed', 'not version 1 of a receipt');
  if (coverage !== 'not evaluated') throw new ReceiptError('malformed', 'coverage is not "not evaluated"');
  requireSentences(notProven, NOT_PROVEN);
  const [left, right] = members(proof, 'proof', ['left', 'right']);
  return {
    scope: parseScope(scope),
    log: readLog(log),
    asOf: readHead(asOf),
    proof: { left: hashes(left, 'left'), right: hashes(right, 'right') },
    entries: list(entries, 'entries', MAX_RECEIPT_ENTRIES).map((entry) => Buffer.from(text(entry, 'entry'))),
    authority: parseAuthority(authority),
    disposition: parseDisposition(disposition),
    issuers: list(issuers, 'issuers', MAX_RECEIPT_ENTRIES).map((issuer) => {
      const [token, issuedBy, index] = members(issuer, 'issuer', ['token', 'issuedBy', 'index']);
      return {
        token: matching(token, 'token', IDENTIFIER),
        issuedBy: matching(issuedBy, 'issuedBy', IDENTIFIER),
        index: count(index, 'index'),
      };
    }),
  };
}

const FINGERPRINT = /^[0-9a-f]{16}$/;

function parseScope(scope: unknown): ReceiptScope {
  if ((scope as { type?: unknown } | null)?.type === 'event') {
    const [, index] = members(scope, 'scope', ['type', 'index']);
    return { type: 'event', index: count(index, 'index') };
  }
  const [type, first, number] = members(scope, 'scope', ['type', 'first', 'count']);
  if (type !== 'range') throw new ReceiptError('malformed', 'a scope of an unknown type');
  return { type: 'range', first: count(first, 'first'), count: count(number, 'count') };
}

function parseAuthority(authority: unknown): Authority {
  const [lowest, by] = members(authority, 'authority', ['level', 'by']);
  return {
    level: level(lowest),
    by: list(by, 'by', MAX_RECEIPT_ENTRIES).map((witness): Witness => {
      if ((witness as { role?: unknown } | null)?.role === 'collector') {
        const [role, own, events] = members(witness, 'by', ['role', 'level', 'events']);
        if (level(own) !== 'observed') throw new ReceiptError('malformed', 'the collector observes');
        return { role: role as 'collector', level: 'observed', events: count(events, 'events') };
      }
      const [role, sink, token, own, events, domain, signed] = members(
        witness,
        'by',
        ['role', 'sink', 'token', 'level', 'events'],
        ['domain', 'signed'],
      );
      if (role !== 'agent' && role !== 'sink' && role !== 'verifier') {
        throw new ReceiptError('malformed', 'an unknown role');
      }
      return {
        role,
        sink: matching(sink, 'sink', SINK),
        token: matching(token, 'token', IDENTIFIER),
        ...(domain === undefined ? {} : { domain: matching(domain, 'domain', NAME) }),
        ...(signed === undefined ? {} : { signed: matching(signed, 'signed', FINGERPRINT) }),
        level: level(own),
        events: count(events, 'events'),
      };
    }),
  };
}

function parseDisposition(disposition: unknown): Disposition {
  const [status, given] = members(disposition, 'disposition', ['status', 'reasons']);
  const reasons = list(given, 'reasons', MAX_REASONS);
  if (status === 'contested') {
    return {
      status,
      reasons: reasons.map((each) => {
        const [reason, index, first] = members(each, 'reason', ['reason', 'index', 'first']);
        if (reason !== 'conflict') throw new ReceiptError('malformed', 'an unknown reason');
        return { reason, index: count(index, 'index'), first: count(first, 'first') };
      }),
    };
  }
  if (status !== 'unverified') throw new ReceiptError('malformed', 'an unknown disposition');
  return {
    status,
    reasons: reasons.map((each) => {
      const [reason] = members(each, 'reason', ['reason']);
      if (reason !== 'no_session_judged') throw new ReceiptError('malformed', 'an unknown reason');
      return { reason };
    }),
  };
}

function level(value: unknown): AuthorityLevel {
  const found = AUTHORITY_LEVELS.find((each) => each === value);
  if (found === undefined) throw new ReceiptError('malformed', 'an unknown authority');
  return found;
}

function hashes(value: unknown, what: string): Buffer[] {
  return list(value, what, MAX_PROOF).map((each) => {
    const hash = base64(each, what);
    if (hash.length !== HASH_SIZE)
      throw new ReceiptError('malformed', `${what} has something that is not a hash`);
    return hash;
  });
}
