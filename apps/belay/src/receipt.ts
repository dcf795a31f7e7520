/** Receipts: fetched by an auditor, verified and read by anyone. Only `get` needs the service. */

import { open, readFile, rename, unlink } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CredentialError, parseCredential } from '@belay/contracts';
import {
  MAX_RECEIPT_BYTES,
  parseReceipt,
  type Pins,
  ReceiptError,
  type Report,
  type Verdict,
  verifyReceipt,
  verifyTlogProof,
} from '@belay/receipt';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { readConfig } from './config.js';
import { readSecretOption, vkeyOf } from './credentials.js';
import { badInput, EXIT, type ExitCode, usage } from './exit.js';
import { checkTable, print, type Style, styleFor, writeOut } from './output.js';
import { receiptPage } from './receipt-page.js';
import { connect, type ConnectionOptions, connectionOptions, ServiceProblem } from './service.js';

const EXIT_OF: Readonly<Record<Verdict, ExitCode>> = {
  VALID: EXIT.good,
  INVALID: EXIT.bad,
  INDETERMINATE: EXIT.undecided,
};

const FORMATS = {
  dsse: 'application/vnd.dsse.envelope.v1+json',
  'tlog-proof': 'text/x.tlog-proof',
} as const;
/** How a tlog-proof begins; a receipt begins with a brace. */
const TLOG_PROOF = 'c2sp.org/tlog-proof@';

const PUBLISH_POLL_MS = 200;

/** `-` is standard input. */
async function readInput(path: string): Promise<Buffer> {
  if (path !== '-') {
    const handle = await open(path, 'r');
    try {
      const stat = await handle.stat();
      if (stat.isDirectory()) throw badInput('eisdir', `${path} is a folder`);
      if (stat.size > MAX_RECEIPT_BYTES) {
        throw badInput('too_large', `${path} is larger than any receipt`);
      }
      return await handle.readFile();
    } finally {
      await handle.close();
    }
  }
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of process.stdin) {
    length += (part as Buffer).length;
    if (length > MAX_RECEIPT_BYTES) throw badInput('too_large', 'the input is larger than any receipt');
    parts.push(part as Buffer);
  }
  return Buffer.concat(parts);
}

function verifyAny(bytes: Buffer, pins: Pins): Report {
  return bytes.subarray(0, TLOG_PROOF.length).toString('latin1') === TLOG_PROOF
    ? verifyTlogProof(bytes, pins)
    : verifyReceipt(bytes, pins);
}

interface PinOptions {
  readonly key?: string;
  readonly root?: string;
}

async function pinsOf({ key, root }: PinOptions): Promise<Pins> {
  return {
    ...(key === undefined
      ? {}
      : { key: key.startsWith('@') ? (await readFile(key.slice(1), 'utf8')).trim() : key }),
    ...(root === undefined ? {} : { rootPem: await readFile(root, 'utf8') }),
    now: new Date(),
  };
}

function checked(bytes: Buffer, pins: Pins): Report {
  try {
    return verifyAny(bytes, pins);
  } catch (error) {
    if (!(error instanceof ReceiptError)) throw error;
    throw badInput(error.code, error.message, undefined, error);
  }
}

function verdictOf(verdict: Verdict, style: Style): string {
  const paint = { VALID: style.good, INVALID: style.bad, INDETERMINATE: style.warn }[verdict];
  return style.bold(paint(verdict));
}

async function verify(file: string, options: PinOptions & { readonly json?: boolean }): Promise<void> {
  const report = checked(await readInput(file), await pinsOf(options));
  process.exitCode = EXIT_OF[report.verdict];
  const style = styleFor(readConfig());
  await print(
    options.json,
    report,
    () => `${checkTable(report.checks, style)}\n${verdictOf(report.verdict, style)}\n`,
  );
}

async function show(file: string, options: PinOptions & { readonly json?: boolean }): Promise<void> {
  const bytes = await readInput(file);
  let receipt;
  try {
    receipt = parseReceipt(bytes);
  } catch (error) {
    if (!(error instanceof ReceiptError)) throw error;
    throw badInput('malformed', `not a receipt: ${error.message}`, undefined, error);
  }
  const pinned = options.key !== undefined || options.root !== undefined;
  const report = pinned ? checked(bytes, await pinsOf(options)) : undefined;
  if (report) process.exitCode = EXIT_OF[report.verdict];
  const style = styleFor(readConfig());
  const { predicate } = JSON.parse(
    Buffer.from((JSON.parse(bytes.toString('utf8')) as { payload: string }).payload, 'base64').toString(
      'utf8',
    ),
  ) as { predicate: object };
  await print(options.json, { verdict: report?.verdict ?? 'NOT CHECKED', ...predicate }, () =>
    receiptPage(receipt, report, style),
  );
}

interface GetOptions extends ConnectionOptions {
  readonly event?: number;
  readonly range?: readonly [first: number, last: number];
  readonly project?: string;
  readonly auditorKey?: string;
  readonly format: keyof typeof FORMATS;
  readonly out?: string;
  readonly wait: number;
}

async function get(options: GetOptions): Promise<void> {
  if ((options.event === undefined) === (options.range === undefined)) {
    throw usage('one of --event N and --range FIRST..LAST');
  }
  if (options.format === 'tlog-proof' && options.event === undefined) {
    throw usage('a tlog-proof is for one event: --event N');
  }
  if (options.json && options.out === undefined) {
    throw usage('--json describes the receipt, so the receipt itself needs --out FILE');
  }
  const config = readConfig();
  const given = options.auditorKey ?? config.auditorKey;
  if (given === undefined)
    throw usage('needs a key: --auditor-key KEY, or BELAY_AUDITOR_KEY in the environment');
  const key = await readSecretOption(given);
  let auditor;
  try {
    auditor = parseCredential(key, 'auditor');
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error;
    throw badInput('credential', `the auditor key: ${error.message}`, 'Paste the key again, whole.', error);
  }
  const service = await connect(config, options, key);
  const project = encodeURIComponent(options.project ?? auditor.project);
  const scope =
    options.range === undefined ? `event=${options.event}` : `range=${options.range[0]}..${options.range[1]}`;
  const path = `/v1/projects/${project}/receipts?${scope}`;

  // An entry appended a moment ago is covered by the next checkpoint, about a second away.
  const until = Date.now() + options.wait * 1_000;
  let bytes: Buffer | undefined;
  while (bytes === undefined) {
    try {
      bytes = await service.bytes(path, FORMATS[options.format]);
    } catch (error) {
      const early = error instanceof ServiceProblem && error.code === 'not_published' && Date.now() < until;
      if (!early) throw error;
      await sleep(PUBLISH_POLL_MS);
    }
  }
  // The auditor key pins the log's key, so what comes back is checked before anyone is told that it is a receipt.
  const pin = vkeyOf(auditor);
  const report = checked(bytes, { key: pin, now: new Date() });
  process.exitCode = EXIT_OF[report.verdict];
  if (options.out === undefined) await writeOut(bytes.toString('utf8'));
  else await writeWhole(options.out, bytes);
  const style = styleFor(config);
  if (options.out !== undefined) {
    await print(
      options.json,
      { verdict: report.verdict, file: options.out, bytes: bytes.length, key: pin, checks: report.checks },
      () =>
        `${options.out}: ${bytes.length} bytes, ${verdictOf(report.verdict, style)} against the key pinned by the auditor key\n` +
        `\nAnyone can check it, offline: belay receipt verify ${options.out} --key ${pin}\n`,
    );
  }
  if (report.verdict !== 'VALID') process.stderr.write(checkTable(report.checks, style));
}

/** A crash leaves the file as it was or whole. */
async function writeWhole(path: string, bytes: Buffer): Promise<void> {
  const fresh = `${path}.${process.pid}.new`;
  const handle = await open(fresh, 'wx', 0o644);
  try {
    await handle.writeFile(bytes);
    await handle.close();
    await rename(fresh, path);
  } catch (error) {
    await handle.close().catch(() => undefined);
    await unlink(fresh).catch(() => undefined);
    throw error;
  }
}

function number(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new InvalidArgumentError('not a number.');
  return value;
}

function range(text: string): readonly [number, number] {
  const [, first, last] = /^(\d+)\.\.(\d+)$/.exec(text) ?? [];
  if (first === undefined || last === undefined) throw new InvalidArgumentError('such as 12..40.');
  const ends = [number(first), number(last)] as const;
  if (ends[1] < ends[0]) throw new InvalidArgumentError('ends before it begins.');
  return ends;
}

const pinOptions = (command: Command): Command =>
  command
    .option('--key <vkey>', "the log's verifier key, or @FILE, from somewhere you trust")
    .option('--root <file>', 'root certificate (PEM) that vouches for the key of the log')
    .option('--json', 'print one JSON document');

export function register(program: Command): void {
  const receipt = program.command('receipt').description('get, verify and read receipts');
  connectionOptions(receipt.command('get'))
    .description('fetch a receipt for one event or a range')
    .option('--event <index>', 'index of one entry', number)
    .option('--range <first..last>', 'indexes of the first and the last entry', range)
    .option('--project <id>', 'which project (default: that of the auditor key)')
    .option('--auditor-key <key>', 'auditor key, or @FILE (BELAY_AUDITOR_KEY)')
    .addOption(new Option('--format <format>', 'what to fetch').choices(Object.keys(FORMATS)).default('dsse'))
    .option('--out <file>', 'where to write it (default: standard output)')
    .option('--wait <seconds>', 'how long to wait for the checkpoint that covers it', number, 10)
    .action(get);
  pinOptions(receipt.command('verify'))
    .description('check a receipt or tlog-proof, offline; names each check')
    .argument('<file>', 'the receipt; - for standard input')
    .addHelpText(
      'after',
      '\nEnds in VALID (exit 0), INVALID (1) or INDETERMINATE (2). Without --key or --root nothing is VALID:\n' +
        'anyone can make a log and call it by any name.',
    )
    .action(verify);
  pinOptions(receipt.command('show'))
    .description('a receipt as a page to read; checked too when --key or --root is given')
    .argument('<file>', 'the receipt; - for standard input')
    .action(show);
}
