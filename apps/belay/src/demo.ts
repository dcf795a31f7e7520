/**
 * The main job once, end to end, with real parts: the service on a PostgreSQL of its own, an official MCP server and
 * one with bad habits behind `belay proxy`, each in a boundary, the official MCP client in front and `belay hook` beside
 * it; every call judged by running it again, the verdicts told to the log; what each session comes to, with a receipt;
 * an export, verified offline by two verifiers that share no code, and tampered copies refused by both.
 * A development program: it is not part of the `belay` command and uses development dependencies.
 */

import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { EventList, PolicySet, ProjectCreated, TenantCreated, TokenIssued } from '@belay/contracts/http';
import { type Envelope, parseEntry } from '@belay/envelope';
import type { Report } from '@belay/receipt';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { readConfig } from './config.js';
import { forgeries, takeOut } from './demo-forger.js';
import { BELAY, freePort, Machine, type Missing } from './demo-machine.js';
import { badHabits, honestDay, hushedDay, HUSHED, ordinaryDay, type Session } from './demo-sessions.js';
import { HABITS, sessionLines, statusText, turnsOf, verdictLines, WEAKENED } from './demo-verdicts.js';
import { backgroundDir, runningPid } from './hook-forward.js';
import { printable, styleFor } from './output.js';
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
  process.stdout.write(`    ${title.padEnd(68, ' ')}  `);
  const began = performance.now();
  const result = await work();
  say(style.dim(`${((performance.now() - began) / 1_000).toFixed(1)} s`));
  return result;
}

type Environment = Readonly<Record<string, string>>;

/** A session that the proxy opened is complete with every line of both; two seconds are enough on one machine. */
const POLICY = {
  sessions: [{ kind: 'agent', opens: ['proxy'], required: ['proxy', 'hook'] }],
  lateness: 2,
};
interface Traffic {
  readonly calls: number;
  readonly errors: number;
  readonly medianMs: number;
}

/** How a session is recorded. */
interface Recorded {
  readonly environment: Environment;
  readonly session: Session;
  readonly options: readonly string[];
  /** Whether the agent also tells its hook. */
  readonly hooks: boolean;
}

/** The official client, through the proxy, to the server of a session; and what an agent tells its hook meanwhile. */
async function drive({ environment: given, session, options, hooks }: Recorded): Promise<Traffic> {
  const { run, workspace, server, calls } = session;
  const environment = { ...given, BELAY_SESSION: run };
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [BELAY, 'proxy', '--workspace', workspace, ...options, '--hold-limit', '5000', '--', ...server],
    env: { ...getDefaultEnvironment(), ...environment },
    stderr: 'pipe',
  });
  const tell = async (name: string, more: object = {}): Promise<void> => {
    if (!hooks) return;
    const event = JSON.stringify({ session_id: run, hook_event_name: name, ...more });
    await machine.run(environment, process.execPath, [BELAY, 'hook'], event);
  };
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
    for (const [at, [name, given]] of calls.entries()) {
      const id = `toolu_${run}_${at}`;
      const tool = { tool_name: `mcp__files__${name}`, tool_input: given, tool_use_id: id };
      await tell('PreToolUse', tool);
      const began = performance.now();
      const result = await client.callTool({
        name,
        arguments: given,
        _meta: { 'claudecode/toolUseId': id },
      });
      times.push(performance.now() - began);
      if (result.isError === true) errors += 1;
      await tell('PostToolUse', {
        ...tool,
        tool_response: { content: result.content, ...(result.isError === true ? { isError: true } : {}) },
      });
    }
  } finally {
    await client.close();
    await tell('SessionEnd');
  }
  times.sort((a, b) => a - b);
  return { calls: calls.length, errors, medianMs: times[Math.floor(times.length / 2)] ?? 0 };
}

/** What sends a hook's lines in the background is gone: by itself, or because it was told to. */
async function backgroundEnded(state: string, log: string, told: boolean): Promise<void> {
  const until = Date.now() + FLUSH_MS;
  for (let pid; (pid = runningPid(backgroundDir(state, log))) !== undefined; await sleep(50)) {
    if (told || Date.now() > until) process.kill(pid, 'SIGTERM');
    if (Date.now() > 2 * until) throw new Error('what sends in the background does not end');
  }
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

/** Of a session, how many of its verdicts came to what: those of calls, and the one of the session itself. */
const countsText = ({ run, calls }: Session, { tally }: Verification): string =>
  `${run} ${statusCounts(tally)} (${calls.length} calls and itself)`;

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
  const found = await Promise.all(
    tamperings(readFileSync(receipt)).map(async (tampering, at) => {
      const copy = join(scratch, `tampered-${at}.json`);
      writeFileSync(copy, tampering.bytes);
      const report = await machine.json<Report>(own, ['receipt', 'verify', copy, '--key', vkey]);
      return { ...tampering, report };
    }),
  );
  for (const { what, refusedBy, report } of found) {
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

/** The second verifier: one file that is no part of what is installed, for whoever trusts none of it. */
const SECOND = fileURLToPath(new URL('../../../infra/verifier/verify.py', import.meta.url));

/** What a verifier says of an export, and the first check that failed. */
interface Found {
  readonly verdict: string;
  readonly why: string;
}

function foundIn({ verdict, checks }: Report): Found {
  const failed = checks.find(({ status }) => status === 'failed');
  return { verdict, why: failed === undefined ? '' : `by ${failed.name}: ${failed.detail}` };
}

/** The export by both verifiers, and changed copies of it. */
async function sayExport(archive: string, scratch: string, own: Environment, vkey: string): Promise<void> {
  const python = await machine.run(own, 'python3', ['--version']).catch(() => undefined);
  const both = async (path: string): Promise<Found[]> => {
    const first = machine.json<Report>(own, ['receipt', 'verify', path, '--key', vkey]);
    if (python === undefined) return [foundIn(await first)];
    const second = machine.run(own, 'python3', [SECOND, path, '--key', vkey, '--json']);
    const [ours, theirs] = await Promise.all([first, second]);
    return [foundIn(ours), foundIn(JSON.parse(theirs.stdout) as Report)];
  };
  const line = (what: string, verdicts: readonly Found[], good: boolean): void => {
    const paint = good ? style.good : style.bad;
    const [first, second] = verdicts.map(({ verdict }) => paint(verdict));
    say(
      `  ${what.padEnd(46)}${first}${second === undefined ? '' : `, and ${second} by the second verifier`}`,
    );
    const why = verdicts[0]?.why ?? '';
    if (why !== '') say(style.dim(`    ${printable(why)}`));
  };
  say('');
  const forged = forgeries(readFileSync(archive)).map(({ what, bytes }, at) => {
    const copy = join(scratch, `forged-${at}.zip`);
    writeFileSync(copy, bytes);
    return { what, copy };
  });
  const [whole = [], ...found] = await Promise.all([archive, ...forged.map(({ copy }) => copy)].map(both));
  line(`the export (${(statSync(archive).size / 1_000).toFixed(0)} kB)`, whole, true);
  if (whole.some(({ verdict }) => verdict !== 'VALID'))
    throw new Error(`the export is refused: ${whole.map(({ why }) => why).join(' / ')}`);
  for (const [at, { what }] of forged.entries()) {
    line(what, found[at] ?? [], false);
    if (found[at]?.some(({ verdict }) => verdict !== 'INVALID') !== false)
      throw new Error(`${what} was not refused`);
  }
  if (python === undefined) say(style.warn('  Without python3, the second verifier was not asked.'));
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
  let endBackground: (() => Promise<void>) | undefined;
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
    const project = await step('project: a log, an append token, a key for the proxy', () =>
      machine.json<ProjectCreated>(admin, [
        'project',
        'register',
        '--name',
        'files',
        '--domain',
        'workstation',
        '--url',
        url,
      ]),
    );
    endBackground = () => backgroundEnded(state, project.origin, true);
    const of = ['--project', project.project, '--url', url];
    await step('a key for the hook; a session needs every line of proxy and hook', async () => {
      const keyed = ['--kind', 'hook', '--domain', 'workstation', '--generate-key'];
      await machine.belay(admin, ['sink', 'declare', 'hook', ...keyed, ...of]);
      const file = join(scratch, 'policy.json');
      writeFileSync(file, JSON.stringify(POLICY));
      await machine.json<PolicySet>(admin, ['project', 'policy', 'set', file, ...of]);
    });

    chapter(
      `Record: official client, belay proxy and belay hook, server${contained ? ' in a boundary' : ''}`,
    );
    await new Promise<void>((resolve) => rates.listen(0, '127.0.0.1', resolve));
    const ratesPort = (rates.address() as { port: number }).port;
    const day = ordinaryDay(join(scratch, 'files'));
    const habits = badHabits(join(scratch, 'tickets'), ratesPort);
    const honest = honestDay(join(scratch, 'invoices'));
    const hushed = hushedDay(join(scratch, 'ledger'));
    const boundary = contained ? ['--sandbox', 'default'] : [];
    const usual = { environment: own, options: boundary, hooks: true };
    const traffic = await step(
      `monday: official file server, ${day.calls.length} calls, the last one not so innocent`,
      () => drive({ ...usual, session: day }),
    );
    await step(`tickets: a server with bad habits, ${habits.calls.length} calls, no hook`, () =>
      drive({
        ...usual,
        environment: contained ? { ...own, BELAY_SANDBOX_NETWORK: `allow-ports:${ratesPort}` } : own,
        session: habits,
        hooks: false,
      }),
    );
    const held = await step(
      `tuesday: ${honest.calls.length} calls, each waits for its state to be in the log`,
      () => drive({ ...usual, options: [...boundary, '--attest-first=10000'], session: honest }),
    );
    const gone = await step(
      `wednesday: ${hushed.calls.length} calls, offline; a line is taken out before it is sent`,
      async () => {
        await backgroundEnded(state, project.origin, false);
        const offline = { ...own, BELAY_URL: 'http://127.0.0.1:9' };
        await drive({
          environment: offline,
          options: [...boundary, '--flush-timeout', '0'],
          session: hushed,
          hooks: true,
        });
        await backgroundEnded(state, project.origin, true);
        const taken = takeOut(state, project.origin, 'proxy', HUSHED);
        await machine.belay({ ...own, BELAY_URL: url }, ['forward']);
        return taken;
      },
    );
    const run = await step('events streamed, every ack verified', () => sentBy('proxy', 4, url, project));
    say(
      style.dim(
        `    a call takes ${traffic.medianMs.toFixed(1)} ms (median), states of its folder included, ${held.medianMs.toFixed(1)} ms where it waits for the log;\n    the log has ${countKinds(run)}`,
      ),
    );

    let verdicts: Sent[] = [];
    let failed: Sent | undefined;
    if (contained) {
      chapter('Judge: every call again, on its state, no network, no model');
      const verifier = await step('a token for a verifier, and its key', async () => {
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
      const all = readdirSync(join(state, 'traces'))
        .filter((name) => name.startsWith('proxy-'))
        .map((name) => join(state, 'traces', name));
      // What is missing of Wednesday is missing, however its calls would come out.
      const traces = all.filter((path) => !readFileSync(path, 'utf8').includes(hushed.workspace));
      const found = await step(`${traces.length} sessions run again, verdicts told to the log`, () =>
        machine.json<readonly Verification[]>({ ...own, BELAY_URL: url, BELAY_TOKEN: verifier.credential }, [
          'verify',
          '--attest',
          ...traces,
        ]),
      );
      const [first, second, third] = [day, habits, honest].map(({ workspace }) =>
        found.find(({ server }) => server.includes(workspace)),
      );
      if (first === undefined || second === undefined || third === undefined)
        throw new Error('a session was not judged');
      sayVerdicts(first, second);
      verdicts = await sentBy('verifier', 3, url, project);
      failed = verdicts.find(({ envelope }) => envelope.attrs?.['cause'] === 'WROTE_THOUGH_READ_ONLY');
      if (failed === undefined) throw new Error('the log has no verdict on the reader that writes');
      say('');
      sayEntry(failed);
      say(style.dim('  in all, each session with a verdict on it as a whole:'));
      for (const line of [countsText(day, first), countsText(habits, second), countsText(honest, third)])
        say(style.dim(`    ${line}`));
    }

    const auditor = { ...own, BELAY_AUDITOR_KEY: project.auditor.credential, BELAY_URL: url };
    chapter('Account: what each session comes to, by whether every line of its sinks is there');
    say(
      style.dim(
        contained
          ? '  The policy requires every line of proxy and hook; the verifier counts where it spoke. A call counts as\n  replayed only where the state before it was in the log first: all of tuesday, which ran with --attest-first,\n  and elsewhere where it happened to be.'
          : '  The policy requires every line of proxy and hook.',
      ),
    );
    const expected = contained
      ? (['violated', 'violated', 'affirmed', 'incomplete'] as const)
      : (['unverified', 'incomplete', 'unverified', 'incomplete'] as const);
    for (const [at, { run: id }] of [day, habits, honest, hushed].entries()) {
      const file = join(kept, `${id}.json`);
      await step(`${id}: settled, its receipt`, () =>
        machine.belay(auditor, ['receipt', 'get', '--run', id, '--wait', '30', '--out', file]),
      );
      process.stdout.write(
        sessionLines(
          readFileSync(file),
          id,
          expected[at] ?? 'affirmed',
          id === hushed.run ? gone.seq : undefined,
          style,
        ),
      );
    }

    chapter('Prove');
    const file = join(kept, 'receipt.json');
    const verdictFile = join(kept, 'verdict.json');
    const archive = join(kept, 'export.zip');
    writeFileSync(join(kept, 'log.vkey'), `${project.vkey}\n`);
    const all = [...run, ...verdicts].map(({ index }) => index);
    await step('checkpoint, a receipt for all of it', () =>
      machine.belay(auditor, [
        'receipt',
        'get',
        '--out',
        file,
        '--range',
        `${Math.min(...all)}..${Math.max(...all)}`,
      ]),
    );
    if (failed !== undefined) {
      const { index } = failed;
      await step('a receipt for the verdict on the reader that writes', () =>
        machine.belay(auditor, ['receipt', 'get', '--event', String(index), '--out', verdictFile]),
      );
    }
    await step('an export: the log, every receipt, a report to read', () =>
      machine.belay(auditor, ['export', 'create', '--out', archive]),
    );
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
    await sayExport(archive, scratch, own, project.vkey);

    say(`
  Done in ${((performance.now() - began) / 1_000).toFixed(1)} s; nothing is left running. Go on by hand:

    npx belay receipt show ${shown(failed === undefined ? file : verdictFile)}
    npx belay receipt verify ${shown(file)} --key ${project.vkey}
    npx belay receipt show ${shown(join(kept, `${day.run}.json`))}
    npx belay receipt verify ${shown(archive)} --key ${project.vkey}
    npx belay serve                       ${style.dim('# a service of your own; the README goes on from there')}
`);
  } finally {
    rates.close();
    rates.closeAllConnections();
    await machine.end();
    await endBackground?.();
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
