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
  const root = verifySignature(ack, sent);
  const head = { size: ack.size, root: ack.root, signature: ack.signature };
  verifyGrowth(ack, root, sent);
  verifyCover(ack, sent.lines.length);
  for (const run of ack.runs) verifyRun(ack, root, run, sent);
  return { head, runs: ack.runs, refused: ack.refused };
}

function verifySignature(ack: Ack, sent: SentBatch): Buffer {
  try {
    const root = parseBase64(ack.root);
    openNote(`${ackHeadText(sent.origin, BigInt(ack.size), root)}\n${ack.signature}\n`, [
      ackVerifier(sent.vkey),
    ]);
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

function verifyGrowth(ack: Ack, root: Buffer, sent: SentBatch): void {
  const { head } = sent;
  if (head === undefined) return;
  const { size, signature } = ack;
  const evidence = {
    log: sent.origin,
    vkey: sent.vkey,
    held: head,
    shown: { size, root: ack.root, signature },
  };
  if (size < head.size) {
    throw new ClientError(
      'accuse',
      'rolled_back',
      `the log signed size ${head.size} before and ${size} now`,
      { evidence },
    );
  }
  if (size === head.size) {
    if (ack.root === head.root) return;
    throw new ClientError('accuse', 'split_view', `the log key signed two trees of size ${size}`, {
      evidence,
    });
  }
  try {
    verifyConsistency({
      size1: BigInt(head.size),
      size2: BigInt(size),
      root1: parseBase64(head.root),
      root2: root,
      proof: (ack.consistency ?? []).map(parseBase64),
    });
  } catch (error) {
    if (!isProofError(error)) throw error;
    const message = `the log does not show that its tree of size ${size} grew from the one of size ${head.size}`;
    throw new ClientError('accuse', 'not_consistent', message, {
      evidence: { ...evidence, consistency: ack.consistency ?? null },
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

function verifyRun(ack: Ack, root: Buffer, run: AckRun, sent: SentBatch): void {
  const [from, to] = run.lines;
  if (run.disposition === 'appended' && run.token !== sent.token) {
    throw new ClientError(
      'give_up',
      'proof_invalid',
      'the lines were logged under a token that did not send them',
    );
  }
  if (
    (run.conflict !== undefined) !== (run.disposition === 'conflict') ||
    (run.conflict !== undefined && to - from !== 1)
  ) {
    throw new ClientError(
      'give_up',
      'proof_invalid',
      'a run of conflicts is one line and names the first story',
    );
  }
  try {
    const { received, role, token, signed, late } = run;
    const maker = entryMaker({ log: sent.origin, sink: sent.sink, received, role, token, signed, late });
    const leaves = sent.lines
      .slice(from, to)
      .map((line, at) => leafHash(maker.entry(run.index + at, line, run.conflict)));
    verifyRange({
      index: BigInt(run.index),
      size: BigInt(ack.size),
      leaves,
      left: run.range.left.map(parseBase64),
      right: run.range.right.map(parseBase64),
      root,
    });
  } catch (error) {
    if (!isProofError(error)) throw error;
    const where = `lines ${from} to ${to - 1} at index ${run.index}`;
    throw new ClientError(
      'give_up',
      'proof_invalid',
      `the ack does not prove ${where} to be in the signed tree`,
      {
        cause: error,
      },
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
