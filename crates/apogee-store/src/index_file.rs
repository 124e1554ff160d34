//! One file of the key index.
//!
//! | bytes | part |
//! | --- | --- |
//! | 40 | header: begin time 8, end time 8, begin offset 8, end offset 8, used slots 4, next entry 4 |
//! | slots x 4 | number of the newest entry of the slot, 0 = none |
//! | entries x 20 | key hash 4, commit log offset 8, seconds since begin time 4, previous entry of the slot 4 |
//!
//! Entry 0 is never used, so a header without entries has 1 as its next entry. A key's slot is its
//! hash modulo the number of slots.
//!
//! What always holds for a file that is being filled: entries are written before the header that
//! counts them, the slot table only by [`Filling::sync`]. After a crash the header vouches for the
//! entries and the slot table is built from them again.

use crate::be::{get_i32, get_i64, put_i32, put_i64};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER: usize = 40;
const SLOT: usize = 4;
const ENTRY: usize = 20;
/// Slots in a page of the slot table.
const PAGE: usize = 1024;

/// How many slots and entries a file has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) slots: usize,
    pub(crate) entries: usize,
}

impl Shape {
    fn file_size(self) -> u64 {
        (HEADER + self.slots * SLOT + self.entries * ENTRY) as u64
    }

    fn slot_at(self, slot: usize) -> u64 {
        (HEADER + slot * SLOT) as u64
    }

    fn entry_at(self, entry: usize) -> u64 {
        (HEADER + self.slots * SLOT + entry * ENTRY) as u64
    }

    fn slot_of(self, hash: i32) -> usize {
        hash.unsigned_abs() as usize % self.slots
    }
}

/// A file's header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) begin_timestamp: i64,
    pub(crate) end_timestamp: i64,
    pub(crate) begin_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) used_slots: i32,
    pub(crate) next_entry: i32,
}

impl Header {
    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            begin_timestamp: get_i64(bytes, 0)?,
            end_timestamp: get_i64(bytes, 8)?,
            begin_offset: get_i64(bytes, 16)?,
            end_offset: get_i64(bytes, 24)?,
            used_slots: get_i32(bytes, 32)?,
            next_entry: get_i32(bytes, 36)?.max(1),
        })
    }

    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        put_i64(&mut bytes, 0, self.begin_timestamp);
        put_i64(&mut bytes, 8, self.end_timestamp);
        put_i64(&mut bytes, 16, self.begin_offset);
        put_i64(&mut bytes, 24, self.end_offset);
        put_i32(&mut bytes, 32, self.used_slots);
        put_i32(&mut bytes, 36, self.next_entry);
        bytes
    }

    /// Whether the file has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.next_entry <= 1
    }
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: i32,
    pub(crate) offset: i64,
    pub(crate) seconds: i32,
    pub(crate) previous: i32,
}

impl Entry {
    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            hash: get_i32(bytes, 0)?,
            offset: get_i64(bytes, 4)?,
            seconds: get_i32(bytes, 12)?,
            previous: get_i32(bytes, 16)?,
        })
    }

    fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        put_i32(&mut bytes, 0, self.hash);
        put_i64(&mut bytes, 4, self.offset);
        put_i32(&mut bytes, 12, self.seconds);
        put_i32(&mut bytes, 16, self.previous);
        bytes
    }
}

/// A file as readers see it: its entries follow a chain from the newest to the oldest.
#[derive(Clone)]
pub(crate) struct Chains {
    pub(crate) file: Arc<File>,
    pub(crate) header: Header,
    shape: Shape,
}

impl Chains {
    /// Opens a file for reading.
    pub(crate) fn open(path: &Path, shape: Shape) -> io::Result<Self> {
        let file = File::open(path)?;
        let header = read_header(&file)?;
        Ok(Self { file: Arc::new(file), header, shape })
    }

    /// Looks at every entry in order. `visit` gets its number, the entry and whether its link to
    /// the previous entry of its slot is right.
    pub(crate) fn each(&self, mut visit: impl FnMut(i32, &Entry, bool)) -> io::Result<()> {
        let mut newest: std::collections::HashMap<usize, i32> = std::collections::HashMap::new();
        for number in 1..self.header.next_entry {
            if let Some(entry) = self.entry(number)? {
                let previous = newest.insert(self.shape.slot_of(entry.hash), number);
                visit(number, &entry, entry.previous == previous.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// Whether the file has its full length.
    pub(crate) fn is_whole(&self) -> bool {
        let size = self.shape.file_size();
        self.file.metadata().is_ok_and(|metadata| metadata.len() >= size)
    }

    /// The newest entry of a hash's slot, from the file.
    pub(crate) fn first(&self, hash: i32) -> io::Result<i32> {
        let mut bytes = [0; SLOT];
        let at = self.shape.slot_at(self.shape.slot_of(hash));
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(i32::from_be_bytes(bytes))
    }

    /// Reads an entry; `None` when the number is none of this file's.
    pub(crate) fn entry(&self, number: i32) -> io::Result<Option<Entry>> {
        if number <= 0 || number >= self.header.next_entry {
            return Ok(None);
        }
        let mut bytes = [0; ENTRY];
        let at = self.shape.entry_at(number as usize);
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(Entry::decode(&bytes))
    }
}

fn read_header(file: &File) -> io::Result<Header> {
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, 0)?;
    Header::decode(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// The newest file, to which entries are added.
pub(crate) struct Filling {
    pub(crate) path: PathBuf,
    file: Arc<File>,
    shape: Shape,
    pub(crate) header: Header,
    /// Newest entry of each slot; empty until the first entry is added.
    slots: Vec<i32>,
    dirty: Vec<bool>,
    buffer: Vec<u8>,
    synced: bool,
    was_short: bool,
}

impl Filling {
    /// Makes a file.
    pub(crate) fn create(path: PathBuf, shape: Shape) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.set_len(shape.file_size())?;
        let header = Header { next_entry: 1, ..Header::default() };
        Ok(Self {
            path,
            file: Arc::new(file),
            shape,
            header,
            slots: vec![0; shape.slots],
            dirty: vec![false; shape.slots.div_ceil(PAGE)],
            buffer: Vec::new(),
            synced: false,
            was_short: false,
        })
    }

    /// Opens a file to go on with it. After a clean stop its slot table is read when the first
    /// entry comes.
    pub(crate) fn open(path: PathBuf, shape: Shape) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let was_short = file.metadata()?.len() < shape.file_size();
        if was_short {
            file.set_len(shape.file_size())?;
        }
        let mut header = read_header(&file)?;
        header.next_entry = header.next_entry.min(shape.entries as i32);
        Ok(Self {
            path,
            file: Arc::new(file),
            shape,
            header,
            slots: Vec::new(),
            dirty: vec![false; shape.slots.div_ceil(PAGE)],
            buffer: Vec::new(),
            synced: true,
            was_short,
        })
    }

    /// Whether the file was shorter than it should be when it was opened.
    pub(crate) fn was_short(&self) -> bool {
        self.was_short
    }

    /// Whether no entry fits any more.
    pub(crate) fn is_full(&self) -> bool {
        self.header.next_entry as usize >= self.shape.entries
    }

    /// Builds the slot table from the entries, as far as they make sense and lie below `limit` in
    /// the commit log; what stands behind is forgotten.
    pub(crate) fn rebuild(&mut self, limit: i64) -> io::Result<()> {
        const CHUNK: usize = 4_096;
        let counted = self.header.next_entry as usize;
        let begin = self.header.begin_timestamp;
        self.slots = vec![0; self.shape.slots];
        self.header = Header { next_entry: 1, ..self.header };
        self.header.used_slots = 0;
        self.synced = false;
        let mut bytes = vec![0; CHUNK * ENTRY];
        let mut newest = self.header.begin_offset;
        let mut at = 1;
        'all: while at < counted {
            let count = CHUNK.min(counted - at);
            let chunk = bytes.get_mut(..count * ENTRY).unwrap_or_default();
            self.file.read_exact_at(chunk, self.shape.entry_at(at))?;
            for entry in chunk.chunks_exact(ENTRY).filter_map(Entry::decode) {
                let unused = entry.hash == 0 && entry.offset == 0 && entry.seconds == 0;
                let in_order = entry.offset >= newest && entry.offset < limit;
                let slot = self.shape.slot_of(entry.hash);
                let Some(place) = self.slots.get_mut(slot) else {
                    break 'all;
                };
                // A broken link would hide every older entry of the slot.
                if unused || !in_order || entry.hash < 0 || entry.previous != *place {
                    break 'all;
                }
                newest = entry.offset;
                self.header.used_slots += i32::from(*place == 0);
                *place = self.header.next_entry;
                self.header.next_entry += 1;
                self.header.end_timestamp = begin.saturating_add(i64::from(entry.seconds) * 1_000);
            }
            at += count;
        }
        self.header.end_offset = newest;
        self.dirty.fill(true);
        Ok(())
    }

    fn load_slots(&mut self) -> io::Result<()> {
        if !self.slots.is_empty() {
            return Ok(());
        }
        // Untouched pages of the zeroed vector cost no memory, so zeros are not stored.
        let mut slots = vec![0; self.shape.slots];
        let mut bytes = vec![0; PAGE * SLOT];
        for (page, part) in slots.chunks_mut(PAGE).enumerate() {
            let chunk = bytes.get_mut(..part.len() * SLOT).unwrap_or_default();
            self.file.read_exact_at(chunk, self.shape.slot_at(page * PAGE))?;
            for (slot, word) in part.iter_mut().zip(chunk.chunks_exact(SLOT)) {
                match get_i32(word, 0) {
                    Some(value) if value > 0 && value < self.header.next_entry => *slot = value,
                    _ => {}
                }
            }
        }
        self.slots = slots;
        Ok(())
    }

    /// Adds an entry. The caller has checked that the file is not full.
    pub(crate) fn add(&mut self, hash: i32, offset: i64, timestamp: i64) -> io::Result<()> {
        self.load_slots()?;
        let slot = self.shape.slot_of(hash);
        let number = self.header.next_entry;
        let Some(place) = self.slots.get_mut(slot) else {
            return Ok(());
        };
        let seconds = match self.header.begin_timestamp {
            begin if begin > 0 => timestamp.saturating_sub(begin) / 1_000,
            _ => 0,
        };
        let entry = Entry {
            hash,
            offset,
            seconds: seconds.clamp(0, i64::from(i32::MAX)) as i32,
            previous: *place,
        };
        self.header.used_slots += i32::from(*place == 0);
        *place = number;
        if let Some(dirty) = self.dirty.get_mut(slot / PAGE) {
            *dirty = true;
        }
        self.buffer.extend_from_slice(&entry.encode());
        if number <= 1 {
            self.header.begin_offset = offset;
            self.header.begin_timestamp = timestamp;
        }
        self.header.next_entry = number + 1;
        self.header.end_offset = offset;
        self.header.end_timestamp = timestamp;
        self.synced = false;
        Ok(())
    }

    /// Writes new entries, then the header that counts them (page cache).
    pub(crate) fn write_out(&mut self) -> io::Result<()> {
        self.write_entries()?;
        self.file.write_all_at(&self.header.encode(), 0)
    }

    fn write_entries(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let first = self.header.next_entry as usize - self.buffer.len() / ENTRY;
            self.file.write_all_at(&self.buffer, self.shape.entry_at(first))?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Brings everything to the disk: entries and slots first, the header after them.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.synced {
            return Ok(());
        }
        self.write_entries()?;
        self.write_slots()?;
        self.file.sync_data()?;
        self.file.write_all_at(&self.header.encode(), 0)?;
        self.file.sync_data()?;
        self.synced = true;
        Ok(())
    }

    fn write_slots(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut page = 0;
        while page < self.dirty.len() {
            let run = self
                .dirty
                .get(page..)
                .map_or(0, |rest| rest.iter().take_while(|dirty| **dirty).count());
            if run > 0 {
                let end = ((page + run) * PAGE).min(self.slots.len());
                bytes.clear();
                for slot in self.slots.get(page * PAGE..end).unwrap_or_default() {
                    bytes.extend_from_slice(&slot.to_be_bytes());
                }
                self.file.write_all_at(&bytes, self.shape.slot_at(page * PAGE))?;
            }
            page += run + 1;
        }
        self.dirty.fill(false);
        Ok(())
    }

    /// The file for a reader, and the newest entry of a hash's slot. New entries are written
    /// first, so the reader needs nothing from memory.
    pub(crate) fn chains(&mut self, hash: i32) -> io::Result<(Chains, i32)> {
        self.write_entries()?;
        let chains =
            Chains { file: Arc::clone(&self.file), header: self.header, shape: self.shape };
        let first = match self.slots.get(self.shape.slot_of(hash)) {
            Some(first) => *first,
            None => chains.first(hash)?,
        };
        Ok((chains, first))
    }
}
