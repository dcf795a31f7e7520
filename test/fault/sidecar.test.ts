import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { epochStatus, logDir, readEpochRecord, readEvidence } from '@belay/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort, Machine } from '../e2e/belay-process.js';
import { Tenant } from '../harness/tenant.js';
import { type SmallDisk, smallDisk } from './small-disk.js';
import { Traffic } from './traffic.js';

/** More in `npm run soak`. */
const ROUNDS = Math.ceil(Number(process.env['BELAY_KILLS'] ?? 4) / 4);

interface Checked {
  readonly code: number | null;
  readonly verdict: string;
  readonly integrity: string;
  readonly trace: {
    readonly problems: readonly { readonly code: string }[];
    readonly gaps: readonly { readonly reason: string; readonly code?: string }[];
    readonly close?: { readonly exit?: number; readonly signal?: string; readonly lost: number };
  };
  readonly findings: readonly { readonly code: string; readonly bad: boolean; readonly seqs?: string }[];
}

/** A machine with the sidecar and the service on it, and one project. */
class Site {
  readonly machine: Machine;
  readonly port: number;
  #service!: Awaited<ReturnType<Machine['serve']>>;
  tenant!: Tenant;
  readonly #seen = new Set<string>();
  #last = '';

  private constructor(machine: Machine, port: number) {
    this.machine = machine;
    this.port = port;
  }

  static async open(under?: string): Promise<Site> {
    const site = new Site(new Machine(under), await freePort());
    await site.serve();
    const operatorKey = /belay_operator_[\w-]+/.exec(site.#service.output())?.[0] ?? '';
    const service = { url: site.#service.url, operatorKey, logs: () => '', close: async () => undefined };
    site.tenant = await Tenant.create(service, 'faults');
    return site;
  }

  get origin(): string {
    return this.tenant.project.origin;
  }

  get env(): Record<string, string> {
    return { BELAY_URL: this.#service.url, BELAY_TOKEN: this.tenant.project.token.credential };
  }

  get servicePid(): number {
    return this.#service.process.pid as number;
  }

  async serve(): Promise<void> {
    this.#service = await this.machine.serve(this.port);
  }

  async killService(): Promise<void> {
    this.#service.process.kill('SIGKILL');
    await this.machine.stop(this.#service.process);
  }

  async close(): Promise<void> {
    await this.machine.close();
  }

  /** Sends what waits. */
  async forward(): Promise<number | null> {
    return (await this.machine.belay(['forward'], this.env)).code;
  }

  /** Epochs with lines that no published checkpoint covers, as far as is known after asking. */
  async uncovered(): Promise<number> {
    const { kept } = await this.machine.json<{ kept: { uncovered: number } }>(['forward'], this.env);
    return kept.uncovered;
  }

  /** The trace that was checked last, once more. */
  async recheck(): Promise<{ readonly code: number | null; readonly published: boolean }> {
    const args = ['trace', 'check', '--acks', this.#last, '--json'];
    const { code, stdout } = await this.machine.belay(args, this.env);
    const { traces } = JSON.parse(stdout) as { traces: { acks: { published: boolean } }[] };
    return { code, published: traces[0]?.acks.published === true };
  }

  /** The trace of the run since the last call of this, checked against the acks. */
  async check(): Promise<Checked & { readonly epoch: string }> {
    const folder = join(this.machine.state, 'traces');
    const [name] = readdirSync(folder).filter((each) => !this.#seen.has(each)) as [string];
    this.#seen.add(name);
    const path = (this.#last = join(folder, name));
    const { code, stdout } = await this.machine.belay(['trace', 'check', '--acks', path, '--json'], this.env);
    const { verdict, integrity, traces } = JSON.parse(stdout) as {
      verdict: string;
      integrity: string;
      traces: (Checked['trace'] & { acks: { findings: Checked['findings'] } })[];
    };
    const [trace] = traces as [(typeof traces)[0]];
    expect((await this.machine.belay(['trace', 'show', path], this.env)).code).toBeTypeOf('number');
    return {
      code,
      verdict,
      integrity,
      trace,
      findings: trace.acks.findings,
      epoch: /-([0-9A-Z]{26})\.jsonl$/.exec(name)?.[1] as string,
    };
  }

  /**
   * The spool of an epoch and the log agree: every line of the one is in the other, every number is either there or
   * spoken of by a gap line, and no other number is there. Returns what the gap lines speak of.
   */
  async expectAgreement(
    epoch: string,
  ): Promise<{ readonly first: number; readonly last: number; readonly reason: string }[]> {
    const dir = join(logDir(this.machine.state, this.origin), 'sinks', 'proxy', epoch);
    const evidence = await readEvidence(dir, readEpochRecord(dir) as never, this.tenant.project.vkey);
    expect(evidence.flaws).toEqual([]);
    const logged = new Map<number, string>();
    for (let cursor = ''; ;) {
      const query = `/events?sink=proxy&epoch=${epoch}&limit=500${cursor === '' ? '' : `&cursor=${cursor}`}`;
      const { body } = await this.tenant.asAuditor('get', this.tenant.path(query)).expect(200);
      const page = body as { events: { index: number; entry: string }[]; next?: string | null };
      for (const { index, entry } of page.events) {
        const { seq, kind } = JSON.parse(entry.split('\n')[1] as string) as { seq: number; kind: string };
        expect(logged.has(seq), `line ${seq} is logged once`).toBe(false);
        expect(evidence.attested.get(seq), `line ${seq}`).toMatchObject({ index, conflict: false });
        logged.set(seq, kind);
      }
      if (typeof page.next !== 'string') break;
      cursor = encodeURIComponent(page.next);
    }
    expect([...logged.keys()].sort((a, b) => a - b)).toEqual([...evidence.lines.keys()]);
    const gaps = [...evidence.lines.values()].flatMap(({ gap }) => gap ?? []);
    const last = Math.max(...logged.keys());
    for (let seq = 1; seq <= last; seq++) {
      const told = gaps.some((gap) => gap.first <= seq && seq <= gap.last);
      expect(logged.has(seq) !== told, `line ${seq}`).toBe(true);
    }
    expect(epochStatus(dir)).toMatchObject({ pending: 0, refused: 0, conflicts: 0 });
    return gaps;
  }
}

describe('while an agent works through the proxy', () => {
  let site: Site;
  beforeAll(async () => {
    site = await Site.open();
  });
  afterAll(() => site.close());

  it(`kill -9 of the server: the trace says what ended it, and everything is attested (${ROUNDS}×)`, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const traffic = new Traffic(site.machine, site.env);
      const server = await traffic.server();
      await traffic.more(50);
      process.kill(server, 'SIGKILL');
      expect(await traffic.end()).toBe(137);
      await site.forward();
      const checked = await site.check();
      expect(checked).toMatchObject({
        code: 0,
        verdict: 'INTACT',
        findings: [],
        trace: { problems: [], gaps: [] },
      });
      expect(checked.trace.close?.signal).toBe('SIGKILL');
      // The service publishes a checkpoint that covers it, which the append token may read and verify.
      await expect.poll(() => site.uncovered(), { timeout: 30_000, interval: 200 }).toBe(0);
      expect(await site.recheck()).toMatchObject({ code: 0, published: true });
      expect(checked.integrity).toMatch(/^attested (\d+)\/\1$/);
      expect(await site.expectAgreement(checked.epoch)).toEqual([]);
    }
  });

  it(`kill -9 of the proxy: what passed is in the trace, and what the log was told is in it or named (${ROUNDS}×)`, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const traffic = new Traffic(site.machine, site.env);
      await traffic.more(50 + Math.floor(Math.random() * 50));
      traffic.proxy.kill('SIGKILL');
      expect(await traffic.end()).toBe('SIGKILL');
      expect(await site.forward()).toBe(0);
      const checked = await site.check();
      // No close: nobody can tell this from an end that was cut off, and it is not said to be whole.
      expect(checked).toMatchObject({ code: 2, verdict: 'INCOMPLETE' });
      const problems = checked.trace.problems.map(({ code }) => code);
      expect(problems).toContain('missing_close');
      expect(problems.filter((code) => code !== 'torn_tail')).toEqual(['missing_close']);
      // The last frame may have become a line and no record, or a record whose line was not written: it says which.
      for (const { code } of checked.findings) expect(['cut_off', 'not_acknowledged']).toContain(code);
      const [, attested, lines] = /^attested (\d+)\/(\d+)$/.exec(checked.integrity) ?? [];
      expect(Number(attested)).toBeGreaterThanOrEqual(100);
      // Lines are made in a quiet moment, at the latest after 20 ms: of calls that think for 2 ms, so many at most.
      expect(Number(lines) - Number(attested)).toBeLessThanOrEqual(20);
      expect(await site.expectAgreement(checked.epoch)).toEqual([]);
    }
  });

  it(`kill -9 of the collector: the agent notices nothing, and in the end everything is attested (${ROUNDS}×)`, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const traffic = new Traffic(site.machine, site.env);
      await traffic.more(30);
      await site.killService();
      await traffic.more(100);
      await site.serve();
      await traffic.more(30);
      expect(await traffic.end()).toBe(0);
      expect(await site.forward()).toBe(0);
      const checked = await site.check();
      expect(checked).toMatchObject({ code: 0, verdict: 'INTACT', findings: [] });
      expect(await site.expectAgreement(checked.epoch)).toEqual([]);
    }
  });
});

describe('a disk that is full', () => {
  let disk: SmallDisk;
  let site: Site;
  beforeAll(async () => {
    disk = smallDisk(300);
    site = await Site.open(disk.dir);
  });
  afterAll(async () => {
    disk.free([]);
    await site.close();
    disk.close();
  });

  it('on the whole machine: the agent is served, and every gap is named on both sides', async () => {
    const traffic = new Traffic(site.machine, site.env, 2_000);
    await traffic.more(30);
    const pids = [traffic.proxy.pid as number];
    disk.stuff(pids);
    await traffic.more(200);
    disk.free(pids);
    // A database that had no room to write may have gone down; whoever runs it starts it again.
    await site.killService();
    await site.serve();
    await traffic.more(30);
    expect(await traffic.end()).toBe(0);
    expect(await site.forward()).toBe(0);
    const checked = await site.check();
    // Readable from one end to the other, by its own word not whole, and not taken for one that was changed.
    expect(checked).toMatchObject({ code: 2, verdict: 'INCOMPLETE', trace: { problems: [] } });
    expect(checked.trace.gaps.every(({ reason }) => reason === 'write')).toBe(true);
    expect(checked.trace.gaps[0]?.code).toBe(disk.whole ? 'ENOSPC' : 'EFBIG');
    expect(checked.trace.close?.lost).toBeGreaterThan(0);
    const gaps = await site.expectAgreement(checked.epoch);
    expect(gaps.length).toBeGreaterThan(0);
    expect(new Set(gaps.map(({ reason }) => reason))).toEqual(new Set(['lost']));
    // The two went on at moments of their own: what only one of them has is named.
    for (const { code, bad } of checked.findings) {
      expect(['lost', 'not_sent']).toContain(code);
      expect(bad).toBe(false);
    }
    // The log's own word for it reaches whoever looks at the machine.
    const status = await site.machine.belay(['status', '--json'], site.env);
    expect(status.code).toBe(1);
    expect((JSON.parse(status.stdout) as { totals: { dropped: number } }).totals.dropped).toBe(
      gaps.reduce((sum, { first, last }) => sum + last - first + 1, 0),
    );
  });
});
