//! `config/timercheck`: how far the timer has come, at the last save.
//!
//! | bytes | field |
//! | --- | --- |
//! | 8 | next tick to deliver (ms) |
//! | 8 | timer log position behind the last unit |
//! | 8 | offset in the timer queue up to which messages are in the log |
//! | 8 | the same of the master |
//! | 8, 8, 8 | data version: state version, time, counter |
//! | 8 | unused |
//! | 8 | `APOGTIM1`: what follows is there |
//! | 8 | commit log position before which nothing was delivered that the fields above leave open |
//! | 4 | CRC of the 64 commit log bytes before that position |
//! | 4 | CRC of the last unit of the timer log |
//! | 4 | CRC of everything above |
//!
//! The original reads and writes the first 56 bytes and keeps the file at 4096; when it has written
//! since, the CRC tells that the rest is out of date.

use crate::be::{get_i32, get_i64, put_i32, put_i64};

const LEN: usize = 4096;
const MARK_AT: usize = 64;
const MARK: i64 = i64::from_be_bytes(*b"APOGTIM1");
const CRC_AT: usize = 88;

/// What the original knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimerCheck {
    /// Next tick to deliver (ms).
    pub read_time: i64,
    /// Timer log position behind the last unit.
    pub log_end: i64,
    /// Offset in the timer queue from which messages are not in the log yet.
    pub queue_offset: i64,
    /// Data version: state.
    pub state_version: i64,
    /// Data version: time of the change (ms).
    pub timestamp: i64,
    /// Data version: changes.
    pub counter: i64,
}

/// What makes a start exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Anchor {
    /// Deliveries that the check leaves open stand in the commit log from here on.
    pub(super) delivered_from: i64,
    /// Both CRCs.
    pub(super) hash: i64,
}

impl TimerCheck {
    /// The 56 bytes that the original writes and that GET_TIMER_CHECK_POINT answers.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let fields = [
            self.read_time,
            self.log_end,
            self.queue_offset,
            // There is no other master than this broker.
            self.queue_offset,
            self.state_version,
            self.timestamp,
            self.counter,
        ];
        fields.iter().flat_map(|field| field.to_be_bytes()).collect()
    }

    pub(super) fn encode_file(&self, anchor: Anchor) -> Vec<u8> {
        let mut bytes = self.encode();
        bytes.resize(LEN, 0);
        put_i64(&mut bytes, MARK_AT, MARK);
        put_i64(&mut bytes, MARK_AT + 8, anchor.delivered_from);
        put_i64(&mut bytes, MARK_AT + 16, anchor.hash);
        let crc = crc32fast::hash(bytes.get(..CRC_AT).unwrap_or_default());
        put_i32(&mut bytes, CRC_AT, crc as i32);
        bytes
    }

    pub(super) fn decode_file(bytes: &[u8]) -> Option<(Self, Option<Anchor>)> {
        let field = |at: usize| get_i64(bytes, at * 8);
        let check = Self {
            read_time: field(0)?,
            log_end: field(1)?,
            queue_offset: field(2)?.min(field(3)?),
            state_version: field(4)?,
            timestamp: field(5)?,
            counter: field(6)?,
        };
        Some((check, Self::anchor(bytes)))
    }

    fn anchor(bytes: &[u8]) -> Option<Anchor> {
        let crc = crc32fast::hash(bytes.get(..CRC_AT)?) as i32;
        let valid = get_i64(bytes, MARK_AT)? == MARK && get_i32(bytes, CRC_AT)? == crc;
        let anchor = Anchor {
            delivered_from: get_i64(bytes, MARK_AT + 8)?,
            hash: get_i64(bytes, MARK_AT + 16)?,
        };
        valid.then_some(anchor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_anchor_counts_only_while_nobody_else_wrote_the_file() {
        let check =
            TimerCheck { read_time: 5, log_end: 104, queue_offset: 2, ..TimerCheck::default() };
        let anchor = Anchor { delivered_from: 77, hash: -3 };
        let mut bytes = check.encode_file(anchor);
        assert_eq!(bytes.len(), 4096);
        assert_eq!(TimerCheck::decode_file(&bytes), Some((check, Some(anchor))));
        bytes[7] = 6;
        let other = TimerCheck { read_time: 6, ..check };
        assert_eq!(TimerCheck::decode_file(&bytes), Some((other, None)));
        assert_eq!(TimerCheck::decode_file(&bytes[..40]), None);
    }
}
