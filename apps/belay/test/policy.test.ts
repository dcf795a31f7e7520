import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { belay } from './command.js';

const folder = mkdtempSync(join(tmpdir(), 'belay-policy-'));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function written(text: string): string {
  const file = join(folder, `${++files}.yaml`);
  writeFileSync(file, text);
  return file;
}

const GOOD = `version: 1
invariants:
  rules:
    - { rule: read-only, id: docs, paths: ["docs/**"] }
    - { rule: max-effect, files: 20 }
    - { rule: no-egress, allow: ["localhost:5432"] }
    - { rule: suite-before-claim, commands: [npm test] }
    - { rule: allow-only, paths: [src/**] }
    - { rule: no-create, paths: [bin/**] }
    - { rule: no-delete, paths: [db/**] }
    - { rule: no-secret-write }
sandbox: { network: deny }
snapshot: {}
`;

describe('belay policy check', () => {
  it('says what is in a good file', async () => {
    const file = written(GOOD);
    const { code, stdout } = await belay('policy', 'check', file);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /: 8 of its own rules and 1 built in, a sandbox section \(network\)\nsha256:[0-9a-f]{64}\n$/,
    );
    expect((await belay('policy', 'check', file, '--json')).json).toMatchObject({
      file,
      rules: 9,
      sandbox: { network: { mode: 'deny' } },
    });
  });

  it('says where a bad one is wrong, and what would be right', async () => {
    const file = written('version: 1\ninvariants:\n  rules:\n    - { rule: readonly, paths: [a] }\n');
    const { code, stderr } = await belay('policy', 'check', file);
    expect(code).toBe(65);
    expect(stderr).toBe(
      `belay: ${file}:4:15: invariants.rules.0.rule: there is no rule "readonly"\n  Right would be: read-only\n`,
    );
    expect((await belay('policy', 'check', file, '--json')).json).toMatchObject({
      error: { code: 'unknown_rule' },
    });
  });

  it('looks at the section of the sandbox too', async () => {
    const { code, stderr } = await belay(
      'policy',
      'check',
      written('version: 1\nsandbox:\n  network: none\n'),
    );
    expect(code).toBe(65);
    expect(stderr).toMatch(/:3: .*network/);
  });

  it('a file that is not there', async () => {
    expect((await belay('policy', 'check', join(folder, 'gone'))).code).toBe(65);
  });
});

describe('belay policy explain', () => {
  it('tells the built-in rules', async () => {
    const { code, stdout } = await belay('policy', 'explain');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^tests \(no-test-weakening, built in\)\n {2}FAIL when tests say less than before/,
    );
    expect(stdout).toContain('**/*_test.go');
    expect(stdout).toContain('except: **/node_modules/**');
  });

  it('tells every rule of a file, and leaves the built-in ones out when told to', async () => {
    const { json } = await belay('policy', 'explain', written(GOOD), '--no-default-policy', '--json');
    const { rules } = json as { rules: { rule: string; default: boolean; protects: string }[] };
    expect(rules.map(({ rule }) => rule)).not.toContain('no-test-weakening');
    expect(rules).toHaveLength(8);
    for (const { protects, default: builtIn } of rules) {
      expect(protects).toMatch(/FAIL when/);
      expect(builtIn).toBe(false);
    }
    expect((await belay('policy', 'explain', '--no-default-policy')).stdout).toBe('no rules are in force\n');
  });
});
