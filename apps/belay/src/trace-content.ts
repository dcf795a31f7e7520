import { isUtf8 } from 'node:buffer';
import { type FileHandle, open } from 'node:fs/promises';
import { ContentReader, readRecordAt, recordData } from '@belay/trace';
import { JsoncError, parseJsonc } from './jsonc.js';
import type { Place } from './turns.js';

/** Content of a message, as text where it is text. */
export interface Shown {
  /** Without its line end; base64 where the bytes are not UTF-8. */
  readonly text: string;
  readonly encoding: 'utf8' | 'base64';
  /** One whole JSON value. */
  readonly json: boolean;
  /** Bytes left out at the end. */
  readonly cut: number;
}

/** How much of each message an export shows: none of it, the beginning, all. Bytes. */
export const CONTENT = { none: 0, short: 16 * 1024, full: Number.POSITIVE_INFINITY } as const;
export type ContentChoice = keyof typeof CONTENT;

/** Reads content of a trace again, by its place, one message in memory at a time. */
export class TraceContent {
  readonly #file: FileHandle;
  readonly #beside: ContentReader;
  readonly #limit: number;

  private constructor(file: FileHandle, beside: ContentReader, limit: number) {
    this.#file = file;
    this.#beside = beside;
    this.#limit = limit;
  }

  static async open(path: string, choice: ContentChoice): Promise<TraceContent> {
    return new TraceContent(await open(path, 'r'), new ContentReader(path), CONTENT[choice]);
  }

  /** Whether content is shown at all. */
  get wanted(): boolean {
    return this.#limit > 0;
  }

  async close(): Promise<void> {
    this.#beside.close();
    await this.#file.close();
  }

  /** Undefined when it is not wanted, was too large to keep, or is not what it was. */
  at(place: Place | undefined): Shown | undefined {
    if (place === undefined || place.oversize || this.#limit === 0) return undefined;
    const record = readRecordAt(this.#file.fd, place.offset, this.#beside);
    const data = record === undefined ? undefined : recordData(record);
    if (data === undefined) return undefined;
    const bytes = withoutLineEnd(data);
    if (!isUtf8(bytes)) {
      const kept = bytes.subarray(0, this.#limit);
      const cut = bytes.length - kept.length;
      return { text: kept.toString('base64'), encoding: 'base64', json: false, cut };
    }
    const text = memberOf(bytes.toString('utf8'), place.member);
    const size = Buffer.byteLength(text);
    if (size <= this.#limit) return { text, encoding: 'utf8', json: isJson(text), cut: 0 };
    const kept = text.slice(0, this.#limit);
    return { text: kept, encoding: 'utf8', json: false, cut: size - Buffer.byteLength(kept) };
  }
}

function withoutLineEnd(bytes: Buffer): Buffer {
  let end = bytes.length;
  if (bytes[end - 1] === 0x0a) end--;
  if (bytes[end - 1] === 0x0d) end--;
  return bytes.subarray(0, end);
}

/** One message of a batch, in its own text: reading and printing it anew would change numbers. */
function memberOf(text: string, member: number | undefined): string {
  if (member === undefined) return text;
  try {
    const batch = parseJsonc(text);
    const item = batch.type === 'array' ? batch.items[member] : undefined;
    return item === undefined ? text : text.slice(item.start, item.end);
  } catch (error) {
    if (error instanceof JsoncError) return text;
    throw error;
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
