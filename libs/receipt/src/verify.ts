import { createHash } from 'node:crypto';
import { canonical, type Entry, parseEntry } from '@belay/envelope';
import { entryBundle, leafHash, verifyRange } from '@belay/merkle';
import { type Checkpoint, ed25519Verifier, type NoteVerifier, openCheckpoint } from '@belay/note';
import { authorityOf } from './authority.js';
import { chainFaultAt, type ReadChain, readChain } from './chain.js';
import { dispositionOf } from './disposition.js';
import { type DsseEnvelope, IN_TOTO, parseDsse, preAuthEncoding } from './dsse.js';
import { ReceiptError } from './error.js';
import { type LogIdentity, type Payload, parsePayload, type PublishedHead, type Subject } from './payload.js';
import { PERIOD_RECEIPT_TYPE, type PeriodReceipt, readPeriodReceipt } from './period-receipt.js';
import { aboutOtherKey, type Pins, parsePins } from './pins.js';
import { Checks, type Report } from './report.js';
import { readSessionReceipt, SESSION_RECEIPT_TYPE, type SessionReceipt } from './session-receipt.js';
import { MAX_RECEIPT_BYTES, readReceipt, type Receipt, scopeRange, subjectName } from './statement.js';

/** The checks of a receipt for an event or a range, in their order. */
export const RECEIPT_CHECKS = [
  'envelope',
  'payload-type',
  'statement',
  'trust',
  'signature',
  'checkpoint',
  'entries',
  'scope',
  'subject',
  'proof',
  'chain',
  'authority',
  'disposition',
  'issuers',
  'time',
] as const;

/** The checks of a receipt for a session or a period, in their order. */
export const SESSION_RECEIPT_CHECKS = [
  'envelope',
  'payload-type',
  'statement',
  'trust',
  'signature',
  'checkpoint',
  'chain',
  'evidence',
  'time',
] as const;

export type ReceiptCheck = (typeof RECEIPT_CHECKS)[number] | (typeof SESSION_RECEIPT_CHECKS)[number];

/** How far a reader's clock may be behind before a receipt, or an export, is from the future; milliseconds. */
export const CLOCK_TOLERANCE = 5 * 60 * 1_000;

/** Notes and chains that a verifier remembers; past that, it begins anew. */
const MAX_REMEMBERED = 4_096;

/** A receipt by what it is for. */
export type AnyReceipt =
  | { readonly type: 'entries'; readonly receipt: Receipt }
  | { readonly type: 'session'; readonly receipt: SessionReceipt }
  | { readonly type: 'period'; readonly receipt: PeriodReceipt };

/** What a verification found, and what the receipt claims where its form allowed to read it. */
export interface Examined {
  readonly report: Report<ReceiptCheck>;
  readonly opened?: AnyReceipt | undefined;
}

/** Verifies a receipt offline. Runs every check that can be run and reports all of them; throws only for bad pins. */
export function verifyReceipt(bytes: Uint8Array, pins: Pins = {}): Report<ReceiptCheck> {
  return new ReceiptVerifier(pins).examine(bytes).report;
}

/** The receipt of an event or a range, if every check is ok; throws ReceiptError `invalid` or `indeterminate` otherwise. */
export function openReceipt(bytes: Uint8Array, pins: Pins): Receipt {
  const { report, opened } = new ReceiptVerifier(pins).examine(bytes);
  if (report.verdict === 'VALID' && opened?.type === 'entries') return opened.receipt;
  const reasons = report.checks
    .filter(({ status }) => status !== 'ok')
    .map(({ name, detail }) => `${name}: ${detail}`)
    .join('; ');
  throw new ReceiptError(report.verdict === 'INVALID' ? 'invalid' : 'indeterminate', reasons);
}

/**
 * What a receipt of any kind claims, without verifying any of it: to show a person, never to act on. Throws
 * ReceiptError `malformed`.
 */
export function parseAnyReceipt(bytes: Uint8Array): AnyReceipt {
  requireSize(bytes);
  return readAny(parsePayload(parseDsse(view(bytes)).payload));
}

/** `parseAnyReceipt` where only a receipt of an event or a range will do. */
export function parseReceipt(bytes: Uint8Array): Receipt {
  const read = parseAnyReceipt(bytes);
  if (read.type === 'entries') return read.receipt;
  throw new ReceiptError('malformed', `a receipt of a ${read.type}`);
}

function readAny(payload: Payload): AnyReceipt {
  switch (payload.predicateType) {
    case SESSION_RECEIPT_TYPE:
      return { type: 'session', receipt: readSessionReceipt(payload) };
    case PERIOD_RECEIPT_TYPE:
      return { type: 'period', receipt: readPeriodReceipt(payload) };
    default:
      return { type: 'entries', receipt: readReceipt(payload) };
  }
}

/**
 * Verifies receipts against the same pins. What many receipts of one log share (its key, its certificates, the heads
 * they stand on) is looked at once.
 */
export class ReceiptVerifier {
  readonly #pins: Pins;
  readonly #pinned: ReturnType<typeof parsePins>;
  readonly #keys = new Map<string, NoteVerifier>();
  readonly #chains = new Map<string, ReadChain>();
  readonly #checkpoints = new Map<string, Checkpoint>();

  /** Throws ReceiptError `pin`. */
  constructor(pins: Pins = {}) {
    this.#pins = pins;
    this.#pinned = parsePins(pins);
  }

  /**
   * Runs every check that can be run. Of a receipt for a session or a period, `evidence` stays undecided: whoever has
   * the entries derives it again, and says so with `decided`.
   */
  examine(bytes: Uint8Array): Examined {
    const checks = new Checks<ReceiptCheck>(RECEIPT_CHECKS);
    let envelope: DsseEnvelope | undefined;
    checks.run('envelope', () => {
      requireSize(bytes);
      envelope = parseDsse(view(bytes));
      return 'canonical DSSE envelope with one signature';
    });
    if (envelope === undefined) return { report: checks.report() };
    const { payload, payloadType } = envelope;
    checks.run('payload-type', () => {
      if (payloadType !== IN_TOTO) throw new ReceiptError('malformed', `not ${IN_TOTO}`);
      return payloadType;
    });
    let opened: AnyReceipt | undefined;
    let subject: Subject | undefined;
    checks.run('statement', () => {
      const parsed = parsePayload(payload);
      const { predicateType } = parsed;
      if (predicateType === SESSION_RECEIPT_TYPE || predicateType === PERIOD_RECEIPT_TYPE) {
        checks.rename(SESSION_RECEIPT_CHECKS);
      }
      opened = readAny(parsed);
      ({ subject } = parsed);
      return `canonical in-toto statement of a ${NAMES[opened.type]}, version 1`;
    });
    if (opened === undefined || subject === undefined) return { report: checks.report() };
    const { log, asOf } = opened.receipt;
    const root = this.#examineLog(envelope, log, asOf, checks);
    if (opened.type === 'entries') examineEntries(opened.receipt, subject, root, checks);
    else {
      const detail = undecidedEvidence(opened);
      checks.run('evidence', () => ({ status: 'undecided', detail }));
    }
    this.#examineTime(asOf, checks);
    return { report: checks.report(), opened };
  }

  /** Signature, certificates, pins and checkpoint. Returns the root of the signed head, if it is one. */
  #examineLog(
    { payload, payloadType, keyId, signature }: DsseEnvelope,
    log: LogIdentity,
    asOf: PublishedHead,
    checks: Checks<ReceiptCheck>,
  ): Buffer | undefined {
    let logKey: NoteVerifier | undefined;
    checks.run('signature', () => {
      logKey = this.#keyOf(log.vkey);
      if (logKey.name !== log.origin)
        throw new ReceiptError('invalid', 'the key named is not that of the log named');
      if (keyId !== logKey.keyId)
        throw new ReceiptError('invalid', 'the signature is by another key than the one named');
      if (!logKey.verify(preAuthEncoding(payloadType, payload), signature)) {
        throw new ReceiptError('invalid', 'the signature does not verify');
      }
      return `signed by ${log.vkey}`;
    });

    let chain: string | undefined = 'not examined';
    checks.run('chain', () => {
      if (logKey === undefined) throw new ReceiptError('invalid', 'the key named is not one');
      chain = chainFaultAt(this.#chainOf(log, logKey.key), new Date(asOf.time));
      if (chain !== undefined) throw new ReceiptError('invalid', chain);
      return `certificates from the root to ${log.origin}, valid at ${asOf.time}`;
    });

    checks.run('trust', () => {
      const { key, root } = this.#pinned;
      const { origin, key: vkey } = this.#pins;
      if (origin !== undefined && origin !== log.origin) {
        throw new ReceiptError('invalid', `the receipt is of ${log.origin}, not of the log expected`);
      }
      if (vkey !== undefined && vkey !== log.vkey) {
        throw new ReceiptError(
          'invalid',
          `the receipt is by ${log.vkey}, not by the key pinned; ${aboutOtherKey(vkey, log.origin)}`,
        );
      }
      if (root !== undefined) {
        if (chain !== undefined || !log.x5c.at(-1)?.equals(root.raw)) {
          throw new ReceiptError('invalid', 'the certificates do not lead to the root pinned');
        }
      }
      if (key !== undefined) return "the log's key is the one pinned";
      if (root !== undefined) return `the root pinned vouches for the key of ${log.origin}`;
      return {
        status: 'undecided',
        detail: `no key is pinned: anyone can make a log that calls itself ${log.origin}`,
      };
    });

    let head: Buffer | undefined;
    checks.run('checkpoint', () => {
      const checkpoint = this.#checkpointOf(log, asOf);
      if (checkpoint.size !== BigInt(asOf.size)) {
        throw new ReceiptError('invalid', `the checkpoint is for size ${checkpoint.size}, not ${asOf.size}`);
      }
      if (checkpoint.origin !== log.origin)
        throw new ReceiptError('invalid', 'the checkpoint is of another log');
      head = checkpoint.root;
      return `signed head of ${asOf.size} entries`;
    });
    return head;
  }

  #examineTime(asOf: PublishedHead, checks: Checks<ReceiptCheck>): void {
    checks.run('time', () => {
      const { now } = this.#pins;
      if (now === undefined) return 'not compared with a clock';
      if (Date.parse(asOf.time) <= now.getTime() + CLOCK_TOLERANCE) return `published at ${asOf.time}`;
      return {
        status: 'undecided',
        detail: `published at ${asOf.time}, which by this machine's clock has yet to come`,
      };
    });
  }

  #keyOf(vkey: string): NoteVerifier {
    return remembered(this.#keys, vkey, () => ed25519Verifier(vkey));
  }

  #chainOf({ origin, vkey, x5c }: LogIdentity, key: Buffer): ReadChain {
    const name = [vkey, ...x5c.map((der) => der.toString('base64'))].join(' ');
    return remembered(this.#chains, name, () => readChain(x5c, { origin, key }));
  }

  /** Only signed notes are remembered: what throws is looked at each time. */
  #checkpointOf({ vkey }: LogIdentity, { checkpoint }: PublishedHead): Checkpoint {
    return remembered(this.#checkpoints, `${vkey} ${checkpoint}`, () =>
      openCheckpoint(checkpoint, this.#keyOf(vkey)),
    );
  }
}

const NAMES = { entries: 'receipt', session: 'session receipt', period: 'period receipt' } as const;

function undecidedEvidence(opened: Exclude<AnyReceipt, { readonly type: 'entries' }>): string {
  const [count, one, several] =
    opened.type === 'session'
      ? [opened.receipt.evidence.entries, 'its one entry is', 'its N entries are']
      : [opened.receipt.sessions.count, 'the one session it counts is', 'the N sessions it counts are'];
  return `${count === 1 ? one : several.replace('N', String(count))} not in this file: an export brings them`;
}

function remembered<T>(known: Map<string, T>, name: string, look: () => T): T {
  const found = known.get(name);
  if (found !== undefined) return found;
  const fresh = look();
  if (known.size >= MAX_REMEMBERED) known.clear();
  known.set(name, fresh);
  return fresh;
}

/** What only a receipt that brings its entries can show. */
function examineEntries(
  receipt: Receipt,
  subject: Subject,
  root: Buffer | undefined,
  checks: Checks<ReceiptCheck>,
): void {
  const { scope, log, asOf, proof } = receipt;
  const range = scopeRange(scope);
  let entries: Entry[] | undefined;
  checks.run('entries', () => {
    entries = parseEntries(receipt);
    return `${entries.length} well-formed, in sequence, of this log`;
  });

  checks.run('scope', () => {
    if (receipt.entries.length !== range.count || range.count === 0) {
      throw new ReceiptError('invalid', `${receipt.entries.length} entries for a scope of ${range.count}`);
    }
    if (range.first + range.count > asOf.size)
      throw new ReceiptError('invalid', 'the scope ends after the log');
    return scope.type === 'event'
      ? `event ${range.first}`
      : `events ${range.first} to ${range.first + range.count - 1}`;
  });

  checks.run('subject', () => {
    if (subject.name !== subjectName(log.origin, scope))
      throw new ReceiptError('invalid', 'the subject has another name');
    if (subject.sha256 !== bundleDigest(receipt.entries)) {
      throw new ReceiptError('invalid', 'the digest is not that of the entries');
    }
    return `sha256 ${subject.sha256} of the entry bundle`;
  });

  if (root !== undefined) {
    const signed = root;
    checks.run('proof', () => {
      verifyRange({
        index: BigInt(range.first),
        size: BigInt(asOf.size),
        leaves: receipt.entries.map(leafHash),
        left: proof.left,
        right: proof.right,
        root: signed,
      });
      return "the entries and the proof give the checkpoint's root";
    });
  }

  if (entries !== undefined) {
    const all = entries;
    checks.run('authority', () => {
      const stated = {
        level: receipt.authority.level,
        by: receipt.authority.by.map((witness) => ({ ...witness, domain: undefined })),
      };
      const derived = authorityOf(all);
      if (canonical(derived) !== canonical(stated)) {
        throw new ReceiptError('invalid', 'the authority stated is not what the entries rest on');
      }
      return `${derived.level}, by ${derived.by.length === 1 ? 'one source' : `${derived.by.length} sources`}`;
    });
    checks.run('disposition', () => {
      const derived = dispositionOf(all);
      if (canonical(derived) !== canonical(receipt.disposition)) {
        throw new ReceiptError('invalid', 'the disposition stated is not what the entries show');
      }
      return derived.status;
    });
    checks.run('issuers', () => {
      requireIssuers(receipt, all);
      return receipt.issuers.length === 0
        ? 'no entry was sent with a token'
        : `${receipt.issuers.length} named, one for each token`;
    });
  }
}

/** The entries, each well-formed, of this log, in sequence from the scope's first, with times that never go back. */
function parseEntries(receipt: Receipt): Entry[] {
  const { scope, log } = receipt;
  let { first: index } = scopeRange(scope);
  let received = '';
  return receipt.entries.map((bytes) => {
    const entry = parseEntry(bytes);
    const at = `entry ${index}`;
    if (entry.line.index !== index) throw new ReceiptError('invalid', `${at} says it is ${entry.line.index}`);
    if (entry.line.log !== log.origin) throw new ReceiptError('invalid', `${at} is of another log`);
    // Fixed width and zone, so text order is time order.
    if (entry.line.received < received)
      throw new ReceiptError('invalid', `${at} was received before the one before`);
    if (entry.line.conflict !== undefined && entry.line.conflict >= index) {
      throw new ReceiptError('invalid', `${at} conflicts with a later one`);
    }
    const genesis =
      entry.by === 'collector' && entry.statement.kind === 'log.genesis' ? entry.statement : undefined;
    if ((genesis !== undefined) !== (index === 0)) {
      throw new ReceiptError('invalid', 'a log begins with its genesis entry, and has one');
    }
    if (genesis !== undefined && genesis.vkey !== log.vkey) {
      throw new ReceiptError('invalid', 'the genesis entry names another key');
    }
    received = entry.line.received;
    index++;
    return entry;
  });
}

/** One issuer for each token, in the order of the tokens' first entries, and as the entry says if it is here. */
function requireIssuers(receipt: Receipt, entries: readonly Entry[]): void {
  const tokens = new Set<string>();
  for (const { line } of entries) if (line.token !== undefined) tokens.add(line.token);
  const named = receipt.issuers.map(({ token }) => token);
  if (canonical([...tokens]) !== canonical(named)) {
    throw new ReceiptError('invalid', 'the issuers are not those of the tokens in the entries');
  }
  const { first } = scopeRange(receipt.scope);
  for (const { token, issuedBy, index } of receipt.issuers) {
    if (index >= receipt.asOf.size)
      throw new ReceiptError('invalid', 'a token was issued after the log ends');
    const entry = entries[index - first];
    if (entry === undefined) continue;
    const statement = entry.by === 'collector' ? entry.statement : undefined;
    if (statement?.kind !== 'token.issued' || statement.token !== token || statement.by !== issuedBy) {
      throw new ReceiptError('invalid', `entry ${index} does not issue ${token}`);
    }
  }
}

/** SHA-256, in lower-case hex, over the entry bundle. */
export function bundleDigest(entries: readonly Buffer[]): string {
  return createHash('sha256').update(entryBundle(entries)).digest('hex');
}

function requireSize(bytes: Uint8Array): void {
  if (bytes.length > MAX_RECEIPT_BYTES) throw new ReceiptError('malformed', 'larger than any receipt');
}

function view(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
