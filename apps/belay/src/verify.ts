/** `belay verify`: traces judged by running them again. */

import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { machineSecret } from '@belay/client/sink';
import { defaultPolicy, emptyPolicy, type Policy, PolicyError, readPolicy } from '@belay/invariant';
import { SandboxError } from '@belay/sandbox';
import { RestoreError, SnapshotError, Store } from '@belay/snapshot';
import { type Command as RanCommand, readTrace, type TraceRecord } from '@belay/trace';
import type { Cause } from '@belay/verdict';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type CliConfig, readConfig } from './config.js';
import { badInput, EXIT, usage } from './exit.js';
import { type LoginOptions, loginOptions, seconds, sinkName, withLogin } from './option-values.js';
import { print, printable, styleFor } from './output.js';
import { pooled } from './pool.js';
import { DigestCache, digestsPath, identify } from './provenance.js';
import { progress } from './report-progress.js';
import { type ReportOptions, reportOptions, takesOutput, writeReports } from './report-write.js';
import { resolveProgram } from './server-process.js';
import { logKeys } from './trace.js';
import type { AckReport } from './trace-acks.js';
import { checkFile } from './trace-report.js';
import { sandboxTrouble } from './sandbox-policy.js';
import { shownChanges } from './shown-changes.js';
import type { Verification } from './verification.js';
import { judgeInvariants } from './verify-invariants.js';
import { verifyTrace } from './verify-trace.js';
import { checkClaim, claimsOf, unchecked } from './verify-claims.js';
import { compareWorld, replayEnvironment } from './verify-world.js';
import { isWithin } from './workspace-scope.js';

export interface VerifyOptions extends LoginOptions {
  readonly turn?: number;
  readonly isolated?: boolean;
  readonly policy?: string;
  /** False: the built-in rules are left out. */
  readonly defaultPolicy?: boolean;
  /** As the Python Belay calls it; and the same for the folder of the states. */
  readonly defaultInvariants?: boolean;
  readonly manifestDir?: string;
  readonly replays: number;
  /** Seconds. */
  readonly timeout: number;
  readonly server?: readonly string[];
  readonly snapshots?: string;
  readonly state?: string;
  readonly checker?: readonly [string, ...string[]];
  /** False: what was claimed is not looked at. */
  readonly claimAxis?: boolean;
  readonly acks?: boolean;
  readonly attest?: boolean;
  /** Verdicts are sent that count for nothing. */
  readonly unsigned?: boolean;
  readonly sink: string;
  /** Nothing of a long session is folded. */
  readonly all?: boolean;
  readonly json?: boolean;
  readonly allowUnverified?: boolean;
}

/** What a trace says of its beginning, and whether it was refused what it says. */
interface Beginning {
  readonly open: (TraceRecord & { type: 'open' }) | undefined;
  readonly state: (TraceRecord & { type: 'state' }) | undefined;
}

async function beginningOf(path: string): Promise<Beginning> {
  let open: Beginning['open'];
  for await (const line of readTrace(path)) {
    if (!('record' in line)) continue;
    if (line.record.type === 'open') open ??= line.record;
    if (line.record.type === 'state') return { open, state: line.record };
  }
  return { open, state: undefined };
}

/** Judges one trace. Throws CliError for what can't be one, and where the machine is in the way. */
export async function verifyFile(
  path: string,
  options: VerifyOptions,
  config: CliConfig,
  signal: AbortSignal,
  onProgress: (done: number, total: number) => void,
): Promise<Verification> {
  if (!existsSync(path)) throw badInput('no_trace', `${path} is not there`);
  if (!statSync(path).isFile()) throw badInput('not_a_trace', `${path} is no file`);
  const { open, state } = await beginningOf(path);
  if (open === undefined) throw badInput('not_a_trace', `${path} is no trace: it has no beginning`);
  const home = resolve(options.state ?? config.state);
  const manifests = options.manifestDir?.replace(/\.manifests\/?$/, '');
  const snapshots = options.snapshots ?? manifests ?? state?.store ?? join(home, 'snapshots');
  // A trace may name any folder; one that is no store is not made one.
  const isStore = state !== undefined && existsSync(join(snapshots, 'format'));
  const store = isStore ? openStore(snapshots) : undefined;
  const { command, upstream } = open;
  const caps: Cause[] = [];
  if (upstream !== undefined) caps.push('REMOTE_SERVER');
  const hide = [home, ...(isStore ? [resolve(snapshots)] : [])].filter((folder) => existsSync(folder));
  const policy = policyOf(options);
  const roots = state?.roots ?? [];
  if (
    options.policy !== undefined &&
    roots.some((root) => isWithin(realpathSync(options.policy as string), root))
  ) {
    caps.push('POLICY_IN_WORKSPACE');
  }
  const env = replayEnvironment(command?.env, config.environment, machineSecret(home));
  const server = upstream === undefined ? serverOf(command, options.server, env) : undefined;
  const digests = new DigestCache(digestsPath(home));
  try {
    const attested =
      options.acks === true || options.attest === true ? await acksOf(path, home, config) : undefined;
    return await verifyTrace({
      trace: path,
      store,
      server,
      world: async (close) => {
        const ran = command && { ...command, executable: close?.executable ?? command.executable };
        const now = server && identify(server.program, server.argv.slice(1), server.cwd, digests);
        if (now !== undefined && now.executable.sha256 === undefined) {
          const { path: program } = now.executable;
          const sha256 = await digests.later(program, signal);
          return compareWorld(
            ran,
            { ...now, executable: { path: program, sha256 } },
            config.environment,
            machineSecret(home),
          );
        }
        return compareWorld(ran, now, config.environment, machineSecret(home));
      },
      policy: { digest: policy.digest, ...(options.policy === undefined ? {} : { file: options.policy }) },
      caps,
      attested,
      claims: await claimsOf(path, open.session),
      claim:
        options.claimAxis === false
          ? undefined
          : async (claim, last, changes) => {
              const { checker } = options;
              if (checker === undefined || store === undefined || last === undefined) return unchecked(claim);
              const cwd = state?.roots?.[0] ?? process.cwd();
              const given = {
                checker,
                store,
                state: last,
                cwd,
                env,
                hide,
              };
              return checkClaim(claim, changes, { ...given, patience: CHECK_PATIENCE });
            },
      invariants: (interval, contents) => judgeInvariants(policy, interval, contents),
      show: shownChanges,
      turn: options.turn,
      isolated: options.isolated === true,
      replays: options.replays,
      timeout: options.timeout * 1000,
      hide,
      onProgress,
      signal,
      now: Date.now,
    });
  } catch (error) {
    throw told(error);
  } finally {
    store?.close();
  }
}

function openStore(folder: string): Store {
  try {
    return Store.open(folder);
  } catch (error) {
    throw told(error);
  }
}

/** Errors of the libraries as a person is told them; others pass. */
function told(error: unknown): unknown {
  if (error instanceof SandboxError) return sandboxTrouble(error);
  if (error instanceof SnapshotError || error instanceof RestoreError) {
    const next = 'What is kept can be checked: belay snapshot verify.';
    return badInput(error.code.replaceAll('-', '_'), printable(error.message), next, error);
  }
  return error;
}

async function acksOf(path: string, state: string, config: CliConfig): Promise<AckReport> {
  const { compareWithAcks } = await import('./trace-acks.js');
  return compareWithAcks(await checkFile(path), { state, keys: await logKeys([], config) });
}

/** The operator's rules: a file's, with the built-in ones or without. */
function policyOf({ policy, defaultPolicy: ours = true, defaultInvariants = true }: VerifyOptions): Policy {
  const defaults = ours && defaultInvariants;
  if (policy === undefined) return defaults ? defaultPolicy() : emptyPolicy();
  try {
    return readPolicy(readFileSync(policy, 'utf8'), { defaults });
  } catch (error) {
    if (error instanceof PolicyError)
      throw badInput('policy', `${policy}: ${error.message}`, undefined, error);
    throw badInput('policy', `${policy}: ${(error as Error).message}`, undefined, error);
  }
}

/** What is run again: what was started, or the command line that was given in its place. */
function serverOf(
  command: RanCommand | undefined,
  instead: readonly string[] | undefined,
  env: Readonly<Record<string, string>>,
) {
  const argv = instead ?? command?.started ?? command?.argv;
  const cwd = command?.cwd ?? process.cwd();
  const [first, ...args] = argv ?? [];
  if (first === undefined || !isAbsolute(cwd)) return undefined;
  const program = resolveProgram(first, env['PATH'], cwd);
  if (program === undefined) return undefined;
  return { argv: [program, ...args] as [string, ...string[]], program, cwd, env };
}

/** How long verdicts may take to be acknowledged, milliseconds. */
const PATIENCE = 10_000;

/** How long a checker, and the check that it wrote, may take; milliseconds. */
const CHECK_PATIENCE = 120_000;

const EXIT_OF = { PASS: EXIT.good, WARN: EXIT.good, UNVERIFIED: EXIT.undecided, FAIL: EXIT.bad } as const;

/** FAIL before UNVERIFIED, whatever the order of the traces. */
export function exitOf(found: readonly Verification[], allowUnverified = false): number {
  const exits = found.map(({ tally }) => EXIT_OF[tally.status]);
  if (exits.includes(EXIT.bad)) return EXIT.bad;
  return exits.includes(EXIT.undecided) && !allowUnverified ? EXIT.undecided : EXIT.good;
}

/**
 * Judges traces, as many at once as there are cores, and says on a terminal how far it is. `interrupted`: some were not
 * judged to the end.
 */
export async function verifyAll(
  traces: readonly string[],
  options: VerifyOptions,
  config: CliConfig,
): Promise<{ readonly found: readonly Verification[]; readonly interrupted: boolean }> {
  if (options.turn !== undefined && traces.length > 1) throw usage('--turn is of one trace');
  const stop = new AbortController();
  const end = (): void => stop.abort();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, end);
  const shown = progress(traces);
  try {
    const found = await pooled(traces, availableParallelism(), stop.signal, async (path, i, signal) => {
      const each = await verifyFile(path, options, config, signal, (done, total) => shown.at(i, done, total));
      shown.finished();
      return each;
    });
    return { found, interrupted: stop.signal.aborted };
  } finally {
    shown.end();
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, end);
  }
}

async function runVerify(traces: readonly string[], options: VerifyOptions & ReportOptions): Promise<void> {
  const config = withLogin(readConfig(), options);
  if (options.isolated && options.turn === undefined) throw usage('--isolated is of one turn: --turn N');
  const taken = takesOutput(options);
  if (options.attest === true && options.unsigned !== true) {
    const { mustCount } = await import('./verify-attest.js');
    await mustCount({ state: options.state ?? config.state, sink: options.sink }, config);
  }
  const { found, interrupted } = await verifyAll(traces, options, config);
  if (options.attest === true && !interrupted) await attestAll(found, options, config);
  if (!taken) {
    const { showVerification } = await import('./report-table.js');
    const page = { style: styleFor(config), width: process.stdout.columns ?? 120, all: options.all === true };
    await print(options.json, found.length === 1 ? found[0] : found, () =>
      found.map((each) => showVerification(each, page)).join('\n'),
    );
  }
  // A report of half of the work must not take the place of a whole one.
  if (!interrupted) await writeReports(found, options);
  process.exitCode = interrupted ? 130 : exitOf(found, options.allowUnverified);
}

/** Tells the log, and says on standard error what it was told. */
async function attestAll(
  found: readonly Verification[],
  options: VerifyOptions,
  config: CliConfig,
): Promise<void> {
  const { attestVerdicts } = await import('./verify-attest.js');
  const state = options.state ?? config.state;
  for (const each of found) {
    const { open } = await beginningOf(each.trace);
    const { verdicts, waiting, unsigned } = await attestVerdicts(
      each,
      { state, sink: options.sink, log: open?.log, patience: PATIENCE },
      config,
    );
    const rest = waiting ? '; they wait in the spool, `belay forward` sends them' : '';
    process.stderr.write(
      `belay: ${verdicts} ${verdicts === 1 ? 'verdict' : 'verdicts'} said to the log${rest}\n`,
    );
    if (unsigned)
      process.stderr.write(
        `belay: unsigned: no key of the sink ${options.sink} is declared, so these count for nothing.\n` +
          `  An administrator of the project, on this machine: belay sink declare ${options.sink} --kind verifier --domain audit --generate-key\n`,
      );
  }
}

/** What decides how traces are judged, for every command that judges them. */
export function judgingOptions(command: Command): Command {
  return command
    .argument('<trace...>', 'traces, as `belay proxy` writes them')
    .option('--policy <file>', 'rules of the operator, besides the built-in ones')
    .option('--no-default-policy', 'without the built-in rules')
    .addOption(new Option('--no-default-invariants', 'as --no-default-policy').hideHelp())
    .option('--replays <n>', 'sessions that are played at most; two are needed for a FAIL', count, 2)
    .option('--checker <command...>', 'is given what was claimed, and prints a program that checks it')
    .option('--no-claim-axis', 'what was claimed is not looked at')
    .option('--acks', 'hold the trace against what the log signed for');
}

/** What decides how traces are played. */
export function playingOptions(command: Command): Command {
  return command
    .option('--timeout <seconds>', 'how much longer a call may take than it took', seconds, 10)
    .option('--server <command...>', 'command line of the server, in place of the recorded one')
    .option('--snapshots <dir>', 'where the states are (what the trace says, then STATE/snapshots)')
    .addOption(
      new Option('--manifest-dir <dir>', 'as --snapshots: DIR.manifests stands beside DIR').hideHelp(),
    )
    .option('--state <dir>', 'state directory (BELAY_STATE)');
}

export function register(program: Command): void {
  const command = loginOptions(program.command('verify')).description(
    'judge traces by running them again against restored state',
  );
  reportOptions(playingOptions(judgingOptions(command)))
    .option('--turn <n>', 'only this call, counted from 1', count)
    .option('--isolated', 'with --turn: by a server of its own that is told of no other call')
    .option('--attest', 'send the verdicts to the log, with the token of a verifier; implies --acks')
    .option('--sink <name>', 'with --attest: name of the sink', sinkName, 'verifier')
    .option('--unsigned', 'with --attest: also where the verdicts will not count')
    .option('--allow-unverified', 'exit with 0 also where something could not be decided')
    .option('--all', 'every row and every explanation of a long session')
    .option('--json', 'print what was found for machines')
    .addHelpText(
      'after',
      `
Verdicts count for the log only where they are signed under a declared key and sent with the token of a verifier. An
administrator makes both, the key on the machine that runs this; then they are sent:
  belay sink declare verifier --kind verifier --domain audit --generate-key
  belay token issue --role verifier --sink verifier --domain audit
  BELAY_TOKEN=belay_append_... belay verify --attest TRACE

The last lines count the verdict on the session as a whole too: one more than calls and drifts.`,
    )
    .action(runVerify);
}

export function count(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new InvalidArgumentError('a count, from 1.');
  return Number(text);
}
