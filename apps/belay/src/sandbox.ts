/** `belay sandbox check`: the boundary of a policy, proven on this machine by trying it. */

import { mkdtempSync, realpathSync, rmSync, statSync } from 'node:fs';
import { homedir, tmpdir, userInfo } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { SandboxError, type SandboxHost } from '@belay/sandbox';
import {
  checkBoundary,
  placeOutside,
  PROBE_GROUPS,
  PROBE_ROWS,
  type ProbeGroup,
  ProbeError,
} from '@belay/sandbox/probe';
import { type Command, Option } from 'commander';
import { type CliConfig, readConfig } from './config.js';
import { badInput, CliError, EXIT, usage } from './exit.js';
import { seconds } from './option-values.js';
import { print, styleFor } from './output.js';
import { resolveRunner } from './package-runner.js';
import { type BoundaryOptions, boundaryOptions, policyFrom, sandboxTrouble } from './sandbox-policy.js';
import { tryServer } from './sandbox-server.js';
import { trySnapshot } from './sandbox-snapshot.js';
import { checkPage, type SandboxCheck } from './sandbox-table.js';

interface Options extends BoundaryOptions {
  readonly scope?: string;
  readonly seconds: number;
  readonly only?: readonly ProbeGroup[];
  readonly json?: boolean;
}

/** Our own secrets; nothing inside has a use for them. */
const WITHHELD = ['BELAY_TOKEN', 'BELAY_ADMIN_KEY', 'BELAY_OPERATOR_KEY', 'BELAY_AUDITOR_KEY'];

/**
 * Looked for in the user's home, as the back ends hide them: a list of its own, so that one that they forget is seen.
 */
const CREDENTIALS = [
  '.ssh',
  '.gnupg',
  '.aws',
  '.azure',
  '.kube',
  '.docker/config.json',
  '.config/gcloud',
  '.config/gh',
  '.git-credentials',
  '.netrc',
  '.npmrc',
  '.pypirc',
  '.pgpass',
  '.vault-token',
  '.cargo/credentials.toml',
];
/** Whoever reaches one of these can make the machine do things. */
const POWERFUL = [
  '/run/docker.sock',
  '/run/containerd/containerd.sock',
  '/run/podman/podman.sock',
  '/run/systemd/private',
  '/run/dbus/system_bus_socket',
];

async function check(server: readonly string[], options: Options): Promise<void> {
  const config = readConfig();
  const stop = new AbortController();
  const onSignal = (): void => {
    stop.abort(new CliError(EXIT.unavailable, 'interrupted', 'interrupted'));
  };
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  const wanted = options.scope ?? config.sandboxScope;
  const scope = wanted === undefined ? undefined : existingFolder(wanted);
  const home = homedir();
  const near = [...(scope === undefined ? [] : [dirname(scope)]), home, '/srv', '/opt', process.cwd()];
  const seen = placeOutside(near, scope === undefined ? [] : [scope]);
  const outside = seen ?? tmpdir();
  // Without a scope, a workspace of our own stands in for it.
  const workspace = scope ?? mkdtempSync(join(outside, 'belay-workspace-'));
  try {
    const env: Record<string, string | undefined> = { ...config.environment };
    for (const name of WITHHELD) delete env[name];
    const policy = policyFrom(options, config, [workspace]);
    const host: SandboxHost = { home, path: env['PATH'] };
    const boundary = await checkBoundary({
      policy,
      host,
      env,
      outside,
      workspace,
      tmp: tmpdir(),
      home,
      credentials: [...CREDENTIALS.map((name) => join(home, name)), config.state, config.credentials],
      realSockets: [...POWERFUL, ...socketsOf(config)],
      signal: stop.signal,
      rows:
        options.only && PROBE_ROWS.filter(({ group }) => options.only?.includes(group)).map(({ row }) => row),
    });
    const snapshot =
      options.only === undefined
        ? await trySnapshot({ policy, host, env, workspace, signal: stop.signal })
        : undefined;
    const trial =
      server.length === 0
        ? undefined
        : await tryServer({
            policy,
            host,
            command: resolved(server as [string, ...string[]], env),
            cwd: process.cwd(),
            env,
            seconds: options.seconds,
            signal: stop.signal,
          });
    stop.signal.throwIfAborted();
    const { username: name, uid } = userInfo();
    const document: SandboxCheck = {
      scope,
      seen: seen !== undefined,
      user: { name, uid },
      ...boundary,
      snapshot,
      server: trial,
    };
    await print(options.json, document, () => checkPage(document, styleFor(config)));
    process.exitCode = exitOf(document);
  } catch (error) {
    if (error instanceof SandboxError) throw cannotTest(sandboxTrouble(error));
    if (error instanceof ProbeError)
      throw new CliError(
        EXIT.undecided,
        'probe',
        `the probe can't run inside: ${error.message}`,
        undefined,
        error,
      );
    throw error;
  } finally {
    process.removeListener('SIGINT', onSignal).removeListener('SIGTERM', onSignal);
    if (scope === undefined) rmSync(workspace, { recursive: true, force: true });
  }
}

/** 0: holds, and the server answers and is refused nothing; 1: one of these is not so; 2: it could not be tested. */
function exitOf({ verdict, snapshot, server }: SandboxCheck): number {
  if (verdict === 'broken' || snapshot?.some(({ works }) => !works) === true) return EXIT.bad;
  if (server !== undefined && (!server.answered || server.denials.length > 0)) return EXIT.bad;
  return verdict === 'untestable' ? EXIT.undecided : EXIT.good;
}

/** A back end that is not here leaves nothing to test; a policy that makes no sense is a wrong input as ever. */
function cannotTest(error: CliError): CliError {
  if (error.exit !== EXIT.unavailable) return error;
  return new CliError(EXIT.undecided, error.code, `can't test: ${error.message}`, error.next, error);
}

function existingFolder(path: string): string {
  const real = realpathSync(resolve(path));
  if (!statSync(real).isDirectory()) throw badInput('scope', `${path} is not a folder`);
  return real;
}

/** Sockets that the environment points this user's programs to. */
function socketsOf({ environment }: CliConfig): string[] {
  const bus = /^unix:path=([^,;]+)/.exec(environment['DBUS_SESSION_BUS_ADDRESS'] ?? '')?.[1];
  return [environment['SSH_AUTH_SOCK'], bus].filter(
    (path): path is string => path !== undefined && path !== '',
  );
}

/** What a package runner would start, so that it needs no network; else the command as it is. */
function resolved(
  command: readonly [string, ...string[]],
  env: Readonly<Record<string, string | undefined>>,
): readonly [string, ...string[]] {
  const [program, ...args] = command;
  return resolveRunner(program, args, env, process.cwd())?.found?.argv ?? command;
}

export function register(program: Command): void {
  const sandbox = program.command('sandbox').description('the boundary that MCP servers run in');
  boundaryOptions(
    sandbox
      .command('check')
      .description(
        'try, on this machine, all that a contained server must not be able to do, and all it must',
      )
      .argument('[server...]', 'an MCP server to try inside, after --')
      .option('--scope <folder>', 'the writable folder (BELAY_SANDBOX_SCOPE; else one made for the check)')
      .addOption(new Option('--only <groups...>', 'try only these groups of attempts').choices(PROBE_GROUPS))
      .option('--seconds <seconds>', 'how long the server is watched', seconds, 2),
  )
    .option('--json', 'one JSON document')
    .passThroughOptions()
    .addHelpText(
      'after',
      '\nExit codes: 0 holds (and the server answers, refused nothing), 1 does not, 2 can not be tested here.',
    )
    .action(async (server: string[], options: Options) => {
      if (server[0]?.startsWith('-')) throw usage(`${server[0]} is no option of this command`);
      await check(server, options);
    });
}
