/**
 * Holds a call until the log has acknowledged the state before it: then nobody, the recorder neither, can fit that state
 * to what the call came to. What it costs is bounded, and a collector that is away costs it once.
 */

import type { ForwardEvent } from '@belay/client';
import type { Unattested } from './turn-gate.js';

/** Milliseconds that a call is held where nothing else is said. */
export const ATTEST_FIRST = 2_000;

export interface AttestFirstParts {
  /** How long a call may be held, milliseconds. */
  readonly limit: number;
  /** Whether the line that was made last is in the spool. */
  readonly spooled: () => boolean;
  /** Whether nothing is sent any more. */
  readonly stopped: () => boolean;
  /** Has what is in the spool sent at once. */
  readonly urge: () => void;
  /** Told once: from here on calls go without, until the log answers in time again. */
  readonly onAway: () => void;
}

/** What became of calls that were to wait: how many did, and how many went without, by why. */
export interface AttestedCalls {
  readonly waited: number;
  readonly without: ReadonlyMap<Unattested, number>;
}

interface Wait {
  readonly seq: number;
  readonly end: (odd: Unattested | undefined) => void;
}

export class AttestFirst {
  readonly #parts: AttestFirstParts;
  readonly #waits = new Set<Wait>();
  /** Lines up to this number are acknowledged, or refused. */
  #settled = 0;
  /** A call's time was up, and no request has been answered within that time since. */
  #away = false;
  #told = false;
  #waited = 0;
  readonly #without = new Map<Unattested, number>();

  constructor(parts: AttestFirstParts) {
    this.#parts = parts;
  }

  get calls(): AttestedCalls {
    return { waited: this.#waited, without: this.#without };
  }

  count(calls: number, odd: Unattested | undefined): void {
    if (odd === undefined) this.#waited += calls;
    else this.#without.set(odd, (this.#without.get(odd) ?? 0) + calls);
  }

  /**
   * Resolves when the line of this number is acknowledged, or with why its call is to go without. It has to be the line
   * that was made last.
   */
  async acknowledged(seq: number | undefined): Promise<Unattested | undefined> {
    const { limit, spooled, stopped, urge, onAway } = this.#parts;
    if (seq === undefined || !spooled()) return 'ATTEST_NOT_SENT';
    if (stopped()) return 'ATTEST_STOPPED';
    if (seq <= this.#settled) return undefined;
    urge();
    if (this.#away) return 'ATTEST_AWAY';
    return await new Promise((resolve) => {
      const wait: Wait = {
        seq,
        end: (odd) => {
          clearTimeout(timer);
          this.#waits.delete(wait);
          resolve(odd);
        },
      };
      const timer = setTimeout(() => {
        this.#away = true;
        wait.end('ATTEST_TIME_UP');
        if (!this.#told) onAway();
        this.#told = true;
      }, limit);
      this.#waits.add(wait);
    });
  }

  /** What became of lines; `own`: of those that are waited for here. */
  observe(event: ForwardEvent, own: boolean): void {
    if (event.type === 'stopped') this.#endAll(() => 'ATTEST_STOPPED');
    if (event.type === 'settled' && event.ms <= this.#parts.limit) this.#away = false;
    if (!own) return;
    // Told before the batch that it was in is settled.
    if (event.type === 'refused') this.#endAll(({ seq }) => (seq === event.seq ? 'ATTEST_REFUSED' : 'waits'));
    if (event.type === 'settled') {
      const [, last] = event.seqs;
      this.#settled = Math.max(this.#settled, last);
      this.#endAll(({ seq }) => (seq <= last ? undefined : 'waits'));
    }
  }

  #endAll(why: (wait: Wait) => Unattested | undefined | 'waits'): void {
    for (const wait of this.#waits) {
      const odd = why(wait);
      if (odd !== 'waits') wait.end(odd);
    }
  }
}
