import type { CheckResult } from '@belay/receipt';
import type { CliConfig } from './config.js';
import { columnsOf, padded, wrapped } from './text-width.js';

/** Colours for a terminal; plain text elsewhere. */
export interface Style {
  readonly bold: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly good: (text: string) => string;
  readonly bad: (text: string) => string;
  readonly warn: (text: string) => string;
  /** What is not known: neither good nor a warning. */
  readonly odd: (text: string) => string;
}

export function styleFor(config: Pick<CliConfig, 'colour'>): Style {
  const wrap = (open: number, close: number) => (text: string) =>
    config.colour ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return {
    bold: wrap(1, 22),
    dim: wrap(2, 22),
    good: wrap(32, 39),
    bad: wrap(31, 39),
    warn: wrap(33, 39),
    odd: wrap(35, 39),
  };
}

/**
 * Writes to a pipe complete only later; a process that exits meanwhile cuts them off. Everything a command prints
 * goes through here and is awaited.
 */
export function writeOut(text: string): Promise<void> {
  // The stream tells of a closed pipe twice: to the write, and as an event that ends a process with no ear for it.
  if (!process.stdout.listeners('error').includes(ignore)) process.stdout.on('error', ignore);
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => {
      // The reader of a pipe may leave early (`| head`); that is no failure of ours.
      if (error && (error as NodeJS.ErrnoException).code !== 'EPIPE') reject(error);
      else resolve();
    });
  });
}

const ignore = (): void => undefined;

/** One JSON document and a newline, or the text for a person: every command ends in this. */
export async function print(json: boolean | undefined, value: unknown, text: () => string): Promise<void> {
  await writeOut(json ? `${JSON.stringify(value, null, 2)}\n` : text());
}

/** Two columns, the first as wide as its widest cell; the second folded where a width is given. */
export function columns(rows: readonly (readonly [string, string])[], indent = '', width?: number): string {
  const first = Math.max(0, ...rows.map(([left]) => columnsOf(left)));
  const room = width === undefined ? Infinity : width - indent.length - first - 2;
  return rows
    .map(([left, right]) => {
      const lines = columnsOf(right) <= room ? [right] : wrapped(right, room, '').trimEnd().split('\n');
      return lines
        .map((line, at) => `${indent}${padded(at === 0 ? left : '', first)}  ${line}`.trimEnd() + '\n')
        .join('');
    })
    .join('');
}

/** One line per check: what it came to, its name, what was found. */
export function checkTable(checks: readonly CheckResult[], style: Style): string {
  const mark = {
    ok: style.good('ok       '),
    failed: style.bad('FAILED   '),
    undecided: style.warn('undecided'),
  };
  return columns(
    checks.map(({ name, status, detail }) => [`${mark[status]}  ${name}`, printable(detail)]),
    '  ',
  );
}

/**
 * Foreign text on its way to a terminal: control characters and bidirectional overrides are shown as escapes, so
 * that an entry can't move the cursor, rewrite a verdict above it, or reorder what stands beside it.
 */
export function printable(text: string): string {
  return text.replace(
    // oxlint-disable-next-line eslint/no-control-regex -- these are what is looked for
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
