/** States kept by the slow way: a walk, every content read, the changes by comparing everything. */

import { closeSync, constants, readFileSync } from 'node:fs';
import { hash } from 'node:crypto';
import { Beneath } from '../src/beneath.js';
import { diff } from '../src/diff.js';
import { loadNative } from '../src/native.js';
import { type Entry, type Gap, makeState, treeDigest } from '../src/manifest.js';
import type { Store, StoreWriter } from '../src/store.js';
import { walk } from '../src/walk.js';

export class SlowCapturer {
  readonly #store: Store;
  readonly #writer: StoreWriter;
  readonly #roots: readonly Buffer[];
  #last: { readonly digest: string; readonly entries: Entry[][] } | undefined;

  constructor(store: Store, roots: readonly string[]) {
    this.#store = store;
    this.#writer = store.writer();
    this.#roots = roots.map((each) => Buffer.from(each));
  }

  /** `whole`: kept as a checkpoint. */
  capture({ whole = false, gaps = [] }: { whole?: boolean; gaps?: Gap[] } = {}): string {
    const entries = this.#roots.map((root) => {
      const beneath = new Beneath(root, loadNative());
      try {
        return walk(beneath, {
          content: (directory, name) => {
            const fd = directory.openFile(name, constants.O_RDONLY);
            try {
              const bytes = readFileSync(fd);
              const digest = hash('sha256', bytes, 'buffer');
              this.#writer.add(digest, bytes);
              return digest;
            } finally {
              closeSync(fd);
            }
          },
        }).entries;
      } finally {
        beneath.close();
      }
    });
    const state = makeState(
      this.#roots.map((path, i) => ({ path, tree: treeDigest(entries[i] ?? []) })),
      [],
      gaps,
    );
    const changes = entries.flatMap((list, root) =>
      diff(this.#last?.entries[root] ?? [], list, root).map(({ path, after }) => ({
        root,
        path,
        entry: after,
      })),
    );
    const parent = whole ? undefined : this.#last?.digest;
    const byPath = (list: Entry[]): Entry[] => list.toSorted((a, b) => Buffer.compare(a.path, b.path));
    const digest = this.#writer.keep(state, parent, changes, () => entries.map(byPath));
    this.#writer.sync();
    this.#last = { digest, entries };
    return digest;
  }

  get store(): Store {
    return this.#store;
  }

  close(): void {
    this.#writer.close();
    this.#store.close();
  }
}
