/**
 * Other paths to the same things. A file system may be mounted more than once, whole or in part (bind mounts, subvolumes,
 * a disk beside the folder that is a part of it): what is hidden, or a socket that is masked, is reached by each of them.
 */

import { lstatSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Seen, within } from './hidden.js';

interface Mount {
  /** `major:minor`: equal where the file system is the same. */
  readonly device: string;
  /** What of the file system is mounted. */
  readonly root: string;
  readonly point: string;
}

/** Of `/proc/self/mountinfo`. */
export function mountsOf(text: string): Mount[] {
  return text.split('\n').flatMap((line) => {
    const [, , device, root, point] = line.split(' ');
    if (device === undefined || root === undefined || point === undefined) return [];
    return [{ device, root: plain(root), point: plain(point) }];
  });
}

/** Spaces and the like are said in octal. */
const plain = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));

/** Where else `path` would be, by the mounts alone. */
export function otherPaths(path: string, mounts: readonly Mount[]): string[] {
  // Of several at one point the last is seen.
  const own = mounts
    .filter(({ point }) => within(path, point))
    .reduce<Mount | undefined>(
      (best, each) => (best && best.point.length > each.point.length ? best : each),
      undefined,
    );
  if (own === undefined) return [];
  const inside = join(own.root, path.slice(own.point === '/' ? 0 : own.point.length));
  return mounts.flatMap(({ device, root, point }) => {
    if (device !== own.device || !within(inside, root)) return [];
    const other = join(point, inside.slice(root === '/' ? 0 : root.length));
    return other === path ? [] : [other];
  });
}

/** The same things at their other paths; those that something else is mounted over are not there. */
export function aliasesOf(things: readonly Seen[]): Seen[] {
  let mounts: Mount[];
  try {
    mounts = mountsOf(readFileSync('/proc/self/mountinfo', 'utf8'));
  } catch {
    return [];
  }
  const known = new Set(things.map(({ path }) => path));
  return things.flatMap((thing) =>
    otherPaths(thing.path, mounts).flatMap((path) =>
      !known.has(path) && isSame(thing.path, path) ? [{ path, folder: thing.folder }] : [],
    ),
  );
}

function isSame(a: string, b: string): boolean {
  try {
    const [one, other] = [lstatSync(a, { bigint: true }), lstatSync(b, { bigint: true })];
    return one.dev === other.dev && one.ino === other.ino;
  } catch {
    return false;
  }
}
