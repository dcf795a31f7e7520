import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { barrels, cycles, direction, doors, effects, homes, loads, manifests, unused } from './rules.js';
import { MODULE_FILE, readTree, withFiles } from './tree.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const tree = readTree(root);
const NEST_OR_POSTGRES = /^(@nestjs\/|pg$|kysely$|bullmq$|ioredis$)/;

describe('the tree as it is', () => {
  it('was looked at whole', () => {
    // git counts the files by its own walk, so a walker that sees nothing can't report that nothing is wrong.
    const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
      cwd: root,
      encoding: 'utf8',
    });
    const onDisk = listed
      .split('\n')
      .filter((path) => MODULE_FILE.test(path) && existsSync(join(root, path)));
    expect([...tree.modules.keys()]).toEqual([...new Set(onDisk)].sort());
    const imports = [...tree.modules.values()].reduce((sum, each) => sum + each.imports.length, 0);
    expect(imports).toBeGreaterThan(tree.modules.size);
    console.log(
      `looked at ${tree.modules.size} modules and ${imports} imports in ${tree.packages.size} packages`,
    );
  });

  it.each([
    ['direction: who may import whom', direction],
    ['doors: nothing is entered past its exports', doors],
    ['no barrels', barrels],
    ['homes: Nest in apps, PostgreSQL in libs/db, log keys with the signer', homes],
    ['effects: pure libs are pure, process.env only in config.ts, no eval, no shell', effects],
    ['no cycles', cycles],
    ['no export that nobody imports', unused],
  ])('%s', (_title, rule) => {
    expect(rule(tree)).toEqual([]);
  });

  it('package.json and tsconfig.json say what the sources import', () => {
    expect(manifests(tree, root)).toEqual([]);
  });

  it('starting the CLI loads neither Nest nor PostgreSQL', () => {
    const loaded = [...loads(tree, 'apps/belay/src/main.ts')];
    expect(loaded).toContain('commander');
    expect(loaded.filter((name) => NEST_OR_POSTGRES.test(name))).toEqual([]);
  });

  it.each(['proxy', 'forward', 'otlp', 'login', 'wrap', 'trace'])(
    'belay %s never loads them, lazily or not',
    (command) => {
      const entry = `apps/belay/src/${command}.ts`;
      expect(tree.modules.has(entry)).toBe(true);
      expect([...loads(tree, entry, true)].filter((name) => NEST_OR_POSTGRES.test(name))).toEqual([]);
    },
  );
});

describe('one wrong line in the real tree is caught', () => {
  const path = 'libs/merkle/src/zz.ts';
  const cases: [string, (tree: ReturnType<typeof readTree>) => string[], Record<string, string>, RegExp][] = [
    ['an upward import', direction, { [path]: `import { signNote } from '@belay/note';` }, /merkle may not/],
    ['a type-only upward import', direction, { [path]: `import type { A } from '@belay/log';` }, /may not/],
    [
      'more than types of contracts in log',
      direction,
      { 'libs/log/src/zz.ts': `import { x } from '@belay/contracts';` },
      /log may not import contracts/,
    ],
    ['an upward re-export', direction, { [path]: `export { x } from '@belay/db';` }, /may not import db/],
    ['a lazy upward import', direction, { [path]: `await import('@belay/note');` }, /may not/],
    [
      'a lib importing an app',
      direction,
      { [path]: `import { M } from '@belay/gateway';` },
      /the app gateway/,
    ],
    ['testkit in a source', direction, { [path]: `import { f } from '@belay/testkit';` }, /tests only/],
    [
      'an app importing another',
      direction,
      { 'apps/gateway/src/zz.ts': `import { M } from '@belay/collector';` },
      /the app collector/,
    ],
    [
      'the service loaded eagerly by a command',
      direction,
      { 'apps/belay/src/login.ts': `import { startService } from './serve.js';` },
      /loads the service eagerly/,
    ],
    ['a deep import', doors, { [path]: `import { a } from '@belay/keys/src/x509.js';` }, /deep import/],
    [
      'a path into another package',
      doors,
      { [path]: `import { a } from '../../note/src/note.js';` },
      /reaches/,
    ],
    ['a path that does not exist', doors, { [path]: `import { a } from './nowhere.js';` }, /no such module/],
    ['a barrel', barrels, { [path]: `export * from './tree.js';` }, /export \*/],
    [
      'the door imported from inside',
      barrels,
      { [path]: `import { leafHash } from './index.js';` },
      /inside/,
    ],
    ['a utils file', barrels, { 'libs/merkle/src/utils.ts': '' }, /named after nothing/],
    ['Nest in a lib', homes, { [path]: `import { Module } from '@nestjs/common';` }, /does not belong/],
    ['pg outside db', homes, { 'apps/gateway/src/zz.ts': `import pg from 'pg';` }, /pg does not belong/],
    [
      'the gateway taking a log key',
      homes,
      { 'apps/gateway/src/zz.ts': `import { deriveLogSeed } from '@belay/keys';` },
      /only the collector/,
    ],
    ['a clock in a pure lib', effects, { [path]: `export const now = Date.now();` }, /Date.now/],
    ['a file read in a pure lib', effects, { [path]: `import { readFileSync } from 'node:fs';` }, /node:fs/],
    ['randomness in a pure lib', effects, { [path]: `import { randomBytes } from 'node:crypto';` }, /random/],
    [
      'process.env in a source',
      effects,
      { 'libs/db/src/zz.ts': `console.log(process.env.X);` },
      /process\.env/,
    ],
    ['eval', effects, { [path]: `eval('1');` }, /eval/],
    ['a shell', effects, { 'libs/db/src/zz.ts': `spawn('a', { shell: true });` }, /shell/],
    ['exec', effects, { 'libs/db/src/zz.ts': `import { exec } from 'node:child_process';` }, /shell string/],
    [
      'a cycle of two',
      cycles,
      {
        [path]: `import { a } from './zy.js';`,
        'libs/merkle/src/zy.ts': `import type { b } from './zz.js';`,
      },
      /zz\.ts -> .*zy\.ts -> .*zz\.ts|zy\.ts -> .*zz\.ts -> .*zy\.ts/,
    ],
    [
      'an export that nobody imports',
      unused,
      { [path]: `export function forgotten(): void {}` },
      /forgotten/,
    ],
    [
      'an undeclared dependency',
      (each) => manifests(each, root),
      { [path]: `import left from 'left-pad';` },
      /imports left-pad without declaring/,
    ],
  ];

  it.each(cases)('%s', (_title, rule, files, message) => {
    const before = rule(tree);
    const found = rule(withFiles(tree, files)).filter((each) => !before.includes(each));
    expect(found.length).toBeGreaterThan(0);
    expect(found.join('\n')).toMatch(message);
  });

  it('a dependency that nothing imports', () => {
    const packages = new Map(tree.packages);
    const merkle = packages.get('@belay/merkle');
    if (!merkle) throw new Error('no merkle package');
    packages.set('@belay/merkle', {
      ...merkle,
      manifest: { ...merkle.manifest, dependencies: { 'left-pad': '1.0.0' } },
    });
    expect(manifests({ ...tree, packages }, root).join('\n')).toMatch(
      /declares left-pad and never imports it/,
    );
  });

  it('Nest behind the proxy, however deep', () => {
    const poisoned = withFiles(tree, {
      'apps/belay/src/proxy.ts': `import { x } from './zz.js';`,
      'apps/belay/src/zz.ts': `const m = await import('@nestjs/core');`,
    });
    expect([...loads(poisoned, 'apps/belay/src/proxy.ts', true)]).toContain('@nestjs/core');
  });
});
