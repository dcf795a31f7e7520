import type pg from 'pg';

/** Messages removed at a time. */
const PURGED = 1_000;

/** One message to one webhook, claimed for an attempt. */
export interface Delivery {
  readonly id: string;
  readonly log: number;
  readonly webhook: string;
  readonly url: string;
  /** 24 bytes. */
  readonly secret: Buffer;
  readonly body: string;
  readonly created: Date;
  /** Attempts so far, with this one. */
  readonly attempts: number;
}

/** What an attempt came to. */
export interface Attempted {
  readonly status?: number | undefined;
  readonly error?: string | undefined;
  /** When to try again; absent: never. */
  readonly due?: Date | undefined;
  readonly delivered?: Date | undefined;
}

/** Messages to webhooks, on the tables of the account. */
export class DeliveryStore {
  readonly #pool: pg.Pool;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  /**
   * Claims what is due, at most so many of one webhook: until `until` nobody else does. A worker that dies with a
   * message leaves it to be sent again then.
   */
  async claim(now: Date, until: Date, limit: number, ofEach: number): Promise<Delivery[]> {
    const { rows } = await this.#pool.query({
      name: 'delivery_claim',
      text: `with gone as (
               update deliveries d set due = null, error = 'the webhook was removed' from webhooks w
               where d.due <= $1 and w.id = d.webhook and w.removed is not null returning d.id
             ), due as (
               select id from (
                 select d.id, d.due, row_number() over (partition by d.webhook order by d.due) as place from deliveries d
                 join webhooks w on w.id = d.webhook and w.removed is null where d.due <= $1
               ) x where place <= $4 order by due limit $3
             ), mine as (
               select id from deliveries where id in (select id from due) and due <= $1 for update skip locked
             )
             update deliveries d set due = $2, attempts = d.attempts + 1 from mine m, webhooks w
             where d.id = m.id and w.id = d.webhook
             returning d.id, w.log, d.webhook, w.url, w.secret, d.body, d.created, d.attempts`,
      values: [now, until, limit, ofEach],
    });
    return rows as Delivery[];
  }

  /** Gives a message back that was claimed and not sent: that was no attempt. */
  async putBack(id: string, due: Date): Promise<void> {
    await this.#pool.query({
      name: 'delivery_put_back',
      text: 'update deliveries set due = $2, attempts = attempts - 1 where id = $1 and delivered is null',
      values: [id, due],
    });
  }

  /** Removes what is over and older than `before`: some of it, if there is much. */
  async purge(before: Date): Promise<void> {
    await this.#pool.query({
      name: 'delivery_purge',
      text: `delete from deliveries where id in (
               select id from deliveries where due is null and created < $1 order by created limit ${PURGED})`,
      values: [before],
    });
  }

  async attempted(id: string, { status, error, due, delivered }: Attempted): Promise<void> {
    await this.#pool.query({
      name: 'delivery_attempted',
      text: 'update deliveries set status = $2, error = $3, due = $4, delivered = $5 where id = $1',
      values: [id, status ?? null, error ?? null, due ?? null, delivered ?? null],
    });
  }
}
