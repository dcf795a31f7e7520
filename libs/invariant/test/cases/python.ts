import { Edits } from './edit.js';

const pytest = new Edits(
  'pytest',
  'tests/test_cart.py',
  `import pytest

from shop.cart import Cart, discount, total

RATE = 0.2


@pytest.fixture
def cart():
    return Cart(items=[3, 4])


def test_total(cart):
    result = total(cart)
    assert result == 7
    assert cart.currency == "EUR"


def test_discount_is_rounded():
    assert discount(10, RATE) == pytest.approx(8.0, abs=1e-6)


def test_unknown_code():
    with pytest.raises(KeyError, match="no such code"):
        discount(10, "nope")


@pytest.mark.parametrize("amount, expected", [(0, 0), (5, 4), (100, 80)])
def test_discounts(amount, expected):
    assert discount(amount, RATE) == expected


def test_names(cart):
    names = cart.names()
    assert names == ["ham", "tea"]
    for name in names:
        assert name in cart
`,
)
  .weakens('assertion-removed', 'an assertion is taken out', ['    assert result == 7\n', ''])
  .weakens('assertion-removed', 'the body becomes pass', [
    '    assert discount(10, RATE) == pytest.approx(8.0, abs=1e-6)',
    '    pass',
  ])
  .weakens('expectation-changed', 'another number is expected', ['result == 7', 'result == 999'])
  .weakens('expectation-changed', 'another row is expected', ['(5, 4)', '(5, 5)'])
  .weakens('assertion-loosened', 'equal becomes at least', ['result == 7', 'result >= 7'])
  .weakens('assertion-inverted', 'equal becomes not equal', ['result == 7', 'result != 7'])
  .weakens('assertion-loosened', 'equal becomes truthy', ['assert result == 7', 'assert result'])
  .weakens('assertion-loosened', 'the whole becomes its length', [
    'names == ["ham", "tea"]',
    'len(names) == 2',
  ])
  .weakens('assertion-loosened', 'tolerance a million times as wide', ['abs=1e-6', 'abs=1'])
  .weakens('assertion-loosened', 'any exception will do', [
    'pytest.raises(KeyError, match="no such code")',
    'pytest.raises(Exception)',
  ])
  .weakens('assertion-loosened', 'the message no longer matters', [', match="no such code"', ''])
  .weakens('assertion-tautological', 'or True', ['assert result == 7', 'assert result == 7 or True'])
  .weakens('assertion-tautological', 'compared with itself', [
    'assert result == 7',
    'assert result == result',
  ])
  .weakens('assertion-tautological', 'a tuple is always true', [
    'assert result == 7',
    'assert (result == 7, "total")',
  ])
  .weakens('assertion-tautological', 'the subject is what is expected', [
    'result = total(cart)',
    'result = 7',
  ])
  .weakens('test-skipped', 'marked skip', [
    'def test_total',
    '@pytest.mark.skip(reason="flaky")\ndef test_total',
  ])
  .weakens('test-skipped', 'skipped inside', [
    '    result = total(cart)',
    '    pytest.skip("later")\n    result = total(cart)',
  ])
  .weakens('test-skipped', 'the whole module is skipped', [
    'RATE = 0.2',
    'RATE = 0.2\npytestmark = pytest.mark.skip',
  ])
  .weakens('test-expected-to-fail', 'xfail', ['def test_total', '@pytest.mark.xfail\ndef test_total'])
  .weakens('skipped-on-condition', 'skipped on a condition', [
    'def test_total',
    '@pytest.mark.skipif(sys.platform == "linux", reason="")\ndef test_total',
  ])
  .weakens('assertion-unreachable', 'an early return', [
    '    assert result == 7',
    '    return\n    assert result == 7',
  ])
  .weakens('assertion-unreachable', 'under if False', [
    '    assert result == 7',
    '    if False:\n        assert result == 7',
  ])
  .weakens('assertion-swallowed', 'a failure is swallowed', [
    '    assert result == 7',
    '    try:\n        assert result == 7\n    except AssertionError:\n        pass',
  ])
  .weakens('assertion-behind-environment', 'only where a variable is set', [
    '    assert result == 7',
    '    if os.environ.get("FULL"):\n        assert result == 7',
  ])
  .weakens('assertion-removed', 'commented out', ['    assert result == 7', '    # assert result == 7'])
  .weakens('assertion-removed', 'a row of the table is taken out', ['(5, 4), ', ''])
  .weakens('subject-mocked', 'the subject is patched', [
    'def test_total(cart):',
    '@mock.patch("shop.cart.total", return_value=7)\ndef test_total(cart, _):',
  ])
  .weakens('subject-mocked', 'the subject is patched by monkeypatch', [
    'def test_total(cart):\n',
    'def test_total(cart, monkeypatch):\n    monkeypatch.setattr("shop.cart.total", lambda c: 7)\n',
  ])
  .weakens('subject-replaced', 'the subject is defined in the test', [
    'RATE = 0.2',
    'RATE = 0.2\n\ndef total(cart):\n    return 7\n',
  ])
  .weakens('test-not-collected', 'renamed out of the pattern', ['def test_total', 'def check_total'])
  .weakens('assertion-removed', 'another test of the same name follows', [
    'def test_names(cart):',
    'def test_total(cart):\n    pass\n\n\ndef test_names(cart):',
  ])
  .weakens('test-removed', 'a test is taken out', [
    'def test_unknown_code():\n    with pytest.raises(KeyError, match="no such code"):\n        discount(10, "nope")\n',
    '',
  ])
  .moves('renamed so that pytest does not find it', 'test-not-collected', {
    'tests/cart_checks.py': (source) => source,
  })
  .moves('the file is taken out', 'test-file-deleted', {})
  .honest('a variable is renamed', [
    'result = total(cart)\n    assert result == 7',
    'amount = total(cart)\n    assert amount == 7',
  ])
  .honest('a variable is put in place', [
    '    result = total(cart)\n    assert result == 7',
    '    assert total(cart) == 7',
  ])
  .honest('reformatted', [
    'assert discount(amount, RATE) == expected',
    'assert (\n        discount(\n            amount,\n            RATE,\n        )\n        == expected\n    )',
  ])
  .honest('quotes and a message', [
    'cart.currency == "EUR"',
    "cart.currency == 'EUR', 'currency of the cart'",
  ])
  .honest('comments and a docstring', [
    '    result = total(cart)',
    '    """The sum of its items."""\n    # Both items count.\n    result = total(cart)',
  ])
  .honest('another assertion', [
    '    assert result == 7\n',
    '    assert result == 7\n    assert isinstance(result, int)\n',
  ])
  .honest('strengthened', [
    'assert name in cart',
    'assert name in cart\n        assert cart[name].price == 3',
  ])
  .honest('tighter tolerance', ['abs=1e-6', 'abs=1e-9'])
  .honest('a test is renamed', ['def test_total', 'def test_total_is_the_sum_of_items'])
  .honest(
    'a fixture is renamed',
    ['def cart():', 'def full_cart():'],
    [
      'def test_total(cart):\n    result = total(cart)\n    assert result == 7\n    assert cart.currency',
      'def test_total(full_cart):\n    result = total(full_cart)\n    assert result == 7\n    assert full_cart.currency',
    ],
    [
      'def test_names(cart):\n    names = cart.names()',
      'def test_names(full_cart):\n    names = full_cart.names()',
    ],
    ['assert name in cart', 'assert name in full_cart'],
  )
  .honest(
    'a helper is extracted',
    ['    result = total(cart)\n    assert result == 7\n', '    assert_total(cart, 7)\n'],
    [
      'def test_total',
      'def assert_total(cart, expected):\n    result = total(cart)\n    assert result == expected\n\n\ndef test_total',
    ],
  )
  .honest('more rows', ['(100, 80)', '(100, 80), (200, 160)'])
  .honest('rows with ids', [
    '[(0, 0), (5, 4), (100, 80)]',
    '[\n    pytest.param(0, 0, id="nothing"),\n    pytest.param(5, 4, id="five"),\n    pytest.param(100, 80, id="hundred"),\n]',
  ])
  .honest('the table becomes a loop', [
    '@pytest.mark.parametrize("amount, expected", [(0, 0), (5, 4), (100, 80)])\ndef test_discounts(amount, expected):\n    assert discount(amount, RATE) == expected',
    'def test_discounts():\n    for amount, expected in [(0, 0), (5, 4), (100, 80)]:\n        assert discount(amount, RATE) == expected',
  ])
  .honest(
    'tests in another order',
    [
      'def test_total(cart):\n    result = total(cart)\n    assert result == 7\n    assert cart.currency == "EUR"\n\n\n',
      '',
    ],
    [
      '        assert name in cart\n',
      '        assert name in cart\n\n\ndef test_total(cart):\n    result = total(cart)\n    assert result == 7\n    assert cart.currency == "EUR"\n',
    ],
  )
  .honest('a test is split', [
    '    assert cart.currency == "EUR"\n',
    '\n\ndef test_currency(cart):\n    assert cart.currency == "EUR"\n',
  ])
  .honest('a constant gets a name', [
    'assert result == 7',
    'expected = 3 + 4 if False else 7\n    assert result == 7',
  ])
  .honest(
    'a constant is moved to the top',
    ['RATE = 0.2', 'RATE = 0.2\nTOTAL = 7'],
    ['result == 7', 'result == TOTAL'],
  )
  .honest('into a class', [
    'def test_unknown_code():\n    with pytest.raises(KeyError, match="no such code"):\n        discount(10, "nope")\n',
    'class TestCodes:\n    def test_unknown_code(self):\n        with pytest.raises(KeyError, match="no such code"):\n            discount(10, "nope")\n',
  ])
  .honest(
    'a function under test is renamed',
    ['discount, total', 'rebate, total'],
    ['assert discount(10, RATE)', 'assert rebate(10, RATE)'],
    ['        discount(10, "nope")', '        rebate(10, "nope")'],
    ['assert discount(amount, RATE)', 'assert rebate(amount, RATE)'],
  )
  .honest('sides exchanged', ['assert result == 7', 'assert 7 == result'])
  .honest('a new test', [
    'def test_names',
    'def test_empty():\n    assert total(Cart(items=[])) == 0\n\n\ndef test_names',
  ])
  .honest('a mark that says nothing about running', ['def test_names', '@pytest.mark.slow\ndef test_names'])
  .moves('moved to another file', undefined, { 'tests/unit/test_shopping_cart.py': (source) => source })
  .moves('one test moved to another file', undefined, {
    'tests/test_cart.py': (source) => source.replace(/def test_unknown_code[\s\S]*?"nope"\)\n/, ''),
    'tests/test_codes.py':
      'import pytest\nfrom shop.cart import discount\n\n\ndef test_unknown_code():\n    with pytest.raises(KeyError, match="no such code"):\n        discount(10, "nope")\n',
  });

const unittest = new Edits(
  'unittest',
  'test/test_stack.py',
  `import unittest
from collections_ext import Stack, parse


class StackTest(unittest.TestCase):
    def setUp(self):
        self.stack = Stack([1, 2, 3])

    def test_pop(self):
        self.assertEqual(self.stack.pop(), 3)
        self.assertEqual(len(self.stack), 2)

    def test_contains(self):
        self.assertIn(2, self.stack)
        self.assertIsNone(self.stack.find(9))

    def test_parse(self):
        with self.assertRaises(ValueError):
            parse("x")
        self.assertRaises(TypeError, parse, None)

    def test_ratio(self):
        self.assertAlmostEqual(self.stack.ratio(), 0.3333, places=4)
        self.assertTrue(self.stack.ratio() < 1)

    def test_each(self):
        for text, value in [("1", 1), ("2", 2)]:
            with self.subTest(text=text):
                self.assertEqual(parse(text), value)
`,
)
  .weakens('assertion-loosened', 'assertEqual becomes assertTrue', [
    'self.assertEqual(self.stack.pop(), 3)',
    'self.assertTrue(self.stack.pop())',
  ])
  .weakens('assertion-loosened', 'assertEqual becomes assertIsNotNone', [
    'self.assertEqual(self.stack.pop(), 3)',
    'self.assertIsNotNone(self.stack.pop())',
  ])
  .weakens('assertion-tautological', 'assertTrue(True)', [
    'self.assertEqual(self.stack.pop(), 3)',
    'self.assertTrue(True)',
  ])
  .weakens('assertion-loosened', 'fewer places', ['places=4', 'places=0'])
  .weakens('assertion-loosened', 'assertRaises(Exception)', [
    'assertRaises(ValueError)',
    'assertRaises(Exception)',
  ])
  .weakens('test-skipped', 'skipped by decorator', [
    '    def test_parse',
    '    @unittest.skip("broken")\n    def test_parse',
  ])
  .weakens('test-skipped', 'the class is skipped', [
    'class StackTest',
    '@unittest.skip("broken")\nclass StackTest',
  ])
  .weakens('test-skipped', 'skipped in setUp', [
    '        self.stack = Stack([1, 2, 3])',
    '        self.skipTest("broken")\n        self.stack = Stack([1, 2, 3])',
  ])
  .weakens('test-expected-to-fail', 'expectedFailure', [
    '    def test_pop',
    '    @unittest.expectedFailure\n    def test_pop',
  ])
  .weakens('assertion-removed', 'the loop loses a row', [', ("2", 2)', ''])
  .weakens('assertion-removed', 'the loop has no rows', ['[("1", 1), ("2", 2)]', '[]'])
  .weakens('expectation-changed', 'another bound', ['assertIn(2', 'assertIn(3'])
  .weakens('assertion-loosened', 'a wider bound', ['ratio() < 1', 'ratio() < 100'])
  .weakens('assertion-swallowed', 'suppressed', [
    '        self.assertEqual(self.stack.pop(), 3)\n',
    '        with contextlib.suppress(AssertionError):\n            self.assertEqual(self.stack.pop(), 3)\n',
  ])
  .weakens(
    'test-not-collected',
    'the class is no test case any more',
    ['(unittest.TestCase)', '(object)'],
    ['class StackTest', 'class Stacks'],
  )
  .honest('assertEqual becomes assert', [
    'self.assertEqual(self.stack.pop(), 3)',
    'assert self.stack.pop() == 3',
  ])
  .honest('assertTrue of a comparison becomes assertLess', [
    'self.assertTrue(self.stack.ratio() < 1)',
    'self.assertLess(self.stack.ratio(), 1)',
  ])
  .honest('a message', ['assertIn(2, self.stack)', 'assertIn(2, self.stack, "two is on it")'])
  .honest('assertRaises by with', [
    '        self.assertRaises(TypeError, parse, None)',
    '        with self.assertRaises(TypeError):\n            parse(None)',
  ])
  .honest('a base class between', [
    'class StackTest(unittest.TestCase):',
    'class Base(unittest.TestCase):\n    pass\n\n\nclass StackTest(Base, unittest.TestCase):',
  ])
  .honest('assertIsNone becomes assertEqual', [
    'self.assertIsNone(self.stack.find(9))',
    'self.assertEqual(self.stack.find(9), None)',
  ])
  .honest(
    'an attribute is renamed',
    ['self.stack = Stack([1, 2, 3])', 'self.subject = Stack([1, 2, 3])'],
    ['self.stack.pop(), 3', 'self.subject.pop(), 3'],
    ['len(self.stack)', 'len(self.subject)'],
    ['2, self.stack)', '2, self.subject)'],
    ['self.stack.find', 'self.subject.find'],
    ['self.stack.ratio(), 0.3333', 'self.subject.ratio(), 0.3333'],
    ['self.stack.ratio() < 1', 'self.subject.ratio() < 1'],
  )
  .honest('clean-up is added', [
    '    def test_pop',
    '    def tearDown(self):\n        self.stack.clear()\n\n    def test_pop',
  ]);

export const cases = [...pytest.cases, ...unittest.cases];
