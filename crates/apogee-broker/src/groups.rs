//! Consumer groups' settings, saved as `subscriptionGroup.json`, and which topics are forbidden to them.
//!
//! What always holds: every name in the table passed the group rules; a change moves the data version
//! and is saved before it is answered.

use crate::clock::now_ms;
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use apogee_model::names;
use apogee_protocol::bodies::{
    DataVersion, JsonBody, SubscriptionGroupConfig, SubscriptionGroupWrapper,
};
use apogee_store::Document;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Groups that exist from the start, and whether they may consume by broadcast in any case.
const BUILT_IN: [(&str, bool); 8] = [
    ("TOOLS_CONSUMER", false),
    ("FILTERSRV_CONSUMER", false),
    ("SELF_TEST_C_GROUP", false),
    ("CID_ONS-HTTP-PROXY", true),
    ("CID_ONSAPI_PULL", true),
    ("CID_ONSAPI_PERMISSION", true),
    ("CID_ONSAPI_OWNER", true),
    ("CID_RMQ_SYS_TRANS", true),
];
/// Bit of a forbidden-table entry: the group may not read the topic.
const READ_FORBIDDEN: i32 = 1 << 2;

type Forbidden = BTreeMap<String, BTreeMap<String, i32>>;

/// The group table.
pub(crate) struct GroupTable {
    groups: RwLock<HashMap<Box<str>, Arc<SubscriptionGroupConfig>>>,
    forbidden: RwLock<Forbidden>,
    version: Mutex<DataVersion>,
    document: Document,
    auto_create: AtomicBool,
}

fn is_document(bytes: &[u8]) -> bool {
    SubscriptionGroupWrapper::from_json(bytes).is_ok()
}

impl GroupTable {
    /// Loads the table from `config_dir` and adds the groups that every broker has.
    ///
    /// # Errors
    /// When the document and its backup are both unreadable.
    pub(crate) fn load(config_dir: &Path, config: &BrokerConfig) -> Result<Self, BrokerError> {
        let document = Document::new(config_dir.join("subscriptionGroup.json"), is_document);
        let saved = match document.load()?.into_bytes() {
            Some(bytes) => SubscriptionGroupWrapper::from_json(&bytes)?,
            None => SubscriptionGroupWrapper::default(),
        };
        let mut groups: HashMap<Box<str>, Arc<SubscriptionGroupConfig>> = HashMap::new();
        for (name, config) in saved.subscription_group_table {
            groups.insert(name.into(), Arc::new(config));
        }
        for (name, broadcast) in BUILT_IN {
            let mut config = named(name);
            config.consume_broadcast_enable |= broadcast;
            groups.entry(name.into()).or_insert_with(|| Arc::new(config));
        }
        Ok(Self {
            groups: RwLock::new(groups),
            forbidden: RwLock::new(saved.forbidden_table),
            version: Mutex::new(saved.data_version),
            document,
            auto_create: AtomicBool::new(config.auto_create_subscription_group),
        })
    }

    /// Whether use may make groups from now on.
    pub(crate) fn set_auto_create(&self, auto_create: bool) {
        self.auto_create.store(auto_create, Ordering::Relaxed);
    }

    /// A group's settings, if it is known.
    pub(crate) fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        self.groups.read().get(group).cloned()
    }

    /// A group's settings; an unknown group is created if its name is legal and settings or its kind
    /// (system group) allow that.
    pub(crate) fn get_or_create(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        if let Some(known) = self.get(group) {
            return Some(known);
        }
        if !(self.auto_create.load(Ordering::Relaxed) || names::is_system_group(group))
            || names::validate_group(group).is_err()
        {
            return None;
        }
        let made = Arc::new(named(group));
        {
            let mut groups = self.groups.write();
            if let Some(known) = groups.get(group) {
                return Some(Arc::clone(known));
            }
            groups.insert(group.into(), Arc::clone(&made));
        }
        tracing::info!(group, "consumer group created by use");
        self.changed();
        Some(made)
    }

    /// All groups by name.
    pub(crate) fn all(&self) -> BTreeMap<String, SubscriptionGroupConfig> {
        let groups = self.groups.read();
        groups.iter().map(|(name, config)| (name.to_string(), config.as_ref().clone())).collect()
    }

    /// The table's data version.
    pub(crate) fn version(&self) -> DataVersion {
        self.version.lock().clone()
    }

    /// Creates or changes a group.
    pub(crate) fn update(&self, config: SubscriptionGroupConfig) {
        self.groups.write().insert(config.group_name.as_str().into(), Arc::new(config));
        self.changed();
    }

    /// Removes a group; false if there is none.
    pub(crate) fn remove(&self, group: &str) -> bool {
        let removed = self.groups.write().remove(group).is_some();
        if removed {
            self.changed();
        }
        removed
    }

    /// Whether the group may not read the topic.
    pub(crate) fn is_read_forbidden(&self, group: &str, topic: &str) -> bool {
        let forbidden = self.forbidden.read();
        forbidden
            .get(group)
            .and_then(|topics| topics.get(topic))
            .is_some_and(|bits| bits & READ_FORBIDDEN != 0)
    }

    /// Forbids or allows a group to read a topic.
    pub(crate) fn set_readable(&self, group: &str, topic: &str, readable: bool) {
        {
            let mut forbidden = self.forbidden.write();
            let topics = forbidden.entry(group.to_owned()).or_default();
            let bits = topics.entry(topic.to_owned()).or_default();
            *bits = if readable { *bits & !READ_FORBIDDEN } else { *bits | READ_FORBIDDEN };
            topics.retain(|_, bits| *bits != 0);
            forbidden.retain(|_, topics| !topics.is_empty());
        }
        self.changed();
    }

    /// Everything, as slaves and tools ask for it.
    pub(crate) fn snapshot(&self) -> SubscriptionGroupWrapper {
        SubscriptionGroupWrapper {
            data_version: self.version(),
            forbidden_table: self.forbidden.read().clone(),
            subscription_group_table: self.all(),
        }
    }

    fn changed(&self) {
        self.version.lock().next(now_ms(), 0);
        if let Err(error) = self.save() {
            tracing::error!(%error, "subscriptionGroup.json cannot be saved");
        }
    }

    /// Saves the table.
    ///
    /// # Errors
    /// When the document cannot be written.
    pub(crate) fn save(&self) -> Result<(), BrokerError> {
        Ok(self.document.save(&self.snapshot().to_pretty())?)
    }
}

fn named(group: &str) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name: group.to_owned(), ..SubscriptionGroupConfig::default() }
}
