import type { OpenAPIObject } from '@nestjs/swagger';
import { CollectorService } from '@belay/collector';
import type { ExportJob, SessionDetail, WebhookCreated } from '@belay/contracts/http';
import { Reader, RequestStore, SessionReader } from '@belay/db';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { startServe, type ServeService } from '../harness/serve.js';
import { StatingSink } from '../harness/stating-sink.js';
import { as, Tenant } from '../harness/tenant.js';

/**
 * Two tenants of one service. One walks every route that the service documents with the other's identifiers: the
 * answer has to be the one that made-up identifiers get, byte for byte, by the same steps.
 */

type Method = 'get' | 'post' | 'put' | 'delete';

interface Operation {
  readonly method: Method;
  readonly path: string;
  readonly parameters: readonly string[];
  readonly isOpen: boolean;
}

/** Everything asked of database and collector, in order, by name: passed through as it is, and written down. */
const steps: string[] = [];
/** Readers that look for logs to publish: what they do is not done for a request. */
const publishers = new Set<unknown>();

function record(prototype: object, names: readonly string[]): void {
  for (const name of names) {
    const original = Reflect.get(prototype, name) as (...args: unknown[]) => unknown;
    vi.spyOn(prototype as Record<string, (...args: unknown[]) => unknown>, name).mockImplementation(function (
      this: unknown,
      ...args: unknown[]
    ) {
      if (name === 'grownLogs') publishers.add(this);
      if (!publishers.has(this)) steps.push(name);
      return original.apply(this, args);
    });
  }
}

const methodsOf = (prototype: object) =>
  Object.getOwnPropertyNames(prototype).filter(
    (name) =>
      name !== 'constructor' && typeof Object.getOwnPropertyDescriptor(prototype, name)?.value === 'function',
  );

/** The look-up of one's own token is remembered for a moment, so it comes and goes. */
const OWN_STEP = 'appendToken';

let service: ServeService;
let victim: Tenant;
let intruder: Tenant;
let operations: Operation[];
let victims: Record<string, string>;
let credentials: Record<string, string>;

const MADE_UP: Record<string, string> = {
  project: 'prj_01jd0000000000000000000000',
  log: 'log_01jd0000000000000000000000',
  token: 'tok_01jd0000000000000000000000',
  auditor: 'aud_01jd0000000000000000000000',
  receipt: 'rcp_01jd0000000000000000000000',
  sink: 'proxy',
  path: '0/000.p/1',
  session: 'run-2',
  digest: `sha256:${'0'.repeat(64)}`,
  export: 'exp_01jd0000000000000000000000',
  webhook: 'whk_01jd0000000000000000000000',
};

const BODIES: Record<string, object> = {
  tokens: { role: 'agent' },
  auditors: {},
  sinks: { kind: 'proxy' },
  policy: { public: true },
  labels: { session: 'run-1', says: 'violated' },
  exports: {},
  webhooks: { url: 'https://example.org/hook', events: ['session.settled'] },
};

/** Where one path has several questions, each is asked. */
const QUERIES: readonly (readonly [path: RegExp, queries: readonly string[]])[] = [
  [/\/receipts$/, ['?event=0', '?session=run-1', '?period=2026-01-01T00:00:00Z..2027-01-01T00:00:00Z']],
  [/\/proof$/, ['?index=0']],
  [/\/coverage$/, ['', '?sink=proxy', '?session=run-1']],
  [/\/events$/, ['', '?session=run-1']],
];

beforeAll(async () => {
  // Publishing has steps of its own, which would mix with those of the requests: it happens once, before.
  service = await startServe({ publishIntervalMs: 100 });
  victim = await Tenant.create(service, 'victim');
  intruder = await Tenant.create(service, 'intruder');
  const { body: document } = await as(service, undefined, 'get', '/docs-json').expect(200);
  operations = Object.entries((document as OpenAPIObject).paths).flatMap(([path, item]) =>
    (['get', 'post', 'put', 'delete'] as const).flatMap((method) => {
      const operation = item[method];
      return operation
        ? [
            {
              method,
              path,
              parameters: [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? ''),
              isOpen: operation.security === undefined,
            },
          ]
        : [];
    }),
  );
  await victim.append(victim.sink('proxy').lines(5));
  const stating = (await StatingSink.declare(victim, 'stating')).open();
  stating.say('session.open', { session: 'run-1' }).stated('session.close', { session: 'run-1' });
  await stating.send();
  const webhook = (
    await victim.asAdmin('post', victim.path('/webhooks')).send(BODIES['webhooks']).expect(201)
  ).body as WebhookCreated;
  const exported = (await victim.asAuditor('post', victim.path('/exports')).send({}).expect(202))
    .body as ExportJob;
  let receipt: string | undefined;
  while (receipt === undefined) {
    const answer = await victim.asAuditor('get', victim.path('/receipts?range=0..4'));
    receipt = answer.headers['belay-receipt-id'] as string | undefined;
  }
  const { project, log, token, auditor } = victim.project;
  victims = {
    project,
    log,
    token: token.id,
    auditor: auditor.id,
    receipt,
    sink: 'proxy',
    path: '0/000.p/1',
    session: 'run-1',
    digest: await statementOf('run-1'),
    export: exported.id,
    webhook: webhook.id,
  };
  credentials = {
    admin: intruder.admin,
    append: intruder.project.token.credential,
    auditor: intruder.project.auditor.credential,
  };
  expect(victims['digest']).toMatch(/^sha256:/);
  // Until the receipt's own entry is published too, sweeps go on.
  await new Promise((resolve) => setTimeout(resolve, 500));
  record(
    Reader.prototype,
    methodsOf(Reader.prototype).filter((name) => name !== OWN_STEP),
  );
  record(SessionReader.prototype, methodsOf(SessionReader.prototype));
  record(RequestStore.prototype, methodsOf(RequestStore.prototype));
  record(CollectorService.prototype, ['append', 'change', 'receipt']);
});

/** Of the coverage statement on a session, once the log names one. */
async function statementOf(session: string): Promise<string> {
  const { body } = await victim.asAuditor('get', victim.path(`/sessions/${session}?wait=20`));
  return (body as SessionDetail).statement ?? 'none';
}

afterAll(async () => {
  vi.restoreAllMocks();
  await service?.close();
});

beforeEach(() => {
  steps.length = 0;
});

function fill(path: string, values: Readonly<Record<string, string>>): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => values[name] ?? `no-value-for-${name}`);
}

interface Answered {
  readonly status: number;
  readonly body: unknown;
  readonly steps: readonly string[];
}

function queriesOf({ method, path }: Operation): readonly string[] {
  return (method === 'get' ? QUERIES.find(([pattern]) => pattern.test(path))?.[1] : undefined) ?? [''];
}

async function ask(operation: Operation, path: string, credential: string | undefined): Promise<Answered> {
  const answers: Answered[] = [];
  for (const query of queriesOf(operation)) answers.push(await askOnce(operation, path, query, credential));
  const [first, ...others] = answers as [Answered, ...Answered[]];
  for (const other of others) expect(other.status).toBe(first.status);
  return {
    ...first,
    body: answers.map(({ body }) => body),
    steps: answers.flatMap(({ steps: each }) => each),
  };
}

async function askOnce(
  operation: Operation,
  path: string,
  query: string,
  credential: string | undefined,
): Promise<Answered> {
  steps.length = 0;
  const test = as(service, credential, operation.method, path + query);
  const [, last = ''] = /\/(tokens|auditors|sinks|policy|labels|exports|webhooks)(?:\/|$)/.exec(path) ?? [];
  if (path.endsWith('/events') && operation.method === 'post') {
    void test.set('content-type', 'application/x-ndjson').send(`${victim.sink('proxy').line()}\n`);
  } else if (operation.method === 'post' || operation.method === 'put') {
    void test.send(BODIES[last] ?? { name: 'x' });
  }
  const answer = await test;
  return { status: answer.status, body: answer.body as unknown, steps: [...steps] };
}

const named = (operation: Operation) => `${operation.method.toUpperCase()} ${operation.path}`;

describe('an intruder with credentials of another tenant', () => {
  it('finds every route in the document', () => {
    expect(
      operations
        .filter(({ path }) => path.startsWith('/v1/'))
        .map(named)
        .sort(),
    ).toEqual(
      [
        'DELETE /v1/projects/{project}/auditors/{auditor}',
        'DELETE /v1/projects/{project}/tokens/{token}',
        'GET /v1/logs/{log}/checkpoint',
        'GET /v1/logs/{log}/keys',
        'GET /v1/logs/{log}/proof',
        'GET /v1/logs/{log}/tile/{path}',
        'DELETE /v1/projects/{project}/exports/{export}',
        'DELETE /v1/projects/{project}/webhooks/{webhook}',
        'GET /v1/projects/{project}/auditors',
        'GET /v1/projects/{project}/coverage',
        'GET /v1/projects/{project}/exports',
        'GET /v1/projects/{project}/exports/{export}',
        'GET /v1/projects/{project}/exports/{export}/file',
        'GET /v1/projects/{project}/labels',
        'GET /v1/projects/{project}/policy',
        'GET /v1/projects/{project}/sessions',
        'GET /v1/projects/{project}/sessions/{session}',
        'GET /v1/projects/{project}/statements/{digest}',
        'GET /v1/projects/{project}/webhooks',
        'GET /v1/projects/{project}/webhooks/{webhook}/deliveries',
        'POST /v1/projects/{project}/exports',
        'POST /v1/projects/{project}/labels',
        'POST /v1/projects/{project}/webhooks',
        'GET /v1/projects/{project}/events',
        'GET /v1/projects/{project}/receipts',
        'GET /v1/projects/{project}/tokens',
        'GET /v1/receipts/{receipt}',
        'GET /v1/token',
        'POST /v1/projects',
        'POST /v1/projects/{project}/auditors',
        'POST /v1/projects/{project}/events',
        'POST /v1/projects/{project}/tokens',
        'POST /v1/tenants',
        'PUT /v1/projects/{project}/policy',
        'PUT /v1/projects/{project}/sinks/{sink}',
      ].sort(),
    );
  });

  it('gets for the victim’s identifiers what made-up ones get, by the same steps', async () => {
    let refused = 0;
    for (const operation of operations.filter(({ parameters }) => parameters.length > 0)) {
      for (const [kind, credential] of Object.entries(credentials)) {
        const theirs = await ask(operation, fill(operation.path, victims), credential);
        const nobodys = await ask(operation, fill(operation.path, MADE_UP), credential);
        expect({ route: named(operation), kind, ...theirs }).toEqual({
          route: named(operation),
          kind,
          ...nobodys,
        });
        expect([named(operation), kind, theirs.status]).toEqual([
          named(operation),
          kind,
          theirs.status === 403 ? 403 : 404,
        ]);
        if (theirs.status === 404) refused += 1;
      }
    }
    // Each route but the documents' own takes at least one kind of credential, which then found nothing.
    expect(refused).toBeGreaterThanOrEqual(
      operations.filter(({ parameters }) => parameters.length > 0).length,
    );
  });

  it('gets nothing by putting the victim’s identifiers below its own project', async () => {
    const mixed = { ...victims, project: intruder.project.project };
    const own = { ...MADE_UP, project: intruder.project.project };
    for (const operation of operations.filter(({ parameters }) => parameters.length > 1)) {
      if (operation.parameters.includes('sink')) continue;
      const statuses: number[] = [];
      for (const credential of [credentials['admin'], credentials['auditor']]) {
        const theirs = await ask(operation, fill(operation.path, mixed), credential);
        const nobodys = await ask(operation, fill(operation.path, own), credential);
        expect({ route: named(operation), ...theirs }).toEqual({ route: named(operation), ...nobodys });
        statuses.push(theirs.status);
      }
      // One kind of credential finds nothing, the other may not even ask.
      if (operation.parameters.includes('project')) expect(new Set(statuses)).toEqual(new Set([403, 404]));
    }
    // And the victim's credentials work as before.
    await victim.append(victim.sink('after').lines(1));
    await victim.asAuditor('get', victim.path('/events')).expect(200);
  });

  it('gets nothing without any credential', async () => {
    for (const operation of operations.filter(({ isOpen }) => !isOpen)) {
      const theirs = await ask(operation, fill(operation.path, victims), undefined);
      const nobodys = await ask(operation, fill(operation.path, MADE_UP), undefined);
      expect([named(operation), theirs.status]).toEqual([named(operation), 401]);
      expect(theirs).toEqual(nobodys);
    }
  });

  it('can not append lines that say they are of the victim’s log', async () => {
    const answer = await intruder
      .post(`${victim.sink('proxy').line()}\n${intruder.sink('proxy').line()}`)
      .expect(200);
    expect(answer.body).toMatchObject({ refused: [{ line: 0, code: 'wrong_log' }] });
    const before = (await victim.asAuditor('get', victim.path('/events'))).body as { size: number };
    await intruder.post(victim.sink('proxy').line()).expect(422);
    const after = (await victim.asAuditor('get', victim.path('/events'))).body as { size: number };
    expect(after.size).toBe(before.size);
  });
});
