import { createHash } from 'node:crypto';
import type { Ack, AppendRequest, Outcome } from '@belay/contracts';
import { DEFAULT_POLICY } from '@belay/coverage';
import { collectorLine, entryBytes, parseEnvelope } from '@belay/envelope';
import {
  checkLog,
  type LogKeys,
  type LogRecord,
  type LogReport,
  type LogStore,
  Sequencer,
  type SequencerParts,
} from '@belay/log';
import { leafHash, verifyConsistency, verifyRange } from '@belay/merkle';
import { ackHeadText, ackName, ackVerifier, ed25519Signer, formatVkey, openNote } from '@belay/note';
import { MemoryAnchor } from './memory-anchor.js';
import { MemoryLogStore } from './memory-log-store.js';

const ID = '01ARZ3NDEKTSV4RRFFQ69G5FA';
export const TENANT = `ten_${ID.toLowerCase()}v`;
export const PROJECT = `prj_${ID.toLowerCase()}v`;
export const ADMIN = `adm_${ID.toLowerCase()}v`;
export const TOKEN = `tok_${ID.toLowerCase()}v`;
export const AUDITOR = `aud_${ID.toLowerCase()}v`;

/** Keys derived from the origin: the same in every run. */
const keys: LogKeys = {
  create: async (origin) => ({ publicKey: ed25519Key(origin), x5c: [Buffer.from('certificate')] }),
  signers: (origin) => ({
    checkpoint: ed25519Signer(origin, seedOf(origin)),
    ack: ed25519Signer(ackName(origin), seedOf(origin)),
  }),
};

function seedOf(origin: string): Buffer {
  return createHash('sha256').update(origin).digest();
}

function ed25519Key(origin: string): Buffer {
  const vkey = ed25519Signer(origin, seedOf(origin)).vkey;
  return Buffer.from(vkey.slice(vkey.lastIndexOf('+', vkey.length - 45) + 1), 'base64').subarray(-32);
}

export interface Setup {
  readonly store: LogStore;
  readonly anchor: MemoryAnchor;
  readonly parts: SequencerParts;
  readonly log: LogRecord;
  sequencer: Sequencer;
  clock: { now: number };
}

/** A project with one unrestricted token of role `sink`. */
export async function setUp(
  store: LogStore = new MemoryLogStore(),
  more: Partial<SequencerParts> = {},
): Promise<Setup> {
  const clock = { now: Date.UTC(2026, 0, 1) };
  const anchor = new MemoryAnchor();
  let logs = 0;
  const parts: SequencerParts = {
    store,
    anchor,
    keys,
    now: () => clock.now,
    newLogId: () => `log_${(++logs).toString().padStart(26, '0')}`,
    originPrefix: 'test.local',
    ...more,
  };
  const sequencer = new Sequencer(parts);
  await store.createTenant({ id: TENANT, name: 'tenant', admin: ADMIN, secretHash: Buffer.alloc(32) });
  const made = await sequencer.createProject(
    {
      kind: 'project.create',
      tenant: TENANT,
      by: ADMIN,
      project: PROJECT,
      name: 'project',
      public: false,
      token: { id: TOKEN, secretHash: Buffer.alloc(32) },
      auditor: { id: AUDITOR, secretHash: Buffer.alloc(32) },
    },
    DEFAULT_POLICY,
  );
  if (!made.ok) throw new Error(made.fault.message);
  const log = await store.find({ project: PROJECT });
  if (!log) throw new Error('the log was not stored');
  return { store, anchor, parts, log, sequencer, clock };
}

/** The epoch numbered `n`. */
export function epoch(n: number): string {
  return `01JD${n.toString().padStart(22, '0')}`;
}

export function line(log: string, sink: string, run: string, seq: number, content = 'a'): Buffer {
  return Buffer.from(
    JSON.stringify({
      v: 1,
      log,
      sink,
      epoch: run,
      seq,
      kind: 'x.test',
      time: '2026-01-01T00:00:00Z',
      session: content,
    }),
  );
}

/** An `epoch.close`, whose root nothing here looks at. */
export function closing(log: string, sink: string, run: string, seq: number): Buffer {
  const root = Buffer.alloc(32).toString('base64');
  return Buffer.from(
    JSON.stringify({
      v: 1,
      log,
      sink,
      epoch: run,
      seq,
      kind: 'epoch.close',
      time: '2026-01-01T00:00:00Z',
      attrs: { size: seq - 1, root, dropped: 0, filtered: 0 },
    }),
  );
}

export function request(
  log: string,
  sink: string,
  run: string,
  lines: readonly Buffer[],
  more: Partial<AppendRequest> = {},
): AppendRequest {
  return {
    project: PROJECT,
    token: TOKEN,
    sink,
    epoch: run,
    lines,
    seqs: lines.map((bytes) => parseEnvelope(bytes).seq),
    refused: [],
    ...more,
  };
}

/** What a sidecar does with an ack, with code of its own: rebuild, fold, compare, check signature and consistency. */
export function verifyAck(
  log: LogRecord,
  sent: AppendRequest,
  ack: Ack,
  held?: { size: number; root: string },
): void {
  const root = Buffer.from(ack.root, 'base64');
  const verifier = ackVerifier(formatVkey(log.origin, log.publicKey));
  openNote(`${ackHeadText(log.origin, BigInt(ack.size), root)}\n${ack.signature}\n`, [verifier]);
  const answered = new Set<number>();
  for (const run of ack.runs) {
    const leaves: Buffer[] = [];
    for (let at = run.lines[0]; at < run.lines[1]; at++) {
      answered.add(at);
      const text = collectorLine({
        index: run.index + (at - run.lines[0]),
        log: ack.log,
        received: run.received,
        role: run.role,
        sink: sent.sink,
        token: run.token,
        signed: run.signed,
        conflict: run.conflict,
        late: run.late,
      });
      leaves.push(leafHash(entryBytes(text, sent.lines[at] as Buffer)));
    }
    const decode = (list: readonly string[]): Buffer[] => list.map((hash) => Buffer.from(hash, 'base64'));
    verifyRange({
      index: BigInt(run.index),
      size: BigInt(ack.size),
      leaves,
      left: decode(run.range.left),
      right: decode(run.range.right),
      root,
    });
  }
  for (const refusal of ack.refused) answered.add(refusal.line);
  if (answered.size !== sent.lines.length) throw new Error('the ack does not answer every line');
  if (held) {
    verifyConsistency({
      size1: BigInt(held.size),
      size2: BigInt(ack.size),
      root1: Buffer.from(held.root, 'base64'),
      root2: root,
      proof: (ack.consistency ?? []).map((hash) => Buffer.from(hash, 'base64')),
    });
  }
}

/** Throws with every finding unless the whole log is sound. */
export async function mustBeSound(setup: Setup): Promise<LogReport> {
  const report = await checkLog(setup.store, setup.log, { anchor: setup.anchor });
  if (report.findings.length > 0) throw new Error(JSON.stringify(report.findings, null, 1));
  return report;
}

export function value<T>(outcome: Outcome<T>): T {
  if (!outcome.ok) throw new Error(`${outcome.fault.code}: ${outcome.fault.message}`);
  return outcome.value;
}
