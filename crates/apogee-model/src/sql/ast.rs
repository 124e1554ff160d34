//! The parsed form of an expression.
//!
//! What always holds in a tree that the parser made: no node is deeper than [`super::MAX_DEPTH`],
//! every slot is below the number of names, and children of `All`, `Any` and `Not` are conditions.

use std::cmp::Ordering;
use std::fmt::{Formatter, Result};

/// Position of a property name in the list of names.
pub(super) type Slot = usize;

/// An order comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderOperator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl OrderOperator {
    pub(super) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    pub(super) fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// Where a searched text has to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    Start,
    End,
}

impl Place {
    fn keyword(self) -> &'static str {
        match self {
            Self::Anywhere => "CONTAINS",
            Self::Start => "STARTSWITH",
            Self::End => "ENDSWITH",
        }
    }
}

/// A value or a condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Property(Slot),
    Integer(i64),
    Double(f64),
    Text(Box<str>),
    /// TRUE, FALSE and NULL: a value and a condition.
    Truth(Option<bool>),
    Negate(Box<Node>),

    /// A property where a condition is asked for: false when it is there, else unknown.
    Presence(Slot),
    Not(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Equal(Box<[Node; 2]>),
    IsNull(Box<Node>),
    Order(OrderOperator, Box<[Node; 2]>),
    Between {
        /// Value, low, high.
        operands: Box<[Node; 3]>,
        negated: bool,
    },
    Search {
        value: Box<Node>,
        place: Place,
        text: Box<str>,
        negated: bool,
    },
    In {
        slot: Slot,
        /// Sorted.
        list: Box<[Box<str>]>,
        negated: bool,
    },
}

impl Node {
    /// Whether this is a condition; the others are values.
    pub(super) fn is_condition(&self) -> bool {
        match self {
            Self::Property(_)
            | Self::Integer(_)
            | Self::Double(_)
            | Self::Text(_)
            | Self::Negate(_) => false,
            Self::Truth(_)
            | Self::Presence(_)
            | Self::Not(_)
            | Self::All(_)
            | Self::Any(_)
            | Self::Equal(_)
            | Self::IsNull(_)
            | Self::Order(..)
            | Self::Between { .. }
            | Self::Search { .. }
            | Self::In { .. } => true,
        }
    }

    /// Whether this stands in the text as a literal; a sign before it makes it none.
    pub(super) fn is_literal(&self) -> bool {
        matches!(self, Self::Integer(_) | Self::Double(_) | Self::Text(_) | Self::Truth(_))
    }

    /// Writes the node with all parentheses, so that it parses to itself.
    pub(super) fn write(&self, names: &[Box<str>], f: &mut Formatter<'_>) -> Result {
        let name = |slot: Slot| names.get(slot).map_or("?", |name| name);
        let not = |negated: bool| if negated { " NOT" } else { "" };
        match self {
            Self::Property(slot) | Self::Presence(slot) => f.write_str(name(*slot)),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Text(text) => write_text(text, f),
            Self::Truth(Some(true)) => f.write_str("TRUE"),
            Self::Truth(Some(false)) => f.write_str("FALSE"),
            Self::Truth(None) => f.write_str("NULL"),
            Self::Negate(value) => write_wrapped("(- ", value, ")", names, f),
            Self::Not(value) => write_wrapped("(NOT ", value, ")", names, f),
            Self::IsNull(value) => write_wrapped("(", value, " IS NULL)", names, f),
            Self::All(terms) => write_joined(terms, " AND ", names, f),
            Self::Any(terms) => write_joined(terms, " OR ", names, f),
            Self::Equal(pair) => write_joined(pair.as_slice(), " = ", names, f),
            Self::Order(operator, pair) => {
                let symbol = operator.symbol();
                write_joined(pair.as_slice(), &format!(" {symbol} "), names, f)
            }
            Self::Between { operands, negated } => {
                let [value, low, high] = operands.as_ref();
                value.write(names, write_open(f)?)?;
                write!(f, "{} BETWEEN ", not(*negated))?;
                low.write(names, f)?;
                write_wrapped(" AND ", high, ")", names, f)
            }
            Self::Search { value, place, text, negated } => {
                value.write(names, write_open(f)?)?;
                write!(f, "{} {} ", not(*negated), place.keyword())?;
                write_text(text, f)?;
                f.write_str(")")
            }
            Self::In { slot, list, negated } => {
                write!(f, "({}{} IN (", name(*slot), not(*negated))?;
                for (at, text) in list.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    write_text(text, f)?;
                }
                f.write_str("))")
            }
        }
    }
}

fn write_open<'f, 'a>(
    f: &'f mut Formatter<'a>,
) -> std::result::Result<&'f mut Formatter<'a>, std::fmt::Error> {
    f.write_str("(")?;
    Ok(f)
}

fn write_text(text: &str, f: &mut Formatter<'_>) -> Result {
    write!(f, "'{}'", text.replace('\'', "''"))
}

fn write_wrapped(
    before: &str,
    node: &Node,
    after: &str,
    names: &[Box<str>],
    f: &mut Formatter<'_>,
) -> Result {
    f.write_str(before)?;
    node.write(names, f)?;
    f.write_str(after)
}

fn write_joined(
    nodes: &[Node],
    between: &str,
    names: &[Box<str>],
    f: &mut Formatter<'_>,
) -> Result {
    for (at, node) in nodes.iter().enumerate() {
        f.write_str(if at == 0 { "(" } else { between })?;
        node.write(names, f)?;
    }
    f.write_str(")")
}
