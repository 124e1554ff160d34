//! Questions about places and times: which offset goes with a time, which time with an offset.
//!
//! Times are store times of records, which do not fall along a queue (the append lock sees to
//! that), so a binary search over units finds them. A unit without a readable record counts as
//! older than every time.

use crate::be::record_store_timestamp;
use crate::consume_queue::ConsumeQueue;
use crate::message_store::MessageStore;
use crate::unit::Unit;

/// Bytes of a record's head that hold its store time, whatever the address kinds.
const HEAD: usize = 76;

/// Which offset a search by time gives when no message has exactly that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The first message at or after the time.
    #[default]
    Lower,
    /// The last message at or before the time.
    Upper,
}

impl MessageStore {
    /// Offset for a store time. `Lower`: the first message not older, or one past the end.
    /// `Upper`: the last message not newer, or the lowest offset. 0 without a queue.
    #[must_use]
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
        boundary: Boundary,
    ) -> i64 {
        let Some(queue) = self.queue(topic, queue_id) else {
            return 0;
        };
        let (min, max) = (queue.min_offset(self.log.min()), queue.max_offset());
        let found = match boundary {
            Boundary::Lower => queue.partition(min, max, |unit| {
                self.unit_time(unit).is_none_or(|time| time < timestamp)
            }),
            Boundary::Upper => queue
                .partition(min, max, |unit| {
                    self.unit_time(unit).is_none_or(|time| time <= timestamp)
                })
                .map(|behind| (behind - 1).max(min)),
        };
        found.unwrap_or_else(|error| {
            tracing::warn!(queue = ?queue, %error, "a search by time could not read the queue");
            min
        })
    }

    fn unit_time(&self, unit: &Unit) -> Option<i64> {
        (!unit.is_filler()).then(|| self.record_time(unit.physical_offset)).flatten()
    }

    /// Store time of the record at a commit log offset.
    #[must_use]
    pub fn record_time(&self, physical_offset: i64) -> Option<i64> {
        let cold = self.is_cold(physical_offset);
        let head = self.log_bytes(physical_offset, HEAD, cold).ok()??;
        record_store_timestamp(&head)
    }

    /// Store time of a message; `None` when there is none at that offset.
    #[must_use]
    pub fn message_time(&self, topic: &str, queue_id: i32, offset: i64) -> Option<i64> {
        let queue = self.queue(topic, queue_id)?;
        self.queue_time(&queue, offset)
    }

    fn queue_time(&self, queue: &ConsumeQueue, offset: i64) -> Option<i64> {
        self.unit_time(&queue.unit(offset).ok()??)
    }

    /// Store time of a queue's oldest message.
    #[must_use]
    pub fn earliest_store_time(&self, topic: &str, queue_id: i32) -> Option<i64> {
        let queue = self.queue(topic, queue_id)?;
        self.queue_time(&queue, queue.min_offset(self.log.min()))
    }

    /// Whether a queue's oldest message is so old that it is probably not in memory.
    #[must_use]
    pub fn is_queue_start_cold(&self, topic: &str, queue_id: i32) -> bool {
        let Some(queue) = self.queue(topic, queue_id) else {
            return false;
        };
        let first = queue.unit(queue.min_offset(self.log.min()));
        matches!(first, Ok(Some(unit)) if self.is_cold(unit.physical_offset))
    }

    /// Store time of the oldest record in the commit log.
    #[must_use]
    pub fn earliest_time(&self) -> Option<i64> {
        self.record_time(self.log.min())
    }

    /// Commit log offset of a message; `None` when there is none at that queue offset.
    #[must_use]
    pub fn physical_offset_of(&self, topic: &str, queue_id: i32, offset: i64) -> Option<i64> {
        let unit = self.queue(topic, queue_id)?.unit(offset).ok()??;
        (!unit.is_filler()).then_some(unit.physical_offset)
    }
}
