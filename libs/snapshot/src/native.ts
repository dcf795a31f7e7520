/**
 * The system calls that Node has no door for, by koffi: times to the nanosecond, extended attributes, inotify, and
 * `statx` into reused memory. Everything here is synchronous and takes paths as raw bytes, so a name that is no UTF-8
 * is a name like any other.
 *
 * koffi is a prebuilt native addon and may be missing (another platform, a musl image, an install without optional
 * packages). Then `loadNative()` is undefined, the callers take their plain way, and what that way can't do is a gap
 * of the state (`NATIVE_LOSSES`), never a silent difference.
 */

import { lstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { getSystemErrorName } from 'node:util';

/** What a state captured or restored without koffi lacks, by name. */
export const NATIVE_LOSSES = [
  'mtime-below-microseconds',
  'link-mtime-below-microseconds',
  'xattrs',
  'inotify',
] as const;
export type NativeLoss = (typeof NATIVE_LOSSES)[number];

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

const { errno: ERRNO } = constants;
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
  const path_ = new CString(PATH_MAX, 'path');
  const name_ = new CString(256, 'name');
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
    (statx(CWD, path_.of(path), NOFOLLOW, BASIC_STATS, stat) as number) === 0 ? 0 : koffi.errno();
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
      if (utimensat(CWD, path_.of(path), set(mtime), NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'utimensat', path);
    },
    setMtimeOf: (fd, mtime) => {
      if (futimens(fd, set(mtime)) !== 0) throw failed(koffi.errno(), 'futimens');
    },
    xattrs: readXattrs({
      list: (path, into) => llistxattr(path_.of(path), into, into.length) as number,
      get: (path, name, into) => lgetxattr(path_.of(path), name_.of(name), into, into.length) as number,
      errno: () => koffi.errno(),
    }),
    setXattr: (path, name, value) => {
      if (lsetxattr(path_.of(path), name_.of(name), value, value.length, 0) !== 0)
        throw failed(koffi.errno(), 'lsetxattr', path);
    },
    removeXattr: (path, name) => {
      if (lremovexattr(path_.of(path), name_.of(name)) !== 0)
        throw failed(koffi.errno(), 'lremovexattr', path);
    },
    inotify: {
      open: () => {
        const queue = inotifyInit(NONBLOCK | CLOEXEC) as number;
        if (queue < 0) throw failed(koffi.errno(), 'inotify_init1');
        return queue;
      },
      watch: (queue, path, mask) => {
        const watch = inotifyAdd(queue, path_.of(path), mask >>> 0) as number;
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
  const path_ = new CString(PATH_MAX, 'path');
  const name_ = new CString(256, 'name');
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
      if (utimensat(CWD, path_.of(path), set(mtime), SYMLINK_NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'utimensat', path);
    },
    setMtimeOf: (fd, mtime) => {
      if (futimens(fd, set(mtime)) !== 0) throw failed(koffi.errno(), 'futimens');
    },
    xattrs: readXattrs({
      list: (path, into) => listxattr(path_.of(path), into, into.length, XATTR_NOFOLLOW) as number,
      get: (path, name, into) =>
        getxattr(path_.of(path), name_.of(name), into, into.length, 0, XATTR_NOFOLLOW) as number,
      errno: () => koffi.errno(),
    }),
    setXattr: (path, name, value) => {
      if (setxattr(path_.of(path), name_.of(name), value, value.length, 0, XATTR_NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'setxattr', path);
    },
    removeXattr: (path, name) => {
      if (removexattr(path_.of(path), name_.of(name), XATTR_NOFOLLOW) !== 0)
        throw failed(koffi.errno(), 'removexattr', path);
    },
    inotify: undefined,
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
