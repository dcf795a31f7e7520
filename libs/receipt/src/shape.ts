import { canonical } from '@belay/envelope';
import { ReceiptError } from './error.js';

/**
 * Parses JSON that has to be in its canonical form (RFC 8785): UTF-8, no key twice, one order, one way to write each
 * value. What does not re-encode to the same bytes is refused.
 */
export function parseCanonical(bytes: Buffer, what: string): unknown {
  let value: unknown;
  let again: string;
  try {
    value = JSON.parse(bytes.toString('utf8'));
    again = canonical(value);
  } catch {
    throw new ReceiptError('malformed', `the ${what} is not JSON`);
  }
  // Invalid UTF-8 was replaced when decoding and so does not compare equal either.
  if (!Buffer.from(again).equals(bytes))
    throw new ReceiptError('malformed', `the ${what} is not canonical JSON`);
  return value;
}

/** The values of `required`, then of `optional`, of an object that has exactly these members. */
export function members(
  value: unknown,
  what: string,
  required: readonly string[],
  optional: readonly string[] = [],
): unknown[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ReceiptError('malformed', `${what} is not an object`);
  }
  const object = value as Record<string, unknown>;
  for (const key of Object.keys(object)) {
    if (!required.includes(key) && !optional.includes(key)) {
      throw new ReceiptError('malformed', `${what} has an unknown member`);
    }
  }
  for (const key of required) {
    if (!Object.hasOwn(object, key)) throw new ReceiptError('malformed', `${what} has no ${key}`);
  }
  return [...required, ...optional].map((key) => (Object.hasOwn(object, key) ? object[key] : undefined));
}

/** The value, which has to be a string. */
export function text(value: unknown, what: string): string {
  if (typeof value !== 'string') throw new ReceiptError('malformed', `${what} is not a string`);
  return value;
}

/** The value, which has to be a string that matches. */
export function matching(value: unknown, what: string, pattern: RegExp): string {
  if (!pattern.test(text(value, what))) throw new ReceiptError('malformed', `${what} is malformed`);
  return value as string;
}

/** The value, which has to be an integer from 0 to 2^53 - 1. */
export function count(value: unknown, what: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new ReceiptError('malformed', `${what} is not an integer from 0 to 2^53 - 1`);
  }
  return value;
}

/** The members of an array of at most `most`. */
export function list(value: unknown, what: string, most: number): unknown[] {
  if (!Array.isArray(value)) throw new ReceiptError('malformed', `${what} is not an array`);
  if (value.length > most) throw new ReceiptError('malformed', `${what} has more than ${most} members`);
  return value;
}

/** The value, which has to be one of some words. */
export function word<const T extends string>(value: unknown, what: string, allowed: readonly T[]): T {
  const found = allowed.find((each) => each === value);
  if (found === undefined) throw new ReceiptError('malformed', `${what} is not one of ${allowed.join(', ')}`);
  return found;
}

/** The value, which has to be true or false. */
export function truth(value: unknown, what: string): boolean {
  if (typeof value !== 'boolean') throw new ReceiptError('malformed', `${what} is not true or false`);
  return value;
}

/** Names and values of an object of at most `most` members, of whichever names. */
export function named(value: unknown, what: string, most: number): [string, unknown][] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ReceiptError('malformed', `${what} is not an object`);
  }
  return list(Object.entries(value), what, most) as [string, unknown][];
}
