import { isAscii } from 'node:buffer';
import { type CollectorLine, type Entry, type Envelope, parseCollectorBody } from '@belay/envelope';
import { entryMakerOf, type LogRecord } from '@belay/log';
import type pg from 'pg';

/** Lines that come in one value: a row for each costs more than what is in it, and of a large one more is copied. */
const LINES_A_VALUE = 64;
/** Entries, or runs of a session, that are asked for at a time. */
const PAGE = 1_000;
const LF = 0x0a;

/** An entry as its log has it. */
export interface RawEntry {
  readonly index: number;
  readonly bytes: Buffer;
}

/** The same, read. */
export interface ReadEntry extends RawEntry {
  readonly entry: Entry;
}

/** Entries [first, last]. */
interface Range {
  readonly first: number;
  readonly last: number;
}

interface RunRow {
  readonly first: number;
  readonly count: number;
  readonly sink: number;
  readonly token: string;
  readonly role: CollectorLine['role'];
  readonly received: Date;
  readonly signed: Buffer | null;
  readonly conflict: number | null;
  readonly late: boolean;
}

interface Queries {
  query(config: pg.QueryConfig): Promise<pg.QueryResult>;
}

/**
 * Entries of one log out of its tables: body lines as they are stored, and collector's lines as their runs say. Only who
 * takes lines in holds them to the format: what is stored was found to be in it.
 */
export class StoredEntries {
  readonly #db: Queries;
  readonly #log: LogRecord;
  readonly #sinks = new Map<number, string>();

  constructor(db: Queries, log: LogRecord) {
    this.#db = db;
    this.#log = log;
  }

  /** Entries of [from, to), read; fewer at the end of the log. */
  async parsed(from: number, to: number): Promise<Entry[]> {
    return (await this.#entries([{ first: from, last: to - 1 }])).map(({ index, run, body }) =>
      run.read(index, body),
    );
  }

  /** The bytes of [from, to); fewer at the end of the log. */
  async raw(from: number, to: number): Promise<RawEntry[]> {
    return (await this.#entries([{ first: from, last: to - 1 }])).map(({ index, run, body }) => ({
      index,
      bytes: run.bytes(index, body),
    }));
  }

  /** The bytes of entries by their indexes, which ascend. */
  async at(indexes: readonly number[]): Promise<RawEntry[]> {
    const found: RawEntry[] = [];
    for await (const page of this.#pages(rangesOf(indexes))) {
      for (const { index, run, body } of page) found.push({ index, bytes: run.bytes(index, body) });
    }
    return found;
  }

  /** The entries below `size` that name a session, in pages, ascending; as far as the log was reconciled. */
  async *ofSession(session: string, size: number): AsyncGenerator<readonly ReadEntry[]> {
    let after = -1;
    for (;;) {
      const { rows } = await this.#db.query({
        name: 'entries_session_runs',
        text: `select first, least(last, $4::bigint - 1) as last from session_runs
               where log = $1 and session = $2 and first > $3 and first < $4 order by first limit ${PAGE}`,
        values: [this.#log.log, session, after, size],
      });
      const runs = rows as Range[];
      for await (const page of this.#pages(runs)) {
        yield page.map(({ index, run, body }) => ({
          index,
          bytes: run.bytes(index, body),
          entry: run.read(index, body),
        }));
      }
      if (runs.length < PAGE) return;
      after = (runs.at(-1) as Range).first;
    }
  }

  async *#pages(ranges: readonly Range[]): AsyncGenerator<StoredEntry[]> {
    let page: Range[] = [];
    let room = PAGE;
    for (const { first, last } of ranges) {
      for (let from = first; from <= last;) {
        const to = Math.min(last, from + room - 1);
        page.push({ first: from, last: to });
        room -= to - from + 1;
        from = to + 1;
        if (room > 0) continue;
        yield await this.#entries(page);
        page = [];
        room = PAGE;
      }
    }
    if (page.length > 0) yield await this.#entries(page);
  }

  /**
   * Those of these ranges that there are; ranges ascend and do not touch. Only at the end may one be cut short. Each
   * range is looked for by itself (an aggregate, and `offset`, are not made part of a join): of tables that grew since
   * they were last analysed PostgreSQL would take it that reading all of the log costs less.
   */
  async #entries(ranges: readonly Range[]): Promise<StoredEntry[]> {
    const values = [this.#log.log, ranges.map(({ first }) => first), ranges.map(({ last }) => last)];
    const { rows: parts } = await this.#db.query({
      name: 'entries_lines',
      text: `select p.first, p.lines from unnest($2::bigint[], $3::bigint[]) as r(first, last)
             cross join lateral (
               select min(index) as first, string_agg(line, '\\x0a'::bytea order by index) as lines
               from entries where log = $1 and index >= r.first and index <= r.last group by index / ${LINES_A_VALUE}
             ) p order by p.first`,
      values,
    });
    const { rows } = await this.#db.query({
      name: 'entries_runs',
      text: `select distinct on (o.first) o.* from unnest($2::bigint[], $3::bigint[]) as r(first, last)
             cross join lateral (
               select first, count, sink, token, role, received, signed, conflict, late from runs
               where log = $1 and first <= r.last
                 and first >= coalesce((select max(first) from runs where log = $1 and first <= r.first), 0)
               offset 0
             ) o order by o.first`,
      values,
    });
    const runs = await this.#named(rows as RunRow[]);
    const entries: StoredEntry[] = [];
    let [at, next, range] = [0, ranges[0]?.first, 0];
    for (const { first, lines } of parts as { first: number; lines: Buffer }[]) {
      let index = first;
      for (const body of split(lines)) {
        while (index >= (runs[at]?.end ?? Number.POSITIVE_INFINITY)) at++;
        const run = runs[at];
        // Where one is not there, those after it are not taken for it.
        if (index !== next || run === undefined || index < run.first) {
          throw new Error(`entry ${next} of ${this.#log.origin} is not where it should be`);
        }
        entries.push({ index, run, body });
        next = index === ranges[range]?.last ? ranges[++range]?.first : index + 1;
        index++;
      }
    }
    return entries;
  }

  async #named(runs: readonly RunRow[]): Promise<StoredRun[]> {
    if (runs.some(({ sink }) => sink > 0 && !this.#sinks.has(sink))) {
      const { rows } = await this.#db.query({
        name: 'entries_sinks',
        text: 'select sink, name from sinks where log = $1',
        values: [this.#log.log],
      });
      for (const { sink, name } of rows as { sink: number; name: string }[]) this.#sinks.set(sink, name);
    }
    return runs.map((run) => new StoredRun(this.#log.origin, run, this.#sinks.get(run.sink)));
  }
}

interface StoredEntry {
  readonly index: number;
  readonly run: StoredRun;
  readonly body: Buffer;
}

/** What the lines of one append share. */
class StoredRun {
  readonly first: number;
  /** One past the last. */
  readonly end: number;
  readonly #line: (index: number) => CollectorLine;
  readonly #conflict: number | undefined;
  readonly #maker: () => ReturnType<typeof entryMakerOf>;

  constructor(log: string, row: RunRow, sink: string | undefined) {
    this.first = row.first;
    this.end = row.first + row.count;
    this.#line = linesOf(log, row, sink);
    this.#conflict = row.conflict ?? undefined;
    let maker: ReturnType<typeof entryMakerOf> | undefined;
    this.#maker = () => (maker ??= entryMakerOf(log, factsOf(row), sink));
  }

  read(index: number, body: Buffer): Entry {
    const line = this.#line(index);
    return line.role === 'collector'
      ? { by: 'collector', line, body, statement: parseCollectorBody(body) }
      : { by: 'sender', line, body, envelope: acceptedEnvelope(body) };
  }

  bytes(index: number, body: Buffer): Buffer {
    return this.#maker().entry(index, body, this.#conflict);
  }
}

/** Makes the collector's lines of a run, all of one shape. */
function linesOf(
  log: string,
  { token, role, received: at, signed, late, conflict }: RunRow,
  sink: string | undefined,
): (index: number) => CollectorLine {
  const received = at.toISOString();
  const more = {
    ...(signed === null ? {} : { signed: signed.toString('hex') }),
    ...(late ? { late: true as const } : {}),
    ...(conflict === null ? {} : { conflict }),
  };
  if (role === 'collector') return (index) => ({ v: 1, index, log, received, role, ...more });
  if (sink === undefined) throw new Error(`a run of ${log} is of a sink without a name`);
  return (index) => ({ v: 1, index, log, received, role, token, sink, ...more });
}

function factsOf({ token, role, received, signed, late }: RunRow): Parameters<typeof entryMakerOf>[1] {
  const batch = signed && { fingerprint: signed.toString('hex') };
  return { token, role, received: received.getTime(), batch, late };
}

function acceptedEnvelope(line: Buffer): Envelope {
  return JSON.parse(line.toString(isAscii(line) ? 'latin1' : 'utf8')) as Envelope;
}

/** No line has a LF in it. */
function split(lines: Buffer): Buffer[] {
  const bodies: Buffer[] = [];
  for (let start = 0; ;) {
    const end = lines.indexOf(LF, start);
    bodies.push(lines.subarray(start, end < 0 ? lines.length : end));
    if (end < 0) return bodies;
    start = end + 1;
  }
}

/** Ascending numbers as ranges. */
function rangesOf(indexes: readonly number[]): Range[] {
  const ranges: { first: number; last: number }[] = [];
  for (const index of indexes) {
    const range = ranges.at(-1);
    if (range?.last === index - 1) range.last = index;
    else ranges.push({ first: index, last: index });
  }
  return ranges;
}
