/** `belay replay`: which calls of a trace can be run again, and why the others can't. Nothing is judged. */

import { basename } from 'node:path';
import type { Cause } from '@belay/verdict';
import { type Command, InvalidArgumentError } from 'commander';
import { readConfig } from './config.js';
import { print, printable, type Style, styleFor } from './output.js';
import { counted, integrityText, sentence, span } from './report-text.js';
import { fitted, padded } from './text-width.js';
import type { TurnPart, Verification } from './verification.js';
import { playingOptions, verifyAll, type VerifyOptions } from './verify.js';

/** Causes that are why a call was not run again, or without its answer. */
const NOT_RUN: ReadonlySet<Cause> = new Set<Cause>([
  'CANCELLED',
  'NO_ANSWER',
  'OVERSIZE',
  'REPLAY_TIMEOUT',
  'REPLAY_DIED',
  'REPLAY_FLOODED',
  'REPLAY_NOT_STARTED',
  'GROUP_TOO_LARGE',
  'REMOTE_SERVER',
  'NOT_REPLAYED',
]);
/** Causes for which it was run from another state than it was recorded in, or its change was not seen. */
const NO_STATE: ReadonlySet<Cause> = new Set<Cause>([
  'WORKSPACE_UNSET',
  'PRE_STATE_MISSING',
  'PRE_STATE_WRONG',
  'POST_STATE_MISSING',
]);

/** What `--json` prints of a trace. */
export interface Coverage {
  readonly trace: string;
  readonly session: string;
  readonly integrity: string;
  readonly replayed: number;
  readonly of: number;
  readonly turns: readonly {
    readonly turn: number;
    readonly tool?: string;
    readonly replayed: boolean;
    /** Why it was not; of one that was, why its states are not those of the record. */
    readonly why?: Cause;
    /** Why a state is missing, by the name that the record gives. */
    readonly missing?: TurnPart['missing'];
    readonly driftApplied: boolean;
    /** Milliseconds. */
    readonly ms: number;
  }[];
  readonly timing: Verification['timing'];
}

export function coverageOf(found: Verification): Coverage {
  const turns = found.parts
    .filter((part) => part.type === 'turn')
    .map(({ turn, tool, replays, verdict, missing, driftApplied, ms }) => {
      const replayed = replays > 0;
      const why = verdict.caps.find((cap) => (replayed ? NO_STATE : NOT_RUN).has(cap));
      const said = why ?? (replayed ? undefined : 'NOT_REPLAYED');
      return {
        turn,
        ...(tool === undefined ? {} : { tool }),
        replayed,
        ...(said === undefined ? {} : { why: said }),
        ...(missing === undefined ? {} : { missing }),
        driftApplied,
        ms,
      };
    });
  return {
    trace: found.trace,
    session: found.session,
    integrity: integrityText(found.integrity),
    replayed: turns.filter(({ replayed }) => replayed).length,
    of: turns.length,
    turns,
    timing: found.timing,
  };
}

const TOOL = 24;
const STATE = 'not replayed'.length;

export function showCoverage(found: Coverage, style: Style, width: number): string {
  const rows = found.turns.map(({ turn, tool = '(no name)', replayed, why, missing, driftApplied }) => {
    const reason = missing?.pre ?? missing?.post;
    const about = [
      why === undefined ? undefined : `${why}: ${sentence(why)}${reason === undefined ? '' : ` (${reason})`}`,
      driftApplied ? 'drift applied' : undefined,
    ].filter((text) => text !== undefined);
    const state = padded(replayed ? 'replayed' : 'not replayed', STATE);
    const left = `  ${String(turn).padStart(5)}  ${replayed ? state : style.odd(state)}  ${padded(fitted(printable(tool), TOOL), TOOL)}`;
    return `${`${left}  ${printable(about.join('; '))}`.trimEnd()}\n`;
  });
  const { start, restore, total } = found.timing;
  const time = `${span(total)}; starting the server ${span(start)}, first restore ${span(restore)}`;
  return [
    `${style.bold(fitted(printable(basename(found.trace)), width))}\n`,
    ...rows,
    `${found.replayed} of ${counted(found.of, 'call')} replayed, nothing judged; integrity: ${found.integrity}; ${time}\n`,
  ].join('');
}

async function runReplay(traces: readonly string[], options: VerifyOptions): Promise<void> {
  const config = readConfig();
  const plain = { ...options, replays: 1, defaultPolicy: false, claimAxis: false };
  const { found, interrupted } = await verifyAll(traces, plain, config);
  const coverages = found
    .map(coverageOf)
    .map((each) => (options.turn === undefined ? each : only(each, options.turn)));
  await print(options.json, coverages.length === 1 ? coverages[0] : coverages, () =>
    coverages.map((each) => showCoverage(each, styleFor(config), process.stdout.columns ?? 120)).join('\n'),
  );
  if (interrupted) process.exitCode = 130;
}

function only(found: Coverage, turn: number): Coverage {
  const turns = found.turns.filter((each) => each.turn === turn);
  return { ...found, turns, of: turns.length, replayed: turns.filter(({ replayed }) => replayed).length };
}

export function register(program: Command): void {
  playingOptions(program.command('replay'))
    .description('run the calls of traces again and say which could be; nothing is judged')
    .argument('<trace...>', 'traces, as `belay proxy` writes them')
    .option(
      '--turn <n>',
      'only this call, counted from 1; the ones before it are played all the same',
      turnNumber,
    )
    .option('--json', 'print it for machines')
    .action(runReplay);
}

function turnNumber(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new InvalidArgumentError('a count, from 1.');
  return Number(text);
}
