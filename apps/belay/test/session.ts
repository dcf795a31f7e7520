import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { readTrace, recordData, TraceWriter, type RecordBody, type TraceRecord } from '@belay/trace';
import { DigestCache, digestsPath } from '../src/provenance.js';
import type { Verification } from '../src/verification.js';
import { belay } from './command.js';
import { node, program, start, type Started, tracesIn } from './proxied.js';

/** Set wherever a session is recorded or verified, so that the two worlds are one. */
export const HOME = realpathSync(mkdtempSync(join(tmpdir(), 'belay-home-')));

/**
 * A proxy waits for the digest of what it ran only so long when the session is over, and a busy machine takes longer to
 * read all of Node: here it is known before.
 */
async function knowDigest(executable: string, state: string): Promise<void> {
  const known = digestsPath(join(HOME, 'known'));
  const digests = new DigestCache(known);
  if (digests.now(executable) === undefined) await digests.later(executable, new AbortController().signal);
  if (!existsSync(known)) return;
  mkdirSync(dirname(digestsPath(state)), { recursive: true, mode: 0o700 });
  copyFileSync(known, digestsPath(state));
}

type Message = Readonly<Record<string, unknown>>;
/** What a server asks its client, and what the client says to that. */
type Asked = (method: string, params: Message) => object;

/** A client that talks to the workshop, or another server, through `belay proxy`. */
export class RecordedSession {
  readonly folder: string;
  readonly workspace: string;
  readonly #proxy: Started;
  readonly #waiting = new Map<unknown, (message: Message) => void>();
  #id = 0;

  private constructor(folder: string, workspace: string, proxy: Started, asked: Asked) {
    this.folder = folder;
    this.workspace = workspace;
    this.#proxy = proxy;
    createInterface({ input: proxy.child.stdout }).on('line', (line) => {
      const message = JSON.parse(line) as Message | readonly Message[];
      for (const each of Array.isArray(message) ? (message as Message[]) : [message as Message]) {
        const { id, method, params } = each;
        if (method === undefined) this.#waiting.get(id)?.(each);
        else if (id !== undefined)
          this.send({ jsonrpc: '2.0', id, result: asked(method as string, params as Message) });
      }
    });
  }

  /** Starts the server, shakes hands and lists its tools, all pages. `prepare` fills the workspace first. */
  static async start(
    prepare: (workspace: string) => void = () => undefined,
    options: {
      readonly proxy?: readonly string[];
      readonly server?: (workspace: string) => readonly string[];
      readonly env?: Record<string, string>;
      readonly asked?: Asked;
    } = {},
  ): Promise<RecordedSession> {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), 'belay-session-')));
    const workspace = join(folder, 'work');
    mkdirSync(workspace);
    prepare(workspace);
    const server = options.server?.(workspace) ?? [node, program('workshop'), workspace];
    await knowDigest(server[0] as string, join(folder, 'state'));
    const proxy = start(
      [
        'proxy',
        '--state',
        join(folder, 'state'),
        '--workspace',
        workspace,
        '--hold-limit',
        '30000',
        ...(options.proxy ?? ['--sandbox', 'default']),
        '--',
        ...server,
      ],
      { HOME, ...options.env },
    );
    const session = new RecordedSession(folder, workspace, proxy, options.asked ?? (() => ({})));
    const clientInfo = { name: 'test', version: '1' };
    await session.request('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo });
    session.send({ jsonrpc: '2.0', method: 'notifications/initialized' });
    for (let cursor: unknown; ;) {
      const { result } = await session.request('tools/list', cursor === undefined ? {} : { cursor });
      cursor = (result as { nextCursor?: unknown } | undefined)?.nextCursor;
      if (cursor === undefined) break;
    }
    return session;
  }

  send(message: object): void {
    this.#proxy.child.stdin.write(`${JSON.stringify(message)}\n`);
  }

  request(method: string, params: object): Promise<Message> {
    const id = ++this.#id;
    return this.#expect(id, () => this.send({ jsonrpc: '2.0', id, method, params }));
  }

  /** The text of the answer. */
  async call(name: string, args: object = {}): Promise<string> {
    return textOf(await this.request('tools/call', { name, arguments: args }));
  }

  /** Calls in one frame, as a batch. */
  async batch(...calls: readonly (readonly [name: string, args: object])[]): Promise<string[]> {
    const messages = calls.map(([name, args]) => {
      const params = { name, arguments: args };
      return { jsonrpc: '2.0', id: ++this.#id, method: 'tools/call', params };
    });
    const answers = messages.map(({ id }) => this.#expect(id, () => undefined));
    this.send(messages);
    return (await Promise.all(answers)).map(textOf);
  }

  /** Makes a call and gives it up. */
  cancelled(name: string, args: object = {}): void {
    const id = ++this.#id;
    this.send({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });
    this.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } });
  }

  /** Ends the session; gives its trace. */
  async end(): Promise<string> {
    this.#proxy.child.stdin.end();
    await this.#proxy.ended;
    const [trace, ...more] = tracesIn(join(this.folder, 'state', 'traces'));
    if (trace === undefined || more.length > 0) throw new Error(`no trace: ${this.#proxy.stderr()}`);
    return trace;
  }

  #expect(id: number, ask: () => void): Promise<Message> {
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, resolve);
      void this.#proxy.ended.then(() => reject(new Error(`the proxy ended: ${this.#proxy.stderr()}`)));
      ask();
    });
  }
}

const textOf = ({ result, error }: Message): string =>
  (result as { content?: [{ text: string }] } | undefined)?.content?.[0].text ?? JSON.stringify(error);

/** Does what a command does in the environment that sessions are recorded in. */
export async function atHome<T>(work: () => Promise<T>): Promise<T> {
  const before = { ...process.env };
  for (const name of Object.keys(process.env))
    if (name !== 'PATH' && name !== 'TMPDIR') delete process.env[name];
  process.env['HOME'] = HOME;
  try {
    return await work();
  } finally {
    Object.assign(process.env, before);
  }
}

/** `belay verify` of a recorded session. */
export function verified(trace: string, ...args: readonly string[]): Promise<Verification> {
  const state = join(trace, '..', '..');
  return atHome(async () => {
    const { json, stderr } = await belay('verify', '--json', '--state', state, trace, ...args);
    if (json === undefined) throw new Error(stderr);
    return json as Verification;
  });
}

/** One word a part: `PASS`, or status and cause. */
export const words = ({ parts }: Verification): string[] =>
  parts.map(({ type, verdict: { status, cause } }) => {
    const word = cause === undefined ? status : `${status} ${cause}`;
    return type === 'turn' ? word : `${type}: ${word}`;
  });

/** A record without what a chain adds to it. */
export type Loose = Omit<TraceRecord, 'n' | 'time' | 'at' | 'prev' | 'data'> & { data?: Buffer | undefined };

/** The trace as somebody else would have written it: records changed, left out or added, and the chain made anew. */
export async function forged(trace: string, change: (records: Loose[]) => readonly Loose[]): Promise<string> {
  const records: { readonly record: TraceRecord; readonly loose: Loose }[] = [];
  for await (const line of readTrace(trace)) {
    if (!('record' in line)) throw new Error('a line that is no record');
    const {
      n: _n,
      time: _time,
      at: _at,
      prev: _prev,
      ...rest
    } = line.record as TraceRecord & { prev: string };
    records.push({ record: line.record, loose: { ...rest, data: recordData(line.record) } as Loose });
  }
  const times = new Map(records.map(({ record, loose }) => [loose, record]));
  const path = trace.replace(/\.jsonl$/, '-forged.jsonl');
  let clock = records[0]?.record as TraceRecord;
  const [open, ...others] = change(records.map(({ loose }) => loose));
  const { data: _none, ...first } = open as Loose;
  const writer = TraceWriter.create(path, first as RecordBody & { type: 'open' }, {
    wall: () => clock.time,
    monotonic: () => clock.at,
  });
  for (const loose of others) {
    clock = times.get(loose) ?? clock;
    if (loose.type === 'close') {
      writer.close({
        exit: 0,
        executable: (loose as { executable?: { path: string; sha256: string } }).executable,
      });
      continue;
    }
    const { data, ...body } = loose;
    const sha256 =
      data === undefined
        ? {}
        : { size: data.length, sha256: createHash('sha256').update(data).digest('hex') };
    writer.append({ ...body, ...sha256 } as Exclude<RecordBody, { type: 'close' }>, data);
  }
  return path;
}

/** The same with the text of every frame put through `edit`. */
export const reworded = (trace: string, edit: (text: string, dir: string) => string): Promise<string> =>
  forged(trace, (records) =>
    records.map((record) => {
      if (record.type !== 'frame' || record.data === undefined) return record;
      const text = record.data.toString();
      const edited = edit(text, (record as unknown as { dir: string }).dir);
      if (edited !== text) record.data = Buffer.from(edited);
      return record;
    }),
  );
