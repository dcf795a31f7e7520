import { type AsOf, LogCoverage } from '@belay/coverage';
import { deriveSession, SessionDerivation, type SessionFacts, Standing } from '@belay/receipt';
import { keyed, SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

const SESSION = 'run-1';

/** Calls that two sinks saw, some of them run again by a verifier, some told wrongly. */
function logOf(
  calls: readonly { readonly replayed: boolean; readonly twice: boolean; readonly differs: boolean }[],
): SessionLog {
  const log = new SessionLog();
  const proxy = log.sink('proxy', { kind: 'proxy', required: true, domain: 'edge' });
  const hook = log.sink('hook', { kind: 'hook', domain: 'host' });
  const judge = log.sink('judge', { kind: 'verifier', role: 'verifier', domain: 'lab' });
  for (const sink of [proxy, hook, judge]) sink.open();
  proxy.say('session.open', { session: SESSION });
  calls.forEach(({ replayed, twice, differs }, at) => {
    const call = keyed(`call ${at}`);
    const said = { session: SESSION, call, match: call };
    const state = { session: SESSION, attrs: { phase: 'pre', state: `sha256:${'0'.repeat(64)}` } };
    const pre = proxy.say('state', state);
    const begun = proxy.say('call', { ...said, attrs: { tool: 'write_file' } });
    if (twice)
      hook.say('call', { ...said, match: differs ? keyed('another') : call, attrs: { tool: 'write_file' } });
    const ended = proxy.say('result', said);
    if (!replayed) return;
    judge.say('verdict', {
      session: SESSION,
      call,
      attrs: {
        status: 'PASS',
        mode: 'isolated',
        replays: 1,
        pre_index: pre,
        pre_leaf: log.leaf(pre),
        call_index: begun,
        call_leaf: log.leaf(begun),
        result_index: ended,
        result_leaf: log.leaf(ended),
      },
    });
  });
  proxy.stated('session.close', { session: SESSION });
  return log;
}

/** In parts, by who has read the entries already, and has nothing at hand but what is asked for. */
function inParts(log: SessionLog, asOf: AsOf): { readonly facts: SessionFacts; readonly steps: number } {
  const coverage = new LogCoverage({ log: 'belay.example/acme/agents' });
  for (const entry of log.entries) coverage.apply(entry);
  const derivation = new SessionDerivation(coverage, new Standing(log.entries), SESSION, asOf);
  log.entries.forEach((entry, index) => {
    if (entry.by === 'sender' && entry.envelope.session === SESSION) {
      derivation.take(index, log.bytes[index] as Buffer, entry);
    }
  });
  const cited = new Set(derivation.cited());
  const steps = derivation.steps((index) => {
    expect(cited.has(index)).toBe(true);
    return log.bytes[index];
  });
  for (let count = 0; ; count++) {
    const step = steps.next();
    if (step.done === true) return { facts: step.value, steps: count };
  }
}

function atOnce(log: SessionLog, asOf: AsOf): SessionFacts {
  const coverage = new LogCoverage({ log: 'belay.example/acme/agents' });
  for (const entry of log.entries) coverage.apply(entry);
  const indexes = log
    .sent()
    .flatMap(({ line, envelope }) => (envelope.session === SESSION ? line.index : []));
  return deriveSession(coverage, new Standing(log.entries), SESSION, asOf, {
    indexes,
    at: (index) => log.bytes[index],
  });
}

const asOfEnd = (log: SessionLog): AsOf => ({
  size: log.bytes.length,
  time: new Date(log.now).toISOString(),
});

describe('a session that is derived in parts', () => {
  test('comes to the same, and asks for the bytes of what verdicts cite alone', () => {
    const call = fc.record({ replayed: fc.boolean(), twice: fc.boolean(), differs: fc.boolean() });
    fc.assert(
      fc.property(fc.array(call, { maxLength: 12 }), (calls) => {
        const log = logOf(calls);
        const asOf = asOfEnd(log);
        expect(inParts(log, asOf).facts).toEqual(atOnce(log, asOf));
      }),
      { numRuns: 60 },
    );
  });

  test('can be left between calls', () => {
    const log = logOf(
      Array.from({ length: 1_600 }, () => ({ replayed: false, twice: true, differs: false })),
    );
    const asOf = asOfEnd(log);
    const { facts, steps } = inParts(log, asOf);
    expect(facts.calls).toBe(1_600);
    // Once for the statement, once for its bytes, and after 500, 1,000 and 1,500 calls.
    expect(steps).toBe(5);
    expect(facts).toEqual(atOnce(log, asOf));
  });
});
