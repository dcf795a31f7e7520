import type { Kysely } from 'kysely';
import type { Schema } from './schema.js';

/** What all collectors of one database have in common. */
export interface Deployment {
  /** Identity of the master seed: 32 bytes. */
  readonly master: Buffer;
  readonly originPrefix: string;
}

/** The database was first used with other keys or another prefix. Nothing was changed. */
export class OtherDeployment extends Error {
  readonly differs: 'keys' | 'origin_prefix';

  constructor(differs: OtherDeployment['differs'], message: string) {
    super(message);
    this.name = 'OtherDeployment';
    this.differs = differs;
  }
}

/**
 * Records whose database this is, or throws OtherDeployment when it is somebody else's. Of collectors that start
 * together the first one's word counts. Needs the collector's role.
 */
export async function claimDeployment(db: Kysely<Schema>, own: Deployment): Promise<void> {
  await db
    .insertInto('deployment')
    .values({ master: own.master, origin_prefix: own.originPrefix })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  const first = await db.selectFrom('deployment').selectAll().executeTakeFirstOrThrow();
  if (!first.master.equals(own.master)) {
    throw new OtherDeployment(
      'keys',
      `this database is used with the master key ${fingerprint(first.master)} since ${first.created.toISOString()}; ` +
        `the one here is ${fingerprint(own.master)}. ` +
        'Use the key directory that belongs to the database, or another database',
    );
  }
  if (first.origin_prefix !== own.originPrefix) {
    throw new OtherDeployment(
      'origin_prefix',
      `the logs of this database have origins that begin with ${first.origin_prefix}, not with ${own.originPrefix}`,
    );
  }
}

const fingerprint = (master: Buffer): string => master.toString('hex').slice(0, 16);
