import { createHash } from 'node:crypto';
import { CoverageError, type CoverageStatement, parseStatement } from '@belay/coverage';
import { ExportError, type ExportManifest, PAGES_VERSION, parseManifest } from '@belay/export';
import { checkPayload, type Claim, type LogIdentity, type PublishedHead, ReceiptError } from '@belay/receipt';

/** What the worker hands in to be recorded or signed, and what it is to be compared with. */
export type Question =
  | { readonly kind: 'statements'; readonly bytes: readonly Uint8Array[] }
  /** Which published head the payload of a receipt stands on. */
  | { readonly kind: 'size'; readonly payload: Uint8Array }
  | {
      readonly kind: 'claim';
      readonly payload: Uint8Array;
      readonly log: LogIdentity;
      readonly head: PublishedHead;
    }
  | { readonly kind: 'manifest'; readonly payload: Uint8Array };

/** The members of a statement that its entry repeats. */
export type StatementFacts = Pick<CoverageStatement, 'log' | 'asOf' | 'policy' | 'status'> & {
  /** `sha256:` digest of the bytes. */
  readonly digest: string;
} & (
    | { readonly type: 'session'; readonly session: string }
    | { readonly type: 'epoch'; readonly sink: string; readonly epoch: string }
    | { readonly type: 'sink' }
  );

type SessionClaim = Extract<Claim, { type: 'session' }>['receipt'];
type PeriodClaim = Extract<Claim, { type: 'period' }>['receipt'];

/** The members of a receipt that the log can be asked about. */
export type ClaimFacts = {
  readonly supersedes: string | undefined;
} & (
  | ({
      readonly type: 'session';
      readonly coverage: Pick<SessionClaim['coverage'], 'index' | 'statement' | 'size' | 'time' | 'status'>;
      readonly policy: Pick<SessionClaim['policy'], 'digest' | 'index'>;
      readonly disposition: string;
    } & Pick<SessionClaim, 'scope' | 'issuers'>)
  | ({ readonly type: 'period' } & Pick<PeriodClaim, 'scope' | 'coverage'>)
);

export type ManifestFacts = Pick<ExportManifest, 'log' | 'project' | 'asOf'>;

export interface Answers {
  readonly statements: StatementFacts[];
  readonly size: number;
  readonly claim: ClaimFacts;
  readonly manifest: ManifestFacts;
}

/** What was handed in is not what it should be; whoever handed it in is told the message. */
export class Unfit extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'Unfit';
  }
}

/** Reads what was handed in, and answers what the log has to be asked about it. Throws Unfit. */
export function examine<Q extends Question>(question: Q): Answers[Q['kind']];
export function examine(question: Question): Answers[Question['kind']] {
  switch (question.kind) {
    case 'statements':
      return question.bytes.map((each) => {
        const bytes = bufferOf(each);
        const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
        return fit(() => statementFacts(bytes, digest), `${digest}: `);
      });
    case 'size':
      return sizeOf(bufferOf(question.payload));
    case 'claim':
      return fit(() => claimFacts(checkPayload(bufferOf(question.payload), withBuffers(question))));
    case 'manifest': {
      const { log, project, asOf, pages } = fit(() => parseManifest(bufferOf(question.payload)));
      // Pages of another version are not compared by who verifies: whoever makes exports could put a lie in them.
      if (pages !== PAGES_VERSION) {
        throw new Unfit(
          `pages of version ${pages}, and this collector signs those of version ${PAGES_VERSION}: worker and collector have to be of one release`,
        );
      }
      return { log, project, asOf };
    }
  }
}

function statementFacts(bytes: Buffer, digest: string): StatementFacts {
  const statement = parseStatement(bytes);
  const { log, asOf, policy, status } = statement;
  const shared = { log, asOf, policy, status, digest };
  switch (statement.type) {
    case 'session':
      return { ...shared, type: 'session', session: statement.session };
    case 'epoch':
      return { ...shared, type: 'epoch', sink: statement.sink, epoch: statement.epoch };
    case 'sink':
      return { ...shared, type: 'sink' };
  }
}

/** Only to know which head to compare with: what it is worth is told by `checkPayload`. */
function sizeOf(payload: Buffer): number {
  let size: unknown;
  try {
    size = (JSON.parse(payload.toString('utf8')) as { predicate: { asOf: { size: unknown } } }).predicate.asOf
      .size;
  } catch {
    throw new Unfit('the payload is not the statement of a receipt');
  }
  if (Number.isSafeInteger(size) && (size as number) >= 0) return size as number;
  throw new Unfit('asOf.size is not a size');
}

function claimFacts({ type, receipt }: Claim): ClaimFacts {
  const { supersedes } = receipt;
  if (type === 'period') {
    return { type, supersedes, scope: receipt.scope, coverage: receipt.coverage };
  }
  const { scope, coverage, policy, disposition, issuers } = receipt;
  const { index, statement, size, time, status } = coverage;
  return {
    type,
    supersedes,
    scope,
    coverage: { index, statement, size, time, status },
    policy: { digest: policy.digest, index: policy.index },
    disposition: disposition.status,
    issuers,
  };
}

function fit<T>(work: () => T, about = ''): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof CoverageError || error instanceof ReceiptError || error instanceof ExportError) {
      throw new Unfit(`${about}${error.message}`);
    }
    throw error;
  }
}

/** What another thread gets of a Buffer is a plain Uint8Array. */
function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function withBuffers({ log, head }: Extract<Question, { kind: 'claim' }>) {
  return { log: { ...log, x5c: log.x5c.map(bufferOf) }, head };
}
