import 'reflect-metadata';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NestFactory } from '@nestjs/core';
import { connect, type NatsConnection } from '@nats-io/transport-node';
import type { ExportReply, IssueReply, RecordReply } from '@belay/contracts';
import { decodeOutcome, encodePayload, encodeRecord, MAX_FRAME_BYTES, SUBJECTS } from '@belay/contracts/rpc';
import { type SessionStatement, formatStatement } from '@belay/coverage';
import { PROJECT } from '@belay/testkit';
import pino from 'pino';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { CollectorModule } from '../src/module.js';
import { FrameServer } from '../src/nats-server.js';
import { Account, statedOf, value } from './account.js';

let account: Account;
let client: NatsConnection;
const undo: (() => unknown)[] = [];

beforeAll(async () => {
  const dir = mkdtempSync(join(tmpdir(), 'belay-carrier-'));
  undo.push(() => rmSync(dir, { recursive: true, force: true }));
  const port = await freePort();
  writeFileSync(join(dir, 'nats.conf'), `listen: "127.0.0.1:${port}"\nmax_payload: 8MB\n`);
  const nats = spawn('nats-server', ['-c', join(dir, 'nats.conf')], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(nats, 'close');
  undo.push(async () => {
    nats.kill();
    await ended;
  });
  await new Promise<void>((resolve) => {
    nats.stderr.on('data', (chunk: Buffer) => {
      if (chunk.includes('Server is ready')) resolve();
    });
  });
  const servers = [`nats://127.0.0.1:${port}`];
  account = await Account.open();
  undo.push(() => account.close());
  const server = new FrameServer({ servers });
  const app = await NestFactory.createMicroservice(
    CollectorModule.of({
      collector: account.service,
      log: pino({ level: 'silent' }),
      inFlight: (work) => server.during(work),
    }),
    { strategy: server, logger: false },
  );
  undo.push(() => app.close());
  await app.listen();
  client = await connect({ servers });
  undo.push(() => client.close());
});

afterAll(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function ask(subject: string, frame: Buffer): Promise<Buffer> {
  const { data } = await client.request(subject, frame, { timeout: 20_000 });
  return Buffer.from(data);
}

it('carries statements, among them one longer than a message, receipts and manifests', async () => {
  await account.happen(6);
  const facts = await account.facts();
  const hex = (at: number) => createHash('sha256').update(String(at)).digest('hex');
  const large: SessionStatement = {
    ...facts.statement,
    calls: Array.from({ length: 28_000 }, (_, at) => ({
      arguments: 'same',
      calls: [`hmac-sha256:${hex(at)}`],
      identical: 1,
      outcome: 'same',
      seen: [
        { sink: 'hook', calls: [4 * at], results: [4 * at + 2] },
        { sink: 'proxy', calls: [4 * at + 1], results: [4 * at + 3] },
      ],
      weak: false,
    })),
  };
  const bytes = formatStatement(large);
  expect(bytes.length).toBeGreaterThan(MAX_FRAME_BYTES);
  const statement = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const statements = [
    { body: statedOf(facts), bytes: facts.statementBytes },
    { body: { ...statedOf(facts), statement }, bytes },
  ];
  const frame = await encodeRecord({ project: PROJECT, statements });
  const recorded = value(decodeOutcome<RecordReply>(await ask(SUBJECTS.record, frame)));
  expect(recorded.indexes).toHaveLength(2);
  const stored = await account.store.statement(account.log, Buffer.from(statement.slice(7), 'hex'));
  expect(stored?.bytes.equals(bytes)).toBe(true);

  const { payload } = await account.draft();
  const issue = encodePayload({ project: PROJECT, payload });
  const issued = value(decodeOutcome<IssueReply>(await ask(SUBJECTS.issue, issue)));
  expect(issued.index).toBeGreaterThan(0);
  expect(value(decodeOutcome<IssueReply>(await ask(SUBJECTS.issue, issue)))).toEqual(issued);
  // What says that nothing came before it is stale now.
  const orphan = encodePayload({ project: PROJECT, payload: (await account.draft()).payload });
  expect(decodeOutcome(await ask(SUBJECTS.issue, orphan))).toMatchObject({
    ok: false,
    fault: { kind: 'refused', code: 'stale', field: 'supersedes' },
  });
  const wrong = decodeOutcome<ExportReply>(await ask(SUBJECTS.signExport, issue));
  expect(wrong).toMatchObject({ ok: false, fault: { code: 'invalid' } });
});

it.each(['record', 'issue', 'signExport'] as const)('answers what is no frame of %s', async (verb) => {
  for (const frame of [Buffer.alloc(0), Buffer.from('{}'), Buffer.alloc(64, 0xff)]) {
    const outcome = decodeOutcome(await ask(SUBJECTS[verb], frame));
    expect(outcome).toMatchObject({ ok: false, fault: { kind: 'refused', code: 'invalid' } });
  }
});

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
