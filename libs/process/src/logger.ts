import { redactCredentials } from '@belay/contracts';
import { type DestinationStream, type Logger, pino } from 'pino';

/**
 * JSON lines to standard output. No header and no body is ever logged; whatever text still comes to hold a credential
 * (an error's message, a URL somebody pasted a token into) loses it on the way out.
 */
export function createLogger(name: string, level: string, destination?: DestinationStream): Logger {
  const options = {
    name,
    level,
    redact: { paths: ['authorization', '*.authorization', '*.headers.authorization'], censor: '[redacted]' },
    hooks: { streamWrite: redactCredentials },
  };
  return destination ? pino(options, destination) : pino(options);
}

/** What Nest takes as its logger, by shape: this package doesn't know Nest. */
interface NestLogger {
  readonly log: (message: unknown, ...rest: unknown[]) => void;
  readonly error: (message: unknown, ...rest: unknown[]) => void;
  readonly warn: (message: unknown, ...rest: unknown[]) => void;
  readonly debug: (message: unknown, ...rest: unknown[]) => void;
  readonly verbose: (message: unknown, ...rest: unknown[]) => void;
  readonly fatal: (message: unknown, ...rest: unknown[]) => void;
}

/** Nest's own words go the same way. */
export function asNestLogger(log: Logger): NestLogger {
  const context = (rest: readonly unknown[]) => ({ context: rest[rest.length - 1] });
  return {
    log: (message: unknown, ...rest: unknown[]) => log.debug(context(rest), String(message)),
    error: (message: unknown, ...rest: unknown[]) =>
      log.error({ ...context(rest), ...(message instanceof Error && { err: message }) }, String(message)),
    warn: (message: unknown, ...rest: unknown[]) => log.warn(context(rest), String(message)),
    debug: (message: unknown, ...rest: unknown[]) => log.debug(context(rest), String(message)),
    verbose: (message: unknown, ...rest: unknown[]) => log.trace(context(rest), String(message)),
    fatal: (message: unknown, ...rest: unknown[]) => log.fatal(context(rest), String(message)),
  };
}
