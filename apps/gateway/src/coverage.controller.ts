import { Controller, Get, Inject, Param, Query, Res } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { type CoverageReply, coverageReply } from '@belay/contracts/http';
import {
  type AsOf,
  type CoverageStatement,
  LogCoverage,
  MAX_STATEMENT_BYTES,
  type SentEntry,
} from '@belay/coverage';
import { type CoverageQuestion, type LogRow, type Reader, TooManyStates } from '@belay/db';
import { isUlid, parseEntry } from '@belay/envelope';
import type { FastifyReply } from 'fastify';
import type { Auditor } from './access.js';
import { Allow, Who } from './guard.js';
import { SINK } from './intake.js';
import type { Source } from './issue.js';
import { formatCursor, MAX_LIMIT, PAGING, parseCursor, parseLimit } from './page.js';
import type { Places } from './places.js';
import { notFound, ProblemError } from './problem.js';
import { parseSession, type Query as Asked, reader as readerOf } from './query.js';
import { Describe } from './schema.js';
import { PLACES, READER, SOURCE } from './tokens.js';
import { Turnstile } from './turnstile.js';

/** Entries of a session from which an answer is made; of more, its receipt has the statement. */
const MAX_SESSION_ENTRIES = 20_000;
/** Statements of one page: each is made from all epochs of its sink. */
const MAX_SINKS = 50;

/** What the log holds of what its sinks say they sent. */
@ApiTags('coverage')
@Controller('v1/projects')
export class CoverageController {
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #now: () => number;
  /** States are read whole, and statements made of them. */
  readonly #making = new Turnstile(2, 16);

  constructor(
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(SOURCE) { now }: Source,
  ) {
    this.#reader = reader;
    this.#places = places;
    this.#now = now;
  }

  @Get(':project/coverage')
  @Allow('auditor')
  @Describe({
    summary: 'Coverage statements as of now: of every sink, or of one sink, epoch or session',
    params: { project: 'Project, `prj_...`' },
    query: {
      sink: 'Of this sink',
      epoch: 'With `sink`: of this epoch of it',
      session: 'Of this session',
      cursor: PAGING.cursor,
      limit: `Sinks on a page, at most ${MAX_SINKS}, which is the default`,
    },
    answer: coverageReply,
  })
  async coverage(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Query() query: Asked,
  ): Promise<CoverageReply> {
    const log = this.#places.projectIn(auditor, project);
    const question = parseQuestion(query);
    return this.#making.pass(log, async () => {
      try {
        return await this.#answer(log, question);
      } catch (error) {
        if (!(error instanceof TooManyStates)) throw error;
        throw new ProblemError(
          'range_too_large',
          'This is more than one answer is made from: ask by sink and epoch, or for the receipt of a session.',
          { field: question.of === 'session' ? 'session' : 'sink' },
        );
      }
    });
  }

  async #answer(log: LogRow, question: CoverageQuestion): Promise<CoverageReply> {
    const kept = await this.#reader.sessions.coverage(log, question);
    const size = (await this.#reader.head(log))?.size ?? 0;
    if (!kept?.isKnown) {
      if (question.of !== 'sinks') throw notFound();
      return { log: log.origin, size, reconciled: 0, statements: [] };
    }
    const coverage = new LogCoverage(kept.state, kept.kept);
    const asOf = { size: coverage.size, time: new Date(this.#now()).toISOString() };
    const statements = await this.#statements(log, question, coverage, kept.sinks, asOf);
    const last = kept.sinks[kept.sinks.length - 1];
    const isFull = question.of === 'sinks' && kept.sinks.length === question.limit;
    return {
      log: log.origin,
      size,
      reconciled: coverage.size,
      statements,
      ...(isFull && last !== undefined && { next: formatCursor('coverage', last) }),
    };
  }

  async #statements(
    log: LogRow,
    question: CoverageQuestion,
    coverage: LogCoverage,
    sinks: readonly string[],
    asOf: AsOf,
  ): Promise<CoverageStatement[]> {
    switch (question.of) {
      case 'epoch':
        return [coverage.epochStatement(question.sink, question.epoch, asOf)];
      case 'session': {
        const entries = await this.#callsOf(log, question.session, asOf.size);
        return [coverage.sessionStatement(question.session, asOf, entries)];
      }
      default:
        return sinks.map((sink) => coverage.sinkStatement(sink, asOf));
    }
  }

  /** What a session's statement pairs; nothing else of its entries is kept. */
  async #callsOf(log: LogRow, session: string, size: number): Promise<SentEntry[]> {
    if ((await this.#reader.sessions.sessionEntries(log, session)) > MAX_SESSION_ENTRIES) {
      throw new TooManyStates();
    }
    const calls: SentEntry[] = [];
    for (let from: number | undefined = 0; from !== undefined && from < size;) {
      const { events, next } = await this.#reader.sessionEvents(log, { session, from, limit: MAX_LIMIT });
      for (const { index, entry } of events) {
        const parsed = parseEntry(entry);
        if (index >= size || parsed.by !== 'sender') continue;
        const { kind } = parsed.envelope;
        if (kind === 'call' || kind === 'result') calls.push({ ...parsed, body: Buffer.alloc(0) });
      }
      from = next;
    }
    return calls;
  }

  @Get(':project/statements/:digest')
  @Allow('auditor')
  @Describe({
    summary: 'A coverage statement that an entry of the log names, in its bytes',
    params: { project: 'Project, `prj_...`', digest: '`sha256:` and 64 hex digits' },
    answer: ['application/json'],
  })
  async statement(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Param('digest') digest: string,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<Buffer> {
    const log = this.#places.projectIn(auditor, project);
    const [, hex] = /^sha256:([0-9a-f]{64})$/.exec(digest) ?? [];
    if (hex === undefined) throw notFound();
    const bytes = await this.#making.pass(log, () =>
      this.#reader.sessions.statement(log, Buffer.from(hex, 'hex')),
    );
    if (!bytes || bytes.length > MAX_STATEMENT_BYTES) throw notFound();
    void reply
      .type('application/json; charset=utf-8')
      .header('cache-control', 'private, no-cache')
      .header('vary', 'authorization');
    return bytes;
  }
}

function parseQuestion(query: Asked): CoverageQuestion {
  const of = readerOf(query, 'sink', 'epoch', 'session', 'cursor', 'limit');
  const [sink, epoch, session] = [of('sink'), of('epoch'), of('session')];
  if (session !== undefined) {
    if (sink !== undefined || epoch !== undefined) {
      throw new ProblemError('invalid', 'either a session, or a sink with or without an epoch', {
        field: 'session',
      });
    }
    return { of: 'session', session: parseSession(session) };
  }
  if (sink !== undefined && !SINK.test(sink))
    throw new ProblemError('invalid', 'sink is no name of a sink', { field: 'sink' });
  if (epoch !== undefined) {
    if (sink === undefined) throw new ProblemError('invalid', 'an epoch is one of a sink', { field: 'sink' });
    if (!isUlid(epoch)) throw new ProblemError('invalid', 'epoch is a ULID', { field: 'epoch' });
    return { of: 'epoch', sink, epoch };
  }
  if (sink !== undefined) return { of: 'sink', sink };
  const after = parseCursor('coverage', of('cursor'), (text) => SINK.test(text)) ?? '';
  const asked = of('limit');
  const limit = asked === undefined ? MAX_SINKS : parseLimit(asked);
  if (limit > MAX_SINKS) throw new ProblemError('invalid', `limit is 1 to ${MAX_SINKS}`, { field: 'limit' });
  return { of: 'sinks', after, limit };
}
