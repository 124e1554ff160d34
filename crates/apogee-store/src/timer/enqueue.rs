//! First half of a step: new messages of the timer queue go into the log and the wheel.
//!
//! A message whose tick is over already is delivered here and now. The position in the queue moves
//! only behind messages that are in the log or delivered.

use super::TIMER_TOPIC;
use super::deliver::{Source, is_taken_back};
use super::delivered::{self, StepKey};
use super::timers::Timers;
use super::unit::TimerUnit;
use crate::consume_queue::ConsumeQueue;
use crate::error::StoreError;
use apogee_model::hash::java_hash;
use apogee_model::properties::keys;
use bytes::Bytes;
use std::collections::HashSet;

/// Messages taken in at a time.
const BATCH: usize = 1024;
/// Messages taken in by one step.
const LIMIT: usize = 64 * BATCH;

/// How far the queue was read.
pub(super) enum Taken {
    /// To its end.
    All,
    /// There is more.
    Part,
    /// The store refused a message that was due.
    Refused,
}

/// What a message asks for.
struct Wish {
    out: i64,
    delete: bool,
    topic_hash: i32,
}

fn wish(bytes: &[u8]) -> Option<Wish> {
    let record = delivered::waiting_record(bytes)?;
    let properties = record.properties();
    let out = properties.get(keys::TIMER_OUT_MS)?.parse().ok().filter(|out| *out >= 0)?;
    Some(Wish {
        out,
        delete: properties.get(keys::TIMER_DEL_UNIQKEY).is_some(),
        topic_hash: java_hash(properties.get(keys::REAL_TOPIC)?),
    })
}

impl Timers {
    /// Reads the queue up to where it ended at the call. Also gives how many were delivered.
    pub(super) fn enqueue(&mut self, now: i64) -> Result<(Taken, usize), StoreError> {
        let Some(queue) = self.store.queue(TIMER_TOPIC, 0) else { return Ok((Taken::All, 0)) };
        let (min, max) = (queue.min_offset(self.store.min_physical_offset()), queue.max_offset());
        if self.queue_offset < min || self.queue_offset > max {
            tracing::warn!(
                offset = self.queue_offset,
                min,
                max,
                "the timer queue has no such offset: it is read from its start"
            );
            self.queue_offset = min;
        }
        let (mut seen, mut delivered) = (0, 0);
        while self.queue_offset < max {
            if seen >= LIMIT {
                return Ok((Taken::Part, delivered));
            }
            let before = self.queue_offset;
            let (count, complete) = self.enqueue_batch(&queue, now)?;
            delivered += count;
            if !complete {
                return Ok((Taken::Refused, delivered));
            }
            seen += (self.queue_offset - before) as usize;
            if self.queue_offset == before {
                break;
            }
        }
        Ok((Taken::All, delivered))
    }

    fn enqueue_batch(
        &mut self,
        queue: &ConsumeQueue,
        now: i64,
    ) -> Result<(usize, bool), StoreError> {
        let read_error = |error| StoreError::io("read the queue of", TIMER_TOPIC.as_ref())(error);
        let units = queue.read(self.queue_offset, BATCH).map_err(read_error)?;
        let (mut waiting, mut late, mut lost) = (Vec::with_capacity(units.len()), Vec::new(), 0);
        let mut rolled = Vec::new();
        let mut offset = self.queue_offset;
        for unit in units {
            offset += 1;
            if unit.is_filler() {
                continue;
            }
            let size = usize::try_from(unit.size).ok();
            let bytes = self
                .store
                .get_by_physical_offset(unit.physical_offset, size)
                .map_err(read_error)?;
            let Some((bytes, wish)) =
                bytes.and_then(|bytes| wish(&bytes).map(|wish| (bytes, wish)))
            else {
                lost += 1;
                continue;
            };
            if let Some(key) = self.take_rolled(&bytes) {
                rolled.push((offset - 1, key));
                continue;
            }
            if self.floor(wish.out) < self.read_time {
                late.push((offset - 1, bytes, wish.delete));
            } else {
                waiting.push((offset - 1, self.place(&wish, unit.physical_offset, unit.size, now)));
            }
        }
        if lost > 0 {
            tracing::error!(
                lost,
                up_to = offset,
                "timer messages are no longer in the log, or have no time or topic: skipped"
            );
        }
        let (count, good_until) = self.deliver_late(late, now)?;
        let complete = good_until.is_none();
        let end = good_until.unwrap_or(offset);
        for (_, key) in rolled.into_iter().filter(|(at, _)| *at >= end) {
            self.delivered.put_back(key);
        }
        for (_, mut unit) in waiting.into_iter().filter(|(at, _)| *at < end) {
            let time = self.floor(unit.slot_time);
            unit.previous = self.wheel.last_of(time);
            let at = self.log.append(&unit)?;
            self.wheel.add(time, at, unit.delete);
        }
        self.log.write_out()?;
        self.wheel.write_out()?;
        self.queue_offset = end;
        self.changed = true;
        Ok((count, complete))
    }

    /// During a start: whether the log shows that the message was written again to wait on, so that
    /// the copy waits in its place.
    fn take_rolled(&mut self, bytes: &[u8]) -> Option<StepKey> {
        if self.delivered.is_empty() {
            return None;
        }
        let record = delivered::waiting_record(bytes)?;
        let key = delivered::next_step(&record, true)?;
        self.delivered.take(key).then_some(key)
    }

    /// Where the message waits: in its own tick, or at the end of the window.
    fn place(&self, wish: &Wish, offset: i64, size: i32, now: i64) -> TimerUnit {
        let write_time = self.floor(now);
        let mut slot_time = self.floor(wish.out);
        let beyond = slot_time - write_time - self.window;
        let roll = beyond >= 0;
        if roll {
            let window_slots = self.window / self.precision;
            // Little would be left behind the window: half of it leaves enough for the next time.
            let half = beyond < window_slots / 3 * self.precision;
            let slots = if half { window_slots / 2 } else { window_slots };
            slot_time = write_time + slots * self.precision;
        }
        TimerUnit {
            previous: super::unit::NOWHERE,
            roll,
            delete: wish.delete,
            write_time,
            slot_time,
            offset,
            size,
            topic_hash: wish.topic_hash,
        }
    }

    /// Delivers messages whose tick is over. Gives how many, and the first that was refused.
    fn deliver_late(
        &mut self,
        late: Vec<(i64, Bytes, bool)>,
        now: i64,
    ) -> Result<(usize, Option<i64>), StoreError> {
        if late.is_empty() {
            return Ok((0, None));
        }
        let offsets: Vec<i64> = late.iter().map(|(offset, ..)| *offset).collect();
        let taken_back: HashSet<String> = late
            .iter()
            .filter(|(_, _, delete)| *delete)
            .filter_map(|(_, bytes, _)| delivered::waiting_record(bytes))
            .filter_map(|record| {
                record.properties().get(keys::TIMER_DEL_UNIQKEY).map(str::to_owned)
            })
            .collect();
        let sources: Vec<Option<Source>> = late
            .into_iter()
            .map(|(_, bytes, delete)| {
                let wanted = !delete && !is_taken_back(&taken_back, &bytes);
                wanted.then_some(Source { bytes, enqueued: i64::MAX, roll: false })
            })
            .collect();
        let (done, count) = self.put(&sources, now);
        Ok((count, offsets.get(done).copied()))
    }
}
