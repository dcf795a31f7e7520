import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { freePort, Machine } from '../e2e/belay-process.js';
import { type Fleet, startFleet } from '../harness/fleet.js';
import { Tenant } from '../harness/tenant.js';
import { type Acknowledged, Load } from './load.js';

/** 20 in `npm run soak`. */
const KILLS = Number(process.env['BELAY_KILLS'] ?? 4);

const cleanUp: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});

/** Batches that were acknowledged keep their indexes for ever, and nobody else has them. */
async function expectKept(load: Load, sample: readonly Acknowledged[]): Promise<void> {
  expect(load.accusations).toEqual([]);
  const owner = new Map<number, string>();
  for (const one of load.acknowledged) {
    one.indexes.forEach((index, at) => {
      const line = `${one.epoch}/${one.firstSeq + at}`;
      expect(owner.get(index) ?? line, `index ${index}`).toBe(line);
      owner.set(index, line);
    });
  }
  for (const one of sample) {
    const { dispositions, indexes } = await load.again(one);
    expect(new Set(dispositions)).toEqual(new Set(['duplicate']));
    expect(indexes).toEqual(one.indexes);
  }
}

const sampleOf = (all: readonly Acknowledged[], count: number): Acknowledged[] =>
  Array.from(
    { length: Math.min(count, all.length) },
    (_, at) => all[Math.floor((at * all.length) / count)] as Acknowledged,
  );

describe('kill -9 under load', () => {
  it(
    `one process, ${KILLS} times on the same data, half of them with its PostgreSQL: nothing acknowledged is lost`,
    async () => {
      const machine = new Machine();
      cleanUp.push(() => machine.close());
      const port = await freePort();
      let running = await machine.serve(port);
      const operatorKey = /belay_operator_[\w-]+/.exec(running.output())?.[0] ?? '';
      const tenant = await Tenant.create(
        { url: running.url, operatorKey, logs: () => '', close: async () => undefined },
        'kill',
      );
      const load = new Load(running.url, tenant.project.token.credential, { senders: 4, batch: 50 });
      for (let kill = 0; kill < KILLS; kill++) {
        const before = load.lines;
        while (load.lines < before + 1_000) await sleep(10);
        await sleep(Math.random() * 100);
        const withDatabase = kill % 2 === 1;
        const postmaster = Number(
          readFileSync(join(machine.data, 'pg', 'data', 'postmaster.pid'), 'utf8').split('\n')[0],
        );
        running.process.kill('SIGKILL');
        // A postmaster leads a process group of its own: its backends go with it.
        if (withDatabase) process.kill(-postmaster, 'SIGKILL');
        running = await machine.serve(port);
        await expectKept(load, sampleOf(load.acknowledged, 10));
      }
      const before = load.lines;
      while (load.lines < before + 500) await sleep(10);
      await load.stop();
      await expectKept(load, sampleOf(load.acknowledged, 40));
      expect(load.retries).toBeGreaterThan(0);
      await machine.stop(running.process);
      const checked = await machine.json<{ logs: { size: number; findings: unknown[] }[] }>([
        'log',
        'fsck',
        '--data',
        machine.data,
      ]);
      expect(checked.logs.flatMap((log) => log.findings)).toEqual([]);
      // Nothing but the genesis entries and the lines: none twice, and no hole.
      const last = Math.max(...load.acknowledged.flatMap((one) => one.indexes));
      expect(checked.logs[0]?.size).toBe(last + 1);
      console.log(
        `${KILLS} kills: ${load.lines} lines acknowledged, ${load.retries} attempts failed, ${load.duplicates} batches came back as duplicates`,
      );
    },
    60_000 + KILLS * 30_000,
  );

  it(
    'three processes: collector, gateway and worker killed, Redis flushed, NATS restarted: the same holds',
    async () => {
      const fleet: Fleet = await startFleet();
      cleanUp.push(() => fleet.close());
      const tenant = await Tenant.create(fleet, 'kill');
      const load = new Load(fleet.url, tenant.project.token.credential, { senders: 4, batch: 50 });
      const blows: (() => Promise<void>)[] = [
        async () => {
          await fleet.stop('collector', 'SIGKILL');
          await fleet.start('collector');
        },
        () => fleet.flushRedis(),
        async () => {
          await fleet.stop('gateway', 'SIGKILL');
          await fleet.start('gateway');
        },
        () => fleet.restartNats(100),
        async () => {
          await fleet.stop('worker', 'SIGKILL');
          await fleet.start('worker');
        },
      ];
      for (let blow = 0; blow < Math.max(blows.length, KILLS); blow++) {
        const before = load.lines;
        while (load.lines < before + 500) await sleep(10);
        await sleep(Math.random() * 100);
        await (blows[blow % blows.length] as () => Promise<void>)();
        await expectKept(load, sampleOf(load.acknowledged, 5));
      }
      const before = load.lines;
      while (load.lines < before + 500) await sleep(10);
      await load.stop();
      await expectKept(load, sampleOf(load.acknowledged, 40));
      const size = Math.max(...load.acknowledged.flatMap((one) => one.indexes)) + 1;
      // The worker publishes again although its schedule was flushed and it was killed.
      for (let tries = 0; ; tries++) {
        const note = (await tenant.asAuditor('get', `/v1/logs/${tenant.project.log}/checkpoint`)).text;
        if (Number(note.split('\n')[1]) >= size) break;
        expect(tries, 'a checkpoint covers everything within 10 s').toBeLessThan(100);
        await sleep(100);
      }
    },
    60_000 + KILLS * 30_000,
  );
});
