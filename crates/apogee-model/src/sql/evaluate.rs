//! Computes the value of a node from the texts of the properties.
//!
//! Comparison rules, by the types of the two sides:
//!
//! | sides | `=` | order |
//! |---|---|---|
//! | text, text | same bytes | both read as decimal numbers |
//! | text, integer | text read as an integer | the same |
//! | text, decimal | text read as a decimal number | the same |
//! | text, truth | text is "true" in any case, or it counts as FALSE | refused by the parser |
//! | integer, decimal | as decimal numbers | the same |
//! | number, truth | never equal | refused by the parser |
//!
//! A text that cannot be read as asked is [`NotANumber`], and that ends the whole evaluation.

use super::MAX_NAMES;
use super::ast::{Node, OrderOperator, Place};
use std::cmp::Ordering;

/// A text was compared with a number and is none.
pub(super) struct NotANumber;

/// Values of the properties by slot.
pub(super) type Values<'a> = [Option<&'a str>; MAX_NAMES];

#[derive(Clone, Copy)]
enum Value<'a> {
    Null,
    Truth(bool),
    Integer(i64),
    Double(f64),
    Text(&'a str),
}

impl From<Option<bool>> for Value<'_> {
    fn from(truth: Option<bool>) -> Self {
        truth.map_or(Self::Null, Self::Truth)
    }
}

/// The value of a condition; a value that is none counts as unknown.
pub(super) fn condition(node: &Node, values: &Values<'_>) -> Result<Option<bool>, NotANumber> {
    Ok(match value(node, values)? {
        Value::Truth(truth) => Some(truth),
        Value::Null | Value::Integer(_) | Value::Double(_) | Value::Text(_) => None,
    })
}

fn value<'v>(node: &'v Node, values: &Values<'v>) -> Result<Value<'v>, NotANumber> {
    let property = |slot: usize| values.get(slot).copied().flatten();
    Ok(match node {
        Node::Property(slot) => property(*slot).map_or(Value::Null, Value::Text),
        Node::Integer(value) => Value::Integer(*value),
        Node::Double(value) => Value::Double(*value),
        Node::Text(text) => Value::Text(text),
        Node::Truth(truth) => (*truth).into(),
        Node::Negate(inner) => match value(inner, values)? {
            Value::Integer(value) => Value::Integer(value.wrapping_neg()),
            Value::Double(value) => Value::Double(-value),
            Value::Null | Value::Truth(_) | Value::Text(_) => Value::Null,
        },
        Node::Presence(slot) => property(*slot).map(|_| false).into(),
        Node::Not(inner) => condition(inner, values)?.map(|truth| !truth).into(),
        Node::All(terms) => junction(terms, false, values)?.into(),
        Node::Any(terms) => junction(terms, true, values)?.into(),
        Node::Equal(pair) => {
            let [left, right] = pair.as_ref();
            equal(value(left, values)?, value(right, values)?)?.into()
        }
        Node::IsNull(inner) => Value::Truth(matches!(value(inner, values)?, Value::Null)),
        Node::Order(operator, pair) => {
            let [left, right] = pair.as_ref();
            ordered(*operator, value(left, values)?, right, values)?.into()
        }
        Node::Between { operands, negated } => between(operands, *negated, values)?.into(),
        // Nothing contains the empty text, and only a text can contain one.
        Node::Search { text, .. } if text.is_empty() => Value::Truth(false),
        Node::Search { value: inner, place, text, negated } => {
            let holds = |value| found(*place, value, text) != *negated;
            let inner = value(inner, values)?;
            Value::Truth(matches!(inner, Value::Text(value) if holds(value)))
        }
        Node::In { slot, list, negated } => property(*slot)
            .map(|text| list.binary_search_by(|item| (**item).cmp(text)).is_ok() != *negated)
            .into(),
    })
}

/// AND (`decisive` false) and OR (`decisive` true): the first decisive term ends it.
fn junction(
    terms: &[Node],
    decisive: bool,
    values: &Values<'_>,
) -> Result<Option<bool>, NotANumber> {
    let mut unknown = false;
    for term in terms {
        match condition(term, values)? {
            Some(truth) if truth == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok((!unknown).then_some(!decisive))
}

/// Two missing sides are equal; nothing is unequal to a missing right side, a missing left side
/// makes the answer unknown. So it is in the original, and IS NULL rests on it.
fn equal(left: Value<'_>, right: Value<'_>) -> Result<Option<bool>, NotANumber> {
    Ok(match (left, right) {
        (Value::Null, Value::Null) => Some(true),
        (Value::Null, _) => None,
        (_, Value::Null) => Some(false),
        (Value::Text(left), Value::Text(right)) => Some(left == right),
        _ => Some(compare(left, right)?.is_eq()),
    })
}

fn ordered<'v>(
    operator: OrderOperator,
    left: Value<'v>,
    right: &'v Node,
    values: &Values<'v>,
) -> Result<Option<bool>, NotANumber> {
    if matches!(left, Value::Null) {
        return Ok(None);
    }
    let right = value(right, values)?;
    if matches!(right, Value::Null) {
        return Ok(None);
    }
    Ok(Some(operator.holds(compare(left, right)?)))
}

fn between(
    operands: &[Node; 3],
    negated: bool,
    values: &Values<'_>,
) -> Result<Option<bool>, NotANumber> {
    let [inner, low, high] = operands;
    let inner = value(inner, values)?;
    let (for_low, for_high) = if negated {
        (OrderOperator::Less, OrderOperator::Greater)
    } else {
        (OrderOperator::GreaterOrEqual, OrderOperator::LessOrEqual)
    };
    // `value >= low AND value <= high`; negated `value < low OR value > high`.
    let first = ordered(for_low, inner, low, values)?;
    if first == Some(negated) {
        return Ok(first);
    }
    let second = ordered(for_high, inner, high, values)?;
    if second == Some(negated) {
        return Ok(second);
    }
    Ok((first.is_some() && second.is_some()).then_some(!negated))
}

fn found(place: Place, value: &str, text: &str) -> bool {
    match place {
        Place::Anywhere => value.contains(text),
        Place::Start => value.starts_with(text),
        Place::End => value.ends_with(text),
    }
}

/// Compares two values that are there; see the table above.
fn compare(left: Value<'_>, right: Value<'_>) -> Result<Ordering, NotANumber> {
    use Value::{Double, Integer, Null, Text, Truth};
    Ok(match (left, right) {
        (Integer(left), Integer(right)) => left.cmp(&right),
        (Integer(left), Double(right)) => (left as f64).total_cmp(&right),
        (Double(left), Integer(right)) => left.total_cmp(&(right as f64)),
        (Double(left), Double(right)) => left.total_cmp(&right),
        (Text(left), Integer(right)) => integer(left)?.cmp(&right),
        (Integer(left), Text(right)) => left.cmp(&integer(right)?),
        (Text(left), Double(right)) => decimal(left)?.total_cmp(&right),
        (Double(left), Text(right)) => left.total_cmp(&decimal(right)?),
        (Text(left), Text(right)) => decimal(left)?.total_cmp(&decimal(right)?),
        (Truth(left), Truth(right)) => left.cmp(&right),
        (Text(left), Truth(right)) => is_true(left).cmp(&right),
        (Truth(left), Text(right)) => left.cmp(&is_true(right)),
        // Different kinds are unequal; which way round is never asked.
        (Truth(_), Integer(_) | Double(_)) | (Integer(_) | Double(_), Truth(_)) => Ordering::Less,
        (Null, _) | (_, Null) => Ordering::Less,
    })
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

fn integer(text: &str) -> Result<i64, NotANumber> {
    text.parse().map_err(|_| NotANumber)
}

/// Reads what Java's `Double.valueOf` reads, hexadecimal forms excepted. The only NaN is positive,
/// so that `total_cmp` orders as Java's `compareTo`.
pub(super) fn decimal(text: &str) -> Result<f64, NotANumber> {
    let text = text.trim_matches(|c| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        "NaN" => return Ok(f64::NAN),
        "Infinity" if text.starts_with('-') => return Ok(f64::NEG_INFINITY),
        "Infinity" => return Ok(f64::INFINITY),
        _ => {}
    }
    let text = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    // Rust would read "inf" and "nan" too.
    let plain =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if !text.bytes().all(plain) {
        return Err(NotANumber);
    }
    text.parse().map_err(|_| NotANumber)
}
