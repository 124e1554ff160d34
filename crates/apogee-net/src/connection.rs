//! A connection as the rest of the program sees it: a handle to send on, to ask through, to close.
//!
//! The handle is shared; the stream itself belongs to the connection's task in `pump`. Two short locks
//! (what waits to be written; who waits for an answer) are never held together or across `.await`.

use crate::limits::Limits;
use crate::out_buffer::OutBuffer;
use apogee_protocol::{RemotingCommand, ReplyTo, Response};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Why a request to the peer got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The connection is closed, or was closed while waiting.
    #[error("connection to {0} is closed")]
    Closed(SocketAddr),
    /// No answer in time.
    #[error("no answer from {peer} within {timeout_ms} ms")]
    Timeout {
        /// Who was asked.
        peer: SocketAddr,
        /// How long was waited, in milliseconds.
        timeout_ms: u64,
    },
    /// Too many requests wait for an answer of this peer already.
    #[error("{limit} requests to {peer} wait for an answer already")]
    TooManyPending {
        /// Who was asked.
        peer: SocketAddr,
        /// The limit.
        limit: usize,
    },
}

/// Handle to one connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    limits: Limits,
    out: Mutex<OutBuffer>,
    pending: Mutex<HashMap<i32, oneshot::Sender<RemotingCommand>>>,
    next_opaque: AtomicI32,
    closed: AtomicBool,
    in_flight: AtomicUsize,
    pub(crate) wake: Notify,
    /// Told once, by `close`: a write that the peer does not take must not outlive that.
    pub(crate) cut: Notify,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Connection {
    pub(crate) fn new(peer: SocketAddr, local: SocketAddr, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            peer,
            local,
            limits,
            out: Mutex::default(),
            pending: Mutex::default(),
            next_opaque: AtomicI32::new(1),
            closed: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            wake: Notify::new(),
            cut: Notify::new(),
        })
    }

    /// Unique among all connections of this process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Limits that this connection keeps.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the connection has ended or is about to.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the connection; what waits to be written is dropped.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
            self.cut.notify_one();
        }
    }

    /// Queues bytes that `fill` writes; they leave as soon as the peer takes them. A peer that lets
    /// more than `max_unsent` bytes pile up is cut off.
    pub fn send_with(&self, fill: impl FnOnce(&mut OutBuffer)) {
        if self.is_closed() {
            return;
        }
        let waiting = {
            let mut out = self.out.lock();
            fill(&mut out);
            out.len()
        };
        if waiting > self.limits.max_unsent {
            tracing::warn!(
                peer = %self.peer, waiting, limit = self.limits.max_unsent,
                "peer does not read its answers: connection closed"
            );
            self.close();
        }
        self.wake.notify_one();
    }

    /// Queues one command. One that does not fit a frame is dropped with a logged reason.
    pub fn send(&self, command: &RemotingCommand) {
        self.send_with(|out| {
            if let Err(error) = command.encode_into(out.tail()) {
                tracing::error!(peer = %self.peer, code = command.code, %error, "command not sent");
            }
        });
    }

    /// Queues the answer to a request.
    pub fn reply(&self, to: ReplyTo, response: Response) {
        self.send_with(|out| out.reply(to, response));
    }

    /// Sends a request and waits for its answer. The command's opaque is replaced by one that is free
    /// on this connection.
    ///
    /// Cancel safe: a dropped call forgets its answer.
    ///
    /// # Errors
    /// [`InvokeError`] when the connection ends, the time is up, or too many requests wait.
    pub async fn invoke(
        &self,
        mut command: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, InvokeError> {
        let opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        command.opaque = opaque;
        let (sender, receiver) = oneshot::channel();
        {
            let mut pending = self.pending.lock();
            if pending.len() >= self.limits.max_pending {
                return Err(InvokeError::TooManyPending {
                    peer: self.peer,
                    limit: self.limits.max_pending,
                });
            }
            pending.insert(opaque, sender);
        }
        let forget = Forget { connection: self, opaque };
        // Checked after the insertion: the task drains `pending` after it has set `closed`.
        if self.is_closed() {
            return Err(InvokeError::Closed(self.peer));
        }
        self.send(&command);
        let answer = tokio::time::timeout(timeout, receiver).await;
        drop(forget);
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_)) => Err(InvokeError::Closed(self.peer)),
            Err(_) => Err(InvokeError::Timeout {
                peer: self.peer,
                timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    /// Counts `requests` as being answered later, until the guard is dropped. While more than
    /// `max_in_flight` are, nothing is read from the peer.
    #[must_use]
    pub fn begin(self: &Arc<Self>, requests: usize) -> InFlight {
        self.in_flight.fetch_add(requests, Ordering::AcqRel);
        InFlight { connection: Arc::clone(self), requests }
    }

    pub(crate) fn may_read(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) < self.limits.max_in_flight
    }

    /// A number for a one-way request that no waiting request uses.
    pub fn next_opaque(&self) -> i32 {
        self.next_opaque.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn answer(&self, response: RemotingCommand) {
        let waiting = self.pending.lock().remove(&response.opaque);
        if let Some(sender) = waiting {
            // The asker may have gone in this moment; then nobody needs the answer.
            let _ = sender.send(response);
        }
    }

    pub(crate) fn take_out(&self, into: &mut OutBuffer) {
        into.append(&mut self.out.lock());
    }

    pub(crate) fn end(&self) {
        self.closed.store(true, Ordering::Release);
        self.pending.lock().clear();
        *self.out.lock() = OutBuffer::default();
    }
}

/// Requests that are being answered later; see [`Connection::begin`].
#[derive(Debug)]
pub struct InFlight {
    connection: Arc<Connection>,
    requests: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.connection.in_flight.fetch_sub(self.requests, Ordering::AcqRel);
        if before >= self.connection.limits.max_in_flight {
            self.connection.wake.notify_one();
        }
    }
}

struct Forget<'a> {
    connection: &'a Connection,
    opaque: i32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.connection.pending.lock().remove(&self.opaque);
    }
}
