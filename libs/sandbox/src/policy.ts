/** What a sandboxed command may do: the one form that every back end reads, and its digest. */

import { createHash } from 'node:crypto';
import { isAbsolute, normalize } from 'node:path';
import { SandboxError } from './error.js';

/** What enforces. `none` enforces nothing and has to be asked for by name; `auto` never comes to it. */
export type Backend = 'bwrap' | 'landlock' | 'seatbelt' | 'none';

/** `strict` also refuses `socket(AF_UNIX)`, which some runtimes (tsx, Python's multiprocessing) need. */
export type Profile = 'default' | 'strict';

/**
 * `deny`: no network; `loopback`: the command's own
 * loopback and nothing of the host; `ports`: as `loopback`, and the host's loopback at these TCP ports; `allow`: the
 * host's network.
 */
export type Network =
  | { readonly mode: 'deny' | 'loopback' | 'allow' }
  | { readonly mode: 'ports'; readonly ports: readonly number[] };

/** `from` on this machine is seen, writable, at `to` inside. `to` need not exist on this machine. */
export interface Bind {
  readonly from: string;
  readonly to: string;
}

/** Absent members are not limited. Per process: `cpu`, `fileSize`; of all together: `memory`, `processes`. */
export interface Limits {
  /** Bytes. */
  readonly memory?: number | undefined;
  readonly processes?: number | undefined;
  /** Seconds of processor time. */
  readonly cpu?: number | undefined;
  /** Bytes of the largest file that may be written. */
  readonly fileSize?: number | undefined;
}

/** All paths absolute. */
export interface SandboxPolicy {
  readonly backend: 'auto' | Backend;
  readonly profile: Profile;
  /** Folders that may be written, at the path they have. */
  readonly roots: readonly string[];
  readonly binds: readonly Bind[];
  /** Files and folders that can be neither read nor written inside, besides those hidden anyway. */
  readonly hide: readonly string[];
  /** Of those hidden anyway, what is to be seen after all. */
  readonly show: readonly string[];
  readonly network: Network;
  readonly limits: Limits;
  /** `named`: refusals are read from the kernel's own verdicts, where strace is at hand; `off`: nobody looks. */
  readonly denials: 'named' | 'off';
}

export const DEFAULT_POLICY: SandboxPolicy = {
  backend: 'auto',
  profile: 'default',
  roots: [],
  binds: [],
  hide: [],
  show: [],
  network: { mode: 'deny' },
  limits: {},
  denials: 'named',
};

const MAX_PORTS = 64;

/**
 * The policy with its paths in normal form and its lists in order, so that equal policies have equal digests.
 * Throws SandboxError POLICY_REFUSED for one that can't be meant.
 */
export function normalPolicy(policy: SandboxPolicy): SandboxPolicy {
  const roots = sorted(policy.roots.map((path) => plain('root', path)));
  for (const root of roots) {
    if (root === '/') throw refused('the whole file system can not be a writable root');
  }
  const { network } = policy;
  if (network.mode === 'ports') {
    if (network.ports.length === 0 || network.ports.length > MAX_PORTS)
      throw refused(`network "ports" takes 1 to ${MAX_PORTS} ports`);
    for (const port of network.ports) {
      if (!Number.isInteger(port) || port < 1 || port > 65_535) throw refused(`${port} is no TCP port`);
    }
  }
  for (const [name, value] of Object.entries(policy.limits)) {
    if (value !== undefined && (!Number.isSafeInteger(value) || value < 1))
      throw refused(`limit ${name}: ${String(value)} is no count`);
  }
  return {
    ...policy,
    roots,
    binds: policy.binds.map(({ from, to }) => {
      const target = plain('bind', to);
      if (target === '/') throw refused('nothing can be bound over the whole file system');
      return { from: plain('bind', from), to: target };
    }),
    hide: sorted(policy.hide.map((path) => plain('hide', path))),
    show: sorted(policy.show.map((path) => plain('show', path))),
    network:
      network.mode === 'ports'
        ? { mode: 'ports', ports: [...new Set(network.ports)].sort((a, b) => a - b) }
        : network,
  };
}

/** `sha256:` over the normal form: equal exactly where what may be done is equal. */
export function policyDigest(policy: SandboxPolicy): string {
  const { backend, profile, roots, binds, hide, show, network, limits, denials } = normalPolicy(policy);
  const { memory, processes, cpu, fileSize } = limits;
  const form = JSON.stringify([
    'belay/sandbox-policy/v1',
    backend,
    profile,
    roots,
    binds.map(({ from, to }) => [from, to]),
    hide,
    show,
    network.mode,
    network.mode === 'ports' ? network.ports : [],
    [memory, processes, cpu, fileSize].map((limit) => limit ?? null),
    denials,
  ]);
  return `sha256:${createHash('sha256').update(form).digest('hex')}`;
}

/**
 * What `BELAY_SANDBOX_NETWORK` says: `deny-all`, `allow-all`, or `allow-ports:8080,9000`.
 * Throws SandboxError POLICY_REFUSED for anything else.
 */
export function parseNetwork(text: string): Network {
  if (text === 'deny-all' || text === 'deny') return { mode: 'deny' };
  if (text === 'allow-all' || text === 'allow') return { mode: 'allow' };
  if (text === 'loopback') return { mode: 'loopback' };
  const [, list] = /^(?:allow-ports|ports):(\d{1,5}(?:,\d{1,5})*)$/.exec(text) ?? [];
  if (list === undefined) {
    throw new SandboxError('POLICY_REFUSED', `"${text}" is no network policy`, {
      next: 'deny-all, loopback, allow-ports:8080,9000 or allow-all',
    });
  }
  return { mode: 'ports', ports: list.split(',').map(Number) };
}

const sorted = (paths: readonly string[]): string[] => [...new Set(paths)].sort();

const refused = (message: string): SandboxError => new SandboxError('POLICY_REFUSED', message);

function plain(what: string, path: string): string {
  if (!isAbsolute(path)) throw refused(`${what} ${JSON.stringify(path)} is not an absolute path`);
  if (path.includes('\0')) throw refused(`${what}: a path has no NUL in it`);
  const normal = normalize(path);
  return normal.length > 1 && normal.endsWith('/') ? normal.slice(0, -1) : normal;
}
