//! The log-structured message store, byte-compatible with RocketMQ's files.
//!
//! One commit log holds every record; consume queues and the key index are derived from it and can
//! be rebuilt. The store is synchronous and has no clock, no network and no runtime: time comes in
//! as ms, waiting goes out as plain futures ([`Progress::wait`]), background work is a set of steps
//! that [`MessageStore::start_threads`] runs in threads.
//!
//! Positions in the log: appended ≥ flushed, and visible = what the flush mode promises. Only what
//! is visible is dispatched, and only what is dispatched can be read.
//!
//! | in the root | what | who else reads it |
//! | --- | --- | --- |
//! | `commitlog/`, `consumequeue/`, `index/` | log, queues, key index | the original, both ways |
//! | `consumequeue_ext/`, `batchconsumequeue/` | of older stores: read for tags codes, or left alone | the original |
//! | `timerlog/`, `timerwheel`, `config/timercheck` | waiting timer messages | the original, both ways |
//! | `checkpoint`, `abort`, `lock` | up to when all was on disk; last stop not clean; folder in use | the original |
//! | `derived.manifest` | what queues and index held at the checkpoint, so that losses are noticed | ignored |
//! | `deletedTopics` | at which log position topics were deleted, so that they stay deleted | ignored |
//! | `consumequeue.deleted/` | queues on their way out; emptied at once and at the next start | ignored |
//! | `damaged/` | files as they were before a repair | ignored |

pub mod config;
pub mod error;
pub mod faults;

mod message_store;

mod append;
mod commit_log;
mod segment;
mod segments;

mod consume_queue;
mod dispatch;
mod ext;
mod queue_files;
mod queue_listing;
mod queues;
mod unit;

mod index;
mod index_file;

mod offsets;
mod query;
mod read;

mod checkpoint;
mod guard;
mod manifest;
mod recovery;
mod scan;

pub mod cleaning;
pub mod progress;
mod retention;
mod threads;

pub mod inspect;
mod queue_units;

pub mod timer;

pub mod delay_level;
pub mod document;

mod be;
mod local_time;

pub use append::{Appending, Placed};
pub use config::{FlushDiskType, StoreConfig};
pub use consume_queue::ConsumeQueue;
pub use dispatch::{Arrival, ArrivalListener, NoListener};
pub use document::{Document, Loaded};
pub use error::{AppendError, StoreError};
pub use message_store::MessageStore;
pub use offsets::Boundary;
pub use progress::Progress;
pub use query::{KeyKind, QueryResult};
pub use read::{GetStatus, ReadPlan, ReadRequest};
pub use recovery::RecoveryReport;
pub use retention::Retention;
pub use threads::{Clock, StoreThreads};
pub use unit::Unit;
