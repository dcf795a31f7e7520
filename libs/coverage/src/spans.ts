/** Numbers from `from` up to and without `to`; `from` is below `to`. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/**
 * A set of integers as its maximal spans, in order. Looking up costs the logarithm of their number; a change costs the
 * same and the moving of the bounds behind it.
 */
export class Spans {
  /** `from` and `to` of each span by turns, strictly ascending: an even position begins a span, an odd one ends it. */
  readonly #bounds: number[];

  /** `bounds` as `bounds()` gave them. Throws RangeError for what is not strictly ascending, or not in pairs. */
  constructor(bounds: readonly number[] = []) {
    const ascends = bounds.every(
      (bound, i) => Number.isSafeInteger(bound) && (i === 0 || bound > (bounds[i - 1] as number)),
    );
    if (bounds.length % 2 !== 0 || !ascends) throw new RangeError('these are not the bounds of spans');
    this.#bounds = bounds.slice();
  }

  has(number: number): boolean {
    return this.#after(number) % 2 === 1;
  }

  /** Whether every number of the span is in the set. */
  covers({ from, to }: Span): boolean {
    const at = this.#after(from);
    return at % 2 === 1 && (this.#bounds[at] as number) >= to;
  }

  add({ from, to }: Span): void {
    const begin = this.#before(from);
    const end = this.#after(to);
    this.#bounds.splice(
      begin,
      end - begin,
      ...(begin % 2 === 0 ? [from] : []),
      ...(end % 2 === 0 ? [to] : []),
    );
  }

  remove({ from, to }: Span): void {
    const begin = this.#before(from);
    const end = this.#after(to);
    this.#bounds.splice(
      begin,
      end - begin,
      ...(begin % 2 === 1 ? [from] : []),
      ...(end % 2 === 1 ? [to] : []),
    );
  }

  /** What the set has of a span. */
  within({ from, to }: Span): Span[] {
    const bounds = this.#bounds;
    const spans: Span[] = [];
    for (let i = this.#after(from) & ~1; i < bounds.length && (bounds[i] as number) < to; i += 2) {
      const span = {
        from: Math.max(from, bounds[i] as number),
        to: Math.min(to, bounds[i + 1] as number),
      };
      if (span.from < span.to) spans.push(span);
    }
    return spans;
  }

  /** What the set lacks of a span. */
  without({ from, to }: Span): Span[] {
    const spans: Span[] = [];
    let at = from;
    for (const span of this.within({ from, to })) {
      if (at < span.from) spans.push({ from: at, to: span.from });
      at = span.to;
    }
    if (at < to) spans.push({ from: at, to });
    return spans;
  }

  /** End of the span that begins at or before `number` and holds it; `number` itself when the set has it not. */
  endFrom(number: number): number {
    const at = this.#after(number);
    return at % 2 === 1 ? (this.#bounds[at] as number) : number;
  }

  /** One past the greatest number; 0 for the empty set. */
  get end(): number {
    return this.#bounds.at(-1) ?? 0;
  }

  /** How many numbers. */
  get count(): number {
    let count = 0;
    for (let i = 0; i < this.#bounds.length; i += 2) {
      count += (this.#bounds[i + 1] as number) - (this.#bounds[i] as number);
    }
    return count;
  }

  spans(): Span[] {
    const spans: Span[] = [];
    for (let i = 0; i < this.#bounds.length; i += 2) {
      spans.push({ from: this.#bounds[i] as number, to: this.#bounds[i + 1] as number });
    }
    return spans;
  }

  bounds(): number[] {
    return this.#bounds.slice();
  }

  /** How many bounds are below `number`. */
  #before(number: number): number {
    return this.#search((bound) => bound < number);
  }

  /** How many bounds are at or below `number`. */
  #after(number: number): number {
    return this.#search((bound) => bound <= number);
  }

  #search(below: (bound: number) => boolean): number {
    // Lines mostly come in order, so mostly the answer is the end.
    if (this.#bounds.length === 0 || below(this.#bounds.at(-1) as number)) return this.#bounds.length;
    let low = 0;
    let high = this.#bounds.length - 1;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (below(this.#bounds[middle] as number)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Whether two spans have a number in common. */
export function meet(a: Span, b: Span): boolean {
  return a.from < b.to && b.from < a.to;
}
