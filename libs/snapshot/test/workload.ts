/**
 * A seeded random life of a directory: what tools, editors, builds and hostile programs do to files, one step at a time.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  ftruncateSync,
  futimesSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { loadNative, type Native } from '../src/native.js';
import { type Chance, isRoot } from './trees.js';

const native = loadNative() as Native;
const slash = Buffer.from('/');
const join = (dir: Buffer, name: Uint8Array | string): Buffer =>
  Buffer.concat([dir, slash, Buffer.from(name)]);

/** A process beside the test's own, which does what it is told to files (`held-file.mjs`). */
export class Holder {
  readonly process: ChildProcess;
  readonly #answers: AsyncIterator<string>;

  constructor() {
    const program = fileURLToPath(new URL('held-file.mjs', import.meta.url));
    this.process = spawn(process.execPath, [program], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#answers = createInterface({ input: this.process.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]();
  }

  async do(what: string, rest: Record<string, unknown> = {}): Promise<string> {
    this.process.stdin?.write(`${JSON.stringify({ what, ...rest })}\n`);
    return (await this.#answers.next()).value as string;
  }

  async end(): Promise<void> {
    const ended = new Promise((done) => this.process.once('exit', done));
    this.process.stdin?.end();
    await ended;
  }
}

/** Every path below, each with the type it has at this moment. */
function below(dir: Buffer): { path: Buffer; type: 'file' | 'dir' | 'link' | 'other' }[] {
  const found: { path: Buffer; type: 'file' | 'dir' | 'link' | 'other' }[] = [];
  for (const entry of readdirSync(dir, { encoding: 'buffer', withFileTypes: true })) {
    const path = join(dir, entry.name);
    const type = entry.isDirectory()
      ? 'dir'
      : entry.isFile()
        ? 'file'
        : entry.isSymbolicLink()
          ? 'link'
          : 'other';
    found.push({ path, type });
    if (type === 'dir') found.push(...below(path));
  }
  return found;
}

const ODD_NAMES = [
  Buffer.from('line\nbreak'),
  Buffer.from([0xff, 0xfe, 0x80]),
  Buffer.alloc(255, 'n'),
  Buffer.from('-rf'),
  Buffer.from('a-b'),
  Buffer.from('…'),
];

export class Workload {
  readonly root: Buffer;
  readonly outside: Buffer;
  readonly #chance: Chance;
  readonly holder: Holder;
  #count = 0;
  readonly #mapped = new Map<string, string>();
  readonly #open = new Map<string, string>();
  readonly #fds: number[] = [];

  constructor(root: string, outside: string, chance: Chance, holder: Holder) {
    this.root = Buffer.from(root);
    this.outside = Buffer.from(outside);
    this.#chance = chance;
    this.holder = holder;
  }

  close(): void {
    for (const fd of this.#fds.splice(0)) closeSync(fd);
  }

  /** One thing happens; says what. */
  async step(without: readonly string[] = []): Promise<string> {
    const acts = Object.entries<() => unknown>(this.#acts).filter(([each]) => !without.includes(each));
    const [name, act] = this.#chance.one(acts);
    try {
      await act();
      return name;
    } catch (error) {
      // What chance has made of the tree does not always allow it; part of it may have happened.
      const { code } = error as NodeJS.ErrnoException;
      if (code === undefined) throw error;
      return `${name}(${code})`;
    }
  }

  #name(): Buffer {
    const chance = this.#chance;
    return chance.below(8) === 0 ? chance.one(ODD_NAMES) : Buffer.from(`f${chance.below(40)}`);
  }

  #bytes(): Buffer {
    const chance = this.#chance;
    const size = chance.below(30) === 0 ? 1_100_000 + chance.below(2_000_000) : chance.below(6000);
    return Buffer.alloc(size, `${this.#count++} `);
  }

  #dir(): Buffer {
    const dirs = below(this.root).filter(({ type }) => type === 'dir');
    return this.#chance.below(4) === 0 || dirs.length === 0 ? this.root : this.#chance.one(dirs).path;
  }

  #some(type: 'file' | 'dir' | 'link') {
    const all = below(this.root).filter((each) => each.type === type);
    return all.length === 0 ? undefined : this.#chance.one(all).path;
  }

  #file(): Buffer {
    const known = this.#some('file');
    if (known) return known;
    const path = join(this.root, `f${this.#count++}`);
    writeFileSync(path, this.#bytes());
    return path;
  }

  /** Keeps the tree small enough to be looked at in a moment. */
  #prune(): void {
    const all = below(this.root);
    if (all.length > 120) rmSync(this.#chance.one(all).path, { recursive: true, force: true });
  }

  readonly #acts = {
    create: () => {
      this.#prune();
      const path = join(this.#dir(), this.#name());
      if (!exists(path)) writeFileSync(path, this.#bytes());
    },
    overwrite: () => writeFileSync(this.#file(), this.#bytes()),
    append: () => appendFileSync(this.#file(), 'more\n'),
    truncate: () => {
      const file = this.#file();
      truncateSync(file, Math.floor(lstatSync(file).size / 2));
    },
    /** As long as before, and as old. */
    rewriteUnseen: () => {
      const file = this.#file();
      const before = lstatSync(file, { bigint: true });
      const fd = openSync(file, 'r+');
      writeSync(fd, Buffer.alloc(Number(before.size), `${this.#count++}`), 0, Number(before.size), 0);
      closeSync(fd);
      native.setMtime(file, before.mtimeNs);
    },
    saveAtomically: () => {
      const file = this.#file();
      const temporary = join(this.root, 'saving.tmp');
      writeFileSync(temporary, this.#bytes());
      renameSync(temporary, file);
    },
    remove: () => unlinkSync(this.#file()),
    makeDirs: () => {
      this.#prune();
      const dir = join(this.#dir(), `d${this.#chance.below(10)}`);
      if (exists(dir)) return;
      mkdirSync(join(join(dir, 'x'), 'y'), { recursive: true });
      writeFileSync(join(join(join(dir, 'x'), 'y'), 'deep'), this.#bytes());
    },
    removeDir: () => {
      const dir = this.#some('dir');
      if (dir) rmSync(dir, { recursive: true });
    },
    renameFile: () => {
      const to = join(this.#dir(), this.#name());
      if (!isDir(to)) renameSync(this.#file(), to);
    },
    renameDir: () => {
      const from = this.#some('dir');
      if (!from) return;
      const to = join(this.root, `r${this.#chance.below(10)}`);
      if (!exists(to)) renameSync(from, to);
    },
    /** Out, changed while it is away, and back, perhaps elsewhere. */
    excursion: () => {
      const from = this.#some('dir');
      if (!from) return;
      const away = join(this.outside, `away${this.#count++}`);
      renameSync(from, away);
      writeFileSync(join(away, 'souvenir'), this.#bytes());
      mkdirSync(join(away, `new${this.#count++}`));
      const to = this.#chance.below(2) === 0 ? from : join(this.root, `back${this.#chance.below(5)}`);
      if (this.#chance.below(4) > 0 && !exists(to)) renameSync(away, to);
    },
    swapDirs: () => {
      const [a, b] = [this.#some('dir'), this.#some('dir')];
      if (!a || !b || a.subarray(0, b.length).equals(b) || b.subarray(0, a.length).equals(a)) return;
      const between = join(this.root, 'between');
      renameSync(a, between);
      renameSync(b, a);
      renameSync(between, b);
    },
    linkInside: () => {
      const to = join(this.#dir(), `l${this.#chance.below(20)}`);
      if (!exists(to)) linkSync(this.#file(), to);
    },
    linkOutside: () => linkSync(this.#file(), join(this.outside, `o${this.#count++}`)),
    writeOutside: () => {
      const names = below(this.outside).filter(({ type }) => type === 'file');
      if (names.length > 0) appendFileSync(this.#chance.one(names).path, 'from outside\n');
    },
    unlinkOutside: () => {
      const names = below(this.outside).filter(({ type }) => type === 'file');
      if (names.length > 0) unlinkSync(this.#chance.one(names).path);
    },
    linkInFromOutside: () => {
      const from = join(this.outside, `i${this.#count++}`);
      writeFileSync(from, this.#bytes());
      const to = join(this.#dir(), this.#name());
      if (!exists(to)) linkSync(from, to);
    },
    /** Written to through a descriptor whose name is gone while another name stays. */
    writeUnlinked: () => {
      const a = join(this.root, `a${this.#count++}`);
      const fd = openSync(a, 'w+');
      this.#fds.push(fd);
      writeSync(fd, 'before');
      linkSync(a, join(this.root, `b${this.#count++}`));
    },
    unlinkOpen: () => {
      for (const { path, type } of below(this.root)) {
        const name = path.toString('latin1', this.root.length + 1);
        if (type === 'file' && /^a\d+$/.test(name)) unlinkSync(path);
      }
    },
    writeOpen: () => {
      const fd = this.#fds.at(-1);
      if (fd !== undefined) writeSync(fd, ` and ${this.#count++}`);
    },
    symlink: () => {
      const path = join(this.#dir(), `s${this.#chance.below(20)}`);
      if (!exists(path)) symlinkSync(this.#chance.one(['f1', '/etc', '..', 'loop', 'no/where']), path);
    },
    relink: () => {
      const link = this.#some('link');
      if (!link) return;
      unlinkSync(link);
      symlinkSync(`target${this.#count++}`, link);
    },
    makeDirAgain: () => {
      const dir = this.#some('dir');
      if (!dir) return;
      rmSync(dir, { recursive: true });
      mkdirSync(dir);
      if (this.#chance.below(2) === 0) writeFileSync(join(dir, 'again'), this.#bytes());
    },
    linkForDir: () => {
      const dir = this.#some('dir');
      if (!dir) return;
      rmSync(dir, { recursive: true });
      symlinkSync(this.outside, dir);
    },
    dirForLink: () => {
      const link = this.#some('link');
      if (!link) return;
      unlinkSync(link);
      mkdirSync(link);
      writeFileSync(join(link, 'inside'), this.#bytes());
    },
    fileForDir: () => {
      const dir = this.#some('dir');
      if (!dir) return;
      rmSync(dir, { recursive: true });
      writeFileSync(dir, this.#bytes());
    },
    chmodFile: () => chmodSync(this.#file(), this.#chance.one([0o644, 0o755, 0o600, 0o4755, 0o2711])),
    chmodDir: () => chmodSync(this.#some('dir') ?? this.root, this.#chance.one([0o755, 0o1777, 0o2755])),
    chown: () => {
      if (isRoot) chownSync(this.#file(), this.#chance.below(3) * 1000, this.#chance.below(3) * 1000);
    },
    touch: () => utimesSync(this.#file(), this.#chance.below(1e9), this.#chance.below(1e9)),
    touchDir: () => utimesSync(this.#some('dir') ?? this.root, 1, this.#chance.below(1e9)),
    touchLink: () => {
      const link = this.#some('link');
      if (link) lutimesSync(link, 1, this.#chance.below(1e9));
    },
    setXattr: () =>
      native.setXattr(this.#file(), Buffer.from(`user.n${this.#chance.below(3)}`), this.#chance.bytes(20)),
    setDirXattr: () =>
      native.setXattr(this.#some('dir') ?? this.root, Buffer.from('user.d'), this.#chance.bytes(5)),
    removeXattrs: () => {
      const file = this.#file();
      for (const [name] of native.xattrs(file)) native.removeXattr(file, name);
    },
    mapAndClose: async () => this.#map(false),
    mapAndKeep: async () => this.#map(true),
    writeMapped: async () => {
      const key = this.#chance.one([...this.#mapped.keys(), '']);
      if (key !== '') await this.holder.do('write', { key, text: `mapped ${this.#count++}` });
    },
    writeMappedAgain: async () => this.#acts.writeMapped(),
    unmap: async () => {
      const key = this.#chance.one([...this.#mapped.keys(), '']);
      if (key === '') return;
      if (this.#chance.below(2) === 0) await this.holder.do('write', { key, text: `last ${this.#count++}` });
      await this.holder.do('unmap', { key });
      if (this.#chance.below(2) === 0) await this.holder.do('close', { key });
      this.#mapped.delete(key);
    },
    openAndWrite: async () => {
      const key = `k${this.#count++}`;
      if (this.#open.size > 4) return;
      await this.holder.do('open', { key, file: this.#file().toString('latin1') });
      this.#open.set(key, key);
    },
    pwrite: async () => {
      const key = this.#chance.one([...this.#open.keys(), '']);
      if (key === '') return;
      await this.holder.do('pwrite', { key, text: `pwrite ${this.#count++}` });
      if (this.#chance.below(3) > 0) return;
      await this.holder.do('close', { key });
      this.#open.delete(key);
    },
    ignored: () => {
      const path = join(this.#dir(), 'ignored');
      if (exists(path)) rmSync(path, { recursive: true });
      else if (this.#chance.below(2) === 0) writeFileSync(path, this.#bytes());
      else mkdirSync(join(path, 'deeper'), { recursive: true });
    },
    many: () => {
      const dir = join(this.root, 'many');
      if (exists(dir)) {
        const [some] = below(dir);
        if (this.#chance.below(3) === 0 || !some) rmSync(dir, { recursive: true });
        else unlinkSync(some.path);
        return;
      }
      mkdirSync(dir);
      for (let i = 0; i < 150; i++) writeFileSync(join(dir, `${i}`), `${i}`);
    },
    temporary: () => {
      const path = join(this.#dir(), `t${this.#count++}`);
      writeFileSync(path, 'soon gone');
      unlinkSync(path);
    },
    backdate: () => {
      const fd = openSync(this.#file(), 'r+');
      ftruncateSync(fd, 100);
      futimesSync(fd, 1, 1);
      closeSync(fd);
    },
  };

  async #map(keep: boolean): Promise<void> {
    if (this.#mapped.size > 4) return;
    const key = `m${this.#count++}`;
    const answer = await this.holder.do('map', { key, file: this.#file().toString('latin1'), keep });
    if (answer === 'done') this.#mapped.set(key, key);
  }

  /** More events than the kernel keeps, and something behind them that is therefore told to nobody. */
  overflow(): void {
    const [a, b] = [join(this.root, 'flood-a'), join(this.root, 'flood-b')];
    const fds = [openSync(a, 'w'), openSync(b, 'w')];
    for (let i = 0; i < 18_000; i++) writeSync(fds[i % 2] as number, 'x', 0);
    for (const fd of fds) closeSync(fd);
    writeFileSync(join(this.root, 'untold'), readFileSync(a));
    mkdirSync(join(this.root, `dir${this.#count++}`));
  }
}

const exists = (path: Buffer): boolean => {
  try {
    lstatSync(path);
    return true;
  } catch {
    return false;
  }
};
const isDir = (path: Buffer): boolean => existsSync(path) && lstatSync(path).isDirectory();
