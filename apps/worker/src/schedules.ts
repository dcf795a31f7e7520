import type { AccountJob } from '@belay/contracts/jobs';
import type { AccountStore, Reader } from '@belay/db';
import type { Logger } from 'pino';
import { Accountant } from './accountant.js';
import { Evaluator } from './evaluator.js';
import { Exports, type ExportsParts } from './exports.js';
import type { WorkerCollector } from './nats-collector.js';
import { Periods } from './periods.js';
import { Publisher } from './publisher.js';
import { InProcessSchedule, type Sweeper } from './schedule.js';
import { Webhooks } from './webhooks.js';
import { Work } from './work.js';

/** Most milliseconds between two looks at what waits, on a timer. */
const LOOK_MS = 250;

/** What may be set of a worker. */
export interface WorkerOptions {
  /** Milliseconds between sweeps for checkpoints. */
  readonly intervalMs: number;
  /** Where exports are made; absent: nowhere, and that is left to other workers. */
  readonly exports?: Pick<ExportsParts, 'dir' | 'keepDays' | 'maxBytes'> | undefined;
  /** Whether webhooks may be at private addresses and on this machine. */
  readonly webhookPrivate: boolean;
}

/** What a worker does its work with. */
export interface WorkerParts extends WorkerOptions {
  readonly reader: Reader;
  readonly store: AccountStore;
  readonly collector: WorkerCollector;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
}

/** What a worker does beside publishing, by the name of the job that pokes it. */
export type Schedules = Readonly<Record<AccountJob, InProcessSchedule>>;

/** A worker put together; nothing of it runs until its schedules are started. */
export interface AssembledWorker {
  readonly publisher: Publisher;
  readonly accountant: Accountant;
  readonly publishing: InProcessSchedule;
  readonly schedules: Schedules;
}

/** On timers of its own, or on pokes alone: then publishing is for the caller to see to. */
export function assembleWorker(parts: WorkerParts, on: 'timers' | 'pokes'): AssembledWorker {
  const publisher = new Publisher(parts);
  const evaluator = new Evaluator({ ...parts, publisher });
  const accountant = new Accountant({ ...parts, evaluator });
  const periods = new Periods({ ...parts, accountant, publisher });
  const exports = parts.exports && new Exports({ ...parts, ...parts.exports, accountant, publisher });
  const work = new Work({
    ...parts,
    kinds: { period: periods.make, ...(exports && { export: exports.make }) },
    tidy: () => exports?.tidy() ?? Promise.resolve(),
  });
  const webhooks = new Webhooks({
    ...parts,
    deliveries: parts.store.deliveries,
    allowPrivate: parts.webhookPrivate,
    random: Math.random,
  });
  const lookMs = on === 'timers' ? Math.min(parts.intervalMs, LOOK_MS) : Number.POSITIVE_INFINITY;
  const every = (ms: number, sweeper: Sweeper): InProcessSchedule =>
    new InProcessSchedule(sweeper, ms, parts.log);
  return {
    publisher,
    accountant,
    publishing: every(parts.intervalMs, publisher),
    schedules: {
      account: every(lookMs, accountant),
      work: every(lookMs, work),
      deliver: every(lookMs, webhooks),
    },
  };
}
