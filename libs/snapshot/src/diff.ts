/** What is different between two trees, path by path. */

import { Beneath, byBytes, splitPath } from './beneath.js';
import { IgnoreRules, joinPath as absolutePath } from './ignore.js';
import type { Entry } from './manifest.js';
import { loadNative } from './native.js';
import type { Store } from './store.js';
import { walk } from './walk.js';

/** In what two entries of one path differ. */
export type Field =
  'type' | 'content' | 'size' | 'target' | 'mode' | 'uid' | 'gid' | 'mtime' | 'xattrs' | 'linkGroup';

export interface Difference {
  /** Position among the state's roots. */
  readonly root: number;
  /** Relative to the root. */
  readonly path: Buffer;
  /** `modified`: another content or link target. `metadata`: only what surrounds it. `type`: something else altogether. */
  readonly what: 'created' | 'deleted' | 'modified' | 'metadata' | 'type';
  /** Empty for `created` and `deleted`. */
  readonly fields: readonly Field[];
  readonly before?: Entry;
  readonly after?: Entry;
  /** Created, and nothing that a state can have (so there is no `after`): a socket, FIFO or device. */
  readonly special?: string;
}

/** The difference at one path; undefined where there is none. */
export function difference(
  root: number,
  before: Entry | undefined,
  after: Entry | undefined,
): Difference | undefined {
  if (!before || !after) {
    if (after) return { root, path: after.path, what: 'created', fields: [], after };
    if (before) return { root, path: before.path, what: 'deleted', fields: [], before };
    return undefined;
  }
  const fields = differingFields(before, after);
  if (fields.length === 0) return undefined;
  const what = fields.includes('type')
    ? 'type'
    : fields.includes('content') || fields.includes('target')
      ? 'modified'
      : 'metadata';
  return { root, path: after.path, what, fields, before, after };
}

function differingFields(a: Entry, b: Entry): Field[] {
  const fields: Field[] = [];
  if (a.type !== b.type) fields.push('type');
  if (!sameBytes(a.content, b.content)) fields.push('content');
  if (a.size !== b.size) fields.push('size');
  if (!sameBytes(a.target, b.target)) fields.push('target');
  if (a.mode !== b.mode) fields.push('mode');
  if (a.uid !== b.uid) fields.push('uid');
  if (a.gid !== b.gid) fields.push('gid');
  if (a.mtime !== b.mtime) fields.push('mtime');
  if (!sameXattrs(a.xattrs, b.xattrs)) fields.push('xattrs');
  if (!sameBytes(a.linkGroup, b.linkGroup)) fields.push('linkGroup');
  return fields;
}

const sameBytes = (a: Buffer | undefined, b: Buffer | undefined): boolean =>
  a === undefined || b === undefined ? a === b : a.equals(b);

function sameXattrs(a: Entry['xattrs'] = [], b: Entry['xattrs'] = []): boolean {
  return (
    a.length === b.length &&
    a.every(([name, value], i) => b[i] !== undefined && name.equals(b[i][0]) && value.equals(b[i][1]))
  );
}

/** All differences between two trees, in order of the paths' bytes. The entries may come in any order. */
export function diff(before: Iterable<Entry>, after: Iterable<Entry>, root = 0): Difference[] {
  const olds = new Map<string, Entry>();
  for (const entry of before) olds.set(entry.path.toString('latin1'), entry);
  const found: Difference[] = [];
  for (const entry of after) {
    const key = entry.path.toString('latin1');
    const different = difference(root, olds.get(key), entry);
    olds.delete(key);
    if (different) found.push(different);
  }
  for (const entry of olds.values())
    found.push({ root, path: entry.path, what: 'deleted', fields: [], before: entry });
  return found.sort((a, b) => byBytes(a.path, b.path));
}

/** Differences of two states, by root. */
export interface StateDifference {
  /** Absolute path of the root in the states. */
  readonly root: Buffer;
  /** Which of the states has it. */
  readonly in: 'both' | 'before' | 'after';
  readonly differences: readonly Difference[];
}

/** Compares two states of a store, root by root; a root that one of them lacks is created or deleted as a whole. */
export function diffStates(store: Store, before: string, after: string): StateDifference[] {
  const [olds, news] = [store.manifest(before), store.manifest(after)];
  const paths = new Map<string, { before?: number; after?: number; root: Buffer }>();
  olds.state.roots.forEach(({ path }, i) => paths.set(path.toString('latin1'), { root: path, before: i }));
  news.state.roots.forEach(({ path }, i) => {
    const key = path.toString('latin1');
    paths.set(key, { ...paths.get(key), root: path, after: i });
  });
  return [...paths.values()].map((each) => ({
    root: each.root,
    in: each.before === undefined ? 'after' : each.after === undefined ? 'before' : 'both',
    differences: diff(
      each.before === undefined ? [] : olds.entries(each.before),
      each.after === undefined ? [] : news.entries(each.after),
      each.after ?? each.before ?? 0,
    ),
  }));
}

/**
 * Compares a state with what is there now of its roots, which is only read. A root that is not there, or is no
 * directory, is deleted as a whole. Throws WalkError where there is what no state can have.
 */
export function diffWithDisk(store: Store, digest: string): StateDifference[] {
  const manifest = store.manifest(digest);
  const rules = new IgnoreRules(manifest.state.ignored);
  return manifest.state.roots.map(({ path: root }, i) => {
    const entries = [...manifest.entries(i)];
    let beneath: Beneath;
    try {
      beneath = new Beneath(root, loadNative());
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== 'ENOENT' && code !== 'ENOTDIR') throw error;
      return { root, in: 'before', differences: diff(entries, [], i) };
    }
    try {
      const ignored = (path: Buffer): boolean => {
        const { parent, name } = splitPath(path);
        return rules.ignores(name, () => absolutePath(root, parent));
      };
      return { root, in: 'both', differences: diff(entries, walk(beneath, { ignored }).entries, i) };
    } finally {
      beneath.close();
    }
  });
}

/** A path, and what is there in the later state; undefined: nothing. */
export interface Changed {
  readonly root: number;
  readonly path: Buffer;
  readonly entry: Entry | undefined;
}

/**
 * Paths that may differ between two states with the same roots, with what is there in the later one. Costs what was
 * changed where the later state was kept as changes of the earlier; undefined where it was not.
 */
export function changesSince(store: Store, before: string, after: string): Changed[] | undefined {
  const chain: string[] = [];
  for (let at: string | undefined = after; at !== before; at = store.info(at)?.parent) {
    if (at === undefined) return undefined;
    chain.push(at);
  }
  const last = new Map<string, Changed>();
  for (const each of chain.reverse()) {
    for (const change of store.delta(each)?.changes ?? [])
      last.set(`${change.root}:${change.path.toString('latin1')}`, change);
  }
  return [...last.values()];
}
