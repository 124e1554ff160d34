//! Random expressions against a plain evaluator, and random texts against the parser.
//!
//! The plain evaluator works on its own trees and follows the rules as they are documented, one
//! case after the other; the code under test gets the tree as text only.

use super::*;
use crate::properties::PropertyMap;
use proptest::prelude::*;
use std::fmt;

/// A value as it may stand in a text.
#[derive(Debug, Clone)]
enum Plain {
    Property(&'static str),
    Integer(i64),
    Double(f64),
    Text(&'static str),
    Negative(Box<Plain>),
}

/// A condition as it may stand in a text.
#[derive(Debug, Clone)]
enum Claim {
    Truth(Option<bool>),
    Property(&'static str),
    Not(Box<Claim>),
    And(Box<Claim>, Box<Claim>),
    Or(Box<Claim>, Box<Claim>),
    Equal(Plain, Plain, bool),
    Order(Plain, &'static str, Plain),
    Between(Plain, Plain, Plain, bool),
    IsNull(Plain, bool),
    In(&'static str, Vec<&'static str>, bool),
    Search(Plain, &'static str, &'static str, bool),
}

const NAMES: [&str; 4] = ["a", "b", "Key", "$x_1"];
const TEXTS: [&str; 9] = ["", "x", "ax", "3", "-4", "2.5", "true", "it's", "9999999999"];

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Property(name) => f.write_str(name),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Negative(value) => write!(f, "- {value}"),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "not" } else { "" };
        match self {
            Self::Truth(Some(truth)) => write!(f, "{truth}"),
            Self::Truth(None) => f.write_str("null"),
            Self::Property(name) => f.write_str(name),
            Self::Not(claim) => write!(f, "not ({claim})"),
            Self::And(left, right) => write!(f, "({left}) and ({right})"),
            Self::Or(left, right) => write!(f, "({left} or {right})"),
            Self::Equal(left, right, true) => write!(f, "{left} = {right}"),
            Self::Equal(left, right, false) => write!(f, "{left}<>{right}"),
            Self::Order(left, symbol, right) => write!(f, "{left}{symbol}{right}"),
            Self::Between(value, low, high, negated) => {
                write!(f, "{value} {} between {low} and {high}", not(negated))
            }
            Self::IsNull(value, negated) => write!(f, "{value} is {} null", not(negated)),
            Self::In(name, list, negated) => {
                let list: Vec<_> = list.iter().map(|text| Plain::Text(text).to_string()).collect();
                write!(f, "{name} {} in ({})", not(negated), list.join(","))
            }
            Self::Search(value, kind, text, negated) => {
                write!(f, "{value} {} {kind} {}", not(negated), Plain::Text(text))
            }
        }
    }
}

/// What a value is for given properties.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    Nothing,
    Integer(i64),
    Double(f64),
    Text(String),
}

/// `Err` stands for a text that is no number.
type Outcome = Result<Option<bool>, ()>;

fn known(value: &Plain, properties: &PropertyMap) -> Known {
    match value {
        Plain::Property(name) => match properties.get(name) {
            Some(text) => Known::Text(text.to_owned()),
            None => Known::Nothing,
        },
        Plain::Integer(value) => Known::Integer(*value),
        Plain::Double(value) => Known::Double(*value),
        Plain::Text(text) => Known::Text((*text).to_owned()),
        Plain::Negative(value) => match known(value, properties) {
            Known::Integer(value) => Known::Integer(-value),
            Known::Double(value) => Known::Double(-value),
            _ => Known::Nothing,
        },
    }
}

/// The difference of two values as numbers; both come from short texts, so doubles are exact.
fn difference(left: &Known, right: &Known) -> Result<f64, ()> {
    let whole_numbers = matches!(left, Known::Integer(_)) || matches!(right, Known::Integer(_));
    let number = |value: &Known| match value {
        Known::Integer(value) => Ok(*value as f64),
        Known::Double(value) => Ok(*value),
        Known::Text(text) if whole_numbers => text.parse::<i64>().map(|v| v as f64).map_err(drop),
        Known::Text(text) => text.parse::<f64>().map_err(drop),
        Known::Nothing => Err(()),
    };
    Ok(number(left)? - number(right)?)
}

fn order(left: &Known, symbol: &str, right: &Known) -> Outcome {
    if *left == Known::Nothing || *right == Known::Nothing {
        return Ok(None);
    }
    let difference = difference(left, right)?;
    Ok(Some(match symbol {
        "<" => difference < 0.0,
        "<=" => difference <= 0.0,
        ">" => difference > 0.0,
        _ => difference >= 0.0,
    }))
}

fn and(left: Outcome, right: impl FnOnce() -> Outcome) -> Outcome {
    match left? {
        Some(false) => Ok(Some(false)),
        left => Ok(match (left, right()?) {
            (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }),
    }
}

fn not(outcome: Outcome) -> Outcome {
    Ok(outcome?.map(|truth| !truth))
}

fn outcome(claim: &Claim, properties: &PropertyMap) -> Outcome {
    let known = |value: &Plain| known(value, properties);
    match claim {
        Claim::Truth(truth) => Ok(*truth),
        Claim::Property(name) => Ok(properties.get(name).map(|_| false)),
        Claim::Not(claim) => not(outcome(claim, properties)),
        Claim::And(left, right) => and(outcome(left, properties), || outcome(right, properties)),
        Claim::Or(left, right) => {
            not(and(not(outcome(left, properties)), || not(outcome(right, properties))))
        }
        Claim::Equal(left, right, wanted) => {
            let equal = match (known(left), known(right)) {
                (Known::Nothing, Known::Nothing) => Ok(Some(true)),
                (Known::Nothing, _) => Ok(None),
                (_, Known::Nothing) => Ok(Some(false)),
                (Known::Text(left), Known::Text(right)) => Ok(Some(left == right)),
                (left, right) => difference(&left, &right).map(|gap| Some(gap == 0.0)),
            };
            if *wanted { equal } else { not(equal) }
        }
        Claim::Order(left, symbol, right) => order(&known(left), symbol, &known(right)),
        Claim::Between(value, low, high, negated) => {
            let (value, low, high) = (known(value), known(low), known(high));
            let within = and(order(&value, ">=", &low), || order(&value, "<=", &high));
            if *negated { not(within) } else { within }
        }
        Claim::IsNull(value, negated) => Ok(Some((known(value) == Known::Nothing) != *negated)),
        Claim::In(name, list, negated) => {
            Ok(properties.get(name).map(|text| list.contains(&text) != *negated))
        }
        Claim::Search(value, kind, text, negated) => Ok(Some(match known(value) {
            Known::Text(value) if !text.is_empty() => {
                let found = match *kind {
                    "contains" => value.contains(text),
                    "startswith" => value.starts_with(text),
                    _ => value.ends_with(text),
                };
                found != *negated
            }
            _ => false,
        })),
    }
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn text() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&TEXTS[..])
}

fn number() -> impl Strategy<Value = Plain> {
    let unsigned = prop_oneof![
        3 => name().prop_map(Plain::Property),
        1 => prop::sample::select(vec![0, 3, 4, 9_999_999_999]).prop_map(Plain::Integer),
        1 => prop::sample::select(vec![0.25, 2.5, 3.0, 1e10]).prop_map(Plain::Double),
    ];
    (unsigned, any::<bool>()).prop_map(|(value, negative)| match negative {
        true => Plain::Negative(Box::new(value)),
        false => value,
    })
}

fn plain() -> impl Strategy<Value = Plain> {
    prop_oneof![2 => number(), 1 => text().prop_map(Plain::Text)]
}

fn claim() -> impl Strategy<Value = Claim> {
    let symbol = prop::sample::select(vec!["<", "<=", ">", ">="]);
    let search = prop::sample::select(vec!["contains", "startswith", "endswith"]);
    let leaf = prop_oneof![
        any::<Option<bool>>().prop_map(Claim::Truth),
        name().prop_map(Claim::Property),
        (plain(), plain(), any::<bool>()).prop_map(|(l, r, wanted)| Claim::Equal(l, r, wanted)),
        (number(), symbol, number()).prop_map(|(l, symbol, r)| Claim::Order(l, symbol, r)),
        (number(), number(), number(), any::<bool>())
            .prop_map(|(value, low, high, not)| Claim::Between(value, low, high, not)),
        (plain(), any::<bool>()).prop_map(|(value, not)| Claim::IsNull(value, not)),
        (name(), prop::collection::vec(text(), 1..4), any::<bool>())
            .prop_map(|(name, list, not)| Claim::In(name, list, not)),
        (plain(), search, text(), any::<bool>())
            .prop_map(|(value, kind, text, not)| Claim::Search(value, kind, text, not)),
    ];
    leaf.prop_recursive(5, 30, 2, |inner| {
        let pair = (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
        prop_oneof![
            inner.prop_map(|claim| Claim::Not(Box::new(claim))),
            pair.clone().prop_map(|(left, right)| Claim::And(left, right)),
            pair.prop_map(|(left, right)| Claim::Or(left, right)),
        ]
    })
}

fn properties() -> impl Strategy<Value = PropertyMap> {
    prop::collection::vec((name(), text()), 0..5).prop_map(|pairs| {
        let mut map = PropertyMap::new();
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            map.set(name, value);
        }
        map
    })
}

/// Pieces that make random texts look like expressions.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "a", "b", "1", "2.5", "'x'", "''", "(", ")", ",", "=", "<>", "<", ">=", "-", "+",
            "NOT", "AND", "OR", "BETWEEN", "IN", "IS", "NULL", "TRUE", "CONTAINS", "ENDSWITH",
            "--", "/*", "*/", "\n", "'", "9223372036854775808", "é",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    let blank = prop::sample::select(vec!["", " "]);
    prop::collection::vec((piece, blank), 0..20)
        .prop_map(|pieces| pieces.into_iter().map(|(piece, blank)| piece + blank).collect())
}

proptest! {
    #[test]
    fn expressions_evaluate_as_a_plain_evaluator_says(claim in claim(), map in properties()) {
        let text = claim.to_string();
        match Expression::parse(&text) {
            Ok(expression) => {
                let expected = outcome(&claim, &map).unwrap_or(None);
                let encoded = map.encode();
                prop_assert_eq!(expression.evaluate(Properties::new(&encoded)), expected, "{}", text);
            }
            // The generator knows nothing of the few combinations that make no sense.
            Err(error) => prop_assert!(
                error.problem.contains("above the upper"),
                "{}: {}", text, error
            ),
        }
    }

    #[test]
    fn a_printed_expression_parses_to_itself(claim in claim()) {
        if let Ok(expression) = Expression::parse(&claim.to_string()) {
            let printed = expression.to_string();
            let again = Expression::parse(&printed).map_err(|error| error.to_string());
            prop_assert_eq!(again.map(|again| again.root), Ok(expression.root), "{}", printed);
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused_within_itself(text in pieces()) {
        match Expression::parse(&text) {
            Ok(expression) => {
                let _ = expression.evaluate(Properties::new(b"a\x011\x02b\x01x\x02"));
            }
            Err(error) => {
                prop_assert!(error.line <= text.lines().count() + 1);
                prop_assert!(error.column <= text.chars().count() + 1);
            }
        }
    }
}
