/**
 * Whether what a trace was recorded with is still what is here: the program, its script and package, and the
 * environment. Where it is not, a difference between recording and replay proves nothing.
 */

import { delimiter } from 'node:path';
import type { Command } from '@belay/trace';
import { environmentDigest } from './environment.js';
import { type Provenance, statKey } from './provenance.js';

type Environment = Readonly<Record<string, string | undefined>>;

/** What differs; each a line for a person. */
export interface WorldDifferences {
  readonly server: readonly string[];
  readonly environment: readonly string[];
  /** What was run is not known well enough to say. */
  readonly unknown: readonly string[];
}

/**
 * Says where and by whom a program was started, not what it will do: another terminal, another login, another client
 * in front of it. Everything else counts.
 */
const ELSEWHERE =
  /^(?:PWD|OLDPWD|SHLVL|_|TERM|TERM_.*|COLORTERM|COLUMNS|LINES|WINDOWID|DISPLAY|WAYLAND_DISPLAY|DBUS_.*|XDG_(?:SESSION|VTNR|SEAT|RUNTIME|CURRENT)_?.*|SSH_.*|TMUX.*|STY|GPG_.*|INVOCATION_ID|JOURNAL_STREAM|MAIL|LS_COLORS|LESS.*|PS\d|PROMPT.*|HIST.*|EDITOR|VISUAL|PAGER|INIT_CWD|npm_.*|NODE|COLOR|VSCODE_.*|CLAUDE.*|CURSOR_.*|MCP_.*|BELAY_.*)$/;

/** Says how programs are found and how they speak, and holds no secret. */
const PLAIN = /^(?:PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|TERM|XDG_.*_(?:HOME|DIRS))$/;

/**
 * The environment a replay gets: of the present one, what the recording had too. A trace may name any variable, and what
 * it says was run may say what is in it: one that may be a secret is given only to a trace that had this very value.
 */
export function replayEnvironment(
  recorded: Command['env'],
  present: Environment,
  secret: Buffer | undefined,
): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(present)) {
    if (value === undefined) continue;
    const digest = recorded !== undefined && Object.hasOwn(recorded, name) ? recorded[name] : undefined;
    if (name === 'PATH' && secret !== undefined && digest !== undefined) {
      env[name] = pathOf(present, secret, digest) ?? value;
      continue;
    }
    const isKnown = secret !== undefined && digest === environmentDigest(secret, name, value);
    if (isKnown || (PLAIN.test(name) && (recorded === undefined || digest !== undefined))) env[name] = value;
  }
  return env;
}

/** `now` is what the recorded command line runs at present; undefined where its program is not here any more. */
export function compareWorld(
  recorded: Command | undefined,
  now: Provenance | undefined,
  present: Environment,
  secret: Buffer | undefined,
): WorldDifferences {
  if (recorded === undefined) {
    return { server: [], environment: [], unknown: ['the trace does not say what was run'] };
  }
  const server: string[] = [];
  const unknown: string[] = [];
  if (now === undefined)
    server.push(`${recorded.started?.[0] ?? recorded.argv[0] ?? 'the program'} is not here any more`);
  else {
    for (const what of ['executable', 'script'] as const) {
      const [then, here] = [recorded[what], now[what]];
      if (then === undefined && here === undefined) continue;
      if (then?.sha256 === undefined && then?.stat !== undefined && then.stat === statKey(then.path))
        continue;
      if (then?.sha256 === undefined || here?.sha256 === undefined) {
        unknown.push(`the ${what} was not identified`);
      } else if (then.sha256 !== here.sha256) server.push(`${here.path} is not what it was`);
    }
    const [then, here] = [recorded.package, now.package];
    if (then?.name !== here?.name || then?.version !== here?.version) {
      const named = (each: typeof then): string =>
        each === undefined ? 'no package' : `${each.name}@${each.version}`;
      server.push(`${named(here)} in place of ${named(then)}`);
    }
  }
  return { server, environment: compareEnvironment(recorded.env, present, secret), unknown };
}

/** Folders that npm puts in front of PATH for what it runs. */
const OF_NPM = /(?:^|\/)node_modules\/(?:\.bin|@npmcli\/run-script\/lib\/node-gyp-bin)$/;

/** PATH as it was recorded, where this is it but for what npm has put in front. */
function pathOf(present: Environment, secret: Buffer, digest: string): string | undefined {
  const path = present['PATH'];
  if (path === undefined) return undefined;
  const folders = path.split(delimiter);
  while (
    environmentDigest(secret, 'PATH', folders.join(delimiter)) !== digest &&
    OF_NPM.test(folders[0] ?? '')
  ) {
    folders.shift();
  }
  return folders.join(delimiter);
}

function compareEnvironment(
  recorded: Command['env'],
  present: Environment,
  secret: Buffer | undefined,
): readonly string[] {
  if (recorded === undefined) return ['the environment was not recorded'];
  if (secret === undefined) return ['recorded under the secret of another machine'];
  const differences: string[] = [];
  for (const [name, digest] of Object.entries(recorded)) {
    if (ELSEWHERE.test(name)) continue;
    const value = name === 'PATH' ? pathOf(present, secret, digest) : present[name];
    if (value === undefined) differences.push(`${name} is not set`);
    else if (environmentDigest(secret, name, value) !== digest) differences.push(`${name} has another value`);
  }
  return differences;
}
