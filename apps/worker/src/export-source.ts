import { setTimeout as sleep } from 'node:timers/promises';
import type { CollectorApi } from '@belay/contracts';
import type { AccountStore, CheckpointRow, LogRow, Reader } from '@belay/db';
import { type ExportRequest, type ExportSource, wholeEpochs } from '@belay/export';
import { formatVkey } from '@belay/note';
import { citationsOf } from '@belay/receipt';

/** Entries read at a time. */
const BATCH = 2_000;
/** How often a collector that is away is asked to sign, with a pause between, milliseconds. */
const SIGN_TRIES = 60;
const SIGN_PAUSE_MS = 1_000;

export interface ExportSourceParts {
  readonly store: AccountStore;
  readonly reader: Reader;
  readonly collector: Pick<CollectorApi, 'signExport'>;
}

/**
 * What an export is made from, out of the database, as of one published checkpoint: nothing is held but what is asked
 * for, and the indexes of what verdicts cite.
 */
export function exportSource(
  { store, reader, collector }: ExportSourceParts,
  log: LogRow,
  checkpoint: CheckpointRow,
  chosen: { readonly evaluated: number; readonly sessions: readonly string[] | undefined },
  signal?: AbortSignal,
): ExportSource {
  const { size } = checkpoint;
  return {
    head: () =>
      Promise.resolve({
        log: { origin: log.origin, vkey: formatVkey(log.origin, log.publicKey), x5c: log.x5c },
        project: { id: log.project, name: log.name },
        asOf: {
          size,
          checkpoint: checkpoint.note,
          time: checkpoint.published.toISOString(),
          evaluated: chosen.evaluated,
        },
      }),
    selection: async () => {
      const sessions = chosen.sessions ?? [];
      const sinks = await store.exports.sinks(log, size);
      return {
        size,
        sessions,
        collector: await store.exports.collectorSpans(log, size),
        declared: sinks.filter(({ declared }) => declared).map(({ sink }) => sink),
        epochs: await store.exports.epochs(log, sessions, size, wholeEpochs),
        cited: await citedBy(store, log, sessions, size),
      };
    },
    entries: async function* (from, to) {
      for (let at = from; at < to; at += BATCH) {
        const entries = await store.entries(log, at, Math.min(at + BATCH, to));
        yield entries.map(({ bytes }) => bytes);
      }
    },
    nodes: (ids) => reader.nodes(log, ids),
    receipts: async function* (_request: ExportRequest, sessions) {
      for await (const page of store.exports.receipts(log, size, sessions)) {
        for (const bytes of page) yield Buffer.from(bytes);
      }
    },
    sign: async (payload) => {
      // It is the last step of what may have taken an hour: a collector that starts anew must not cost all of it.
      for (let tries = 1; ; tries++) {
        const outcome = await collector.signExport({ project: log.project, payload });
        if (outcome.ok) return Buffer.from(outcome.value.bytes);
        const { kind, message } = outcome.fault;
        if (kind !== 'retry' || tries === SIGN_TRIES)
          throw new Error(`the collector did not sign: ${message}`);
        await sleep(SIGN_PAUSE_MS, undefined, { signal }).catch(() => signal?.throwIfAborted());
      }
    },
  };
}

/** Indexes of the entries that verdicts on these sessions cite. */
async function citedBy(
  store: AccountStore,
  log: LogRow,
  sessions: readonly string[],
  size: number,
): Promise<number[]> {
  const cited = new Set<number>();
  for (const session of sessions) {
    for await (const page of store.sessionEntries(log, session, size)) {
      for (const { entry } of page) {
        if (entry.by === 'sender') for (const index of citationsOf(entry.envelope)) cited.add(index);
      }
    }
  }
  return [...cited].filter((index) => index < size).sort((a, b) => a - b);
}
