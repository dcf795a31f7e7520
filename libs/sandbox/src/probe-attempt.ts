/** What an attempt works with, inside the boundary. */

import { mkdirSync, readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type Native, loadNative, SyscallError } from './probe-native.js';
import type { ProbePlan, Victim } from './probe-plan.js';

/** What came of it: a word on what was done, and the digest of a secret that was read. A refusal is thrown. */
export type Outcome = string | { readonly did: string; readonly proof: string };

export type Attempt = (inside: Inside) => Outcome | Promise<Outcome>;

/** The means are missing here. */
export class AbsentError extends Error {}

export class Inside {
  readonly plan: ProbePlan;
  /** The row's whole name: `escape-write`. */
  readonly id: string;
  /** Whether its mounts were others than the host's at the start: rows may leave the host's on the way. */
  readonly contained: boolean;
  static #native: Native | undefined;

  constructor(plan: ProbePlan, id: string, contained: boolean) {
    this.plan = plan;
    this.contained = contained;
    this.id = id;
  }

  get native(): Native {
    Inside.#native ??= loadNative();
    if (Inside.#native === undefined) throw new AbsentError('koffi can not be loaded');
    return Inside.#native;
  }

  /** This row's folder in the workspace. */
  get own(): string {
    const folder = join(this.plan.workspace, this.id);
    mkdirSync(folder, { recursive: true });
    return folder;
  }

  /** This row's folder outside, and the file in it. */
  get folder(): string {
    return join(this.plan.outside, this.id);
  }

  get victim(): string {
    return join(this.folder, 'victim');
  }

  /** The process outside that this row works on. Throws ESRCH when its number is another's in here. */
  get process(): Victim {
    const victim = this.plan.victims[this.id];
    if (victim === undefined) throw new AbsentError('no process to try it on');
    let command: string | undefined;
    try {
      command = readFileSync(`/proc/${victim.pid}/cmdline`, 'latin1');
    } catch {
      // Not to be seen is not yet not to be reached.
    }
    if (command !== undefined && !command.includes(victim.mark)) throw new SyscallError('ESRCH', 'kill');
    return victim;
  }
}

/** Reads a secret and says so by its digest: the probe's output is not a place for what it found. */
export function stolen(path: string): Outcome {
  return { did: 'read', proof: digest(readFileSync(path)) };
}

export const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
