import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer, type ListenOptions, type Server } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { tryBoundary } from '../src/canary.js';
import type { Denial } from '../src/denial.js';
import { SandboxError } from '../src/error.js';
import { findTool } from '../src/tools.js';
import { DEFAULT_POLICY, type SandboxPolicy } from '../src/policy.js';
import type { SandboxRecord } from '../src/record.js';
import { prepare } from '../src/sandbox.js';
import { folder, inside } from './inside.js';

const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const ATTEMPTS = here('./attempts.mjs');
const RUN = here('./run-inside.mjs');
const ROOT = process.geteuid?.() === 0;
const NOBODY = 65_534;

/** Users that boundaries are tried as: whoever runs the suite, and where that is root, also somebody who is not. */
const USERS: readonly { readonly name: string; readonly prefix: readonly string[]; readonly uid: number }[] =
  [
    { name: ROOT ? 'root' : 'an ordinary user', prefix: [], uid: process.geteuid?.() ?? 0 },
    ...(ROOT
      ? [
          {
            name: 'an ordinary user',
            prefix: ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'],
            uid: NOBODY,
          },
        ]
      : []),
  ];

interface Report {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly denials: readonly Denial[];
  readonly record: SandboxRecord;
  readonly error?: string;
}

type Attempt = readonly [act: string, ...given: unknown[]];
type Outcome = { readonly ok?: unknown; readonly code?: string };

/** A world of one user: a home with a secret, a workspace, and something else. */
function world(uid: number) {
  const place = folder();
  const [home, workspace, elsewhere] = ['home', 'ws', 'else'].map((name) => join(place, name)) as [
    string,
    string,
    string,
  ];
  for (const made of [home, join(home, '.ssh'), workspace, elsewhere]) mkdirSync(made);
  writeFileSync(join(home, '.ssh', 'id'), 'secret\n');
  writeFileSync(join(home, '.netrc'), 'secret\n');
  writeFileSync(join(elsewhere, 'file'), 'kept\n');
  writeFileSync(join(workspace, 'file'), 'kept\n');
  if (ROOT) execFileSync('chown', ['-R', `${uid}:${uid}`, place]);
  chmodSync(place, 0o755);
  return { place, home, workspace, elsewhere };
}

/** Where this user may make private files: what the suite's own are in may be its alone. */
function scratchOf(uid: number): string {
  const place = folder();
  if (ROOT) chownSync(place, uid, uid);
  return place;
}

function runAs(
  { prefix, uid }: (typeof USERS)[number],
  policy: Partial<SandboxPolicy>,
  argv: readonly string[],
  { home, scratch, canary = false }: { home: string; scratch?: string; canary?: boolean },
): Report {
  const host = { home, scratch: scratch ?? scratchOf(uid), canary, path: '' };
  const [program, ...args] = [
    ...prefix,
    process.execPath,
    RUN,
    JSON.stringify(policy),
    JSON.stringify(host),
    JSON.stringify(argv),
  ];
  const ran = spawnSync(program as string, args, {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], HOME: home },
  });
  if (ran.stdout === '') throw new Error(ran.stderr);
  return JSON.parse(ran.stdout) as Report;
}

const attempts = (list: readonly Attempt[]): string[] => [process.execPath, ATTEMPTS, JSON.stringify(list)];
const outcomes = ({ stdout }: { readonly stdout: string }): Outcome[] => JSON.parse(stdout) as Outcome[];

async function listening(at: ListenOptions, answer = 'outside'): Promise<Server> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end(answer);
  });
  await new Promise<void>((resolve) => server.listen(at, resolve));
  onTestFinished(() => void server.close());
  return server;
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

describe.each(USERS)('as $name', (user) => {
  it('holds what is outside, says what was refused by name, and lets work be done', async () => {
    const { home, workspace, elsewhere, place } = world(user.uid);
    symlinkSync(join(elsewhere, 'file'), join(workspace, 'link'));
    const port = portOf(await listening({ port: 0, host: '127.0.0.1' }));
    const socket = join(elsewhere, 'host.sock');
    await listening({ path: socket });
    chmodSync(socket, 0o777);
    const list: Attempt[] = [
      ['append', join(elsewhere, 'file')],
      ['write', join(workspace, 'link')],
      ['chmod', join(elsewhere, 'file')],
      ['rename', join(workspace, 'file'), join(elsewhere, 'moved')],
      ['mkdir', join(home, 'new')],
      ['read', join(home, '.ssh', 'id')],
      ['read', join(home, '.netrc')],
      ['write', join(home, '.ssh', 'id')],
      ['connect', { port, host: '127.0.0.1' }],
      ['connect', { port: 9, host: '192.0.2.1' }],
      ['connect', { path: socket }],
    ];
    const life: Attempt[] = [
      ['write', join(workspace, 'new')],
      ['read', join(elsewhere, 'file')],
      ['write', '/tmp/mine'],
      ['append', '/dev/null'],
      ['spawn', 'sh', ['-c', 'echo sub; cat /dev/null; exec 2>/dev/null']],
      ['listen', 0],
      ['listen', join(workspace, 'own.sock')],
    ];
    // The whole place is shown, or nothing of it would be there: it lies in the folder for temporary files.
    const report = runAs(user, { roots: [workspace] }, [...attempts([...list, ...life]), place], { home });
    expect(report.stderr).toBe('');
    const results = outcomes(report);
    for (const [at, attempt] of list.entries()) {
      expect(results[at]?.code, JSON.stringify(attempt)).toMatch(/^E[A-Z]+$/);
    }
    for (const [at, attempt] of life.entries()) {
      expect(results[list.length + at]?.ok, JSON.stringify(attempt)).toBeDefined();
    }
    expect(readFileSync(join(elsewhere, 'file'), 'utf8')).toBe('kept\n');
    expect(existsSync('/tmp/mine')).toBe(false);
    expect(statSync(join(workspace, 'new')).uid).toBe(user.uid);
    const named = report.denials.map(
      ({ operation, path, address }) => `${operation} ${path ?? address ?? ''}`,
    );
    expect(named).toEqual([
      `write ${join(elsewhere, 'file')}`,
      `write ${join(elsewhere, 'file')}`,
      `metadata ${join(elsewhere, 'file')}`,
      `rename ${join(elsewhere, 'moved')}`,
      `create ${join(home, 'new')}`,
      `read ${join(home, '.ssh', 'id')}`,
      `read ${join(home, '.netrc')}`,
      `write ${join(home, '.ssh', 'id')}`,
      `connect 127.0.0.1:${port}`,
      'connect 192.0.2.1:9',
      `connect ${socket}`,
    ]);
    for (const denial of report.denials) {
      expect(denial).toMatchObject({ naming: 'named', count: 1 });
      expect(denial.pid).toBeGreaterThan(0);
      expect(Math.abs(denial.time - Date.now())).toBeLessThan(60_000);
    }
    expect(report.record).toMatchObject({
      backend: 'bwrap',
      naming: 'named',
      network: 'deny',
    });
    expect(report.record.holes).toEqual(expect.arrayContaining(['fifo', 'late-unix-socket']));
    expect(readdirSync(place).sort()).toEqual(['else', 'home', 'ws']);
  });

  it('works in a workspace of another owner as outside', () => {
    const { home, workspace } = world(user.uid);
    if (ROOT && user.uid === 0) chownSync(workspace, 1000, 1000);
    const report = runAs(
      user,
      { roots: [workspace] },
      attempts([
        ['write', join(workspace, 'new')],
        ['chmod', join(workspace, 'new')],
      ]),
      { home },
    );
    expect(outcomes(report)).toEqual([{ ok: true }, { ok: true }]);
    expect(report.denials).toEqual([]);
  });

  it('has named ports forwarded', async () => {
    const { home, workspace } = world(user.uid);
    const port = portOf(await listening({ port: 0, host: '127.0.0.1' }));
    const tried = (ports: number[]): Report =>
      runAs(
        user,
        { roots: [workspace], network: { mode: 'ports', ports } },
        attempts([['connect', { port, host: '127.0.0.1' }]]),
        { home },
      );
    const low = tried([80]);
    if (user.uid === 0) expect(low.record.ports).toEqual([80]);
    else expect(low.error).toBe('NOT_SUPPORTED');
    expect(tried([port]).record.ports).toEqual([port]);
  });

  it('has tried itself before', () => {
    const { home, workspace } = world(user.uid);
    const report = runAs(user, { roots: [workspace] }, ['true'], { home, canary: true });
    expect(report.record.canary).toEqual({ read: true, write: true, connect: true });
    expect(report.denials).toEqual([]);
    const open = runAs(user, { roots: [workspace], network: { mode: 'allow' } }, ['true'], {
      home,
      canary: true,
    });
    expect(open.record.canary).toEqual({ read: true, write: true });
    expect(open.record.holes).toContain('network');
  });

  it('shows a folder where this machine has none', () => {
    const { home, place } = world(user.uid);
    const scratch = join(place, 'else');
    for (const to of ['/nowhere/at/all', '/usr/share/belay-nowhere/ws']) {
      const report = runAs(
        user,
        { binds: [{ from: scratch, to }] },
        attempts([
          ['read', join(to, 'file')],
          ['write', join(to, 'new')],
          ['write', join(to, '..', 'no')],
          ['list', '/usr/bin'],
        ]),
        { home },
      );
      const [kept, written, refused, listed] = outcomes(report);
      expect([kept?.ok, written?.ok]).toEqual(['kept\n', true]);
      expect(refused?.code).toBe('EROFS');
      expect(listed?.ok).toBeGreaterThan(0);
      expect(report.denials).toMatchObject([{ operation: 'create', errno: 'EROFS' }]);
      expect(readFileSync(join(scratch, 'new'), 'utf8')).toBe('changed\n');
    }
    expect(existsSync('/nowhere')).toBe(false);
  });

  it('hides evidence inside of a root, and leaves a root inside of what is hidden', () => {
    const { home, workspace, place } = world(user.uid);
    const evidence = join(workspace, 'evidence');
    mkdirSync(evidence);
    writeFileSync(join(evidence, 'trace'), 'x');
    const state = join(place, 'state');
    mkdirSync(join(state, 'scratch'), { recursive: true });
    writeFileSync(join(state, 'key'), 'x');
    if (ROOT) execFileSync('chown', ['-R', String(user.uid), state, evidence]);
    const report = runAs(
      user,
      { roots: [workspace, join(state, 'scratch')], hide: [evidence, state] },
      [
        ...attempts([
          ['read', join(evidence, 'trace')],
          ['write', join(evidence, 'new')],
          ['read', join(state, 'key')],
          ['write', join(state, 'scratch', 'new')],
        ]),
        place,
      ],
      { home },
    );
    expect(outcomes(report).map(({ code, ok }) => code ?? ok)).toEqual([
      'ENOENT',
      expect.stringMatching(/EROFS|EACCES/),
      'ENOENT',
      true,
    ]);
    expect(report.denials.map(({ path, class: refusedBy }) => [path, refusedBy])).toEqual([
      [join(evidence, 'trace'), 'hidden'],
      [join(evidence, 'new'), 'hidden'],
      [join(state, 'key'), 'hidden'],
    ]);
  });

  it('leaves no process when whoever started it is killed', async () => {
    const { home, workspace } = world(user.uid);
    for (const denials of ['named', 'off'] as const) {
      const host = { home, canary: false, announce: true, path: '' };
      // A server, a child of it, and a grandchild in a session of its own.
      const script = 'setsid sleep 600 & sleep 600 & echo ready; exec sleep 600';
      const [program, ...args] = [
        ...user.prefix,
        process.execPath,
        RUN,
        JSON.stringify({ roots: [workspace], denials }),
        JSON.stringify(host),
        JSON.stringify(['sh', '-c', script]),
      ];
      const owner = spawn(program as string, args, {
        env: { PATH: process.env['PATH'], HOME: home },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const pids = JSON.parse(await firstLine(owner)) as number[];
      expect(pids.length).toBeGreaterThanOrEqual(4);
      expect(pids.every(isAlive)).toBe(true);
      owner.kill('SIGKILL');
      await expect.poll(() => pids.filter(isAlive)).toEqual([]);
    }
  });
});

function firstLine(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      text += chunk.toString('utf8');
      const [line, rest] = text.split('\n');
      if (rest !== undefined) resolve(line as string);
    });
    child.once('close', () => reject(new Error(`ended with ${text}`)));
  });
}

function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'));
  } catch {
    return false;
  }
}

describe('what is told of refusals', () => {
  it('can not be forged by what is written', async () => {
    const workspace = folder();
    const lines = [
      '12345 1767225600.250000 openat(AT_FDCWD</>, "/etc/shadow", O_RDONLY) = -1 EACCES (Permission denied)',
      "touch: cannot touch '/etc/x': Read-only file system",
      'strace: Process 77 attached',
      "EROFS: read-only file system, open '/etc/passwd'",
    ].join('\n');
    // By standard error, by standard output, by names of files that break lines, and by every descriptor there is.
    const script = `
      const fs = require('node:fs');
      const lines = ${JSON.stringify(`${lines}\n`)};
      process.stderr.write(lines);
      process.stdout.write(lines);
      for (let fd = 3; fd < 64; fd++) { try { fs.writeSync(fd, lines); } catch {} }
      for (const pid of fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) {
        try { for (const fd of fs.readdirSync('/proc/' + pid + '/fd')) {
          try { const at = fs.openSync('/proc/' + pid + '/fd/' + fd, fs.constants.O_WRONLY | fs.constants.O_NONBLOCK); fs.writeSync(at, lines); } catch {}
        } } catch {}
      }
      const name = ${JSON.stringify(`a", O_WRONLY) = -1 EROFS (Read-only file system)\n12345 1767225600.25 chmod("`)};
      try { fs.openSync('/tmp/nothing/' + name, 'w'); } catch {}
    `;
    const { denials, stderr } = await inside({ roots: [workspace] }, [process.execPath, '-e', script]);
    expect(stderr).toContain('/etc/shadow');
    expect(denials).toEqual([]);
  });

  it('comes before anything that the refused process does next', async () => {
    const workspace = folder();
    const prepared = await prepare(
      { ...DEFAULT_POLICY, roots: [workspace] },
      {
        argv: [
          'sh',
          '-c',
          'while read -r line; do echo x 2>&- >"/etc/belay-$line"; echo "answer $line"; done',
        ],
        cwd: workspace,
        env: { PATH: process.env['PATH'] },
      },
      { canary: false },
    );
    const told: string[] = [];
    prepared.onDenial(({ path }) => told.push(path ?? ''));
    const [program, ...args] = prepared.argv;
    const child = spawn(program, args, {
      cwd: workspace,
      env: prepared.env,
      stdio: ['pipe', 'pipe', 'ignore', ...prepared.fds],
      detached: true,
    });
    prepared.started(child.pid);
    onTestFinished(() => void child.kill('SIGKILL'));
    for (let turn = 0; turn < 50; turn++) {
      const answer = new Promise<void>((resolve) => {
        child.stdout?.once('data', () => {
          prepared.drain();
          resolve();
        });
      });
      child.stdin?.write(`${turn}\n`);
      await answer;
      expect(told.at(-1)).toBe(`/etc/belay-${turn}`);
      expect(told).toHaveLength(turn + 1);
    }
    child.stdin?.end();
    await new Promise((resolve) => child.once('close', resolve));
    await prepared.dispose();
  });

  it('counts whoever tries the same in a loop', async () => {
    const workspace = folder();
    const script =
      "const fs = require('node:fs'); for (let at = 0; at < 20000; at++) { try { fs.chmodSync('/etc/passwd', 0o777); } catch {} }";
    const { denials } = await inside({ roots: [workspace] }, [process.execPath, '-e', script]);
    expect(denials.reduce((sum, { count }) => sum + count, 0)).toBe(20_000);
    expect(denials.length).toBeLessThan(500);
  });

  it('has no name where nobody may trace, and the boundary holds all the same', () => {
    const { home, workspace, elsewhere } = world(process.geteuid?.() ?? 0);
    // What is traced already can't be traced by another.
    const traced = {
      name: 'traced',
      prefix: ['strace', '-f', '-qqq', '-e', 'trace=none', '-o', '/dev/null'],
      uid: 0,
    };
    const report = runAs(
      traced,
      { roots: [workspace] },
      [
        ...attempts([
          ['append', join(elsewhere, 'file')],
          ['write', join(workspace, 'a')],
        ]),
        elsewhere,
      ],
      { home, canary: true },
    );
    expect(outcomes(report)).toEqual([{ code: 'EROFS' }, { ok: true }]);
    expect(report.record).toMatchObject({
      backend: 'bwrap',
      naming: 'unnamed',
      filter: { told: [] },
      canary: { write: true },
    });
    expect(report.denials).toEqual([]);
  });

  it('is nothing where nobody was asked to look', async () => {
    const workspace = folder();
    const list: Attempt[] = [['append', '/etc/passwd']];
    const off = await inside({ roots: [workspace], denials: 'off' }, attempts(list) as [string, ...string[]]);
    expect(outcomes(off)).toEqual([{ code: 'EROFS' }]);
    expect([off.denials, off.record.naming]).toEqual([[], 'off']);
    expect(off.record.filter.told).toEqual([]);
  });
});

describe('what the filter leaves to the tracer', () => {
  it('is decided on by nobody else', async () => {
    const { stdout, denials, record } = await inside({ roots: [folder()] }, [
      'python3',
      here('./around-tracer.py'),
    ]);
    expect(JSON.parse(stdout)).toEqual({
      // A listener would have its say before the tracer, a process without a tracer could be given one.
      listener: 'EPERM',
      untraced: 'EPERM',
      ptrace: 'EPERM',
      io_uring: 'ENOSYS',
      keyring: 'EPERM',
    });
    expect(denials.map(({ syscall, class: refusedBy, naming }) => [syscall, refusedBy, naming])).toEqual([
      ['ptrace', 'ptrace', 'class'],
      ['io_uring_setup', 'io_uring', 'class'],
      ['keyctl', 'keyring', 'class'],
    ]);
    expect(record.filter.silent).toContain('untraced');
  });
});

describe('networks', () => {
  it('lets named ports through, and those alone', async () => {
    const [workspace, open, closed] = [
      folder(),
      await listening({ port: 0, host: '127.0.0.1' }),
      await listening({ port: 0, host: '127.0.0.1' }),
    ];
    const [port, other] = [portOf(open), portOf(closed)];
    const report = await inside(
      { roots: [workspace], network: { mode: 'ports', ports: [port] } },
      attempts([
        ['converse', { port, host: '127.0.0.1' }],
        ['converse', { port: other, host: '127.0.0.1' }],
        ['connect', { port: 9, host: '192.0.2.1' }],
      ]) as [string, ...string[]],
    );
    expect(outcomes(report)).toEqual([{ ok: 'outside' }, { code: 'ECONNREFUSED' }, { code: 'ENETUNREACH' }]);
    expect(report.denials.map(({ address }) => address)).toEqual([`127.0.0.1:${other}`, '192.0.2.1:9']);
    expect(report.record).toMatchObject({ network: 'ports', ports: [port] });
  });

  it('passes the exit code on from behind the forwarder', async () => {
    const port = portOf(await listening({ port: 0, host: '127.0.0.1' }));
    const policy = { roots: [folder()], network: { mode: 'ports', ports: [port] } } as const;
    expect((await inside(policy, ['sh', '-c', 'exit 7'])).code).toBe(7);
    expect((await inside(policy, ['sh', '-c', 'kill -9 $$'])).code).toBe(137);
  });

  it('is open where it is allowed', async () => {
    const port = portOf(await listening({ port: 0, host: '127.0.0.1' }));
    const report = await inside(
      { roots: [folder()], network: { mode: 'allow' } },
      attempts([['converse', { port, host: '127.0.0.1' }]]) as [string, ...string[]],
    );
    expect(outcomes(report)).toEqual([{ ok: 'outside' }]);
  });
});

describe('profiles and limits', () => {
  it('refuses unix sockets when strict, not socketpairs', async () => {
    const workspace = folder();
    const report = await inside(
      { roots: [workspace], profile: 'strict' },
      attempts([
        ['listen', join(workspace, 'own.sock')],
        ['listen', 0],
        ['spawn', 'sh', ['-c', 'echo sub']],
      ]) as [string, ...string[]],
    );
    expect(outcomes(report)).toEqual([{ code: 'EPERM' }, { ok: 'own' }, { ok: 'sub\n' }]);
    expect(report.record.holes).not.toContain('late-unix-socket');
    expect(report.record.filter.silent).toContain('unix-socket');
  });

  it('holds limits, and says what holds them', async () => {
    const workspace = folder();
    const large = await inside({ roots: [workspace], limits: { fileSize: 1024 * 1024 } }, [
      'sh',
      '-c',
      `head -c 2000000 /dev/zero > ${workspace}/large; stat -c %s ${workspace}/large`,
    ]);
    expect(large.stdout.trim()).toBe(String(1024 * 1024));
    expect(large.record.limits).toEqual([{ limit: 'fileSize', value: 1024 * 1024, by: 'rlimit' }]);
    const greedy = await inside(
      { roots: [workspace], limits: { memory: 300 * 1024 * 1024 } },
      attempts([['fill', 900]]) as [string, ...string[]],
    );
    expect(greedy.stdout).not.toContain('ok');
    const [held] = greedy.record.limits;
    expect(['cgroup', 'rlimit']).toContain(held?.by);
    const spinning = await inside(
      { roots: [workspace], limits: { cpu: 1 } },
      attempts([['spin']]) as [string, ...string[]],
    );
    expect(spinning.code === 0 || spinning.stdout !== '').toBe(false);
    const forks = await inside({ roots: [workspace], limits: { processes: 20 } }, [
      'sh',
      '-c',
      'for i in $(seq 40); do sleep 2 & done; wait',
    ]);
    if (forks.record.limits[0]?.by !== 'none') expect(forks.stderr).toMatch(/fork/i);
  });

  it('starts nothing where it can not be held', async () => {
    const workspace = folder();
    const command = { argv: ['true'], cwd: workspace, env: {} } as const;
    const refused: [Partial<SandboxPolicy>, string][] = [
      [{ backend: 'seatbelt' }, 'BACKEND_UNAVAILABLE'],
      [{ network: { mode: 'ports', ports: [1] }, profile: 'strict' }, 'NOT_SUPPORTED'],
      [{ roots: [join(workspace, 'missing')] }, 'POLICY_REFUSED'],
      [{ binds: [{ from: join(workspace, 'missing'), to: '/x' }] }, 'POLICY_REFUSED'],
      [{ backend: 'landlock', network: { mode: 'ports', ports: [1] } }, 'NOT_SUPPORTED'],
      [{ backend: 'landlock', network: { mode: 'loopback' } }, 'NOT_SUPPORTED'],
      [{ backend: 'landlock', binds: [{ from: workspace, to: '/nowhere' }] }, 'NOT_SUPPORTED'],
    ];
    for (const [policy, code] of refused) {
      const error: unknown = await prepare(
        { ...DEFAULT_POLICY, roots: [workspace], ...policy },
        command,
      ).catch((each: unknown) => each);
      expect(error, JSON.stringify(policy)).toBeInstanceOf(SandboxError);
      expect((error as SandboxError).code, JSON.stringify(policy)).toBe(code);
    }
  });

  it('enforces nothing only when that is asked for by name', async () => {
    const workspace = folder();
    const elsewhere = join(folder(), 'file');
    const report = await inside(
      { roots: [workspace], backend: 'none' },
      attempts([['write', elsewhere]]) as [string, ...string[]],
    );
    expect(outcomes(report)).toEqual([{ ok: true }]);
    expect(report.record).toMatchObject({ backend: 'none', network: 'allow', naming: 'off' });
    expect(report.record.holes).toContain('write');
  });

  it('is found out by its self-test where it holds nothing', async () => {
    const scratch = folder();
    const outcome = await tryBoundary({
      bash: findTool('bash', process.env['PATH']) as string,
      scratch,
      outside: [scratch],
      inside: (argv) => ({ argv, fds: [] }),
    });
    expect(outcome).toEqual({ ran: true, canary: { read: false, write: false, connect: false } });
    expect(readdirSync(scratch)).toEqual([]);
  });

  it('tests itself where its own files are not seen', async () => {
    const scratch = folder();
    const own = here('..');
    const outcome = await tryBoundary({
      bash: findTool('bash', process.env['PATH']) as string,
      scratch,
      outside: [scratch],
      inside: (argv) => ({
        argv: ['bwrap', '--ro-bind', '/', '/', '--dev', '/dev', '--tmpfs', own, ...argv],
        fds: [],
      }),
    });
    expect(outcome).toEqual({ ran: true, canary: { read: false, write: true, connect: false } });
  });
});

describe('Landlock', () => {
  it('holds writing, hidden files and TCP; what it does not hold is in the record', async () => {
    const { home, workspace, elsewhere } = world(process.geteuid?.() ?? 0);
    const port = portOf(await listening({ port: 0, host: '127.0.0.1' }));
    const list: Attempt[] = [
      ['append', join(elsewhere, 'file')],
      ['write', join(elsewhere, 'new')],
      ['read', join(home, '.netrc')],
      ['connect', { port, host: '127.0.0.1' }],
      ['write', join(workspace, 'new')],
      ['rename', join(workspace, 'new'), join(workspace, 'moved')],
      ['read', join(elsewhere, 'file')],
      ['append', '/dev/null'],
      ['spawn', 'sh', ['-c', 'echo "$TMPDIR" | grep -c belay-tmp; touch "$TMPDIR/x" && echo made']],
      ['chmod', join(elsewhere, 'file')],
    ];
    const report = await inside(
      { roots: [workspace], backend: 'landlock' },
      attempts(list) as [string, ...string[]],
      { host: { home } },
    );
    expect(outcomes(report).map(({ ok, code }) => code ?? ok)).toEqual([
      'EACCES',
      'EACCES',
      'EACCES',
      'EACCES',
      true,
      true,
      'kept\n',
      true,
      '1\nmade\n',
      true,
    ]);
    expect(
      report.denials.map(({ operation, path, address }) => `${operation} ${path ?? address ?? ''}`),
    ).toEqual([
      `write ${join(elsewhere, 'file')}`,
      `create ${join(elsewhere, 'new')}`,
      `read ${join(home, '.netrc')}`,
      `connect 127.0.0.1:${port}`,
    ]);
    expect(report.record.backend).toBe('landlock');
    expect(report.record.holes).toEqual(
      expect.arrayContaining(['chmod', 'utime', 'xattr', 'udp', 'unix-socket', 'host-process']),
    );
  });

  it('passes on what a command ends with', async () => {
    const policy = { roots: [folder()], backend: 'landlock' } as const;
    expect((await inside(policy, ['sh', '-c', 'exit 7'])).code).toBe(7);
    expect((await inside(policy, ['belay-no-such-program'])).code).toBe(127);
    // What Node ignores for itself is not ignored in what it becomes.
    expect((await inside(policy, ['sh', '-c', 'kill -PIPE $$; echo survived'])).stdout).toBe('');
    expect((await inside({ ...policy, denials: 'off' }, ['cat'], { input: 'through\n' })).stdout).toBe(
      'through\n',
    );
  });
});
