//! One consume queue: for each message of a (topic, queue id) a unit that says where it is.
//!
//! A file holds a fixed number of units; its name is the byte offset of its first unit. A unit
//! that stands for no message (before a queue's first message, or a gap) has offset 0, size
//! `0x7FFFFFFF`, tags code 0. Unused space is zero.
//!
//! What always holds: the unit of queue offset n stands at place n; `max_offset` never goes back;
//! units below `tail_start` are in files, the others in `tail` (at most 512). `next` belongs to the
//! append lock, everything else to `inner`'s mutex, which is never held while a file is read.

use crate::config::UNIT_SIZE;
use crate::queue_files::QueueFiles;
use crate::unit::Unit;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

/// Units kept in memory before they are written.
pub(crate) const MAX_TAIL: usize = 512;
/// Largest gap in queue offsets that is filled; a larger one is damage.
pub(crate) const MAX_GAP: i64 = 50_000_000;
/// Largest queue offset that can be meant; no checksum covers it in a record.
const MAX_OFFSET: i64 = 1 << 50;

/// What [`ConsumeQueue::put`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// The unit is new and stands at its place.
    Added,
    /// The place was taken already (dispatch repeats itself after a crash).
    Known,
    /// The offset is absurdly far ahead; nothing was stored.
    Absurd,
}

/// What all queues of a store share.
pub(crate) struct QueueEnv {
    pub(crate) root: PathBuf,
    pub(crate) units_per_file: i64,
    pub(crate) files: QueueFiles,
}

/// A consume queue.
pub struct ConsumeQueue {
    id: u64,
    topic: Arc<str>,
    queue_id: i32,
    env: Arc<QueueEnv>,
    /// Records below this commit log offset belong to an earlier topic of the same name.
    born_at: i64,
    next: AtomicI64,
    max: AtomicI64,
    min: AtomicI64,
    min_for: AtomicI64,
    dead: AtomicBool,
    pub(crate) listed_dirty: AtomicBool,
    pub(crate) arrival_slot: AtomicU32,
    inner: Mutex<Inner>,
}

struct Inner {
    /// First unit of the first file, and the unit behind the last file.
    first: i64,
    files_end: i64,
    tail: Vec<Unit>,
    tail_start: i64,
    /// First units of the files with data that is not synced.
    unsynced: Vec<i64>,
}

impl ConsumeQueue {
    /// A queue without files.
    pub(crate) fn new(
        id: u64,
        topic: Arc<str>,
        queue_id: i32,
        env: Arc<QueueEnv>,
        born_at: i64,
    ) -> Self {
        Self {
            id,
            topic,
            queue_id,
            env,
            born_at,
            next: AtomicI64::new(0),
            max: AtomicI64::new(0),
            min: AtomicI64::new(0),
            min_for: AtomicI64::new(-1),
            dead: AtomicBool::new(false),
            listed_dirty: AtomicBool::new(false),
            arrival_slot: AtomicU32::new(u32::MAX),
            inner: Mutex::new(Inner {
                first: 0,
                files_end: 0,
                tail: Vec::new(),
                tail_start: 0,
                unsynced: Vec::new(),
            }),
        }
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// The queue id.
    #[must_use]
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// One past the last visible message.
    #[must_use]
    pub fn max_offset(&self) -> i64 {
        self.max.load(Ordering::Acquire)
    }

    pub(crate) fn born_at(&self) -> i64 {
        self.born_at
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Queue offset of the next append. Only under the append lock.
    pub(crate) fn take_next(&self) -> i64 {
        let offset = self.next.load(Ordering::Relaxed);
        self.next.store(offset + 1, Ordering::Relaxed);
        offset
    }

    /// Gives offsets back after a failed write. Only under the append lock.
    pub(crate) fn give_back(&self, offset: i64) {
        self.next.store(offset, Ordering::Relaxed);
    }

    /// Lets appends go on behind what is dispatched, after recovery.
    pub(crate) fn settle(&self) {
        self.next.fetch_max(self.max_offset(), Ordering::Relaxed);
    }

    /// Puts a unit at its place.
    pub(crate) fn put(&self, offset: i64, unit: Unit) -> io::Result<Put> {
        let mut inner = self.inner.lock();
        if self.is_dead() {
            return Ok(Put::Known);
        }
        let max = self.max.load(Ordering::Relaxed);
        if offset < max {
            return Ok(Put::Known);
        }
        if offset > MAX_OFFSET {
            return Ok(Put::Absurd);
        }
        if offset > max {
            if inner.files_end == 0 && inner.tail.is_empty() {
                self.start_at(&mut inner, offset);
            } else if offset - max > MAX_GAP {
                return Ok(Put::Absurd);
            } else {
                tracing::warn!(
                    topic = %self.topic, queue = self.queue_id, from = max, to = offset,
                    "the log misses messages of this queue; their places stay empty"
                );
            }
            // Counted from what is there: a write error in the middle must not shift anything.
            while inner.tail_start + (inner.tail.len() as i64) < offset {
                self.push(&mut inner, Unit::FILLER)?;
            }
        }
        self.push(&mut inner, unit)?;
        self.max.store(offset + 1, Ordering::Release);
        Ok(Put::Added)
    }

    /// Lets a queue without messages go on at `max`, which it had reached before its messages
    /// expired or its files were lost. Only for recovery.
    pub(crate) fn raise_to(&self, max: i64) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let now = self.max.load(Ordering::Relaxed);
        if now >= max || max - now > MAX_GAP && inner.files_end > 0 {
            return Ok(());
        }
        if inner.files_end == 0 && inner.tail.is_empty() {
            self.start_at(&mut inner, max);
        }
        while inner.tail_start + (inner.tail.len() as i64) < max {
            self.push(&mut inner, Unit::FILLER)?;
        }
        self.write_tail(&mut inner)?;
        self.max.store(max, Ordering::Release);
        Ok(())
    }

    fn push(&self, inner: &mut Inner, unit: Unit) -> io::Result<()> {
        if inner.tail.len() >= MAX_TAIL {
            self.write_tail(inner)?;
        }
        inner.tail.push(unit);
        Ok(())
    }

    /// Begins an empty queue at `offset`: the places before it in its file become fillers.
    fn start_at(&self, inner: &mut Inner, offset: i64) {
        let first = offset - offset.rem_euclid(self.env.units_per_file);
        inner.first = first;
        inner.files_end = first;
        inner.tail_start = first;
        self.min_for.store(-1, Ordering::Release);
    }

    /// Writes what is in memory into the files (page cache).
    pub(crate) fn write_out(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        self.listed_dirty.store(false, Ordering::Release);
        if self.is_dead() {
            return Ok(());
        }
        self.write_tail(&mut inner)?;
        // An idle queue costs no memory.
        inner.tail = Vec::new();
        Ok(())
    }

    fn write_tail(&self, inner: &mut Inner) -> io::Result<()> {
        let per_file = self.env.units_per_file;
        let mut buffer = Vec::with_capacity(inner.tail.len() * UNIT_SIZE);
        let mut done = 0;
        while let Some(rest) = inner.tail.get(done..).filter(|rest| !rest.is_empty()) {
            let at = inner.tail_start + done as i64;
            let in_file = at.rem_euclid(per_file);
            let base = at - in_file;
            let count = rest.len().min((per_file - in_file) as usize);
            buffer.clear();
            for unit in rest.iter().take(count) {
                unit.encode(&mut buffer);
            }
            self.file(base, true)?.write_all_at(&buffer, in_file as u64 * UNIT_SIZE as u64)?;
            if inner.files_end < base + per_file {
                if inner.files_end == 0 {
                    inner.first = base;
                }
                inner.files_end = base + per_file;
            }
            if !inner.unsynced.contains(&base) {
                inner.unsynced.push(base);
            }
            done += count;
        }
        inner.tail_start += done as i64;
        inner.tail.clear();
        Ok(())
    }

    /// Files with data that is not on the disk yet; the caller syncs them.
    pub(crate) fn take_unsynced(&self) -> Vec<i64> {
        std::mem::take(&mut self.inner.lock().unsynced)
    }

    /// Brings one file to the disk. A file that is gone needs nothing.
    pub(crate) fn sync_file(&self, base: i64) -> io::Result<()> {
        match self.file(base, false) {
            Ok(file) => file.sync_data(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The units from `from` on, at most `count`, as far as they are visible.
    ///
    /// # Errors
    /// An I/O error, among them `NotFound` when the file was deleted meanwhile.
    pub fn read(&self, from: i64, count: usize) -> io::Result<Vec<Unit>> {
        let mut units = Vec::new();
        let end =
            from.saturating_add(i64::try_from(count).unwrap_or(i64::MAX)).min(self.max_offset());
        let mut at = from;
        while at < end {
            let file_end = {
                let inner = self.inner.lock();
                if at < inner.first {
                    return Err(io::Error::from(io::ErrorKind::NotFound));
                }
                if at >= inner.tail_start {
                    let skip = (at - inner.tail_start) as usize;
                    let take = (end - at) as usize;
                    units.extend(inner.tail.iter().skip(skip).take(take));
                    return Ok(units);
                }
                inner.tail_start
            };
            let read = self.read_file(at, end.min(file_end), &mut units)?;
            at += read;
        }
        Ok(units)
    }

    /// Reads units of the file that holds `at`, up to `end` or the file's end.
    fn read_file(&self, at: i64, end: i64, units: &mut Vec<Unit>) -> io::Result<i64> {
        let in_file = at.rem_euclid(self.env.units_per_file);
        let base = at - in_file;
        let count = (end - at).min(self.env.units_per_file - in_file);
        let mut bytes = vec![0; count as usize * UNIT_SIZE];
        self.file(base, false)?.read_exact_at(&mut bytes, in_file as u64 * UNIT_SIZE as u64)?;
        units.extend(bytes.chunks_exact(UNIT_SIZE).filter_map(Unit::decode));
        Ok(count)
    }

    /// The unit of one offset.
    ///
    /// # Errors
    /// As [`ConsumeQueue::read`].
    pub fn unit(&self, offset: i64) -> io::Result<Option<Unit>> {
        if offset < 0 {
            return Ok(None);
        }
        Ok(self.read(offset, 1)?.first().copied())
    }

    /// First unit of the file behind the one that holds `offset`.
    pub(crate) fn next_file_start(&self, offset: i64) -> i64 {
        offset - offset.rem_euclid(self.env.units_per_file) + self.env.units_per_file
    }

    /// Lowest offset whose message is still in the commit log, which begins at `log_min`.
    #[must_use]
    pub fn min_offset(&self, log_min: i64) -> i64 {
        if self.min_for.load(Ordering::Acquire) == log_min {
            return self.min.load(Ordering::Acquire);
        }
        let first = self.first_unit();
        let max = self.max_offset();
        let found =
            self.partition(first, max, |unit| unit.is_filler() || unit.physical_offset < log_min);
        match found {
            Ok(min) => {
                self.min.store(min, Ordering::Release);
                self.min_for.store(log_min, Ordering::Release);
                min
            }
            Err(error) => {
                tracing::warn!(topic = %self.topic, queue = self.queue_id, %error, "cannot read the queue's lowest offset");
                first
            }
        }
    }

    /// The lowest offset as it was last worked out.
    pub(crate) fn known_min(&self) -> Option<i64> {
        (self.min_for.load(Ordering::Acquire) >= 0).then(|| self.min.load(Ordering::Acquire))
    }

    pub(crate) fn first_unit(&self) -> i64 {
        self.inner.lock().first
    }

    /// First offset in `[low, high)` for which `left` does not hold (`high` if for all it does).
    pub(crate) fn partition(
        &self,
        mut low: i64,
        mut high: i64,
        mut left: impl FnMut(&Unit) -> bool,
    ) -> io::Result<i64> {
        while low < high {
            let middle = low + (high - low) / 2;
            let unit =
                self.unit(middle)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            if left(&unit) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn path(&self, base: i64) -> PathBuf {
        self.dir().join(crate::segment::file_name(base * UNIT_SIZE as i64))
    }

    /// The queue's folder.
    pub(crate) fn dir(&self) -> PathBuf {
        self.env.root.join(&*self.topic).join(self.queue_id.to_string())
    }

    fn file(&self, base: i64, create: bool) -> io::Result<Arc<File>> {
        let size = self.env.units_per_file as u64 * UNIT_SIZE as u64;
        self.env.files.get((self.id, base), &self.path(base), create.then_some(size))
    }

    /// Takes the files found in the queue's folder (their first units, ascending and without
    /// holes) and finds the last unit. Units that reach past `limit` in the commit log are cut
    /// off; `crashed` says that the rest of the last file may hold anything.
    pub(crate) fn load(
        &self,
        bases: &[i64],
        limit: i64,
        crashed: bool,
    ) -> io::Result<Option<Unit>> {
        let per_file = self.env.units_per_file;
        let (Some(first), Some(last)) = (bases.first().copied(), bases.last().copied()) else {
            return Ok(None);
        };
        let mut inner = self.inner.lock();
        inner.first = first;
        // Files from the end, until one has a unit that stays.
        let mut base = last;
        let (end, unit) = loop {
            let (end, unit) = self.find_end(base, limit)?;
            if end > base || base == first {
                break (end, unit);
            }
            base -= per_file;
        };
        for later in bases.iter().filter(|later| **later > base) {
            self.env.files.forget((self.id, *later));
            std::fs::remove_file(self.path(*later))?;
        }
        self.cut_file(base, end, crashed)?;
        inner.files_end = base + per_file;
        inner.tail_start = end;
        self.max.store(end, Ordering::Release);
        Ok(unit)
    }

    /// End of the valid units of a file, behind the last one below `limit`, and that unit.
    fn find_end(&self, base: i64, limit: i64) -> io::Result<(i64, Option<Unit>)> {
        let file = self.file(base, false)?;
        let (mut low, mut high) = (0, self.env.units_per_file);
        let mut bytes = [0; UNIT_SIZE];
        let mut last = None;
        while low < high {
            let middle = low + (high - low) / 2;
            file.read_exact_at(&mut bytes, middle as u64 * UNIT_SIZE as u64)?;
            let unit = Unit::decode(&bytes).filter(|unit| unit.is_written() && unit.end() <= limit);
            if unit.is_some() {
                low = middle + 1;
                last = unit;
            } else {
                high = middle;
            }
        }
        Ok((base + low, last))
    }

    /// Zeroes everything behind `end` in a file.
    fn cut_file(&self, base: i64, end: i64, always: bool) -> io::Result<()> {
        let at = (end - base) as u64 * UNIT_SIZE as u64;
        let size = self.env.units_per_file as u64 * UNIT_SIZE as u64;
        if at >= size {
            return Ok(());
        }
        let file = self.file(base, false)?;
        let mut bytes = [0; UNIT_SIZE];
        file.read_exact_at(&mut bytes, at)?;
        if always || bytes != [0; UNIT_SIZE] {
            file.set_len(at)?;
            file.set_len(size)?;
        }
        Ok(())
    }

    /// Removes files whose last message is no longer in the commit log; never the last file.
    /// Gives the number of files removed.
    pub(crate) fn delete_expired(&self, log_min: i64) -> io::Result<usize> {
        let mut removed = 0;
        loop {
            let (base, last_base) = {
                let inner = self.inner.lock();
                (inner.first, inner.files_end - self.env.units_per_file)
            };
            if base >= last_base || self.is_dead() {
                break;
            }
            let last = self.unit(base + self.env.units_per_file - 1)?;
            if last.is_none_or(|unit| unit.physical_offset >= log_min && !unit.is_filler()) {
                break;
            }
            // New readers stop before the file; those who hold it go on.
            self.inner.lock().first = base + self.env.units_per_file;
            self.env.files.forget((self.id, base));
            std::fs::remove_file(self.path(base))?;
            removed += 1;
        }
        self.min_for.store(-1, Ordering::Release);
        Ok(removed)
    }

    /// Marks the queue as gone: no unit is stored any more. Its files are the caller's business.
    pub(crate) fn kill(&self) {
        let mut inner = self.inner.lock();
        self.dead.store(true, Ordering::Release);
        inner.tail = Vec::new();
        inner.unsynced.clear();
        self.env.files.forget_queue(self.id);
    }
}

impl std::fmt::Debug for ConsumeQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConsumeQueue({}@{}, max {})", self.topic, self.queue_id, self.max_offset())
    }
}
