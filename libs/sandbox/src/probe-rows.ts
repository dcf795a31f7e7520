/**
 * What the probe tries, as data: the escape table (must not work inside) and the ordinary-life table (must work
 * inside). How each is tried is in `probe-escape.ts` and `probe-life.ts`, which have one entry for each row here.
 */

import type { Hole } from './record.js';
import type { FilterClass } from './seccomp.js';

/**
 * Who outside sees that an attempt came through, whatever the probe was told. `folder`: the row's own folder outside
 * has changed in any respect (names, content, modes, owners, times, attributes); `tcp`, `udp`, `unix`: the row's
 * listener heard of it; `mailbox`: something was left in what
 * nobody listens at; `victim`: the row's process outside ended; `secret`: the probe knows what is in a hidden file;
 * `none`: nobody, and the kernel's answer has to do.
 */
export type Witness = 'folder' | 'tcp' | 'udp' | 'unix' | 'mailbox' | 'victim' | 'secret' | 'none';

export type Group =
  | 'files'
  | 'metadata'
  | 'mounts'
  | 'network'
  | 'sockets'
  | 'processes'
  | 'secrets'
  | 'devices'
  | 'kernel'
  | 'life-files'
  | 'life-devices'
  | 'life-processes'
  | 'life-sockets'
  | 'life-system'
  | 'life-limits';

/** `network`, `unix`: works or not as the policy says; `limit`: only where the policy has that limit. */
export type Depends = 'network' | 'unix' | 'processes' | 'fileSize' | 'memory';

interface Row {
  readonly group: Group;
  /** What is attempted, in a person's words. */
  readonly what: string;
}

export interface EscapeRow extends Row {
  readonly witness: Witness;
  /** Without it (no positive control) the check as a whole says nothing: the attempt has to work outside. */
  readonly essential?: boolean;
  /** A back end may be known not to hold this; then it is a hole by this name, in the record. */
  readonly hole?: Hole;
  /** Another hole that takes this one in. */
  readonly widerHole?: Hole;
  /** The class of the filter that refuses it; where that is not told of each time, it is in the record. */
  readonly filter?: FilterClass;
  /** Why it has no positive control: without a boundary it would be another attempt. */
  readonly uncontrolled?: string;
  /** The policy may allow it. */
  readonly allowed?: 'network';
}

export interface LifeRow extends Row {
  readonly depends?: Depends;
  /** It takes a folder of the command's own in place of the machine's, which not every back end can give. */
  readonly ownFolder?: boolean;
}

const escape = <Id extends string>(rows: Readonly<Record<Id, EscapeRow>>): Readonly<Record<Id, EscapeRow>> =>
  rows;
const life = <Id extends string>(rows: Readonly<Record<Id, LifeRow>>): Readonly<Record<Id, LifeRow>> => rows;

const file = (what: string): EscapeRow => ({ group: 'files', what, witness: 'folder' });
const metadata = (what: string, hole: Hole): EscapeRow => ({
  group: 'metadata',
  what,
  witness: 'folder',
  hole,
});
const mounts = (what: string, witness: Witness = 'none'): EscapeRow => ({ group: 'mounts', what, witness });
const net = (what: string, witness: Witness, hole: Hole = 'network'): EscapeRow => ({
  group: 'network',
  what,
  witness,
  hole,
  allowed: 'network',
});
const socket = (what: string, hole: Hole = 'unix-socket'): EscapeRow => ({
  group: 'sockets',
  what,
  witness: 'unix',
  hole,
  filter: 'unix-socket',
});
const other = (what: string, witness: Witness = 'none', hole: Hole = 'host-process'): EscapeRow => ({
  group: 'processes',
  what,
  witness,
  hole,
});
const secret = (what: string): EscapeRow => ({ group: 'secrets', what, witness: 'secret', hole: 'read' });
const device = (what: string): EscapeRow => ({ group: 'devices', what, witness: 'none' });
const kernel = (what: string, filter?: FilterClass): EscapeRow => ({
  group: 'kernel',
  what,
  witness: 'none',
  ...(filter === undefined ? {} : { hole: 'filter', filter }),
});
/** Refused by this class of the filter, and by nothing else where there is no filter. */
const filtered = (row: EscapeRow, filter: FilterClass): EscapeRow => ({ ...row, hole: 'filter', filter });

export const ESCAPES = escape({
  write: { ...file('write to a file outside'), essential: true },
  'write-append': file('append to a file outside'),
  'write-dotdot': file('write through `..` out of the workspace'),
  'write-symlink': file('write through a symbolic link in the workspace'),
  'write-symlink-folder': file('create through a linked folder in the workspace'),
  'write-dangling': file('create through a link whose target is not there yet'),
  'write-openat2': file('write by openat2(2), relative to an open folder'),
  'write-proc-root': file('write through /proc/self/root'),
  'write-proc-1-root': {
    ...file('write through /proc/1/root'),
    uncontrolled: "outside, process 1 is the machine's own",
  },
  'write-proc-fd': file('write through /proc/self/fd of an open folder'),
  'write-proc-reopen': file('reopen a descriptor for reading as one for writing'),
  'write-grandchild': file('write from a grandchild (sh in sh)'),
  'write-daemon': file('write from a process of its own session'),
  'write-handle': { ...file('write by file handle (open_by_handle_at)'), filter: 'file-handle' },
  'write-io-uring': { ...file('write through io_uring'), filter: 'io_uring' },
  truncate: file('truncate a file outside'),
  create: { ...file('create a file outside'), essential: true },
  mkdir: file('make a folder outside'),
  symlink: file('make a symbolic link outside'),
  fifo: file('make a FIFO outside'),
  unlink: file('delete a file outside'),
  rmdir: file('delete a folder outside'),
  'hardlink-in': file('hard link of a file outside in the workspace'),
  'hardlink-fd': file('hard link by descriptor (/proc/self/fd)'),
  'hardlink-out': file('hard link of a workspace file outside'),
  'rename-in': file('move a file outside into the workspace'),
  'rename-out': file('move a workspace file over one outside'),
  'rename-exchange': file('swap a workspace file with one outside'),
  'late-mount': { ...file('write to what is mounted outside after the start'), hole: 'late-mount' },
  'write-tmp': { ...file("change a file in the host's temporary folder") },
  'write-shm': { ...file("change a file in the host's /dev/shm") },

  chmod: metadata('chmod(2) outside', 'chmod'),
  fchmod: metadata('fchmod(2) on a descriptor for reading', 'chmod'),
  fchmodat2: { ...metadata('fchmodat2(2) outside', 'chmod'), filter: 'newer-call' },
  chown: metadata('chown(2) outside', 'chmod'),
  fchown: metadata('fchown(2) on a descriptor for reading', 'chmod'),
  utimes: metadata('utimensat(2) outside', 'utime'),
  futimes: metadata('futimens(3) on a descriptor for reading', 'utime'),
  setxattr: metadata('setxattr(2) outside', 'xattr'),
  fsetxattr: metadata('fsetxattr(2) on a descriptor for reading', 'xattr'),
  removexattr: metadata('removexattr(2) outside', 'xattr'),
  streams: {
    ...metadata('fchmod(2) of a standard stream of the host', 'chmod'),
    witness: 'none',
    uncontrolled: 'outside, it would change what this command was given',
  },
  'own-program': {
    ...metadata('chmod(2) of its own program by /proc/self/exe', 'chmod'),
    witness: 'none',
    uncontrolled: 'outside, it would change the program of this very command',
  },
  'first-program': {
    ...metadata('chmod(2) of the program of process 1 by /proc/1/exe', 'chmod'),
    witness: 'none',
    uncontrolled: "outside, process 1 is the machine's own",
  },
  setflags: metadata('FS_IOC_SETFLAGS on a descriptor for reading', 'xattr'),

  remount: mounts('remount read-write, then write', 'folder'),
  'remount-attr': mounts('mount_setattr(2) read-write, then write', 'folder'),
  bind: mounts('bind a folder elsewhere (mount)', 'folder'),
  'move-mount': mounts('copy a mount elsewhere (open_tree, move_mount)', 'folder'),
  tmpfs: mounts('mount a tmpfs'),
  fsopen: mounts('open a file system (fsopen)'),
  unmask: mounts('take the mask off a hidden folder (umount)', 'secret'),
  userns: { ...mounts('own user namespace, remount there, then write', 'folder'), filter: 'namespace' },
  'userns-unmask': {
    ...mounts('own user namespace, take the mask off there', 'secret'),
    filter: 'namespace',
  },
  setns: mounts("enter another process's mount namespace", 'folder'),
  pivot: mounts('change the root (pivot_root)'),
  chroot: mounts('chroot(2)'),

  tcp: net('TCP to this machine beyond loopback', 'tcp'),
  'tcp-loopback': { ...net("TCP to the host's 127.0.0.1", 'tcp'), essential: true },
  'tcp-loopback6': net("TCP to the host's ::1", 'tcp'),
  'tcp-fastopen': { ...net('TCP Fast Open: data with sendto(2), no connect', 'tcp'), filter: 'fast-open' },
  'tcp-io-uring': { ...net('TCP through io_uring', 'tcp'), filter: 'io_uring' },
  udp: net('UDP with sendto(2)', 'udp', 'udp'),
  'udp-connected': net('UDP with connect(2) and send(2)', 'udp', 'udp'),
  'udp-sendmsg': net('UDP with sendmsg(2)', 'udp', 'udp'),
  'udp-sendmmsg': net('UDP with sendmmsg(2)', 'udp', 'udp'),
  'udp-loopback': net("UDP to the host's 127.0.0.1", 'udp', 'udp'),
  'raw-ip': net('raw IP socket', 'none'),
  'raw-packet': { ...net('packet socket on an interface of the host', 'none'), filter: 'socket-family' },
  netlink: net("the host's interfaces by netlink", 'none', 'host-network'),
  vsock: filtered(net('socket to the hypervisor (AF_VSOCK)', 'none'), 'socket-family'),

  'unix-path': { ...socket('listening socket of the host, by path'), essential: true },
  'unix-tmp': socket('listening socket in the temporary folder'),
  'unix-run': socket('listening socket in /run'),
  'unix-workspace': socket('listening socket of the host in the workspace'),
  'unix-link': socket('listening socket through a symbolic link'),
  'unix-datagram': socket('datagram socket of the host, by path'),
  'unix-abstract': socket('abstract socket of the host', 'abstract-socket'),
  'unix-real': { ...socket("this machine's own: docker, ssh-agent, session bus"), witness: 'none' },
  'unix-late': {
    ...socket('listening socket made after the start', 'late-unix-socket'),
    widerHole: 'unix-socket',
  },
  'named-pipe': { ...socket('named pipe of the host, for writing', 'fifo'), witness: 'mailbox' },
  'sysv-shm': { ...socket('shared memory of the host (System V)', 'host-process'), witness: 'none' },
  mqueue: { ...socket('message queue of the host (POSIX)', 'host-process'), witness: 'none' },

  signal: other('signal a process outside', 'victim', 'signal'),
  'signal-group': other('signal a process group outside', 'victim', 'signal'),
  'signal-pidfd': other('signal by pidfd', 'victim', 'signal'),
  ptrace: other('ptrace(2) a process outside'),
  'vm-write': other("write another process's memory (process_vm_writev)"),
  'vm-read': other("read another process's memory (process_vm_readv)"),
  'proc-mem': other("write another process's memory (/proc/PID/mem)"),
  'proc-environ': other("read another process's environment"),
  'first-descriptors': {
    ...other('what process 1 has open (/proc/1/fd)'),
    uncontrolled: "outside, process 1 is the machine's own",
  },
  'proc-root': other("write through another process's /proc/PID/root", 'folder'),
  'pidfd-getfd': other("take another process's descriptor (pidfd_getfd)"),
  prlimit: other("another process's limits (prlimit)"),

  'hidden-file': { ...secret('read a hidden file'), essential: true },
  'hidden-folder': secret('read in a hidden folder'),
  'hidden-list': { ...secret('list a hidden folder'), witness: 'none', hole: 'list', widerHole: 'read' },
  'hidden-symlink': secret('read a hidden file through a link'),
  'hidden-proc-root': secret('read a hidden file through /proc/self/root'),
  'hidden-handle': { ...secret('read a hidden file by file handle'), filter: 'file-handle' },
  'hidden-replaced': {
    ...secret('read a hidden file that is replaced after the start'),
    hole: 'late-secret',
    widerHole: 'read',
  },
  'hidden-write': { ...secret('write into a hidden folder'), witness: 'folder' },
  shadow: { ...secret('read /etc/shadow'), witness: 'none' },
  credentials: { ...secret("read this user's keys, tokens and cloud credentials"), witness: 'none' },
  keyring: filtered(secret('read a key of the session keyring'), 'keyring'),
  descriptors: { ...secret('descriptors inherited from outside'), witness: 'none' },

  'block-device': device('open the disk under the root file system'),
  'mknod-block': device('make a node for that disk and open it'),
  'device-nodes': device('open /dev/kmsg, mem, kvm, fuse, net/tun, loop...'),
  terminal: { ...device('write to a terminal of the host (/dev/pts)'), witness: 'mailbox' },
  'controlling-terminal': {
    ...device('open the controlling terminal (TIOCSTI)'),
    filter: 'terminal',
    uncontrolled: 'whoever is started has a session of its own',
  },

  'io-uring': kernel('io_uring_setup(2)', 'io_uring'),
  'x32-door': kernel('io_uring through the x32 table', 'foreign-arch'),
  'i386-door': kernel('io_uring through the 32-bit table (int 0x80)', 'foreign-arch'),
  bpf: kernel('bpf(2)', 'bpf'),
  perf: kernel('perf_event_open(2) on the whole machine', 'perf'),
  'add-key': kernel('add_key(2)', 'keyring'),
  userfaultfd: kernel('userfaultfd(2)', 'userfaultfd'),
  fanotify: kernel('fanotify_init(2) with permission events'),
  modules: kernel('unload a kernel module', 'kernel-module'),
  kexec: kernel('kexec_load(2)', 'kernel-module'),
  reboot: kernel('reboot(2)', 'kernel'),
  swap: kernel('swapon(2)', 'kernel'),
  accounting: kernel('acct(2)', 'kernel'),
  clock: kernel('settimeofday(2)', 'kernel'),
  hostname: kernel('sethostname(2)'),
  ports: kernel('iopl(2)', 'kernel'),
  'kernel-log': kernel('read the kernel log (syslog)', 'kernel'),
  sysctl: kernel('open /proc/sys/kernel/core_pattern for writing'),
  sysrq: kernel('open /proc/sysrq-trigger for writing'),
  sysfs: kernel('open a setting in /sys for writing'),
  cgroup: kernel('make a control group'),
  'cgroup-move': kernel('open cgroup.procs of the root group for writing'),
  capabilities: kernel('capabilities beyond CHOWN, DAC_OVERRIDE, FOWNER'),
  'new-privileges': kernel('gain privileges by set-user-id programs'),
});

const ordinary = (group: Group, what: string, depends?: Depends): LifeRow =>
  depends === undefined ? { group, what } : { group, what, depends };

export const LIFE = life({
  'dev-null': ordinary('life-devices', 'write to /dev/null'),
  'dev-null-shell': ordinary('life-devices', '`2>/dev/null` in a shell'),
  'dev-zero': ordinary('life-devices', 'read /dev/zero'),
  'dev-full': ordinary('life-devices', '/dev/full is full'),
  'dev-urandom': ordinary('life-devices', 'read /dev/urandom'),
  'dev-fd': ordinary('life-devices', '/dev/fd, /dev/stdin, /dev/stdout'),
  'dev-shm': { ...ordinary('life-devices', 'shared memory in /dev/shm'), ownFolder: true },
  pty: { ...ordinary('life-devices', 'a pseudo-terminal of its own'), ownFolder: true },

  write: ordinary('life-files', 'write, read, append, delete in the workspace'),
  folders: ordinary('life-files', 'make and remove nested folders'),
  rename: ordinary('life-files', 'rename files and folders'),
  'atomic-replace': ordinary('life-files', 'replace by temporary file and rename'),
  symlinks: ordinary('life-files', 'symbolic links inside'),
  hardlinks: ordinary('life-files', 'hard links inside'),
  modes: ordinary('life-files', 'chmod, execute bits kept'),
  times: ordinary('life-files', 'set times'),
  xattrs: ordinary('life-files', 'extended attributes'),
  'odd-names': ordinary('life-files', 'names with spaces, newlines, emoji, 255 bytes'),
  locks: ordinary('life-files', 'flock(2) and fcntl(2) locks'),
  mmap: ordinary('life-files', 'shared mapping of a file'),
  watch: ordinary('life-files', 'watch for changes (inotify)'),
  sync: ordinary('life-files', 'fsync(2) of file and folder'),
  'foreign-owner': ordinary('life-files', 'write in a workspace of another user (root)'),
  tmp: ordinary('life-files', 'temporary files in $TMPDIR'),
  'slash-tmp': { ...ordinary('life-files', 'temporary files in /tmp'), ownFolder: true },
  'var-tmp': { ...ordinary('life-files', 'temporary files in /var/tmp'), ownFolder: true },
  'cache-npm': ordinary('life-files', "write to npm's cache"),
  'cache-xdg': { ...ordinary('life-files', 'write to ~/.cache'), ownFolder: true },

  pipeline: ordinary('life-processes', 'sh -c, with pipes'),
  node: ordinary('life-processes', 'node in node'),
  fork: ordinary('life-processes', 'child with a message channel (fork)'),
  threads: ordinary('life-processes', 'worker threads'),
  python: { ...ordinary('life-processes', 'python3 with multiprocessing'), ownFolder: true },
  git: ordinary('life-processes', 'git init, add, commit, status'),
  script: ordinary('life-processes', 'run a script made executable here'),
  'many-children': ordinary('life-processes', '40 children at once'),
  'own-signal': ordinary('life-processes', 'signal a child, wait for it'),
  'own-group': ordinary('life-processes', 'end a process group of its own'),
  'process-list': ordinary('life-processes', 'see its own processes in /proc'),
  timers: ordinary('life-processes', 'timers and the clock'),

  pipes: ordinary('life-sockets', 'pipes'),
  socketpair: ordinary('life-sockets', 'socketpair(2) with send(2)', 'unix'),
  'unix-workspace': ordinary('life-sockets', 'own unix socket in the workspace', 'unix'),
  'unix-tmp': ordinary('life-sockets', 'own unix socket in $TMPDIR', 'unix'),
  'unix-abstract': ordinary('life-sockets', 'own abstract unix socket', 'unix'),
  loopback: ordinary('life-sockets', 'own 127.0.0.1: listen and connect', 'network'),
  loopback6: ordinary('life-sockets', 'own ::1: listen and connect', 'network'),
  'dns-fast': ordinary('life-sockets', 'an unknown name fails at once'),
  'connect-fast': ordinary('life-sockets', 'a closed network fails at once'),

  'system-files': ordinary('life-system', 'read /etc, /usr, certificates'),
  user: ordinary('life-system', 'who am I: user, groups, home'),
  proc: ordinary('life-system', 'read /proc: cpus, memory, self'),
  memory: ordinary('life-system', 'allocate 128 MB'),
  descriptors: ordinary('life-system', '512 open files'),
  random: ordinary('life-system', 'getrandom, crypto, UUIDs'),
  wasm: ordinary('life-system', 'compile and run WebAssembly'),

  'limit-processes': ordinary('life-limits', 'a fork bomb ends at the limit', 'processes'),
  'limit-file-size': ordinary('life-limits', 'a file ends at the limit', 'fileSize'),
  'limit-memory': ordinary('life-limits', 'a greedy process ends at the limit', 'memory'),
});

export type EscapeId = keyof typeof ESCAPES;
export type LifeId = keyof typeof LIFE;

/** All rows by name, in the order of the tables: `escape-write`, `life-pty`. */
export const PROBE_ROWS: readonly { readonly row: string; readonly group: Group }[] = [
  ...Object.entries<EscapeRow>(ESCAPES).map(([id, { group }]) => ({ row: `escape-${id}`, group })),
  ...Object.entries<LifeRow>(LIFE).map(([id, { group }]) => ({ row: `life-${id}`, group })),
];

export const ROWS: readonly string[] = PROBE_ROWS.map(({ row }) => row);

/** In the order of the tables. */
export const PROBE_GROUPS: readonly Group[] = [...new Set(PROBE_ROWS.map(({ group }) => group))];

/** A row by its name. */
export function rowOf(
  name: string,
): ({ readonly kind: 'escape' } & EscapeRow) | ({ readonly kind: 'life' } & LifeRow) | undefined {
  const id = name.slice(name.indexOf('-') + 1);
  if (name.startsWith('escape-') && Object.hasOwn(ESCAPES, id))
    return { kind: 'escape', ...ESCAPES[id as EscapeId] };
  return name.startsWith('life-') && Object.hasOwn(LIFE, id)
    ? { kind: 'life', ...LIFE[id as LifeId] }
    : undefined;
}
