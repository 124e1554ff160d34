//! Disk space: measuring it, refusing writes above the limit, deleting old files.
//!
//! Measuring and deleting are separate steps, so a slow deletion never keeps the store from seeing
//! that the disk fills up. Files go oldest first, a few per round, and never one that holds
//! something not yet flushed and dispatched. A reader that holds a file goes on reading it.
//!
//! | reason | which files go |
//! | --- | --- |
//! | an hour of `deleteWhen`, usage over `diskMaxUsedSpaceRatio`, or asked for | those older than `fileReservedTime` |
//! | usage over `diskSpaceCleanForciblyRatio` or `diskSpaceWarningLevelRatio` (with `cleanFileForciblyEnable`) | the oldest, whatever their age |
//!
//! With `refuse_rather_than_delete_unread` a file that a group has still to read is kept even then,
//! and the limit for writes does the rest. Messages that are deleted before a group read them are counted and logged by queue when a
//! [`CommittedOffsets`] is set.

use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::local_time::hour;
use crate::message_store::MessageStore;
use crate::segment::Segment;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Rounds that a manual request lasts, as in the original.
const MANUAL_ROUNDS: u32 = 20;
const HOUR_MS: i64 = 3_600_000;

/// Tells how full a disk is.
pub trait SpaceProbe: Send + Sync {
    /// Used part of the file system that holds `path`: 0.0 to 1.0.
    ///
    /// # Errors
    /// When the system does not tell.
    fn used_ratio(&self, path: &Path) -> io::Result<f64>;
}

/// Asks the file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSystemProbe;

impl SpaceProbe for FileSystemProbe {
    fn used_ratio(&self, path: &Path) -> io::Result<f64> {
        let stat = rustix::fs::statvfs(path)?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        // What is reserved for root counts neither as used nor as usable.
        let entire = used + stat.f_bavail;
        Ok(if entire == 0 { 0.0 } else { used as f64 / entire as f64 })
    }
}

/// Knows how far consumer groups have read.
pub trait CommittedOffsets: Send + Sync {
    /// The lowest committed offset of any group in a queue; `None` when no group reads it.
    fn lowest_committed(&self, topic: &str, queue_id: i32) -> Option<i64>;
}

/// Messages deleted before they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostUnread {
    /// Topic.
    pub topic: String,
    /// Queue id.
    pub queue_id: i32,
    /// How many.
    pub count: i64,
}

/// What a cleaning round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Why files were deleted; `None` when there was no reason to.
    pub reason: Option<&'static str>,
    /// Commit log files deleted.
    pub commit_log_files: usize,
    /// Consume queue files deleted.
    pub queue_files: usize,
    /// Index files deleted.
    pub index_files: usize,
    /// What was deleted unread.
    pub lost_unread: Vec<LostUnread>,
}

/// State of measuring and cleaning.
pub(crate) struct Cleaner {
    probe: Arc<dyn SpaceProbe>,
    committed: RwLock<Option<Arc<dyn CommittedOffsets>>>,
    manual_rounds: AtomicU32,
    cleaned_to: AtomicI64,
    /// Used part of the fullest path, in millionths.
    usage: AtomicU32,
    one_round: Mutex<()>,
}

impl Cleaner {
    pub(crate) fn new(probe: Option<Arc<dyn SpaceProbe>>) -> Self {
        Self {
            probe: probe.unwrap_or_else(|| Arc::new(FileSystemProbe)),
            committed: RwLock::new(None),
            manual_rounds: AtomicU32::new(0),
            cleaned_to: AtomicI64::new(-1),
            usage: AtomicU32::new(0),
            one_round: Mutex::new(()),
        }
    }
}

/// Hours of the day from `04;16`.
pub(crate) fn parse_hours(text: &str) -> Option<Vec<u8>> {
    text.split(';')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| word.parse::<u8>().ok().filter(|hour| *hour < 24))
        .collect()
}

fn clamped(percent: u32, low: f64, high: f64) -> f64 {
    (f64::from(percent) / 100.0).clamp(low, high)
}

impl StoreConfig {
    fn warning_ratio(&self) -> f64 {
        clamped(self.disk_space_warning_level_ratio, 0.35, 0.90)
    }

    fn forcible_ratio(&self) -> f64 {
        clamped(self.disk_space_clean_forcibly_ratio, 0.30, 0.85)
    }

    fn expired_ratio(&self) -> f64 {
        clamped(self.disk_max_used_space_ratio, 0.10, 0.95)
    }
}

impl MessageStore {
    /// Measures the disks and refuses or takes writes accordingly. Cheap; once a second.
    ///
    /// # Errors
    /// When a file system does not tell its usage; the last decision then stands.
    pub fn measure_space(&self) -> Result<f64, StoreError> {
        let config = self.cleaning_config();
        let limit = config.warning_ratio();
        let mut highest = 0.0;
        let mut full = None;
        for path in self.measured_paths() {
            let used = self
                .cleaner
                .probe
                .used_ratio(&path)
                .map_err(StoreError::io("measure the disk of", &path))?;
            if used > limit && full.is_none() {
                full = Some(format!(
                    "disk full: {} is {:.1}% used, writes stop at {:.0}% (diskSpaceWarningLevelRatio={}); free space, shorten fileReservedTime or raise the limit",
                    path.display(),
                    used * 100.0,
                    limit * 100.0,
                    config.disk_space_warning_level_ratio,
                ));
            }
            highest = f64::max(highest, used);
        }
        self.cleaner.usage.store((highest * 1e6) as u32, Ordering::Release);
        let mut mark = self.disk_full.write();
        if mark.is_some() != full.is_some() {
            match &full {
                Some(reason) => tracing::error!(%reason, "messages are refused"),
                None => tracing::info!("there is space again; messages are taken"),
            }
        }
        *mark = full;
        Ok(highest)
    }

    fn measured_paths(&self) -> Vec<PathBuf> {
        vec![self.config.commit_log_dir(), self.config.consume_queue_dir()]
    }

    /// Used part of the fullest path at the last measurement: 0.0 to 1.0.
    #[must_use]
    pub fn disk_usage(&self) -> f64 {
        f64::from(self.cleaner.usage.load(Ordering::Acquire)) / 1e6
    }

    /// Who knows how far groups have read, for counting unread messages that are deleted.
    pub fn set_committed_offsets(&self, committed: Arc<dyn CommittedOffsets>) {
        *self.cleaner.committed.write() = Some(committed);
    }

    /// Asks for a deletion of expired files at the next rounds, whatever the hour.
    pub fn request_cleaning(&self) {
        self.cleaner.manual_rounds.store(MANUAL_ROUNDS, Ordering::Release);
    }

    /// One cleaning round.
    ///
    /// # Errors
    /// The first I/O error; what could not be deleted is tried again in the next round.
    pub fn clean(&self, now_ms: i64) -> Result<CleanReport, StoreError> {
        let _one = self.cleaner.one_round.lock();
        let mut report = CleanReport::default();
        if let Some((reason, at_once)) = self.reason_to_clean(now_ms) {
            report.reason = Some(reason);
            report.commit_log_files = self.delete_segments(now_ms, at_once)?;
        }
        let min = self.log.min();
        let before = self.cleaner.cleaned_to.load(Ordering::Acquire);
        if min != before {
            self.follow(min, &mut report)?;
            self.cleaner.cleaned_to.store(min, Ordering::Release);
        }
        if report.commit_log_files > 0 {
            tracing::info!(?report, min, "old files were deleted");
        }
        Ok(report)
    }

    /// Why to delete now, and whether files must go before their time.
    fn reason_to_clean(&self, now_ms: i64) -> Option<(&'static str, bool)> {
        let config = self.cleaning_config();
        let usage = self.disk_usage();
        let pressed = usage > config.forcible_ratio() || usage > config.warning_ratio();
        let manual = &self.cleaner.manual_rounds;
        let asked = manual
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1))
            .is_ok();
        let hours = parse_hours(&config.delete_when).unwrap_or_default();
        let now = hour(now_ms, config.utc_offset_seconds);
        if pressed {
            Some(("the disk is nearly full", config.clean_file_forcibly_enable))
        } else if usage > config.expired_ratio() {
            Some(("disk usage is over diskMaxUsedSpaceRatio", false))
        } else if hours.contains(&now) {
            Some(("it is an hour of deleteWhen", false))
        } else if asked {
            Some(("it was asked for", false))
        } else {
            None
        }
    }

    fn delete_segments(&self, now_ms: i64, at_once: bool) -> Result<usize, StoreError> {
        let config = self.cleaning_config();
        let keep_from = self.dispatcher.dispatched().min(self.log.flushed().get());
        let reserved = config.file_reserved_time.saturating_mul(HOUR_MS);
        let mut deleted = 0;
        for segment in self.log.segments.all() {
            if deleted >= config.delete_file_batch_max || segment.end() > keep_from {
                break;
            }
            let modified =
                segment.modified_ms().map_err(StoreError::io("inspect", segment.path()))?;
            if !at_once && modified.saturating_add(reserved) > now_ms {
                break;
            }
            if at_once && config.refuse_rather_than_delete_unread && self.is_unread(&segment) {
                tracing::warn!(file = %segment.path().display(), "the disk is nearly full, but not every group has read this file; it is kept");
                break;
            }
            self.log.segments.remove_first()?;
            deleted += 1;
        }
        Ok(deleted)
    }

    /// Whether a group has still to read a message of this file.
    fn is_unread(&self, segment: &Segment) -> bool {
        let Some(committed) = self.cleaner.committed.read().clone() else {
            return false;
        };
        self.queues.all().iter().any(|queue| {
            let read_to = committed.lowest_committed(queue.topic(), queue.queue_id());
            let next = read_to.and_then(|read_to| {
                let first = read_to.max(queue.min_offset(self.log.min()));
                queue.unit(first).ok().flatten()
            });
            next.is_some_and(|unit| unit.physical_offset < segment.end())
        })
    }

    /// Lets queues, index and memories of deletions follow the log's new beginning.
    fn follow(&self, min: i64, report: &mut CleanReport) -> Result<(), StoreError> {
        let committed = self.cleaner.committed.read().clone();
        for queue in self.queues.all() {
            let old_min = queue.known_min();
            if let Some(read_to) = committed
                .as_ref()
                .and_then(|committed| committed.lowest_committed(queue.topic(), queue.queue_id()))
            {
                let count = queue.min_offset(min) - read_to.max(old_min.unwrap_or(0));
                if count > 0 && old_min.is_some() {
                    tracing::warn!(topic = %queue.topic(), queue = queue.queue_id(), count, "messages were deleted before every group had read them");
                    report.lost_unread.push(LostUnread {
                        topic: queue.topic().to_string(),
                        queue_id: queue.queue_id(),
                        count,
                    });
                }
            }
            report.queue_files += queue
                .delete_expired(min)
                .map_err(StoreError::io("delete files of", &queue.dir()))?;
            // Known for the next round's count.
            let _ = queue.min_offset(min);
        }
        if let Some(index) = &self.index {
            report.index_files = index.delete_expired(min)?;
        }
        self.queues.prune_tombstones(min)?;
        self.queues.empty_trash();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_parsed_or_refused() {
        assert_eq!(parse_hours("04"), Some(vec![4]));
        assert_eq!(parse_hours("04; 16 ;"), Some(vec![4, 16]));
        assert_eq!(parse_hours(""), Some(vec![]));
        assert_eq!(parse_hours("24"), None);
        assert_eq!(parse_hours("x"), None);
    }

    #[test]
    fn ratios_are_clamped_as_in_the_original() {
        let mut config = StoreConfig::new("/x");
        assert!((config.warning_ratio() - 0.90).abs() < 1e-9);
        config.disk_space_warning_level_ratio = 99;
        config.disk_space_clean_forcibly_ratio = 1;
        config.disk_max_used_space_ratio = 1;
        assert!((config.warning_ratio() - 0.90).abs() < 1e-9);
        assert!((config.forcible_ratio() - 0.30).abs() < 1e-9);
        assert!((config.expired_ratio() - 0.10).abs() < 1e-9);
    }

    #[test]
    fn the_file_system_tells_its_usage() {
        let dir = tempfile::tempdir().unwrap();
        let used = FileSystemProbe.used_ratio(dir.path()).unwrap();
        assert!((0.0..=1.0).contains(&used));
    }
}
