const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const NIL = '00000000-0000-0000-0000-000000000000';

/** The 128 bits of a canonical ULID as a uuid; the empty epoch of collector entries is the nil uuid. */
export function epochToUuid(epoch: string): string {
  if (epoch === '') return NIL;
  let bits = 0n;
  for (const char of epoch) bits = (bits << 5n) | BigInt(ALPHABET.indexOf(char));
  const hex = bits.toString(16).padStart(32, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** Inverse of `epochToUuid`. */
export function uuidToEpoch(uuid: string): string {
  if (uuid === NIL) return '';
  let bits = BigInt(`0x${uuid.replaceAll('-', '')}`);
  let text = '';
  for (let i = 0; i < 26; i++, bits >>= 5n) text = (ALPHABET[Number(bits & 31n)] as string) + text;
  return text;
}
