import { Controller, Get, Headers, Inject, Param, Query as Asked, Res } from '@nestjs/common';
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
import type { Issuer, Source } from './issue.js';
import { parseIndex } from './page.js';
import type { Places } from './places.js';
import { notFound, ProblemError, valueOf } from './problem.js';
import { parsePeriod, parseSession, parseWait, type Query, reader as readerOf } from './query.js';
import { Describe } from './schema.js';
import { COLLECTOR, CONFIG, ISSUER, PLACES, READER, SOURCE, WAITING } from './tokens.js';
import { Turnstile } from './turnstile.js';
import { goneSignal, isSettled, MAX_WAIT_SECONDS, type Patience, type Waiting } from './waiting.js';

const ANSWERS = [DSSE, TLOG_PROOF];
const accept = { Accept: `\`${DSSE}\` (default) or, for one event, \`${TLOG_PROOF}\`` };

/** Milliseconds for which a receipt of a period is given again. */
const RECENT_MS = 60_000;
/** Periods of one project that wait for their receipt. */
const MAX_OPEN_PERIODS = 8;

interface Stored {
  readonly id: string;
  readonly bytes: string;
}

/** Half open; RFC 3339 in the one form that a period is known by. */
interface Period {
  readonly type: 'period';
  readonly from: string;
  readonly to: string;
}

@ApiTags('receipts')
@Controller('v1')
export class ReceiptsController {
  readonly #collector: Collector;
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #issuer: Issuer;
  readonly #source: Source;
  readonly #waiting: Waiting;
  readonly #maxEntries: number;
  /** The collector builds and signs: the whole receipt is in memory, several times over. */
  readonly #making = new Turnstile(2, 16);
  /** Whole receipts come from the database. */
  readonly #fetching = new Turnstile(4, 32);

  constructor(
    @Inject(COLLECTOR) collector: Collector,
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(ISSUER) issuer: Issuer,
    @Inject(SOURCE) source: Source,
    @Inject(WAITING) waiting: Waiting,
    @Inject(CONFIG) { maxReceiptEntries }: GatewayConfig,
  ) {
    this.#collector = collector;
    this.#reader = reader;
    this.#places = places;
    this.#issuer = issuer;
    this.#source = source;
    this.#waiting = waiting;
    this.#maxEntries = maxReceiptEntries;
  }

  @Get('projects/:project/receipts')
  @Allow('auditor')
  @Describe({
    summary: 'A receipt of an event, a range of events, a session or a period',
    params: { project: 'Project, `prj_...`' },
    query: {
      event: 'Index of the event',
      range: '`A..B`: indexes of the first and the last event',
      session: 'Name of a session: the last receipt of it',
      period: '`FROM..TO`, two times, half open: the sessions that began in it',
      asOf: 'Of an event or a range: size of a published checkpoint; default: the receipt there is, else as of the last one',
      wait: `Of a session or a period: seconds, at most ${MAX_WAIT_SECONDS}, to wait until the session has settled, or a receipt of the period was made`,
    },
    headers: accept,
    answer: ANSWERS,
  })
  async make(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Headers('accept') wanted: string | undefined,
    @Asked() query: Query,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<string> {
    const log = this.#places.projectIn(auditor, project);
    const of = readerOf(query, 'event', 'range', 'session', 'period', 'asOf', 'wait');
    const scope = parseScope(of, this.#maxEntries);
    const seconds = parseWait(of('wait'));
    const format = accepted(wanted);
    if (scope.type === 'session' || scope.type === 'period') {
      if (of('asOf') !== undefined) {
        throw new ProblemError('invalid', 'asOf is for an event or a range', { field: 'asOf' });
      }
      if (format.kind !== 'dsse') throw noProof();
      const patience = { holder: log, seconds, gone: goneSignal(reply) };
      const found =
        scope.type === 'session'
          ? await this.#ofSession(log, scope.session, patience)
          : await this.#ofPeriod(auditor, scope, patience);
      return answer(reply, format, found.bytes, found.id);
    }
    if (seconds > 0)
      throw new ProblemError('invalid', 'wait is for a session or a period', { field: 'wait' });
    const asked = of('asOf');
    const asOf = asked === undefined ? undefined : parseIndex(asked, 'asOf');
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
    if (index === undefined) throw noProof();
    return this.#proof(log, { type: 'event', index: Number(index) }, receipt.asOf, format, reply);
  }

  /** Whoever waits for it gets none that is `open`, or that something newer waits to take the place of. */
  async #ofSession(log: LogRow, session: string, patience: Patience): Promise<Stored> {
    if (patience.seconds > 0) {
      const size = (await this.#reader.head(log))?.size ?? 0;
      await this.#waiting.session(patience, log.log, session, size);
      const row = await this.#reader.sessions.session(log, session);
      if (row && !isSettled({ ...row, hasReceipt: row.receipt !== null })) throw notIssued('settled yet', 1);
    }
    const found = await this.#fetching.pass(log, () =>
      this.#reader.sessions.lastReceipt(log, `session:${session}`),
    );
    if (found) return found;
    if (await this.#reader.sessions.session(log, session)) throw notIssued('issued yet', 1);
    // What was not reconciled yet may name it.
    const [reconciled, head] = await Promise.all([
      this.#reader.sessions.reconciled(log),
      this.#reader.head(log),
    ]);
    throw reconciled < (head?.size ?? 0) ? notIssued('issued yet', 1) : notFound();
  }

  /** The worker makes it: one that waits is joined, and one that was made a moment ago is given again. */
  async #ofPeriod(auditor: Auditor, { from, to }: Period, patience: Patience): Promise<Stored> {
    const { log } = auditor;
    const { requests, sessions } = this.#reader;
    const scope = `period:${from}..${to}`;
    const since = new Date(this.#source.now() - RECENT_MS);
    let job = await requests.jobLike(log, 'period', { from, to }, since);
    if (!job) {
      const found = patience.seconds > 0 ? undefined : await sessions.lastReceipt(log, scope);
      if (found) return found;
      const id = this.#issuer.id('job');
      const added = await requests.addJob(
        log,
        { id, kind: 'period', spec: { from, to }, by: auditor.id },
        { open: MAX_OPEN_PERIODS },
      );
      if (added !== 'added') {
        throw new ProblemError('rate_limited', 'Receipts of other periods are being made; ask again.', {
          retryAfter: 5,
        });
      }
      job = await requests.job(log, 'period', id);
    }
    if (!job) throw new Error('a job that was stored is not there');
    if (patience.seconds > 0 && job.state !== 'done') {
      await this.#waiting.job(patience, job.id);
      job = (await requests.job(log, 'period', job.id)) ?? job;
    }
    switch (job.state) {
      case 'done': {
        const { receipt } = job;
        const found =
          receipt === null
            ? undefined
            : await this.#fetching.pass(log, () => this.#reader.receipt(log, receipt));
        if (found) return found;
        throw new Error('the receipt of a period that was made is not there');
      }
      case 'failed':
        throw new ProblemError('internal', `The receipt could not be made: ${job.error ?? 'unknown'}`);
      default:
        throw notIssued('made yet', 1);
    }
  }

  /** Signed by nobody but the checkpoint in it, so the gateway can make it. */
  async #proof(
    log: LogRow,
    scope: ReceiptScope,
    asOf: number | undefined,
    format: Accepted,
    reply: FastifyReply,
  ): Promise<string> {
    if (scope.type !== 'event') throw noProof();
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

function noProof(): ProblemError {
  return new ProblemError('not_acceptable', 'A tlog-proof is of one event.', { field: 'Accept' });
}

function notIssued(what: string, retryAfter: number): ProblemError {
  return new ProblemError('not_published', `This receipt is not ${what}.`, { retryAfter });
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
  of: (name: 'event' | 'range' | 'session' | 'period') => string | undefined,
  maxEntries: number,
): ReceiptScope | { readonly type: 'session'; readonly session: string } | Period {
  const [event, range, session, period] = [of('event'), of('range'), of('session'), of('period')];
  if ([event, range, session, period].filter((one) => one !== undefined).length !== 1) {
    throw new ProblemError(
      'invalid',
      'A receipt is asked for by one of event=N, range=A..B, session=NAME and period=FROM..TO.',
      { field: 'event' },
    );
  }
  if (session !== undefined) return { type: 'session', session: parseSession(session) };
  if (period !== undefined) return { type: 'period', ...parsePeriod(period) };
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
