//! What passed through the broker, for tools: totals, rates, and statistics by topic, queue and group.
//!
//! `meter` counts one thing, `table` finds the meters of a name. The hot path only adds to atomics, once
//! a request (a run of sends: once for all of them); a task takes samples. Nothing is saved: totals begin
//! at the start, as the original's.

mod meter;
mod table;

use meter::{Column, Meter, Span};
pub(crate) use meter::{Counts, Snapshot};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::{Table, TopicMeters};

/// Samples of the totals kept: ten minutes.
const SAMPLES: usize = 601;
/// Meters are sampled every so many seconds.
const METER_SECONDS: u64 = 10;
const DAY_MS: i64 = 86_400_000;
/// Upper ends of the classes of send times (ms) and their names; the last is open.
const CLASSES: [(u64, &str); 13] = [
    (0, "<=0ms"),
    (10, "0~10ms"),
    (50, "10~50ms"),
    (100, "50~100ms"),
    (200, "100~200ms"),
    (500, "200~500ms"),
    (1_000, "500ms~1s"),
    (2_000, "1~2s"),
    (3_000, "2~3s"),
    (4_000, "3~4s"),
    (5_000, "4~5s"),
    (10_000, "5~10s"),
    (u64::MAX, "10s~"),
];

/// Totals at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) put: Counts,
    pub(crate) put_failed: u64,
    pub(crate) got: Counts,
    pub(crate) missed: u64,
}

/// Messages per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) put: f64,
    /// Messages handed out.
    pub(crate) got: f64,
    /// Pulls that found some.
    pub(crate) found: f64,
    /// Pulls that found none.
    pub(crate) missed: f64,
}

/// Messages up to midnight, without system topics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mornings {
    day: i64,
    /// Put and got up to yesterday's midnight.
    pub(crate) yesterday: (u64, u64),
    /// Put and got up to today's midnight.
    pub(crate) today: (u64, u64),
}

/// Statistics of a broker.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) started_ms: i64,
    cluster: Box<str>,
    utc_offset_ms: i64,
    put: Meter,
    got: Meter,
    users_put: Meter,
    users_got: Meter,
    sent_back: AtomicU64,
    put_failed: AtomicU64,
    missed: AtomicU64,
    put_classes: [AtomicU64; CLASSES.len()],
    put_longest_ms: AtomicU64,
    got_longest_ms: AtomicU64,
    table: Table,
    samples: Mutex<VecDeque<(i64, Totals)>>,
    rounds: AtomicU64,
    mornings: Mutex<Mornings>,
}

impl Stats {
    pub(crate) fn new(now: i64, cluster: &str, utc_offset_seconds: i64) -> Self {
        let utc_offset_ms = utc_offset_seconds * 1000;
        let day = (now + utc_offset_ms).div_euclid(DAY_MS);
        Self {
            started_ms: now,
            cluster: cluster.into(),
            utc_offset_ms,
            put: Meter::new(now),
            got: Meter::new(now),
            users_put: Meter::new(now),
            users_got: Meter::new(now),
            sent_back: AtomicU64::new(0),
            put_failed: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            put_classes: Default::default(),
            put_longest_ms: AtomicU64::new(0),
            got_longest_ms: AtomicU64::new(0),
            table: Table::default(),
            samples: Mutex::new(VecDeque::from([(now, Totals::default())])),
            rounds: AtomicU64::new(0),
            mornings: Mutex::new(Mornings { day, ..Mornings::default() }),
        }
    }

    /// Begins counting a run of sends that took `latency_ms` together.
    pub(crate) fn tally(&self, now: i64, latency_ms: i64) -> Tally<'_> {
        let latency_ms = latency_ms.max(0).unsigned_abs();
        Tally {
            stats: self,
            now,
            latency_ms,
            all: Counts::default(),
            users: Counts::default(),
            last: None,
        }
    }

    /// One message that is no send of a client was stored in the time since `begun`.
    pub(crate) fn put_one(
        &self,
        topic: &str,
        queue_id: i32,
        bytes: usize,
        begun: i64,
        is_system: impl FnOnce() -> bool,
    ) {
        let latency_ms = crate::clock::now_ms() - begun;
        self.tally(begun, latency_ms).sent(topic, queue_id, 1, bytes, is_system);
    }

    /// So many messages were refused by the store.
    pub(crate) fn refused(&self, messages: usize) {
        self.put_failed.fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// A pull was answered with messages.
    pub(crate) fn got(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        what: Counts,
        is_system: impl FnOnce() -> bool,
    ) {
        let now = crate::clock::now_ms();
        self.got.count(what);
        self.got_longest_ms.fetch_max(what.latency_ms, Ordering::Relaxed);
        let Some(topic) = self.table.topic_or_new(topic, now, is_system) else { return };
        if !topic.system {
            self.users_got.count(what);
        }
        if let Some(group) = self.table.group(&topic, group, now) {
            self.table.count_got(&group, queue_id, what, now);
        }
    }

    /// A pop was answered with so many messages and bytes, of whatever queues.
    pub(crate) fn popped(
        &self,
        group: &str,
        topic: &str,
        (messages, bytes): (usize, usize),
        is_system: impl FnOnce() -> bool,
    ) {
        let (now, messages, bytes) = (crate::clock::now_ms(), messages as u64, bytes as u64);
        let what = Counts { messages, bytes, latency_ms: 0, times: 1 };
        self.got.count(what);
        let Some(topic) = self.table.topic_or_new(topic, now, is_system) else { return };
        if !topic.system {
            self.users_got.count(what);
        }
        if let Some(group) = self.table.group(&topic, group, now) {
            group.got.count(what);
        }
    }

    /// A pull found nothing.
    pub(crate) fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// A group sent a message of a topic back.
    pub(crate) fn sent_back(
        &self,
        group: &str,
        topic: &str,
        now: i64,
        is_system: impl FnOnce() -> bool,
    ) {
        self.sent_back.fetch_add(1, Ordering::Relaxed);
        let Some(topic) = self.table.topic_or_new(topic, now, is_system) else { return };
        if let Some(group) = self.table.group(&topic, group, now) {
            group.sent_back.count(Counts { messages: 1, times: 1, ..Counts::default() });
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            put: self.put.total(),
            put_failed: self.put_failed.load(Ordering::Relaxed),
            got: self.got.total(),
            missed: self.missed.load(Ordering::Relaxed),
        }
    }

    /// Messages put to and got from topics of users.
    pub(crate) fn of_users(&self) -> (u64, u64) {
        (self.users_put.total().messages, self.users_got.total().messages)
    }

    /// Where the totals of [`Self::of_users`] stood at the last midnights.
    pub(crate) fn mornings(&self) -> Mornings {
        *self.mornings.lock()
    }

    /// Takes samples, once a second. Blocks for some time if there are very many topics.
    pub(crate) fn sample(&self, now: i64, topic_exists: impl Fn(&str) -> bool) {
        self.pass_midnight(now);
        let totals = self.totals();
        {
            let mut samples = self.samples.lock();
            samples.push_back((now, totals));
            if samples.len() > SAMPLES {
                samples.pop_front();
            }
        }
        if self.rounds.fetch_add(1, Ordering::Relaxed) % METER_SECONDS == METER_SECONDS - 1 {
            for meter in [&self.put, &self.got, &self.users_put, &self.users_got] {
                meter.sample(now);
            }
            self.table.sample(now, topic_exists);
        }
    }

    fn pass_midnight(&self, now: i64) {
        let day = (now + self.utc_offset_ms).div_euclid(DAY_MS);
        let mut mornings = self.mornings.lock();
        // A clock that is set back makes no midnight.
        if day > mornings.day {
            *mornings = Mornings { day, yesterday: mornings.today, today: self.of_users() };
        }
    }

    /// Rates over about the last `seconds`.
    pub(crate) fn rates(&self, seconds: usize) -> Rates {
        let samples = self.samples.lock();
        let Some((newest_ms, newest)) = samples.back() else { return Rates::default() };
        let at = samples.len().saturating_sub(seconds + 1);
        let Some((oldest_ms, oldest)) = samples.get(at) else { return Rates::default() };
        let elapsed = (newest_ms - oldest_ms) as f64 / 1000.0;
        if elapsed <= 0.0 {
            return Rates::default();
        }
        let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / elapsed;
        Rates {
            put: rate(newest.put.messages, oldest.put.messages),
            got: rate(newest.got.messages, oldest.got.messages),
            found: rate(newest.got.times, oldest.got.times),
            missed: rate(newest.missed, oldest.missed),
        }
    }

    /// A statistic by the original's name and key over a minute, an hour and a day.
    pub(crate) fn view(&self, name: &str, key: &str, now: i64) -> Option<[Snapshot; 3]> {
        let read =
            |meter: &Meter, column: Column| Span::ALL.map(|span| meter.over(span, column, now));
        let whole = match name {
            "BROKER_PUT_NUMS" => Some(&self.put),
            "BROKER_GET_NUMS" => Some(&self.got),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC" => Some(&self.users_put),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC" => Some(&self.users_got),
            _ => None,
        };
        match whole {
            Some(meter) => (key == self.cluster.as_ref()).then(|| read(meter, Column::Messages)),
            None => self.table.find(name, key, read),
        }
    }

    /// Messages put to a topic per second, over a minute.
    pub(crate) fn topic_put_rate(&self, topic: &str, now: i64) -> f64 {
        let topic = self.table.topic(topic);
        topic.map_or(0.0, |topic| topic.put.over(Span::Minute, Column::Messages, now).rate)
    }

    /// Messages that a group gets from a topic per second, over a minute.
    pub(crate) fn group_get_rate(&self, group: &str, topic: &str, now: i64) -> f64 {
        let group = self.table.of_group(group, topic);
        group.map_or(0.0, |group| group.got.over(Span::Minute, Column::Messages, now).rate)
    }

    /// How long sends took, as the original writes it: classes with their numbers.
    pub(crate) fn put_classes(&self) -> String {
        let all = CLASSES.iter().zip(&self.put_classes);
        all.map(|((_, name), count)| format!("[{name}]:{} ", count.load(Ordering::Relaxed)))
            .collect()
    }

    /// The upper end of the class (ms) in which this part of all sends lies: 0.99 for the 99th percentile.
    pub(crate) fn put_quantile_ms(&self, part: f64) -> u64 {
        let counts = self.put_classes.each_ref().map(|count| count.load(Ordering::Relaxed));
        let wanted = counts.iter().sum::<u64>() as f64 * part;
        let mut seen = 0;
        for ((end, _), count) in CLASSES.iter().zip(counts) {
            seen += count;
            if seen as f64 >= wanted {
                return (*end).min(self.put_longest_ms());
            }
        }
        0
    }

    /// The longest send (ms).
    pub(crate) fn put_longest_ms(&self) -> u64 {
        self.put_longest_ms.load(Ordering::Relaxed)
    }

    /// The longest read (ms).
    pub(crate) fn got_longest_ms(&self) -> u64 {
        self.got_longest_ms.load(Ordering::Relaxed)
    }

    /// The topic is gone.
    pub(crate) fn remove_topic(&self, topic: &str) {
        self.table.remove_topic(topic);
    }

    /// The group is gone.
    pub(crate) fn remove_group(&self, group: &str) {
        self.table.remove_group(group);
    }
}

/// Counts a run of sends: what is the same for many of them is added once, when the run is over.
pub(crate) struct Tally<'a> {
    stats: &'a Stats,
    now: i64,
    latency_ms: u64,
    all: Counts,
    users: Counts,
    last: Option<(&'a str, Arc<TopicMeters>, Counts)>,
}

impl<'a> Tally<'a> {
    /// A send was stored.
    pub(crate) fn sent(
        &mut self,
        topic: &'a str,
        queue_id: i32,
        messages: usize,
        bytes: usize,
        is_system: impl FnOnce() -> bool,
    ) {
        let what = Counts {
            messages: messages as u64,
            bytes: bytes as u64,
            latency_ms: self.latency_ms,
            times: 1,
        };
        self.all.add(what);
        if self.last.as_ref().is_none_or(|(last, ..)| *last != topic) {
            self.close_topic();
            let meters = self.stats.table.topic_or_new(topic, self.now, is_system);
            self.last = meters.map(|meters| (topic, meters, Counts::default()));
        }
        if let Some((_, topic, counts)) = &mut self.last {
            counts.add(what);
            self.stats.table.count_queue(topic, queue_id, what, self.now);
        }
    }

    fn close_topic(&mut self) {
        if let Some((_, topic, counts)) = self.last.take() {
            topic.put.count(counts);
            if !topic.system {
                self.users.add(counts);
            }
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.close_topic();
        if self.all.times == 0 {
            return;
        }
        let stats = self.stats;
        stats.put.count(self.all);
        stats.users_put.count(self.users);
        let class =
            CLASSES.iter().zip(&stats.put_classes).find(|((end, _), _)| self.latency_ms <= *end);
        if let Some((_, count)) = class {
            count.fetch_add(self.all.times, Ordering::Relaxed);
        }
        stats.put_longest_ms.fetch_max(self.latency_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(stats: &Stats, topic: &str, messages: usize, latency_ms: i64) {
        stats.tally(0, latency_ms).sent(topic, 0, messages, 10, || topic == "system");
    }

    #[test]
    fn rates_are_taken_over_the_asked_time() {
        let stats = Stats::new(0, "c", 0);
        for second in 1..=20 {
            send(&stats, "t", if second > 10 { 5 } else { 1 }, 0);
            stats.sample(second * 1000, |_| true);
        }
        let rates = [10, 20, 600].map(|seconds| stats.rates(seconds).put);
        assert_eq!(rates, [5.0, 3.0, 3.0]);
    }

    #[test]
    fn a_run_of_sends_counts_for_its_topics_and_the_broker() {
        let stats = Stats::new(0, "c", 0);
        let mut tally = stats.tally(0, 7);
        for topic in ["a", "a", "system", "a", "b"] {
            tally.sent(topic, 1, 2, 30, || topic == "system");
        }
        drop(tally);
        let sum = |name: &str, key: &str| stats.view(name, key, 100).map(|[minute, ..]| minute.sum);
        assert_eq!(sum("TOPIC_PUT_NUMS", "a"), Some(6));
        assert_eq!(sum("TOPIC_PUT_SIZE", "b"), Some(30));
        assert_eq!(sum("BROKER_PUT_NUMS", "c"), Some(10));
        assert_eq!(sum("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "c"), Some(8));
        assert_eq!(sum("BROKER_PUT_NUMS", "another cluster"), None);
        assert!(stats.put_classes().contains("[0~10ms]:5 "), "{}", stats.put_classes());
        assert_eq!((stats.put_longest_ms(), stats.put_quantile_ms(0.99)), (7, 7));
    }

    #[test]
    fn midnight_by_the_brokers_time_keeps_where_the_totals_stood() {
        let hour = 3_600_000;
        let stats = Stats::new(0, "c", 2 * 3600);
        send(&stats, "t", 3, 0);
        stats.sample(21 * hour, |_| true);
        assert_eq!(stats.mornings().today, (0, 0));
        stats.sample(22 * hour, |_| true);
        assert_eq!(stats.mornings().today, (3, 0));
        send(&stats, "t", 4, 0);
        stats.sample(46 * hour, |_| true);
        let mornings = stats.mornings();
        assert_eq!((mornings.yesterday, mornings.today), ((3, 0), (7, 0)));
    }
}
