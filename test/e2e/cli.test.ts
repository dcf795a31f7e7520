import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TokenListed } from '@belay/contracts/http';
import { type Ack, formatCredential, parseCredential } from '@belay/contracts';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort, Machine } from './belay-process.js';

/**
 * The commands of administrator, auditor and stranger against a running `belay serve`, as processes, by what they
 * print and how they exit. One service for the file; each test makes what it needs of its own.
 */

interface Registered {
  project: string;
  log: string;
  origin: string;
  vkey: string;
  token: { id: string; credential: string };
  auditor: { id: string; credential: string };
  credentials?: string;
  sinkKey?: string;
}
interface Report {
  verdict: string;
  checks: { name: string; status: string; detail: string }[];
}

const machine = new Machine();
let url = '';
let operator = '';
let admin = '';
let service: Awaited<ReturnType<Machine['serve']>>;

beforeAll(async () => {
  service = await machine.serve(await freePort());
  ({ url } = service);
  [operator = ''] = /belay_operator_[A-Za-z0-9_-]+/.exec(service.output()) ?? [];
  const tenant = await machine.json<{ admin: { credential: string } }>(
    ['tenant', 'create', '--name', 'acme', '--url', url],
    { BELAY_OPERATOR_KEY: operator },
  );
  admin = tenant.admin.credential;
});
afterAll(() => machine.close());

const asAdmin = (): Record<string, string> => ({ BELAY_ADMIN_KEY: admin, BELAY_URL: url });

async function register(name: string, ...more: string[]): Promise<Registered> {
  return await machine.json<Registered>(['project', 'register', '--name', name, ...more], asAdmin());
}

let counter = 0;
/** Appends lines by HTTP alone: what is under test here are the commands that read. */
async function send(project: Registered, token: string, count: number, sink = 'shell'): Promise<Response> {
  const epoch = `01JD00000000000000000000${String(counter++).padStart(2, '0')}`;
  const lines = Array.from({ length: count }, (_, i) =>
    JSON.stringify({
      v: 1,
      log: project.origin,
      sink,
      epoch,
      seq: i + 1,
      kind: 'call',
      time: new Date().toISOString(),
      attrs: { tool: 'refund', bytes: i },
    }),
  );
  return await fetch(`${url}/v1/projects/${project.project}/events`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/x-ndjson' },
    body: lines.join('\n'),
  });
}

async function append(project: Registered, token: string, count: number): Promise<Ack> {
  const answer = await send(project, token, count);
  expect(answer.status).toBe(200);
  return (await answer.json()) as Ack;
}

async function issueToken(project: Registered, ...more: string[]): Promise<string> {
  const issued = await machine.json<{ credential: string }>(
    ['token', 'issue', '--project', project.project, ...more],
    asAdmin(),
  );
  return issued.credential;
}

describe('belay project register', () => {
  it('leaves the machine ready to append, and stores nothing that could read', async () => {
    const project = await register('first');
    expect(statSync(machine.credentials).mode & 0o777).toBe(0o600);
    const stored = readFileSync(machine.credentials, 'utf8');
    expect(stored).toContain(project.token.credential);
    expect(stored).not.toContain(project.auditor.credential);
    expect(stored).not.toContain(admin);
    expect(statSync(project.sinkKey ?? '').mode & 0o777).toBe(0o600);
    expect(project.sinkKey?.startsWith(machine.state)).toBe(true);
    // The token pins the log: nothing else is needed to know where lines belong and whom to believe.
    expect(parseCredential(project.token.credential, 'append')).toMatchObject({
      origin: project.origin,
      project: project.project,
    });
  });

  it('does not write over credentials that are there', async () => {
    const { code, stderr } = await machine.belay(['project', 'register', '--name', 'second'], asAdmin());
    expect(code).toBe(65);
    expect(stderr).toContain('--replace');
    const before = readFileSync(machine.credentials, 'utf8');
    const project = await register('second', '--no-login');
    expect(project.token.credential).toMatch(/^belay_append_/);
    expect(readFileSync(machine.credentials, 'utf8')).toBe(before);
  });

  it('tells a wrong key, a mistyped key and a key of another kind apart', async () => {
    const attempt = async (
      key: string,
    ): Promise<{ code: number | null; error: { code: string; message: string } }> => {
      const { code, stdout } = await machine.belay(
        ['project', 'register', '--name', 'x', '--no-login', '--json'],
        { BELAY_URL: url, BELAY_ADMIN_KEY: key },
      );
      return { code, ...(JSON.parse(stdout) as { error: { code: string; message: string } }) };
    };
    const parsed = parseCredential(admin, 'admin');
    const wrong = formatCredential({ ...parsed, secret: Buffer.alloc(24, 7) });
    expect(await attempt(wrong)).toMatchObject({ code: 65, error: { code: 'unauthenticated' } });
    expect(await attempt(`${admin.slice(0, -1)}${admin.endsWith('A') ? 'B' : 'A'}`)).toMatchObject({
      code: 65,
    });
    expect(await attempt(operator)).toMatchObject({ code: 65 });
  });
});

describe('tokens, auditors, sinks', () => {
  it('are issued, listed, revoked, each an entry of the log', async () => {
    const project = await register('tokens', '--no-login');
    const options = ['--project', project.project];
    const token = await issueToken(
      project,
      '--role',
      'agent',
      '--sink',
      'shell',
      'web',
      '--domain',
      'team-a',
    );
    await append(project, token, 1);
    const { tokens } = await machine.json<{ tokens: TokenListed[] }>(
      ['token', 'list', ...options],
      asAdmin(),
    );
    expect(tokens).toHaveLength(2);
    const { id } = parseCredential(token, 'append');
    expect(tokens.find((each) => each.id === id)).toMatchObject({
      role: 'agent',
      sinks: ['shell', 'web'],
      domain: 'team-a',
    });

    const revoked = await machine.json<{ id: string; index: number }>(
      ['token', 'revoke', id, ...options],
      asAdmin(),
    );
    expect(revoked.id).toBe(id);
    const after = await machine.json<{ tokens: TokenListed[] }>(['token', 'list', ...options], asAdmin());
    expect(after.tokens.find((each) => each.id === id)).toMatchObject({ revokedIndex: revoked.index });
    const refused = await send(project, token, 1);
    expect(refused.status).toBe(401);
    expect(await refused.json()).toMatchObject({ code: 'token_revoked' });

    const auditor = await machine.json<{ credential: string }>(['auditor', 'issue', ...options], asAdmin());
    expect(parseCredential(auditor.credential, 'auditor').origin).toBe(project.origin);

    const key = Buffer.alloc(32, 9).toString('base64');
    const sink = await machine.json<{ key: string; required: boolean }>(
      ['sink', 'declare', 'web', '--kind', 'hook', '--required', '--key', key, ...options],
      asAdmin(),
    );
    expect(sink).toMatchObject({ key, required: true });
  });
});

describe('the auditor', () => {
  let project: Registered;
  let first = 0;
  const asAuditor = (): Record<string, string> => ({
    BELAY_URL: url,
    BELAY_AUDITOR_KEY: project.auditor.credential,
  });
  const file = (name: string): string => join(machine.root, name);

  beforeAll(async () => {
    project = await register('audited', '--no-login');
    const token = await issueToken(project, '--role', 'agent');
    const ack = await append(project, token, 300);
    first = ack.runs[0]?.index ?? -1;
    const got = await machine.belay(
      ['receipt', 'get', '--range', `${first}..${first + 9}`, '--out', file('receipt.json')],
      asAuditor(),
    );
    expect(got).toMatchObject({ code: 0 });
    expect(got.stdout).toContain('VALID');
  });

  it('keeps a checkpoint, and sees later that the log only grew', async () => {
    const { code, stdout } = await machine.belay(['log', 'checkpoint'], asAuditor());
    expect(code).toBe(0);
    expect(stdout.split('\n')[0]).toBe(project.origin);
    writeFileSync(file('kept'), stdout);
    await append(project, await issueToken(project, '--role', 'agent'), 20);
    await machine.belay(
      ['receipt', 'get', '--event', String(first + 310), '--out', file('later.json')],
      asAuditor(),
    );
    expect(await machine.belay(['log', 'proof', '--from', file('kept')], asAuditor())).toMatchObject({
      code: 0,
    });
    expect(await machine.belay(['log', 'proof', '--index', String(first)], asAuditor())).toMatchObject({
      code: 0,
    });
    const audit = await machine.json<Report & { size: number }>(
      ['log', 'verify', '--kept', file('kept')],
      asAuditor(),
    );
    expect(audit.verdict).toBe('VALID');
    expect(audit.size).toBeGreaterThan(320);
    expect(audit.checks.map(({ name }) => name)).toEqual([
      'checkpoint',
      'kept checkpoint',
      'entries',
      'tiles',
      'root',
      'consistency',
    ]);
  });

  it('refuses a log that is not the one whose key was pinned', async () => {
    const other = await register('other', '--no-login');
    const { code, stdout } = await machine.belay(
      ['log', 'verify', '--log', project.log, '--key', other.vkey, '--json'],
      asAuditor(),
    );
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ verdict: 'INVALID' });
  });

  it('gets a tlog-proof for one event', async () => {
    const proof = file('entry.tlog-proof');
    const got = await machine.belay(
      ['receipt', 'get', '--event', String(first), '--format', 'tlog-proof', '--out', proof],
      asAuditor(),
    );
    expect(got).toMatchObject({ code: 0 });
    expect(readFileSync(proof, 'utf8')).toMatch(/^c2sp\.org\/tlog-proof@v1\n/);
    expect(await machine.belay(['receipt', 'verify', proof, '--key', project.vkey])).toMatchObject({
      code: 0,
    });
  });

  it('asks for what is not there and is told so', async () => {
    const { code, stdout } = await machine.belay(
      ['receipt', 'get', '--event', '99999', '--out', file('x'), '--wait', '0', '--json'],
      asAuditor(),
    );
    expect(code).toBeGreaterThanOrEqual(65);
    expect((JSON.parse(stdout) as { error: { code: string } }).error.code).toMatch(/not_found|not_published/);
  });

  it('the same receipt asked for twice is the same bytes', async () => {
    const again = await machine.belay(['receipt', 'get', '--range', `${first}..${first + 9}`], asAuditor());
    const twice = await machine.belay(['receipt', 'get', '--range', `${first}..${first + 9}`], asAuditor());
    expect(again.stdout).toBe(twice.stdout);
  });
});

it('a public log is read by anyone who holds its key, and by nobody who holds none', async () => {
  const project = await register('public', '--no-login', '--public');
  await append(project, await issueToken(project, '--role', 'agent'), 3);
  await machine.json(['receipt', 'get', '--event', '3', '--out', join(machine.root, 'public.json')], {
    BELAY_URL: url,
    BELAY_AUDITOR_KEY: project.auditor.credential,
  });
  const verify = ['log', 'verify', '--url', url, '--log', project.log];
  expect(await machine.belay([...verify, '--key', project.vkey])).toMatchObject({ code: 0 });
  const unpinned = await machine.belay(verify);
  expect(unpinned).toMatchObject({ code: 64 });
  expect(unpinned.stderr).toContain('proves nothing');
});

it('fsck leaves a database alone that a living service uses', async () => {
  const { code, stdout } = await machine.belay(['log', 'fsck', '--data', machine.data, '--json']);
  expect({ code, json: JSON.parse(stdout) as unknown }).toMatchObject({
    code: 69,
    json: { error: { code: 'locked' } },
  });
});

// Last in the file: it stops the service.
describe('what sessions come to', () => {
  const RUN = 'nightly run 7';
  let project: Registered;
  let session = '';
  const asAuditor = (): Record<string, string> => ({
    BELAY_URL: url,
    BELAY_AUDITOR_KEY: project.auditor.credential,
  });
  const of = (): string[] => ['--project', project.project];
  /** Answers too, not only what is good: exit code and document. */
  const asked = async (
    ...args: string[]
  ): Promise<{ code: number | null; json: Record<string, unknown> }> => {
    const { code, stdout } = await machine.belay([...args, '--json'], asAuditor());
    return { code, json: JSON.parse(stdout) as Record<string, unknown> };
  };

  beforeAll(async () => {
    project = await register('sessions', '--replace');
    await machine.json(['sink', 'declare', 'hook', '--kind', 'hook', '--generate-key', ...of()], asAdmin());
  });

  it('belay project policy: set as a whole, defaults written out, in force from then on', async () => {
    const file = join(machine.root, 'project-policy.json');
    const sessions = [{ kind: 'agent', opens: ['hook'], required: ['hook'] }];
    writeFileSync(file, JSON.stringify({ sessions, lateness: 0 }));
    const set = await machine.json<{ policy: object; digest: string; index: number }>(
      ['project', 'policy', 'set', file, ...of()],
      asAdmin(),
    );
    expect(set.policy).toMatchObject({ sessions, lateness: 0, heartbeat: 60 });
    expect(await asked('project', 'policy', 'get')).toEqual({ code: 0, json: set });
    const shown = await machine.belay(['project', 'policy', 'get'], asAuditor());
    expect(shown.stdout).toMatch(/agent +opened by hook; required: hook/);
    expect((await asked('project', 'policy', 'get', '--at', '0')).json['digest']).not.toBe(set.digest);
    writeFileSync(file, JSON.stringify({ latenes: 1 }));
    const refused = await machine.belay(['project', 'policy', 'set', file, ...of(), '--json'], asAdmin());
    expect(refused.code).toBe(65);
    expect(refused.stdout).toContain('latenes');
  });

  it('a session from its hook: listed, waited for, found by the id of its run and by its first digits', async () => {
    const env = { BELAY_URL: url, BELAY_SESSION: RUN };
    const tool = { tool_name: 'Bash', tool_input: { command: 'true' }, tool_use_id: 'toolu_1' };
    for (const [name, more] of [
      ['PreToolUse', tool],
      ['PostToolUse', { ...tool, tool_response: 'done' }],
      ['SessionEnd', {}],
    ] as const) {
      const event = JSON.stringify({ session_id: 'x', hook_event_name: name, ...more });
      expect(await machine.belay(['hook'], env, event)).toMatchObject({ code: 0 });
    }
    expect(await machine.belay(['forward'], { BELAY_URL: url })).toMatchObject({ code: 0 });
    const { code, json } = await asked('sessions', '--run', RUN, '--wait', '60');
    expect({ code, json }).toMatchObject({
      // Nobody has run its call again.
      code: 2,
      json: { disposition: 'unverified', settled: true, coverage: 'complete', calls: 1, closed: true },
    });
    session = json['session'] as string;
    const list = await asked('sessions', '--disposition', 'unverified');
    expect(list.json['sessions']).toMatchObject([{ session }]);
    expect((await asked('sessions', '--disposition', 'affirmed')).json['sessions']).toEqual([]);
    const digits = session.slice('hmac-sha256:'.length, 'hmac-sha256:'.length + 8);
    const page = await machine.belay(['sessions', digits], asAuditor());
    expect(page).toMatchObject({ code: 2 });
    expect(page.stdout).toMatch(/hook \(required\) complete/);
    // Why, by the receipt, and nothing wider than a terminal.
    expect(page.stdout).toMatch(/why +call [0-9a-f]{12} was not run again, only observed: no two trust\n/);
    expect(Math.max(...page.stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80);
    const listed = await machine.belay(['sessions'], asAuditor());
    expect(listed.stdout).toMatch(new RegExp(`^${digits}[0-9a-f]{4}… .* unverified +complete +1$`, 'm'));
    expect(Math.max(...listed.stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80);
    expect(await asked('sessions', 'abcdef01')).toMatchObject({
      code: 65,
      json: { error: { code: 'not_found' } },
    });
  });

  it('belay label of a session that the log does not know is refused, and those near it are told', async () => {
    const digits = session.slice('hmac-sha256:'.length, 'hmac-sha256:'.length + 12);
    for (const [wrong, near] of [
      [
        'nope',
        "Which ones there are: belay sessions. If it is an id of the agent's (BELAY_SESSION): --run nope",
      ],
      [`${digits.slice(0, 8)}x`, `Near it: ${digits}. All: belay sessions`],
    ] as const) {
      expect(await asked('label', wrong, '--says', 'violated')).toMatchObject({
        code: 65,
        json: { error: { code: 'not_found', next: near } },
      });
    }
    expect((await asked('label')).json['labels']).toEqual([]);
  });

  it('belay verify --attest refuses before it runs where its verdicts would count for nothing', async () => {
    const unkeyed = await machine.belay(['verify', '--attest', 'no-such-trace'], { BELAY_URL: url });
    expect(unkeyed).toMatchObject({ code: 65 });
    expect(unkeyed.stderr).toMatch(/the sink verifier has no key on this machine: .* none would count/);
    expect(unkeyed.stderr).toMatch(/belay sink declare verifier --kind verifier .*--generate-key/);
    const keyed = await machine.belay(['verify', '--attest', '--sink', 'hook', 'no-such-trace'], {
      BELAY_URL: url,
    });
    expect(keyed).toMatchObject({ code: 65 });
    expect(keyed.stderr).toMatch(/the token is one of role sink/);
    const anyway = await machine.belay(['verify', '--attest', '--unsigned', 'no-such-trace'], {
      BELAY_URL: url,
    });
    expect(anyway.stderr).toContain('no-such-trace is not there');
  });

  it('belay label: an entry of the log, and the session is violated', async () => {
    const label = await asked('label', '--run', RUN, '--says', 'violated');
    expect(label).toMatchObject({ code: 0, json: { index: expect.any(Number) as number } });
    await expect
      .poll(async () => await asked('sessions', '--run', RUN, '--wait', '20'), { timeout: 60_000 })
      .toMatchObject({ code: 1, json: { disposition: 'violated', settled: true } });
    expect((await asked('label', '--run', RUN)).json['labels']).toMatchObject([
      { index: label.json['index'], says: 'violated', by: project.auditor.id },
    ]);
    expect(await machine.belay(['label', '--says', 'violated'], asAuditor())).toMatchObject({ code: 64 });
  });

  it('belay receipt get: of the session, and of the time in which it began', async () => {
    const file = join(machine.root, 'session-receipt.json');
    const got = await asked('receipt', 'get', '--run', RUN, '--wait', '60', '-o', file);
    expect(got).toMatchObject({ code: 0, json: { file, id: expect.stringMatching(/^rcp_/) as string } });
    const { payload } = JSON.parse(readFileSync(file, 'utf8')) as { payload: string };
    const statement = JSON.parse(Buffer.from(payload, 'base64').toString()) as {
      predicate: { disposition: { status: string } };
    };
    expect(statement.predicate.disposition.status).toBe('violated');
    const alone = await machine.belay(['receipt', 'verify', file, '--key', project.vkey]);
    expect(alone).toMatchObject({ code: 2 });
    const period = '2020-01-01..2100-01-01';
    const whole = join(machine.root, 'period-receipt.json');
    expect(await asked('receipt', 'get', '--period', period, '--wait', '60', '-o', whole)).toMatchObject({
      code: 0,
    });
    expect(await machine.belay(['receipt', 'get', '--period', '2020..2019'], asAuditor())).toMatchObject({
      code: 64,
    });
    const beyond = await machine.belay(['receipt', 'get', '--range', '0..9000'], asAuditor());
    expect(beyond).toMatchObject({ code: 65 });
    expect(beyond.stderr).toMatch(/the log has \d+ entries, 0 to \d+: none is numbered 9000/);
    const none = join(machine.root, 'none.json');
    expect(await asked('receipt', 'get', '--period', '2001..2002', '-o', none)).toMatchObject({ code: 0 });
    const shown = await machine.belay(['receipt', 'show', none]);
    expect(shown.stdout).toMatch(/NOTHING IN IT +no line was received in it/);
  });

  it('belay export: made, brought here, listed, removed', async () => {
    const file = join(machine.root, 'export.zip');
    const made = await asked('export', 'create', '--session', session, '-o', file);
    expect(made).toMatchObject({ code: 0, json: { state: 'done', file } });
    const { id, bytes } = made.json as { id: string; bytes: number };
    expect(statSync(file).size).toBe(bytes);
    // What is there is somebody's evidence.
    const over = ['export', 'create', '--run', RUN, '-o', file];
    expect(await asked(...over)).toMatchObject({ code: 65, json: { error: { code: 'exists' } } });
    expect(statSync(file).size).toBe(bytes);
    expect(await machine.belay(['receipt', 'verify', file, '--key', project.vkey])).toMatchObject({
      code: 0,
    });
    expect((await asked('export', 'list')).json['exports']).toMatchObject([{ id, state: 'done' }]);
    expect(await asked('export', 'status', id)).toMatchObject({ code: 0, json: { state: 'done' } });
    const again = join(machine.root, 'again.zip');
    // What broke off is gone on with.
    writeFileSync(`${again}.${id}.part`, readFileSync(file).subarray(0, 1_000));
    expect(await asked('export', 'download', id, '-o', again)).toMatchObject({ code: 0 });
    expect(readFileSync(again).equals(readFileSync(file))).toBe(true);
    expect(await asked('export', 'cancel', id)).toMatchObject({ code: 0 });
    expect(await asked('export', 'download', id, '-o', again)).toMatchObject({ code: 65 });
    expect(await asked('export', 'status', 'exp_01jd0000000000000000000000')).toMatchObject({ code: 65 });
    expect(await asked('export', 'create', '--session', 'nope')).toMatchObject({
      code: 65,
      json: { error: { code: 'not_found', next: expect.stringContaining('belay sessions') as string } },
    });
  });

  it('belay webhook: added, listed, removed', async () => {
    const made = await machine.json<{ id: string; secret: string; events: string[] }>(
      ['webhook', 'add', 'https://hooks.example/belay', '--event', 'session.violated', ...of()],
      asAdmin(),
    );
    expect(made).toMatchObject({
      secret: expect.stringMatching(/^whsec_/) as string,
      events: ['session.violated'],
    });
    const listed = await machine.json<{ webhooks: object[] }>(['webhook', 'list', ...of()], asAdmin());
    expect(listed.webhooks).toMatchObject([{ id: made.id, url: 'https://hooks.example/belay' }]);
    const sent = await machine.json<{ deliveries: object[] }>(
      ['webhook', 'deliveries', made.id, ...of()],
      asAdmin(),
    );
    expect(sent.deliveries).toEqual([]);
    expect(await machine.belay(['webhook', 'remove', made.id, ...of()], asAdmin())).toMatchObject({
      code: 0,
    });
    expect(
      (await machine.json<{ webhooks: object[] }>(['webhook', 'list', ...of()], asAdmin())).webhooks,
    ).toEqual([]);
  });
});

describe('with the service stopped', () => {
  it('stops cleanly when asked', async () => {
    expect(await machine.stop(service.process)).toEqual({ code: 0, signal: null });
  });

  it('a receipt is verified and shown all the same', async () => {
    const receipt = join(machine.root, 'receipt.json');
    const { payload } = JSON.parse(readFileSync(receipt, 'utf8')) as { payload: string };
    const statement = JSON.parse(Buffer.from(payload, 'base64').toString()) as {
      predicate: { log: { vkey: string } };
    };
    const { vkey } = statement.predicate.log;
    const verified = await machine.belay(['receipt', 'verify', receipt, '--key', vkey]);
    expect(verified).toMatchObject({ code: 0 });
    expect(verified.stdout).toMatch(/^VALID$/m);
    expect(await machine.belay(['receipt', 'show', receipt, '--key', vkey])).toMatchObject({ code: 0 });
  });

  it('what needs the service says that it is not there', async () => {
    const { code, stdout } = await machine.belay(
      ['token', 'list', '--project', 'prj_x', '--json'],
      asAdmin(),
    );
    expect(code).toBe(69);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'unreachable' } });
  });

  it('fsck finds the whole database as it was signed', async () => {
    const { code, stdout } = await machine.belay(['log', 'fsck', '--data', machine.data, '--json']);
    const report = JSON.parse(stdout) as { verdict: string; logs: { size: number; findings: unknown[] }[] };
    expect({ code, findings: report.logs.flatMap(({ findings }) => findings) }).toEqual({
      code: 0,
      findings: [],
    });
    expect(report.verdict).toBe('CLEAN');
    expect(report.logs.length).toBeGreaterThanOrEqual(5);
  });
});
