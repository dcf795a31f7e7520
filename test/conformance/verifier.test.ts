/**
 * The second verifier, infra/verifier/verify.py, comes to what the packages come to, byte for byte: statements and
 * judgements of histories at random, and verdicts on exports, good ones and ones that were tampered with.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { LogCoverage, type MemberStatement, type SessionStatement } from '@belay/coverage';
import { canonical, parseEntry } from '@belay/envelope';
import { EXPORT_CHECKS, type ExportManifest, verifyExport } from '@belay/export';
import { toPem } from '@belay/keys/x509';
import { deriveSession, type Pins, Standing } from '@belay/receipt';
import { EXAMPLE_SESSIONS, exampleLog, resigned } from '@belay/testkit/export';
import {
  askOfEntries,
  askOfExports,
  askOfLogs,
  type LogQuestion,
  python,
  SECOND_VERIFIER,
} from '@belay/testkit/second-verifier';
import {
  accountOf,
  again,
  chains,
  claimed,
  KEY,
  miscounted,
  repacked,
  SCRIPT,
  write,
} from './verifier/exports.js';
import { forgeries, lies, repackings } from './verifier/forgeries.js';
import { ed25519Signer, formatVkey } from '@belay/note';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { historyOf, scripts } from './verifier/histories.js';

const PYTHON = python();
const ORIGIN = 'belay.example/acme/agents';
const runs = Number(process.env['BELAY_RUNS'] ?? 180);
/** Of histories that come to every disposition. */
const SEED = 3;

/** What the packages say, as the JSON that the Python side writes. */
function told({ log, entries, asks }: LogQuestion): string[] {
  const coverage = new LogCoverage({ log });
  const standing = new Standing();
  return asks.map(({ size, time }) => {
    for (const bytes of entries.slice(coverage.size, size)) {
      const entry = parseEntry(bytes);
      coverage.apply(entry);
      standing.apply(entry);
    }
    const asOf = { size, time };
    const at = (index: number): Buffer | undefined => entries[index];
    const sessions = [...coverage.sessions].map(({ session }) => {
      const indexes = entries.flatMap((bytes, index) => {
        const entry = parseEntry(bytes);
        return index < size && entry.by === 'sender' && entry.envelope.session === session ? index : [];
      });
      const facts = deriveSession(coverage, standing, session, asOf, { indexes, at });
      const { statement, judgement, policy, calls, levels, recorders, verdicts, issuers, evidence } = facts;
      const { disposition } = judgement;
      const authorities = judgement.calls.map(({ authority }) => authority);
      return [
        session,
        {
          statement,
          disposition,
          authorities,
          policy,
          calls,
          levels,
          recorders,
          verdicts,
          issuers,
          evidence,
        },
      ] as const;
    });
    return canonical({
      epochs: [...coverage.epochs].map(({ sink, epoch }) => coverage.epochStatement(sink, epoch, asOf)),
      sinks: [...coverage.chains].map(({ sink }) => coverage.sinkStatement(sink, asOf)),
      sessions: Object.fromEntries(sessions),
    });
  });
}

/** Compares the two, and returns what they say. */
async function agree(histories: readonly LogQuestion[]): Promise<string[]> {
  const found = await askOfLogs(histories);
  expect(found).toHaveLength(histories.length);
  return histories.flatMap((history, n) => {
    const right = told(history);
    right.forEach((text, ask) => {
      const other = found[n]?.[ask] ?? 'null';
      if (other !== text) expect(JSON.parse(other)).toEqual(JSON.parse(text));
      expect(other).toBe(text);
    });
    return right;
  });
}

test('statements, authority and disposition of sessions, whatever sinks, verifiers, auditors and admins do', async () => {
  const dispositions = new Set<string>();
  /** Sessions that a run beside theirs keeps from being complete. */
  let beside = 0;
  // The same ones each time to begin with, which come to everything; and others.
  const same = fc.sample(scripts, { numRuns: 60, seed: SEED });
  const others = fc.sample(scripts, Math.ceil(runs / 3));
  for (const text of await agree([...same, ...others].map(historyOf))) {
    const { sessions } = JSON.parse(text) as {
      sessions: Record<string, { disposition: { status: string }; statement: SessionStatement }>;
    };
    for (const { disposition, statement } of Object.values(sessions)) {
      dispositions.add(disposition.status);
      const isBeside = ({ epochs, reasons }: MemberStatement): boolean =>
        reasons.some((why) => 'epoch' in why && epochs.every(({ epoch }) => epoch !== why.epoch));
      if (statement.members.some(isBeside)) beside++;
    }
  }
  // What the generator never makes is never compared.
  const all = ['affirmed', 'contested', 'incomplete', 'open', 'unverified', 'violated'];
  expect([...dispositions].sort()).toEqual(all);
  expect(beside).toBeGreaterThan(0);
});

/** Values that a member may be given in place of its own. */
const odd = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    false,
    0,
    -1,
    1,
    2 ** 53,
    2 ** 53 - 1,
    2 ** 53 - 2,
    1.5,
    1e21,
    '',
    [],
    {},
    [[]],
  ),
  fc.constantFrom<unknown>(
    'a',
    'A'.repeat(64),
    'a'.repeat(129),
    'é',
    '\u2028',
    '😀',
    '\ud800',
    ' x',
    'x\n',
    '__proto__',
  ),
  fc.constantFrom<unknown>(
    '2026-02-29T00:00:00.000Z',
    '2024-02-29T23:59:59.123456789Z',
    '2024-02-29T23:59:60Z',
    '2026-01-01T00:00:00.000+00:00',
    '2026-01-01T00:00:00Z',
  ),
  fc.constantFrom<unknown>(
    `sha256:${'0'.repeat(64)}`,
    `hmac-sha256:${'A'.repeat(64)}`,
    `weak:hmac-sha256:${'a'.repeat(64)}`,
    `${'A'.repeat(42)}B=`,
    `${'A'.repeat(43)}=`,
    '7ZZZZZZZZZZZZZZZZZZZZZZZZZ',
    '8ZZZZZZZZZZZZZZZZZZZZZZZZZ',
  ),
);

/** Ways to write an entry that its writer would not. */
const rewriting = fc.oneof(
  fc.record({ how: fc.constant('byte' as const), at: fc.nat(), with: fc.nat(255) }),
  fc.record({
    how: fc.constant('insert' as const),
    at: fc.nat(),
    with: fc.constantFrom(9, 10, 13, 32, 34, 44, 0, 0xef),
  }),
  fc.record({ how: fc.constant('set' as const), at: fc.nat(), with: odd }),
  fc.record({
    how: fc.constant('name' as const),
    at: fc.nat(),
    with: fc.constantFrom('x', 'v', 'kind', 'late', '__proto__'),
  }),
  fc.record({
    how: fc.constantFrom('drop' as const, 'twice' as const, 'escape' as const),
    at: fc.nat(),
    with: fc.constant(0),
  }),
);

function rewritten(
  entry: Buffer,
  { how, at, with: by }: typeof rewriting extends fc.Arbitrary<infer T> ? T : never,
): Buffer {
  if (how === 'byte' || how === 'insert') {
    const place = at % entry.length;
    const parts = [
      entry.subarray(0, place),
      Buffer.from([by as number]),
      entry.subarray(place + (how === 'byte' ? 1 : 0)),
    ];
    return Buffer.concat(parts);
  }
  const lines = entry.toString().split('\n');
  const which = at % 2;
  const value = JSON.parse(lines[which] as string) as Record<string, unknown>;
  const holders = [
    value,
    ...Object.values(value).filter((each) => typeof each === 'object' && each !== null),
  ];
  const holder = holders[at % holders.length] as Record<string, unknown>;
  const keys = Object.keys(holder);
  const key = keys[(at >> 3) % Math.max(1, keys.length)] ?? 'x';
  if (how === 'drop') delete holder[key];
  else if (how === 'name')
    Object.defineProperty(holder, by as string, { value: holder[key], enumerable: true });
  else if (how === 'set') holder[key] = by;
  // A collector's own lines have one form.
  const role = (JSON.parse(lines[0] as string) as { role?: unknown }).role;
  let text = which === 0 || role === 'collector' ? sorted(value) : JSON.stringify(value);
  if (how === 'twice') text = text.replace(/[{,]("[^"]*":)/, `{$1 1,$1`);
  if (how === 'escape') text = text.replace(/[a-z]/, (c) => `\\u00${c.charCodeAt(0).toString(16)}`);
  lines[which] = text;
  return Buffer.from(lines.join('\n'));
}

/** Some member of JSON, and the object or array it is in. */
function memberOf(value: unknown, place: number): [holder: Record<string, unknown>, key: string] {
  const holders: Record<string, unknown>[] = [];
  const see = (each: unknown): void => {
    if (typeof each !== 'object' || each === null) return;
    holders.push(each as Record<string, unknown>);
    Object.values(each).forEach(see);
  };
  see(value);
  const holder = holders[place % holders.length] as Record<string, unknown>;
  const keys = Object.keys(holder);
  return [holder, keys[(place >> 5) % Math.max(1, keys.length)] ?? 'x'];
}

function sorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sorted).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${sorted(member)}`).join()}}`;
}

test('what is an entry and what is none, however it is written', async () => {
  const whole = fc.sample(scripts, 12).flatMap((script) => [...historyOf(script).entries]);
  const made = fc.sample(fc.tuple(fc.nat(whole.length - 1), rewriting), runs * 20);
  const entries = [...whole, ...made.map(([n, how]) => rewritten(whole[n] as Buffer, how))];
  const found = await askOfEntries(ORIGIN, entries);
  const differing = entries.flatMap((bytes, n) => {
    let fault: string | null = null;
    try {
      const { line } = parseEntry(bytes);
      if (line.log !== ORIGIN) fault = 'of another log';
    } catch (error) {
      fault = (error as Error).message;
    }
    return (fault === null) === (found[n] === null)
      ? []
      : { bytes: bytes.toString(), fault, other: found[n] };
  });
  expect(differing.slice(0, 5)).toEqual([]);
  const read = found.filter((each) => each === null).length - whole.length;
  expect(read).toBeGreaterThan(made.length / 50);
  expect(read).toBeLessThan(made.length);
});

describe('exports', () => {
  let dir: string;
  beforeAll(() => {
    dir = mkdtempSync(join(tmpdir(), 'belay-verifier-'));
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  interface Case {
    readonly path: string;
    readonly pins?: Pins;
    readonly now?: string;
  }

  /** Both verifiers on each: the same of every check but `report`, which only one makes. Returns what they found. */
  async function same(cases: readonly Case[]): Promise<{ verdict: string; failed: string[] }[]> {
    const asked = cases.map(({ path, pins = { key: KEY }, now = '2026-06-01T00:00:00.000Z' }) => ({
      export: path,
      pins,
      now: Date.parse(now),
    }));
    const found = await askOfExports(asked.map(({ pins, ...rest }) => ({ ...pins, ...rest })));
    for (const [n, { export: path, pins, now }] of asked.entries()) {
      const { report } = await verifyExport(path, { ...pins, now: new Date(now) });
      const right = report.checks.filter(({ name }) => name !== 'report');
      const told = found[n]?.checks.map(([name, status, detail]) => ({ name, status, detail })) ?? [];
      const differing = right.flatMap(({ name, status, detail }, i) => {
        const other = told[i];
        return other?.name === name && other.status === status
          ? []
          : `${name}: ${status} (${detail}); verify.py: ${other?.status} (${other?.detail})`;
      });
      expect.soft({ path: basename(path), differing }).toEqual({ path: basename(path), differing: [] });
    }
    return found.map(({ verdict, checks }) => ({
      verdict,
      failed: checks.flatMap(([name, status]) => (status === 'failed' ? name : [])),
    }));
  }

  const expected = (what: string, failed: string): object =>
    failed === 'none'
      ? { what, verdict: 'VALID', told: [] }
      : { what, verdict: 'INVALID', told: expect.arrayContaining([failed]) as unknown };
  const at = (name: string): string => join(dir, name);
  const START = '2026-01-01T00:00:00.000Z';

  test('of everything, of sessions, of a period, are valid to both', async () => {
    const cases: Case[] = [];
    for (const [n, script] of fc.sample(scripts, Math.ceil(runs / 50)).entries()) {
      const account = accountOf(script);
      const { entries } = account.log;
      const middle = entries[Math.floor(entries.length / 2)]?.line.received as string;
      const sessions = [
        ...new Set(account.log.sent().flatMap(({ envelope }) => envelope.session ?? [])),
      ].sort();
      for (const request of [
        { oscal: true as const },
        ...(sessions.length > 0 ? [{ sessions: sessions.slice(-1) }] : []),
        { period: { from: START, to: middle } },
      ]) {
        const path = at(`${n}-${Object.keys(request).join('-')}.zip`);
        await write(account, request, path);
        cases.push({ path });
      }
    }
    for (const each of await same(cases)) expect(each).toEqual({ verdict: 'VALID', failed: [] });
  });

  test('of the example, in every shape, are valid to both, by the key and by the root', async () => {
    const world = await exampleLog();
    const pins = [{ key: world.signer.vkey }, { rootPem: world.rootPem, origin: ORIGIN }];
    const requests = [
      { oscal: true },
      { sessions: Object.values(EXAMPLE_SESSIONS).slice(0, 2).sort() },
      { period: { from: START, to: '2026-01-02T00:00:00.000Z' } },
    ];
    const cases: Case[] = [];
    for (const [n, request] of requests.entries()) {
      const path = at(`example-${n}.zip`);
      await world.export(path, request as Parameters<typeof world.export>[1]);
      cases.push(...pins.map((pin) => ({ path, pins: pin })));
    }
    for (const each of await same(cases)) expect(each).toEqual({ verdict: 'VALID', failed: [] });
  });

  test('are held to what a reader knows: key, origin, clock', async () => {
    const account = accountOf(SCRIPT);
    const path = at('pins.zip');
    await write(account, {}, path);
    const other = ed25519Signer(ORIGIN, Buffer.alloc(32, 0x0c)).vkey;
    const found = await same([
      { path, pins: {} },
      { path, pins: { key: other } },
      { path, pins: { key: KEY, origin: 'belay.example/else' } },
      { path, pins: { origin: ORIGIN } },
      { path, now: '2025-12-31T00:00:00.000Z' },
    ]);
    expect(found.map(({ verdict }) => verdict)).toEqual([
      'INDETERMINATE',
      'INVALID',
      'INVALID',
      'INDETERMINATE',
      'INDETERMINATE',
    ]);
  });

  test('with a changed byte, wherever, or a byte less or more, are refused by both', async () => {
    const account = accountOf(SCRIPT);
    const cases: Case[] = [];
    for (const [name, request] of Object.entries({ all: {}, part: { sessions: ['run-2'] } })) {
      const path = at(`${name}.zip`);
      await write(account, request, path);
      const bytes = readFileSync(path);
      const changes = fc.sample(
        fc.tuple(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 })),
        Math.ceil(runs / 16),
      );
      for (const [n, [position, mask]] of changes.entries()) {
        const other = Buffer.from(bytes);
        other[position] = (other[position] as number) ^ mask;
        cases.push({ path: at(`${name}-byte-${n}.zip`) });
        writeFileSync(at(`${name}-byte-${n}.zip`), other);
      }
      const [cut] = changes[0] as [number, number];
      for (const [n, other] of [
        bytes.subarray(0, cut),
        bytes.subarray(1),
        Buffer.concat([bytes, Buffer.from('\n')]),
        Buffer.concat([bytes.subarray(0, cut), Buffer.from('x'), bytes.subarray(cut)]),
        Buffer.alloc(0),
      ].entries()) {
        cases.push({ path: at(`${name}-length-${n}.zip`) });
        writeFileSync(at(`${name}-length-${n}.zip`), other);
      }
    }
    const whole = at('all.zip');
    for (const [n, change] of repackings.entries()) {
      cases.push({ path: at(`packed-${n}.zip`) });
      repacked(whole, at(`packed-${n}.zip`), change);
    }
    miscounted(whole, at('crc.zip'));
    cases.push({ path: at('crc.zip') });
    for (const { verdict } of await same(cases)) expect(verdict).toBe('INVALID');
  });

  test('that the log itself signed, though they are not so, are refused by both for the same reason', async () => {
    const account = accountOf(SCRIPT);
    const originals = { all: at('f-all.zip'), part: at('f-part.zip'), time: at('f-time.zip') };
    await write(account, {}, originals.all);
    await write(account, { sessions: ['run-2'] }, originals.part);
    await write(account, { period: { from: START, to: '2026-01-01T00:00:30.000Z' } }, originals.time);
    const cases: Case[] = [];
    for (const [n, [, of, change, , claim]] of forgeries.entries()) {
      const path = at(`f-${n}.zip`);
      again(originals[of], path, change, claim);
      cases.push({ path });
    }
    const found = await same(cases);
    for (const [n, [what, , , failed]] of forgeries.entries()) {
      const { verdict, failed: told } = found[n] as (typeof found)[0];
      expect.soft({ what, verdict, told }).toEqual(expected(what, failed));
    }
  });

  test('with other certificates are judged alike', async () => {
    const original = at('c.zip');
    await write(accountOf(SCRIPT), {}, original);
    const made = await chains();
    for (const [n, [, x5c]] of made.entries()) {
      const claim = (manifest: ExportManifest): ExportManifest => ({
        ...manifest,
        log: { ...manifest.log, x5c },
      });
      again(original, at(`c-${n}.zip`), () => undefined, claim);
    }
    const root = toPem(made[0]?.[1].at(-1) as Buffer);
    const byKey = made.map((_, n) => ({ path: at(`c-${n}.zip`), pins: { key: KEY } }));
    const byRoot = byKey.slice(0, 5).map(({ path }) => ({ path, pins: { rootPem: root, origin: ORIGIN } }));
    const found = await same([...byKey, ...byRoot]);
    for (const [n, [what]] of made.entries()) {
      const failed = found[n]?.failed.includes('chain');
      expect.soft({ what, failed }).toEqual({ what, failed: what !== 'none' });
    }
  });

  test('with a manifest that says anything at all, are judged alike', async () => {
    const account = accountOf(SCRIPT);
    const originals = [at('m-all.zip'), at('m-part.zip')];
    await write(account, { oscal: true }, originals[0] as string);
    await write(account, { sessions: ['run-2'] }, originals[1] as string);
    const surrogate = (value: unknown): boolean => JSON.stringify(value).includes('\\ud800');
    const values = odd.filter((value) => !surrogate(value));
    const cases: Case[] = [];
    for (const [n, [place, by, which]] of fc
      .sample(fc.tuple(fc.nat(), values, fc.nat(1)), Math.ceil(runs / 10))
      .entries()) {
      const path = at(`m-${n}.zip`);
      claimed(originals[which] as string, path, (statement) => {
        const [holder, key] = memberOf(statement, place);
        if (place % 7 === 0 && !Array.isArray(holder)) delete holder[key];
        else if (place % 7 === 1) holder['x'] = by;
        else holder[key] = by;
      });
      cases.push({ path });
    }
    await same(cases);
  });

  test('with a receipt that says something else somewhere, are judged alike', async () => {
    const cases: Case[] = [];
    const near = fc.record({ place: fc.nat(), which: fc.nat(4), step: fc.constantFrom(-1, 1) });
    for (const [n, { place, which, step }] of fc.sample(near, Math.ceil(runs / 20)).entries()) {
      let receipt = 0;
      const lie = (statement: object): void => {
        if (receipt++ !== which) return;
        const [holder, key] = memberOf(statement, place);
        const value = holder[key];
        if (typeof value === 'number') holder[key] = value + step;
        else if (typeof value === 'boolean') holder[key] = !value;
        else if (typeof value === 'string')
          holder[key] = value.replace(/[0-9](?!.*[0-9])/, (c) => (c === '0' ? '1' : '0'));
        else if (Array.isArray(value)) value.splice(0, 1);
        else delete holder[key];
      };
      const path = at(`r-${n}.zip`);
      try {
        await write(accountOf(SCRIPT, { receipt: lie }), {}, path);
      } catch {
        // By its own members it is no receipt: there is no such export.
        continue;
      }
      cases.push({ path });
    }
    await same(cases);
  });

  test('of a log that states what is not so, are refused by both for the same reason', async () => {
    const cases: Case[] = [];
    for (const [n, [, told]] of lies.entries()) {
      const account = accountOf(SCRIPT, told);
      cases.push({ path: at(`l-${n}.zip`) });
      await write(account, {}, at(`l-${n}.zip`));
    }
    const found = await same(cases);
    for (const [n, [what, , failed]] of lies.entries()) {
      const { verdict, failed: told } = found[n] as (typeof found)[0];
      expect.soft({ what, verdict, told }).toEqual(expected(what, failed));
    }
  });

  test('can be asked at a command line', async () => {
    const world = await exampleLog();
    const path = at('line.zip');
    await world.export(path);
    const root = at('root.pem');
    writeFileSync(root, world.rootPem);
    const bad = at('line-bad.zip');
    writeFileSync(bad, readFileSync(path).subarray(1));
    const run = (args: readonly string[], env = process.env): { code: number | null; out: string } => {
      const { status, stdout } = spawnSync(PYTHON, [SECOND_VERIFIER, ...args], { encoding: 'utf8', env });
      return { code: status, out: stdout };
    };
    const { vkey } = world.signer;
    expect(run([path, '--key', vkey, '--quiet'])).toEqual({ code: 0, out: 'VALID\n' });
    expect(run([path, '--root', root, '--origin', ORIGIN, '--quiet'])).toEqual({ code: 0, out: 'VALID\n' });
    expect(run([path, '--quiet'])).toEqual({ code: 2, out: 'INDETERMINATE\n' });
    const json = JSON.parse(run([bad, '--json']).out) as { verdict: string; checks: { name: string }[] };
    expect(json.verdict).toBe('INVALID');
    expect(json.checks[0]).toMatchObject({ name: 'archive', status: 'failed' });
    expect(json.checks.map(({ name }) => name)).toEqual(EXPORT_CHECKS.filter((name) => name !== 'report'));
    const text = run([path, '--key', vkey]);
    expect(text.code).toBe(0);
    expect(text.out).toMatch(/^archive +ok .*\nVALID\n$/s);
    expect(text.out).toMatch(/^project +Agents \(prj_/m);
    expect(text.out).toMatch(/^sessions +1 contested, 1 violated, 2 incomplete, 3 affirmed$/m);
    expect(text.out).toMatch(/^pages +made by version 1, not made again: report.html, /m);
    const cut = at('line-cut.zip');
    writeFileSync(cut, readFileSync(path).subarray(0, 50_000));
    const short = run([cut, '--key', vkey]);
    expect(short.code).toBe(1);
    expect(short.out).toMatch(/^archive +failed .*cut off.*\n16 more +undecided .*\nINVALID\n$/);
    const keyFile = at('line.key');
    writeFileSync(keyFile, `${vkey}\n`);
    expect(run([path, '--key', `@${keyFile}`, '--quiet'])).toEqual({ code: 0, out: 'VALID\n' });
    const other = run([path, '--key', formatVkey('other.example/log', Buffer.alloc(32, 9))]);
    expect(other.code).toBe(1);
    expect(other.out).toMatch(/^trust +failed .*yours is of another log, other\.example\/log$/m);
    const newer = at('line-newer.zip');
    await resigned(path, newer, world, (opened) => {
      opened.manifest = { ...opened.manifest, pages: 2 };
      opened.files.set('events.csv', Buffer.from('index,new\r\n'));
    });
    const pages = run([newer, '--key', vkey]);
    expect(pages.code).toBe(0);
    expect(pages.out).toMatch(
      /^tables +ok .*events\.csv and sessions\.csv are of version 2, not 1: not made again/m,
    );
    expect(pages.out).toMatch(/^pages +made by version 2, not made again: events\.csv, sessions\.csv, /m);
    for (const args of [[], [path, '--root', root], [path, '--x']]) expect(run(args).code).toBe(64);
    for (const args of [
      ['nowhere.zip'],
      [path, '--key', 'x'],
      [path, '--key', `@${path}`],
      [path, '--key', `@${at('no-such-key')}`],
      [path, '--key', vkey.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))],
      [dir],
    ]) {
      expect(run(args).code).toBe(65);
    }
    // Without openssl, signatures are verified all the same; that certificates are not is said.
    const { code, out } = run([path, '--key', vkey], { PATH: dir });
    expect(code).toBe(2);
    for (const line of [
      /^signature +ok .*no openssl/m,
      /^chain +undecided .*openssl/m,
      /^receipts +undecided/m,
      /^sessions +ok/m,
    ]) {
      expect(out).toMatch(line);
    }
  });
});
