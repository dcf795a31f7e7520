/** Whether states of a store can be had, and are what their digests say. */

import { SnapshotError, type SnapshotErrorCode } from './error.js';
import { stateDigest, treeDigest } from './manifest.js';
import type { Manifest, Store } from './store.js';

export interface CheckedState {
  readonly digest: string;
  /** Entries of all roots. */
  readonly entries: number;
  /** Undefined: it is whole. */
  readonly problem?: { readonly code: SnapshotErrorCode; readonly detail: string };
}

/**
 * Reads states, takes their digests anew, and reads every content they have; a content that several have is read once.
 * Every state gets its answer, whatever is wrong with another.
 */
export function* checkStates(store: Store, digests: Iterable<string>): Generator<CheckedState> {
  const contents = new Map<string, SnapshotError | undefined>();
  let last: Manifest | undefined;
  for (const digest of digests) {
    let entries = 0;
    try {
      // What was read may be half changed into the next when that turns out damaged.
      const from = last;
      last = undefined;
      const manifest = store.manifest(digest, from);
      last = manifest;
      if (stateDigest(manifest.state) !== digest)
        throw new SnapshotError('malformed', 'what is kept under this digest is another state');
      for (const [root, { path, tree }] of manifest.state.roots.entries()) {
        entries += manifest.size(root);
        const list = [...manifest.entries(root)];
        if (!treeDigest(list).equals(tree))
          throw new SnapshotError(
            'malformed',
            `the entries of ${path.toString()} are not those of its digest`,
          );
        for (const { content } of list) if (content) checkContent(store, content, contents);
      }
      yield { digest, entries };
    } catch (error) {
      if (!(error instanceof SnapshotError)) throw error;
      yield { digest, entries, problem: { code: error.code, detail: error.message } };
    }
  }
}

function checkContent(store: Store, hash: Buffer, known: Map<string, SnapshotError | undefined>): void {
  const key = hash.toString('latin1');
  if (!known.has(key)) {
    let problem: SnapshotError | undefined;
    try {
      for (const _ of store.readContent(hash));
    } catch (error) {
      if (!(error instanceof SnapshotError)) throw error;
      problem = error;
    }
    known.set(key, problem);
  }
  const problem = known.get(key);
  if (problem) throw problem;
}
