//! The route table: which brokers are alive, which topics they serve, and since when.
//!
//! A pure machine: events come in with the time, answers and commands go out. The shell owns clock, sockets
//! and lock.
//!
//! Always holds: a broker name is in exactly one cluster's set and has at least one address; every queue of
//! a topic belongs to a known broker name; a topic without queues is not in the table; an address that is in
//! a group has a live entry. A registration is as old as the connection it came on: what an older connection
//! says later (an unregistration, its end) never touches a newer registration. Bounded by [`MAX_BROKERS`]
//! and [`MAX_TOPICS`].

use apogee_protocol::bodies::{
    BrokerData, DataVersion, QueueData, TopicConfig, TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most broker addresses.
pub const MAX_BROKERS: usize = 10_000;
/// Most topics.
pub const MAX_TOPICS: usize = 1_000_000;
/// Longest name of a topic, broker or cluster, bytes.
const MAX_NAME_BYTES: usize = 255;
/// A broker that says nothing for this long is gone, unless it named another time, ms.
pub const DEFAULT_TIMEOUT_MS: i64 = 120_000;
/// Broker id of a master.
pub(crate) const MASTER_ID: i64 = 0;
/// Permission bit of writing.
pub(crate) const PERM_WRITE: i32 = 2;
/// Permission bits of reading and writing.
pub(crate) const PERM_READ_WRITE: i32 = 6;

/// Something the shell has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Close a connection whose broker has expired.
    Close {
        /// The connection.
        connection: u64,
    },
    /// Tell brokers that the smallest broker id of their name has changed (one-way).
    NotifyMinBrokerId {
        /// Whom to tell.
        addresses: Vec<String>,
        /// The broker name.
        broker_name: String,
        /// The smallest id now.
        min_broker_id: i64,
        /// Its address.
        min_broker_addr: String,
        /// The address that went away.
        offline_broker_addr: Option<String>,
        /// Replication address of the one that came.
        ha_broker_addr: Option<String>,
    },
}

/// What a broker says of itself when it registers.
#[derive(Debug, Clone, Default)]
pub struct Registration {
    /// Cluster.
    pub cluster: String,
    /// Broker name.
    pub broker_name: String,
    /// Address for clients.
    pub broker_addr: String,
    /// Broker id, 0 = master.
    pub broker_id: i64,
    /// Address for replicas.
    pub ha_server_addr: String,
    /// Zone, if it is in one.
    pub zone_name: Option<String>,
    /// After how much silence it is gone, ms.
    pub timeout_ms: Option<i64>,
    /// Whether a replica may act as master; `None` from brokers that do not know of it.
    pub enable_acting_master: Option<bool>,
    /// Its topics, all of them or only the changed ones.
    pub topics: TopicConfigAndMappingSerializeWrapper,
    /// Filter servers beside it.
    pub filter_servers: Vec<String>,
}

/// What a replica is told of its master.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registered {
    /// Address for replicas of the master.
    pub ha_server_addr: Option<String>,
    /// Address of the master.
    pub master_addr: Option<String>,
}

/// Why a registration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The first registration of an address must carry the whole table, not one changed topic.
    #[error("register broker failed: the first registration of {0} must carry all topics")]
    FirstWithOneTopic(String),
    /// A name that can't be one.
    #[error("{what} \"{name}\" is empty, too long, or holds control characters, blanks or slashes")]
    Name {
        /// Whose name.
        what: &'static str,
        /// The name, shortened.
        name: String,
    },
    /// The broker name belongs to another cluster.
    #[error(
        "broker name {name} is registered in cluster {cluster}: a name can be in one cluster only"
    )]
    OtherCluster {
        /// The name.
        name: String,
        /// Where it is.
        cluster: String,
    },
    /// The table is full.
    #[error("the route table holds its limit of {0}")]
    Full(&'static str),
}

/// Key of a live broker: cluster and address.
pub(crate) type BrokerKey = (String, String);

/// A broker that is alive.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) broker_name: String,
    pub(crate) broker_id: i64,
    pub(crate) last_heard_ms: i64,
    pub(crate) timeout_ms: i64,
    pub(crate) data_version: DataVersion,
    pub(crate) connection: u64,
    pub(crate) ha_server_addr: String,
    pub(crate) filter_servers: Vec<String>,
    /// Whether the whole topic table has arrived since the broker came. Every broker has a topic of its
    /// own name, so the registration with that topic is not one of the partial ones.
    pub(crate) complete: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct RouteTable {
    pub(crate) topics: BTreeMap<String, BTreeMap<String, QueueData>>,
    pub(crate) brokers: BTreeMap<String, BrokerData>,
    pub(crate) clusters: BTreeMap<String, BTreeSet<String>>,
    pub(crate) live: HashMap<BrokerKey, Live>,
    pub(crate) mappings: BTreeMap<String, BTreeMap<String, TopicQueueMappingInfo>>,
}

/// Settings that change what a registration does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// Brokers are told when the smallest id changes.
    pub notify_min_broker_id: bool,
    /// A full registration removes topics that it does not name.
    pub delete_missing_topics: bool,
}

fn check_name(what: &'static str, name: &str) -> Result<(), RegisterError> {
    if acceptable(name) {
        return Ok(());
    }
    Err(RegisterError::Name { what, name: name.chars().take(64).collect() })
}

/// Broker names may hold dots (host names), so this is wider than the rule for topics that clients make.
pub(crate) fn acceptable(name: &str) -> bool {
    let wrong = |letter: char| {
        letter.is_control() || letter.is_whitespace() || matches!(letter, '/' | '\\')
    };
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name != "."
        && name != ".."
        && !name.contains(wrong)
}

impl RouteTable {
    /// An empty table.
    pub fn new() -> Self {
        RouteTable::default()
    }

    /// A broker registers, for the first time or again.
    ///
    /// # Errors
    /// See [`RegisterError`]. Nothing is changed then.
    pub fn register(
        &mut self,
        from: Registration,
        connection: u64,
        policy: Policy,
        now_ms: i64,
        commands: &mut Vec<Command>,
    ) -> Result<Registered, RegisterError> {
        self.check(&from)?;
        let key = (from.cluster.clone(), from.broker_addr.clone());
        let known = self.brokers.get(&from.broker_name);
        let ids = known.map(|group| group.broker_addrs.clone()).unwrap_or_default();
        if self.is_outdated(&from, &ids) {
            return Ok(Registered::default());
        }
        let topics = &from.topics.topic_config_table;
        if !ids.contains_key(&from.broker_id) && topics.len() == 1 {
            return Err(RegisterError::FirstWithOneTopic(from.broker_addr.clone()));
        }
        let first = !ids.contains_key(&from.broker_id);
        let min_before = ids.keys().next().copied().unwrap_or(MASTER_ID);
        let min_changed = from.broker_id < min_before;
        self.join(&from, &key);
        let before = self.live.get(&key).cloned();
        self.take_topics(&from, first, before.as_ref(), policy);
        let complete = before.as_ref().is_some_and(|live| live.complete)
            || topics.contains_key(&from.broker_name);
        self.live.insert(
            key,
            Live {
                broker_name: from.broker_name.clone(),
                broker_id: from.broker_id,
                last_heard_ms: now_ms,
                timeout_ms: from
                    .timeout_ms
                    .filter(|timeout| *timeout > 0)
                    .unwrap_or(DEFAULT_TIMEOUT_MS),
                data_version: from.topics.data_version.clone(),
                connection,
                ha_server_addr: from.ha_server_addr.clone(),
                filter_servers: from.filter_servers.clone(),
                complete,
            },
        );
        if min_changed && policy.notify_min_broker_id {
            commands.extend(self.min_broker_changed(
                &from.broker_name,
                None,
                Some(from.ha_server_addr.clone()),
            ));
        }
        Ok(self.master_of(&from))
    }

    fn check(&self, from: &Registration) -> Result<(), RegisterError> {
        check_name("cluster", &from.cluster)?;
        check_name("broker name", &from.broker_name)?;
        check_name("broker address", &from.broker_addr)?;
        if let Some(group) = self.brokers.get(&from.broker_name) {
            let cluster = group.cluster.clone().unwrap_or_default();
            let alone = group.broker_addrs.values().all(|address| *address == from.broker_addr);
            if cluster != from.cluster && !alone {
                return Err(RegisterError::OtherCluster {
                    name: from.broker_name.clone(),
                    cluster,
                });
            }
        }
        let known = self.live.contains_key(&(from.cluster.clone(), from.broker_addr.clone()));
        if !known && self.live.len() >= MAX_BROKERS {
            return Err(RegisterError::Full("broker addresses"));
        }
        let named = from.topics.topic_config_table.keys();
        if self.topics.len() + named.len() > MAX_TOPICS
            && self.topics.len() + named.filter(|topic| !self.topics.contains_key(*topic)).count()
                > MAX_TOPICS
        {
            return Err(RegisterError::Full("topics"));
        }
        Ok(())
    }

    /// Another address holds the id with a newer state: an old master that woke up again.
    fn is_outdated(&self, from: &Registration, ids: &BTreeMap<i64, String>) -> bool {
        let holder = ids.get(&from.broker_id).filter(|address| **address != from.broker_addr);
        let live =
            holder.and_then(|address| self.live.get(&(from.cluster.clone(), address.clone())));
        live.is_some_and(|live| {
            live.data_version.state_version > from.topics.data_version.state_version
        })
    }

    /// Enters the broker into its cluster and group.
    fn join(&mut self, from: &Registration, key: &BrokerKey) {
        // A broker that moved to another cluster leaves the old one; the check saw that it was alone there.
        let old = self.brokers.get(&from.broker_name).and_then(|group| group.cluster.clone());
        if let Some(old) = old.filter(|old| *old != from.cluster) {
            self.live.remove(&(old, from.broker_addr.clone()));
            self.drop_address(&from.broker_name, from.broker_id, &from.broker_addr);
        }
        // The address may have served under another name before.
        if let Some(other) = self.live.get(key).filter(|live| live.broker_name != from.broker_name)
        {
            let (name, id) = (other.broker_name.clone(), other.broker_id);
            self.drop_address(&name, id, &key.1);
        }
        self.clusters.entry(from.cluster.clone()).or_default().insert(from.broker_name.clone());
        let group = self.brokers.entry(from.broker_name.clone()).or_default();
        group.broker_name.clone_from(&from.broker_name);
        group.cluster = Some(from.cluster.clone());
        group.enable_acting_master = from.enable_acting_master.unwrap_or(false);
        group.zone_name.clone_from(&from.zone_name);
        // A replica that became master, or the reverse, gives up its old id.
        group
            .broker_addrs
            .retain(|id, address| *address != from.broker_addr || *id == from.broker_id);
        let replaced = group.broker_addrs.insert(from.broker_id, from.broker_addr.clone());
        if let Some(old) = replaced.filter(|old| *old != from.broker_addr) {
            self.live.remove(&(from.cluster.clone(), old));
        }
    }

    /// Takes the topics of a master, or of the smallest replica when replicas may act as master.
    fn take_topics(
        &mut self,
        from: &Registration,
        first: bool,
        before: Option<&Live>,
        policy: Policy,
    ) {
        let Some(group) = self.brokers.get(&from.broker_name) else { return };
        let is_master = from.broker_id == MASTER_ID;
        let smallest = group.broker_addrs.keys().next() == Some(&from.broker_id);
        let is_prime_replica = !is_master && from.enable_acting_master.is_some() && smallest;
        if !is_master && !is_prime_replica {
            return;
        }
        let read_only = is_prime_replica && group.enable_acting_master;
        let same = before.is_some_and(|live| live.data_version == from.topics.data_version);
        let infos = &from.topics.topic_queue_mapping_info_map;
        // Only a full registration names the broker's own topic; a partial one says nothing of the others.
        let full = from.topics.topic_config_table.contains_key(&from.broker_name);
        if policy.delete_missing_topics && full && infos.is_empty() {
            self.forget_missing(&from.broker_name, &from.topics.topic_config_table);
        }
        for (topic, config) in &from.topics.topic_config_table {
            let known =
                self.topics.get(topic).is_some_and(|queues| queues.contains_key(&from.broker_name));
            // Unchanged and known: keep what an operator may have changed here (write permission).
            let changed = first || !same || !known;
            if changed && acceptable(topic) {
                self.put_queues(topic, &from.broker_name, config, read_only);
            }
        }
        if first || !same {
            for (topic, info) in infos.iter().filter(|(topic, _)| acceptable(topic)) {
                self.mappings
                    .entry(topic.clone())
                    .or_default()
                    .insert(from.broker_name.clone(), info.clone());
            }
        }
    }

    fn put_queues(
        &mut self,
        topic: &str,
        broker_name: &str,
        config: &TopicConfig,
        read_only: bool,
    ) {
        let perm = if read_only { config.perm & !PERM_WRITE } else { config.perm };
        let queues = QueueData {
            broker_name: broker_name.to_owned(),
            perm,
            read_queue_nums: config.read_queue_nums,
            topic_sys_flag: config.topic_sys_flag,
            write_queue_nums: config.write_queue_nums,
        };
        self.topics.entry(topic.to_owned()).or_default().insert(broker_name.to_owned(), queues);
    }

    fn forget_missing(&mut self, broker_name: &str, named: &BTreeMap<String, TopicConfig>) {
        self.topics.retain(|topic, queues| {
            if !named.contains_key(topic) {
                queues.remove(broker_name);
            }
            !queues.is_empty()
        });
    }

    fn master_of(&self, from: &Registration) -> Registered {
        let group = self.brokers.get(&from.broker_name).filter(|_| from.broker_id != MASTER_ID);
        let Some(master) = group.and_then(|group| group.broker_addrs.get(&MASTER_ID)) else {
            return Registered::default();
        };
        let live = self.live.get(&(from.cluster.clone(), master.clone()));
        live.map(|live| Registered {
            ha_server_addr: Some(live.ha_server_addr.clone()),
            master_addr: Some(master.clone()),
        })
        .unwrap_or_default()
    }

    /// A broker says that it goes. What an older connection says of a newer registration is not heard.
    pub fn unregister(
        &mut self,
        cluster: &str,
        broker_addr: &str,
        broker_id: i64,
        connection: u64,
        policy: Policy,
        commands: &mut Vec<Command>,
    ) -> bool {
        let key = (cluster.to_owned(), broker_addr.to_owned());
        let Some(live) = self.live.get(&key) else { return false };
        if live.connection > connection || live.broker_id != broker_id {
            return false;
        }
        self.remove(&key, policy, commands);
        true
    }

    /// A connection has ended: the brokers whose latest registration came on it go.
    pub fn connection_closed(
        &mut self,
        connection: u64,
        policy: Policy,
        commands: &mut Vec<Command>,
    ) {
        let gone: Vec<BrokerKey> = self
            .live
            .iter()
            .filter(|(_, live)| live.connection == connection)
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.remove(&key, policy, commands);
        }
    }

    /// Removes brokers that were silent for longer than they promised.
    pub fn expire(
        &mut self,
        now_ms: i64,
        policy: Policy,
        commands: &mut Vec<Command>,
    ) -> Vec<String> {
        let late = |live: &Live| live.last_heard_ms.saturating_add(live.timeout_ms) < now_ms;
        let gone: Vec<(BrokerKey, u64)> = self
            .live
            .iter()
            .filter(|(_, live)| late(live))
            .map(|(key, live)| (key.clone(), live.connection))
            .collect();
        for (key, connection) in &gone {
            self.remove(key, policy, commands);
            commands.push(Command::Close { connection: *connection });
        }
        gone.into_iter().map(|((_, address), _)| address).collect()
    }

    /// A sign of life.
    pub fn heard(&mut self, cluster: &str, broker_addr: &str, now_ms: i64) {
        if let Some(live) = self.live.get_mut(&(cluster.to_owned(), broker_addr.to_owned())) {
            live.last_heard_ms = live.last_heard_ms.max(now_ms);
        }
    }

    /// The version of a broker's topics, and whether all of them have arrived.
    pub fn version_of(&self, cluster: &str, broker_addr: &str) -> Option<(&DataVersion, bool)> {
        let live = self.live.get(&(cluster.to_owned(), broker_addr.to_owned()))?;
        Some((&live.data_version, live.complete))
    }

    /// Whether any broker has registered all its topics.
    pub fn any_complete(&self) -> bool {
        self.live.values().any(|live| live.complete)
    }

    fn remove(&mut self, key: &BrokerKey, policy: Policy, commands: &mut Vec<Command>) {
        let Some(live) = self.live.remove(key) else { return };
        let was_smallest = self.drop_address(&live.broker_name, live.broker_id, &key.1);
        if was_smallest && policy.notify_min_broker_id {
            commands.extend(self.min_broker_changed(&live.broker_name, Some(key.1.clone()), None));
        }
    }

    /// Takes an address out of its group and what hangs on it; tells whether it had the smallest id and
    /// others remain.
    fn drop_address(&mut self, broker_name: &str, broker_id: i64, address: &str) -> bool {
        let Some(group) = self.brokers.get_mut(broker_name) else { return false };
        let was_smallest = group.broker_addrs.keys().next() == Some(&broker_id);
        group.broker_addrs.retain(|_, known| known != address);
        if group.broker_addrs.is_empty() {
            let cluster = group.cluster.clone().unwrap_or_default();
            self.brokers.remove(broker_name);
            self.leave_cluster(&cluster, broker_name);
            self.forget_missing(broker_name, &BTreeMap::new());
            self.mappings.retain(|_, brokers| {
                brokers.remove(broker_name);
                !brokers.is_empty()
            });
            return false;
        }
        let no_master = !group.broker_addrs.contains_key(&MASTER_ID);
        if group.enable_acting_master && no_master {
            for queues in self.topics.values_mut().filter_map(|queues| queues.get_mut(broker_name))
            {
                queues.perm &= !PERM_WRITE;
            }
        }
        was_smallest
    }

    fn leave_cluster(&mut self, cluster: &str, broker_name: &str) {
        if let Some(names) = self.clusters.get_mut(cluster) {
            names.remove(broker_name);
            if names.is_empty() {
                self.clusters.remove(cluster);
            }
        }
    }

    /// The command for a changed smallest id; only groups whose replicas may act as master care.
    fn min_broker_changed(
        &self,
        broker_name: &str,
        offline: Option<String>,
        ha: Option<String>,
    ) -> Option<Command> {
        let group = self.brokers.get(broker_name)?;
        if offline.is_some() && !group.enable_acting_master {
            return None;
        }
        let (min_id, min_addr) = group.broker_addrs.iter().next()?;
        let everybody = offline.is_some() || group.broker_addrs.len() == 1;
        let told = group.broker_addrs.iter().filter(|(id, _)| everybody || *id != min_id);
        Some(Command::NotifyMinBrokerId {
            addresses: told.map(|(_, address)| address.clone()).collect(),
            broker_name: broker_name.to_owned(),
            min_broker_id: *min_id,
            min_broker_addr: min_addr.clone(),
            offline_broker_addr: offline,
            ha_broker_addr: ha,
        })
    }
}
