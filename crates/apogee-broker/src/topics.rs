//! Topics of the broker, saved as `topics.json`.
//!
//! What always holds: every name in the table passed the name rules or is made by the broker itself; a
//! change moves the data version and is saved before it is answered. Readers take one short read lock;
//! saving happens under the document's own lock.

use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use crate::processor::send_rules::{PERM_INHERIT, PERM_READ, PERM_WRITE};
use apogee_model::names;
use apogee_protocol::bodies::{DataVersion, JsonBody, TopicConfig, TopicConfigSerializeWrapper};
use apogee_store::Document;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most queues that an admin may give a topic; the original sets no limit and fails later.
pub(crate) const MAX_QUEUES: i32 = 65_536;

/// The topic table.
pub(crate) struct TopicTable {
    topics: RwLock<HashMap<Box<str>, Arc<TopicConfig>>>,
    version: Mutex<DataVersion>,
    document: Document,
    system: HashSet<String>,
    auto_create: AtomicBool,
}

fn is_document(bytes: &[u8]) -> bool {
    TopicConfigSerializeWrapper::from_json(bytes).is_ok()
}

impl TopicTable {
    /// Loads the table from `config_dir` and adds the topics that every broker has.
    ///
    /// # Errors
    /// When the document and its backup are both unreadable.
    pub(crate) fn load(config_dir: &Path, config: &BrokerConfig) -> Result<Self, BrokerError> {
        let document = Document::new(config_dir.join("topics.json"), is_document);
        let saved = match document.load()?.into_bytes() {
            Some(bytes) => TopicConfigSerializeWrapper::from_json(&bytes)?,
            None => TopicConfigSerializeWrapper::default(),
        };
        let reply = format!("{}_REPLY_TOPIC", config.broker_cluster_name);
        let mut system: HashSet<String> =
            names::SYSTEM_TOPICS.iter().map(|name| (*name).to_owned()).collect();
        system.extend([
            config.broker_cluster_name.clone(),
            config.broker_name.clone(),
            reply.clone(),
        ]);
        let mut topics: HashMap<Box<str>, Arc<TopicConfig>> = HashMap::new();
        for (name, config) in saved.topic_config_table {
            topics.insert(name.into(), Arc::new(config));
        }
        for topic in built_in(config, &reply) {
            // What an operator changed in a built-in topic stays.
            topics.entry(topic.topic_name.as_str().into()).or_insert_with(|| Arc::new(topic));
        }
        Ok(Self {
            topics: RwLock::new(topics),
            version: Mutex::new(saved.data_version),
            document,
            system,
            auto_create: AtomicBool::new(config.auto_create_topic_enable),
        })
    }

    /// Whether sends may make topics from now on.
    pub(crate) fn set_auto_create(&self, auto_create: bool) {
        self.auto_create.store(auto_create, Ordering::Relaxed);
    }

    /// A topic's settings.
    pub(crate) fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        self.topics.read().get(topic).cloned()
    }

    /// All topics by name.
    pub(crate) fn all(&self) -> BTreeMap<String, TopicConfig> {
        let topics = self.topics.read();
        topics.iter().map(|(name, config)| (name.to_string(), config.as_ref().clone())).collect()
    }

    /// The table's data version.
    pub(crate) fn version(&self) -> DataVersion {
        self.version.lock().clone()
    }

    /// Whether the topic belongs to the system.
    pub(crate) fn is_system(&self, topic: &str) -> bool {
        names::is_system_topic(topic) || self.system.contains(topic)
    }

    /// Names of all system topics that this broker knows.
    pub(crate) fn system_names(&self) -> Vec<String> {
        let topics = self.topics.read();
        let known = topics.keys().filter(|name| self.is_system(name)).map(|name| name.to_string());
        let mut all: Vec<String> = known.chain(self.system.iter().cloned()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Creates a topic for a send to it, with the settings of `default_topic`; `None` if that is not
    /// allowed.
    pub(crate) fn create_by_send(
        &self,
        topic: &str,
        default_topic: &str,
        client_queues: i32,
        by: SocketAddr,
    ) -> Option<Arc<TopicConfig>> {
        let template = self.get(default_topic)?;
        let may_inherit = template.perm & PERM_INHERIT != 0
            && (self.auto_create.load(Ordering::Relaxed)
                || default_topic != names::AUTO_CREATE_TOPIC);
        if !may_inherit {
            tracing::warn!(topic, default_topic, %by, "topic not created: the default topic's permission is not inherited");
            return None;
        }
        let queues = client_queues.min(template.write_queue_nums).clamp(1, MAX_QUEUES);
        let config = TopicConfig {
            topic_name: topic.to_owned(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: template.perm & !PERM_INHERIT,
            topic_sys_flag: template.topic_sys_flag,
            topic_filter_type: template.topic_filter_type,
            ..TopicConfig::default()
        };
        tracing::info!(topic, queues, %by, "topic created by a send");
        Some(self.insert_if_absent(config))
    }

    /// Creates a topic that the broker needs itself (retry, dead letters), if it is not there.
    pub(crate) fn create_internal(
        &self,
        topic: &str,
        queues: i32,
        perm: i32,
    ) -> Option<Arc<TopicConfig>> {
        if let Some(known) = self.get(topic) {
            return Some(known);
        }
        // Names made by the broker may hold a '+' (pop retries of the second version).
        if !names::is_safe_path_part(topic) {
            return None;
        }
        Some(self.insert_if_absent(simple(topic, queues.clamp(1, MAX_QUEUES), perm)))
    }

    fn insert_if_absent(&self, config: TopicConfig) -> Arc<TopicConfig> {
        let made = {
            let mut topics = self.topics.write();
            if let Some(known) = topics.get(config.topic_name.as_str()) {
                return Arc::clone(known);
            }
            let made = Arc::new(config);
            topics.insert(made.topic_name.as_str().into(), Arc::clone(&made));
            made
        };
        self.changed();
        made
    }

    /// Creates or changes a topic; false if nothing differs.
    pub(crate) fn update(&self, config: TopicConfig) -> bool {
        {
            let mut topics = self.topics.write();
            if topics.get(config.topic_name.as_str()).is_some_and(|known| **known == config) {
                return false;
            }
            topics.insert(config.topic_name.as_str().into(), Arc::new(config));
        }
        self.changed();
        true
    }

    /// Removes a topic; false if there is none.
    pub(crate) fn remove(&self, topic: &str) -> bool {
        let removed = self.topics.write().remove(topic).is_some();
        if removed {
            self.changed();
        }
        removed
    }

    /// Notes a change from elsewhere (the broker's permission) so that registrations carry it.
    pub(crate) fn changed(&self) {
        self.version.lock().next(now_ms(), 0);
        if let Err(error) = self.save() {
            tracing::error!(%error, "topics.json cannot be saved");
        }
    }

    /// Saves the table.
    ///
    /// # Errors
    /// When the document cannot be written.
    pub(crate) fn save(&self) -> Result<(), BrokerError> {
        let wrapper = TopicConfigSerializeWrapper {
            data_version: self.version(),
            topic_config_table: self.all(),
        };
        Ok(self.document.save(&wrapper.to_pretty())?)
    }
}

fn simple(topic: &str, queues: i32, perm: i32) -> TopicConfig {
    TopicConfig {
        topic_name: topic.to_owned(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        ..TopicConfig::default()
    }
}

/// Topics that every broker has.
fn built_in(config: &BrokerConfig, reply: &str) -> Vec<TopicConfig> {
    let rw = PERM_READ | PERM_WRITE;
    let if_enabled = |enabled: bool| if enabled { rw | PERM_INHERIT } else { PERM_INHERIT };
    let cluster = config.broker_cluster_name.as_str();
    let mut topics = vec![
        simple(names::SELF_TEST_TOPIC, 1, rw),
        simple(names::BENCHMARK_TOPIC, 1024, rw),
        simple(cluster, 16, if_enabled(config.cluster_topic_enable)),
        simple(&config.broker_name, 1, if_enabled(config.broker_topic_enable)),
        simple(names::OFFSET_MOVED_EVENT, 1, rw),
        simple(names::SCHEDULE_TOPIC, config.delay_levels, rw),
        simple(apogee_store::timer::TIMER_TOPIC, 1, rw),
        simple(reply, 1, rw),
        simple(&crate::pop::revive_topic(cluster), config.revive_queue_num.clamp(1, 256), rw),
        simple(names::TRANS_HALF_TOPIC, 1, rw),
        simple(names::TRANS_OP_HALF_TOPIC, 1, rw),
        simple(&format!("rmq_sys_SYNC_BROKER_MEMBER_{}", config.broker_name), 1, PERM_INHERIT),
    ];
    if config.auto_create_topic_enable {
        topics.push(simple(
            names::AUTO_CREATE_TOPIC,
            config.default_topic_queue_nums,
            rw | PERM_INHERIT,
        ));
    }
    if config.trace_topic_enable {
        topics.push(simple(names::TRACE_TOPIC, 1, rw));
    }
    topics
}
