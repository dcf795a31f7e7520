/**
 * `npx` and `uvx` name a package and leave open what will run. Where it is already on this machine, we say what it is and
 * start it ourselves; nothing is ever fetched by us, and a command that leaves it to the network stays as it is.
 */

import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

export interface Package {
  readonly name: string;
  readonly version: string;
}

/** What a package runner was asked for, and what it would have started. */
export interface Resolution {
  readonly runner: 'npx' | 'uvx';
  /** As given: name, or name and version. */
  readonly spec: string | undefined;
  /** Absent where it can't be said without asking a registry, or the runner itself. */
  readonly found?: { readonly argv: readonly [string, ...string[]]; readonly package: Package } | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Options that change nothing about what is run once it is there. */
const HARMLESS = new Set([
  '-y',
  '--yes',
  '--no',
  '--no-install',
  '-q',
  '--quiet',
  '-s',
  '--silent',
  '--offline',
  '--prefer-offline',
  '--no-progress',
]);
const EXACT = /^\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?$/;
const NPM_SPEC = /^(@[a-z0-9._~-]+\/[a-z0-9._~-]+|[a-z0-9_~-][a-z0-9._~-]*)(?:@(.+))?$/i;
const PYTHON_SPEC = /^([a-z0-9][a-z0-9._-]*)(?:(?:@|==)(.+))?$/i;

/**
 * Undefined for a command that is no package runner. Never throws, and reads only what is on this machine. `offline`: the
 * runner could ask nobody what a tag or a range stands for, so that what it has stands for it.
 */
export function resolveRunner(
  command: string,
  args: readonly string[],
  env: Environment,
  cwd: string,
  offline = false,
): Resolution | undefined {
  const name = basename(command).replace(/\.(?:cmd|exe)$/i, '');
  if (name !== 'npx' && name !== 'uvx') return undefined;
  const asked = parse(args);
  if (asked === undefined) return { runner: name, spec: undefined };
  const { spec, rest } = asked;
  try {
    const found = name === 'npx' ? findNpm(asked, env, cwd, offline) : findUv(asked, env);
    return found === undefined
      ? { runner: name, spec }
      : { runner: name, spec, found: { argv: [...found.argv, ...rest], package: found.package } };
  } catch {
    return { runner: name, spec };
  }
}

interface Asked {
  readonly spec: string;
  /** Name of the program in the package; undefined: the one that stands for the package. */
  readonly program: string | undefined;
  readonly rest: readonly string[];
}

interface Found {
  readonly argv: [string, ...string[]];
  readonly package: Package;
}

/** Undefined where an option stands that we do not know to be harmless. */
function parse(args: readonly string[]): Asked | undefined {
  let from: string | undefined;
  for (let at = 0; at < args.length; at++) {
    const word = args[at] as string;
    const [, inline] = /^--(?:package|from)=(.+)$/.exec(word) ?? [];
    if (inline !== undefined || word === '-p' || word === '--package' || word === '--from') {
      if (from !== undefined) return undefined;
      from = inline ?? args[++at];
    } else if (word === '--' || !word.startsWith('-')) {
      const [first, ...rest] = args.slice(word === '--' ? at + 1 : at);
      if (first === undefined) return undefined;
      return from === undefined
        ? { spec: first, program: undefined, rest }
        : { spec: from, program: first, rest };
    } else if (!HARMLESS.has(word)) {
      return undefined;
    }
  }
  return undefined;
}

/** As npx decides: what the project has installed, else what an earlier npx has left; a tag asks the registry. */
function findNpm(
  { spec, program }: Asked,
  env: Environment,
  cwd: string,
  offline: boolean,
): Found | undefined {
  const [, name, version] = NPM_SPEC.exec(spec) ?? [];
  const exact = version === undefined || EXACT.test(version);
  if (name === undefined || !(exact || offline)) return undefined;
  const cache = env['npm_config_cache'] ?? env['NPM_CONFIG_CACHE'] ?? join(env['HOME'] ?? '/', '.npm');
  const key = createHash('sha512').update(spec).digest('hex').slice(0, 16);
  for (const folder of [exact ? projectOf(cwd) : undefined, join(cache, '_npx', key)]) {
    if (folder === undefined) continue;
    const found = programOf(join(folder, 'node_modules', name), program);
    if (found === undefined) continue;
    if (!exact || version === undefined || found.package.version === version) return found;
  }
  return undefined;
}

/** The nearest folder that npm would take for a project. */
function projectOf(cwd: string): string | undefined {
  for (let folder = cwd; ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json')) || existsSync(join(folder, 'node_modules'))) return folder;
    if (folder === dirname(folder)) return undefined;
  }
}

function programOf(folder: string, program: string | undefined): Found | undefined {
  const read = readPackage(folder);
  if (read === undefined) return undefined;
  const { bin, name, version } = read;
  const own = name.split('/').at(-1) as string;
  const programs: Readonly<Record<string, unknown>> =
    typeof bin === 'string' ? { [own]: bin } : ((bin ?? {}) as Readonly<Record<string, unknown>>);
  const distinct = new Set(Object.values(programs));
  const file = program === undefined && distinct.size === 1 ? [...distinct][0] : programs[program ?? own];
  if (typeof file !== 'string') return undefined;
  const path = realpathSync(join(folder, file));
  const byNode = /^#!.*\bnode\b/.test(readFileSync(path, 'utf8').split('\n', 1)[0] as string);
  return { argv: byNode ? ['node', path] : [path], package: { name, version } };
}

/** What a package.json says of its package; undefined where there is none, or it names no package. */
export function readPackage(folder: string): (Package & { readonly bin?: unknown }) | undefined {
  try {
    const read = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Record<string, unknown>;
    const { name, version, bin } = read;
    return typeof name === 'string' && typeof version === 'string' ? { name, version, bin } : undefined;
  } catch {
    return undefined;
  }
}

/** Tools that `uv tool install` has put on this machine; environments that uvx made for itself have no name. */
function findUv({ spec, program }: Asked, env: Environment): Found | undefined {
  const [, name, version] = PYTHON_SPEC.exec(spec) ?? [];
  if (name === undefined || version === 'latest') return undefined;
  const data = env['XDG_DATA_HOME'] ?? join(env['HOME'] ?? '/', '.local', 'share');
  const normal = name.replace(/[-_.]+/g, '-').toLowerCase();
  const folder = join(env['UV_TOOL_DIR'] ?? join(data, 'uv', 'tools'), normal);
  const path = join(folder, 'bin', program ?? name);
  if (!existsSync(path)) return undefined;
  const info = new RegExp(`^${normal.replace(/-/g, '[-_.]')}-([^-]+)\\.dist-info$`, 'i');
  for (const python of readdirSync(join(folder, 'lib'))) {
    for (const entry of readdirSync(join(folder, 'lib', python, 'site-packages'))) {
      const [, installed] = info.exec(entry) ?? [];
      if (installed !== undefined && (version === undefined || version === installed)) {
        return { argv: [path], package: { name: normal, version: installed } };
      }
    }
  }
  return undefined;
}
