//! The files that say who works on a store: `lock` (held with `flock`) and `abort` (there while the
//! store is open, with the process id as text; found at the start it means that the last stop was
//! no clean one).

use crate::error::StoreError;
use crate::segment::sync_dir;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Holds a store folder for this process.
pub(crate) struct Guard {
    root: PathBuf,
    lock: File,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Closing is not enough: a child process between fork and exec may share the handle.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Guard {
    /// Takes the folder. A second process gets [`StoreError::Locked`].
    pub(crate) fn take(root: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(root).map_err(StoreError::io("create", root))?;
        let path = root.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        // The original locks with `fcntl`, which `flock` does not see: take both.
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(&lock, exclusive).is_err()
            || rustix::fs::fcntl_lock(&lock, exclusive).is_err()
        {
            let pid = std::fs::read_to_string(root.join("abort")).unwrap_or_default();
            let pid = pid.trim();
            return Err(StoreError::Locked {
                path: root.to_path_buf(),
                pid: if pid.is_empty() { "unknown" } else { pid }.to_owned(),
            });
        }
        lock.write_all_at(b"lock", 0)
            .and_then(|()| lock.set_len(4))
            .map_err(StoreError::io("write", &path))?;
        Ok(Self { root: root.to_path_buf(), lock })
    }

    /// Whether the last stop was not clean.
    pub(crate) fn was_aborted(&self) -> bool {
        self.abort_path().exists()
    }

    /// Notes that the store is open.
    pub(crate) fn mark_open(&self) -> Result<(), StoreError> {
        let path = self.abort_path();
        std::fs::write(&path, std::process::id().to_string())
            .map_err(StoreError::io("write", &path))?;
        sync_dir(&self.root)
    }

    /// Notes a clean stop.
    pub(crate) fn mark_closed(&self) -> Result<(), StoreError> {
        let path = self.abort_path();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &path)(error))
            }
            _ => sync_dir(&self.root),
        }
    }

    fn abort_path(&self) -> PathBuf {
        self.root.join("abort")
    }
}
