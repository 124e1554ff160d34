//! What an operator should see without asking: how full the broker's limits are, and groups that read so
//! far behind that they slow others down.
//!
//! One round a minute on the blocking pool. What always holds: a group is stopped only if
//! `disableConsumeIfConsumerReadSlowly` is set, and the log names group, topic, queue and distance.

use crate::broker::Broker;
use std::time::Duration;

/// Interval of rounds.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// A limit that is filled to this percentage is worth a warning.
const NEARLY_FULL_PERCENT: usize = 80;

/// One round.
pub(crate) fn look(broker: &Broker) {
    print(broker);
    if broker.live.disable_consume_if_consumer_read_slowly() {
        stop_slow_groups(broker);
    }
}

fn print(broker: &Broker) {
    let sends = (broker.flushing_sends(), broker.live.send_thread_pool_queue_capacity());
    let pulls = (broker.polling.len(), broker.config.pull_thread_pool_queue_capacity);
    let behind = broker.store.dispatch_behind_bytes();
    let nearly_full = [sends, pulls]
        .iter()
        .any(|(used, limit)| used.saturating_mul(100) >= limit.saturating_mul(NEARLY_FULL_PERCENT));
    let rates = broker.stats.rates(60);
    if nearly_full {
        tracing::warn!(
            sends_waiting = sends.0,
            sends_limit = sends.1,
            pulls_waiting = pulls.0,
            pulls_limit = pulls.1,
            dispatch_behind_bytes = behind,
            "water marks: a limit is nearly reached"
        );
    } else {
        tracing::debug!(
            sends_waiting = sends.0,
            pulls_waiting = pulls.0,
            dispatch_behind_bytes = behind,
            put_per_second = rates.put,
            got_per_second = rates.got,
            "water marks"
        );
    }
}

impl Broker {
    /// One round now: prints water marks and, if settings say so, stops groups that read too slowly.
    /// Reads from disks; the broker does it by itself every minute.
    pub fn look_at_water_marks(&self) {
        look(self);
    }
}

/// Forbids consuming to groups with a member that are further behind than `consumerFallbehindThreshold`.
fn stop_slow_groups(broker: &Broker) {
    let threshold = broker.live.consumer_fallbehind_threshold();
    for members in broker.clients.consumer_groups() {
        let group = members.name.as_ref();
        let Some(config) = broker.groups.get(group).filter(|config| config.consume_enable) else {
            continue;
        };
        let topics = broker.offsets.topics_of(group);
        let slow =
            topics.iter().find_map(|topic| Some((topic, furthest_behind(broker, group, topic)?)));
        let Some((topic, (queue_id, bytes))) = slow.filter(|(_, (_, bytes))| *bytes > threshold)
        else {
            continue;
        };
        tracing::error!(
            group,
            %topic,
            queue_id,
            behind_bytes = bytes,
            threshold,
            "the group reads too slowly and may not consume any more (disableConsumeIfConsumerReadSlowly); \
             allow it again with updateSubGroup -s true"
        );
        let mut stopped = config.as_ref().clone();
        stopped.consume_enable = false;
        broker.groups.update(stopped);
    }
}

/// The queue in which the group's next message lies furthest before the log's end, and how far (bytes).
fn furthest_behind(broker: &Broker, group: &str, topic: &str) -> Option<(i32, i64)> {
    let end = broker.store.max_physical_offset();
    let queues = broker.offsets.of_topic(group, topic);
    let behind = queues.into_iter().filter_map(|(queue_id, offset)| {
        let next = offset.max(broker.store.min_offset(topic, queue_id));
        let place = broker.store.physical_offset_of(topic, queue_id, next)?;
        Some((queue_id, end - place))
    });
    behind.max_by_key(|(_, bytes)| *bytes)
}
