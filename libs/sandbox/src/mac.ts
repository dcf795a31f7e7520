/** The boundary on macOS. Written, and tested as text; nobody has measured it there, and the record says so. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { innerEnvironment } from './environment.js';
import { SandboxError } from './error.js';
import { hiddenPaths } from './hidden.js';
import type { Preparation, Prepared } from './prepared.js';
import { seatbeltProfile } from './seatbelt.js';

const PROGRAM = '/usr/bin/sandbox-exec';

export function prepareSeatbelt({ policy, digest, host, command }: Preparation): Prepared {
  if (policy.binds.some(({ from, to }) => from !== to))
    throw new SandboxError('NOT_SUPPORTED', 'Seatbelt can not show a folder at another path');
  const hidden = hiddenPaths(host.home, host.root, policy.hide, policy.show);
  const temporary = mkdtempSync(join(host.scratch, 'belay-tmp-'));
  const inner = innerEnvironment({ ...command.env, TMPDIR: temporary }, [...policy.roots, temporary]);
  const profile = join(temporary, 'profile.sb');
  writeFileSync(profile, seatbeltProfile({ policy, hidden, temporary }), { mode: 0o400 });
  const { mode } = policy.network;
  return {
    argv: [PROGRAM, '-f', profile, ...command.argv],
    cwd: command.cwd,
    env: inner.env,
    fds: [],
    record: {
      profile: policy.profile,
      backend: 'seatbelt',
      policy: digest,
      network: mode,
      ports: policy.network.mode === 'ports' ? policy.network.ports : undefined,
      roots: policy.roots,
      hidden: hidden.map(({ path }) => path),
      holes: [
        'not-measured',
        'host-process',
        'filter',
        ...(mode === 'allow' || mode === 'loopback' ? (['network'] as const) : []),
      ],
      limits: Object.entries(policy.limits).flatMap(([limit, value]) =>
        value === undefined
          ? []
          : [{ limit: limit as keyof typeof policy.limits, value, by: 'none' as const }],
      ),
      filter: { told: [], silent: [] },
      naming: policy.denials === 'off' ? 'off' : 'unnamed',
      environment: inner.changed,
    },
    started() {
      // Nothing of ours goes along.
    },
    onDenial() {
      // Nobody tells.
    },
    live: () => [],
    drain() {
      // Nobody tells.
    },
    dispose() {
      rmSync(temporary, { recursive: true, force: true });
      return Promise.resolve();
    },
  };
}
