//! Words of the domain: the message, its properties and its stored record, ids, names and filters.
//!
//! What always holds: nothing here does I/O, reads a clock or spawns a task, and no function
//! panics on bytes that came from a network or a disk. All integers on wire and disk are big endian.

pub mod batch;
pub mod compression;
pub mod hash;
pub mod id;
pub mod names;
pub mod properties;
pub mod record;
pub mod sql;
pub mod subscription;
pub mod sys_flag;

mod reader;

pub use properties::{Properties, PropertyMap};
pub use record::{LogEntry, RecordError, RecordFields, RecordView};
pub use subscription::{MessageFilter, TagFilter};
