import {
  collectorLine,
  type CollectorBody,
  type CollectorLineFields,
  entryBytes,
  formatCollectorBody,
  newUlid,
} from '@belay/envelope';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import { createIssuer, createRoot, issueLogCertificate, toPem } from '@belay/keys/x509';
import { CompactRange, decompose, foldNodes, inclusionPlan, leafHash, type NodeId } from '@belay/merkle';
import { ackName, ed25519Signer, formatCheckpoint, formatVkey, signNote } from '@belay/note';
import type { ReceiptEvidence } from '@belay/receipt';

/** A small log whose every byte follows from the constants here. */

export const ORIGIN = 'belay.example/acme/agents';
export const SEED = Buffer.alloc(32, 0x0b);
export const signer = ed25519Signer(ORIGIN, SEED);
export const KEY = signer.vkey;
export const TIME = '2026-01-01T00:00:09.500Z';

const ulid = (n: number): string => newUlid(1_767_225_600_000, Buffer.alloc(10, n));
const id = (prefix: string, n: number): string => `${prefix}_${ulid(n).toLowerCase()}`;
export const ADMIN = id('adm', 1);
export const SINK_TOKEN = id('tok', 2);
export const AGENT_TOKEN = id('tok', 3);

export const validity = {
  notBefore: new Date('2025-12-31T00:00:00Z'),
  notAfter: new Date('2046-01-01T00:00:00Z'),
};
const root = await createRoot({ name: 'Belay example root', seed: Buffer.alloc(32, 0x15), ...validity });
const issuer = await createIssuer({
  root,
  name: 'Belay example issuer',
  seed: Buffer.alloc(32, 0x16),
  ...validity,
});
export const authority = { root, issuer };
export const ROOT_PEM = toPem(root.certificate);

/** A chain over a log's key: this log's unless told otherwise. */
export async function chainFor(
  given: { pub?: Buffer; origin?: string; notAfter?: Date } = {},
): Promise<Buffer[]> {
  const log = await issueLogCertificate({
    issuer,
    pub: rawPublicKey(privateKeyObject(SEED)),
    origin: ORIGIN,
    ...validity,
    ...given,
  });
  return [log, issuer.certificate, root.certificate];
}
export const X5C = await chainFor();

function stated(index: number, body: CollectorBody): Buffer {
  const line = collectorLine({ index, log: ORIGIN, received: at(index), role: 'collector' });
  return entryBytes(line, formatCollectorBody(body));
}

function sent(
  index: number,
  fields: Pick<CollectorLineFields, 'role' | 'sink' | 'token' | 'signed'> & { conflict?: number },
  kind = 'claim',
): Buffer {
  const line = collectorLine({ index, log: ORIGIN, received: at(index), ...fields });
  const { sink } = fields;
  const envelope = { v: 1, log: ORIGIN, sink, epoch: ulid(9), seq: index, kind, time: at(index) };
  return entryBytes(line, Buffer.from(JSON.stringify(envelope)));
}

function at(index: number): string {
  return `2026-01-01T00:00:0${Math.min(index, 9)}.000Z`;
}

const keyed = { role: 'sink', sink: 'proxy', token: SINK_TOKEN, signed: '795ed5ffe9039bf5' } as const;
const unkeyed = { role: 'sink', sink: 'proxy', token: SINK_TOKEN } as const;
const agent = { role: 'agent', sink: 'curl', token: AGENT_TOKEN } as const;

export const ENTRIES: readonly Buffer[] = [
  stated(0, {
    kind: 'log.genesis',
    v: 1,
    log: ORIGIN,
    vkey: KEY,
    ackKey: formatVkey(ackName(ORIGIN), rawPublicKey(privateKeyObject(SEED))),
    project: id('prj', 4),
    name: 'Agents',
    x5c: [],
    policy: { public: false },
  }),
  stated(1, { kind: 'token.issued', v: 1, token: SINK_TOKEN, role: 'sink', by: ADMIN }),
  stated(2, { kind: 'token.issued', v: 1, token: AGENT_TOKEN, role: 'agent', by: ADMIN }),
  sent(3, keyed),
  sent(4, keyed),
  sent(5, agent),
  sent(6, unkeyed),
  sent(7, { ...keyed, conflict: 4 }),
  sent(8, keyed),
];

const leaves = ENTRIES.map(leafHash);

/** Hash of a node over the sample's leaves. */
export function node({ level, index }: NodeId): Buffer {
  const range = CompactRange.empty();
  const begin = Number(index) * 2 ** level;
  for (const leaf of leaves.slice(begin, begin + 2 ** level)) range.append(leaf);
  return range.root();
}

export function rootOf(size: number): Buffer {
  const range = CompactRange.empty();
  for (const leaf of leaves.slice(0, size)) range.append(leaf);
  return range.root();
}

export function checkpointOf(size: number): string {
  return signNote(formatCheckpoint({ origin: ORIGIN, size: BigInt(size), root: rootOf(size) }), [signer]);
}

export const TOKENS = [
  { token: AGENT_TOKEN, issuedBy: ADMIN, index: 2 },
  { token: SINK_TOKEN, issuedBy: ADMIN, index: 1 },
];

/** Evidence for entries [first, first + count) as of `size`. */
export function evidence(first: number, count: number, size: number = ENTRIES.length): ReceiptEvidence {
  return {
    scope: count === 1 ? { type: 'event', index: first } : { type: 'range', first, count },
    log: { origin: ORIGIN, vkey: KEY, x5c: X5C },
    asOf: { size, checkpoint: checkpointOf(size), time: TIME },
    proof: {
      left: decompose(0n, BigInt(first)).map(node),
      right: decompose(BigInt(first + count), BigInt(size)).map(node),
    },
    entries: ENTRIES.slice(first, first + count),
    tokens: TOKENS,
    domainOf: (sink) => (sink === 'proxy' ? 'acme-desktop' : undefined),
  };
}

export function inclusionOf(index: number, size: number = ENTRIES.length): Buffer[] {
  return inclusionPlan(BigInt(index), BigInt(size)).map((ids) => foldNodes(ids.map(node)));
}
