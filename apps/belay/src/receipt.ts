/** Receipts: fetched by an auditor, verified and read by anyone. Only `get` needs the service. */

import { open, readFile } from 'node:fs/promises';
import {
  type AnyReceipt,
  MAX_RECEIPT_BYTES,
  parseAnyReceipt,
  parsePins,
  type Pins,
  ReceiptError,
  type Report,
} from '@belay/receipt';
import type { Command } from 'commander';
import { readConfig } from './config.js';
import { badInput } from './exit.js';
import { checkTable, print, printable, type Style, styleFor } from './output.js';
import { checked, EXIT_OF, folded, verdictOf } from './receipt-check.js';
import { register as registerGet } from './receipt-get.js';
import { receiptPage } from './receipt-page.js';
import { periodPage, reasonsOf, sessionPage } from './session-page.js';

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

interface PinOptions {
  readonly key?: string;
  readonly root?: string;
}

async function pinsOf({ key, root }: PinOptions): Promise<Pins> {
  const pins: Pins = {
    ...(key === undefined
      ? {}
      : { key: key.startsWith('@') ? (await readFile(key.slice(1), 'utf8')).trim() : key }),
    ...(root === undefined ? {} : { rootPem: await readFile(root, 'utf8') }),
    now: new Date(),
  };
  try {
    parsePins(pins);
  } catch (error) {
    if (!(error instanceof ReceiptError)) throw error;
    throw badInput(
      error.code,
      error.message,
      'For a key in a file: --key @FILE; for a certificate: --root FILE',
      error,
    );
  }
  return pins;
}

/** One of them is in every receipt and tlog-proof, and in those that were changed somewhere. */
const MARKS = ['"payloadType"', '"signatures"', 'tlog-proof@', '\nindex '];

/** Refuses what is no receipt at all: nobody changed it, somebody took the wrong file. */
function requireReceipt(file: string, bytes: Buffer): void {
  const name = file === '-' ? 'the input' : file;
  if (bytes.length === 0) throw badInput('empty', `${name} is empty`);
  if (bytes.subarray(0, 1).toString('latin1') === '{' || MARKS.some((mark) => bytes.includes(mark))) return;
  throw badInput(
    'not_a_receipt',
    `${name} is neither a receipt nor an export: it begins with ${JSON.stringify(printable(bytes.subarray(0, 16).toString('utf8')))}`,
    'A receipt is one line of JSON that begins with {, an export is a zip as it was downloaded',
  );
}

/** What the receipt claims, if it can be read. */
function read(bytes: Buffer): AnyReceipt | undefined {
  try {
    return parseAnyReceipt(bytes);
  } catch (error) {
    if (error instanceof ReceiptError) return undefined;
    throw error;
  }
}

/** What to do about a receipt that is not of entries: they are where it is decided. */
function adviceFor(read: AnyReceipt | undefined, { verdict }: Report): string {
  if (verdict !== 'INDETERMINATE' || read === undefined || read.type === 'entries') return '';
  const { scope } = read.receipt;
  const what =
    scope.type === 'session' ? `--session ${scope.session}` : `--from ${scope.from} --to ${scope.to}`;
  return (
    'What it claims is signed. Whether its entries come to that, an export of them decides:\n' +
    `belay export create ${what} --out FILE.zip, then belay receipt verify FILE.zip --key VKEY\n`
  );
}

const paragraph = (text: string): string => (text === '' ? '' : `\n${text}`);

async function verify(file: string, options: PinOptions & { readonly json?: boolean }): Promise<void> {
  const { isArchive, verifyArchive } = await import('./export-verify.js');
  if (await isArchive(file)) return verifyArchive(file, await pinsOf(options), options.json);
  const bytes = await readInput(file);
  requireReceipt(file, bytes);
  const report = checked(bytes, await pinsOf(options));
  process.exitCode = EXIT_OF[report.verdict];
  const style = styleFor(readConfig());
  await print(
    options.json,
    report,
    () =>
      `${checkTable(folded(report.checks), style)}\n${verdictOf(report.verdict, style)}\n${paragraph(adviceFor(read(bytes), report))}`,
  );
}

async function show(file: string, options: PinOptions & { readonly json?: boolean }): Promise<void> {
  if (await (await import('./export-verify.js')).isArchive(file)) {
    throw badInput(
      'an_export',
      `${file} is an export, not a receipt`,
      `belay receipt verify ${file} checks it and says what is in it; its report.html is for reading`,
    );
  }
  const bytes = await readInput(file);
  requireReceipt(file, bytes);
  let receipt;
  try {
    receipt = parseAnyReceipt(bytes);
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
  const words = receipt.type === 'session' ? { because: reasonsOf(receipt.receipt) } : {};
  await print(
    options.json,
    { verdict: report?.verdict ?? 'NOT CHECKED', ...predicate, ...words },
    () => `${pageOf(receipt, report, style)}${report === undefined ? '' : adviceFor(receipt, report)}`,
  );
}

function pageOf(read: AnyReceipt, report: Report | undefined, style: Style): string {
  switch (read.type) {
    case 'entries':
      return receiptPage(read.receipt, report, style);
    case 'session':
      return sessionPage(read.receipt, report, style);
    case 'period':
      return periodPage(read.receipt, report, style);
  }
}

const pinOptions = (command: Command): Command =>
  command
    .option('--key <vkey>', "the log's verifier key, or @FILE, from somewhere you trust")
    .option('--root <file>', 'root certificate (PEM) that vouches for the key of the log')
    .option('--json', 'print one JSON document');

export function register(program: Command): void {
  const receipt = program.command('receipt').description('get, verify and read receipts');
  registerGet(receipt);
  pinOptions(receipt.command('verify'))
    .description('check a receipt, tlog-proof or export, offline; names each check')
    .argument('<file>', 'the receipt, or the zip of an export; - for a receipt from standard input')
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
