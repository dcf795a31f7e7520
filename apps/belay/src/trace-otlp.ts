/**
 * A trace as OTLP/JSON (one ExportTraceServiceRequest): a span per call, by the semantic conventions for MCP and GenAI,
 * below one span for the session. A call that carries W3C trace context joins that trace. Arguments and results are
 * left out unless they are asked for, as the conventions have it.
 */

import { createHash } from 'node:crypto';
import { readTrace } from '@belay/trace';
import type { TextSink } from './text-sink.js';
import type { TraceContent } from './trace-content.js';
import { Tally } from './trace-format.js';
import type { CheckedTrace } from './trace-report.js';
import { type Place, readTurns, type Turn } from './turns.js';

const SERVER_KIND = 2;
const CLIENT_KIND = 3;
const STATUS_ERROR = 2;
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

type Value = string | number | boolean | readonly string[] | undefined;

function attributes(values: Readonly<Record<string, Value>>): unknown[] {
  return Object.entries(values).flatMap(([key, value]) => {
    if (value === undefined) return [];
    return [{ key, value: anyValue(value) }];
  });
}

function anyValue(value: NonNullable<Value>): unknown {
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  if (typeof value === 'number') return { intValue: String(value) };
  return { arrayValue: { values: value.map((each) => ({ stringValue: each })) } };
}

const digest = (...parts: readonly string[]): Buffer =>
  createHash('sha256')
    .update(['belay/otlp/v1', ...parts].join('\n'))
    .digest();

/** Wall clock of the opening and monotonic time since: what orders spans is the clock that can't be set. */
const nanos = (opened: number, at: number): string =>
  String(BigInt(opened) * 1_000_000n + BigInt(at) * 1_000n);

interface Session {
  readonly epoch: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Milliseconds since 1970. */
  readonly opened: number;
  readonly transport: 'pipe' | 'tcp';
  protocol: string | undefined;
}

function span(turn: Turn, session: Session, content: TraceContent): string {
  const { method, subject, request, answer, outcome, error, dir } = turn;
  const context = TRACEPARENT.exec(turn.traceparent ?? '');
  const isTool = method === 'tools/call';
  const type = failure(turn);
  const body = (place: Place | undefined, member: 'params' | 'result'): string | undefined => {
    const shown = isTool ? content.at(place) : undefined;
    return shown === undefined || !shown.json ? undefined : part(shown.text, member);
  };
  return JSON.stringify({
    traceId: context?.[1] ?? session.traceId,
    spanId: digest('span', session.epoch, String(request.n), String(request.member ?? '')).toString(
      'hex',
      0,
      8,
    ),
    parentSpanId: context?.[2] ?? session.spanId,
    name: subject === undefined || method.startsWith('resources/') ? method : `${method} ${subject}`,
    kind: CLIENT_KIND,
    startTimeUnixNano: nanos(session.opened, request.at),
    // Without an answer nobody knows how long it took: the span has no length, and says what happened.
    endTimeUnixNano: nanos(session.opened, Math.max(request.at, answer?.at ?? request.at)),
    attributes: attributes({
      'mcp.method.name': method,
      'gen_ai.operation.name': isTool ? 'execute_tool' : undefined,
      'gen_ai.tool.name': isTool ? subject : undefined,
      'gen_ai.prompt.name': method === 'prompts/get' ? subject : undefined,
      'mcp.resource.uri': method.startsWith('resources/') ? subject : undefined,
      'jsonrpc.request.id': jsonRpcId(turn.id),
      'mcp.protocol.version': turn.protocol ?? session.protocol,
      'network.transport': session.transport,
      'rpc.response.status_code': error?.code === undefined ? undefined : String(error.code),
      'error.type': type,
      'gen_ai.tool.call.arguments': body(request, 'params'),
      'gen_ai.tool.call.result': body(answer, 'result'),
      'belay.asked_by': dir === 'c2s' ? 'client' : 'server',
      'belay.outcome': outcome,
      'belay.request.record': request.n,
      'belay.request.sha256': request.sha256,
      'belay.request.bytes': request.size,
      'belay.answer.record': answer?.n,
      'belay.answer.sha256': answer?.sha256,
      'belay.answer.bytes': answer?.size,
      'belay.findings': turn.findings.length === 0 ? undefined : turn.findings,
    }),
    ...(context === null ? {} : { links: [{ traceId: session.traceId, spanId: session.spanId }] }),
    status: type === undefined ? {} : { code: STATUS_ERROR, ...(error ? { message: error.message } : {}) },
  });
}

/** `error.type`: the code of a JSON-RPC error as text, `tool_error`, or a word of ours. */
function failure({ outcome, error }: Turn): string | undefined {
  switch (outcome) {
    case 'error':
      return error?.code === undefined ? '_OTHER' : String(error.code);
    case 'tool_error':
      return 'tool_error';
    case 'cancelled':
    case 'unanswered':
      return outcome;
    default:
      return undefined;
  }
}

/** Text of an id without its quotes; none for null. */
function jsonRpcId(id: string): string | undefined {
  if (id === 'null' || id === 'invalid') return undefined;
  try {
    return String(JSON.parse(id));
  } catch {
    return id;
  }
}

function part(text: string, member: 'params' | 'result'): string | undefined {
  const message = JSON.parse(text) as Readonly<Record<string, Readonly<Record<string, unknown>> | undefined>>;
  const value = member === 'params' ? message['params']?.['arguments'] : message['result'];
  return value === undefined ? undefined : JSON.stringify(value);
}

export async function writeTurnsOtlp(
  trace: CheckedTrace,
  content: TraceContent,
  version: string,
  sink: TextSink,
): Promise<void> {
  const { open, close } = trace;
  const epoch = open?.epoch ?? trace.head;
  const opened = Date.parse(open?.time ?? '') || 0;
  const session: Session = {
    epoch,
    traceId: digest('trace', epoch).toString('hex', 0, 16),
    spanId: digest('session', epoch).toString('hex', 0, 8),
    opened,
    transport: open?.upstream === undefined ? 'pipe' : 'tcp',
    protocol: undefined,
  };
  const resource = attributes({
    'service.name': open?.sink ?? 'belay',
    'service.instance.id': epoch,
    'process.command_args': open?.command?.argv,
    'process.executable.path': open?.command?.executable?.path,
    'belay.session': open?.session,
    'belay.integrity': trace.integrity,
    'belay.verdict': trace.verdict,
  });
  await sink.write(
    `{"resourceSpans":[{"resource":{"attributes":${JSON.stringify(resource)}},` +
      `"scopeSpans":[{"scope":{"name":"belay","version":${JSON.stringify(version)}},"spans":[`,
  );
  const tally = new Tally();
  let separator = '\n';
  for await (const item of readTurns(readTrace(trace.path))) {
    if (sink.gone) return;
    tally.add(item);
    if (item.type !== 'turn') continue;
    if (item.dir === 'c2s') session.protocol = item.protocol ?? session.protocol;
    await sink.write(`${separator}${span(item, session, content)}`);
    separator = ',\n';
  }
  const whole = JSON.stringify({
    traceId: session.traceId,
    spanId: session.spanId,
    name: `mcp session ${open?.sink ?? ''}`.trim(),
    kind: SERVER_KIND,
    startTimeUnixNano: nanos(opened, 0),
    endTimeUnixNano: nanos(opened, tally.until),
    attributes: attributes({
      'mcp.protocol.version': session.protocol,
      'network.transport': session.transport,
      'belay.calls': tally.turns,
      'belay.gaps': trace.gaps.length,
      'process.exit.code': close?.exit,
    }),
    status: {},
  });
  await sink.write(`${separator}${whole}\n]}]}]}\n`);
}
