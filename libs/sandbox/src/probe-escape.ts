/**
 * The escape table's attempts. Each does what an attacker would, with things that the check made for it; each is
 * harmless where it works, on the machine without a boundary too: nothing is written that was not made for it, no
 * mount is changed in a namespace that is not ours, and what has no such form stops at the permission check (a module
 * that does not exist, a reboot with the wrong password).
 */

import { spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fchmodSync,
  fchownSync,
  futimesSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  renameSync,
  rmdirSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { AbsentError, type Attempt, type Inside, type Outcome, stolen } from './probe-attempt.js';
import { cString, type Native, SyscallError } from './probe-native.js';
import type { EscapeId } from './probe-rows.js';
import { Ring } from './probe-ring.js';

const CWD = -100;
const { O_RDONLY, O_WRONLY, O_CREAT, O_NONBLOCK, O_NOCTTY, O_DIRECTORY } = constants;
const O_PATH = 0x20_0000;

function overwrite(path: string): Outcome {
  const fd = openSync(path, O_WRONLY);
  try {
    writeSync(fd, 'x');
  } finally {
    closeSync(fd);
  }
  return 'written';
}

/** Opens and closes. For things whose opening is the whole attempt. */
function opens(path: string, flags: number): Outcome {
  closeSync(openSync(path, flags));
  return `opened ${path}`;
}

function withFd<T>(path: string, flags: number, use: (fd: number) => T): T {
  const fd = openSync(path, flags);
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}

/** A call that can't succeed, made to see how far it gets: `past` are the errors that come after the permission check. */
function reaches(past: readonly string[], call: () => unknown): Outcome {
  try {
    call();
    return 'done';
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== undefined && past.includes(code)) return `let through (${code})`;
    throw error;
  }
}

/** A program's exit stands for the call that failed in it; what it was is in its words. */
function runs(program: string, args: readonly string[]): Outcome {
  const { status, stderr, error, signal } = spawnSync(program, args, { encoding: 'utf8', timeout: 8_000 });
  if (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw new AbsentError(`${program} is not here`);
    throw error;
  }
  if (status === 0) return 'done';
  if (signal !== null) throw new SyscallError(signal, program);
  throw new SyscallError(errnoIn(stderr), program);
}

const WORDS: readonly (readonly [string, string])[] = [
  ['Read-only file system', 'EROFS'],
  ['Operation not permitted', 'EPERM'],
  ['Permission denied', 'EACCES'],
  ['permission denied', 'EACCES'],
  ['No such file', 'ENOENT'],
  ['nonexistent', 'ENOENT'],
  ['No space left', 'ENOSPC'],
  ['Function not implemented', 'ENOSYS'],
  ['Invalid argument', 'EINVAL'],
  ['not mount point', 'EINVAL'],
  ['not mounted', 'EINVAL'],
];

const errnoIn = (words: string): string =>
  WORDS.find(([said]) => words.includes(said))?.[1] ?? `EXIT (${words.trim().slice(0, 80)})`;

// ---- mounts

const MS = { RDONLY: 1, REMOUNT: 32, BIND: 4096, REC: 16_384, PRIVATE: 1 << 18 } as const;
const CLONE_NEWNS = 0x2_0000;

/**
 * Mounts are tried in a namespace that is not the host's: the sandbox's, or, where there is none, one made here. There
 * the row's folder outside is mounted read-only first, so that there is something to get around.
 */
function privately(inside: Inside): Native {
  const { native, plan, folder } = inside;
  // The namespace of this thread: a row before this one may have left the process's.
  if (readlinkSync('/proc/thread-self/ns/mnt') === plan.mountNamespace) {
    native.call('unshare', CLONE_NEWNS);
    native.call('mount', cString('none'), cString('/'), null, MS.REC | MS.PRIVATE, null);
  }
  if (plan.control && existsSync(folder)) {
    native.call('mount', cString(folder), cString(folder), null, MS.BIND, null);
    native.call('mount', cString('none'), cString(folder), null, MS.REMOUNT | MS.BIND | MS.RDONLY, null);
  }
  return native;
}

/** The mount that a path is in. */
function mountOf(path: string): string {
  const points = readFileSync('/proc/thread-self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => (line.split(' ')[4] ?? '').replaceAll('\\040', ' '))
    .filter((point) => point === '/' || path === point || path.startsWith(`${point}/`));
  return points.sort((a, b) => b.length - a.length)[0] ?? '/';
}

// ---- network

function tcp(host: string, port: number, word: string): Promise<Outcome> {
  return talk(connect({ host, port }), word);
}

function talk(socket: ReturnType<typeof connect>, word: string): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    socket.setTimeout(3_000, () => {
      socket.destroy();
      reject(new SyscallError('ETIMEDOUT', 'connect'));
    });
    socket.once('error', reject);
    socket.once('connect', () => {
      // The listener closes when it has counted, so that its answer is there before ours.
      socket.once('close', () => resolve('connected and sent'));
      socket.end(word);
      socket.resume();
    });
  });
}

function listenerOf(inside: Inside): { host: string; port: number } {
  const address = inside.plan.listeners[inside.id];
  if (address === undefined) throw new AbsentError('this machine has no such address');
  return address;
}

const tcpTo: Attempt = (inside) => {
  const { host, port } = listenerOf(inside);
  return tcp(host, port, inside.id);
};

/** `struct sockaddr_in`. */
function inet({ host, port }: { host: string; port: number }): Buffer {
  const address = Buffer.alloc(16);
  address.writeUInt16LE(AF.INET, 0);
  address.writeUInt16BE(port, 2);
  host.split('.').forEach((part, index) => address.writeUInt8(Number(part), 4 + index));
  return address;
}

/** `struct sockaddr_un`, with the length to pass. */
function unixAddress(path: string): { address: Buffer; length: number } {
  const name = path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`;
  const address = Buffer.alloc(110);
  address.writeUInt16LE(AF.UNIX, 0);
  const length = 2 + address.write(name, 2);
  return { address, length };
}

const AF = { UNIX: 1, INET: 2, NETLINK: 16, PACKET: 17, VSOCK: 40 } as const;
const SOCK = { STREAM: 1, DGRAM: 2, RAW: 3 } as const;
const MSG_FASTOPEN = 0x2000_0000;

function withSocket(
  native: Native,
  family: number,
  type: number,
  protocol: number,
  use: (fd: number) => void,
): void {
  const fd = native.call('socket', family, type, protocol);
  try {
    use(fd);
  } finally {
    closeSync(fd);
  }
}

/** `struct msghdr` for one piece, with what has to stay alive while it is used. */
function message(native: Native, address: Buffer, text: string): { header: Buffer; alive: Buffer[] } {
  const bytes = Buffer.from(text);
  const vector = Buffer.alloc(16);
  vector.writeBigUInt64LE(native.address(bytes), 0);
  vector.writeBigUInt64LE(BigInt(bytes.length), 8);
  const header = Buffer.alloc(64);
  header.writeBigUInt64LE(native.address(address), 0);
  header.writeUInt32LE(address.length, 8);
  header.writeBigUInt64LE(native.address(vector), 16);
  header.writeBigUInt64LE(1n, 24);
  return { header, alive: [bytes, vector, address] };
}

function datagram(host: string, port: number, word: string, connected: boolean): Promise<Outcome> {
  const socket = createSocket('udp4');
  return new Promise<Outcome>((resolve, reject) => {
    socket.once('error', reject);
    const sent = (error: Error | null): void => (error ? reject(error) : resolve('sent'));
    if (!connected) socket.send(word, port, host, sent);
    else {
      // A listener of its own: the callback of connect() is called for a failure too.
      socket.once('connect', () => {
        socket.send(word, sent);
      });
      socket.connect(port, host);
    }
  }).finally(() => {
    socket.close();
  });
}

const udp =
  (connected: boolean): Attempt =>
  (inside) => {
    const { host, port } = listenerOf(inside);
    return datagram(host, port, inside.id, connected);
  };

const unixTo: Attempt = (inside) => {
  const path = inside.plan.sockets[inside.id];
  if (path === undefined) throw new AbsentError('no listener could be made');
  return talk(connect(path.startsWith('@') ? `\0${path.slice(1)}` : path), inside.id);
};

// ---- files

function xattr(call: 'setxattr' | 'fsetxattr', inside: Inside): Outcome {
  const value = Buffer.from('probe');
  if (call === 'setxattr') {
    inside.native.call(call, cString(inside.victim), cString('user.probe'), value, value.length, 0);
  } else {
    withFd(inside.victim, O_RDONLY, (fd) =>
      inside.native.call(call, fd, cString('user.probe'), value, value.length, 0),
    );
  }
  return 'set';
}

/** `open_by_handle_at`, with the workspace as the file system: its mount is the writable one. */
function byHandle(inside: Inside, flags: number): number {
  const handle = inside.plan.handles[inside.id];
  if (handle === undefined) throw new AbsentError('the file system makes no handles');
  return withFd(inside.plan.workspace, O_RDONLY | O_DIRECTORY, (mount) =>
    inside.native.call('open_by_handle_at', mount, Buffer.from(handle, 'hex'), flags),
  );
}

/** Another owner: as root somebody else, as a user oneself, which changes nothing but the time of change. */
const otherOwner = (): number => (process.getuid?.() === 0 ? 65_534 : (process.getuid?.() ?? 0));
const ownGroup = (): number => process.getgid?.() ?? 0;

/** What would be somebody else's thing without a boundary is not touched there. */
function bounded({ contained }: Inside): void {
  if (!contained) throw new AbsentError('it is not tried on what is not ours');
}

/** Sets the mode that a file has: what is shown is that it could be set. */
function sameMode(inside: Inside, path: string): Outcome {
  bounded(inside);
  chmodSync(path, statSync(path).mode & 0o7777);
  return `could set the mode of ${readlinkSync(path)}`;
}

function planted(inside: Inside): string {
  const path = join(inside.own, 'own');
  writeFileSync(path, 'inside\n');
  return path;
}

// ---- processes

const SIGUSR1 = 10;

/** Eight bytes of the victim's memory, and where they are. */
function memory(inside: Inside): { pid: number; local: Buffer; remote: Buffer; bytes: Buffer } {
  const { pid, address } = inside.process;
  if (address === undefined) throw new AbsentError("the process's memory map could not be read");
  const bytes = Buffer.alloc(8);
  const local = Buffer.alloc(16);
  local.writeBigUInt64LE(inside.native.address(bytes), 0);
  local.writeBigUInt64LE(8n, 8);
  const remote = Buffer.alloc(16);
  remote.writeBigUInt64LE(BigInt(address), 0);
  remote.writeBigUInt64LE(8n, 8);
  return { pid, local, remote, bytes };
}

/** Number and bits of `_IOR('f', 1, long)`, and the flag that a backup may skip this file. */
const FS_IOC_GETFLAGS = 0x8008_6601;
const FS_IOC_SETFLAGS = 0x4008_6602;
const FS_NODUMP = 0x40;

const IO_URING_SETUP = 425;

export const ESCAPE_ATTEMPTS: Readonly<Record<EscapeId, Attempt>> = {
  write: ({ victim }) => overwrite(victim),
  'write-append': ({ victim }) => {
    appendFileSync(victim, 'x');
    return 'appended';
  },
  'write-dotdot': (inside) => overwrite(`${inside.own}/${relative(inside.own, inside.victim)}`),
  'write-symlink': (inside) => {
    const link = join(inside.own, 'link');
    symlinkSync(inside.victim, link);
    return overwrite(link);
  },
  'write-symlink-folder': (inside) => {
    const link = join(inside.own, 'link');
    symlinkSync(inside.folder, link);
    writeFileSync(join(link, 'new'), 'x');
    return 'created';
  },
  'write-dangling': (inside) => {
    const link = join(inside.own, 'link');
    symlinkSync(join(inside.folder, 'new'), link);
    closeSync(openSync(link, O_WRONLY | O_CREAT, 0o644));
    return 'created';
  },
  'write-openat2': (inside) =>
    withFd(inside.folder, O_RDONLY | O_DIRECTORY, (folder) => {
      const how = Buffer.alloc(24);
      how.writeBigUInt64LE(BigInt(O_WRONLY), 0);
      const fd = inside.native.call('openat2', folder, cString('victim'), how, how.length);
      writeSync(fd, 'x');
      closeSync(fd);
      return 'written';
    }),
  'write-proc-root': ({ victim }) => overwrite(`/proc/self/root${victim}`),
  'write-proc-1-root': ({ victim }) => overwrite(`/proc/1/root${victim}`),
  'write-proc-fd': (inside) =>
    withFd(inside.folder, O_PATH | O_DIRECTORY, (folder) => overwrite(`/proc/self/fd/${folder}/victim`)),
  'write-proc-reopen': (inside) => withFd(inside.victim, O_RDONLY, (fd) => overwrite(`/proc/self/fd/${fd}`)),
  'write-grandchild': ({ victim }) => runs('/bin/sh', ['-c', `sh -c 'echo x >> "$0"' "$0"`, victim]),
  'write-daemon': ({ victim }) => runs('setsid', ['--wait', '/bin/sh', '-c', 'echo x >> "$0"', victim]),
  'write-handle': (inside) => {
    const fd = byHandle(inside, O_WRONLY);
    writeSync(fd, 'x');
    closeSync(fd);
    return 'written';
  },
  'write-io-uring': (inside) => {
    const ring = Ring.open(inside.native);
    const fd = ring.openat(inside.victim, O_WRONLY);
    ring.write(fd, 'x');
    closeSync(fd);
    return 'written';
  },
  truncate: ({ victim, native }) => {
    // Node's own opens the file first.
    native.call('truncate', cString(victim), 0);
    return 'truncated';
  },
  create: ({ folder }) => {
    closeSync(openSync(join(folder, 'new'), O_WRONLY | O_CREAT, 0o644));
    return 'created';
  },
  mkdir: ({ folder }) => {
    mkdirSync(join(folder, 'new'));
    return 'made';
  },
  symlink: ({ folder }) => {
    symlinkSync('victim', join(folder, 'new'));
    return 'made';
  },
  fifo: ({ folder, native }) => {
    native.call('mknodat', CWD, cString(join(folder, 'new')), constants.S_IFIFO | 0o644, 0);
    return 'made';
  },
  unlink: ({ victim }) => {
    unlinkSync(victim);
    return 'deleted';
  },
  rmdir: ({ folder }) => {
    rmdirSync(join(folder, 'empty'));
    return 'deleted';
  },
  'hardlink-in': (inside) => {
    const link = join(inside.own, 'link');
    linkSync(inside.victim, link);
    return overwrite(link);
  },
  'hardlink-fd': (inside) =>
    withFd(inside.victim, O_RDONLY, (fd) => {
      const link = join(inside.own, 'link');
      const AT_SYMLINK_FOLLOW = 0x400;
      inside.native.call(
        'linkat',
        CWD,
        cString(`/proc/self/fd/${fd}`),
        CWD,
        cString(link),
        AT_SYMLINK_FOLLOW,
      );
      return overwrite(link);
    }),
  'hardlink-out': (inside) => {
    linkSync(planted(inside), join(inside.folder, 'new'));
    return 'linked';
  },
  'rename-in': (inside) => {
    renameSync(inside.victim, join(inside.own, 'taken'));
    return 'moved';
  },
  'rename-out': (inside) => {
    renameSync(planted(inside), inside.victim);
    return 'moved';
  },
  'rename-exchange': (inside) => {
    const RENAME_EXCHANGE = 2;
    const [own, victim] = [cString(planted(inside)), cString(inside.victim)];
    inside.native.call('renameat2', CWD, own, CWD, victim, RENAME_EXCHANGE);
    return 'swapped';
  },
  'late-mount': async (inside) => {
    if (!inside.plan.mountsLate) throw new AbsentError('only root mounts things');
    // It is made while we run, and never seen where mounts are our own.
    for (let tries = 0; tries < 20 && mountOf(inside.victim) !== inside.folder; tries++) await sleep(20);
    return overwrite(inside.victim);
  },
  'write-tmp': (inside) => overwrite(join(inside.plan.outsideTmp, inside.id, 'victim')),
  'write-shm': ({ plan, id }) => {
    if (plan.outsideShm === undefined) throw new AbsentError('no /dev/shm');
    return overwrite(join(plan.outsideShm, id, 'victim'));
  },

  chmod: ({ victim }) => {
    chmodSync(victim, 0o600);
    return 'changed';
  },
  fchmod: ({ victim }) => {
    withFd(victim, O_RDONLY, (fd) => {
      fchmodSync(fd, 0o600);
    });
    return 'changed';
  },
  fchmodat2: ({ victim, native }) => {
    native.call('fchmodat2', CWD, cString(victim), 0o600, 0);
    return 'changed';
  },
  chown: ({ victim }) => {
    chownSync(victim, otherOwner(), ownGroup());
    return 'changed';
  },
  fchown: ({ victim }) => {
    withFd(victim, O_RDONLY, (fd) => {
      fchownSync(fd, otherOwner(), ownGroup());
    });
    return 'changed';
  },
  utimes: ({ victim }) => {
    utimesSync(victim, 1, 1);
    return 'changed';
  },
  futimes: ({ victim }) => {
    withFd(victim, O_RDONLY, (fd) => {
      futimesSync(fd, 1, 1);
    });
    return 'changed';
  },
  setxattr: (inside) => xattr('setxattr', inside),
  fsetxattr: (inside) => xattr('fsetxattr', inside),
  removexattr: ({ victim, native }) => {
    native.call('removexattr', cString(victim), cString('user.planted'));
    return 'removed';
  },
  streams: (inside) => {
    bounded(inside);
    // A file that was opened outside is reached through the mount that it was opened in, whatever is mounted here.
    const files = [0, 1, 2].filter((fd) => !fstatSync(fd).isFIFO() && !fstatSync(fd).isSocket());
    if (files.length === 0) throw new SyscallError('EINVAL', 'fchmod');
    for (const fd of files) fchmodSync(fd, fstatSync(fd).mode & 0o7777);
    return `could set the mode of ${files.map((fd) => readlinkSync(`/proc/self/fd/${fd}`)).join(', ')}`;
  },
  'own-program': (inside) => sameMode(inside, '/proc/self/exe'),
  'first-program': (inside) => sameMode(inside, '/proc/1/exe'),
  setflags: ({ victim, native }) => {
    withFd(victim, O_RDONLY, (fd) => {
      const flags = Buffer.alloc(8);
      native.call('ioctl', fd, FS_IOC_GETFLAGS, flags);
      flags.writeUInt32LE((flags.readUInt32LE(0) ^ FS_NODUMP) >>> 0, 0);
      native.call('ioctl', fd, FS_IOC_SETFLAGS, flags);
    });
    return 'changed';
  },

  remount: (inside) => {
    const native = privately(inside);
    const point = cString(mountOf(inside.victim));
    native.call('mount', cString('none'), point, null, MS.REMOUNT | MS.BIND, null);
    return overwrite(inside.victim);
  },
  'remount-attr': (inside) => {
    const native = privately(inside);
    const MOUNT_ATTR_RDONLY = 1n;
    const attributes = Buffer.alloc(32);
    attributes.writeBigUInt64LE(MOUNT_ATTR_RDONLY, 8);
    native.call('mount_setattr', CWD, cString(mountOf(inside.victim)), 0, attributes, attributes.length);
    return overwrite(inside.victim);
  },
  bind: (inside) => {
    const native = privately(inside);
    native.call('mount', cString(inside.folder), cString(inside.own), null, MS.BIND, null);
    // A bind of a read-only mount is read-only; whoever may bind may ask for it writable.
    native.call('mount', cString('none'), cString(inside.own), null, MS.REMOUNT | MS.BIND, null);
    return overwrite(join(inside.own, 'victim'));
  },
  'move-mount': (inside) => {
    const native = privately(inside);
    const [OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_RDONLY] = [1, 4, 1n];
    const tree = native.call('open_tree', CWD, cString(inside.folder), OPEN_TREE_CLONE);
    try {
      const attributes = Buffer.alloc(32);
      attributes.writeBigUInt64LE(MOUNT_ATTR_RDONLY, 8);
      const AT_EMPTY_PATH = 0x1000;
      native.call('mount_setattr', tree, cString(''), AT_EMPTY_PATH, attributes, attributes.length);
      native.call('move_mount', tree, cString(''), CWD, cString(inside.own), MOVE_MOUNT_F_EMPTY_PATH);
    } finally {
      closeSync(tree);
    }
    return overwrite(join(inside.own, 'victim'));
  },
  tmpfs: (inside) => {
    const native = privately(inside);
    native.call('mount', cString('none'), cString(inside.own), cString('tmpfs'), 0, null);
    return 'mounted';
  },
  fsopen: ({ native }) => {
    closeSync(native.call('fsopen', cString('tmpfs'), 0));
    return 'opened';
  },
  unmask: (inside) => {
    const native = privately(inside);
    const { hiddenFolder, control } = inside.plan;
    if (control) native.call('mount', cString('none'), cString(hiddenFolder), cString('tmpfs'), 0, null);
    const MNT_DETACH = 2;
    native.call('umount2', cString(hiddenFolder), MNT_DETACH);
    return stolen(join(hiddenFolder, 'secret'));
  },
  userns: (inside) => {
    const point = inside.plan.control ? inside.folder : mountOf(inside.victim);
    const before = inside.plan.control ? 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && ' : '';
    return runs('unshare', [
      '-Urm',
      '/bin/sh',
      '-c',
      `${before}mount -o remount,bind,rw "$1" && echo x >> "$0"`,
      inside.victim,
      point,
    ]);
  },
  'userns-unmask': (inside) => {
    const { hiddenFolder, control } = inside.plan;
    const before = control ? 'mount -t tmpfs none "$0" && ' : '';
    const taken = join(inside.own, 'taken');
    const script = `${before}umount -l "$0" && cat "$0/secret" > "$1"`;
    runs('unshare', ['-Urm', '/bin/sh', '-c', script, hiddenFolder, taken]);
    return stolen(taken);
  },
  setns: (inside) => {
    const { pid } = inside.process;
    return withFd(`/proc/${pid}/ns/mnt`, O_RDONLY, (namespace) => {
      // A thread of a process with several can enter one only after it stopped sharing its root with them.
      const CLONE_FS = 0x200;
      inside.native.call('unshare', CLONE_FS);
      inside.native.call('setns', namespace, CLONE_NEWNS);
      return overwrite(inside.victim);
    });
  },
  pivot: (inside) => {
    const native = privately(inside);
    // The same folder twice is refused after the permission check, so that nothing ever moves.
    return reaches(['EINVAL', 'EBUSY'], () =>
      native.call('pivot_root', cString(inside.own), cString(inside.own)),
    );
  },
  chroot: () => {
    // By a program of its own: a root that has changed would be every later row's.
    return runs('chroot', ['/', '/bin/true']);
  },

  tcp: tcpTo,
  'tcp-loopback': tcpTo,
  'tcp-loopback6': tcpTo,
  'tcp-fastopen': (inside) => {
    const to = inet(listenerOf(inside));
    const bytes = Buffer.from(inside.id);
    withSocket(inside.native, AF.INET, SOCK.STREAM, 0, (fd) => {
      inside.native.call('sendto', fd, bytes, bytes.length, MSG_FASTOPEN, to, to.length);
    });
    return 'sent';
  },
  'tcp-io-uring': (inside) => {
    const ring = Ring.open(inside.native);
    const fd = ring.socket(AF.INET, SOCK.STREAM);
    ring.connect(fd, inet(listenerOf(inside)));
    ring.send(fd, inside.id);
    closeSync(fd);
    return 'connected and sent';
  },
  udp: udp(false),
  'udp-connected': udp(true),
  'udp-loopback': udp(false),
  'udp-sendmsg': (inside) => {
    const { header, alive } = message(inside.native, inet(listenerOf(inside)), inside.id);
    withSocket(inside.native, AF.INET, SOCK.DGRAM, 0, (fd) => inside.native.call('sendmsg', fd, header, 0));
    return `sent ${alive.length > 0 ? 1 : 0}`;
  },
  'udp-sendmmsg': (inside) => {
    const { header, alive } = message(inside.native, inet(listenerOf(inside)), inside.id);
    withSocket(inside.native, AF.INET, SOCK.DGRAM, 0, (fd) =>
      inside.native.call('sendmmsg', fd, header, 1, 0),
    );
    return `sent ${alive.length > 0 ? 1 : 0}`;
  },
  'raw-ip': ({ native }) => {
    const IPPROTO_ICMP = 1;
    withSocket(native, AF.INET, SOCK.RAW, IPPROTO_ICMP, () => undefined);
    return 'opened';
  },
  'raw-packet': ({ native }) => {
    withSocket(native, AF.PACKET, SOCK.RAW, 0, () => undefined);
    return 'opened';
  },
  netlink: () => {
    const seen = Object.keys(networkInterfaces()).filter((name) => name !== 'lo');
    if (seen.length === 0) throw new SyscallError('ENODEV', 'getifaddrs');
    return `sees ${seen.join(', ')}`;
  },
  vsock: ({ native }) => {
    withSocket(native, AF.VSOCK, SOCK.STREAM, 0, () => undefined);
    return 'opened';
  },

  'unix-path': unixTo,
  'unix-tmp': unixTo,
  'unix-run': unixTo,
  'unix-workspace': unixTo,
  'unix-link': (inside) => {
    const path = inside.plan.sockets[inside.id];
    if (path === undefined) throw new AbsentError('no listener could be made');
    const link = join(inside.own, 's');
    symlinkSync(path, link);
    return talk(connect(link), inside.id);
  },
  'unix-datagram': (inside) => {
    const path = inside.plan.sockets[inside.id];
    if (path === undefined) throw new AbsentError('no listener could be made');
    const { address, length } = unixAddress(path);
    const bytes = Buffer.from(inside.id);
    withSocket(inside.native, AF.UNIX, SOCK.DGRAM, 0, (fd) =>
      inside.native.call('sendto', fd, bytes, bytes.length, 0, address, length),
    );
    return 'sent';
  },
  'unix-abstract': unixTo,
  'unix-late': unixTo,
  'unix-real': async ({ plan }) => {
    if (plan.realSockets.length === 0) throw new AbsentError('this user reaches none here');
    let refusal: unknown;
    for (const path of plan.realSockets) {
      try {
        await new Promise<void>((resolve, reject) => {
          const socket = connect(path, () => {
            socket.destroy();
            resolve();
          });
          socket.once('error', reject);
        });
        return `connected to ${path}`;
      } catch (error) {
        refusal = error;
      }
    }
    throw refusal as Error;
  },
  'named-pipe': ({ plan, id }) => {
    const path = plan.sockets[id];
    if (path === undefined) throw new AbsentError('none could be made');
    return withFd(path, O_WRONLY | O_NONBLOCK, (fd) => {
      writeSync(fd, id);
      return 'written';
    });
  },
  'sysv-shm': ({ plan, native }) => {
    if (plan.shmKey === undefined) throw new AbsentError('no segment could be made');
    native.call('shmget', plan.shmKey, 0, 0);
    return 'found';
  },
  mqueue: ({ plan, native }) => {
    if (plan.queue === undefined) throw new AbsentError('no queue could be made');
    closeSync(native.call('mq_open', cString(plan.queue), O_WRONLY, 0, null));
    return 'opened';
  },

  signal: (inside) => {
    inside.native.call('kill', inside.process.pid, SIGUSR1);
    return 'sent';
  },
  'signal-group': (inside) => {
    inside.native.call('kill', -inside.process.pid, SIGUSR1);
    return 'sent';
  },
  'signal-pidfd': (inside) => {
    const fd = inside.native.call('pidfd_open', inside.process.pid, 0);
    try {
      inside.native.call('pidfd_send_signal', fd, SIGUSR1, null, 0);
    } finally {
      closeSync(fd);
    }
    return 'sent';
  },
  ptrace: (inside) => {
    // Seizing does not stop it; it is let go when this thread ends.
    const PTRACE_SEIZE = 0x4206;
    inside.native.call('ptrace', PTRACE_SEIZE, inside.process.pid, 0, 0);
    return 'seized';
  },
  'vm-read': (inside) => {
    const { pid, local, remote, bytes } = memory(inside);
    inside.native.call('process_vm_readv', pid, local, 1, remote, 1, 0);
    return `read ${bytes.length} bytes`;
  },
  'vm-write': (inside) => {
    const { pid, local, remote, bytes } = memory(inside);
    inside.native.call('process_vm_readv', pid, local, 1, remote, 1, 0);
    inside.native.call('process_vm_writev', pid, local, 1, remote, 1, 0);
    return `wrote ${bytes.length} bytes back`;
  },
  'proc-mem': (inside) => {
    const { pid, address } = inside.process;
    return withFd(`/proc/${pid}/mem`, constants.O_RDWR, (fd) => {
      const bytes = Buffer.alloc(8);
      readSync(fd, bytes, 0, 8, address ?? 0);
      writeSync(fd, bytes, 0, 8, address ?? 0);
      return 'wrote 8 bytes back';
    });
  },
  'proc-environ': (inside) => {
    readFileSync(`/proc/${inside.process.pid}/environ`);
    return 'read';
  },
  'first-descriptors': (inside) => {
    bounded(inside);
    for (const fd of readdirSync('/proc/1/fd')) {
      const path = `/proc/1/fd/${fd}`;
      const target = readlinkSync(path);
      // The three standard ones are our own as well.
      if (Number(fd) > 2 && target.startsWith('/') && !target.startsWith('/dev/'))
        return `${fd} -> ${target}`;
    }
    throw new SyscallError('EBADF', 'open');
  },
  'proc-root': (inside) => overwrite(`/proc/${inside.process.pid}/root${inside.victim}`),
  'pidfd-getfd': (inside) => {
    const { pid, fd } = inside.process;
    const pidfd = inside.native.call('pidfd_open', pid, 0);
    try {
      closeSync(inside.native.call('pidfd_getfd', pidfd, fd, 0));
    } finally {
      closeSync(pidfd);
    }
    return 'taken';
  },
  prlimit: (inside) => {
    const RLIMIT_NOFILE = 7;
    const limits = Buffer.alloc(16);
    inside.native.call('prlimit64', inside.process.pid, RLIMIT_NOFILE, null, limits);
    inside.native.call('prlimit64', inside.process.pid, RLIMIT_NOFILE, limits, null);
    return 'set';
  },

  'hidden-file': ({ plan }) => stolen(plan.hiddenFile),
  'hidden-folder': ({ plan }) => stolen(join(plan.hiddenFolder, 'secret')),
  'hidden-list': ({ plan }) => {
    const names = readdirSync(plan.hiddenFolder);
    if (names.length === 0) throw new SyscallError('ENOENT', 'readdir');
    return `lists ${names.length}`;
  },
  'hidden-symlink': (inside) => {
    const link = join(inside.own, 'link');
    symlinkSync(inside.plan.hiddenFile, link);
    return stolen(link);
  },
  'hidden-proc-root': ({ plan }) => stolen(`/proc/self/root${plan.hiddenFile}`),
  'hidden-handle': (inside) => {
    const fd = byHandle(inside, O_RDONLY);
    try {
      return stolen(`/proc/self/fd/${fd}`);
    } finally {
      closeSync(fd);
    }
  },
  'hidden-replaced': ({ plan }) => stolen(plan.hiddenReplaced),
  'hidden-write': (inside) => {
    writeFileSync(join(inside.plan.outside, inside.id, 'new'), 'x');
    return 'created';
  },
  shadow: () => opens('/etc/shadow', O_RDONLY),
  credentials: ({ plan }) => {
    if (plan.credentials.length === 0) throw new AbsentError('this user has none of those looked for');
    let refusal: unknown;
    for (const path of plan.credentials) {
      try {
        const files = statSync(path).isDirectory()
          ? readdirSync(path, { withFileTypes: true, recursive: true })
              .filter((entry) => entry.isFile())
              .map((entry) => join(entry.parentPath, entry.name))
          : [path];
        const [file] = files;
        if (file !== undefined && readFileSync(file).length >= 0) return `read ${file}`;
        refusal = new SyscallError('ENOENT', 'read');
      } catch (error) {
        refusal = error;
      }
    }
    throw refusal as Error;
  },
  keyring: ({ plan, native }) => {
    if (plan.key === undefined) throw new AbsentError('no key could be made');
    const [SEARCH, READ, SESSION] = [10, 11, -3];
    const key = native.call('keyctl', SEARCH, SESSION, cString('user'), cString(plan.key), 0);
    const value = Buffer.alloc(64);
    const length = native.call('keyctl', READ, key, value, value.length);
    return { did: 'read', proof: value.subarray(0, length).toString('latin1') };
  },
  descriptors: () => {
    // From a child: what is ours alone is closed for it, what was handed down is not.
    const { stdout } = spawnSync('ls', ['-l', '/proc/self/fd'], { encoding: 'utf8' });
    const foreign = [...stdout.matchAll(/ (\d+) -> (.*)$/gm)].flatMap(([, fd, target = '']) =>
      Number(fd) > 2 && !/^\/proc\/\d+\/fd$/.test(target) ? `${fd} -> ${target}` : [],
    );
    if (foreign.length === 0) throw new SyscallError('EBADF', 'fcntl');
    return `has ${foreign.join(', ')}`;
  },

  'block-device': ({ plan }) => {
    if (plan.disk === undefined) throw new AbsentError('the root file system is on no disk of its own');
    const { major, minor } = plan.disk;
    const node = readdirSync('/dev')
      .map((name) => join('/dev', name))
      .find((path) => {
        const stat = lstatSync(path);
        return stat.isBlockDevice() && stat.rdev === rdevOf(major, minor);
      });
    if (node === undefined) throw new SyscallError('ENOENT', 'open');
    return opens(node, O_RDONLY);
  },
  'mknod-block': (inside) => {
    if (inside.plan.disk === undefined)
      throw new AbsentError('the root file system is on no disk of its own');
    const { major, minor } = inside.plan.disk;
    const node = join(inside.own, 'disk');
    inside.native.call('mknodat', CWD, cString(node), constants.S_IFBLK | 0o600, rdevOf(major, minor));
    try {
      return opens(node, O_RDONLY);
    } finally {
      unlinkSync(node);
    }
  },
  'device-nodes': () => {
    let refusal: unknown = new SyscallError('ENOENT', 'open');
    for (const name of ['kmsg', 'mem', 'port', 'kvm', 'fuse', 'net/tun', 'loop-control', 'loop0', 'uinput']) {
      try {
        return opens(join('/dev', name), O_RDONLY | O_NONBLOCK | O_NOCTTY);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') refusal = error;
      }
    }
    throw refusal as Error;
  },
  terminal: ({ plan, id }) => {
    if (plan.terminal === undefined) throw new AbsentError('no terminal could be made');
    return withFd(plan.terminal, O_WRONLY | O_NOCTTY, (fd) => {
      writeSync(fd, id);
      return 'written';
    });
  },
  'controlling-terminal': () => opens('/dev/tty', constants.O_RDWR | O_NOCTTY),

  'io-uring': ({ native }) => {
    closeSync(native.call('io_uring_setup', 1, Buffer.alloc(120)));
    return 'a ring';
  },
  'x32-door': ({ native }) => {
    closeSync(native.x32('io_uring_setup', 1, Buffer.alloc(120)));
    return 'a ring';
  },
  'i386-door': ({ native }) => {
    const { int80 } = native;
    if (int80 === undefined) throw new AbsentError('this machine has no such table');
    const { address, bytes } = native.lowMemory();
    const parameters = 2048;
    bytes.fill(0, parameters, parameters + 120);
    closeSync(int80(IO_URING_SETUP, 'io_uring_setup', 1, address + parameters));
    return 'a ring';
  },
  bpf: ({ native }) => {
    const [BPF_MAP_CREATE, ARRAY] = [0, 2];
    const attributes = Buffer.alloc(72);
    [ARRAY, 4, 8, 1].forEach((value, index) => attributes.writeUInt32LE(value, index * 4));
    closeSync(native.call('bpf', BPF_MAP_CREATE, attributes, attributes.length));
    return 'a map';
  },
  perf: ({ native }) => {
    const attributes = Buffer.alloc(112);
    attributes.writeUInt32LE(1, 0);
    attributes.writeUInt32LE(attributes.length, 4);
    attributes.writeUInt32LE(1, 40);
    closeSync(native.call('perf_event_open', attributes, -1, 0, -1, 0));
    return 'a counter';
  },
  'add-key': ({ native }) => {
    const PROCESS_KEYRING = -2;
    const value = Buffer.from('probe');
    native.call('add_key', cString('user'), cString('probe'), value, value.length, PROCESS_KEYRING);
    return 'added';
  },
  userfaultfd: ({ native }) => {
    closeSync(native.call('userfaultfd', constants.O_NONBLOCK));
    return 'opened';
  },
  fanotify: ({ native }) => {
    const FAN_CLASS_CONTENT = 4;
    closeSync(native.call('fanotify_init', FAN_CLASS_CONTENT, 0));
    return 'opened';
  },
  modules: ({ native }) =>
    reaches(['EBADF', 'ENOENT', 'ENOEXEC'], () => {
      native.call('delete_module', cString('belay_no_such_module'), O_NONBLOCK);
    }),
  kexec: ({ native }) => reaches(['EINVAL', 'EBUSY'], () => native.call('kexec_load', 0, 0, null, 0xfff0)),
  reboot: ({ native }) => reaches(['EINVAL'], () => native.call('reboot', 1, 2, 0, null)),
  swap: ({ native }) => reaches(['ENOENT'], () => native.call('swapon', cString('/belay/no/such/file'), 0)),
  accounting: ({ native }) => reaches(['ENOENT'], () => native.call('acct', cString('/belay/no/such/file'))),
  clock: ({ native }) => {
    native.call('settimeofday', null, null);
    return 'let through';
  },
  hostname: ({ native }) => {
    const name = Buffer.from(readFileSync('/proc/sys/kernel/hostname', 'latin1').trim(), 'latin1');
    native.call('sethostname', name, name.length);
    return 'set';
  },
  ports: ({ native }) => {
    if (process.arch !== 'x64') throw new AbsentError('only on x86');
    native.call('iopl', 3);
    return 'level 3';
  },
  'kernel-log': ({ native }) => {
    const READ_ALL = 3;
    native.call('syslog', READ_ALL, Buffer.alloc(64), 64);
    return 'read';
  },
  sysctl: () => opens('/proc/sys/kernel/core_pattern', O_WRONLY),
  sysrq: () => opens('/proc/sysrq-trigger', O_WRONLY),
  sysfs: () => opens('/sys/kernel/mm/transparent_hugepage/enabled', O_WRONLY),
  cgroup: () => {
    const group = join(groupRoot(), `belay-probe-${process.pid}`);
    mkdirSync(group);
    rmdirSync(group);
    return 'made';
  },
  'cgroup-move': () => opens(join(groupRoot(), 'cgroup.procs'), O_WRONLY),
  capabilities: () => {
    // The last is for forwarded ports below 1024, of a network that is its own.
    const [CHOWN, DAC_OVERRIDE, FOWNER, NET_BIND_SERVICE] = [0n, 1n, 3n, 10n];
    const harmless = (1n << CHOWN) | (1n << DAC_OVERRIDE) | (1n << FOWNER) | (1n << NET_BIND_SERVICE);
    const status = readFileSync('/proc/self/status', 'utf8');
    const held = ['CapInh', 'CapPrm', 'CapEff', 'CapAmb'].reduce(
      (all, name) =>
        all | BigInt(`0x${new RegExp(`^${name}:\\s*([0-9a-f]+)`, 'm').exec(status)?.[1] ?? '0'}`),
      0n,
    );
    const beyond = held & ~harmless;
    if (beyond === 0n) throw new SyscallError('EPERM', 'capget');
    return `holds 0x${beyond.toString(16)}`;
  },
  'new-privileges': () => {
    const status = readFileSync('/proc/self/status', 'utf8');
    if (/^NoNewPrivs:\s*1/m.test(status)) throw new SyscallError('EPERM', 'execve');
    return 'NoNewPrivs is 0';
  },
};

const rdevOf = (major: number, minor: number): number =>
  major * 256 + (minor & 0xff) + (minor >> 8) * 2 ** 20;

function groupRoot(): string {
  const root = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/pids'].find((path) =>
    existsSync(join(path, 'cgroup.procs')),
  );
  if (root === undefined) throw new AbsentError('no control groups are mounted');
  return root;
}
