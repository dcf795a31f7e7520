import { Controller, Get, Inject, Res } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { type CredentialInfo, credentialInfo, type ServiceInfo, serviceInfo } from '@belay/contracts/http';
import { MAX_BODY_BYTES, MAX_REQUEST_LINES } from '@belay/contracts/rpc';
import { MAX_ENVELOPE_BYTES } from '@belay/envelope';
import { ackName, formatVkey } from '@belay/note';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import type { Principal } from './access.js';
import { MAX_COMPRESSED_BYTES } from './body.js';
import type { GatewayConfig } from './config.js';
import { Allow, Who } from './guard.js';
import type { Metrics } from './metrics.js';
import { ProblemError } from './problem.js';
import { Describe } from './schema.js';
import { CONFIG, METRICS, READY } from './tokens.js';

const healthy = z.object({ status: z.literal('ok') });

/** Why no append can be answered, in words that may be shown to anyone. */
export class NotReady extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'NotReady';
  }
}

/** About the service and about one's own credential. */
@ApiTags('service')
@Controller()
export class ServiceController {
  readonly #metrics: Metrics;
  readonly #ready: () => Promise<void>;
  readonly #maxReceiptEntries: number;

  constructor(
    @Inject(METRICS) metrics: Metrics,
    @Inject(READY) ready: () => Promise<void>,
    @Inject(CONFIG) { maxReceiptEntries }: GatewayConfig,
  ) {
    this.#maxReceiptEntries = maxReceiptEntries;
    this.#metrics = metrics;
    this.#ready = ready;
  }

  @Get('v1/token')
  @Allow('operator', 'admin', 'append', 'auditor')
  @Describe({
    summary: 'What the credential of this request is, and where it belongs',
    answer: credentialInfo,
  })
  token(@Who() who: Principal): CredentialInfo {
    const { kind, id } = who;
    if (who.kind === 'operator') return { kind, id };
    if (who.kind === 'admin') return { kind, id, tenant: who.tenant };
    if (who.kind === 'auditor') return { kind, id, ...placeOf(who) };
    const { role, sinks, expires, domain, rate } = who;
    return {
      kind,
      id,
      role,
      ...(sinks && { sinks: [...sinks] }),
      ...(expires && { expires: expires.toISOString() }),
      ...(domain !== null && { domain }),
      ...(rate !== null && { rate }),
      ...placeOf(who),
    };
  }

  @Get('.well-known/belay')
  @Allow('anyone')
  @Describe({ summary: 'What this service is', open: true, answer: serviceInfo })
  info(): ServiceInfo {
    return {
      service: 'belay',
      version: '0.1.0',
      api: ['v1'],
      docs: '/docs',
      limits: {
        lines: MAX_REQUEST_LINES,
        bodyBytes: MAX_BODY_BYTES,
        compressedBodyBytes: MAX_COMPRESSED_BYTES,
        lineBytes: MAX_ENVELOPE_BYTES,
        receiptEntries: this.#maxReceiptEntries,
      },
    };
  }

  @Get('healthz')
  @Allow('anyone')
  @Describe({ summary: 'Whether the process runs', open: true, answer: healthy })
  health(): z.infer<typeof healthy> {
    return { status: 'ok' };
  }

  @Get('readyz')
  @Allow('anyone')
  @Describe({ summary: 'Whether the process can do its work', open: true, answer: healthy })
  async ready(): Promise<z.infer<typeof healthy>> {
    try {
      await this.#ready();
    } catch (error) {
      const detail =
        error instanceof NotReady ? error.message : 'The database or the collector can not be reached.';
      throw new ProblemError('unavailable', detail, { retryAfter: 1 });
    }
    return { status: 'ok' };
  }

  @Get('metrics')
  @Allow('anyone')
  @Describe({ summary: 'Counts for Prometheus', open: true, answer: ['text/plain'] })
  async metrics(@Res({ passthrough: true }) reply: FastifyReply): Promise<string> {
    void reply.type(this.#metrics.type);
    return this.#metrics.text();
  }
}

function placeOf({ log }: Extract<Principal, { log: unknown }>) {
  return {
    project: log.project,
    log: log.id,
    origin: log.origin,
    vkey: formatVkey(log.origin, log.publicKey),
    ackVkey: formatVkey(ackName(log.origin), log.publicKey),
  };
}
