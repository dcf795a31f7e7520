import { describe, expect, it } from 'vitest';
import { filterClasses, type FilterArch, seccompFilter, tracedCalls } from '../src/seccomp.js';
import { run } from './bpf.js';

const ALLOW = 0x7fff0000;
const TRACE = 0x7ff00000;
const [EPERM, ENOSYS, EAFNOSUPPORT] = [1, 38, 97].map((errno) => 0x00050000 | errno) as [
  number,
  number,
  number,
];

const X64 = 0xc000003e;
const I386 = 0x40000003;
const ARM64 = 0xc00000b7;
const ARM32 = 0x40000028;

/** Numbers of the two tables, by name; from the kernel's own, not from the filter. */
const NUMBERS = {
  x64: {
    read: 0,
    write: 1,
    openat: 257,
    mmap: 9,
    ioctl: 16,
    socket: 41,
    socketpair: 53,
    connect: 42,
    clone: 56,
    fork: 57,
    execve: 59,
    futex: 202,
    unshare: 272,
    clone3: 435,
    fchmodat: 268,
    prctl: 157,
    seccomp: 317,
    cachestat: 451,
  },
  arm64: {
    read: 63,
    write: 64,
    openat: 56,
    mmap: 222,
    ioctl: 29,
    socket: 198,
    socketpair: 199,
    connect: 203,
    clone: 220,
    execve: 221,
    futex: 98,
    unshare: 97,
    clone3: 435,
    fchmodat: 53,
    prctl: 167,
    seccomp: 277,
    cachestat: 451,
  },
} as const;

const REFUSED: Readonly<Record<FilterArch, Readonly<Record<string, readonly [number, number]>>>> = {
  x64: {
    io_uring_setup: [425, ENOSYS],
    io_uring_enter: [426, ENOSYS],
    io_uring_register: [427, ENOSYS],
    add_key: [248, EPERM],
    request_key: [249, EPERM],
    keyctl: [250, EPERM],
    bpf: [321, EPERM],
    perf_event_open: [298, EPERM],
    userfaultfd: [323, EPERM],
    init_module: [175, EPERM],
    finit_module: [313, EPERM],
    delete_module: [176, EPERM],
    kexec_load: [246, EPERM],
    kexec_file_load: [320, EPERM],
    reboot: [169, EPERM],
    swapon: [167, EPERM],
    swapoff: [168, EPERM],
    acct: [163, EPERM],
    quotactl: [179, EPERM],
    syslog: [103, EPERM],
    settimeofday: [164, EPERM],
    clock_settime: [227, EPERM],
    iopl: [172, EPERM],
    ioperm: [173, EPERM],
    open_by_handle_at: [304, EPERM],
  },
  arm64: {
    io_uring_setup: [425, ENOSYS],
    io_uring_enter: [426, ENOSYS],
    io_uring_register: [427, ENOSYS],
    add_key: [217, EPERM],
    request_key: [218, EPERM],
    keyctl: [219, EPERM],
    bpf: [280, EPERM],
    perf_event_open: [241, EPERM],
    userfaultfd: [282, EPERM],
    init_module: [105, EPERM],
    finit_module: [273, EPERM],
    delete_module: [106, EPERM],
    kexec_load: [104, EPERM],
    kexec_file_load: [294, EPERM],
    reboot: [142, EPERM],
    swapon: [224, EPERM],
    swapoff: [225, EPERM],
    acct: [89, EPERM],
    quotactl: [60, EPERM],
    syslog: [116, EPERM],
    settimeofday: [170, EPERM],
    clock_settime: [112, EPERM],
    open_by_handle_at: [265, EPERM],
  },
};

describe.each([
  ['x64', X64, I386],
  ['arm64', ARM64, ARM32],
] as const)('filter for %s', (arch, native, foreign) => {
  const numbers = NUMBERS[arch];
  const filter = (strict = false, traced = false): Buffer => seccompFilter({ arch, strict, traced });
  const answer = (nr: number, args: readonly bigint[] = [], program = filter()): number =>
    run(program, { arch: native, nr, args });

  it('lets through what programs live on', () => {
    for (const name of [
      'read',
      'write',
      'openat',
      'mmap',
      'connect',
      'execve',
      'futex',
      'prctl',
      'seccomp',
      'cachestat',
      'socketpair',
      'fchmodat',
    ] as const) {
      for (const strict of [false, true]) {
        for (const traced of [false, true])
          expect(answer(numbers[name], [], filter(strict, traced)), name).toBe(ALLOW);
      }
    }
  });

  it('refuses each call of its table, by itself or by the tracer', () => {
    for (const [name, [nr, errno]] of Object.entries(REFUSED[arch])) {
      expect(answer(nr), name).toBe(errno);
      expect(answer(nr, [], filter(false, true)), name).toBe(TRACE);
    }
  });

  it('refuses other architectures, and on x86-64 the x32 table', () => {
    for (const nr of [0, 5, 425]) expect(run(filter(), { arch: foreign, nr })).toBe(ENOSYS);
    // A tracer that is told of a number means that of its own table: this is never left to one.
    expect(run(filter(false, true), { arch: foreign, nr: 425 })).toBe(ENOSYS);
    for (const nr of [0, 1, 41, 425, 520]) {
      const x32 = answer(0x40000000 + nr, [], filter(false, true));
      expect(x32).toBe(ENOSYS);
    }
  });

  it('refuses user name spaces by any of the calls that make one', () => {
    const [CLONE_NEWUSER, CLONE_VM, SIGCHLD, CLONE_FS] = [0x10000000n, 0x100n, 17n, 0x200n];
    expect(answer(numbers.clone, [CLONE_NEWUSER | SIGCHLD])).toBe(EPERM);
    expect(answer(numbers.clone, [CLONE_VM | SIGCHLD])).toBe(ALLOW);
    expect(answer(numbers.unshare, [CLONE_NEWUSER | CLONE_FS])).toBe(EPERM);
    expect(answer(numbers.unshare, [CLONE_FS])).toBe(ALLOW);
    // What is above the low half is ignored by the kernel as well.
    expect(answer(numbers.unshare, [0xffff_ffff_0000_0000n | CLONE_NEWUSER])).toBe(EPERM);
    expect(answer(numbers.clone3)).toBe(ENOSYS);
  });

  it('leaves nobody but our tracer to decide on what is left to one', () => {
    const [CLONE_UNTRACED, SIGCHLD, NEW_LISTENER] = [0x00800000n, 17n, 8n];
    expect(answer(numbers.clone, [CLONE_UNTRACED | SIGCHLD])).toBe(EPERM);
    expect(answer(numbers.seccomp, [1n, NEW_LISTENER])).toBe(EPERM);
    expect(answer(numbers.seccomp, [1n, 1n])).toBe(ALLOW);
    const ptrace = arch === 'x64' ? 101 : 117;
    expect(answer(ptrace)).toBe(ALLOW);
    expect(answer(ptrace, [], filter(false, true))).toBe(TRACE);
  });

  it('sends programs back from calls newer than a tracer', () => {
    for (const nr of [452, 463, 470, 600, 4095]) expect(answer(nr)).toBe(ENOSYS);
    for (const nr of [449, 450, 451, 453, 462]) expect(answer(nr)).toBe(ALLOW);
  });

  it('lets a terminal be asked, not typed into', () => {
    const [TCGETS, TIOCSTI, TIOCLINUX] = [0x5401n, 0x5412n, 0x541cn];
    expect(answer(numbers.ioctl, [0n, TCGETS])).toBe(ALLOW);
    expect(answer(numbers.ioctl, [0n, TIOCSTI])).toBe(EPERM);
    expect(answer(numbers.ioctl, [0n, TIOCLINUX])).toBe(EPERM);
    expect(answer(numbers.ioctl, [0n, 0xdead_0000_0000n | TIOCSTI])).toBe(EPERM);
  });

  it('knows four families of sockets, three when strict', () => {
    const families = Array.from({ length: 64 }, (_, family) => BigInt(family));
    const allowed = (strict: boolean): number[] =>
      families
        .filter((family) => answer(numbers.socket, [family, 1n, 0n], filter(strict)) === ALLOW)
        .map(Number);
    expect(allowed(false)).toEqual([1, 2, 10, 16]);
    expect(allowed(true)).toEqual([2, 10, 16]);
    expect(answer(numbers.socket, [40n])).toBe(EAFNOSUPPORT);
    expect(answer(numbers.socket, [1n], filter(true))).toBe(EPERM);
    expect(answer(numbers.socketpair, [1n, 1n], filter(true))).toBe(ALLOW);
  });

  it('ends every path in an answer', () => {
    for (const strict of [false, true]) {
      for (const traced of [false, true]) {
        const program = filter(strict, traced);
        for (let nr = 0; nr < 1024; nr++) {
          for (const arg of [0n, 1n, 0x10000000n, 0x5412n])
            run(program, { arch: native, nr, args: [arg, arg] });
        }
      }
    }
  });
});

it('says what a filter refuses, and of what a tracer tells', () => {
  const [plain, traced] = [false, true].map((each) => filterClasses({ strict: false, traced: each }));
  expect(plain?.told).toEqual([]);
  expect(new Set([...(traced?.told ?? []), ...(traced?.silent ?? [])])).toEqual(
    new Set([...(plain?.silent ?? []), 'ptrace']),
  );
  expect(traced?.told).toContain('io_uring');
  expect(filterClasses({ strict: true, traced: true }).silent).toContain('unix-socket');
  const calls = tracedCalls().flatMap((group) => group.calls);
  expect(new Set(calls).size).toBe(calls.length);
  for (const name of Object.keys(REFUSED.x64)) expect(calls).toContain(name);
});
