//! SQL92 filters: an expression over message properties, parsed once and evaluated per message.
//!
//! Holds the limits, the public type and its use as a [`MessageFilter`]. The language is the one
//! that RocketMQ consumers know:
//!
//! ```text
//! or          and ( OR and )*
//! and         equality ( AND equality )*
//! equality    comparison ( = comparison | <> comparison | IS [NOT] NULL )*
//! comparison  unary ( < <= > >= unary | [NOT] BETWEEN unary AND unary | [NOT] IN ( text, … )
//!                   | [NOT] CONTAINS text | [NOT] STARTSWITH text | [NOT] ENDSWITH text )*
//! unary       + unary | - unary | NOT unary | literal | property | ( or )
//! ```
//!
//! Keywords have no case, property names do. Property values are texts; the literal that stands
//! beside one says what the text is read as. A missing property is NULL, and logic has three
//! values. A text that cannot be read as the number it is compared with ends the evaluation: the
//! message does not match, whatever the rest of the expression says.
//!
//! Deliberate differences from the original, each towards what the writer meant:
//! - text after a complete expression is refused; the original ignores it (`a = 1 b = 2`, `a LIKE 'x'`);
//! - integers have 64 bits everywhere; the original fails on `a > 3` when `a` has more than 32;
//! - `TRUE = a` means the same as `a = TRUE`; the original fails on it for every message;
//! - `0.0` is a number; the original refuses it as too small;
//! - length, depth and number of properties have limits that are named when they are passed.
//!
//! What always holds: no text makes the parser or the evaluation panic or recurse beyond
//! [`MAX_DEPTH`]; evaluation allocates nothing. No threads, no locks: an expression never changes.

mod ast;
mod bloom;
mod error;
mod evaluate;
mod lexer;
mod parser;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod random;

pub use bloom::{FILTER_BITS, filter_bits};
pub use error::SqlError;

use crate::properties::Properties;
use crate::subscription::MessageFilter;
use ast::Node;

/// The longest expression, in bytes.
pub const MAX_LENGTH: usize = 64 * 1024;
/// How deep parentheses, signs and operators may be nested.
pub const MAX_DEPTH: usize = 100;
/// How many different properties one expression may name.
pub const MAX_NAMES: usize = 64;

/// A parsed filter expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    source: Box<str>,
    /// The properties that the expression names; a node refers to them by position.
    names: Box<[Box<str>]>,
    root: Node,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`SqlError`] with line, column and what was expected there; also when one of [`MAX_LENGTH`],
    /// [`MAX_DEPTH`] and [`MAX_NAMES`] is passed.
    pub fn parse(text: &str) -> Result<Self, SqlError> {
        let (root, names) = parser::parse(text).map_err(|fault| fault.locate(text))?;
        Ok(Self { source: text.into(), names: names.into(), root })
    }

    /// The text that was parsed.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The value of the expression for a message with these properties: true, false or unknown.
    ///
    /// Unknown is also the answer when a text is compared with a number and is none.
    #[must_use]
    pub fn evaluate(&self, properties: Properties<'_>) -> Option<bool> {
        let mut values = [None; MAX_NAMES];
        for (key, value) in properties.raw_pairs() {
            let slot = self.names.iter().position(|name| name.as_bytes() == key);
            if let Some(slot) = slot.and_then(|at| values.get_mut(at)) {
                // As in a map, the last of equal names counts.
                *slot = std::str::from_utf8(value).ok().or(*slot);
            }
        }
        evaluate::condition(&self.root, &values).unwrap_or(None)
    }
}

/// The expression with every parenthesis written out.
impl std::fmt::Display for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.root.write(&self.names, f)
    }
}

impl MessageFilter for Expression {
    fn matches_tags_code(&self, _tags_code: i64) -> bool {
        true
    }

    fn needs_properties(&self) -> bool {
        true
    }

    fn matches_properties(&self, properties: Properties<'_>) -> bool {
        self.evaluate(properties) == Some(true)
    }
}
