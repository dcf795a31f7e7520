/**
 * System calls by number, for the probe: most of what it tries has no door in Node. Inside the boundary and outside
 * alike, so it imports nothing but koffi, and is undefined where that can't be loaded.
 */

import { createRequire } from 'node:module';
import { getSystemErrorName } from 'node:util';

/** `[x86-64, arm64]`, from the kernel's tables; undefined where the architecture has no such call. */
const NUMBERS = {
  mmap: [9, 222],
  munmap: [11, 215],
  ioctl: [16, 29],
  socket: [41, 198],
  connect: [42, 203],
  sendto: [44, 206],
  sendmsg: [46, 211],
  bind: [49, 200],
  listen: [50, 201],
  socketpair: [53, 199],
  kill: [62, 129],
  truncate: [76, 45],
  shmget: [29, 194],
  shmat: [30, 196],
  shmdt: [67, 197],
  shmctl: [31, 195],
  fcntl: [72, 25],
  flock: [73, 32],
  ptrace: [101, 117],
  syslog: [103, 116],
  mknodat: [259, 33],
  linkat: [265, 37],
  pivot_root: [155, 41],
  prctl: [157, 167],
  acct: [163, 89],
  settimeofday: [164, 170],
  mount: [165, 40],
  umount2: [166, 39],
  swapon: [167, 224],
  reboot: [169, 142],
  sethostname: [170, 161],
  iopl: [172, undefined],
  delete_module: [176, 106],
  setxattr: [188, 5],
  lsetxattr: [189, 6],
  fsetxattr: [190, 7],
  getxattr: [191, 8],
  removexattr: [197, 14],
  mq_open: [240, 180],
  mq_timedsend: [242, 182],
  mq_unlink: [241, 181],
  kexec_load: [246, 104],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  unshare: [272, 97],
  perf_event_open: [298, 241],
  fanotify_init: [300, 262],
  prlimit64: [302, 261],
  name_to_handle_at: [303, 264],
  open_by_handle_at: [304, 265],
  sendmmsg: [307, 269],
  setns: [308, 268],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  finit_module: [313, 273],
  renameat2: [316, 276],
  memfd_create: [319, 279],
  bpf: [321, 280],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  pidfd_send_signal: [424, 424],
  pidfd_open: [434, 434],
  openat2: [437, 437],
  pidfd_getfd: [438, 438],
  mount_setattr: [442, 442],
  fchmodat2: [452, 452],
} as const;

export type Syscall = keyof typeof NUMBERS;
/** Numbers go as `long`, buffers as pointers to their bytes, null as the null pointer. */
export type Argument = number | bigint | Buffer | null;

/** What the kernel answered; `syscall` is the call's name. */
export class SyscallError extends Error {
  readonly code: string;
  readonly syscall: string;

  constructor(code: string, syscall: string) {
    super(`${syscall}: ${code}`);
    this.name = 'SyscallError';
    this.code = code;
    this.syscall = syscall;
  }
}

export interface Native {
  /** Result of the call; throws SyscallError. */
  call(name: Syscall, ...args: readonly Argument[]): number;
  /** The same call through the x32 door of x86-64. */
  x32(name: Syscall, ...args: readonly Argument[]): number;
  /** A call of the 32-bit table by `int 0x80`, arguments below 2^32; undefined where the machine has none. */
  readonly int80: ((number: number, name: string, ...args: readonly number[]) => number) | undefined;
  /** Memory below 4 GiB for its arguments: address and bytes. */
  lowMemory(): { readonly address: number; readonly bytes: Buffer };
  /** Memory at an address that the kernel gave. */
  view(address: number, length: number): Buffer;
  /** Where a buffer's bytes are, to be put into a structure. The buffer has to stay referenced. */
  address(bytes: Buffer): bigint;
}

type Koffi = typeof import('koffi');

const X32 = 0x4000_0000;
const [PROT_READ, PROT_WRITE, PROT_EXEC] = [1, 2, 4];
const [MAP_PRIVATE, MAP_ANONYMOUS, MAP_32BIT] = [0x2, 0x20, 0x40];
const PAGE = 4096;

/**
 * `int f(uint32_t regs[6])`: eax, ebx, ecx, edx, esi and edi from `regs`, `int 0x80`, and its answer. rbx is the
 * caller's, and the pointer itself is in rdi, so it goes last.
 */
const INT80 = Buffer.from('538b078b5f048b4f088b570c8b77108b7f14cd805bc3', 'hex');

export function loadNative(): Native | undefined {
  if (process.platform !== 'linux' || (process.arch !== 'x64' && process.arch !== 'arm64')) return undefined;
  let koffi: Koffi;
  try {
    koffi = createRequire(import.meta.url)('koffi') as Koffi;
  } catch {
    return undefined;
  }
  return new LinuxNative(koffi);
}

class LinuxNative implements Native {
  readonly #koffi: Koffi;
  readonly #syscall: (...args: unknown[]) => number;
  #low: { readonly address: number; readonly bytes: Buffer } | undefined;

  constructor(koffi: Koffi) {
    this.#koffi = koffi;
    this.#syscall = koffi.load(null).func('long syscall(long, ...)') as (...args: unknown[]) => number;
  }

  call(name: Syscall, ...args: readonly Argument[]): number {
    const number = NUMBERS[name][process.arch === 'x64' ? 0 : 1];
    if (number === undefined) throw new SyscallError('ENOSYS', name);
    return this.#raw(number, name, args);
  }

  x32(name: Syscall, ...args: readonly Argument[]): number {
    if (process.arch !== 'x64') throw new SyscallError('ENOSYS', name);
    return this.#raw(NUMBERS[name][0], name, args, X32);
  }

  #raw(number: number, name: string, args: readonly Argument[], door = 0): number {
    const typed = args.flatMap((each): unknown[] => [typeof each === 'object' ? 'void *' : 'long', each]);
    const answer = this.#syscall(number | door, ...typed);
    if (answer === -1) throw new SyscallError(getSystemErrorName(-this.#koffi.errno()), name);
    return answer;
  }

  get int80(): Native['int80'] {
    if (process.arch !== 'x64') return undefined;
    return (number, name, ...args) => {
      const { address, bytes } = this.lowMemory();
      INT80.copy(bytes);
      const registers = Buffer.alloc(24);
      [number, ...args].forEach((value, index) => registers.writeUInt32LE(value >>> 0, index * 4));
      const answer = this.#koffi.call(
        BigInt(address),
        this.#koffi.proto('int (void *registers)'),
        registers,
      ) as number;
      if (answer < 0 && answer > -PAGE) throw new SyscallError(getSystemErrorName(answer), name);
      return answer;
    };
  }

  lowMemory(): { readonly address: number; readonly bytes: Buffer } {
    this.#low ??= this.#mapLow();
    return this.#low;
  }

  #mapLow(): { readonly address: number; readonly bytes: Buffer } {
    const protection = PROT_READ | PROT_WRITE | PROT_EXEC;
    const flags = MAP_PRIVATE | MAP_ANONYMOUS | (process.arch === 'x64' ? MAP_32BIT : 0);
    const address = this.call('mmap', 0, PAGE, protection, flags, -1, 0);
    return { address, bytes: this.view(address, PAGE) };
  }

  view(address: number, length: number): Buffer {
    return Buffer.from(this.#koffi.view(BigInt(address), length));
  }

  address(bytes: Buffer): bigint {
    return this.#koffi.address(bytes);
  }
}

/** A path or name as the kernel takes it. */
export const cString = (text: string): Buffer => Buffer.from(`${text}\0`);
