import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { checked, coverage, verification } from '@belay/contracts/verification';
import { CAUSES } from '@belay/verdict';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Verification } from '../src/verification.js';
import { belay } from './command.js';
import { atHome, RecordedSession, reworded } from './session.js';

let honest: string;
let forged: string;
const folder = mkdtempSync(join(tmpdir(), 'belay-reports-'));

/** A command as it was recorded: same environment, same state directory. */
const run = (command: string, ...args: readonly string[]) =>
  atHome(() => belay(command, '--state', dirname(dirname(honest)), ...args));

beforeAll(async () => {
  const session = await RecordedSession.start((workspace) => {
    writeFileSync(join(workspace, 'a.txt'), 'alpha\n');
    writeFileSync(join(workspace, 'test_a.py'), 'def test_a():\n    assert 1 + 1 == 2\n');
  });
  await session.call('read', { path: 'a.txt' });
  await session.call('write', { path: 'page.html', text: '<script>alert("x")</script>\n' });
  await session.call('clock');
  await session.call('nonce');
  honest = await session.end();
  forged = await reworded(honest, (text, dir) =>
    dir === 's2c' ? text.replace('"alpha\\n', '"<img src=x onerror=y>\\u202e\\n') : text,
  );
}, 60_000);

describe('belay verify', () => {
  test('prints a page: head, a row a part, what is not PASS explained, counts, the verdict last', async () => {
    const { code, stdout } = await run('verify', forged);
    expect(code).toBe(1);
    expect(stdout).toContain('integrity: local-only');
    expect(stdout).toMatch(/✗ FAIL {8}turn 1 {3}read .*RESULT_DIFFERS/);
    expect(stdout).toMatch(/✓ PASS {8}turn 2 {3}write/);
    expect(stdout).toMatch(/! WARN {8}turn 3 {3}clock .*VOLATILE_RESULT/);
    expect(stdout).toMatch(/\? UNVERIFIED {2}turn 4 {3}nonce .*NONDETERMINISTIC/);
    expect(stdout).toContain('recorded <img src=x onerror=y>\\u202e');
    expect(stdout).toContain('replayed alpha');
    expect(stdout).toMatch(/1 FAIL, 1 UNVERIFIED, 1 WARN, 2 PASS/);
    expect(stdout.trimEnd().split('\n').at(-1)).toMatch(/^✗ FAIL .*integrity: local-only$/);
    expect(stdout).not.toContain('\u001b');
  });

  test('prints what its schema says, and nothing else; several traces in their order', async () => {
    const { code, json } = await run('verify', '--json', honest, forged);
    expect(code).toBe(1);
    const found = json as Verification[];
    expect(found.map(({ trace }) => trace)).toEqual([honest, forged]);
    for (const each of found) expect(verification.parse(each)).toEqual(each);
  });

  test('writes JUnit, SARIF and HTML, private, and the page as well', async () => {
    const [junit, sarif, html] = ['r.xml', 'r.sarif', 'r.html'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    const { stdout } = await run('verify', forged, '--junit', junit, '--sarif', sarif, '--html', html);
    expect(stdout).toContain('✗ FAIL');
    for (const path of [junit, sarif, html]) expect(statSync(path).mode & 0o777).toBe(0o600);

    const xml = readFileSync(junit, 'utf8');
    expect(xml).toContain('tests="5" failures="1" errors="1" skipped="0"');
    expect(xml).toContain('<failure type="RESULT_DIFFERS"');
    expect(xml).toContain('<error type="NONDETERMINISTIC"');
    expect(xml).not.toContain('<img');

    const { version, runs } = JSON.parse(readFileSync(sarif, 'utf8')) as {
      version: string;
      runs: [
        {
          tool: { driver: { rules: { id: string }[] } };
          results: { ruleId: string; ruleIndex: number; level: string }[];
        },
      ];
    };
    expect(version).toBe('2.1.0');
    const [{ tool, results }] = runs;
    expect(tool.driver.rules.map(({ id }) => id)).toEqual(CAUSES);
    expect(results.map(({ ruleId, level }) => `${level} ${ruleId}`)).toEqual([
      'error RESULT_DIFFERS',
      'note VOLATILE_RESULT',
      'warning NONDETERMINISTIC',
    ]);
    for (const { ruleId, ruleIndex } of results) expect(tool.driver.rules[ruleIndex]?.id).toBe(ruleId);

    const page = readFileSync(html, 'utf8');
    expect(page).toContain('&lt;img src=x onerror=y&gt;\\u202e');
    expect(page).toContain('+&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;');
    expect(page).not.toContain('<img');
    expect(page.match(/<script>/g)).toHaveLength(1);
    expect(page).not.toMatch(/(?:src|href)="(?!#)/);
    expect(page).not.toMatch(/\sstyle="|\son[a-z]+="/);
    for (const [, name = '', text = ''] of page.matchAll(/<(script|style)>([\s\S]*?)<\/\1>/g)) {
      const hash = createHash('sha256').update(text).digest('base64');
      expect(page, name).toContain(`${name}-src 'sha256-${hash}'`);
    }
  });

  test('one report may take the place of the page; not two', async () => {
    const { stdout } = await run('verify', honest, '--junit', '-');
    expect(stdout).toMatch(/^<\?xml/);
    expect(stdout).toMatch(/<\/testsuites>\n$/);
    expect((await run('verify', honest, '--junit', '-', '--html', '-')).code).toBe(64);
    expect((await run('verify', honest, '--junit', '-', '--json')).code).toBe(64);
  });
});

describe('belay check', () => {
  test('is one line and one exit code', async () => {
    const bad = await run('check', honest, forged);
    expect(bad.code).toBe(1);
    expect(bad.stdout).toMatch(/^FAIL 2 traces: 1 FAIL, 2 UNVERIFIED, .*turn 1 of .*RESULT_DIFFERS.*\n$/);
    expect(bad.stdout.split('\n')).toHaveLength(2);
    const undecided = await run('check', honest);
    expect(undecided.code).toBe(2);
    expect(undecided.stdout).toMatch(/^UNVERIFIED .*\n$/);
    expect((await run('check', honest, '--allow-unverified')).code).toBe(0);
    expect((await run('check', forged, '--allow-unverified')).code).toBe(1);
  });

  test('prints what its schema says; annotations hold no foreign line', async () => {
    const { json } = await run('check', '--json', forged);
    expect(checked.parse(json)).toEqual(json);
    const { stdout } = await run('check', '--github', forged);
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => /^::\w+|^\w+/.exec(line)?.[0])).toEqual([
      '::error',
      '::warning',
      '::notice',
      'FAIL',
    ]);
  });
});

describe('belay replay', () => {
  test('says what was replayed, and judges nothing', async () => {
    const { code, stdout } = await run('replay', forged);
    expect(code).toBe(0);
    expect(stdout).toContain('4 of 4 calls replayed, nothing judged; integrity: local-only');
    expect(stdout).not.toMatch(/PASS|FAIL|WARN|RESULT_DIFFERS/);
    const { json } = await run('replay', '--json', forged, '--turn', '2');
    expect(coverage.parse(json)).toEqual(json);
    expect(json).toMatchObject({ replayed: 1, of: 1, turns: [{ turn: 2, tool: 'write', replayed: true }] });
  });

  test('says why what was not replayed was not', async () => {
    const { code, stdout, json } = await run('replay', '--json', honest, '--server', '/bin/false');
    expect(code, stdout).toBe(0);
    const { turns, replayed } = coverage.parse(json);
    expect(replayed).toBe(0);
    for (const { why } of turns) expect(why).toMatch(/^REPLAY_/);
  });
});
