//! The ordered list of commit log files.
//!
//! What always holds: files follow each other without holes and have one size. The list is behind
//! a read-write lock held for a look-up; a found segment is used through its `Arc`, so deleting a
//! file never waits for readers and readers never miss bytes they already hold.

use crate::error::StoreError;
use crate::faults::DiskFaults;
use crate::segment::Segment;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a commit log.
pub(crate) struct Segments {
    dir: PathBuf,
    size: usize,
    faults: Option<Arc<dyn DiskFaults>>,
    list: RwLock<VecDeque<Arc<Segment>>>,
    /// One file is made at a time: two makers of one file would empty each other's.
    making: Mutex<()>,
}

impl Segments {
    /// Opens all files of `dir`, which is made when it does not exist.
    pub(crate) fn open(
        dir: PathBuf,
        size: usize,
        faults: Option<Arc<dyn DiskFaults>>,
    ) -> Result<Self, StoreError> {
        std::fs::create_dir_all(&dir).map_err(StoreError::io("create", &dir))?;
        let mut found = list_segment_files(&dir)?;
        found.sort_unstable_by_key(|(base, _)| *base);
        let count = found.len();
        let mut list: VecDeque<Arc<Segment>> = VecDeque::with_capacity(count);
        for (at, (base, path)) in found.into_iter().enumerate() {
            if let Some(before) = list.back().filter(|before| before.end() != base) {
                return Err(StoreError::MissingSegment { path: dir, offset: before.end() });
            }
            // Only the last file can be short: its creation or a copy of it broke off.
            let extend = at + 1 == count;
            list.push_back(Segment::open(path, base, size, extend, faults.clone())?);
        }
        Ok(Self { dir, size, faults, list: RwLock::new(list), making: Mutex::new(()) })
    }

    /// Opens all files of `dir` for looking at them; nothing is changed. The size is that of the
    /// first file.
    pub(crate) fn open_read_only(dir: PathBuf) -> Result<Self, StoreError> {
        let mut found = list_segment_files(&dir)?;
        found.sort_unstable_by_key(|(base, _)| *base);
        let list = found
            .into_iter()
            .map(|(base, path)| Segment::open_read_only(path, base))
            .collect::<Result<VecDeque<_>, _>>()?;
        let size = list.front().map_or(0, |first| first.end() - first.base());
        let mut before: Option<i64> = None;
        for segment in &list {
            if let Some(offset) = before.filter(|end| *end != segment.base()) {
                return Err(StoreError::MissingSegment { path: dir, offset });
            }
            before = Some(segment.base() + size);
        }
        Ok(Self {
            dir,
            size: usize::try_from(size).unwrap_or(0).max(1),
            faults: None,
            list: RwLock::new(list),
            making: Mutex::new(()),
        })
    }

    /// The folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of a file.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The file that holds `offset`.
    pub(crate) fn find(&self, offset: i64) -> Option<Arc<Segment>> {
        let list = self.list.read();
        let first = list.front()?.base();
        let at = usize::try_from(offset.checked_sub(first)?).ok()? / self.size;
        list.get(at).cloned()
    }

    /// Offset of the first byte of the first file; `None` without files.
    pub(crate) fn min(&self) -> Option<i64> {
        self.list.read().front().map(|segment| segment.base())
    }

    /// Offset behind the last file.
    pub(crate) fn end(&self) -> i64 {
        self.list.read().back().map_or(0, |segment| segment.end())
    }

    /// All files, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Segment>> {
        self.list.read().iter().cloned().collect()
    }

    /// Makes the file that follows the last one, unless `base` is covered already.
    pub(crate) fn ensure(&self, base: i64) -> Result<Arc<Segment>, StoreError> {
        if let Some(segment) = self.find(base) {
            return Ok(segment);
        }
        let _one = self.making.lock();
        if let Some(segment) = self.find(base) {
            return Ok(segment);
        }
        // Not under the list's lock: reserving a gigabyte must not stop readers.
        let segment = Segment::create(&self.dir, base, self.size, self.faults.clone())?;
        self.list.write().push_back(Arc::clone(&segment));
        Ok(segment)
    }

    /// Takes the first file out of the list and removes it from the disk.
    pub(crate) fn remove_first(&self) -> Result<Option<Arc<Segment>>, StoreError> {
        let first = {
            let mut list = self.list.write();
            if list.len() < 2 {
                return Ok(None);
            }
            list.pop_front()
        };
        if let Some(segment) = &first {
            segment.unlink().map_err(StoreError::io("delete", segment.path()))?;
        }
        Ok(first)
    }

    /// Removes all files that begin at or behind `offset`. Only for recovery.
    pub(crate) fn remove_from(&self, offset: i64) -> Result<(), StoreError> {
        loop {
            let last = {
                let mut list = self.list.write();
                match list.back() {
                    Some(last) if last.base() >= offset => list.pop_back(),
                    _ => return Ok(()),
                }
            };
            if let Some(segment) = last {
                segment.unlink().map_err(StoreError::io("delete", segment.path()))?;
            }
        }
    }
}

/// Files of `dir` whose name is 20 digits, with their first offset.
pub(crate) fn list_segment_files(dir: &Path) -> Result<Vec<(i64, PathBuf)>, StoreError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(StoreError::io("list", dir))? {
        let entry = entry.map_err(StoreError::io("list", dir))?;
        let name = entry.file_name();
        let base = name
            .to_str()
            .filter(|name| name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|name| name.parse::<i64>().ok());
        if let Some(base) = base {
            found.push((base, entry.path()));
        }
    }
    Ok(found)
}
