import { createHash, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { canonical } from '@belay/envelope';
import {
  buildReceipt,
  formatTlogProof,
  NOT_PROVEN,
  PERIOD_NOT_PROVEN,
  RECEIPT_CHECKS,
  SESSION_NOT_PROVEN,
  SESSION_RECEIPT_CHECKS,
  TLOG_PROOF_CHECKS,
  verifyReceipt,
  verifyTlogProof,
} from '@belay/receipt';
import { expect, test } from 'vitest';
import { DAY, gapped, gappedPeriod, issue, MORE } from './session-sample.js';
import { checkpointOf, ENTRIES, evidence, inclusionOf, KEY, ROOT_PEM, signer } from './sample.js';

const page = readFileSync(new URL('../FORMAT.md', import.meta.url), 'utf8');
const fixture = readFileSync(new URL('fixtures/event-v1.receipt', import.meta.url));

/** The text as an indented block of the page. */
const block = (text: string): string => text.replace(/^(?=.)/gmu, '    ');

test('the receipt of the page is the fixture, and is what the code makes', () => {
  const bytes = buildReceipt(evidence(3, 1), signer);
  expect(bytes.toString()).toBe(fixture.toString());
  expect(verifyReceipt(fixture, { key: KEY, rootPem: ROOT_PEM }).verdict).toBe('VALID');

  const fingerprint = new X509Certificate(ROOT_PEM).fingerprint256.replaceAll(':', '').toLowerCase();
  const digest = createHash('sha256').update(bytes).digest('hex');
  expect(page).toContain(block(`${KEY}\n${fingerprint}\n${digest}`));

  const { payload } = JSON.parse(bytes.toString()) as { payload: string };
  const statement = JSON.parse(Buffer.from(payload, 'base64').toString()) as {
    predicate: { log: { x5c: string[] }; notProven: string[] };
  };
  expect(statement.predicate.notProven).toEqual(NOT_PROVEN);
  expect(NOT_PROVEN).toHaveLength(7);
  // The page says how many sentences there are.
  expect(SESSION_NOT_PROVEN).toHaveLength(12);
  expect(PERIOD_NOT_PROVEN).toHaveLength(7);
  statement.predicate.log.x5c = statement.predicate.log.x5c.map(() => '...');
  statement.predicate.notProven = statement.predicate.notProven.map(() => '...');
  expect(page).toContain(block(canonical(statement)));
});

/** The payload as the page has it: what is the same in every receipt of the log is left out. */
function shortened(bytes: Buffer): string {
  const { payload } = JSON.parse(bytes.toString()) as { payload: string };
  const statement = JSON.parse(Buffer.from(payload, 'base64').toString()) as {
    predicate: { log: { x5c: string[] }; notProven: string[] };
  };
  statement.predicate.log.x5c = statement.predicate.log.x5c.map(() => '...');
  statement.predicate.notProven = ['...'];
  return canonical(statement);
}

const kept = (name: string): Buffer => readFileSync(new URL(`fixtures/${name}-v1.receipt`, import.meta.url));

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

test('the receipts of a session and a period of the page are the fixtures, and are what the code makes', () => {
  const { log } = gapped();
  const session = issue(log);
  const period = gappedPeriod(log, session);
  for (const [name, bytes] of [
    ['session', session.bytes],
    ['period', period],
  ] as const) {
    expect(bytes.toString()).toBe(kept(name).toString());
    expect(page).toContain(block(sha256(bytes)));
    expect(page).toContain(block(shortened(bytes)));
    expect(verifyReceipt(bytes, { key: KEY, rootPem: ROOT_PEM }).verdict).toBe('INDETERMINATE');
  }
  expect(page).toContain(`${DAY.from}/${DAY.to}`);
});

test.each(Object.entries(MORE))('a receipt of a session that is %s is kept, too', (name, made) => {
  const { bytes, receipt } = made();
  expect(receipt.disposition.status).toBe(name);
  expect(bytes.toString()).toBe(kept(name).toString());
});

test('the tlog-proof of the page', () => {
  const proof = formatTlogProof({
    extra: ENTRIES[3] as Buffer,
    index: 3n,
    proof: inclusionOf(3),
    checkpoint: checkpointOf(ENTRIES.length),
  });
  expect(page).toContain(block(proof));
  expect(verifyTlogProof(Buffer.from(proof), { key: KEY }).verdict).toBe('VALID');
});

test('the page lists every check by the name it is reported under', () => {
  const section = page.slice(page.indexOf('## 5.'), page.indexOf('## 6.'));
  const rows = [...section.matchAll(/^\| `([a-z-]+)` \| [^\n]*$/gmu)].map((match) => match[1]);
  expect(rows).toEqual([...RECEIPT_CHECKS]);
  for (const check of SESSION_RECEIPT_CHECKS) expect(page).toContain(`\`${check}\``);
  for (const check of TLOG_PROOF_CHECKS) expect(page).toContain(`\`${check}\``);
});
