import { describe, expect, it } from 'vitest';
import { parseNatsUrl } from '../src/nats-url.js';

describe('NATS_URL', () => {
  it.each([
    ['nats://a:4222', { servers: ['nats://a:4222'] }],
    ['nats://a, tls://b:1', { servers: ['nats://a', 'tls://b:1'] }],
    ['nats://u:p%40ss@a:4222,nats://b', { servers: ['nats://a:4222', 'nats://b'], user: 'u', pass: 'p@ss' }],
    ['nats://u:p@a,nats://u:p@b', { servers: ['nats://a', 'nats://b'], user: 'u', pass: 'p' }],
    ['nats://s3cret@[::1]:4222', { servers: ['nats://[::1]:4222'], token: 's3cret' }],
  ])('%s is read', (text, servers) => {
    expect(parseNatsUrl(text)).toEqual(servers);
  });

  it.each(['', 'a:4222', 'http://u:secret@a', 'nats://u:secret@a,nats://v:secret@b', 'nats://a,,'])(
    '%s is refused, and nothing secret is said',
    (text) => {
      expect(() => parseNatsUrl(text)).toThrow(TypeError);
      expect(() => parseNatsUrl(text)).toThrow(/^(?!.*secret)/);
    },
  );
});
