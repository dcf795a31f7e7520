/** `belay forward --background`: sends what hooks put into the spools, for as long as an epoch of theirs is open. */

import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pendingSpools, SHARED_TIMES, tendShared } from '@belay/client';
import { acquire, DirLocked } from '@belay/dirlock';
import { forwarderFor } from './attestation.js';
import type { Login } from './credentials.js';
import { backgroundDir } from './hook-forward.js';
import type { Settings } from './settings.js';

/** How often the spools are looked at. Milliseconds. */
const LOOK_EVERY = 500;
const MAX_TEND = 2_000;
const FIRST_RETRY = 1_000;
const LAST_RETRY = 60_000;
/** A service that is away for so long, with nothing open any more, is left to the next run. Milliseconds. */
const GIVE_UP = 10 * 60_000;

/** Returns when there is nothing to do, at once when another process does it. */
export async function forwardInBackground(state: string, login: Login, settings: Settings): Promise<void> {
  const { origin } = login.credential;
  const folder = backgroundDir(state, origin);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  let lock;
  try {
    lock = acquire(folder);
  } catch (error) {
    if (error instanceof DirLocked) return;
    throw error;
  }
  const stop = new AbortController();
  const forwarder = forwarderFor(state, login, undefined, settings.limits);
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      stop.abort();
      forwarder.stop();
    });
  }
  // A service that can't be reached is not waited for inside: heartbeats are due all the same.
  forwarder.hurry();
  const { heartbeat, limits } = settings;
  const tendEvery = Math.min(MAX_TEND, heartbeat / 2);
  let [open, tended, reached, retry, sendAt] = [0, 0, Date.now(), FIRST_RETRY, 0];
  let sent = '';
  try {
    while (!stop.signal.aborted && forwarder.stopped === undefined) {
      const now = Date.now();
      if (now - tended >= tendEvery) {
        tended = now;
        open = tendShared(state, origin, { ...SHARED_TIMES, heartbeat }, limits).open;
      }
      const waiting = spoolsNow(state, origin);
      let left = 0;
      if (waiting !== sent && now >= sendAt) {
        ({ left } = await forwarder.adoptOrphans());
        if (left === 0) {
          sent = waiting;
          reached = Date.now();
          retry = FIRST_RETRY;
        } else {
          sendAt = Date.now() + retry;
          retry = Math.min(LAST_RETRY, retry * 2);
        }
      }
      const done = waiting === sent || Date.now() - reached > GIVE_UP;
      if (open === 0 && tended === now && done) break;
      await sleep(LOOK_EVERY, undefined, { signal: stop.signal }).catch(() => undefined);
    }
  } catch (error) {
    // Nobody sees what it says; the next event starts another one.
    writeFileSync(join(folder, 'last-failure'), `${(error as Error).stack ?? String(error)}\n`, {
      mode: 0o600,
    });
    throw error;
  } finally {
    forwarder.stop();
    lock.release();
  }
}

/** Which spools there are and how long; the same words again mean that nothing came. */
function spoolsNow(state: string, origin: string): string {
  return pendingSpools(state, origin)
    .map((dir) => {
      try {
        return `${dir} ${statSync(join(dir, 'lines')).size}`;
      } catch {
        return '';
      }
    })
    .join('\n');
}
