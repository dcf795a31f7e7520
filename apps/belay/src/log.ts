/** Reading a log as an auditor or a stranger does, and checking its database whole on the service's machine. */

import { readFile } from 'node:fs/promises';
import { parseCredential, CredentialError } from '@belay/contracts';
import type {
  ConsistencyProofReply,
  CredentialInfo,
  InclusionProofReply,
  LogKeys,
} from '@belay/contracts/http';
import { MerkleError, verifyConsistency, verifyInclusion } from '@belay/merkle';
import { type Checkpoint, ed25519Verifier, NoteError, type NoteVerifier, openCheckpoint } from '@belay/note';
import { type Command, InvalidArgumentError } from 'commander';
import { type CliConfig, readConfig } from './config.js';
import { readSecretOption, vkeyOf } from './credentials.js';
import { badInput, EXIT, usage } from './exit.js';
import { auditLog } from './log-audit.js';
import { checkTable, print, printable, styleFor } from './output.js';
import { connect, type ConnectionOptions, connectionOptions, type Service } from './service.js';

const NOTE = 'text/plain';
const OCTETS = 'application/octet-stream';
/** A note has at most a hundred signature lines; a file that is larger is no checkpoint. */
const MAX_NOTE_FILE = 1_048_576;

interface ReadOptions extends ConnectionOptions {
  readonly log?: string;
  readonly key?: string;
  readonly auditorKey?: string;
}

/** Options of a command that reads one log. */
export function readingOptions(command: Command): Command {
  return connectionOptions(command)
    .option('--log <id>', 'which log (default: that of the auditor key)')
    .option('--key <vkey>', "the log's verifier key (default: as pinned by the auditor key)")
    .option('--auditor-key <key>', 'auditor key, or @FILE; not needed for a public log (BELAY_AUDITOR_KEY)');
}

interface OpenLog {
  readonly service: Service;
  /** Where the log's files are, below the service's address. */
  readonly prefix: string;
  /** Pinned by the caller, never learned from the service itself. */
  readonly verifier: NoteVerifier;
  readonly vkey: string;
}

async function openLog(config: CliConfig, options: ReadOptions): Promise<OpenLog> {
  const given = options.auditorKey ?? config.auditorKey;
  const auditorKey = given === undefined ? undefined : await readSecretOption(given);
  const vkey = options.key ?? (auditorKey === undefined ? undefined : pinnedBy(auditorKey));
  const service = await connect(config, options, auditorKey);
  const log = options.log ?? (auditorKey === undefined ? undefined : await logOf(service));
  if (log === undefined) {
    throw usage('which log? Give --auditor-key KEY, or --log ID and --key VKEY for a public log.');
  }
  if (vkey === undefined) {
    const { vkey: claimed } = await service.json<LogKeys>('GET', `/v1/logs/${encodeURIComponent(log)}/keys`);
    throw usage(
      'needs --key VKEY: a log checked with a key that it names itself proves nothing',
      `The service says its key is ${claimed}; compare it with what you were given.`,
    );
  }
  return {
    service,
    prefix: `/v1/logs/${encodeURIComponent(log)}`,
    verifier: verifierOf(vkey),
    vkey,
  };
}

function pinnedBy(auditorKey: string): string {
  try {
    return vkeyOf(parseCredential(auditorKey, 'auditor'));
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error;
    throw badInput('credential', `the auditor key: ${error.message}`, 'Paste the key again, whole.', error);
  }
}

export function verifierOf(vkey: string): NoteVerifier {
  try {
    return ed25519Verifier(vkey);
  } catch (error) {
    if (!(error instanceof NoteError)) throw error;
    throw badInput(
      'vkey',
      `not a verifier key: ${error.message}`,
      'It looks like NAME+8 HEX DIGITS+BASE64.',
      error,
    );
  }
}

async function logOf(service: Service): Promise<string> {
  const { log } = await service.json<CredentialInfo>('GET', '/v1/token');
  if (log === undefined) throw usage('this key does not belong to a log; give --log ID');
  return log;
}

async function checkpoint(options: ReadOptions): Promise<void> {
  const { service, prefix, verifier } = await openLog(readConfig(), options);
  const note = await service.bytes(`${prefix}/checkpoint`, NOTE);
  try {
    const { origin, size, root } = openCheckpoint(note, verifier);
    const text = note.toString('utf8');
    await print(
      options.json,
      { verdict: 'VALID', origin, size: Number(size), root: root.toString('base64'), checkpoint: text },
      () => text,
    );
  } catch (error) {
    if (!(error instanceof NoteError)) throw error;
    process.exitCode = EXIT.bad;
    await print(
      options.json,
      { verdict: 'INVALID', reason: error.message, checkpoint: note.toString('utf8') },
      () => `INVALID: ${error.message}\n`,
    );
  }
}

interface ProofOptions extends ReadOptions {
  readonly index?: number;
  readonly from?: string;
}

interface Proven {
  readonly subject: string;
  readonly proof: InclusionProofReply | ConsistencyProofReply;
  /** Throws MerkleError. */
  readonly check: () => void;
}

/** A proof and the signed checkpoint it leads to, checked before it is shown. */
async function proof(options: ProofOptions): Promise<void> {
  if ((options.index === undefined) === (options.from === undefined)) {
    throw usage('one of --index N (is this entry in the log?) and --from FILE (did the log only grow?)');
  }
  const kept = options.from === undefined ? undefined : await readKept(options.from);
  const log = await openLog(readConfig(), options);
  try {
    const head = openCheckpoint(await log.service.bytes(`${log.prefix}/checkpoint`, NOTE), log.verifier);
    const proven =
      kept === undefined
        ? await inclusion(log, head, options.index as number)
        : await consistency(log, head, openCheckpoint(kept, log.verifier));
    proven.check();
    await print(
      options.json,
      { verdict: 'VALID', subject: proven.subject, proof: proven.proof },
      () => `${proven.proof.hashes.map((hash) => `${hash}\n`).join('')}VALID: ${proven.subject}\n`,
    );
  } catch (error) {
    if (!(error instanceof MerkleError || error instanceof NoteError)) throw error;
    process.exitCode = EXIT.bad;
    const { message } = error;
    await print(options.json, { verdict: 'INVALID', reason: message }, () => `INVALID: ${message}\n`);
  }
}

const decoded = (hashes: readonly string[]): Buffer[] => hashes.map((hash) => Buffer.from(hash, 'base64'));

async function inclusion(log: OpenLog, head: Checkpoint, index: number): Promise<Proven> {
  const path = `${log.prefix}/proof?index=${index}&size=${head.size}`;
  const reply = await log.service.json<InclusionProofReply>('GET', path);
  return {
    subject: `entry ${index}, leaf ${reply.leaf}, is in the tree of ${head.size} entries`,
    proof: reply,
    check: () =>
      verifyInclusion({
        index: BigInt(index),
        size: head.size,
        leaf: Buffer.from(reply.leaf, 'base64'),
        proof: decoded(reply.hashes),
        root: head.root,
      }),
  };
}

async function consistency(log: OpenLog, head: Checkpoint, kept: Checkpoint): Promise<Proven> {
  const path = `${log.prefix}/proof?from=${kept.size}&size=${head.size}`;
  const reply = await log.service.json<ConsistencyProofReply>('GET', path);
  return {
    subject: `the tree of ${head.size} entries begins with the ${kept.size} of the kept checkpoint`,
    proof: reply,
    check: () =>
      verifyConsistency({
        size1: kept.size,
        size2: head.size,
        root1: kept.root,
        root2: head.root,
        proof: decoded(reply.hashes),
      }),
  };
}

interface VerifyOptions extends ReadOptions {
  readonly kept?: string;
}

async function verify(options: VerifyOptions): Promise<void> {
  const config = readConfig();
  const kept = options.kept === undefined ? undefined : await readKept(options.kept);
  const { service, prefix, verifier } = await openLog(config, options);
  const showsProgress = config.colour && !options.json;
  const audit = await auditLog(
    {
      checkpoint: () => service.bytes(`${prefix}/checkpoint`, NOTE),
      file: (path) => service.bytes(`${prefix}/${path}`, OCTETS),
    },
    verifier,
    kept,
    (done, size) => {
      if (showsProgress) process.stderr.write(`\r${done} of ${size} entries`);
    },
  );
  if (showsProgress) process.stderr.write('\r\u001b[K');
  if (audit.verdict !== 'VALID') process.exitCode = EXIT.bad;
  const style = styleFor(config);
  await print(
    options.json,
    audit,
    () => `${audit.origin}\n\n${checkTable(audit.checks, style)}\n${audit.verdict}\n`,
  );
}

async function readKept(path: string): Promise<Buffer> {
  const bytes = await readFile(path);
  if (bytes.length > MAX_NOTE_FILE) throw badInput('too_large', `${path} is too big for a checkpoint`);
  return bytes;
}

interface FsckOptions {
  readonly data?: string;
  readonly databaseUrl?: string;
  readonly anchor?: string;
  readonly json?: boolean;
}

/** Everything in the database against everything that was signed, by the same checker that the tests run. */
async function fsck(options: FsckOptions): Promise<void> {
  const config = readConfig();
  const databaseUrl = options.databaseUrl ?? (options.data === undefined ? config.databaseUrl : undefined);
  // Loaded here: the other commands of a log need no PostgreSQL.
  const { fsck: check } = await import('./fsck.js');
  const report = await check(
    databaseUrl === undefined ? { data: options.data ?? '.belay' } : { databaseUrl },
    options.anchor,
    (origin, done, size) => {
      if (config.colour && !options.json)
        process.stderr.write(`\r${origin}: ${done} of ${size} entries\u001b[K`);
    },
  );
  if (config.colour && !options.json) process.stderr.write('\r\u001b[K');
  if (report.verdict !== 'CLEAN') process.exitCode = EXIT.bad;
  const style = styleFor(config);
  await print(options.json, report, () => {
    const lines = report.logs.flatMap(({ origin, size, tiles, checkpoints, findings, more }) => [
      `${findings.length === 0 ? style.good('ok  ') : style.bad('FAIL')}  ${origin}: ` +
        `${size} entries, ${tiles} tiles, ${checkpoints} checkpoints\n`,
      ...findings.map(
        ({ code, index, message }) =>
          `      ${code}${index === undefined ? '' : ` at entry ${index}`}: ${printable(message)}\n`,
      ),
      ...(more > 0 ? [`      and ${more} more\n`] : []),
    ]);
    return `${lines.join('')}${report.verdict}\n`;
  });
}

function integer(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new InvalidArgumentError('not a number.');
  return value;
}

export function register(program: Command): void {
  const log = program.command('log').description('read and check a log');
  readingOptions(log.command('checkpoint'))
    .description('the newest published checkpoint, its signature checked')
    .action(checkpoint);
  readingOptions(log.command('proof'))
    .description('an inclusion or consistency proof, checked against the newest checkpoint')
    .option('--index <n>', 'that this entry is in the log', integer)
    .option('--from <file>', 'that the log only grew since this kept checkpoint')
    .action(proof);
  readingOptions(log.command('verify'))
    .description('read the whole log and recompute what its checkpoint claims')
    .option('--kept <file>', 'a checkpoint kept from earlier, which the log must still contain')
    .action(verify);
  log
    .command('fsck')
    .description('check the database whole, changing nothing; on the machine of the service')
    .option('--data <dir>', 'data folder of a stopped `belay serve` (default: ./.belay)')
    .option('--database-url <url>', 'a PostgreSQL, while the service runs or not (DATABASE_URL)')
    .option('--anchor <dir>', 'folder of the anchor to compare with (default with --data: its own)')
    .option('--json', 'print one JSON document')
    .action(fsck);
}
