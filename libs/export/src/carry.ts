/**
 * The rest of what a reader of blocks has not used up, and the block that follows it, side by side in one memory that is
 * used again for each: blocks of a large file put together anew would be garbage faster than it is collected.
 */
export class Carry {
  #memory: Buffer = Buffer.alloc(0);
  /** What waits is [from, end) of the memory. It stays where it is until the next block comes. */
  #from = 0;
  #end = 0;

  /** Bytes that wait for the next block. */
  get size(): number {
    return this.#end - this.#from;
  }

  /** The rest and a block. Good until the next call. */
  join(block: Buffer): Buffer {
    const rest = this.size;
    const size = rest + block.length;
    if (size > this.#memory.length) {
      const larger = Buffer.allocUnsafeSlow(Math.ceil(size * 1.25));
      this.#memory.copy(larger, 0, this.#from, this.#end);
      this.#memory = larger;
    } else this.#memory.copyWithin(0, this.#from, this.#end);
    block.copy(this.#memory, rest);
    this.#from = 0;
    this.#end = size;
    return this.#memory.subarray(0, size);
  }

  /** What is before `from` of the bytes last joined was used up. */
  drop(from: number): void {
    this.#from = from;
  }
}
