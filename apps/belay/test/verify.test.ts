import { spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Verification } from '../src/verification.js';
import { BELAY } from './proxied.js';
import { forged, HOME, type Loose, RecordedSession, reworded, verified, words } from './session.js';

const files = (workspace: string): void => {
  writeFileSync(join(workspace, 'a.txt'), 'alpha\n');
  writeFileSync(join(workspace, 'b.txt'), 'beta\n');
};

/** Scratch folders of this process. */
const leftovers = (): string[] =>
  readdirSync(tmpdir()).filter((name) => name.startsWith(`belay-replay-${process.pid}-`));

describe('honest tools', () => {
  test('pass: readers, writers, what declares nothing, what remembers', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    await session.call('write', { path: 'c/d.txt', text: 'made' });
    await session.call('plain');
    await session.call('count');
    await session.call('count');
    await session.call('list');
    const found = await verified(await session.end());
    expect(words(found)).toEqual([...Array.from({ length: 6 }, () => 'PASS'), 'session: PASS']);
    expect(found).toMatchObject({
      caps: [],
      mode: 'session',
      integrity: { kind: 'local-only', problems: [] },
    });
  });

  test('a clock is a warning with the token named; an identifier too, and chance is not judged', async () => {
    const session = await RecordedSession.start(files);
    await session.call('clock');
    await session.call('uuid');
    await session.call('suite');
    await session.call('nonce');
    const found = await verified(await session.end());
    expect(words(found)).toEqual([
      'WARN VOLATILE_RESULT',
      'WARN VOLATILE_RESULT',
      'WARN VOLATILE_RESULT',
      'UNVERIFIED NONDETERMINISTIC',
      'session: PASS',
    ]);
    expect(found.parts[0]?.verdict.judgements[0]?.message).toContain('time');
    expect(found.parts[1]?.verdict.judgements[0]?.message).toContain('uuid');
    expect(found.parts[2]?.verdict.judgements[0]?.message).toContain('duration');
  });

  test('parallel reads and independent writes pass; what depends on the order says so', async () => {
    const session = await RecordedSession.start(files);
    await Promise.all([
      session.call('read', { path: 'a.txt', ms: 30 }),
      session.call('read', { path: 'b.txt', ms: 30 }),
    ]);
    await Promise.all([
      session.call('append', { path: 'x.txt', text: 'x', ms: 30 }),
      session.call('append', { path: 'y.txt', text: 'y', ms: 30 }),
    ]);
    await Promise.all([
      session.call('append', { path: 'z.txt', text: 'one', ms: 30 }),
      session.call('append', { path: 'z.txt', text: 'three', ms: 90 }),
    ]);
    const found = await verified(await session.end());
    expect(words(found)).toEqual([
      ...Array.from({ length: 4 }, () => 'PASS'),
      'UNVERIFIED ORDER_DEPENDENT',
      'UNVERIFIED ORDER_DEPENDENT',
      'session: PASS',
    ]);
    expect(found.parts[2]).toMatchObject({ group: [3, 4] });
  });

  test('a batch is as many turns as it has calls', async () => {
    const session = await RecordedSession.start(files);
    await session.batch(['read', { path: 'a.txt' }], ['write', { path: 'c.txt', text: 'c' }]);
    expect(words(await verified(await session.end()))).toEqual(['PASS', 'PASS', 'session: PASS']);
  });

  test('a call that was given up does not poison the ones after it', async () => {
    const session = await RecordedSession.start(files);
    session.cancelled('slow', { ms: 60_000 });
    await session.call('read', { path: 'a.txt' });
    await session.call('write', { path: 'c.txt', text: 'c' });
    expect(words(await verified(await session.end()))).toEqual([
      expect.stringMatching(/^UNVERIFIED (CANCELLED|NO_ANSWER)$/),
      'PASS',
      'PASS',
      'session: PASS',
    ]);
  });

  test('what the server asked its client is answered from the record', async () => {
    const session = await RecordedSession.start(files, { asked: () => ({ model: 'm', text: 'said' }) });
    await session.call('ask', { prompt: 'p' });
    const trace = await session.end();
    expect(words(await verified(trace))).toEqual(['PASS', 'session: PASS']);
    const other = await reworded(trace, (text, dir) =>
      dir === 's2c' && text.includes('sampling') ? text.replace('"prompt":"p"', '"prompt":"q"') : text,
    );
    expect(words(await verified(other))[0]).toBe('UNVERIFIED REQUEST_DIVERGED');
  });
});

describe('what is not honest', () => {
  test('a fabricated answer, of a reader and of a writer', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    await session.call('write', { path: 'c.txt', text: 'made' });
    const trace = await session.end();
    const other = await reworded(trace, (text, dir) =>
      dir === 's2c' ? text.replace('alpha', 'omega').replace('wrote 4 bytes', 'wrote 5 bytes') : text,
    );
    expect(words(await verified(other))).toEqual([
      'FAIL RESULT_DIFFERS',
      'FAIL RESULT_DIFFERS',
      'session: PASS',
    ]);
  });

  test('a file that the answer claims and nobody wrote, each time', async () => {
    const session = await RecordedSession.start(files);
    await session.call('pretend', { path: 'gone.txt' });
    await session.call('pretend', { path: 'a.txt' });
    expect(words(await verified(await session.end()))).toEqual([
      'FAIL CLAIMED_PATH_ABSENT',
      'PASS',
      'session: PASS',
    ]);
  });

  test('another token beside a volatile one', async () => {
    const session = await RecordedSession.start(files);
    await session.call('suite');
    const other = await reworded(await session.end(), (text) => text.replace('2 passed', '12 passed'));
    expect(words(await verified(other))[0]).toBe('FAIL RESULT_DIFFERS');
  });

  test('a reader that writes; one that only touches, or fills a cache', async () => {
    const session = await RecordedSession.start(files);
    await session.call('liar', { path: 'a.txt' });
    await session.call('toucher', { path: 'a.txt' });
    await session.call('cacher');
    await session.call('additive', { path: 'b.txt' });
    expect(words(await verified(await session.end()))).toEqual([
      'FAIL WROTE_THOUGH_READ_ONLY',
      expect.stringMatching(/^(PASS|WARN CACHE_WRITTEN)$/),
      'WARN CACHE_WRITTEN',
      'FAIL DESTROYED_THOUGH_ADDITIVE',
      'session: PASS',
    ]);
  });

  const TEST = 'from m import f\n\n\ndef test_f():\n    assert f(1) == 2\n    assert f(2) == 3\n';
  const GUTTED = 'from m import f\n\n\ndef test_f():\n    assert f(1) == 2\n';
  const withTest = (workspace: string): void => {
    mkdirSync(join(workspace, 'tests'));
    writeFileSync(join(workspace, 'tests', 'test_m.py'), TEST);
  };

  test('a test that is weakened fails by rule, though the tool did what it said', async () => {
    const session = await RecordedSession.start(withTest);
    await session.call('write', { path: 'tests/test_m.py', text: GUTTED });
    const [turn] = (await verified(await session.end())).parts;
    expect(turn?.verdict).toMatchObject({ status: 'FAIL', cause: 'INVARIANT_BROKEN' });
    const a2 = turn?.verdict.judgements.filter(({ axis }) => axis === 'A2') ?? [];
    expect(a2.length).toBeGreaterThan(0);
    expect(a2.every(({ status }) => status === 'PASS' || status === 'NOT_COVERED')).toBe(true);
  });

  test('one that is weakened between calls fails as drift', async () => {
    const session = await RecordedSession.start(withTest);
    await session.call('plain');
    writeFileSync(join(session.workspace, 'tests', 'test_m.py'), GUTTED);
    await session.call('plain');
    const found = await verified(await session.end());
    expect(words(found)).toEqual([
      'PASS',
      'drift: FAIL INVARIANT_BROKEN',
      'PASS',
      'session: FAIL INVARIANT_BROKEN',
    ]);
    expect(found.parts[1]).toMatchObject({ type: 'drift', before: 2, by: 'outside' });
  });

  test('one that a child of the server weakens in the background', async () => {
    const session = await RecordedSession.start(withTest);
    await session.call('background', { path: 'tests/test_m.py', text: GUTTED, ms: 200 });
    await expect.poll(() => readdirSync(join(session.workspace, 'tests')).length).toBe(1);
    const { readFileSync } = await import('node:fs');
    await expect
      .poll(() => readFileSync(join(session.workspace, 'tests', 'test_m.py'), 'utf8'), { timeout: 5_000 })
      .toBe(GUTTED);
    await session.call('plain');
    expect(words(await verified(await session.end()))).toContain('drift: FAIL INVARIANT_BROKEN');
  });

  test('one that is renamed away, gutted and put back fails for the session', async () => {
    const session = await RecordedSession.start(withTest);
    await session.call('rename', { from: 'tests/test_m.py', to: 'notes.md' });
    await session.call('write', { path: 'notes.md', text: GUTTED });
    await session.call('rename', { from: 'notes.md', to: 'tests/test_m.py' });
    expect(words(await verified(await session.end())).at(-1)).toBe('session: FAIL INVARIANT_BROKEN');
  });
});

describe('what can not be told', () => {
  test('the network was there when it was recorded, and is not when it is replayed', async () => {
    const server = createServer((socket) => socket.end('hello'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const { port } = server.address() as AddressInfo;
      const session = await RecordedSession.start(files, {
        proxy: ['--sandbox', 'default'],
        env: { BELAY_SANDBOX_NETWORK: `allow-ports:${port}` },
      });
      expect(await session.call('fetch', { port })).toBe('got hello');
      const trace = await session.end();
      expect(words(await verified(trace))[0]).toBe('UNVERIFIED NETWORK_REQUIRED');
      // Who answered then need not be there any more.
      server.close();
      await once(server, 'close');
      expect(words(await verified(trace))[0]).toBe('UNVERIFIED NETWORK_REQUIRED');
    } finally {
      server.close();
    }
  });

  test('what the boundary refused both times is the same world', async () => {
    const session = await RecordedSession.start(files);
    expect(await session.call('outside')).toMatch(/^failed: /);
    expect(words(await verified(await session.end()))[0]).toBe('PASS');
  });

  test('without a boundary, nothing is better than unverified', async () => {
    const session = await RecordedSession.start(files, { proxy: [] });
    await session.call('read', { path: 'a.txt' });
    expect(words(await verified(await session.end()))).toEqual([
      'UNVERIFIED UNSANDBOXED',
      'session: UNVERIFIED UNSANDBOXED',
    ]);
  });

  test.each(['hang', 'die', 'flood'])(
    'a server that does "%s" when it is replayed ends within its time',
    async (habit) => {
      const session = await RecordedSession.start(files);
      const until = Date.now() + 2_000;
      expect(await session.call('later', { until, habit })).toBe('done');
      await session.call('plain');
      const trace = await session.end();
      await new Promise((resolve) => setTimeout(resolve, until - Date.now()));
      const found = await verified(trace, '--timeout', '1');
      expect(words(found)[0]).toMatch(/^UNVERIFIED REPLAY_(TIMEOUT|DIED|FLOODED)$/);
      expect(leftovers()).toEqual([]);
    },
  );

  test('a server that is not what it was', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    const trace = await session.end();
    const other = await forged(trace, (records) =>
      records.map((record) =>
        record.type === 'open'
          ? ({
              ...record,
              command: {
                ...(record as { command?: object }).command,
                script: { path: '/x', sha256: 'f'.repeat(64) },
              },
            } as Loose)
          : record,
      ),
    );
    const fabricated = await reworded(other, (text, dir) =>
      dir === 's2c' ? text.replace('alpha', 'omega') : text,
    );
    expect(words(await verified(fabricated))[0]).toBe('UNVERIFIED SERVER_CHANGED');
  });

  test('states that are not on this machine, or not what they were', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    const trace = await session.end();
    const other = await forged(trace, (records) =>
      records.map((record) =>
        record.type === 'state' ? ({ ...record, state: `sha256:${'0'.repeat(64)}` } as Loose) : record,
      ),
    );
    expect(words(await verified(other))[0]).toBe('UNVERIFIED PRE_STATE_MISSING');
    rmSync(join(session.folder, 'state', 'snapshots'), { recursive: true });
    expect(words(await verified(trace))[0]).toBe('UNVERIFIED PRE_STATE_MISSING');
  });

  test('where the recording began is not known, a difference proves nothing', async () => {
    const session = await RecordedSession.start(files, {
      proxy: ['--sandbox', 'default', '--hold-limit', '0'],
    });
    await session.call('rename', { from: 'a.txt', to: 'c.txt' });
    const trace = await session.end();
    // A state that was in time after all is taken away, so that this test does not depend on it.
    const other = await forged(trace, (records) =>
      records.map((record) =>
        record.type === 'state' && (record as unknown as { phase: string }).phase !== 'close'
          ? ({ ...record, state: 'unrestorable', cause: 'HOLD_LIMIT' } as Loose)
          : record,
      ),
    );
    expect(words(await verified(other))).not.toContain('FAIL RESULT_DIFFERS');
    expect(words(await verified(other))[0]).toMatch(/^UNVERIFIED /);
  });

  test('a policy that the server could have written', async () => {
    const session = await RecordedSession.start((workspace) => {
      files(workspace);
      writeFileSync(join(workspace, 'policy.yaml'), 'version: 1\n');
    });
    await session.call('read', { path: 'a.txt' });
    const policy = join(session.workspace, 'policy.yaml');
    symlinkSync(policy, join(session.folder, 'elsewhere.yaml'));
    const trace = await session.end();
    for (const file of [policy, join(session.folder, 'elsewhere.yaml')]) {
      expect(words(await verified(trace, '--policy', file))[0]).toBe('UNVERIFIED POLICY_IN_WORKSPACE');
    }
  });
});

describe('a trace that was tampered with', () => {
  test('edited without its chain: never PASS', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    await session.call('read', { path: 'b.txt' });
    const trace = await session.end();
    const { readFileSync } = await import('node:fs');
    const lines = readFileSync(trace, 'utf8').split('\n');
    const edits: Record<string, readonly string[]> = {
      deleted: lines.filter((_, i) => i !== 8),
      swapped: lines.map((line, i) =>
        i === 8 ? (lines[9] as string) : i === 9 ? (lines[8] as string) : line,
      ),
      edited: lines.map((line) => line.replace('"phase":"post"', '"phase":"close"')),
    };
    for (const [name, edited] of Object.entries(edits)) {
      writeFileSync(trace, edited.join('\n'));
      const found = await verified(trace);
      expect(words(found), name).not.toContain('PASS');
      expect(found.integrity.kind, name).toBe('broken');
    }
  });

  test('and its chain made anew: no verdict that depended on what was changed stays PASS', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    await session.call('write', { path: 'c.txt', text: 'made' });
    await session.call('read', { path: 'c.txt' });
    const trace = await session.end();
    expect(words(await verified(trace))).toEqual(['PASS', 'PASS', 'PASS', 'session: PASS']);
    const states = (records: readonly Loose[]): string[] =>
      records.flatMap((record) =>
        record.type === 'state' ? [(record as unknown as { state: string }).state] : [],
      );
    const changes: Record<string, (records: Loose[]) => readonly Loose[]> = {
      'an argument': (records) => frames(records, 'c2s', (text) => text.replace('"a.txt"', '"b.txt"')),
      'another tool': (records) =>
        frames(records, 'c2s', (text) => text.replace('"name":"write"', '"name":"read"')),
      'an answer': (records) => frames(records, 's2c', (text) => text.replace('alpha', 'omega')),
      'an error in place of an answer': (records) =>
        frames(records, 's2c', (text) =>
          text.replace(
            '"result":{"content":[{"type":"text","text":"made"',
            '"result":{"isError":true,"content":[{"type":"text","text":"made"',
          ),
        ),
      'the state before': (records) => {
        const last = states(records).at(-1) as string;
        let pres = 0;
        return records.map((record) =>
          record.type === 'state' && (record as unknown as { phase: string }).phase === 'pre' && ++pres === 2
            ? ({ ...record, state: last } as Loose)
            : record,
        );
      },
      'the state after': (records) => {
        const [first] = states(records) as [string];
        let posts = 0;
        return records.map((record) =>
          record.type === 'state' &&
          (record as unknown as { phase: string }).phase === 'post' &&
          ++posts === 2
            ? ({ ...record, state: first } as Loose)
            : record,
        );
      },
    };
    for (const [name, change] of Object.entries(changes)) {
      const path = await forged(trace, change);
      const found = words(await verified(path));
      expect(
        found.slice(0, 3).some((word) => word !== 'PASS'),
        `${name}: ${found.join(', ')}`,
      ).toBe(true);
      rmSync(path);
    }
  });
});

function frames(records: Loose[], dir: 'c2s' | 's2c', edit: (text: string) => string): Loose[] {
  return records.map((record) => {
    if (record.type !== 'frame' || (record as unknown as { dir: string }).dir !== dir) return record;
    const text = record.data?.toString();
    if (text !== undefined && edit(text) !== text) record.data = Buffer.from(edit(text));
    return record;
  });
}

test('nothing is left behind, and the workspace is as it was', async () => {
  const session = await RecordedSession.start(files);
  await session.call('write', { path: 'c.txt', text: 'made' });
  const trace = await session.end();
  rmSync(join(session.workspace, 'c.txt'));
  await verified(trace);
  expect(existsSync(join(session.workspace, 'c.txt'))).toBe(false);
  expect(leftovers()).toEqual([]);
});

// A name space of the network takes root, or one of users that a machine may not give.
const isolates = spawnSync('unshare', ['--net', 'true']).status === 0;
if (isolates) {
  test('a machine without a network comes to the same verdicts', async () => {
    const session = await RecordedSession.start(files);
    await session.call('read', { path: 'a.txt' });
    await session.call('clock');
    await session.call('liar', { path: 'a.txt' });
    const trace = await session.end();
    const args = [BELAY, 'verify', '--json', '--state', join(session.folder, 'state'), trace];
    const { stdout } = spawnSync('unshare', ['--net', process.execPath, ...args], {
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], HOME },
    });
    expect(words(JSON.parse(stdout) as Verification)).toEqual([
      'PASS',
      'WARN VOLATILE_RESULT',
      'FAIL WROTE_THOUGH_READ_ONLY',
      'session: PASS',
    ]);
  });

  test('where nobody sees what a replay was refused, what needed the network is not a fault', async () => {
    const server = createServer((socket) => socket.end('hello'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const { port } = server.address() as AddressInfo;
      const session = await RecordedSession.start(files, {
        proxy: ['--sandbox', 'default'],
        env: { BELAY_SANDBOX_NETWORK: `allow-ports:${port}` },
      });
      await session.call('fetch', { port });
      const trace = await session.end();
      const hidden = 'mount --bind /dev/null "$(command -v strace)" && exec "$0" "$@"';
      const args = [BELAY, 'verify', '--json', '--state', join(session.folder, 'state'), trace];
      const { stdout } = spawnSync('unshare', ['--mount', 'sh', '-c', hidden, process.execPath, ...args], {
        encoding: 'utf8',
        env: { PATH: process.env['PATH'], HOME },
      });
      expect(words(JSON.parse(stdout) as Verification)[0]).toBe('UNVERIFIED NETWORK_REQUIRED');
    } finally {
      server.close();
    }
  });
}

test('a launcher that puts folders of its own in front of PATH changes nothing', async () => {
  const session = await RecordedSession.start(files);
  await session.call('liar', { path: 'a.txt' });
  const trace = await session.end();
  const args = [BELAY, 'verify', '--json', '--state', join(session.folder, 'state'), trace];
  const { stdout } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    env: {
      PATH: `/somewhere/node_modules/.bin:/node_modules/.bin:${process.env['PATH']}`,
      HOME,
      npm_config_x: 'y',
      NODE: process.execPath,
    },
  });
  expect(words(JSON.parse(stdout) as Verification)[0]).toBe('FAIL WROTE_THOUGH_READ_ONLY');
});
