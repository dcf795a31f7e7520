import { readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { AckRun } from '@belay/contracts';
import type { LoggedRun, SignedHead, VerifiedAck } from './ack.js';

/** What acks proved, in the directory of an epoch's spool: one line of JSON for each. */
export const PROOFS = 'proofs';

/** A verified ack as it is kept: whoever has the lines and the log's key can check it again, without the collector. */
export interface StoredProof {
  readonly head: SignedHead;
  readonly runs: readonly StoredRun[];
}

/** A run by its lines in the order of the spool: `count` of them from number `first`; numbers that are missing from the spool don't count. */
export type StoredRun = LoggedRun & { readonly first: number; readonly count: number };

/** Appends what an ack proved. `seqs` are the numbers of the request's lines. */
export function appendProof(fd: number, seqs: readonly number[], { head, runs }: VerifiedAck): void {
  if (runs.length === 0) return;
  const proof: StoredProof = { head, runs: runs.map((run) => stored(seqs, run)) };
  writeSync(fd, `${JSON.stringify(proof)}\n`);
}

function stored(seqs: readonly number[], run: AckRun): StoredRun {
  const { lines, disposition, index, received, token, role, signed, conflict, late, range } = run;
  return {
    first: seqs[lines[0]] as number,
    count: lines[1] - lines[0],
    disposition,
    index,
    received,
    token,
    role,
    ...(signed === undefined ? {} : { signed }),
    ...(conflict === undefined ? {} : { conflict }),
    ...(late === undefined ? {} : { late }),
    range,
  };
}

/** All that is kept. A line that is no proof (torn by a crash, or written over) is left out and counted. */
export function readProofs(dir: string): { readonly proofs: StoredProof[]; readonly unreadable: number } {
  let text: string;
  try {
    text = readFileSync(join(dir, PROOFS), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { proofs: [], unreadable: 0 };
    throw error;
  }
  const proofs: StoredProof[] = [];
  let unreadable = 0;
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const proof = parse(line);
    if (proof === undefined) unreadable++;
    else proofs.push(proof);
  }
  return { proofs, unreadable };
}

function parse(line: string): StoredProof | undefined {
  try {
    const { head, runs } = JSON.parse(line) as StoredProof;
    const whole =
      Number.isSafeInteger(head.size) &&
      typeof head.root === 'string' &&
      typeof head.signature === 'string' &&
      runs.every(
        ({ first, count, index, range }) =>
          [first, count, index].every((each) => Number.isSafeInteger(each) && each >= 0) &&
          [range.left, range.right].every(
            (hashes) => Array.isArray(hashes) && hashes.every((hash) => typeof hash === 'string'),
          ),
      );
    return whole ? { head, runs } : undefined;
  } catch {
    return undefined;
  }
}

/** Index after the last line of an epoch that the log proved to have; undefined when it proved none. */
export function provedEnd(dir: string): number | undefined {
  const ends = readProofs(dir).proofs.flatMap(({ runs }) => runs.map(({ index, count }) => index + count));
  return ends.length === 0 ? undefined : ends.reduce((most, end) => Math.max(most, end));
}
