import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { DEFAULT_POLICY } from '@belay/coverage';
import { batchMessage, batchRoot, keyFingerprint, parseCollectorBody, parseEnvelope } from '@belay/envelope';
import { type CheckedStatement, LogBehindAnchor, type Run, scopeText, Sequencer } from '@belay/log';
import { ed25519Verifier, formatVkey, openCheckpoint, rawPublicKey } from '@belay/note';
import {
  ADMIN,
  AUDITOR,
  closing,
  epoch,
  line,
  MemoryAnchor,
  MemoryLogStore,
  mustBeSound,
  PROJECT,
  request,
  setUp,
  type Setup,
  TENANT,
  TOKEN,
  value,
  verifyAck,
} from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

const lines = (
  setup: Setup,
  sink: string,
  run: string,
  from: number,
  count: number,
  content = 'a',
): Buffer[] =>
  Array.from({ length: count }, (_, at) => line(setup.log.origin, sink, run, from + at, content));

describe('append', () => {
  it('answers new lines with a proof to a signed head', async () => {
    const setup = await setUp();
    const sent = request(setup.log.origin, 'proxy', epoch(1), lines(setup, 'proxy', epoch(1), 1, 5));
    const ack = value(await setup.sequencer.append(sent));
    expect(ack.runs).toHaveLength(1);
    expect(ack.runs[0]).toMatchObject({ disposition: 'appended', lines: [0, 5], index: 3 });
    expect(ack.size).toBe(8);
    verifyAck(setup.log, sent, ack);
    await mustBeSound(setup);
  });

  it('answers a resent request with the first indexes and costs no entry', async () => {
    const setup = await setUp();
    const sent = request(setup.log.origin, 'proxy', epoch(1), lines(setup, 'proxy', epoch(1), 1, 300));
    const first = value(await setup.sequencer.append(sent));
    for (let i = 0; i < 3; i++) {
      const again = value(await setup.sequencer.append({ ...sent, head: first.size }));
      expect(again.runs).toMatchObject([
        { disposition: 'duplicate', lines: [0, 300], index: first.runs[0]?.index },
      ]);
      expect(again.size).toBe(first.size);
      verifyAck(setup.log, sent, again, first);
    }
    await mustBeSound(setup);
  });

  it('keeps both stories of one number, each once', async () => {
    const setup = await setUp();
    const run = epoch(1);
    value(await setup.sequencer.append(request(setup.log.origin, 's', run, lines(setup, 's', run, 1, 3))));
    const other = request(setup.log.origin, 's', run, lines(setup, 's', run, 2, 1, 'other'));
    const ack = value(await setup.sequencer.append(other));
    expect(ack.runs).toMatchObject([{ disposition: 'conflict', index: 6, conflict: 4 }]);
    verifyAck(setup.log, other, ack);
    const again = value(await setup.sequencer.append(other));
    expect(again.runs).toMatchObject([{ disposition: 'conflict', index: 6, conflict: 4 }]);
    expect(again.size).toBe(ack.size);
    verifyAck(setup.log, other, again);
    await mustBeSound(setup);
  });

  it('fills a gap, and tells what was there from what was not', async () => {
    const setup = await setUp();
    const run = epoch(1);
    const all = lines(setup, 's', run, 1, 9);
    value(
      await setup.sequencer.append(
        request(setup.log.origin, 's', run, [...all.slice(0, 3), ...all.slice(6)]),
      ),
    );
    const sent = request(setup.log.origin, 's', run, all);
    const ack = value(await setup.sequencer.append(sent));
    expect(ack.runs.map((part) => [part.disposition, ...part.lines])).toEqual([
      ['duplicate', 0, 3],
      ['appended', 3, 6],
      ['duplicate', 6, 9],
    ]);
    verifyAck(setup.log, sent, ack);
    await mustBeSound(setup);
  });

  it('treats one number twice in one request like two requests', async () => {
    const setup = await setUp();
    const run = epoch(1);
    const [one] = lines(setup, 's', run, 1, 1) as [Buffer];
    const [two] = lines(setup, 's', run, 1, 1, 'b') as [Buffer];
    const sent = request(setup.log.origin, 's', run, [one, one, two, two]);
    const ack = value(await setup.sequencer.append(sent));
    expect(ack.runs.map((part) => part.disposition)).toEqual([
      'appended',
      'duplicate',
      'conflict',
      'conflict',
    ]);
    expect(ack.runs.map((part) => part.index)).toEqual([3, 3, 4, 4]);
    verifyAck(setup.log, sent, ack);
    await mustBeSound(setup);
  });

  it('refuses nothing of the neighbours of a refused line', async () => {
    const setup = await setUp();
    const run = epoch(1);
    const all = lines(setup, 's', run, 1, 3);
    const refusal = { line: 1, code: 'bad_value', message: 'no' };
    const sent = { ...request(setup.log.origin, 's', run, all), seqs: [1, null, 3], refused: [refusal] };
    const ack = value(await setup.sequencer.append(sent));
    expect(ack.refused).toEqual([refusal]);
    expect(ack.runs.map((part) => part.lines)).toEqual([
      [0, 1],
      [2, 3],
    ]);
    verifyAck(setup.log, sent, ack);
    await mustBeSound(setup);
  });

  it('takes a keyed sink only by its key, and says so in the leaf', async () => {
    const setup = await setUp();
    const pair = generateKeyPairSync('ed25519');
    const key = rawPublicKey(pair.publicKey);
    const by = { tenant: TENANT, by: ADMIN, project: PROJECT };
    value(await setup.sequencer.change({ kind: 'sink.declare', ...by, sink: 'proxy', key }));
    const run = epoch(1);
    const sent = request(setup.log.origin, 'proxy', run, lines(setup, 'proxy', run, 1, 4));
    const bare = await setup.sequencer.append(sent);
    expect(bare).toMatchObject({ ok: false, fault: { code: 'signature_required' } });
    const message = batchMessage({
      log: setup.log.origin,
      sink: 'proxy',
      epoch: run,
      firstSeq: 1,
      count: 4,
      root: batchRoot(sent.lines),
    });
    const signature = sign(null, message, pair.privateKey);
    const forged = await setup.sequencer.append({
      ...sent,
      signature: Buffer.from(signature).fill(0, 10, 11),
    });
    expect(forged).toMatchObject({ ok: false, fault: { code: 'signature_invalid' } });
    const moved = await setup.sequencer.append({
      ...sent,
      lines: [...sent.lines].reverse(),
      seqs: [4, 3, 2, 1],
      signature,
    });
    expect(moved).toMatchObject({ ok: false, fault: { code: 'signature_invalid' } });
    const ack = value(await setup.sequencer.append({ ...sent, signature }));
    expect(ack.runs[0]?.signed).toBe(keyFingerprint(key));
    verifyAck(setup.log, sent, ack);
    await mustBeSound(setup);
  });

  it('charges the labels of each auditor against a rate of its own', async () => {
    const setup = await setUp();
    const by = { tenant: TENANT, by: ADMIN, project: PROJECT };
    const [one, other] = ['a', 'b'].map((last) => `aud_${'0'.repeat(25)}${last}`) as [string, string];
    for (const auditor of [one, other]) {
      const issue = { kind: 'auditor.issue', ...by, auditor, secretHash: Buffer.alloc(32) } as const;
      value(await setup.sequencer.change(issue));
    }
    const label = (auditor: string) =>
      setup.sequencer.change({
        kind: 'label.set',
        by: auditor,
        project: PROJECT,
        session: 's',
        says: 'violated',
      });
    let set = 0;
    let last = await label(one);
    while (last.ok && set < 1_000) {
      set++;
      last = await label(one);
    }
    // A minute's, and as many more as milliseconds went by while they were set.
    expect(set).toBeGreaterThanOrEqual(120);
    expect(set).toBeLessThan(130);
    expect(last).toMatchObject({
      ok: false,
      fault: { kind: 'refused', code: 'rate_limited', retryAfter: 1 },
    });
    value(await label(other));
    setup.clock.now += 1_000;
    value(await label(one));
    await mustBeSound(setup);
  });

  it('charges every stored line against a rate, and no resent one', async () => {
    const setup = await setUp();
    const token = TOKEN.replace(/v$/, 'w');
    const by = { tenant: TENANT, by: ADMIN, project: PROJECT };
    const issue = {
      kind: 'token.issue',
      ...by,
      token,
      secretHash: Buffer.alloc(32),
      role: 'agent',
      rate: 10,
    } as const;
    value(await setup.sequencer.change(issue));
    const run = epoch(1);
    const send = (batch: Buffer[]) =>
      setup.sequencer.append(request(setup.log.origin, 's', run, batch, { token }));
    const sent = lines(setup, 's', run, 101, 11);
    value(await send(sent));
    for (let i = 0; i < 1_000; i++) value(await send(sent));
    const limited = { ok: false, fault: { code: 'rate_limited', retryAfter: 6 } };
    // What is new by its number, what fills a gap and what contradicts an earlier line: all of it is stored.
    expect(await send(lines(setup, 's', run, 112, 1))).toMatchObject(limited);
    expect(await send(lines(setup, 's', run, 50, 1))).toMatchObject(limited);
    expect(await send(lines(setup, 's', run, 101, 1, 'b'))).toMatchObject(limited);
    // One request of any size gets through once there is room, and is paid back before the next.
    setup.clock.now += 6_010;
    value(await send([...lines(setup, 's', run, 101, 5, 'b'), ...lines(setup, 's', run, 1, 45)]));
    expect(await send(lines(setup, 's', run, 200, 1))).toMatchObject({
      ok: false,
      fault: { retryAfter: 300 },
    });
    setup.clock.now += 300_000;
    value(await send(lines(setup, 's', run, 200, 1)));
    value(await send(sent));
    await mustBeSound(setup);
  });

  it('asks the store a few times per request, however its seqs are ordered or spread', async () => {
    const store = new MemoryLogStore();
    const setup = await setUp(store);
    const run = epoch(1);
    const spread = Array.from({ length: 400 }, (_, at) =>
      line(setup.log.origin, 's', run, (400 - at) * 1_000),
    );
    const sent = request(setup.log.origin, 's', run, spread);
    const first = value(await setup.sequencer.append(sent));
    const contradicting = request(
      setup.log.origin,
      's',
      run,
      spread.map((_, at) => line(setup.log.origin, 's', run, (400 - at) * 1_000, 'b')),
    );
    value(await setup.sequencer.append(contradicting));
    store.queries = 0;
    const again = value(await setup.sequencer.append(sent));
    expect(again.runs.map((part) => part.index)).toEqual(first.runs.map((part) => part.index));
    const told = value(await setup.sequencer.append(contradicting));
    expect(told.runs.every((part) => part.disposition === 'conflict')).toBe(true);
    expect(told.size).toBe(again.size);
    expect(store.queries).toBeLessThanOrEqual(8);
    await mustBeSound(setup);
  });

  it('takes the largest number there is, and goes on after it was read back', async () => {
    const setup = await setUp();
    const run = epoch(1);
    const last = request(setup.log.origin, 's', run, [
      line(setup.log.origin, 's', run, Number.MAX_SAFE_INTEGER - 1),
    ]);
    value(await setup.sequencer.append(last));
    setup.sequencer = new Sequencer(setup.parts);
    expect(value(await setup.sequencer.append(last)).runs[0]?.disposition).toBe('duplicate');
    expect(() => parseEnvelope(line(setup.log.origin, 's', run, Number.MAX_SAFE_INTEGER))).toThrow(
      /2\^53 - 2/,
    );
  });

  it('revokes an auditor key once, and only one that was issued', async () => {
    const setup = await setUp();
    const change = { kind: 'auditor.revoke', tenant: TENANT, by: ADMIN, project: PROJECT } as const;
    const other = await setup.sequencer.change({ ...change, auditor: AUDITOR.replace(/v$/, 'w') });
    expect(other).toMatchObject({ ok: false, fault: { code: 'not_found' } });
    value(await setup.sequencer.change({ ...change, auditor: AUDITOR }));
    expect(await setup.sequencer.change({ ...change, auditor: AUDITOR })).toMatchObject({
      ok: false,
      fault: { code: 'exists' },
    });
    expect((await mustBeSound(setup)).size).toBe(4);
  });

  it('stops a token at its revocation, its expiry and the edge of its sinks', async () => {
    const setup = await setUp();
    const token = TOKEN.replace(/v$/, 'w');
    const by = { tenant: TENANT, by: ADMIN, project: PROJECT };
    const expires = new Date(setup.clock.now + 1_000).toISOString();
    value(
      await setup.sequencer.change({
        kind: 'token.issue',
        ...by,
        token,
        secretHash: Buffer.alloc(32),
        role: 'agent',
        sinks: ['a'],
        expires,
      }),
    );
    const run = epoch(1);
    const other = request(setup.log.origin, 'b', run, lines(setup, 'b', run, 1, 1), { token });
    expect(await setup.sequencer.append(other)).toMatchObject({
      ok: false,
      fault: { code: 'sink_not_allowed' },
    });
    const own = request(setup.log.origin, 'a', run, lines(setup, 'a', run, 1, 1), { token });
    value(await setup.sequencer.append(own));
    setup.clock.now += 1_000;
    expect(await setup.sequencer.append(own)).toMatchObject({ ok: false, fault: { code: 'token_expired' } });
    // Revocation and appends race in one queue; what the log says first counts.
    const racing = [
      setup.sequencer.append(request(setup.log.origin, 's', run, lines(setup, 's', run, 1, 5))),
      setup.sequencer.change({ kind: 'token.revoke', ...by, token: TOKEN }),
      setup.sequencer.append(request(setup.log.origin, 's', run, lines(setup, 's', run, 6, 5))),
    ] as const;
    value(await racing[0]);
    value(await racing[1]);
    const after = await racing[2];
    if (!after.ok) expect(after.fault.code).toBe('token_revoked');
    const gone = await setup.sequencer.append(
      request(setup.log.origin, 's', run, lines(setup, 's', run, 6, 5)),
    );
    expect(gone).toMatchObject({ ok: false, fault: { code: 'token_revoked' } });
    await mustBeSound(setup);
  });

  it('never lets another tenant change a project', async () => {
    const setup = await setUp();
    const change = {
      kind: 'token.revoke',
      tenant: 'ten_other',
      by: ADMIN,
      project: PROJECT,
      token: TOKEN,
    } as const;
    const missing = await setup.sequencer.change({ ...change, project: 'prj_none' });
    expect(await setup.sequencer.change(change)).toEqual(missing);
  });

  it('refuses a sender that holds a larger head than the log', async () => {
    const setup = await setUp();
    const run = epoch(1);
    const sent = request(setup.log.origin, 's', run, lines(setup, 's', run, 1, 1), { head: 99 });
    expect(await setup.sequencer.append(sent)).toMatchObject({ ok: false, fault: { code: 'head_ahead' } });
    expect((await mustBeSound(setup)).size).toBe(3);
  });

  it('gives every commit a later time than the one before, whatever the clock says', async () => {
    const setup = await setUp();
    const run = epoch(1);
    const one = value(
      await setup.sequencer.append(request(setup.log.origin, 's', run, lines(setup, 's', run, 1, 1))),
    );
    const after = (milliseconds: number): string =>
      new Date(Date.parse(one.runs[0]?.received as string) + milliseconds).toISOString();
    setup.clock.now -= 3_600_000;
    const send = async (...sent: Buffer[][]) => {
      const acks = sent.map((batch) => setup.sequencer.append(request(setup.log.origin, 's', run, batch)));
      return (await Promise.all(acks)).map((ack) => value(ack).runs[0]?.received);
    };
    expect(await send(lines(setup, 's', run, 2, 2))).toEqual([after(1)]);
    // The first is a commit of its own; the others wait for it, and are the next.
    const [third, fourth, fifth] = [4, 6, 8].map((from) => lines(setup, 's', run, from, 2));
    expect(await send(third as Buffer[], fourth as Buffer[], fifth as Buffer[])).toEqual([
      after(2),
      after(3),
      after(3),
    ]);
    // What is known already takes no time.
    expect(await send(lines(setup, 's', run, 2, 2))).toEqual([after(1)]);
    setup.clock.now += 7_200_000;
    expect(await send(lines(setup, 's', run, 10, 1))).toEqual([new Date(setup.clock.now).toISOString()]);
    const [sizes, times] = [new Set<number>(), new Set<number>()];
    for (const { first, received } of await setup.store.runs(setup.log, 0, 1_000)) {
      // Requests of one commit are runs of their own and share its time.
      if (!times.has(received)) sizes.add(first);
      times.add(received);
    }
    expect(sizes).toEqual(new Set([0, 3, 4, 6, 8, 12]));
    await mustBeSound(setup);
  });
});

describe('head', () => {
  it('is anchored before anybody sees it signed', async () => {
    const setup = await setUp();
    const run = epoch(1);
    const sent = request(setup.log.origin, 's', run, lines(setup, 's', run, 1, 3));
    const before = setup.anchor.last(setup.log.origin);
    setup.anchor.faults.push('before', 'before');
    expect(await setup.sequencer.append(sent)).toMatchObject({ ok: false, fault: { kind: 'retry' } });
    expect(await setup.sequencer.checkpoint(setup.log.id)).toMatchObject({
      ok: false,
      fault: { kind: 'retry' },
    });
    expect(setup.anchor.last(setup.log.origin)).toEqual(before);
    const ack = value(await setup.sequencer.append(sent));
    expect(ack.runs[0]?.disposition).toBe('duplicate');
    expect(setup.anchor.last(setup.log.origin)).toEqual({
      size: ack.size,
      root: Buffer.from(ack.root, 'base64'),
    });
  });

  it('is found where another collector left it, with all that it wrote', async () => {
    const setup = await setUp();
    const other = new Sequencer({ ...setup.parts, anchor: new MemoryAnchor() });
    const run = epoch(1);
    for (let turn = 0; turn < 12; turn++) {
      // Each sends what the other has just appended, and three lines more.
      const sent = request(setup.log.origin, 's', run, lines(setup, 's', run, 1, 3 * (turn + 1)));
      const ack = value(await (turn % 2 ? other : setup.sequencer).append(sent));
      expect(ack.size).toBe(3 + 3 * (turn + 1));
      verifyAck(setup.log, sent, ack);
    }
    await mustBeSound(setup);
  });

  it('signs checkpoints under the origin and acks under another name', async () => {
    const setup = await setUp();
    const reply = value(await setup.sequencer.checkpoint(setup.log.id));
    const opened = openCheckpoint(
      reply.note,
      ed25519Verifier(formatVkey(setup.log.origin, setup.log.publicKey)),
    );
    expect(opened.size).toBe(3n);
  });

  it('refuses to start when the database is behind the anchor, and halts a log that falls behind', async () => {
    const setup = await setUp();
    await setup.anchor.record(setup.log.origin, 50, Buffer.alloc(32, 1));
    await expect(new Sequencer(setup.parts).start()).rejects.toThrow(LogBehindAnchor);
    const fresh = new Sequencer(setup.parts);
    const run = epoch(1);
    const sent = request(setup.log.origin, 's', run, lines(setup, 's', run, 1, 1));
    expect(await fresh.append(sent)).toMatchObject({ ok: false, fault: { code: 'log_halted' } });
    expect(await fresh.append(sent)).toMatchObject({ ok: false, fault: { code: 'log_halted' } });
  });

  it('refuses to start when the database has lost a whole log', async () => {
    const setup = await setUp();
    await setup.anchor.record('test.local/gone', 4, Buffer.alloc(32, 1));
    await expect(new Sequencer(setup.parts).start()).rejects.toThrow(
      /test.local\/gone.*the database does not have it/,
    );
  });

  it('refuses to start on another tree of the anchored size', async () => {
    const setup = await setUp();
    const anchor = new MemoryAnchor();
    await anchor.record(setup.log.origin, 2, Buffer.alloc(32, 1));
    await expect(new Sequencer({ ...setup.parts, anchor }).start()).rejects.toThrow(/Entries were changed/);
  });

  it('refuses to go on over entries that do not lead to the head', async () => {
    const store = new MemoryLogStore();
    const setup = await setUp(store);
    const raw = store.raw(setup.log);
    raw.lines[2] = Buffer.from(String(raw.lines[2]).replace('aud_', 'aue_'));
    await expect(new Sequencer(setup.parts).start()).rejects.toThrow(/disagree/);
  });
});

function statementOf(n: number): CheckedStatement {
  const bytes = Buffer.from(`statement ${n}`);
  const digest = createHash('sha256').update(bytes).digest();
  return {
    bytes,
    digest,
    body: {
      kind: 'coverage.stated',
      v: 1,
      type: 'session',
      session: `s${n}`,
      statement: `sha256:${digest.toString('hex')}`,
      size: n % 4,
      time: '2026-01-01T00:00:00.000Z',
      status: 'open',
      policy: `sha256:${'0'.repeat(64)}`,
    },
  };
}

/** Issues the next receipt of a session as a collector does; null when it came to nothing, or was not told. */
async function issueOf(
  setup: Setup,
  n: number,
  asOf: number,
): Promise<{ digest: string; index: number } | null> {
  const scope = { type: 'session', session: `s${n}` } as const;
  const last = await setup.store.receipt(setup.log, scopeText(scope));
  const bytes = `receipt of ${n} as of ${asOf}`;
  const digest = createHash('sha256').update(bytes).digest();
  const outcome = await setup.sequencer.recordReceipt(
    PROJECT,
    { id: `rcp_${n}_${asOf}`, scope: scopeText(scope), asOf, digest, bytes, created: 0, disposition: 'open' },
    {
      kind: 'receipt.issued',
      v: 1,
      receipt: `sha256:${digest.toString('hex')}`,
      scope,
      asOf,
      ...(last && { supersedes: `sha256:${last.digest.toString('hex')}` }),
    },
  );
  if (outcome.ok) return { digest: digest.toString('hex'), index: outcome.value.index as number };
  expect(['exists', 'stale', 'unavailable', 'shutting_down']).toContain(outcome.fault.code);
  return null;
}

/** Indexes at which `late` is not what follows from the entries alone, commit by commit. */
async function latenessOf(setup: Setup): Promise<number[]> {
  const runs = await setup.store.runs(setup.log, 0, 100_000);
  const bodies = await setup.store.lines(setup.log, 0, 100_000);
  const closed = new Map<string, number>();
  const wrong: number[] = [];
  let lateness = DEFAULT_POLICY.lateness;
  for (let at = 0; at < runs.length;) {
    const { received } = runs[at] as Run;
    const commit = runs.slice(at).filter((run) => run.received === received);
    at += commit.length;
    const closing: string[] = [];
    for (const run of commit) {
      for (const { index, line: body } of bodies.slice(run.first, run.first + run.count)) {
        if (run.role === 'collector') {
          const statement = parseCollectorBody(body);
          if (statement.kind === 'policy.set') lateness = (statement.policy as { lateness: number }).lateness;
          if (run.late) wrong.push(index);
          continue;
        }
        const key = `${run.sink} ${run.epoch}`;
        const since = received - (closed.get(key) ?? received);
        if (run.late !== since > lateness * 1_000) wrong.push(index);
        if (run.conflict === null && parseEnvelope(body).kind === 'epoch.close') closing.push(key);
      }
    }
    for (const key of closing) closed.set(key, received);
  }
  return wrong;
}

describe('under faults and interleaving', () => {
  /** One action of a client; faults hit the transactions and the anchor in turn. */
  const action = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant('append' as const),
        sink: fc.integer({ min: 0, max: 2 }),
        from: fc.integer({ min: 1, max: 40 }),
        count: fc.integer({ min: 1, max: 12 }),
        content: fc.constantFrom('a', 'a', 'a', 'b'),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant('big' as const),
        sink: fc.integer({ min: 0, max: 2 }),
        from: fc.integer({ min: 41, max: 300 }),
        count: fc.integer({ min: 100, max: 300 }),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant('close' as const),
        sink: fc.integer({ min: 0, max: 2 }),
        seq: fc.integer({ min: 1, max: 45 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), seconds: fc.nat(4) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('policy' as const), lateness: fc.nat(3) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('label' as const), n: fc.nat(3) }) },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant('record' as const),
        of: fc.array(fc.nat(5), { maxLength: 3 }),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant('receipt' as const),
        session: fc.nat(1),
        asOf: fc.integer({ min: 1, max: 6 }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('checkpoint' as const) }) },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('change' as const), n: fc.integer({ min: 0, max: 9 }) }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart' as const) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('settle' as const) }) },
  );
  const fault = fc.option(fc.constantFrom('before' as const, 'after' as const), { nil: undefined, freq: 3 });

  it('keeps every acknowledged line at its index, and the whole log sound after every step', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(action, { minLength: 1, maxLength: 25 }),
        fc.array(fault, { maxLength: 20 }),
        fc.array(fault, { maxLength: 10 }),
        fc.infiniteStream(fc.integer({ min: 0, max: 3 })),
        async (actions, storeFaults, anchorFaults, turns) => {
          const store = new MemoryLogStore();
          const setup = await setUp(store, { limits: { commitLines: 64 } });
          store.faults.push(...storeFaults);
          setup.anchor.faults.push(...anchorFaults);
          store.pause = async () => {
            for (let i = turns.next().value as number; i > 0; i--) await Promise.resolve();
          };
          const acked = new Map<string, number>();
          const told = (key: string, index: number): void => {
            expect(acked.get(key) ?? index).toBe(index);
            acked.set(key, index);
          };
          let held: { size: number; root: string } | undefined;
          const flying: Promise<void>[] = [];
          const send = (sink: number, from: number, count: number, content: string): void => {
            append(sink, lines(setup, `s${sink}`, epoch(sink), from, count, content));
          };
          const append = (sink: number, batch: Buffer[]): void => {
            const sent = request(setup.log.origin, `s${sink}`, epoch(sink), batch);
            const head = held;
            const one = setup.sequencer.append(head ? { ...sent, head: head.size } : sent).then((outcome) => {
              if (!outcome.ok) {
                expect(outcome.fault.kind).toBe('retry');
                return;
              }
              verifyAck(setup.log, sent, outcome.value, head);
              if (!held || outcome.value.size > held.size) held = outcome.value;
              for (const part of outcome.value.runs) {
                for (let at = part.lines[0]; at < part.lines[1]; at++) {
                  const key = String(sent.lines[at]);
                  told(key, part.index + at - part.lines[0]);
                }
              }
            });
            flying.push(one);
          };
          for (const step of actions) {
            setup.clock.now += 7;
            if (step.kind === 'close') {
              append(step.sink, [closing(setup.log.origin, `s${step.sink}`, epoch(step.sink), step.seq)]);
            } else if (step.kind === 'wait') setup.clock.now += step.seconds * 1_000;
            else if (step.kind === 'policy') {
              const policy = { ...DEFAULT_POLICY, lateness: step.lateness };
              const by = { tenant: TENANT, by: ADMIN, project: PROJECT };
              flying.push(
                setup.sequencer.change({ kind: 'policy.set', ...by, policy }).then(() => undefined),
              );
            } else if (step.kind === 'label') {
              const by = { by: AUDITOR, project: PROJECT };
              const session = `s${step.n}`;
              flying.push(
                setup.sequencer
                  .change({ kind: 'label.set', ...by, session, says: 'violated' })
                  .then(() => undefined),
              );
            } else if (step.kind === 'record') {
              const statements = step.of.map(statementOf);
              flying.push(
                setup.sequencer.record(PROJECT, statements).then((outcome) => {
                  if (!outcome.ok) expect(outcome.fault.kind).toBe('retry');
                  else {
                    outcome.value.indexes.forEach((index, at) =>
                      told(String(statements[at]?.digest.toString('hex')), index),
                    );
                  }
                }),
              );
            } else if (step.kind === 'receipt') {
              flying.push(
                issueOf(setup, step.session, step.asOf).then((issued) => {
                  if (issued) told(issued.digest, issued.index);
                }),
              );
            } else if (step.kind === 'append') send(step.sink, step.from, step.count, step.content);
            else if (step.kind === 'big') send(step.sink, step.from, step.count, 'a');
            else if (step.kind === 'checkpoint')
              flying.push(setup.sequencer.checkpoint(setup.log.id).then(() => undefined));
            else if (step.kind === 'change') {
              const token = TOKEN.replace(/v$/, String(step.n));
              const change = {
                tenant: TENANT,
                by: ADMIN,
                project: PROJECT,
                token,
                secretHash: Buffer.alloc(32),
                role: 'agent',
              } as const;
              flying.push(setup.sequencer.change({ kind: 'token.issue', ...change }).then(() => undefined));
            } else if (step.kind === 'restart') {
              // A second process on the same database; the first goes on for what it accepted.
              flying.push(setup.sequencer.close());
              setup.sequencer = new Sequencer(setup.parts);
            } else {
              await Promise.all(flying.splice(0));
              await mustBeSound(setup);
            }
          }
          await Promise.all(flying);
          store.faults.length = 0;
          setup.anchor.faults.length = 0;
          await new Sequencer(setup.parts).start();
          await mustBeSound(setup);
          // A line stands there as it was sent, a statement or receipt by its digest.
          for (const [text, index] of acked)
            expect(String(store.raw(setup.log).lines[index])).toContain(text);
          expect(await latenessOf(setup)).toEqual([]);
        },
      ),
      { numRuns: Number(process.env['BELAY_RUNS'] ?? 120) },
    );
  });
});
