/** The boundary that bubblewrap enforces, with strace to tell what it refused. */

import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { bwrapCommand } from './bwrap.js';
import { tryBoundary } from './canary.js';
import { ControlGroup } from './cgroup.js';
import { DenialLog } from './denial-log.js';
import { hostListens, straceArguments } from './denials.js';
import { innerEnvironment, splitEnvironment } from './environment.js';
import { SandboxError } from './error.js';
import { hiddenPaths, look, within } from './hidden.js';
import { processesInside } from './processes.js';
import type { HeldLimit, Hole, SandboxRecord } from './record.js';
import type { Preparation, Prepared } from './sandbox.js';
import { filterArch, filterClasses, seccompFilter } from './seccomp.js';
import { findTool } from './tools.js';

/** Number that the filter's descriptor has in what is spawned: the first after the standard three. */
const FILTER_FD = 3;
/** Places that a command's own program may lie in though they are private inside. */
const PRIVATE = ['/tmp', '/var/tmp', '/run'];
/** What the programs that make the boundary are run with; they are named by their whole path. */
const OUTER_PATH = '/usr/bin:/bin:/usr/sbin:/sbin';

/** Throws SandboxError BACKEND_UNAVAILABLE where it is not there or does not work here. */
export async function prepareBwrap(preparation: Preparation): Promise<Prepared> {
  const { policy, host, command, digest } = preparation;
  const tool = (name: string): string | undefined => findTool(name, host.path);
  const bwrap = tool('bwrap');
  if (bwrap === undefined) {
    throw new SandboxError('BACKEND_UNAVAILABLE', 'bubblewrap is not installed', {
      next: 'apt install bubblewrap strace, or the like; or another --sandbox back end',
    });
  }
  const [strace, mkfifo, setpriv] = [tool('strace'), tool('mkfifo'), tool('setpriv')];
  const named = policy.denials === 'named' && strace !== undefined && mkfifo !== undefined;
  const arch = filterArch();
  const strict = policy.profile === 'strict';
  const limits = new LimitPlan(preparation, tool('prlimit'));
  const hidden = hiddenPaths(host.home, host.root, policy.hide, policy.show);
  const inner = innerEnvironment(command.env, policy.roots);
  const { outer, inner: withheld } = splitEnvironment(inner.env);

  /** bwrap's command line for `argv`; `hide` is one more place to hide. */
  const boundary = (argv: readonly [string, ...string[]], hide: readonly string[]) =>
    bwrapCommand({
      policy,
      program: bwrap,
      argv,
      cwd: command.cwd,
      path: inner.env['PATH'],
      home: host.home,
      root: host.root,
      hidden: [...hidden, ...hide.flatMap((path) => look(path) ?? [])],
      shown: programPlaces(command.argv),
      ports: undefined,
      filter: arch === undefined ? undefined : FILTER_FD,
    });
  const filterFd = (traced: boolean): readonly number[] =>
    arch === undefined ? [] : [openUnnamed(host.scratch, seccompFilter({ arch, strict, traced }))];

  const bash = host.canary ? tool('bash') : undefined;
  const outcome =
    bash === undefined
      ? undefined
      : await tryBoundary({
          bash,
          scratch: host.scratch,
          outside: [...new Set([host.home, host.scratch, '/', dirname(command.cwd)])].filter(
            (folder): folder is string =>
              folder !== undefined && !policy.roots.some((root) => within(folder, root)),
          ),
          inside: (argv, hide) => {
            const fds = filterFd(false);
            return {
              argv: boundary(argv, [hide]).argv,
              fds,
              close: () => fds.forEach((fd) => closeSync(fd)),
            };
          },
        });
  if (outcome?.ran === false) {
    throw new SandboxError('BACKEND_UNAVAILABLE', `bubblewrap does not work here: ${outcome.message}`);
  }
  const canary =
    outcome === undefined || policy.network.mode !== 'allow'
      ? outcome?.canary
      : { read: outcome.canary.read, write: outcome.canary.write };
  const held = canary === undefined || Object.values(canary).every((refused) => refused);

  const view = boundary(limits.wrap(command.argv), []);
  const log = named
    ? DenialLog.open(host.scratch, mkfifo, {
        masked: view.masked,
        writable: view.writable,
        binds: policy.binds,
        network: policy.network.mode,
        hostListens,
      })
    : undefined;
  const fds = filterFd(named && arch !== undefined);
  const [program, ...rest] = view.argv;
  const separator = rest.length - limits.wrap(command.argv).length - 1;
  const settings = withheld.flatMap(([name, value]) => ['--setenv', name, value]);
  const started = [program, ...rest.slice(0, separator), ...settings, ...rest.slice(separator)];
  const traced =
    log === undefined || strace === undefined
      ? started
      : [strace, ...straceArguments(policy.network.mode, log.output, arch !== undefined), '--', ...started];
  // strace does not end what it traces when it is killed by our death, unless it is killed itself.
  const argv = setpriv === undefined ? traced : [setpriv, '--pdeathsig', 'KILL', ...traced];

  let running: number | undefined;
  return {
    argv: argv as [string, ...string[]],
    cwd: command.cwd,
    env: { ...outer, PATH: outer['PATH'] ?? OUTER_PATH },
    fds,
    record: {
      profile: policy.profile,
      backend: held ? 'bwrap' : 'none',
      ...(held ? {} : { attempted: 'bwrap' as const }),
      policy: digest,
      network: policy.network.mode,
      ...(policy.network.mode === 'ports' ? { ports: policy.network.ports } : {}),
      roots: policy.roots,
      hidden: hidden.map(({ path }) => path),
      holes: holesOf(preparation, arch !== undefined),
      limits: limits.held,
      filter:
        arch === undefined ? { told: [], silent: [] } : filterClasses({ strict, traced: log !== undefined }),
      naming: policy.denials === 'off' ? 'off' : log === undefined ? 'unnamed' : 'named',
      environment: inner.changed,
      canary,
    } satisfies SandboxRecord,
    started(pid) {
      for (const fd of fds) closeSync(fd);
      running = pid;
      if (pid !== undefined) limits.take(pid);
    },
    onDenial(listener) {
      log?.listen(listener);
    },
    live: () => (running === undefined ? [] : processesInside(running, true)),
    drain() {
      log?.drain();
    },
    dispose() {
      log?.close();
      limits.remove();
      return Promise.resolve();
    },
  };
}

function holesOf({ policy }: Preparation, filtered: boolean): Hole[] {
  const networked = policy.network.mode === 'allow';
  return [
    ...(policy.profile === 'strict' && filtered ? [] : (['late-unix-socket'] as const)),
    ...(networked ? (['network', 'udp', 'abstract-socket'] as const) : []),
    ...(filtered ? [] : (['filter'] as const)),
  ];
}

/** What holds each limit of the policy: rlimits by a program inside, control groups from outside. */
class LimitPlan {
  readonly held: readonly HeldLimit[];
  readonly #prefix: readonly string[];
  readonly #group: ControlGroup | undefined;

  constructor({ policy: { limits }, host: { root } }: Preparation, prlimit: string | undefined) {
    const { memory, processes } = limits;
    const together = [
      ...(memory === undefined ? [] : [{ name: 'memory' as const, value: memory }]),
      ...(processes === undefined ? [] : [{ name: 'pids' as const, value: processes }]),
    ];
    this.#group =
      together.length === 0
        ? undefined
        : ControlGroup.make(`belay-${process.pid}-${Date.now().toString(36)}`, together);
    const options: string[] = [];
    const held: HeldLimit[] = [];
    for (const [limit, option, controller] of RLIMITS) {
      const value = limits[limit];
      if (value === undefined) continue;
      if (controller !== undefined && this.#group?.held.has(controller) === true) {
        held.push({ limit, value, by: 'cgroup' });
      } else if (prlimit !== undefined && !(root && limit === 'processes')) {
        options.push(`--${option}=${value}`);
        held.push({ limit, value, by: 'rlimit' });
      } else held.push({ limit, value, by: 'none' });
    }
    this.held = held;
    this.#prefix = options.length === 0 || prlimit === undefined ? [] : [prlimit, ...options, '--'];
  }

  wrap(argv: readonly [string, ...string[]]): [string, ...string[]] {
    return [...this.#prefix, ...argv] as [string, ...string[]];
  }

  take(pid: number): void {
    this.#group?.take(pid);
  }

  remove(): void {
    this.#group?.remove();
  }
}

/** `data` and not `as`: runtimes reserve far more address space than they use. No process limit holds root. */
const RLIMITS = [
  ['memory', 'data', 'memory'],
  ['processes', 'nproc', 'pids'],
  ['cpu', 'cpu', undefined],
  ['fileSize', 'fsize', undefined],
] as const;

/**
 * Where a command's own files are, should that be private inside: of a file of its command line, the folder that is
 * next below the private one, since a program is seldom one file.
 */
function programPlaces(argv: readonly string[]): string[] {
  return argv.flatMap((word) => {
    const seen = word.startsWith('/') ? look(word) : undefined;
    const covering = seen && PRIVATE.find((folder) => within(seen.path, folder));
    if (seen === undefined || covering === undefined) return [];
    if (seen.folder) return [seen.path];
    const [top] = seen.path.slice(covering.length + 1).split('/');
    return [join(covering, top as string)];
  });
}

/** A descriptor to read `bytes` from, of a file that has no name any more. */
function openUnnamed(scratch: string, bytes: Buffer): number {
  const folder = mkdtempSync(join(scratch, 'belay-filter-'));
  try {
    const path = join(folder, 'filter');
    writeFileSync(path, bytes, { mode: 0o600, flag: 'wx' });
    return openSync(path, 'r');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
