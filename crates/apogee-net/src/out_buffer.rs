//! Bytes on their way out: small pieces are gathered, large slices of the log go out uncopied.

use apogee_protocol::{Body, ReplyTo, Response, ResponseCode};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Slices up to this many bytes are copied: cheaper than another element of a vectored write.
const COPY_LIMIT: usize = 4096;
/// A gathering buffer larger than this is given back after a write.
const KEEP_CAPACITY: usize = 256 * 1024;
/// Elements of one vectored write.
const MAX_SLICES: usize = 64;

/// An ordered queue of bytes to write.
#[derive(Debug, Default)]
pub struct OutBuffer {
    /// Finished pieces, before `tail`.
    pieces: VecDeque<Bytes>,
    pieces_len: usize,
    tail: BytesMut,
}

impl OutBuffer {
    /// The buffer to append encoded frames to.
    pub fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends bytes, copying small ones and keeping a reference to large ones.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_LIMIT {
            self.tail.extend_from_slice(&bytes);
            return;
        }
        self.seal_tail();
        self.pieces_len += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Appends a response. One that does not fit a frame becomes a SYSTEM_ERROR that says so.
    pub fn reply(&mut self, to: ReplyTo, response: Response) {
        if let Err(error) = response.encode_head(to, &mut self.tail) {
            let remark = format!("the answer cannot be sent: {error}");
            let refusal = Response::error(ResponseCode::SYSTEM_ERROR, remark);
            // A short refusal always fits.
            let _ = refusal.encode_head(to, &mut self.tail);
            return;
        }
        match response.body {
            Body::Empty => {}
            Body::One(slice) => self.push(slice),
            Body::Many(slices) => slices.into_iter().for_each(|slice| self.push(slice)),
        }
    }

    /// Appends everything that waits in `other`, leaving it empty.
    pub fn append(&mut self, other: &mut Self) {
        if other.pieces.is_empty() && other.tail.len() <= COPY_LIMIT {
            self.tail.extend_from_slice(&other.tail);
            other.tail.clear();
            return;
        }
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.seal_tail();
        other.seal_tail();
        self.pieces_len += std::mem::take(&mut other.pieces_len);
        self.pieces.append(&mut other.pieces);
    }

    /// Bytes that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces_len + self.tail.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            let piece = self.tail.split().freeze();
            self.pieces_len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Writes everything; `patience` is how long the peer may take none of it. Not cancel safe: after
    /// cancellation the stream's state is unknown and the connection must be closed.
    ///
    /// # Errors
    /// What the stream reports; `TimedOut` when the patience is used up.
    pub(crate) async fn write_to<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        patience: Duration,
    ) -> std::io::Result<()> {
        if !self.pieces.is_empty() {
            self.seal_tail();
            self.write_pieces(stream, patience).await?;
        } else if !self.tail.is_empty() {
            let mut rest = &self.tail[..];
            while !rest.is_empty() {
                let written = progress(stream.write(rest), patience).await?;
                rest = rest.get(written..).unwrap_or_default();
            }
            if self.tail.capacity() > KEEP_CAPACITY {
                self.tail = BytesMut::new();
            } else {
                self.tail.clear();
            }
        }
        stream.flush().await
    }

    async fn write_pieces<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        patience: Duration,
    ) -> std::io::Result<()> {
        while !self.pieces.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.pieces.iter().take(MAX_SLICES).map(|piece| IoSlice::new(piece)).collect();
            let mut written = progress(stream.write_vectored(&slices), patience).await?;
            self.pieces_len = self.pieces_len.saturating_sub(written);
            while let Some(front) = self.pieces.front_mut() {
                if written < front.len() {
                    bytes::Buf::advance(front, written);
                    break;
                }
                written -= front.len();
                self.pieces.pop_front();
            }
        }
        Ok(())
    }
}

/// One write, which must take at least a byte within `patience`.
async fn progress(
    write: impl Future<Output = std::io::Result<usize>>,
    patience: Duration,
) -> std::io::Result<usize> {
    match tokio::time::timeout(patience, write).await {
        Ok(Ok(0)) => Err(std::io::ErrorKind::WriteZero.into()),
        Ok(written) => written,
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_leave_in_the_order_in_which_they_were_pushed() {
        let mut out = OutBuffer::default();
        let large: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        out.tail().extend_from_slice(b"head");
        out.push(Bytes::from(large.clone()));
        out.push(Bytes::from_static(b"tail"));
        let mut more = OutBuffer::default();
        more.push(Bytes::from(large.clone()));
        out.append(&mut more);
        assert!(more.is_empty());
        let expected = [b"head", large.as_slice(), b"tail", large.as_slice()].concat();
        assert_eq!(out.len(), expected.len());
        let mut sink = Vec::new();
        out.write_to(&mut sink, Duration::from_secs(1)).await.unwrap();
        assert_eq!(sink, expected);
        assert!(out.is_empty());
        assert_eq!(out.len(), 0);
    }
}
