import { type Kysely, sql } from 'kysely';
import type { Schema } from './schema.js';

/** The first 8 bytes of SHA-256("belay/first-operator") without the sign bit. */
const ADVISORY_LOCK = '561377441581488241';

/**
 * Stores the deployment's first operator, and answers false when there is one already. Of processes that start
 * together exactly one gets true, and is the one that shows the key. Needs the collector's role.
 */
export async function createFirstOperator(
  db: Kysely<Schema>,
  operator: { readonly id: string; readonly secretHash: Buffer },
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    await sql`select pg_advisory_xact_lock(${sql.lit(ADVISORY_LOCK)}::bigint)`.execute(tx);
    if (await tx.selectFrom('operators').select('id').limit(1).executeTakeFirst()) return false;
    await tx.insertInto('operators').values({ id: operator.id, secret_hash: operator.secretHash }).execute();
    return true;
  });
}
