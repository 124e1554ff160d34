//! Answers from the route table, and what operators change in it.
//!
//! Always holds: answers are copies, so nothing is held while they are written; sets come out sorted.

use crate::route_table::{
    MASTER_ID, MAX_TOPICS, PERM_READ_WRITE, PERM_WRITE, RouteTable, acceptable,
};
use apogee_protocol::bodies::{
    BrokerMemberGroup, ClusterInfo, QueueData, TopicList, TopicRouteData,
};
use std::collections::BTreeSet;

/// Topics with which brokers find each other; they never see an acting master.
const SYNC_BROKER_MEMBER_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";
const FLAG_UNIT: i32 = 1;
const FLAG_UNIT_SUB: i32 = 2;

/// Which topics of units are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitTopics {
    /// Topics of a unit.
    Unit,
    /// Topics with subscriptions of a unit.
    WithUnitSubscription,
    /// The same, but not of a unit themselves.
    WithUnitSubscriptionOnly,
}

impl RouteTable {
    /// The route of a topic; `None` when no living broker has it.
    pub fn route(&self, topic: &str, acting_master: bool) -> Option<TopicRouteData> {
        let queues = self.topics.get(topic)?;
        let mut route = TopicRouteData::default();
        for (broker_name, queue_data) in queues {
            let Some(group) = self.brokers.get(broker_name) else { continue };
            route.queue_datas.push(queue_data.clone());
            route.broker_datas.push(group.clone());
            for address in group.broker_addrs.values() {
                let cluster = group.cluster.clone().unwrap_or_default();
                let live = self
                    .live
                    .get(&(cluster, address.clone()))
                    .filter(|live| !live.filter_servers.is_empty());
                if let Some(live) = live {
                    route.filter_server_table.insert(address.clone(), live.filter_servers.clone());
                }
            }
        }
        if route.broker_datas.is_empty() {
            return None;
        }
        route.topic_queue_mapping_by_broker = self.mappings.get(topic).cloned();
        if acting_master && !topic.starts_with(SYNC_BROKER_MEMBER_PREFIX) {
            show_acting_masters(&mut route);
        }
        Some(route)
    }

    /// Every broker of every cluster.
    pub fn cluster_info(&self) -> ClusterInfo {
        ClusterInfo {
            broker_addr_table: self.brokers.clone(),
            cluster_addr_table: self.clusters.clone(),
        }
    }

    /// The addresses of a broker name.
    pub fn member_group(&self, cluster: &str, broker_name: &str) -> BrokerMemberGroup {
        BrokerMemberGroup {
            broker_addrs: self
                .brokers
                .get(broker_name)
                .map(|group| group.broker_addrs.clone())
                .unwrap_or_default(),
            broker_name: Some(broker_name.to_owned()),
            cluster: Some(cluster.to_owned()),
        }
    }

    /// Names of all topics.
    pub fn all_topics(&self) -> TopicList {
        TopicList { topic_list: self.topics.keys().cloned().collect(), ..TopicList::default() }
    }

    /// Names of the topics of a cluster.
    pub fn topics_of_cluster(&self, cluster: &str) -> TopicList {
        let Some(names) = self.clusters.get(cluster) else { return TopicList::default() };
        let of_cluster =
            self.topics.iter().filter(|(_, queues)| queues.keys().any(|name| names.contains(name)));
        TopicList {
            topic_list: of_cluster.map(|(topic, _)| topic.clone()).collect(),
            ..TopicList::default()
        }
    }

    /// Clusters and brokers, which are topics too, and some broker's address.
    pub fn system_topics(&self) -> TopicList {
        let mut names: BTreeSet<String> = self.clusters.keys().cloned().collect();
        names.extend(self.clusters.values().flatten().cloned());
        let address = self.brokers.values().flat_map(|group| group.broker_addrs.values()).next();
        TopicList { broker_addr: address.cloned(), topic_list: names.into_iter().collect() }
    }

    /// Topics by their unit flags.
    pub(crate) fn unit_topics(&self, which: UnitTopics) -> TopicList {
        let wanted = |queues: &QueueData| {
            let unit = queues.topic_sys_flag & FLAG_UNIT != 0;
            let subscribed = queues.topic_sys_flag & FLAG_UNIT_SUB != 0;
            match which {
                UnitTopics::Unit => unit,
                UnitTopics::WithUnitSubscription => subscribed,
                UnitTopics::WithUnitSubscriptionOnly => subscribed && !unit,
            }
        };
        let topics =
            self.topics.iter().filter(|(_, queues)| queues.values().next().is_some_and(wanted));
        TopicList {
            topic_list: topics.map(|(topic, _)| topic.clone()).collect(),
            ..TopicList::default()
        }
    }

    /// Enters queues of a topic by hand or by a broker that registers topics one by one. Queues of unknown
    /// brokers are left out.
    pub fn register_topic(&mut self, topic: &str, queue_datas: Vec<QueueData>) {
        if !acceptable(topic) {
            return;
        }
        for queues in queue_datas {
            let room = self.topics.len() < MAX_TOPICS || self.topics.contains_key(topic);
            if room && self.brokers.contains_key(&queues.broker_name) {
                self.topics
                    .entry(topic.to_owned())
                    .or_default()
                    .insert(queues.broker_name.clone(), queues);
            }
        }
    }

    /// Forgets a topic, everywhere or on the brokers of one cluster.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let Some(cluster) = cluster else {
            self.topics.remove(topic);
            self.mappings.remove(topic);
            return;
        };
        let names = self.clusters.get(cluster).cloned().unwrap_or_default();
        if let Some(queues) = self.topics.get_mut(topic) {
            queues.retain(|name, _| !names.contains(name));
            if queues.is_empty() {
                self.topics.remove(topic);
            }
        }
        if let Some(infos) = self.mappings.get_mut(topic) {
            infos.retain(|name, _| !names.contains(name));
            if infos.is_empty() {
                self.mappings.remove(topic);
            }
        }
    }

    /// Takes the write permission from all topics of a broker name, here only; gives how many.
    pub fn wipe_write_permission(&mut self, broker_name: &str) -> usize {
        self.change_permission(broker_name, |perm| perm & !PERM_WRITE)
    }

    /// Gives reading and writing to all topics of a broker name; gives how many.
    pub fn add_write_permission(&mut self, broker_name: &str) -> usize {
        self.change_permission(broker_name, |_| PERM_READ_WRITE)
    }

    fn change_permission(&mut self, broker_name: &str, change: impl Fn(i32) -> i32) -> usize {
        let mut count = 0;
        for queues in self.topics.values_mut().filter_map(|queues| queues.get_mut(broker_name)) {
            queues.perm = change(queues.perm);
            count += 1;
        }
        count
    }
}

/// Shows the smallest replica under the master's id where there is no master and nobody may write.
fn show_acting_masters(route: &mut TopicRouteData) {
    for group in &mut route.broker_datas {
        if group.broker_addrs.contains_key(&MASTER_ID) || !group.enable_acting_master {
            continue;
        }
        let queues =
            route.queue_datas.iter().find(|queues| queues.broker_name == group.broker_name);
        if queues.is_some_and(|queues| queues.perm & PERM_WRITE == 0)
            && let Some((_, address)) = group.broker_addrs.pop_first()
        {
            group.broker_addrs.insert(MASTER_ID, address);
        }
    }
}

/// Leaves the brokers of one zone, and those without a master, which any zone may read from.
pub(crate) fn filter_by_zone(route: &mut TopicRouteData, zone: &str) {
    let mut removed = BTreeSet::new();
    route.broker_datas.retain(|group| {
        let same = group.zone_name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(zone));
        let keep = same || !group.broker_addrs.contains_key(&MASTER_ID);
        if !keep {
            removed.insert(group.broker_name.clone());
            for address in group.broker_addrs.values() {
                route.filter_server_table.remove(address);
            }
        }
        keep
    });
    route.queue_datas.retain(|queues| !removed.contains(&queues.broker_name));
}
