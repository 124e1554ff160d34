//! Body compression as the clients do it: zlib, LZ4 frames and zstd, with a cap on what comes out.

use crate::sys_flag;
use std::io::{Read, Write};

/// A compression algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// zlib; the only one that clients before 5.0 know.
    Zlib,
    /// LZ4 frame with independent blocks (linked ones are unreadable to Java).
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Why a body could not be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    /// The compressed data is damaged.
    #[error("the {algorithm:?} body is damaged: {source}")]
    Damaged {
        /// Which algorithm.
        algorithm: Compression,
        /// What the decoder said.
        source: std::io::Error,
    },
    /// More than the cap would come out.
    #[error("the body unpacks to more than the limit of {limit} bytes")]
    TooLarge {
        /// The cap in bytes.
        limit: usize,
    },
    /// The algorithm bits name none of the three.
    #[error("sysFlag {0:#x} names an unknown compression algorithm")]
    Unknown(i32),
}

impl Compression {
    /// The algorithm of a message, or `None` if its body is plain.
    ///
    /// # Errors
    /// [`CompressionError::Unknown`] for bits that no version uses.
    pub fn of_sys_flag(flag: i32) -> Result<Option<Self>, CompressionError> {
        if flag & sys_flag::COMPRESSED == 0 {
            return Ok(None);
        }
        match flag & sys_flag::COMPRESSION_TYPE_MASK {
            0 | sys_flag::COMPRESSION_ZLIB => Ok(Some(Self::Zlib)),
            sys_flag::COMPRESSION_LZ4 => Ok(Some(Self::Lz4)),
            sys_flag::COMPRESSION_ZSTD => Ok(Some(Self::Zstd)),
            _ => Err(CompressionError::Unknown(flag)),
        }
    }

    /// The sysFlag bits that say a body is packed with this algorithm.
    #[must_use]
    pub fn sys_flag(self) -> i32 {
        sys_flag::COMPRESSED
            | match self {
                Self::Zlib => sys_flag::COMPRESSION_ZLIB,
                Self::Lz4 => sys_flag::COMPRESSION_LZ4,
                Self::Zstd => sys_flag::COMPRESSION_ZSTD,
            }
    }

    /// Packs `body` at a level as the clients count it (1 to 9, 5 is usual).
    ///
    /// # Errors
    /// [`CompressionError::Damaged`] if the encoder fails (out of memory).
    pub fn compress(self, body: &[u8], level: u32) -> Result<Vec<u8>, CompressionError> {
        let damaged = |source| CompressionError::Damaged { algorithm: self, source };
        match self {
            Self::Zlib => {
                let level = flate2::Compression::new(level.min(9));
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(body).and_then(|()| encoder.finish()).map_err(damaged)
            }
            Self::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(body).map_err(damaged)?;
                encoder.finish().map_err(|error| damaged(std::io::Error::other(error)))
            }
            Self::Zstd => zstd::bulk::compress(body, level as i32).map_err(damaged),
        }
    }

    /// Unpacks `body`; at most `limit` bytes may come out.
    ///
    /// # Errors
    /// [`CompressionError`] for damaged data or a larger result.
    pub fn decompress(self, body: &[u8], limit: usize) -> Result<Vec<u8>, CompressionError> {
        let damaged = |source| CompressionError::Damaged { algorithm: self, source };
        let mut out = Vec::new();
        let cap = limit as u64 + 1;
        match self {
            Self::Zlib => flate2::read::ZlibDecoder::new(body).take(cap).read_to_end(&mut out),
            Self::Lz4 => lz4_flex::frame::FrameDecoder::new(body).take(cap).read_to_end(&mut out),
            Self::Zstd => zstd::stream::read::Decoder::new(body)
                .and_then(|decoder| decoder.take(cap).read_to_end(&mut out)),
        }
        .map_err(damaged)?;
        if out.len() > limit {
            return Err(CompressionError::TooLarge { limit });
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::Zlib, Compression::Lz4, Compression::Zstd];

    #[test]
    fn every_algorithm_reads_back_what_it_packed() {
        let body = b"abc".repeat(3000);
        for algorithm in ALL {
            let packed = algorithm.compress(&body, 5).unwrap();
            assert!(packed.len() < body.len());
            assert_eq!(algorithm.decompress(&packed, 9000).unwrap(), body);
            assert_eq!(Compression::of_sys_flag(algorithm.sys_flag()).unwrap(), Some(algorithm));
        }
    }

    #[test]
    fn a_body_that_would_grow_past_the_limit_is_refused() {
        for algorithm in ALL {
            let packed = algorithm.compress(&vec![0; 1_000_000], 5).unwrap();
            let error = algorithm.decompress(&packed, 999_999).unwrap_err();
            assert!(matches!(error, CompressionError::TooLarge { limit: 999_999 }));
        }
    }

    #[test]
    fn damaged_bodies_are_errors() {
        for algorithm in ALL {
            assert!(algorithm.decompress(b"not compressed at all", 1000).is_err());
        }
    }

    #[test]
    fn old_clients_set_no_type_bits_and_mean_zlib() {
        assert_eq!(Compression::of_sys_flag(1).unwrap(), Some(Compression::Zlib));
        assert!(Compression::of_sys_flag(0x701).is_err());
    }
}
