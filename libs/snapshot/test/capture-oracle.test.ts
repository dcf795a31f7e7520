import { execFileSync } from 'node:child_process';
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  unlinkSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Capturer, type CaptureOptions } from '../src/capture.js';
import { treeDigest } from '../src/manifest.js';
import { IN } from '../src/native.js';
import { Store } from '../src/store.js';
import { oracle } from './oracle.js';
import { Chance } from './trees.js';
import { Holder, Workload } from './workload.js';

const STEPS = Number(process.env.BELAY_STEPS ?? 250);
const SEED = Number(process.env.BELAY_SEED ?? 20261130);
const IGNORED = ['ignored'];

let base: string;
let holder: Holder;
let count = 0;

beforeAll(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'belay-oracle-')));
  holder = new Holder();
});
afterAll(async () => {
  await holder.end();
  rmSync(base, { recursive: true, force: true });
});

interface Place {
  readonly dir: string;
  readonly roots: readonly string[];
  readonly store: string;
  readonly outside: string;
}

function place(roots: readonly string[] = ['w']): Place {
  const dir = join(base, String(count++));
  const made = roots.map((root) => join(dir, root));
  for (const each of [...made, join(dir, 'o')]) mkdirSync(each, { recursive: true });
  return { dir, roots: made, store: join(dir, 's'), outside: join(dir, 'o') };
}

function open({ roots, store }: Place, options: Partial<CaptureOptions> = {}): Capturer {
  return Capturer.open({
    store: Store.open(store),
    roots,
    ignore: IGNORED,
    processes: () => [holder.process.pid as number],
    ...options,
  });
}

/** What was captured is what is there, and the store has it as it is. */
function expectTrue(
  capturer: Capturer,
  where: Place,
  after: string,
  deep: boolean,
  gaps: readonly string[] = [],
): void {
  const { roots, store } = where;
  const captured = capturer.capture();
  const truth = oracle(roots, IGNORED, gaps);
  if ('unfit' in truth) {
    expect(captured, after).toMatchObject({ kind: 'unrestorable' });
    if (captured.kind === 'unrestorable') expect([...truth.unfit], after).toContain(captured.cause);
    return;
  }
  if (captured.kind !== 'state' || captured.digest !== truth.digest)
    expect.fail(
      `${after}: ${captured.kind === 'state' ? differences(where, captured.digest) : JSON.stringify(captured)}`,
    );
  if (!deep) return;
  const reader = Store.open(store);
  reader.check(truth.digest);
  const manifest = reader.manifest(truth.digest);
  manifest.state.roots.forEach(({ tree }, root) => {
    expect(treeDigest(manifest.entries(root)).equals(tree), after).toBe(true);
  });
  reader.close();
}

/** What the kernel says this process watches, by inode: the bits of the mask. */
function watches(): Map<number, number> {
  const found = new Map<number, number>();
  for (const fd of readdirSync('/proc/self/fdinfo')) {
    let text = '';
    try {
      text = readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1');
    } catch {
      // Closed since it was listed.
    }
    for (const [, ino = '', mask = ''] of text.matchAll(/^inotify wd:\S+ ino:(\S+) sdev:\S+ mask:(\S+)/gm))
      found.set(Number.parseInt(ino, 16), Number.parseInt(mask, 16));
  }
  return found;
}

/** Whoever writes to a file by whatever name is heard: a digest that is right now does not show that it will be. */
function expectWatched({ roots }: Place, after: string, eachFile: boolean): void {
  const watched = watches();
  const look = (dir: string): void => {
    for (const entry of readdirSync(dir, { withFileTypes: true, encoding: 'latin1' })) {
      if (IGNORED.includes(entry.name)) continue;
      const path = `${dir}/${entry.name}`;
      const { ino, nlink } = lstatSync(Buffer.from(path, 'latin1'));
      if (entry.isDirectory()) {
        expect(watched.has(ino), `${path} ${after}`).toBe(true);
        look(path);
      } else if (entry.isFile()) {
        if (eachFile) expect(watched.has(ino), `${path} ${after}`).toBe(true);
        if (nlink > 1) expect((watched.get(ino) ?? 0) & IN.MODIFY, `${path} ${after}`).toBe(IN.MODIFY);
      }
    }
  };
  for (const root of roots) look(root);
}

/** What a capturer that knows nothing sees otherwise. */
function differences(where: Place, digest: string): string {
  const fresh = open({ ...where, store: join(where.dir, `fresh${count++}`) }, { method: 'walk' });
  const seen = fresh.capture();
  fresh.close();
  if (seen.kind !== 'state') return JSON.stringify(seen);
  const [was, is] = [Store.open(where.store), Store.open(join(where.dir, `fresh${count - 1}`))];
  const text = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
  const show = (store: Store, digest_: string): Map<string, string> => {
    const manifest = store.manifest(digest_);
    const lines = new Map([['gaps', manifest.state.gaps.join(' ')]]);
    manifest.state.roots.forEach((_, root) => {
      for (const entry of manifest.entries(root))
        lines.set(`${root} ${entry.path.toString('latin1')}`, JSON.stringify(entry, text));
    });
    return lines;
  };
  const [a, b] = [show(was, digest), show(is, seen.digest)];
  return [...new Set([...a.keys(), ...b.keys()])]
    .filter((path) => a.get(path) !== b.get(path))
    .map((path) => `\n${path}\n  captured ${a.get(path)}\n  there    ${b.get(path)}`)
    .join('');
}

async function live(
  where: Place,
  seed: number,
  steps: number,
  options: Partial<CaptureOptions> = {},
): Promise<void> {
  const chance = new Chance(seed);
  let capturer = open(where, options);
  const workloads = where.roots.map((root) => new Workload(root, where.outside, chance, holder));
  const done: string[] = [];
  // Without watches on files, a name given outside, or by which somebody still writes, is not noticed: that is the gap.
  const [without, gaps] =
    options.fileWatches === 0
      ? [['linkOutside', 'writeUnlinked', 'ignored'], ['late-outside-links']]
      : [[], []];
  try {
    for (let n = 0; n < steps; n++) {
      for (let several = chance.below(3); several >= 0; several--)
        done.push(await chance.one(workloads).step(without));
      const story = `seed ${seed} step ${n}: ${done.slice(-8).join(' ')}`;
      expectTrue(capturer, where, story, n % 25 === 0, gaps);
      if (n % 5 === 0 && options.method !== 'walk') expectWatched(where, story, options.fileWatches !== 0);
      if (chance.below(60) !== 0) continue;
      // The next session begins where this one stopped; something happens in between.
      // What somebody else has open by a name that is gone is not known to the next one.
      for (const workload of workloads) workload.close();
      capturer.close();
      done.push('closed', await chance.one(workloads).step(without));
      capturer = open(where, options);
    }
    expect(capturer.verify()).toMatchObject({
      kind: 'state',
      changed: { modified: 0, created: 0, deleted: 0 },
    });
  } finally {
    for (const workload of workloads) workload.close();
    capturer.close();
  }
}

describe('after every step of a random life the digest is that of a full look', () => {
  it(`by events, ${STEPS} steps`, { timeout: 3_600_000 }, async () => {
    await live(place(), SEED, STEPS);
  });

  it(`by walking, ${Math.ceil(STEPS / 4)} steps`, { timeout: 3_600_000 }, async () => {
    await live(place(), SEED + 1, Math.ceil(STEPS / 4), { method: 'walk' });
  });

  it(`two roots with links between them, ${Math.ceil(STEPS / 4)} steps`, { timeout: 3_600_000 }, async () => {
    await live(place(['w1', 'w2']), SEED + 2, Math.ceil(STEPS / 4));
  });

  it(`more files than may be watched, ${Math.ceil(STEPS / 2)} steps`, { timeout: 3_600_000 }, async () => {
    await live(place(), SEED + 3, Math.ceil(STEPS / 2), { fileWatches: 0 });
  });

  it('when the kernel could not keep all it had to tell', { timeout: 600_000 }, async () => {
    const where = place();
    const capturer = open(where);
    const workload = new Workload(where.roots[0] as string, where.outside, new Chance(SEED), holder);
    expectTrue(capturer, where, 'begin', false);
    for (let n = 0; n < Math.max(2, STEPS / 200); n++) {
      await workload.step();
      workload.overflow();
      expectTrue(capturer, where, `overflow ${n}`, false);
    }
    workload.close();
    capturer.close();
  });

  it('with a writer in the background a state is of one moment', { timeout: 600_000 }, async () => {
    const where = place();
    const capturer = open(where);
    const [dir] = where.roots;
    const outcomes = { free: 0, stopped: 0, changing: 0 };
    for (let n = 0; n < Math.max(20, STEPS / 10); n++) {
      await holder.do('chain', { dir, on: true });
      await holder.do('noise', { dir, on: n % 2 === 0 });
      const captured = capturer.capture();
      if (captured.kind === 'state') {
        outcomes[captured.stopped ? 'stopped' : 'free']++;
        const reader = Store.open(where.store);
        reader.check(captured.digest);
        const manifest = reader.manifest(captured.digest);
        const counts = Array.from({ length: 10 }, (_, i) => {
          const { content } = manifest.get(0, Buffer.from(`chain-${i}`)) as { content: Buffer };
          return Number(reader.content(content).toString());
        });
        reader.close();
        // It counts from the first to the last: at any moment each is as far as the one before it, or one behind.
        const first = counts[0] as number;
        for (const [i, count] of counts.entries()) {
          expect(count, counts.join(' ')).toBeLessThanOrEqual(counts[Math.max(i - 1, 0)] as number);
          expect(count, counts.join(' ')).toBeGreaterThanOrEqual(first - 1);
        }
      } else {
        outcomes.changing++;
        expect(captured.cause).toBe('changing');
      }
      await holder.do('chain', { dir, on: false });
      await holder.do('noise', { dir, on: false });
      expectTrue(capturer, where, `quiet again ${n}`, n % 10 === 0);
    }
    capturer.close();
    expect(outcomes.free + outcomes.stopped).toBeGreaterThan(0);
  });

  it('names what no state can have, and goes on when it is gone', async () => {
    const where = place();
    const capturer = open(where);
    const fifo = join(where.roots[0] as string, 'fifo');
    expectTrue(capturer, where, 'begin', false);
    execFileSync('mkfifo', [fifo]);
    expect(capturer.capture()).toMatchObject({ kind: 'unrestorable', cause: 'fifo', path: fifo });
    unlinkSync(fifo);
    expectTrue(capturer, where, 'fifo gone', false);
    const socket = join(where.roots[0] as string, 'socket');
    const server = createServer().listen(socket);
    await new Promise((listening) => server.once('listening', listening));
    expect(capturer.capture()).toMatchObject({ kind: 'unrestorable', cause: 'socket', path: socket });
    await new Promise((closed) => server.close(closed));
    expectTrue(capturer, where, 'socket gone', false);
    capturer.close();
  });
});
