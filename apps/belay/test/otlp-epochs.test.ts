import { join } from 'node:path';
import { SmallCollector } from '@belay/testkit';
import { recordData, readTrace } from '@belay/trace';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { freshFolder, start, tracesIn } from './proxied.js';

let collector: SmallCollector;
let state: string;
let env: Record<string, string>;
beforeEach(async () => {
  collector = new SmallCollector();
  state = join(freshFolder(), 'state');
  env = { BELAY_URL: await collector.listen(), BELAY_TOKEN: collector.token, BELAY_STATE: state };
});
afterEach(() => collector.close());

const TRACE = '5b8efff798038103d269b633813fc60c';
const spans = (from: number, count: number) => ({
  resourceSpans: [
    {
      resource: { attributes: [{ key: 'service.name', value: { stringValue: 'the-agent' } }] },
      scopeSpans: [
        {
          spans: Array.from({ length: count }, (_, i) => ({
            traceId: TRACE,
            spanId: String(from + i).padStart(16, '0'),
            attributes: [{ key: 'gen_ai.tool.name', value: { stringValue: 'add' } }],
          })),
        },
      ],
    },
  ],
});

test.each([true, false])(
  'an epoch that has become long is followed by the next one (sent: %s)',
  async (sent) => {
    const run = start(
      ['otlp', '--listen', '127.0.0.1:0', '--json', '--epoch-lines', '20'],
      sent ? env : { BELAY_STATE: state },
    );
    await expect.poll(() => run.stdout().toString()).toContain('\n');
    const { url } = JSON.parse(run.stdout().toString()) as { url: string };
    const post = async (from: number): Promise<void> => {
      const answer = await fetch(`${url}/v1/traces`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(spans(from, 10)),
      });
      expect(answer.status).toBe(200);
    };
    for (let from = 1; from <= 91; from += 10) {
      await post(from);
      // Two requests fill an epoch; what comes while the next one is being opened is still of the old one.
      const parts = (): number => tracesIn(join(state, 'traces')).length;
      if (from % 20 === 11) await expect.poll(parts).toBe(Math.ceil(from / 20) + 1);
    }
    // A span that was taken in an earlier epoch is known all the same.
    await post(1);
    run.child.kill('SIGTERM');
    expect(await run.ended).toBe(0);
    const summary = JSON.parse(run.stdout().toString().trim().split('\n').at(-1) as string) as Record<
      string,
      unknown
    >;
    expect(summary).toMatchObject({ epochs: 6, received: 110, taken: 100 });

    const paths = tracesIn(join(state, 'traces')).sort();
    expect(paths).toHaveLength(6);
    // Every trace says for itself who emitted what is in it.
    for (const path of paths.slice(0, 5)) {
      let text = '';
      for await (const item of readTrace(path))
        if ('record' in item) text += recordData(item.record)?.toString() ?? '';
      expect(text).toContain('the-agent');
    }
    if (!sent) return;

    const opens = collector.envelopes().filter(({ kind }) => kind === 'epoch.open');
    expect(new Set(opens.map(({ attrs }) => attrs?.['counter']))).toEqual(new Set([0, 1, 2, 3, 4, 5]));
    expect(opens).toHaveLength(6);
    for (const { attrs } of opens.filter(({ attrs }) => attrs?.['counter'] !== 0)) {
      expect(opens.map(({ epoch }) => epoch)).toContain(attrs?.['prev_epoch']);
    }
    expect(collector.envelopes().filter(({ kind }) => kind === 'epoch.close')).toHaveLength(6);
    expect(collector.envelopes().filter(({ kind }) => kind === 'x.span')).toHaveLength(100);
    const check = start(['trace', 'check', '--acks', ...paths, '--json'], env);
    check.child.stdin.end();
    expect(await check.ended).toBe(0);
    expect(JSON.parse(check.stdout().toString())).toMatchObject({
      verdict: 'INTACT',
      integrity: 'attested 100/100',
    });
  },
);
