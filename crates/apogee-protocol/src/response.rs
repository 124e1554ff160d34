//! Responses: built by a handler, written by the connection.
//!
//! Always holds: the answer takes serialisation and opaque from its request and announces the original's
//! language, so the oldest client reads it. Header fields go into one buffer and from there to the wire;
//! body slices are handed to the connection as they are, for one vectored write.

use crate::codes::ResponseCode;
use crate::ext::ExtBuf;
use crate::frame::{FLAG_RESPONSE, FrameError, RemotingCommand, SerializeType, encode_head};
use crate::headers::Header;
use crate::json_header::Parts;
use crate::language::{LanguageCode, version};
use crate::text::Str;
use bytes::{Bytes, BytesMut};

/// What an answer takes from its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    /// Number of the request.
    pub opaque: i32,
    /// How the request's header was written.
    pub serialize: SerializeType,
}

impl From<&RemotingCommand> for ReplyTo {
    fn from(request: &RemotingCommand) -> Self {
        ReplyTo { opaque: request.opaque, serialize: request.serialize }
    }
}

/// The body of a response: any number of slices, one after another.
#[derive(Debug, Clone, Default)]
pub enum Body {
    /// No body.
    #[default]
    Empty,
    /// One slice.
    One(Bytes),
    /// Several slices, such as the messages of a pull.
    Many(Vec<Bytes>),
}

impl Body {
    /// Bytes in all slices together.
    pub fn len(&self) -> usize {
        self.slices().iter().map(Bytes::len).sum()
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slices in order.
    pub fn slices(&self) -> &[Bytes] {
        match self {
            Body::Empty => &[],
            Body::One(slice) => std::slice::from_ref(slice),
            Body::Many(slices) => slices,
        }
    }

    /// One piece; copies only when there are several slices.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Body::Empty => Bytes::new(),
            Body::One(slice) => slice.clone(),
            Body::Many(slices) => Bytes::from(slices.concat()),
        }
    }
}

impl From<Bytes> for Body {
    fn from(slice: Bytes) -> Self {
        Body::One(slice)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body::One(Bytes::from(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body::One(Bytes::from(text))
    }
}

impl From<Vec<Bytes>> for Body {
    fn from(slices: Vec<Bytes>) -> Self {
        Body::Many(slices)
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// How it went.
    pub code: ResponseCode,
    /// Why it went wrong, for people.
    pub remark: Option<Str>,
    /// Header fields.
    pub ext: ExtBuf,
    /// Body.
    pub body: Body,
}

impl Response {
    /// An answer without fields and body.
    pub fn new(code: ResponseCode) -> Response {
        Response { code, remark: None, ext: ExtBuf::new(), body: Body::Empty }
    }

    /// The plain SUCCESS.
    pub fn success() -> Response {
        Response::new(ResponseCode::SUCCESS)
    }

    /// A refusal with its reason.
    pub fn error(code: ResponseCode, remark: impl Into<Str>) -> Response {
        Response { remark: Some(remark.into()), ..Response::new(code) }
    }

    /// The same with the fields of a typed header.
    #[must_use]
    pub fn header(mut self, header: &impl Header) -> Self {
        header.encode(&mut self.ext);
        self
    }

    /// The same with a remark.
    #[must_use]
    pub fn remark(mut self, remark: impl Into<Str>) -> Self {
        self.remark = Some(remark.into());
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Appends the frame up to its body; the caller then writes [`Body::slices`].
    ///
    /// # Errors
    /// When header or body do not fit their length words; `out` is then as before.
    pub fn encode_head(&self, to: ReplyTo, out: &mut BytesMut) -> Result<(), FrameError> {
        let parts = Parts {
            code: self.code.0,
            language: LanguageCode::JAVA,
            version: version::CURRENT,
            opaque: to.opaque,
            flag: FLAG_RESPONSE,
            remark: self.remark.as_ref().map(Str::as_bytes),
        };
        out.reserve(160 + self.ext.size() * 2);
        encode_head(&parts, to.serialize, self.ext.raw(), self.body.len(), out)
    }

    /// Appends the whole frame, body included.
    ///
    /// # Errors
    /// When header or body do not fit their length words; `out` is then as before.
    pub fn encode_into(&self, to: ReplyTo, out: &mut BytesMut) -> Result<(), FrameError> {
        self.encode_head(to, out)?;
        for slice in self.body.slices() {
            out.extend_from_slice(slice);
        }
        Ok(())
    }

    /// The answer as the caller of a request would decode it, for callers in the same process.
    pub fn into_command(self, to: ReplyTo) -> RemotingCommand {
        RemotingCommand {
            code: self.code.0,
            language: LanguageCode::JAVA,
            version: version::CURRENT,
            opaque: to.opaque,
            flag: FLAG_RESPONSE,
            remark: self.remark,
            ext: self.ext.into_ext_fields(),
            serialize: to.serialize,
            body: self.body.to_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext::ExtWriter;
    use crate::frame::{DEFAULT_MAX_FRAME_BYTES, split_frame};

    #[test]
    fn an_answer_reads_back_with_the_opaque_and_serialisation_of_its_request() {
        for serialize in [SerializeType::Json, SerializeType::RocketMq] {
            let mut response = Response::error(ResponseCode::PULL_NOT_FOUND, "nothing\t\"yet\"")
                .body(vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
            response.ext.put_i64("nextBeginOffset", 12);
            let to = ReplyTo { opaque: 99, serialize };
            let mut out = BytesMut::new();
            response.encode_into(to, &mut out).unwrap();
            let frame = split_frame(&mut out, DEFAULT_MAX_FRAME_BYTES).unwrap().unwrap();
            let back = RemotingCommand::decode(frame).unwrap();
            assert!(back.is_response() && out.is_empty());
            assert_eq!(back, response.into_command(to));
            assert_eq!(back.body, "abc");
        }
    }
}
