-- Whose database this is: written by the first collector that starts on it, compared by every other, never changed.
-- Two collectors with different master keys on one database would sign for different logs, and neither for all.

create table deployment (
  one           boolean primary key default true check (one),
  -- SHA-256 of a public key derived from the master seed.
  master        bytea not null check (octet_length(master) = 32),
  origin_prefix text not null,
  created       timestamptz not null default now()
);

grant select, insert on deployment to belay_collector;
