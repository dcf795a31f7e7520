import { hkdfSync } from 'node:crypto';
import { KeysError } from './error.js';

/** Bytes of an Ed25519 seed, and of a master seed. */
export const SEED_BYTES = 32;

/**
 * Seed of a log's Ed25519 key: HKDF-SHA256 of the master seed without salt, info
 * `belay/log-key/v1` LF origin (RFC 5869). One secret to keep for any number of logs, and no log's key says
 * anything about another's.
 */
export function deriveLogSeed(masterSeed: Uint8Array, origin: string): Buffer {
  if (masterSeed.length !== SEED_BYTES)
    throw new KeysError('malformed', `a master seed has ${SEED_BYTES} bytes`);
  const info = Buffer.from(`belay/log-key/v1\n${origin}`);
  return Buffer.from(hkdfSync('sha256', masterSeed, Buffer.alloc(0), info, SEED_BYTES));
}
