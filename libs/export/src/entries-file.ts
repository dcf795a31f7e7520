import { canonical, MAX_ENTRY_BYTES } from '@belay/envelope';
import { CompactRange, decompose, HASH_SIZE, leafHash, type NodeId } from '@belay/merkle';
import { parseBase64 } from '@belay/note';
import { Carry } from './carry.js';
import { ExportError } from './error.js';

/** Indexes [from, to). */
export interface IndexSpan {
  readonly from: number;
  readonly to: number;
}

const LF = 0x0a;
const LF_BYTES = Buffer.from([LF]);
/** How an omitted span's line begins; a collector's line never does. */
const OMITTED = Buffer.from('{"hashes":[');
/** No decomposition has more hashes than 128. */
const MAX_OMITTED_LINE = 8 * 1024;

/** Hashes of nodes of the log's tree, in the order asked for. */
export type NodeSource = (ids: readonly NodeId[]) => Promise<readonly Buffer[]>;

/** The line that stands for the entries of a span. */
function omittedLine(hashes: readonly Buffer[], { from, to }: IndexSpan): Buffer {
  const line = canonical({ hashes: hashes.map((hash) => hash.toString('base64')), omitted: { from, to } });
  return Buffer.from(`${line}\n`);
}

/** Parts of a span, cut at the sizes that are inside. `sizes` ascend. */
export function cutAt({ from, to }: IndexSpan, sizes: readonly number[]): IndexSpan[] {
  const parts: IndexSpan[] = [];
  let begin = from;
  for (const size of sizes) {
    if (size <= begin) continue;
    if (size >= to) break;
    parts.push({ from: begin, to: size });
    begin = size;
  }
  parts.push({ from: begin, to });
  return parts;
}

/** Makes the lines of `entries.ndjson`, and the root that they lead to. */
export class EntriesWriter {
  readonly #range = CompactRange.empty();

  /** Entries and omitted ones so far. */
  get size(): number {
    return Number(this.#range.end);
  }

  root(): Buffer {
    return this.#range.root();
  }

  /** The lines of the next entry, and its leaf hash. */
  entry(bytes: Buffer): { readonly lines: readonly Buffer[]; readonly leaf: Buffer } {
    const leaf = leafHash(bytes);
    this.#range.append(leaf);
    return { lines: [bytes, LF_BYTES], leaf };
  }

  /** The line that stands for the entries up to `to`. */
  async omit(to: number, nodes: NodeSource): Promise<Buffer> {
    const from = this.size;
    const [begin, end] = [BigInt(from), BigInt(to)];
    const hashes = await nodes(decompose(begin, end));
    this.#range.appendRange(CompactRange.from(begin, end, hashes));
    return omittedLine(hashes, { from, to });
  }
}

/** An entry, or a span that was left out. */
export type EntriesItem =
  | {
      readonly index: number;
      /** Collector's line, LF, body. */
      readonly bytes: Buffer;
      readonly leaf: Buffer;
      /** Where it begins in the file. */
      readonly at: number;
    }
  | { readonly omitted: IndexSpan };

/**
 * Reads `entries.ndjson` block by block, in its one form. `sizes` are those at which omitted spans are cut, ascending:
 * the root at each of them is in `roots` once it was passed. Throws ExportError `malformed`.
 */
export class EntriesReader {
  readonly #size: number;
  readonly #sizes: readonly number[];
  readonly #range = CompactRange.empty();
  /** Base64: a hash in a Buffer of its own keeps far more memory than it has bytes. */
  readonly roots = new Map<number, string>();
  #next = 0;
  #nextSize = 0;
  readonly #rest = new Carry();
  #read = 0;
  #omittedBefore = false;
  entries = 0;
  omitted = 0;

  constructor(size: number, sizes: readonly number[]) {
    this.#size = size;
    this.#sizes = sizes;
    this.#passSizes();
  }

  /** What the next block of the file completes. Its bytes are good until the next call. */
  push(block: Buffer): EntriesItem[] {
    const base = this.#read - this.#rest.size;
    const bytes = this.#rest.join(block);
    this.#read += block.length;
    const items: EntriesItem[] = [];
    let at = 0;
    for (;;) {
      const first = bytes.indexOf(LF, at);
      if (first < 0) break;
      if (bytes.compare(OMITTED, 0, OMITTED.length, at, Math.min(at + OMITTED.length, bytes.length)) === 0) {
        items.push({ omitted: this.#omit(bytes.subarray(at, first)) });
        at = first + 1;
        continue;
      }
      const second = bytes.indexOf(LF, first + 1);
      if (second < 0) break;
      items.push(this.#entry(bytes.subarray(at, second), base + at));
      at = second + 1;
    }
    this.#rest.drop(at);
    if (this.#rest.size > Math.max(MAX_ENTRY_BYTES, MAX_OMITTED_LINE))
      throw malformed('a line that is too long');
    return items;
  }

  /** Nothing follows. Returns the root of the whole. */
  end(): Buffer {
    if (this.#rest.size > 0) throw malformed('its last line has no end');
    if (this.#next !== this.#size) throw malformed(`it ends after ${this.#next} entries of ${this.#size}`);
    return this.#range.root();
  }

  #entry(bytes: Buffer, at: number): EntriesItem {
    const index = this.#next;
    if (bytes.length > MAX_ENTRY_BYTES) throw malformed(`entry ${index} is too long`);
    if (index >= this.#size) throw malformed('it has more entries than the checkpoint covers');
    const leaf = leafHash(bytes);
    this.#range.append(leaf);
    this.#next++;
    this.entries++;
    this.#omittedBefore = false;
    this.#passSizes();
    return { index, bytes, leaf, at };
  }

  #omit(line: Buffer): IndexSpan {
    if (line.length > MAX_OMITTED_LINE) throw malformed('a line that is too long');
    const { hashes, span } = parseOmitted(line);
    const { from, to } = span;
    if (from !== this.#next || to > this.#size) throw malformed('an omitted span is not where it says');
    const inside = this.#sizes[this.#nextSize];
    if (inside !== undefined && inside < to) throw malformed(`an omitted span is not cut at ${inside}`);
    if (this.#omittedBefore && !this.roots.has(from)) throw malformed('two omitted spans that should be one');
    this.#range.appendRange(CompactRange.from(BigInt(from), BigInt(to), hashes));
    this.#next = to;
    this.omitted += to - from;
    this.#omittedBefore = true;
    this.#passSizes();
    return span;
  }

  #passSizes(): void {
    while (this.#sizes[this.#nextSize] === this.#next) {
      if (!this.roots.has(this.#next)) this.roots.set(this.#next, this.#range.root().toString('base64'));
      this.#nextSize++;
    }
  }
}

function parseOmitted(line: Buffer): { readonly hashes: readonly Buffer[]; readonly span: IndexSpan } {
  try {
    const { hashes, omitted } = JSON.parse(line.toString('latin1')) as {
      hashes: readonly string[];
      omitted: { from: number; to: number };
    };
    const span = { from: omitted.from, to: omitted.to };
    if (Number.isSafeInteger(span.from) && Number.isSafeInteger(span.to) && span.from < span.to) {
      const parsed = hashes.map(parseBase64);
      const whole = parsed.every(({ length }) => length === HASH_SIZE);
      const again = omittedLine(parsed, span);
      if (whole && again.subarray(0, -1).equals(line)) return { hashes: parsed, span };
    }
  } catch {
    // What can't be read is refused below like what is written in another way.
  }
  throw malformed('the line of an omitted span is not of its form');
}

function malformed(what: string): ExportError {
  return new ExportError('malformed', `entries.ndjson: ${what}`);
}
