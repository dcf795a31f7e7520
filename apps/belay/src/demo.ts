/**
 * The main job once, end to end, with real parts: the service on a PostgreSQL of its own, an official MCP server and
 * one with bad habits behind `belay proxy`, each in a boundary, the official MCP client in front; every call judged by
 * running it again, the verdicts told to the log, a receipt, its offline verification, and four tampered copies refused.
 * A development program: it is not part of the `belay` command and uses development dependencies.
 */

import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { EventList, ProjectCreated, TenantCreated, TokenIssued } from '@belay/contracts/http';
import { type Envelope, parseEntry } from '@belay/envelope';
import type { Report } from '@belay/receipt';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { readConfig } from './config.js';
import { BELAY, freePort, Machine, type Missing } from './demo-machine.js';
import { HABITS, statusText, turnsOf, verdictLines, WEAKENED } from './demo-verdicts.js';
import { styleFor } from './output.js';
import { messageOf, statusCounts } from './report-text.js';
import { Service } from './service.js';
import { tamperings } from './tamper.js';
import type { TurnPart, Verification } from './verification.js';

const FLUSH_MS = 15_000;
const style = styleFor(readConfig());
const machine = new Machine(readConfig().environment);

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

const chapter = (title: string): void => say(`\n  ${style.bold(title)}`);

async function step<T>(title: string, work: () => Promise<T>): Promise<T> {
  process.stdout.write(`    ${title.padEnd(70, ' ')}`);
  const began = performance.now();
  const result = await work();
  say(style.dim(`${((performance.now() - began) / 1_000).toFixed(1)} s`));
  return result;
}

type Environment = Readonly<Record<string, string>>;
type Call = readonly [tool: string, given: Readonly<Record<string, unknown>>];

/** A server behind the proxy, and what an agent asks of it. */
interface Session {
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

/** The official file server: a dozen calls of an ordinary working day, and one that should not have been made. */
function ordinaryDay(workspace: string): Session {
  const at = (name: string): string => join(workspace, name);
  mkdirSync(at('tests'), { recursive: true });
  writeFileSync(at('tests/test_refunds.py'), TEST);
  const server = createRequire(import.meta.url).resolve(
    '@modelcontextprotocol/server-filesystem/package.json',
  );
  return {
    workspace,
    server: [process.execPath, join(dirname(server), 'dist/index.js'), workspace],
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

/** The server of the demo, which has a tool for each verdict; `port` is what one of them asks. */
function badHabits(workspace: string, port: number): Session {
  mkdirSync(workspace);
  writeFileSync(join(workspace, 'tickets.csv'), '12,broken kettle,open\n13,wrong size,open\n');
  const program = fileURLToPath(new URL('demo-server.js', import.meta.url));
  return {
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

interface Traffic {
  readonly calls: number;
  readonly errors: number;
  readonly medianMs: number;
}

/** The official client, through the proxy, to the server of a session. */
async function drive(environment: Environment, session: Session, boundary: string[]): Promise<Traffic> {
  const { workspace, server, calls } = session;
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [BELAY, 'proxy', '--workspace', workspace, ...boundary, '--hold-limit', '5000', '--', ...server],
    env: { ...getDefaultEnvironment(), ...environment },
    stderr: 'pipe',
  });
  let words = '';
  transport.stderr?.on('data', (chunk: Buffer) => (words += chunk));
  const client = new Client({ name: 'belay-demo', version: '0.1.0' });
  await client.connect(transport).catch((error: unknown) => {
    throw new Error(`${(error as Error).message}: ${words}`);
  });
  const times: number[] = [];
  let errors = 0;
  try {
    await client.listTools();
    for (const [name, given] of calls) {
      const began = performance.now();
      const result = await client.callTool({ name, arguments: given });
      times.push(performance.now() - began);
      if (result.isError === true) errors += 1;
    }
  } finally {
    await client.close();
  }
  times.sort((a, b) => a - b);
  return { calls: calls.length, errors, medianMs: times[Math.floor(times.length / 2)] ?? 0 };
}

/** An entry of the log that a sink sent. */
interface Sent {
  readonly index: number;
  readonly envelope: Envelope;
}

/** What the log holds of a sink, read as the auditor, once the given number of its runs has ended. */
async function sentBy(sink: string, runs: number, url: string, project: ProjectCreated): Promise<Sent[]> {
  const service = new Service(url, project.auditor.credential);
  const until = Date.now() + FLUSH_MS;
  for (;;) {
    const sent: Sent[] = [];
    for (let cursor = ''; ;) {
      const path = `/v1/projects/${project.project}/events?sink=${sink}${cursor}`;
      const page = await service.json<EventList>('GET', path);
      for (const { index, entry } of page.events) {
        const parsed = parseEntry(Buffer.from(entry));
        if (parsed.by === 'sender') sent.push({ index, envelope: parsed.envelope });
      }
      if (page.next === undefined) break;
      cursor = `&cursor=${page.next}`;
    }
    if (sent.filter(({ envelope }) => envelope.kind === 'epoch.close').length >= runs) return sent;
    if (Date.now() > until) throw new Error(`the events of ${sink} did not arrive`);
    await sleep(100);
  }
}

function countKinds(sent: readonly Sent[]): string {
  const kinds = new Map<string, number>();
  for (const { envelope } of sent) kinds.set(envelope.kind, (kinds.get(envelope.kind) ?? 0) + 1);
  return [...kinds].map(([kind, n]) => `${n} ${kind}`).join(', ');
}

/** Both sessions, call by call: what has to pass as a count, the rest one by one. */
function sayVerdicts(day: Verification, habits: Verification): void {
  const honest = turnsOf(day).slice(0, -1);
  const weakened = turnsOf(day).at(-1) as TurnPart;
  const bad = honest.find(({ verdict }) => verdict.status !== 'PASS' && verdict.status !== 'WARN');
  if (bad !== undefined)
    throw new Error(`${bad.tool} came to ${bad.verdict.status}: ${bad.verdict.cause}: ${messageOf(bad)}`);
  const warned = honest.filter(({ verdict }) => verdict.status === 'WARN').length;
  const row = (status: 'PASS' | 'WARN', count: number, words: string): string =>
    `  ${statusText(status, style)}  ${style.bold(`${count} ${count === 1 ? 'call' : 'calls'}`.padEnd(15))}  ${words}`;
  say(
    `\n${row('PASS', honest.length - warned, 'of the official file server: run again, they did and said the same')}`,
  );
  if (warned > 0) say(row('WARN', warned, 'of it, the same but for times'));
  process.stdout.write(verdictLines(weakened, WEAKENED, style));
  for (const [i, expected] of HABITS.entries()) {
    const turn = turnsOf(habits)[i];
    if (turn === undefined) throw new Error(`there is no verdict on ${expected.tool}`);
    process.stdout.write(verdictLines(turn, expected, style));
  }
}

/** What the log has of the verdict that a tool got, as its receipt shows it. */
function sayEntry({ index, envelope }: Sent): void {
  const { status, cause, pre_index: pre, call_index: call, result_index: result } = envelope.attrs ?? {};
  say(
    `  entry ${index}, by ${envelope.sink}: verdict ${style.bold(String(status))} ${String(cause)}, of entries ${String(pre)} (state before), ${String(call)} (call), ${String(result)} (answer)`,
  );
}

/** One line that helps, for what keeps calls from being judged here. */
function helpFor(missing: readonly Missing[]): string {
  if (process.platform !== 'linux')
    return 'a Linux machine, or a container of one: replays run in its name spaces';
  const refused = missing.find((each) => each.refused !== undefined);
  if (refused !== undefined) {
    return `bubblewrap is here and may not be used (${refused.refused}): let users make user name spaces, or run this as root`;
  }
  return `${process.getuid?.() === 0 ? '' : 'sudo '}apt-get install ${missing.map(({ debian }) => debian).join(' ')}`;
}

function failedChecks(report: Report): string[] {
  return report.checks.filter(({ status }) => status === 'failed').map(({ name }) => name);
}

async function sayTamperings(receipt: string, scratch: string, own: Environment, vkey: string) {
  const verified = await machine.json<Report>(own, ['receipt', 'verify', receipt, '--key', vkey]);
  say(
    `\n  ${style.bold('the receipt as issued'.padEnd(42))}${verified.verdict === 'VALID' ? style.good('VALID') : style.bad(verified.verdict)}  ${style.dim(`${verified.checks.length} checks, ${statSync(receipt).size} bytes`)}`,
  );
  if (verified.verdict !== 'VALID')
    throw new Error(`the receipt is refused by: ${failedChecks(verified).join(', ')}`);
  for (const { what, refusedBy, bytes } of tamperings(await readFile(receipt))) {
    const copy = join(scratch, 'tampered.json');
    writeFileSync(copy, bytes);
    const report = await machine.json<Report>(own, ['receipt', 'verify', copy, '--key', vkey]);
    const failed = failedChecks(report);
    const others = failed.filter((name) => name !== refusedBy);
    say(
      `  ${what.padEnd(42)}${style.bad(report.verdict)}  by ${style.bold(refusedBy)}${others.length === 0 ? '' : style.dim(`, and ${others.join(', ')}`)}`,
    );
    if (report.verdict !== 'INVALID' || !failed.includes(refusedBy)) {
      throw new Error(`tampering with ${what} was not refused by the check that is there for it`);
    }
  }
}

const shown = (file: string): string => {
  const near = relative(process.cwd(), file);
  return near.startsWith('..') ? file : near;
};

async function demo(): Promise<void> {
  const began = performance.now();
  const scratch = mkdtempSync(join(tmpdir(), 'belay-demo-'));
  // Started as root, PostgreSQL runs as another user, which has to get to its own folder through this one.
  chmodSync(scratch, 0o711);
  const kept = mkdtempSync(join(tmpdir(), 'belay-receipt-'));
  const rates = createHttpServer((_request, response) => response.end('1 EUR is 1.0842 USD')).unref();
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const state = join(scratch, 'state');
  // Nothing of the person who runs the demo is read or written: no credentials, no traces, no spool.
  const own = {
    BELAY_URL: '',
    BELAY_TOKEN: '',
    BELAY_STATE: state,
    XDG_CONFIG_HOME: join(scratch, 'config'),
  };
  const missing = machine.missing();
  const contained = !missing.some(({ program }) => program === 'bwrap');

  say(`\n${style.bold('Belay: the main job, end to end')}`);
  if (missing.length > 0) {
    const lost = contained ? 'what a boundary refuses is not told by name' : 'no call can be judged';
    say(
      style.warn(`\n  Without ${missing.map(({ program }) => program).join(' and ')}, ${lost}. To have it:`),
    );
    say(`    ${helpFor(missing)}`);
  }
  try {
    chapter('A service of your own');
    const operator = await step('gateway, collector, worker, an embedded PostgreSQL', () =>
      machine.startService(join(scratch, 'data'), port),
    );
    const tenant = await step('tenant', () =>
      machine.json<TenantCreated>({ ...own, BELAY_OPERATOR_KEY: operator }, [
        'tenant',
        'create',
        '--name',
        'demo',
        '--url',
        url,
      ]),
    );
    const admin = { ...own, BELAY_ADMIN_KEY: tenant.admin.credential };
    const project = await step('project: a log, an append token, a key for the sink', () =>
      machine.json<ProjectCreated>(admin, ['project', 'register', '--name', 'files', '--url', url]),
    );

    chapter(`Record: official client, belay proxy, server${contained ? ' in a boundary' : ''}`);
    await new Promise<void>((resolve) => rates.listen(0, '127.0.0.1', resolve));
    const ratesPort = (rates.address() as { port: number }).port;
    const day = ordinaryDay(join(scratch, 'files'));
    const habits = badHabits(join(scratch, 'tickets'), ratesPort);
    const boundary = contained ? ['--sandbox', 'default'] : [];
    const traffic = await step(
      `official file server, ${day.calls.length} calls, the last one not so innocent`,
      () => drive(own, day, boundary),
    );
    await step(`a server with bad habits, ${habits.calls.length} calls`, () =>
      drive(
        contained ? { ...own, BELAY_SANDBOX_NETWORK: `allow-ports:${ratesPort}` } : own,
        habits,
        boundary,
      ),
    );
    const run = await step('events streamed, every ack verified', () => sentBy('proxy', 2, url, project));
    say(
      style.dim(
        `    a call takes ${traffic.medianMs.toFixed(1)} ms (median), states of its folder included; the log has ${countKinds(run)}`,
      ),
    );

    let verdicts: Sent[] = [];
    let failed: Sent | undefined;
    if (contained) {
      chapter('Judge: every call again, on its state, no network, no model');
      const verifier = await step('a token for a verifier, and its key', async () => {
        const of = ['--project', project.project, '--url', url];
        await machine.belay(admin, [
          'sink',
          'declare',
          'verifier',
          '--kind',
          'verifier',
          '--domain',
          'audit',
          '--generate-key',
          ...of,
        ]);
        return await machine.json<TokenIssued>(admin, [
          'token',
          'issue',
          '--role',
          'verifier',
          '--sink',
          'verifier',
          '--domain',
          'audit',
          ...of,
        ]);
      });
      const traces = readdirSync(join(state, 'traces')).map((name) => join(state, 'traces', name));
      const found = await step('both sessions run again, verdicts told to the log', () =>
        machine.json<readonly Verification[]>({ ...own, BELAY_URL: url, BELAY_TOKEN: verifier.credential }, [
          'verify',
          '--attest',
          ...traces,
        ]),
      );
      const [first, second] = [day, habits].map(({ workspace }) =>
        found.find(({ server }) => server.includes(workspace)),
      );
      if (first === undefined || second === undefined) throw new Error('a session was not judged');
      sayVerdicts(first, second);
      verdicts = await sentBy('verifier', 2, url, project);
      failed = verdicts.find(({ envelope }) => envelope.attrs?.['cause'] === 'WROTE_THOUGH_READ_ONLY');
      if (failed === undefined) throw new Error('the log has no verdict on the reader that writes');
      say('');
      sayEntry(failed);
      say(
        style.dim(
          `  with what each session came to as a whole: ${found.map(({ tally }) => statusCounts(tally)).join('; ')}`,
        ),
      );
    }

    chapter('Prove');
    const file = join(kept, 'receipt.json');
    const verdictFile = join(kept, 'verdict.json');
    const auditor = { ...own, BELAY_AUDITOR_KEY: project.auditor.credential };
    const all = [...run, ...verdicts].map(({ index }) => index);
    await step('checkpoint, a receipt for all of it', () =>
      machine.belay(auditor, [
        'receipt',
        'get',
        '--url',
        url,
        '--out',
        file,
        '--range',
        `${Math.min(...all)}..${Math.max(...all)}`,
      ]),
    );
    if (failed !== undefined) {
      const { index } = failed;
      await step('a receipt for the verdict on the reader that writes', () =>
        machine.belay(auditor, [
          'receipt',
          'get',
          '--url',
          url,
          '--event',
          String(index),
          '--out',
          verdictFile,
        ]),
      );
    }
    await step('service stopped', () => machine.end());
    await sayTamperings(file, scratch, own, project.vkey);
    if (failed !== undefined) {
      const report = await machine.json<Report>(own, [
        'receipt',
        'verify',
        verdictFile,
        '--key',
        project.vkey,
      ]);
      say(
        `  ${style.bold('the receipt for the verdict'.padEnd(42))}${report.verdict === 'VALID' ? style.good('VALID') : style.bad(report.verdict)}`,
      );
      if (report.verdict !== 'VALID')
        throw new Error(`the receipt for the verdict is refused by: ${failedChecks(report).join(', ')}`);
    }

    say(`
  Done in ${((performance.now() - began) / 1_000).toFixed(1)} s; nothing is left running. Go on by hand:

    npx belay receipt show ${shown(failed === undefined ? file : verdictFile)}
    npx belay receipt verify ${shown(file)} --key ${project.vkey}
    npx belay serve                       ${style.dim('# a service of your own; the README goes on from there')}
`);
  } finally {
    rates.close();
    rates.closeAllConnections();
    await machine.end();
    rmSync(scratch, { recursive: true, force: true });
  }
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void machine.end().finally(() => process.exit(130)));
}

try {
  await demo();
} catch (error) {
  process.stderr.write(`\nThe demo failed: ${(error as Error).message}\n`);
  process.exitCode = 1;
}
