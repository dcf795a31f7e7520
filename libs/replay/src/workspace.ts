/**
 * The workspace of a replay: a scratch that follows the states of the record, and what a call did to it. And what the
 * record itself says a call did: the difference of its two states.
 */

import { createHash } from 'node:crypto';
import { lstatSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import {
  changesSince,
  difference,
  type Difference,
  diff,
  type Entry,
  type Manifest,
  RestoreError,
  Scratch,
  type ScratchRoot,
  SnapshotError,
  type Store,
} from '@belay/snapshot';
import type { World } from './session.js';

/** What a path was and is. Times of files are no effect and are left out. */
export interface Change {
  /** Relative to its root; where there are several, the root's path stands before it. Bytes that are no UTF-8 as `\xNN`. */
  readonly path: string;
  readonly what: Difference['what'];
  readonly before?: Side;
  readonly after?: Side;
}

export interface Side {
  readonly type: Entry['type'];
  readonly mode: number;
  /** SHA-256 of a file, hex, and how many bytes that is of. */
  readonly content?: string;
  readonly size?: number;
  readonly target?: string;
  /** SHA-256 over names and values, hex. */
  readonly xattrs?: string;
}

/** Contents that a replay made are kept up to this size, and all together up to this; bytes. */
const MAX_KEPT_FILE = 4 * 1024 * 1024;
const MAX_KEPT = 256 * 1024 * 1024;

/** Contents by hash: those of the record, and those that replays made and that are wanted to compare them. */
export class Contents {
  readonly #store: Store;
  readonly #made = new Map<string, Buffer>();
  #bytes = 0;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Undefined where it is unknown or larger than what is compared. */
  get(sha256: string): Buffer | undefined {
    const made = this.#made.get(sha256);
    if (made !== undefined) return made;
    const hash = Buffer.from(sha256, 'hex');
    if (!this.#store.hasContent(hash)) return undefined;
    const bytes = this.#store.content(hash);
    return bytes.length > MAX_KEPT_FILE ? undefined : bytes;
  }

  /** Reads a file that was just found to have this content, unless the store has it. */
  keep(sha256: string, path: string): void {
    if (this.#made.has(sha256) || this.#store.hasContent(Buffer.from(sha256, 'hex'))) return;
    try {
      const { size } = lstatSync(path);
      if (size > MAX_KEPT_FILE || this.#bytes + size > MAX_KEPT) return;
      const bytes = readFileSync(path);
      if (createHash('sha256').update(bytes).digest('hex') !== sha256) return;
      this.#made.set(sha256, bytes);
      this.#bytes += bytes.length;
    } catch {
      // Gone again: then its hash is all there is.
    }
  }
}

/** Whether nothing but a time differs. */
const isTimeOnly = ({ what, fields }: Difference): boolean =>
  what === 'metadata' && fields.every((field) => field === 'mtime');

export class Workspace implements World<Change> {
  readonly contents: Contents;
  readonly #store: Store;
  readonly #dir: string;
  readonly #processes: () => readonly number[];
  #scratch: Scratch | undefined;

  /** `dir` must be missing or empty; it is removed by `close`. `processes` work in the scratch. */
  constructor(store: Store, dir: string, contents: Contents, processes: () => readonly number[]) {
    this.#store = store;
    this.#dir = dir;
    this.contents = contents;
    this.#processes = processes;
  }

  /** Makes the scratch, of the first state that is entered. Throws RestoreError, SnapshotError. */
  async open(state: string): Promise<void> {
    this.#scratch ??= await Scratch.open(this.#store, state, this.#dir, { processes: this.#processes });
  }

  /** Where each root of the record is now; empty before a state was entered. */
  get roots(): readonly ScratchRoot[] {
    return this.#scratch?.roots ?? [];
  }

  async enter(state: string): Promise<'as-left' | 'changed' | 'wrong'> {
    if (this.#scratch === undefined) {
      await this.open(state);
      return 'as-left';
    }
    try {
      const done = this.#scratch.advance(state, isTimeOnly);
      return done.every(isTimeOnly) ? 'as-left' : 'changed';
    } catch (error) {
      if (isWrongState(error)) return 'wrong';
      throw error;
    }
  }

  delta(): Promise<readonly Change[]> {
    const scratch = this.#scratch;
    if (scratch === undefined) return Promise.resolve([]);
    const found = scratch.look().filter((each) => !isTimeOnly(each));
    for (const { root, path, after } of found) {
      const place = scratch.roots[root];
      if (after?.content === undefined || place === undefined) continue;
      this.contents.keep(after.content.toString('hex'), join(place.at.toString(), path.toString()));
    }
    return Promise.resolve(
      shown(
        found,
        scratch.roots.map(({ from }) => from),
      ),
    );
  }

  close(): void {
    this.#scratch?.close();
    this.#scratch = undefined;
  }
}

/** Whether what is kept of a state is not that state; not that this machine refused to make it. */
function isWrongState(error: unknown): boolean {
  if (error instanceof RestoreError) return error.code === 'damaged' || error.code === 'not-as-written';
  return (
    error instanceof SnapshotError &&
    ['malformed', 'unknown-state', 'content-missing', 'content-damaged'].includes(error.code)
  );
}

/** What the record says happened between two of its states, at the price of what changed where it is kept so. */
export class RecordedStates {
  readonly #store: Store;
  #manifest: Manifest | undefined;

  constructor(store: Store) {
    this.#store = store;
  }

  has(state: string): boolean {
    return this.#store.has(state);
  }

  /** Without what is only a time. Throws SnapshotError where a state is damaged. */
  between(before: string, after: string): readonly Change[] {
    if (before === after) return [];
    const manifest = this.#at(before);
    const roots = manifest.state.roots.map(({ path }) => path);
    const changed = changesSince(this.#store, before, after);
    const found =
      changed?.flatMap(({ root, path, entry }) => difference(root, manifest.get(root, path), entry) ?? []) ??
      this.#compared(before, after);
    return shown(
      found.filter((each) => !isTimeOnly(each)),
      roots,
    );
  }

  /** Whether a state has something at an absolute path; undefined for what it could not have, or leaves out. */
  contains(state: string, path: string): boolean | undefined {
    const manifest = this.#at(state);
    const { roots, ignored } = manifest.state;
    if (ignored.length > 0) return undefined;
    for (const [root, { path: folder }] of roots.entries()) {
      const at = folder.toString();
      if (!path.startsWith(`${at}/`)) continue;
      const below = posix.normalize(path.slice(at.length + 1)).replace(/\/$/, '');
      return below.startsWith('../') ? undefined : manifest.get(root, Buffer.from(below)) !== undefined;
    }
    return undefined;
  }

  #at(state: string): Manifest {
    if (this.#manifest?.digest !== state) this.#manifest = this.#store.manifest(state, this.#manifest);
    return this.#manifest;
  }

  #compared(before: string, after: string): Difference[] {
    const [olds, news] = [this.#store.manifest(before), this.#store.manifest(after)];
    return olds.state.roots.flatMap((_, root) => diff(olds.entries(root), news.entries(root), root));
  }
}

function shown(found: readonly Difference[], roots: readonly Buffer[]): Change[] {
  return found.map(({ root, path, what, before, after }) => ({
    path: shownPath(root, path, roots),
    what,
    ...(before === undefined ? {} : { before: side(before) }),
    ...(after === undefined ? {} : { after: side(after) }),
  }));
}

function shownPath(root: number, path: Buffer, roots: readonly Buffer[]): string {
  if (roots.length === 1) return printable(path);
  return [roots[root] as Buffer, path].map(printable).join('/');
}

/** UTF-8 as it is; other bytes as `\xNN`, so that different names stay different: a name with `\x` in it is one of these. */
export function printable(path: Buffer): string {
  const text = path.toString('utf8');
  if (Buffer.from(text, 'utf8').equals(path) && !text.includes('\\x')) return text;
  return [...path]
    .map((byte) =>
      byte < 0x80 && byte !== BACKSLASH ? String.fromCharCode(byte) : `\\x${byte.toString(16)}`,
    )
    .join('');
}

const BACKSLASH = 0x5c;

function side({ type, mode, content, size, target, xattrs }: Entry): Side {
  return {
    type,
    mode,
    ...(content === undefined ? {} : { content: content.toString('hex') }),
    ...(size === undefined ? {} : { size }),
    ...(target === undefined ? {} : { target: printable(target) }),
    ...(xattrs === undefined ? {} : { xattrs: digestOf(xattrs) }),
  };
}

function digestOf(xattrs: NonNullable<Entry['xattrs']>): string {
  const digest = createHash('sha256');
  for (const [name, value] of xattrs)
    digest.update(`${name.length}:${value.length}:`).update(name).update(value);
  return digest.digest('hex');
}
