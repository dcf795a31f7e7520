import { Body, Controller, Get, HttpCode, Inject, Param, Post, Put, Query } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import type { Change } from '@belay/contracts';
import {
  type LabelList,
  labelList,
  type LabelSet,
  labelSet,
  type PolicySet,
  policySet,
  setLabelBody,
  setPolicyBody,
} from '@belay/contracts/http';
import { DEFAULT_POLICY, policyDigest, readPolicy } from '@belay/coverage';
import type { Reader } from '@belay/db';
import type { z } from 'zod';
import type { Admin, Auditor } from './access.js';
import type { Collector } from './collector.js';
import { Allow, Who } from './guard.js';
import { formatCursor, isIndex, PAGING, parseCursor, parseIndex, parseLimit } from './page.js';
import type { Places } from './places.js';
import { ProblemError, valueOf } from './problem.js';
import { parseSession, type Query as Asked, reader as readerOf } from './query.js';
import { requireSessions } from './require-sessions.js';
import { Checked, Describe } from './schema.js';
import { COLLECTOR, PLACES, READER } from './tokens.js';

const project = { project: 'Project, `prj_...`' };

/** By which rules sessions are judged, and what auditors say of them. Both are entries of the log. */
@ApiTags('policy')
@Controller('v1/projects')
export class PolicyController {
  readonly #collector: Collector;
  readonly #reader: Reader;
  readonly #places: Places;

  constructor(
    @Inject(COLLECTOR) collector: Collector,
    @Inject(READER) reader: Reader,
    @Inject(PLACES) places: Places,
  ) {
    this.#collector = collector;
    this.#reader = reader;
    this.#places = places;
  }

  @Put(':project/policy')
  @Allow('admin')
  @HttpCode(200)
  @Describe({
    summary: 'Set the policy, whole: a member that is absent gets its default',
    params: project,
    body: setPolicyBody,
    answer: policySet,
  })
  async setPolicy(
    @Who() admin: Admin,
    @Param('project') id: string,
    @Body(new Checked(setPolicyBody)) body: z.output<typeof setPolicyBody>,
  ): Promise<PolicySet> {
    const log = await this.#places.projectOf(admin, id);
    const policy = readPolicy(body);
    const index = await this.#change({
      kind: 'policy.set',
      tenant: admin.tenant,
      by: admin.id,
      project: log.project,
      policy,
    });
    return { policy, digest: policyDigest(policy), index };
  }

  @Get(':project/policy')
  @Allow('admin', 'auditor')
  @Describe({
    summary: 'The policy in force, now or for an entry',
    params: project,
    query: { at: 'Index of an entry: the policy that was in force when it was written' },
    answer: policySet,
  })
  async policy(
    @Who() caller: Admin | Auditor,
    @Param('project') id: string,
    @Query() query: Asked,
  ): Promise<PolicySet> {
    const log = await this.#places.projectFor(caller, id);
    const at = readerOf(query, 'at')('at');
    const before = at === undefined ? undefined : parseIndex(at, 'at');
    const found = await this.#reader.sessions.policy(log, before);
    const policy = found ? readPolicy(found.policy) : { ...DEFAULT_POLICY, public: log.public };
    return { policy, digest: policyDigest(policy), index: found?.index ?? 0 };
  }

  @Post(':project/labels')
  @Allow('auditor')
  @Describe({
    summary: 'Say of a session, or of one call of it, that it was violated or not',
    params: project,
    body: setLabelBody,
    status: 201,
    answer: labelSet,
  })
  async label(
    @Who() auditor: Auditor,
    @Param('project') id: string,
    @Body(new Checked(setLabelBody)) { session, call, says }: z.output<typeof setLabelBody>,
  ): Promise<LabelSet> {
    const log = this.#places.projectIn(auditor, id);
    await requireSessions(this.#reader, log, [session], () => 'session');
    const index = await this.#change({
      kind: 'label.set',
      by: auditor.id,
      project: log.project,
      session,
      ...(call !== undefined && { call }),
      says,
    });
    return { index };
  }

  @Get(':project/labels')
  @Allow('auditor')
  @Describe({
    summary: 'What auditors said, in the order of the log',
    params: project,
    query: { session: 'Only of this session', ...PAGING },
    answer: labelList,
  })
  async labels(
    @Who() auditor: Auditor,
    @Param('project') id: string,
    @Query() query: Asked,
  ): Promise<LabelList> {
    const log = this.#places.projectIn(auditor, id);
    const of = readerOf(query, 'session', 'cursor', 'limit');
    const session = of('session');
    const after = parseCursor('labels', of('cursor'), isIndex);
    const limit = parseLimit(of('limit'));
    const rows = await this.#reader.sessions.labels(log, {
      ...(session !== undefined && { session: parseSession(session) }),
      ...(after !== undefined && { after: Number(after) }),
      limit,
    });
    const last = rows[rows.length - 1];
    return {
      labels: rows.map(({ index, session: of, call, says, auditor: by }) => ({
        index,
        session: of,
        ...(call !== null && { call }),
        says,
        by,
      })),
      ...(rows.length === limit && last && { next: formatCursor('labels', String(last.index)) }),
    };
  }

  async #change(change: Change): Promise<number> {
    const { index } = valueOf(await this.#collector.change(change));
    if (index === null) throw new ProblemError('internal', `${change.kind} was not written to the log`);
    return index;
  }
}
