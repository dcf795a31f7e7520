import { COVERAGE_STATUSES, type CoverageStatement, type ProjectPolicy } from '@belay/coverage';
import { CALL_AUTHORITY_LEVELS, SESSION_DISPOSITIONS } from '@belay/receipt';
import { z } from 'zod';

/**
 * The HTTP API, version 1, as schemas: what a request may hold (strict: an unknown member is refused, because a
 * misspelt restriction must not become no restriction) and what an answer holds. Times are RFC 3339 in UTC, binary
 * is padded base64, indexes and sizes are numbers below 2^53. Credentials appear in the answer that creates them and
 * nowhere else.
 */

const name = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[^\p{C}]+$/u, 'no control characters')
  .regex(/[^\p{Z}\p{C}]/u, 'more than blanks');
const sinkName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'a sink name');
const domain = z
  .string()
  .regex(/^[A-Za-z0-9._@/:+-]{1,128}$/, 'a trust domain: 1-128 of A-Z a-z 0-9 . _ @ / : + -');
const index = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const base64 = z.string().regex(/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/, 'base64');
const hash = base64.length(44);
const time = z.iso.datetime();
const role = z.enum(['agent', 'sink', 'verifier']);

const credential = z
  .string()
  .meta({ description: 'Shown once; the service keeps a hash of its secret part.' });

export const createTenantBody = z.strictObject({ name });
export const tenantCreated = z.object({
  tenant: z.string(),
  name: z.string(),
  admin: z.object({ id: z.string(), credential }),
});

export const createProjectBody = z.strictObject({
  name,
  public: z
    .boolean()
    .default(false)
    .meta({ description: 'Whether checkpoints, tiles and proofs are readable without a credential.' }),
});
export const projectCreated = z.object({
  project: z.string(),
  name: z.string(),
  public: z.boolean(),
  log: z.string(),
  origin: z.string(),
  vkey: z.string().meta({ description: 'C2SP verifier key of the log: what receipts are checked with.' }),
  token: z.object({ id: z.string(), role, credential }),
  auditor: z.object({ id: z.string(), credential }),
});

export const issueTokenBody = z.strictObject({
  role: role.default('agent'),
  sinks: z.array(sinkName).min(1).max(64).optional(),
  expires: time.optional(),
  domain: domain.optional(),
  rate: z.number().int().min(1).max(1_000_000_000).optional().meta({ description: 'Lines a minute.' }),
});
const tokenFields = {
  id: z.string(),
  role,
  sinks: z.array(z.string()).optional(),
  expires: z.string().optional(),
  domain: z.string().optional(),
  rate: z.number().optional(),
};
export const tokenIssued = z.object({ ...tokenFields, index, credential });
const issuance = {
  issuedBy: z.string(),
  issuedIndex: index.meta({ description: 'Index of the entry that says so.' }),
  revokedIndex: index.optional(),
};
export const tokenListed = z.object({ ...tokenFields, ...issuance });
const next = z.string().optional().meta({ description: 'Cursor of the next page; absent on the last one.' });
export const tokenList = z.object({ tokens: z.array(tokenListed), next });

export const issueAuditorBody = z.strictObject({});
export const auditorIssued = z.object({ id: z.string(), index, credential });
export const auditorListed = z.object({ id: z.string(), ...issuance });
export const auditorList = z.object({ auditors: z.array(auditorListed), next });

export const revoked = z.object({ id: z.string(), index });

export const declareSinkBody = z.strictObject({
  kind: z.enum(['proxy', 'hook', 'otlp', 'forward', 'verifier', 'other']).optional(),
  required: z.boolean().optional(),
  domain: domain.optional(),
  key: hash.optional().meta({ description: 'Ed25519 public key: only requests signed by it are accepted.' }),
  heartbeat: z.number().int().min(1).max(86_400).optional().meta({ description: 'Seconds.' }),
});
export const sinkDeclared = z.object({
  sink: z.string(),
  kind: z.string().optional(),
  required: z.boolean(),
  domain: z.string().optional(),
  key: z.string().optional(),
  heartbeat: z.number().optional(),
  index,
});

const word64 = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, '1-64 of A-Z a-z 0-9 . _ -');
const sessionName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/, 'a session name: 1-128 of A-Z a-z 0-9 . _ : -');
const callName = z
  .string()
  .regex(/^(?:weak:)?hmac-sha256:[0-9a-f]{64}$/, 'a call, hmac-sha256:<64 hex digits>');
const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/, 'sha256:<64 hex digits>');
const seconds = (least: number, most: number) => z.number().int().min(least).max(most);
const YEAR = 366 * 86_400;

const sessionRule = z.strictObject({
  kind: word64,
  opens: z.array(sinkName).min(1).max(64).meta({
    description: 'A session is of this kind when one of these sinks opened it.',
  }),
  required: z.array(sinkName).max(64).meta({ description: 'Without each of these it is incomplete.' }),
  members: z
    .array(sinkName)
    .max(64)
    .optional()
    .meta({ description: 'What counts beside them when it speaks; absent: every declared sink.' }),
});
/** The whole policy: a member that is absent gets its default (libs/coverage/FORMAT.md section 6). */
export const setPolicyBody = z
  .strictObject({
    v: z.literal(1),
    public: z.boolean().meta({ description: 'Default false.' }),
    sessions: z
      .array(sessionRule)
      .max(64)
      .meta({ description: 'At most one rule of a kind. Default: none.' }),
    heartbeat: seconds(0, 86_400).meta({
      description:
        'Seconds after which an open sink that says nothing is silent; 0: none is expected. Default 60.',
    }),
    lateness: seconds(0, YEAR).meta({ description: 'Seconds that lines may be under way. Default 120.' }),
    closeTimeout: seconds(1, YEAR).meta({
      description: 'Seconds after its last line when an epoch without a close counts as gone. Default 3600.',
    }),
    retention: z
      .number()
      .int()
      .min(1)
      .max(36_600)
      .meta({ description: 'Days that entries are kept; absent: for ever.' }),
    attrs: z
      .enum(['minimal', 'strict'])
      .meta({ description: 'What names sinks may send in `attrs`. Default minimal.' }),
  })
  .partial()
  .refine(({ sessions = [] }) => new Set(sessions.map(({ kind }) => kind)).size === sessions.length, {
    path: ['sessions'],
    message: 'at most one rule of a kind',
  });
const policyDocument = z.object({
  v: z.literal(1),
  public: z.boolean(),
  sessions: z.array(sessionRule),
  heartbeat: z.number(),
  lateness: z.number(),
  closeTimeout: z.number(),
  retention: z.number().optional(),
  attrs: z.enum(['minimal', 'strict']),
});
const policyFields = {
  policy: policyDocument,
  digest: digest.meta({ description: 'Of the policy; receipts name the one in force by it.' }),
  index: index.meta({ description: 'Index of the entry that set it.' }),
};
export const policySet = z.object(policyFields);

export const setLabelBody = z.strictObject({
  session: sessionName,
  call: callName.optional().meta({ description: 'Absent: of the session as a whole.' }),
  says: z.enum(['violated', 'not_violated']),
});
export const labelSet = z.object({ index });
export const labelList = z.object({
  labels: z.array(
    z.object({
      index,
      session: z.string(),
      call: z.string().optional(),
      says: z.enum(['violated', 'not_violated']),
      by: z.string().meta({ description: 'The auditor key, `aud_...`.' }),
    }),
  ),
  next,
});

const coverageStatus = z.enum(COVERAGE_STATUSES);
const disposition = z.enum(SESSION_DISPOSITIONS);
/** What an answer about sessions was looked at for: they are reconciled a moment after they are received. */
const looked = {
  log: z.string(),
  size: index.meta({ description: 'Entries the log had when this was read.' }),
  reconciled: index.meta({ description: 'Entries of them that are in this answer: [0, reconciled).' }),
};
const sessionFields = {
  session: z.string(),
  kinds: z.array(z.string()).meta({ description: 'Of the rules of the policy that it falls under.' }),
  began: z.string().meta({ description: 'When its first line was received.' }),
  beganIndex: index,
  last: z.string().meta({ description: 'When its last line was received.' }),
  lastIndex: index,
  closed: z.boolean(),
  coverage: coverageStatus.optional().meta({ description: 'Absent until it was looked at.' }),
  disposition: disposition.optional(),
  settled: z.boolean().meta({
    description:
      'It has a receipt, which is not `open`, and nothing that came after it waits to be looked at.',
  }),
  held: z
    .object({
      why: z.enum(['too_many_lines', 'statement_too_large', 'receipt_too_large', 'failed']),
      lines: z.number().optional().meta({ description: 'Lines that name it.' }),
      bytes: z.number().optional().meta({ description: 'Of the statement, or of the receipt.' }),
      limit: z.number().optional().meta({ description: 'Most lines, or bytes, of one that is judged.' }),
    })
    .optional()
    .meta({
      description:
        'Why it could not be judged when that was tried last, ten minutes ago or less: it is not settled, and what else is said of it is of before.',
    }),
  calls: z.number(),
  verdicts: z.object({ PASS: z.number(), WARN: z.number(), FAIL: z.number(), UNVERIFIED: z.number() }),
  levels: z
    .partialRecord(z.enum(CALL_AUTHORITY_LEVELS), z.number())
    .optional()
    .meta({ description: 'Calls by what they rest on.' }),
  receipt: z
    .object({ id: z.string(), digest, asOf: index })
    .optional()
    .meta({ description: 'The last one.' }),
};
export const sessionListed = z.object(sessionFields);
export const sessionList = z.object({ ...looked, sessions: z.array(sessionListed), next });
export const sessionDetail = z.object({
  ...looked,
  ...sessionFields,
  statement: digest.optional().meta({ description: 'Of the last coverage statement that the log names.' }),
  receipts: z
    .array(
      z.object({
        id: z.string(),
        digest,
        asOf: index,
        index: index.meta({ description: 'Index of the entry that says it was issued.' }),
        created: z.string(),
        disposition: disposition.optional(),
        supersedes: digest.optional(),
      }),
    )
    .meta({ description: 'The last first, at most 100.' }),
});

/** A statement as libs/coverage/FORMAT.md has it; `type` says which one. */
const coverageStatement = z.looseObject({
  v: z.literal(1),
  type: z.enum(['epoch', 'sink', 'session']),
  log: z.string(),
  asOf: z.object({ size: index, time: z.string() }),
  policy: digest,
  status: coverageStatus,
});
export const coverageReply = z.object({ ...looked, statements: z.array(coverageStatement), next });

const period = z.strictObject({ from: time, to: time });
const NOTHING = { from: '1970-01-01T00:00:00Z', to: '9999-01-01T00:00:00Z' };
export const createExportBody = z
  .strictObject({
    period: period
      .optional()
      .meta({ description: 'Half open. Only sessions that began in it. Not together with `sessions`.' }),
    sessions: z
      .array(sessionName)
      .min(1)
      .max(1000)
      .optional()
      .meta({ description: 'Only these. Without this and `period`: the whole log.' }),
    oscal: z.boolean().optional().meta({ description: 'With OSCAL assessment results.' }),
  })
  .refine(({ period: { from, to } = NOTHING }) => Date.parse(from) < Date.parse(to), {
    path: ['period', 'to'],
    message: 'later than period.from',
  })
  .refine(({ period: asked, sessions }) => asked === undefined || sessions === undefined, {
    path: ['sessions'],
    message: 'either a period or sessions',
  });
export const EXPORT_STATES = ['queued', 'running', 'done', 'failed', 'cancelled'] as const;
export const exportJob = z.object({
  id: z.string(),
  state: z.enum(EXPORT_STATES),
  phase: z.string().optional().meta({ description: 'What it is at, in a word.' }),
  done: z.number(),
  total: z
    .number()
    .optional()
    .meta({ description: 'What `done` counts up to in this phase, once that is known.' }),
  request: z.object({
    period: z.object({ from: z.string(), to: z.string() }).optional(),
    sessions: z.array(z.string()).optional(),
    oscal: z.boolean().optional(),
  }),
  sessions: z.number().optional().meta({
    description:
      'How many sessions it is about, as far as the worker has looked: final once it is done. 0 for a period in which none began. Not in lists.',
  }),
  bytes: z.number().optional(),
  sha256: z.string().optional().meta({ description: 'Of the file, hex.' }),
  error: z.string().optional(),
  by: z.string(),
  created: z.string(),
  finished: z.string().optional(),
});
export const exportList = z.object({ exports: z.array(exportJob), next });

export const WEBHOOK_EVENTS = [
  'session.settled',
  'session.contested',
  'session.violated',
  'session.incomplete',
] as const;
export const createWebhookBody = z.strictObject({
  url: z.string().min(1).max(2048),
  events: z.array(z.enum(WEBHOOK_EVENTS)).min(1).max(WEBHOOK_EVENTS.length),
});
const webhookFields = {
  id: z.string(),
  url: z.string(),
  events: z.array(z.enum(WEBHOOK_EVENTS)),
  by: z.string(),
  created: z.string(),
};
export const webhookCreated = z.object({
  ...webhookFields,
  secret: z.string().meta({
    description:
      'Shown once. `whsec_` and the base64 of 24 bytes, which are the key of the HMAC (Standard Webhooks).',
  }),
});
export const webhookList = z.object({ webhooks: z.array(z.object(webhookFields)), next });
export const webhookRemoved = z.object({ id: z.string() });
export const deliveryList = z.object({
  deliveries: z
    .array(
      z.object({
        id: z.string().meta({ description: 'The `webhook-id` it is sent with, every time.' }),
        event: z.enum(WEBHOOK_EVENTS),
        body: z.string(),
        attempts: z.number(),
        status: z.number().optional().meta({ description: 'HTTP status of the last attempt.' }),
        error: z.string().optional(),
        created: z.string(),
        due: z.string().optional().meta({ description: 'When it is tried next; absent: done or given up.' }),
        delivered: z.string().optional(),
      }),
    )
    .meta({ description: 'The last first.' }),
  next,
});

const rangeHashes = z.object({ left: z.array(z.string()), right: z.array(z.string()) });
export const lineRefusal = z.object({
  line: index,
  code: z.string(),
  field: z.string().optional(),
  message: z.string(),
});
/** libs/envelope/FORMAT.md section 7. */
export const ack = z.object({
  log: z.string(),
  size: index,
  root: z.string(),
  signature: z.string(),
  runs: z.array(
    z.object({
      disposition: z.enum(['appended', 'duplicate', 'conflict']),
      lines: z.tuple([index, index]),
      index,
      received: z.string(),
      token: z.string(),
      role,
      signed: z.string().optional(),
      conflict: index.optional(),
      late: z.literal(true).optional(),
      range: rangeHashes,
    }),
  ),
  refused: z.array(lineRefusal),
  consistency: z.array(z.string()).optional(),
});

export const eventList = z.object({
  log: z.string(),
  size: index.meta({ description: 'Entries the log had when this page was read.' }),
  events: z.array(
    z.object({
      index,
      entry: z.string().meta({ description: "The collector's line, LF, the body line as received." }),
    }),
  ),
  next,
});

export const inclusionProof = z.object({
  log: z.string(),
  index,
  size: index,
  leaf: hash,
  root: hash,
  hashes: z.array(hash),
});
export const consistencyProof = z.object({
  log: z.string(),
  from: index,
  size: index,
  fromRoot: hash,
  root: hash,
  hashes: z.array(hash),
});

export const logKeys = z.object({
  log: z.string(),
  origin: z.string(),
  vkey: z.string().meta({ description: 'Signs checkpoints.' }),
  ackVkey: z.string().meta({ description: 'The same key under the name acks are signed with.' }),
  x5c: z.array(base64).meta({ description: 'DER certificates, leaf first, root last.' }),
});

/** What a credential is and where it belongs; of itself only. */
export const credentialInfo = z.object({
  kind: z.enum(['operator', 'admin', 'append', 'auditor']),
  id: z.string(),
  tenant: z.string().optional(),
  role: role.optional(),
  sinks: z.array(z.string()).optional(),
  expires: z.string().optional(),
  domain: z.string().optional(),
  rate: z.number().optional(),
  project: z.string().optional(),
  log: z.string().optional(),
  origin: z.string().optional(),
  vkey: z.string().optional(),
  ackVkey: z.string().optional(),
});

export const serviceInfo = z.object({
  service: z.literal('belay'),
  version: z.string(),
  api: z.array(z.string()),
  docs: z.string(),
  limits: z.object({
    lines: z.number(),
    bodyBytes: z.number(),
    compressedBodyBytes: z.number(),
    lineBytes: z.number(),
    receiptEntries: z.number(),
  }),
});

/** Codes of problem details. Stable: programs decide on them, so one is never renamed or reused. */
export const PROBLEM_CODES = [
  // The request, as it is, can never succeed.
  'invalid',
  'invalid_json',
  'empty',
  'too_many_lines',
  'range_too_large',
  'headers_too_large',
  'no_valid_line',
  'body_too_large',
  'unsupported_media_type',
  'unsupported_encoding',
  'not_acceptable',
  'not_found',
  'method_not_allowed',
  'exists',
  'too_many',
  'head_ahead',
  'range_not_satisfiable',
  'gone',
  // Who asks.
  'unauthenticated',
  'forbidden',
  'token_revoked',
  'token_expired',
  'sink_not_allowed',
  'signature_required',
  'signature_invalid',
  // Ask again later; `Retry-After` says when.
  'rate_limited',
  'not_published',
  'request_timeout',
  'overloaded',
  'unavailable',
  'shutting_down',
  // A person is needed.
  'log_halted',
  'internal',
] as const;
export type ProblemCode = (typeof PROBLEM_CODES)[number];

/** RFC 9457. `type` is `urn:belay:problem:<code>`. */
export const problem = z.object({
  type: z.string(),
  title: z.string(),
  status: z.number().int(),
  code: z.enum(PROBLEM_CODES),
  detail: z.string(),
  field: z.string().optional(),
  refused: z.array(lineRefusal).optional(),
});

export type TenantCreated = z.infer<typeof tenantCreated>;
export type ProjectCreated = z.infer<typeof projectCreated>;
export type TokenIssued = z.infer<typeof tokenIssued>;
export type TokenListed = z.infer<typeof tokenListed>;
export type TokenList = z.infer<typeof tokenList>;
export type AuditorIssued = z.infer<typeof auditorIssued>;
export type AuditorList = z.infer<typeof auditorList>;
export type Revoked = z.infer<typeof revoked>;
export type SinkDeclared = z.infer<typeof sinkDeclared>;
export type PolicySet = Omit<z.infer<typeof policySet>, 'policy'> & { readonly policy: ProjectPolicy };
export type LabelSet = z.infer<typeof labelSet>;
export type LabelList = z.infer<typeof labelList>;
export type SessionListed = z.infer<typeof sessionListed>;
export type SessionList = z.infer<typeof sessionList>;
export type SessionDetail = z.infer<typeof sessionDetail>;
export type CoverageReply = Omit<z.infer<typeof coverageReply>, 'statements'> & {
  readonly statements: readonly CoverageStatement[];
};
export type ExportRequest = z.infer<typeof createExportBody>;
export type ExportJob = z.infer<typeof exportJob>;
export type ExportList = z.infer<typeof exportList>;
export type WebhookCreated = z.infer<typeof webhookCreated>;
export type WebhookList = z.infer<typeof webhookList>;
export type WebhookRemoved = z.infer<typeof webhookRemoved>;
export type DeliveryList = z.infer<typeof deliveryList>;
export type EventList = z.infer<typeof eventList>;
export type InclusionProofReply = z.infer<typeof inclusionProof>;
export type ConsistencyProofReply = z.infer<typeof consistencyProof>;
export type LogKeys = z.infer<typeof logKeys>;
export type CredentialInfo = z.infer<typeof credentialInfo>;
export type ServiceInfo = z.infer<typeof serviceInfo>;
export type Problem = z.infer<typeof problem>;
