import { describe, expect, it } from 'vitest';
import { parsePeriod, parseTime, parseWait, reader } from '../src/query.js';

describe('a query', () => {
  it('has no parameters but the route’s own, each once', () => {
    expect(() => reader({ sesion: 'a' }, 'session')).toThrow(/there are session/);
    expect(() => reader({ session: ['a', 'b'] }, 'session')).toThrow('session is given once');
    const of = reader({ session: 'a' }, 'session', 'wait');
    expect([of('session'), of('wait')]).toEqual(['a', undefined]);
  });

  it.each([
    ['2026-01-31T00:00:00Z', '2026-01-31T00:00:00.000Z'],
    ['2026-01-31T01:30:00.25+01:30', '2026-01-31T00:00:00.250Z'],
  ])('takes the time %s', (text, time) => {
    expect(parseTime(text, 'from').toISOString()).toBe(time);
  });

  it.each(['', '2026-01-31', '2026-13-31T00:00:00Z', '31 Jan 2026', '2026-01-31T00:00:00', 'now', '0'])(
    'takes no time %j',
    (text) => {
      expect(() => parseTime(text, 'from')).toThrow(/^from is a time/);
    },
  );

  it('takes a period in any form of its times', () => {
    expect(parsePeriod('2026-01-01T00:00:00Z..2026-02-01T00:00:00.5+01:00')).toEqual({
      from: '2026-01-01T00:00:00.000Z',
      to: '2026-01-31T23:00:00.500Z',
    });
  });

  it.each([
    '',
    '..',
    '2026-01-01T00:00:00Z',
    '2026-01-01T00:00:00Z..',
    '..2026-01-01T00:00:00Z',
    '2026-01-01T00:00:00Z...2026-02-01T00:00:00Z',
    '2026-02-01T00:00:00Z..2026-01-01T00:00:00Z',
    '2026-01-01T00:00:00Z..2026-01-01T00:00:00Z',
  ])('takes no period %j', (text) => {
    expect(() => parsePeriod(text)).toThrow();
  });

  it('lets nobody wait for more than a minute', () => {
    expect([parseWait(undefined), parseWait('0'), parseWait('60')]).toEqual([0, 0, 60]);
    for (const text of ['61', '-1', '1.5', '', 'x', '1e1', '99999999999999999999']) {
      expect(() => parseWait(text)).toThrow(/^wait is 0 to 60/);
    }
  });
});
