//! All consume queues of a store, and the memory of deleted topics.
//!
//! A deleted topic's records stay in the commit log until their files expire. So that neither a
//! restart nor a lagging dispatch brings them back, deletion writes down the log position at which
//! it happened (`deletedTopics`: one line `position<TAB>topic`); records of that topic below the
//! position get no unit. A line goes away when the log begins behind its position. The queue
//! folders are renamed out of the way first and removed after, so a crash leaves no half topic.
//!
//! Locks: one read-write lock around the table, held for look-ups only. Order: append lock, then
//! dispatch lock, then this one, then a queue's own.

use crate::consume_queue::{ConsumeQueue, QueueEnv};
use crate::document::write_durably;
use crate::error::StoreError;
use crate::queue_listing::Listing;
use crate::unit::Unit;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file that remembers deleted topics, in the store's root.
pub(crate) const TOMBSTONES: &str = "deletedTopics";

/// The table of queues.
pub(crate) struct Queues {
    env: Arc<QueueEnv>,
    trash: PathBuf,
    tombstone_path: PathBuf,
    table: RwLock<Table>,
    dirty: Mutex<Vec<Arc<ConsumeQueue>>>,
    unsynced: Mutex<Vec<Arc<ConsumeQueue>>>,
    next_id: AtomicU64,
    /// Keeps deletions, and with them writers of the tombstone file, apart.
    deletions: Mutex<()>,
    /// Topics whose queues are of the batch kind: left alone, neither read nor written.
    batch_topics: HashSet<String>,
}

#[derive(Default)]
struct Table {
    topics: HashMap<Arc<str>, BTreeMap<i32, Arc<ConsumeQueue>>>,
    tombstones: HashMap<Arc<str>, i64>,
}

/// What loading found.
#[derive(Debug, Default)]
pub(crate) struct LoadedQueues {
    /// Queues whose files could not be used; they are gone and must be rebuilt.
    pub(crate) damaged: usize,
    /// Commit log offset of the newest message any queue knows.
    pub(crate) last_physical_offset: Option<i64>,
}

/// Whether a topic may become a folder name.
pub(crate) fn is_safe_folder(topic: &str) -> bool {
    !topic.is_empty()
        && topic.len() <= 255
        && topic != "."
        && topic != ".."
        && !topic.bytes().any(|byte| byte == b'/' || byte == 0)
}

impl Queues {
    /// An empty table over the folders of a store.
    pub(crate) fn new(env: Arc<QueueEnv>, store_root: &Path) -> Result<Self, StoreError> {
        let mut trash = env.root.clone().into_os_string();
        trash.push(".deleted");
        let tombstone_path = store_root.join(TOMBSTONES);
        let table = Table { tombstones: read_tombstones(&tombstone_path)?, ..Table::default() };
        Ok(Self {
            batch_topics: list_names(&store_root.join("batchconsumequeue")),
            env,
            trash: PathBuf::from(trash),
            tombstone_path,
            table: RwLock::new(table),
            dirty: Mutex::default(),
            unsynced: Mutex::default(),
            next_id: AtomicU64::new(1),
            deletions: Mutex::new(()),
        })
    }

    /// Loads the queues found on the disk. Units that reach past `limit` are cut off. `own` says
    /// that this program wrote them last, so that a short file is damage and not another setting.
    pub(crate) fn load(
        &self,
        limit: i64,
        crashed: bool,
        own: bool,
    ) -> Result<LoadedQueues, StoreError> {
        self.empty_trash();
        let mut loaded = LoadedQueues::default();
        let mut table = self.table.write();
        for topic in list_names(&self.env.root) {
            if !is_safe_folder(&topic) {
                continue;
            }
            let shared: Arc<str> = Arc::from(topic.as_str());
            let topic_dir = self.env.root.join(&topic);
            for queue in list_names(&topic_dir) {
                let Some(queue_id) = queue.parse::<i32>().ok().filter(|id| *id >= 0) else {
                    continue;
                };
                let queue_ref = self.make(&shared, queue_id, &table);
                match self.load_queue(&queue_ref, limit, crashed, own)? {
                    // A deletion that broke off after it was written down.
                    Some(Some(last)) if last.end() > 0 && last.end() <= queue_ref.born_at() => {
                        queue_ref.kill();
                        self.move_to_trash(&queue_ref.dir())?;
                        continue;
                    }
                    Some(last) => {
                        let last = last.filter(|unit| !unit.is_filler());
                        let offset = last.map(|unit| unit.physical_offset);
                        loaded.last_physical_offset = loaded.last_physical_offset.max(offset);
                    }
                    None => loaded.damaged += 1,
                }
                table.topics.entry(Arc::clone(&shared)).or_default().insert(queue_id, queue_ref);
            }
        }
        drop(table);
        self.empty_trash();
        Ok(loaded)
    }

    /// Gives the queue's last unit, or `None` when its files were unusable and are gone.
    fn load_queue(
        &self,
        queue: &ConsumeQueue,
        limit: i64,
        crashed: bool,
        own: bool,
    ) -> Result<Option<Option<Unit>>, StoreError> {
        let dir = queue.dir();
        let listing =
            Listing::of(&dir, self.env.units_per_file).map_err(StoreError::io("list", &dir))?;
        match listing {
            Listing::Short(path, _) if own => {
                tracing::warn!(path = %path.display(), "a queue file is cut short; its queue is rebuilt from the commit log");
                self.reset_files(queue)?;
                Ok(None)
            }
            Listing::Short(path, len) | Listing::OtherSize(path, len) => Err(StoreError::Config {
                key: "mappedFileSizeConsumeQueue",
                value: (self.env.units_per_file * 20).to_string(),
                reason: format!(
                    "{} has {len} bytes; use the size the store was made with",
                    path.display()
                ),
            }),
            Listing::Files(bases) => match queue.load(&bases, limit, crashed) {
                Ok(last) => Ok(Some(last)),
                Err(error) => {
                    tracing::warn!(queue = ?queue, %error, "the queue's files cannot be read; they are rebuilt from the commit log");
                    self.reset_files(queue)?;
                    Ok(None)
                }
            },
        }
    }

    fn reset_files(&self, queue: &ConsumeQueue) -> Result<(), StoreError> {
        let dir = queue.dir();
        self.move_to_trash(&dir)?;
        self.empty_trash();
        Ok(())
    }

    /// Forgets what was loaded, to load again. Only for recovery.
    pub(crate) fn forget_all(&self) {
        let topics = std::mem::take(&mut self.table.write().topics);
        for queue in topics.values().flat_map(|queues| queues.values()) {
            queue.kill();
        }
        self.dirty.lock().clear();
        self.unsynced.lock().clear();
    }

    /// Throws a queue's files away and puts an empty queue in its place, to be rebuilt.
    pub(crate) fn reset(&self, topic: &str, queue_id: i32) -> Result<(), StoreError> {
        let mut table = self.table.write();
        let removed = table.topics.get_mut(topic).and_then(|queues| queues.remove(&queue_id));
        if let Some(queue) = removed {
            queue.kill();
            self.reset_files(&queue)?;
        }
        Ok(())
    }

    fn make(&self, topic: &Arc<str>, queue_id: i32, table: &Table) -> Arc<ConsumeQueue> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let born_at = table.tombstones.get(topic).copied().unwrap_or(0);
        Arc::new(ConsumeQueue::new(id, Arc::clone(topic), queue_id, Arc::clone(&self.env), born_at))
    }

    /// The queue, if it exists.
    pub(crate) fn get(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        self.table.read().topics.get(topic)?.get(&queue_id).cloned()
    }

    /// The queue, made when it does not exist.
    pub(crate) fn get_or_create(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, queue_id) {
            return queue;
        }
        let mut table = self.table.write();
        let known = table.topics.get_key_value(topic);
        let shared = known.map_or_else(|| Arc::from(topic), |(key, _)| Arc::clone(key));
        if let Some(queue) = known.and_then(|(_, queues)| queues.get(&queue_id)) {
            return Arc::clone(queue);
        }
        let queue = self.make(&shared, queue_id, &table);
        table.topics.entry(shared).or_default().insert(queue_id, Arc::clone(&queue));
        queue
    }

    /// For dispatch: the queue that gets the unit of a record at `position`, or none when the
    /// record belongs to a topic that was deleted after it, or whose queues are not ours.
    pub(crate) fn for_record(
        &self,
        topic: &str,
        queue_id: i32,
        position: i64,
    ) -> Option<Arc<ConsumeQueue>> {
        if let Some(queue) = self.get(topic, queue_id) {
            return (position >= queue.born_at()).then_some(queue);
        }
        let buried = self.table.read().tombstones.get(topic).copied();
        let ours = is_safe_folder(topic) && queue_id >= 0 && !self.is_batch_topic(topic);
        (ours && buried.is_none_or(|at| position >= at))
            .then(|| self.get_or_create(topic, queue_id))
    }

    /// Log position at which a topic of this name was deleted last, while that is remembered.
    pub(crate) fn deleted_at(&self, topic: &str) -> Option<i64> {
        self.table.read().tombstones.get(topic).copied()
    }

    /// Whether the topic's queues are of the batch kind of the original.
    pub(crate) fn is_batch_topic(&self, topic: &str) -> bool {
        !self.batch_topics.is_empty() && self.batch_topics.contains(topic)
    }

    /// All queues, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        let table = self.table.read();
        table.topics.values().flat_map(|queues| queues.values().cloned()).collect()
    }

    /// All topics with a queue, sorted.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        let mut topics: Vec<_> = self.table.read().topics.keys().cloned().collect();
        topics.sort_unstable();
        topics
    }

    /// The queues of a topic by id.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        let table = self.table.read();
        table.topics.get(topic).map(|queues| queues.values().cloned().collect()).unwrap_or_default()
    }

    /// Notes that a queue has units in memory.
    pub(crate) fn mark_dirty(&self, queue: &Arc<ConsumeQueue>) {
        if !queue.listed_dirty.swap(true, Ordering::AcqRel) {
            self.dirty.lock().push(Arc::clone(queue));
        }
    }

    /// Writes all units out of memory. Gives the first error; queues that failed stay noted.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        let mut result = Ok(());
        for queue in dirty {
            match queue.write_out() {
                Ok(()) => self.unsynced.lock().push(queue),
                Err(error) => {
                    result = result.and(Err(StoreError::io("write", &queue.dir())(error)));
                    self.mark_dirty(&queue);
                }
            }
        }
        result
    }

    /// Brings all written units to the disk: file by file while they are few, else by one call
    /// for the whole file system.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        const FEW: usize = 64;
        self.write_out()?;
        let queues = std::mem::take(&mut *self.unsynced.lock());
        let mut seen = HashSet::new();
        let files: Vec<_> = queues
            .iter()
            .filter(|queue| seen.insert(Arc::as_ptr(queue)))
            .flat_map(|queue| queue.take_unsynced().into_iter().map(move |base| (queue, base)))
            .collect();
        if files.len() <= FEW {
            for (queue, base) in files {
                queue.sync_file(base).map_err(StoreError::io("sync", &queue.dir()))?;
            }
            return Ok(());
        }
        std::fs::File::open(&self.env.root)
            .and_then(|root| rustix::fs::syncfs(&root).map_err(Into::into))
            .map_err(StoreError::io("sync", &self.env.root))
    }

    /// Deletes a topic. `between_appends` runs its argument with the append lock held and gives it
    /// the log's end. The deletion is on the disk before the first queue goes, so a crash at any
    /// point leaves the topic whole or gone; no file is synced with the append lock held.
    pub(crate) fn delete_topic(
        &self,
        topic: &str,
        position_now: i64,
        between_appends: impl FnOnce(&mut dyn FnMut(i64)),
    ) -> Result<bool, StoreError> {
        let _one = self.deletions.lock();
        if !self.table.read().topics.contains_key(topic) {
            return Ok(false);
        }
        let mut tombstones = self.table.read().tombstones.clone();
        tombstones.insert(Arc::from(topic), position_now);
        self.write_tombstones(&tombstones)?;
        let mut moved = Ok(());
        between_appends(&mut |position| {
            let mut table = self.table.write();
            if let Some((name, queues)) = table.topics.remove_entry(topic) {
                queues.values().for_each(|queue| queue.kill());
                table.tombstones.insert(name, position);
                moved = self.move_to_trash(&self.env.root.join(topic));
            }
        });
        let tombstones = self.table.read().tombstones.clone();
        self.write_tombstones(&tombstones)?;
        moved?;
        self.empty_trash();
        Ok(true)
    }

    /// Forgets deletions that happened before the log begins.
    pub(crate) fn prune_tombstones(&self, log_min: i64) -> Result<(), StoreError> {
        let _one = self.deletions.lock();
        let tombstones = {
            let mut table = self.table.write();
            let before = table.tombstones.len();
            table.tombstones.retain(|_, at| *at > log_min);
            if table.tombstones.len() == before {
                return Ok(());
            }
            table.tombstones.clone()
        };
        self.write_tombstones(&tombstones)
    }

    fn write_tombstones(&self, tombstones: &HashMap<Arc<str>, i64>) -> Result<(), StoreError> {
        let mut text = String::new();
        for (topic, at) in tombstones {
            text.push_str(&format!("{at}\t{topic}\n"));
        }
        write_durably(&self.tombstone_path, text.as_bytes())
    }

    fn move_to_trash(&self, dir: &Path) -> Result<(), StoreError> {
        std::fs::create_dir_all(&self.trash).map_err(StoreError::io("create", &self.trash))?;
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let target = self.trash.join(number.to_string());
        match std::fs::rename(dir, &target) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("move away", dir)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the folders of deleted queues.
    pub(crate) fn empty_trash(&self) {
        match std::fs::remove_dir_all(&self.trash) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.trash.display(), %error, "cannot remove deleted queues");
            }
            _ => {}
        }
    }
}

fn list_names(dir: &Path) -> HashSet<String> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Reads the memory of deleted topics.
pub(crate) fn read_tombstones(path: &Path) -> Result<HashMap<Arc<str>, i64>, StoreError> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.map_err(StoreError::io("read", path))?,
    };
    Ok(text
        .lines()
        .filter_map(|line| {
            let (at, topic) = line.split_once('\t')?;
            Some((Arc::from(topic), at.parse().ok()?))
        })
        .collect())
}
