import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ClientError, Spool, Transport, append, verifyAck, type SentBatch } from '@belay/client';
import type { Ack } from '@belay/contracts';
import { formatVkey } from '@belay/note';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SmallCollector } from '@belay/testkit';
import { fill, freshState, openEpoch } from './setup.js';

let collector: SmallCollector;
let sent: SentBatch;
let ack: Ack;

/** One real exchange with every disposition in it: a duplicate, new lines, a refusal, a conflict, and a held head. */
beforeAll(async () => {
  collector = new SmallCollector();
  const transport = new Transport(await collector.listen());
  const epoch = await openEpoch(freshState(), collector);
  fill(epoch, 8);
  const lines = readFileSync(join(epoch.dir, 'lines'))
    .toString()
    .split('\n')
    .slice(0, -1)
    .map((line) => Buffer.from(line));
  const batch = { sink: 'proxy', epoch: epoch.id, firstSeq: 1, key: undefined };
  const target = { transport, token: collector.token, credential: collector.credential };
  const first = await append(target, { ...batch, lines: lines.slice(0, 3), head: undefined });
  const other = Buffer.from((lines[1] as Buffer).toString().replace('"x.event"', '"x.other"'));
  const mixed = [...lines.slice(2, 6), Buffer.from('{"v":1}'), other, ...lines.slice(6)];
  let answer: Ack | undefined;
  collector.change = (given) => (answer = given);
  const verified = await append(target, { ...batch, lines: mixed, head: first.head });
  expect(verified.runs.map(({ disposition }) => disposition)).toEqual([
    'duplicate',
    'appended',
    'conflict',
    'appended',
  ]);
  expect(verified.refused).toMatchObject([{ line: 4, code: 'missing_field' }]);
  ack = answer as Ack;
  sent = {
    origin: collector.origin,
    vkey: formatVkey(collector.origin, collector.credential.publicKey),
    sink: 'proxy',
    token: collector.credential.id,
    lines: mixed,
    head: first.head,
  };
  transport.close();
  epoch.release();
});
afterAll(() => collector.close());

function refusal(
  change: (ack: Record<string, unknown>) => unknown,
  against: Partial<SentBatch> = {},
): string {
  const copy = JSON.parse(JSON.stringify(ack)) as Record<string, unknown>;
  const changed = change(copy);
  try {
    verifyAck(changed === undefined ? copy : changed, { ...sent, ...against });
  } catch (error) {
    if (error instanceof ClientError) return `${error.action} ${error.code}`;
    throw error;
  }
  return 'verified';
}

test('the ack as it was holds', () => {
  expect(refusal(() => undefined)).toBe('verified');
});

test('no value in it can be changed, but for the words beside a refusal', () => {
  /** Paths of every leaf. */
  const leaves: (string | number)[][] = [];
  const walk = (value: unknown, path: (string | number)[]): void => {
    if (typeof value === 'object' && value !== null) {
      for (const [key, member] of Object.entries(value)) walk(member, [...path, key]);
    } else leaves.push(path);
  };
  walk(ack, []);
  const harmless = leaves.filter((path) => ['message', 'code', 'field'].includes(String(path.at(-1))));
  const binding = leaves.filter((path) => !harmless.includes(path));
  expect(binding.length).toBeGreaterThan(30);
  // A duplicate and a fresh append are proved by the same evidence; which of the two it was is the collector's word.
  const swap: Record<string, string> = { appended: 'duplicate', duplicate: 'conflict', conflict: 'appended' };
  for (const path of binding) {
    const said = refusal((copy) => {
      let parent = copy as Record<string | number, unknown>;
      for (const key of path.slice(0, -1)) parent = parent[key] as Record<string | number, unknown>;
      const last = path.at(-1) as string | number;
      const value = parent[last];
      if (typeof value === 'number') parent[last] = value + 1;
      else if (last === 'disposition') parent[last] = swap[value as string];
      else if (typeof value === 'string') {
        const at = Math.floor(value.length / 2);
        parent[last] = `${value.slice(0, at)}${value[at] === 'A' ? 'B' : 'A'}${value.slice(at + 1)}`;
      }
    });
    const [runs, run] = path;
    const appended = runs === 'runs' && ack.runs[Number(run)]?.disposition === 'appended';
    if (path.at(-1) === 'disposition' && appended) continue;
    expect(said, path.join('.')).not.toBe('verified');
  }
});

test('none of our own lines can be changed', () => {
  fc.assert(
    fc.property(fc.nat(sent.lines.length - 1), fc.nat(300), (at, byte) => {
      const lines = sent.lines.map((line) => Buffer.from(line));
      const line = lines[at] as Buffer;
      line[byte % line.length] = (line[byte % line.length] as number) ^ 1;
      const said = refusal(() => undefined, { lines });
      // The refused line is in no tree.
      expect(said).toBe(at === 4 ? 'verified' : 'give_up proof_invalid');
    }),
  );
});

describe('what is refused, and what is done about it', () => {
  test.each<[string, (copy: Record<string, unknown>) => unknown, string]>([
    ['no object', () => 'hello', 'retry answer_malformed'],
    ['a missing member', (copy) => delete copy['signature'] && undefined, 'retry answer_malformed'],
    ['a fractional size', (copy) => void (copy['size'] = 1.5), 'retry answer_malformed'],
    ['another log', (copy) => void (copy['log'] = 'other'), 'give_up wrong_log'],
    ['another signature', (copy) => void (copy['signature'] = '— a b'), 'give_up bad_signature'],
    ['a line left out', (copy) => void (copy['refused'] = []), 'give_up ack_incomplete'],
    [
      'a line told twice',
      (copy) => void (copy['refused'] = [...ack.refused, ...ack.refused]),
      'give_up ack_incomplete',
    ],
    ['a run left out', (copy) => void (copy['runs'] = ack.runs.slice(1)), 'give_up ack_incomplete'],
    ['no proof of growth', (copy) => void delete copy['consistency'], 'accuse not_consistent'],
  ])('%s', (_, change, expected) => {
    expect(refusal(change)).toBe(expected);
  });

  test('a token of another collector', () => {
    const other = new SmallCollector(Buffer.alloc(32, 0x0c));
    expect(refusal(() => undefined, { vkey: formatVkey(other.origin, other.credential.publicKey) })).toBe(
      'give_up bad_signature',
    );
  });

  test('a log that shrank, and one with two trees of a size', () => {
    const { head } = sent as { head: NonNullable<SentBatch['head']> };
    expect(refusal(() => undefined, { head: { ...head, size: ack.size + 5 } })).toBe('accuse rolled_back');
    expect(refusal(() => undefined, { head: { ...head, size: ack.size } })).toBe('accuse split_view');
    expect(refusal(() => undefined, { head: { ...head, root: ack.root } })).toBe('accuse not_consistent');
    expect(refusal(() => undefined, { head: { ...head, size: ack.size, root: ack.root } })).toBe('verified');
  });

  test('an accusation carries both heads', () => {
    const { head } = sent as { head: NonNullable<SentBatch['head']> };
    try {
      verifyAck(ack, { ...sent, head: { ...head, size: ack.size } });
      expect.unreachable();
    } catch (error) {
      expect((error as ClientError).evidence).toMatchObject({
        held: { ...head, size: ack.size },
        shown: { size: ack.size, root: ack.root, signature: ack.signature },
        vkey: sent.vkey,
      });
    }
  });
});

test('a spool that is not one is not taken', () => {
  expect(() => Spool.ofOwn(freshState())).toThrow();
});
