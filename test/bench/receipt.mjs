// Verifying offline: one event, and ranges, as a stranger does it.
import { createHash, randomBytes } from 'node:crypto';
import { collectorLine, entryBytes } from '@belay/envelope';
import { createIssuer, createRoot, issueLogCertificate } from '@belay/keys/x509';
import { CompactRange, leafHash } from '@belay/merkle';
import { ed25519Signer, formatCheckpoint, parseVkey, signNote } from '@belay/note';
import { buildReceipt, verifyReceipt } from '@belay/receipt';
import { median, quantile, table } from './measure.mjs';

const ORIGIN = 'bench.local/log';
const TOKEN = 'tok_01arz3ndektsv4rrffq69g5fav';

export async function run({ scale }) {
  const signer = ed25519Signer(ORIGIN, createHash('sha256').update('bench').digest());
  const x5c = await chain(parseVkey(signer.vkey).key);
  const rows = [];
  for (const [count, rounds] of [
    [1, 300],
    [100, 100],
    [1_000, 30],
    [10_000, 5],
  ]) {
    const bytes = make(signer, x5c, count);
    const times = [];
    for (let round = 0; round < Math.max(3, rounds * scale); round++) {
      const start = performance.now();
      const { verdict } = verifyReceipt(bytes, { key: signer.vkey });
      times.push(performance.now() - start);
      if (verdict !== 'VALID') throw new Error(`the receipt of ${count} is ${verdict}`);
    }
    rows.push({
      entries: count,
      kB: (bytes.length / 1_000).toFixed(0),
      'p50 ms': median(times).toFixed(2),
      'p95 ms': quantile(times, 0.95).toFixed(2),
    });
  }
  console.log(table(rows));
  return rows;
}

function make(signer, x5c, count) {
  // Entry 0 is a log's genesis; these stand behind it.
  const before = leafHash(randomBytes(100));
  const range = CompactRange.empty();
  range.append(before);
  const entries = Array.from({ length: count }, (_, at) => {
    const line = collectorLine({
      index: at + 1,
      log: ORIGIN,
      received: '2026-01-01T00:00:00.000Z',
      role: 'sink',
      sink: 's',
      token: TOKEN,
    });
    const body = JSON.stringify({
      v: 1,
      log: ORIGIN,
      sink: 's',
      epoch: '01JD0000000000000000000000',
      seq: at + 1,
      kind: 'call',
      time: '2026-01-01T00:00:00Z',
      digest: `sha256:${'0'.repeat(64)}`,
      attrs: { tool: 'read_file', bytes: at },
    });
    const entry = entryBytes(line, Buffer.from(body));
    range.append(leafHash(entry));
    return entry;
  });
  const checkpoint = signNote(
    formatCheckpoint({ origin: ORIGIN, size: BigInt(count + 1), root: range.root() }),
    [signer],
  );
  return buildReceipt(
    {
      scope: { type: 'range', first: 1, count },
      log: { origin: ORIGIN, vkey: signer.vkey, x5c },
      asOf: { size: count + 1, checkpoint, time: '2026-01-01T00:00:01.000Z' },
      proof: { left: [before], right: [] },
      entries,
      tokens: [{ token: TOKEN, issuedBy: 'adm_01arz3ndektsv4rrffq69g5fav', index: 0 }],
    },
    signer,
  );
}

async function chain(pub) {
  const validity = { notBefore: new Date('2025-01-01'), notAfter: new Date('2035-01-01') };
  const root = await createRoot({ ...validity, name: 'bench root', seed: randomBytes(32) });
  const issuer = await createIssuer({ ...validity, root, name: 'bench issuer', seed: randomBytes(32) });
  return [
    await issueLogCertificate({ ...validity, issuer, pub, origin: ORIGIN }),
    issuer.certificate,
    root.certificate,
  ];
}
