import * as http from 'node:http';
import * as https from 'node:https';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { ClientError } from './error.js';

const MAX_ANSWER = 8 * 1024 * 1024;
const TIMEOUT = 30_000;
/** Below this, or to this machine, compressing costs more than it saves. Bytes. */
const GZIP_FROM = 4096;

const compress = promisify(gzip);

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
}

/** POST of NDJSON lines, and GET of what a log says of itself, over connections that are kept alive. */
export class Transport {
  readonly #url: URL;
  readonly #agent: http.Agent;
  readonly #local: boolean;
  #closed = false;

  /** `base` is the service's URL, with or without a path. */
  constructor(base: string) {
    this.#url = new URL(base.endsWith('/') ? base : `${base}/`);
    const options = { keepAlive: true, maxSockets: 4 };
    this.#agent = this.#url.protocol === 'https:' ? new https.Agent(options) : new http.Agent(options);
    this.#local = ['127.0.0.1', '[::1]', 'localhost'].includes(this.#url.hostname);
  }

  /** Resolves with whatever status came; throws ClientError (`retry`) when no answer did. */
  async post(path: string, headers: Readonly<Record<string, string>>, body: Buffer): Promise<Answer> {
    const packed = !this.#local && body.length >= GZIP_FROM ? await compress(body) : undefined;
    const encoding = packed === undefined ? {} : { 'content-encoding': 'gzip' };
    return await this.#ask('POST', path, { ...headers, ...encoding }, packed ?? body);
  }

  /** The same, of a GET. */
  async get(path: string, headers: Readonly<Record<string, string>>): Promise<Answer> {
    return await this.#ask('GET', path, headers, undefined);
  }

  async #ask(
    method: 'GET' | 'POST',
    path: string,
    headers: Readonly<Record<string, string>>,
    payload: Buffer | undefined,
  ): Promise<Answer> {
    if (this.#closed) throw new ClientError('retry', 'unreachable', `${this.#url.host}: closed`);
    return await new Promise((resolve, reject) => {
      const send = this.#url.protocol === 'https:' ? https.request : http.request;
      const request = send(new URL(path.replace(/^\//, ''), this.#url), {
        method,
        agent: this.#agent,
        headers: {
          accept: 'application/json, application/problem+json',
          ...headers,
          ...(payload === undefined ? {} : { 'content-length': payload.length }),
        },
      });
      const timer = setTimeout(
        () => request.destroy(new ClientError('retry', 'timeout', `no answer within ${TIMEOUT / 1000} s`)),
        TIMEOUT,
      );
      const fail = (error: Error): void => {
        clearTimeout(timer);
        const known = error instanceof ClientError;
        const reason = (error as NodeJS.ErrnoException).code ?? error.message;
        reject(
          known
            ? error
            : new ClientError('retry', 'unreachable', `${this.#url.host}: ${reason}`, { cause: error }),
        );
      };
      request.on('error', fail);
      request.on('response', (response) => {
        const parts: Buffer[] = [];
        let length = 0;
        response.on('error', fail);
        response.on('data', (part: Buffer) => {
          length += part.length;
          if (length > MAX_ANSWER)
            response.destroy(new ClientError('retry', 'answer_malformed', 'the answer is too large'));
          else parts.push(part);
        });
        response.on('end', () => {
          clearTimeout(timer);
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: Buffer.concat(parts),
          });
        });
      });
      request.end(payload);
    });
  }

  /** Cuts all connections, so that a process can end; none is made any more. */
  close(): void {
    this.#closed = true;
    this.#agent.destroy();
  }
}
