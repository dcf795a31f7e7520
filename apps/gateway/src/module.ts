import 'reflect-metadata';
import { type DynamicModule, Module } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR, NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import type { Collector } from './collector.js';
import type { Reader } from '@belay/db';
import type { ConnectionError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { Authenticator } from './access.js';
import { Admission } from './admission.js';
import { MAX_HELD_BYTES } from './body.js';
import { Unreadable } from './client-error.js';
import type { GatewayConfig } from './config.js';
import { CoverageController } from './coverage.controller.js';
import { Downloads } from './downloads.js';
import { EventsController, NDJSON } from './events.controller.js';
import { ExportsController } from './exports.controller.js';
import { AccessGuard, holderOf } from './guard.js';
import { Issuer, type Source } from './issue.js';
import { asNestLogger } from '@belay/process';
import { LogsController } from './logs.controller.js';
import { Metrics } from './metrics.js';
import { serveDocs } from './openapi.js';
import { limitOutgoing } from './outgoing.js';
import { Places } from './places.js';
import { PolicyController } from './policy.controller.js';
import { ProblemFilter, sendProblem, toProblem } from './problem-filter.js';
import { ProblemError } from './problem.js';
import { ProjectsController } from './projects.controller.js';
import { ReceiptsController } from './receipts.controller.js';
import { Routes } from './routes.js';
import { ServiceController } from './service.controller.js';
import { SessionsController } from './sessions.controller.js';
import { StillAllowed } from './still-allowed.js';
import { TenantsController } from './tenants.controller.js';
import {
  ADMISSION,
  COLLECTOR,
  CONFIG,
  DOWNLOADS,
  ISSUER,
  METRICS,
  PLACES,
  READER,
  READY,
  SOURCE,
  WAITING,
} from './tokens.js';
import { Waiting } from './waiting.js';
import { WebhooksController } from './webhooks.controller.js';

/** Bytes of an administrator's JSON. */
const MAX_JSON_BYTES = 64 * 1024;
/** Time a sender has for a whole request. */
const REQUEST_TIMEOUT_MS = 60_000;

/** What a gateway is made of. The collector may be in this process or at the other end of NATS. */
export interface GatewayParts {
  readonly config: GatewayConfig;
  readonly collector: Collector;
  readonly reader: Reader;
  readonly log: Logger;
  readonly source: Source;
  /** Throws while a part that the gateway can't do without is out of reach; beyond the reader, which is asked anyway. */
  readonly ready?: () => Promise<void>;
}

@Module({})
export class GatewayModule {
  static of(parts: GatewayParts, routes: Routes): DynamicModule {
    const { config, collector, reader, log, source } = parts;
    const guard = new AccessGuard(new Authenticator(reader, source.now));
    return {
      module: GatewayModule,
      controllers: [
        TenantsController,
        ProjectsController,
        EventsController,
        PolicyController,
        SessionsController,
        CoverageController,
        ReceiptsController,
        ExportsController,
        WebhooksController,
        LogsController,
        ServiceController,
      ],
      providers: [
        { provide: COLLECTOR, useValue: collector },
        { provide: CONFIG, useValue: config },
        { provide: READER, useValue: reader },
        { provide: SOURCE, useValue: source },
        { provide: WAITING, useFactory: () => new Waiting(reader, config.maxWaiters) },
        { provide: DOWNLOADS, useFactory: () => new Downloads(config.exportDir, config.maxDownloads) },
        { provide: PLACES, useFactory: () => new Places(reader) },
        { provide: ISSUER, useFactory: () => new Issuer(source) },
        {
          provide: ADMISSION,
          useFactory: () => new Admission(config.maxAppends, config.maxAppendBytes, MAX_HELD_BYTES),
        },
        {
          provide: METRICS,
          useFactory: (admission: Admission, waiting: Waiting, downloads: Downloads) =>
            new Metrics(admission, waiting, downloads),
          inject: [ADMISSION, WAITING, DOWNLOADS],
        },
        {
          provide: READY,
          useValue: async () => {
            await Promise.all([reader.ready(), parts.ready?.()]);
          },
        },
        { provide: APP_GUARD, useValue: guard },
        { provide: APP_INTERCEPTOR, useValue: new StillAllowed(guard) },
        { provide: APP_FILTER, useFactory: () => new ProblemFilter(log, routes) },
      ],
    };
  }
}

/** The system's clock and random numbers. */
export const SYSTEM_SOURCE: Source = { now: Date.now, random: randomBytes };

export interface Gateway {
  readonly app: NestFastifyApplication;
  readonly metrics: Metrics;
  /** Listens as configured and returns the address, `http://host:port`. */
  listen(): Promise<string>;
  /** Refuses new requests, finishes those in flight, and stops listening. */
  close(): Promise<void>;
}

/**
 * The HTTP application over `parts`, initialised and not yet listening. `beside` are modules that share its process.
 */
export async function createGateway(
  parts: GatewayParts,
  beside: readonly DynamicModule[] = [],
): Promise<Gateway> {
  const unreadable = new Unreadable();
  const adapter = new FastifyAdapter({
    logger: false,
    bodyLimit: MAX_JSON_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    return503OnClosing: false,
    // What the router itself refuses passes no filter of Nest's.
    frameworkErrors: (error: Error, _request: FastifyRequest, reply: FastifyReply) =>
      sendProblem(reply, toProblem(error)),
    clientErrorHandler: (error: ConnectionError, socket: Socket) => unreadable.refuse(error, socket),
    routerOptions: { maxParamLength: 512 },
    genReqId: () => parts.source.random(8).toString('hex'),
  });
  const gate = { closing: false };
  const routes = new Routes();
  const fastify = adapter.getInstance<FastifyInstance>();
  routes.listen(fastify);
  unreadable.listen(fastify.server);
  prepare(fastify, gate);
  limitOutgoing(fastify, parts.config.maxAnswerBytes, holderOf);
  const app = await NestFactory.create<NestFastifyApplication>(
    { module: Root, imports: [GatewayModule.of(parts, routes), ...beside] },
    adapter,
    { logger: asNestLogger(parts.log), abortOnError: false, bodyParser: false },
  );
  const metrics = app.get<Metrics>(METRICS, { strict: false });
  const waiting = app.get<Waiting>(WAITING, { strict: false });
  const downloads = app.get<Downloads>(DOWNLOADS, { strict: false });
  observe(fastify, parts.log, metrics);
  serveDocs(app);
  await app.init();
  await fastify.ready();
  const { config } = parts;
  return {
    app,
    metrics,
    listen: async () => {
      await app.listen(config.port, config.host);
      return (await app.getUrl()).replace('[::1]', 'localhost');
    },
    close: async () => {
      gate.closing = true;
      // What would go on for as long as somebody else likes ends now; the rest is finished.
      waiting.close();
      downloads.close();
      await app.close();
    },
  };
}

/** Replaces nothing by U+FFFD: two names that were sent must not become one. */
const UTF8 = new TextDecoder('utf-8', { fatal: true });

@Module({})
class Root {}

function prepare(fastify: FastifyInstance, gate: { readonly closing: boolean }): void {
  // The stream itself is the body: limits and decompression are the handler's, once it knows who is sending.
  for (const type of NDJSON) {
    fastify.addContentTypeParser(
      type,
      (_request: unknown, payload: Readable, done: (e: null, body: Readable) => void) => done(null, payload),
    );
  }
  // Types that have no parser are refused: a form that a browser was tricked into posting is one of them.
  fastify.removeContentTypeParser(['text/plain', 'application/json']);
  fastify.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, bytes, done) => {
    if (bytes.length === 0) return done(null, undefined);
    try {
      done(null, JSON.parse(UTF8.decode(bytes as Buffer)));
    } catch {
      done(new ProblemError('invalid_json', 'The body is not JSON in UTF-8.'));
    }
  });
  fastify.addHook('onRequest', async (request, reply) => {
    void reply.header('belay-request-id', request.id).header('x-content-type-options', 'nosniff');
    if (!gate.closing) return;
    void reply.header('connection', 'close');
    throw new ProblemError('shutting_down', 'This process is going down; another one will answer.', {
      retryAfter: 1,
    });
  });
}

/** One line and one observation a request; the route's pattern, never its URL, which names things. */
function observe(fastify: FastifyInstance, log: Logger, metrics: Metrics): void {
  fastify.addHook('onResponse', async (request, reply) => {
    const { method, id, routeOptions } = request;
    const route = routeOptions.url ?? 'none';
    const ms = reply.elapsedTime;
    metrics.answered(method, route, reply.statusCode, ms / 1000);
    log.info({ method, route, status: reply.statusCode, ms: Math.round(ms * 10) / 10, id }, 'request');
  });
}

export { DEFAULTS as GATEWAY_DEFAULTS } from './config.js';
export { NotReady } from './service.controller.js';
