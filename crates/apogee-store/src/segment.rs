//! One file of the commit log: reserved on the disk when made, written with `pwrite`, read through
//! a read-only mapping.
//!
//! What always holds: the file has its full length before it is mapped and nobody in this process
//! shortens it, so reading the mapping cannot run past the file's end. Bytes below the log's
//! appended position never change again while readers exist; only recovery, which runs before any
//! reader, zeroes a torn tail. A `Bytes` given out owns the segment: a deleted file's mapping lives
//! as long as anybody reads it.
//!
//! Threads: all methods take `&self`; who may write where is ordered by the append lock.
//! This is the one file of the crate with `unsafe` (the mapping itself).

use crate::error::StoreError;
use crate::faults::DiskFaults;
use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file that starts at `base`: 20 digits.
pub(crate) fn file_name(base: i64) -> String {
    format!("{base:020}")
}

/// A commit log file.
pub(crate) struct Segment {
    base: i64,
    size: usize,
    path: PathBuf,
    file: File,
    map: Mmap,
    faults: Option<Arc<dyn DiskFaults>>,
}

impl Segment {
    /// Makes a new file of `size` bytes, reserved on the disk.
    pub(crate) fn create(
        dir: &Path,
        base: i64,
        size: usize,
        faults: Option<Arc<dyn DiskFaults>>,
    ) -> Result<Arc<Self>, StoreError> {
        let path = dir.join(file_name(base));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(StoreError::io("create", &path))?;
        let reserved = faults
            .as_ref()
            .map_or(Ok(()), |faults| faults.before_allocate())
            .and_then(|()| reserve(&file, size));
        if let Err(error) = reserved {
            // A file without its space must not be found at the next start.
            let _ = std::fs::remove_file(&path);
            return Err(StoreError::io("reserve space for", &path)(error));
        }
        // The name must survive a power cut before a record in the file is acknowledged.
        sync_dir(dir)?;
        Self::map(path, file, base, size, faults)
    }

    /// Opens an existing file. A short one is an error unless `extend` allows to fill it up.
    pub(crate) fn open(
        path: PathBuf,
        base: i64,
        size: usize,
        extend: bool,
        faults: Option<Arc<dyn DiskFaults>>,
    ) -> Result<Arc<Self>, StoreError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        let actual = file.metadata().map_err(StoreError::io("inspect", &path))?.len();
        if actual < size as u64 && extend {
            reserve(&file, size).map_err(StoreError::io("reserve space for", &path))?;
        } else if actual != size as u64 {
            return Err(StoreError::SegmentSize { path, actual, expected: size as u64 });
        }
        Self::map(path, file, base, size, faults)
    }

    /// Opens an existing file of any length for looking at it.
    pub(crate) fn open_read_only(path: PathBuf, base: i64) -> Result<Arc<Self>, StoreError> {
        let file = File::open(&path).map_err(StoreError::io("open", &path))?;
        let len = file.metadata().map_err(StoreError::io("inspect", &path))?.len();
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        Self::map(path, file, base, size, None)
    }

    #[allow(
        unsafe_code,
        reason = "mapping a file is unsafe because another process could shorten it; the store's lock file and the full length set above rule that out"
    )]
    fn map(
        path: PathBuf,
        file: File,
        base: i64,
        size: usize,
        faults: Option<Arc<dyn DiskFaults>>,
    ) -> Result<Arc<Self>, StoreError> {
        // SAFETY: the file has `size` bytes, is never shortened while mapped, and the map is
        // read-only; bytes handed out lie below the appended position, where nobody writes.
        let map = unsafe { MmapOptions::new().len(size).map(&file) }
            .map_err(StoreError::io("map", &path))?;
        Ok(Arc::new(Self { base, size, path, file, map, faults }))
    }

    /// Commit log offset of the first byte.
    pub(crate) fn base(&self) -> i64 {
        self.base
    }

    /// Commit log offset behind the last byte.
    pub(crate) fn end(&self) -> i64 {
        self.base + self.size as i64
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Position in this file of a commit log offset, if it lies here.
    pub(crate) fn position_of(&self, offset: i64) -> Option<usize> {
        let at = usize::try_from(offset.checked_sub(self.base)?).ok()?;
        (at <= self.size).then_some(at)
    }

    /// Writes `bytes` at `at` into the page cache.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        if let Some(faults) = &self.faults {
            faults.before_write()?;
        }
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.size) {
            return Err(io::Error::other("write past the end of a commit log file"));
        }
        self.file.write_all_at(bytes, at as u64)
    }

    /// The mapped bytes of a range.
    pub(crate) fn slice(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.map.get(at..at.checked_add(len)?)
    }

    /// The bytes of a range, not copied; they keep the segment alive.
    pub(crate) fn bytes(self: &Arc<Self>, at: usize, len: usize) -> Option<Bytes> {
        self.slice(at, len)?;
        Some(Bytes::from_owner(Range { segment: Arc::clone(self), at, len }))
    }

    /// The bytes of a range read with `pread`: for data that is probably not in memory, where an
    /// I/O error must be an error and not a signal.
    pub(crate) fn read_copy(&self, at: usize, len: usize) -> io::Result<Vec<u8>> {
        if at.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(io::Error::other("read past the end of a commit log file"));
        }
        let mut buffer = vec![0; len];
        self.file.read_exact_at(&mut buffer, at as u64)?;
        Ok(buffer)
    }

    /// Brings everything written to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if let Some(faults) = &self.faults {
            faults.before_sync()?;
        }
        self.file.sync_data()
    }

    /// Zeroes everything from `at` on, keeping the space reserved. Only for recovery.
    pub(crate) fn zero_from(&self, at: usize) -> io::Result<()> {
        if at >= self.size {
            return Ok(());
        }
        let (start, len) = (at as u64, (self.size - at) as u64);
        let keep = FallocateFlags::KEEP_SIZE;
        let zeroed =
            rustix::fs::fallocate(&self.file, FallocateFlags::ZERO_RANGE | keep, start, len)
                .or_else(|_| {
                    rustix::fs::fallocate(&self.file, FallocateFlags::PUNCH_HOLE | keep, start, len)
                })
                .is_ok();
        if !zeroed {
            let zeros = vec![0; 64 * 1024];
            let mut position = at;
            while position < self.size {
                let count = zeros.len().min(self.size - position);
                self.file.write_all_at(zeros.get(..count).unwrap_or_default(), position as u64)?;
                position += count;
            }
        }
        reserve(&self.file, self.size)?;
        self.file.sync_all()
    }

    /// Removes the file's name; readers that hold bytes go on.
    pub(crate) fn unlink(&self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    /// The file's modification time in ms.
    pub(crate) fn modified_ms(&self) -> io::Result<i64> {
        modified_ms(&self.file.metadata()?)
    }
}

/// A file's modification time in ms since 1970.
pub(crate) fn modified_ms(metadata: &std::fs::Metadata) -> io::Result<i64> {
    let modified = metadata.modified()?;
    Ok(modified.duration_since(std::time::UNIX_EPOCH).map_or(0, |age| age.as_millis() as i64))
}

/// Gives a file `size` bytes with space on the disk. Where the file system cannot reserve, the
/// length alone is set (a full disk then shows as a failed write, still not as a signal).
fn reserve(file: &File, size: usize) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size as u64) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(size as u64),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir)
        .and_then(|folder| folder.sync_all())
        .map_err(StoreError::io("sync the folder", dir))
}

struct Range {
    segment: Arc<Segment>,
    at: usize,
    len: usize,
}

impl AsRef<[u8]> for Range {
    fn as_ref(&self) -> &[u8] {
        self.segment.slice(self.at, self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_outlive_the_deleted_file_and_the_segment() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Segment::create(dir.path(), 4096, 4096, None).unwrap();
        segment.write(10, b"hello").unwrap();
        let bytes = segment.bytes(10, 5).unwrap();
        assert!(segment.path().ends_with("00000000000000004096"));
        segment.unlink().unwrap();
        drop(segment);
        assert_eq!(&bytes[..], b"hello");
    }

    #[test]
    fn ranges_past_the_end_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Segment::create(dir.path(), 0, 4096, None).unwrap();
        assert!(segment.write(4092, b"hello").is_err());
        assert!(segment.bytes(4092, 5).is_none());
        assert!(segment.read_copy(usize::MAX, 2).is_err());
    }

    #[test]
    fn a_zeroed_tail_reads_as_zeros_through_the_mapping() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Segment::create(dir.path(), 0, 16384, None).unwrap();
        segment.write(0, &[7; 16384]).unwrap();
        segment.zero_from(100).unwrap();
        assert_eq!(segment.slice(0, 100).unwrap(), &[7; 100]);
        assert!(segment.slice(100, 16284).unwrap().iter().all(|b| *b == 0));
    }

    #[test]
    fn a_full_disk_is_an_error_and_leaves_no_file() {
        struct Full;
        impl DiskFaults for Full {
            fn before_allocate(&self) -> io::Result<()> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let error = Segment::create(dir.path(), 0, 4096, Some(Arc::new(Full))).err().unwrap();
        assert!(error.to_string().contains("reserve space for"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_of_another_size_names_the_setting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000000");
        std::fs::write(&path, [0; 100]).unwrap();
        let error = Segment::open(path.clone(), 0, 4096, false, None).err().unwrap();
        assert!(error.to_string().contains("mappedFileSizeCommitLog"));
        assert!(Segment::open(path, 0, 4096, true, None).is_ok());
    }
}
