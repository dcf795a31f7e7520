import { ExportError } from './error.js';

/** What is wrong in a list of many: how many times, and the first. */
export class Faults {
  #count = 0;
  #first: string | undefined;

  add(what: string): void {
    this.#count++;
    this.#first ??= what;
  }

  /** Throws when there is one. */
  require(): void {
    if (this.#first === undefined) return;
    throw new ExportError(
      'invalid',
      this.#count === 1 ? this.#first : `${this.#first}; and ${this.#count - 1} more`,
    );
  }
}
