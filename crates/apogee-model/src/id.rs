//! Message ids: the offset id that a broker makes and the unique id that a client makes.
//!
//! | id | parts (hex, upper case) |
//! | --- | --- |
//! | offset id | store host address (4 or 16 bytes), port (4), commit log offset (8) |
//! | unique id | address (4 or 16), pid (2), process hash (4), ms since the month began (4), counter (2) |

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The id by which a broker finds a message again: where it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetId {
    /// The broker's address.
    pub host: SocketAddr,
    /// Commit log offset.
    pub physical_offset: i64,
}

/// Why a text is not an offset id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an offset message id: 32 or 56 hexadecimal digits are expected")]
pub struct IdError(String);

impl OffsetId {
    /// Parses 32 (IPv4) or 56 (IPv6) hexadecimal digits.
    ///
    /// # Errors
    /// [`IdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let error = || IdError(text.chars().take(64).collect());
        let bytes = from_hex(text).ok_or_else(error)?;
        let (address, rest) = match bytes.len() {
            16 => bytes.split_at_checked(4),
            28 => bytes.split_at_checked(16),
            _ => None,
        }
        .ok_or_else(error)?;
        let ip = if let Ok(v4) = <[u8; 4]>::try_from(address) {
            IpAddr::V4(Ipv4Addr::from(v4))
        } else {
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(address).map_err(|_| error())?))
        };
        let (port, offset) = rest.split_at_checked(4).ok_or_else(error)?;
        let port = i32::from_be_bytes(port.try_into().map_err(|_| error())?);
        let offset = i64::from_be_bytes(offset.try_into().map_err(|_| error())?);
        let port = u16::try_from(port).map_err(|_| error())?;
        Ok(Self { host: SocketAddr::new(ip, port), physical_offset: offset })
    }

    /// Appends the id to `out`.
    pub fn write_to(&self, out: &mut String) {
        match self.host.ip().to_canonical() {
            IpAddr::V4(ip) => push_hex(out, &ip.octets()),
            IpAddr::V6(ip) => push_hex(out, &ip.octets()),
        }
        push_hex(out, &u32::from(self.host.port()).to_be_bytes());
        push_hex(out, &self.physical_offset.to_be_bytes());
    }
}

impl std::fmt::Display for OffsetId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::with_capacity(56);
        self.write_to(&mut text);
        f.write_str(&text)
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            out.push(char::from(HEX.get(usize::from(nibble)).copied().unwrap_or(b'0')));
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    // No more than the longest id is looked at, whatever was sent.
    if !text.len().is_multiple_of(2) || text.len() > 64 {
        return None;
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| {
            let digit = |at: usize| pair.get(at).and_then(|byte| char::from(*byte).to_digit(16));
            u8::try_from(digit(0)? * 16 + digit(1)?).ok()
        })
        .collect()
}

/// Makes unique ids of one process. Not a clock: the caller says what time it is.
#[derive(Debug)]
pub struct UniqueIdMaker {
    prefix: String,
    counter: std::sync::atomic::AtomicU16,
}

impl UniqueIdMaker {
    /// `address` is the client's own; `pid` and `process_hash` tell processes on it apart.
    #[must_use]
    pub fn new(address: IpAddr, pid: u32, process_hash: u32) -> Self {
        let mut prefix = String::with_capacity(44);
        match address {
            IpAddr::V4(ip) => push_hex(&mut prefix, &ip.octets()),
            IpAddr::V6(ip) => push_hex(&mut prefix, &ip.octets()),
        }
        let _ = write!(prefix, "{:04X}{:08X}", pid & 0xFFFF, process_hash);
        Self { prefix, counter: std::sync::atomic::AtomicU16::new(0) }
    }

    /// The next id; `ms_in_month` counts from the local month's first day.
    pub fn next(&self, ms_in_month: u32) -> String {
        let counter = self.counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut id = String::with_capacity(self.prefix.len() + 12);
        id.push_str(&self.prefix);
        let _ = write!(id, "{ms_in_month:08X}{counter:04X}");
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_id_of_v4_has_32_digits_and_reads_back() {
        let id = OffsetId { host: "127.0.0.1:10911".parse().unwrap(), physical_offset: 4310 };
        assert_eq!(id.to_string(), "7F00000100002A9F00000000000010D6");
        assert_eq!(OffsetId::parse(&id.to_string()), Ok(id));
    }

    #[test]
    fn offset_id_of_v6_has_56_digits_and_reads_back() {
        let id = OffsetId { host: "[::1]:10911".parse().unwrap(), physical_offset: 1 };
        assert_eq!(id.to_string().len(), 56);
        assert_eq!(OffsetId::parse(&id.to_string()), Ok(id));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "x", "7F00000100002A9F00000000000010D", "7F00000100002A9F00000000000010DG", "语语"]
        {
            assert!(OffsetId::parse(text).is_err(), "{text:?}");
        }
        assert!(OffsetId::parse(&"A".repeat(1_000_000)).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn unique_ids_have_32_digits_and_differ() {
        let maker = UniqueIdMaker::new("10.0.0.1".parse().unwrap(), 70_000, 0xABCD);
        let (first, second) = (maker.next(5), maker.next(5));
        assert_eq!(first, "0A00000111700000ABCD000000050000");
        assert_ne!(first, second);
    }
}
