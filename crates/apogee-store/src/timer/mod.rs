//! Timer messages: kept until their time, then appended to their real topic.
//!
//! A timer message is a record of `rmq_sys_wheel_timer` queue 0 with TIMER_OUT_MS, REAL_TOPIC and
//! REAL_QID. Its out time is a whole tick (`timerPrecisionMs`) before the asked time, and it is
//! delivered when that tick is over: never early, at most one tick late. Messages beyond the window
//! (`timerRollWindowSlot`) are written again at its end to wait on.
//!
//! Reading order: `timers` is the whole, its start and its saves; `enqueue` and `deliver` are the
//! two halves of a step; `log`, `wheel` and `check` are the files (formats in `unit`); `delivered`
//! finds in the commit log what was delivered.
//!
//! What always holds: the commit log is the truth. A start makes the wheel from the timer log, the
//! timer log from the timer queue, and leaves out what the commit log shows as delivered; so each
//! message is delivered once, whichever file is old, new or missing. One thread owns a [`Timers`]
//! and calls [`Timers::step`]; there is no lock and no clock.

mod check;
mod deliver;
mod delivered;
mod enqueue;
mod log;
mod timers;
mod unit;
mod wheel;

pub use check::TimerCheck;
pub use timers::{Step, Timers};

/// Where timer messages wait.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Property: when the message was put into the wheel (ms), or the largest number if it came too late.
pub const ENQUEUE_KEY: &str = "TIMER_ENQUEUE_MS";
/// Property: when it was taken out (ms).
pub const DEQUEUE_KEY: &str = "TIMER_DEQUEUE_MS";
/// Property: how often it was written again to wait on.
pub const ROLL_TIMES_KEY: &str = "TIMER_ROLL_TIMES";
/// Bytes that delivery may add to a message's properties.
pub const ADDED_PROPERTIES_LEN: usize = 96;

/// The out time of a message that is to be delivered at `deliver_ms`: a whole tick before it.
#[must_use]
pub fn out_time(deliver_ms: i64, precision_ms: i64) -> i64 {
    let precision = precision_ms.max(1);
    (deliver_ms - 1).div_euclid(precision) * precision
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_out_time_is_the_tick_that_ends_at_or_after_the_asked_time() {
        let cases = [(3_000, 2_000), (3_001, 3_000), (3_999, 3_000), (2_999, 2_000)];
        for (deliver, out) in cases {
            assert_eq!(out_time(deliver, 1_000), out, "{deliver}");
        }
        assert_eq!(out_time(3_000, 100), 2_900);
    }
}
