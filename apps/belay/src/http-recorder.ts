/** What HTTP carries past a proxy, as trace records and envelopes. Sees copies; nothing waits for it. */

import { createHash, type Hash } from 'node:crypto';
import type { Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, constants, gunzipSync } from 'node:zlib';
import { EventStream, type Gathered, Gatherer, OBSERVATION_LIMIT, type StreamEvent } from '@belay/mcp';
import type { RecordBody, WireBody } from '@belay/trace';
import { sameServer } from './endpoint-event.js';
import {
  headerValues,
  keyedDigest,
  mediaType,
  type RawHeaders,
  recordedHeaders,
  recordedTarget,
} from './http-headers.js';
import type { Recorder } from './recorder.js';

type HttpRecord = Extract<RecordBody, { readonly type: 'http' }>;
export type Ending = NonNullable<HttpRecord['ended']>;

/** Compressed bytes that may wait to be decoded for the record; past it, the rest of a body is not observed. */
const MAX_UNDECODED = 16 * 1024 * 1024;
/** What one body may become when it is decoded. */
const MAX_DECODED = 1024 * 1024 * 1024;
/** Addresses that messages are sent to, as told by legacy streams that are open. */
const MAX_ENDPOINTS = 4_096;
const MAX_TYPE = 64;
const ACCEPTED = 202;

export interface HttpRecorderParts {
  readonly recorder: Recorder;
  /** Of the machine: keys what is recorded of values. */
  readonly secret: Buffer;
  /** Where MCP is spoken. What goes to other paths may be of any kind, also tokens: of it, no content is recorded. */
  readonly endpoint: URL;
}

export interface RequestHead {
  readonly method: string;
  readonly target: string;
  readonly headers: RawHeaders;
}

/**
 * Numbers exchanges and tells which conversation each belongs to: that of its `Mcp-Session-Id`, that of the legacy
 * stream which named its target, or one of its own.
 */
export class HttpRecorder {
  readonly parts: HttpRecorderParts;
  readonly #endpoints = new Map<string, string>();
  #exchanges = 0;
  readonly #open = new Set<Promise<void>>();

  constructor(parts: HttpRecorderParts) {
    this.parts = parts;
  }

  /** A request that is about to be forwarded. */
  begin(head: RequestHead): Exchange {
    const exchange = ++this.#exchanges;
    let ended = (): void => undefined;
    this.#pending(
      new Promise((resolve) => {
        ended = resolve;
      }),
    );
    return new Exchange(this, exchange, head, ended);
  }

  /** A request that is not forwarded. */
  refuse({ method, target, headers }: RequestHead, status: number, finding: string): void {
    const { recorder, secret } = this.parts;
    recorder.http({
      exchange: ++this.#exchanges,
      phase: 'refused',
      method,
      target: recordedTarget(target, secret),
      status,
      headers: recordedHeaders(headers, secret),
      findings: [finding],
    });
  }

  /** Resolves when every exchange has ended and is on record. */
  async settled(): Promise<void> {
    while (this.#open.size > 0) await Promise.all(this.#open);
  }

  #pending(work: Promise<void>): void {
    const done = work.finally(() => this.#open.delete(done));
    this.#open.add(done);
  }

  conversationOf(exchange: number, { target, headers }: RequestHead): string {
    return this.sessionOf(headers) ?? this.#endpoints.get(target) ?? `exchange-${exchange}`;
  }

  sessionOf(headers: RawHeaders): string | undefined {
    const [session] = headerValues(headers, 'mcp-session-id');
    return session === undefined
      ? undefined
      : `session-${keyedDigest(this.parts.secret, 'mcp-session-id', session).slice(-16)}`;
  }

  /** Whether MCP is spoken under a target. A slash at the end makes no difference: servers redirect to it. */
  isMcp(target: string): boolean {
    const path = (target.split('?', 1)[0] as string).replace(/\/$/, '');
    return this.#endpoints.has(target) || path === this.parts.endpoint.pathname.replace(/\/$/, '');
  }

  announce(target: string, conversation: string): void {
    if (this.#endpoints.size < MAX_ENDPOINTS) this.#endpoints.set(target, conversation);
  }

  withdraw(target: string): void {
    this.#endpoints.delete(target);
  }
}

/** A request and its response. The proxy tells it what passes, in this order and before or after as each says. */
export class Exchange {
  readonly #owner: HttpRecorder;
  readonly #exchange: number;
  readonly #head: RequestHead;
  readonly #conversation: string;
  readonly #mcp: boolean;
  readonly #request: Body;
  #response: Body | undefined;
  #announced: string | undefined;
  #findings: string[] = [];
  /** Called when all of it is on record. */
  readonly #ended: () => void;
  #requestEnded = false;

  constructor(owner: HttpRecorder, exchange: number, head: RequestHead, ended: () => void) {
    this.#ended = ended;
    this.#owner = owner;
    this.#exchange = exchange;
    this.#head = head;
    this.#conversation = owner.conversationOf(exchange, head);
    this.#mcp = owner.isMcp(head.target);
    const { secret, recorder } = owner.parts;
    this.#request = new Body(this.#mcp, this.#mcp && head.method === 'POST' ? 'whole' : 'opaque');
    recorder.http({
      exchange,
      phase: 'request',
      conversation: this.#mcp ? this.#conversation : undefined,
      method: head.method,
      target: recordedTarget(head.target, secret),
      headers: recordedHeaders(head.headers, secret),
    });
  }

  /** Before it is forwarded. */
  requestData(chunk: Buffer): void {
    this.#owner.parts.recorder.guard(() => this.#request.push(chunk));
  }

  /** All of the request's body was seen; before its last byte is forwarded. */
  requestEnd(): void {
    if (this.#requestEnded) return;
    this.#requestEnded = true;
    this.#owner.parts.recorder.guard(() => {
      const frame = this.#request.takeWhole();
      if (frame === undefined || frame.size === 0) return;
      this.#frame('c2s', this.#unpacked(frame));
    });
  }

  /** After the head was passed on. */
  responseHead(status: number, headers: RawHeaders): void {
    const { recorder, secret } = this.#owner.parts;
    recorder.guard(() => {
      const findings = this.#redirect(headers);
      recorder.http({
        exchange: this.#exchange,
        phase: 'response',
        conversation: this.#mcp ? (this.#owner.sessionOf(headers) ?? this.#conversation) : undefined,
        status,
        headers: recordedHeaders(headers, secret),
        findings: findings.length === 0 ? undefined : findings,
      });
      const kind = this.#mcp ? kindOf(status, mediaType(headers)) : 'opaque';
      this.#response = new Body(this.#mcp, kind);
      const coding = headerValues(headers, 'content-encoding').join().trim().toLowerCase();
      if (kind !== 'opaque' && coding !== '' && coding !== 'identity' && this.#head.method !== 'HEAD') {
        this.#decode(this.#response, coding);
      }
    });
  }

  /** After it was passed on, as it was received. */
  responseData(chunk: Buffer): void {
    const body = this.#response;
    if (body === undefined) return;
    this.#owner.parts.recorder.guard(() => {
      body.push(chunk, (event) => this.#event(event));
    });
  }

  /** Something odd that the proxy did or saw. */
  note(finding: string): void {
    this.#findings.push(finding);
  }

  end(ended: Ending, code?: string): void {
    const { recorder } = this.#owner.parts;
    const finish = (): void => {
      recorder.guard(() => {
        const frame = this.#response?.takeWhole();
        if (frame !== undefined && frame.size > 0) this.#frame('s2c', frame);
        if (this.#response?.events?.pending === true) this.#findings.push('EVENT_CUT_OFF');
        if (!this.#requestEnded && this.#request.size > 0) this.#findings.push('REQUEST_CUT_OFF');
      });
      if (this.#announced !== undefined) this.#owner.withdraw(this.#announced);
      recorder.http({
        exchange: this.#exchange,
        phase: 'end',
        request: this.#request.wire(),
        response: this.#response?.wire(),
        ended,
        code,
        findings: this.#findings.length === 0 ? undefined : this.#findings,
      });
      this.#ended();
    };
    const decoded = this.#response?.finishDecoding();
    if (decoded === undefined) finish();
    else void decoded.then(finish);
  }

  #frame(direction: 'c2s' | 's2c', frame: Gathered): void {
    this.#owner.parts.recorder.frame(direction, Object.assign(frame, { terminator: 'none' as const }), {
      exchange: this.#exchange,
      conversation: this.#conversation,
    });
  }

  /** Only messages are kept. An address of a session is as good as its id, and what others mean nobody knows. */
  #event({ type, data }: StreamEvent): void {
    // Servers open a stream with an empty event, so that a client has an id to come back with.
    if (type === 'message') {
      if (data.size > 0) this.#frame('s2c', data);
      return;
    }
    const { recorder, endpoint, secret } = this.#owner.parts;
    const text = type === 'endpoint' ? data.bytes?.toString('utf8') : undefined;
    const base = new URL(this.#head.target, endpoint.origin).href;
    const url = text !== undefined && URL.canParse(text, base) ? new URL(text, base) : undefined;
    const elsewhere = url !== undefined && !sameServer(url, endpoint);
    const target = url === undefined || elsewhere ? undefined : `${url.pathname}${url.search}`;
    if (target !== undefined && this.#announced === undefined) {
      this.#announced = target;
      this.#owner.announce(target, this.#conversation);
    }
    recorder.http({
      exchange: this.#exchange,
      phase: 'event',
      event: type.slice(0, MAX_TYPE),
      conversation: this.#conversation,
      target: target === undefined ? undefined : recordedTarget(target, secret),
      response: { size: data.size },
      findings: elsewhere ? ['ENDPOINT_ELSEWHERE'] : undefined,
    });
  }

  /** A redirect goes through as it is. If it names the server by its own address, the client will go past us. */
  #redirect(headers: RawHeaders): string[] {
    const { endpoint } = this.#owner.parts;
    return headerValues(headers, 'location').some(
      (value) => URL.canParse(value) && sameServer(new URL(value), endpoint),
    )
      ? ['REDIRECT_PAST_PROXY']
      : [];
  }

  #unpacked(frame: Gathered): Gathered {
    const coding = headerValues(this.#head.headers, 'content-encoding').join().trim().toLowerCase();
    if (frame.bytes === undefined || !/^(x-)?gzip$/.test(coding)) return frame;
    try {
      const whole = new Gatherer();
      whole.add(gunzipSync(frame.bytes, { maxOutputLength: OBSERVATION_LIMIT }));
      return whole.take();
    } catch {
      this.#findings.push('NOT_DECODED');
      return frame;
    }
  }

  #decode(body: Body, coding: string): void {
    const decoder = decoderOf(coding);
    if (decoder === undefined) {
      this.#findings.push('NOT_DECODED');
      body.ignore();
      return;
    }
    body.decodeWith(
      decoder,
      (event) => this.#event(event),
      (observation) => this.#owner.parts.recorder.guard(observation),
      () => this.#findings.push('NOT_DECODED'),
    );
  }
}

/** How a response is read. What comes with 202 is no message, and servers give it no type. */
function kindOf(status: number, type: string | undefined): 'whole' | 'events' | 'opaque' {
  if (type === 'text/event-stream') return 'events';
  if (type === undefined) return status === ACCEPTED ? 'opaque' : 'whole';
  return type === 'application/json' || type.endsWith('+json') ? 'whole' : 'opaque';
}

function decoderOf(coding: string): Transform | undefined {
  const flush = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH };
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
      return createGunzip(flush);
    case 'deflate':
      return createInflate(flush);
    case 'br':
      return createBrotliDecompress({
        flush: constants.BROTLI_OPERATION_FLUSH,
        finishFlush: constants.BROTLI_OPERATION_FLUSH,
      });
    default:
      return undefined;
  }
}

/** One direction's body: hashed as it is on the wire, and, where MCP is spoken, read. */
class Body {
  readonly #hashed: boolean;
  /** Where what is read is not what is on the wire; else the hash of what is read does for both. */
  #hash: Hash | undefined;
  #sha256: string | undefined;
  #size = 0;
  whole: Gatherer | undefined;
  events: EventStream | undefined;
  #decoder: Transform | undefined;
  #decoded: Promise<void> | undefined;

  constructor(hashed: boolean, kind: ReturnType<typeof kindOf>) {
    this.#hashed = hashed;
    if (hashed && kind !== 'whole') this.#hash = createHash('sha256');
    if (kind === 'whole') this.whole = new Gatherer();
    if (kind === 'events') this.events = new EventStream();
  }

  get size(): number {
    return this.#size;
  }

  push(chunk: Buffer, onEvent?: (event: StreamEvent) => void): void {
    this.#size += chunk.length;
    this.#hash?.update(chunk);
    if (this.#decoder !== undefined) {
      if (this.#decoder.writableLength > MAX_UNDECODED)
        this.#decoder.destroy(new Error('too much to decode'));
      else if (!this.#decoder.destroyed) this.#decoder.write(chunk);
      return;
    }
    this.#read(chunk, onEvent);
  }

  /** What was gathered, once all of it came. */
  takeWhole(): Gathered | undefined {
    const whole = this.whole?.take();
    this.whole = undefined;
    if (this.#hash === undefined) this.#sha256 = whole?.sha256;
    return whole;
  }

  /** Nothing of it can be read. */
  ignore(): void {
    if (this.#hashed) this.#hash ??= createHash('sha256');
    this.whole = undefined;
    this.events = undefined;
  }

  decodeWith(
    decoder: Transform,
    onEvent: (event: StreamEvent) => void,
    guard: (observation: () => void) => void,
    onFailure: () => void,
  ): void {
    this.#decoder = decoder;
    this.#hash ??= createHash('sha256');
    let size = 0;
    decoder.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_DECODED) decoder.destroy(new Error('too much when decoded'));
      else guard(() => this.#read(chunk, onEvent));
    });
    this.#decoded = new Promise((resolve) => {
      decoder.on('error', () => {
        this.ignore();
        onFailure();
      });
      decoder.on('close', resolve);
    });
  }

  /** Resolves when all that came is decoded; undefined where nothing has to be. */
  finishDecoding(): Promise<void> | undefined {
    if (this.#decoder?.destroyed === false) this.#decoder.end();
    return this.#decoded;
  }

  wire(): WireBody {
    if (!this.#hashed) return { size: this.#size };
    if (this.#hash === undefined && this.#sha256 === undefined) this.takeWhole();
    return { size: this.#size, sha256: this.#sha256 ?? this.#hash?.digest('hex') };
  }

  #read(chunk: Buffer, onEvent: ((event: StreamEvent) => void) | undefined): void {
    this.whole?.add(chunk);
    if (onEvent !== undefined) this.events?.push(chunk, onEvent);
  }
}
