/** What a command sees of the file system, as a list of mounts in the order in which they are made. */

import { lstatSync, readlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { SandboxError } from './error.js';
import { entriesOf, look, type Seen, within } from './hidden.js';
import type { Bind } from './policy.js';

export interface MountWishes {
  /** Folders that may be written, by the path they are to have; existing. */
  readonly roots: readonly string[];
  readonly binds: readonly Bind[];
  /** What may be neither read nor written. */
  readonly hidden: readonly Seen[];
  /** Folders that are empty and the command's own. */
  readonly fresh: readonly string[];
  /** Folders that are empty and can't be written. */
  readonly empty: readonly string[];
  /** Folders that are rebuilt from what is in them now, for the sake of what is hidden there. */
  readonly closed: readonly string[];
  /** Folders in which new things may be made, kept in memory; what is there already is seen and can't be written. */
  readonly growing: readonly string[];
  /** Seen as they are though they lie in one of these. */
  readonly shown: readonly Seen[];
  /** Folders of ours, seen read-only at another path. */
  readonly lent: readonly Bind[];
}

/** A folder that is rebuilt from its entries is mounted entry by entry; of larger ones that is not asked. */
export const MAX_ENTRIES = 1_024;
/** May be passed through, not listed: what lies deeper is mounted after it and has to be reached. */
const MASK_MODE = '0111';

interface Mount {
  readonly to: string;
  /** Among mounts at one path: the later one is seen. */
  readonly rank: number;
  readonly args: readonly string[];
}

/**
 * Arguments of bwrap that build the root. Shallow paths come before deep ones, so that a writable root in a hidden
 * folder is there, and so is a hidden folder in a writable root. `/dev` and `/proc` are the caller's.
 *
 * Throws SandboxError NOT_SUPPORTED where a folder would have to be rebuilt that has too many entries.
 */
export function mountArguments(wishes: MountWishes): string[] {
  const { roots, binds, hidden, fresh, empty, closed, growing, shown, lent } = wishes;
  const mounts: Mount[] = [];
  const sealed = new Set<string>();
  const covered = [...fresh, ...empty, ...growing];

  // A path that does not exist here gets its place in a folder rebuilt from its entries, the nearest one that exists.
  const rebuilt = new Set<string>(closed);
  const masked = new Set(hidden.filter(({ folder }) => !folder).map(({ path }) => path));
  for (const { to } of binds) {
    if (look(to) !== undefined || covered.some((folder) => within(to, folder))) continue;
    rebuilt.add(nearest(to));
  }
  for (const folder of [...rebuilt, ...growing]) {
    const entries = entriesOf(folder);
    if (entries.length > MAX_ENTRIES) {
      throw new SandboxError(
        'NOT_SUPPORTED',
        `${folder} has ${entries.length} entries: too many to make a place in it that this machine does not have`,
      );
    }
    if (folder !== '/')
      mounts.push({ to: folder, rank: 0, args: [...permissionsOf(folder), '--tmpfs', folder] });
    for (const name of entries) {
      const entry = join(folder, name);
      // A mask on top of the file itself would go with it.
      if (!rebuilt.has(entry) && !covered.includes(entry) && !masked.has(entry))
        mounts.push(...entryOf(entry));
    }
    if (rebuilt.has(folder)) sealed.add(folder);
  }
  if (!rebuilt.has('/')) mounts.push({ to: '/', rank: 0, args: ['--ro-bind', '/', '/'] });
  for (const folder of fresh) {
    mounts.push({ to: folder, rank: 1, args: ['--perms', '1777', '--tmpfs', folder] });
  }
  for (const folder of empty) {
    mounts.push({ to: folder, rank: 1, args: ['--perms', '0755', '--tmpfs', folder] });
    sealed.add(folder);
  }
  for (const { path } of shown) mounts.push({ to: path, rank: 2, args: ['--ro-bind', path, path] });
  for (const { from, to } of lent) mounts.push({ to, rank: 2, args: ['--ro-bind', from, to] });
  for (const root of roots) mounts.push({ to: root, rank: 3, args: ['--bind', root, root] });
  for (const { from, to } of binds) mounts.push({ to, rank: 4, args: ['--bind', from, to] });
  for (const { path, folder } of hidden) {
    mounts.push({
      to: path,
      rank: 5,
      // A device on a mount that has none can't be opened by anybody.
      args: folder ? ['--perms', MASK_MODE, '--tmpfs', path] : ['--ro-bind', '/dev/null', path],
    });
    if (folder) sealed.add(path);
  }
  mounts.sort((a, b) => depth(a.to) - depth(b.to) || a.rank - b.rank || (a.to < b.to ? -1 : 1));
  return [
    ...mounts.flatMap(({ args }) => args),
    // At the end: places for deeper mounts have been made in them by then.
    ...[...sealed].sort().flatMap((folder) => ['--remount-ro', folder]),
  ];
}

/** Those of the folder that is rebuilt: programs look at them. */
function permissionsOf(folder: string): string[] {
  try {
    return ['--perms', (lstatSync(folder).mode & 0o777).toString(8).padStart(4, '0')];
  } catch {
    return [];
  }
}

/** A folder with more in it is not rebuilt for the sake of a file: a server would wait too long for its start. */
const MAX_CLOSED = 128;
/** Nor is this one, which everything reads and which has something of every program in it. */
const SYSTEM = '/etc';

/**
 * What is mounted on a file to hide it goes when the file is replaced, as whoever stores a new token does: then the new
 * one is seen. In a folder that was rebuilt from its entries nothing is replaced, and nothing new appears. So those are
 * rebuilt that hidden files are in; `open` are the files for which it can't be done.
 */
export function closeFolders(
  hidden: readonly Seen[],
  { roots, binds }: Pick<MountWishes, 'roots' | 'binds'>,
): { readonly closed: string[]; readonly open: string[] } {
  const closed = new Set<string>();
  const open: string[] = [];
  const written = [...roots, ...binds.map(({ to }) => to)];
  for (const { path, folder } of hidden) {
    if (folder || hidden.some((other) => other.folder && within(path, other.path))) continue;
    const parent = dirname(path);
    const keeps =
      parent === '/' ||
      within(parent, SYSTEM) ||
      written.some((root) => within(parent, root)) ||
      (!closed.has(parent) && entriesOf(parent).length > MAX_CLOSED);
    if (keeps) open.push(path);
    else closed.add(parent);
  }
  return { closed: [...closed], open };
}

/** An entry of a rebuilt folder: a link as a link, everything else as it is. */
function entryOf(entry: string): Mount[] {
  try {
    return lstatSync(entry).isSymbolicLink()
      ? [{ to: entry, rank: 0, args: ['--symlink', readlinkSync(entry), entry] }]
      : [{ to: entry, rank: 0, args: ['--ro-bind-try', entry, entry] }];
  } catch {
    return [];
  }
}

function nearest(path: string): string {
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    const seen = look(folder);
    if (seen?.folder === true) return seen.path;
  }
}

const depth = (path: string): number => (path === '/' ? 0 : path.split('/').length - 1);
