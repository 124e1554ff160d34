//! Opening: where the log ends, what the derived files know, and how the rest is made good.
//!
//! 1. Find a position S below which queues and index are complete. After a clean stop that is the
//!    end of the last message any queue knows. After a crash it is the manifest's position, or
//!    (another program's store) the beginning of the newest file whose first message is older than
//!    the checkpoint.
//! 2. Walk the log from there; the first place that is no valid record is its end E. What stands
//!    behind is zeroed. Damage in front of messages that the checkpoint calls flushed is not a
//!    torn tail: the store then refuses to open and changes nothing.
//! 3. Load the queues, cut off what points past S (crash) or E (clean), compare with the manifest;
//!    a queue that misses something is thrown away and rebuilt from the beginning of the log.
//! 4. Dispatch from S (or the beginning) to E.
//!
//! Runs before any reader, writer or thread exists.

use crate::checkpoint::Checkpoint;
use crate::commit_log::CommitLog;
use crate::config::StoreConfig;
use crate::dispatch::{DispatchContext, DispatchError, Dispatcher, NoListener, WhenBusy};
use crate::error::StoreError;
use crate::index::Index;
use crate::manifest::{Manifest, VouchedQueue};
use crate::queues::Queues;
use crate::scan::{Stop, Walked, walk};
use apogee_model::record::{LogEntry, parse_entry};
use std::ops::ControlFlow;

/// What recovery works with.
pub(crate) struct Recovery<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) log: &'a CommitLog,
    pub(crate) queues: &'a Queues,
    pub(crate) index: Option<&'a Index>,
    pub(crate) dispatcher: &'a Dispatcher,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) crashed: bool,
}

/// Where recovery begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// A record from which the log is read.
    scan: i64,
    /// Position below which queues and index are complete.
    derived: i64,
}

impl Start {
    fn at(position: i64) -> Self {
        Self { scan: position, derived: position }
    }
}

/// What recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the last stop was not clean.
    pub crashed: bool,
    /// Position from which the log was read.
    pub scanned_from: i64,
    /// Position from which records were dispatched again.
    pub dispatched_from: i64,
    /// The log's end.
    pub end: i64,
    /// Why something behind the end was cut off, if so.
    pub cut: Option<String>,
    /// Queues that were rebuilt.
    pub rebuilt_queues: usize,
}

impl Recovery<'_> {
    /// Runs all steps.
    pub(crate) fn run(&self) -> Result<RecoveryReport, StoreError> {
        let min = self.log.min();
        let own = self.manifest.is_some();
        let mut clean = None;
        let mut damaged = 0;
        if !self.crashed {
            let loaded = self.queues.load(self.log.segments.end(), false, own)?;
            damaged = loaded.damaged;
            clean = self.clean_start(loaded.last_physical_offset);
        }
        // Without a clean start the queues know more than the log: recover as after a crash.
        let crashed = clean.is_none();
        let start = clean.map_or_else(|| self.crash_start(), Ok)?;
        let walked =
            walk(&self.log.segments, start.scan, self.config.check_crc_on_recover, |_, _| {
                ControlFlow::Continue(())
            })?;
        let cut = self.cut(&walked, crashed)?;
        let derived = start.derived.min(walked.end);
        if crashed {
            self.queues.forget_all();
            damaged = self.queues.load(derived, true, own)?.damaged;
        }
        damaged += self.check_manifest(derived, crashed)?;
        let mut from = derived;
        if damaged > 0 {
            from = min;
        }
        if let Some(index) = self.index {
            let files = self.manifest.as_ref().map(|manifest| manifest.index_files.as_slice());
            index.recover(min, walked.end, crashed, files.unwrap_or_default())?;
            from = self.index_start(index.newest(), from).max(min);
        }
        self.dispatch(from, &walked)?;
        self.raise_to_manifest()?;
        for queue in self.queues.all() {
            queue.settle();
        }
        let last_timestamp = walked.last.map_or(0, |(_, timestamp)| timestamp);
        self.log.settle(walked.end, last_timestamp);
        Ok(RecoveryReport {
            crashed: self.crashed,
            scanned_from: start.scan,
            dispatched_from: from,
            end: walked.end,
            cut,
            rebuilt_queues: damaged,
        })
    }

    /// Start after a clean stop: the last message that any queue knows. `None` when that message
    /// is not in the log.
    fn clean_start(&self, last: Option<i64>) -> Option<Start> {
        let min = self.log.min();
        match last {
            Some(at) if at >= min => self.is_record(at).then_some(Start::at(at)),
            _ => Some(Start::at(min)),
        }
    }

    fn is_record(&self, offset: i64) -> bool {
        let Some(segment) = self.log.segments.find(offset) else {
            return false;
        };
        let at = (offset - segment.base()) as usize;
        let left = (segment.end() - offset) as usize;
        let size = segment
            .read_copy(at, left.min(4))
            .ok()
            .and_then(|head| crate::be::get_i32(&head, 0))
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size <= left);
        let bytes = size.and_then(|size| segment.read_copy(at, size).ok());
        matches!(
            bytes.as_deref().map(parse_entry),
            Some(Ok(LogEntry::Record(record))) if record.physical_offset() == offset
        )
    }

    /// Start after a crash.
    fn crash_start(&self) -> Result<Start, StoreError> {
        let min = self.log.min();
        let last_record = self.checkpoint.logics_physical_offset;
        if let Some(manifest) = &self.manifest
            && last_record >= min
            && last_record < manifest.position
            && self.is_record(last_record)
        {
            return Ok(Start { scan: last_record, derived: manifest.position });
        }
        let safe = self.checkpoint.safe_timestamp();
        for segment in self.log.segments.all().into_iter().rev() {
            let first = self.first_timestamp(segment.base())?;
            if first.is_some_and(|timestamp| timestamp > 0 && timestamp <= safe) {
                return Ok(Start::at(segment.base()));
            }
        }
        Ok(Start::at(min))
    }

    fn first_timestamp(&self, base: i64) -> Result<Option<i64>, StoreError> {
        let Some(segment) = self.log.segments.find(base) else {
            return Ok(None);
        };
        let len = 80.min(self.log.segments.size());
        let head = segment.read_copy(0, len).map_err(StoreError::io("read", segment.path()))?;
        let is_record = crate::be::get_i32(&head, 0).is_some_and(|size| size > 0)
            && crate::be::get_i64(&head, 28) == Some(base);
        Ok(is_record.then(|| crate::be::record_store_timestamp(&head)).flatten())
    }

    /// Clears what stands behind the end. Gives the reason when there was something.
    fn cut(&self, walked: &Walked, crashed: bool) -> Result<Option<String>, StoreError> {
        let end = walked.end;
        let reason = match &walked.stop {
            Stop::Damaged(reason) => Some(reason.clone()),
            Stop::Unwritten | Stop::FilesEnd | Stop::Asked => None,
        };
        let segment = self.log.segments.find(end);
        let next_base = segment.as_ref().map_or(end, |segment| segment.end());
        let next_time = self.first_timestamp(next_base)?;
        if let (Some(time), Some(segment)) = (next_time, &segment)
            && time <= self.checkpoint.physic_msg_timestamp
        {
            return Err(StoreError::DamagedLog {
                path: segment.path().to_path_buf(),
                at: (end - segment.base()) as usize,
                offset: end,
                reason: reason.unwrap_or_else(|| "the bytes are missing".to_owned()),
            });
        }
        if crashed || reason.is_some() || next_time.is_some() {
            self.log.segments.remove_from(next_base.max(end))?;
            if let Some(segment) = &segment {
                segment
                    .zero_from((end - segment.base()) as usize)
                    .map_err(StoreError::io("clear the end of", segment.path()))?;
            }
        }
        if let Some(reason) = &reason {
            tracing::warn!(end, %reason, "the commit log's tail was torn and is cut off");
        }
        Ok(reason)
    }

    /// Resets queues that hold less than the manifest says. Gives their number.
    fn check_manifest(&self, loaded_to: i64, crashed: bool) -> Result<usize, StoreError> {
        let Some(manifest) = &self.manifest else {
            return Ok(0);
        };
        if crashed && loaded_to < manifest.position {
            // Units behind the start were cut on purpose; dispatch brings them back.
            return Ok(0);
        }
        let mut damaged = 0;
        for vouched in self.vouched_queues(manifest) {
            let (topic, queue_id) = (&vouched.topic, vouched.queue_id);
            let whole = self.queues.get(topic, queue_id).is_some_and(|queue| {
                let begins =
                    queue.first_unit() <= vouched.first || self.log.min() != manifest.log_min;
                begins && queue.max_offset() >= vouched.max
            });
            if !whole {
                tracing::warn!(%topic, queue_id, "the queue's files are incomplete; they are rebuilt from the commit log");
                self.queues.reset(topic, queue_id)?;
                damaged += 1;
            }
        }
        Ok(damaged)
    }

    /// A queue whose messages have all expired still goes on where it was.
    fn raise_to_manifest(&self) -> Result<(), StoreError> {
        let manifest = self.manifest.as_ref();
        for vouched in manifest.into_iter().flat_map(|m| self.vouched_queues(m)) {
            let queue = self.queues.get_or_create(&vouched.topic, vouched.queue_id);
            queue.raise_to(vouched.max).map_err(StoreError::io("write", &queue.dir()))?;
        }
        Ok(())
    }

    /// The manifest's queues, without those of topics that were deleted after it was written.
    fn vouched_queues<'m>(
        &'m self,
        manifest: &'m Manifest,
    ) -> impl Iterator<Item = &'m VouchedQueue> {
        manifest.queues.iter().filter(|vouched| {
            let buried = self.queues.deleted_at(&vouched.topic);
            buried.is_none_or(|at| at < manifest.position)
        })
    }

    /// Where dispatch must begin so that the index misses nothing, at most `from`. An index about
    /// which nothing is known (never kept, or made by another program) is not rebuilt: that would
    /// mean to read the whole log.
    fn index_start(&self, newest: i64, from: i64) -> i64 {
        let vouched = self.manifest.as_ref().and_then(|manifest| manifest.indexed);
        match vouched {
            Some(vouched) if newest >= vouched => from,
            Some(_) => from.min(newest),
            None if self.crashed && newest >= 0 => from.min(newest),
            None => from,
        }
    }

    fn dispatch(&self, from: i64, walked: &Walked) -> Result<(), StoreError> {
        let (last_record, last_timestamp) = walked.last.unwrap_or((0, 0));
        self.dispatcher.settle(from, last_record, last_timestamp);
        let context = DispatchContext {
            log: self.log,
            queues: self.queues,
            index: self.index,
            listener: &NoListener,
        };
        self.dispatcher
            .run(&context, walked.end, WhenBusy::Wait)
            .map_err(|error| self.damaged(&error))
    }

    fn damaged(&self, error: &DispatchError) -> StoreError {
        let segment = self.log.segments.find(error.position);
        StoreError::DamagedLog {
            path: segment.as_ref().map_or_else(
                || self.log.segments.dir().to_path_buf(),
                |segment| segment.path().to_path_buf(),
            ),
            at: segment.map_or(0, |segment| (error.position - segment.base()) as usize),
            offset: error.position,
            reason: error.reason.clone(),
        }
    }
}
