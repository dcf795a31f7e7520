/**
 * Names below one directory, acted on so that nobody who swaps a directory for a link meanwhile can lead us out of it:
 * a restore, and above all a scratch in which a server is still running, may be written by root.
 */

import {
  chmodSync,
  closeSync,
  constants,
  lchownSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
} from 'node:fs';
import { type AtCalls, type Native, plainLstat, type Stat, type Xattr } from './native.js';

const SLASH = Buffer.from('/');
const NONE: Xattr[] = [];
export const byBytes = (a: Buffer, b: Buffer): number => Buffer.compare(a, b);
/** A directory's own name in itself. */
export const SELF = Buffer.from('.');

/** The parts of a relative path before and after its last '/'; the root has neither. */
export function splitPath(path: Buffer): { readonly parent: Buffer; readonly name: Buffer } {
  const slash = path.lastIndexOf(0x2f);
  if (slash < 0) return { parent: path.subarray(0, 0), name: path };
  return { parent: path.subarray(0, slash), name: path.subarray(slash + 1) };
}

/** `parent/name`, or `name` in the root. */
export const joinPath = (parent: Buffer, name: Buffer): Buffer =>
  parent.length === 0 ? name : Buffer.concat([parent, SLASH, name]);

/**
 * One directory below the root. Names are single, raw, and never followed when they are links; `SELF` is the directory.
 * Errors are the system's. Owned by who opened it, who closes it.
 */
export interface Directory {
  /** A path that names this very directory for as long as it is open, wherever it is moved. */
  readonly place: Buffer;
  /** In order of their bytes; once per opened directory. */
  names(): Buffer[];
  stat(name: Buffer): Stat | undefined;
  xattrs(name: Buffer): Xattr[];
  setXattr(name: Buffer, key: Buffer, value: Buffer): void;
  removeXattr(name: Buffer, key: Buffer): void;
  readLink(name: Buffer): Buffer;
  /** A descriptor; never blocks on a FIFO, never follows a link. */
  openFile(name: Buffer, flags: number, mode?: number): number;
  makeDirectory(name: Buffer, mode: number): void;
  makeLink(name: Buffer, target: Buffer): void;
  /** Another name for the file `from` has as `fromName`. */
  linkFrom(from: Directory, fromName: Buffer, name: Buffer): void;
  unlink(name: Buffer): void;
  removeDirectory(name: Buffer): void;
  /** Not of links, which have no modes of their own. */
  chmod(name: Buffer, mode: number): void;
  chown(name: Buffer, uid: number, gid: number): void;
  setMtime(name: Buffer, mtime: bigint): void;
  close(): void;
}

export class Beneath {
  readonly root: Buffer;
  readonly native: Native | undefined;
  readonly #fd: number;

  /** The root itself may be reached through links: it was named. Throws where it is no directory. */
  constructor(root: Buffer, native: Native | undefined) {
    this.root = root;
    this.native = native;
    this.#fd = openSync(root, constants.O_RDONLY | constants.O_DIRECTORY);
  }

  /** Throws ENOENT, ENOTDIR, or ELOOP where a link is in the way. */
  open(path: Buffer): Directory {
    const { native } = this;
    if (native?.at) return new OpenDirectory(native, native.at, native.at.openDir(this.#fd, path));
    return new PlainDirectory(native, this.#plain(path));
  }

  /** `open`, undefined where there is no such directory. */
  openIfThere(path: Buffer): Directory | undefined {
    try {
      return this.open(path);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') return undefined;
      throw error;
    }
  }

  close(): void {
    closeSync(this.#fd);
  }

  /** BUG: without koffi the parts are looked at, then used: a swap in between is followed. */
  #plain(path: Buffer): Buffer {
    for (let at = 0; at < path.length;) {
      const slash = path.indexOf(0x2f, at);
      const end = slash < 0 ? path.length : slash;
      const part = Buffer.concat([this.root, SLASH, path.subarray(0, end)]);
      const stat = lstatSync(part);
      if (!stat.isDirectory()) {
        const code = stat.isSymbolicLink() ? 'ELOOP' : 'ENOTDIR';
        throw Object.assign(new Error(`${code}: ${part.toString()}`), { code, path: part.toString() });
      }
      at = end + 1;
    }
    return path.length === 0 ? this.root : Buffer.concat([this.root, SLASH, path]);
  }
}

class OpenDirectory implements Directory {
  readonly #native: Native;
  readonly #at: AtCalls;
  readonly #fd: number;
  readonly place: Buffer;

  constructor(native: Native, at: AtCalls, fd: number) {
    this.#native = native;
    this.#at = at;
    this.#fd = fd;
    this.place = Buffer.from(`/proc/self/fd/${fd}`);
  }

  names(): Buffer[] {
    return this.#at.names(this.#fd).sort(byBytes);
  }

  stat(name: Buffer): Stat | undefined {
    return this.#at.stat(this.#fd, name);
  }

  xattrs(name: Buffer): Xattr[] {
    if (!this.#at.mayHaveXattrs(this.#fd, name)) return NONE;
    return this.#native.xattrs(this.#path(name));
  }

  setXattr(name: Buffer, key: Buffer, value: Buffer): void {
    this.#native.setXattr(this.#path(name), key, value);
  }

  removeXattr(name: Buffer, key: Buffer): void {
    this.#native.removeXattr(this.#path(name), key);
  }

  readLink(name: Buffer): Buffer {
    return this.#at.readLink(this.#fd, name);
  }

  openFile(name: Buffer, flags: number, mode = 0o600): number {
    return this.#at.open(this.#fd, name, flags, mode);
  }

  makeDirectory(name: Buffer, mode: number): void {
    this.#at.mkdir(this.#fd, name, mode);
  }

  makeLink(name: Buffer, target: Buffer): void {
    this.#at.symlink(this.#fd, name, target);
  }

  linkFrom(from: Directory, fromName: Buffer, name: Buffer): void {
    this.#at.link((from as OpenDirectory).#fd, fromName, this.#fd, name);
  }

  unlink(name: Buffer): void {
    this.#at.unlink(this.#fd, name);
  }

  removeDirectory(name: Buffer): void {
    this.#at.rmdir(this.#fd, name);
  }

  chmod(name: Buffer, mode: number): void {
    this.#at.chmod(this.#fd, name, mode);
  }

  chown(name: Buffer, uid: number, gid: number): void {
    this.#at.chown(this.#fd, name, uid, gid);
  }

  setMtime(name: Buffer, mtime: bigint): void {
    this.#at.setMtime(this.#fd, name, mtime);
  }

  close(): void {
    closeSync(this.#fd);
  }

  /** Attributes are read and set by name: the calls that take a directory came with Linux 6.13. */
  #path(name: Buffer): Buffer {
    return Buffer.concat([this.place, SLASH, name]);
  }
}

/** By Node alone, or with what koffi has on macOS. */
class PlainDirectory implements Directory {
  readonly #native: Native | undefined;
  /** BUG: of a directory that is moved, this is where it was. */
  readonly place: Buffer;

  constructor(native: Native | undefined, path: Buffer) {
    this.#native = native;
    this.place = path;
  }

  names(): Buffer[] {
    return readdirSync(this.place, { encoding: 'buffer' }).sort(byBytes);
  }

  stat(name: Buffer): Stat | undefined {
    return plainLstat(this.#of(name), false);
  }

  xattrs(name: Buffer): Xattr[] {
    return this.#native?.xattrs(this.#of(name)) ?? [];
  }

  setXattr(name: Buffer, key: Buffer, value: Buffer): void {
    this.#native?.setXattr(this.#of(name), key, value);
  }

  removeXattr(name: Buffer, key: Buffer): void {
    this.#native?.removeXattr(this.#of(name), key);
  }

  readLink(name: Buffer): Buffer {
    return readlinkSync(this.#of(name), { encoding: 'buffer' });
  }

  openFile(name: Buffer, flags: number, mode = 0o600): number {
    return openSync(this.#of(name), flags | constants.O_NOFOLLOW | constants.O_NONBLOCK, mode);
  }

  makeDirectory(name: Buffer, mode: number): void {
    mkdirSync(this.#of(name), mode);
  }

  makeLink(name: Buffer, target: Buffer): void {
    symlinkSync(target, this.#of(name));
  }

  linkFrom(from: Directory, fromName: Buffer, name: Buffer): void {
    linkSync((from as PlainDirectory).#of(fromName), this.#of(name));
  }

  unlink(name: Buffer): void {
    unlinkSync(this.#of(name));
  }

  removeDirectory(name: Buffer): void {
    rmdirSync(this.#of(name));
  }

  chmod(name: Buffer, mode: number): void {
    chmodSync(this.#of(name), mode);
  }

  chown(name: Buffer, uid: number, gid: number): void {
    lchownSync(this.#of(name), uid, gid);
  }

  setMtime(name: Buffer, mtime: bigint): void {
    const path = this.#of(name);
    if (this.#native) return this.#native.setMtime(path, mtime);
    // Seconds as a double: some hundred nanoseconds are lost (`mtime-below-microseconds`).
    const access = lstatSync(path).atimeMs / 1000;
    lutimesSync(path, access, Number(mtime) / 1e9);
  }

  close(): void {
    // Nothing is held.
  }

  #of(name: Buffer): Buffer {
    return Buffer.concat([this.place, SLASH, name]);
  }
}
