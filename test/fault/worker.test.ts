import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startEmbedded } from '@belay/db';
import { verifyExport } from '@belay/export';
import { afterEach, describe, expect, it } from 'vitest';
import { freePort, Machine } from '../e2e/belay-process.js';
import { checkAccounts } from '../harness/account-check.js';
import { startFleet } from '../harness/fleet.js';
import { makeScratch } from '../harness/scratch.js';
import type { Service } from '../harness/service.js';
import { StatingSink } from '../harness/stating-sink.js';
import { Tenant } from '../harness/tenant.js';

/** 20 in `npm run soak`. */
const KILLS = Number(process.env['BELAY_KILLS'] ?? 2);
const SESSIONS_BETWEEN = 4;
/** Between two sessions. */
const PAUSE_MS = 100;

const cleanUp: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});

/** Sessions one after the other, every fifth of which loses a line that comes later. */
class Talk {
  readonly names: string[] = [];
  readonly #sink: StatingSink;
  #stopping = false;
  #running: Promise<void> | undefined;

  constructor(sink: StatingSink) {
    this.#sink = sink;
  }

  start(): void {
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const session = `run-${this.names.length}`;
      if (this.names.length % 10 === 0) this.#sink.open();
      const call = `hmac-sha256:${this.names.length.toString(16).padStart(64, '0')}`;
      this.#sink
        .say('session.open', { session })
        .say('call', { session, call, match: call, attrs: { tool: 'a' } })
        .say('result', { session, call, match: call }, this.names.length % 5 === 4)
        .stated('session.close', { session });
      await this.#patiently(() => this.#sink.send());
      if (this.names.length % 5 === 0) await this.#patiently(() => this.#sink.sendLost());
      this.names.push(session);
      await sleep(PAUSE_MS);
    }
    await this.#patiently(() => this.#sink.sendLost());
  }

  /** A sink sends again what was not answered; what came twice is a duplicate. */
  async #patiently(work: () => Promise<void>): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        return await work();
      } catch (error) {
        if (tries > 200) throw error;
        await sleep(50);
      }
    }
  }
}

async function allSettled(tenant: Tenant, names: readonly string[]): Promise<void> {
  for (const name of names) {
    let last: unknown;
    for (let tries = 0; ; tries++) {
      const answer = await tenant.asAuditor('get', tenant.path(`/sessions/${name}?wait=5`));
      last = answer.body;
      const { settled, disposition } = answer.body as { settled?: boolean; disposition?: string };
      if (answer.status === 200 && settled === true && disposition === 'unverified') break;
      expect(tries, JSON.stringify(last)).toBeLessThan(20);
    }
  }
}

async function exported(tenant: Tenant, dir: string): Promise<void> {
  const { body } = await tenant.asAuditor('post', tenant.path('/exports')).send({}).expect(202);
  const { id } = body as { id: string };
  await expect
    .poll(
      async () =>
        ((await tenant.asAuditor('get', tenant.path(`/exports/${id}`))).body as { state: string }).state,
      { timeout: 60_000, interval: 100 },
    )
    .toBe('done');
  const answer = await tenant
    .asAuditor('get', tenant.path(`/exports/${id}/file`))
    .buffer(true)
    .parse((response, done) => {
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('end', () => done(null, Buffer.concat(parts)));
    })
    .expect(200);
  const path = join(dir, 'export.zip');
  writeFileSync(path, answer.body as Buffer);
  const { report } = await verifyExport(path, { key: tenant.project.vkey });
  expect(report.checks.filter(({ status }) => status !== 'ok')).toEqual([]);
  expect(report.verdict).toBe('VALID');
}

describe('kill -9 while sessions are judged', () => {
  it(
    `two workers of a fleet, one after the other, ${KILLS} times, and Redis flushed: every session has its receipt`,
    async () => {
      const fleet = await startFleet();
      cleanUp.push(() => fleet.close());
      await fleet.start('worker');
      const scratch = makeScratch('worker-kill');
      cleanUp.push(() => scratch.remove());
      const tenant = await Tenant.create(fleet, 'kill');
      const heard = new Map<string, { session: string; times: number }>();
      const receiver = createServer((request, response) => {
        let body = '';
        request.on('data', (part) => (body += part));
        request.on('end', () => {
          const id = String(request.headers['webhook-id']);
          const { data } = JSON.parse(body) as { data: { session: string } };
          heard.set(id, { session: data.session, times: (heard.get(id)?.times ?? 0) + 1 });
          response.end();
        });
      }).listen(0, '127.0.0.1');
      await once(receiver, 'listening');
      cleanUp.push(() => void receiver.close());
      await tenant
        .asAdmin('post', tenant.path('/webhooks'))
        .send({
          url: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`,
          events: ['session.settled'],
        })
        .expect(201);

      const talk = new Talk(await StatingSink.declare(tenant, 'proxy'));
      talk.start();
      for (let kill = 0; kill < KILLS; kill++) {
        const before = talk.names.length;
        while (talk.names.length < before + SESSIONS_BETWEEN) await sleep(10);
        await sleep(Math.random() * 200);
        await fleet.stop('worker', 'SIGKILL');
        if (kill % 2 === 1) await fleet.flushRedis();
        await fleet.start('worker');
      }
      await talk.stop();
      await allSettled(tenant, talk.names);
      await exported(tenant, scratch.dir);
      await expect
        .poll(() => new Set([...heard.values()].map(({ session }) => session)).size, { timeout: 90_000 })
        .toBe(talk.names.length);
      await expect.poll(() => checkAccounts(fleet.database), { timeout: 20_000 }).toEqual([]);
    },
    120_000 + KILLS * 30_000,
  );

  it(
    `the whole service with its thread, ${KILLS} times: every session has its receipt`,
    async () => {
      const machine = new Machine();
      cleanUp.push(() => machine.close());
      const port = await freePort();
      let running = await machine.serve(port);
      const operatorKey = /belay_operator_[\w-]+/.exec(running.output())?.[0] ?? '';
      const service: Service = {
        url: running.url,
        operatorKey,
        logs: () => '',
        close: async () => undefined,
      };
      const tenant = await Tenant.create(service, 'kill');
      const talk = new Talk(await StatingSink.declare(tenant, 'proxy'));
      talk.start();
      for (let kill = 0; kill < KILLS; kill++) {
        const before = talk.names.length;
        while (talk.names.length < before + SESSIONS_BETWEEN) await sleep(10);
        await sleep(Math.random() * 200);
        running.process.kill('SIGKILL');
        running = await machine.serve(port);
      }
      await talk.stop();
      await allSettled(tenant, talk.names);
      await exported(tenant, machine.root);
      await machine.stop(running.process);
      const postgres = await startEmbedded(machine.data);
      cleanUp.push(() => postgres.stop());
      expect(await checkAccounts(postgres.connection)).toEqual([]);
    },
    120_000 + KILLS * 30_000,
  );
});
