//! The binary header (serialize type ROCKETMQ).
//!
//! ```text
//! offset  bytes  field (big endian)
//!      0      2  code, 16 bit only
//!      2      1  language
//!      3      2  version
//!      5      4  opaque
//!      9      4  flag
//!     13      4  remark length r, then r bytes
//!   17+r      4  length e of the extension fields, then e bytes of
//!                { 2 key length, key, 4 value length, value }
//! ```
//!
//! Always holds: every length is compared with the bytes that are there before it is used. An empty
//! remark or value reads as null, as the original reads it.

use crate::ext::{ExtFields, Field, RawField, Span};
use crate::frame::{FrameError, Header};
use crate::json_header::{MAX_EXT_FIELDS, Parts};
use crate::language::LanguageCode;
use crate::text::Str;
use bytes::{BufMut, Bytes, BytesMut};

struct Reader {
    header: Bytes,
    at: usize,
}

impl Reader {
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FrameError> {
        let found = self.header.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let bytes = *found.ok_or(FrameError::BadHeader { what })?;
        self.at += N;
        Ok(bytes)
    }

    /// Checks a length word against `end` and gives the text's place.
    fn text(
        &mut self,
        len: i64,
        end: usize,
        what: &'static str,
    ) -> Result<(usize, usize), FrameError> {
        let len = usize::try_from(len).map_err(|_| FrameError::BadHeader { what })?;
        if len > end.saturating_sub(self.at) {
            return Err(FrameError::BadHeader { what });
        }
        let start = self.at;
        self.at += len;
        Ok((start, len))
    }
}

/// Reads a binary header.
pub(crate) fn decode(header: Bytes) -> Result<Header, FrameError> {
    let end = header.len();
    let mut reader = Reader { header, at: 0 };
    let mut parsed = Header {
        code: i32::from(i16::from_be_bytes(reader.array("code")?)),
        language: LanguageCode(u8::from_be_bytes(reader.array("language")?)),
        version: i32::from(i16::from_be_bytes(reader.array("version")?)),
        opaque: i32::from_be_bytes(reader.array("opaque")?),
        flag: i32::from_be_bytes(reader.array("flag")?),
        ..Header::default()
    };
    let mut side = Vec::new();
    let len = i32::from_be_bytes(reader.array("remark length")?);
    let (start, len) = reader.text(i64::from(len), end, "remark length")?;
    if len > 0 {
        let remark = reader.header.slice(start..start + len);
        parsed.remark = Some(
            Str::from_utf8(remark.clone())
                .unwrap_or_else(|_| Str::from(String::from_utf8_lossy(&remark).into_owned())),
        );
    }
    let len = i32::from_be_bytes(reader.array("extFields length")?);
    let (start, len) = reader.text(i64::from(len), end, "extFields length")?;
    reader.at = start;
    let end = start + len;
    let mut fields = Vec::with_capacity(if len == 0 { 0 } else { 16 });
    while reader.at < end {
        if fields.len() >= MAX_EXT_FIELDS {
            return Err(FrameError::BadHeader { what: "more ext fields than the limit" });
        }
        fields.push(field(&mut reader, end, &mut side)?);
    }
    parsed.ext = ExtFields::from_parts(reader.header, side, fields);
    Ok(parsed)
}

fn field(reader: &mut Reader, end: usize, side: &mut Vec<u8>) -> Result<Field, FrameError> {
    let len = i16::from_be_bytes(reader.array("ext key length")?);
    let (start, len) = reader.text(i64::from(len), end, "ext key length")?;
    let key = span(reader, start, len, side);
    let len = i32::from_be_bytes(reader.array("ext value length")?);
    let (start, len) = reader.text(i64::from(len), end, "ext value length")?;
    let value = if len == 0 { Span::NULL } else { span(reader, start, len, side) };
    Ok(Field { key, value })
}

/// A text that is not UTF-8 is replaced, as Java does, in the side buffer.
fn span(reader: &Reader, start: usize, len: usize, side: &mut Vec<u8>) -> Span {
    let bytes = reader.header.get(start..start + len).unwrap_or_default();
    if std::str::from_utf8(bytes).is_ok() {
        return Span::frame(start, len);
    }
    let at = side.len();
    side.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes());
    Span::side(at, side.len() - at)
}

/// Whether the fixed fields fit their 16 bits. Pop codes do not: such a frame must be sent as JSON.
pub(crate) fn fits(parts: &Parts<'_>) -> bool {
    i16::try_from(parts.code).is_ok() && i16::try_from(parts.version).is_ok()
}

/// Writes a binary header.
///
/// # Errors
/// When a key is longer than 32767 bytes.
pub(crate) fn encode<'a>(
    parts: &Parts<'_>,
    ext: impl Iterator<Item = RawField<'a>>,
    out: &mut BytesMut,
) -> Result<(), FrameError> {
    out.put_i16(parts.code as i16);
    out.put_u8(parts.language.0);
    out.put_i16(parts.version as i16);
    out.put_i32(parts.opaque);
    out.put_i32(parts.flag);
    let remark = parts.remark.unwrap_or_default();
    out.put_u32(remark.len() as u32);
    out.put_slice(remark);
    let length_at = out.len();
    out.put_u32(0);
    for (key, value) in ext {
        let key_len = i16::try_from(key.len())
            .map_err(|_| FrameError::BadHeader { what: "ext key longer than 32767 bytes" })?;
        out.put_i16(key_len);
        out.put_slice(key);
        let value = value.unwrap_or_default();
        out.put_u32(value.len() as u32);
        out.put_slice(value);
    }
    let len = (out.len() - length_at - 4) as u32;
    if let Some(place) = out.get_mut(length_at..length_at + 4) {
        place.copy_from_slice(&len.to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BytesMut {
        let parts = Parts {
            code: 310,
            language: LanguageCode::CPP,
            version: 79,
            opaque: 9,
            flag: 1,
            remark: Some(b"why"),
        };
        let mut out = BytesMut::new();
        let ext: [RawField<'_>; 2] = [(b"a", Some(b"1")), (b"topic", Some(b"T"))];
        encode(&parts, ext.into_iter(), &mut out).unwrap();
        out
    }

    #[test]
    fn a_header_reads_back_as_written() {
        let header = decode(sample().freeze()).unwrap();
        assert_eq!((header.code, header.version, header.opaque, header.flag), (310, 79, 9, 1));
        assert_eq!(header.remark.as_deref(), Some("why"));
        assert_eq!(header.ext.iter().collect::<Vec<_>>(), [("a", "1"), ("topic", "T")]);
    }

    #[test]
    fn an_inner_length_that_lies_is_refused() {
        // Places of the remark length, the ext length, the first key length and the first value length.
        for (at, width) in [(13, 4), (20, 4), (24, 2), (27, 4)] {
            for wrong in [i32::MIN, -1, 1 << 20, i32::MAX] {
                let mut bytes = sample();
                bytes[at..at + width].copy_from_slice(&wrong.to_be_bytes()[..width]);
                assert!(decode(bytes.freeze()).is_err(), "{at} {wrong}");
            }
        }
    }

    #[test]
    fn every_cut_header_is_refused() {
        let whole = sample().freeze();
        for len in 0..whole.len() {
            assert!(decode(whole.slice(..len)).is_err(), "{len}");
        }
    }

    #[test]
    fn an_empty_value_reads_as_null_and_is_written_again() {
        let parts = Parts {
            code: 1,
            language: LanguageCode::JAVA,
            version: 1,
            opaque: 1,
            flag: 0,
            remark: Some(b""),
        };
        let mut out = BytesMut::new();
        let ext: [RawField<'_>; 1] = [(b"a", None)];
        encode(&parts, ext.into_iter(), &mut out).unwrap();
        let header = decode(out.freeze()).unwrap();
        assert_eq!(
            (header.remark.is_none(), header.ext.get("a"), header.ext.len()),
            (true, None, 1)
        );
    }
}
