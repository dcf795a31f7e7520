import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAnyReceipt, type PeriodReceipt, SESSION_RECEIPT_CHECKS } from '@belay/receipt';
import { afterAll, describe, expect, it } from 'vitest';
import { styleFor } from '../src/output.js';
import { periodPage } from '../src/session-page.js';
import { belay } from './command.js';

const scratch = mkdtempSync(join(tmpdir(), 'belay-session-page-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

/** Receipts that the library keeps, and the key of the log that signed them. */
const kept = (name: string): string =>
  fileURLToPath(new URL(`../../../libs/receipt/test/fixtures/${name}-v1.receipt`, import.meta.url));
const KEY = 'belay.example/acme/agents+6b93115f+AWa+fjMsekUzMr2dCn99sFX1xe8aBq2mbZizn7aBDEc6';

const show = async (name: string, ...more: string[]): Promise<{ code: number | null; stdout: string }> =>
  belay('receipt', 'show', kept(name), ...more);

describe('belay receipt show, of a session', () => {
  it('says first what it came to, then why', async () => {
    const { code, stdout } = await show('session');
    expect(code).toBe(0);
    const lines = stdout.split('\n');
    expect(lines[1]).toMatch(/^ {2}Receipt for session run-1 +NOT CHECKED$/);
    expect(lines[4]).toBe('  ◌ INCOMPLETE  a sink that is required does not account for all of it');
    expect(lines.slice(5, 7).map((line) => line.trim())).toEqual([
      '- proxy has a gap: lines 6 to 7 never came, and nothing says why; no root',
      'that it stated could be compared with its lines',
    ]);
    expect(stdout).toContain(
      'proxy  required  ◌ has a gap\n    ████··█                   ◌ lines 2 to 8, 2 of them missing',
    );
    expect(stdout).toMatch(/corroborated +█+ {2}1 {2}keyed sinks of two trust domains/);
    expect(stdout).toContain('What this does not prove');
    expect(stdout).toContain('Nothing on this page was checked');
    for (const line of lines) {
      expect(line.length).toBeLessThanOrEqual(80);
      expect(line).not.toMatch(/\s$/);
      expect(line).not.toMatch(/undefined|\[object/);
    }
  });

  it.each([
    ['affirmed', '✓ AFFIRMED', '3 sinks complete and signed, 2 calls run again, 1 of them with a warning'],
    ['contested', '≠ CONTESTED', 'an auditor (entry 29) says otherwise than the verdict in entry 26'],
    ['violated', '✗ VIOLATED', 'verifier found 5 failures, FAIL_CAUSE (verdicts in entries 166, 173,'],
    ['open', '… OPEN', 'proxy has not said that it is over'],
    ['unverified', '? UNVERIFIED', '4 verdicts could not be reached, UNVERIFIED_CAUSE (entries 76, 79, 81,'],
  ])('%s: its sign, and its reasons', async (name, sign, reason) => {
    const { stdout } = await show(name);
    expect(stdout).toContain(`  ${sign}  `);
    expect(stdout).toContain(reason);
    expect(stdout).not.toMatch(/undefined|\[object/);
  });

  it('names what it takes the place of, and counts verdicts by what they say and why', async () => {
    const { stdout } = await show('violated');
    // Folded, and whole.
    expect(stdout.replace(/\n */g, '')).toContain(`Supersedes   sha256:${'ab'.repeat(32)}`);
    expect(stdout).toMatch(
      /Verdicts {2}PASS 17 {3}WARN 0 {3}FAIL 5 {3}UNVERIFIED 8\n +UNVERIFIED_CAUSE 8, FAIL_CAUSE 5/,
    );
    expect(stdout).toMatch(/Session +run-1 \(desk\), 184 entries/);
  });

  it('with a key says what is left to decide, and by what', async () => {
    const { code, stdout } = await show('affirmed', '--key', KEY);
    expect(code).toBe(2);
    expect(stdout).toMatch(/Receipt for session run-1 +INDETERMINATE/);
    expect(stdout).toContain('undecided  evidence: its 16 entries are not in this file');
    expect(stdout).toContain('belay export create --session run-1 --out FILE.zip');
  });

  it('as JSON, the predicate, the verdict and the reasons in words', async () => {
    const { json } = await belay('receipt', 'show', kept('session'), '--json');
    expect(json).toMatchObject({
      verdict: 'NOT CHECKED',
      scope: { type: 'session', session: 'run-1' },
      disposition: { status: 'incomplete' },
      because: [expect.stringMatching(/^proxy has a gap: lines 6 to 7 never came/)],
    });
  });
});

describe('the page of a period', () => {
  const read = parseAnyReceipt(readFileSync(kept('period')));
  if (read.type !== 'period') throw new Error(read.type);
  const { receipt } = read;
  const complete = receipt.sinks.map((sink) => ({ ...sink, status: 'complete' as const }));
  const pageOf = (other: Partial<PeriodReceipt>): string =>
    periodPage({ ...receipt, ...other } as PeriodReceipt, undefined, styleFor({ colour: false })).replace(
      /\s+/g,
      ' ',
    );

  it('says which of the two it is that nothing follows from: lines that are missing, or that it goes on', () => {
    const time = receipt.scope.from.replace('T00:00', 'T00:01');
    const going = { asOf: { ...receipt.asOf, time } };
    expect(pageOf({})).toContain('◌ NOT COMPLETE some sink does not account for all of it');
    expect(pageOf({})).not.toContain('it was not over');
    expect(pageOf(going)).toMatch(/◌ NOT COMPLETE .*; it was not over when this receipt was made/);
    expect(pageOf({ ...going, sinks: complete })).toMatch(/… NOT OVER it was not over when .* every sink/);
  });
});

describe('belay receipt show, of a period', () => {
  it('counts its sessions, and names the sink that does not account for all', async () => {
    const { code, stdout } = await show('period', '--key', KEY);
    expect(code).toBe(2);
    expect(stdout).toContain('Receipt for the period 2026-01-01 to 2026-01-01 00:10');
    expect(stdout).toContain('◌ NOT COMPLETE');
    expect(stdout).toMatch(/1 session\n {2}◌ incomplete +█+ {2}1\n/);
    expect(stdout).toContain('proxy     required  ◌ has a gap, epochs: 1 gap');
    expect(stdout).toContain(
      'belay export create --from 2026-01-01T00:00:00.000Z --to 2026-01-01T00:10:00.000Z --out FILE.zip',
    );
    for (const line of stdout.split('\n')) expect(line).not.toMatch(/\s$|undefined|\[object/);
  });
});

describe('belay receipt verify, of these', () => {
  it('makes every check but one, and says what decides that', async () => {
    for (const name of ['session', 'period', 'affirmed']) {
      const { code, json } = await belay('receipt', 'verify', kept(name), '--key', KEY, '--json');
      const { verdict, checks } = json as { verdict: string; checks: { name: string; status: string }[] };
      expect({ code, verdict }).toEqual({ code: 2, verdict: 'INDETERMINATE' });
      expect(checks.map((check) => check.name)).toEqual([...SESSION_RECEIPT_CHECKS]);
      expect(checks.filter(({ status }) => status !== 'ok').map((check) => check.name)).toEqual(['evidence']);
    }
    const { stdout } = await belay('receipt', 'verify', kept('session'), '--key', KEY);
    expect(stdout).toMatch(/^INDETERMINATE$/m);
    expect(stdout).toContain('belay export create --session run-1');
  });

  it('one that was changed is INVALID, and no advice goes with it', async () => {
    const copy = join(scratch, 'changed.receipt');
    writeFileSync(copy, readFileSync(kept('affirmed'), 'utf8').replace('"sig":"', '"sig":"A'));
    const { code, stdout } = await belay('receipt', 'verify', copy, '--key', KEY);
    expect(code).toBe(1);
    expect(stdout).not.toContain('belay export create');
  });
});
