/**
 * The main job once, end to end, with real parts: the service on a PostgreSQL of its own, an official MCP server
 * behind `belay proxy`, the official MCP client in front, a receipt, its offline verification, and four tampered
 * copies refused. A development program: it is not part of the `belay` command and uses development dependencies.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { EventList, ProjectCreated, TenantCreated } from '@belay/contracts/http';
import { parseEntry } from '@belay/envelope';
import type { Report } from '@belay/receipt';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { readFile } from 'node:fs/promises';
import { readConfig } from './config.js';
import { styleFor } from './output.js';
import { Service } from './service.js';
import { tamperings } from './tamper.js';

const BELAY = fileURLToPath(new URL('../bin/belay.js', import.meta.url));
const START_MS = 60_000;
const FLUSH_MS = 15_000;
const style = styleFor(readConfig());

/** Processes to be ended whatever happens, newest first. */
const running: ChildProcess[] = [];

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

async function step<T>(title: string, work: () => Promise<T>): Promise<T> {
  process.stdout.write(`  ${title.padEnd(66, ' ')}`);
  const began = performance.now();
  const result = await work();
  say(style.dim(`${((performance.now() - began) / 1_000).toFixed(1)} s`));
  return result;
}

async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const server = createServer()
      .once('error', reject)
      .listen(0, '127.0.0.1', () => {
        const { port } = server.address() as AddressInfo;
        server.close(() => resolve(port));
      });
  });
}

interface Ran {
  readonly code: number | null;
  readonly stdout: string;
}

/** Runs a `belay` command line as a person would, and says its exit code and what it printed. */
async function belay(environment: Record<string, string>, ...args: string[]): Promise<Ran> {
  const child = spawn(process.execPath, [BELAY, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...readConfig().environment, ...environment },
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  if (code !== null && code >= 64)
    throw new Error(`belay ${args[0]} ${args[1]} failed (${code}): ${stderr}${stdout}`);
  return { code, stdout };
}

async function json<T>(environment: Record<string, string>, ...args: string[]): Promise<T> {
  return JSON.parse((await belay(environment, ...args, '--json')).stdout) as T;
}

/** Starts the service and waits until it is ready; its first start prints the operator key. */
async function startService(data: string, port: number): Promise<string> {
  const service = spawn(process.execPath, [BELAY, 'serve', '--data', data, '--port', String(port)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.push(service);
  let output = '';
  service.stdout.on('data', (chunk: Buffer) => (output += chunk));
  service.stderr.on('data', (chunk: Buffer) => (output += chunk));
  const until = Date.now() + START_MS;
  while (Date.now() < until) {
    if (service.exitCode !== null) throw new Error(`the service ended (${service.exitCode}): ${output}`);
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      (answer) => answer.ok,
      () => false,
    );
    const [key] = /belay_operator_[A-Za-z0-9_-]+/.exec(output) ?? [];
    if (ready && key !== undefined) return key;
    await sleep(50);
  }
  throw new Error(`the service was not ready within ${START_MS / 1_000} s: ${output}`);
}

interface Traffic {
  readonly calls: number;
  readonly errors: number;
  readonly medianMs: number;
}

/** The official client, through the proxy, to the official file server: a dozen calls of an ordinary working day. */
async function driveServer(environment: Record<string, string>, workspace: string): Promise<Traffic> {
  const server = createRequire(import.meta.url).resolve(
    '@modelcontextprotocol/server-filesystem/package.json',
  );
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [
      BELAY,
      'proxy',
      '--workspace',
      workspace,
      '--',
      process.execPath,
      join(dirname(server), 'dist/index.js'),
      workspace,
    ],
    env: { ...getDefaultEnvironment(), ...environment },
    stderr: 'ignore',
  });
  const client = new Client({ name: 'belay-demo', version: '0.1.0' });
  await client.connect(transport);
  const at = (name: string): string => join(workspace, name);
  const calls: [tool: string, given: Record<string, unknown>][] = [
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
  ];
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

interface Recorded {
  readonly first: number;
  readonly last: number;
  readonly kinds: ReadonlyMap<string, number>;
}

/** What the log holds of the proxy's run, read as the auditor, once the run's own last line is there. */
async function recorded(url: string, project: ProjectCreated): Promise<Recorded> {
  const service = new Service(url, project.auditor.credential);
  const until = Date.now() + FLUSH_MS;
  for (;;) {
    const page = await service.json<EventList>('GET', `/v1/projects/${project.project}/events?sink=proxy`);
    const kinds = new Map<string, number>();
    for (const { entry } of page.events) {
      const parsed = parseEntry(Buffer.from(entry));
      if (parsed.by === 'sender') kinds.set(parsed.envelope.kind, (kinds.get(parsed.envelope.kind) ?? 0) + 1);
    }
    const [first, last] = [page.events[0], page.events.at(-1)];
    if (first && last && kinds.has('epoch.close')) return { first: first.index, last: last.index, kinds };
    if (Date.now() > until) throw new Error("the run's events did not arrive");
    await sleep(100);
  }
}

function failedChecks(report: Report): string[] {
  return report.checks.filter(({ status }) => status === 'failed').map(({ name }) => name);
}

async function demo(): Promise<void> {
  const began = performance.now();
  const scratch = mkdtempSync(join(tmpdir(), 'belay-demo-'));
  // Started as root, PostgreSQL runs as another user, which has to get to its own folder through this one.
  chmodSync(scratch, 0o711);
  const kept = mkdtempSync(join(tmpdir(), 'belay-receipt-'));
  const workspace = join(scratch, 'workspace');
  mkdirSync(workspace);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  // Nothing of the person who runs the demo is read or written: no credentials, no traces, no spool.
  const machine = {
    BELAY_URL: '',
    BELAY_TOKEN: '',
    BELAY_STATE: join(scratch, 'state'),
    XDG_CONFIG_HOME: join(scratch, 'config'),
  };

  say(`\n${style.bold('Belay: the main job, end to end')}\n`);
  try {
    const operator = await step('service on an embedded PostgreSQL', () =>
      startService(join(scratch, 'data'), port),
    );
    const tenant = await step('tenant', () =>
      json<TenantCreated>(
        { ...machine, BELAY_OPERATOR_KEY: operator },
        'tenant',
        'create',
        '--name',
        'demo',
        '--url',
        url,
      ),
    );
    const project = await step('project: a log, an append token, a key for the sink', () =>
      json<ProjectCreated>(
        { ...machine, BELAY_ADMIN_KEY: tenant.admin.credential },
        'project',
        'register',
        '--name',
        'files',
        '--url',
        url,
      ),
    );
    const traffic = await step('official file server behind belay proxy, official client in front', () =>
      driveServer(machine, workspace),
    );
    const run = await step('events streamed, every ack verified', () => recorded(url, project));
    const file = join(kept, 'receipt.json');
    const auditor = { ...machine, BELAY_AUDITOR_KEY: project.auditor.credential };
    await step('checkpoint, receipt for the run', () =>
      belay(auditor, 'receipt', 'get', '--url', url, '--range', `${run.first}..${run.last}`, '--out', file),
    );
    await step('service stopped', stopAll);
    const verified = await step('receipt verified offline', () =>
      json<Report>(machine, 'receipt', 'verify', file, '--key', project.vkey),
    );

    const events = [...run.kinds.values()].reduce((sum, n) => sum + n, 0);
    say(`
  ${traffic.calls} tool calls (${traffic.errors} refused by the server), median ${traffic.medianMs.toFixed(1)} ms each through the proxy
  ${events} events in the log, entries ${run.first} to ${run.last}: ${[...run.kinds].map(([kind, n]) => `${n} ${kind}`).join(', ')}
  receipt of ${statSync(file).size} bytes, ${verified.checks.length} checks
`);
    say(
      `  ${style.bold('the receipt as issued'.padEnd(42))}${verified.verdict === 'VALID' ? style.good('VALID') : style.bad(verified.verdict)}`,
    );
    if (verified.verdict !== 'VALID')
      throw new Error(`the receipt is refused by: ${failedChecks(verified).join(', ')}`);

    for (const { what, refusedBy, bytes } of tamperings(await readFile(file))) {
      const copy = join(scratch, 'tampered.json');
      writeFileSync(copy, bytes);
      const report = await json<Report>(machine, 'receipt', 'verify', copy, '--key', project.vkey);
      const failed = failedChecks(report);
      const others = failed.filter((name) => name !== refusedBy);
      say(
        `  ${what.padEnd(42)}${style.bad(report.verdict)}  by ${style.bold(refusedBy)}${others.length === 0 ? '' : style.dim(`, and ${others.join(', ')}`)}`,
      );
      if (report.verdict !== 'INVALID' || !failed.includes(refusedBy)) {
        throw new Error(`tampering with ${what} was not refused by the check that is there for it`);
      }
    }

    const shown = relative(process.cwd(), file).startsWith('..') ? file : relative(process.cwd(), file);
    say(`
  Done in ${((performance.now() - began) / 1_000).toFixed(1)} s; nothing is left running. Go on by hand:

    npx belay receipt show ${shown}
    npx belay receipt verify ${shown} --key ${project.vkey}
    npx belay serve                       ${style.dim('# a service of your own; the README goes on from there')}
`);
  } finally {
    await stopAll();
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Ends what was started, the service last; a process that does not end when asked is killed. */
async function stopAll(): Promise<void> {
  for (const child of running.splice(0).toReversed()) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const ended = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), 15_000);
    await ended;
    clearTimeout(timer);
  }
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void stopAll().finally(() => process.exit(130)));
}

try {
  await demo();
} catch (error) {
  process.stderr.write(`\nThe demo failed: ${(error as Error).message}\n`);
  process.exitCode = 1;
}
