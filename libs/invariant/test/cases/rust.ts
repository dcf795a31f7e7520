import { Edits } from './edit.js';

const cargo = new Edits(
  'cargo test',
  'src/cart.rs',
  `pub fn total(items: &[u32]) -> u32 {
    items.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 0.2;

    #[test]
    fn adds_up() {
        let result = total(&[3, 4]);
        assert_eq!(result, 7);
        assert!(total(&[]) == 0, "nothing costs nothing");
    }

    #[test]
    #[should_panic(expected = "no such code")]
    fn unknown_code() {
        discount(10, "nope");
    }

    #[test]
    fn parses() -> Result<(), Error> {
        let cart = parse("ham,tea")?;
        assert_eq!(cart.names(), vec!["ham", "tea"]);
        assert!(matches!(parse("?"), Err(Error::Syntax(_))));
        assert!(cart.len() > 1);
        Ok(())
    }

    #[test]
    fn discounts() {
        for (amount, expected) in [(0, 0), (5, 4), (100, 80)] {
            assert_eq!(discount(amount, RATE), expected);
        }
    }

    #[test]
    fn finds() {
        let cart = parse("ham").unwrap();
        match cart.find("ham") {
            Some(item) => assert_eq!(item.price, 3),
            None => panic!("not found"),
        }
        assert!(cart.find("gold").is_none());
    }
}
`,
)
  .weakens('assertion-removed', 'an assertion is taken out', ['        assert_eq!(result, 7);\n', ''])
  .weakens('expectation-changed', 'another number is expected', [
    'assert_eq!(result, 7)',
    'assert_eq!(result, 999)',
  ])
  .weakens('assertion-loosened', 'equal becomes at least', ['assert_eq!(result, 7)', 'assert!(result >= 7)'])
  .weakens('assertion-inverted', 'assert_ne', ['assert_eq!(result, 7)', 'assert_ne!(result, 7)'])
  .weakens('assertion-loosened', 'the whole becomes its length', [
    'assert_eq!(cart.names(), vec!["ham", "tea"])',
    'assert_eq!(cart.names().len(), 2)',
  ])
  .weakens('assertion-loosened', 'any error will do', [
    'matches!(parse("?"), Err(Error::Syntax(_)))',
    'parse("?").is_err()',
  ])
  .weakens('assertion-loosened', 'a lower bound', ['cart.len() > 1', 'cart.len() > 0'])
  .weakens('assertion-loosened', 'any panic will do', [
    '#[should_panic(expected = "no such code")]',
    '#[should_panic]',
  ])
  .weakens('assertion-tautological', 'assert!(true)', ['assert_eq!(result, 7)', 'assert!(true)'])
  .weakens('assertion-tautological', '|| true', ['assert_eq!(result, 7)', 'assert!(result == 7 || true)'])
  .weakens('assertion-tautological', 'the subject is what is expected', [
    'let result = total(&[3, 4])',
    'let result = 7',
  ])
  .weakens('test-skipped', 'ignored', ['    fn adds_up', '    #[ignore]\n    fn adds_up'])
  .weakens('test-skipped', 'never compiled', ['#[cfg(test)]', '#[cfg(any())]'])
  .weakens('skipped-on-condition', 'only with a feature', [
    '    #[test]\n    fn adds_up',
    '    #[test]\n    #[cfg(feature = "slow")]\n    fn adds_up',
  ])
  .weakens('assertion-unreachable', 'an early return', [
    '        assert_eq!(result, 7);',
    '        return;\n        assert_eq!(result, 7);',
  ])
  .weakens('assertion-unreachable', 'under if false', [
    '        assert_eq!(result, 7);',
    '        if false {\n            assert_eq!(result, 7);\n        }',
  ])
  .weakens('assertion-swallowed', 'a panic is caught', [
    '        assert_eq!(result, 7);',
    '        let _ = std::panic::catch_unwind(|| {\n            assert_eq!(result, 7);\n        });',
  ])
  .weakens('assertion-removed', 'the loop loses a row', ['(5, 4), ', ''])
  .weakens('expectation-changed', 'a row is changed', ['(5, 4)', '(5, 5)'])
  .weakens('test-not-collected', 'no test any more', ['    #[test]\n    fn adds_up', '    fn adds_up'])
  .weakens('assertion-removed', 'not found is fine', ['panic!("not found")', '{}'])
  .weakens('assertion-behind-environment', 'only where a variable is set', [
    '        assert_eq!(result, 7);',
    '        if std::env::var("FULL").is_ok() {\n            assert_eq!(result, 7);\n        }',
  ])
  .moves('tests are taken out', 'test-removed', {
    'src/cart.rs': (source) => source.slice(0, source.indexOf('#[cfg(test)]')),
  })
  .honest('a variable is renamed', [
    'let result = total(&[3, 4]);\n        assert_eq!(result,',
    'let sum = total(&[3, 4]);\n        assert_eq!(sum,',
  ])
  .honest('a variable is put in place', [
    '        let result = total(&[3, 4]);\n        assert_eq!(result, 7);',
    '        assert_eq!(total(&[3, 4]), 7);',
  ])
  .honest('a message', ['assert_eq!(result, 7)', 'assert_eq!(result, 7, "sum of {:?}", [3, 4])'])
  .honest('assert becomes assert_eq', [
    'assert!(total(&[]) == 0, "nothing costs nothing")',
    'assert_eq!(total(&[]), 0)',
  ])
  .honest('sides exchanged', ['assert_eq!(result, 7)', 'assert_eq!(7, result)'])
  .honest('reformatted', [
    'assert_eq!(discount(amount, RATE), expected);',
    'assert_eq!(\n                discount(\n                    amount,\n                    RATE,\n                ),\n                expected,\n            );',
  ])
  .honest('comments', [
    '    #[test]\n    fn adds_up',
    '    /// Both items.\n    #[test]\n    // counted\n    fn adds_up',
  ])
  .honest(
    '? becomes unwrap',
    [
      '-> Result<(), Error> {\n        let cart = parse("ham,tea")?;',
      '{\n        let cart = parse("ham,tea").unwrap();',
    ],
    ['        Ok(())\n', ''],
  )
  .honest('unwrap becomes expect', ['parse("ham").unwrap()', 'parse("ham").expect("parses")'])
  .honest('more rows', ['(100, 80)]', '(100, 80), (200, 160)]'])
  .honest('strengthened', ['cart.len() > 1', 'cart.len() == 2'])
  .honest('vec becomes an array', ['vec!["ham", "tea"]', '["ham", "tea"]'])
  .honest('a test is renamed', ['fn adds_up', 'fn gives_the_sum'])
  .honest(
    'a helper is extracted',
    [
      '        let result = total(&[3, 4]);\n        assert_eq!(result, 7);',
      '        check_total(&[3, 4], 7);',
    ],
    [
      '    #[test]\n    fn adds_up',
      '    fn check_total(items: &[u32], expected: u32) {\n        assert_eq!(total(items), expected);\n    }\n\n    #[test]\n    fn adds_up',
    ],
  )
  .honest('a test is split', [
    '        assert!(cart.len() > 1);\n        Ok(())\n    }',
    '        Ok(())\n    }\n\n    #[test]\n    fn counts() {\n        let cart = parse("ham,tea").unwrap();\n        assert!(cart.len() > 1);\n    }',
  ])
  .honest('match becomes let else', [
    '        match cart.find("ham") {\n            Some(item) => assert_eq!(item.price, 3),\n            None => panic!("not found"),\n        }',
    '        match cart.find("ham") {\n            None => panic!("no ham"),\n            Some(found) => assert_eq!(found.price, 3),\n        }',
  ])
  .honest('a new test', [
    '    #[test]\n    fn discounts',
    '    #[test]\n    fn nothing() {\n        assert_eq!(total(&[]), 0);\n    }\n\n    #[test]\n    fn discounts',
  ])
  .moves('tests move to their own file', undefined, {
    'src/cart.rs': (source) => source.slice(0, source.indexOf('#[cfg(test)]')),
    'tests/cart.rs': (source) =>
      source.slice(source.indexOf('mod tests {')).replace('use super::*', 'use shop::cart::*'),
  });

const others = new Edits(
  'rstest, test-case, tokio, proptest, insta',
  'tests/api.rs',
  `use rstest::rstest;
use test_case::test_case;

#[rstest]
#[case(0, 0)]
#[case(5, 4)]
fn discounts(#[case] amount: u32, #[case] expected: u32) {
    assert_eq!(discount(amount), expected);
}

#[test_case("a", 1; "one")]
#[test_case("b", 2; "two")]
fn parses(text: &str, value: u32) {
    assert_eq!(parse(text), value);
}

#[tokio::test]
async fn loads() {
    let body = load("a").await.unwrap();
    assert_eq!(body.id, "a");
    assert!(load("x").await.is_err());
}

proptest! {
    #[test]
    fn adds(a in 0u32..100, b in any::<u32>()) {
        prop_assert_eq!(add(a, b), add(b, a));
    }
}

#[test]
fn renders() {
    insta::assert_snapshot!(render("x"), @"<x>");
}
`,
)
  .weakens('assertion-removed', 'a case is taken out', ['#[case(5, 4)]\n', ''])
  .weakens('expectation-changed', 'a case is changed', ['("b", 2', '("b", 3'])
  .weakens('assertion-removed', 'an assertion of a property is taken out', [
    '        prop_assert_eq!(add(a, b), add(b, a));\n',
    '',
  ])
  .weakens('cases-unknown', 'a property is drawn from less', ['a in 0u32..100', 'a in 0u32..1'])
  .weakens('assertion-loosened', 'equal becomes not empty', [
    'assert_eq!(body.id, "a")',
    'assert!(!body.id.is_empty())',
  ])
  .weakens('expectation-changed', 'the inline snapshot is changed', ['@"<x>"', '@"<y>"'])
  .weakens('test-skipped', 'ignored with a reason', [
    '#[tokio::test]',
    '#[tokio::test]\n#[ignore = "network"]',
  ])
  .honest('more cases', ['#[case(5, 4)]', '#[case(5, 4)]\n#[case(6, 5)]'])
  .honest('a case is given a name', ['#[case(5, 4)]', '#[case::five(5, 4)]'])
  .honest('unwrap is put elsewhere', [
    'let body = load("a").await.unwrap();',
    'let loaded = load("a").await;\n    let body = loaded.unwrap();',
  ]);

export const cases = [...cargo.cases, ...others.cases];
