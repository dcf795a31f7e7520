import { lstatSync, readFileSync, realpathSync, statfsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { SnapshotError } from './error.js';
import { IgnoreRules } from './ignore.js';
import { indexPath, readIndex, writeIndex } from './index-file.js';
import type { Change } from './journal.js';
import { type Entry, type Gap, makeState } from './manifest.js';
import { loadNative, type Native } from './native.js';
import { heldFiles, stopProcesses, withDescendants } from './processes.js';
import type { Store, StoreWriter } from './store.js';
import {
  type CaptureLimits,
  type ChangeCounts,
  Obstructed,
  type Obstacle,
  Tracker,
  type TrackerContext,
  type UnrestorableCause,
} from './tracker.js';
import type { TreeIndex } from './tree-index.js';
import { Watches } from './watches.js';

/** What a capture says: a state that can be restored, or by name why there is none. */
export type Captured =
  | {
      readonly kind: 'state';
      /** `sha256:<hex>`; the store has it. */
      readonly digest: string;
      /** How many entries differ from the state before, by what differs. */
      readonly changed: Readonly<ChangeCounts>;
      /** Entries there are, all roots together. */
      readonly entries: number;
      /** Files whose content was read. */
      readonly rehashed: number;
      /** Whether the server's processes had to be stopped for it. */
      readonly stopped: boolean;
      readonly ms: number;
    }
  | {
      readonly kind: 'unrestorable';
      readonly cause: UnrestorableCause;
      /** Absolute; text, whatever its bytes. */
      readonly path?: string;
      readonly detail: string;
      readonly ms: number;
    };

/** What a state is said to be, when it was not the trackers that saw it. */

export interface CaptureOptions {
  readonly store: Store;
  /** Absolute paths; none may lie in another. Links are resolved. */
  readonly roots: readonly string[];
  /** `FORMAT.md`, Ignore rules. The store's own directory is added where it lies in a root. */
  readonly ignore?: readonly string[];
  readonly limits?: Partial<CaptureLimits>;
  /** The server's live processes; what descends from them is found. */
  readonly processes?: () => readonly number[];
  /**
   * `events`: look at what the kernel says has changed, where it does; `walk`: look at everything every time, as is done
   * without koffi, on file systems that nobody is told about, and beyond the limit of watches.
   */
  readonly method?: 'events' | 'walk';
  /**
   * How many files are watched one by one, at most; a quarter of what the user may watch unless it is said. While there
   * are no more, names given outside of the roots are noticed when they are given; else that is a gap of the state.
   */
  readonly fileWatches?: number;
  /**
   * How often it is looked again at what changed meanwhile, before the server's processes are stopped; four times unless
   * it is said.
   */
  readonly passes?: number;
  /** Wall clock, milliseconds. */
  readonly now?: () => number;
}

export const DEFAULT_LIMITS: CaptureLimits = {
  entries: 1_000_000,
  bytes: 8 * 2 ** 30,
  fileBytes: 2 ** 30,
  firstMs: 60_000,
  captureMs: 10_000,
};

/** Passes until more is done than looking again, and with the server's processes stopped. */
const FREE_PASSES = 4;
const STOPPED_PASSES = 4;
/** How often a state is kept anew because the store was tidied up meanwhile: who tidies may come again at once. */
const TRIES_WHILE_TIDIED = 5;

/** The times of files come from a clock that ticks this seldom at worst, milliseconds. */
const CLOCK_SLACK = 100;

/** File systems whose changes all come through this kernel, so that inotify is told of each. From <linux/magic.h>. */
const LOCAL_FILE_SYSTEMS: ReadonlySet<number> = new Set([
  0xef53, // ext2, ext3, ext4
  0x58465342, // xfs
  0x9123683e, // btrfs
  0x01021994, // tmpfs
  0x794c7630, // overlayfs
  0xf2f52010, // f2fs
  0x2fc12fc1, // zfs
  0xca451a4e, // bcachefs
]);

/**
 * Follows the roots and keeps their state in the store whenever it is asked to. One thread; each call runs to its end.
 *
 * A capture is of one moment: after the last thing was looked at, the kernel's queue was empty, so that nothing that
 * it tells of had happened in between. What it does not tell of is looked for: what the server's processes have mapped.
 */
export class Capturer {
  readonly #store: Store;
  readonly #writer: StoreWriter;
  readonly #native: Native | undefined;
  readonly #context: TrackerContext;
  readonly #processes: () => readonly number[];
  readonly #gaps: readonly Gap[];
  readonly #buffer = Buffer.allocUnsafeSlow(Tracker.BUFFER);
  readonly #trackers: Tracker[];
  readonly #now: () => number;
  readonly #indexPath: string;
  readonly #passes: number;
  /** Wall clock when the last successful capture began. */
  #at = 0;
  /** The last state; undefined: the next is kept whole. */
  #last: string | undefined;
  #first = true;
  /** What is known may be wrong: everything is to be looked at, and read. */
  #doubt = false;
  /** Will not pass: what this says is said every time. */
  #final: Obstacle | undefined;
  /** Inodes that were mapped at the last capture: unmapping them is told to nobody. */
  #mapped = new Set<bigint>();

  private constructor(options: CaptureOptions, roots: readonly Buffer[]) {
    const { store } = options;
    this.#store = store;
    this.#native = loadNative();
    this.#processes = options.processes ?? (() => []);
    const storePath = realpathSync(store.dir, { encoding: 'buffer' });
    const ignore = [...(options.ignore ?? [])];
    if (roots.some((root) => isInside(storePath, root))) ignore.push(storePath.toString());
    this.#writer = store.writer(options.now);
    this.#context = {
      native: this.#native,
      rules: new IgnoreRules(ignore),
      limits: { ...DEFAULT_LIMITS, ...options.limits },
      writer: this.#writer,
      totals: { entries: 0, bytes: 0 },
      watches: options.method === 'walk' ? undefined : this.#startWatching(roots, options.fileWatches),
    };
    this.#now = options.now ?? Date.now;
    this.#passes = options.passes ?? FREE_PASSES;
    this.#indexPath = indexPath(store.dir, roots, ignore);
    this.#gaps = this.#constantGaps(roots);
    this.#trackers =
      this.#resume(roots) ?? roots.map((root) => new Tracker(root, this.#context, this.#buffer));
  }

  /** Opens; nothing is looked at before the first capture. Throws `arguments`, or what is wrong with a root's path. */
  static open(options: CaptureOptions): Capturer {
    const roots = options.roots.map((root) => realpathSync(root, { encoding: 'buffer' }));
    if (roots.length === 0) throw new SnapshotError('arguments', 'no root');
    for (const root of roots) {
      if (root.length <= 1)
        throw new SnapshotError('arguments', 'the root of the file system is no workspace');
      if (roots.some((other) => other !== root && (isInside(root, other) || root.equals(other))))
        throw new SnapshotError('arguments', `a root lies in another: ${root.toString()}`);
    }
    return new Capturer(
      options,
      roots.sort((a, b) => Buffer.compare(a, b)),
    );
  }

  /** Bytes added to the store so far. */
  get written(): { readonly pack: number; readonly journal: number } {
    return this.#writer.written;
  }

  /** Whether the kernel tells what changes; else every capture looks at everything. */
  get method(): 'events' | 'walk' {
    return this.#context.watches ? 'events' : 'walk';
  }

  /** Takes what has been told so far, so that the kernel's queue does not overflow between captures. */
  listen(): void {
    if (this.#context.watches?.drain(this.#trackers) === 'overflow') this.#doubt = true;
  }

  capture(): Captured {
    return this.#capture(false);
  }

  /** As `capture`, but everything is looked at and every file read, whatever is known of it. */
  verify(): Captured {
    return this.#capture(true);
  }

  /**
   * Keeps what is known for the next capturer of these roots. Done by `close`; worth doing after the first capture as
   * well, because not every process comes to its end.
   */
  saveIndex(): void {
    if (this.#last === undefined || this.#trackers.some(({ pending, changed }) => pending || changed)) return;
    const head = { digest: this.#last, gaps: this.#lastGaps, at: this.#at };
    writeIndex(
      this.#indexPath,
      head,
      this.#trackers.map(({ index }) => index),
    );
  }

  /** What was kept is synced. */
  close(): void {
    try {
      this.saveIndex();
    } catch {
      // The next one has to read everything.
    }
    this.#context.watches?.close();
    this.#context.watches = undefined;
    this.#writer.close();
    this.#store.close();
  }

  #capture(full: boolean, tries = 1): Captured {
    this.#tidied = false;
    const started = performance.now();
    const at = this.#now();
    const read = this.#rehashed();
    try {
      if (this.#final) throw new Obstructed(this.#final);
      const { limits } = this.#context;
      const deadline = started + (full || this.#first || this.#doubt ? limits.firstMs : limits.captureMs);
      if (full) this.#doubt = true;
      const stopped = this.#settle(deadline);
      this.#refuseObstacles();
      const { digest, changed } = this.#keep();
      this.#first = false;
      this.#at = at;
      return {
        kind: 'state',
        digest,
        changed,
        entries: this.#context.totals.entries,
        rehashed: this.#rehashed() - read,
        stopped,
        ms: performance.now() - started,
      };
    } catch (error) {
      const { cause, path, detail } = this.#obstacleOf(error);
      if (this.#tidied && tries < TRIES_WHILE_TIDIED) return this.#capture(full, tries + 1);
      return {
        kind: 'unrestorable',
        cause,
        ...(path ? { path: path.toString() } : {}),
        detail,
        ms: performance.now() - started,
      };
    }
  }

  /**
   * Looks at what may have changed until nothing has. True: only with the server's processes stopped.
   *
   * A snapshot that btrfs makes of a subvolume is no way around that: what writers have not yet synced gets into it file
   * by file, each as it was when its turn came, and so it is not of one moment.
   */
  #settle(deadline: number): boolean {
    this.#lookAtRoots();
    for (let pass = 0; pass < this.#passes; pass++) {
      // The first time, what the processes hold means something only when the entries are known.
      const held = pass === 0 || (this.#first && pass === 1);
      if (this.#pass(deadline, held)) return false;
    }
    const { stopped, resume } = stopProcesses(this.#processes());
    try {
      for (let pass = 0; pass < STOPPED_PASSES; pass++) if (this.#pass(deadline, pass === 0)) return stopped;
    } finally {
      resume();
    }
    const path = this.#trackers.find(({ pending }) => pending)?.root ?? this.#trackers[0]?.root;
    throw new Obstructed({
      cause: 'changing',
      ...(path ? { path } : {}),
      detail: stopped ? 'something that is not the server keeps changing it' : 'it keeps changing',
    });
  }

  /** One look. True: there was nothing to look at, so what is known is what is there. */
  #pass(deadline: number, held: boolean): boolean {
    if (this.#context.watches?.drain(this.#trackers) === 'overflow') this.#doubt = true;
    if (held) this.#lookAtHeldFiles();
    const walking = this.#context.watches === undefined;
    const before = this.#found();
    let doubted = false;
    if (this.#doubt || walking) {
      // From here on the trackers know what is to be done, however often they are stopped by a limit.
      for (const tracker of this.#trackers) tracker.walk(this.#doubt);
      doubted = this.#doubt;
      this.#doubt = false;
    } else if (!this.#pending()) return true;
    this.#settleTrackers(deadline);
    this.#context.watches?.sweep();
    // Without events, a look that finds nothing new is all there is to go by.
    return walking && !doubted && !this.#pending() && this.#found() === before;
  }

  #settleTrackers(deadline: number): void {
    try {
      for (const tracker of this.#trackers) tracker.settle(deadline);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC' || !this.#context.watches) throw error;
      // No more watches to be had: from now on everything is looked at every time.
      this.#stopWatching();
      for (const tracker of this.#trackers) tracker.walk(false);
      for (const tracker of this.#trackers) tracker.settle(deadline);
    }
  }

  #lookAtRoots(): void {
    this.#trackers.forEach((tracker, i) => {
      try {
        tracker.lookAtRoot();
      } catch (error) {
        if (!(error instanceof Obstructed) || error.obstacle.cause !== 'root-gone') throw error;
        // Another directory may have come in its place: it is begun anew, and its state is kept whole.
        this.#beginAnew(tracker, i).lookAtRoot();
      }
    });
  }

  #beginAnew(tracker: Tracker, i: number): Tracker {
    const { totals } = this.#context;
    totals.entries -= tracker.index.count;
    totals.bytes -= tracker.bytes();
    this.#context.watches?.forget(tracker);
    const anew = new Tracker(tracker.root, this.#context, this.#buffer);
    this.#trackers[i] = anew;
    this.#last = undefined;
    this.#first = true;
    return anew;
  }

  #lookAtHeldFiles(): void {
    const pids = this.#processes();
    if (pids.length === 0 && this.#mapped.size === 0) return;
    const mapped = new Set<bigint>();
    const open = new Set<bigint>();
    for (const pid of withDescendants(pids)) {
      try {
        for (const held of heldFiles(pid)) (held.mapped ? mapped : open).add(held.ino);
      } catch (error) {
        throw new Obstructed({ cause: 'process', detail: (error as Error).message });
      }
    }
    for (const tracker of this.#trackers) {
      for (const ino of mapped) tracker.held(ino, true);
      for (const ino of this.#mapped) tracker.held(ino, true);
      for (const ino of open) tracker.held(ino, false);
    }
    this.#mapped = mapped;
  }

  #refuseObstacles(): void {
    for (const tracker of this.#trackers) {
      for (const [id, { cause, detail }] of tracker.obstacles)
        throw new Obstructed({ cause, path: tracker.absolute(id), detail });
    }
  }

  #keep(): { digest: string; changed: ChangeCounts } {
    const changed: ChangeCounts = { created: 0, modified: 0, deleted: 0, metadata: 0 };
    if (
      this.#last !== undefined &&
      // What another session left is claimed for this one: the store is told.
      !this.#first &&
      !this.#trackers.some((tracker) => tracker.changed) &&
      !this.#gapsChanged()
    )
      return { digest: this.#last, changed };
    const changes: Change[] = [];
    // A state that is kept whole has no need of them.
    if (this.#last === undefined) changed.created = this.#context.totals.entries;
    else
      this.#trackers.forEach((tracker, root) => {
        const some = tracker.changes(root);
        for (const each of some.changes) changes.push(each);
        for (const name of ['created', 'modified', 'deleted', 'metadata'] as const)
          changed[name] += some.counts[name];
      });
    const state = makeState(
      this.#trackers.map((tracker) => ({ path: tracker.root, tree: tracker.digest() })),
      this.#context.rules.rules,
      this.#currentGaps(),
    );
    try {
      const whole = (): Iterable<Entry>[] => this.#trackers.map(({ index }) => index.entries());
      this.#last = this.#writer.keep(state, this.#last, changes, whole);
    } catch (error) {
      this.#writer.abandon();
      for (const tracker of this.#trackers) tracker.unkept();
      if (error instanceof SnapshotError && error.code === 'tidied') this.#afterTidying();
      throw new Obstructed({ cause: 'store', detail: (error as Error).message });
    }
    for (const tracker of this.#trackers) tracker.kept();
    this.#lastGaps = state.gaps.join();
    return { digest: this.#last, changed };
  }

  /** The last capture failed only because somebody tidied the store up. */
  #tidied = false;

  /** Where the last state is not there any more, nothing that is known of the contents holds. */
  #afterTidying(): void {
    this.#tidied = true;
    if (this.#last === undefined || this.#store.has(this.#last)) return;
    for (const [i, tracker] of [...this.#trackers].entries()) this.#beginAnew(tracker, i);
  }

  #lastGaps = '';

  #gapsChanged(): boolean {
    return [...this.#currentGaps()].sort().join() !== this.#lastGaps;
  }

  #obstacleOf(error: unknown): Obstacle {
    if (error instanceof Obstructed) {
      // At these a pass stops short in a way that can't be gone on from.
      if (error.obstacle.cause === 'entries-limit') {
        this.#final = error.obstacle;
        this.#stopWatching();
      }
      if (error.obstacle.cause === 'root-gone') this.#doubt = true;
      return error.obstacle;
    }
    this.#doubt = true;
    this.#writer.abandon();
    for (const tracker of this.#trackers) tracker.unkept();
    const { code, message } = error as NodeJS.ErrnoException;
    return { cause: code === 'ENOSPC' || code === 'EDQUOT' ? 'store' : 'system', detail: message };
  }

  /** Trackers that know what the last capturer of these roots did. */
  #resume(roots: readonly Buffer[]): Tracker[] | undefined {
    const kept = readIndex(this.#indexPath);
    if (kept?.trees.length !== roots.length || !this.#store.has(kept.head.digest)) return undefined;
    const { head, trees } = kept;
    this.#last = head.digest;
    this.#lastGaps = head.gaps;
    const has = (hash: Buffer): boolean => this.#writer.has(hash);
    const since = BigInt(Math.floor(head.at) - CLOCK_SLACK) * 1_000_000n;
    return roots.map(
      (root, i) =>
        new Tracker(root, this.#context, this.#buffer, { index: trees[i] as TreeIndex, since, has }),
    );
  }

  #startWatching(roots: readonly Buffer[], fileWatches: number | undefined): Watches | undefined {
    const inotify = this.#native?.inotify;
    if (!inotify || !roots.every(isLocal)) return undefined;
    try {
      return new Watches(inotify, fileWatches);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EMFILE' || code === 'ENFILE') return undefined;
      throw error;
    }
  }

  #stopWatching(): void {
    this.#context.watches?.close();
    this.#context.watches = undefined;
    for (const { index } of this.#trackers) index.watch.fill(-1);
  }

  #constantGaps(roots: readonly Buffer[]): Gap[] {
    const gaps: Gap[] = ['atime', 'birthtime', 'ctime', 'inode'];
    if (!this.#native) gaps.push('xattrs', 'mtime-below-microseconds');
    if (process.getuid?.() !== 0) gaps.push('ownership');
    for (const root of roots) {
      const common = gitCommonDirectory(root.toString());
      if (common !== undefined && !roots.some((each) => isInside(Buffer.from(common), each))) {
        gaps.push('git-common-dir');
        break;
      }
    }
    return gaps;
  }

  #currentGaps(): Gap[] {
    const gaps = [...this.#gaps];
    if (this.#trackers.some(({ outside }) => outside.size > 0)) gaps.push('outside-links');
    if (this.#context.watches?.files === false) gaps.push('late-outside-links');
    return gaps;
  }

  #pending(): boolean {
    return this.#trackers.some(({ pending }) => pending);
  }

  #found(): number {
    return this.#trackers.reduce((sum, { found }) => sum + found, 0);
  }

  #rehashed(): number {
    return this.#trackers.reduce((sum, { rehashed }) => sum + rehashed, 0);
  }
}

/** Whether `path` is `directory` or lies in it. */
function isInside(path: Buffer, directory: Buffer): boolean {
  const { length } = directory;
  return path.subarray(0, length).equals(directory) && (path.length === length || path[length] === 0x2f);
}

function isLocal(path: Buffer): boolean {
  return LOCAL_FILE_SYSTEMS.has(statfsSync(path).type);
}

/**
 * Where a linked git worktree keeps its repository: what has to be a root as well for a state to hold all that git
 * reads. Undefined where the directory is no linked worktree.
 */
export function gitCommonDirectory(root: string): string | undefined {
  try {
    const file = resolve(root, '.git');
    if (!lstatSync(file).isFile()) return undefined;
    const gitDir = /^gitdir: (.*)\n?$/.exec(readFileSync(file, 'utf8'))?.[1];
    if (gitDir === undefined) return undefined;
    const own = resolve(dirname(file), gitDir);
    try {
      return realpathSync(resolve(own, readFileSync(resolve(own, 'commondir'), 'utf8').trim()));
    } catch {
      // A submodule: its repository is all its own.
      return realpathSync(own);
    }
  } catch {
    return undefined;
  }
}
