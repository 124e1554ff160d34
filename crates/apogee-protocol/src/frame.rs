//! Frames: cutting them out of a byte stream, and the command in one.
//!
//! ```text
//! offset  bytes  field (big endian)
//!      0      4  length n of all that follows
//!      4      1  serialize type of the header: 0 JSON, 1 ROCKETMQ (binary)
//!      5      3  header length h
//!      8      h  header
//!    8+h  n-4-h  body
//! ```
//!
//! Always holds: a length is compared with the limit and with what is there before anything is made of it;
//! no input panics; the body and every unescaped text are slices of the frame. No threads, no I/O.

use crate::ext::{ExtFields, RawField};
use crate::headers;
use crate::json_header::Parts;
use crate::language::{LanguageCode, version};
use crate::text::Str;
use crate::{binary_header, json_header};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The original's limit of a frame with its length word: 16 MiB.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// Flag bit of a response.
pub const FLAG_RESPONSE: i32 = 1;

/// Flag bit of a request nobody waits for.
pub const FLAG_ONEWAY: i32 = 2;

const MAX_HEADER_BYTES: usize = 0x00ff_ffff;

/// Why bytes are no frame. The stream can't be trusted after this: close the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length word is below the 4 bytes that every frame has.
    #[error("frame length {len} is below 4")]
    TooShort {
        /// The length word, as a signed number.
        len: i32,
    },
    /// The frame is larger than allowed.
    #[error("frame of {len} bytes is above the limit of {max}")]
    TooLong {
        /// Bytes of the frame, with its length word.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The header length does not fit into the frame (or, when writing, into 24 bits).
    #[error("header length {len} is above the {available} bytes there are")]
    HeaderLength {
        /// The header length.
        len: usize,
        /// Bytes there are for it.
        available: usize,
    },
    /// The serialize type is neither JSON nor ROCKETMQ.
    #[error("unknown serialize type {0}")]
    UnknownSerializeType(u8),
    /// The header can't be read.
    #[error("bad header: {what}")]
    BadHeader {
        /// The part that is wrong.
        what: &'static str,
    },
}

/// How a header is written. An answer uses the type of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum SerializeType {
    /// JSON text.
    #[default]
    Json,
    /// The binary form. Its code has 16 bits.
    RocketMq,
}

/// Cuts the next frame out of what was read, without its length word; `None` = more bytes are needed.
///
/// `max` bounds the frame with its length word. Nothing is allocated or reserved here.
///
/// # Errors
/// When the length word is below 4 or above the limit: the stream is lost.
pub fn split_frame(buf: &mut BytesMut, max: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(word) = buf.first_chunk::<4>() else { return Ok(None) };
    let len = i32::from_be_bytes(*word);
    let body =
        usize::try_from(len).ok().filter(|len| *len >= 4).ok_or(FrameError::TooShort { len })?;
    let whole = body + 4;
    if whole > max {
        return Err(FrameError::TooLong { len: whole, max });
    }
    if buf.len() < whole {
        return Ok(None);
    }
    buf.advance(4);
    Ok(Some(buf.split_to(body).freeze()))
}

/// The fields of a header, before they become a command.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub(crate) code: i32,
    pub(crate) language: LanguageCode,
    pub(crate) version: i32,
    pub(crate) opaque: i32,
    pub(crate) flag: i32,
    pub(crate) remark: Option<Str>,
    pub(crate) ext: ExtFields,
}

/// A request or response as it stands on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotingCommand {
    /// Request code or response code.
    pub code: i32,
    /// Language of the sender.
    pub language: LanguageCode,
    /// Version ordinal of the sender.
    pub version: i32,
    /// Number that pairs a response with its request.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`], [`FLAG_ONEWAY`].
    pub flag: i32,
    /// Human text, mostly the reason of a refusal.
    pub remark: Option<Str>,
    /// Header fields.
    pub ext: ExtFields,
    /// How the header was or will be written.
    pub serialize: SerializeType,
    /// Body, a slice of the frame.
    pub body: Bytes,
}

impl RemotingCommand {
    /// A request of this program with a typed header; `opaque` is 0 until it is sent.
    pub fn request(code: crate::RequestCode, header: &impl headers::Header) -> RemotingCommand {
        RemotingCommand::with_ext(code.0, ExtFields::of(header))
    }

    /// A request of this program with plain fields.
    pub fn with_ext(code: i32, ext: ExtFields) -> RemotingCommand {
        RemotingCommand {
            code,
            language: LanguageCode::JAVA,
            version: version::CURRENT,
            opaque: 0,
            flag: 0,
            remark: None,
            ext,
            serialize: SerializeType::Json,
            body: Bytes::new(),
        }
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same as a request that wants no answer.
    #[must_use]
    pub fn oneway(mut self) -> Self {
        self.flag |= FLAG_ONEWAY;
        self
    }

    /// Whether this is a response.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether nobody waits for an answer.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The code as a request code.
    pub fn request_code(&self) -> crate::RequestCode {
        crate::RequestCode(self.code)
    }

    /// The code as a response code.
    pub fn response_code(&self) -> crate::ResponseCode {
        crate::ResponseCode(self.code)
    }

    /// The typed header.
    ///
    /// # Errors
    /// Names the header, the field and what is wrong with it.
    pub fn header<H: headers::Header>(&self) -> Result<H, headers::HeaderError> {
        H::decode(&self.ext)
    }

    /// Reads a frame (without its length word).
    ///
    /// # Errors
    /// When a length does not fit, the serialize type is unknown or the header can't be read.
    pub fn decode(frame: Bytes) -> Result<RemotingCommand, FrameError> {
        let Some(word) = frame.first_chunk::<4>() else {
            return Err(FrameError::TooShort { len: frame.len() as i32 });
        };
        let word = u32::from_be_bytes(*word);
        let len = (word & 0x00ff_ffff) as usize;
        let available = frame.len() - 4;
        if len > available {
            return Err(FrameError::HeaderLength { len, available });
        }
        let header = frame.slice(4..4 + len);
        let body = if len == available { Bytes::new() } else { frame.slice(4 + len..) };
        let (serialize, header) = match (word >> 24) as u8 {
            0 => (SerializeType::Json, json_header::decode(header)?),
            1 => (SerializeType::RocketMq, binary_header::decode(header)?),
            other => return Err(FrameError::UnknownSerializeType(other)),
        };
        let Header { code, language, version, opaque, flag, remark, ext } = header;
        Ok(RemotingCommand { code, language, version, opaque, flag, remark, ext, serialize, body })
    }

    /// Appends the frame with its length word.
    ///
    /// A code or version that does not fit the 16 bits of the binary header is sent as JSON: the reader
    /// tells the two apart frame by frame.
    ///
    /// # Errors
    /// When the header does not fit its 24-bit length; `out` is then as before.
    pub fn encode_into(&self, out: &mut BytesMut) -> Result<(), FrameError> {
        self.encode_head(self.body.len(), out)?;
        out.extend_from_slice(&self.body);
        Ok(())
    }

    /// Appends the frame up to its body, which the caller sends after it.
    ///
    /// # Errors
    /// When the header does not fit its 24-bit length; `out` is then as before.
    pub fn encode_head(&self, body_len: usize, out: &mut BytesMut) -> Result<(), FrameError> {
        let parts = Parts {
            code: self.code,
            language: self.language,
            version: self.version,
            opaque: self.opaque,
            flag: self.flag,
            remark: self.remark.as_ref().map(Str::as_bytes),
        };
        out.reserve(256);
        encode_head(&parts, self.serialize, self.ext.raw(), body_len, out)
    }
}

/// Writes length word, type word and header; on an error `out` is as before.
pub(crate) fn encode_head<'a>(
    parts: &Parts<'_>,
    serialize: SerializeType,
    ext: impl Iterator<Item = RawField<'a>>,
    body_len: usize,
    out: &mut BytesMut,
) -> Result<(), FrameError> {
    let start = out.len();
    out.put_u64(0);
    let binary = serialize == SerializeType::RocketMq && binary_header::fits(parts);
    let written = if binary {
        binary_header::encode(parts, ext, out)
    } else {
        json_header::encode(parts, ext, out);
        Ok(())
    };
    let len = out.len() - start - 8;
    let fits = len <= MAX_HEADER_BYTES && len + 4 + body_len <= i32::MAX as usize;
    if let Err(error) = written {
        out.truncate(start);
        return Err(error);
    }
    if !fits {
        out.truncate(start);
        return Err(FrameError::HeaderLength { len, available: MAX_HEADER_BYTES });
    }
    let words = ((len + 4 + body_len) as u64) << 32 | u64::from(binary) << 24 | len as u64;
    if let Some(place) = out.get_mut(start..start + 8) {
        place.copy_from_slice(&words.to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestCode;

    fn pop_request(serialize: SerializeType) -> RemotingCommand {
        let ext = [("topic", "T"), ("queueId", "0")].into_iter().collect();
        RemotingCommand {
            serialize,
            opaque: 7,
            ..RemotingCommand::with_ext(RequestCode::POP_MESSAGE.0, ext).body("x")
        }
    }

    #[test]
    fn frames_are_cut_only_when_they_are_whole() {
        let mut out = BytesMut::new();
        pop_request(SerializeType::Json).encode_into(&mut out).unwrap();
        let whole = out.clone();
        out.extend_from_slice(&whole);
        let mut buf = BytesMut::new();
        let mut frames = 0;
        for byte in out {
            buf.put_u8(byte);
            if let Some(frame) = split_frame(&mut buf, DEFAULT_MAX_FRAME_BYTES).unwrap() {
                frames += 1;
                assert_eq!(
                    RemotingCommand::decode(frame).unwrap(),
                    pop_request(SerializeType::Json)
                );
            }
        }
        assert_eq!((frames, buf.len()), (2, 0));
    }

    #[test]
    fn a_length_word_that_lies_is_refused_before_anything_is_allocated() {
        for len in [i32::MIN, -1, 0, 3] {
            let mut buf = BytesMut::from(&len.to_be_bytes()[..]);
            assert_eq!(split_frame(&mut buf, 1024), Err(FrameError::TooShort { len }));
        }
        for len in [1021, i32::MAX] {
            let mut buf = BytesMut::from(&len.to_be_bytes()[..]);
            assert!(matches!(split_frame(&mut buf, 1024), Err(FrameError::TooLong { .. })));
        }
        let mut buf = BytesMut::from(&1020_i32.to_be_bytes()[..]);
        assert_eq!(split_frame(&mut buf, 1024), Ok(None));
        assert!(buf.capacity() < 1024);
    }

    #[test]
    fn a_header_length_beyond_the_frame_and_an_unknown_type_are_refused() {
        let beyond = Bytes::from_static(&[0, 0, 0, 9, b'{', b'}']);
        assert_eq!(
            RemotingCommand::decode(beyond),
            Err(FrameError::HeaderLength { len: 9, available: 2 })
        );
        let unknown = Bytes::from_static(&[7, 0, 0, 2, b'{', b'}']);
        assert_eq!(RemotingCommand::decode(unknown), Err(FrameError::UnknownSerializeType(7)));
        assert_eq!(
            RemotingCommand::decode(Bytes::from_static(&[0, 0])),
            Err(FrameError::TooShort { len: 2 })
        );
    }

    #[test]
    fn a_code_above_16_bits_is_sent_as_json_even_when_binary_was_asked_for() {
        let mut out = BytesMut::new();
        pop_request(SerializeType::RocketMq).encode_into(&mut out).unwrap();
        let frame = split_frame(&mut out, DEFAULT_MAX_FRAME_BYTES).unwrap().unwrap();
        let back = RemotingCommand::decode(frame).unwrap();
        assert_eq!((back.code, back.serialize), (RequestCode::POP_MESSAGE.0, SerializeType::Json));
    }

    #[test]
    fn a_header_too_large_for_its_length_leaves_the_output_as_it_was() {
        let mut command = pop_request(SerializeType::Json);
        command.remark = Some(Str::from("x".repeat(MAX_HEADER_BYTES)));
        let mut out = BytesMut::from(&b"before"[..]);
        assert!(command.encode_into(&mut out).is_err());
        assert_eq!(&out[..], b"before");
    }
}
