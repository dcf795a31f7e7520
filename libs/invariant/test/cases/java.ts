import { Edits } from './edit.js';

const junit5 = new Edits(
  'JUnit 5',
  'src/test/java/shop/CartTest.java',
  `package shop;

import static org.junit.jupiter.api.Assertions.*;

import java.util.List;
import org.junit.jupiter.api.*;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.*;

class CartTest {
    private static final double RATE = 0.2;
    private Cart cart;

    @BeforeEach
    void setUp() {
        cart = new Cart(3, 4);
    }

    @Test
    void addsUp() {
        int result = cart.total();
        assertEquals(7, result);
        assertTrue(cart.isOpen(), "still open");
    }

    @Test
    void refusesUnknownCodes() {
        var error = assertThrows(IllegalArgumentException.class, () -> cart.discount("nope"));
        assertEquals("no such code", error.getMessage());
    }

    @ParameterizedTest
    @CsvSource({"0, 0", "5, 4", "100, 80"})
    void discounts(int amount, int expected) {
        assertEquals(expected, Prices.discount(amount, RATE));
    }

    @ParameterizedTest
    @MethodSource("codes")
    void codes(String code, int rebate) {
        assertEquals(rebate, Prices.rebate(code));
    }

    static List<Arguments> codes() {
        return List.of(Arguments.of("A", 10), Arguments.of("B", 20));
    }

    @Test
    void names() {
        assertEquals(List.of("ham", "tea"), cart.names());
        assertEquals(0.333, cart.ratio(), 0.001);
        assertNotNull(cart.first());
    }
}
`,
)
  .weakens('assertion-removed', 'an assertion is taken out', ['        assertEquals(7, result);\n', ''])
  .weakens('expectation-changed', 'another number is expected', [
    'assertEquals(7, result)',
    'assertEquals(999, result)',
  ])
  .weakens('assertion-loosened', 'equal becomes not null', [
    'assertEquals(7, result)',
    'assertNotNull(result)',
  ])
  .weakens('assertion-loosened', 'equal becomes greater', [
    'assertEquals(7, result)',
    'assertTrue(result > 0)',
  ])
  .weakens('assertion-inverted', 'assertNotEquals', ['assertEquals(7, result)', 'assertNotEquals(7, result)'])
  .weakens('assertion-loosened', 'a wider delta', ['0.001)', '1.0)'])
  .weakens('assertion-loosened', 'any exception will do', [
    'IllegalArgumentException.class',
    'Exception.class',
  ])
  .weakens('assertion-loosened', 'the whole becomes its size', [
    'assertEquals(List.of("ham", "tea"), cart.names())',
    'assertEquals(2, cart.names().size())',
  ])
  .weakens('assertion-tautological', 'assertTrue(true)', ['assertEquals(7, result)', 'assertTrue(true)'])
  .weakens('assertion-tautological', 'compared with itself', [
    'assertEquals(7, result)',
    'assertEquals(result, result)',
  ])
  .weakens('assertion-tautological', 'the subject is what is expected', [
    'int result = cart.total();',
    'int result = 7;',
  ])
  .weakens('test-skipped', 'disabled', [
    '    @Test\n    void addsUp',
    '    @Disabled("flaky")\n    @Test\n    void addsUp',
  ])
  .weakens('test-skipped', 'the class is disabled', ['class CartTest', '@Disabled\nclass CartTest'])
  .weakens('skipped-on-condition', 'disabled on a system', [
    '    @Test\n    void addsUp',
    '    @Test\n    @DisabledOnOs(OS.LINUX)\n    void addsUp',
  ])
  .weakens('test-skipped', 'an assumption that never holds', [
    '        int result',
    '        Assumptions.assumeTrue(false);\n        int result',
  ])
  .weakens('assertion-unreachable', 'an early return', [
    '        assertEquals(7, result);',
    '        if (true) return;\n        assertEquals(7, result);',
  ])
  .weakens('assertion-swallowed', 'caught and forgotten', [
    '        assertEquals(7, result);',
    '        try {\n            assertEquals(7, result);\n        } catch (AssertionError e) {\n        }',
  ])
  .weakens('assertion-removed', 'a row is taken out', ['"5, 4", ', ''])
  .weakens('expectation-changed', 'a row is changed', ['"5, 4"', '"5, 5"'])
  .weakens('assertion-removed', 'a row of a method is taken out', [', Arguments.of("B", 20)', ''])
  .weakens('test-not-collected', 'no test any more', ['    @Test\n    void addsUp', '    void addsUp'])
  .weakens('subject-mocked', 'the subject is mocked', [
    'cart = new Cart(3, 4);',
    'cart = mock(Cart.class);\n        when(cart.total()).thenReturn(7);',
  ])
  .weakens('assertion-behind-environment', 'not in CI', [
    '        assertEquals(7, result);',
    '        if (System.getenv("CI") == null) {\n            assertEquals(7, result);\n        }',
  ])
  .weakens('assertion-removed', 'commented out', [
    '        assertEquals(7, result);',
    '        // assertEquals(7, result);',
  ])
  .moves('renamed so that surefire does not find it', 'test-not-collected', {
    'src/test/java/shop/CartChecks.java': (source) => source.replace('CartTest', 'CartChecks'),
  })
  .moves('the file is taken out', 'test-file-deleted', {})
  .honest('a variable is renamed', [
    'int result = cart.total();\n        assertEquals(7, result);',
    'final var sum = cart.total();\n        assertEquals(7, sum);',
  ])
  .honest('a variable is put in place', [
    '        int result = cart.total();\n        assertEquals(7, result);',
    '        assertEquals(7, cart.total());',
  ])
  .honest('a message', ['assertEquals(7, result)', 'assertEquals(7, result, "sum of its items")'])
  .honest('with its class', ['assertEquals(7, result)', 'Assertions.assertEquals(7, result)'])
  .honest('reformatted', [
    'assertEquals(List.of("ham", "tea"), cart.names());',
    'assertEquals(\n                List.of("ham", "tea"),\n                cart.names());',
  ])
  .honest('comments', [
    '    @Test\n    void addsUp',
    '    /** Both items. */\n    @Test\n    // counted\n    void addsUp',
  ])
  .honest('a test is renamed', ['void addsUp', 'void givesTheSumOfItsItems'])
  .honest('public and a display name', [
    '    @Test\n    void addsUp',
    '    @Test\n    @DisplayName("adds up")\n    public void addsUp',
  ])
  .honest('a block in the lambda', [
    '() -> cart.discount("nope")',
    '() -> {\n            cart.discount("nope");\n        }',
  ])
  .honest('more rows', ['"100, 80"', '"100, 80", "200, 160"'])
  .honest('the table becomes a test of each', [
    '    @ParameterizedTest\n    @CsvSource({"0, 0", "5, 4", "100, 80"})\n    void discounts(int amount, int expected) {\n        assertEquals(expected, Prices.discount(amount, RATE));\n    }',
    '    @Test\n    void discounts() {\n        assertEquals(0, Prices.discount(0, RATE));\n        assertEquals(4, Prices.discount(5, RATE));\n        assertEquals(80, Prices.discount(100, RATE));\n    }',
  ])
  .honest('assertAll', [
    '        assertEquals(7, result);\n        assertTrue(cart.isOpen(), "still open");',
    '        assertAll(\n            () -> assertEquals(7, result),\n            () -> assertTrue(cart.isOpen()));',
  ])
  .honest(
    'a helper is extracted',
    ['        int result = cart.total();\n        assertEquals(7, result);', '        assertTotal(7);'],
    [
      '    @Test\n    void addsUp',
      '    private void assertTotal(int expected) {\n        assertEquals(expected, cart.total());\n    }\n\n    @Test\n    void addsUp',
    ],
  )
  .honest(
    'a nested class',
    ['    @Test\n    void names() {', '    @Nested\n    class Names {\n    @Test\n    void names() {'],
    ['assertNotNull(cart.first());\n    }', 'assertNotNull(cart.first());\n    }\n    }'],
  )
  .honest('strengthened', ['assertNotNull(cart.first())', 'assertEquals(3, cart.first())'])
  .honest('a new test', [
    '    @Test\n    void names',
    '    @Test\n    void empty() {\n        assertEquals(0, new Cart().total());\n    }\n\n    @Test\n    void names',
  ])
  .moves('moved to another package', undefined, {
    'src/test/java/shop/cart/CartTest.java': (source) =>
      source.replace('package shop;', 'package shop.cart;'),
  });

const junit4 = new Edits(
  'JUnit 4 and Hamcrest',
  'src/test/java/shop/StackTest.java',
  `package shop;

import static org.hamcrest.CoreMatchers.*;
import static org.hamcrest.MatcherAssert.assertThat;
import static org.junit.Assert.*;

import org.junit.Test;

public class StackTest {
    @Test
    public void pops() {
        Stack stack = Stack.of(1, 2);
        assertEquals("last in", 2, stack.pop());
        assertThat(stack.peek(), is(equalTo(1)));
        assertThat(stack.names(), hasItem("one"));
    }

    @Test(expected = EmptyStackException.class)
    public void failsWhenEmpty() {
        new Stack().pop();
    }

    @Test
    public void saysWhy() {
        try {
            new Stack().peek();
            fail("should have thrown");
        } catch (IllegalStateException e) {
            assertEquals("empty", e.getMessage());
        }
    }
}
`,
)
  .weakens('expectation-changed', 'another number is expected', ['"last in", 2', '"last in", 3'])
  .weakens('assertion-loosened', 'is becomes notNullValue', ['is(equalTo(1))', 'is(notNullValue())'])
  .weakens('assertion-loosened', 'anyOf', ['is(equalTo(1))', 'anyOf(equalTo(1), equalTo(0))'])
  .weakens('assertion-loosened', 'any exception will do', ['EmptyStackException.class', 'Exception.class'])
  .weakens('test-skipped', 'ignored', [
    '    @Test\n    public void pops',
    '    @Ignore @Test\n    public void pops',
  ])
  .weakens('assertion-removed', 'it need not throw', ['            fail("should have thrown");\n', ''])
  .weakens(
    'assertion-removed',
    'no exception is expected',
    ['@Test(expected = EmptyStackException.class)', '@Test'],
    ['        new Stack().pop();\n', ''],
  )
  .honest('is without equalTo', ['is(equalTo(1))', 'is(1)'])
  .honest('in the words of JUnit', [
    'assertThat(stack.peek(), is(equalTo(1)))',
    'assertEquals(1, stack.peek())',
  ])
  .honest('assertThrows', [
    '    @Test(expected = EmptyStackException.class)\n    public void failsWhenEmpty() {\n        new Stack().pop();',
    '    @Test\n    public void failsWhenEmpty() {\n        assertThrows(EmptyStackException.class, () -> new Stack().pop());',
  ]);

const assertj = new Edits(
  'AssertJ and Mockito',
  'src/test/java/shop/MailTest.java',
  `package shop;

import static org.assertj.core.api.Assertions.*;
import static org.mockito.Mockito.*;

import org.junit.jupiter.api.Test;

class MailTest {
    @Test
    void sends() {
        Post post = mock(Post.class);
        Receipt receipt = new Mail(post).send("total: 7");
        assertThat(receipt.lines()).hasSize(2).contains("total: 7");
        assertThat(receipt.id()).isEqualTo(42);
        assertThatThrownBy(() -> new Mail(post).send(null)).isInstanceOf(NullPointerException.class).hasMessage("no text");
        verify(post, times(1)).deliver("total: 7");
    }
}
`,
)
  .weakens('assertion-loosened', 'isEqualTo becomes isNotNull', ['isEqualTo(42)', 'isNotNull()'])
  .weakens('assertion-loosened', 'isEqualTo becomes isPositive', ['isEqualTo(42)', 'isPositive()'])
  .weakens('assertion-removed', 'a step is taken out', ['.contains("total: 7")', ''])
  .weakens('expectation-changed', 'another size', ['hasSize(2)', 'hasSize(0)'])
  .weakens('assertion-loosened', 'any message will do', ['.hasMessage("no text")', ''])
  .weakens('assertion-removed', 'nothing is verified', [
    '        verify(post, times(1)).deliver("total: 7");\n',
    '',
  ])
  .weakens('assertion-loosened', 'anything delivered will do', ['deliver("total: 7")', 'deliver(any())'])
  .honest('a description', ['assertThat(receipt.id())', 'assertThat(receipt.id()).as("id")'])
  .honest('a chain becomes two', [
    'hasSize(2).contains("total: 7");',
    'hasSize(2);\n        assertThat(receipt.lines()).contains("total: 7");',
  ]);

export const cases = [...junit5.cases, ...junit4.cases, ...assertj.cases];
