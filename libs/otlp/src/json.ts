/**
 * OTLP/JSON, by the schema's table and without a tree in between: what the table does not name is skipped and never
 * becomes an object. Differs from the JSON mapping of protobuf as OTLP says: ids are hexadecimal, enums are integers,
 * names are lowerCamelCase only.
 */

import { Builder, type Decoded, type DecodeLimits, doubleValue } from './build.js';
import { ItemFault, OtlpError } from './error.js';
import { type Embedded, type Field, isEmbedded, type Message, type Scalar } from './schema.js';

/** Brackets inside each other, in what is skipped. What is read is as deep as the schema allows. */
const MAX_SKIPPED_DEPTH = 512;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const INTEGER = /^-?\d{1,20}$/;
const HEX = /^[0-9a-fA-F]*$/;
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;
const LONE_SURROGATE = /[\uD800-\uDFFF]/u;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Of integers: least and greatest value. */
const RANGES: Readonly<
  Record<'uint32' | 'fixed32' | 'enum' | 'int64' | 'fixed64', readonly [bigint, bigint]>
> = {
  uint32: [0n, 2n ** 32n - 1n],
  fixed32: [0n, 2n ** 32n - 1n],
  enum: [-(2n ** 31n), 2n ** 31n - 1n],
  int64: [-(2n ** 63n), 2n ** 63n - 1n],
  fixed64: [0n, 2n ** 64n - 1n],
};

/** Decodes a whole document. Throws OtlpError. */
export function decodeJson(type: Message, bytes: Buffer, limits: DecodeLimits): Decoded {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new OtlpError('undecodable', 'the JSON text is not valid UTF-8');
  }
  const root: Decoded = {};
  const decoder = new JsonDecoder(text, limits);
  decoder.document(type, root);
  return root;
}

type Token =
  | { readonly is: 'string'; readonly value: string; readonly escaped: boolean }
  | { readonly is: 'number'; readonly value: string }
  | { readonly is: 'literal'; readonly value: boolean | null };

class JsonDecoder {
  readonly #text: string;
  readonly #builder: Builder;
  #at = 0;

  constructor(text: string, limits: DecodeLimits) {
    this.#text = text;
    this.#builder = new Builder(limits);
  }

  document(type: Message, root: Decoded): void {
    this.#message(type, root, 0);
    this.#space();
    if (this.#at < this.#text.length) throw this.#wrong('something follows the JSON document');
  }

  #message(type: Message, target: Decoded, depth: number): void {
    this.#expect('{', type.name);
    const inner = this.#builder.deeper(type, depth);
    if (this.#take('}')) return;
    do {
      const field = type.byName.get(this.#key());
      if (field === undefined) this.#skip();
      else if (this.#takeNull()) continue;
      else if (!isEmbedded(field)) this.#scalar(field, target);
      else if (field.repeated === true) this.#list(field, target, inner);
      else this.#message(field.type, this.#builder.enter(target, field), inner);
    } while (this.#take(','));
    this.#expect('}', type.name);
  }

  #list(field: Embedded, target: Decoded, depth: number): void {
    this.#expect('[', field.name);
    if (this.#take(']')) return;
    do {
      const start = this.#at;
      const made = this.#builder.enter(target, field);
      if (!field.type.item) {
        this.#message(field.type, made, depth);
        continue;
      }
      try {
        this.#message(field.type, made, depth);
      } catch (fault) {
        this.#builder.refuse(target, field, fault);
        this.#at = start;
        this.#skip();
      }
    } while (this.#take(','));
    this.#expect(']', field.name);
  }

  #scalar(field: Field, target: Decoded): void {
    const value = this.#value(field.name, field.type as Scalar, this.#token());
    this.#builder.set(target, field, value);
  }

  #value(name: string, type: Scalar, token: Token): string | number | boolean {
    const wrong = (): OtlpError => this.#wrong(`${name} is not a ${type}`);
    switch (type) {
      case 'string':
        if (token.is !== 'string') throw wrong();
        if (token.escaped && LONE_SURROGATE.test(token.value)) throw new ItemFault('invalid_text');
        return token.value;
      case 'hex':
        if (token.is !== 'string') throw wrong();
        if (!HEX.test(token.value)) throw new ItemFault('invalid_id');
        return token.value.toLowerCase();
      case 'bytes':
        if (token.is !== 'string' || !BASE64.test(token.value)) throw wrong();
        return Buffer.from(token.value, 'base64').toString('base64');
      case 'bool':
        if (typeof token.value !== 'boolean') throw wrong();
        return token.value;
      case 'double':
        return this.#double(token) ?? fail(wrong());
      case 'int64':
      case 'fixed64':
        return this.#integer(type, token)?.toString() ?? fail(wrong());
      case 'uint32':
      case 'fixed32':
        return Number(this.#integer(type, token) ?? fail(wrong()));
      case 'enum':
        // Names, and numbers in quotes, are what OTLP forbids here.
        if (token.is !== 'number') throw wrong();
        return Number(this.#integer(type, token) ?? fail(wrong()));
    }
  }

  /** All digits are kept, however many. */
  #integer(type: keyof typeof RANGES, token: Token): bigint | undefined {
    if (token.is === 'literal') return undefined;
    let value: bigint;
    if (INTEGER.test(token.value)) value = BigInt(token.value);
    else {
      const number = token.is === 'number' ? Number(token.value) : Number.NaN;
      if (!Number.isSafeInteger(number)) return undefined;
      value = BigInt(number);
    }
    const [least, greatest] = RANGES[type];
    return value < least || value > greatest ? undefined : value;
  }

  #double(token: Token): number | string | undefined {
    if (token.is === 'literal') return undefined;
    if (token.is === 'string' && ['NaN', 'Infinity', '-Infinity'].includes(token.value)) return token.value;
    if (token.is === 'string' && matchAll(NUMBER, token.value) === undefined) return undefined;
    const value = Number(token.value);
    return Number.isFinite(value) ? doubleValue(value) : undefined;
  }

  #token(): Token {
    this.#space();
    const code = this.#text.charCodeAt(this.#at);
    if (code === QUOTE) return this.#string();
    for (const [word, value] of [
      ['true', true],
      ['false', false],
      ['null', null],
    ] as const) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return { is: 'literal', value };
      }
    }
    NUMBER.lastIndex = this.#at;
    const found = NUMBER.exec(this.#text);
    if (found === null) throw this.#wrong('not a JSON value');
    this.#at += found[0].length;
    return { is: 'number', value: found[0] };
  }

  #string(): Token & { is: 'string' } {
    const [start, escaped] = this.#passString();
    const text = this.#text.slice(start + (escaped ? 0 : 1), this.#at - (escaped ? 0 : 1));
    if (!escaped) return { is: 'string', value: text, escaped };
    try {
      return { is: 'string', value: JSON.parse(text) as string, escaped };
    } catch {
      throw this.#wrong('not a JSON string');
    }
  }

  /** Moves behind a string; returns where it begins and whether it has escapes. */
  #passString(): readonly [number, boolean] {
    const start = this.#at;
    const text = this.#text;
    let escaped = false;
    for (let at = start + 1; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code === QUOTE) {
        this.#at = at + 1;
        return [start, escaped];
      }
      if (code < 0x20) break;
      if (code === BACKSLASH) {
        escaped = true;
        at++;
      }
    }
    throw this.#wrong('a JSON string does not end');
  }

  #key(): string {
    this.#space();
    if (this.#text.charCodeAt(this.#at) !== QUOTE) throw this.#wrong('a name is missing');
    const { value } = this.#string();
    this.#expect(':', 'after a name');
    return value;
  }

  /** Passes one value without making anything of it. */
  #skip(): void {
    const open: ('{' | '[')[] = [];
    do {
      this.#space();
      const char = this.#text[this.#at];
      if (char === '{' || char === '[') {
        if (open.length === MAX_SKIPPED_DEPTH) throw this.#wrong('nested too deep');
        this.#at++;
        open.push(char);
        if (!this.#take(char === '{' ? '}' : ']')) {
          if (char === '{') this.#passKey();
          continue;
        }
        open.pop();
      } else if (char === '"') this.#passString();
      else this.#token();
      // One value is behind us: either another follows in the same bracket, or brackets close.
      for (;;) {
        const bracket = open.at(-1);
        if (bracket === undefined || this.#take(',')) {
          if (bracket === '{') this.#passKey();
          break;
        }
        this.#expect(bracket === '{' ? '}' : ']', 'at the end');
        open.pop();
      }
    } while (open.length > 0);
  }

  #passKey(): void {
    this.#space();
    if (this.#text.charCodeAt(this.#at) !== QUOTE) throw this.#wrong('a name is missing');
    this.#passString();
    this.#expect(':', 'after a name');
  }

  /** `null` is the same as leaving a field out. */
  #takeNull(): boolean {
    this.#space();
    if (!this.#text.startsWith('null', this.#at)) return false;
    this.#at += 4;
    return true;
  }

  #take(char: string): boolean {
    this.#space();
    if (this.#text[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #expect(char: string, where: string): void {
    if (!this.#take(char)) throw this.#wrong(`${char} is missing (${where})`);
  }

  #space(): void {
    const text = this.#text;
    for (;;) {
      const code = text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.#at++;
    }
  }

  #wrong(message: string): OtlpError {
    return new OtlpError('undecodable', `${message}, at character ${this.#at}`);
  }
}

function matchAll(pattern: RegExp, text: string): string | undefined {
  pattern.lastIndex = 0;
  const found = pattern.exec(text)?.[0];
  return found === text ? found : undefined;
}

function fail(error: OtlpError): never {
  throw error;
}
