import { canonical, collectorLine, entryBytes, parseEntry } from '@belay/envelope';
import { LogCoverage, type SentEntry } from '@belay/coverage';
import { askOfLogs, type LogQuestion } from '@belay/testkit/second-verifier';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { START, worldOf, worlds } from './world.js';

const runs = Number(process.env['BELAY_RUNS'] ?? 200);

/** The entries of a world, asked about half way and at the end, some time later. */
function questionOf(sent: readonly SentEntry[], later: number): LogQuestion {
  const entries = sent.map(({ line, body }) => entryBytes(collectorLine(line), body));
  const received = (size: number): number =>
    Date.parse(sent[size - 1]?.line.received ?? new Date(START).toISOString());
  const at = (size: number, seconds: number): LogQuestion['asks'][0] => ({
    size,
    time: new Date(received(size) + seconds * 1_000).toISOString(),
  });
  const half = Math.ceil(entries.length / 2);
  return { log: 'belay.example/acme/agents', entries, asks: [at(half, 0), at(entries.length, later)] };
}

function told({ log, entries, asks }: LogQuestion): string[] {
  const coverage = new LogCoverage({ log });
  return asks.map((asOf) => {
    for (const bytes of entries.slice(coverage.size, asOf.size)) coverage.apply(parseEntry(bytes));
    return canonical({
      epochs: [...coverage.epochs].map(({ sink, epoch }) => coverage.epochStatement(sink, epoch, asOf)),
      sinks: [...coverage.chains].map(({ sink }) => coverage.sinkStatement(sink, asOf)),
      sessions: {},
    });
  });
}

test.each([
  ['lost and reordered', true],
  ['lost, reordered, forged, given up and lied about', false],
])(
  'a second implementation makes the same statements, byte for byte, where lines were %s',
  async (_, honest) => {
    const made = fc.sample(fc.tuple(worlds(honest), fc.integer({ min: 0, max: 8_000 })), runs);
    const questions = made.map(([script, later]) => {
      return questionOf(
        worldOf(script).arrivals.map(({ entry }) => entry),
        later,
      );
    });
    const found = await askOfLogs(questions);
    expect(found).toHaveLength(questions.length);
    for (const [n, question] of questions.entries()) expect(found[n]).toEqual(told(question));
  },
);
