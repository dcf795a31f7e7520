/** What of a message's head passes the proxy, what is put on record, and who may talk to the proxy at all. */

import { isIP } from 'node:net';
import { macHex } from '@belay/envelope/sink';

/** Names and values in turn, as they were received: case, order and repetition kept. */
export type RawHeaders = readonly string[];

/** Fields of one connection (RFC 9110, 7.6.1). Framing is made anew for the next one. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);
const BODILESS = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);
/** What `Connection` can't take away: without these a message would be another one. */
const KEPT = new Set(['host', 'content-length', 'content-type', 'content-encoding']);
/** Values that say how to read a message and nothing about anybody. */
const PLAIN = new Set([
  'accept',
  'cache-control',
  'content-encoding',
  'content-length',
  'content-type',
  'mcp-method',
  'mcp-protocol-version',
  'transfer-encoding',
  'x-accel-buffering',
]);
/** Values of which it is worth knowing whether two are the same; so are those of every `Mcp-` field. */
const COMPARED = new Set(['host', 'last-event-id', 'location', 'origin', 'user-agent', 'www-authenticate']);
/** Longer parts of a path, with a digit in them, are taken for keys: some services put them there. */
const MAX_PLAIN_PART = 15;

export function* headerPairs(raw: RawHeaders): Generator<readonly [name: string, value: string]> {
  for (let i = 0; i + 1 < raw.length; i += 2) yield [raw[i] as string, raw[i + 1] as string];
}

/** All values of a field. */
export function headerValues(raw: RawHeaders, name: string): string[] {
  const values: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const each = raw[i] as string;
    if (each.length === name.length && each.toLowerCase() === name) values.push(raw[i + 1] as string);
  }
  return values;
}

/** Everything but what belongs to the connection it came on. */
export function endToEnd(raw: RawHeaders): string[] {
  const named = headerValues(raw, 'connection').flatMap((value) =>
    value.split(',').map((token) => token.trim().toLowerCase()),
  );
  const passed: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = (raw[i] as string).toLowerCase();
    if (HOP_BY_HOP.has(name) || (named.includes(name) && !KEPT.has(name))) continue;
    passed.push(raw[i] as string, raw[i + 1] as string);
  }
  return passed;
}

/**
 * A request's fields for the next connection: Host is that of the server, in its old place; a body of unknown length
 * stays one. Without a body, methods that may have one say so: what writes the message would else announce one.
 */
export function forwardedRequest(method: string, raw: RawHeaders, host: string): string[] {
  const forwarded = endToEnd(raw);
  for (let i = 0; i < forwarded.length; i += 2) {
    if ((forwarded[i] as string).toLowerCase() === 'host') forwarded[i + 1] = host;
  }
  if (isChunked(raw)) return [...forwarded, 'Transfer-Encoding', 'chunked'];
  const silent = BODILESS.has(method) || contentLength(raw) !== undefined;
  return silent ? forwarded : [...forwarded, 'Content-Length', '0'];
}

function isChunked(raw: RawHeaders): boolean {
  return headerValues(raw, 'transfer-encoding').length > 0;
}

/** The announced length of a body, or undefined. */
export function contentLength(raw: RawHeaders): number | undefined {
  const [value] = headerValues(raw, 'content-length');
  return value === undefined || !/^\d{1,15}$/.test(value) ? undefined : Number(value);
}

/** Type of a body without its parameters, in lower case; undefined where none is given. */
export function mediaType(raw: RawHeaders): string | undefined {
  return headerValues(raw, 'content-type')[0]?.split(';')[0]?.trim().toLowerCase();
}

/** Tells whether a value is the same another time, without telling the value. */
export function keyedDigest(secret: Buffer, name: string, value: string): string {
  return `hmac-sha256:${macHex(secret, `belay/http/v1\n${name}\n${value}`)}`;
}

/** Fields as they are put on record: by name alone, unless the value is known to be worth more and no credential. */
export function recordedHeaders(raw: RawHeaders, secret: Buffer): [name: string, value: string][] {
  return [...headerPairs(raw)].map(([name, value]) => {
    const lower = name.toLowerCase();
    if (PLAIN.has(lower)) return [name, value];
    return [name, COMPARED.has(lower) || lower.startsWith('mcp-') ? keyedDigest(secret, lower, value) : ''];
  });
}

/** A request target as it is put on record: names stay, values of the query and what looks like a key do not. */
export function recordedTarget(target: string, secret: Buffer): string {
  const at = target.indexOf('?');
  const path = (at < 0 ? target : target.slice(0, at))
    .split('/')
    .map((part) =>
      part.length > MAX_PLAIN_PART && /\d/.test(part) ? keyedDigest(secret, 'path', part) : part,
    )
    .join('/');
  if (at < 0) return path;
  const query = target
    .slice(at + 1)
    .split('&')
    .map((pair) => {
      const equals = pair.indexOf('=');
      return equals < 0
        ? keyedDigest(secret, 'query', pair)
        : `${pair.slice(0, equals)}=${keyedDigest(secret, 'query', pair.slice(equals + 1))}`;
    })
    .join('&');
  return `${path}?${query}`;
}

/** `localhost`, names under it, and addresses of the loopback networks. `name` as in a URL: IPv6 in brackets. */
export function isLoopback(name: string): boolean {
  const host = name.toLowerCase();
  return (
    host === 'localhost' ||
    host.endsWith('.localhost') ||
    host === '[::1]' ||
    (isIP(host) === 4 && host.startsWith('127.'))
  );
}

/** Whom a proxy answers to. */
export interface Admission {
  readonly port: number;
  /** Whether only this machine can reach the port. */
  readonly loopbackOnly: boolean;
  /** Names by which it may be called besides loopback ones; lower case. */
  readonly hosts: readonly string[];
  /** Origins of pages that may call it besides loopback ones. */
  readonly origins: readonly string[];
}

/** Why a request is refused: a page from elsewhere sent it, or it was meant for somebody else. */
export type Refusal = 'ORIGIN' | 'HOST' | 'TARGET';

/**
 * Keeps web pages away. A page that has a name of its own resolved to this machine (DNS rebinding) sends that name as
 * Host and Origin; an address is nobody's to resolve, so any address is ours where we listen to more than loopback.
 */
export function refusal(raw: RawHeaders, target: string, admission: Admission): Refusal | undefined {
  if (!target.startsWith('/')) return 'TARGET';
  const hosts = headerValues(raw, 'host');
  if (hosts.length !== 1 || !isOurs(hosts[0] as string, admission)) return 'HOST';
  const allowed = headerValues(raw, 'origin').every(
    (origin) => admission.origins.includes(origin) || isLoopbackOrigin(origin),
  );
  return allowed ? undefined : 'ORIGIN';
}

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?$/i;

function isOurs(host: string, { port, loopbackOnly, hosts }: Admission): boolean {
  if (hosts.includes(host.toLowerCase())) return true;
  const [, name, written] = HOST.exec(host) ?? [];
  if (name === undefined || Number(written ?? 80) !== port) return false;
  if (isLoopback(name) || hosts.includes(name.toLowerCase())) return true;
  return !loopbackOnly && isIP(name.replace(/^\[|\]$/g, '')) !== 0;
}

function isLoopbackOrigin(origin: string): boolean {
  if (!URL.canParse(origin)) return false;
  const { protocol, hostname } = new URL(origin);
  return (protocol === 'http:' || protocol === 'https:') && isLoopback(hostname);
}
