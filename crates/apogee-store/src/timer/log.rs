//! The timer log: one unit for each waiting message, in the order in which they were found.
//!
//! What always holds: positions below `end` hold units or blanks; appended units are kept in memory
//! until [`TimerLog::write_out`], and reads look at files only, so a batch is written out before it
//! is read. The units of a slot form a chain backwards.
//!
//! No locks: the owner is one thread.

use super::unit::{self, BLANK_LEN, Entry, TimerUnit, UNIT_LEN};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::segments::Segments;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Bytes that wait in memory at most before they are written.
const BUFFER: usize = 1 << 20;

/// Files under `timerlog/`.
pub(super) struct TimerLog {
    segments: Segments,
    end: i64,
    buffer: Vec<u8>,
    buffer_at: i64,
    synced: i64,
}

impl TimerLog {
    /// Opens the files there are. The end is not known until [`TimerLog::set_end`].
    pub(super) fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        let dir = config.store_path_root_dir.join("timerlog");
        let open = |dir: PathBuf| {
            let size = config.mapped_file_size_timer_log;
            Segments::open(dir, size, config.disk_faults.clone())
        };
        let segments = match open(dir.clone()) {
            Err(StoreError::SegmentSize { actual, expected, .. }) => {
                return Err(StoreError::Config {
                    key: "mappedFileSizeTimerLog",
                    value: expected.to_string(),
                    reason: format!("the files in {} have {actual} bytes", dir.display()),
                });
            }
            Err(StoreError::MissingSegment { offset, .. }) => {
                tracing::warn!(
                    offset,
                    "a timer log file is missing; the log is made anew from the queue"
                );
                std::fs::remove_dir_all(&dir).map_err(StoreError::io("remove", &dir))?;
                open(dir)?
            }
            other => other?,
        };
        let start = segments.min().unwrap_or(0);
        Ok(Self { segments, end: start, buffer: Vec::new(), buffer_at: start, synced: start })
    }

    /// Position of the first unit there may be.
    pub(super) fn min(&self) -> i64 {
        self.segments.min().unwrap_or(self.end)
    }

    /// Position behind the last unit.
    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// Calls `visit` with each unit from `from` on, up to `to` or the first thing that is no unit;
    /// gives the position behind the last one.
    pub(super) fn scan(
        &self,
        from: i64,
        to: i64,
        mut visit: impl FnMut(i64, TimerUnit) -> ControlFlow<()>,
    ) -> i64 {
        let mut at = from;
        while at < to {
            let Some(segment) = self.segments.find(at) else { return at };
            let entry = segment
                .position_of(at)
                .and_then(|place| segment.slice(place, UNIT_LEN.min((segment.end() - at) as usize)))
                .map_or(Entry::Invalid, unit::decode);
            match entry {
                Entry::Unit(unit) => {
                    at += UNIT_LEN as i64;
                    if visit(at - UNIT_LEN as i64, unit).is_break() {
                        return at;
                    }
                }
                Entry::Blank => at = segment.end(),
                Entry::Invalid => return at,
            }
        }
        at
    }

    /// The unit at a position.
    pub(super) fn read(&self, at: i64) -> Option<TimerUnit> {
        let segment = self.segments.find(at)?;
        match unit::decode(segment.slice(segment.position_of(at)?, UNIT_LEN)?) {
            Entry::Unit(unit) => Some(unit),
            _ => None,
        }
    }

    /// Position of the last unit below `end`, going back over a blank.
    pub(super) fn last_before(&self, end: i64) -> Option<i64> {
        let (size, unit) = (self.segments.size() as i64, UNIT_LEN as i64);
        let inside = end.checked_sub(1)?;
        let base = inside.checked_sub(inside.rem_euclid(size))?;
        let units = ((end - base) / unit).min((size - BLANK_LEN as i64) / unit);
        let last = base + (units - 1) * unit;
        (units > 0 && base >= self.min() && self.read(last).is_some()).then_some(last)
    }

    /// Checksum of the last unit below `end`, which tells one log from another; 0 without one.
    pub(super) fn hash_before(&self, end: i64) -> u32 {
        let unit = self.last_before(end).and_then(|at| self.read(at));
        unit.map_or(0, |unit| crc32fast::hash(&unit.encode()))
    }

    /// Cuts everything from `end` on.
    pub(super) fn set_end(&mut self, end: i64) -> Result<(), StoreError> {
        let size = self.segments.size() as i64;
        let next_file = end + (size - end.rem_euclid(size)) % size;
        if end < self.min() || end > self.segments.end() {
            self.segments.remove_from(self.min())?;
        } else {
            self.segments.remove_from(next_file)?;
        }
        if let Some(segment) = self.segments.find(end)
            && let Some(place) = segment.position_of(end)
        {
            let rest = segment.slice(place, (segment.end() - end) as usize).unwrap_or_default();
            if rest.iter().any(|byte| *byte != 0) {
                segment.zero_from(place).map_err(StoreError::io("zero", segment.path()))?;
            }
        }
        // Without files the log goes on at a file's start, where the next file will be made.
        self.end = if self.segments.min().is_none() { next_file } else { end };
        self.buffer_at = self.end;
        self.synced = self.end;
        Ok(())
    }

    /// Appends a unit; gives its position.
    pub(super) fn append(&mut self, unit: &TimerUnit) -> Result<i64, StoreError> {
        let size = self.segments.size();
        let used = self.end.rem_euclid(size as i64) as usize;
        if used > 0 && size - used < UNIT_LEN + BLANK_LEN {
            self.buffer.extend_from_slice(&unit::encode_blank(size - used));
            self.write_out()?;
            self.end += (size - used) as i64;
            self.buffer_at = self.end;
        }
        if self.buffer.len() >= BUFFER {
            self.write_out()?;
        }
        self.segments.ensure(self.end)?;
        let at = self.end;
        self.buffer.extend_from_slice(&unit.encode());
        self.end += UNIT_LEN as i64;
        Ok(at)
    }

    /// Brings appended units into the page cache.
    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let segment = self.segments.ensure(self.buffer_at)?;
        let place = segment.position_of(self.buffer_at).unwrap_or(usize::MAX);
        segment.write(place, &self.buffer).map_err(StoreError::io("write", segment.path()))?;
        self.buffer.clear();
        self.buffer_at = self.end;
        Ok(())
    }

    /// Changes where the chain goes on behind the unit at `at`.
    pub(super) fn relink(&self, at: i64, previous: i64) -> Result<(), StoreError> {
        let Some(segment) = self.segments.find(at) else { return Ok(()) };
        let place = segment.position_of(at).map_or(usize::MAX, |place| place + 4);
        segment
            .write(place, &previous.to_be_bytes())
            .map_err(StoreError::io("write", segment.path()))
    }

    /// Brings everything to the disk.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.write_out()?;
        let size = self.segments.size() as i64;
        for segment in self.segments.all() {
            if segment.base() + size > self.synced && segment.base() < self.end {
                segment.sync().map_err(StoreError::io("sync", segment.path()))?;
            }
        }
        self.synced = self.end;
        Ok(())
    }

    /// Everything is synced the next time, after units were relinked.
    pub(super) fn mark_all_dirty(&mut self) {
        self.synced = self.min();
    }

    /// Removes files whose records have left the commit log.
    pub(super) fn delete_expired(&mut self, log_min: i64) -> Result<(), StoreError> {
        loop {
            let files = self.segments.all();
            let [first, _, ..] = files.as_slice() else { return Ok(()) };
            let last = self.last_before(first.end()).and_then(|at| self.read(at));
            if last.is_none_or(|unit| unit.offset >= log_min) || first.end() > self.end {
                return Ok(());
            }
            self.segments.remove_first()?;
        }
    }
}
