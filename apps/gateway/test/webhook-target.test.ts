import { describe, expect, it } from 'vitest';
import { ProblemError } from '../src/problem.js';
import { parseTarget } from '../src/webhook-target.js';

const refusal = (url: string, isPrivate = false): string => {
  try {
    return `taken: ${parseTarget(url, isPrivate)}`;
  } catch (error) {
    if (error instanceof ProblemError && error.extras.field === 'url') return error.message;
    throw error;
  }
};

describe('the URL of a webhook', () => {
  it.each(['https://hooks.example/a?b=c', 'https://9.9.9.9:8443/', 'https://[2620:fe::fe]/x'])(
    '%s is taken',
    (url) => {
      expect(refusal(url)).toBe(`taken: ${url}`);
    },
  );

  it.each([
    'https://127.0.0.1:9443/',
    'https://2130706433/',
    'https://0x7f.1/',
    'https://10.1.2.3/',
    'https://169.254.169.254/latest',
    'https://[::1]/',
    'https://[::ffff:10.0.0.1]/',
    'https://[fd00::1]:9/',
    'https://localhost:9443/',
    'https://LOCALHOST./',
    'https://hooks.localhost/',
  ])('%s is refused at once, with what would allow it', (url) => {
    expect(refusal(url)).toMatch(
      /private or of the service.*`belay serve --webhook-private`, or WEBHOOK_PRIVATE=1/,
    );
    expect(refusal(url, true)).toMatch(/^taken: /);
  });

  it('over plain HTTP is refused with what would allow it', () => {
    expect(refusal('http://hooks.example/')).toMatch(
      /https:\/\/ URL; plain HTTP goes with `belay serve --webhook-private`/,
    );
    expect(refusal('http://10.0.0.1/', true)).toBe('taken: http://10.0.0.1/');
    expect(refusal('ftp://hooks.example/')).toBe('url is an https:// URL');
  });
});
