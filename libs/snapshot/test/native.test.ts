import { execFileSync } from 'node:child_process';
import {
  closeSync,
  lstatSync,
  mkdtempSync,
  openSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { IN, loadNative, type Native, plainLstat } from '../src/native.js';

const root = mkdtempSync(join(tmpdir(), 'belay-native-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const native = loadNative() as Native;
const atBytes = (name: Buffer): Buffer => Buffer.concat([Buffer.from(`${root}/`), name]);
const at = (name: string): Buffer => atBytes(Buffer.from(name));

it('is there: koffi is a dependency, and on this platform it has a binary', () => {
  expect(native).toBeDefined();
});

describe('times', () => {
  it.each([
    0n,
    1n,
    999_999_999n,
    1_700_000_000_123_456_789n,
    -1n,
    -1_500_000_000n,
    4_102_444_800_000_000_001n,
  ])('are set and read to the nanosecond: %s', (time) => {
    const path = at('a');
    writeFileSync(path, 'a');
    native.setMtime(path, time);
    expect(native.lstat(path).mtime).toBe(time);
    // Node itself reads times before 1970 wrong in its floating form only.
    if (time >= 0n) expect(lstatSync(path, { bigint: true }).mtimeNs).toBe(time);
    const fd = openSync(path, 'r+');
    native.setMtimeOf(fd, time + 7n);
    closeSync(fd);
    expect(native.lstat(path).mtime).toBe(time + 7n);
  });

  it('of a link are its own, and leave the time of access alone', () => {
    const [file, link] = [at('target'), at('link')];
    writeFileSync(file, 'x');
    symlinkSync('target', link);
    const before = lstatSync(file, { bigint: true });
    const access = lstatSync(link, { bigint: true }).atimeNs;
    native.setMtime(link, 42n);
    expect(lstatSync(link, { bigint: true })).toMatchObject({ mtimeNs: 42n, atimeNs: access });
    expect(lstatSync(file, { bigint: true }).mtimeNs).toBe(before.mtimeNs);
  });
});

it('sees of a path what Node sees', () => {
  for (const path of [
    Buffer.from('/'),
    Buffer.from('/dev/null'),
    Buffer.from('/proc/self/exe'),
    at('target'),
  ])
    expect(native.lstat(path)).toEqual(plainLstat(path));
  expect(native.lstatIfThere(at('nowhere'))).toBeUndefined();
  expect(native.lstatIfThere(at('target/below'))).toBeUndefined();
  expect(plainLstat(at('target/below'), false)).toBeUndefined();
  expect(() => native.lstat(at('nowhere'))).toThrow(expect.objectContaining({ code: 'ENOENT' }));
});

it('takes names that are no text, and none that would end early', () => {
  const path = atBytes(Buffer.from([0xff, 0x0a, 0xfe]));
  writeFileSync(path, 'odd');
  expect(native.lstat(path).size).toBe(3);
  expect(() => native.lstat(at('a\0b'))).toThrow(expect.objectContaining({ code: 'EINVAL' }));
  expect(() => native.lstat(at('a'.repeat(5000)))).toThrow(expect.objectContaining({ code: 'ENAMETOOLONG' }));
});

describe('extended attributes', () => {
  it('are written, listed in order, read and removed', () => {
    const path = at('x');
    writeFileSync(path, '');
    expect(native.xattrs(path)).toEqual([]);
    const big = Buffer.alloc(1000, 7);
    native.setXattr(path, Buffer.from('user.z'), Buffer.alloc(0));
    native.setXattr(path, Buffer.from('user.b'), Buffer.from([0, 1, 255]));
    native.setXattr(path, Buffer.from('user.a'), big);
    expect(native.xattrs(path)).toEqual([
      [Buffer.from('user.a'), big],
      [Buffer.from('user.b'), Buffer.from([0, 1, 255])],
      [Buffer.from('user.z'), Buffer.alloc(0)],
    ]);
    native.removeXattr(path, Buffer.from('user.a'));
    expect(native.xattrs(path).map(([name]) => name.toString())).toEqual(['user.b', 'user.z']);
    expect(() => native.removeXattr(path, Buffer.from('user.a'))).toThrow(
      expect.objectContaining({ code: 'ENODATA' }),
    );
  });

  it('none where the file system has none', () => {
    expect(native.xattrs(Buffer.from('/proc/self/status'))).toEqual([]);
  });
});

it('hears what happened before the call that did it returned', () => {
  const { inotify } = native;
  if (!inotify) throw new Error('there is inotify on Linux');
  const into = Buffer.alloc(4096);
  const queue = inotify.open();
  try {
    expect(inotify.read(queue, into)).toBe(0);
    const watch = inotify.watch(queue, Buffer.from(root), IN.CREATE | IN.DELETE | IN.ONLYDIR);
    writeFileSync(at('heard'), '');
    const length = inotify.read(queue, into);
    expect(into.readInt32LE(0)).toBe(watch);
    expect(into.readUInt32LE(4)).toBe(IN.CREATE);
    expect(into.subarray(16, length).toString().replaceAll('\0', '')).toBe('heard');
    unlinkSync(at('heard'));
    expect(inotify.read(queue, into)).toBe(length);
    inotify.unwatch(queue, watch);
    inotify.unwatch(queue, watch);
    expect(inotify.read(queue, into)).toBe(16);
    expect(into.readUInt32LE(4)).toBe(IN.IGNORED);
    expect(() => inotify.watch(queue, at('nowhere'), IN.CREATE)).toThrow(
      expect.objectContaining({ code: 'ENOENT' }),
    );
  } finally {
    closeSync(queue);
  }
});

it('the queue is not inherited by programs', () => {
  const { inotify } = native;
  if (!inotify) throw new Error('there is inotify on Linux');
  const queue = inotify.open();
  try {
    expect(execFileSync('ls', ['-l', '/proc/self/fd'], { encoding: 'utf8' })).not.toContain('inotify');
  } finally {
    closeSync(queue);
  }
});
