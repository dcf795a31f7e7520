/** `belay proxy --http URL`: an MCP server that runs elsewhere, on record. */

import { compileEarly } from './compile-early.js';
import { readConfig } from './config.js';
import { badInput, CliError, EXIT, usage } from './exit.js';
import { recordedTarget } from './http-headers.js';
import { HttpProxy } from './http-proxy.js';
import { HttpRecorder } from './http-recorder.js';
import { writeOut } from './output.js';
import { Recording } from './recording.js';
import { StandardError } from './relay.js';
import type { Privacy } from './settings.js';

/** How long answers may go on after we were told to stop. Milliseconds. */
const GRACE = 1_000;

export interface HttpRunOptions {
  readonly sink: string;
  readonly trace?: string;
  readonly state?: string;
  readonly privacy?: Privacy;
  readonly workspace?: string[];
  readonly flushTimeout: number;
  /** `HOST:PORT`. */
  readonly listen: string;
  readonly allowHost?: string[];
  readonly allowOrigin?: string[];
  readonly json?: boolean;
}

export async function runHttpProxy(url: string, options: HttpRunOptions): Promise<void> {
  compileEarly();
  const upstream = upstreamUrl(url);
  const { host, port } = listenAddress(options.listen);
  const stderr = new StandardError();
  const say = (message: string): void => stderr.write(Buffer.from(`belay: ${message}\n`));

  const stop = new AbortController();
  let stopping = false;
  const told = new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      // The second signal wants us gone now: nothing is waited for any more.
      process.on(signal, () => (stopping ? stop.abort() : resolve()));
    }
  });
  // Before anything is opened: a port that is taken leaves neither an epoch nor a trace behind.
  const proxy = new HttpProxy({
    upstream,
    hosts: options.allowHost ?? [],
    origins: options.allowOrigin ?? [],
  });
  const bound = await listening(proxy, host, port, options.listen);
  const config = readConfig();
  const recording = await Recording.open({
    ...options,
    config,
    warn: say,
    opening: (secret) => ({
      upstream: `${upstream.origin}${recordedTarget(`${upstream.pathname}${upstream.search}`, secret)}`,
      ...(options.workspace === undefined ? {} : { workspace: options.workspace }),
    }),
  });
  if ((options.workspace ?? config.sandboxScope) !== undefined) {
    say('with --http there are no states of a workspace, and no boundary: the server runs elsewhere');
  }
  const { recorder, secret } = recording;
  proxy.record(new HttpRecorder({ recorder, secret, endpoint: upstream }));
  const authority = `${host.includes(':') ? `[${host}]` : host}:${bound}`;
  const address = `http://${authority}${upstream.pathname}${upstream.search}`;
  say(`proxy listening on ${address}`);
  if (options.json === true) await writeOut(`${JSON.stringify({ url: address, upstream: url })}\n`);
  await told;
  stopping = true;
  await proxy.close(GRACE);
  await recording.finish({}, options.flushTimeout * 1000, stop.signal);
  await stderr.drained(1_000);
}

async function listening(proxy: HttpProxy, host: string, port: number, said: string): Promise<number> {
  try {
    return (await proxy.listen(host, port)).port;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    throw new CliError(EXIT.unavailable, 'cannot_listen', `cannot listen on ${said}: ${message}`);
  }
}

function upstreamUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw badInput('not_a_url', `${text} is not an http or https URL`);
  }
  if (url.username !== '' || url.password !== '') {
    throw usage(
      'credentials do not belong into the URL',
      'The client sends them, and they pass through the proxy; --http takes the address alone.',
    );
  }
  url.hash = '';
  return url;
}

function listenAddress(text: string): { host: string; port: number } {
  const [, host, port] = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+):(\d{1,5})$/.exec(text) ?? [];
  if (host === undefined || Number(port) > 65_535)
    throw usage(`--listen ${text}: HOST:PORT, for example 127.0.0.1:0`);
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) };
}
