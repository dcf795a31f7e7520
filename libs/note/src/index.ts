/**
 * Signed notes, checkpoints and cosignatures of C2SP, and the signed head of an ack. FORMAT.md beside this
 * package has the bytes. Pure: no I/O, no clock, no randomness.
 */
export { parseBase64 } from './base64.js';
export {
  ackHeadText,
  ackName,
  ackVerifier,
  type Checkpoint,
  formatCheckpoint,
  openCheckpoint,
  originUri,
  parseCheckpoint,
} from './checkpoint.js';
export { cosignatureSigner, cosignatureTime, cosignatureVerifier } from './cosignature.js';
export { NoteError, type NoteErrorCode } from './error.js';
export {
  ed25519Signer,
  ed25519Verifier,
  formatSkey,
  formatVkey,
  KEY_TYPE,
  keyId,
  type KeyType,
  type NoteSigner,
  type NoteVerifier,
  parseSkey,
  parseVkey,
  privateKeyObject,
  publicKeyObject,
  rawPublicKey,
  type Vkey,
} from './key.js';
export {
  MAX_NOTE,
  MAX_SIGNATURES,
  type NoteSignature,
  openNote,
  type OpenedNote,
  parseNote,
  signatureLine,
  signNote,
  type UnverifiedNote,
} from './note.js';
