import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { innerEnvironment, splitEnvironment } from '../src/environment.js';
import { hiddenPaths, within } from '../src/hidden.js';
import { throughBinds } from '../src/bwrap.js';
import { closeFolders, mountArguments, type MountWishes } from '../src/mounts.js';
import { listeningPaths } from '../src/unix-sockets.js';
import { folder } from './inside.js';

const NOTHING: MountWishes = {
  roots: [],
  binds: [],
  hidden: [],
  fresh: [],
  empty: [],
  closed: [],
  growing: [],
  shown: [],
  lent: [],
};
const mounts = (wishes: Partial<MountWishes>): string[] => mountArguments({ ...NOTHING, ...wishes });
/** Where an argument stands. */
const at = (args: readonly string[], ...words: string[]): number =>
  args.findIndex((_, index) => words.every((word, offset) => args[index + offset] === word));

describe('mounts', () => {
  it('are made from the root down, whatever order they were wished in', () => {
    const args = mounts({
      roots: ['/srv/state/scratch', '/tmp/ws'],
      fresh: ['/tmp'],
      hidden: [
        { path: '/srv/state', folder: true },
        { path: '/tmp/ws/evidence', folder: true },
        { path: '/tmp/ws/key', folder: false },
      ],
    });
    const [base, tmp, ws, evidence, state, scratch] = [
      at(args, '--ro-bind', '/', '/'),
      at(args, '--tmpfs', '/tmp'),
      at(args, '--bind', '/tmp/ws', '/tmp/ws'),
      at(args, '--tmpfs', '/tmp/ws/evidence'),
      at(args, '--tmpfs', '/srv/state'),
      at(args, '--bind', '/srv/state/scratch', '/srv/state/scratch'),
    ];
    for (const order of [
      [base, tmp, ws, evidence],
      [base, state, scratch],
    ]) {
      expect(order.every((index) => index >= 0)).toBe(true);
      expect(order).toEqual([...order].sort((a, b) => a - b));
    }
    expect(at(args, '--ro-bind', '/dev/null', '/tmp/ws/key')).toBeGreaterThan(ws);
    // Sealed when everything in it has its place.
    expect(at(args, '--remount-ro', '/srv/state')).toBeGreaterThan(scratch);
  });

  it('hide what is also a root', () => {
    const args = mounts({ roots: ['/w'], hidden: [{ path: '/w', folder: true }] });
    expect(at(args, '--tmpfs', '/w')).toBeGreaterThan(at(args, '--bind', '/w', '/w'));
  });

  it('rebuild the nearest folder that exists, entry by entry, links as links', () => {
    const place = folder();
    mkdirSync(join(place, 'kept'));
    writeFileSync(join(place, 'file'), '');
    symlinkSync('kept', join(place, 'link'));
    const args = mounts({ binds: [{ from: '/s', to: join(place, 'new', 'deep') }] });
    expect(at(args, '--tmpfs', place)).toBeGreaterThan(0);
    expect(at(args, '--ro-bind-try', join(place, 'kept'), join(place, 'kept'))).toBeGreaterThan(
      at(args, '--tmpfs', place),
    );
    expect(at(args, '--symlink', 'kept', join(place, 'link'))).toBeGreaterThan(0);
    expect(at(args, '--bind', '/s', join(place, 'new', 'deep'))).toBeGreaterThan(0);
    expect(args.slice(-2)).toEqual(['--remount-ro', place]);
  });

  it('are refused where a folder has too many entries for that', () => {
    const place = folder();
    for (let index = 0; index < 1_100; index++) writeFileSync(join(place, String(index)), '');
    expect(() => mounts({ binds: [{ from: '/s', to: join(place, 'new') }] })).toThrow(
      expect.objectContaining({ code: 'NOT_SUPPORTED' }),
    );
  });
});

describe('what is hidden', () => {
  it('is what exists, by its real path, without what is to be shown', () => {
    const home = folder();
    mkdirSync(join(home, 'elsewhere'));
    symlinkSync('elsewhere', join(home, '.ssh'));
    mkdirSync(join(home, '.aws'));
    writeFileSync(join(home, '.netrc'), '');
    const own = join(home, 'own');
    writeFileSync(own, '');
    const hidden = hiddenPaths(home, false, [own, join(home, 'not-there')], [join(home, '.aws')]);
    const here = hidden.filter(({ path }) => within(path, home));
    expect(here).toEqual([
      { path: join(home, '.netrc'), folder: false },
      { path: join(home, 'elsewhere'), folder: true },
      { path: own, folder: false },
    ]);
  });

  it('is told from what only begins alike', () => {
    expect(within('/a/b', '/a')).toBe(true);
    expect(within('/a', '/a')).toBe(true);
    expect(within('/ab', '/a')).toBe(false);
    expect(within('/a', '/')).toBe(true);
  });
});

it('sockets that take what others send are found in the kernel table', () => {
  const table = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01    16 /run/docker.sock
0000000000000000: 00000002 00000000 00010000 0005 01    17 /run/udev/control
0000000000000000: 00000002 00000000 00000000 0002 01    18 /run/systemd/journal/dev-log
0000000000000000: 00000003 00000000 00000000 0001 03    19 /run/dbus/system_bus_socket
0000000000000000: 00000002 00000000 00010000 0001 01    20 @/tmp/.X11-unix/X0
0000000000000000: 00000002 00000000 00010000 0001 01 12345678 /home/ann/a b.sock
0000000000000000: 00000003 00000000 00000000 0001 03    21
`;
  expect(listeningPaths(table)).toEqual([
    '/home/ann/a b.sock',
    '/run/docker.sock',
    '/run/systemd/journal/dev-log',
    '/run/udev/control',
  ]);
});

describe('the environment', () => {
  it('is passed whole, but for places that are not there any more', () => {
    const { env, changed } = innerEnvironment(
      {
        PATH: '/bin',
        TOKEN: 's',
        TMPDIR: '/var/folders/x',
        UV_CACHE_DIR: '/w/cache',
        EMPTY: '',
        NONE: undefined,
      },
      ['/w'],
    );
    expect(env).toMatchObject({
      PATH: '/bin',
      TOKEN: 's',
      TMPDIR: '/tmp',
      UV_CACHE_DIR: '/w/cache',
      EMPTY: '',
    });
    expect('NONE' in env).toBe(false);
    expect(changed).toContain('TMPDIR');
    expect(changed).not.toContain('UV_CACHE_DIR');
  });

  it('keeps from programs outside what loaders obey', () => {
    const { outer, inner } = splitEnvironment({
      PATH: '/bin',
      LD_PRELOAD: '/w/evil.so',
      NODE_OPTIONS: '-r /w/evil.js',
      NODE_AUTH_TOKEN: 's',
      BASH_ENV: '/w/x',
      OPENSSL_CONF: '/w/x',
    });
    expect(outer).toEqual({ PATH: '/bin', NODE_AUTH_TOKEN: 's' });
    expect(inner.map(([name]) => name)).toEqual(['LD_PRELOAD', 'NODE_OPTIONS', 'BASH_ENV', 'OPENSSL_CONF']);
  });
});

describe('hidden files that may be replaced', () => {
  it('are hidden in a folder that is rebuilt without them', () => {
    const base = folder();
    for (const name of ['token', 'other']) writeFileSync(join(base, name), name);
    mkdirSync(join(base, 'sub'));
    symlinkSync('other', join(base, 'link'));
    const token = { path: join(base, 'token'), folder: false };
    const { closed, open } = closeFolders([token], NOTHING);
    expect({ closed, open }).toEqual({ closed: [base], open: [] });
    const args = mounts({ hidden: [token], closed });
    const rebuilt = at(args, '--tmpfs', base);
    for (const words of [
      ['--ro-bind-try', join(base, 'other'), join(base, 'other')],
      ['--ro-bind-try', join(base, 'sub'), join(base, 'sub')],
      ['--symlink', 'other', join(base, 'link')],
      ['--ro-bind', '/dev/null', token.path],
      ['--remount-ro', base],
    ])
      expect(at(args, ...words), words.join(' ')).toBeGreaterThan(rebuilt);
    // The mask is on a file of the rebuilt folder, not on the one that is hidden.
    expect(at(args, '--ro-bind-try', token.path)).toBe(-1);
    expect(rebuilt).toBeGreaterThan(-1);
  });

  it('are named where that can not be', () => {
    const base = folder();
    mkdirSync(join(base, 'large'));
    for (let n = 0; n < 129; n++) writeFileSync(join(base, 'large', String(n)), '');
    const files = ['/etc/shadow', '/top', join(base, 'root', '.env'), join(base, 'large', '7')];
    const hidden = files.map((path) => ({ path, folder: false }));
    const roots = [join(base, 'root')];
    expect(closeFolders(hidden, { ...NOTHING, roots })).toEqual({ closed: [], open: files });
  });

  it('need nothing in a hidden folder', () => {
    const hidden = [
      { path: '/srv/keys', folder: true },
      { path: '/srv/keys/one', folder: false },
    ];
    expect(closeFolders(hidden, NOTHING)).toEqual({ closed: [], open: [] });
  });
});

describe('what is hidden in a folder that is bound elsewhere', () => {
  it('is hidden there, too', () => {
    const base = folder();
    const hidden = [
      { path: join(base, 'keys', 'one'), folder: false },
      { path: base, folder: true },
      { path: '/elsewhere', folder: true },
    ];
    expect(throughBinds(hidden, { binds: [{ from: base, to: '/srv/copy' }] })).toEqual([
      { path: '/srv/copy/keys/one', folder: false },
    ]);
    expect(throughBinds(hidden, { binds: [{ from: base, to: base }] })).toEqual([]);
  });
});
