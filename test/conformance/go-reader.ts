import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const GOPATH = '/usr/share/gocode';
const source = fileURLToPath(new URL('go-reader/main.go', import.meta.url));

/** Why the Go reader can't be built on this machine, or undefined when it can. */
export const goReaderAbsent: string | undefined = !(process.env['PATH'] ?? '')
  .split(delimiter)
  .some((folder) => existsSync(join(folder, 'go')))
  ? 'Go is not installed (Debian: golang-go)'
  : existsSync(join(GOPATH, 'src/golang.org/x/mod/sumdb/tlog'))
    ? undefined
    : 'golang.org/x/mod is not installed (Debian: golang-golang-x-mod-dev)';

/** What the reader found to hold. */
export interface GoReport {
  readonly origin: string;
  readonly size: number;
  /** Base64. */
  readonly root: string;
  /** Entries whose inclusion was proven: all of them. */
  readonly included: number;
  /** Sizes of earlier trees that this one was proven to begin with. */
  readonly consistent: readonly number[];
  /** HTTP requests made. */
  readonly gets: number;
}

export type GoOutcome =
  { readonly ok: true; readonly report: GoReport } | { readonly ok: false; readonly complaint: string };

/** The compiled reader, in a temporary folder of its own that `close` removes. */
export interface GoReader {
  /**
   * Reads the log below `base` (where `/checkpoint` and `/tile/` are) as the holder of `vkey`. `auth` is the value
   * of an Authorization header, `old` a file with an earlier checkpoint.
   */
  read(base: string, vkey: string, options?: { auth?: string; old?: string }): Promise<GoOutcome>;
  close(): Promise<void>;
}

/** Compiles the reader from the sources that Debian installs; nothing is fetched. Takes seconds. */
export async function buildGoReader(): Promise<GoReader> {
  const folder = await mkdtemp(join(tmpdir(), 'belay-go-reader-'));
  const program = join(folder, 'go-reader');
  const built = await run('go', ['build', '-o', program, source], {
    ...process.env,
    GO111MODULE: 'off',
    GOFLAGS: '',
    GOPATH,
    GOCACHE: join(folder, 'cache'),
    GOPROXY: 'off',
    CGO_ENABLED: '0',
  });
  if (built.code !== 0) {
    await rm(folder, { recursive: true, force: true });
    throw new Error(`the Go reader does not compile: ${built.stderr}`);
  }
  return {
    async read(base, vkey, options = {}) {
      const args = [base, vkey];
      if (options.old !== undefined) args.unshift('-old', options.old);
      if (options.auth !== undefined) args.unshift('-auth', options.auth);
      const { code, stdout, stderr } = await run(program, args, {});
      return code === 0
        ? { ok: true, report: JSON.parse(stdout) as GoReport }
        : { ok: false, complaint: stderr.trim() };
    },
    close: async () => await rm(folder, { recursive: true, force: true }),
  };
}

async function run(
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ code: number | string | null | undefined; stdout: string; stderr: string }> {
  return await new Promise((resolve) => {
    execFile(program, args, { env, timeout: 120_000, maxBuffer: 1 << 20 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, stdout, stderr: stderr || (error?.message ?? '') });
    });
  });
}
