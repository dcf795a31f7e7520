import { type Entry, MAX_ENTRY_BYTES, parseEntry } from '@belay/envelope';
import { type Hash, HASH_SIZE, leafHash, MAX_PROOF, verifyInclusion } from '@belay/merkle';
import {
  type Checkpoint,
  ed25519Verifier,
  openCheckpoint,
  parseBase64,
  parseCheckpoint,
  parseNote,
} from '@belay/note';
import { ReceiptError } from './error.js';
import { type Pins, parsePins } from './pins.js';
import { Checks, type Report } from './report.js';

const HEADER = 'c2sp.org/tlog-proof@v1';
/** 64 hashes, the largest entry in base64, a checkpoint with many cosignatures. */
const MAX_TLOG_PROOF = 64 * 1024;

/** A C2SP tlog-proof whose `extra` is the entry itself. */
export interface TlogProof {
  /** Bytes of the entry. The format does not authenticate them; hashing them to the leaf that is proven does. */
  readonly extra?: Buffer;
  readonly index: bigint;
  /** The leaf's sibling first, the root's child last. */
  readonly proof: readonly Hash[];
  /** The signed note, verbatim. */
  readonly checkpoint: string;
}

export const TLOG_PROOF_CHECKS = ['format', 'trust', 'checkpoint', 'entry', 'inclusion'] as const;

export type TlogProofCheck = (typeof TLOG_PROOF_CHECKS)[number];

/** The text of a tlog-proof. */
export function formatTlogProof(given: TlogProof): string {
  const { extra, index, proof, checkpoint } = given;
  const lines = [HEADER];
  if (extra !== undefined) lines.push(`extra ${extra.toString('base64')}`);
  lines.push(`index ${index}`, ...proof.map((hash) => hash.toString('base64')));
  return `${lines.join('\n')}\n\n${checkpoint}`;
}

/** Reads what `formatTlogProof` writes and nothing else. Verifies nothing. */
export function parseTlogProof(bytes: Uint8Array): TlogProof {
  const malformed = (what: string): ReceiptError =>
    new ReceiptError('malformed', `not a tlog-proof: ${what}`);
  if (bytes.length > MAX_TLOG_PROOF) throw malformed('too large');
  const text = Buffer.from(bytes).toString('utf8');
  const end = text.indexOf('\n\n');
  if (end < 0) throw malformed('no checkpoint');
  const [header, ...lines] = text.slice(0, end).split('\n');
  if (header !== HEADER) throw malformed('another first line');
  const decode = (line: string, most: number): Buffer => {
    let decoded: Buffer;
    try {
      decoded = parseBase64(line);
    } catch {
      throw malformed('a line that is not canonical base64');
    }
    if (decoded.length > most) throw malformed('a line that is too long');
    return decoded;
  };
  const extra = lines[0]?.startsWith('extra ')
    ? decode((lines.shift() as string).slice(6), MAX_ENTRY_BYTES)
    : undefined;
  const index = /^index (0|[1-9][0-9]{0,19})$/.exec(lines.shift() ?? '')?.[1];
  if (index === undefined) throw malformed('no index');
  if (lines.length > MAX_PROOF) throw malformed('too many hashes');
  const proof = lines.map((line) => decode(line, HASH_SIZE));
  if (proof.some((hash) => hash.length !== HASH_SIZE)) throw malformed('a hash of another length');
  const parsed: TlogProof = {
    ...(extra === undefined ? {} : { extra }),
    index: BigInt(index),
    proof,
    checkpoint: text.slice(end + 2),
  };
  if (!Buffer.from(formatTlogProof(parsed)).equals(bytes)) throw malformed('written another way');
  return parsed;
}

/**
 * Verifies a tlog-proof of an entry offline. It names no key, so without a pinned verifier key nothing can be VALID;
 * `pins.rootPem` has nothing to hold on to and is not looked at.
 */
export function verifyTlogProof(bytes: Uint8Array, pins: Pins = {}): Report<TlogProofCheck> {
  const { key } = parsePins({ key: pins.key });
  const checks = new Checks<TlogProofCheck>(TLOG_PROOF_CHECKS);
  let parsed: TlogProof | undefined;
  let unverified: Checkpoint | undefined;
  checks.run('format', () => {
    parsed = parseTlogProof(bytes);
    unverified = parseCheckpoint(parseNote(parsed.checkpoint).text);
    return `${HEADER}, ${parsed.proof.length} hashes`;
  });
  if (parsed === undefined || unverified === undefined) return checks.report();
  const { extra, index, proof } = parsed;
  const { origin, size, root } = unverified;
  checks.run('trust', () => {
    if (pins.origin !== undefined && pins.origin !== origin) {
      throw new ReceiptError('invalid', `the proof is from ${origin}, not from the log expected`);
    }
    if (key === undefined) return { status: 'undecided', detail: `no key is pinned for ${origin}` };
    if (key.name !== origin)
      throw new ReceiptError('invalid', `the proof is from ${origin}, not from ${key.name}`);
    return `the key pinned is that of ${origin}`;
  });
  if (key !== undefined) {
    const { checkpoint } = parsed;
    checks.run('checkpoint', () => {
      openCheckpoint(checkpoint, ed25519Verifier(pins.key as string));
      return `signed head of ${size} entries`;
    });
  }
  if (extra === undefined) {
    checks.run('entry', () => ({ status: 'undecided', detail: 'the proof comes without its entry' }));
    return checks.report();
  }
  checks.run('entry', () => {
    const { line }: Entry = parseEntry(extra);
    if (BigInt(line.index) !== index) throw new ReceiptError('invalid', `the entry says it is ${line.index}`);
    if (line.log !== origin) throw new ReceiptError('invalid', 'the entry is of another log');
    return `entry ${index} of ${origin}`;
  });
  checks.run('inclusion', () => {
    verifyInclusion({ index, size, leaf: leafHash(extra), proof, root });
    return "the entry and the proof give the checkpoint's root";
  });
  return checks.report();
}
