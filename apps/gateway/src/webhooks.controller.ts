import { Body, Controller, Delete, Get, Inject, Param, Post, Query } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { isIdentifier } from '@belay/contracts';
import {
  createWebhookBody,
  type DeliveryList,
  deliveryList,
  type WebhookCreated,
  webhookCreated,
  type WebhookList,
  webhookList,
  type WebhookRemoved,
  webhookRemoved,
} from '@belay/contracts/http';
import type { Reader } from '@belay/db';
import type { z } from 'zod';
import type { Admin } from './access.js';
import type { GatewayConfig } from './config.js';
import { Allow, Who } from './guard.js';
import type { Issuer, Source } from './issue.js';
import { formatCursor, PAGING, parseCursor, parseLimit } from './page.js';
import type { Places } from './places.js';
import { notFound, ProblemError } from './problem.js';
import { type Query as Asked, reader as readerOf } from './query.js';
import { Checked, Describe } from './schema.js';
import { CONFIG, ISSUER, PLACES, READER, SOURCE } from './tokens.js';
import { parseTarget } from './webhook-target.js';

const params = { project: 'Project, `prj_...`', webhook: 'Webhook, `whk_...`' };
/** Of the key of the HMAC. */
const SECRET_BYTES = 24;
type Events = WebhookCreated['events'];

/** Where the worker tells of sessions that settle. */
@ApiTags('webhooks')
@Controller('v1/projects')
export class WebhooksController {
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #issuer: Issuer;
  readonly #source: Source;
  readonly #most: number;
  readonly #isPrivate: boolean;

  constructor(
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(ISSUER) issuer: Issuer,
    @Inject(SOURCE) source: Source,
    @Inject(CONFIG) { maxWebhooks, webhookPrivate }: GatewayConfig,
  ) {
    this.#reader = reader;
    this.#places = places;
    this.#issuer = issuer;
    this.#source = source;
    this.#most = maxWebhooks;
    this.#isPrivate = webhookPrivate;
  }

  @Post(':project/webhooks')
  @Allow('admin')
  @Describe({
    summary: 'Add a webhook',
    params: { project: params.project },
    body: createWebhookBody,
    status: 201,
    answer: webhookCreated,
  })
  async create(
    @Who() admin: Admin,
    @Param('project') project: string,
    @Body(new Checked(createWebhookBody)) body: z.output<typeof createWebhookBody>,
  ): Promise<WebhookCreated> {
    const log = await this.#places.projectOf(admin, project);
    const url = parseTarget(body.url, this.#isPrivate);
    const secret = this.#source.random(SECRET_BYTES);
    const webhook = {
      id: this.#issuer.id('whk'),
      url,
      events: [...new Set(body.events)],
      by: admin.id,
      created: new Date(this.#source.now()),
    };
    if (!(await this.#reader.requests.addWebhook(log, { ...webhook, secret }, this.#most))) {
      throw new ProblemError('too_many', `This project has ${this.#most} webhooks, and no more; remove one.`);
    }
    return {
      ...webhook,
      created: webhook.created.toISOString(),
      secret: `whsec_${secret.toString('base64')}`,
    };
  }

  @Get(':project/webhooks')
  @Allow('admin')
  @Describe({
    summary: 'List webhooks, the newest first',
    params: { project: params.project },
    query: PAGING,
    answer: webhookList,
  })
  async list(
    @Who() admin: Admin,
    @Param('project') project: string,
    @Query() query: Asked,
  ): Promise<WebhookList> {
    const log = await this.#places.projectOf(admin, project);
    const of = readerOf(query, 'cursor', 'limit');
    const before = parseCursor('webhooks', of('cursor'), (id) => isIdentifier('whk', id));
    const limit = parseLimit(of('limit'));
    const rows = await this.#reader.requests.webhooks(log, { before, limit });
    const last = rows[rows.length - 1];
    return {
      webhooks: rows.map(({ id, url, events, by, created }) => ({
        id,
        url,
        events: [...events] as Events,
        by,
        created: created.toISOString(),
      })),
      ...(rows.length === limit && last && { next: formatCursor('webhooks', last.id) }),
    };
  }

  @Delete(':project/webhooks/:webhook')
  @Allow('admin')
  @Describe({ summary: 'Remove a webhook', params, answer: webhookRemoved })
  async remove(
    @Who() admin: Admin,
    @Param('project') project: string,
    @Param('webhook') id: string,
  ): Promise<WebhookRemoved> {
    const log = await this.#places.projectOf(admin, project);
    const now = new Date(this.#source.now());
    const isRemoved = isIdentifier('whk', id) && (await this.#reader.requests.removeWebhook(log, id, now));
    if (!isRemoved) throw notFound();
    return { id };
  }

  @Get(':project/webhooks/:webhook/deliveries')
  @Allow('admin')
  @Describe({
    summary: 'What was sent to a webhook, the last first',
    params,
    query: PAGING,
    answer: deliveryList,
  })
  async deliveries(
    @Who() admin: Admin,
    @Param('project') project: string,
    @Param('webhook') id: string,
    @Query() query: Asked,
  ): Promise<DeliveryList> {
    const log = await this.#places.projectOf(admin, project);
    const of = readerOf(query, 'cursor', 'limit');
    const before = parseCursor('deliveries', of('cursor'), (each) => isIdentifier('dlv', each));
    const limit = parseLimit(of('limit'));
    const rows = isIdentifier('whk', id)
      ? await this.#reader.requests.deliveries(log, id, { before, limit })
      : undefined;
    if (!rows) throw notFound();
    const last = rows[rows.length - 1];
    return {
      deliveries: rows.map(({ event, due, status, error, created, delivered, ...row }) => ({
        ...row,
        event: event as Events[number],
        ...(status !== null && { status }),
        ...(error !== null && { error }),
        created: created.toISOString(),
        ...(due !== null && { due: due.toISOString() }),
        ...(delivered !== null && { delivered: delivered.toISOString() }),
      })),
      ...(rows.length === limit && last && { next: formatCursor('deliveries', last.id) }),
    };
  }
}
