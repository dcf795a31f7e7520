/**
 * A state as a tree again, in a new directory: to the nanosecond, by the file systems' own means, and looked at
 * afterwards as if it were somebody else's.
 *
 * It is made under a name that says that it is partial and gets its own name when it has been checked: what a kill
 * leaves behind can't be taken for a state. No tree of the user's is written to: not the roots that were captured, not
 * anything in them or around them.
 */

import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { Beneath } from './beneath.js';
import { diff, type Difference } from './diff.js';
import { type Entry, type Gap, stateDigest, treeDigest } from './manifest.js';
import { loadNative, type Native } from './native.js';
import type { Store } from './store.js';
import { removeContents, RestoreGaps, TreeWriter } from './tree-writer.js';
import { walk } from './walk.js';

export type RestoreErrorCode =
  /** Where it should go there is something already. */
  | 'not-empty'
  | 'not-a-directory'
  /** It would go into, or around, a tree that was captured, or into the store. */
  | 'inside-source'
  /** The place can't be put in place of another: a mount point, or somebody's working directory. */
  | 'busy'
  /** No such root in the state. */
  | 'unknown-root'
  /** The entries that the store gives are not those of the digest. */
  | 'damaged'
  /** The system refuses to make something; `cause` says why. */
  | 'refused'
  /** What is there now is not what was to be made. */
  | 'not-as-written';

export class RestoreError extends Error {
  readonly code: RestoreErrorCode;
  /** The path it is about, absolute or relative to a root; text for a person. */
  readonly path: string;
  /** With `not-as-written`: the first of what is different. */
  readonly differences: readonly Difference[];

  constructor(
    code: RestoreErrorCode,
    path: string,
    message: string,
    { cause, differences = [] }: { cause?: unknown; differences?: readonly Difference[] } = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'RestoreError';
    this.code = code;
    this.path = path;
    this.differences = differences;
  }
}

export interface RestoredRoot {
  /** Position in the state, and the path that was captured. */
  readonly root: number;
  readonly from: Buffer;
  /** Where it is now. */
  readonly at: Buffer;
  readonly entries: number;
  readonly bytes: number;
}

export interface Restored {
  readonly digest: string;
  readonly roots: readonly RestoredRoot[];
  /** What could not be made as it was; where empty, the trees' digests are those of the state. */
  readonly gaps: readonly { readonly gap: Gap; readonly paths: number; readonly example: Buffer }[];
}

export interface RestoreProgress {
  readonly phase: 'writing' | 'checking';
  readonly done: number;
  readonly total: number;
}

export interface RestoreOptions {
  /** Only these roots, by the paths they were captured at. */
  readonly roots?: readonly Buffer[];
  /** Allows a place inside of a captured tree (never one around it, and never the tree itself). */
  readonly insideSource?: boolean;
  /** Without koffi, as where there is none. */
  readonly plain?: boolean;
  readonly signal?: AbortSignal;
  /** Called at the beginning of each phase, and some ten times a second. */
  readonly onProgress?: (progress: RestoreProgress) => void;
}

const PARTIAL_PREFIX = '.belay-partial-';

/**
 * Restores a state into `into`, which must be missing or an empty directory. One root becomes `into` itself, several
 * become `into/0`, `into/1` ... in the order of the result. Throws RestoreError, SnapshotError; the signal's reason.
 */
export async function restore(
  store: Store,
  digest: string,
  into: string,
  options: RestoreOptions = {},
): Promise<Restored> {
  const manifest = store.manifest(digest);
  if (stateDigest(manifest.state) !== digest)
    throw new RestoreError('damaged', digest, `what the store has for ${digest} is another state`);
  const captured = manifest.state.roots.map(({ path }) => path);
  const wanted = options.roots ?? captured;
  const numbers = wanted.map((path) => {
    const root = captured.findIndex((each) => each.equals(path));
    if (root < 0)
      throw new RestoreError('unknown-root', String(path), `the state has no root ${path.toString()}`);
    return root;
  });
  const target = resolve(into);
  refuseUnsafe(target, captured, store.dir, options.insideSource === true);
  mkdirSync(dirname(target), { recursive: true });
  const partial = join(dirname(target), `${PARTIAL_PREFIX}${process.pid}-${randomBytes(8).toString('hex')}`);
  const native = options.plain === true ? undefined : loadNative();
  const gaps = new RestoreGaps();
  try {
    makePrivate(partial);
    const roots: RestoredRoot[] = [];
    for (const [i, root] of numbers.entries()) {
      const at = numbers.length === 1 ? partial : join(partial, String(i));
      if (at !== partial) makePrivate(at);
      const entries = [...manifest.entries(root)];
      const tree = { entries, digest: manifest.state.roots[root]?.tree as Buffer, root };
      await stepping(restoreTree(Buffer.from(at), tree, store, gaps, native), options);
      const final = numbers.length === 1 ? target : join(target, String(i));
      roots.push({
        root,
        from: captured[root] as Buffer,
        at: Buffer.from(final),
        entries: entries.length,
        bytes: entries.reduce((sum, { size = 0 }) => sum + size, 0),
      });
    }
    putInPlace(partial, target);
    return { digest, roots, gaps: gaps.list() };
  } catch (error) {
    removeTree(partial);
    throw error;
  }
}

/** Runs a piece of work that reports as it goes, leaving the event loop its turn and the caller a way out. */
export async function stepping<T>(
  work: Generator<RestoreProgress, T>,
  { signal, onProgress }: Pick<RestoreOptions, 'signal' | 'onProgress'>,
): Promise<T> {
  let last = performance.now();
  let phase: RestoreProgress['phase'] | undefined;
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
    if (step.value.phase === phase && performance.now() - last < 80) continue;
    phase = step.value.phase;
    onProgress?.(step.value);
    await new Promise((resolve_) => {
      setImmediate(resolve_);
    });
    signal?.throwIfAborted();
    last = performance.now();
  }
}

/** A directory of ours alone, whatever the one around it hands down. */
export function makePrivate(path: string): void {
  mkdirSync(path, 0o700);
  const stat = lstatSync(path);
  const [uid, gid] = [process.geteuid?.() ?? stat.uid, process.getegid?.() ?? stat.gid];
  if (stat.uid !== uid || stat.gid !== gid) chownSync(path, uid, gid);
  if ((stat.mode & 0o7777) !== 0o700) chmodSync(path, 0o700);
}

/** Removes a tree of ours, whatever its modes. */
export function removeTree(path: string): void {
  try {
    const beneath = new Beneath(Buffer.from(path), loadNative());
    try {
      removeContents(beneath, Buffer.alloc(0));
    } finally {
      beneath.close();
    }
  } catch {
    // The last try below says what is wrong.
  }
  rmSync(path, { recursive: true, force: true });
}

export interface TreeToMake {
  /** Position among the state's roots. */
  readonly root: number;
  /** Parents before what they hold. */
  readonly entries: readonly Entry[];
  /** Of the tree they make, 32 bytes. */
  readonly digest: Buffer;
}

/** How many entries are made between two reports. */
const STEP = 256;

/** Makes a tree in an empty directory of ours, then looks at all of it. */
function* restoreTree(
  at: Buffer,
  tree: TreeToMake,
  store: Store,
  gaps: RestoreGaps,
  native: Native | undefined,
): Generator<RestoreProgress, void> {
  const beneath = new Beneath(at, native);
  const writer = new TreeWriter(beneath, store, gaps);
  try {
    yield* makeTree(writer, tree.entries);
    yield { phase: 'checking', done: 0, total: tree.entries.length };
    const { entries } = walk(beneath);
    if (!treeDigest(entries).equals(tree.digest)) explain(tree, entries, gaps, native);
  } finally {
    writer.close();
    beneath.close();
  }
}

/** Makes what the entries say in an empty directory. */
export function* makeTree(writer: TreeWriter, entries: readonly Entry[]): Generator<RestoreProgress> {
  const directories: Entry[] = [];
  for (const [done, entry] of entries.entries()) {
    if (done % STEP === 0) yield { phase: 'writing', done, total: entries.length };
    makeEntry(writer, entry);
    if (entry.type === 'dir') directories.push(entry);
  }
  // Deepest first: making something in a directory changes its time.
  for (const entry of directories.reverse()) writer.settle(entry);
}

function makeEntry(writer: TreeWriter, entry: Entry): void {
  try {
    if (entry.type === 'dir') {
      if (entry.path.length > 0) writer.makeDirectory(entry);
    } else if (entry.type === 'link') {
      writer.makeLink(entry);
      writer.settle(entry);
    } else if (entry.linkGroup && !entry.linkGroup.equals(entry.path)) {
      writer.joinGroup(entry);
    } else {
      writer.makeFile(entry, false);
    }
  } catch (error) {
    throw refusal(entry.path, error);
  }
}

/** An error of the system at a path as one of ours; others pass as they are. */
export function refusal(path: Buffer, error: unknown): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || syscall === undefined) return error;
  return new RestoreError('refused', path.toString(), `${path.toString()}: ${code} (${syscall})`, {
    cause: error,
  });
}

/**
 * The digest of what is found is not the tree's: because the manifest is not what it says, because of a declared gap,
 * or because it went wrong. Returns in the second case, throws in the others.
 */
export function explain(
  { root, entries, digest }: TreeToMake,
  found: Iterable<Entry>,
  gaps: RestoreGaps,
  native: Native | undefined,
): void {
  if (!treeDigest(entries).equals(digest))
    throw new RestoreError('damaged', '', 'the entries in the store are not those of the digest');
  const differences = diff(entries, found, root).filter((each) => !covered(each, gaps, native));
  if (differences.length > 0) throw notAsWritten(differences);
}

export function notAsWritten(differences: readonly Difference[]): RestoreError {
  const first = differences[0] as Difference;
  const path = first.path.toString();
  return new RestoreError(
    'not-as-written',
    path,
    `${differences.length} paths are not as they were written, ${path} (${[first.what, ...first.fields].join(' ')}) among them`,
    { differences: differences.slice(0, 20) },
  );
}

/** Less than this is lost of a time that is set as a double of seconds, in nanoseconds. */
const PLAIN_TIME_LOSS = 2_000n;

/** Whether a difference is one that was declared. Without koffi, what of a time is lost is noted here. */
export function covered(each: Difference, gaps: RestoreGaps, native: Native | undefined): boolean {
  // Names of one file are made by the first of them.
  const noted = each.before?.linkGroup ?? each.path;
  return (
    each.fields.length > 0 &&
    each.fields.every((field) => {
      if (field === 'uid' || field === 'gid') return gaps.has('ownership', noted);
      if (field === 'xattrs') return gaps.has('xattrs', noted);
      if (field !== 'mtime' || native) return false;
      const lost = (each.before?.mtime ?? 0n) - (each.after?.mtime ?? 0n);
      if (lost < -PLAIN_TIME_LOSS || lost > PLAIN_TIME_LOSS) return false;
      gaps.note('mtime-below-microseconds', each.path);
      return true;
    })
  );
}

/** Takes the target's place in one step; the target's own time of change stays that of the state. */
function putInPlace(partial: string, target: string): void {
  try {
    renameSync(partial, target);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTEMPTY' || code === 'EEXIST')
      throw new RestoreError('not-empty', target, `${target} has been filled meanwhile`, { cause: error });
    if (code === 'ENOTDIR') throw new RestoreError('not-a-directory', target, `${target} is no directory`);
    if (code === 'EBUSY' || code === 'EXDEV')
      throw new RestoreError('busy', target, `${target} can't be replaced; name a directory in it`, {
        cause: error,
      });
    throw refusal(Buffer.from(target), error);
  }
}

/**
 * Throws where a restore would touch something of the user's: a place that is taken, a captured tree, what holds one,
 * or the store. Places are compared by inode, so another name for the same directory does not help.
 */
export function refuseUnsafe(
  target: string,
  roots: readonly Buffer[],
  store: string,
  insideSource: boolean,
): void {
  const there = lstatSync(target, { throwIfNoEntry: false });
  if (there && !there.isDirectory())
    throw new RestoreError('not-a-directory', target, `${target} is there and is no directory`);
  if (there && readdirSync(target).length > 0)
    throw new RestoreError('not-empty', target, `${target} is not empty`);
  const around = inodesUp(target);
  for (const each of [...roots, Buffer.from(store)]) {
    const own = inodeOf(each);
    if (own === undefined) continue;
    const name = each.toString();
    const isStore = name === store;
    const inside = around.includes(own);
    const itself = there !== undefined && around[0] === own;
    if (inside && (itself || isStore || !insideSource))
      throw new RestoreError(
        'inside-source',
        target,
        `${target} is in ${name}, ${isStore ? 'the store' : 'which was captured'}`,
      );
    if (there && inodesUp(each).includes(around[0] as string))
      throw new RestoreError('inside-source', target, `${target} holds ${name}`);
  }
}

function inodeOf(path: Buffer | string): string | undefined {
  try {
    const { dev, ino } = lstatSync(realpathSync(path, 'buffer'), { bigint: true });
    return `${dev}:${ino}`;
  } catch {
    // A root that is not on this machine, or not any more, can't be touched.
    return undefined;
  }
}

/** Of what is there of a path, and all that it is in. */
function inodesUp(path: Buffer | string): string[] {
  const found: string[] = [];
  // Bytes as characters: the names need not be text.
  let place = Buffer.from(path).toString('latin1');
  for (let real = false; ;) {
    try {
      if (!real) place = realpathSync(Buffer.from(place, 'latin1'), 'buffer').toString('latin1');
      real = true;
      found.push(inodeOf(Buffer.from(place, 'latin1')) ?? '');
    } catch {
      // Not there yet: what it will be made in decides.
    }
    if (dirname(place) === place) return found;
    place = dirname(place);
  }
}
