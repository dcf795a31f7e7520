/**
 * The system calls that Node has no door for, by koffi: times to the nanosecond, extended attributes, inotify, and
 * `statx` into reused memory. Everything here is synchronous and takes paths as raw bytes, so a name that is no UTF-8
 * is a name like any other.
 *
 * koffi is a prebuilt native addon and may be missing (another platform, a musl image, an install without optional
 * packages). Then `loadNative()` is undefined, the callers take their plain way, and what that way can't do is a gap
 * of the state (`xattrs`, `mtime-below-microseconds`), never a silent difference; there is no inotify either.
 */

import { closeSync, constants, lstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants as system } from 'node:os';
import { getSystemErrorName } from 'node:util';

/** One extended attribute: its whole name (`user.note`) and its value, as the kernel gives them. */
export type Xattr = readonly [name: Buffer, value: Buffer];

/** What is looked at of a path, never following a link at its end. Times in nanoseconds since 1970. */
export interface Stat {
  readonly dev: number;
  readonly ino: bigint;
  /** With the file type (`S_IFMT`). */
  readonly mode: number;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly mtime: bigint;
  readonly ctime: bigint;
}

/** `inotify(7)`, raw: the kernel queues an event before the call that caused it returns. */
export interface Inotify {
  /** A non-blocking, close-on-exec queue; close it with `closeSync`. */
  open(): number;
  /** Throws ENOSPC where the user's limit of watches is reached. */
  watch(queue: number, path: Buffer, mask: number): number;
  /** The kernel answers with `IN.IGNORED`; a descriptor that is gone already is no error. */
  unwatch(queue: number, watch: number): void;
  /** Bytes of whole `struct inotify_event`s put into `into` (at least 4 KiB), 0 when the queue is empty. */
  read(queue: number, into: Buffer): number;
}

/** Bits of masks and events, from `<sys/inotify.h>`. */
export const IN = {
  MODIFY: 0x2,
  ATTRIB: 0x4,
  CLOSE_WRITE: 0x8,
  MOVED_FROM: 0x40,
  MOVED_TO: 0x80,
  CREATE: 0x100,
  DELETE: 0x200,
  DELETE_SELF: 0x400,
  MOVE_SELF: 0x800,
  UNMOUNT: 0x2000,
  Q_OVERFLOW: 0x4000,
  IGNORED: 0x8000,
  ONLYDIR: 0x1000000,
  DONT_FOLLOW: 0x2000000,
  EXCL_UNLINK: 0x4000000,
  MASK_ADD: 0x20000000,
  ISDIR: 0x40000000,
} as const;

/** Every call throws what Node's own would: an error with `code`, `errno`, `syscall`, `path`. */
export interface Native {
  readonly platform: 'linux' | 'darwin';
  lstat(path: Buffer): Stat;
  /** `lstat`, undefined where there is nothing (ENOENT, ENOTDIR): a throw costs more than the call. */
  lstatIfThere(path: Buffer): Stat | undefined;
  /** Sets the time of last modification of what is at `path`, of a link itself; the time of access stays. */
  setMtime(path: Buffer, mtime: bigint): void;
  setMtimeOf(fd: number, mtime: bigint): void;
  /** In order of the names' bytes; empty where the file system has none (ENOTSUP). */
  xattrs(path: Buffer): Xattr[];
  setXattr(path: Buffer, name: Buffer, value: Buffer): void;
  removeXattr(path: Buffer, name: Buffer): void;
  readonly inotify: Inotify | undefined;
  readonly at: AtCalls | undefined;
}

/** What an open directory's names are acted on by: no path is resolved a second time, and no link is followed. */
export interface AtCalls {
  /**
   * A directory below the open one, reached through no link and never outside of it, whoever swaps names meanwhile
   * (`openat2`; a step at a time where the kernel has none). Throws ELOOP or EXDEV where a link is in the way. The empty path is the directory itself.
   */
  openDir(root: number, path: Buffer): number;
  names(dir: number): Buffer[];
  stat(dir: number, name: Buffer): Stat | undefined;
  /** `flags` without O_NOFOLLOW, O_CLOEXEC and O_NONBLOCK: those are always set. */
  open(dir: number, name: Buffer, flags: number, mode: number): number;
  readLink(dir: number, name: Buffer): Buffer;
  /** False: there are none. True: there may be (and on a kernel before 6.13 it is always said that there may). */
  mayHaveXattrs(dir: number, name: Buffer): boolean;
  mkdir(dir: number, name: Buffer, mode: number): void;
  symlink(dir: number, name: Buffer, target: Buffer): void;
  link(fromDir: number, from: Buffer, dir: number, name: Buffer): void;
  unlink(dir: number, name: Buffer): void;
  rmdir(dir: number, name: Buffer): void;
  chmod(dir: number, name: Buffer, mode: number): void;
  chown(dir: number, name: Buffer, uid: number, gid: number): void;
  setMtime(dir: number, name: Buffer, mtime: bigint): void;
}

/** The longest path the system takes, with the byte that ends it. */
export const PATH_MAX = process.platform === 'darwin' ? 1024 : 4096;
/** The largest value and the largest list of names Linux hands out. */
const XATTR_MAX = 65_536;
const NS = 1_000_000_000n;

let loaded: { readonly native: Native | undefined } | undefined;

/** The bindings, loaded on first use (some 6 ms) and kept; undefined where koffi or a symbol can't be had. */
export function loadNative(): Native | undefined {
  loaded ??= { native: tryLoad() };
  return loaded.native;
}

function tryLoad(): Native | undefined {
  const { platform } = process;
  if (platform !== 'linux' && platform !== 'darwin') return undefined;
  try {
    const require = createRequire(import.meta.url);
    const koffi = require('koffi') as typeof import('koffi');
    return platform === 'linux' ? linux(koffi) : darwin(koffi);
  } catch {
    return undefined;
  }
}

type Koffi = typeof import('koffi');

const { errno: ERRNO } = system;
const NOTHING_THERE: ReadonlySet<number> = new Set([ERRNO.ENOENT, ERRNO.ENOTDIR]);
const NO_XATTRS: ReadonlySet<number> = new Set([ERRNO.ENOTSUP, ERRNO.EOPNOTSUPP]);

function failed(errno: number, syscall: string, path?: Buffer): NodeJS.ErrnoException {
  const code = getSystemErrorName(-errno);
  const where = path === undefined ? '' : ` '${path.toString()}'`;
  return Object.assign(new Error(`${code}: ${syscall}${where}`), {
    code,
    errno: -errno,
    syscall,
    ...(path === undefined ? {} : { path: path.toString() }),
  });
}

/** Memory that calls read names from: one call at a time per thread, so one place per argument is enough. */
class CString {
  readonly #bytes: Buffer;
  readonly #syscall: string;

  constructor(size: number, syscall: string) {
    this.#bytes = Buffer.alloc(size);
    this.#syscall = syscall;
  }

  /** The bytes with a NUL behind them. A NUL inside would silently name another file. */
  of(text: Buffer): Buffer {
    const bytes = this.#bytes;
    if (text.length >= bytes.length) throw failed(ERRNO.ENAMETOOLONG, this.#syscall, text);
    if (text.includes(0)) throw failed(ERRNO.EINVAL, this.#syscall, text);
    bytes.set(text);
    bytes[text.length] = 0;
    return bytes;
  }
}

function linux(koffi: Koffi): Native {
  const libc = koffi.load(null);
  const statx = libc.func('int statx(int, const void *, int, unsigned int, void *)');
  const utimensat = libc.func('int utimensat(int, const void *, const void *, int)');
  const futimens = libc.func('int futimens(int, const void *)');
  const llistxattr = libc.func('long llistxattr(const void *, void *, size_t)');
  const lgetxattr = libc.func('long lgetxattr(const void *, const void *, void *, size_t)');
  const lsetxattr = libc.func('int lsetxattr(const void *, const void *, const void *, size_t, int)');
  const lremovexattr = libc.func('int lremovexattr(const void *, const void *)');
  const inotifyInit = libc.func('int inotify_init1(int)');
  const inotifyAdd = libc.func('int inotify_add_watch(int, const void *, uint32_t)');
  const inotifyRemove = libc.func('int inotify_rm_watch(int, int)');
  const read = libc.func('long read(int, void *, size_t)');

  const [CWD, NOFOLLOW, OMIT] = [-100, 0x100, 0x3ffffffen];
  const BASIC_STATS = 0x7ff;
  const [NONBLOCK, CLOEXEC] = [0o4000, 0o2000000];
  const paths = new CString(PATH_MAX, 'path');
  const keys = new CString(256, 'name');
  const stat = Buffer.alloc(256);
  const times = new BigInt64Array([0n, OMIT, 0n, 0n]);

  const time = (at: number): bigint => stat.readBigInt64LE(at) * NS + BigInt(stat.readUInt32LE(at + 8));
  const statOf = (): Stat => ({
    // The numbering of `makedev`, as Node gives it.
    dev: makedev(stat.readUInt32LE(136), stat.readUInt32LE(140)),
    ino: stat.readBigUInt64LE(32),
    mode: stat.readUInt16LE(28),
    nlink: stat.readUInt32LE(16),
    uid: stat.readUInt32LE(20),
    gid: stat.readUInt32LE(24),
    size: stat.readUIntLE(40, 6),
    mtime: time(112),
    ctime: time(96),
  });
  const look = (path: Buffer): number =>
    (statx(CWD, paths.of(path), NOFOLLOW, BASIC_STATS, stat) as number) === 0 ? 0 : koffi.errno();
  const set = (mtime: bigint): BigInt64Array => {
    splitTime(mtime, times);
    return times;
  };

  return {
    platform: 'linux',
    lstat: (path) => {
      const errno = look(path);
      if (errno !== 0) throw failed(errno, 'statx', path);
      return statOf();
    },
    lstatIfThere: (path) => {
      const errno = look(path);
      if (errno === 0) return statOf();
      if (NOTHING_THERE.has(errno)) return undefined;
      throw failed(errno, 'statx', path);
    },
    setMtime: (path, mtime) => {
      if (utimensat(CWD, paths.of(path), set(mtime), NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'utimensat', path);
    },
    setMtimeOf: (fd, mtime) => {
      if (futimens(fd, set(mtime)) !== 0) throw failed(koffi.errno(), 'futimens');
    },
    xattrs: readXattrs({
      list: (path, into) => llistxattr(paths.of(path), into, into.length) as number,
      get: (path, name, into) => lgetxattr(paths.of(path), keys.of(name), into, into.length) as number,
      errno: () => koffi.errno(),
    }),
    setXattr: (path, name, value) => {
      if (lsetxattr(paths.of(path), keys.of(name), value, value.length, 0) !== 0)
        throw failed(koffi.errno(), 'lsetxattr', path);
    },
    removeXattr: (path, name) => {
      if (lremovexattr(paths.of(path), keys.of(name)) !== 0)
        throw failed(koffi.errno(), 'lremovexattr', path);
    },
    inotify: {
      open: () => {
        const queue = inotifyInit(NONBLOCK | CLOEXEC) as number;
        if (queue < 0) throw failed(koffi.errno(), 'inotify_init1');
        return queue;
      },
      watch: (queue, path, mask) => {
        const watch = inotifyAdd(queue, paths.of(path), mask >>> 0) as number;
        if (watch < 0) throw failed(koffi.errno(), 'inotify_add_watch', path);
        return watch;
      },
      unwatch: (queue, watch) => {
        if (inotifyRemove(queue, watch) === 0) return;
        const errno = koffi.errno();
        if (errno !== ERRNO.EINVAL) throw failed(errno, 'inotify_rm_watch');
      },
      read: (queue, into) => {
        for (;;) {
          const bytes = read(queue, into, into.length) as number;
          if (bytes >= 0) return bytes;
          const errno = koffi.errno();
          if (errno === ERRNO.EAGAIN) return 0;
          if (errno !== ERRNO.EINTR) throw failed(errno, 'read');
        }
      },
    },
    at: linuxAt(koffi, libc, {
      path: paths,
      name: keys,
      times: set,
      stat: (dir, name) =>
        (statx(dir, keys.of(name), NOFOLLOW, BASIC_STATS, stat) as number) === 0 ? statOf() : undefined,
    }),
  };
}

interface Shared {
  readonly path: CString;
  readonly name: CString;
  readonly times: (mtime: bigint) => BigInt64Array;
  /** Undefined: see `errno`. */
  readonly stat: (dir: number, name: Buffer) => Stat | undefined;
}

function linuxAt(koffi: Koffi, libc: ReturnType<Koffi['load']>, shared: Shared): AtCalls {
  const syscall = libc.func('long syscall(long, long, const void *, const void *, size_t)');
  const openat = libc.func('int openat(int, const void *, int, unsigned int)');
  const getdents = libc.func('long getdents64(int, void *, size_t)');
  const readlinkat = libc.func('long readlinkat(int, const void *, void *, size_t)');
  const mkdirat = libc.func('int mkdirat(int, const void *, unsigned int)');
  const symlinkat = libc.func('int symlinkat(const void *, int, const void *)');
  const linkat = libc.func('int linkat(int, const void *, int, const void *, int)');
  const unlinkat = libc.func('int unlinkat(int, const void *, int)');
  const fchmodat = libc.func('int fchmodat(int, const void *, unsigned int, int)');
  const fchownat = libc.func('int fchownat(int, const void *, unsigned int, unsigned int, int)');
  const utimensat = libc.func('int utimensat(int, const void *, const void *, int)');

  const listxattrat = libc.func('long syscall(long, long, const void *, long, void *, size_t)');

  const [OPENAT2, LISTXATTRAT] = [437, 465];
  const [NOFOLLOW, REMOVEDIR] = [0x100, 0x200];
  const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
  const O_CLOEXEC = 0o2000000;
  const DIRECTORY = O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  /** RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH */
  const how = new BigUint64Array([BigInt(DIRECTORY), 0n, 0x2n | 0x4n | 0x8n]);
  const DOT = Buffer.from('.');
  const [paths, keys, second] = [shared.path, shared.name, new CString(256, 'name')];
  const entries = Buffer.alloc(65_536);
  const linkTarget = Buffer.alloc(PATH_MAX);
  let [hasOpenat2, hasListxattrat] = [true, true];

  const done = (result: unknown, call: string, name: Buffer): void => {
    if (result !== 0) throw failed(koffi.errno(), call, name);
  };
  const openStep = (dir: number, name: Buffer): number => {
    const fd = openat(dir, keys.of(name), DIRECTORY, 0) as number;
    if (fd < 0) throw failed(koffi.errno(), 'openat', name);
    return fd;
  };
  const openBySteps = (root: number, path: Buffer): number => {
    let fd = openStep(root, DOT);
    for (let at = 0; at < path.length;) {
      const slash = path.indexOf(0x2f, at);
      const end = slash < 0 ? path.length : slash;
      try {
        const next = openStep(fd, path.subarray(at, end));
        closeSync(fd);
        fd = next;
      } catch (error) {
        closeSync(fd);
        throw error;
      }
      at = end + 1;
    }
    return fd;
  };

  return {
    openDir: (root, path) => {
      if (!hasOpenat2) return openBySteps(root, path);
      const name = paths.of(path.length === 0 ? DOT : path);
      for (;;) {
        const fd = Number(syscall(OPENAT2, root, name, how, how.byteLength));
        if (fd >= 0) return fd;
        const errno = koffi.errno();
        if (errno === ERRNO.ENOSYS || errno === ERRNO.EPERM) {
          // An old kernel, or a filter that knows no openat2.
          hasOpenat2 = errno === ERRNO.EPERM;
          return openBySteps(root, path);
        }
        // A rename somewhere while it looked.
        if (errno !== ERRNO.EAGAIN && errno !== ERRNO.EINTR) throw failed(errno, 'openat2', path);
      }
    },
    names: (dir) => {
      const names: Buffer[] = [];
      for (;;) {
        const length = getdents(dir, entries, entries.length) as number;
        if (length < 0) throw failed(koffi.errno(), 'getdents64');
        if (length === 0) return names;
        // struct linux_dirent64: u64 inode, s64 offset, u16 length, u8 type, name and a NUL.
        for (let at = 0; at < length; at += entries.readUInt16LE(at + 16)) {
          const name = entries.subarray(at + 19, entries.indexOf(0, at + 19));
          const dots = name[0] === 0x2e && (name.length === 1 || (name.length === 2 && name[1] === 0x2e));
          if (!dots) names.push(Buffer.from(name));
        }
      }
    },
    stat: (dir, name) => {
      const stat = shared.stat(dir, name);
      if (stat) return stat;
      const errno = koffi.errno();
      if (NOTHING_THERE.has(errno)) return undefined;
      throw failed(errno, 'statx', name);
    },
    open: (dir, name, flags, mode) => {
      const fd = openat(dir, keys.of(name), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode) as number;
      if (fd < 0) throw failed(koffi.errno(), 'openat', name);
      return fd;
    },
    readLink: (dir, name) => {
      const length = readlinkat(dir, keys.of(name), linkTarget, linkTarget.length) as number;
      if (length < 0) throw failed(koffi.errno(), 'readlinkat', name);
      return Buffer.from(linkTarget.subarray(0, length));
    },
    mayHaveXattrs: (dir, name) => {
      if (!hasListxattrat) return true;
      const length = Number(listxattrat(LISTXATTRAT, dir, keys.of(name), NOFOLLOW, entries, entries.length));
      if (length >= 0) return length > 0;
      const errno = koffi.errno();
      if (NO_XATTRS.has(errno)) return false;
      hasListxattrat = errno !== ERRNO.ENOSYS && errno !== ERRNO.EPERM;
      return true;
    },
    mkdir: (dir, name, mode) => done(mkdirat(dir, keys.of(name), mode), 'mkdirat', name),
    symlink: (dir, name, target) => done(symlinkat(paths.of(target), dir, keys.of(name)), 'symlinkat', name),
    link: (fromDir, from, dir, name) =>
      done(linkat(fromDir, second.of(from), dir, keys.of(name), 0), 'linkat', name),
    unlink: (dir, name) => done(unlinkat(dir, keys.of(name), 0), 'unlinkat', name),
    rmdir: (dir, name) => done(unlinkat(dir, keys.of(name), REMOVEDIR), 'unlinkat', name),
    chmod: (dir, name, mode) => done(fchmodat(dir, keys.of(name), mode, NOFOLLOW), 'fchmodat', name),
    chown: (dir, name, uid, gid) => done(fchownat(dir, keys.of(name), uid, gid, NOFOLLOW), 'fchownat', name),
    setMtime: (dir, name, mtime) =>
      done(utimensat(dir, keys.of(name), shared.times(mtime), NOFOLLOW), 'utimensat', name),
  };
}

const makedev = (major: number, minor: number): number =>
  Number(
    ((BigInt(major) & 0xfffff000n) << 32n) |
      ((BigInt(major) & 0xfffn) << 8n) |
      ((BigInt(minor) & 0xffffff00n) << 12n) |
      (BigInt(minor) & 0xffn),
  );

/** Seconds and nanoseconds into the second `struct timespec`; before 1970 the seconds are negative, never the rest. */
function splitTime(time: bigint, into: BigInt64Array): void {
  let [seconds, rest] = [time / NS, time % NS];
  if (rest < 0n) [seconds, rest] = [seconds - 1n, rest + NS];
  into[2] = seconds;
  into[3] = rest;
}

interface XattrCalls {
  readonly list: (path: Buffer, into: Buffer) => number;
  readonly get: (path: Buffer, name: Buffer, into: Buffer) => number;
  readonly errno: () => number;
}

/** An attribute that is taken away between the list and its reading is left out, as if it had gone before. */
function readXattrs(calls: XattrCalls): (path: Buffer) => Xattr[] {
  const names = Buffer.alloc(XATTR_MAX);
  const value = Buffer.alloc(XATTR_MAX);
  const GONE = process.platform === 'darwin' ? ERRNO_DARWIN_ENOATTR : ERRNO.ENODATA;
  const NONE: Xattr[] = [];
  return (path) => {
    const length = calls.list(path, names);
    if (length === 0) return NONE;
    if (length < 0) {
      const errno = calls.errno();
      if (NO_XATTRS.has(errno)) return NONE;
      throw failed(errno, 'llistxattr', path);
    }
    const found: Xattr[] = [];
    for (let at = 0; at < length;) {
      const end = names.indexOf(0, at);
      const name = Buffer.from(names.subarray(at, end));
      at = end + 1;
      const size = calls.get(path, name, value);
      if (size >= 0) found.push([name, Buffer.from(value.subarray(0, size))]);
      else if (calls.errno() !== GONE) throw failed(calls.errno(), 'lgetxattr', path);
    }
    return found.sort(([a], [b]) => Buffer.compare(a, b));
  };
}

const ERRNO_DARWIN_ENOATTR = 93;

/** Not measured on macOS: compiled, and written after `<sys/xattr.h>` and `<sys/stat.h>`. There is no inotify. */
function darwin(koffi: Koffi): Native {
  const libc = koffi.load(null);
  const utimensat = libc.func('int utimensat(int, const void *, const void *, int)');
  const futimens = libc.func('int futimens(int, const void *)');
  const listxattr = libc.func('long listxattr(const void *, void *, size_t, int)');
  const getxattr = libc.func('long getxattr(const void *, const void *, void *, size_t, uint32_t, int)');
  const setxattr = libc.func('int setxattr(const void *, const void *, const void *, size_t, uint32_t, int)');
  const removexattr = libc.func('int removexattr(const void *, const void *, int)');

  const [CWD, SYMLINK_NOFOLLOW, XATTR_NOFOLLOW, OMIT] = [-2, 0x20, 1, -2n];
  const paths = new CString(PATH_MAX, 'path');
  const keys = new CString(256, 'name');
  const times = new BigInt64Array([0n, OMIT, 0n, 0n]);
  const set = (mtime: bigint): BigInt64Array => {
    splitTime(mtime, times);
    return times;
  };

  return {
    platform: 'darwin',
    lstat: (path) => plainLstat(path),
    lstatIfThere: (path) => plainLstat(path, false),
    setMtime: (path, mtime) => {
      if (utimensat(CWD, paths.of(path), set(mtime), SYMLINK_NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'utimensat', path);
    },
    setMtimeOf: (fd, mtime) => {
      if (futimens(fd, set(mtime)) !== 0) throw failed(koffi.errno(), 'futimens');
    },
    xattrs: readXattrs({
      list: (path, into) => listxattr(paths.of(path), into, into.length, XATTR_NOFOLLOW) as number,
      get: (path, name, into) =>
        getxattr(paths.of(path), keys.of(name), into, into.length, 0, XATTR_NOFOLLOW) as number,
      errno: () => koffi.errno(),
    }),
    setXattr: (path, name, value) => {
      if (setxattr(paths.of(path), keys.of(name), value, value.length, 0, XATTR_NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'setxattr', path);
    },
    removeXattr: (path, name) => {
      if (removexattr(paths.of(path), keys.of(name), XATTR_NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'removexattr', path);
    },
    inotify: undefined,
    at: undefined,
  };
}

/** `Native.lstat` by Node alone. */
export function plainLstat(path: Buffer): Stat;
export function plainLstat(path: Buffer, throws: false): Stat | undefined;
export function plainLstat(path: Buffer, throws = true): Stat | undefined {
  try {
    const stat = lstatSync(path, { bigint: true });
    return {
      dev: Number(stat.dev),
      ino: stat.ino,
      mode: Number(stat.mode),
      nlink: Number(stat.nlink),
      uid: Number(stat.uid),
      gid: Number(stat.gid),
      size: Number(stat.size),
      mtime: stat.mtimeNs,
      ctime: stat.ctimeNs,
    };
  } catch (error) {
    const { errno } = error as NodeJS.ErrnoException;
    if (!throws && errno !== undefined && NOTHING_THERE.has(-errno)) return undefined;
    throw error;
  }
}
