import type { Ack, AckRun } from '@belay/contracts';
import { entryMaker, EnvelopeError } from '@belay/envelope';
import { leafHash, MerkleError, verifyConsistency, verifyRange } from '@belay/merkle';
import { ackHeadText, ackVerifier, NoteError, openNote, parseBase64 } from '@belay/note';
import { ClientError } from './error.js';

/** A head of a log whose signature was verified. `root` is base64, `signature` the line as received. */
export interface SignedHead {
  readonly size: number;
  readonly root: string;
  readonly signature: string;
}

/** What a request was, as far as its ack has to agree with it. */
export interface SentBatch {
  readonly origin: string;
  /** C2SP verifier key of the log, from the token: the ack's key is the same under the name `<origin>/ack`. */
  readonly vkey: string;
  readonly sink: string;
  /** Identifier of the token that was used. */
  readonly token: string;
  /** The request's lines in order, each without LF. */
  readonly lines: readonly Buffer[];
  /** Head that was named in `Belay-Head`; undefined when none was held yet. */
  readonly head: SignedHead | undefined;
}

/** A refused line, as the collector says why. */
export type Refusal = Ack['refused'][number];

/** An ack that holds: every line is accounted for, and every line that is not refused is in the signed tree. */
export interface VerifiedAck {
  readonly head: SignedHead;
  readonly runs: readonly AckRun[];
  readonly refused: readonly Refusal[];
}

/**
 * Checks an ack against what was sent: the shape, the head's signature under the pinned key, that runs and refusals
 * cover the request's lines exactly once, that each run's leaves, rebuilt from our own bytes, lead to the signed root,
 * and that the signed tree grew from the head we held. Throws ClientError; returning means all of it holds.
 */
export function verifyAck(answer: unknown, sent: SentBatch): VerifiedAck {
  const ack = readAck(answer);
  if (ack.log !== sent.origin) {
    throw new ClientError(
      'give_up',
      'wrong_log',
      `the ack is of log ${ack.log}, the token of ${sent.origin}`,
    );
  }
  const head = { size: ack.size, root: ack.root, signature: ack.signature };
  const root = verifyHead(head, sent);
  if (sent.head !== undefined) {
    const { origin, vkey, head: before } = sent;
    verifyGrowth({ origin, vkey, before, after: head, consistency: ack.consistency });
  }
  verifyCover(ack, sent.lines.length);
  for (const run of ack.runs) {
    if (run.disposition === 'appended' && run.token !== sent.token) {
      throw new ClientError(
        'give_up',
        'proof_invalid',
        'the lines were logged under a token that did not send them',
      );
    }
    const lines = sent.lines.slice(...run.lines);
    verifyLeaves({ origin: sent.origin, size: ack.size, root }, run, leavesOf(sent, run, lines));
  }
  return { head, runs: ack.runs, refused: ack.refused };
}

/** Root of a head that the log's ack key signed. Throws ClientError `bad_signature`. */
export function verifyHead(head: SignedHead, { origin, vkey }: Pick<SentBatch, 'origin' | 'vkey'>): Buffer {
  try {
    const root = parseBase64(head.root);
    openNote(`${ackHeadText(origin, BigInt(head.size), root)}\n${head.signature}\n`, [ackVerifier(vkey)]);
    return root;
  } catch (error) {
    if (!(error instanceof NoteError)) throw error;
    throw new ClientError(
      'give_up',
      'bad_signature',
      'the head is not signed by the key that the token names: this is not the collector that issued it',
      { cause: error },
    );
  }
}

/** Two heads of a log, each verified, and the proof that the second's tree begins with the first's. */
export interface Growth {
  readonly origin: string;
  readonly vkey: string;
  readonly before: SignedHead;
  readonly after: SignedHead;
  readonly consistency: readonly string[] | undefined;
}

/** Throws ClientError of action `accuse`, with both heads as evidence, unless the log only grew. */
export function verifyGrowth({ origin, vkey, before, after, consistency }: Growth): void {
  const evidence = { log: origin, vkey, held: before, shown: after };
  if (after.size < before.size) {
    throw new ClientError(
      'accuse',
      'rolled_back',
      `the log signed size ${before.size} before and ${after.size} now`,
      { evidence },
    );
  }
  if (after.size === before.size) {
    if (after.root === before.root) return;
    throw new ClientError('accuse', 'split_view', `the log key signed two trees of size ${after.size}`, {
      evidence,
    });
  }
  try {
    verifyConsistency({
      size1: BigInt(before.size),
      size2: BigInt(after.size),
      root1: parseBase64(before.root),
      root2: parseBase64(after.root),
      proof: (consistency ?? []).map(parseBase64),
    });
  } catch (error) {
    if (!isProofError(error)) throw error;
    const message = `the log does not show that its tree of size ${after.size} grew from the one of size ${before.size}`;
    throw new ClientError('accuse', 'not_consistent', message, {
      evidence: { ...evidence, consistency: consistency ?? null },
      cause: error,
    });
  }
}

function verifyCover(ack: Ack, lines: number): void {
  const parts = [
    ...ack.runs.map(({ lines: [from, to] }) => [from, to] as const),
    ...ack.refused.map(({ line }) => [line, line + 1] as const),
  ].sort(([a], [b]) => a - b);
  let next = 0;
  for (const [from, to] of parts) {
    if (from !== next || to <= from) throw incomplete(lines);
    next = to;
  }
  if (next !== lines) throw incomplete(lines);
}

function incomplete(lines: number): ClientError {
  return new ClientError(
    'give_up',
    'ack_incomplete',
    `the ack does not account for each of the ${lines} lines once`,
  );
}

/** What the collector says of consecutive lines that it logged together, and where their leaves lie in its tree. */
export type LoggedRun = Pick<
  AckRun,
  'disposition' | 'index' | 'received' | 'token' | 'role' | 'signed' | 'conflict' | 'late' | 'range'
>;

/** Leaves of a run's lines, rebuilt from our own bytes. */
export function leavesOf(
  { origin, sink }: Pick<SentBatch, 'origin' | 'sink'>,
  run: LoggedRun,
  lines: readonly Buffer[],
): Buffer[] {
  const { received, role, token, signed, late } = run;
  try {
    const maker = entryMaker({ log: origin, sink, received, role, token, signed, late });
    return lines.map((line, at) => leafHash(maker.entry(run.index + at, line, run.conflict)));
  } catch (error) {
    if (!isProofError(error)) throw error;
    throw new ClientError('give_up', 'proof_invalid', 'the run has a collector line that is none', {
      cause: error,
    });
  }
}

/** Throws ClientError `proof_invalid` unless these leaves stand in the tree where the run says. */
export function verifyLeaves(
  head: { readonly origin: string; readonly size: number; readonly root: Buffer },
  run: LoggedRun,
  leaves: readonly Buffer[],
): void {
  const { index, conflict, disposition, range } = run;
  if (
    (conflict !== undefined) !== (disposition === 'conflict') ||
    (conflict !== undefined && leaves.length !== 1)
  ) {
    throw new ClientError(
      'give_up',
      'proof_invalid',
      'a run of conflicts is one line and names the first story',
    );
  }
  try {
    verifyRange({
      index: BigInt(index),
      size: BigInt(head.size),
      leaves: [...leaves],
      left: range.left.map(parseBase64),
      right: range.right.map(parseBase64),
      root: head.root,
    });
  } catch (error) {
    if (!isProofError(error)) throw error;
    const where = `${leaves.length} lines at index ${index}`;
    throw new ClientError(
      'give_up',
      'proof_invalid',
      `the ack does not prove ${where} to be in the signed tree`,
      { cause: error },
    );
  }
}

function isProofError(error: unknown): boolean {
  return (
    error instanceof MerkleError ||
    error instanceof NoteError ||
    error instanceof EnvelopeError ||
    error instanceof RangeError
  );
}

/** Shape only. Its own reader, so that a sidecar loads no schema library. */
function readAck(value: unknown): Ack {
  const ack = object(value);
  if (
    typeof ack['log'] === 'string' &&
    count(ack['size']) &&
    typeof ack['root'] === 'string' &&
    typeof ack['signature'] === 'string' &&
    Array.isArray(ack['runs']) &&
    ack['runs'].every(isRun) &&
    Array.isArray(ack['refused']) &&
    ack['refused'].every(isRefusal) &&
    (ack['consistency'] === undefined || strings(ack['consistency']))
  ) {
    return value as Ack;
  }
  throw new ClientError('retry', 'answer_malformed', 'the answer is not an ack');
}

function isRun(value: unknown): boolean {
  const run = object(value);
  const lines = run['lines'];
  const range = object(run['range']);
  return (
    ['appended', 'duplicate', 'conflict'].includes(run['disposition'] as string) &&
    Array.isArray(lines) &&
    lines.length === 2 &&
    lines.every(count) &&
    count(run['index']) &&
    typeof run['received'] === 'string' &&
    typeof run['token'] === 'string' &&
    typeof run['role'] === 'string' &&
    (run['signed'] === undefined || typeof run['signed'] === 'string') &&
    (run['conflict'] === undefined || count(run['conflict'])) &&
    (run['late'] === undefined || run['late'] === true) &&
    strings(range['left']) &&
    strings(range['right'])
  );
}

function isRefusal(value: unknown): boolean {
  const { line, code, message } = object(value);
  return count(line) && typeof code === 'string' && typeof message === 'string';
}

function object(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function count(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function strings(value: unknown): value is string[] {
  return Array.isArray(value) && value.length <= 128 && value.every((item) => typeof item === 'string');
}
