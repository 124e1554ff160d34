//! The store's threads: each one calls a step of the store again and again until it is told to
//! stop. Tests and the simulator call the steps themselves and start none.
//!
//! | thread | step | when |
//! | --- | --- | --- |
//! | `store-flush` | [`MessageStore::flush_log`], repair after an error | when something was appended (SYNC_FLUSH), else every `flushIntervalCommitLog` |
//! | `store-derive` | queue units and index out of memory, checkpoint | every `flushIntervalConsumeQueue` |
//! | `store-allocate` | the next commit log file | ten times a second |
//! | `store-measure` | [`MessageStore::measure_space`] | every second |
//! | `store-clean` | [`MessageStore::clean`] | every `cleanResourceInterval`, first after a minute |
//!
//! The clock is the caller's: a function that gives ms since 1970.

use crate::message_store::MessageStore;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The caller's clock: ms since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

const ALLOCATE_EVERY: Duration = Duration::from_millis(100);
const MEASURE_EVERY: Duration = Duration::from_secs(1);
const FIRST_CLEANING_AFTER: Duration = Duration::from_secs(60);
const REPAIR_EVERY: Duration = Duration::from_millis(500);

/// Running threads; dropping stops and joins them.
pub struct StoreThreads {
    signal: Arc<Signal>,
    store: Arc<MessageStore>,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Signal {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Sleeps; gives true when it is time to stop.
    fn sleep(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, time);
        }
        *stopped
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.lock()
    }
}

impl MessageStore {
    /// Starts the store's threads.
    ///
    /// # Errors
    /// The system's error when a thread cannot be made; those made are stopped again.
    pub fn start_threads(self: &Arc<Self>, clock: &Clock) -> std::io::Result<StoreThreads> {
        let mut threads =
            StoreThreads { signal: Arc::default(), store: Arc::clone(self), handles: Vec::new() };
        type Body = fn(&Arc<MessageStore>, &Signal, &Clock);
        let bodies: [(&str, Body); 5] = [
            ("store-flush", flush_loop),
            ("store-derive", derive_loop),
            ("store-allocate", allocate_loop),
            ("store-measure", measure_loop),
            ("store-clean", clean_loop),
        ];
        for (name, body) in bodies {
            let (store, signal) = (Arc::clone(self), Arc::clone(&threads.signal));
            let clock = Arc::clone(clock);
            let handle = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || body(&store, &signal, &clock))?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }
}

impl StoreThreads {
    /// Stops and joins the threads. What is not flushed yet is the business of
    /// [`MessageStore::shutdown`].
    pub fn stop(mut self) {
        self.stop_all();
    }

    fn stop_all(&mut self) {
        *self.signal.stopped.lock() = true;
        self.signal.changed.notify_all();
        self.store.flush_request.wake();
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                tracing::error!("a store thread ended with a panic");
            }
        }
    }
}

impl Drop for StoreThreads {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// Tells the flusher that something waits.
#[derive(Default)]
pub(crate) struct FlushRequest {
    wanted: Mutex<bool>,
    changed: Condvar,
}

impl FlushRequest {
    pub(crate) fn wake(&self) {
        let mut wanted = self.wanted.lock();
        if !*wanted {
            *wanted = true;
            self.changed.notify_one();
        }
    }

    fn wait(&self, time: Duration) {
        let mut wanted = self.wanted.lock();
        if !*wanted {
            self.changed.wait_for(&mut wanted, time);
        }
        *wanted = false;
    }
}

fn flush_loop(store: &Arc<MessageStore>, signal: &Signal, clock: &Clock) {
    let interval = Duration::from_millis(store.config.flush_interval_commit_log.max(1));
    let mut last_flush = clock();
    while !signal.is_stopped() {
        if store.is_sync_flush() {
            store.flush_request.wait(interval);
        } else if signal.sleep(interval) {
            break;
        }
        if store.log.poison().is_some() {
            if let Err(error) = store.try_recover() {
                tracing::warn!(%error, "the store is still not writable");
                if signal.sleep(REPAIR_EVERY) {
                    break;
                }
            }
            continue;
        }
        let now = clock();
        if store.is_sync_flush() || store.flush_is_due(now - last_flush) {
            last_flush = now;
            // The error has been logged with the poisoning; the next turn repairs.
            let _ = store.flush_log();
        }
    }
}

fn derive_loop(store: &Arc<MessageStore>, signal: &Signal, clock: &Clock) {
    let interval = Duration::from_millis(store.config.flush_interval_consume_queue.max(1));
    let mut last_checkpoint = clock();
    let mut saved = store.dispatcher.dispatched();
    let mut recovered = store.recovery().crashed;
    while !signal.sleep(interval) {
        let now = clock();
        let thorough = store.config.flush_consume_queue_thorough_interval;
        let moved = store.dispatcher.dispatched() != saved;
        let due = moved && now - last_checkpoint >= thorough;
        // After a crash the first checkpoint comes soon: the next recovery shall be short.
        let result = if due || std::mem::take(&mut recovered) {
            last_checkpoint = now;
            saved = store.dispatcher.dispatched();
            store.save_checkpoint()
        } else {
            store.flush_derived()
        };
        if let Err(error) = result {
            tracing::error!(%error, "queues or index could not be written; trying again");
        }
    }
}

fn allocate_loop(store: &Arc<MessageStore>, signal: &Signal, _clock: &Clock) {
    while !signal.sleep(ALLOCATE_EVERY) {
        if let Err(error) = store.allocate_ahead() {
            tracing::warn!(%error, "the next commit log file could not be made ahead of time");
        }
    }
}

fn measure_loop(store: &Arc<MessageStore>, signal: &Signal, _clock: &Clock) {
    loop {
        if let Err(error) = store.measure_space() {
            tracing::warn!(%error, "disk usage is not known");
        }
        if signal.sleep(MEASURE_EVERY) {
            return;
        }
    }
}

fn clean_loop(store: &Arc<MessageStore>, signal: &Signal, clock: &Clock) {
    let interval = Duration::from_millis(store.config.clean_resource_interval.max(1));
    let mut pause = FIRST_CLEANING_AFTER;
    while !signal.sleep(pause) {
        pause = interval;
        if let Err(error) = store.clean(clock()) {
            tracing::warn!(%error, "a cleaning round broke off");
        }
    }
}

impl MessageStore {
    /// Whether an asynchronous flush is due: enough dirty pages, or enough time.
    pub(crate) fn flush_is_due(&self, since_last_ms: i64) -> bool {
        let dirty = self.log.appended().get() - self.log.flushed().get();
        let least = (self.config.flush_commit_log_least_pages * 4096) as i64;
        dirty > 0
            && (dirty >= least || since_last_ms >= self.config.flush_commit_log_thorough_interval)
    }
}
