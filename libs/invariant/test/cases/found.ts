import { Edits } from './edit.js';

/** Edits that were judged wrong once: what a test's code does to its own variables. */
const state = new Edits(
  'unittest',
  'tests/test_state.py',
  `import unittest
from shop import Box, Scheduler, clock, scan

STRUCTURES = []
for size in (1, 2):
    STRUCTURES.append(Box(size))


class Shared:
    def test_size(self):
        box = self.make()
        self.assertEqual(box.size, 3)


class BoxTest(Shared, unittest.TestCase):
    def make(self):
        return Box(3)

    def test_structures(self):
        for box in STRUCTURES:
            self.assertTrue(box.valid)

    def test_setter(self):
        box = Box(1)
        box.name = "tea"
        self.assertEqual(box.name, "tea")

    def test_called(self):
        seen = []
        called = False

        def note(x):
            nonlocal called
            called = True
            seen.append(x)

        Scheduler(note).run()
        self.assertTrue(called)
        self.assertEqual(seen, [])

    def test_unchanged(self):
        before = clock.version()
        scan()
        after = clock.version()
        self.assertEqual(after, before)

    def test_not_a_number(self):
        for value in (float("inf"), float("nan")):
            if value == value:
                self.assertEqual(scan(value), [value])
            else:
                self.assertEqual(len(scan(value)), 1)

    def test_flow(self):
        hit = False
        try:
            scan()
            hit = True
        except OSError:
            pass
        self.assertTrue(hit)

    def test_member(self):
        self.assertIn(1, Box(1))
`,
)
  .weakens('assertion-removed', 'of a class that another takes over', [
    '        self.assertEqual(box.size, 3)',
    '        pass',
  ])
  .weakens('assertion-removed', 'in a loop over a list that was filled', [
    '            self.assertTrue(box.valid)',
    '            pass',
  ])
  .weakens('assertion-removed', 'about what was set', ['        self.assertEqual(box.name, "tea")\n', ''])
  .weakens('assertion-removed', 'about a variable that a callback sets', [
    '        self.assertTrue(called)\n',
    '',
  ])
  .weakens('assertion-removed', 'about a list that a callback fills', [
    '        self.assertEqual(seen, [])\n',
    '',
  ])
  .weakens('assertion-removed', 'that nothing changed', ['        self.assertEqual(after, before)\n', ''])
  .weakens('expectation-changed', 'under a condition that only looks constant', [
    'len(scan(value)), 1',
    'len(scan(value)), 2',
  ])
  .weakens('assertion-swallowed', 'about a variable of a try', [
    '        self.assertTrue(hit)\n',
    '        try:\n            self.assertTrue(hit)\n        except AssertionError:\n            pass\n',
  ])
  .weakens('expectation-changed', 'a member that begins alike', ['assertIn(1,', 'assertIn(18,'])
  .weakens('test-not-collected', 'nobody takes the class over any more', [
    'class BoxTest(Shared, unittest.TestCase)',
    'class BoxTest(unittest.TestCase)',
  ])
  .honest(
    'a callback is renamed',
    ['def note(x)', 'def remember(x)'],
    ['Scheduler(note)', 'Scheduler(remember)'],
  )
  .honest('a test in a shared class is renamed', ['def test_size', 'def test_size_of_box']);

const property = new Edits(
  'vitest',
  'test/property.test.ts',
  `import fc from 'fast-check';
import { run } from '../src/run.js';

class Bench {
  async close() {
    expect(await this.run.ended).toBe(0);
  }
}

it('holds of all', async () => {
  const bench = new Bench();
  fc.assert(
    fc.property(fc.integer(), (value) => {
      expect(run(value)).toBeGreaterThan(0);
      expect(run(-value)).toBeLessThan(0);
    }),
  );
  await bench.close();
});
`,
)
  .weakens('assertion-removed', 'inside a property', ['      expect(run(-value)).toBeLessThan(0);\n', ''])
  .weakens('assertion-tautological', 'inside a method of a class', [
    'expect(await this.run.ended).toBe(0)',
    'expect(true).toBe(true)',
  ])
  .honest('another assertion inside a property', [
    '      expect(run(-value))',
    '      expect(run(0)).toBe(0);\n      expect(run(-value))',
  ]);

const evasions = new Edits(
  'pytest',
  'tests/test_prices.py',
  `import pytest
from shop.prices import discount, total


def test_total():
    result = total([3, 4])
    assert result == 7


def test_code():
    with pytest.raises(KeyError):
        discount(10, "nope")
`,
)
  .weakens('assertion-tautological', 'compared with what it gives itself', [
    'assert result == 7',
    'expected = total([3, 4])\n    assert result == expected',
  ])
  .weakens('assertion-loosened', 'one of several', ['result == 7', 'result in (7, 999)'])
  .weakens('assertion-loosened', 'or anything else', ['result == 7', 'result == 7 or result'])
  .weakens('assertion-swallowed', 'returned at last', [
    '    assert result == 7',
    '    try:\n        assert result == 7\n    finally:\n        return',
  ])
  .weakens('assertion-swallowed', 'its failing is waited for', [
    '    assert result == 7',
    '    with pytest.raises(AssertionError):\n        assert result == 7',
  ])
  .weakens('subject-replaced', 'a parameter of its own', [
    'def test_total():',
    'def test_total(total=lambda items: 7):',
  ])
  .weakens('subject-replaced', 'a fixture of the same name', [
    'def test_total():',
    '@pytest.fixture\ndef total():\n    return lambda items: 7\n\n\ndef test_total(total):',
  ])
  .weakens('subject-replaced', 'imported from the tests', [
    'from shop.prices import discount, total',
    'from tests.fake_prices import discount, total',
  ])
  .weakens('subject-imported-elsewhere', 'imported from elsewhere', [
    'from shop.prices import discount, total',
    'from shop.rates import discount, total',
  ])
  .weakens('subject-mocked', 'a mock in its place', [
    '    result = total',
    '    total = MagicMock(return_value=7)\n    result = total',
  ])
  .weakens('assertion-unreachable', 'a constant in front', [
    '    assert result == 7',
    '    DONE = True\n    if DONE:\n        return\n    assert result == 7',
  ])
  .weakens('assertion-loosened', 'raised by the test itself', [
    '        discount(10, "nope")',
    '        raise KeyError("nope")\n        discount(10, "nope")',
  ])
  .weakens('assertion-removed', 'nothing is called', [
    '        discount(10, "nope")',
    '        raise KeyError("nope")',
  ])
  .weakens('skipped-on-condition', 'tests are loaded by hand', [
    'def test_code',
    'def load_tests(loader, tests, pattern):\n    return None\n\n\ndef test_code',
  ])
  .weakens('test-not-collected', 'no test by its own word', [
    'def test_code',
    'test_total.__test__ = False\n\n\ndef test_code',
  ])
  .honest('one of one', ['result == 7', 'result in [7]']);

const panics = new Edits(
  'cargo test',
  'tests/a.rs',
  '#[test]\nfn adds() {\n    assert_eq!(total(&[3, 4]), 7);\n}\n',
).weakens('test-expected-to-fail', 'it is to panic', ['#[test]', '#[test]\n#[should_panic]']);

const annotated = new Edits(
  'JUnit 4',
  'ATest.java',
  'public class ATest {\n    @Test\n    public void adds() {\n        assertEquals(7, Prices.total(3, 4));\n    }\n}\n',
).weakens('test-expected-to-fail', 'its failing is expected', [
  '@Test',
  '@Test(expected = AssertionError.class)',
]);

export const cases = [
  ...evasions.cases,
  ...panics.cases,
  ...annotated.cases,
  ...state.cases,
  ...property.cases,
];
