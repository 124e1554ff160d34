//! What passed through the broker, for tools: counters, and rates over the last minutes.
//!
//! The hot path only adds to atomics; a task samples them once a second.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Samples kept: ten minutes.
const SAMPLES: usize = 601;

/// Totals at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) put_messages: u64,
    pub(crate) put_bytes: u64,
    pub(crate) put_failed: u64,
    pub(crate) got_messages: u64,
    pub(crate) got_bytes: u64,
}

/// Counters of a broker.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) started_ms: i64,
    put_messages: AtomicU64,
    put_bytes: AtomicU64,
    put_failed: AtomicU64,
    got_messages: AtomicU64,
    got_bytes: AtomicU64,
    samples: Mutex<VecDeque<(i64, Totals)>>,
}

impl Stats {
    pub(crate) fn new(now: i64) -> Self {
        Self {
            started_ms: now,
            put_messages: AtomicU64::new(0),
            put_bytes: AtomicU64::new(0),
            put_failed: AtomicU64::new(0),
            got_messages: AtomicU64::new(0),
            got_bytes: AtomicU64::new(0),
            samples: Mutex::new(VecDeque::from([(now, Totals::default())])),
        }
    }

    /// A send of `messages` was stored or refused.
    pub(crate) fn sent(&self, _topic: &str, messages: usize, bytes: usize, stored: bool) {
        if stored {
            self.put_messages.fetch_add(messages as u64, Ordering::Relaxed);
            self.put_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        } else {
            self.put_failed.fetch_add(messages as u64, Ordering::Relaxed);
        }
    }

    /// A pull was answered with `messages`.
    pub(crate) fn got(&self, _group: &str, _topic: &str, messages: usize, bytes: usize) {
        self.got_messages.fetch_add(messages as u64, Ordering::Relaxed);
        self.got_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            put_messages: self.put_messages.load(Ordering::Relaxed),
            put_bytes: self.put_bytes.load(Ordering::Relaxed),
            put_failed: self.put_failed.load(Ordering::Relaxed),
            got_messages: self.got_messages.load(Ordering::Relaxed),
            got_bytes: self.got_bytes.load(Ordering::Relaxed),
        }
    }

    /// Takes a sample, once a second.
    pub(crate) fn sample(&self, now: i64) {
        let totals = self.totals();
        let mut samples = self.samples.lock();
        samples.push_back((now, totals));
        if samples.len() > SAMPLES {
            samples.pop_front();
        }
    }

    /// Messages put and got a second over about the last `seconds`.
    pub(crate) fn rates(&self, seconds: usize) -> (f64, f64) {
        let samples = self.samples.lock();
        let Some((newest_ms, newest)) = samples.back() else { return (0.0, 0.0) };
        let at = samples.len().saturating_sub(seconds + 1);
        let Some((oldest_ms, oldest)) = samples.get(at) else { return (0.0, 0.0) };
        let elapsed = (newest_ms - oldest_ms) as f64 / 1000.0;
        if elapsed <= 0.0 {
            return (0.0, 0.0);
        }
        let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / elapsed;
        (
            rate(newest.put_messages, oldest.put_messages),
            rate(newest.got_messages, oldest.got_messages),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_taken_over_the_asked_time() {
        let stats = Stats::new(0);
        for second in 1..=20 {
            stats.sent("t", if second > 10 { 5 } else { 1 }, 10, true);
            stats.sample(second * 1000);
        }
        assert_eq!(stats.rates(10), (5.0, 0.0));
        assert_eq!(stats.rates(20), (3.0, 0.0));
        assert_eq!(stats.rates(600), (3.0, 0.0));
    }
}
