//! The stored record, versions 1 and 2: what the commit log holds and what consumers receive.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | total size |
//! | 4 | magic: `DAA320A7` (V1), `DAA320AB` (V2), `CBD43194` (blank: rest of a segment) |
//! | 4 | CRC32 of the stored body, 31 bits |
//! | 4, 4 | queue id, flag |
//! | 8, 8 | queue offset, physical offset |
//! | 4, 8 | sysFlag, born timestamp (ms) |
//! | 8 or 20 | born host: 4 or 16 address bytes (sysFlag 0x10), port as 4 bytes |
//! | 8 | store timestamp (ms) |
//! | 8 or 20 | store host, likewise (sysFlag 0x20) |
//! | 4, 8 | reconsume times, prepared transaction offset |
//! | 4 + n | body |
//! | 1 + n (V1), 2 + n (V2) | topic; V2 exactly when the topic is longer than 127 bytes |
//! | 2 + n | properties |
//!
//! A [`RecordView`] exists only over bytes whose inner lengths add up to the total size.

use crate::properties::{MAX_PROPERTIES_LEN, Properties};
use crate::reader::Reader;
use crate::sys_flag;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Magic of a record with a 1-byte topic length.
pub const MAGIC_V1: i32 = 0xDAA3_20A7_u32 as i32;
/// Magic of a record with a 2-byte topic length.
pub const MAGIC_V2: i32 = 0xDAA3_20AB_u32 as i32;
/// Magic of the blank at the end of a segment.
pub const BLANK_MAGIC: i32 = 0xCBD4_3194_u32 as i32;
/// Bytes that a blank needs at least: its size and its magic.
pub const MIN_BLANK: usize = 8;
/// Longest topic of a V1 record in bytes.
pub const MAX_TOPIC_LEN_V1: usize = 127;
/// Longest topic of a V2 record that other readers accept, in bytes.
pub const MAX_TOPIC_LEN_V2: usize = i16::MAX as usize;

const QUEUE_OFFSET_AT: usize = 20;
const PHYSICAL_OFFSET_AT: usize = 28;
const BORN_HOST_AT: usize = 48;
const FIXED_LEN: usize = 4 * 3 + 4 * 2 + 8 * 2 + 4 + 8 + 8 + 4 + 8 + 4 + 2;

/// Why bytes are not a record, or fields cannot become one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The size word is negative, too small, or larger than what is there.
    #[error("record size {size} does not fit the {available} bytes that are there")]
    Size {
        /// The size word.
        size: i32,
        /// Bytes available from the record's start.
        available: usize,
    },
    /// The magic is none of the three known ones.
    #[error("unknown magic {0:#010x}")]
    Magic(i32),
    /// A length inside does not add up.
    #[error("field {field} has length {length}, which does not fit the record")]
    Length {
        /// Name of the field.
        field: &'static str,
        /// The length found.
        length: i64,
    },
    /// A field is longer than the format allows.
    #[error("{field} has {length} bytes, the limit is {limit}")]
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The topic is not UTF-8.
    #[error("the topic is not valid UTF-8")]
    Topic,
}

/// The format version of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordVersion {
    /// Topic length in one byte.
    V1,
    /// Topic length in two bytes.
    V2,
}

/// What an encoder needs. Queue offset, physical offset and store timestamp are set later with
/// [`set_position`], so that encoding and CRC can happen before any lock.
#[derive(Debug, Clone, Copy)]
pub struct RecordFields<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue id.
    pub queue_id: i32,
    /// The application's flag.
    pub flag: i32,
    /// System flag; the two address-family bits are set by the encoder.
    pub sys_flag: i32,
    /// When the producer made the message (ms).
    pub born_timestamp: i64,
    /// Where the producer is.
    pub born_host: SocketAddr,
    /// Where the broker is.
    pub store_host: SocketAddr,
    /// How often the message was retried.
    pub reconsume_times: i32,
    /// Commit log offset of the half message, else 0.
    pub prepared_transaction_offset: i64,
    /// Body as stored (maybe compressed).
    pub body: &'a [u8],
    /// Encoded properties.
    pub properties: &'a [u8],
}

fn host_len(host: &SocketAddr) -> usize {
    if host.ip().to_canonical().is_ipv4() { 8 } else { 20 }
}

/// Length in bytes that [`encode`] appends for `fields`.
#[must_use]
pub fn encoded_len(fields: &RecordFields<'_>) -> usize {
    let topic_word = if fields.topic.len() > MAX_TOPIC_LEN_V1 { 2 } else { 1 };
    FIXED_LEN
        + host_len(&fields.born_host)
        + host_len(&fields.store_host)
        + fields.body.len()
        + topic_word
        + fields.topic.len()
        + fields.properties.len()
}

fn put_host(out: &mut Vec<u8>, host: &SocketAddr) {
    match host.ip().to_canonical() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
    out.extend_from_slice(&i32::from(host.port()).to_be_bytes());
}

/// Appends the record to `out`, with zero queue offset, physical offset and store timestamp.
///
/// # Errors
/// [`RecordError::TooLong`] for a topic over 32767 bytes, properties over 32767 bytes or a record
/// over 2 GiB; `out` is unchanged then.
pub fn encode(fields: &RecordFields<'_>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    let too_long = |field, length, limit| Err(RecordError::TooLong { field, length, limit });
    if fields.topic.len() > MAX_TOPIC_LEN_V2 {
        return too_long("topic", fields.topic.len(), MAX_TOPIC_LEN_V2);
    }
    if fields.properties.len() > MAX_PROPERTIES_LEN {
        return too_long("properties", fields.properties.len(), MAX_PROPERTIES_LEN);
    }
    let total = encoded_len(fields);
    let (Ok(total_word), Ok(body_word)) = (i32::try_from(total), i32::try_from(fields.body.len()))
    else {
        return too_long("record", total, i32::MAX as usize);
    };
    let v2 = fields.topic.len() > MAX_TOPIC_LEN_V1;
    let mut sys_flag = fields.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6);
    if host_len(&fields.born_host) == 20 {
        sys_flag |= sys_flag::BORN_HOST_V6;
    }
    if host_len(&fields.store_host) == 20 {
        sys_flag |= sys_flag::STORE_HOST_V6;
    }
    out.reserve(total);
    out.extend_from_slice(&total_word.to_be_bytes());
    out.extend_from_slice(&(if v2 { MAGIC_V2 } else { MAGIC_V1 }).to_be_bytes());
    out.extend_from_slice(&body_crc(fields.body).to_be_bytes());
    out.extend_from_slice(&fields.queue_id.to_be_bytes());
    out.extend_from_slice(&fields.flag.to_be_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&sys_flag.to_be_bytes());
    out.extend_from_slice(&fields.born_timestamp.to_be_bytes());
    put_host(out, &fields.born_host);
    out.extend_from_slice(&[0; 8]);
    put_host(out, &fields.store_host);
    out.extend_from_slice(&fields.reconsume_times.to_be_bytes());
    out.extend_from_slice(&fields.prepared_transaction_offset.to_be_bytes());
    out.extend_from_slice(&body_word.to_be_bytes());
    out.extend_from_slice(fields.body);
    // Both casts are exact: the lengths were checked above.
    if v2 {
        out.extend_from_slice(&(fields.topic.len() as u16).to_be_bytes());
    } else {
        out.push(fields.topic.len() as u8);
    }
    out.extend_from_slice(fields.topic.as_bytes());
    out.extend_from_slice(&(fields.properties.len() as u16).to_be_bytes());
    out.extend_from_slice(fields.properties);
    Ok(())
}

/// The stored checksum of a body: CRC32 without its top bit.
#[must_use]
pub fn body_crc(body: &[u8]) -> i32 {
    (crc32fast::hash(body) & 0x7FFF_FFFF) as i32
}

/// Writes the three fields that are known only under the append lock into an encoded record.
/// Bytes that are too short for a record are left alone.
pub fn set_position(
    record: &mut [u8],
    queue_offset: i64,
    physical_offset: i64,
    store_timestamp: i64,
) {
    let born_host_len = match record.get(36..40) {
        Some(&[.., flags]) if i32::from(flags) & sys_flag::BORN_HOST_V6 != 0 => 20,
        _ => 8,
    };
    for (at, value) in [
        (QUEUE_OFFSET_AT, queue_offset),
        (PHYSICAL_OFFSET_AT, physical_offset),
        (BORN_HOST_AT + born_host_len, store_timestamp),
    ] {
        if let Some(place) = record.get_mut(at..at + 8) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }
}

/// The head of a blank that covers `remaining` bytes up to a segment's end.
#[must_use]
pub fn encode_blank(remaining: i32) -> [u8; MIN_BLANK] {
    let mut head = [0; MIN_BLANK];
    let (size, magic) = head.split_at_mut(4);
    size.copy_from_slice(&remaining.to_be_bytes());
    magic.copy_from_slice(&BLANK_MAGIC.to_be_bytes());
    head
}

/// What stands at a position of the log.
#[derive(Debug, Clone, Copy)]
pub enum LogEntry<'a> {
    /// A record.
    Record(RecordView<'a>),
    /// The rest of the segment is unused; go on with the next one.
    Blank {
        /// The blank's size word: bytes up to the segment's end.
        size: usize,
    },
    /// The size word is 0: nothing was ever written here.
    Empty,
}

/// Reads the entry at the start of `bytes`, which reach to the end of what is readable.
///
/// # Errors
/// [`RecordError`] when the bytes are neither a record, a blank nor empty.
pub fn parse_entry(bytes: &[u8]) -> Result<LogEntry<'_>, RecordError> {
    let mut reader = Reader::new(bytes);
    let (Some(size), Some(magic)) = (reader.i32(), reader.i32()) else {
        // Fewer than 8 bytes can only be the unused rest of a segment.
        return if bytes.iter().all(|byte| *byte == 0) {
            Ok(LogEntry::Empty)
        } else {
            Err(RecordError::Size { size: 0, available: bytes.len() })
        };
    };
    if size == 0 {
        return Ok(LogEntry::Empty);
    }
    let len = usize::try_from(size)
        .ok()
        .filter(|len| *len >= MIN_BLANK && *len <= bytes.len())
        .ok_or(RecordError::Size { size, available: bytes.len() })?;
    match magic {
        BLANK_MAGIC => Ok(LogEntry::Blank { size: len }),
        MAGIC_V1 | MAGIC_V2 => {
            let record = bytes.get(..len).unwrap_or_default();
            RecordView::parse(record).map(LogEntry::Record)
        }
        other => Err(RecordError::Magic(other)),
    }
}

/// A record over the bytes that hold exactly it.
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    bytes: &'a [u8],
    version: RecordVersion,
    body_crc: i32,
    queue_id: i32,
    flag: i32,
    queue_offset: i64,
    physical_offset: i64,
    sys_flag: i32,
    born_timestamp: i64,
    born_host: SocketAddr,
    store_timestamp: i64,
    store_host: SocketAddr,
    reconsume_times: i32,
    prepared_transaction_offset: i64,
    body: &'a [u8],
    topic: &'a str,
    properties: &'a [u8],
}

fn read_host(reader: &mut Reader<'_>, v6: bool) -> Option<SocketAddr> {
    let ip = if v6 {
        let octets: [u8; 16] = reader.take(16)?.try_into().ok()?;
        IpAddr::V6(Ipv6Addr::from(octets))
    } else {
        let octets: [u8; 4] = reader.take(4)?.try_into().ok()?;
        IpAddr::V4(Ipv4Addr::from(octets))
    };
    // Ports are 16 bits; a larger word is foreign data and is cut as Java's cast does.
    Some(SocketAddr::new(ip, reader.i32()? as u16))
}

fn read_block<'a>(
    reader: &mut Reader<'a>,
    field: &'static str,
    length: Option<i64>,
) -> Result<&'a [u8], RecordError> {
    let length = length.ok_or(RecordError::Length { field, length: -1 })?;
    usize::try_from(length)
        .ok()
        .and_then(|count| reader.take(count))
        .ok_or(RecordError::Length { field, length })
}

impl<'a> RecordView<'a> {
    /// Reads a record that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`RecordError`] when a length inside does not add up, the magic is unknown or the topic is
    /// not UTF-8.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let mut r = Reader::new(bytes);
        let short = || RecordError::Length { field: "fixed part", length: bytes.len() as i64 };
        let size = r.i32().ok_or_else(short)?;
        if usize::try_from(size).ok() != Some(bytes.len()) {
            return Err(RecordError::Size { size, available: bytes.len() });
        }
        let version = match r.i32().ok_or_else(short)? {
            MAGIC_V1 => RecordVersion::V1,
            MAGIC_V2 => RecordVersion::V2,
            other => return Err(RecordError::Magic(other)),
        };
        let mut fixed = || {
            let (body_crc, queue_id, flag) = (r.i32()?, r.i32()?, r.i32()?);
            let (queue_offset, physical_offset) = (r.i64()?, r.i64()?);
            let (sys_flag, born_timestamp) = (r.i32()?, r.i64()?);
            let born_host = read_host(&mut r, sys_flag & sys_flag::BORN_HOST_V6 != 0)?;
            let store_timestamp = r.i64()?;
            let store_host = read_host(&mut r, sys_flag & sys_flag::STORE_HOST_V6 != 0)?;
            Some(Self {
                bytes,
                version,
                body_crc,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times: r.i32()?,
                prepared_transaction_offset: r.i64()?,
                body: &[],
                topic: "",
                properties: &[],
            })
        };
        let mut view = fixed().ok_or_else(short)?;
        let body_len = r.i32().map(i64::from);
        view.body = read_block(&mut r, "body", body_len)?;
        let topic_len = match version {
            RecordVersion::V1 => r.u8().map(i64::from),
            RecordVersion::V2 => r.i16().map(i64::from),
        };
        let topic = read_block(&mut r, "topic", topic_len)?;
        view.topic = std::str::from_utf8(topic).map_err(|_| RecordError::Topic)?;
        let properties_len = r.i16().map(i64::from);
        view.properties = read_block(&mut r, "properties", properties_len)?;
        if r.is_empty() {
            Ok(view)
        } else {
            Err(RecordError::Length { field: "record", length: r.remaining() as i64 })
        }
    }

    /// The record's bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// Length of the record in bytes.
    #[must_use]
    pub fn total_size(&self) -> usize {
        self.bytes.len()
    }
    /// Format version.
    #[must_use]
    pub fn version(&self) -> RecordVersion {
        self.version
    }
    /// Stored checksum of the body.
    #[must_use]
    pub fn body_crc(&self) -> i32 {
        self.body_crc
    }
    /// Queue id.
    #[must_use]
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }
    /// The application's flag.
    #[must_use]
    pub fn flag(&self) -> i32 {
        self.flag
    }
    /// Position in the queue.
    #[must_use]
    pub fn queue_offset(&self) -> i64 {
        self.queue_offset
    }
    /// Position in the commit log.
    #[must_use]
    pub fn physical_offset(&self) -> i64 {
        self.physical_offset
    }
    /// System flag.
    #[must_use]
    pub fn sys_flag(&self) -> i32 {
        self.sys_flag
    }
    /// When the producer made the message (ms).
    #[must_use]
    pub fn born_timestamp(&self) -> i64 {
        self.born_timestamp
    }
    /// Where the producer was.
    #[must_use]
    pub fn born_host(&self) -> SocketAddr {
        self.born_host
    }
    /// When the broker stored the message (ms).
    #[must_use]
    pub fn store_timestamp(&self) -> i64 {
        self.store_timestamp
    }
    /// Where the broker was.
    #[must_use]
    pub fn store_host(&self) -> SocketAddr {
        self.store_host
    }
    /// How often the message was retried.
    #[must_use]
    pub fn reconsume_times(&self) -> i32 {
        self.reconsume_times
    }
    /// Commit log offset of the half message, else 0.
    #[must_use]
    pub fn prepared_transaction_offset(&self) -> i64 {
        self.prepared_transaction_offset
    }
    /// Body as stored.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
    /// Topic.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        self.topic
    }
    /// Properties.
    #[must_use]
    pub fn properties(&self) -> Properties<'a> {
        Properties::new(self.properties)
    }
    /// Whether the body still has its checksum.
    #[must_use]
    pub fn check_crc(&self) -> bool {
        body_crc(self.body) == self.body_crc
    }
    /// The record's fields, to encode a changed copy.
    #[must_use]
    pub fn fields(&self) -> RecordFields<'a> {
        RecordFields {
            topic: self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp: self.born_timestamp,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: self.prepared_transaction_offset,
            body: self.body,
            properties: self.properties,
        }
    }
}

impl std::fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordView")
            .field("topic", &self.topic)
            .field("queue_id", &self.queue_id)
            .field("queue_offset", &self.queue_offset)
            .field("physical_offset", &self.physical_offset)
            .field("total_size", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
