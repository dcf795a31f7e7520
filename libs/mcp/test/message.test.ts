import {
  Correlator,
  Framer,
  readFrame,
  type Content,
  type Correlated,
  type Direction,
  type Message,
} from '@belay/mcp';
import { describe, expect, test } from 'vitest';

function read(text: string | Buffer): Content {
  let content: Content | undefined;
  const framer = new Framer();
  const take = (frame: Parameters<typeof readFrame>[0]): void => {
    content = readFrame(frame);
  };
  framer.push(Buffer.from(text as string), take);
  framer.end(take);
  return content as Content;
}

describe('what a frame says', () => {
  test.each<[string, string]>([
    ['42', 'n:42'],
    ['"42"', 's:42'],
    ['""', 's:'],
    ['0', 'n:0'],
    ['-1', 'n:-1'],
    ['1.0', 'n:1'],
    ['1e2', 'n:100'],
    ['"1.0"', 's:1.0'],
    [`"${'x'.repeat(5000)}"`, `s:${'x'.repeat(5000)}`],
    ['9007199254740993', 'n:9007199254740993'],
    ['9007199254740992', 'n:9007199254740992'],
  ])('id %.20s', (text, key) => {
    const { messages, findings } = read(`{"jsonrpc":"2.0","method":"m","id":${text}}\n`);
    expect(messages).toMatchObject([{ type: 'request', id: key }]);
    expect(findings).toEqual([]);
  });

  test.each([
    ['null', 'null', 'ID_NULL'],
    ['1.5', 'n:1.5', 'ID_FRACTIONAL'],
    ['{}', 'invalid', 'ID_INVALID'],
  ])('id %s is read and named', (text, id, finding) => {
    expect(read(`{"method":"m","id":${text}}`)).toMatchObject({
      messages: [{ type: 'request', id }],
      findings: [finding],
    });
  });

  test.each<[string, string | Buffer, Partial<Content>]>([
    ['a banner', 'Starting…\n', { kind: 'text', messages: [], findings: ['NON_JSON'] }],
    ['a blank line', '\r\n', { kind: 'blank', messages: [], findings: [] }],
    ['an empty batch', '[]\n', { kind: 'batch', messages: [], findings: [] }],
    ['a lone scalar', '5\n', { kind: 'message', findings: ['NOT_JSON_RPC'] }],
    [
      'an object of another kind',
      '{"a":1}\n',
      { kind: 'message', messages: [{ type: 'unknown' }], findings: ['NOT_JSON_RPC'] },
    ],
    [
      'invalid UTF-8',
      Buffer.from('7b226d6574686f64223a22ff227d0a', 'hex'),
      { kind: 'message', findings: ['INVALID_UTF8'] },
    ],
    ['a real U+FFFD', '{"method":"\ufffd"}\n', { kind: 'message', findings: [] }],
    ['a byte order mark', '\ufeff{"method":"m"}\n', { kind: 'message', findings: ['BYTE_ORDER_MARK'] }],
    [
      'line separators and NUL escapes',
      '{"method":"\u2028\\u0000\\ud800"}\n',
      { kind: 'message', findings: [] },
    ],
  ])('%s', (_, text, expected) => {
    expect(read(text)).toMatchObject(expected);
  });

  test('a batch is its members, in order', () => {
    expect(
      read('[{"id":1,"method":"a"},{"method":"b"},{"id":1,"result":{}},7]').messages.map(
        (message) => message.type,
      ),
    ).toEqual(['request', 'notification', 'response', 'unknown']);
  });
});

describe('which answer belongs to which request', () => {
  function run(...steps: readonly [Direction, string][]): string[] {
    const correlator = new Correlator();
    const say = (step: Correlated): string => {
      switch (step.type) {
        case 'call':
          return `call ${step.call.call}${step.call.idInUse ? ' id in use' : ''}`;
        case 'answer':
          return `answer ${step.call.call}${step.late ? ' late' : ''}`;
        case 'stray':
          return `stray ${step.duplicateOf ?? ''}`.trimEnd();
        case 'cancel':
          return `cancel ${step.call?.call ?? 'nothing'}`;
        default:
          return 'other';
      }
    };
    return steps.flatMap(([direction, text]) =>
      read(text).messages.map((message) => say(correlator.observe(direction, message))),
    );
  }
  const ask = (id: string): [Direction, string] => [
    'c2s',
    `{"id":${id},"method":"tools/call","params":{"name":"t"}}`,
  ];
  const answer = (id: string): [Direction, string] => ['s2c', `{"id":${id},"result":{}}`];
  const cancel = (id: string): [Direction, string] => [
    'c2s',
    `{"method":"notifications/cancelled","params":{"requestId":${id}}}`,
  ];

  test('42 and "42" in flight at once do not collide', () => {
    expect(run(ask('42'), ask('"42"'), answer('"42"'), answer('42'))).toEqual([
      'call 1',
      'call 2',
      'answer 2',
      'answer 1',
    ]);
  });

  test('1.0 is answered by 1', () => {
    expect(run(ask('1.0'), answer('1'))).toEqual(['call 1', 'answer 1']);
  });

  test('an id used again, after its answer and before', () => {
    expect(run(ask('1'), answer('1'), ask('1'), ask('1'), answer('1'), answer('1'))).toEqual([
      'call 1',
      'answer 1',
      'call 2',
      'call 3 id in use',
      'answer 2',
      'answer 3',
    ]);
  });

  test('a duplicate answer, and one that nobody asked for', () => {
    expect(run(ask('1'), answer('1'), answer('1'), answer('9'))).toEqual([
      'call 1',
      'answer 1',
      'stray 1',
      'stray',
    ]);
  });

  test('cancellation retires the call, and a late answer still finds it', () => {
    expect(run(ask('1'), cancel('1'), answer('1'))).toEqual(['call 1', 'cancel 1', 'answer 1 late']);
    expect(run(ask('1'), cancel('1'), ask('1'), answer('1'), answer('1'))).toEqual([
      'call 1',
      'cancel 1',
      'call 2',
      'answer 2',
      'answer 1 late',
    ]);
    expect(run(cancel('5'), cancel('{}'), cancel('null'))).toEqual([
      'cancel nothing',
      'cancel nothing',
      'cancel nothing',
    ]);
  });

  test("the server's requests have ids of their own", () => {
    expect(
      run(ask('1'), ['s2c', '{"id":1,"method":"roots/list"}'], ['c2s', '{"id":1,"result":{}}'], answer('1')),
    ).toEqual(['call 1', 'call 2', 'answer 2', 'answer 1']);
  });

  test('conversations on one connection do not mix', () => {
    const correlator = new Correlator();
    const observe = (conversation: string, [direction, text]: [Direction, string]) => {
      const [message] = read(text).messages as [Message];
      const seen = correlator.observe(direction, message, conversation);
      return 'call' in seen ? `${seen.type} ${seen.call?.call}` : seen.type;
    };
    expect(observe('a', ask('1'))).toBe('call 1');
    expect(observe('b', ask('1'))).toBe('call 2');
    expect(observe('c', answer('1'))).toBe('stray');
    expect(observe('b', cancel('1'))).toBe('cancel 2');
    expect(observe('a', answer('1'))).toBe('answer 1');
    expect(observe('b', answer('1'))).toBe('answer 2');
  });

  test('a batch counts as its members', () => {
    expect(
      run(
        ['c2s', '[{"id":1,"method":"a"},{"id":2,"method":"b"}]'],
        ['s2c', '[{"id":2,"result":0},{"id":1,"error":{}}]'],
      ),
    ).toEqual(['call 1', 'call 2', 'answer 2', 'answer 1']);
  });

  test('what is never answered is counted, and forgotten within bounds', () => {
    const correlator = new Correlator();
    const [request] = read('{"id":1,"method":"m"}').messages;
    for (let i = 0; i < 70_000; i++)
      correlator.observe('c2s', { ...(request as never as object), id: `n:${i}` } as never);
    expect(correlator.forgotten).toBe(70_000 - 65_536);
    expect(correlator.unanswered).toBe(65_536);
  });
});
