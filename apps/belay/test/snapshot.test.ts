import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Capturer, Store } from '@belay/snapshot';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { belay } from './command.js';
import { BELAY, freshFolder, program } from './proxied.js';

let [home, work, state] = ['', '', ''];
beforeEach(() => {
  home = freshFolder();
  work = join(home, 'work');
  state = join(home, 'state');
  mkdirSync(work);
  vi.stubEnv('BELAY_STATE', state);
  vi.stubEnv('NO_COLOR', '1');
});
afterEach(() => vi.unstubAllEnvs());

const storeDir = (): string => join(state, 'snapshots');

/** Each step changes the workspace; its state after that. */
function captured(...steps: (() => void)[]): string[] {
  const capturer = Capturer.open({ store: Store.open(storeDir()), roots: [work] });
  const digests = steps.map((step) => {
    step();
    const result = capturer.capture();
    if (result.kind !== 'state') throw new Error(result.detail);
    return result.digest;
  });
  capturer.close();
  return digests;
}
const write = (name: string, text: string): void => writeFileSync(join(work, name), text);
const short = (digest: string): string => digest.slice(7, 19);
const two = (): [string, string] =>
  captured(
    () => {
      write('a.txt', 'one\ntwo\nthree\n');
      write('gone', 'x');
      write('mode', 'x');
      symlinkSync('a.txt', join(work, 'link'));
    },
    () => {
      write('a.txt', 'one\n2\nthree\n');
      rmSync(join(work, 'gone'));
      chmodSync(join(work, 'mode'), 0o4711);
      write('new\u001b[2J', 'made\n');
    },
  ) as [string, string];

describe('list', () => {
  it('says which states there are, of what, and how many traces name them', async () => {
    const [first, second] = two();
    mkdirSync(join(state, 'traces'));
    writeFileSync(join(state, 'traces', 'a.jsonl'), `{"type":"state","state":"${second}"}\n`);
    const { code, stdout } = await belay('snapshot', 'list');
    expect(code).toBe(0);
    expect(stdout.split('\n')[1]).toMatch(new RegExp(`^${short(first)}  20.*Z +0  ${work}$`));
    expect(stdout.split('\n')[2]).toMatch(new RegExp(`^${short(second)}  20.*Z +1  ${work}$`));
    const { json } = await belay('snapshot', 'list', '--json', '--limit', '1');
    expect(json).toMatchObject({
      store: storeDir(),
      count: 2,
      states: [{ digest: second, roots: [work], traces: 1 }],
    });
  });

  it('makes no store where there is none', async () => {
    const { code, stderr } = await belay('snapshot', 'list');
    expect(code).toBe(65);
    expect(stderr).toContain('there are no snapshots in');
    expect(existsSync(state)).toBe(false);
  });

  it('finds the store where it is said to be', async () => {
    const [, second] = two();
    vi.stubEnv('BELAY_STATE', join(home, 'elsewhere'));
    expect((await belay('snapshot', 'list', '--state', state)).stdout).toContain(short(second));
    expect((await belay('snapshot', 'list', '--store', storeDir())).stdout).toContain(short(second));
    vi.stubEnv('BELAY_SNAPSHOT_DIR', storeDir());
    expect((await belay('snapshot', 'list')).stdout).toContain(short(second));
  });
});

describe('diff', () => {
  it('shows paths with what is different, and the lines of text', async () => {
    const [first, second] = two();
    const { code, stdout } = await belay('snapshot', 'diff', short(first), 'latest');
    expect(code).toBe(1);
    expect(stdout).toContain(
      'M a.txt  (14 -> 12 bytes)\n  @@ -1,3 +1,3 @@\n   one\n  -two\n  +2\n   three\n',
    );
    expect(stdout).toContain('D gone  (1 bytes)\n  @@ -1,1 +0,0 @@\n  -x (no line end)\n');
    expect(stdout).toContain('m mode  (mode 644 -> 4711)\n');
    // No name moves the cursor.
    expect(stdout).toContain('A new\\u001b[2J  (5 bytes)\n  @@ -0,0 +1,1 @@\n  +made\n');
    expect(stdout).toContain(
      `4 paths differ between ${short(first)} and ${short(second)}; of 1 more only the time`,
    );
    const names = await belay('snapshot', 'diff', '--names', first, second);
    expect(names.stdout).not.toContain('@@');
    expect((await belay('snapshot', 'diff', '--times', first, second)).stdout).toContain('m .  (time)');
    expect((await belay('snapshot', 'diff', second, second)).code).toBe(0);
  });

  it('is a document too', async () => {
    const [first, second] = two();
    const { json, code } = await belay('snapshot', 'diff', '--json', first, second);
    expect(code).toBe(1);
    expect(json).toMatchObject({
      from: first,
      to: second,
      roots: [
        {
          root: work,
          in: 'both',
          timesOnly: 1,
          differences: [
            { path: 'a.txt', what: 'modified', before: { size: 14 }, after: { size: 12 } },
            { path: 'gone', what: 'deleted', before: { type: 'file', mode: '0644' } },
            { path: 'mode', what: 'metadata', fields: ['mode'], after: { mode: '04711' } },
            { path: 'new\u001b[2J', what: 'created', after: { size: 5 } },
          ],
        },
      ],
    });
  });

  it('compares with what is there now, which it does not touch', async () => {
    const [, second] = two();
    expect(await belay('snapshot', 'diff', second)).toMatchObject({
      code: 0,
      stdout: `no difference between ${short(second)} and the workspace as it is\n`,
    });
    utimesSync(join(work, 'a.txt'), 1, 1);
    const { code, stdout } = await belay('snapshot', 'diff', second);
    expect(code).toBe(0);
    expect(stdout).toContain('as it is but 1 times');
    write('a.txt', 'now\n');
    expect((await belay('snapshot', 'diff', second)).stdout).toContain('  +now\n');
    rmSync(work, { recursive: true });
    expect((await belay('snapshot', 'diff', second)).stdout).toContain(`${work}  (only in the first)`);
  });

  it('says what names no state', async () => {
    two();
    expect(await belay('snapshot', 'diff', 'abcdef0')).toMatchObject({ code: 65 });
    expect(await belay('snapshot', 'diff', 'nonsense')).toMatchObject({ code: 64 });
    expect(await belay('snapshot', 'diff', '--json', '--names', 'latest')).toMatchObject({ code: 64 });
  });
});

describe('restore', () => {
  it('brings a state back into a new folder, and says so', async () => {
    const [first] = two();
    const into = join(home, 'back');
    const { code, stdout } = await belay('snapshot', 'restore', first, into);
    expect(code).toBe(0);
    expect(stdout).toContain(`${into}  is ${work} as it was: 5 entries, 16 bytes`);
    expect(readFileSync(join(into, 'a.txt'), 'utf8')).toBe('one\ntwo\nthree\n');
    expect(readdirSync(into).toSorted()).toEqual(['a.txt', 'gone', 'link', 'mode']);
    const json = await belay('snapshot', 'restore', '--json', first, join(home, 'again'));
    expect(json.json).toEqual({
      digest: first,
      roots: [{ from: work, at: join(home, 'again'), entries: 5, bytes: 16 }],
      gaps: [],
    });
  });

  it('never into the workspace, unless one insists, nor over anything', async () => {
    const [first] = two();
    expect(await belay('snapshot', 'restore', first, work)).toMatchObject({ code: 65 });
    expect(await belay('snapshot', 'restore', first, join(work, 'copy'))).toMatchObject({ code: 65 });
    expect(existsSync(join(work, 'copy'))).toBe(false);
    expect(await belay('snapshot', 'restore', '--inside', first, join(work, 'copy'))).toMatchObject({
      code: 0,
    });
  });

  it('of damaged content is exit code 1, and leaves nothing', async () => {
    const [first] = two();
    const pack = join(storeDir(), readdirSync(storeDir()).find((name) => name.endsWith('.pack')) as string);
    writeFileSync(
      pack,
      readFileSync(pack).map((byte) => byte ^ 1),
    );
    const { code, json } = await belay('snapshot', 'restore', '--json', first, join(home, 'back'));
    expect(code).toBe(1);
    expect(json).toMatchObject({ error: { code: 'content_damaged' } });
    expect(readdirSync(home).toSorted()).toEqual(['state', 'work']);
  });

  it('stopped by Ctrl-C, it leaves nothing', async () => {
    const [digest] = captured(() => {
      for (let i = 0; i < 4000; i++) write(`f${i}`, String(i));
    }) as [string];
    const child = spawn(process.execPath, [BELAY, 'snapshot', 'restore', digest, join(home, 'back')], {
      env: { PATH: process.env['PATH'], HOME: home, BELAY_STATE: state },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const closed = once(child, 'close');
    const partial = (): boolean => readdirSync(home).some((name) => name.startsWith('.belay-partial-'));
    await vi.waitUntil(partial, { timeout: 20_000, interval: 2 });
    child.kill('SIGINT');
    const [code] = (await closed) as [number];
    expect(code).toBe(69);
    expect(readdirSync(home).toSorted()).toEqual(['state', 'work']);
  });
});

describe('verify', () => {
  it('reads everything, and names what is damaged', async () => {
    const [first, second] = two();
    expect(await belay('snapshot', 'verify')).toMatchObject({
      code: 0,
      stdout: 'whole: 2 states, every content read\n',
    });
    const pack = join(storeDir(), readdirSync(storeDir()).find((name) => name.endsWith('.pack')) as string);
    const bytes = readFileSync(pack);
    bytes.write('?', bytes.indexOf('one\n2\n'));
    writeFileSync(pack, bytes);
    const { code, stdout } = await belay('snapshot', 'verify');
    expect(code).toBe(1);
    expect(stdout).toContain(`DAMAGED ${short(second)}  content sha256:`);
    expect(stdout).toContain('1 of 2 states are damaged');
    expect(await belay('snapshot', 'verify', first)).toMatchObject({ code: 0 });
    expect((await belay('snapshot', 'verify', '--json')).json).toMatchObject({
      states: 2,
      damaged: 1,
      results: [{ digest: first }, { digest: second, problem: { code: 'content-damaged' } }],
    });
  });
});

describe('gc', () => {
  /** States whose session has ended, as another process made them. */
  const ended = (): [string, string, string] => {
    const out = execFileSync(process.execPath, [program('states'), storeDir(), work]);
    return out.toString().trim().split('\n') as [string, string, string];
  };

  it('keeps what traces name and what is new, and gives the rest back', async () => {
    const [first, second, third] = ended();
    mkdirSync(join(state, 'traces'));
    writeFileSync(
      join(state, 'traces', 'a.jsonl'),
      `{"type":"state","state":"${first}"}\n{"data":"{\\"state\\":\\"${second}\\"}"}\n{"torn":1,"state":"${third}`,
    );
    expect((await belay('snapshot', 'gc')).stdout).toContain('kept 3 states, dropped 0');
    const dry = await belay('snapshot', 'gc', '--days', '0', '--dry-run');
    expect(dry.stdout).toContain('would keep 1 states, drop 2');
    const { code, json } = await belay(
      'snapshot',
      'gc',
      '--days',
      '0',
      '--keep',
      third.slice(7, 20),
      '--json',
    );
    expect(code).toBe(0);
    expect(json).toMatchObject({ states: { kept: 2, dropped: 1 }, referred: 1, missing: 0, writers: [] });
    const { json: left } = await belay('snapshot', 'list', '--json');
    expect((left as { states: { digest: string }[] }).states.map(({ digest }) => digest)).toEqual([
      first,
      third,
    ]);
    expect(await belay('snapshot', 'verify')).toMatchObject({ code: 0 });
  });

  it('one at a time', async () => {
    const [first] = ended();
    const stat = readFileSync('/proc/self/stat', 'latin1');
    const started = `${readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`;
    writeFileSync(join(storeDir(), 'gc.lock'), JSON.stringify({ pid: process.pid, started }));
    expect(await belay('snapshot', 'gc', '--keep', first)).toMatchObject({ code: 69 });
  });
});

it("a user's own repository is left as it is: status, HEAD, index and every time", async () => {
  const git = (...args: string[]): string =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], {
      cwd: work,
      encoding: 'utf8',
    });
  git('init', '-q');
  write('tracked', 'one\n');
  write('other', 'x\n');
  write('.gitignore', 'ignored\n');
  git('add', '.');
  git('commit', '-qm', 'first');
  write('tracked', 'two\n');
  write('staged', 's\n');
  git('add', 'staged');
  write('untracked', 'u\n');
  write('ignored', 'i\n');
  mkdirSync(join(work, 'empty'));
  const looks = (): unknown => {
    const seen: Record<string, string> = {};
    for (const name of ['', ...readdirSync(work, { recursive: true }).map(String)]) {
      const path = join(work, name);
      const { mtimeNs, ctimeNs, mode, ino } = lstatSync(path, { bigint: true });
      const bytes = lstatSync(path).isFile() ? readFileSync(path).toString('base64') : '';
      seen[name] = `${mtimeNs} ${ctimeNs} ${mode} ${ino} ${bytes}`;
    }
    return seen;
  };
  // `git status` itself may refresh the index: once before anything is looked at.
  const status = git('status', '--porcelain', '--ignored');
  const before = looks();
  const [digest] = captured(() => undefined) as [string];
  await belay('snapshot', 'diff', digest);
  await belay('snapshot', 'verify');
  const into = join(home, 'back');
  expect(await belay('snapshot', 'restore', digest, into)).toMatchObject({ code: 0 });
  await belay('snapshot', 'gc', '--days', '0');
  expect(looks()).toEqual(before);
  expect(git('status', '--porcelain', '--ignored')).toBe(status);
  // And the copy is the same repository, with what is staged, untracked and ignored.
  const copied = execFileSync('git', ['status', '--porcelain', '--ignored'], { cwd: into, encoding: 'utf8' });
  expect(copied).toBe(status);
  expect(lstatSync(join(into, 'empty')).isDirectory()).toBe(true);
});
