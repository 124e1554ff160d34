//! Open consume queue files, few at a time: a store of 8,000 queues must live with 1,024 handles.
//!
//! A handle in use stays open through its `Arc` even when the cache lets it go. Files are sparse
//! and always have their full length, as other readers of the format expect. One mutex around the
//! map, held for a lookup or an insertion, never across a system call on the file's data.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Which file: the queue's number in this process and the unit at which the file starts.
type Key = (u64, i64);

/// The cache of open files, least recently used out first.
pub(crate) struct QueueFiles {
    limit: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    clock: u64,
    files: HashMap<Key, (Arc<File>, u64)>,
}

impl QueueFiles {
    /// A cache of at most `limit` files.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), open: Mutex::default() }
    }

    /// The file of `key` at `path`; `create` makes it with `size` bytes when it is not there.
    pub(crate) fn get(&self, key: Key, path: &Path, create: Option<u64>) -> io::Result<Arc<File>> {
        {
            let mut open = self.open.lock();
            open.clock += 1;
            let now = open.clock;
            if let Some((file, used)) = open.files.get_mut(&key) {
                *used = now;
                return Ok(Arc::clone(file));
            }
        }
        let file = Arc::new(open_file(path, create)?);
        let mut open = self.open.lock();
        if open.files.len() >= self.limit {
            let oldest = open.files.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                open.files.remove(&oldest);
            }
        }
        let now = open.clock;
        open.files.insert(key, (Arc::clone(&file), now));
        Ok(file)
    }

    /// Forgets one file (it is deleted).
    pub(crate) fn forget(&self, key: Key) {
        self.open.lock().files.remove(&key);
    }

    /// Forgets all files of a queue.
    pub(crate) fn forget_queue(&self, queue: u64) {
        self.open.lock().files.retain(|(id, _), _| *id != queue);
    }

    /// How many files are open.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.open.lock().files.len()
    }
}

fn open_file(path: &Path, create: Option<u64>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let Some(size) = create else {
        return options.open(path);
    };
    options.create(true).truncate(false);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(dir) = path.parent() {
                std::fs::create_dir_all(dir)?;
            }
            options.open(path)?
        }
        other => other?,
    };
    if file.metadata()?.len() < size {
        file.set_len(size)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_open_files_is_bounded_and_used_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let files = QueueFiles::new(3);
        for id in 0..10_u64 {
            files.get((0, 0), &dir.path().join("0"), Some(20)).unwrap();
            let path = dir.path().join(id.to_string());
            let file = files.get((id, 0), &path, Some(20)).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 20);
            assert!(files.len() <= 3);
        }
        assert!(files.open.lock().files.contains_key(&(0, 0)));
    }

    #[test]
    fn a_missing_file_is_an_error_unless_it_may_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let files = QueueFiles::new(3);
        let path = dir.path().join("a/b/c");
        assert!(files.get((1, 0), &path, None).is_err());
        assert!(files.get((1, 0), &path, Some(40)).is_ok());
    }
}
