import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { BELAY, tracesIn } from './proxied.js';
import { forged, HOME, type Loose, RecordedSession, reworded, verified, words } from './session.js';

const TEST = 'from m import f\n\n\ndef test_f():\n    assert f(1) == 2\n    assert f(2) == 3\n';
const GUTTED = 'from m import f\n\n\ndef test_f():\n    assert f(1) == 2\n';

const files = (workspace: string): void => {
  mkdirSync(join(workspace, 'tests'));
  writeFileSync(join(workspace, 'tests', 'test_m.py'), TEST);
  writeFileSync(join(workspace, 'a.txt'), 'alpha\n');
};

describe('what lies outside of every turn', () => {
  test('a test that is weakened before the first call', async () => {
    const session = await RecordedSession.start(files);
    const [trace] = tracesIn(join(session.folder, 'state', 'traces')) as [string];
    await expect.poll(() => readFileSync(trace, 'utf8'), { timeout: 10_000 }).toContain('"phase":"open"');
    writeFileSync(join(session.workspace, 'tests', 'test_m.py'), GUTTED);
    await session.call('plain');
    const found = await verified(await session.end());
    expect(words(found)).toEqual(['drift: FAIL INVARIANT_BROKEN', 'PASS', 'session: FAIL INVARIANT_BROKEN']);
    expect(found.parts[0]).toMatchObject({ type: 'drift', before: 1 });
  });

  test('one that is weakened after the last call', async () => {
    const session = await RecordedSession.start(files);
    await session.call('plain');
    writeFileSync(join(session.workspace, 'tests', 'test_m.py'), GUTTED);
    const found = await verified(await session.end());
    expect(words(found)).toEqual(['PASS', 'drift: FAIL INVARIANT_BROKEN', 'session: FAIL INVARIANT_BROKEN']);
    expect(found.parts[1]).not.toHaveProperty('before');
  });
});

describe('a reader that writes', () => {
  test('while another reader reads', async () => {
    const session = await RecordedSession.start(files);
    await Promise.all([
      session.call('read', { path: 'a.txt', ms: 200 }),
      session.call('liar', { path: 'a.txt' }),
    ]);
    expect(words(await verified(await session.end()))).toContain('FAIL WROTE_THOUGH_READ_ONLY');
  });

  test('and whose promise is taken out of the record, or made twice', async () => {
    const session = await RecordedSession.start(files);
    await session.call('liar', { path: 'a.txt' });
    const trace = await session.end();
    const edits: readonly ((text: string) => string)[] = [
      (text) => text.replaceAll('"readOnlyHint":true', '"readOnlyHint":false'),
      (text) => text.replace('"tools":[', '"tools":[{"name":"liar","inputSchema":{"type":"object"}},'),
      (text) => text.replace('"name":"liar"', '"name":"other"'),
    ];
    for (const edit of edits) {
      const other = await reworded(trace, (text, dir) => (dir === 's2c' ? edit(text) : text));
      expect(words(await verified(other))[0]).toBe('FAIL WROTE_THOUGH_READ_ONLY');
      rmSync(other);
    }
  });
});

test('a date that the record has another in the place of, though dates may differ', async () => {
  const session = await RecordedSession.start((workspace) =>
    writeFileSync(join(workspace, 'a.txt'), 'due 2026-01-01, port: 40123, at 10:07\n'),
  );
  await session.call('read', { path: 'a.txt' });
  const trace = await session.end();
  const other = await reworded(trace, (text, dir) =>
    dir === 's2c' ? text.replace('due 2026-01-01', 'due 2031-12-31') : text,
  );
  expect(words(await verified(other))[0]).toBe('FAIL RESULT_DIFFERS');
});

describe('what is left behind, and what is made', () => {
  test('a folder that the trace names is not made a store', async () => {
    const session = await RecordedSession.start(files);
    await session.call('plain');
    const trace = await session.end();
    const empty = join(session.folder, 'empty');
    mkdirSync(empty);
    for (const store of [empty, '/etc', '/']) {
      const other = await forged(trace, (records) =>
        records.map((record) =>
          record.type === 'state' ? ({ ...record, store } as unknown as Loose) : record,
        ),
      );
      expect(words(await verified(other))).toEqual(['UNVERIFIED PRE_STATE_MISSING']);
      rmSync(other);
    }
    expect(readdirSync(empty)).toEqual([]);
  });

  test('states that are damaged are said to be', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    const trace = await session.end();
    const snapshots = join(session.folder, 'state', 'snapshots');
    for (const name of readdirSync(snapshots).filter((each) => each.endsWith('.pack'))) {
      const bytes = readFileSync(join(snapshots, name));
      bytes.fill(0xff, bytes.length >> 1);
      writeFileSync(join(snapshots, name), bytes);
    }
    const { error } = (await verified(trace)) as unknown as { error: { code: string; message: string } };
    expect(error).toMatchObject({
      code: 'content_damaged',
      message: expect.stringContaining('damaged') as string,
    });
  });

  test.runIf(process.platform === 'linux')('what a killed run left is cleared by the next', async () => {
    const session = await RecordedSession.start(files);
    await session.call('slow', { ms: 1_000 });
    const trace = await session.end();
    const TMPDIR = mkdtempSync(join(tmpdir(), 'belay-cli-'));
    const args = [BELAY, 'verify', '--state', join(session.folder, 'state'), trace];
    const env = { PATH: process.env['PATH'], HOME, TMPDIR };
    const killed = spawn(process.execPath, args, { env, stdio: 'ignore' });
    const restored = (): boolean =>
      readdirSync(TMPDIR).some((name) => existsSync(join(TMPDIR, name, 'workspace')));
    await expect.poll(restored, { timeout: 20_000 }).toBe(true);
    killed.kill('SIGKILL');
    await once(killed, 'exit');
    // A log of refusals has a name for a moment only, and may be caught in it.
    const scratches = (): string[] => readdirSync(TMPDIR).filter((name) => name.startsWith('belay-replay-'));
    expect(scratches()).toHaveLength(1);
    expect(spawnSync(process.execPath, args, { env }).status).toBe(0);
    expect(scratches()).toEqual([]);
  });
});

test('what a trace says was run is not told the secrets of whoever verifies it', async () => {
  const session = await RecordedSession.start(files, { env: { OWN_SETTING: 'as recorded' } });
  await session.call('plain');
  const trace = await session.end();
  const script =
    "process.stdin.on('data', (d) => { for (const l of String(d).trim().split('\\n')) console.log(JSON.stringify({ jsonrpc: '2.0', id: JSON.parse(l).id, result: { content: [{ type: 'text', text: `${process.env.SECRET_KEY} ${process.env.OWN_SETTING}` }] } })); })";
  for (const named of [undefined, { SECRET_KEY: 'x', OWN_SETTING: 'x' }, 'its own'] as const) {
    const other = await forged(trace, (records) =>
      records.map((record) => {
        if (record.type !== 'open') return record;
        const { env, cwd } = (record as unknown as { command: { env: object; cwd: string } }).command;
        const command = { cwd, argv: [process.execPath, '-e', script] };
        const given = named === 'its own' ? { ...env, SECRET_KEY: 'x' } : named;
        return { ...record, command: { ...command, ...(given && { env: given }) } } as unknown as Loose;
      }),
    );
    const { stdout } = spawnSync(
      process.execPath,
      [BELAY, 'verify', '--json', '--state', join(session.folder, 'state'), other],
      {
        encoding: 'utf8',
        env: { PATH: process.env['PATH'], HOME, SECRET_KEY: 'do not tell', OWN_SETTING: 'as recorded' },
      },
    );
    expect(stdout).toContain(named === 'its own' ? 'undefined as recorded' : 'undefined undefined');
    expect(stdout).not.toContain('do not tell');
    rmSync(other);
  }
});

test('a trace that no log speaks of does not pass where its log was asked for', async () => {
  const session = await RecordedSession.start(files);
  await session.call('plain');
  const trace = await session.end();
  expect(words(await verified(trace))).toEqual(['PASS', 'session: PASS']);
  expect(words(await verified(trace, '--acks'))[0]).toBe('UNVERIFIED NOT_ATTESTED');
});

test('a trace without the list of tools: the server is asked for it', async () => {
  const session = await RecordedSession.start(files);
  await session.call('liar', { path: 'a.txt' });
  const trace = await session.end();
  const isList = ({ data }: Loose): boolean => /"tools\/list"|"tools":\[/.test(data?.toString() ?? '');
  const other = await forged(trace, (records) => records.filter((record) => !isList(record)));
  expect(words(await verified(other))[0]).toBe('FAIL WROTE_THOUGH_READ_ONLY');
});

test('a call without an id is no turn, and no session with one is good', async () => {
  const session = await RecordedSession.start(files);
  session.send({ jsonrpc: '2.0', method: 'tools/call', params: { name: 'count', arguments: {} } });
  await session.call('read', { path: 'a.txt' });
  const found = words(await verified(await session.end()));
  expect(found.at(-1)).toBe('session: UNVERIFIED CALL_WITHOUT_ID');
});
