//! Topics: make, change, delete, look at.

use crate::dispatch::Context;
use crate::topics::MAX_QUEUES;
use apogee_model::names;
use apogee_protocol::bodies::{
    ConsumeQueueData, CreateTopicListRequestBody, JsonBody, MessageQueue,
    QueryConsumeQueueResponseBody, TopicConfig, TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping, TopicFilterType, TopicList, TopicOffset, TopicStatsTable,
};
use apogee_protocol::headers::{
    CreateTopicRequestHeader, DeleteTopicRequestHeader, GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader, GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
};
use apogee_protocol::{Response, ResponseCode};
use std::collections::BTreeMap;

type Handled = Result<Response, Response>;

/// Most consume-queue units that one request shows.
const MAX_UNITS: i32 = 1024;

/// Topic attributes: name, allowed values (none listed: any number), changeable after creation.
const ATTRIBUTES: [(&str, &[&str], bool); 4] = [
    ("queue.type", &["BatchCQ", "SimpleCQ"], false),
    ("cleanup.policy", &["DELETE", "COMPACTION"], false),
    (
        "message.type",
        &["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE"],
        true,
    ),
    ("reserve.time", &[], true),
];

fn invalid(remark: impl Into<String>) -> Response {
    Response::error(ResponseCode::INVALID_PARAMETER, remark.into())
}

fn unknown_topic(topic: &str) -> Response {
    Response::error(
        ResponseCode::TOPIC_NOT_EXIST,
        format!("No topic in this broker. topic: {topic}"),
    )
}

/// UPDATE_AND_CREATE_TOPIC.
pub(crate) fn update(context: &Context<'_>) -> Handled {
    let header: CreateTopicRequestHeader = context.header()?;
    let known = context.broker.topics.get(&header.topic);
    let attributes = known.as_ref().map(|config| config.attributes.clone()).unwrap_or_default();
    let changes = header.attributes.as_deref().unwrap_or_default();
    let config = TopicConfig {
        topic_name: header.topic.to_string(),
        read_queue_nums: header.read_queue_nums,
        write_queue_nums: header.write_queue_nums,
        perm: header.perm,
        topic_filter_type: match header.topic_filter_type.as_str() {
            "MULTI_TAG" => TopicFilterType::MultiTag,
            _ => TopicFilterType::SingleTag,
        },
        topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
        order: header.order,
        attributes: alter_attributes(attributes, changes, known.is_none())?,
    };
    put(context, config)?;
    Ok(Response::success())
}

/// UPDATE_AND_CREATE_TOPIC_LIST. Every topic is checked before the first one is made.
pub(crate) fn update_list(context: &Context<'_>) -> Handled {
    let body: CreateTopicListRequestBody = context.body()?;
    for config in &body.topic_config_list {
        check(context, config)?;
    }
    for config in body.topic_config_list {
        put(context, config)?;
    }
    Ok(Response::success())
}

fn check(context: &Context<'_>, config: &TopicConfig) -> Result<(), Response> {
    let topic = config.topic_name.as_str();
    names::validate_topic(topic).map_err(|error| invalid(error.to_string()))?;
    let broker = context.broker;
    if broker.live.validate_system_topic_when_update_topic() && broker.topics.is_system(topic) {
        return Err(invalid(format!("The topic[{topic}] is conflict with system topic.")));
    }
    for (field, queues) in
        [("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)]
    {
        if !(0..=MAX_QUEUES).contains(&queues) {
            return Err(invalid(format!(
                "{field}[{queues}] is illegal, allowed are 0 to {MAX_QUEUES}"
            )));
        }
    }
    if !(0..8).contains(&config.perm) {
        return Err(invalid(format!("perm[{}] is illegal, allowed are 0 to 7", config.perm)));
    }
    // What this release does not store must not be promised by a topic's settings.
    let unsupported =
        [("queue.type", "BatchCQ"), ("cleanup.policy", "COMPACTION"), ("message.type", "LITE")];
    for (name, value) in unsupported {
        let was = broker.topics.get(topic).and_then(|known| known.attributes.get(name).cloned());
        if config.attributes.get(name).is_some_and(|new| new == value)
            && was.as_deref() != Some(value)
        {
            return Err(Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("topic attribute {name}={value} is not supported by this broker yet"),
            ));
        }
    }
    Ok(())
}

fn put(context: &Context<'_>, config: TopicConfig) -> Result<(), Response> {
    check(context, &config)?;
    let topic = config.topic_name.clone();
    if context.broker.topics.update(config) {
        tracing::info!(topic, by = %context.connection.peer(), "topic created or changed");
        context.broker.register_soon();
    }
    Ok(())
}

/// Applies changes such as `+message.type=FIFO,-reserve.time`.
fn alter_attributes(
    mut attributes: BTreeMap<String, String>,
    changes: &str,
    creating: bool,
) -> Result<BTreeMap<String, String>, Response> {
    let fail = |remark: String| Response::error(ResponseCode::SYSTEM_ERROR, remark);
    let mut seen = Vec::new();
    for change in changes.split(',').map(str::trim).filter(|change| !change.is_empty()) {
        let (add, rest) = if let Some(rest) = change.strip_prefix('+') {
            (true, rest)
        } else if let Some(rest) = change.strip_prefix('-') {
            (false, rest)
        } else {
            return Err(fail(format!("attribute change {change:?} must begin with + or -")));
        };
        let (name, value) =
            rest.split_once('=').map_or((rest, None), |(name, value)| (name, Some(value)));
        if seen.contains(&name) {
            return Err(fail(format!("key duplication: {name}")));
        }
        seen.push(name);
        let known = ATTRIBUTES.iter().find(|(known, _, _)| *known == name);
        let Some((_, allowed, changeable)) = known else {
            return Err(fail(format!("unsupported key: {name}")));
        };
        if !creating && !changeable {
            return Err(fail(format!("attempt to update an unchangeable attribute: {name}")));
        }
        if !add {
            if attributes.remove(name).is_none() {
                return Err(fail(format!("attempt to delete a nonexistent key: {name}")));
            }
            continue;
        }
        let value = value.unwrap_or_default();
        let legal = if allowed.is_empty() {
            value.parse::<i64>().is_ok()
        } else {
            allowed.contains(&value)
        };
        if !legal {
            return Err(fail(format!("value {value:?} is not allowed for attribute {name}")));
        }
        attributes.insert(name.to_owned(), value.to_owned());
    }
    Ok(attributes)
}

/// DELETE_TOPIC_IN_BROKER: the topic, its queues and every position in it.
pub(crate) fn delete(context: &Context<'_>) -> Handled {
    let header: DeleteTopicRequestHeader = context.header()?;
    let (broker, topic) = (context.broker, header.topic.as_str());
    names::validate_topic(topic).map_err(|error| invalid(error.to_string()))?;
    if broker.live.validate_system_topic_when_update_topic() && broker.topics.is_system(topic) {
        return Err(invalid(format!("The topic[{topic}] is conflict with system topic.")));
    }
    let groups = broker.offsets.groups_of(topic);
    remove(context, topic)?;
    // The groups' pop retries of the topic go with it (clearRetryTopicWhenDeleteTopic).
    for retry in groups.iter().flat_map(|group| crate::pop::retry_topics(topic, group)) {
        if broker.topics.get(&retry).is_some() {
            remove(context, &retry)?;
        }
    }
    tracing::info!(topic, by = %context.connection.peer(), "topic deleted");
    Ok(Response::success())
}

fn remove(context: &Context<'_>, topic: &str) -> Result<(), Response> {
    let broker = context.broker;
    broker.topics.remove(topic);
    broker.stats.remove_topic(topic);
    broker.offsets.remove_topic(
        topic,
        |group| broker.clients.consumer_group(group).is_some(),
        context.now,
    );
    broker.saved.save_offsets(&broker.offsets);
    broker.store.delete_topic(topic).map_err(|error| {
        Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!("the queues of {topic} cannot be deleted: {error}"),
        )
    })?;
    broker.polling.deleted(topic);
    crate::pop::forget_topic(broker, topic);
    broker.register_soon();
    Ok(())
}

/// GET_ALL_TOPIC_CONFIG, whole or by pages.
pub(crate) fn get_all(context: &Context<'_>) -> Handled {
    // Older tools send no header at all.
    let header: GetAllTopicConfigRequestHeader = context.request.header().unwrap_or_default();
    let topics = context.broker.topics.all();
    let total = i32::try_from(topics.len()).unwrap_or(i32::MAX);
    let skip = usize::try_from(header.topic_seq).unwrap_or(0);
    let take =
        header.max_topic_num.and_then(|max| usize::try_from(max).ok()).filter(|max| *max > 0);
    let page = topics.into_iter().skip(skip).take(take.unwrap_or(usize::MAX)).collect();
    let body = TopicConfigAndMappingSerializeWrapper {
        data_version: context.broker.topics.version(),
        mapping_data_version: Some(context.broker.topics.version()),
        topic_config_table: page,
        ..TopicConfigAndMappingSerializeWrapper::default()
    };
    let header = GetAllTopicConfigResponseHeader { total_topic_num: total };
    Ok(Response::success().header(&header).body(body.to_raw()))
}

/// GET_TOPIC_CONFIG.
pub(crate) fn get(context: &Context<'_>) -> Handled {
    let header: GetTopicConfigRequestHeader = context.header()?;
    let config =
        context.broker.topics.get(&header.topic).ok_or_else(|| unknown_topic(&header.topic))?;
    Ok(Response::success().body(TopicConfigAndQueueMapping::from(config.as_ref().clone()).to_raw()))
}

/// GET_TOPIC_STATS_INFO: positions of every queue.
pub(crate) fn stats(context: &Context<'_>) -> Handled {
    let header: GetTopicStatsInfoRequestHeader = context.header()?;
    let (broker, topic) = (context.broker, header.topic.as_str());
    let config = broker.topics.get(topic).ok_or_else(|| {
        Response::error(ResponseCode::TOPIC_NOT_EXIST, format!("topic[{topic}] not exist"))
    })?;
    let mut table = TopicStatsTable::default();
    for queue_id in 0..config.read_queue_nums.max(config.write_queue_nums) {
        let max = broker.store.max_offset(topic, queue_id);
        let min = broker.store.min_offset(topic, queue_id);
        let last = if max > 0 { broker.store.message_time(topic, queue_id, max - 1) } else { None };
        table.offset_table.insert(
            MessageQueue::new(topic, broker.config.broker_name.as_str(), queue_id),
            TopicOffset {
                last_update_timestamp: last.unwrap_or(0),
                max_offset: max,
                min_offset: min,
            },
        );
    }
    table.topic_put_tps = broker.stats.topic_put_rate(topic, context.now);
    Ok(Response::success().body(table.to_raw()))
}

/// GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
pub(crate) fn system_list(context: &Context<'_>) -> Handled {
    let body =
        TopicList { topic_list: context.broker.topics.system_names(), ..TopicList::default() };
    Ok(Response::success().body(body.to_raw()))
}

/// CLEAN_UNUSED_TOPIC: queues whose topic is gone.
pub(crate) fn clean_unused(context: &Context<'_>) -> Handled {
    let broker = context.broker;
    for topic in broker.store.topics() {
        if broker.topics.get(&topic).is_none()
            && !broker.topics.is_system(&topic)
            && !topic.starts_with("%LMQ%")
        {
            tracing::info!(%topic, "queues of a topic that is gone are deleted");
            remove(context, &topic)?;
        }
    }
    Ok(Response::success())
}

/// QUERY_CONSUME_QUEUE: raw units.
pub(crate) fn query_consume_queue(context: &Context<'_>) -> Handled {
    let header: QueryConsumeQueueRequestHeader = context.header()?;
    let (broker, topic) = (context.broker, header.topic.as_deref().unwrap_or_default());
    let missing = || {
        let remark = format!("{}@{topic} is not exist!", header.queue_id);
        Response::error(ResponseCode::SYSTEM_ERROR, remark)
    };
    let queue = broker.store.queue(topic, header.queue_id).ok_or_else(missing)?;
    let count = usize::try_from(header.count.clamp(0, MAX_UNITS)).unwrap_or(0);
    let units = queue.read(header.index, count).map_err(|error| {
        Response::error(ResponseCode::SYSTEM_ERROR, format!("the queue cannot be read: {error}"))
    })?;
    let group = header.consumer_group.as_deref().filter(|group| !group.is_empty());
    let found = group
        .and_then(|group| broker.clients.consumer_group(group))
        .and_then(|members| members.subscription(topic));
    let body = QueryConsumeQueueResponseBody {
        filter_data: group.map(|_| "null".to_owned()),
        max_queue_index: broker.store.max_offset(topic, header.queue_id),
        min_queue_index: broker.store.min_offset(topic, header.queue_id),
        subscription_data: found.map(|found| found.data.clone()),
        queue_data: units
            .iter()
            .map(|unit| ConsumeQueueData {
                physic_offset: unit.physical_offset,
                physic_size: unit.size,
                tags_code: broker.store.tags_code_of(&queue, unit),
                ..ConsumeQueueData::default()
            })
            .collect(),
    };
    Ok(Response::success().body(body.to_raw()))
}
