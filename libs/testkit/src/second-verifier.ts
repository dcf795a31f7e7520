import { spawn, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The second verifier, in Python, by its own command line. */
export const SECOND_VERIFIER = fileURLToPath(new URL('../../../infra/verifier/verify.py', import.meta.url));
const CORE = fileURLToPath(new URL('../../../test/conformance/verifier/core.py', import.meta.url));

/** Where Python is, so that it is found without a PATH too. */
export function python(): string {
  const code = 'import sys; print(sys.executable)';
  return spawnSync('python3', ['-c', code], { encoding: 'utf8' }).stdout.trim();
}

/** A log, and the sizes and times as of which something is to be said of it. */
export interface LogQuestion {
  readonly log: string;
  /** Bytes of the entries. */
  readonly entries: readonly Buffer[];
  readonly asks: readonly { readonly size: number; readonly time: string }[];
}

/** An export to be verified, and what is known beforehand. */
export interface ExportQuestion {
  readonly export: string;
  readonly key?: string | undefined;
  readonly rootPem?: string | undefined;
  readonly origin?: string | undefined;
  /** The reader's clock, milliseconds since 1970. */
  readonly now: number;
}

export interface ExportAnswer {
  readonly verdict: string;
  readonly checks: readonly (readonly [name: string, status: string, detail: string])[];
}

/**
 * What the second verifier says of logs: for each, as of each size and time asked about, JCS of `{epochs, sinks,
 * sessions}`, statements and what is derived of sessions. One process answers all.
 */
export async function askOfLogs(questions: readonly LogQuestion[]): Promise<readonly string[][]> {
  const asked = questions.map(({ log, entries, asks }) => ({
    log,
    entries: entries.map((entry) => entry.toString('base64')),
    asks,
  }));
  return (await ask(asked)) as string[][];
}

/** What it says of exports. One process answers all; it leaves most signatures to its own arithmetic, for speed. */
export async function askOfExports(questions: readonly ExportQuestion[]): Promise<readonly ExportAnswer[]> {
  return (await ask(questions)) as ExportAnswer[];
}

/** Whether it reads these bytes as entries of a log: null, or what is wrong with them. */
export async function askOfEntries(
  log: string,
  entries: readonly Buffer[],
): Promise<readonly (string | null)[]> {
  const reads = entries.map((entry) => entry.toString('base64'));
  return (await ask([{ log, reads }]))[0] as (string | null)[];
}

async function ask(questions: readonly object[]): Promise<unknown[]> {
  const child = spawn(python(), [CORE, SECOND_VERIFIER], { stdio: ['pipe', 'pipe', 'inherit'] });
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  for (const question of questions) child.stdin.write(`${JSON.stringify(question)}\n`);
  child.stdin.end();
  const code = await ended;
  if (code !== 0) throw new Error(`the second verifier ended with ${String(code)}`);
  const lines = Buffer.concat(chunks).toString().split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line) as unknown);
}
