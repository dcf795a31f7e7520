/**
 * What somebody would change in a receipt, and which check has to refuse it. The demo shows these, the tests hold
 * them. Every copy is still a well-formed, canonical receipt: it is refused for what it says, not for how it looks.
 */

import { canonical } from '@belay/envelope';
import type { ReceiptCheck } from '@belay/receipt';

export interface Tampering {
  readonly what: string;
  /** The check that refuses it for its own sake; others may fail with it. */
  readonly refusedBy: ReceiptCheck;
  readonly bytes: Buffer;
}

interface Envelope {
  payload: string;
  signatures: { sig: string }[];
}

interface Statement {
  predicate: {
    asOf: { checkpoint: string };
    entries: string[];
    proof: { left: string[]; right: string[] };
  };
}

/** The four tampered copies of a receipt that has at least one hash in its proof. */
export function tamperings(receipt: Buffer): Tampering[] {
  return [
    {
      what: 'payload: one digit of one commitment',
      refusedBy: 'subject',
      bytes: withStatement(receipt, ({ predicate }) => {
        const at = predicate.entries.findIndex((entry) => /sha256:[0-9a-f]{64}/.test(entry));
        const index = Math.max(at, 0);
        const entry = predicate.entries[index] ?? '';
        predicate.entries[index] =
          at < 0
            ? entry.replace(/"seq":(\d+)/, '"seq":1$1')
            : entry.replace(/(sha256:)([0-9a-f])/, swapDigit);
      }),
    },
    {
      what: 'signature: one bit',
      refusedBy: 'signature',
      bytes: withEnvelope(receipt, ({ signatures }) => {
        const [first] = signatures;
        if (first) first.sig = flipped(first.sig);
      }),
    },
    {
      what: 'root: another tree in the checkpoint',
      refusedBy: 'checkpoint',
      bytes: withStatement(receipt, ({ predicate }) => {
        const lines = predicate.asOf.checkpoint.split('\n');
        lines[2] = flipped(lines[2] ?? '');
        predicate.asOf.checkpoint = lines.join('\n');
      }),
    },
    {
      what: 'proof: one bit of one hash',
      refusedBy: 'proof',
      bytes: withStatement(receipt, ({ predicate }) => {
        const side = predicate.proof.left.length > 0 ? predicate.proof.left : predicate.proof.right;
        side[0] = flipped(side[0] ?? '');
      }),
    },
  ];
}

const swapDigit = (_all: string, prefix: string, digit: string): string =>
  prefix + (digit === '0' ? '1' : '0');

function flipped(base64: string): string {
  const bytes = Buffer.from(base64, 'base64');
  bytes[0] = (bytes[0] ?? 0) ^ 1;
  return bytes.toString('base64');
}

function withEnvelope(receipt: Buffer, change: (envelope: Envelope) => void): Buffer {
  const envelope = JSON.parse(receipt.toString('utf8')) as Envelope;
  change(envelope);
  return Buffer.from(canonical(envelope));
}

function withStatement(receipt: Buffer, change: (statement: Statement) => void): Buffer {
  return withEnvelope(receipt, (envelope) => {
    const statement = JSON.parse(Buffer.from(envelope.payload, 'base64').toString('utf8')) as Statement;
    change(statement);
    envelope.payload = Buffer.from(canonical(statement)).toString('base64');
  });
}
