/** The service's HTTP API as the CLI asks it: one request, one answer, and every failure told as what to do next. */

import type { Problem } from '@belay/contracts/http';
import type { Command } from 'commander';
import type { CliConfig } from './config.js';
import { readCredentials, readSecretOption } from './credentials.js';
import { CliError, EXIT, unavailable, usage } from './exit.js';

const DEFAULT_URL = 'http://127.0.0.1:8420';

/** Receipts of 10,000 entries and full tiles are far below this. */
const MAX_ANSWER = 64 * 1024 * 1024;
const TIMEOUT_MS = 30_000;

export interface Answer {
  readonly status: number;
  readonly type: string;
  readonly headers: Headers;
  readonly bytes: Buffer;
}

/** An answer that is read as it comes. */
export interface Stream {
  readonly status: number;
  readonly parts: AsyncIterable<Uint8Array>;
}

/** A problem that the service stated (RFC 9457), with its stable code. */
export class ServiceProblem extends CliError {
  readonly status: number;

  constructor(status: number, code: string, message: string, next: string | undefined) {
    super(exitOf(status), code, message, next);
    this.name = 'ServiceProblem';
    this.status = status;
  }
}

function exitOf(status: number): typeof EXIT.badInput | typeof EXIT.unavailable {
  return status === 408 || status === 429 || status >= 500 ? EXIT.unavailable : EXIT.badInput;
}

const NEXT: Readonly<Record<string, string>> = {
  unauthenticated: 'Check that the key was pasted whole and that it is for this service.',
  forbidden:
    'This kind of key may not do that: tenants take the operator key, projects, tokens and sinks an admin key, reading and exports an auditor key.',
  token_revoked: 'Ask the project for a new token.',
  token_expired: 'Ask the project for a new token.',
  not_found: 'It does not exist, or this key may not see it.',
  not_published: 'A checkpoint is published about once a second; try again shortly.',
  gone: 'It was removed, or has been kept as long as it is: make it again.',
  rate_limited: 'Try again later.',
  overloaded: 'Try again shortly.',
  unavailable: 'Try again shortly.',
  shutting_down: 'Try again shortly.',
  log_halted: 'The log stopped for safety; its operator should run `belay log fsck`.',
};

/** Base URL of a service without its trailing slash. Refuses anything but http and https. */
export function serviceUrl(text: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw usage(`not a URL: ${text}`, 'Such as http://127.0.0.1:8420.');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw usage(`not an http or https URL: ${text}`);
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

export class Service {
  readonly url: string;
  readonly #credential: string | undefined;

  constructor(url: string, credential: string | undefined) {
    this.url = serviceUrl(url);
    this.#credential = credential;
  }

  /** Sends and reads JSON. The caller names the answer's shape, which the service's own schemas hold. */
  async json<T>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await this.ask(method, path, 'application/json', body);
    return JSON.parse(answer.bytes.toString('utf8')) as T;
  }

  /** The bytes of an answer as they came. */
  async bytes(path: string, accept: string): Promise<Buffer> {
    return (await this.ask('GET', path, accept)).bytes;
  }

  /** Throws ServiceProblem for what the service refuses and `unavailable` for what never reached it. */
  async ask(method: string, path: string, accept: string, body?: unknown): Promise<Answer> {
    let answer: Answer;
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      answer = await answerOf(await this.#fetch(method, path, { accept }, signal, body));
    } catch (error) {
      throw this.#unreachable(error);
    }
    if (answer.status >= 400) throw problemOf(answer);
    return answer;
  }

  /**
   * An answer of any length. Throws as `ask`; while it is read, `unavailable` also where nothing comes for a while or
   * the connection breaks.
   */
  async stream(path: string, headers: Readonly<Record<string, string>>): Promise<Stream> {
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(new DOMException('silent', 'TimeoutError')), TIMEOUT_MS);
    try {
      const response = await this.#fetch('GET', path, headers, silence.signal);
      if (response.status >= 400) throw problemOf(await answerOf(response));
      return { status: response.status, parts: this.#parts(response, timer) };
    } catch (error) {
      clearTimeout(timer);
      throw this.#unreachable(error);
    }
  }

  async *#parts(response: Response, silent: NodeJS.Timeout): AsyncGenerator<Uint8Array> {
    try {
      for await (const part of response.body ?? []) {
        silent.refresh();
        yield part as Uint8Array;
      }
    } catch (error) {
      throw this.#unreachable(error);
    } finally {
      clearTimeout(silent);
    }
  }

  async #fetch(
    method: string,
    path: string,
    given: Readonly<Record<string, string>>,
    signal: AbortSignal,
    body?: unknown,
  ): Promise<Response> {
    const headers: Record<string, string> = { ...given };
    if (this.#credential !== undefined) headers.authorization = `Bearer ${this.#credential}`;
    if (body !== undefined) headers['content-type'] = 'application/json';
    return await fetch(this.url + path, {
      method,
      headers,
      // A redirect would carry the credential to whoever it names.
      redirect: 'error',
      signal,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  #unreachable(error: unknown): CliError {
    if (error instanceof CliError) return error;
    const { name, cause } = error as Error;
    const reason =
      name === 'TimeoutError'
        ? `no answer within ${TIMEOUT_MS / 1000} s`
        : ((cause as NodeJS.ErrnoException | undefined)?.code ?? (error as Error).message);
    return unavailable(
      'unreachable',
      `${this.url} cannot be reached (${reason})`,
      'Start it with `belay serve`, or name another with --url or BELAY_URL.',
      error,
    );
  }
}

async function answerOf(response: Response): Promise<Answer> {
  const { status, headers } = response;
  const type = headers.get('content-type')?.split(';')[0] ?? '';
  return { status, type, headers, bytes: await readBounded(response) };
}

async function readBounded(response: Response): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of response.body ?? []) {
    const chunk = part as Uint8Array;
    length += chunk.length;
    if (length > MAX_ANSWER) throw unavailable('too_large', `an answer of more than ${MAX_ANSWER} bytes`);
    parts.push(chunk);
  }
  return Buffer.concat(parts);
}

function problemOf(answer: Answer): ServiceProblem {
  if (answer.type === 'application/problem+json') {
    try {
      const { code, detail, field } = JSON.parse(answer.bytes.toString('utf8')) as Problem;
      const where = field === undefined ? '' : ` (${field})`;
      return new ServiceProblem(answer.status, code, `${detail}${where}`, NEXT[code]);
    } catch {
      // Falls through to what is said of an answer that is none of ours.
    }
  }
  return new ServiceProblem(
    answer.status,
    'not_belay',
    `answered ${answer.status} without saying why`,
    'Is this the address of a Belay service?',
  );
}

export interface ConnectionOptions {
  readonly url?: string;
  readonly json?: boolean;
}

/** The options of every command that talks to the service. */
export function connectionOptions(command: Command): Command {
  return command
    .option(
      '--url <url>',
      `address of the service (BELAY_URL, then the credentials file, then ${DEFAULT_URL})`,
    )
    .option('--json', 'print one JSON document');
}

/** The service a command talks to, with the key given for it; `needed` says where such a key comes from. */
export async function connect(
  config: CliConfig,
  { url }: ConnectionOptions,
  key: string | undefined,
  needed?: { readonly option: string; readonly variable: string; readonly from: string },
): Promise<Service> {
  if (key === undefined && needed !== undefined) {
    throw usage(`needs a key: ${needed.option} KEY, or ${needed.variable} in the environment`, needed.from);
  }
  const named = url ?? config.url;
  const address = named ?? (await readCredentials(config.credentials))?.url ?? DEFAULT_URL;
  return new Service(address, key === undefined ? undefined : await readSecretOption(key));
}
