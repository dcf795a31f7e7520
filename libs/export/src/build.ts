import { readSync } from 'node:fs';
import { open, rename, unlink } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { type Entry, EnvelopeError, parseEntry } from '@belay/envelope';
import { ed25519Verifier, openCheckpoint } from '@belay/note';
import { IN_TOTO, parseAnyReceipt, parseDsse, ReceiptError, type SessionReceipt } from '@belay/receipt';
import { ArchiveWriter } from './archive.js';
import { eventRow, EVENTS_HEADER } from './csv.js';
import { documentsOf, filterFile, reportModel } from './documents.js';
import { cutAt, EntriesWriter, type IndexSpan, type NodeSource } from './entries-file.js';
import { ExportError } from './error.js';
import { chainFile } from './keys-file.js';
import {
  type ExportManifest,
  type ExportRequest,
  filesOf,
  formatManifest,
  MANIFEST_FILE,
  type ManifestFile,
} from './manifest.js';
import { chosenSessions, reportFacts } from './model.js';
import { PAGES_VERSION } from './pages.js';
import { type FiledReceipt, filedReceipt } from './receipts-file.js';
import type { ReportModel } from './report-model.js';
import { selectEntries, type SelectionFacts } from './selection.js';
import { Spool } from './spool.js';
import { Walk } from './walk.js';

const LF = Buffer.from('\n');

/** What a log tells for an export. All of it as of the one checkpoint that `head` names. */
export interface ExportSource {
  /** The log, its project, and the checkpoint that the export is to stand on. */
  head(): Promise<Pick<ExportManifest, 'log' | 'project' | 'asOf'>>;
  /**
   * Of a request that does not ask for everything: the chosen sessions in the order in which they began (those of the
   * request that do not occur may be left out), and where to look for what belongs to them.
   */
  selection(request: ExportRequest): Promise<SelectionFacts & { readonly sessions: readonly string[] }>;
  /** The entries [from, to), each as its bytes are, in batches. */
  entries(from: number, to: number): AsyncIterable<readonly Buffer[]>;
  /** Hashes of nodes of the log's tree. */
  nodes: NodeSource;
  /**
   * Bytes of the receipts of sessions and periods that were issued before the checkpoint, by the index of their
   * `receipt.issued`. Those of sessions that are not chosen may be among them; they are left out.
   */
  receipts(request: ExportRequest, sessions: readonly string[] | undefined): AsyncIterable<Buffer>;
  /** The DSSE envelope of a payload, signed by the log's key. */
  sign(payload: Buffer): Promise<Buffer>;
}

export type ExportPhase = 'receipts' | 'entries' | 'report' | 'archive';

export interface ExportProgress {
  readonly phase: ExportPhase;
  /** Receipts, entries, or bytes. */
  readonly done: number;
  readonly total?: number | undefined;
}

export interface BuildOptions {
  /** Makes `report.pdf`; `@belay/export/pdf` has it, apart because of what it loads. */
  readonly pdf: (model: ReportModel, out: Writable) => Promise<void>;
  readonly progress?: ((progress: ExportProgress) => void) | undefined;
  /** Ends the job: what was written is removed. */
  readonly signal?: AbortSignal | undefined;
}

/** What came of it. */
export interface BuiltExport {
  readonly manifest: ExportManifest;
  /** Of the archive. */
  readonly bytes: number;
  readonly model: ReportModel;
}

/**
 * Makes an export at `path`, which appears whole or not at all: it is written beside, with `.part` and other suffixes
 * to its name, which a crash leaves behind. Streams: memory grows with the sessions and epochs, not with the entries.
 *
 * What the source gives has to fit together (entries to the checkpoint, receipts to the entries that name them): else no
 * export is made, and ExportError `source` says why.
 */
export async function buildExport(
  source: ExportSource,
  request: ExportRequest,
  path: string,
  options: BuildOptions,
): Promise<BuiltExport> {
  const spools: Spool[] = [];
  const spool = async (name: string): Promise<Spool> => {
    const made = await Spool.create(`${path}.${name}`);
    spools.push(made);
    return made;
  };
  try {
    return await new Build(source, request, path, options).run({
      entries: await spool('entries'),
      receipts: await spool('receipts'),
      events: await spool('events'),
      sessions: await spool('sessions'),
      pdf: await spool('pdf'),
    });
  } finally {
    for (const each of spools) await each.discard();
  }
}

interface Spools {
  readonly entries: Spool;
  readonly receipts: Spool;
  readonly events: Spool;
  readonly sessions: Spool;
  readonly pdf: Spool;
}

class Build {
  readonly #source: ExportSource;
  readonly #request: ExportRequest;
  readonly #path: string;
  readonly #options: BuildOptions;

  constructor(source: ExportSource, request: ExportRequest, path: string, options: BuildOptions) {
    this.#source = source;
    this.#request = request;
    this.#path = path;
    this.#options = options;
  }

  async run(spools: Spools): Promise<BuiltExport> {
    const { progress } = this.#options;
    const head = await this.#source.head();
    const { size, evaluated } = head.asOf;
    const selection = isEverything(this.#request) ? undefined : await this.#source.selection(this.#request);
    const chosen =
      selection === undefined
        ? undefined
        : [...new Set([...selection.sessions, ...(this.#request.sessions ?? [])])];
    const spans = selection === undefined ? [{ from: 0, to: size }] : selectEntries(selection);

    const receipts = await this.#receipts(chosen, size, spools.receipts);
    const walk = new Walk(head.log.origin, {
      evaluated,
      names: chosen === undefined ? undefined : new Set(chosen),
    });
    const sizes = [...new Set(receipts.map(({ asOf }) => asOf))].sort((a, b) => a - b);
    const included = await this.#entries(walk, head, spans, sizes, spools);
    if (selection !== undefined) requireWhole(walk, selection);
    const kept = await this.#requireIssued(walk, receipts, spools.receipts);

    progress?.({ phase: 'report', done: 0 });
    const entries = { included, omitted: size - included };
    const issued = new Map(walk.issued.map((each) => [each.digest, each]));
    const facts = reportFacts(
      {
        manifest: { ...head, request: this.#request },
        entries,
        walk,
        receipts: kept,
        issued,
        read: (receipt) => readSession(spools.receipts, receipt),
      },
      (row) => spools.sessions.take(Buffer.from(row)),
    );
    await spools.sessions.flush();
    const model = reportModel(facts);
    await this.#options.pdf(model, into(spools.pdf));
    await spools.pdf.flush();
    const counts = {
      entries: included,
      omitted: entries.omitted,
      receipts: kept.length,
      sessions: chosenSessions(walk, this.#request.sessions).length,
    };
    return this.#archive({ head, counts, walk, chosen: chosen ?? [], model, spools });
  }

  /** Writes the receipts down and keeps what has to be known of them. */
  async #receipts(
    chosen: readonly string[] | undefined,
    size: number,
    spool: Spool,
  ): Promise<FiledReceipt[]> {
    const names = chosen && new Set(chosen);
    const filed: FiledReceipt[] = [];
    for await (const bytes of this.#source.receipts(this.#request, chosen)) {
      this.#options.signal?.throwIfAborted();
      let receipt: FiledReceipt;
      try {
        receipt = filedReceipt(bytes, spool.size, parseAnyReceipt(bytes));
      } catch (error) {
        if (error instanceof ReceiptError || error instanceof ExportError) throw fault(error.message);
        throw error;
      }
      if (receipt.asOf > size) throw fault('a receipt stands on a later checkpoint');
      const { scope } = receipt;
      if (names !== undefined && (scope.type !== 'session' || !names.has(scope.session))) continue;
      filed.push(receipt);
      spool.take(bytes);
      spool.take(LF);
      if (spool.full) await spool.flush();
      if (filed.length % 256 === 0) this.#options.progress?.({ phase: 'receipts', done: filed.length });
    }
    await spool.flush();
    return filed;
  }

  /** Writes entries and their rows down, walks them, and holds them to the checkpoint. Returns how many there are. */
  async #entries(
    walk: Walk,
    head: Pick<ExportManifest, 'log' | 'asOf'>,
    spans: readonly IndexSpan[],
    sizes: readonly number[],
    { entries: out, events }: Spools,
  ): Promise<number> {
    const { size, checkpoint } = head.asOf;
    const writer = new EntriesWriter();
    const { signal, progress } = this.#options;
    let included = 0;
    const omitUpTo = async (to: number): Promise<void> => {
      if (writer.size === to) return;
      for (const part of cutAt({ from: writer.size, to }, sizes)) {
        out.take(await writer.omit(part.to, this.#source.nodes));
      }
      walk.pass(to);
    };
    events.take(Buffer.from(EVENTS_HEADER));
    for (const span of spans) {
      await omitUpTo(span.from);
      for await (const batch of this.#source.entries(span.from, span.to)) {
        signal?.throwIfAborted();
        let rows = '';
        for (const bytes of batch) {
          const entry = parsed(bytes, writer.size);
          const { lines, leaf } = writer.entry(bytes);
          for (const line of lines) out.take(line);
          walk.apply(entry);
          rows += eventRow(entry, leaf);
          included++;
        }
        events.take(Buffer.from(rows));
        if (out.full) await out.flush();
        if (events.full) await events.flush();
        progress?.({ phase: 'entries', done: writer.size, total: size });
      }
      if (writer.size !== span.to)
        throw fault(`the source gave entries up to ${writer.size}, not ${span.to}`);
    }
    await omitUpTo(size);
    await out.flush();
    await events.flush();
    const { root } = openCheckpoint(checkpoint, ed25519Verifier(head.log.vkey));
    if (!writer.root().equals(root)) throw fault("the entries do not give the checkpoint's root");
    return included;
  }

  /** Leaves out receipts of sessions that are not chosen; what is left has to be what the entries say was issued. */
  async #requireIssued(
    walk: Walk,
    receipts: readonly FiledReceipt[],
    spool: Spool,
  ): Promise<readonly FiledReceipt[]> {
    const kept: FiledReceipt[] = [];
    const drop: FiledReceipt[] = [];
    for (const receipt of receipts) (walk.isPart(receipt) ? kept : drop).push(receipt);
    const expected = walk.issued.filter((each) => walk.isPart(each));
    if (
      expected.length !== kept.length ||
      expected.some((each, i) => each.digest !== (kept[i] as FiledReceipt).digest)
    ) {
      throw fault(`${kept.length} receipts, and ${expected.length} that the entries say were issued`);
    }
    return drop.length === 0 ? kept : compact(spool, kept);
  }

  async #archive(of: {
    readonly head: Pick<ExportManifest, 'log' | 'project' | 'asOf'>;
    readonly counts: ExportManifest['counts'];
    readonly walk: Walk;
    readonly chosen: readonly string[];
    readonly model: ReportModel;
    readonly spools: Spools;
  }): Promise<BuiltExport> {
    const { head, counts, walk, chosen, model, spools } = of;
    const { progress, signal } = this.#options;
    const request = this.#request;
    const contents = new Map<string, Buffer | Spool>([
      ...documentsOf(model, request),
      ['keys.json', walk.keys.bytes(head.log)],
      ['chain.pem', chainFile(head.log.x5c)],
      ['checkpoint', Buffer.from(head.asOf.checkpoint)],
      ['filter.json', filterFile({ request, counts }, chosen)],
      ['entries.ndjson', spools.entries],
      ['receipts.ndjson', spools.receipts],
      ['events.csv', spools.events],
      ['sessions.csv', spools.sessions],
      ['report.pdf', spools.pdf],
    ]);
    const sizeOf = (content: Buffer | Spool): number =>
      Buffer.isBuffer(content) ? content.length : content.size;
    const total = [...contents.values()].reduce((sum, content) => sum + sizeOf(content), 0);
    const part = `${this.#path}.part`;
    const handle = await open(part, 'w+', 0o644);
    try {
      const writer = new ArchiveWriter(handle);
      const files: ManifestFile[] = [];
      let done = 0;
      const counted = async function* (content: Buffer | Spool): AsyncGenerator<Buffer> {
        for await (const block of Buffer.isBuffer(content) ? [content] : content.content()) {
          signal?.throwIfAborted();
          yield block;
          done += block.length;
          progress?.({ phase: 'archive', done, total });
        }
      };
      for (const name of filesOf(request)) {
        const content = contents.get(name) as Buffer | Spool;
        files.push(await writer.add(name, sizeOf(content), counted(content)));
      }
      const manifest: ExportManifest = { ...head, request, pages: PAGES_VERSION, files, counts };
      const payload = formatManifest(manifest);
      const envelope = await this.#source.sign(payload);
      const signed = parseDsse(envelope);
      if (signed.payloadType !== IN_TOTO || !signed.payload.equals(payload)) {
        throw fault('something else was signed than the manifest');
      }
      await writer.add(MANIFEST_FILE, envelope.length, [envelope]);
      const bytes = await writer.finish();
      await handle.sync();
      await handle.close();
      await rename(part, this.#path);
      return { manifest, bytes, model };
    } catch (error) {
      await handle.close();
      await unlink(part);
      throw error;
    }
  }
}

/** Whether a request asks for everything. */
function isEverything({ sessions, period }: ExportRequest): boolean {
  return sessions === undefined && period === undefined;
}

/** An epoch in which a chosen session is named has to be here whole, or what is stated of it does not come out. */
function requireWhole(walk: Walk, { epochs }: SelectionFacts): void {
  const whole = new Set(epochs.flatMap(({ sink, epoch, named }) => (named ? `${sink} ${epoch}` : [])));
  for (const { sink, epoch, named } of walk.epochs.values()) {
    if (named && !whole.has(`${sink} ${epoch}`)) throw fault(`epoch ${epoch} of ${sink} is not here whole`);
  }
}

function parsed(bytes: Buffer, index: number): Entry {
  try {
    return parseEntry(bytes);
  } catch (error) {
    if (error instanceof EnvelopeError) throw fault(`entry ${index} is malformed: ${error.message}`);
    throw error;
  }
}

function readSession(spool: Spool, { at, length }: FiledReceipt): SessionReceipt {
  const bytes = Buffer.allocUnsafe(length);
  readSync(spool.handle.fd, bytes, 0, length, at);
  const opened = parseAnyReceipt(bytes);
  if (opened.type !== 'session') throw fault('a receipt of no session');
  return opened.receipt;
}

/** A stream that ends in a spool. Some megabytes at most, so that the spool is flushed only when all of it is there. */
function into(spool: Spool): Writable {
  return new Writable({
    write(chunk: Buffer, _, done) {
      spool.take(chunk);
      done();
    },
  });
}

/** Moves the kept receipts to the front of the file, in their order. */
async function compact(spool: Spool, kept: readonly FiledReceipt[]): Promise<readonly FiledReceipt[]> {
  await spool.keep(kept.map(({ at, length }) => ({ at, length: length + 1 })));
  let next = 0;
  return kept.map((receipt) => {
    const at = next;
    next += receipt.length + 1;
    return { ...receipt, at };
  });
}

function fault(what: string): ExportError {
  return new ExportError('source', what);
}
