import { createHash } from 'node:crypto';
import { callId, matchId, parseEnvelope, sessionId, sessionKey, weakCallId } from '@belay/envelope';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeRequest, type Mapped, SpanMapper, type Statement } from '../src/index.js';
import { groups, toJson, toProtobuf } from './requests.js';

const SECRET = Buffer.alloc(32, 14);
const TRACE = '5b8efff798038103d269b633813fc60c';

type Attributes = Readonly<Record<string, string | number | boolean | object>>;

const attributes = (values: Attributes): unknown[] =>
  Object.entries(values).map(([key, value]) => ({
    key,
    value:
      typeof value === 'string'
        ? { stringValue: value }
        : typeof value === 'number'
          ? { intValue: value }
          : typeof value === 'boolean'
            ? { boolValue: value }
            : value,
  }));

let nextId = 1;
const span = (values: Attributes, more: object = {}): object => ({
  traceId: TRACE,
  spanId: (nextId++).toString(16).padStart(16, '0'),
  startTimeUnixNano: '1000000000',
  endTimeUnixNano: '1041600000',
  attributes: attributes(values),
  ...more,
});
const batch = (spans: readonly object[], resource: Attributes = {}): Buffer =>
  Buffer.from(
    JSON.stringify({
      resourceSpans: [{ resource: { attributes: attributes(resource) }, scopeSpans: [{ spans }] }],
    }),
  );
const logs = (...records: readonly object[]): Buffer =>
  Buffer.from(JSON.stringify({ resourceLogs: [{ scopeLogs: [{ logRecords: records }] }] }));

const mapper = (session?: string): SpanMapper =>
  new SpanMapper({ machineSecret: SECRET, session, privacy: 'minimal' });
const map = (to: SpanMapper, body: Buffer, signal: 'traces' | 'logs' = 'traces'): Mapped =>
  to.map(decodeRequest(signal, 'json', body));
const envelopes = ({ statements }: Mapped) => statements.flatMap((statement) => statement.envelopes);

const tool = (name: string, more: Attributes = {}): Attributes => ({
  'gen_ai.operation.name': 'execute_tool',
  'gen_ai.tool.name': name,
  ...more,
});

describe('envelopes', () => {
  it('are the same whichever encoding the spans came in', () => {
    fc.assert(
      fc.property(groups, (models) => {
        const [json, protobuf] = (['json', 'protobuf'] as const).map((encoding) => {
          const body = encoding === 'json' ? toJson(models) : toProtobuf(models);
          return mapper().map(decodeRequest('traces', encoding, body));
        });
        expect(json).toEqual(protobuf);
      }),
      { numRuns: 300 },
    );
  });

  it('are valid lines, and every item is accounted for', () => {
    fc.assert(
      fc.property(groups, (models) => {
        const mapped = map(mapper(), toJson(models));
        const { received, taken, filtered, repeated, refused } = mapped.counts;
        expect(received).toBe(models.reduce((sum, { spans }) => sum + spans.length, 0));
        expect(taken + filtered + repeated + refused).toBe(received);
        expect(mapped.statements).toHaveLength(taken);
        expect(mapped.reasons).toHaveLength(refused);
        for (const envelope of envelopes(mapped)) {
          parseEnvelope(
            Buffer.from(
              JSON.stringify({
                v: 1,
                log: 'belay.example/acme/agents',
                sink: 'otlp',
                epoch: '01K6B3YB80041061050R3GG28A',
                seq: 1,
                time: '2026-01-01T00:00:00Z',
                ...envelope,
              }),
            ),
          );
        }
      }),
      { numRuns: 300 },
    );
  });
});

describe('a tool execution', () => {
  it('is a call and its result', () => {
    const args = { path: '/w/a', n: 3 };
    const result = { content: [{ type: 'text', text: 'secret' }], isError: false };
    const mapped = map(
      mapper(),
      batch([
        span(
          tool('mcp__files__read_file', {
            'gen_ai.conversation.id': 'conversation 1',
            'gen_ai.tool.call.id': 'toolu_01',
            'gen_ai.tool.call.arguments': JSON.stringify(args),
            'gen_ai.tool.call.result': JSON.stringify(result),
          }),
        ),
      ]),
    );
    const session = sessionId(SECRET, 'conversation 1');
    const key = sessionKey(SECRET, session);
    const bytes = mapped.statements[0]?.content.length as number;
    const common = { session, call: callId(key, 'toolu_01') };
    expect(envelopes(mapped)).toEqual([
      { ...common, kind: 'call', match: matchId(key, args), attrs: { tool: 'read_file', bytes } },
      {
        ...common,
        kind: 'result',
        match: matchId(key, result.content),
        attrs: { tool: 'read_file', bytes, ok: true, ms: 42 },
      },
    ]);
  });

  it('without the agent’s id of it is known by tool, arguments and occurrence, as a proxy has it', () => {
    const to = mapper('toolbox-7');
    const key = sessionKey(SECRET, 'toolbox-7');
    // As text, and as structured attributes.
    const structured = {
      kvlistValue: {
        values: attributes({
          list: { arrayValue: { values: [{ intValue: '1' }, { doubleValue: 1.5 }, {}] } },
        }),
      },
    };
    const args = { list: [1, 1.5, null] };
    const first = map(to, batch([span(tool('add', { 'gen_ai.tool.call.arguments': JSON.stringify(args) }))]));
    const second = map(to, batch([span(tool('add', { 'gen_ai.tool.call.arguments': structured }))]));
    expect(envelopes(first)[0]?.call).toBe(weakCallId(key, 'add', 1, args));
    expect(envelopes(second)[1]?.call).toBe(weakCallId(key, 'add', 2, args));
  });

  it('that failed is not ok, and a JSON-RPC code is its error', () => {
    const [, failed] = envelopes(
      map(mapper(), batch([span({ 'mcp.method.name': 'tools/call', 'error.type': '-32602' })])),
    );
    expect(failed?.attrs).toMatchObject({ ok: false, error: 32602, error_negative: true });
    const [, status] = envelopes(map(mapper(), batch([span(tool('add'), { status: { code: 2 } })])));
    expect(status?.attrs).toMatchObject({ ok: false });
    expect(status?.attrs['error']).toBeUndefined();
  });

  it.each([
    ['the agent first', [0, 1, 2]],
    ['the server first', [2, 1, 0]],
    ['the client first', [1, 0, 2]],
  ])('told by agent, client and server is one call: %s', (_title, order) => {
    const agent = span(tool('add'));
    const client = span(tool('add', { 'mcp.method.name': 'tools/call' }), {
      kind: 3,
      parentSpanId: (agent as { spanId: string }).spanId,
    });
    const server = span(tool('add', { 'mcp.method.name': 'tools/call' }), {
      kind: 2,
      parentSpanId: (client as { spanId: string }).spanId,
    });
    const to = mapper();
    const kinds = order.flatMap((each) =>
      envelopes(map(to, batch([[agent, client, server][each] as object]))).map(({ kind, attrs }) => [
        kind,
        attrs['nested'],
      ]),
    );
    expect(kinds).toEqual([
      ['call', undefined],
      ['result', undefined],
      ['x.span', true],
      ['x.span', true],
    ]);
  });

  it('with another tool inside it is two calls', () => {
    const outer = span(tool('research'));
    const inner = span(tool('search'), { parentSpanId: (outer as { spanId: string }).spanId });
    expect(envelopes(map(mapper(), batch([inner, outer]))).map(({ kind }) => kind)).toEqual([
      'call',
      'result',
      'call',
      'result',
    ]);
  });

  it('whose name is no name is sent as a keyed digest', () => {
    const [call] = envelopes(map(mapper(), batch([span(tool('ask about\nmy secret'))])));
    expect(call?.attrs['tool']).toMatch(/^hmac-sha256:/);
  });

  it('under the strict policy is named by a keyed digest only', () => {
    const strict = new SpanMapper({ machineSecret: SECRET, session: 's', privacy: 'strict' });
    const mapped = envelopes(map(strict, batch([span(tool('mcp__files__read_file'))])));
    const digest = matchId(sessionKey(SECRET, 's'), 'read_file');
    expect(mapped.map(({ attrs }) => attrs['tool'])).toEqual([digest, digest]);
    expect(JSON.stringify(mapped)).not.toContain('read_file');
  });

  it.each([
    ['OpenInference', { 'openinference.span.kind': 'TOOL', 'tool.name': 'add', 'input.value': '{"a":1}' }],
    ['Traceloop', { 'traceloop.span.kind': 'tool', 'traceloop.entity.name': 'add' }],
    ['Sentry', { 'mcp.method.name': 'tools/call', 'mcp.tool.name': 'add' }],
  ])('is recognised as %s tells it', (_who, values) => {
    expect(
      envelopes(map(mapper(), batch([span(values)]))).map(({ kind, attrs }) => [kind, attrs['tool']]),
    ).toEqual([
      ['call', 'add'],
      ['result', 'add'],
    ]);
  });
});

describe('other spans', () => {
  it('of a run become x.span with words of closed lists and counts', () => {
    const mapped = map(
      mapper(),
      batch([
        span(
          {
            'gen_ai.operation.name': 'chat',
            'gen_ai.provider.name': 'openai',
            'gen_ai.request.model': 'model-of-the-customer',
            'gen_ai.usage.input_tokens': 12,
            'gen_ai.usage.output_tokens': 7,
          },
          { kind: 3, droppedAttributesCount: 1 },
        ),
        span({ 'gen_ai.operation.name': 'sk-secret', 'gen_ai.provider.name': 'sk-secret' }),
        span({ 'mcp.method.name': 'sk-secret' }),
      ]),
    );
    expect(envelopes(mapped).map(({ kind }) => kind)).toEqual(['x.span', 'x.span', 'x.span']);
    expect(JSON.stringify(envelopes(mapped))).not.toMatch(/sk-secret|model-of/);
    expect(envelopes(mapped).map(({ attrs }) => attrs)).toMatchObject([
      {
        operation: 'chat',
        provider: 'openai',
        span_kind: 'client',
        input_tokens: 12,
        output_tokens: 7,
        ok: true,
        ms: 42,
        partial: true,
      },
      { operation: 'other', provider: 'other', span_kind: 'unspecified' },
      { method: 'other' },
    ]);
  });

  it('that say nothing of a run are dropped and counted', () => {
    const mapped = map(
      mapper(),
      batch([span({ 'http.method': 'GET' }), span({ 'gen_ai.system': 'openai' })]),
    );
    expect(mapped.counts).toEqual({ received: 2, taken: 1, filtered: 1, repeated: 0, refused: 0 });
  });
});

describe('what is remembered', () => {
  it('a span that comes again is dropped; with other content it is a conflict', () => {
    const to = mapper();
    const once = span(tool('add'));
    expect(map(to, batch([once])).counts).toMatchObject({ taken: 1 });
    expect(map(to, batch([once])).counts).toMatchObject({ taken: 0, repeated: 1 });
    const other = batch([{ ...once, name: 'rewritten' }]);
    expect(envelopes(map(to, other))).toMatchObject([{ kind: 'x.span', attrs: { conflict: true } }]);
    expect(map(to, other).counts).toMatchObject({ taken: 0, repeated: 1 });
  });

  it('a conversation that one span of a trace names is the session of its other spans', () => {
    const to = mapper();
    const named = span({ 'gen_ai.operation.name': 'invoke_agent', 'gen_ai.conversation.id': 'c' });
    const both = envelopes(map(to, batch([span(tool('add')), named])));
    const later = envelopes(map(to, batch([span(tool('add'))])));
    expect(new Set([...both, ...later].map(({ session }) => session))).toEqual(
      new Set([sessionId(SECRET, 'c')]),
    );
  });

  it('without one, the resource’s session or the trace is the session; the operator’s wins', () => {
    const one = (to: SpanMapper, resource: Attributes): string | undefined =>
      envelopes(map(to, batch([span(tool('add'))], resource)))[0]?.session;
    expect(one(mapper(), { 'session.id': 's' })).toBe(sessionId(SECRET, 's'));
    expect(one(mapper(), {})).toBe(sessionId(SECRET, `otlp-trace:${TRACE}`));
    expect(one(mapper('mine'), { 'session.id': 's' })).toBe('mine');
  });

  it('a span that is too large to be kept is refused, and so is one whose resource is', () => {
    const large = 'x'.repeat(8 * 1024 * 1024);
    const to = mapper();
    expect(map(to, batch([span(tool('add', { large })), span(tool('add'))]))).toMatchObject({
      counts: { taken: 1, refused: 1 },
      reasons: ['too_large'],
    });
    expect(map(to, batch([span(tool('add'))], { large })).reasons).toEqual(['too_large']);
  });

  it('who emitted is handed out once, and every content leads to it', () => {
    const to = mapper();
    const { statements } = map(to, batch([span(tool('a')), span(tool('b'))], { 'service.name': 'agent' }));
    const digest = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    const [resource, scope] = (statements[0] as Statement).sources as [Buffer, Buffer];
    expect(resource.toString()).toContain('"stringValue":"agent"');
    expect(JSON.parse(scope.toString())).toMatchObject({ resource: digest(resource) });
    for (const { content } of statements) {
      expect(JSON.parse(content.toString())).toMatchObject({ source: digest(scope) });
    }
    expect(statements[1]?.sources).toEqual([]);
    expect(map(to, batch([span(tool('c'))], { 'service.name': 'agent' })).statements[0]?.sources).toEqual([]);
  });
});

describe('log records', () => {
  it('of Claude Code become x.log', () => {
    const record = {
      timeUnixNano: '1',
      body: { stringValue: 'claude_code.tool_result' },
      attributes: attributes({
        'event.name': 'tool_result',
        'session.id': 's',
        tool_name: 'mcp__files__read_file',
        tool_use_id: 'toolu_01',
        success: 'true',
        duration_ms: '120',
        tool_parameters: '{"secret":1}',
      }),
    };
    const mapped = map(mapper(), logs(record, record, { body: { stringValue: 'GET /' } }), 'logs');
    const session = sessionId(SECRET, 's');
    expect(mapped.counts).toMatchObject({ received: 3, taken: 1, repeated: 1, filtered: 1 });
    expect(envelopes(mapped)).toMatchObject([
      {
        kind: 'x.log',
        session,
        call: callId(sessionKey(SECRET, session), 'toolu_01'),
        attrs: { event: 'claude_code.tool_result', tool: 'read_file', ok: true, ms: 120 },
      },
    ]);
    expect(JSON.stringify(envelopes(mapped))).not.toContain('secret');
  });

  it('of GenAI events become x.log, named or not', () => {
    const mapped = map(
      mapper(),
      logs(
        { eventName: 'gen_ai.evaluation.result', traceId: TRACE, spanId: '00000000000000a1' },
        { eventName: 'gen_ai.sk-secret' },
      ),
      'logs',
    );
    expect(envelopes(mapped).map(({ attrs }) => attrs['event'])).toEqual([
      'gen_ai.evaluation.result',
      'other',
    ]);
  });
});
