import { canonical } from '@belay/envelope';
import { parseBase64 } from '@belay/note';
import { ReceiptError } from './error.js';
import { members, parseCanonical, text } from './shape.js';

/** Payload type of an in-toto Statement. */
export const IN_TOTO = 'application/vnd.in-toto+json';

const SIGNATURE_BYTES = 64;

/** A DSSE envelope with one signature, taken apart; nothing verified. */
export interface DsseEnvelope {
  readonly payloadType: string;
  readonly payload: Buffer;
  readonly keyId: string;
  readonly signature: Buffer;
}

/** DSSE v1 pre-authentication encoding: what is signed. Lengths are in bytes. */
export function preAuthEncoding(payloadType: string, payload: Uint8Array): Buffer {
  const type = Buffer.from(payloadType);
  return Buffer.concat([
    Buffer.from(`DSSEv1 ${type.length} `),
    type,
    Buffer.from(` ${payload.length} `),
    payload,
  ]);
}

/** The envelope's bytes: JCS, without a final LF. */
export function formatEnvelope(envelope: DsseEnvelope): Buffer {
  return Buffer.from(
    canonical({
      payload: envelope.payload.toString('base64'),
      payloadType: envelope.payloadType,
      signatures: [{ keyid: envelope.keyId, sig: envelope.signature.toString('base64') }],
    }),
  );
}

/** Reads what `formatEnvelope` writes and nothing else, so that no byte can change without being noticed. */
export function parseDsse(bytes: Buffer): DsseEnvelope {
  const [payload, payloadType, signatures] = members(parseCanonical(bytes, 'envelope'), 'envelope', [
    'payload',
    'payloadType',
    'signatures',
  ]);
  if (!Array.isArray(signatures) || signatures.length !== 1) {
    throw new ReceiptError('malformed', 'an envelope has exactly one signature');
  }
  const [keyid, sig] = members(signatures[0], 'signature', ['keyid', 'sig']);
  const keyId = text(keyid, 'keyid');
  if (!/^[0-9a-f]{8}$/.test(keyId)) throw new ReceiptError('malformed', 'keyid is not eight hex digits');
  const signature = base64(text(sig, 'sig'), 'sig');
  if (signature.length !== SIGNATURE_BYTES) throw new ReceiptError('malformed', 'sig is not 64 bytes');
  return {
    payload: base64(text(payload, 'payload'), 'payload'),
    payloadType: text(payloadType, 'payloadType'),
    keyId,
    signature,
  };
}

function base64(encoded: string, what: string): Buffer {
  try {
    return parseBase64(encoded);
  } catch {
    throw new ReceiptError('malformed', `${what} is not canonical base64`);
  }
}
