import { isUlid } from './ulid.js';

/** Returns what would be right, or undefined when the value is right. */
export type Rule = (value: unknown) => string | undefined;

const DIGEST = /^(?:hmac-)?sha256:[0-9a-f]{64}$/;
const NAME = /^[A-Za-z0-9._@/:+-]{1,128}$/;
const BASE64_32 = /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/;
const TIME = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?Z$/;
const DAYS = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** Text that matches; `right` completes the sentence "field is ...". */
export function pattern(expression: RegExp, right: string): Rule {
  return (value) => (typeof value === 'string' && expression.test(value) ? undefined : right);
}

export function words(...allowed: readonly string[]): Rule {
  return (value) =>
    typeof value === 'string' && allowed.includes(value) ? undefined : `one of ${allowed.join(', ')}`;
}

export const origin = pattern(/^[A-Za-z0-9._/:-]{1,255}$/, "a log's origin: 1-255 of A-Z a-z 0-9 . _ / : -");
export const sinkName = pattern(
  /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
  "a sink's name: a letter or digit, then up to 63 of A-Z a-z 0-9 . _ -",
);
export const sessionName = pattern(
  /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/,
  'a letter or digit, then up to 127 of A-Z a-z 0-9 . _ : -',
);
export const callName = pattern(
  /^(?:weak:)?hmac-sha256:[0-9a-f]{64}$/,
  '"hmac-sha256:" or "weak:hmac-sha256:" and 64 lowercase hex digits',
);
export const digest = pattern(DIGEST, '"sha256:" or "hmac-sha256:" and 64 lowercase hex digits');
export const sha256 = pattern(/^sha256:[0-9a-f]{64}$/, '"sha256:" and 64 lowercase hex digits');
export const name = pattern(NAME, '1-128 of A-Z a-z 0-9 . _ @ / : + -');
export const hash = pattern(BASE64_32, '32 bytes in padded base64');
export const ulid: Rule = (value) =>
  typeof value === 'string' && isUlid(value) ? undefined : 'a ULID in upper case (26 characters)';
export const bool: Rule = (value) => (typeof value === 'boolean' ? undefined : 'true or false');

/** 0 to 2^53 - 1. That it was written as a plain integer is the business of the JSON reader. */
export const int: Rule = (value) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? undefined : 'an integer from 0 to 2^53 - 1';

export const positive: Rule = (value) =>
  Number.isSafeInteger(value) && (value as number) >= 1 ? undefined : 'an integer from 1 to 2^53 - 1';

/** The number after the last one is still a safe integer, so that a watermark can say what comes next. */
export const seq: Rule = (value) =>
  positive(value) === undefined && (value as number) < Number.MAX_SAFE_INTEGER
    ? undefined
    : 'an integer from 1 to 2^53 - 2';

export const hashes: Rule = (value) =>
  Array.isArray(value) && value.length <= 64 && value.every((item) => hash(item) === undefined)
    ? undefined
    : 'an array of at most 64 hashes, each 32 bytes in padded base64';

/** Tool names are digests under the policy that keys them; every digest is a well-formed name too. */
export const nameOrDigest = name;

/** RFC 3339 in UTC ending in `Z`, an existing date, seconds 00-59. */
export const time: Rule = (value) => {
  const parts = typeof value === 'string' ? TIME.exec(value) : null;
  if (parts !== null) {
    const month = Number(parts[2]);
    const day = Number(parts[3]);
    const leap = leapYear(Number(parts[1]));
    const days = month === 2 && !leap ? 28 : (DAYS[month - 1] ?? 0);
    if (day >= 1 && day <= days && Number(parts[4]) < 24 && Number(parts[5]) < 60 && Number(parts[6]) < 60) {
      return undefined;
    }
  }
  return 'an RFC 3339 time in UTC ending in Z, with 0 to 9 fractional digits';
};

function leapYear(year: number): boolean {
  return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
}
