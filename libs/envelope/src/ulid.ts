const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;

/** Whether the text is a ULID in its one canonical form: 26 upper-case characters, at most 128 bits. */
export function isUlid(text: string): boolean {
  return ULID.test(text);
}

/**
 * ULID of a time (milliseconds since 1970, below 2^48) and 10 random bytes.
 * https://github.com/ulid/spec
 */
export function newUlid(time: number, random: Uint8Array): string {
  if (!Number.isInteger(time) || time < 0 || time >= 2 ** 48)
    throw new RangeError('ULID time is 0 to 2^48 - 1');
  if (random.length !== 10) throw new RangeError('a ULID takes 10 random bytes');
  let bits = BigInt(time);
  for (const byte of random) bits = (bits << 8n) | BigInt(byte);
  let text = '';
  for (let i = 0; i < 26; i++) {
    text = (ALPHABET[Number(bits & 31n)] as string) + text;
    bits >>= 5n;
  }
  return text;
}
