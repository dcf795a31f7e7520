import { expect, it } from 'vitest';
import { DEFAULT_POLICY, type SandboxPolicy } from '../src/policy.js';
import { seatbeltProfile } from '../src/seatbelt.js';

const profile = (policy: Partial<SandboxPolicy>, hidden: { path: string; folder: boolean }[] = []): string =>
  seatbeltProfile({ policy: { ...DEFAULT_POLICY, ...policy }, hidden, temporary: '/private/tmp/t' });

it('denies first, allows writing in the roots alone, and takes back what is hidden', () => {
  const text = profile({ roots: ['/Users/ann/ws'] }, [
    { path: '/Users/ann/.ssh', folder: true },
    { path: '/Users/ann/.netrc', folder: false },
  ]);
  const lines = text.trimEnd().split('\n');
  expect(lines.slice(0, 2)).toEqual(['(version 1)', '(deny default)']);
  expect(lines).toContain('(allow file-write* (subpath "/Users/ann/ws") (subpath "/private/tmp/t"))');
  expect(lines.at(-2)).toBe('(deny file-read* file-write* network-outbound (subpath "/Users/ann/.ssh"))');
  expect(lines.at(-1)).toBe('(deny file-read* file-write* network-outbound (literal "/Users/ann/.netrc"))');
  expect(lines).toContain('(deny network*)');
  expect(text).not.toContain('(allow network*)');
  // Every parenthesis that is opened is closed.
  expect(text.split('(').length).toBe(text.split(')').length);
});

it('gives a root back that lies in what is hidden', () => {
  const lines = profile({ roots: ['/s/scratch'] }, [{ path: '/s', folder: true }])
    .trimEnd()
    .split('\n');
  expect(lines.at(-1)).toBe('(allow file-read* file-write* (subpath "/s/scratch"))');
});

it('quotes paths, and refuses those that no literal can say', () => {
  expect(profile({ roots: ['/a "b" \\c'] })).toContain('(subpath "/a \\"b\\" \\\\c")');
  expect(() => profile({ roots: ['/a\n(allow default)'] })).toThrow(RangeError);
});

it.each([
  [{ mode: 'allow' }, '(allow network*)'],
  [{ mode: 'ports', ports: [8080, 9000] }, '(allow network-outbound (remote ip "localhost:9000"))'],
  [{ mode: 'loopback' }, '(allow network-outbound (remote ip "localhost:*"))'],
] as const)('network %j', (network, rule) => {
  const lines = profile({ network }).split('\n');
  expect(lines.indexOf(rule)).toBeGreaterThan(lines.indexOf('(deny network*)'));
});

it('has no unix sockets when strict', () => {
  expect(profile({ roots: ['/w'] })).toContain('unix-socket');
  expect(profile({ roots: ['/w'], profile: 'strict' })).not.toContain('unix-socket');
});
