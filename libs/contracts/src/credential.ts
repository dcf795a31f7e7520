import { createHash } from 'node:crypto';
import { type Identifier, identifier, identifierBytes } from './identifier.js';

/** `operator` and `admin` name themselves; `append` and `auditor` also say where they belong. */
export type CredentialKind = 'operator' | 'admin' | 'append' | 'auditor';

interface Named<Kind extends CredentialKind, Prefix extends Identifier> {
  readonly kind: Kind;
  /** Prefix and ULID in lower case, such as `tok_01jd...`. Not a secret. */
  readonly id: `${Prefix}_${string}`;
  /** 24 bytes. The service keeps their SHA-256 only. */
  readonly secret: Buffer;
}

interface Placed {
  readonly project: `prj_${string}`;
  /** 32 bytes: Ed25519 key of the log's genesis entry, which must have signed every ack. */
  readonly publicKey: Buffer;
  /** Origin of the log, 1-255 ASCII characters of `[A-Za-z0-9._/:-]`. */
  readonly origin: string;
}

export type OperatorCredential = Named<'operator', 'opr'>;
export type AdminCredential = Named<'admin', 'adm'>;
export type AppendCredential = Named<'append', 'tok'> & Placed;
export type AuditorCredential = Named<'auditor', 'aud'> & Placed;
/** What a credential's text says, FORMAT.md. */
export type Credential = OperatorCredential | AdminCredential | AppendCredential | AuditorCredential;

/** Sorted by what the reader of the message should do: look at what was pasted, paste it again, or upgrade. */
export type CredentialErrorCode =
  /** Not `belay_<kind>_`, or another kind than was asked for. */
  | 'prefix'
  /** Not canonical base64url, or a field that can't be. */
  | 'encoding'
  /** A typo or a cut paste: the text is not what was issued. */
  | 'checksum'
  /** Made by a later version of the format. */
  | 'version'
  /** Too long, or not as long as its kind is. */
  | 'length';

/** Never carries the text it refuses: that may be a secret. */
export class CredentialError extends Error {
  readonly code: CredentialErrorCode;

  constructor(code: CredentialErrorCode, message: string) {
    super(message);
    this.name = 'CredentialError';
    this.code = code;
  }
}

export const SECRET_BYTES = 24;
const VERSION = 1;
const CHECKSUM_BYTES = 4;
const NAMED_BYTES = 1 + 16 + SECRET_BYTES;
const PLACED_BYTES = NAMED_BYTES + 16 + 32;
const MAX_ORIGIN = 255;
const MAX_TEXT = 'belay_operator_'.length + Math.ceil(((PLACED_BYTES + MAX_ORIGIN + CHECKSUM_BYTES) * 4) / 3);
const ORIGIN = /^[A-Za-z0-9._/:-]{1,255}$/;
const TEXT = /^belay_([a-z]{1,16})_([A-Za-z0-9_-]*)$/;

const PREFIX_OF = { operator: 'opr', admin: 'adm', append: 'tok', auditor: 'aud' } as const satisfies Record<
  CredentialKind,
  Identifier
>;

function isKind(word: string): word is CredentialKind {
  return Object.hasOwn(PREFIX_OF, word);
}

function checksum(prefix: string, payload: Buffer): Buffer {
  return createHash('sha256').update(prefix, 'ascii').update(payload).digest().subarray(0, CHECKSUM_BYTES);
}

/** The text of a credential, shown once to who is to hold it. Throws CredentialError or RangeError for impossible fields. */
export function formatCredential(credential: Credential): string {
  if (credential.secret.length !== SECRET_BYTES) {
    throw new CredentialError('length', `a secret is ${SECRET_BYTES} bytes`);
  }
  const parts: Uint8Array[] = [
    Uint8Array.of(VERSION),
    identifierBytes(PREFIX_OF[credential.kind], credential.id),
    credential.secret,
  ];
  if (credential.kind === 'append' || credential.kind === 'auditor') {
    if (credential.publicKey.length !== 32) throw new CredentialError('length', 'a public key is 32 bytes');
    if (!ORIGIN.test(credential.origin)) {
      throw new CredentialError('encoding', 'an origin is 1-255 characters of A-Z a-z 0-9 . _ / : -');
    }
    parts.push(
      identifierBytes('prj', credential.project),
      credential.publicKey,
      Buffer.from(credential.origin, 'ascii'),
    );
  }
  const payload = Buffer.concat(parts);
  const prefix = `belay_${credential.kind}_`;
  return prefix + Buffer.concat([payload, checksum(prefix, payload)]).toString('base64url');
}

/**
 * Reads a credential's text strictly (one canonical encoding, exact length, checksum) and throws CredentialError.
 * That it parses says nothing of whether a service ever issued it. With `kind`, any other kind is a `prefix` error.
 */
export function parseCredential(text: string): Credential;
export function parseCredential<Kind extends CredentialKind>(
  text: string,
  kind: Kind,
): Extract<Credential, { kind: Kind }>;
export function parseCredential(text: string, kind?: CredentialKind): Credential {
  if (text.length > MAX_TEXT) throw new CredentialError('length', 'too long for a credential');
  const [, word = '', encoded = ''] = TEXT.exec(text) ?? [];
  if (!isKind(word)) {
    throw new CredentialError(
      'prefix',
      'a credential starts with belay_operator_, belay_admin_, belay_append_ or belay_auditor_',
    );
  }
  if (kind !== undefined && word !== kind) {
    throw new CredentialError(
      'prefix',
      `expected an ${kind} credential (belay_${kind}_...), this is an ${word} one`,
    );
  }
  const bytes = Buffer.from(encoded, 'base64url');
  if (bytes.toString('base64url') !== encoded)
    throw new CredentialError('encoding', 'not canonical base64url');
  const payload = bytes.subarray(0, Math.max(0, bytes.length - CHECKSUM_BYTES));
  if (!checksum(`belay_${word}_`, payload).equals(bytes.subarray(payload.length))) {
    throw new CredentialError('checksum', 'the checksum does not match: mistyped or cut short');
  }
  if (payload[0] !== VERSION) throw new CredentialError('version', 'made by a later version of Belay');
  const named = {
    id: payload.subarray(1, 17),
    secret: Buffer.from(payload.subarray(17, NAMED_BYTES)),
  };
  if (word === 'operator' || word === 'admin') {
    if (payload.length !== NAMED_BYTES)
      throw new CredentialError('length', `not as long as an ${word} credential is`);
    return word === 'operator'
      ? { kind: word, id: identifier('opr', named.id), secret: named.secret }
      : { kind: word, id: identifier('adm', named.id), secret: named.secret };
  }
  if (payload.length <= PLACED_BYTES || payload.length > PLACED_BYTES + MAX_ORIGIN) {
    throw new CredentialError('length', `not as long as an ${word} credential is`);
  }
  const origin = payload.toString('latin1', PLACED_BYTES);
  if (!ORIGIN.test(origin))
    throw new CredentialError('encoding', 'the origin holds characters that no origin has');
  const placed = {
    secret: named.secret,
    project: identifier('prj', payload.subarray(NAMED_BYTES, NAMED_BYTES + 16)),
    publicKey: Buffer.from(payload.subarray(NAMED_BYTES + 16, PLACED_BYTES)),
    origin,
  };
  return word === 'append'
    ? { kind: word, id: identifier('tok', named.id), ...placed }
    : { kind: word, id: identifier('aud', named.id), ...placed };
}

/** What the service stores in place of a secret: SHA-256 of its 24 bytes (uniform, so no stretching is needed). */
export function secretHash(secret: Uint8Array): Buffer {
  return createHash('sha256').update(secret).digest();
}

const SECRET_TEXT = /belay_(operator|admin|append|auditor)_[A-Za-z0-9_-]+/g;

/** The text with every credential in it reduced to its kind: the last thing a log line goes through. */
export function redactCredentials(text: string): string {
  return text.replace(SECRET_TEXT, 'belay_$1_[redacted]');
}
