/**
 * A state on disk that follows a recording: brought from one state to the next by what they differ in, never made anew.
 * A server works in it meanwhile and keeps files open, so a file that changes stays the inode it is.
 *
 * What is there is followed by events of the kernel, as a capture does it; what there should be is the manifest of a
 * state; `#off` are the paths where they differ. Every question is answered at the price of what changed.
 */

import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { Beneath, splitPath } from './beneath.js';
import { changesSince, difference, type Difference } from './diff.js';
import { IgnoreRules } from './ignore.js';
import { type Entry, stateDigest } from './manifest.js';
import { loadNative, type Native } from './native.js';
import { heldFiles, withDescendants } from './processes.js';
import {
  covered,
  explain,
  makePrivate,
  makeTree,
  notAsWritten,
  refuseUnsafe,
  refusal,
  removeTree,
  type RestoreOptions,
  RestoreError,
  type Restored,
  stepping,
} from './restore.js';
import type { Manifest, Store } from './store.js';
import { Tracker, type TrackerContext } from './tracker.js';
import { KIND } from './tree-index.js';
import { RestoreGaps, TreeWriter } from './tree-writer.js';
import { Watches } from './watches.js';

/** Beside the trees in a scratch's directory: what this is, for whoever finds one that was left behind. */
export const SCRATCH_MARK = 'belay-scratch';
const MARK_TEXT = 'A scratch of `belay`: no state, changes as it is used, may be deleted.\n';

export interface ScratchOptions extends Pick<RestoreOptions, 'plain' | 'signal' | 'onProgress'> {
  /** Processes that work in it; what descends from them is found. Their shared mappings are looked at each time. */
  readonly processes?: () => readonly number[];
}

export interface ScratchRoot {
  /** The path that was captured. */
  readonly from: Buffer;
  /** Where it is now: what is bound over `from` for a server. */
  readonly at: Buffer;
}

/** How long one look at everything that changed may take, milliseconds. */
const PATIENCE = 60_000;
/** So often it is looked again when something is different each time. */
const PASSES = 16;
/** So often `advance` tries to get there while somebody else is writing. */
const TRIES = 3;

interface Tree extends ScratchRoot {
  readonly root: number;
  readonly beneath: Beneath;
  readonly tracker: Tracker;
  /** By path (each byte a character), what is there where it is not what the state has; undefined: nothing. */
  readonly off: Map<string, Entry | undefined>;
}

interface Target {
  /** What the other state has at a path. */
  readonly wanted: (tree: Tree, path: Buffer) => Entry | undefined;
  /** Where it may differ from the state that the scratch should be. */
  readonly paths: readonly { readonly root: number; readonly path: Buffer }[];
  /** Where it had to be read as a whole. */
  readonly manifest?: Manifest;
}

const keyOf = (path: Buffer): string => path.toString('latin1');
const pathOf = (key: string): Buffer => Buffer.from(key, 'latin1');

export class Scratch {
  readonly dir: string;
  readonly #store: Store;
  readonly #native: Native | undefined;
  readonly #processes: () => readonly number[];
  readonly #gaps = new RestoreGaps();
  readonly #context: TrackerContext;
  readonly #trees: Tree[];
  #manifest: Manifest;
  #way: { readonly way: string; readonly target: Target } | undefined;
  #mapped = new Set<bigint>();
  /** Something went untold: everything is to be read. */
  #doubt = false;

  private constructor(store: Store, manifest: Manifest, dir: string, options: ScratchOptions) {
    this.dir = dir;
    this.#store = store;
    this.#manifest = manifest;
    this.#native = options.plain === true ? undefined : loadNative();
    this.#processes = options.processes ?? (() => []);
    const { roots, ignored } = manifest.state;
    const places = roots.map(({ path }, i) => ({ from: path, at: Buffer.from(join(dir, String(i))) }));
    this.#context = {
      native: this.#native,
      rules: new IgnoreRules(ignored.map((rule) => moved(rule, places))),
      limits: {
        entries: Number.MAX_SAFE_INTEGER,
        bytes: Number.MAX_SAFE_INTEGER,
        fileBytes: Number.MAX_SAFE_INTEGER,
        firstMs: PATIENCE,
        captureMs: PATIENCE,
      },
      writer: NOWHERE,
      totals: { entries: 0, bytes: 0 },
      watches: startWatching(this.#native),
    };
    // A name given to a file from outside leads nowhere a server could be.
    if (this.#context.watches) this.#context.watches.files = false;
    const buffer = Buffer.allocUnsafeSlow(Tracker.BUFFER);
    this.#trees = places.map((place, root) => {
      makePrivate(place.at.toString());
      return {
        ...place,
        root,
        beneath: new Beneath(place.at, this.#native),
        tracker: new Tracker(place.at, this.#context, buffer),
        off: new Map<string, Entry | undefined>(),
      };
    });
  }

  /**
   * Restores a state into `dir`, which must be missing or empty: its roots are `dir/0`, `dir/1` ... Throws as `restore`
   * does, and then leaves nothing.
   */
  static async open(
    store: Store,
    digest: string,
    dir: string,
    options: ScratchOptions = {},
  ): Promise<Scratch> {
    const manifest = store.manifest(digest);
    if (stateDigest(manifest.state) !== digest)
      throw new RestoreError('damaged', digest, `what the store has for ${digest} is another state`);
    const place = resolve(dir);
    refuseUnsafe(
      place,
      manifest.state.roots.map(({ path }) => path),
      store.dir,
      false,
    );
    mkdirSync(dirname(place), { recursive: true });
    if (!lstatSync(place, { throwIfNoEntry: false })) makePrivate(place);
    writeFileSync(join(place, SCRATCH_MARK), MARK_TEXT, { flag: 'wx', mode: 0o600 });
    let scratch: Scratch | undefined;
    try {
      scratch = new Scratch(store, manifest, place, options);
      for (const tree of scratch.#trees) await scratch.#fill(tree, options);
      return scratch;
    } catch (error) {
      if (scratch) scratch.close();
      else removeTree(place);
      throw error;
    }
  }

  /** The state that the scratch should be. */
  get digest(): string {
    return this.#manifest.digest;
  }

  get roots(): readonly ScratchRoot[] {
    return this.#trees.map(({ from, at }) => ({ from, at }));
  }

  /** What can't be made here as it was; never reported as a difference. */
  get gaps(): Restored['gaps'] {
    return this.#gaps.list();
  }

  /** Whether the kernel tells what changes; else every question looks at everything. */
  get method(): 'events' | 'walk' {
    return this.#context.watches ? 'events' : 'walk';
  }

  /** What was done to it since this, or `advance`, or `reset`, was last called: `before` is how it was then. */
  look(): Difference[] {
    this.#settle();
    const found: Difference[] = [];
    for (const tree of this.#trees) {
      const { root, tracker, off } = tree;
      for (const { path, entry } of tracker.changes(root).changes) {
        const after = isWhole(entry) ? entry : undefined;
        const before = this.#onDisk(tree, path);
        const different = this.#difference(root, before, after);
        if (different) found.push(different);
        if (this.#difference(root, this.#manifest.get(root, path), after)) off.set(keyOf(path), after);
        else off.delete(keyOf(path));
      }
      // The leaves of what changed are taken into the tree's digest as it goes.
      tracker.digest();
      tracker.kept();
      found.push(...specials(tree));
    }
    return found;
  }

  /** What it is now against the state that it should be (`before`). */
  drift(): Difference[] {
    this.look();
    return this.#against((tree, path) => this.#manifest.get(tree.root, path), []);
  }

  /** What would have to be done to it (`before`) to make it another state (`after`). */
  compare(to: string): Difference[] {
    this.look();
    return this.#differencesTo(to);
  }

  /**
   * Makes it another state, by what is different, and checks that it is. Differences for which `keep` says so are left
   * alone, and are drift from then on. Gives what was done. Throws RestoreError, SnapshotError.
   */
  advance(to: string, keep: (each: Difference) => boolean = () => false): Difference[] {
    this.look();
    const done: Difference[] = [];
    /** Of what was refused, some may have been done before. */
    let refused: readonly Difference[] = [];
    for (let tries = 0; ; tries++) {
      const differences = this.#differencesTo(to).filter((each) => !keep(each));
      if (refused.length > 0) {
        const left = new Set(differences.map(({ root, path }) => `${root} ${keyOf(path)}`));
        done.push(...refused.filter(({ root, path }) => !left.has(`${root} ${keyOf(path)}`)));
        refused = [];
      }
      if (differences.length > 0) {
        if (tries === TRIES) throw notAsWritten(differences);
        try {
          for (const tree of this.#trees)
            this.#apply(
              tree,
              to,
              differences.filter(({ root }) => root === tree.root),
            );
          done.push(...differences);
        } catch (error) {
          if (tries === TRIES - 1 || !isOtherwise(error)) throw error;
          refused = differences;
          this.#doubt = true;
        }
        this.look();
        continue;
      }
      this.#becomes(to);
      this.#checkDigests();
      return done;
    }
  }

  /** Makes it the state again that it should be. Gives what was done. */
  reset(): Difference[] {
    return this.advance(this.digest);
  }

  /** What was told by nobody may have changed: everything is read at the next look. */
  doubt(): void {
    this.#doubt = true;
  }

  /** Deletes it. */
  close(): void {
    this.#context.watches?.close();
    this.#context.watches = undefined;
    for (const { beneath } of this.#trees) beneath.close();
    removeTree(this.dir);
  }

  async #fill(tree: Tree, options: ScratchOptions): Promise<void> {
    const { root, beneath, tracker } = tree;
    const entries = [...this.#manifest.entries(root)];
    const digest = this.#manifest.state.roots[root]?.tree as Buffer;
    const writer = new TreeWriter(beneath, this.#store, this.#gaps);
    try {
      await stepping(makeTree(writer, entries), options);
    } finally {
      writer.close();
    }
    options.onProgress?.({ phase: 'checking', done: 0, total: entries.length });
    tracker.lookAtRoot();
    this.#settle();
    if (!tracker.digest().equals(digest))
      explain({ root, entries, digest }, tracker.index.entries(), this.#gaps, this.#native);
    tracker.kept();
  }

  /** Looks at what may have changed, until nothing has. */
  #settle(): void {
    const deadline = performance.now() + PATIENCE;
    const started = this.#trees
      .filter(({ tracker }) => tracker.index.count > 0)
      .map(({ tracker }) => tracker);
    for (let pass = 0; pass < PASSES; pass++) {
      if (this.#context.watches?.drain(started) === 'overflow') this.#doubt = true;
      if (pass === 0) this.#lookAtHeldFiles(started);
      const walking = this.#context.watches === undefined;
      const before = started.reduce((sum, { found }) => sum + found, 0);
      const doubted = this.#doubt;
      if (walking || doubted) for (const tracker of started) tracker.walk(doubted);
      else if (!started.some(({ pending }) => pending)) return;
      this.#doubt = false;
      for (const tracker of started) this.#settleTracker(tracker, deadline);
      this.#context.watches?.sweep();
      const found = started.reduce((sum, tracker) => sum + tracker.found, 0);
      if (walking && !doubted && found === before && !started.some(({ pending }) => pending)) return;
    }
    throw new RestoreError('not-as-written', this.dir, 'the scratch keeps changing');
  }

  #settleTracker(tracker: Tracker, deadline: number): void {
    try {
      tracker.settle(deadline);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC' || !this.#context.watches) throw error;
      // No more watches to be had.
      this.#context.watches.close();
      this.#context.watches = undefined;
      for (const each of this.#trees) each.tracker.index.watch.fill(-1);
      tracker.walk(false);
      tracker.settle(deadline);
    }
  }

  #lookAtHeldFiles(trackers: readonly Tracker[]): void {
    const mapped = new Set<bigint>();
    for (const pid of withDescendants(this.#processes()))
      for (const held of heldFiles(pid)) if (held.mapped) mapped.add(held.ino);
    // One that was mapped before may have been written to since, and unmapped.
    for (const ino of new Set([...mapped, ...this.#mapped]))
      for (const tracker of trackers) tracker.held(ino, true);
    this.#mapped = mapped;
  }

  #onDisk({ root, off }: Tree, path: Buffer): Entry | undefined {
    const key = keyOf(path);
    return off.has(key) ? off.get(key) : this.#manifest.get(root, path);
  }

  #difference(root: number, before: Entry | undefined, after: Entry | undefined): Difference | undefined {
    const different = difference(root, before, after);
    return different && covered(different, this.#gaps, this.#native) ? undefined : different;
  }

  /** From `wanted` to what is on disk, at the paths that are off and those given. */
  #against(
    wanted: (tree: Tree, path: Buffer) => Entry | undefined,
    also: readonly { readonly root: number; readonly path: Buffer }[],
  ): Difference[] {
    return this.#trees.flatMap((tree) => {
      const keys = new Set(tree.off.keys());
      for (const { root, path } of also) if (root === tree.root) keys.add(keyOf(path));
      const found = [...keys]
        .sort()
        .map(pathOf)
        .flatMap((path) => this.#difference(tree.root, wanted(tree, path), this.#onDisk(tree, path)) ?? []);
      return [...found, ...specials(tree)];
    });
  }

  #differencesTo(to: string): Difference[] {
    const { wanted, paths } = this.#target(to);
    return this.#against(wanted, paths).map(turned);
  }

  /** The way to another state; asked for more than once while one goes it. */
  #target(to: string): Target {
    const way = `${this.digest} ${to}`;
    if (this.#way?.way !== way) this.#way = { way, target: this.#findTarget(to) };
    return this.#way.target;
  }

  #findTarget(to: string): Target {
    const known = to === this.digest ? [] : changesSince(this.#store, this.digest, to);
    if (known) {
      const entries = new Map(known.map(({ root, path, entry }) => [`${root}:${keyOf(path)}`, entry]));
      const wanted = ({ root }: Tree, path: Buffer): Entry | undefined => {
        const key = `${root}:${keyOf(path)}`;
        return entries.has(key) ? entries.get(key) : this.#manifest.get(root, path);
      };
      return { wanted, paths: known };
    }
    // Not kept as changes of this one: everything is compared.
    const manifest = this.#store.manifest(to);
    const same =
      manifest.state.roots.length === this.#trees.length &&
      this.#trees.every(({ from, root }) => manifest.state.roots[root]?.path.equals(from));
    if (!same) throw new RestoreError('unknown-root', to, `${to} is of other roots`);
    const paths = this.#trees.flatMap(({ root }) => [
      ...[...manifest.entries(root)].map(({ path }) => ({ root, path })),
      ...[...this.#manifest.entries(root)].map(({ path }) => ({ root, path })),
    ]);
    return { wanted: ({ root }, path) => manifest.get(root, path), paths, manifest };
  }

  #becomes(to: string): void {
    if (to === this.digest) return;
    const { paths, manifest } = this.#target(to);
    const disk = this.#trees.map((tree) => {
      const keys = new Set(tree.off.keys());
      for (const { root, path } of paths) if (root === tree.root) keys.add(keyOf(path));
      return [...keys].map((key) => [key, this.#onDisk(tree, pathOf(key))] as const);
    });
    this.#manifest = manifest ?? this.#store.manifest(to, this.#manifest);
    this.#way = undefined;
    for (const tree of this.#trees) {
      tree.off.clear();
      for (const [key, entry] of disk[tree.root] ?? []) {
        if (this.#difference(tree.root, this.#manifest.get(tree.root, pathOf(key)), entry))
          tree.off.set(key, entry);
      }
    }
  }

  /** Where nothing is off and there is no gap, the digest of what is there is that of the state. */
  #checkDigests(): void {
    if (this.#gaps.list().length > 0) return;
    for (const { root, tracker, off } of this.#trees) {
      if (off.size > 0) continue;
      const tree = this.#manifest.state.roots[root]?.tree as Buffer;
      if (!tracker.digest().equals(tree))
        throw new RestoreError('damaged', this.digest, 'the changes in the store do not lead to the state');
    }
  }

  #apply(tree: Tree, to: string, differences: readonly Difference[]): void {
    const { wanted } = this.#target(to);
    const writer = new TreeWriter(tree.beneath, this.#store, this.#gaps);
    try {
      applyAll(writer, differences, (path) => wanted(tree, path));
    } finally {
      writer.close();
    }
  }
}

/** Whether something was not as it had been found: somebody is at it, or nobody told of a change. */
function isOtherwise(error: unknown): boolean {
  const { code } = (error instanceof RestoreError ? (error.cause ?? {}) : {}) as NodeJS.ErrnoException;
  return ['EEXIST', 'ENOENT', 'ENOTDIR', 'EISDIR', 'ELOOP', 'ENOTEMPTY'].includes(code ?? '');
}

/** In the order that makes each possible: away, then there, then contents, then what surrounds them, deepest first. */
function applyAll(
  writer: TreeWriter,
  differences: readonly Difference[],
  wanted: (path: Buffer) => Entry | undefined,
): void {
  const at = (path: Buffer, act: () => void): void => {
    try {
      act();
    } catch (error) {
      throw refusal(path, error);
    }
  };
  const gone = differences.filter((each) => !each.after || each.what === 'type' || replaced(each));
  const made = differences.filter(
    (each) => each.after && (!each.before || each.what === 'type' || replaced(each)),
  );
  const directories = new Set<string>();
  for (const { path } of [...gone, ...made]) {
    if (path.length > 0) directories.add(keyOf(splitPath(path).parent));
  }
  for (const key of directories) at(pathOf(key), () => writer.openUp(pathOf(key)));
  // What is in a directory comes after it in the order of bytes.
  for (const { path } of gone.toReversed()) at(path, () => writer.remove(path));
  for (const { path, after } of made) if (after) at(path, () => make(writer, after));
  for (const each of differences) {
    const { path, after } = each;
    if (after?.type === 'file' && each.what === 'modified' && !replaced(each))
      at(path, () => rewrite(writer, after));
  }
  for (const { path, after } of differences) {
    if (after?.type === 'dir') directories.add(keyOf(path));
    else if (after) at(path, () => writer.settle(after));
  }
  for (const key of [...directories].sort().reverse()) {
    const entry = wanted(pathOf(key));
    if (entry?.type === 'dir') at(pathOf(key), () => writer.settle(entry));
  }
}

function make(writer: TreeWriter, entry: Entry): void {
  if (entry.type === 'dir') writer.makeDirectory(entry);
  else if (entry.type === 'link') writer.makeLink(entry);
  else if (entry.linkGroup && !entry.linkGroup.equals(entry.path)) writer.joinGroup(entry);
  else writer.makeFile(entry, true);
}

function rewrite(writer: TreeWriter, entry: Entry): void {
  if (writer.rewriteFile(entry)) return;
  writer.remove(entry.path);
  writer.makeFile(entry, true);
}

/**
 * Whether a name has to be given to another inode: a link that points elsewhere, or a file that leaves or joins a group
 * of names. The first name of a group keeps the inode, as does one that was alone.
 */
function replaced({ before, after, fields }: Difference): boolean {
  if (!before || !after || before.type !== after.type) return false;
  if (after.type === 'link') return fields.includes('target');
  if (!fields.includes('linkGroup')) return false;
  const first = (group: Buffer | undefined): boolean => group === undefined || group.equals(after.path);
  return !(first(before.linkGroup) && first(after.linkGroup));
}

const turned = (each: Difference): Difference => {
  const { before, after, what, ...rest } = each;
  return {
    ...rest,
    what: what === 'created' ? 'deleted' : what === 'deleted' ? 'created' : what,
    ...(after ? { before: after } : {}),
    ...(before ? { after: before } : {}),
  };
};

/** An index has sockets, FIFOs and devices too, without a type. */
const isWhole = (entry: Entry | undefined): entry is Entry =>
  (entry as { type?: string } | undefined)?.type !== undefined;

function specials({ root, tracker }: Tree): Difference[] {
  const found: Difference[] = [];
  for (const [id, { cause }] of tracker.obstacles) {
    if (tracker.index.kind[id] !== KIND.OTHER) continue;
    found.push({ root, path: tracker.index.path(id), what: 'created', fields: [], special: cause });
  }
  return found;
}

/** An ignore rule that names a place in a captured root names the same place in the scratch. */
function moved(rule: string, roots: readonly ScratchRoot[]): string {
  if (!rule.startsWith('/')) return rule;
  for (const { from, at } of roots) {
    const root = from.toString();
    if (rule.startsWith(`${root}/`)) return at.toString() + rule.slice(root.length);
  }
  return rule;
}

/** Undefined where there is no inotify, or where this user has no more queues. */
function startWatching(native: Native | undefined): Watches | undefined {
  if (!native?.inotify) return undefined;
  try {
    return new Watches(native.inotify);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EMFILE' || code === 'ENFILE') return undefined;
    throw error;
  }
}

/** Contents are read for their hashes only. */
const NOWHERE: TrackerContext['writer'] = {
  add: () => undefined,
  stream: () => {
    const digest = createHash('sha256');
    return { push: (bytes) => void digest.update(bytes), end: () => digest.digest() };
  },
};

/** Whether a directory is a scratch, perhaps one that was left behind. */
export function isScratch(dir: string): boolean {
  try {
    return readdirSync(dir).includes(SCRATCH_MARK);
  } catch {
    return false;
  }
}
