/** Sessions as people name them on a command line. */

import { machineSecret } from '@belay/client';
import type { SessionList } from '@belay/contracts/http';
import { sessionId } from '@belay/envelope';
import type { Command } from 'commander';
import type { Audited } from './auditor.js';
import type { CliConfig } from './config.js';
import { badInput, type CliError, usage } from './exit.js';
import { ServiceProblem } from './service.js';

/** How the name of a session begins that was made from the agent's own id of its run. */
const KEYED = 'hmac-sha256:';
const PREFIX = /^(?:hmac-sha256:)?([0-9a-f]{6,63})$/;
/** Digits of a keyed name that tell it from others in a list. */
const SHOWN = 12;

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

/** Of a keyed name, as much as tells it from others. */
export const shortName = (session: string): string =>
  session.startsWith(KEYED) && session.length > KEYED.length + SHOWN
    ? `${session.slice(0, KEYED.length + SHOWN)}…`
    : session;

/** The same as it can be given to a command again. */
export const spokenName = (session: string): string =>
  session.startsWith(KEYED) ? session.slice(KEYED.length, KEYED.length + SHOWN) : session;

export const noSession = (given: string): CliError =>
  badInput('not_found', `no session is named ${given}`, 'Which ones there are: belay sessions');

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
 * The whole name of a session: what was given, or the one keyed name that begins with it. Throws CliError where there is
 * none, or several.
 */
export async function wholeName({ service, path }: Audited, given: string): Promise<string> {
  const digits = PREFIX.exec(given)?.[1];
  if (digits === undefined) return given;
  if (await isSession({ service, path }, given)) return given;
  const found: string[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page: SessionList = await service.json('GET', `${path}/sessions?limit=1000${cursor}`);
    found.push(
      ...page.sessions.flatMap(({ session }) => (session.startsWith(KEYED + digits) ? session : [])),
    );
    cursor = page.next === undefined ? undefined : `&cursor=${encodeURIComponent(page.next)}`;
  }
  const [first, second] = found;
  if (first === undefined) throw noSession(given);
  if (second !== undefined)
    throw badInput('ambiguous', `${found.length} sessions begin with ${given}`, 'Give more of its digits.');
  return first;
}

/** Whether the log has said anything of it that was looked at. */
export async function isSession(
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
