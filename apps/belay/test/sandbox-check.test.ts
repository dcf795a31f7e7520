import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { placeOutside } from '@belay/sandbox/probe';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { SandboxCheck } from '../src/sandbox-table.js';
import { belay } from './command.js';

const SERVER = `
const answers = {
  initialize: () => ({ protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'small', version: '1.2.3' } }),
  'tools/list': () => ({ tools: [{ name: 'one', inputSchema: { type: 'object' } }] }),
};
if (process.argv[2] !== undefined) {
  try { require('node:fs').writeFileSync(process.argv[2], 'x'); } catch {}
}
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line);
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: answers[method]() }));
});
`;

let base: string;
let scope: string;
let server: string;

beforeEach(() => {
  const parent = placeOutside([homedir(), '/srv', '/opt', process.cwd()], []) ?? tmpdir();
  base = mkdtempSync(join(parent, 'belay-test-'));
  scope = join(base, 'scope');
  mkdirSync(scope);
  server = join(base, 'server.cjs');
  writeFileSync(server, SERVER);
  vi.stubEnv('BELAY_STATE', join(base, 'state'));
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(base, { recursive: true, force: true });
});

describe('belay sandbox check', () => {
  it('proves the boundary and tries a server in it', async () => {
    const command = ['sandbox', 'check', '--scope', scope, '--json', '--seconds', '0.1'];
    const { code, json } = await belay(...command, '--', process.execPath, server);
    const check = json as SandboxCheck;
    expect(check.reasons).toEqual([]);
    expect(check).toMatchObject({
      verdict: 'holds',
      scope,
      user: { uid: process.getuid?.() },
      record: { profile: 'default', network: 'deny', roots: [scope] },
      server: {
        answered: true,
        server: { name: 'small', version: '1.2.3' },
        protocol: '2025-06-18',
        tools: 1,
        denials: [],
      },
    });
    expect(check.server?.ended).toBeUndefined();
    expect(check.snapshot?.filter(({ works }) => !works)).toEqual([]);
    expect(check.snapshot).toHaveLength(6);
    expect(code).toBe(0);
    expect(readdirSync(scope)).toEqual([]);
    expect(readdirSync(base).sort()).toEqual(['scope', 'server.cjs']);
  });

  it('names what a server was refused, and is not content', async () => {
    const target = join(base, 'elsewhere');
    const options = ['sandbox', 'check', '--scope', scope, '--seconds', '0.1', '--only', 'secrets'];
    const { code, stdout } = await belay(...options, '--', process.execPath, server, target);
    expect(stdout).toContain('The boundary holds');
    expect(stdout).toContain(`denied    create EROFS ${target}`);
    expect(stdout).toMatch(/answers {3}as small 1\.2\.3 \(2025-06-18\), 1 tools/);
    expect(code).toBe(1);
  });

  it('says of a server that does not start what it said last', async () => {
    const options = ['sandbox', 'check', '--scope', scope, '--only', 'secrets', '--profile', 'strict'];
    const { code, stdout } = await belay(
      ...options,
      '--',
      process.execPath,
      '-e',
      'throw new Error("no luck")',
    );
    expect(stdout).toContain('profile strict');
    expect(stdout).toContain('SILENT    exit 1');
    expect(stdout).toContain('no luck');
    expect(code).toBe(1);
  });

  it('is 1 where there is no boundary, and names what got out', async () => {
    const { code, stdout } = await belay(
      'sandbox',
      'check',
      '--scope',
      scope,
      '--backend',
      'none',
      '--only',
      'files',
      'sockets',
    );
    expect(code).toBe(1);
    expect(stdout).toContain('does NOT hold');
    expect(stdout).toMatch(/ESCAPED {5}write to a file outside/);
  });

  it('is 2 where the back end is not to be had', async () => {
    const { code, stderr } = await belay('sandbox', 'check', '--scope', scope, '--backend', 'seatbelt');
    expect(stderr).toContain("can't test");
    expect(code).toBe(2);
  });

  it('refuses what makes no sense', async () => {
    expect((await belay('sandbox', 'check', '--scope', join(base, 'nowhere'))).code).toBe(65);
    expect((await belay('sandbox', 'check', '--network', 'sometimes')).code).toBe(64);
    expect((await belay('sandbox', 'check', '--profile', 'lax')).code).toBe(64);
    writeFileSync(join(base, 'policy.yaml'), 'version: 1\nsandbox:\n  profile: lax\n');
    const { code, stderr } = await belay('sandbox', 'check', '--policy', join(base, 'policy.yaml'));
    expect(stderr).toContain('line 3');
    expect(code).toBe(65);
  });
});
