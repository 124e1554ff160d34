//! Who is connected: producers and consumers by group, as their heartbeats tell.
//!
//! What always holds: a member is one connection; a group without members is forgotten; a member
//! leaves with its connection or after two minutes of silence. A change of members or of
//! subscriptions is answered by the caller, who tells the others. Short locks; the table's comes before a
//! group's.

use crate::filters::is_tag_type;
use apogee_model::{MessageFilter, TagFilter, subscription};
use apogee_net::Connection;
use apogee_protocol::LanguageCode;
use apogee_protocol::bodies::{
    ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel, SubscriptionData,
};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Client ids that are remembered for replies; beyond, a reply to a new client finds nobody.
const MAX_CLIENT_IDS: usize = 131_072;

/// One client process seen through one connection.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Its connection.
    pub(crate) connection: Arc<Connection>,
    /// Its client id.
    pub(crate) client_id: Arc<str>,
    /// Its language.
    pub(crate) language: LanguageCode,
    /// Its version ordinal.
    pub(crate) version: i32,
    /// Its last heartbeat (ms).
    pub(crate) last_seen_ms: i64,
    /// What its last full heartbeat looked like; 0 for a client that sends only full ones.
    pub(crate) fingerprint: i32,
}

/// A subscription with its compiled filter.
pub(crate) struct Subscription {
    /// As the client sent it.
    pub(crate) data: SubscriptionData,
    /// What it means for the consume queue.
    pub(crate) filter: Arc<dyn MessageFilter>,
}

impl Subscription {
    /// Compiles a subscription by tags. Hashes that the client computed count as they are; a client
    /// that sent none gets them from its expression. Expressions of other types are the business of
    /// `filters`.
    pub(crate) fn compile(data: SubscriptionData) -> Self {
        let expression = data.sub_string.as_deref().unwrap_or(subscription::ALL_TAGS);
        let by_tags = is_tag_type(data.expression_type.as_deref());
        let filter = if expression == subscription::ALL_TAGS || data.class_filter_mode || !by_tags {
            TagFilter::All
        } else if data.code_set.is_empty() {
            TagFilter::parse(expression).unwrap_or(TagFilter::All)
        } else {
            TagFilter::from_codes(data.code_set.iter().copied())
        };
        Self { data, filter: Arc::new(filter) }
    }
}

#[derive(Default)]
struct GroupState {
    consume_type: Option<ConsumeType>,
    message_model: Option<MessageModel>,
    consume_from_where: Option<ConsumeFromWhere>,
    members: HashMap<u64, Member>,
    subscriptions: BTreeMap<String, Arc<Subscription>>,
    /// Whether members were already named that subscribe differently.
    conflict_logged: bool,
}

/// A consumer group with members.
pub(crate) struct ConsumerGroup {
    /// Its name.
    pub(crate) name: Arc<str>,
    state: RwLock<GroupState>,
}

/// What the members of a group agree on.
#[derive(Debug, Clone)]
pub(crate) struct GroupFacts {
    /// Push, pull or pop.
    pub(crate) consume_type: Option<ConsumeType>,
    /// Clustering or broadcasting.
    pub(crate) message_model: Option<MessageModel>,
    /// Where a new group starts.
    pub(crate) consume_from_where: Option<ConsumeFromWhere>,
}

impl ConsumerGroup {
    /// The subscription to a topic.
    pub(crate) fn subscription(&self, topic: &str) -> Option<Arc<Subscription>> {
        self.state.read().subscriptions.get(topic).cloned()
    }

    /// All subscriptions by topic.
    pub(crate) fn subscriptions(&self) -> Vec<Arc<Subscription>> {
        self.state.read().subscriptions.values().cloned().collect()
    }

    /// All members.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.state.read().members.values().cloned().collect()
    }

    /// Ids of all members, each once.
    pub(crate) fn client_ids(&self) -> Vec<String> {
        let state = self.state.read();
        let mut ids: Vec<String> =
            state.members.values().map(|m| m.client_id.to_string()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// What the members agree on.
    pub(crate) fn facts(&self) -> GroupFacts {
        let state = self.state.read();
        GroupFacts {
            consume_type: state.consume_type,
            message_model: state.message_model,
            consume_from_where: state.consume_from_where,
        }
    }

    /// Whether the group consumes by broadcast.
    pub(crate) fn is_broadcast(&self) -> bool {
        self.state.read().message_model == Some(MessageModel::Broadcasting)
    }
}

/// What a heartbeat changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Somebody joined or left.
    pub(crate) members: bool,
    /// A subscription came, went or changed.
    pub(crate) subscriptions: bool,
    /// The heartbeat was a short one, and what it left out is not known here.
    pub(crate) unknown_subscriptions: bool,
}

/// A member that left a group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// The group.
    pub(crate) group: Arc<str>,
    /// The client.
    pub(crate) client_id: Arc<str>,
    /// Whether no other connection of the same client is in the group.
    pub(crate) last_connection: bool,
}

/// All clients of a broker.
#[derive(Default)]
pub(crate) struct Clients {
    consumers: RwLock<HashMap<Box<str>, Arc<ConsumerGroup>>>,
    producers: Mutex<HashMap<Box<str>, HashMap<u64, Member>>>,
    /// The newest connection of each client id.
    by_id: Mutex<HashMap<Arc<str>, Arc<Connection>>>,
}

impl Clients {
    /// The consumer group, if it has members.
    pub(crate) fn consumer_group(&self, group: &str) -> Option<Arc<ConsumerGroup>> {
        self.consumers.read().get(group).cloned()
    }

    /// All consumer groups with members.
    pub(crate) fn consumer_groups(&self) -> Vec<Arc<ConsumerGroup>> {
        self.consumers.read().values().cloned().collect()
    }

    /// Groups with a subscription to `topic`.
    pub(crate) fn groups_subscribed_to(&self, topic: &str) -> Vec<String> {
        let groups = self.consumers.read();
        let subscribed = groups.values().filter(|group| group.subscription(topic).is_some());
        subscribed.map(|group| group.name.to_string()).collect()
    }

    /// The connection of a client.
    pub(crate) fn connection_of(&self, client_id: &str) -> Option<Arc<Connection>> {
        self.by_id.lock().get(client_id).filter(|connection| !connection.is_closed()).cloned()
    }

    /// Notes where a client is.
    pub(crate) fn seen(&self, member: &Member) {
        let mut by_id = self.by_id.lock();
        let full = by_id.len() >= MAX_CLIENT_IDS;
        match by_id.get_mut(&member.client_id) {
            Some(known) if known.id() == member.connection.id() => {}
            Some(known) => *known = Arc::clone(&member.connection),
            None if !full => {
                by_id.insert(Arc::clone(&member.client_id), Arc::clone(&member.connection));
            }
            None => {}
        }
    }

    /// Records a producer.
    pub(crate) fn register_producer(&self, group: &str, member: Member) {
        let mut producers = self.producers.lock();
        let members = producers.entry(group.into()).or_default();
        members.insert(member.connection.id(), member);
    }

    /// Members of a producer group.
    pub(crate) fn producers(&self, group: &str) -> Vec<Member> {
        let producers = self.producers.lock();
        producers.get(group).map(|members| members.values().cloned().collect()).unwrap_or_default()
    }

    /// All producers by group.
    pub(crate) fn all_producers(&self) -> BTreeMap<String, Vec<Member>> {
        let producers = self.producers.lock();
        let list = producers.iter();
        list.map(|(group, members)| (group.to_string(), members.values().cloned().collect()))
            .collect()
    }

    /// Records a consumer and its subscriptions. With `keep_subscriptions` (a short heartbeat) those
    /// on record stay.
    pub(crate) fn register_consumer(
        &self,
        data: ConsumerData,
        member: Member,
        keep_subscriptions: bool,
    ) -> Change {
        let mut groups = self.consumers.write();
        let name = data.group_name.as_str();
        let group = Arc::clone(groups.entry(name.into()).or_insert_with(|| {
            Arc::new(ConsumerGroup { name: name.into(), state: RwLock::default() })
        }));
        let mut state = group.state.write();
        let known = state
            .members
            .get(&member.connection.id())
            .is_some_and(|m| m.fingerprint == member.fingerprint);
        let joined = state.join(&group.name, member);
        // Until the member is in, whoever leaves could take the group for empty and forget it.
        drop(groups);
        state.consume_type = data.consume_type;
        state.message_model = data.message_model;
        state.consume_from_where = data.consume_from_where;
        let subscriptions =
            !keep_subscriptions && state.subscribe(&group.name, data.subscription_data_set);
        Change {
            members: joined,
            subscriptions,
            unknown_subscriptions: keep_subscriptions && !known,
        }
    }

    /// Removes a connection from one group's producers and consumers.
    pub(crate) fn unregister(
        &self,
        connection_id: u64,
        producer_group: Option<&str>,
        consumer_group: Option<&str>,
        leaving: impl Fn(&Departure),
    ) -> Option<Departure> {
        if let Some(name) = producer_group {
            let mut producers = self.producers.lock();
            if let Some(members) = producers.get_mut(name) {
                members.remove(&connection_id);
                if members.is_empty() {
                    producers.remove(name);
                }
            }
        }
        let group = self.consumer_group(consumer_group?)?;
        let left = {
            let mut state = group.state.write();
            let left = state.leave(&group.name, connection_id);
            left.iter().for_each(leaving);
            left
        };
        self.forget_empty();
        left
    }

    /// Removes a connection everywhere; answers the consumer groups it left. `leaving` is called while
    /// nobody can see the group without the member yet.
    pub(crate) fn connection_closed(
        &self,
        connection_id: u64,
        leaving: impl Fn(&Departure),
    ) -> Vec<Departure> {
        self.remove_where(|member| member.connection.id() == connection_id, leaving)
    }

    /// Removes members that were silent for longer than `timeout_ms` and closes their connections.
    pub(crate) fn expire(
        &self,
        now: i64,
        timeout_ms: i64,
        leaving: impl Fn(&Departure),
    ) -> Vec<Departure> {
        let gone = |member: &Member| {
            let silent = now - member.last_seen_ms > timeout_ms;
            if silent {
                member.connection.close();
            }
            silent || member.connection.is_closed()
        };
        self.remove_where(gone, leaving)
    }

    fn remove_where(
        &self,
        gone: impl Fn(&Member) -> bool,
        leaving: impl Fn(&Departure),
    ) -> Vec<Departure> {
        self.by_id.lock().retain(|_, connection| !connection.is_closed());
        self.producers.lock().retain(|_, members| {
            members.retain(|_, member| !gone(member));
            !members.is_empty()
        });
        let mut departures = Vec::new();
        for group in self.consumer_groups() {
            let mut state = group.state.write();
            let ids: Vec<u64> =
                state.members.values().filter(|m| gone(m)).map(|m| m.connection.id()).collect();
            for departure in ids.into_iter().filter_map(|id| state.leave(&group.name, id)) {
                leaving(&departure);
                departures.push(departure);
            }
        }
        if !departures.is_empty() {
            self.forget_empty();
        }
        departures
    }

    fn forget_empty(&self) {
        self.consumers.write().retain(|_, group| !group.state.read().members.is_empty());
    }
}

impl GroupState {
    /// Adds or renews a member; true if it is new.
    fn join(&mut self, group: &str, member: Member) -> bool {
        let id = member.connection.id();
        if let Some(known) = self.members.get_mut(&id) {
            known.last_seen_ms = member.last_seen_ms;
            known.fingerprint = member.fingerprint;
            return false;
        }
        let mut others = self.members.values();
        let twin = others
            .find(|other| other.client_id == member.client_id && !other.connection.is_closed());
        if let Some(twin) = twin {
            tracing::warn!(
                group, client_id = %member.client_id, first = %twin.connection.peer(),
                second = %member.connection.peer(),
                "two connections with one client id: queues will have two owners or none; give each \
                 process its own instance name"
            );
        }
        self.members.insert(id, member);
        true
    }

    fn leave(&mut self, group: &Arc<str>, connection_id: u64) -> Option<Departure> {
        let member = self.members.remove(&connection_id)?;
        let last = !self.members.values().any(|other| other.client_id == member.client_id);
        Some(Departure {
            group: Arc::clone(group),
            client_id: member.client_id,
            last_connection: last,
        })
    }

    /// Takes over subscriptions; true if something changed. A newer version of a subscription wins.
    fn subscribe(&mut self, group: &str, wanted: Vec<SubscriptionData>) -> bool {
        let mut changed = false;
        let before = self.subscriptions.len();
        self.subscriptions.retain(|topic, _| wanted.iter().any(|data| data.topic == *topic));
        changed |= self.subscriptions.len() != before;
        for data in wanted {
            match self.subscriptions.get(&data.topic) {
                None => changed = true,
                Some(known) => {
                    let same = known.data.sub_string == data.sub_string
                        && known.data.expression_type == data.expression_type;
                    if !same && self.members.len() > 1 && !self.conflict_logged {
                        self.conflict_logged = true;
                        tracing::warn!(
                            group, topic = %data.topic, one = known.data.sub_string.as_deref(),
                            other = data.sub_string.as_deref(),
                            "members of one group subscribe differently: each gets only a part"
                        );
                    }
                    if data.sub_version <= known.data.sub_version {
                        continue;
                    }
                    changed |= !same;
                }
            }
            self.subscriptions.insert(data.topic.clone(), Arc::new(Subscription::compile(data)));
        }
        changed
    }
}
