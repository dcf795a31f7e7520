import type { LogRow, Reader } from '@belay/db';
import { ProblemError } from './problem.js';

/**
 * Refuses names that no entry of the log has: what is said of a session that there is not would never be seen. `fieldOf`
 * is the field of the request that has the name at a place of the list.
 */
export async function requireSessions(
  reader: Reader,
  log: LogRow,
  names: readonly string[],
  fieldOf: (at: number) => string,
): Promise<void> {
  const unknown = await reader.unknownSessions(log, names);
  if (unknown === undefined) {
    throw new ProblemError(
      'overloaded',
      'Many entries were not looked at yet; whether they name this session can be told when they were.',
      { retryAfter: 5 },
    );
  }
  const [first] = unknown;
  if (first === undefined) return;
  const more = unknown.length === 1 ? '' : `, nor ${unknown.length - 1} others of this request`;
  throw new ProblemError('not_found', `No entry of this log names the session ${first}${more}.`, {
    field: fieldOf(names.indexOf(first)),
  });
}
