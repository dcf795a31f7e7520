import { describe, expect, it } from 'vitest';
import { accepted, DSSE, TLOG_PROOF } from '../src/accept.js';
import { ProblemError } from '../src/problem.js';

describe('Accept', () => {
  it.each([
    [undefined, DSSE],
    ['', DSSE],
    ['*/*', DSSE],
    ['application/json', 'application/json'],
    ['text/html, */*;q=0.1', DSSE],
    [TLOG_PROOF, TLOG_PROOF],
    ['text/x.tlog-proof', 'text/x.tlog-proof'],
    [`application/json;q=0.2, ${TLOG_PROOF};q=0.8`, TLOG_PROOF],
    [`${TLOG_PROOF};q=0, application/json`, 'application/json'],
  ])('%s is answered as %s', (header, type) => {
    expect(accepted(header).type).toBe(type);
  });

  it.each(['image/png', 'text/*', `${DSSE};q=0`, 'constructor'])('%s is refused', (header) => {
    expect(() => accepted(header)).toThrow(ProblemError);
  });
});
