//! A unit of a consume queue: where a message is.
//!
//! | bytes | field of a unit |
//! | --- | --- |
//! | 8 | commit log offset |
//! | 4 | size of the record |
//! | 8 | tags code: hash of the tag; delivery time in `SCHEDULE_TOPIC_XXXX`; or an ext address |
//!
//! A unit that stands for no message (before a queue's first message, or a gap) has offset 0, size
//! `0x7FFFFFFF`, tags code 0. Unused space is zero.

use crate::be::{get_i32, get_i64, put_i32, put_i64};
use crate::config::UNIT_SIZE;

/// Size word of a unit that stands for no message.
const FILLER_SIZE: i32 = 0x7FFF_FFFF;

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Commit log offset of the record.
    pub physical_offset: i64,
    /// Size of the record in bytes.
    pub size: i32,
    /// Tags code, delivery time or ext address.
    pub tags_code: i64,
}

impl Unit {
    pub(crate) const FILLER: Self = Self { physical_offset: 0, size: FILLER_SIZE, tags_code: 0 };

    /// Whether the unit stands for no message.
    #[must_use]
    pub fn is_filler(&self) -> bool {
        self.size == FILLER_SIZE && self.physical_offset == 0
    }

    /// Commit log offset behind the record (0 for a filler).
    pub(crate) fn end(&self) -> i64 {
        if self.is_filler() { 0 } else { self.physical_offset.saturating_add(i64::from(self.size)) }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.size > 0 && self.physical_offset >= 0
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; UNIT_SIZE];
        put_i64(&mut bytes, 0, self.physical_offset);
        put_i32(&mut bytes, 8, self.size);
        put_i64(&mut bytes, 12, self.tags_code);
        out.extend_from_slice(&bytes);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            physical_offset: get_i64(bytes, 0)?,
            size: get_i32(bytes, 8)?,
            tags_code: get_i64(bytes, 12)?,
        })
    }
}
