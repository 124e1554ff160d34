//! The remoting language of RocketMQ: frames, both header serialisations, codes, headers, bodies.
//!
//! Reading order: a byte stream is cut into frames ([`frame`]), a frame is a [`RemotingCommand`] with
//! extension fields ([`ext`]) that become a typed header ([`headers`]); a handler answers with a
//! [`Response`].
//!
//! Always holds: no I/O, no clock, no threads, no locks; nothing from the wire makes it panic, and no length
//! from the wire is believed before it was compared with the bytes that are there.

mod binary_header;
pub mod bodies;
pub mod codes;
mod decimal;
pub mod ext;
pub mod frame;
pub mod headers;
mod json_header;
mod language;
pub mod lenient;
mod response;
mod swar;
mod text;

pub use codes::{CodeClass, RequestCode, ResponseCode};
pub use ext::{ExtBuf, ExtFields, ExtWriter};
pub use frame::{DEFAULT_MAX_FRAME_BYTES, FrameError, RemotingCommand, SerializeType, split_frame};
pub use headers::{Header, HeaderError};
#[doc(hidden)]
pub use json_header::readers_agree;
pub use language::{LanguageCode, version};
pub use response::{Body, ReplyTo, Response};
pub use text::Str;
