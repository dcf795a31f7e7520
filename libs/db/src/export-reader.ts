import { type Envelope, parseEnvelope } from '@belay/envelope';
import type { LogRecord } from '@belay/log';
import type pg from 'pg';
import { uuidToEpoch } from './epoch.js';

/** Rows of one answer. */
const PAGE = 10_000;
/** Epochs whose first entries are looked at in one go. */
const EPOCHS = 1_000;
/** Receipts of one answer: some are large. */
const RECEIPTS = 100;

/** Entries [from, to). */
export interface EntrySpan {
  readonly from: number;
  readonly to: number;
}

/** What there is of one epoch, as far as a choice of entries needs it. */
export interface EpochPlaces {
  readonly sink: string;
  readonly epoch: string;
  /** Where all of its entries are; only where they were asked for. */
  readonly spans?: readonly EntrySpan[] | undefined;
  /** First entry, first `epoch.open` with number 1, first entry that is none such; second stories aside. */
  readonly first?: number | undefined;
  readonly opened?: number | undefined;
  readonly spoke?: number | undefined;
  /** The epoch that its first opening names. */
  readonly previous: string | undefined;
}

interface EpochRow {
  readonly sink: number;
  readonly name: string;
  readonly epoch: string;
}

/** Where the entries of a log are that belong to some of its sessions, and the receipts it has. All of one log. */
export class ExportReader {
  readonly #pool: pg.Pool;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  /** Entries below `size` that the collector wrote. */
  async collectorSpans(log: LogRecord, size: number): Promise<EntrySpan[]> {
    const spans: EntrySpan[] = [];
    let after = -1;
    for (;;) {
      const { rows } = await this.#pool.query({
        name: 'export_collector',
        text: `select first as "from", first + count as "to" from runs where log = $1 and first > $2 and first < $3
               and sink = 0 order by first limit ${PAGE}`,
        values: [log.log, after, size],
      });
      spans.push(...(rows as EntrySpan[]));
      if (rows.length < PAGE) return spans;
      after = (spans.at(-1) as EntrySpan).from;
    }
  }

  /** Names of the sinks that wrote to the log, and whether each was declared by an entry below `size`. */
  async sinks(log: LogRecord, size: number): Promise<{ sink: string; declared: boolean }[]> {
    const { rows } = await this.#pool.query({
      name: 'export_sinks',
      text: `select name as sink, declared is not null and declared < $2 as declared from sinks where log = $1
             order by name`,
      values: [log.log, size],
    });
    return rows as { sink: string; declared: boolean }[];
  }

  /**
   * The epochs of the sinks that are declared, or of which an entry below `size` names one of the sessions, with their
   * first entries; and where all of the entries are of those that `whole` then asks for.
   */
  async epochs(
    log: LogRecord,
    sessions: readonly string[],
    size: number,
    whole: (epochs: readonly (EpochPlaces & { readonly named: boolean })[]) => ReadonlySet<unknown>,
  ): Promise<(EpochPlaces & { readonly named: boolean })[]> {
    const named = new Map<string, EpochRow>();
    for (let at = 0; at < sessions.length; at += EPOCHS) {
      const { rows } = await this.#pool.query({
        text: `select distinct r.sink, n.name, r.epoch from session_runs s
               cross join lateral (
                 select sink, epoch from runs where log = $1 and first <= s.last
                   and first >= (select max(first) from runs where log = $1 and first <= s.first)
               ) r join sinks n on n.log = $1 and n.sink = r.sink
               where s.log = $1 and s.session = any($2::text[]) and s.first < $3`,
        values: [log.log, sessions.slice(at, at + EPOCHS), size],
      });
      for (const row of rows as EpochRow[]) named.set(`${row.sink} ${row.epoch}`, row);
    }
    const sinks = [...new Set([...named.values()].map(({ sink }) => sink))];
    const { rows } = await this.#pool.query({
      text: `select e.sink, n.name, e.epoch from epochs e join sinks n on n.log = e.log and n.sink = e.sink
             where e.log = $1 and (e.sink = any($2::int[]) or n.declared < $3) order by e.sink, e.epoch`,
      values: [log.log, sinks, size],
    });
    const all = new Map((rows as EpochRow[]).map((row) => [`${row.sink} ${row.epoch}`, row]));
    // One whose only lines are second stories has no row of its own.
    for (const [key, row] of named) all.set(key, row);
    const places: (EpochPlaces & { readonly named: boolean })[] = [];
    const rowOf = new Map<EpochPlaces, EpochRow>();
    const every = [...all];
    for (let at = 0; at < every.length; at += EPOCHS) {
      const part = every.slice(at, at + EPOCHS);
      const firsts = await this.#firsts(
        log,
        part.map(([, row]) => row),
        size,
      );
      part.forEach(([key, row], n) => {
        const isNamed = named.has(key);
        // One that has no entry below the size is not there yet.
        if (firsts[n] === undefined && !isNamed) return;
        const place = {
          sink: row.name,
          epoch: uuidToEpoch(row.epoch),
          named: isNamed,
          ...(firsts[n] ?? { previous: undefined }),
        };
        places.push(place);
        rowOf.set(place, row);
      });
    }
    const asked = whole(places);
    const found: (EpochPlaces & { readonly named: boolean })[] = [];
    for (const place of places) {
      const spans = asked.has(place) ? await this.#spans(log, rowOf.get(place) as EpochRow, size) : undefined;
      found.push(spans === undefined ? place : { ...place, spans });
    }
    return found;
  }

  /** Bytes of the receipts of sessions and periods that were issued by entries below `size`, by these; in pages. */
  async *receipts(
    log: LogRecord,
    size: number,
    sessions: readonly string[] | undefined,
  ): AsyncGenerator<readonly string[]> {
    let after = -1;
    const scopes = sessions?.map((session) => `session:${session}`) ?? null;
    for (;;) {
      const { rows } = await this.#pool.query({
        name: 'export_receipts',
        text: `select index, bytes from receipts where log = $1 and index > $2 and index < $3
               and (scope like 'session:%' or scope like 'period:%') and ($4::text[] is null or scope = any($4))
               order by index limit ${RECEIPTS}`,
        values: [log.log, after, size, scopes],
      });
      const receipts = rows as { index: number; bytes: string }[];
      if (receipts.length > 0) yield receipts.map(({ bytes }) => bytes);
      if (receipts.length < RECEIPTS) return;
      after = (receipts.at(-1) as { index: number }).index;
    }
  }

  /** Entries below `size` that were received in [from, to): index of the first, and how many. */
  async received(
    log: LogRecord,
    period: { readonly from: string; readonly to: string },
    size: number,
  ): Promise<{ first: number; count: number }> {
    const { rows } = await this.#pool.query({
      name: 'export_received',
      text: `select coalesce(min(first) filter (where received >= $2), $4)::bigint as first,
               coalesce(sum(least(first + count, $4) - first) filter (where received >= $2 and received < $3), 0)::bigint
                 as count
             from runs where log = $1 and first < $4`,
      values: [log.log, period.from, period.to, size],
    });
    return rows[0] as { first: number; count: number };
  }

  async #spans(log: LogRecord, { sink, epoch }: EpochRow, size: number): Promise<EntrySpan[]> {
    const { rows } = await this.#pool.query({
      name: 'export_spans',
      text: `select first as "from", first + count as "to" from runs
             where log = $1 and sink = $2 and epoch = $3 and conflict is null and sink > 0 and first < $4
             union all select index, index + 1 from conflicts where log = $1 and sink = $2 and epoch = $3 and index < $4
             order by 1`,
      values: [log.log, sink, epoch, size],
    });
    const spans: { from: number; to: number }[] = [];
    for (const { from, to } of rows as EntrySpan[]) {
      const last = spans.at(-1);
      if (last !== undefined && last.to === from) last.to = to;
      else spans.push({ from, to });
    }
    return spans;
  }

  /** For each of the epochs, in their order; undefined where no entry of it is below `size` but second stories. */
  async #firsts(
    log: LogRecord,
    epochs: readonly EpochRow[],
    size: number,
  ): Promise<(Pick<EpochPlaces, 'first' | 'opened' | 'spoke' | 'previous'> | undefined)[]> {
    // Only one entry can be the `epoch.open` with number 1: the first two tell which is the first that is none.
    const { rows } = await this.#pool.query({
      text: `select k.o as place, e.index, e.line from unnest($2::int[], $3::uuid[]) with ordinality as k(sink, epoch, o)
             cross join lateral (
               (select i.index from (
                  select first, count from runs where log = $1 and sink = k.sink and epoch = k.epoch and conflict is null
                    and sink > 0 order by first limit 2
                ) r cross join lateral generate_series(r.first, r.first + least(r.count, 2) - 1) as i(index)
                order by 1 limit 2)
               union select first from runs where log = $1 and sink = k.sink and epoch = k.epoch and conflict is null
                 and sink > 0 and first_seq = 1
             ) i join entries e on e.log = $1 and e.index = i.index where i.index < $4 order by 1, 2`,
      values: [log.log, epochs.map(({ sink }) => sink), epochs.map(({ epoch }) => epoch), size],
    });
    const lines = new Map<number, { index: number; envelope: Envelope }[]>();
    for (const { place, index, line } of rows as { place: number; index: number; line: Buffer }[]) {
      const known = lines.get(place) ?? [];
      known.push({ index, envelope: parseEnvelope(line) });
      lines.set(place, known);
    }
    return epochs.map((_, at) => {
      const found = lines.get(at + 1);
      if (found === undefined) return undefined;
      const isOpening = ({ envelope }: { envelope: Envelope }): boolean =>
        envelope.kind === 'epoch.open' && envelope.seq === 1;
      const opening = found.find(isOpening);
      return {
        first: found[0]?.index,
        opened: opening?.index,
        spoke: found.find((one) => !isOpening(one))?.index,
        previous: opening?.envelope.attrs?.['prev_epoch'] as string | undefined,
      };
    });
  }
}
