/**
 * What spans and log records say of an agent's run, as envelopes. FORMAT.md beside this package has the rules and what
 * an envelope may hold: words of closed lists, counts, keyed digests. Nothing that a span carries as text leaves, but
 * a tool's name.
 */

import { createHash } from 'node:crypto';
import {
  type AttributeValue,
  callId,
  canonical,
  matchId,
  normalisedTool,
  sessionId,
  sessionKey,
  weakCallId,
} from '@belay/envelope';
import { type Attributes, attributesOf, countOf, fieldOf, objectOf, textOf } from './attributes.js';
import { type Decoded, Refused } from './build.js';
import type { RefusalReason } from './error.js';
import type { OtlpRequest, OtlpSignal } from './request.js';
import { EVENTS, METHODS, OPERATIONS, PROVIDERS, SPAN_KINDS, word } from './words.js';

/** Text of arguments and results that is parsed to find what other sinks saw as well. Characters. */
const MAX_PARSED = 1024 * 1024;
/** Larger contents fit no line of a trace. Bytes. */
const MAX_CONTENT = 8 * 1024 * 1024;
/** What is remembered of each kind; past it, the oldest is forgotten. */
const MEMORY = 65_536;
const NAME = /^[A-Za-z0-9._@/:+-]{1,128}$/;
const RUN = /^(?:gen_ai|mcp|claude_code)\./;
/** Instrumentations that name their spans by attributes of their own. */
const RUN_KEYS = ['openinference.span.kind', 'traceloop.span.kind'];

/** An envelope before it has a sink, a number and a digest. */
export interface SpanEnvelope {
  readonly kind: 'call' | 'result' | 'x.span' | 'x.log';
  readonly session: string;
  readonly call: string | undefined;
  readonly match: string | undefined;
  readonly attrs: Readonly<Record<string, AttributeValue | undefined>>;
}

/** One span or log record that becomes envelopes. */
export interface Statement {
  /** What the envelopes commit to, and what is kept: JCS of `{source, span}` or `{log, source}`. */
  readonly content: Buffer;
  /**
   * Documents that `source` leads to by their SHA-256, unless they were handed out before: JCS of `{resource,
   * schemaUrl}`, and of `{resource: its digest, schemaUrl, scope}`.
   */
  readonly sources: readonly Buffer[];
  readonly envelopes: readonly SpanEnvelope[];
}

/** How the items of a request were taken. `received` is the sum of the others. */
export interface ItemCounts {
  readonly received: number;
  readonly taken: number;
  /** Not of an agent's run: dropped by policy. */
  readonly filtered: number;
  /** Seen before, with the same content: the sender retried. */
  readonly repeated: number;
  readonly refused: number;
}

export interface Mapped {
  readonly statements: readonly Statement[];
  readonly counts: ItemCounts;
  readonly reasons: readonly RefusalReason[];
}

export interface MapperParts {
  /** 32 bytes. */
  readonly machineSecret: Buffer;
  /** Session of everything that comes, where the operator names one. */
  readonly session: string | undefined;
  /** `strict`: names of tools are keyed. */
  readonly privacy: 'minimal' | 'strict';
}

/** A set or map that forgets its oldest entries. */
class Memory<V> {
  readonly #entries = new Map<string, V>();

  get(key: string): V | undefined {
    return this.#entries.get(key);
  }

  set(key: string, value: V): void {
    if (this.#entries.size >= MEMORY && !this.#entries.has(key)) {
      this.#entries.delete(this.#entries.keys().next().value as string);
    }
    this.#entries.set(key, value);
  }
}

/** Of a part of a large text a hash is kept, never the part itself, which would keep the whole text alive. */
const fingerprint = (...parts: readonly string[]): string =>
  createHash('sha256').update(parts.join('\n')).digest('base64');

/** An item with what was found out about it. */
interface Item {
  readonly signal: OtlpSignal;
  readonly decoded: Decoded;
  readonly attributes: Attributes;
  /** Session that the resource names. */
  readonly inherited: string | undefined;
}

/** A document that spans refer to by digest. */
interface Source {
  readonly digest: string;
  readonly text: string;
}

function sourceOf(described: Decoded): Source {
  const text = canonical(described);
  return { digest: `sha256:${createHash('sha256').update(text).digest('hex')}`, text };
}

/** Remembers, over the requests of one run, what was seen: so one per run of a sink. */
export class SpanMapper {
  readonly #parts: MapperParts;
  /** Sessions that a span of the trace named. */
  readonly #traces = new Memory<string>();
  #sources = new Memory<true>();
  /** Spans and log records by their identity, and by identity and content. */
  readonly #seen = new Memory<true>();
  /** Tool executions that became a call, by span, and by the span they are a child of. */
  readonly #calls = new Memory<true>();
  readonly #occurrences = new Memory<number>();

  constructor(parts: MapperParts) {
    this.#parts = parts;
  }

  /** What comes is kept in another place from here on: who emitted it is handed out again. */
  forgetSources(): void {
    this.#sources = new Memory();
  }

  map({ signal, emitters }: OtlpRequest): Mapped {
    const statements: Statement[] = [];
    const reasons: RefusalReason[] = [];
    const counts = { received: 0, taken: 0, filtered: 0, repeated: 0, refused: 0 };
    let told:
      { readonly by: Decoded; readonly source: Source; readonly session: string | undefined } | undefined;
    for (const { resource, scope, items } of emitters) {
      // Once per resource, however many scopes it has: a large one must not be written out for each of them.
      if (told?.by !== resource) {
        const attributes = attributesOf(resource['resource'] as Decoded | undefined);
        told = { by: resource, source: sourceOf(resource), session: conversationOf(attributes) };
      }
      const usable: Item[] = [];
      for (const decoded of items) {
        counts.received++;
        if (decoded instanceof Refused) {
          counts.refused++;
          reasons.push(decoded.reason);
          continue;
        }
        const attributes = attributesOf(decoded);
        if (isOfRun(signal, decoded, attributes)) {
          usable.push({ signal, decoded, attributes, inherited: told.session });
        } else counts.filtered++;
      }
      if (usable.length === 0) continue;
      // A child ends, and is sent, before the parent that may be the only one to name the conversation.
      for (const item of usable) this.#learnSession(item);
      const sources = [told.source, sourceOf({ ...scope, resource: told.source.digest })];
      for (const item of usable) {
        const statement = this.#statement(item, sources);
        if (statement === 'repeated') counts.repeated++;
        else if (statement === 'too_large') {
          counts.refused++;
          reasons.push(statement);
        } else {
          statements.push(statement);
          counts.taken++;
        }
      }
    }
    return { statements, counts, reasons };
  }

  #statement(item: Item, sources: readonly Source[]): Statement | 'repeated' | 'too_large' {
    const { signal, decoded } = item;
    const source = sources.at(-1)?.digest as string;
    const text = canonical(signal === 'traces' ? { source, span: decoded } : { source, log: decoded });
    if ([text, ...sources.map((each) => each.text)].some((each) => Buffer.byteLength(each) > MAX_CONTENT)) {
      return 'too_large';
    }
    const identity =
      signal === 'traces'
        ? fingerprint('span', fieldOf(decoded, 'traceId'), fieldOf(decoded, 'spanId'))
        : fingerprint('log', text);
    const exact = fingerprint(identity, text);
    if (this.#seen.get(exact) === true) return 'repeated';
    const conflict = this.#seen.get(identity) === true;
    this.#seen.set(identity, true);
    this.#seen.set(exact, true);
    const fresh = sources.filter(({ digest }) => this.#sources.get(digest) !== true);
    for (const { digest } of fresh) this.#sources.set(digest, true);
    const content = Buffer.from(text);
    return {
      content,
      sources: fresh.map((each) => Buffer.from(each.text)),
      envelopes:
        signal === 'traces' ? this.#span(item, content.length, conflict) : [this.#log(item, content.length)],
    };
  }

  #span(item: Item, bytes: number, conflict: boolean): SpanEnvelope[] {
    const { decoded, attributes } = item;
    const session = this.#sessionOf(item);
    const key = sessionKey(this.#parts.machineSecret, session);
    const tool = toolOf(attributes);
    const outcome = { ok: isOk(decoded, attributes), ...errorOf(attributes), ms: durationOf(decoded) };
    const isCall = isToolExecution(attributes);
    if (isCall && !conflict && this.#isFirstOfCall(decoded, tool)) {
      const args = objectOf(argumentsOf(attributes), MAX_PARSED);
      const call = this.#callOf(key, session, item, tool, args);
      const name = tool === undefined ? undefined : this.#toolName(key, tool);
      const common = { session, call };
      return [
        { ...common, kind: 'call', match: matchOf(key, args), attrs: { tool: name, bytes } },
        {
          ...common,
          kind: 'result',
          match: matchOf(key, contentOf(attributes)),
          attrs: { tool: name, bytes, ...outcome },
        },
      ];
    }
    const method = textOf(attributes, 'mcp.method.name');
    const operation = textOf(attributes, 'gen_ai.operation.name');
    const provider = textOf(attributes, 'gen_ai.provider.name', 'gen_ai.system');
    return [
      {
        kind: 'x.span',
        session,
        call: undefined,
        match: undefined,
        attrs: {
          operation: operation === undefined ? undefined : word(OPERATIONS, operation),
          method: method === undefined ? undefined : word(METHODS, method),
          provider: provider === undefined ? undefined : word(PROVIDERS, provider),
          span_kind: SPAN_KINDS[Number(decoded['kind'] ?? 0)],
          tool: isCall && tool !== undefined ? this.#toolName(key, tool) : undefined,
          bytes,
          ...outcome,
          ...tokensOf(attributes),
          nested: isCall && !conflict ? true : undefined,
          conflict: conflict ? true : undefined,
          partial: decoded['droppedAttributesCount'] === undefined ? undefined : true,
        },
      },
    ];
  }

  #log(item: Item, bytes: number): SpanEnvelope {
    const { decoded, attributes } = item;
    const session = this.#sessionOf(item);
    const key = sessionKey(this.#parts.machineSecret, session);
    const event = eventOf(decoded, attributes);
    const tool = toolOf(attributes) ?? textOf(attributes, 'tool_name');
    const id = textOf(attributes, 'gen_ai.tool.call.id', 'tool_use_id');
    return {
      kind: 'x.log',
      session,
      call: id === undefined ? undefined : callId(key, id),
      match: undefined,
      attrs: {
        event: event === undefined ? undefined : word(EVENTS, event),
        tool: tool === undefined ? undefined : this.#toolName(key, tool),
        bytes,
        ok: successOf(attributes),
        ms: countOf(attributes, 'duration_ms'),
        ...errorOf(attributes),
        ...tokensOf(attributes),
        partial: decoded['droppedAttributesCount'] === undefined ? undefined : true,
      },
    };
  }

  #learnSession({ decoded, attributes, inherited }: Item): void {
    const named = conversationOf(attributes) ?? inherited;
    const trace = fieldOf(decoded, 'traceId');
    if (named === undefined || trace === '') return;
    const key = fingerprint(trace);
    if (this.#traces.get(key) === undefined) {
      this.#traces.set(key, sessionId(this.#parts.machineSecret, named));
    }
  }

  /** The operator's, the item's own, that of its trace, and as a last resort the trace itself. */
  #sessionOf({ decoded, attributes, inherited }: Item): string {
    const { machineSecret, session } = this.#parts;
    if (session !== undefined) return session;
    const named = conversationOf(attributes) ?? inherited;
    if (named !== undefined) return sessionId(machineSecret, named);
    const trace = fieldOf(decoded, 'traceId');
    return this.#traces.get(fingerprint(trace)) ?? sessionId(machineSecret, `otlp-trace:${trace}`);
  }

  /** As every sink has it: normalised, and keyed where it is no name or the policy is strict. */
  #toolName(key: Buffer, tool: string): string | undefined {
    const bare = normalisedTool(tool);
    return this.#parts.privacy === 'minimal' && NAME.test(tool) ? bare : matchOf(key, bare);
  }

  /**
   * The agent's own id of the call where it is told; else tool, arguments and how many equal ones came before, as a
   * proxy has it; else the span's identity, which only this sink knows.
   */
  #callOf(
    key: Buffer,
    session: string,
    { decoded, attributes }: Item,
    tool: string | undefined,
    args: Readonly<Record<string, unknown>> | undefined,
  ): string {
    const id = textOf(attributes, 'gen_ai.tool.call.id');
    if (id !== undefined) return callId(key, id);
    const match = matchOf(key, args);
    if (match !== undefined && tool !== undefined) {
      const bare = normalisedTool(tool);
      const pair = fingerprint(session, bare, match);
      const occurrence = (this.#occurrences.get(pair) ?? 0) + 1;
      this.#occurrences.set(pair, occurrence);
      return weakCallId(key, bare, occurrence, args);
    }
    return callId(key, `otlp-span:${fieldOf(decoded, 'traceId')}:${fieldOf(decoded, 'spanId')}`);
  }

  /** One call may be told by two spans, the agent's and, inside it, the MCP client's: the first to come is the call. */
  #isFirstOfCall(decoded: Decoded, tool: string | undefined): boolean {
    const trace = fieldOf(decoded, 'traceId');
    const span = fieldOf(decoded, 'spanId');
    const parent = fieldOf(decoded, 'parentSpanId');
    const id = (relation: string, of: string): string =>
      fingerprint(relation, trace, of, normalisedTool(tool ?? ''));
    const known = this.#calls.get(id('is', parent)) === true || this.#calls.get(id('below', span)) === true;
    // Known by all three, whichever comes next: the agent's span, the client's, the server's.
    this.#calls.set(id('is', span), true);
    if (parent !== '') this.#calls.set(id('below', parent), true);
    return !known;
  }
}

function isOfRun(signal: OtlpSignal, decoded: Decoded, attributes: Attributes): boolean {
  for (const key of attributes.keys()) if (RUN.test(key) || RUN_KEYS.includes(key)) return true;
  if (signal === 'traces') return false;
  const event = eventOf(decoded, attributes);
  return event !== undefined && RUN.test(event);
}

/** Name of a log record's event: of its own field, or where it stood before there was one. */
function eventOf(decoded: Decoded, attributes: Attributes): string | undefined {
  const name = decoded['eventName'] ?? (decoded['body'] as Decoded | undefined)?.['stringValue'];
  return typeof name === 'string' && RUN.test(name) ? name : textOf(attributes, 'event.name');
}

const conversationOf = (attributes: Attributes): string | undefined =>
  textOf(attributes, 'gen_ai.conversation.id', 'session.id');

function isToolExecution(attributes: Attributes): boolean {
  return (
    textOf(attributes, 'gen_ai.operation.name') === 'execute_tool' ||
    textOf(attributes, 'mcp.method.name') === 'tools/call' ||
    textOf(attributes, 'openinference.span.kind') === 'TOOL' ||
    textOf(attributes, 'traceloop.span.kind') === 'tool'
  );
}

/** As it was told; a server's name may stand in front of it. */
function toolOf(attributes: Attributes): string | undefined {
  return (
    textOf(attributes, 'gen_ai.tool.name', 'mcp.tool.name') ??
    (textOf(attributes, 'openinference.span.kind') === 'TOOL'
      ? textOf(attributes, 'tool.name')
      : undefined) ??
    (textOf(attributes, 'traceloop.span.kind') === 'tool'
      ? textOf(attributes, 'traceloop.entity.name')
      : undefined)
  );
}

const argumentsOf = (attributes: Attributes): Decoded | undefined =>
  attributes.get('gen_ai.tool.call.arguments') ??
  (isToolExecution(attributes)
    ? (attributes.get('input.value') ?? attributes.get('traceloop.entity.input'))
    : undefined);

/** The `content` of a result in the form that MCP has. Of other forms, no other sink saw the same. */
function contentOf(attributes: Attributes): unknown {
  const content = objectOf(attributes.get('gen_ai.tool.call.result'), MAX_PARSED)?.['content'];
  return Array.isArray(content) ? content : undefined;
}

/** Undefined where there is nothing, or nothing that has a canonical form. */
function matchOf(key: Buffer, content: unknown): string | undefined {
  if (content === undefined) return undefined;
  try {
    return matchId(key, content);
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}

function isOk(decoded: Decoded, attributes: Attributes): boolean {
  const { code } = (decoded['status'] ?? {}) as { readonly code?: number };
  return code !== 2 && !attributes.has('error.type');
}

/** Claude Code has it as text. */
function successOf(attributes: Attributes): boolean | undefined {
  const value = attributes.get('success');
  const told = value?.['boolValue'] ?? value?.['stringValue'];
  return told === true || told === 'true' ? true : told === false || told === 'false' ? false : undefined;
}

/** A JSON-RPC error code. */
function errorOf(attributes: Attributes): { readonly error?: number; readonly error_negative?: boolean } {
  for (const key of ['rpc.response.status_code', 'error.type']) {
    const value = attributes.get(key);
    const text = fieldOf(value, 'stringValue') || fieldOf(value, 'intValue');
    if (/^-?[1-9]\d{0,14}$/.test(text)) {
      return { error: Math.abs(Number(text)), error_negative: text.startsWith('-') };
    }
  }
  return {};
}

function durationOf({ startTimeUnixNano, endTimeUnixNano }: Decoded): number | undefined {
  if (startTimeUnixNano === undefined || endTimeUnixNano === undefined) return undefined;
  const nanos = BigInt(endTimeUnixNano as string) - BigInt(startTimeUnixNano as string);
  // At most 2^64 nanoseconds, so the milliseconds are exact.
  return nanos < 0n ? undefined : Number((nanos + 500_000n) / 1_000_000n);
}

function tokensOf(attributes: Attributes): Readonly<Record<string, number | undefined>> {
  return {
    input_tokens: countOf(attributes, 'gen_ai.usage.input_tokens', 'input_tokens'),
    output_tokens: countOf(attributes, 'gen_ai.usage.output_tokens', 'output_tokens'),
  };
}
