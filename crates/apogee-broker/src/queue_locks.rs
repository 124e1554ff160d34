//! Queue locks: which member of an orderly group may consume a queue.
//!
//! What always holds: a queue of a group has at most one owner; a lock that was not renewed for 60 s is
//! free; the locks of a member are freed as soon as its last connection ends. One short lock.

use parking_lot::Mutex;
use std::collections::HashMap;

/// A lock that is not renewed for this long is free (ms). Clients renew every 20 s.
const LIFETIME_MS: i64 = 60_000;

#[derive(Debug)]
struct Owner {
    client_id: Box<str>,
    renewed_ms: i64,
}

type QueueKey = (Box<str>, i32);

/// The locks of all groups.
#[derive(Debug, Default)]
pub(crate) struct QueueLocks {
    groups: Mutex<HashMap<Box<str>, HashMap<QueueKey, Owner>>>,
}

impl QueueLocks {
    /// Takes or renews a lock; false if another member holds it.
    pub(crate) fn try_lock(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        client_id: &str,
        now: i64,
    ) -> bool {
        let mut groups = self.groups.lock();
        let queues = groups.entry(group.into()).or_default();
        let owner = queues
            .entry((topic.into(), queue_id))
            .or_insert_with(|| Owner { client_id: client_id.into(), renewed_ms: now });
        if owner.client_id.as_ref() != client_id {
            if now - owner.renewed_ms <= LIFETIME_MS {
                return false;
            }
            tracing::warn!(
                group, topic, queue_id, from = %owner.client_id, to = client_id,
                unrenewed_ms = now - owner.renewed_ms, "queue lock expired and moves"
            );
            owner.client_id = client_id.into();
        }
        owner.renewed_ms = now;
        true
    }

    /// Frees a lock if `client_id` holds it.
    pub(crate) fn unlock(&self, group: &str, topic: &str, queue_id: i32, client_id: &str) {
        let mut groups = self.groups.lock();
        let Some(queues) = groups.get_mut(group) else { return };
        queues.retain(|(name, id), owner| {
            !(name.as_ref() == topic && *id == queue_id && owner.client_id.as_ref() == client_id)
        });
        if queues.is_empty() {
            groups.remove(group);
        }
    }

    /// Frees all locks of a member that has gone; answers how many.
    pub(crate) fn release_member(&self, group: &str, client_id: &str) -> usize {
        let mut groups = self.groups.lock();
        let Some(queues) = groups.get_mut(group) else { return 0 };
        let before = queues.len();
        queues.retain(|_, owner| owner.client_id.as_ref() != client_id);
        let freed = before - queues.len();
        if queues.is_empty() {
            groups.remove(group);
        }
        freed
    }

    /// Whether any lock of the group is alive: then the group consumes in order.
    pub(crate) fn any_alive(&self, group: &str, now: i64) -> bool {
        let groups = self.groups.lock();
        let alive = |owner: &Owner| now - owner.renewed_ms <= LIFETIME_MS;
        groups.get(group).is_some_and(|queues| queues.values().any(alive))
    }

    /// Forgets locks that expired long ago, so that memory follows what is in use.
    pub(crate) fn sweep(&self, now: i64) {
        self.groups.lock().retain(|_, queues| {
            queues.retain(|_, owner| now - owner.renewed_ms <= 2 * LIFETIME_MS);
            !queues.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_until_it_unlocks() {
        let locks = QueueLocks::default();
        assert!(locks.try_lock("g", "t", 0, "a", 0));
        assert!(locks.try_lock("g", "t", 0, "a", 10));
        assert!(!locks.try_lock("g", "t", 0, "b", 10));
        assert!(locks.try_lock("other", "t", 0, "b", 10));
        locks.unlock("g", "t", 0, "b");
        assert!(!locks.try_lock("g", "t", 0, "b", 10));
        locks.unlock("g", "t", 0, "a");
        assert!(locks.try_lock("g", "t", 0, "b", 10));
    }

    #[test]
    fn a_lock_not_renewed_for_a_minute_moves() {
        let locks = QueueLocks::default();
        assert!(locks.try_lock("g", "t", 0, "a", 0));
        assert!(!locks.try_lock("g", "t", 0, "b", 60_000));
        assert!(locks.try_lock("g", "t", 0, "b", 60_001));
        assert!(!locks.try_lock("g", "t", 0, "a", 60_002));
    }

    #[test]
    fn locks_of_a_gone_member_are_free_at_once() {
        let locks = QueueLocks::default();
        for queue in 0..4 {
            assert!(locks.try_lock("g", "t", queue, if queue < 3 { "a" } else { "b" }, 0));
        }
        assert_eq!(locks.release_member("g", "a"), 3);
        assert!(locks.try_lock("g", "t", 0, "b", 1));
        assert!(locks.any_alive("g", 1));
        locks.sweep(200_000);
        assert!(!locks.any_alive("g", 1));
    }
}
