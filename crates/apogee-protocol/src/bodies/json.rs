//! How bodies are read and written: one table line a field, as with headers.
//!
//! Reading is lenient (see [`crate::lenient`]) and typed: a missing or null field takes its default,
//! numbers and booleans may stand in quotes, an enum may be given by its ordinal, unknown fields are
//! ignored. Writing follows the original: keys in the table's (alphabetical) order, absent options left out.
//!
//! Always holds: [`Dialect::Raw`] writes number keys without quotes and object keys as raw objects, which
//! is what every Java version reads; [`Dialect::Standard`] is standard JSON in ASCII.

use crate::decimal;
use crate::language::LanguageCode;
use crate::lenient::{self, LenientError};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

/// Why a body can't be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is empty.
    #[error("the body is empty")]
    Empty,
    /// Not JSON, not even leniently.
    #[error("the body is no JSON: {0}")]
    Syntax(#[from] LenientError),
    /// JSON, but not of this body.
    #[error("the body does not fit: {0}")]
    Shape(#[from] serde_json::Error),
    /// A binary body is cut or has wrong lengths.
    #[error("the binary body is wrong at \"{0}\"")]
    Binary(&'static str),
}

/// How keys and texts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// As fastjson: number keys bare, object keys raw, texts in UTF-8.
    #[default]
    Raw,
    /// Standard JSON: every key quoted, non-ASCII escaped.
    Standard,
}

/// A body or a document on disk.
pub trait JsonBody: ReadJson + WriteJson {
    /// Reads a body, leniently.
    ///
    /// # Errors
    /// When the bytes are no JSON or a value does not fit its field.
    fn from_json(bytes: &[u8]) -> Result<Self, BodyError> {
        if bytes.trim_ascii().is_empty() {
            return Err(BodyError::Empty);
        }
        // Most bodies are standard JSON; only the others pay for a second look.
        if let Ok(Lenient(value)) = serde_json::from_slice(bytes) {
            return Ok(value);
        }
        let Lenient(value) = serde_json::from_str(&lenient::to_standard(bytes)?)?;
        Ok(value)
    }

    /// The body in the raw dialect, without spaces.
    fn to_raw(&self) -> Vec<u8> {
        self.to_json(Dialect::Raw)
    }

    /// The body without spaces.
    fn to_json(&self, dialect: Dialect) -> Vec<u8> {
        let mut writer = JsonWriter::new(dialect, false);
        self.write(&mut writer);
        writer.out
    }

    /// A document as the original keeps it on disk: raw dialect, one field a line, tabs.
    fn to_pretty(&self) -> Vec<u8> {
        let mut writer = JsonWriter::new(Dialect::Raw, true);
        self.write(&mut writer);
        writer.out
    }
}

impl<T: ReadJson + WriteJson> JsonBody for T {}

/// Reads a value of a body.
pub trait ReadJson: Sized {
    /// Reads a value that is not null, or whatever the type makes of null.
    ///
    /// # Errors
    /// When the value does not fit.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Writes a value of a body.
pub trait WriteJson {
    /// Writes the value.
    fn write(&self, writer: &mut JsonWriter);

    /// Whether a field with this value is left out.
    fn is_absent(&self) -> bool {
        false
    }
}

/// A key of a map.
pub trait JsonKey: Ord + Sized {
    /// Reads a key from its text.
    fn from_key(text: &str) -> Option<Self>;

    /// Writes a key, quoted or raw.
    fn write_key(&self, writer: &mut JsonWriter);
}

/// Bridges [`ReadJson`] to serde.
struct Lenient<T>(T);

impl<'de, T: ReadJson> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Lenient)
    }
}

/// A field: null reads as the default.
pub(crate) fn field<'de, D: Deserializer<'de>, T: ReadJson + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = Option::<Lenient<T>>::deserialize(deserializer)?;
    Ok(value.map(|Lenient(value)| value).unwrap_or_default())
}

/// The text of any scalar; numbers and booleans need no quotes, and may have them.
struct Scalar<T> {
    what: &'static str,
    parse: fn(&str) -> Option<T>,
}

impl<'de, T> Visitor<'de> for Scalar<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(decimal::Buffer::new().format(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        // 5.0 is an integer to Java's reader too.
        let whole = number.fract() == 0.0 && number.abs() < 9e15;
        self.visit_str(&if whole { format!("{number:.0}") } else { number.to_string() })
    }

    fn visit_bool<E: serde::de::Error>(self, flag: bool) -> Result<T, E> {
        self.visit_str(if flag { "true" } else { "false" })
    }
}

macro_rules! scalar {
    ($($ty:ty, $what:literal, $parse:expr, $write:expr;)*) => {$(
        impl ReadJson for $ty {
            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Scalar { what: $what, parse: $parse })
            }
        }

        impl WriteJson for $ty {
            fn write(&self, writer: &mut JsonWriter) {
                let write: fn(&$ty, &mut JsonWriter) = $write;
                write(self, writer);
            }
        }
    )*};
}

fn parse_int<T: TryFrom<i64>>(text: &str) -> Option<T> {
    let text = text.trim();
    // An empty text is what some clients send for "not set".
    if text.is_empty() {
        return T::try_from(0).ok();
    }
    T::try_from(decimal::parse_i64(text.as_bytes()).ok()?).ok()
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "TRUE" | "True" | "1" => Some(true),
        "false" | "FALSE" | "False" | "0" | "" => Some(false),
        _ => None,
    }
}

scalar! {
    i32, "a 32-bit number", parse_int, |value, writer| writer.number(i64::from(*value));
    i64, "a 64-bit number", parse_int, |value, writer| writer.number(*value);
    f64, "a number", |text| text.trim().parse().ok(), |value, writer| writer.float(*value);
    bool, "true or false", parse_bool, |value, writer| writer.raw(if *value { "true" } else { "false" });
    String, "a text", |text| Some(text.to_owned()), |value, writer| writer.text(value);
    LanguageCode, "a language", |text| Some(language(text)), |value, writer| writer.text(value.name());
}

/// By name or by ordinal.
fn language(text: &str) -> LanguageCode {
    text.parse().map_or_else(|_| LanguageCode::from_name(text), LanguageCode)
}

impl<T: ReadJson> ReadJson for Option<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<Lenient<T>>::deserialize(deserializer)?.map(|Lenient(value)| value))
    }
}

impl<T: WriteJson> WriteJson for Option<T> {
    fn write(&self, writer: &mut JsonWriter) {
        match self {
            Some(value) => value.write(writer),
            None => writer.raw("null"),
        }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

struct ListVisitor<C, T>(PhantomData<(C, T)>);

impl<'de, T: ReadJson, C: Extend<T> + Default> Visitor<'de> for ListVisitor<C, T> {
    type Value = C;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<C, A::Error> {
        let mut list = C::default();
        while let Some(item) = items.next_element::<Option<Lenient<T>>>()? {
            list.extend(item.map(|Lenient(value)| value));
        }
        Ok(list)
    }
}

impl<T: ReadJson> ReadJson for Vec<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

impl<T: ReadJson + Ord> ReadJson for BTreeSet<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

impl<T: WriteJson> WriteJson for Vec<T> {
    fn write(&self, writer: &mut JsonWriter) {
        writer.list(self.iter());
    }
}

impl<T: WriteJson> WriteJson for BTreeSet<T> {
    fn write(&self, writer: &mut JsonWriter) {
        writer.list(self.iter());
    }
}

struct MapVisitor<K, V>(PhantomData<(K, V)>);

impl<'de, K: JsonKey, V: ReadJson> Visitor<'de> for MapVisitor<K, V> {
    type Value = BTreeMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(text) = entries.next_key::<String>()? {
            let key = K::from_key(&text)
                .ok_or_else(|| A::Error::custom(format_args!("unreadable key {text:?}")))?;
            if let Some(Lenient(value)) = entries.next_value::<Option<Lenient<V>>>()? {
                map.insert(key, value);
            }
        }
        Ok(map)
    }
}

impl<K: JsonKey, V: ReadJson> ReadJson for BTreeMap<K, V> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

impl<K: JsonKey, V: WriteJson> WriteJson for BTreeMap<K, V> {
    fn write(&self, writer: &mut JsonWriter) {
        writer.open('{');
        for (key, value) in self {
            writer.next_item();
            key.write_key(writer);
            writer.raw(":");
            value.write(writer);
        }
        writer.close('}');
    }
}

impl JsonKey for String {
    fn from_key(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    fn write_key(&self, writer: &mut JsonWriter) {
        writer.text(self);
    }
}

macro_rules! number_key {
    ($($ty:ty)*) => {$(
        impl JsonKey for $ty {
            fn from_key(text: &str) -> Option<Self> {
                text.trim().parse().ok()
            }

            fn write_key(&self, writer: &mut JsonWriter) {
                let quote = if writer.dialect == Dialect::Standard { "\"" } else { "" };
                writer.raw(quote);
                writer.number(i64::from(*self));
                writer.raw(quote);
            }
        }
    )*};
}
number_key!(i32 i64);

/// Writes JSON text in one of the dialects.
#[derive(Debug, Default)]
pub struct JsonWriter {
    out: Vec<u8>,
    dialect: Dialect,
    pretty: bool,
    depth: usize,
    /// Whether the innermost bracket holds something.
    filled: bool,
}

impl JsonWriter {
    fn new(dialect: Dialect, pretty: bool) -> Self {
        JsonWriter { dialect, pretty, ..JsonWriter::default() }
    }

    /// The dialect.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: i64) {
        let mut digits = decimal::Buffer::new();
        self.out.extend_from_slice(digits.format(number).as_bytes());
    }

    fn float(&mut self, number: f64) {
        // Infinite values have no JSON form; Java writes null for them.
        self.raw(&if number.is_finite() { format!("{number:?}") } else { "null".to_owned() });
    }

    /// Writes a quoted text.
    pub fn text(&mut self, text: &str) {
        self.out.push(b'"');
        for letter in text.chars() {
            match letter {
                '"' => self.raw("\\\""),
                '\\' => self.raw("\\\\"),
                '\n' => self.raw("\\n"),
                '\r' => self.raw("\\r"),
                '\t' => self.raw("\\t"),
                letter
                    if letter < ' '
                        || (self.dialect == Dialect::Standard && !letter.is_ascii()) =>
                {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        self.raw(&format!("\\u{unit:04X}"));
                    }
                }
                letter => self.out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.out.push(b'"');
    }

    pub(crate) fn open(&mut self, bracket: char) {
        self.out.push(bracket as u8);
        self.depth += 1;
        self.filled = false;
    }

    pub(crate) fn close(&mut self, bracket: char) {
        self.depth -= 1;
        if self.filled {
            self.line();
        }
        self.out.push(bracket as u8);
        self.filled = true;
    }

    pub(crate) fn next_item(&mut self) {
        if self.filled {
            self.out.push(b',');
        }
        self.line();
        self.filled = true;
    }

    fn line(&mut self) {
        if self.pretty {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + self.depth, b'\t');
        }
    }

    pub(crate) fn list<'a, T: WriteJson + 'a>(&mut self, items: impl Iterator<Item = &'a T>) {
        self.open('[');
        for item in items {
            self.next_item();
            item.write(self);
        }
        self.close(']');
    }

    /// Writes one field of an object, unless it is absent.
    pub(crate) fn field(&mut self, name: &str, value: &impl WriteJson) {
        if value.is_absent() {
            return;
        }
        self.next_item();
        self.text(name);
        self.raw(":");
        value.write(self);
    }

    /// Writes an object as a key: raw, or as a quoted JSON text.
    pub(crate) fn object_key(&mut self, object: &impl WriteJson) {
        let mut inner = JsonWriter::new(self.dialect, false);
        object.write(&mut inner);
        match self.dialect {
            Dialect::Raw => self.out.append(&mut inner.out),
            Dialect::Standard => self.text(std::str::from_utf8(&inner.out).unwrap_or_default()),
        }
    }
}

/// The bodies of a file: struct, default, reader and writer from one table.
macro_rules! bodies {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    ($(
        $(#[$meta:meta])*
        $body:ident {
            $($(#[$field_meta:meta])* $field:ident: $ty:ty = $name:literal $(, $default:expr)?;)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        #[serde(default)]
        pub struct $body {
            $(#[doc = concat!("`", $name, "`.")]
            $(#[$field_meta])*
            #[serde(rename = $name, deserialize_with = "crate::bodies::json::field")]
            pub $field: $ty,)*
        }

        impl Default for $body {
            fn default() -> Self {
                $body { $($field: bodies!(@default $($default)?),)* }
            }
        }

        impl crate::bodies::json::ReadJson for $body {
            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }
        }

        impl crate::bodies::json::WriteJson for $body {
            fn write(&self, writer: &mut crate::bodies::json::JsonWriter) {
                writer.open('{');
                $(writer.field($name, &self.$field);)*
                writer.close('}');
            }
        }
    )*};
}
pub(crate) use bodies;

/// Enums of a file: by name, read by ordinal too; an unknown one reads as the default in parentheses.
macro_rules! names {
    ($(
        $(#[$meta:meta])*
        $name:ident($default:ident) { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_meta])* #[doc = concat!("`", $text, "`.")] $variant,)* }

        impl $name {
            /// Every value, by ordinal.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name on the wire.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The value of a name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::$default
            }
        }

        impl crate::bodies::json::ReadJson for $name {
            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let crate::bodies::json::NameOrOrdinal(text) = serde::Deserialize::deserialize(deserializer)?;
                let by_ordinal = text.parse().ok().and_then(|at: usize| Self::ALL.get(at)).copied();
                Ok(Self::from_name(&text).or(by_ordinal).unwrap_or_default())
            }
        }

        impl crate::bodies::json::WriteJson for $name {
            fn write(&self, writer: &mut crate::bodies::json::JsonWriter) {
                writer.text(self.name());
            }
        }
    )*};
}
pub(crate) use names;

/// The text of an enum value.
pub(crate) struct NameOrOrdinal(pub(crate) String);

impl<'de> Deserialize<'de> for NameOrOrdinal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::read(deserializer).map(NameOrOrdinal)
    }
}
