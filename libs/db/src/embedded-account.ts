import { readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { EmbeddedError } from './embedded-error.js';

/** Whom PostgreSQL runs as when that is not ourselves. */
export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/**
 * PostgreSQL refuses to run as root, so root runs it as `postgres`, else `nobody`; anyone else runs it as himself
 * (undefined). A cluster that exists is run by its owner: `postgres` may have been created after it.
 */
export function chooseAccount(ownerOfCluster: number | undefined): Account | undefined {
  const uid = process.getuid?.();
  if (uid !== 0) {
    if (ownerOfCluster !== undefined && ownerOfCluster !== uid) {
      throw new EmbeddedError(
        'unreachable',
        `the database belongs to uid ${ownerOfCluster}; start as that user or as root`,
      );
    }
    return undefined;
  }
  const accounts = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .map(([name = '', , accountId, groupId]) => ({ name, uid: Number(accountId), gid: Number(groupId) }));
  const owner = accounts.find((account) => account.uid === ownerOfCluster && account.uid !== 0);
  const account =
    owner ??
    accounts.find(({ name }) => name === 'postgres') ??
    accounts.find(({ name }) => name === 'nobody');
  if (!account) {
    throw new EmbeddedError(
      'unsupported',
      'PostgreSQL does not run as root, and there is no user postgres or nobody to run it as',
    );
  }
  return account;
}

/** Throws when `account` can't traverse to `dir`, naming the directory that is in the way. */
export function assertReachable(dir: string, account: Account): void {
  for (let path = resolve(dir); ; path = dirname(path)) {
    const { mode, uid, gid } = statSync(path);
    const bit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
    if (!(mode & bit)) {
      throw new EmbeddedError(
        'unreachable',
        `PostgreSQL runs as user ${account.name}, which can't enter ${path} (mode 0${(mode & 0o7777).toString(8)}). ` +
          'Choose a data directory elsewhere, let others enter that one, or set DATABASE_URL.',
      );
    }
    if (path === dirname(path)) return;
  }
}
