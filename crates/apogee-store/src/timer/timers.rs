//! The timer as a whole: start, step, save.
//!
//! | start finds | units of the log count | new messages are read from | deliveries are looked for from |
//! | --- | --- | --- | --- |
//! | our own save, and the commit log it belongs to | up to the saved end | the saved offset | the saved position |
//! | a save of the original that fits | up to the first that is none | behind the last unit | the file before the read time |
//! | neither | the same | behind the last unit | the log's start |

use super::TIMER_TOPIC;
use super::check::{Anchor, TimerCheck};
use super::deliver::Due;
use super::delivered::{self, Delivered};
use super::enqueue::Taken;
use super::log::TimerLog;
use super::wheel::{FILE_SLOTS, Wheel};
use crate::config::StoreConfig;
use crate::document::write_durably;
use crate::error::StoreError;
use crate::message_store::MessageStore;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Slots that a window may not reach into, as in the original.
const BLANK_SLOTS: i64 = 60;
/// Pause after an append that was refused (ms).
const RETRY_MS: i64 = 200;
/// Batches of deliveries in one step.
const BATCHES: usize = 32;
/// An idle timer saves its position again after this many log bytes, to keep the next start short.
const SAVE_AFTER_BYTES: i64 = 64 << 20;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Messages delivered or rolled.
    pub delivered: usize,
    /// When the next step is of use (ms from now); 0 = at once.
    pub wait_ms: i64,
}

/// Deliveries from `from` on matter until both conditions hold.
pub(super) struct Hold {
    until: i64,
    queue_until: i64,
    from: i64,
}

/// All timer messages of a store.
pub struct Timers {
    pub(super) store: Arc<MessageStore>,
    pub(super) precision: i64,
    /// Longest time that a message waits in one slot (ms).
    pub(super) window: i64,
    pub(super) log: TimerLog,
    pub(super) wheel: Wheel,
    pub(super) read_time: i64,
    pub(super) queue_offset: i64,
    pub(super) delivered: Delivered,
    pub(super) due: Option<Due>,
    pub(super) changed: bool,
    /// Whether the last slot wrote messages again: they must be taken in before time goes on.
    pub(super) rolled: bool,
    hold: Option<Hold>,
    check: TimerCheck,
    check_path: PathBuf,
    saved_position: i64,
}

/// From where a start goes on.
struct Origin {
    check: TimerCheck,
    anchor: Option<Anchor>,
    log_end: i64,
}

impl Timers {
    /// Opens the timer's files and finds out what is still to be delivered.
    ///
    /// # Errors
    /// I/O errors, and a `mappedFileSizeTimerLog` that the files do not have.
    pub fn open(store: &Arc<MessageStore>, now: i64) -> Result<Self, StoreError> {
        let config = store.config();
        let precision = config.timer_precision_ms;
        let check_path = config.config_dir().join("timercheck");
        let mut timers = Self {
            precision,
            window: window_slots(config) * precision,
            log: TimerLog::open(config)?,
            wheel: Wheel::new(config.store_path_root_dir.join("timerwheel"), precision),
            read_time: 0,
            queue_offset: 0,
            delivered: Delivered::default(),
            due: None,
            changed: false,
            rolled: false,
            hold: None,
            check: TimerCheck::default(),
            saved_position: 0,
            check_path,
            store: Arc::clone(store),
        };
        let origin = timers.origin(now)?;
        timers.recover(&origin, now)?;
        tracing::info!(
            waiting = timers.wheel.waiting(),
            read_time = timers.read_time,
            queue_offset = timers.queue_offset,
            exact = origin.anchor.is_some(),
            "timer messages are ready"
        );
        Ok(timers)
    }

    /// Looks at the save and decides how much of it can be believed.
    fn origin(&self, now: i64) -> Result<Origin, StoreError> {
        let saved = match std::fs::read(&self.check_path) {
            Ok(bytes) => TimerCheck::decode_file(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(StoreError::io("read", &self.check_path)(error)),
        };
        let log_end = self.log.scan(self.log.min(), i64::MAX, |_, _| ControlFlow::Continue(()));
        let queue_end = self.store.max_offset(TIMER_TOPIC, 0);
        let fits = |check: &TimerCheck| {
            (0..=queue_end).contains(&check.queue_offset) && (0..=log_end).contains(&check.log_end)
        };
        if let Some((check, anchor)) = saved.filter(|(check, _)| fits(check)) {
            let vouched = anchor.filter(|anchor| {
                self.hash(anchor.delivered_from, check.log_end) == Some(anchor.hash)
            });
            if vouched.is_some() {
                return Ok(Origin { log_end: check.log_end, check, anchor: vouched });
            }
            // With our mark but not our log, the save belongs to another time of this store.
            if anchor.is_none() && check.read_time > 0 && check.read_time <= now + self.precision {
                return Ok(Origin { check, anchor: None, log_end });
            }
        }
        if queue_end > 0 {
            tracing::warn!(
                "timercheck is missing or does not fit the store: the commit log is read for what was delivered"
            );
        }
        Ok(Origin { check: TimerCheck::default(), anchor: None, log_end })
    }

    fn recover(&mut self, origin: &Origin, now: i64) -> Result<(), StoreError> {
        let end = self.cut_log(origin)?;
        let span = (FILE_SLOTS - BLANK_SLOTS) * self.precision;
        let queue_end = self.store.max_offset(TIMER_TOPIC, 0);
        self.check = origin.check;
        self.read_time = origin.check.read_time.max(self.floor(now) - span);
        let behind_log = self.queue_offset_behind(end);
        self.queue_offset = match origin.anchor {
            Some(_) if end == origin.log_end => origin.check.queue_offset,
            _ if end >= origin.check.log_end && origin.check.read_time > 0 => {
                behind_log.unwrap_or(0).max(origin.check.queue_offset)
            }
            _ => behind_log.unwrap_or(0),
        };
        let log_min = self.store.min_physical_offset();
        let from = match origin.anchor {
            Some(anchor) => anchor.delivered_from.max(log_min),
            None if queue_end == 0 => self.store.log.appended().get(),
            None if origin.check.read_time > 0 => {
                delivered::position_by_time(&self.store, origin.check.read_time)
            }
            None => log_min,
        };
        self.delivered = Delivered::find(&self.store, from)?;
        if !self.delivered.is_empty() {
            let until = self.delivered.latest.max(self.floor(now));
            self.hold = Some(Hold { until, queue_until: queue_end, from });
        }
        let exact = origin.anchor.is_some() && end == origin.log_end;
        let relinked = self.rebuild(exact)?;
        if (!exact || relinked) && queue_end > 0 {
            // The log as it is now must not be taken for the one that the old save speaks of.
            self.save_now(now)?;
        }
        Ok(())
    }

    /// Cuts the log behind what counts, and units whose records the commit log has lost.
    fn cut_log(&mut self, origin: &Origin) -> Result<i64, StoreError> {
        let mut end = origin.log_end;
        let log_end = self.store.max_physical_offset();
        while let Some(last) = self.log.last_before(end) {
            let lost = self.log.read(last).is_none_or(|unit| {
                unit.end() > log_end || (origin.anchor.is_none() && self.record_of(&unit).is_none())
            });
            if !lost {
                break;
            }
            end = last;
        }
        self.log.set_end(end)?;
        Ok(end)
    }

    fn record_of(&self, unit: &super::unit::TimerUnit) -> Option<bytes::Bytes> {
        let size = usize::try_from(unit.size).ok();
        let bytes = self.store.get_by_physical_offset(unit.offset, size).ok().flatten()?;
        delivered::waiting_record(&bytes).is_some().then_some(bytes)
    }

    /// The queue offset that follows the message of the last unit.
    fn queue_offset_behind(&self, end: i64) -> Option<i64> {
        let unit = self.log.read(self.log.last_before(end)?)?;
        let bytes = self.record_of(&unit)?;
        delivered::waiting_record(&bytes).map(|record| record.queue_offset() + 1)
    }

    /// Makes the wheel from the log; `vouched`: the wheel's file holds the same already. Gives whether
    /// units had to be linked anew.
    fn rebuild(&mut self, vouched: bool) -> Result<bool, StoreError> {
        let mut wrong_links = Vec::new();
        let (wheel, read_time, precision) = (&mut self.wheel, self.read_time, self.precision);
        self.log.scan(self.log.min(), self.log.end(), |at, unit| {
            let time = unit.slot_time.div_euclid(precision) * precision;
            if time >= read_time {
                let previous = wheel.last_of(time);
                if unit.previous != previous {
                    wrong_links.push((at, previous));
                }
                wheel.add(time, at, unit.delete);
            }
            ControlFlow::Continue(())
        });
        if !wrong_links.is_empty() {
            self.log.mark_all_dirty();
        }
        for (at, previous) in &wrong_links {
            self.log.relink(*at, *previous)?;
        }
        if vouched && wrong_links.is_empty() && self.wheel.has_file() {
            self.wheel.mark_written();
        } else {
            self.wheel.empty_file()?;
            self.wheel.write_out()?;
        }
        Ok(!wrong_links.is_empty())
    }

    /// What tells this commit log and this timer log from all others: their bytes before two positions.
    fn hash(&self, delivered_from: i64, log_end: i64) -> Option<i64> {
        let commit_log = delivered::anchor_hash(&self.store, delivered_from)?;
        Some(commit_log << 32 | i64::from(self.log.hash_before(log_end)))
    }

    /// The tick that a time lies in.
    pub(super) fn floor(&self, time: i64) -> i64 {
        time.div_euclid(self.precision) * self.precision
    }

    /// Takes in new messages and delivers what is due. To be called at least once a tick, and again
    /// at once while [`Step::wait_ms`] is 0.
    ///
    /// # Errors
    /// I/O errors; the timer is then to be opened again.
    pub fn step(&mut self, now: i64) -> Result<Step, StoreError> {
        self.notice_clock_set_back(now);
        let next_tick = self.floor(now) + self.precision - now;
        let (taken, mut delivered) = self.enqueue(now)?;
        match taken {
            Taken::All => {}
            // A message that takes another back must be seen before the other is delivered.
            Taken::Part => return Ok(Step { delivered, wait_ms: 0 }),
            Taken::Refused => return Ok(Step { delivered, wait_ms: RETRY_MS }),
        }
        for _ in 0..BATCHES {
            if self.due.is_none() && !self.take_due(now)? {
                self.read_time = self.floor(now);
                self.end_hold();
                return Ok(Step { delivered, wait_ms: next_tick });
            }
            let (count, complete) = self.deliver_batch(now)?;
            delivered += count;
            if !complete {
                return Ok(Step { delivered, wait_ms: RETRY_MS });
            }
            if self.due.is_none() && std::mem::take(&mut self.rolled) {
                if self.store.is_sync_flush() {
                    // Before that the copies are not in the queue.
                    self.store.flush_log()?;
                }
                return Ok(Step { delivered, wait_ms: 0 });
            }
        }
        Ok(Step { delivered, wait_ms: 0 })
    }

    /// Ticks that were over and are not any more must be waited for again: a message for them would
    /// come early otherwise.
    fn notice_clock_set_back(&mut self, now: i64) {
        let tick = self.floor(now);
        if self.read_time <= tick {
            return;
        }
        let from = delivered::position_by_time(&self.store, tick);
        let (until, queue_until) = (self.read_time, self.queue_offset);
        self.hold = Some(match self.hold.take() {
            Some(hold) => Hold {
                until: hold.until.max(until),
                queue_until: hold.queue_until.max(queue_until),
                from: hold.from.min(from),
            },
            None => Hold { until, queue_until, from },
        });
        self.read_time = tick;
        self.changed = true;
    }

    fn end_hold(&mut self) {
        let over = self.hold.as_ref().is_some_and(|hold| {
            self.read_time > hold.until && self.queue_offset >= hold.queue_until
        });
        if over {
            self.hold = None;
            self.delivered = Delivered::default();
            self.changed = true;
        }
    }

    /// Messages in the wheel, as the original counts them.
    #[must_use]
    pub fn waiting(&self) -> i64 {
        self.wheel.waiting()
    }

    /// The last save.
    #[must_use]
    pub fn check(&self) -> TimerCheck {
        self.check
    }

    /// Time, first and last position and count of each slot: for tools and tests.
    pub fn slots(&self) -> impl Iterator<Item = (i64, i64, i64, i32)> {
        self.wheel.slots().map(|(time, slot)| (time, slot.first, slot.last, slot.count))
    }

    /// Brings everything to the disk and writes `timercheck`, if anything changed.
    ///
    /// # Errors
    /// The first I/O error; the old save stays.
    pub fn save(&mut self, now: i64) -> Result<(), StoreError> {
        let appended = self.store.log.appended().get();
        let idle = !self.changed && appended - self.saved_position < SAVE_AFTER_BYTES;
        // A store that never saw a timer message gets no timer files.
        if idle || (self.queue_offset == 0 && self.check == TimerCheck::default()) {
            return Ok(());
        }
        self.save_now(now)
    }

    /// The last save before the end: also of a timer that only let time pass.
    ///
    /// # Errors
    /// The first I/O error; the old save stays.
    pub fn close(&mut self, now: i64) -> Result<(), StoreError> {
        self.changed = true;
        self.save(now)
    }

    fn save_now(&mut self, now: i64) -> Result<(), StoreError> {
        let appended = self.store.log.appended().get();
        // What the save calls delivered must not be lost with the power.
        if self.store.flushed().get() < appended {
            self.store.flush_log()?;
        }
        self.log.delete_expired(self.store.min_physical_offset())?;
        self.log.sync()?;
        self.wheel.sync()?;
        let mut read_time = self.read_time;
        let mut from = appended;
        if let Some(due) = &self.due {
            read_time = read_time.min(due.time);
            from = from.min(due.began);
        }
        if let Some(hold) = &self.hold {
            from = from.min(hold.from);
        }
        let check = TimerCheck {
            read_time,
            log_end: self.log.end(),
            queue_offset: self.queue_offset,
            state_version: self.check.state_version,
            timestamp: now,
            counter: self.check.counter + 1,
        };
        let hash = self.hash(from, check.log_end).unwrap_or(0);
        let bytes = check.encode_file(Anchor { delivered_from: from, hash });
        write_durably(&self.check_path, &bytes)?;
        self.check = check;
        self.saved_position = appended;
        self.changed = false;
        Ok(())
    }
}

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers")
            .field("read_time", &self.read_time)
            .field("queue_offset", &self.queue_offset)
            .finish_non_exhaustive()
    }
}

/// The window in slots; out of range means the largest.
fn window_slots(config: &StoreConfig) -> i64 {
    let largest = FILE_SLOTS / 2 - BLANK_SLOTS;
    let slots = config.timer_roll_window_slot;
    if (2..=largest).contains(&slots) { slots } else { largest }
}
