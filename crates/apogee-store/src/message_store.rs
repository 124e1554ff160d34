//! The store: opening and closing, and the questions that need no plan.
//!
//! Owns the commit log, the queues, the index and the files that tell how the last stop was.
//! Everything is `&self` and thread safe. Locks, outermost first: flush lock, append lock or dispatch
//! lock, queue table, a single queue or the index. Readers take only short ones of the last three.

use crate::append::Placed;
use crate::checkpoint::Checkpoint;
use crate::cleaning::Cleaner;
use crate::commit_log::CommitLog;
use crate::config::{FlushDiskType, StoreConfig};
use crate::consume_queue::{ConsumeQueue, QueueEnv};
use crate::delay_level::DelayLevels;
use crate::dispatch::{ArrivalListener, DispatchContext, Dispatcher, WhenBusy};
use crate::error::{AppendError, StoreError};
use crate::guard::Guard;
use crate::index::Index;
use crate::manifest::{self, Manifest, VouchedQueue};
use crate::progress::Progress;
use crate::queue_files::QueueFiles;
use crate::queues::Queues;
use crate::recovery::{Recovery, RecoveryReport};
use crate::retention::Retention;
use crate::segments::Segments;
use crate::threads::FlushRequest;
use crate::unit::Unit;
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::Arc;

/// A message store in a folder.
pub struct MessageStore {
    pub(crate) config: StoreConfig,
    pub(crate) log: CommitLog,
    pub(crate) queues: Queues,
    pub(crate) index: Option<Index>,
    pub(crate) dispatcher: Dispatcher,
    listener: RwLock<Arc<dyn ArrivalListener>>,
    guard: Guard,
    pub(crate) disk_full: RwLock<Option<String>>,
    /// Bytes behind the log's end that count as in memory.
    pub(crate) memory_window: i64,
    checkpoint: Mutex<Checkpoint>,
    recovery: RecoveryReport,
    pub(crate) flush_request: FlushRequest,
    pub(crate) cleaner: Cleaner,
    pub(crate) retention: RwLock<Option<Retention>>,
}

impl MessageStore {
    /// Opens (or makes) the store and recovers it. No thread is started.
    ///
    /// # Errors
    /// [`StoreError`]: settings that cannot be used, a folder in use, files that do not go with
    /// the settings, damage that needs a decision, or I/O errors.
    pub fn open(
        config: StoreConfig,
        listener: Arc<dyn ArrivalListener>,
    ) -> Result<Arc<Self>, StoreError> {
        let mut store = Self::assemble(config, listener)?;
        let root = store.config.store_path_root_dir.clone();
        let crashed = store.guard.was_aborted();
        let checkpoint = *store.checkpoint.lock();
        let manifest = Manifest::load(&root.join(manifest::FILE_NAME), &checkpoint);
        store.guard.mark_open()?;
        let recovery = Recovery {
            config: &store.config,
            log: &store.log,
            queues: &store.queues,
            index: store.index.as_ref(),
            dispatcher: &store.dispatcher,
            checkpoint,
            manifest,
            crashed,
        };
        match recovery.run() {
            Ok(report) => store.recovery = report,
            Err(error) => {
                // The sign of the last stop stays as it was.
                if !crashed {
                    store.guard.mark_closed()?;
                }
                return Err(error);
            }
        }
        tracing::info!(root = %root.display(), recovery = ?store.recovery, "the store is open");
        store.allocate_first();
        Ok(Arc::new(store))
    }

    /// Takes the folder and opens its files; nothing is read from them yet.
    fn assemble(
        config: StoreConfig,
        listener: Arc<dyn ArrivalListener>,
    ) -> Result<Self, StoreError> {
        config.validate()?;
        let root = config.store_path_root_dir.clone();
        let guard = Guard::take(&root)?;
        let segments = Segments::open(
            config.commit_log_dir(),
            config.mapped_file_size_commit_log,
            config.disk_faults.clone(),
        )?;
        let queue_dir = config.consume_queue_dir();
        std::fs::create_dir_all(&queue_dir).map_err(StoreError::io("create", &queue_dir))?;
        let env = Arc::new(QueueEnv {
            root: queue_dir,
            units_per_file: config.units_per_file(),
            files: QueueFiles::new(config.max_open_queue_files),
        });
        let levels =
            DelayLevels::parse(&config.message_delay_level).ok_or_else(|| StoreError::Config {
                key: "messageDelayLevel",
                value: config.message_delay_level.clone(),
                reason: "it is no list of times".to_owned(),
            })?;
        Ok(Self {
            log: CommitLog::new(segments),
            queues: Queues::new(env, &root)?,
            index: config.message_index_enable.then(|| Index::open(&config)).transpose()?,
            dispatcher: Dispatcher::new(levels),
            listener: RwLock::new(listener),
            guard,
            disk_full: RwLock::new(None),
            memory_window: memory_window(&config),
            checkpoint: Mutex::new(Checkpoint::load(&root.join("checkpoint"))),
            recovery: RecoveryReport::default(),
            flush_request: FlushRequest::default(),
            cleaner: Cleaner::new(config.space_probe.clone()),
            retention: RwLock::new(None),
            config,
        })
    }

    /// The file that the next append goes to. On a full disk the store opens all the same:
    /// messages can be read, appends are refused with the reason.
    fn allocate_first(&self) {
        let appended = self.log.appended().get();
        if let Err(error) = self.log.segments.ensure(appended) {
            tracing::error!(%error, "there is no space for the next commit log file");
        }
    }

    /// Replaces the arrival listener (the broker is built after the store).
    pub fn set_listener(&self, listener: Arc<dyn ArrivalListener>) {
        *self.listener.write() = listener;
    }

    /// What opening did.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Position behind the last record in the page cache.
    #[must_use]
    pub fn appended(&self) -> &Progress {
        self.log.appended()
    }

    /// Position behind the last record on the disk; what an acknowledgement with SYNC_FLUSH waits
    /// for.
    #[must_use]
    pub fn flushed(&self) -> &Progress {
        self.log.flushed()
    }

    /// Whether messages are visible only after their flush.
    #[must_use]
    pub fn is_sync_flush(&self) -> bool {
        self.config.flush_disk_type == FlushDiskType::SyncFlush
    }

    /// First commit log offset.
    #[must_use]
    pub fn min_physical_offset(&self) -> i64 {
        self.log.min()
    }

    /// Commit log position behind the last visible record.
    #[must_use]
    pub fn max_physical_offset(&self) -> i64 {
        self.dispatcher.visible()
    }

    /// Log bytes that are visible but not in the queues yet.
    #[must_use]
    pub fn dispatch_behind_bytes(&self) -> i64 {
        self.dispatcher.visible() - self.dispatcher.dispatched()
    }

    /// Whether the append lock has been held so long that sends should be refused.
    #[must_use]
    pub fn is_page_cache_busy(&self, now_ms: i64) -> bool {
        let held = self.log.lock_held_ms(now_ms);
        held > self.config.os_page_cache_busy_time_out_mills && held < 10_000_000
    }

    /// How long the append lock has been held (ms; 0 when it is free).
    #[must_use]
    pub fn lock_held_ms(&self, now_ms: i64) -> i64 {
        self.log.lock_held_ms(now_ms)
    }

    /// Why messages would be refused now, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<AppendError> {
        if self.log.is_closed() {
            return Some(AppendError::Closed);
        }
        if let Some(reason) = self.log.poison() {
            return Some(AppendError::Poisoned(reason));
        }
        self.disk_full.read().clone().map(AppendError::DiskFull)
    }

    pub(crate) fn after_append(&self) {
        if self.is_sync_flush() {
            self.flush_request.wake();
        } else {
            self.make_visible(self.log.appended().get(), WhenBusy::Leave);
        }
    }

    fn make_visible(&self, position: i64, busy: WhenBusy) {
        let listener = Arc::clone(&*self.listener.read());
        let context = DispatchContext {
            log: &self.log,
            queues: &self.queues,
            index: self.index.as_ref(),
            listener: &*listener,
        };
        if let Err(error) = self.dispatcher.run(&context, position, busy)
            && self.log.poison().is_none()
        {
            self.log
                .set_poison(format!("dispatch stopped at {}: {}", error.position, error.reason));
        }
    }

    /// Brings the log to the disk and, with SYNC_FLUSH, makes what was flushed visible.
    ///
    /// # Errors
    /// The flush's error; the store then takes no writes until [`MessageStore::try_recover`].
    pub fn flush_log(&self) -> Result<i64, StoreError> {
        self.log.flush(|position| {
            if self.is_sync_flush() {
                self.make_visible(position, WhenBusy::Wait);
            }
        })
    }

    /// After a failed write or flush: writes and flushes again what is in doubt, and takes writes
    /// again when that works.
    ///
    /// # Errors
    /// Why it does not work yet; the store stays closed for writes.
    pub fn try_recover(&self) -> Result<(), StoreError> {
        self.log.try_repair(|position| self.make_visible(position, WhenBusy::Wait))
    }

    /// Makes the next commit log file ahead of time.
    ///
    /// # Errors
    /// A full disk or another I/O error; appends go on in the current file.
    pub fn allocate_ahead(&self) -> Result<(), StoreError> {
        self.log.allocate_ahead()
    }

    /// Moves queue units and index entries from memory into the page cache.
    ///
    /// # Errors
    /// The first I/O error; what failed is tried again the next time.
    pub fn flush_derived(&self) -> Result<(), StoreError> {
        self.queues.write_out()?;
        if let Some(index) = &self.index {
            index.write_out()?;
        }
        Ok(())
    }

    /// Syncs everything and writes the checkpoint, so that recovery can begin here.
    ///
    /// # Errors
    /// The first I/O error; the old checkpoint stays.
    pub fn save_checkpoint(&self) -> Result<(), StoreError> {
        let log_min = self.log.min();
        let (reached, queues) = self.dispatcher.between_rounds(|reached| {
            let queues = self.queues.all();
            let vouched = queues.iter().map(|queue| VouchedQueue {
                topic: queue.topic().to_string(),
                queue_id: queue.queue_id(),
                first: queue.first_unit(),
                max: queue.max_offset(),
            });
            (reached, vouched.collect())
        });
        // Rounds that found the dispatcher busy relied on it to look again.
        self.make_visible(self.dispatcher.visible(), WhenBusy::Wait);
        self.flush_log()?;
        self.queues.sync()?;
        let mut checkpoint = self.checkpoint.lock();
        if let Some(index) = &self.index {
            index.sync()?;
            checkpoint.index_msg_timestamp = reached.timestamp;
        }
        checkpoint.physic_msg_timestamp = self.log.flushed_timestamp();
        checkpoint.logics_msg_timestamp = reached.timestamp;
        checkpoint.logics_physical_offset = reached.last_record;
        let root = &self.config.store_path_root_dir;
        checkpoint.save(&root.join("checkpoint"))?;
        let index_files = self.index.as_ref().map(Index::files);
        let newest = |files: &Vec<(String, i64)>| files.last().map_or(-1, |(_, newest)| *newest);
        let vouched = Manifest {
            position: reached.position,
            log_min,
            indexed: index_files.as_ref().map(newest),
            index_files: index_files.unwrap_or_default(),
            queues,
        };
        vouched.save(&root.join(manifest::FILE_NAME), &checkpoint)
    }

    /// Closes cleanly: no more appends, everything on the disk, the `abort` file gone. Threads must
    /// have been stopped. Safe to call twice.
    ///
    /// # Errors
    /// The first I/O error; `abort` then stays and the next start recovers.
    pub fn shutdown(&self) -> Result<(), StoreError> {
        if !self.log.close() {
            return Ok(());
        }
        self.try_recover()?;
        self.flush_log()?;
        self.make_visible(self.log.appended().get(), WhenBusy::Wait);
        self.save_checkpoint()?;
        self.guard.mark_closed()?;
        tracing::info!(root = %self.config.store_path_root_dir.display(), "the store is closed");
        Ok(())
    }

    /// Deletes a topic's queues. A later append to the same name begins at offset 0, and no
    /// restart brings the old messages back. Readers that hold messages go on.
    ///
    /// # Errors
    /// I/O errors. When the first step fails nothing has changed; later, the topic is gone and at
    /// most its folder is left for the next start to remove.
    pub fn delete_topic(&self, topic: &str) -> Result<bool, StoreError> {
        self.queues.delete_topic(topic, self.log.appended().get(), |work| {
            self.log.between_appends(work);
        })
    }

    /// A queue's handle.
    #[must_use]
    pub fn queue(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        self.queues.get(topic, queue_id)
    }

    /// All topics that have a queue.
    #[must_use]
    pub fn topics(&self) -> Vec<Arc<str>> {
        self.queues.topics()
    }

    /// A topic's queues by id.
    #[must_use]
    pub fn topic_queues(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        self.queues.of_topic(topic)
    }

    /// One past the highest visible offset; 0 when there is no such queue.
    #[must_use]
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.queues.get(topic, queue_id).map_or(0, |queue| queue.max_offset())
    }

    /// Lowest offset; 0 when there is no such queue.
    #[must_use]
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.queues.get(topic, queue_id).map_or(0, |queue| queue.min_offset(self.log.min()))
    }

    /// A unit's tags code, followed into the ext file of older stores.
    #[must_use]
    pub fn tags_code_of(&self, queue: &ConsumeQueue, unit: &Unit) -> i64 {
        if !crate::ext::is_address(unit.tags_code) {
            return unit.tags_code;
        }
        let dir: PathBuf = self
            .config
            .store_path_root_dir
            .join("consumequeue_ext")
            .join(&**queue.topic())
            .join(queue.queue_id().to_string());
        let size = self.config.mapped_file_size_consume_queue_ext;
        crate::ext::tags_code(&dir, size, unit.tags_code).unwrap_or(unit.tags_code)
    }

    /// Whether a stored message is on the disk.
    #[must_use]
    pub fn is_flushed(&self, placed: &Placed) -> bool {
        self.log.flushed().get() >= placed.end()
    }
}

/// The part of RAM that counts as holding the newest messages.
fn memory_window(config: &StoreConfig) -> i64 {
    let memory = match config.physical_memory {
        0 => total_memory().unwrap_or(8 << 30),
        given => given,
    };
    let ratio = config.access_message_in_memory_max_ratio.min(100);
    i64::try_from(memory / 100 * ratio).unwrap_or(i64::MAX)
}

fn total_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
