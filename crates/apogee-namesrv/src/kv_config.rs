//! The key-value configuration: namespaces of keys and values, and the ordered topics among them.
//!
//! Always holds: what a change answered with success is in the file; a failed save leaves the old state in
//! memory and on disk. Bounded by [`MAX_ENTRIES`].

use crate::document;
use apogee_protocol::bodies::{JsonBody, KVConfigSerializeWrapper, KVTable};
use std::io;
use std::path::PathBuf;

/// Namespace of ordered topics: topic to `broker:queues;broker:queues`.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// Most keys in all namespaces together.
pub const MAX_ENTRIES: usize = 100_000;

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// There are [`MAX_ENTRIES`] keys.
    #[error(
        "the key-value configuration holds {MAX_ENTRIES} keys, which is its limit: delete some first"
    )]
    Full,
    /// The file can't be written.
    #[error("the key-value configuration can't be saved: {0}")]
    Save(#[from] io::Error),
}

/// The configuration and its file.
#[derive(Debug, Clone)]
pub struct KvConfig {
    table: KVConfigSerializeWrapper,
    /// `None` = in memory only.
    path: Option<PathBuf>,
}

impl KvConfig {
    /// Reads the configuration at `path`, which need not exist yet.
    ///
    /// # Errors
    /// When there is a file but neither it nor its backup can be read.
    pub fn load(path: Option<PathBuf>) -> io::Result<Self> {
        let table = match &path {
            Some(path) => document::load(path, KVConfigSerializeWrapper::from_json)?,
            None => None,
        };
        Ok(KvConfig { table: table.unwrap_or_default(), path })
    }

    /// The value of a key.
    pub fn get(&self, namespace: &str, key: &str) -> Option<&str> {
        self.table.config_table.get(namespace)?.get(key).map(String::as_str)
    }

    /// All keys of a namespace; `None` when there never was one.
    pub fn namespace(&self, namespace: &str) -> Option<KVTable> {
        self.table.config_table.get(namespace).map(|table| KVTable { table: table.clone() })
    }

    /// Sets a key.
    ///
    /// # Errors
    /// When the limit is reached or the file can't be written.
    pub fn put(&mut self, namespace: &str, key: &str, value: &str) -> Result<(), KvError> {
        let mut next = self.table.clone();
        let entries: usize = next.config_table.values().map(std::collections::BTreeMap::len).sum();
        let keys = next.config_table.entry(namespace.to_owned()).or_default();
        if entries >= MAX_ENTRIES && !keys.contains_key(key) {
            return Err(KvError::Full);
        }
        keys.insert(key.to_owned(), value.to_owned());
        self.save(next)
    }

    /// Deletes a key; there is nothing to do when it is not there.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn delete(&mut self, namespace: &str, key: &str) -> Result<(), KvError> {
        let mut next = self.table.clone();
        let removed = next.config_table.get_mut(namespace).and_then(|keys| keys.remove(key));
        if removed.is_none() { Ok(()) } else { self.save(next) }
    }

    fn save(&mut self, next: KVConfigSerializeWrapper) -> Result<(), KvError> {
        if let Some(path) = &self.path {
            document::save(path, &next.to_pretty())?;
        }
        self.table = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_there_after_a_restart_and_what_was_deleted_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("namesrv/kvConfig.json");
        let mut kv = KvConfig::load(Some(path.clone())).unwrap();
        kv.put(ORDER_TOPIC_CONFIG, "T", "broker-a:4").unwrap();
        kv.put("ns", "k", "中\"\n").unwrap();
        kv.put("ns", "gone", "1").unwrap();
        kv.delete("ns", "gone").unwrap();
        kv.delete("nosuch", "k").unwrap();
        let kv = KvConfig::load(Some(path)).unwrap();
        assert_eq!(kv.get(ORDER_TOPIC_CONFIG, "T"), Some("broker-a:4"));
        assert_eq!(kv.get("ns", "k"), Some("中\"\n"));
        assert_eq!(kv.get("ns", "gone"), None);
        assert!(kv.namespace("nosuch").is_none());
    }

    #[test]
    fn a_failed_save_leaves_the_old_value() {
        let folder = tempfile::tempdir().unwrap();
        let blocker = folder.path().join("file");
        std::fs::write(&blocker, b"").unwrap();
        let mut kv = KvConfig {
            table: KVConfigSerializeWrapper::default(),
            path: Some(blocker.join("kvConfig.json")),
        };
        assert!(matches!(kv.put("ns", "k", "v"), Err(KvError::Save(_))));
        assert_eq!(kv.get("ns", "k"), None);
    }
}
