import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const pages = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], {
  cwd: root,
  encoding: 'utf8',
})
  .split('\n')
  .filter((path) => path !== '' && existsSync(join(root, path)));
const text = (page: string): string => readFileSync(join(root, page), 'utf8');

/** GitHub's anchor of a heading. */
const anchor = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');

const anchors = (page: string): string[] =>
  [...text(page).matchAll(/^#+ (.*)$/gm)].map((match) => anchor(match[1] ?? ''));

describe.each(pages)('%s', (page) => {
  it('links only to what is there', () => {
    for (const [, target = ''] of text(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const [path = '', fragment] = target.split('#');
      const file = path === '' ? page : join(dirname(page), path);
      expect(existsSync(join(root, file)), `${page} -> ${target}`).toBe(true);
      if (fragment !== undefined) expect(anchors(file), `${page} -> ${target}`).toContain(fragment);
    }
  });

  it('names only folders and files that are there', () => {
    for (const [, path = ''] of text(page).matchAll(
      /`((?:apps|libs|test|infra|\.ci|prisma-free-migrations)\/[\w./-]*)`/g,
    )) {
      // From the top, or, on a package's own page, from the package.
      const found = [root, join(root, dirname(page))].some((base) => existsSync(join(base, path)));
      expect(found, `${page} names ${path}`).toBe(true);
    }
  });

  it('names only npm scripts that are there', () => {
    const { scripts } = JSON.parse(text('package.json')) as { scripts: Record<string, string> };
    for (const [, script = ''] of text(page).matchAll(/npm run ([a-z:-]+)/g)) {
      expect(scripts, `${page} says npm run ${script}`).toHaveProperty(script);
    }
  });
});

describe('commands named in the pages', () => {
  const named = new Set<string>();
  for (const page of pages) {
    for (const [, command = ''] of text(page).matchAll(/(?:`|npx )belay ((?:[a-z]+ ?){1,2})/g)) {
      named.add(command.trim());
    }
  }

  it('were found', () => {
    expect(named.size).toBeGreaterThan(15);
  });

  it.each([...named].sort())('belay %s', (command) => {
    // The program itself is asked, in its compiled form, as a reader would.
    const { status, stdout } = spawnSync(
      process.execPath,
      [join(root, 'apps/belay/bin/belay.js'), ...command.split(' '), '--help'],
      { encoding: 'utf8' },
    );
    expect({ command, status }).toEqual({ command, status: 0 });
    expect(stdout).toContain(`Usage: belay ${command}`);
  });
});
