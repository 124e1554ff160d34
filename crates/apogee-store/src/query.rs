//! Queries by key over the index.
//!
//! The index knows hashes only, so each hit's record is read and its key compared: what is given
//! out really carries the key (the original leaves that to the client).

use crate::index::key_hash;
use crate::message_store::MessageStore;
use apogee_model::properties::keys;
use apogee_model::record::{LogEntry, RecordView, parse_entry};
use bytes::Bytes;

/// What kind of key is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// A word of KEYS or a unique key.
    Key,
    /// A unique key only.
    UniqueKey,
    /// A tag.
    Tag,
}

/// Result of a query.
#[derive(Debug, Clone, Default)]
pub struct QueryResult {
    /// Whole records, oldest first (the newest ones that there are).
    pub records: Vec<Bytes>,
    /// Store time of the newest indexed record (ms).
    pub index_last_update_timestamp: i64,
    /// Commit log offset of the newest indexed record.
    pub index_last_update_physical_offset: i64,
}

impl MessageStore {
    /// The newest `max` records of a topic that carry `key` and were stored in `[begin, end]` (ms,
    /// to the second). `max` is limited by `maxMsgsNumBatch`.
    ///
    /// # Errors
    /// An I/O error of the index or of a cold record.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        kind: KeyKind,
        max: usize,
        begin: i64,
        end: i64,
    ) -> std::io::Result<QueryResult> {
        let mut result = QueryResult::default();
        let Some(index) = &self.index else {
            return Ok(result);
        };
        let max = max.min(self.config.max_msgs_num_batch);
        let hash = match kind {
            KeyKind::Key | KeyKind::UniqueKey => key_hash(topic, "", key),
            KeyKind::Tag => key_hash(topic, "T#", key),
        };
        let mut last = -1;
        index.search(hash, begin, end, |offset| {
            if result.records.len() >= max {
                return Ok(false);
            }
            // A record with the same word twice stands twice in a row.
            if offset != last
                && let Some(bytes) = self.get_by_physical_offset(offset, None)?
            {
                last = offset;
                if let Ok(LogEntry::Record(record)) = parse_entry(&bytes)
                    && record.topic() == topic
                    && carries(&record, key, kind)
                {
                    result.records.push(bytes);
                }
            }
            Ok(result.records.len() < max)
        })?;
        result.records.reverse();
        let (offset, timestamp) = index.last_update();
        result.index_last_update_physical_offset = offset;
        result.index_last_update_timestamp = timestamp;
        Ok(result)
    }
}

fn carries(record: &RecordView<'_>, key: &str, kind: KeyKind) -> bool {
    let properties = record.properties();
    let unique = || properties.get(keys::UNIQ_KEY) == Some(key);
    match kind {
        KeyKind::Tag => properties.get(keys::TAGS) == Some(key),
        KeyKind::UniqueKey => unique(),
        KeyKind::Key => {
            unique()
                || properties
                    .get(keys::KEYS)
                    .is_some_and(|words| words.split(' ').any(|word| word == key))
        }
    }
}
