import type { KeyObject } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { formatVkey } from '@belay/note';
import type { Refusal, SignedHead } from './ack.js';
import { append, type AppendTarget } from './append.js';
import { ClientError } from './error.js';
import { HeadStore } from './head.js';
import { type KeptLines, lastTended, noteTended, tendKept } from './keeping.js';
import { type Published, PublishedStore, readPublished } from './published.js';
import { tendShared } from './shared-epoch.js';
import { type Batch, Spool } from './spool.js';
import { pendingSpools, rememberLog } from './spools.js';
import { SPOOL_LIMITS, type SpoolLimits } from './spool-room.js';
import { logDir, makeDir, replaceJson, writeJson } from './state.js';

const BATCH = { lines: 500, bytes: 512 * 1024 };
/** Lines that come within this time of each other travel together. Milliseconds. */
const LINGER = 50;
/** How often what is kept of settled lines is gone over. Milliseconds. */
const TEND_EVERY = 10 * 60_000;
const FIRST_RETRY = 200;
const LAST_RETRY = 30_000;

/** What happened to lines of a spool. */
export type ForwardEvent =
  | {
      readonly type: 'settled';
      readonly sink: string;
      readonly epoch: string;
      readonly lines: number;
      /** `seq` of the first and of the last of them. */
      readonly seqs: readonly [number, number];
      readonly duplicates: number;
      /** Index of the first line that is in the log, and of the last. */
      readonly indexes: readonly [number, number] | undefined;
      /** The log took all of them as signed under a key that is declared for the sink. */
      readonly signed: boolean;
      readonly head: SignedHead;
      /** From asking to the verified acknowledgement, milliseconds. */
      readonly ms: number;
    }
  | {
      readonly type: 'refused';
      readonly sink: string;
      readonly epoch: string;
      readonly seq: number;
      readonly refusal: Refusal;
    }
  | { readonly type: 'conflict'; readonly sink: string; readonly epoch: string; readonly seq: number }
  | { readonly type: 'waiting'; readonly error: ClientError; readonly ms: number }
  | { readonly type: 'stopped'; readonly error: ClientError };

export interface ForwarderOptions extends AppendTarget {
  readonly state: string;
  /** Private key of a sink, where it has one. */
  readonly keyOf: (sink: string) => Promise<KeyObject | undefined>;
  readonly onEvent?: (event: ForwardEvent) => void;
  readonly limits?: SpoolLimits | undefined;
  /** 0 to below 1; spreads retries. */
  readonly random?: () => number;
}

/**
 * Sends spools to their log, one request at a time, and settles lines by verified acks. Runs in the background of a
 * process that must not be disturbed: it never throws into its owner, never holds more than one batch, and stops for
 * good when the collector refuses it or has to be accused. What it leaves stays in the spools.
 */
export class Forwarder {
  readonly #options: ForwarderOptions;
  readonly #heads: HeadStore;
  readonly #keys = new Map<string, Promise<KeyObject | undefined>>();
  #ended = false;
  /** Counts `wake`, so that one between a look at the spool and the wait for more is not missed. */
  #wakes = 0;
  /** Waits for lines, and pauses of any reason: what `wake`, and what `hurry` and `stop`, put an end to. */
  readonly #waiting = new Set<() => void>();
  readonly #pausing = new Set<() => void>();
  /** Of the pauses, those for more lines to come. */
  readonly #lingering = new Set<() => void>();
  /** Somebody waits for a line that is in a spool: nothing lingers until it is read. */
  #urgent = false;
  #stopped: ClientError | undefined;
  #hurry = false;
  #lines = BATCH.lines;
  readonly #errorPath: string;
  /** There may be a last error to forget. */
  #troubled = true;

  constructor(options: ForwarderOptions) {
    this.#options = options;
    const { origin, publicKey } = options.credential;
    rememberLog(options.state, origin, formatVkey(origin, publicKey));
    this.#errorPath = join(logDir(options.state, options.credential.origin), 'last-error.json');
    this.#heads = new HeadStore(options.state, options.credential.origin);
  }

  /** Why nothing is sent any more; undefined while it is. */
  get stopped(): ClientError | undefined {
    return this.#stopped;
  }

  /** There is something new in a spool. Cheap; call it as often as there is. */
  wake(): void {
    this.#wakes++;
    for (const interrupt of this.#waiting) interrupt();
  }

  /** The same where somebody waits for the acknowledgement: what is there now is not kept back for more to come. */
  urge(): void {
    this.#urgent = true;
    this.wake();
    for (const interrupt of this.#lingering) interrupt();
  }

  /**
   * Follows the spool of a living epoch until `done()` says that no more lines come and all are settled; then removes
   * its lines. Resolves false when it stopped before that.
   */
  async follow(dir: string, done: () => boolean): Promise<boolean> {
    const spool = Spool.ofOwn(dir);
    try {
      return await this.#drain(spool, done);
    } finally {
      await spool.release();
    }
  }

  /** Sends what processes that died have left, and what shared epochs hold. Returns the number of spools that are settled now, and those that are not. */
  async adoptOrphans(except?: string): Promise<{ readonly settled: number; readonly left: number }> {
    const { state, credential } = this.#options;
    const { origin } = credential;
    let settled = 0;
    let left = 0;
    tendShared(state, origin);
    for (const dir of pendingSpools(state, origin)) {
      if (dir === except || this.#ended) continue;
      const spool = Spool.adopt(dir);
      if (spool === undefined) continue;
      try {
        const { age } = this.#options.limits ?? SPOOL_LIMITS;
        if (spool.over) await spool.expire(age, new Date());
        const before = spool.settledBytes;
        if (!(await this.#drain(spool, () => true))) left++;
        else if (spool.over || spool.settledBytes > before) settled++;
      } finally {
        await spool.release();
      }
    }
    const since = Date.now() - (lastTended(state, origin) ?? 0);
    if (left === 0 && (since < 0 || since > TEND_EVERY)) await this.tendKept();
    return { settled, left };
  }

  /**
   * Asks for the checkpoint that the log has published, verifies it against what is held, and goes over the settled
   * lines that are kept until one covers them. Resolves undefined when the log was not asked or has to be accused.
   */
  async tendKept(): Promise<
    { readonly published: Published | undefined; readonly kept: KeptLines } | undefined
  > {
    if (this.#ended || this.#stopped !== undefined) return undefined;
    const { state, limits, credential } = this.#options;
    const store = new PublishedStore(state, credential.origin);
    const now = new Date();
    let published = store.read();
    try {
      published = await readPublished(this.#options, this.#heads, store, now);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      if (error.action !== 'retry') {
        await this.#keepError(error);
        if (error.action === 'accuse') this.#keepEvidence(error);
        this.#stopped = error;
        this.#options.onEvent?.({ type: 'stopped', error });
        return undefined;
      }
    }
    const kept = await tendKept(state, credential.origin, limits ?? SPOOL_LIMITS, published, now);
    noteTended(state, credential.origin, now.getTime());
    return { published, kept };
  }

  /** The owner wants to end: from now on nothing lingers, and a collector that can't be reached is not waited for. */
  hurry(): void {
    this.#hurry = true;
    this.wake();
    for (const interrupt of this.#pausing) interrupt();
  }

  /** Ends all waiting; a request in flight is cut and its lines stay. */
  stop(): void {
    this.#ended = true;
    this.#options.transport.close();
    this.hurry();
  }

  async #drain(spool: Spool, done: () => boolean): Promise<boolean> {
    let attempt = 0;
    while (!this.#ended && this.#stopped === undefined) {
      // Asked before the lines are read: what was appended before it became true is seen.
      const last = done();
      const wakes = this.#wakes;
      const batch = await spool.next({ ...BATCH, lines: this.#lines });
      if (batch === undefined) {
        if (last) {
          // A shared epoch goes on without an owner: its lines stay until it is closed.
          if (spool.over) await spool.finish();
          return true;
        }
        await this.#wait(wakes);
        continue;
      }
      try {
        await this.#send(spool, batch);
        attempt = 0;
      } catch (error) {
        if (this.#ended) return false;
        if (!(error instanceof ClientError)) throw error;
        if (!(await this.#recover(error, batch, attempt++))) return false;
      }
    }
    return false;
  }

  async #send(spool: Spool, batch: Batch): Promise<void> {
    const { sink, epoch } = spool.record;
    const before = this.#heads.read();
    const began = performance.now();
    const ack = await append(this.#options, {
      sink,
      epoch,
      firstSeq: batch.seqs[0] as number,
      lines: batch.lines,
      key: await this.#keyOf(sink),
      head: before,
    });
    await this.#heads.advance(before, ack.head);
    spool.settle(batch, ack);
    this.#forgetError();
    if (this.#lines < BATCH.lines) this.#lines = Math.min(BATCH.lines, this.#lines * 2);
    const tell = this.#options.onEvent;
    if (tell === undefined) return;
    for (const refusal of ack.refused) {
      tell({ type: 'refused', sink, epoch, seq: batch.seqs[refusal.line] as number, refusal });
    }
    let duplicates = 0;
    for (const { disposition, lines } of ack.runs) {
      if (disposition === 'duplicate') duplicates += lines[1] - lines[0];
      if (disposition === 'conflict')
        tell({ type: 'conflict', sink, epoch, seq: batch.seqs[lines[0]] as number });
    }
    const indexes = ack.runs.flatMap(({ index, lines }) => [index, index + lines[1] - lines[0] - 1]);
    tell({
      type: 'settled',
      sink,
      epoch,
      lines: batch.lines.length,
      seqs: [batch.seqs[0] as number, batch.seqs.at(-1) as number],
      duplicates,
      indexes: indexes.length === 0 ? undefined : [Math.min(...indexes), Math.max(...indexes)],
      signed: ack.runs.every(({ signed }) => signed !== undefined),
      head: ack.head,
      ms: performance.now() - began,
    });
  }

  /** True when it is worth another try. */
  async #recover(error: ClientError, batch: Batch, attempt: number): Promise<boolean> {
    const tell = this.#options.onEvent;
    if (
      (error.problem === 'body_too_large' || error.problem === 'too_many_lines') &&
      batch.lines.length > 1
    ) {
      this.#lines = Math.ceil(batch.lines.length / 2);
      return true;
    }
    await this.#keepError(error);
    if (error.action === 'retry') {
      const ceiling = Math.min(LAST_RETRY, FIRST_RETRY * 2 ** Math.min(attempt, 20));
      const random = this.#options.random ?? Math.random;
      const ms = Math.round(error.retryAfter ?? ceiling / 2) + Math.round((ceiling / 2) * random());
      const worthIt = !(this.#hurry && error.code === 'unreachable');
      tell?.({ type: 'waiting', error, ms: worthIt ? ms : 0 });
      if (!worthIt) return false;
      await this.#pause(ms);
      return !this.#ended;
    }
    if (error.action === 'accuse') this.#keepEvidence(error);
    this.#stopped = error;
    tell?.({ type: 'stopped', error });
    return false;
  }

  /** For `belay status`: what last kept lines from being sent. Goes with the next acknowledgement. */
  async #keepError({ code, message }: ClientError): Promise<void> {
    this.#troubled = true;
    try {
      const time = new Date().toISOString();
      await replaceJson(this.#errorPath, { time, code, message }, () => true);
    } catch {
      // It is told to the owner as well.
    }
  }

  #forgetError(): void {
    if (this.#troubled) rmSync(this.#errorPath, { force: true });
    this.#troubled = false;
  }

  #keepEvidence(error: ClientError): void {
    const folder = join(logDir(this.#options.state, this.#options.credential.origin), 'accusations');
    const time = new Date().toISOString();
    makeDir(folder);
    const { code, message, evidence } = error;
    writeJson(join(folder, `${time.replace(/[:.]/g, '-')}-${process.pid}.json`), {
      time,
      code,
      message,
      evidence,
    });
  }

  async #keyOf(sink: string): Promise<KeyObject | undefined> {
    let key = this.#keys.get(sink);
    if (key === undefined) {
      key = this.#options.keyOf(sink);
      this.#keys.set(sink, key);
    }
    return await key;
  }

  /** Until there was a `wake` after the `wakes`-th, and then a little longer unless there is hurry. */
  async #wait(wakes: number): Promise<void> {
    if (this.#wakes === wakes) {
      await new Promise<void>((resolve) => {
        const woken = (): void => {
          this.#waiting.delete(woken);
          resolve();
        };
        this.#waiting.add(woken);
      });
    }
    if (!this.#urgent) await this.#pause(this.#hurry ? 1 : LINGER, this.#lingering);
    this.#urgent = false;
  }

  /** A time that `hurry` and `stop` cut short, and whoever goes over `also`. */
  async #pause(ms: number, also?: Set<() => void>): Promise<void> {
    await new Promise<void>((resolve) => {
      const over = (): void => {
        clearTimeout(timer);
        this.#pausing.delete(over);
        also?.delete(over);
        resolve();
      };
      const timer = setTimeout(over, ms);
      this.#pausing.add(over);
      also?.add(over);
    });
  }
}
