import type { ColumnType, Generated } from 'kysely';

/** `jsonb`: parsed when it is read, sent as its text, so that an array is not taken for a PostgreSQL array. */
export type Json = ColumnType<unknown, string, string>;

/** The tables of prisma-free-migrations/, as Kysely sees them. `int8` arrives as a number (see `connection.ts`). */
export interface Schema {
  deployment: { one: Generated<boolean>; master: Buffer; origin_prefix: string; created: Generated<Date> };
  operators: { id: string; secret_hash: Buffer; created: Generated<Date> };
  tenants: { id: string; name: string; created: Generated<Date> };
  admin_keys: {
    id: string;
    tenant: string;
    secret_hash: Buffer;
    created: Generated<Date>;
    revoked: Date | null;
  };
  projects: { id: string; tenant: string; name: string; created: Generated<Date> };
  logs: {
    log: Generated<number>;
    id: string;
    project: string;
    origin: string;
    public_key: Buffer;
    x5c: Buffer[];
    public: boolean;
    created: Generated<Date>;
  };
  heads: { log: number; size: number; root: Buffer; frontier: Buffer; received: Date; config: number };
  sinks: {
    log: number;
    sink: number;
    name: string;
    declared: number | null;
    kind: string | null;
    required: boolean;
    domain: string | null;
    key: Buffer | null;
    heartbeat: number | null;
  };
  tokens: {
    id: string;
    log: number;
    secret_hash: Buffer;
    role: 'agent' | 'sink' | 'verifier';
    sinks: string[] | null;
    domain: string | null;
    expires: Date | null;
    rate: number | null;
    issued_by: string;
    issued_index: number;
    revoked_index: number | null;
  };
  auditors: {
    id: string;
    log: number;
    secret_hash: Buffer;
    issued_by: string;
    issued_index: number;
    revoked_index: number | null;
  };
  epochs: { log: number; sink: number; epoch: string; next_seq: number; closed: Date | null };
  runs: {
    log: number;
    first: number;
    count: number;
    sink: number;
    epoch: string;
    first_seq: number;
    token: string;
    role: 'agent' | 'sink' | 'verifier' | 'collector';
    received: Date;
    signed: Buffer | null;
    batch_seq: number | null;
    batch_count: number | null;
    signature: Buffer | null;
    conflict: number | null;
    late: Generated<boolean>;
  };
  entries: { log: number; index: number; line: Buffer };
  conflicts: { log: number; sink: number; epoch: string; seq: number; hash: Buffer; index: number };
  tiles: { log: number; level: number; n: number; hashes: Buffer };
  checkpoints: { log: number; size: number; root: Buffer; note: string; published: Date };
  receipts: {
    id: string;
    log: number;
    scope: string;
    as_of: number;
    digest: Buffer;
    bytes: string;
    index: number;
    created: Date;
    disposition: string | null;
  };
  /** `policy` is as its entry has it: what reads it writes the defaults out (`readPolicy`). */
  policies: { log: number; index: number; policy: Json };
  labels: {
    log: number;
    index: number;
    session: string;
    call: string | null;
    says: 'violated' | 'not_violated';
    auditor: string;
  };
  statements: { log: number; digest: Buffer; index: number; bytes: Buffer };
  reconciled: { log: number; through: number; fence: Generated<number>; state: Json };
  epoch_states: {
    log: number;
    sink: string;
    epoch: string;
    state: Json;
    stated_status: string | null;
    stated_digest: Buffer | null;
    due: Date | null;
  };
  sink_states: { log: number; sink: string; state: Json };
  sessions: {
    log: number;
    session: string;
    state: Json;
    began: Date;
    began_index: number;
    last: Date;
    last_index: number;
    coverage: string | null;
    disposition: string | null;
    closed: Generated<boolean>;
    summary: Json | null;
    receipt: string | null;
    stated_index: number | null;
    stated_digest: Buffer | null;
    dirty: Date | null;
    due: Date | null;
    heard: Generated<boolean>;
    held: Json | null;
  };
  session_runs: { log: number; session: string; first: number; last: number };
  jobs: {
    id: string;
    log: number;
    kind: 'export' | 'period';
    spec: Json;
    state: Generated<'queued' | 'running' | 'done' | 'failed' | 'cancelled'>;
    phase: string | null;
    done: Generated<number>;
    total: number | null;
    error: string | null;
    file: string | null;
    bytes: number | null;
    sha256: Buffer | null;
    receipt: string | null;
    by: string;
    cancel: Generated<boolean>;
    lease: Date | null;
    attempts: Generated<number>;
    created: Generated<Date>;
    finished: Date | null;
  };
  webhooks: {
    id: string;
    log: number;
    url: string;
    events: string[];
    /** Only the worker's role may read it. */
    secret: Buffer;
    by: string;
    created: Generated<Date>;
    removed: Date | null;
  };
  deliveries: {
    id: string;
    webhook: string;
    event: string;
    body: string;
    attempts: Generated<number>;
    due: Date | null;
    status: number | null;
    error: string | null;
    created: Generated<Date>;
    delivered: Date | null;
  };
}
