import { join } from 'node:path';
import type { SignedHead } from './ack.js';
import { logDir, makeDir, readJson, replaceJson } from './state.js';

/** The file of a log's last verified head. */
interface StoredHead extends SignedHead {
  readonly v: 1;
  readonly log: string;
}

/**
 * The last head of a log that this machine verified, shared by its processes. It only moves along verified links: a
 * head replaces exactly the one it was proved to have grown from. A process that was overtaken keeps the other's head
 * and proves its next one from there, so that two branches shown to two processes are found.
 */
export class HeadStore {
  readonly #path: string;
  readonly #origin: string;

  constructor(state: string, origin: string) {
    const folder = logDir(state, origin);
    makeDir(folder);
    this.#path = join(folder, 'head.json');
    this.#origin = origin;
  }

  /** Undefined before the first ack. Throws when the file is not one: that is not to be taken for a first time. */
  read(): SignedHead | undefined {
    const stored = readJson(this.#path) as StoredHead | undefined;
    if (stored === undefined) return undefined;
    const { v, log, size, root, signature } = stored;
    if (v !== 1 || log !== this.#origin || !Number.isSafeInteger(size) || typeof root !== 'string') {
      throw new Error(`${this.#path} is not a stored head of ${this.#origin}`);
    }
    return { size, root, signature };
  }

  /**
   * Moves from `before` to `head`; does nothing when another process moved it meanwhile, or it did not grow. Durable when
   * it resolves; the disk is waited for by nobody else.
   */
  async advance(before: SignedHead | undefined, head: SignedHead): Promise<void> {
    if (before !== undefined && head.size <= before.size) return;
    const unmoved = (): boolean => {
      const stored = this.read();
      return stored?.size === before?.size && stored?.root === before?.root;
    };
    if (!unmoved()) return;
    await replaceJson(this.#path, { v: 1, log: this.#origin, ...head } satisfies StoredHead, unmoved);
  }
}
