//! The bodies of requests and responses, and the documents on disk made of the same parts.

mod admin;
mod client;
mod documents;
pub mod json;
mod properties_text;
mod register;
mod route;

pub use admin::*;
pub use client::*;
pub use documents::*;
pub use json::{BodyError, Dialect, JsonBody};
pub use properties_text::{read_properties, write_properties};
pub use register::MAX_INFLATED_BYTES;
pub use route::*;
