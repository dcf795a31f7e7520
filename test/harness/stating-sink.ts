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
  #waiting: string[] = [];
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

  /** Begins the next epoch, which accounts for the one before. */
  open(): this {
    if (this.epoch !== '') this.#before = { epoch: this.epoch, ...this.#tree.stated() };
    this.epoch = ulid();
    this.#sink = this.tenant.sink(this.name, this.epoch);
    this.#tree = new SinkTree();
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
    if (lost) this.#waiting.push('');
    else this.#waiting.push(line);
    return this;
  }

  /** Writes a line that states the tree of those before it. */
  stated(kind: 'heartbeat' | 'session.close' | 'epoch.close', said: Said = {}, lost = false): this {
    return this.say(kind, { ...said, attrs: { ...this.#tree.stated(), dropped: 0, filtered: 0 } }, lost);
  }

  /** Sends what was written since, but for what is lost, and checks the acks. */
  async send(): Promise<void> {
    let run: string[] = [];
    let from = this.#from;
    let at = this.#from;
    const flush = async (): Promise<void> => {
      const lines = run;
      run = [];
      if (lines.length === 0) return;
      const headers = this.seed
        ? { 'belay-signature': signBatch(this.#sink as Sink, from, lines, this.seed) }
        : {};
      await this.tenant.append(lines, this.token, headers);
    };
    for (const line of this.#waiting) {
      if (line === '') {
        await flush();
        from = at + 1;
      } else run.push(line);
      at++;
    }
    await flush();
    this.#waiting = [];
    this.#from = at;
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
