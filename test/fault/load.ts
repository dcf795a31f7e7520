import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { append, type AppendTarget, ClientError, type SignedHead, Transport } from '@belay/client';
import { type AppendCredential, parseCredential } from '@belay/contracts';
import { newUlid } from '@belay/envelope';

/** One acknowledged batch: what was sent and the indexes it was given. */
export interface Acknowledged {
  readonly epoch: string;
  readonly firstSeq: number;
  readonly lines: readonly Buffer[];
  readonly indexes: readonly number[];
}

/**
 * Senders that append without a pause, verify every ack, and send a batch again until it is answered: what a fleet of
 * sidecars does while the service is killed under them. All share one chain of heads per sender, so a fork shows as an
 * accusation.
 */
export class Load {
  readonly acknowledged: Acknowledged[] = [];
  readonly accusations: ClientError[] = [];
  retries = 0;
  duplicates = 0;
  readonly #token: string;
  readonly #credential: AppendCredential;
  readonly #batch: number;
  #url: string;
  #stopping = false;
  readonly #senders: Promise<void>[];

  constructor(url: string, token: string, given: { readonly senders: number; readonly batch: number }) {
    const credential = parseCredential(token);
    if (credential.kind !== 'append') throw new Error('an append token is needed');
    this.#credential = credential;
    this.#token = token;
    this.#url = url;
    this.#batch = given.batch;
    this.#senders = Array.from({ length: given.senders }, (_, at) => this.#send(`s${at}`));
  }

  /** Lines acknowledged so far. */
  get lines(): number {
    return this.acknowledged.reduce((sum, one) => sum + one.lines.length, 0);
  }

  /** The service answers somewhere else now. */
  moveTo(url: string): void {
    this.#url = url;
  }

  /** Lets every sender finish its batch; the service has to be up. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await Promise.all(this.#senders);
  }

  /** Sends a batch that was acknowledged before; resolves with the dispositions and indexes it gets now. */
  async again(one: Acknowledged): Promise<{ readonly dispositions: string[]; readonly indexes: number[] }> {
    for (;;) {
      const transport = new Transport(this.#url);
      try {
        const { runs } = await append(this.#target(transport), {
          sink: sinkOf(one),
          epoch: one.epoch,
          firstSeq: one.firstSeq,
          lines: one.lines,
          key: undefined,
          head: undefined,
        });
        return { dispositions: runs.map((run) => run.disposition), indexes: indexesOf(runs) };
      } catch (error) {
        if (!(error instanceof ClientError) || error.action !== 'retry') throw error;
        await sleep(20);
      } finally {
        transport.close();
      }
    }
  }

  async #send(sink: string): Promise<void> {
    const epoch = newUlid(Date.now(), randomBytes(10));
    let head: SignedHead | undefined;
    let transport = new Transport(this.#url);
    let url = this.#url;
    for (let seq = 1; !this.#stopping; seq += this.#batch) {
      const lines = Array.from({ length: this.#batch }, (_, at) =>
        envelope(this.#credential.origin, sink, epoch, seq + at),
      );
      for (;;) {
        if (url !== this.#url) {
          transport.close();
          url = this.#url;
          transport = new Transport(url);
        }
        try {
          const ack = await append(this.#target(transport), {
            sink,
            epoch,
            firstSeq: seq,
            lines,
            key: undefined,
            head,
          });
          head = ack.head;
          if (ack.runs.some((run) => run.disposition === 'duplicate')) this.duplicates++;
          this.acknowledged.push({ epoch, firstSeq: seq, lines, indexes: indexesOf(ack.runs) });
          break;
        } catch (error) {
          if (!(error instanceof ClientError)) throw error;
          if (error.action !== 'retry') {
            this.accusations.push(error);
            return;
          }
          this.retries++;
          await sleep(20);
        }
      }
    }
    transport.close();
  }

  #target(transport: Transport): AppendTarget {
    return { transport, token: this.#token, credential: this.#credential };
  }
}

function envelope(log: string, sink: string, epoch: string, seq: number): Buffer {
  const time = new Date().toISOString();
  return Buffer.from(JSON.stringify({ v: 1, log, sink, epoch, seq, kind: 'x.load', time }));
}

function sinkOf(one: Acknowledged): string {
  return (JSON.parse(String(one.lines[0])) as { sink: string }).sink;
}

function indexesOf(
  runs: readonly { readonly lines: readonly [number, number]; readonly index: number }[],
): number[] {
  return runs.flatMap((run) =>
    Array.from({ length: run.lines[1] - run.lines[0] }, (_, at) => run.index + at),
  );
}
