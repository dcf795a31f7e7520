import { Controller, Get, Inject, Param, Query, Req, Res } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import {
  type ConsistencyProofReply,
  consistencyProof,
  type InclusionProofReply,
  inclusionProof,
  type LogKeys,
  logKeys,
} from '@belay/contracts/http';
import type { LogRow, Reader } from '@belay/db';
import {
  consistencyPlan,
  decompose,
  EMPTY_ROOT,
  entryBundle,
  foldNodes,
  inclusionPlan,
  MerkleError,
  parseTilePath,
  TILE_WIDTH,
} from '@belay/merkle';
import { ackName, formatVkey } from '@belay/note';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Caller } from './access.js';
import { Allow, Who } from './guard.js';
import { parseIndex } from './page.js';
import type { Places } from './places.js';
import { notFound, ProblemError } from './problem.js';
import { Describe } from './schema.js';
import { PLACES, READER } from './tokens.js';

const params = { log: 'Log, `log_...`' };
/** C2SP: a checkpoint is kept for seconds at most. */
const FRESH = 'no-cache';
const IMMUTABLE = 'max-age=31536000, immutable';

/** What any reader of transparency logs needs: checkpoint, tiles, proofs, keys (C2SP tlog-tiles below `/v1/logs/{log}`). */
@ApiTags('logs')
@Controller('v1/logs/:log')
export class LogsController {
  readonly #reader: Reader;
  readonly #places: Places;

  constructor(@Inject(READER) reader: Reader, @Inject(PLACES) places: Places) {
    this.#reader = reader;
    this.#places = places;
  }

  @Get('checkpoint')
  @Allow('auditor', 'append', 'anyone')
  @Describe({ summary: 'The latest published checkpoint', params, answer: ['text/plain'] })
  async checkpoint(
    @Who() caller: Caller,
    @Param('log') id: string,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<string> {
    const log = await this.#places.logFor(caller, id);
    const checkpoint = await this.#reader.latestCheckpoint(log);
    if (!checkpoint) throw notPublished();
    headers(reply, log, FRESH);
    void reply.type('text/plain; charset=utf-8');
    return checkpoint.note;
  }

  @Get('tile/*')
  @Allow('auditor', 'anyone')
  @Describe({
    summary: 'A tile of hashes, `tile/L/N[.p/W]`, or a bundle of entries, `tile/entries/N[.p/W]`',
    params: { ...params, path: '`L/N[.p/W]` or `entries/N[.p/W]`' },
    answer: ['application/octet-stream'],
  })
  async tile(
    @Who() caller: Caller,
    @Param('log') id: string,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<Buffer> {
    const log = await this.#places.logFor(caller, id);
    const bytes = await this.#tile(log, (request.params as Record<string, string>)['*'] ?? '');
    if (!bytes) throw notFound();
    headers(reply, log, IMMUTABLE);
    void reply.type('application/octet-stream');
    return bytes;
  }

  async #tile(log: LogRow, path: string): Promise<Buffer | undefined> {
    let tile: ReturnType<typeof parseTilePath>;
    try {
      tile = parseTilePath(`tile/${path}`);
    } catch (error) {
      if (error instanceof MerkleError) return undefined;
      throw error;
    }
    const { kind, level, width } = tile;
    const n = Number(tile.n);
    // Far beyond any log of ours; further on, numbers would no longer be exact.
    if (level > 6 || !Number.isSafeInteger((n + 1) * TILE_WIDTH ** (level + 1))) return undefined;
    if (kind === 'tile') return this.#reader.tile(log, level, n, width);
    const from = n * TILE_WIDTH;
    const entries = await this.#reader.entries(log, { from, to: from + width });
    return entries.length === width ? entryBundle(entries) : undefined;
  }

  @Get('proof')
  @Allow('auditor', 'append', 'anyone')
  @Describe({
    summary: 'Inclusion of an entry (`index`) or consistency of two sizes (`from`); hashes from leaf to root',
    params,
    query: {
      index: 'Index of the entry',
      from: 'The smaller size',
      size: 'Size of the tree; default: the latest published one',
    },
    answer: z.union([inclusionProof, consistencyProof]),
  })
  async proof(
    @Who() caller: Caller,
    @Param('log') id: string,
    @Query() query: Readonly<Record<string, string | undefined>>,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<InclusionProofReply | ConsistencyProofReply> {
    const log = await this.#places.logFor(caller, id);
    const { index, from } = query;
    if ((index === undefined) === (from === undefined)) {
      throw new ProblemError('invalid', 'A proof is asked for by either index=N or from=SIZE.', {
        field: 'index',
      });
    }
    // Two sizes tell a sender nothing that its acks did not; leaves of others would.
    if (index !== undefined && caller?.kind === 'append' && !log.public) {
      throw new ProblemError('forbidden', 'An append token may ask for consistency, not for entries.');
    }
    const size = await this.#size(log, query['size']);
    headers(reply, log, query['size'] === undefined ? FRESH : IMMUTABLE);
    const root = encode(await this.#root(log, size));
    if (index !== undefined) {
      const at = parseIndex(index, 'index');
      if (at >= size) throw notFound();
      const [leaf] = await this.#reader.nodes(log, [{ level: 0, index: BigInt(at) }]);
      const hashes = await this.#reader.proof(log, inclusionPlan(BigInt(at), BigInt(size)));
      return { log: log.origin, index: at, size, leaf: encode(leaf), root, hashes: hashes.map(encode) };
    }
    const start = parseIndex(from ?? '', 'from');
    if (start > size) throw new ProblemError('invalid', 'from is not above size', { field: 'from' });
    const hashes = await this.#reader.proof(log, consistencyPlan(BigInt(start), BigInt(size)));
    const fromRoot = encode(await this.#root(log, start));
    return { log: log.origin, from: start, size, fromRoot, root, hashes: hashes.map(encode) };
  }

  async #size(log: LogRow, asked: string | undefined): Promise<number> {
    if (asked === undefined) {
      const checkpoint = await this.#reader.latestCheckpoint(log);
      if (!checkpoint) throw notPublished();
      return checkpoint.size;
    }
    const size = parseIndex(asked, 'size');
    const head = await this.#reader.head(log);
    if (!head || size > head.size) throw notFound();
    return size;
  }

  async #root(log: LogRow, size: number): Promise<Buffer> {
    if (size === 0) return EMPTY_ROOT;
    return foldNodes(await this.#reader.nodes(log, decompose(0n, BigInt(size))));
  }

  @Get('keys')
  @Allow('auditor', 'append', 'anyone')
  @Describe({ summary: 'The keys of the log and their certificates', params, answer: logKeys })
  async keys(
    @Who() caller: Caller,
    @Param('log') id: string,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<LogKeys> {
    const log = await this.#places.logFor(caller, id);
    headers(reply, log, FRESH);
    return {
      log: log.id,
      origin: log.origin,
      vkey: formatVkey(log.origin, log.publicKey),
      ackVkey: formatVkey(ackName(log.origin), log.publicKey),
      x5c: log.x5c.map((certificate) => certificate.toString('base64')),
    };
  }
}

function headers(reply: FastifyReply, log: LogRow, caching: string): void {
  void reply.header('cache-control', `${log.public ? 'public' : 'private'}, ${caching}`);
  if (!log.public) void reply.header('vary', 'authorization');
}

function encode(hash: Buffer | undefined): string {
  if (!hash) throw new Error('a hash is missing');
  return hash.toString('base64');
}

function notPublished(): ProblemError {
  return new ProblemError('not_published', 'No checkpoint of this log is published yet.', { retryAfter: 1 });
}
