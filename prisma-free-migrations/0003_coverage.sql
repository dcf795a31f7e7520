-- Coverage, sessions, receipts of sessions, exports and webhooks.

-- Lines that came longer after the close of their epoch than the policy allows: part of what the collector's line says.
alter table runs add column late boolean not null default false;
-- When the epoch.close that was appended last came. Not known of epochs that were closed before this migration: what
-- comes for them is not marked, and its times still show that it was late.
alter table epochs add column closed timestamptz;

-- Every policy that was set, by the index of its entry and as that has it; entry 0 is the one of the genesis. Before this
-- migration an entry said no more than whether the log is public: whoever reads a policy writes the defaults out.
create table policies (
  log    bigint not null references logs,
  index  bigint not null,
  policy jsonb not null,
  primary key (log, index)
);
insert into policies (log, index, policy)
select e.log, e.index, (convert_from(e.line, 'UTF8')::json -> 'policy')::jsonb
from runs r join entries e on e.log = r.log and e.index >= r.first and e.index < r.first + r.count
where r.sink = 0 and convert_from(e.line, 'UTF8')::json ->> 'kind' in ('log.genesis', 'policy.set');

create table labels (
  log     bigint not null references logs,
  index   bigint not null,
  session text not null,
  call    text,
  says    text not null check (says in ('violated', 'not_violated')),
  auditor text not null,
  primary key (log, index)
);
create index labels_session on labels (log, session, index);

-- Bodies of coverage statements (JCS); their digests are entries of the log.
create table statements (
  log     bigint not null references logs,
  digest  bytea not null check (octet_length(digest) = 32),
  -- Index of the entry that states it.
  index   bigint not null,
  bytes   bytea not null,
  primary key (log, digest)
);

-- How far the entries of a log were reconciled, and what was kept of them to go on from there. All of it can be made
-- again from the entries: whoever finds it damaged deletes it.
create table reconciled (
  log     bigint primary key references logs,
  through bigint not null,
  -- Raised by whoever holds a lane over this log; a write under an older one is refused.
  fence   bigint not null default 0,
  state   jsonb not null
) with (fillfactor = 50);

create table epoch_states (
  log           bigint not null,
  sink          text not null,
  epoch         text not null,
  state         jsonb not null,
  -- Of the statement that was written to the log last.
  stated_status text,
  stated_digest bytea,
  -- When time alone may change its status; null: never.
  due           timestamptz,
  primary key (log, sink, epoch)
) with (fillfactor = 50);
create index epoch_states_due on epoch_states (due) where due is not null;

create table sink_states (
  log   bigint not null,
  sink  text not null,
  state jsonb not null,
  primary key (log, sink)
) with (fillfactor = 50);

create table sessions (
  log         bigint not null,
  session     text not null,
  state       jsonb not null,
  began       timestamptz not null,
  began_index bigint not null,
  last        timestamptz not null,
  last_index  bigint not null,
  -- What the last evaluation came to.
  coverage    text,
  disposition text,
  closed      boolean not null default false,
  -- Counts and kinds for lists: {calls, verdicts: {PASS, WARN, FAIL, UNVERIFIED}, kinds, levels}.
  summary     jsonb,
  receipt     text,
  -- Of the statement that was written to the log last, by its entry.
  stated_index  bigint,
  stated_digest bytea,
  -- Entries since the last evaluation; null: none. The time is when the first of them was seen.
  dirty       timestamptz,
  due         timestamptz,
  -- Whether a verdict or a label came since it was judged last.
  heard       boolean not null default false,
  -- Why it could not be judged when that was tried last: {why, ...}; null: it could.
  held        jsonb,
  primary key (log, session)
) with (fillfactor = 50);
create index sessions_list on sessions (log, began_index);
create index sessions_dirty on sessions (dirty) where dirty is not null;
create index sessions_due on sessions (due) where due is not null;

-- Where the entries are that name a session: [first, last].
create table session_runs (
  log     bigint not null,
  session text not null,
  first   bigint not null,
  last    bigint not null,
  primary key (log, session, first)
);

-- Which lines of an epoch may be a session's, [first, last): whom a change of the epoch concerns. A session that is not
-- closed in it ends with 2^53 - 1.
create table session_epochs (
  log     bigint not null,
  sink    text not null,
  epoch   text not null,
  session text not null,
  first   bigint not null,
  last    bigint not null,
  primary key (log, sink, epoch, session)
) with (fillfactor = 50);
create index session_epochs_last on session_epochs (log, sink, epoch, last);
create index session_epochs_sink on session_epochs (log, sink, last);

alter table receipts add column disposition text;
create index receipts_scope on receipts (log, scope, as_of desc);

-- Work that somebody asked for: exports, and receipts of periods.
create table jobs (
  id        text primary key,
  log       bigint not null references logs,
  kind      text not null check (kind in ('export', 'period')),
  spec      jsonb not null,
  state     text not null default 'queued' check (state in ('queued', 'running', 'done', 'failed', 'cancelled')),
  phase     text,
  done      bigint not null default 0,
  total     bigint,
  error     text,
  -- Of an export: its file's name in the export directory, bytes and SHA-256. Of a period: the receipt.
  file      text,
  bytes     bigint,
  sha256    bytea,
  receipt   text,
  by        text not null,
  cancel    boolean not null default false,
  -- Until when the worker that runs it holds it.
  lease     timestamptz,
  -- How often it was begun and not given back: one that ends every worker that takes it is given up.
  attempts  integer not null default 0,
  created   timestamptz not null default now(),
  finished  timestamptz
);
create index jobs_log on jobs (log, created desc);
create index jobs_open on jobs (created) where state in ('queued', 'running');

create table webhooks (
  id      text primary key,
  log     bigint not null references logs,
  url     text not null,
  events  text[] not null,
  secret  bytea not null check (octet_length(secret) = 24),
  by      text not null,
  created timestamptz not null default now(),
  removed timestamptz
);
create index webhooks_log on webhooks (log) where removed is null;

create table deliveries (
  id        text primary key,
  webhook   text not null references webhooks,
  event     text not null,
  body      text not null,
  attempts  integer not null default 0,
  -- When to try (again); null: done or given up.
  due       timestamptz,
  status    integer,
  error     text,
  created   timestamptz not null default now(),
  delivered timestamptz
);
create index deliveries_due on deliveries (due) where due is not null;
create index deliveries_webhook on deliveries (webhook, created desc);
create index deliveries_over on deliveries (created) where due is null;

grant select on policies, labels, statements, reconciled, epoch_states, sink_states, sessions, session_runs, jobs,
  deliveries to belay_gateway, belay_collector, belay_worker;
grant select (id, log, url, events, by, created, removed) on webhooks to belay_gateway, belay_collector;
grant select on webhooks to belay_worker;
grant insert on policies, labels, statements to belay_collector;
grant select, insert, update, delete on session_epochs to belay_worker;
grant insert, update, delete on reconciled, epoch_states, sink_states, sessions, session_runs to belay_worker;
grant insert on jobs to belay_gateway;
grant update (cancel) on jobs to belay_gateway;
grant update on jobs to belay_worker;
grant delete on jobs to belay_worker;
grant insert on webhooks to belay_gateway;
grant update (removed) on webhooks to belay_gateway;
grant insert, update, delete on deliveries to belay_worker;
