/** Options of more than one command, and the values they take. */

import { type Command, InvalidArgumentError, Option } from 'commander';
import type { CliConfig } from './config.js';
import { PRIVACY } from './settings.js';

const SINK_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

export function seconds(text: string): number {
  const value = Number(text);
  if (!/^\d+(\.\d+)?$/.test(text) || value > 3600) throw new InvalidArgumentError('seconds, 0 to 3600.');
  return value;
}

export function milliseconds(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value > 3_600_000) throw new InvalidArgumentError('milliseconds, 0 to 3600000.');
  return value;
}

/** A whole number that is not negative. */
export function whole(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new InvalidArgumentError('not a number.');
  return value;
}

/** A date or time as people write it, in the form that the API takes. */
export function moment(text: string): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime()))
    throw new InvalidArgumentError('not a time: such as 2027-01-31 or 2027-01-31T12:00:00Z.');
  return time.toISOString();
}

export function sinkName(text: string): string {
  if (!SINK_NAME.test(text)) {
    throw new InvalidArgumentError('a letter or digit, then up to 63 of A-Z a-z 0-9 . _ -');
  }
  return text;
}

export interface LoginOptions {
  readonly url?: string;
  readonly token?: string;
}

/** The options of commands that append. */
export function loginOptions(command: Command): Command {
  return command
    .option('--url <url>', 'address of the service (BELAY_URL, then the credentials file)')
    .option('--token <token>', 'the append token, or @FILE (BELAY_TOKEN, then the credentials file)');
}

/** What the options say in place of what the environment says. */
export const withLogin = (config: CliConfig, { url, token }: LoginOptions): CliConfig => ({
  ...config,
  url: url ?? config.url,
  token: token ?? config.token,
});

/** The option of commands that make envelopes. */
export const privacyOption = (): Option =>
  new Option(
    '--privacy <policy>',
    'minimal: tool names are said; strict: keyed (BELAY_PRIVACY, then settings.json, then minimal)',
  ).choices(PRIVACY);
