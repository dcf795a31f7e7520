import { type NatsServers, parseNatsUrl } from '@belay/contracts/rpc';
import type { Connection, ProcessRole } from '@belay/db';

/** What a worker needs as a process of its own. */
export interface WorkerProcessConfig {
  /** `DATABASE_URL`, required. Its user has to be a member of the role. */
  readonly database: Connection;
  /** `DATABASE_ROLE`: role taken on after login. Default belay_worker; `none` keeps the login's own rights. */
  readonly role: ProcessRole | undefined;
  /** `DATABASE_POOL`: connections at most, twice; and three more that entries are read on. Default 10. */
  readonly pool: number;
  /** `NATS_URL`, required: comma-separated servers, `nats://user:password@host:4222` or `nats://token@host:4222`. */
  readonly nats: NatsServers;
  /** `REDIS_URL`: jobs by BullMQ. Without it this worker sweeps on a timer of its own, which is as good for one worker. */
  readonly redis: string | undefined;
  /** `PUBLISH_INTERVAL_MS`: a grown log gets a checkpoint this often. Default 1000. */
  readonly intervalMs: number;
  /** `COLLECTOR_TIMEOUT`: seconds to wait for the collector. Default 10. */
  readonly collectorTimeoutMs: number;
  /** `HEALTH_PORT`: `/healthz` on the loopback address. Default 8422; 0 takes a free one. */
  readonly healthPort: number;
  /** `EXPORT_DIR`: folder that exports are made in and the gateway reads. Unset: this worker makes none. */
  readonly exportDir: string | undefined;
  /** `EXPORT_KEEP_DAYS`: an export is removed so many days after it was made. Default 7. */
  readonly exportKeepDays: number;
  /** `EXPORT_MAX_MB`: what all exports in the folder may take; past it, making one fails. Default 20480. */
  readonly exportMaxBytes: number;
  /** `WEBHOOK_PRIVATE`: 1 lets webhooks be at private addresses, and on this machine. Default 0. */
  readonly webhookPrivate: boolean;
  /** `LOG_LEVEL`: default info. */
  readonly logLevel: string;
}

/** The environment can't be what was meant; the process must not start on a guess. */
export class ConfigError extends Error {
  constructor(variable: string, message: string) {
    super(`${variable}: ${message}`);
    this.name = 'ConfigError';
  }
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads and checks the environment. Throws ConfigError. */
export function readConfig(env: Environment = process.env): WorkerProcessConfig {
  return Object.freeze({
    database: required(env, 'DATABASE_URL', /^postgres(?:ql)?:\/\//),
    role: processRole(env['DATABASE_ROLE']),
    pool: integer(env, 'DATABASE_POOL', 10, 1, 1000),
    nats: natsServers(env),
    redis: env['REDIS_URL'] ? required(env, 'REDIS_URL', /^rediss?:\/\//) : undefined,
    intervalMs: integer(env, 'PUBLISH_INTERVAL_MS', 1000, 50, 3_600_000),
    collectorTimeoutMs: 1000 * integer(env, 'COLLECTOR_TIMEOUT', 10, 1, 300),
    healthPort: integer(env, 'HEALTH_PORT', 8422, 0, 65_535),
    exportDir: env['EXPORT_DIR'] || undefined,
    exportKeepDays: integer(env, 'EXPORT_KEEP_DAYS', 7, 1, 36_600),
    exportMaxBytes: 1024 * 1024 * integer(env, 'EXPORT_MAX_MB', 20_480, 1, 1024 * 1024 * 1024),
    webhookPrivate: integer(env, 'WEBHOOK_PRIVATE', 0, 0, 1) === 1,
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

function processRole(text: string | undefined): ProcessRole | undefined {
  if (text === 'none') return undefined;
  if (!text || text === 'belay_worker') return 'belay_worker';
  throw new ConfigError('DATABASE_ROLE', 'has to be belay_worker or none');
}
