import { isIdentifier } from '@belay/contracts';
import type { LogRow, Reader } from '@belay/db';
import { type Admin, type Auditor, type Caller, forbidden, type Sender, unauthenticated } from './access.js';
import { notFound } from './problem.js';

/**
 * From an identifier in a URL to the log it names, for the one who asks. Each does its look-up, then one comparison;
 * what does not exist fails the same comparison that somebody else's does. What is no identifier at all names nothing,
 * for anybody, and no query is made of it.
 */
export class Places {
  readonly #reader: Reader;

  constructor(reader: Reader) {
    this.#reader = reader;
  }

  async projectOf(admin: Admin, project: string): Promise<LogRow> {
    const log = isIdentifier('prj', project) ? await this.#reader.projectLog(project) : undefined;
    if (log?.tenant !== admin.tenant) throw notFound();
    return log;
  }

  /** A token or auditor key belongs to one project; every other identifier is nothing to it. */
  projectIn(caller: Sender | Auditor, project: string): LogRow {
    if (caller.log.project !== project) throw notFound();
    return caller.log;
  }

  /** A project, for its tenant's admin or for an auditor of it. */
  async projectFor(caller: Admin | Auditor, project: string): Promise<LogRow> {
    return caller.kind === 'admin' ? this.projectOf(caller, project) : this.projectIn(caller, project);
  }

  /** A log by its public identifier, when it is public or the caller's own. */
  async logFor(caller: Caller, id: string): Promise<LogRow> {
    const log = isIdentifier('log', id) ? await this.#reader.logById(id) : undefined;
    const own = caller?.kind === 'auditor' || caller?.kind === 'append' ? caller.log.id : undefined;
    if (log && (log.public || log.id === own)) return log;
    if (caller === undefined) throw unauthenticated();
    throw caller.kind === 'other' ? forbidden(caller.allowed) : notFound();
  }
}
