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

export const setPolicyBody = z.strictObject({ public: z.boolean() });
export const policySet = z.object({ public: z.boolean(), index });

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
  'head_ahead',
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
export type PolicySet = z.infer<typeof policySet>;
export type EventList = z.infer<typeof eventList>;
export type InclusionProofReply = z.infer<typeof inclusionProof>;
export type ConsistencyProofReply = z.infer<typeof consistencyProof>;
export type LogKeys = z.infer<typeof logKeys>;
export type CredentialInfo = z.infer<typeof credentialInfo>;
export type ServiceInfo = z.infer<typeof serviceInfo>;
export type Problem = z.infer<typeof problem>;
