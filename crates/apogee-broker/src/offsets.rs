//! Consumer offsets: how far each group has come in each queue, saved as `consumerOffset.json`.
//!
//! What always holds: an offset moves back only when somebody resets it; names are checked before they
//! get here. One lock over nested maps keyed by group, then topic, so that a commit allocates nothing.
//! The table is bounded by groups × topics × queues that exist; deleting a topic or group clears its
//! part.

use apogee_store::MessageStore;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Between topic and group in the saved document's keys.
const SEPARATOR: char = '@';

type ResetKey = (Box<str>, Box<str>, i32);
type Queues = BTreeMap<i32, i64>;
type Groups = HashMap<Box<str>, HashMap<Box<str>, Queues>>;

/// Where a member has to go that may not know it yet.
#[derive(Debug, Clone, Copy)]
struct Reset {
    offset: i64,
    /// When nobody is left who has to be told (ms); an operator's reset waits for as long as it takes.
    until_ms: i64,
}

/// How long members of a deleted topic may take to be told (ms): longer than a client keeps offsets of a
/// topic that it can't find.
const DELETED_MS: i64 = 10 * 60_000;

/// Offsets of all groups.
#[derive(Debug, Default)]
pub(crate) struct OffsetTable {
    groups: RwLock<Groups>,
    changes: AtomicU64,
    /// Resets that a member has not been told yet.
    resets: Mutex<HashMap<ResetKey, Reset>>,
    pending_resets: AtomicUsize,
}

impl OffsetTable {
    /// Fills the table from a saved document's entries (`topic@group` → queue → offset).
    pub(crate) fn load<'a>(
        &self,
        entries: impl Iterator<Item = (&'a str, &'a BTreeMap<i32, i64>)>,
    ) {
        let mut groups = self.groups.write();
        for (key, queues) in entries {
            // A key without a separator belongs to no group; the original ignores it too.
            if let Some((topic, group)) = key.split_once(SEPARATOR) {
                let topics = groups.entry(group.into()).or_default();
                topics.entry(topic.into()).or_default().extend(queues);
            }
        }
    }

    /// After a crash that took the end of the log along, takes positions behind the new end back to it:
    /// else they would pass over the messages that come next. Only queues that are there count.
    pub(crate) fn cut_after_crash(&self, store: &MessageStore) {
        if !store.recovery().crashed {
            return;
        }
        let mut groups = self.groups.write();
        for (group, topics) in groups.iter_mut() {
            for (topic, queues) in topics {
                for (queue_id, offset) in queues {
                    let Some(queue) = store.queue(topic, *queue_id) else { continue };
                    let end = queue.max_offset();
                    if *offset > end {
                        tracing::warn!(
                            %group, %topic, queue_id, offset, end,
                            "a crash took messages that this group had read: its position goes back to the end"
                        );
                        *offset = end;
                        self.changes.fetch_add(1, Ordering::AcqRel);
                    }
                }
            }
        }
    }

    /// All entries in the saved document's form.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, BTreeMap<i32, i64>> {
        let groups = self.groups.read();
        let mut out = BTreeMap::new();
        for (group, topics) in groups.iter() {
            for (topic, queues) in topics {
                out.insert(format!("{topic}{SEPARATOR}{group}"), queues.clone());
            }
        }
        out
    }

    /// Counts changes, so that an unchanged table need not be saved again.
    pub(crate) fn change_count(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The committed offset.
    pub(crate) fn query(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        self.groups.read().get(group)?.get(topic)?.get(&queue_id).copied()
    }

    /// Moves an offset as an operator wants. Until the member that has the queue is told (see
    /// [`OffsetTable::take_reset`]), what it commits does not count.
    pub(crate) fn reset(&self, group: &str, topic: &str, queue_id: i32, offset: i64) {
        {
            let mut resets = self.resets.lock();
            let reset = Reset { offset, until_ms: i64::MAX };
            resets.insert((group.into(), topic.into(), queue_id), reset);
            self.pending_resets.store(resets.len(), Ordering::Release);
        }
        self.set(group, topic, queue_id, offset);
    }

    /// The offset of a reset that the asking member has to be told, once. One that asks for that
    /// offset already needs no telling: being told costs official clients half a minute.
    pub(crate) fn take_reset(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        asked: i64,
    ) -> Option<i64> {
        if self.pending_resets.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut resets = self.resets.lock();
        let reset = resets.remove(&(Box::from(group), Box::from(topic), queue_id));
        self.pending_resets.store(resets.len(), Ordering::Release);
        reset.map(|reset| reset.offset).filter(|offset| *offset != asked)
    }

    /// Forgets resets that nobody is left to hear of.
    pub(crate) fn expire_resets(&self, now: i64) {
        if self.pending_resets.load(Ordering::Acquire) != 0 {
            let mut resets = self.resets.lock();
            resets.retain(|_, reset| reset.until_ms > now);
            self.pending_resets.store(resets.len(), Ordering::Release);
        }
    }

    fn has_reset(&self, group: &str, topic: &str, queue_id: i32) -> bool {
        self.pending_resets.load(Ordering::Acquire) != 0
            && self.resets.lock().contains_key(&(Box::from(group), Box::from(topic), queue_id))
    }

    /// Records an offset as told by a consumer; answers the one before.
    pub(crate) fn commit(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> Option<i64> {
        if self.has_reset(group, topic, queue_id) {
            return self.query(group, topic, queue_id);
        }
        self.set(group, topic, queue_id, offset)
    }

    fn set(&self, group: &str, topic: &str, queue_id: i32, offset: i64) -> Option<i64> {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut groups = self.groups.write();
        if let Some(queues) = groups.get_mut(group).and_then(|topics| topics.get_mut(topic)) {
            return queues.insert(queue_id, offset);
        }
        let topics = groups.entry(group.into()).or_default();
        topics.entry(topic.into()).or_default().insert(queue_id, offset)
    }

    /// Topics in which a group has offsets.
    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        let groups = self.groups.read();
        let topics = groups.get(group).map(|topics| topics.keys().map(|topic| topic.to_string()));
        topics.map(Iterator::collect).unwrap_or_default()
    }

    /// Groups that have offsets in a topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        let groups = self.groups.read();
        let with_topic = groups.iter().filter(|(_, topics)| topics.contains_key(topic));
        with_topic.map(|(group, _)| group.to_string()).collect()
    }

    /// A group's offsets in a topic, by queue.
    pub(crate) fn of_topic(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        let groups = self.groups.read();
        groups.get(group).and_then(|topics| topics.get(topic)).cloned().unwrap_or_default()
    }

    /// Lowest committed offset of any group in a queue.
    pub(crate) fn lowest(&self, topic: &str, queue_id: i32) -> Option<i64> {
        let groups = self.groups.read();
        groups.values().filter_map(|topics| topics.get(topic)?.get(&queue_id).copied()).min()
    }

    /// Forgets a topic: a topic made again under its name starts without positions. Members that are
    /// online still know the old ones; what they commit does not count until they were told to start
    /// from 0, else they would pass over the new topic's first messages.
    pub(crate) fn remove_topic(&self, topic: &str, is_online: impl Fn(&str) -> bool, now: i64) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut known = Vec::new();
        self.groups.write().retain(|group, topics| {
            if let Some(queues) = topics.remove(topic) {
                known.push((group.clone(), queues));
            }
            !topics.is_empty()
        });
        known.retain(|(group, _)| is_online(group));
        let mut resets = self.resets.lock();
        resets.retain(|(_, name, _), _| name.as_ref() != topic);
        for (group, queues) in known {
            for queue_id in queues.into_keys() {
                let reset = Reset { offset: 0, until_ms: now + DELETED_MS };
                resets.insert((group.clone(), topic.into(), queue_id), reset);
            }
        }
        self.pending_resets.store(resets.len(), Ordering::Release);
    }

    /// Forgets a group.
    pub(crate) fn remove_group(&self, group: &str) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.forget_resets(|(name, _, _)| name.as_ref() == group);
        self.groups.write().remove(group);
    }

    fn forget_resets(&self, gone: impl Fn(&ResetKey) -> bool) {
        let mut resets = self.resets.lock();
        resets.retain(|key, _| !gone(key));
        self.pending_resets.store(resets.len(), Ordering::Release);
    }

    /// Copies a group's offsets (of one topic, or of all) to another group.
    pub(crate) fn clone_group(&self, source: &str, target: &str, topic: Option<&str>) -> usize {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut groups = self.groups.write();
        let Some(from) = groups.get(source) else { return 0 };
        let copied: Vec<_> = from
            .iter()
            .filter(|(name, _)| topic.is_none_or(|wanted| wanted == name.as_ref()))
            .map(|(name, queues)| (name.clone(), queues.clone()))
            .collect();
        let count = copied.len();
        groups.entry(target.into()).or_default().extend(copied);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_table_loads_equal() {
        let table = OffsetTable::default();
        table.commit("g", "t", 0, 5);
        table.commit("g", "%RETRY%g", 0, 7);
        table.commit("h", "t", 3, 1);
        let saved = table.snapshot();
        assert_eq!(saved.get("t@g"), Some(&BTreeMap::from([(0, 5)])));
        let again = OffsetTable::default();
        again.load(saved.iter().map(|(key, queues)| (key.as_str(), queues)));
        assert_eq!(again.snapshot(), saved);
    }

    #[test]
    fn a_deleted_topic_leaves_no_position_in_any_group() {
        let table = OffsetTable::default();
        table.commit("g", "t", 0, 5);
        table.commit("h", "t", 0, 9);
        table.commit("h", "u", 0, 1);
        table.remove_topic("t", |_| false, 0);
        assert_eq!(table.take_reset("g", "t", 0, 5), None);
        assert_eq!(table.query("g", "t", 0), None);
        assert_eq!(table.query("h", "t", 0), None);
        assert_eq!(table.query("h", "u", 0), Some(1));
    }

    #[test]
    fn after_a_reset_commits_do_not_count_until_the_member_was_told() {
        let table = OffsetTable::default();
        table.commit("g", "t", 0, 5);
        table.reset("g", "t", 0, 2);
        table.commit("g", "t", 0, 6);
        assert_eq!(table.query("g", "t", 0), Some(2));
        assert_eq!(table.take_reset("g", "t", 0, 6), Some(2));
        assert_eq!(table.take_reset("g", "t", 0, 6), None);
        table.commit("g", "t", 0, 3);
        assert_eq!(table.query("g", "t", 0), Some(3));
    }

    #[test]
    fn a_member_that_asks_for_the_offset_of_a_reset_needs_no_telling() {
        let table = OffsetTable::default();
        table.reset("g", "t", 0, 2);
        assert_eq!(table.take_reset("g", "t", 0, 2), None);
        table.commit("g", "t", 0, 3);
        assert_eq!(table.query("g", "t", 0), Some(3));
    }

    #[test]
    fn members_of_a_deleted_topic_are_told_to_begin_at_0_for_a_while() {
        let table = OffsetTable::default();
        table.commit("on", "t", 0, 5);
        table.commit("on", "t", 1, 5);
        table.commit("off", "t", 0, 5);
        table.remove_topic("t", |group| group == "on", 0);
        table.commit("on", "t", 0, 5);
        assert_eq!(table.query("on", "t", 0), None);
        assert_eq!(table.take_reset("on", "t", 0, 5), Some(0));
        assert_eq!(table.take_reset("off", "t", 0, 5), None);
        table.expire_resets(DELETED_MS);
        assert_eq!(table.take_reset("on", "t", 1, 5), None);
    }

    #[test]
    fn lowest_offset_is_taken_over_all_groups() {
        let table = OffsetTable::default();
        assert_eq!(table.lowest("t", 0), None);
        table.commit("g", "t", 0, 5);
        table.commit("h", "t", 0, 3);
        assert_eq!(table.lowest("t", 0), Some(3));
    }
}
