//! The timer wheel: which units of the log wait for which tick.
//!
//! What always holds: memory has a slot for each tick that has waiting messages and for no other, so
//! it is bounded by the longest delay divided by the precision; the log is the truth from which
//! they are made at each start. The file `timerwheel` (1,209,600 slots, see `unit`) is written
//! behind them for the original, which reads it, and made when the first message waits.
//!
//! No locks: the owner is one thread.

use super::unit::{NOWHERE, SLOT_LEN, Slot};
use crate::error::StoreError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Slots of the file: two weeks at a precision of a second.
pub(super) const FILE_SLOTS: i64 = 2 * 7 * 86_400;

/// The slots that have waiting messages.
pub(super) struct Wheel {
    path: PathBuf,
    file: Option<File>,
    precision: i64,
    slots: BTreeMap<i64, Slot>,
    changed: BTreeSet<i64>,
    unsynced: bool,
}

impl Wheel {
    /// An empty wheel that writes to `path`; ticks are `precision` ms long.
    pub(super) fn new(path: PathBuf, precision: i64) -> Self {
        Self {
            path,
            file: None,
            precision,
            slots: BTreeMap::new(),
            changed: BTreeSet::new(),
            unsynced: false,
        }
    }

    /// Last unit of the tick, or [`NOWHERE`].
    pub(super) fn last_of(&self, time: i64) -> i64 {
        self.slots.get(&time).map_or(NOWHERE, |slot| slot.last)
    }

    /// Takes in the unit at `at` for the tick.
    pub(super) fn add(&mut self, time: i64, at: i64, delete: bool) {
        let slot = self.slots.entry(time).or_insert(Slot { first: at, last: at, count: 0 });
        slot.last = at;
        slot.count += if delete { -1 } else { 1 };
        self.changed.insert(time);
    }

    /// Takes out the earliest slot if its time is at most `latest`.
    pub(super) fn take_due(&mut self, latest: i64) -> Option<(i64, Slot)> {
        let entry = self.slots.first_entry().filter(|entry| *entry.key() <= latest)?;
        Some(entry.remove_entry())
    }

    /// All slots by time.
    pub(super) fn slots(&self) -> impl Iterator<Item = (i64, Slot)> {
        self.slots.iter().map(|(time, slot)| (*time, *slot))
    }

    /// Waiting messages, as the original counts them.
    pub(super) fn waiting(&self) -> i64 {
        self.slots.values().map(|slot| i64::from(slot.count)).sum()
    }

    /// The file holds what memory holds: nothing is to be written.
    pub(super) fn mark_written(&mut self) {
        self.changed.clear();
    }

    /// Empties the file, so that it holds nothing but what is in memory.
    pub(super) fn empty_file(&mut self) -> Result<(), StoreError> {
        if !self.path.exists() {
            return Ok(());
        }
        let file = self.open_file()?;
        let emptied = file.set_len(0).and_then(|()| file.set_len(file_len()));
        emptied.map_err(StoreError::io("empty", &self.path))?;
        self.unsynced = true;
        self.changed.extend(self.slots.keys());
        Ok(())
    }

    /// Whether the file is there with its full length.
    pub(super) fn has_file(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() == file_len())
    }

    fn open_file(&mut self) -> Result<&File, StoreError> {
        if self.file.is_none() {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&self.path)
                .map_err(StoreError::io("open", &self.path))?;
            // Sparse: only slots that were used take space.
            file.set_len(file_len()).map_err(StoreError::io("extend", &self.path))?;
            self.file = Some(file);
        }
        self.file.as_ref().ok_or_else(|| {
            StoreError::io("open", &self.path)(std::io::Error::from(std::io::ErrorKind::NotFound))
        })
    }

    fn write_slot(&mut self, time: i64, slot: &Slot) -> Result<(), StoreError> {
        let tick = time.div_euclid(self.precision);
        let place = tick.rem_euclid(FILE_SLOTS) as u64 * SLOT_LEN as u64;
        let written = self.open_file()?.write_all_at(&slot.encode(tick), place);
        written.map_err(StoreError::io("write", &self.path))?;
        self.unsynced = true;
        Ok(())
    }

    /// Brings changed slots into the page cache.
    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        while let Some(time) = self.changed.first().copied() {
            if let Some(slot) = self.slots.get(&time).copied() {
                self.write_slot(time, &slot)?;
            }
            self.changed.remove(&time);
        }
        Ok(())
    }

    /// Brings everything to the disk.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.write_out()?;
        if self.unsynced
            && let Some(file) = &self.file
        {
            file.sync_all().map_err(StoreError::io("sync", &self.path))?;
            self.unsynced = false;
        }
        Ok(())
    }
}

fn file_len() -> u64 {
    FILE_SLOTS as u64 * SLOT_LEN as u64
}
