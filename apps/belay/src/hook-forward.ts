/** Starting what sends a hook's lines: the hook itself has no time to. */

import { closeSync, mkdirSync, openSync, statSync, utimesSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { logDir } from '@belay/client/sink';
import { holderOf } from '@belay/dirlock';

/** Folder whose lock the background forwarder of a log holds. */
export const backgroundDir = (state: string, log: string): string => join(logDir(state, log), 'forwarder');

/** One that ended, for whatever reason, is not started again sooner. Milliseconds. */
const PAUSE = 2_000;
const BELAY = fileURLToPath(new URL('../bin/belay.js', import.meta.url));

/**
 * Starts `belay forward --background` unless one runs, or was started a moment ago. Does not wait for it. After `last`
 * no event may come that could start one.
 */
export function startForwarding(
  state: string,
  log: string,
  env: Readonly<Record<string, string | undefined>>,
  last: boolean,
): void {
  const folder = backgroundDir(state, log);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const started = join(folder, 'started');
  const recently = !last && Date.now() - (modifiedAt(started) ?? 0) < PAUSE;
  if (recently || runningPid(folder) !== undefined) return;
  closeSync(openSync(started, 'a', 0o600));
  const now = new Date();
  utimesSync(started, now, now);
  // Loaded here: most events find one running.
  void import('node:child_process').then(({ spawn }) => {
    const child = spawn(process.execPath, [BELAY, 'forward', '--background', '--state', resolve(state)], {
      detached: true,
      stdio: 'ignore',
      env,
    });
    child.on('error', () => undefined);
    child.unref();
  });
}

/** Process that sends. One that was killed does not, also where another process has its number now. */
export function runningPid(folder: string): number | undefined {
  try {
    return holderOf(folder);
  } catch {
    return undefined;
  }
}

function modifiedAt(path: string): number | undefined {
  try {
    return statSync(path).mtimeMs;
  } catch {
    return undefined;
  }
}
