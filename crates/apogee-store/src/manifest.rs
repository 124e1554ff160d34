//! The manifest of derived files: which queues and how much index a checkpoint vouches for.
//!
//! Text, one item a line, so that a person can read it:
//! ```text
//! apogee-derived 1
//! checkpoint <crc32 of the checkpoint file this goes with>
//! position <commit log position everything below which is in queues and index>
//! log-min <first offset of the log then>
//! index <commit log offset of the newest indexed record, -1 = none; `off` = no index was kept>
//! index-file <commit log offset of its newest record> <name>
//! queue <id> <first offset with a unit> <max offset> <topic>
//! end <crc32 of the lines above>
//! ```
//! It counts only together with the checkpoint it was written with: when another program worked on
//! the store since, the checkpoint differs and the manifest is ignored. With it, a missing or
//! shortened queue is noticed at the start and rebuilt from the log, and recovery after a crash
//! begins at the very position instead of at the beginning of a file.

use crate::checkpoint::Checkpoint;
use crate::document::write_durably;
use crate::error::StoreError;
use std::fmt::Write;
use std::path::Path;

/// The file's name in the store's root.
pub(crate) const FILE_NAME: &str = "derived.manifest";

/// What a checkpoint vouches for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Everything below this commit log position is in queues and index, on the disk.
    pub(crate) position: i64,
    /// Offset of the newest indexed record (-1 = none); `None` when no index was kept.
    pub(crate) indexed: Option<i64>,
    /// First offset of the log when this was written.
    pub(crate) log_min: i64,
    /// Name and newest record's offset of each index file.
    pub(crate) index_files: Vec<(String, i64)>,
    /// The queues.
    pub(crate) queues: Vec<VouchedQueue>,
}

/// What a queue holds at least.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VouchedQueue {
    pub(crate) topic: String,
    pub(crate) queue_id: i32,
    /// First offset with a unit (the beginning of its first file).
    pub(crate) first: i64,
    /// One past the last offset.
    pub(crate) max: i64,
}

impl Manifest {
    pub(crate) fn encode(&self, checkpoint: &Checkpoint) -> String {
        let mut text = String::from("apogee-derived 1\n");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "checkpoint {:08x}", crc32fast::hash(&checkpoint.encode()));
        let _ = writeln!(text, "position {}", self.position);
        let _ = writeln!(text, "log-min {}", self.log_min);
        let _ = match self.indexed {
            Some(newest) => writeln!(text, "index {newest}"),
            None => writeln!(text, "index off"),
        };
        for (name, newest) in &self.index_files {
            let _ = writeln!(text, "index-file {newest} {name}");
        }
        for VouchedQueue { topic, queue_id, first, max } in &self.queues {
            if !topic.contains('\n') {
                let _ = writeln!(text, "queue {queue_id} {first} {max} {topic}");
            }
        }
        let crc = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "end {crc:08x}");
        text
    }

    /// Reads a manifest; `None` when it is damaged or goes with another checkpoint.
    pub(crate) fn decode(text: &str, checkpoint: &Checkpoint) -> Option<Self> {
        let body_len = text.trim_end().rfind('\n')? + 1;
        let (body, end) = text.split_at_checked(body_len)?;
        let crc = u32::from_str_radix(end.trim().strip_prefix("end ")?, 16).ok()?;
        if crc != crc32fast::hash(body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != "apogee-derived 1" {
            return None;
        }
        let of = lines.next()?.strip_prefix("checkpoint ")?;
        if u32::from_str_radix(of, 16).ok()? != crc32fast::hash(&checkpoint.encode()) {
            return None;
        }
        let position = lines.next()?.strip_prefix("position ")?.parse().ok()?;
        let log_min = lines.next()?.strip_prefix("log-min ")?.parse().ok()?;
        let indexed = match lines.next()?.strip_prefix("index ")? {
            "off" => None,
            newest => Some(newest.parse().ok()?),
        };
        let mut manifest = Self { position, indexed, log_min, ..Self::default() };
        for line in lines {
            let (kind, rest) = line.split_once(' ')?;
            if kind == "index-file" {
                let (newest, name) = rest.split_once(' ')?;
                manifest.index_files.push((name.to_owned(), newest.parse().ok()?));
            } else if kind == "queue" {
                let mut words = rest.splitn(4, ' ');
                manifest.queues.push(VouchedQueue {
                    queue_id: words.next()?.parse().ok()?,
                    first: words.next()?.parse().ok()?,
                    max: words.next()?.parse().ok()?,
                    topic: words.next()?.to_owned(),
                });
            }
        }
        Some(manifest)
    }

    pub(crate) fn save(&self, path: &Path, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        write_durably(path, self.encode(checkpoint).as_bytes())
    }

    pub(crate) fn load(path: &Path, checkpoint: &Checkpoint) -> Option<Self> {
        Self::decode(&std::fs::read_to_string(path).ok()?, checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_counts_only_whole_and_with_its_checkpoint() {
        let checkpoint = Checkpoint { logics_msg_timestamp: 5, ..Checkpoint::default() };
        let manifest = Manifest {
            position: 99,
            indexed: Some(42),
            log_min: 5,
            index_files: vec![("20261130161117186".to_owned(), 42)],
            queues: vec![VouchedQueue { topic: "a b".to_owned(), queue_id: 3, first: 0, max: 7 }],
        };
        let text = manifest.encode(&checkpoint);
        assert_eq!(Manifest::decode(&text, &checkpoint), Some(manifest));
        assert_eq!(Manifest::decode(&text, &Checkpoint::default()), None);
        for at in 0..text.len() - 1 {
            assert_eq!(Manifest::decode(&text[..at], &checkpoint), None, "{at}");
        }
    }
}
