import { type NatsServers, parseNatsUrl } from '@belay/contracts/rpc';
import type { Connection, ProcessRole } from '@belay/db';

/** What a collector is, in whatever process it runs. */
export interface CollectorConfig {
  /**
   * `BELAY_DATA`: directory of the log keys (`keys/`) and of the anchor (`anchor/`). Required; made 0700 when it is
   * not there. Losing it means that no old log can be signed for again.
   */
  readonly dataDir: string;
  /**
   * `KEYS_DIR`: the log keys, where they are not in `BELAY_DATA`. Collectors that share a database share their keys,
   * and have an anchor each.
   */
  readonly keysDir: string | undefined;
  /** `ORIGIN_PREFIX`: what the origins of new logs begin with. Default belay.local. */
  readonly originPrefix: string;
  /** `KEY_PASSPHRASE_FILE`: file with the passphrase of the key files. Default: they are not sealed. */
  readonly passphraseFile: string | undefined;
  /** `DATABASE_POOL`: connections at most, for writing and for reading each. Default 10. */
  readonly pool: number;
  /** `DATABASE_ROLE`: role taken on after login. Default belay_collector; `none` keeps the login's own rights. */
  readonly role: ProcessRole | undefined;
}

/** What a collector needs as a process of its own. */
export interface CollectorProcessConfig extends CollectorConfig {
  /** `DATABASE_URL`, required. */
  readonly database: Connection;
  /** `MIGRATE`: `yes` (default) brings the schema up to date at start, for which the login has to own it; or `no`. */
  readonly migrate: boolean;
  /** `NATS_URL`, required: comma-separated servers, `nats://user:password@host:4222` or `nats://token@host:4222`. */
  readonly nats: NatsServers;
  /** `HEALTH_PORT`: `/healthz` on the loopback address. Default 8421; 0 takes a free one. */
  readonly healthPort: number;
  /** `LOG_LEVEL`: default info. */
  readonly logLevel: string;
}

export const DEFAULT_ORIGIN_PREFIX = 'belay.local';

/** The environment can't be what was meant; the process must not start on a guess. */
export class ConfigError extends Error {
  constructor(variable: string, message: string) {
    super(`${variable}: ${message}`);
    this.name = 'ConfigError';
  }
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads and checks the environment. Throws ConfigError. */
export function readConfig(env: Environment = process.env): CollectorProcessConfig {
  return Object.freeze({
    dataDir: required(env, 'BELAY_DATA', /^./),
    keysDir: env['KEYS_DIR'] || undefined,
    originPrefix: originPrefix(env['ORIGIN_PREFIX']),
    passphraseFile: env['KEY_PASSPHRASE_FILE'] || undefined,
    pool: integer(env, 'DATABASE_POOL', 10, 2, 1000),
    role: processRole(env['DATABASE_ROLE']),
    database: required(env, 'DATABASE_URL', /^postgres(?:ql)?:\/\//),
    migrate: yesOrNo(env, 'MIGRATE', true),
    nats: natsServers(env),
    healthPort: integer(env, 'HEALTH_PORT', 8421, 0, 65_535),
    logLevel: env['LOG_LEVEL'] || 'info',
  });
}

function required(env: Environment, name: string, shape: RegExp): string {
  const value = env[name];
  if (!value) throw new ConfigError(name, 'has to be set');
  if (!shape.test(value)) throw new ConfigError(name, `does not look like ${shape.source}`);
  return value;
}

function natsServers(env: Environment): NatsServers {
  try {
    return parseNatsUrl(required(env, 'NATS_URL', /^./));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new ConfigError('NATS_URL', error.message);
  }
}

function integer(env: Environment, name: string, otherwise: number, min: number, max: number): number {
  const text = env[name];
  if (!text) return otherwise;
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max))
    throw new ConfigError(name, `has to be a whole number from ${min} to ${max}`);
  return value;
}

function yesOrNo(env: Environment, name: string, otherwise: boolean): boolean {
  const text = env[name];
  if (!text) return otherwise;
  if (text !== 'yes' && text !== 'no') throw new ConfigError(name, 'has to be yes or no');
  return text === 'yes';
}

/** Room is left for `/log_` and an identifier in the 255 bytes of an origin. */
function originPrefix(text: string | undefined): string {
  const prefix = text || DEFAULT_ORIGIN_PREFIX;
  if (!/^[A-Za-z0-9._/:-]{1,200}$/.test(prefix) || prefix.endsWith('/')) {
    throw new ConfigError('ORIGIN_PREFIX', 'has to be 1-200 of A-Z a-z 0-9 . _ / : - and not to end in /');
  }
  return prefix;
}

function processRole(text: string | undefined): ProcessRole | undefined {
  if (text === 'none') return undefined;
  if (!text || text === 'belay_collector') return 'belay_collector';
  throw new ConfigError('DATABASE_ROLE', 'has to be belay_collector or none');
}
