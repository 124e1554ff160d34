//! Who consumes what, how far, and moving them.

use crate::clients::Member;
use crate::dispatch::Context;
use apogee_model::names;
use apogee_protocol::bodies::{
    Connection, ConsumeStats, ConsumeStatsList, ConsumerConnection, GroupList, JsonBody,
    MessageQueue, OffsetWrapper, ProducerConnection, ProducerInfo, ProducerTableInfo,
    QuerySubscriptionResponseBody, ResetOffsetBody, TopicList,
};
use apogee_protocol::headers::{
    CloneGroupOffsetRequestHeader, GetConsumeStatsInBrokerHeader, GetConsumeStatsRequestHeader,
    GetConsumerConnectionListRequestHeader, GetProducerConnectionListRequestHeader,
    QuerySubscriptionByConsumerRequestHeader, QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader, ResetOffsetRequestHeader,
};
use apogee_protocol::{Response, ResponseCode};
use apogee_store::Boundary;
use std::collections::BTreeMap;

type Handled = Result<Response, Response>;

/// GET_CONSUME_STATS: the group's position in every queue of its topics.
pub(crate) fn consume_stats(context: &Context<'_>) -> Handled {
    let header: GetConsumeStatsRequestHeader = context.header()?;
    let (broker, group) = (context.broker, header.consumer_group.as_str());
    let one = header.topic.as_deref().filter(|topic| !topic.is_empty());
    let listed = header.topic_list.as_deref().unwrap_or_default();
    let topics: Vec<String> = if let Some(topic) = one {
        vec![topic.to_owned()]
    } else if !listed.is_empty() {
        listed.split(';').filter(|topic| !topic.is_empty()).map(str::to_owned).collect()
    } else {
        broker.offsets.topics_of(group)
    };
    let mut stats = ConsumeStats::default();
    for topic in topics {
        add_topic(context, &mut stats, group, &topic);
    }
    Ok(Response::success().body(stats.to_raw()))
}

fn add_topic(context: &Context<'_>, stats: &mut ConsumeStats, group: &str, topic: &str) {
    let broker = context.broker;
    let Some(config) = broker.topics.get(topic) else { return };
    for queue_id in 0..config.read_queue_nums {
        let broker_offset = broker.store.max_offset(topic, queue_id);
        let committed = broker.offsets.query(group, topic, queue_id).unwrap_or(0).max(0);
        let last = committed - 1;
        let seen = (last >= 0).then(|| broker.store.message_time(topic, queue_id, last)).flatten();
        stats.offset_table.insert(
            MessageQueue::new(topic, broker.config.broker_name.as_str(), queue_id),
            OffsetWrapper {
                broker_offset,
                consumer_offset: committed,
                last_timestamp: seen.unwrap_or(0),
                pull_offset: committed,
            },
        );
    }
    stats.consume_tps += broker.stats.group_get_rate(group, topic, context.now);
}

/// GET_BROKER_CONSUME_STATS: the same for every group, those that consume in order or those that don't.
pub(crate) fn broker_consume_stats(context: &Context<'_>) -> Handled {
    let header: GetConsumeStatsInBrokerHeader = context.header()?;
    let broker = context.broker;
    let mut body = ConsumeStatsList {
        broker_addr: Some(broker.config.address()),
        ..ConsumeStatsList::default()
    };
    for group in broker.groups.all().into_keys() {
        let mut listed = Vec::new();
        for topic in broker.offsets.topics_of(&group) {
            let ordered = broker.topics.get(&topic).is_some_and(|config| config.order);
            if header.is_order && !ordered {
                continue;
            }
            let mut stats = ConsumeStats::default();
            add_topic(context, &mut stats, &group, &topic);
            for offsets in stats.offset_table.values() {
                body.total_diff += offsets.broker_offset - offsets.consumer_offset;
            }
            listed.push(stats);
        }
        body.consume_stats_list.push(BTreeMap::from([(group, listed)]));
    }
    Ok(Response::success().body(body.to_raw()))
}

fn connection_of(member: &Member) -> Connection {
    Connection {
        client_addr: Some(member.connection.peer().to_string()),
        client_id: Some(member.client_id.to_string()),
        language: Some(member.language),
        version: member.version,
    }
}

/// GET_CONSUMER_CONNECTION_LIST.
pub(crate) fn connections(context: &Context<'_>) -> Handled {
    let header: GetConsumerConnectionListRequestHeader = context.header()?;
    let group = header.consumer_group.as_str();
    let Some(members) = context.broker.clients.consumer_group(group) else {
        return Err(Response::error(
            ResponseCode::CONSUMER_NOT_ONLINE,
            format!("the consumer group[{group}] not online"),
        ));
    };
    let facts = members.facts();
    let body = ConsumerConnection {
        connection_set: members.members().iter().map(connection_of).collect(),
        consume_from_where: facts.consume_from_where,
        consume_type: facts.consume_type,
        message_model: facts.message_model,
        subscription_table: members
            .subscriptions()
            .iter()
            .map(|subscription| (subscription.data.topic.clone(), subscription.data.clone()))
            .collect(),
    };
    Ok(Response::success().body(body.to_raw()))
}

/// GET_PRODUCER_CONNECTION_LIST.
pub(crate) fn producer_connections(context: &Context<'_>) -> Handled {
    let header: GetProducerConnectionListRequestHeader = context.header()?;
    let group = header.producer_group.as_str();
    let members = context.broker.clients.producers(group);
    if members.is_empty() {
        return Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!("the producer group[{group}] not exist"),
        ));
    }
    let body = ProducerConnection { connection_set: members.iter().map(connection_of).collect() };
    Ok(Response::success().body(body.to_raw()))
}

/// GET_ALL_PRODUCER_INFO.
pub(crate) fn all_producers(context: &Context<'_>) -> Handled {
    let info = |member: &Member| ProducerInfo {
        client_id: Some(member.client_id.to_string()),
        language: Some(member.language),
        last_update_timestamp: member.last_seen_ms,
        remote_ip: Some(format!("/{}", member.connection.peer())),
        version: member.version,
    };
    let groups = context.broker.clients.all_producers();
    let data =
        groups.iter().map(|(group, members)| (group.clone(), members.iter().map(info).collect()));
    Ok(Response::success().body(ProducerTableInfo { data: data.collect() }.to_raw()))
}

/// QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe to a topic or have a position in it.
pub(crate) fn groups_of_topic(context: &Context<'_>) -> Handled {
    let header: QueryTopicConsumeByWhoRequestHeader = context.header()?;
    let broker = context.broker;
    let mut groups = broker.clients.groups_subscribed_to(&header.topic);
    groups.extend(broker.offsets.groups_of(&header.topic));
    groups.sort_unstable();
    groups.dedup();
    Ok(Response::success().body(GroupList { group_list: groups }.to_raw()))
}

/// QUERY_TOPICS_BY_CONSUMER: topics in which a group has a position.
pub(crate) fn topics_of_group(context: &Context<'_>) -> Handled {
    let header: QueryTopicsByConsumerRequestHeader = context.header()?;
    let broker = context.broker;
    let body = TopicList {
        broker_addr: Some(broker.config.address()),
        topic_list: broker.offsets.topics_of(&header.group),
    };
    Ok(Response::success().body(body.to_raw()))
}

/// QUERY_SUBSCRIPTION_BY_CONSUMER.
pub(crate) fn subscription(context: &Context<'_>) -> Handled {
    let header: QuerySubscriptionByConsumerRequestHeader = context.header()?;
    let topic = header.topic.as_deref().unwrap_or_default();
    let members = context.broker.clients.consumer_group(&header.group);
    let found = members.and_then(|members| members.subscription(topic));
    let body = QuerySubscriptionResponseBody {
        group: Some(header.group.to_string()),
        topic: header.topic.as_ref().map(ToString::to_string),
        subscription_data: found.map(|found| found.data.clone()),
    };
    Ok(Response::success().body(body.to_raw()))
}

/// INVOKE_BROKER_TO_RESET_OFFSET: to a time, to the end (-1), or one queue to an offset. The members
/// are told with their next pull, which is woken for that.
pub(crate) fn reset_offset(context: &Context<'_>) -> Handled {
    let header: ResetOffsetRequestHeader = context.header()?;
    let (broker, group, topic) = (context.broker, header.group.as_str(), header.topic.as_str());
    names::validate_group(group)
        .map_err(|error| Response::error(ResponseCode::INVALID_PARAMETER, error.to_string()))?;
    let config = broker.topics.get(topic).ok_or_else(|| {
        Response::error(ResponseCode::TOPIC_NOT_EXIST, format!("Topic {topic} does not exist"))
    })?;
    if broker.groups.get(group).is_none() {
        return Err(Response::error(
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("Group {group} does not exist"),
        ));
    }
    // Absent means all queues, as -1 does.
    let wanted = context.request.ext.get("queueId").map(|_| header.queue_id);
    let queues: Vec<i32> = match wanted {
        Some(id) if id >= 0 => vec![id],
        _ => (0..config.read_queue_nums).collect(),
    };
    let exact = header.offset.filter(|offset| *offset >= 0 && queues.len() == 1);
    let mut body = ResetOffsetBody::default();
    for queue_id in queues {
        let (min, max) =
            (broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id));
        if !(0..config.read_queue_nums).contains(&queue_id) {
            return Err(Response::error(
                ResponseCode::INVALID_PARAMETER,
                format!(
                    "queueId[{queue_id}] is illegal, {topic} has {} queues",
                    config.read_queue_nums
                ),
            ));
        }
        let mut target = match exact {
            Some(offset) if (min..=max).contains(&offset) => offset,
            Some(offset) => {
                return Err(Response::error(
                    ResponseCode::SYSTEM_ERROR,
                    format!("Target offset {offset} not in consume queue range [{min}-{max}]"),
                ));
            }
            None if header.timestamp < 0 => max,
            None => broker.store.offset_by_time(topic, queue_id, header.timestamp, Boundary::Lower),
        };
        let known = broker.offsets.query(group, topic, queue_id);
        if let Some(known) = known.filter(|known| !header.is_force && *known < target) {
            target = known;
        }
        broker.offsets.reset(group, topic, queue_id, target);
        broker.polling.arrived(topic, queue_id);
        broker.pop.polling.arrived(topic, queue_id);
        let queue = MessageQueue::new(topic, broker.config.broker_name.as_str(), queue_id);
        body.offset_table.insert(queue, target);
    }
    broker.saved.save_offsets(&broker.offsets);
    tracing::info!(group, topic, timestamp = header.timestamp, by = %context.connection.peer(), "offsets reset");
    Ok(Response::success().body(body.to_raw()))
}

/// CLONE_GROUP_OFFSET.
pub(crate) fn clone_offsets(context: &Context<'_>) -> Handled {
    let header: CloneGroupOffsetRequestHeader = context.header()?;
    let broker = context.broker;
    names::validate_group(&header.dest_group)
        .map_err(|error| Response::error(ResponseCode::INVALID_PARAMETER, error.to_string()))?;
    let topic = header.topic.as_deref().filter(|topic| !topic.is_empty());
    let copied = broker.offsets.clone_group(&header.src_group, &header.dest_group, topic);
    if copied == 0 {
        return Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!("group {} has no offsets to clone", header.src_group),
        ));
    }
    broker.saved.save_offsets(&broker.offsets);
    Ok(Response::success())
}

/// GET_ALL_CONSUMER_OFFSET.
pub(crate) fn all_offsets(context: &Context<'_>) -> Handled {
    let broker = context.broker;
    Ok(Response::success().body(broker.saved.wrapper(&broker.offsets).to_raw()))
}
