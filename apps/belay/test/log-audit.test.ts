import { collectorLine, entryBytes, formatCollectorBody } from '@belay/envelope';
import {
  CompactRange,
  entriesPath,
  entryBundle,
  type Hash,
  hashTile,
  leafHash,
  parseTilePath,
  tilePath,
} from '@belay/merkle';
import { ed25519Signer, ed25519Verifier, formatCheckpoint, signNote } from '@belay/note';
import { describe, expect, it } from 'vitest';
import { type Audit, auditLog, type LogReader } from '../src/log-audit.js';

const ORIGIN = 'log.example/t/acme';
const SEED = Buffer.alloc(32, 1);
const signer = ed25519Signer(ORIGIN, SEED);
const verifier = ed25519Verifier(signer.vkey);

function entry(index: number, change: { log?: string; received?: string; says?: number } = {}): Buffer {
  const log = change.log ?? ORIGIN;
  const received = change.received ?? new Date(1_767_225_600_000 + index * 1_000).toISOString();
  const body = Buffer.from(
    JSON.stringify({
      v: 1,
      log,
      sink: 's',
      epoch: '01JD0000000000000000000000',
      seq: index + 1,
      kind: 'call',
      time: received,
    }),
  );
  const line = collectorLine({
    log,
    received,
    role: 'sink',
    token: 'tok_01jd0000000000000000000000',
    sink: 's',
    index: change.says ?? index,
  });
  return entryBytes(line, body);
}

function noteOf(entries: readonly Buffer[], key = signer): Buffer {
  const range = CompactRange.empty();
  for (const each of entries) range.append(leafHash(each));
  const text = formatCheckpoint({ origin: ORIGIN, size: BigInt(entries.length), root: range.root() });
  return Buffer.from(signNote(text, [key]));
}

/** A log served from its entries by the plainest means: every tile is hashed from the leaves when asked for. */
class Served implements LogReader {
  readonly #entries: readonly Buffer[];
  readonly #note: Buffer;
  readonly replaced = new Map<string, Buffer>();

  constructor(entries: readonly Buffer[], note = noteOf(entries)) {
    this.#entries = entries;
    this.#note = note;
  }

  checkpoint(): Promise<Buffer> {
    return Promise.resolve(this.#note);
  }

  file(path: string): Promise<Buffer> {
    const replaced = this.replaced.get(path);
    if (replaced) return Promise.resolve(replaced);
    const { kind, level, n, width } = parseTilePath(path);
    const first = Number(n) * 256;
    if (kind === 'entries') {
      const entries = this.#entries.slice(first, first + width);
      return Promise.resolve(entryBundle(entries));
    }
    const hashes = Array.from({ length: width }, (_, i) => this.#node(level, first + i));
    return Promise.resolve(Buffer.concat(hashes));
  }

  #node(level: number, index: number): Hash {
    if (level === 0) return leafHash(this.#entries[index] as Buffer);
    const below = Array.from({ length: 256 }, (_, i) => this.#node(level - 1, index * 256 + i));
    return hashTile(Buffer.concat(below), 0, 256);
  }
}

const entriesOf = (size: number): Buffer[] => Array.from({ length: size }, (_, i) => entry(i));
const audit = (log: LogReader, kept?: Buffer): Promise<Audit> =>
  auditLog(log, verifier, kept, () => undefined);
const failed = (result: Audit): string[] =>
  result.checks.filter(({ status }) => status !== 'ok').map(({ name }) => name);

describe('a log as it should be', () => {
  it.each([0, 1, 2, 255, 256, 257, 511, 512, 700])('of %i entries is valid', async (size) => {
    const result = await audit(new Served(entriesOf(size)));
    expect(failed(result)).toEqual([]);
    expect(result).toMatchObject({ verdict: 'VALID', size, origin: ORIGIN });
  });

  it.each([0, 1, 255, 256, 300, 600])('still contains its own checkpoint of %i entries', async (size) => {
    const entries = entriesOf(600);
    const result = await audit(new Served(entries), noteOf(entries.slice(0, size)));
    expect(result.checks.at(-1)).toMatchObject({ name: 'consistency', status: 'ok' });
    expect(result.verdict).toBe('VALID');
  });
});

describe('what was done to it is named', () => {
  const entries = entriesOf(600);

  it('an entry changed after it was signed', async () => {
    const changed = entries.with(300, entry(300, { received: '2026-01-01T00:05:00.001Z' }));
    expect(failed(await audit(new Served(changed, noteOf(entries))))).toEqual(['root']);
  });

  it('an entry changed, and its tiles left as they were', async () => {
    const served = new Served(entries);
    const changed = entries.slice(256, 512).with(44, entry(300, { received: '2026-01-01T00:05:00.001Z' }));
    served.replaced.set(entriesPath(1n), entryBundle(changed));
    expect(failed(await audit(served))).toEqual(['tiles', 'root']);
  });

  it.each([
    [tilePath(0, 0n), 8_192],
    [tilePath(0, 2n, 88), 2_816],
    [tilePath(1, 0n, 2), 64],
  ])('a wrong tile %s', async (path, bytes) => {
    const served = new Served(entries);
    served.replaced.set(path, Buffer.alloc(bytes));
    const result = await audit(served);
    expect(failed(result)).toEqual(['tiles']);
    expect(result.checks.find(({ name }) => name === 'tiles')?.detail).toContain(path);
  });

  it('a past that was rewritten, signed again and served whole', async () => {
    const rewritten = entries.with(10, entry(10, { received: '2026-01-01T00:00:10.001Z' }));
    const result = await audit(new Served(rewritten), noteOf(entries.slice(0, 300)));
    expect(failed(result)).toEqual(['consistency']);
    expect(result.checks.at(-1)?.detail).toContain('the past was changed');
  });

  it('a tail cut off', async () => {
    const result = await audit(new Served(entries.slice(0, 500)), noteOf(entries));
    expect(failed(result)).toEqual(['consistency']);
    expect(result.checks.at(-1)?.detail).toContain('entries were removed');
  });

  it('a number that is not its place', async () => {
    const wrong = entries.with(5, entry(5, { says: 6 }));
    expect(failed(await audit(new Served(wrong)))).toEqual(['entries']);
  });

  it('an entry of another log', async () => {
    const wrong = entries.with(5, entry(5, { log: 'log.example/t/other' }));
    expect(failed(await audit(new Served(wrong)))).toEqual(['entries']);
  });

  it('time running backwards', async () => {
    const wrong = entries.with(5, entry(5, { received: '2025-01-01T00:00:00.000Z' }));
    expect(failed(await audit(new Served(wrong)))).toEqual(['entries']);
  });

  it('something that is no entry', async () => {
    expect(failed(await audit(new Served([...entries, Buffer.from('x')])))).toEqual(['entries']);
  });

  it('a bundle cut short', async () => {
    const served = new Served(entries);
    served.replaced.set(entriesPath(0n), entryBundle(entries.slice(0, 255)));
    expect(failed(await audit(served))).toEqual(['entries', 'root']);
  });

  it('a checkpoint signed by another key', async () => {
    const other = ed25519Signer(ORIGIN, Buffer.alloc(32, 2));
    expect(failed(await audit(new Served(entries, noteOf(entries, other))))).toEqual(['checkpoint']);
  });
});

it('a statement of the collector is an entry too', async () => {
  const body = formatCollectorBody({
    kind: 'token.revoked',
    v: 1,
    by: 'adm_01jd0000000000000000000000',
    token: 'tok_01jd0000000000000000000000',
  });
  const line = collectorLine({
    log: ORIGIN,
    received: '2026-01-01T00:00:00.000Z',
    role: 'collector',
    index: 0,
  });
  expect((await audit(new Served([entryBytes(line, Buffer.from(body))]))).verdict).toBe('VALID');
});
