import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type BoundaryView, readDenial, splitArguments, unquote } from '../src/denials.js';
import { folder } from './inside.js';

const VIEW: BoundaryView = {
  places: [
    { path: '/tmp', kind: 'replaced' },
    { path: '/tmp/shown', kind: 'outside' },
    { path: '/work/tree', kind: 'writable' },
    { path: '/etc/shadow', kind: 'masked' },
    { path: '/root/.ssh', kind: 'masked' },
    { path: '/run', kind: 'masked' },
  ],
  binds: [],
  network: 'deny',
  listens: (pid, port) => pid === process.pid && port === 5432,
};

const TEXTS: Readonly<Record<string, string>> = {
  EROFS: 'Read-only file system',
  EACCES: 'Permission denied',
  EPERM: 'Operation not permitted',
  ENOENT: 'No such file or directory',
  ENOTTY: 'Inappropriate ioctl for device',
  EXDEV: 'Invalid cross-device link',
  ENETUNREACH: 'Network is unreachable',
  ECONNREFUSED: 'Connection refused',
  EINPROGRESS: 'Operation now in progress',
  EEXIST: 'File exists',
};

/** A line as strace 6.1 writes it. */
const line = (call: string, errno: string, pid = 12345, after = ''): string =>
  `${String(pid).padEnd(5)} 1767225600.250000 ${call} = -1 ${errno} (${TEXTS[errno] ?? 'Some text'})${after}`;

const read = (call: string, errno: string, view = VIEW, after = '') =>
  readDenial(line(call, errno, 999_999, after), view);

describe('a line of the log', () => {
  it('becomes a denial with all that it says', () => {
    expect(
      readDenial(line('openat(AT_FDCWD</work/tree>, "/etc/passwd", O_WRONLY|O_APPEND)', 'EROFS', 77), VIEW),
    ).toEqual({
      operation: 'write',
      syscall: 'openat',
      path: '/etc/passwd',
      passed: undefined,
      errno: 'EROFS',
      pid: 77,
      time: 1_767_225_600_250,
      class: 'file-system',
      naming: 'named',
      count: 1,
    });
  });

  it.each([
    ['openat(AT_FDCWD</work/tree>, "../x", O_WRONLY|O_CREAT, 0666)', 'EROFS', 'create', '/work/x'],
    ['openat(5</usr/share>, "new", O_RDWR|O_CREAT|O_EXCL, 0600)', 'EROFS', 'create', '/usr/share/new'],
    ['chmod("/etc/hosts", 0666)', 'EROFS', 'metadata', '/etc/hosts'],
    ['fchmod(3</etc/hosts>, 0666)', 'EROFS', 'metadata', '/etc/hosts'],
    ['utimensat(3</etc/hosts>, NULL, [UTIME_NOW, UTIME_NOW], 0)', 'EROFS', 'metadata', '/etc/hosts'],
    ['ioctl(3</etc/hosts>, FS_IOC_SETFLAGS, [FS_IMMUTABLE_FL])', 'EROFS', 'metadata', '/etc/hosts'],
    ['unlinkat(AT_FDCWD</>, "/etc/hosts", 0)', 'EROFS', 'delete', '/etc/hosts'],
    ['rename("/work/tree/a", "/etc/hosts")', 'EXDEV', 'rename', '/etc/hosts'],
    ['rename("/etc/hosts", "/work/tree/a")', 'EXDEV', 'rename', '/etc/hosts'],
    ['linkat(AT_FDCWD</>, "/etc/hosts", AT_FDCWD</>, "/work/tree/a", 0)', 'EXDEV', 'link', '/etc/hosts'],
    ['symlink("/etc/hosts", "/usr/a")', 'EROFS', 'create', '/usr/a'],
    ['openat(AT_FDCWD</>, "/etc/shadow", O_RDONLY)', 'EACCES', 'read', '/etc/shadow'],
    ['mount("none", "/mnt", "tmpfs", 0, NULL)', 'EPERM', 'mount', '/mnt'],
    ['openat(AT_FDCWD</>, "/etc/hosts", O_WRONLY)', 'EACCES', 'write', '/etc/hosts'],
    ['chmod("/tmp/shown/x", 0777)', 'EROFS', 'metadata', '/tmp/shown/x'],
    ['rename("/work/tree/a", "/tmp/shown/a")', 'EXDEV', 'rename', '/tmp/shown/a'],
  ])('%s: %s', (call, errno, operation, path) => {
    expect(read(call, errno)).toMatchObject({ operation, path, errno, naming: 'named' });
  });

  it.each([
    [
      'connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("10.1.2.3")}, 16)',
      'ENETUNREACH',
      'connect',
      '10.1.2.3:443',
    ],
    [
      'connect(3<socket:[1]>, {sa_family=AF_INET6, sin6_port=htons(53), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28)',
      'ENETUNREACH',
      'connect',
      '[2001:db8::1]:53',
    ],
    [
      'sendto(3<socket:[1]>, "x"..., 9, 0, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("9.9.9.9")}, 16)',
      'ENETUNREACH',
      'send',
      '9.9.9.9:53',
    ],
    [
      'sendmsg(3<socket:[1]>, {msg_name={sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("9.9.9.9")}, msg_namelen=16, msg_iov=[{iov_base="x"..., iov_len=9}], msg_iovlen=1, msg_controllen=0, msg_flags=0}, 0)',
      'ENETUNREACH',
      'send',
      '9.9.9.9:53',
    ],
    [
      'connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(5432), sin_addr=inet_addr("127.0.0.1")}, 16)',
      'ECONNREFUSED',
      'connect',
      '127.0.0.1:5432',
    ],
    [
      'connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(5432), sin_addr=inet_addr("127.0.0.1")}, 16)',
      'EINPROGRESS',
      'connect',
      '127.0.0.1:5432',
    ],
    [
      'connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path=@"/tmp/.X11-unix/X0"}, 20)',
      'ECONNREFUSED',
      'connect',
      'unix:@/tmp/.X11-unix/X0',
    ],
  ])('%s: %s', (call, errno, operation, address) => {
    expect(read(call, errno)).toMatchObject({ operation, address, errno, naming: 'named', class: 'network' });
  });

  it('is no denial where something failed by itself', () => {
    const misses: [string, string][] = [
      ['openat(AT_FDCWD</>, "/etc/nothing-here", O_RDONLY)', 'ENOENT'],
      ['openat(AT_FDCWD</>, "/run/nothing-here", O_RDONLY)', 'ENOENT'],
      ['openat(AT_FDCWD</>, "/tmp/nothing-here", O_RDONLY)', 'ENOENT'],
      ['execve("/usr/local/bin/nothing", ["nothing"], 0x7ffe /* 1 var */)', 'ENOENT'],
      ['mkdir("/etc", 0777)', 'EEXIST'],
      ['ioctl(1</dev/null>, TCGETS, 0x7ffe)', 'ENOTTY'],
      // Permissions of files of one's own are no boundary.
      ['openat(AT_FDCWD</>, "/work/tree/locked", O_WRONLY)', 'EACCES'],
      ['openat(AT_FDCWD</>, "/opt/private", O_RDONLY)', 'EACCES'],
      // Between mounts of one's own.
      ['rename("/tmp/a", "/work/tree/a")', 'EXDEV'],
      [
        'connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(1234), sin_addr=inet_addr("127.0.0.1")}, 16)',
        'ECONNREFUSED',
      ],
      [
        'connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("10.1.2.3")}, 16)',
        'EINPROGRESS',
      ],
      ['connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/run/nscd/socket"}, 110)', 'ENOENT'],
      // Of whoever makes the boundary.
      ['mount(NULL, "/newroot/mnt/late", NULL, MS_RDONLY|MS_REMOUNT|MS_BIND, NULL)', 'EPERM'],
    ];
    for (const [call, errno] of misses) expect(read(call, errno), call).toBeUndefined();
  });

  it('is one of the network only where the network is closed', () => {
    const call =
      'connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("10.1.2.3")}, 16)';
    expect(read(call, 'ENETUNREACH', { ...VIEW, network: 'allow' })).toBeUndefined();
  });

  it('names the class of what the filter refused', () => {
    const after = ' (INJECTED)';
    expect(read('io_uring_setup(8, 0x7ffe)', 'ENOSYS', VIEW, after)).toMatchObject({
      class: 'io_uring',
      naming: 'class',
      operation: 'kernel',
    });
    expect(read('keyctl(KEYCTL_READ, 1, NULL, 0)', 'EPERM', VIEW, after)).toMatchObject({
      class: 'keyring',
      naming: 'class',
    });
  });

  it('is nothing where it is nothing', () => {
    for (const text of [
      '',
      'strace: Process 7 attached',
      '77 1.0 +++ exited with 0 +++',
      '77 1.0 --- SIGCHLD {si_signo=SIGCHLD} ---',
      '77 1.0 open("/etc/x", O_WRONLY) = 3',
    ]) {
      expect(readDenial(text, VIEW)).toBeUndefined();
    }
  });
});

describe('where a path leads', () => {
  it('is said with links followed, dangling ones too', () => {
    const place = folder();
    mkdirSync(join(place, 'outside'));
    writeFileSync(join(place, 'outside', 'file'), '');
    symlinkSync(join(place, 'outside'), join(place, 'folder-link'));
    symlinkSync('outside/file', join(place, 'file-link'));
    symlinkSync('outside/not-yet', join(place, 'dangling'));
    symlinkSync('b', join(place, 'a'));
    symlinkSync('a', join(place, 'b'));
    const named = (path: string) =>
      read(`openat(AT_FDCWD</>, "${path}", O_WRONLY|O_CREAT, 0666)`, 'EROFS', {
        ...VIEW,
        places: [],
      });
    expect(named(join(place, 'folder-link/file'))).toMatchObject({
      path: join(place, 'outside/file'),
      passed: join(place, 'folder-link/file'),
    });
    expect(named(join(place, 'file-link'))).toMatchObject({ path: join(place, 'outside/file') });
    expect(named(join(place, 'dangling'))).toMatchObject({ path: join(place, 'outside/not-yet') });
    expect(named(join(place, 'folder-link/../x'))).toMatchObject({ path: join(place, 'x') });
    expect(named(`/proc/self/root${place}/outside/file`)).toMatchObject({
      path: join(place, 'outside/file'),
    });
    expect(named(join(place, 'a'))?.path).toMatch(/[ab]$/);
  });

  it('is said by the name it has inside', () => {
    const scratch = folder();
    writeFileSync(join(scratch, 'file'), '');
    const view = { ...VIEW, places: [], binds: [{ from: scratch, to: '/nowhere/ws' }] };
    expect(read('chmod("/nowhere/ws/file", 0777)', 'EROFS', view)).toMatchObject({
      path: '/nowhere/ws/file',
      passed: undefined,
    });
    expect(read('chmod("/nowhere/ws/../no", 0777)', 'EROFS', view)).toMatchObject({ path: '/nowhere/no' });
  });
});

describe('text of the traced', () => {
  /** As strace quotes: everything that is not plain ASCII in octal, shortest where no digit follows. */
  const quote = (bytes: Buffer): string => {
    let text = '';
    for (const [at, byte] of bytes.entries()) {
      const named = { 9: 't', 10: 'n', 11: 'v', 12: 'f', 13: 'r', 34: '"', 92: '\\' }[byte];
      const next = bytes[at + 1];
      const digit = next !== undefined && next >= 48 && next <= 57;
      if (named !== undefined) text += `\\${named}`;
      else if (byte >= 32 && byte < 127) text += String.fromCharCode(byte);
      else text += `\\${byte.toString(8).padStart(digit ? 3 : 0, '0')}`;
    }
    return `"${text}"`;
  };

  it('is read back', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (text) => {
        expect(unquote(quote(Buffer.from(text)))).toBe(Buffer.from(text).toString('utf8'));
      }),
    );
  });

  it('never becomes another argument, nor another line', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.string({
            unit: fc.constantFrom('a', ',', '"', '\\', '<', '>', '(', ')', '{', '[', '\n', ' ', '='),
            maxLength: 20,
          }),
          { minLength: 1, maxLength: 4 },
        ),
        (texts) => {
          const quoted = texts.map((text) => quote(Buffer.from(text)));
          expect(quoted.join('')).not.toContain('\n');
          expect(splitArguments(quoted.join(', ')).map(unquote)).toEqual(texts);
        },
      ),
    );
  });

  it('can not pass for what strace says', () => {
    const evil =
      '/work/tree/x", O_RDONLY) = -1 EROFS (Read-only file system)\n77 1.0 chmod("/etc/shadow", 0777';
    const denial = read(`openat(AT_FDCWD</>, ${quote(Buffer.from(evil))}, O_WRONLY|O_CREAT, 0666)`, 'EROFS');
    expect(denial).toMatchObject({ syscall: 'openat', passed: undefined, path: evil });
  });
});
