/**
 * What was claimed, held against an executed check. Whoever writes the check (a person's script, a program of the
 * operator's choice) is not believed: its check runs in a boundary on the last state, and what it comes to can only lower.
 */

import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Change, Contents, runContained, Workspace } from '@belay/replay';
import type { Store } from '@belay/snapshot';
import { readTrace, recordData } from '@belay/trace';
import type { Judgement } from '@belay/verdict';
import { scratchFolder } from './scratch-folder.js';

export interface Claim {
  /** Milliseconds since 1970. */
  readonly time: number;
  readonly text: string;
}

/** Claims of a session: of its trace, and of the traces beside it whose session it is, such as those of hooks. */
export async function claimsOf(trace: string, session: string): Promise<readonly Claim[]> {
  const claims: Claim[] = [];
  const folder = dirname(trace);
  const beside = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.jsonl'))
    .map(({ name }) => join(folder, name));
  for (const path of new Set([trace, ...beside])) {
    for await (const line of readTrace(path)) {
      if (!('record' in line)) continue;
      const { record } = line;
      if (record.type === 'open' && record.session !== session && path !== trace) break;
      const text = record.type === 'claim' ? recordData(record)?.toString('utf8') : undefined;
      if (text !== undefined) claims.push({ time: Date.parse(record.time), text });
    }
  }
  return claims.sort((a, b) => a.time - b.time);
}

export interface CheckOptions {
  /** Program and arguments; it is given the claim as JSON and prints an executable check. */
  readonly checker: readonly [string, ...string[]];
  readonly store: Store;
  /** The last state of the session. */
  readonly state: string;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly hide: readonly string[];
  /** Milliseconds: for the checker, and for its check. */
  readonly patience: number;
}

/** A check is not a program of any size. Bytes. */
const MAX_CHECK = 1024 * 1024;
/** Where the check is inside. */
const INSIDE = '/tmp/belay-check';

const judgement = (rest: Pick<Judgement, 'status' | 'cause' | 'message'>): Judgement => ({
  axis: 'A3',
  kind: 'claim',
  ...rest,
});

/** What is said of the last claim where nobody can check it. */
export const unchecked = (claim: Claim): Judgement =>
  judgement({ status: 'NOT_COVERED', message: `no checker was asked about ${quote(claim.text)}` });

/** Exit code 0 of the check: it found what was claimed; 1: it found that it is not so; any other: it can't say. */
export async function checkClaim(
  claim: Claim,
  changes: readonly Change[],
  options: CheckOptions,
): Promise<Judgement> {
  const { checker, store, state, cwd, env, hide, patience } = options;
  const told = {
    claim: claim.text,
    workspace: cwd,
    changes: changes.map(({ path, what }) => ({ path, what })),
  };
  const check = await written(checker, env, JSON.stringify(told), patience);
  if (check === undefined) {
    const message = `the checker wrote no check of ${quote(claim.text)}`;
    return judgement({ status: 'WARN', cause: 'CLAIM_UNSUPPORTED', message });
  }
  const folder = scratchFolder();
  const workspace = new Workspace(store, join(folder, 'workspace'), new Contents(store), () => []);
  try {
    await workspace.open(state);
    const place = join(folder, 'check');
    mkdirSync(place);
    writeFileSync(join(place, 'check'), check, { mode: 0o755 });
    const binds = workspace.roots.map(({ from, at }) => ({ from: at.toString(), to: from.toString() }));
    const { exit, words } = await runContained(
      {
        command: { argv: [`${INSIDE}/check`], cwd, env },
        binds: [...binds, { from: place, to: INSIDE }],
        profile: 'default',
        hide,
        loopback: true,
      },
      patience,
    );
    const said = words.trim() === '' ? '' : `: ${quote(words.trim())}`;
    if (exit === 0) {
      const message = `an executed check supports ${quote(claim.text)}`;
      return judgement({ status: 'NOT_COVERED', message });
    }
    if (exit === 1) {
      const message = `an executed check refutes ${quote(claim.text)}${said}`;
      return judgement({ status: 'FAIL', cause: 'CLAIM_REFUTED', message });
    }
    // 128 and more: a shell, or the boundary, says that a signal ended it.
    if (exit === undefined || exit >= 128) {
      const message = `the check of ${quote(claim.text)} came to no end`;
      return judgement({ status: 'UNVERIFIED', cause: 'CLAIM_UNDECIDED', message });
    }
    const message = `an executed check does not support ${quote(claim.text)} (exit ${exit})${said}`;
    return judgement({ status: 'WARN', cause: 'CLAIM_UNSUPPORTED', message });
  } finally {
    workspace.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

const quote = (text: string): string => JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);

/** What the checker printed; undefined where it failed, took too long or wrote too much. */
function written(
  [program, ...args]: readonly [string, ...string[]],
  env: Readonly<Record<string, string>>,
  told: string,
  patience: number,
): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const child = spawn(program, args, {
      env: { ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
      timeout: patience,
      killSignal: 'SIGKILL',
    });
    const parts: Buffer[] = [];
    let size = 0;
    child.stdin.on('error', () => undefined);
    child.stdin.end(told);
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_CHECK) child.kill('SIGKILL');
      else parts.push(chunk);
    });
    child.once('error', () => resolve(undefined));
    child.once('close', (code) =>
      resolve(code === 0 && size > 0 && size <= MAX_CHECK ? Buffer.concat(parts) : undefined),
    );
  });
}
