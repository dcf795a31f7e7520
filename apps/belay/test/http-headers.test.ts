import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Admission,
  endToEnd,
  forwardedRequest,
  headerPairs,
  recordedHeaders,
  recordedTarget,
  refusal,
} from '../src/http-headers.js';

const SECRET = Buffer.alloc(32, 1);

describe('what passes', () => {
  test('fields of the connection stay behind, everything else keeps case, order and repetition', () => {
    expect(
      endToEnd([
        'hOsT',
        'a',
        'X-One',
        '1',
        'Connection',
        'close, X-Hop',
        'x-hop',
        'gone',
        'Keep-Alive',
        'timeout=5',
        'Set-Cookie',
        'a',
        'SET-COOKIE',
        'b',
        'TE',
        'trailers',
        'Transfer-Encoding',
        'chunked',
        'Proxy-Connection',
        'x',
        'Upgrade',
        'h2c',
        'Mcp-Param-Unknown',
        '=?base64?w6k=?=',
      ]),
    ).toEqual([
      'hOsT',
      'a',
      'X-One',
      '1',
      'Set-Cookie',
      'a',
      'SET-COOKIE',
      'b',
      'Mcp-Param-Unknown',
      '=?base64?w6k=?=',
    ]);
  });

  test('Connection can not take away what makes the message', () => {
    const raw = ['Host', 'a', 'Content-Length', '3', 'Connection', 'Content-Length, Host'];
    expect(endToEnd(raw)).toEqual(['Host', 'a', 'Content-Length', '3']);
  });

  test('Host is the server, in its old place; a body of unknown length stays one', () => {
    expect(forwardedRequest('GET', ['A', '1', 'host', 'localhost:1', 'B', '2'], 'server:80')).toEqual([
      'A',
      '1',
      'host',
      'server:80',
      'B',
      '2',
    ]);
    expect(forwardedRequest('POST', ['Host', 'x', 'transfer-encoding', 'chunked'], 's')).toEqual([
      'Host',
      's',
      'Transfer-Encoding',
      'chunked',
    ]);
  });
});

describe('who is let in', () => {
  const loopback: Admission = { port: 8080, loopbackOnly: true, hosts: [], origins: [] };
  const judge = (host: string, origin?: string, admission = loopback): string | undefined =>
    refusal(['Host', host, ...(origin === undefined ? [] : ['Origin', origin])], '/mcp', admission);

  test.each([
    '127.0.0.1:8080',
    'localhost:8080',
    'LOCALHOST:8080',
    '[::1]:8080',
    'app.localhost:8080',
    '127.1.2.3:8080',
  ])('Host %s', (host) => expect(judge(host)).toBeUndefined());
  test.each([
    'evil.example:8080',
    'evil.example',
    '127.0.0.1',
    '127.0.0.1:8081',
    '127.0.0.1.evil.example:8080',
    'localhost.evil.example:8080',
    '192.168.1.5:8080',
    '',
    'localhost:8080@evil.example',
  ])('not Host %j', (host) => expect(judge(host)).toBe('HOST'));

  test.each(['http://localhost:3000', 'http://127.0.0.1', 'https://[::1]:9', 'http://a.localhost'])(
    'Origin %s',
    (origin) => expect(judge('localhost:8080', origin)).toBeUndefined(),
  );
  test.each([
    'https://evil.example',
    'null',
    'http://localhost.evil.example',
    'file://localhost',
    '',
    'moz-extension://x',
  ])('not Origin %j', (origin) => expect(judge('localhost:8080', origin)).toBe('ORIGIN'));

  test('two Hosts, no Host, a target that is no path', () => {
    expect(refusal(['Host', 'localhost:8080', 'host', 'evil'], '/', loopback)).toBe('HOST');
    expect(refusal([], '/', loopback)).toBe('HOST');
    expect(refusal(['Host', 'localhost:8080'], 'http://evil/', loopback)).toBe('TARGET');
  });

  test('where more than loopback reaches the port, addresses are ours and names are not', () => {
    const open: Admission = { ...loopback, loopbackOnly: false, hosts: ['proxy.corp', 'other:1'] };
    expect(judge('192.168.1.5:8080', undefined, open)).toBeUndefined();
    expect(judge('[fe80::1]:8080', undefined, open)).toBeUndefined();
    expect(judge('proxy.corp:8080', undefined, open)).toBeUndefined();
    expect(judge('other:1', undefined, open)).toBeUndefined();
    expect(judge('evil.example:8080', undefined, open)).toBe('HOST');
    expect(
      judge('localhost:8080', 'https://app.corp', { ...open, origins: ['https://app.corp'] }),
    ).toBeUndefined();
  });
});

describe('what is put on record', () => {
  const CANARY = 'canary0123456789secret';

  test('no value that could be a credential, whatever the field is called', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.constantFrom(
            'Authorization',
            'cookie',
            'X-Api-Key',
            'Mcp-Session-Id',
            'Mcp-Param-Token',
            'Last-Event-ID',
            'Location',
            'WWW-Authenticate',
            'Set-Cookie',
            'Origin',
            'Forwarded',
          ),
          fc.stringMatching(/^x-[a-z]{1,10}$/),
        ),
        (name) => {
          const recorded = recordedHeaders([name, `Bearer ${CANARY}`], SECRET);
          expect(recorded.map(([each]) => each)).toEqual([name]);
          expect(JSON.stringify(recorded)).not.toContain(CANARY);
        },
      ),
    );
  });

  test('a session is known again, a token is not', () => {
    const [[, session], [, token]] = recordedHeaders(
      ['Mcp-Session-Id', 'abc', 'Authorization', 'Basic abc'],
      SECRET,
    ) as [[string, string], [string, string]];
    expect(session).toMatch(/^hmac-sha256:[0-9a-f]{64}$/);
    expect(recordedHeaders(['MCP-SESSION-ID', 'abc'], SECRET)).toEqual([['MCP-SESSION-ID', session]]);
    expect(token).toBe('');
  });

  test('of a target, names', () => {
    expect(recordedTarget('/.well-known/oauth-protected-resource/mcp', SECRET)).toBe(
      '/.well-known/oauth-protected-resource/mcp',
    );
    const target = recordedTarget(`/api/${CANARY}/mcp?key=${CANARY}&${CANARY}&a=1=2`, SECRET);
    expect(target).toMatch(
      /^\/api\/hmac-sha256:[0-9a-f]{64}\/mcp\?key=hmac-sha256:[0-9a-f]{64}&hmac-sha256:/,
    );
    expect(target).not.toContain(CANARY);
  });

  test('pairs are the list', () => {
    expect([...headerPairs(['a', '1', 'b', '2'])]).toEqual([
      ['a', '1'],
      ['b', '2'],
    ]);
  });
});
