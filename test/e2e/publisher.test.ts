import type { CheckpointReply, CollectorApi } from '@belay/contracts';
import { Keyring } from '@belay/collector';
import type { LogRow } from '@belay/db';
import { createGateway, GATEWAY_DEFAULTS } from '@belay/gateway';
import { formatCheckpoint, signNote } from '@belay/note';
import { Publisher } from '@belay/worker';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openParts, type Parts, source } from '../harness/parts.js';
import { Tenant } from '../harness/tenant.js';

let parts: Parts;
let close: () => Promise<void>;
let tenant: Tenant;
let log: LogRow;

beforeAll(async () => {
  parts = await openParts();
  const gateway = await createGateway({
    config: { ...GATEWAY_DEFAULTS, port: 0 },
    collector: parts.collector.service,
    reader: parts.reader,
    log: parts.log,
    source,
  });
  const url = await gateway.listen();
  close = () => gateway.close();
  tenant = await Tenant.create({ url, operatorKey: parts.operatorKey, logs: parts.logs, close }, 'acme');
  log = (await parts.reader.logById(tenant.project.log)) as LogRow;
});
afterAll(async () => {
  await close?.();
  await parts?.close();
});

const publisher = (checkpoint: CollectorApi['checkpoint'] = (id) => parts.collector.service.checkpoint(id)) =>
  new Publisher({ reader: parts.workerReader, collector: { checkpoint }, now: Date.now, log: parts.log });

async function genuine(): Promise<CheckpointReply> {
  const outcome = await parts.collector.service.checkpoint(log.id);
  if (!outcome.ok) throw new Error(outcome.fault.message);
  return outcome.value;
}

/** What a collector would sign that shows another history: with the log's own key, as only a thief of it could. */
async function forged(size: number, root: Buffer): Promise<CheckpointReply> {
  const keys = await Keyring.open(parts.keysDir, { now: new Date() });
  const { checkpoint } = keys.signers(log.origin, log.publicKey);
  const text = formatCheckpoint({ origin: log.origin, size: BigInt(size), root });
  return { size, root: root.toString('base64'), note: signNote(text, [checkpoint]).toString() };
}

const offering = (reply: CheckpointReply) => publisher(async () => ({ ok: true, value: reply }));

describe('publishing', () => {
  it('refuses a first checkpoint that the tiles do not lead to', async () => {
    const { size } = await genuine();
    expect(await offering(await forged(size, Buffer.alloc(32, 1))).publish(log)).toBe('refused');
    expect(await parts.reader.latestCheckpoint(log)).toBeUndefined();
  });

  it('stores what is due once, however many try', async () => {
    expect(await publisher().due()).toEqual([{ log: log.id, size: (await genuine()).size }]);
    const answers = await Promise.all([1, 2, 3, 4].map(() => publisher().publish(log)));
    expect(answers.sort()).toEqual(['current', 'current', 'current', 'published']);
    expect(await publisher().due()).toEqual([]);
    const checkpoint = await parts.reader.latestCheckpoint(log);
    expect(checkpoint?.note).toBe((await genuine()).note);
  });

  it('refuses what does not continue the last checkpoint, whoever signed it', async () => {
    const before = await parts.reader.latestCheckpoint(log);
    await tenant.append(tenant.sink('s').lines(3));
    const { size, note, root } = await genuine();
    const lies: CheckpointReply[] = [
      await forged(size, Buffer.alloc(32, 1)),
      await forged(before?.size ?? 0, Buffer.alloc(32, 1)),
      { size: size + 1, root, note },
      { size, root, note: note.replace(/.{3}=\n$/, 'AAA=\n') },
      { size, root, note: 'no note' },
    ];
    for (const lie of lies) expect(await offering(lie).publish(log)).toBe('refused');
    expect(await parts.reader.latestCheckpoint(log)).toEqual(before);
    expect(parts.logs()).toContain('checkpoint refused');
    await publisher().sweep();
    expect((await parts.reader.latestCheckpoint(log))?.size).toBe(size);
  });

  it('leaves for later what the collector can not sign now', async () => {
    const busy = publisher(async () => ({
      ok: false,
      fault: { kind: 'retry', code: 'unavailable', message: 'away', retryAfter: 1 },
    }));
    await tenant.append(tenant.sink('t').lines(1));
    expect(await busy.publish(log)).toBe('later');
    expect(await busy.publishById('log_01jd0000000000000000000000')).toBe('current');
    expect(await publisher().publish(log)).toBe('published');
  });
});
