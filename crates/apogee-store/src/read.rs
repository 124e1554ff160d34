//! Reading a queue: a plan of owned slices, made without keeping any lock.
//!
//! The rules (status names, corrections of the offset, batch limits, scan limit) are the
//! original's, because clients and tools act on them. A slice keeps its commit log file alive;
//! records that follow each other in the log become one slice. Hot data is mapped, cold data is
//! copied by `pread`, so that a disk error is an error.

use crate::consume_queue::ConsumeQueue;
use crate::message_store::MessageStore;
use crate::unit::Unit;
use apogee_model::MessageFilter;
use apogee_model::record::{LogEntry, parse_entry};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Upper bound of an answer in bytes, whatever is asked for.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// Units read from the queue at a time.
const READ_AHEAD: usize = 128;

/// Outcome of a read; the names are part of the remark that clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetStatus {
    /// Messages were found.
    Found,
    /// All inspected messages were filtered out.
    NoMatchedMessage,
    /// The commit log file of the messages is gone.
    MessageWasRemoving,
    /// The queue's file is missing.
    OffsetFoundNull,
    /// The offset is far behind the end.
    OffsetOverflowBadly,
    /// The offset is the end: nothing new yet.
    OffsetOverflowOne,
    /// The offset is before the first message.
    OffsetTooSmall,
    /// There is no such queue.
    NoMatchedLogicQueue,
    /// The queue has no message.
    NoMessageInQueue,
}

impl GetStatus {
    /// The original's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Self::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            Self::OffsetFoundNull => "OFFSET_FOUND_NULL",
            Self::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
            Self::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            Self::OffsetTooSmall => "OFFSET_TOO_SMALL",
            Self::NoMatchedLogicQueue => "NO_MATCHED_LOGIC_QUEUE",
            Self::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
        }
    }
}

/// What to read.
#[derive(Clone, Copy)]
pub struct ReadRequest<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue id.
    pub queue_id: i32,
    /// First offset wanted.
    pub offset: i64,
    /// Messages wanted at most.
    pub max_num: usize,
    /// Bytes wanted at most (the store's own limits apply too).
    pub max_bytes: usize,
    /// Which messages.
    pub filter: &'a dyn MessageFilter,
}

/// A read's outcome; owns everything it refers to.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    /// Outcome.
    pub status: GetStatus,
    /// Where to go on.
    pub next_begin_offset: i64,
    /// Lowest offset of the queue.
    pub min_offset: i64,
    /// One past the highest visible offset.
    pub max_offset: i64,
    /// Records, in order; adjacent ones share a slice.
    pub slices: Vec<Bytes>,
    /// Number of records.
    pub message_count: usize,
    /// Bytes of all records.
    pub bytes: usize,
    /// Commit log offset of the last inspected record.
    pub read_to_physical: i64,
    /// Whether data came (or would come) from the disk rather than from memory.
    pub cold: bool,
    /// Whether the reader is so far behind that a slave should serve it.
    pub suggest_slave: bool,
}

impl ReadPlan {
    fn nothing(status: GetStatus, next: i64, min: i64, max: i64) -> Self {
        Self {
            status,
            next_begin_offset: next,
            min_offset: min,
            max_offset: max,
            slices: Vec::new(),
            message_count: 0,
            bytes: 0,
            read_to_physical: 0,
            cold: false,
            suggest_slave: false,
        }
    }
}

/// Where slices are collected: a run of adjacent records that is not cut out yet.
struct Collector<'a> {
    store: &'a MessageStore,
    plan: ReadPlan,
    run: Option<(i64, usize, bool)>,
}

impl Collector<'_> {
    fn add(&mut self, unit: &Unit, cold: bool) -> std::io::Result<()> {
        let (at, len) = (unit.physical_offset, unit.size as usize);
        match &mut self.run {
            Some((start, run, run_cold)) if *start + *run as i64 == at && *run_cold == cold => {
                *run += len;
            }
            _ => {
                self.finish()?;
                self.run = Some((at, len, cold));
            }
        }
        self.plan.message_count += 1;
        self.plan.bytes += len;
        self.plan.status = GetStatus::Found;
        Ok(())
    }

    fn finish(&mut self) -> std::io::Result<()> {
        let Some((mut at, mut left, cold)) = self.run.take() else {
            return Ok(());
        };
        // A run never crosses a file: a blank stands between the last record and the next file.
        while left > 0 {
            let slice = self.store.log_bytes(at, left, cold)?;
            let Some(slice) = slice else {
                return Err(std::io::Error::from(std::io::ErrorKind::NotFound));
            };
            at += slice.len() as i64;
            left -= slice.len().min(left);
            self.plan.slices.push(slice);
        }
        Ok(())
    }
}

impl MessageStore {
    /// Reads messages of a queue; see [`GetStatus`] for the outcomes. Never blocks writers, and
    /// keeps no lock. Cold data is read here and now: callers on an async runtime move the call to
    /// a blocking pool when [`MessageStore::is_cold`] says so.
    #[must_use]
    pub fn plan_read(&self, request: &ReadRequest<'_>) -> ReadPlan {
        let Some(queue) = self.queues.get(request.topic, request.queue_id) else {
            return ReadPlan::nothing(GetStatus::NoMatchedLogicQueue, 0, 0, 0);
        };
        let max = queue.max_offset();
        let min = queue.min_offset(self.log.min());
        let offset = request.offset;
        let (status, next) = if max == 0 {
            (GetStatus::NoMessageInQueue, 0)
        } else if offset < min {
            (GetStatus::OffsetTooSmall, min)
        } else if offset == max {
            (GetStatus::OffsetOverflowOne, offset)
        } else if offset > max {
            (GetStatus::OffsetOverflowBadly, max)
        } else {
            return self.collect(&queue, request, min, max);
        };
        ReadPlan::nothing(status, next, min, max)
    }

    fn collect(
        &self,
        queue: &Arc<ConsumeQueue>,
        request: &ReadRequest<'_>,
        min: i64,
        max: i64,
    ) -> ReadPlan {
        let mut collector = Collector {
            store: self,
            plan: ReadPlan::nothing(GetStatus::NoMatchedMessage, request.offset, min, max),
            run: None,
        };
        let before = request.offset;
        if let Err(error) = self.scan(queue, request, max, &mut collector) {
            tracing::warn!(queue = ?queue, offset = before, %error, "a read stopped at a file that is gone or unreadable");
            if collector.plan.next_begin_offset == before {
                let next = queue.next_file_start(before);
                return ReadPlan::nothing(GetStatus::OffsetFoundNull, next.min(max), min, max);
            }
        }
        if collector.finish().is_err() {
            // Deleted between look-up and slice: what was collected before it is still good.
            return ReadPlan::nothing(
                GetStatus::MessageWasRemoving,
                collector.plan.next_begin_offset,
                min,
                max,
            );
        }
        let mut plan = collector.plan;
        let behind = self.dispatcher.visible().saturating_sub(plan.read_to_physical);
        plan.suggest_slave = behind > self.memory_window;
        plan
    }

    fn scan(
        &self,
        queue: &Arc<ConsumeQueue>,
        request: &ReadRequest<'_>,
        max: i64,
        collector: &mut Collector<'_>,
    ) -> std::io::Result<()> {
        let scan_limit = (self.config.max_filter_message_size / crate::config::UNIT_SIZE)
            .max(request.max_num) as i64;
        let end = max.min(request.offset.saturating_add(scan_limit));
        let mut skip_below = i64::MIN;
        let mut at = request.offset;
        // What is asked for comes at once; only a read that filters much goes on in large steps.
        let mut step = request.max_num.clamp(1, READ_AHEAD);
        while at < end {
            let wanted = step.min((end - at) as usize);
            step = READ_AHEAD;
            let units = queue.read(at, wanted)?;
            if units.is_empty() {
                return Ok(());
            }
            for unit in units {
                if !self.visit(queue, request, &unit, &mut skip_below, collector)? {
                    return Ok(());
                }
                at += 1;
                collector.plan.next_begin_offset = at;
            }
        }
        Ok(())
    }

    /// Looks at one unit; gives false when the answer is complete before it.
    fn visit(
        &self,
        queue: &ConsumeQueue,
        request: &ReadRequest<'_>,
        unit: &Unit,
        skip_below: &mut i64,
        collector: &mut Collector<'_>,
    ) -> std::io::Result<bool> {
        if unit.is_filler() || unit.size <= 0 {
            return Ok(true);
        }
        let cold = self.is_cold(unit.physical_offset);
        if self.is_full(request, unit.size as usize, &collector.plan, cold) {
            return Ok(false);
        }
        collector.plan.read_to_physical = unit.physical_offset;
        collector.plan.cold |= cold;
        if unit.physical_offset < *skip_below {
            return Ok(true);
        }
        let code = self.tags_code_of(queue, unit);
        if !request.filter.matches_tags_code(code) {
            return Ok(true);
        }
        let Some(segment) = self
            .log
            .segments
            .find(unit.physical_offset)
            .filter(|_| unit.end() <= self.dispatcher.visible())
        else {
            if collector.plan.message_count == 0 {
                collector.plan.status = GetStatus::MessageWasRemoving;
            }
            let size = self.config.mapped_file_size_commit_log as i64;
            let base = unit.physical_offset - unit.physical_offset.rem_euclid(size);
            *skip_below = base.saturating_add(size);
            return Ok(true);
        };
        drop(segment);
        if request.filter.needs_properties() && !self.matches_properties(request, unit, cold)? {
            if collector.plan.message_count == 0 {
                collector.plan.status = GetStatus::NoMatchedMessage;
            }
            return Ok(true);
        }
        *skip_below = i64::MIN;
        collector.add(unit, cold)?;
        Ok(true)
    }

    fn is_full(&self, request: &ReadRequest<'_>, size: usize, plan: &ReadPlan, cold: bool) -> bool {
        if plan.message_count == 0 || plan.bytes == 0 {
            return false;
        }
        let (bytes, count) = if cold {
            (
                self.config.max_transfer_bytes_on_message_in_disk,
                self.config.max_transfer_count_on_message_in_disk,
            )
        } else {
            (
                self.config.max_transfer_bytes_on_message_in_memory,
                self.config.max_transfer_count_on_message_in_memory,
            )
        };
        let asked = request.max_bytes.min(MAX_ANSWER_BYTES);
        plan.message_count + 1 > request.max_num
            || plan.bytes + size > asked
            || plan.bytes + size > bytes
            || plan.message_count >= count
    }

    fn matches_properties(
        &self,
        request: &ReadRequest<'_>,
        unit: &Unit,
        cold: bool,
    ) -> std::io::Result<bool> {
        let bytes = self.log_bytes(unit.physical_offset, unit.size as usize, cold)?;
        Ok(match bytes.as_deref().map(parse_entry) {
            Some(Ok(LogEntry::Record(record))) => {
                request.filter.matches_properties(record.properties())
            }
            _ => false,
        })
    }

    /// Whether a commit log offset is so far behind the end that it is probably not in memory.
    #[must_use]
    pub fn is_cold(&self, physical_offset: i64) -> bool {
        self.dispatcher.visible().saturating_sub(physical_offset) > self.memory_window
    }

    /// Log bytes below the visible position: mapped, or copied when cold.
    pub(crate) fn log_bytes(
        &self,
        offset: i64,
        len: usize,
        cold: bool,
    ) -> std::io::Result<Option<Bytes>> {
        if offset.saturating_add(len as i64) > self.dispatcher.visible() {
            return Ok(None);
        }
        if cold { self.log.read_copy(offset, len) } else { Ok(self.log.bytes(offset, len)) }
    }

    /// The record at a commit log offset; without a size its own size word is used.
    ///
    /// # Errors
    /// An I/O error of a cold read. A place where no whole record stands gives `None`.
    pub fn get_by_physical_offset(
        &self,
        offset: i64,
        size: Option<usize>,
    ) -> std::io::Result<Option<Bytes>> {
        let cold = self.is_cold(offset);
        let size = match size {
            Some(size) => size,
            None => {
                let Some(head) = self.log_bytes(offset, 4, cold)? else {
                    return Ok(None);
                };
                match crate::be::get_i32(&head, 0).and_then(|size| usize::try_from(size).ok()) {
                    Some(size) if size >= 8 => size,
                    _ => return Ok(None),
                }
            }
        };
        let bytes = self.log_bytes(offset, size, cold)?;
        Ok(bytes.filter(|bytes| matches!(parse_entry(bytes), Ok(LogEntry::Record(_)))))
    }

    /// Raw log bytes from `offset` on, at most `max` and not past a file's end or the visible
    /// position: what a replica is sent. Empty when there is nothing (yet).
    ///
    /// # Errors
    /// An I/O error of a cold read.
    pub fn read_log(&self, offset: i64, max: usize) -> std::io::Result<Bytes> {
        let end = self.dispatcher.visible();
        let Some(segment) = self.log.segments.find(offset).filter(|_| offset < end) else {
            return Ok(Bytes::new());
        };
        let len = (segment.end().min(end) - offset) as usize;
        let bytes = self.log_bytes(offset, len.min(max), self.is_cold(offset))?;
        Ok(bytes.unwrap_or_else(|| BytesMut::new().freeze()))
    }
}
