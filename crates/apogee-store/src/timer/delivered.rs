//! Which timer messages the commit log shows as delivered.
//!
//! A delivered (or rolled) message keeps what tells it from others: real topic and queue, unique key,
//! out time, time of birth, body checksum. So a start can find in the log itself what was delivered
//! since the last save, whatever became of `timercheck`. Equal messages are counted, not merged.
//!
//! Memory: 24 bytes for each delivery since the last save; after the loss of `timercheck`, for
//! each delivery that the commit log still holds. Given back when the start is over.

use super::{ENQUEUE_KEY, ROLL_TIMES_KEY, TIMER_TOPIC};
use crate::error::StoreError;
use crate::message_store::MessageStore;
use apogee_model::Properties;
use apogee_model::properties::keys;
use apogee_model::record::{LogEntry, RecordView, parse_entry};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

/// Bytes before a log position that vouch for it.
const ANCHOR_LEN: usize = 64;
/// Bytes of a record's head that hold its store time.
const HEAD_LEN: usize = 128;

/// Deliveries found in the log, each with how often.
#[derive(Default)]
pub(super) struct Delivered {
    counts: HashMap<u128, u32>,
    /// Latest out time among them.
    pub(super) latest: i64,
}

/// What tells one step of one timer message from all others.
pub(super) type StepKey = u128;

/// The step that `record` needs next (its topic is the timer topic), or that it is the result of.
fn key(topic: &str, queue_id: &str, record: &RecordView<'_>, rolls: i64) -> Option<StepKey> {
    let properties = record.properties();
    let out = properties.get(keys::TIMER_OUT_MS)?;
    let hash = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, topic, queue_id, out, properties.get(keys::UNIQ_KEY)).hash(&mut hasher);
        (record.born_timestamp(), record.body_crc(), rolls).hash(&mut hasher);
        // A message that takes another back has the other's key.
        properties.get(keys::TIMER_DEL_UNIQKEY).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    Some(hash(1) << 64 | hash(2))
}

/// How often the message was rolled.
pub(super) fn roll_times(properties: Properties<'_>) -> i64 {
    properties.get(ROLL_TIMES_KEY).and_then(|times| times.parse().ok()).unwrap_or(0)
}

/// The step that a waiting record needs next; `None` for one that names no real topic.
pub(super) fn next_step(record: &RecordView<'_>, roll: bool) -> Option<StepKey> {
    let properties = record.properties();
    let rolls = if roll { roll_times(properties) + 1 } else { 0 };
    key(properties.get(keys::REAL_TOPIC)?, properties.get(keys::REAL_QID)?, record, rolls)
}

/// The step that a record of the log is the result of, if it came out of the wheel.
fn result_of(record: &RecordView<'_>) -> Option<StepKey> {
    let properties = record.properties();
    properties.get(ENQUEUE_KEY)?;
    if record.topic() == TIMER_TOPIC {
        let rolls = roll_times(properties);
        return key(
            properties.get(keys::REAL_TOPIC)?,
            properties.get(keys::REAL_QID)?,
            record,
            rolls,
        );
    }
    key(record.topic(), &record.queue_id().to_string(), record, 0)
}

impl Delivered {
    /// Reads the log from `from` (where a record begins) to its end.
    pub(super) fn find(store: &MessageStore, from: i64) -> Result<Self, StoreError> {
        let mut found = Self::default();
        crate::scan::walk(&store.log.segments, from, false, |_, record| {
            if let Some(key) = result_of(record) {
                *found.counts.entry(key).or_insert(0) += 1;
                let out = record.properties().get(keys::TIMER_OUT_MS);
                let out = out.and_then(|out| out.parse().ok()).unwrap_or(0);
                found.latest = found.latest.max(out);
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Takes one delivery of the step out, if there is one.
    pub(super) fn take(&mut self, key: StepKey) -> bool {
        let Some(count) = self.counts.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&key);
        }
        true
    }

    /// Puts back what [`Delivered::take`] took.
    pub(super) fn put_back(&mut self, key: StepKey) {
        *self.counts.entry(key).or_insert(0) += 1;
    }
}

/// A log position before which everything is older than `time`: the start of a file.
pub(super) fn position_by_time(store: &MessageStore, time: i64) -> i64 {
    let segments = store.log.segments.all();
    let older = segments.iter().rev().find(|segment| {
        let len = HEAD_LEN.min((segment.end() - segment.base()) as usize);
        let head = segment.slice(0, len).unwrap_or_default();
        let written = crate::be::get_i32(head, 0).is_some_and(|size| size > 0);
        written && crate::be::record_store_timestamp(head).is_some_and(|stored| stored < time)
    });
    older.map_or(store.log.min(), |segment| segment.base()).max(store.log.min())
}

/// Vouches for the log up to a position; `None` when those bytes are gone.
pub(super) fn anchor_hash(store: &MessageStore, position: i64) -> Option<i64> {
    if position == 0 {
        return Some(0);
    }
    if position > store.log.appended().get() {
        return None;
    }
    let segment = store.log.segments.find(position - 1)?;
    let end = segment.position_of(position)?;
    let start = end.saturating_sub(ANCHOR_LEN);
    Some(i64::from(crc32fast::hash(segment.slice(start, end - start)?)))
}

/// A record of the timer queue, or nothing when the bytes are something else.
pub(super) fn waiting_record(bytes: &[u8]) -> Option<RecordView<'_>> {
    match parse_entry(bytes) {
        Ok(LogEntry::Record(record)) if record.topic() == TIMER_TOPIC => Some(record),
        _ => None,
    }
}
