import { readFileSync } from 'node:fs';
import { CompactRange, leafHash } from '@belay/merkle';
import {
  ackHeadText,
  ackName,
  ackVerifier,
  cosignatureSigner,
  cosignatureVerifier,
  ed25519Signer,
  ed25519Verifier,
  formatCheckpoint,
  openCheckpoint,
  signNote,
} from '@belay/note';
import { expect, test } from 'vitest';

/** The page's indented blocks, without their indentation. Empty lines inside a block belong to it. */
function blocksOf(page: string): string[] {
  const blocks: string[] = [];
  let block = '';
  for (const line of page.split('\n')) {
    if (line.startsWith('    ')) block += `${line.slice(4)}\n`;
    else if (line === '' && block !== '') block += '\n';
    else {
      if (block !== '') blocks.push(block.replace(/\n*$/u, '\n'));
      block = '';
    }
  }
  return blocks;
}

const page = readFileSync(new URL('../FORMAT.md', import.meta.url), 'utf8');
const blocks = blocksOf(page);

test('the bytes on the page are the bytes that the code makes of the inputs on the page', () => {
  const origin = 'belay.example/acme/agents';
  const seed = Buffer.alloc(32, 0x0b);
  const log = ed25519Signer(origin, seed);
  const witness = cosignatureSigner('witness.example/w1', Buffer.alloc(32, 0x0c), () => 1_789_000_000n);
  const tree = CompactRange.empty();
  for (const data of ['alpha', 'bravo', 'charlie']) tree.append(leafHash(Buffer.from(data)));
  const head = { origin, size: tree.end, root: tree.root() };
  const checkpoint = signNote(formatCheckpoint(head), [log, witness]);
  const ack = signNote(ackHeadText(origin, head.size, head.root), [ed25519Signer(ackName(origin), seed)]);

  expect(blocks).toContain(checkpoint);
  expect(blocks).toContain(ack);
  expect(blocks).toContain(`${log.vkey}\n\n${witness.vkey}\n`);

  const opened = openCheckpoint(checkpoint, ed25519Verifier(log.vkey), [cosignatureVerifier(witness.vkey)]);
  expect(opened.signatures).toHaveLength(2);
  expect(openCheckpoint(ack, ackVerifier(log.vkey)).root).toEqual(head.root);
});
