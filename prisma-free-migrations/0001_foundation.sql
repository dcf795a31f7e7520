-- One deployment, many tenants; one log a project. Every hot table leads its primary key with the log.
-- Secrets are stored as SHA-256 of 24 random bytes. Identifiers of people-facing things are text with a prefix.

create table operators (
  id          text primary key,
  secret_hash bytea not null check (octet_length(secret_hash) = 32),
  created     timestamptz not null default now()
);

create table tenants (
  id      text primary key,
  name    text not null,
  created timestamptz not null default now()
);

create table admin_keys (
  id          text primary key,
  tenant      text not null references tenants,
  secret_hash bytea not null check (octet_length(secret_hash) = 32),
  created     timestamptz not null default now(),
  revoked     timestamptz
);

create table projects (
  id      text primary key,
  tenant  text not null references tenants,
  name    text not null,
  created timestamptz not null default now()
);
create index projects_tenant on projects (tenant, id);

create table logs (
  log        bigint generated always as identity primary key,
  id         text not null unique,
  project    text not null unique references projects,
  origin     text not null unique,
  public_key bytea not null check (octet_length(public_key) = 32),
  -- DER certificates, leaf first, root last.
  x5c        bytea[] not null,
  public     boolean not null default false,
  created    timestamptz not null default now()
);

-- The head row is the lock of a log: who commits holds it. `config` counts changes of tokens, sinks and policy,
-- so that a collector knows from the locked row whether what it remembers of them is still true.
create table heads (
  log      bigint primary key references logs,
  size     bigint not null,
  root     bytea not null check (octet_length(root) = 32),
  -- Compact range of [0, size): 32 bytes a hash, left to right.
  frontier bytea not null,
  received timestamptz not null,
  config   bigint not null
) with (fillfactor = 50);

create table sinks (
  log       bigint not null references logs,
  sink      integer not null,
  name      text not null,
  declared  bigint,
  kind      text,
  required  boolean not null default false,
  domain    text,
  key       bytea check (octet_length(key) = 32),
  heartbeat integer,
  primary key (log, sink),
  unique (log, name)
);

create table tokens (
  id            text primary key,
  log           bigint not null references logs,
  secret_hash   bytea not null check (octet_length(secret_hash) = 32),
  role          text not null check (role in ('agent', 'sink', 'verifier')),
  sinks         text[],
  domain        text,
  expires       timestamptz,
  rate          integer,
  issued_by     text not null,
  issued_index  bigint not null,
  revoked_index bigint
);
create index tokens_log on tokens (log, id);

create table auditors (
  id            text primary key,
  log           bigint not null references logs,
  secret_hash   bytea not null check (octet_length(secret_hash) = 32),
  issued_by     text not null,
  issued_index  bigint not null,
  revoked_index bigint
);
create index auditors_log on auditors (log, id);

-- Next expected seq of one run of one sink. Only a request at or below this watermark needs a look at `runs`.
create table epochs (
  log      bigint not null,
  sink     integer not null,
  epoch    uuid not null,
  next_seq bigint not null,
  primary key (log, sink, epoch)
) with (fillfactor = 50);

-- Consecutive entries that share everything the collector's line says but the index. Collector entries have sink
-- 0, token '' and a nil epoch.
create table runs (
  log       bigint not null,
  first     bigint not null,
  count     integer not null,
  sink      integer not null,
  epoch     uuid not null,
  first_seq bigint not null,
  token     text not null,
  role      text not null,
  received  timestamptz not null,
  -- Fingerprint (8 bytes) of the declared key whose batch signature was verified, and what it signed.
  signed    bytea,
  batch_seq bigint,
  batch_count integer,
  signature bytea,
  conflict  bigint,
  primary key (log, first)
);
create index runs_seq on runs (log, sink, epoch, first_seq) where conflict is null and sink > 0;

-- The body line as received; with its run it makes the entry. Never updated, never deleted.
create table entries (
  log   bigint not null,
  index bigint not null,
  line  bytea not null,
  primary key (log, index)
);

create table conflicts (
  log   bigint not null,
  sink  integer not null,
  epoch uuid not null,
  seq   bigint not null,
  hash  bytea not null,
  index bigint not null,
  primary key (log, sink, epoch, seq, hash)
);

-- Full tiles only (8,192 bytes), written in the transaction that completes them.
create table tiles (
  log    bigint not null,
  level  smallint not null,
  n      bigint not null,
  hashes bytea not null check (octet_length(hashes) = 8192),
  primary key (log, level, n)
);
alter table tiles alter column hashes set storage external;

create table checkpoints (
  log       bigint not null references logs,
  size      bigint not null,
  root      bytea not null,
  note      text not null,
  published timestamptz not null,
  primary key (log, size)
);

create table receipts (
  id      text primary key,
  log     bigint not null references logs,
  scope   text not null,
  as_of   bigint not null,
  digest  bytea not null,
  bytes   text not null,
  index   bigint not null,
  created timestamptz not null,
  unique (log, scope, as_of)
);

-- One role a process. The owner (who migrates) grants them to the login users of the three processes.
do $$
declare r text;
begin
  foreach r in array array['belay_gateway', 'belay_collector', 'belay_worker'] loop
    if not exists (select from pg_roles where rolname = r) then
      execute format('create role %I nologin', r);
    end if;
  end loop;
end $$;

-- An owner who is no superuser may not take on a role it made without being granted it.
grant belay_gateway, belay_collector, belay_worker to current_user;

grant select on operators, tenants, admin_keys, projects, logs, heads, sinks, tokens, auditors, epochs, runs,
  entries, conflicts, tiles, checkpoints, receipts to belay_gateway, belay_collector, belay_worker;
revoke select on operators, admin_keys, tokens, auditors from belay_worker;
grant insert on operators, tenants, admin_keys, projects, logs, heads, sinks, tokens, auditors, epochs, runs,
  entries, conflicts, tiles, receipts to belay_collector;
grant update on heads, epochs to belay_collector;
grant update (declared, kind, required, domain, key, heartbeat) on sinks to belay_collector;
grant update (revoked_index) on tokens, auditors to belay_collector;
grant update (public) on logs to belay_collector;
grant insert on checkpoints to belay_worker;
