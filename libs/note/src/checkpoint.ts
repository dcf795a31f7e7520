import { type Hash, HASH_SIZE, MAX_SIZE } from '@belay/merkle';
import { parseBase64 } from './base64.js';
import { NoteError } from './error.js';
import { ed25519Verifier, formatVkey, KEY_TYPE, type NoteVerifier, parseVkey } from './key.js';
import { type NoteSignature, openNote } from './note.js';

/** The head of a log, as C2SP tlog-checkpoint writes it. */
export interface Checkpoint {
  /** Names the log; at most one log has it. */
  readonly origin: string;
  readonly size: bigint;
  readonly root: Hash;
  /** Extension lines; none in what Belay writes. */
  readonly extensions: readonly string[];
}

/** The text of a checkpoint, ready to be signed. */
export function formatCheckpoint(
  head: Omit<Checkpoint, 'extensions' | 'root'> & { root: Uint8Array },
): string {
  const { origin, size, root } = head;
  if (origin === '' || origin.includes('\n')) throw new NoteError('checkpoint', 'an origin is one line');
  if (size < 0n || size > MAX_SIZE) throw new NoteError('checkpoint', 'a size out of range');
  if (root.length !== HASH_SIZE) throw new NoteError('checkpoint', 'a root that is not a hash');
  return `${origin}\n${size}\n${Buffer.from(root).toString('base64')}\n`;
}

/** Reads the text of a checkpoint; only what could have been written the same way. */
export function parseCheckpoint(text: string): Checkpoint {
  const lines = text.split('\n');
  // The text ends in LF, so the last of the split is empty.
  const [origin, size, root, ...rest] = lines;
  if (!origin || size === undefined || root === undefined || rest.pop() !== '') {
    throw new NoteError('checkpoint', 'not a checkpoint');
  }
  if (!/^(0|[1-9][0-9]{0,19})$/.test(size) || BigInt(size) > MAX_SIZE) {
    throw new NoteError('checkpoint', 'the size of a checkpoint is not a canonical decimal', { size });
  }
  let hash: Buffer;
  try {
    hash = parseBase64(root);
  } catch {
    throw new NoteError('checkpoint', 'the root of a checkpoint is not canonical base64', { root });
  }
  if (hash.length !== HASH_SIZE)
    throw new NoteError('checkpoint', 'the root of a checkpoint is not a hash', { root });
  if (rest.includes('')) throw new NoteError('checkpoint', 'an empty extension line');
  return { origin, size: BigInt(size), root: hash, extensions: rest };
}

/**
 * Opens a log's checkpoint: signed by `log`, whose name is the origin. Further verifiers (witnesses) may be
 * given; how many of them are needed is the caller's policy.
 */
export function openCheckpoint(
  note: Uint8Array | string,
  log: NoteVerifier,
  others: readonly NoteVerifier[] = [],
): Checkpoint & { readonly signatures: readonly NoteSignature[] } {
  const opened = openNote(note, [log, ...others]);
  if (!opened.signatures.some((s) => s.name === log.name && s.keyId === log.keyId)) {
    throw new NoteError('unsigned', 'a checkpoint without the signature of its log', { name: log.name });
  }
  const checkpoint = parseCheckpoint(opened.text);
  if (checkpoint.origin !== log.name) {
    throw new NoteError('checkpoint', 'a checkpoint of another log', {
      origin: checkpoint.origin,
      expected: log.name,
    });
  }
  return { ...checkpoint, signatures: opened.signatures };
}

/** Key name under which a log signs the heads of acks: never one that a checkpoint is signed under. */
export function ackName(origin: string): string {
  return `${origin}/ack`;
}

/** Text of the head of an ack. Its first line keeps it from being read as a checkpoint of the log. */
export function ackHeadText(origin: string, size: bigint, root: Uint8Array): string {
  return formatCheckpoint({ origin: ackName(origin), size, root });
}

/** The verifier of a log's ack heads, from the vkey of its checkpoints: the same key under the other name. */
export function ackVerifier(vkey: string): NoteVerifier {
  const { name, type, key } = parseVkey(vkey);
  if (type !== KEY_TYPE.ed25519) throw new NoteError('key', 'not an Ed25519 verifier key', { name });
  return ed25519Verifier(formatVkey(ackName(name), key));
}

/**
 * The URI that names a log in the certificate of its key. A subject alternative name has to be an absolute URI
 * (RFC 5280, section 4.2.1.6) and an origin has no scheme, hence this one.
 */
export function originUri(origin: string): string {
  return `tlog://${origin}`;
}
