import { createHash, createPrivateKey, createPublicKey } from 'node:crypto';
import { SinkTree } from '@belay/envelope';
import { type Sink, signBatch, type Tenant, ulid } from './tenant.js';

/** Said of a line beside its kind. */
type Said = Readonly<Record<string, unknown>>;

/** A sink that numbers, chains and states its lines as the format says, through the real API. */
export class StatingSink {
  readonly tenant: Tenant;
  readonly name: string;
  readonly token: string;
  /** Seed of its declared key; absent: it signs nothing. */
  readonly seed: Buffer | undefined;
  epoch = '';
  #sink: Sink | undefined;
  #tree = new SinkTree();
  #counter = 0;
  #before: { readonly epoch: string; readonly size: number; readonly root: string } | undefined;
  /** Lines to be sent; one that is lost is not. */
  #waiting: { readonly line: string; readonly isLost: boolean }[] = [];
  #lost: { readonly sink: Sink; readonly seq: number; readonly line: string }[] = [];
  #from = 1;

  private constructor(tenant: Tenant, name: string, token: string, seed: Buffer | undefined) {
    this.tenant = tenant;
    this.name = name;
    this.token = token;
    this.seed = seed;
  }

  /** Declares a sink and takes out a token for it. */
  static async declare(
    tenant: Tenant,
    name: string,
    options: {
      readonly kind?: string;
      readonly required?: boolean;
      readonly keyed?: boolean;
      readonly role?: string;
    } = {},
  ): Promise<StatingSink> {
    const { kind = 'proxy', required = true, keyed = true, role = 'sink' } = options;
    const seed = keyed ? createHash('sha256').update(`${tenant.id} ${name}`).digest() : undefined;
    await tenant
      .asAdmin('put', tenant.path(`/sinks/${name}`))
      .send({ kind, required, ...(seed && { key: publicKeyOf(seed).toString('base64') }) })
      .expect(200);
    const { credential } = await tenant.token({ role, sinks: [name] });
    return new StatingSink(tenant, name, credential, seed);
  }

  get size(): number {
    return this.#tree.size;
  }

  /** A second process with the state of this one, and its own life from here on. */
  fork(): StatingSink {
    const twin = new StatingSink(this.tenant, this.name, this.token, this.seed);
    twin.epoch = this.epoch;
    twin.#sink = this.#sink;
    twin.#tree = this.#tree;
    twin.#counter = this.#counter;
    return twin;
  }

  /** Loses all that it knew of its epochs: the next one is the first of another chain. */
  forget(): this {
    this.epoch = '';
    this.#counter = 0;
    this.#before = undefined;
    return this;
  }

  /** Forgets what was not sent, as a disk that was lost does. */
  lose(): this {
    this.#waiting = [];
    return this;
  }

  /** Begins the next epoch, which accounts for the one before. */
  open(): this {
    if (this.epoch !== '') this.#before = { epoch: this.epoch, ...this.#tree.stated() };
    this.epoch = ulid();
    this.#sink = this.tenant.sink(this.name, this.epoch);
    this.#tree = new SinkTree();
    if (this.#waiting.length > 0) throw new Error('lines of the epoch before were neither sent nor lost');
    this.#from = 1;
    const before = this.#before;
    const attrs = {
      counter: this.#counter++,
      sink_kind: 'proxy',
      ...(before && { prev_epoch: before.epoch, prev_size: before.size, prev_root: before.root }),
    };
    return this.say('epoch.open', { attrs });
  }

  /** Writes the next line; one that is lost has its number and its place in the tree, and is never sent. */
  say(kind: string, said: Said = {}, lost = false): this {
    const line = (this.#sink as Sink).line({ kind, ...said });
    this.#tree.append(Buffer.from(line));
    this.#waiting.push({ line, isLost: lost });
    return this;
  }

  /** Writes a line that states the tree of those before it. */
  stated(kind: 'heartbeat' | 'session.close' | 'epoch.close', said: Said = {}, lost = false): this {
    return this.say(kind, { ...said, attrs: { ...this.#tree.stated(), dropped: 0, filtered: 0 } }, lost);
  }

  /** Sends what was written since, but for what is lost, and checks the acks. */
  async send(): Promise<void> {
    const sink = this.#sink as Sink;
    let run: string[] = [];
    let at = this.#from;
    const flush = async (): Promise<void> => {
      const lines = run;
      run = [];
      if (lines.length > 0) await this.#append(sink, at - lines.length, lines);
    };
    for (const { line, isLost } of this.#waiting) {
      if (isLost) {
        await flush();
        this.#lost.push({ sink, seq: at, line });
      } else run.push(line);
      at++;
    }
    await flush();
    this.#waiting = [];
    this.#from = at;
  }

  /** Sends the lines that were lost until now: they were held up on the way. */
  async sendLost(): Promise<void> {
    for (const { sink, seq, line } of this.#lost.splice(0)) await this.#append(sink, seq, [line]);
  }

  async #append(sink: Sink, firstSeq: number, lines: readonly string[]): Promise<void> {
    const headers = this.seed ? { 'belay-signature': signBatch(sink, firstSeq, lines, this.seed) } : {};
    await this.tenant.append(lines, this.token, headers);
  }
}

function publicKeyOf(seed: Buffer): Buffer {
  const key = createPrivateKey({
    key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]),
    format: 'der',
    type: 'pkcs8',
  });
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-32);
}
