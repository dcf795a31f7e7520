import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { matchId, sessionKey, weakCallId } from '@belay/envelope';
import { decodeRequest, SpanMapper } from '@belay/otlp';
import { afterAll, expect, it } from 'vitest';
import { belay } from './command.js';
import { call, MadeTrace, result } from './made-trace.js';

const home = mkdtempSync(join(tmpdir(), 'belay-otlp-export-'));
afterAll(() => rmSync(home, { recursive: true, force: true }));

it('what `trace export` writes is read back as the calls that the proxy saw', async () => {
  const args = { path: '/w/a', deep: [{ n: 1.5 }] };
  const content = [{ type: 'text', text: 'found' }];
  const made = new MadeTrace(home)
    .c2s(call(1, 'read', args))
    .s2c(result(1, { content }))
    .c2s(call(2, 'read', args))
    .s2c({ jsonrpc: '2.0', id: 2, error: { code: -32000, message: 'gone' } });
  made.writer.close({ exit: 0 });
  const { stdout } = await belay('trace', 'export', made.path, '--format', 'otlp', '--content', 'full');

  const secret = Buffer.alloc(32, 14);
  const { statements, counts } = new SpanMapper({
    machineSecret: secret,
    session: 'made-1',
    privacy: 'minimal',
  }).map(decodeRequest('traces', 'json', Buffer.from(stdout)));
  // The third is the session, which without `initialize` says nothing of MCP.
  expect(counts).toEqual({ received: 3, taken: 2, filtered: 1, repeated: 0, refused: 0 });
  const key = sessionKey(secret, 'made-1');
  // With the session of the proxy, what identifies a call and its content is what the proxy's envelopes have.
  expect(statements.flatMap(({ envelopes }) => envelopes)).toMatchObject([
    {
      kind: 'call',
      call: weakCallId(key, 'read', 1, args),
      match: matchId(key, args),
      attrs: { tool: 'read' },
    },
    {
      kind: 'result',
      call: weakCallId(key, 'read', 1, args),
      match: matchId(key, content),
      attrs: { ok: true, ms: 1 },
    },
    { kind: 'call', call: weakCallId(key, 'read', 2, args), match: matchId(key, args) },
    { kind: 'result', attrs: { ok: false, error: 32000, error_negative: true, ms: 1 } },
  ]);
});
