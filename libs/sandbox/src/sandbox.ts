/** A command made ready to run inside a policy's boundary. */

import { homedir, tmpdir } from 'node:os';
import { keepDescriptors } from './descriptors.js';
import { SandboxError } from './error.js';
import { look } from './hidden.js';
import { prepareLinux } from './linux.js';
import { prepareSeatbelt } from './mac.js';
import { normalPolicy, policyDigest, type SandboxPolicy } from './policy.js';
import { processTree } from './processes.js';
import type { Preparation, Prepared, SandboxCommand, SandboxHost } from './prepared.js';

/**
 * Throws SandboxError where the policy can't be had on this machine: nothing is ever run with less than was asked for.
 */
export async function prepare(
  policy: SandboxPolicy,
  command: SandboxCommand,
  host: SandboxHost = {},
): Promise<Prepared> {
  const normal = normalPolicy(policy);
  const preparation: Preparation = {
    policy: { ...normal, roots: normal.roots.map(existingFolder) },
    digest: policyDigest(policy),
    command,
    host: {
      home: look(host.home ?? homedir())?.path,
      scratch: host.scratch ?? tmpdir(),
      path: host.path,
      canary: host.canary ?? true,
      past: host.past ?? false,
      root: process.geteuid?.() === 0,
    },
  };
  for (const { from } of normal.binds) existingFolder(from);
  const { backend } = normal;
  if (backend === 'none') return withoutBoundary(preparation);
  const mac = process.platform === 'darwin';
  if (mac ? backend === 'bwrap' || backend === 'landlock' : backend === 'seatbelt') {
    throw new SandboxError('BACKEND_UNAVAILABLE', `${backend} is not of this platform`);
  }
  keepDescriptors();
  if (mac) return prepareSeatbelt(preparation);
  if (process.platform === 'linux') return prepareLinux(preparation);
  throw new SandboxError('BACKEND_UNAVAILABLE', `there is no sandbox for ${process.platform}`, {
    next: '--sandbox none runs without one, and says so',
  });
}

function existingFolder(path: string): string {
  const seen = look(path);
  if (seen?.folder === true) return seen.path;
  throw new SandboxError('POLICY_REFUSED', `${path} is no folder of this machine`);
}

/** Asked for by name: nothing is enforced, and the record says so. */
function withoutBoundary({ policy, digest, command }: Preparation): Prepared {
  let running: number | undefined;
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(command.env)) if (value !== undefined) env[name] = value;
  return {
    argv: command.argv,
    cwd: command.cwd,
    env,
    fds: [],
    record: {
      profile: policy.profile,
      backend: 'none',
      policy: digest,
      network: 'allow',
      roots: policy.roots,
      hidden: [],
      holes: [
        'chmod',
        'utime',
        'xattr',
        'udp',
        'network',
        'unix-socket',
        'abstract-socket',
        'read',
        'write',
        'signal',
        'host-process',
        'filter',
      ],
      limits: [],
      filter: { told: [], silent: [] },
      naming: 'off',
      environment: [],
    },
    started(pid) {
      running = pid;
    },
    onDenial() {
      // Nothing is refused.
    },
    live: () => (running === undefined ? [] : processTree(running)),
    drain() {
      // Nothing is refused.
    },
    dispose: () => Promise.resolve(),
  };
}
