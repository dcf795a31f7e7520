import { createHash } from 'node:crypto';
import { canonical } from '@belay/envelope';
import { CoverageError } from './error.js';
import { array, boolean, integer, matches, partly, type Reader, read, word } from './shape.js';

/** What sinks a kind of session has. Names are those that an admin declared. */
export interface SessionRule {
  readonly kind: string;
  /** A session is of this kind when one of these sinks opened it. */
  readonly opens: readonly string[];
  /** Without each of these it is incomplete. */
  readonly required: readonly string[];
  /** What counts beside them when it speaks; absent: every declared sink. */
  readonly members?: readonly string[] | undefined;
}

/** What an admin set for a project; the version in force is named by its digest wherever it was used. */
export interface ProjectPolicy {
  readonly v: 1;
  /** Whether the log is readable without a key. */
  readonly public: boolean;
  readonly sessions: readonly SessionRule[];
  /** Seconds after which a sink that is open and says nothing is silent; 0: none is expected to speak. */
  readonly heartbeat: number;
  /** Seconds that lines may be under way. */
  readonly lateness: number;
  /** Seconds after its last line when an epoch without a close counts as gone. */
  readonly closeTimeout: number;
  /** Days that entries are kept; absent: for ever. */
  readonly retention?: number | undefined;
  /** What names sinks may send in `attrs`. */
  readonly attrs: 'minimal' | 'strict';
}

/** What is not set. Seconds; a sidecar says every minute that it lives. */
export const DEFAULT_POLICY: ProjectPolicy = Object.freeze({
  v: 1,
  public: false,
  sessions: Object.freeze([]),
  heartbeat: 60,
  lateness: 120,
  closeTimeout: 3_600,
  attrs: 'minimal',
});

const YEAR = 366 * 86_400;
const MOST = 64;
const sinkNames = array(matches(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/), 0, MOST);
const rule: Reader<SessionRule> = partly(
  {
    kind: matches(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/),
    opens: array(matches(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/), 1, MOST),
    required: sinkNames,
  },
  { members: sinkNames },
);
const given: Reader<Partial<ProjectPolicy>> = partly(
  {},
  {
    v: word(1),
    public: boolean,
    sessions: array(rule, 0, MOST),
    heartbeat: integer(0, 86_400),
    lateness: integer(0, YEAR),
    closeTimeout: integer(1, YEAR),
    retention: integer(1, 36_600),
    attrs: word('minimal', 'strict'),
  },
);

/**
 * Reads a policy as `policy.set` and the genesis entry carry it: a closed object whose members all have a default.
 * Throws CoverageError `malformed`.
 */
export function readPolicy(value: unknown): ProjectPolicy {
  const policy = { ...DEFAULT_POLICY, ...read(given, value, 'policy') };
  const kinds = policy.sessions.map(({ kind }) => kind);
  if (new Set(kinds).size !== kinds.length) {
    throw new CoverageError('malformed', 'policy.sessions has two rules of one kind');
  }
  return policy;
}

/** `sha256:` digest of the policy's canonical JSON, with every default written out. */
export function policyDigest(policy: ProjectPolicy): string {
  return `sha256:${createHash('sha256').update(canonical(policy)).digest('hex')}`;
}
