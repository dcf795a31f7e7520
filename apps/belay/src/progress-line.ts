/** How far long work is, on one line of a terminal's standard error that is gone when the work is done. */

import { isatty } from 'node:tty';

/** Milliseconds between two paintings. */
const PAUSE = 100;
const BAR = 24;

export interface ProgressLine {
  /** `total`: what `done` counts up to, where that is known. */
  at(what: string, done: number, total: number | undefined, unit: (n: number) => string): void;
  /** Wipes the line. */
  end(): void;
}

/** Says nothing where nobody looks. */
export function progressLine(): ProgressLine {
  if (!isatty(2)) return { at: () => undefined, end: () => undefined };
  let painted = 0;
  return {
    at(what, done, total, unit) {
      const now = Date.now();
      if (now - painted < PAUSE) return;
      painted = now;
      const known = total !== undefined && total > 0;
      const full = known ? Math.min(BAR, Math.floor((done / total) * BAR)) : 0;
      const bar = known ? `${'█'.repeat(full)}${'░'.repeat(BAR - full)} ` : '';
      const count = known ? `${unit(done)} of ${unit(total)}` : done > 0 ? unit(done) : '';
      process.stderr.write(`\r\u001b[2K${what.padEnd(20)} ${bar}${count}`);
    },
    end() {
      if (painted > 0) process.stderr.write('\r\u001b[2K');
      painted = 0;
    },
  };
}
