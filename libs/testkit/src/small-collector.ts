import { verify } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import type { Ack, AckRun } from '@belay/contracts';
import { formatCredential, parseCredential, type AppendCredential } from '@belay/contracts';
import {
  batchMessage,
  batchRoot,
  collectorLine,
  entryBytes,
  EnvelopeError,
  formatCollectorBody,
  keyFingerprint,
  parseEnvelope,
  splitLines,
} from '@belay/envelope';
import { CompactRange, consistencyPlan, decompose, foldNodes, leafHash, type NodeId } from '@belay/merkle';
import {
  ackHeadText,
  ackName,
  ed25519Signer,
  formatCheckpoint,
  parseVkey,
  publicKeyObject,
  signatureLine,
  signNote,
  type NoteSigner,
} from '@belay/note';

/** What to do with the next requests instead of the right thing, or after it. */
export type RequestFault = (
  request: { path: string; headers: IncomingMessage['headers'] },
  response: ServerResponse,
) => 'answered' | 'go on' | 'commit and cut';

interface Logged {
  readonly body: Buffer;
  readonly index: number;
  readonly received: string;
  readonly signed?: string | undefined;
  readonly late?: true | undefined;
}

/**
 * A collector of one log, as small as the formats allow: everything in memory, written from FORMAT.md for these tests,
 * so that what the client verifies was not made by the code that verifies it.
 */
export class SmallCollector {
  readonly origin = 'belay.example/acme/agents';
  readonly token: string;
  readonly vkey: string;
  readonly credential: AppendCredential;
  readonly requests: { headers: IncomingMessage['headers']; lines: number }[] = [];
  entries: Buffer[] = [];
  faults: RequestFault[] = [];
  change: (ack: Ack) => unknown = (ack) => ack;
  sinkKeys = new Map<string, Buffer>();
  maxLines = 1000;
  /** Whether it says of what comes that it came after the close of its epoch. */
  late = false;
  #received = 0;
  /** The published checkpoint, a signed note; none until `publish`. */
  published: string | undefined;
  readonly #signer: NoteSigner;
  #leaves: Buffer[] = [];
  #known = new Map<string, Logged>();
  readonly #ack: NoteSigner;
  readonly #server: Server;

  constructor(seed = Buffer.alloc(32, 0x0b)) {
    const signer = ed25519Signer(this.origin, seed);
    const { vkey } = signer;
    this.#signer = signer;
    this.vkey = vkey;
    this.#ack = ed25519Signer(ackName(this.origin), seed);
    this.token = formatCredential({
      kind: 'append',
      id: 'tok_01k6b3yb80041061050r3gg28a',
      secret: Buffer.alloc(24, 3),
      project: 'prj_01k6b3yb80041061050r3gg28a',
      publicKey: Buffer.from(parseVkey(vkey).key),
      origin: this.origin,
    });
    this.credential = parseCredential(this.token, 'append');
    this.reset();
    this.#server = createServer((request, response) => {
      void this.#serve(request, response);
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  /** The log starts over, with its genesis alone: what a lost database looks like. */
  reset(): void {
    this.entries = [];
    this.#leaves = [];
    this.#known = new Map();
    const body = formatCollectorBody({
      kind: 'policy.set',
      v: 1,
      policy: {},
      by: 'adm_01k6b3yb80041061050r3gg28a',
    });
    this.#store(
      entryBytes(
        collectorLine({
          log: this.origin,
          received: '2026-01-01T00:00:00.000Z',
          role: 'collector',
          index: 0,
        }),
        body,
      ),
    );
  }

  /** Envelopes in the log, in its order. */
  envelopes(): {
    seq: number;
    kind: string;
    sink: string;
    epoch: string;
    attrs?: Record<string, unknown>;
    digest?: string;
  }[] {
    return this.entries
      .slice(1)
      .map((entry) => JSON.parse(entry.toString('utf8').split('\n')[1] as string) as never);
  }

  root(size = this.#leaves.length): Buffer {
    const range = CompactRange.empty();
    for (const leaf of this.#leaves.slice(0, size)) range.append(leaf);
    return range.root();
  }

  /** Publishes a checkpoint of the log as it is, or of its first entries. */
  publish(size = this.#leaves.length): void {
    const text = formatCheckpoint({ origin: this.origin, size: BigInt(size), root: this.root(size) });
    this.published = signNote(text, [this.#signer]);
  }

  #store(entry: Buffer): void {
    this.entries.push(entry);
    this.#leaves.push(leafHash(entry));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method === 'GET') return this.#tell(request, response);
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const fault =
      this.faults.shift()?.({ path: request.url ?? '', headers: request.headers }, response) ?? 'go on';
    if (fault === 'answered') return;
    const raw = Buffer.concat(parts);
    const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(raw) : raw;
    if (request.headers.authorization !== `Bearer ${this.token}`)
      return problem(response, 401, 'unauthenticated');
    if (request.url !== `/v1/projects/${this.credential.project}/events`)
      return problem(response, 404, 'not_found');
    const lines = splitLines(body);
    if (lines.length > this.maxLines) return problem(response, 413, 'too_many_lines');
    const head = request.headers['belay-head'];
    if (head !== undefined && Number(head) > this.#leaves.length) return problem(response, 409, 'head_ahead');
    let ack: Ack | string;
    try {
      ack = this.#append(lines, request.headers, head === undefined ? undefined : Number(head));
    } catch (error) {
      return problem(response, 400, String(error));
    }
    if (typeof ack === 'string') return problem(response, 403, ack);
    this.requests.push({ headers: request.headers, lines: lines.length });
    if (fault === 'commit and cut') {
      request.socket.destroy();
      return;
    }
    const answer = JSON.stringify(this.change(ack));
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
  }

  /** What a sender may read: the published checkpoint, and that one size grew from another. */
  #tell(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost');
    const log = `/v1/logs/${this.origin.slice(this.origin.lastIndexOf('/') + 1)}`;
    if (request.headers.authorization !== `Bearer ${this.token}`)
      return problem(response, 401, 'unauthenticated');
    if (pathname === `${log}/checkpoint`) {
      if (this.published === undefined) return problem(response, 409, 'not_published');
      response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' }).end(this.published);
      return;
    }
    const [from, size] = [Number(searchParams.get('from')), Number(searchParams.get('size'))];
    if (pathname !== `${log}/proof` || size > this.#leaves.length || from > size)
      return problem(response, 404, 'not_found');
    const hashes = this.#consistency(from, size).map((hash) => hash.toString('base64'));
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ log: this.origin, from, size, hashes }));
  }

  #append(lines: Buffer[], headers: IncomingMessage['headers'], from: number | undefined): Ack | string {
    const sink = headers['belay-sink'] as string;
    const refused: Ack['refused'][number][] = [];
    const envelopes = lines.map((line, at) => {
      try {
        return parseEnvelope(line);
      } catch (error) {
        const { code, field, message } = error as EnvelopeError;
        refused.push({ line: at, code, field, message });
        return undefined;
      }
    });
    const key = this.sinkKeys.get(sink);
    if (key !== undefined && !this.#signed(key, lines, envelopes[0] as never, headers))
      return 'signature_invalid';
    const signed = key === undefined ? undefined : keyFingerprint(key);
    this.#received = Math.max(Date.now(), this.#received + 1);
    const received = new Date(this.#received).toISOString();
    const late = this.late ? (true as const) : undefined;
    const placed = envelopes.map((envelope, at) => {
      if (envelope === undefined) return undefined;
      const body = lines[at] as Buffer;
      const place = `${envelope.sink} ${envelope.epoch} ${envelope.seq}`;
      const known = this.#known.get(place);
      if (known?.body.equals(body)) return { ...known, disposition: 'duplicate' as const };
      const index = this.entries.length;
      const conflict = known?.index;
      const fields = {
        log: this.origin,
        received,
        role: 'sink',
        sink,
        token: this.credential.id,
        signed,
        index,
        conflict,
        late,
      } as const;
      this.#store(entryBytes(collectorLine(fields), body));
      if (known === undefined) this.#known.set(place, { body, index, received, signed, late });
      return {
        body,
        index,
        received,
        signed,
        conflict,
        late,
        disposition: conflict === undefined ? ('appended' as const) : ('conflict' as const),
      };
    });
    const runs: AckRun[] = [];
    for (let at = 0; at < placed.length; at++) {
      const first = placed[at];
      if (first === undefined) continue;
      let to = at + 1;
      for (; first.disposition !== 'conflict' && placed[to]?.disposition === first.disposition; to++) {
        if (placed[to]?.index !== first.index + to - at || placed[to]?.received !== first.received) break;
        if (placed[to]?.late !== first.late) break;
      }
      const { disposition, index } = first;
      runs.push({
        disposition,
        lines: [at, to],
        index,
        received: first.received,
        token: this.credential.id,
        role: 'sink',
        ...(first.signed === undefined ? {} : { signed: first.signed }),
        ...(first.late ? { late: true as const } : {}),
        ...('conflict' in first && first.conflict !== undefined ? { conflict: first.conflict } : {}),
        range: this.#around(index, index + to - at),
      });
      at = to - 1;
    }
    const size = this.#leaves.length;
    const root = this.root();
    return {
      log: this.origin,
      size,
      root: root.toString('base64'),
      signature: signatureLine(ackHeadText(this.origin, BigInt(size), root), this.#ack),
      runs,
      refused,
      ...(from === undefined
        ? {}
        : { consistency: this.#consistency(from).map((hash) => hash.toString('base64')) }),
    };
  }

  #signed(
    key: Buffer,
    lines: Buffer[],
    first: { log: string; epoch: string; seq: number },
    headers: IncomingMessage['headers'],
  ): boolean {
    const signature = Buffer.from((headers['belay-signature'] as string | undefined) ?? '', 'base64');
    const message = batchMessage({
      log: first.log,
      sink: headers['belay-sink'] as string,
      epoch: first.epoch,
      firstSeq: first.seq,
      count: lines.length,
      root: batchRoot(lines),
    });
    return verify(null, message, publicKeyObject(key), signature);
  }

  #node({ level, index }: NodeId): Buffer {
    const width = 2 ** level;
    const range = CompactRange.empty();
    for (const leaf of this.#leaves.slice(Number(index) * width, (Number(index) + 1) * width))
      range.append(leaf);
    return range.root();
  }

  #around(from: number, to: number): AckRun['range'] {
    const hashes = (begin: number, end: number): string[] =>
      decompose(BigInt(begin), BigInt(end)).map((id) => this.#node(id).toString('base64'));
    return { left: hashes(0, from), right: hashes(to, this.#leaves.length) };
  }

  #consistency(from: number, size = this.#leaves.length): Buffer[] {
    if (from === 0 || from === size) return [];
    return consistencyPlan(BigInt(from), BigInt(size)).map((ids) =>
      foldNodes(ids.map((id) => this.#node(id))),
    );
  }
}

/** Answers with problem details of this code. */
export function problem(
  response: ServerResponse,
  status: number,
  code: string,
  headers: Record<string, string> = {},
): void {
  response
    .writeHead(status, { 'content-type': 'application/problem+json', ...headers })
    .end(JSON.stringify({ type: `urn:belay:problem:${code}`, title: code, status, code, detail: code }));
}
