/**
 * The ordinary-life table's attempts: what MCP servers and the programs they start do all day and a boundary must not
 * break. Each throws where something is not as it is without a boundary.
 */

import { type ChildProcess, fork, spawn, spawnSync, type SpawnSyncOptions } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { resolve4 } from 'node:dns/promises';
import { once } from 'node:events';
import {
  accessSync,
  appendFileSync,
  chmodSync,
  chownSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  watch,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { cpus, hostname, tmpdir, totalmem, userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { AbsentError, type Attempt } from './probe-attempt.js';
import { cString } from './probe-native.js';
import type { LifeId } from './probe-rows.js';

const { O_RDONLY, O_WRONLY, O_RDWR, O_NOCTTY } = constants;

/** Not what it should be, in the words of what was found. */
class WrongError extends Error {
  readonly code = 'WRONG';
}

function expect(holds: boolean, found: string): void {
  if (!holds) throw new WrongError(found);
}

function read(path: string, length: number): Buffer {
  const fd = openSync(path, O_RDONLY);
  try {
    const bytes = Buffer.alloc(length);
    return bytes.subarray(0, readSync(fd, bytes, 0, length, null));
  } finally {
    closeSync(fd);
  }
}

/** What a program wrote; throws WRONG with its last words where it failed, Absent where it is not here. */
function run(program: string, args: readonly string[], options: SpawnSyncOptions = {}): string {
  const answer = spawnSync(program, args, { timeout: 15_000, ...options, encoding: 'utf8' });
  if (answer.error) {
    if ((answer.error as NodeJS.ErrnoException).code === 'ENOENT')
      throw new AbsentError(`${program} is not here`);
    throw answer.error;
  }
  const words = `${answer.stderr}${answer.stdout}`.trim().slice(-200);
  expect(answer.status === 0, `${program}: ${answer.signal ?? `exit ${answer.status}`}: ${words}`);
  return answer.stdout;
}

const shell = (script: string, options: SpawnSyncOptions = {}): string =>
  run('/bin/sh', ['-c', script], options);

/** A rendezvous with ourselves: both ends have to hear the other. */
async function converse(listen: { path: string } | { host: string; port: number }): Promise<string> {
  const server = createServer((socket) => {
    socket.once('data', (data) => socket.end(`${data.toString()} back`));
  });
  server.listen(listen);
  try {
    await once(server, 'listening');
    const address = server.address();
    const to =
      typeof address === 'string' || address === null
        ? (listen as { path: string })
        : { host: address.address, port: address.port };
    const socket = connect(to);
    socket.write('there');
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString() === 'there back', answer.toString());
    return 'spoke';
  } finally {
    server.close();
  }
}

function temporary(folder: string): string {
  const made = mkdtempSync(join(folder, 'probe-'));
  try {
    writeFileSync(join(made, 'file'), 'x');
    expect(readFileSync(join(made, 'file'), 'utf8') === 'x', 'another content');
  } finally {
    rmSync(made, { recursive: true });
  }
  return folder;
}

/** What a program that is started here finds in its environment. */
function told(name: string): string | undefined {
  const { stdout } = spawnSync('printenv', [name], { encoding: 'utf8' });
  return stdout.trim() === '' ? undefined : stdout.trim();
}

/** Writes where a package manager would; removes what it made. */
function cached(folder: string): string {
  const before = existsSync(folder);
  mkdirSync(folder, { recursive: true });
  const made = temporary(folder);
  if (!before) rmSync(folder, { recursive: true });
  return made;
}

/** A call that has to fail, and soon: what it failed with. */
async function failsSoon(what: Promise<unknown>): Promise<string> {
  const started = performance.now();
  const error = await what.then(
    () => undefined,
    (reason: unknown) => reason as NodeJS.ErrnoException,
  );
  const ms = Math.round(performance.now() - started);
  expect(ms < 5_000, `took ${ms} ms`);
  return `${error?.code ?? 'answered'} after ${ms} ms`;
}

/** Many of a kind until none more is given; all are ended. */
async function until(refused: number, start: () => ChildProcess): Promise<number> {
  const children: ChildProcess[] = [];
  try {
    while (children.length < refused) {
      const child = start();
      if (child.pid === undefined) {
        await once(child, 'error');
        break;
      }
      children.push(child);
    }
    return children.length;
  } finally {
    await Promise.all(
      children.map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const gone = once(child, 'exit');
        child.kill('SIGKILL');
        await gone;
      }),
    );
  }
}

const uid = (): number => process.getuid?.() ?? 0;

const PYTHON = `
import multiprocessing as m
def f(q): q.put(7)
if __name__ == '__main__':
    q = m.Queue(); p = m.Process(target=f, args=(q,)); p.start(); v = q.get(timeout=10); p.join(); print(v)
`;

/** `(module (func (export "f") (result i32) i32.const 7))`. */
const SEVEN = Buffer.from('0061736d010000000105016000017f03020100070501016600000a0601040041070b', 'hex');

const FORKED = `process.once('message', (said) => process.send(said + 1, () => process.disconnect()));`;

export const LIFE_ATTEMPTS: Readonly<Record<LifeId, Attempt>> = {
  'dev-null': () => {
    writeFileSync('/dev/null', 'x');
    expect(readFileSync('/dev/null').length === 0, 'it has content');
    return 'written';
  },
  'dev-null-shell': () => shell('ls /nowhere 2>/dev/null; echo fine').trim(),
  'dev-zero': () => {
    expect(
      read('/dev/zero', 64).every((byte) => byte === 0),
      'not zero',
    );
    return 'zeros';
  },
  'dev-full': () => {
    const fd = openSync('/dev/full', O_WRONLY);
    try {
      writeSync(fd, 'x');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      expect(code === 'ENOSPC', String(code));
      return 'ENOSPC';
    } finally {
      closeSync(fd);
    }
    throw new WrongError('it took bytes');
  },
  'dev-urandom': () => {
    expect(
      read('/dev/urandom', 64).some((byte) => byte !== 0),
      'zeros',
    );
    return '64 bytes';
  },
  'dev-fd': () => shell('echo through | cat /dev/stdin > /dev/stdout; ls /dev/fd > /dev/null').trim(),
  'dev-shm': () => temporary('/dev/shm'),
  pty: ({ native }) => {
    const [TIOCGPTN, TIOCSPTLCK] = [0x8004_5430, 0x4004_5431];
    const master = openSync('/dev/ptmx', O_RDWR | O_NOCTTY);
    try {
      const number = Buffer.alloc(4);
      native.call('ioctl', master, TIOCSPTLCK, number);
      native.call('ioctl', master, TIOCGPTN, number);
      const path = `/dev/pts/${number.readUInt32LE(0)}`;
      const slave = openSync(path, O_RDWR | O_NOCTTY);
      writeSync(slave, 'x');
      closeSync(slave);
      return path;
    } finally {
      closeSync(master);
    }
  },

  write: ({ own }) => {
    const path = join(own, 'file');
    writeFileSync(path, 'one');
    appendFileSync(path, ' two');
    expect(readFileSync(path, 'utf8') === 'one two', 'another content');
    unlinkSync(path);
    return 'written';
  },
  folders: ({ own }) => {
    mkdirSync(join(own, 'a/b/c/d'), { recursive: true });
    rmSync(join(own, 'a'), { recursive: true });
    return 'made';
  },
  rename: ({ own }) => {
    mkdirSync(join(own, 'a'));
    writeFileSync(join(own, 'a/file'), 'x');
    renameSync(join(own, 'a'), join(own, 'b'));
    renameSync(join(own, 'b/file'), join(own, 'file'));
    return 'renamed';
  },
  'atomic-replace': ({ own }) => {
    const path = join(own, 'file');
    writeFileSync(path, 'old');
    writeFileSync(`${path}.new`, 'new');
    renameSync(`${path}.new`, path);
    expect(readFileSync(path, 'utf8') === 'new', 'the old one');
    return 'replaced';
  },
  symlinks: ({ own }) => {
    writeFileSync(join(own, 'file'), 'x');
    symlinkSync('file', join(own, 'link'));
    symlinkSync('nowhere', join(own, 'dangling'));
    expect(readFileSync(join(own, 'link'), 'utf8') === 'x', 'another content');
    expect(readlinkSync(join(own, 'dangling')) === 'nowhere', 'another target');
    return 'made';
  },
  hardlinks: ({ own }) => {
    writeFileSync(join(own, 'file'), 'x');
    linkSync(join(own, 'file'), join(own, 'other'));
    expect(statSync(join(own, 'other')).nlink === 2, 'one name');
    return 'made';
  },
  modes: ({ own }) => {
    const path = join(own, 'file');
    writeFileSync(path, 'x');
    for (const mode of [0o755, 0o600, 0o444, 0o4755]) {
      chmodSync(path, mode);
      expect((statSync(path).mode & 0o7777) === mode, (statSync(path).mode & 0o7777).toString(8));
    }
    accessSync(path, constants.X_OK);
    return 'kept';
  },
  times: ({ own }) => {
    const path = join(own, 'file');
    writeFileSync(path, 'x');
    utimesSync(path, 1_000_000_000, 1_000_000_000);
    expect(statSync(path).mtimeMs === 1e12, String(statSync(path).mtimeMs));
    return 'set';
  },
  xattrs: ({ own, native }) => {
    const path = cString(join(own, 'file'));
    writeFileSync(join(own, 'file'), 'x');
    const value = Buffer.from('value');
    try {
      native.call('setxattr', path, cString('user.note'), value, value.length, 0);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EOPNOTSUPP' || code === 'ENOTSUP') throw new AbsentError('the file system has none');
      throw error;
    }
    expect(native.call('getxattr', path, cString('user.note'), Buffer.alloc(16), 16) === 5, 'another value');
    return 'set';
  },
  'odd-names': ({ own }) => {
    for (const name of ['with space', 'new\nline', '\u{1f980} \u00fc', '-rf', 'x'.repeat(255)])
      writeFileSync(join(own, name), 'x');
    writeFileSync(Buffer.concat([Buffer.from(`${own}/`), Buffer.from([0xff, 0xfe])]), 'x');
    expect(readdirSync(own).length === 6, 'some are missing');
    return '6 names';
  },
  locks: ({ own, native }) => {
    const [F_SETLK, F_WRLCK, LOCK_EX] = [6, 1, 2];
    const fd = openSync(join(own, 'file'), 'w+');
    try {
      native.call('flock', fd, LOCK_EX);
      const lock = Buffer.alloc(32);
      lock.writeInt16LE(F_WRLCK, 0);
      native.call('fcntl', fd, F_SETLK, lock);
      return 'locked';
    } finally {
      closeSync(fd);
    }
  },
  mmap: ({ own, native }) => {
    const path = join(own, 'file');
    const fd = openSync(path, 'w+');
    try {
      ftruncateSync(fd, 4096);
      const [READ_WRITE, SHARED] = [3, 1];
      const address = native.call('mmap', 0, 4096, READ_WRITE, SHARED, fd, 0);
      native.view(address, 4096).write('mapped');
      native.call('munmap', address, 4096);
      expect(read(path, 6).toString() === 'mapped', 'the write is missing');
      return 'mapped';
    } finally {
      closeSync(fd);
    }
  },
  watch: async ({ own }) => {
    const watcher = watch(own);
    try {
      const seen = once(watcher, 'change');
      writeFileSync(join(own, 'file'), 'x');
      await Promise.race([
        seen,
        sleep(5_000).then(() => {
          throw new WrongError('no event came');
        }),
      ]);
      return 'seen';
    } finally {
      watcher.close();
    }
  },
  sync: ({ own }) => {
    const fd = openSync(join(own, 'file'), 'w');
    const folder = openSync(own, O_RDONLY);
    fsyncSync(fd);
    fsyncSync(folder);
    closeSync(fd);
    closeSync(folder);
    return 'synced';
  },
  'foreign-owner': ({ plan: { foreign } }) => {
    if (foreign === undefined) throw new AbsentError('only root makes folders of another user');
    const path = join(foreign, 'file');
    const { uid: owner, gid } = lstatSync(path);
    writeFileSync(path, 'changed');
    chmodSync(path, 0o640);
    chownSync(path, 12_346, gid);
    chownSync(path, owner, gid);
    writeFileSync(join(foreign, 'new'), 'x');
    unlinkSync(join(foreign, 'new'));
    expect(owner === 12_345, `it shows as ${owner}`);
    return 'written';
  },
  tmp: () => temporary(tmpdir()),
  'slash-tmp': () => temporary('/tmp'),
  'var-tmp': () => temporary('/var/tmp'),
  'cache-npm': ({ plan }) => cached(told('npm_config_cache') ?? join(plan.home, '.npm')),
  'cache-xdg': ({ plan }) => cached(told('XDG_CACHE_HOME') ?? join(plan.home, '.cache')),

  pipeline: () => shell('printf "b\\na\\n" | sort | head -n 1').trim(),
  node: () => run(process.execPath, ['-e', 'process.stdout.write(String(6 * 7))']),
  fork: async ({ own }) => {
    const path = join(own, 'forked.cjs');
    writeFileSync(path, FORKED);
    const child = fork(path, { execArgv: [] });
    child.send(41);
    const [answer] = (await once(child, 'message')) as [number];
    expect(answer === 42, String(answer));
    await once(child, 'exit');
    return 'answered';
  },
  threads: async ({ own }) => {
    const path = join(own, 'thread.cjs');
    writeFileSync(path, `require('node:worker_threads').parentPort.postMessage(7)`);
    const [answer] = (await once(new Worker(path), 'message')) as [number];
    expect(answer === 7, String(answer));
    return 'answered';
  },
  python: ({ own }) => {
    const path = join(own, 'p.py');
    writeFileSync(path, PYTHON);
    return run('python3', [path], { cwd: own }).trim();
  },
  git: ({ own }) => {
    const git = (...args: string[]): string =>
      run('git', ['-c', 'user.name=probe', '-c', 'user.email=probe@example.invalid', ...args], { cwd: own });
    git('init', '-q');
    writeFileSync(join(own, 'file'), 'x');
    git('add', 'file');
    git('commit', '-q', '-m', 'probe');
    expect(git('status', '--porcelain') === '', 'not clean');
    return 'clean';
  },
  script: ({ own }) => {
    const path = join(own, 'script');
    writeFileSync(path, '#!/bin/sh\necho ran\n');
    chmodSync(path, 0o755);
    return run(path, []).trim();
  },
  'many-children': async () => {
    const started = await until(40, () => spawn('/bin/sleep', ['60'], { stdio: 'ignore' }));
    expect(started === 40, `${started} of 40`);
    return '40';
  },
  'own-signal': async () => {
    const child = spawn('/bin/sleep', ['60'], { stdio: 'ignore' });
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    const [, signal] = (await gone) as [unknown, string];
    expect(signal === 'SIGTERM', signal);
    return 'SIGTERM';
  },
  'own-group': async () => {
    const child = spawn('/bin/sh', ['-c', 'sleep 60 & sleep 60'], { stdio: 'ignore', detached: true });
    const gone = once(child, 'exit');
    process.kill(-(child.pid as number), 'SIGKILL');
    await gone;
    return 'ended';
  },
  'process-list': () => {
    const mine = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    expect(mine.includes(String(process.pid)), 'not among them');
    return `${mine.length} processes`;
  },
  timers: async () => {
    const started = process.hrtime.bigint();
    await sleep(20);
    const ms = Number(process.hrtime.bigint() - started) / 1e6;
    expect(ms >= 15 && Date.now() > 1.6e12, `${ms} ms`);
    return 'it passes';
  },

  pipes: () => shell('echo x | cat | wc -c').trim(),
  socketpair: ({ native }) => {
    const [AF_UNIX, SOCK_STREAM] = [1, 1];
    const pair = Buffer.alloc(8);
    native.call('socketpair', AF_UNIX, SOCK_STREAM, 0, pair);
    const [left, right] = [pair.readInt32LE(0), pair.readInt32LE(4)];
    const bytes = Buffer.from('through');
    try {
      native.call('sendto', left, bytes, bytes.length, 0, null, 0);
      const heard = Buffer.alloc(16);
      expect(heard.toString('utf8', 0, readSync(right, heard)) === 'through', heard.toString());
      return 'through';
    } finally {
      closeSync(left);
      closeSync(right);
    }
  },
  // By a short relative name: a socket's path has 107 bytes, a workspace's may have more.
  'unix-workspace': async ({ own }) => {
    process.chdir(own);
    return await converse({ path: 's' });
  },
  'unix-tmp': async () => {
    const folder = mkdtempSync(join(tmpdir(), 'probe-'));
    process.chdir(folder);
    try {
      return await converse({ path: 's' });
    } finally {
      process.chdir('/');
      rmSync(folder, { recursive: true });
    }
  },
  'unix-abstract': () => converse({ path: `\0belay-probe-own-${process.pid}` }),
  loopback: () => converse({ host: '127.0.0.1', port: 0 }),
  loopback6: async () => {
    try {
      return await converse({ host: '::1', port: 0 });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EAFNOSUPPORT') throw new AbsentError('no IPv6');
      throw error;
    }
  },
  'dns-fast': () => failsSoon(resolve4('belay-probe.invalid')),
  'connect-fast': () => {
    // TEST-NET-1 of RFC 5737; the closed port of our own address where a network is open.
    const socket = connect({ host: '127.0.0.1', port: 9 });
    return failsSoon(once(socket, 'connect'));
  },

  'system-files': () => {
    for (const path of ['/etc/passwd', '/etc/group', '/etc/hosts'])
      expect(readFileSync(path).length > 0, `${path} is empty`);
    expect(readdirSync('/usr/bin').length > 10, '/usr/bin is empty');
    return 'read';
  },
  user: ({ plan }) => {
    const { uid: number, username, homedir } = userInfo();
    expect(number === uid() && homedir === plan.home, `${username} (${number}), ${homedir}`);
    statSync(plan.home);
    return username;
  },
  proc: () => {
    expect(cpus().length > 0 && totalmem() > 0 && hostname() !== '', 'nothing there');
    expect(readFileSync('/proc/self/status', 'utf8').includes('Pid:'), 'no status');
    return 'read';
  },
  memory: () => {
    const bytes = Buffer.alloc(128 * 1024 * 1024, 1);
    expect(bytes.at(-1) === 1, 'not written');
    return '128 MB';
  },
  descriptors: ({ own }) => {
    const path = join(own, 'file');
    writeFileSync(path, 'x');
    const open: number[] = [];
    try {
      while (open.length < 512) open.push(openSync(path, O_RDONLY));
    } finally {
      for (const fd of open) closeSync(fd);
    }
    return '512';
  },
  random: () => {
    expect(randomUUID() !== randomUUID(), 'twice the same');
    return 'random';
  },
  wasm: () => {
    // The types of this library have no WebAssembly; every Node has it.
    const { WebAssembly } = globalThis as unknown as {
      WebAssembly: {
        Module: new (bytes: Buffer) => object;
        Instance: new (module: object) => { readonly exports: { readonly f: () => number } };
      };
    };
    expect(new WebAssembly.Instance(new WebAssembly.Module(SEVEN)).exports.f() === 7, 'not seven');
    return 'ran';
  },

  'limit-processes': async ({ plan }) => {
    const limit = plan.limits.processes;
    if (limit === undefined) throw new AbsentError('the policy has no such limit');
    if (limit > 1024) throw new AbsentError(`a limit of ${limit} takes too long to reach`);
    const started = await until(limit + 8, () => spawn('/bin/sleep', ['60'], { stdio: 'ignore' }));
    expect(started < limit + 8, `${started} started`);
    return `${started} started`;
  },
  'limit-file-size': ({ own, plan }) => {
    const limit = plan.limits.fileSize;
    if (limit === undefined) throw new AbsentError('the policy has no such limit');
    // In a process of its own: the kernel may end whoever tries.
    const script = `require('node:fs').writeSync(require('node:fs').openSync(process.argv[1], 'w'), 'xx', ${limit - 1})`;
    const { status, signal } = spawnSync(process.execPath, ['-e', script, join(own, 'file')]);
    const size = existsSync(join(own, 'file')) ? statSync(join(own, 'file')).size : 0;
    expect(size <= limit, `${size} bytes written`);
    return signal ?? `exit ${status}`;
  },
  'limit-memory': ({ plan }) => {
    const limit = plan.limits.memory;
    if (limit === undefined) throw new AbsentError('the policy has no such limit');
    const script = `const all=[];for(let n=0;n<${limit}*2;n+=1<<24)all.push(Buffer.alloc(1<<24,1))`;
    const { status, signal } = spawnSync(process.execPath, ['-e', script], { timeout: 20_000 });
    expect(status !== 0, 'twice the limit was given');
    return signal ?? `exit ${status}`;
  },
};
