import { parseBase64 } from './base64.js';
import { NoteError } from './error.js';
import { type NoteSigner, type NoteVerifier, requireName } from './key.js';

/** Largest note that is read, in bytes. */
export const MAX_NOTE = 1_000_000;

/** Most signature lines that are read; C2SP asks for at least 16, Go stops at 100 too. */
export const MAX_SIGNATURES = 100;

const KEY_ID_BYTES = 4;
const DASH = '— ';

/** One signature line. */
export interface NoteSignature {
  readonly name: string;
  /** Eight lower-case hex digits. */
  readonly keyId: string;
  /** What follows the key id: 64 bytes for Ed25519, 72 for a cosignature. */
  readonly signature: Buffer;
  /** The line verbatim, without its LF. */
  readonly line: string;
}

/** A note split into its parts, nothing verified. */
export interface UnverifiedNote {
  /** The text that is signed, with its final LF. */
  readonly text: string;
  readonly signatures: readonly NoteSignature[];
}

/** A note of which at least one signature verified and none by a known key failed. */
export interface OpenedNote {
  readonly text: string;
  /** Lines that verified, one for each verifier at most, in the order of the note. */
  readonly signatures: readonly NoteSignature[];
  /** Lines by keys that no verifier was given for. They say nothing. */
  readonly unknown: readonly NoteSignature[];
}

/** The signature line that `signer` adds to `text`, without LF. `text` ends in LF. */
export function signatureLine(text: string, signer: NoteSigner): string {
  requireText(text);
  requireName(signer.name);
  const payload = Buffer.concat([Buffer.from(signer.keyId, 'hex'), signer.sign(Buffer.from(text))]);
  return `${DASH}${signer.name} ${payload.toString('base64')}`;
}

/** Signs `text`, which ends in LF, with each signer in turn. */
export function signNote(text: string, signers: readonly NoteSigner[]): string {
  if (signers.length === 0) throw new NoteError('unsigned', 'a note needs a signer');
  return `${text}\n${signers.map((signer) => `${signatureLine(text, signer)}\n`).join('')}`;
}

/** Splits a note. Checks its form and nothing else: do not act on the text of what this returns. */
export function parseNote(note: Uint8Array | string): UnverifiedNote {
  const whole = decode(note);
  const split = whole.lastIndexOf('\n\n');
  if (split < 0) throw new NoteError('malformed', 'no empty line before the signatures');
  const text = whole.slice(0, split + 1);
  const block = whole.slice(split + 2);
  if (!block.endsWith('\n')) throw new NoteError('malformed', 'the last signature line has no end');
  const lines = block.slice(0, -1).split('\n');
  if (lines.length > MAX_SIGNATURES) throw new NoteError('too-large', 'too many signature lines');
  return { text, signatures: lines.map(parseSignature) };
}

/**
 * Opens a note: returns its text once at least one of `verifiers` has signed it. Lines by other keys are set
 * aside; a line by a known key that does not verify refuses the whole note.
 */
export function openNote(note: Uint8Array | string, verifiers: readonly NoteVerifier[]): OpenedNote {
  const known = new Map<string, NoteVerifier>();
  for (const verifier of verifiers) {
    const id = `${verifier.name}+${verifier.keyId}`;
    if (known.has(id)) throw new NoteError('key', 'two verifiers have one name and key id', { id });
    known.set(id, verifier);
  }
  const { text, signatures } = parseNote(note);
  const message = Buffer.from(text);
  const verified = new Map<string, NoteSignature>();
  const unknown: NoteSignature[] = [];
  for (const signature of signatures) {
    const id = `${signature.name}+${signature.keyId}`;
    const verifier = known.get(id);
    if (verifier === undefined) {
      unknown.push(signature);
    } else if (!verifier.verify(message, signature.signature)) {
      throw new NoteError('bad-signature', 'a signature by a known key does not verify', {
        name: signature.name,
        keyId: signature.keyId,
      });
    } else if (!verified.has(id)) {
      verified.set(id, signature);
    }
  }
  if (verified.size === 0) throw new NoteError('unsigned', 'no signature by a known key');
  return { text, signatures: [...verified.values()], unknown };
}

function parseSignature(line: string): NoteSignature {
  const parts = line.startsWith(DASH) ? line.slice(DASH.length).split(' ') : [];
  const [name, encoded] = parts;
  if (parts.length !== 2 || !name || !encoded)
    throw new NoteError('malformed', 'not a signature line', { line });
  requireName(name);
  const payload = parseBase64(encoded);
  if (payload.length <= KEY_ID_BYTES) throw new NoteError('malformed', 'a signature without bytes', { line });
  return {
    name,
    keyId: payload.toString('hex', 0, KEY_ID_BYTES),
    signature: payload.subarray(KEY_ID_BYTES),
    line,
  };
}

function decode(note: Uint8Array | string): string {
  if (note.length > MAX_NOTE) throw new NoteError('too-large', 'a note of more than 1,000,000 bytes');
  let text: string;
  if (typeof note === 'string') {
    text = note;
  } else {
    try {
      text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(note);
    } catch {
      throw new NoteError('malformed', 'a note that is not UTF-8');
    }
  }
  requireCharacters(text);
  return text;
}

function requireText(text: string): void {
  requireCharacters(text);
  if (!text.endsWith('\n')) throw new NoteError('malformed', 'the text of a note ends in LF');
}

function requireCharacters(text: string): void {
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u0009\u000b-\u001f\p{Cs}]/u.test(text)) {
    throw new NoteError('malformed', 'a note has a control character in it');
  }
}
