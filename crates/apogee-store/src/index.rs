//! The key index: which records carry a key. Original format; a hint, never the truth: every hit
//! is checked against its record before it is given out.
//!
//! A record is indexed by `topic#UNIQ_KEY`, `topic#word` for each word of KEYS and `topic#T#tag`.
//! Dispatch only notes hashes; a thousand messages at a time they are linked into the newest file's
//! chains, which is kinder to the processor's caches than one by one.
//!
//! What always holds: offsets grow from entry to entry and file to file; a record's entries are
//! complete or recovery adds the missing ones. One mutex around everything; files are read outside
//! of it.

use crate::config::StoreConfig;
use crate::dispatch::Words;
use crate::error::StoreError;
use crate::index_file::{Chains, Filling, Header, Shape};
use crate::local_time::stamp;
use apogee_model::hash::index_key_hash;
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};

/// Entries noted before they are linked.
const MAX_PENDING: usize = 4_096;
/// Latest time that has a file name of 17 digits (a day before the end of the year 9999).
const LAST_STAMP: i64 = 253_402_214_400_000;
/// Entries a single search follows at most.
const MAX_STEPS: usize = 1_000_000;

/// The index of a store.
pub(crate) struct Index {
    dir: PathBuf,
    shape: Shape,
    utc_offset_seconds: i64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Full files, oldest first.
    full: Vec<(PathBuf, Header)>,
    filling: Option<Filling>,
    pending: Vec<Pending>,
    /// Offset of the newest record that was noted; -1 before the first.
    newest: i64,
    newest_timestamp: i64,
    /// The record at this offset may be indexed in part (it was the last one before a stop).
    doubtful: i64,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    hash: i32,
    offset: i64,
    timestamp: i64,
}

/// The hash of a key; `kind` is "" for keys and unique keys, "T#" for tags.
pub(crate) fn key_hash(topic: &str, kind: &str, key: &str) -> i32 {
    index_key_hash(&[topic, "#", kind, key])
}

impl Index {
    /// Finds the files of an index; [`Index::recover`] must follow.
    pub(crate) fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        let dir = config.index_dir();
        std::fs::create_dir_all(&dir).map_err(StoreError::io("create", &dir))?;
        Ok(Self {
            dir,
            shape: Shape { slots: config.max_hash_slot_num, entries: config.max_index_num },
            utc_offset_seconds: config.utc_offset_seconds,
            inner: Mutex::new(Inner { newest: -1, doubtful: -1, ..Inner::default() }),
        })
    }

    /// Takes over the files that go with a log of `[log_min, log_end)`. After a crash, or when it
    /// was cut short, the newest file's slot table is built anew. A file that is missing though
    /// `vouched` (name, newest offset) names it, or that cannot be read, is removed with all newer
    /// ones: dispatch brings their entries back.
    pub(crate) fn recover(
        &self,
        log_min: i64,
        log_end: i64,
        crashed: bool,
        vouched: &[(String, i64)],
    ) -> Result<(), StoreError> {
        let mut usable = self.usable_files(log_min, log_end, vouched)?;
        let mut inner = self.inner.lock();
        if let Some((path, header)) = usable.pop() {
            let mut filling =
                Filling::open(path.clone(), self.shape).map_err(StoreError::io("open", &path))?;
            if crashed || filling.was_short() || header.end_offset >= log_end {
                filling.rebuild(log_end).map_err(StoreError::io("read", &path))?;
            }
            if filling.header.is_empty() {
                remove(&path)?;
            } else {
                inner.filling = Some(filling);
            }
        }
        let filling = inner.filling.as_ref().map(|filling| filling.header);
        let newest = filling.or(usable.last().map(|(_, header)| *header));
        inner.newest = newest.map_or(-1, |header| header.end_offset);
        inner.newest_timestamp = newest.map_or(0, |header| header.end_timestamp);
        inner.doubtful = inner.newest;
        inner.full = usable;
        Ok(())
    }

    fn usable_files(
        &self,
        log_min: i64,
        log_end: i64,
        vouched: &[(String, i64)],
    ) -> Result<Vec<(PathBuf, Header)>, StoreError> {
        let mut paths = list_files(&self.dir)?;
        paths.sort_unstable();
        let missing = vouched
            .iter()
            .filter(|(_, newest)| *newest >= log_min)
            .map(|(name, _)| self.dir.join(name))
            .filter(|path| paths.binary_search(path).is_err())
            .min();
        let count = paths.len();
        let mut usable = Vec::new();
        let mut broken = false;
        for (at, path) in paths.into_iter().enumerate() {
            broken |= missing.as_ref().is_some_and(|missing| path >= *missing);
            let is_last = at + 1 == count;
            let chains = Chains::open(&path, self.shape).ok().filter(|chains| {
                (is_last || chains.is_whole())
                    && !chains.header.is_empty()
                    && chains.header.begin_offset < log_end
            });
            match chains.filter(|_| !broken) {
                Some(chains) => usable.push((path, chains.header)),
                None => {
                    broken = true;
                    remove(&path)?;
                }
            }
        }
        Ok(usable)
    }

    /// Name and newest record's offset of each file.
    pub(crate) fn files(&self) -> Vec<(String, i64)> {
        let inner = self.inner.lock();
        let full = inner.full.iter().map(|(path, header)| (path, header));
        let filling = inner.filling.iter().map(|file| (&file.path, &file.header));
        full.chain(filling)
            .filter_map(|(path, header)| {
                let name = path.file_name()?.to_str()?;
                Some((name.to_owned(), header.end_offset))
            })
            .collect()
    }

    /// Offset of the newest indexed record; -1 when there is none.
    pub(crate) fn newest(&self) -> i64 {
        self.inner.lock().newest
    }

    /// Offset and store time of the newest indexed record, for answers to queries.
    pub(crate) fn last_update(&self) -> (i64, i64) {
        let inner = self.inner.lock();
        (inner.newest.max(0), inner.newest_timestamp)
    }

    /// Notes a record's keys. Records that were noted before are skipped.
    pub(crate) fn add(
        &self,
        topic: &str,
        words: &Words<'_>,
        offset: i64,
        timestamp: i64,
    ) -> io::Result<()> {
        let keys = words.keys.unwrap_or_default();
        let keys = keys.split(' ').filter(|word| !word.is_empty());
        let hashes = words
            .unique
            .into_iter()
            .chain(keys)
            .map(|word| key_hash(topic, "", word))
            .chain(words.tags.map(|tag| key_hash(topic, "T#", tag)));
        let mut inner = self.inner.lock();
        if offset < inner.newest || (offset == inner.newest && offset != inner.doubtful) {
            return Ok(());
        }
        let doubtful = offset == inner.doubtful;
        for hash in hashes {
            if doubtful && self.has(&mut inner, hash, offset)? {
                continue;
            }
            inner.pending.push(Pending { hash, offset, timestamp });
            inner.newest = offset;
            inner.newest_timestamp = timestamp;
        }
        if doubtful {
            inner.doubtful = -1;
        }
        if inner.pending.len() >= MAX_PENDING {
            self.link(&mut inner)?;
        }
        Ok(())
    }

    /// Whether the newest file, or the one before, has an entry for the hash and offset.
    fn has(&self, inner: &mut Inner, hash: i32, offset: i64) -> io::Result<bool> {
        let mut files = Vec::new();
        if let Some(filling) = &mut inner.filling {
            files.push(filling.chains(hash)?);
        }
        if let Some((path, _)) = inner.full.last() {
            let chains = Chains::open(path, self.shape)?;
            let first = chains.first(hash)?;
            files.push((chains, first));
        }
        for (chains, first) in files {
            let mut number = first;
            while let Some(entry) = chains.entry(number)? {
                if entry.offset < offset || entry.previous >= number {
                    break;
                }
                if entry.hash == hash {
                    return Ok(true);
                }
                number = entry.previous;
            }
        }
        Ok(false)
    }

    /// Links noted entries into the newest file, beginning a new one when it is full.
    fn link(&self, inner: &mut Inner) -> io::Result<()> {
        let pending = std::mem::take(&mut inner.pending);
        let mut done = 0;
        let result: io::Result<()> = pending.iter().try_for_each(|entry| {
            let filling = self.filling(inner, entry.timestamp)?;
            filling.add(entry.hash, entry.offset, entry.timestamp)?;
            done += 1;
            Ok(())
        });
        inner.pending = pending;
        inner.pending.drain(..done);
        result?;
        if let Some(filling) = &mut inner.filling {
            filling.write_out()?;
        }
        Ok(())
    }

    fn filling<'a>(&self, inner: &'a mut Inner, timestamp: i64) -> io::Result<&'a mut Filling> {
        if inner.filling.as_ref().is_some_and(Filling::is_full)
            && let Some(mut full) = inner.filling.take()
        {
            if let Err(error) = full.sync() {
                inner.filling = Some(full);
                return Err(error);
            }
            inner.full.push((full.path.clone(), full.header));
        }
        match &mut inner.filling {
            Some(_) => {}
            none => {
                let last = inner.full.last().map(|(path, _)| path.as_path());
                let path = self.new_path(last, timestamp);
                *none = Some(Filling::create(path, self.shape)?);
            }
        }
        inner.filling.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// A name for a new file: its time, but behind the last file's name.
    fn new_path(&self, last: Option<&Path>, timestamp: i64) -> PathBuf {
        let name = stamp(timestamp.clamp(0, LAST_STAMP), self.utc_offset_seconds);
        let last =
            last.and_then(|path| path.file_name()?.to_str()?.parse::<u64>().ok()).unwrap_or(0);
        match name.parse::<u64>() {
            Ok(number) if number > last => self.dir.join(name),
            // Counting on may leave the calendar (second 60, …); names only need to sort.
            _ => self.dir.join(format!("{:017}", last + 1)),
        }
    }

    /// Moves everything noted into the page cache.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        self.link(&mut inner).map_err(StoreError::io("write", &self.dir))
    }

    /// Brings everything noted to the disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        self.link(&mut inner)
            .and_then(|()| inner.filling.as_mut().map_or(Ok(()), Filling::sync))
            .map_err(StoreError::io("sync", &self.dir))
    }

    /// Calls `hit` with the offset of each record whose key has this hash and whose time lies in
    /// `[begin, end]` (ms), the newest first, until it says stop.
    pub(crate) fn search(
        &self,
        hash: i32,
        begin: i64,
        end: i64,
        mut hit: impl FnMut(i64) -> io::Result<bool>,
    ) -> io::Result<()> {
        let (newest, full) = {
            let mut inner = self.inner.lock();
            self.link(&mut inner)?;
            let newest = match &mut inner.filling {
                Some(filling) => Some(filling.chains(hash)?),
                None => None,
            };
            (newest, inner.full.clone())
        };
        let mut steps = 0;
        if let Some((chains, first)) = newest
            && !follow(&chains, first, hash, (begin, end), &mut steps, &mut hit)?
        {
            return Ok(());
        }
        for (path, header) in full.into_iter().rev() {
            if header.end_timestamp.saturating_add(1_000) <= begin {
                break;
            }
            if header.begin_timestamp > end {
                continue;
            }
            let chains = match Chains::open(&path, self.shape) {
                Ok(chains) => chains,
                // Expired meanwhile; older ones are gone too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            let first = chains.first(hash)?;
            if !follow(&chains, first, hash, (begin, end), &mut steps, &mut hit)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes files whose records are all gone from the log; never the newest. Gives the number.
    pub(crate) fn delete_expired(&self, log_min: i64) -> Result<usize, StoreError> {
        let expired: Vec<PathBuf> = {
            let mut inner = self.inner.lock();
            let keep = inner
                .full
                .iter()
                .position(|(_, header)| header.end_offset >= log_min)
                .unwrap_or(inner.full.len());
            inner.full.drain(..keep).map(|(path, _)| path).collect()
        };
        for path in &expired {
            remove(path)?;
        }
        Ok(expired.len())
    }
}

/// Follows one chain; gives false when the search is over.
fn follow(
    chains: &Chains,
    first: i32,
    hash: i32,
    (begin, end): (i64, i64),
    steps: &mut usize,
    hit: &mut impl FnMut(i64) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut number = first;
    while let Some(entry) = chains.entry(number)? {
        *steps += 1;
        if *steps > MAX_STEPS {
            return Ok(false);
        }
        // Times are kept in whole seconds: an entry may be up to a second newer than it says.
        let seconds = i64::from(entry.seconds.max(0));
        let time = chains.header.begin_timestamp.saturating_add(seconds * 1_000);
        if time.saturating_add(999) < begin {
            return Ok(true);
        }
        if entry.hash == hash && time <= end && !hit(entry.offset)? {
            return Ok(false);
        }
        if entry.previous >= number {
            break;
        }
        number = entry.previous;
    }
    Ok(true)
}

fn list_files(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(StoreError::io("list", dir))? {
        let entry = entry.map_err(StoreError::io("list", dir))?;
        let is_index = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.len() == 17 && name.bytes().all(|b| b.is_ascii_digit()));
        if is_index {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
