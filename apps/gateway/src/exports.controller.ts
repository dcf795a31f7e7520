import {
  Body,
  Controller,
  Delete,
  Get,
  Headers,
  HttpCode,
  Inject,
  Param,
  Post,
  Query,
  Req,
  Res,
} from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { isIdentifier } from '@belay/contracts';
import {
  createExportBody,
  type ExportJob,
  exportJob,
  type ExportList,
  exportList,
} from '@belay/contracts/http';
import type { JobRow, LogRow, Reader } from '@belay/db';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import type { z } from 'zod';
import type { Auditor } from './access.js';
import type { GatewayConfig } from './config.js';
import { type Downloads, gone, rangeOf } from './downloads.js';
import { Allow, Who } from './guard.js';
import type { Issuer } from './issue.js';
import { formatCursor, PAGING, parseCursor, parseLimit } from './page.js';
import type { Places } from './places.js';
import { notFound, ProblemError } from './problem.js';
import { type Query as Asked, reader as readerOf } from './query.js';
import { requireSessions } from './require-sessions.js';
import { Checked, Describe } from './schema.js';
import { CONFIG, DOWNLOADS, ISSUER, PLACES, READER } from './tokens.js';

const params = { project: 'Project, `prj_...`', export: 'Export, `exp_...`' };

/** Exports are made by the worker; here they are asked for, looked at and read. */
@ApiTags('exports')
@Controller('v1/projects')
export class ExportsController {
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #issuer: Issuer;
  readonly #downloads: Downloads;
  readonly #most: { readonly open: number; readonly kept: number };

  constructor(
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(ISSUER) issuer: Issuer,
    @Inject(DOWNLOADS) downloads: Downloads,
    @Inject(CONFIG) { maxOpenExports, maxExports }: GatewayConfig,
  ) {
    this.#reader = reader;
    this.#places = places;
    this.#issuer = issuer;
    this.#downloads = downloads;
    this.#most = { open: maxOpenExports, kept: maxExports };
  }

  @Post(':project/exports')
  @HttpCode(202)
  @Allow('auditor')
  @Describe({
    summary: 'Ask for an export: of the whole log, of a period, or of sessions',
    params: { project: params.project },
    body: createExportBody,
    status: 202,
    answer: exportJob,
  })
  async create(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Body(new Checked(createExportBody)) body: z.output<typeof createExportBody>,
  ): Promise<ExportJob> {
    const log = this.#places.projectIn(auditor, project);
    this.#downloads.requireDirectory();
    const { period, sessions, oscal } = body;
    const spec = {
      ...(period && { period: { from: canonical(period.from), to: canonical(period.to) } }),
      ...(sessions && { sessions: [...new Set(sessions)].sort() }),
      ...(oscal === true && { oscal }),
    };
    if (sessions) await requireSessions(this.#reader, log, sessions, (at) => `sessions.${at}`);
    const id = this.#issuer.id('exp');
    const added = await this.#reader.requests.addJob(
      log,
      { id, kind: 'export', spec, by: auditor.id },
      this.#most,
    );
    if (added === 'open') {
      throw new ProblemError(
        'rate_limited',
        `${this.#most.open} exports of this project are being made; wait for one of them, or cancel it.`,
        { retryAfter: 10 },
      );
    }
    if (added === 'kept') {
      throw new ProblemError(
        'too_many',
        `This project keeps ${this.#most.kept} exports, and no more; remove one that is not needed.`,
      );
    }
    return this.#counted(log, await this.#find(log, id));
  }

  @Get(':project/exports')
  @Allow('auditor')
  @Describe({
    summary: 'List exports, the newest first',
    params: { project: params.project },
    query: PAGING,
    answer: exportList,
  })
  async list(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Query() query: Asked,
  ): Promise<ExportList> {
    const log = this.#places.projectIn(auditor, project);
    const of = readerOf(query, 'cursor', 'limit');
    const before = parseCursor('exports', of('cursor'), (id) => isIdentifier('exp', id));
    const limit = parseLimit(of('limit'));
    const rows = await this.#reader.requests.jobs(log, 'export', { before, limit });
    const last = rows[rows.length - 1];
    return {
      exports: rows.filter((row) => !isRemoved(row)).map(shown),
      ...(rows.length === limit && last && { next: formatCursor('exports', last.id) }),
    };
  }

  @Get(':project/exports/:export')
  @Allow('auditor')
  @Describe({ summary: 'How far an export is', params, answer: exportJob })
  async one(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Param('export') id: string,
  ): Promise<ExportJob> {
    const log = this.#places.projectIn(auditor, project);
    const job = await this.#find(log, id);
    if (isRemoved(job)) throw gone();
    return this.#counted(log, job);
  }

  @Delete(':project/exports/:export')
  @Allow('auditor')
  @Describe({ summary: 'Cancel an export, or remove one that is there', params, answer: exportJob })
  async remove(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Param('export') id: string,
  ): Promise<ExportJob> {
    const log = this.#places.projectIn(auditor, project);
    const job = await this.#find(log, id);
    if (isRemoved(job)) throw gone();
    await this.#reader.requests.cancelJob(log, 'export', id);
    return shown({ ...job, cancel: true });
  }

  @Get(':project/exports/:export/file')
  @Allow('auditor')
  @Describe({
    summary: 'The file of an export, or a range of it',
    params,
    headers: {
      Range: '`bytes=A-B`, one range: then 206',
      'If-Range': 'The ETag that the range is of',
      'If-None-Match': 'An ETag: 304 when it is still the file’s',
    },
    answer: ['application/zip'],
  })
  async file(
    @Who() auditor: Auditor,
    @Param('project') project: string,
    @Param('export') id: string,
    @Headers() headers: Readonly<Record<string, string | undefined>>,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const log = this.#places.projectIn(auditor, project);
    const job = await this.#find(log, id);
    if (job.cancel) throw gone();
    const { file, bytes, sha256 } = job;
    if (job.state !== 'done') {
      if (job.state !== 'queued' && job.state !== 'running') throw gone();
      throw new ProblemError('not_published', 'The export is not made yet.', { retryAfter: 1 });
    }
    if (file === null || bytes === null || sha256 === null) throw gone();
    const etag = `"${sha256.toString('hex')}"`;
    const wanted = headers['if-range'];
    // A range of another file is worth nothing: then it is the whole one.
    const range = wanted === undefined || wanted === etag ? rangeOf(headers['range'], bytes) : undefined;
    const { first, last } = range ?? { first: 0, last: bytes - 1 };
    void reply.headers({
      etag,
      'accept-ranges': 'bytes',
      'cache-control': 'private, no-cache',
      vary: 'authorization',
    });
    if (namesTag(headers['if-none-match'], etag)) {
      await reply.status(304).send();
      return;
    }
    const stream = await this.#downloads.open(log, { file, bytes }, { first, last });
    if (range) void reply.status(206).header('content-range', `bytes ${first}-${last}/${bytes}`);
    void reply.type('application/zip').headers({
      'content-length': String(last - first + 1),
      'content-disposition': `attachment; filename="belay-export-${id}.zip"`,
    });
    if (request.method === 'HEAD') {
      // What is there was looked at; nothing of it is read.
      stream.destroy();
      await reply.send(Readable.from([]));
      return;
    }
    await reply.send(stream);
  }

  /** With how many sessions it is about, as far as entries were reconciled: once it is done, all of them were. */
  async #counted(log: LogRow, job: JobRow): Promise<ExportJob> {
    const { sessions, period } = job.spec as ExportJob['request'];
    return { ...shown(job), sessions: sessions?.length ?? (await this.#reader.sessions.count(log, period)) };
  }

  async #find(log: LogRow, id: string): Promise<JobRow> {
    const job = isIdentifier('exp', id) ? await this.#reader.requests.job(log, 'export', id) : undefined;
    if (!job) throw notFound();
    return job;
  }
}

/** Over, and not wanted: the worker takes it away. */
function isRemoved({ state, cancel }: JobRow): boolean {
  return cancel && state !== 'queued' && state !== 'running';
}

function shown(job: JobRow): ExportJob {
  const { id, spec, phase, done, total, bytes, sha256, error, by, created, finished } = job;
  const state = job.cancel ? 'cancelled' : job.state;
  return {
    id,
    state,
    ...(phase !== null && { phase }),
    done,
    ...(total !== null && { total }),
    request: spec as ExportJob['request'],
    ...(state === 'done' && bytes !== null && { bytes }),
    ...(state === 'done' && sha256 !== null && { sha256: sha256.toString('hex') }),
    ...(error !== null && { error }),
    by,
    created: created.toISOString(),
    ...(finished !== null && { finished: finished.toISOString() }),
  };
}

function canonical(time: string): string {
  return new Date(time).toISOString();
}

/** Whether an `If-None-Match` names this tag; weak ones compare alike. */
function namesTag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  return header
    .split(',')
    .map((tag) => tag.trim().replace(/^W\//, ''))
    .some((tag) => tag === etag || tag === '*');
}
