/** Capture and restore, tried with a program that changes a workspace from inside a boundary. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { prepare, type SandboxHost, type SandboxPolicy } from '@belay/sandbox';
import { Capturer, type Captured, diffStates, restore, Store } from '@belay/snapshot';

export interface SnapshotRow {
  readonly row: string;
  readonly what: string;
  readonly works: boolean;
  readonly because: string;
}

export interface SnapshotTrialOptions {
  readonly policy: SandboxPolicy;
  readonly host: SandboxHost;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** One of the policy's roots. */
  readonly workspace: string;
  readonly signal: AbortSignal;
}

/** What the program does, and what has to be seen of it. Its rewrite keeps size and time. */
const PROGRAM = `
printf 'and more' >> grown
printf 'B' > rewritten.new && touch -r rewritten rewritten.new && cat rewritten.new > rewritten
touch -r rewritten.new rewritten && rm rewritten.new
chmod 600 modes
rm gone
mkdir -p made/deep && printf x > made/deep/file
mv moved elsewhere
ln -sfn grown link
`;
const EXPECTED: readonly string[] = [
  'created elsewhere',
  'created made',
  'created made/deep',
  'created made/deep/file',
  'deleted gone',
  'deleted moved',
  'metadata modes',
  'modified grown',
  'modified link',
  'modified other name',
  'modified rewritten',
];

/** Takes a second or less; whatever it makes is gone afterwards. Throws SandboxError where the boundary can't be had. */
export async function trySnapshot(options: SnapshotTrialOptions): Promise<readonly SnapshotRow[]> {
  const folder = mkdtempSync(join(options.workspace, '.belay-probe-'));
  const scratch = mkdtempSync(join(tmpdir(), 'belay-probe-'));
  const rows: SnapshotRow[] = [];
  const row = (name: string, what: string, works: boolean, because: string): boolean => {
    rows.push({ row: `snapshot-${name}`, what, works, because });
    return works;
  };
  try {
    plant(folder);
    const store = Store.open(join(scratch, 'store'));
    const capturer = Capturer.open({ store, roots: [folder] });
    try {
      const first = capturer.capture();
      if (!row('capture', 'capture a workspace', first.kind === 'state', nameOf(first))) return rows;
      const again = capturer.capture();
      row('quiet', 'the same workspace is the same state', sameState(first, again), nameOf(again));
      await runInside(options, folder);
      const second = capturer.capture();
      if (first.kind !== 'state' || second.kind !== 'state') {
        row('effects', 'what a program did is seen, path by path', false, nameOf(second));
        return rows;
      }
      const seen = diffStates(store, first.digest, second.digest)
        .flatMap(({ differences }) => differences)
        // Folders have new times wherever something was made or removed in them.
        .filter(({ what, after }) => !(what === 'metadata' && after?.type === 'dir'))
        .map(({ what, path }) => `${what} ${path.toString()}`)
        .sort();
      const missing = EXPECTED.filter((each) => !seen.includes(each));
      const extra = seen.filter((each) => !EXPECTED.includes(each));
      const unlike = [...missing.map((each) => `not seen: ${each}`), ...extra.map((each) => `seen: ${each}`)];
      row(
        'effects',
        'what a program did is seen, path by path',
        unlike.length === 0,
        unlike.join(', ') || `${seen.length} of ${EXPECTED.length}`,
      );
      const before = lookOf(folder);
      const restored = await restore(store, second.digest, join(scratch, 'second'));
      const copy = lookOf(join(scratch, 'second'));
      const gaps = restored.gaps.map(({ gap }) => gap).join(', ');
      row(
        'restore',
        'restore it: names, content, modes, links, times to the nanosecond',
        copy === before,
        gaps === '' ? differenceOf(before, copy) : `gaps: ${gaps}`,
      );
      await restore(store, first.digest, join(scratch, 'first'));
      const original = readFileSync(join(scratch, 'first', 'rewritten'), 'utf8');
      row('earlier', 'restore what it was before', original === 'A', `the file says ${original}`);
      row('untouched', 'the workspace is left alone', lookOf(folder) === before, 'compared before and after');
    } finally {
      capturer.close();
      store.close();
    }
    return rows;
  } finally {
    for (const made of [folder, scratch]) {
      chmodSync(made, 0o700);
      rmSync(made, { recursive: true, force: true });
    }
  }
}

/** Something of every kind that a workspace has. */
function plant(folder: string): void {
  const at = (...names: string[]): string => join(folder, ...names);
  for (const [name, content] of Object.entries({
    grown: 'some ',
    rewritten: 'A',
    modes: '',
    gone: '',
    moved: 'm',
  }))
    writeFileSync(at(name), content);
  writeFileSync(at('setuid'), '');
  chmodSync(at('setuid'), 0o4755);
  mkdirSync(at('empty'));
  mkdirSync(at('open'), { mode: 0o700 });
  symlinkSync('rewritten', at('link'));
  symlinkSync('nowhere', at('dangling'));
  linkSync(at('grown'), at('other name'));
  for (const name of ['new\nline', '\u{1f980}', 'n'.repeat(255)]) writeFileSync(at(name), name);
  writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0xff, 0xfe])]), 'no text');
}

async function runInside({ policy, host, env, signal }: SnapshotTrialOptions, folder: string): Promise<void> {
  const prepared = await prepare(policy, { argv: ['/bin/sh', '-ec', PROGRAM], cwd: folder, env }, host);
  try {
    const [program, ...args] = prepared.argv;
    const child = spawn(program, args, {
      cwd: prepared.cwd,
      env: prepared.env,
      stdio: ['pipe', 'pipe', 'pipe', ...prepared.fds],
      detached: true,
      signal,
    });
    prepared.started(child.pid);
    child.stdin?.end();
    child.stdout?.resume();
    child.stderr?.resume();
    if (child.pid !== undefined) await once(child, 'exit');
  } finally {
    await prepared.dispose();
  }
}

const sameState = (a: Captured, b: Captured): boolean =>
  a.kind === 'state' && b.kind === 'state' && a.digest === b.digest;

const nameOf = (captured: Captured): string =>
  captured.kind === 'state'
    ? `${captured.entries} entries, ${captured.rehashed} read`
    : `${captured.cause}: ${captured.detail}`;

/** A tree as plain calls see it: a second opinion. */
function lookOf(folder: string): string {
  const lines: string[] = [];
  const groups = new Map<bigint, number>();
  const visit = (path: Buffer, relative: Buffer): void => {
    const { mode, uid, gid, mtimeNs, nlink, ino } = lstatSync(path, { bigint: true });
    const type = Number(mode) & 0o170000;
    const content =
      type === 0o100000
        ? readFileSync(path)
        : type === 0o120000
          ? readlinkSync(path, { encoding: 'buffer' })
          : '';
    if (nlink > 1n && type === 0o100000 && !groups.has(ino)) groups.set(ino, groups.size);
    lines.push(
      [
        relative.toString('hex'),
        mode,
        uid,
        gid,
        mtimeNs,
        groups.get(ino) ?? '',
        Buffer.from(content).toString('hex'),
      ].join(' '),
    );
    if (type !== 0o040000) return;
    for (const name of readdirSync(path, { encoding: 'buffer' }).sort((a, b) => a.compare(b))) {
      const slash = Buffer.from('/');
      visit(Buffer.concat([path, slash, name]), Buffer.concat([relative, slash, name]));
    }
  };
  // The folder itself is made anew by whoever restores into it, with the mode of the one that was captured.
  visit(Buffer.from(folder), Buffer.alloc(0));
  return lines.join('\n');
}

function differenceOf(a: string, b: string): string {
  const other = new Set(b.split('\n'));
  const missing = a.split('\n').filter((line) => !other.has(line));
  if (missing.length === 0) return 'as it was';
  return `differs at ${missing.map((line) => Buffer.from(line.split(' ')[0] ?? '', 'hex').toString()).join(', ')}`;
}
