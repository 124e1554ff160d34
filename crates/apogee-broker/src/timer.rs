//! The timer: a task that lets `apogee_store::timer` take in messages and deliver what is due.
//!
//! What always holds: steps run one at a time, off the workers; after an I/O error the timer is opened
//! again from its files; while it cannot run, messages with a delivery time are refused and not
//! accepted to lie there. Progress is saved every `timerFlushIntervalMs` and at the stop.

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::error::BrokerError;
use apogee_store::MessageStore;
use apogee_store::timer::{TimerCheck, Timers};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest sleep: new messages are taken in this often, and a clock that was set is noticed.
const LONGEST_SLEEP_MS: i64 = 100;
/// Pause before the timer is opened again after an error.
const REOPEN_MS: i64 = 1_000;

/// The timer of a broker; empty with `timerWheelEnable=false`.
#[derive(Default)]
pub(crate) struct Timer {
    state: Mutex<State>,
    /// Whether messages with a delivery time will come out again.
    runs: AtomicBool,
    enabled: bool,
}

#[derive(Default)]
struct State {
    timers: Option<Timers>,
    check: TimerCheck,
    saved_at: i64,
    closed: bool,
}

impl Timer {
    /// Opens the timer's files.
    pub(crate) async fn open(store: &Arc<MessageStore>) -> Result<Self, BrokerError> {
        if !store.config().timer_wheel_enable {
            return Ok(Self::default());
        }
        let store = Arc::clone(store);
        // What was delivered is read from the log: not on a worker.
        let opened = tokio::task::spawn_blocking(move || Timers::open(&store, now_ms())).await;
        let timers = opened
            .map_err(|error| BrokerError::Config(format!("opening the timer failed: {error}")))??;
        let state = State { check: timers.check(), timers: Some(timers), ..State::default() };
        Ok(Self { state: Mutex::new(state), runs: AtomicBool::new(true), enabled: true })
    }

    /// Whether it is switched on.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether it works.
    pub(crate) fn runs(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    /// The last saved progress.
    pub(crate) fn check(&self) -> TimerCheck {
        self.state.lock().check
    }

    /// Delivers what is due and saves from time to time; answers how long to sleep (ms).
    fn run(&self, broker: &Broker) -> i64 {
        let mut state = self.state.lock();
        match self.run_steps(broker, &mut state) {
            Ok(wait) => {
                self.runs.store(true, Ordering::Release);
                wait
            }
            Err(error) => {
                tracing::error!(%error, "the timer stopped; it is opened again");
                self.runs.store(false, Ordering::Release);
                state.timers = None;
                REOPEN_MS
            }
        }
    }

    fn run_steps(&self, broker: &Broker, state: &mut State) -> Result<i64, BrokerError> {
        if state.closed || !self.enabled {
            return Ok(REOPEN_MS);
        }
        let timers = match &mut state.timers {
            Some(timers) => timers,
            empty => empty.insert(Timers::open(&broker.store, now_ms())?),
        };
        loop {
            let now = now_ms();
            let step = timers.step(now)?;
            let interval =
                i64::try_from(broker.store.config().timer_flush_interval_ms).unwrap_or(i64::MAX);
            if !(0..interval.max(10)).contains(&(now - state.saved_at)) {
                state.saved_at = now;
                timers.save(now)?;
                state.check = timers.check();
            }
            if step.wait_ms > 0 || broker.shutdown.is_cancelled() {
                return Ok(step.wait_ms);
            }
        }
    }

    /// Saves for the last time; nothing is delivered any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        if let Some(mut timers) = state.timers.take()
            && let Err(error) = timers.close(now_ms())
        {
            tracing::error!(%error, "the timer's progress cannot be saved; the next start reads it from the log");
        }
    }
}

/// Starts the timer's task.
pub(crate) fn start(broker: &Arc<Broker>) {
    if !broker.timer.is_enabled() {
        return;
    }
    let task = Arc::clone(broker);
    broker.tasks.spawn(async move {
        loop {
            let worker = Arc::clone(&task);
            let wait = tokio::task::spawn_blocking(move || worker.timer.run(&worker)).await;
            let sleep = wait.unwrap_or(REOPEN_MS).clamp(1, LONGEST_SLEEP_MS.max(REOPEN_MS));
            let sleep = if task.timer.runs() { sleep.min(LONGEST_SLEEP_MS) } else { sleep };
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(sleep.unsigned_abs())) => {}
                () = task.shutdown.cancelled() => return,
            }
        }
    });
}
