/** bubblewrap's command line for a policy. */

import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import type { Place } from './denials.js';
import { aliasesOf } from './aliases.js';
import { entriesOf, look, type Seen, within } from './hidden.js';
import { closeFolders, MAX_ENTRIES, mountArguments } from './mounts.js';
import type { SandboxPolicy } from './policy.js';
import { hostSockets } from './unix-sockets.js';

export interface BwrapPlan {
  /** In normal form. */
  readonly policy: SandboxPolicy;
  readonly program: string;
  readonly argv: readonly [string, ...string[]];
  readonly cwd: string;
  /** PATH of the command, whose folders stay visible. */
  readonly path: string | undefined;
  readonly home: string | undefined;
  /** Without a user name space, which only root can do. */
  readonly root: boolean;
  readonly hidden: readonly Seen[];
  /** Existing paths that the command is given, and ones of our own that it has to see. */
  readonly shown: readonly string[];
  /** A folder of ours that is seen, read-only, at `PORTS_FOLDER`. */
  readonly ports: string | undefined;
  /** Number of the descriptor that the filter is read from. */
  readonly filter: number | undefined;
  /** Of the environment, what only the command is given. */
  readonly settings: readonly (readonly [name: string, value: string])[];
}

/** What of the plan a reader of refusals has to know. */
export interface BwrapView {
  readonly argv: readonly [string, ...string[]];
  readonly places: readonly Place[];
}

/** Private to each command, whatever the machine has there. */
const FRESH = ['/tmp', '/var/tmp'];
/** Sockets of the machine's services, mostly. */
const RUN = '/run';
/** Where `ports` has its sockets inside. */
export const PORTS_FOLDER = '/run/belay-ports';

/** In /proc, beside the processes: files that root may write without any capability, to the host's kernel. */
function kernelFiles(): Seen[] {
  return entriesOf('/proc').flatMap((name): Seen[] => {
    if (/^\d+$/.test(name) || name === 'self' || name === 'thread-self') return [];
    const path = join('/proc', name);
    try {
      const stat = lstatSync(path);
      if (stat.isDirectory()) return [{ path, folder: true }];
      return stat.isFile() && (stat.mode & 0o222) !== 0 ? [{ path, folder: false }] : [];
    } catch {
      return [];
    }
  });
}

export function bwrapCommand(plan: BwrapPlan): BwrapView {
  const { policy, home, root, cwd } = plan;
  const networked = policy.network.mode === 'allow';
  const fresh = FRESH.filter((folder) => look(folder)?.path === folder);
  const growing =
    home === undefined
      ? []
      : [join(home, '.cache')].filter((at) => look(at)?.path === at && entriesOf(at).length <= MAX_ENTRIES);
  const empty = [RUN].filter((folder) => look(folder)?.path === folder);
  const covered = [...fresh, ...empty];
  const shown = [
    cwd,
    ...plan.shown,
    ...(plan.path ?? '').split(':').filter((folder) => folder.startsWith('/')),
    // Names can't be resolved without it, and it is often a link into /run.
    ...(networked ? ['/etc/resolv.conf'] : []),
  ]
    .map((path) => look(path))
    .filter(
      (seen): seen is Seen =>
        seen !== undefined &&
        !covered.includes(seen.path) &&
        covered.some((folder) => within(seen.path, folder)) &&
        !policy.roots.some((folder) => within(seen.path, folder)),
    );
  const own = [...covered, '/dev', '/proc'];
  const seenAnyway = [...policy.roots, ...shown.map((seen) => seen.path)];
  const isSeen = (path: string, replaced: readonly string[]): boolean =>
    !replaced.some(
      (folder) =>
        within(path, folder) && !seenAnyway.some((seen) => within(seen, folder) && within(path, seen)),
    );
  const listening = hostSockets().map((path) => ({ path, folder: false }));
  const sockets = [...listening, ...aliasesOf(listening)]
    .map(({ path }) => path)
    .filter((path) => isSeen(path, [...own, ...plan.hidden.map((each) => each.path)]));
  const secrets = [
    ...plan.hidden.filter(({ path }) => isThere(path, own, plan.policy, shown)),
    ...throughBinds(plan.hidden, policy),
  ];
  const hidden = [...secrets, ...sockets.map((path) => ({ path, folder: false }))];
  const mounts = mountArguments({
    roots: policy.roots,
    binds: policy.binds,
    hidden,
    fresh,
    empty,
    // What is shown is mounted on its own, as it is.
    closed: closeFolders(secrets, policy).closed.filter(
      (folder) => ![...own, ...shown.map(({ path }) => path)].some((other) => within(folder, other)),
    ),
    growing,
    shown,
    lent: plan.ports === undefined ? [] : [{ from: plan.ports, to: PORTS_FOLDER }],
  });
  const kernel = kernelFiles().flatMap(({ path }) => ['--ro-bind-try', path, path]);
  const argv: [string, ...string[]] = [
    plan.program,
    ...mounts,
    '--dev',
    '/dev',
    '--proc',
    '/proc',
    // Process 1 inside is bubblewrap, started through this machine's own mounts: whoever gets at its program by
    // /proc/1/exe can change that file's mode, owner and times, read-only or not. So nobody does.
    '--perms',
    '0555',
    '--tmpfs',
    '/proc/1',
    '--remount-ro',
    '/proc/1',
    ...kernel,
    '--unshare-pid',
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-cgroup-try',
    ...(networked ? [] : ['--unshare-net']),
    ...(root ? [] : ['--unshare-user']),
    '--die-with-parent',
    '--cap-drop',
    'ALL',
    // Without a user name space, so that a workspace of any owner can be worked in as outside.
    ...[
      ...(root ? ['CAP_DAC_OVERRIDE', 'CAP_FOWNER', 'CAP_CHOWN'] : []),
      // Low ports of its own network, so that they can be forwarded from there.
      ...(root && policy.network.mode === 'ports' && policy.network.ports.some((port) => port < 1024)
        ? ['CAP_NET_BIND_SERVICE']
        : []),
    ].flatMap((name) => ['--cap-add', name]),
    ...(plan.filter === undefined ? [] : ['--seccomp', String(plan.filter)]),
    ...plan.settings.flatMap(([name, value]) => ['--setenv', name, value]),
    '--chdir',
    cwd,
    '--',
    ...plan.argv,
  ];
  return {
    argv,
    places: [
      ...[...fresh, '/dev'].map((path) => ({ path, kind: 'replaced' as const })),
      ...shown.map(({ path }) => ({ path, kind: 'outside' as const })),
      ...[...policy.roots, ...policy.binds.map(({ to }) => to), ...growing].map((path) => ({
        path,
        kind: 'writable' as const,
      })),
      ...[...plan.hidden.map(({ path }) => path), ...sockets, ...empty].map((path) => ({
        path,
        kind: 'masked' as const,
      })),
    ],
  };
}

/**
 * What is hidden has another path where a folder around it is bound elsewhere, and is to be hidden there as well. A
 * folder that is itself bound was meant to be seen there.
 */
export function throughBinds(hidden: readonly Seen[], { binds }: Pick<SandboxPolicy, 'binds'>): Seen[] {
  return binds.flatMap(({ from, to }) => {
    const source = look(from)?.path ?? from;
    return hidden.flatMap(({ path, folder }) =>
      within(path, source) && path !== source && source !== to
        ? { path: join(to, path.slice(source.length)), folder }
        : [],
    );
  });
}

/**
 * Whether a path would be seen inside if nothing hid it. In a folder that something else stands in place of, nothing is
 * left to hide; and a place to hide it would be made in what stands there, which may be somebody's own folder.
 */
function isThere(
  path: string,
  replaced: readonly string[],
  { roots, binds }: SandboxPolicy,
  shown: readonly Seen[],
): boolean {
  const over = binds.filter(({ to }) => within(path, to)).at(-1);
  if (over !== undefined) return look(join(over.from, path.slice(over.to.length))) !== undefined;
  return (
    !replaced.some((folder) => within(path, folder)) ||
    [...roots, ...shown.map((each) => each.path)].some((folder) => within(path, folder))
  );
}
