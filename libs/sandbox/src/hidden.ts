/** What is hidden from every command: secrets of the people who have an account here, and of the machine. */

import { lstatSync, readdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';

/** In a home: what lets somebody act as its owner elsewhere. */
const IN_HOME = [
  '.ssh',
  '.gnupg',
  '.aws',
  '.azure',
  '.kube',
  '.docker/config.json',
  '.config/gcloud',
  '.config/gh',
  '.config/hub',
  '.config/op',
  '.config/doctl',
  '.config/git/credentials',
  '.config/containers/auth.json',
  '.config/rclone',
  '.git-credentials',
  '.netrc',
  '.npmrc',
  '.yarnrc.yml',
  '.pypirc',
  '.pgpass',
  '.my.cnf',
  '.vault-token',
  '.terraform.d',
  '.terraformrc',
  '.cargo/credentials',
  '.cargo/credentials.toml',
  '.gem/credentials',
  '.m2/settings.xml',
  '.gradle/gradle.properties',
  '.password-store',
  '.local/share/keyrings',
  '.oci',
  '.boto',
  '.s3cfg',
  '.claude/.credentials.json',
  '.codex/auth.json',
  '.gemini/oauth_creds.json',
  '.mozilla',
  '.config/google-chrome',
  '.config/chromium',
  '.config/BraveSoftware',
];

const OF_MACHINE = [
  '/etc/shadow',
  '/etc/shadow-',
  '/etc/gshadow',
  '/etc/gshadow-',
  '/etc/sudoers',
  '/etc/sudoers.d',
  '/etc/krb5.keytab',
  '/etc/kubernetes',
  '/etc/rancher',
  '/etc/wireguard',
  '/etc/ssl/private',
  '/etc/NetworkManager/system-connections',
];

/** A path that is there, and what it is. */
export interface Seen {
  readonly path: string;
  readonly folder: boolean;
}

/**
 * What is to be hidden and exists, by its real path, without what `show` takes out. What can't be looked at by us can't
 * be looked at by what we start either, and is left out.
 */
export function hiddenPaths(
  home: string | undefined,
  root: boolean,
  hide: readonly string[],
  show: readonly string[],
): Seen[] {
  const homes = new Set(home === undefined ? [] : [home]);
  if (root) {
    homes.add('/root');
    for (const name of entriesOf('/home')) homes.add(join('/home', name));
  }
  const hostKeys = entriesOf('/etc/ssh').filter((name) => /^ssh_host_.*_key$/.test(name));
  const always = [
    ...[...homes].flatMap((folder) => IN_HOME.map((name) => join(folder, name))),
    ...OF_MACHINE,
    ...hostKeys.map((name) => join('/etc/ssh', name)),
  ].filter((path) => !show.includes(path));
  const found = new Map<string, Seen>();
  for (const path of [...always, ...hide]) {
    const seen = look(path);
    if (seen !== undefined) found.set(seen.path, seen);
  }
  return [...found.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** What is at a path, links followed; undefined where there is nothing, or nothing that we may see. */
export function look(path: string): Seen | undefined {
  try {
    const real = realpathSync(path);
    return { path: real, folder: lstatSync(real).isDirectory() };
  } catch {
    return undefined;
  }
}

/** Names in a folder; none where it can't be read. */
export function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Whether `path` is `folder` or in it. Both absolute and normal. */
export function within(path: string, folder: string): boolean {
  return path === folder || folder === '/' || (path.startsWith(folder) && path[folder.length] === '/');
}
