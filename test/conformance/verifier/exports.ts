import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { finished } from 'node:stream/promises';
import { crc32 } from 'node:zlib';
import { formatStatement, LogCoverage } from '@belay/coverage';
import { canonical, type CollectorBody, type LogGenesis } from '@belay/envelope';
import {
  buildExport,
  type ExportManifest,
  type ExportRequest,
  type ExportSource,
  formatManifest,
  parseManifest,
} from '@belay/export';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import { createIssuer, createRoot, issueLogCertificate } from '@belay/keys/x509';
import { CompactRange, leafHash } from '@belay/merkle';
import { formatCheckpoint, signNote } from '@belay/note';
import {
  derivePeriod,
  deriveSession,
  parseAnyReceipt,
  periodEvidence,
  periodReceiptPayload,
  type PeriodSession,
  type PublishedHead,
  type SessionReceipt,
  sessionReceiptPayload,
  signPayload,
  Standing,
} from '@belay/receipt';
import type { SessionLog } from '@belay/testkit';
import { ExportLog } from '@belay/testkit/export';
import { Course, type Script } from './histories.js';

const ORIGIN = 'belay.example/acme/agents';
const { signer, x5c: X5C, log: BEGUN } = await ExportLog.create();
export const KEY = signer.vkey;
const GENESIS = (BEGUN.entries[0] as { readonly statement: LogGenesis }).statement;
const PROJECT = { id: GENESIS.project, name: GENESIS.name };
const LOG = { origin: ORIGIN, vkey: KEY, x5c: X5C };

export const sha256 = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** JSON of which a test knows what is in it. */
export type Loose = Record<string, never>;

/** What a log does to what it states and signs; nothing, when it is honest. */
export interface Lies {
  /** Of a receipt's payload. */
  readonly receipt?: (statement: Loose) => void;
  /** Of a `coverage.stated`. */
  readonly statement?: (body: Loose) => void;
  /** Of a `receipt.issued`. */
  readonly issued?: (body: Loose) => void;
}

function lied(body: CollectorBody, lie?: (body: Loose) => void): CollectorBody {
  const copy = JSON.parse(JSON.stringify(body)) as Loose;
  lie?.(copy);
  return copy as unknown as CollectorBody;
}

/** A log with the statements, receipts and heads that a service would have made, and some that one would not. */
export class Account {
  readonly course: Course;
  readonly receipts: Buffer[] = [];
  readonly #last = new Map<string, string>();
  readonly #opened = new Map<string, SessionReceipt>();

  constructor(policy: unknown) {
    this.course = new Course(policy, (log) => {
      log.state(GENESIS);
    });
  }

  get log(): SessionLog {
    return this.course.log;
  }

  root(size: number = this.log.bytes.length): Buffer {
    const range = CompactRange.empty();
    for (const bytes of this.log.bytes.slice(0, size)) range.append(leafHash(bytes));
    return range.root();
  }

  head(): PublishedHead {
    const size = this.log.bytes.length;
    const text = formatCheckpoint({ origin: ORIGIN, size: BigInt(size), root: this.root() });
    return { size, checkpoint: signNote(text, [signer]), time: new Date(this.log.now + 500).toISOString() };
  }

  #taken(): { coverage: LogCoverage; standing: Standing } {
    const coverage = new LogCoverage({ log: ORIGIN });
    for (const entry of this.log.entries) coverage.apply(entry);
    return { coverage, standing: new Standing(this.log.entries) };
  }

  /** A statement on every session and the first epochs, after `between` a head over them, and receipts on that. */
  settle(later: number, between: () => void = () => undefined, lies: Lies = {}): void {
    const { log } = this;
    const { coverage, standing } = this.#taken();
    const asOf = { size: log.bytes.length, time: new Date(log.now + later * 1_000).toISOString() };
    const made = [...coverage.sessions].map(({ session }) =>
      deriveSession(coverage, standing, session, asOf, {
        indexes: log.entries.flatMap((entry, index) =>
          entry.by === 'sender' && entry.envelope.session === session ? index : [],
        ),
        at: (index) => log.bytes[index],
      }),
    );
    const epochs = [...coverage.epochs]
      .slice(0, 3)
      .map(({ sink, epoch }) => coverage.epochStatement(sink, epoch, asOf));
    between();
    for (const statement of epochs) {
      const { sink, epoch, status, policy } = statement;
      const digest = sha256(formatStatement(statement));
      const said = { type: 'epoch' as const, sink, epoch, statement: digest, ...asOf, status, policy };
      log.state(lied({ kind: 'coverage.stated', v: 1, ...said }, lies.statement));
    }
    const entries = made.map(({ session, statement, statementDigest }) => {
      const { status, policy } = statement;
      const said = { type: 'session' as const, session, statement: statementDigest, ...asOf, status, policy };
      const index = log.state(lied({ kind: 'coverage.stated', v: 1, ...said }, lies.statement));
      return { index, statement: statementDigest };
    });
    const head = this.head();
    made.forEach((facts, n) => {
      const { session } = facts;
      const stated = entries[n] as (typeof entries)[0];
      const payload = sessionReceiptPayload(facts, LOG, head, stated, this.#last.get(session));
      this.#issue({ type: 'session', session }, session, payload, head, lies);
    });
  }

  #issue(
    scope: { type: 'session'; session: string } | { type: 'period'; from: string; to: string },
    key: string,
    payload: Buffer,
    head: PublishedHead,
    lies: Lies,
  ): void {
    const statement = JSON.parse(payload.toString()) as Loose;
    lies.receipt?.(statement);
    const bytes = signPayload(Buffer.from(canonical(statement)), signer);
    const digest = sha256(bytes);
    const supersedes = this.#last.get(key);
    const said = { scope, asOf: head.size, ...(supersedes === undefined ? {} : { supersedes }) };
    this.log.state(lied({ kind: 'receipt.issued', v: 1, receipt: digest, ...said }, lies.issued));
    this.#last.set(key, digest);
    this.receipts.push(bytes);
    const opened = parseAnyReceipt(bytes);
    if (opened.type === 'session') this.#opened.set(key, opened.receipt);
  }

  /** A receipt of a period. */
  period(from: string, to: string, lies: Lies = {}): void {
    const { log } = this;
    const { coverage } = this.#taken();
    const asOf = { size: log.bytes.length, time: new Date(log.now + 60_000).toISOString() };
    const before = (time: string): number => log.entries.filter(({ line }) => line.received < time).length;
    const sessions = [...coverage.sessions].flatMap(({ session }): PeriodSession | [] => {
      const began = coverage.beganAt(session);
      // With second stories alone, it is the first of them.
      const entry = log.entries[began] ?? log.sent().find(({ envelope }) => envelope.session === session);
      const received = entry?.line.received as string;
      if (received < from || received >= to) return [];
      const digest = this.#last.get(session);
      const receipt = this.#opened.get(session);
      return {
        session,
        ...(digest === undefined || receipt === undefined ? {} : { receipt: { digest, receipt } }),
      };
    });
    const entries = { first: before(from), count: before(to) - before(from) };
    const sinks = [...coverage.chains].map(({ sink }) => sink);
    const facts = derivePeriod(periodEvidence(coverage, asOf, { from, to, sessions, entries }, sinks));
    log.state({ kind: 'auditor.issued', v: 1, auditor: log.id('aud'), by: log.id('adm') });
    const head = this.head();
    const key = `${from} ${to}`;
    this.#issue(
      { type: 'period', from, to },
      key,
      periodReceiptPayload(facts, LOG, head, this.#last.get(key)),
      head,
      lies,
    );
  }

  /** The log as an export reads it. */
  source(evaluated: number = this.log.bytes.length): ExportSource {
    const { log, receipts } = this;
    const head = this.head();
    const leaves = log.bytes.map(leafHash);
    return {
      head: () => Promise.resolve({ log: LOG, project: PROJECT, asOf: { ...head, evaluated } }),
      selection: ({ sessions, period }) => {
        const first = new Map<string, number>();
        for (const { line, envelope } of log.sent()) {
          const { session } = envelope;
          if (session !== undefined && !first.has(session)) first.set(session, line.index);
        }
        const coverage = new LogCoverage({ log: ORIGIN });
        for (const entry of log.entries.slice(0, evaluated)) coverage.apply(entry);
        for (const [session, named] of first) {
          // With second stories alone, it is the first of them.
          const index = coverage.beganAt(session);
          first.set(session, index < evaluated ? index : named);
        }
        const began = [...first].sort(([, a], [, b]) => a - b);
        const chosen = began.flatMap(([session, index]) => {
          const received = log.entries[index]?.line.received as string;
          const isIn =
            period === undefined
              ? sessions?.includes(session) === true
              : period.from <= received && received < period.to && index < evaluated;
          return isIn ? session : [];
        });
        const mine = (session: string | undefined): boolean =>
          session !== undefined && chosen.includes(session);
        const epochs = new Map<string, { sink: string; epoch: string; of: (typeof log.entries)[number][] }>();
        for (const entry of log.sent()) {
          const { sink, epoch } = entry.envelope;
          const known = epochs.get(`${sink} ${epoch}`) ?? { sink, epoch, of: [] };
          known.of.push(entry);
          epochs.set(`${sink} ${epoch}`, known);
        }
        const one = (index: number): { from: number; to: number } => ({ from: index, to: index + 1 });
        return Promise.resolve({
          size: log.bytes.length,
          sessions: chosen,
          collector: log.entries.flatMap(({ by, line }) => (by === 'collector' ? one(line.index) : [])),
          declared: [...log.declared.keys(), 'new'],
          epochs: [...epochs.values()].map(({ sink, epoch, of }) => {
            const sent = of.flatMap((entry) => (entry.by === 'sender' ? entry : []));
            const own = sent.filter(({ line }) => line.conflict === undefined);
            const opens = ({ envelope }: (typeof sent)[0]): boolean =>
              envelope.kind === 'epoch.open' && envelope.seq === 1;
            return {
              sink,
              epoch,
              named: sent.some(({ envelope }) => mine(envelope.session)),
              spans: sent.map(({ line }) => one(line.index)),
              first: own[0]?.line.index,
              opened: own.find(opens)?.line.index,
              spoke: own.find((entry) => !opens(entry))?.line.index,
              previous: own.find(opens)?.envelope.attrs?.['prev_epoch'] as string | undefined,
            };
          }),
          cited: log.sent().flatMap(({ envelope }) =>
            envelope.kind === 'verdict' && mine(envelope.session)
              ? ['pre', 'call', 'result'].flatMap((part) => {
                  const index = envelope.attrs?.[`${part}_index`];
                  return typeof index === 'number' ? index : [];
                })
              : [],
          ),
        });
      },
      entries: async function* (from, to) {
        await Promise.resolve();
        for (let at = from; at < to; at += 7) yield log.bytes.slice(at, Math.min(to, at + 7));
      },
      nodes: (ids) =>
        Promise.resolve(
          ids.map(({ level, index }) => {
            const begin = Number(index) * 2 ** level;
            const range = CompactRange.empty();
            for (const leaf of leaves.slice(begin, begin + 2 ** level)) range.append(leaf);
            return range.root();
          }),
        ),
      receipts: async function* () {
        await Promise.resolve();
        yield* receipts;
      },
      sign: (payload) => Promise.resolve(signPayload(payload, signer)),
    };
  }
}

/** An account of a script's log: receipts in the middle and at the end, where late evidence made new ones. */
export function accountOf({ policy, good, acts, later, cut, tidy }: Script, lies?: Lies): Account {
  const account = new Account(policy);
  const { course } = account;
  if (good > 0) course.honest(good, 'run-1');
  const part = Math.floor((acts.length * cut) / 100);
  for (const each of acts.slice(0, part)) course.do(each);
  const [one, ...rest] = acts.slice(part);
  account.settle(later / 40, () => one && course.do(one));
  for (const each of rest) course.do(each);
  if (tidy) for (const sink of course.sinks) sink.stated('epoch.close');
  const from = course.log.entries[Math.floor(course.log.entries.length / 4)]?.line.received as string;
  const to = new Date(course.log.now).toISOString();
  account.period('2026-01-01T00:00:00.000Z', to, lies);
  account.settle(later, undefined, lies);
  account.period('2026-01-01T00:00:00.000Z', to, lies);
  if (from < to) account.period(from, to, lies);
  return account;
}

/** One with a session that was judged well, and another one, in which something is missing. */
export const SCRIPT: Script = {
  policy: {},
  good: 2,
  acts: (
    ['call', 'both', 'state', 'session.open', 'note', 'heartbeat', 'label', 'session.close'] as const
  ).map((what, n) => ({
    sink: n % 2,
    what,
    session: 'run-2',
    call: 'a',
    weak: 5,
    match: 'fit',
    status: 'PASS',
    lose: what === 'note',
    wait: 0,
    n: 1,
  })),
  later: 5_000,
  cut: 60,
  tidy: true,
};

export async function write(
  account: Account,
  request: ExportRequest,
  path: string,
  evaluated?: number,
): Promise<void> {
  await buildExport(account.source(evaluated), request, path, {
    // What is in it no verifier looks at.
    pdf: (_, out) => finished(out.end('%PDF-1.7\n'), { readable: false }),
  });
}

type Files = [name: string, content: Buffer][];
export type Repacking = (files: Files) => Files;

/** Files of an archive in its one form (libs/export/FORMAT.md section 2), all of them small. */
function filesIn(zip: Buffer): Files {
  const files: Files = [];
  for (let at = 0; zip.readUInt32LE(at) === 0x04034b50;) {
    const [size, length] = [zip.readUInt32LE(at + 22), zip.readUInt16LE(at + 26)];
    const content = at + 30 + length;
    files.push([zip.toString('latin1', at + 30, content), zip.subarray(content, content + size)]);
    at = content + size;
  }
  return files;
}

function zipOf(files: Files): Buffer {
  const fields = (...pairs: readonly (readonly [bytes: 2 | 4, value: number])[]): Buffer =>
    Buffer.concat(
      pairs.map(([bytes, value]) => {
        const field = Buffer.alloc(bytes);
        field.writeUIntLE(value, 0, bytes);
        return field;
      }),
    );
  const local: Buffer[] = [];
  const central: Buffer[] = [];
  let at = 0;
  for (const [name, content] of files) {
    const size = content.length;
    const common = [
      [2, 0x800],
      [2, 0],
      [2, 0],
      [2, 0x21],
      [4, crc32(content)],
      [4, size],
      [4, size],
    ] as const;
    const raw = Buffer.from(name);
    const named = [
      [2, raw.length],
      [2, 0],
    ] as const;
    const header = Buffer.concat([fields([4, 0x04034b50], [2, 20], ...common, ...named), raw]);
    local.push(header, content);
    const place = [
      [2, 0],
      [2, 0],
      [2, 0],
      [4, 0],
      [4, at],
    ] as const;
    central.push(fields([4, 0x02014b50], [2, 20], [2, 20], ...common, ...named, ...place), raw);
    at += header.length + size;
  }
  const directory = Buffer.concat(central);
  const counts = [
    [2, files.length],
    [2, files.length],
  ] as const;
  const end = fields([4, 0x06054b50], [2, 0], [2, 0], ...counts, [4, directory.length], [4, at], [2, 0]);
  return Buffer.concat([...local, directory, end]);
}

/** Writes an archive that says of its last file that it has another CRC, and says so twice. */
export function miscounted(path: string, to: string): void {
  const zip = readFileSync(path);
  const manifest = filesIn(zip).at(-1)?.[1] as Buffer;
  const crc = Buffer.alloc(4);
  crc.writeUInt32LE(crc32(manifest));
  let found = 0;
  for (let at = zip.indexOf(crc); at >= 0; at = zip.indexOf(crc, at + 1), found++) zip.writeUInt32LE(7, at);
  if (found !== 2) throw new Error('the fields were not found');
  writeFileSync(to, zip);
}

/** Writes an archive with other files, and the manifest as it was. */
export function repacked(path: string, to: string, change: Repacking): void {
  writeFileSync(to, zipOf(change(filesIn(readFileSync(path)))));
}

/** Writes an archive again with other content, and a manifest over that, signed by the log: what only the log can do. */
export function again(
  path: string,
  to: string,
  change: (files: Map<string, Buffer>) => void,
  claim: (manifest: ExportManifest) => ExportManifest = (manifest) => manifest,
): void {
  const files = new Map(filesIn(readFileSync(path)));
  const { payload } = JSON.parse((files.get('manifest.json') as Buffer).toString()) as { payload: string };
  files.delete('manifest.json');
  change(files);
  const manifest = claim(parseManifest(Buffer.from(payload, 'base64')));
  const stated = [...files].map(([name, content]) => ({
    name,
    size: content.length,
    crc32: crc32(content),
    sha256: sha256(content).slice('sha256:'.length),
  }));
  const envelope = signPayload(formatManifest({ ...manifest, files: stated }), signer);
  writeFileSync(to, zipOf([...files, ['manifest.json', envelope]]));
}

/** Writes an archive again whose manifest, signed by the log, is other JSON. */
export function claimed(path: string, to: string, change: (statement: Loose) => void): void {
  const files = filesIn(readFileSync(path));
  const [, manifest] = files.at(-1) as [string, Buffer];
  const { payload } = JSON.parse(manifest.toString()) as { payload: string };
  const statement = JSON.parse(Buffer.from(payload, 'base64').toString()) as Loose;
  change(statement);
  const envelope = signPayload(Buffer.from(canonical(statement)), signer);
  writeFileSync(to, zipOf([...files.slice(0, -1), ['manifest.json', envelope]]));
}

/** Chains over the log's key, good and bad: what is wrong with each. */
export async function chains(): Promise<readonly (readonly [what: string, x5c: readonly Buffer[]])[]> {
  const valid = { notBefore: new Date('2025-12-31T00:00:00Z'), notAfter: new Date('2046-01-01T00:00:00Z') };
  const name = 'Belay example root';
  const [seed, own] = [Buffer.alloc(32, 0x15), Buffer.alloc(32, 0x0b)];
  const pub = rawPublicKey(privateKeyObject(own));
  const root = await createRoot({ name, seed, ...valid });
  const twin = await createRoot({ name, seed: Buffer.alloc(32, 0x25), ...valid });
  const issuer = await createIssuer({ root, name: 'issuer', seed: Buffer.alloc(32, 0x16), ...valid });
  const other = await createIssuer({ root, name: 'issuer', seed: Buffer.alloc(32, 0x26), ...valid });
  const direct = { ...root };
  const given = { issuer, pub, origin: ORIGIN, ...valid };
  const leaf = await issueLogCertificate(given);
  const byRoot = await issueLogCertificate({ ...given, issuer: direct });
  const byLeaf = await issueLogCertificate({ ...given, issuer: { certificate: byRoot, seed: own } });
  const [mid, top] = [issuer.certificate, root.certificate];
  const expired = { notBefore: valid.notBefore, notAfter: new Date('2025-12-31T12:00:00Z') };
  return [
    ['none', [leaf, mid, top]],
    ['none', [byRoot, top]],
    ['none', [byRoot, top, top]],
    ['the issuer twice', [leaf, mid, mid]],
    ['another origin', [await issueLogCertificate({ ...given, origin: `${ORIGIN}/x` }), mid, top]],
    ['another key', [await issueLogCertificate({ ...given, pub: Buffer.alloc(32, 0x42) }), mid, top]],
    ['expired', [await issueLogCertificate({ ...given, ...expired }), mid, top]],
    ['nobody between', [leaf, top]],
    ['no log', [mid, top]],
    ['only a root', [top]],
    ['no root', [leaf, mid]],
    ['a root of the same name', [leaf, mid, twin.certificate]],
    ['an issuer of the same name', [leaf, other.certificate, top]],
    ['a log between', [byLeaf, byRoot, top]],
    ['twice', [leaf, leaf, top]],
    ['a byte more', [Buffer.concat([leaf, Buffer.from([0])]), mid, top]],
    ['a byte less', [leaf.subarray(0, -1), mid, top]],
    [
      'another byte',
      [Buffer.from(leaf.map((byte, n) => (n === leaf.length - 1 ? byte ^ 1 : byte))), mid, top],
    ],
    ['no certificate', [Buffer.from('none'), mid, top]],
    ['an empty one', [Buffer.alloc(0), mid, top]],
  ];
}
