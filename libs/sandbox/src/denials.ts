/**
 * What was refused, out of the log that strace writes of system calls that failed. The log is strace's own word: strings
 * of the traced come quoted and escaped, so that no path can look like a line.
 */

import { existsSync, readFileSync, readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import type { Denial, Operation } from './denial.js';
import { within } from './hidden.js';
import type { Bind, Network } from './policy.js';
import { classOfCall, tracedCalls } from './seccomp.js';

/** How the arguments of a system call name what it is about: their places, from 0. */
interface CallShape {
  readonly operation: Operation;
  /** Pairs of a folder's descriptor (undefined: the working directory) and a path. */
  readonly paths?: readonly (readonly [at: number | undefined, path: number])[];
  /** A descriptor of the file itself. */
  readonly file?: number;
  readonly flags?: number;
  /** An address; `peer` where only a datagram has one. */
  readonly address?: number;
}

const path = (operation: Operation, at: number): CallShape => ({ operation, paths: [[undefined, at]] });
const pathAt = (operation: Operation, folder: number): CallShape => ({
  operation,
  paths: [[folder, folder + 1]],
});
const file = (operation: Operation): CallShape => ({ operation, file: 0 });

/** The system calls that are looked at. Those that only look (stat, access, readlink) are left alone: they cost, and change nothing. */
const SHAPES: Readonly<Record<string, CallShape>> = {
  open: { operation: 'read', paths: [[undefined, 0]], flags: 1 },
  openat: { operation: 'read', paths: [[0, 1]], flags: 2 },
  openat2: { operation: 'read', paths: [[0, 1]], flags: 2 },
  creat: path('write', 0),
  truncate: path('write', 0),
  mkdir: path('create', 0),
  mkdirat: pathAt('create', 0),
  mknod: path('create', 0),
  mknodat: pathAt('create', 0),
  symlink: path('create', 1),
  symlinkat: pathAt('create', 1),
  link: {
    operation: 'link',
    paths: [
      [undefined, 1],
      [undefined, 0],
    ],
  },
  linkat: {
    operation: 'link',
    paths: [
      [2, 3],
      [0, 1],
    ],
  },
  rename: {
    operation: 'rename',
    paths: [
      [undefined, 1],
      [undefined, 0],
    ],
  },
  renameat: {
    operation: 'rename',
    paths: [
      [2, 3],
      [0, 1],
    ],
  },
  renameat2: {
    operation: 'rename',
    paths: [
      [2, 3],
      [0, 1],
    ],
  },
  unlink: path('delete', 0),
  unlinkat: pathAt('delete', 0),
  rmdir: path('delete', 0),
  chmod: path('metadata', 0),
  fchmod: file('metadata'),
  fchmodat: pathAt('metadata', 0),
  fchmodat2: pathAt('metadata', 0),
  chown: path('metadata', 0),
  lchown: path('metadata', 0),
  fchown: file('metadata'),
  fchownat: pathAt('metadata', 0),
  utime: path('metadata', 0),
  utimes: path('metadata', 0),
  futimesat: pathAt('metadata', 0),
  utimensat: { operation: 'metadata', paths: [[0, 1]], file: 0 },
  setxattr: path('metadata', 0),
  lsetxattr: path('metadata', 0),
  fsetxattr: file('metadata'),
  setxattrat: pathAt('metadata', 0),
  removexattr: path('metadata', 0),
  lremovexattr: path('metadata', 0),
  fremovexattr: file('metadata'),
  fallocate: file('write'),
  ioctl: file('metadata'),
  mount: path('mount', 1),
  umount: path('mount', 0),
  umount2: path('mount', 0),
  move_mount: pathAt('mount', 2),
  mount_setattr: pathAt('mount', 0),
  open_tree: pathAt('mount', 0),
  fsopen: { operation: 'mount' },
  fspick: pathAt('mount', 0),
  pivot_root: path('mount', 0),
  chroot: path('mount', 0),
  execve: path('execute', 0),
  execveat: pathAt('execute', 0),
  process_vm_readv: { operation: 'process' },
  process_vm_writev: { operation: 'process' },
  unshare: { operation: 'kernel' },
  setns: { operation: 'kernel' },
  fanotify_init: { operation: 'kernel' },
  socket: { operation: 'socket' },
  sethostname: { operation: 'kernel' },
  setdomainname: { operation: 'kernel' },
  connect: { operation: 'connect', address: 1 },
};

/** Looked at only where the network is closed: a program that sends a lot would pay for it. */
const NETWORK: Readonly<Record<string, CallShape>> = {
  sendto: { operation: 'send', address: 4 },
  sendmsg: { operation: 'send', address: 1 },
  sendmmsg: { operation: 'send', address: 1 },
  bind: { operation: 'bind', address: 1 },
};

/** Requests of ioctl(2) that change a file; of its failures only these are of interest. */
const CHANGING_IOCTL =
  /^FS_IOC_(?:SETFLAGS|FSSETXATTR|SETVERSION|SET_ENCRYPTION_POLICY)|^FITRIM|^TIOC(?:STI|LINUX)/;

/** Errors by which a boundary refuses. */
const REFUSALS = new Set(['EROFS', 'EACCES', 'EPERM', 'EXDEV']);
const UNREACHABLE = new Set(['ENETUNREACH', 'EHOSTUNREACH', 'ENETDOWN', 'EACCES', 'EPERM', 'EADDRNOTAVAIL']);

/** Options and expressions for strace; it is followed by the command. */
export function straceArguments(network: Network['mode'], log: string, filtered: boolean): string[] {
  const looked = [...Object.keys(SHAPES), ...(network === 'allow' ? [] : Object.keys(NETWORK))];
  const refused = filtered ? tracedCalls() : [];
  // `?`: not an error where this architecture, or this strace, has no such call.
  const set = (names: readonly string[]): string => names.map((name) => `?${name}`).join(',');
  return [
    '--follow-forks',
    '--seccomp-bpf',
    '--failed-only',
    '--absolute-timestamps=format:unix,precision:us',
    '--decode-fds=path',
    '--string-limit=1',
    '--quiet=all',
    '--signal=none',
    `--output=${log}`,
    `--trace=${set([...looked, ...refused.flatMap(({ calls }) => calls)])}`,
    ...refused.map(({ errno, calls }) => `--inject=${set(calls)}:error=${errno}`),
  ];
}

/**
 * `masked`: nothing of this machine can be read or written there. `replaced`: there is another content, which can be
 * written; not to find there what this machine has is a refusal as well. `writable`: as on this machine. `outside`: as
 * on this machine, in the midst of one of the others, and not to be written.
 */
export interface Place {
  readonly path: string;
  readonly kind: 'masked' | 'replaced' | 'writable' | 'outside';
}

/** What a reader has to know of the boundary. */
export interface BoundaryView {
  /** Where what is there is not as on the machine, or may be written; everywhere else it is, and may not. */
  readonly places: readonly Place[];
  readonly binds: readonly Bind[];
  readonly network: Network['mode'];
  /** Whether somebody listens at that TCP port where a process lives; asked only about connections to loopback. */
  readonly listens: (pid: number, port: number) => boolean;
}

const LINE =
  /^ *(\d+) +(\d+\.\d+) ([a-z0-9_]+)\((.*)\) += (?:-1|\?) ([A-Z0-9]+) \([^()]*\)( \(INJECTED\))?$/s;

/** One line of the log as a denial; undefined for what is none: ordinary misses, and what failed by itself. */
export function readDenial(line: string, view: BoundaryView): Denial | undefined {
  const [, pid, time, syscall, text, errno, injected] = LINE.exec(line) ?? [];
  if (syscall === undefined || text === undefined || errno === undefined) return undefined;
  const known = { syscall, errno, pid: Number(pid), time: Number(time) * 1000, count: 1 } as const;
  if (injected !== undefined) {
    const refusedBy = classOfCall(syscall);
    return {
      ...known,
      operation: refusedBy === 'ptrace' ? 'process' : 'kernel',
      class: refusedBy ?? 'kernel',
      naming: 'class',
    };
  }
  const shape = SHAPES[syscall] ?? NETWORK[syscall];
  if (shape === undefined) return undefined;
  const args = splitArguments(text);
  if (shape.address !== undefined) return ofAddress(known, shape, args, view);
  if (syscall === 'ioctl' && !CHANGING_IOCTL.test(args[1] ?? '')) return undefined;
  const named = pathsOf(shape, args, Number(pid), view.binds);
  if (named.length === 0) {
    return errno === 'EPERM' || errno === 'EACCES'
      ? { ...known, operation: shape.operation, class: 'privilege', naming: 'named' }
      : undefined;
  }
  if (named.some(({ passed }) => isOfMaker(passed))) return undefined;
  const operation = operationOf(shape, args, named[0] as NamedPath);
  const refused = named.find(({ path: at }) => isRefusal(errno, operation, at, view));
  if (refused === undefined) return undefined;
  return {
    ...known,
    operation,
    path: refused.path,
    passed: refused.passed === refused.path ? undefined : refused.passed,
    class: isHidden(refused.path, errno, view) ? 'hidden' : 'file-system',
    naming: 'named',
  };
}

function isHidden(at: string, errno: string, view: BoundaryView): boolean {
  const kind = kindOf(at, view);
  return kind === 'masked'
    ? REFUSALS.has(errno) || isKept(errno, at)
    : kind === 'replaced' && isMissed(errno, at);
}

/** Names that the boundary's maker has for the two roots while it changes them; nobody else is ever there. */
const MAKERS = ['/newroot', '/oldroot'];

function isOfMaker(path: string): boolean {
  return MAKERS.some((root) => within(path, root) && !existsSync(root));
}

type Known = Pick<Denial, 'syscall' | 'errno' | 'pid' | 'time' | 'count'>;

function isRefusal(errno: string, operation: Operation, at: string, view: BoundaryView): boolean {
  const kind = kindOf(at, view);
  if (kind === 'masked') return REFUSALS.has(errno) || isKept(errno, at);
  // A mount of its own: read-only, whoever has it. Elsewhere the files' own permissions speak, which are no boundary.
  if (errno === 'EROFS') return true;
  if (kind === 'replaced') return isMissed(errno, at);
  if (!REFUSALS.has(errno)) return false;
  if (operation === 'mount') return true;
  return kind === 'outside' && operation !== 'read' && operation !== 'execute';
}

/** Of the place that is nearest above a path. */
function kindOf(at: string, { places }: BoundaryView): Place['kind'] {
  let nearest: Place = { path: '', kind: 'outside' };
  for (const place of places) {
    if (place.path.length >= nearest.path.length && within(at, place.path)) nearest = place;
  }
  return nearest.kind;
}

/** In a masked place, whatever keeps somebody from what this machine has there is a refusal. */
function isKept(errno: string, at: string): boolean {
  return isMissed(errno, at) || (['ECONNREFUSED', 'ENXIO'].includes(errno) && existsSync(at));
}

/** Where another content stands in place of this machine's, not to find something is a refusal if this machine has it. */
function isMissed(errno: string, at: string): boolean {
  return (errno === 'ENOENT' || errno === 'ENOTDIR') && existsSync(at);
}

interface NamedPath {
  /** Absolute; links followed as far as the folder exists. */
  readonly path: string;
  readonly passed: string;
}

function pathsOf(
  shape: CallShape,
  args: readonly string[],
  pid: number,
  binds: readonly Bind[],
): NamedPath[] {
  const found: NamedPath[] = [];
  for (const [at, place] of shape.paths ?? []) {
    const passed = stringOf(args[place]);
    if (passed === undefined) continue;
    const base = at === undefined ? workingDirectory(pid) : descriptorPath(args[at]);
    if (!passed.startsWith('/') && base === undefined) continue;
    // Of an empty path, the descriptor is the file.
    const absolute = passed.startsWith('/') ? passed : passed === '' ? base! : `${base!}/${passed}`;
    found.push({ path: resolved(absolute, pid, binds), passed });
  }
  if (found.length === 0 && shape.file !== undefined) {
    const held = descriptorPath(args[shape.file]);
    if (held !== undefined) found.push({ path: held, passed: held });
  }
  return found;
}

function operationOf(shape: CallShape, args: readonly string[], named: NamedPath): Operation {
  const flags = shape.flags === undefined ? undefined : args[shape.flags];
  if (flags === undefined) return shape.operation;
  if (!/O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE/.test(flags)) return shape.operation;
  return flags.includes('O_CREAT') && !existsSync(named.path) ? 'create' : 'write';
}

function ofAddress(
  known: Known,
  { operation, address: place }: CallShape,
  args: readonly string[],
  view: BoundaryView,
): Denial | undefined {
  const address = socketAddress(args[place as number]);
  if (address === undefined) return undefined;
  const { errno } = known;
  if (address.kind === 'unix') {
    if (address.path === undefined) {
      // An abstract name: of another network name space there is nobody.
      return operation !== 'bind' && errno === 'ECONNREFUSED' && view.network !== 'allow'
        ? { ...known, operation, address: address.text, class: 'network', naming: 'named' }
        : undefined;
    }
    const at = address.path.startsWith('/')
      ? resolved(address.path, known.pid as number, view.binds)
      : address.path;
    const hidden = isHidden(at, errno, view);
    const refused = hidden || (errno === 'EROFS' && operation === 'bind');
    return refused
      ? {
          ...known,
          operation,
          path: at,
          address: `unix:${at}`,
          class: hidden ? 'hidden' : 'file-system',
          naming: 'named',
        }
      : undefined;
  }
  if (view.network === 'allow') return undefined;
  const refused =
    UNREACHABLE.has(errno) ||
    // Nobody listens there. Whether that is an ordinary miss is told by who would have answered outside.
    (address.loopback &&
      operation !== 'bind' &&
      (errno === 'ECONNREFUSED' || errno === 'EINPROGRESS') &&
      view.listens(process.pid, address.port) &&
      !view.listens(known.pid as number, address.port));
  return refused
    ? { ...known, operation, address: address.text, class: 'network', naming: 'named' }
    : undefined;
}

type Address =
  | { readonly kind: 'unix'; readonly text: string; readonly path: string | undefined }
  | { readonly kind: 'inet'; readonly text: string; readonly loopback: boolean; readonly port: number };

/** Of `{sa_family=...}`, or of the `msg_name` of a message header, or of the first of several. */
function socketAddress(text: string | undefined): Address | undefined {
  if (text === undefined) return undefined;
  const at = text.indexOf('{sa_family=');
  if (at < 0) return undefined;
  const rest = text.slice(at);
  if (rest.startsWith('{sa_family=AF_UNIX')) {
    const [, abstract, quoted] = /sun_path=(@?)("(?:[^"\\]|\\.)*")/s.exec(rest) ?? [];
    if (quoted === undefined) return undefined;
    const name = unquote(quoted);
    return abstract === '@'
      ? { kind: 'unix', text: `unix:@${name}`, path: undefined }
      : { kind: 'unix', text: `unix:${name}`, path: name };
  }
  const port = Number(/sin6?_port=htons\((\d+)\)/.exec(rest)?.[1]);
  const [, v4] = /sin_addr=inet_addr\("([0-9.]+)"\)/.exec(rest) ?? [];
  const [, v6] = /inet_pton\(AF_INET6, "([0-9a-fA-F:.]+)"/.exec(rest) ?? [];
  if (Number.isNaN(port) || (v4 === undefined && v6 === undefined)) return undefined;
  return v4 === undefined
    ? {
        kind: 'inet',
        text: `[${v6 as string}]:${port}`,
        loopback: /^(?:::1|::ffff:127\.)/.test(v6 as string),
        port,
      }
    : { kind: 'inet', text: `${v4}:${port}`, loopback: v4.startsWith('127.'), port };
}

/** Cuts the text between the parentheses at its outermost commas. */
export function splitArguments(text: string): string[] {
  const args: string[] = [];
  let depth = 0;
  let start = 0;
  for (let at = 0; at < text.length; at++) {
    const sign = text[at] as string;
    if (sign === '"') {
      for (at++; at < text.length && text[at] !== '"'; at++) if (text[at] === '\\') at++;
    } else if (sign === '<') {
      // What a descriptor stands for; a `>` of its name would be escaped.
      const end = text.indexOf('>', at);
      if (end > 0 && /^[0-9A-Z_]+$/.test(text.slice(start, at).trim())) at = end;
    } else if ('([{'.includes(sign)) depth++;
    else if (')]}'.includes(sign)) depth--;
    else if (sign === ',' && depth === 0) {
      args.push(text.slice(start, at).trim());
      start = at + 1;
    }
  }
  args.push(text.slice(start).trim());
  return args;
}

function stringOf(argument: string | undefined): string | undefined {
  return argument?.startsWith('"') === true ? unquote(argument) : undefined;
}

function descriptorPath(argument: string | undefined): string | undefined {
  const [, name] = /^[0-9A-Z_]+<([^>]*)>/s.exec(argument ?? '') ?? [];
  return name?.startsWith('/') === true ? unquote(`"${name}"`) : undefined;
}

const ESCAPES: Readonly<Record<string, number>> = {
  n: 10,
  t: 9,
  r: 13,
  v: 11,
  f: 12,
  a: 7,
  b: 8,
  '"': 34,
  '\\': 92,
};

/** A C string as strace quotes it; bytes that are no UTF-8 become U+FFFD. */
export function unquote(quoted: string): string {
  const inner = quoted.slice(1, quoted.lastIndexOf('"'));
  if (!inner.includes('\\')) return inner;
  const bytes: number[] = [];
  for (let at = 0; at < inner.length; at++) {
    if (inner[at] !== '\\') {
      bytes.push(...Buffer.from(inner[at] as string));
      continue;
    }
    const [octal] = /^[0-7]{1,3}/.exec(inner.slice(at + 1, at + 4)) ?? [];
    if (octal !== undefined) {
      bytes.push(Number.parseInt(octal, 8) & 0xff);
      at += octal.length;
    } else {
      at++;
      const sign = inner[at] ?? '\\';
      bytes.push(ESCAPES[sign] ?? sign.charCodeAt(0));
    }
  }
  return Buffer.from(bytes).toString('utf8');
}

function workingDirectory(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined;
  }
}

/** As many links in a row as the kernel follows. */
const MAX_LINKS = 40;

/**
 * Where a path leads, as far as that can be said afterwards: links of existing folders are followed. What the command
 * sees is this machine's file system, but for the binds, which are followed to where they come from and back.
 */
function resolved(absolute: string, pid: number, binds: readonly Bind[], links = 0): string {
  let wanted = normalizeProc(absolute, pid);
  // What is bound need not be here under its name, so that dots have to be taken out by hand.
  const plain = normalize(wanted);
  const bind = binds.find(({ to }) => within(plain, to));
  if (bind !== undefined) wanted = bind.from + plain.slice(bind.to.length);
  else if (binds.some(({ to }) => within(wanted, to))) wanted = plain;
  let rest = '';
  for (let folder = wanted; ; folder = dirname(folder)) {
    try {
      const real = realpathSync(folder);
      const whole = rest === '' ? real : join(real, rest);
      const back = binds.find(({ from }) => within(whole, from));
      return back === undefined ? whole : normalize(back.to + whole.slice(back.from.length));
    } catch {
      if (folder === '/') return normalize(absolute);
      // A link that leads nowhere is followed by hand: what it names is what was meant.
      const target = linkTarget(folder);
      if (target !== undefined && rest === '' && links < MAX_LINKS) {
        const named = target.startsWith('/') ? target : join(dirname(folder), target);
        return resolved(named, pid, binds, links + 1);
      }
      rest = rest === '' ? basename(folder) : join(basename(folder), rest);
    }
  }
}

function linkTarget(at: string): string | undefined {
  try {
    return readlinkSync(at);
  } catch {
    return undefined;
  }
}

const STANDARD = ['stdin', 'stdout', 'stderr'];

/** `/proc/self/root/etc` is `/etc`: what a process calls its root is the same root. */
function normalizeProc(absolute: string, pid: number): string {
  // Not `normalize` first: `..` behind a link is not what it looks like, and realpath knows better.
  const own = absolute
    .replace(/^\/dev\/(stdin|stdout|stderr)$/, (_, name: string) => `/proc/self/fd/${STANDARD.indexOf(name)}`)
    .replace(/^\/dev\/fd(?=\/|$)/, '/proc/self/fd')
    .replace(/^\/proc\/(?:self|thread-self)(?=\/)/, `/proc/${pid}`);
  const [, rest] = /^\/proc\/(?:self|thread-self|\d+)(?:\/task\/\d+)?\/root(\/.*|$)/s.exec(own) ?? [];
  if (rest !== undefined) return rest === '' ? '/' : rest;
  const [, inside] = /^\/proc\/(?:self|thread-self|\d+)\/cwd(\/.*|$)/s.exec(own) ?? [];
  if (inside === undefined) return own;
  return (workingDirectory(pid) ?? '/') + inside;
}

const LISTEN = '0A';

/** Whether somebody listens at a TCP port in the network name space of a process. */
export function listens(pid: number, port: number): boolean {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  return ['tcp', 'tcp6'].some((table) => {
    try {
      return readFileSync(`/proc/${pid}/net/${table}`, 'latin1')
        .split('\n')
        .some((line) => {
          const [, local, , state] = line.trim().split(/\s+/);
          return state === LISTEN && local?.endsWith(`:${wanted}`) === true;
        });
    } catch {
      return false;
    }
  });
}
