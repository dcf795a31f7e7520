import { sign as signBytes, verify as verifyBytes } from 'node:crypto';
import { NoteError } from './error.js';
import {
  formatVkey,
  KEY_TYPE,
  keyId,
  type NoteSigner,
  type NoteVerifier,
  parseVkey,
  privateKeyObject,
  publicKeyObject,
  rawPublicKey,
} from './key.js';

/** Bytes of a cosignature after its key id: the time and the Ed25519 signature. */
const COSIGNATURE_BYTES = 8 + 64;
const MAX_TIME = (1n << 63n) - 1n;

/**
 * A signer of cosignature/v1 lines: "as of `time`, the largest tree I saw for this origin is this one".
 *
 * `time` gives POSIX seconds, at least 1; it is asked once for each signature. One key is for one cosigner: the
 * message does not bind the cosigner's name.
 */
export function cosignatureSigner(
  name: string,
  seed: Uint8Array,
  time: () => bigint,
): NoteSigner & { readonly vkey: string } {
  const object = privateKeyObject(seed);
  const key = rawPublicKey(object);
  return {
    name,
    keyId: keyId(name, key, KEY_TYPE.cosignature),
    vkey: formatVkey(name, key, KEY_TYPE.cosignature),
    sign(text) {
      const seconds = time();
      if (seconds < 1n || seconds > MAX_TIME) {
        throw new NoteError('malformed', 'the time of a cosignature is out of range', {
          time: String(seconds),
        });
      }
      const prefix = Buffer.alloc(8);
      prefix.writeBigUInt64BE(seconds);
      return Buffer.concat([prefix, signBytes(null, message(seconds, text), object)]);
    },
  };
}

/** A verifier of cosignature/v1 lines, from a vkey of type 0x04. */
export function cosignatureVerifier(vkey: string): NoteVerifier {
  const { name, keyId: id, type, key } = parseVkey(vkey);
  if (type !== KEY_TYPE.cosignature)
    throw new NoteError('key', 'not a cosignature/v1 verifier key', { name });
  const object = publicKeyObject(key);
  return {
    name,
    keyId: id,
    key,
    verify(text, signature) {
      if (signature.length !== COSIGNATURE_BYTES) return false;
      const seconds = Buffer.from(signature).readBigUInt64BE(0);
      if (seconds < 1n || seconds > MAX_TIME) return false;
      return verifyBytes(null, message(seconds, text), object, signature.subarray(8));
    },
  };
}

/** The POSIX seconds that a verified cosignature states. */
export function cosignatureTime(signature: Uint8Array): bigint {
  if (signature.length !== COSIGNATURE_BYTES) throw new NoteError('malformed', 'not a cosignature/v1');
  return Buffer.from(signature).readBigUInt64BE(0);
}

function message(seconds: bigint, text: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`cosignature/v1\ntime ${seconds}\n`), text]);
}
