import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import {
  type Epoch,
  epochStatus,
  logDir,
  pendingSpools,
  PublishedStore,
  readEpochRecord,
  readEvidence,
  SPOOL_LIMITS,
  startOver,
} from '@belay/client';
import { SmallCollector } from '@belay/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { fill, forwarder, freshState, openEpoch } from './setup.js';

let collector: SmallCollector;
let url: string;
let state: string;
beforeEach(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  state = freshState();
});
afterEach(() => collector.close());

/** An epoch of `lines` and what opens and closes it, written, sent and settled. */
async function sent(lines = 3): Promise<Epoch> {
  const epoch = await openEpoch(state, collector);
  fill(epoch, lines);
  const { forwarder: f } = forwarder(state, url, collector);
  expect(await f.follow(epoch.dir, () => true)).toBe(true);
  epoch.release();
  return epoch;
}
const keptText = (epoch: Epoch): string => gunzipSync(readFileSync(join(epoch.dir, 'lines.gz'))).toString();
const tend = (limits = SPOOL_LIMITS) => forwarder(state, url, collector, { limits }).forwarder.tendKept();

describe('settled lines', () => {
  test('are kept, compacted, until a published checkpoint covers them, and as long as there is room after that', async () => {
    const first = await sent(50);
    collector.publish();
    const second = await sent(5);
    expect(
      keptText(first)
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line).seq),
    ).toEqual(Array.from({ length: 52 }, (_, at) => at + 1));
    expect(readFileSync(join(first.dir, 'lines.gz')).length).toBeLessThan(keptText(first).length / 3);
    expect(await tend()).toMatchObject({ published: { size: 53 }, kept: { epochs: 2, uncovered: 1 } });
    expect(readEpochRecord(first.dir)).toMatchObject({ settled: true, published: 53 });
    expect(readEpochRecord(second.dir)?.published).toBeUndefined();
    expect(epochStatus(first.dir)).toMatchObject({ state: 'settled', acked: 52, published: 53 });

    // Room for one of them: what is covered goes first, and its record says so.
    const room = statSync(join(second.dir, 'lines.gz')).size + statSync(join(second.dir, 'proofs')).size;
    expect(await tend({ ...SPOOL_LIMITS, bytes: room })).toMatchObject({
      kept: { epochs: 1, uncovered: 1, bytes: room },
    });
    expect(epochStatus(first.dir)).toMatchObject({
      keptBytes: 0,
      forgotten: { reason: 'size', published: true },
    });
    expect(existsSync(join(second.dir, 'lines.gz'))).toBe(true);

    // No room at all: the log has the lines, so there is no gap, and it is told that they can't be sent again.
    await tend({ ...SPOOL_LIMITS, bytes: 0 });
    expect(epochStatus(second.dir)).toMatchObject({
      dropped: 0,
      forgotten: { reason: 'size', published: false },
    });
  });

  test('that wait for a checkpoint for too long are given up; covered ones do not grow old', async () => {
    const first = await sent();
    collector.publish();
    await tend();
    const second = await sent();
    const old = new Date(Date.now() - 2 * SPOOL_LIMITS.age);
    for (const { dir } of [first, second]) utimesSync(join(dir, 'lines.gz'), old, old);
    expect(await tend()).toMatchObject({ kept: { epochs: 1, uncovered: 0 } });
    expect(epochStatus(second.dir)?.forgotten).toMatchObject({ reason: 'age', published: false });
    expect(existsSync(join(first.dir, 'lines.gz'))).toBe(true);
  });

  test('of a run that was given up half way are kept, and the gap line goes on from them', async () => {
    const epoch = await openEpoch(state, collector);
    fill(epoch, 700);
    const { forwarder: f } = forwarder(state, url, collector);
    collector.faults = [() => 'go on', (_, response) => (response.destroy(), f.stop(), 'answered')];
    expect(await f.follow(epoch.dir, () => true)).toBe(false);
    epoch.release();
    // The next one finds the rest too old (and goes over what is kept another time).
    await tend();
    const { forwarder: next } = forwarder(state, url, collector, { limits: { ...SPOOL_LIMITS, age: -1 } });
    expect(await next.adoptOrphans()).toEqual({ settled: 1, left: 0 });
    const evidence = await readEvidence(epoch.dir, readEpochRecord(epoch.dir) as never, collector.vkey);
    expect([evidence.lines.size, evidence.attested.size, evidence.flaws]).toEqual([501, 501, []]);
    expect(evidence.lines.get(703)?.gap).toEqual({ first: 501, last: 702, reason: 'overflow' });
  });

  test('that the disk has no room for are given up, and the epoch is settled all the same', async () => {
    const epoch = await openEpoch(state, collector);
    fill(epoch, 3);
    // A folder in the way of the file that is written first: any refusal of the disk.
    mkdirSync(join(epoch.dir, 'lines.gz.new'));
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.follow(epoch.dir, () => true)).toBe(true);
    epoch.release();
    expect(pendingSpools(state, collector.origin)).toEqual([]);
    const status = epochStatus(epoch.dir);
    expect(status).toMatchObject({ state: 'settled', acked: 5, dropped: 0 });
    expect(status?.forgotten).toMatchObject({ reason: 'disk', published: false });
  });

  test('are compacted again when a crash came before the spool was removed', async () => {
    const epoch = await sent();
    writeFileSync(join(epoch.dir, 'lines'), keptText(epoch));
    expect(await forwarder(state, url, collector).forwarder.adoptOrphans()).toMatchObject({ left: 0 });
    expect(existsSync(join(epoch.dir, 'lines'))).toBe(false);
    const { lines, attested } = await readEvidence(
      epoch.dir,
      readEpochRecord(epoch.dir) as never,
      collector.vkey,
    );
    expect([lines.size, attested.size]).toEqual([5, 5]);
  });
});

describe('a published checkpoint', () => {
  test('is asked for once in a while by whoever adopts, and remembered', async () => {
    await sent();
    collector.publish();
    await forwarder(state, url, collector).forwarder.adoptOrphans();
    const store = new PublishedStore(state, collector.origin);
    expect(store.read()).toMatchObject({ size: 6, note: collector.published });
    await sent();
    collector.publish();
    await forwarder(state, url, collector).forwarder.adoptOrphans();
    expect(store.read()?.size).toBe(6);
    await tend();
    expect(store.read()?.size).toBe(11);
    // An older one that is still served somewhere takes nothing back.
    collector.publish(6);
    expect(await tend()).toMatchObject({ published: { size: 11 }, kept: { uncovered: 0 } });
  });

  test('none yet, or nobody there: nothing is covered and nothing is given up', async () => {
    await sent();
    expect(await tend()).toMatchObject({ published: undefined, kept: { epochs: 1, uncovered: 1 } });
    collector.publish();
    await collector.close();
    expect(await tend()).toMatchObject({ published: undefined, kept: { epochs: 1, uncovered: 1 } });
  });

  test.each([
    ['of another tree of the same size', 6],
    ['of a tree that ours did not grow from', 4],
    ['of a tree that did not grow from ours', 9],
  ])('%s accuses the log, with both heads', async (_, size) => {
    await sent();
    const other = new SmallCollector();
    const at = await other.listen();
    const elsewhere = freshState();
    const epoch = await openEpoch(elsewhere, other);
    fill(epoch, 10);
    await forwarder(elsewhere, at, other).forwarder.follow(epoch.dir, () => true);
    epoch.release();
    other.publish(size);
    await other.close();
    if (size === 9) await sent();
    collector.published = other.published;
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.tendKept()).toBeUndefined();
    expect(f.stopped?.action).toBe('accuse');
    const [file] = readdirSync(join(logDir(state, collector.origin), 'accusations'));
    const { evidence } = JSON.parse(
      readFileSync(join(logDir(state, collector.origin), 'accusations', file as string), 'utf8'),
    );
    expect([evidence.held.signature, evidence.shown.signature]).toContain(other.published);
  });

  test('that is not signed by the pinned key is refused', async () => {
    await sent();
    const other = new SmallCollector(Buffer.alloc(32, 0x77));
    other.publish();
    collector.published = other.published;
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.tendKept()).toBeUndefined();
    expect(f.stopped).toMatchObject({ action: 'give_up', code: 'bad_signature' });
  });
});

describe('a log that has started over', () => {
  test('gets everything again that is kept; the head that it broke is put aside as evidence', async () => {
    const first = await sent(50);
    const second = await sent(5);
    collector.reset();
    const third = await openEpoch(state, collector);
    fill(third, 2);
    const { forwarder: accuser } = forwarder(state, url, collector);
    expect(await accuser.follow(third.dir, () => true)).toBe(false);
    expect(accuser.stopped?.code).toBe('rolled_back');
    // While a process holds a spool it is left alone, and told.
    expect(await startOver(state, collector.origin, new Date())).toMatchObject({ spools: 2, busy: 1 });
    third.release();
    const { evidence } = await startOver(state, collector.origin, new Date());
    expect(evidence).toBeUndefined();
    const [put] = readdirSync(join(logDir(state, collector.origin), 'superseded'));
    expect(readdirSync(join(logDir(state, collector.origin), 'superseded', put as string))).toEqual([
      'head.json',
    ]);
    expect(epochStatus(first.dir)).toMatchObject({ state: 'waiting', pending: 52, acked: 0 });

    const { forwarder: again, events } = forwarder(state, url, collector);
    expect(await again.adoptOrphans()).toEqual({ settled: 3, left: 0 });
    expect(events.every((event) => event.type === 'settled' && event.duplicates === 0)).toBe(true);
    expect(collector.envelopes().map(({ seq }) => seq)).toHaveLength(52 + 7 + 4);
    expect(pendingSpools(state, collector.origin)).toEqual([]);
    expect(epochStatus(second.dir)).toMatchObject({ state: 'settled', acked: 7, pending: 0 });
    const { attested, flaws } = await readEvidence(
      first.dir,
      readEpochRecord(first.dir) as never,
      collector.vkey,
    );
    expect([attested.size, flaws]).toEqual([52, []]);
  });

  test('and has not: nothing is there twice', async () => {
    await sent(5);
    const before = collector.entries.length;
    await startOver(state, collector.origin, new Date());
    const { forwarder: again, events } = forwarder(state, url, collector);
    expect(await again.adoptOrphans()).toEqual({ settled: 1, left: 0 });
    expect(events).toMatchObject([{ type: 'settled', lines: 7, duplicates: 7 }]);
    expect(collector.entries).toHaveLength(before);
  });
});

describe('evidence', () => {
  const evidenceOf = (epoch: Epoch) =>
    readEvidence(epoch.dir, readEpochRecord(epoch.dir) as never, collector.vkey);

  test('of an epoch that is being sent: what is acknowledged so far, and what waits', async () => {
    const epoch = await openEpoch(state, collector);
    for (let i = 0; i < 4; i++) epoch.append({ kind: 'x.event', content: Buffer.from(`${i}`) });
    const { forwarder: f } = forwarder(state, url, collector);
    f.hurry();
    const followed = f.follow(epoch.dir, () => false);
    await expect.poll(() => collector.envelopes().length).toBe(5);
    await expect.poll(async () => (await evidenceOf(epoch)).attested.size).toBe(5);
    epoch.append({ kind: 'x.event', content: Buffer.from('later') });
    const evidence = await evidenceOf(epoch);
    expect([evidence.lines.size, evidence.attested.size, evidence.flaws]).toEqual([6, 5, []]);
    expect(evidence.attested.get(3)).toMatchObject({ index: 3, conflict: false });
    f.stop();
    await followed;
    epoch.release();
  });

  test('numbers that are missing from the spool do not shift what is proved of the others', async () => {
    const epoch = await openEpoch(state, collector, { limits: { ...SPOOL_LIMITS, bytes: 1_500 } });
    for (let i = 0; i < 10; i++) epoch.append({ kind: 'x.event', content: Buffer.from(`${i}`) });
    epoch.close();
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.follow(epoch.dir, () => true)).toBe(true);
    epoch.release();
    const { lines, attested, noted, flaws } = await evidenceOf(epoch);
    const gap = [...lines.values()].find((line) => line.gap !== undefined);
    expect(gap?.gap?.reason).toBe('overflow');
    expect(flaws).toEqual([]);
    expect([...attested.keys()]).toEqual([...lines.keys()]);
    expect([...noted]).toEqual([...lines.keys()]);
    expect(attested.has(gap?.gap?.first as number)).toBe(false);
  });

  test('a line that was changed on the disk, a proof or a head that was: their lines are not attested, others are', async () => {
    const epoch = await openEpoch(state, collector);
    fill(epoch, 700);
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.follow(epoch.dir, () => true)).toBe(true);
    epoch.release();
    const archive = join(epoch.dir, 'lines.gz');
    const proofs = join(epoch.dir, 'proofs');
    const [lines, text] = [readFileSync(archive), readFileSync(proofs, 'utf8')];
    const edit = (from: string | RegExp, to: string) => writeFileSync(proofs, text.replace(from, to));

    writeFileSync(archive, gzipSync(keptText(epoch).replace('"bytes":8', '"bytes":9')));
    expect((await evidenceOf(epoch)).flaws).toMatchObject([{ code: 'proof_invalid', first: 1, count: 500 }]);
    expect((await evidenceOf(epoch)).attested.size).toBe(202);
    writeFileSync(archive, lines);

    edit('"size":501', '"size":500');
    expect((await evidenceOf(epoch)).flaws).toMatchObject([{ code: 'bad_signature', first: 1, count: 500 }]);
    edit('"index":1,', '"index":2,');
    expect((await evidenceOf(epoch)).flaws).toMatchObject([{ code: 'proof_invalid' }]);
    edit(/^.*\n/, '{"torn\n');
    expect((await evidenceOf(epoch)).flaws).toMatchObject([{ code: 'unreadable' }]);
    edit('', '');
    writeFileSync(archive, lines.subarray(0, lines.length - 20));
    expect((await evidenceOf(epoch)).flaws).toContainEqual(
      expect.objectContaining({ code: 'lines_damaged' }),
    );
    writeFileSync(archive, lines);
    expect((await evidenceOf(epoch)).flaws).toEqual([]);

    const other = new SmallCollector(Buffer.alloc(32, 0x77));
    const wrong = await readEvidence(epoch.dir, readEpochRecord(epoch.dir) as never, other.vkey);
    expect([wrong.attested.size, wrong.flaws.map(({ code }) => code)]).toEqual([
      0,
      ['bad_signature', 'bad_signature'],
    ]);
  });
});
