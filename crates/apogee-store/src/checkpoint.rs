//! The checkpoint: up to when log, queues and index were on the disk.
//!
//! | bytes | field |
//! | --- | --- |
//! | 8 | store time of the newest flushed record |
//! | 8 | store time of the newest record whose queue unit is on the disk |
//! | 8 | store time of the newest record whose index entries are on the disk |
//! | 8 | flushed offset of the master |
//! | 8 | confirmed offset |
//! | 8 | commit log offset of a record whose queue unit is on the disk (5.5) |
//!
//! The file has 4096 bytes, the rest is zero. It is written with one write over the same place, so
//! a power cut leaves an old or a new one on disks with 4 KiB atomic writes; values that make no
//! sense only make recovery start earlier.

use crate::be::{get_i64, put_i64};
use crate::error::StoreError;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILE_SIZE: usize = 4096;
/// What recovery goes back before the checkpoint's times, as in the original.
const MARGIN_MS: i64 = 3_000;

/// A checkpoint's content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Store time of the newest flushed record (ms).
    pub(crate) physic_msg_timestamp: i64,
    /// Store time of the newest record with a durable queue unit (ms).
    pub(crate) logics_msg_timestamp: i64,
    /// Store time of the newest record with durable index entries (ms).
    pub(crate) index_msg_timestamp: i64,
    /// Flushed offset of the master.
    pub(crate) master_flushed_offset: i64,
    /// Confirmed offset.
    pub(crate) confirm_phy_offset: i64,
    /// Commit log offset up to which queue units are durable.
    pub(crate) logics_physical_offset: i64,
}

impl Checkpoint {
    /// Reads the file; one that is missing or short reads as zeros.
    pub(crate) fn load(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        Self::decode(&bytes)
    }

    fn decode(bytes: &[u8]) -> Self {
        let field = |at| get_i64(bytes, at).unwrap_or(0).max(0);
        Self {
            physic_msg_timestamp: field(0),
            logics_msg_timestamp: field(8),
            index_msg_timestamp: field(16),
            master_flushed_offset: field(24),
            confirm_phy_offset: field(32),
            logics_physical_offset: field(40),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FILE_SIZE];
        put_i64(&mut bytes, 0, self.physic_msg_timestamp);
        put_i64(&mut bytes, 8, self.logics_msg_timestamp);
        put_i64(&mut bytes, 16, self.index_msg_timestamp);
        put_i64(&mut bytes, 24, self.master_flushed_offset);
        put_i64(&mut bytes, 32, self.confirm_phy_offset);
        put_i64(&mut bytes, 40, self.logics_physical_offset);
        bytes
    }

    /// Writes the file durably.
    pub(crate) fn save(&self, path: &Path) -> Result<(), StoreError> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .and_then(|file| {
                file.write_all_at(&self.encode(), 0)?;
                file.sync_data()
            })
            .map_err(StoreError::io("write", path))
    }

    /// The time before which everything is known to be on the disk.
    pub(crate) fn safe_timestamp(&self) -> i64 {
        let time = self.physic_msg_timestamp.min(self.logics_msg_timestamp);
        (time - MARGIN_MS).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_reads_back_and_damage_reads_as_early() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        assert_eq!(Checkpoint::load(&path), Checkpoint::default());
        let checkpoint = Checkpoint {
            physic_msg_timestamp: 9_000,
            logics_msg_timestamp: 8_000,
            logics_physical_offset: 77,
            ..Checkpoint::default()
        };
        checkpoint.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        assert_eq!(Checkpoint::load(&path), checkpoint);
        assert_eq!(checkpoint.safe_timestamp(), 5_000);
        std::fs::write(&path, [0xFF; 20]).unwrap();
        assert_eq!(Checkpoint::load(&path).safe_timestamp(), 0);
    }
}
