/** What long work has come to, on one line of a terminal's standard error that is gone when the work is done. */

import { basename } from 'node:path';
import { isatty } from 'node:tty';
import { printable } from './output.js';
import { counted } from './report-text.js';
import { fitted } from './text-width.js';

/** Milliseconds between two paintings. */
const PAUSE = 100;
const WIDTH = 78;

export interface Progress {
  /** Of the trace at this place of the list: calls that were played, and all there are. */
  at(trace: number, done: number, total: number): void;
  finished(): void;
  /** Wipes the line. */
  end(): void;
}

/** Says nothing where nobody looks. */
export function progress(traces: readonly string[]): Progress {
  if (!isatty(2)) return { at: () => undefined, finished: () => undefined, end: () => undefined };
  let painted = 0;
  let done = 0;
  const paint = (text: string): void => {
    painted = Date.now();
    process.stderr.write(`\r\u001b[2K${fitted(text, WIDTH)}`);
  };
  return {
    at(trace, call, total) {
      if (Date.now() - painted < PAUSE) return;
      const of = traces.length === 1 ? '' : `${done} of ${counted(traces.length, 'trace')} done; `;
      paint(`${of}call ${call} of ${total} of ${printable(basename(traces[trace] ?? ''))}`);
    },
    finished() {
      done++;
    },
    end() {
      if (painted > 0) process.stderr.write('\r\u001b[2K');
    },
  };
}
