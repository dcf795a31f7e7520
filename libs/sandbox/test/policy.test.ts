import { describe, expect, it } from 'vitest';
import { SandboxError } from '../src/error.js';
import {
  DEFAULT_POLICY,
  normalPolicy,
  parseNetwork,
  policyDigest,
  type SandboxPolicy,
} from '../src/policy.js';
import { readPolicyFile } from '../src/policy-file.js';

const policy = (said: Partial<SandboxPolicy>): SandboxPolicy => ({ ...DEFAULT_POLICY, ...said });
const read = (text: string) =>
  readPolicyFile(text, { file: '/etc/belay/p.yaml', home: '/home/ann', others: ['invariants'] });

function thrown(act: () => unknown): SandboxError {
  try {
    act();
  } catch (error) {
    if (error instanceof SandboxError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('a policy', () => {
  it('has one digest for what is one policy', () => {
    const one = policy({
      roots: ['/w/b/', '/w/a', '/w/a'],
      network: { mode: 'ports', ports: [9000, 8080, 9000] },
    });
    const other = policy({ roots: ['/w/a', '/w/./b'], network: { mode: 'ports', ports: [8080, 9000] } });
    expect(policyDigest(one)).toBe(policyDigest(other));
    expect(policyDigest(one)).toMatch(/^sha256:[0-9a-f]{64}$/);
  });

  it('has another digest for anything that is another', () => {
    const base = policy({ roots: ['/w'] });
    const others: Partial<SandboxPolicy>[] = [
      { roots: ['/v'] },
      { profile: 'strict' },
      { backend: 'none' },
      { hide: ['/w/x'] },
      { show: ['/w/x'] },
      { binds: [{ from: '/s', to: '/w' }] },
      { network: { mode: 'allow' } },
      { network: { mode: 'ports', ports: [1] } },
      { limits: { cpu: 1 } },
      { limits: { memory: 1 } },
      { denials: 'off' },
    ];
    const digests = [{}, ...others].map((said) => policyDigest({ ...base, ...said }));
    expect(new Set(digests).size).toBe(digests.length);
  });

  it('is refused where it can not be meant', () => {
    const refused: Partial<SandboxPolicy>[] = [
      { roots: ['/'] },
      { roots: ['/w/..'] },
      { roots: ['relative'] },
      { roots: ['/w\0x'] },
      { hide: ['~/.ssh'] },
      { binds: [{ from: '/s', to: '/' }] },
      { network: { mode: 'ports', ports: [] } },
      { network: { mode: 'ports', ports: [0] } },
      { network: { mode: 'ports', ports: [65_536] } },
      { network: { mode: 'ports', ports: Array.from({ length: 65 }, (_, at) => at + 1) } },
      { limits: { memory: 0 } },
      { limits: { processes: 1.5 } },
    ];
    for (const said of refused) {
      expect(thrown(() => normalPolicy(policy(said))).code, JSON.stringify(said)).toBe('POLICY_REFUSED');
    }
  });

  it('takes the network as the environment says it', () => {
    expect(parseNetwork('deny-all')).toEqual({ mode: 'deny' });
    expect(parseNetwork('allow-all')).toEqual({ mode: 'allow' });
    expect(parseNetwork('loopback')).toEqual({ mode: 'loopback' });
    expect(parseNetwork('allow-ports:8080,9000')).toEqual({ mode: 'ports', ports: [8080, 9000] });
    for (const text of [
      '',
      'open',
      'allow-ports:',
      'allow-ports:80,',
      'allow-ports: 80',
      'DENY-ALL',
      'allow-ports:x',
    ]) {
      expect(thrown(() => parseNetwork(text)).code, text).toBe('POLICY_REFUSED');
    }
  });
});

describe('a policy file', () => {
  it('is read as YAML and as JSON, paths from where it lies', () => {
    const yaml = `version: 1
sandbox:
  profile: strict
  roots: [work, /srv/data, ~/projects]
  hide: [~/.cache]
  network: ports
  ports: [8080]
  limits: {memory: 512MiB, processes: 64, cpu: 60, fileSize: 1048576}
invariants: {anything: [goes, here]}
`;
    const expected = {
      profile: 'strict',
      roots: ['/etc/belay/work', '/srv/data', '/home/ann/projects'],
      hide: ['/home/ann/.cache'],
      network: { mode: 'ports', ports: [8080] },
      limits: { memory: 536_870_912, processes: 64, cpu: 60, fileSize: 1_048_576 },
    };
    expect(read(yaml)).toEqual(expected);
    const json = {
      version: 1,
      sandbox: { ...expected, roots: ['work', '/srv/data', '~/projects'], network: 'ports', ports: [8080] },
    };
    expect(read(JSON.stringify(json, undefined, 2))).toEqual(expected);
  });

  it('says nothing where nothing is said', () => {
    expect(read('version: 1\n')).toEqual({});
    expect(read('version: 1\nsandbox: {}\n')).toEqual({});
  });

  it.each([
    ['version: 1\nsandbox:\n  profil: strict\n', 3, 'sandbox.profil'],
    ['version: 1\nsandbox:\n  roots:\n    - /a\n    - 7\n', 5, 'sandbox.roots.1'],
    ['version: 1\nsandbox:\n  network: open\n', 3, 'sandbox.network'],
    ['version: 1\nsandbox:\n  network: ports\n', 3, 'network: ports needs ports'],
    ['version: 1\nsandbox:\n  ports: [1]\n', 3, 'ports: only with'],
    ['version: 1\nsandbox:\n  network: ports\n  ports:\n    - 80\n    - 65536\n', 6, 'at most 65535'],
    ['version: 1\nsandbox:\n  limits:\n    memory: 1GB\n', 4, 'sandbox.limits.memory'],
    ['version: 1\nsandbox:\n  binds:\n    - {from: /a}\n', 4, 'to is missing'],
    ['version: 1\nsandbox:\n  roots: []\n  roots: []\n', 4, 'unique'],
    ['version: 1\nsandbox: [\n', 3, ''],
    ['version: 2\n', 1, 'version'],
    ['sandbox: {}\n', 1, 'version is missing'],
    ['version: 1\nsandbox:\n  hide: ""\n', 3, 'a list is wanted'],
    ['version: 1\nsandbox:\n  hide: [""]\n', 3, 'may not be empty'],
    ['version: 1\nother: 1\n', 2, 'no such member'],
    ['- 1\n', 1, 'members are wanted'],
    ['', 1, 'members are wanted'],
    ['version: 1\nsandbox:\n  roots: &a [/x]\n  hide: *a\n', 1, 'alias'],
    ['version: 1\nsandbox:\n  __proto__: {}\n', 3, 'no such member'],
  ])('is refused by line: %j', (text, line, message) => {
    const error = thrown(() => read(text));
    expect(error.code).toBe('POLICY_INVALID');
    expect(error.message).toContain(message);
    expect(error.line).toBe(line);
  });
});
