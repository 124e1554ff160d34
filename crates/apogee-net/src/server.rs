//! Listens and starts one task for each connection.

use crate::connection::Connection;
use crate::limits::Limits;
use crate::{Service, pump};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const BACKLOG: i32 = 1024;

/// A listening socket that serves nobody yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    local: SocketAddr,
    limits: Limits,
}

impl Server {
    /// Binds `address`; port 0 takes any free one. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the address is in use or not ours.
    pub fn bind(address: SocketAddr, limits: Limits) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        let local = listener.local_addr()?;
        Ok(Self { listener, local, limits })
    }

    /// Where the server listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Serves until `shutdown` is cancelled. The accepting task and all connections belong to
    /// `tasks`, so waiting for the tracker waits for their end.
    pub fn start(
        self,
        service: Arc<dyn Service>,
        shutdown: CancellationToken,
        tasks: &TaskTracker,
    ) {
        let connections = tasks.clone();
        tasks.spawn(self.accept_all(service, shutdown, connections));
    }

    async fn accept_all(
        self,
        service: Arc<dyn Service>,
        shutdown: CancellationToken,
        tasks: TaskTracker,
    ) {
        let permits = Arc::new(Semaphore::new(self.limits.max_connections));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = shutdown.cancelled() => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file handles, mostly: waiting lets other connections end.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                tracing::warn!(%peer, limit = self.limits.max_connections, "connection refused: too many");
                continue;
            };
            let (service, shutdown) = (Arc::clone(&service), shutdown.clone());
            let connection =
                Connection::new(peer, local_of(&stream, self.local), self.limits.clone());
            tasks.spawn(async move {
                // Requests are small and answered at once; waiting for more bytes only costs latency.
                let _ = stream.set_nodelay(true);
                pump::run(stream, connection, service, shutdown).await;
                drop(permit);
            });
        }
    }
}

fn local_of(stream: &TcpStream, listening: SocketAddr) -> SocketAddr {
    stream.local_addr().unwrap_or(listening)
}
