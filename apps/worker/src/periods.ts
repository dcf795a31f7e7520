import type { CollectorApi } from '@belay/contracts';
import type { AccountStore, AccountTurn, Job, LogRow, Reader } from '@belay/db';
import { canonical } from '@belay/envelope';
import { formatVkey } from '@belay/note';
import {
  derivePeriod,
  parseDsse,
  parseSessionStatement,
  type PeriodFacts,
  type PeriodSession,
  periodEvidence,
  periodReceiptPayload,
} from '@belay/receipt';
import type { Accountant } from './accountant.js';
import { Lane } from './lane.js';
import type { Publisher } from './publisher.js';
import { JobFailure, type Working } from './work.js';

/** Most runs of sinks that a receipt is made of: the statement on each is in memory. */
const MAX_EPOCHS = 20_000;
const TRIES = 10;

export interface PeriodsParts {
  readonly store: AccountStore;
  readonly reader: Reader;
  readonly accountant: Accountant;
  readonly publisher: Publisher;
  readonly collector: Pick<CollectorApi, 'issue'>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

interface Period {
  readonly from: string;
  readonly to: string;
}

/** Has receipts of periods issued: what the sessions that began in them came to, by the receipts these have. */
export class Periods {
  readonly #parts: PeriodsParts;

  constructor(parts: PeriodsParts) {
    this.#parts = parts;
  }

  readonly make: Working = async (job, progress, signal) => {
    const { reader, accountant } = this.#parts;
    const period = periodOf(job);
    const log = await reader.logById(job.log.id);
    if (log === undefined) throw new JobFailure('the project is gone');
    for (let tries = 0; tries < TRIES; tries++) {
      progress({ phase: 'period', done: tries, total: TRIES });
      const receipt = await accountant.waitForLog(log, signal, async (turn, lane, evaluator) => {
        // What is due is looked at first, so that its sessions have the receipts that they would have in a moment.
        while (await evaluator.look(turn, lane)) signal.throwIfAborted();
        return (await this.#issue(turn, log, period)) ?? null;
      });
      if (receipt !== null) return { state: 'done', receipt };
    }
    throw new JobFailure('the collector did not issue it');
  };

  /** Undefined when something came in between. */
  async #issue(turn: AccountTurn, log: LogRow, period: Period): Promise<string | undefined> {
    const { reader, publisher, collector } = this.#parts;
    const facts = await this.#derive(turn, log, period);
    const last = await turn.lastReceipt(`period:${period.from}..${period.to}`);
    const identity = { origin: log.origin, vkey: formatVkey(log.origin, log.publicKey), x5c: log.x5c };
    const supersedes = last && `sha256:${last.digest.toString('hex')}`;
    await publisher.publish(log);
    const checkpoint = await reader.latestCheckpoint(log);
    if (checkpoint === undefined || checkpoint.size < facts.coverage.size) return undefined;
    const head = {
      size: checkpoint.size,
      checkpoint: checkpoint.note,
      time: checkpoint.published.toISOString(),
    };
    const payload = periodReceiptPayload(facts, identity, head, supersedes);
    if (last !== undefined && timeless(payload) === timeless(parseDsse(Buffer.from(last.bytes)).payload)) {
      return last.id;
    }
    const issued = await collector.issue({ project: log.project, payload });
    if (issued.ok) return issued.value.id;
    const { kind, code, message } = issued.fault;
    if (kind === 'retry' || kind === 'not_yet' || code === 'stale') return undefined;
    throw new Error(`the collector refused the receipt of a period: ${message}`);
  }

  async #derive(turn: AccountTurn, log: LogRow, period: Period): Promise<PeriodFacts> {
    const { store, now } = this.#parts;
    // Its own: all epochs of the log have to be at hand at the same time.
    const lane = await Lane.open(turn);
    const size = lane.size;
    const sinks = (await store.exports.sinks(log, size)).map(({ sink }) => sink);
    const epochs = await lane.loadSinks(turn, sinks, MAX_EPOCHS);
    if (epochs > MAX_EPOCHS) {
      throw new JobFailure(
        `the log has ${epochs} runs of sinks; receipts of periods are made of ${MAX_EPOCHS} at most`,
      );
    }
    const sessions: PeriodSession[] = [];
    for await (const page of store.sessionNames(log, size, period)) {
      for (const session of page) {
        const row = await turn.lastReceipt(`session:${session}`);
        if (row === undefined) sessions.push({ session });
        else {
          const { disposition, calls, authority, verdicts } = parseSessionStatement(
            parseDsse(Buffer.from(row.bytes)).payload,
          );
          const digest = `sha256:${row.digest.toString('hex')}`;
          // Of the reasons nothing is counted, and there may be many.
          const slim = 'reasons' in disposition ? { ...disposition, reasons: [] } : disposition;
          sessions.push({
            session,
            receipt: { digest, receipt: { disposition: slim, calls, authority, verdicts } },
          });
        }
      }
    }
    const asOf = { size, time: new Date(now()).toISOString() };
    const entries = await store.exports.received(log, period, size);
    return derivePeriod(periodEvidence(lane.coverage, asOf, { ...period, sessions, entries }, sinks));
  }
}

function periodOf({ spec }: Job): Period {
  const { from, to } = spec as Partial<Period>;
  const moment = (value: unknown): string => {
    const date = typeof value === 'string' ? new Date(value) : undefined;
    if (date === undefined || Number.isNaN(date.getTime())) throw new JobFailure('not a period');
    return date.toISOString();
  };
  return { from: moment(from), to: moment(to) };
}

/** What a receipt says, whenever it was that it was made. */
function timeless(payload: Buffer): string {
  const { subject, predicate } = JSON.parse(payload.toString('utf8')) as {
    subject: unknown;
    predicate: Record<string, unknown>;
  };
  const { asOf: _asOf, supersedes: _supersedes, coverage, ...rest } = predicate;
  const { policy } = coverage as { policy: unknown };
  return canonical({ subject, policy, ...rest });
}
