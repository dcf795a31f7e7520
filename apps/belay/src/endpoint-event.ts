/**
 * The first event of the legacy transport's stream (2024-11-05, HTTP+SSE) names the URL that messages are to be sent
 * to. A path works through a proxy that mirrors paths. A whole URL would lead past the proxy, and clients refuse one
 * of another origin: there, and only there, a byte of a body is changed.
 */

import { isLoopback } from './http-headers.js';

const LF = 0x0a;
const CR = 0x0d;
/** No more is held back, ever. Bytes. */
const MAX_HELD = 8 * 1024;
/** `event: endpoint`, and a byte order mark before it. */
const MAX_NAME_LINE = 24;
const AUTHORITY = /^[a-z][a-z0-9+.-]*:\/\/[^/?#\r\n]*/i;

/** Whether two origins are one server: the same, or loopback by different names. */
export function sameServer(a: URL, b: URL): boolean {
  return (
    a.origin === b.origin ||
    (a.protocol === b.protocol && a.port === b.port && isLoopback(a.hostname) && isLoopback(b.hostname))
  );
}

/**
 * Passes an event stream on and, in its `endpoint` event, puts the proxy's origin in place of the server's.
 *
 * Bytes are returned as they come. Only between the line `event: endpoint` and the end of the `data` line after it are
 * they held back. Past the first `data` line of the stream it looks at nothing any more.
 */
export class EndpointRewriter {
  readonly #server: URL;
  readonly #proxyOrigin: string;
  #state: 'looking' | 'holding' | 'done' = 'looking';
  /** Beginning of the current line while looking, all of it while holding. */
  #line: number[] = [];
  #rewritten = false;

  constructor(server: URL, proxyOrigin: string) {
    this.#server = server;
    this.#proxyOrigin = proxyOrigin;
  }

  /** Whether what was passed on is not what came. */
  get rewritten(): boolean {
    return this.#rewritten;
  }

  /** What is to be passed on now. The chunk itself, wherever nothing is held back. */
  push(chunk: Buffer): Buffer {
    if (this.#state === 'done') return chunk;
    if (this.#state === 'looking') {
      const at = this.#look(chunk);
      if (at === chunk.length || this.#stateIs('done')) return chunk;
      return Buffer.concat([chunk.subarray(0, at), this.#hold(chunk.subarray(at))]);
    }
    return this.#hold(chunk);
  }

  /** The stream has ended: what was held back. */
  end(): Buffer {
    const rest = this.#state === 'holding' ? Buffer.from(this.#line) : Buffer.alloc(0);
    this.#state = 'done';
    return rest;
  }

  /** Goes through lines until one says that the next is to be held back; returns where that one begins. */
  #look(chunk: Buffer): number {
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte !== LF && byte !== CR) {
        if (this.#line.length < MAX_NAME_LINE) this.#line.push(byte);
        continue;
      }
      const line = Buffer.from(this.#line)
        .toString('utf8')
        .replace(/^\ufeff/, '');
      this.#line = [];
      if (/^event: ?endpoint$/.test(line)) {
        this.#state = 'holding';
        return at + 1;
      }
      if (line.startsWith('data')) {
        this.#state = 'done';
        return at + 1;
      }
    }
    return chunk.length;
  }

  #hold(chunk: Buffer): Buffer {
    const out: Buffer[] = [];
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      this.#line.push(byte);
      const ended = byte === LF || byte === CR;
      if (!ended && this.#line.length < MAX_HELD) continue;
      const line = Buffer.from(this.#line);
      this.#line = [];
      out.push(this.#replaced(line));
      if (line.subarray(0, 4).toString('latin1') === 'data' || line.length >= MAX_HELD) {
        this.#state = 'done';
        out.push(chunk.subarray(at + 1));
        return Buffer.concat(out);
      }
    }
    return Buffer.concat(out);
  }

  #replaced(line: Buffer): Buffer {
    const text = line.toString('latin1');
    const [, field, value] = /^(data: ?)(.*)$/s.exec(text) ?? [];
    if (field === undefined || value === undefined) return line;
    const authority = AUTHORITY.exec(value)?.[0];
    if (authority === undefined || !URL.canParse(authority) || !sameServer(new URL(authority), this.#server))
      return line;
    this.#rewritten = true;
    return Buffer.from(`${field}${this.#proxyOrigin}${value.slice(authority.length)}`, 'latin1');
  }

  #stateIs(state: 'done' | 'holding' | 'looking'): boolean {
    return this.#state === state;
  }
}
