import type { CheckpointReply, CollectorApi } from '@belay/contracts';
import type { CheckpointRow, LogRow, Reader } from '@belay/db';
import { consistencyPlan, decompose, foldNodes, MerkleError, verifyConsistency } from '@belay/merkle';
import { ed25519Verifier, formatVkey, NoteError, openCheckpoint } from '@belay/note';
import type { Logger } from 'pino';

/** Logs looked at in one sweep; more wait for the next. */
const SWEEP = 1000;
const AT_ONCE = 8;

/** What publishing needs of the rest. */
export interface PublisherParts {
  readonly reader: Reader;
  readonly collector: Pick<CollectorApi, 'checkpoint'>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
}

export type Published = 'published' | 'current' | 'later' | 'refused';

/**
 * Publishes checkpoints. The collector signs; whether what it signed may stand beside what was published before is
 * checked here, by another process with other rights, against the tiles that readers get. What fails is not published
 * and said loudly: it means that the log shows two histories.
 *
 * Any number of these may run at once, on any schedule: what is due is seen from the database, and a checkpoint is
 * stored once.
 */
export class Publisher {
  readonly #parts: PublisherParts;

  constructor(parts: PublisherParts) {
    this.#parts = parts;
  }

  /** Logs that have grown since their last checkpoint. */
  async due(): Promise<{ log: string; size: number }[]> {
    const grown = await this.#parts.reader.grownLogs(SWEEP);
    return grown.map(({ log, size }) => ({ log: log.id, size }));
  }

  /** Publishes what is due. Rejects with the first failure, after all were tried. */
  async sweep(): Promise<void> {
    const grown = await this.#parts.reader.grownLogs(SWEEP);
    const failures: unknown[] = [];
    const lane = async () => {
      for (let next = grown.shift(); next; next = grown.shift()) {
        await this.publish(next.log).catch((error: unknown) => failures.push(error));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
    if (failures.length > 0) throw failures[0];
  }

  /** By public identifier, as a job names it. */
  async publishById(id: string): Promise<Published> {
    const log = await this.#parts.reader.logById(id);
    return log ? this.publish(log) : 'current';
  }

  async publish(log: LogRow): Promise<Published> {
    const { reader, collector, now } = this.#parts;
    const outcome = await collector.checkpoint(log.id);
    if (!outcome.ok) {
      const { kind, code, message } = outcome.fault;
      const level = kind === 'retry' || kind === 'not_yet' ? 'info' : 'error';
      this.#parts.log[level](
        { origin: log.origin, code, reason: message },
        'no checkpoint from the collector',
      );
      return 'later';
    }
    const last = await reader.latestCheckpoint(log);
    try {
      const root = open(log, outcome.value);
      const { size, note } = outcome.value;
      if (last && size < last.size) return 'current';
      await this.#verify(log, last, size, root);
      if (last?.size === size) return 'current';
      const published = new Date(Math.max(now(), last ? last.published.getTime() : 0));
      const stored = await reader.insertCheckpoint(log, { size, root, note, published });
      return stored ? 'published' : 'current';
    } catch (error) {
      if (!(error instanceof MerkleError || error instanceof NoteError)) throw error;
      this.#parts.log.error(
        { err: error, origin: log.origin, published: last?.size ?? 0, offered: outcome.value.size },
        'checkpoint refused: the log does not agree with what was published',
      );
      return 'refused';
    }
  }

  /** Throws MerkleError unless the tiles lead from what was published to what is offered. */
  async #verify(log: LogRow, last: CheckpointRow | undefined, size: number, root: Buffer): Promise<void> {
    const { reader } = this.#parts;
    if (last) {
      const [size1, size2] = [BigInt(last.size), BigInt(size)];
      const proof = await reader.proof(log, consistencyPlan(size1, size2));
      verifyConsistency({ size1, size2, root1: last.root, root2: root, proof });
      return;
    }
    const computed = foldNodes(await reader.nodes(log, decompose(0n, BigInt(size))));
    if (computed.equals(root)) return;
    throw new MerkleError('root-mismatch', 'the tiles do not lead to the root', {
      expected: root.toString('hex'),
      computed: computed.toString('hex'),
    });
  }
}

/** The root that the log's key really signed for this size. Throws NoteError. */
function open(log: LogRow, { note, size }: CheckpointReply): Buffer {
  const checkpoint = openCheckpoint(note, ed25519Verifier(formatVkey(log.origin, log.publicKey)));
  if (checkpoint.origin !== log.origin || checkpoint.size !== BigInt(size)) {
    throw new NoteError('checkpoint', 'a checkpoint of another log or size than was asked for');
  }
  return checkpoint.root;
}
