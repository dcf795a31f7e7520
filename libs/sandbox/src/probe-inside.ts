/**
 * The probe itself: started inside the boundary as `node probe-inside.js PLAN`, tries one row after the other and says
 * on standard output what came of each, a line of JSON before and after. Whoever started it sees from an unfinished
 * line in which row it ended.
 */

import { readlinkSync, writeSync } from 'node:fs';
import { AbsentError, Inside, type Outcome } from './probe-attempt.js';
import { ESCAPE_ATTEMPTS } from './probe-escape.js';
import { LIFE_ATTEMPTS } from './probe-life.js';
import { rowOf } from './probe-rows.js';
import type { Answer, ProbeLine, ProbePlan } from './probe-plan.js';

function attemptOf(row: string): (inside: Inside) => Outcome | Promise<Outcome> {
  const kind = row.slice(0, row.indexOf('-'));
  const id = row.slice(kind.length + 1);
  const table: Readonly<Record<string, (inside: Inside) => Outcome | Promise<Outcome>>> =
    kind === 'escape' ? ESCAPE_ATTEMPTS : LIFE_ATTEMPTS;
  return table[id] ?? (() => Promise.reject(new AbsentError('no such row')));
}

async function attempt(plan: ProbePlan, row: string): Promise<Answer> {
  const known = rowOf(row);
  if (plan.control && known?.kind === 'escape' && known.uncontrolled !== undefined)
    return { row, absent: known.uncontrolled };
  try {
    const outcome = await attemptOf(row)(new Inside(plan, row, contained));
    return typeof outcome === 'string' ? { row, did: outcome } : { row, ...outcome };
  } catch (error) {
    if (error instanceof AbsentError) return { row, absent: error.message };
    const { code, syscall, message } = error as NodeJS.ErrnoException;
    return { row, refused: code === undefined || code === 'WRONG' ? message : code, syscall: syscall ?? '' };
  } finally {
    process.chdir(plan.workspace);
  }
}

function say(what: { readonly begin: string } | Answer): void {
  const line: ProbeLine = { ...what, at: performance.timeOrigin + performance.now() };
  writeSync(1, `${JSON.stringify(line)}\n`);
}

const plan = JSON.parse(process.argv[2] ?? '') as ProbePlan;
const contained = readlinkSync('/proc/self/ns/mnt') !== plan.mountNamespace;
for (const row of plan.rows) {
  say({ begin: row });
  say(await attempt(plan, row));
}
// What a row left open (a listener, a timer) is not waited for.
process.exit(0);
