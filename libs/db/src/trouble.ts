/** What a failure of the database is to whoever has to do something about it. */
export type DatabaseTrouble =
  /** It can't be reached, is starting, stopping or full, or does not let this login in. */
  | 'away'
  /** The login may not do that. */
  | 'rights'
  /** The tables are not there. */
  | 'schema';

const AWAY =
  /^(?:08...|28...|3D000|53...|57P0[1-3]|EPIPE|EAI_AGAIN|ETIMEDOUT|ENOTFOUND|EHOSTUNREACH|ENETUNREACH)$/;
/** What node-postgres says without a code. */
const AWAY_WORDS = /^(?:Connection terminated|timeout exceeded when trying to connect|SASL: )/;

/** Undefined for an error that is none of the database's, or a fault of ours. */
export function databaseTrouble(error: unknown): DatabaseTrouble | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (typeof code !== 'string') return AWAY_WORDS.test(error.message) ? 'away' : undefined;
  if (AWAY.test(code) || code.startsWith('ECONN')) return 'away';
  // The socket's file, where the server is on this machine.
  if (code === 'ENOENT' && syscall === 'connect') return 'away';
  if (code === '42501' || code === '42704') return 'rights';
  return code === '42P01' ? 'schema' : undefined;
}
