import { EnvelopeError, formatCollectorBody } from '@belay/envelope';
import { describe, expect, it } from 'vitest';
import { createProjectBody, declareSinkBody, issueTokenBody } from '../src/http.js';

/** What the API takes about tokens and sinks becomes statements of the log: both have to draw the same line. */

const by = `adm_${'0'.repeat(26)}`;
const token = (more: object) => ({ kind: 'token.issued', v: 1, token: `tok_${'0'.repeat(26)}`, by, ...more });
const sink = (more: object) => ({ kind: 'sink.declared', v: 1, sink: 's', by, ...more });

function isStatement(body: object): boolean {
  try {
    formatCollectorBody(body as never);
    return true;
  } catch (error) {
    if (error instanceof EnvelopeError) return false;
    throw error;
  }
}

const DOMAINS = ['a', 'A-z0/9.:@+_-', 'x'.repeat(128), '', 'x'.repeat(129), 'a b', 'a\n', 'ü', 'a,b', 'a\0'];
const SINKS = [
  ['a'],
  Array.from({ length: 64 }, (_, i) => `s${i}`),
  [],
  Array.from({ length: 65 }, (_, i) => `s${i}`),
  ['-a'],
  ['a'.repeat(64)],
  ['a'.repeat(65)],
  ['a\n'],
  [''],
];
const BEATS = [1, 86_400, 0, 86_401, 1.5, -1];

describe('what the API takes and what a statement may say are the same for', () => {
  it.each(DOMAINS)('the domain %j', (domain) => {
    const taken = issueTokenBody.safeParse({ domain }).success;
    expect(isStatement(token({ role: 'agent', domain }))).toBe(taken);
    expect(declareSinkBody.safeParse({ domain }).success).toBe(taken);
    expect(isStatement(sink({ domain }))).toBe(taken);
  });

  it.each(SINKS.map((sinks) => [sinks.length, sinks] as const))('%d sinks', (_, sinks) => {
    expect(isStatement(token({ role: 'agent', sinks }))).toBe(issueTokenBody.safeParse({ sinks }).success);
  });

  it.each(BEATS)('a heartbeat of %d', (heartbeat) => {
    expect(isStatement(sink({ heartbeat }))).toBe(declareSinkBody.safeParse({ heartbeat }).success);
  });

  it.each(['agent', 'sink', 'verifier', 'collector', ''])('the role %j', (role) => {
    expect(isStatement(token({ role }))).toBe(issueTokenBody.safeParse({ role }).success);
  });
});

describe('a name', () => {
  it.each([' ', '\t', '\u00a0', '\u2003\u3000', '', 'a\0', 'a\u0085'])('is not %j', (name) => {
    expect(createProjectBody.safeParse({ name }).success).toBe(false);
  });

  it.each(['a', ' a ', 'Ünïcode', '名前', '1'])('may be %j', (name) => {
    expect(createProjectBody.safeParse({ name }).success).toBe(true);
  });
});
