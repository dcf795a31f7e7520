import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { readConfigFile, replaceConfigFile } from '../src/config-file.js';
import { configPlaces } from '../src/config-places.js';
import { unifiedDiff } from '../src/text-diff.js';
import { belay, type Ran } from './command.js';

const scratch = mkdtempSync(join(tmpdir(), 'belay-wrap-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

let home = '';
let number = 0;
beforeEach(() => {
  home = join(scratch, String(number++));
  mkdirSync(home);
  for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'CLAUDE_CONFIG_DIR', 'BELAY_STATE'])
    vi.stubEnv(name, '');
  vi.stubEnv('HOME', home);
});
afterEach(() => vi.unstubAllEnvs());

const ORIGINAL = Buffer.from(
  '\ufeff{\r\n  // team\r\n  "mcpServers": {\r\n    "files": {\r\n      "command": "npx",\r\n      "args": ["-y", "server-filesystem", "/w",],\r\n' +
    '      "env": { "TOKEN": "s3cret" }\r\n    },\r\n    "memory": { "command": "server-memory" },\r\n' +
    '    "docs": { "type": "http", "url": "https://mcp.example/" },\r\n  },\r\n}',
);

function write(path: string, content: string | Buffer = ORIGINAL, mode = 0o644): string {
  const file = join(home, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, content);
  chmodSync(file, mode);
  return file;
}

interface Report {
  files: {
    file: string;
    changed: boolean;
    restored?: string;
    servers: { server: string; outcome: string }[];
  }[];
  warnings: string[];
}
const outcomes = (ran: Ran): Record<string, string>[] =>
  (ran.json as Report).files.map(({ servers }) =>
    Object.fromEntries(servers.map(({ server, outcome }) => [server, outcome])),
  );
const recordsLeft = (): string[] => {
  const folder = join(home, '.local/state/belay/wraps');
  return existsSync(folder) ? readdirSync(folder) : [];
};

describe('belay wrap, then unwrap', () => {
  it('gives back every byte, over two sessions with one and the same file', async () => {
    const file = write('.mcp.json', ORIGINAL, 0o640);
    const wrapped = await belay('wrap', file, '--json');
    expect(wrapped.code).toBe(0);
    expect(outcomes(wrapped)).toEqual([{ files: 'wrapped', memory: 'wrapped', docs: 'remote' }]);
    const first = readFileSync(file, 'utf8');
    expect(first).toContain('"proxy", "--sink", "proxy", "--", "npx", "-y", "server-filesystem", "/w",]');
    expect(first).toContain(JSON.stringify(process.execPath));
    expect(statSync(file).mode & 0o777).toBe(0o640);

    // The next day: the same file serves, and wrapping again changes nothing.
    const again = await belay('wrap', file, '--json');
    expect(outcomes(again)).toEqual([{ files: 'already', memory: 'already', docs: 'remote' }]);
    expect(readFileSync(file, 'utf8')).toBe(first);

    const unwrapped = await belay('unwrap', file, '--json');
    expect(unwrapped.json).toMatchObject({ files: [{ changed: true, restored: 'exact' }] });
    expect(readFileSync(file)).toEqual(ORIGINAL);
    expect(statSync(file).mode & 0o777).toBe(0o640);
    expect(recordsLeft()).toEqual([]);
    expect(await belay('unwrap', file, '--json')).toMatchObject({
      code: 0,
      json: { files: [{ changed: false }] },
    });
  });

  it('undoes only its own edits when something else was changed', async () => {
    const file = write('mcp.json');
    await belay('wrap', file);
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace('s3cret', 'other').replace('"/w",]', '"/w", "/x"]'),
    );
    const { json } = await belay('unwrap', file, '--json');
    expect(json).toMatchObject({ files: [{ restored: 'edits' }] });
    expect(readFileSync(file, 'utf8')).toBe(
      ORIGINAL.toString('utf8').replace('s3cret', 'other').replace('"/w",]', '"/w", "/x"]'),
    );
  });

  it('wraps what came later, and still knows the whole original', async () => {
    const file = write('mcp.json', '{"mcpServers": {"a": {"command": "x"}}}');
    await belay('wrap', file);
    const later = readFileSync(file, 'utf8').replace('}}}', '}, "b": {"command": "y"}}}');
    writeFileSync(file, later);
    expect(outcomes(await belay('wrap', file, '--json'))).toEqual([{ a: 'already', b: 'wrapped' }]);
    await belay('unwrap', file);
    expect(readFileSync(file, 'utf8')).toBe('{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}');
  });

  it('one server at a time', async () => {
    const file = write('mcp.json');
    expect(outcomes(await belay('wrap', file, '--server', 'memory', '--json'))).toEqual([
      { memory: 'wrapped' },
    ]);
    await belay('wrap', file);
    expect(await belay('unwrap', file, '--server', 'memory', '--json')).toMatchObject({ code: 0 });
    expect(readFileSync(file, 'utf8')).toContain('"memory": { "command": "server-memory" }');
    expect(readFileSync(file, 'utf8')).toContain('"--", "npx"');
    expect(recordsLeft()).toHaveLength(1);
    await belay('unwrap', file);
    expect(readFileSync(file)).toEqual(ORIGINAL);
    expect(recordsLeft()).toEqual([]);
  });

  it('leaves alone what somebody put behind belay by hand, and says so', async () => {
    const file = write(
      'mcp.json',
      '{"mcpServers": {"a": {"command": "npx", "args": ["belay", "proxy", "--", "x", "1"]}}}',
    );
    const before = readFileSync(file, 'utf8');
    expect(outcomes(await belay('wrap', file, '--json'))).toEqual([{ a: 'already' }]);
    const left = await belay('unwrap', file, '--json');
    expect(left.code).toBe(1);
    expect(outcomes(left)).toEqual([{ a: 'not_ours' }]);
    expect(readFileSync(file, 'utf8')).toBe(before);
    expect(await belay('unwrap', file, '--force')).toMatchObject({ code: 0 });
    expect(readFileSync(file, 'utf8')).toBe('{"mcpServers": {"a": {"command": "x", "args": ["1"]}}}');
  });

  it('--dry-run prints the difference and writes nothing', async () => {
    const file = write('mcp.json');
    const { code, stdout } = await belay('wrap', file, '--dry-run');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^-\s+"command": "npx",␍$/m);
    expect(stdout).toMatch(/^\+\s+"command": ".*node.*",␍$/m);
    expect(readFileSync(file)).toEqual(ORIGINAL);
    expect(recordsLeft()).toEqual([]);
    await belay('wrap', file);
    const wrapped = readFileSync(file);
    expect((await belay('unwrap', file, '--dry-run')).stdout).toMatch(/^\+\s+"command": "npx",␍$/m);
    expect(readFileSync(file)).toEqual(wrapped);
  });

  it('keeps a symbolic link, and its target is what changes', async () => {
    const target = write('dotfiles/mcp.json');
    const link = join(home, 'mcp.json');
    symlinkSync(target, link);
    await belay('wrap', link);
    expect(lstatSync(link).isSymbolicLink()).toBe(true);
    expect(readFileSync(target, 'utf8')).toContain('"proxy"');
    await belay('unwrap', target);
    expect(readFileSync(link)).toEqual(ORIGINAL);
    expect(readdirSync(join(home, 'dotfiles'))).toEqual(['mcp.json']);
  });

  it('keeps what it remembers to itself: the file may hold secrets', async () => {
    const file = write('mcp.json');
    await belay('wrap', file);
    const folder = join(home, '.local/state/belay/wraps');
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    for (const name of readdirSync(folder)) expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
  });

  it('names sinks after servers when asked to, and writes no path for a file that is shared', async () => {
    const file = write('mcp.json', '{"mcpServers": {"my files!": {"command": "x"}, "ä": {"command": "y"}}}');
    await belay('wrap', file, '--sink', 'mcp-{server}', '--by-name');
    expect(readFileSync(file, 'utf8')).toBe(
      '{"mcpServers": {"my files!": {"command": "belay", "args": ["proxy", "--sink", "mcp-my-files-", "--", "x"]}, ' +
        '"ä": {"command": "belay", "args": ["proxy", "--sink", "mcp-server", "--", "y"]}}}',
    );
  });

  it('proxies keep their state where --state says', async () => {
    const file = write('mcp.json', '{"mcpServers": {"a": {"command": "x"}}}');
    const state = join(home, 'elsewhere');
    await belay('wrap', file, '--state', state, '--by-name');
    expect(readFileSync(file, 'utf8')).toContain(`"--state", ${JSON.stringify(state)}, "--", "x"]`);
    await belay('unwrap', file, '--state', state);
    expect(readFileSync(file, 'utf8')).toBe('{"mcpServers": {"a": {"command": "x"}}}');
  });
});

describe('every client', () => {
  const servers = '{"a": {"command": "x", "args": ["1"]}}';
  it.each([
    [
      'claude-code',
      '.claude.json',
      `{"numStartups": 3, "mcpServers": ${servers}, "projects": {"/w/app": {"mcpServers": ${servers}}}}`,
      { a: 'wrapped', 'a (/w/app)': 'wrapped' },
    ],
    [
      'claude-desktop',
      '.config/Claude/claude_desktop_config.json',
      `{"mcpServers": ${servers}}`,
      { a: 'wrapped' },
    ],
    ['cursor', '.cursor/mcp.json', `{"mcpServers": ${servers}}`, { a: 'wrapped' }],
    ['vscode', '.config/Code/User/mcp.json', `{"inputs": [], "servers": ${servers}}`, { a: 'wrapped' }],
  ])('%s', async (client, path, content, expected) => {
    const file = write(path, content);
    const ran = await belay('wrap', '--client', client, '--json');
    expect(outcomes(ran)).toEqual([expected]);
    expect(await belay('wrap', '--list', '--json')).toMatchObject({
      json: {
        files: [
          {
            file,
            servers: [
              { outcome: 'wrapped' },
              ...Object.keys(expected)
                .slice(1)
                .map(() => ({})),
            ],
          },
        ],
      },
    });
    expect(await belay('unwrap', '--all')).toMatchObject({ code: 0 });
    expect(readFileSync(file, 'utf8')).toBe(content);
  });

  it.each([
    ['darwin', '/Users/a/Library/Application Support/Claude/claude_desktop_config.json'],
    ['linux', '/Users/a/.config/Claude/claude_desktop_config.json'],
    ['win32', 'C:\\Users\\a\\AppData\\Roaming\\Claude\\claude_desktop_config.json'],
  ] as const)('on %s', (platform, expected) => {
    const places = configPlaces({
      platform,
      home: platform === 'win32' ? 'C:\\Users\\a' : '/Users/a',
      cwd: platform === 'win32' ? 'C:\\w' : '/w',
      environment: {},
    });
    expect(places.find(({ client }) => client === 'claude-desktop')?.path).toBe(expected);
    expect(places.map(({ path }) => path)).toContain(
      platform === 'win32' ? 'C:\\w\\.vscode\\mcp.json' : '/w/.vscode/mcp.json',
    );
  });
});

describe('what can not be done is said', () => {
  it.each([
    ['no file named', () => ['wrap'], 64, 'usage'],
    ['two ways of naming', () => ['wrap', 'x', '--all'], 64, 'usage'],
    ['an unknown client', () => ['wrap', '--client', 'x'], 64, 'usage'],
    ['a bad sink', () => ['wrap', write('a.json'), '--sink', 'a b'], 64, 'usage'],
    ['a missing file', () => ['wrap', 'nowhere.json'], 65, 'enoent'],
    ['a client without a file', () => ['wrap', '--client', 'cursor'], 65, 'no_config'],
    ['no JSON', () => ['wrap', write('b.json', '{"a"')], 65, 'not_json'],
    ['not UTF-8', () => ['wrap', write('c.json', Buffer.from([0x7b, 0xff, 0x7d]))], 65, 'not_utf8'],
    ['no servers', () => ['wrap', write('d.json', '{}')], 65, 'no_servers'],
    ['an unknown server', () => ['wrap', write('e.json'), '--server', 'x'], 65, 'no_server'],
  ])('%s', async (_title, args, code, word) => {
    expect(await belay(...args(), '--json')).toMatchObject({ code, json: { error: { code: word } } });
    expect(recordsLeft()).toEqual([]);
  });

  it('lists the configurations that were found', async () => {
    const file = write('.cursor/mcp.json');
    const { stderr } = await belay('wrap');
    expect(stderr).toContain(file);
  });

  it('does not write over what its client wrote meanwhile', async () => {
    const path = write('mcp.json', '{"a": 1}');
    const file = await readConfigFile(path);
    if (file === undefined) throw new Error('not there');
    writeFileSync(path, '{"a": 2}');
    expect(await replaceConfigFile(file, '{}')).toBe(false);
    expect(readFileSync(path, 'utf8')).toBe('{"a": 2}');
    expect(readdirSync(home)).toEqual(['mcp.json']);
  });

  it('foreign text can not write to the terminal', async () => {
    const file = write('mcp.json', '{"mcpServers": {"a\\u001b[2J": {"command": "x"}}}');
    expect((await belay('wrap', file, '--dry-run')).stdout).not.toContain('\u001b[2J');
    expect((await belay('wrap', file)).stdout).toContain('a\\u001b[2J');
  });
});

describe('the difference of two texts', () => {
  it.each([
    ['nothing', 'a\n', 'a\n', ''],
    ['one line', 'a\nb\nc\n', 'a\nB\nc\n', '@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n'],
    ['added', '', 'a\n', '@@ -0,0 +1,1 @@\n+a\n'],
    ['a missing line end', 'a', 'a\n', '@@ -1,1 +1,1 @@\n-a (no line end)\n+a\n'],
    [
      'two far apart',
      '1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n',
      '1\nX\n3\n4\n5\n6\n7\n8\n9\nY\n',
      '@@ -1,5 +1,5 @@\n 1\n-2\n+X\n 3\n 4\n 5\n@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-10\n+Y\n',
    ],
    ['moved', 'a\nb\nc\n', 'b\nc\na\n', '@@ -1,3 +1,3 @@\n-a\n b\n c\n+a\n'],
  ])('%s', (_title, before, after, hunks) => {
    expect(unifiedDiff('f', before, after)).toBe(hunks === '' ? '' : `--- f\n+++ f\n${hunks}`);
  });
});
