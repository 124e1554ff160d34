//! The broker as a whole: what it owns, how it starts and how it stops.
//!
//! Start: sockets are bound first (so that a port in use is the first thing said), then the store is
//! opened and the documents are loaded, then tasks run, then requests are accepted. Stop is the reverse:
//! no more requests, everything saved, store closed.

use crate::clients::{Clients, Departure};
use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::delay::{self, DelayOffsets};
use crate::dispatch::{Entrance, Lanes};
use crate::error::BrokerError;
use crate::filters::FilterTable;
use crate::groups::GroupTable;
use crate::housekeeping::{self, Saved};
use crate::live::Live;
use crate::long_polling::{LongPolling, ParkedPull};
use crate::offsets::OffsetTable;
use crate::pop::polling::PopPolling;
use crate::pop::{self, Pop};
use crate::queue_locks::QueueLocks;
use crate::registration::Registration;
use crate::send_backs::SendBacks;
use crate::stats::Stats;
use crate::timer::{self, Timer};
use crate::topics::TopicTable;
use crate::transaction::{self, Transactions};
use apogee_model::id::UniqueIdMaker;
use apogee_model::names::SCHEDULE_TOPIC;
use apogee_model::properties::keys;
use apogee_net::{Limits, Server};
use apogee_store::cleaning::CommittedOffsets;
use apogee_store::delay_level::DelayLevels;
use apogee_store::{Arrival, ArrivalListener, MessageStore, StoreConfig, StoreThreads};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often a free pair of ports is looked for.
const PORT_TRIES: usize = 64;
/// How long the answers of waiting pulls may take when the broker stops.
const ANSWER_PATIENCE: Duration = Duration::from_millis(200);
/// How long tasks may take to end when the broker stops.
const STOP_PATIENCE: Duration = Duration::from_millis(1_500);

/// Where a broker listens.
#[derive(Debug, Clone)]
pub struct Listen {
    /// Address to bind.
    pub host: IpAddr,
    /// Main port; the fast port is two below. 0 takes any free pair.
    pub port: u16,
    /// Limits of each connection.
    pub limits: Limits,
}

/// A running broker.
pub struct Broker {
    pub(crate) config: BrokerConfig,
    pub(crate) live: Live,
    pub(crate) store: Arc<MessageStore>,
    pub(crate) topics: TopicTable,
    pub(crate) groups: GroupTable,
    pub(crate) filters: FilterTable,
    pub(crate) offsets: OffsetTable,
    pub(crate) saved: Saved,
    pub(crate) clients: Clients,
    pub(crate) locks: QueueLocks,
    pub(crate) polling: Arc<LongPolling>,
    pub(crate) pop: Pop,
    pub(crate) delay: DelayOffsets,
    pub(crate) delay_wake: Arc<Notify>,
    pub(crate) timer: Timer,
    pub(crate) send_backs: SendBacks,
    pub(crate) transactions: Transactions,
    pub(crate) registration: Registration,
    pub(crate) lanes: Lanes,
    pub(crate) stats: Stats,
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
    pub(crate) store_host: SocketAddr,
    pub(crate) added_properties_len: usize,
    pub(crate) changed_groups: Mutex<HashSet<Box<str>>>,
    pub(crate) groups_changed: Notify,
    unique_ids: UniqueIdMaker,
    closing: AtomicBool,
    flushing: AtomicUsize,
    delay_levels: DelayLevels,
    address: SocketAddr,
    threads: Mutex<Option<StoreThreads>>,
}

/// Tells waiting pulls and the delay task about new messages.
struct Arrivals {
    polling: Arc<LongPolling>,
    pops: Arc<PopPolling>,
    delay_wake: Arc<Notify>,
}

impl ArrivalListener for Arrivals {
    fn arrived(&self, arrivals: &[Arrival]) {
        for arrival in arrivals {
            let queue = &arrival.queue;
            if queue.topic().as_ref() == SCHEDULE_TOPIC {
                self.delay_wake.notify_one();
            }
            self.polling.arrived(queue.topic(), queue.queue_id());
            self.pops.arrived(queue.topic(), queue.queue_id());
        }
    }
}

/// Lets the store count messages that it deletes unread.
struct Committed(std::sync::Weak<Broker>);

impl CommittedOffsets for Committed {
    fn lowest_committed(&self, topic: &str, queue_id: i32) -> Option<i64> {
        self.0.upgrade()?.offsets.lowest(topic, queue_id)
    }
}

impl Broker {
    /// Starts a broker; when this returns, requests are accepted.
    ///
    /// # Errors
    /// When a port is in use, the store or a document cannot be opened, or a setting is unusable.
    pub async fn start(
        mut config: BrokerConfig,
        store_config: StoreConfig,
        listen: Listen,
    ) -> Result<Arc<Self>, BrokerError> {
        let (main, fast) = bind_pair(&listen)?;
        let address = main.local_addr();
        config.listen_port = address.port();
        let levels = DelayLevels::parse(&store_config.message_delay_level).ok_or_else(|| {
            BrokerError::Config("messageDelayLevel is no list of times".to_owned())
        })?;
        config.delay_levels = i32::try_from(levels.max_level()).unwrap_or(i32::MAX);
        let (polling, woken) = LongPolling::new(config.pull_thread_pool_queue_capacity);
        let polling = Arc::new(polling);
        let (pops, woken_pops) =
            PopPolling::new(config.max_pop_polling_size, config.pop_polling_size);
        let pops = Arc::new(pops);
        let delay_wake = Arc::new(Notify::new());
        let listener: Arc<dyn ArrivalListener> = Arc::new(Arrivals {
            polling: Arc::clone(&polling),
            pops: Arc::clone(&pops),
            delay_wake: Arc::clone(&delay_wake),
        });
        let config_dir = store_config.config_dir();
        let (store, threads) = open_store(store_config, listener).await?;
        let timer = Timer::open(&store).await?;
        let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let offsets = OffsetTable::default();
        let stats =
            Stats::new(now_ms(), &config.broker_cluster_name, store.config().utc_offset_seconds);
        let saved = Saved::load(&config_dir, &offsets)?;
        let store_host = SocketAddr::new(config.broker_ip1, config.listen_port);
        let (offsets, transactions) = open_transactions(&store, offsets, store_host).await?;
        let broker = Arc::new(Self {
            topics: TopicTable::load(&config_dir, &config)?,
            groups: GroupTable::load(&config_dir, &config)?,
            filters: FilterTable::load(&config_dir, config.filter_data_clean_time_span)?,
            pop: Pop::load(&config_dir, &config, &store, pops)?,
            delay: DelayOffsets::load(&config_dir)?,
            registration: Registration::new(&config, shutdown.clone(), tasks.clone()),
            lanes: lanes(&config),
            store_host,
            added_properties_len: added_properties_len(&config),
            unique_ids: UniqueIdMaker::new(
                config.broker_ip1,
                std::process::id(),
                fastrand::u32(..),
            ),
            closing: AtomicBool::new(false),
            flushing: AtomicUsize::new(0),
            delay_levels: levels,
            offsets,
            saved,
            store,
            clients: Clients::default(),
            locks: QueueLocks::default(),
            polling,
            delay_wake,
            timer,
            send_backs: SendBacks::default(),
            transactions,
            stats,
            live: Live::new(&config),
            changed_groups: Mutex::default(),
            groups_changed: Notify::new(),
            threads: Mutex::new(Some(threads)),
            address,
            tasks,
            shutdown,
            config,
        });
        broker.run((main, fast), woken, woken_pops).await?;
        Ok(broker)
    }

    /// Starts the tasks, accepts requests, and tells the name servers.
    async fn run(
        self: &Arc<Self>,
        (main, fast): (Server, Server),
        woken: UnboundedReceiver<Vec<ParkedPull>>,
        woken_pops: UnboundedReceiver<Vec<pop::polling::Parked>>,
    ) -> Result<(), BrokerError> {
        self.store.set_committed_offsets(Arc::new(Committed(Arc::downgrade(self))));
        self.offsets.cut_after_crash(&self.store);
        self.topics.save()?;
        self.groups.save()?;
        // What was popped may be found again in large queues: not on a worker.
        let recovering = Arc::clone(self);
        tokio::task::spawn_blocking(move || pop::recover(&recovering)).await.map_err(|error| {
            BrokerError::Config(format!("reading the revive queues failed: {error}"))
        })?;
        housekeeping::start(self, woken);
        pop::start(self, woken_pops);
        delay::start(self);
        timer::start(self);
        transaction::start(self);
        for (server, fast) in [(main, false), (fast, true)] {
            let entrance = Arc::new(Entrance { broker: Arc::clone(self), fast });
            server.start(entrance, self.shutdown.clone(), &self.tasks);
        }
        self.registration.first_round(self).await;
        Registration::start(self);
        Ok(())
    }

    /// Where the main port listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// The store, for tools in the same process.
    #[must_use]
    pub fn store(&self) -> &Arc<MessageStore> {
        &self.store
    }

    /// How many pulls wait for a message.
    #[must_use]
    pub fn waiting_pulls(&self) -> usize {
        self.polling.len()
    }

    /// Stops: answers waiting pulls, ends connections, saves everything, closes the store.
    pub async fn shutdown(self: &Arc<Self>) {
        self.registration.unregister(self).await;
        self.closing.store(true, Ordering::Release);
        self.polling.expire(now_ms(), true);
        self.pop.polling.expire(now_ms(), true);
        let answered = async {
            while self.polling.len() + self.pop.polling.len() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let _ = tokio::time::timeout(ANSWER_PATIENCE, answered).await;
        self.shutdown.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_PATIENCE, self.tasks.wait()).await.is_err() {
            tracing::warn!("some tasks did not end in time");
        }
        self.transactions.close(&self.store, self.store_host, &self.offsets, now_ms());
        self.save_all();
        self.timer.close();
        if let Some(threads) = self.threads.lock().take() {
            threads.stop();
        }
        if let Err(error) = self.store.shutdown() {
            tracing::error!(%error, "the store could not be closed cleanly");
        }
    }

    /// Saves what changes all the time: offsets of groups and of delay levels, filters.
    pub(crate) fn save_all(&self) {
        self.saved.save_offsets(&self.offsets);
        self.delay.save(&self.store);
        self.filters.save();
        self.pop.save();
    }

    /// The broker's permission bits.
    pub(crate) fn permission(&self) -> i32 {
        self.live.broker_permission()
    }

    /// Sends that are stored and wait for the disk.
    pub(crate) fn flushing_sends(&self) -> usize {
        self.flushing.load(Ordering::Relaxed)
    }

    /// Counts sends as waiting for the disk until the guard is dropped.
    pub(crate) fn begin_flushing(self: &Arc<Self>, sends: usize) -> Flushing {
        self.flushing.fetch_add(sends, Ordering::Relaxed);
        Flushing { broker: Arc::clone(self), sends }
    }

    /// Number of delay levels.
    pub(crate) fn delay_levels(&self) -> i32 {
        self.config.delay_levels
    }

    /// How long messages of a level wait (ms).
    pub(crate) fn delay_of(&self, level: i32) -> i64 {
        self.delay_levels.delay_ms(level).unwrap_or(0)
    }

    /// Progress of the delay levels: offset and the queue's end.
    pub(crate) fn delay_progress(&self) -> Vec<(i32, (i64, i64))> {
        let end = |level: i32| self.store.max_offset(SCHEDULE_TOPIC, level - 1);
        self.delay.all().into_iter().map(|(level, offset)| (level, (offset, end(level)))).collect()
    }

    /// Whether the broker is about to stop.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Whether batches to this topic can be stored as separate messages.
    pub(crate) fn can_split(&self, topic: &str) -> bool {
        let config = self.topics.get(topic);
        config.is_none_or(|config| {
            config.attributes.get("queue.type").is_none_or(|kind| kind != "BatchCQ")
        })
    }

    /// Whether the message at an offset has to come from the disk. Costs nothing while the whole log is
    /// in memory.
    pub(crate) fn is_cold(&self, topic: &str, queue_id: i32, offset: i64) -> bool {
        self.store.is_cold(self.store.min_physical_offset())
            && self
                .store
                .physical_offset_of(topic, queue_id, offset)
                .is_some_and(|place| self.store.is_cold(place))
    }

    /// Whether the topic has this queue.
    pub(crate) fn has_queue(&self, topic: &str, queue_id: i32) -> bool {
        let config = self.topics.get(topic);
        config.is_some_and(|config| {
            (0..config.read_queue_nums.max(config.write_queue_nums)).contains(&queue_id)
        })
    }

    /// An id for a message whose client made none.
    pub(crate) fn new_unique_id(&self) -> String {
        // Clients count from the month's start; any count that differs within some weeks will do.
        self.unique_ids.next((now_ms() & 0x7FFF_FFFF) as u32)
    }

    /// Name servers shall learn soon of new topics; many calls make one registration.
    pub(crate) fn register_soon(&self) {
        self.registration.wake();
    }

    /// Members of the group shall learn soon that something changed.
    pub(crate) fn group_changed(&self, group: &str) {
        if self.live.notify_consumer_ids_changed_enable() {
            self.changed_groups.lock().insert(group.into());
            self.groups_changed.notify_one();
        }
    }

    /// A member is leaving: its locks are free before anybody sees the group without it.
    pub(crate) fn free_locks(&self, departure: &Departure) {
        if departure.last_connection {
            let freed = self.locks.release_member(&departure.group, &departure.client_id);
            tracing::info!(
                group = %departure.group, client_id = %departure.client_id, freed_locks = freed, "member left"
            );
        }
    }

    /// A member has left: the others are told.
    pub(crate) fn departed(&self, departure: &Departure) {
        if self.clients.consumer_group(&departure.group).is_none() {
            self.filters.group_left(&departure.group, now_ms());
        }
        self.group_changed(&departure.group);
    }

    pub(crate) fn connection_closed(&self, connection_id: u64) {
        let left = self.clients.connection_closed(connection_id, |one| self.free_locks(one));
        for departure in left {
            self.departed(&departure);
        }
    }
}

/// Sends that wait for the disk.
pub(crate) struct Flushing {
    broker: Arc<Broker>,
    sends: usize,
}

impl Drop for Flushing {
    fn drop(&mut self) {
        self.broker.flushing.fetch_sub(self.sends, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("name", &self.config.broker_name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Opens the store and starts its threads. Recovery may read for a while: not on a worker.
async fn open_store(
    config: StoreConfig,
    listener: Arc<dyn ArrivalListener>,
) -> Result<(Arc<MessageStore>, StoreThreads), BrokerError> {
    let store =
        tokio::task::spawn_blocking(move || MessageStore::open(config, listener))
            .await
            .map_err(|error| BrokerError::Config(format!("opening the store failed: {error}")))??;
    let clock = Arc::new(now_ms) as apogee_store::Clock;
    let threads = store.start_threads(&clock).map_err(|source| BrokerError::Io {
        what: "start the store's threads".to_owned(),
        source,
    })?;
    Ok((store, threads))
}

fn lanes(config: &BrokerConfig) -> Lanes {
    let (query, admin) =
        (config.query_thread_pool_queue_capacity, config.admin_broker_thread_pool_queue_capacity);
    Lanes::new(query, admin)
}

/// Reads which transactions wait for their end. That may take a while: not on a worker.
async fn open_transactions(
    store: &Arc<MessageStore>,
    offsets: OffsetTable,
    host: SocketAddr,
) -> Result<(OffsetTable, Transactions), BrokerError> {
    let store = Arc::clone(store);
    let open = move || {
        Transactions::open(&store, &offsets, host, now_ms()).map(|opened| (offsets, opened))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    opened
        .map_err(|error| BrokerError::Config(format!("reading the transactions failed: {error}")))?
        .map_err(|source| BrokerError::Io {
            what: "read the transactions that wait".to_owned(),
            source,
        })
}

/// Bytes that the broker's own properties take, with room for a unique id.
fn added_properties_len(config: &BrokerConfig) -> usize {
    let names = [keys::MSG_REGION, keys::TRACE_ON, keys::CLUSTER, keys::UNIQ_KEY];
    let values = [config.region_id.len(), 5, config.broker_cluster_name.len(), 56];
    names.iter().map(|name| name.len() + 2).sum::<usize>() + values.iter().sum::<usize>() + 1
}

/// Binds the main port and the fast port two below it.
fn bind_pair(listen: &Listen) -> Result<(Server, Server), BrokerError> {
    let bind = |port: u16| {
        Server::bind(SocketAddr::new(listen.host, port), listen.limits.clone()).map_err(|source| {
            BrokerError::Io { what: format!("listen on {}:{port}", listen.host), source }
        })
    };
    if listen.port != 0 {
        let fast = listen.port.checked_sub(2).filter(|port| *port > 0).ok_or_else(|| {
            BrokerError::Config(format!(
                "listenPort {} is too low: the fast port is two below it",
                listen.port
            ))
        })?;
        return Ok((bind(listen.port)?, bind(fast)?));
    }
    for _ in 0..PORT_TRIES {
        let main = bind(0)?;
        let fast = main.local_addr().port().saturating_sub(2);
        if let Ok(fast) = bind(fast) {
            return Ok((main, fast));
        }
    }
    Err(BrokerError::Config(format!(
        "no free pair of ports found on {} in {PORT_TRIES} tries",
        listen.host
    )))
}
