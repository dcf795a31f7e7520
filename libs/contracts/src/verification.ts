import { z } from 'zod';

/**
 * What `belay verify`, `belay check` and `belay replay` print with `--json`, version 1: one document for one trace, a
 * list of them for several (`check`: one document in any case). Members may be added; readers pass over those that they
 * do not know. Causes are a list that is closed per version of Belay and grows: the page of `@belay/verdict` has it.
 */

const status = z
  .enum(['PASS', 'WARN', 'UNVERIFIED', 'FAIL'])
  .meta({ description: 'Worst last. UNVERIFIED: it could not be decided, which is no PASS.' });
const cause = z
  .string()
  .regex(/^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*$/)
  .meta({ description: 'Why it is not PASS.' });
const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/);
const milliseconds = z.number().min(0);
const count = z.number().int().min(0);
const number = z.number().int().min(1);
const seq = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

const judgement = z.object({
  axis: z
    .enum(['A1', 'A2', 'A3'])
    .meta({ description: 'A2: execution; A1: rules of the operator; A3: what was claimed.' }),
  kind: z.enum(['result', 'effect', 'contract', 'egress', 'invariant', 'claim']),
  status: z
    .enum([...status.options, 'NOT_COVERED'])
    .meta({ description: 'NOT_COVERED: nothing to hold it against; decides nothing.' }),
  cause: cause.optional().meta({ description: 'Absent for PASS and NOT_COVERED.' }),
  message: z.string(),
  evidence: z
    .unknown()
    .optional()
    .meta({ description: 'Differences of record and replay, changed paths, findings of rules.' }),
});

const verdict = z.object({
  status,
  cause: cause.optional().meta({ description: 'What decided it; absent for PASS.' }),
  judgements: z.array(judgement),
  notCovered: count,
  caps: z.array(cause).meta({ description: 'Why it can not be better than UNVERIFIED.' }),
});

const change = z.object({
  path: z.string().meta({ description: 'Relative to its root; bytes that are no UTF-8 escaped.' }),
  what: z.enum(['created', 'deleted', 'modified', 'metadata', 'type']),
  diff: z.string().optional().meta({ description: 'Unified diff, where both sides are text.' }),
  without: z.enum(['binary', 'large', 'unknown']).optional().meta({ description: 'Why there is no diff.' }),
});

const missing = z
  .object({ pre: z.string().optional(), post: z.string().optional() })
  .meta({ description: 'Why the record has no state before or after, by the name that it gives.' });

const turn = z.object({
  type: z.literal('turn'),
  turn: number.meta({ description: 'Counts the calls of tools.' }),
  tool: z.string().optional(),
  record: seq.meta({ description: 'Where the call stands in the trace: bytes from its beginning.' }),
  time: z.iso.datetime(),
  group: z.array(number).meta({ description: 'Turns that overlapped with it, itself among them.' }),
  verdict,
  replays: count,
  driftApplied: z
    .boolean()
    .meta({ description: 'The workspace was changed first, to be where the record was.' }),
  pre: digest.optional(),
  post: digest.optional(),
  missing: missing.optional(),
  changes: z.array(change),
  seqs: z
    .object({ pre: seq.optional(), call: seq.optional(), result: seq.optional() })
    .meta({ description: "Numbers of the envelopes in the recorder's epoch." }),
  ms: milliseconds,
});

const drift = z.object({
  type: z.literal('drift'),
  before: number.optional().meta({ description: 'The turn it came before; absent after the last one.' }),
  by: z.enum(['server', 'outside', 'unknown']),
  verdict,
  changes: z.array(change),
});

const session = z.object({ type: z.literal('session'), verdict, changes: z.array(change) });

const counts = z.object({ PASS: count, WARN: count, UNVERIFIED: count, FAIL: count });
const causes = z.record(cause, number);
const timing = z.object({ start: milliseconds, restore: milliseconds, total: milliseconds });

/** Of `belay verify`. */
export const verification = z.object({
  trace: z.string(),
  session: z.string(),
  epoch: z.string(),
  sink: z.string(),
  server: z.array(z.string()).meta({ description: 'The command line that was run again.' }),
  integrity: z.object({
    kind: z.enum(['broken', 'local-only', 'attested']),
    attested: z.object({ count, of: count }).optional(),
    problems: z.array(z.string()),
  }),
  policy: z.object({ digest: z.string(), file: z.string().optional() }),
  mode: z.enum(['session', 'isolated']),
  caps: z.array(cause),
  parts: z
    .array(z.discriminatedUnion('type', [turn, drift, session]))
    .meta({ description: 'In the order of the record; the session last.' }),
  tally: z.object({ status, counts, causes }),
  timing,
});
export type VerificationDocument = z.infer<typeof verification>;

/** Of `belay check`. */
export const checked = z.object({
  status,
  traces: z.array(z.object({ trace: z.string(), status, integrity: z.string(), counts, causes })),
  worst: z
    .object({ trace: z.string(), part: z.string(), status, cause: cause.optional(), message: z.string() })
    .optional(),
});
export type CheckedDocument = z.infer<typeof checked>;

/** Of `belay replay`: no verdict is in it. */
export const coverage = z.object({
  trace: z.string(),
  session: z.string(),
  integrity: z.string(),
  replayed: count,
  of: count,
  turns: z.array(
    z.object({
      turn: number,
      tool: z.string().optional(),
      replayed: z.boolean(),
      why: cause.optional().meta({
        description: 'Why it was not; of one that was, why its states are not those of the record.',
      }),
      missing: missing.optional(),
      driftApplied: z.boolean(),
      ms: milliseconds,
    }),
  ),
  timing,
});
export type CoverageDocument = z.infer<typeof coverage>;
