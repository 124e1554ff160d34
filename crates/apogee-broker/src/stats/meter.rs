//! One thing that is counted, and what it was over the last minute, hour and day.
//!
//! What always holds: counting is four relaxed additions, without lock or allocation; a history keeps at
//! most 8, 8 and 26 samples, and two where nothing happens. Sampling and reading take the history's lock.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happened, since the meter was made or over a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Messages.
    pub(crate) messages: u64,
    /// Bytes of their bodies (put) or records (got).
    pub(crate) bytes: u64,
    /// Milliseconds that requests took, all together.
    pub(crate) latency_ms: u64,
    /// Requests.
    pub(crate) times: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.latency_ms += other.latency_ms;
        self.times += other.times;
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(earlier.messages),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            latency_ms: self.latency_ms.saturating_sub(earlier.latency_ms),
            times: self.times.saturating_sub(earlier.times),
        }
    }

    /// One of the numbers.
    pub(crate) fn get(self, column: Column) -> u64 {
        match column {
            Column::Messages => self.messages,
            Column::Bytes => self.bytes,
            Column::LatencyMs => self.latency_ms,
        }
    }
}

/// Which number of a meter a statistic shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Messages,
    Bytes,
    LatencyMs,
}

/// How far a statistic looks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Minute,
    Hour,
    Day,
}

impl Span {
    pub(crate) const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    const fn length_ms(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }

    /// How far samples lie apart; rates of a shorter time than this are taken over this time, as the
    /// original does.
    const fn step_ms(self) -> i64 {
        match self {
            Self::Minute => 10_000,
            Self::Hour => 600_000,
            Self::Day => 3_600_000,
        }
    }
}

/// A statistic over a span, in the original's terms.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) sum: u64,
    /// Per second.
    pub(crate) rate: f64,
    /// Per request.
    pub(crate) average: f64,
}

type Samples = VecDeque<(i64, Counts)>;

#[derive(Debug)]
struct History {
    born_ms: i64,
    spans: [Samples; 3],
}

/// A thing that is counted.
#[derive(Debug)]
pub(crate) struct Meter {
    messages: AtomicU64,
    bytes: AtomicU64,
    latency_ms: AtomicU64,
    times: AtomicU64,
    history: Mutex<History>,
}

impl Meter {
    pub(crate) fn new(now: i64) -> Self {
        Self {
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            latency_ms: AtomicU64::new(0),
            times: AtomicU64::new(0),
            history: Mutex::new(History { born_ms: now, spans: Default::default() }),
        }
    }

    pub(crate) fn count(&self, what: Counts) {
        self.messages.fetch_add(what.messages, Ordering::Relaxed);
        self.bytes.fetch_add(what.bytes, Ordering::Relaxed);
        if what.latency_ms > 0 {
            self.latency_ms.fetch_add(what.latency_ms, Ordering::Relaxed);
        }
        self.times.fetch_add(what.times, Ordering::Relaxed);
    }

    /// Everything since the meter was made.
    pub(crate) fn total(&self) -> Counts {
        Counts {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            latency_ms: self.latency_ms.load(Ordering::Relaxed),
            times: self.times.load(Ordering::Relaxed),
        }
    }

    /// Takes the samples that are due. False if nothing happened for over a day: such a meter may go.
    pub(crate) fn sample(&self, now: i64) -> bool {
        let total = self.total();
        let mut history = self.history.lock();
        let born_ms = history.born_ms;
        for (span, samples) in Span::ALL.into_iter().zip(&mut history.spans) {
            let last = samples.back().map_or(born_ms, |(at, _)| *at);
            // Rounds come every step of the minute, not to the millisecond.
            if now - last >= span.step_ms() - Span::Minute.step_ms() / 2 {
                push(samples, span, born_ms, now, total);
            }
        }
        let [.., day] = &history.spans;
        let before = day.front();
        before.is_none_or(|(at, then)| *then != total || now - at < Span::Day.length_ms())
    }

    /// A number over a span up to now.
    pub(crate) fn over(&self, span: Span, column: Column, now: i64) -> Snapshot {
        let total = self.total();
        let history = self.history.lock();
        let samples = Span::ALL.iter().zip(&history.spans).find(|(known, _)| **known == span);
        let start = samples.and_then(|(_, samples)| samples.front().copied());
        let (since_ms, before) = start.unwrap_or((history.born_ms, Counts::default()));
        drop(history);
        let counts = total.since(before);
        let sum = counts.get(column);
        let elapsed_ms = (now - since_ms).max(span.step_ms());
        let average = if counts.times > 0 { sum as f64 / counts.times as f64 } else { 0.0 };
        Snapshot { sum, rate: sum as f64 * 1000.0 / elapsed_ms as f64, average }
    }
}

fn push(samples: &mut Samples, span: Span, born_ms: i64, now: i64, total: Counts) {
    if samples.is_empty() {
        samples.push_back((born_ms, Counts::default()));
    }
    let mut newest = samples.iter_mut().rev();
    match (newest.next(), newest.next()) {
        // Where nothing happens, the last sample only moves on.
        (Some(last), Some((_, before))) if last.1 == total && *before == total => last.0 = now,
        _ => samples.push_back((now, total)),
    }
    // The first sample is the newest of those at or before the begin of the span.
    let begin = now - span.length_ms();
    while samples.get(1).is_some_and(|(at, _)| *at <= begin) {
        samples.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(messages: u64) -> Counts {
        Counts { messages, bytes: messages * 10, latency_ms: 0, times: 1 }
    }

    #[test]
    fn what_was_counted_shows_at_once_over_the_first_step() {
        let meter = Meter::new(1_000);
        meter.count(messages(20));
        let minute = meter.over(Span::Minute, Column::Messages, 1_500);
        assert_eq!(minute, Snapshot { sum: 20, rate: 2.0, average: 20.0 });
        assert_eq!(meter.over(Span::Day, Column::Bytes, 1_500).sum, 200);
    }

    #[test]
    fn a_minute_forgets_what_an_hour_and_a_day_remember() {
        let meter = Meter::new(0);
        meter.count(messages(60));
        let mut now = 0;
        for _ in 0..(2 * 360) {
            now += 10_000;
            assert!(meter.sample(now));
        }
        assert_eq!(meter.over(Span::Minute, Column::Messages, now).sum, 0);
        assert_eq!(meter.over(Span::Hour, Column::Messages, now).sum, 0);
        assert_eq!(meter.over(Span::Day, Column::Messages, now).sum, 60);
        meter.count(messages(6));
        assert_eq!(meter.over(Span::Minute, Column::Messages, now).sum, 6);
        assert_eq!(meter.over(Span::Hour, Column::Messages, now).sum, 6);
    }

    #[test]
    fn histories_stay_small_and_an_idle_day_ends_a_meter() {
        let meter = Meter::new(0);
        let mut now = 0;
        for _ in 0..(25 * 360) {
            now += 10_000;
            meter.count(messages(1));
            assert!(meter.sample(now));
        }
        for (samples, most) in meter.history.lock().spans.iter().zip([8, 8, 26]) {
            assert!(samples.len() <= most, "{} > {most}", samples.len());
        }
        let rate = meter.over(Span::Day, Column::Messages, now).rate;
        assert!((0.099..0.101).contains(&rate), "{rate}");
        let mut alive = true;
        for _ in 0..(26 * 360) {
            now += 10_000;
            alive = meter.sample(now);
        }
        assert!(!alive);
    }
}
