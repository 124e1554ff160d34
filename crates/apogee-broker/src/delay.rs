//! Delayed messages: each level is a queue of `SCHEDULE_TOPIC_XXXX`, in order of delivery time.
//!
//! What always holds: a message is never delivered before its time by this broker's clock; a delivery
//! that fails is tried again from the same message; progress (`delayOffset.json`) moves only behind
//! delivered messages and is saved every few seconds and at the stop, so that a crash repeats at most
//! what was delivered since. One task serves all levels.

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::error::BrokerError;
use apogee_model::names::{SCHEDULE_TOPIC, TRANS_HALF_TOPIC};
use apogee_model::properties::keys;
use apogee_model::record::{RecordFields, RecordView};
use apogee_protocol::bodies::{DataVersion, DelayOffsetSerializeWrapper, JsonBody};
use apogee_store::{Appending, Document, MessageStore};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Messages delivered with one append.
const BATCH: usize = 256;
/// Longest sleep: a clock that was set back is noticed within this time.
const LONGEST_SLEEP_MS: i64 = 1_000;
/// Pause after a delivery that the store refused.
const RETRY_MS: i64 = 500;

/// Progress of all levels.
pub(crate) struct DelayOffsets {
    document: Document,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    offsets: BTreeMap<i32, i64>,
    version: DataVersion,
    dirty: bool,
}

fn is_document(bytes: &[u8]) -> bool {
    DelayOffsetSerializeWrapper::from_json(bytes).is_ok()
}

impl DelayOffsets {
    /// Loads `delayOffset.json`.
    pub(crate) fn load(config_dir: &Path) -> Result<Self, BrokerError> {
        let document = Document::new(config_dir.join("delayOffset.json"), is_document);
        let mut state = State::default();
        if let Some(bytes) = document.load()?.into_bytes() {
            let wrapper = DelayOffsetSerializeWrapper::from_json(&bytes)?;
            state.offsets = wrapper.offset_table;
            state.version = wrapper.data_version.unwrap_or_default();
        }
        Ok(Self { document, state: Mutex::new(state) })
    }

    /// Everything, as slaves ask for it.
    pub(crate) fn wrapper(&self) -> DelayOffsetSerializeWrapper {
        let state = self.state.lock();
        DelayOffsetSerializeWrapper {
            data_version: Some(state.version.clone()),
            offset_table: state.offsets.clone(),
        }
    }

    /// Saves the progress if it moved. What was delivered is flushed first: after a power cut the
    /// progress must not lie behind messages that the log has lost.
    pub(crate) fn save(&self, store: &MessageStore) {
        let wrapper = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.dirty) {
                return;
            }
            state.version.next(now_ms(), 0);
            DelayOffsetSerializeWrapper {
                data_version: Some(state.version.clone()),
                offset_table: state.offsets.clone(),
            }
        };
        if let Err(error) = store.flush_log() {
            tracing::warn!(%error, "delayOffset.json is not saved before the log is flushed; it is tried again");
            self.state.lock().dirty = true;
            return;
        }
        if let Err(error) = self.document.save(&wrapper.to_pretty()) {
            tracing::error!(%error, "delayOffset.json cannot be saved; it is tried again");
            self.state.lock().dirty = true;
        }
    }

    /// Level to offset.
    pub(crate) fn all(&self) -> BTreeMap<i32, i64> {
        self.state.lock().offsets.clone()
    }

    fn get(&self, level: i32) -> i64 {
        self.state.lock().offsets.get(&level).copied().unwrap_or(0)
    }

    fn set(&self, level: i32, offset: i64) {
        let mut state = self.state.lock();
        if state.offsets.insert(level, offset) != Some(offset) {
            state.dirty = true;
        }
    }
}

/// Starts the delay task.
pub(crate) fn start(broker: &Arc<Broker>) {
    let task = Arc::clone(broker);
    broker.tasks.spawn(async move {
        loop {
            let worker = Arc::clone(&task);
            // Delayed messages may have left memory long ago: reading them may wait for the disk.
            let next = tokio::task::spawn_blocking(move || deliver_due(&worker, now_ms())).await;
            let sleep = next.unwrap_or(RETRY_MS).clamp(0, LONGEST_SLEEP_MS);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(sleep.unsigned_abs())) => {}
                () = task.delay_wake.notified() => {}
                () = task.shutdown.cancelled() => return,
            }
        }
    });
}

/// Delivers what is due at all levels; answers how long nothing will be (ms).
fn deliver_due(broker: &Broker, now: i64) -> i64 {
    let levels = 1..=broker.delay_levels();
    levels.map(|level| deliver_level(broker, level, now)).min().unwrap_or(LONGEST_SLEEP_MS)
}

struct Due {
    offset: i64,
    bytes: Bytes,
}

/// Delivers a level's due messages; answers how long nothing will be (ms).
fn deliver_level(broker: &Broker, level: i32, now: i64) -> i64 {
    loop {
        // The stop saves the progress: what is delivered behind that would come twice.
        if broker.is_closing() {
            return LONGEST_SLEEP_MS;
        }
        let (from, due, wait) = match find_due(broker, level, now) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(level, %error, "delayed messages cannot be read; it is tried again");
                return RETRY_MS;
            }
        };
        let (reached, complete) = deliver_batch(broker, &due, from, now);
        broker.delay.set(level, reached);
        if !complete {
            return RETRY_MS;
        }
        if let Some(wait) = wait {
            return wait;
        }
    }
}

/// Collects up to a batch of due messages from the level's position on. Answers where the position is
/// behind them, the messages, and how long to wait if nothing more is due.
fn find_due(
    broker: &Broker,
    level: i32,
    now: i64,
) -> std::io::Result<(i64, Vec<Due>, Option<i64>)> {
    let mut due = Vec::new();
    let store = &broker.store;
    let Some(queue) = store.queue(SCHEDULE_TOPIC, level - 1) else {
        return Ok((broker.delay.get(level), due, Some(LONGEST_SLEEP_MS)));
    };
    let (min, max) = (queue.min_offset(store.min_physical_offset()), queue.max_offset());
    let known = broker.delay.get(level);
    let start = known.clamp(min, max.max(min));
    if start != known {
        tracing::warn!(
            level,
            known,
            min,
            max,
            "delay progress lies outside its queue and is corrected"
        );
    }
    let longest = broker.delay_of(level);
    let mut offset = start;
    while due.len() < BATCH {
        let units = queue.read(offset, BATCH - due.len())?;
        if units.is_empty() {
            return Ok((offset, due, Some(LONGEST_SLEEP_MS)));
        }
        for unit in units {
            // A clock that was set back must not hold messages longer than their level says.
            let deliver_at = unit.tags_code.min(now + longest);
            if !unit.is_filler() {
                if deliver_at > now {
                    return Ok((offset, due, Some(deliver_at - now)));
                }
                let size = usize::try_from(unit.size).ok();
                match store.get_by_physical_offset(unit.physical_offset, size)? {
                    Some(bytes) => due.push(Due { offset, bytes }),
                    None => tracing::warn!(
                        level,
                        offset,
                        "a delayed message is no longer in the log and is skipped"
                    ),
                }
            }
            offset += 1;
        }
    }
    Ok((offset, due, None))
}

/// Appends the messages to their real topics. Answers the position behind the delivered ones, and
/// whether all were.
fn deliver_batch(broker: &Broker, due: &[Due], behind: i64, now: i64) -> (i64, bool) {
    let mut items = Vec::with_capacity(due.len());
    let mut offsets = Vec::with_capacity(due.len());
    for one in due {
        let Ok(record) = RecordView::parse(&one.bytes) else { continue };
        let properties = record.properties();
        let topic = properties.get(keys::REAL_TOPIC);
        let queue_id = properties.get(keys::REAL_QID).and_then(|text| text.parse::<i32>().ok());
        let (Some(topic), Some(queue_id)) = (topic, queue_id.filter(|id| *id >= 0)) else {
            tracing::error!(
                offset = one.offset,
                "a delayed message names no real topic or queue and is skipped"
            );
            continue;
        };
        if topic == TRANS_HALF_TOPIC {
            tracing::error!(
                offset = one.offset,
                "a delayed message would become a half message and is skipped"
            );
            continue;
        }
        offsets.push(one.offset);
        items.push(Appending::new(RecordFields {
            topic,
            queue_id,
            prepared_transaction_offset: 0,
            ..record.fields()
        }));
    }
    let _ = broker.store.append(&mut items, now);
    let mut tally = broker.stats.tally(now, 0);
    for (item, offset) in items.iter().zip(&offsets) {
        let fields = &item.fields;
        match &item.outcome {
            Some(Ok(_)) => {
                tally.sent(fields.topic, fields.queue_id, 1, fields.body.len(), || {
                    broker.topics.is_system(fields.topic)
                });
            }
            // A message that can never be stored must not block those behind it.
            Some(Err(error)) if is_permanent(error) => {
                tracing::error!(offset, topic = item.fields.topic, %error, "a delayed message cannot be delivered");
            }
            other => {
                let reason = other.as_ref().and_then(|outcome| outcome.as_ref().err());
                tracing::warn!(
                    offset,
                    topic = item.fields.topic,
                    ?reason,
                    "delivery failed; it is tried again"
                );
                return (*offset, false);
            }
        }
    }
    (behind, true)
}

fn is_permanent(error: &apogee_store::AppendError) -> bool {
    use apogee_store::AppendError as E;
    matches!(error, E::Illegal(_) | E::TooLarge { .. } | E::Unsupported(_))
}
