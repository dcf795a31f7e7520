import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  ArchiveWriter,
  type ExportCheck,
  type ExportRequest,
  readArchive,
  verifyExport,
} from '@belay/export';
import type { Pins } from '@belay/receipt';
import {
  EXAMPLE_SESSIONS,
  ExportCast,
  ExportLog,
  exampleLog,
  openExport,
  type OpenedExport,
  resigned,
} from '@belay/testkit/export';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'belay-tamper-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Of the bytes of a small export, one in so many is changed; each in the long form (`npm run soak`). */
const STRIDE = process.env.BELAY_RUNS === undefined ? 150 : 1;
/** Copies that are verified at once. */
const LANES = 4;

const whole = join(folder, 'whole.zip');
const part = join(folder, 'part.zip');
const small = join(folder, 'small.zip');
const target = join(folder, 'target.zip');
const PART: ExportRequest = { sessions: [EXAMPLE_SESSIONS.late, EXAMPLE_SESSIONS.violated].sort() };

let world: ExportLog;
let pins: Pins;
beforeAll(async () => {
  world = await exampleLog();
  pins = { key: world.signer.vkey };
  await world.export(whole, { oscal: true });
  await world.export(part, PART);
  const tiny = await ExportLog.create();
  new ExportCast(tiny).session('run', { calls: 1 });
  tiny.judge('run');
  await tiny.export(small);
});

/** The verdict, and the checks that failed. */
async function verdictOf(path: string, given: Pins = pins): Promise<readonly [string, ...ExportCheck[]]> {
  const { report } = await verifyExport(path, given);
  return [report.verdict, ...report.checks.flatMap(({ name, status }) => (status === 'failed' ? name : []))];
}

async function verdictOfBytes(bytes: Buffer): Promise<readonly [string, ...ExportCheck[]]> {
  writeFileSync(target, bytes);
  return verdictOf(target);
}

async function verdictOfLie(change: (opened: OpenedExport) => void, path = whole): Promise<unknown> {
  await resigned(path, target, world, change);
  return verdictOf(target);
}

const text = (opened: OpenedExport, name: string): string => (opened.files.get(name) as Buffer).toString();
const put = (opened: OpenedExport, name: string, content: string): void => {
  expect(content).not.toBe(text(opened, name));
  opened.files.set(name, Buffer.from(content));
};
const lines = (opened: OpenedExport, name: string): string[] => text(opened, name).split('\n').slice(0, -1);
const joined = (all: readonly string[]): string => all.map((line) => `${line}\n`).join('');

describe('an export of which one byte is another', () => {
  test('is INVALID, whichever byte it is', async () => {
    const bytes = readFileSync(small);
    const handle = await open(small, 'r');
    const files = await readArchive(handle);
    await handle.close();
    // Everything around the contents, and a sample of these.
    const places = [...bytes.keys()].filter((at) => {
      const file = files.find(({ offset, size }) => at >= offset && at < offset + size);
      if (file === undefined) return true;
      return at % (file.name === 'manifest.json' ? Math.min(STRIDE, 50) : STRIDE) === 0;
    });
    const started = performance.now();
    const accepted: string[] = [];
    let next = 0;
    /** Takes one place after the other, in a file of its own: a verification waits for the disk half of its time. */
    const lane = async (copy: string): Promise<void> => {
      writeFileSync(copy, bytes);
      const out = await open(copy, 'r+');
      try {
        for (let at = places[next++]; at !== undefined; at = places[next++]) {
          const changed = Buffer.from([(bytes[at] as number) ^ (1 << (at % 8))]);
          await out.write(changed, 0, 1, at);
          const [verdict] = await verdictOf(copy);
          if (verdict !== 'INVALID') accepted.push(`byte ${at}: ${verdict}`);
          await out.write(bytes, at, 1, at);
        }
        // Nothing else was changed in it.
        expect(await verdictOf(copy)).toEqual(['VALID']);
      } finally {
        await out.close();
      }
    };
    await Promise.all(Array.from({ length: LANES }, (_, n) => lane(join(folder, `lane-${n}.zip`))));
    expect(accepted).toEqual([]);
    expect(places.length).toBeGreaterThan(STRIDE === 1 ? bytes.length - 1 : 2_000);
    if (STRIDE === 1) {
      const seconds = Math.round((performance.now() - started) / 1_000);
      console.log(`${places.length} of ${bytes.length} bytes changed, each refused, in ${seconds} s`);
    }
  }, 1_800_000);

  test('or of which the manifest has another CRC in both places, which nothing signs, is INVALID', async () => {
    const bytes = Buffer.from(readFileSync(small));
    const handle = await open(small, 'r');
    const { crc32, offset } = (await readArchive(handle)).at(-1) as { crc32: number; offset: number };
    await handle.close();
    const local = offset - 'manifest.json'.length - 16;
    const central = bytes.lastIndexOf('PK\u0001\u0002') + 16;
    expect([bytes.readUInt32LE(local), bytes.readUInt32LE(central)]).toEqual([crc32, crc32]);
    for (const at of [local, central]) bytes.writeUInt32LE((crc32 ^ 1) >>> 0, at);
    expect(await verdictOfBytes(bytes)).toEqual(['INVALID', 'manifest']);
  });

  test('or is cut, or goes on, or is there twice, is INVALID', async () => {
    const bytes = readFileSync(small);
    for (const other of [
      bytes.subarray(0, -1),
      bytes.subarray(0, bytes.length / 2),
      bytes.subarray(0, 0),
      bytes.subarray(1),
      Buffer.concat([bytes, Buffer.from('\n')]),
      Buffer.concat([Buffer.from('\n'), bytes]),
      Buffer.concat([bytes, bytes]),
      Buffer.from('not a zip at all, but long enough to be one'),
    ]) {
      expect(await verdictOfBytes(other)).toEqual(['INVALID', 'archive']);
    }
  });
});

describe('an export whose archive was made again', () => {
  /** Writes the files in whatever order and number, with the manifest as it was. */
  async function repacked(change: (files: [string, Buffer][]) => [string, Buffer][]): Promise<unknown> {
    const { files } = await openExport(whole);
    const bytes = readFileSync(whole);
    const handle = await open(whole, 'r');
    const { offset, size } = (await readArchive(handle)).at(-1) as { offset: number; size: number };
    await handle.close();
    const manifest = bytes.subarray(offset, offset + size);
    const out = await open(target, 'w+');
    const writer = new ArchiveWriter(out);
    for (const [name, content] of change([...files, ['manifest.json', manifest]])) {
      await writer.add(name, content.length, [content]);
    }
    await writer.finish();
    await out.close();
    return verdictOf(target);
  }

  test('as it was is the same', async () => {
    expect(await repacked((files) => files)).toEqual(['VALID']);
    expect(readFileSync(target).equals(readFileSync(whole))).toBe(true);
  });

  test.each<[string, (files: [string, Buffer][]) => [string, Buffer][], ExportCheck]>([
    ['without a file', (files) => files.filter(([name]) => name !== 'sessions.csv'), 'manifest'],
    ['without its manifest', (files) => files.slice(0, -1), 'archive'],
    ['with one file more', (files) => [['extra.txt', Buffer.from('x')], ...files], 'archive'],
    ['with a file twice', (files) => [files[0] as [string, Buffer], ...files], 'archive'],
    ['with two manifests', (files) => [...files, files.at(-1) as [string, Buffer]], 'archive'],
    ['in another order', ([a, b, ...files]) => [b, a, ...files] as [string, Buffer][], 'archive'],
    [
      'with the manifest first',
      (files) => [files.at(-1) as [string, Buffer], ...files.slice(0, -1)],
      'archive',
    ],
    [
      'with another content',
      (files) =>
        files.map(([name, content]) => [name, name === 'report.pdf' ? Buffer.from('%PDF') : content]),
      'manifest',
    ],
    ['with nothing in it', () => [], 'archive'],
  ])('%s is INVALID', async (_, change, check) => {
    expect(await repacked(change)).toEqual(['INVALID', check]);
  });
});

describe('pins', () => {
  test('decide', async () => {
    expect(await verdictOf(whole, {})).toEqual(['INDETERMINATE']);
    expect(await verdictOf(whole, { origin: 'belay.example/acme/agents' })).toEqual(['INDETERMINATE']);
    expect(await verdictOf(whole, { rootPem: world.rootPem })).toEqual(['VALID']);
    expect(await verdictOf(whole, { ...pins, rootPem: world.rootPem })).toEqual(['VALID']);
    expect(await verdictOf(whole, { ...pins, origin: 'belay.example/acme/other' })).toEqual([
      'INVALID',
      'trust',
    ]);
    expect(await verdictOf(whole, { ...pins, now: new Date('2026-01-01T00:00:00Z') })).toEqual(['VALID']);
    expect(await verdictOf(whole, { ...pins, now: new Date('2025-12-31T00:00:00Z') })).toEqual([
      'INDETERMINATE',
    ]);
    const other = await ExportLog.create({ key: 0x77 });
    expect(await verdictOf(whole, { key: other.signer.vkey })).toEqual(['INVALID', 'trust']);
    await expect(verifyExport(whole, { key: 'nonsense' })).rejects.toMatchObject({ code: 'pin' });
  });

  test('of this log do not take the export of another that calls itself the same', async () => {
    const other = await exampleLog({ key: 0x77 });
    await other.export(target);
    expect(await verdictOf(target)).toEqual(['INVALID', 'trust']);
    // The root vouches for both: that the origin is certified twice is the operator's fault, which a pinned key shows.
    expect(await verdictOf(target, { key: other.signer.vkey })).toEqual(['VALID']);
  });
});

describe('a collector that signs what is not so', () => {
  test('is not believed: of the entries', async () => {
    const drop = (opened: OpenedExport, from: number, to: number): void =>
      put(
        opened,
        'entries.ndjson',
        joined(lines(opened, 'entries.ndjson').filter((_, n) => n < from || n >= to)),
      );
    expect(await verdictOfLie((opened) => drop(opened, 40, 42))).toEqual(['INVALID', 'entries']);
    expect(await verdictOfLie((opened) => drop(opened, 364, 366))).toEqual(['INVALID', 'entries']);
    expect(
      await verdictOfLie((opened) =>
        put(opened, 'entries.ndjson', text(opened, 'entries.ndjson').replace('"PASS"', '"FAIL"')),
      ),
    ).toEqual(['INVALID', 'tree', 'receipts', 'statements', 'sessions', 'periods', 'tables', 'report']);
    expect(
      await verdictOfLie((opened) => {
        put(
          opened,
          'entries.ndjson',
          text(opened, 'entries.ndjson').replace('"name":"Agents"', '"name":"Others"'),
        );
      }),
    ).toEqual(['INVALID', 'entries', 'tree', 'receipts', 'tables']);
    expect(
      await verdictOfLie((opened) => {
        opened.manifest = { ...opened.manifest, project: { ...opened.manifest.project, name: 'Others' } };
      }),
    ).toEqual(['INVALID', 'entries', 'report']);
  });

  test('is not believed: of what was left out', async () => {
    expect(await verdictOf(part)).toEqual(['VALID']);
    const counted = (entries: number, omitted: number) => (opened: OpenedExport) => {
      const { counts } = opened.manifest;
      opened.manifest = {
        ...opened.manifest,
        counts: { ...counts, entries: counts.entries + entries, omitted: counts.omitted + omitted },
      };
    };
    expect(await verdictOfLie(counted(1, -1), part)).toEqual(['INVALID', 'filter']);
    expect(await verdictOfLie((opened) => put(opened, 'filter.json', '{}'), part)).toEqual([
      'INVALID',
      'filter',
    ]);
    // As if everything had been asked for.
    expect(
      await verdictOfLie((opened) => {
        opened.manifest = { ...opened.manifest, request: {} };
      }, part),
    ).toEqual(expect.arrayContaining(['INVALID', 'filter']));
  });

  test('is not believed: of the receipts', async () => {
    const change =
      (by: (all: string[]) => string[], count = 0) =>
      (opened: OpenedExport): void => {
        put(opened, 'receipts.ndjson', joined(by(lines(opened, 'receipts.ndjson'))));
        const { counts } = opened.manifest;
        opened.manifest = {
          ...opened.manifest,
          counts: { ...counts, receipts: counts.receipts + count },
        };
      };
    // The last word on a session is kept back, an old one is shown twice, two are swapped.
    expect(await verdictOfLie(change((all) => all.filter((_, n) => n !== 5), -1))).toEqual(
      expect.arrayContaining(['INVALID', 'issued']),
    );
    expect(await verdictOfLie(change((all) => [...all.slice(0, 3), ...all.slice(2)], 1))).toEqual(
      expect.arrayContaining(['INVALID', 'issued']),
    );
    expect(await verdictOfLie(change(([a, b, ...all]) => [b as string, a as string, ...all]))).toEqual([
      'INVALID',
      'issued',
    ]);
    expect(await verdictOfLie(change((all) => all, 1)).catch(() => 'unchanged')).toBe('unchanged');
    const other = await exampleLog({ key: 0x77 });
    const foreign = other.receipts.map(({ bytes }) => bytes.toString());
    expect(await verdictOfLie(change(() => foreign))).toEqual(['INVALID', 'receipts']);
    expect(await verdictOfLie(change((all) => ['{}', ...all], 1))).toEqual(['INVALID', 'receipts']);
  });

  test('is not believed: of tables and pages', async () => {
    const expected: Readonly<Record<string, ExportCheck>> = {
      'README.md': 'report',
      'LIMITATIONS.md': 'report',
      'keys.json': 'tables',
      'chain.pem': 'tables',
      checkpoint: 'checkpoint',
      'filter.json': 'filter',
      'events.csv': 'tables',
      'sessions.csv': 'tables',
      'controls.json': 'report',
      'controls.csv': 'report',
      'report.html': 'report',
      'oscal.json': 'report',
    };
    for (const [name, check] of Object.entries(expected)) {
      const lie = (opened: OpenedExport): void => put(opened, name, `${text(opened, name)} `);
      expect(await verdictOfLie(lie), name).toEqual(['INVALID', check]);
    }
    // Said so, and nowhere hidden: the one page that nobody makes again.
    expect(await verdictOfLie((opened) => put(opened, 'report.pdf', '%PDF-1.7'))).toEqual(['VALID']);
  });

  test('is not believed: of the checkpoint', async () => {
    const older = await exampleLog();
    const head = older.head();
    older.state({ kind: 'token.revoked', v: 1, token: older.log.id('tok'), by: older.log.id('adm') });
    expect(
      await verdictOfLie((opened) => {
        opened.manifest = {
          ...opened.manifest,
          asOf: { ...opened.manifest.asOf, checkpoint: older.head().checkpoint },
        };
        opened.files.set('checkpoint', Buffer.from(older.head().checkpoint));
      }),
    ).toEqual(['INVALID', 'checkpoint']);
    expect(head.checkpoint).toBe(world.head().checkpoint);
    expect(
      await verdictOfLie((opened) => {
        const note = head.checkpoint.replace(/\n\n.*$/s, '\n\n');
        opened.manifest = { ...opened.manifest, asOf: { ...opened.manifest.asOf, checkpoint: note } };
        opened.files.set('checkpoint', Buffer.from(note));
      }),
    ).toEqual(['INVALID', 'checkpoint']);
  });
});

describe('a worker that lies', () => {
  async function lied(tell: (log: ExportLog, cast: ExportCast) => void): Promise<unknown> {
    const log = await ExportLog.create();
    const cast = new ExportCast(log);
    tell(log, cast);
    await log.export(target);
    return verdictOf(target, { key: log.signer.vkey });
  }
  const S = 'run-1';

  test('and says nothing false is VALID', async () => {
    const honest = (log: ExportLog, cast: ExportCast): void => {
      cast.session(S);
      log.judge(S);
    };
    expect(await lied(honest)).toEqual(['VALID']);
  });

  test('of what a session came to is found out', async () => {
    // The receipt of another world, in which no verdict failed.
    const other = await ExportLog.create();
    const kind = new ExportCast(other);
    kind.session(S);
    const good = other.facts(S);
    expect(good.judgement.disposition.status).toBe('affirmed');
    const better = (payload: Buffer): Buffer =>
      Buffer.from(
        payload
          .toString()
          .replace(
            /"disposition":\{.*?\},"evidence"/s,
            '"disposition":{"calls":2,"members":3,"status":"affirmed","warnings":0},"evidence"',
          )
          .replace('"FAIL":2,"PASS":0', '"FAIL":0,"PASS":2')
          .replace('"TESTS_WEAKENED":2', ''),
      );
    expect(
      await lied((log, cast) => {
        cast.session(S, { status: 'FAIL' });
        log.judge(S, { lie: better });
      }),
    ).toEqual(['INVALID', 'sessions']);
  });

  test('of what a session covers is found out', async () => {
    expect(
      await lied((log, cast) => {
        cast.session(S, { lose: true });
        const { size } = log;
        const { policy } = log.facts(S).statement;
        const time = log.time();
        const statement = `sha256:${'0'.repeat(64)}`;
        log.state({
          kind: 'coverage.stated',
          v: 1,
          type: 'session',
          session: S,
          statement,
          size,
          time,
          status: 'complete',
          policy,
        });
        log.judge(S);
      }),
    ).toEqual(['INVALID', 'statements']);
    expect(
      await lied((log, cast) => {
        cast.session(S);
        log.judge(S, {
          lie: (payload) => Buffer.from(payload.toString().replace('"unknown":0', '"unknown":1')),
        });
      }),
    ).toEqual(['INVALID', 'sessions']);
  });

  test('by keeping silent about a session leaves the export undecided, and says which', async () => {
    expect(
      await lied((log, cast) => {
        cast.session(S);
        log.judge(S);
        cast.session('run-2', { status: 'FAIL' });
      }),
    ).toEqual(['INDETERMINATE']);
  });
});
