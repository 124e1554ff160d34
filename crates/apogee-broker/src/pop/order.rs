//! Ordered pops: which messages of a queue a group has in hand, saved as `consumerOrderInfo.json`.
//!
//! What always holds: while a message of a queue is in hand and its time is not over, nobody but the same
//! attempt pops from that queue; the committed offset moves over acknowledged messages only, without
//! gaps. One short lock; entries of queues that nobody used for a day are dropped.

use apogee_protocol::bodies::{ConsumerOrderInfoWrapper, JsonBody, OrderInfo};
use apogee_store::{Document, StoreError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;

/// Entries that were not used for this long are dropped (ms).
const UNUSED_MS: i64 = 24 * 3_600_000;
/// Messages of one record at most: one bit each.
const MAX_IN_HAND: usize = 63;

type Table = BTreeMap<String, BTreeMap<i32, OrderInfo>>;

/// What an acknowledgement leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The group's offset in the queue.
    To(i64),
    /// The handle is of an older pop: nothing changes.
    Outdated,
    /// The message is not in hand.
    Illegal,
}

/// What all groups have in hand.
pub(crate) struct OrderTable {
    document: Document,
    state: Mutex<(Table, bool)>,
}

fn is_document(bytes: &[u8]) -> bool {
    ConsumerOrderInfoWrapper::from_json(bytes).is_ok()
}

fn key(topic: &str, group: &str) -> String {
    format!("{topic}@{group}")
}

fn offset_at(info: &OrderInfo, at: usize) -> i64 {
    let first = info.offset_list.first().copied().unwrap_or(0);
    if at == 0 {
        first
    } else {
        first.saturating_add(info.offset_list.get(at).copied().unwrap_or(0))
    }
}

fn is_acked(info: &OrderInfo, at: usize) -> bool {
    at >= 64 || info.commit_offset_bit >> at & 1 == 1
}

/// When the queue is free again, if it is not (ms).
fn blocked_until(info: &OrderInfo, attempt: Option<&str>, now: i64) -> Option<i64> {
    if attempt.is_some() && info.attempt_id.as_deref() == attempt {
        return None;
    }
    let invisible = info.invisible_time.unwrap_or(0);
    let visible_at = |at: usize| {
        let changed = info
            .offset_next_visible_time
            .as_ref()
            .and_then(|times| times.get(&offset_at(info, at)));
        changed.copied().unwrap_or_else(|| info.pop_time.saturating_add(invisible))
    };
    let open = (0..info.offset_list.len()).filter(|at| !is_acked(info, *at));
    open.map(visible_at).filter(|time| *time > now).max()
}

impl OrderTable {
    /// Loads `consumerOrderInfo.json`.
    ///
    /// # Errors
    /// When the document and its backup are both unreadable.
    pub(crate) fn load(config_dir: &Path) -> Result<Self, crate::error::BrokerError> {
        let document = Document::new(config_dir.join("consumerOrderInfo.json"), is_document);
        let table = match document.load()?.into_bytes() {
            Some(bytes) => ConsumerOrderInfoWrapper::from_json(&bytes)?.table,
            None => Table::new(),
        };
        Ok(Self { document, state: Mutex::new((table, false)) })
    }

    /// Saves what changed.
    ///
    /// # Errors
    /// When the document cannot be written; it counts as changed then.
    pub(crate) fn save(&self, now: i64) -> Result<(), StoreError> {
        let table = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.1) {
                return Ok(());
            }
            state.0.retain(|_, queues| {
                queues
                    .retain(|_, info| now.saturating_sub(info.last_consume_timestamp) <= UNUSED_MS);
                !queues.is_empty()
            });
            state.0.clone()
        };
        let wrapper = ConsumerOrderInfoWrapper { table, ..ConsumerOrderInfoWrapper::default() };
        let saved = self.document.save(&wrapper.to_pretty());
        if saved.is_err() {
            self.state.lock().1 = true;
        }
        saved
    }

    /// Until when the queue is closed to others than this attempt (ms).
    pub(crate) fn blocked_until(
        &self,
        topic: &str,
        group: &str,
        queue_id: i32,
        attempt: Option<&str>,
        now: i64,
    ) -> Option<i64> {
        let state = self.state.lock();
        blocked_until(state.0.get(&key(topic, group))?.get(&queue_id)?, attempt, now)
    }

    /// Notes what was popped; answers how often each message was consumed before, and the least of all.
    pub(crate) fn popped(
        &self,
        (topic, group, queue_id): (&str, &str, i32),
        attempt: Option<&str>,
        (pop_time, invisible_ms): (i64, i64),
        offsets: &[i64],
    ) -> (BTreeMap<i64, i32>, i32) {
        let offsets = offsets.get(..MAX_IN_HAND).unwrap_or(offsets);
        let mut state = self.state.lock();
        state.1 = true;
        let queues = state.0.entry(key(topic, group)).or_default();
        let counts = queues
            .get(&queue_id)
            .map(|before| consumed_before(before, attempt, offsets))
            .unwrap_or_default();
        let least = if counts.len() == offsets.len() {
            counts.values().copied().min().unwrap_or(0)
        } else {
            0
        };
        let first = offsets.first().copied().unwrap_or(0);
        let list = offsets
            .iter()
            .enumerate()
            .map(|(at, offset)| if at == 0 { *offset } else { offset - first });
        let info = OrderInfo {
            attempt_id: attempt.map(str::to_owned),
            commit_offset_bit: 0,
            invisible_time: Some(invisible_ms),
            last_consume_timestamp: pop_time,
            offset_list: list.collect(),
            offset_consumed_count: Some(counts.clone()),
            offset_next_visible_time: None,
            pop_time,
        };
        queues.insert(queue_id, info);
        (counts, least)
    }

    /// Acknowledges a message.
    pub(crate) fn acked(
        &self,
        topic: &str,
        group: &str,
        queue_id: i32,
        offset: i64,
        pop_time: i64,
    ) -> Commit {
        let mut state = self.state.lock();
        let Some(info) =
            state.0.get_mut(&key(topic, group)).and_then(|queues| queues.get_mut(&queue_id))
        else {
            return Commit::To(offset.saturating_add(1));
        };
        if info.offset_list.is_empty() {
            return Commit::Illegal;
        }
        if info.pop_time != pop_time {
            return Commit::Outdated;
        }
        let count = info.offset_list.len();
        let Some(at) = (0..count.min(64)).find(|at| offset_at(info, *at) == offset) else {
            return Commit::Illegal;
        };
        info.commit_offset_bit |= 1 << at;
        let next = match (0..count).find(|at| !is_acked(info, *at)) {
            Some(at) => offset_at(info, at),
            None => offset_at(info, count - 1).saturating_add(1),
        };
        state.1 = true;
        Commit::To(next)
    }

    /// A message in hand gets another time; false if it is not in hand under this pop time.
    pub(crate) fn visible_at(
        &self,
        topic: &str,
        group: &str,
        queue_id: i32,
        offset: i64,
        (pop_time, at): (i64, i64),
    ) -> bool {
        let mut state = self.state.lock();
        let info = state.0.get_mut(&key(topic, group)).and_then(|queues| queues.get_mut(&queue_id));
        let Some(info) = info.filter(|info| info.pop_time == pop_time) else { return false };
        info.offset_next_visible_time.get_or_insert_default().insert(offset, at);
        state.1 = true;
        true
    }

    /// Frees a queue: its group was moved elsewhere.
    pub(crate) fn clear(&self, topic: &str, group: &str, queue_id: i32) {
        let mut state = self.state.lock();
        if state
            .0
            .get_mut(&key(topic, group))
            .is_some_and(|queues| queues.remove(&queue_id).is_some())
        {
            state.1 = true;
        }
    }

    /// Forgets a topic.
    pub(crate) fn forget_topic(&self, topic: &str) {
        let mut state = self.state.lock();
        state.0.retain(|key, _| key.rsplit_once('@').is_none_or(|(name, _)| name != topic));
        state.1 = true;
    }
}

fn consumed_before(
    before: &OrderInfo,
    attempt: Option<&str>,
    offsets: &[i64],
) -> BTreeMap<i64, i32> {
    let counts = before.offset_consumed_count.clone().unwrap_or_default();
    if attempt.is_some() && before.attempt_id.as_deref() == attempt {
        return counts;
    }
    let had: Vec<i64> = (0..before.offset_list.len()).map(|at| offset_at(before, at)).collect();
    let again = offsets.iter().filter(|offset| had.contains(offset));
    again
        .map(|offset| (*offset, counts.get(offset).copied().unwrap_or(0).saturating_add(1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> (OrderTable, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (OrderTable::load(folder.path()).unwrap(), folder)
    }

    const QUEUE: (&str, &str, i32) = ("t", "g", 0);

    #[test]
    fn a_queue_is_closed_until_all_in_hand_is_acknowledged_or_over() {
        let (table, _folder) = table();
        assert_eq!(table.popped(QUEUE, None, (10, 100), &[5, 6]), (BTreeMap::new(), 0));
        assert_eq!(table.blocked_until("t", "g", 0, None, 50), Some(110));
        assert_eq!(table.acked("t", "g", 0, 6, 10), Commit::To(5));
        assert_eq!(table.blocked_until("t", "g", 0, None, 50), Some(110));
        assert_eq!(table.acked("t", "g", 0, 5, 10), Commit::To(7));
        assert_eq!(table.blocked_until("t", "g", 0, None, 50), None);
        assert_eq!(table.popped(QUEUE, None, (60, 100), &[7]).1, 0);
        assert_eq!(table.blocked_until("t", "g", 0, None, 160), None);
    }

    #[test]
    fn the_same_attempt_may_read_again_and_counts_no_attempt() {
        let (table, _folder) = table();
        table.popped(QUEUE, Some("a"), (10, 100), &[5]);
        assert_eq!(table.blocked_until("t", "g", 0, Some("a"), 50), None);
        assert_eq!(table.blocked_until("t", "g", 0, Some("b"), 50), Some(110));
        assert!(table.popped(QUEUE, Some("a"), (50, 100), &[5]).0.is_empty());
        let (counts, least) = table.popped(QUEUE, Some("b"), (200, 100), &[5]);
        assert_eq!((counts, least), (BTreeMap::from([(5, 1)]), 1));
    }

    #[test]
    fn old_handles_change_nothing_and_foreign_offsets_are_illegal() {
        let (table, _folder) = table();
        table.popped(QUEUE, None, (10, 100), &[5]);
        table.popped(QUEUE, None, (200, 100), &[5, 6]);
        assert_eq!(table.acked("t", "g", 0, 5, 10), Commit::Outdated);
        assert_eq!(table.acked("t", "g", 0, 9, 200), Commit::Illegal);
        assert!(!table.visible_at("t", "g", 0, 5, (10, 999)));
        assert!(table.visible_at("t", "g", 0, 5, (200, 999)));
        assert_eq!(table.blocked_until("t", "g", 0, None, 500), Some(999));
    }

    #[test]
    fn what_is_in_hand_survives_a_restart() {
        let (table, folder) = table();
        table.popped(QUEUE, Some("a"), (10, 100), &[5, 7]);
        table.acked("t", "g", 0, 5, 10);
        table.save(20).unwrap();
        let again = OrderTable::load(folder.path()).unwrap();
        assert_eq!(again.blocked_until("t", "g", 0, None, 50), Some(110));
        assert_eq!(again.acked("t", "g", 0, 7, 10), Commit::To(8));
    }
}
