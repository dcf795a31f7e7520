/**
 * The second verifier, infra/verifier/verify.py, comes to what the packages come to, byte for byte: statements and
 * judgements of histories at random, and verdicts on exports, good ones and ones that were tampered with.
 */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { LogCoverage, type SentEntry } from '@belay/coverage';
import { canonical, entryBytes, collectorLine, parseEntry } from '@belay/envelope';
import { deriveSession, Standing } from '@belay/receipt';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { worldOf, worlds } from '../../libs/coverage/test/world.js';
import { type History, historyOf, scripts } from './verifier/histories.js';

const VERIFY = fileURLToPath(new URL('../../infra/verifier/verify.py', import.meta.url));
const CORE = fileURLToPath(new URL('verifier/core.py', import.meta.url));
const runs = Number(process.env['BELAY_RUNS'] ?? 250);

/** What the packages say, as the JSON that the Python side writes. */
function told({ log, entries, asks }: History): string[] {
  const coverage = new LogCoverage({ log });
  const standing = new Standing();
  return asks.map(({ size, time }) => {
    for (const bytes of entries.slice(coverage.size, size)) {
      const entry = parseEntry(bytes);
      coverage.apply(entry);
      standing.apply(entry);
    }
    const asOf = { size, time };
    const at = (index: number): Buffer | undefined => entries[index];
    const sessions = [...coverage.sessions].map(({ session }) => {
      const indexes = entries.flatMap((bytes, index) => {
        const entry = parseEntry(bytes);
        return index < size && entry.by === 'sender' && entry.envelope.session === session ? index : [];
      });
      const facts = deriveSession(coverage, standing, session, asOf, { indexes, at });
      const { statement, judgement, policy, calls, levels, recorders, verdicts, issuers, evidence } = facts;
      const { disposition } = judgement;
      const authorities = judgement.calls.map(({ authority }) => authority);
      return [
        session,
        {
          statement,
          disposition,
          authorities,
          policy,
          calls,
          levels,
          recorders,
          verdicts,
          issuers,
          evidence,
        },
      ] as const;
    });
    return canonical({
      epochs: [...coverage.epochs].map(({ sink, epoch }) => coverage.epochStatement(sink, epoch, asOf)),
      sinks: [...coverage.chains].map(({ sink }) => coverage.sinkStatement(sink, asOf)),
      sessions: Object.fromEntries(sessions),
    });
  });
}

/** What `verify.py` says of the same, in one process. */
async function toldByPython(histories: readonly History[]): Promise<string[][]> {
  const child = spawn('python3', [CORE, VERIFY], { stdio: ['pipe', 'pipe', 'inherit'] });
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  for (const { log, entries, asks } of histories) {
    child.stdin.write(
      `${JSON.stringify({ log, entries: entries.map((e) => e.toString('base64')), asks })}\n`,
    );
  }
  child.stdin.end();
  expect(await ended).toBe(0);
  const lines = Buffer.concat(chunks).toString().split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line) as string[]);
}

async function agree(histories: readonly History[]): Promise<void> {
  const found = await toldByPython(histories);
  expect(found).toHaveLength(histories.length);
  histories.forEach((history, n) => {
    told(history).forEach((right, ask) => {
      const other = found[n]?.[ask] ?? 'null';
      if (other !== right) expect(JSON.parse(other)).toEqual(JSON.parse(right));
      expect(other).toBe(right);
    });
  });
}

function asHistory(sent: readonly SentEntry[], later: number): History {
  const entries = sent.map(({ line, body }) => {
    const { v: _, ...fields } = line;
    return entryBytes(collectorLine(fields), body);
  });
  const last = Date.parse(sent.at(-1)?.line.received ?? '2026-01-01T00:00:00.000Z');
  const size = entries.length;
  const asks = [Math.ceil(size / 2), size].map((part, i) => ({
    size: part,
    time: i === 0 ? (sent[part - 1]?.line.received as string) : new Date(last + later * 1_000).toISOString(),
  }));
  return { log: sent[0]?.line.log as string, entries, asks };
}

test('statements on epochs and sinks whose lines were lost, reordered, forged, given up', async () => {
  for (const honest of [true, false]) {
    const made = fc.sample(fc.tuple(worlds(honest), fc.integer({ min: 0, max: 8_000 })), runs);
    const histories = made
      .map(([script, later]) =>
        asHistory(
          worldOf(script).arrivals.map(({ entry }) => entry),
          later,
        ),
      )
      .filter(({ entries }) => entries.length > 0);
    await agree(histories);
  }
});

test('statements, authority and disposition of sessions, whatever sinks, verifiers, auditors and admins do', async () => {
  const histories = fc.sample(scripts, runs).map(historyOf);
  await agree(histories);
  const dispositions = new Set<string>();
  for (const history of histories) {
    for (const text of told(history)) {
      const { sessions } = JSON.parse(text) as {
        sessions: Record<string, { disposition: { status: string } }>;
      };
      for (const { disposition } of Object.values(sessions)) dispositions.add(disposition.status);
    }
  }
  // What the generator never makes is never compared.
  const all = ['affirmed', 'contested', 'incomplete', 'open', 'unverified', 'violated'];
  expect([...dispositions].sort()).toEqual(all);
});
