//! The JSON header of a frame: a scanner for its flat shape, a tolerant second reader, and the writer.
//!
//! ```text
//! {"code":310,"extFields":{"a":"PG","b":"T"},"flag":0,"language":"JAVA","opaque":3,
//!  "remark":"…","serializeTypeCurrentRPC":"JSON","version":513}
//! ```
//!
//! Always holds: whenever the scanner accepts a header, the second reader gives the same fields (fuzzed
//! against each other). The scanner copies a text only when it holds an escape. Anything unusual
//! (numbers in quotes, nested values, odd numbers) goes to the second reader, which is bounded in size.

use crate::decimal;
use crate::ext::{ExtFields, Field, RawField, Span};
use crate::frame::{FrameError, Header};
use crate::language::LanguageCode;
use crate::swar;
use crate::text::Str;
use bytes::{BufMut, Bytes, BytesMut};

/// More fields than any header has.
pub(crate) const MAX_EXT_FIELDS: usize = 1024;

/// Largest header the tree-building reader takes, since a tree is many times larger than its text.
const MAX_TREE_BYTES: usize = 256 * 1024;

/// Reads a JSON header.
pub(crate) fn decode(header: Bytes) -> Result<Header, FrameError> {
    let header = if std::str::from_utf8(&header).is_ok() {
        header
    } else {
        // Java replaces what is not UTF-8, and old C++ clients do send such properties.
        Bytes::from(String::from_utf8_lossy(&header).into_owned())
    };
    match scan(&header) {
        Some(parsed) => Ok(parsed),
        None => read_tree(&header),
    }
}

/// The fast reader; `None` = unusual or wrong, ask [`read_tree`].
pub(crate) fn scan(header: &Bytes) -> Option<Header> {
    let mut scanner = Scanner { bytes: header, at: 0, side: Vec::new(), fields: Vec::new() };
    let mut parsed = Header::default();
    let mut remark = None;
    scanner.expect(b'{')?;
    if !scanner.try_byte(b'}') {
        loop {
            let key = scanner.plain_string()?;
            scanner.expect(b':')?;
            match key {
                b"code" => parsed.code = scanner.int()?,
                b"version" => parsed.version = scanner.int()?,
                b"opaque" => parsed.opaque = scanner.int()?,
                b"flag" => parsed.flag = scanner.int()?,
                b"language" => {
                    parsed.language =
                        LanguageCode::from_name(std::str::from_utf8(scanner.plain_string()?).ok()?)
                }
                b"remark" => remark = scanner.string_or_null()?,
                b"extFields" => scanner.ext_fields()?,
                b"serializeTypeCurrentRPC" => {
                    scanner.plain_string()?;
                }
                _ => return None,
            }
            if !scanner.try_byte(b',') {
                break;
            }
        }
        scanner.expect(b'}')?;
    }
    scanner.skip_space();
    if scanner.at != header.len() {
        return None;
    }
    parsed.ext = ExtFields::from_parts(header.clone(), scanner.side, scanner.fields);
    parsed.remark = remark.map(|span| parsed.ext.str_of(span));
    Some(parsed)
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    side: Vec<u8>,
    fields: Vec<Field>,
}

impl<'a> Scanner<'a> {
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn try_byte(&mut self, byte: u8) -> bool {
        self.expect(byte).is_some()
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        self.skip_space();
        self.rest().starts_with(word).then(|| self.at += word.len())
    }

    /// A string without escapes.
    fn plain_string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = self.rest();
        let len = swar::end_of_plain(rest)?;
        (rest.get(len) == Some(&b'"')).then_some(())?;
        self.at += len + 1;
        rest.get(..len)
    }

    /// A string; only one with escapes is copied.
    fn string(&mut self) -> Option<Span> {
        self.expect(b'"')?;
        let start = self.at;
        let rest = self.rest();
        let len = swar::end_of_plain(rest)?;
        if rest.get(len) == Some(&b'"') {
            self.at += len + 1;
            return Some(Span::frame(start, len));
        }
        self.escaped_string()
    }

    /// The rest of a string, unescaped into the side buffer.
    fn escaped_string(&mut self) -> Option<Span> {
        let start = self.side.len();
        if self.side.capacity() == 0 {
            // Unescaping only shrinks, so one allocation serves the whole header in most cases.
            let ahead = self.bytes.len() - self.at;
            self.side.reserve(ahead.min(4096));
        }
        loop {
            let rest = self.rest();
            let len = swar::end_of_plain(rest)?;
            self.side.extend_from_slice(rest.get(..len)?);
            self.at += len + 1;
            if rest.get(len) == Some(&b'"') {
                return Some(Span::side(start, self.side.len() - start));
            }
            self.escape()?;
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Option<()> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' => return self.unicode_escape(),
            _ => return None,
        };
        self.side.push(plain);
        Some(())
    }

    fn unicode_escape(&mut self) -> Option<()> {
        let first = self.hex4()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            self.rest().starts_with(b"\\u").then(|| self.at += 2)?;
            let second = self.hex4()?;
            (0xdc00..0xe000)
                .contains(&second)
                .then_some(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?
        } else {
            first
        };
        let letter = char::from_u32(code)?;
        self.side.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        Some(())
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.rest().first_chunk::<4>()?;
        let mut value = 0;
        for digit in digits {
            value = value * 16 + char::from(*digit).to_digit(16)?;
        }
        self.at += 4;
        Some(value)
    }

    /// The text of a plain integer: at most 18 digits, no leading zero.
    fn number(&mut self) -> Option<(usize, &'a [u8])> {
        self.skip_space();
        let start = self.at;
        let rest = self.rest();
        let sign = usize::from(rest.first() == Some(&b'-'));
        let digits = rest.get(sign..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let first = rest.get(sign)?;
        let odd = (*first == b'0' && (digits > 1 || sign == 1)) || !(1..=18).contains(&digits);
        if odd || matches!(rest.get(sign + digits), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.at += sign + digits;
        Some((start, rest.get(..sign + digits)?))
    }

    fn int(&mut self) -> Option<i32> {
        let (_, digits) = self.number()?;
        i32::try_from(decimal::parse_i64(digits).ok()?).ok()
    }

    fn string_or_null(&mut self) -> Option<Option<Span>> {
        if self.peek()? == b'n' {
            self.literal(b"null")?;
            return Some(None);
        }
        self.string().map(Some)
    }

    /// A text, or the text of a number or boolean, or null.
    fn scalar(&mut self) -> Option<Span> {
        match self.peek()? {
            b'"' => self.string(),
            b't' => self.literal(b"true").map(|()| Span::frame(self.at - 4, 4)),
            b'f' => self.literal(b"false").map(|()| Span::frame(self.at - 5, 5)),
            b'n' => self.literal(b"null").map(|()| Span::NULL),
            _ => self.number().map(|(start, digits)| Span::frame(start, digits.len())),
        }
    }

    fn ext_fields(&mut self) -> Option<()> {
        self.fields.clear();
        if self.peek()? == b'n' {
            return self.literal(b"null");
        }
        self.expect(b'{')?;
        if self.try_byte(b'}') {
            return Some(());
        }
        self.fields.reserve(16);
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            let value = self.scalar()?;
            if self.fields.len() >= MAX_EXT_FIELDS {
                return None;
            }
            self.fields.push(Field { key, value });
            if !self.try_byte(b',') {
                return self.expect(b'}');
            }
        }
    }
}

/// Whether both readers make the same of a header. For tests and fuzzing.
///
/// The scanner takes raw control characters in texts, as Java does; the other reader does not.
#[doc(hidden)]
pub fn readers_agree(header: &[u8]) -> bool {
    let header = Bytes::from(String::from_utf8_lossy(header).into_owned());
    let Some(fast) = scan(&header) else { return true };
    let Ok(slow) = read_tree(&header) else {
        return header.len() > MAX_TREE_BYTES || header.iter().any(|byte| *byte < 0x20);
    };
    let fixed = |parsed: &Header| {
        (parsed.code, parsed.language, parsed.version, parsed.opaque, parsed.flag)
    };
    let includes = |one: &ExtFields, other: &ExtFields| {
        one.iter().all(|(key, _)| one.get(key) == other.get(key))
    };
    fixed(&fast) == fixed(&slow)
        && fast.remark == slow.remark
        && includes(&fast.ext, &slow.ext)
        && includes(&slow.ext, &fast.ext)
}

/// The tolerant reader: any JSON object, numbers as texts, nested values as their text.
pub(crate) fn read_tree(header: &[u8]) -> Result<Header, FrameError> {
    if header.len() > MAX_TREE_BYTES {
        return Err(FrameError::BadHeader {
            what: "not a flat JSON object, and too large to be read in full",
        });
    }
    let tree: serde_json::Value =
        serde_json::from_slice(header).map_err(|_| FrameError::BadHeader { what: "not JSON" })?;
    let serde_json::Value::Object(tree) = tree else {
        return Err(FrameError::BadHeader { what: "not a JSON object" });
    };
    let int = |name: &'static str| match tree.get(name) {
        None | Some(serde_json::Value::Null) => Ok(0),
        Some(value) => tree_int(value).ok_or(FrameError::BadHeader { what: name }),
    };
    let mut parsed = Header {
        code: int("code")?,
        version: int("version")?,
        opaque: int("opaque")?,
        flag: int("flag")?,
        language: match tree.get("language") {
            None | Some(serde_json::Value::Null) => LanguageCode::default(),
            Some(serde_json::Value::String(name)) => LanguageCode::from_name(name),
            Some(other) => other
                .as_u64()
                .and_then(|n| u8::try_from(n).ok())
                .map_or(LanguageCode::OTHER, LanguageCode),
        },
        remark: tree.get("remark").and_then(tree_text).map(Str::from),
        ext: ExtFields::new(),
    };
    match tree.get("extFields") {
        None | Some(serde_json::Value::Null) => {}
        Some(serde_json::Value::Object(fields)) if fields.len() <= MAX_EXT_FIELDS => {
            parsed.ext = tree_fields(fields);
        }
        Some(_) => return Err(FrameError::BadHeader { what: "extFields" }),
    }
    Ok(parsed)
}

fn tree_fields(fields: &serde_json::Map<String, serde_json::Value>) -> ExtFields {
    let mut buf = crate::ext::ExtBuf::new();
    for (key, value) in fields {
        if let Some(value) = tree_text(value) {
            crate::ext::ExtWriter::put_str(&mut buf, key, &value);
        }
    }
    buf.into_ext_fields()
}

fn tree_int(value: &serde_json::Value) -> Option<i32> {
    let wide = match value {
        serde_json::Value::Number(number) => number.as_i64()?,
        serde_json::Value::String(text) => decimal::parse_i64(text.as_bytes()).ok()?,
        _ => return None,
    };
    i32::try_from(wide).ok()
}

fn tree_text(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The parts of a header to write, in no map.
pub(crate) struct Parts<'a> {
    pub(crate) code: i32,
    pub(crate) language: LanguageCode,
    pub(crate) version: i32,
    pub(crate) opaque: i32,
    pub(crate) flag: i32,
    pub(crate) remark: Option<&'a [u8]>,
}

/// Writes a header with its keys in the original's order.
pub(crate) fn encode<'a>(
    parts: &Parts<'_>,
    ext: impl Iterator<Item = RawField<'a>>,
    out: &mut BytesMut,
) {
    let mut digits = decimal::Buffer::new();
    out.put_slice(b"{\"code\":");
    out.put_slice(digits.format(i64::from(parts.code)).as_bytes());
    let mut any = false;
    for (key, value) in ext.filter_map(|(key, value)| Some((key, value?))) {
        out.put_slice(if any { b"," } else { b",\"extFields\":{" });
        any = true;
        put_string(key, out);
        out.put_u8(b':');
        put_string(value, out);
    }
    out.put_slice(if any { b"},\"flag\":" } else { b",\"flag\":" });
    out.put_slice(digits.format(i64::from(parts.flag)).as_bytes());
    out.put_slice(b",\"language\":\"");
    out.put_slice(parts.language.name().as_bytes());
    out.put_slice(b"\",\"opaque\":");
    out.put_slice(digits.format(i64::from(parts.opaque)).as_bytes());
    if let Some(remark) = parts.remark {
        out.put_slice(b",\"remark\":");
        put_string(remark, out);
    }
    out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    out.put_slice(digits.format(i64::from(parts.version)).as_bytes());
    out.put_u8(b'}');
}

/// Writes a quoted text; what needs no escape is copied in one piece.
pub(crate) fn put_string(text: &[u8], out: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.put_u8(b'"');
    let mut rest = text;
    while let Some(at) = swar::first_to_escape(rest) {
        let (plain, tail) = rest.split_at(at);
        out.put_slice(plain);
        let Some((byte, tail)) = tail.split_first() else { break };
        match byte {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            8 => out.put_slice(b"\\b"),
            12 => out.put_slice(b"\\f"),
            other => {
                let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
                out.put_slice(&[b'\\', b'u', b'0', b'0', digit(other >> 4), digit(other & 15)]);
            }
        }
        rest = tail;
    }
    out.put_slice(rest);
    out.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Header {
        decode(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn an_escaped_value_is_read_beside_plain_ones() {
        let header = read(
            r#"{"code":310,"extFields":{"a":"PG","i":"K\u0001v\u0002\ud83d\ude00\n","z":""},"flag":2,"language":"GO","opaque":-5,"version":317}"#,
        );
        assert_eq!((header.code, header.flag, header.opaque, header.version), (310, 2, -5, 317));
        assert_eq!(header.language, LanguageCode::GO);
        assert_eq!(
            header.ext.iter().collect::<Vec<_>>(),
            [("a", "PG"), ("i", "K\u{1}v\u{2}😀\n"), ("z", "")]
        );
    }

    #[test]
    fn white_space_numbers_nulls_and_unknown_keys_are_taken() {
        let header = read(
            " { \"code\" : \"11\" , \"extFields\" : { \"queueId\" : 3 , \"x\" : null , \"b\" : true } , \"new\" : [1] } \n",
        );
        assert_eq!(header.code, 11);
        assert_eq!(header.ext.iter().collect::<Vec<_>>(), [("queueId", "3"), ("b", "true")]);
        let header = read("{\"extFields\":null,\"remark\":null}");
        assert!(header.ext.is_empty() && header.remark.is_none());
        let header = read("{\"extFields\":{\"x\":null,\"q\":-3}}");
        assert_eq!(header.ext.iter().collect::<Vec<_>>(), [("q", "-3")]);
    }

    #[test]
    fn what_is_not_a_json_object_is_refused() {
        for text in [
            "",
            "[]",
            "{",
            "{\"code\":",
            "{\"code\":1}x",
            "{\"code\":99999999999}",
            "{\"extFields\":[]}",
            "{\"remark\":\"\\ud800\"}",
        ] {
            assert!(decode(Bytes::copy_from_slice(text.as_bytes())).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced_not_refused() {
        let header =
            decode(Bytes::from_static(b"{\"code\":1,\"extFields\":{\"a\":\"x\xff\"}}")).unwrap();
        assert_eq!(header.ext.get("a"), Some("x\u{fffd}"));
    }

    #[test]
    fn more_fields_than_the_limit_are_refused() {
        let many: Vec<String> = (0..=MAX_EXT_FIELDS).map(|n| format!("\"k{n}\":\"\"")).collect();
        let text = format!("{{\"extFields\":{{{}}}}}", many.join(","));
        assert!(decode(Bytes::from(text)).is_err());
    }
}
