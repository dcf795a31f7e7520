/**
 * `belay otlp` as an agent's instrumentation meets it: OpenTelemetry's own exporters send to it, a real service takes
 * what it forwards, and secrets in every attribute are looked for in everything that was sent.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { commitment, commitmentSalt } from '@belay/envelope';
import { checkTrace, readTrace, recordData } from '@belay/trace';
import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { CompressionAlgorithm } from '@opentelemetry/otlp-exporter-base';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServe, type ServeService } from '../harness/serve.js';
import { Tenant } from '../harness/tenant.js';

const BELAY = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const CANARY = 'canary-4f1d';

interface Ready {
  readonly url: string;
  readonly log: string | undefined;
  readonly epoch: string;
  readonly trace: string;
}

let service: ServeService;
let tenant: Tenant;
let tap: Server;
let tapUrl: string;
/** Whole requests as they went to the service: what a reader of the wire would see. */
let sent = '';
let down = false;
let root: string;
const running = new Set<ChildProcess>();

beforeAll(async () => {
  service = await startServe();
  tenant = await Tenant.create(service, 'otlp');
  root = mkdtempSync(join(tmpdir(), 'belay-otlp-'));
  chmodSync(root, 0o711);
  tap = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts);
      if (down) {
        response.writeHead(503).end();
        return;
      }
      sent += `${request.method} ${request.url} ${JSON.stringify(request.rawHeaders)}\n${body.toString('latin1')}\n`;
      const headers = { ...request.headers } as Record<string, string>;
      delete headers['host'];
      delete headers['connection'];
      delete headers['transfer-encoding'];
      void fetch(`${service.url}${request.url}`, {
        method: request.method as string,
        headers,
        ...(body.length === 0 ? {} : { body }),
      }).then(async (answer) => {
        response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' });
        response.end(Buffer.from(await answer.arrayBuffer()));
      });
    });
  }).listen(0, '127.0.0.1');
  await once(tap, 'listening');
  tapUrl = `http://127.0.0.1:${(tap.address() as { port: number }).port}`;
});

afterAll(async () => {
  for (const child of running) child.kill('SIGKILL');
  tap?.closeAllConnections();
  tap?.close();
  await service?.close();
  if (root !== undefined) rmSync(root, { recursive: true, force: true });
});

/** A receiver in a process of its own. */
async function receiver(state: string, more: readonly string[] = [], token?: string) {
  const child = spawn(
    process.execPath,
    [BELAY, 'otlp', '--json', '--listen', '127.0.0.1:0', '--state', join(root, state), ...more],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        PATH: process.env['PATH'],
        XDG_CONFIG_HOME: join(root, 'none'),
        ...(token === undefined ? {} : { BELAY_URL: tapUrl, BELAY_TOKEN: token }),
      },
    },
  );
  running.add(child);
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk: Buffer) => (out += chunk));
  child.stderr.on('data', (chunk: Buffer) => (err += chunk));
  const ended = once(child, 'close').then(([code]) => {
    running.delete(child);
    return code as number | null;
  });
  while (!out.includes('\n')) {
    if (child.exitCode !== null) throw new Error(`belay otlp ended with ${child.exitCode}: ${err}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const ready = JSON.parse(out) as Ready;
  return {
    ...ready,
    child,
    ended,
    /** Ends it as a supervisor would. */
    end: async () => {
      child.kill('SIGTERM');
      const code = await ended;
      const [, summary = '{}'] = out.trimEnd().split('\n');
      return { code, err, summary: JSON.parse(summary) as Record<string, unknown> };
    },
  };
}

const token = async (): Promise<string> => (await tenant.token({ role: 'sink', sinks: ['otlp'] })).credential;

/** An agent's run of one tool call, instrumented as the conventions say, with a secret wherever text goes. */
async function agentRun(exporter: SpanExporter, conversation: string): Promise<void> {
  const secret = (where: string): string => `${CANARY}-${where}`;
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ 'service.name': secret('service'), 'host.name': secret('host') }),
    spanProcessors: [new BatchSpanProcessor(exporter)],
  });
  const tracer = provider.getTracer(secret('scope'), secret('version'));
  const agent = tracer.startSpan(secret('agent'), {
    attributes: {
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.conversation.id': conversation,
      'gen_ai.agent.name': secret('agent-name'),
      'gen_ai.provider.name': secret('provider'),
    },
  });
  const inside = trace.setSpan(context.active(), agent);
  tracer
    .startSpan(
      'chat',
      {
        kind: SpanKind.CLIENT,
        attributes: {
          'gen_ai.operation.name': 'chat',
          'gen_ai.provider.name': 'openai',
          'gen_ai.request.model': secret('model'),
          'gen_ai.input.messages': secret('prompt'),
          'gen_ai.usage.input_tokens': 17,
          'server.address': secret('server'),
        },
      },
      inside,
    )
    .end();
  const tool = tracer.startSpan(
    `execute_tool ${secret('span-name')}`,
    {
      attributes: {
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': 'lookup',
        'gen_ai.tool.call.id': secret('call-id'),
        'gen_ai.tool.description': secret('description'),
        'gen_ai.tool.call.arguments': JSON.stringify({ query: secret('argument') }),
        'gen_ai.tool.call.result': JSON.stringify({ content: [{ type: 'text', text: secret('result') }] }),
        [secret('attribute-key')]: 1,
      },
    },
    inside,
  );
  tool.addEvent(secret('event'), { [secret('event-key')]: secret('event-value') });
  const mcp = tracer.startSpan(
    'tools/call lookup',
    {
      kind: SpanKind.CLIENT,
      attributes: {
        'mcp.method.name': 'tools/call',
        'gen_ai.tool.name': 'lookup',
        'mcp.resource.uri': secret('uri'),
        'mcp.session.id': secret('mcp-session'),
      },
    },
    trace.setSpan(inside, tool),
  );
  mcp.setStatus({ code: SpanStatusCode.ERROR, message: secret('status') });
  mcp.setAttribute('error.type', '-32001');
  mcp.end();
  tool.end();
  tracer.startSpan(`GET ${secret('path')}`, { attributes: { 'http.route': secret('route') } }, inside).end();
  agent.end();
  await provider.shutdown();
}

/** Envelopes of an epoch as the log has them. */
async function logged(epoch: string): Promise<Record<string, unknown>[]> {
  const { body } = await tenant
    .asAuditor('get', tenant.path(`/events?sink=otlp&epoch=${epoch}&limit=500`))
    .expect(200);
  const { events } = body as { readonly events: readonly { readonly entry: string }[] };
  expect(JSON.stringify(events)).not.toContain(CANARY);
  return events.map(({ entry }) => JSON.parse(entry.split('\n')[1] as string) as Record<string, unknown>);
}

describe.each([
  ['protobuf', (url: string) => new ProtobufExporter({ url: `${url}/v1/traces` })],
  [
    'protobuf, gzip',
    (url: string) =>
      new ProtobufExporter({ url: `${url}/v1/traces`, compression: CompressionAlgorithm.GZIP }),
  ],
  ['JSON', (url: string) => new JsonExporter({ url: `${url}/v1/traces` })],
  [
    'JSON, gzip',
    (url: string) => new JsonExporter({ url: `${url}/v1/traces`, compression: CompressionAlgorithm.GZIP }),
  ],
] as const)('OpenTelemetry’s exporter: %s', (title, exporter) => {
  it('becomes calls and results in the log, and no secret leaves', async () => {
    const state = title.replace(/\W+/g, '-');
    const run = await receiver(state, [], await token());
    expect(run.log).toBe(tenant.project.origin);
    await agentRun(exporter(run.url), `${CANARY}-conversation`);
    const { code, err, summary } = await run.end();
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(summary).toMatchObject({ received: 5, taken: 4, filtered: 1, refused: 0, pendingBytes: 0 });

    const envelopes = await logged(run.epoch);
    expect(envelopes.map(({ kind }) => kind)).toEqual([
      'epoch.open',
      // Spans in the order in which they ended: the model's answer, the MCP request, the tool around it, the agent.
      'x.span',
      'call',
      'result',
      'x.span',
      'x.span',
      'x.otlp',
      'epoch.close',
    ]);
    const [, chat, call, result, nested, agent, told] = envelopes as {
      attrs: object;
      call?: string;
      session: string;
    }[];
    expect(chat?.attrs).toMatchObject({
      operation: 'chat',
      provider: 'openai',
      span_kind: 'client',
      input_tokens: 17,
    });
    expect(call?.attrs).toMatchObject({ tool: 'lookup' });
    expect(result?.attrs).toMatchObject({ tool: 'lookup', ok: false, error: 32001, error_negative: true });
    expect(result?.call).toBe(call?.call);
    expect(nested?.attrs).toMatchObject({ operation: 'execute_tool', nested: true, ok: true });
    expect(agent?.attrs).toMatchObject({ operation: 'invoke_agent', provider: 'other' });
    expect(told?.attrs).toMatchObject({ received: 5, taken: 4, filtered: 1 });
    expect(new Set([chat, call, result, nested, agent].map((each) => each?.session)).size).toBe(1);

    expect(sent).toContain('"tool":"lookup"');
    expect(sent).not.toContain(CANARY);
    expect(sent).not.toContain(Buffer.from(CANARY).toString('base64').slice(0, 12));
    expect(sent).not.toContain(Buffer.from(CANARY).toString('hex'));
    expect(sent).not.toContain(createHash('sha256').update(`${CANARY}-argument`).digest('hex'));
    expect(service.logs()).not.toContain(CANARY);
  });

  it('what was kept opens the commitments', async () => {
    const state = join(root, title.replace(/\W+/g, '-'));
    const [file] = readdirSync(join(state, 'traces')) as [string];
    const path = join(state, 'traces', file);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const { problems } = await checkTrace(path);
    expect(problems).toEqual([]);
    const epoch = /otlp-(.*)\.jsonl/.exec(file)?.[1] as string;
    const [record] = readdirSync(state, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith(join(epoch, 'epoch.json')),
    );
    const { secret } = JSON.parse(readFileSync(join(state, record as string), 'utf8')) as { secret: string };
    const digests = new Map((await logged(epoch)).map(({ seq, digest }) => [seq, digest]));
    let opened = 0;
    let kept = '';
    for await (const line of readTrace(path)) {
      const { record: claim } = line as { record?: Parameters<typeof recordData>[0] };
      if (claim?.type !== 'claim') continue;
      const content = recordData(claim) as Buffer;
      kept += content.toString();
      for (const seq of (claim as unknown as { seqs?: number[] }).seqs ?? []) {
        expect(commitment(commitmentSalt(Buffer.from(secret, 'base64'), seq), content)).toBe(
          digests.get(seq),
        );
        opened++;
      }
    }
    expect(opened).toBe(5);
    for (const where of ['argument', 'result', 'service', 'scope', 'event-value', 'status', 'prompt']) {
      expect(kept).toContain(`${CANARY}-${where}`);
    }
  });
});

describe('belay otlp', () => {
  const body = JSON.stringify({
    resourceSpans: [
      {
        scopeSpans: [
          {
            spans: Array.from({ length: 40 }, (_, i) => ({
              traceId: '5b8efff798038103d269b633813fc60c',
              spanId: (i + 1).toString(16).padStart(16, '0'),
              attributes: [{ key: 'gen_ai.tool.name', value: { stringValue: 'add' } }],
            })),
          },
        ],
      },
    ],
  });
  const post = async (url: string, text = body): Promise<Response> =>
    await fetch(`${url}/v1/traces`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: text,
    });

  it('without credentials records and sends nothing', async () => {
    const before = sent;
    const run = await receiver('alone');
    expect((await post(run.url)).status).toBe(200);
    const { code, summary } = await run.end();
    expect(code).toBe(0);
    expect(summary).toMatchObject({ taken: 40 });
    expect(sent).toBe(before);
    expect((await checkTrace(run.trace)).problems).toEqual([]);
  });

  it('under the strict policy sends no name of a tool', async () => {
    const before = sent.length;
    const run = await receiver('strict', ['--privacy', 'strict'], await token());
    const named = body
      .replaceAll('"add"', '"name_of_the_house"')
      .replaceAll('gen_ai.tool.name', 'mcp.tool.name');
    const tools = named.replaceAll(
      '"attributes":[',
      '"attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"execute_tool"}},',
    );
    expect((await post(run.url, tools)).status).toBe(200);
    expect((await run.end()).code).toBe(0);
    const kinds = (await logged(run.epoch)).map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === 'call')).toHaveLength(40);
    expect(sent.slice(before)).toContain('"tool":"hmac-sha256:');
    expect(sent.slice(before)).not.toContain('name_of_the_house');
  });

  it('with the service away answers at once: 200 while there is room, then 429; what waits is sent later', async () => {
    down = true;
    const credential = await token();
    const run = await receiver('away', ['--spool-lines', '30', '--flush-timeout', '0.2'], credential);
    const start = Date.now();
    expect((await post(run.url)).status).toBe(200);
    const full = await post(run.url, body.replaceAll('5b8e', '6b8e'));
    expect(full.status).toBe(429);
    expect(Number(full.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(Date.now() - start).toBeLessThan(2_000);
    const stopping = Date.now();
    const { code, err } = await run.end();
    expect(Date.now() - stopping).toBeLessThan(5_000);
    expect(code).toBe(69);
    expect(err).toContain('wait in the spool');
    down = false;
    const sender = spawn(process.execPath, [BELAY, 'forward', '--state', join(root, 'away')], {
      stdio: 'ignore',
      env: {
        PATH: process.env['PATH'],
        XDG_CONFIG_HOME: join(root, 'none'),
        BELAY_URL: tapUrl,
        BELAY_TOKEN: credential,
      },
    });
    const [forwarded] = (await once(sender, 'close')) as [number];
    expect(forwarded).toBe(0);
    const kinds = (await logged(run.epoch)).map(({ kind }) => kind);
    expect(kinds).toHaveLength(43);
    expect(kinds.at(-1)).toBe('epoch.close');
  });

  it('a kill loses nothing that was answered', async () => {
    const credential = await token();
    const run = await receiver('killed', [], credential);
    expect((await post(run.url)).status).toBe(200);
    run.child.kill('SIGKILL');
    await run.ended;
    const again = await receiver('killed', [], credential);
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    await again.end();
    expect((await logged(run.epoch)).filter(({ kind }) => kind === 'x.span')).toHaveLength(40);
  });

  it.each([
    ['an address that others can reach', ['--listen', '0.0.0.0:0'], 64, /--allow-remote/],
    ['no address', ['--listen', 'here'], 64, /HOST:PORT/],
    ['no lines', ['--spool-lines', '0'], 64, /from 1/],
  ])('refuses %s', async (_title, args, exit, message) => {
    const child = spawn(process.execPath, [BELAY, 'otlp', '--state', join(root, 'refused'), ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env['PATH'], XDG_CONFIG_HOME: join(root, 'none') },
    });
    let err = '';
    child.stderr.on('data', (chunk: Buffer) => (err += chunk));
    const [code] = (await once(child, 'close')) as [number];
    expect(code).toBe(exit);
    expect(err).toMatch(message);
  });

  it('a port that is taken is told', async () => {
    const run = await receiver('first');
    const { host } = new URL(run.url);
    const child = spawn(
      process.execPath,
      [BELAY, 'otlp', '--state', join(root, 'second'), '--listen', host],
      {
        stdio: ['ignore', 'ignore', 'pipe'],
        env: { PATH: process.env['PATH'], XDG_CONFIG_HOME: join(root, 'none') },
      },
    );
    let err = '';
    child.stderr.on('data', (chunk: Buffer) => (err += chunk));
    const [code] = (await once(child, 'close')) as [number];
    expect({ code, err }).toEqual({ code: 69, err: expect.stringContaining('in use') as string });
    await run.end();
  });
});
