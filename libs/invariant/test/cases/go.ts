import { Edits } from './edit.js';

const testing = new Edits(
  'testing',
  'cart/cart_test.go',
  `package cart

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestTotal(t *testing.T) {
	got := Total([]int{3, 4})
	if got != 7 {
		t.Errorf("Total() = %d, want 7", got)
	}
}

func TestParse(t *testing.T) {
	value, err := Parse("5")
	if err != nil {
		t.Fatal(err)
	}
	if value != 5 {
		t.Fatalf("value = %d", value)
	}
	if _, err := Parse("x"); !errors.Is(err, ErrSyntax) {
		t.Errorf("err = %v", err)
	}
}

func TestDiscount(t *testing.T) {
	tests := []struct {
		name   string
		amount int
		want   int
	}{
		{"nothing", 0, 0},
		{"five", 5, 4},
		{name: "hundred", amount: 100, want: 80},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Discount(tt.amount); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	names := Names(New())
	if !reflect.DeepEqual(names, []string{"ham", "tea"}) {
		t.Fatalf("names = %v", names)
	}
	if len(names) < 2 || !strings.Contains(names[0], "ha") {
		t.Fatal("names")
	}
}

func TestPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("did not panic")
		}
	}()
	MustParse("x")
}
`,
)
  .weakens('assertion-removed', 'a check is taken out', [
    '	if got != 7 {\n		t.Errorf("Total() = %d, want 7", got)\n	}\n',
    '	_ = got\n',
  ])
  .weakens('assertion-removed', 'a failure is only logged', [
    't.Errorf("Total() = %d, want 7", got)',
    't.Logf("Total() = %d, want 7", got)',
  ])
  .weakens('expectation-changed', 'another number is expected', ['if got != 7', 'if got != 999'])
  .weakens('assertion-loosened', 'equal becomes at least', ['if got != 7', 'if got < 7'])
  .weakens('assertion-loosened', 'equal becomes not zero', ['if got != 7', 'if got == 0'])
  .weakens('assertion-inverted', 'turned round', ['if got != 7', 'if got == 7'])
  .weakens('assertion-loosened', 'which error no longer matters', [
    '!errors.Is(err, ErrSyntax)',
    'err == nil',
  ])
  .weakens('assertion-loosened', 'the whole becomes its length', [
    'if !reflect.DeepEqual(names, []string{"ham", "tea"})',
    'if len(names) != 2',
  ])
  .weakens('assertion-tautological', 'never fails', ['if got != 7', 'if got != got'])
  .weakens('assertion-tautological', 'the subject is what is expected', [
    'got := Total([]int{3, 4})',
    'got := 7',
  ])
  .weakens('assertion-tautological', 'and false', ['if got != 7', 'if got != 7 && false'])
  .weakens('test-skipped', 't.Skip()', ['	got := Total', '	t.Skip("flaky")\n	got := Total'])
  .weakens('skipped-on-condition', 'skipped in short runs', [
    '	got := Total',
    '	if testing.Short() {\n		t.Skip()\n	}\n	got := Total',
  ])
  .weakens('test-skipped', 'a build tag', ['package cart\n', '//go:build ignore\n\npackage cart\n'])
  .weakens('assertion-unreachable', 'an early return', [
    '	got := Total([]int{3, 4})',
    '	got := Total([]int{3, 4})\n	return',
  ])
  .weakens('assertion-behind-environment', 'not in CI', [
    '	if got != 7 {',
    '	if os.Getenv("CI") != "" {\n		return\n	}\n	if got != 7 {',
  ])
  .weakens('assertion-removed', 'a row of the table is taken out', ['		{"five", 5, 4},\n', ''])
  .weakens('expectation-changed', 'a row of the table is changed', ['{"five", 5, 4}', '{"five", 5, 5}'])
  .weakens('assertion-removed', 'commented out', [
    '	if value != 5 {\n		t.Fatalf("value = %d", value)\n	}',
    '	// if value != 5 {\n	// 	t.Fatalf("value = %d", value)\n	// }',
  ])
  .weakens('test-not-collected', 'renamed so that go test does not find it', [
    'func TestTotal',
    'func testTotal',
  ])
  .weakens('test-skipped', 'TestMain runs nothing', [
    'func TestTotal',
    'func TestMain(m *testing.M) {\n	os.Exit(0)\n}\n\nfunc TestTotal',
  ])
  .weakens('subject-replaced', 'the subject is defined in the test', [
    '	got := Total',
    '	Total := func(items []int) int { return 7 }\n	got := Total',
  ])
  .moves('renamed so that go test does not find it', 'test-not-collected', {
    'cart/cart_tests.go': (source) => source,
  })
  .moves('the file is taken out', 'test-file-deleted', {})
  .honest('a variable is renamed', [
    '	got := Total([]int{3, 4})\n	if got != 7 {\n		t.Errorf("Total() = %d, want 7", got)',
    '	sum := Total([]int{3, 4})\n	if sum != 7 {\n		t.Errorf("Total() = %d, want 7", sum)',
  ])
  .honest('a variable in the condition', [
    '	got := Total([]int{3, 4})\n	if got != 7 {',
    '	if got := Total([]int{3, 4}); got != 7 {',
  ])
  .honest('another message', ['"Total() = %d, want 7"', '"sum: %d"'])
  .honest('Errorf becomes Fatalf', ['t.Errorf("Total()', 't.Fatalf("Total()'])
  .honest('want gets a name', ['	if got != 7 {', '	want := 7\n	if got != want {'])
  .honest('comments', ['func TestTotal', '// TestTotal adds both items.\nfunc TestTotal'])
  .honest('parallel', ['	got := Total', '	t.Parallel()\n	got := Total'])
  .honest('more rows', ['		{"five", 5, 4},\n', '		{"five", 5, 4},\n		{"six", 6, 5},\n'])
  .honest('rows with names', ['{"five", 5, 4}', '{name: "five", amount: 5, want: 4}'])
  .honest('the table becomes a map', [
    '	tests := []struct {\n		name   string\n		amount int\n		want   int\n	}{\n		{"nothing", 0, 0},\n		{"five", 5, 4},\n		{name: "hundred", amount: 100, want: 80},\n	}\n	for _, tt := range tests {\n		t.Run(tt.name,',
    '	tests := map[string]struct {\n		amount int\n		want   int\n	}{\n		"nothing": {0, 0},\n		"five":    {5, 4},\n		"hundred": {100, 80},\n	}\n	for name, tt := range tests {\n		t.Run(name,',
  ])
  .honest('the variable of the loop is copied', ['		t.Run(tt.name', '		tt := tt\n		t.Run(tt.name'])
  .honest(
    'a helper is extracted',
    [
      '	got := Total([]int{3, 4})\n	if got != 7 {\n		t.Errorf("Total() = %d, want 7", got)\n	}\n',
      '	checkTotal(t, []int{3, 4}, 7)\n',
    ],
    [
      'func TestTotal',
      'func checkTotal(t *testing.T, items []int, want int) {\n	t.Helper()\n	if got := Total(items); got != want {\n		t.Errorf("got %d, want %d", got, want)\n	}\n}\n\nfunc TestTotal',
    ],
  )
  .honest('a test is renamed', ['func TestTotal', 'func TestTotalOfItems'])
  .honest('a test is split', [
    '	if _, err := Parse("x")',
    '}\n\nfunc TestParseError(t *testing.T) {\n	if _, err := Parse("x")',
  ])
  .honest('two checks in one become two', [
    '	if len(names) < 2 || !strings.Contains(names[0], "ha") {\n		t.Fatal("names")\n	}',
    '	if len(names) < 2 {\n		t.Fatal("too few")\n	}\n	if !strings.Contains(names[0], "ha") {\n		t.Fatal("no ham")\n	}',
  ])
  .honest('strengthened', ['len(names) < 2', 'len(names) != 2'])
  .honest('a new test', [
    'func TestNames',
    'func TestEmpty(t *testing.T) {\n	if got := Total(nil); got != 0 {\n		t.Error(got)\n	}\n}\n\nfunc TestNames',
  ])
  .moves('moved to another file', undefined, { 'cart/total_test.go': (source) => source });

const testify = new Edits(
  'testify',
  'store/store_test.go',
  `package store_test

import (
	"testing"

	"example.com/shop/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGet(t *testing.T) {
	s, err := store.Open("x")
	require.NoError(t, err)
	item, err := s.Get("a")
	require.NoError(t, err)
	assert.Equal(t, "ham", item.Name)
	assert.Len(t, s.All(), 2)
	assert.InDelta(t, 0.33, item.Share, 0.01)
}

func TestMissing(t *testing.T) {
	_, err := store.Open("")
	require.ErrorIs(t, err, store.ErrEmpty)
	assert.True(t, store.Closed)
	assert.Panics(t, func() { store.Must("") })
}
`,
)
  .weakens('assertion-removed', 'an assertion is taken out', ['	assert.Equal(t, "ham", item.Name)\n', ''])
  .weakens('expectation-changed', 'another value is expected', ['"ham", item', '"tea", item'])
  .weakens('assertion-loosened', 'Equal becomes NotNil', [
    'assert.Equal(t, "ham", item.Name)',
    'assert.NotNil(t, item.Name)',
  ])
  .weakens('assertion-loosened', 'ErrorIs becomes Error', [
    'require.ErrorIs(t, err, store.ErrEmpty)',
    'require.Error(t, err)',
  ])
  .weakens('assertion-loosened', 'Len becomes NotEmpty', [
    'assert.Len(t, s.All(), 2)',
    'assert.NotEmpty(t, s.All())',
  ])
  .weakens('assertion-loosened', 'a wider delta', ['0.01)', '10)'])
  .weakens('assertion-tautological', 'True(true)', [
    'assert.Equal(t, "ham", item.Name)',
    'assert.True(t, true)',
  ])
  .weakens('assertion-inverted', 'NotEqual', ['assert.Equal(t, "ham"', 'assert.NotEqual(t, "ham"'])
  .honest('assert becomes require', ['assert.Equal', 'require.Equal'])
  .honest('a message', ['item.Name)', 'item.Name, "name of %s", "a")'])
  .honest(
    'assert.New',
    ['	s, err := store.Open("x")', '	assert := assert.New(t)\n	s, err := store.Open("x")'],
    ['assert.Equal(t, "ham"', 'assert.Equal("ham"'],
    ['assert.Len(t, ', 'assert.Len('],
    ['assert.InDelta(t, ', 'assert.InDelta('],
  )
  .honest('in the words of the standard library', [
    '	assert.Equal(t, "ham", item.Name)',
    '	if item.Name != "ham" {\n		t.Errorf("name: %s", item.Name)\n	}',
  ]);

export const cases = [...testing.cases, ...testify.cases];
