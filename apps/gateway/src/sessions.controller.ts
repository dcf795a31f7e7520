import { Controller, Get, Inject, Param, Query, Res } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import {
  type SessionDetail,
  sessionDetail,
  type SessionList,
  sessionList,
  type SessionListed,
} from '@belay/contracts/http';
import type { LogRow, Reader, SessionRow } from '@belay/db';
import type { FastifyReply } from 'fastify';
import type { Auditor } from './access.js';
import { Allow, Who } from './guard.js';
import { formatCursor, isIndex, PAGING, parseCursor, parseLimit } from './page.js';
import type { Places } from './places.js';
import { notFound } from './problem.js';
import {
  isSessionName,
  parseDisposition,
  parseTime,
  parseWait,
  type Query as Asked,
  reader as readerOf,
} from './query.js';
import { Describe } from './schema.js';
import { PLACES, READER, WAITING } from './tokens.js';
import { Turnstile } from './turnstile.js';
import { goneSignal, isSettled, MAX_WAIT_SECONDS, type Waiting } from './waiting.js';

const MAX_RECEIPTS = 100;

/** What sessions came to. */
@ApiTags('sessions')
@Controller('v1/projects')
export class SessionsController {
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #waiting: Waiting;
  /** A filter that few sessions pass looks at many. */
  readonly #listing = new Turnstile(4, 32);

  constructor(
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(WAITING) waiting: Waiting,
  ) {
    this.#reader = reader;
    this.#places = places;
    this.#waiting = waiting;
  }

  @Get(':project/sessions')
  @Allow('auditor')
  @Describe({
    summary: 'Sessions, the newest first',
    params: { project: 'Project, `prj_...`' },
    query: {
      disposition: 'Only those that came to this',
      from: 'Only those that began at this time or later',
      to: 'Only those that began before this time',
      ...PAGING,
    },
    answer: sessionList,
  })
  async list(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Query() query: Asked,
  ): Promise<SessionList> {
    const log = this.#places.projectIn(auditor, project);
    const of = readerOf(query, 'disposition', 'from', 'to', 'cursor', 'limit');
    const [disposition, from, to] = [of('disposition'), of('from'), of('to')];
    const before = parseCursor('sessions', of('cursor'), isIndex);
    const limit = parseLimit(of('limit'));
    const filter = {
      ...(disposition !== undefined && { disposition: parseDisposition(disposition) }),
      ...(from !== undefined && { from: parseTime(from, 'from') }),
      ...(to !== undefined && { to: parseTime(to, 'to') }),
      ...(before !== undefined && { before: Number(before) }),
      limit,
    };
    return this.#listing.pass(log, async () => {
      const looked = await this.#looked(log);
      const rows = await this.#reader.sessions.sessions(log, filter);
      const last = rows[rows.length - 1];
      return {
        ...looked,
        sessions: rows.map((row) => shown(row, true)),
        ...(rows.length === limit && last && { next: formatCursor('sessions', String(last.beganIndex)) }),
      };
    });
  }

  @Get(':project/sessions/:session')
  @Allow('auditor')
  @Describe({
    summary: 'A session, now or once it has settled',
    params: { project: 'Project, `prj_...`', session: 'Name of the session' },
    query: {
      wait: `Seconds, at most ${MAX_WAIT_SECONDS}: answers as soon as the session has settled over every entry that the log has when this is asked, else at the end, with \`settled: false\``,
    },
    answer: sessionDetail,
  })
  async one(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Param('session') session: string,
    @Query() query: Asked,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<SessionDetail> {
    const log = this.#places.projectIn(auditor, project);
    const seconds = parseWait(readerOf(query, 'wait')('wait'));
    if (!isSessionName(session)) throw notFound();
    let least = 0;
    if (seconds > 0) {
      least = (await this.#reader.head(log))?.size ?? 0;
      const patience = { holder: log, seconds, gone: goneSignal(reply) };
      await this.#waiting.session(patience, log.log, session, least);
    }
    const looked = await this.#looked(log);
    const row = await this.#reader.sessions.session(log, session);
    if (!row) throw notFound();
    const receipts = await this.#reader.sessions.receipts(log, `session:${session}`, MAX_RECEIPTS + 1);
    return {
      ...looked,
      ...shown(row, looked.reconciled >= least),
      ...(row.statement && { statement: digestOf(row.statement) }),
      receipts: receipts.slice(0, MAX_RECEIPTS).map((receipt, i) => {
        const before = receipts[i + 1];
        return {
          id: receipt.id,
          digest: digestOf(receipt.digest),
          asOf: receipt.asOf,
          index: receipt.index,
          created: receipt.created.toISOString(),
          ...(receipt.disposition !== null && {
            disposition: receipt.disposition as SessionListed['disposition'],
          }),
          // The collector signs none that does not name the one before it.
          ...(before && { supersedes: digestOf(before.digest) }),
        };
      }),
    };
  }

  /** Before the rows are read: what they show is then never older than what this says. */
  async #looked(log: LogRow): Promise<{ log: string; size: number; reconciled: number }> {
    const reconciled = await this.#reader.sessions.reconciled(log);
    const head = await this.#reader.head(log);
    return { log: log.origin, size: head?.size ?? 0, reconciled };
  }
}

/** As libs/db has the summary of a session, from the worker. */
interface Summary {
  readonly kinds: string[];
  readonly calls: number;
  readonly verdicts: SessionListed['verdicts'];
  readonly levels: NonNullable<SessionListed['levels']>;
}

function shown(row: SessionRow, isWhole: boolean): SessionListed {
  const summary = (row.summary ?? {}) as Partial<Summary>;
  const { PASS = 0, WARN = 0, FAIL = 0, UNVERIFIED = 0 } = summary.verdicts ?? {};
  const { receipt } = row;
  return {
    session: row.session,
    kinds: summary.kinds ?? [],
    began: row.began.toISOString(),
    beganIndex: row.beganIndex,
    last: row.last.toISOString(),
    lastIndex: row.lastIndex,
    closed: row.closed,
    ...(row.coverage !== null && { coverage: row.coverage as SessionListed['coverage'] }),
    ...(row.disposition !== null && { disposition: row.disposition as SessionListed['disposition'] }),
    settled: isWhole && isSettled({ ...row, hasReceipt: receipt !== null }),
    ...(row.held && { held: row.held }),
    calls: summary.calls ?? 0,
    verdicts: { PASS, WARN, FAIL, UNVERIFIED },
    ...(summary.levels && { levels: summary.levels }),
    ...(receipt && { receipt: { id: receipt.id, digest: digestOf(receipt.digest), asOf: receipt.asOf } }),
  };
}

function digestOf(hash: Buffer): string {
  return `sha256:${hash.toString('hex')}`;
}
