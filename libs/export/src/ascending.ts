/** Ascending indexes, by what each is past the one before: mostly a byte each, where an array has eight. */
export class Ascending implements Iterable<number> {
  #bytes = new Uint8Array(32);
  #used = 0;
  #last = 0;
  length = 0;

  /** Takes an index that is not below the last one. */
  push(index: number): void {
    if (this.#used + 8 > this.#bytes.length) {
      const larger = new Uint8Array(this.#bytes.length * 2);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    let rest = index - this.#last;
    // Seven bits at a time, the least first; by division, since an index may have more than 32.
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.#bytes[this.#used++] = 128 | (rest % 128);
    this.#bytes[this.#used++] = rest;
    this.#last = index;
    this.length++;
  }

  *[Symbol.iterator](): Generator<number> {
    let index = 0;
    let step = 0;
    let unit = 1;
    for (let at = 0; at < this.#used; at++) {
      const byte = this.#bytes[at] as number;
      step += (byte % 128) * unit;
      unit *= 128;
      if (byte >= 128) continue;
      index += step;
      yield index;
      [step, unit] = [0, 1];
    }
  }

  /** How many are not below an index. */
  countFrom(index: number): number {
    let count = 0;
    for (const each of this) if (each >= index) count++;
    return count;
  }
}
