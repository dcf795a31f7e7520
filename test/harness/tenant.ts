import { createHash, randomBytes, sign } from 'node:crypto';
import type { Ack, AckRun } from '@belay/contracts';
import type { ProjectCreated, TenantCreated } from '@belay/contracts/http';
import { batchMessage, batchRoot, collectorLine, entryBytes, newUlid } from '@belay/envelope';
import { leafHash, verifyConsistency, verifyRange } from '@belay/merkle';
import { ackHeadText, ackVerifier, openNote, privateKeyObject } from '@belay/note';
import request from 'supertest';
import { expect } from 'vitest';
import type { Service } from './service.js';

/** A tenant of a service with one project, and the ways to use it that tests share. */
export class Tenant {
  readonly service: Service;
  readonly name: string;
  readonly id: string;
  readonly admin: string;
  readonly project: ProjectCreated;

  private constructor(service: Service, tenant: TenantCreated, project: ProjectCreated) {
    this.service = service;
    this.name = tenant.name;
    this.id = tenant.tenant;
    this.admin = tenant.admin.credential;
    this.project = project;
  }

  static async create(service: Service, name: string, more: { public?: boolean } = {}): Promise<Tenant> {
    const tenant = (await as(service, service.operatorKey, 'post', '/v1/tenants').send({ name }).expect(201))
      .body as TenantCreated;
    const project = (
      await as(service, tenant.admin.credential, 'post', '/v1/projects')
        .send({ name: `${name}-project`, ...more })
        .expect(201)
    ).body as ProjectCreated;
    return new Tenant(service, tenant, project);
  }

  /** A path below the project. */
  path(tail: string): string {
    return `/v1/projects/${this.project.project}${tail}`;
  }

  asAdmin(method: Method, path: string): request.Test {
    return as(this.service, this.admin, method, path);
  }

  asAuditor(method: Method, path: string): request.Test {
    return as(this.service, this.project.auditor.credential, method, path);
  }

  /** An append of lines as they are. */
  post(body: string | Buffer, token: string = this.project.token.credential): request.Test {
    return as(this.service, token, 'post', this.path('/events'))
      .set('content-type', 'application/x-ndjson')
      .send(body);
  }

  /** Appends and checks the ack the way a sender must before it forgets its lines. */
  async append(
    lines: readonly string[],
    token?: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Ack> {
    const answer = await this.post(lines.join('\n'), token).set(headers).expect(200);
    const ack = answer.body as Ack;
    verifyAck(this.project, lines, ack);
    return ack;
  }

  sink(name: string, epoch: string = ulid()): Sink {
    return new Sink(this.project.origin, name, epoch);
  }

  async token(body: object): Promise<{ id: string; credential: string; index: number }> {
    const answer = await this.asAdmin('post', this.path('/tokens')).send(body).expect(201);
    return answer.body as { id: string; credential: string; index: number };
  }
}

type Method = 'get' | 'head' | 'post' | 'put' | 'delete';

/** A request with a credential, or without. */
export function as(
  service: Service,
  credential: string | undefined,
  method: Method,
  path: string,
): request.Test {
  const test = request(service.url)[method](path);
  return credential === undefined ? test : test.set('authorization', `Bearer ${credential}`);
}

export function ulid(): string {
  return newUlid(Date.now(), randomBytes(10));
}

/** Numbers the lines of one epoch of one sink. */
export class Sink {
  readonly origin: string;
  readonly name: string;
  readonly epoch: string;
  #seq = 0;

  constructor(origin: string, name: string, epoch: string) {
    this.origin = origin;
    this.name = name;
    this.epoch = epoch;
  }

  line(more: object = {}): string {
    return JSON.stringify({
      v: 1,
      log: this.origin,
      sink: this.name,
      epoch: this.epoch,
      seq: ++this.#seq,
      kind: 'call',
      time: '2026-01-01T00:00:00Z',
      ...more,
    });
  }

  lines(count: number, more: object = {}): string[] {
    return Array.from({ length: count }, () => this.line(more));
  }
}

/** The `Belay-Signature` of a keyed sink over these lines. */
export function signBatch(sink: Sink, firstSeq: number, lines: readonly string[], seed: Buffer): string {
  const buffers = lines.map((line) => Buffer.from(line));
  const message = batchMessage({
    log: sink.origin,
    sink: sink.name,
    epoch: sink.epoch,
    firstSeq,
    count: lines.length,
    root: batchRoot(buffers),
  });
  return sign(null, message, privateKeyObject(seed)).toString('base64');
}

/** Rebuilds the entries an ack speaks of from the lines that were sent, and leads them to the signed root. */
export function verifyAck(
  project: Pick<ProjectCreated, 'origin' | 'vkey'>,
  lines: readonly string[],
  ack: Ack,
): void {
  expect(ack.log).toBe(project.origin);
  const root = Buffer.from(ack.root, 'base64');
  const text = ackHeadText(project.origin, BigInt(ack.size), root);
  openNote(`${text}\n${ack.signature}\n`, [ackVerifier(project.vkey)]);
  for (const run of ack.runs) {
    const [from, to] = run.lines;
    verifyRange({
      index: BigInt(run.index),
      size: BigInt(ack.size),
      leaves: lines.slice(from, to).map((line, i) => leafOf(project.origin, line, run, run.index + i)),
      left: run.range.left.map(decode),
      right: run.range.right.map(decode),
      root,
    });
  }
}

function leafOf(origin: string, line: string, run: AckRun, index: number): Buffer {
  const { sink } = JSON.parse(line) as { sink: string };
  const { received, token, role, signed, conflict, late } = run;
  const header = collectorLine({
    log: origin,
    index,
    received,
    token,
    role,
    sink,
    ...(signed !== undefined && { signed }),
    ...(late && { late }),
    ...(conflict !== undefined && { conflict }),
  });
  return leafHash(entryBytes(header, Buffer.from(line)));
}

/** Checks the consistency proof of an ack from the head of an earlier one. */
export function verifyGrowth(earlier: Ack, later: Ack): void {
  verifyConsistency({
    size1: BigInt(earlier.size),
    size2: BigInt(later.size),
    root1: decode(earlier.root),
    root2: decode(later.root),
    proof: (later.consistency ?? []).map(decode),
  });
}

export function decode(text: string): Buffer {
  return Buffer.from(text, 'base64');
}

export function sha256(bytes: string | Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
