//! Looking at a store's files without opening it, and the one repair that recovery leaves to a
//! person. Behind `apogee store check|dump|repair DIR`; prints nothing itself.
//!
//! [`check`] and [`dump`] change nothing and take no lock; on a running store the newest messages
//! may look torn. [`repair`] takes the store's lock.

use crate::be::record_queue_offset;
use crate::config::{StoreConfig, UNIT_SIZE};
use crate::error::StoreError;
use crate::guard::Guard;
use crate::index_file::{Chains, Shape};
use crate::queue_units::{QueueFolder, list_queues};
use crate::queues::{TOMBSTONES, read_tombstones};
use crate::scan::{Stop, walk};
use crate::segments::Segments;
use crate::unit::Unit;
use apogee_model::record::{BLANK_MAGIC, RecordView, encode_blank};
use apogee_model::sys_flag;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Problems kept in a report; more are only counted.
const MAX_PROBLEMS: usize = 1_000;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Byte in the file.
    pub at: u64,
    /// What is wrong.
    pub what: String,
}

/// What [`check`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// First commit log offset.
    pub log_min: i64,
    /// Commit log offset behind the last good record.
    pub log_end: i64,
    /// Good records.
    pub records: u64,
    /// Records of topics that have no queue (deleted topics).
    pub records_without_queue: u64,
    /// Consume queues.
    pub queues: u64,
    /// Units in them that stand for a message.
    pub units: u64,
    /// Index files.
    pub index_files: u64,
    /// Entries in them.
    pub index_entries: u64,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// All problems.
    pub problem_count: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    fn problem(&mut self, file: &Path, at: u64, what: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { file: file.to_path_buf(), at, what: what.into() });
        }
    }
}

/// Verifies every record (size, magic, checksum, own offset), every queue against the log and
/// every index entry. Changes nothing.
///
/// # Errors
/// [`StoreError`] when files cannot be read or the log lacks a file in the middle.
pub fn check(config: &StoreConfig) -> Result<CheckReport, StoreError> {
    let segments = Segments::open_read_only(config.commit_log_dir())?;
    let mut report = CheckReport::default();
    let mut queues = list_queues(&config.consume_queue_dir())?;
    let deletions = read_tombstones(&config.store_path_root_dir.join(TOMBSTONES))?;
    check_log(&segments, &mut queues, &deletions, &mut report)?;
    for queue in queues.values() {
        report.queues += 1;
        check_queue(queue, &mut report)?;
    }
    check_index(config, &mut report)?;
    Ok(report)
}

type QueueFolders = HashMap<(String, i32), QueueFolder>;

fn check_log(
    segments: &Segments,
    queues: &mut QueueFolders,
    deletions: &HashMap<Arc<str>, i64>,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    report.log_min = segments.min().unwrap_or(0);
    report.log_end = report.log_min;
    let mut at = report.log_min;
    while at < segments.end() {
        let walked = walk(segments, at, true, |offset, record| {
            report.records += 1;
            check_unit(queues, deletions, offset, record, report);
            ControlFlow::Continue(())
        })?;
        report.log_end = walked.end;
        let Some(segment) = segments.find(walked.end) else {
            return Ok(());
        };
        let place = (walked.end - segment.base()) as u64;
        let next_has_data = first_word(segments, segment.end()).is_some_and(|word| word != 0);
        match &walked.stop {
            Stop::Damaged(reason) => report.problem(segment.path(), place, reason.clone()),
            Stop::Unwritten if next_has_data => {
                report.problem(segment.path(), place, "the rest of the file is missing");
            }
            Stop::Unwritten | Stop::FilesEnd | Stop::Asked => return Ok(()),
        }
        if !next_has_data {
            return Ok(());
        }
        at = segment.end();
    }
    Ok(())
}

fn first_word(segments: &Segments, offset: i64) -> Option<i32> {
    let segment = segments.find(offset)?;
    crate::be::get_i32(&segment.read_copy(0, 4).ok()?, 0)
}

/// Compares a record with its queue's unit.
fn check_unit(
    queues: &mut QueueFolders,
    deletions: &HashMap<Arc<str>, i64>,
    position: i64,
    record: &RecordView<'_>,
    report: &mut CheckReport,
) {
    let kind = sys_flag::transaction_type(record.sys_flag());
    let queued = kind == sys_flag::TRANSACTION_NOT || kind == sys_flag::TRANSACTION_COMMIT;
    if !queued || record.sys_flag() & sys_flag::INNER_BATCH != 0 {
        return;
    }
    let key = (record.topic().to_owned(), record.queue_id());
    let deleted = deletions.get(record.topic()).is_some_and(|at| position < *at);
    let Some(queue) = queues.get_mut(&key).filter(|_| !deleted) else {
        report.records_without_queue += 1;
        return;
    };
    let offset = record_queue_offset(record.bytes()).unwrap_or(-1);
    let found = queue.unit(offset);
    let same = found.is_some_and(|unit| {
        unit.physical_offset == position && unit.size as usize == record.total_size()
    });
    if same {
        return;
    }
    let what = match found.filter(|unit| unit.size > 0) {
        Some(unit) => format!(
            "unit {offset} points to {} ({} bytes), its record stands at {position} ({} bytes)",
            unit.physical_offset,
            unit.size,
            record.total_size()
        ),
        None => format!("the record at {position} has no unit {offset}"),
    };
    let at = (offset.max(0) as u64).saturating_mul(UNIT_SIZE as u64);
    report.problem(&queue.dir, at, what);
}

fn check_queue(queue: &QueueFolder, report: &mut CheckReport) -> Result<(), StoreError> {
    let mut newest = -1;
    let mut empty_at: Option<u64> = None;
    let end = report.log_end;
    queue.each(|path, at, unit: Unit| {
        if unit.size == 0 && unit.physical_offset == 0 {
            empty_at = empty_at.or(Some(at));
            return;
        }
        if let Some(empty_at) = empty_at.take() {
            report.problem(path, empty_at, "empty places stand between units");
        }
        if unit.is_filler() {
            return;
        }
        report.units += 1;
        if unit.end() > end {
            report.problem(path, at, format!("points to {}, past the log's end", unit.end()));
        } else if unit.physical_offset <= newest {
            report.problem(path, at, "points backwards");
        }
        newest = unit.physical_offset;
    })
}

fn check_index(config: &StoreConfig, report: &mut CheckReport) -> Result<(), StoreError> {
    let shape = Shape { slots: config.max_hash_slot_num, entries: config.max_index_num };
    let dir = config.index_dir();
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        report.index_files += 1;
        let chains = Chains::open(&path, shape).map_err(StoreError::io("open", &path))?;
        if !chains.is_whole() {
            report.problem(&path, 0, "shorter than maxHashSlotNum and maxIndexNum say");
            continue;
        }
        let end = report.log_end;
        let visited = chains.each(|number, entry, linked| {
            report.index_entries += 1;
            if entry.offset < 0 || entry.offset >= end {
                let what = format!("entry {number} points to {}, past the log", entry.offset);
                report.problem(&path, 0, what);
            } else if !linked {
                report.problem(&path, 0, format!("entry {number} breaks its slot's chain"));
            }
        });
        visited.map_err(StoreError::io("read", &path))?;
    }
    Ok(())
}

/// Shows each record from `from` on (the log's beginning when `None`) until `visit` breaks off.
/// Damaged places are stepped over to the next file. Gives the offset at which it ended.
///
/// # Errors
/// [`StoreError`] when files cannot be read, or when nothing can be read at `from`.
pub fn dump(
    config: &StoreConfig,
    from: Option<i64>,
    mut visit: impl FnMut(i64, &RecordView<'_>) -> ControlFlow<()>,
) -> Result<i64, StoreError> {
    let segments = Segments::open_read_only(config.commit_log_dir())?;
    let mut at = from.or(segments.min()).unwrap_or(0);
    while at < segments.end() {
        let walked = walk(&segments, at, false, &mut visit)?;
        at = match segments.find(walked.end) {
            Some(segment) if matches!(walked.stop, Stop::Damaged(_)) => segment.end(),
            _ => return Ok(walked.end),
        };
    }
    Ok(at)
}

/// What [`repair`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// For each damaged file: where the damage began, and where the old file was kept.
    pub damaged: Vec<(i64, PathBuf)>,
}

/// Takes damaged parts out of the middle of the log, so that the store opens again: the rest of a
/// damaged file becomes a blank, the old file is kept under `damaged/`. The next start derives
/// queues and index anew. A torn end is not touched; opening deals with it.
///
/// # Errors
/// [`StoreError::Locked`] while the store is open; I/O errors.
pub fn repair(config: &StoreConfig) -> Result<RepairReport, StoreError> {
    let root = &config.store_path_root_dir;
    let guard = Guard::take(root)?;
    let log_dir = config.commit_log_dir();
    let size = config.mapped_file_size_commit_log;
    let segments = Segments::open(log_dir, size, None)?;
    let mut report = RepairReport::default();
    let mut at = segments.min().unwrap_or(0);
    while at < segments.end() {
        let walked = walk(&segments, at, true, |_, _| ControlFlow::Continue(()))?;
        let Some(segment) = segments.find(walked.end) else {
            break;
        };
        if first_word(&segments, segment.end()).is_none_or(|word| word == 0) {
            break;
        }
        let kept = root.join("damaged").join(crate::segment::file_name(segment.base()));
        let place = (walked.end - segment.base()) as usize;
        keep_copy(segment.path(), &kept)?;
        let blank = encode_blank((size - place) as i32);
        debug_assert_eq!(crate::be::get_i32(&blank, 4), Some(BLANK_MAGIC));
        segment
            .zero_from(place)
            .and_then(|()| segment.write(place, &blank))
            .and_then(|()| segment.sync())
            .map_err(StoreError::io("repair", segment.path()))?;
        report.damaged.push((walked.end, kept));
        at = segment.end();
    }
    if !report.damaged.is_empty() {
        for name in ["checkpoint", crate::manifest::FILE_NAME] {
            let path = root.join(name);
            if path.exists() {
                std::fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
            }
        }
        guard.mark_open()?;
    }
    Ok(report)
}

fn keep_copy(path: &Path, target: &Path) -> Result<(), StoreError> {
    if let Some(dir) = target.parent() {
        std::fs::create_dir_all(dir).map_err(StoreError::io("create", dir))?;
    }
    std::fs::copy(path, target).map_err(StoreError::io("copy", path))?;
    std::fs::File::open(target)
        .and_then(|file| file.sync_all())
        .map_err(StoreError::io("sync", target))
}
