/** Who is told what by inotify: one queue for all roots of a capturer. */

import { closeSync, readFileSync } from 'node:fs';
import { IN, type Inotify } from './native.js';
import type { TreeIndex } from './tree-index.js';

const OF_DIRECTORY =
  IN.MODIFY |
  IN.ATTRIB |
  IN.CLOSE_WRITE |
  IN.MOVED_FROM |
  IN.MOVED_TO |
  IN.CREATE |
  IN.DELETE |
  IN.DELETE_SELF |
  IN.MOVE_SELF |
  IN.ONLYDIR |
  IN.DONT_FOLLOW;
/** A new name of a file is told to nobody but who watches the file. */
const OF_FILE = IN.ATTRIB | IN.DONT_FOLLOW | IN.MASK_ADD;
const OF_LINKED_FILE = OF_FILE | IN.MODIFY | IN.CLOSE_WRITE;

/** Without it the kernel's default of the poorest machine is assumed. */
const DEFAULT_MAX_WATCHES = 8192;
const HEADER = 16;
const NO_NAME = Buffer.alloc(0);

/** What is watched for: an entry of its index has the number of its watch, and it is told of what the kernel tells. */
export interface Watched {
  readonly index: TreeIndex;
  /** The watch on an entry has ended by itself. */
  lost(id: number): void;
  event(id: number, mask: number, name: Buffer): void;
  /** A file with this inode was held by a process, or written to under another name. */
  held(ino: bigint, force: boolean): void;
}

/** Files are watched one by one while they are at most this share of what the user may watch. */
const SHARE_OF_FILES = 0.25;

export class Watches {
  readonly #inotify: Inotify;
  readonly #queue: number;
  readonly #events = Buffer.allocUnsafeSlow(256 * 1024);
  readonly #targets = new Map<number, { readonly tracker: Watched; readonly id: number }>();
  /** Their entries are gone; ended unless another takes them over before `sweep`. */
  readonly #left = new Set<number>();
  readonly #maxFiles: number;
  #files = 0;
  /** All files are watched too, so that a name given outside of the roots is noticed when it is given. */
  files: boolean;

  /** `maxFiles`: how many files are watched one by one. Throws EMFILE where the user has no queue left. */
  constructor(inotify: Inotify, maxFiles = maxWatches() * SHARE_OF_FILES) {
    this.#inotify = inotify;
    this.#queue = inotify.open();
    this.#maxFiles = maxFiles;
    this.files = maxFiles > 0;
  }

  /** Throws ENOSPC at the limit, and what else can be wrong with a path. */
  directory(tracker: Watched, id: number, path: Buffer): number {
    return this.#watch(tracker, id, path, OF_DIRECTORY);
  }

  /** Undefined: it could not be watched. */
  file(tracker: Watched, id: number, path: Buffer, linked: boolean): number | undefined {
    if (!linked && ++this.#files > this.#maxFiles) {
      this.files = false;
      return undefined;
    }
    try {
      return this.#watch(tracker, id, path, linked ? OF_LINKED_FILE : OF_FILE);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOSPC') this.files = false;
      // What is gone or may not be read is found out by who reads it.
      return undefined;
    }
  }

  /**
   * Of a file that is written to under names that nobody watches. Undefined: it could not be watched, or `isIt` says
   * after the watch was there that the path is another file by now.
   */
  linkedFile(tracker: Watched, id: number, path: Buffer, isIt: () => boolean): number | undefined {
    let watch: number;
    try {
      watch = this.#inotify.watch(this.#queue, path, OF_LINKED_FILE);
    } catch {
      return undefined;
    }
    if (!isIt()) {
      // Nobody's, or another entry's, whose it stays.
      if (!this.#targets.has(watch)) this.#left.add(watch);
      return undefined;
    }
    this.#targets.set(watch, { tracker, id });
    this.#left.delete(watch);
    return watch;
  }

  /** The entry is gone from the tree, or is another inode. */
  leave(watch: number, tracker: Watched, id: number): void {
    const target = this.#targets.get(watch);
    if (target?.tracker !== tracker || target.id !== id) return;
    for (const other of tracker.index.linksOf(id)) {
      if (other === id) continue;
      tracker.index.watch[other] = watch;
      this.#targets.set(watch, { tracker, id: other });
      return;
    }
    this.#targets.delete(watch);
    this.#left.add(watch);
  }

  /** The tracker is done with. */
  forget(tracker: Watched): void {
    for (const [watch, target] of this.#targets) {
      if (target.tracker !== tracker) continue;
      this.#targets.delete(watch);
      this.#left.add(watch);
    }
  }

  /** Ends the watches that nobody took over. */
  sweep(): void {
    for (const watch of this.#left) this.#inotify.unwatch(this.#queue, watch);
    this.#left.clear();
  }

  /**
   * Hands out what is in the queue. When it returns, everything that happened before it was called has been told,
   * unless it returns `overflow`: then something was not, and nobody knows what.
   */
  drain(trackers: readonly Watched[]): 'overflow' | undefined {
    const events = this.#events;
    let overflow = false;
    for (;;) {
      const length = this.#inotify.read(this.#queue, events);
      if (length === 0) return overflow ? 'overflow' : undefined;
      for (let at = 0; at + HEADER <= length;) {
        const watch = events.readInt32LE(at);
        const mask = events.readUInt32LE(at + 4);
        const size = events.readUInt32LE(at + 12);
        const start = at + HEADER;
        at = start + size;
        if ((mask & IN.Q_OVERFLOW) !== 0) {
          overflow = true;
          continue;
        }
        const target = this.#targets.get(watch);
        if ((mask & IN.IGNORED) !== 0) {
          this.#left.delete(watch);
          this.#targets.delete(watch);
          if (target?.tracker.index.watch[target.id] === watch) target.tracker.lost(target.id);
          continue;
        }
        if (!target) continue;
        const end = size === 0 ? start : events.indexOf(0, start);
        const name = size === 0 ? NO_NAME : events.subarray(start, end < 0 || end > at ? at : end);
        target.tracker.event(target.id, mask, name);
        // A file may have names in other roots.
        if (trackers.length > 1 && name.length === 0) {
          const ino = target.tracker.index.ino[target.id] as bigint;
          for (const tracker of trackers) if (tracker !== target.tracker) tracker.held(ino, true);
        }
      }
    }
  }

  close(): void {
    closeSync(this.#queue);
  }

  #watch(tracker: Watched, id: number, path: Buffer, mask: number): number {
    const watch = this.#inotify.watch(this.#queue, path, mask);
    this.#targets.set(watch, { tracker, id });
    this.#left.delete(watch);
    return watch;
  }
}

function maxWatches(): number {
  try {
    return Number(readFileSync('/proc/sys/fs/inotify/max_user_watches', 'latin1'));
  } catch {
    return DEFAULT_MAX_WATCHES;
  }
}
