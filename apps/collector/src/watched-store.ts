import { type Connection, PgLogStore, type PoolOptions } from '@belay/db';
import type { LogRecord, LogTx, NewLog } from '@belay/log';

/**
 * Milliseconds a failed write is held against the database. It has to end by itself: a service that is taken out of
 * rotation for it gets no append that would show that there is room again.
 */
const BELIEVED_MS = 30_000;

/** The log on PostgreSQL, which remembers whether the database takes writes. */
export class WatchedStore extends PgLogStore {
  readonly #now: () => number;
  #refused: { readonly at: number; readonly why: string } | undefined;

  constructor(connection: Connection, options: PoolOptions, now: () => number) {
    super(connection, options);
    this.#now = now;
  }

  /** What the database said when it last refused a write, unless one succeeded since or that is long ago. */
  trouble(): string | null {
    const refused = this.#refused;
    if (!refused || this.#now() - refused.at > BELIEVED_MS) return null;
    return `the database takes no writes: ${refused.why}`;
  }

  override async transact<T>(target: LogRecord | NewLog, work: (tx: LogTx) => Promise<T>): Promise<T> {
    let wrote = false;
    try {
      const result = await super.transact(target, async (tx) => {
        const write = tx.write.bind(tx);
        tx.write = (what) => {
          wrote = true;
          return write(what);
        };
        return await work(tx);
      });
      // One that had nothing to write proves nothing.
      if (wrote) this.#refused = undefined;
      return result;
    } catch (error) {
      if (isStorage(error)) this.#refused = { at: this.#now(), why: (error as Error).message };
      throw error;
    }
  }
}

/** Full or broken disks, a server that is out of memory, and one that only reads: classes 53 and 58, XX001/2, 25006. */
function isStorage(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' && /^(?:53[124]..|58...|XX00[12]|25006)$/.test(code);
}
