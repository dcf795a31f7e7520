/** Boundaries on Linux: bubblewrap or Landlock to enforce them, strace to tell what they refused. */

import { accessSync, closeSync, constants, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { aliasesOf } from './aliases.js';
import { bwrapCommand, PORTS_FOLDER, throughBinds } from './bwrap.js';
import { type CanaryOutcome, type CanaryRun, tryBoundary } from './canary.js';
import { DenialLog } from './denial-log.js';
import { type BoundaryView, listens, type Place, straceArguments } from './denials.js';
import { innerEnvironment, splitEnvironment } from './environment.js';
import { SandboxError } from './error.js';
import { hiddenPaths, look, type Seen, within } from './hidden.js';
import { LANDLOCK_SCRIPT, landlockAbi, landlockHoles, landlockPlan } from './landlock.js';
import { LimitPlan } from './limits.js';
import { closeFolders } from './mounts.js';
import { PortForwarder, PORTS_SCRIPT } from './ports.js';
import { withoutLaterMounts } from './propagation.js';
import { processesInside, processTree } from './processes.js';
import type { Hole, SandboxRecord } from './record.js';
import type { Preparation, Prepared } from './prepared.js';
import { filterArch, filterClasses, seccompFilter } from './seccomp.js';
import { findTool } from './tools.js';

/** Starts bubblewrap until it starts the command, and writes its status to this descriptor of its own. */
const START_SCRIPT = fileURLToPath(new URL('../bin/start-bwrap.sh', import.meta.url));
const STATUS_FD = 4;
/** Number that the filter's descriptor has in what is spawned: the first after the standard three. */
const FILTER_FD = 3;
/** Places that a command's own program may lie in though they are private inside. */
const PRIVATE = ['/tmp', '/var/tmp', '/run'];
/** What the programs that make the boundary are run with; they are named by their whole path. */
const OUTER_PATH = '/usr/bin:/bin:/usr/sbin:/sbin';

type Argv = readonly [string, ...string[]];

/** A back end, made ready for one policy. */
interface Enforcer {
  readonly name: 'bwrap' | 'landlock';
  readonly holes: readonly Hole[];
  /** The command line that runs `argv` inside; `hide` are more places to hide, `settings` more of the environment. */
  command(
    argv: Argv,
    hide: readonly string[],
    settings: readonly (readonly [string, string])[],
  ): {
    readonly argv: Argv;
    readonly places: readonly Place[];
  };
  /** Processes inside, of the one that was spawned; `traced`: that is strace. */
  inside(pid: number, traced: boolean): number[];
  dispose(): void;
}

/** `backend`: what the policy asks for; `auto` takes bubblewrap where that works, else Landlock. */
export async function prepareLinux(preparation: Preparation): Promise<Prepared> {
  const { backend } = preparation.policy;
  const makers: readonly ((from: Preparation, parts: Parts) => Promise<Enforcer> | Enforcer)[] =
    backend === 'landlock'
      ? [landlock]
      : [
          // As root in a container, name spaces may only be had together with one of users.
          ...(preparation.host.root
            ? [(from: Preparation, parts: Parts) => bubblewrap(from, parts, true)]
            : []),
          (from: Preparation, parts: Parts) => bubblewrap(from, parts, false),
          ...(backend === 'auto' ? [landlock] : []),
        ];
  let failure: unknown;
  for (const make of makers) {
    try {
      return await prepareWith(preparation, make);
    } catch (error) {
      // The first one's reason is the one worth telling.
      failure ??= error;
      if (!(error instanceof SandboxError) || error.code !== 'BACKEND_UNAVAILABLE') throw failure;
    }
  }
  throw failure;
}

interface Parts {
  readonly hidden: readonly Seen[];
  readonly filtered: boolean;
  readonly path: string | undefined;
}

async function bubblewrap(
  { policy, command, host }: Preparation,
  { hidden, filtered, path }: Parts,
  root: boolean,
): Promise<Enforcer> {
  const program = findTool('bwrap', host.path);
  if (program === undefined) {
    throw new SandboxError('BACKEND_UNAVAILABLE', 'bubblewrap is not installed', {
      next: 'install bubblewrap and strace with the package manager of this machine',
    });
  }
  const { network, profile } = policy;
  if (network.mode === 'ports' && profile === 'strict') {
    throw new SandboxError('NOT_SUPPORTED', 'ports are forwarded through unix sockets, which strict refuses');
  }
  if (network.mode === 'ports' && !root && network.ports.some((port) => port < 1024)) {
    throw new SandboxError('NOT_SUPPORTED', 'ports below 1024 are forwarded for root alone');
  }
  const forwarder =
    network.mode === 'ports' ? await PortForwarder.open(host.scratch, network.ports) : undefined;
  const through =
    network.mode === 'ports'
      ? [process.execPath, PORTS_SCRIPT, PORTS_FOLDER, network.ports.join(','), '--']
      : [];
  const networked = network.mode === 'allow';
  const before = withoutLaterMounts(findTool('unshare', host.path), root);
  const setpriv = findTool('setpriv', host.path);
  const readable = hidden.filter(({ path }) => isReadable(path));
  const replaceable = closeFolders([...readable, ...throughBinds(readable, policy)], policy).open;
  return {
    name: 'bwrap',
    holes: [
      'fifo',
      ...(before === undefined ? (['late-mount'] as const) : []),
      ...(replaceable.length > 0 ? (['late-secret'] as const) : []),
      ...(profile === 'strict' && filtered ? [] : (['late-unix-socket'] as const)),
      ...(networked ? (['network', 'udp', 'abstract-socket'] as const) : []),
      ...(filtered ? [] : (['filter'] as const)),
    ],
    command: (argv, hide, settings) => {
      const made = bwrapCommand({
        policy,
        program,
        argv: [...through, ...argv] as unknown as Argv,
        cwd: command.cwd,
        path,
        home: host.home,
        root,
        hidden: [...hidden, ...hide.flatMap((place) => look(place) ?? [])],
        shown: [...programPlaces(command.argv), ...programPlaces(through)],
        ports: forwarder?.folder,
        filter: filtered ? FILTER_FD : undefined,
        settings,
      });
      const [, ...words] = made.argv;
      const whole = [...(before ?? []), program, '--json-status-fd', String(STATUS_FD), ...words];
      const own = whole.length - through.length - argv.length;
      const script = ['/bin/sh', START_SCRIPT, String(own), ...whole];
      // bubblewrap dies with the script, and the script with whoever started it.
      const tied = setpriv === undefined ? script : [setpriv, '--pdeathsig', 'KILL', ...script];
      return { ...made, argv: tied as unknown as Argv };
    },
    inside: (pid) => processesInside(pid).slice(through.length === 0 ? 0 : 1),
    dispose: () => forwarder?.close(),
  };
}

/** What this user can't read now, a new one in its place would not be for this user either. */
function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

function landlock({ policy, host }: Preparation, { hidden, filtered }: Parts): Enforcer {
  const abi = landlockAbi();
  if (abi === 0) throw new SandboxError('BACKEND_UNAVAILABLE', 'this kernel has no Landlock');
  const { network, roots, binds } = policy;
  const refuse = (what: string): SandboxError =>
    new SandboxError('NOT_SUPPORTED', `Landlock can not ${what}`);
  if (network.mode === 'ports' || network.mode === 'loopback') throw refuse(`hold network: ${network.mode}`);
  if (binds.some(({ from, to }) => from !== to)) throw refuse('show a folder at another path');
  const inRoot = hidden.find(({ path }) => roots.some((root) => within(path, root)));
  if (inRoot !== undefined) throw refuse(`hide ${inRoot.path}, which is in a folder that may be written`);
  const temporary = mkdtempSync(join(host.scratch, 'belay-tmp-'));
  const writable = { ...policy, roots: [...roots, ...binds.map(({ to }) => to)] };
  return {
    name: 'landlock',
    holes: landlockHoles(policy, abi, filtered),
    command(argv, hide, settings) {
      const hiddenNow = [...hidden, ...hide.flatMap((place) => look(place) ?? [])];
      const plan = {
        ...landlockPlan(writable, hiddenNow, temporary, abi),
        ...(filtered ? { filter: FILTER_FD } : {}),
        env: {
          ...Object.fromEntries(settings),
          TMPDIR: temporary,
          npm_config_cache: join(temporary, 'npm'),
          PIP_CACHE_DIR: join(temporary, 'pip'),
          UV_CACHE_DIR: join(temporary, 'uv'),
        },
      };
      return {
        argv: [process.execPath, LANDLOCK_SCRIPT, planFile(temporary, plan), '--', ...argv],
        places: [
          ...[...writable.roots, temporary, '/dev'].map((path) => ({ path, kind: 'writable' as const })),
          ...hiddenNow.map(({ path }) => ({ path, kind: 'masked' as const })),
        ],
      };
    },
    inside: (pid, traced) => processTree(pid).slice(traced ? 1 : 0),
    dispose: () => rmSync(temporary, { recursive: true, force: true }),
  };
}

/** A plan may be longer than an argument. What runs by it may read it: it says nothing that could not be tried. */
function planFile(folder: string, plan: object): string {
  const path = join(mkdtempSync(join(folder, '.belay-')), 'plan.json');
  writeFileSync(path, JSON.stringify(plan), { mode: 0o400 });
  return path;
}

async function prepareWith(
  preparation: Preparation,
  make: (from: Preparation, parts: Parts) => Promise<Enforcer> | Enforcer,
): Promise<Prepared> {
  const { policy, host, command, digest } = preparation;
  const tool = (name: string): string | undefined => findTool(name, host.path);
  const [strace, mkfifo, setpriv] = [tool('strace'), tool('mkfifo'), tool('setpriv')];
  const arch = filterArch();
  const strict = policy.profile === 'strict';
  const found = hiddenPaths(host.home, host.root, policy.hide, policy.show);
  const hidden = [...found, ...aliasesOf(found)];
  const inner = innerEnvironment(command.env, policy.roots);
  const { outer, inner: settings } = splitEnvironment(inner.env);
  const filterFds = (traced: boolean): readonly number[] =>
    arch === undefined ? [] : [openUnnamed(host.scratch, seccompFilter({ arch, strict, traced }))];

  const enforcer = await make(preparation, {
    hidden,
    filtered: arch !== undefined,
    path: inner.env['PATH'],
  });
  const limits = new LimitPlan(policy.limits, host.root, tool('prlimit'));
  let log: DenialLog | undefined;
  let fds: readonly number[] = [];
  const release = (): void => {
    log?.close();
    limits.remove();
    enforcer.dispose();
  };
  try {
    /** Anew each time: of the machine's sockets, what is masked is what is there then. */
    const boundary = () => enforcer.command(limits.wrap(command.argv), [], settings);
    const reading = ({ places }: Pick<ReturnType<typeof boundary>, 'places'>): BoundaryView => ({
      places,
      binds: policy.binds,
      network: policy.network.mode,
      listens: (pid, port) => (host.past && pid === process.pid) || listens(pid, port),
    });
    if (policy.denials === 'named' && strace !== undefined && mkfifo !== undefined) {
      log = DenialLog.open(host.scratch, mkfifo, reading(boundary()));
    }
    const traced = (argv: Argv): Argv =>
      log === undefined
        ? argv
        : [
            strace as string,
            ...straceArguments(policy.network.mode, log.output, arch !== undefined),
            '--',
            ...argv,
          ];
    /** strace lets go of what it traces when its parent is gone; killed itself, it takes it along. */
    const launched = (argv: Argv): Argv =>
      setpriv === undefined ? traced(argv) : [setpriv, '--pdeathsig', 'KILL', ...traced(argv)];
    const tried = (): Promise<CanaryOutcome | undefined> =>
      tryInside(preparation, tool('bash'), (argv, hide) => ({
        argv: traced(enforcer.command(argv, [hide], []).argv),
        fds: filterFds(log !== undefined),
      }));
    let outcome = await tried();
    // A socket that was to be masked may be gone by the time that it is.
    if (outcome?.ran === false) outcome = await tried();
    if (log !== undefined && outcome !== undefined && (!outcome.ran || log.takeEarly().length === 0)) {
      // Nobody may trace here (or we are traced ourselves): the boundary is the same, its refusals have no names.
      log.close();
      log = undefined;
      outcome = await tried();
    }
    if (outcome?.ran === false) {
      throw new SandboxError(
        'BACKEND_UNAVAILABLE',
        `${enforcer.name} does not work here: ${outcome.message}`,
      );
    }
    fds = filterFds(log !== undefined);
    const held = outcome === undefined || Object.values(outcome.canary).every((refused) => refused);
    const record: SandboxRecord = {
      profile: policy.profile,
      backend: held ? enforcer.name : 'none',
      attempted: held ? undefined : enforcer.name,
      policy: digest,
      network: policy.network.mode,
      ports: policy.network.mode === 'ports' ? policy.network.ports : undefined,
      roots: policy.roots,
      hidden: hidden.map(({ path }) => path),
      holes: enforcer.holes,
      limits: limits.held,
      filter:
        arch === undefined ? { told: [], silent: [] } : filterClasses({ strict, traced: log !== undefined }),
      naming: policy.denials === 'off' ? 'off' : log === undefined ? 'unnamed' : 'named',
      environment: inner.changed,
      canary: outcome?.canary,
    };
    let running: number | undefined;
    return {
      get argv() {
        const now = boundary();
        log?.look(reading(now));
        return limits.enter(launched(now.argv));
      },
      cwd: command.cwd,
      env: { ...outer, PATH: outer['PATH'] ?? OUTER_PATH },
      fds,
      record,
      started(pid) {
        for (const fd of fds) closeSync(fd);
        running = pid;
      },
      onDenial: (listener) => log?.listen(listener),
      live: () => (running === undefined ? [] : enforcer.inside(running, log !== undefined)),
      drain: () => log?.drain(),
      dispose() {
        release();
        return Promise.resolve();
      },
    };
  } catch (error) {
    release();
    throw error;
  }
}

/** The self-test; undefined where it is not asked for, or there is no shell to do it with. */
async function tryInside(
  { policy, host, command }: Preparation,
  bash: string | undefined,
  inside: CanaryRun['inside'],
): Promise<CanaryOutcome | undefined> {
  if (!host.canary || bash === undefined) return undefined;
  const ours = [...policy.roots, ...policy.binds.flatMap(({ from, to }) => [from, to])];
  const places = [host.home, host.scratch, '/', dirname(command.cwd)];
  const outside = [...new Set(places)].filter(
    (folder): folder is string => folder !== undefined && !ours.some((place) => within(folder, place)),
  );
  const outcome = await tryBoundary({ bash, scratch: host.scratch, outside, inside });
  if (!outcome.ran || policy.network.mode !== 'allow') return outcome;
  const { read, write } = outcome.canary;
  return { ran: true, canary: { read, write } };
}

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
