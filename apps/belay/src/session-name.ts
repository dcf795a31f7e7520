/** Sessions as people name them on a command line. */

import { machineSecret } from '@belay/client';
import type { SessionList } from '@belay/contracts/http';
import { sessionId } from '@belay/envelope';
import type { Command } from 'commander';
import type { Audited } from './auditor.js';
import type { CliConfig } from './config.js';
import { badInput, type CliError, usage } from './exit.js';
import { printable } from './output.js';
import { ServiceProblem } from './service.js';

/** How the name of a session begins that was made from the agent's own id of its run. */
const KEYED = 'hmac-sha256:';
const PREFIX = /^(?:hmac-sha256:)?([0-9a-f]{6,63})$/;
/** A name that a sink made for itself (a ULID), and the beginning of one. Names that people choose have to be given whole:
 * `run-1` is not short for `run-10`, least of all while the first line of `run-1` is on its way. */
const MADE = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;
const MADE_PREFIX = /^[0-7][0-9A-HJKMNP-TV-Z]{5,24}$/;
/** Sessions that are told to somebody who named none. */
const MOST_NEAR = 5;
/** Characters at the beginning that two names have to share to be near. */
const NEAR = 4;
/** Digits of a keyed name that tell it from others in a list. */
const SHOWN = 12;
/** Characters of a made one: its time, in milliseconds, and some of what is random. */
const MADE_SHOWN = 14;

export interface SessionChoice {
  /** The agent's own id of its run, as in `BELAY_SESSION`. */
  readonly run?: string;
  readonly state?: string;
}

export const sessionChoice = (command: Command): Command =>
  command
    .option(
      '--run <id>',
      "in place of a session: the agent's own id of its run on this machine (BELAY_SESSION)",
    )
    .option('--state <dir>', 'with --run: state directory (BELAY_STATE)');

/** As much of a name that nobody chose as tells it from others, in the form that commands take. */
export const spokenName = (session: string): string =>
  session.startsWith(KEYED)
    ? session.slice(KEYED.length, KEYED.length + SHOWN)
    : MADE.test(session)
      ? session.slice(0, MADE_SHOWN)
      : session;

/** The same where it is only shown: that it is cut is seen. */
export const shortName = (session: string): string => {
  const spoken = spokenName(session);
  return session.endsWith(spoken) ? spoken : `${spoken}…`;
};

/** No session has the name; `near` are those that may have been meant. */
export const noSession = (given: string, near: readonly string[]): CliError =>
  badInput(
    'not_found',
    `no session is named ${printable(given)}`,
    near.length === 0
      ? `Which ones there are: belay sessions. If it is an id of the agent's (BELAY_SESSION): --run ${printable(given)}`
      : `Near it: ${near.map((name) => printable(spokenName(name))).join(', ')}. All: belay sessions`,
  );

/** What a person gave as the name of a session: that, or the one of a run of this machine. */
export function givenSession(
  given: string | undefined,
  { run, state }: SessionChoice,
  config: CliConfig,
): string | undefined {
  if (given !== undefined && run !== undefined) throw usage('a session or --run, not both');
  return run === undefined ? given : sessionId(machineSecret(state ?? config.state), run);
}

/**
 * The whole name of a session: what was given, or the one name that begins with it and that nobody chose. Where there is
 * none, what was given: its first line may be on its way. Throws CliError where there are several.
 */
export async function wholeName(audited: Audited, given: string): Promise<string> {
  const digits = PREFIX.exec(given)?.[1];
  if (digits === undefined && !MADE_PREFIX.test(given)) return given;
  if (await isSession(audited, given)) return given;
  const found = (await namesOf(audited)).filter(
    (name) =>
      (digits !== undefined && name.startsWith(KEYED + digits)) ||
      (MADE.test(name) && name.startsWith(given)),
  );
  if (found.length > 1)
    throw badInput(
      'ambiguous',
      `${found.length} sessions begin with ${given}`,
      `Give more of it: ${found.slice(0, MOST_NEAR).map(shortName).join(', ')}`,
    );
  return found[0] ?? given;
}

/** The whole name of a session that the log knows. Throws CliError for any other, with those that are near. */
export async function knownName(audited: Audited, given: string): Promise<string> {
  const name = await wholeName(audited, given);
  if (!(await isSession(audited, name))) throw noSession(given, await nearNames(audited, given));
  return name;
}

/** Sessions whose names have much in common with one that nobody has, the likeliest first. */
export async function nearNames(audited: Audited, given: string): Promise<string[]> {
  const wanted = given.toLowerCase();
  const shared = (name: string): number => {
    const bare = (name.startsWith(KEYED) ? name.slice(KEYED.length) : name).toLowerCase();
    if (bare.includes(wanted) || wanted.includes(bare)) return Infinity;
    let same = 0;
    while (same < wanted.length && wanted[same] === bare[same]) same += 1;
    return same;
  };
  return (await namesOf(audited))
    .map((name) => ({ name, same: shared(name) }))
    .filter(({ same }) => same >= NEAR)
    .sort((a, b) => (a.same === b.same ? 0 : b.same - a.same))
    .slice(0, MOST_NEAR)
    .map(({ name }) => name);
}

async function namesOf({ service, path }: Audited): Promise<string[]> {
  const names: string[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page: SessionList = await service.json('GET', `${path}/sessions?limit=1000${cursor}`);
    names.push(...page.sessions.map(({ session }) => session));
    cursor = page.next === undefined ? undefined : `&cursor=${encodeURIComponent(page.next)}`;
  }
  return names;
}

/** Whether the log has said anything of it that was looked at. */
async function isSession(
  { service, path }: Pick<Audited, 'service' | 'path'>,
  session: string,
): Promise<boolean> {
  try {
    await service.json('GET', `${path}/sessions/${encodeURIComponent(session)}`);
    return true;
  } catch (error) {
    if (!(error instanceof ServiceProblem) || error.code !== 'not_found') throw error;
    return false;
  }
}
