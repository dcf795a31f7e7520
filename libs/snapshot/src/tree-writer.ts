/**
 * Makes what entries say. Used on a new, empty tree (restore) and on one that lives (scratch); both are checked
 * afterwards by looking, so nothing in here has to be believed.
 */

import { closeSync, constants, fchmodSync, fchownSync, ftruncateSync, writeSync } from 'node:fs';
import { type Beneath, type Directory, joinPath, SELF, splitPath } from './beneath.js';
import type { Entry, Gap } from './manifest.js';
import type { Native } from './native.js';
import { typeOf } from './walk.js';

/** Where contents come from: checked against their hash before the last piece is given. */
export interface ContentSource {
  content(hash: Buffer): Buffer;
  readContent(hash: Buffer): Iterable<Buffer>;
}

/** What could not be made as it was, because this user, system or file system can't: path by path. */
export class RestoreGaps {
  readonly #paths = new Map<Gap, Set<string>>();

  note(gap: Gap, path: Buffer): void {
    const paths = this.#paths.get(gap) ?? new Set<string>();
    paths.add(path.toString('latin1'));
    this.#paths.set(gap, paths);
  }

  has(gap: Gap, path: Buffer): boolean {
    return this.#paths.get(gap)?.has(path.toString('latin1')) === true;
  }

  /** By name, with how many paths it concerns and one of them. */
  list(): { readonly gap: Gap; readonly paths: number; readonly example: Buffer }[] {
    return [...this.#paths].map(([gap, paths]) => {
      const [example = ''] = paths;
      return { gap, paths: paths.size, example: Buffer.from(example, 'latin1') };
    });
  }
}

/** Larger contents are copied in pieces. */
const WHOLE_BYTES = 4 * 1024 * 1024;
const { O_WRONLY, O_CREAT, O_EXCL } = constants;
const NOT_OURS: ReadonlySet<string> = new Set(['EPERM', 'EINVAL']);
const NO_ATTRIBUTE: ReadonlySet<string> = new Set([
  'EPERM',
  'EACCES',
  'ENOTSUP',
  'EOPNOTSUPP',
  'EINVAL',
  'ENODATA',
]);

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? '';

export class TreeWriter {
  readonly #beneath: Beneath;
  readonly #contents: ContentSource;
  readonly #native: Native | undefined;
  readonly #uid = process.geteuid?.() ?? 0;
  readonly #gid = process.getegid?.() ?? 0;
  readonly gaps: RestoreGaps;
  /** The directory that was acted on last: most acts have the one before's. */
  #open: { readonly path: Buffer; readonly directory: Directory } | undefined;

  constructor(beneath: Beneath, contents: ContentSource, gaps: RestoreGaps) {
    this.#beneath = beneath;
    this.#contents = contents;
    this.#native = beneath.native;
    this.gaps = gaps;
  }

  close(): void {
    this.#open?.directory.close();
    this.#open = undefined;
  }

  /** An opened directory, valid until the next call for another. */
  directory(path: Buffer): Directory {
    if (this.#open?.path.equals(path) === true) return this.#open.directory;
    const directory = this.#beneath.open(path);
    this.close();
    this.#open = { path, directory };
    return directory;
  }

  /** A directory that only we may enter until `settle` gives it its own mode. */
  makeDirectory(entry: Entry): void {
    const { parent, name } = splitPath(entry.path);
    this.directory(parent).makeDirectory(name, 0o700);
  }

  makeLink(entry: Entry): void {
    const { parent, name } = splitPath(entry.path);
    this.directory(parent).makeLink(name, entry.target ?? Buffer.alloc(0));
  }

  /** Another name for the file at the head of its group. */
  joinGroup(entry: Entry): void {
    const { parent, name } = splitPath(entry.path);
    const head = splitPath(entry.linkGroup as Buffer);
    if (head.parent.equals(parent)) {
      const directory = this.directory(parent);
      directory.linkFrom(directory, head.name, name);
      return;
    }
    const from = this.#beneath.open(head.parent);
    try {
      this.directory(parent).linkFrom(from, head.name, name);
    } finally {
      from.close();
    }
  }

  /** A new file with its content and, in a directory of ours without special bits, all that surrounds it. */
  makeFile(entry: Entry, settled: boolean): void {
    const { parent, name } = splitPath(entry.path);
    const directory = this.directory(parent);
    const fd = directory.openFile(name, O_WRONLY | O_CREAT | O_EXCL, 0o600);
    try {
      this.#fill(fd, entry);
      if (settled) return;
      const owned = entry.uid === this.#uid && entry.gid === this.#gid;
      if (!owned) this.#own(entry, () => fchownSync(fd, entry.uid, entry.gid));
      if (entry.xattrs) this.#settleXattrs(directory, name, entry);
      // After the owner, whose change takes setuid away.
      fchmodSync(fd, entry.mode);
      if (this.#native) this.#native.setMtimeOf(fd, entry.mtime);
      else directory.setMtime(name, entry.mtime);
    } finally {
      closeSync(fd);
    }
  }

  /**
   * New content in the file that is there, which stays the same inode for whoever has it open. False: it is being
   * executed, and has to be replaced.
   */
  rewriteFile(entry: Entry): boolean {
    const { parent, name } = splitPath(entry.path);
    const directory = this.directory(parent);
    let fd: number;
    try {
      fd = this.#openToWrite(directory, name);
    } catch (error) {
      if (codeOf(error) === 'ETXTBSY') return false;
      throw error;
    }
    try {
      this.#fill(fd, entry);
      ftruncateSync(fd, entry.size ?? 0);
      return true;
    } finally {
      closeSync(fd);
    }
  }

  #openToWrite(directory: Directory, name: Buffer): number {
    try {
      return directory.openFile(name, O_WRONLY);
    } catch (error) {
      if (codeOf(error) !== 'EACCES') throw error;
      // Read-only even for its owner; `settle` gives it back its mode.
      directory.chmod(name, ((directory.stat(name)?.mode ?? 0) & 0o7777) | 0o200);
      return directory.openFile(name, O_WRONLY);
    }
  }

  #fill(fd: number, entry: Entry): void {
    const { size = 0, content } = entry;
    if (!content || size === 0) return;
    if (size <= WHOLE_BYTES) return writeWhole(fd, this.#contents.content(content), 0);
    let at = 0;
    for (const piece of this.#contents.readContent(content)) {
      writeWhole(fd, piece, at);
      at += piece.length;
    }
  }

  /**
   * Gives what is at the entry's path its owner, attributes, mode and time, as far as they differ. For a directory this
   * comes after everything in it is done: each of those acts changes its time.
   */
  settle(entry: Entry): void {
    const { parent, name } =
      entry.path.length === 0 ? { parent: entry.path, name: SELF } : splitPath(entry.path);
    const directory = this.directory(parent);
    const stat = directory.stat(name);
    if (!stat || typeOf(stat.mode) !== entry.type) return;
    const owned = stat.uid === entry.uid && stat.gid === entry.gid;
    if (!owned) this.#own(entry, () => directory.chown(name, entry.uid, entry.gid));
    this.#settleXattrs(directory, name, entry);
    if (entry.type !== 'link' && (!owned || (stat.mode & 0o7777) !== entry.mode))
      directory.chmod(name, entry.mode);
    const after = directory.stat(name);
    if (after?.mtime !== entry.mtime) directory.setMtime(name, entry.mtime);
  }

  #settleXattrs(directory: Directory, name: Buffer, entry: Entry): void {
    if (!this.#native) {
      if (entry.xattrs) this.gaps.note('xattrs', entry.path);
      return;
    }
    const wanted = new Map((entry.xattrs ?? []).map(([key, value]) => [key.toString('latin1'), value]));
    for (const [key, value] of directory.xattrs(name)) {
      const want = wanted.get(key.toString('latin1'));
      if (want?.equals(value) === true) wanted.delete(key.toString('latin1'));
      else if (!want) this.#attribute(entry, () => directory.removeXattr(name, key));
    }
    for (const [key, value] of wanted)
      this.#attribute(entry, () => directory.setXattr(name, Buffer.from(key, 'latin1'), value));
  }

  #own(entry: Entry, chown: () => void): void {
    try {
      chown();
    } catch (error) {
      if (!NOT_OURS.has(codeOf(error))) throw error;
      this.gaps.note('ownership', entry.path);
    }
  }

  #attribute(entry: Entry, set: () => void): void {
    try {
      set();
    } catch (error) {
      if (!NO_ATTRIBUTE.has(codeOf(error))) throw error;
      this.gaps.note('xattrs', entry.path);
    }
  }

  /** Takes away what is at a path: a directory with everything in it, whatever it is. */
  remove(path: Buffer): void {
    const { parent, name } = splitPath(path);
    const directory = this.directory(parent);
    const stat = directory.stat(name);
    if (!stat) return;
    if (typeOf(stat.mode) !== 'dir') return directory.unlink(name);
    try {
      directory.removeDirectory(name);
    } catch (error) {
      if (codeOf(error) !== 'ENOTEMPTY' && codeOf(error) !== 'EEXIST') throw error;
      // Something that no state knows of: ignored, or made this moment.
      if (this.#uid !== 0) directory.chmod(name, 0o700);
      removeContents(this.#beneath, path);
      this.directory(parent).removeDirectory(name);
    }
  }

  /** Lets us make and remove names in a directory of ours that its mode keeps even its owner from. */
  openUp(path: Buffer): void {
    if (this.#uid === 0) return;
    const { parent, name } = path.length === 0 ? { parent: path, name: SELF } : splitPath(path);
    const directory = this.#beneath.openIfThere(parent);
    try {
      const mode = directory?.stat(name)?.mode;
      if (mode !== undefined && typeOf(mode) === 'dir' && (mode & 0o300) !== 0o300)
        directory?.chmod(name, (mode & 0o7777) | 0o700);
    } finally {
      directory?.close();
    }
  }
}

function writeWhole(fd: number, bytes: Buffer, start: number): void {
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at, start + at);
}

/** Removes all that is in a directory that we may enter, opening up what the modes below close; follows nothing. */
export function removeContents(beneath: Beneath, path: Buffer): void {
  const directory = beneath.openIfThere(path);
  if (!directory) return;
  const below: Buffer[] = [];
  try {
    for (const name of directory.names()) {
      const stat = directory.stat(name);
      if (!stat) continue;
      if (typeOf(stat.mode) !== 'dir') {
        directory.unlink(name);
        continue;
      }
      if (process.geteuid?.() !== 0) directory.chmod(name, 0o700);
      below.push(name);
    }
  } finally {
    // Before going further down: a tree may be deeper than a process may have files open.
    directory.close();
  }
  for (const name of below) {
    removeContents(beneath, joinPath(path, name));
    const again = beneath.open(path);
    try {
      again.removeDirectory(name);
    } finally {
      again.close();
    }
  }
}
