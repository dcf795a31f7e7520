/** What a sink may say and keep: from options, the environment and `settings.json`, in this order. */

import { readFileSync } from 'node:fs';
import {
  isFilterRule,
  type LineFilter,
  SHARED_TIMES,
  SPOOL_LIMITS,
  type SpoolLimits,
} from '@belay/client/sink';
import type { CliConfig } from './config.js';

/** `minimal`: commitments and the closed attributes. `strict`: names of tools, servers and agents are keyed or left out too. */
export const PRIVACY = ['minimal', 'strict'] as const;
export type Privacy = (typeof PRIVACY)[number];

export interface Settings {
  readonly privacy: Privacy;
  /** Milliseconds. */
  readonly heartbeat: number;
  readonly limits: SpoolLimits;
  /** Lines that are not sent: their numbers are, in a `gap` line. */
  readonly filter: LineFilter;
  /** What could not be read, a line each. The stricter reading of it is in force. */
  readonly problems: readonly string[];
}

/** Seconds between two heartbeats, bytes, days: what is taken for a setting, and what is not. */
const LIMITS = {
  heartbeat: { least: 1, most: 86_400 },
  spoolBytes: { least: 4_096, most: Number.MAX_SAFE_INTEGER },
  spoolDays: { least: 0.001, most: 3_650 },
} as const;

/** Never throws: a sink runs with defaults rather than not at all, but never with less privacy than was meant. */
export function readSettings(config: CliConfig, flag?: Privacy): Settings {
  const problems: string[] = [];
  const file = readFile(config.settings, problems);
  const privacyOf = (): Privacy => {
    const said = flag ?? config.privacy ?? file['privacy'];
    if (said === undefined) return problems.length > 0 ? 'strict' : 'minimal';
    if (said === 'minimal' || said === 'strict') return said;
    problems.push('the privacy policy is `minimal` or `strict`: what is set is neither, strict is in force');
    return 'strict';
  };
  const number = (name: keyof typeof LIMITS, usual: number): number => {
    const said = config[name] ?? file[name];
    if (said === undefined) return usual;
    const value = Number(said);
    const { least, most } = LIMITS[name];
    if (value >= least && value <= most) return value;
    problems.push(`${name} is a number from ${least} to ${most}: ${usual} is in force`);
    return usual;
  };
  const filterOf = (): LineFilter => {
    const said = config.filter?.split(',') ?? file['filter'] ?? [];
    const rules = Array.isArray(said) ? said.map((rule) => String(rule).trim()) : [''];
    return rules.filter((rule) => {
      const known = isFilterRule(rule);
      if (!known && rule !== '')
        problems.push(`filter: ${JSON.stringify(rule)} is no kind of line that may be left out`);
      return known;
    });
  };
  return {
    privacy: privacyOf(),
    heartbeat: number('heartbeat', SHARED_TIMES.heartbeat / 1_000) * 1_000,
    limits: {
      bytes: number('spoolBytes', SPOOL_LIMITS.bytes),
      age: number('spoolDays', SPOOL_LIMITS.age / 86_400_000) * 86_400_000,
    },
    filter: filterOf(),
    problems,
  };
}

function readFile(path: string, problems: string[]): Readonly<Record<string, unknown>> {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') problems.push(`${path} can't be read`);
    return {};
  }
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>;
  } catch {
    // Told below.
  }
  problems.push(`${path} is not one JSON object`);
  return {};
}
