//! Every way in which the store can fail, told so that an operator knows what to do.
//!
//! [`StoreError`] is what opening and maintenance return; [`AppendError`] is the answer for one
//! message and is cheap to clone, because a failed write fails every message behind it.

use std::io;
use std::path::{Path, PathBuf};

/// Why the store cannot open, flush, clean or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation on a file or folder failed.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried ("open", "write", …).
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process works on this folder.
    #[error(
        "the store folder {path} is in use by process {pid}; stop that process or choose another storePathRootDir"
    )]
    Locked {
        /// The store's root.
        path: PathBuf,
        /// Who holds it, as far as the `abort` file tells.
        pid: String,
    },
    /// A setting cannot be used.
    #[error("{key}={value} cannot be used: {reason}")]
    Config {
        /// The setting's name.
        key: &'static str,
        /// Its value.
        value: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A commit log file does not have the configured size.
    #[error(
        "{path} has {actual} bytes but mappedFileSizeCommitLog is {expected}; set mappedFileSizeCommitLog to the size the store was made with"
    )]
    SegmentSize {
        /// The file.
        path: PathBuf,
        /// Its length.
        actual: u64,
        /// The configured length.
        expected: u64,
    },
    /// A commit log file between two others is not there.
    #[error(
        "the commit log has no file for offset {offset} in {path}; restore it, or move the files before it away"
    )]
    MissingSegment {
        /// The commit log's folder.
        path: PathBuf,
        /// First offset of the missing file.
        offset: i64,
    },
    /// Bytes that were already flushed are damaged, and good records stand behind them.
    #[error(
        "the commit log is damaged at {path} byte {at} (offset {offset}) though later messages are intact: {reason}. Nothing was changed; restore the file or run `apogee store repair`"
    )]
    DamagedLog {
        /// The file.
        path: PathBuf,
        /// Byte in the file.
        at: usize,
        /// Commit log offset.
        offset: i64,
        /// What is wrong there.
        reason: String,
    },
    /// A document and its backup are both unreadable.
    #[error(
        "neither {path} nor its .bak can be read; restore one of them, or remove both to start with nothing (consumers may then see old messages again)"
    )]
    DocumentDamaged {
        /// The document.
        path: PathBuf,
    },
    /// A document is to be saved that was never loaded.
    #[error("{path} was not loaded yet and is therefore not overwritten")]
    DocumentNotLoaded {
        /// The document.
        path: PathBuf,
    },
    /// The store takes no more writes after a failure.
    #[error("the store takes no writes: {0}")]
    Poisoned(String),
    /// A waiter was cut off because flushing failed or the store was closed.
    #[error("the position {target} was not reached: {reason}")]
    NotReached {
        /// The position waited for.
        target: i64,
        /// Why nobody will get there.
        reason: String,
    },
}

impl StoreError {
    /// Wraps an I/O error with what was tried and where.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

/// Why one message was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The message breaks a rule of the format or a limit.
    #[error("{0}")]
    Illegal(String),
    /// Body or record is too large.
    #[error("the message has {size} bytes, {limit} are allowed by {key}")]
    TooLarge {
        /// What was measured.
        size: usize,
        /// The limit.
        limit: usize,
        /// The setting that gives the limit.
        key: &'static str,
    },
    /// The disk is above its limit, or no space could be reserved.
    #[error("{0}")]
    DiskFull(String),
    /// A write or flush failed; nothing is written until it has been repaired.
    #[error("the store takes no writes: {0}")]
    Poisoned(String),
    /// The store is closed or closing.
    #[error("the store is shut down")]
    Closed,
    /// The kind of message is not supported by this release.
    #[error("{0}")]
    Unsupported(String),
}
