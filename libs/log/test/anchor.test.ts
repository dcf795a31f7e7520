import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AnchorConflict, AnchorDamaged, FileAnchor } from '@belay/log';
import { describe, expect, it } from 'vitest';

const root = (byte: number): Buffer => Buffer.alloc(32, byte);
const fresh = (): string => join(mkdtempSync(join(tmpdir(), 'belay-anchor-')), 'a');

describe('FileAnchor', () => {
  it('remembers the last point of every log over restarts', async () => {
    const dir = fresh();
    const anchor = FileAnchor.open(dir);
    await Promise.all([
      anchor.record('a', 1, root(1)),
      anchor.record('b', 7, root(2)),
      anchor.record('a', 3, root(3)),
    ]);
    anchor.close();
    const again = FileAnchor.open(dir);
    expect(again.last('a')).toEqual({ size: 3, root: root(3) });
    expect(again.last('b')).toEqual({ size: 7, root: root(2) });
    expect(again.last('c')).toBeNull();
    expect(statSync(join(dir, 'anchor')).mode & 0o777).toBe(0o600);
    again.close();
  });

  it('refuses a smaller size and another root for the same one, and takes the same point again', async () => {
    const anchor = FileAnchor.open(fresh());
    await anchor.record('a', 5, root(1));
    await anchor.record('a', 5, root(1));
    await expect(anchor.record('a', 5, root(2))).rejects.toThrow(AnchorConflict);
    await expect(anchor.record('a', 4, root(1))).rejects.toThrow(AnchorConflict);
    expect(anchor.last('a')).toEqual({ size: 5, root: root(1) });
    anchor.close();
  });

  it('resolves the same point only once it is durable', async () => {
    const dir = fresh();
    const anchor = FileAnchor.open(dir);
    const first = anchor.record('a', 1, root(1));
    await anchor.record('a', 1, root(1));
    expect(readFileSync(join(dir, 'anchor'), 'utf8')).toContain('a 1 ');
    await first;
    anchor.close();
  });

  it('cuts a torn last line and goes on', async () => {
    const dir = fresh();
    const anchor = FileAnchor.open(dir);
    await anchor.record('a', 1, root(1));
    anchor.close();
    appendFileSync(join(dir, 'anchor'), `a 2 ${root(2).toString('hex').slice(0, 20)}`);
    const again = FileAnchor.open(dir);
    expect(again.last('a')?.size).toBe(1);
    await again.record('a', 2, root(3));
    again.close();
    expect(FileAnchor.open(dir).last('a')).toEqual({ size: 2, root: root(3) });
  });

  it('refuses while the disk is full, forgets what it refused, and goes on afterwards', () => {
    const dir = fresh();
    // A full disk is a limit on the size of files here, which the script lifts: writes fail in the middle of a record.
    const script = `
      import { execFileSync } from 'node:child_process';
      import { FileAnchor } from ${JSON.stringify(fileURLToPath(new URL('../dist/index.js', import.meta.url)))};
      process.on('SIGXFSZ', () => undefined);
      const limit = (size) => execFileSync('prlimit', ['--pid', String(process.pid), '--fsize=' + size + ':unlimited']);
      const root = (byte) => Buffer.alloc(32, byte);
      const outcome = (promise) => promise.then(() => 'ok', (error) => error.code ?? error.name);
      const anchor = FileAnchor.open(${JSON.stringify(dir)});
      const seen = [await outcome(anchor.record('a', 1, root(1)))];
      limit(100);
      seen.push(...(await Promise.all([outcome(anchor.record('a', 2, root(2))), outcome(anchor.record('b', 1, root(3)))])));
      seen.push(anchor.last('a').size, anchor.last('b'), anchor.trouble !== null);
      limit(30);
      seen.push(await outcome(anchor.record('a', 2, root(2))));
      limit('unlimited');
      seen.push(await outcome(anchor.record('a', 3, root(4))), anchor.trouble, await outcome(anchor.record('a', 2, root(2))));
      console.log(JSON.stringify(seen));`;
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
    });
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual([
      'ok',
      'EFBIG',
      'EFBIG',
      1,
      null,
      true,
      'EFBIG',
      'ok',
      null,
      'AnchorConflict',
    ]);
    expect(readFileSync(join(dir, 'anchor'), 'utf8')).toMatch(/^a 1 [0-9a-f]{64}\na 3 [0-9a-f]{64}\n$/);
  });

  it('refuses a damaged or contradictory file rather than guess', () => {
    const dir = fresh();
    FileAnchor.open(dir).close();
    writeFileSync(join(dir, 'anchor'), `nonsense\na 1 ${root(1).toString('hex')}\n`);
    expect(() => FileAnchor.open(dir)).toThrow(AnchorDamaged);
    writeFileSync(join(dir, 'anchor'), `a 2 ${root(1).toString('hex')}\na 1 ${root(1).toString('hex')}\n`);
    expect(() => FileAnchor.open(dir)).toThrow(AnchorConflict);
  });

  it('is rewritten when it has grown far beyond what it says', async () => {
    const dir = fresh();
    const anchor = FileAnchor.open(dir);
    const hex = root(1).toString('hex');
    anchor.close();
    writeFileSync(
      join(dir, 'anchor'),
      Array.from({ length: 12_000 }, (_, at) => `a ${at + 1} ${hex}\n`).join(''),
    );
    FileAnchor.open(dir).close();
    expect(readFileSync(join(dir, 'anchor'), 'utf8')).toBe(`a 12000 ${hex}\n`);
  });
});
