import { databaseTrouble, EmbeddedError } from '@belay/db';
import { DirLocked } from '@belay/dirlock';
import { AnchorDamaged } from '@belay/log';
import { badInput, unavailable } from './exit.js';

/** What keeps a database, or the folder of one, from being used. */
export function explainDatabase(error: unknown): unknown {
  if (error instanceof DirLocked) {
    return unavailable(
      'locked',
      `${error.dir} is in use by process ${error.pid}`,
      'A `belay serve` runs on this data folder. Stop it, or give another --data.',
    );
  }
  if (error instanceof EmbeddedError) return unavailable(error.code, error.message, undefined, error);
  if (error instanceof AnchorDamaged) return badInput('anchor_damaged', error.message, undefined, error);
  const message = error instanceof Error ? error.message || error.name : String(error);
  switch (databaseTrouble(error)) {
    case 'away':
      return unavailable(
        'database_unavailable',
        `the database can not be used: ${message}`,
        'Check the address, the name and the password in DATABASE_URL, and that PostgreSQL runs.',
        error,
      );
    case 'rights':
      return badInput(
        'database_rights',
        `the login of DATABASE_URL may not do that: ${message}`,
        'It has to own the database, or be a member of the roles that Belay made.',
        error,
      );
    case 'schema':
      return badInput(
        'no_schema',
        `this is no database of Belay: ${message}`,
        'Start `belay serve` on it once.',
        error,
      );
    case undefined:
      return error;
  }
}
