//! Pop consumption: the broker hands out single messages for a time instead of whole queues.
//!
//! Reading order: `machine` says what becomes of a popped message; `receipt` and `records` are its texts
//! and its records; `revive` keeps the records of each revive queue and puts back what nobody settled;
//! `popping` serves POP_MESSAGE, `settling` acknowledgements and changed times, `order` what ordered groups
//! have in hand, `looking` the requests that only look, `assign` which client pops or pulls which queue.
//!
//! What always holds: a message is answered only after its checkpoint is in the log; an acknowledgement is
//! answered only after its record is in the log (written, not flushed: a power cut may bring an acknowledged
//! message back, a killed process does not); both stand in one revive queue, whose lock is held from
//! the look at the machine to the change. Locks, in this order: a queue of a group, a revive queue, then the
//! store and the tables of offsets and topics, which call nobody.

pub(crate) mod assign;
pub(crate) mod looking;
mod machine;
mod order;
pub(crate) mod polling;
pub(crate) mod popping;
mod receipt;
mod records;
mod revive;
pub(crate) mod settling;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use apogee_store::MessageStore;
use assign::RequestModes;
use order::OrderTable;
use parking_lot::{Mutex, MutexGuard};
use polling::{Parked, PopPolling};
use revive::Lane;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Locks over queues of groups; two that share one only wait for each other.
const QUEUE_LOCKS: usize = 256;
/// Most revive queues that are believed, whatever a store holds.
const MAX_REVIVE_QUEUES: i32 = 256;
/// How often waiting requests are looked through for those whose time is up.
const POLLING_EVERY: Duration = Duration::from_millis(100);

/// Everything that pop consumption owns.
pub(crate) struct Pop {
    revive_topic: String,
    lanes: Vec<Mutex<Lane>>,
    queues: Vec<Mutex<()>>,
    hasher: RandomState,
    turn: AtomicUsize,
    pub(crate) polling: Arc<PopPolling>,
    order: OrderTable,
    pub(crate) modes: RequestModes,
}

/// The topic of checkpoints and acknowledgements.
pub(crate) fn revive_topic(cluster: &str) -> String {
    format!("rmq_sys_REVIVE_LOG_{cluster}")
}

/// The retry topics that a group's pops of a topic may have.
pub(crate) fn retry_topics(topic: &str, group: &str) -> [String; 2] {
    [receipt::Source::RetryV1, receipt::Source::RetryV2].map(|kind| kind.real_topic(topic, group))
}

impl Pop {
    /// Loads the documents.
    ///
    /// # Errors
    /// When a document and its backup are both unreadable.
    pub(crate) fn load(
        config_dir: &Path,
        config: &BrokerConfig,
        store: &MessageStore,
        polling: Arc<PopPolling>,
    ) -> Result<Self, BrokerError> {
        let revive_topic = revive_topic(&config.broker_cluster_name);
        // A store may hold records in more queues than the settings name now.
        let stored = store
            .topic_queues(&revive_topic)
            .iter()
            .map(|queue| queue.queue_id().saturating_add(1))
            .max();
        let lanes = config.revive_queue_num.max(stored.unwrap_or(0)).clamp(1, MAX_REVIVE_QUEUES);
        Ok(Self {
            revive_topic,
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
            queues: (0..QUEUE_LOCKS).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::new(),
            turn: AtomicUsize::new(0),
            polling,
            order: OrderTable::load(config_dir)?,
            modes: RequestModes::load(config_dir)?,
        })
    }

    /// Keeps others from popping the same queue for the same group.
    fn lock_queue(&self, topic: &str, group: &str, queue_id: i32) -> Option<MutexGuard<'_, ()>> {
        let at = self.hasher.hash_one((topic, group, queue_id)) as usize % QUEUE_LOCKS;
        self.queues.get(at).map(Mutex::lock)
    }

    /// The revive queue of a number that a handle names.
    fn lane(&self, revive_queue: i32) -> Option<&Mutex<Lane>> {
        self.lanes.get(usize::try_from(revive_queue).ok()?)
    }

    /// The revive queue for the next pop.
    fn next_revive_queue(&self, configured: i32) -> i32 {
        let queues = usize::try_from(configured).unwrap_or(1).clamp(1, self.lanes.len());
        i32::try_from(self.turn.fetch_add(1, Ordering::Relaxed) % queues).unwrap_or(0)
    }

    /// Saves what ordered groups have in hand.
    pub(crate) fn save(&self) {
        if let Err(error) = self.order.save(now_ms()) {
            tracing::error!(%error, "consumerOrderInfo.json cannot be saved; it is tried again");
        }
    }

    /// Popped messages that nobody has settled yet, by checkpoints.
    pub(crate) fn open_checkpoints(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lock().len()).sum()
    }
}

/// Reads the revive queues; before that no request may be served.
pub(crate) fn recover(broker: &Broker) {
    revive::recover(broker);
    let open = broker.pop.open_checkpoints();
    if open > 0 {
        tracing::info!(open, "popped messages that wait for acknowledgements were found again");
    }
}

/// A topic is gone: nothing of it comes back.
pub(crate) fn forget_topic(broker: &Broker, topic: &str) {
    revive::forget_topic(broker, topic, now_ms());
    broker.pop.order.forget_topic(topic);
    broker.pop.modes.forget_topic(topic);
}

/// Starts the tasks.
pub(crate) fn start(broker: &Arc<Broker>, woken: mpsc::UnboundedReceiver<Vec<Parked>>) {
    broker.tasks.spawn(deliver(Arc::clone(broker), woken));
    let task = Arc::clone(broker);
    broker.tasks.spawn(async move {
        let mut ticks = tokio::time::interval(POLLING_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => task.pop.polling.expire(now_ms(), false),
                () = task.shutdown.cancelled() => return,
            }
        }
    });
    let task = Arc::clone(broker);
    let period = Duration::from_millis(broker.config.revive_interval.clamp(10, 60_000));
    let save_every =
        i64::try_from(broker.config.flush_consumer_offset_interval).unwrap_or(i64::MAX);
    broker.tasks.spawn(async move {
        let mut saved_at = now_ms();
        loop {
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                () = task.shutdown.cancelled() => return,
            }
            let worker = Arc::clone(&task);
            // Messages to put back may have left memory long ago. A panic is logged by the runtime and
            // must not end the series.
            let now = now_ms();
            // As often as the offsets that go with it; also after the clock was set back.
            let save = !(0..save_every).contains(&now.saturating_sub(saved_at));
            if save {
                saved_at = now;
            }
            let _ = tokio::task::spawn_blocking(move || {
                revive::step(&worker, now);
                if save {
                    worker.pop.save();
                }
            })
            .await;
        }
    });
}

/// Serves requests that were woken.
async fn deliver(broker: Arc<Broker>, mut woken: mpsc::UnboundedReceiver<Vec<Parked>>) {
    loop {
        let all = tokio::select! {
            biased;
            all = woken.recv() => all,
            () = broker.shutdown.cancelled() => return,
        };
        let Some(all) = all else { return };
        broker.pop.polling.taken(all.len());
        for parked in all {
            popping::again(&broker, parked);
        }
    }
}
