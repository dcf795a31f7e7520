/** What is kept of a scalar, in bytes of its JSON text; longer ones are left out. */
const MAX_SCALAR = 1024;
/** Members are looked at on this depth and above; below it, only brackets and quotes matter. */
const DEEPEST = 2;

/** Strings are searched byte by byte this far, then natively: calls out of the engine are not worth it for short ones. */
const NEAR = 48;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * The scalars of one JSON object's first two levels, found while its bytes stream by, in constant memory: how a frame
 * too large to keep still becomes a turn, and how a number's own text is had where a double would lose it.
 *
 * Keys are dotted paths (`id`, `params.name`), values are the raw JSON text. An object or array leaves its own path
 * with an empty text. The first of two equal paths counts. Bytes that are not JSON give some answer, never an error.
 */
export class Skimmer {
  readonly #scalars = new Map<string, string>();
  #depth = 0;
  /** Whether the container on each depth up to DEEPEST + 1 is an object. */
  readonly #isObject: boolean[] = [];
  readonly #keys: string[] = [];
  #expectKey = false;
  #inString = false;
  #escaped = false;
  /** Text of the token being read, or undefined when it is not worth keeping. */
  #token: number[] | undefined;
  #inScalar = false;
  #opened = false;

  /** Whether brackets and quotes were all closed; what is between them was not judged. */
  get isClosed(): boolean {
    return this.#opened && this.#depth === 0 && !this.#inString;
  }

  /** Whether the outermost value is an array: a batch, whose members are not looked at. */
  get isArray(): boolean {
    return this.#isObject[1] === false;
  }

  get scalars(): ReadonlyMap<string, string> {
    return this.#scalars;
  }

  push(chunk: Uint8Array): void {
    for (let i = 0; i < chunk.length; i++) {
      if (this.#inString && this.#token === undefined) {
        i = this.#endOfString(chunk, i);
        if (i === chunk.length) return;
      }
      const c = chunk[i] as number;
      if (this.#inString) {
        this.#keep(c);
        if (this.#escaped) this.#escaped = false;
        else if (c === BACKSLASH) this.#escaped = true;
        else if (c === QUOTE) {
          this.#inString = false;
          this.#endString();
        }
        continue;
      }
      switch (c) {
        case QUOTE:
          this.#inString = true;
          this.#token = this.#depth <= DEEPEST ? [] : undefined;
          this.#keep(c);
          break;
        case 0x7b: // {
        case 0x5b: // [
          if (this.#depth >= 1 && this.#depth <= DEEPEST) this.#found('');
          this.#opened = true;
          this.#depth++;
          if (this.#depth <= DEEPEST + 1) this.#isObject[this.#depth] = c === 0x7b;
          this.#expectKey = c === 0x7b;
          break;
        case 0x7d: // }
        case 0x5d: // ]
          this.#endScalar();
          if (this.#depth > 0) this.#depth--;
          this.#expectKey = false;
          break;
        case 0x2c: // ,
          this.#endScalar();
          this.#expectKey = this.#depth <= DEEPEST && this.#isObject[this.#depth] === true;
          break;
        case 0x3a: // :
        case 0x20:
        case 0x09:
        case 0x0a:
        case 0x0d:
          this.#endScalar();
          break;
        default:
          if (this.#depth > DEEPEST) break;
          if (!this.#inScalar) {
            this.#inScalar = true;
            this.#token = [];
          }
          this.#keep(c);
      }
    }
  }

  /**
   * Where the string that is being passed over ends, from `from` on, or the length of the chunk; there `#escaped` is
   * what the last byte made it.
   */
  #endOfString(chunk: Uint8Array, from: number): number {
    let i = from;
    if (this.#escaped) {
      this.#escaped = false;
      i++;
    }
    for (;;) {
      const near = Math.min(chunk.length, i + NEAR);
      for (; i < near; i++) {
        const c = chunk[i];
        if (c === QUOTE) return i;
        if (c === BACKSLASH && ++i === chunk.length) {
          this.#escaped = true;
          return i;
        }
      }
      if (i >= chunk.length) return chunk.length;
      const quote = chunk.indexOf(QUOTE, i);
      const end = quote < 0 ? chunk.length : quote;
      let before = end;
      while (before > i && chunk[before - 1] === BACKSLASH) before--;
      const escapes = (end - before) % 2 === 1;
      if (quote < 0) {
        this.#escaped = escapes;
        return end;
      }
      if (!escapes) return quote;
      i = quote + 1;
    }
  }

  #keep(c: number): void {
    if (this.#token === undefined) return;
    if (this.#token.length === MAX_SCALAR) this.#token = undefined;
    else this.#token.push(c);
  }

  #text(): string | undefined {
    return this.#token === undefined ? undefined : Buffer.from(this.#token).toString('utf8');
  }

  #endString(): void {
    if (this.#depth > DEEPEST) return;
    const text = this.#text();
    if (this.#expectKey) {
      this.#expectKey = false;
      this.#keys[this.#depth] = text === undefined ? '?' : unquote(text);
    } else {
      this.#found(text);
    }
    this.#token = undefined;
  }

  #endScalar(): void {
    if (!this.#inScalar) return;
    this.#inScalar = false;
    this.#found(this.#text());
    this.#token = undefined;
  }

  #found(text: string | undefined): void {
    if (text === undefined) return;
    for (let depth = 1; depth <= this.#depth; depth++) if (this.#isObject[depth] !== true) return;
    const path = this.#keys.slice(1, this.#depth + 1).join('.');
    if (path !== '' && !this.#scalars.has(path)) this.#scalars.set(path, text);
  }
}

/** A key as a part of a path; one with a dot of its own could be taken for two. */
function unquote(text: string): string {
  try {
    const key = JSON.parse(text) as string;
    return key.includes('.') ? '?' : key;
  } catch {
    return '?';
  }
}
