/** An MCP server tried inside a boundary: whether it starts, answers and lists its tools, and what it was refused. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Denial, prepare, type SandboxHost, type SandboxPolicy } from '@belay/sandbox';

export interface ServerTrial {
  readonly command: readonly string[];
  /** It answered `initialize`. */
  readonly answered: boolean;
  /** As it calls itself. */
  readonly server: { readonly name: string; readonly version: string } | undefined;
  readonly protocol: string | undefined;
  /** Tools it listed; undefined when it was not heard of. */
  readonly tools: number | undefined;
  /** How it ended by itself before it was told to; undefined when it ran on. */
  readonly ended: string | undefined;
  readonly denials: readonly Denial[];
  /** The last it wrote to standard error. */
  readonly words: string;
}

export interface TrialOptions {
  readonly policy: SandboxPolicy;
  readonly host: SandboxHost;
  readonly command: readonly [string, ...string[]];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** How long it is watched at least, in seconds. */
  readonly seconds: number;
  readonly signal: AbortSignal;
}

/** How long an answer may take, in milliseconds: a package runner may have to look for its program first. */
const ANSWER = 20_000;
/** From the end of its input to the end of the server, and what is waited for before it is killed. */
const GRACE = 2_000;
const WORDS = 2_000;

const INITIALIZE = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: {
    protocolVersion: '2025-06-18',
    capabilities: {},
    clientInfo: { name: 'belay-sandbox-check', version: '0.1.0' },
  },
};
const INITIALIZED = { jsonrpc: '2.0', method: 'notifications/initialized' };
const LIST_TOOLS = { jsonrpc: '2.0', id: 2, method: 'tools/list', params: {} };

interface Answer {
  readonly id?: unknown;
  readonly result?: {
    readonly protocolVersion?: unknown;
    readonly serverInfo?: { readonly name?: unknown; readonly version?: unknown };
    readonly tools?: unknown;
  };
  readonly error?: unknown;
}

/** Throws SandboxError where the boundary can't be had. */
export async function tryServer(options: TrialOptions): Promise<ServerTrial> {
  const { policy, host, command, cwd, env } = options;
  const prepared = await prepare(policy, { argv: command, cwd, env }, host);
  const denials: Denial[] = [];
  prepared.onDenial((denial) => denials.push(denial));
  const [program, ...args] = prepared.argv;
  const child = spawn(program, args, {
    cwd: prepared.cwd,
    env: prepared.env,
    stdio: ['pipe', 'pipe', 'pipe', ...prepared.fds],
    detached: true,
  });
  prepared.started(child.pid);
  let words = '';
  let asked = true;
  const gone = new Promise<string>((resolve) => {
    child.once('error', (error) => {
      resolve(error.message);
    });
    child.once('exit', (code, signal) => {
      resolve(signal ?? `exit ${code}`);
    });
  });
  let ended: string | undefined;
  void gone.then((how) => {
    if (asked) ended = how;
  });
  const stop = (): void => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
      process.kill(-child.pid, 'SIGKILL');
  };
  options.signal.addEventListener('abort', stop);
  // These are the child's since `spawn` was told so; the types do not say it when there are more than three.
  const { stdin, stdout, stderr } = child;
  stderr?.setEncoding('utf8').on('data', (text: string) => {
    words = (words + text).slice(-WORDS);
  });
  stdin?.on('error', () => undefined);
  const answers = new Map<unknown, (answer: Answer) => void>();
  if (stdout) {
    createInterface({ input: stdout }).on('line', (line) => {
      const answer = parse(line);
      if (answer !== undefined) answers.get(answer.id)?.(answer);
    });
  }
  const ask = async (request: { readonly id: number }): Promise<Answer | undefined> => {
    const answered = new Promise<Answer>((resolve) => answers.set(request.id, resolve));
    stdin?.write(`${JSON.stringify(request)}\n`);
    const timer = new AbortController();
    const late = sleep(ANSWER, undefined, { signal: timer.signal }).catch(() => undefined);
    try {
      return await Promise.race([answered, late, gone.then(() => undefined)]);
    } finally {
      timer.abort();
    }
  };
  try {
    const started = performance.now();
    const hello = await ask(INITIALIZE);
    let list: Answer | undefined;
    if (hello?.result !== undefined) {
      stdin?.write(`${JSON.stringify(INITIALIZED)}\n`);
      list = await ask(LIST_TOOLS);
    }
    const rest = options.seconds * 1_000 - (performance.now() - started);
    if (hello !== undefined && rest > 0) await Promise.race([gone, sleep(rest)]);
    asked = false;
    stdin?.end();
    await Promise.race([gone, sleep(GRACE)]);
    stop();
    if (child.exitCode === null && child.signalCode === null && child.pid !== undefined)
      await once(child, 'exit');
    prepared.drain();
    const { serverInfo, protocolVersion } = hello?.result ?? {};
    const tools = list?.result?.tools;
    return {
      command,
      answered: hello !== undefined,
      server:
        serverInfo === undefined
          ? undefined
          : { name: String(serverInfo.name), version: String(serverInfo.version) },
      protocol: typeof protocolVersion === 'string' ? protocolVersion : undefined,
      tools: Array.isArray(tools) ? tools.length : undefined,
      ended,
      denials,
      words: words.trim(),
    };
  } finally {
    options.signal.removeEventListener('abort', stop);
    stop();
    await prepared.dispose();
  }
}

function parse(line: string): Answer | undefined {
  try {
    const answer = JSON.parse(line) as unknown;
    return typeof answer === 'object' && answer !== null ? answer : undefined;
  } catch {
    return undefined;
  }
}
