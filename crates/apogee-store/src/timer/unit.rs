//! The bytes of the timer log and of the timer wheel, as the original writes them (big endian).
//!
//! | bytes | field of a log unit (52) |
//! | --- | --- |
//! | 4 | size: 52 |
//! | 8 | position of the slot's unit before this one; -1 for the first |
//! | 4 | kind bits: 1 always, 2 to be rolled, 4 takes a message back |
//! | 8 | time of writing (ms, whole ticks) |
//! | 4 | slot time minus time of writing (ms) |
//! | 8, 4 | commit log offset and size of the waiting record |
//! | 4 | hash of the real topic |
//! | 8 | 0 |
//!
//! | bytes | blank at the end of a log file |
//! | --- | --- |
//! | 4 | bytes up to the file's end |
//! | 8 | 0 |
//! | 4 | magic `BBCCDDEE ^ 70188442` |
//!
//! | bytes | wheel slot (32) |
//! | --- | --- |
//! | 8 | time in ticks |
//! | 8, 8 | positions of the slot's first and last unit |
//! | 4 | waiting messages (one less for each message that takes one back) |
//! | 4 | 0 |
//!
//! Pure functions; nothing here touches a file.

use crate::be::{get_i32, get_i64, put_i32, put_i64};

/// Bytes of a log unit.
pub(super) const UNIT_LEN: usize = 52;
/// Bytes of a blank's head.
pub(super) const BLANK_LEN: usize = 16;
/// Bytes of a wheel slot.
pub(super) const SLOT_LEN: usize = 32;
/// Position that stands for "none".
pub(super) const NOWHERE: i64 = -1;

const BLANK_MAGIC: i32 = (0xBBCC_DDEE_u32 ^ (1_880_681_586 + 8)) as i32;
const KIND_DEFAULT: i32 = 1;
const KIND_ROLL: i32 = 2;
const KIND_DELETE: i32 = 4;

/// A message that waits in the wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimerUnit {
    /// Position of the slot's unit before this one, or [`NOWHERE`].
    pub(super) previous: i64,
    /// Whether the message is written again at the slot's time, to wait on.
    pub(super) roll: bool,
    /// Whether it takes another message back.
    pub(super) delete: bool,
    /// When the unit was written (ms).
    pub(super) write_time: i64,
    /// Time of the slot (ms).
    pub(super) slot_time: i64,
    /// Commit log offset of the record.
    pub(super) offset: i64,
    /// Size of the record.
    pub(super) size: i32,
    /// Hash of the real topic, for the original's statistics.
    pub(super) topic_hash: i32,
}

/// What stands at a position of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Unit(TimerUnit),
    /// The rest of the file is unused.
    Blank,
    /// Neither a unit nor a blank.
    Invalid,
}

impl TimerUnit {
    /// Commit log position behind the record.
    pub(super) fn end(&self) -> i64 {
        self.offset.saturating_add(i64::from(self.size))
    }

    pub(super) fn encode(&self) -> [u8; UNIT_LEN] {
        let mut bytes = [0; UNIT_LEN];
        let kind = KIND_DEFAULT
            | if self.roll { KIND_ROLL } else { 0 }
            | if self.delete { KIND_DELETE } else { 0 };
        put_i32(&mut bytes, 0, UNIT_LEN as i32);
        put_i64(&mut bytes, 4, self.previous);
        put_i32(&mut bytes, 12, kind);
        put_i64(&mut bytes, 16, self.write_time);
        // A window is at most 7 days, which fits; further slots cannot be made.
        put_i32(&mut bytes, 24, (self.slot_time - self.write_time) as i32);
        put_i64(&mut bytes, 28, self.offset);
        put_i32(&mut bytes, 36, self.size);
        put_i32(&mut bytes, 40, self.topic_hash);
        bytes
    }
}

/// Reads the entry at the start of `bytes`.
pub(super) fn decode(bytes: &[u8]) -> Entry {
    let (Some(size), Some(kind)) = (get_i32(bytes, 0), get_i32(bytes, 12)) else {
        return Entry::Invalid;
    };
    if kind == BLANK_MAGIC {
        return Entry::Blank;
    }
    if size != UNIT_LEN as i32 || !(1..=15).contains(&kind) {
        return Entry::Invalid;
    }
    decode_unit(bytes, kind).map_or(Entry::Invalid, Entry::Unit)
}

fn decode_unit(bytes: &[u8], kind: i32) -> Option<TimerUnit> {
    let write_time = get_i64(bytes, 16)?;
    let unit = TimerUnit {
        previous: get_i64(bytes, 4)?,
        roll: kind & KIND_ROLL != 0,
        delete: kind & KIND_DELETE != 0,
        write_time,
        slot_time: write_time.checked_add(i64::from(get_i32(bytes, 24)?))?,
        offset: get_i64(bytes, 28)?,
        size: get_i32(bytes, 36)?,
        topic_hash: get_i32(bytes, 40)?,
    };
    (unit.offset >= 0 && unit.size > 0 && unit.slot_time >= 0).then_some(unit)
}

/// The head of a blank that reaches to the file's end.
pub(super) fn encode_blank(rest: usize) -> [u8; BLANK_LEN] {
    let mut bytes = [0; BLANK_LEN];
    put_i32(&mut bytes, 0, i32::try_from(rest).unwrap_or(i32::MAX));
    put_i32(&mut bytes, 12, BLANK_MAGIC);
    bytes
}

/// The units that wait for one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// Position of the first unit.
    pub(super) first: i64,
    /// Position of the last unit.
    pub(super) last: i64,
    /// Waiting messages, as the original counts them.
    pub(super) count: i32,
}

impl Slot {
    pub(super) fn encode(&self, tick: i64) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        put_i64(&mut bytes, 0, tick);
        put_i64(&mut bytes, 8, self.first);
        put_i64(&mut bytes, 16, self.last);
        put_i32(&mut bytes, 24, self.count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_read_back_as_written(
            previous in -1i64..1 << 40, roll: bool, delete: bool, write in 0i64..1 << 42,
            delay in -1000i64..604_800_000, offset in 0i64..1 << 50, size in 1i32..1 << 22, hash: i32,
        ) {
            let unit = TimerUnit {
                previous, roll, delete, write_time: write, slot_time: write + delay.max(-write),
                offset, size, topic_hash: hash,
            };
            prop_assert_eq!(decode(&unit.encode()), Entry::Unit(unit));
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_blank_is_told_from_a_unit_and_from_nothing() {
        assert_eq!(decode(&encode_blank(100)), Entry::Blank);
        assert_eq!(decode(&[0; UNIT_LEN]), Entry::Invalid);
    }
}
