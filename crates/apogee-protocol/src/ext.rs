//! Extension fields: the ordered key and value texts of a header.
//!
//! Owns [`ExtFields`] (as decoded, or built for a request) and [`ExtBuf`] (being written, one buffer).
//!
//! Always holds: keys and values are UTF-8; the last of several equal keys wins, as in a map; a value that
//! stands unescaped in the frame is never copied. Nothing here is bounded by itself: the frame decoder
//! bounds the number of fields and the bytes.

use crate::decimal;
use crate::text::Str;
use bytes::{Bytes, BytesMut};
use std::fmt;

/// Set in `len` when the text lies in the side buffer and not in the frame.
const SIDE: u32 = 1 << 31;

/// A piece of text: offset and length in the frame's header or in the side buffer.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// A value that is there but null.
    pub(crate) const NULL: Span = Span { start: u32::MAX, len: u32::MAX };

    /// Text in the header. Positions are below 2^24, since a header's length has 24 bits.
    pub(crate) fn frame(start: usize, len: usize) -> Span {
        Span { start: start as u32, len: len as u32 & !SIDE }
    }

    /// Text in the side buffer.
    pub(crate) fn side(start: usize, len: usize) -> Span {
        Span { start: start as u32, len: len as u32 | SIDE }
    }

    fn is_null(self) -> bool {
        self.start == u32::MAX && self.len == u32::MAX
    }
}

/// One field: where its key and its value are.
#[derive(Clone, Copy)]
pub struct Field {
    pub(crate) key: Span,
    pub(crate) value: Span,
}

/// Key and value of a field; `None` is null, which only the binary header can write again.
pub(crate) type RawField<'a> = (&'a [u8], Option<&'a [u8]>);

/// The extension fields of one header, in the order of the wire.
#[derive(Clone, Default)]
pub struct ExtFields {
    /// The header the spans point into.
    frame: Bytes,
    /// Texts that had to be unescaped, or were added later.
    side: Bytes,
    fields: Vec<Field>,
}

impl ExtFields {
    /// No fields.
    pub const fn new() -> Self {
        ExtFields { frame: Bytes::new(), side: Bytes::new(), fields: Vec::new() }
    }

    pub(crate) fn from_parts(frame: Bytes, side: Vec<u8>, fields: Vec<Field>) -> Self {
        ExtFields { frame, side: Bytes::from(side), fields }
    }

    /// Number of fields, duplicates and nulls included.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is no field at all.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    fn bytes_of(&self, span: Span) -> &[u8] {
        let buffer = if span.len & SIDE != 0 { &self.side } else { &self.frame };
        let start = span.start as usize;
        buffer.get(start..start + (span.len & !SIDE) as usize).unwrap_or_default()
    }

    pub(crate) fn str_of(&self, span: Span) -> Str {
        let buffer = if span.len & SIDE != 0 { &self.side } else { &self.frame };
        let start = span.start as usize;
        let end = start + (span.len & !SIDE) as usize;
        if end > buffer.len() {
            return Str::new();
        }
        Str::trusted(buffer.slice(start..end))
    }

    /// The value bytes of a field; `None` when the value is null.
    pub fn value_bytes(&self, field: Field) -> Option<&[u8]> {
        (!field.value.is_null()).then(|| self.bytes_of(field.value))
    }

    /// The key bytes of a field.
    pub fn key_bytes(&self, field: Field) -> &[u8] {
        self.bytes_of(field.key)
    }

    /// The key of a field.
    pub fn key(&self, field: Field) -> &str {
        text(self.bytes_of(field.key))
    }

    /// The value of a field without copying; `None` when the value is null.
    pub fn value_str(&self, field: Field) -> Option<Str> {
        (!field.value.is_null()).then(|| self.str_of(field.value))
    }

    /// The fields in order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field> + '_ {
        self.fields.iter().copied()
    }

    /// Keys and values as bytes, in order; `None` is a null value. For the encoders.
    pub(crate) fn raw(&self) -> impl Iterator<Item = RawField<'_>> {
        self.fields.iter().map(|field| (self.bytes_of(field.key), self.value_bytes(*field)))
    }

    /// Keys and values in order, null values left out.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().filter_map(|field| {
            let value = self.value_bytes(*field)?;
            Some((text(self.bytes_of(field.key)), text(value)))
        })
    }

    fn find(&self, key: &str) -> Option<Field> {
        self.fields.iter().rev().find(|field| self.bytes_of(field.key) == key.as_bytes()).copied()
    }

    /// The value of `key`; `None` when absent or null.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.find(key).and_then(|field| self.value_bytes(field)).map(text)
    }

    /// The value of `key` as shared text; `None` when absent or null.
    pub fn get_str(&self, key: &str) -> Option<Str> {
        self.find(key).and_then(|field| self.value_str(field))
    }

    /// Sets `key`, replacing an earlier value.
    pub fn set(&mut self, key: &str, value: &str) {
        self.remove(key);
        self.put_str(key, value);
    }

    /// Removes every value of `key`; tells whether there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.fields.len();
        let mut kept = std::mem::take(&mut self.fields);
        kept.retain(|field| self.bytes_of(field.key) != key.as_bytes());
        self.fields = kept;
        self.fields.len() != before
    }

    /// The fields of a typed header.
    pub fn of(header: &impl crate::headers::Header) -> ExtFields {
        let mut buf = ExtBuf::new();
        header.encode(&mut buf);
        buf.into_ext_fields()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl PartialEq for ExtFields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ExtFields {}

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for ExtFields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut buf = ExtBuf::new();
        for (key, value) in pairs {
            buf.put_str(key, value);
        }
        buf.into_ext_fields()
    }
}

/// Takes the fields of a header, one by one.
pub trait ExtWriter {
    /// Adds a text.
    fn put_str(&mut self, key: &str, value: &str);

    /// Adds a number, in decimal.
    fn put_i64(&mut self, key: &str, value: i64) {
        let mut digits = decimal::Buffer::new();
        self.put_str(key, digits.format(value));
    }

    /// Adds `true` or `false`.
    fn put_bool(&mut self, key: &str, value: bool) {
        self.put_str(key, if value { "true" } else { "false" });
    }
}

impl ExtWriter for ExtFields {
    fn put_str(&mut self, key: &str, value: &str) {
        let mut side = std::mem::take(&mut self.side)
            .try_into_mut()
            .unwrap_or_else(|shared| BytesMut::from(shared.as_ref()));
        let start = side.len();
        side.extend_from_slice(key.as_bytes());
        side.extend_from_slice(value.as_bytes());
        self.fields.push(Field {
            key: Span::side(start, key.len()),
            value: Span::side(start + key.len(), value.len()),
        });
        self.side = side.freeze();
    }
}

/// Extension fields being written: one buffer, no map. This is the hot path of responses.
///
/// ```text
/// repeated: u32 key length | u32 value length | key | value      (native byte order, never leaves the process)
/// ```
#[derive(Clone, Default)]
pub struct ExtBuf(Vec<u8>);

impl ExtBuf {
    /// No fields, nothing allocated.
    pub const fn new() -> Self {
        ExtBuf(Vec::new())
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// Keys and values as bytes, in order. For the encoders.
    pub(crate) fn raw(&self) -> impl Iterator<Item = RawField<'_>> {
        self.pairs().map(|(key, value)| (key, Some(value)))
    }

    fn pairs(&self) -> RawPairs<'_> {
        RawPairs { rest: &self.0 }
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().map(|(key, value)| (text(key), text(value)))
    }

    /// The value of `key`; the last one wins.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().filter(|(known, _)| *known == key).last().map(|(_, value)| value)
    }

    /// The same fields as a decoded header would have them.
    pub fn into_ext_fields(self) -> ExtFields {
        let mut fields = Vec::with_capacity(8);
        let mut at = 0;
        for (key, value) in self.pairs() {
            let key_at = at + 8;
            fields.push(Field {
                key: Span::side(key_at, key.len()),
                value: Span::side(key_at + key.len(), value.len()),
            });
            at = key_at + key.len() + value.len();
        }
        ExtFields::from_parts(Bytes::new(), self.0, fields)
    }
}

impl ExtWriter for ExtBuf {
    fn put_str(&mut self, key: &str, value: &str) {
        if self.0.capacity() == 0 {
            // Fits the answer to a send or a pull.
            self.0.reserve(224);
        }
        self.0.extend_from_slice(&(key.len() as u32).to_ne_bytes());
        self.0.extend_from_slice(&(value.len() as u32).to_ne_bytes());
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(value.as_bytes());
    }
}

impl fmt::Debug for ExtBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Iterator over the pairs of an [`ExtBuf`].
struct RawPairs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for RawPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (key_len, rest) = self.rest.split_first_chunk::<4>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_ne_bytes(*key_len) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_ne_bytes(*value_len) as usize)?;
        self.rest = rest;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_wins() {
        let ext: ExtFields = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(ext.get("a"), Some("3"));
        assert_eq!(ext.len(), 3);
    }

    #[test]
    fn fields_can_be_added_replaced_and_removed() {
        let mut ext: ExtFields = [("a", "1")].into_iter().collect();
        ext.put_bool("oway", true);
        ext.put_i64("n", i64::MIN);
        ext.set("a", "x");
        assert!(ext.remove("oway"));
        assert!(!ext.remove("oway"));
        assert_eq!(ext.iter().collect::<Vec<_>>(), [("n", "-9223372036854775808"), ("a", "x")]);
    }

    #[test]
    fn a_written_buffer_reads_back_in_order() {
        let mut buf = ExtBuf::new();
        buf.put_str("msgId", "x");
        buf.put_i64("queueId", 3);
        assert_eq!(buf.get("queueId"), Some("3"));
        assert_eq!(
            buf.into_ext_fields().iter().collect::<Vec<_>>(),
            [("msgId", "x"), ("queueId", "3")]
        );
    }
}
