import { type Kysely, sql, type Transaction } from 'kysely';
import type { Schema } from './schema.js';

/** The first 8 bytes of SHA-256("belay/first-operator") without the sign bit. */
const ADVISORY_LOCK = '561377441581488241';

export interface NewOperator {
  readonly id: string;
  readonly secretHash: Buffer;
}

/**
 * Stores the deployment's first operator, and answers false when there is one already. Of processes that start
 * together exactly one gets true, and is the one that shows the key. Needs the collector's role.
 *
 * `show` is called before the operator counts: a crash after it leaves a key that is worth nothing, and the next start
 * makes another; no crash leaves a key that nobody has seen.
 */
export async function createFirstOperator(
  db: Kysely<Schema>,
  operator: NewOperator,
  show: () => Promise<void>,
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    await lock(tx);
    if (await tx.selectFrom('operators').select('id').limit(1).executeTakeFirst()) return false;
    await insert(tx, operator);
    await show();
    return true;
  });
}

/**
 * Puts a new operator in the place of all there were, whose keys are worth nothing from then on, and returns how many
 * these were. Needs the rights of the database's owner. `show` as for the first one.
 */
export async function replaceOperators(
  db: Kysely<Schema>,
  operator: NewOperator,
  show: () => Promise<void>,
): Promise<number> {
  return db.transaction().execute(async (tx) => {
    await lock(tx);
    const { numDeletedRows } = await tx.deleteFrom('operators').executeTakeFirstOrThrow();
    await insert(tx, operator);
    await show();
    return Number(numDeletedRows);
  });
}

async function lock(tx: Transaction<Schema>): Promise<void> {
  await sql`select pg_advisory_xact_lock(${sql.lit(ADVISORY_LOCK)}::bigint)`.execute(tx);
}

async function insert(tx: Transaction<Schema>, { id, secretHash }: NewOperator): Promise<void> {
  await tx.insertInto('operators').values({ id, secret_hash: secretHash }).execute();
}
