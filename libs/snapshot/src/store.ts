import { createHash, hash as digestOf, randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  fdatasyncSync,
  fsyncSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { ContentIndex, type ContentPlace } from './content-index.js';
import { SnapshotError } from './error.js';
import {
  type Change,
  type ContentAt,
  contentPlaces,
  encodeCheckpoint,
  encodeContents,
  encodeDelta,
  journalRecords,
  makeRecord,
  JOURNAL_MAGIC,
  RECORD,
  readFully,
  RECORD_OVERHEAD,
  records,
  stateChanges,
  stateHead,
} from './journal.js';
import { thisProcess, type WriterIdentity } from './identity.js';
import {
  decodeState,
  encodeState,
  type Entry,
  formatDigest,
  parseDigest,
  readEntry,
  type State,
  stateDigest,
} from './manifest.js';

const FORMAT = 'belay-snapshot 1\n';
/** Content is collected up to this before it is written; bytes. */
const STAGE_BYTES = 4 * 1024 * 1024;
/** A chain of deltas is cut by a checkpoint when it has become as long as a checkpoint, and never before this. */
const MIN_CHAIN_BYTES = 256 * 1024;
const MAX_CHAIN = 2048;
/** Contents whose places are told to the journal at once. */
const MAX_PENDING = 4096;

/** What is known of a state without reading it. */
export interface StateInfo {
  readonly digest: string;
  /** When it was first captured, milliseconds since 1970. */
  readonly at: number;
  /** The state it was kept as a change of; undefined: it was kept whole. */
  readonly parent: string | undefined;
  /** Bytes of its record. */
  readonly bytes: number;
}

interface StatePlace extends StateInfo {
  readonly journal: number;
  /** Where its record begins. */
  readonly offset: number;
}

/** Deltas since the last whole state, their bytes, and the bytes of that one. */
interface ChainCost {
  readonly length: number;
  readonly changes: number;
  readonly whole: number;
}

/** How far a journal was read. */
interface JournalFile {
  readonly id: string;
  read: number;
  /** Somebody tidied up; its number is not given again. */
  gone?: boolean;
}

/**
 * In the store's directory, put in place in one step when a `gc` begins and when it is done: a name that was never used
 * before and whether it is at work, then the journals that are no part of the store any more, though they may be there.
 */
export const GENERATION_FILE = 'generation';
const TIDYING = ' running';

export const makeGeneration = (tidying: boolean, obsolete: readonly string[]): string =>
  [`${randomBytes(16).toString('hex')}${tidying ? TIDYING : ''}`, ...obsolete, ''].join('\n');

export const obsoleteIn = (generation: string): string[] =>
  generation
    .split('\n')
    .slice(1)
    .filter((id) => id !== '');

const isTidying = (generation: string): boolean => generation.split('\n', 1)[0]?.endsWith(TIDYING) === true;

/**
 * A directory of states (0700, files 0600), shared by any number of processes. Each writer appends to a pack and a
 * journal of its own and nobody else writes to them, so there are no locks; everybody reads all of them. A state is in
 * a journal only after its contents are in a pack, and a journal's torn end is not read: whatever a kill leaves, what
 * `states()` names can be restored.
 */
export class Store {
  readonly dir: string;
  readonly #contents = new ContentIndex();
  readonly #journals: JournalFile[] = [];
  readonly #states = new Map<string, StatePlace>();
  /** By number of the journal; a pack is opened when something is first read from it. */
  readonly #packs = new Map<number, number>();
  readonly #costs = new Map<string, ChainCost>();
  #writer: StoreWriter | undefined;
  /** Text of the generation file before the journals were read. */
  #generation = '';

  private constructor(dir: string) {
    this.dir = dir;
  }

  /**
   * Opens a store, or makes one of a directory that is empty or missing. Throws `no-store` where it is something else.
   */
  static open(dir: string): Store {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const file = join(dir, 'format');
    if (!existsSync(file)) {
      if (readdirSync(dir).some((name) => name !== 'format' && !name.endsWith('.tmp')))
        throw new SnapshotError('no-store', `${dir} holds something else`);
      // Two that begin at once: either's file says the same.
      const temporary = join(dir, `${randomBytes(8).toString('hex')}.tmp`);
      writeFileSync(temporary, FORMAT, { mode: 0o600, flag: 'wx' });
      try {
        linkSync(temporary, file);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      } finally {
        unlinkSync(temporary);
      }
    }
    if (readFileSync(file, 'utf8') !== FORMAT)
      throw new SnapshotError('no-store', `${dir} is not a store of this version`);
    const store = new Store(dir);
    store.reload();
    return store;
  }

  get generation(): string {
    return this.#generation;
  }

  readGeneration(): string {
    try {
      const path = join(this.dir, GENERATION_FILE);
      // Asked twice for every state, and mostly there is none: an error costs more than the question.
      return existsSync(path) ? readFileSync(path, 'latin1') : '';
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
      throw error;
    }
  }

  /** Reads what was appended since, by whomever; everything, where somebody tidied up. */
  refresh(): void {
    if (this.readGeneration() === this.#generation) this.#readAll();
    else this.reload();
  }

  /** Forgets what was read and reads everything that is there now. */
  reload(): void {
    do {
      this.#generation = this.readGeneration();
      this.#contents.clear();
      this.#states.clear();
      this.#costs.clear();
      for (const journal of this.#journals) journal.read = 0;
      this.#readAll();
      // Else what was read is half of the one and half of the other.
    } while (this.readGeneration() !== this.#generation);
  }

  #readAll(): void {
    const obsolete = new Set(obsoleteIn(this.#generation));
    const present = readdirSync(this.dir)
      .flatMap((name) => /^([0-9a-f]+)\.journal$/.exec(name)?.[1] ?? [])
      .filter((id) => !obsolete.has(id))
      .sort();
    const known = new Set(this.#journals.map(({ id }) => id));
    for (const id of present) if (!known.has(id)) this.#journals.push({ id, read: 0 });
    const there = new Set(present);
    this.#journals.forEach((journal, number) => {
      journal.gone = !there.has(journal.id);
      if (!journal.gone) this.#readJournal(number);
      else this.#forgetPack(number);
    });
  }

  #forgetPack(number: number): void {
    const pack = this.#packs.get(number);
    if (pack === undefined) return;
    closeSync(pack);
    this.#packs.delete(number);
  }

  /** Every state that can be had, in the order in which they were captured. */
  states(): StateInfo[] {
    return [...this.#states.values()]
      .filter(({ digest }) => this.has(digest))
      .sort((a, b) => a.at - b.at)
      .map(({ digest, at, parent, bytes }) => ({ digest, at, parent, bytes }));
  }

  /** Whether a state and all that it is kept as a change of are there. */
  has(digest: string): boolean {
    return this.#chain(digest) !== undefined;
  }

  info(digest: string): StateInfo | undefined {
    return this.#states.get(digest);
  }

  hasContent(hash: Buffer): boolean {
    return this.#contents.has(hash);
  }

  /**
   * The entries of a state. `from` may be the manifest of an earlier state of the same chain: it is then changed into
   * this one, which costs what the states differ in, and must not be used any more. Throws `unknown-state`,
   * `malformed`.
   */
  manifest(digest: string, from?: Manifest): Manifest {
    const chain = this.#chain(digest);
    if (!chain) throw new SnapshotError('unknown-state', `${this.dir} has no state ${digest}`);
    const start = from ? chain.findIndex((place) => place.digest === from.digest) : -1;
    const manifest = start >= 0 ? (from as Manifest) : new Manifest();
    for (const place of chain.slice(start + 1)) {
      const record = this.#readRecord(place);
      if (!record) {
        // Somebody tidied up: it may be kept as a change of something else now.
        this.reload();
        return this.manifest(digest);
      }
      manifest.apply(place.digest, record.type, record.body);
    }
    return manifest;
  }

  /**
   * What a state was kept as a change of, and the changes: each path once, in order. Undefined where it was kept
   * whole.
   */
  delta(digest: string): { parent: string; changes: Change[] } | undefined {
    const place = this.#states.get(digest);
    if (!place) throw new SnapshotError('unknown-state', `${this.dir} has no state ${digest}`);
    if (place.parent === undefined) return undefined;
    const record = this.#readRecord(place);
    if (!record) {
      this.reload();
      return this.delta(digest);
    }
    const { body, type } = record;
    const changes = [...stateChanges(body, stateHead(type, body).changes)].map(({ root, path, entryAt }) => ({
      root,
      path,
      entry: entryAt === undefined ? undefined : readEntry(path, body, entryAt).entry,
    }));
    return { parent: place.parent, changes };
  }

  /** A content, checked. Throws `content-missing`, `content-damaged`. */
  content(hash: Buffer): Buffer {
    const { place, pack } = this.#find(hash);
    const bytes = Buffer.allocUnsafe(place.size);
    if (!readFully(pack, bytes, place.offset) || !digestOf('sha256', bytes, 'buffer').equals(hash))
      throw new SnapshotError('content-damaged', `content ${formatDigest(hash)} is damaged`);
    return bytes;
  }

  /**
   * A content of any size, in pieces that are valid until the next one. Throws as `content` does; the pieces that came
   * before are then worth nothing.
   */
  *readContent(hash: Buffer, piece = 1024 * 1024): Generator<Buffer> {
    const { place, pack } = this.#find(hash);
    const buffer = Buffer.allocUnsafe(Math.min(piece, place.size));
    const digest = createHash('sha256');
    for (let at = 0; at < place.size; at += buffer.length) {
      const bytes = buffer.subarray(0, Math.min(buffer.length, place.size - at));
      if (!readFully(pack, bytes, place.offset + at))
        throw new SnapshotError('content-damaged', `content ${formatDigest(hash)} ends early`);
      digest.update(bytes);
      yield bytes;
    }
    if (!digest.digest().equals(hash))
      throw new SnapshotError('content-damaged', `content ${formatDigest(hash)} is damaged`);
  }

  /** Throws unless every content of a state is there and is what its hash says. */
  check(digest: string): void {
    const manifest = this.manifest(digest);
    const seen = new Set<string>();
    for (let root = 0; root < manifest.state.roots.length; root++) {
      for (const { content } of manifest.entries(root)) {
        const key = content?.toString('latin1');
        if (content === undefined || key === undefined || seen.has(key)) continue;
        seen.add(key);
        for (const _ of this.readContent(content));
      }
    }
  }

  /** The one writer of this object; others open the directory for themselves. `now`: wall clock in milliseconds. */
  writer(now: () => number = Date.now): StoreWriter {
    // Two would take each other's contents for kept before they are.
    if (this.#writer) throw new SnapshotError('arguments', 'this store has its writer');
    this.#writer = new StoreWriter(this, this.#contents, now);
    return this.#writer;
  }

  /** Whether a state's own record is in this journal. */
  isIn(digest: string, journal: number): boolean {
    return this.#states.get(digest)?.journal === journal;
  }

  /** The journal of a writer is not there any more: somebody took it for ended. */
  isGone(journal: number): boolean {
    return this.#journals[journal]?.gone === true;
  }

  /** A record was taken back. */
  forget(digest: string, journal: number, end: number): void {
    if (this.isIn(digest, journal)) this.#states.delete(digest);
    this.#costs.delete(digest);
    (this.#journals[journal] as JournalFile).read = end;
  }

  /** Journals and packs, by their common name, oldest first; for whoever tidies up. */
  files(): {
    readonly id: string;
    readonly journal: string;
    readonly pack: string;
    readonly writer?: WriterIdentity;
  }[] {
    return this.#journals.flatMap(({ id, gone }) => {
      if (gone === true) return [];
      const journal = join(this.dir, `${id}.journal`);
      const head = Buffer.alloc(4096);
      const fd = openSync(journal, 'r');
      const length = readSync(fd, head, 0, head.length, 0);
      closeSync(fd);
      const [first] = records(head.subarray(JOURNAL_MAGIC.length, length));
      const writer =
        first?.type === RECORD.WRITER ? (JSON.parse(first.body.toString()) as WriterIdentity) : undefined;
      return { id, journal, pack: join(this.dir, `${id}.pack`), ...(writer ? { writer } : {}) };
    });
  }

  close(): void {
    for (const fd of this.#packs.values()) closeSync(fd);
    this.#packs.clear();
  }

  /** What it costs to read a state; undefined where it can't be had. */
  chainCost(digest: string): ChainCost | undefined {
    const known = this.#costs.get(digest);
    if (known) return known;
    let cost: ChainCost | undefined;
    for (const place of this.#chain(digest) ?? []) {
      cost = cost
        ? { ...cost, length: cost.length + 1, changes: cost.changes + place.bytes }
        : { length: 0, changes: 0, whole: place.bytes };
      this.#costs.set(place.digest, cost);
    }
    return cost;
  }

  /** A writer's own files, as it makes them: what it appends it tells by `noteState` and the index. */
  adoptJournal(id: string, read: number): number {
    return this.#journals.push({ id, read }) - 1;
  }

  noteState(info: StateInfo, journal: number, offset: number, end: number): void {
    this.#states.set(info.digest, { ...info, journal, offset });
    const before = info.parent === undefined ? undefined : this.#costs.get(info.parent);
    if (before)
      this.#costs.set(info.digest, {
        ...before,
        length: before.length + 1,
        changes: before.changes + info.bytes,
      });
    (this.#journals[journal] as JournalFile).read = end;
  }

  noteContents(journal: number, end: number): void {
    (this.#journals[journal] as JournalFile).read = end;
  }

  /** From the last whole state to this one; undefined where something is missing. */
  #chain(digest: string): StatePlace[] | undefined {
    const chain: StatePlace[] = [];
    for (let next: string | undefined = digest; next !== undefined;) {
      const place = this.#states.get(next);
      if (!place || chain.length > MAX_CHAIN * 2) return undefined;
      chain.push(place);
      next = place.parent;
    }
    return chain.reverse();
  }

  #readJournal(number: number): void {
    const journal = this.#journals[number] as JournalFile;
    const path = join(this.dir, `${journal.id}.journal`);
    let fd: number;
    try {
      fd = openSync(path, 'r');
    } catch (error) {
      // Someone tidied up since the directory was listed.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      throw error;
    }
    try {
      for (const { type, body, start, end } of journalRecords(fd, journal.read)) {
        this.#note(number, type, body, start);
        journal.read = end;
      }
    } finally {
      closeSync(fd);
    }
  }

  #note(journal: number, type: number, body: Buffer, offset: number): void {
    if (type === RECORD.CONTENTS) {
      for (const { hash, offset: start, size } of contentPlaces(body))
        this.#contents.add(hash, journal, start, size);
    } else if (type === RECORD.CHECKPOINT || type === RECORD.DELTA) {
      const head = stateHead(type, body);
      const digest = formatDigest(digestOf('sha256', head.state, 'buffer'));
      const info = {
        digest,
        at: head.at,
        parent: head.parent ? formatDigest(head.parent) : undefined,
        bytes: body.length + RECORD_OVERHEAD,
      };
      const before = this.#states.get(digest);
      // Kept twice: whole is better than as a change. The time is that of the first.
      if (before && !(before.parent !== undefined && info.parent === undefined)) return;
      this.#states.set(digest, { ...info, at: before?.at ?? info.at, journal, offset });
    }
  }

  /** What a state's digest is taken of, without its entries. Throws `unknown-state`, `malformed`. */
  stateOf(digest: string): State {
    const { type, body } = this.recordOf(digest);
    return decodeState(stateHead(type, body).state);
  }

  /** A state's record as it was kept. Throws `unknown-state`. */
  recordOf(digest: string): { readonly type: number; readonly body: Buffer } {
    const place = this.#states.get(digest);
    const record = place && this.#readRecord(place);
    if (!record) throw new SnapshotError('unknown-state', `${this.dir} has no state ${digest}`);
    return record;
  }

  /** Undefined: its journal is not there any more. */
  #readRecord(place: StatePlace): { readonly type: number; readonly body: Buffer } | undefined {
    const { id } = this.#journals[place.journal] as JournalFile;
    let fd: number;
    try {
      fd = openSync(join(this.dir, `${id}.journal`), 'r');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
    try {
      const bytes = Buffer.allocUnsafeSlow(place.bytes);
      const whole = readFully(fd, bytes, place.offset);
      const [record] = whole ? records(bytes) : [];
      if (!record) throw new SnapshotError('malformed', `the record of ${place.digest} is damaged`);
      return record;
    } finally {
      closeSync(fd);
    }
  }

  /** Where a content is, in an open pack. */
  #find(hash: Buffer, again = true): { readonly place: ContentPlace; readonly pack: number } {
    const place = this.#contents.get(hash);
    if (!place) throw new SnapshotError('content-missing', `no content ${formatDigest(hash)}`);
    try {
      return { place, pack: this.#pack(place.pack) };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || !again) throw error;
      // Somebody tidied up since.
      this.reload();
      return this.#find(hash, false);
    }
  }

  #pack(number: number): number {
    const known = this.#packs.get(number);
    if (known !== undefined) return known;
    const { id } = this.#journals[number] as JournalFile;
    const fd = openSync(join(this.dir, `${id}.pack`), 'r');
    this.#packs.set(number, fd);
    return fd;
  }
}

/** The entries of one state, by path. Compact: entries stay the bytes they were kept as until they are asked for. */
export class Manifest {
  #digest = '';
  #state: State | undefined;
  readonly #bodies: Buffer[] = [];
  /** Per root, by path (each byte a character): which body, and where in it. */
  #roots: Map<string, number>[] = [];

  get digest(): string {
    return this.#digest;
  }

  get state(): State {
    return this.#state as State;
  }

  /** How many entries a root has. */
  size(root: number): number {
    return this.#roots[root]?.size ?? 0;
  }

  get(root: number, path: Buffer): Entry | undefined {
    return this.#entry(root, path.toString('latin1'));
  }

  /** In order of the paths' bytes, so a directory comes before what is in it. */
  *entries(root: number): Generator<Entry> {
    for (const key of [...(this.#roots[root]?.keys() ?? [])].sort()) {
      yield this.#entry(root, key) as Entry;
    }
  }

  /** Owned by the store: turns it into the state that a record's changes lead to. */
  apply(digest: string, type: number, body: Buffer): void {
    const head = stateHead(type, body);
    this.#state = decodeState(head.state);
    this.#digest = digest;
    if (type === RECORD.CHECKPOINT) {
      this.#roots = this.#state.roots.map(() => new Map<string, number>());
      this.#bodies.length = 0;
    }
    while (this.#roots.length < this.#state.roots.length) this.#roots.push(new Map());
    const number = this.#bodies.push(body) - 1;
    for (const { root, path, entryAt } of stateChanges(body, head.changes)) {
      const key = path.toString('latin1');
      if (entryAt === undefined) this.#roots[root]?.delete(key);
      else this.#roots[root]?.set(key, number * BODY + entryAt);
    }
  }

  #entry(root: number, key: string): Entry | undefined {
    const place = this.#roots[root]?.get(key);
    if (place === undefined) return undefined;
    const body = this.#bodies[Math.floor(place / BODY)] as Buffer;
    return readEntry(Buffer.from(key, 'latin1'), body, place % BODY).entry;
  }
}

/** A place is the number of a body times this, plus the offset in it. */
const BODY = 2 ** 32;

/**
 * Appends to a store. The order of one state: contents into the pack, then their places into the journal, then the
 * state. What is killed in between leaves bytes that nothing refers to.
 *
 * Others may tidy up meanwhile. Contents and states in this writer's own files stay while it lives; so does every other
 * state that its journal says it holds. What it relies on beyond that, from the first content of a state to its record,
 * is there only if the generation was the same before and after; if it was not, the record is taken back (`tidied`).
 */
export class StoreWriter {
  readonly #store: Store;
  readonly #contents: ContentIndex;
  readonly #now: () => number;
  #id = '';
  #number = -1;
  #packFd = -1;
  #journalFd = -1;
  #journalEnd = 0;
  /** Where the next content goes. */
  #packEnd = 0;
  #staged = Buffer.alloc(0);
  #stagedBytes = 0;
  /** Contents in the pack, or on the way there, that no record mentions yet. */
  #pending: ContentAt[] = [];
  /** Since the first content of the state that is being made: the generation of the store. */
  #batch: { readonly generation: string; readonly tidying: boolean } | undefined;
  /** States of others that this journal says it holds. */
  readonly #held = new Set<string>();

  constructor(store: Store, contents: ContentIndex, now: () => number) {
    this.#store = store;
    this.#contents = contents;
    this.#now = now;
  }

  /** Bytes that this writer has added to pack and journal. */
  get written(): { readonly pack: number; readonly journal: number } {
    return { pack: this.#packEnd, journal: this.#journalEnd };
  }

  /** Whether a content is kept, or on its way to be. */
  has(hash: Buffer): boolean {
    this.#begin();
    return this.#has(hash);
  }

  /** Keeps a content whose SHA-256 is `hash`, unless it is there. */
  add(hash: Buffer, bytes: Buffer): void {
    this.#begin();
    if (this.#has(hash)) return;
    this.#open();
    if (this.#staged.length === 0) this.#staged = Buffer.allocUnsafeSlow(STAGE_BYTES);
    if (this.#stagedBytes + bytes.length > STAGE_BYTES) this.#flush();
    if (bytes.length > STAGE_BYTES) writeFully(this.#packFd, bytes, this.#packEnd);
    else this.#stagedBytes += bytes.copy(this.#staged, this.#stagedBytes);
    this.#note(Buffer.from(hash), bytes.length);
  }

  /**
   * Keeps a content that comes in pieces and whose hash is known only at its end. `end` gives the hash; a content that
   * is there already takes no room.
   */
  stream(): { push(bytes: Buffer): void; end(): Buffer } {
    this.#begin();
    this.#open();
    this.#flush();
    const digest = createHash('sha256');
    let size = 0;
    return {
      push: (bytes) => {
        digest.update(bytes);
        writeFully(this.#packFd, bytes, this.#packEnd + size);
        size += bytes.length;
      },
      end: () => {
        const hash = digest.digest();
        // Known: what was written is behind the end of the pack and is written over by what comes next.
        if (!this.#has(hash)) this.#note(hash, size);
        return hash;
      },
    };
  }

  /**
   * Keeps a state and returns its digest: as a change of `parent`, or whole where there is none, where the store does
   * not have it, or where the changes have added up to as much.
   */
  keep(
    state: State,
    parent: string | undefined,
    changes: readonly Change[],
    whole: () => readonly Iterable<Entry>[],
  ): string {
    const digest = stateDigest(state);
    const { generation, tidying } = this.#begin();
    this.#settleContents();
    // While others tidy up, only what is this writer's own is sure to stay.
    if (parent !== undefined && !(this.#store.has(parent) && (!tidying || this.#isOwn(parent))))
      throw new SnapshotError('tidied', `${parent}, which this is a change of, may be gone`);
    if (this.#store.has(digest) && this.#isOwn(digest)) {
      this.#batch = undefined;
      return digest;
    }
    this.#open();
    const end = this.#journalEnd;
    if (this.#store.has(digest) && !tidying) {
      this.#append(makeRecord(RECORD.HELD, parseDigest(digest)));
      this.#held.add(digest);
    } else {
      this.#appendState(state, digest, parent, changes, whole);
    }
    this.#batch = undefined;
    if (this.#store.readGeneration() === generation) return digest;
    this.#journalEnd = end;
    ftruncateSync(this.#journalFd, end);
    this.#held.delete(digest);
    this.#store.forget(digest, this.#number, end);
    throw new SnapshotError('tidied', 'the store was tidied up meanwhile');
  }

  #appendState(
    state: State,
    digest: string,
    parent: string | undefined,
    changes: readonly Change[],
    whole: () => readonly Iterable<Entry>[],
  ): void {
    const at = this.#now();
    const cost = parent === undefined ? undefined : this.#store.chainCost(parent);
    const asChange = cost && cost.length < MAX_CHAIN && cost.changes < Math.max(cost.whole, MIN_CHAIN_BYTES);
    const bytes = encodeState(state);
    if (asChange && parent !== undefined)
      this.#append(encodeDelta(at, parseDigest(parent), bytes, changes), { digest, at, parent });
    else this.#append(encodeCheckpoint(at, bytes, whole()), { digest, at, parent: undefined });
  }

  /** Where the store stands, at the first thing that is done for a state. */
  #begin(): { readonly generation: string; readonly tidying: boolean } {
    if (this.#batch) return this.#batch;
    if (this.#store.readGeneration() !== this.#store.generation) this.#store.reload();
    if (this.#packFd >= 0 && this.#store.isGone(this.#number)) this.#startAnew();
    const { generation } = this.#store;
    this.#batch = { generation, tidying: isTidying(generation) };
    return this.#batch;
  }

  /** Somebody took this writer for ended. What it kept may be elsewhere, or not. */
  #startAnew(): void {
    closeSync(this.#packFd);
    closeSync(this.#journalFd);
    this.#packFd = -1;
    this.#held.clear();
  }

  #isOwn(digest: string): boolean {
    return this.#held.has(digest) || (this.#packFd >= 0 && this.#store.isIn(digest, this.#number));
  }

  #has(hash: Buffer): boolean {
    if (this.#batch?.tidying !== true) return this.#contents.has(hash);
    const place = this.#contents.get(hash);
    if (!place) return false;
    if (this.#packFd >= 0 && place.pack === this.#number) return true;
    this.#contents.remove(hash);
    return false;
  }

  /** After a failure: forgets the contents that no record mentions. They have to be added again. */
  abandon(): void {
    for (const { hash } of this.#pending) this.#contents.remove(hash);
    const first = this.#pending[0];
    if (first) this.#packEnd = first.offset;
    this.#pending = [];
    this.#stagedBytes = 0;
    this.#batch = undefined;
  }

  /** What was kept outlasts a loss of power once this returns. */
  sync(): void {
    if (this.#packFd < 0) return;
    fdatasyncSync(this.#packFd);
    fdatasyncSync(this.#journalFd);
    syncDirectory(this.#store.dir);
  }

  close(): void {
    if (this.#packFd < 0) return;
    try {
      this.sync();
    } finally {
      closeSync(this.#packFd);
      closeSync(this.#journalFd);
      this.#packFd = -1;
      this.#journalFd = -1;
    }
  }

  #note(hash: Buffer, size: number): void {
    const offset = this.#packEnd;
    this.#contents.add(hash, this.#number, offset, size);
    this.#pending.push({ hash, offset, size });
    this.#packEnd += size;
    if (this.#pending.length >= MAX_PENDING) this.#settleContents();
  }

  #flush(): void {
    if (this.#stagedBytes === 0) return;
    // What is staged ends where the pack will.
    writeFully(this.#packFd, this.#staged.subarray(0, this.#stagedBytes), this.#packEnd - this.#stagedBytes);
    this.#stagedBytes = 0;
  }

  #settleContents(): void {
    if (this.#pending.length === 0) return;
    this.#flush();
    const body = encodeContents(this.#pending);
    this.#append(makeRecord(RECORD.CONTENTS, body));
    this.#pending = [];
  }

  #append(bytes: Buffer, state?: Omit<StateInfo, 'bytes'>): void {
    this.#open();
    // A failed write leaves a torn end; the next goes over it.
    const offset = this.#journalEnd;
    writeFully(this.#journalFd, bytes, offset);
    this.#journalEnd += bytes.length;
    if (state)
      this.#store.noteState({ ...state, bytes: bytes.length }, this.#number, offset, this.#journalEnd);
    else this.#store.noteContents(this.#number, this.#journalEnd);
  }

  #open(): void {
    if (this.#packFd >= 0) return;
    const time = this.#now().toString(16).padStart(12, '0');
    this.#id = `${time}${randomBytes(8).toString('hex')}`;
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
    const pack = openSync(join(this.#store.dir, `${this.#id}.pack`), flags, 0o600);
    this.#journalFd = openSync(join(this.#store.dir, `${this.#id}.journal`), flags, 0o600);
    this.#packFd = pack;
    const head = Buffer.concat([
      JOURNAL_MAGIC,
      makeRecord(RECORD.WRITER, Buffer.from(JSON.stringify(thisProcess()))),
    ]);
    writeFully(this.#journalFd, head, 0);
    this.#journalEnd = head.length;
    this.#packEnd = 0;
    this.#number = this.#store.adoptJournal(this.#id, head.length);
  }
}

function writeFully(fd: number, bytes: Buffer, position: number): void {
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at, position + at);
}

/** So that the new files' names outlast a loss of power together with what is synced into them. */
export function syncDirectory(dir: string): void {
  const fd = openSync(dir, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
