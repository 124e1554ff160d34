//! Second half of a step: the slots whose tick is over are delivered, one after the other, in the
//! order in which their messages came.
//!
//! What always holds: a message is done when it stands in its real topic, was taken back, or can
//! never be stored; one that the store refuses for now stays, with all behind it. The slot being
//! delivered takes 8 bytes of memory for each message.

use super::delivered::{self, StepKey};
use super::timers::Timers;
use super::unit::{NOWHERE, TimerUnit};
use super::{DEQUEUE_KEY, ENQUEUE_KEY, ROLL_TIMES_KEY, TIMER_TOPIC};
use crate::append::Appending;
use crate::error::{AppendError, StoreError};
use apogee_model::PropertyMap;
use apogee_model::properties::keys;
use apogee_model::record::RecordFields;
use bytes::Bytes;
use std::collections::HashSet;

/// Messages delivered with one append.
const BATCH: usize = 512;

/// A slot that is being delivered.
pub(super) struct Due {
    pub(super) time: i64,
    /// Commit log position at which its delivery began.
    pub(super) began: i64,
    /// Positions of its units, the next one last.
    positions: Vec<i64>,
    /// Keys of messages that were taken back.
    taken_back: HashSet<String>,
}

/// A message to deliver or to roll.
pub(super) struct Source {
    pub(super) bytes: Bytes,
    /// When it was put into the wheel (ms).
    pub(super) enqueued: i64,
    pub(super) roll: bool,
}

/// What is appended for a source.
struct Prepared {
    at: usize,
    topic: String,
    queue_id: i32,
    properties: Vec<u8>,
}

impl Timers {
    /// Makes the earliest slot whose tick is over the one to deliver; false when there is none.
    pub(super) fn take_due(&mut self, now: i64) -> Result<bool, StoreError> {
        let latest = self.floor(now) - self.precision;
        let Some((time, slot)) = self.wheel.take_due(latest) else { return Ok(false) };
        self.read_time = self.read_time.max(time);
        let mut due = Due {
            time,
            began: self.store.log.appended().get(),
            positions: Vec::with_capacity(usize::try_from(slot.count).unwrap_or(0).min(1 << 20)),
            taken_back: HashSet::new(),
        };
        let mut at = slot.last;
        while at != NOWHERE {
            let Some(unit) = self.log.read(at) else {
                tracing::error!(
                    at,
                    time,
                    "the timer log cannot be read here: messages before it are not found"
                );
                break;
            };
            if unit.delete && !unit.roll {
                due.taken_back.extend(self.key_taken_back(&unit)?);
            } else {
                due.positions.push(at);
            }
            // A chain only leads backwards, whatever the file says.
            if at == slot.first || unit.previous >= at {
                break;
            }
            at = unit.previous;
        }
        self.due = Some(due);
        Ok(true)
    }

    fn key_taken_back(&self, unit: &TimerUnit) -> Result<Option<String>, StoreError> {
        let bytes = self.load(unit)?;
        let record = bytes.as_deref().and_then(delivered::waiting_record);
        let key = record.and_then(|record| record.properties().get(keys::TIMER_DEL_UNIQKEY));
        Ok(key.map(str::to_owned))
    }

    fn load(&self, unit: &TimerUnit) -> Result<Option<Bytes>, StoreError> {
        let size = usize::try_from(unit.size).ok();
        let bytes = self.store.get_by_physical_offset(unit.offset, size);
        let bytes = bytes.map_err(StoreError::io("read a message of", TIMER_TOPIC.as_ref()))?;
        Ok(bytes.filter(|bytes| delivered::waiting_record(bytes).is_some()))
    }

    /// Delivers a part of the due slot. Gives how many, and whether the store took them.
    pub(super) fn deliver_batch(&mut self, now: i64) -> Result<(usize, bool), StoreError> {
        let Some(due) = self.due.take() else { return Ok((0, true)) };
        let (mut sources, mut lost) = (Vec::with_capacity(BATCH), 0);
        for at in due.positions.iter().rev().take(BATCH) {
            let unit = self.log.read(*at);
            let bytes = match &unit {
                Some(unit) => self.load(unit)?,
                None => None,
            };
            let (Some(unit), Some(bytes)) = (unit, bytes) else {
                lost += 1;
                sources.push(None);
                continue;
            };
            let gone = !unit.roll && is_taken_back(&due.taken_back, &bytes);
            let source = Source { bytes, enqueued: unit.write_time, roll: unit.roll };
            sources.push((!gone).then_some(source));
        }
        if lost > 0 {
            tracing::error!(
                lost,
                time = due.time,
                "due timer messages are no longer in the commit log: skipped"
            );
        }
        self.rolled |= sources.iter().flatten().any(|source| source.roll);
        let (done, count) = self.put(&sources, now);
        let mut due = due;
        due.positions.truncate(due.positions.len() - done);
        if !due.positions.is_empty() {
            self.due = Some(due);
        }
        self.changed = true;
        Ok((count, done == sources.len()))
    }

    /// Appends the sources. Gives how many are done, and how many of these were appended.
    pub(super) fn put(&mut self, sources: &[Option<Source>], now: i64) -> (usize, usize) {
        let mut prepared = Vec::with_capacity(sources.len());
        let mut found: Vec<(usize, StepKey)> = Vec::new();
        for (at, source) in sources.iter().enumerate() {
            let Some(source) = source else { continue };
            let step = delivered::waiting_record(&source.bytes)
                .and_then(|record| delivered::next_step(&record, source.roll));
            match step {
                Some(key) if self.delivered.take(key) => found.push((at, key)),
                Some(_) => prepared.extend(prepare(at, source, now)),
                None => {}
            }
        }
        let (done, count) = self.append(sources, &prepared, now);
        for (_, key) in found.into_iter().filter(|(at, _)| *at >= done) {
            self.delivered.put_back(key);
        }
        (done, count)
    }

    fn append(
        &self,
        sources: &[Option<Source>],
        prepared: &[Prepared],
        now: i64,
    ) -> (usize, usize) {
        let mut items = Vec::with_capacity(prepared.len());
        let mut places = Vec::with_capacity(prepared.len());
        for one in prepared {
            let source = sources.get(one.at).and_then(Option::as_ref);
            let record = source.and_then(|source| delivered::waiting_record(&source.bytes));
            let Some(record) = record else { continue };
            places.push(one.at);
            items.push(Appending::new(RecordFields {
                topic: &one.topic,
                queue_id: one.queue_id,
                prepared_transaction_offset: 0,
                properties: &one.properties,
                ..record.fields()
            }));
        }
        if items.is_empty() {
            return (sources.len(), 0);
        }
        let _ = self.store.append(&mut items, now);
        let mut count = 0;
        for (item, at) in items.iter().zip(places) {
            match &item.outcome {
                Some(Ok(_)) => count += 1,
                // A message that can never be stored must not block those behind it.
                Some(Err(error)) if is_permanent(error) => {
                    tracing::error!(topic = item.fields.topic, %error, "a timer message cannot be delivered");
                }
                other => {
                    let reason = other.as_ref().and_then(|outcome| outcome.as_ref().err());
                    tracing::warn!(
                        topic = item.fields.topic,
                        ?reason,
                        "delivery of a timer message failed; it is tried again"
                    );
                    return (at, count);
                }
            }
        }
        (sources.len(), count)
    }
}

/// A message is taken back by its unique key, alone or behind its topic.
pub(super) fn is_taken_back(keys_taken_back: &HashSet<String>, bytes: &[u8]) -> bool {
    if keys_taken_back.is_empty() {
        return false;
    }
    let Some(record) = delivered::waiting_record(bytes) else { return false };
    let properties = record.properties();
    let Some(unique) = properties.get(keys::UNIQ_KEY) else { return false };
    let topic = properties.get(keys::REAL_TOPIC).unwrap_or_default();
    keys_taken_back.contains(unique) || keys_taken_back.contains(&format!("{topic}+{unique}"))
}

fn prepare(at: usize, source: &Source, now: i64) -> Option<Prepared> {
    let record = delivered::waiting_record(&source.bytes)?;
    let mut map = PropertyMap::parse(record.properties().as_bytes());
    let topic = map.get(keys::REAL_TOPIC).unwrap_or_default().to_owned();
    let queue_id = map.get(keys::REAL_QID).and_then(|id| id.parse::<i32>().ok());
    let queue_id = queue_id.filter(|id| *id >= 0 && !topic.is_empty());
    let Some(queue_id) = queue_id else {
        tracing::error!(
            offset = record.physical_offset(),
            "a timer message names no real topic or queue and is skipped"
        );
        return None;
    };
    map.set(ENQUEUE_KEY, source.enqueued.to_string());
    map.set(DEQUEUE_KEY, now.to_string());
    if source.roll {
        let times = delivered::roll_times(record.properties()) + 1;
        map.set(ROLL_TIMES_KEY, times.to_string());
        let (topic, queue_id) = (TIMER_TOPIC.to_owned(), 0);
        return Some(Prepared { at, topic, queue_id, properties: map.encode() });
    }
    Some(Prepared { at, topic, queue_id, properties: map.encode() })
}

fn is_permanent(error: &AppendError) -> bool {
    use AppendError as E;
    matches!(error, E::Illegal(_) | E::TooLarge { .. } | E::Unsupported(_))
}
