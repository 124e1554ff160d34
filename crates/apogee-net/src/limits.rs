//! Limits of one connection and of a server.

use std::time::Duration;

/// What a peer may use at most. Nothing in this crate grows past these.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Largest frame in bytes, without its length word. The original's default is 16 MiB.
    pub max_frame: usize,
    /// A connection without traffic in either direction for this long is closed.
    pub idle: Duration,
    /// Bytes that may wait for a peer that does not read; then the connection is closed.
    pub max_unsent: usize,
    /// Requests of the peer that may be answered later at one time; until some are, nothing more is
    /// read from it. Waiting pulls don't count: they have a limit of their own.
    pub max_in_flight: usize,
    /// Requests sent to the peer that may wait for their answer at one time.
    pub max_pending: usize,
    /// Connections that a server holds at one time; further ones are closed at once.
    pub max_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame: 16 * 1024 * 1024,
            idle: Duration::from_secs(120),
            max_unsent: 64 * 1024 * 1024,
            max_in_flight: 16_384,
            max_pending: 65_536,
            max_connections: 65_536,
        }
    }
}
