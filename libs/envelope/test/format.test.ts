import { createPrivateKey, createPublicKey, sign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import {
  batchMessage,
  batchRoot,
  callId,
  collectorLine,
  commitment,
  commitmentSalt,
  entryBytes,
  entryLeaf,
  formatCollectorBody,
  keyFingerprint,
  matchId,
  parseEntry,
  parseEnvelope,
  sessionKey,
  weakCallId,
} from '@belay/envelope';
import { CompactRange, rangeRoot } from '@belay/merkle';
import { ackHeadText, ackName, ackVerifier, ed25519Signer, openCheckpoint, signNote } from '@belay/note';
import { expect, test } from 'vitest';

const page = readFileSync(new URL('../FORMAT.md', import.meta.url), 'utf8');

/** The example of the page, made again from the inputs that the page names. */
function example(): Record<string, string> {
  const origin = 'belay.example/acme/agents';
  const seed = Buffer.alloc(32, 0x0b);
  const log = ed25519Signer(origin, seed);
  const ack = ed25519Signer(ackName(origin), seed);
  const epoch = '01K6B3YB80041061050R3GG28A';
  const epochSecret = Buffer.alloc(32, 0x0d);
  const machineSecret = Buffer.alloc(32, 0x0e);
  const frame = Buffer.from(
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/w/a"}}}\n',
  );
  const key = sessionKey(machineSecret, 'toolbox-7');
  const salt = commitmentSalt(epochSecret, 2);
  const args = { path: '/w/a' };
  const sinkSeed = Buffer.alloc(32, 0x0f);
  const sinkKey = createPrivateKey({
    key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), sinkSeed]),
    format: 'der',
    type: 'pkcs8',
  });
  const sinkPublic = createPublicKey(sinkKey).export({ format: 'der', type: 'spki' }).subarray(-32);

  const open = Buffer.from(
    JSON.stringify({
      v: 1,
      log: origin,
      sink: 'proxy',
      epoch,
      seq: 1,
      kind: 'epoch.open',
      time: '2026-01-01T00:00:00Z',
      attrs: { counter: 0, key: sinkPublic.toString('base64'), sink_kind: 'proxy' },
    }),
  );
  const call = Buffer.from(
    JSON.stringify({
      v: 1,
      log: origin,
      sink: 'proxy',
      epoch,
      seq: 2,
      kind: 'call',
      time: '2026-01-01T00:00:00.25Z',
      digest: commitment(salt, frame),
      session: 'toolbox-7',
      call: weakCallId(key, 'read_file', 1, args),
      match: matchId(key, args),
      attrs: { tool: 'read_file', bytes: frame.length },
    }),
  );
  for (const line of [open, call]) parseEnvelope(line);
  const root = batchRoot([open, call]);
  const message = batchMessage({ log: origin, sink: 'proxy', epoch, firstSeq: 1, count: 2, root });

  const genesis = formatCollectorBody({
    kind: 'log.genesis',
    v: 1,
    log: origin,
    vkey: log.vkey,
    ackKey: ack.vkey,
    project: 'prj_01k6b3yb80041061050r3gg28a',
    name: 'Agents',
    x5c: [`sha256:${'1'.repeat(64)}`, `sha256:${'2'.repeat(64)}`, `sha256:${'3'.repeat(64)}`],
    policy: { public: false },
  });
  const received = '2026-01-01T00:00:01.000Z';
  const token = 'tok_01k6b3yb80041061050r3gg28a';
  const signed = keyFingerprint(sinkPublic);
  const genesisLine = collectorLine({
    log: origin,
    received: '2026-01-01T00:00:00.000Z',
    role: 'collector',
    index: 0,
  });
  const lines = [open, call].map((body, at) => ({
    body,
    line: collectorLine({ log: origin, received, role: 'sink', sink: 'proxy', token, signed, index: at + 1 }),
  }));
  const leaves = [entryLeaf(genesisLine, genesis), ...lines.map(({ line, body }) => entryLeaf(line, body))];
  const tree = CompactRange.empty();
  for (const leaf of leaves) tree.append(leaf);
  for (const { line, body } of lines)
    expect(parseEntry(entryBytes(line, body)).line.index).toBeGreaterThan(0);

  const left = [leaves[0] as Buffer];
  expect(rangeRoot({ index: 1n, size: 3n, leaves: leaves.slice(1), left, right: [] })).toEqual(tree.root());
  const head = signNote(ackHeadText(origin, 3n, tree.root()), [ack]);
  expect(openCheckpoint(head, ackVerifier(log.vkey)).root).toEqual(tree.root());
  const signature = head.slice(head.lastIndexOf('\n\n') + 2).trimEnd();
  const answer = {
    log: origin,
    size: 3,
    root: tree.root().toString('base64'),
    signature,
    runs: [
      {
        disposition: 'appended',
        lines: [0, 2],
        index: 1,
        received,
        token,
        role: 'sink',
        signed,
        range: { left: left.map((hash) => hash.toString('base64')), right: [] },
      },
    ],
    refused: [],
  };
  return {
    frame: frame.toString().trimEnd(),
    salt: salt.toString('hex'),
    sessionKey: key.toString('hex'),
    strongCall: callId(key, 'toolu_01'),
    envelopes: `${open.toString()}\n${call.toString()}`,
    message: message.toString().trimEnd(),
    batchSignature: sign(null, message, sinkKey).toString('base64'),
    genesis: entryBytes(genesisLine, genesis).toString(),
    entry: entryBytes(lines[1]?.line as string, call).toString(),
    leaves: leaves.map((leaf) => leaf.toString('hex')).join('\n'),
    ack: JSON.stringify(answer),
    head: head.trimEnd(),
  };
}

const indented = (text: string): string =>
  text
    .split('\n')
    .map((line) => (line === '' ? '' : `    ${line}`))
    .join('\n');

test.each(Object.entries(example()))('%s on the page is what the code makes', (_, text) => {
  expect(page).toContain(`\n${indented(text)}\n`);
});
