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

export const cases = [...state.cases, ...property.cases];
