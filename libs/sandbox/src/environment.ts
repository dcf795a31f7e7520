/** The environment of a command inside a boundary: passed whole, but for places that are not there any more. */

import { within } from './hidden.js';

export interface InnerEnvironment {
  readonly env: Readonly<Record<string, string>>;
  /** Names whose value is another than outside. */
  readonly changed: readonly string[];
}

/** Where package managers write to, in the command's own memory: a shared cache that can be written is nobody's. */
const CACHES: Readonly<Record<string, string>> = {
  npm_config_cache: '/tmp/.cache-npm',
  PIP_CACHE_DIR: '/tmp/.cache-pip',
  UV_CACHE_DIR: '/tmp/.cache-uv',
  GOCACHE: '/tmp/.cache-go',
};

/** `writable`: folders that are written inside as outside; what points there is left as it is. */
export function innerEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  writable: readonly string[],
): InnerEnvironment {
  const inner: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) if (value !== undefined) inner[name] = value;
  const mine = (value: string | undefined): boolean =>
    value !== undefined && writable.some((folder) => within(value, folder));
  for (const name of ['TMPDIR', 'TMP', 'TEMP']) {
    if (inner[name] !== undefined && !mine(inner[name])) inner[name] = '/tmp';
  }
  for (const [name, place] of Object.entries(CACHES)) if (!mine(inner[name])) inner[name] = place;
  // npm asks the registry for what it has when nobody tells it that it has it, and then waits for an answer.
  inner['npm_config_prefer_offline'] ??= 'true';
  inner['npm_config_update_notifier'] ??= 'false';
  // Installed modules can't be written; without this, each import would be tried to be cached beside them.
  inner['PYTHONDONTWRITEBYTECODE'] ??= '1';
  const changed = Object.keys(inner).filter((name) => inner[name] !== env[name]);
  return { env: inner, changed: changed.sort() };
}

/** What loaders and tools obey before anything is confined: a name like this may not reach a program outside. */
const LOADED =
  /^LD_|^GCONV_PATH$|^GLIBC_TUNABLES$|^MALLOC_|^LOCPATH$|^NLSPATH$|^STRACE_|^BASH_|^ENV$|^NODE_(?:OPTIONS|PATH|V8_COVERAGE|COMPILE_CACHE|REDIRECT_WARNINGS|DEBUG|ICU_DATA)|^OPENSSL_/;

/** Splits an environment into what the programs that make the boundary may see, and what only the command is given. */
export function splitEnvironment(env: Readonly<Record<string, string>>): {
  readonly outer: Readonly<Record<string, string>>;
  readonly inner: readonly (readonly [name: string, value: string])[];
} {
  const outer: Record<string, string> = {};
  const inner: [string, string][] = [];
  for (const [name, value] of Object.entries(env)) {
    if (LOADED.test(name)) inner.push([name, value]);
    else outer[name] = value;
  }
  return { outer, inner };
}
