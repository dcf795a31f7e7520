/**
 * Prefix of an identifier: operator, admin key, append token, auditor key, tenant, project, log, receipt, export, other
 * job, webhook, delivery.
 */
export type Identifier =
  'opr' | 'adm' | 'tok' | 'aud' | 'ten' | 'prj' | 'log' | 'rcp' | 'exp' | 'job' | 'whk' | 'dlv';

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const ULID = /^[0-7][0-9a-hjkmnp-tv-z]{25}$/;

/** `<prefix>_` and the 128 bits of a ULID as 26 characters of Crockford base 32, lower case. */
export function identifier<Prefix extends Identifier>(
  prefix: Prefix,
  ulid: Uint8Array,
): `${Prefix}_${string}` {
  if (ulid.length !== 16) throw new RangeError('an identifier is 16 bytes');
  let bits = 0n;
  for (const byte of ulid) bits = (bits << 8n) | BigInt(byte);
  let text = '';
  for (let i = 0; i < 26; i++) {
    text = ALPHABET.charAt(Number(bits & 31n)) + text;
    bits >>= 5n;
  }
  return `${prefix}_${text}`;
}

/**
 * A fresh identifier of a time (milliseconds since 1970, below 2^48) and 10 random bytes, so that identifiers made
 * later sort later.
 */
export function newIdentifier<Prefix extends Identifier>(
  prefix: Prefix,
  time: number,
  random: Uint8Array,
): `${Prefix}_${string}` {
  if (!Number.isInteger(time) || time < 0 || time >= 2 ** 48) throw new RangeError('time is 0 to 2^48 - 1');
  if (random.length !== 10) throw new RangeError('an identifier takes 10 random bytes');
  const bytes = Buffer.alloc(16);
  bytes.writeUIntBE(time, 0, 6);
  bytes.set(random, 6);
  return identifier(prefix, bytes);
}

/** Whether the text is an identifier with this prefix in its one canonical form. */
export function isIdentifier<Prefix extends Identifier>(
  prefix: Prefix,
  text: string,
): text is `${Prefix}_${string}` {
  return text.length === 30 && text.startsWith(`${prefix}_`) && ULID.test(text.slice(4));
}

/** The 16 bytes of an identifier. Throws RangeError for anything but its canonical form. */
export function identifierBytes(prefix: Identifier, text: string): Buffer {
  if (!isIdentifier(prefix, text)) throw new RangeError(`not an identifier with prefix ${prefix}_`);
  let bits = 0n;
  for (const digit of text.slice(4)) bits = (bits << 5n) | BigInt(ALPHABET.indexOf(digit));
  return Buffer.from(bits.toString(16).padStart(32, '0'), 'hex');
}
