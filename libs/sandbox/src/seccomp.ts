/**
 * The system call filter, as the classic BPF program that seccomp(2) takes. It refuses what no name space and no
 * read-only mount holds: ways into the kernel that no tool needs, and sockets that are not of a network name space.
 */

/** `x64` and `arm64` as Node calls them. */
export type FilterArch = 'x64' | 'arm64';

/** What the filter refuses, in words that a record is kept in. */
export type FilterClass =
  | 'foreign-arch'
  | 'io_uring'
  | 'keyring'
  | 'bpf'
  | 'perf'
  | 'userfaultfd'
  | 'kernel-module'
  | 'kernel'
  | 'file-handle'
  | 'namespace'
  | 'terminal'
  | 'socket-family'
  | 'fast-open'
  | 'unix-socket'
  | 'newer-call'
  | 'untraced'
  | 'ptrace';

export interface FilterOptions {
  readonly arch: FilterArch;
  /** Also refuse `socket(AF_UNIX)`. A socketpair is still to be had. */
  readonly strict: boolean;
  /**
   * A tracer stands by that refuses the whole system calls of `tracedClasses` itself and tells of it. The filter then
   * hands these to the tracer; where none is attached (any more), the kernel answers ENOSYS: they are refused either way.
   */
  readonly traced: boolean;
}

const AUDIT_ARCH: Readonly<Record<FilterArch, number>> = { x64: 0xc000003e, arm64: 0xc00000b7 };
/** System calls of the x32 ABI come with the architecture of x86-64 and this bit. */
const X32_BIT = 0x40000000;

const EPERM = 1;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;
const EOPNOTSUPP = 95;

const AF = { unix: 1, inet: 2, inet6: 10, netlink: 16 } as const;
const CLONE_NEWUSER = 0x10000000;
/** The new process is not traced by whoever traces the one that makes it. */
const CLONE_UNTRACED = 0x00800000;
/** Gives whoever installs a filter a say that comes before ours to a tracer. */
const NEW_LISTENER = 8;
const MSG_FASTOPEN = 0x20000000;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;

type Numbers = Readonly<Record<FilterArch, number | undefined>>;
const both = (number: number): Numbers => ({ x64: number, arm64: number });
const only = (x64: number): Numbers => ({ x64, arm64: undefined });
const each = (x64: number, arm64: number): Numbers => ({ x64, arm64 });

interface WholeCalls {
  readonly class: FilterClass;
  readonly errno: 'EPERM' | 'ENOSYS';
  readonly calls: Readonly<Record<string, Numbers>>;
  /** Where nobody traces, it harms nobody. */
  readonly tracedOnly?: true;
}

/** System calls that are refused whatever their arguments. */
const WHOLE: readonly WholeCalls[] = [
  {
    // Its operations pass no filter and no tracer.
    class: 'io_uring',
    errno: 'ENOSYS',
    calls: { io_uring_setup: both(425), io_uring_enter: both(426), io_uring_register: both(427) },
  },
  {
    // Keyrings belong to no name space: the host user's keys would be in reach.
    class: 'keyring',
    errno: 'EPERM',
    calls: { add_key: each(248, 217), request_key: each(249, 218), keyctl: each(250, 219) },
  },
  { class: 'bpf', errno: 'EPERM', calls: { bpf: each(321, 280) } },
  { class: 'perf', errno: 'EPERM', calls: { perf_event_open: each(298, 241) } },
  { class: 'userfaultfd', errno: 'EPERM', calls: { userfaultfd: each(323, 282) } },
  {
    class: 'kernel-module',
    errno: 'EPERM',
    calls: {
      init_module: each(175, 105),
      finit_module: each(313, 273),
      delete_module: each(176, 106),
      create_module: only(174),
      kexec_load: each(246, 104),
      kexec_file_load: each(320, 294),
    },
  },
  {
    class: 'kernel',
    errno: 'EPERM',
    calls: {
      reboot: each(169, 142),
      swapon: each(167, 224),
      swapoff: each(168, 225),
      acct: each(163, 89),
      quotactl: each(179, 60),
      quotactl_fd: both(443),
      syslog: each(103, 116),
      settimeofday: each(164, 170),
      clock_settime: each(227, 112),
      nfsservctl: each(180, 42),
      lookup_dcookie: each(212, 18),
      vhangup: each(153, 58),
      iopl: only(172),
      ioperm: only(173),
      modify_ldt: only(154),
      uselib: only(134),
    },
  },
  {
    // Whoever traces a process decides on what the filter leaves to a tracer: that is ours, and nobody else.
    class: 'ptrace',
    errno: 'EPERM',
    calls: { ptrace: each(101, 117) },
    tracedOnly: true,
  },
  // Opens a file past every path, and so past what is hidden.
  { class: 'file-handle', errno: 'EPERM', calls: { open_by_handle_at: each(304, 265) } },
];

const SOCKET = each(41, 198);
const IOCTL = each(16, 29);
const CLONE = each(56, 220);
const UNSHARE = each(272, 97);
const SENDTO = each(44, 206);
const SENDMSG = each(46, 211);
const SENDMMSG = each(307, 269);
const SECCOMP = each(317, 277);
/**
 * Calls that are too new for a tracer to tell of, and have an older form that everybody goes back to: fchmodat2, and from
 * this number on all.
 */
const FCHMODAT2 = both(452);
const TOO_NEW = 463;
/** Its flags are in memory, where no filter can look; without it the C library goes back to clone(2). */
const CLONE3 = both(435);

// Offsets in struct seccomp_data.
const NR = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;

const LD_W_ABS = 0x20;
const JEQ = 0x15;
const JGE = 0x35;
const JSET = 0x45;
const RET = 0x06;

const ALLOW = 0x7fff0000;
const TRACE = 0x7ff00000;
const errno = (number: number): number => 0x00050000 | number;

interface Instruction {
  readonly code: number;
  readonly jt?: number;
  readonly jf?: number;
  readonly k: number;
}

const load = (offset: number): Instruction => ({ code: LD_W_ABS, k: offset });
const give = (action: number): Instruction => ({ code: RET, k: action >>> 0 });
/** Goes on with the next instruction when it holds, else skips `otherwise`. */
const when = (code: number, k: number, otherwise: number): Instruction => ({
  code,
  k: k >>> 0,
  jt: 0,
  jf: otherwise,
});
/** Skips `then` instructions when it holds. */
const skipWhen = (code: number, k: number, then: number): Instruction => ({
  code,
  k: k >>> 0,
  jt: then,
  jf: 0,
});

/** The filter as `struct sock_filter[]`, 8 bytes each, little-endian: what `bwrap --seccomp` reads. */
export function seccompFilter({ arch, strict, traced }: FilterOptions): Buffer {
  const program: Instruction[] = [
    load(ARCH),
    skipWhen(JEQ, AUDIT_ARCH[arch], 1),
    give(errno(ENOSYS)),
    load(NR),
    ...(arch === 'x64' ? [when(JGE, X32_BIT, 1), give(errno(ENOSYS))] : []),
  ];
  for (const { errno: name, calls, tracedOnly } of WHOLE) {
    if (tracedOnly === true && !traced) continue;
    const action = traced ? TRACE : errno(name === 'EPERM' ? EPERM : ENOSYS);
    for (const numbers of Object.values(calls)) {
      const number = numbers[arch];
      if (number !== undefined) program.push(when(JEQ, number, 1), give(action));
    }
  }
  for (const numbers of [CLONE3, FCHMODAT2]) {
    program.push(when(JEQ, numbers[arch] as number, 1), give(errno(ENOSYS)));
  }
  program.push(when(JGE, TOO_NEW, 1), give(errno(ENOSYS)));
  for (const [numbers, index, bits] of [
    [CLONE, 0, CLONE_NEWUSER | CLONE_UNTRACED],
    [UNSHARE, 0, CLONE_NEWUSER],
    [SECCOMP, 1, NEW_LISTENER],
  ] as const) {
    program.push(...onArgument(numbers[arch], index, [when(JSET, bits, 1), give(errno(EPERM))]));
  }
  // Connects without connect(2), which is all that Landlock looks at. Programs go back to that one.
  for (const [numbers, index] of [
    [SENDTO, 3],
    [SENDMSG, 2],
    [SENDMMSG, 3],
  ] as const) {
    const refusal = give(errno(EOPNOTSUPP));
    program.push(...onArgument(numbers[arch], index, [when(JSET, MSG_FASTOPEN, 1), refusal]));
  }
  program.push(
    ...onArgument(IOCTL[arch], 1, [skipWhen(JEQ, TIOCSTI, 1), when(JEQ, TIOCLINUX, 1), give(errno(EPERM))]),
  );
  const families = strict ? [AF.inet, AF.inet6, AF.netlink] : [AF.unix, AF.inet, AF.inet6, AF.netlink];
  program.push(
    ...onArgument(SOCKET[arch], 0, [
      ...(strict ? [when(JEQ, AF.unix, 1), give(errno(EPERM))] : []),
      // Each skips what is left of the list and the refusal behind it.
      ...families.map((family, at) => skipWhen(JEQ, family, families.length - at)),
      give(errno(EAFNOSUPPORT)),
    ]),
  );
  program.push(give(ALLOW));
  const bytes = Buffer.alloc(program.length * 8);
  for (const [at, { code, jt = 0, jf = 0, k }] of program.entries()) {
    bytes.writeUInt16LE(code, at * 8);
    bytes.writeUInt8(jt, at * 8 + 2);
    bytes.writeUInt8(jf, at * 8 + 3);
    bytes.writeUInt32LE(k, at * 8 + 4);
  }
  return bytes;
}

/** `body` looks at the low half of one argument of one call; whatever it does not return goes on with the number. */
function onArgument(number: number | undefined, index: number, body: readonly Instruction[]): Instruction[] {
  return [when(JEQ, number as number, body.length + 2), load(argument(index)), ...body, load(NR)];
}

/** The system calls that a tracer has to refuse for a filter made with `traced`, by the error it has to refuse with. */
export function tracedCalls(): { readonly errno: 'EPERM' | 'ENOSYS'; readonly calls: readonly string[] }[] {
  return (['EPERM', 'ENOSYS'] as const).map((name) => ({
    errno: name,
    calls: WHOLE.filter((rule) => rule.errno === name).flatMap((rule) => Object.keys(rule.calls)),
  }));
}

/** The class that a system call is refused by, whatever its arguments. */
export function classOfCall(name: string): FilterClass | undefined {
  return WHOLE.find(({ calls }) => name in calls)?.class;
}

/**
 * All that a filter refuses. `told`: by whole system calls, each refusal of which a tracer tells; `silent`: by their
 * arguments or their ABI, which no tracer gets to see: that they are refused is known, how often is not.
 */
export function filterClasses({ strict, traced }: Omit<FilterOptions, 'arch'>): {
  readonly told: readonly FilterClass[];
  readonly silent: readonly FilterClass[];
} {
  const whole = WHOLE.filter(({ tracedOnly }) => tracedOnly !== true || traced).map((rule) => rule.class);
  const byArgument: FilterClass[] = [
    'foreign-arch',
    'newer-call',
    'untraced',
    'namespace',
    'terminal',
    'socket-family',
    'fast-open',
    ...(strict ? (['unix-socket'] as const) : []),
  ];
  return traced ? { told: whole, silent: byArgument } : { told: [], silent: [...whole, ...byArgument] };
}

/** The architecture that this process runs on, where there is a filter for it. */
export function filterArch(arch: string = process.arch): FilterArch | undefined {
  return arch === 'x64' || arch === 'arm64' ? arch : undefined;
}
