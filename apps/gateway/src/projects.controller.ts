import { Body, Controller, Delete, Get, Inject, Param, Post, Put, Query } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import { type Change, type ChangeReply, isIdentifier } from '@belay/contracts';
import {
  type AuditorIssued,
  auditorIssued,
  type AuditorList,
  auditorList,
  createProjectBody,
  declareSinkBody,
  issueAuditorBody,
  issueTokenBody,
  type ProjectCreated,
  projectCreated,
  type Revoked,
  revoked,
  type SinkDeclared,
  sinkDeclared,
  type TokenIssued,
  tokenIssued,
  type TokenList,
  tokenList,
} from '@belay/contracts/http';
import type { Reader } from '@belay/db';
import type { z } from 'zod';
import type { Admin } from './access.js';
import type { Collector } from './collector.js';
import { Allow, Who } from './guard.js';
import { SINK } from './intake.js';
import type { Issuer } from './issue.js';
import { formatCursor, PAGING, parseCursor, parseLimit } from './page.js';
import type { Places } from './places.js';
import { notFound, ProblemError, valueOf } from './problem.js';
import { Checked, Describe } from './schema.js';
import { COLLECTOR, ISSUER, PLACES, READER } from './tokens.js';

const project = { project: 'Project, `prj_...`' };

/** What a tenant's admin does. Every change is an entry of the project's log, written with it. */
@ApiTags('projects')
@Controller('v1/projects')
export class ProjectsController {
  readonly #collector: Collector;
  readonly #reader: Reader;
  readonly #places: Places;
  readonly #issuer: Issuer;

  constructor(
    @Inject(COLLECTOR) collector: Collector,
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
    @Inject(ISSUER) issuer: Issuer,
  ) {
    this.#collector = collector;
    this.#reader = reader;
    this.#places = places;
    this.#issuer = issuer;
  }

  @Post()
  @Allow('admin')
  @Describe({ summary: 'Register a project', body: createProjectBody, status: 201, answer: projectCreated })
  async create(
    @Who() admin: Admin,
    @Body(new Checked(createProjectBody)) body: z.output<typeof createProjectBody>,
  ): Promise<ProjectCreated> {
    const id = this.#issuer.id('prj');
    const token = this.#issuer.append();
    const auditor = this.#issuer.auditor();
    const { log } = await this.#change({
      kind: 'project.create',
      tenant: admin.tenant,
      by: admin.id,
      project: id,
      name: body.name,
      public: body.public,
      token: { id: token.id, secretHash: token.secretHash },
      auditor: { id: auditor.id, secretHash: auditor.secretHash },
    });
    if (!log) throw new Error('the collector made a project without saying where its log is');
    const place = { project: id, publicKey: log.publicKey, origin: log.origin };
    return {
      project: id,
      name: body.name,
      public: body.public,
      log: log.id,
      origin: log.origin,
      vkey: log.vkey,
      token: { id: token.id, role: 'sink', credential: token.textAt(place) },
      auditor: { id: auditor.id, credential: auditor.textAt(place) },
    };
  }

  @Post(':project/tokens')
  @Allow('admin')
  @Describe({
    summary: 'Issue an append token',
    params: project,
    body: issueTokenBody,
    status: 201,
    answer: tokenIssued,
  })
  async issueToken(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Body(new Checked(issueTokenBody)) body: z.output<typeof issueTokenBody>,
  ): Promise<TokenIssued> {
    const log = await this.#places.projectOf(admin, id);
    const { role, sinks, domain, rate } = body;
    const expires = body.expires === undefined ? undefined : new Date(body.expires).toISOString();
    const said = {
      role,
      ...(sinks && { sinks: [...new Set(sinks)] }),
      ...(expires !== undefined && { expires }),
      ...(domain !== undefined && { domain }),
      ...(rate !== undefined && { rate }),
    };
    const token = this.#issuer.append();
    const { index } = await this.#change({
      kind: 'token.issue',
      tenant: admin.tenant,
      by: admin.id,
      project: log.project,
      token: token.id,
      secretHash: token.secretHash,
      ...said,
    });
    return { id: token.id, ...said, index, credential: token.textAt(log) };
  }

  @Get(':project/tokens')
  @Allow('admin')
  @Describe({ summary: 'List append tokens', params: project, query: PAGING, answer: tokenList })
  async listTokens(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Query('cursor') cursor?: string,
    @Query('limit') limit?: string,
  ): Promise<TokenList> {
    const log = await this.#places.projectOf(admin, id);
    const page = {
      after: parseCursor('tokens', cursor, (id) => isIdentifier('tok', id)),
      limit: parseLimit(limit),
    };
    const rows = await this.#reader.tokens(log, page);
    return {
      tokens: rows.map(({ role, sinks, domain, expires, rate, ...row }) => ({
        id: row.id,
        role,
        ...(sinks && { sinks }),
        ...(expires && { expires: expires.toISOString() }),
        ...(domain !== null && { domain }),
        ...(rate !== null && { rate }),
        ...issuanceOf(row),
      })),
      ...nextOf('tokens', rows, page.limit),
    };
  }

  @Delete(':project/tokens/:token')
  @Allow('admin')
  @Describe({
    summary: 'Revoke an append token',
    params: { ...project, token: 'Token, `tok_...`' },
    answer: revoked,
  })
  async revokeToken(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Param('token') token: string,
  ): Promise<Revoked> {
    const log = await this.#places.projectOf(admin, id);
    if (!isIdentifier('tok', token)) throw notFound();
    const { index } = await this.#change({
      kind: 'token.revoke',
      tenant: admin.tenant,
      by: admin.id,
      project: log.project,
      token,
    });
    return { id: token, index };
  }

  @Post(':project/auditors')
  @Allow('admin')
  @Describe({
    summary: 'Issue an auditor key',
    params: project,
    body: issueAuditorBody,
    status: 201,
    answer: auditorIssued,
  })
  async issueAuditor(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Body(new Checked(issueAuditorBody)) _body: object,
  ): Promise<AuditorIssued> {
    const log = await this.#places.projectOf(admin, id);
    const auditor = this.#issuer.auditor();
    const { index } = await this.#change({
      kind: 'auditor.issue',
      tenant: admin.tenant,
      by: admin.id,
      project: log.project,
      auditor: auditor.id,
      secretHash: auditor.secretHash,
    });
    return { id: auditor.id, index, credential: auditor.textAt(log) };
  }

  @Get(':project/auditors')
  @Allow('admin')
  @Describe({ summary: 'List auditor keys', params: project, query: PAGING, answer: auditorList })
  async listAuditors(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Query('cursor') cursor?: string,
    @Query('limit') limit?: string,
  ): Promise<AuditorList> {
    const log = await this.#places.projectOf(admin, id);
    const page = {
      after: parseCursor('auditors', cursor, (id) => isIdentifier('aud', id)),
      limit: parseLimit(limit),
    };
    const rows = await this.#reader.auditors(log, page);
    return {
      auditors: rows.map((row) => ({ id: row.id, ...issuanceOf(row) })),
      ...nextOf('auditors', rows, page.limit),
    };
  }

  @Delete(':project/auditors/:auditor')
  @Allow('admin')
  @Describe({
    summary: 'Revoke an auditor key',
    params: { ...project, auditor: 'Auditor key, `aud_...`' },
    answer: revoked,
  })
  async revokeAuditor(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Param('auditor') auditor: string,
  ): Promise<Revoked> {
    const log = await this.#places.projectOf(admin, id);
    const known = isIdentifier('aud', auditor) ? await this.#reader.auditor(auditor) : undefined;
    if (known?.log.id !== log.id) throw notFound();
    if (known.revoked) throw new ProblemError('exists', 'This key is revoked already.', { field: 'auditor' });
    const { index } = await this.#change({
      kind: 'auditor.revoke',
      tenant: admin.tenant,
      by: admin.id,
      project: log.project,
      auditor,
    });
    return { id: auditor, index };
  }

  @Put(':project/sinks/:sink')
  @Allow('admin')
  @Describe({
    summary: 'Declare a sink, or declare it anew',
    params: { ...project, sink: 'Name of the sink' },
    body: declareSinkBody,
    answer: sinkDeclared,
  })
  async declareSink(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Param('sink') sink: string,
    @Body(new Checked(declareSinkBody)) body: z.output<typeof declareSinkBody>,
  ): Promise<SinkDeclared> {
    const log = await this.#places.projectOf(admin, id);
    if (!SINK.test(sink)) throw notFound();
    const { kind, domain, heartbeat, key: encoded, required = false } = body;
    const key = encoded === undefined ? undefined : Buffer.from(encoded, 'base64');
    if (key && key.toString('base64') !== encoded) {
      throw new ProblemError('invalid', 'not the canonical base64 of 32 bytes', { field: 'key' });
    }
    const { index } = await this.#change({
      kind: 'sink.declare',
      tenant: admin.tenant,
      by: admin.id,
      project: log.project,
      sink,
      required,
      ...(kind !== undefined && { sinkKind: kind }),
      ...(domain !== undefined && { domain }),
      ...(heartbeat !== undefined && { heartbeat }),
      ...(key && { key }),
    });
    return {
      sink,
      required,
      ...(kind !== undefined && { kind }),
      ...(domain !== undefined && { domain }),
      ...(heartbeat !== undefined && { heartbeat }),
      ...(encoded !== undefined && { key: encoded }),
      index,
    };
  }

  async #change(change: Change): Promise<ChangeReply & { index: number }> {
    const reply = valueOf(await this.#collector.change(change));
    if (reply.index === null) throw new Error(`${change.kind} was not written to the log`);
    return { ...reply, index: reply.index };
  }
}

function issuanceOf(row: { issuedBy: string; issuedIndex: number; revokedIndex: number | null }) {
  const { issuedBy, issuedIndex, revokedIndex } = row;
  return { issuedBy, issuedIndex, ...(revokedIndex !== null && { revokedIndex }) };
}

/** A full page may have another one behind it; the next may turn out empty. */
function nextOf(kind: string, rows: readonly { id: string }[], limit: number): { next?: string } {
  const last = rows[rows.length - 1];
  return rows.length === limit && last ? { next: formatCursor(kind, last.id) } : {};
}
