import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

function run(bin: string, ...args: string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(root, 'node_modules', bin), ...args], {
    cwd: root,
    encoding: 'utf8',
  });
  return { status, output: `${stdout}${stderr}`.slice(-6000) };
}

it('oxlint finds nothing, promises left floating included', () => {
  expect(run('oxlint/bin/oxlint', '--type-aware', '--deny-warnings')).toMatchObject({ status: 0 });
});

it('every file is formatted', () => {
  expect(run('prettier/bin/prettier.cjs', '--list-different', '.')).toEqual({ status: 0, output: '' });
});

it('the tests compile too', () => {
  // The packages are compiled before the suite starts; the tests themselves run from source, where no type is checked.
  expect(run('typescript/bin/tsc', '-b', 'test')).toEqual({ status: 0, output: '' });
});
