//! Units of consume queues read straight from their files, for inspection: nothing is opened for
//! writing, nothing is corrected.

use crate::config::UNIT_SIZE;
use crate::error::StoreError;
use crate::segments::list_segment_files;
use crate::unit::Unit;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes read at a time when all units are wanted: a multiple of the unit size.
const CHUNK: usize = 3_200 * UNIT_SIZE;

/// A queue's folder.
pub(crate) struct QueueFolder {
    pub(crate) dir: PathBuf,
    /// First byte, length and path of each file, ascending.
    files: Vec<(i64, u64, PathBuf)>,
    /// The file a unit was read from last.
    open: Option<(i64, File)>,
}

/// All queues below `root` by topic and queue id.
pub(crate) fn list_queues(root: &Path) -> Result<HashMap<(String, i32), QueueFolder>, StoreError> {
    let mut queues = HashMap::new();
    if !root.exists() {
        return Ok(queues);
    }
    for (topic, topic_dir) in folders(root)? {
        for (queue, dir) in folders(&topic_dir)? {
            let Ok(queue_id) = queue.parse::<i32>() else {
                continue;
            };
            let mut files = Vec::new();
            for (base, path) in list_segment_files(&dir)? {
                let metadata =
                    std::fs::metadata(&path).map_err(StoreError::io("inspect", &path))?;
                files.push((base, metadata.len(), path));
            }
            files.sort_unstable();
            queues.insert((topic.clone(), queue_id), QueueFolder { dir, files, open: None });
        }
    }
    Ok(queues)
}

fn folders(dir: &Path) -> Result<Vec<(String, PathBuf)>, StoreError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(StoreError::io("list", dir))? {
        let entry = entry.map_err(StoreError::io("list", dir))?;
        if let (true, Ok(name)) = (entry.path().is_dir(), entry.file_name().into_string()) {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

impl QueueFolder {
    /// The unit of an offset; `None` when no file holds its place.
    pub(crate) fn unit(&mut self, offset: i64) -> Option<Unit> {
        let at = offset.checked_mul(UNIT_SIZE as i64).filter(|at| *at >= 0)?;
        let behind = self.files.partition_point(|(base, _, _)| *base <= at);
        let (base, len, path) = self.files.get(behind.checked_sub(1)?)?;
        let place = (at - base) as u64;
        if place + UNIT_SIZE as u64 > *len {
            return None;
        }
        if self.open.as_ref().is_none_or(|(open, _)| open != base) {
            self.open = Some((*base, File::open(path).ok()?));
        }
        let (_, file) = self.open.as_ref()?;
        let mut bytes = [0; UNIT_SIZE];
        file.read_exact_at(&mut bytes, place).ok()?;
        Unit::decode(&bytes)
    }

    /// All places in order: file, byte in it, unit.
    pub(crate) fn each(&self, mut visit: impl FnMut(&Path, u64, Unit)) -> Result<(), StoreError> {
        for (_, len, path) in &self.files {
            read_all(path, *len, &mut visit).map_err(StoreError::io("read", path))?;
        }
        Ok(())
    }
}

fn read_all(path: &Path, len: u64, visit: &mut impl FnMut(&Path, u64, Unit)) -> io::Result<()> {
    let file = File::open(path)?;
    let mut bytes = vec![0; CHUNK];
    let mut at = 0;
    while at < len {
        let count = (len - at).min(CHUNK as u64) as usize;
        let chunk = bytes.get_mut(..count).unwrap_or_default();
        file.read_exact_at(chunk, at)?;
        for (number, unit) in chunk.chunks_exact(UNIT_SIZE).enumerate() {
            if let Some(unit) = Unit::decode(unit) {
                visit(path, at + (number * UNIT_SIZE) as u64, unit);
            }
        }
        at += count as u64;
    }
    Ok(())
}
