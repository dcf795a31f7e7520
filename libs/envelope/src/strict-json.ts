import { isAscii, isUtf8 } from 'node:buffer';
import { EnvelopeError } from './error.js';

const CR = 0x0d;
const PLAIN_INTEGER = /^(?:0|-?[1-9][0-9]*)$/;

/**
 * JSON in the dialect every Belay line is written in: UTF-8 without byte order mark or CR, no key twice at any
 * depth, numbers as plain integers. Throws EnvelopeError otherwise.
 *
 * A text that survives parse and stringify unchanged has no duplicate key and no odd number, so the scanner
 * below runs only for lines that were written with spaces, escapes or an unusual key order.
 */
export function parseStrictJson(line: Buffer): unknown {
  if (line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf) {
    throw new EnvelopeError('byte_order_mark', '', 'a line starts with "{", not with a byte order mark');
  }
  let text: string;
  if (isAscii(line)) {
    text = line.toString('latin1');
  } else {
    if (!isUtf8(line)) throw new EnvelopeError('invalid_utf8', '', 'a line is valid UTF-8');
    text = line.toString('utf8');
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    if (line.includes(CR)) throw carriageReturn();
    throw new EnvelopeError('invalid_json', '', 'a line is one complete JSON object');
  }
  if (JSON.stringify(value) !== text) {
    if (line.includes(CR)) throw carriageReturn();
    scan(text);
  }
  return value;
}

function carriageReturn(): EnvelopeError {
  return new EnvelopeError('carriage_return', '', 'lines end in LF alone; a CR is not allowed inside a line');
}

interface Level {
  /** Keys seen so far; undefined for an array. */
  readonly keys: Set<string> | undefined;
  key: string;
  expectKey: boolean;
}

/** Walks a text that JSON.parse accepted, so only what JSON.parse forgives has to be looked for. */
function scan(text: string): void {
  const levels: Level[] = [];
  const path = (): string =>
    levels
      .map((level) => level.key)
      .filter((key) => key !== '')
      .join('.');
  let i = 0;
  while (i < text.length) {
    const c = text.charCodeAt(i);
    const top = levels[levels.length - 1];
    if (c === 0x7b || c === 0x5b) {
      levels.push({ keys: c === 0x7b ? new Set() : undefined, key: '', expectKey: c === 0x7b });
      i++;
    } else if (c === 0x7d || c === 0x5d) {
      levels.pop();
      i++;
    } else if (c === 0x2c) {
      if (top?.keys !== undefined) top.expectKey = true;
      i++;
    } else if (c === 0x22) {
      const end = stringEnd(text, i);
      if (top?.keys !== undefined && top.expectKey) {
        const key = JSON.parse(text.slice(i, end)) as string;
        top.key = /^[A-Za-z0-9_.]{1,64}$/.test(key) ? key : '?';
        top.expectKey = false;
        if (top.keys.has(key))
          throw new EnvelopeError('duplicate_key', path(), 'a key may appear once in an object');
        top.keys.add(key);
      }
      i = end;
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) {
      let end = i + 1;
      while (end < text.length && /[0-9.eE+-]/.test(text[end] as string)) end++;
      if (!PLAIN_INTEGER.test(text.slice(i, end))) {
        throw new EnvelopeError(
          'bad_value',
          path(),
          'a number is an integer without fraction, exponent or sign of zero',
        );
      }
      i = end;
    } else {
      i++;
    }
  }
}

function stringEnd(text: string, start: number): number {
  let i = start + 1;
  for (;;) {
    const c = text.charCodeAt(i);
    if (c === 0x22) return i + 1;
    i += c === 0x5c ? 2 : 1;
  }
}
