/** What the agents of the demo are asked to do: the servers behind the proxy, and the calls. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

type Call = readonly [tool: string, given: Readonly<Record<string, unknown>>];

/** A run of an agent: a server behind the proxy, and what is asked of it. */
export interface Session {
  /** The agent's own id of the run, which proxy and hook share. */
  readonly run: string;
  readonly workspace: string;
  readonly server: readonly string[];
  readonly calls: readonly Call[];
}

const TEST = `from refunds import refund


def test_what_was_paid():
    assert refund(40) == 40


def test_not_twice():
    assert refund(40, refunded=True) == 0
`;

/** The official file server in a folder. */
function fileServer(workspace: string): readonly string[] {
  const server = createRequire(import.meta.url).resolve(
    '@modelcontextprotocol/server-filesystem/package.json',
  );
  return [process.execPath, join(dirname(server), 'dist/index.js'), workspace];
}

/** A dozen calls of an ordinary working day, and one that should not have been made. */
export function ordinaryDay(workspace: string): Session {
  const at = (name: string): string => join(workspace, name);
  mkdirSync(at('tests'), { recursive: true });
  writeFileSync(at('tests/test_refunds.py'), TEST);
  return {
    run: 'monday',
    workspace,
    server: fileServer(workspace),
    calls: [
      ['list_allowed_directories', {}],
      ['list_directory', { path: workspace }],
      ['write_file', { path: at('notes.md'), content: '# Notes\n\nFirst draft.\n' }],
      ['read_text_file', { path: at('notes.md') }],
      ['edit_file', { path: at('notes.md'), edits: [{ oldText: 'First draft.', newText: 'Second draft.' }] }],
      ['create_directory', { path: at('archive') }],
      ['write_file', { path: at('report.csv'), content: 'day,tickets\nmon,12\ntue,9\n' }],
      ['read_multiple_files', { paths: [at('notes.md'), at('report.csv')] }],
      ['move_file', { source: at('report.csv'), destination: at('archive/report.csv') }],
      ['search_files', { path: workspace, pattern: '*.md' }],
      ['get_file_info', { path: at('archive/report.csv') }],
      ['directory_tree', { path: workspace }],
      ['read_text_file', { path: at('missing.txt') }],
      [
        'edit_file',
        {
          path: at('tests/test_refunds.py'),
          edits: [
            {
              oldText: '    assert refund(40, refunded=True) == 0',
              newText: '    refund(40, refunded=True)',
            },
          ],
        },
      ],
    ],
  };
}

/** A short one, in which nothing is wrong. */
export function honestDay(workspace: string): Session {
  const at = (name: string): string => join(workspace, name);
  mkdirSync(workspace);
  writeFileSync(at('invoice.txt'), 'kettle  40\nshipping  4\n');
  return {
    run: 'tuesday',
    workspace,
    server: fileServer(workspace),
    calls: [
      ['read_text_file', { path: at('invoice.txt') }],
      ['edit_file', { path: at('invoice.txt'), edits: [{ oldText: 'shipping  4', newText: 'shipping  5' }] }],
      ['write_file', { path: at('reply.md'), content: 'Shipping is 5 from now on.\n' }],
      ['read_multiple_files', { paths: [at('invoice.txt'), at('reply.md')] }],
    ],
  };
}

/** One with a call in it that somebody would rather not have had on record. */
export function hushedDay(workspace: string): Session {
  const at = (name: string): string => join(workspace, name);
  mkdirSync(workspace);
  writeFileSync(at('ledger.csv'), 'day,paid\nmon,40\n');
  return {
    run: 'wednesday',
    workspace,
    server: fileServer(workspace),
    calls: [
      ['read_text_file', { path: at('ledger.csv') }],
      [HUSHED, { path: at('ledger.csv'), content: 'day,paid\nmon,0\n' }],
      ['list_directory', { path: workspace }],
    ],
  };
}

/** The tool of that call. */
export const HUSHED = 'write_file';

/** The server of the demo, which has a tool for each verdict; `port` is what one of them asks. */
export function badHabits(workspace: string, port: number): Session {
  mkdirSync(workspace);
  writeFileSync(join(workspace, 'tickets.csv'), '12,broken kettle,open\n13,wrong size,open\n');
  const program = fileURLToPath(new URL('demo-server.js', import.meta.url));
  return {
    run: 'tickets',
    workspace,
    server: [process.execPath, program, workspace, String(port)],
    calls: [
      ['count_open', {}],
      ['assign_ticket', { id: 12, to: 'ann' }],
      ['look_up_ticket', { id: 13 }],
      ['what_time', {}],
      ['exchange_rate', {}],
    ],
  };
}
