//! Asynchronous remoting on tokio: one connection type for both sides, a server and a client.
//!
//! What always holds: a connection is served by exactly one task, so its requests are handed over in
//! the order in which they arrived and its answers leave in one write per read; all complete frames
//! that one read brought are handed over as one batch; a bad frame closes its own connection only;
//! every buffer has a limit in [`Limits`]. Streams are generic, so TLS slips in below.

pub mod client;
pub mod connection;
mod limits;
mod out_buffer;
mod pump;
pub mod server;

pub use client::{Client, ClientError};
pub use connection::{Connection, InFlight, InvokeError};
pub use limits::Limits;
pub use out_buffer::OutBuffer;
pub use server::Server;

use apogee_protocol::RemotingCommand;
use std::sync::Arc;

/// Answers the requests of connections.
///
/// `serve` runs on the connection's task and must not block for more than half a millisecond; what
/// takes longer is spawned and answered later with [`Connection::send`].
pub trait Service: Send + Sync + 'static {
    /// Handles all requests that one read brought, in order, leaving `requests` empty. Answers that
    /// are known now go into `replies`; they leave together in one write.
    fn serve(
        &self,
        connection: &Arc<Connection>,
        requests: &mut Vec<RemotingCommand>,
        replies: &mut OutBuffer,
    );

    /// Called once when a connection has ended, for whatever reason.
    fn closed(&self, _connection: &Arc<Connection>) {}
}
