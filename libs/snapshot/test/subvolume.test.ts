import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Capturer } from '../src/capture.js';
import { treeDigest } from '../src/manifest.js';
import { Store } from '../src/store.js';
import { isSubvolume, sweepSubvolumes, takeSubvolume } from '../src/subvolume.js';
import { oracle } from './oracle.js';
import { Holder } from './workload.js';

/** A btrfs of our own on a file; the reason why there can be none. */
function mount(base: string): string | undefined {
  if (process.getuid?.() !== 0) return 'a btrfs can only be mounted by root';
  const image = join(base, 'image');
  const at = join(base, 'btrfs');
  mkdirSync(at);
  writeFileSync(image, '');
  truncateSync(image, 256 * 1024 * 1024);
  try {
    execFileSync('mkfs.btrfs', ['-q', image], { stdio: 'ignore' });
    execFileSync('mount', ['-o', 'loop', image, at], { stdio: 'ignore' });
    return undefined;
  } catch (error) {
    return `no btrfs can be made here: ${(error as Error).message}`;
  }
}

let base: string;
let missing: string | undefined;
beforeAll(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'belay-btrfs-')));
  missing = mount(base);
});
afterAll(() => {
  if (missing === undefined) execFileSync('umount', ['-l', join(base, 'btrfs')]);
  rmSync(base, { recursive: true, force: true });
});

const at = (...path: string[]): string => join(base, 'btrfs', ...path);

it('elsewhere there is none, and that is no error', () => {
  mkdirSync(join(base, 'plain'));
  expect(isSubvolume(Buffer.from(join(base, 'plain')))).toBe(false);
  expect(takeSubvolume(Buffer.from(join(base, 'plain')), base)).toBeUndefined();
});

describe('of a btrfs subvolume', () => {
  it('a state is had of one moment, though a stranger never stops writing', async (context) => {
    if (missing !== undefined) return context.skip(missing);
    const root = at('w');
    execFileSync('btrfs', ['subvolume', 'create', root], { stdio: 'ignore' });
    expect(isSubvolume(Buffer.from(root))).toBe(true);
    for (let n = 0; n < 200; n++) {
      mkdirSync(join(root, `d${n % 10}`), { recursive: true });
      writeFileSync(join(root, `d${n % 10}`, `f${n}`), `${n}`);
    }
    mkdirSync(join(root, 'evidence'));
    writeFileSync(join(root, 'evidence', 'hidden'), 'x');
    const ignore = [join(root, 'evidence')];
    const capturer = Capturer.open({ store: Store.open(at('s')), roots: [root], ignore });
    const first = capturer.capture();
    expect(first).toMatchObject({ kind: 'state', entries: 211 });
    capturer.close();
    const moment = Capturer.open({ store: Store.open(at('s')), roots: [root], ignore, passes: 1 });
    const stranger = new Holder();
    let moments = 0;
    let last = '';
    for (let n = 0; n < 10; n++) {
      await stranger.do('chain', { dir: root, on: true });
      await stranger.do('noise', { dir: root, on: true, busy: true });
      const captured = moment.capture();
      if (captured.kind !== 'state') throw new Error(JSON.stringify(captured));
      last = captured.digest;
      const reader = Store.open(at('s'));
      reader.check(last);
      const manifest = reader.manifest(last);
      expect(treeDigest(manifest.entries(0))).toEqual(manifest.state.roots[0]?.tree);
      const counts = Array.from({ length: 10 }, (_, i) =>
        Number(reader.content(manifest.get(0, Buffer.from(`chain-${i}`))?.content as Buffer).toString()),
      );
      reader.close();
      for (const [i, count] of counts.entries()) {
        expect(count, counts.join(' ')).toBeLessThanOrEqual(counts[Math.max(i - 1, 0)] as number);
        expect(count, counts.join(' ')).toBeGreaterThanOrEqual((counts[0] as number) - 1);
      }
      if (captured.subvolume) moments++;
      // What did not change is not read again.
      expect(captured.rehashed).toBeLessThan(200);
      await stranger.do('chain', { dir: root, on: false });
      await stranger.do('noise', { dir: root, on: false });
    }
    await stranger.end();
    expect(moments).toBeGreaterThan(0);
    expect(readdirSync(at('s')).filter((name) => name.endsWith('.subvol'))).toEqual([]);
    rmSync(join(root, 'evidence'), { recursive: true });
    mkdirSync(join(root, 'evidence'));
    const quiet = moment.capture();
    moment.close();
    rmSync(join(root, 'evidence'), { recursive: true });
    const all = Capturer.open({ store: Store.open(at('s')), roots: [root] });
    expect(all.capture()).toMatchObject({ kind: 'state', ...oracle([root]) });
    expect(quiet).toMatchObject({ kind: 'state' });
    all.close();
  });

  it('what a killed process left is removed, what a living one has is not', (context) => {
    if (missing !== undefined) return context.skip(missing);
    const root = at('w');
    mkdirSync(at('t'));
    const subvolume = takeSubvolume(Buffer.from(root), at('t'));
    expect(existsSync(subvolume?.path.toString() as string)).toBe(true);
    sweepSubvolumes(at('t'));
    expect(existsSync(subvolume?.path.toString() as string)).toBe(true);
    const left = at('t', `4194999-${'0'.repeat(16)}.subvol`);
    execFileSync('btrfs', ['subvolume', 'snapshot', root, left], { stdio: 'ignore' });
    sweepSubvolumes(at('t'));
    expect(existsSync(left)).toBe(false);
    subvolume?.remove();
    expect(readdirSync(at('t'))).toEqual([]);
  });
});
