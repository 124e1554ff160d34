//! Tables of expressions: what is accepted, what is refused and where, and what messages match.

use super::*;
use crate::properties::PropertyMap;

/// Evaluates `expression` for properties written as `a=1 b=x`.
fn evaluate(expression: &str, properties: &str) -> Option<bool> {
    let mut map = PropertyMap::new();
    for pair in properties.split_whitespace() {
        let (name, value) = pair.split_once('=').unwrap();
        map.set(name, value.replace('_', " "));
    }
    let parsed =
        Expression::parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    parsed.evaluate(Properties::new(&map.encode()))
}

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);
const UNKNOWN: Option<bool> = None;

fn check(table: &[(&str, &str, Option<bool>)]) {
    for (expression, properties, expected) in table {
        assert_eq!(evaluate(expression, properties), *expected, "{expression} for {properties:?}");
    }
}

#[test]
fn numbers_are_compared_by_the_type_of_the_literal() {
    check(&[
        ("a = 3", "a=3", TRUE),
        ("a = 3", "a=+3", TRUE),
        ("a <> 3", "a=4", TRUE),
        ("3 < a", "a=4", TRUE),
        ("a >= -3", "a=-3", TRUE),
        ("a > - -3", "a=4", TRUE),
        ("a > +3", "a=3", FALSE),
        ("a = 5L", "a=5", TRUE),
        ("a > 3.14", "a=3.1415", TRUE),
        ("a > 3.1E10", "a=31415000000.0", TRUE),
        ("a > .5", "a=1e0", TRUE),
        ("a = 1.", "a=_1.0d_", TRUE),
        ("a > 0.0", "a=0.1", TRUE),
        ("a < 1.5", "a=Infinity", FALSE),
        ("a > 1.5", "a=NaN", TRUE),
        ("3 = 3.0", "", TRUE),
        ("a > 3", "a=1796056153889", TRUE),
        ("a = 9223372036854775807", "a=9223372036854775807", TRUE),
    ]);
}

#[test]
fn a_text_that_is_no_number_ends_the_evaluation() {
    check(&[
        ("a = 3", "a=abc", UNKNOWN),
        ("a = 3", "a=3.0", UNKNOWN),
        ("a = 3", "a=_3", UNKNOWN),
        ("a <> 3", "a=abc", UNKNOWN),
        ("a > 1.5", "a=inf", UNKNOWN),
        ("NOT (a > 3)", "a=abc", UNKNOWN),
        ("a > 3 OR b = 'x'", "a=abc b=x", UNKNOWN),
        ("b = 'x' OR a > 3", "a=abc b=x", TRUE),
        ("b = 'y' AND a > 3", "a=abc b=x", FALSE),
        ("a > b", "a=abc b=3", UNKNOWN),
    ]);
}

#[test]
fn two_properties_are_equal_as_texts_and_ordered_as_numbers() {
    check(&[
        ("a = b", "a=3.14 b=3.14", TRUE),
        ("a = b", "a=3.0 b=3", FALSE),
        ("a <> b", "a=3.14 b=3.141", TRUE),
        ("a > b", "a=10 b=9", TRUE),
        ("a > b", "a=10 b=20", FALSE),
        ("a BETWEEN low AND high", "a=5 low=1 high=9", TRUE),
    ]);
}

#[test]
fn missing_properties_are_null() {
    check(&[
        ("a IS NULL", "", TRUE),
        ("a IS NULL", "a=1", FALSE),
        ("a IS NOT NULL", "", FALSE),
        ("a IS NOT NULL", "a=1", TRUE),
        ("a = 1", "", UNKNOWN),
        ("1 = a", "", FALSE),
        ("a = b", "", TRUE),
        ("a = b", "a=1", FALSE),
        ("a = b", "b=1", UNKNOWN),
        ("a <> b", "a=1", TRUE),
        ("a > 1", "", UNKNOWN),
        ("a IN ('x')", "", UNKNOWN),
        ("a NOT IN ('x')", "", UNKNOWN),
        ("a BETWEEN 1 AND 2", "", UNKNOWN),
        ("a NOT BETWEEN 1 AND 2", "", UNKNOWN),
        ("a CONTAINS 'x'", "", FALSE),
        ("a NOT CONTAINS 'x'", "", FALSE),
        ("NULL IS NULL", "", TRUE),
        ("(a > 1) IS NULL", "", TRUE),
        ("-b IS NULL", "b=5", TRUE),
    ]);
}

#[test]
fn logic_has_three_values() {
    check(&[
        ("n = 1 AND a = 'x'", "a=x", UNKNOWN),
        ("n = 1 AND a = 'y'", "a=x", FALSE),
        ("a = 'y' AND n = 1", "a=x", FALSE),
        ("n = 1 OR a = 'x'", "a=x", TRUE),
        ("n = 1 OR a = 'y'", "a=x", UNKNOWN),
        ("NOT (n = 1)", "", UNKNOWN),
        ("NOT TRUE", "", FALSE),
        ("NULL OR TRUE", "", TRUE),
        ("NULL AND FALSE", "", FALSE),
        ("NOT NULL", "", UNKNOWN),
    ]);
}

#[test]
fn and_binds_tighter_than_or_and_not_tighter_than_comparisons() {
    check(&[
        ("TRUE OR FALSE AND FALSE", "", TRUE),
        ("(TRUE OR FALSE) AND FALSE", "", FALSE),
        ("a=3 and b<>4 And c>5 AND d<=4", "a=3 b=5 c=6 d=1", TRUE),
        ("a=3 or b<>4 Or c>5 OR d<=4", "a=4 b=4 c=3 d=2", TRUE),
        ("a=3 or b<>4 Or c>5 OR d<=4", "a=4 b=4 c=3 d=10", FALSE),
        ("NOT a = 1", "a=1", FALSE),
        ("NOT a IS NULL", "", TRUE),
        ("NOT (a IS NULL)", "", FALSE),
    ]);
}

#[test]
fn truths_compare_with_texts_from_both_sides() {
    check(&[
        ("a = TRUE", "a=tRue", TRUE),
        ("TRUE = a", "a=true", TRUE),
        ("a = FALSE", "a=anything", TRUE),
        ("a = TRUE OR b = FALSE", "a=false b=true", FALSE),
        ("TRUE <> FALSE", "", TRUE),
        ("1 = TRUE", "", FALSE),
        ("(a = 'x') = TRUE", "a=x", TRUE),
    ]);
}

#[test]
fn a_property_alone_is_never_true() {
    check(&[
        ("a", "a=true", FALSE),
        ("a", "", UNKNOWN),
        ("NOT a", "a=true", TRUE),
        ("a OR TRUE", "a=x", TRUE),
    ]);
}

#[test]
fn lists_and_ranges() {
    check(&[
        ("a in ('3', '4', '5')", "a=4", TRUE),
        ("a in ('3', '4', '5')", "a=8", FALSE),
        ("a not in ('3', '4', '5')", "a=8", TRUE),
        ("a not in ('3', '4', '5')", "a=3", FALSE),
        ("(a) IN ('3')", "a=3", TRUE),
        ("a between 2 and 10", "a=2", TRUE),
        ("a between 2 and 10", "a=10", TRUE),
        ("a between 2 and 10", "a=11", FALSE),
        ("a not between 2 and 10", "a=11", TRUE),
        ("a not between 2 and 10", "a=3", FALSE),
        ("a between -1 and -5", "a=-3", FALSE),
        ("a not between 10 and 0", "a=5", TRUE),
        ("a between 1 and n", "a=0", FALSE),
        ("a between 1 and n", "a=5", UNKNOWN),
        ("a not between 1 and n", "a=0", TRUE),
        ("a between 1 and 4 AND color = 'red' AND TAGS IS NOT NULL", "a=2 color=red TAGS=T", TRUE),
    ]);
}

#[test]
fn searches_look_at_texts_only_and_the_empty_text_is_nowhere() {
    check(&[
        ("v contains 'x'", "v=axb", TRUE),
        ("v startswith 'ax'", "v=axb", TRUE),
        ("v endswith 'xb'", "v=axb", TRUE),
        ("v contains 'y'", "v=axb", FALSE),
        ("v startswith 'x'", "v=axb", FALSE),
        ("v endswith 'x'", "v=axb", FALSE),
        ("v not contains 'x'", "v=axb", FALSE),
        ("v not startswith 'x'", "v=axb", TRUE),
        ("v not endswith 'x'", "v=axb", TRUE),
        ("v contains ''", "v=axb", FALSE),
        ("v not contains ''", "v=axb", FALSE),
        ("(v > 1) contains ''", "v=axb", FALSE),
        ("'axb' contains 'x'", "", TRUE),
        ("' ' endswith ' '", "", TRUE),
        ("1.23 not contains 'x'", "", FALSE),
        ("TRUE not contains 'x'", "", FALSE),
        ("'axb' not contains '.'", "", TRUE),
    ]);
}

#[test]
fn quotes_are_doubled_and_blanks_and_comments_do_not_matter() {
    check(&[
        ("t = '''''tag'''''", "t=''tag''", TRUE),
        ("t = '\\'", "t=\\", TRUE),
        ("a=3-- why\n\tAND/* also */b = 'x'\r\n", "a=3 b=x", TRUE),
        ("$a_1 = 'x'", "$a_1=x", TRUE),
        ("A = 'x'", "a=x", UNKNOWN),
    ]);
}

#[test]
fn of_two_equal_names_the_last_counts_and_unreadable_values_do_not() {
    let expression = Expression::parse("a = '2'").unwrap();
    let properties = Properties::new(b"a\x011\x02a\x012\x02a\x01\xff\x02");
    assert_eq!(expression.evaluate(properties), TRUE);
}

#[test]
fn a_filter_asks_for_properties_and_takes_only_what_is_true() {
    let filter = Expression::parse("a > 1").unwrap();
    assert!(filter.needs_properties() && filter.matches_tags_code(7));
    assert!(filter.matches_properties(Properties::new(b"a\x012\x02")));
    assert!(!filter.matches_properties(Properties::new(b"a\x011\x02")));
    assert!(!filter.matches_properties(Properties::new(b"")));
}

#[test]
fn random_expressions_have_the_outcome_that_the_original_gave_them() {
    let golden = include_str!("../../tests/fixtures/sql92.tsv");
    let mut count = 0;
    for line in golden.lines().filter(|line| !line.starts_with('#')) {
        let [outcome, properties, text] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {line}");
        };
        let mut map = PropertyMap::new();
        for pair in properties.split('|').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap();
            map.set(name, value);
        }
        let ours = match Expression::parse(&text.replace("\\n", "\n")) {
            Err(_) => "E",
            Ok(parsed) => match parsed.evaluate(Properties::new(&map.encode())) {
                TRUE => "T",
                FALSE => "F",
                UNKNOWN => "N",
            },
        };
        let expected = if outcome == "X" { "N" } else { outcome };
        assert_eq!(ours, expected, "{text} for {properties:?}");
        count += 1;
    }
    assert_eq!(count, 900);
}

#[test]
fn refusals_name_place_and_expectation() {
    for (text, line, column, part) in [
        ("a BETWEEN 1 AND AND", 1, 17, "expected a property"),
        ("", 1, 1, "found the end"),
        ("a and between 2 and 10", 1, 7, "found BETWEEN"),
        ("a > 1 AND\n  b <", 2, 6, "found the end"),
        ("a LIKE 'x'", 1, 3, "CONTAINS"),
        ("a NOT LIKE 'x'", 1, 7, "expected BETWEEN, IN"),
        ("a = 1 b = 2", 1, 7, "AND, OR or the end"),
        ("(a = 1", 1, 7, "expected \")\""),
        ("a = 1)", 1, 6, "found \")\""),
        ("a = 007", 1, 6, "found \"0\""),
        ("a != 1", 1, 3, "<>"),
        ("a = \"x\"", 1, 5, "single quotes"),
        ("a + 1 > 2", 1, 3, "found \"+\""),
        ("a = 'x", 1, 5, "quote is missing"),
        ("a /* b", 1, 3, "comment has no end"),
        ("a contains x", 1, 12, "text in single quotes"),
        ("a in (1)", 1, 7, "text in single quotes"),
        ("a in ()", 1, 7, "text in single quotes"),
        ("'x' in ('x')", 1, 1, "only a property"),
        ("a IS 5", 1, 6, "expected NULL"),
        ("a = NULL", 1, 5, "IS NULL"),
        ("TRUE = 'x'", 1, 1, "TRUE and FALSE"),
        ("a > 'x'", 1, 5, "texts have no order"),
        ("a > TRUE", 1, 5, "no order"),
        ("a > 1 > 2", 1, 1, "no order"),
        ("NOT a > 1", 1, 1, "NOT binds tighter"),
        ("a between 10 and 0", 1, 11, "above the upper"),
        ("a between NULL and 0", 1, 11, "no order"),
        ("5", 1, 1, "expected a condition"),
        ("a = 1 AND 'x'", 1, 11, "expected a condition"),
        ("a > 9223372036854775808", 1, 5, "too large"),
        ("a > 1e400", 1, 5, "too large"),
        ("a > 1e-400", 1, 5, "too small"),
    ] {
        let error = Expression::parse(text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.problem.contains(part), "{text}: {error}");
    }
}

#[test]
fn limits_are_named_when_they_are_passed() {
    let refused = |text: &str| Expression::parse(text).unwrap_err().problem;
    let long = format!("a = '{}'", "x".repeat(MAX_LENGTH));
    assert!(refused(&long).contains("limit"));
    for (open, close) in [("(", ")"), ("NOT ", ""), ("- ", ""), ("+", "")] {
        let nest = |levels| format!("{}a IS NULL{}", open.repeat(levels), close.repeat(levels));
        assert!(Expression::parse(&nest(MAX_DEPTH - 2)).is_ok(), "{open}");
        assert!(refused(&nest(MAX_DEPTH + 1)).contains("deeper"), "{open}");
        assert!(refused(&nest(10_000)).contains("deeper"), "{open}");
    }
    for tail in [" IS NULL", " = b", " CONTAINS 'x'"] {
        assert!(refused(&format!("a{}", tail.repeat(4_000))).contains("deeper"), "{tail}");
    }
    let many = |count: usize| {
        let terms: Vec<_> = (0..count).map(|at| format!("p{at} = 'x'")).collect();
        terms.join(" OR ")
    };
    assert!(Expression::parse(&many(MAX_NAMES)).is_ok());
    assert!(refused(&many(MAX_NAMES + 1)).contains("properties"));
}

#[test]
fn many_terms_side_by_side_are_not_deep() {
    let text = vec!["a = 'x'"; 5_000].join(" AND ");
    assert_eq!(evaluate(&text, "a=x"), TRUE);
}
