import { createHmac, hash } from 'node:crypto';

/** Bytes in a block of SHA-256, and in its digest. */
const BLOCK = 64;
const DIGEST = 32;

/** Room for the inner pad and a message; longer ones take the general way. Filled and hashed without giving up the thread. */
const INNER = Buffer.alloc(BLOCK + 8_192);
const OUTER = Buffer.alloc(BLOCK + DIGEST);

interface Pads {
  readonly inner: Buffer;
  readonly outer: Buffer;
}

/** A key's pads are made once. Keys are not written to after they were used. */
const known = new WeakMap<Buffer, Pads>();

/**
 * HMAC-SHA256 (RFC 2104) of UTF-8 text under a key of at most one block, as 64 hex digits. Done by two one-shot digests:
 * an Hmac object costs several times what it computes, and an envelope takes four of these.
 */
export function macHex(key: Buffer, message: string): string {
  if (key.length > BLOCK || message.length * 3 > INNER.length - BLOCK) {
    return createHmac('sha256', key).update(message).digest('hex');
  }
  fill(key, message);
  return hash('sha256', OUTER, 'hex');
}

/** The same as 32 bytes. */
export function mac(key: Buffer, message: string): Buffer {
  if (key.length > BLOCK || message.length * 3 > INNER.length - BLOCK) {
    return createHmac('sha256', key).update(message).digest();
  }
  fill(key, message);
  return Buffer.from(hash('sha256', OUTER, 'binary'), 'binary');
}

function fill(key: Buffer, message: string): void {
  const { inner, outer } = padsOf(key);
  inner.copy(INNER);
  const length = INNER.write(message, BLOCK, 'utf8');
  outer.copy(OUTER);
  OUTER.write(hash('sha256', INNER.subarray(0, BLOCK + length), 'binary'), BLOCK, 'binary');
}

function padsOf(key: Buffer): Pads {
  let pads = known.get(key);
  if (pads === undefined) {
    pads = { inner: Buffer.alloc(BLOCK, 0x36), outer: Buffer.alloc(BLOCK, 0x5c) };
    for (const [at, byte] of key.entries()) {
      pads.inner[at] = byte ^ 0x36;
      pads.outer[at] = byte ^ 0x5c;
    }
    known.set(key, pads);
  }
  return pads;
}
