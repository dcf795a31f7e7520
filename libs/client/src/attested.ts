import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { leavesOf, type SignedHead, verifyHead, verifyLeaves } from './ack.js';
import { ClientError } from './error.js';
import { ACKS, type EpochRecord } from './epoch-record.js';
import { spoolLines } from './kept-lines.js';
import { readProofs, type StoredProof, type StoredRun } from './proofs.js';
import type { Settlement } from './spool.js';

/** A line of an epoch, as far as a trace can be compared with it. */
export interface KnownLine {
  readonly seq: number;
  readonly kind: string;
  /** Commitment to its content; undefined for lines that have none, such as `heartbeat`. */
  readonly digest: string | undefined;
  readonly session: string | undefined;
  readonly call: string | undefined;
  /** `dir` of an `x.frame`, `phase` of a `state`. */
  readonly dir: string | undefined;
  readonly phase: string | undefined;
  /** Of a `gap`: the numbers that are missing, and why. */
  readonly gap: { readonly first: number; readonly last: number; readonly reason: string } | undefined;
}

/** Where the log has a line, by a proof that was checked again. */
export interface Place {
  readonly index: number;
  /** RFC 6962 leaf hash of the entry. */
  readonly leaf: Buffer;
  readonly received: string;
  /** The log had another line of this number before. */
  readonly conflict: boolean;
}

/** What of the kept evidence does not hold. */
export interface Flaw {
  readonly code: 'bad_signature' | 'proof_invalid' | 'lines_missing' | 'lines_damaged' | 'unreadable';
  readonly detail: string;
  /** Numbers of the lines that it was to prove. */
  readonly first?: number;
  readonly count?: number;
}

/** All that this machine keeps of an epoch, checked again without asking anybody. */
export interface Evidence {
  /** By number, in order. */
  readonly lines: ReadonlyMap<number, KnownLine>;
  /** Lines that are proved to stand in a tree whose head the log's key signed. */
  readonly attested: ReadonlyMap<number, Place>;
  /** Lines that the collector did not take, and its code. */
  readonly refused: ReadonlyMap<number, string>;
  /** Lines that were acknowledged by the spool's own note, of which no proof is kept. */
  readonly noted: ReadonlySet<number>;
  /** Numbers that by any word kept here were given, and that neither a line nor a gap line is kept of. */
  readonly unaccounted: readonly number[];
  /** The largest head among the proofs that hold. */
  readonly head: SignedHead | undefined;
  readonly flaws: readonly Flaw[];
}

/** A proof's run while its lines are being read. */
interface OpenRun {
  readonly run: StoredRun;
  readonly proof: StoredProof;
  readonly root: Buffer;
  readonly seqs: number[];
  readonly leaves: Buffer[];
}

/**
 * Checks an epoch's kept acks again: each head's signature under `vkey`, and that the leaves of the lines, rebuilt from
 * the bytes on this machine, stand in that head's tree. Nothing the folder says of itself is taken: what it has no
 * proof of is not `attested`. A flaw of one proof spoils only its own lines.
 */
export async function readEvidence(dir: string, record: EpochRecord, vkey: string): Promise<Evidence> {
  const { log: origin, sink } = record;
  const flaws: Flaw[] = [];
  const { proofs, unreadable } = readProofs(dir);
  if (unreadable > 0) flaws.push({ code: 'unreadable', detail: `${unreadable} kept proofs can't be read` });
  const waiting: OpenRun[] = [];
  for (const proof of proofs) {
    try {
      const root = verifyHead(proof.head, { origin, vkey });
      for (const run of proof.runs) waiting.push({ run, proof, root, seqs: [], leaves: [] });
    } catch (error) {
      const { message } = error as Error;
      for (const { first, count } of proof.runs)
        flaws.push({ code: 'bad_signature', detail: message, first, count });
    }
  }
  waiting.sort((a, b) => b.run.first - a.run.first);
  const lines = new Map<number, KnownLine>();
  const attested = new Map<number, Place>();
  let head: SignedHead | undefined;
  let open: OpenRun[] = [];
  const settle = (each: OpenRun): void => {
    const { run, proof, root, seqs, leaves } = each;
    const { first, count } = run;
    if (leaves.length !== count) {
      flaws.push({ code: 'lines_missing', detail: 'lines that it proves are not kept', first, count });
      return;
    }
    try {
      verifyLeaves({ origin, size: proof.head.size, root }, run, leaves);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      flaws.push({ code: 'proof_invalid', detail: error.message, first, count });
      return;
    }
    const conflict = run.disposition === 'conflict';
    seqs.forEach((seq, at) => {
      if (!attested.has(seq) || conflict)
        attested.set(seq, {
          index: run.index + at,
          leaf: leaves[at] as Buffer,
          received: run.received,
          conflict,
        });
    });
    if (head === undefined || proof.head.size > head.size) head = proof.head;
  };
  try {
    for await (const { seq, line } of spoolLines(dir)) {
      lines.set(seq, knownLine(seq, line));
      while ((waiting.at(-1)?.run.first ?? Number.POSITIVE_INFINITY) <= seq)
        open.push(waiting.pop() as OpenRun);
      for (const each of open) {
        each.seqs.push(seq);
        each.leaves.push(...leavesAt(each, { origin, sink }, line));
      }
      for (const each of open.filter(({ run, leaves }) => leaves.length >= run.count)) settle(each);
      open = open.filter(({ run, leaves }) => leaves.length < run.count);
    }
  } catch (error) {
    flaws.push({
      code: 'lines_damaged',
      detail: `the kept lines can't be read: ${(error as Error).message}`,
    });
  }
  for (const each of [...open, ...waiting]) settle(each);
  const notes = settlements(dir, lines);
  const said = [...lines.keys(), ...notes.noted, ...notes.refused.keys(), record.closed?.size ?? 0];
  for (const { runs } of proofs) for (const { first, count } of runs) said.push(first + count - 1);
  return { lines, attested, ...notes, unaccounted: unaccountedIn(lines, said), head, flaws };
}

function unaccountedIn(lines: ReadonlyMap<number, KnownLine>, said: readonly number[]): number[] {
  const end = said.reduce((most, each) => Math.max(most, each), 0);
  const spoken = new Set<number>();
  for (const { gap } of lines.values())
    for (let seq = gap?.first ?? 1; seq <= (gap?.last ?? 0); seq++) spoken.add(seq);
  return Array.from({ length: end }, (_, at) => at + 1).filter((seq) => !lines.has(seq) && !spoken.has(seq));
}

function leavesAt(each: OpenRun, place: { origin: string; sink: string }, line: Buffer): Buffer[] {
  const { run, leaves } = each;
  return leavesOf(place, { ...run, index: run.index + leaves.length }, [line]);
}

function knownLine(seq: number, line: Buffer): KnownLine {
  const { kind, digest, session, call, attrs } = JSON.parse(line.toString('latin1')) as {
    kind: string;
    digest?: string;
    session?: string;
    call?: string;
    attrs?: { dir?: string; phase?: string; first?: number; last?: number; reason?: string };
  };
  const { first, last, reason } = attrs ?? {};
  return {
    seq,
    kind,
    digest,
    session,
    call,
    dir: kind === 'x.frame' ? attrs?.dir : undefined,
    phase: kind === 'state' ? attrs?.phase : undefined,
    gap:
      kind === 'gap' && first !== undefined && last !== undefined
        ? { first, last, reason: reason ?? 'unknown' }
        : undefined,
  };
}

/** What the spool's notes say of its lines: that they were refused, and that they were acknowledged. */
function settlements(
  dir: string,
  lines: ReadonlyMap<number, KnownLine>,
): Pick<Evidence, 'refused' | 'noted'> {
  const refused = new Map<number, string>();
  const noted = new Set<number>();
  let text: string;
  try {
    text = readFileSync(join(dir, ACKS), 'utf8');
  } catch {
    return { refused, noted };
  }
  const order = [...lines.keys()];
  const places = new Map(order.map((seq, at) => [seq, at]));
  for (const line of text.split('\n')) {
    let each: Settlement;
    try {
      each = JSON.parse(line) as Settlement;
    } catch {
      continue;
    }
    const { disposition, first, count } = each;
    if (disposition === 'refused') refused.set(first, each.code);
    else if (disposition === 'again') {
      refused.clear();
      noted.clear();
    } else if (disposition !== 'expired') {
      // By place, as numbers may be missing; where the lines are gone, by number.
      const at = places.get(first);
      for (let i = 0; i < count; i++) noted.add(at === undefined ? first + i : (order[at + i] ?? first + i));
    }
  }
  return { refused, noted };
}
