//! A position that only grows, and those who wait for it.
//!
//! Waiting needs no runtime: [`Progress::wait`] gives a plain future that works with any executor,
//! [`Progress::wait_blocking`] serves threads. An advance wakes exactly those whose target is
//! reached. A failure wakes everybody with the reason; the next advance clears it.
//!
//! Locks: one mutex around the waiters, held for a few instructions; the position itself is read
//! without it. The number of waiters is bounded by the callers (one for each request in flight).

use crate::error::StoreError;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A growing position with waiters.
#[derive(Debug)]
pub struct Progress {
    value: AtomicI64,
    waiters: Mutex<Waiters>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiters {
    next_id: u64,
    wakers: BTreeMap<(i64, u64), Waker>,
    blocked: usize,
    failure: Option<String>,
}

impl Progress {
    /// Starts at `value`.
    #[must_use]
    pub fn new(value: i64) -> Self {
        Self { value: AtomicI64::new(value), waiters: Mutex::default(), changed: Condvar::new() }
    }

    /// The position reached.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Acquire)
    }

    /// Moves to `value` (never backwards) and wakes everybody who waited for it or less.
    pub fn advance(&self, value: i64) {
        if self.value.fetch_max(value, Ordering::AcqRel) >= value {
            return;
        }
        let mut waiters = self.waiters.lock();
        waiters.failure = None;
        let later = waiters.wakers.split_off(&(value, u64::MAX));
        let reached = std::mem::replace(&mut waiters.wakers, later);
        if waiters.blocked > 0 {
            self.changed.notify_all();
        }
        drop(waiters);
        for (_, waker) in reached {
            waker.wake();
        }
    }

    /// Sets the position during recovery, backwards too. Nobody may be waiting.
    pub(crate) fn reset(&self, value: i64) {
        self.value.store(value, Ordering::Release);
    }

    /// Wakes everybody with `reason`; later waiters get it too until the position moves again.
    pub fn fail(&self, reason: &str) {
        let mut waiters = self.waiters.lock();
        waiters.failure = Some(reason.to_owned());
        let all = std::mem::take(&mut waiters.wakers);
        self.changed.notify_all();
        drop(waiters);
        for (_, waker) in all {
            waker.wake();
        }
    }

    /// Takes a failure back, after a repair.
    pub(crate) fn clear_failure(&self) {
        self.waiters.lock().failure = None;
    }

    /// Waits until the position is at least `target`.
    ///
    /// # Errors
    /// The future gives [`StoreError::NotReached`] when the position will not get there.
    pub fn wait(&self, target: i64) -> Wait<'_> {
        Wait { progress: self, target, id: None }
    }

    /// Waits in this thread, at most for `timeout`.
    ///
    /// # Errors
    /// [`StoreError::NotReached`] after a failure or when the time is over.
    pub fn wait_blocking(&self, target: i64, timeout: Duration) -> Result<(), StoreError> {
        let deadline = Instant::now() + timeout;
        let mut waiters = self.waiters.lock();
        loop {
            if let Some(result) = self.outcome(target, &waiters) {
                return result;
            }
            waiters.blocked += 1;
            let late = self.changed.wait_until(&mut waiters, deadline).timed_out();
            waiters.blocked -= 1;
            if late && self.get() < target {
                return Err(StoreError::NotReached {
                    target,
                    reason: "the time is over".to_owned(),
                });
            }
        }
    }

    fn outcome(&self, target: i64, waiters: &Waiters) -> Option<Result<(), StoreError>> {
        if self.get() >= target {
            return Some(Ok(()));
        }
        waiters
            .failure
            .as_ref()
            .map(|reason| Err(StoreError::NotReached { target, reason: reason.clone() }))
    }
}

/// The future of [`Progress::wait`]; dropping it takes the waiter out.
#[derive(Debug)]
pub struct Wait<'a> {
    progress: &'a Progress,
    target: i64,
    id: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.progress.get() >= self.target {
            return Poll::Ready(Ok(()));
        }
        let progress = self.progress;
        let mut waiters = progress.waiters.lock();
        if let Some(result) = progress.outcome(self.target, &waiters) {
            return Poll::Ready(result);
        }
        let id = self.id.unwrap_or_else(|| {
            waiters.next_id += 1;
            waiters.next_id
        });
        waiters.wakers.insert((self.target, id), context.waker().clone());
        drop(waiters);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.progress.waiters.lock().wakers.remove(&(self.target, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_advance_wakes_exactly_those_it_reaches() {
        let progress = Progress::new(0);
        let (near, far) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut first = Box::pin(progress.wait(10));
        let mut second = Box::pin(progress.wait(11));
        let poll = |wait: &mut Pin<Box<Wait<'_>>>, count: &Arc<Count>| {
            wait.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
        };
        assert!(poll(&mut first, &near).is_pending());
        assert!(poll(&mut second, &far).is_pending());
        progress.advance(10);
        assert_eq!(near.0.load(Ordering::Relaxed), 1);
        assert_eq!(far.0.load(Ordering::Relaxed), 0);
        assert!(poll(&mut first, &near).is_ready());
        drop(second);
        assert!(progress.waiters.lock().wakers.is_empty());
    }

    #[test]
    fn a_failure_reaches_waiters_and_an_advance_clears_it() {
        let progress = Progress::new(0);
        progress.fail("disk gone");
        let error = progress.wait_blocking(5, Duration::from_secs(5)).unwrap_err();
        assert!(error.to_string().contains("disk gone"));
        progress.advance(5);
        progress.wait_blocking(5, Duration::ZERO).unwrap();
    }

    #[test]
    fn the_position_never_goes_back() {
        let progress = Progress::new(7);
        progress.advance(3);
        assert_eq!(progress.get(), 7);
    }
}
