//! Connections that this process opens, one for each address, opened again after a loss.

use crate::connection::{Connection, InvokeError};
use crate::limits::Limits;
use crate::out_buffer::OutBuffer;
use crate::{Service, pump};
use apogee_protocol::RemotingCommand;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Whom.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The request got no answer.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
}

/// Ignores requests of the peer: for clients that only ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoService;

impl Service for NoService {
    fn serve(&self, _: &Arc<Connection>, requests: &mut Vec<RemotingCommand>, _: &mut OutBuffer) {
        requests.clear();
    }
}

/// One address: its lock is held while a connection is opened, so that two callers never open two,
/// and an address that does not answer delays no other.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>;

/// A pool with one connection an address.
pub struct Client {
    limits: Limits,
    service: Arc<dyn Service>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    table: Mutex<HashMap<String, Slot>>,
}

impl Client {
    /// A client whose connections end when `shutdown` is cancelled and belong to `tasks`.
    #[must_use]
    pub fn new(
        limits: Limits,
        service: Arc<dyn Service>,
        shutdown: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self { limits, service, shutdown, tasks, table: Mutex::default() }
    }

    /// The connection to `address` (`host:port`; names are resolved again for each new connection).
    ///
    /// # Errors
    /// [`ClientError::Connect`] when none can be made within three seconds.
    pub async fn connect(&self, address: &str) -> Result<Arc<Connection>, ClientError> {
        let slot = Arc::clone(self.table.lock().entry(address.to_owned()).or_default());
        let mut place = slot.lock().await;
        if let Some(connection) = place.as_ref().filter(|known| !known.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let connection = self.open(address).await?;
        *place = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// A connection of its own, outside the pool.
    ///
    /// # Errors
    /// [`ClientError::Connect`] when none can be made within three seconds.
    pub async fn open(&self, address: &str) -> Result<Arc<Connection>, ClientError> {
        let failed = |source| ClientError::Connect { address: address.to_owned(), source };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| failed(std::io::ErrorKind::TimedOut.into()))?
            .map_err(failed)?;
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().map_err(failed)?;
        let local = stream.local_addr().map_err(failed)?;
        let connection = Connection::new(peer, local, self.limits.clone());
        let (service, shutdown) = (Arc::clone(&self.service), self.shutdown.clone());
        let handle = Arc::clone(&connection);
        self.tasks.spawn(pump::run(stream, connection, service, shutdown));
        Ok(handle)
    }

    /// Connects if needed, asks, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError`] when there is no connection or no answer in time.
    pub async fn invoke(
        &self,
        address: &str,
        command: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, ClientError> {
        let connection = self.connect(address).await?;
        Ok(connection.invoke(command, timeout).await?)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Resolves `host:port` once; the first address counts.
///
/// # Errors
/// When the name is unknown.
pub async fn resolve(address: &str) -> std::io::Result<SocketAddr> {
    tokio::net::lookup_host(address)
        .await?
        .next()
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"))
}
