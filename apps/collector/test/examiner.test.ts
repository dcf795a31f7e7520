import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { PROJECT } from '@belay/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { examine, type Question, Unfit } from '../src/examine.js';
import { Examiner } from '../src/examiner.js';
import { Account, value } from './account.js';

/** The compiled one: threads run no sources. */
const PROGRAM = new URL('../dist/examine-thread.js', import.meta.url);

let account: Account;
let dir: string;
/** Padding, so that a question is large enough for a thread. */
const LARGE = Buffer.alloc(64 * 1024, 0x20);

beforeAll(async () => {
  account = await Account.open();
  dir = mkdtempSync(join(tmpdir(), 'belay-examiner-'));
});

afterAll(async () => {
  await account.close();
  rmSync(dir, { recursive: true, force: true });
});

describe('the examining thread', () => {
  it('comes to what this one would, and refuses as it does', async () => {
    await account.happen(6);
    const { payload, facts, head } = await account.draft();
    const { identity: log } = account;
    const many = Array.from({ length: 60 }, () => facts.statementBytes);
    const questions: Question[] = [
      { kind: 'statements', bytes: many },
      { kind: 'statements', bytes: [facts.statementBytes, LARGE] },
      { kind: 'size', payload: Buffer.concat([payload, LARGE]) },
      { kind: 'size', payload: LARGE },
      { kind: 'claim', payload: Buffer.concat([payload, LARGE]), log, head },
      { kind: 'manifest', payload: LARGE },
    ];
    const examiner = new Examiner(PROGRAM);
    const outcome = async (work: () => unknown) => {
      try {
        return { answer: await work() };
      } catch (error) {
        if (error instanceof Unfit) return { unfit: error.message };
        throw error;
      }
    };
    const both = await Promise.all(
      questions.map(async (question) => ({
        beside: await outcome(() => examiner.examine(question)),
        here: await outcome(() => examine(question)),
      })),
    );
    for (const { beside, here } of both) expect(beside).toEqual(here);
    expect(both.map(({ here }) => 'answer' in here)).toEqual([true, false, true, false, false, false]);
    const digest = createHash('sha256').update(LARGE).digest('hex');
    expect(both[1]?.beside).toMatchObject({ unfit: expect.stringMatching(digest) as string });
    await examiner.close();
    await examiner.close();
  });

  it('that dies fails what it was asked, and the next question has another', async () => {
    const mortal = join(dir, 'mortal.mjs');
    writeFileSync(
      mortal,
      `import { parentPort } from 'node:worker_threads';
       parentPort.on('message', ({ id, question: { payload } }) => {
         if (payload[0] === 0x78) process.exit(3);
         parentPort.postMessage({ id, answer: payload.length });
       });`,
    );
    const examiner = new Examiner(pathToFileURL(mortal));
    const ask = (first: string) =>
      examiner.examine({ kind: 'size', payload: Buffer.concat([Buffer.from(first), LARGE]) });
    expect(await ask('a')).toBe(LARGE.length + 1);
    const fate = await Promise.allSettled([ask('x'), ask('b')]);
    expect(fate.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(await ask('c')).toBe(LARGE.length + 1);
    await examiner.close();
  });

  it('that cannot be started fails the question, and not the process', async () => {
    const examiner = new Examiner(pathToFileURL(join(dir, 'nowhere.mjs')));
    await expect(examiner.examine({ kind: 'size', payload: LARGE })).rejects.toThrow();
    // What is small needs none.
    const { payload } = await account.draft();
    expect(await examiner.examine({ kind: 'size', payload })).toBeGreaterThan(0);
    value(await account.service.issue({ project: PROJECT, payload }));
    await examiner.close();
  });
});
