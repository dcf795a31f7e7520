/** What `belay serve` is told and what it tells: apart from what it runs, which is loaded only then. */

export interface ServeOptions {
  /** Keys, anchor, and the embedded database. Made when it is not there. */
  readonly dataDir: string;
  /** Default 127.0.0.1. */
  readonly host?: string | undefined;
  /** 0 takes a free one; default 8420. */
  readonly port?: number | undefined;
  /** A PostgreSQL to use in place of the embedded one. */
  readonly databaseUrl?: string | undefined;
  readonly originPrefix?: string | undefined;
  readonly passphraseFile?: string | undefined;
  /** Of the log on standard error. */
  readonly logLevel?: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent' | undefined;
  /** Where the log goes; default standard error. */
  readonly logTo?: { write(line: string): void } | undefined;
  /**
   * Told when requests are taken, and has to have told a person when it resolves: an operator key counts only from
   * then on.
   */
  readonly announce?: ((ready: Announcement) => Promise<void>) | undefined;
  /** Milliseconds between checkpoints of a log that grows. */
  readonly publishIntervalMs?: number | undefined;
  /** Whether webhooks may be plain HTTP, at private addresses, and on this machine. */
  readonly webhookPrivate?: boolean | undefined;
}

export interface Announcement {
  readonly url: string;
  /** Of the first operator, on the first start only; stored nowhere. */
  readonly operatorKey: string | undefined;
  /** What somebody has to look at. */
  readonly warnings: readonly string[];
}

export interface RunningService extends Announcement {
  /** Resolves when the database has ended under the service; the value says how. */
  readonly failed: Promise<string>;
  /** Finishes what was taken on; then nothing of it runs any more. */
  close(): Promise<void>;
}
