//! What a consumer wants of a topic: tags, compared by hash in the broker.
//!
//! The consume queue holds only the 32-bit Java hash of a tag, so a match here may be a foreign
//! tag with an equal hash; the consumer compares the strings again.

use crate::hash::java_hash;
use crate::properties::Properties;

/// Expression type of a tag subscription.
pub const EXPRESSION_TAG: &str = "TAG";
/// Expression type of an SQL92 subscription.
pub const EXPRESSION_SQL92: &str = "SQL92";
/// Subscription to everything.
pub const ALL_TAGS: &str = "*";

/// Decides in two steps which messages a reader gets: by the queue unit alone, then by properties.
pub trait MessageFilter: Send + Sync {
    /// Whether a unit with this tags code may match.
    fn matches_tags_code(&self, tags_code: i64) -> bool;

    /// Whether the second step is needed at all: reading properties touches the commit log.
    fn needs_properties(&self) -> bool {
        false
    }

    /// Whether a message with these properties matches.
    fn matches_properties(&self, _properties: Properties<'_>) -> bool {
        true
    }
}

/// Why a subscription expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tag expression {0:?} names no tag; use \"*\" or \"TagA || TagB\"")]
pub struct ExpressionError(pub String);

/// A set of tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagFilter {
    /// Every message.
    All,
    /// Messages whose tag hash is one of these (sorted).
    Codes(Box<[i32]>),
}

impl TagFilter {
    /// Parses `*`, an empty text (both: everything) or `TagA || TagB`.
    ///
    /// # Errors
    /// [`ExpressionError`] when there are only separators.
    pub fn parse(expression: &str) -> Result<Self, ExpressionError> {
        let expression = expression.trim();
        if expression.is_empty() || expression == ALL_TAGS {
            return Ok(Self::All);
        }
        let filter = Self::from_codes(split_tags(expression).map(java_hash));
        match &filter {
            Self::Codes(codes) if codes.is_empty() => Err(ExpressionError(expression.to_owned())),
            _ => Ok(filter),
        }
    }

    /// A filter over given tag hashes.
    #[must_use]
    pub fn from_codes(codes: impl IntoIterator<Item = i32>) -> Self {
        let mut codes: Vec<i32> = codes.into_iter().collect();
        codes.sort_unstable();
        codes.dedup();
        Self::Codes(codes.into_boxed_slice())
    }
}

/// The tags of an expression such as `TagA || TagB`.
pub fn split_tags(expression: &str) -> impl Iterator<Item = &str> {
    expression.split("||").map(str::trim).filter(|tag| !tag.is_empty())
}

impl MessageFilter for TagFilter {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        match self {
            Self::All => true,
            // Only the low 32 bits are the hash: the code is sign-extended.
            Self::Codes(codes) => codes.binary_search(&(tags_code as i32)).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::tags_code;

    #[test]
    fn star_and_empty_take_everything() {
        for text in ["*", "", "  "] {
            assert_eq!(TagFilter::parse(text), Ok(TagFilter::All));
        }
    }

    #[test]
    fn listed_tags_match_and_others_do_not() {
        let filter = TagFilter::parse(" TagA || TagB||").unwrap();
        assert!(filter.matches_tags_code(tags_code("TagA")));
        assert!(filter.matches_tags_code(tags_code("TagB")));
        assert!(!filter.matches_tags_code(tags_code("TagC")));
        assert!(!filter.matches_tags_code(0));
    }

    #[test]
    fn negative_hashes_match_after_sign_extension() {
        let tag = "polygenelubricants";
        assert!(TagFilter::parse(tag).unwrap().matches_tags_code(tags_code(tag)));
    }

    #[test]
    fn only_separators_are_refused_with_the_expression() {
        assert!(TagFilter::parse("|| ||").unwrap_err().to_string().contains("|| ||"));
    }
}
