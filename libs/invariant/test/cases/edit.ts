import type { Cause } from '../../src/weakening/compare.js';
import type { Edited } from '../../src/weakening/judge-tests.js';

/** One edit of tests, and what it is. */
export interface EditCase {
  readonly framework: string;
  readonly name: string;
  readonly edits: readonly Edited[];
  /** What the edit has to be found as; absent: it is honest, and nothing may be found. */
  readonly weakens?: Cause;
}

type Swap = readonly [from: string, to: string];

/** Edits of one file of one framework. */
export class Edits {
  readonly cases: EditCase[] = [];
  readonly #framework: string;
  readonly #path: string;
  readonly #source: string;

  constructor(framework: string, path: string, source: string) {
    this.#framework = framework;
    this.#path = path;
    this.#source = source;
  }

  #edited(name: string, swaps: readonly Swap[]): string {
    let text = this.#source;
    for (const [from, to] of swaps) {
      if (!text.includes(from)) throw new Error(`${this.#framework}, ${name}: nothing to replace: ${from}`);
      text = text.replace(from, () => to);
    }
    if (text === this.#source) throw new Error(`${this.#framework}, ${name}: changes nothing`);
    return text;
  }

  weakens(weakens: Cause, name: string, ...swaps: Swap[]): this {
    const edits = [{ path: this.#path, before: this.#source, after: this.#edited(name, swaps) }];
    this.cases.push({ framework: this.#framework, name, edits, weakens });
    return this;
  }

  honest(name: string, ...swaps: Swap[]): this {
    const edits = [{ path: this.#path, before: this.#source, after: this.#edited(name, swaps) }];
    this.cases.push({ framework: this.#framework, name, edits });
    return this;
  }

  /** `after` by path; a text made from the source where it is a function. The file itself goes where it is not named. */
  moves(
    name: string,
    weakens: Cause | undefined,
    after: Readonly<Record<string, string | ((source: string) => string)>>,
  ): this {
    const edits: Edited[] = Object.entries(after).map(([path, made]) => ({
      path,
      ...(path === this.#path ? { before: this.#source } : {}),
      after: typeof made === 'string' ? made : made(this.#source),
    }));
    if (!(this.#path in after)) edits.push({ path: this.#path, before: this.#source });
    this.cases.push({ framework: this.#framework, name, edits, ...(weakens ? { weakens } : {}) });
    return this;
  }
}
