//! Meters of topics, their queues and the groups that read them, found by name.
//!
//! What always holds: a topic's meters go with the topic, a group's with the group, and those that nobody
//! used for a day go by themselves; there are never more than [`MOST_METERS`]. Counting takes read locks
//! of a shard and of the topic for the look-up, once a request; only the first use of a name allocates.

use super::meter::{Column, Counts, Meter};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shards of the table.
const SHARDS: usize = 16;
/// Meters of all names; at the limit new names are not counted on their own.
const MOST_METERS: usize = 1_000_000;

type Queues = RwLock<HashMap<i32, Arc<Meter>>>;

/// What happens in a topic.
#[derive(Debug)]
pub(crate) struct TopicMeters {
    /// Whether the topic is one of the system's.
    pub(crate) system: bool,
    /// Sends.
    pub(crate) put: Meter,
    queues: Queues,
    groups: RwLock<HashMap<Box<str>, Arc<GroupMeters>>>,
}

/// What a group does in a topic.
#[derive(Debug)]
pub(crate) struct GroupMeters {
    /// Messages handed out.
    pub(crate) got: Meter,
    /// Messages sent back for a retry.
    pub(crate) sent_back: Meter,
    queues: Queues,
}

/// Meters by topic.
#[derive(Debug)]
pub(crate) struct Table {
    hasher: std::hash::RandomState,
    shards: [RwLock<HashMap<Box<str>, Arc<TopicMeters>>>; SHARDS],
    meters: AtomicUsize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            hasher: std::hash::RandomState::new(),
            shards: Default::default(),
            meters: AtomicUsize::new(0),
        }
    }
}

impl Table {
    fn shard(&self, topic: &str) -> Option<&RwLock<HashMap<Box<str>, Arc<TopicMeters>>>> {
        self.shards.get(self.hasher.hash_one(topic) as usize % SHARDS)
    }

    fn has_room(&self, meters: usize) -> bool {
        let before = self.meters.fetch_add(meters, Ordering::Relaxed);
        if before + meters > MOST_METERS {
            self.meters.fetch_sub(meters, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// The meters of a topic if it has any.
    pub(crate) fn topic(&self, topic: &str) -> Option<Arc<TopicMeters>> {
        self.shard(topic)?.read().get(topic).cloned()
    }

    /// The meters of a topic, made at the first use.
    pub(crate) fn topic_or_new(
        &self,
        topic: &str,
        now: i64,
        is_system: impl FnOnce() -> bool,
    ) -> Option<Arc<TopicMeters>> {
        if let Some(known) = self.topic(topic) {
            return Some(known);
        }
        let made = || {
            Arc::new(TopicMeters {
                system: is_system(),
                put: Meter::new(now),
                queues: RwLock::default(),
                groups: RwLock::default(),
            })
        };
        if !self.has_room(1) {
            return None;
        }
        Some(Arc::clone(self.shard(topic)?.write().entry(topic.into()).or_insert_with(made)))
    }

    /// The meter of a queue, made at the first use.
    fn queue(&self, queues: &Queues, queue_id: i32, now: i64) -> Option<Arc<Meter>> {
        if let Some(known) = queues.read().get(&queue_id) {
            return Some(Arc::clone(known));
        }
        if !self.has_room(1) {
            return None;
        }
        Some(Arc::clone(
            queues.write().entry(queue_id).or_insert_with(|| Arc::new(Meter::new(now))),
        ))
    }

    /// Counts sends to a queue.
    pub(crate) fn count_queue(&self, topic: &TopicMeters, queue_id: i32, what: Counts, now: i64) {
        if let Some(queue) = self.queue(&topic.queues, queue_id, now) {
            queue.count(what);
        }
    }

    /// What a group does in a topic, made at the first use.
    pub(crate) fn group(
        &self,
        topic: &TopicMeters,
        group: &str,
        now: i64,
    ) -> Option<Arc<GroupMeters>> {
        if let Some(known) = topic.groups.read().get(group) {
            return Some(Arc::clone(known));
        }
        if !self.has_room(2) {
            return None;
        }
        let made = || {
            Arc::new(GroupMeters {
                got: Meter::new(now),
                sent_back: Meter::new(now),
                queues: RwLock::default(),
            })
        };
        Some(Arc::clone(topic.groups.write().entry(group.into()).or_insert_with(made)))
    }

    /// Counts what a group got from a queue.
    pub(crate) fn count_got(&self, group: &GroupMeters, queue_id: i32, what: Counts, now: i64) {
        group.got.count(what);
        if let Some(queue) = self.queue(&group.queues, queue_id, now) {
            queue.count(what);
        }
    }

    /// What a group got from a topic.
    pub(crate) fn of_group(&self, group: &str, topic: &str) -> Option<Arc<GroupMeters>> {
        self.topic(topic)?.groups.read().get(group).cloned()
    }

    /// Lets `read` look at the meter behind a statistic's name and key, in the original's terms.
    pub(crate) fn find<T>(
        &self,
        name: &str,
        key: &str,
        read: impl Fn(&Meter, Column) -> T,
    ) -> Option<T> {
        let column = match name {
            "TOPIC_PUT_SIZE" | "GROUP_GET_SIZE" | "QUEUE_PUT_SIZE" | "QUEUE_GET_SIZE" => {
                Column::Bytes
            }
            "TOPIC_PUT_LATENCY" | "GROUP_GET_LATENCY" => Column::LatencyMs,
            _ => Column::Messages,
        };
        let parts: Vec<&str> = key.split('@').collect();
        let queue = |queues: &Queues, id: &str| {
            let meter = queues.read().get(&id.parse().ok()?).cloned()?;
            Some(read(&meter, column))
        };
        match (name, parts.as_slice()) {
            ("TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE", [topic]) => {
                Some(read(&self.topic(topic)?.put, column))
            }
            ("QUEUE_PUT_NUMS" | "QUEUE_PUT_SIZE", [topic, id])
            | ("TOPIC_PUT_LATENCY", [id, topic]) => queue(&self.topic(topic)?.queues, id),
            ("GROUP_GET_NUMS" | "GROUP_GET_SIZE" | "GROUP_GET_LATENCY", [topic, group]) => {
                Some(read(&self.of_group(group, topic)?.got, column))
            }
            ("SNDBCK_PUT_NUMS", [topic, group]) => {
                Some(read(&self.of_group(group, topic)?.sent_back, column))
            }
            ("QUEUE_GET_NUMS" | "QUEUE_GET_SIZE", [topic, id, group])
            | ("GROUP_GET_LATENCY", [id, topic, group]) => {
                queue(&self.of_group(group, topic)?.queues, id)
            }
            _ => None,
        }
    }

    /// The topic is gone.
    pub(crate) fn remove_topic(&self, topic: &str) {
        if let Some(shard) = self.shard(topic) {
            shard.write().remove(topic);
        }
    }

    /// The group is gone.
    pub(crate) fn remove_group(&self, group: &str) {
        for shard in &self.shards {
            for topic in shard.read().values() {
                topic.groups.write().remove(group);
            }
        }
    }

    /// Takes samples, and drops what nobody used for a day or what belongs to a topic that is gone: a
    /// request that was under way may have counted once more after the deletion.
    pub(crate) fn sample(&self, now: i64, topic_exists: impl Fn(&str) -> bool) {
        let mut meters = 0;
        for shard in &self.shards {
            let all: Vec<(Box<str>, Arc<TopicMeters>)> = shard
                .read()
                .iter()
                .map(|(name, topic)| (name.clone(), Arc::clone(topic)))
                .collect();
            for (name, topic) in all {
                let (alive, left) = sample_topic(&topic, now);
                if alive && topic_exists(&name) {
                    meters += left;
                } else {
                    shard.write().remove(&name);
                }
            }
        }
        self.meters.store(meters, Ordering::Relaxed);
    }

    /// How many topics have meters.
    #[cfg(test)]
    pub(crate) fn topics(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }
}

/// Samples a topic; answers whether anything of it is in use, and how many meters are left.
fn sample_topic(topic: &TopicMeters, now: i64) -> (bool, usize) {
    let (put, queues) = (topic.put.sample(now), sample_queues(&topic.queues, now));
    let mut meters = 1 + queues;
    let mut groups = topic.groups.write();
    groups.retain(|_, group| {
        let queues = sample_queues(&group.queues, now);
        let (got, sent_back) = (group.got.sample(now), group.sent_back.sample(now));
        let alive = got || sent_back || queues > 0;
        if alive {
            meters += 2 + queues;
        }
        alive
    });
    (put || queues > 0 || !groups.is_empty(), meters)
}

fn sample_queues(queues: &Queues, now: i64) -> usize {
    let mut queues = queues.write();
    queues.retain(|_, meter| meter.sample(now));
    if queues.is_empty() {
        // Give the table of a wide topic back.
        queues.shrink_to_fit();
    }
    queues.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Counts = Counts { messages: 1, bytes: 5, latency_ms: 2, times: 1 };

    fn filled() -> Table {
        let table = Table::default();
        let topic = table.topic_or_new("T", 0, || false).unwrap();
        topic.put.count(ONE);
        table.count_queue(&topic, 3, ONE, 0);
        let group = table.group(&topic, "G", 0).unwrap();
        table.count_got(&group, 3, ONE, 0);
        group.sent_back.count(ONE);
        table
    }

    #[test]
    fn each_statistic_is_found_under_the_originals_name_and_key() {
        let table = filled();
        for (name, key, expected) in [
            ("TOPIC_PUT_NUMS", "T", 1),
            ("TOPIC_PUT_SIZE", "T", 5),
            ("TOPIC_PUT_LATENCY", "3@T", 2),
            ("QUEUE_PUT_NUMS", "T@3", 1),
            ("QUEUE_PUT_SIZE", "T@3", 5),
            ("GROUP_GET_NUMS", "T@G", 1),
            ("GROUP_GET_SIZE", "T@G", 5),
            ("GROUP_GET_LATENCY", "T@G", 2),
            ("GROUP_GET_LATENCY", "3@T@G", 2),
            ("QUEUE_GET_NUMS", "T@3@G", 1),
            ("SNDBCK_PUT_NUMS", "T@G", 1),
        ] {
            let found = table.find(name, key, |meter, column| meter.total().get(column));
            assert_eq!(found, Some(expected), "{name} {key}");
        }
        for (name, key) in
            [("TOPIC_PUT_NUMS", "U"), ("GROUP_GET_NUMS", "T"), ("NONE", "T"), ("", "@@@@")]
        {
            assert_eq!(table.find(name, key, |_, _| ()), None, "{name} {key}");
        }
    }

    #[test]
    fn meters_go_with_their_topic_their_group_and_after_an_idle_day() {
        let table = filled();
        table.remove_group("G");
        assert!(table.of_group("G", "T").is_none());
        table.remove_topic("T");
        assert_eq!(table.topics(), 0);
        let table = filled();
        table.sample(10_000, |_| false);
        assert_eq!(table.topics(), 0);
        let table = filled();
        for round in 1..=(26 * 360) {
            table.sample(round * 10_000, |_| true);
        }
        assert_eq!((table.topics(), table.meters.load(Ordering::Relaxed)), (0, 0));
    }
}
