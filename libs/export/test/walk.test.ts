import { formatStatement } from '@belay/coverage';
import { exampleLog } from '@belay/testkit/export';
import { expect, test } from 'vitest';
import { Walk } from '../src/walk.js';

test('what is set aside comes back as it was: every statement at every size', async () => {
  const { log } = await exampleLog();
  const origin = 'belay.example/acme/agents';
  const whole = new Walk(origin, { evaluated: log.entries.length });
  const poor = new Walk(origin, { evaluated: log.entries.length }, 0);
  for (const [index, entry] of log.entries.entries()) {
    whole.apply(entry);
    poor.apply(entry);
    expect(poor.coverage.held).toBe(0);
    if (index % 7 !== 0) continue;
    const asOf = { size: index + 1, time: new Date(log.now + index).toISOString() };
    for (const { sink, epoch } of whole.epochs.values()) {
      expect(formatStatement(poor.coverage.epochStatement(sink, epoch, asOf))).toEqual(
        formatStatement(whole.coverage.epochStatement(sink, epoch, asOf)),
      );
    }
    for (const session of whole.sessionNames) {
      expect(formatStatement(poor.coverage.sessionStatement(session, asOf))).toEqual(
        formatStatement(whole.coverage.sessionStatement(session, asOf)),
      );
    }
    poor.relieve();
  }
  expect(poor.inOrder()).toEqual(whole.inOrder());
  expect([...poor.sinkNames]).toEqual(['proxy', 'hook', 'verifier', 'curl']);
});
