/** What a tenant's administrator does: projects, tokens, auditors, sinks; and the operator's one command. */

import type {
  AuditorIssued,
  ProjectCreated,
  Revoked,
  SinkDeclared,
  TenantCreated,
  TokenIssued,
  TokenList,
  TokenListed,
} from '@belay/contracts/http';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type AdminOptions, adminCommand, asAdmin, projectOf, projectOption } from './admin-options.js';
import { readConfig } from './config.js';
import {
  findLogin,
  loadOrCreateSinkKey,
  readCredentials,
  sinkKeyPath,
  writeCredentials,
} from './credentials.js';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import { badInput, CliError, usage } from './exit.js';
import { columns, print, printable, styleFor } from './output.js';
import { registerPolicy } from './project-policy.js';
import { connect, type ConnectionOptions, connectionOptions } from './service.js';

const PROXY_SINK = 'proxy';

function integer(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new InvalidArgumentError('not a number.');
  return value;
}

interface RegisterOptions extends AdminOptions {
  readonly name: string;
  readonly public?: boolean;
  readonly domain?: string;
  readonly state?: string;
  readonly replace?: boolean;
  readonly login: boolean;
}

async function registerProject(options: RegisterOptions): Promise<void> {
  const config = readConfig();
  const state = options.state ?? config.state;
  const service = await asAdmin(config, options);
  if (options.login && !options.replace && (await readCredentials(config.credentials))) {
    throw badInput(
      'exists',
      `${config.credentials} already holds credentials`,
      '--replace writes over them; --no-login registers the project and leaves them as they are.',
    );
  }
  const project = await service.json<ProjectCreated>('POST', '/v1/projects', {
    name: options.name,
    ...(options.public ? { public: true } : {}),
  });
  // First what can't be had again: the token is shown once, and what follows may fail.
  if (options.login) {
    await writeCredentials(config.credentials, { url: service.url, token: project.token.credential });
  }
  let sinkKey: string | undefined;
  if (options.login) {
    try {
      const { seed } = await loadOrCreateSinkKey(state, project.origin, PROXY_SINK);
      const key = rawPublicKey(privateKeyObject(seed)).toString('base64');
      await service.json<SinkDeclared>(
        'PUT',
        `/v1/projects/${encodeURIComponent(project.project)}/sinks/${PROXY_SINK}`,
        { kind: 'proxy', key, ...(options.domain === undefined ? {} : { domain: options.domain }) },
      );
      sinkKey = sinkKeyPath(state, project.origin, PROXY_SINK);
    } catch (error) {
      const { message, exit, code } = error as CliError;
      throw error instanceof CliError
        ? new CliError(
            exit,
            code,
            `project ${project.project} is registered, but its sink ${PROXY_SINK} could not be declared: ${message}`,
            `belay sink declare ${PROXY_SINK} --generate-key --project ${project.project}`,
            error,
          )
        : error;
    }
  }
  const style = styleFor(config);
  await print(
    options.json,
    { ...project, ...(options.login ? { credentials: config.credentials, sinkKey } : {}) },
    () =>
      `Registered ${style.bold(printable(project.name))}\n\n` +
      columns(
        [
          ['project', project.project],
          ['log', project.log],
          ['origin', project.origin],
          ['vkey', project.vkey],
          ...(options.login
            ? ([
                ['token', `${project.token.id}, stored in ${config.credentials}`],
                ['sink key', `${sinkKey ?? ''} (sink ${PROXY_SINK})`],
              ] as const)
            : ([['token', project.token.credential]] as const)),
          ['auditor', project.auditor.credential],
        ],
        '  ',
      ) +
      '\nThe auditor key is shown once and not stored: give it to whoever is to read the log. The vkey is what receipts\n' +
      'are checked with; keep it where nobody who can change the log can change it too.\n' +
      (options.login ? `\nNext: ${style.bold('belay proxy -- COMMAND OF AN MCP SERVER')}\n` : ''),
  );
}

interface TokenOptions extends AdminOptions {
  readonly project?: string;
  readonly role: string;
  readonly sink?: string[];
  readonly expires?: string;
  readonly domain?: string;
  readonly rate?: number;
}

async function issueToken(options: TokenOptions): Promise<void> {
  const config = readConfig();
  const service = await asAdmin(config, options);
  const { role, sink: sinks, expires, domain, rate } = options;
  const token = await service.json<TokenIssued>(
    'POST',
    `/v1/projects/${await projectOf(config, options.project)}/tokens`,
    {
      role,
      ...(sinks === undefined ? {} : { sinks }),
      ...(expires === undefined ? {} : { expires: asTime(expires) }),
      ...(domain === undefined ? {} : { domain }),
      ...(rate === undefined ? {} : { rate }),
    },
  );
  await print(
    options.json,
    token,
    () =>
      `${token.credential}\n\nToken ${token.id}, role ${token.role}; entry ${token.index} of the log says who issued it.\n` +
      (role === 'verifier'
        ? 'Shown once. Its holder sets BELAY_TOKEN and runs: belay verify --attest TRACE\n' +
          'Verdicts count only when signed under a declared key. Once, on the machine that verifies, with the admin key:\n' +
          `belay sink declare ${sinks?.[0] ?? 'verifier'} --kind verifier --domain ${domain ?? 'audit'} --generate-key\n`
        : 'Shown once. Its holder runs: belay login\n'),
  );
}

/** A date or time as people write it, to the form that the API takes. */
function asTime(text: string): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime()))
    throw usage(`not a time: ${text}`, 'Such as 2027-01-31 or 2027-01-31T12:00:00Z.');
  return time.toISOString();
}

async function listTokens(options: AdminOptions & { readonly project?: string }): Promise<void> {
  const config = readConfig();
  const service = await asAdmin(config, options);
  const path = `/v1/projects/${await projectOf(config, options.project)}/tokens`;
  const tokens: TokenListed[] = [];
  let cursor: string | undefined;
  do {
    const query: string = cursor === undefined ? '' : `?cursor=${encodeURIComponent(cursor)}`;
    const page: TokenList = await service.json<TokenList>('GET', path + query);
    tokens.push(...page.tokens);
    cursor = page.next;
  } while (cursor !== undefined);
  await print(options.json, { tokens }, () =>
    tokens.length === 0
      ? 'No tokens.\n'
      : columns(
          tokens.map((token) => [
            token.id,
            [
              token.role.padEnd(8),
              token.revokedIndex === undefined ? 'valid' : `revoked at entry ${token.revokedIndex}`,
              token.sinks ? `sinks ${token.sinks.map(printable).join(', ')}` : 'any sink',
              ...(token.expires ? [`until ${token.expires}`] : []),
              ...(token.domain ? [`domain ${printable(token.domain)}`] : []),
              `issued by ${token.issuedBy}, entry ${token.issuedIndex}`,
            ].join('  '),
          ]),
        ),
  );
}

async function revokeToken(id: string, options: AdminOptions & { readonly project?: string }): Promise<void> {
  const config = readConfig();
  const service = await asAdmin(config, options);
  const project = await projectOf(config, options.project);
  const revoked = await service.json<Revoked>(
    'DELETE',
    `/v1/projects/${project}/tokens/${encodeURIComponent(id)}`,
  );
  await print(
    options.json,
    revoked,
    () => `Revoked ${revoked.id}; entry ${revoked.index} of the log says so.\n`,
  );
}

async function issueAuditor(options: AdminOptions & { readonly project?: string }): Promise<void> {
  const config = readConfig();
  const service = await asAdmin(config, options);
  const auditor = await service.json<AuditorIssued>(
    'POST',
    `/v1/projects/${await projectOf(config, options.project)}/auditors`,
    {},
  );
  await print(
    options.json,
    auditor,
    () =>
      `${auditor.credential}\n\nAuditor key ${auditor.id}; shown once. It reads this project and nothing else.\n`,
  );
}

interface SinkOptions extends AdminOptions {
  readonly project?: string;
  readonly kind?: string;
  readonly required?: boolean;
  readonly domain?: string;
  readonly key?: string;
  readonly generateKey?: boolean;
  readonly heartbeat?: number;
  readonly state?: string;
}

async function declareSink(name: string, options: SinkOptions): Promise<void> {
  const config = readConfig();
  const service = await asAdmin(config, options);
  const { kind, required, domain, heartbeat, generateKey } = options;
  if (generateKey && options.key !== undefined) throw usage('--key and --generate-key exclude each other');
  const project = await projectOf(config, options.project);
  let { key } = options;
  let keyFile: string | undefined;
  if (generateKey) {
    const login = await findLogin(config);
    if (login === undefined || login.credential.project !== decodeURIComponent(project)) {
      throw usage(
        'a key is generated on the machine that will use it, and this one holds no token of that project',
        'Run it there after `belay login`, or pass the public key with --key.',
      );
    }
    const state = options.state ?? config.state;
    const { seed } = await loadOrCreateSinkKey(state, login.credential.origin, name);
    key = rawPublicKey(privateKeyObject(seed)).toString('base64');
    keyFile = sinkKeyPath(state, login.credential.origin, name);
  }
  const sink = await service.json<SinkDeclared>(
    'PUT',
    `/v1/projects/${project}/sinks/${encodeURIComponent(name)}`,
    {
      ...(kind === undefined ? {} : { kind }),
      ...(required === undefined ? {} : { required }),
      ...(domain === undefined ? {} : { domain }),
      ...(key === undefined ? {} : { key }),
      ...(heartbeat === undefined ? {} : { heartbeat }),
    },
  );
  await print(
    options.json,
    { ...sink, ...(keyFile === undefined ? {} : { keyFile }) },
    () =>
      `Declared sink ${printable(sink.sink)}; entry ${sink.index} of the log says so.\n` +
      (sink.key === undefined
        ? 'It has no key: what it sends is asserted, not observed.\n'
        : `Only batches signed by ${sink.key} are accepted from now on.\n`) +
      (keyFile === undefined ? '' : `Its private key is ${keyFile}.\n`),
  );
}

interface TenantOptions extends ConnectionOptions {
  readonly name: string;
  readonly operatorKey?: string;
}

async function createTenant(options: TenantOptions): Promise<void> {
  const config = readConfig();
  const service = await connect(config, options, options.operatorKey ?? config.operatorKey, {
    option: '--operator-key',
    variable: 'BELAY_OPERATOR_KEY',
    from: '`belay serve` printed it when it first started; for a lost one: belay operator reissue',
  });
  const tenant = await service.json<TenantCreated>('POST', '/v1/tenants', { name: options.name });
  await print(
    options.json,
    tenant,
    () =>
      `${tenant.admin.credential}\n\nTenant ${tenant.tenant} and its first admin key ${tenant.admin.id}; shown once.\n` +
      'Next: belay project register --name NAME --admin-key KEY\n',
  );
}

export function register(program: Command): void {
  const project = program.command('project').description('register a project; its policy');
  adminCommand(project.command('register'))
    .description('create a project with its log, and store credentials for this machine')
    .requiredOption('--name <name>', 'name of the project')
    .option('--public', 'checkpoints, tiles and proofs are readable by anyone')
    .option('--domain <name>', "trust domain of this machine's sinks: a host, a vendor, a team")
    .option('--state <dir>', 'state directory for the sink key (BELAY_STATE)')
    .option('--replace', 'replace the stored credentials')
    .option('--no-login', 'print the token in place of storing it')
    .action(registerProject);
  registerPolicy(project);

  const token = program.command('token').description('issue, list and revoke append tokens');
  projectOption(token.command('issue'))
    .description('issue an append token, shown once')
    .addOption(
      new Option('--role <role>', 'what its holder is to the log')
        .choices(['agent', 'sink', 'verifier'])
        .default('agent'),
    )
    .option('--sink <name...>', 'may append as these sinks only')
    .option('--expires <time>', 'end of validity')
    .option('--domain <name>', 'trust domain: a host, a vendor, a team')
    .option('--rate <lines>', 'at most this many lines a minute', integer)
    .action(issueToken);
  projectOption(token.command('list')).description('list append tokens, revoked ones too').action(listTokens);
  projectOption(token.command('revoke'))
    .description('revoke an append token')
    .argument('<id>', 'such as tok_01jd...')
    .action(revokeToken);

  const auditor = program.command('auditor').description('issue a key that may read a project');
  projectOption(auditor.command('issue'))
    .description('issue an auditor key, shown once')
    .action(issueAuditor);

  const sink = program.command('sink').description("declare a project's sinks");
  projectOption(sink.command('declare'))
    .description('declare a sink, or change what was declared')
    .argument('<name>', 'name of the sink')
    .addOption(
      new Option('--kind <kind>', 'what it is').choices([
        'proxy',
        'hook',
        'otlp',
        'forward',
        'verifier',
        'other',
      ]),
    )
    .option('--required', 'a session without it is incomplete')
    .option('--domain <name>', 'trust domain: a host, a vendor, a team')
    .option('--key <base64>', 'its Ed25519 public key: only batches signed by it are accepted')
    .option('--generate-key', 'make a key for this machine (or use the one it has) and declare it')
    .option('--heartbeat <seconds>', 'silent when not heard of for longer', integer)
    .option('--state <dir>', 'state directory for a generated key (BELAY_STATE)')
    .action(declareSink);

  const tenant = program.command('tenant').description('create a tenant (operator)');
  connectionOptions(tenant.command('create'))
    .description('create a tenant and its first admin key, shown once')
    .requiredOption('--name <name>', 'name of the tenant')
    .option('--operator-key <key>', 'the operator key, or @FILE (BELAY_OPERATOR_KEY)')
    .action(createTenant);
}
