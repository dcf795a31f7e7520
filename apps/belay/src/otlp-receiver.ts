/**
 * The HTTP side of `belay otlp`: OTLP/HTTP 1.x on a local port. Every request is answered at once: what is too much is
 * refused with the time to try again, and nothing is taken in that has no place to go.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import {
  decodeRequest,
  encodeAnswer,
  encodeStatus,
  type OtlpEncoding,
  OtlpError,
  type OtlpRequest,
  type OtlpSignal,
  type Refusals,
  RPC_CODE,
} from '@belay/otlp';
import { type Admission, contentLength, isLoopback, mediaType, refusal } from './http-headers.js';

export interface ReceiverLimits {
  /** Bytes of a body as it was sent, and unpacked. */
  readonly body: number;
  readonly unpacked: number;
  /** Requests at the same time; each may hold a body as it was sent, and one of them that body unpacked. */
  readonly requests: number;
}

export const RECEIVER_LIMITS: ReceiverLimits = {
  body: 4 * 1024 * 1024,
  unpacked: 16 * 1024 * 1024,
  requests: 8,
};

export interface ReceiverParts {
  readonly limits: ReceiverLimits;
  /** Uses a request at once and for good; returns what of it was refused. */
  readonly take: (request: OtlpRequest) => Refusals | undefined;
  /** Metrics are answered and dropped: only that they came is told. Likewise of what could not be decoded. */
  readonly dropped: (what: 'metrics' | 'undecodable') => void;
  /** More can't be taken in for now. */
  readonly full: () => boolean;
}

/** Seconds until a sender is to try again: when there is no room for more lines, and when there are too many at once. */
const RETRY_FULL = 5;
const RETRY_BUSY = 1;
/** Milliseconds. */
const REQUEST_TIMEOUT = 30_000;
const CLOSING_PATIENCE = 2_000;
const MAX_CONNECTIONS = 128;
const FIRST_ALLOCATION = 64 * 1024;

const SIGNALS: Readonly<Record<string, OtlpSignal | 'metrics'>> = {
  '/v1/traces': 'traces',
  '/v1/logs': 'logs',
  '/v1/metrics': 'metrics',
};
const ENCODINGS: Readonly<Record<string, OtlpEncoding>> = {
  'application/json': 'json',
  'application/x-protobuf': 'protobuf',
};
const MEDIA_TYPE: Readonly<Record<OtlpEncoding, string>> = {
  json: 'application/json',
  protobuf: 'application/x-protobuf',
};

const unpack = promisify(gunzip);

/** An answer other than 200. */
class Refused extends Error {
  readonly status: number;
  readonly code: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, code: number, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

const tooLarge = (what: string, limit: number): Refused =>
  new Refused(413, RPC_CODE.resourceExhausted, `${what} is larger than ${limit} bytes`);
const later = (status: 429 | 503, seconds: number, message: string): Refused =>
  new Refused(status, RPC_CODE.unavailable, message, { 'retry-after': String(seconds) });

export class OtlpReceiver {
  readonly #parts: ReceiverParts;
  readonly #server: Server;
  #admission: Admission = { port: 0, loopbackOnly: true, hosts: [], origins: [] };
  #active = 0;
  /** Ends when the newest request that was let in has ended. */
  #last: Promise<void> = Promise.resolve();
  #closing = false;

  constructor(parts: ReceiverParts) {
    this.#parts = parts;
    this.#server = createServer(
      {
        requestTimeout: REQUEST_TIMEOUT,
        headersTimeout: REQUEST_TIMEOUT / 3,
        connectionsCheckingInterval: REQUEST_TIMEOUT / 6,
      },
      (request, response) => void this.#serve(request, response),
    );
    this.#server.maxConnections = MAX_CONNECTIONS;
    // Half a request, or none: there is nobody to answer.
    this.#server.on('clientError', (_error, socket) => socket.destroy());
  }

  /**
   * `host` as in a URL, IPv6 in brackets; `names` are other names this machine is called by. Returns the port, which is
   * a free one when `port` is 0. Rejects with what the operating system says.
   */
  async listen(host: string, port: number, names: readonly string[] = []): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host.replace(/^\[|\]$/g, ''), () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    const { port: bound } = this.#server.address() as AddressInfo;
    this.#admission = {
      port: bound,
      loopbackOnly: isLoopback(host),
      hosts: names.map((name) => name.toLowerCase()),
      origins: [],
    };
    return bound;
  }

  /** Takes no more requests, and waits a moment for those that are under way. */
  async close(): Promise<void> {
    this.#closing = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeIdleConnections();
    const patience = setTimeout(() => this.#server.closeAllConnections(), CLOSING_PATIENCE);
    await closed;
    clearTimeout(patience);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const encoding = ENCODINGS[mediaType(request.rawHeaders) ?? ''];
    // Senders of what is neither can read JSON.
    const type = MEDIA_TYPE[encoding ?? 'json'];
    const answer = (status: number, headers: Readonly<Record<string, string>>, body: Buffer): void => {
      if (response.destroyed) return;
      response.writeHead(status, {
        ...headers,
        'content-type': type,
        'content-length': body.length,
        ...(this.#closing ? { connection: 'close' } : {}),
      });
      response.end(body);
    };
    // Once refused, a request has its body read and thrown away, so that its sender gets to read why.
    try {
      answer(200, {}, await this.#accept(request, encoding));
    } catch (error) {
      if (error instanceof Gone) return;
      const refused = error instanceof Refused ? error : refusalOf(error);
      if (refused.status === 400) this.#parts.dropped('undecodable');
      answer(
        refused.status,
        refused.headers,
        encodeStatus(encoding ?? 'json', refused.code, refused.message),
      );
    }
  }

  async #accept(request: IncomingMessage, encoding: OtlpEncoding | undefined): Promise<Buffer> {
    const target = request.url ?? '';
    const why = refusal(request.rawHeaders, target, this.#admission);
    if (why !== undefined) {
      throw new Refused(403, RPC_CODE.permissionDenied, `the ${why.toLowerCase()} is not of this machine`);
    }
    const [path = ''] = target.split('?');
    const signal = Object.hasOwn(SIGNALS, path) ? SIGNALS[path] : undefined;
    if (signal === undefined) throw new Refused(404, RPC_CODE.notFound, 'no such path');
    if (request.method !== 'POST') {
      throw new Refused(405, RPC_CODE.unimplemented, 'POST only', { allow: 'POST' });
    }
    if (encoding === undefined) {
      throw new Refused(415, RPC_CODE.invalidArgument, `send ${Object.values(MEDIA_TYPE).join(' or ')}`);
    }
    const packing = (request.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
    if (packing !== 'gzip' && packing !== 'identity') {
      throw new Refused(415, RPC_CODE.invalidArgument, 'the content encoding is gzip or none', {
        'accept-encoding': 'gzip',
      });
    }
    if (this.#closing) throw later(503, RETRY_FULL, 'closing');
    if (this.#active >= this.#parts.limits.requests)
      throw later(503, RETRY_BUSY, 'too many requests at once');
    this.#active++;
    try {
      return await this.#take(request, signal, encoding, packing);
    } finally {
      this.#active--;
    }
  }

  async #take(
    request: IncomingMessage,
    signal: OtlpSignal | 'metrics',
    encoding: OtlpEncoding,
    packing: 'gzip' | 'identity',
  ): Promise<Buffer> {
    const { limits, take, dropped } = this.#parts;
    this.#requireRoom();
    const body = await readBody(request, limits.body);
    if (signal === 'metrics') {
      dropped('metrics');
      return encodeAnswer(encoding, signal, undefined);
    }
    return await this.#alone(async () => {
      const plain = packing === 'gzip' ? await unpacked(body, limits.unpacked) : body;
      // Others may have filled it while this one was read. From here to the answer nothing waits.
      this.#requireRoom();
      return encodeAnswer(encoding, signal, take(decodeRequest(signal, encoding, plain)));
    });
  }

  /** One body at a time is unpacked and decoded: so many as come at once, memory holds one of full size. */
  async #alone<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#last;
    let done = (): void => undefined;
    this.#last = new Promise((resolve) => (done = resolve));
    await before;
    try {
      return await work();
    } finally {
      done();
    }
  }

  #requireRoom(): void {
    if (this.#parts.full()) throw later(429, RETRY_FULL, 'the log takes lines more slowly than they come');
  }
}

/** The sender is gone. */
class Gone extends Error {}

function refusalOf(error: unknown): Refused {
  if (!(error instanceof OtlpError)) {
    return new Refused(500, RPC_CODE.internal, 'a fault in the receiver');
  }
  return error.code === 'too_much'
    ? new Refused(413, RPC_CODE.resourceExhausted, error.message)
    : new Refused(400, RPC_CODE.invalidArgument, error.message);
}

/** A body of at most `limit` bytes. Memory grows with what has come, not with what was announced. */
async function readBody(request: IncomingMessage, limit: number): Promise<Buffer> {
  if ((contentLength(request.rawHeaders) ?? 0) > limit) throw tooLarge('the body', limit);
  return await new Promise((resolve, reject) => {
    let bytes = Buffer.allocUnsafe(FIRST_ALLOCATION);
    let length = 0;
    request.on('data', (chunk: Buffer) => {
      const needed = length + chunk.length;
      if (needed > limit) {
        bytes = Buffer.alloc(0);
        length = limit;
        reject(tooLarge('the body', limit));
        return;
      }
      if (needed > bytes.length) {
        const larger = Buffer.allocUnsafe(Math.min(limit, Math.max(needed, 2 * bytes.length)));
        bytes.copy(larger, 0, 0, length);
        bytes = larger;
      }
      chunk.copy(bytes, length);
      length = needed;
    });
    request.once('end', () => resolve(bytes.subarray(0, length)));
    request.once('close', () => reject(new Gone()));
    request.once('error', () => reject(new Gone()));
  });
}

async function unpacked(body: Buffer, limit: number): Promise<Buffer> {
  // An empty body is an empty request, packed or not.
  if (body.length === 0) return body;
  try {
    return await unpack(body, { maxOutputLength: limit });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') {
      throw tooLarge('the body, unpacked,', limit);
    }
    throw new Refused(400, RPC_CODE.invalidArgument, 'the body is not gzip');
  }
}
