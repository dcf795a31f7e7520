import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir, totalmem } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { acquire, type DirLock } from '@belay/dirlock';
import pg from 'pg';
import { type Account, assertReachable, chooseAccount } from './embedded-account.js';
import { type Binaries, findBinaries } from './embedded-binaries.js';
import { EmbeddedError } from './embedded-error.js';

/** A PostgreSQL of our own that is answering. */
export interface EmbeddedPostgres {
  /** Superuser of this cluster, over its unix socket. */
  readonly connection: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly password: string;
    readonly database: string;
  };
  /** Process id of the postmaster. */
  readonly pid: number;
  /** Settles when the server ends without having been stopped; the value says how. */
  readonly died: Promise<string>;
  /** Fast shutdown: sessions are ended, everything is written. Can be called again. */
  stop(): Promise<void>;
}

const USER = 'belay';
const DATABASE = 'belay';
/** Only names the socket: nothing listens on TCP. */
const PORT = 5432;
/** sun_path holds 108 bytes on Linux, 104 on macOS, with `.s.PGSQL.5432` and its lock file's name in it. */
const MAX_SOCKET_PATH = 100;
const SOCKET_DIR_PREFIX = 'belay-postgres-';
const START_TIMEOUT_MS = 60_000;
/** What backends of a killed postmaster take to notice and end, and PostgreSQL refuses to start meanwhile. */
const LEFTOVER_BACKENDS_MS = 20_000;
const STOP_TIMEOUT_MS = 60_000;
const MAX_LOG_BYTES = 10 * 1024 * 1024;

/**
 * Starts real PostgreSQL on `<dataDir>/pg`, making both directories if they are not there, and answers when it does.
 * One living caller a directory: DirLocked for the second. Throws EmbeddedError for everything a person has to solve.
 *
 * The server runs in a process group of its own: a Ctrl-C at the terminal reaches us, and we stop it when nothing
 * needs it any more. A server that outlived its caller is stopped before ours starts.
 */
export async function startEmbedded(dataDir: string): Promise<EmbeddedPostgres> {
  const ownDir = join(resolve(dataDir), 'pg');
  const account = chooseAccount(existsSync(ownDir) ? statSync(ownDir).uid : undefined);
  makeDirectories(dirname(ownDir), account ? 0o711 : 0o700);
  if (account) assertReachable(dirname(ownDir), account);
  if (!existsSync(ownDir)) {
    mkdirSync(ownDir, { mode: 0o700 });
    if (account) chownSync(ownDir, account.uid, account.gid);
  }
  const lock = acquire(ownDir);
  try {
    const cluster = new Cluster(ownDir, account, findBinaries(ownDir, account));
    await cluster.stopOrphan();
    const password = await cluster.initialise(join(dirname(ownDir), 'postgres.password'));
    return await cluster.start(password, lock);
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** Every directory that had to be made gets the mode, whatever the umask; what existed keeps its own. */
function makeDirectories(dir: string, mode: number): void {
  if (existsSync(dir)) return;
  makeDirectories(dirname(dir), mode === 0o711 ? mode : 0o755);
  mkdirSync(dir);
  chmodSync(dir, mode);
}

class Cluster {
  readonly #dir: string;
  readonly #data: string;
  readonly #account: Account | undefined;
  readonly #binaries: Binaries;

  constructor(dir: string, account: Account | undefined, binaries: Binaries) {
    this.#dir = dir;
    this.#data = join(dir, 'data');
    this.#account = account;
    this.#binaries = binaries;
  }

  /**
   * Creates the cluster on the first run. Under another name until it is complete: an initdb that was killed leaves
   * nothing that looks like a cluster. The password is made first and kept, so it is never lost for a cluster.
   */
  async initialise(passwordFile: string): Promise<string> {
    if (!existsSync(passwordFile)) {
      if (existsSync(this.#data)) {
        throw new EmbeddedError(
          'start_failed',
          `${passwordFile} is missing: the database in ${this.#data} can't be opened without it`,
        );
      }
      writeFileSync(`${passwordFile}.new`, randomBytes(24).toString('base64url'), {
        mode: 0o600,
        flush: true,
      });
      renameSync(`${passwordFile}.new`, passwordFile);
    }
    const password = readFileSync(passwordFile, 'utf8').trim();
    if (existsSync(this.#data)) return password;

    const draft = join(this.#dir, 'data.new');
    rmSync(draft, { recursive: true, force: true });
    // initdb runs as the other user and can't read ours.
    const handedOver = join(this.#dir, 'initdb.password');
    rmSync(handedOver, { force: true });
    writeFileSync(handedOver, password, { mode: 0o600, flag: 'wx' });
    if (this.#account) chownSync(handedOver, this.#account.uid, this.#account.gid);
    const log = join(this.#dir, 'initdb.log');
    const fd = openSync(log, 'w', 0o600);
    try {
      const child = this.#spawn(
        this.#binaries.initdb,
        [
          `--pgdata=${draft}`,
          `--username=${USER}`,
          `--pwfile=${handedOver}`,
          '--auth=scram-sha-256',
          '--encoding=UTF8',
          '--locale=C',
          '--data-checksums',
          '--no-instructions',
        ],
        fd,
      );
      const outcome = await ended(child);
      if (outcome !== 'exit code 0') {
        throw new EmbeddedError('init_failed', `initdb ended with ${outcome}: ${tail(log)}`);
      }
    } finally {
      closeSync(fd);
      rmSync(handedOver, { force: true });
    }
    renameSync(draft, this.#data);
    return password;
  }

  /**
   * A postmaster whose caller was killed goes on by itself. It is stopped rather than adopted: what we run then is
   * a server we started, with the settings of this version, whose end we notice.
   */
  async stopOrphan(): Promise<void> {
    const pidFile = join(this.#data, 'postmaster.pid');
    if (!existsSync(pidFile)) return;
    const [pidLine = '', , , , socketDir = ''] = readFileSync(pidFile, 'utf8').split('\n');
    const pid = Number(pidLine);
    if (Number.isSafeInteger(pid) && pid > 1 && this.#isPostmaster(pid)) {
      process.kill(pid, 'SIGINT');
      if (!(await this.#gone(pid, STOP_TIMEOUT_MS))) {
        throw new EmbeddedError(
          'orphan',
          `PostgreSQL process ${pid} of an earlier run does not stop; end it by hand`,
        );
      }
    }
    removeSocketDir(socketDir.trim());
  }

  async start(password: string, lock: DirLock): Promise<EmbeddedPostgres> {
    const socketDir = this.#socketDir();
    const connection = { host: socketDir, port: PORT, user: USER, password, database: DATABASE };
    const logPath = join(this.#dir, 'postgres.log');
    if (existsSync(logPath) && statSync(logPath).size > MAX_LOG_BYTES) renameSync(logPath, `${logPath}.1`);

    const giveUp = Date.now() + LEFTOVER_BACKENDS_MS;
    for (;;) {
      const fd = openSync(logPath, 'a', 0o600);
      const logged = statSync(logPath).size;
      const child = this.#spawn(this.#binaries.postgres, ['-D', this.#data, ...settings(socketDir)], fd);
      closeSync(fd);
      const death = ended(child);
      const startup = new AbortController();
      const ready = answers(connection, startup.signal).then(() => createDatabase(connection));
      try {
        const early = await Promise.race([ready, death]);
        if (early === undefined) return this.#running(child, death, connection, lock);
        const said = readFileSync(logPath).subarray(logged).toString('utf8').trim();
        const leftovers = /still in use|is still running|lock file .* already exists/.test(said);
        if (!leftovers || Date.now() > giveUp) {
          throw new EmbeddedError(
            'start_failed',
            `PostgreSQL ended with ${early} while starting: ${said.slice(-2000)}`,
          );
        }
      } catch (error) {
        child.kill('SIGINT');
        await death;
        removeSocketDir(socketDir);
        throw error;
      } finally {
        startup.abort();
      }
      await sleep(200);
    }
  }

  #running(
    child: ChildProcess,
    death: Promise<string>,
    connection: EmbeddedPostgres['connection'],
    lock: DirLock,
  ): EmbeddedPostgres {
    let stopping: Promise<void> | undefined;
    const pid = child.pid as number;
    // Referenced only while it starts and stops: by itself it is no reason for our process to go on.
    child.unref();
    return {
      connection,
      pid,
      died: new Promise((resolveDied) => {
        void death.then((how) => {
          if (!stopping) resolveDied(how);
        });
      }),
      stop: () =>
        (stopping ??= (async () => {
          child.ref();
          child.kill('SIGINT');
          const patience = new AbortController();
          const late = sleep(STOP_TIMEOUT_MS, 'late' as const, { signal: patience.signal }).catch(
            () => 'late' as const,
          );
          // SIGQUIT leaves crash recovery to the next start; nothing committed is lost by it.
          if ((await Promise.race([death, late])) === 'late') child.kill('SIGQUIT');
          await death;
          patience.abort();
          removeSocketDir(connection.host);
          lock.release();
        })()),
    };
  }

  #spawn(program: string, args: readonly string[], log: number): ChildProcess {
    return spawn(program, args, {
      cwd: this.#dir,
      env: { ...this.#binaries.env },
      stdio: ['ignore', log, log],
      detached: true,
      ...(this.#account && { uid: this.#account.uid, gid: this.#account.gid }),
    });
  }

  /** A directory only PostgreSQL's user can enter, and whose socket's path fits. */
  #socketDir(): string {
    const dir = join(this.#dir, 'run');
    if (join(dir, `.s.PGSQL.${PORT}.lock`).length <= MAX_SOCKET_PATH) {
      if (!existsSync(dir)) {
        mkdirSync(dir, { mode: 0o700 });
        if (this.#account) chownSync(dir, this.#account.uid, this.#account.gid);
      }
      return dir;
    }
    const short = mkdtempSync(join(tmpdir(), SOCKET_DIR_PREFIX));
    if (this.#account) chownSync(short, this.#account.uid, this.#account.gid);
    return short;
  }

  /** The pid of postmaster.pid may have been given to another process since. */
  #isPostmaster(pid: number): boolean {
    try {
      process.kill(pid, 0);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    }
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(this.#data);
    } catch {
      // No /proc: PostgreSQL's own rule is that a living pid in the file is the postmaster.
      return !existsSync('/proc/self');
    }
  }

  async #gone(pid: number, timeoutMs: number): Promise<boolean> {
    const deadline = Date.now() + timeoutMs;
    while (this.#isPostmaster(pid)) {
      if (Date.now() > deadline) return false;
      await sleep(50);
    }
    return true;
  }
}

/**
 * Settings on the command line win over every file in the cluster, so nothing edited or `alter system`-ed there
 * weakens what an acknowledgement promises.
 */
function settings(socketDir: string): string[] {
  const megabytes = Math.floor(totalmem() / 2 ** 20);
  const shared = Math.max(128, Math.min(1024, Math.floor(megabytes / 16)));
  const values: Record<string, string> = {
    listen_addresses: '',
    unix_socket_directories: socketDir,
    unix_socket_permissions: '0700',
    port: String(PORT),
    fsync: 'on',
    synchronous_commit: 'on',
    full_page_writes: 'on',
    shared_buffers: `${shared}MB`,
    max_wal_size: '4GB',
    min_wal_size: '256MB',
    checkpoint_timeout: '15min',
    wal_compression: 'on',
    max_connections: '100',
    jit: 'off',
    logging_collector: 'off',
    log_min_messages: 'warning',
    log_line_prefix: '%m [%p] ',
    log_timezone: 'UTC',
    timezone: 'UTC',
  };
  return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/** Resolves once a session can be opened. Rejects after START_TIMEOUT_MS. */
async function answers(connection: EmbeddedPostgres['connection'], signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    signal.throwIfAborted();
    try {
      await withClient({ ...connection, database: 'postgres' }, (client) => client.query('select 1'));
      return;
    } catch (error) {
      // 28P01: it answers, and will not change its mind about the password.
      if ((error as { code?: string }).code === '28P01') {
        throw new EmbeddedError('start_failed', 'PostgreSQL refuses the password in postgres.password');
      }
      if (Date.now() > deadline) {
        throw new EmbeddedError('start_failed', `PostgreSQL does not answer: ${(error as Error).message}`);
      }
    }
    await sleep(30);
  }
}

async function createDatabase(connection: EmbeddedPostgres['connection']): Promise<void> {
  await withClient({ ...connection, database: 'postgres' }, async (client) => {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE]);
    if (!rowCount) await client.query(`create database ${pg.escapeIdentifier(DATABASE)}`);
  });
}

async function withClient<T>(config: pg.ClientConfig, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(config);
  // An error of the connection is also the error of the query in flight; without a listener it ends the process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await use(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** Only what `mkdtemp` made for us above: never a directory that somebody else's file names. */
function removeSocketDir(dir: string): void {
  if (!dir.startsWith(join(tmpdir(), SOCKET_DIR_PREFIX))) return;
  if (!existsSync(dir) || !lstatSync(dir).isDirectory()) return;
  rmSync(dir, { recursive: true, force: true });
}

function ended(child: ChildProcess): Promise<string> {
  return new Promise((resolveEnd) => {
    child.once('error', (error) => resolveEnd(error.message));
    child.once('exit', (code, signal) => resolveEnd(signal ? `signal ${signal}` : `exit code ${code}`));
  });
}

function tail(path: string): string {
  return readFileSync(path, 'utf8').trim().slice(-2000);
}
