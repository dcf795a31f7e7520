import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { crc32 } from 'node:zlib';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { Capturer } from '../src/capture.js';
import { gc, GcError, type GcReport } from '../src/gc.js';
import { thisProcess } from '../src/identity.js';
import { restore } from '../src/restore.js';
import { Store } from '../src/store.js';
import { Chance, disturb, grow, picture } from './trees.js';

const base = realpathSync(mkdtempSync(join(tmpdir(), 'belay-gc-')));
afterAll(() => rmSync(base, { recursive: true, force: true }));

let [folder, dir, root] = ['', '', ''];
let n = 0;
beforeEach(() => {
  folder = join(base, String(n++));
  dir = join(folder, 'store');
  root = join(folder, 'work');
  mkdirSync(root, { recursive: true });
});

interface Known {
  readonly digest: string;
  readonly picture: Record<string, string>;
  readonly at: number;
}

/** Of the acts of a gc, one in so many is where it is killed; each in the long form (`npm run soak`). */
const STRIDE = process.env.BELAY_KILLS === undefined ? 7 : 1;

/** A clock that a test sets; the journals' names come from it. */
let now = 1_700_000_000_000;

function stateOf(capturer: Capturer): string {
  const captured = capturer.capture();
  if (captured.kind !== 'state') throw new Error(`${captured.cause}: ${captured.detail}`);
  return captured.digest;
}

const open = (): Capturer => Capturer.open({ store: Store.open(dir), roots: [root], now: () => now });

/** The writer of a session that this very process made is alive: it is to look as if it had ended. */
function end(capturer: Capturer): void {
  const before = new Set(readdirSync(dir));
  capturer.close();
  for (const name of readdirSync(dir)) {
    if (!name.endsWith('.journal') || ended.has(name)) continue;
    ended.add(name);
    const path = join(dir, name);
    const bytes = readFileSync(path);
    // The same length, and the checksum made right.
    const identity = JSON.stringify(thisProcess());
    const other = identity.replace(/"pid":(\d+)/, (_, pid: string) => `"pid":${'9'.repeat(pid.length)}`);
    const at = bytes.indexOf(identity);
    if (at < 0) continue;
    bytes.write(other, at);
    const length = Buffer.byteLength(other);
    bytes.writeUInt32BE(crc32(bytes.subarray(at - 1, at + length)), at + length);
    writeFileSync(path, bytes);
  }
  expect(before.size).toBeGreaterThan(0);
}
const ended = new Set<string>();

/** Some sessions of some states each, of the same tree. */
function sessions(chance: Chance, count: number, each: number): Known[] {
  const known: Known[] = [];
  for (let session = 0; session < count; session++) {
    const capturer = open();
    for (let i = 0; i < each; i++) {
      for (let steps = chance.below(5); steps > 0; steps--) disturb(Buffer.from(root), chance);
      now += 1000;
      const digest = stateOf(capturer);
      if (!known.some((state) => state.digest === digest))
        known.push({ digest, picture: picture(Buffer.from(root)), at: now });
    }
    end(capturer);
  }
  return known;
}

const unique = (digests: readonly string[]): string[] => [...new Set(digests)].toSorted();
const statesIn = (where: string): string[] => {
  const store = Store.open(where);
  const digests = store.states().map(({ digest }) => digest);
  for (const digest of digests) store.check(digest);
  store.close();
  return unique(digests);
};
const bytesIn = (where: string): number =>
  readdirSync(where)
    .filter((name) => /\.(pack|journal)$/.test(name))
    .reduce((sum, name) => sum + statSync(join(where, name)).size, 0);

async function expectRestorable(known: readonly Known[], where = dir): Promise<void> {
  const store = Store.open(where);
  for (const state of known) {
    const into = join(folder, 'restored');
    await restore(store, state.digest, into);
    expect(picture(Buffer.from(into))).toEqual(state.picture);
    rmSync(into, { recursive: true });
  }
  store.close();
}

it.each([1, 2, 3, 4])('keeps what is wanted and nothing else (seed %i)', async (seed) => {
  const chance = new Chance(seed);
  grow(Buffer.from(root), chance, 120);
  const known = sessions(chance, 3, 8);
  const kept = known.filter(() => chance.below(4) === 0);
  const newerThan = (known.at(-3) as Known).at;
  const wanted = known.filter((state) => kept.includes(state) || state.at >= newerThan);
  const before = bytesIn(dir);
  const report = gc(dir, { keep: kept.map(({ digest }) => digest), newerThan });
  expect(report).toMatchObject({
    states: { kept: wanted.length, dropped: known.length - wanted.length },
    bytes: { before, after: bytesIn(dir) },
    missing: [],
    damaged: [],
    writers: [],
  });
  expect(statesIn(dir)).toEqual(unique(wanted.map(({ digest }) => digest)));
  await expectRestorable(wanted);
  // Nothing is left to do, so nothing is done.
  const files = readdirSync(dir).filter((name) => name !== 'generation');
  gc(dir, { keep: wanted.map(({ digest }) => digest) });
  expect(readdirSync(dir).filter((name) => name !== 'generation')).toEqual(files);
  expect(files.filter((name) => /\.tmp$|lock$/.test(name))).toEqual([]);
});

it('gives back the room of contents that nobody has any more', () => {
  const capturer = open();
  writeFileSync(join(root, 'large'), Buffer.alloc(6_000_000, 'abc'));
  const large = stateOf(capturer);
  writeFileSync(join(root, 'large'), 'small');
  const small = stateOf(capturer);
  end(capturer);
  const report = gc(dir, { keep: [small] });
  expect(report.bytes.before).toBeGreaterThan(6_000_000);
  expect(report.bytes.after).toBeLessThan(10_000);
  expect(statesIn(dir)).toEqual([small]);
  expect(gc(dir, { keep: [large] }).missing).toEqual([large]);
  expect(statesIn(dir)).toEqual([]);
  // And is a store as before.
  const next = open();
  expect(stateOf(next)).toBe(small);
  next.close();
  expect(statesIn(dir)).toEqual([small]);
});

it('a large content goes over in pieces, and whole', async () => {
  const capturer = open();
  writeFileSync(join(root, 'a'), Buffer.from(Array.from({ length: 3_000_001 }, (_, i) => (i * 7919) % 251)));
  const digest = stateOf(capturer);
  const known: Known = { digest, picture: picture(Buffer.from(root)), at: now };
  writeFileSync(join(root, 'b'), 'x');
  stateOf(capturer);
  end(capturer);
  gc(dir, { keep: [digest] });
  await expectRestorable([known]);
});

it('a dry run says what there would be, and changes nothing', () => {
  const chance = new Chance(9);
  grow(Buffer.from(root), chance, 60);
  const known = sessions(chance, 2, 5);
  const looks = (): unknown => readdirSync(dir).map((name) => [name, statSync(join(dir, name)).mtimeMs]);
  const before = looks();
  const keep = [(known[2] as Known).digest];
  const said = gc(dir, { keep, dryRun: true });
  expect(looks()).toEqual(before);
  const done = gc(dir, { keep });
  expect(said.states).toEqual(done.states);
  expect(said.bytes.before).toBe(done.bytes.before);
  expect(done.bytes.after).toBeLessThan(done.bytes.before);
});

describe('killed at any of its acts', () => {
  it('every wanted state is there, and the next one finishes', async () => {
    const chance = new Chance(17);
    grow(Buffer.from(root), chance, 40);
    const known = sessions(chance, 2, 5);
    const wanted = known.filter((_, i) => i % 3 === 1);
    const keep = wanted.map(({ digest }) => digest);
    const program = fileURLToPath(new URL('gc-victim.mjs', import.meta.url));
    let kills = 0;
    for (let act = 1; ; act += STRIDE) {
      const copy = join(folder, `copy${act}`);
      cpSync(dir, copy, { recursive: true });
      const { stdout, signal } = spawnSync(process.execPath, [program, copy, String(act), ...keep], {
        encoding: 'utf8',
      });
      expect(statesIn(copy)).toEqual(expect.arrayContaining(keep.toSorted()));
      if (kills % 7 === 0) await expectRestorable(wanted, copy);
      if (signal === null) {
        expect(stdout).toMatch(/^done/);
        expect(statesIn(copy)).toEqual(unique(keep));
        break;
      }
      kills++;
      expect(signal).toBe('SIGKILL');
      // What was left of files that got no name is taken away when it is old.
      gc(copy, { keep, now: () => Date.now() + 3_600_000 });
      expect(statesIn(copy)).toEqual(unique(keep));
      expect(readdirSync(copy).filter((name) => name.endsWith('.tmp') || name === 'gc.lock')).toEqual([]);
      const packs = readdirSync(copy).filter((name) => name.endsWith('.pack'));
      for (const pack of packs) expect(existsSync(join(copy, pack.replace('.pack', '.journal')))).toBe(true);
      rmSync(copy, { recursive: true });
    }
    expect(kills * STRIDE).toBeGreaterThan(50);
  }, 600_000);
});

describe('while others write', () => {
  it('all that a living session was told stays, and it goes on', async () => {
    writeFileSync(join(root, 'f'), 'first');
    const old = open();
    const first = stateOf(old);
    writeFileSync(join(root, 'f'), 'what the next session goes on from');
    stateOf(old);
    end(old);
    const program = fileURLToPath(new URL('capture-victim.mjs', import.meta.url));
    const victim = spawn(process.execPath, [program, root, dir, '1'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const said: string[] = [];
    const lines = createInterface({ input: victim.stdout });
    lines.on('line', (line) => said.push(line));
    const reports: GcReport[] = [];
    try {
      for (let round = 0; round < 12; round++) {
        const enough = said.length + 2;
        while (said.length < enough) await once(lines, 'line');
        reports.push(gc(dir, { keep: [] }));
      }
    } finally {
      victim.kill('SIGKILL');
      await once(victim, 'close');
    }
    expect(said.every((line) => line.startsWith('sha256:'))).toBe(true);
    const there = new Set(statesIn(dir));
    expect(said.filter((digest) => !there.has(digest))).toEqual([]);
    expect(there.has(first)).toBe(false);
    expect(reports.at(-1)?.writers).toEqual([expect.objectContaining({ pid: victim.pid })]);
    // When it is gone, so is what it had.
    const last = said.at(-1) as string;
    gc(dir, { keep: [last] });
    expect(statesIn(dir)).toEqual([last]);
  }, 60_000);

  it('a content that was there and is gone before its state is kept is read again', () => {
    writeFileSync(join(root, 'f'), 'shared content');
    const ends = open();
    stateOf(ends);
    end(ends);
    writeFileSync(join(root, 'f'), 'another');
    const lives = open();
    stateOf(lives);
    // The content is known from the first session; the store is tidied before and after that is used.
    writeFileSync(join(root, 'f'), 'shared content');
    gc(dir, { keep: [] });
    const again = stateOf(lives);
    expect(statesIn(dir)).toContain(again);
    lives.close();
  });

  it('a writer that relied on it while it went says so, and is told nothing', () => {
    writeFileSync(join(root, 'f'), 'content');
    const ends = open();
    stateOf(ends);
    end(ends);
    const store = Store.open(dir);
    const hash = store.manifest((store.states()[0] as { digest: string }).digest).get(0, Buffer.from('f'))
      ?.content as Buffer;
    const writer = store.writer(() => now);
    writer.add(hash, Buffer.from('content'));
    gc(dir, { keep: [] });
    const other = Store.open(dir);
    const state = { roots: [{ path: Buffer.from('/x'), tree: Buffer.alloc(32) }], ignored: [], gaps: [] };
    expect(() => writer.keep(state, undefined, [], () => [[]])).toThrow(
      expect.objectContaining({ code: 'tidied' }),
    );
    other.refresh();
    expect(other.states()).toEqual([]);
    writer.abandon();
    writer.add(hash, Buffer.from('content'));
    writer.keep(state, undefined, [], () => [[]]);
    other.refresh();
    expect(other.content(hash).toString()).toBe('content');
    writer.close();
    other.close();
    store.close();
  });

  it('a session that goes on from the state of another holds it', () => {
    writeFileSync(join(root, 'f'), 'x');
    const ends = open();
    const digest = stateOf(ends);
    end(ends);
    const lives = open();
    expect(stateOf(lives)).toBe(digest);
    gc(dir, { keep: [] });
    expect(statesIn(dir)).toEqual([digest]);
    writeFileSync(join(root, 'f'), 'y');
    const next = stateOf(lives);
    expect(statesIn(dir)).toEqual(unique([digest, next]));
    end(lives);
    gc(dir, { keep: [next] });
    expect(statesIn(dir)).toEqual([next]);
  });

  it('a session that was taken for ended finds out, and claims nothing that is not there', () => {
    writeFileSync(join(root, 'f'), 'x');
    writeFileSync(join(root, 'g'), 'unchanged');
    const lives = open();
    stateOf(lives);
    for (const name of readdirSync(dir)) if (/\.(pack|journal)$/.test(name)) rmSync(join(dir, name));
    gc(dir, { keep: [] });
    writeFileSync(join(root, 'f'), 'y');
    const next = stateOf(lives);
    expect(statesIn(dir)).toEqual([next]);
    lives.close();
  });

  it('who reads meanwhile goes on with what stayed', () => {
    const chance = new Chance(4);
    grow(Buffer.from(root), chance, 60);
    const known = sessions(chance, 2, 4);
    const reader = Store.open(dir);
    const kept = known[1] as Known;
    gc(dir, { keep: [kept.digest] });
    reader.check(kept.digest);
    expect(() => reader.check((known[0] as Known).digest)).toThrow(
      expect.objectContaining({ code: 'unknown-state' }),
    );
    reader.close();
  });

  it('two at once: the second is told', () => {
    stateOf(open());
    writeFileSync(join(dir, 'gc.lock'), JSON.stringify(thisProcess()));
    expect(() => gc(dir, { keep: [] })).toThrow(GcError);
    writeFileSync(join(dir, 'gc.lock'), JSON.stringify({ ...thisProcess(), pid: 4_000_000 }));
    gc(dir, { keep: [] });
    expect(existsSync(join(dir, 'gc.lock'))).toBe(false);
  });
});

it('what can not be read any more is said, and its file is left alone', () => {
  const capturer = open();
  writeFileSync(join(root, 'a'), 'fine');
  writeFileSync(join(root, 'b'), 'damaged content');
  const digest = stateOf(capturer);
  writeFileSync(join(root, 'c'), 'unwanted');
  stateOf(capturer);
  end(capturer);
  const pack = readdirSync(dir).find((name) => name.endsWith('.pack')) as string;
  const bytes = readFileSync(join(dir, pack));
  bytes.write('D', bytes.indexOf('damaged'));
  writeFileSync(join(dir, pack), bytes);
  const { damaged } = gc(dir, { keep: [digest] });
  expect(damaged).toHaveLength(1);
  expect(existsSync(join(dir, pack))).toBe(true);
  const store = Store.open(dir);
  expect(store.has(digest)).toBe(true);
  expect(() => store.check(digest)).toThrow(expect.objectContaining({ code: 'content-damaged' }));
  store.close();
});

it('many small sessions become one', () => {
  const digests: string[] = [];
  for (let i = 0; i < 70; i++) {
    writeFileSync(join(root, 'f'), String(i));
    const capturer = open();
    digests.push(stateOf(capturer));
    end(capturer);
  }
  expect(readdirSync(dir).filter((name) => name.endsWith('.pack')).length).toBeGreaterThan(64);
  gc(dir, { keep: digests });
  expect(readdirSync(dir).filter((name) => name.endsWith('.pack'))).toHaveLength(1);
  expect(statesIn(dir)).toEqual(unique(digests));
});

it('a journal that can not be read to its end stays while something is missing that it may have', () => {
  const capturer = open();
  writeFileSync(join(root, 'f'), '1');
  const first = stateOf(capturer);
  writeFileSync(join(root, 'f'), '2');
  const second = stateOf(capturer);
  end(capturer);
  const journal = readdirSync(dir).find((name) => name.endsWith('.journal')) as string;
  const whole = readFileSync(join(dir, journal));
  const damaged = Buffer.from(whole);
  damaged.writeUInt8((damaged.at(-20) ?? 0) ^ 1, damaged.length - 20);
  writeFileSync(join(dir, journal), damaged);
  expect(gc(dir, { keep: [first, second] }).missing).toEqual([second]);
  expect(readFileSync(join(dir, journal)).equals(damaged)).toBe(true);
  // Somebody had a copy.
  writeFileSync(join(dir, journal), whole);
  gc(dir, { keep: [first, second] });
  expect(statesIn(dir)).toEqual(unique([first, second]));
});
