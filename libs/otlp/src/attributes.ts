/** Attributes of a decoded span or log record, read for the few things that are looked for. */

import type { Decoded } from './build.js';

/** The value of a key, or undefined. Where a key stands twice, which OTLP forbids, the first counts. */
export type Attributes = ReadonlyMap<string, Decoded>;

export function attributesOf(holder: Decoded | undefined): Attributes {
  const found = new Map<string, Decoded>();
  for (const { key, value } of (holder?.['attributes'] ?? []) as { key?: string; value?: Decoded }[]) {
    if (key !== undefined && value !== undefined && !found.has(key)) found.set(key, value);
  }
  return found;
}

/** A field of text or number, as text; `''` where it is not there. */
export function fieldOf(holder: Decoded | undefined, name: string): string {
  const value = holder?.[name];
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

/** The first of the keys that holds text that is not empty. */
export function textOf(attributes: Attributes, ...keys: readonly string[]): string | undefined {
  for (const key of keys) {
    const text = fieldOf(attributes.get(key), 'stringValue');
    if (text !== '') return text;
  }
  return undefined;
}

/** A count: an integer from 0, whether it was sent as a number or as text. */
export function countOf(attributes: Attributes, ...keys: readonly string[]): number | undefined {
  for (const key of keys) {
    const value = attributes.get(key);
    const text = fieldOf(value, 'intValue') || fieldOf(value, 'stringValue') || fieldOf(value, 'doubleValue');
    const count = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (Number.isSafeInteger(count)) return count;
  }
  return undefined;
}

/**
 * A JSON object: written as structured attributes, or as text that is JSON. Undefined for anything else, for text of
 * more than `maxText` characters, and for what JSON can't carry as it was meant (bytes, integers past 2^53, NaN).
 */
export function objectOf(
  value: Decoded | undefined,
  maxText: number,
): Readonly<Record<string, unknown>> | undefined {
  const text = value?.['stringValue'];
  let found: unknown;
  try {
    if (typeof text === 'string') found = text.length > maxText ? undefined : JSON.parse(text);
    else found = value === undefined ? undefined : plain(value);
  } catch {
    return undefined;
  }
  return typeof found === 'object' && found !== null && !Array.isArray(found)
    ? (found as Readonly<Record<string, unknown>>)
    : undefined;
}

function plain(value: Decoded): unknown {
  const [member] = Object.entries(value);
  if (member === undefined) return null;
  const [name, content] = member;
  switch (name) {
    case 'arrayValue':
      return listOf(content).map((each) => plain(each));
    case 'kvlistValue': {
      const object = Object.create(null) as Record<string, unknown>;
      for (const each of listOf(content)) {
        object[fieldOf(each, 'key')] = plain((each['value'] ?? {}) as Decoded);
      }
      return object;
    }
    case 'intValue': {
      const number = Number(content);
      if (!Number.isSafeInteger(number)) throw new RangeError('past 2^53');
      return number;
    }
    case 'doubleValue':
      if (typeof content !== 'number') throw new RangeError('not finite');
      return content;
    case 'bytesValue':
      throw new TypeError('JSON has no bytes');
    default:
      return content;
  }
}

const listOf = (holder: unknown): readonly Decoded[] =>
  ((holder as Decoded)['values'] ?? []) as readonly Decoded[];
