//! `Str`: UTF-8 text that borrows from a frame.
//!
//! Always holds: the bytes were checked to be UTF-8 when the value was made. Cloning counts a reference
//! and copies nothing. A `Str` keeps the whole buffer it was cut from alive, so tables that outlive a
//! request store `to_string()` (or [`Str::detach`]) instead.

use bytes::Bytes;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str::Utf8Error;

/// Shared UTF-8 text, usually a slice of the frame it came in.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Str(Bytes);

impl Str {
    /// The empty text.
    pub const fn new() -> Self {
        Str(Bytes::new())
    }

    /// Text that lives as long as the program; costs nothing.
    pub const fn from_static(text: &'static str) -> Self {
        Str(Bytes::from_static(text.as_bytes()))
    }

    /// Takes over bytes.
    ///
    /// # Errors
    /// When the bytes are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, Utf8Error> {
        std::str::from_utf8(&bytes)?;
        Ok(Str(bytes))
    }

    /// Takes over bytes cut out of a text that was checked, between ASCII characters.
    pub(crate) fn trusted(bytes: Bytes) -> Self {
        debug_assert!(std::str::from_utf8(&bytes).is_ok());
        Str(bytes)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Checked on the way in. Checking again costs a few nanoseconds for the short ASCII texts of
        // headers, which is the price of doing without `unsafe` here.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The bytes of the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The shared bytes of the text.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// A copy that no longer keeps the frame alive.
    #[must_use]
    pub fn detach(&self) -> Str {
        Str(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for Str {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

// As `str` does, so that a map keyed by `Str` can be asked with a `&str`.
impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Str(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Str(Bytes::from(text))
    }
}

impl From<Str> for String {
    fn from(text: Str) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_map_keyed_by_str_is_asked_with_plain_text() {
        let mut map = HashMap::new();
        map.insert(Str::from("TopicA"), 1);
        assert_eq!(map.get("TopicA"), Some(&1));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert!(Str::from_utf8(Bytes::from_static(&[0xff, 0xfe])).is_err());
    }
}
