//! Typed headers: one table gives struct, reader and writer of every header.
//!
//! A line of a table is `req|opt|def field: Type = "wire name" | "second name",`: `req` must be there,
//! `opt` is an `Option`, `def` is Java's primitive (absent reads as 0 or false, always written). `+ rpc`
//! adds the routing fields that most requests may carry.
//!
//! Always holds: a reader passes over the fields once, takes the last of equal names, ignores unknown
//! names, copies no text, and names header, field and reason when it refuses. Values are checked for type
//! here, never for meaning.

mod admin;
mod client;
mod namesrv;
mod replication;
mod send;

pub use admin::*;
pub use client::*;
pub use namesrv::*;
pub use replication::*;
pub use send::*;

use crate::decimal;
use crate::ext::{ExtFields, ExtWriter, Field};
use crate::text::Str;

/// A typed header.
pub trait Header: Sized {
    /// The original's name of the header, for messages.
    const NAME: &'static str;

    /// Reads the fields.
    ///
    /// # Errors
    /// When a required field is missing or a value is not of its type.
    fn decode(ext: &ExtFields) -> Result<Self, HeaderError>;

    /// Writes the fields that are set, in the table's order.
    fn encode<W: ExtWriter + ?Sized>(&self, out: &mut W);
}

/// The header of a request that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoHeader;

impl Header for NoHeader {
    const NAME: &'static str = "NoHeader";

    fn decode(_: &ExtFields) -> Result<Self, HeaderError> {
        Ok(NoHeader)
    }

    fn encode<W: ExtWriter + ?Sized>(&self, _: &mut W) {}
}

/// Why a header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{header}: field \"{field}\" {problem}")]
pub struct HeaderError {
    /// The header.
    pub header: &'static str,
    /// The field, as on the wire.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: FieldProblem,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// A required field is not there.
    #[error("is missing")]
    Missing,
    /// The value is no whole number.
    #[error("is not a whole number: \"{0}\"")]
    NotANumber(String),
    /// The number does not fit its type.
    #[error("is out of range: \"{0}\"")]
    OutOfRange(String),
}

/// At most this much of a wrong value is repeated in the refusal, in characters.
const QUOTED_CHARS: usize = 32;

fn quoted(value: &[u8]) -> String {
    String::from_utf8_lossy(value).chars().take(QUOTED_CHARS).collect()
}

/// A type that a header field can have.
pub trait FieldValue: Sized {
    /// Reads a value that is there.
    ///
    /// # Errors
    /// When the value is not of this type.
    fn read(ext: &ExtFields, field: Field, value: &[u8]) -> Result<Self, FieldProblem>;

    /// Writes the value.
    fn write<W: ExtWriter + ?Sized>(&self, key: &str, out: &mut W);
}

impl FieldValue for Str {
    fn read(ext: &ExtFields, field: Field, _: &[u8]) -> Result<Self, FieldProblem> {
        ext.value_str(field).ok_or(FieldProblem::Missing)
    }

    fn write<W: ExtWriter + ?Sized>(&self, key: &str, out: &mut W) {
        out.put_str(key, self);
    }
}

impl FieldValue for i64 {
    fn read(_: &ExtFields, _: Field, value: &[u8]) -> Result<Self, FieldProblem> {
        decimal::parse_i64(value).map_err(|out_of_range| match out_of_range {
            true => FieldProblem::OutOfRange(quoted(value)),
            false => FieldProblem::NotANumber(quoted(value)),
        })
    }

    fn write<W: ExtWriter + ?Sized>(&self, key: &str, out: &mut W) {
        out.put_i64(key, *self);
    }
}

impl FieldValue for i32 {
    fn read(ext: &ExtFields, field: Field, value: &[u8]) -> Result<Self, FieldProblem> {
        let wide = i64::read(ext, field, value)?;
        i32::try_from(wide).map_err(|_| FieldProblem::OutOfRange(quoted(value)))
    }

    fn write<W: ExtWriter + ?Sized>(&self, key: &str, out: &mut W) {
        out.put_i64(key, i64::from(*self));
    }
}

impl FieldValue for bool {
    // As Java's parseBoolean: "true" in any case, all else is false.
    fn read(_: &ExtFields, _: Field, value: &[u8]) -> Result<Self, FieldProblem> {
        Ok(value.eq_ignore_ascii_case(b"true"))
    }

    fn write<W: ExtWriter + ?Sized>(&self, key: &str, out: &mut W) {
        out.put_bool(key, *self);
    }
}

/// Which of several messages with the searched timestamp is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BoundaryType {
    /// The first one.
    #[default]
    Lower,
    /// The last one.
    Upper,
}

impl FieldValue for BoundaryType {
    fn read(_: &ExtFields, _: Field, value: &[u8]) -> Result<Self, FieldProblem> {
        Ok(if value.eq_ignore_ascii_case(b"upper") {
            BoundaryType::Upper
        } else {
            BoundaryType::Lower
        })
    }

    fn write<W: ExtWriter + ?Sized>(&self, key: &str, out: &mut W) {
        out.put_str(key, if *self == BoundaryType::Upper { "UPPER" } else { "LOWER" });
    }
}

/// Reads a field that was seen (or not) on the pass over the header.
fn value<T: FieldValue>(
    ext: &ExtFields,
    seen: Option<Field>,
    header: &'static str,
    name: &'static str,
) -> Result<Option<T>, HeaderError> {
    let Some((field, bytes)) = seen.and_then(|field| Some((field, ext.value_bytes(field)?))) else {
        return Ok(None);
    };
    match T::read(ext, field, bytes) {
        Ok(value) => Ok(Some(value)),
        // An empty text where a number belongs is what some clients send for "not set".
        Err(_) if bytes.is_empty() => Ok(None),
        Err(problem) => Err(HeaderError { header, field: name, problem }),
    }
}

macro_rules! headers {
    (@type req $ty:ty) => { $ty };
    (@type def $ty:ty) => { $ty };
    (@type opt $ty:ty) => { Option<$ty> };
    (@value req $value:expr, $header:expr, $name:literal) => {
        $value.ok_or(HeaderError { header: $header, field: $name, problem: FieldProblem::Missing })?
    };
    (@value def $value:expr, $header:expr, $name:literal) => { $value.unwrap_or_default() };
    (@value opt $value:expr, $header:expr, $name:literal) => { $value };
    (@write req $value:expr, $name:literal, $out:ident) => { FieldValue::write(&$value, $name, $out) };
    (@write def $value:expr, $name:literal, $out:ident) => { FieldValue::write(&$value, $name, $out) };
    (@write opt $value:expr, $name:literal, $out:ident) => {
        if let Some(value) = &$value {
            FieldValue::write(value, $name, $out);
        }
    };
    (@doc req $name:literal) => { concat!("`", $name, "`, required.") };
    (@doc def $name:literal) => { concat!("`", $name, "`, 0 or false when absent.") };
    (@doc opt $name:literal) => { concat!("`", $name, "`, optional.") };
    ($(
        $(#[$meta:meta])*
        $header:ident $(+ $rpc:ident)? {
            $($kind:ident $field:ident: $ty:ty = $name:literal $(| $second:literal)*,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $header {
            $(#[doc = headers!(@doc $kind $name)]
            pub $field: headers!(@type $kind $ty),)*
            $(#[doc = "Routing fields, all optional."]
            pub $rpc: crate::headers::RpcFields,)?
        }

        impl Header for $header {
            const NAME: &'static str = stringify!($header);

            fn decode(ext: &ExtFields) -> Result<Self, HeaderError> {
                $(let mut $field: Option<Field> = None;)*
                $(let mut $rpc = crate::headers::RpcSeen::default();)?
                for seen in ext.fields() {
                    match ext.key(seen) {
                        $($name $(| $second)* => $field = Some(seen),)*
                        _other => { $($rpc.take(_other, seen);)? }
                    }
                }
                Ok($header {
                    $($field: headers!(@value $kind value(ext, $field, Self::NAME, $name)?, Self::NAME, $name),)*
                    $($rpc: $rpc.read(ext, Self::NAME)?,)?
                })
            }

            fn encode<W: ExtWriter + ?Sized>(&self, out: &mut W) {
                let _ = &out;
                $(headers!(@write $kind self.$field, $name, out);)*
                $(self.$rpc.write(out);)?
            }
        }
    )*};
}
pub(crate) use headers;

/// What a table file needs in scope.
mod table {
    pub(super) use super::{FieldProblem, FieldValue, Header, HeaderError, headers, value};
    pub(super) use crate::ext::{ExtFields, ExtWriter, Field};
    pub(super) use crate::text::Str;
}

/// Routing fields that most requests may carry beside their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpcFields {
    /// `ns`: namespace.
    pub namespace: Option<Str>,
    /// `nsd`: whether names already carry the namespace.
    pub namespaced: Option<bool>,
    /// `bname`: the broker meant.
    pub broker_name: Option<Str>,
    /// `oway`: the sender wants no answer.
    pub oneway: Option<bool>,
    /// `lo`: the queue id of a static topic is a logical one.
    pub logical: Option<bool>,
}

#[derive(Default)]
pub(crate) struct RpcSeen {
    namespace: Option<Field>,
    namespaced: Option<Field>,
    broker_name: Option<Field>,
    oneway: Option<Field>,
    logical: Option<Field>,
}

impl RpcSeen {
    pub(crate) fn take(&mut self, key: &str, field: Field) {
        match key {
            "bname" | "n" => self.broker_name = Some(field),
            "ns" => self.namespace = Some(field),
            "nsd" => self.namespaced = Some(field),
            "oway" => self.oneway = Some(field),
            "lo" => self.logical = Some(field),
            _ => {}
        }
    }

    pub(crate) fn read(
        self,
        ext: &ExtFields,
        header: &'static str,
    ) -> Result<RpcFields, HeaderError> {
        Ok(RpcFields {
            namespace: value(ext, self.namespace, header, "ns")?,
            namespaced: value(ext, self.namespaced, header, "nsd")?,
            broker_name: value(ext, self.broker_name, header, "bname")?,
            oneway: value(ext, self.oneway, header, "oway")?,
            logical: value(ext, self.logical, header, "lo")?,
        })
    }
}

impl RpcFields {
    pub(crate) fn write<W: ExtWriter + ?Sized>(&self, out: &mut W) {
        self.write_as("bname", out);
    }

    /// Send headers with one-letter names call the broker `n`.
    pub(crate) fn write_as<W: ExtWriter + ?Sized>(&self, broker_name: &str, out: &mut W) {
        let texts = [("ns", &self.namespace), (broker_name, &self.broker_name)];
        for (key, text) in texts {
            if let Some(text) = text {
                out.put_str(key, text);
            }
        }
        for (key, flag) in [("nsd", self.namespaced), ("oway", self.oneway), ("lo", self.logical)] {
            if let Some(flag) = flag {
                out.put_bool(key, flag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ext(pairs: &[(&'static str, &'static str)]) -> ExtFields {
        pairs.iter().copied().collect()
    }

    #[test]
    fn a_refusal_names_header_field_and_reason() {
        let cases: [(&[(&str, &str)], &str); 4] = [
            (&[("topic", "T")], "GetMinOffsetRequestHeader: field \"queueId\" is missing"),
            (
                &[("topic", "T"), ("queueId", "")],
                "GetMinOffsetRequestHeader: field \"queueId\" is missing",
            ),
            (
                &[("topic", "T"), ("queueId", "x1")],
                "GetMinOffsetRequestHeader: field \"queueId\" is not a whole number: \"x1\"",
            ),
            (
                &[("topic", "T"), ("queueId", "2147483648")],
                "GetMinOffsetRequestHeader: field \"queueId\" is out of range: \"2147483648\"",
            ),
        ];
        for (pairs, text) in cases {
            assert_eq!(
                GetMinOffsetRequestHeader::decode(&ext(pairs)).unwrap_err().to_string(),
                text
            );
        }
    }

    #[test]
    fn routing_fields_are_kept_and_written_again() {
        let pairs = [
            ("topic", "T"),
            ("queueId", "1"),
            ("ns", "N"),
            ("bname", "b"),
            ("nsd", "true"),
            ("oway", "false"),
            ("lo", "True"),
        ];
        let header = GetMinOffsetRequestHeader::decode(&ext(&pairs)).unwrap();
        assert_eq!(header.rpc.broker_name.as_deref(), Some("b"));
        assert_eq!(header.rpc.logical, Some(true));
        assert_eq!(GetMinOffsetRequestHeader::decode(&ExtFields::of(&header)), Ok(header));
    }

    #[test]
    fn both_send_headers_read_into_one() {
        let long = ext(&[
            ("producerGroup", "PG"),
            ("topic", "T"),
            ("defaultTopic", "TBW102"),
            ("defaultTopicQueueNums", "4"),
            ("queueId", "-1"),
            ("sysFlag", "0"),
            ("bornTimestamp", "1796053796061"),
            ("flag", "7"),
            ("properties", "K\u{1}v\u{2}"),
            ("batch", "false"),
            ("bname", "b"),
        ]);
        let short = ext(&[
            ("a", "PG"),
            ("b", "T"),
            ("c", "TBW102"),
            ("d", "4"),
            ("e", "-1"),
            ("f", "0"),
            ("g", "1796053796061"),
            ("h", "7"),
            ("i", "K\u{1}v\u{2}"),
            ("m", "false"),
            ("n", "b"),
        ]);
        let header = SendMessageHeader::decode(&long).unwrap();
        assert_eq!(SendMessageHeader::decode(&short).unwrap(), header);
        assert_eq!(ExtFields::of(&header), short);
        let mut written = ExtFields::new();
        header.encode_long(&mut written);
        assert_eq!(written, long);
    }
}
