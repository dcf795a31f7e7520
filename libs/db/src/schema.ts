import type { Generated } from 'kysely';

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
  epochs: { log: number; sink: number; epoch: string; next_seq: number };
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
  };
}
