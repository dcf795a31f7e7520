import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import type { Verification } from '../src/verification.js';
import { node, program } from './proxied.js';
import { RecordedSession, verified, words } from './session.js';

const require = createRequire(import.meta.url);
/** The program of a server that is installed as a package. */
const installed = (name: string): string =>
  join(dirname(require.resolve(`@modelcontextprotocol/${name}/package.json`)), 'dist', 'index.js');
const python = execFileSync('python3', ['-c', 'import sys; print(sys.executable)'], {
  encoding: 'utf8',
}).trim();
const script = (name: string): string => fileURLToPath(new URL(`programs/${name}`, import.meta.url));

/** What is not PASS or WARN, with the reasons. */
const failed = ({ parts }: Verification): string[] =>
  parts.flatMap(({ verdict, ...part }) =>
    verdict.status === 'PASS' || verdict.status === 'WARN'
      ? []
      : [
          `${'turn' in part ? `${part.turn} ${part.tool}` : part.type}: ${verdict.status} ${verdict.cause}: ` +
            verdict.judgements
              .filter(({ status }) => status === verdict.status)
              .map(({ message, evidence }) => `${message} ${JSON.stringify(evidence)}`)
              .join('; '),
        ],
  );

test('an honest git server: status, add, commit, log, branches', async () => {
  const session = await RecordedSession.start(undefined, {
    server: (workspace) => [node, program('git-server'), workspace],
  });
  await session.call('git_init');
  for (const [i, name] of ['a', 'b', 'c'].entries()) {
    await session.call('write_file', { path: `${name}.txt`, text: `${name}\n`.repeat(i + 1) });
    await session.call('git_status');
    await session.call('git_add', { path: `${name}.txt` });
    expect(await session.call('git_commit', { message: `add ${name}` })).toContain(`add ${name}`);
    await session.call('git_log');
  }
  await session.call('git_branch', { name: 'side' });
  await session.call('write_file', { path: 'a.txt', text: 'other\n' });
  await session.call('git_diff');
  await session.call('git_show');
  const found = await verified(await session.end());
  expect(failed(found)).toEqual([]);
  expect(words(found).filter((word) => word === 'WARN VOLATILE_RESULT').length).toBeGreaterThan(2);
});

test('honest servers in Python: SQLite, a watcher, a suite that is run', async () => {
  const session = await RecordedSession.start(
    (workspace) => {
      mkdirSync(join(workspace, 'tests'));
      writeFileSync(
        join(workspace, 'test_sums.py'),
        'import unittest\n\n\nclass Sums(unittest.TestCase):\n    def test_sum(self):\n        self.assertEqual(1 + 1, 2)\n',
      );
    },
    { server: (workspace) => [python, script('desk.py'), workspace] },
  );
  await session.call('sql', { statement: 'create table notes (id integer primary key, text text)' });
  for (const text of ['one', 'two', 'three']) {
    await session.call('sql', { statement: `insert into notes (text) values ('${text}')` });
  }
  expect(await session.call('sql', { statement: 'select * from notes' })).toContain('three');
  await session.call('changes');
  await session.call('write', { path: 'note.txt', text: 'x' });
  expect(await session.call('changes')).toContain('note.txt');
  expect(await session.call('run_tests')).toContain('OK');
  expect(await session.call('run_tests')).toContain('OK');
  expect(failed(await verified(await session.end()))).toEqual([]);
});

test('server-filesystem, server-memory and server-everything', async () => {
  const filesystem = await RecordedSession.start(
    (workspace) => writeFileSync(join(workspace, 'a.txt'), 'alpha\n'),
    {
      server: (workspace) => [node, installed('server-filesystem'), workspace],
    },
  );
  const at = (name: string): string => join(filesystem.workspace, name);
  await filesystem.call('read_text_file', { path: at('a.txt') });
  await filesystem.call('write_file', { path: at('b.txt'), content: 'beta\n' });
  await filesystem.call('edit_file', { path: at('b.txt'), edits: [{ oldText: 'beta', newText: 'gamma' }] });
  await filesystem.call('create_directory', { path: at('d') });
  await filesystem.call('move_file', { source: at('b.txt'), destination: at('d/b.txt') });
  await filesystem.call('list_directory', { path: at('.') });
  await filesystem.call('directory_tree', { path: at('.') });
  await filesystem.call('search_files', { path: at('.'), pattern: '**/*.txt' });
  await filesystem.call('get_file_info', { path: at('a.txt') });
  await filesystem.call('read_text_file', { path: at('missing.txt') });
  expect(failed(await verified(await filesystem.end()))).toEqual([]);

  const memory = await RecordedSession.start(undefined, {
    server: (workspace) => [
      'env',
      `MEMORY_FILE_PATH=${join(workspace, 'memory.jsonl')}`,
      node,
      installed('server-memory'),
    ],
  });
  const entities = [{ name: 'Ann', entityType: 'person', observations: ['likes tea'] }];
  await memory.call('create_entities', { entities });
  await memory.call('add_observations', { observations: [{ entityName: 'Ann', contents: ['reads'] }] });
  await memory.call('search_nodes', { query: 'tea' });
  await memory.call('read_graph');
  await memory.call('delete_entities', { entityNames: ['Ann'] });
  await memory.call('read_graph');
  expect(failed(await verified(await memory.end()))).toEqual([]);

  const everything = await RecordedSession.start(undefined, {
    server: () => [node, installed('server-everything'), 'stdio'],
  });
  await everything.call('echo', { message: 'é😀' });
  await everything.call('get-sum', { a: 1, b: 2 });
  await everything.call('get-tiny-image');
  await everything.call('get-structured-content', { location: 'Chicago' });
  await everything.call('trigger-long-running-operation', { duration: 1, steps: 2 });
  expect(failed(await verified(await everything.end()))).toEqual([]);
}, 60_000);
