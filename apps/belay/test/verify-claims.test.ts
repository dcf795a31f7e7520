import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { start } from './proxied.js';
import { RecordedSession, verified, words } from './session.js';

/** Writes a checker whose check is this script; what the checker was told is in the folder too. */
function checker(folder: string, script: string): string {
  const path = join(folder, 'checker.sh');
  writeFileSync(join(folder, 'check'), script);
  writeFileSync(path, `#!/bin/sh\ncat > ${join(folder, 'told.json')}\ncat ${join(folder, 'check')}\n`);
  chmodSync(path, 0o755);
  return path;
}

async function claimed(text: string): Promise<{ trace: string; folder: string }> {
  const env = { BELAY_SESSION: 'run-1' };
  const session = await RecordedSession.start(() => undefined, { env });
  await session.call('write', { path: 'a.txt', text: 'done' });
  const trace = await session.end();
  const state = join(session.folder, 'state');
  expect(await start(['claim', '--state', state, text], env).ended).toBe(0);
  const folder = join(session.folder, 'checks');
  mkdirSync(folder);
  return { trace, folder };
}

test('an executed check refutes, supports or leaves open what was claimed; it only lowers', async () => {
  const { trace, folder } = await claimed('a.txt says done, and b.txt too');
  const outcome = async (script: string, ...args: readonly string[]): Promise<string[]> =>
    words(await verified(trace, ...args, '--checker', checker(folder, script)));
  expect(words(await verified(trace))).toEqual(['PASS', 'session: PASS']);
  expect(await outcome('#!/bin/sh\ngrep -q done a.txt\n')).toEqual(['PASS', 'session: PASS']);
  expect(await outcome('#!/bin/sh\ngrep -q done b.txt || exit 1\n')).toEqual([
    'PASS',
    'session: FAIL CLAIM_REFUTED',
  ]);
  expect(await outcome('#!/bin/sh\nexit 3\n')).toEqual(['PASS', 'session: WARN CLAIM_UNSUPPORTED']);
  expect(await outcome('')).toEqual(['PASS', 'session: WARN CLAIM_UNSUPPORTED']);
  expect(await outcome('#!/bin/sh\nkill -9 $$\n')).toEqual(['PASS', 'session: UNVERIFIED CLAIM_UNDECIDED']);
  expect(await outcome('#!/bin/sh\nexit 1\n', '--no-claim-axis')).toEqual(['PASS', 'session: PASS']);
});

test('the checker is told of the claim, and its check can reach nothing but the scratch', async () => {
  const { trace, folder } = await claimed('all is well');
  const script = `#!/bin/sh\necho evil > a.txt\necho evil > ${join(folder, 'told.json')} && exit 1\nexit 0\n`;
  const found = await verified(trace, '--checker', checker(folder, script));
  expect(words(found)).toEqual(['PASS', 'session: PASS']);
  const { readFileSync } = await import('node:fs');
  expect(JSON.parse(readFileSync(join(folder, 'told.json'), 'utf8'))).toMatchObject({
    claim: 'all is well',
    changes: [{ path: 'a.txt', what: 'created' }],
  });
  const { judgements } = found.parts.at(-1)?.verdict ?? { judgements: [] };
  expect(judgements.at(-1)).toMatchObject({ axis: 'A3', kind: 'claim', status: 'NOT_COVERED' });
});

test('a suite has to run before success is claimed, where the policy wants it', async () => {
  const { trace, folder } = await claimed('all tests pass');
  const policy = join(folder, 'policy.yaml');
  writeFileSync(
    policy,
    'version: 1\ninvariants:\n  rules:\n    - rule: suite-before-claim\n      id: suite\n',
  );
  expect(words(await verified(trace, '--policy', policy)).at(-1)).toBe('session: FAIL INVARIANT_BROKEN');
});
