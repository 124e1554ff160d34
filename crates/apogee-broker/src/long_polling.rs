//! Pulls that found nothing and wait for a message.
//!
//! What always holds: a parked pull is in this table or on its way to the delivery task, never both and
//! never neither; the number of parked pulls has a limit, at which the pull is answered at once. A
//! message that arrives takes all pulls of its queue out; whoever does not match is parked again.

use apogee_net::Connection;
use apogee_protocol::ReplyTo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use tokio::sync::mpsc;

const SHARDS: usize = 16;

/// A waiting pull.
pub(crate) struct ParkedPull {
    /// Who asks.
    pub(crate) connection: Arc<Connection>,
    /// Which request is answered.
    pub(crate) reply_to: ReplyTo,
    /// What is asked for.
    pub(crate) pull: Arc<crate::processor::pull::PullRequest>,
    /// Where reading goes on.
    pub(crate) offset: i64,
    /// When it is answered even without a message (ms).
    pub(crate) deadline_ms: i64,
    /// Whether it has waited already: then messages that don't match are no reason to answer.
    pub(crate) woken: bool,
}

type Queues = HashMap<Box<str>, HashMap<i32, Vec<ParkedPull>>>;

/// The table of waiting pulls.
pub(crate) struct LongPolling {
    shards: Vec<Mutex<Queues>>,
    hasher: RandomState,
    count: AtomicUsize,
    limit: usize,
    woken: mpsc::UnboundedSender<Vec<ParkedPull>>,
}

impl LongPolling {
    /// A table for up to `limit` pulls; woken ones come out of the receiver. The channel needs no
    /// limit of its own: only parked pulls go through it, and those are counted.
    pub(crate) fn new(limit: usize) -> (Self, mpsc::UnboundedReceiver<Vec<ParkedPull>>) {
        let (woken, receiver) = mpsc::unbounded_channel();
        let table = Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
            limit,
            woken,
        };
        (table, receiver)
    }

    fn shard(&self, topic: &str) -> Option<&Mutex<Queues>> {
        let at = self.hasher.hash_one(topic) as usize % SHARDS;
        self.shards.get(at)
    }

    /// Parks a pull, or gives it back if the table is full.
    ///
    /// `has_news` is asked while the queue is locked: a message that arrived between the read that
    /// found nothing and this call must not be slept through.
    pub(crate) fn park(
        &self,
        pull: ParkedPull,
        has_news: impl FnOnce() -> bool,
    ) -> Result<(), ParkedPull> {
        let (topic, queue_id) = (pull.pull.topic.clone(), pull.pull.queue_id);
        let Some(shard) = self.shard(&topic) else { return Err(pull) };
        if self.count.fetch_add(1, Ordering::SeqCst) >= self.limit {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return Err(pull);
        }
        // Pairs with the fence in `arrived`: either that one sees the count, or `has_news` sees the
        // message.
        fence(Ordering::SeqCst);
        let mut queues = shard.lock();
        if has_news() {
            drop(queues);
            self.wake(vec![pull]);
            return Ok(());
        }
        let by_id = match queues.get_mut(topic.as_ref()) {
            Some(by_id) => by_id,
            None => queues.entry(topic.as_ref().into()).or_default(),
        };
        by_id.entry(queue_id).or_default().push(pull);
        Ok(())
    }

    /// Sends all pulls of a queue to the delivery task.
    pub(crate) fn arrived(&self, topic: &str, queue_id: i32) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let Some(shard) = self.shard(topic) else { return };
        let taken = shard.lock().get_mut(topic).and_then(|by_id| by_id.remove(&queue_id));
        if let Some(pulls) = taken {
            self.wake(pulls);
        }
    }

    /// Sends all pulls of a topic to the delivery task: it is gone.
    pub(crate) fn deleted(&self, topic: &str) {
        let taken = self.shard(topic).and_then(|shard| shard.lock().remove(topic));
        let pulls: Vec<ParkedPull> =
            taken.into_iter().flat_map(HashMap::into_values).flatten().collect();
        if !pulls.is_empty() {
            self.wake(pulls);
        }
    }

    /// Sends all pulls to the delivery task whose time is up or whose client has gone, or, with
    /// `everything`, all there are (shutdown).
    pub(crate) fn expire(&self, now: i64, everything: bool) {
        for shard in &self.shards {
            let mut expired = Vec::new();
            shard.lock().retain(|_, by_id| {
                by_id.retain(|_, pulls| {
                    let due = |pull: &mut ParkedPull| {
                        everything || pull.deadline_ms <= now || pull.connection.is_closed()
                    };
                    expired.extend(pulls.extract_if(.., due));
                    !pulls.is_empty()
                });
                !by_id.is_empty()
            });
            if !expired.is_empty() {
                self.wake(expired);
            }
        }
    }

    /// How many pulls wait.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn wake(&self, pulls: Vec<ParkedPull>) {
        // The receiver lives as long as the broker; after that nobody needs an answer.
        let _ = self.woken.send(pulls);
    }

    /// The delivery task has taken this many pulls.
    pub(crate) fn taken(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
    }
}
