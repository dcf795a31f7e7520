import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Denial } from '../src/denial.js';
import { DEFAULT_POLICY, type SandboxPolicy } from '../src/policy.js';
import { type BoundaryReport, checkBoundary, type CheckOptions, placeOutside } from '../src/probe.js';
import { ESCAPE_ATTEMPTS } from '../src/probe-escape.js';
import { LIFE_ATTEMPTS } from '../src/probe-life.js';
import type { ProbePlan } from '../src/probe-plan.js';
import { ESCAPES, LIFE, ROWS, rowOf } from '../src/probe-rows.js';
import { type Launch, ProbeError, runProbe } from '../src/probe-run.js';
import { judge, type Setting } from '../src/probe-verdict.js';

const root = process.getuid?.() === 0;
let base: string;

beforeEach(() => {
  // Not in the folder for temporary files: that one is another inside, and what is in it can't be tried to be written.
  // As root, where others get to as well.
  const parent = placeOutside(root ? ['/srv', '/opt'] : [homedir(), process.cwd()], []) ?? tmpdir();
  base = mkdtempSync(join(parent, 'belay-test-'));
  for (const name of ['work', 'outside']) mkdirSync(join(base, name));
});

afterEach(() => {
  rmSync(base, { recursive: true, force: true });
});

const optionsFor = (policy: Partial<SandboxPolicy>): CheckOptions => ({
  policy: { ...DEFAULT_POLICY, ...policy, roots: [join(base, 'work')] },
  host: { home: homedir() },
  // oxlint-disable-next-line node/no-process-env -- what runs inside has the environment of the suite
  env: process.env,
  outside: join(base, 'outside'),
  workspace: join(base, 'work'),
  tmp: tmpdir(),
  home: homedir(),
  credentials: [],
  realSockets: [],
});

const rowsOf = (...groups: readonly string[]): string[] =>
  ROWS.filter((row) => groups.includes(rowOf(row)?.group ?? ''));

const named = (report: BoundaryReport, mark: string): string[] =>
  report.rows.filter((row) => row.mark === mark).map(({ row }) => row);

/**
 * The control has a mask to take off, and a descriptor from outside, to see that these are noticed; where there is no
 * boundary there are none.
 */
const NOTHING_TO_GET_AROUND = ['escape-unmask', 'escape-userns-unmask', 'escape-descriptors'];

describe('the check', () => {
  it('says that no boundary is none: all that can be done here gets through, and is seen outside', async () => {
    const report = await checkBoundary(optionsFor({ backend: 'none' }));
    expect(report.verdict).toBe('broken');
    const controlled = report.rows
      .filter(({ kind, control }) => kind === 'escape' && control === 'works')
      .map(({ row }) => row)
      .filter((row) => !NOTHING_TO_GET_AROUND.includes(row));
    expect(controlled.length).toBeGreaterThan(root ? 110 : 75);
    expect(named(report, 'escaped')).toEqual(expect.arrayContaining(controlled));
    // The machine's process 1 may be out of reach for everybody, and who started us may have left descriptors open.
    const beyond = ['escape-write-proc-1-root', 'escape-descriptors', 'escape-controlling-terminal'];
    expect(named(report, 'refused').filter((row) => !beyond.includes(row))).toEqual(
      NOTHING_TO_GET_AROUND.filter((row) => !beyond.includes(row) && (root || row !== 'escape-unmask')),
    );
    expect(named(report, 'fails')).toEqual([]);
    expect(readdirSync(join(base, 'outside'))).toEqual([]);
  });

  it('holds for a network that is open, but for the network', async () => {
    const rows = rowsOf('network', 'sockets', 'life-sockets');
    const options = optionsFor({ backend: 'bwrap', network: { mode: 'allow' } });
    const report = await checkBoundary({ ...options, rows });
    expect(report.reasons).toEqual([]);
    expect(report.rows.map(({ row }) => row)).toEqual(rows);
    expect(named(report, 'allowed')).toEqual(
      expect.arrayContaining(['escape-tcp-loopback', 'escape-udp-loopback']),
    );
  });

  it('holds under the strict profile, which has no unix sockets', async () => {
    const rows = rowsOf('sockets', 'kernel', 'life-sockets', 'life-limits');
    const limits = { processes: 120, fileSize: 1024 * 1024, memory: 400 * 1024 * 1024 };
    const options = optionsFor({ backend: 'bwrap', profile: 'strict', limits });
    const report = await checkBoundary({ ...options, rows });
    expect(report.reasons).toEqual([]);
    expect(report.record.holes).not.toContain('late-unix-socket');
    expect(named(report, 'hole')).toEqual(['escape-named-pipe']);
    expect(named(report, 'refused-by-policy')).toEqual([
      'life-unix-workspace',
      'life-unix-tmp',
      'life-unix-abstract',
    ]);
    for (const { limit, by } of report.record.limits) {
      const row = {
        processes: 'life-limit-processes',
        fileSize: 'life-limit-file-size',
        memory: 'life-limit-memory',
      }[limit as 'memory'];
      expect(report.rows.find((each) => each.row === row)?.mark, row).toBe(
        by === 'none' ? 'untested' : 'works',
      );
    }
  });

  it('holds with Landlock, but for what it is known not to hold and to lack', async () => {
    const report = await checkBoundary(optionsFor({ backend: 'landlock' }));
    expect(report.reasons).toEqual([]);
    expect(report.record.backend).toBe('landlock');
    // One hole of each name, and none that is not on record.
    const through = report.rows
      .filter(({ mark }) => mark === 'hole')
      .map(({ because }) => /"(.*)"/.exec(because)?.[1]);
    expect(report.record.holes).toEqual(expect.arrayContaining([...new Set(through)]));
    for (const row of ['escape-chmod', 'escape-udp-loopback', 'escape-unix-path', 'escape-hidden-list'])
      expect(named(report, 'hole')).toContain(row);
    for (const row of [
      'escape-write',
      'escape-tcp-fastopen',
      'escape-hidden-file',
      'escape-write-shm',
      'escape-terminal',
    ])
      expect(named(report, 'refused')).toContain(row);
    if (root)
      expect(named(report, 'refused')).toEqual(
        expect.arrayContaining(['escape-capabilities', 'escape-chroot']),
      );
    expect(named(report, 'lacks')).toEqual(
      expect.arrayContaining(['life-dev-shm', 'life-pty', 'life-slash-tmp']),
    );
  });

  it('holds for an ordinary user', { timeout: 60_000 }, () => {
    // A copy of what it takes: the repository may be where only its owner gets to.
    const copy = join(base, 'copy');
    const here = dirname(dirname(fileURLToPath(import.meta.url)));
    cpSync(join(here, 'dist'), join(copy, 'dist'), { recursive: true });
    cpSync(join(here, 'bin'), join(copy, 'bin'), { recursive: true });
    cpSync(join(here, 'package.json'), join(copy, 'package.json'));
    const modules = dirname(dirname(createRequire(import.meta.url).resolve('koffi')));
    for (const name of ['koffi', '@koromix', 'yaml'])
      cpSync(join(realpathSync(modules), name), join(copy, 'node_modules', name), { recursive: true });
    writeFileSync(join(copy, 'check.mjs'), CHECK);
    const [uid, gid] = root ? [65_534, 65_534] : [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
    for (const name of ['.', 'work', 'outside']) {
      chmodSync(join(base, name), 0o755);
      if (root) chownSync(join(base, name), uid, gid);
    }
    const command = [process.execPath, join(copy, 'check.mjs'), base];
    const [program, ...args] = root
      ? ['setpriv', '--reuid', String(uid), '--regid', String(gid), '--clear-groups', ...command]
      : command;
    // oxlint-disable-next-line node/no-process-env -- of the suite's, all but its folder for temporary files: that is its alone
    const env = { ...process.env, TMPDIR: '/tmp' };
    const { stdout, stderr } = spawnSync(program as string, args, { encoding: 'utf8', cwd: '/', env });
    expect(stderr).toBe('');
    const report = JSON.parse(stdout) as BoundaryReport & { readonly uid: number };
    expect(report.uid).toBe(uid);
    expect(report.reasons).toEqual([]);
    expect(report.verdict).toBe('holds');
    expect(report.rows.filter(({ essential, mark }) => essential && mark !== 'refused')).toEqual([]);
    expect(report.counts.refused).toBeGreaterThan(75);
  });
});

/** Runs in the copy, as the other user. */
const CHECK = `
import { checkBoundary } from './dist/probe.js';
import { DEFAULT_POLICY } from './dist/policy.js';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
const base = process.argv[2];
const home = userInfo().homedir;
const report = await checkBoundary({
  policy: { ...DEFAULT_POLICY, backend: 'bwrap', roots: [join(base, 'work')] },
  host: { home },
  env: { PATH: process.env.PATH, HOME: home },
  outside: join(base, 'outside'),
  workspace: join(base, 'work'),
  tmp: '/tmp',
  home,
  credentials: [],
  realSockets: [],
});
console.log(JSON.stringify({ uid: process.getuid(), ...report }));
`;

describe('the tables', () => {
  it('have an attempt for each row, and no other', () => {
    expect(Object.keys(ESCAPE_ATTEMPTS).sort()).toEqual(Object.keys(ESCAPES).sort());
    expect(Object.keys(LIFE_ATTEMPTS).sort()).toEqual(Object.keys(LIFE).sort());
    expect(ROWS.length).toBe(Object.keys(ESCAPES).length + Object.keys(LIFE).length);
    expect(rowOf('escape-write')?.kind).toBe('escape');
    expect(rowOf('life-write')?.kind).toBe('life');
    expect(rowOf('write')).toBeUndefined();
    expect(rowOf('escape-constructor')).toBeUndefined();
  });
});

describe('running the probe', () => {
  /** A program in its place that says these lines and then ends as it is told. */
  const saying =
    (passes: readonly string[]): Launch =>
    async ([, , plan]) => {
      const { rows } = JSON.parse(plan as string) as ProbePlan;
      const script = `const rows = ${JSON.stringify(rows)};
        const say = (line) => require('node:fs').writeSync(1, JSON.stringify({ ...line, at: Date.now() }) + '\\n');
        ${passes[0] ?? ''}`;
      const child = spawn(process.execPath, ['-e', script], {
        stdio: ['ignore', 'pipe', 'pipe'],
        detached: true,
      });
      return { child, end: () => Promise.resolve() };
    };
  const planOf = (...rows: string[]): ProbePlan => ({ rows }) as unknown as ProbePlan;
  const nothing = (): Promise<void> => Promise.resolve();

  it('goes on behind a row that ended the process, and says by what', async () => {
    const program = `for (const row of rows) {
      say({ begin: row });
      if (row === 'two') process.kill(process.pid, 'SIGSYS');
      if (row === 'three') process.exit(9);
      say({ row, did: 'it' });
    }`;
    const tried = await runProbe(
      planOf('one', 'two', 'three', 'four'),
      saying([program]),
      nothing,
      undefined,
    );
    expect([...tried.values()].map(({ answer }) => answer)).toEqual([
      { row: 'one', did: 'it' },
      { row: 'two', refused: 'SIGSYS', syscall: '' },
      { row: 'three', refused: 'EXIT 9', syscall: '' },
      { row: 'four', did: 'it' },
    ]);
  });

  it('takes no line that is not its own for an answer', async () => {
    const program = `console.log('hello'); console.log('{"row":"one","did":"forged"}'); console.log('null');
      say({ begin: 'one' }); say({ row: 'one', refused: 'EPERM', syscall: 'x' });`;
    const tried = await runProbe(planOf('one'), saying([program]), nothing, undefined);
    expect(tried.get('one')?.answer).toEqual({ row: 'one', refused: 'EPERM', syscall: 'x' });
  });

  it('does not try for ever what does not begin, and gives its words', async () => {
    const failing = runProbe(planOf('one'), saying(['throw new Error("no koffi")']), nothing, undefined);
    await expect(failing).rejects.toThrow(ProbeError);
    await expect(failing).rejects.toThrow(/no koffi/);
  });

  it('is ended from outside', async () => {
    const stop = new AbortController();
    const program = `say({ begin: 'one' }); setInterval(() => {}, 1000);`;
    const running = runProbe(
      planOf('one'),
      saying([program]),
      () => {
        stop.abort(new Error('enough'));
        return Promise.resolve();
      },
      stop.signal,
    );
    await expect(running).rejects.toThrow('enough');
  });
});

describe('what a row comes to', () => {
  const setting: Setting = {
    backend: 'bwrap',
    profile: 'default',
    network: 'deny',
    holes: ['late-unix-socket'],
    filter: { told: ['io_uring'], silent: ['namespace'] },
    limits: [{ limit: 'memory', value: 1, by: 'none' }],
  };
  const did = (row: string) => ({ answer: { row, did: 'it' }, reached: undefined });
  const refused = (row: string, error: string) => ({
    answer: { row, refused: error, syscall: 'call' },
    reached: undefined,
  });
  const absent = (row: string) => ({ answer: { row, absent: 'no means' }, reached: undefined });
  const denial = (naming: Denial['naming'], errno: string): Denial => ({
    operation: 'write',
    syscall: 'open',
    errno,
    pid: 1,
    time: 0,
    naming,
    class: 'file-system',
    count: 1,
  });

  it.each([
    ['refused', 'escape-write', { ...did('escape-write'), reached: true }, refused('escape-write', 'EROFS')],
    // Answered with success, and nothing changed outside.
    ['contained', 'escape-write', did('escape-write'), { ...did('escape-write'), reached: false }],
    // Answered with an error, and changed outside all the same: who tried it is not believed.
    ['escaped', 'escape-write', did('escape-write'), { ...refused('escape-write', 'EROFS'), reached: true }],
    ['escaped', 'escape-tmpfs', did('escape-tmpfs'), did('escape-tmpfs')],
    ['escaped', 'escape-tmpfs', refused('escape-tmpfs', 'EPERM'), did('escape-tmpfs')],
    ['hole', 'escape-unix-late', did('escape-unix-late'), { ...did('escape-unix-late'), reached: true }],
    ['escaped', 'escape-unix-path', did('escape-unix-path'), { ...did('escape-unix-path'), reached: true }],
    // A refusal says nothing where the attempt fails anyway.
    ['untested', 'escape-tmpfs', refused('escape-tmpfs', 'EPERM'), refused('escape-tmpfs', 'EPERM')],
    // Nor does one where the control's effect was not seen.
    [
      'untested',
      'escape-write',
      { ...did('escape-write'), reached: false },
      refused('escape-write', 'EROFS'),
    ],
    ['untested', 'escape-tmpfs', did('escape-tmpfs'), absent('escape-tmpfs')],
    ['refused', 'escape-write-proc-1-root', refused('x', 'EACCES'), refused('x', 'EROFS')],
    ['works', 'life-write', did('life-write'), did('life-write')],
    ['fails', 'life-write', did('life-write'), refused('life-write', 'EROFS')],
    ['untested', 'life-write', refused('life-write', 'EROFS'), refused('life-write', 'EROFS')],
    ['refused-by-policy', 'life-loopback', did('life-loopback'), refused('life-loopback', 'EPERM')],
    ['untested', 'life-limit-memory', absent('x'), refused('life-limit-memory', 'all was given')],
    ['fails', 'life-limit-processes', absent('x'), refused('life-limit-processes', 'all started')],
    ['fails', 'life-unix-tmp', did('life-unix-tmp'), refused('life-unix-tmp', 'EPERM')],
  ])('is %s: %s', (mark, row, control, inside) => {
    expect(judge(row, control, inside, setting, []).mark).toBe(mark);
  });

  it('is untested when the probe said nothing of it', () => {
    const silent = { answer: undefined, reached: undefined };
    expect(judge('escape-write', did('escape-write'), silent, setting, []).mark).toBe('untested');
  });

  it('says how the refusal is on record', () => {
    const told = (row: string, error: string, denials: readonly Denial[]) =>
      judge(row, did(row), refused(row, error), setting, denials).told;
    expect(told('escape-write', 'EROFS', [denial('named', 'EROFS')])).toBe('named');
    expect(told('escape-write', 'EROFS', [denial('named', 'ENOENT')])).toBe('untold');
    expect(told('escape-io-uring', 'ENOSYS', [denial('class', 'ENOSYS')])).toBe('class');
    expect(told('escape-userns', 'EPERM', [])).toBe('standing');
    expect(told('escape-bpf', 'EPERM', [])).toBe('untold');
  });

  it('lets a policy open the network, and nothing else', () => {
    const open: Setting = { ...setting, network: 'allow' };
    const through = (row: string) => judge(row, did(row), { ...did(row), reached: true }, open, []).mark;
    expect(through('escape-tcp-loopback')).toBe('allowed');
    expect(through('escape-write')).toBe('escaped');
    expect(through('escape-unix-path')).toBe('escaped');
  });

  it('knows what a back end lacks, and a hole that is wider', () => {
    const landlock: Setting = { ...setting, backend: 'landlock', holes: ['unix-socket'] };
    const row = 'life-slash-tmp';
    expect(judge(row, did(row), refused(row, 'EACCES'), landlock, []).mark).toBe('lacks');
    expect(judge(row, did(row), refused(row, 'EACCES'), setting, []).mark).toBe('fails');
    const late = 'escape-unix-late';
    expect(
      judge(late, { ...did(late), reached: true }, { ...did(late), reached: true }, landlock, []).mark,
    ).toBe('hole');
  });

  it('knows no hole of a back end that is none', () => {
    const none: Setting = { ...setting, backend: 'none', holes: ['chmod', 'write'] };
    expect(judge('escape-chmod', did('x'), { ...did('x'), reached: true }, none, []).mark).toBe('escaped');
  });
});
