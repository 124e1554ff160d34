//! The one task of a connection: reads, hands batches to the service, writes.
//!
//! While it writes it does not read: a peer that does not take its answers is not asked for more
//! requests. The read buffer starts small and grows only while a peer fills it, so that ten thousand
//! idle connections cost little.

use crate::Service;
use crate::connection::Connection;
use crate::out_buffer::OutBuffer;
use apogee_protocol::{FrameError, RemotingCommand, split_frame};
use bytes::BytesMut;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SMALLEST_READ: usize = 2 * 1024;
const LARGEST_READ: usize = 256 * 1024;
/// How long the last answers may take to leave when the server shuts down.
const GOODBYE: Duration = Duration::from_millis(500);
/// How long the peer may take to close after we have.
const LINGER: Duration = Duration::from_millis(300);

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// The peer closed it, or we did.
    Closed,
    /// No traffic for the idle time.
    Idle,
    /// The server shuts down.
    Shutdown,
    /// The stream failed.
    Io(std::io::Error),
    /// The peer sent something that is no frame.
    Frame(FrameError),
}

/// Serves `stream` until it ends, then tells the service.
pub(crate) async fn run<S>(
    mut stream: S,
    connection: Arc<Connection>,
    service: Arc<dyn Service>,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // A token of its own: it is asked before every read, and asking takes the token's lock.
    let end = serve(&mut stream, &connection, service.as_ref(), &shutdown.child_token()).await;
    let peer = connection.peer();
    match &end {
        End::Closed | End::Shutdown => tracing::debug!(%peer, "connection closed"),
        End::Idle => tracing::info!(%peer, "connection closed: idle"),
        End::Io(error) => tracing::debug!(%peer, %error, "connection lost"),
        End::Frame(error) => tracing::warn!(%peer, %error, "connection closed: bad frame"),
    }
    connection.end();
    service.closed(&connection);
    if matches!(end, End::Shutdown | End::Frame(_)) {
        let_go(&mut stream).await;
    }
}

/// Closes in a way that lets the peer read what was written: requests that nobody reads any more would
/// make the system reset the connection, and a reset takes the last answers along.
async fn let_go<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let drain = async {
        let mut unread = BytesMut::with_capacity(SMALLEST_READ);
        let mut open = stream.shutdown().await.is_ok();
        while open {
            unread.clear();
            open = matches!(stream.read_buf(&mut unread).await, Ok(1..));
        }
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}

async fn serve<S>(
    stream: &mut S,
    connection: &Arc<Connection>,
    service: &dyn Service,
    shutdown: &CancellationToken,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let idle = connection.limits().idle;
    let mut last_traffic = Instant::now();
    let idle_timer = tokio::time::sleep_until(last_traffic + idle);
    tokio::pin!(idle_timer);
    let mut input = BytesMut::new();
    let mut next_read = SMALLEST_READ;
    let mut requests = Vec::new();
    let mut out = OutBuffer::default();
    loop {
        make_room(&mut input, next_read);
        // A peer that floods us always has something to read, and must not put the end off by that.
        let may_read = connection.may_read() && !shutdown.is_cancelled();
        tokio::select! {
            biased;
            read = stream.read_buf(&mut input), if may_read => match read {
                Ok(0) => return End::Closed,
                Ok(count) => {
                    next_read = if count >= next_read {
                        (next_read * 2).min(LARGEST_READ)
                    } else {
                        count.next_power_of_two().clamp(SMALLEST_READ, LARGEST_READ)
                    };
                    let split = split_all(&mut input, connection, &mut requests);
                    if !requests.is_empty() {
                        service.serve(connection, &mut requests, &mut out);
                        requests.clear();
                    }
                    if let Err(error) = split {
                        // What came before the bad frame is still answered.
                        let _ = tokio::time::timeout(GOODBYE, out.write_to(stream, GOODBYE)).await;
                        return End::Frame(error);
                    }
                }
                Err(error) => return End::Io(error),
            },
            () = connection.wake.notified() => {}
            () = shutdown.cancelled() => {
                connection.take_out(&mut out);
                let _ = tokio::time::timeout(GOODBYE, out.write_to(stream, GOODBYE)).await;
                return End::Shutdown;
            }
            () = &mut idle_timer => {
                if last_traffic.elapsed() >= idle {
                    return End::Idle;
                }
                idle_timer.as_mut().reset(last_traffic + idle);
                continue;
            }
        }
        last_traffic = Instant::now();
        if connection.is_closed() {
            return End::Closed;
        }
        connection.take_out(&mut out);
        if !out.is_empty() {
            if let Some(end) = write(stream, connection, &mut out, shutdown).await {
                return end;
            }
            last_traffic = Instant::now();
        }
    }
}

/// Makes room for the next read. A buffer that grew for a large frame is given back when nothing of a
/// frame is in it, so that an idle connection does not keep the size of the largest it ever sent.
fn make_room(input: &mut BytesMut, wanted: usize) {
    input.reserve(wanted);
    if input.is_empty() && input.capacity() > LARGEST_READ {
        *input = BytesMut::with_capacity(wanted);
    }
}

/// Writes everything in `out`; answers why the connection must end, if it must.
async fn write<S>(
    stream: &mut S,
    connection: &Connection,
    out: &mut OutBuffer,
    shutdown: &CancellationToken,
) -> Option<End>
where
    S: AsyncWrite + Unpin,
{
    let writing = out.write_to(stream, connection.limits().idle);
    tokio::pin!(writing);
    let written = tokio::select! {
        biased;
        written = &mut writing => written,
        // A write cannot be broken off and taken up again, so the connection ends with it.
        () = connection.cut.notified() => return Some(End::Closed),
        () = shutdown.cancelled() => {
            let _ = tokio::time::timeout(GOODBYE, writing).await;
            return Some(End::Shutdown);
        }
    };
    match written {
        Ok(()) => None,
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Some(End::Idle),
        Err(error) => Some(End::Io(error)),
    }
}

/// Cuts all complete frames off `input`: requests are collected, answers go to who waits for them.
fn split_all(
    input: &mut BytesMut,
    connection: &Connection,
    requests: &mut Vec<RemotingCommand>,
) -> Result<(), FrameError> {
    let max_frame = connection.limits().max_frame;
    while let Some(frame) = split_frame(input, max_frame)? {
        let command = RemotingCommand::decode(frame)?;
        if command.is_response() {
            connection.answer(command);
        } else {
            requests.push(command);
        }
    }
    Ok(())
}
