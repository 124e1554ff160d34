//! Revive queues: the records of pops and acknowledgements, and putting back what nobody settled.
//!
//! Each revive queue is a lane: the machine with its open checkpoints, and how far the queue was read.
//! Records that this broker writes are taken over as they are written; others (a Java broker's, whose
//! timers deliver them late) are found by reading the queue's end once a step.
//!
//! What always holds: the offset that the revive group commits lies before every checkpoint that is not
//! settled, so a restart finds it again; what is put back is acknowledged in the same append, so a restart
//! does not put it back twice; so is what a deleted topic had in hand, since a topic made again uses the
//! same offsets for other messages.

use super::machine::{Checkpoint, Known, Machine, State};
use super::receipt::Source;
use super::records::{self, Handle, Read, Written};
use crate::broker::Broker;
use crate::processor::send_rules::{PERM_READ, PERM_WRITE};
use apogee_model::id::OffsetId;
use apogee_model::names::{self, RETRY_PREFIX};
use apogee_model::properties::keys;
use apogee_model::record::RecordFields;
use apogee_model::{PropertyMap, RecordView, TagFilter};
use apogee_store::{AppendError, Appending, ReadRequest};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Group whose offsets say how far revive queues are done.
const REVIVE_GROUP: &str = "CID_RMQ_SYS_REVIVE_GROUP";
/// Group whose pops a message comes from.
const ORIGIN_GROUP: &str = "ORIGIN_GROUP";
/// Units of a revive queue read at a time.
const READ_UNITS: usize = 512;
/// Checkpoints put back in one step at most.
const DUE_LIMIT: usize = 2_000;
/// Offsets saved this long after a pop are not believed to know it (ms).
const SAVED_SLACK_MS: i64 = 1_000;

/// One revive queue.
#[derive(Default)]
pub(crate) struct Lane {
    pub(super) machine: Machine,
    /// The next record to read.
    tail: i64,
    /// Records behind the tail that this broker wrote itself.
    own: BTreeSet<i64>,
}

impl Lane {
    /// Number of known checkpoints.
    pub(super) fn len(&self) -> usize {
        self.machine.len()
    }

    fn wrote(&mut self, offset: i64) {
        if offset == self.tail {
            self.tail += 1;
        } else if offset > self.tail {
            self.own.insert(offset);
        }
    }

    fn take(&mut self, read: Read) {
        match read {
            Read::Popped(checkpoint) => self.machine.popped(checkpoint),
            Read::Acked(key, offsets, pop_time) => {
                for offset in offsets {
                    self.machine.settle(&key, offset, State::Acked, pop_time);
                }
            }
        }
    }
}

/// Appends a record to a revive queue; the lane is locked by the caller. Answers where it stands.
pub(super) fn append(
    broker: &Broker,
    lane: &mut Lane,
    revive_queue: i32,
    written: &Written,
    now: i64,
) -> Result<i64, AppendError> {
    let fields = written.fields(&broker.pop.revive_topic, revive_queue, broker.store_host, now);
    let mut batch = [Appending::new(fields)];
    let _ = broker.store.append(&mut batch, now);
    let outcome = batch.into_iter().next().and_then(|item| item.outcome);
    let placed = outcome
        .unwrap_or_else(|| Err(AppendError::Illegal("the store gave no answer".to_owned())))?;
    lane.wrote(placed.queue_offset);
    Ok(placed.queue_offset)
}

/// Builds all lanes from their queues.
pub(super) fn recover(broker: &Broker) {
    let crashed = broker.store.recovery().crashed;
    let saved_at = broker
        .saved
        .wrapper(&broker.offsets)
        .data_version
        .map_or(i64::MAX, |version| version.timestamp);
    // After a crash the saved offsets may lie before what was popped: the checkpoints know better.
    let raise_after = crashed.then(|| saved_at.saturating_sub(SAVED_SLACK_MS));
    for (revive_queue, lane) in (0i32..).zip(&broker.pop.lanes) {
        let mut lane = lane.lock();
        let committed = broker.offsets.query(REVIVE_GROUP, &broker.pop.revive_topic, revive_queue);
        lane.tail = committed.map_or(0, |offset| offset.saturating_add(1));
        catch_up(broker, &mut lane, revive_queue, raise_after);
    }
}

/// Reads what a revive queue has got since, but for what this broker wrote itself.
fn catch_up(broker: &Broker, lane: &mut Lane, revive_queue: i32, raise_after: Option<i64>) {
    let topic = broker.pop.revive_topic.as_str();
    let Some(queue) = broker.store.queue(topic, revive_queue) else { return };
    let (min, max) = (queue.min_offset(broker.store.min_physical_offset()), queue.max_offset());
    // A position behind the end would make every later record unseen.
    lane.tail = lane.tail.clamp(min, max.max(min));
    while lane.tail < max {
        let units = match queue.read(lane.tail, READ_UNITS) {
            Ok(units) if !units.is_empty() => units,
            Ok(_) => return,
            Err(error) => {
                tracing::error!(revive_queue, %error, "a revive queue cannot be read; it is tried again");
                return;
            }
        };
        for unit in units {
            let at = lane.tail;
            lane.tail += 1;
            if unit.is_filler() || lane.own.remove(&at) {
                continue;
            }
            let size = usize::try_from(unit.size).ok();
            let bytes =
                broker.store.get_by_physical_offset(unit.physical_offset, size).ok().flatten();
            let record = bytes.as_deref().and_then(|bytes| RecordView::parse(bytes).ok());
            let Some(read) =
                record.and_then(|record| records::read(&record, &broker.config.broker_name))
            else {
                tracing::warn!(
                    revive_queue,
                    offset = at,
                    "a record of a revive queue cannot be read and is skipped"
                );
                continue;
            };
            if let (Read::Popped(popped), Some(after)) = (&read, raise_after) {
                raise(broker, popped, after);
            }
            lane.take(read);
        }
    }
}

/// Moves a group's offset behind what it popped after the offsets were saved.
fn raise(broker: &Broker, popped: &Checkpoint, saved_at: i64) {
    let (group, topic) = (popped.group.as_ref(), popped.topic.as_ref());
    let Some(last) = popped.messages.iter().map(|(offset, _)| *offset).max() else { return };
    let end = broker.store.max_offset(topic, popped.queue_id);
    let known = broker.offsets.query(group, topic, popped.queue_id).unwrap_or(-1);
    if popped.pop_time >= saved_at
        && last < end
        && known <= last
        && broker.topics.get(topic).is_some()
    {
        broker.offsets.commit(group, topic, popped.queue_id, last + 1);
    }
}

/// One round over all revive queues: reads on, puts back what is due, commits.
pub(super) fn step(broker: &Broker, now: i64) {
    for (revive_queue, lane) in (0i32..).zip(&broker.pop.lanes) {
        let mut lane = lane.lock();
        catch_up(broker, &mut lane, revive_queue, None);
        let due = lane.machine.due(now, DUE_LIMIT);
        let mut lane = Some(lane);
        for checkpoint in due {
            // Between two checkpoints clients get their turn; the state is looked at anew.
            drop(lane.take());
            let Some(mut locked) = broker.pop.lane(revive_queue).map(parking_lot::Mutex::lock)
            else {
                return;
            };
            put_back(broker, &mut locked, revive_queue, &checkpoint, now);
            lane = Some(locked);
        }
        let Some(lane) = lane else { continue };
        let done = lane.machine.lowest_held().unwrap_or(lane.tail) - 1;
        let known = broker.offsets.query(REVIVE_GROUP, &broker.pop.revive_topic, revive_queue);
        if done >= 0 && known != Some(done) {
            broker.offsets.commit(REVIVE_GROUP, &broker.pop.revive_topic, revive_queue, done);
        }
    }
}

/// Settles all that a topic (and its retry topics) has in hand: the topic is gone.
pub(super) fn forget_topic(broker: &Broker, topic: &str, now: i64) {
    let of_topic = |checkpoint: &Checkpoint| {
        let kinds = [Source::Topic, Source::RetryV1, Source::RetryV2];
        kinds.iter().any(|kind| *checkpoint.topic == *kind.real_topic(topic, &checkpoint.group))
    };
    for (revive_queue, lane) in (0i32..).zip(&broker.pop.lanes) {
        let mut lane = lane.lock();
        for checkpoint in lane.machine.select(of_topic) {
            let offsets: Vec<i64> = checkpoint.invisible().collect();
            let settled = records::acknowledgement(&Handle::from(&checkpoint), &offsets, now);
            if let Err(error) = append(broker, &mut lane, revive_queue, &settled, now) {
                tracing::warn!(topic, %error, "what was popped of a deleted topic may come up after a restart");
            }
            for offset in offsets {
                lane.machine.settle(&checkpoint.key(), offset, State::Revived, 0);
            }
        }
    }
}

/// A message on its way back.
struct Returning {
    offset: i64,
    bytes: Bytes,
    topic: String,
    properties: Vec<u8>,
    reconsume_times: i32,
}

/// Puts the unsettled messages of a checkpoint into the retry topic or the dead letters. What cannot be
/// put back now stays unsettled.
fn put_back(broker: &Broker, lane: &mut Lane, revive_queue: i32, due: &Checkpoint, now: i64) {
    let key = due.key();
    let is_open = |offset: &i64| lane.machine.look(&key, *offset) == Known::Here(State::Invisible);
    let offsets: Vec<i64> = due.invisible().filter(is_open).collect();
    let (mut returning, mut settled, mut failed) =
        (Vec::with_capacity(offsets.len()), Vec::new(), false);
    for offset in offsets {
        match look_up(broker, due, offset) {
            Ok(Some(bytes)) => match prepare(broker, due, offset, bytes) {
                Some(one) => returning.push(one),
                None => failed = true,
            },
            Ok(None) => {
                let (topic, group, queue_id) = (&due.topic, &due.group, due.queue_id);
                tracing::info!(%topic, %group, queue_id, offset, "a popped message is no longer there and does not come back");
                settled.push(offset);
            }
            Err(error) => {
                tracing::warn!(topic = %due.topic, offset, %error, "a popped message cannot be read; it is tried again");
                failed = true;
            }
        }
    }
    failed |= !store_again(broker, &returning, &mut settled, now);
    if !settled.is_empty() {
        let written = records::acknowledgement(&Handle::from(due), &settled, now);
        if let Err(error) = append(broker, lane, revive_queue, &written, now) {
            tracing::warn!(topic = %due.topic, %error, "messages that came back may come again after a restart");
        }
    }
    for offset in settled {
        lane.machine.settle(&key, offset, State::Revived, 0);
    }
    if failed {
        lane.machine.failed(&key, now);
    }
}

/// Appends messages to where they go back to and notes those that are stored; false if some are not.
fn store_again(broker: &Broker, returning: &[Returning], stored: &mut Vec<i64>, now: i64) -> bool {
    let mut batch = Vec::with_capacity(returning.len());
    for one in returning {
        let Ok(record) = RecordView::parse(&one.bytes) else { continue };
        batch.push(Appending::new(RecordFields {
            topic: one.topic.as_str(),
            queue_id: 0,
            store_host: broker.store_host,
            reconsume_times: one.reconsume_times,
            prepared_transaction_offset: 0,
            properties: &one.properties,
            ..record.fields()
        }));
    }
    if batch.is_empty() {
        return returning.is_empty();
    }
    let _ = broker.store.append(&mut batch, now);
    let mut complete = batch.len() == returning.len();
    for (item, one) in batch.into_iter().zip(returning) {
        match item.outcome {
            Some(Ok(_)) => stored.push(one.offset),
            other => {
                let reason = other.and_then(Result::err);
                tracing::warn!(
                    topic = one.topic,
                    ?reason,
                    "a popped message cannot be put back; it is tried again"
                );
                complete = false;
            }
        }
    }
    complete
}

/// The record of a popped message, if it is still the same one and somebody may want it.
fn look_up(broker: &Broker, due: &Checkpoint, offset: i64) -> std::io::Result<Option<Bytes>> {
    let (topic, queue_id) = (due.topic.as_ref(), due.queue_id);
    if broker.topics.get(topic).is_none() || broker.groups.get(&due.group).is_none() {
        return Ok(None);
    }
    let Some(queue) = broker.store.queue(topic, queue_id) else { return Ok(None) };
    if offset < queue.min_offset(broker.store.min_physical_offset()) || offset >= queue.max_offset()
    {
        return Ok(None);
    }
    let request = ReadRequest {
        topic,
        queue_id,
        offset,
        max_num: 1,
        max_bytes: usize::MAX,
        filter: &TagFilter::All,
    };
    let bytes = broker.store.plan_read(&request).slices.into_iter().next();
    let Some(bytes) = bytes else {
        return Err(std::io::Error::other(format!(
            "nothing was read at offset {offset} of {topic}@{queue_id}"
        )));
    };
    let same = RecordView::parse(&bytes).is_ok_and(|record| record.queue_offset() == offset);
    Ok(same.then_some(bytes))
}

/// Where a message goes back to, and with which properties.
fn prepare(broker: &Broker, due: &Checkpoint, offset: i64, bytes: Bytes) -> Option<Returning> {
    let record = RecordView::parse(&bytes).ok()?;
    let group = due.group.as_ref();
    let limit = broker.groups.get(group).map_or(-1, |config| config.retry_max_times);
    let mut properties = PropertyMap::parse(record.properties().as_bytes());
    if record.reconsume_times() == 0 || properties.get(keys::FIRST_POP_TIME).is_none() {
        properties.set(keys::FIRST_POP_TIME, due.pop_time.to_string());
    }
    properties.set(ORIGIN_GROUP, group);
    let reconsume_times = record.reconsume_times().saturating_add(i32::from(!due.suspended));
    let kind = if broker.config.enable_retry_topic_v2 { Source::RetryV2 } else { Source::RetryV1 };
    let topic = if limit >= 0 && !due.suspended && record.reconsume_times() >= limit {
        let id = OffsetId { host: record.store_host(), physical_offset: record.physical_offset() };
        properties.set(keys::DLQ_ORIGIN_TOPIC, origin(&due.topic, group));
        properties.set(keys::DLQ_ORIGIN_MESSAGE_ID, id.to_string());
        tracing::info!(group, topic = %due.topic, times = record.reconsume_times(), "message goes to the dead letters");
        names::dlq_topic(group)
    } else if due.topic.starts_with(RETRY_PREFIX) {
        due.topic.to_string()
    } else {
        kind.real_topic(&due.topic, group)
    };
    let known = broker.topics.get(&topic).is_some();
    broker.topics.create_internal(&topic, 1, PERM_READ | PERM_WRITE)?;
    if !known {
        broker.register_soon();
    }
    if topic.starts_with(RETRY_PREFIX) && broker.offsets.query(group, &topic, 0).is_none() {
        // A group that starts at the end of its topic must not start at the end of its retries.
        broker.offsets.commit(group, &topic, 0, broker.store.min_offset(&topic, 0));
    }
    let properties = properties.encode();
    Some(Returning { offset, topic, properties, reconsume_times, bytes })
}

/// The topic that a retry topic of the group belongs to.
fn origin<'a>(topic: &'a str, group: &str) -> &'a str {
    let rest = topic.strip_prefix(RETRY_PREFIX).and_then(|rest| rest.strip_prefix(group));
    rest.and_then(|rest| rest.strip_prefix(['_', '+'])).unwrap_or(topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topic_of_a_retry_topic_is_found() {
        assert_eq!(origin("%RETRY%g_a_b", "g"), "a_b");
        assert_eq!(origin("%RETRY%g+a_b", "g"), "a_b");
        assert_eq!(origin("t", "g"), "t");
    }

    #[test]
    fn records_of_ones_own_are_not_read_again() {
        let mut lane = Lane { tail: 3, ..Lane::default() };
        lane.wrote(3);
        lane.wrote(6);
        lane.wrote(1);
        assert_eq!((lane.tail, lane.own.len()), (4, 1));
    }
}
