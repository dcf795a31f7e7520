/**
 * States of the workspace around calls of tools: one before the first of the calls that overlap, one after the last of
 * them is answered. Decides when a frame may go; what a frame is made of, and where it goes, is others' business.
 */

import { type Content, Correlator, type Message } from '@belay/mcp';
import type { Captured } from '@belay/snapshot';

/** What takes the states: `CaptureThread`, which works beside us and does what it is asked in order. */
export interface Capturing {
  capture(): Promise<Captured>;
  verify(): Promise<Captured>;
  close(): Promise<void>;
}

/**
 * Why there is no state, beside what a capture itself says: the frame was let go when the capture took longer than
 * `holdLimit`; its last byte had passed before it could be held; the capturer could not be opened; the end of the run
 * did not wait.
 */
export type GateCause = 'HOLD_LIMIT' | 'NOT_HELD' | 'SNAPSHOT_UNAVAILABLE' | 'TIME_UP';

/**
 * Why calls go although the log has not acknowledged the state before them: it took longer than they may be held; it
 * did so before and has not answered in time since; nothing is sent any more; the collector did not take the line; the
 * line did not get into the spool; there is no state; all but the end of the frame had gone already.
 */
export type Unattested =
  | 'ATTEST_TIME_UP'
  | 'ATTEST_AWAY'
  | 'ATTEST_STOPPED'
  | 'ATTEST_REFUSED'
  | 'ATTEST_NOT_SENT'
  | 'ATTEST_NO_STATE'
  | 'ATTEST_NOT_HELD';

/** Sends a frame on; `odd` is what goes on record with it. */
export type Go = (odd?: Unattested) => void;

/** A state, or why there is none, and where it belongs. */
export interface StateTaken {
  readonly phase: 'open' | 'pre' | 'post' | 'close';
  /** Of `pre` and `post`: counts the groups from 1. */
  readonly group: number | undefined;
  /** Of `post`: how many calls the group had. */
  readonly calls: number | undefined;
  readonly taken:
    Captured | { readonly kind: 'released'; readonly cause: GateCause; readonly detail?: string };
  /** The state before this one is known, and was another, although no call was under way in between. */
  readonly drift: boolean;
  /** The state before this one is known, so what differs from it is as `taken` says. */
  readonly known: boolean;
}

export interface TurnGateParts {
  /** Rejects where there can be no states. Asked for the state at the beginning at once. */
  readonly capturing: Promise<Capturing>;
  /** How long a frame may wait for a state, milliseconds. */
  readonly holdLimit: number;
  /** The same for the first state of the run, before which there is a thread to start and a whole folder to look at. */
  readonly firstHoldLimit?: number;
  readonly tell: (state: StateTaken) => void;
  /**
   * Asked after a state before calls was told: resolves when the log has acknowledged it, or with why they go without.
   * Absent where calls don't wait for that. Must not reject.
   */
  readonly attested?: (() => Promise<Unattested | undefined>) | undefined;
  /** How many calls went, and how, where there is an `attested`. */
  readonly went?: ((calls: number, odd: Unattested | undefined) => void) | undefined;
}

/** A client's frame that waits: the calls it makes, those it cancels, and how it goes on. */
interface Waiting {
  readonly calls: readonly number[];
  readonly ids: readonly string[];
  readonly cancelled: readonly number[];
  readonly go: Go;
  readonly passed: boolean;
}

/** Calls that overlap. `pre` and `post`: a state is being taken; `open`: calls are under way. */
interface Group {
  readonly number: number;
  phase: 'pre' | 'open' | 'post';
  waiting: Waiting[];
  readonly open: Set<number>;
  calls: number;
  /** The log has not acknowledged its state. */
  odd: Unattested | undefined;
}

/** A capture that was asked for and not told of. */
interface Job {
  readonly phase: StateTaken['phase'];
  readonly settle: (taken: StateTaken['taken']) => void;
  settled: boolean;
}

/**
 * Only a `tools/call` and the answer that ends its group ever wait, and neither longer than the limit (a call also for
 * its state to be acknowledged, as long as whoever is asked says): everything else
 * goes at once, past them. A cancellation waits with the call that it cancels. Never throws and never forgets a frame.
 */
export class TurnGate {
  readonly #parts: TurnGateParts;
  readonly #correlator = new Correlator();
  readonly #jobs: Job[] = [];
  #group: Group | undefined;
  #groups = 0;
  /** Came while the group before was being ended. */
  #next: Waiting[] = [];
  #limit: NodeJS.Timeout | undefined;
  /** Digest of the last state that was told; undefined where that was none. */
  #last: string | undefined;
  /** Ends the wait for an acknowledgement. */
  #giveUp: (() => void) | undefined;

  constructor(parts: TurnGateParts) {
    this.#parts = parts;
    this.#take('open', undefined, (taken) => this.#tell('open', taken));
  }

  /** Calls are under way, or states of theirs: what the server says has to be looked at before it goes on. */
  get active(): boolean {
    return this.#group !== undefined;
  }

  /** A client's frame. `go` sends it on, now or later; `passed`: all but its end has gone already, so that it can't wait. */
  client({ messages }: Content, go: Go, passed = false): void {
    const seen = messages.map((message) => this.#correlator.observe('c2s', message));
    const calls: number[] = [];
    const ids: string[] = [];
    const cancelled: number[] = [];
    for (const each of seen) {
      if (each.type === 'call' && each.call.method === 'tools/call') {
        calls.push(each.call.call);
        ids.push(each.call.id);
      }
      if (each.type === 'cancel' && each.call?.method === 'tools/call') cancelled.push(each.call.call);
    }
    const frame = { calls, ids, cancelled, go, passed };
    const group = this.#group;
    if (calls.length === 0) {
      const cancels = messages.map(cancelledId);
      const own = [...(group?.waiting ?? []), ...this.#next].find((waiting) =>
        waiting.ids.some((id) => cancels.includes(id)),
      );
      if (own === undefined || passed) this.#release(frame);
      else if (this.#next.includes(own)) this.#next.push(frame);
      else group?.waiting.push(frame);
    } else if (group === undefined) {
      this.#begin([frame]);
    } else if (group.phase === 'open') {
      this.#release(frame, group.odd);
    } else if (passed) {
      this.#release(frame, this.#parts.attested && 'ATTEST_NOT_HELD');
    } else if (group.phase === 'pre') {
      group.waiting.push(frame);
    } else {
      this.#next.push(frame);
    }
  }

  /** A server's frame; as `client`. */
  server({ messages }: Content, go: () => void, passed = false): void {
    const group = this.#group;
    let answered = false;
    for (const message of messages) {
      const seen = this.#correlator.observe('s2c', message);
      if (seen.type === 'answer' && group?.open.delete(seen.call.call) === true) answered = true;
    }
    if (group !== undefined && answered && group.phase === 'open' && group.open.size === 0) {
      this.#end(group, go, passed);
    } else go();
  }

  /** The server is gone. Ends what is open, looks at everything once more unless `signal` says not to wait, and closes. */
  async close(signal: AbortSignal, patience: number): Promise<void> {
    this.#giveUp?.();
    if (this.#group?.phase === 'open') this.#end(this.#group, () => undefined, false);
    await new Promise<void>((closed) => {
      const job = this.#take(
        'close',
        (capturing) => capturing.verify(),
        (taken) => {
          clearTimeout(timer);
          this.#tell('close', taken);
          closed();
        },
      );
      const giveUp = (): void => this.#settle(job, { kind: 'released', cause: 'TIME_UP' });
      const timer = setTimeout(giveUp, patience);
      if (signal.aborted) giveUp();
      else signal.addEventListener('abort', giveUp, { once: true });
    });
    clearTimeout(this.#limit);
    const closing = this.#parts.capturing.then((capturing) => capturing.close()).catch(() => undefined);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, patience);
      if (signal.aborted) resolve();
      else signal.addEventListener('abort', () => resolve(), { once: true });
    });
    await Promise.race([closing, late]);
    clearTimeout(timer);
  }

  #begin(waiting: Waiting[]): void {
    const group: Group = {
      number: ++this.#groups,
      phase: 'pre',
      waiting,
      open: new Set(),
      calls: 0,
      odd: undefined,
    };
    this.#group = group;
    const enter = (taken: StateTaken['taken']): void => {
      this.#tell('pre', taken, group);
      if (this.#parts.attested === undefined) this.#open(group, undefined);
      else if (taken.kind !== 'state') {
        const passed = taken.kind === 'released' && taken.cause === 'NOT_HELD';
        this.#open(group, passed ? 'ATTEST_NOT_HELD' : 'ATTEST_NO_STATE');
      } else void this.#acknowledged(this.#parts.attested).then((odd) => this.#open(group, odd));
    };
    if (waiting.some(({ passed }) => passed)) enter({ kind: 'released', cause: 'NOT_HELD' });
    else this.#hold('pre', enter);
  }

  #open(group: Group, odd: Unattested | undefined): void {
    group.phase = 'open';
    group.odd = odd;
    for (const frame of group.waiting.splice(0)) this.#release(frame, odd);
  }

  /** Whoever ends the run does not wait. */
  async #acknowledged(attested: () => Promise<Unattested | undefined>): Promise<Unattested | undefined> {
    const ended = new Promise<Unattested>((resolve) => {
      this.#giveUp = () => resolve('ATTEST_TIME_UP');
    });
    const odd = await Promise.race([attested(), ended]);
    this.#giveUp = undefined;
    return odd;
  }

  #end(group: Group, go: () => void, passed: boolean): void {
    group.phase = 'post';
    const leave = (taken: StateTaken['taken']): void => {
      if (!passed) go();
      this.#tell('post', taken, group);
      this.#group = undefined;
      if (this.#next.length > 0) this.#begin(this.#next.splice(0));
    };
    if (passed) {
      go();
      leave({ kind: 'released', cause: 'NOT_HELD' });
    } else this.#hold('post', leave);
  }

  /** The frame goes; its calls are under way, those that it cancels are not any more. */
  #release({ calls, cancelled, go }: Waiting, odd?: Unattested): void {
    const group = this.#group;
    for (const call of calls) group?.open.add(call);
    if (group !== undefined) group.calls += calls.length;
    if (calls.length > 0) this.#parts.went?.(calls.length, odd);
    go(calls.length > 0 ? odd : undefined);
    let retired = calls.length > 0;
    for (const call of cancelled) if (group?.open.delete(call) === true) retired = true;
    if (group?.phase === 'open' && retired && group.open.size === 0 && group.waiting.length === 0) {
      this.#end(group, () => undefined, false);
    }
  }

  #hold(phase: 'pre' | 'post', then: (taken: StateTaken['taken']) => void): void {
    this.#take(phase, undefined, then);
    clearTimeout(this.#limit);
    this.#limit = setTimeout(() => {
      // In the order in which they were asked for: what is still being taken is of no moment any more.
      for (const job of this.#jobs.slice()) this.#settle(job, { kind: 'released', cause: 'HOLD_LIMIT' });
    }, this.#patience(phase));
  }

  #patience(phase: 'pre' | 'post'): number {
    const { holdLimit, firstHoldLimit = holdLimit } = this.#parts;
    return phase === 'pre' && this.#groups === 1 ? firstHoldLimit : holdLimit;
  }

  #take(
    phase: StateTaken['phase'],
    how: ((capturing: Capturing) => Promise<Captured>) | undefined,
    settle: (taken: StateTaken['taken']) => void,
  ): Job {
    const job: Job = { phase, settle, settled: false };
    this.#jobs.push(job);
    this.#parts.capturing
      .then((capturing) => (how ?? ((each) => each.capture()))(capturing))
      .then(
        (captured) => this.#settle(job, captured),
        (error: unknown) =>
          this.#settle(job, {
            kind: 'released',
            cause: 'SNAPSHOT_UNAVAILABLE',
            detail: (error as Error).message,
          }),
      );
    return job;
  }

  #settle(job: Job, taken: StateTaken['taken']): void {
    // It may come after it was given up: it is of no moment that anybody has a name for.
    if (job.settled) return;
    job.settled = true;
    this.#jobs.splice(this.#jobs.indexOf(job), 1);
    if (job.phase === 'pre' || job.phase === 'post') clearTimeout(this.#limit);
    job.settle(taken);
  }

  #tell(phase: StateTaken['phase'], taken: StateTaken['taken'], group?: Group): void {
    const digest = taken.kind === 'state' ? taken.digest : undefined;
    const known = digest !== undefined && this.#last !== undefined;
    const drift = known && phase !== 'post' && digest !== this.#last;
    this.#last = digest;
    const calls = phase === 'post' ? group?.calls : undefined;
    this.#parts.tell({ phase, group: group?.number, calls, taken, drift, known });
  }
}

/** Identity of the request that a message cancels; by it, and not by what is still to be cancelled, a frame keeps its place. */
function cancelledId(message: Message): string | undefined {
  if (message.type !== 'notification' || message.method !== 'notifications/cancelled') return undefined;
  const id = (message.params as { readonly requestId?: unknown } | null | undefined)?.requestId;
  return typeof id === 'string' ? `s:${id}` : typeof id === 'number' ? `n:${id}` : undefined;
}
