import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { append, ClientError, Transport } from '@belay/client';
import { SmallCollector } from '@belay/testkit';
import { expect, test } from 'vitest';
import { fill, freshState, openEpoch } from './setup.js';

test('an ack that says of lines that they came late holds, and only if the leaves say so too', async () => {
  const collector = new SmallCollector();
  const transport = new Transport(await collector.listen());
  const epoch = await openEpoch(freshState(), collector);
  try {
    fill(epoch, 6);
    const lines = readFileSync(join(epoch.dir, 'lines'))
      .toString()
      .split('\n')
      .slice(0, -1)
      .map((line) => Buffer.from(line));
    const target = { transport, token: collector.token, credential: collector.credential };
    const send = (batch: Buffer[]) =>
      append(target, {
        sink: 'proxy',
        epoch: epoch.id,
        firstSeq: 1,
        key: undefined,
        lines: batch,
        head: undefined,
      });
    await send(lines.slice(0, 2));
    collector.late = true;
    const { runs } = await send(lines.slice(0, 4));
    expect(runs).toMatchObject([
      { disposition: 'duplicate', lines: [0, 2] },
      { disposition: 'appended', lines: [2, 4], late: true },
    ]);
    expect(runs[0]?.late).toBeUndefined();
    for (const late of [undefined, false]) {
      collector.change = (ack) => ({
        ...ack,
        runs: ack.runs.map((run) => ({ ...run, late: late as unknown as true })),
      });
      await expect(send(lines.slice(2, 6))).rejects.toBeInstanceOf(ClientError);
    }
  } finally {
    transport.close();
    epoch.release();
    await collector.close();
  }
});
