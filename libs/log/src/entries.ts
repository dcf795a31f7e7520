import { entryMaker, type EntryMaker } from '@belay/envelope';
import type { Run } from './store.js';

/** Makes the entries and leaves of a stored run; `sink` is its name, absent for the collector's own. */
export function entryMakerOf(
  origin: string,
  run: Pick<Run, 'role' | 'token' | 'received' | 'late'> & {
    readonly batch: { readonly fingerprint: string } | null;
  },
  sink: string | undefined,
): EntryMaker {
  const received = new Date(run.received).toISOString();
  if (run.role === 'collector') return entryMaker({ log: origin, received, role: 'collector' });
  return entryMaker({
    log: origin,
    received,
    role: run.role,
    token: run.token,
    sink,
    signed: run.batch?.fingerprint,
    late: run.late ? true : undefined,
  });
}
