/**
 * The whole boundary tried as whoever runs the suite: nothing escapes, ordinary life works, and each refusal by the
 * file system or the network is told by name, each by the filter by its class.
 */

import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BoundaryReport, checkBoundary, placeOutside } from '../src/probe.js';
import { ROWS, rowOf } from '../src/probe-rows.js';
import { DEFAULT_POLICY } from '../src/policy.js';

/**
 * What is refused by not being there: the kernel's answer is that of any miss, and only who knows this machine could
 * tell an attempt at it from one at nothing. Each with the reason.
 */
const NOT_A_REFUSAL: Readonly<Record<string, string>> = {
  'escape-setns': 'no such process inside',
  'escape-tcp-loopback': 'nobody listens at its own 127.0.0.1',
  'escape-tcp-loopback6': 'nobody listens at its own ::1',
  'escape-netlink': 'its own network has no other interface',
  'escape-sysv-shm': 'no such segment inside',
  'escape-mqueue': 'no such queue inside',
  'escape-signal': 'no such process inside',
  'escape-signal-group': 'no such process inside',
  'escape-signal-pidfd': 'no such process inside',
  'escape-ptrace': 'no such process inside',
  'escape-vm-write': 'no such process inside',
  'escape-vm-read': 'no such process inside',
  'escape-proc-mem': 'no such process inside',
  'escape-streams': 'it has none of them',
  'escape-controlling-terminal': 'its session has none',
  'escape-write-proc-1-root': 'process 1 has nothing to show',
  'escape-first-program': 'process 1 has nothing to show',
  'escape-first-descriptors': 'process 1 has nothing to show',
  'escape-proc-environ': 'no such process inside',
  'escape-proc-root': 'no such process inside',
  'escape-pidfd-getfd': 'no such process inside',
  'escape-prlimit': 'no such process inside',
  'escape-hidden-list': 'a hidden folder is empty',
  'escape-credentials': 'a hidden folder is empty',
  'escape-device-nodes': 'its own /dev has no such nodes',
  'escape-block-device': 'its own /dev has no such node',
  'escape-descriptors': 'it looks at itself, and makes no attempt',
  'escape-capabilities': 'it looks at itself, and makes no attempt',
  'escape-new-privileges': 'it looks at itself, and makes no attempt',
};

let base: string;
let report: BoundaryReport;

beforeAll(async () => {
  const parent = placeOutside([homedir(), '/srv', '/opt', process.cwd()], []) ?? tmpdir();
  base = mkdtempSync(join(parent, 'belay-test-'));
  mkdirSync(join(base, 'work'));
  mkdirSync(join(base, 'outside'));
  report = await checkBoundary({
    policy: { ...DEFAULT_POLICY, backend: 'bwrap', roots: [join(base, 'work')] },
    host: { home: homedir() },
    // oxlint-disable-next-line node/no-process-env -- what runs inside has the environment of the suite
    env: process.env,
    outside: join(base, 'outside'),
    workspace: join(base, 'work'),
    tmp: tmpdir(),
    home: homedir(),
    credentials: ['.ssh', '.npmrc', '.aws'].map((name) => join(homedir(), name)),
    realSockets: [],
  });
});

afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

describe('the boundary of bubblewrap', () => {
  it('holds', () => {
    expect(report.reasons).toEqual([]);
    expect(report.verdict).toBe('holds');
    expect(report.rows.map(({ row }) => row)).toEqual(ROWS);
  });

  it('is tried by attempts that work without it', () => {
    const controlled = report.rows.filter(({ kind, control }) => kind === 'escape' && control === 'works');
    // An ordinary user has fewer attempts to make in the first place.
    expect(controlled.length).toBeGreaterThan(process.getuid?.() === 0 ? 110 : 75);
    expect(report.rows.filter(({ essential, control }) => essential && control !== 'works')).toEqual([]);
  });

  it('has no hole but the ones on record', () => {
    const holes = report.rows.filter(({ mark }) => mark === 'hole').map(({ row }) => row);
    expect(holes).toEqual(['escape-unix-late', 'escape-named-pipe']);
    expect([...report.record.holes].sort()).toEqual([
      'fifo',
      // /etc is not rebuilt for the sake of /etc/shadow, which only root could read.
      ...(process.getuid?.() === 0 ? ['late-secret'] : []),
      'late-unix-socket',
    ]);
  });

  it.each(ROWS.filter((row) => rowOf(row)?.kind === 'escape'))('%s is told', (row) => {
    const result = report.rows.find((each) => each.row === row);
    if (result?.mark !== 'refused' || result.told !== 'untold') return;
    expect(NOT_A_REFUSAL, `${row}: ${result.errno} by ${result.syscall} was not told`).toHaveProperty(row);
  });

  it('tells names that are of this machine', () => {
    const outside = report.rows.filter(({ row, mark, errno }) => {
      const known = rowOf(row);
      return (
        known?.kind === 'escape' && known.witness === 'folder' && mark === 'refused' && errno === 'EROFS'
      );
    });
    expect(outside.length).toBeGreaterThan(30);
    for (const { row, denials, errno } of outside) {
      const told = denials.findLast((denial) => denial.errno === errno);
      expect(told, row).toBeDefined();
      if (told?.naming !== 'named') continue;
      // What can't be said any more is said as it was passed.
      expect(told.path, row).toMatch(/^\/proc\/(\d+|self)\/|\/(belay-probe-[^/]+)\/escape-/);
    }
  });

  it('leaves nothing behind', () => {
    expect(readdirSync(join(base, 'outside'))).toEqual([]);
    expect(readdirSync(join(base, 'work'))).toEqual([]);
  });
});
