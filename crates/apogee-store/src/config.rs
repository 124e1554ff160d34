//! The store's settings: the original's names (in snake case), defaults and clamps.
//!
//! [`StoreConfig`] is plain data; [`StoreConfig::validate`] is called by `MessageStore::open` and
//! names the key, the value and the way out. Sizes are bytes, times ms unless a name says more.

use crate::cleaning::SpaceProbe;
use crate::error::StoreError;
use crate::faults::DiskFaults;
use std::path::PathBuf;
use std::sync::Arc;

/// When a stored message counts as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushDiskType {
    /// Visible and acknowledged once it is in the page cache; flushed in the background.
    AsyncFlush,
    /// Visible and acknowledged only after it is on the disk.
    SyncFlush,
}

/// Size of a consume-queue unit in bytes.
pub(crate) const UNIT_SIZE: usize = 20;

/// Settings of a store. Every field is the original's key of the same words.
#[derive(Clone)]
pub struct StoreConfig {
    /// Root of all files (`storePathRootDir`).
    pub store_path_root_dir: PathBuf,
    /// Folder of the commit log; `None` = `commitlog` below the root.
    pub store_path_commit_log: Option<PathBuf>,
    /// Folder of the consume queues; `None` = `consumequeue` below the root.
    pub store_path_consume_queue: Option<PathBuf>,
    /// Folder of the index files; `None` = `index` below the root.
    pub store_path_index: Option<PathBuf>,
    /// Bytes of a commit log file.
    pub mapped_file_size_commit_log: usize,
    /// Bytes of a consume queue file; rounded up to a multiple of 20.
    pub mapped_file_size_consume_queue: usize,
    /// Bytes of an ext file of older stores (read only).
    pub mapped_file_size_consume_queue_ext: usize,
    /// Hash slots of an index file.
    pub max_hash_slot_num: usize,
    /// Entries of an index file.
    pub max_index_num: usize,
    /// Whether keys are indexed.
    pub message_index_enable: bool,
    /// When a message counts as safe.
    pub flush_disk_type: FlushDiskType,
    /// Interval of the background flush.
    pub flush_interval_commit_log: u64,
    /// Dirty 4 KiB pages below which a background flush waits.
    pub flush_commit_log_least_pages: usize,
    /// After this time everything is flushed, however little.
    pub flush_commit_log_thorough_interval: i64,
    /// Interval at which queue units leave memory.
    pub flush_interval_consume_queue: u64,
    /// Interval at which queues are synced and the checkpoint is written.
    pub flush_consume_queue_thorough_interval: i64,
    /// How long an acknowledgement may wait for the disk.
    pub sync_flush_timeout: u64,
    /// Hours to keep files.
    pub file_reserved_time: i64,
    /// Hours of the day (local) at which expired files go, `;` separated.
    pub delete_when: String,
    /// Local time minus UTC in seconds, for `delete_when` and index file names.
    pub utc_offset_seconds: i64,
    /// Interval of cleaning rounds.
    pub clean_resource_interval: u64,
    /// Files deleted in one round at most.
    pub delete_file_batch_max: usize,
    /// Percent of the disk from which expired files are deleted at any hour.
    pub disk_max_used_space_ratio: u32,
    /// Percent of the disk at which writes are refused.
    pub disk_space_warning_level_ratio: u32,
    /// Percent of the disk at which files are deleted whatever their age.
    pub disk_space_clean_forcibly_ratio: u32,
    /// Whether files may be deleted before their time under disk pressure.
    pub clean_file_forcibly_enable: bool,
    /// Rather refuse writes than delete messages a group has not read, under disk pressure.
    pub refuse_rather_than_delete_unread: bool,
    /// Largest body in bytes.
    pub max_message_size: usize,
    /// Append lock hold time that counts as busy.
    pub os_page_cache_busy_time_out_mills: i64,
    /// Delay levels as text, e.g. `1s 5s 10s`.
    pub message_delay_level: String,
    /// Answer limit in bytes for messages in memory.
    pub max_transfer_bytes_on_message_in_memory: usize,
    /// Answer limit in messages for messages in memory.
    pub max_transfer_count_on_message_in_memory: usize,
    /// Answer limit in bytes for messages on disk.
    pub max_transfer_bytes_on_message_in_disk: usize,
    /// Answer limit in messages for messages on disk.
    pub max_transfer_count_on_message_in_disk: usize,
    /// Percent of RAM that counts as "in memory".
    pub access_message_in_memory_max_ratio: u64,
    /// Bytes of queue units that a filtered read may scan.
    pub max_filter_message_size: usize,
    /// Largest number of query results.
    pub max_msgs_num_batch: usize,
    /// Whether recovery verifies body checksums.
    pub check_crc_on_recover: bool,
    /// Whether messages with a delivery time are taken.
    pub timer_wheel_enable: bool,
    /// Length of a timer's tick.
    pub timer_precision_ms: i64,
    /// Ticks that a timer message waits before it is written again to wait on.
    pub timer_roll_window_slot: i64,
    /// Longest delay of a timer message in seconds.
    pub timer_max_delay_sec: i64,
    /// Interval at which the timer saves its progress.
    pub timer_flush_interval_ms: u64,
    /// Bytes of a timer log file.
    pub mapped_file_size_timer_log: usize,
    /// Consume queue files that may be open at a time.
    pub max_open_queue_files: usize,
    /// Physical memory in bytes; 0 = ask the system.
    pub physical_memory: u64,
    /// Makes writes, flushes and allocations fail on demand (tests, chaos).
    pub disk_faults: Option<Arc<dyn DiskFaults>>,
    /// Tells how full the disk is; `None` = the file system.
    pub space_probe: Option<Arc<dyn SpaceProbe>>,
}

impl StoreConfig {
    /// The original's defaults in `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            store_path_root_dir: root.into(),
            store_path_commit_log: None,
            store_path_consume_queue: None,
            store_path_index: None,
            mapped_file_size_commit_log: 1 << 30,
            mapped_file_size_consume_queue: 6_000_000,
            mapped_file_size_consume_queue_ext: 48 * 1024 * 1024,
            max_hash_slot_num: 5_000_000,
            max_index_num: 20_000_000,
            message_index_enable: true,
            flush_disk_type: FlushDiskType::AsyncFlush,
            flush_interval_commit_log: 500,
            flush_commit_log_least_pages: 4,
            flush_commit_log_thorough_interval: 10_000,
            flush_interval_consume_queue: 1_000,
            flush_consume_queue_thorough_interval: 60_000,
            sync_flush_timeout: 5_000,
            file_reserved_time: 72,
            delete_when: "04".to_owned(),
            utc_offset_seconds: 0,
            clean_resource_interval: 10_000,
            delete_file_batch_max: 10,
            disk_max_used_space_ratio: 75,
            disk_space_warning_level_ratio: 90,
            disk_space_clean_forcibly_ratio: 85,
            clean_file_forcibly_enable: true,
            refuse_rather_than_delete_unread: false,
            max_message_size: 4 * 1024 * 1024,
            os_page_cache_busy_time_out_mills: 1_000,
            message_delay_level: crate::delay_level::DEFAULT_LEVELS.to_owned(),
            max_transfer_bytes_on_message_in_memory: 256 * 1024,
            max_transfer_count_on_message_in_memory: 32,
            max_transfer_bytes_on_message_in_disk: 64 * 1024,
            max_transfer_count_on_message_in_disk: 8,
            access_message_in_memory_max_ratio: 40,
            max_filter_message_size: 16_000,
            max_msgs_num_batch: 64,
            check_crc_on_recover: true,
            timer_wheel_enable: true,
            timer_precision_ms: 1_000,
            timer_roll_window_slot: 172_800,
            timer_max_delay_sec: 259_200,
            timer_flush_interval_ms: 1_000,
            mapped_file_size_timer_log: 100 * 1024 * 1024,
            max_open_queue_files: 256,
            physical_memory: 0,
            disk_faults: None,
            space_probe: None,
        }
    }

    /// The commit log's folder.
    #[must_use]
    pub fn commit_log_dir(&self) -> PathBuf {
        self.sub_dir(self.store_path_commit_log.as_ref(), "commitlog")
    }

    /// The consume queues' folder.
    #[must_use]
    pub fn consume_queue_dir(&self) -> PathBuf {
        self.sub_dir(self.store_path_consume_queue.as_ref(), "consumequeue")
    }

    /// The index files' folder.
    #[must_use]
    pub fn index_dir(&self) -> PathBuf {
        self.sub_dir(self.store_path_index.as_ref(), "index")
    }

    /// The JSON documents' folder.
    #[must_use]
    pub fn config_dir(&self) -> PathBuf {
        self.store_path_root_dir.join("config")
    }

    fn sub_dir(&self, given: Option<&PathBuf>, name: &str) -> PathBuf {
        given.cloned().unwrap_or_else(|| self.store_path_root_dir.join(name))
    }

    /// Units of a consume queue file (the configured bytes rounded up to whole units).
    pub(crate) fn units_per_file(&self) -> i64 {
        self.mapped_file_size_consume_queue.div_ceil(UNIT_SIZE) as i64
    }

    /// Checks every field that could make the store misbehave.
    ///
    /// # Errors
    /// [`StoreError::Config`] with the key, its value and what to do.
    pub fn validate(&self) -> Result<(), StoreError> {
        let refuse = |key, value: String, reason: &str| {
            Err(StoreError::Config { key, value, reason: reason.to_owned() })
        };
        if let Some(path) = &self.store_path_commit_log {
            let text = path.to_string_lossy();
            if text.contains(',') {
                return refuse(
                    "storePathCommitLog",
                    text.into_owned(),
                    "several commit log folders are not supported; name one",
                );
            }
        }
        let segment = self.mapped_file_size_commit_log;
        if !(1024..=i32::MAX as usize).contains(&segment) {
            return refuse(
                "mappedFileSizeCommitLog",
                segment.to_string(),
                "allowed are 1024 to 2147483647 bytes",
            );
        }
        let queue = self.mapped_file_size_consume_queue;
        if queue == 0 || queue > i32::MAX as usize {
            return refuse(
                "mappedFileSizeConsumeQueue",
                queue.to_string(),
                "allowed are 20 to 2147483647 bytes",
            );
        }
        if !(1..=100_000_000).contains(&self.max_hash_slot_num) {
            return refuse(
                "maxHashSlotNum",
                self.max_hash_slot_num.to_string(),
                "allowed are 1 to 100000000",
            );
        }
        if !(2..=500_000_000).contains(&self.max_index_num) {
            return refuse(
                "maxIndexNum",
                self.max_index_num.to_string(),
                "allowed are 2 to 500000000",
            );
        }
        self.validate_timer()?;
        self.validate_times()
    }

    fn validate_timer(&self) -> Result<(), StoreError> {
        let bad = |key, value: String, reason: &str| {
            Err(StoreError::Config { key, value, reason: reason.to_owned() })
        };
        let precision = self.timer_precision_ms;
        if !(10..=1_000).contains(&precision) {
            return bad("timerPrecisionMs", precision.to_string(), "allowed are 10 to 1000 ms");
        }
        // Two years; more would overflow nothing but is surely a mistake.
        let longest = self.timer_max_delay_sec;
        if !(1..=63_072_000).contains(&longest) {
            return bad("timerMaxDelaySec", longest.to_string(), "allowed are 1 to 63072000 s");
        }
        let size = self.mapped_file_size_timer_log;
        if !(1_024..=i32::MAX as usize).contains(&size) {
            return bad(
                "mappedFileSizeTimerLog",
                size.to_string(),
                "allowed are 1024 to 2147483647 bytes",
            );
        }
        Ok(())
    }

    fn validate_times(&self) -> Result<(), StoreError> {
        if crate::cleaning::parse_hours(&self.delete_when).is_none() {
            return Err(StoreError::Config {
                key: "deleteWhen",
                value: self.delete_when.clone(),
                reason: "write hours from 00 to 23 separated by ';', e.g. 04;16".to_owned(),
            });
        }
        if crate::delay_level::DelayLevels::parse(&self.message_delay_level).is_none() {
            return Err(StoreError::Config {
                key: "messageDelayLevel",
                value: self.message_delay_level.clone(),
                reason: "write times such as 1s 5m 2h 1d separated by blanks".to_owned(),
            });
        }
        Ok(())
    }
}

impl std::fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreConfig")
            .field("store_path_root_dir", &self.store_path_root_dir)
            .field("flush_disk_type", &self.flush_disk_type)
            .finish_non_exhaustive()
    }
}
