/**
 * Gives back the room of states that nobody wants any more. Files of writers that are gone are copied without what is
 * not wanted, and deleted only after everything that is left has been read again and refers to nothing in them; files
 * of writers that live stay as they are, with all that they rely on.
 *
 * The order is the safety argument. A kill at any of its steps leaves every wanted state restorable:
 *
 *   1  lock                 one gc at a time
 *   2  generation: running  writers from now on rely on nothing but their own files
 *   3  read everything      what writers kept before step 2 is seen here
 *   4  copy, sync, rename   a pack, then its journal; a kill before the rename leaves bytes that nobody reads
 *   5  read everything again; what is still only in the old files is copied too, until there is nothing
 *   6  generation: done, and the old files are no part of the store any more: all of them, in one step
 *   7  delete               what a kill leaves, the next gc deletes
 *
 * What a writer appends between 5 and 6 it takes back itself: the generation was not the same before and after, or it
 * was `running` and then it relied on nothing of others (`StoreWriter`).
 */

import { createHash, hash as digestOf, randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fsyncSync,
  linkSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { byBytes } from './beneath.js';
import { changesSince } from './diff.js';
import { SnapshotError } from './error.js';
import { lifeOf, thisProcess, type WriterIdentity } from './identity.js';
import {
  type Change,
  type ContentAt,
  contentPlaces,
  encodeCheckpoint,
  encodeContents,
  encodeDelta,
  JOURNAL_MAGIC,
  journalRecords,
  makeRecord,
  readFully,
  RECORD,
  stateChanges,
  stateHead,
} from './journal.js';
import { encodeState, formatDigest, parseDigest, readEntry } from './manifest.js';
import { GENERATION_FILE, makeGeneration, obsoleteIn, Store, syncDirectory } from './store.js';

export type GcErrorCode =
  /** Another gc is at work. */
  'busy';

export class GcError extends Error {
  readonly code: GcErrorCode;

  constructor(code: GcErrorCode, message: string) {
    super(message);
    this.name = 'GcError';
    this.code = code;
  }
}

export interface GcOptions {
  /** States to keep, whatever their age: `sha256:<hex>`. */
  readonly keep: Iterable<string>;
  /** Also everything captured at or after this, milliseconds since 1970. */
  readonly newerThan?: number;
  /** Says what would be done, and does nothing. */
  readonly dryRun?: boolean;
  /** Wall clock, milliseconds. */
  readonly now?: () => number;
  readonly onProgress?: (progress: GcProgress) => void;
}

export interface GcProgress {
  readonly phase: 'reading' | 'copying' | 'deleting';
  readonly done: number;
  readonly total: number;
}

export interface GcReport {
  readonly states: { readonly kept: number; readonly dropped: number };
  /** Of packs and journals. */
  readonly bytes: { readonly before: number; readonly after: number };
  /** Files of writers that live, or may: what they hold stays. */
  readonly writers: readonly { readonly pid: number; readonly bytes: number; readonly states: number }[];
  /** States that were to be kept and are not in the store. */
  readonly missing: readonly string[];
  /** Contents of kept states that can't be read any more: the files they should be in were left as they are. */
  readonly damaged: readonly string[];
}

/** Files of nobody, and journals of writers that are of another container, are taken for left behind after so long. */
const LEFT_BEHIND_MS = 10 * 60_000;
const FOREIGN_MS = 7 * 24 * 3_600_000;
/** So many files of writers that are gone are made one, though nothing in them is unwanted. */
const MANY_FILES = 64;
/** Larger contents are copied in pieces of this. */
const PIECE = 1024 * 1024;

/** Of whose files nobody will write more. */
const NOBODY: WriterIdentity = { pid: 0, started: '' };

/** One writer's pair of files, as its journal says. */
interface Pair {
  readonly id: string;
  readonly writer: WriterIdentity | undefined;
  readonly live: boolean;
  readonly bytes: number;
  readonly contents: Map<string, { readonly offset: number; readonly size: number }>;
  readonly states: StateRecord[];
  readonly held: string[];
  /** Bytes at the journal's end that are no record: torn, or damaged. */
  readonly unread: number;
}

interface StateRecord {
  readonly digest: string;
  readonly at: number;
  readonly parent: string | undefined;
  readonly type: number;
  /** Where the record's body is. */
  readonly start: number;
  readonly end: number;
}

/** Tidies a store up. Throws GcError; SnapshotError where the store is damaged or none. */
export function gc(dir: string, options: GcOptions): GcReport {
  // A store, and readable: before anything is locked or announced.
  Store.open(dir).close();
  for (let tries = 1; ; tries++) {
    try {
      return new Collection(dir, options).run();
    } catch (error) {
      // A writer took back a state that was just listed: nothing was deleted, and it is looked at anew.
      const isGone = error instanceof SnapshotError && error.code === 'unknown-state';
      if (!isGone || tries === TRIES) throw error;
    }
  }
}

/** A store of which a state is missing for good is damaged, and says so after as many. */
const TRIES = 5;

class Collection {
  readonly #dir: string;
  readonly #options: GcOptions;
  readonly #now: number;
  readonly #requested: ReadonlySet<string>;
  readonly #damaged = new Set<string>();
  readonly #neededBy = new WeakMap<readonly Pair[], ReadonlySet<string>>();
  /** Of what was last read. */
  #opened: Store | undefined;

  constructor(dir: string, options: GcOptions) {
    this.#dir = dir;
    this.#options = options;
    this.#now = (options.now ?? Date.now)();
    this.#requested = new Set(options.keep);
  }

  run(): GcReport {
    const unlock = this.#lock();
    try {
      if (this.#options.dryRun === true) return this.#dryRun();
      this.#removeLeftovers();
      this.#announce(true, []);
      let obsolete: string[] = [];
      try {
        const { report, old } = this.#tidy();
        obsolete = old;
        return report;
      } finally {
        this.#announce(false, obsolete);
        this.#delete(obsolete);
      }
    } finally {
      this.#closeStore();
      unlock();
    }
  }

  /** Everything but the deleting: the pairs that are not needed any more. */
  #tidy(): { readonly report: GcReport; readonly old: string[] } {
    let pairs = this.#read();
    const before = pairs;
    const old = this.#unwantedIn(pairs);
    const report = this.#reportOn(pairs);
    for (;;) {
      const missing = old.size === 0 ? undefined : this.#onlyIn(old, pairs);
      if (!missing) break;
      this.#copy(missing, pairs);
      pairs = this.#read();
    }
    const lost = report.missing.length > 0;
    // A state that was asked for may be behind the damage of a journal.
    const gone = pairs.filter(
      (pair) => old.has(pair.id) && !this.#keepsDamaged(pair) && !(lost && pair.unread > 0),
    );
    const stays = pairs.filter((pair) => !gone.includes(pair));
    const bytes = { before: bytesOf(before), after: bytesOf(stays) };
    return { report: { ...report, bytes, damaged: this.#damagedList() }, old: gone.map(({ id }) => id) };
  }

  #dryRun(): GcReport {
    const pairs = this.#read();
    const old = this.#unwantedIn(pairs);
    const kept = this.#wanted(pairs);
    const needed = this.#needed(pairs, kept);
    const before = bytesOf(pairs);
    let after = bytesOf(pairs.filter(({ id }) => !old.has(id)));
    for (const pair of pairs) {
      if (!old.has(pair.id)) continue;
      for (const [key, { size }] of pair.contents) if (needed.has(key)) after += size;
      for (const { digest, start, end } of pair.states) if (kept.has(digest)) after += end - start;
    }
    return { ...this.#reportOn(pairs), bytes: { before, after: Math.min(after, before) }, damaged: [] };
  }

  // What there is, and what of it is wanted.

  #read(): Pair[] {
    this.#closeStore();
    const ids = readdirSync(this.#dir)
      .flatMap((name) => /^([0-9a-f]+)\.journal$/.exec(name)?.[1] ?? [])
      .sort();
    return ids.flatMap((id, done) => {
      this.#options.onProgress?.({ phase: 'reading', done, total: ids.length });
      return this.#readPair(id) ?? [];
    });
  }

  #readPair(id: string): Pair | undefined {
    const fd = openSync(this.#file(id, 'journal'), constants.O_RDONLY);
    try {
      const pair = {
        contents: new Map<string, { offset: number; size: number }>(),
        states: [] as StateRecord[],
        held: [] as string[],
      };
      let writer: WriterIdentity | undefined;
      let readTo = 0;
      for (const { type, body, start, end } of journalRecords(fd, 0)) {
        readTo = end;
        if (type === RECORD.WRITER) writer ??= JSON.parse(body.toString()) as WriterIdentity;
        else if (type === RECORD.HELD) pair.held.push(formatDigest(body));
        else if (type === RECORD.CONTENTS) {
          for (const { hash, offset, size } of contentPlaces(body))
            pair.contents.set(hash.toString('latin1'), { offset, size });
        } else if (type === RECORD.CHECKPOINT || type === RECORD.DELTA) {
          pair.states.push(stateRecord(type, body, start, end));
        }
      }
      const journal = sizeOf(this.#file(id, 'journal'));
      const bytes = journal + sizeOf(this.#file(id, 'pack'));
      return { id, writer, live: this.#isLive(id, writer), bytes, unread: journal - readTo, ...pair };
    } finally {
      closeSync(fd);
    }
  }

  #isLive(id: string, writer: WriterIdentity | undefined): boolean {
    const quiet = this.#now - statSync(this.#file(id, 'journal')).mtimeMs;
    // Not even its first record is there: it is being made, or its maker was killed.
    if (!writer) return quiet < LEFT_BEHIND_MS;
    const life = lifeOf(writer);
    return life === 'running' || (life === 'unknown' && quiet < FOREIGN_MS);
  }

  /** By digest: what is asked for, what is new, and what writers that live have, hold, or keep changes of. */
  #wanted(pairs: readonly Pair[]): Map<string, StateRecord> {
    const all = statesOf(pairs);
    const wanted = new Map<string, StateRecord>();
    const want = (digest: string | undefined): void => {
      const state = digest === undefined ? undefined : all.get(digest);
      if (state && isWhole(state, all)) wanted.set(state.digest, state);
    };
    for (const digest of this.#requested) want(digest);
    const { newerThan = Infinity } = this.#options;
    for (const { digest, at } of all.values()) if (at >= newerThan) want(digest);
    for (const { live, states, held } of pairs) {
      if (!live) continue;
      for (const digest of held) want(digest);
      for (const { digest, parent } of states) {
        want(digest);
        want(parent);
      }
    }
    return wanted;
  }

  /** Contents that the wanted states have, each byte a character: what their records mention, or will. */
  #needed(pairs: readonly Pair[], wanted: ReadonlyMap<string, StateRecord>): ReadonlySet<string> {
    const known = this.#neededBy.get(pairs);
    if (known) return known;
    const needed = new Set<string>();
    const all = statesOf(pairs);
    for (const state of wanted.values()) this.#mention(state.digest, wayTo(state, all, wanted), needed);
    this.#neededBy.set(pairs, needed);
    return needed;
  }

  #mention(digest: string, way: Way, into: Set<string>): void {
    const note = (content: Buffer | undefined): void => {
      if (content) into.add(content.toString('latin1'));
    };
    const store = this.#store();
    if (way === 'record') {
      const { type, body } = store.recordOf(digest);
      for (const { path, entryAt } of stateChanges(body, stateHead(type, body).changes))
        if (entryAt !== undefined) note(readEntry(path, body, entryAt).entry.content);
    } else if (way.from === undefined) {
      const manifest = store.manifest(digest);
      for (let root = 0; root < manifest.state.roots.length; root++)
        for (const { content } of manifest.entries(root)) note(content);
    } else {
      for (const { entry } of composed(store, way.from, digest)) note(entry?.content);
    }
  }

  #store(): Store {
    this.#opened ??= Store.open(this.#dir);
    return this.#opened;
  }

  #closeStore(): void {
    this.#opened?.close();
    this.#opened = undefined;
  }

  /** Pairs of writers that are gone, in which there is something that nobody wants. */
  #unwantedIn(pairs: readonly Pair[]): Set<string> {
    const wanted = this.#wanted(pairs);
    const needed = this.#needed(pairs, wanted);
    const ended = pairs.filter(({ live }) => !live);
    const crowded = ended.length > MANY_FILES;
    const seen = new Set<string>();
    const old = new Set<string>();
    for (const { id, contents, states } of ended) {
      const stays =
        states.length > 0 &&
        states.every(
          (state) =>
            wanted.get(state.digest) === state && (state.parent === undefined || wanted.has(state.parent)),
        ) &&
        [...contents.keys()].every((key) => needed.has(key) && !seen.has(key));
      if (!stays || crowded) old.add(id);
      else for (const key of contents.keys()) seen.add(key);
    }
    return old;
  }

  /** What of the wanted is in these pairs only; undefined where there is nothing. */
  #onlyIn(
    old: ReadonlySet<string>,
    pairs: readonly Pair[],
  ): { readonly states: StateRecord[]; readonly contents: string[] } | undefined {
    const rest = pairs.filter(({ id }) => !old.has(id));
    const there = statesOf(rest);
    const wanted = this.#wanted(pairs);
    const states = inOrder([...wanted.values()].filter(({ digest }) => !there.has(digest)));
    const stored = new Set<string>();
    for (const { contents } of rest) for (const key of contents.keys()) stored.add(key);
    const contents = [...this.#needed(pairs, wanted)].filter(
      (key) => !stored.has(key) && !this.#damaged.has(key),
    );
    return states.length > 0 || contents.length > 0 ? { states, contents } : undefined;
  }

  // Copying.

  #copy(
    { states, contents }: { readonly states: readonly StateRecord[]; readonly contents: readonly string[] },
    pairs: readonly Pair[],
  ): void {
    const id = `${this.#now.toString(16).padStart(12, '0')}${randomBytes(8).toString('hex')}`;
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
    const temporary = `${this.#file(id, 'journal')}.tmp`;
    const pack = openSync(this.#file(id, 'pack'), flags, 0o600);
    const journal = openSync(temporary, flags, 0o600);
    try {
      writeAll(journal, JOURNAL_MAGIC);
      writeAll(journal, makeRecord(RECORD.WRITER, Buffer.from(JSON.stringify(NOBODY))));
      const places = this.#copyContents(contents, pairs, pack);
      if (places.length > 0) writeAll(journal, makeRecord(RECORD.CONTENTS, encodeContents(places)));
      const all = statesOf(pairs);
      const wanted = this.#wanted(pairs);
      for (const state of states) writeAll(journal, this.#record(state, all, wanted));
      fsyncSync(pack);
      fsyncSync(journal);
    } finally {
      closeSync(pack);
      closeSync(journal);
    }
    renameSync(temporary, this.#file(id, 'journal'));
    syncDirectory(this.#dir);
  }

  #copyContents(contents: readonly string[], pairs: readonly Pair[], into: number): ContentAt[] {
    const where = new Map<
      string,
      { readonly pair: Pair; readonly offset: number; readonly size: number }[]
    >();
    for (const key of contents) where.set(key, []);
    for (const pair of pairs)
      for (const [key, place] of pair.contents) where.get(key)?.push({ pair, ...place });
    const packs = new Map<string, number>();
    const open = (id: string): number => {
      const fd = packs.get(id) ?? openSync(this.#file(id, 'pack'), constants.O_RDONLY);
      packs.set(id, fd);
      return fd;
    };
    const places: ContentAt[] = [];
    let end = 0;
    let done = 0;
    try {
      for (const [key, candidates] of where) {
        this.#options.onProgress?.({ phase: 'copying', done: done++, total: where.size });
        const hash = Buffer.from(key, 'latin1');
        const size = candidates.reduce<number | undefined>(
          (copied, { pair, offset, size: length }) =>
            copied ?? copyContent(hash, open(pair.id), offset, length, into, end),
          undefined,
        );
        if (size === undefined) {
          this.#damaged.add(key);
          continue;
        }
        places.push({ hash, offset: end, size });
        end += size;
      }
    } finally {
      for (const fd of packs.values()) closeSync(fd);
    }
    return places;
  }

  /** The record of a state in its new journal: the old one where what it is a change of stays too. */
  #record(
    state: StateRecord,
    all: ReadonlyMap<string, StateRecord>,
    wanted: ReadonlyMap<string, StateRecord>,
  ): Buffer {
    const store = this.#store();
    const way = wayTo(state, all, wanted);
    if (way === 'record') {
      const { type, body } = store.recordOf(state.digest);
      return makeRecord(type, body);
    }
    const { from } = way;
    if (from === undefined) {
      const manifest = store.manifest(state.digest);
      const roots = manifest.state.roots.map((_, root) => manifest.entries(root));
      return encodeCheckpoint(state.at, encodeState(manifest.state), roots);
    }
    const { state: bytes } = stateHead(state.type, store.recordOf(state.digest).body);
    return encodeDelta(state.at, parseDigest(from), bytes, composed(store, from, state.digest));
  }

  // The directory.

  #delete(ids: readonly string[]): void {
    if (ids.length === 0) return;
    for (const [done, id] of ids.entries()) {
      this.#options.onProgress?.({ phase: 'deleting', done, total: ids.length });
      removeIfThere(this.#file(id, 'journal'));
    }
    for (const id of ids) removeIfThere(this.#file(id, 'pack'));
    syncDirectory(this.#dir);
  }

  /** A content that could not be copied may still be got out of the old file by other means. */
  #keepsDamaged({ contents }: Pair): boolean {
    return [...contents.keys()].some((key) => this.#damaged.has(key));
  }

  #damagedList(): string[] {
    return [...this.#damaged].map((key) => formatDigest(Buffer.from(key, 'latin1')));
  }

  /** What a gc that was killed left: files that are no part of the store, or never became one. */
  #removeLeftovers(): void {
    this.#delete(obsoleteIn(this.#store().generation));
    const names = new Set(readdirSync(this.#dir));
    for (const name of names) {
      const pack = /^([0-9a-f]+)\.pack$/.exec(name)?.[1];
      const orphan = (pack !== undefined && !names.has(`${pack}.journal`)) || name.endsWith('.tmp');
      const path = join(this.#dir, name);
      if (orphan && this.#now - statSync(path).mtimeMs > LEFT_BEHIND_MS) removeIfThere(path);
    }
  }

  #announce(tidying: boolean, obsolete: readonly string[]): void {
    const path = join(this.#dir, GENERATION_FILE);
    const temporary = join(this.#dir, `${randomBytes(8).toString('hex')}.tmp`);
    writeFileSync(temporary, makeGeneration(tidying, obsolete), { mode: 0o600, flag: 'wx', flush: true });
    renameSync(temporary, path);
    syncDirectory(this.#dir);
  }

  /** A lock is a file that says whose it is. One whose owner has ended is taken away by whoever renames it first. */
  #lock(): () => void {
    const path = join(this.#dir, 'gc.lock');
    const own = join(this.#dir, `${randomBytes(8).toString('hex')}.tmp`);
    writeFileSync(own, JSON.stringify(thisProcess()), { mode: 0o600, flag: 'wx' });
    try {
      for (let tries = 0; ; tries++) {
        try {
          linkSync(own, path);
          return () => removeIfThere(path);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
        }
        if (tries > 0 || !takeAway(path, this.#now))
          throw new GcError('busy', `another gc is at work in ${this.#dir}`);
      }
    } finally {
      removeIfThere(own);
    }
  }

  #file(id: string, kind: 'journal' | 'pack'): string {
    return join(this.#dir, `${id}.${kind}`);
  }

  #reportOn(pairs: readonly Pair[]): Omit<GcReport, 'bytes' | 'damaged'> {
    const all = statesOf(pairs);
    const kept = this.#wanted(pairs);
    return {
      states: { kept: kept.size, dropped: all.size - kept.size },
      writers: pairs
        .filter(({ live }) => live)
        .map(({ writer, bytes, states }) => ({ pid: writer?.pid ?? 0, bytes, states: states.length })),
      missing: [...this.#requested].filter((digest) => !kept.has(digest)),
    };
  }
}

const bytesOf = (pairs: readonly Pair[]): number => pairs.reduce((sum, { bytes }) => sum + bytes, 0);

function stateRecord(type: number, body: Buffer, start: number, end: number): StateRecord {
  const head = stateHead(type, body);
  return {
    digest: formatDigest(digestOf('sha256', head.state, 'buffer')),
    at: head.at,
    parent: head.parent ? formatDigest(head.parent) : undefined,
    type,
    start,
    end,
  };
}

/** The record of each state: the first, but a whole one rather than a change, as the store reads it. */
function statesOf(pairs: readonly Pair[]): Map<string, StateRecord> {
  const all = new Map<string, StateRecord>();
  for (const { states } of pairs) {
    for (const state of states) {
      const known = all.get(state.digest);
      if (!known || (known.parent !== undefined && state.parent === undefined)) all.set(state.digest, state);
    }
  }
  return all;
}

/** Whether all that a state is kept as a change of is there. */
function isWhole(state: StateRecord, all: ReadonlyMap<string, StateRecord>): boolean {
  const seen = new Set<string>();
  for (let at: StateRecord | undefined = state; at && !seen.has(at.digest); at = all.get(at.parent)) {
    if (at.parent === undefined) return true;
    seen.add(at.digest);
  }
  return false;
}

type Way = 'record' | { readonly from: string | undefined };

/**
 * How a wanted state will be kept: by its record, where it is whole or a change of what is wanted; else anew, as a
 * change of the nearest wanted state before it, or (undefined) whole.
 */
function wayTo(
  state: StateRecord,
  all: ReadonlyMap<string, StateRecord>,
  wanted: ReadonlyMap<string, StateRecord>,
): Way {
  if (state.parent === undefined || wanted.has(state.parent)) return 'record';
  let from: string | undefined = state.parent;
  while (from !== undefined && !wanted.has(from)) from = all.get(from)?.parent;
  return { from };
}

/** The changes from one state to another that was kept as changes of it, in the order that a record has them. */
function composed(store: Store, from: string, to: string): Change[] {
  return (changesSince(store, from, to) ?? []).sort((a, b) => a.root - b.root || byBytes(a.path, b.path));
}

const inOrder = (states: readonly StateRecord[]): StateRecord[] => states.toSorted((a, b) => a.at - b.at);

/** Copies one content to `end` of a pack, and says its size; undefined where it is not what its hash says. */
function copyContent(
  hash: Buffer,
  from: number,
  offset: number,
  size: number,
  into: number,
  end: number,
): number | undefined {
  const digest = createHash('sha256');
  const buffer = Buffer.allocUnsafe(Math.min(size, PIECE));
  for (let at = 0; at < size;) {
    const piece = buffer.subarray(0, Math.min(buffer.length, size - at));
    if (!readFully(from, piece, offset + at)) return undefined;
    digest.update(piece);
    writeAll(into, piece, end + at);
    at += piece.length;
  }
  return digest.digest().equals(hash) ? size : undefined;
}

/** At the end of what was written, or at a place. */
function writeAll(fd: number, bytes: Buffer, position: number | null = null): void {
  for (let at = 0; at < bytes.length;)
    at += writeSync(fd, bytes, at, bytes.length - at, position === null ? null : position + at);
}

const sizeOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

function removeIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** False: whose lock it is may be at work. Renaming decides between two that find the same one left behind. */
function takeAway(path: string, now: number): boolean {
  const holder = holderOf(path);
  if (!holder) return true;
  const life = lifeOf(holder.identity);
  if (life === 'running' || (life === 'unknown' && now - holder.since < FOREIGN_MS)) return false;
  const aside = `${path}.${randomBytes(8).toString('hex')}.tmp`;
  try {
    renameSync(path, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return true;
    throw error;
  }
  const taken = holderOf(aside)?.identity;
  const same = taken?.pid === holder.identity.pid && taken.started === holder.identity.started;
  try {
    // Somebody was quicker, and this is theirs.
    if (!same) linkSync(aside, path);
  } finally {
    unlinkSync(aside);
  }
  return same;
}

function holderOf(path: string): { readonly identity: WriterIdentity; readonly since: number } | undefined {
  try {
    const since = statSync(path).mtimeMs;
    return { identity: JSON.parse(readFileSync(path, 'utf8')) as WriterIdentity, since };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
