import { Controller, Get, Headers, Inject, Param, Query, Res } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { isIdentifier, type ReceiptScope } from '@belay/contracts';
import type { LogRow, Reader } from '@belay/db';
import { inclusionPlan } from '@belay/merkle';
import { formatTlogProof } from '@belay/receipt';
import type { FastifyReply } from 'fastify';
import { type Accepted, accepted, DSSE, TLOG_PROOF } from './accept.js';
import type { Auditor } from './access.js';
import type { Collector } from './collector.js';
import type { GatewayConfig } from './config.js';
import { Allow, Who } from './guard.js';
import { parseIndex } from './page.js';
import type { Places } from './places.js';
import { notFound, ProblemError, valueOf } from './problem.js';
import { Describe } from './schema.js';
import { COLLECTOR, CONFIG, PLACES, READER } from './tokens.js';
import { Turnstile } from './turnstile.js';

const ANSWERS = [DSSE, TLOG_PROOF];
const accept = { Accept: `\`${DSSE}\` (default) or, for one event, \`${TLOG_PROOF}\`` };

@ApiTags('receipts')
@Controller('v1')
export class ReceiptsController {
  readonly #collector: Collector;
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #maxEntries: number;
  /** The collector builds and signs: the whole receipt is in memory, several times over. */
  readonly #making = new Turnstile(2, 16);
  /** Whole receipts come from the database. */
  readonly #fetching = new Turnstile(4, 32);

  constructor(
    @Inject(COLLECTOR) collector: Collector,
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(CONFIG) { maxReceiptEntries }: GatewayConfig,
  ) {
    this.#collector = collector;
    this.#reader = reader;
    this.#places = places;
    this.#maxEntries = maxReceiptEntries;
  }

  @Get('projects/:project/receipts')
  @Allow('auditor')
  @Describe({
    summary: 'A receipt of an event or of a range of events',
    params: { project: 'Project, `prj_...`' },
    query: {
      event: 'Index of the event',
      range: '`A..B`: indexes of the first and the last event',
      asOf: 'Size of a published checkpoint; default: the receipt there is, else as of the last one',
    },
    headers: accept,
    answer: ANSWERS,
  })
  async make(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Headers('accept') wanted: string | undefined,
    @Query() query: Readonly<Record<string, string | undefined>>,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<string> {
    const log = this.#places.projectIn(auditor, project);
    const scope = parseScope(query, this.#maxEntries);
    const asOf = query['asOf'] === undefined ? undefined : parseIndex(query['asOf'], 'asOf');
    const format = accepted(wanted);
    if (format.kind === 'tlog-proof') return this.#proof(log, scope, asOf, format, reply);
    const request = { project: log.project, scope, ...(asOf !== undefined && { asOf }) };
    const { id, bytes } = valueOf(await this.#making.pass(log, () => this.#collector.receipt(request)));
    return answer(reply, format, bytes, id);
  }

  @Get('receipts/:receipt')
  @Allow('auditor')
  @Describe({
    summary: 'A receipt that was issued',
    params: { receipt: 'Receipt, `rcp_...`' },
    headers: accept,
    answer: ANSWERS,
  })
  async fetch(
    @Who() auditor: Auditor,
    @Param('receipt') id: string,
    @Headers('accept') wanted: string | undefined,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<string> {
    const format = accepted(wanted);
    const { log } = auditor;
    const receipt = isIdentifier('rcp', id)
      ? await this.#fetching.pass(log, () => this.#reader.receipt(log, id))
      : undefined;
    if (!receipt) throw notFound();
    if (format.kind === 'dsse') return answer(reply, format, receipt.bytes, receipt.id);
    const [, index] = /^event:(\d+)$/.exec(receipt.scope) ?? [];
    const scope: ReceiptScope =
      index === undefined ? { type: 'range', first: 0, count: 0 } : { type: 'event', index: Number(index) };
    return this.#proof(log, scope, receipt.asOf, format, reply);
  }

  /** Signed by nobody but the checkpoint in it, so the gateway can make it. */
  async #proof(
    log: LogRow,
    scope: ReceiptScope,
    asOf: number | undefined,
    format: Accepted,
    reply: FastifyReply,
  ): Promise<string> {
    if (scope.type !== 'event') {
      throw new ProblemError('not_acceptable', 'A tlog-proof is of one event.', { field: 'Accept' });
    }
    const { index } = scope;
    const checkpoint =
      asOf === undefined
        ? await this.#reader.latestCheckpoint(log)
        : await this.#reader.checkpointAt(log, asOf);
    if (!checkpoint || checkpoint.size <= index) {
      const head = await this.#reader.head(log);
      if (!head || head.size <= index || asOf !== undefined) throw notFound();
      throw new ProblemError('not_published', 'The checkpoint that covers it is not published yet.', {
        retryAfter: 1,
      });
    }
    const [extra] = await this.#reader.entries(log, { from: index, to: index + 1 });
    if (!extra) throw notFound();
    const plan = inclusionPlan(BigInt(index), BigInt(checkpoint.size));
    const proof = await this.#reader.proof(log, plan);
    return answer(
      reply,
      format,
      formatTlogProof({ extra, index: BigInt(index), proof, checkpoint: checkpoint.note }),
    );
  }
}

/** The same receipt is the same bytes for ever, but its credential may be revoked: shared caches don't keep it. */
function answer(reply: FastifyReply, format: Accepted, bytes: string, id?: string): string {
  void reply
    .type(format.type)
    .header('cache-control', 'private, no-cache')
    .header('vary', 'accept, authorization');
  if (id !== undefined) void reply.header('belay-receipt-id', id);
  return bytes;
}

function parseScope(
  { event, range }: Readonly<Record<string, string | undefined>>,
  maxEntries: number,
): ReceiptScope {
  if ((event === undefined) === (range === undefined)) {
    throw new ProblemError('invalid', 'A receipt is asked for by either event=N or range=A..B.', {
      field: 'event',
    });
  }
  if (event !== undefined) return { type: 'event', index: parseIndex(event, 'event') };
  const [, a = '', b = ''] = /^(\d+)\.\.(\d+)$/.exec(range ?? '') ?? [];
  const first = parseIndex(a, 'range');
  const last = parseIndex(b, 'range');
  if (last < first) throw new ProblemError('invalid', 'range=A..B ends before it begins', { field: 'range' });
  const count = last - first + 1;
  if (count > maxEntries) {
    throw new ProblemError(
      'range_too_large',
      `One receipt here is for at most ${maxEntries} entries; this range has ${count}. Ask for several.`,
      { field: 'range' },
    );
  }
  return { type: 'range', first, count };
}
