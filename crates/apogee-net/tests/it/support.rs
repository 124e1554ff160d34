//! A server whose service is steered by the requests, and raw peers.

use apogee_net::{Client, Connection, Limits, OutBuffer, Server, Service};
use apogee_protocol::{ExtFields, RemotingCommand, ReplyTo, Response, split_frame};
use bytes::{Bytes, BytesMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Answered at once with the request's body.
pub(crate) const ECHO: i32 = 1;
/// Handed to the test, which answers when it likes.
pub(crate) const HOLD: i32 = 2;
/// Answered at once with 64 KiB.
pub(crate) const LARGE: i32 = 3;

/// Bytes of an answer to [`LARGE`].
pub(crate) const LARGE_BYTES: usize = 64 * 1024;

/// A request that waits for the test.
pub(crate) struct Held {
    pub(crate) connection: Arc<Connection>,
    pub(crate) request: RemotingCommand,
}

impl Held {
    pub(crate) fn reply(&self, body: &'static [u8]) {
        self.connection.reply(
            ReplyTo::from(&self.request),
            Response::success().body(Bytes::from_static(body)),
        );
    }
}

/// Tells the test what happens.
pub(crate) struct Steered {
    pub(crate) requests: AtomicUsize,
    batches: mpsc::UnboundedSender<usize>,
    held: mpsc::UnboundedSender<Held>,
    closed: mpsc::UnboundedSender<SocketAddr>,
}

impl Service for Steered {
    fn serve(
        &self,
        connection: &Arc<Connection>,
        requests: &mut Vec<RemotingCommand>,
        replies: &mut OutBuffer,
    ) {
        let _ = self.batches.send(requests.len());
        self.requests.fetch_add(requests.len(), Ordering::Relaxed);
        for request in requests.drain(..) {
            let to = ReplyTo::from(&request);
            match request.code {
                HOLD => {
                    let _ = self.held.send(Held { connection: Arc::clone(connection), request });
                }
                LARGE => {
                    static BODY: [u8; LARGE_BYTES] = [7; LARGE_BYTES];
                    replies.reply(to, Response::success().body(Bytes::from_static(&BODY)));
                }
                _ => replies.reply(to, Response::success().body(request.body)),
            }
        }
    }

    fn closed(&self, connection: &Arc<Connection>) {
        let _ = self.closed.send(connection.peer());
    }
}

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<Steered>,
    pub(crate) batches: mpsc::UnboundedReceiver<usize>,
    pub(crate) held: mpsc::UnboundedReceiver<Held>,
    pub(crate) closed: mpsc::UnboundedReceiver<SocketAddr>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Running {
    /// Must be called inside a runtime.
    pub(crate) fn start(limits: Limits) -> Self {
        let (batches, batches_out) = mpsc::unbounded_channel();
        let (held, held_out) = mpsc::unbounded_channel();
        let (closed, closed_out) = mpsc::unbounded_channel();
        let service = Arc::new(Steered { requests: AtomicUsize::new(0), batches, held, closed });
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), limits).unwrap();
        let address = server.local_addr();
        server.start(Arc::clone(&service) as Arc<dyn Service>, shutdown.clone(), &tasks);
        Self {
            address,
            service,
            batches: batches_out,
            held: held_out,
            closed: closed_out,
            shutdown,
            tasks,
        }
    }

    /// A client of this crate with its own limits.
    pub(crate) fn client(&self, limits: Limits, service: Arc<dyn Service>) -> Client {
        Client::new(limits, service, self.shutdown.clone(), self.tasks.clone())
    }

    /// The next request that waits for the test.
    pub(crate) async fn next_held(&mut self) -> Held {
        within(self.held.recv()).await.unwrap()
    }
}

/// Waits for what must come.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing came")
}

/// A request.
pub(crate) fn request(code: i32, opaque: i32, body: &[u8]) -> RemotingCommand {
    let mut command =
        RemotingCommand::with_ext(code, ExtFields::default()).body(Bytes::copy_from_slice(body));
    command.opaque = opaque;
    command
}

/// A request as bytes.
pub(crate) fn frame(code: i32, opaque: i32, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    request(code, opaque, body).encode_into(&mut out).unwrap();
    out.to_vec()
}

/// A peer without any of our code but the frames.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    input: BytesMut,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), input: BytesMut::new() }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        within(self.stream.write_all(bytes)).await.unwrap();
    }

    /// The next command, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<RemotingCommand> {
        loop {
            if let Some(frame) = split_frame(&mut self.input, usize::MAX).unwrap() {
                return Some(RemotingCommand::decode(frame).unwrap());
            }
            match within(self.stream.read_buf(&mut self.input)).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask(&mut self, opaque: i32, body: &[u8]) -> Option<RemotingCommand> {
        self.stream.write_all(&frame(ECHO, opaque, body)).await.ok()?;
        self.next().await
    }
}
