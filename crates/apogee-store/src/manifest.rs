//! The manifest of derived files: which queues and how much index a checkpoint vouches for.
//!
//! Text, one item a line, so that a person can read it:
//! ```text
//! apogee-derived 1
//! checkpoint <crc32 of the checkpoint file this goes with>
//! position <commit log position everything below which is in queues and index>
//! index <commit log offset of the newest indexed record, -1 = none; `off` = no index was kept>
//! queue <id> <max offset> <topic>
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

/// What a checkpoint vouches for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Everything below this commit log position is in queues and index, on the disk.
    pub(crate) position: i64,
    /// Offset of the newest indexed record (-1 = none); `None` when no index was kept.
    pub(crate) indexed: Option<i64>,
    /// Topic, queue id and max offset of each queue.
    pub(crate) queues: Vec<(String, i32, i64)>,
}

impl Manifest {
    pub(crate) fn encode(&self, checkpoint: &Checkpoint) -> String {
        let mut text = String::from("apogee-derived 1\n");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "checkpoint {:08x}", crc32fast::hash(&checkpoint.encode()));
        let _ = writeln!(text, "position {}", self.position);
        let _ = match self.indexed {
            Some(newest) => writeln!(text, "index {newest}"),
            None => writeln!(text, "index off"),
        };
        for (topic, queue_id, max) in &self.queues {
            if !topic.contains('\n') {
                let _ = writeln!(text, "queue {queue_id} {max} {topic}");
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
        let indexed = match lines.next()?.strip_prefix("index ")? {
            "off" => None,
            newest => Some(newest.parse().ok()?),
        };
        let queues = lines
            .map(|line| {
                let mut words = line.strip_prefix("queue ")?.splitn(3, ' ');
                let queue_id = words.next()?.parse().ok()?;
                let max = words.next()?.parse().ok()?;
                Some((words.next()?.to_owned(), queue_id, max))
            })
            .collect::<Option<_>>()?;
        Some(Self { position, indexed, queues })
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
        let manifest =
            Manifest { position: 99, indexed: Some(42), queues: vec![("a b".to_owned(), 3, 7)] };
        let text = manifest.encode(&checkpoint);
        assert_eq!(Manifest::decode(&text, &checkpoint), Some(manifest));
        assert_eq!(Manifest::decode(&text, &Checkpoint::default()), None);
        for at in 0..text.len() - 1 {
            assert_eq!(Manifest::decode(&text[..at], &checkpoint), None, "{at}");
        }
    }
}
