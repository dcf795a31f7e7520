/** One MCP server over HTTP, behind a port of this machine: bytes verbatim both ways, nothing waited for. */

import http from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { EndpointRewriter } from './endpoint-event.js';
import {
  type Admission,
  contentLength,
  endToEnd,
  forwardedRequest,
  headerPairs,
  headerValues,
  isLoopback,
  mediaType,
  type RawHeaders,
  type Refusal,
  refusal,
} from './http-headers.js';
import type { Exchange, HttpRecorder } from './http-recorder.js';

/** Larger heads are refused by either side itself. Bytes. */
const MAX_HEADER_SIZE = 256 * 1024;
/**
 * A connection to the server that nobody used for so long is not used again: shorter than servers wait, so that a
 * request is hardly ever lost to one that is just being closed. Milliseconds.
 */
const IDLE = 2_000;

export interface HttpProxyParts {
  /** The server's MCP endpoint. Its origin is what every request is sent to, under the path it came with. */
  readonly upstream: URL;
  /** Names and origins that are let in besides loopback ones. */
  readonly hosts?: readonly string[];
  readonly origins?: readonly string[];
}

/** Written to send the head before there is a body. (`flushHeaders` sends it as UTF-8: bytes above 127 would change.) */
const HEAD_ALONE = Buffer.alloc(0);

const REFUSALS: Readonly<Record<Refusal, { status: number; title: string; detail: string }>> = {
  ORIGIN: { status: 403, title: 'Origin refused', detail: 'This proxy serves no pages of that origin.' },
  HOST: { status: 403, title: 'Host refused', detail: 'This proxy is not called by that name.' },
  TARGET: { status: 400, title: 'Not a path', detail: 'This proxy forwards to one server only.' },
};

/**
 * Mirrors the server's paths, so that what it names by path works through the proxy. Never retries and never invents:
 * its own words are problem documents (RFC 9457) that name it.
 */
export class HttpProxy {
  readonly #parts: HttpProxyParts;
  #recorder: HttpRecorder | undefined;
  /** Requests that came before there was a recorder. */
  readonly #early: (() => void)[] = [];
  readonly #server: http.Server;
  readonly #agent: http.Agent;
  readonly #sockets = new Set<Socket>();
  #closing = false;
  #admission: Admission = { port: 0, loopbackOnly: true, hosts: [], origins: [] };

  constructor(parts: HttpProxyParts) {
    this.#parts = parts;
    const { Agent } = parts.upstream.protocol === 'https:' ? https : http;
    this.#agent = new Agent({ keepAlive: true, timeout: IDLE });
    // A client may think about its next message, and a stream may be silent, for as long as they like.
    this.#server = http.createServer({
      maxHeaderSize: MAX_HEADER_SIZE,
      keepAliveTimeout: 0,
      requestTimeout: 0,
      // Who sends no Host is told why in our own words.
      requireHostHeader: false,
    });
    this.#server.maxHeadersCount = 0;
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('request', (request, response) => this.#take(request, response));
    // What a client expects is for the server to say.
    this.#server.on('checkContinue', (request, response) => this.#take(request, response));
    this.#server.on('checkExpectation', (request, response) => this.#take(request, response));
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) =>
      malformed(error, socket),
    );
  }

  /** Rejects when the port can't be had. */
  async listen(host: string, port: number): Promise<AddressInfo> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => resolve());
    });
    const address = this.#server.address() as AddressInfo;
    const bare = host.toLowerCase();
    this.#admission = {
      port: address.port,
      loopbackOnly: isLoopback(bare.includes(':') ? `[${bare}]` : bare),
      hosts: [...(this.#parts.hosts ?? []).map((name) => name.toLowerCase()), bare],
      origins: this.#parts.origins ?? [],
    };
    return address;
  }

  /** From here on requests are forwarded; those that came before have waited. */
  record(recorder: HttpRecorder): void {
    this.#recorder = recorder;
    for (const take of this.#early.splice(0)) take();
  }

  /** Takes no more, lets what is being answered go on for `grace` milliseconds, and ends what is left then. */
  async close(grace: number): Promise<void> {
    this.#closing = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeIdleConnections();
    const timer = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, grace);
    await closed;
    clearTimeout(timer);
    await this.#recorder?.settled();
    this.#agent.destroy();
  }

  #take(request: http.IncomingMessage, response: http.ServerResponse): void {
    const recorder = this.#recorder;
    if (recorder === undefined) {
      this.#early.push(() => this.#take(request, response));
      return;
    }
    const { method = 'GET', url: target = '', rawHeaders: headers } = request;
    const refused = refusal(headers, target, this.#admission);
    if (refused !== undefined) {
      const { status, title, detail } = REFUSALS[refused];
      recorder.refuse({ method, target, headers }, status, `${refused}_REFUSED`);
      request.resume();
      answer(response, status, title, detail);
      return;
    }
    const { upstream } = this.#parts;
    new Forwarding({ upstream, recorder }, this.#agent, request, response, () => this.#closing).start();
  }
}

const PROBLEM = 'application/problem+json';

/** The proxy's own words. */
function problem(status: number, title: string, detail: string): Buffer {
  const document = { type: 'about:blank', title: `belay proxy: ${title}`, status, detail };
  return Buffer.from(`${JSON.stringify(document)}\n`);
}

function answer(response: http.ServerResponse, status: number, title: string, detail: string): void {
  const body = problem(status, title, detail);
  response.writeHead(status, { 'Content-Type': PROBLEM, 'Content-Length': body.length });
  response.end(body);
}

/** Bytes that are no request. They can't be forwarded as one, so nobody else can answer them. */
function malformed(error: NodeJS.ErrnoException, socket: Socket): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const status = error.code === 'HPE_HEADER_OVERFLOW' ? 431 : 400;
  const body = problem(
    status,
    'not an HTTP request',
    `The request could not be read: ${error.code ?? 'UNKNOWN'}.`,
  );
  socket.end(
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status]}\r\nContent-Type: ${PROBLEM}\r\n` +
      `Content-Length: ${body.length}\r\nConnection: close\r\n\r\n${body.toString()}`,
  );
}

/** One request on its way there, and its response on its way back. */
class Forwarding {
  readonly #upstream: URL;
  readonly #request: http.IncomingMessage;
  readonly #response: http.ServerResponse;
  readonly #exchange: Exchange;
  readonly #out: http.ClientRequest;
  readonly #closing: () => boolean;
  #rewriter: EndpointRewriter | undefined;
  #answered = false;
  #ended = false;

  constructor(
    { upstream, recorder }: { readonly upstream: URL; readonly recorder: HttpRecorder },
    agent: http.Agent,
    request: http.IncomingMessage,
    response: http.ServerResponse,
    closing: () => boolean,
  ) {
    this.#closing = closing;
    this.#upstream = upstream;
    this.#request = request;
    this.#response = response;
    const { method = 'GET', url: target = '/', rawHeaders } = request;
    this.#exchange = recorder.begin({ method, target, headers: rawHeaders });
    const { request: open } = upstream.protocol === 'https:' ? https : http;
    this.#out = open({
      protocol: upstream.protocol,
      hostname: upstream.hostname.replace(/^\[|\]$/g, ''),
      port: upstream.port,
      method,
      path: target,
      headers: forwardedRequest(method, rawHeaders, upstream.host) as unknown as http.OutgoingHttpHeaders,
      agent,
      maxHeaderSize: MAX_HEADER_SIZE,
    });
    this.#out.maxHeadersCount = 0;
  }

  start(): void {
    const out = this.#out;
    const response = this.#response;
    out.setNoDelay(true);
    out.on('continue', () => response.writeContinue());
    out.on('response', (answered) => this.#answer(answered));
    out.on('error', (error: NodeJS.ErrnoException) => this.#failed(error));
    // Whatever of the request nobody wants any more is read and thrown away, or the connection could not go on.
    out.on('close', () => this.#request.resume());
    // The client is gone: the server is told by the same means.
    response.on('close', () => {
      if (response.writableFinished) return;
      this.#end(this.#closing() ? 'proxy' : 'client');
      out.destroy();
    });
    response.on('error', () => undefined);
    this.#sendRequest();
  }

  #sendRequest(): void {
    const request = this.#request;
    const out = this.#out;
    const length = contentLength(request.rawHeaders);
    let seen = 0;
    soon(out);
    request.on('data', (chunk: Buffer) => {
      this.#exchange.requestData(chunk);
      seen += chunk.length;
      // With its last byte the server has the message: it must be on record by then.
      if (seen === length) this.#exchange.requestEnd();
      passOn(chunk, request, out);
    });
    request.on('end', () => {
      this.#exchange.requestEnd();
      const trailers = pairsOf(request.rawTrailers);
      if (trailers.length > 0) out.addTrailers(trailers);
      out.end();
    });
    request.on('error', () => undefined);
  }

  #answer(answered: http.IncomingMessage): void {
    const response = this.#response;
    this.#answered = true;
    const { statusCode: status = 502, statusMessage, rawHeaders } = answered;
    if (headerValues(rawHeaders, 'connection').some((value) => /\bclose\b/i.test(value))) {
      response.shouldKeepAlive = false;
    }
    response.sendDate = false;
    response.writeHead(status, statusMessage, endToEnd(rawHeaders) as unknown as http.OutgoingHttpHeaders);
    let headSeen = false;
    const seeHead = (): void => {
      if (headSeen) return;
      headSeen = true;
      this.#exchange.responseHead(status, rawHeaders);
    };
    soon(response, seeHead);

    const rewriter = this.#rewriterFor(answered);
    this.#rewriter = rewriter;
    answered.on('data', (chunk: Buffer) => {
      const passed = rewriter === undefined ? chunk : rewriter.push(chunk);
      if (passed.length > 0) passOn(passed, answered, response);
      seeHead();
      this.#exchange.responseData(chunk);
    });
    answered.on('end', () => {
      const rest = rewriter?.end();
      if (rest !== undefined && rest.length > 0) response.write(rest);
      const trailers = pairsOf(answered.rawTrailers);
      if (trailers.length > 0) response.addTrailers(trailers);
      response.end();
      seeHead();
      this.#end('complete');
    });
    answered.on('error', () => undefined);
    answered.on('close', () => {
      if (answered.complete) return;
      seeHead();
      // The server broke off. So do we, once everything that came has been passed on: an end would look like one.
      const rest = rewriter?.end();
      if (rest !== undefined && rest.length > 0) response.write(rest);
      this.#end('server');
      response.socket?.destroySoon();
    });
  }

  #rewriterFor(answered: http.IncomingMessage): EndpointRewriter | undefined {
    const { method, rawHeaders: asked } = this.#request;
    const { rawHeaders } = answered;
    const plain = headerValues(rawHeaders, 'content-encoding').every((coding) => coding === 'identity');
    const sized = contentLength(rawHeaders) !== undefined;
    if (method !== 'GET' || mediaType(rawHeaders) !== 'text/event-stream' || !plain || sized)
      return undefined;
    return new EndpointRewriter(this.#upstream, `http://${headerValues(asked, 'host')[0] ?? ''}`);
  }

  #failed(error: NodeJS.ErrnoException): void {
    const response = this.#response;
    // An answer that came before all of the request was sent stands; the rest of the request goes nowhere.
    if (this.#answered || response.destroyed) return;
    const code = error.code ?? 'UNKNOWN';
    this.#end('unreachable', code);
    answer(
      response,
      502,
      'no answer from the server',
      `The connection to the MCP server failed: ${code}. Whether it acted on the request is not known.`,
    );
  }

  #end(how: Parameters<Exchange['end']>[0], code?: string): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#rewriter?.rewritten === true) this.#exchange.note('ENDPOINT_REWRITTEN');
    this.#exchange.end(how, code);
  }
}

/** Sends a head that no body came with, so that nobody waits for it; with the body, it costs no packet of its own. */
function soon(message: http.OutgoingMessage, then?: () => void): void {
  setImmediate(() => {
    if (!message.writableEnded && !message.destroyed) message.write(HEAD_ALONE);
    then?.();
  });
}

/** Writes, and stops the source while the receiver is full. */
function passOn(chunk: Buffer, source: http.IncomingMessage, sink: Writable): void {
  if (sink.destroyed || sink.write(chunk)) return;
  source.pause();
  sink.once('drain', () => source.resume());
}

function pairsOf(raw: RawHeaders): [string, string][] {
  return [...headerPairs(raw)].map(([name, value]) => [name, value]);
}
