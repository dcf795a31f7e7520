import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { readTrace, recordData, TraceWriter, type TraceRecord } from '@belay/trace';
import { HttpProxy } from '../src/http-proxy.js';
import { HttpRecorder } from '../src/http-recorder.js';
import { Recorder } from '../src/recorder.js';
import { freshFolder } from './proxied.js';

/** Something that has to be ended with the test that began it. */
const ends: (() => Promise<unknown> | void)[] = [];
export const later = (end: () => Promise<unknown> | void): void => void ends.push(end);
export async function endAll(): Promise<void> {
  for (const end of ends.splice(0).reverse()) await end();
}

/** A TCP server; its connections are destroyed at the end of the test. Returns its port. */
export async function listen(onConnection: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    onConnection(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  later(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  return (server.address() as AddressInfo).port;
}

/** A server that sends exact bytes: `act` is called with each request's bytes so far, whenever more of it came. */
export async function byteServer(act: (seen: Buffer, socket: Socket) => void): Promise<number> {
  return await listen((socket) => {
    let seen = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => {
      seen = Buffer.concat([seen, chunk]);
      act(seen, socket);
    });
  });
}

/** Whether bytes are a whole request: its head, and as much body as it announces. */
export function isWhole(seen: Buffer): boolean {
  const text = seen.toString('latin1');
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const length = /\r\ncontent-length: *(\d+)/i.exec(text.slice(0, end))?.[1];
  if (/\r\ntransfer-encoding: *chunked/i.test(text.slice(0, end))) return text.endsWith('0\r\n\r\n');
  return seen.length >= end + 4 + Number(length ?? 0);
}

/** A server that answers every request with the same bytes and closes. */
export const answering = (answer: string | Buffer, seen: Buffer[] = []): Promise<number> =>
  byteServer((bytes, socket) => {
    if (!isWhole(bytes)) return;
    seen.push(bytes);
    socket.end(answer);
  });

export interface Proxied {
  readonly port: number;
  readonly url: string;
  readonly proxy: HttpProxy;
  /** Closes the proxy and reads the trace. */
  readonly records: () => Promise<TraceRecord[]>;
  readonly folder: string;
}

export async function proxyTo(
  upstream: string | URL,
  options: { hosts?: string[]; origins?: string[]; listen?: string } = {},
): Promise<Proxied> {
  const folder = freshFolder();
  const trace = TraceWriter.create(
    join(folder, 'trace.jsonl'),
    { type: 'open', v: 1, epoch: '0', sink: 'proxy', session: 's', recorder: 'test' },
    { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 },
  );
  const secret = Buffer.alloc(32, 7);
  const parts = {
    trace,
    epoch: undefined,
    machineSecret: secret,
    session: 's',
    privacy: 'minimal' as const,
    onAppended: () => undefined,
    now: () => performance.now(),
  };
  const recorder = new Recorder(parts);
  const endpoint = new URL(upstream);
  const proxy = new HttpProxy({
    upstream: endpoint,
    hosts: options.hosts ?? [],
    origins: options.origins ?? [],
  });
  const { port } = await proxy.listen(options.listen ?? '127.0.0.1', 0);
  proxy.record(new HttpRecorder({ recorder, secret, endpoint }));
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> =>
    (closed ??= proxy.close(200).then(() => {
      recorder.close({});
    }));
  later(close);
  return {
    port,
    url: `http://127.0.0.1:${port}${endpoint.pathname}`,
    proxy,
    folder,
    records: async () => {
      await close();
      const records: TraceRecord[] = [];
      for await (const line of readTrace(join(folder, 'trace.jsonl'))) {
        if ('record' in line) records.push(line.record);
      }
      return records;
    },
  };
}

/** Sends exact bytes and returns all that comes back until the other side closes. */
export async function exchangeBytes(port: number, ...pieces: (string | Buffer)[]): Promise<Buffer> {
  const socket = connect(port, '127.0.0.1');
  const parts: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => parts.push(chunk));
  socket.on('error', () => undefined);
  for (const piece of pieces) socket.write(piece);
  await once(socket, 'close');
  return Buffer.concat(parts);
}

type Of<T extends TraceRecord['type']> = Extract<TraceRecord, { readonly type: T }>;
export const ofType = <T extends TraceRecord['type']>(records: readonly TraceRecord[], type: T): Of<T>[] =>
  records.filter((record): record is Of<T> => record.type === type);

/** Frames as `c2s TEXT` or `s2c TEXT`. */
export const frameTexts = (records: readonly TraceRecord[]): string[] =>
  ofType(records, 'frame').map((frame) => `${frame.dir} ${recordData(frame)?.toString() ?? '(oversize)'}`);

/** All bytes of all files under a folder. */
export const contentOf = (folder: string): string =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'latin1'))
    .join('\n');

export const post = (path: string, body: string | Buffer, headers = ''): Buffer =>
  Buffer.concat([
    Buffer.from(
      `POST ${path} HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nConnection: close\r\n` +
        `${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n`,
      'latin1',
    ),
    Buffer.from(body),
  ]);
