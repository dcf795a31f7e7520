import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { acquire, DirLocked, SILENT_MS } from '@belay/dirlock';

let dir: string;
const children: ChildProcess[] = [];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'belay-dirlock-'));
});

afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  rmSync(dir, { recursive: true });
});

/** A process that tries to acquire when told to, says "got" or "locked PID", and holds until it is killed. */
const CONTENDER = `
  import { acquire, DirLocked } from '@belay/dirlock';
  process.stdin.once('data', () => {
    try {
      acquire(process.argv[1]);
      console.log('got');
    } catch (error) {
      if (!(error instanceof DirLocked)) throw error;
      console.log('locked ' + error.pid);
    }
  });
  console.log('ready');
`;

async function contender() {
  const child = spawn(process.execPath, ['--input-type=module', '-e', CONTENDER, dir], {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  children.push(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error('the contender ended without a word');
    return value;
  };
  expect(await line()).toBe('ready');
  return {
    pid: child.pid as number,
    async acquire() {
      child.stdin.write('\n');
      return line();
    },
    async kill() {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

function lockedBy(act: () => unknown): number {
  try {
    act();
  } catch (error) {
    if (error instanceof DirLocked) return error.pid;
    throw error;
  }
  throw new Error('was not locked');
}

const lockPath = () => join(dir, 'belay.lock');
const lockOf = (changes: object) => JSON.stringify({ ...current(), ...changes, nonce: 'x' });
function current(): object {
  const lock = acquire(dir);
  const content = JSON.parse(readFileSync(lockPath(), 'utf8')) as object;
  lock.release();
  return content;
}

describe('a directory', () => {
  it('has one holder, also within a process', () => {
    const lock = acquire(dir);
    expect(lockedBy(() => acquire(dir))).toBe(process.pid);
    lock.release();
    lock.release();
    const next = acquire(dir);
    lock.release();
    expect(lockedBy(() => acquire(dir))).toBe(process.pid);
    next.release();
    expect(readdirSync(dir)).toEqual([]);
  });

  it('is refused while another process holds it and free once that was killed', async () => {
    const other = await contender();
    expect(await other.acquire()).toBe('got');
    expect(lockedBy(() => acquire(dir))).toBe(other.pid);
    await other.kill();
    acquire(dir).release();
    expect(readdirSync(dir)).toEqual([]);
  });

  it('goes to exactly one of many that find the same dead holder', async () => {
    for (let round = 0; round < 4; round++) {
      const crowd = await Promise.all(Array.from({ length: 6 }, contender));
      const answers = await Promise.all(crowd.map((one) => one.acquire()));
      const winner = answers.indexOf('got');
      expect(answers.filter((answer) => answer === 'got')).toHaveLength(1);
      const pids = new Set(crowd.map((one) => `locked ${one.pid}`));
      expect(answers.filter((answer) => answer !== 'got').every((answer) => pids.has(answer))).toBe(true);
      expect(readdirSync(dir)).toEqual(['belay.lock']);
      expect(JSON.parse(readFileSync(lockPath(), 'utf8'))).toMatchObject({ pid: crowd[winner]?.pid });
      await Promise.all(crowd.map((one) => one.kill()));
    }
  });

  it('is not held by a process that has the dead holder’s pid', () => {
    writeFileSync(lockPath(), lockOf({ start: '1' }));
    acquire(dir).release();
  });

  it('is held from another boot or namespace as long as its lock is touched', () => {
    for (const elsewhere of [{ ns: 'pid:[1]' }, { boot: 'another' }]) {
      writeFileSync(lockPath(), lockOf({ ...elsewhere, pid: 7 }));
      expect(lockedBy(() => acquire(dir))).toBe(7);
      const silent = new Date(Date.now() - SILENT_MS - 1000);
      utimesSync(lockPath(), silent, silent);
      acquire(dir).release();
    }
  });

  it('is taken over although a take-over died half way', async () => {
    const corpse = await contender();
    await corpse.acquire();
    await corpse.kill();
    const dead = readFileSync(lockPath(), 'utf8');
    const claimOf = (content: string) => createHash('sha256').update(content).digest('hex').slice(0, 16);
    const second = dead.replace(/"nonce":"\w+"/, '"nonce":"second"');
    writeFileSync(`${lockPath()}.${claimOf(dead)}`, second);
    acquire(dir).release();
    expect(readdirSync(dir)).toEqual([]);
  });

  it('is not taken from what is no lock of ours, until that has been silent', () => {
    for (const content of ['', '{}', '{"pid":0}', '{"pid":-1}', 'null', '\0']) {
      writeFileSync(lockPath(), content);
      expect(lockedBy(() => acquire(dir))).toBe(0);
    }
    const silent = new Date(Date.now() - SILENT_MS - 1000);
    utimesSync(lockPath(), silent, silent);
    acquire(dir).release();
  });

  it('keeps its mode and its other files', () => {
    writeFileSync(join(dir, 'mine'), 'x', { mode: 0o640 });
    chmodSync(dir, 0o751);
    acquire(dir).release();
    expect(statSync(dir).mode & 0o7777).toBe(0o751);
    expect(statSync(join(dir, 'mine')).mode & 0o7777).toBe(0o640);
    expect(readdirSync(dir)).toEqual(['mine']);
  });
});
