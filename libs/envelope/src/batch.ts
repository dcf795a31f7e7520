import { hash } from 'node:crypto';
import { CompactRange, leafHash } from '@belay/merkle';

/** What the signature of one request of a keyed sink is about, FORMAT.md section 5. */
export interface Batch {
  readonly log: string;
  readonly sink: string;
  readonly epoch: string;
  readonly firstSeq: number;
  readonly count: number;
  /** `batchRoot` of the request's lines, refused ones included; 32 bytes. */
  readonly root: Buffer;
}

/** The bytes that a keyed sink signs with Ed25519. */
export function batchMessage(batch: Batch): Buffer {
  const { log, sink, epoch, firstSeq, count, root } = batch;
  const lines = [
    'belay/batch/v1',
    log,
    sink,
    epoch,
    String(firstSeq),
    String(count),
    root.toString('base64'),
    '',
  ];
  return Buffer.from(lines.join('\n'), 'utf8');
}

/** RFC 6962 root (32 bytes) over the lines, each without its LF. */
export function batchRoot(lines: readonly Uint8Array[]): Buffer {
  const range = CompactRange.empty();
  for (const line of lines) range.append(leafHash(line));
  return range.root();
}

/** How a sink's key is named: the first 16 hex digits of SHA-256 over the 32 bytes of the public key. */
export function keyFingerprint(publicKey: Uint8Array): string {
  if (publicKey.length !== 32) throw new RangeError('an Ed25519 public key is 32 bytes');
  return hash('sha256', publicKey, 'hex').slice(0, 16);
}
