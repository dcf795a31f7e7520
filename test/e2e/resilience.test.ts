import { setTimeout as sleep } from 'node:timers/promises';
import type { Ack } from '@belay/contracts';
import type { EventList } from '@belay/contracts/http';
import { parseEntry } from '@belay/envelope';
import { ed25519Verifier, openCheckpoint } from '@belay/note';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Fleet, startFleet } from '../harness/fleet.js';
import { startServe } from '../harness/serve.js';
import { Tenant, verifyAck } from '../harness/tenant.js';

const BATCH = 5;

/** Senders that do as the sidecar does: a batch is sent again until its ack is there and verifies. */
class Senders {
  readonly tenant: Tenant;
  readonly acked: { readonly line: string; readonly index: number }[] = [];
  retries = 0;
  #going = true;
  readonly #all: Promise<unknown>;

  constructor(tenant: Tenant, count: number) {
    this.tenant = tenant;
    this.#all = Promise.all(Array.from({ length: count }, (_, i) => this.#send(`sender-${i}`)));
  }

  async finish(): Promise<void> {
    this.#going = false;
    await this.#all;
  }

  async #send(name: string): Promise<void> {
    const sink = this.tenant.sink(name);
    while (this.#going) {
      const lines = sink.lines(BATCH);
      const ack = await this.#until(lines);
      for (const run of ack.runs) {
        for (let at = run.lines[0]; at < run.lines[1]; at++) {
          this.acked.push({ line: lines[at] ?? '', index: run.index + at - run.lines[0] });
        }
      }
      expect(ack.runs.reduce((sum, run) => sum + run.lines[1] - run.lines[0], 0)).toBe(BATCH);
    }
  }

  async #until(lines: readonly string[]): Promise<Ack> {
    for (;;) {
      try {
        const answer = await this.tenant.post(lines.join('\n')).timeout(10_000);
        if (answer.status === 200) {
          verifyAck(this.tenant.project, lines, answer.body as Ack);
          return answer.body as Ack;
        }
        expect([answer.status, answer.headers['retry-after'] !== undefined]).toEqual([503, true]);
      } catch (error) {
        if (!isNetworkError(error)) throw error;
      }
      this.retries += 1;
      await sleep(50);
    }
  }
}

/** The gateway was down, or went down while it answered. */
function isNetworkError(error: unknown): boolean {
  const { timeout, code, message } = error as Error & { code?: string; timeout?: number };
  return timeout !== undefined || /ECONN|EPIPE|socket hang up|Aborted/.test(`${code} ${message}`);
}

/** Every entry of the log, dense from 0; every acked line at its index and nowhere else. */
async function expectNothingLost(senders: Senders): Promise<void> {
  const { tenant, acked } = senders;
  const entries: string[] = [];
  let cursor = '';
  do {
    const path = tenant.path(`/events?limit=1000${cursor && `&cursor=${cursor}`}`);
    const page = (await tenant.asAuditor('get', path).expect(200)).body as EventList;
    for (const { index, entry } of page.events) {
      expect(index).toBe(entries.length);
      entries.push(entry);
    }
    cursor = page.next ?? '';
  } while (cursor);
  const bodies = entries.map((entry) => parseEntry(Buffer.from(entry)).body.toString('utf8'));
  expect(acked.length).toBeGreaterThan(BATCH);
  for (const { line, index } of acked) expect(bodies[index]).toBe(line);
  expect(new Set(bodies).size).toBe(bodies.length);
}

/** A checkpoint comes to cover the whole log. */
async function expectPublished(tenant: Tenant): Promise<void> {
  const { size } = (await tenant.asAuditor('get', tenant.path('/events?limit=1')).expect(200))
    .body as EventList;
  const deadline = Date.now() + 30_000;
  while (Date.now() < deadline) {
    const answer = await tenant.asAuditor('get', `/v1/logs/${tenant.project.log}/checkpoint`);
    if (answer.status === 200) {
      const checkpoint = openCheckpoint(answer.text, ed25519Verifier(tenant.project.vkey));
      if (checkpoint.size >= BigInt(size)) return;
    }
    await sleep(50);
  }
  const said = tenant.service
    .logs()
    .split('\n')
    .filter((line) => line.includes('"name":"worker"'));
  throw new Error(`no checkpoint came to cover ${size} entries:\n${said.slice(-20).join('\n')}`);
}

describe('a fleet under senders that do not stop', () => {
  let fleet: Fleet;

  beforeAll(async () => {
    fleet = await startFleet();
  });
  afterAll(async () => {
    await fleet?.close();
  });

  const during = async (name: string, trouble: () => Promise<void>): Promise<Senders> => {
    const tenant = await Tenant.create(fleet, name);
    const senders = new Senders(tenant, 4);
    await sleep(300);
    try {
      await trouble();
      await sleep(500);
    } finally {
      await senders.finish();
    }
    await expectNothingLost(senders);
    await expectPublished(tenant);
    return senders;
  };

  it('loses nothing when Redis is emptied, again and again', async () => {
    const senders = await during('flushed', async () => {
      for (let i = 0; i < 10; i++) {
        await fleet.flushRedis();
        await sleep(100);
      }
    });
    expect(senders.retries).toBe(0);
  });

  it('loses nothing when NATS is killed and comes back', async () => {
    const senders = await during('cut-off', async () => {
      for (const pause of [0, 500]) {
        await fleet.restartNats(pause);
        await sleep(300);
      }
    });
    expect(senders.retries).toBeGreaterThan(0);
  });

  it('loses nothing when the collector is killed and comes back', async () => {
    await during('decapitated', async () => {
      await fleet.stop('collector', 'SIGKILL');
      await sleep(200);
      await fleet.start('collector');
    });
  });

  it('loses nothing when the collector is asked to go and another takes over', async () => {
    await during('relieved', async () => {
      await fleet.stop('collector');
      await fleet.start('collector');
    });
  });

  it('loses nothing when the worker is killed, and another one publishes', async () => {
    await during('unpublished', async () => {
      await fleet.stop('worker', 'SIGKILL');
      await fleet.start('worker');
    });
  });

  it('loses nothing when the gateway is killed', async () => {
    await during('deaf', async () => {
      await fleet.stop('gateway', 'SIGKILL');
      await fleet.start('gateway');
    });
  });

  it('goes on with one of two collectors when the other is killed', async () => {
    await fleet.start('collector');
    await during('halved', async () => {
      await sleep(500);
      await fleet.stop('collector', 'SIGKILL');
    });
  });

  it('shares the work between two workers', async () => {
    await fleet.start('worker');
    await during('shared', async () => sleep(1000));
  });
});

describe('a service in one process', () => {
  it('answers what it has taken on before it goes, and knows all of it afterwards', async () => {
    const service = await startServe();
    try {
      const tenant = await Tenant.create(service, 'leaving');
      const requests = Array.from({ length: 60 }, (_, i) => tenant.sink(`s-${i}`).lines(100));
      const answers = requests.map(async (lines) => {
        try {
          const answer = await tenant.post(lines.join('\n'));
          return answer.status === 200
            ? { lines, ack: answer.body as Ack }
            : { lines, status: answer.status };
        } catch (error) {
          if (isNetworkError(error)) return { lines };
          throw error;
        }
      });
      // Some are answered, most are somewhere in between.
      await Promise.race(answers);
      await service.restart();
      const settled = await Promise.all(answers);
      const acked = settled.flatMap(({ lines, ack }) => (ack ? [{ lines, ack }] : []));
      expect(acked.length).toBeGreaterThan(0);
      // Whoever was not taken on was told so, or found nobody; nobody was left without an answer half way.
      for (const { status } of settled) expect([undefined, 503]).toContain(status);
      for (const { lines, ack } of acked) {
        const again = (await tenant.post(lines.join('\n')).expect(200)).body as Ack;
        expect(again.runs.map((run) => [run.disposition, run.index])).toEqual(
          ack.runs.map((run) => ['duplicate', run.index]),
        );
      }
    } finally {
      await service.close();
    }
  });
});
