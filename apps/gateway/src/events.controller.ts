import { Controller, Get, HttpCode, Inject, Param, Post, Query, Req } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import type { Ack } from '@belay/contracts';
import type { Collector } from './collector.js';
import { ack, type EventList, eventList } from '@belay/contracts/http';
import type { LogRow, Reader } from '@belay/db';
import { isUlid, parseEntry } from '@belay/envelope';
import type { FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import type { Auditor, Sender } from './access.js';
import type { Admission } from './admission.js';
import { type Pace, readBody } from './body.js';
import type { GatewayConfig } from './config.js';
import { Allow, Who } from './guard.js';
import { SINK, takeIn } from './intake.js';
import type { Metrics } from './metrics.js';
import { formatCursor, isIndex, MAX_LIMIT, parseCursor, parseIndex, parseLimit } from './page.js';
import type { Places } from './places.js';
import { ProblemError, valueOf } from './problem.js';
import { parseSession } from './query.js';
import { Describe } from './schema.js';
import { ADMISSION, COLLECTOR, CONFIG, METRICS, PLACES, READER } from './tokens.js';

/** Media types of NDJSON, which has no registered one. Their bodies reach a handler unread. */
export const NDJSON = ['application/x-ndjson', 'application/ndjson', 'application/jsonl'] as const;

@ApiTags('events')
@Controller('v1/projects')
export class EventsController {
  readonly #collector: Collector;
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #admission: Admission;
  readonly #metrics: Metrics;
  readonly #pace: Pace;

  constructor(
    @Inject(COLLECTOR) collector: Collector,
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(ADMISSION) admission: Admission,
    @Inject(METRICS) metrics: Metrics,
    @Inject(CONFIG) { appendIdleMs, appendTimeoutMs }: GatewayConfig,
  ) {
    this.#collector = collector;
    this.#reader = reader;
    this.#places = places;
    this.#admission = admission;
    this.#metrics = metrics;
    this.#pace = { idleMs: appendIdleMs, totalMs: appendTimeoutMs };
  }

  @Post(':project/events')
  @HttpCode(200)
  @Allow('append')
  @Describe({
    summary: 'Append events: one envelope a line, of one sink and one epoch',
    params: { project: 'Project, `prj_...`' },
    raw: NDJSON[0],
    headers: {
      'Belay-Sink': 'The sink the lines are of, where the token does not say',
      'Belay-Signature': 'Batch signature of a keyed sink, base64',
      'Belay-Head':
        'Size of the last head the sender verified; the ack then carries a consistency proof from it',
      'Content-Encoding': '`gzip` or nothing',
    },
    answer: ack,
  })
  async append(
    @Who() sender: Sender,
    @Param('project') project: string,
    @Req() request: FastifyRequest,
  ): Promise<Ack> {
    this.#places.projectIn(sender, project);
    if (!(request.body instanceof Readable)) {
      throw new ProblemError('unsupported_media_type', `Events are sent as ${NDJSON[0]}, one a line.`, {
        field: 'Content-Type',
      });
    }
    const visit = this.#admission.arrive(sender.log);
    try {
      const { headers } = request;
      const body = await readBody(
        request.body,
        { encoding: headers['content-encoding'], length: headers['content-length'] },
        visit,
        this.#pace,
      );
      visit.enter();
      const append = takeIn(
        sender,
        {
          sink: one(headers['belay-sink']),
          signature: one(headers['belay-signature']),
          head: one(headers['belay-head']),
        },
        body,
      );
      const answer = valueOf(await this.#collector.append(append));
      this.#metrics.appended(answer);
      return answer;
    } finally {
      visit.end();
    }
  }

  @Get(':project/events')
  @Allow('auditor')
  @Describe({
    summary: 'Read entries, oldest first',
    params: { project: 'Project, `prj_...`' },
    query: {
      sink: 'Only of this sink',
      epoch: 'Only of this epoch',
      session: 'Only of this session. A page may then hold fewer events than `limit`, or none: follow `next`',
      from: 'Index to begin at; default 0',
      limit: `At most ${MAX_LIMIT}; default 100`,
      cursor: 'Where the page begins, as `next` of the one before',
    },
    answer: eventList,
  })
  async list(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Query() query: Readonly<Record<string, string | string[] | undefined>>,
  ): Promise<EventList> {
    const log = this.#places.projectIn(auditor, project);
    const of = (name: string) => one(query[name]);
    const epoch = of('epoch');
    if (epoch !== undefined && !isUlid(epoch))
      throw new ProblemError('invalid', 'epoch is a ULID', { field: 'epoch' });
    const sink = of('sink');
    if (sink !== undefined && !SINK.test(sink))
      throw new ProblemError('invalid', 'sink is no name of a sink', { field: 'sink' });
    const limit = parseLimit(of('limit'));
    const from = parseIndex(parseCursor('events', of('cursor'), isIndex) ?? of('from') ?? '0', 'from');
    const session = of('session');
    const head = await this.#reader.head(log);
    const { events, next } =
      session === undefined
        ? await this.#page(log, { sink, epoch, from, limit })
        : await this.#reader.sessionEvents(log, { session: parseSession(session), from, limit });
    return {
      log: log.origin,
      size: head?.size ?? 0,
      events: events
        .filter(({ entry }) => session === undefined || isOf(entry, sink, epoch))
        .map(({ index, entry }) => ({ index, entry: entry.toString('utf8') })),
      ...(next !== undefined && { next: formatCursor('events', String(next)) }),
    };
  }

  async #page(
    log: LogRow,
    filter: { sink: string | undefined; epoch: string | undefined; from: number; limit: number },
  ): Promise<{ events: { index: number; entry: Buffer }[]; next?: number }> {
    const events = await this.#reader.events(log, filter);
    const last = events[events.length - 1];
    return { events, ...(events.length === filter.limit && last && { next: last.index + 1 }) };
  }
}

/** Whether an entry of a sender is of this sink and epoch, where they are given. */
function isOf(entry: Buffer, sink: string | undefined, epoch: string | undefined): boolean {
  if (sink === undefined && epoch === undefined) return true;
  const parsed = parseEntry(entry);
  if (parsed.by !== 'sender') return false;
  const { envelope } = parsed;
  return (sink ?? envelope.sink) === envelope.sink && (epoch ?? envelope.epoch) === envelope.epoch;
}

function one(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}
