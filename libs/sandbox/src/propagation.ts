/**
 * Mounts that are made on this machine while a command runs. Where the machine's mounts are shared, as systemd makes
 * them, each new one appears in every mount name space below, and appears as it was made: writable. bubblewrap leaves it
 * at that, so what it sees has to be private before it looks.
 */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Whether anything mounted from now on would be seen by a name space made now. True where that can't be read. */
export function mountsPropagate(mountinfo = readMounts()): boolean {
  return mountinfo === undefined || /^[^\n]*? (?:shared|master):\d+[^\n]*? - /m.test(mountinfo);
}

function readMounts(): string | undefined {
  try {
    return readFileSync('/proc/self/mountinfo', 'utf8');
  } catch {
    return undefined;
  }
}

/** Whether unshare(1) can be used so, by its arguments: asked once. */
const works = new Map<string, boolean>();

/**
 * What to put before bubblewrap's own command line, so that no later mount reaches it: nothing where none would;
 * undefined where it can't be done. `root`: without a name space of users, which bubblewrap does not make then either.
 */
export function withoutLaterMounts(
  unshare: string | undefined,
  root: boolean,
): readonly string[] | undefined {
  if (!mountsPropagate()) return [];
  if (unshare === undefined) return undefined;
  const words = [
    unshare,
    // An identity map: who is who stays as it is, and bubblewrap makes its own inside.
    ...(root ? [] : ['--user', '--map-current-user']),
    '--mount',
    '--propagation',
    'private',
    '--',
  ];
  const key = words.join(' ');
  if (!works.has(key)) {
    const { status } = spawnSync(unshare, [...words.slice(1), 'true'], { stdio: 'ignore' });
    works.set(key, status === 0);
  }
  return works.get(key) === true ? words : undefined;
}
