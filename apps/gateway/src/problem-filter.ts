import {
  type ArgumentsHost,
  Catch,
  type ExceptionFilter,
  HttpException,
  NotFoundException,
} from '@nestjs/common';
import type { ProblemCode } from '@belay/contracts/http';
import { databaseTrouble } from '@belay/db';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { notFound, PROBLEM_TYPE, ProblemError } from './problem.js';
import type { Routes } from './routes.js';

/** Fastify's own refusals, by its codes; they come before any of our code saw the request. */
const FASTIFY: Readonly<Record<string, readonly [ProblemCode, string]>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ['unsupported_media_type', 'This body is of no type that is taken here.'],
  FST_ERR_CTP_BODY_TOO_LARGE: ['body_too_large', 'The body is too large.'],
  FST_ERR_CTP_EMPTY_JSON_BODY: ['invalid_json', 'The body is empty; it has to be JSON.'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ['invalid', 'The body is not as long as Content-Length says.'],
  FST_ERR_CTP_INVALID_JSON_BODY: ['invalid_json', 'The body is not JSON.'],
  FST_ERR_BAD_URL: ['invalid', 'The URL is malformed.'],
  FST_ERR_MAX_PARAM_LENGTH: ['not_found', ''],
};

const NO_METHOD = 'There is no such method here.';
const BY_STATUS: Readonly<Record<number, readonly [ProblemCode, string]>> = {
  400: ['invalid', 'The request can not be taken as it is.'],
  405: ['method_not_allowed', NO_METHOD],
  406: ['not_acceptable', 'There is no such representation.'],
  408: ['request_timeout', 'The request took too long to arrive.'],
  413: ['body_too_large', 'The body is too large.'],
  414: ['invalid', 'The URL is too long.'],
  415: ['unsupported_media_type', 'This body is of no type that is taken here.'],
  503: ['unavailable', 'The service can not answer now.'],
};

/** Turns everything thrown into problem details. What we did not foresee is logged whole and answered with nothing of it. */
@Catch()
export class ProblemFilter implements ExceptionFilter {
  readonly #log: Logger;
  readonly #routes: Routes;

  constructor(log: Logger, routes: Routes) {
    this.#log = log;
    this.#routes = routes;
  }

  catch(error: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    const { method, url } = http.getRequest<FastifyRequest>();
    const problem = error instanceof NotFoundException ? this.#noRoute(method, url) : toProblem(error);
    if (problem.code === 'unavailable' && problem !== error) this.#log.warn({ err: error }, 'unavailable');
    if (problem.code === 'internal') {
      this.#log.error({ err: error, method, url }, 'unexpected error');
    }
    const reply = http.getResponse<FastifyReply>();
    if (!reply.sent) sendProblem(reply, problem);
  }

  #noRoute(method: string, url: string): ProblemError {
    const allow = this.#routes.methodsAt(url);
    return allow.length === 0 || allow.includes(method)
      ? notFound()
      : new ProblemError('method_not_allowed', NO_METHOD, { allow });
  }
}

/** The one way a problem leaves. */
export function sendProblem(reply: FastifyReply, problem: ProblemError): void {
  void reply.send(sendable(reply, problem));
}

/** Makes the reply that of a problem and returns what is to be sent. */
export function sendable(reply: FastifyReply, problem: ProblemError): string {
  // Fastify closes the connection after a body it did not read, and a sender in the middle of it would see a reset in
  // place of the answer. Node throws away what still comes instead, for no longer than the request's timeout.
  if (problem.code === 'request_timeout') void reply.header('connection', 'close');
  else if (problem.code !== 'shutting_down') reply.removeHeader('connection');
  void reply.status(problem.status).headers(problem.headers()).type(PROBLEM_TYPE);
  return JSON.stringify(problem.body());
}

export function toProblem(error: unknown): ProblemError {
  if (error instanceof ProblemError) return error;
  if (databaseTrouble(error) === 'away') {
    return new ProblemError('unavailable', 'The database can not be reached now.', { retryAfter: 1 });
  }
  const code = (error as { code?: unknown } | undefined)?.code;
  const known = typeof code === 'string' ? FASTIFY[code] : undefined;
  if (known) return known[0] === 'not_found' ? notFound() : new ProblemError(...known);
  const status =
    error instanceof HttpException
      ? error.getStatus()
      : (error as { statusCode?: number } | undefined)?.statusCode;
  // Refusals of what serves the pages of the documentation are no matter of credentials.
  if (status === 403 || status === 404) return notFound();
  const refusal = status !== undefined && status >= 400 && status < 500 ? BY_STATUS[400] : undefined;
  const byStatus = (status === undefined ? undefined : BY_STATUS[status]) ?? refusal;
  if (byStatus) return new ProblemError(...byStatus);
  return new ProblemError('internal', 'Something went wrong on our side; the log of the service says what.');
}
