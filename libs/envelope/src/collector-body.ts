import { canonical } from './canonical.js';
import { MAX_ENVELOPE_BYTES } from './envelope.js';
import { EnvelopeError } from './error.js';
import {
  bool,
  callName,
  hash,
  name,
  origin,
  pattern,
  positive,
  sessionName,
  sha256,
  sinkName,
  time,
  ulid,
  words,
  type Rule,
} from './rules.js';
import { parseStrictJson } from './strict-json.js';

/** JSON as far as a policy needs it: no fractions, so that every reader sees the same numbers. */
export type PlainJson =
  null | boolean | number | string | readonly PlainJson[] | { readonly [key: string]: PlainJson };

/** A policy by its digest, or whole. */
export type PolicyReference = string | { readonly [key: string]: PlainJson };

export type TokenRole = 'agent' | 'sink' | 'verifier';
export type SinkKind = 'proxy' | 'hook' | 'otlp' | 'forward' | 'verifier' | 'other';

/** Entry 0 of every log: what the log is and which keys speak for it. */
export interface LogGenesis {
  readonly kind: 'log.genesis';
  readonly v: 1;
  readonly log: string;
  /** Verifier key (C2SP signed note) of checkpoints. */
  readonly vkey: string;
  /** Verifier key of ack heads, named `<origin>/ack`. */
  readonly ackKey: string;
  /** `prj_...` */
  readonly project: string;
  /** Display name, 1-200 characters. */
  readonly name: string;
  /** Fingerprints (sha256 of the DER) of the certificate chain, leaf first, root last. */
  readonly x5c: readonly string[];
  readonly policy: PolicyReference;
}

export interface TokenIssued {
  readonly kind: 'token.issued';
  readonly v: 1;
  readonly token: string;
  readonly role: TokenRole;
  /** Sinks the token may append for; absent: any. */
  readonly sinks?: readonly string[] | undefined;
  readonly expires?: string | undefined;
  readonly domain?: string | undefined;
  readonly by: string;
}

export interface TokenRevoked {
  readonly kind: 'token.revoked';
  readonly v: 1;
  readonly token: string;
  readonly by: string;
}

export interface AuditorIssued {
  readonly kind: 'auditor.issued';
  readonly v: 1;
  readonly auditor: string;
  readonly by: string;
}

export interface AuditorRevoked {
  readonly kind: 'auditor.revoked';
  readonly v: 1;
  readonly auditor: string;
  readonly by: string;
}

export interface SinkDeclared {
  readonly kind: 'sink.declared';
  readonly v: 1;
  readonly sink: string;
  readonly sinkKind?: SinkKind | undefined;
  readonly required?: boolean | undefined;
  readonly domain?: string | undefined;
  /** Ed25519 public key, base64 of 32 bytes; `fingerprint` is its first 16 hex digits of SHA-256. */
  readonly key?: string | undefined;
  readonly fingerprint?: string | undefined;
  /** Seconds between heartbeats the sink promises. */
  readonly heartbeat?: number | undefined;
  readonly by: string;
}

export interface PolicySet {
  readonly kind: 'policy.set';
  readonly v: 1;
  readonly policy: PolicyReference;
  readonly by: string;
}

/** What an auditor found out about a session, or about one call of it. The last one of an auditor counts. */
export interface LabelSet {
  readonly kind: 'label.set';
  readonly v: 1;
  readonly session: string;
  /** As its envelopes have it; absent: the session as a whole. */
  readonly call?: string | undefined;
  readonly says: 'violated' | 'not_violated';
  /** `aud_...` */
  readonly by: string;
}

/** What coverage came to, the worst first (libs/coverage/FORMAT.md section 1). */
export type StatedStatus = 'conflict' | 'gap' | 'unclosed' | 'silent' | 'open' | 'complete';

/** That a coverage statement was made: its digest, and what it is about. Its bytes are kept beside the log. */
export type CoverageStated = {
  readonly kind: 'coverage.stated';
  readonly v: 1;
  /** `sha256:` digest of the statement's bytes. */
  readonly statement: string;
  /** Entries that it looked at: [0, size). Never more than stand before this entry. */
  readonly size: number;
  /** When it was made, by the clock of who made it; RFC 3339, UTC, three fractional digits. */
  readonly time: string;
  readonly status: StatedStatus;
  /** Digest of the policy it was made by. */
  readonly policy: string;
} & (
  | { readonly type: 'session'; readonly session: string }
  | { readonly type: 'epoch'; readonly sink: string; readonly epoch: string }
);

export interface ReceiptIssued {
  readonly kind: 'receipt.issued';
  readonly v: 1;
  /** Digest of the receipt's bytes. */
  readonly receipt: string;
  readonly scope: IssuedScope;
  /** Size of the checkpoint the receipt stands on. */
  readonly asOf: number;
  /** `sha256:` digest of the receipt of the same session or period that this one takes the place of. */
  readonly supersedes?: string | undefined;
}

/** What a receipt is for. */
export type IssuedScope = ReceiptScope | SessionScope | PeriodScope;

/** Entries, by their place in the log. */
export type ReceiptScope =
  | { readonly type: 'event'; readonly index: number }
  | { readonly type: 'range'; readonly first: number; readonly count: number };

export interface SessionScope {
  readonly type: 'session';
  readonly session: string;
}

/** Sessions that began in [from, to); RFC 3339, UTC, three fractional digits. */
export interface PeriodScope {
  readonly type: 'period';
  readonly from: string;
  readonly to: string;
}

/** The body line of an entry the collector wrote itself. */
export type CollectorBody =
  | LogGenesis
  | TokenIssued
  | TokenRevoked
  | AuditorIssued
  | AuditorRevoked
  | SinkDeclared
  | PolicySet
  | LabelSet
  | CoverageStated
  | ReceiptIssued;

const id = (prefix: string): Rule =>
  pattern(
    new RegExp(`^${prefix}_[0-9a-hjkmnp-tv-z]{26}$`),
    `"${prefix}_" and 26 characters of lower-case base 32`,
  );
const vkey = pattern(/^[^\s+]{1,300}\+[0-9a-f]{8}\+[A-Za-z0-9+/]+={0,2}$/, 'a verifier key of a signed note');
const natural: Rule = (value) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? undefined : 'an integer from 0 to 2^53 - 1';
const heartbeat: Rule = (value) =>
  positive(value) === undefined && (value as number) <= 86_400 ? undefined : 'seconds, 1 to 86400';
const displayName: Rule = (value) =>
  typeof value === 'string' && value.length >= 1 && value.length <= 200
    ? undefined
    : 'text of 1 to 200 characters';
const policy: Rule = (value) =>
  sha256(value) === undefined ||
  (typeof value === 'object' && value !== null && !Array.isArray(value) && hasPlainNumbers(value))
    ? undefined
    : 'a policy: its digest, or an object whose numbers are integers up to 2^53 - 1';

/** JSON of our own has one text for each number that is an integer; of others, not every reader has the same. */
function hasPlainNumbers(value: unknown): boolean {
  if (typeof value === 'number') return Number.isSafeInteger(value);
  return typeof value !== 'object' || value === null || Object.values(value).every(hasPlainNumbers);
}

/** Exactly as the collector's line has its time, so that one moment has one text. */
const moment: Rule = (value) =>
  time(value) === undefined && /\.\d{3}Z$/.test(value as string)
    ? undefined
    : 'an RFC 3339 time in UTC with three fractional digits';
const scope: Rule = (value) => {
  const members = value as Record<string, unknown> | null;
  if (typeof members === 'object' && members !== null) {
    const rules = SCOPES[String(members['type'])];
    const keys = Object.keys(members);
    if (
      rules !== undefined &&
      keys.length === Object.keys(rules).length + 1 &&
      Object.entries(rules).every(([key, rule]) => rule(members[key]) === undefined)
    ) {
      const { type, from, to } = members as { type: string; from: string; to: string };
      if (type !== 'period' || from < to) return undefined;
    }
  }
  return 'one of {type: "event", index}, {type: "range", first, count}, {type: "session", session}, {type: "period", from, to}';
};

function listOf(rule: Rule, least: number, most: number, right: string): Rule {
  return (value) =>
    Array.isArray(value) &&
    value.length >= least &&
    value.length <= most &&
    value.every((item) => rule(item) === undefined)
      ? undefined
      : right;
}

const SCOPES: Readonly<Record<string, Readonly<Record<string, Rule>>>> = {
  __proto__: null as never,
  event: { index: natural },
  range: { first: natural, count: positive },
  session: { session: sessionName },
  period: { from: moment, to: moment },
};

interface Shape {
  readonly required: Readonly<Record<string, Rule>>;
  readonly optional?: Readonly<Record<string, Rule>>;
  /** Optional members that have to be there, and those that may not, given what the others say. */
  readonly depends?: (value: Record<string, unknown>) => {
    readonly required: readonly string[];
    readonly refused: readonly string[];
  };
}

const by = id('adm');

const SHAPES: Readonly<Record<CollectorBody['kind'], Shape>> = {
  'log.genesis': {
    required: {
      log: origin,
      vkey,
      ackKey: vkey,
      project: id('prj'),
      name: displayName,
      x5c: listOf(sha256, 0, 8, 'at most 8 digests of certificates'),
      policy,
    },
  },
  'token.issued': {
    required: { token: id('tok'), role: words('agent', 'sink', 'verifier'), by },
    optional: { sinks: listOf(sinkName, 1, 64, "1 to 64 sinks' names"), expires: time, domain: name },
  },
  'token.revoked': { required: { token: id('tok'), by } },
  'auditor.issued': { required: { auditor: id('aud'), by } },
  'auditor.revoked': { required: { auditor: id('aud'), by } },
  'sink.declared': {
    required: { sink: sinkName, by },
    optional: {
      sinkKind: words('proxy', 'hook', 'otlp', 'forward', 'verifier', 'other'),
      required: bool,
      domain: name,
      key: hash,
      fingerprint: pattern(/^[0-9a-f]{16}$/, 'a key fingerprint: 16 lowercase hex digits'),
      heartbeat,
    },
  },
  'policy.set': { required: { policy, by } },
  'label.set': {
    required: { session: sessionName, says: words('violated', 'not_violated'), by: id('aud') },
    optional: { call: callName },
  },
  'coverage.stated': {
    required: {
      type: words('session', 'epoch'),
      statement: sha256,
      size: natural,
      time: moment,
      status: words('conflict', 'gap', 'unclosed', 'silent', 'open', 'complete'),
      policy: sha256,
    },
    optional: { session: sessionName, sink: sinkName, epoch: ulid },
    depends: ({ type }) =>
      type === 'session'
        ? { required: ['session'], refused: ['sink', 'epoch'] }
        : { required: ['sink', 'epoch'], refused: ['session'] },
  },
  'receipt.issued': {
    required: { receipt: sha256, scope, asOf: natural },
    optional: { supersedes: sha256 },
    depends: ({ scope: of }) => {
      const { type } = of as IssuedScope;
      return { required: [], refused: type === 'event' || type === 'range' ? ['supersedes'] : [] };
    },
  },
};

/** The bytes of a statement: JCS, checked, one line without LF. Throws EnvelopeError. */
export function formatCollectorBody(body: CollectorBody): Buffer {
  check(body as unknown as Record<string, unknown>);
  const bytes = Buffer.from(canonical(body), 'utf8');
  assertSize(bytes);
  return bytes;
}

/** Reads a statement; anything but its one canonical form is refused. */
export function parseCollectorBody(bytes: Buffer): CollectorBody {
  assertSize(bytes);
  const value = parseStrictJson(bytes);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new EnvelopeError('not_an_object', '', 'a statement is one JSON object');
  }
  const body = check(value as Record<string, unknown>);
  if (canonical(body) !== bytes.toString('utf8')) {
    throw new EnvelopeError('not_canonical', '', 'a statement is written as RFC 8785 says');
  }
  return body;
}

function check(value: Record<string, unknown>): CollectorBody {
  const kind = value['kind'];
  const shape =
    typeof kind === 'string' && Object.hasOwn(SHAPES, kind)
      ? SHAPES[kind as CollectorBody['kind']]
      : undefined;
  if (shape === undefined)
    throw new EnvelopeError('unknown_kind', 'kind', 'kind is one of the statements of FORMAT.md');
  if (value['v'] !== 1) throw new EnvelopeError('bad_value', 'v', 'v is the number 1');
  for (const key of Object.keys(shape.required)) {
    if (value[key] === undefined)
      throw new EnvelopeError('missing_field', key, `${key} is required for ${String(kind)}`);
  }
  const rules: Readonly<Record<string, Rule>> = { ...shape.required, ...shape.optional };
  for (const [key, member] of Object.entries(value)) {
    if (key === 'kind' || key === 'v' || member === undefined) continue;
    const rule = Object.hasOwn(rules, key) ? rules[key] : undefined;
    if (rule === undefined) {
      throw new EnvelopeError('unknown_field', key, `not a member of a ${String(kind)} statement`);
    }
    const right = rule(member);
    if (right !== undefined) throw new EnvelopeError('bad_value', key, `${key} is ${right}`);
  }
  const { required, refused } = shape.depends?.(value) ?? { required: [], refused: [] };
  for (const key of required) {
    if (value[key] === undefined)
      throw new EnvelopeError('missing_field', key, `${key} is required for this ${String(kind)}`);
  }
  for (const key of refused) {
    if (value[key] !== undefined)
      throw new EnvelopeError('unknown_field', key, `not a member of this ${String(kind)} statement`);
  }
  return value as unknown as CollectorBody;
}

function assertSize(bytes: Buffer): void {
  if (bytes.length > MAX_ENVELOPE_BYTES) {
    throw new EnvelopeError('too_long', '', `a statement is at most ${MAX_ENVELOPE_BYTES} bytes`);
  }
}
