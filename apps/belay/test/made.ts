/** A real receipt, made without a service: a log of one sink's lines, its chain, its checkpoint. */

import { collectorLine, commitment, commitmentSalt, entryBytes } from '@belay/envelope';
import { createIssuer, createRoot, issueLogCertificate, toPem } from '@belay/keys/x509';
import { CompactRange, leafHash } from '@belay/merkle';
import { ed25519Signer, formatCheckpoint, privateKeyObject, rawPublicKey, signNote } from '@belay/note';
import { buildReceipt, formatTlogProof } from '@belay/receipt';

export const ORIGIN = 'log.example/t/acme';
const TOKEN = 'tok_01jd0000000000000000000000';
const ADMIN = 'adm_01jd0000000000000000000000';
const NOW = new Date('2026-05-01T12:00:00.000Z');
const YEAR = 365 * 24 * 3_600 * 1_000;
const seed = (fill: number): Buffer => Buffer.alloc(32, fill);

export const signer = ed25519Signer(ORIGIN, seed(1));

function entry(index: number): Buffer {
  const received = new Date(NOW.getTime() + index).toISOString();
  const content = Buffer.from(`content ${index}`);
  const body = JSON.stringify({
    v: 1,
    log: ORIGIN,
    sink: 'proxy',
    epoch: '01JD0000000000000000000000',
    seq: index + 1,
    kind: index % 2 === 0 ? 'call' : 'result',
    time: received,
    digest: commitment(commitmentSalt(seed(9), index + 1), content),
    attrs: index % 2 === 0 ? { tool: 'read_file', bytes: 10 } : { tool: 'read_file', ok: true, ms: 3 },
  });
  const line = collectorLine({
    log: ORIGIN,
    received,
    role: 'sink',
    token: TOKEN,
    sink: 'proxy',
    signed: '0123456789abcdef',
    index,
  });
  return entryBytes(line, Buffer.from(body));
}

/** A receipt for entries `first` to `last` of a log of `size`, and what a reader would pin. */
export async function madeReceipt(
  first: number,
  last: number,
  size: number,
): Promise<{ readonly bytes: Buffer; readonly vkey: string; readonly rootPem: string }> {
  const entries = Array.from({ length: size }, (_, index) => entry(index));
  const range = (begin: number, end: number): CompactRange => {
    const made = CompactRange.empty(BigInt(begin));
    for (const each of entries.slice(begin, end)) made.append(leafHash(each));
    return made;
  };
  const validity = {
    notBefore: new Date(NOW.getTime() - YEAR),
    notAfter: new Date(NOW.getTime() + 20 * YEAR),
  };
  const root = await createRoot({ name: 'root', seed: seed(3), ...validity });
  const issuer = await createIssuer({ root, name: 'issuer', seed: seed(4), ...validity });
  const pub = rawPublicKey(privateKeyObject(seed(1)));
  const leaf = await issueLogCertificate({ issuer, pub, origin: ORIGIN, ...validity });
  const text = formatCheckpoint({ origin: ORIGIN, size: BigInt(size), root: range(0, size).root() });
  const bytes = buildReceipt(
    {
      scope:
        first === last ? { type: 'event', index: first } : { type: 'range', first, count: last - first + 1 },
      log: { origin: ORIGIN, vkey: signer.vkey, x5c: [leaf, issuer.certificate, root.certificate] },
      asOf: { size, checkpoint: signNote(text, [signer]), time: NOW.toISOString() },
      proof: { left: [...range(0, first).hashes], right: [...range(last + 1, size).hashes] },
      entries: entries.slice(first, last + 1),
      tokens: [{ token: TOKEN, issuedBy: ADMIN, index: 0 }],
    },
    signer,
  );
  return { bytes, vkey: signer.vkey, rootPem: toPem(root.certificate) };
}

/** A tlog-proof for entry 0 of a log of two. */
export function madeTlogProof(): Buffer {
  const [zero, one] = [entry(0), entry(1)];
  const range = CompactRange.empty();
  range.append(leafHash(zero));
  range.append(leafHash(one));
  const text = formatCheckpoint({ origin: ORIGIN, size: 2n, root: range.root() });
  return Buffer.from(
    formatTlogProof({ extra: zero, index: 0n, proof: [leafHash(one)], checkpoint: signNote(text, [signer]) }),
  );
}
