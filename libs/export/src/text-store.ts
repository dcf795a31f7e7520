const CHUNK = 1024 * 1024;
/** Chunk and offset of a text in one number. */
const WITHIN = 2 ** 32;
const LENGTH = 4;

/**
 * Texts by name, outside of the heap: what is rarely looked at costs no collection there, and none of the room that the
 * heap adds to what it holds. A text that takes another's place leaves a hole; holes are closed when they are half of it.
 */
export class TextStore {
  /** Where each text stands: its length, then its bytes. */
  readonly #places = new Map<string, number>();
  #chunks: Buffer[] = [];
  #used = CHUNK;
  #live = 0;
  #holes = 0;

  /** Bytes of memory that it has. */
  get bytes(): number {
    return this.#chunks.reduce((sum, { length }) => sum + length, 0);
  }

  get(name: string): string | undefined {
    const place = this.#places.get(name);
    if (place === undefined) return undefined;
    const record = this.#record(place);
    return record.toString('utf8', LENGTH);
  }

  set(name: string, text: string): void {
    const before = this.#places.get(name);
    if (before !== undefined) {
      const { length } = this.#record(before);
      this.#live -= length;
      this.#holes += length;
    }
    const length = Buffer.byteLength(text);
    const record = this.#room(LENGTH + length);
    record.bytes.writeUInt32LE(length);
    record.bytes.write(text, LENGTH);
    this.#places.set(name, record.place);
    if (this.#holes > this.#live + 4 * CHUNK) this.#close();
  }

  #record(place: number): Buffer {
    const chunk = this.#chunks[Math.floor(place / WITHIN)] as Buffer;
    const at = place % WITHIN;
    return chunk.subarray(at, at + LENGTH + chunk.readUInt32LE(at));
  }

  #room(size: number): { readonly place: number; readonly bytes: Buffer } {
    const last = this.#chunks.at(-1);
    if (last === undefined || this.#used + size > last.length) {
      this.#chunks.push(Buffer.allocUnsafeSlow(Math.max(CHUNK, size)));
      this.#used = 0;
    }
    const at = this.#used;
    this.#used += size;
    this.#live += size;
    const number = this.#chunks.length - 1;
    const bytes = (this.#chunks[number] as Buffer).subarray(at, at + size);
    return { place: number * WITHIN + at, bytes };
  }

  #close(): void {
    const records = [...this.#places].map(([name, place]) => ({ name, record: this.#record(place) }));
    [this.#chunks, this.#used, this.#live, this.#holes] = [[], CHUNK, 0, 0];
    for (const { name, record } of records) {
      const { place, bytes } = this.#room(record.length);
      record.copy(bytes);
      this.#places.set(name, place);
    }
  }
}
