import { ed25519Verifier, type NoteSigner, openCheckpoint } from '@belay/note';
import { formatEnvelope, IN_TOTO, preAuthEncoding } from './dsse.js';
import { ReceiptError } from './error.js';
import { type LogIdentity, parsePayload, type PublishedHead } from './payload.js';
import { PERIOD_RECEIPT_TYPE, type PeriodReceipt, readPeriodReceipt } from './period-receipt.js';
import { readSessionReceipt, SESSION_RECEIPT_TYPE, type SessionReceipt } from './session-receipt.js';

/** Largest payload of a receipt for a session or a period, in bytes. */
export const MAX_CLAIM_BYTES = 16 * 1024 * 1024;

/** A receipt that is to be signed. */
export type Claim =
  | { readonly type: 'session'; readonly receipt: SessionReceipt }
  | { readonly type: 'period'; readonly receipt: PeriodReceipt };

/** Signs an in-toto payload as it is: the bytes of its DSSE envelope. The same payload gives the same bytes. */
export function signPayload(payload: Buffer, log: NoteSigner): Buffer {
  const signature = log.sign(preAuthEncoding(IN_TOTO, payload));
  return formatEnvelope({ payload, payloadType: IN_TOTO, keyId: log.keyId, signature });
}

/** Reads the payload of a receipt for a session or a period. Throws ReceiptError `malformed`. */
export function parseClaim(payload: Buffer): Claim {
  if (payload.length > MAX_CLAIM_BYTES) throw new ReceiptError('malformed', 'larger than any such receipt');
  const parsed = parsePayload(payload);
  switch (parsed.predicateType) {
    case SESSION_RECEIPT_TYPE:
      return { type: 'session', receipt: readSessionReceipt(parsed) };
    case PERIOD_RECEIPT_TYPE:
      return { type: 'period', receipt: readPeriodReceipt(parsed) };
    default:
      throw new ReceiptError('malformed', 'neither a receipt of a session nor of a period');
  }
}

/**
 * What a collector looks at before it signs a payload that it was given: its form and what follows from its own
 * members, that it is of this log, and that the head it stands on is the one that was published. What coverage it
 * states, and which receipt it takes the place of, the collector compares with its log. Throws ReceiptError `malformed`,
 * or `evidence` with what is stated and what is so.
 */
export function checkPayload(
  payload: Buffer,
  { log, head }: { readonly log: LogIdentity; readonly head: PublishedHead },
): Claim {
  const claim = parseClaim(payload);
  const { log: stated, asOf } = claim.receipt;
  const same = [
    ['log', stated.origin, log.origin],
    ['key', stated.vkey, log.vkey],
    ['certificates', chainText(stated), chainText(log)],
    ['size', asOf.size, head.size],
    ['checkpoint', asOf.checkpoint, head.checkpoint],
    ['time', asOf.time, head.time],
  ] as const;
  for (const [what, is, right] of same) {
    if (is !== right) {
      throw new ReceiptError('evidence', `the ${what} is not that of the log`, {
        stated: is,
        published: right,
      });
    }
  }
  const { size, origin } = openCheckpoint(head.checkpoint, ed25519Verifier(log.vkey));
  if (size !== BigInt(head.size) || origin !== log.origin) {
    throw new ReceiptError('evidence', 'the checkpoint is of another head', { stated: head.size });
  }
  return claim;
}

const chainText = ({ x5c }: LogIdentity): string => x5c.map((der) => der.toString('base64')).join(' ');
