import { isDeepStrictEqual } from 'node:util';
import { LogCoverage } from '@belay/coverage';
import { AccountStore, type EmbeddedPostgres, openPool } from '@belay/db';
import { type Entry, parseEntry } from '@belay/envelope';
import type { LogRecord } from '@belay/log';

const BATCH = 4_000;

/**
 * Compares what a worker keeps of every log, up to where it has come, with what the entries from the first one come to.
 * Returns what is wrong, in words.
 */
export async function checkAccounts(connection: EmbeddedPostgres['connection']): Promise<string[]> {
  const pool = openPool(connection);
  const store = new AccountStore(connection, { role: 'belay_worker', size: 2 });
  try {
    const { rows } = await pool.query(
      `select l.log, l.id, l.project, l.origin, l.public_key as "publicKey", l.x5c, r.through
       from logs l join reconciled r on r.log = l.log order by l.log`,
    );
    const wrong: string[] = [];
    for (const { through, ...log } of rows as (LogRecord & { readonly through: number })[]) {
      const read = async (text: string): Promise<Record<string, unknown>[]> =>
        (await pool.query(text, [log.log])).rows as Record<string, unknown>[];
      const entries = allEntries(store, log, through);
      wrong.push(...(await differences(log.origin, read, entries)));
    }
    return wrong;
  } finally {
    await store.close();
    await pool.end();
  }
}

async function* allEntries(store: AccountStore, log: LogRecord, through: number): AsyncGenerator<Entry> {
  for (let at = 0; at < through; at += BATCH) {
    const batch = await store.entries(log, at, Math.min(at + BATCH, through));
    for (const { bytes } of batch) yield parseEntry(bytes);
  }
}

async function differences(
  origin: string,
  read: (text: string) => Promise<Record<string, unknown>[]>,
  entries: AsyncIterable<Entry>,
): Promise<string[]> {
  const coverage = new LogCoverage({ log: origin });
  const places = new Map<string, number[]>();
  const stated = new Map<string, string>();
  for await (const entry of entries) {
    coverage.apply(entry);
    if (entry.by === 'sender') {
      const { session } = entry.envelope;
      if (session !== undefined) places.set(session, [...(places.get(session) ?? []), entry.line.index]);
    } else if (entry.statement.kind === 'coverage.stated' && entry.statement.type === 'epoch') {
      const { sink, epoch, status } = entry.statement;
      stated.set(`${sink} ${epoch}`, status);
    }
  }
  const wrong: string[] = [];
  const compare = (what: string, kept: unknown, made: unknown): void => {
    const plain: unknown = made === undefined ? undefined : JSON.parse(JSON.stringify(made));
    if (!isDeepStrictEqual(kept, plain)) {
      wrong.push(`${origin}: ${what} is kept as ${JSON.stringify(kept)}, and is ${JSON.stringify(plain)}`);
    }
  };
  const epochs = await read('select sink, epoch, state, stated_status from epoch_states where log = $1');
  const keptEpochs = new Map(epochs.map((row) => [`${String(row['sink'])} ${String(row['epoch'])}`, row]));
  for (const one of coverage.epochs) {
    const key = `${one.sink} ${one.epoch}`;
    compare(`epoch ${key}`, keptEpochs.get(key)?.['state'], one.state());
    compare(`stated of ${key}`, keptEpochs.get(key)?.['stated_status'] ?? undefined, stated.get(key));
    keptEpochs.delete(key);
  }
  compare('the list of epochs', [...keptEpochs.keys()], []);

  // Of a chain it is kept what changed it, not which of its sink's entries was looked at last.
  const placeless = (state: unknown): unknown => state && { ...state, through: 0 };
  const chains = new Map(
    (await read('select sink, state from sink_states where log = $1')).map(({ sink, state }) => [
      sink,
      state,
    ]),
  );
  for (const one of coverage.chains) {
    compare(`chain of ${one.sink}`, placeless(chains.get(one.sink)), placeless(one.state()));
  }
  const sessions = new Map(
    (await read('select session, state, began_index, last_index from sessions where log = $1')).map((row) => [
      row['session'],
      row,
    ]),
  );
  for (const one of coverage.sessions) {
    const row = sessions.get(one.session);
    const own = places.get(one.session) ?? [];
    compare(`session ${one.session}`, row?.['state'], one.state());
    compare(`ends of ${one.session}`, [row?.['began_index'], row?.['last_index']], [own[0], own.at(-1)]);
  }
  compare('the number of sessions', sessions.size, [...coverage.sessions].length);
  // A session that waits for nothing names the statement that its receipt was made from.
  for (const row of await read(
    `select s.session, s.stated_index, encode(s.stated_digest, 'hex') as stated, r.bytes
     from sessions s join receipts r on r.id = s.receipt where s.log = $1 and s.dirty is null`,
  )) {
    const { payload } = JSON.parse(String(row['bytes'])) as { payload: string };
    const { predicate } = JSON.parse(Buffer.from(payload, 'base64').toString()) as {
      predicate: { coverage: { index: number; statement: string } };
    };
    const { index, statement } = predicate.coverage;
    compare(
      `statement of ${String(row['session'])}`,
      [Number(row['stated_index']), `sha256:${String(row['stated'])}`],
      [index, statement],
    );
  }

  const kept = new Map<unknown, number[]>();
  for (const { session, first, last } of await read(
    'select session, first, last from session_runs where log = $1 order by session, first',
  )) {
    const indexes = kept.get(session) ?? [];
    for (let index = first as number; index <= (last as number); index++) indexes.push(index);
    kept.set(session, indexes);
  }
  for (const [session, indexes] of places) compare(`places of ${session}`, kept.get(session), indexes);
  return wrong;
}
