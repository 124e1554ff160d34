//! The one task of a connection: reads, hands batches to the service, writes.
//!
//! While it writes it does not read: a peer that does not take its answers is not asked for more
//! requests. The read buffer starts small and grows only while a peer fills it, so that ten thousand
//! idle connections cost little.

use crate::connection::Connection;
use crate::out_buffer::OutBuffer;
use crate::Service;
use apogee_protocol::{FrameError, RemotingCommand, split_frame};
use bytes::BytesMut;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SMALLEST_READ: usize = 2 * 1024;
const LARGEST_READ: usize = 256 * 1024;
/// How long the last answers may take to leave when the server shuts down.
const GOODBYE: Duration = Duration::from_millis(500);

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
    let end = serve(&mut stream, &connection, service.as_ref(), &shutdown).await;
    let peer = connection.peer();
    match &end {
        End::Closed | End::Shutdown => tracing::debug!(%peer, "connection closed"),
        End::Idle => tracing::info!(%peer, "connection closed: idle"),
        End::Io(error) => tracing::debug!(%peer, %error, "connection lost"),
        End::Frame(error) => tracing::warn!(%peer, %error, "connection closed: bad frame"),
    }
    connection.end();
    service.closed(&connection);
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
        input.reserve(next_read);
        tokio::select! {
            biased;
            read = stream.read_buf(&mut input), if connection.may_read() => match read {
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
                        let _ = tokio::time::timeout(GOODBYE, out.write_to(stream)).await;
                        return End::Frame(error);
                    }
                }
                Err(error) => return End::Io(error),
            },
            () = connection.wake.notified() => {}
            () = shutdown.cancelled() => {
                connection.take_out(&mut out);
                let _ = tokio::time::timeout(GOODBYE, out.write_to(stream)).await;
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
            tokio::select! {
                biased;
                written = out.write_to(stream) => if let Err(error) = written {
                    return End::Io(error);
                },
                () = tokio::time::sleep(idle) => return End::Idle,
                () = shutdown.cancelled() => return End::Shutdown,
            }
            last_traffic = Instant::now();
        }
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
