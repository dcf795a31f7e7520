/**
 * JSON as people write it by hand (comments, trailing commas, a byte order mark), read into a tree that knows where
 * every value stands in the text. Nothing is ever printed from the tree: whoever changes a file replaces spans of its
 * text, so what was not touched stays as it was.
 */

/** Deeper nesting is refused before the stack is. */
const MAX_DEPTH = 256;

/** A half-open range of UTF-16 offsets into the text. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface JsoncObject extends Span {
  readonly type: 'object';
  /** In order of the text; a key that stands twice is here twice. */
  readonly members: readonly JsoncMember[];
}

export interface JsoncMember {
  readonly key: JsoncString;
  readonly value: JsoncNode;
}

export interface JsoncArray<Item = JsoncNode> extends Span {
  readonly type: 'array';
  readonly items: readonly Item[];
}

export interface JsoncString extends Span {
  readonly type: 'string';
  readonly value: string;
}

/** A number, `true`, `false` or `null`. */
export interface JsoncScalar extends Span {
  readonly type: 'scalar';
}

export type JsoncNode = JsoncObject | JsoncArray | JsoncString | JsoncScalar;

/** Where a text stops being JSON; line and column count from 1. */
export class JsoncError extends Error {
  readonly line: number;
  readonly column: number;

  constructor(text: string, offset: number, message: string) {
    const before = text.slice(0, offset).split(/\r\n|\r|\n/);
    super(`line ${before.length}, column ${(before.at(-1) ?? '').length + 1}: ${message}`);
    this.name = 'JsoncError';
    this.line = before.length;
    this.column = (before.at(-1) ?? '').length + 1;
  }
}

const BLANK = /(?:[ \t\r\n]|\/\/[^\r\n]*|\/\*[^]*?\*\/)*/y;
// oxlint-disable-next-line eslint/no-control-regex -- JSON's own rule: none of these in a string
const STRING = /"(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"/y;
const SCALAR = /(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y;

class Reader {
  readonly #text: string;
  #at: number;

  constructor(text: string) {
    this.#text = text;
    this.#at = text.startsWith('\ufeff') ? 1 : 0;
  }

  document(): JsoncNode {
    this.#skip();
    const value = this.#value(0);
    this.#skip();
    if (this.#at < this.#text.length) throw this.#error('something stands after the end of the document');
    return value;
  }

  #value(depth: number): JsoncNode {
    if (depth > MAX_DEPTH) throw this.#error(`nested more than ${MAX_DEPTH} deep`);
    switch (this.#text[this.#at]) {
      case '{':
        return this.#object(depth);
      case '[':
        return this.#array(depth);
      case '"':
        return this.#string();
      default: {
        const start = this.#at;
        if (this.#match(SCALAR) === undefined) {
          throw this.#error(start < this.#text.length ? 'not a JSON value' : 'the text ends too early');
        }
        return { type: 'scalar', start, end: this.#at };
      }
    }
  }

  #object(depth: number): JsoncObject {
    const start = this.#at++;
    const members: JsoncMember[] = [];
    this.#list('}', () => {
      if (this.#text[this.#at] !== '"') throw this.#error('a name in quotes is expected');
      const key = this.#string();
      this.#skip();
      if (this.#text[this.#at] !== ':') throw this.#error('":" is expected');
      this.#at++;
      this.#skip();
      members.push({ key, value: this.#value(depth + 1) });
    });
    return { type: 'object', start, end: this.#at, members };
  }

  #array(depth: number): JsoncArray {
    const start = this.#at++;
    const items: JsoncNode[] = [];
    this.#list(']', () => items.push(this.#value(depth + 1)));
    return { type: 'array', start, end: this.#at, items };
  }

  /** Members up to `close`, a comma after each but the last, where it may stand. */
  #list(close: string, member: () => void): void {
    for (;;) {
      this.#skip();
      if (this.#text[this.#at] === close) break;
      member();
      this.#skip();
      if (this.#text[this.#at] === ',') this.#at++;
      else if (this.#text[this.#at] !== close) throw this.#error(`"," or "${close}" is expected`);
    }
    this.#at++;
  }

  #string(): JsoncString {
    const start = this.#at;
    const token = this.#match(STRING);
    if (token === undefined) throw this.#error('a string that does not end, or holds what it may not');
    return { type: 'string', start, end: this.#at, value: JSON.parse(token) as string };
  }

  #skip(): void {
    this.#match(BLANK);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  #error(message: string): JsoncError {
    return new JsoncError(this.#text, this.#at, message);
  }
}

/** Reads a text. Throws JsoncError with line and column. */
export function parseJsonc(text: string): JsoncNode {
  return new Reader(text).document();
}

/** One replacement in a text; an insertion has an empty span. */
export interface Edit extends Span {
  readonly text: string;
}

/** Applies edits that don't overlap, whatever their order. */
export function applyEdits(text: string, edits: readonly Edit[]): string {
  let result = '';
  let at = 0;
  for (const edit of edits.toSorted((a, b) => a.start - b.start)) {
    if (edit.start < at) throw new RangeError('two edits of a text overlap');
    result += text.slice(at, edit.start) + edit.text;
    at = edit.end;
  }
  return result + text.slice(at);
}
