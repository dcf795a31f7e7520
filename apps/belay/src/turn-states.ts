/** Takes states of the workspace around calls, beside the traffic, and puts them on record. */

import { readdirSync, readFileSync } from 'node:fs';
import { CaptureThread } from '@belay/snapshot';
import type { AttestFirst } from './attest-first.js';
import type { Recorder } from './recorder.js';
import { type StateTaken, TurnGate, type Unattested } from './turn-gate.js';
import type { WorkspaceScope } from './workspace-scope.js';

/** Milliseconds: a call is hardly slower for it; the first one of a run is, once, so that the run has a beginning. */
const HOLD_LIMIT = 100;
const FIRST_HOLD_LIMIT = 2_000;

export interface TurnStatesParts {
  readonly scope: WorkspaceScope;
  readonly recorder: Recorder;
  /** The server's processes, as far as there are any by now; what descends from them is found. */
  readonly processes: () => readonly number[];
  /** How long a call or its answer may wait for its state, milliseconds; the usual limits where it is not said. */
  readonly holdLimit: number | undefined;
  /** Where calls wait for their state to be acknowledged. */
  readonly attestFirst: AttestFirst | undefined;
  readonly warn: (message: string) => void;
}

/** Begins with the state there is now. Where none can be had, that is on record, and nothing ever waits. */
export function keepStates({
  scope,
  recorder,
  processes,
  holdLimit,
  attestFirst,
  warn,
}: TurnStatesParts): TurnGate {
  const capturing = CaptureThread.open({
    store: scope.store,
    roots: scope.roots,
    ignore: scope.ignore,
    processes,
  });
  capturing.catch((error: unknown) =>
    warn(`no states of the workspace are kept: ${(error as Error).message}`),
  );
  const places = { store: scope.store, roots: scope.roots, ignored: scope.ignore };
  let said: number | undefined;
  const attested = async (first: AttestFirst): Promise<Unattested | undefined> => {
    recorder.settle();
    return await first.acknowledged(said);
  };
  return new TurnGate({
    capturing,
    holdLimit: holdLimit ?? HOLD_LIMIT,
    firstHoldLimit: holdLimit ?? FIRST_HOLD_LIMIT,
    tell: (state) => {
      said = recorder.state(
        { ...stateOf(state, processes), ...(state.phase === 'open' ? places : {}) },
        attributesOf(state),
      );
    },
    attested: attestFirst && (() => attested(attestFirst)),
    went: attestFirst && ((calls, odd) => attestFirst.count(calls, odd)),
  });
}

function stateOf(
  { phase, group, calls, taken, drift, known }: StateTaken,
  processes: () => readonly number[],
): Parameters<Recorder['state']>[0] {
  const place = { phase, group, calls };
  if (taken.kind === 'state') {
    const { digest, changed, entries, rehashed, stopped, ms } = taken;
    return {
      state: digest,
      ...place,
      drift: drift ? (hasDescendants(processes()) ? 'server' : 'outside') : undefined,
      changed: known ? { ...changed } : undefined,
      entries,
      rehashed,
      stopped: stopped ? true : undefined,
      ms: Math.round(ms * 1_000) / 1_000,
    };
  }
  const { detail } = taken;
  if (taken.kind === 'released') return { state: 'unrestorable', ...place, cause: taken.cause, detail };
  const cause = taken.cause.toUpperCase().replaceAll('-', '_');
  return { state: 'unrestorable', ...place, cause, path: taken.path, detail };
}

function attributesOf({ phase, taken, drift, known }: StateTaken): Parameters<Recorder['state']>[1] {
  if (taken.kind !== 'state') return { phase };
  const { created, modified, deleted, metadata } = taken.changed;
  return {
    phase,
    files: taken.entries,
    changed: known ? created + modified + deleted + metadata : undefined,
    drift: drift ? true : undefined,
  };
}

/**
 * Whether the server has left something running that may have changed what nobody called it for. Inside a boundary,
 * `pids` are all that live there.
 */
function hasDescendants(pids: readonly number[]): boolean {
  if (pids.length > 1) return true;
  return pids.some((pid) => {
    try {
      return readdirSync(`/proc/${pid}/task`).some((thread) =>
        readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1')
          .split(' ')
          .some((child) => child !== ''),
      );
    } catch {
      return false;
    }
  });
}
