import { homedir } from 'node:os';
import { join } from 'node:path';
import { isatty } from 'node:tty';

/** What the environment says to the CLI. The only place of this app that reads it; options win over it. */
export interface CliConfig {
  /** `BELAY_URL`: base URL of the service. Wins over the credentials file. */
  readonly url: string | undefined;
  /** `BELAY_TOKEN`: an append token. Wins over the credentials file. */
  readonly token: string | undefined;
  /** `BELAY_ADMIN_KEY`: for project, token, auditor and sink commands, so that it needn't stand in a shell history. */
  readonly adminKey: string | undefined;
  /** `BELAY_OPERATOR_KEY`: for `tenant create`. */
  readonly operatorKey: string | undefined;
  /** `BELAY_AUDITOR_KEY`: for reading receipts and a log that isn't public. */
  readonly auditorKey: string | undefined;
  /** `BELAY_SESSION`: the agent's own id of its run, shared by all sinks that watch it. */
  readonly session: string | undefined;
  /** `BELAY_TRACE_DIR`: where traces go; alone, it is enough to record. */
  readonly traceDir: string | undefined;
  /** `BELAY_SANDBOX_SCOPE`: the folder that a contained server may write; `BELAY_SANDBOX_NETWORK`: what it may reach. */
  readonly sandboxScope: string | undefined;
  readonly sandboxNetwork: string | undefined;
  /** `BELAY_SNAPSHOT_DIR`: where states of the workspace are kept, else in the state directory. */
  readonly snapshotDir: string | undefined;
  /** `BELAY_STATE`, else `$XDG_STATE_HOME/belay`: traces, spools, secrets; mode 0700. */
  readonly state: string;
  /** `$XDG_CONFIG_HOME/belay/credentials`; mode 0600. */
  readonly credentials: string;
  /** `$XDG_CONFIG_HOME/belay/settings.json`; what the four below say wins over it. */
  readonly settings: string;
  /** `BELAY_PRIVACY`: `minimal` or `strict`. */
  readonly privacy: string | undefined;
  /** `BELAY_HEARTBEAT`: seconds between two signs of life of an open sink. */
  readonly heartbeat: string | undefined;
  /** `BELAY_SPOOL_BYTES`, `BELAY_SPOOL_DAYS`: how much may wait on this machine for one log, and how long. */
  readonly spoolBytes: string | undefined;
  readonly spoolDays: string | undefined;
  /** `BELAY_FILTER`: kinds of lines that are not sent, `[SINK/]KIND` with commas between them. */
  readonly filter: string | undefined;
  /** `DATABASE_URL`: an existing PostgreSQL in place of the embedded one. */
  readonly databaseUrl: string | undefined;
  /** `BELAY_DEBUG`: stack traces with errors. */
  readonly debug: boolean;
  /** Colours: standard output is a terminal and `NO_COLOR` is not set. */
  readonly colour: boolean;
  /** The whole environment, handed to a child that is to see what we saw. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export function readConfig(): CliConfig {
  const env = process.env;
  const set = (name: string): string | undefined => env[name] || undefined;
  return Object.freeze({
    url: set('BELAY_URL'),
    token: set('BELAY_TOKEN'),
    adminKey: set('BELAY_ADMIN_KEY'),
    operatorKey: set('BELAY_OPERATOR_KEY'),
    auditorKey: set('BELAY_AUDITOR_KEY'),
    session: set('BELAY_SESSION'),
    traceDir: set('BELAY_TRACE_DIR'),
    sandboxScope: set('BELAY_SANDBOX_SCOPE'),
    sandboxNetwork: set('BELAY_SANDBOX_NETWORK'),
    snapshotDir: set('BELAY_SNAPSHOT_DIR'),
    state: set('BELAY_STATE') ?? join(set('XDG_STATE_HOME') ?? join(homedir(), '.local', 'state'), 'belay'),
    credentials: join(set('XDG_CONFIG_HOME') ?? join(homedir(), '.config'), 'belay', 'credentials'),
    settings: join(set('XDG_CONFIG_HOME') ?? join(homedir(), '.config'), 'belay', 'settings.json'),
    privacy: set('BELAY_PRIVACY'),
    heartbeat: set('BELAY_HEARTBEAT'),
    spoolBytes: set('BELAY_SPOOL_BYTES'),
    spoolDays: set('BELAY_SPOOL_DAYS'),
    filter: set('BELAY_FILTER'),
    databaseUrl: set('DATABASE_URL'),
    debug: set('BELAY_DEBUG') !== undefined,
    // Not `process.stdout.isTTY`: touching that stream makes it blocking, which a proxy must not have.
    colour: isatty(1) && set('NO_COLOR') === undefined,
    environment: env,
  });
}
