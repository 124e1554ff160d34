//! The commit log: one sequence of records over files of one size, and the append lock.
//!
//! An append encodes its records (checksum included) before the lock. Under the lock each record
//! gets its queue offset and its place, three fields are patched, and each run of records that lies
//! in one file is written with one `pwrite`. A record that does not fit the rest of a file (with
//! 8 bytes to spare) leaves a blank there and begins the next file.
//!
//! What always holds: `appended` moves only after the bytes are in the page cache; queue offsets of
//! a failed run are given back; after a failed write or flush nothing is written until
//! [`CommitLog::try_repair`] has rewritten and flushed what is in doubt ("poisoned").
//!
//! Locks: `writer` is the append lock; nothing is called from under it but the queue table. Readers
//! take none of it. `flush_lock` keeps flushes and repairs apart and comes first.

use crate::append::{Appending, Placed};
use crate::consume_queue::ConsumeQueue;
use crate::error::{AppendError, StoreError};
use crate::progress::Progress;
use crate::queues::Queues;
use crate::segment::Segment;
use crate::segments::Segments;
use apogee_model::record;
use apogee_model::sys_flag;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// How far a clock may step back before store times follow it: binary searches by time rely on
/// times that do not fall within this span.
const CLOCK_SLACK_MS: i64 = 1_000;

/// A record encoded before the lock.
pub(crate) struct Encoded {
    /// Index in the caller's batch.
    pub(crate) item: usize,
    /// Place in the buffer.
    pub(crate) range: Range<usize>,
    /// Its queue.
    pub(crate) queue: Arc<ConsumeQueue>,
}

/// The commit log.
pub(crate) struct CommitLog {
    pub(crate) segments: Segments,
    writer: Mutex<Writer>,
    locked_since: AtomicI64,
    appended: Progress,
    flushed: Progress,
    last_store_timestamp: AtomicI64,
    flushed_timestamp: AtomicI64,
    closed: AtomicBool,
    poisoned: AtomicBool,
    poison_reason: Mutex<String>,
    flush_lock: Mutex<()>,
}

struct Writer {
    last_timestamp: i64,
}

impl CommitLog {
    /// A log over files that were opened; positions are set by recovery.
    pub(crate) fn new(segments: Segments) -> Self {
        Self {
            segments,
            writer: Mutex::new(Writer { last_timestamp: 0 }),
            locked_since: AtomicI64::new(0),
            appended: Progress::new(0),
            flushed: Progress::new(0),
            last_store_timestamp: AtomicI64::new(0),
            flushed_timestamp: AtomicI64::new(0),
            closed: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            poison_reason: Mutex::default(),
            flush_lock: Mutex::new(()),
        }
    }

    /// Sets all positions, at the end of recovery.
    pub(crate) fn settle(&self, end: i64, last_timestamp: i64) {
        self.appended.reset(end);
        self.flushed.reset(end);
        self.writer.lock().last_timestamp = last_timestamp;
        self.last_store_timestamp.store(last_timestamp, Ordering::Release);
        self.flushed_timestamp.store(last_timestamp, Ordering::Release);
    }

    /// Position behind the last record in the page cache.
    pub(crate) fn appended(&self) -> &Progress {
        &self.appended
    }

    /// Position behind the last record on the disk.
    pub(crate) fn flushed(&self) -> &Progress {
        &self.flushed
    }

    /// First offset that is still there.
    pub(crate) fn min(&self) -> i64 {
        self.segments.min().unwrap_or(0)
    }

    /// Store timestamp of the newest record on the disk.
    pub(crate) fn flushed_timestamp(&self) -> i64 {
        self.flushed_timestamp.load(Ordering::Acquire)
    }

    /// How long the append lock has been held, in ms by the callers' clock; 0 when it is free.
    pub(crate) fn lock_held_ms(&self, now_ms: i64) -> i64 {
        match self.locked_since.load(Ordering::Acquire) {
            0 => 0,
            since => (now_ms - since).max(0),
        }
    }

    /// Why the log takes no writes, if so.
    pub(crate) fn poison(&self) -> Option<String> {
        self.poisoned.load(Ordering::Acquire).then(|| self.poison_reason.lock().clone())
    }

    /// Stops writes for `reason`; who waits for a flush is told.
    pub(crate) fn set_poison(&self, reason: String) {
        tracing::error!(%reason, "the store takes no more writes until it is repaired");
        (*self.poison_reason.lock()).clone_from(&reason);
        self.poisoned.store(true, Ordering::Release);
        self.flushed.fail(&reason);
    }

    /// Takes no appends any more; gives whether it did before.
    pub(crate) fn close(&self) -> bool {
        let _writer = self.writer.lock();
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether [`CommitLog::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Runs `work` with the append lock held, for changes that must fall between two appends.
    pub(crate) fn between_appends<T>(&self, work: impl FnOnce(i64) -> T) -> T {
        let _writer = self.writer.lock();
        work(self.appended.get())
    }

    /// Appends encoded records and fills in the outcomes. Gives the position behind the last
    /// record stored, or `None` when none was.
    pub(crate) fn append(
        &self,
        buffer: &mut [u8],
        encoded: &mut [Encoded],
        batch: &mut [Appending<'_>],
        queues: &Queues,
        now_ms: i64,
    ) -> Option<i64> {
        let mut writer = self.writer.lock();
        self.locked_since.store(now_ms.max(1), Ordering::Release);
        let result = self.append_locked(&mut writer, buffer, encoded, batch, queues, now_ms);
        self.locked_since.store(0, Ordering::Release);
        result
    }

    fn append_locked(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        buffer: &mut [u8],
        encoded: &mut [Encoded],
        batch: &mut [Appending<'_>],
        queues: &Queues,
        now_ms: i64,
    ) -> Option<i64> {
        let behind = writer.last_timestamp.saturating_sub(now_ms);
        let timestamp =
            if (1..=CLOCK_SLACK_MS).contains(&behind) { writer.last_timestamp } else { now_ms };
        writer.last_timestamp = timestamp;
        let mut stored = None;
        let mut rest = encoded;
        while !rest.is_empty() {
            match self.append_run(buffer, rest, batch, queues, timestamp) {
                Ok((count, end)) => {
                    self.last_store_timestamp.store(timestamp, Ordering::Release);
                    if count > 0 {
                        stored = Some(end);
                    }
                    rest = rest.get_mut(count..).unwrap_or_default();
                }
                Err(error) => {
                    for failed in rest.iter() {
                        if let Some(item) = batch.get_mut(failed.item) {
                            item.outcome = Some(Err(error.clone()));
                        }
                    }
                    break;
                }
            }
        }
        stored
    }

    /// Stores as many records as fit the current file (at least one, after a roll). Gives their
    /// number and the position behind them; 0 records means that a blank was written.
    fn append_run(
        &self,
        buffer: &mut [u8],
        encoded: &mut [Encoded],
        batch: &mut [Appending<'_>],
        queues: &Queues,
        timestamp: i64,
    ) -> Result<(usize, i64), AppendError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(AppendError::Closed);
        }
        if let Some(reason) = self.poison() {
            return Err(AppendError::Poisoned(reason));
        }
        let start = self.appended.get();
        let segment = self
            .segments
            .ensure(start)
            .map_err(|error| AppendError::DiskFull(error.to_string()))?;
        let mut at = start;
        let mut count = 0;
        for record in encoded.iter_mut() {
            let len = record.range.len();
            if len + record::MIN_BLANK > (segment.end() - at) as usize {
                break;
            }
            self.place(buffer, record, batch, queues, at, timestamp);
            at += len as i64;
            count += 1;
        }
        let placed = encoded.get(..count).unwrap_or_default();
        let written = match (placed.first(), placed.last()) {
            (Some(first), Some(last)) => {
                let run = buffer.get(first.range.start..last.range.end).unwrap_or_default();
                segment.write((start - segment.base()) as usize, run)
            }
            _ => {
                let rest = (segment.end() - start) as i32;
                at = segment.end();
                segment.write((start - segment.base()) as usize, &record::encode_blank(rest))
            }
        };
        if let Err(error) = written {
            give_back(placed, batch);
            let reason = format!("writing {} failed: {error}", segment.path().display());
            self.set_poison(reason.clone());
            return Err(AppendError::Poisoned(reason));
        }
        self.appended.advance(at);
        Ok((count, at))
    }

    /// Gives a record its queue offset and its place.
    fn place(
        &self,
        buffer: &mut [u8],
        record: &mut Encoded,
        batch: &mut [Appending<'_>],
        queues: &Queues,
        at: i64,
        timestamp: i64,
    ) {
        let Some(item) = batch.get_mut(record.item) else {
            return;
        };
        if record.queue.is_dead() {
            // The topic was deleted between the look-up and the lock: it begins again at 0.
            record.queue = queues.get_or_create(item.fields.topic, item.fields.queue_id);
        }
        let queue_offset = match sys_flag::transaction_type(item.fields.sys_flag) {
            sys_flag::TRANSACTION_NOT | sys_flag::TRANSACTION_COMMIT => record.queue.take_next(),
            _ => 0,
        };
        if let Some(bytes) = buffer.get_mut(record.range.clone()) {
            record::set_position(bytes, queue_offset, at, timestamp);
        }
        item.outcome = Some(Ok(Placed {
            queue_offset,
            physical_offset: at,
            size: record.range.len(),
            store_timestamp: timestamp,
        }));
    }

    /// Brings everything appended to the disk. Gives the new flushed position; `visible` is called
    /// with it after the flush and before anybody who waits is woken.
    pub(crate) fn flush(&self, visible: impl FnOnce(i64)) -> Result<i64, StoreError> {
        let _one = self.flush_lock.lock();
        let from = self.flushed.get();
        let timestamp = self.last_store_timestamp.load(Ordering::Acquire);
        let to = self.appended.get();
        if from == to {
            return Ok(to);
        }
        if let Some(reason) = self.poison() {
            return Err(StoreError::Poisoned(reason));
        }
        if let Err(error) = self.sync_range(from, to) {
            self.set_poison(error.to_string());
            return Err(error);
        }
        self.flushed_timestamp.store(timestamp, Ordering::Release);
        visible(to);
        self.flushed.advance(to);
        Ok(to)
    }

    fn sync_range(&self, from: i64, to: i64) -> Result<(), StoreError> {
        let mut at = from;
        while at < to {
            let segment = self.segment(at)?;
            segment.sync().map_err(StoreError::io("flush", segment.path()))?;
            at = segment.end();
        }
        Ok(())
    }

    fn segment(&self, offset: i64) -> Result<Arc<Segment>, StoreError> {
        self.segments.find(offset).ok_or_else(|| StoreError::MissingSegment {
            path: self.segments.dir().to_path_buf(),
            offset,
        })
    }

    /// After a failed write or flush: writes what is not known to be on the disk once more, zeroes
    /// what a broken write may have left behind it, flushes, and takes writes again.
    pub(crate) fn try_repair(&self, visible: impl FnOnce(i64)) -> Result<(), StoreError> {
        if self.poison().is_none() {
            return Ok(());
        }
        let _one = self.flush_lock.lock();
        let to = {
            let _writer = self.writer.lock();
            self.restore()?
        };
        // Outside the append lock: whoever is told of arrivals may append.
        visible(to);
        self.flushed.advance(to);
        tracing::info!(position = to, "the store takes writes again");
        Ok(())
    }

    /// Brings everything appended to the disk anew. Needs both locks.
    fn restore(&self) -> Result<i64, StoreError> {
        let (from, to) = (self.flushed.get(), self.appended.get());
        let mut at = from;
        while at < to {
            let segment = self.segment(at)?;
            let end = segment.end().min(to);
            self.rewrite(&segment, at, end)?;
            at = end;
        }
        if let Some(segment) = self.segments.find(to) {
            let at = (to - segment.base()) as usize;
            segment.zero_from(at).map_err(StoreError::io("clear the end of", segment.path()))?;
        }
        self.sync_range(from, to)?;
        let timestamp = self.last_store_timestamp.load(Ordering::Acquire);
        self.flushed_timestamp.store(timestamp, Ordering::Release);
        self.flushed.clear_failure();
        self.poisoned.store(false, Ordering::Release);
        Ok(to)
    }

    /// A failed flush may have dropped dirty pages' state: the bytes are written again.
    fn rewrite(&self, segment: &Arc<Segment>, from: i64, to: i64) -> Result<(), StoreError> {
        const CHUNK: i64 = 1 << 20;
        let mut at = from;
        while at < to {
            let len = CHUNK.min(to - at) as usize;
            let place = (at - segment.base()) as usize;
            let bytes =
                segment.read_copy(place, len).map_err(StoreError::io("read", segment.path()))?;
            segment.write(place, &bytes).map_err(StoreError::io("write", segment.path()))?;
            at += len as i64;
        }
        Ok(())
    }

    /// Makes the next file when the current one is three quarters full.
    pub(crate) fn allocate_ahead(&self) -> Result<(), StoreError> {
        let appended = self.appended.get();
        let left = self.segments.end() - appended;
        if left < (self.segments.size() / 4) as i64 && self.poison().is_none() {
            self.segments.ensure(self.segments.end())?;
        }
        Ok(())
    }

    /// Bytes `[offset, offset + len)`, not copied. The caller keeps below its visible position.
    pub(crate) fn bytes(&self, offset: i64, len: usize) -> Option<Bytes> {
        let segment = self.segments.find(offset)?;
        segment.bytes(segment.position_of(offset)?, len)
    }

    /// Bytes `[offset, offset + len)` copied by `pread`, for cold data.
    pub(crate) fn read_copy(&self, offset: i64, len: usize) -> std::io::Result<Option<Bytes>> {
        let Some(segment) = self.segments.find(offset) else {
            return Ok(None);
        };
        let Some(at) = segment.position_of(offset) else {
            return Ok(None);
        };
        segment.read_copy(at, len).map(|bytes| Some(bytes.into()))
    }
}

/// Takes back what a failed run was given, the newest first.
fn give_back(placed: &[Encoded], batch: &mut [Appending<'_>]) {
    for record in placed.iter().rev() {
        let Some(item) = batch.get_mut(record.item) else {
            continue;
        };
        if let Some(Ok(place)) = item.outcome.take() {
            let kind = sys_flag::transaction_type(item.fields.sys_flag);
            if kind == sys_flag::TRANSACTION_NOT || kind == sys_flag::TRANSACTION_COMMIT {
                record.queue.give_back(place.queue_offset);
            }
        }
    }
}
