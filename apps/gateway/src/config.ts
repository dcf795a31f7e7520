import { type NatsServers, parseNatsUrl } from '@belay/contracts/rpc';
import type { Connection, ProcessRole } from '@belay/db';
import { MAX_RECEIPT_ENTRIES } from '@belay/receipt';

/** Settings of the gateway. `readConfig` makes it from the environment; `belay serve` makes its own. */
export interface GatewayConfig {
  /** `HOST`: address to listen on. Default 127.0.0.1; a container sets 0.0.0.0. */
  readonly host: string;
  /** `PORT`: default 8420; 0 takes a free one. */
  readonly port: number;
  /** `MAX_APPENDS`: appends in flight before 503. Default 256. */
  readonly maxAppends: number;
  /** `MAX_APPEND_BYTES`: bytes of bodies in flight before 503. Default 256 MiB. */
  readonly maxAppendBytes: number;
  /** `APPEND_IDLE`: seconds that may pass between two pieces of a body. Default 10. */
  readonly appendIdleMs: number;
  /** `APPEND_TIMEOUT`: seconds a body has to arrive. Default 30. */
  readonly appendTimeoutMs: number;
  /** `MAX_RECEIPT_ENTRIES`: entries of one receipt. Default 2000, at most what a receipt may hold. */
  readonly maxReceiptEntries: number;
  /** `MAX_ANSWER_BYTES`: bytes of large answers that are made and not yet read, before 503. Default 64 MiB. */
  readonly maxAnswerBytes: number;
  /** `EXPORT_DIR`: folder that the worker writes exports to and this process reads. Unset: no exports here. */
  readonly exportDir: string | undefined;
  /** `MAX_OPEN_EXPORTS`: exports of one project that wait or are being made. Default 4. */
  readonly maxOpenExports: number;
  /** `MAX_EXPORTS`: exports of one project that are kept until somebody removes them. Default 32. */
  readonly maxExports: number;
  /** `MAX_DOWNLOADS`: files being read before 503; half of them by one project. Default 32. */
  readonly maxDownloads: number;
  /** `MAX_WAITERS`: requests that wait for something to happen before 503; half of them by one project. Default 512. */
  readonly maxWaiters: number;
  /** `MAX_WEBHOOKS`: of one project. Default 16. */
  readonly maxWebhooks: number;
  /** `WEBHOOK_PRIVATE`: 1 lets webhooks be plain `http`. The worker has one of the same name for addresses. */
  readonly webhookPrivate: boolean;
  /** `COLLECTOR_TIMEOUT`: seconds to wait for the collector before 503. Default 10: a request that was lost on the way is known to be lost only by this. */
  readonly collectorTimeoutMs: number;
}

/** What a gateway needs as a process of its own. */
export interface GatewayProcessConfig extends GatewayConfig {
  /** `DATABASE_URL`, required. Its user has to be a member of the role. */
  readonly database: Connection;
  /** `DATABASE_ROLE`: role taken on after login. Default belay_gateway; `none` keeps the login's own rights. */
  readonly role: ProcessRole | undefined;
  /** `DATABASE_POOL`: connections at most. Default 10. */
  readonly pool: number;
  /** `NATS_URL`, required: comma-separated servers, `nats://user:password@host:4222` or `nats://token@host:4222`. */
  readonly nats: NatsServers;
  /** `LOG_LEVEL`: default info. */
  readonly logLevel: string;
}

export const DEFAULTS: GatewayConfig = Object.freeze({
  host: '127.0.0.1',
  port: 8420,
  maxAppends: 256,
  maxAppendBytes: 256 * 1024 * 1024,
  appendIdleMs: 10_000,
  appendTimeoutMs: 30_000,
  maxReceiptEntries: 2000,
  maxAnswerBytes: 64 * 1024 * 1024,
  exportDir: undefined,
  maxOpenExports: 4,
  maxExports: 32,
  maxDownloads: 32,
  maxWaiters: 512,
  maxWebhooks: 16,
  webhookPrivate: false,
  collectorTimeoutMs: 10_000,
});

/** The environment can't be what was meant; the process must not start on a guess. */
export class ConfigError extends Error {
  constructor(variable: string, message: string) {
    super(`${variable}: ${message}`);
    this.name = 'ConfigError';
  }
}

/** Reads and checks the environment. Throws ConfigError. */
export function readConfig(
  env: Readonly<Record<string, string | undefined>> = process.env,
): GatewayProcessConfig {
  return Object.freeze({
    host: env['HOST'] ?? DEFAULTS.host,
    port: integer(env, 'PORT', DEFAULTS.port, 0, 65_535),
    maxAppends: integer(env, 'MAX_APPENDS', DEFAULTS.maxAppends, 1, 100_000),
    maxAppendBytes: integer(
      env,
      'MAX_APPEND_BYTES',
      DEFAULTS.maxAppendBytes,
      8 * 1024 * 1024,
      Number.MAX_SAFE_INTEGER,
    ),
    appendIdleMs: 1000 * integer(env, 'APPEND_IDLE', DEFAULTS.appendIdleMs / 1000, 1, 300),
    appendTimeoutMs: 1000 * integer(env, 'APPEND_TIMEOUT', DEFAULTS.appendTimeoutMs / 1000, 1, 300),
    maxReceiptEntries: integer(
      env,
      'MAX_RECEIPT_ENTRIES',
      DEFAULTS.maxReceiptEntries,
      1,
      MAX_RECEIPT_ENTRIES,
    ),
    maxAnswerBytes: integer(
      env,
      'MAX_ANSWER_BYTES',
      DEFAULTS.maxAnswerBytes,
      16 * 1024 * 1024,
      Number.MAX_SAFE_INTEGER,
    ),
    exportDir: env['EXPORT_DIR'] || undefined,
    maxOpenExports: integer(env, 'MAX_OPEN_EXPORTS', DEFAULTS.maxOpenExports, 1, 1000),
    maxExports: integer(env, 'MAX_EXPORTS', DEFAULTS.maxExports, 1, 100_000),
    maxDownloads: integer(env, 'MAX_DOWNLOADS', DEFAULTS.maxDownloads, 2, 10_000),
    maxWaiters: integer(env, 'MAX_WAITERS', DEFAULTS.maxWaiters, 2, 10_000),
    maxWebhooks: integer(env, 'MAX_WEBHOOKS', DEFAULTS.maxWebhooks, 1, 1000),
    webhookPrivate: integer(env, 'WEBHOOK_PRIVATE', 0, 0, 1) === 1,
    collectorTimeoutMs: 1000 * integer(env, 'COLLECTOR_TIMEOUT', DEFAULTS.collectorTimeoutMs / 1000, 1, 300),
    database: required(env, 'DATABASE_URL', /^postgres(?:ql)?:\/\//),
    role: processRole(env['DATABASE_ROLE']),
    pool: integer(env, 'DATABASE_POOL', 10, 1, 1000),
    nats: natsServers(env),
    logLevel: env['LOG_LEVEL'] ?? 'info',
  });
}

function required(env: Readonly<Record<string, string | undefined>>, name: string, shape: RegExp): string {
  const value = env[name];
  if (!value) throw new ConfigError(name, 'has to be set');
  if (!shape.test(value)) throw new ConfigError(name, `does not look like ${shape.source}`);
  return value;
}

function natsServers(env: Readonly<Record<string, string | undefined>>): NatsServers {
  try {
    return parseNatsUrl(required(env, 'NATS_URL', /^./));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new ConfigError('NATS_URL', error.message);
  }
}

function integer(
  env: Readonly<Record<string, string | undefined>>,
  name: string,
  otherwise: number,
  min: number,
  max: number,
): number {
  const text = env[name];
  if (text === undefined || text === '') return otherwise;
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max))
    throw new ConfigError(name, `has to be a whole number from ${min} to ${max}`);
  return value;
}

function processRole(text: string | undefined): ProcessRole | undefined {
  switch (text) {
    case undefined:
    case '':
    case 'belay_gateway':
      return 'belay_gateway';
    case 'none':
      return undefined;
    default:
      throw new ConfigError('DATABASE_ROLE', 'has to be belay_gateway or none');
  }
}
