import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Capturer } from '../src/capture.js';
import { treeDigest } from '../src/manifest.js';
import { Store } from '../src/store.js';
import { oracle } from './oracle.js';
import { Chance } from './trees.js';

const KILLS = Number(process.env.BELAY_KILLS ?? 3);

let base: string;
let root: string;
let dir: string;
beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'belay-store-')));
  root = join(base, 'w');
  dir = join(base, 's');
  mkdirSync(root);
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const open = (at = dir): Capturer => Capturer.open({ store: Store.open(at), roots: [root] });

function state(capturer: Capturer): string {
  const captured = capturer.capture();
  if (captured.kind !== 'state') throw new Error(JSON.stringify(captured));
  return captured.digest;
}

/** Every state that a store names can be had whole, and is what its digest says. */
function checkStore(at: string): string[] {
  const store = Store.open(at);
  const digests = store.states().map(({ digest }) => digest);
  for (const digest of digests) {
    store.check(digest);
    const manifest = store.manifest(digest);
    expect(manifest.digest).toBe(digest);
    manifest.state.roots.forEach(({ tree }, i) => expect(treeDigest(manifest.entries(i))).toEqual(tree));
  }
  store.close();
  return digests;
}

const files = (ending: string): string[] => readdirSync(dir).filter((name) => name.endsWith(ending));

it('nobody else may look into it', () => {
  writeFileSync(join(root, 'a'), 'secret');
  const capturer = open();
  state(capturer);
  capturer.close();
  expect(statSync(dir).mode & 0o777).toBe(0o700);
  for (const name of readdirSync(dir)) expect(statSync(join(dir, name)).mode & 0o777, name).toBe(0o600);
});

it('a directory that holds something else, or another version, is refused', () => {
  mkdirSync(dir);
  writeFileSync(join(dir, 'thesis.txt'), 'mine');
  expect(() => Store.open(dir)).toThrow(expect.objectContaining({ code: 'no-store' }));
  rmSync(dir, { recursive: true });
  Store.open(dir).close();
  writeFileSync(join(dir, 'format'), 'belay-snapshot 2\n');
  expect(() => Store.open(dir)).toThrow(expect.objectContaining({ code: 'no-store' }));
});

it('equal content is kept once, also by writers that follow each other', () => {
  const content = new Chance(1).bytes(10_000);
  for (let i = 0; i < 10; i++) writeFileSync(join(root, `f${i}`), content);
  const first = open();
  state(first);
  expect(first.written.pack).toBe(10_000);
  writeFileSync(join(root, 'again'), content);
  state(first);
  expect(first.written.pack).toBe(10_000);
  first.close();
  const second = Capturer.open({ store: Store.open(dir), roots: [root], ignore: ['none'] });
  state(second);
  expect(second.written.pack).toBe(0);
  second.close();
  checkStore(dir);
});

it('a large file is kept in pieces, and once', () => {
  const large = Buffer.alloc(9_000_001, 'large file');
  writeFileSync(join(root, 'large'), large);
  const capturer = open();
  state(capturer);
  writeFileSync(join(root, 'same'), large);
  writeFileSync(join(root, 'small'), 'x');
  const digest = state(capturer);
  expect(capturer.written.pack).toBe(large.length + 1);
  capturer.close();
  checkStore(dir);
  const store = Store.open(dir);
  const content = store.manifest(digest).get(0, Buffer.from('same'))?.content as Buffer;
  expect(store.content(content).equals(large)).toBe(true);
  expect(createHash('sha256').update(large).digest()).toEqual(content);
  store.close();
});

it('states in a chain of changes, and what changed in each', () => {
  const capturer = open();
  const chance = new Chance(5);
  const digests: string[] = [];
  for (let n = 0; n < 60; n++) {
    writeFileSync(join(root, `f${chance.below(20)}`), chance.bytes(100));
    if (n % 5 === 0) rmSync(join(root, `f${chance.below(20)}`), { force: true });
    digests.push(state(capturer));
  }
  capturer.close();
  const store = Store.open(dir);
  expect(store.states().map(({ digest }) => digest)).toEqual([...new Set(digests)]);
  let manifest = store.manifest(digests[0] as string);
  for (const digest of digests.slice(1)) {
    const fresh = store.manifest(digest);
    manifest = store.manifest(digest, manifest);
    expect([...manifest.entries(0)]).toEqual([...fresh.entries(0)]);
    const delta = store.delta(digest);
    expect(delta === undefined || digests.includes(delta.parent)).toBe(true);
  }
  store.close();
  checkStore(dir);
});

it('a chain is cut by a whole state when it has become as long as one', () => {
  const capturer = open();
  const names = Array.from({ length: 100 }, (_, i) => join(root, `${i}${'n'.repeat(240)}`));
  for (const name of names) writeFileSync(name, '');
  for (let n = 0; n < 30; n++) {
    for (const name of names) utimesSync(name, n, n);
    state(capturer);
  }
  capturer.close();
  const store = Store.open(dir);
  const whole = store.states().filter(({ parent }) => parent === undefined);
  expect(whole.length).toBeGreaterThan(1);
  expect(whole.length).toBeLessThan(10);
  store.close();
});

it('two writers at once use one directory, and each sees what the other keeps', () => {
  writeFileSync(join(root, 'shared'), 'the same for both');
  const other = join(base, 'w2');
  mkdirSync(other);
  copyFileSync(join(root, 'shared'), join(other, 'shared'));
  const a = open();
  const b = Capturer.open({ store: Store.open(dir), roots: [other] });
  const digests = [state(a), state(b)];
  for (let n = 0; n < 10; n++) {
    writeFileSync(join(root, 'mine'), `${n}`);
    writeFileSync(join(other, 'yours'), `${n}`);
    digests.push(state(a), state(b));
  }
  a.close();
  b.close();
  expect(checkStore(dir).sort()).toEqual([...new Set(digests)].sort());
});

it('what was damaged is found out when it is read', () => {
  writeFileSync(join(root, 'a'), 'what it was');
  const capturer = open();
  const digest = state(capturer);
  capturer.close();
  const [pack] = files('.pack');
  writeFileSync(join(dir, pack as string), 'what it IS!');
  const store = Store.open(dir);
  expect(() => store.check(digest)).toThrow(expect.objectContaining({ code: 'content-damaged' }));
  truncateSync(join(dir, pack as string), 3);
  const content = store.manifest(digest).get(0, Buffer.from('a'))?.content as Buffer;
  expect(() => store.content(content)).toThrow(expect.objectContaining({ code: 'content-damaged' }));
  expect(() => store.content(Buffer.alloc(32))).toThrow(expect.objectContaining({ code: 'content-missing' }));
  expect(() => store.manifest(`sha256:${'0'.repeat(64)}`)).toThrow(
    expect.objectContaining({ code: 'unknown-state' }),
  );
  store.close();
});

describe('whatever of a journal is there', () => {
  it('the states that are named can be had, and a new session goes on', { timeout: 120_000 }, () => {
    const capturer = open();
    const digests: string[] = [];
    for (let n = 0; n < 4; n++) {
      writeFileSync(join(root, `f${n}`), `content ${n}`);
      digests.push(state(capturer));
    }
    capturer.close();
    const [journal] = files('.journal') as [string];
    const whole = readFileSync(join(dir, journal));
    let known = 0;
    const lengths = Array.from({ length: whole.length + 1 }, (_, length) => length);
    for (const length of lengths.filter((each) => each % 3 !== 2 || each === whole.length)) {
      const copy = join(base, `copy${length}`);
      mkdirSync(copy, { mode: 0o700 });
      for (const name of readdirSync(dir)) copyFileSync(join(dir, name), join(copy, name));
      writeFileSync(join(copy, journal), whole.subarray(0, length));
      const named = checkStore(copy);
      expect(named).toEqual(digests.slice(0, named.length));
      known = Math.max(known, named.length);
      if (length % 25 === 0) {
        const next = open(copy);
        expect(state(next)).toBe(digests.at(-1));
        next.close();
        expect(checkStore(copy)).toContain(digests.at(-1));
      }
      rmSync(copy, { recursive: true });
    }
    expect(known).toBe(4);
  });

  it('nonsense behind the last record is not read', () => {
    const capturer = open();
    writeFileSync(join(root, 'a'), 'a');
    const digest = state(capturer);
    capturer.close();
    const [journal] = files('.journal') as [string];
    appendFileSync(join(dir, journal), new Chance(3).bytes(1000));
    expect(checkStore(dir)).toEqual([digest]);
  });
});

it(
  `killed ${KILLS} times in the middle of its work, it has claimed nothing that can not be had`,
  { timeout: 600_000 },
  async () => {
    const program = fileURLToPath(new URL('capture-victim.mjs', import.meta.url));
    const chance = new Chance(11);
    let said = 0;
    for (let n = 0; n < KILLS; n++) {
      const victim = spawn(process.execPath, [program, root, dir, String(n)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const digests: string[] = [];
      const enough = 1 + chance.below(4);
      const lines = createInterface({ input: victim.stdout });
      const ended = new Promise((done) => victim.once('exit', done));
      for await (const line of lines) {
        digests.push(line);
        if (digests.length < enough) continue;
        // Somewhere in the next capture, or in what leads to it.
        setTimeout(() => victim.kill('SIGKILL'), chance.below(60));
        if (digests.length === enough) lines.once('close', () => undefined);
      }
      await ended;
      said += digests.length;
      const named = checkStore(dir);
      for (const digest of digests) expect(named).toContain(digest);
      const next = open();
      const captured = next.capture();
      next.close();
      expect(captured).toMatchObject({ kind: 'state', ...oracle([root]) });
    }
    expect(said).toBeGreaterThanOrEqual(KILLS);
  },
);
