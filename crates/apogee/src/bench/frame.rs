//! Send frames that are encoded once and then only patched.
//!
//! A template knows where in its bytes the changing parts stand:
//!
//! | part | JSON header | binary header |
//! | --- | --- | --- |
//! | opaque | ten digits after `"opaque":` | 4 bytes at offset 13 |
//! | born time | 13 digits, a header field | the same |
//! | unique key | the last 12 of 32 hexadecimal digits, one for each message | the same |
//! | send time (latency) | the first 16 digits of the body | the same |
//!
//! Always holds: every patch has the length of what it replaces, so no length in the frame changes.

use apogee_model::batch::{self, BatchMessage};
use apogee_model::properties::append_pair;
use apogee_protocol::frame::FrameError;
use apogee_protocol::headers::SendMessageHeader;
use apogee_protocol::{ExtFields, RemotingCommand, RequestCode, SerializeType, Str};
use bytes::BytesMut;

/// Opaques count up from here, so that they always have ten digits.
pub(crate) const FIRST_OPAQUE: u32 = 1_000_000_000;
const BORN_PLACE: &str = "1234567890123";
const KEY_TAIL: usize = 12;
const TIME_DIGITS: usize = 16;

/// What the frames of a run have in common.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) topic: String,
    pub(crate) size: usize,
    pub(crate) batch: usize,
    pub(crate) serialize: SerializeType,
    pub(crate) wait_store_ok: bool,
}

/// A frame to be patched and sent again and again.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    opaque_at: usize,
    binary: bool,
    born_at: usize,
    key_tails: Vec<usize>,
    body_at: usize,
}

impl Template {
    /// The frame of `shape` for one queue. `sender` tells the unique keys of senders apart.
    pub(crate) fn new(shape: &Shape, queue_id: i32, sender: u32) -> Result<Self, String> {
        let key = format!("7F000001{:04X}{sender:08X}{:012X}", std::process::id() & 0xFFFF, 0);
        let mut properties = Vec::new();
        append_pair(&mut properties, "UNIQ_KEY", &key);
        append_pair(&mut properties, "WAIT", if shape.wait_store_ok { "true" } else { "false" });
        let payload: Vec<u8> = (b'a'..=b'z').cycle().take(shape.size).collect();
        let (code, body) = if shape.batch > 1 {
            (RequestCode::SEND_BATCH_MESSAGE, batch_body(shape.batch, &payload, &properties)?)
        } else {
            (RequestCode::SEND_MESSAGE_V2, payload)
        };
        let body_len = body.len();
        let header = SendMessageHeader {
            producer_group: "apogee-bench".into(),
            topic: shape.topic.as_str().into(),
            default_topic: crate::requests::AUTO_CREATE_TOPIC.into(),
            default_topic_queue_nums: crate::requests::NEW_TOPIC_QUEUES,
            queue_id,
            born_timestamp: BORN_PLACE.parse().unwrap_or_default(),
            properties: Some(Str::from(String::from_utf8_lossy(&properties).into_owned())),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            batch: Some(shape.batch > 1),
            ..SendMessageHeader::default()
        };
        let mut command = RemotingCommand::with_ext(code.0, ExtFields::of(&header)).body(body);
        command.serialize = shape.serialize;
        command.opaque = FIRST_OPAQUE.cast_signed();
        let mut out = BytesMut::new();
        command.encode_into(&mut out).map_err(|error: FrameError| error.to_string())?;
        Self::locate(out.to_vec(), &key, body_len)
            .ok_or_else(|| "the send frame cannot be patched".to_owned())
    }

    fn locate(bytes: Vec<u8>, key: &str, body_len: usize) -> Option<Self> {
        let binary = *bytes.get(4)? == 1;
        let opaque_at =
            if binary { 13 } else { find(&bytes, b"\"opaque\":", 0)? + b"\"opaque\":".len() };
        let born_at = find(&bytes, BORN_PLACE.as_bytes(), 0)?;
        let mut key_tails = Vec::new();
        let mut from = 0;
        while let Some(at) = find(&bytes, key.as_bytes(), from) {
            from = at + key.len();
            key_tails.push(from - KEY_TAIL);
        }
        let body_at = bytes.len().checked_sub(body_len)?;
        (!key_tails.is_empty()).then_some(Self {
            bytes,
            opaque_at,
            binary,
            born_at,
            key_tails,
            body_at,
        })
    }

    /// Bytes of a frame.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the frame; `key` is the number of the next unique key and is moved on.
    pub(crate) fn append(&mut self, out: &mut Vec<u8>, opaque: u32, born_ms: u64, key: &mut u64) {
        if self.binary {
            self.patch(self.opaque_at, &opaque.to_be_bytes());
        } else {
            self.patch(self.opaque_at, &decimal::<10>(u64::from(opaque)));
        }
        self.patch(self.born_at, &decimal::<13>(born_ms));
        for at in 0..self.key_tails.len() {
            let Some(place) = self.key_tails.get(at).copied() else { break };
            // Eight digits of time, four of a counter: as the original's clients.
            let tail = (born_ms & 0xFFFF_FFFF) << 16 | (*key & 0xFFFF);
            self.patch(place, &hexadecimal::<KEY_TAIL>(tail));
            *key = key.wrapping_add(1);
        }
        out.extend_from_slice(&self.bytes);
    }

    /// Writes the send time to the start of the body of the next frame (at least 16 bytes).
    pub(crate) fn stamp(&mut self, micros: u64) {
        self.patch(self.body_at, &hexadecimal::<TIME_DIGITS>(micros));
    }

    fn patch(&mut self, at: usize, new: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + new.len()) {
            place.copy_from_slice(new);
        }
    }
}

/// The send time at the start of a body.
pub(crate) fn read_stamp(body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body.get(..TIME_DIGITS)?).ok()?;
    u64::from_str_radix(text, 16).ok()
}

fn batch_body(count: usize, payload: &[u8], properties: &[u8]) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    for _ in 0..count {
        let message = BatchMessage { flag: 0, body: payload, properties };
        if !batch::append(&mut body, &message) {
            return Err("a batch of this many messages of this size is too large".to_owned());
        }
    }
    Ok(body)
}

fn find(bytes: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let found = bytes.get(from..)?.windows(what.len()).position(|window| window == what)?;
    Some(from + found)
}

fn decimal<const N: usize>(mut value: u64) -> [u8; N] {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    digits
}

fn hexadecimal<const N: usize>(mut value: u64) -> [u8; N] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS.get((value & 15) as usize).copied().unwrap_or(b'0');
        value >>= 4;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use apogee_protocol::split_frame;

    fn shape(batch: usize, serialize: SerializeType) -> Shape {
        Shape { topic: "T".to_owned(), size: 20, batch, serialize, wait_store_ok: true }
    }

    fn read(out: &[u8]) -> RemotingCommand {
        let mut bytes = BytesMut::from(out);
        let frame = split_frame(&mut bytes, 1 << 24).unwrap().unwrap();
        assert!(bytes.is_empty());
        RemotingCommand::decode(frame).unwrap()
    }

    #[test]
    fn a_patched_frame_reads_back_with_the_new_parts_in_both_header_forms() {
        for serialize in [SerializeType::Json, SerializeType::RocketMq] {
            let mut template = Template::new(&shape(1, serialize), 3, 0xABCD).unwrap();
            template.stamp(0x1F);
            let (mut out, mut key) = (Vec::new(), 5);
            template.append(&mut out, FIRST_OPAQUE + 77, 1_796_053_796_061, &mut key);
            let command = read(&out);
            assert_eq!((command.opaque, command.code), (1_000_000_077, 310));
            let header: SendMessageHeader = command.header().unwrap();
            assert_eq!((header.born_timestamp, header.queue_id), (1_796_053_796_061, 3));
            let properties = header.properties.unwrap();
            let properties = apogee_model::Properties::new(properties.as_bytes());
            let id = properties.get("UNIQ_KEY").unwrap();
            assert_eq!((id.len(), &id[28..], key), (32, "0005", 6));
            assert_eq!(properties.get("WAIT"), Some("true"));
            assert_eq!((command.body.len(), read_stamp(&command.body)), (20, Some(0x1F)));
        }
    }

    #[test]
    fn every_message_of_a_batch_has_a_key_of_its_own() {
        let mut template = Template::new(&shape(3, SerializeType::Json), 0, 1).unwrap();
        let (mut out, mut key) = (Vec::new(), 0);
        template.append(&mut out, FIRST_OPAQUE, 1_796_053_796_061, &mut key);
        let command = read(&out);
        assert_eq!(command.code, 320);
        let messages = batch::decode(&command.body).unwrap();
        let ids: std::collections::BTreeSet<_> = messages
            .iter()
            .map(|message| {
                apogee_model::Properties::new(message.properties).get("UNIQ_KEY").unwrap()
            })
            .collect();
        assert_eq!((messages.len(), ids.len()), (3, 3));
    }
}
