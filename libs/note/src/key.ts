import {
  createHash,
  createPrivateKey,
  createPublicKey,
  type KeyObject,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto';
import { parseBase64 } from './base64.js';
import { NoteError } from './error.js';

/** Signature types of C2SP signed-note that this package can make and check. */
export const KEY_TYPE = Object.freeze({ ed25519: 0x01, cosignature: 0x04 });

export type KeyType = (typeof KEY_TYPE)[keyof typeof KEY_TYPE];

const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');

/** What is needed to add a signature line to a note. */
export interface NoteSigner {
  readonly name: string;
  /** Key id, eight lower-case hex digits. */
  readonly keyId: string;
  /** Signature over the text of a note, as it stands after the key id in a signature line. */
  sign(text: Uint8Array): Buffer;
}

/** What is needed to check a signature line. */
export interface NoteVerifier {
  readonly name: string;
  /** Key id, eight lower-case hex digits. */
  readonly keyId: string;
  /** The raw public key. */
  readonly key: Buffer;
  /** Whether `signature` (without the key id) is one over the text of a note. */
  verify(text: Uint8Array, signature: Uint8Array): boolean;
}

/** The parts of a verifier key. */
export interface Vkey {
  readonly name: string;
  readonly keyId: string;
  readonly type: KeyType;
  /** Raw Ed25519 public key, 32 bytes. */
  readonly key: Buffer;
}

/** Refuses a key name that could not be told apart from what surrounds it in a note or a vkey. */
export function requireName(name: string): void {
  // oxlint-disable-next-line no-control-regex
  if (name === '' || /[\p{White_Space}\p{Cs}+\u0000-\u001f]/u.test(name)) {
    throw new NoteError('name', 'a key name is empty or has whitespace, "+" or a control character in it', {
      name,
    });
  }
}

/** Key id: the first four bytes of SHA-256(name ‖ LF ‖ type ‖ key), as eight hex digits. */
export function keyId(name: string, key: Uint8Array, type: KeyType = KEY_TYPE.ed25519): string {
  requireName(name);
  requireKey(key);
  const hash = createHash('sha256')
    .update(name)
    .update(Buffer.from([0x0a, type]))
    .update(key);
  return hash.digest('hex').slice(0, 8);
}

/** Writes `<name>+<key id>+<base64 of type ‖ key>`. */
export function formatVkey(name: string, key: Uint8Array, type: KeyType = KEY_TYPE.ed25519): string {
  return `${name}+${keyId(name, key, type)}+${Buffer.concat([Buffer.from([type]), key]).toString('base64')}`;
}

/** Reads a verifier key and derives its id again. Refuses types other than Ed25519 and cosignature/v1. */
export function parseVkey(text: string): Vkey {
  const { name, id, type, key } = splitKey(text, 'verifier key');
  if (keyId(name, key, type) !== id) {
    throw new NoteError('key', 'the id of a verifier key is not that of its key', { name, keyId: id });
  }
  return { name, keyId: id, type, key };
}

/** A verifier for plain Ed25519 signature lines, from a vkey of type 0x01. */
export function ed25519Verifier(vkey: string): NoteVerifier {
  const { name, keyId: id, type, key } = parseVkey(vkey);
  if (type !== KEY_TYPE.ed25519) throw new NoteError('key', 'not an Ed25519 verifier key', { name });
  const object = publicKeyObject(key);
  return {
    name,
    keyId: id,
    key,
    verify: (text, signature) =>
      signature.length === SIGNATURE_BYTES && verifyBytes(null, text, object, signature),
  };
}

/** A signer that adds plain Ed25519 lines under `name`. `seed` are the 32 private bytes. */
export function ed25519Signer(name: string, seed: Uint8Array): NoteSigner & { readonly vkey: string } {
  const object = privateKeyObject(seed);
  const key = rawPublicKey(object);
  return {
    name,
    keyId: keyId(name, key),
    vkey: formatVkey(name, key),
    sign: (text) => signBytes(null, text, object),
  };
}

/** Writes the private form that Go's `sumdb/note` reads: `PRIVATE+KEY+<name>+<key id>+<base64>`. */
export function formatSkey(name: string, seed: Uint8Array): string {
  const id = keyId(name, rawPublicKey(privateKeyObject(seed)));
  return `PRIVATE+KEY+${name}+${id}+${Buffer.concat([Buffer.from([KEY_TYPE.ed25519]), seed]).toString('base64')}`;
}

/** Reads what `formatSkey` writes. */
export function parseSkey(text: string): { readonly name: string; readonly seed: Buffer } {
  const prefix = 'PRIVATE+KEY+';
  if (!text.startsWith(prefix)) throw new NoteError('key', 'not a signer key');
  const { name, id, type, key: seed } = splitKey(text.slice(prefix.length), 'signer key');
  if (type !== KEY_TYPE.ed25519 || keyId(name, rawPublicKey(privateKeyObject(seed))) !== id) {
    throw new NoteError('key', 'the id of a signer key is not that of its key', { name, keyId: id });
  }
  return { name, seed };
}

/** The KeyObject of 32 raw public bytes. */
export function publicKeyObject(key: Uint8Array): KeyObject {
  requireKey(key);
  return createPublicKey({ key: Buffer.concat([SPKI_PREFIX, key]), format: 'der', type: 'spki' });
}

/** The KeyObject of a 32-byte seed. */
export function privateKeyObject(seed: Uint8Array): KeyObject {
  requireKey(seed);
  return createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, seed]), format: 'der', type: 'pkcs8' });
}

/** The 32 raw public bytes of an Ed25519 key, public or private. */
export function rawPublicKey(key: KeyObject): Buffer {
  if (key.asymmetricKeyType !== 'ed25519') throw new NoteError('key', 'not an Ed25519 key');
  const spki = (key.type === 'private' ? createPublicKey(key) : key).export({ format: 'der', type: 'spki' });
  return Buffer.from(spki.subarray(SPKI_PREFIX.length));
}

function requireKey(key: Uint8Array): void {
  if (!(key instanceof Uint8Array) || key.length !== KEY_BYTES) {
    throw new NoteError('key', `an Ed25519 key has ${KEY_BYTES} bytes`);
  }
}

function splitKey(text: string, what: string): { name: string; id: string; type: KeyType; key: Buffer } {
  // The base64 may itself contain "+": only the first two divide.
  const match = text.length <= 1_024 ? /^([^+]+)\+([0-9a-f]{8})\+(.+)$/su.exec(text) : null;
  if (match === null) throw new NoteError('key', `not a ${what}`);
  const [, name, id, encoded] = match as unknown as [string, string, string, string];
  requireName(name);
  let bytes: Buffer;
  try {
    bytes = parseBase64(encoded);
  } catch {
    throw new NoteError('key', `a ${what} is not canonical base64`, { name });
  }
  const type = bytes[0];
  if (type !== KEY_TYPE.ed25519 && type !== KEY_TYPE.cosignature) {
    throw new NoteError('key', `a ${what} of an unsupported type`, { name, type: String(type) });
  }
  requireKey(bytes.subarray(1));
  return { name, id, type, key: bytes.subarray(1) };
}
