import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import { canonical, EnvelopeError } from '@belay/envelope';
import { MerkleError } from '@belay/merkle';
import { ed25519Verifier, type NoteVerifier, openCheckpoint } from '@belay/note';
import {
  CLOCK_TOLERANCE,
  aboutOtherKey,
  chainFault,
  type CheckResult,
  Checks,
  derivePeriod,
  type DsseEnvelope,
  IN_TOTO,
  parseAnyReceipt,
  parseDsse,
  parsePins,
  periodReceiptPayload,
  type Pins,
  preAuthEncoding,
  ReceiptError,
  ReceiptVerifier,
  type Report,
  type SessionReceipt,
} from '@belay/receipt';
import { type ArchivedFile, blocksOf, readArchive, readExactly } from './archive.js';
import { documentsOf, filterFile, filterSessions, MAX_FILTER_BYTES, reportModel } from './documents.js';
import type { EntriesReader } from './entries-file.js';
import { ExportError } from './error.js';
import { readAt, type StatedAt, StatedFinder } from './evidence-file.js';
import { Faults } from './faults.js';
import { chainFile } from './keys-file.js';
import {
  EXPORT_FILES,
  type ExportManifest,
  MANIFEST_FILE,
  MAX_MANIFEST_BYTES,
  parseManifest,
} from './manifest.js';
import { chosenSessions, reportFacts } from './model.js';
import { otherPages, PAGES } from './pages.js';
import { type FiledReceipt, filedReceipt, linesOf } from './receipts-file.js';
import { Replay } from './replay.js';
import type { ReportModel } from './report-model.js';
import { Walk } from './walk.js';

/** The checks of an export, in their order. */
export const EXPORT_CHECKS = [
  'archive',
  'manifest',
  'trust',
  'signature',
  'chain',
  'checkpoint',
  'files',
  'entries',
  'tree',
  'filter',
  'receipts',
  'issued',
  'statements',
  'sessions',
  'periods',
  'tables',
  'report',
  'time',
] as const;

export type ExportCheck = (typeof EXPORT_CHECKS)[number];

export interface VerifyProgress {
  readonly phase: 'files' | 'receipts' | 'entries' | 'report';
  /** Bytes, receipts or entries. */
  readonly done: number;
  readonly total: number;
}

export interface VerifyOptions {
  readonly progress?: ((progress: VerifyProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** What a verification found, and what the export says where that could be read. */
export interface ExaminedExport {
  readonly report: Report<ExportCheck>;
  readonly manifest?: ExportManifest | undefined;
  /** What the report in it shows, made again from its entries and receipts. */
  readonly model?: ReportModel | undefined;
  /**
   * Of an export of everything or of a period: what it is not about, as that was first named after sessions were looked
   * for.
   */
  readonly unchosen?: Unchosen | undefined;
}

/** Sessions that an export is not about because of when it was made. */
export interface Unchosen {
  readonly sessions: number;
  /** One of them. */
  readonly such: string;
  /** Receipts of theirs that were issued and are not in the export. */
  readonly receipts: number;
}

/**
 * Verifies an export offline, and makes again what it says from its entries. Runs every check that can be run and reports
 * all of them. Throws ReceiptError `pin` for bad pins, the signal's reason when it is aborted, and what the file system
 * throws. Streams: memory grows with the sessions and epochs, and by some ten bytes for each entry.
 */
export async function verifyExport(
  path: string,
  pins: Pins = {},
  options: VerifyOptions = {},
): Promise<ExaminedExport> {
  const handle = await open(path, 'r');
  try {
    return await new Verification(handle, pins, options).run();
  } finally {
    await handle.close();
  }
}

class Verification {
  readonly #handle: FileHandle;
  readonly #pins: Pins;
  readonly #pinned: ReturnType<typeof parsePins>;
  readonly #options: VerifyOptions;
  readonly #checks = new Checks<ExportCheck>(EXPORT_CHECKS);
  #files = new Map<string, ArchivedFile>();
  #digests = new Map<string, string>();

  constructor(handle: FileHandle, pins: Pins, options: VerifyOptions) {
    this.#handle = handle;
    this.#pins = pins;
    this.#pinned = parsePins(pins);
    this.#options = options;
  }

  async run(): Promise<ExaminedExport> {
    const files = await this.#archive();
    if (files === undefined) return this.#end();
    const opened = await this.#manifest(files);
    if (opened === undefined) return this.#end();
    const { manifest, envelope } = opened;
    const root = await this.#identity(manifest, envelope);
    const stated = await this.#contents(manifest);
    if (stated === undefined || root === undefined) return this.#end(manifest);
    const model = await this.#evidence(manifest, root, stated);
    return this.#end(manifest, model);
  }

  #end(manifest?: ExportManifest, model?: ReportModel): ExaminedExport {
    return {
      report: this.#checks.report(),
      ...(manifest === undefined ? {} : { manifest }),
      ...(model === undefined ? {} : { model }),
      ...(this.#unchosen === undefined ? {} : { unchosen: this.#unchosen }),
    };
  }

  /** Runs something that reads, and a check of what came of it. Undefined when that failed. */
  async #reading<T>(name: ExportCheck, read: () => Promise<T>): Promise<T | undefined> {
    try {
      return await read();
    } catch (error) {
      if (!isFault(error)) throw error;
      this.#checks.run(name, () => {
        throw error;
      });
      return undefined;
    }
  }

  async #archive(): Promise<readonly ArchivedFile[] | undefined> {
    return this.#reading('archive', async () => {
      const files = await readArchive(this.#handle);
      const names = files.map(({ name }) => name);
      const allowed: readonly string[] = [...EXPORT_FILES, MANIFEST_FILE];
      let next = 0;
      for (const name of names) {
        next = allowed.indexOf(name, next) + 1;
        if (next === 0)
          throw new ExportError('malformed', 'a file that is no part of an export, or in another place');
      }
      if (names.at(-1) !== MANIFEST_FILE) throw new ExportError('malformed', 'it has no manifest');
      this.#files = new Map(files.map((file) => [file.name, file]));
      this.#checks.run(
        'archive',
        () => `${files.length} files, and nothing around them that needn't be there`,
      );
      return files;
    });
  }

  async #manifest(
    files: readonly ArchivedFile[],
  ): Promise<{ readonly manifest: ExportManifest; readonly envelope: DsseEnvelope } | undefined> {
    return this.#reading('manifest', async () => {
      const bytes = await this.#content(MANIFEST_FILE, MAX_MANIFEST_BYTES);
      // Nothing signs this one: the two headers could say anything of it, as long as it is the same.
      if (crc32(bytes) >>> 0 !== this.#file(MANIFEST_FILE).crc32) {
        throw invalid('manifest.json is not the file that the archive says');
      }
      const envelope = parseDsse(bytes);
      if (envelope.payloadType !== IN_TOTO) throw new ExportError('malformed', `not ${IN_TOTO}`);
      const manifest = parseManifest(envelope.payload);
      const others = files.slice(0, -1);
      if (
        others.length !== manifest.files.length ||
        others.some(({ name, size, crc32 }, i) => {
          const stated = manifest.files[i];
          return stated?.name !== name || stated.size !== size || stated.crc32 !== crc32;
        })
      ) {
        throw new ExportError('invalid', 'its files are not those of the archive');
      }
      this.#digests = new Map(manifest.files.map(({ name, sha256 }) => [name, sha256]));
      this.#checks.run('manifest', () => `canonical, version 1, of ${others.length} files`);
      return { manifest, envelope };
    });
  }

  /** Signature, certificates, pins, checkpoint and time. Returns the root of the signed head. */
  async #identity(
    { log, asOf }: ExportManifest,
    { payload, payloadType, keyId, signature }: DsseEnvelope,
  ): Promise<Buffer | undefined> {
    const checks = this.#checks;
    let key: NoteVerifier | undefined;
    checks.run('signature', () => {
      key = ed25519Verifier(log.vkey);
      if (key.name !== log.origin) throw invalid('the key named is not that of the log named');
      if (key.keyId !== keyId) throw invalid('the signature is by another key than the one named');
      if (!key.verify(preAuthEncoding(payloadType, payload), signature)) {
        throw invalid('the signature does not verify');
      }
      return `signed by ${log.vkey}`;
    });

    let fault: string | undefined = 'not examined';
    checks.run('chain', () => {
      if (key === undefined) throw invalid('the key named is not one');
      fault = chainFault(log.x5c, { origin: log.origin, key: key.key }, new Date(asOf.time));
      if (fault !== undefined) throw invalid(fault);
      return `certificates from the root to ${log.origin}, valid at ${asOf.time}`;
    });

    checks.run('trust', () => {
      const { origin, key: vkey } = this.#pins;
      if (origin !== undefined && origin !== log.origin) {
        throw invalid(`the export is of ${log.origin}, not of the log expected`);
      }
      if (vkey !== undefined && vkey !== log.vkey) {
        throw invalid(
          `the export is by ${log.vkey}, not by the key pinned; ${aboutOtherKey(vkey, log.origin)}`,
        );
      }
      const { root } = this.#pinned;
      if (root !== undefined && (fault !== undefined || !log.x5c.at(-1)?.equals(root.raw))) {
        throw invalid('the certificates do not lead to the root pinned');
      }
      if (vkey !== undefined) return "the log's key is the one pinned";
      if (root !== undefined) return `the root pinned vouches for the key of ${log.origin}`;
      return {
        status: 'undecided',
        detail: `no key is pinned: anyone can make a log that calls itself ${log.origin}`,
      };
    });

    const stated = await this.#content('checkpoint', 64 * 1024).catch(() => Buffer.alloc(0));
    let head: Buffer | undefined;
    checks.run('checkpoint', () => {
      const checkpoint = openCheckpoint(asOf.checkpoint, ed25519Verifier(log.vkey));
      if (checkpoint.size !== BigInt(asOf.size)) {
        throw invalid(`the checkpoint is for size ${checkpoint.size}, not ${asOf.size}`);
      }
      if (checkpoint.origin !== log.origin) throw invalid('the checkpoint is of another log');
      if (!stated.equals(Buffer.from(asOf.checkpoint))) throw invalid('the file checkpoint is another note');
      head = checkpoint.root;
      return `signed head of ${asOf.size} entries`;
    });

    checks.run('time', () => {
      const { now } = this.#pins;
      if (now === undefined) return 'not compared with a clock';
      if (Date.parse(asOf.time) <= now.getTime() + CLOCK_TOLERANCE) return `published at ${asOf.time}`;
      return {
        status: 'undecided',
        detail: `published at ${asOf.time}, which by this machine's clock has yet to come`,
      };
    });
    return head;
  }

  /** Every file's digest; and, on the way through the entries, which statements they name. */
  async #contents(manifest: ExportManifest): Promise<readonly StatedAt[] | undefined> {
    const finder = new StatedFinder();
    const total = manifest.files.reduce((sum, { size }) => sum + size, 0);
    let done = 0;
    return this.#reading('files', async () => {
      for (const { name, sha256, crc32: stated } of manifest.files) {
        const hash = createHash('sha256');
        let crc = 0;
        for await (const block of blocksOf(this.#handle, this.#file(name))) {
          this.#options.signal?.throwIfAborted();
          hash.update(block);
          crc = crc32(block, crc);
          if (name === 'entries.ndjson') finder.push(block);
          done += block.length;
          this.#options.progress?.({ phase: 'files', done, total });
        }
        if (hash.digest('hex') !== sha256 || crc >>> 0 !== stated) {
          throw invalid(`${name} is not the file that was signed`);
        }
      }
      this.#checks.run('files', () => `SHA-256 and CRC-32 of ${manifest.files.length} files, ${total} bytes`);
      return finder.found;
    });
  }

  /** Walks the entries and makes again what follows from them. Returns the report's model, when all could be walked. */
  async #evidence(
    manifest: ExportManifest,
    root: Buffer,
    stated: readonly StatedAt[],
  ): Promise<ReportModel | undefined> {
    const { request, asOf } = manifest;
    const receipts = await this.#receipts(manifest);
    if (receipts === undefined) return undefined;
    const named = await this.#reading('filter', async () =>
      request.period === undefined
        ? request.sessions
        : filterSessions(await this.#content('filter.json', MAX_FILTER_BYTES)),
    );
    if (named === undefined && request.period !== undefined) return undefined;
    const walk = new Walk(manifest.log.origin, {
      names: named === undefined ? undefined : new Set(named),
      evaluated: asOf.evaluated,
      period: request.period,
    });
    const replay = new Replay(manifest, walk, this.#handle, this.#file('entries.ndjson'), receipts, stated);
    const walked = await this.#reading('entries', async () => {
      const result = await replay.run(this.#options, (receipt) => this.#receiptBytes(receipt));
      if (result.reader.roots.get(asOf.size) === undefined)
        throw invalid('not as many entries as were signed');
      return result;
    });
    if (walked === undefined) return undefined;
    const { reader, events } = walked;
    const checks = this.#checks;
    checks.run('entries', () => {
      const { genesis } = walk;
      if (asOf.size > 0) {
        if (genesis === undefined) throw invalid('a log begins with its genesis entry');
        if (genesis.vkey !== manifest.log.vkey) throw invalid('the genesis entry names another key');
        if (genesis.project !== manifest.project.id || genesis.name !== manifest.project.name) {
          throw invalid('the genesis entry names another project');
        }
      }
      return `${reader.entries} well-formed, in sequence, of this log`;
    });
    checks.run('tree', () => {
      if (!walked.root.equals(root)) throw invalid("the entries do not give the checkpoint's root");
      return `the entries${reader.omitted > 0 ? ' and what stands for those left out' : ''} give the checkpoint's root`;
    });
    checks.run('filter', () => {
      const { counts } = manifest;
      if (reader.entries !== counts.entries || reader.omitted !== counts.omitted) {
        throw invalid(`${reader.entries} entries and ${reader.omitted} left out, not what is counted`);
      }
      if (walk.isEverything && reader.omitted > 0)
        throw invalid('entries of an export of everything are left out');
      const sessions = walk.inOrder();
      if (request.period !== undefined) {
        const { from, to } = request.period;
        const outside = sessions.find(
          ({ began }) => began.received < from || began.received >= to || began.index >= asOf.evaluated,
        );
        if (outside !== undefined) throw invalid(`${outside.session} did not begin in the period`);
        if (sessions.length !== named?.length) throw invalid('sessions of which there is no entry');
      }
      this.#requireFile(
        'filter.json',
        filterFile(
          manifest,
          sessions.map(({ session }) => session),
        ),
      );
      return reader.omitted === 0
        ? 'nothing was left out'
        : `${reader.omitted} entries left out: proven; that they do not matter is the collector's statement`;
    });
    this.#receiptRoots(receipts, reader, manifest);
    this.#issued(walk, receipts);
    this.#statements(replay);
    this.#sessions(manifest, walk, replay, receipts);
    this.#periods(walk, replay, receipts);
    return this.#derived(manifest, walk, receipts, reader, events);
  }

  #unchosen: Unchosen | undefined;
  readonly #receiptFaults = new Faults();
  /** Roots of the signed heads that receipts stand on, base64. */
  readonly #heads = new Map<number, string>();

  /** Reads every receipt and makes those of its checks that need nothing else. */
  async #receipts({ log, asOf }: ExportManifest): Promise<readonly FiledReceipt[] | undefined> {
    const key = ed25519Verifier(log.vkey);
    const verifier = new ReceiptVerifier({ key: log.vkey, origin: log.origin });
    const notes = new Set<string>();
    const receipts: FiledReceipt[] = [];
    return this.#reading('receipts', async () => {
      const file = this.#file('receipts.ndjson');
      for await (const { at, bytes } of linesOf(blocksOf(this.#handle, file))) {
        this.#options.signal?.throwIfAborted();
        const { report, opened } = verifier.examine(bytes);
        const wrong = report.checks.find(({ name, status }) => name !== 'evidence' && status !== 'ok');
        if (opened === undefined || wrong !== undefined) {
          throw invalid(`receipt ${receipts.length + 1}: ${wrong?.name}: ${wrong?.detail}`);
        }
        const receipt = filedReceipt(bytes, at, opened);
        if (receipt.asOf > asOf.size) throw invalid('a receipt stands on a later checkpoint');
        receipts.push(receipt);
        const { checkpoint } = opened.receipt.asOf;
        if (!notes.has(checkpoint)) {
          notes.add(checkpoint);
          const root = openCheckpoint(checkpoint, key).root.toString('base64');
          const known = this.#heads.get(receipt.asOf);
          if (known !== undefined && known !== root) {
            this.#receiptFaults.add(`two heads of ${receipt.asOf} entries were signed, with different roots`);
          }
          this.#heads.set(receipt.asOf, root);
        }
        this.#options.progress?.({ phase: 'receipts', done: at, total: file.size });
      }
      return receipts;
    });
  }

  #receiptRoots(receipts: readonly FiledReceipt[], reader: EntriesReader, { counts }: ExportManifest): void {
    const faults = this.#receiptFaults;
    for (const [size, root] of this.#heads) {
      if (reader.roots.get(size) !== root) {
        faults.add(`a receipt stands on a head of ${size} entries that these entries do not give`);
      }
    }
    this.#checks.run('receipts', () => {
      if (receipts.length !== counts.receipts)
        throw invalid(`${receipts.length} receipts, not what is counted`);
      faults.require();
      return `${receipts.length} signed, on heads of these entries`;
    });
  }

  #issued(walk: Walk, receipts: readonly FiledReceipt[]): void {
    this.#checks.run('issued', () => {
      const issued = walk.issued.filter((each) => walk.isPart(each));
      const last = new Map<string, string>();
      for (const [i, { index, digest, scope, asOf, supersedes }] of issued.entries()) {
        const receipt = receipts[i];
        if (receipt?.digest !== digest)
          throw invalid(`the receipt that entry ${index} names is not in its place`);
        const key = canonical(scope);
        if (canonical(receipt.scope) !== key || receipt.asOf !== asOf) {
          throw invalid(`entry ${index} says something else of its receipt`);
        }
        if (index < asOf || (receipt.coverage.index ?? 0) >= index) {
          throw invalid(`entry ${index} comes before what its receipt stands on`);
        }
        const before = last.get(key);
        if (receipt.supersedes !== before || supersedes !== before) {
          throw invalid(`the receipt of entry ${index} does not supersede the one before it`);
        }
        last.set(key, digest);
      }
      if (issued.length !== receipts.length) throw invalid('more receipts than were issued');
      return `all that were issued, ${receipts.length - last.size} of them superseded`;
    });
  }

  #statements(replay: Replay): void {
    this.#checks.run('statements', () => {
      const { made, elsewhere } = replay.statements();
      return `${made} made again from the entries${elsewhere > 0 ? `; ${elsewhere} are about what is no part of it` : ''}`;
    });
  }

  #sessions(manifest: ExportManifest, walk: Walk, replay: Replay, receipts: readonly FiledReceipt[]): void {
    this.#checks.run('sessions', (): Omit<CheckResult, 'name'> | string => {
      const made = replay.sessions();
      const have = new Set(receipts.flatMap(({ scope }) => (scope.type === 'session' ? scope.session : [])));
      const without = chosenSessions(walk, manifest.request.sessions).filter(
        ({ session }) => !have.has(session),
      );
      const [first] = without;
      if (first !== undefined) {
        return {
          status: 'undecided',
          detail: `${without.length} without a receipt, such as ${first.session}`,
        };
      }
      // Up to where they were looked for is the collector's word: "nowhere" is not wrong, and has to be heard.
      this.#unchosen = unchosenOf(walk);
      const others = this.#unchosen && `; ${unchosenText(this.#unchosen, manifest)}`;
      return `${made} receipts of ${have.size} sessions made again from the entries${others ?? ''}`;
    });
  }

  #periods(walk: Walk, replay: Replay, receipts: readonly FiledReceipt[]): void {
    this.#checks.run('periods', (): Omit<CheckResult, 'name'> | string => {
      const issued = new Map(walk.issued.map((each) => [each.digest, each.index]));
      const later: string[] = [];
      for (const { receipt, evidence, sessions } of replay.periods) {
        // By the time of its checkpoint, sessions may have been named that this export is not about.
        if (!sessions.every((session) => walk.isChosen(session))) {
          later.push(receipt.digest);
          continue;
        }
        const last = new Map<string, FiledReceipt>();
        for (const each of receipts) {
          const { scope, digest } = each;
          if (scope.type === 'session' && (issued.get(digest) ?? 0) < receipt.asOf)
            last.set(scope.session, each);
        }
        const facts = derivePeriod({
          ...evidence,
          sessions: sessions.map((session) => {
            const filed = last.get(session);
            if (filed === undefined) return { session };
            return { session, receipt: { digest: filed.digest, receipt: this.#sessionReceipt(filed) } };
          }),
        });
        const bytes = this.#receiptBytes(receipt);
        const opened = parseAnyReceipt(bytes);
        if (opened.type !== 'period') throw invalid('a receipt of no period');
        const { log, asOf, supersedes } = opened.receipt;
        if (!periodReceiptPayload(facts, log, asOf, supersedes).equals(parseDsse(bytes).payload)) {
          throw invalid(`receipt ${receipt.digest} is not what its period gives`);
        }
      }
      const count = replay.periods.length;
      if (later.length > 0) {
        return {
          status: 'undecided',
          detail: `${later.length} of ${count} count sessions that came after those of the export`,
        };
      }
      return count === 0
        ? 'no receipt of a period'
        : `${count} receipts of periods made again from the entries`;
    });
  }

  /** Tables and pages, made again. */
  #derived(
    manifest: ExportManifest,
    walk: Walk,
    receipts: readonly FiledReceipt[],
    reader: EntriesReader,
    events: string,
  ): ReportModel {
    this.#options.progress?.({ phase: 'report', done: 0, total: 1 });
    const sessions = createHash('sha256');
    const facts = reportFacts(
      {
        manifest,
        entries: { included: reader.entries, omitted: reader.omitted },
        walk,
        receipts,
        issued: new Map(walk.issued.map((each) => [each.digest, each])),
        read: (receipt) => this.#sessionReceipt(receipt),
      },
      (row) => sessions.update(row),
    );
    const other = otherPages(manifest.pages);
    this.#checks.run('tables', () => {
      this.#requireFile('keys.json', walk.keys.bytes(manifest.log));
      this.#requireFile('chain.pem', chainFile(manifest.log.x5c));
      const count = chosenSessions(walk, manifest.request.sessions).length;
      if (count !== manifest.counts.sessions) throw invalid(`${count} sessions, not what is counted`);
      if (other !== undefined) {
        return `keys.json and chain.pem made again: ${count} sessions; events.csv and sessions.csv are ${other}: not made again, held to their signed digests`;
      }
      this.#requireDigest('events.csv', events);
      this.#requireDigest('sessions.csv', sessions.digest('hex'));
      return `keys.json, chain.pem, events.csv and sessions.csv made again: ${count} sessions`;
    });
    const model = reportModel(facts);
    this.#checks.run('report', () => {
      if (other !== undefined) {
        const names = PAGES.filter((name) => this.#digests.has(name));
        return `${names.join(', ')} are ${other}: not made again, held to their signed digests, as report.pdf is`;
      }
      const documents = documentsOf(model, manifest.request);
      for (const [name, bytes] of documents) this.#requireFile(name, bytes);
      return `${[...documents.keys()].join(', ')} made again; report.pdf is bound by its digest alone`;
    });
    return model;
  }

  #requireFile(name: string, made: Buffer): void {
    this.#requireDigest(name, createHash('sha256').update(made).digest('hex'));
  }

  #requireDigest(name: string, sha256: string): void {
    if (this.#digests.get(name) !== sha256)
      throw invalid(`${name} is not what the entries and receipts give`);
  }

  #file(name: string): ArchivedFile {
    const file = this.#files.get(name);
    if (file === undefined) throw new ExportError('malformed', `it has no ${name}`);
    return file;
  }

  async #content(name: string, most: number): Promise<Buffer> {
    const { offset, size } = this.#file(name);
    if (size > most) throw new ExportError('malformed', `${name} is larger than it can be`);
    return readExactly(this.#handle, offset, size);
  }

  #receiptBytes({ at, length }: FiledReceipt): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    readAt(this.#handle.fd, bytes, this.#file('receipts.ndjson').offset + at);
    return bytes;
  }

  #sessionReceipt(receipt: FiledReceipt): SessionReceipt {
    const opened = parseAnyReceipt(this.#receiptBytes(receipt));
    if (opened.type !== 'session') throw invalid('a receipt of no session');
    return opened.receipt;
  }
}

/** Errors that say something of the export; what else is thrown is a fault of ours or of the machine. */
function isFault(error: unknown): error is Error {
  return (
    error instanceof ExportError ||
    error instanceof ReceiptError ||
    error instanceof EnvelopeError ||
    error instanceof MerkleError
  );
}

function invalid(what: string): ExportError {
  return new ExportError('invalid', what);
}

function unchosenOf({ unchosen, unchosenReceipts }: Walk): Unchosen | undefined {
  const [such] = unchosen;
  return such === undefined ? undefined : { sessions: unchosen.size, such, receipts: unchosenReceipts };
}

/** What an export is not about, in words. */
export function unchosenText(
  { sessions, such, receipts }: Unchosen,
  { asOf, request }: Pick<ExportManifest, 'asOf' | 'request'>,
): string {
  const issued = receipts === 0 ? '' : `, with ${receipts} receipt${receipts === 1 ? '' : 's'} not in it`;
  const from = `from entry ${asOf.evaluated} on, such as ${such}${issued}`;
  return request.period === undefined
    ? `not about ${sessions} first named ${from}`
    : `not about ${sessions} that may have begun in the period, first named or judged ${from}`;
}
