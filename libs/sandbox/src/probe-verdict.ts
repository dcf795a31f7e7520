/** What a row came to, from three things: the answer without a boundary, the answer inside, and what was seen outside. */

import type { Denial } from './denial.js';
import type { Answer } from './probe-plan.js';
import { type Group, rowOf } from './probe-rows.js';
import type { SandboxRecord } from './record.js';

/**
 * Of an escape row: `refused`; `contained`: it worked on a copy and nothing outside noticed; `escaped`; `hole`: it came
 * through where the back end is known not to hold (it is in the record by name); `allowed`: the policy lets it.
 * Of an ordinary row: `works`, `fails`; `refused-by-policy`: the policy does not let it;
 * `lacks`: the back end can not give it. `untested` of both.
 */
export type Mark =
  | 'refused'
  | 'contained'
  | 'escaped'
  | 'hole'
  | 'allowed'
  | 'works'
  | 'fails'
  | 'lacks'
  | 'refused-by-policy'
  | 'untested';

export interface RowResult {
  readonly row: string;
  readonly kind: 'escape' | 'life';
  readonly group: Group;
  readonly what: string;
  readonly mark: Mark;
  /** Of a refusal: the error and the call that was answered with it. */
  readonly errno?: string | undefined;
  readonly syscall?: string | undefined;
  /** What refused, in a person's words; or why it was not tested; or what was done. */
  readonly because: string;
  /** Without a boundary it works here: `works`; it does not: `fails`; `uncontrolled`: it could not be tried. */
  readonly control: 'works' | 'fails' | 'uncontrolled';
  readonly essential: boolean;
  /** What the run was told of the refusal. */
  readonly denials: readonly Denial[];
  /**
   * How the refusal is on record: `named` with its path or address; `class` of the filter, told each time; `standing`:
   * the class is in the record of the run, single refusals are not; `untold`.
   */
  readonly told?: 'named' | 'class' | 'standing' | 'untold' | undefined;
}

export interface Seen {
  readonly answer: Answer | undefined;
  /** As `Stage.reached`. */
  readonly reached: boolean | undefined;
}

/** Of the record of the run inside. */
export type Setting = Pick<SandboxRecord, 'backend' | 'profile' | 'network' | 'holes' | 'filter' | 'limits'>;

/** `control` is what came of it without a boundary; undefined where that was not run. */
export function judge(
  row: string,
  control: Seen | undefined,
  inside: Seen,
  setting: Setting,
  denials: readonly Denial[],
): RowResult {
  const known = rowOf(row);
  if (known === undefined) throw new Error(`no row ${row}`);
  const { kind, group, what } = known;
  const essential = known.kind === 'escape' && known.essential === true;
  const worked =
    known.kind === 'escape' && known.uncontrolled !== undefined ? 'uncontrolled' : controlOf(control);
  const base = { row, kind, group, what, essential, denials, control: worked };
  const { answer } = inside;
  if (answer === undefined) return { ...base, mark: 'untested', because: 'it gave no answer' };
  if (known.kind === 'life') {
    if ('did' in answer) return { ...base, mark: 'works', because: answer.did };
    if ('absent' in answer) return { ...base, mark: 'untested', because: answer.absent };
    const refusal = { errno: answer.refused, syscall: answer.syscall };
    if (setting.limits.some(({ limit, by }) => limit === known.depends && by === 'none'))
      return {
        ...base,
        ...refusal,
        mark: 'untested',
        because: 'nothing holds this limit here, and the record says so',
      };
    if (control !== undefined && worked === 'fails')
      return { ...base, ...refusal, mark: 'untested', because: `does not work here without it either` };
    if (known.ownFolder === true && setting.backend === 'landlock')
      return {
        ...base,
        ...refusal,
        mark: 'lacks',
        because: 'Landlock gives nothing of its own in its place',
      };
    if (
      (known.depends === 'network' && setting.network === 'deny') ||
      (known.depends === 'unix' && setting.profile === 'strict')
    )
      return { ...base, ...refusal, mark: 'refused-by-policy', because: `${known.depends} is closed` };
    return { ...base, ...refusal, mark: 'fails', because: `${answer.syscall} ${answer.refused}`.trim() };
  }
  // Whoever outside has seen it decides, whatever was answered inside.
  const through = inside.reached ?? 'did' in answer;
  if (through) {
    const because = 'did' in answer ? answer.did : `seen outside, though answered ${nameOf(answer)}`;
    if (known.allowed === 'network' && setting.network === 'allow')
      return { ...base, mark: 'allowed', because: 'the network is open' };
    const hole = [known.hole, known.widerHole].find(
      (name) => name !== undefined && setting.backend !== 'none' && setting.holes.includes(name),
    );
    if (hole !== undefined)
      return { ...base, mark: 'hole', because: `${because}: hole "${hole}" of this back end` };
    return { ...base, mark: 'escaped', because };
  }
  if ('absent' in answer) return { ...base, mark: 'untested', because: answer.absent };
  const refusal =
    'refused' in answer ? { errno: answer.refused, syscall: answer.syscall } : ({} as Record<string, never>);
  if (worked === 'fails') {
    const said = control?.answer === undefined ? '' : ` (${nameOf(control.answer)})`;
    return { ...base, ...refusal, mark: 'untested', because: `does not work here without it either${said}` };
  }
  if ('did' in answer) return { ...base, mark: 'contained', because: 'it met a private copy' };
  const standing =
    known.filter !== undefined &&
    BY_FILTER.has(answer.refused) &&
    setting.filter.silent.includes(known.filter);
  return { ...base, ...refusal, mark: 'refused', ...refusedBy(answer.refused, denials, standing) };
}

function controlOf(control: Seen | undefined): RowResult['control'] {
  if (control?.answer === undefined || 'absent' in control.answer) return 'uncontrolled';
  return (control.reached ?? true) && 'did' in control.answer ? 'works' : 'fails';
}

function nameOf(answer: Answer): string {
  if ('did' in answer) return answer.did;
  return 'refused' in answer ? answer.refused : answer.absent;
}

const REFUSERS: Readonly<Record<string, string>> = {
  EROFS: 'read-only mount',
  EXDEV: 'mounts of their own',
  ENETUNREACH: 'network of its own',
  EHOSTUNREACH: 'network of its own',
  EADDRNOTAVAIL: 'network of its own',
  ECONNREFUSED: 'nobody listens inside',
  ENODEV: 'network of its own',
  ENOENT: 'not there inside',
  ESRCH: 'processes of its own',
  EACCES: 'masked, or not permitted',
  EPERM: 'no capability for it',
  ENOSYS: 'no such call inside',
  EAFNOSUPPORT: 'no such sockets inside',
  EBADF: 'none was passed on',
  EINVAL: 'there is none',
  ENXIO: 'no terminal inside',
  EBUSY: 'a mount is in the way',
};

/** What the filter answers with. */
const BY_FILTER = new Set(['EPERM', 'ENOSYS', 'EAFNOSUPPORT', 'ENOTSUP']);

function refusedBy(
  errno: string,
  denials: readonly Denial[],
  standing: boolean,
): Pick<RowResult, 'because' | 'told'> {
  // A row makes harmless misses on its way; what it was after came last.
  const last = denials.findLast((denial) => denial.errno === errno);
  if (last?.naming === 'class') return { because: 'seccomp filter', told: 'class' };
  const told = last?.naming === 'named' ? 'named' : standing ? 'standing' : 'untold';
  if (standing && last === undefined) return { because: 'seccomp filter', told };
  if (last?.class === 'hidden') return { because: 'hidden', told };
  if (errno.startsWith('SIG')) return { because: 'ended by the kernel', told };
  return { because: REFUSERS[errno] ?? 'refused', told };
}
