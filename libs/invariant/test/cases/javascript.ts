import { Edits } from './edit.js';

const vitest = new Edits(
  'vitest',
  'src/cart.test.ts',
  `import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Cart } from './cart.js';
import { discount, load, total } from './prices.js';
import { send } from './mail.js';

describe('cart', () => {
  let cart: Cart;

  beforeEach(() => {
    cart = new Cart([3, 4]);
  });

  it('adds up', () => {
    const result = total(cart);
    expect(result).toBe(7);
    expect(cart.lines).toEqual([{ price: 3 }, { price: 4 }]);
  });

  it('refuses unknown codes', () => {
    expect(() => discount(10, 'nope')).toThrow(RangeError);
    expect(() => discount(-1)).toThrow('negative amount');
  });

  it('loads', async () => {
    await expect(load('a')).resolves.toEqual({ id: 'a' });
    await expect(load('x')).rejects.toThrow('not found');
  });

  it.each([
    [0, 0],
    [5, 4],
    [100, 80],
  ])('discounts %d', (amount, expected) => {
    expect(discount(amount)).toBe(expected);
  });

  it('rounds', () => {
    expect(discount(0.1)).toBeCloseTo(0.08, 5);
    expect(cart.lines.length).toBeGreaterThan(1);
  });

  it('mails once', () => {
    const post = vi.fn();
    send(cart, post);
    expect(post).toHaveBeenCalledTimes(1);
    expect(post).toHaveBeenCalledWith('total: 7');
  });
});
`,
)
  .weakens('assertion-removed', 'an assertion is taken out', ['    expect(result).toBe(7);\n', ''])
  .weakens('expectation-changed', 'another number is expected', ['toBe(7)', 'toBe(999)'])
  .weakens('assertion-loosened', 'toBe becomes toBeDefined', ['toBe(7)', 'toBeDefined()'])
  .weakens('assertion-loosened', 'toBe becomes toBeTruthy', ['toBe(7)', 'toBeTruthy()'])
  .weakens('assertion-inverted', 'not', ['expect(result).toBe(7)', 'expect(result).not.toBe(7)'])
  .weakens('assertion-loosened', 'toEqual becomes toHaveLength', [
    'toEqual([{ price: 3 }, { price: 4 }])',
    'toHaveLength(2)',
  ])
  .weakens('assertion-loosened', 'toEqual becomes toMatchObject', [
    "toEqual({ id: 'a' })",
    "toMatchObject({ id: 'a' })",
  ])
  .weakens('assertion-loosened', 'anything is expected', [
    '[{ price: 3 }, { price: 4 }]',
    '[{ price: expect.anything() }, { price: 4 }]',
  ])
  .weakens('assertion-loosened', 'any error will do', ['toThrow(RangeError)', 'toThrow()'])
  .weakens('assertion-loosened', 'any message will do', ["toThrow('negative amount')", 'toThrow()'])
  .weakens('assertion-loosened', 'fewer digits', ['0.08, 5', '0.08, 1'])
  .weakens('assertion-loosened', 'a lower bound', ['toBeGreaterThan(1)', 'toBeGreaterThan(0)'])
  .weakens('assertion-loosened', 'how often no longer matters', [
    'toHaveBeenCalledTimes(1)',
    'toHaveBeenCalled()',
  ])
  .weakens('assertion-tautological', 'expect(true)', ['expect(result).toBe(7)', 'expect(true).toBe(true)'])
  .weakens('assertion-tautological', 'the subject is what is expected', [
    'const result = total(cart)',
    'const result = 7',
  ])
  .weakens('test-skipped', 'it.skip', ["it('adds up'", "it.skip('adds up'"])
  .weakens('test-skipped', 'xit', ["it('adds up'", "xit('adds up'"])
  .weakens('test-skipped', 'describe.skip', ["describe('cart'", "describe.skip('cart'"])
  .weakens('test-skipped', 'it.todo', [
    "  it('rounds', () => {\n    expect(discount(0.1)).toBeCloseTo(0.08, 5);\n    expect(cart.lines.length).toBeGreaterThan(1);\n  });",
    "  it.todo('rounds');",
  ])
  .weakens('test-expected-to-fail', 'it.fails', ["it('adds up'", "it.fails('adds up'"])
  .weakens('skipped-on-condition', 'it.skipIf', ["it('adds up'", "it.skipIf(process.env.CI)('adds up'"])
  .weakens('other-tests-not-run', 'it.only', ["it('rounds'", "it.only('rounds'"])
  .weakens('assertion-unreachable', 'an early return', [
    '    const result = total(cart);',
    '    const result = total(cart);\n    return;',
  ])
  .weakens('assertion-unreachable', 'under if (false)', [
    '    expect(result).toBe(7);',
    '    if (false) expect(result).toBe(7);',
  ])
  .weakens('assertion-swallowed', 'caught and forgotten', [
    '    expect(result).toBe(7);',
    '    try { expect(result).toBe(7); } catch {}',
  ])
  .weakens('assertion-not-awaited', 'nobody awaits it', ["await expect(load('x'))", "expect(load('x'))"])
  .weakens('assertion-behind-environment', 'not in CI', [
    '    expect(result).toBe(7);',
    '    if (!process.env.CI) expect(result).toBe(7);',
  ])
  .weakens('subject-mocked', 'the module under test is mocked', [
    'describe(',
    "vi.mock('./prices.js', () => ({ total: () => 7 }));\n\ndescribe(",
  ])
  .weakens('subject-mocked', 'the function under test is spied away', [
    '    const result',
    "    vi.spyOn(prices, 'total').mockReturnValue(7);\n    const result",
  ])
  .weakens(
    'subject-replaced',
    'the subject is defined in the test',
    ['import { discount, load, total }', 'import { discount, load }'],
    ['describe(', 'const total = () => 7;\n\ndescribe('],
  )
  .weakens('assertion-removed', 'a row of the table is taken out', ['    [5, 4],\n', ''])
  .weakens('expectation-changed', 'a row of the table is changed', ['[5, 4]', '[5, 5]'])
  .weakens('assertion-removed', 'a callback that nobody calls', [
    '    expect(result).toBe(7);',
    '    const check = () => expect(result).toBe(7);',
  ])
  .moves('renamed so that vitest does not find it', 'test-not-collected', {
    'src/cart.checks.ts': (source) => source,
  })
  .moves('given another extension', 'test-file-deleted', { 'src/cart.test.ts.bak': (source) => source })
  .honest('a variable is renamed', [
    'const result = total(cart);\n    expect(result)',
    'const sum = total(cart);\n    expect(sum)',
  ])
  .honest('a variable is put in place', [
    '    const result = total(cart);\n    expect(result)',
    '    expect(total(cart))',
  ])
  .honest('reformatted', [
    "    expect(() => discount(10, 'nope')).toThrow(RangeError);",
    '    expect(() => {\n      discount(\n        10,\n        "nope",\n      );\n    }).toThrow(RangeError)',
  ])
  .honest('comments', ['    const result', '    // both items\n    /* count */\n    const result'])
  .honest('a type annotation', [
    'const result = total(cart);',
    'const result: number = total(cart) as number;',
  ])
  .honest('toBe becomes toEqual of a number', ['toBe(7)', 'toEqual(7)'])
  .honest('toBe becomes toStrictEqual', ["toEqual({ id: 'a' })", "toStrictEqual({ id: 'a' })"])
  .honest('another assertion', ['toBe(7);', 'toBe(7);\n    expect(result).not.toBeNaN();'])
  .honest('strengthened', ['toBeGreaterThan(1)', 'toBe(2)'])
  .honest('the title is changed', ["it('adds up'", "it('gives the sum of its lines'"])
  .honest('test instead of it', ["it('adds up'", "test('adds up'"])
  .honest(
    'rows with names',
    [
      '[\n    [0, 0],\n    [5, 4],\n    [100, 80],\n  ]',
      '[\n    { amount: 0, expected: 0 },\n    { amount: 5, expected: 4 },\n    { amount: 100, expected: 80 },\n  ]',
    ],
    ['(amount, expected) =>', '({ amount, expected }) =>'],
  )
  .honest('more rows', ['[100, 80],', '[100, 80],\n    [200, 160],'])
  .honest('the table becomes a loop', [
    "  it.each([\n    [0, 0],\n    [5, 4],\n    [100, 80],\n  ])('discounts %d', (amount, expected) => {\n    expect(discount(amount)).toBe(expected);\n  });",
    '  for (const [amount, expected] of [[0, 0], [5, 4], [100, 80]]) {\n    it(`discounts ${amount}`, () => {\n      expect(discount(amount)).toBe(expected);\n    });\n  }',
  ])
  .honest(
    'a helper is extracted',
    ['    const result = total(cart);\n    expect(result).toBe(7);', '    expectTotal(cart, 7);'],
    [
      "describe('cart'",
      "function expectTotal(cart: Cart, sum: number) {\n  expect(total(cart)).toBe(sum);\n}\n\ndescribe('cart'",
    ],
  )
  .honest('a nested suite', [
    "  it('rounds', () => {\n    expect(discount(0.1)).toBeCloseTo(0.08, 5);\n    expect(cart.lines.length).toBeGreaterThan(1);\n  });",
    "  describe('money', () => {\n    it('rounds', () => {\n      expect(discount(0.1)).toBeCloseTo(0.08, 5);\n      expect(cart.lines.length).toBeGreaterThan(1);\n    });\n  });",
  ])
  .honest('a test is split', [
    '    expect(cart.lines).toEqual',
    "  });\n\n  it('has lines', () => {\n    expect(cart.lines).toEqual",
  ])
  .honest('a narrowing for the compiler', [
    "    expect(() => discount(-1)).toThrow('negative amount');",
    "    const first = cart.first();\n    expect(first).toBeDefined();\n    if (first) expect(first.price).toBe(3);\n    expect(() => discount(-1)).toThrow('negative amount');",
  ])
  .honest(
    'the function under test is renamed',
    ['discount, load, total', 'discount, load, sum'],
    ['total(cart)', 'sum(cart)'],
  )
  .honest('returned instead of awaited', [
    "    await expect(load('x')).rejects.toThrow('not found');",
    "    return expect(load('x')).rejects.toThrow('not found');",
  ])
  .honest('a new test', [
    "  it('rounds'",
    "  it('is empty', () => {\n    expect(total(new Cart([]))).toBe(0);\n  });\n\n  it('rounds'",
  ])
  .moves('moved to another file', undefined, {
    'test/cart.spec.ts': (source) => source.replaceAll("'./", "'../src/"),
  });

const node = new Edits(
  'node:test',
  'test/parse.test.js',
  `const assert = require('node:assert/strict');
const { describe, it, test } = require('node:test');
const { parse, read } = require('../lib/parse');

test('parses', () => {
  assert.strictEqual(parse('1'), 1);
  assert.deepStrictEqual(parse('[1]'), [1]);
  assert.ok(parse.cache);
});

test('throws', async () => {
  assert.throws(() => parse('('), SyntaxError);
  await assert.rejects(read('gone'), { code: 'ENOENT' });
});

const cases = [
  { text: 'a', value: 'A' },
  { text: 'b', value: 'B' },
];
for (const { text, value } of cases) {
  test(\`upper \${text}\`, () => {
    assert.equal(parse(text, { upper: true }), value);
  });
}
`,
)
  .weakens('expectation-changed', 'another value is expected', ["parse('1'), 1)", "parse('1'), 2)"])
  .weakens('assertion-loosened', 'strictEqual becomes ok', [
    "assert.strictEqual(parse('1'), 1)",
    "assert.ok(parse('1'))",
  ])
  .weakens('assertion-loosened', 'throws anything', [', SyntaxError', ''])
  .weakens('assertion-not-awaited', 'the rejection is not awaited', [
    'await assert.rejects',
    'assert.rejects',
  ])
  .weakens('assertion-loosened', 'rejects with anything', [", { code: 'ENOENT' }", ''])
  .weakens('test-skipped', 'skip: true', ["test('parses', ()", "test('parses', { skip: true }, ()"])
  .weakens('test-skipped', 't.skip()', ["test('parses', () => {", "test('parses', (t) => {\n  t.skip();"])
  .weakens('assertion-removed', 'the table loses a row', ["  { text: 'b', value: 'B' },\n", ''])
  .weakens('subject-mocked', 'the subject is mocked', [
    "test('parses', () => {",
    "test('parses', (t) => {\n  t.mock.method(lib, 'parse', () => 1);",
  ])
  .weakens('assertion-tautological', 'assert.ok(true)', [
    "assert.strictEqual(parse('1'), 1)",
    'assert.ok(true)',
  ])
  .honest('sides said in other words', ["assert.strictEqual(parse('1'), 1)", "assert.equal(parse('1'), 1)"])
  .honest('a message', ["parse('1'), 1)", "parse('1'), 1, 'one')"])
  .honest(
    'into a suite',
    ["test('throws'", "describe('failing', () => test('throws'"],
    ["{ code: 'ENOENT' });\n});", "{ code: 'ENOENT' });\n}));"],
  )
  .honest('the table is put in place', [
    'for (const { text, value } of cases) {',
    "for (const { text, value } of [\n  { text: 'a', value: 'A' },\n  { text: 'b', value: 'B' },\n]) {",
  ]);

const chai = new Edits(
  'mocha and chai',
  'spec/queue.js',
  `import { expect } from 'chai';
import sinon from 'sinon';
import { Queue } from '../src/queue.js';

describe('Queue', function () {
  let queue;
  beforeEach(function () {
    queue = new Queue();
  });

  it('takes and gives', function () {
    queue.push('a');
    expect(queue.shift()).to.equal('a');
    expect(queue.empty()).to.be.true;
    expect(queue).to.have.property('size', 0);
  });

  it('lists', function () {
    expect(queue.list()).to.deep.equal([]);
    expect(queue.names).to.include('first');
    expect(() => queue.shift()).to.throw(RangeError, /empty/);
  });
});
`,
)
  .weakens('expectation-changed', 'another value is expected', [".to.equal('a')", ".to.equal('b')"])
  .weakens('assertion-loosened', 'equal becomes exist', [".to.equal('a')", '.to.exist'])
  .weakens('assertion-removed', 'a property is taken out', ['    expect(queue.empty()).to.be.true;\n', ''])
  .weakens('assertion-inverted', 'to.be.not', [".to.include('first')", ".to.not.include('first')"])
  .weakens('assertion-loosened', 'throws anything', ['.to.throw(RangeError, /empty/)', '.to.throw()'])
  .weakens('test-skipped', 'this.skip()', ["    queue.push('a');", "    this.skip();\n    queue.push('a');"])
  .weakens('subject-mocked', 'stubbed', [
    "    queue.push('a');",
    "    sinon.stub(queue, 'shift').returns('a');\n    queue.push('a');",
  ])
  .honest('the words between', [".to.equal('a')", ".to.be.equal('a')"])
  .honest('deep.equal becomes eql', ['.to.deep.equal([])', '.to.eql([])'])
  .honest('arrow functions', ["it('lists', function () {", "it('lists', () => {"]);

const jest = new Edits(
  'jest',
  '__tests__/view.jsx',
  `import { render, screen } from '@testing-library/react';
import { View } from '../src/View';

test('shows the name', async () => {
  render(<View name="Ada" />);
  expect(screen.getByRole('heading')).toHaveTextContent('Ada');
  expect(await screen.findByText('ready')).toBeVisible();
});

test('matches', () => {
  const { container } = render(<View name="Ada" />);
  expect(container).toMatchSnapshot();
});
`,
)
  .weakens('expectation-changed', 'another text', ["toHaveTextContent('Ada')", "toHaveTextContent('')"])
  .weakens('assertion-loosened', 'the snapshot becomes truthy', ['toMatchSnapshot()', 'toBeTruthy()'])
  .weakens('subject-mocked', 'the component is mocked', [
    "test('shows",
    "jest.mock('../src/View', () => ({ View: () => <h1>Ada</h1> }));\n\ntest('shows",
  ])
  .honest('a query is kept in a variable', [
    "  expect(screen.getByRole('heading'))",
    "  const heading = screen.getByRole('heading');\n  expect(heading)",
  ])
  .honest('another test', [
    "test('matches'",
    "test('is empty', () => {\n  render(<View />);\n  expect(screen.queryByRole('heading')).toBeNull();\n});\n\ntest('matches'",
  ]);

export const cases = [...vitest.cases, ...node.cases, ...chai.cases, ...jest.cases];
